"""Ranked lists and what was judged, as arrays: what measures of whole lists are computed from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from evenhand.measures.validation import check_cutoff, text

__all__ = ["Inclusion", "Lists", "Said", "WithinCutoff", "before"]


class Said(NamedTuple):
    """Judgments of ranked documents, an entry a judgment, each of shape (entries,).

    Entries follow their documents; those of one document come with descending grades. A document
    that nobody judged has one entry of grade 0.
    """

    document: np.ndarray  # place among the ranked documents
    grade: np.ndarray
    share: np.ndarray  # 1 / the document's entries


class Inclusion(NamedTuple):
    """How the judged pairs were sampled from the pool.

    Attributes
    ----------
    pooled
        By ranked document: the stratum in which it was pooled, -1 where it was not, or where that
        is not told; shape (documents,).
    probability
        By judged pair: that with which it was drawn, NaN where unknown; shape (pairs,).
    stratified
        Whether `pooled` is known.
    """

    pooled: np.ndarray
    probability: np.ndarray
    stratified: bool


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Each system's ranked list for each query, and the judgments.

    Attributes
    ----------
    n_systems, n_queries
        There are ``n_systems * n_queries`` lists; list ``j * n_queries + x`` is system j's for
        query x, and empty where j does not answer x.
    system, number, rank, score, pair
        By ranked document: system; list, ascending; rank from 1, ascending within a list; score;
        number of the judged pair, -1 where nobody judged it. Shape (documents,).
    judgment, grade
        By judgment: its pair, ascending, and grade; shape (judgments,).
    query
        By judged pair: its query, -1 where that is not evaluated; shape (pairs,).
    inclusion
        How the judged pairs were sampled; None where the judgments do not say.
    """

    n_systems: int
    n_queries: int
    system: np.ndarray
    number: np.ndarray
    rank: np.ndarray
    score: np.ndarray
    pair: np.ndarray
    judgment: np.ndarray
    grade: np.ndarray
    query: np.ndarray
    inclusion: Inclusion | None = None

    def take(self, rows: np.ndarray) -> Lists:
        """Some of the ranked documents, in the order given."""
        columns = ("system", "number", "rank", "score", "pair")
        inclusion = self.inclusion
        if inclusion is not None:
            inclusion = inclusion._replace(pooled=inclusion.pooled[rows])
        taken = {name: getattr(self, name)[rows] for name in columns}
        return replace(self, **taken, inclusion=inclusion)

    def ordered(self) -> Lists:
        """List by list, each by rank."""
        step, down = np.diff(self.number), np.diff(self.rank)
        if np.all((step > 0) | ((step == 0) & (down > 0))):
            return self
        return self.take(np.lexsort((self.rank, self.number)))

    def cut(self, cutoff: int | None) -> Lists:
        """The first ranks of each list."""
        if cutoff is None or not np.any(self.rank > cutoff):
            return self
        return self.take(np.flatnonzero(self.rank <= cutoff))

    def inside(self, cutoff: int | None) -> np.ndarray:
        """Which ranked documents are within the cutoff; bool, shape (documents,)."""
        return np.ones(len(self.rank), bool) if cutoff is None else self.rank <= cutoff

    def length(self) -> np.ndarray:
        """How many documents each list has; shape (lists,)."""
        return np.bincount(self.number, minlength=self.n_systems * self.n_queries)

    def total(self, number: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Sum the values of each list: float64, shape (systems, queries)."""
        flat = np.bincount(number, value, minlength=self.n_systems * self.n_queries)
        # No value at all would make zeros of integers.
        return flat.astype(np.float64, copy=False).reshape(self.n_systems, self.n_queries)

    def averaged(self, value: np.ndarray) -> np.ndarray:
        """Mean of values by judgment over the judgments of each pair: float64, shape (pairs,)."""
        count = np.bincount(self.judgment, minlength=len(self.query))
        return np.bincount(self.judgment, value, minlength=len(self.query)) / count

    def by_query(self, value: np.ndarray) -> np.ndarray:
        """Sum values by pair over the pairs of each query: float64, shape (queries,)."""
        asked = self.query >= 0
        return np.bincount(self.query[asked], value[asked], minlength=self.n_queries)

    def said(self) -> Said:
        """The judgments of each ranked document."""
        order = np.lexsort((-self.grade, self.judgment))
        grade = self.grade[order]
        judgments = np.bincount(self.judgment, minlength=len(self.query))
        start = np.cumsum(judgments) - judgments
        known = self.pair >= 0
        count = np.where(known, judgments[self.pair], 1)
        document = np.repeat(np.arange(len(count)), count)
        place = np.arange(len(document)) - (np.cumsum(count) - count)[document]
        known = known[document]
        place[known] += start[self.pair[document[known]]]
        return Said(document, np.where(known, grade[place], 0.0), 1.0 / count[document])


def before(segment: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Sum of the earlier values of the same segment; segments lie one after another.

    >>> before(np.array([0, 0, 0, 4, 4]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])).tolist()
    [0.0, 1.0, 3.0, 0.0, 4.0]
    """
    if not len(value):
        return np.zeros(0)
    total = np.concatenate([[0.0], np.cumsum(value)[:-1]])
    first = np.flatnonzero(np.diff(segment, prepend=segment[0] - 1))
    return total - np.repeat(total[first], np.diff(first, append=len(value)))


class WithinCutoff:
    """What measures of whole lists share that look at the first ranks, or at all of them."""

    __slots__ = ()
    lower_is_better: ClassVar[bool] = False
    cutoff: int | None

    def __post_init__(self) -> None:
        check_cutoff(type(self).__name__, self.cutoff)

    @property
    def depth(self) -> int | None:
        """The cutoff."""
        return self.cutoff

    @property
    def instead(self) -> str:
        """Nothing."""
        return ""

    def counts(self, lists: Lists) -> np.ndarray:
        """The documents within the cutoff."""
        return lists.inside(self.cutoff)

    def __str__(self) -> str:
        return text(type(self).__name__, self.cutoff)
