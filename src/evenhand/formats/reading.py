"""One source to columns by role, whatever it is: lines, JSON, CSV, Parquet, a table, a mapping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from evenhand.errors import FormatError
from evenhand.formats import annotators, frames, parsing
from evenhand.formats.frames import from_json, from_mapping
from evenhand.formats.sources import Source

__all__ = ["Part", "read"]

_ROLES = {"qid": "query", "docid": "document", "tag": "system"}  # of fields; others keep their name


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One source's rows, in its own order.

    Parameters
    ----------
    source
        Where they came from.
    place
        The same, for messages.
    columns
        By role: texts (dictionary-encoded, but for some document ids), or float64 (NaN where a
        cell was blank and might be).
    layout
        Of lines of fields; None for all else.
    """

    source: Source
    place: parsing.Place
    columns: Mapping[str, pa.Array]
    layout: parsing.Layout | None = None

    def __len__(self) -> int:
        return len(self.columns["query"])

    def codes(self, role: str) -> np.ndarray:
        """Give the indices of a role's texts into `texts`; int [rows]."""
        column = self.columns[role]
        if pa.types.is_dictionary(column.type):
            return column.indices.to_numpy()
        return np.arange(len(column))

    def texts(self, role: str) -> pa.Array:
        """Give the texts that a role's codes mean; none without a column."""
        column = self.columns.get(role)
        if column is None:
            return pa.array([], pa.string())
        return column.dictionary if pa.types.is_dictionary(column.type) else column

    def numbers(self, role: str) -> np.ndarray:
        """Give the numbers of a role; float64 [rows]."""
        return self.columns[role].to_numpy()


def read(
    source: Source,
    value: str,
    roles: Mapping[str, str],
    layout_of: Callable[[bytes], parsing.Layout],
) -> Part:
    """Read one source.

    Parameters
    ----------
    source
        A path, a mapping or a table.
    value
        The role of the numbers in a mapping ``{qid: {docid: number}}``.
    roles
        What is wanted of a table; see `frames.columns`.
    layout_of
        Chooses the layout of lines of fields by looking at them.
    """
    content, name = source.content, source.place
    if isinstance(content, Mapping):
        return _of_mapping(source, content, value, roles)
    if not isinstance(content, Path):
        return _of_table(source, frames.to_arrow(content, name), value, roles, parsing.Place(name))
    data = parsing.load(content, name)
    kind = frames.kind_of(data, content.name)
    if kind == "json":
        said = from_json(data, name, listed=value == "grade")
        if isinstance(said, list):
            objects = annotators.of_objects(said, name)
            return _of_table(source, objects, value, roles, parsing.Place(name))
        return _of_mapping(source, said, value, roles)
    if kind == "parquet":
        return _of_table(source, frames.from_parquet(data, name), value, roles, parsing.Place(name))
    if kind:
        table, lines = frames.delimited(data, name, kind)
        if value == "grade" and annotators.is_book(table.column_names):
            table, lines = annotators.of_book(table, lines)
        return _of_table(source, table, value, roles, parsing.Place(name, lambda: lines))
    data = parsing.plain(data)
    layout = layout_of(data)
    table = parsing.parse(data, layout, name)
    return Part(
        source,
        parsing.Place(name, partial(_lines, source, table.num_rows)),
        {_ROLES.get(key, key): table[key].chunk(0) for key in (*layout.ids, *layout.numbers)},
        layout,
    )


def _of_mapping(source: Source, content: Mapping, value: str, roles: Mapping[str, str]) -> Part:
    wanted = [role for role, kind in roles.items() if kind != "name"]
    lacks = [role for role in wanted if role not in ("query", "document", value)]
    if lacks:
        shape = f"{{qid: {{docid: {value}}}}}"
        raise FormatError(
            f"{source.place}: {shape} has no {lacks[0]}", hint="give a table or a file"
        )
    blank = value == "grade"
    columns = from_mapping(content, source.place, value, blank=blank)
    return Part(source, parsing.Place(source.place, counted=False), columns)


def _of_table(
    source: Source, table: pa.Table, value: str, roles: Mapping[str, str], place: parsing.Place
) -> Part:
    blank = value if value == "grade" else ""
    return Part(source, place, frames.columns(table, place, roles, blank=blank))


def _lines(source: Source, rows: int) -> np.ndarray:
    """Find the lines of a file's rows; it is read again, as few ask for them."""
    return parsing.line_numbers(parsing.plain(parsing.load(source.content, source.place)), rows)
