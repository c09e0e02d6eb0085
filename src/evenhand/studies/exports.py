"""The judgments of a study as files that TREC's programs read.

===========  ==================================  =================================================
kind         a line                              what reads it
===========  ==================================  =================================================
``qrels``    ``qid 0 docid grade``               everything; of every pair that was judged
``prels``    ``qid docid grade 1 probability``   statAP_MQ_eval, `evenhand.formats.read_prels`
``sampled``  ``qid 0 docid stratum grade``       sample_eval, `evenhand.formats.read_prels`; of
every
                                                 pair of the pool, -1 where it was not drawn
===========  ==================================  =================================================

The last two need the probability with which each pair was drawn (`evenhand.sampling.inclusion`). It
is that of the design, so it must not depend on what was judged: rounds that were designed with
judgments in view are refused. A stratum is the pairs of a query that were as likely drawn; numbers
begin with the likeliest.

A pair that several assessors judged has the mean of their grades. Grades of the last are whole and
not negative: means are rounded, halves up, and what is below 0 is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from evenhand.errors import EvenhandError, MissingJudgments, StudyError, SupportError, listed
from evenhand.measures.validation import number
from evenhand.sampling.labels import Judgments, Labels
from evenhand.studies.snapshots import Snapshot

__all__ = ["KINDS", "Export", "export"]

KINDS = ("qrels", "prels", "sampled")


@dataclass(frozen=True)
class Export:
    """A file of judgments.

    Attributes
    ----------
    kind
        One of `KINDS`.
    text
        Its content.
    notes
        What its reader should know, a sentence each.
    """

    kind: str
    text: str
    notes: tuple[str, ...] = ()

    def write(self, path: str | Path) -> None:
        """Write it.

        Raises
        ------
        StudyError
            If the file cannot be written.
        """
        try:
            Path(path).write_text(self.text, encoding="utf-8")
        except OSError as error:
            raise StudyError(f"cannot write {path}: {error.strerror or error}") from error


def export(at: Snapshot, said: Judgments, kind: str) -> Export:
    """Make a file of a study's judgments.

    Parameters
    ----------
    at
        The study.
    said
        Its judgments.
    kind
        One of `KINDS`.

    Raises
    ------
    StudyError
        If nothing is judged, or a round's slices cannot be laid out again since systems were added.
    SupportError
        For ``prels`` and ``sampled``: if a round was designed with judgments in view.
    MissingJudgments
        For these: if a drawn pair is not judged yet.
    EvenhandError
        If the kind is unknown, or an id holds a blank.
    """
    if kind not in KINDS:
        raise EvenhandError(f"unknown kind {kind!r}", hint=f"known are {', '.join(KINDS)}")
    pool = at.goal.target.pool
    cells = pool.find(said.query.tolist(), said.document.tolist())
    judged = Labels(cells[cells >= 0], said.grade[cells >= 0]).averaged()
    if not len(judged):
        raise StudyError(
            f"nothing is judged in {at.folder} yet", hint=f"evenhand judge {at.folder} FILE"
        )
    notes = []
    if len(judged) < np.sum(cells >= 0):
        notes.append(
            "pairs with several judgments have the mean of their grades, "
            + ("rounded" if kind == "sampled" else "which programs that read whole numbers cut")
        )
    if kind == "qrels":
        text = _lines(at, judged.cells, "{} 0 {} {}\n", _shown(judged.utility))
        return Export(kind, text, tuple(notes))
    probability = _probability(at)
    if kind == "prels":
        columns = _shown(judged.utility), _shown(probability[judged.cells])
        text = _lines(at, judged.cells, "{} {} {} 1 {}\n", *columns)
        return Export(kind, text, tuple(notes))
    grade = np.full(len(pool), -1.0)
    grade[judged.cells] = np.floor(np.maximum(judged.utility, 0.0) + 0.5)
    if below := int(np.sum(judged.utility < 0)):
        notes.append(
            f"{below:,} grades below 0 are written as 0: -1 says that a pair was not drawn"
        )
    stratum, silent, all_strata = _strata(pool.query, probability, grade >= 0)
    if silent:
        notes.append(
            f"{silent:,} of {all_strata:,} strata hold no drawn pair, and sample_eval guesses what "
            "is in them: draw with --design uniform --floor 0 for few strata, or export prels"
        )
    order = np.lexsort((stratum, pool.query))
    text = _lines(at, order, "{} 0 {} {} {}\n", _shown(stratum[order]), _shown(grade[order]))
    return Export(kind, text, tuple(notes))


def _probability(at: Snapshot) -> np.ndarray:
    """With which probability each pair of the pool was drawn by any round."""
    from evenhand.sampling.inclusion import at_least_once, together

    files = at.ledger.files
    if late := [f.record.name for f in files if f.record.depends_on]:
        raise SupportError(
            f"{listed(late)} of {at.folder} {'was' if len(late) == 1 else 'were'} designed after "
            "judgments had come in: with which probability a pair is in any round is then unknown",
            hint="export qrels, or draw all rounds before the first judgment",
        )
    if waiting := at.waiting():
        raise MissingJudgments(
            "\n".join(waiting), hint="judge them, then export; qrels can be had at any time"
        )
    systems = at.goal.target.systems
    for f in files:
        if f.record.sampler == "slices" and f.record.systems not in ((), systems):
            raise StudyError(
                f"{f.record.name} of {at.folder} drew by slices, whose order changed with the "
                "systems that were added: its probabilities are unknown",
                hint="export from a copy of the study without them, or export qrels",
            )
    return together(at_least_once(f.sample, at.goal) for f in files)


def _strata(
    query: np.ndarray, probability: np.ndarray, judged: np.ndarray
) -> tuple[np.ndarray, int, int]:
    """Number of each pair's stratum within its query; how many have no judged pair; how many."""
    level = -np.round(probability, 12)
    (of, _), which = np.unique(np.stack([query, level]), axis=1, return_inverse=True)
    which = which.reshape(-1)
    first = np.searchsorted(of, of)
    silent = int(np.sum(np.bincount(which, judged, minlength=len(of)) == 0))
    return (np.arange(len(of)) - first + 1)[which], silent, len(of)


def _shown(values: np.ndarray) -> list[str]:
    return [number(value) for value in values.tolist()]


def _lines(at: Snapshot, cells: np.ndarray, line: str, *columns: list[str]) -> str:
    """A line a cell: its query, its document and the columns, put into the fields of `line`."""
    pool = at.goal.target.pool
    for ids in (pool.queries, pool.documents):
        # Functions of pyarrow.compute are made when it is imported; its types do not know them.
        odd = ids.filter(pc.match_substring_regex(ids, r"\s"))  # pyright: ignore[reportAttributeAccessIssue]
        if len(odd):
            raise EvenhandError(
                f"the id {odd[0].as_py()!r} holds a blank, which divides the fields of these files",
                hint="replace blanks in the ids of runs and judgments",
            )
    return "".join(line.format(*row) for row in zip(*pool.names(cells), *columns, strict=True))
