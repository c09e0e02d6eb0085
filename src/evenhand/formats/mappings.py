"""Mappings ``{qid: {docid: value}}``, in memory or as JSON, to Arrow columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.errors import FormatError
from evenhand.formats.parsing import Faults, number, quote
from evenhand.formats.sources import is_values

__all__ = ["from_json", "from_mapping"]

_SHAPE = "one object a file: query ids, in each its document ids, with a number each"


def from_json(data: bytes, place: str, *, listed: bool = False) -> Any:
    """Read JSON, refusing a repeated key (of which JSON readers silently keep the last).

    A mapping of mappings, or, where it may be `listed`, a list.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) < len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))
            raise FormatError(f"{place}: the key {quote(twice)} occurs twice in one JSON object")
        return made

    try:
        content = json.loads(data, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise FormatError(f"{place}:{error.lineno}: not JSON: {error.msg}", hint=_SHAPE) from None
    except UnicodeDecodeError:
        raise FormatError(f"{place}: expected UTF-8 JSON") from None
    if isinstance(content, Mapping) and is_values(content):
        return content
    if listed and isinstance(content, list):
        return content
    raise FormatError(
        f"{place}: expected JSON of the shape {{qid: {{docid: value}}}}, got {quote(data[:200])}",
        hint=_SHAPE,
    )


def from_mapping(
    content: Mapping[Any, Mapping[Any, Any]], place: str, value: str, *, blank: bool = False
) -> dict[str, pa.Array | pa.DictionaryArray]:
    """Flatten ``{qid: {docid: value}}``; a value of None is a blank (NaN) where that is allowed."""
    faults = Faults()
    queries, documents, values = [], [], []
    for query, inner in content.items():
        for document, got in inner.items():
            queries.append(_text(query))
            documents.append(_text(document))
            x = np.nan if got is None and blank else _real(got)
            if x is None or (not np.isfinite(x) and got is not None):
                what = "not a number" if x is None else "not finite"
                at = f"{place}: query {quote(queries[-1])}, document {quote(documents[-1])}"
                shown = quote(got) if isinstance(got, str) else repr(got)
                faults.add("number", f"{at}: {value} is {what}, got {shown}")
            else:
                values.append(x)
    faults.check()
    if not queries:
        raise FormatError(f"{place}: no rows", hint="no query has a document")
    return {
        "query": pa.array(queries, pa.string()).dictionary_encode(),
        "document": pa.array(documents, pa.string()).dictionary_encode(),
        value: pa.array(values, pa.float64(), from_pandas=False),
    }


def _text(value: Any) -> str:
    """Make an id of what another library holds as a number."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _real(value: Any) -> float | None:
    if isinstance(value, str):
        return number(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
