"""What assessors did besides judging, kept for good: pairs that they skipped, and their notes.

One SQLite file beside the judgments, append-only. Each row carries the nonce of the form that it
came from, so that a form that is sent again says nothing twice. `kept` is the answer of an assessor
who looked at a grade of his own again and left it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from evenhand.errors import StudyError

__all__ = ["KEPT", "NOTE", "SKIP", "Remark", "Remarks"]

SKIP, NOTE, KEPT = "skip", "note", "kept"

_APPLICATION = 0x65766E72  # "evnr", in the header of the file
_PATIENCE = 30.0  # seconds that a write waits for another process

# As for judgments: what is answered as saved is on the disk.
_SETTINGS = """PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA fullfsync = ON;
    PRAGMA checkpoint_fullfsync = ON"""

_SCHEMA = f"""BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS remark (
        seq INTEGER PRIMARY KEY,
        nonce TEXT NOT NULL,
        act TEXT NOT NULL CHECK (act IN ('{SKIP}', '{NOTE}', '{KEPT}')),
        query TEXT NOT NULL,
        document TEXT NOT NULL,
        assessor TEXT NOT NULL,
        text TEXT NOT NULL,
        time TEXT NOT NULL,
        UNIQUE (nonce, act, text));
    CREATE TRIGGER IF NOT EXISTS remark_update BEFORE UPDATE ON remark
        BEGIN SELECT RAISE(ABORT, 'remarks are never changed'); END;
    CREATE TRIGGER IF NOT EXISTS remark_delete BEFORE DELETE ON remark
        BEGIN SELECT RAISE(ABORT, 'remarks are never removed'); END;
    PRAGMA application_id = {_APPLICATION};
    COMMIT"""


class Remark(NamedTuple):
    """One row; `text` is empty but for notes, `time` is UTC, ISO 8601."""

    nonce: str
    act: str
    query: str
    document: str
    assessor: str
    text: str
    time: str


class Remarks:
    """The file of remarks, made where there is none; threads may share it.

    Raises
    ------
    StudyError
        If the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        with self._faults():
            self._connection = sqlite3.connect(
                path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
        try:
            self._set_up()
        except StudyError:
            self.close()
            raise

    def _set_up(self) -> None:
        with self._faults():
            (application,) = self._connection.execute("PRAGMA application_id").fetchone()
            (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if application != _APPLICATION and (application or tables):
                raise StudyError(
                    f"{self._path}: this is no file of remarks", hint="move it elsewhere"
                )
            self._connection.executescript(_SETTINGS)
            self._connection.executescript(_SCHEMA)

    def add(
        self, nonce: str, act: str, query: str, document: str, assessor: str, text: str = ""
    ) -> Remark | None:
        """Store a remark, which is on the disk when this returns; None if it was there before."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = Remark(nonce, act, query, document, assessor, text, now)
        with self._lock, self._faults():
            added = self._connection.execute(
                "INSERT OR IGNORE INTO remark (nonce, act, query, document, assessor, text, time)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            ).rowcount
        return row if added else None

    def read(self) -> list[Remark]:
        """All remarks, in their order of arrival."""
        with self._lock, self._faults():
            rows = self._connection.execute(
                "SELECT nonce, act, query, document, assessor, text, time FROM remark ORDER BY seq"
            )
            return [Remark(*row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StudyError(
                f"{self._path}: {error}; nothing was stored",
                hint="check the disk and its free space, then do the same again",
            ) from error
