"""The pairs that wait for a judgment, as tasks of annotation tools.

================  ==================================================================================
kind              what takes it
================  ==================================================================================
``csv``           a spreadsheet, say: ``qid,docid,query,title,text,grade``, grades empty
``label-studio``  Label Studio, *Import*; `interface` is its labelling interface
``argilla``       ``dataset.records.from_json`` of a dataset with the fields ``query``, ``document``
                  and a question ``grade``
================  ==================================================================================

`evenhand.formats.annotators` reads what comes back. Neither systems nor ranks are shown. A query's
documents stay together, in an order by a hash of their ids.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np

from evenhand.errors import EvenhandError, StudyError
from evenhand.formats.corpora import Text, Texts, read_topics
from evenhand.studies.exports import Export
from evenhand.studies.snapshots import Snapshot

__all__ = ["KINDS", "interface", "named_queries", "tasks"]

KINDS = ("csv", "label-studio", "argilla")

#: Gives the text of an id, None where there is none.
Lookup = Callable[[str], Text | None]


def tasks(
    at: Snapshot, kind: str, *, docs: str | Path | None = None, queries: str | Path | None = None
) -> Export:
    """Make a file of the pairs that wait for a judgment.

    Parameters
    ----------
    at
        The study.
    kind
        One of `KINDS`.
    docs, queries
        Files of texts; see `evenhand.formats.corpora`. Without them ids stand alone.

    Raises
    ------
    StudyError
        If nothing was drawn, or nothing waits.
    FormatError
        If a file cannot be read.
    EvenhandError
        If the kind is unknown.
    """
    if kind not in KINDS:
        raise EvenhandError(f"unknown kind {kind!r}", hint=f"known are {', '.join(KINDS)}")
    waiting = at.ledger.missing()
    if not waiting:
        raise StudyError("nothing has been drawn yet", hint=f"evenhand draw {at.folder} --budget N")
    pairs = _pairs(at, np.unique(np.concatenate(waiting)))
    if not pairs:
        raise StudyError(f"no pair of {at.folder} waits for a judgment")
    notes = []
    with ExitStack() as stack:
        wanted = [{pair[i] for pair in pairs} for i in (0, 1)]
        query = _lookup(stack, queries, wanted[0], "queries")
        document = _lookup(stack, docs, wanted[1], "corpus")
        rows = []
        for qid, docid in pairs:
            asked, said = query(qid) or Text("", ""), document(docid) or Text("", "")
            shown = "\n\n".join(part for part in (asked.title, asked.text, asked.more) if part)
            rows.append((qid, docid, shown, said.title, said.text))
        lacking = sum(document(docid) is None for docid in wanted[1]) if docs is not None else 0
    if lacking:
        notes.append(f"{lacking:,} of {len(wanted[1]):,} documents have no text in {docs}")
    if kind == "label-studio":
        notes.append(f"labelling interface: {interface(at.settings.grades or (0.0, 1.0))}")
    return Export(kind, _written[kind](rows), tuple(notes))


def interface(grades: Sequence[float]) -> str:
    """The labelling interface of Label Studio that asks for these grades."""
    choices = "".join(f"<Choice value={quoteattr(f'{grade:g}')}/>" for grade in grades)
    return (
        '<View><Header value="$query"/><Header value="$title" size="5"/>'
        '<Text name="document" value="$text"/>'
        f'<Choices name="grade" toName="document" choice="single">{choices}</Choices></View>'
    )


def named_queries(path: str | Path, ids: Sequence[str]) -> dict[str, str]:
    """The id of each query by its text, for tools that know no ids.

    Raises
    ------
    FormatError
        If the file cannot be read.
    EvenhandError
        If two queries have one text.
    """
    found: dict[str, str] = {}
    with ExitStack() as stack:
        lookup = _lookup(stack, path, set(ids), "queries")
        for id in ids:
            text = lookup(id)
            if text is None:
                continue
            said = " ".join((text.text or text.title).split())
            if found.setdefault(said, id) != id:
                raise EvenhandError(
                    f"the queries {found[said]} and {id} have one text in {path}: {said[:80]!r}",
                    hint="answers that name queries by their text cannot tell them apart",
                )
    return found


def _lookup(stack: ExitStack, path: str | Path | None, wanted: set[str], name: str) -> Lookup:
    if path is None:
        return lambda id: None
    topics = read_topics(Path(path)) if name == "queries" else None
    if topics is not None:
        return topics.get
    return stack.enter_context(closing(Texts(Path(path), lambda: wanted, name=name))).get


def _pairs(at: Snapshot, cells: np.ndarray) -> list[tuple[str, str]]:
    """Ids of pairs, by query, then by a hash: the order reveals no ranks."""
    pool = at.goal.target.pool
    pairs = list(zip(*pool.names(cells), strict=True))
    mixed = [hashlib.sha256("\t".join(pair).encode()).digest() for pair in pairs]
    order = sorted(range(len(pairs)), key=lambda i: (pool.query[cells[i]], mixed[i]))
    return [pairs[i] for i in order]


def _csv(rows: Sequence[tuple[str, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("qid", "docid", "query", "title", "text", "grade"))
    for qid, docid, *texts in rows:
        # A spreadsheet would take such a text for a formula.
        harmless = [f" {text}" if text.startswith(("=", "+", "-", "@")) else text for text in texts]
        writer.writerow((qid, docid, *harmless, ""))
    return out.getvalue()


def _label_studio(rows: Sequence[tuple[str, ...]]) -> str:
    names = ("qid", "docid", "query", "title", "text")
    shown = [
        (qid, docid, query or qid, title or docid, text) for qid, docid, query, title, text in rows
    ]
    return _json([{"data": dict(zip(names, row, strict=True))} for row in shown])


def _argilla(rows: Sequence[tuple[str, ...]]) -> str:
    return _json(
        [
            {
                "id": f"{qid} {docid}",
                "fields": {
                    "query": query or qid,
                    "document": f"{title}\n\n{text}".strip() or docid,
                },
                "metadata": {"qid": qid, "docid": docid},
                "suggestions": {},
                "responses": {},
                "vectors": {},
            }
            for qid, docid, query, title, text in rows
        ]
    )


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


_written = {"csv": _csv, "label-studio": _label_studio, "argilla": _argilla}
