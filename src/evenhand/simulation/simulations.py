r"""Replicated studies against complete judgments: what a design would have been worth.

With the utility of every cell known, a study is drawn, "judged" and estimated thousands of times
(`evenhand.simulation.replicates`), and the estimates are held against the truth. For each budget,
design and sampler:

- ``rmse``: root of the mean squared error of all pairwise differences (of the system's value, where
  there is one), over systems and replications, with its Monte Carlo standard error;
- ``bias_z``: largest |mean error| over its Monte Carlo standard error, over the systems;
- ``accuracy``: share of pairs of truly different systems whose order is right;
- ``best``: share of studies whose highest estimate is that of a truly best system;
- ``tau``: mean Kendall tau-a between the estimated and the true order;
- ``coverage``, ``width``: of the interval for each contrast of the goal, averaged over contrasts;
- ``pairs``: coverage of the intervals for all pairs of systems, averaged over pairs.

Rows of studies that learn (`evenhand.simulation.adaptive`) say in how many rounds. For the goals
`best` and `order` there are also studies whose later rounds are focused on what is undecided
(`evenhand.decisions.focus`), in rows of the goal's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from evenhand.decisions.focus import FOCUSED
from evenhand.designs import utilities
from evenhand.designs.proposals import Design, design
from evenhand.errors import EvenhandError
from evenhand.estimands import goals, targets
from evenhand.estimands.goals import Goal
from evenhand.estimands.pools import pool
from evenhand.float64 import in_float64
from evenhand.formats.qrels import Qrels
from evenhand.formats.runs import Runs
from evenhand.intervals.confidence import INTERVAL, check_level, percent
from evenhand.intervals.intervals import check_interval, chosen
from evenhand.measures.base import Measure
from evenhand.measures.grammar import linear
from evenhand.priors.features import feature_table, signal
from evenhand.priors.prior import NumPyroPrior, Prior
from evenhand.results import Result, Table
from evenhand.sampling.samplers import SAMPLERS
from evenhand.simulation.replicates import (
    Replications,
    Studies,
    replicate_design,
    replicate_rounds,
)

__all__ = ["PLANS", "Simulation", "plan_named", "simulate", "simulate_runs"]

#: Designs by the names of ``evenhand simulate``: kind of design, and utility of a pool.
PLANS: dict[str, tuple[str, Callable[..., Any]]] = {
    "rank": ("optimal", utilities.rank_utility),
    "flat": ("optimal", utilities.flat),
    "score": ("optimal", utilities.score_utility),
    "paper": ("optimal", partial(utilities.curve_utility, curve="paper-trec")),
    "sqrt": ("optimal", partial(utilities.curve_utility, curve="paper-trec", literal=False)),
    "naive": ("naive", partial(utilities.curve_utility, curve="paper-trec")),
    "minimax": ("minimax", utilities.rank_utility),
    "uniform": ("uniform", utilities.flat),
}


def plan_named(name: str, goal: Goal, floor: float) -> Design:
    """The design that ``evenhand simulate`` calls `name`, one of `PLANS`.

    Raises
    ------
    EvenhandError
        If there is none.
    """
    if name not in PLANS:
        raise EvenhandError(f"unknown design {name!r}", hint=f"known are {', '.join(PLANS)}")
    kind, utility = PLANS[name]
    return design(goal, utility(goal.target.pool), kind=kind, floor=floor)


@dataclass(frozen=True)
class Simulation(Result):
    """Results of replicated studies.

    Attributes
    ----------
    measure, goal
        What was estimated.
    truth
        Value of each system; shape (systems,).
    rows
        One for each budget, design and sampler, as the module docstring describes them; ``mean``
        and ``sd`` hold the mean and standard deviation of each system's estimates.
    replications, level
        Studies a row, and level of the intervals.
    """

    measure: str
    goal: str
    systems: tuple[str, ...]
    truth: np.ndarray
    rows: tuple[dict[str, Any], ...]
    replications: int
    level: float
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Replications, rows: Sequence[dict[str, Any]]) -> Simulation:
        """The results of all settings of some replications."""
        return cls(
            measure=str(given.goal.target.measure),
            goal=given.goal.kind,
            systems=given.goal.target.systems,
            truth=given.truth,
            rows=tuple(rows),
            replications=given.count,
            level=given.level,
        )

    def tables(self) -> list[Table]:
        """A row a setting; with few systems also each system's mean and standard deviation."""
        scalars = [k for k, v in self.rows[0].items() if not isinstance(v, np.ndarray)]
        digits = {"rmse": 4, "rmse_se": 4, "bias_z": 2, "accuracy": 3, "tau": 3, "best": 3}
        digits |= {"coverage": 3, "pairs": 3}
        title = (
            f"{self.measure}, goal {self.goal}: {len(self.systems)} systems, "
            f"{self.replications:,} replications, {percent(self.level)} intervals"
        )
        tables = [Table.of(title, {k: [row[k] for row in self.rows] for k in scalars}, digits)]
        if len(self.systems) <= 10:
            columns: dict[str, list[Any]] = {
                k: [] for k in ("budget", "design", "sampler", "rounds", "system")
            }
            columns |= {"truth": [], "mean": [], "sd": []}
            for row in self.rows:
                for j, system in enumerate(self.systems):
                    values = (*(row[k] for k in list(columns)[:4]), system, self.truth[j])
                    for name, value in zip(
                        columns, (*values, row["mean"][j], row["sd"][j]), strict=True
                    ):
                        columns[name].append(value)
            tables.append(Table.of("Each system's estimates", columns))
        return tables

    def notes_shown(self) -> tuple[str, ...]:
        """What the user should know."""
        return self.notes

    def to_dict(self) -> dict[str, Any]:
        """The rows, in full precision."""
        return {
            "measure": self.measure,
            "goal": self.goal,
            "replications": self.replications,
            "level": self.level,
            "systems": list(self.systems),
            "truth": self.truth,
            "rows": list(self.rows),
        }


@in_float64
def simulate(
    goal: Goal,
    utility: np.ndarray,
    *,
    budgets: Sequence[int],
    designs: Iterable[str | Design] = ("rank",),
    samplers: Iterable[str] = ("distinct",),
    learn: Sequence[int] = (),
    prior: Prior | None = None,
    focus: Sequence[int] = (2,),
    floor: float = 0.1,
    replications: int = 1000,
    level: float = 0.95,
    interval: str = INTERVAL,
    seed: int = 0,
    progress: Callable[[int, int], Any] | None = None,
) -> Simulation:
    """Replicate studies with known utilities: bias, error, order and coverage.

    Parameters
    ----------
    goal
        What they are to estimate.
    utility
        True utility of every cell, shape (cells,).
    budgets
        Numbers of draws.
    designs, samplers
        Names of `PLANS` or designs; names of `evenhand.sampling.samplers.SAMPLERS`.
    learn
        Also replicate studies that learn, in so many rounds each: designed from ranks, then from
        what was learned, and cross-fitted.
    prior
        What learns; by default `NumPyroPrior` over the features of the pool.
    focus
        In how many rounds focused studies are drawn, for the goals `best` and `order`.
    floor
        Of the designs given by name.
    replications, seed
        Studies a setting; settings share the seed, so that they differ in nothing else.
    level, interval
        Of the intervals; the kind is one of `evenhand.intervals.intervals.INTERVALS`, but `betting`
        and `moderated`, which `auto` is for studies that learn.
    progress
        Called with the number of studies done since the last call, and the number in all.

    Raises
    ------
    EvenhandError
        If a budget, design or sampler cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> goal = eh.pair(eh.target(eh.pool(eh.read_runs(runs)), "DCG@2"))
    >>> found = eh.simulate(goal, np.array([1.0, 0.0, 1.0]), budgets=[2], replications=200)
    >>> bool(found.rows[0]["bias_z"] < 4)  # no bias beyond chance
    True
    """
    samplers, learn = list(samplers), list(learn)
    focus = list(focus) if goal.kind in FOCUSED else []
    _check_names(goal, samplers, [*learn, *focus], replications, level, interval)
    plans = _plans(goal, designs, floor, budgets, samplers)

    def told(done: int) -> None:
        if progress is not None:
            progress(done, replications * len(budgets) * len(settings))

    given = Replications(goal, utility, replications, seed, level, interval, told)
    settings = _settings(given, plans, samplers) + _later_rounds(given, focus, learn, prior, floor)
    rows = [
        {"budget": budget} | setting | _summary(given.truth, replicate(budget))
        for budget in budgets
        for setting, replicate in settings
    ]
    return Simulation.of(given, rows)


def _plans(
    goal: Goal,
    designs: Iterable[str | Design],
    floor: float,
    budgets: Sequence[int],
    samplers: Sequence[str],
) -> list[tuple[str, Design]]:
    """The designs and their names; refuses budgets that one cannot fill."""
    plans = [
        (d, plan_named(d, goal, floor)) if isinstance(d, str) else (d.name, d) for d in designs
    ]
    once = not all(SAMPLERS[name].repeats for name in samplers)
    for budget in budgets:
        for name, plan in plans:
            support = int(np.count_nonzero(plan.q))
            if budget < 1 or (once and budget > support):
                raise EvenhandError(
                    f"the budget must lie between 1 and the {support:,} pairs that design "
                    f"{name!r} can draw, got {budget:,}"
                )
    return plans


def _settings(
    given: Replications, plans: Sequence[tuple[str, Design]], samplers: Sequence[str]
) -> list[tuple[dict[str, Any], Callable[[int], Studies]]]:
    """Settings of one round."""
    return [
        (
            {"design": name, "sampler": sampler, "rounds": 1},
            partial(replicate_design, given, plan, sampler),
        )
        for name, plan in plans
        for sampler in samplers
    ]


def _later_rounds(
    given: Replications,
    focus: Sequence[int],
    learn: Sequence[int],
    prior: Prior | None,
    floor: float,
) -> list[tuple[dict[str, Any], Callable[[int], Studies]]]:
    """Settings of several rounds: focused, and those that learn."""
    if not focus and not learn:
        return []
    goal, found = given.goal, []
    first = plan_named("rank", goal, floor)
    for n in focus:
        setting = {"design": goal.kind, "sampler": "distinct", "rounds": n}
        found.append((setting, partial(replicate_rounds, given, first, None, n)))
    if learn:
        learner = NumPyroPrior(feature_table(goal.target.pool)) if prior is None else prior
        for n in learn:
            setting = {"design": "learned", "sampler": "distinct", "rounds": n}
            found.append((setting, partial(replicate_rounds, given, first, learner, n)))
    return found


def _check_names(
    goal: Goal,
    samplers: Sequence[str],
    rounds: Sequence[int],
    replications: int,
    level: float,
    interval: str,
) -> None:
    """Refuse what cannot be simulated."""
    goal.target.check_linear()
    check_level(level)
    kind = check_interval(chosen(interval, None))
    if kind.bets or kind.foresees:
        raise EvenhandError(
            f"{interval} intervals are made from each draw, and simulations keep sums of draws",
            hint="take 'auto', or call `evenhand.estimate` for studies of your own",
        )
    if replications < 2:
        raise EvenhandError(f"a simulation needs at least 2 replications, got {replications}")
    if any(number < 1 for number in rounds):
        raise EvenhandError(f"a study has at least one round, got {min(rounds)}")
    for name in samplers:
        if name not in SAMPLERS:
            raise EvenhandError(
                f"unknown sampler {name!r}", hint=f"known are {', '.join(SAMPLERS)}"
            )


def simulate_runs(
    runs: Runs,
    qrels: Qrels,
    measure: Measure | str,
    *,
    goal: str = "rank",
    baseline: str | None = None,
    systems: Sequence[str] | None = None,
    sample_systems: int | None = None,
    queries: Iterable[str] | None = None,
    signals: Mapping[str, Qrels] | None = None,
    method: str = "laplace",
    seed: int = 0,
    **options: Any,
) -> Simulation:
    """Replicate studies of some runs, judged by a table of complete judgments.

    Parameters
    ----------
    runs, qrels
        What the systems returned and what assessors say; a pair without a judgment counts as
        utility 0.
    measure, goal, baseline
        What the studies estimate.
    systems
        Only these.
    sample_systems
        Only so many, drawn at random by `seed`.
    queries
        By default those of the qrels.
    signals
        What else is known of pairs, by name, for studies that learn.
    method
        How their models are fitted.
    seed
        Of systems and draws.
    **options
        Of `simulate`.

    Raises
    ------
    EvenhandError
        If more systems are asked for than there are, or an option cannot be used.
    """
    measure = linear(measure)
    if systems is not None:
        runs = runs.select(systems)
    if sample_systems is not None:
        if not 1 <= sample_systems <= len(runs.systems):
            raise EvenhandError(f"cannot take {sample_systems} of {len(runs.systems)} systems")
        chosen = np.random.default_rng(seed).choice(
            len(runs.systems), sample_systems, replace=False
        )
        runs = runs.select([runs.systems[j] for j in sorted(chosen)])
    asked = qrels.queries.to_pylist() if queries is None else queries
    cells = pool(runs, depth=measure.cutoff, queries=asked)
    judged = utilities.judged_utility(cells, qrels, measure)
    missing = np.isnan(judged)
    wanted = goals.goal(targets.target(cells, measure), goal, system=baseline)
    if options.get("learn"):
        known = {name: signal(cells, table) for name, table in (signals or {}).items()}
        options["prior"] = NumPyroPrior(feature_table(cells, known), method=method)
    found = simulate(wanted, np.where(missing, 0.0, judged), seed=seed, **options)
    notes = [*cells.notes]
    if missing.any():
        share = f"{missing.sum():,} of {len(cells):,}"
        notes.append(f"{share} pairs have no judgment and count as utility 0")
    return replace(found, notes=tuple(notes))


def _summary(truth: np.ndarray, found: Studies) -> dict[str, Any]:
    value = found.value
    error = value - truth
    k, count = len(truth), len(value)
    if k > 1:
        # Mean over pairs of (e_x - e_y)^2, without building the pairs.
        centred = error - error.mean(1, keepdims=True)
        square = 2.0 / (k - 1) * (centred**2).sum(1)
    else:
        square = error[:, 0] ** 2
    rmse = np.sqrt(square.mean())
    spread = error.std(0, ddof=1) / np.sqrt(count)
    z = np.abs(error.mean(0)) / np.where(spread > 0, spread, 1.0)
    row: dict[str, Any] = {
        "rmse": rmse,
        "rmse_se": square.std(ddof=1) / np.sqrt(count) / (2 * rmse) if rmse > 0 else 0.0,
        "bias_z": z.max(),
    }
    if k > 1:
        row["accuracy"], row["tau"] = _order(value, truth)
        row["best"] = (truth[value.argmax(1)] == truth.max()).mean()
    row |= {"coverage": found.covered.mean(), "width": found.width.mean()}
    if k > 1:
        row["pairs"] = found.pairs.mean()
    return {**row, "mean": value.mean(0), "sd": value.std(0, ddof=1)}


def _order(value: np.ndarray, truth: np.ndarray, most: int = 1 << 22) -> tuple[float, float]:
    """Accuracy over pairs that truly differ, and Kendall's tau-a (a tie counts for neither)."""
    first, second = np.triu_indices(len(truth), 1)
    true = np.sign(truth[first] - truth[second])
    accuracy, tau = [], []
    for part in np.array_split(value, max(1, value.shape[0] * len(first) // most)):
        sign = np.sign(part[:, first] - part[:, second])
        agree = sign * true
        accuracy.append((agree[:, true != 0] > 0).mean(1))
        tau.append(agree.mean(1))
    return float(np.concatenate(accuracy).mean()), float(np.concatenate(tau).mean())
