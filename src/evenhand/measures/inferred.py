r"""Inferred measures: infAP, xinfAP and infNDCG, for pools of which a sample was judged.

A pool was judged in part: of each of its strata s some documents, drawn uniformly; infAP knows one
stratum a query. A document that was not pooled counts as not relevant. In a list, above rank r, let
N_s(r) be the number of documents of stratum s, n_s(r) of these judged, and R_s(r) relevant.

**Average precision.** At a relevant document the precision is inferred from the judged ones above
it, smoothed by eps = 0.00001,

    prec(r) = (1 + sum over s of N_s(r) (R_s(r) + eps) / (n_s(r) + c eps)) / r,              (1)

and averaged over the relevant documents judged, each by 1 / pi, pi the share of its stratum that
was judged (`evenhand.formats.prels`):

    value = sum over relevant d of prec(rank of d) / pi_d,   over R^ = sum of 1 / pi_d.      (2)

=======  =======================  ==  =============================================================
measure  strata                   c   as
=======  =======================  ==  =============================================================
infAP    one a query              2   trec_eval ``infAP`` (Yilmaz and Aslam 2006)
xinfAP   as the file gives them   3   NIST's sample_eval ``infAP`` (Yilmaz et al. 2008)
=======  =======================  ==  =============================================================

So with one stratum the two differ in the smoothing alone: by about eps where something was judged
above, and by the half or third of N(r) that replaces it where nothing was.

**nDCG.** The gain found in each stratum of a list is scaled by how much of that part of the list
was judged; the ideal takes from each grade as many documents as are estimated to have it, rounded:

    DCG   = sum over s of N_s / n_s * sum over judged r in s of gain(r) / log2(1 + r)        (3)
    ideal = DCG of the ranking of round(sum of 1 / pi over judged d of gain g) documents of
            each gain g, the largest first                                                   (4)

with N_s and n_s of the whole list (to the cutoff). sample_eval looks at 1,000 ranks (its variable
maxResultSize): ``infNDCG@1000`` here.

With complete judgments infNDCG is nDCG, and both APs are AP but for the smoothing, about 1e-5.

References
----------
Yilmaz and Aslam 2006, *Estimating average precision with incomplete and imperfect judgments*
(CIKM); Yilmaz, Kanoulas and Aslam 2008, *A simple and efficient sampling method for estimating AP
and NDCG* (SIGIR).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenhand.measures.linear import DCG
from evenhand.measures.lists import Lists, before
from evenhand.measures.ratios import nDCG
from evenhand.measures.stat_ap import _Weighted, over, ranked
from evenhand.measures.validation import (
    Gains,
    as_gains,
    check_cutoff,
    gains_option,
    relevance,
    text,
)

__all__ = ["EPSILON", "infAP", "infNDCG", "xinfAP"]

#: What smooths the precision of the judged, equation (1).
EPSILON = 1e-5


class _Pooled(_Weighted):
    """An estimate that knows what was pooled."""

    __slots__ = ()
    asks_pool: ClassVar[bool] = True

    def counts(self, lists: Lists) -> np.ndarray:
        """Ranks within the cutoff but those pooled and not drawn, which others represent."""
        judged = (lists.pair >= 0) | (self.inclusion(lists).pooled < 0)
        return lists.inside(self.cutoff) & judged


class _InferredAP(_Pooled):
    """Equations (1) and (2)."""

    __slots__ = ()
    of: ClassVar[str] = "AP"
    prior: ClassVar[int]

    def strata(self, lists: Lists) -> np.ndarray:
        """Stratum of each ranked document, -1 where it was not pooled; shape (documents,)."""
        return self.inclusion(lists).pooled

    def values(self, lists: Lists) -> np.ndarray:
        """Equation (2) of each list."""
        norm, lists = self.norm(lists), lists.cut(self.cutoff)
        weight = ranked(lists, self.relevant(lists))
        precision = (1.0 + self._above(lists)) / lists.rank
        return over(lists.total(lists.number, weight * precision), norm)

    def _above(self, lists: Lists) -> np.ndarray:
        """The sum in equation (1) at each ranked document.

        Each pooled document changes its stratum's term alone, so the sum is one of the changes.
        """
        stratum = self.strata(lists)
        pooled = np.flatnonzero(stratum >= 0)
        segment = lists.number[pooled] * (stratum.max(initial=0) + 1) + stratum[pooled]
        order = np.argsort(segment, kind="stable")
        pooled, segment = pooled[order], segment[order]
        judged = (lists.pair[pooled] >= 0) * 1.0
        found = ranked(lists, lists.averaged(relevance(lists.grade, self.rel)))[pooled]
        size, seen, relevant = (before(segment, x) for x in (np.ones(len(pooled)), judged, found))

        def expected(size: np.ndarray, seen: np.ndarray, relevant: np.ndarray) -> np.ndarray:
            return size * (relevant + EPSILON) / (seen + self.prior * EPSILON)

        change = np.zeros(len(stratum))
        change[pooled] = expected(size + 1.0, seen + judged, relevant + found)
        change[pooled] -= expected(size, seen, relevant)
        return before(lists.number, change)


@dataclass(frozen=True, slots=True)
class infAP(_InferredAP):
    """Inferred average precision of a uniform sample of the pool, as trec_eval has it.

    >>> str(infAP()), str(infAP(rel=2))
    ('infAP', 'infAP(rel=2)')
    """

    prior: ClassVar[int] = 2
    cutoff: int | None = None
    rel: float = 1

    def strata(self, lists: Lists) -> np.ndarray:
        """0 where a document was pooled."""
        return np.minimum(self.inclusion(lists).pooled, 0)

    def weight_of(self, lists: Lists) -> np.ndarray:
        """1: every judged pair of a query was as likely drawn."""
        return np.ones(len(self.inclusion(lists).probability))


@dataclass(frozen=True, slots=True)
class xinfAP(_InferredAP):
    """Inferred average precision of a stratified sample of the pool, as sample_eval has it.

    >>> str(xinfAP()), str(xinfAP(cutoff=1000))
    ('xinfAP', 'xinfAP@1000')
    """

    prior: ClassVar[int] = 3
    cutoff: int | None = None
    rel: float = 1


@dataclass(frozen=True, slots=True)
class infNDCG(_Pooled):
    """nDCG of a stratified sample of the pool, as sample_eval has it: equations (3) and (4).

    >>> str(infNDCG()), str(infNDCG(cutoff=1000, gains="exp"))
    ('infNDCG', "infNDCG(gains='exp')@1000")
    """

    of: ClassVar[str] = "nDCG"
    cutoff: int | None = None
    gains: Gains = "linear"

    def __post_init__(self) -> None:
        check_cutoff("infNDCG", self.cutoff)
        object.__setattr__(self, "gains", as_gains("infNDCG", self.gains))

    @property
    def dcg(self) -> DCG:
        """What is normalised."""
        return DCG(cutoff=self.cutoff, gains=self.gains)

    @property
    def instead(self) -> str:
        """The measure that it estimates."""
        return str(nDCG(cutoff=self.cutoff, gains=self.gains))

    def norm(self, lists: Lists) -> np.ndarray:
        """Equation (4)."""
        gain = lists.averaged(self.dcg.utility(lists.grade))
        rows = np.flatnonzero((gain > 0) & (lists.query >= 0))
        # By query, the largest gain first.
        kind, which = np.unique(
            np.stack([lists.query[rows], -gain[rows]]), axis=1, return_inverse=True
        )
        query = kind[0].astype(np.int64)
        weight = self.weight_of(lists)[rows]
        # A sum of shares may be off a whole number by rounding.
        many = np.floor(
            np.bincount(which.reshape(-1), weight, minlength=len(query)) + (0.5 + 1e-9)
        ).astype(np.int64)
        first = before(query, many.astype(np.float64)).astype(np.int64)
        ranks = np.arange(1, int((first + many).max(initial=0)) + 1)
        total = np.concatenate([[0.0], np.cumsum(self.dcg.weight(ranks))])
        ideal = -kind[1] * (total[first + many] - total[first])
        return np.bincount(query, ideal, minlength=lists.n_queries)

    def values(self, lists: Lists) -> np.ndarray:
        """Equation (3) over (4) of each list."""
        norm, lists = self.norm(lists), lists.cut(self.cutoff)
        stratum = self.inclusion(lists).pooled
        pooled = np.flatnonzero(stratum >= 0)
        segment = lists.number[pooled] * (stratum.max(initial=0) + 1) + stratum[pooled]
        _, first, which = np.unique(segment, return_index=True, return_inverse=True)
        gain = ranked(lists, lists.averaged(self.dcg.utility(lists.grade)))
        value = gain[pooled] * self.dcg.weight(lists.rank[pooled])
        size, seen, found = (
            np.bincount(which, x, minlength=len(first))
            for x in (np.ones(len(pooled)), lists.pair[pooled] >= 0, value)
        )
        # No document at all would make zeros of integers.
        part = np.divide(size * found, seen, out=np.zeros(len(first)), where=seen > 0)
        return over(lists.total(lists.number[pooled[first]], part), norm)

    def __str__(self) -> str:
        return text("infNDCG", self.cutoff, gains_option(self.gains))
