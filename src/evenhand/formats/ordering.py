"""The order of one system's rows: by query, then as its ranking has them.

Rows arrive nearly sorted, so each step looks first and sorts only what is out of order.
"""

from __future__ import annotations

import numpy as np

__all__ = ["ranking", "ranks", "repeats"]


def ranking(query: np.ndarray, key: np.ndarray, document: np.ndarray) -> np.ndarray | None:
    """Order rows by query ascending, key descending, document descending.

    Parameters
    ----------
    query, document
        Codes; int32 [n].
    key
        The score, or the negative rank; finite; [n].

    Returns
    -------
    numpy.ndarray or None
        The permutation; None where the rows are in order already.
    """
    order: np.ndarray | None = None
    if (query[1:] < query[:-1]).any():
        order = np.argsort(query, kind="stable")
        query, key, document = query[order], key[order], document[order]

    same = query[1:] == query[:-1]
    rising = same & (key[1:] > key[:-1])
    if rising.any():
        rows = _groups(same, rising)
        moved = rows[np.lexsort((-key[rows], query[rows]))]
        order = _moved(order, len(query), rows, moved)
        key, document = key.copy(), document.copy()
        key[rows], document[rows] = key[moved], document[moved]

    tied = same & (key[1:] == key[:-1])
    wrong = tied & (document[1:] > document[:-1])
    if wrong.any():
        rows = _groups(tied, wrong)
        # Tied rows lie together, so their group's number and the document make one integer to sort.
        group = np.cumsum(np.r_[True, ~tied], dtype=np.int64)[rows]
        moved = rows[np.argsort((group << 32) - document[rows])]
        order = _moved(order, len(query), rows, moved)
    return order


def ranks(query: np.ndarray) -> np.ndarray:
    """Count 1, 2, ... within each run of equal queries; int32 [n]."""
    n = len(query)
    starts = np.flatnonzero(np.r_[True, query[1:] != query[:-1]])
    first = np.repeat(starts.astype(np.int32), np.diff(np.r_[starts, n]))
    return np.arange(1, n + 1, dtype=np.int32) - first


def repeats(query: np.ndarray, document: np.ndarray, n_documents: int) -> bool:
    """Whether a document occurs twice in a query."""
    pairs = query.astype(np.int64)
    pairs *= n_documents
    pairs += document
    pairs.sort()
    return bool((pairs[1:] == pairs[:-1]).any())


def _groups(same: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """Give the rows of each group (neighbours that are the `same`) with a `marked` neighbour."""
    group = np.cumsum(np.r_[0, ~same])
    chosen = np.zeros(group[-1] + 1, bool)
    chosen[group[1:][marked]] = True
    return np.flatnonzero(chosen[group])


def _moved(order: np.ndarray | None, n: int, rows: np.ndarray, moved: np.ndarray) -> np.ndarray:
    order = np.arange(n) if order is None else order.copy()
    order[rows] = order[moved]
    return order
