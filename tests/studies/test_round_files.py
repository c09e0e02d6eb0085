"""A round on disk: it appears whole or not at all, and what is damaged is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.errors import StudyError
from evenhand.estimands.pools import pool
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.sampling.samples import Sample
from evenhand.studies import round_files
from evenhand.studies.round_files import (
    Record,
    Stored,
    appearing,
    asked,
    fingerprint,
    load,
    names,
    save,
    write_whole,
)

RUNS = {
    "a": {"q1": {"d1": 3, "d2": 2}, "q2": {"d1": 1}},
    "b": {"q1": {"d3": 3, "d1": 2}, "q2": {"é#文": 1}},
}


@pytest.fixture
def cells():
    """Five cells: (q1, d1), (q1, d2), (q1, d3), (q2, d1), (q2, é#文)."""
    return pool(read_runs(RUNS))


@pytest.fixture
def record(cells):
    return Record(
        name="round-001",
        created="2026-01-01T00:00:00+00:00",
        versions={"evenhand": "0.1.0", "jax": "0", "numpy": "0"},
        budget=3,
        sampler="iid",
        design="optimal/rank",
        floor=0.1,
        seed=7,
        depends_on=(),
        cells=len(cells),
        pool=fingerprint(cells),
        gap=None,
    )


Q = np.array([0.5, 0.0, 0.25, 0.0, 0.25])
SAMPLE = Sample("iid", np.array([4, 0, 4]), 3 * Q)


@pytest.fixture
def saved(tmp_path, cells, record):
    save(tmp_path, Stored(record, SAMPLE, np.zeros(0, np.int64), {}), Q, cells, np.array([0, 4]))
    return tmp_path


def refused(function, *arguments) -> StudyError:
    with pytest.raises(StudyError) as caught:
        function(*arguments)
    return caught.value


def content(folder: Path) -> list[str]:
    """Everything in a folder, hidden files too."""
    return sorted(os.listdir(folder))


# What a round holds


def test_what_was_saved_comes_back(saved, cells, record):
    stored = load(saved, "round-001", cells)
    sample = stored.sample
    assert stored.record == record
    assert (len(stored.known), stored.signals, sample.fold) == (0, {}, None)
    assert sample.sampler == "iid"
    assert sample.draws.tolist() == [4, 0, 4]
    assert sample.expected.tolist() == SAMPLE.expected.tolist()
    assert sample.cells.tolist() == [0, 4]


def test_the_files_of_a_round(saved, cells):
    folder = saved / "round-001"
    assert content(saved) == ["round-001"]
    assert content(folder) == ["design.parquet", "draws.parquet", "round.json", "to_judge.tsv"]
    assert (folder.stat().st_mode & 0o777) == 0o755
    design = pq.read_table(folder / "design.parquet").to_pydict()
    assert design == {"cell": [0, 2, 4], "q": [0.5, 0.25, 0.25], "expected": [1.5, 0.75, 0.75]}
    assert pq.read_table(folder / "draws.parquet").to_pydict() == {
        "cell": [4, 0, 4],
        "query": ["q2", "q1", "q2"],
        "document": ["é#文", "d1", "é#文"],
        "expected": [0.75, 1.5, 0.75],
    }
    record = json.loads((folder / "round.json").read_text(encoding="utf-8"))
    assert record["seed"] == 7
    assert list(record) == list(Record.__dataclass_fields__)
    text = (folder / "to_judge.tsv").read_text(encoding="utf-8")
    assert text == "qid\tdocid\tgrade\nq1\td1\t\nq2\té#文\t\n"
    # The same file filled in is what the reader of judgments reads.
    filled = saved / "filled.tsv"
    filled.write_text(text.replace("\t\n", "\t1\n"), encoding="utf-8")
    assert cells.cells_of(read_qrels(filled)).tolist() == [0, 4]


def test_folds_known_cells_and_signals_come_back(tmp_path, cells, record):
    fold = np.array([1, 0, 0, 1, 1], np.int32)
    sample = Sample("distinct", np.array([2, 4]), 2 * np.array([0, 0, 0.5, 0, 0.5]), fold)
    told = {"judge": np.array([1.0, np.nan, 0.0, np.nan, 2.5]), "clicks": np.full(5, 0.5)}
    record = replace(record, sampler="distinct", budget=2, folds=2, known=1, signals=("judge",))
    record = replace(record, signals=tuple(told))
    q = np.array([0, 0, 0.5, 0, 0.5])
    save(tmp_path, Stored(record, sample, np.array([0]), told), q, cells, np.array([2, 4]))
    found = load(tmp_path, "round-001", cells)
    assert found.record == record
    assert found.known.tolist() == [0]
    # Folds are kept for what could be drawn; those of the rest never matter.
    assert found.sample.fold is not None
    assert found.sample.fold[[2, 4]].tolist() == [0, 1]
    assert list(found.signals) == ["judge", "clicks"]
    for name, column in told.items():
        np.testing.assert_array_equal(found.signals[name], column)
    # Without the cells that were known the round would be read wrongly.
    (tmp_path / "round-001" / "known.parquet").unlink()
    assert "is not a whole round" in refused(load, tmp_path, "round-001", cells).message


def test_a_round_of_an_earlier_version_is_read(saved, cells):
    path = saved / "round-001" / "round.json"
    old = json.loads(path.read_text(encoding="utf-8"))
    for name in ("folds", "known", "signals", "systems"):
        del old[name]
    path.write_text(json.dumps(old), encoding="utf-8")
    found = load(saved, "round-001", cells)
    assert (found.record.folds, found.record.known) == (1, 0)
    assert (found.record.signals, found.record.systems) == ((), ())


def test_cells_that_came_later_were_not_expected(saved, cells, record):
    more = read_runs(RUNS, {"c": {"q1": {"d0": 1, "d2": 0.5}, "q2": {"d9": 1}}})
    later = pool(more, after=cells)
    assert len(later) == 7
    stored = load(saved, "round-001", later)
    assert stored.record == record
    assert stored.sample.expected.tolist() == [*SAMPLE.expected, 0.0, 0.0]


def test_a_fingerprint_is_of_the_pairs_in_their_order(cells):
    def of(runs, **options):
        return fingerprint(pool(read_runs(runs), **options))

    assert fingerprint(cells) == of(dict(reversed(RUNS.items())))
    assert fingerprint(cells, len(cells)) == fingerprint(cells)
    assert len({fingerprint(cells, n) for n in range(len(cells) + 1)}) == len(cells) + 1
    assert of({"a": {"1": {"ab": 1}, "2": {"c": 1}}}) != of({"a": {"1": {"a": 1}, "2": {"bc": 1}}})
    assert of({"a": {"1": {"d": 1}}}) != of({"a": {"2": {"d": 1}}})
    assert fingerprint(pool(read_runs(RUNS, {"c": {"q1": {"d0": 1}}}), after=cells), 5) == (
        fingerprint(cells)
    )


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_a_fingerprint_is_of_length_and_text(monkeypatch, piece):
    monkeypatch.setattr(round_files, "_PIECE", piece)
    ids = {"q1": {"d": 3, "\u65e5\u672c": 2, "": 1}, "q2": {"d": 1, "\U0001f600:x": 2}}
    made = pool(read_runs({"a": ids}))
    texts = [text for column in made.names(np.arange(len(made))) for text in column]
    said = "".join(f"{len(text)}:{text}" for text in texts)
    assert fingerprint(made) == hashlib.sha256(said.encode()).hexdigest()


# Names


def test_rounds_are_named_in_order(tmp_path):
    assert names(tmp_path) == []
    for number in (2, 10, 1, *range(3, 10)):
        (tmp_path / round_files.named(number)).mkdir()
    assert names(tmp_path) == [f"round-{n:03}" for n in range(1, 11)]
    assert round_files.named(1000) == "round-1000"


def test_only_rounds_are_rounds(tmp_path):
    (tmp_path / "round-001").mkdir()
    for name in ("round-001-old", "round-001 (copy)", ".round-002.x7", "round-", "round-xyz"):
        (tmp_path / name).mkdir()
    (tmp_path / "round-002").write_text("a file")
    assert names(tmp_path) == ["round-001"]


def test_a_missing_round_is_told(tmp_path):
    for number in (1, 3, 4):
        (tmp_path / round_files.named(number)).mkdir()
    error = refused(names, tmp_path)
    assert error.message == f"{tmp_path} has round-004 and lacks round-002"
    assert error.hint == "restore the folder of the round from a copy, or rename it back"


# Damaged rounds


@pytest.mark.parametrize("file", ["round.json", "design.parquet", "draws.parquet"])
def test_a_damaged_round_is_refused(saved, cells, file, damage):
    name, spoil = damage
    spoil(saved / "round-001" / file)
    error = refused(load, saved, "round-001", cells)
    assert error.message.startswith(f"{saved / 'round-001'} is not a whole round: ")
    assert error.hint == (
        "restore the folder from a copy; without its design a round cannot be used"
    )
    if name == "missing":
        assert error.message.endswith(f"it lacks {file}")


def test_what_a_round_asks_needs_no_pool(saved, cells):
    query, document = cells.names(np.array([4, 0]))
    assert asked(saved, "round-001") == (False, 0, list(zip(query, document, strict=True)))
    edit(saved, rejudge=True, mark=7)
    assert asked(saved, "round-001")[:2] == (True, 7)


@pytest.mark.parametrize("file", ["round.json", "draws.parquet"])
def test_a_damaged_round_asks_nothing(saved, file, damage):
    damage[1](saved / "round-001" / file)
    error = refused(asked, saved, "round-001")
    assert error.message.startswith(f"{saved / 'round-001'} is not a whole round: ")


def edit(saved: Path, **changes) -> None:
    path = saved / "round-001" / "round.json"
    record = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({k: v for k, v in record.items() if v != "drop"}), encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": "drop"},
        {"depends_on": "drop"},
        {"depends_on": None},
        {"more": 1},
        {"cells": "five"},
        {"name": "round-002"},
    ],
    ids=str,
)
def test_a_changed_record_is_refused(saved, cells, changes):
    edit(saved, **changes)
    message = refused(load, saved, "round-001", cells).message
    assert message.startswith(f"{saved / 'round-001'} is not a whole round: ")


def test_draws_of_another_round_are_refused(saved, cells):
    pq.write_table(pa.table({"cell": [1]}), saved / "round-001" / "draws.parquet")
    assert refused(load, saved, "round-001", cells).message == (
        f"{saved / 'round-001'} is not a whole round: its files do not belong together"
    )
    pq.write_table(pa.table({"cell": [5]}), saved / "round-001" / "draws.parquet")
    assert "is not a whole round" in refused(load, saved, "round-001", cells).message
    pq.write_table(pa.table({"other": [0]}), saved / "round-001" / "draws.parquet")
    assert "is not a whole round" in refused(load, saved, "round-001", cells).message


@pytest.mark.parametrize(
    "runs",
    [
        {"a": RUNS["a"]},  # fewer pairs
        {"a": RUNS["a"], "b": {"q1": {"d3": 3, "d1": 2}, "q2": {"d8": 1}}},  # others
    ],
)
def test_a_round_of_other_pairs_is_refused(saved, runs):
    error = refused(load, saved, "round-001", pool(read_runs(runs)))
    assert error.message == (
        f"{saved / 'round-001'} was drawn from other query-document pairs than the study's"
    )
    assert error.hint == "was a file of the study changed or exchanged? Restore it from a copy"


# A folder that appears


def test_a_folder_appears_at_the_end(tmp_path):
    folder = tmp_path / "new" / "deep" / "study"
    with appearing(folder, "taken") as work:
        (work / "file").write_text("content")
        assert not folder.exists()
        assert work.parent == folder.parent
    assert (folder / "file").read_text() == "content"
    assert content(folder.parent) == ["study"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), ValueError("own"), StudyError("own")])
def test_a_block_that_fails_leaves_nothing(tmp_path, failure):
    def enter():
        with appearing(tmp_path / "study", "taken") as work:
            (work / "file").write_text("content")
            raise failure

    with pytest.raises(type(failure)) as caught:
        enter()
    assert caught.value is failure
    assert content(tmp_path) == []


def test_everything_is_flushed_before_it_appears(tmp_path, monkeypatch):
    seen, flush, rename = [], round_files.flush, Path.rename

    def renamed(path, new):
        seen.append("rename")
        return rename(path, new)

    def flushed(path):
        seen.append(path.name)
        flush(path)

    monkeypatch.setattr(round_files, "flush", flushed)
    monkeypatch.setattr(Path, "rename", renamed)
    with appearing(tmp_path / "study", "taken") as work:
        (work / "sub").mkdir()
        for name in ("one", "sub/two"):
            (work / name).write_text(name)
    assert sorted(seen[:3]) == ["one", "sub", "two"]
    assert seen[3:] == [work.name, "rename", tmp_path.name]


def test_a_full_disk_is_told(tmp_path):
    folder = tmp_path / "study"

    def enter():
        with appearing(folder, "taken") as work:
            (work / "file").write_text("half")
            raise OSError(28, "No space left on device")

    error = refused(enter)
    assert error.message == f"cannot write {folder}: No space left on device; nothing was written"
    assert error.hint == (
        "free some space or choose another place, then run the same command again"
    )
    assert content(tmp_path) == []


def test_a_place_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")

    def enter(folder):
        with appearing(folder, "taken"):
            pytest.fail("the block must not run")

    error = refused(enter, tmp_path / "file" / "study")
    assert error.message == f"cannot write into {tmp_path / 'file'}: File exists"
    assert error.hint == "make the folder writable, or choose another place"

    def readonly(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(round_files.tempfile, "mkdtemp", readonly)
    assert refused(enter, tmp_path / "study").message == (
        f"cannot write into {tmp_path}: Read-only file system"
    )
    assert content(tmp_path) == ["file"]


def test_another_folder_that_appears_meanwhile_stays(tmp_path):
    folder = tmp_path / "round-001"

    def enter():
        with appearing(folder, "taken") as work:
            (work / "file").write_text("mine")
            folder.mkdir()
            (folder / "file").write_text("theirs")

    assert refused(enter).message == "taken"
    assert (folder / "file").read_text() == "theirs"
    assert content(tmp_path) == ["round-001"]


def test_another_folder_that_appears_in_the_last_moment_stays(tmp_path, monkeypatch):
    folder, rename = tmp_path / "round-001", Path.rename

    def late(path, new):
        folder.mkdir()
        (folder / "file").write_text("theirs")
        return rename(path, new)

    monkeypatch.setattr(Path, "rename", late)

    def enter():
        with appearing(folder, "taken") as work:
            (work / "file").write_text("mine")

    assert refused(enter).message == "taken"
    assert (folder / "file").read_text() == "theirs"
    assert content(tmp_path) == ["round-001"]


def test_of_many_at_once_one_wins(tmp_path):
    folder, start = tmp_path / "round-001", threading.Barrier(8)
    won, told = [], []

    def enter(number):
        start.wait()
        try:
            with appearing(folder, "taken") as work:
                (work / "file").write_text(str(number))
            won.append(number)
        except StudyError as error:
            told.append(error.message)

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(folder / "file").read_text()] == [str(number) for number in won]
    assert told == ["taken"] * 7
    assert content(tmp_path) == ["round-001"]


def test_what_a_killed_process_left_is_cleared_after_an_hour(tmp_path):
    folder = tmp_path / "st[u]dy"
    old, young, foreign = (tmp_path / name for name in (".st[u]dy.a", ".st[u]dy.b", ".stu.c"))
    for left in (old, young, foreign):
        left.mkdir()
        (left / "file").write_text("half")
        hours = 0.5 if left is young else 2
        os.utime(left, (time.time() - hours * 3600,) * 2)
    with appearing(folder, "taken"):
        pass
    assert content(tmp_path) == [".st[u]dy.b", ".stu.c", "st[u]dy"]


def test_a_folder_that_another_process_finishes_meanwhile_is_no_failure(tmp_path, monkeypatch):
    left, stat = tmp_path / ".round-001.x", Path.stat
    left.mkdir()

    def gone(path, **options):
        if path == left:
            shutil.rmtree(left, ignore_errors=True)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", gone)
    with appearing(tmp_path / "round-001", "taken"):
        pass
    assert content(tmp_path) == ["round-001"]


# A file that appears

TABLE = pa.table({"x": [1, 2, 3]})


def test_a_file_appears_whole(tmp_path):
    write_whole(tmp_path / "t.parquet", TABLE, "taken")
    assert pq.read_table(tmp_path / "t.parquet") == TABLE
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "t.parquet").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert content(tmp_path) == ["plain", "t.parquet"]


def test_a_file_never_goes_over_another(tmp_path):
    (tmp_path / "t.parquet").write_text("theirs")
    assert refused(write_whole, tmp_path / "t.parquet", TABLE, "taken").message == "taken"
    assert (tmp_path / "t.parquet").read_text() == "theirs"
    assert content(tmp_path) == ["t.parquet"]


@pytest.mark.parametrize("step", ["pq.write_table", "flush", "os.link"])
def test_a_file_that_cannot_be_written(tmp_path, monkeypatch, step):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    where, _, name = step.rpartition(".")
    monkeypatch.setattr(getattr(round_files, where) if where else round_files, name, full)
    error = refused(write_whole, tmp_path / "t.parquet", TABLE, "taken")
    assert error.message == (
        f"cannot write {tmp_path / 't.parquet'}: No space left on device; nothing was written"
    )
    assert error.hint == (
        "free some space or make the folder writable, then run the same command again"
    )
    assert content(tmp_path) == []


def test_a_file_in_no_folder(tmp_path):
    path = tmp_path / "none" / "t.parquet"
    assert refused(write_whole, path, TABLE, "taken").message.startswith(f"cannot write {path}: ")


def test_a_round_is_drawn_once(saved, cells, record):
    before = (saved / "round-001" / "round.json").read_bytes()
    stored = Stored(replace(record, seed=8), SAMPLE, np.zeros(0, np.int64), {})
    error = refused(save, saved, stored, Q, cells, np.array([0]))
    assert error.message == (
        f"round-001 of {saved} was drawn by another process meanwhile; run the command again"
    )
    assert (saved / "round-001" / "round.json").read_bytes() == before
    assert content(saved) == ["round-001"]
