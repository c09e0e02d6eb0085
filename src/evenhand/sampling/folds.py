"""Folds of cells, fixed before any judgment, so that a round can be drawn fold by fold.

A cell belongs to a fold by a hash of its number, for good. Each fold of a round has a number of
draws of its own, and the draws of different folds are independent: what was judged in the other
folds says nothing of which cells of this one were drawn. `evenhand.estimation.cross_fitting` builds
on that.

For pairs of cells (`evenhand.nonlinear.swaps`) a round is *scattered* instead: fold 0 has the cells
that are drawn for certain, and every other cell belongs to one of F folds at random. Two cells that
are not certain then meet in different folds, where they are drawn independently, with the
probability

    P(different folds) = 1 - 1 / F,                                                          (1)

whatever the proposal makes of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import jax

__all__ = [
    "FEWEST",
    "FOLDS",
    "SCATTERED",
    "Folds",
    "fold_of",
    "fold_sizes",
    "folds_for",
    "scatter",
]

#: Folds into which a round is drawn, and the fewest draws that each must have.
FOLDS, FEWEST = 4, 10
#: Folds at random of a round that is scattered: few pairs then meet in one.
SCATTERED = 8


class Folds(NamedTuple):
    """A round drawn by fold.

    Attributes
    ----------
    of
        Fold of each cell; int32, shape (cells,).
    sizes
        Draws of each fold; shape (folds,).
    """

    of: jax.Array
    sizes: jax.Array


def fold_of(cells: int, folds: int) -> np.ndarray:
    """The fold of each cell, by a hash of its number: int32, shape (cells,), values below `folds`.

    Cells keep their numbers and therefore their folds for the whole life of a study.
    """
    x = np.arange(cells, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(folds)).astype(np.int32)


def fold_sizes(expected: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Draws of each fold, by the largest remainders: sums to the same whole number.

    Parameters
    ----------
    expected
        Expected draws of each fold when all are drawn together; shape (folds,).
    support
        Cells of each fold that can be drawn, which no fold may exceed, and of which each must have
        a chance; same shape.
    """
    n = round(expected.sum())
    expected = np.round(expected, 9)
    sizes = np.minimum(np.maximum(np.floor(expected), support > 0), support).astype(np.int64)
    while (left := n - sizes.sum()) != 0:
        # At most a few steps: remainders are below 1.
        open_folds = sizes < support if left > 0 else sizes > (support > 0)
        lack = np.where(open_folds, (expected - sizes) * np.sign(left), -np.inf)
        sizes[np.argmax(lack)] += np.sign(left)
    return sizes


def folds_for(n: int, cells: int, folds: int = FOLDS) -> np.ndarray | None:
    """The fold of each cell; None where n is too small for so many folds."""
    return fold_of(cells, folds) if folds > 1 and n >= FEWEST * folds else None


def scatter(key: jax.Array, expected: jax.typing.ArrayLike, n: int) -> tuple[np.ndarray, int]:
    """The fold of each cell of a scattered round, and F of equation (1).

    Where fewer than two draws would be left beside the certain cells, these are scattered as well.

    Parameters
    ----------
    key
        Typed key.
    expected
        Expected draws of each cell when all are drawn together; shape (cells,).
    n
        Number of draws, at least 2 unless every cell is certain.
    """
    import jax  # here: to know a cell's fold takes none

    certain = np.asarray(expected) == 1.0
    left = n - np.count_nonzero(certain)
    if left == 1:
        certain, left = np.zeros(len(certain), bool), n
    folds = int(np.clip(left // FEWEST, 2, SCATTERED))
    by_chance = np.asarray(jax.random.randint(key, certain.shape, 1, folds + 1), np.int32)
    return np.where(certain, np.int32(0), by_chance), folds
