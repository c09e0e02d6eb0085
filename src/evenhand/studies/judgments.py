"""The store of a study's judgments: append-only and durable, in SQLite.

The judgments of a study live in one SQLite file, a `JudgmentStore`. What it guarantees:

- *Durable.* When `JudgmentStore.add` returns, its rows are on the disk and stay there, whatever
  happens next: a killed process, a lost power line, a second writer.
- *All or nothing.* One call is one transaction. A call that raises has stored none of its rows.
- *Safe to repeat.* The same judgment (query, document, assessor, grade) is stored once, however
  often it is given.
- *Append-only.* No row is ever changed or removed; the file itself refuses it. An assessor who
  gives another grade to the same pair is refused, unless the call says ``revise``: then a further
  row supersedes the earlier one, which remains in the history.

Several assessors may judge one pair; each has a grade of their own. Queries and documents are
named by their text ids. The file is opened for each call and closed after it, so threads and
processes may share a store. During a call, or after a killed one, the newest rows may be in a
second file beside it (``-wal``): copy both or none.

Call `JudgmentStore.create` once and `JudgmentStore.open` later, `~JudgmentStore.add` to take
judgments in, `~JudgmentStore.read` for the grades that count and `~JudgmentStore.history` for
everything.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     store = JudgmentStore.create(Path(folder) / "judgments.sqlite")
...     store.add(["401", "401"], ["FT911-3", "FT911-4"], [2, 0], "ann")
...     store.add(["401"], ["FT911-4"], [1], "ann", revise=True)
...     store.read().grade
Intake(added=2, known=0, revised=0)
Intake(added=0, known=0, revised=1)
array([2., 1.])
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import StudyError
from evenhand.sampling.labels import Arrival, History, Intake, Judgments

__all__ = ["JudgmentStore"]

_APPLICATION = 0x65766E68  # "evnh", in the header of every store
_VERSION = 1
_PATIENCE = 30.0  # seconds that a call waits for another writer

# On macOS a plain fsync stops at the drive's cache; elsewhere the second and third change nothing.
_SETTINGS = """PRAGMA synchronous = FULL;
    PRAGMA fullfsync = ON;
    PRAGMA checkpoint_fullfsync = ON;
    PRAGMA temp_store = MEMORY"""

# Revision 0 is an assessor's first grade for a pair; the largest one is the grade that counts. The
# unique index makes "stored once" a property of the file. Without the insert trigger, INSERT OR
# REPLACE would remove a row and the delete trigger would not fire.
_SCHEMA = (
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
    """CREATE TABLE judgment (
        seq INTEGER PRIMARY KEY,
        query TEXT NOT NULL CHECK (typeof(query) = 'text'),
        document TEXT NOT NULL CHECK (typeof(document) = 'text'),
        assessor TEXT NOT NULL CHECK (typeof(assessor) = 'text'),
        revision INTEGER NOT NULL CHECK (typeof(revision) = 'integer'),
        grade REAL NOT NULL CHECK (typeof(grade) = 'real' AND abs(grade) < 9e999),
        time TEXT NOT NULL,
        source TEXT NOT NULL,
        UNIQUE (query, document, assessor, revision))""",
    """CREATE TRIGGER judgment_update BEFORE UPDATE ON judgment
        BEGIN SELECT RAISE(ABORT, 'judgments are never changed'); END""",
    """CREATE TRIGGER judgment_delete BEFORE DELETE ON judgment
        BEGIN SELECT RAISE(ABORT, 'judgments are never removed'); END""",
    """CREATE TRIGGER judgment_replace BEFORE INSERT ON judgment
        WHEN EXISTS (SELECT 1 FROM judgment WHERE seq = NEW.seq)
          OR EXISTS (SELECT 1 FROM judgment WHERE query = NEW.query AND document = NEW.document
                     AND assessor = NEW.assessor AND revision = NEW.revision)
        BEGIN SELECT RAISE(ABORT, 'judgments are never replaced'); END""",
    """CREATE VIEW current_judgment AS SELECT * FROM judgment AS j WHERE NOT EXISTS (
        SELECT 1 FROM judgment AS k WHERE k.query = j.query AND k.document = j.document
        AND k.assessor = j.assessor AND k.revision > j.revision)""",
)

_INCOMING = """CREATE TEMP TABLE incoming (
    place INTEGER PRIMARY KEY, query TEXT, document TEXT, assessor TEXT, grade REAL)"""

# Each incoming row beside the stored grade that it would meet, if any.
_MATCHED = """CREATE TEMP TABLE matched AS
    SELECT i.*, j.grade AS stored, j.revision AS revision
    FROM incoming AS i LEFT JOIN judgment AS j ON j.seq = (
        SELECT k.seq FROM judgment AS k WHERE k.query = i.query AND k.document = i.document
        AND k.assessor = i.assessor ORDER BY k.revision DESC LIMIT 1)"""

_APPEND = """INSERT INTO judgment (query, document, assessor, revision, grade, time, source)
    SELECT query, document, assessor, coalesce(revision + 1, 0), grade, ?, ? FROM matched
    WHERE stored IS NULL OR stored <> grade ORDER BY place"""

_FAILURES = {  # by SQLite's primary result code: what happened, and the cure
    sqlite3.SQLITE_FULL: ("the disk is full", "free some space, then run the same again"),
    sqlite3.SQLITE_IOERR: (
        "the disk could not be read or written (full, over a quota or size limit, or failing)",
        "check the disk and its free space, then run the same again",
    ),
    sqlite3.SQLITE_READONLY: (
        "the file or its folder is read-only",
        "make both writable, or work on a copy of the study",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "the file cannot be opened",
        "check that its folder exists and that you may read and write there",
    ),
    sqlite3.SQLITE_BUSY: (
        "another program kept the file locked for too long",
        "wait until the other program is done, then run the same again",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "the file is damaged",
        'keep it, and restore a copy; `sqlite3 FILE ".recover"` saves what is readable',
    ),
    sqlite3.SQLITE_NOTADB: (
        "this is not a judgment store, or it is damaged",
        "check the path; if it was a store, restore a copy",
    ),
    sqlite3.SQLITE_ERROR: ("the file cannot be used", "look at it with `sqlite3`"),
}
_FAILURES[sqlite3.SQLITE_PERM] = _FAILURES[sqlite3.SQLITE_CANTOPEN]
_FAILURES[sqlite3.SQLITE_PROTOCOL] = _FAILURES[sqlite3.SQLITE_BUSY]


@dataclass(frozen=True, slots=True)
class JudgmentStore:
    """The durable, append-only store of judgments.

    Use `create` or `open`, which check the file at `path`.
    """

    path: Path

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> JudgmentStore:
        """Make an empty store; a creation that was killed half-way is completed.

        Raises
        ------
        StudyError
            If the file exists already or cannot be made.
        """
        store = cls(Path(path))
        with _connect(store.path, lost="no store was made", create=True) as connection:
            _check(connection, store.path, blank=True)  # before a foreign file is switched to WAL
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            _check(connection, store.path, blank=True)
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("COMMIT")
        return store

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> JudgmentStore:
        """Find an existing store.

        Raises
        ------
        StudyError
            If the file is missing, is not a store, or was written by a newer version.
        """
        store = cls(Path(path))
        with _connect(store.path):
            return store

    def add(
        self,
        query: Iterable[str],
        document: Iterable[str],
        grade: ArrayLike,
        assessor: Iterable[str],
        *,
        source: str = "",
        revise: bool = False,
    ) -> Intake:
        """Store judgments: all of them, or none and an error.

        Parameters
        ----------
        query, document
            Text ids, one a judgment.
        grade
            Finite numbers, one a judgment.
        assessor
            Who judged: one name a judgment, or one name for all. It may be empty.
        source
            Where these judgments come from, for the history.
        revise
            Let another grade by the same assessor supersede the stored one.

        Returns
        -------
        Intake
            How many were added, known and revised.

        Raises
        ------
        StudyError
            If an assessor contradicts a stored grade without `revise`, or another row of this call;
            if an id or a grade is unusable; if the file cannot be written.
        """
        lost = f"nothing of {source or 'this call'} was stored"
        rows, n_given = _merge(query, document, grade, assessor, lost=lost)
        with _connect(self.path, lost=lost) as connection:
            connection.execute("BEGIN")
            connection.execute(_INCOMING)
            connection.executemany(
                "INSERT INTO incoming (query, document, assessor, grade) VALUES (?, ?, ?, ?)",
                ((*key, value) for key, value in rows.items()),
            )
            connection.execute("COMMIT")  # of temporary rows only: nobody has waited so far
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_MATCHED)
            added, revised = connection.execute(
                "SELECT count(*) FILTER (WHERE stored IS NULL),"
                " count(*) FILTER (WHERE stored <> grade) FROM matched"
            ).fetchone()
            if revised and not revise:
                clashes = connection.execute(
                    "SELECT query, document, assessor, stored, grade FROM matched"
                    " WHERE stored <> grade ORDER BY place LIMIT 3"
                ).fetchall()
                raise _refusal(
                    f"an assessor gives another grade than the stored one; {lost}",
                    clashes,
                    total=revised,
                    hint="`--revise` keeps the old grade in the history and counts the new one",
                )
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            connection.execute(_APPEND, (now, source))
            connection.execute("COMMIT")
        return Intake(added=added, known=n_given - added - revised, revised=revised)

    def read(self) -> Judgments:
        """Give the judgments that count, in their order of arrival."""
        with _connect(self.path) as connection:
            rows = connection.execute(
                "SELECT c.query, c.document, c.assessor, c.grade, f.seq FROM current_judgment AS c"
                " JOIN judgment AS f ON f.query = c.query AND f.document = c.document"
                " AND f.assessor = c.assessor AND f.revision = 0 ORDER BY c.seq"
            ).fetchall()
        return Judgments(*_columns(rows, "OOOdq"))

    def count(self) -> int:
        """Count the distinct (query, document) pairs that are judged."""
        with _connect(self.path) as connection:
            return connection.execute(
                "SELECT count(*) FROM (SELECT DISTINCT query, document FROM judgment)"
            ).fetchone()[0]

    def arrivals(self, after: int = 0) -> list[Arrival]:
        """Give the rows stored since the one at position `after`, in their order of arrival.

        It looks at no other row, so that it can be asked after every judgment.
        """
        with _connect(self.path) as connection:
            rows = connection.execute(
                "SELECT seq, query, document, assessor, revision, grade, source FROM judgment"
                " WHERE seq > ? ORDER BY seq",
                (after,),
            )
            return [Arrival(*row) for row in rows]

    def history(self) -> History:
        """Give every stored row, superseded ones too, in their order of arrival."""
        with _connect(self.path) as connection:
            rows = connection.execute(
                "SELECT seq, query, document, assessor, grade, time, source,"
                " seq IN (SELECT seq FROM current_judgment) FROM judgment ORDER BY seq"
            ).fetchall()
        return History(*_columns(rows, "qOOOdOO?"))


@contextmanager
def _connect(path: Path, *, lost: str = "", create: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the file for one act, check that it is a store, and close it; `lost` marks a writer."""
    if not create and not os.path.isfile(path):
        raise StudyError(f"{path}: there is no judgment store here", hint="check the path")
    mode = "rwc" if create else "rw"
    real = path.resolve()  # the -wal file lies beside what a link leads to
    wal = real.with_name(real.name + "-wal")
    if not lost and not os.access(real.parent, os.W_OK) and not wal.exists():
        # An archived study on a read-only disk: nobody writes, and no -shm file can be made.
        mode = "ro&immutable=1"
    try:
        uri = f"{real.as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
        with closing(connection):
            connection.executescript(_SETTINGS)
            if not create:
                _check(connection, path)
            yield connection  # closing an unfinished transaction rolls it back
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        what, hint = _FAILURES.get(code, _FAILURES[sqlite3.SQLITE_ERROR])
        lost = f"; {lost}" if lost else ""
        raise StudyError(f"{path}: {what} ({error}){lost}", hint=hint) from error


def _check(connection: sqlite3.Connection, path: Path, *, blank: bool = False) -> None:
    """Refuse what is not a store of this version, or what is not `blank` where that is asked."""
    application, version, n_tables = connection.execute(
        "SELECT a.application_id, v.user_version, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_application_id AS a, pragma_user_version AS v"
    ).fetchone()
    if blank:
        if application or n_tables:
            raise StudyError(f"{path}: the file exists already", hint="open it, or take another")
    elif application != _APPLICATION or version < 1:
        raise StudyError(f"{path}: this is not a judgment store", hint="check the path")
    elif version > _VERSION:
        raise StudyError(
            f"{path}: written by a newer evenhand (store version {version}, known: {_VERSION})",
            hint="upgrade evenhand",
        )


def _merge(
    query: Iterable[str],
    document: Iterable[str],
    grade: ArrayLike,
    assessor: Iterable[str],
    *,
    lost: str,
) -> tuple[dict[tuple[str, str, str], float], int]:
    """Check the rows and merge identical ones; give them in order, and the count before merging."""
    queries, documents = _texts("query", query, lost), _texts("document", document, lost)
    if isinstance(assessor, str):
        assessor = [assessor] * len(queries)
    assessors = _texts("assessor", assessor, lost)
    try:
        grades = np.asarray(grade, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StudyError(f"grades must be numbers ({error}); {lost}") from error
    lengths = (len(queries), len(documents), grades.size, len(assessors))
    if grades.ndim != 1 or len(set(lengths)) > 1:
        raise StudyError(
            "query, document, grade and assessor must be columns of one length, got"
            f" {', '.join(map(str, lengths))} rows; {lost}"
        )
    keys = list(zip(queries, documents, assessors, strict=True))
    bad = np.flatnonzero(~np.isfinite(grades))
    if bad.size:
        raise _refusal(
            f"a grade must be a finite number; {lost}",
            [(*keys[i], grades[i]) for i in bad[:3]],
            total=bad.size,
            hint="give a number, or leave the row out",
        )
    rows: dict[tuple[str, str, str], float] = {}
    clashes: dict[tuple[str, str, str], float] = {}
    for key, value in zip(keys, grades.tolist(), strict=True):
        if rows.setdefault(key, value) != value:
            clashes.setdefault(key, value)
    if clashes:
        raise _refusal(
            f"an assessor gives two grades to one pair; {lost}",
            [(*key, rows[key], clashes[key]) for key in list(clashes)[:3]],
            total=len(clashes),
            hint="keep one row for each, or name the assessors if they are two",
        )
    return rows, len(keys)


def _texts(name: str, values: Iterable[str], lost: str) -> list[str]:
    """List text ids as plain strings that SQLite can hold."""
    if isinstance(values, str):
        raise StudyError(f"{name}: must be a column of ids, got {values!r}; {lost}")
    texts = list(values)
    for place, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            fault = f"must be text, got {text!r}"
        elif not text and name != "assessor":
            fault = "must not be empty"
        elif not text.isascii() and text.encode("utf-8", "replace").decode() != text:
            fault = f"must be valid Unicode, got {text!r}"
        else:
            continue
        raise StudyError(f"{name}, row {place:,}: {fault}; {lost}")
    return list(map(str, texts))  # NumPy's strings too


def _refusal(message: str, rows: Sequence[tuple[Any, ...]], *, total: int, hint: str) -> StudyError:
    """Make one error of all faults of a kind: the first three rows, and the count."""
    lines = [message]
    for query, document, assessor, *grades in rows:
        by = f" by {assessor}" if assessor else ""
        said = ", then ".join(f"{float(grade)!r}".removesuffix(".0") for grade in grades)
        lines.append(f"{query} {document}{by}: {said}")
    if total > len(rows):
        lines.append(f"... {total:,} in all")
    return StudyError("\n".join(lines), hint=hint)


def _columns(rows: Sequence[tuple[Any, ...]], dtypes: str) -> list[NDArray[Any]]:
    """Turn rows into read-only arrays, one a column."""
    columns = [np.empty(len(rows), dtype=dtype) for dtype in dtypes]
    for place, column in enumerate(columns):
        column[:] = [row[place] for row in rows]
        column.flags.writeable = False
    return columns
