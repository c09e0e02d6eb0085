r"""Measures divided by what a perfect ranking could have: nDCG, AP, recall, R-precision.

    value of list y for query x  =  sum of the list / norm(x),   0 where norm(x) = 0         (1)

The norm comes from all judgments of the query, not from what was returned:

=======  ==================================================================  ===================
measure  sum of the list                                                     norm
=======  ==================================================================  ===================
nDCG@k   sum over ranks r <= k of gain(r) / log2(1 + r)                      the largest that any
                                                                             list could have
AP@k     sum over r <= k of rel(r) (1 + sum over s < r of rel(s)) / r        R
R@k      sum over r <= k of rel(r)                                           R
Rprec    sum over r <= R of rel(r)                                           R
=======  ==================================================================  ===================

with rel(r) 1 where the grade at rank r is at least `rel`, else 0, and R the sum of rel over all
judged documents of the query. These are the conventions of trec_eval (``ndcg``, ``ndcg_cut``,
``map``, ``map_cut``, ``recall``, ``Rprec``): AP@k divides by R, not by min(k, R); recall and
R-precision do so however short the list is. A document that nobody judged has gain and relevance 0.
A negative gain counts in the list, while the largest possible sum leaves such documents out.

Where a pair has several judgments, gain and rel are their mean (R-precision then looks at the first
ceil(R) ranks), which makes AP's sum the expectation over one judgment of each document, drawn at
random and independently.

AP in this form is a sum over ordered pairs of documents, each with itself included (Table 1 of the
source paper). R and the ideal are unknown before everything is judged, so none of these is a
weighted sum of utilities.

References
----------
Jarvelin and Kekalainen 2002, *Cumulated gain-based evaluation*; Harman 1992, *Evaluation issues in
information retrieval*, for AP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenhand.errors import EvenhandError
from evenhand.measures.linear import DCG
from evenhand.measures.lists import Lists, WithinCutoff, before
from evenhand.measures.validation import (
    Gains,
    as_gains,
    check_cutoff,
    check_number,
    gains_option,
    rel_option,
    relevance,
    text,
)

__all__ = ["AP", "R", "Rprec", "nDCG"]


class _Ratio(WithinCutoff):
    """A sum over a list divided by a norm of its query, equation (1)."""

    __slots__ = ()
    reason: ClassVar[str] = "a ratio, whose denominator depends on every judgment of a query"

    def norm(self, lists: Lists) -> np.ndarray:
        """What is divided by."""
        raise NotImplementedError  # each measure's own

    def _sums(self, lists: Lists) -> np.ndarray:
        raise NotImplementedError  # each measure's own

    def values(self, lists: Lists) -> np.ndarray:
        """Equation (1) of each list."""
        sums, norm = self._sums(lists), self.norm(lists)
        return np.divide(sums, norm, out=np.zeros_like(sums), where=norm > 0)


@dataclass(frozen=True, slots=True)
class nDCG(_Ratio):
    """Normalised discounted cumulative gain: `DCG` over the largest that any list could have.

    Its logarithm has no base to choose: it would cancel.

    >>> str(nDCG(cutoff=10)), str(nDCG(cutoff=10, gains="exp"))
    ('nDCG@10', "nDCG(dcg='exp-log2')@10")
    """

    cutoff: int | None = None
    gains: Gains = "linear"

    def __post_init__(self) -> None:
        check_cutoff("nDCG", self.cutoff)
        object.__setattr__(self, "gains", as_gains("nDCG", self.gains))

    @property
    def dcg(self) -> DCG:
        """What is normalised."""
        return DCG(cutoff=self.cutoff, gains=self.gains)

    @property
    def instead(self) -> str:
        """The measure that is normalised."""
        return str(self.dcg)

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have: known only with a gain map."""
        return self.dcg.top_utility

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """The factor of a utility in the sum: that of `dcg`."""
        return self.dcg.weight(rank)

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """The gain of the grade."""
        return self.dcg.utility(grade)

    def norm(self, lists: Lists) -> np.ndarray:
        """The largest DCG: the positive gains of all judged documents, the largest first."""
        gain = lists.averaged(self.dcg.utility(lists.grade))
        useful = np.flatnonzero((gain > 0) & (lists.query >= 0))
        useful = useful[np.lexsort((-gain[useful], lists.query[useful]))]
        query = lists.query[useful]
        rank = 1.0 + before(query, np.ones(len(query)))
        return np.bincount(query, self.dcg.weight(rank) * gain[useful], minlength=lists.n_queries)

    def _sums(self, lists: Lists) -> np.ndarray:
        gain = lists.averaged(self.dcg.utility(lists.grade))
        hit = np.flatnonzero(lists.pair >= 0)
        value = self.dcg.weight(lists.rank[hit]) * gain[lists.pair[hit]]
        return lists.total(lists.number[hit], value)

    def __str__(self) -> str:
        return text("nDCG", self.cutoff, gains_option(self.gains, ("dcg", "'exp-log2'")))


class _Recalling(_Ratio):
    """A ratio over the number of relevant documents."""

    __slots__ = ()
    rel: float

    @property
    def instead(self) -> str:
        """Precision at the cutoff."""
        return text("P", self.cutoff or 10, rel_option(self.rel))

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have."""
        return 1.0

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """1 within the cutoff: the factor of a utility in the sum."""
        rank = np.asarray(rank, np.float64)
        return np.ones_like(rank) if self.cutoff is None else (rank <= self.cutoff) * 1.0

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """1 where the grade is at least `rel`."""
        return relevance(grade, self.rel)

    def norm(self, lists: Lists) -> np.ndarray:
        """R: the number of relevant documents among all that are judged."""
        return lists.by_query(lists.averaged(relevance(lists.grade, self.rel)))

    def _relevant(self, lists: Lists) -> tuple[np.ndarray, np.ndarray]:
        """Places of the ranked documents that are relevant and count, and how relevant each is."""
        rel = lists.averaged(relevance(lists.grade, self.rel))
        hit = np.flatnonzero((lists.pair >= 0) & self.counts(lists))
        rel = rel[lists.pair[hit]]
        return hit[rel > 0], rel[rel > 0]

    def _sums(self, lists: Lists) -> np.ndarray:
        hit, rel = self._relevant(lists)
        return lists.total(lists.number[hit], rel)


@dataclass(frozen=True, slots=True)
class AP(_Recalling):
    """Average precision: the mean over all relevant documents of the precision at their ranks.

    One that is not returned (within the cutoff, if there is one) adds 0.

    >>> str(AP()), str(AP(cutoff=100, rel=2))
    ('AP', 'AP(rel=2)@100')
    """

    cutoff: int | None = None
    rel: float = 1

    def __post_init__(self) -> None:
        check_cutoff("AP", self.cutoff)
        check_number("AP", "rel", self.rel)

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """1 / rank within the cutoff: the factor of a relevant pair of documents."""
        return _Recalling.weight(self, rank) / rank

    def _sums(self, lists: Lists) -> np.ndarray:
        hit, rel = self._relevant(lists)
        number = lists.number[hit]
        return lists.total(number, rel * (1.0 + before(number, rel)) / lists.rank[hit])

    def __str__(self) -> str:
        return text("AP", self.cutoff, rel_option(self.rel))


@dataclass(frozen=True, slots=True)
class R(_Recalling):
    """Recall at k: the share of all relevant documents that the first k ranks hold.

    >>> str(R(cutoff=100))
    'R@100'
    """

    cutoff: int | None = None
    rel: float = 1

    def __post_init__(self) -> None:
        check_cutoff("R", self.cutoff, needed=True)
        check_number("R", "rel", self.rel)

    def __str__(self) -> str:
        return text("R", self.cutoff, rel_option(self.rel))


@dataclass(frozen=True, slots=True)
class Rprec(_Recalling):
    """R-precision: precision, and recall, at rank R, the number of relevant documents.

    >>> str(Rprec()), str(Rprec(rel=2))
    ('Rprec', 'Rprec(rel=2)')
    """

    cutoff: int | None = None
    rel: float = 1

    def __post_init__(self) -> None:
        if self.cutoff is not None:
            raise EvenhandError(
                f"Rprec takes no cutoff, got {self.cutoff!r}", hint="every query has its own"
            )
        check_number("Rprec", "rel", self.rel)

    def counts(self, lists: Lists) -> np.ndarray:
        """The documents within the first R ranks."""
        # A sum of means may be off a whole number by rounding.
        last = np.ceil(self.norm(lists) - 1e-9)
        return lists.rank <= last[lists.number % lists.n_queries]

    def __str__(self) -> str:
        return text("Rprec", None, rel_option(self.rel))
