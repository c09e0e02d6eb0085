"""Lines of fields divided by blanks: bytes to Arrow columns, and what is wrong with them.

Three steps, each taken only where the one before it could not read the bytes: pyarrow on the bytes
as they are; pyarrow after comments and superfluous blanks are gone; Python, line by line, which
either reads what pyarrow was too strict for (a score of ``+1.5``) or names every fault with its
line.
"""

# pyarrow makes its compute functions when it is imported.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from evenhand.errors import FormatError

__all__ = [
    "Faults",
    "Layout",
    "Place",
    "line_numbers",
    "load",
    "number",
    "parse",
    "plain",
    "quote",
    "skipped",
]

ID = pa.dictionary(pa.int32(), pa.string())
_BLOCK = 1 << 26  # bytes that pyarrow parses at a time: one block for nearly all run files
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of one line, in order.

    Parameters
    ----------
    fields
        Their names, as messages print them.
    ids
        Those that are read as text. A docid hardly repeats within a file, so that a dictionary of
        its own would only be hashed once more: it stays text, unless a file needs several blocks.
    numbers
        Those that are read as finite numbers.
    hints
        The cure, by how many fields a faulty line has; the last is for that many and more.
    """

    fields: tuple[str, ...]
    ids: tuple[str, ...]
    numbers: tuple[str, ...]
    hints: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows came from, for messages.

    Parameters
    ----------
    name
        A path as the user gave it, or what a table in memory is called.
    lines
        Gives the 1-based line of each row; None where the source has rows and no lines.
    counted
        Whether its rows have an order that the user sees.
    """

    name: str
    lines: Callable[[], np.ndarray] | None = None
    counted: bool = True

    def at(self, row: int) -> str:
        """Say where row `row` (counted from 0) is."""
        if self.lines is None:
            return f"{self.name}: row {row + 1}"
        return f"{self.name}:{self.lines()[row]}"

    def numbers(self, rows: int) -> np.ndarray:
        """Give the 1-based line or row of all rows, 0 where they have none; int64 [rows]."""
        if self.lines is not None:
            return self.lines()
        return np.arange(1, rows + 1) if self.counted else np.zeros(rows, np.int64)


@dataclass(slots=True)
class Faults:
    """Faults by kind, in order of appearance: the first three of each are kept, all are counted."""

    shown: dict[str, list[str]] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, fault: str, hint: str = "") -> None:
        """Note one fault of a kind; the kind's first hint is kept."""
        shown = self.shown.setdefault(kind, [])
        if len(shown) < 3:
            shown.append(fault)
        self.count[kind] = self.count.get(kind, 0) + 1
        self.hints.setdefault(kind, hint)

    def check(self) -> None:
        """Raise the kind that appeared first, if there is any."""
        for kind, shown in self.shown.items():
            raise FormatError.collect(shown, hint=self.hints[kind], total=self.count[kind])


def load(path: Path, name: str) -> bytes:
    """Read a whole file, gunzipped where its first bytes say that it is gzip."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{name}: cannot be read: {error.strerror or error}") from None
    if data[:2] == b"\x1f\x8b":
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            hint = "copy or download the file again"
            raise FormatError(f"{name}: not a whole gzip file: {error}", hint=hint) from None
    return data


def plain(data: bytes) -> bytes:
    """Make one kind of blank and one kind of line end; a byte order mark goes."""
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    if b"\t" in data:
        data = data.replace(b"\t", b" ")
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data


def parse(data: bytes, layout: Layout, name: str) -> pa.Table:
    """Read lines of blank-divided fields; `data` as `plain` gives it.

    Returns
    -------
    pa.Table
        The layout's ids (dictionary-encoded, or text) and numbers (float64, finite), one chunk a
        column, one row a line that is neither empty nor a comment.

    Raises
    ------
    FormatError
        A wrong number of fields, a field that is no finite number, bytes that are not UTF-8, no
        rows.
    """
    table = _columns(data, layout)
    if table is None:
        table = _columns(_squeeze(data), layout)
    if table is None:
        table = _scan(data, layout, name)
    return table


def line_numbers(data: bytes, rows: int) -> np.ndarray:
    """Give the 1-based lines of `rows` rows, empty lines and comments left out; int64 [rows]."""
    codes = np.frombuffer(data, np.uint8)
    lines = int(np.count_nonzero(codes == ord("\n"))) + (not data.endswith(b"\n"))
    if lines == rows:
        return np.arange(1, rows + 1)
    kept = (i for i, line in enumerate(data.split(b"\n"), 1) if not skipped(line))
    return np.fromiter(kept, np.int64)


def number(text: str) -> float | None:
    """Read a decimal number; None where `text` is none (``nan`` and ``inf`` are read as floats)."""
    if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return float(text)
    return None


def quote(text: str | bytes) -> str:
    """Show what was got, at most 80 characters of it."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    text = text.strip()
    return f'"{text}"' if len(text) <= 80 else f'"{text[:77]}..."'


def _columns(data: bytes, layout: Layout) -> pa.Table | None:
    """Let pyarrow read regular lines; None where anything about them is irregular."""
    codes = np.frombuffer(data, np.uint8)
    blank = codes == ord(" ")
    # Two blanks in a row and a field too few make a line of the right length, so neither may pass.
    if (blank[1:] & blank[:-1]).any():
        return None
    types = dict.fromkeys(layout.ids, ID) | dict.fromkeys(layout.numbers, pa.float64())
    if len(data) < _BLOCK:
        types["docid"] = pa.string()
    try:
        table = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(
                column_names=list(layout.fields),
                use_threads=False,
                block_size=min(len(data) + 1, _BLOCK),
            ),
            parse_options=pacsv.ParseOptions(delimiter=" ", quote_char=False, escape_char=False),
            convert_options=pacsv.ConvertOptions(
                column_types=types,
                include_columns=[*layout.ids, *layout.numbers],
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    if not table.num_rows:
        return None
    if table.column(0).num_chunks > 1:
        table = table.unify_dictionaries().combine_chunks()
    # Left over: a blank at the line's start or end, and comments of as many words as a line has.
    first, last = layout.fields[0], layout.fields[-1]
    if _any_starts(table, first, "#") or any(_any_empty(table, name) for name in (first, last)):
        return None
    if any(not np.isfinite(table[name].chunk(0).to_numpy()).all() for name in layout.numbers):
        return None
    return table


def _any_starts(table: pa.Table, name: str, text: str) -> bool:
    return pc.any(pc.starts_with(table[name].chunk(0).dictionary, text)).as_py()


def _any_empty(table: pa.Table, name: str) -> bool:
    if name not in table.column_names or not pa.types.is_dictionary(table[name].type):
        return False
    return pc.min(pc.binary_length(table[name].chunk(0).dictionary)).as_py() == 0


def _squeeze(data: bytes) -> bytes:
    """Drop comments, and all blanks but one between two fields."""
    data = b"\n" + data
    if b"\n#" in data:
        data = re.sub(rb"\n#[^\n]*", b"", data)
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    return data.replace(b"\n ", b"\n").replace(b" \n", b"\n").strip(b" \n")


def skipped(line: bytes) -> bool:
    """Whether a line is empty or a comment."""
    return line.startswith(b"#") or not line.strip()


def _scan(data: bytes, layout: Layout, name: str) -> pa.Table:
    """Read line by line, and raise all faults of the kind that comes first."""
    faults = Faults()
    wanted = len(layout.fields)
    texts: dict[str, list[str]] = {key: [] for key in layout.ids}
    values: dict[str, list[float]] = {key: [] for key in layout.numbers}
    for i, line in enumerate(data.split(b"\n"), 1):
        if skipped(line):
            continue
        at = f"{name}:{i}"
        parts = line.split()
        if len(parts) != wanted:
            faults.add(
                "fields",
                f"{at}: expected {wanted} fields ({' '.join(layout.fields)}), "
                f"got {len(parts)}: {quote(line)}",
                layout.hints.get(min(len(parts), max(layout.hints)), ""),
            )
            continue
        try:
            row = dict(zip(layout.fields, map(bytes.decode, parts), strict=True))
        except UnicodeDecodeError:
            faults.add(
                "encoding", f"{at}: expected UTF-8, got {quote(line)}", "convert the file to UTF-8"
            )
            continue
        for key in layout.ids:
            texts[key].append(row[key])
        for key in layout.numbers:
            value = number(row[key])
            if value is None:
                faults.add("number", f"{at}: {key} is not a number, got {quote(row[key])}")
            elif not np.isfinite(value):
                faults.add(
                    "finite",
                    f"{at}: {key} is not finite, got {quote(row[key])}",
                    f"give every row a finite {key}",
                )
            else:
                values[key].append(value)
    faults.check()
    if not texts[layout.ids[0]]:
        raise FormatError(f"{name}: no rows", hint="the file is empty or holds only comments")
    columns = {key: pa.array(text, pa.string()).dictionary_encode() for key, text in texts.items()}
    return pa.table(columns | {key: pa.array(value, pa.float64()) for key, value in values.items()})
