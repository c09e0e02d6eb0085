"""Tables and mappings (data frames, CSV, TSV, Parquet, JSON) to Arrow columns.

The field's names for the same thing are many; `ROLES` lists those that are understood, the surest
first. Every data frame comes in through narwhals; mappings, in memory or as
JSON, are ``{qid: {docid: value}}``.
"""

# pyarrow makes its compute functions when it is imported.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from evenhand.errors import FormatError
from evenhand.formats.parsing import Faults, Place, number, quote
from evenhand.formats.sources import is_values

__all__ = [
    "ROLES",
    "column_of",
    "columns",
    "delimited",
    "delimiter_of",
    "from_json",
    "from_mapping",
    "from_parquet",
    "kind_of",
    "stem_of",
    "to_arrow",
]

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


ROLES: Mapping[str, tuple[str, ...]] = {
    "query": ("query_id", "qid", "q_id", "topic", "topic_id", "topicid", "query"),
    "document": ("doc_id", "docno", "docid", "corpus_id", "document_id", "document"),
    "score": ("score", "sim"),
    "rank": ("rank",),
    "system": ("tag", "run", "run_id", "system"),
    "grade": (
        "grade",
        "relevance",
        "rel",
        "label",
        "judgment",
        "judgement",
        "rating",
        "value",
        "score",
    ),
    "assessor": ("assessor", "assessor_id", "annotator", "worker", "worker_id", "workerid"),
    "docA": ("doca", "doc_a", "document_a"),
    "docB": ("docb", "doc_b", "document_b"),
    "preferred": ("preferred", "preference"),
}

_EXTENSIONS = (".csv", ".tsv", ".txt", ".json", ".parquet")


def column_of(names: Iterable[str], role: str) -> str | None:
    """Find the column of a role; None where no name is known for it."""
    known = {_key(name): name for name in reversed(list(names))}
    return next((known[alias] for alias in ROLES[role] if alias in known), None)


def delimiter_of(data: bytes) -> str | None:
    """Give the delimiter of a table with a header; None where the first line is no header."""
    first = _first_line(data)
    for delimiter in ("\t", ",", " "):
        names = first.split() if delimiter == " " else first.split(delimiter)
        names = [name.strip('" ') for name in names]
        if column_of(names, "query") and column_of(names, "document"):
            return delimiter
    return None


def columns(
    table: pa.Table, place: Place, roles: Mapping[str, str], *, blank: str = ""
) -> dict[str, pa.Array | pa.DictionaryArray]:
    """Take the columns of some roles out of a table.

    Parameters
    ----------
    table
        Any columns, under the field's usual names.
    place
        Where it came from.
    roles
        For each role ``"id"`` (must be there), ``"number"`` (must be there), or ``"name"`` (left
        out where the table has none; an empty cell is an empty name).
    blank
        The role whose cells may be empty; they become NaN.

    Returns
    -------
    dict
        By role: dictionary-encoded strings, or float64 (finite, but for blank cells).
    """
    found = {role: column_of(table.column_names, role) for role in roles}
    if found.get("grade") and found["grade"] == column_of(table.column_names, "score"):
        # BEIR calls grades scores; a rank or a tag beside them says that they are scores.
        if any(column_of(table.column_names, role) for role in ("rank", "system")):
            raise FormatError(
                f"{place.name}: no column for the grade, got {', '.join(table.column_names)}",
                hint="this looks like a run: give it as a run, or name the grades grade",
            )
    for role, kind in roles.items():
        if found[role] is None and kind != "name":
            raise FormatError(
                f"{place.name}: no column for the {role}, got {', '.join(table.column_names)}",
                hint=f"name it one of {', '.join(ROLES[role])}",
            )
    if not table.num_rows:
        raise FormatError(f"{place.name}: no rows", hint="the table has a header and nothing else")
    faults = Faults()
    taken: dict[str, pa.Array | pa.DictionaryArray] = {}
    for role, kind in roles.items():
        name = found[role]
        if name is None:
            continue
        column = table[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # pyarrow before 19 keeps no chunks apart
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        if kind == "number":
            taken[role] = _numbers(column, name, place, faults, blank=role == blank)
        else:
            taken[role] = _ids(column, name, place, faults, blank=kind == "name")
    faults.check()
    return taken


def to_arrow(frame: Any, place: str) -> pa.Table:
    """Take in any data frame that narwhals knows."""
    if isinstance(frame, pa.Table):
        return frame
    import narwhals.stable.v1 as nw

    try:
        return nw.from_native(frame, eager_only=True).to_arrow()
    except TypeError:
        raise FormatError(
            f"{place}: not a table, a mapping or a path, got {type(frame).__name__}",
            hint="collect a lazy frame first; a mapping is {qid: {docid: number}}",
        ) from None


def kind_of(data: bytes, name: str) -> str:
    """Say what a file is: json, parquet, the delimiter of a table with a header, or "" (TREC)."""
    if data.startswith(b"PAR1"):
        return "parquet"
    extension = PurePath(name.removesuffix(".gz")).suffix.lower()
    if extension == ".json" or data[:1024].lstrip().startswith((b"{", b"[")):
        return "json"
    # A CSV without a known header is refused for what its header lacks, not for its blanks.
    return delimiter_of(data) or ("," if extension == ".csv" else "")


def stem_of(name: str) -> str:
    """Drop the extension, where it is one of a kind of table."""
    path = PurePath(name)
    return path.stem if path.suffix.lower() in _EXTENSIONS else name


def from_parquet(data: bytes, place: str) -> pa.Table:
    """Read Parquet."""
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{place}: not a whole Parquet file: {error}") from None


def delimited(data: bytes, place: str, delimiter: str) -> tuple[pa.Table, np.ndarray]:
    """Read a table with a header; all columns as text, and the 1-based line of each row."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    names = _first_line(data).split() if delimiter == " " else _first_line(data).split(delimiter)
    regular = delimiter != " " and not any(odd in data for odd in (b'"', b"\n\n", b"\n\r", b"\n#"))
    if regular and not data.startswith((b"#", b"\n", b"\r")) and len(set(names)) == len(names):
        try:
            table = pacsv.read_csv(
                pa.BufferReader(data),
                read_options=pacsv.ReadOptions(column_names=names, skip_rows=1),
                parse_options=pacsv.ParseOptions(delimiter=delimiter, quote_char=False),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string())
                ),
            )
            return table, np.arange(2, table.num_rows + 2)
        except pa.ArrowInvalid:
            pass  # read it line by line, which also says which line is at fault
    return _rows(data, place, delimiter)


def _key(name: str) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")


def _first_line(data: bytes) -> str:
    data = data[: 1 << 16].removeprefix(b"\xef\xbb\xbf")
    lines = (line for line in data.splitlines() if line.strip() and not line.startswith(b"#"))
    return next(lines, b"").decode("utf-8", "replace")


def _ids(
    column: pa.Array, name: str, place: Place, faults: Faults, *, blank: bool
) -> pa.DictionaryArray:
    codes = None
    if pa.types.is_dictionary(column.type):
        codes = _codes(column, in_order=blank)
        column = column.dictionary_decode() if codes is None else column.dictionary
    if pa.types.is_floating(column.type):
        # What pandas makes of integers beside an empty cell.
        try:
            column = pc.cast(column, pa.int64())
        except pa.ArrowInvalid:
            hint = f"make {name} a column of texts or integers"
            raise FormatError(f"{place.name}: {name} holds fractions, not ids", hint=hint) from None
    texts = pc.cast(column, pa.string())
    texts = pc.fill_null(texts, "")
    if not blank:
        empty = np.flatnonzero(pc.equal(texts, "").to_numpy(zero_copy_only=False))
        if codes is not None and len(empty):
            empty = np.flatnonzero(np.isin(codes, empty))
        for row in empty:
            faults.add("empty", f"{place.at(int(row))}: {name} is empty", "fill or drop these rows")
    if codes is None:
        return texts.dictionary_encode()
    return pa.DictionaryArray.from_arrays(pa.array(codes), texts)


def _codes(column: pa.DictionaryArray, *, in_order: bool) -> np.ndarray | None:
    """The codes of a column that can stay as they are: each is used, and none is missing.

    Parameters
    ----------
    column
        Categories of a data frame may be ones that no row has.
    in_order
        Texts must come in the order in which rows name them, and none twice.
    """
    if column.null_count or column.dictionary.null_count:
        return None
    codes = column.indices.to_numpy()
    if not len(codes) or np.bincount(codes, minlength=len(column.dictionary)).min() == 0:
        return None
    if in_order:
        newest = np.maximum.accumulate(codes)
        if codes[0] or (np.diff(newest) > 1).any() or len(column.dictionary.unique()) <= newest[-1]:
            return None
    return codes.astype(np.int32)


def _numbers(column: pa.Array, name: str, place: Place, faults: Faults, *, blank: bool) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.utf8_trim_whitespace(column)
        column = pc.if_else(pc.equal(column, ""), None, column) if blank else column
        odd = pa.array([], pa.int64())
        try:
            values = pc.cast(column, pa.float64())
        except pa.ArrowInvalid:
            made = [None if text is None else number(text) for text in column.to_pylist()]
            values = pa.array(made, pa.float64())
            odd = pc.indices_nonzero(pc.and_(pc.is_null(values), pc.is_valid(column)))
        for row in odd.to_pylist():
            got = quote(column[row].as_py())
            faults.add("number", f"{place.at(row)}: {name} is not a number, got {got}")
        written = pc.is_valid(column)
    else:
        try:
            values = pc.cast(column, pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise FormatError(
                f"{place.name}: {name} is not a column of numbers, got {column.type}"
            ) from None
        # In a data frame NaN is how an empty cell is written.
        written = pc.invert(pc.is_null(values, nan_is_null=True))
        if not blank:
            written = pc.is_valid(values)
    flat = values.to_numpy(zero_copy_only=False)
    wrong = ~np.isfinite(flat)
    if blank:
        wrong &= written.to_numpy(zero_copy_only=False)
    if wrong.any() and not faults.shown:
        for row in np.flatnonzero(wrong):
            got = column[int(row)].as_py()
            hint = f"give every row a finite {name}"
            if got is None or got == "":
                faults.add("finite", f"{place.at(int(row))}: {name} is empty", hint)
            else:
                faults.add("finite", f"{place.at(int(row))}: {name} is not finite, got {got}", hint)
    return pa.array(flat, pa.float64(), from_pandas=False)


def _rows(data: bytes, place: str, delimiter: str) -> tuple[pa.Table, np.ndarray]:
    """Read a table whose rows are irregular: comments, empty lines, quotes, cells left out."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FormatError(f"{place}:{line}: expected UTF-8") from None
    names: list[str] = []
    made: list[list[str | None]] = []
    lines: list[int] = []
    faults = Faults()
    for line, row in _split(text, delimiter):
        if not any(cell.strip() for cell in row) or row[0].startswith("#"):
            continue
        if not names:
            names = [cell.strip() for cell in row]
            continue
        if len(row) > len(names):
            faults.add(
                "fields",
                f"{place}:{line}: expected {len(names)} fields ({' '.join(names)}), "
                f"got {len(row)}: {quote(delimiter.join(row))}",
            )
            continue
        # An editor that strips blanks at a line's end takes the empty cells there with them.
        made.append([*row, *[""] * (len(names) - len(row))])
        lines.append(line)
    faults.check()
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FormatError(f"{place}: two columns are named {quote(twice)}")
    table = pa.table(
        {name: pa.array([row[i] for row in made], pa.string()) for i, name in enumerate(names)}
    )
    return table, np.array(lines, np.int64)


def _split(text: str, delimiter: str) -> Iterable[tuple[int, list[str]]]:
    if delimiter == ",":
        reader = csv.reader(io.StringIO(text, newline=""), strict=False)
        for row in reader:
            yield reader.line_num, row
        return
    for line, content in enumerate(text.split("\n"), 1):
        content = content.rstrip("\r")
        yield line, content.split() if delimiter == " " else content.split(delimiter)
