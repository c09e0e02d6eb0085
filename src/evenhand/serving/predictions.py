"""Predicted grades for assessors who may ask for them, looked up by the ids of a pair.

Assessors who have seen a prediction judge towards it. So a page offers predictions only where the
researcher says so, and shows one only to an assessor who opens it.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

import numpy as np
import pyarrow as pa

from evenhand.formats.qrels import read_qrels

__all__ = ["Predictions"]


class Predictions:
    """Predicted grades of pairs.

    Parameters
    ----------
    path
        A file of them, an LLM judge's labels for example: whatever `read_qrels` takes.

    Raises
    ------
    FormatError
        If it cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._table = table = read_qrels(path, negative="keep")
        # Rows are sorted by query and document, and so are these.
        self._keys = table.query.astype(np.int64) * len(table.documents) + table.document

    def get(self, query: str, document: str) -> float | None:
        """The prediction for a pair, the mean of several; None where there is none."""
        row, column = _place(self._table.queries, query), _place(self._table.documents, document)
        if row is None or column is None:
            return None
        key = row * len(self._table.documents) + column
        first, last = np.searchsorted(self._keys, [key, key + 1])
        return float(self._table.grade[first:last].mean()) if last > first else None


def _place(ids: pa.Array, wanted: str) -> int | None:
    """Place of an id among ids that are sorted by their bytes."""
    key = wanted.encode("utf-8", "surrogatepass")
    at = bisect_left(range(len(ids)), key, key=lambda i: ids[i].as_py().encode())
    return at if at < len(ids) and ids[at].as_py() == wanted else None
