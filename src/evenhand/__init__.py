"""evenhand: which ranking system is better, from few judgments, without bias.

The way through the library, in the order of its rooms::

    runs   = eh.read_runs("runs/*.gz")                      what the systems returned
    pool   = eh.pool(runs, depth=100)                       their query-document pairs, numbered
    target = eh.target(pool, "DCG@100")                     each system's weights over them
    goal   = eh.rank(target)                                contrasts that answer the question
    design = eh.design(goal, eh.rank_utility(pool))         which pairs, with which probability
    sample = eh.draw(jax.random.key(0), design, 500)        500 distinct pairs
    judged = eh.judge(target, sample, eh.read_qrels(file))  what assessors say of them
    answer = eh.estimate(goal, [judged])                    estimates with intervals
    prior  = eh.NumPyroPrior(eh.feature_table(pool))        a model that learns where relevance lies
    design, _ = eh.steered(goal, prior.fit([labels])[0])    which pairs next

`Study` does the same on disk, resumable at any point; `simulate` replicates it against complete
judgments. The functions on arrays below these (`evenhand.designs.proposal`,
`evenhand.lines.pivotal`, ...) work inside your own ``jit``, ``vmap`` and ``grad``.

Names are loaded when they are first used, so that ``evenhand --help`` need not wait for JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenhand.beliefs import Beliefs as Beliefs
    from evenhand.certificates import Certificate as Certificate
    from evenhand.certificates import Certificates as Certificates
    from evenhand.certificates import certify as certify
    from evenhand.comparisons import Comparisons as Comparisons
    from evenhand.controls import control_variates as control_variates
    from evenhand.controls import cross_fit as cross_fit
    from evenhand.designs import Design as Design
    from evenhand.designs import design as design
    from evenhand.errors import EvenhandError as EvenhandError
    from evenhand.errors import FormatError as FormatError
    from evenhand.errors import MissingJudgments as MissingJudgments
    from evenhand.errors import PrecisionError as PrecisionError
    from evenhand.errors import StudyError as StudyError
    from evenhand.errors import SupportError as SupportError
    from evenhand.estimates import Estimate as Estimate
    from evenhand.estimators import estimate as estimate
    from evenhand.estimators import judge as judge
    from evenhand.evaluation import Evaluation as Evaluation
    from evenhand.evaluation import evaluate as evaluate
    from evenhand.features import feature_table as feature_table
    from evenhand.focus import focused as focused
    from evenhand.goals import Goal as Goal
    from evenhand.goals import absolute as absolute
    from evenhand.goals import baseline as baseline
    from evenhand.goals import best as best
    from evenhand.goals import contrast as contrast
    from evenhand.goals import order as order
    from evenhand.goals import pair as pair
    from evenhand.goals import rank as rank
    from evenhand.judgments import Labels as Labels
    from evenhand.loops import study_that_learns as study_that_learns
    from evenhand.measures import AP as AP
    from evenhand.measures import DCG as DCG
    from evenhand.measures import MAE as MAE
    from evenhand.measures import MSE as MSE
    from evenhand.measures import RBP as RBP
    from evenhand.measures import Gain as Gain
    from evenhand.measures import Judged as Judged
    from evenhand.measures import JudgedP as JudgedP
    from evenhand.measures import Measure as Measure
    from evenhand.measures import P as P
    from evenhand.measures import R as R
    from evenhand.measures import Rprec as Rprec
    from evenhand.measures import Swaps as Swaps
    from evenhand.measures import infAP as infAP
    from evenhand.measures import infNDCG as infNDCG
    from evenhand.measures import measure as measure
    from evenhand.measures import nDCG as nDCG
    from evenhand.measures import statAP as statAP
    from evenhand.measures import statP as statP
    from evenhand.measures import statR as statR
    from evenhand.measures import statRprec as statRprec
    from evenhand.measures import wSwaps as wSwaps
    from evenhand.measures import xinfAP as xinfAP
    from evenhand.pools import Pool as Pool
    from evenhand.pools import pool as pool
    from evenhand.prior import NumPyroPrior as NumPyroPrior
    from evenhand.prior import Posterior as Posterior
    from evenhand.prior import Prior as Prior
    from evenhand.samples import Sample as Sample
    from evenhand.sampling import draw as draw
    from evenhand.serving import serve as serve
    from evenhand.simulation import Simulation as Simulation
    from evenhand.simulation import simulate as simulate
    from evenhand.stages import Control as Control
    from evenhand.stages import Round as Round
    from evenhand.standings import Standings as Standings
    from evenhand.standings import ranking as ranking
    from evenhand.steering import steered as steered
    from evenhand.study import Study as Study
    from evenhand.targets import Target as Target
    from evenhand.targets import target as target
    from evenhand.trec import Preferences as Preferences
    from evenhand.trec import Prels as Prels
    from evenhand.trec import Qrels as Qrels
    from evenhand.trec import Runs as Runs
    from evenhand.trec import read_preferences as read_preferences
    from evenhand.trec import read_prels as read_prels
    from evenhand.trec import read_qrels as read_qrels
    from evenhand.trec import read_queries as read_queries
    from evenhand.trec import read_runs as read_runs
    from evenhand.utilities import Moments as Moments
    from evenhand.utilities import Utility as Utility
    from evenhand.utilities import curve_utility as curve_utility
    from evenhand.utilities import external_utility as external_utility
    from evenhand.utilities import flat as flat
    from evenhand.utilities import known_utility as known_utility
    from evenhand.utilities import rank_utility as rank_utility
    from evenhand.utilities import score_utility as score_utility

# Room by public names.
_ROOMS = {
    "certificates": ("Certificate", "Certificates", "certify"),
    "controls": ("control_variates", "cross_fit"),
    "designs": ("Design", "design"),
    "errors": (
        "EvenhandError",
        "FormatError",
        "MissingJudgments",
        "PrecisionError",
        "StudyError",
        "SupportError",
    ),
    "beliefs": ("Beliefs",),
    "comparisons": ("Comparisons",),
    "estimates": ("Estimate",),
    "estimators": ("estimate", "judge"),
    "evaluation": ("Evaluation", "evaluate"),
    "features": ("feature_table",),
    "focus": ("focused",),
    "goals": ("Goal", "absolute", "baseline", "best", "contrast", "order", "pair", "rank"),
    "judgments": ("Labels",),
    "loops": ("study_that_learns",),
    "measures": (
        "AP",
        "DCG",
        "Gain",
        "Judged",
        "JudgedP",
        "MAE",
        "MSE",
        "Measure",
        "P",
        "R",
        "RBP",
        "Rprec",
        "Swaps",
        "infAP",
        "infNDCG",
        "measure",
        "nDCG",
        "statAP",
        "statP",
        "statR",
        "statRprec",
        "wSwaps",
        "xinfAP",
    ),
    "pools": ("Pool", "pool"),
    "prior": ("NumPyroPrior", "Posterior", "Prior"),
    "samples": ("Sample",),
    "sampling": ("draw",),
    "serving": ("serve",),
    "simulation": ("Simulation", "simulate"),
    "stages": ("Control", "Round"),
    "standings": ("Standings", "ranking"),
    "steering": ("steered",),
    "study": ("Study",),
    "targets": ("Target", "target"),
    "trec": (
        "Preferences",
        "Prels",
        "Qrels",
        "Runs",
        "read_preferences",
        "read_prels",
        "read_qrels",
        "read_queries",
        "read_runs",
    ),
    "utilities": (
        "Moments",
        "Utility",
        "curve_utility",
        "external_utility",
        "flat",
        "known_utility",
        "rank_utility",
        "score_utility",
    ),
}
_HOME = {name: (room, name) for room, names in _ROOMS.items() for name in names}

# Made from the table above; that both agree with the imports for type checkers is tested.
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll] - one list, not two


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    room, original = _HOME[name]
    value = getattr(importlib.import_module(f"evenhand.{room}"), original)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
