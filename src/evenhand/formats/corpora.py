"""What queries and documents say, found by id in files that need not fit into memory.

A file is read once, when the server starts, to learn where in it the wanted ids stand; texts are
read from there when a page shows them. What is kept in memory is an id and a place each. Files that
are compressed cannot be entered in the middle: their wanted rows are spooled to a temporary file.

Understood are, also as ``.gz``,

- JSON lines (``_id``, ``title``, ``text`` as BEIR has them, or the names of `NAMES`), and a folder
  of BEIR, whose ``corpus.jsonl`` or ``queries.jsonl`` is taken;
- tab-separated rows, with a header of such names or without: ``id text``, ``id title text``, and
  ``id url title text``;
- for queries, TREC's topics (``<top> <num> <title> <desc> <narr>``, or ``<topic number=...>``).

Bytes that are not UTF-8 are shown as such; rows that are not JSON are faults, with their line.
"""

from __future__ import annotations

import gzip
import html
import json
import re
import tempfile
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple, cast

from evenhand.errors import EvenhandError, FormatError

__all__ = ["NAMES", "Text", "Texts", "read_topics"]

#: Names of a field, by what it is; case does not matter.
NAMES = {
    "id": ("_id", "id", "docid", "doc_id", "docno", "pid", "qid", "query_id", "cord_uid", "number"),
    "title": ("title", "headline", "name"),
    "text": ("text", "contents", "content", "body", "passage", "segment", "abstract", "query"),
    "more": ("description", "desc", "narrative", "narr", "question"),
    "url": ("url", "link"),
}
_ROLE = {name: role for role, names in NAMES.items() for name in names}
_PLAIN: dict[int, tuple[str, ...]] = {1: ("id",), 2: ("id", "text"), 3: ("id", "title", "text")}
_WIDE = ("id", "url", "title", "text")

# An id that comes first, as in nearly all corpora: there the rest of the row need not be parsed.
_FIRST = re.compile(rb'\s*\{\s*"([A-Za-z_]+)"\s*:\s*"([^"\\]*)"')
_KEPT = 1 << 23  # bytes of rows that are kept for the next page


class Text(NamedTuple):
    """A query's or document's text; `more` is a query's description, narrative and the like."""

    title: str
    text: str
    more: str = ""
    url: str = ""


class Texts:
    """The texts of one file, by id.

    Parameters
    ----------
    path
        The file, or a folder of BEIR.
    wanted
        Gives the ids that may be asked for. It is asked again, and the file read again beside, when
        one is asked for that was not among them: systems may have joined the study.
    name
        Of the file within a folder: ``corpus`` or ``queries``.

    Raises
    ------
    FormatError
        If the file is missing or is neither JSON lines nor tab-separated.
    """

    def __init__(
        self, path: Path, wanted: Callable[[], Collection[str]], *, name: str = "corpus"
    ) -> None:
        self.path = _found(Path(path), name)
        self._ask, self._lock, self._near = wanted, threading.Lock(), OrderedDict[str, Text]()
        self._size, self._reading = 0, False
        self._parse: Callable[[bytes], dict[str, str]] = _of_json
        self._wanted = frozenset(wanted())
        self._at, self._rows = self._index(self._wanted)

    def __len__(self) -> int:
        return len(self._at)

    def get(self, id: str) -> Text | None:
        """The text of an id, None where the file does not have it."""
        with self._lock:
            at = self._at.get(id)
            if at is None:
                if id not in self._wanted and not self._reading:
                    self._reading = True
                    threading.Thread(target=self._again, args=(id,), daemon=True).start()
                return None
            if id in self._near:
                self._near.move_to_end(id)
                return self._near[id]
            self._rows.seek(at)
            fields = self._parse(self._rows.readline())
            found = Text(*(fields.get(role, "") for role in ("title", "text", "more", "url")))
            self._near[id] = found
            self._size += sum(map(len, found))
            while self._size > _KEPT and len(self._near) > 1:
                self._size -= sum(map(len, self._near.popitem(last=False)[1]))
            return found

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    def _again(self, id: str) -> None:
        try:
            wanted = frozenset(self._ask()) | {id}
            at, rows = self._index(wanted)
        except EvenhandError:  # the file was changed under way: what is known of it stays
            wanted, at, rows = self._wanted | {id}, self._at, self._rows
        with self._lock:
            if rows is not self._rows:
                self._rows.close()
            self._wanted, self._at, self._rows, self._reading = wanted, at, rows, False

    def _index(self, wanted: Collection[str]) -> tuple[dict[str, int], IO[bytes]]:
        places: dict[str, int] = {}
        try:
            with ExitStack() as stack, _opened(self.path) as file:
                plain = not isinstance(file, gzip.GzipFile)
                spool = None if plain else stack.enter_context(tempfile.TemporaryFile())
                for id, at, row, number in self._scan(file):
                    if id not in wanted or id in places:
                        continue
                    if self._parse is _of_json:
                        self._json_id(row, number, whole=True)
                    places[id] = at if spool is None else spool.tell()
                    if spool is not None:
                        spool.write(row if row.endswith(b"\n") else row + b"\n")
                stack.pop_all()  # the spool stays open
                return places, spool or open(self.path, "rb")
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"{self.path}: cannot be read: {error}") from error

    def _scan(self, file: IO[bytes]) -> Iterator[tuple[str, int, bytes, int]]:
        """Id, place, bytes and line of each row."""
        at, number, json_rows = 0, 0, None
        for row in file:
            here, at, number = at, at + len(row), number + 1
            if not row.strip():
                continue
            if json_rows is None:
                row_start = row.removeprefix(b"\xef\xbb\xbf")
                json_rows = row_start.lstrip().startswith(b"{")
                if not json_rows:
                    columns = _header(row_start)
                    self._parse = lambda row, columns=columns: _of_fields(row, columns)
                    if columns is not None:
                        continue
                here, row = here + len(row) - len(row_start), row_start
            find = self._json_id if json_rows else self._tab_id
            yield find(row, number), here, row, number

    def _json_id(self, row: bytes, number: int, *, whole: bool = False) -> str:
        """The id of a row; `whole` checks the rest of it, too."""
        first = None if whole else _FIRST.match(row)
        if first and _ROLE.get(first[1].decode().lower()) == "id":
            return first[2].decode("utf-8", "replace")
        try:
            id = _of_json(row)["id"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise FormatError(
                f"{self.path}:{number}: expected a JSON object with an id, got {_quoted(row)}",
                hint='rows like {"_id": "d1", "title": "...", "text": "..."}',
            ) from None
        return id

    def _tab_id(self, row: bytes, number: int) -> str:
        id = self._parse(row)["id"]
        if not id or b"\t" not in row:
            raise FormatError(
                f"{self.path}:{number}: expected id<TAB>text, got {_quoted(row)}",
                hint="JSON lines, or rows of id and text, or id, title and text, with tabs between",
            )
        return id


def _found(path: Path, name: str) -> Path:
    if path.is_dir():
        for file in (f"{name}.jsonl", f"{name}.jsonl.gz", f"{name}.tsv", f"{name}.tsv.gz"):
            if (path / file).is_file():
                return path / file
        raise FormatError(f"{path}: a folder without {name}.jsonl", hint="name the file itself")
    if not path.is_file():
        raise FormatError(f"{path}: no such file", hint="check the path")
    return path


def _opened(path: Path) -> IO[bytes]:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    # A GzipFile is no IO to the type checker, though it is one to its readers.
    return cast(IO[bytes], gzip.open(path, "rb")) if packed else open(path, "rb")


def _quoted(row: bytes) -> str:
    text = row.decode("utf-8", "replace").strip()
    return json.dumps(text if len(text) <= 60 else text[:60] + "...", ensure_ascii=False)


def _of_json(row: bytes) -> dict[str, str]:
    """The fields of a JSON object by role; the first of a role counts."""
    fields: dict[str, str] = {}
    content = json.loads(row.decode("utf-8", "replace"))
    for name, value in content.items():
        role = _ROLE.get(name.lower())
        if role is None or value is None:
            continue
        text = value if isinstance(value, str) else _said(value)
        # JSON can say half of a character, which no page could be written with.
        text = text if text.isascii() else text.encode("utf-8", "replace").decode()
        fields[role] = (
            f"{fields[role]}\n\n{text}"
            if role == "more" and role in fields
            else (fields.get(role) or text)
        )
    return fields


def _said(value: object) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n\n".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def _header(row: bytes) -> tuple[str, ...] | None:
    """Roles of the columns, if the first row names them; None if it is a row like the others."""
    names = [name.strip().lower() for name in row.decode("utf-8", "replace").split("\t")]
    roles = [_ROLE.get(name, "") for name in names]
    return tuple(roles) if "id" in roles and len(names) > 1 and roles[0] else None


def _of_fields(row: bytes, columns: tuple[str, ...] | None) -> dict[str, str]:
    cells = row.decode("utf-8", "replace").rstrip("\r\n").split("\t")
    if columns is None:
        columns = _PLAIN.get(len(cells), _WIDE)
    if len(cells) > len(columns):  # a tab within the text, which comes last
        cells[len(columns) - 1 :] = ["\t".join(cells[len(columns) - 1 :])]
    fields: dict[str, str] = {}
    for role, cell in zip(columns, cells, strict=False):
        if role and not fields.get(role):
            fields[role] = cell
    return {"id": "", **fields, **({"id": fields["id"].strip()} if "id" in fields else {})}


def read_topics(path: Path) -> dict[str, Text] | None:
    """The topics of a TREC file; None where it is no such file.

    ``<num>``, ``<title>``, ``<desc>`` and ``<narr>``, closed or not; or ``<topic number="1">`` with
    ``<query>``, ``<question>`` and ``<narrative>`` within.
    """
    if not path.is_file():
        return None
    with _opened(path) as file:
        head = file.read(1 << 16)
        if not re.search(rb"<top(ic)?\b", head, re.IGNORECASE):
            return None
        content = (head + file.read()).decode("utf-8", "replace")
    found: dict[str, Text] = {}
    for top in re.finditer(r"<top(?:ic)?\b([^>]*)>(.*?)(?=<top(?:ic)?\b|\Z)", content, re.S | re.I):
        attributes, body = top.groups()
        fields: dict[str, str] = {}
        for name, said in re.findall(r"<(\w+)[^>]*>([^<]*)", body):
            label = r"^\s*(Number|Topic|Description|Narrative)\s*:"
            fields.setdefault(name.lower(), html.unescape(re.sub(label, "", said)).strip())
        number = re.search(r'number\s*=\s*"([^"]*)"', attributes)
        id = number[1] if number else fields.get("num", "")
        more = [fields[name] for name in NAMES["more"] if fields.get(name)]
        if id:
            title = fields.get("title") or fields.get("query", "")
            found.setdefault(id, Text("", " ".join(title.split()), "\n\n".join(more)))
    return found
