"""What assessors said, as values: what counts, all that ever came in, and what came of it.

A `evenhand.store.JudgmentStore` keeps them; nothing here touches a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["History", "Intake", "Judgments"]


@dataclass(frozen=True, slots=True, eq=False)
class Judgments:
    """The judgments that count, column by column, in their order of arrival.

    A revised judgment is here once, with its newest grade.

    Parameters
    ----------
    query, document, assessor
        Text ids, object arrays of shape ``(n_judgments,)``.
    grade
        What the assessor said, float64 of the same shape.
    """

    query: NDArray[np.object_]
    document: NDArray[np.object_]
    assessor: NDArray[np.object_]
    grade: NDArray[np.float64]

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
