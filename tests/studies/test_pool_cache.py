"""A large study's pool is kept as it was numbered, and is never another's."""

from __future__ import annotations

import os

import numpy as np
import pytest

from evenhand.studies import pool_cache, study_files
from evenhand.study import Study

ARRAYS = ("query", "document", "start", "system", "rank", "score")


def made_runs(seed=0, names="abc"):
    rng = np.random.default_rng(seed)
    return {
        name: {
            f"q{q}": {f"d{d:02}é": float(s) for d, s in enumerate(rng.normal(size=30))}
            for q in range(5)
        }
        for name in names
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(pool_cache, "LARGE", 1)
    Study.create(tmp_path / "study", made_runs(), measure="DCG@10", goal="rank")
    return tmp_path / "study"


def kept(folder):
    return sorted(folder.glob(".pool-*"))


def assert_same(one, other):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    for name in ("queries", "documents"):
        assert getattr(one, name).equals(getattr(other, name))
    assert (one.systems, one.depth) == (other.systems, other.depth)


def counted(monkeypatch):
    """How often a pool is numbered from here on."""
    calls, pool = [], study_files.pool
    monkeypatch.setattr(study_files, "pool", lambda *a, **k: (calls.append(1), pool(*a, **k))[1])
    return calls


def test_it_is_the_pool_that_would_be_made(folder, monkeypatch):
    calls = counted(monkeypatch)
    found = Study.open(folder).pool
    assert isinstance(found.score, np.memmap)
    assert not calls
    monkeypatch.setattr(study_files, "recall", lambda *_: None)
    assert_same(found, Study.open(folder).pool)
    assert len(calls) == 1


@pytest.mark.slow
def test_a_study_runs_on_it(folder, monkeypatch):
    """Draws, judgments, a learned round and estimates are those of a pool that was made."""
    answers = []
    for way in ("kept", "made"):
        if way == "made":
            monkeypatch.setattr(study_files, "recall", lambda *_: None)
        copy = folder.parent / way
        Study.create(copy, made_runs(), measure="DCG@10", goal="rank")
        for options in ({}, {"utility": "learned"}):
            Study.open(copy).draw(45, seed=3, **options)
            last = Study.open(copy)
            cells = last._rounds()[-1].sample.cells
            queries, documents = last.pool.names(cells)
            said: dict[str, dict[str, int]] = {}
            for q, d in zip(queries, documents, strict=True):
                said.setdefault(q, {})[d] = int(d[2]) % 2
            last.judge(said)
        answers.append(Study.open(copy).estimate())
    np.testing.assert_array_equal(answers[0].value, answers[1].value)
    np.testing.assert_array_equal(answers[0].std_error, answers[1].std_error)


def test_it_is_of_the_files_as_they_are(folder, monkeypatch):
    (before,) = kept(folder)
    calls = counted(monkeypatch)
    os.utime(folder / "systems-001.parquet", (1, 1))
    Study.open(folder).pool  # noqa: B018 - it is read
    assert len(calls) == 1
    (after,) = kept(folder)
    assert after != before
    Study.open(folder).pool  # noqa: B018 - it is read
    assert len(calls) == 1


def test_systems_that_join_make_another(folder):
    Study.open(folder).add(made_runs(1, names="d"))
    first = Study.open(folder).pool
    second = Study.open(folder).pool
    assert isinstance(second.score, np.memmap)
    assert_same(first, second)
    assert second.systems == ("a", "b", "c", "d")


@pytest.mark.parametrize("name", ["pool.json", "score.npy", "documents.arrow"])
def test_a_damaged_one_is_left_aside(folder, name, monkeypatch):
    whole = Study.open(folder).pool
    expected = {n: np.array(getattr(whole, n)) for n in ARRAYS}
    (place,) = kept(folder)
    os.truncate(place / name, 20)
    calls = counted(monkeypatch)
    found = Study.open(folder).pool
    assert len(calls) == 1
    for n, values in expected.items():
        np.testing.assert_array_equal(getattr(found, n), values)


def test_where_it_cannot_be_written_nothing_is_lost(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pool_cache.np, "save", full)
    os.utime(folder / "queries.txt", (1, 1))
    assert len(Study.open(folder).pool.systems) == 3
    assert not kept(folder)


def test_small_studies_keep_none(tmp_path):
    Study.create(tmp_path / "study", made_runs(), measure="DCG@10", goal="rank")
    assert len(Study.open(tmp_path / "study").pool.systems) == 3
    assert not kept(tmp_path / "study")
