"""Measures of what is judged: how much of a list is, and the precision of that part alone.

=====================  ==================================================  ===================
measure                value of a list                                     unit, range
=====================  ==================================================  ===================
Judged@k               judged documents of the first k, over those         share, 0..1
                       returned among the first k
P(judged_only=True)@k  relevant ones among its first k judged documents,   share of k, 0..1
                       over k; those that nobody judged are left out
                       of the list first
=====================  ==================================================  ===================

Both are as ``ir_measures`` has them (and trec_eval with ``-J``). Neither can be estimated from
samples: what is judged is the very thing that they look at. ``P(judged_only=True)`` favours a
system with unjudged documents; ``Judged`` says how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenhand.measures.lists import Lists, WithinCutoff, before
from evenhand.measures.validation import check_cutoff, check_number, rel_option, relevance, text

__all__ = ["Judged", "JudgedP"]


@dataclass(frozen=True, slots=True)
class Judged(WithinCutoff):
    """Share of the returned documents (among the first k) that are judged.

    >>> str(Judged()), str(Judged(cutoff=10))
    ('Judged', 'Judged@10')
    """

    reason: ClassVar[str] = "a count of judgments"
    cutoff: int | None = None

    def values(self, lists: Lists) -> np.ndarray:
        """Judged over returned, of each list; 0 for an empty one."""
        lists = lists.cut(self.cutoff)
        judged = lists.total(lists.number, (lists.pair >= 0).astype(np.float64))
        length = lists.length().reshape(judged.shape)
        return np.divide(judged, length, out=np.zeros_like(judged), where=length > 0)


@dataclass(frozen=True, slots=True)
class JudgedP:
    """Precision at k of a list without its unjudged documents.

    >>> str(JudgedP(cutoff=10)), str(JudgedP(cutoff=5, rel=2))
    ('P(judged_only=True)@10', 'P(rel=2,judged_only=True)@5')
    """

    lower_is_better: ClassVar[bool] = False
    reason: ClassVar[str] = "one over those that are judged, ranked among themselves"
    cutoff: int | None = None
    rel: float = 1

    def __post_init__(self) -> None:
        check_cutoff("P", self.cutoff, needed=True)
        check_number("P", "rel", self.rel)

    @property
    def depth(self) -> int | None:
        """None: the k-th judged document can be at any rank."""
        return None

    @property
    def instead(self) -> str:
        """Precision of all that is returned."""
        return text("P", self.cutoff, rel_option(self.rel))

    def counts(self, lists: Lists) -> np.ndarray:
        """The first k judged documents."""
        judged = lists.pair >= 0
        return judged & (before(lists.number, judged.astype(np.float64)) < self.cutoff)

    def values(self, lists: Lists) -> np.ndarray:
        """Relevant ones among the first k judged, over k, of each list."""
        assert self.cutoff is not None
        rel = lists.averaged(relevance(lists.grade, self.rel))
        hit = np.flatnonzero(self.counts(lists))
        return lists.total(lists.number[hit], rel[lists.pair[hit]]) / self.cutoff

    def __str__(self) -> str:
        return text("P", self.cutoff, {**rel_option(self.rel), "judged_only": "True"})
