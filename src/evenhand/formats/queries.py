"""Which queries are meant: lists of their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evenhand.errors import FormatError
from evenhand.formats import frames, parsing
from evenhand.formats.qrels import read_part
from evenhand.formats.sources import Source, expand

__all__ = ["read_queries"]


def read_queries(source: Any) -> tuple[str, ...]:
    """Read the ids of queries, each once, in order of appearance.

    Parameters
    ----------
    source
        A path to lines of ``qid`` or ``qid<TAB>text``; anything that `read_qrels` takes (all
        queries that it names, judged or not); or a list of ids.

    Returns
    -------
    tuple of str
        The ids.

    Raises
    ------
    FormatError
        A file that is missing, empty or neither of these.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.read_queries(["q1", "q2", "q1"])
    ('q1', 'q2')
    """
    if isinstance(source, list | tuple):
        ids = [str(query) for query in source]
        if not ids:
            raise FormatError("no query was given")
        return tuple(dict.fromkeys(ids))
    found: dict[str, None] = {}
    for entry in expand([source], "qrels"):
        if not isinstance(entry.content, Path) or _is_qrels(entry):
            found |= dict.fromkeys(read_part(entry).texts("query").to_pylist())
        else:
            found |= dict.fromkeys(_query_lines(entry))
    return tuple(found)


def _is_qrels(source: Source) -> bool:
    """Whether a file is more than a list of queries."""
    data = parsing.load(source.content, source.place)
    if frames.kind_of(data, source.content.name):
        return True
    lines = [
        line for line in parsing.plain(data).split(b"\n", 1000)[:1000] if not parsing.skipped(line)
    ]
    rows = [line.split() for line in lines]
    if not rows or any(len(row) not in (4, 5) or len(row) != len(rows[0]) for row in rows):
        return False
    # A query of three words may look like a line of qrels; a second field of 0 or Q0 throughout is
    # what only qrels have, and a number at the end throughout.
    last = all(parsing.number(row[-1].decode("utf-8", "replace")) is not None for row in rows)
    return last and all(row[1].isdigit() or row[1] == b"Q0" or len(row) == 5 for row in rows)


def _query_lines(source: Source) -> list[str]:
    data = parsing.load(source.content, source.place).removeprefix(b"\xef\xbb\xbf")
    faults = parsing.Faults()
    found = []
    for i, line in enumerate(data.splitlines(), 1):
        if parsing.skipped(line):
            continue
        head, tab, _ = line.partition(b"\t")
        if not found and not faults.shown and frames.column_of([_decoded(head)], "query"):
            continue  # a header
        at = f"{source.place}:{i}"
        if len(head.split()) != 1 and not (tab and head.strip()):
            faults.add(
                "fields",
                f"{at}: expected one query id or qid<TAB>text, got {parsing.quote(line)}",
                "put a tab between a query's id and its text",
            )
            continue
        try:
            found.append(head.strip().decode())
        except UnicodeDecodeError:
            faults.add("encoding", f"{at}: expected UTF-8, got {parsing.quote(line)}")
    faults.check()
    if not found:
        raise FormatError(f"{source.place}: no rows")
    return found


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
