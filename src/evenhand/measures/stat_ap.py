r"""Measures by inclusion probabilities: statAP, and precision and recall of the same kind.

With pi_d the probability with which document d was drawn and judged, every sum over relevant
documents is estimated by the Horvitz-Thompson sum over the judged ones, each by 1 / pi. With rel(r)
the relevance at rank r, 0 where that document is not judged, and R^ = sum over judged d of rel(d) /
pi_d:

=========  ==================================================================  ====================
measure    value of a list                                                     unit, range
=========  ==================================================================  ====================
statP@k    sum over r <= k of rel(r) / pi(r), over k                           share of k, 0..
statR@k    the same sum, over R^                                               share, 0..
statRprec  the sum over r <= R^ rounded, over that; over R^ of shorter lists   share, 0..
statAP     sum over r of rel(r) / pi(r) prec(r), over R^,                      share, 0..
           prec(r) = (1 + sum over s < r of rel(s) / pi(s)) / r
=========  ==================================================================  ====================

statP is unbiased, and so are R^ and, where no two draws depend on each other, the numerator of
statAP; the ratios are not. Values above 1 happen: nothing is clipped. With every pi 1 they are P,
R, Rprec and AP. A list of a query without a relevant document is worth 0, where the track's program
(statAP_MQ_eval) leaves the query out.

`_Weighted` is what these and `evenhand.measures.inferred` share.

References
----------
Pavlu and Aslam 2007, *A practical sampling strategy for efficient retrieval evaluation* (technical
report, Northeastern University); Aslam, Pavlu and Yilmaz 2006, *A statistical method for system
evaluation using incomplete judgments*; Carterette, Pavlu, Kanoulas, Aslam and Allan 2008,
*Evaluation over thousands of queries*; Horvitz and Thompson 1952.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenhand.errors import EvenhandError
from evenhand.measures.lists import Inclusion, Lists, WithinCutoff, before
from evenhand.measures.validation import check_cutoff, rel_option, relevance, text

__all__ = ["_Weighted", "statAP", "statP", "statR", "statRprec"]


class _Weighted(WithinCutoff):
    """What estimates from judgments of a sample share."""

    __slots__ = ()
    reason: ClassVar[str] = "an estimate for judgments that were sampled in TREC's ways"
    asks_pool: ClassVar[bool] = False
    #: The measure that it estimates.
    of: ClassVar[str]
    rel: float = 1

    @property
    def instead(self) -> str:
        """The measure that it estimates."""
        return text(self.of, self.cutoff, rel_option(self.rel))

    def counts(self, lists: Lists) -> np.ndarray:
        """The judged documents within the cutoff: they stand for those that were not drawn."""
        return lists.inside(self.cutoff) & (lists.pair >= 0)

    def inclusion(self, lists: Lists) -> Inclusion:
        """How the judged pairs were sampled.

        Raises
        ------
        EvenhandError
            If the judgments lack what the measure needs.
        """
        if lists.inclusion is None:
            raise EvenhandError(
                f"{self} asks how judged pairs were sampled, which these judgments do not tell",
                hint="read them with `read_prels`",
            )
        if self.asks_pool and not lists.inclusion.stratified:
            raise EvenhandError(
                f"{self} asks what was pooled and not drawn, which prels do not tell",
                hint="statAP and statP@k are the measures for prels",
            )
        return lists.inclusion

    def weight_of(self, lists: Lists) -> np.ndarray:
        """1 / pi of each judged pair, 0 where unknown; float64, shape (pairs,)."""
        probability = self.inclusion(lists).probability
        return np.divide(
            1.0, probability, out=np.zeros_like(probability), where=np.isfinite(probability)
        )

    def relevant(self, lists: Lists) -> np.ndarray:
        """The relevance of each judged pair, by 1 / pi; float64, shape (pairs,)."""
        return lists.averaged(relevance(lists.grade, self.rel)) * self.weight_of(lists)

    def norm(self, lists: Lists) -> np.ndarray:
        """R^: how many documents are estimated to be relevant; shape (queries,)."""
        return lists.by_query(self.relevant(lists))

    def __str__(self) -> str:
        return text(type(self).__name__, self.cutoff, rel_option(self.rel))


def over(sums: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """Sums over their norms, 0 where a norm is."""
    norm = np.broadcast_to(norm, sums.shape)
    return np.divide(sums, norm, out=np.zeros_like(sums), where=norm > 0)


def ranked(lists: Lists, value: np.ndarray) -> np.ndarray:
    """The value of each ranked document's pair, 0 where nobody judged it; shape (documents,)."""
    found = np.zeros(len(lists.pair))
    hit = lists.pair >= 0
    found[hit] = value[lists.pair[hit]]
    return found


@dataclass(frozen=True, slots=True)
class statAP(_Weighted):
    """Average precision from inclusion probabilities.

    >>> str(statAP()), str(statAP(cutoff=100, rel=2))
    ('statAP', 'statAP(rel=2)@100')
    """

    of: ClassVar[str] = "AP"
    cutoff: int | None = None
    rel: float = 1

    def values(self, lists: Lists) -> np.ndarray:
        """The estimated precision at each relevant document, averaged by 1 / pi."""
        norm, lists = self.norm(lists), lists.cut(self.cutoff)
        weight = ranked(lists, self.relevant(lists))
        precision = (1.0 + before(lists.number, weight)) / lists.rank
        return over(lists.total(lists.number, weight * precision), norm)


@dataclass(frozen=True, slots=True)
class statP(_Weighted):
    """Precision at k from inclusion probabilities: unbiased.

    >>> str(statP(cutoff=10))
    'statP@10'
    """

    of: ClassVar[str] = "P"
    cutoff: int | None = None
    rel: float = 1

    def __post_init__(self) -> None:
        check_cutoff("statP", self.cutoff, needed=True)

    def values(self, lists: Lists) -> np.ndarray:
        """Relevant ones estimated among the first k, over k."""
        lists = lists.cut(self.cutoff)
        return lists.total(lists.number, ranked(lists, self.relevant(lists))) / self.cutoff


@dataclass(frozen=True, slots=True)
class statR(_Weighted):
    """Recall at k from inclusion probabilities.

    >>> str(statR(cutoff=100))
    'statR@100'
    """

    of: ClassVar[str] = "R"
    cutoff: int | None = None
    rel: float = 1

    def __post_init__(self) -> None:
        check_cutoff("statR", self.cutoff, needed=True)

    def values(self, lists: Lists) -> np.ndarray:
        """Relevant ones estimated among the first k, over all that are estimated."""
        norm, lists = self.norm(lists), lists.cut(self.cutoff)
        return over(lists.total(lists.number, ranked(lists, self.relevant(lists))), norm)


@dataclass(frozen=True, slots=True)
class statRprec(_Weighted):
    """R-precision from inclusion probabilities, at the estimated number of relevant documents.

    >>> str(statRprec())
    'statRprec'
    """

    of: ClassVar[str] = "Rprec"
    cutoff: int | None = None
    rel: float = 1

    def __post_init__(self) -> None:
        if self.cutoff is not None:
            raise EvenhandError(
                f"statRprec takes no cutoff, got {self.cutoff!r}", hint="every query has its own"
            )

    def values(self, lists: Lists) -> np.ndarray:
        """Relevant ones estimated within R^ rounded, over that many."""
        norm = self.norm(lists)
        last = np.floor(norm + 0.5)
        inside = lists.rank <= last[lists.number % lists.n_queries]
        weight = np.where(inside, ranked(lists, self.relevant(lists)), 0.0)
        sums = lists.total(lists.number, weight)
        whole = lists.length().reshape(sums.shape) >= last
        return over(sums, np.where(whole, last, norm))
