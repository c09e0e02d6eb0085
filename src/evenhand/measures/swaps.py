r"""Swapped pairs of documents: how often a better document is ranked below a worse one.

A part of a ranking y is here an ordered pair of its documents, i ranked before j:

    value of list y  =  sum over pairs of  weight(rank_i, rank_j) * swapped(grade_i, grade_j),
    swapped = 1 if grade_i < grade_j else 0                                              (1)

with |y| = n (n - 1) / 2 the number of pairs of a list of n documents within the cutoff:

=======  ============================  ==============================
measure  weight                        value
=======  ============================  ==============================
Swaps    1 / |y|                       share of the pairs, 0..1
wSwaps   1 / (|y| rank_i rank_j)       weighted share of pairs, 0..1/2
=======  ============================  ==============================

A tie of grades is no swap. A document that nobody judged counts as grade 0. Where documents have
several judgments, the value is the expectation over one judgment of each, drawn at random and
independently. A list of fewer than two documents has no pair, and its value is 0.

Notes
-----
Pairs are never formed. Two levels of grade differ first in one of their binary digits. Starting
with all entries of a list in one segment, and from the highest digit, each entry with a 1 meets
those with a 0 that stand before it in its segment (whose higher digits are the same), through a
running sum; then each segment is split by this digit, keeping the order. That takes O(n log levels)
steps for n entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenhand.measures.lists import Lists, WithinCutoff, before

__all__ = ["Swaps", "wSwaps"]


class _Pairwise(WithinCutoff):
    """Weighted share of the swapped pairs of a list, equation (1)."""

    __slots__ = ()
    lower_is_better: ClassVar[bool] = True
    reason: ClassVar[str] = "a sum over pairs of documents"

    def discount(self, rank: np.ndarray) -> np.ndarray:
        """What each of the two ranks multiplies the weight by."""
        raise NotImplementedError  # each measure's own

    @property
    def top_utility(self) -> float | None:
        """None: nothing bounds a grade."""
        return None

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """The grade itself, which the other's is compared with."""
        return np.asarray(grade, np.float64)

    def share(self, rank: np.ndarray, length: np.ndarray) -> np.ndarray:
        """What either rank gives to the weight of a pair, which is the product of both.

        0 beyond the cutoff, and in a list without a pair.
        """
        n = length if self.cutoff is None else np.minimum(length, self.cutoff)
        pairs = np.maximum(n * (n - 1.0) / 2.0, 1.0)
        return np.where((rank <= n) & (n > 1), self.discount(rank) / np.sqrt(pairs), 0.0)

    def weight(self, rank: np.ndarray, length: np.ndarray) -> np.ndarray:
        """What a rank weighs with all before it, and itself: no two ranks weigh the same."""
        last = np.arange(1.0, np.max(rank, initial=0) + 1)
        before = np.append(0.0, np.cumsum(self.discount(last)))
        share = self.share(rank, length)
        return share**2 / self.discount(rank) * before[np.asarray(rank, np.int64)]

    def swapped(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """1 where the grade of the first is below that of the second, else 0; float64."""
        return (np.asarray(first) < second).astype(np.float64)

    def values(self, lists: Lists) -> np.ndarray:
        """Equation (1) of each list."""
        lists = lists.cut(self.cutoff)
        document, grade, share = lists.said()
        levels = np.unique(np.append(lists.grade, 0.0))
        number = lists.number[document]
        mass = share * self.discount(lists.rank[document])
        swaps = _swaps(number, np.searchsorted(levels, grade), mass)
        n = lists.length().astype(np.float64).reshape(lists.n_systems, lists.n_queries)
        pairs = n * (n - 1.0) / 2.0
        return np.divide(lists.total(number, swaps), pairs, out=np.zeros_like(n), where=pairs > 0)


def _swaps(segment: np.ndarray, level: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """For each entry j: mass_j times the mass of those before it in its segment of lower level."""
    found, order = np.zeros(len(level)), np.arange(len(level))
    for bit in reversed(range(int(level.max(initial=0)).bit_length())):
        high = (level[order] >> bit) & 1 == 1
        low_before = before(segment, np.where(high, 0.0, mass[order]))
        found[order] += np.where(high, mass[order] * low_before, 0.0)
        if bit:
            # Those with a 0 come first, each kind in the order that it had.
            first = np.flatnonzero(np.diff(segment, prepend=segment[0] - 1))
            start = np.repeat(first, np.diff(first, append=len(segment)))
            zeros_before = before(segment, ~high * 1.0).astype(np.int64)
            zeros = np.repeat(np.add.reduceat(~high * 1, first), np.diff(first, append=len(high)))
            ones_before = np.arange(len(high)) - start - zeros_before
            place = start + np.where(high, zeros + ones_before, zeros_before)
            moved, split = np.empty_like(order), np.empty_like(segment)
            moved[place], split[place] = order, 2 * segment + high
            order, segment = moved, split
    return found


@dataclass(frozen=True, slots=True)
class Swaps(_Pairwise):
    """Share of the pairs of returned documents in which the worse is ranked before the better.

    >>> str(Swaps()), str(Swaps(cutoff=10))
    ('Swaps', 'Swaps@10')
    """

    cutoff: int | None = None

    def discount(self, rank: np.ndarray) -> np.ndarray:
        """1 at every rank."""
        return np.ones(np.shape(rank))


@dataclass(frozen=True, slots=True)
class wSwaps(_Pairwise):
    """Swapped pairs weighted by 1 over both ranks, over the number of pairs.

    >>> str(wSwaps()), float(wSwaps().share(np.array([1]), np.array([2]))[0])
    ('wSwaps', 1.0)
    """

    cutoff: int | None = None

    def discount(self, rank: np.ndarray) -> np.ndarray:
        """1/rank."""
        return 1.0 / np.asarray(rank, np.float64)
