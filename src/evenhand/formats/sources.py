"""What a user may point to: paths, globs, folders, mappings, tables, lists and names of these."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenhand.errors import FormatError

__all__ = ["Source", "expand", "is_values"]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One file or one table.

    Parameters
    ----------
    content
        A `Path`, a mapping ``{qid: {docid: value}}``, or a table.
    place
        What messages call it.
    stem
        The name that it suggests for itself.
    name
        The name that the user gave it, or None.
    """

    content: Any
    place: str
    stem: str
    name: str | None = None


def expand(sources: Iterable[Any], what: str) -> list[Source]:
    """List every file and table that is meant, in the order given.

    Parameters
    ----------
    sources
        Paths, globs, folders, mappings, tables, lists of these, and ``{name: any of these}``.
    what
        ``"run"`` or ``"qrels"``, for messages and for the names of nameless tables.
    """
    found: list[Source] = []
    for source in sources:
        found.extend(_expand(source, what, len(found) + 1))
    if not found:
        raise FormatError(f"no {what} was given", hint="give a file, a glob, a folder or a table")
    return found


def is_values(mapping: Mapping[Any, Any]) -> bool:
    """Whether a mapping is ``{qid: {docid: value}}``, and no ``{name: source}``."""
    return all(
        isinstance(inner, Mapping)
        and all(v is None or isinstance(v, str) or hasattr(v, "__float__") for v in inner.values())
        for inner in mapping.values()
    )


def _expand(source: Any, what: str, position: int) -> list[Source]:
    if isinstance(source, str | os.PathLike):
        return [_file(path) for path in _paths(os.fspath(source), what)]
    if isinstance(source, Mapping) and not is_values(source):
        return [
            _named(entry, str(name))
            for i, (name, inner) in enumerate(source.items())
            for entry in _expand(inner, what, position + i)
        ]
    if isinstance(source, Iterable) and not isinstance(source, Mapping) and _is_list(source):
        entries = list(source)
        if entries and all(hasattr(entry, "_fields") for entry in entries):
            return [Source(_columns(entries), f"{what} {position}", f"{what}-{position}")]
        found: list[Source] = []
        for entry in entries:
            found.extend(_expand(entry, what, position + len(found)))
        return found
    return [Source(source, f"{what} {position}", f"{what}-{position}")]


def _named(entry: Source, name: str) -> Source:
    place = entry.place if isinstance(entry.content, Path) else name
    return replace(entry, name=name, place=place)


def _is_list(source: Any) -> bool:
    """Whether a source is a list of sources: data frames can be iterated over as well."""
    return isinstance(source, list | tuple | set | frozenset) or hasattr(source, "__next__")


def _columns(rows: list[Any]) -> Any:
    """Make a table of named tuples, as ir_datasets gives them."""
    import pyarrow as pa

    return pa.table({key: [getattr(row, key) for row in rows] for key in rows[0]._fields})


def _file(path: str) -> Source:
    name = Path(path).name.removesuffix(".gz")
    return Source(Path(path).expanduser(), path, name)


def _paths(text: str, what: str) -> list[str]:
    path = Path(text).expanduser()
    if path.is_dir():
        entries = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        if not entries:
            raise FormatError(
                f"{text}: a folder without files", hint=f"give a folder of {what} files"
            )
        return [os.path.join(text, p.name) for p in entries]
    if path.exists():
        return [text]
    if glob.has_magic(text):
        matched = sorted(p for p in glob.glob(str(path)) if Path(p).is_file())
        if not matched:
            raise FormatError(f"{text}: matches no file", hint="check the folder and the pattern")
        return matched
    raise FormatError(f"{text}: no such file", hint=f"give a {what} file, a folder or a glob")
