"""Collects the content of a report from a study in any state.

`gather` reads the study once, so that all facts are of one state of the judgments. If there is no
estimate, the reason is the text of the error that `evenhand estimate` would give.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from evenhand.decisions.planning import plan
from evenhand.decisions.ranks import ranking
from evenhand.errors import EvenhandError, MissingJudgments, listed
from evenhand.estimation.estimates import Estimate
from evenhand.intervals.confidence import check_level
from evenhand.reports.calibration import Calibration, read_calibration
from evenhand.reports.facts import Facts, Look, Places, RoundFacts, Weights
from evenhand.reports.summary import Planner, conclude
from evenhand.sampling.labels import Judgments
from evenhand.studies.estimating import answer
from evenhand.studies.options import EstimateOptions
from evenhand.studies.proposing import foresee
from evenhand.studies.snapshots import Snapshot

__all__ = ["gather"]

#: Packages whose versions a report names.
PACKAGES = ("evenhand", "jax", "numpyro", "numpy", "scipy")
#: Share of one draw, and effective draws of each draw, beyond which a report warns.
MOST_SHARE, LEAST_EFFECTIVE = 0.1, 0.1


def gather(
    at: Snapshot,
    said: Judgments,
    *,
    title: str | None = None,
    level: float = 0.95,
    question: str = "queries",
) -> Facts:
    """Collect the content of a report from a study.

    Parameters
    ----------
    at
        The study as it is.
    said
        Its judgments.
    title
        Of the page; by default the name of the study's folder.
    level, question
        Of the intervals, as in `evenhand.study.Study.estimate`.

    Raises
    ------
    EvenhandError
        If the level is none, or intervals for the question do not exist for this measure.
    """
    check_level(level)
    settings, ledger, goal = at.settings, at.ledger, at.goal
    population = question == "population"
    found, here, reason = _answers(at, level, question)
    several = found is not None and len(goal.target.systems) > 1
    rounds = tuple(
        RoundFacts(f.record, len(f.sample), len(f.sample.cells), len(missing))
        for f, missing in zip(ledger.files, ledger.missing(), strict=True)
    )
    standings = ranking(found) if found is not None and several else None
    calibrations, unread = _calibrations(at, level)
    warnings = [*_uncovered(found), *at.waiting(), *_heavy(found), *unread]
    warnings += [f"{one.round}: {fault}" for one in calibrations for fault in one.faults]
    if reason and not at.waiting() and rounds:
        warnings.insert(0, reason)
    notes = at.notes() if found is None else found.notes
    silent = [note for note in notes if note.startswith("no judged pair of ")]
    warnings += silent
    return Facts(
        title=title or at.folder.resolve().name,
        folder=str(at.folder),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        measure=goal.target.measure,
        goal=goal,
        baseline=settings.baseline,
        depth=settings.depth,
        grades=settings.grades,
        plan=settings.plan,
        created=settings.created,
        level=level,
        question=question,
        systems=goal.target.systems,
        n_queries=len(goal.target.pool.queries),
        n_pairs=len(goal.target.pool),
        n_judged=int(ledger.judged().sum()),
        n_assessors=ledger.assessors,
        rounds=rounds,
        estimate=found,
        reason=reason,
        compared=None if found is None else found.compare(found.goal),
        standings=standings,
        conclusion=conclude(found, standings, reason, _planner(at, here, population)),
        looks=_looks(at, found, level, question),
        places=_places(at),
        weights=None if found is None else _weights(found),
        calibrations=calibrations,
        warnings=tuple(warnings),
        notes=tuple(
            note for note in notes if note not in silent and not note.startswith("left out, ")
        ),
        versions=_versions(),
        files=_files(at.folder, said),
    )


def _versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute."""
    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **packages}


def _answers(
    at: Snapshot, level: float, question: str
) -> tuple[Estimate | None, Estimate | None, str]:
    """The answer, the one for this set of queries that a plan starts from, or why there is none."""
    try:
        found = answer(at, EstimateOptions(level=level, question=question))
        if question == "queries":
            return found, found, ""
        return found, answer(at, EstimateOptions(level=level)), ""
    except MissingJudgments as error:
        return None, None, _told(error)
    except EvenhandError as error:
        if question != "queries":
            raise
        return None, None, _told(error)


def _told(error: EvenhandError) -> str:
    return error.message + (f" ({error.hint})" if error.hint else "")


def _planner(at: Snapshot, here: Estimate | None, population: bool) -> Planner:
    """How many more judgments an aim needs; what a further round would bring is found once."""
    told = None

    def planned(**aim: float):
        nonlocal told
        if told is None:
            told = foresee(at, here, population=population)
        return plan(told, **aim)

    return planned


def _looks(at: Snapshot, found: Estimate | None, level: float, question: str) -> tuple[Look, ...]:
    """What was known after each round that is wholly judged; the last look is what is known now."""
    whole = [f.record.name for f in at.whole()[1]]
    if found is None:
        return ()
    looks: list[Look] = []
    for n, file in enumerate(at.ledger.files[:-1], 1):
        name = file.record.name
        if name not in whole or name == whole[-1]:
            continue
        early = replace(at, ledger=replace(at.ledger, files=at.ledger.files[:n]))
        try:
            before = answer(early, EstimateOptions(level=level, question=question))
        except EvenhandError:  # a ratio that had too few draws then
            continue
        looks.append(Look(tuple(whole[: whole.index(name) + 1]), before))
    return (*looks, Look(tuple(whole), found))


def _places(at: Snapshot) -> Places:
    pool, k = at.goal.target.pool, len(at.goal.target.systems)
    deepest = int(pool.rank.max(initial=1))
    edges = [1, 2, 3, 4]
    # 6, 11, 21, 51, 101, ...: bins that end with round numbers.
    edges += [m * 10**p + 1 for p in range(7) for m in (1, 2, 5) if m * 10**p >= 5]
    first = np.array([e for e in edges if e <= deepest] + [deepest + 1])
    place = np.searchsorted(first, pool.rank, side="right") - 1
    place += pool.system.astype(np.int64) * (len(first) - 1)
    drawn = np.zeros(len(pool))
    for file in at.ledger.files:
        drawn += np.bincount(file.sample.draws, minlength=len(pool))
    judged = at.ledger.judged()

    def by_place(count: np.ndarray) -> np.ndarray:
        table = np.bincount(place, count[pool.cell], minlength=k * (len(first) - 1))
        return table.reshape(k, -1).astype(np.int64)

    every = np.ones(len(pool))
    tables = (by_place(count) for count in (every, drawn, judged.astype(float)))
    return Places(pool.systems, first, *tables)


def _weights(found: Estimate) -> Weights:
    norms = found.goal.norms()
    size = np.concatenate(
        [one.reach[one.sample.draws] * norms[one.sample.draws] for one in found.evidence.rounds]
    )
    mean = size.mean() if len(size) else 0.0
    return Weights(size / mean if mean > 0 else size, found.ess, found.max_weight_share)


def _calibrations(at: Snapshot, level: float) -> tuple[tuple[Calibration, ...], list[str]]:
    grades, levels = at.settings.grades, None
    if grades is not None:
        levels = np.unique(at.goal.target.measure.utility(np.asarray(grades)))
    found, unread = [], []
    for file in at.ledger.files:
        name = file.record.name
        path = at.folder / name / "posterior.nc"
        if not path.is_file():
            continue
        try:
            one = read_calibration(path, name, levels=levels, level=level)
        except (OSError, LookupError, ValueError) as error:
            unread.append(
                f"{name}/posterior.nc cannot be read, and its calibration not shown: {error}"
            )
            continue
        if one is not None:
            found.append(one)
    return tuple(found), unread


def _uncovered(found: Estimate | None) -> list[str]:
    if found is None:
        return []
    out = np.flatnonzero(found.covered < 1)
    shares = [f"{found.goal.target.systems[j]} ({found.covered[j]:.0%})" for j in out]
    if not shares:
        return []
    return [
        "without an estimate, since only this share of their weight could be drawn: "
        f"{listed(shares)}; "
        "a further round covers them (evenhand draw, or --top-up for nothing else)"
    ]


def _heavy(found: Estimate | None) -> list[str]:
    if found is None or found.n_draws < 2:
        return []
    warnings = []
    if found.max_weight_share > MOST_SHARE:
        warnings.append(
            f"one draw carries {found.max_weight_share:.0%} of all importance weight: what was "
            "said of that pair moves the estimates more than anything else"
        )
    if 0 < found.ess < LEAST_EFFECTIVE * found.n_draws:
        warnings.append(
            f"{found.n_draws:,} draws are worth {found.ess:.0f} of equal weight: intervals are "
            "wide, and rest on few pairs"
        )
    return warnings


def _files(folder: Path, said: Judgments) -> dict[str, str]:
    """SHA-256 of what the study holds; judgments, whose file is a data base, by their content."""
    paths: Sequence[Path] = [
        folder / "study.json",
        folder / "queries.txt",
        *sorted(folder.glob("systems-*.parquet")),
        *(path for one in sorted(folder.glob("round-*")) for path in sorted(one.iterdir())),
    ]
    found = {path.relative_to(folder).as_posix(): _sha256(path) for path in paths if path.is_file()}
    rows = zip(said.query, said.document, said.assessor, said.grade.tolist(), strict=True)
    digest = hashlib.sha256()
    for row in sorted(rows):
        digest.update("\t".join(map(str, row)).encode() + b"\n")
    return {**found, "judgments (their rows)": digest.hexdigest()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
