"""Measures that are weighted sums over documents: P, DCG, Gain, RBP.

    value of list y  =  sum over ranks r of  weight(r) * utility(grade of the document at rank r)

The logarithm of `DCG` is to base 2 unless ``log='e'`` (the natural one of the source paper) or
another base is named.

References
----------
Moffat and Zobel 2008, *Rank-biased precision*, for RBP. Jarvelin and Kekalainen 2002, *Cumulated
gain-based evaluation*, for DCG; Burges et al. 2005, *Learning to rank using gradient descent*, for
the gain 2^g - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from evenhand.errors import EvenhandError
from evenhand.measures.validation import (
    Gains,
    as_gains,
    check_cutoff,
    check_number,
    gain,
    gains_option,
    is_number,
    number,
    rel_option,
    relevance,
    text,
    within,
)

__all__ = ["DCG", "RBP", "Gain", "P"]


@dataclass(frozen=True, slots=True)
class P:
    """Precision at k: the share of the first k ranks whose grade is at least `rel`.

    >>> str(P(cutoff=10)), str(P(cutoff=5, rel=2))
    ('P@10', 'P(rel=2)@5')
    """

    cutoff: int | None = None
    rel: float = 1

    def __post_init__(self) -> None:
        check_cutoff("P", self.cutoff, needed=True)
        check_number("P", "rel", self.rel)

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have."""
        return 1.0

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """1/k up to rank k."""
        assert self.cutoff is not None
        return within(rank, self.cutoff, np.full(np.shape(rank), 1.0 / self.cutoff))

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """1 where the grade is at least `rel`."""
        return relevance(grade, self.rel)

    def __str__(self) -> str:
        return text("P", self.cutoff, rel_option(self.rel))


@dataclass(frozen=True, slots=True)
class DCG:
    """Discounted cumulative gain: gain over log_b(1 + rank), summed up to rank k.

    >>> str(DCG(cutoff=100, log="e")), float(DCG(cutoff=2).weight(np.array([1]))[0])
    ("DCG(log='e')@100", 1.0)
    """

    cutoff: int | None = None
    log: float | str = 2
    gains: Gains = "linear"

    def __post_init__(self) -> None:
        check_cutoff("DCG", self.cutoff)
        if self.log != "e" and not (is_number(self.log) and float(self.log) > 1):
            raise EvenhandError(
                f"the log base of DCG must be 'e' or a number above 1, got {self.log!r}"
            )
        object.__setattr__(self, "gains", as_gains("DCG", self.gains))

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have: known only with a gain map."""
        return max(v for _, v in self.gains) if isinstance(self.gains, tuple) else None

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """1/log_b(1 + rank) up to rank k."""
        rank = np.asarray(rank, np.float64)
        if self.log == 2:
            discount = np.log2(1.0 + rank)
        else:
            discount = np.log1p(rank) / (1.0 if self.log == "e" else math.log(float(self.log)))
        return within(rank, self.cutoff, 1.0 / discount)

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """The gain of the grade."""
        return gain(grade, self.gains)

    def __str__(self) -> str:
        log = (
            {}
            if self.log == 2
            else {"log": repr(self.log) if self.log == "e" else number(float(self.log))}
        )
        return text("DCG", self.cutoff, {**log, **gains_option(self.gains)})


@dataclass(frozen=True, slots=True)
class Gain:
    """Mean gain of the first k ranks, each counted alike.

    >>> str(Gain(cutoff=10))
    'Gain@10'
    """

    cutoff: int | None = None
    gains: Gains = "linear"

    def __post_init__(self) -> None:
        check_cutoff("Gain", self.cutoff, needed=True)
        object.__setattr__(self, "gains", as_gains("Gain", self.gains))

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have: known only with a gain map."""
        return max(v for _, v in self.gains) if isinstance(self.gains, tuple) else None

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """1/k up to rank k."""
        assert self.cutoff is not None
        return within(rank, self.cutoff, np.full(np.shape(rank), 1.0 / self.cutoff))

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """The gain of the grade."""
        return gain(grade, self.gains)

    def __str__(self) -> str:
        return text("Gain", self.cutoff, gains_option(self.gains))


@dataclass(frozen=True, slots=True)
class RBP:
    """Rank-biased precision: a user who goes on to the next rank with probability `p`.

    >>> str(RBP(p=0.8)), float(RBP(p=0.8).weight(np.array([2]))[0])
    ('RBP(p=0.8)', 0.15999999999999998)
    """

    cutoff: int | None = None
    p: float = 0.8
    rel: float = 1

    def __post_init__(self) -> None:
        check_cutoff("RBP", self.cutoff)
        check_number("RBP", "rel", self.rel)
        check_number("RBP", "p", self.p)
        if not 0 < self.p < 1:
            raise EvenhandError(f"p of RBP must lie between 0 and 1, got {self.p!r}")

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have."""
        return 1.0

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """(1 - p) p^(rank - 1)."""
        rank = np.asarray(rank, np.float64)
        return within(rank, self.cutoff, (1.0 - self.p) * self.p ** (rank - 1.0))

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """1 where the grade is at least `rel`."""
        return relevance(grade, self.rel)

    def __str__(self) -> str:
        return text("RBP", self.cutoff, {"p": number(self.p), **rel_option(self.rel)})
