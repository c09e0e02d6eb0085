"""Answers that annotation tools give, as the rows that judgments are read from.

====================================  ==========================================================
Label Studio, exported as JSON        tasks with ``data`` and ``annotations``; ``qid`` and
                                      ``docid`` in the data, one answer an annotation
Label Studio, as JSON-MIN             flat objects, like those of any list: ``qid``, ``docid``,
                                      ``grade``, ``annotator``
Argilla, records exported as JSON     ``responses`` to the question ``grade`` (or the only one);
                                      ``qid`` and ``docid`` in the metadata
Quepid, a book as CSV                 ``query,docid``, and a column for each rater
====================================  ==========================================================

A task nobody has answered is a row with an empty grade: not judged. Annotations that were
cancelled, and responses that were discarded or only drafted, are left out.

References
----------
The tools' own descriptions: *Label Studio task format*, Argilla's ``Record.to_dict``, Quepid's
export of books.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.errors import FormatError
from evenhand.formats.frames import column_of
from evenhand.formats.parsing import quote

__all__ = ["is_book", "of_book", "of_objects"]

_COLUMNS = ("qid", "docid", "grade", "assessor")
_SHAPE = (
    "a list is what Label Studio or Argilla exports, or has objects with qid, docid and grade; "
    "else {qid: {docid: value}}"
)


def of_objects(content: Sequence[Any], place: str) -> pa.Table:
    """Rows of a JSON list of tasks, records or flat objects.

    Raises
    ------
    FormatError
        If an object is none of these, or an answer is no number.
    """
    rows = []
    for number, one in enumerate(content, 1):
        at = f"{place}: object {number}"
        if not isinstance(one, Mapping):
            raise FormatError(f"{at}: expected an object, got {quote(str(one)[:80])}", hint=_SHAPE)
        if isinstance(one.get("data"), Mapping):
            found, about = _of_task(one, at), one["data"]
        elif "responses" in one:
            found = _of_record(one, at)
            about = {**(one.get("fields") or {}), **(one.get("metadata") or {})}
        else:
            about = {key.lower(): value for key, value in one.items()}
            said = next((about[key] for key in ("grade", "rating") if key in about), None)
            found = iter([(said, about.get("assessor", about.get("annotator", "")))])
        pair = [about.get("qid", about.get("query_id")), about.get("docid", about.get("doc_id"))]
        if None in pair:
            raise FormatError(f"{at}: no qid and docid", hint=_SHAPE)
        answers = list(found) or [(None, "")]
        rows += [(*pair, _number(said, at), name) for said, name in answers]
    text = pa.string()
    types = dict(zip(_COLUMNS, (text, text, pa.float64(), text), strict=True))
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return pa.table(
        {
            name: pa.array(
                [value if kind == pa.float64() else _id(value) for value in column], kind
            )
            for (name, kind), column in zip(types.items(), columns, strict=True)
        }
    )


def _of_task(task: Mapping[str, Any], at: str) -> Iterator[tuple[Any, Any]]:
    """Answers of a task of Label Studio, and whose they are."""
    for annotation in task.get("annotations", []):
        if annotation.get("was_cancelled"):
            continue
        said = [
            (part.get("from_name"), part["value"][kind])
            for part in annotation.get("result", [])
            for kind in ("choices", "rating", "number", "text")
            if kind in part.get("value", {})
        ]
        named = [value for name, value in said if name == "grade"] or [value for _, value in said]
        if len(named) != 1:
            raise FormatError(
                f"{at}: an annotation has {len(named)} answers",
                hint="name the control of the grade `grade`",
            )
        who = annotation.get("completed_by", "")
        yield named[0], who.get("email", who.get("id", "")) if isinstance(who, Mapping) else who


def _of_record(record: Mapping[str, Any], at: str) -> Iterator[tuple[Any, Any]]:
    """Answers of a record of Argilla, as exported or as sent, and whose they are."""
    responses = record["responses"] or {}
    if isinstance(responses, Mapping):
        said = [(name, one, one) for name, several in responses.items() for one in several]
    else:
        said = [
            (name, value, one) for one in responses for name, value in (one["values"] or {}).items()
        ]
    names = {name for name, _, _ in said}
    if len(names) > 1 and "grade" not in names:
        raise FormatError(f"{at}: answers {len(names)} questions, and none is named `grade`")
    for name, value, whose in said:
        done = whose.get("status", "submitted") == "submitted"
        if done and (len(names) == 1 or name == "grade"):
            yield value["value"], whose.get("user_id", "")


def _number(said: Any, at: str) -> float | None:
    value: Any = said[0] if isinstance(said, list) and len(said) == 1 else said  # the only choice
    if value is None or value == "":
        return None
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise FormatError(
            f"{at}: the answer is not a number, got {quote(str(value)[:80])}",
            hint="give each choice its grade as value or alias",
        ) from None


def _id(value: Any) -> str:
    """Ids as text: whole numbers without a decimal point."""
    return str(value) if value is not None else ""


def is_book(names: Sequence[str]) -> bool:
    """Whether a table is a book of Quepid's: query and docid, then a column for each rater."""
    if [name.lower() for name in names[:2]] != ["query", "docid"] or len(names) == 2:
        return False
    return not any(column_of(names, role) for role in ("grade", "rank", "assessor", "preferred"))


def of_book(table: pa.Table, lines: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """One row for each rater of each pair, and its line; an empty rating is not judged yet."""
    query, document, *raters = table.column_names
    several = len(raters)
    # Quepid puts a blank before what a spreadsheet would take for a formula.
    texts = [(value or "").strip() for value in table[query].to_pylist()]
    columns = [table[name].to_pylist() for name in raters]
    rows = {
        "qid": np.repeat(np.array(texts, object), several),
        "docid": np.repeat(np.array(table[document].to_pylist(), object), several),
        "grade": [value for row in zip(*columns, strict=True) for value in row],
        "assessor": raters * len(texts),
    }
    made = pa.table({name: pa.array(list(rows[name]), pa.string()) for name in _COLUMNS})
    return made, np.repeat(lines, several)
