"""Judgments as values: those that count, all that were stored, and what storing them did.

A `evenhand.studies.judgments.JudgmentStore` keeps them; nothing here touches a file. `Labels` are
judgments as estimators and models take them: by cell of a pool, in utilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Arrival", "History", "Intake", "Judgments", "Labels"]


@dataclass(frozen=True, slots=True, eq=False)
class Judgments:
    """The judgments that count, column by column, in their order of arrival.

    A revised judgment is here once, with its newest grade.

    Parameters
    ----------
    query, document, assessor
        Text ids, object arrays of shape ``(n_judgments,)``.
    grade
        The grade or utility, float64 of the same shape.
    seq
        Position in the history of the assessor's first judgment of the pair, int64.
    """

    query: NDArray[np.object_]
    document: NDArray[np.object_]
    assessor: NDArray[np.object_]
    grade: NDArray[np.float64]
    seq: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.grade)

    def to_frame(self) -> pd.DataFrame:
        """Give the columns as a pandas DataFrame, one row a judgment."""
        return _frame(self)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Every judgment ever stored, superseded ones too, in their order of arrival.

    Parameters
    ----------
    seq
        Position in the order of arrival, int64 of shape ``(n_rows,)``.
    query, document, assessor, grade
        As in `Judgments`.
    time
        When the row was stored: UTC, ISO 8601 text.
    source
        Where the row came from, such as the name of a file.
    current
        True where the row counts, False where a later one supersedes it.
    """

    seq: NDArray[np.int64]
    query: NDArray[np.object_]
    document: NDArray[np.object_]
    assessor: NDArray[np.object_]
    grade: NDArray[np.float64]
    time: NDArray[np.object_]
    source: NDArray[np.object_]
    current: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.grade)

    def to_frame(self) -> pd.DataFrame:
        """Give the columns as a pandas DataFrame, one row a stored judgment."""
        return _frame(self)


class Arrival(NamedTuple):
    """One stored row, as it came in; `revision` is 0 for an assessor's first grade of a pair."""

    seq: int
    query: str
    document: str
    assessor: str
    revision: int
    grade: float
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Judgments of cells, in utilities; an assessor judges a cell once.

    Attributes
    ----------
    cells
        Cell of each judgment; int64, shape (n,).
    utility
        The judgment in utilities; float64, shape (n,).
    assessor
        Code of the assessor, int32, shape (n,); None where assessors are not distinguished and a
        cell has one judgment.
    """

    cells: NDArray[np.int64]
    utility: NDArray[np.float64]
    assessor: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.cells)

    def only(self, rows: np.ndarray) -> Labels:
        """Some of the judgments."""
        assessor = None if self.assessor is None else self.assessor[rows]
        return Labels(self.cells[rows], self.utility[rows], assessor)

    def told_apart(self, least: int) -> Labels:
        """Assessors by codes from 1 on; those with fewer than `least` judgments are all code 0."""
        if self.assessor is None:
            return self
        _, which, count = np.unique(self.assessor, return_inverse=True, return_counts=True)
        code = np.where(count >= least, np.cumsum(count >= least), 0)
        return Labels(self.cells, self.utility, code[which].astype(np.int32))

    def averaged(self) -> Labels:
        """The mean utility of each distinct cell, cells ascending."""
        cells, which = np.unique(self.cells, return_inverse=True)
        total = np.bincount(which, self.utility, minlength=len(cells))
        return Labels(cells, total / np.bincount(which, minlength=len(cells)))

    @classmethod
    def union(cls, sets: Sequence[Labels]) -> Labels:
        """All judgments of several sets; one that is in more of them counts once."""
        if not sets:
            return cls(np.zeros(0, np.int64), np.zeros(0))
        cells = np.concatenate([s.cells for s in sets])
        utility = np.concatenate([s.utility for s in sets])
        if all(s.assessor is None for s in sets):
            _, first = np.unique(cells, return_index=True)
            return cls(cells[first], utility[first])
        who = np.concatenate(
            [np.zeros(len(s), np.int32) if s.assessor is None else s.assessor for s in sets]
        )
        _, first = np.unique(np.stack([cells, who]), axis=1, return_index=True)
        return cls(cells[first], utility[first], who[first])


@dataclass(frozen=True, slots=True)
class Intake:
    """What one act of judging did; the three counts sum to the rows given.

    Parameters
    ----------
    added
        Judgments stored for the first time.
    known
        Rows that were stored already, or that repeat an earlier row of the same call.
    revised
        Judgments that supersede an earlier grade.
    """

    added: int
    known: int
    revised: int


def _frame(columns: Judgments | History) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: getattr(columns, name) for name in columns.__slots__})
