"""A round on disk: a folder that appears whole or not at all.

::

    round-001/
        round.json       how it was made: seed, sampler, design, versions, what it depended on
        design.parquet   cell, q and expected count of every pair that could have been drawn
        draws.parquet    cell, query, document and expected count of each draw, in order
        to_judge.tsv     qid docid grade: distinct pairs without a judgment yet, grade left empty
        known.parquet    cells whose judgment was known, and that could therefore not be drawn
        signals.parquet  cell and value of each signal that was given
        posterior.nc     what a learned design learned from, for ArviZ

The last three exist only where they have content.

The folder is written under another name, flushed to disk, and renamed: a process that is killed
leaves no half round, and of two that draw at once one has to try again.
"""

# pyarrow makes its compute functions when it is imported.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenhand.errors import StudyError
from evenhand.estimands.pools import Pool
from evenhand.sampling.folds import fold_of
from evenhand.sampling.samples import Sample

__all__ = [
    "Record",
    "Stored",
    "appearing",
    "asked",
    "fingerprint",
    "load",
    "named",
    "names",
    "save",
    "write_table",
    "write_whole",
]

_FILES = ("round.json", "design.parquet", "draws.parquet")
_RESTORE = "restore the folder from a copy; without its design a round cannot be used"
_NAME = re.compile(r"round-\d{3,}")
_ABANDONED = 3600.0  # seconds after which an unfinished folder is nobody's
_PIECE = 1 << 20  # pairs hashed at once


@dataclass(frozen=True, slots=True)
class Record:
    """How a round was made; the content of ``round.json``.

    Attributes
    ----------
    name
        ``round-001``, ``round-002``, ...
    created
        UTC, ISO 8601.
    versions
        Of evenhand, jax and numpy.
    budget
        Number of draws.
    sampler, design, floor, seed
        As asked for; the design as ``kind/utility``, and the goal behind where it was focused.
    depends_on
        Earlier rounds of which a judgment was known when this one was drawn: its design may depend
        on them.
    cells
        Number of cells of the pool at that time.
    pool
        Fingerprint of these cells.
    gap
        Relative duality gap of a minimax design, else None.
    folds
        Number of folds of cells, each drawn by itself; 1 for none.
    scattered
        How many of them cells belong to at random; 0 where folds are fixed.
    known
        Number of cells left out since their judgment was known.
    signals
        Names of the signals that were given.
    systems
        Names of the systems that there were; empty for all.
    rejudge
        Whether its judgments are made for it alone (`evenhand.studies.ledger`).
    mark
        Place in the history of the newest judgment when it was drawn.
    first
        First cell that it could draw, of those that joined since the round before it; 0 unless it
        tops up.
    """

    name: str
    created: str
    versions: dict[str, str]
    budget: int
    sampler: str
    design: str
    floor: float
    seed: int
    depends_on: tuple[str, ...]
    cells: int
    pool: str
    gap: float | None
    folds: int = 1
    scattered: int = 0
    known: int = 0
    signals: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    rejudge: bool = False
    mark: int = 0
    first: int = 0


def fingerprint(pool: Pool, cells: int | None = None) -> str:
    """SHA-256 over the first `cells` pairs of the pool (all by default), by their ids."""
    digest = hashlib.sha256()
    cells = len(pool) if cells is None else cells
    for codes, ids in ((pool.query, pool.queries), (pool.document, pool.documents)):
        # As "length:id", so that no two lists of ids look alike.
        marked = pc.binary_join_element_wise(pc.cast(pc.utf8_length(ids), pa.string()), ids, ":")
        for first in range(0, cells, _PIECE):
            texts = marked.take(pa.array(codes[first : min(first + _PIECE, cells)]))
            if len(texts):
                _, offsets, data = texts.buffers()
                kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
                ends = np.frombuffer(offsets, kind)[[texts.offset, texts.offset + len(texts)]]
                digest.update(memoryview(data)[ends[0] : ends[1]])
    return digest.hexdigest()


def named(number: int) -> str:
    """Name of the round of this number, counted from 1."""
    return f"round-{number:03}"


def names(study: Path) -> list[str]:
    """Names of the rounds of a study, in order.

    Raises
    ------
    StudyError
        If one is missing between them.
    """
    found = {p.name for p in study.iterdir() if p.is_dir() and _NAME.fullmatch(p.name)}
    whole = [named(number) for number in range(1, len(found) + 1)]
    if lacking := [name for name in whole if name not in found]:
        raise StudyError(
            f"{study} has {', '.join(sorted(found.difference(whole)))} and lacks {lacking[0]}",
            hint="restore the folder of the round from a copy, or rename it back",
        )
    return whole


@contextmanager
def appearing(folder: Path, taken: str) -> Iterator[Path]:
    """A temporary folder beside `folder` that becomes it when the block ends well.

    Raises
    ------
    StudyError
        With the message `taken` if `folder` exists by then, or if the disk does not take it.
    """
    parent = folder.parent
    for left in parent.glob(f".{glob.escape(folder.name)}.*"):
        with suppress(OSError):  # another process may just have finished it
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left, ignore_errors=True)  # or another process does
    try:
        parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=parent))
    except OSError as error:
        raise StudyError(
            f"cannot write into {parent}: {error.strerror}",
            hint="make the folder writable, or choose another place",
        ) from error
    try:
        yield work
        work.chmod(0o755)
        for path in work.rglob("*"):
            flush(path)
        flush(work)
        if folder.exists():
            raise StudyError(taken)
        work.rename(folder)
        flush(parent)
    except OSError as error:
        if folder.is_dir():
            raise StudyError(taken) from error
        raise StudyError(
            f"cannot write {folder}: {error.strerror or error}; nothing was written",
            hint="free some space or choose another place, then run the same command again",
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)  # gone already, where it was renamed


def flush(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a Parquet file in which each id occurs once.

    By default pyarrow would write ids out where they are many, and read them twice as long.
    """
    coded = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
    pq.write_table(
        table,
        path,
        row_group_size=max(len(table), 1),
        use_dictionary=coded,  # pyright: ignore[reportArgumentType] - columns' names, too
        dictionary_pagesize_limit=1 << 30,
    )


def write_whole(path: Path, table: pa.Table, taken: str) -> None:
    """Write a Parquet file that appears whole, and never over another."""
    work = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        write_table(table, work)
        flush(work)
        os.link(work, path)
        flush(path.parent)
    except FileExistsError as error:
        raise StudyError(taken) from error
    except OSError as error:
        raise StudyError(
            f"cannot write {path}: {error.strerror or error}; nothing was written",
            hint="free some space or make the folder writable, then run the same command again",
        ) from error
    finally:
        work.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A round as it lies on disk.

    Attributes
    ----------
    record
        How it was made.
    sample
        Its draws.
    known
        Cells that were left out since their judgment was known; int64.
    signals
        Each signal that was given, by name; NaN where it has no value, shape (cells,).
    """

    record: Record
    sample: Sample
    known: np.ndarray
    signals: dict[str, np.ndarray]


def save(
    study: Path,
    stored: Stored,
    q: np.ndarray,
    pool: Pool,
    todo: np.ndarray,
    posterior: Callable[[Path], object] | None = None,
) -> Path:
    """Write a round. Gives the path of ``to_judge.tsv``.

    Parameters
    ----------
    study
        Folder of the study.
    stored
        The round.
    q
        Its proposal; shape (cells,).
    pool
        The pairs of the study.
    todo
        The cells to be judged.
    posterior
        Writes what a learned design learned from into the file given.

    Raises
    ------
    StudyError
        If another process has drawn this round meanwhile, or the disk does not take it.
    """
    record, sample = stored.record, stored.sample
    folder = study / record.name
    taken = (
        f"{record.name} of {study} was drawn by another process meanwhile; run the command again"
    )
    with appearing(folder, taken) as work:
        possible = np.flatnonzero(q > 0)
        columns = {"cell": possible, "q": q[possible], "expected": sample.expected[possible]}
        if sample.fold is not None:
            columns["fold"] = sample.fold[possible]
        pq.write_table(pa.table(columns), work / "design.parquet")
        if len(stored.known):
            pq.write_table(pa.table({"cell": stored.known}), work / "known.parquet")
        if stored.signals:
            given = np.flatnonzero(np.isfinite(list(stored.signals.values())).any(0))
            columns = {"cell": given} | {k: v[given] for k, v in stored.signals.items()}
            pq.write_table(pa.table(columns), work / "signals.parquet")
        if posterior is not None:
            posterior(work / "posterior.nc")
        query, document = pool.names(sample.draws)
        pq.write_table(
            pa.table(
                {
                    "cell": sample.draws,
                    "query": query,
                    "document": document,
                    "expected": sample.expected[sample.draws],
                }
            ),
            work / "draws.parquet",
        )
        rows = (f"{qid}\t{docid}\t\n" for qid, docid in zip(*pool.names(todo), strict=True))
        (work / "to_judge.tsv").write_text("qid\tdocid\tgrade\n" + "".join(rows), encoding="utf-8")
        (work / "round.json").write_text(
            json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8"
        )
    return folder / "to_judge.tsv"


def load(study: Path, name: str, pool: Pool) -> Stored:
    """Read a round; expected counts are 0 for cells that came later.

    Raises
    ------
    StudyError
        If a file of the round is missing or damaged, or the round was drawn from other pairs than
        the pool's.
    """
    folder = study / name
    lacking = [file for file in _FILES if not (folder / file).is_file()]
    if lacking:
        raise StudyError(
            f"{folder} is not a whole round: it lacks {', '.join(lacking)}", hint=_RESTORE
        )
    try:
        content = json.loads((folder / "round.json").read_text(encoding="utf-8"))
        lists = {"depends_on": tuple(content["depends_on"])}
        lists |= {key: tuple(content.get(key, ())) for key in ("signals", "systems")}
        record = Record(**{**content, **lists})
        stored = None
        if record.cells <= len(pool) and record.pool == fingerprint(pool, record.cells):
            sample, known = _sample(folder, record, len(pool)), np.zeros(0, np.int64)
            if record.known:
                known = pq.read_table(folder / "known.parquet")["cell"].to_numpy()
            if record.name != name or not (sample.expected[sample.draws] > 0).all():
                raise ValueError("its files do not belong together")
            if len(known) != record.known or sample.n_folds > record.folds:
                raise ValueError("its files do not belong together")
            stored = Stored(record, sample, known, _signals(folder, record, len(pool)))
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise StudyError(
            f"{folder} is not a whole round: {error}",
            hint=_RESTORE,
        ) from error
    if stored is None:
        raise StudyError(
            f"{folder} was drawn from other query-document pairs than the study's",
            hint="was a file of the study changed or exchanged? Restore it from a copy",
        )
    return stored


def asked(study: Path, name: str) -> tuple[bool, int, list[tuple[str, str]]]:
    """The pairs of a round for assessors, without its design and the pool.

    Returns
    -------
    rejudge, mark
        As in `Record`.
    pairs
        Query and document of its distinct draws.

    Raises
    ------
    StudyError
        If a file of the round is missing or damaged.
    """
    folder = study / name
    try:
        content = json.loads((folder / "round.json").read_text(encoding="utf-8"))
        draws = pq.read_table(folder / "draws.parquet", columns=["query", "document"])
        rejudge, mark = bool(content.get("rejudge", False)), int(content.get("mark", 0))
    except (OSError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise StudyError(f"{folder} is not a whole round: {error}", hint=_RESTORE) from error
    pairs = zip(draws["query"].to_pylist(), draws["document"].to_pylist(), strict=True)
    return rejudge, mark, list(dict.fromkeys(pairs))


def _sample(folder: Path, record: Record, cells: int) -> Sample:
    columns = ["cell", "expected", *(["fold"] if record.folds > 1 else [])]
    design = pq.read_table(folder / "design.parquet", columns=columns)
    draws = pq.read_table(folder / "draws.parquet", columns=["cell"])["cell"].to_numpy()
    possible, expected, fold = design["cell"].to_numpy(), np.zeros(cells), None
    expected[possible] = design["expected"].to_numpy()
    if record.folds > 1:
        fold = fold_of(cells, record.folds)
        fold[possible] = design["fold"].to_numpy()
    return Sample(record.sampler, draws, expected, fold, record.scattered)


def _signals(folder: Path, record: Record, cells: int) -> dict[str, np.ndarray]:
    if not record.signals:
        return {}
    table = pq.read_table(folder / "signals.parquet", columns=["cell", *record.signals])
    columns = {}
    for name in record.signals:
        columns[name] = np.full(cells, np.nan)
        columns[name][table["cell"].to_numpy()] = table[name].to_numpy()
    return columns
