"""The fixed part of a study on disk: its settings, its queries, its systems.

::

    study.json            measure, goal, depth, grades, plan
    queries.txt           the queries of the study, one id a line
    systems-001.parquet   the runs, to the study's depth; later systems are added as 002, 003, ...

Systems that arrive later get a file of their own, so that no file is ever written twice and the
pairs of the first systems keep their numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenhand.errors import EvenhandError, StudyError, listed
from evenhand.estimands.pools import Pool, pool
from evenhand.formats.runs import read_runs
from evenhand.studies.pool_cache import keep, recall
from evenhand.studies.round_files import write_table, write_whole

__all__ = [
    "FORMAT",
    "Settings",
    "add_systems",
    "check_storable",
    "read_pool",
    "read_settings",
    "system_files",
    "write",
]

FORMAT = 1
_RESTORE = "restore the file from a copy of the study"
_WHOLE = ("study.json", "queries.txt", "systems-001.parquet", "judgments.sqlite")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is fixed when a study is made; the content of ``study.json``.

    Attributes
    ----------
    measure
        Canonical spelling.
    goal
        One of `evenhand.estimands.goals.GOALS`.
    baseline
        The baseline system, or None.
    pair
        The two systems of the goal ``pair``, or None.
    depth
        Ranks beyond it are not kept; None keeps all.
    n_queries
        Number of queries, whether answered or not.
    grades
        Grades that a judgment may have; None allows any.
    plan
        Planned draws of each round, fixed before the first judgment; None: as if each were to
        be twice as large as the last.
    """

    format: int
    evenhand: str
    created: str
    measure: str
    goal: str
    baseline: str | None
    pair: tuple[str, str] | None
    depth: int | None
    n_queries: int
    grades: tuple[float, ...] | None
    plan: tuple[int, ...] | None

    def check_plan(self) -> None:
        """Refuse a plan that names no round, or one of no draw."""
        if self.plan is not None and (not self.plan or min(self.plan) < 1):
            raise EvenhandError(
                f"a plan names at least one round of at least one draw, got {list(self.plan)}"
            )


def write(folder: Path, settings: Settings, cells: Pool) -> None:
    """Write the fixed part of a new study into its (temporary) folder."""
    text = json.dumps(asdict(settings), indent=2) + "\n"
    (folder / "study.json").write_text(text, encoding="utf-8")
    ids = "\n".join(cells.queries.to_pylist()) + "\n"
    (folder / "queries.txt").write_text(ids, encoding="utf-8")
    write_table(_table(cells), folder / "systems-001.parquet")
    keep(folder, system_files(folder), cells)


def read_settings(folder: Path) -> Settings:
    """Read what was fixed when a study was made.

    Raises
    ------
    StudyError
        If the folder is no study, is only half there, or is of a later version.
    """
    if not folder.is_dir():
        raise StudyError(f"there is no study at {folder}", hint="start one with `evenhand new`")
    lacking = [name for name in _WHOLE if not (folder / name).is_file()]
    if lacking:
        raise StudyError(
            f"{folder} is not a whole study: it lacks {', '.join(lacking)}",
            hint="is it the right folder? A study can be restored only from a copy",
        )
    try:
        content = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        later = int(content["format"]) > FORMAT
        known = {field.name for field in fields(Settings)}
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content.items() if k in known
        }
        settings = None if later else Settings(**values)
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise StudyError(f"{folder / 'study.json'} is damaged: {error}", hint=_RESTORE) from error
    if settings is None:
        raise StudyError(
            f"{folder} was made by evenhand {content.get('evenhand', '?')}, "
            "in a later format than this version reads",
            hint="upgrade evenhand",
        )
    return settings


def system_files(folder: Path) -> tuple[Path, ...]:
    """Files of the systems, in the order of their arrival."""
    return tuple(sorted(folder.glob("systems-*.parquet")))


def read_pool(folder: Path, settings: Settings, files: Sequence[Path]) -> Pool:
    """Read the pairs of all systems; those of the first file come first.

    Raises
    ------
    StudyError
        If a file is damaged.
    """
    cells = None
    try:
        if (kept := recall(folder, files)) is not None:
            return kept
        queries = (folder / "queries.txt").read_text(encoding="utf-8").split("\n")[:-1]
        if len(queries) != settings.n_queries:
            raise ValueError(
                f"{len(queries)} queries instead of {settings.n_queries} in queries.txt"
            )
        for last in range(1, len(files) + 1):
            # Nothing of what is read is kept while pairs are numbered.
            runs = read_runs(*map(pq.read_table, files[:last]), order="rank")
            cells = pool(runs, depth=settings.depth, queries=queries, after=cells)
    except (OSError, ValueError) as error:
        said = error.message if isinstance(error, EvenhandError) else error
        raise StudyError(
            f"queries.txt or a systems-*.parquet of {folder} is damaged: {said}", hint=_RESTORE
        ) from error
    assert cells is not None
    keep(folder, files, cells)
    return cells


def add_systems(folder: Path, known: Sequence[Path], cells: Pool) -> None:
    """Write the systems of a pool behind the files `known`.

    Raises
    ------
    StudyError
        If another process has added systems since `known` was read.
    """
    write_whole(
        folder / f"systems-{len(known) + 1:03}.parquet",
        _table(cells),
        "another process has added systems meanwhile; run the command again",
    )


def check_storable(cells: Pool) -> None:
    """Refuse what could not be stored: systems without a pair, ids that break a line."""
    for ids, breaks in ((cells.queries, r"[\t\r\n]|^#"), (cells.documents, r"[\t\r\n]")):
        # pyarrow makes its compute functions when it is imported.
        hit = pc.match_substring_regex(ids, breaks)  # pyright: ignore[reportAttributeAccessIssue]
        odd = ids.filter(hit)
        if len(odd):
            raise EvenhandError(
                f"the id {odd[0].as_py()!r} cannot stand in a file to judge: it holds a tab or a "
                "line end, or is a query that begins with #",
                hint="replace such characters in runs and judgments",
            )
    silent = np.bincount(cells.system, minlength=len(cells.systems)) == 0
    if silent.any():
        names = [name for name, none in zip(cells.systems, silent, strict=True) if none]
        raise EvenhandError(
            f"no query of the study is answered by {listed(names)}",
            hint="leave the run out, or check that it is of the same collection",
        )


def _table(cells: Pool) -> pa.Table:
    """The runs of a pool as a table that `read_runs` reads, ids stored once."""
    n, filled, cell_of = len(cells.system), 0, cells.cell.astype(np.int32)
    query, document, rank = (np.empty(n, np.int32) for _ in range(3))
    score = np.empty(n)
    for code in range(len(cells.systems)):  # one after the other: a tenth of the memory
        entry = np.flatnonzero(cells.system == code)
        cell = cell_of[entry]
        order = np.lexsort((cells.rank[entry], cells.query[cell]))
        entry, cell, here = entry[order], cell[order], slice(filled, filled + len(entry))
        query[here], document[here] = cells.query[cell], cells.document[cell]
        rank[here], score[here] = cells.rank[entry], cells.score[entry]
        filled = here.stop
    counts = np.bincount(cells.system, minlength=len(cells.systems))
    system = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return pa.table(
        {
            "system": pa.DictionaryArray.from_arrays(system, pa.array(cells.systems)),
            "query_id": pa.DictionaryArray.from_arrays(query, cells.queries),
            "doc_id": pa.DictionaryArray.from_arrays(document, cells.documents),
            "rank": rank,
            "score": score,
        }
    )
