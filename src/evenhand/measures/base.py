"""What a measure must answer, by how it is made.

- `Measure`: what every measure answers.
- `Linear`: a weighted sum over documents, weight by rank and utility by grade. Sampled pairs
  estimate it without bias.
- `Listwise`: anything else; it computes its own values from whole lists.
- `Ratio`: a listwise measure that is divided by what all judgments of a query make.
- `Inferred`: a listwise measure that estimates another from judgments of a sample.
- `Deviation`: a listwise measure that sums errors of the system's own scores.
- `Pairwise`: a listwise measure that sums over pairs of documents.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeGuard, runtime_checkable

import numpy as np

from evenhand.measures.lists import Lists

__all__ = [
    "Deviation",
    "Inferred",
    "Linear",
    "Listwise",
    "Measure",
    "Pairwise",
    "Ratio",
    "is_sum",
    "least_depth",
    "sign",
    "sums_pairs",
    "uses_lengths",
    "uses_scores",
]

#: Depth to which a ratio's pool is kept, unless another is named.
RATIO_DEPTH = 100


@runtime_checkable
class Measure(Protocol):
    """What every measure answers; any object that is `Linear` or `Listwise` can be used as one."""

    @property
    def cutoff(self) -> int | None:
        """How many ranks count, or None if every rank does."""
        ...


@runtime_checkable
class Linear(Measure, Protocol):
    """A weighted sum over documents: weight by rank, utility by grade."""

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have, or None if grades are unbounded."""
        ...

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """Weight of each rank; ranks count from 1. Shape as `rank`, float64."""
        ...

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """Utility of each grade. Shape as `grade`, float64."""
        ...


@runtime_checkable
class Listwise(Measure, Protocol):
    """A measure of whole lists, with its values under complete judgments.

    Attributes
    ----------
    lower_is_better
        Whether it counts faults.
    reason
        What it is instead of a sum over documents of weight by rank times utility by grade.
    """

    lower_is_better: ClassVar[bool]
    reason: ClassVar[str]

    @property
    def depth(self) -> int | None:
        """The last rank that it looks at, or None if there is no such rank."""
        ...

    @property
    def instead(self) -> str:
        """A linear measure that answers a similar question; empty if there is none."""
        ...

    def counts(self, lists: Lists) -> np.ndarray:
        """Which ranked documents count; bool, shape (documents,)."""
        ...

    def values(self, lists: Lists) -> np.ndarray:
        """Value of each list in the measure's unit; float64, shape (systems, queries)."""
        ...


@runtime_checkable
class Ratio(Listwise, Protocol):
    """A sum over a list, divided by what all judgments of the query make."""

    def norm(self, lists: Lists) -> np.ndarray:
        """What is divided by; 0 where a query has nothing to find. Shape (queries,)."""
        ...


@runtime_checkable
class Inferred(Listwise, Protocol):
    """An estimate of another measure, from judgments of a sample and how it was drawn.

    Attributes
    ----------
    asks_pool
        Whether it must know what was pooled and not drawn.
    """

    asks_pool: ClassVar[bool]


@runtime_checkable
class Deviation(Listwise, Protocol):
    """A weighted sum over documents of how far a system's score is off the grade."""

    def weight(self, rank: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Weight of each rank of a list of so many documents; float64, shape as `rank`."""
        ...

    def error(self, score: np.ndarray, grade: np.ndarray) -> np.ndarray:
        """How far a score is off its grade; float64, shape as `score`."""
        ...


@runtime_checkable
class Pairwise(Listwise, Protocol):
    """A sum over ordered pairs of documents, weighted by the product of what both ranks give."""

    def weight(self, rank: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Weight of each rank with those before it; no two ranks weigh the same."""
        ...

    def share(self, rank: np.ndarray, length: np.ndarray) -> np.ndarray:
        """What a rank of a list of so many documents gives; float64, shape as `rank`."""
        ...


def is_sum(measure: object) -> TypeGuard[Linear]:
    """Whether it is a sum over documents of weight by rank times utility by grade."""
    return isinstance(measure, Linear) and not isinstance(measure, Listwise)


def least_depth(measure: object) -> int:
    """Ranks that a pool should have, however few a measure looks at.

    What a ratio is divided by lies deeper than it looks.
    """
    return RATIO_DEPTH if isinstance(measure, Ratio) else 0


def sign(measure: object) -> int:
    """1 where a higher value is better, -1 where the measure counts faults."""
    return -1 if isinstance(measure, Listwise) and measure.lower_is_better else 1


def sums_pairs(measure: object) -> TypeGuard[Pairwise]:
    """Whether it is a sum over pairs of documents."""
    return isinstance(measure, Pairwise)


def uses_lengths(measure: object) -> bool:
    """Whether its weights depend on how long a list is."""
    return isinstance(measure, Deviation | Pairwise)


def uses_scores(measure: object) -> TypeGuard[Deviation]:
    """Whether its values depend on the systems' scores, not only on the order that they make."""
    return isinstance(measure, Deviation)
