"""What a round drew: cells, and how often each of the pool was to be expected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Sample"]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The draws of one round.

    Attributes
    ----------
    sampler
        Name of the sampler, one of `evenhand.sampling.samplers.SAMPLERS`.
    draws
        Cell of each draw; int64, shape (n,).
    expected
        E_c of every cell of the pool; float64, shape (cells,).
    fold
        Fold of every cell, if each fold was drawn by itself; int32, shape (cells,).
    scattered
        Number of folds to which cells that are not certain belong at random
        (`evenhand.sampling.folds`, equation 1), beside fold 0 of the certain ones; 0 where folds
        are fixed.
    """

    sampler: str
    draws: np.ndarray
    expected: np.ndarray
    fold: np.ndarray | None = None
    scattered: int = 0

    @property
    def n_folds(self) -> int:
        """Number of folds; 1 for a round drawn as one."""
        return 1 if self.fold is None else int(self.fold.max()) + 1

    def fold_at(self, cells: np.ndarray) -> np.ndarray:
        """Fold of the given cells; 0 for a round drawn as one."""
        return np.zeros(len(cells), np.int32) if self.fold is None else self.fold[cells]

    @property
    def cells(self) -> np.ndarray:
        """The distinct cells drawn, ascending: what has to be judged."""
        return np.unique(self.draws)

    def __len__(self) -> int:
        return len(self.draws)

    def __repr__(self) -> str:
        return f"Sample({len(self):,} draws, {len(self.cells):,} distinct pairs, {self.sampler})"
