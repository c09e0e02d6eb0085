"""Qrels: judgments of documents in one table."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from evenhand.errors import EvenhandError, FormatError
from evenhand.formats import parsing
from evenhand.formats.ids import intern
from evenhand.formats.reading import Part, read
from evenhand.formats.sources import Source, expand

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PRELS", "SAMPLED", "Qrels", "merged", "read_part", "read_qrels"]

_HINTS = {
    3: "qrels have four fields (qid iter docid grade), or three under a header: qid docid grade",
    6: "this looks like a run (qid Q0 docid rank score tag): give it as a run",
}
QRELS = parsing.Layout(("qid", "iter", "docid", "grade"), ("qid", "docid"), ("grade",), _HINTS)
# How these two were sampled is `evenhand.formats.prels`'s to read. A probability is a text here,
# since it may be NA.
PRELS = parsing.Layout(
    ("qid", "docid", "grade", "method", "prob"),
    ("qid", "docid", "method", "prob"),
    ("grade",),
    _HINTS,
)
SAMPLED = parsing.Layout(
    ("qid", "0", "docid", "stratum", "grade"), ("qid", "docid", "stratum"), ("grade",), _HINTS
)


@dataclass(frozen=True, slots=True, eq=False)
class Qrels:
    """Judgments, one row a query, document and assessor; n is their number.

    Rows are sorted by query, document and assessor. Ids are integer codes here: ``query[i]`` is an
    index into `queries`.

    Parameters
    ----------
    queries, documents
        The distinct ids that have a judgment, sorted by bytes.
    assessors
        Their names; ``("",)`` where none is named and all agree.
    query, document, assessor
        Codes; int32 [n].
    grade
        As given, or as the rule for negative grades makes it; float64 [n].
    line
        The 1-based line or row in its source, 0 where it has none; int64 [n].
    source
        Where the judgments came from, for messages.
    blank
        How many rows had no grade (not judged yet, or not sampled).
    unjudged
        How many rows were dropped because their grade was negative.
    notes
        What was noticed while reading, a sentence each.
    """

    queries: pa.StringArray
    documents: pa.StringArray
    assessors: tuple[str, ...]
    query: np.ndarray
    document: np.ndarray
    assessor: np.ndarray
    grade: np.ndarray
    line: np.ndarray
    source: str
    blank: int = 0
    unjudged: int = 0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.grade)

    def check_grades(self, allowed: Sequence[float], rows: np.ndarray) -> None:
        """Refuse grades of some rows that a scale lacks.

        Raises
        ------
        FormatError
            With the place of the first few.
        """
        bad = rows[~np.isin(self.grade[rows], allowed)]
        if not len(bad):
            return
        faults = []
        for row in bad[:3]:
            # A line identifies the place only where there is one source, and it has lines.
            line = int(self.line[row]) if ", " not in self.source else 0
            query, document = self.queries[self.query[row]], self.documents[self.document[row]]
            faults.append(
                f"{self.source}{f':{line}' if line else ''}: grade {self.grade[row]:g} of "
                f"{query.as_py()} {document.as_py()} is not on the study's scale"
            )
        scale = ", ".join(f"{grade:g}" for grade in allowed)
        raise FormatError.collect(
            faults, hint=f"its grades are {scale}; nothing was stored", total=len(bad)
        )

    def to_frame(self) -> pd.DataFrame:
        """Make a pandas data frame: query, document, assessor, grade."""
        import pandas as pd

        def named(codes: np.ndarray, names: Iterable[str]) -> pd.Categorical:
            return pd.Categorical.from_codes(codes, pd.Index(list(names), dtype="str"))

        return pd.DataFrame(
            {
                "query": named(self.query, self.queries.to_pylist()),
                "document": named(self.document, self.documents.to_pylist()),
                "assessor": named(self.assessor, self.assessors),
                "grade": self.grade,
            }
        )

    def _counts(self) -> dict[str, int]:
        return {
            "queries": len(self.queries),
            "documents": len(self.documents),
            "assessors": len(self.assessors),
            "judgments": len(self),
            "blank": self.blank,
        }

    def __repr__(self) -> str:
        return f"Qrels({', '.join(f'{count:,} {name}' for name, count in self._counts().items())})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{name}</th><td>{count:,}</td></tr>" for name, count in self._counts().items()
        )
        return f"<table><caption>Qrels: {html.escape(self.source)}</caption>{rows}</table>"


def read_qrels(*sources: Any, negative: str = "unjudged") -> Qrels:
    """Read relevance judgments.

    Identical rows merge, with a note. Two grades of one assessor for one pair are two assessors:
    unnamed ones become ``#1``, ``#2``, ... in order of appearance, a named one ``name`` and
    ``name#2``.

    Parameters
    ----------
    *sources
        Each a path, a glob, a folder, a mapping ``{qid: {docid: grade}}``, a data frame, a list of
        these, or ``{assessor: any of these}``. Files are TREC qrels (``qid iter docid grade``), a
        table with a header such as ``qid docid grade assessor`` (columns in any order, an empty
        grade is not judged yet), five-column prels or sample_eval files, JSON or Parquet.
    negative
        What a grade below 0 means: ``"unjudged"`` drops the row, ``"zero"`` makes it 0, ``"keep"``
        keeps it. All three are counted in the notes.

    Returns
    -------
    Qrels
        The judgments of all sources.

    Raises
    ------
    FormatError
        A source that is missing or malformed; file, line and text are named.

    Examples
    --------
    >>> qrels = read_qrels({"ann": {"q1": {"d3": 2, "d9": None}}, "bob": {"q1": {"d3": 1}}})
    >>> qrels.to_frame()
      query document assessor  grade
    0    q1       d3      ann    2.0
    1    q1       d3      bob    1.0
    >>> qrels.notes
    ('1 row has no grade: not judged.',)
    """
    if negative not in ("unjudged", "zero", "keep"):
        expected = '"unjudged", "zero" or "keep"'
        raise EvenhandError(f"expected negative to be {expected}, got {negative!r}")
    return merged([read_part(source) for source in expand(sources, "qrels")], negative)


def merged(parts: list[Part], negative: str) -> Qrels:
    """Make one table of all sources' judgments; see `read_qrels`."""
    notes: list[str] = []
    names, codes = _names(parts)
    query_ids, query_codes = intern([part.texts("query") for part in parts])
    document_ids, document_codes = intern([part.texts("document") for part in parts])
    query = _coded(parts, "query", query_codes)
    document = _coded(parts, "document", document_codes)
    assessor = np.concatenate(codes)
    grade = np.concatenate([_grades(part) for part in parts])
    line = np.concatenate([part.place.numbers(len(part)) for part in parts])

    judged = ~np.isnan(grade)
    blank = int(len(grade) - judged.sum())
    if blank:
        notes.append(f"{_rows(blank)} no grade: not judged.")
    below = judged & (grade < 0)
    unjudged = 0
    if below.any():
        count = int(below.sum())
        notes.append(f"{_rows(count)} a negative grade: {_RULES[negative]}.")
        if negative == "unjudged":
            judged &= ~below
            unjudged = count
        elif negative == "zero":
            grade = np.where(below, 0.0, grade)

    rows = np.flatnonzero(judged)
    rows, time = _distinct(query, document, assessor, grade, rows)
    merged = int(judged.sum()) - len(rows)
    if merged:
        notes.append(f"{_rows(merged, 'was', 'were')} given twice and merged.")
    assessors, assessor = _told_apart(names, assessor[rows], time)
    if time.any():
        pairs = len(np.unique(np.stack([query[rows], document[rows]])[:, time > 0], axis=1).T)
        notes.append(
            f"{pairs:,} {'pair has' if pairs == 1 else 'pairs have'} different grades of one "
            "assessor: counted as several assessors."
        )
    order = np.lexsort((assessor, document[rows], query[rows]))
    rows, assessor = rows[order], assessor[order]
    queries, query = _used(query_ids, query[rows])
    documents, document = _used(document_ids, document[rows])
    if len(queries) < len(query_ids):
        lost = len(query_ids) - len(queries)
        notes.append(f"{lost:,} {'query has' if lost == 1 else 'queries have'} no judgment left.")
    return Qrels(
        queries=queries,
        documents=documents,
        assessors=assessors,
        query=query,
        document=document,
        assessor=assessor,
        grade=grade[rows] + 0.0,  # -0 is 0
        line=line[rows],
        source=", ".join(part.source.place for part in parts),
        blank=blank,
        unjudged=unjudged,
        notes=tuple(notes),
    )


_RULES = {"unjudged": "taken as not judged", "zero": "taken as 0", "keep": "kept as it is"}


def read_part(source: Source) -> Part:
    """Read one source's judgments, blank and negative ones too."""
    roles = {"query": "id", "document": "id", "grade": "number", "assessor": "name"}
    return read(source, "grade", roles, _layout)


def _layout(data: bytes) -> parsing.Layout:
    """Recognise the five-column files by their shape."""
    lines = data.split(b"\n", 1000)[:1000]
    rows = [line.split() for line in lines if not parsing.skipped(line)]
    if not rows or any(len(row) != 5 for row in rows):
        return QRELS
    return SAMPLED if all(row[1] in (b"0", b"Q0") for row in rows) else PRELS


def _names(parts: list[Part]) -> tuple[list[str], list[np.ndarray]]:
    """List all assessors in order of appearance; their codes in each part are int32 [rows]."""
    known: dict[str, int] = {}
    codes = []
    for part in parts:
        default = part.source.name or ""
        own = part.texts("assessor").to_pylist() or [default]
        numbers = np.array([known.setdefault(a or default, len(known)) for a in own], np.int32)
        named = "assessor" in part.columns
        codes.append(numbers[part.codes("assessor")] if named else np.repeat(numbers, len(part)))
    return list(known), codes


def _coded(parts: list[Part], role: str, codes: list[np.ndarray]) -> np.ndarray:
    pairs = zip(codes, parts, strict=True)
    return np.concatenate([code[part.codes(role)] for code, part in pairs])


def _grades(part: Part) -> np.ndarray:
    grade = part.numbers("grade")
    # In sample_eval's files -1 is in the stratum, and not drawn.
    return np.where(grade == -1, np.nan, grade) if part.layout is SAMPLED else grade


def _distinct(
    query: np.ndarray,
    document: np.ndarray,
    assessor: np.ndarray,
    grade: np.ndarray,
    rows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Keep the first of identical rows, and count an assessor's earlier grades of its pair."""
    order = rows[np.lexsort((rows, grade[rows], assessor[rows], document[rows], query[rows]))]

    def differs(rows: np.ndarray, *columns: np.ndarray) -> np.ndarray:
        found = np.ones(len(rows), bool)
        if len(rows):
            found[1:] = np.any([c[rows[1:]] != c[rows[:-1]] for c in columns], axis=0)
        return found

    kept = order[differs(order, query, document, assessor, grade)]
    kept = kept[np.lexsort((kept, assessor[kept], document[kept], query[kept]))]
    starts = np.flatnonzero(differs(kept, query, document, assessor))
    sizes = np.diff(np.r_[starts, len(kept)])
    return kept, np.arange(len(kept)) - np.repeat(starts, sizes)


def _told_apart(
    names: list[str], assessor: np.ndarray, time: np.ndarray
) -> tuple[tuple[str, ...], np.ndarray]:
    """Make an assessor of each name and time, where an assessor gave a pair several grades."""
    if not len(assessor):
        return ("",), np.empty(0, np.int32)
    used, codes = np.unique(np.stack([assessor, time]), axis=1, return_inverse=True)
    unnamed_twice = any(names[a] == "" and t > 0 for a, t in used.T)

    def label(name: str, time: int) -> str:
        if name == "":
            return f"#{time + 1}" if unnamed_twice else ""
        return f"{name}#{time + 1}" if time else name

    return tuple(label(names[a], t) for a, t in used.T), codes.astype(np.int32).reshape(-1)


def _used(ids: pa.Array, codes: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """Drop the ids that no row has."""
    present = np.zeros(len(ids), bool)
    present[codes] = True
    if present.all():
        return ids, codes
    new = np.cumsum(present, dtype=np.int32) - np.int32(1)
    return ids.filter(pa.array(present)), new[codes]


def _rows(count: int, one: str = "has", many: str = "have") -> str:
    return f"{count:,} {f'row {one}' if count == 1 else f'rows {many}'}"
