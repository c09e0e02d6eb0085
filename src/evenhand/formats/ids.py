"""Ids become integers once: the distinct ids of all sources, sorted, and codes into them.

The rows of a system are ordered by query, then as its ranking has them. They arrive nearly sorted,
so each step looks first and sorts only what is out of order.
"""

# pyarrow makes its compute functions when it is imported.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["intern", "ranking", "ranks", "repeats"]


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


_LIMIT = 2**31 - 1  # bytes that the 32-bit offsets of a string array can count


def intern(
    texts: Sequence[pa.Array], each: Callable[..., Iterable[Any]] = map, groups: int = 1
) -> tuple[pa.Array, list[np.ndarray]]:
    """Code the distinct ids of several arrays in byte order.

    Parameters
    ----------
    texts
        String arrays.
    each
        `map`, or that of a thread pool.
    groups
        How many groups of arrays are merged side by side before all are.

    Returns
    -------
    ids
        The distinct ids sorted by bytes, so that comparing codes compares ids; a string array (a
        large string array where they might exceed 2 GB).
    codes
        For each array the int32 code of each of its entries.
    """
    kind = pa.large_string() if sum(d.nbytes for d in texts) > _LIMIT else pa.string()
    texts = [d.cast(kind) for d in texts]
    size = -(-len(texts) // max(groups, 1)) or 1
    merged = list(each(_merge, [texts[i : i + size] for i in range(0, len(texts), size)]))
    distinct, seconds = _merge([distinct for distinct, _ in merged])
    order = pc.array_sort_indices(distinct).to_numpy()
    code = np.empty(len(order), np.int32)
    code[order] = np.arange(len(order), dtype=np.int32)
    codes = []
    for second, (_, firsts) in zip(seconds, merged, strict=True):
        final = code[second]
        codes += [final[first] for first in firsts]
    return distinct.take(pa.array(order)), codes


def _merge(texts: list[pa.Array]) -> tuple[pa.Array, list[np.ndarray]]:
    """Find the distinct texts, and the place of each text among them."""
    coded = pa.chunked_array(texts).dictionary_encode()
    if not len(coded):  # pyarrow leaves no chunk that could hold the dictionary
        return pa.array([], texts[0].type), [np.empty(0, np.int32) for _ in texts]
    flat = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])
    return coded.chunk(0).dictionary, np.split(flat, np.cumsum([len(t) for t in texts])[:-1])
