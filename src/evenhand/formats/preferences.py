"""Preferences: which of two documents is better.

Files are tables ``qid docA docB preferred``, the last one of the two documents' ids, ``=`` where
they are equal, or empty where the pair is not judged yet.
"""

# pyarrow makes its compute functions when it is imported.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.errors import FormatError
from evenhand.formats import frames
from evenhand.formats.ids import intern
from evenhand.formats.parsing import Faults, Place, load, quote, skipped
from evenhand.formats.sources import Source, expand

__all__ = ["COLUMNS", "EQUAL", "Preferences", "read_preferences"]

#: What is written for the preferred document where both are equally good.
EQUAL = "="

#: The columns of a table of pairs.
COLUMNS = ("qid", "docA", "docB", "preferred")
_ROLES = {"query": "id", "docA": "id", "docB": "id", "preferred": "name", "assessor": "name"}


@dataclass(frozen=True, slots=True, eq=False)
class Preferences:
    """Judgments of which of two documents is better, one row a judgment; n is their number.

    Attributes
    ----------
    queries, documents
        The distinct ids, sorted by bytes.
    query, first, second
        Codes into them, `first` below `second`; int32 [n].
    better
        1 where the first is better, -1 where the second is, 0 where they are equal; int8 [n].
    source
        Where they came from, for messages.
    blank
        How many rows had no judgment yet.
    notes
        What was noticed while reading, a sentence each.
    """

    queries: pa.Array
    documents: pa.Array
    query: np.ndarray
    first: np.ndarray
    second: np.ndarray
    better: np.ndarray
    source: str
    blank: int = 0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.better)

    def __repr__(self) -> str:
        return f"Preferences({len(self):,} judgments of pairs, {self.blank:,} blank)"


def read_preferences(*sources: Any) -> Preferences:
    """Read preferences between documents from a file or table.

    Identical rows merge, with a note. A pair that was judged both ways has the share of its
    judgments that say each; a column ``assessor`` keeps those of several assessors apart, who may
    say the same.

    Parameters
    ----------
    *sources
        Each a path, a glob, a folder, a data frame, a list of these, or ``{assessor: any of
        these}``: tables with the columns ``qid docA docB preferred`` and, if there are several,
        ``assessor``. Files are divided by tabs or commas, or Parquet.

    Returns
    -------
    Preferences
        Of all sources.

    Raises
    ------
    FormatError
        A source that is missing or malformed; file, line and text are named.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"qid": ["q1"], "docA": ["d3"], "docB": ["d9"], "preferred": ["d9"]})
    >>> read_preferences(table)
    Preferences(1 judgments of pairs, 0 blank)
    """
    found = expand(sources, "preferences")
    tables = [_table(source) for source in found]
    queries, query = _coded(tables, ["query"])
    documents, document = _coded(tables, ["docA", "docB", "preferred"])
    who = [
        columns["assessor"]
        if "assessor" in columns
        else pa.array([source.name or ""] * len(columns["query"])).dictionary_encode()
        for source, (columns, _) in zip(found, tables, strict=True)
    ]
    _, assessor = _coded([({"assessor": one}, None) for one in who], ["assessor"])
    first, second, preferred = document
    equal, blank = (documents.index(text).as_py() for text in (EQUAL, ""))
    # The empty name and the sign are no documents; where absent, their code is -1, which none has.
    judged = preferred != blank
    better = np.select([preferred == first, preferred == second], [1, -1], 0).astype(np.int8)
    odd = judged & (better == 0) & (preferred != equal)
    _check(tables, documents, first, second, preferred, odd, equal)
    flipped = first > second
    better = np.where(flipped, -better, better).astype(np.int8)
    first, second = np.where(flipped, second, first), np.where(flipped, first, second)
    rows_said = np.stack([query[0], first, second, assessor[0], better])[:, judged]
    distinct = np.unique(rows_said, axis=1)
    notes = []
    if n_blank := int(np.sum(~judged)):
        notes.append(f"{n_blank:,} {'row is' if n_blank == 1 else 'rows are'} not judged yet.")
    if merged := rows_said.shape[1] - distinct.shape[1]:
        notes.append(f"{merged:,} {'row was' if merged == 1 else 'rows were'} given twice, merged.")
    x, first, second, _, better = distinct
    return Preferences(
        queries=queries,
        documents=documents,
        query=x.astype(np.int32),
        first=first.astype(np.int32),
        second=second.astype(np.int32),
        better=better.astype(np.int8),
        source=", ".join(source.place for source in found),
        blank=n_blank,
        notes=tuple(notes),
    )


Columns = Mapping[str, Any]


def _table(source: Source) -> tuple[Columns, Place]:
    """The columns of one source, and its place."""
    content, name = source.content, source.place
    if isinstance(content, Mapping):
        raise FormatError(
            f"{name}: a mapping holds no pairs",
            hint=f"give a file or a data frame with the columns {', '.join(COLUMNS)}",
        )
    place = Place(name)
    if not isinstance(content, Path):
        table = frames.to_arrow(content, name)
    else:
        data = load(content, name)
        if data.startswith(b"PAR1"):
            table = frames.from_parquet(data, name)
        else:
            # Distinguished before a table is made, which a file without a header cannot be.
            lines_said = (line for line in data.splitlines() if not skipped(line))
            head = next(lines_said, b"").decode("utf-8-sig", "replace")
            delimiter = next((d for d in ("\t", ",") if d in head), " ")
            _check_columns([cell.strip('" ') for cell in head.split(delimiter)], name)
            table, lines = frames.delimited(data, name, delimiter)
            place = Place(name, lambda: lines)
    _check_columns(table.column_names, name)
    columns = frames.columns(table, place, _ROLES)
    said = columns["preferred"].dictionary_decode()
    columns["preferred"] = pc.utf8_trim_whitespace(said).dictionary_encode()
    return columns, place


def _check_columns(names: Sequence[str], place: str) -> None:
    wanted = [role for role in _ROLES if role != "assessor"]
    if any(frames.column_of(names, role) is None for role in wanted):
        raise FormatError(
            f"{place}: expected the columns {' '.join(COLUMNS)}, got {quote(' '.join(names))}",
            hint=f"head a table of pairs with {' '.join(COLUMNS)}, divided by tabs",
        )


def _coded(tables: Sequence[tuple[Columns, Any]], roles: Sequence[str]) -> tuple[pa.Array, list]:
    """The distinct texts of some columns, and of each of them the codes, all tables together."""
    columns = [columns[role] for role in roles for columns, _ in tables]
    texts, codes = intern([column.dictionary for column in columns])
    flat = [
        code[column.indices.to_numpy()].astype(np.int64)
        for code, column in zip(codes, columns, strict=True)
    ]
    n = len(tables)
    return texts, [np.concatenate(flat[i * n : (i + 1) * n]) for i in range(len(roles))]


def _check(
    tables: Sequence[tuple[Columns, Place]],
    documents: pa.Array,
    first: np.ndarray,
    second: np.ndarray,
    preferred: np.ndarray,
    odd: np.ndarray,
    equal: int,
) -> None:
    """Raise what is wrong with rows, of the kind that comes first."""
    ends = np.cumsum([len(columns["query"]) for columns, _ in tables])
    same, named = first == second, (first == equal) | (second == equal)
    faults = Faults()
    for row in np.flatnonzero(odd | same | named).tolist():
        which = int(np.searchsorted(ends, row, side="right"))
        place = tables[which][1]
        at = place.at(row - int(ends[which] - len(tables[which][0]["query"])))
        a, b, said = (documents[int(codes[row])].as_py() for codes in (first, second, preferred))
        if same[row]:
            faults.add("same", f"{at}: {quote(a)} is paired with itself", "drop these rows")
        elif named[row]:
            hint = f"{EQUAL} says that two documents are equal; rename the document"
            faults.add("named", f"{at}: a document is named {quote(EQUAL)}", hint)
        else:
            faults.add(
                "odd",
                f"{at}: preferred is neither {quote(a)} nor {quote(b)} nor {quote(EQUAL)}, got "
                f"{quote(said)}",
                f"write the id of the better document, or {EQUAL} where they are equal; leave it "
                "empty where they are not judged",
            )
    faults.check()
