"""Answers: assessors get pairs and hand in answers, each stored before it is acknowledged.

A grade is one transaction of `evenhand.studies.judgments.JudgmentStore`, whose row carries the
nonce of the form in its source (``serve:NONCE``): row and nonce are on the disk together or not at
all. Whatever kills the server, a form that is sent again is recognised, and what was never
acknowledged is simply asked again.

A form also carries which grade of the pair it was made for, by its revision. So of two tabs with
different answers the second sees the first, and overwrites nothing.

What is in memory follows from what is on the disk: rows that came in, from here or from ``evenhand
judge``, are read when there are any; rounds that were drawn meanwhile are looked for every
second.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from evenhand.errors import StudyError
from evenhand.sampling.labels import Arrival
from evenhand.serving.notes import KEPT, NOTE, SKIP, Remark, Remarks
from evenhand.serving.queues import Asked, Queues, Remaining
from evenhand.studies import round_files
from evenhand.studies.judgments import JudgmentStore

__all__ = ["NOTE_LENGTH", "Desk", "Form", "Outcome", "Shown"]

#: Characters that a note may have.
NOTE_LENGTH = 2000

_SOURCE = "serve:"
_NOTES_A_MINUTE = 60
_LOOK = 1.0  # seconds between looks for new rounds


class Shown(NamedTuple):
    """A pair on an assessor's desk.

    Attributes
    ----------
    pair
        Its number.
    query, document
        Ids.
    revision, grade
        Of the assessor's own judgment so far; -1 and None where there is none.
    skipped
        Whether he skipped it.
    note
        What he noted last.
    before
        The pair that he judged before it, or None.
    """

    pair: int
    query: str
    document: str
    revision: int
    grade: float | None
    skipped: bool
    note: str
    before: int | None


class Form(NamedTuple):
    """What a page sends: the pair, nonce and revision that it was made with, and the answer."""

    pair: int
    nonce: str
    revision: int
    act: str
    note: str | None


class Outcome(NamedTuple):
    """What became of a form.

    Attributes
    ----------
    kind
        ``saved``, ``skipped``, ``noted``; ``again`` for a form that was answered before with the
        same; ``other`` where the assessor has another answer already, and this one was not stored;
        ``many`` where notes come too fast.
    grade
        The grade that now counts.
    """

    kind: str
    grade: float | None = None


@dataclass(frozen=True, slots=True)
class _Answered:
    assessor: str
    pair: tuple[str, str]
    grade: float | None  # None: skipped


class Desk:
    """The desk of one study.

    Parameters
    ----------
    folder
        The study.
    assessors
        Whose queues there are.
    overlap
        How many assessors are to judge each pair.
    clock
        Seconds, growing.
    """

    def __init__(
        self,
        folder: Path,
        assessors: Sequence[str],
        *,
        overlap: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self._assessors, self._overlap = folder, tuple(assessors), overlap
        self._clock = clock
        self.store = JudgmentStore.open(folder / "judgments.sqlite")
        self.remarks = Remarks(folder / "serving.sqlite")
        # Tells what is new in microseconds, and keeps the file open: no call of the store is then
        # the last to close it, which would cost a checkpoint each time.
        self._held = sqlite3.connect(self.store.path, isolation_level=None, check_same_thread=False)
        self._lock, self._writing = threading.RLock(), threading.Lock()
        self._answered: dict[str, _Answered] = {}
        self._notes: dict[tuple[str, str, str], Remark] = {}
        self._pace = {name: deque[float](maxlen=_NOTES_A_MINUTE) for name in assessors}
        self._names: list[str] = []
        self._seq, self._looked = 0, -float("inf")
        #: Why rounds that were drawn meanwhile cannot be read; "" while they can.
        self.fault = ""
        self.queues = Queues((), assessors, overlap=overlap, clock=clock)
        try:
            for remark in self.remarks.read():
                self._heed(remark)
            self.sync()
        except StudyError:
            self.close()
            raise

    def close(self) -> None:
        """Close the files."""
        self._held.close()
        self.remarks.close()

    # What is on the disk

    def sync(self) -> None:
        """Take up rounds and judgments that came meanwhile; one look at the file if none did."""
        with self._lock:
            now = self._clock()
            if now - self._looked >= _LOOK:
                self._looked = now
                try:
                    self._look_for_rounds()
                except StudyError as error:
                    if not self._names:
                        raise
                    # A later round that cannot be read must not keep the others from being judged.
                    self.fault = error.message
            (newest,) = self._held.execute("SELECT max(seq) FROM judgment").fetchone()
            if (newest or 0) > self._seq:
                self._take(self.store.arrivals(self._seq))

    def _look_for_rounds(self) -> None:
        names = round_files.names(self.folder)
        if names == self._names:
            self.fault = ""
            return
        rounds = [*self.queues.rounds[: len(self._names)]]
        rounds += [
            Asked(name, *round_files.asked(self.folder, name)) for name in names[len(rounds) :]
        ]
        queues = Queues(rounds, self._assessors, overlap=self._overlap, clock=self._clock)
        # A new round may own judgments that came in before it was seen: all are sorted anew.
        arrivals = self.store.arrivals()
        queues.take(arrivals)
        queues.carry(self.queues)
        queues.version = self.queues.version + 1
        self.queues, self._names = queues, names
        for answered in self._answered.values():
            self._skip(answered)
        self._take(arrivals, queued=True)

    def _take(self, arrivals: Sequence[Arrival], *, queued: bool = False) -> None:
        if not queued:
            self.queues.take(arrivals)
        for row in arrivals:
            if row.source.startswith(_SOURCE):
                nonce = row.source.removeprefix(_SOURCE)
                pair = (row.query, row.document)
                self._answered[nonce] = _Answered(row.assessor, pair, row.grade)
        if arrivals:
            self._seq = max(self._seq, arrivals[-1].seq)

    def _heed(self, remark: Remark) -> None:
        pair = (remark.query, remark.document)
        if remark.act == NOTE:
            self._notes[(*pair, remark.assessor)] = remark
        else:
            grade = float(remark.text) if remark.act == KEPT else None
            self._answered[remark.nonce] = _Answered(remark.assessor, pair, grade)
            self._skip(self._answered[remark.nonce])

    def _skip(self, answered: _Answered) -> None:
        pair = self.queues.number.get(answered.pair)
        if answered.grade is None and pair is not None:
            self.queues.skip(answered.assessor, pair)

    # What assessors see

    def next(self, assessor: str) -> Shown | None:
        """The pair that an assessor shall judge now; None where nothing is left for him."""
        with self._lock:
            self.sync()
            pair = self.queues.next(assessor)
            return None if pair is None else self._shown(assessor, pair)

    def again(self, assessor: str, pair: int) -> Shown | None:
        """A pair that an assessor has seen; None for any other."""
        with self._lock:
            self.sync()
            known = self.queues.may_see(assessor, pair)
            return self._shown(assessor, pair) if known else None

    def _shown(self, assessor: str, pair: int) -> Shown:
        query, document = self.queues.pairs[pair]
        revision, grade = self.queues.said(assessor, pair) or (-1, None)
        note = self._notes.get((query, document, assessor))
        return Shown(
            pair,
            query,
            document,
            revision,
            grade,
            self.queues.is_skipped(assessor, pair),
            "" if note is None else note.text,
            self.queues.before(assessor, pair),
        )

    def progress(self, assessor: str) -> Remaining:
        """How far one and all are."""
        with self._lock:
            return self.queues.progress(assessor)

    def skipped(self, assessor: str) -> list[int]:
        """Pairs that an assessor skipped and that still lack a judgment."""
        with self._lock:
            return self.queues.skipped(assessor)

    def last(self, assessor: str) -> int | None:
        """The pair that an assessor judged last."""
        with self._lock:
            return self.queues.before(assessor)

    def rounds(self) -> list[tuple[str, int, int]]:
        """Name, pairs judged and pairs asked of each round; and what estimates hang on."""
        with self._lock:
            self.sync()
            return [
                (asked.name, len(asked.pairs) - lacking, len(asked.pairs))
                for asked, lacking in zip(self.queues.rounds, self.queues.lacking, strict=True)
            ]

    def basis(self) -> tuple[int, ...] | None:
        """Changes whenever an estimate might; None where no round is wholly judged."""
        with self._lock:
            self.sync()
            whole = [at for at, lacking in enumerate(self.queues.lacking) if not lacking]
            return (self.queues.version, *whole) if whole else None

    def notes(self, most: int = 50) -> list[Remark]:
        """The newest notes, newest first; of each pair and assessor the last."""
        with self._lock:
            said = [note for note in self._notes.values() if note.text]
        return sorted(said, key=lambda note: note.time, reverse=True)[:most]

    # What assessors say

    def answer(self, assessor: str, form: Form, grades: Mapping[str, float]) -> Outcome:
        """Store what a form says, unless it did already.

        Parameters
        ----------
        assessor
            Whose form it is.
        form
            Its act is ``skip``, ``note`` or one of the keys of `grades`.
        grades
            Grade by act.

        Raises
        ------
        StudyError
            If it cannot be stored; then it was not.
        """
        with self._writing:
            with self._lock:
                self.sync()
                query, document = self.queues.pairs[form.pair]
                said = self.queues.said(assessor, form.pair)
                before = self._answered.get(form.nonce)
            grade = grades.get(form.act)
            if before is not None and form.act != NOTE:
                same = before.grade == grade
                return Outcome("again" if same else "other", before.grade)
            noted = self._note(assessor, query, document, form)
            if form.act == NOTE or noted == "many":
                return Outcome(noted)
            if grade is None:
                if said is not None:
                    return Outcome("other", said[1])
                self._remark(form.nonce, SKIP, query, document, assessor)
                return Outcome("skipped")
            revision = -1 if said is None else said[0]
            if said is not None and grade == said[1]:
                self._remark(form.nonce, KEPT, query, document, assessor, repr(grade))
                return Outcome("saved", grade)
            if said is not None and revision != form.revision:
                return Outcome("other", said[1])
            self.store.add(
                [query],
                [document],
                [grade],
                [assessor],
                source=f"{_SOURCE}{form.nonce}",
                revise=revision >= 0,
            )
            self.sync()
            return Outcome("saved", grade)

    def _note(self, assessor: str, query: str, document: str, form: Form) -> str:
        if form.note is None:
            return "noted"
        text = form.note[:NOTE_LENGTH]
        with self._lock:
            known = self._notes.get((query, document, assessor))
            if text == ("" if known is None else known.text):
                return "noted"
            pace, now = self._pace[assessor], self._clock()
            if len(pace) == pace.maxlen and now - pace[0] < 60.0:
                return "many"
            pace.append(now)
        self._remark(form.nonce, NOTE, query, document, assessor, text)
        return "noted"

    def _remark(
        self, nonce: str, act: str, query: str, document: str, assessor: str, text: str = ""
    ) -> None:
        remark = self.remarks.add(nonce, act, query, document, assessor, text)
        if remark is not None:
            with self._lock:
                self._heed(remark)
