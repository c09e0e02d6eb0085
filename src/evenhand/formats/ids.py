"""Ids become integers once: the distinct ids of all sources, sorted, and codes into them."""

# pyarrow makes its compute functions when it is imported.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["intern"]

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
