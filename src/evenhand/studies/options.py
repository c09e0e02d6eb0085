"""What a draw and an estimate of a study may be asked for, each as one value.

`DrawOptions` and `EstimateOptions` are what `evenhand.study.Study.draw` and ``estimate`` make of
their keywords. They refuse names that are none, and everything below them takes one value instead
of a dozen. The names are the `Literal` types here: commands offer the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from evenhand.errors import EvenhandError

if TYPE_CHECKING:
    from evenhand.designs.utilities import Utility
    from evenhand.priors.models import Model

__all__ = [
    "CombineName",
    "DesignName",
    "DrawOptions",
    "EstimateOptions",
    "EstimatorName",
    "MethodName",
    "QuestionName",
]

CombineName = Literal["planned", "balance"]
DesignName = Literal["optimal", "minimax", "naive", "uniform"]
EstimatorName = Literal["auto", "importance", "difference", "cross-fitted", "self-normalised"]
MethodName = Literal["laplace", "svi", "nuts"]
QuestionName = Literal["queries", "population"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawOptions:
    """How the next round is designed and drawn.

    Attributes
    ----------
    utility
        ``rank``, ``flat``, ``score``, a file of predicted grades (``qid docid value``), or a
        `Utility` of yours; ``learned`` fits a model to all judgments so far.
    kind, floor
        See `evenhand.designs.proposals.design`. For the goals ``best`` and ``order``, an
        ``optimal`` round is for the pairs that the rounds judged so far leave undecided.
    sampler
        ``distinct``, ``slices`` or ``iid``.
    signals
        Tables of what else is known of pairs (``qid docid value``), such as an LLM judge's labels:
        whatever `read_qrels` takes, or ``{name: table}``. Models learn how far to trust them, in
        this round's estimate and later ones.
    model, method
        For ``learned``: a model of `evenhand.priors.models` or your own, and how to fit it.
    looks
        Draw the budget as so many rounds at once, so that there is an estimate whenever one of them
        is judged; only before the first judgment (`evenhand.studies.drawing`).
    rejudge
        Have all pairs of this round judged for it, by another assessor where they were judged
        before: right where assessors disagree. Without it a judgment is as good as the truth, and
        pairs that have one are not drawn again.
    top_up
        Draw only pairs that no earlier round could draw, since their systems joined later. What
        earlier rounds say of the others stays as it is. Which pairs these are follows from when
        systems arrived (`evenhand.sampling.rounds.weights_by_cell`); whether to top up should, too.
        Such a round is none of the plan's.
    seed
        Of the draw; chosen at random and recorded by default.
    """

    utility: str | Path | Utility = "rank"
    kind: str = "optimal"
    floor: float = 0.1
    sampler: str = "distinct"
    signals: Sequence[Any] | Mapping[str, Any] = ()
    model: Model | None = None
    method: str = "laplace"
    looks: int = 1
    rejudge: bool = False
    top_up: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EstimateOptions:
    """How systems and contrasts are estimated.

    Attributes
    ----------
    level
        Confidence level.
    question
        ``queries``: intervals for this set of queries; ``population``: for queries like these.
    interval
        One of `evenhand.intervals.INTERVALS`.
    stop_when
        A rule of `evenhand.decisions.stopping`: the intervals are then those of a look that may be
        the last or not, and the answer says whether to stop.
    bounds
        Give bounds for systems that the rounds do not cover; for a ratio see
        `evenhand.nonlinear.completions`.
    combine
        ``planned`` or ``balance``; see `evenhand.estimation.importance.estimate`.
    estimator
        ``importance``, ``difference`` or ``cross-fitted`` (see `evenhand.estimation.importance`),
        or ``self-normalised`` (`evenhand.estimation.self_normalised`); ``auto`` is cross-fitted
        where a round was drawn by fold, and importance elsewhere and for betting intervals.
    model, method
        What learns the control variate, and how it is fitted.

    Raises
    ------
    EvenhandError
        If the estimator, the question or the way to combine rounds has a name that is none.
    """

    level: float = 0.95
    question: str = "queries"
    interval: str = "auto"
    stop_when: str | None = None
    bounds: bool = False
    combine: str = "planned"
    estimator: str = "auto"
    model: Model | None = None
    method: str = "laplace"

    def __post_init__(self) -> None:
        if self.estimator not in (known := get_args(EstimatorName)):
            raise EvenhandError(
                f"unknown estimator {self.estimator!r}", hint=f"known are {', '.join(known)}"
            )
        if self.combine not in get_args(CombineName):
            raise EvenhandError(
                f"unknown way to combine rounds {self.combine!r}", hint="'planned' or 'balance'"
            )
        if self.question not in get_args(QuestionName):
            raise EvenhandError(
                f"unknown question {self.question!r}", hint="'queries' or 'population'"
            )
