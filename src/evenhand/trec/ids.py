"""Ids become integers once: the distinct ids of all sources, sorted, and codes into them."""

# pyarrow makes its compute functions when it is imported.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["intern"]

_LIMIT = 2**31 - 1  # bytes that the 32-bit offsets of a string array can count


def intern(dictionaries: Sequence[pa.Array]) -> tuple[pa.Array, list[np.ndarray]]:
    """Code the distinct ids of several dictionaries in byte order.

    Parameters
    ----------
    dictionaries
        String arrays, each without repetition.

    Returns
    -------
    ids
        The distinct ids sorted by bytes, so that comparing codes compares ids; a string array (a
        large string array where they exceed 2 GB).
    codes
        For each dictionary the int32 code of each of its entries.
    """
    kind = pa.large_string() if sum(d.nbytes for d in dictionaries) > _LIMIT else pa.string()
    lengths = [len(d) for d in dictionaries]
    texts = pa.chunked_array([d.cast(kind) for d in dictionaries], type=kind)
    if not len(texts):
        return pa.array([], kind), [np.empty(0, np.int32) for _ in dictionaries]
    coded = texts.dictionary_encode()
    distinct = coded.chunk(0).dictionary
    order = pc.array_sort_indices(distinct)
    code = np.empty(len(order), np.int32)
    code[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    flat = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])
    return distinct.take(order), np.split(code[flat], np.cumsum(lengths)[:-1])
