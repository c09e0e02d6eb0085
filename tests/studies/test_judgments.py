"""What assessors said: durable, append-only, stored once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.errors import StudyError
from evenhand.sampling.labels import Intake, Judgments
from evenhand.studies import judgments as stores
from evenhand.studies.judgments import JudgmentStore

SOURCE = str(Path(stores.__file__).parents[2])


@pytest.fixture
def store(tmp_path):
    return JudgmentStore.create(tmp_path / "judgments.sqlite")


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Run a script in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 120) -> str:
    """Wait for a process, insist on success, give what it printed."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return out


def rows(store: JudgmentStore) -> list[tuple[str, str, str, float]]:
    found = store.read()
    return list(zip(found.query, found.document, found.assessor, found.grade.tolist(), strict=True))


def execute(store: JudgmentStore, statement: str) -> list[tuple]:
    """Act on the file behind the store's back."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def fill(store: JudgmentStore, n: int = 3) -> list[tuple[str, str, str, float]]:
    store.add(["1"] * n, [f"d{i}" for i in range(n)], np.arange(n), "ann")
    return rows(store)


# What is stored, and what comes back


def test_rows_come_back_in_order_of_arrival(store):
    assert store.add(["9", "1"], ["z", "a"], [2, 0.5], ["ann", "bob"]) == Intake(2, 0, 0)
    assert store.add(["5"], ["é 文#1"], [-1], "") == Intake(1, 0, 0)
    assert rows(store) == [
        ("9", "z", "ann", 2.0),
        ("1", "a", "bob", 0.5),
        ("5", "é 文#1", "", -1.0),
    ]
    assert store.count() == len(store.read()) == 3


def test_an_empty_store(store):
    assert store.count() == len(store.read()) == len(store.history()) == 0
    assert store.read().grade.dtype == np.float64
    assert store.add([], [], [], []) == Intake(0, 0, 0)
    assert list(store.history().to_frame().columns) == [
        *("seq", "query", "document", "assessor", "grade", "time", "source", "current")
    ]


def test_the_same_again_is_known(store):
    kept = fill(store)
    assert store.add(["1"] * 3, ["d0", "d1", "d2"], [0, 1, 2], ["ann"] * 3) == Intake(0, 3, 0)
    assert store.add(["1", "1"], ["d2", "d3"], [2, 3], "ann") == Intake(1, 1, 0)
    assert rows(store) == [*kept, ("1", "d3", "ann", 3.0)]
    assert len(store.history()) == 4


def test_identical_rows_of_one_call_merge(store):
    assert store.add(["1"] * 3, ["a", "b", "a"], [1, 0, 1], "ann") == Intake(2, 1, 0)
    assert store.count() == 2


def test_assessors_may_disagree(store):
    assert store.add(["1", "1"], ["a", "a"], [0, 2], ["ann", "bob"]) == Intake(2, 0, 0)
    assert len(store.read()) == 2
    assert store.count() == 1


@pytest.mark.parametrize("grade", [0.1, 1 / 3, 5e-324, -1.7976931348623157e308, 2**53 + 1.0, -0.0])
def test_grades_are_exact(store, grade):
    store.add(["1"], ["a"], [grade], "ann")
    assert store.read().grade.tolist() == [grade]
    assert store.add(["1"], ["a"], [grade], "ann") == Intake(0, 1, 0)


def test_columns_of_any_kind_are_taken(store):
    store.add(np.array(["1"]), np.array(["a"], dtype=object), np.array([1], dtype=np.int8), ["x"])
    store.add(pandas.Series(["1"]), polars.Series(["b"]), pandas.Series([2]), (n for n in ["x"]))
    assert rows(store) == [("1", "a", "x", 1.0), ("1", "b", "x", 2.0)]
    assert {type(text) for text in store.read().query} == {str}


def test_what_comes_back_is_read_only(store):
    fill(store)
    with pytest.raises(ValueError, match="read-only"):
        store.read().grade[0] = 9
    frame = store.read().to_frame()
    assert list(frame.columns) == ["query", "document", "assessor", "grade", "seq"]
    assert isinstance(store.read(), Judgments)


def test_what_arrived_since_is_told_with_its_source(store):
    assert store.arrivals() == []
    fill(store, 2)
    store.add(["1"], ["d1"], [5], "ann", source="page", revise=True)
    assert [tuple(row) for row in store.arrivals(1)] == [
        (2, "1", "d1", "ann", 0, 1.0, ""),
        (3, "1", "d1", "ann", 1, 5.0, "page"),
    ]
    assert store.arrivals(3) == []


# Another grade for the same pair


def test_another_grade_is_refused_as_a_whole(store):
    kept = fill(store, 4)
    with pytest.raises(StudyError) as caught:
        store.add(
            ["1"] * 5, ["new", "d3", "d1", "d2", "d0"], [0, 0.5, 7, 8, 9], "ann", source="f.tsv"
        )
    assert caught.value.message == (
        "an assessor gives another grade than the stored one; nothing of f.tsv was stored\n"
        "1 d3 by ann: 3, then 0.5\n"
        "1 d1 by ann: 1, then 7\n"
        "1 d2 by ann: 2, then 8\n"
        "... 4 in all"
    )
    assert caught.value.hint == (
        "`--revise` keeps the old grade in the history and counts the new one"
    )
    assert rows(store) == kept


def test_one_other_grade_of_an_unnamed_assessor(store):
    store.add(["1"], ["a"], [1], "")
    with pytest.raises(StudyError) as caught:
        store.add(["1"], ["a"], [2], "")
    assert caught.value.message == (
        "an assessor gives another grade than the stored one; nothing of this call was stored\n"
        "1 a: 1, then 2"
    )


def test_two_grades_in_one_call_are_refused_even_to_revise(store):
    kept = fill(store)
    for revise in (False, True):
        with pytest.raises(StudyError) as caught:
            store.add(["1", "2", "1"], ["d0", "b", "d0"], [0, 1, 2.5], "ann", revise=revise)
        assert caught.value.message == (
            "an assessor gives two grades to one pair; nothing of this call was stored\n"
            "1 d0 by ann: 0, then 2.5"
        )
        assert caught.value.hint
    assert rows(store) == kept


def test_a_revised_grade_counts_and_the_old_one_stays(store):
    fill(store)
    before = datetime.now(UTC)
    for grade in (5, 0):  # back to the first grade: a third row, not a known one
        done = store.add(
            ["1", "1", "1"], ["d0", "d1", "n"], [grade, 1, 1], "ann", source="r.tsv", revise=True
        )
        assert done == Intake(added=int(grade == 5), known=1 + int(grade == 0), revised=1)
    assert rows(store) == [
        ("1", "d1", "ann", 1.0),
        ("1", "d2", "ann", 2.0),
        ("1", "n", "ann", 1.0),
        ("1", "d0", "ann", 0.0),
    ]
    assert store.count() == 4
    frame = store.history().to_frame()
    assert frame["seq"].tolist() == [1, 2, 3, 4, 5, 6]
    first = frame[frame["document"] == "d0"]
    assert first["grade"].tolist() == [0.0, 5.0, 0.0]
    assert first["current"].tolist() == [False, False, True]
    assert first["source"].tolist() == ["", "r.tsv", "r.tsv"]
    assert frame["current"].tolist() == [False, True, True, False, True, True]
    times = [datetime.fromisoformat(time) for time in frame["time"]]
    assert all(time.utcoffset() == timedelta(0) for time in times)
    assert times == sorted(times)
    assert before <= times[-1] <= datetime.now(UTC)
    with pytest.raises(StudyError, match="1 d0 by ann: 0, then 5"):
        store.add(["1"], ["d0"], [5], "ann")


# What cannot be stored


@pytest.mark.parametrize("grade", [np.nan, np.inf, -np.inf, None])
def test_grades_must_be_finite(store, grade):
    with pytest.raises(StudyError) as caught:
        store.add(["1"] * 5, list("abcde"), [0, *[grade] * 4], "ann", source="f.tsv")
    message, *faults, last = caught.value.message.splitlines()
    assert message == "a grade must be a finite number; nothing of f.tsv was stored"
    assert faults[0] == f"1 b by ann: {np.nan if grade is None else grade}"
    assert len(faults) == 3
    assert last == "... 4 in all"
    assert store.count() == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((["1"], ["a", "b"], [1], ["x"]), "columns of one length, got 1, 2, 1, 1 rows"),
        ((["1"], ["a"], [1, 2], "x"), "columns of one length, got 1, 1, 2, 1 rows"),
        ((["1"], ["a"], 1, "x"), "columns of one length"),
        ((["1"], ["a"], [[1]], "x"), "columns of one length"),
        (("1", ["a"], [1], "x"), "query: must be a column of ids, got '1'"),
        ((["1"], ["a"], ["good"], "x"), "grades must be numbers"),
        ((["1", 2], ["a", "b"], [1, 1], "x"), "query, row 2: must be text, got 2"),
        ((["1"], [""], [1], "x"), "document, row 1: must not be empty"),
        ((["1"], ["a\udcff"], [1], "x"), "document, row 1: must be valid Unicode"),
        ((["1"], ["a"], [1], [None]), "assessor, row 1: must be text, got None"),
    ],
)
def test_columns_that_are_none(store, columns, message):
    with pytest.raises(StudyError, match=message) as caught:
        store.add(*columns)
    assert "nothing of this call was stored" in caught.value.message
    assert store.count() == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE judgment SET grade = 9 WHERE document = 'd0'",
        "UPDATE OR IGNORE judgment SET source = 'x'",
        "DELETE FROM judgment",
        "INSERT OR REPLACE INTO judgment SELECT * FROM judgment",
        "INSERT OR REPLACE INTO judgment (query, document, assessor, revision, grade, time, source)"
        " VALUES ('1', 'd0', 'ann', 0, 9.0, '', '')",
        "INSERT INTO judgment (query, document, assessor, revision, grade, time, source)"
        " VALUES ('1', 'x', 'ann', 0, 'high', '', '')",
    ],
)
def test_the_file_refuses_changes(store, statement):
    kept = fill(store)
    with pytest.raises(sqlite3.IntegrityError):
        execute(store, statement)
    assert rows(store) == kept
    assert len(store.history()) == 3


# The file


def test_create_then_open(tmp_path):
    path = tmp_path / "a folder" / "50% #1?.sqlite"
    path.parent.mkdir()
    kept = fill(JudgmentStore.create(str(path)))
    assert rows(JudgmentStore.open(str(path))) == kept
    assert [found.name for found in path.parent.iterdir()] == [path.name]  # nothing left open
    assert execute(JudgmentStore(path), "PRAGMA journal_mode") == [("wal",)]
    with pytest.raises(StudyError, match="the file exists already"):
        JudgmentStore.create(path)
    assert rows(JudgmentStore.open(path)) == kept


def test_a_creation_that_was_killed_is_completed(tmp_path):
    path = tmp_path / "judgments.sqlite"
    path.touch()
    with pytest.raises(StudyError, match="not a judgment store"):
        JudgmentStore.open(path)
    execute(JudgmentStore(path), "PRAGMA journal_mode = WAL")
    assert fill(JudgmentStore.create(path))


def test_what_is_not_a_store(tmp_path, store):
    missing = tmp_path / "missing.sqlite"
    for act in (JudgmentStore.open, lambda path: JudgmentStore(path).add(["1"], ["a"], [1], "x")):
        with pytest.raises(StudyError, match="there is no judgment store here"):
            act(missing)
    assert not missing.exists()
    with pytest.raises(StudyError, match="there is no judgment store here"):
        JudgmentStore.open(tmp_path)
    with pytest.raises(StudyError, match=r"cannot be opened.*no store was made") as caught:
        JudgmentStore.create(tmp_path / "no folder" / "judgments.sqlite")
    assert "folder exists" in caught.value.hint

    text = tmp_path / "qrels.txt"
    text.write_text("401 0 FT911-3 1\n" * 100)
    foreign = JudgmentStore(tmp_path / "foreign.sqlite")
    execute(foreign, "CREATE TABLE grocery (name TEXT)")
    for path in (text, foreign.path):
        kept = path.read_bytes()
        with pytest.raises(StudyError, match="not a judgment store"):
            JudgmentStore.open(path)
        with pytest.raises(StudyError, match=r"exists already|not a judgment store"):
            JudgmentStore.create(path)
        assert path.read_bytes() == kept

    execute(store, "PRAGMA user_version = 2")
    with pytest.raises(StudyError, match=r"newer evenhand \(store version 2") as caught:
        JudgmentStore.open(store.path)
    assert caught.value.hint == "upgrade evenhand"


def test_a_damaged_file(store):
    fill(store, 2000)
    whole = bytearray(store.path.read_bytes())
    whole[8192:] = b"\xa5" * (len(whole) - 8192)
    store.path.write_bytes(whole)
    with pytest.raises(StudyError, match="the file is damaged") as caught:
        store.read()
    assert "restore a copy" in caught.value.hint
    with pytest.raises(StudyError, match=r"is damaged.*nothing of f.tsv was stored"):
        store.add(["1"], ["a"], [1], "ann", source="f.tsv")
    assert store.path.read_bytes() == bytes(whole)

    execute(other := JudgmentStore.create(store.path.with_name("b")), "DROP TABLE judgment")
    with pytest.raises(StudyError, match=r"cannot be used .no such table"):
        other.count()


def test_locked_for_too_long(store, monkeypatch):
    kept = fill(store)
    assert stores._PATIENCE == 30
    monkeypatch.setattr(stores, "_PATIENCE", 0.2)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StudyError, match=r"locked for too long.*nothing of f.tsv") as caught:
            store.add(["1"], ["a"], [1], "ann", source="f.tsv")
        assert "wait" in caught.value.hint
        assert rows(store) == kept  # a writer does not keep readers out
    assert store.add(["1"], ["a"], [1], "ann") == Intake(1, 0, 0)


READ_ONLY = """
import os, sys
from evenhand.errors import StudyError
from evenhand.studies.judgments import JudgmentStore
if os.geteuid() == 0 and len(sys.argv) > 2:
    import urllib.parse  # what the library path may need while it can still be read
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
store = JudgmentStore.open(sys.argv[1])
print(len(store.read()), len(store.history()), store.count())
try:
    store.add(["1"], ["a"], [1], "ann", source="f.tsv")
except StudyError as error:
    print(error.message)
    print(error.hint)
"""


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o777), (0o444, 0o555)])
def test_a_read_only_store_can_be_read(file, folder):
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        place = Path(top) / "study"
        place.mkdir()
        store = JudgmentStore.create(place / "judgments.sqlite")
        kept = fill(store)
        store.path.chmod(file)
        place.chmod(folder)
        counts, message, hint = finish(start(READ_ONLY, store.path, "nobody")).splitlines()
        place.chmod(0o777)
        assert counts == "3 3 3"
        assert "is read-only" in message
        assert message.endswith("nothing of f.tsv was stored")
        assert "make both writable" in hint
        assert rows(store) == kept


@pytest.mark.skipif(os.name != "posix", reason="making links may need rights elsewhere")
def test_a_link_leads_to_the_store(store, tmp_path):
    fill(store)
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder" / "link.sqlite"
    link.symlink_to(store.path)
    (tmp_path / "folder").chmod(0o555)
    with closing(sqlite3.connect(store.path)) as other:  # keeps the newest row in the -wal file
        other.execute("SELECT count(*) FROM judgment").fetchall()
        store.add(["2"], ["new"], [1], "ann")
        counts = finish(start(READ_ONLY, link)).splitlines()[0]
    (tmp_path / "folder").chmod(0o755)
    assert counts == "4 4 4"


FULL = """
import resource, signal, sys
from evenhand.errors import StudyError
from evenhand.studies.judgments import JudgmentStore
store = JudgmentStore.open(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    n = 20_000
    store.add(["2"] * n, [f"d{i}" for i in range(n)], [1] * n, "ann", source="big.tsv")
except StudyError as error:
    print(error.message)
    print(error.hint)
try:
    print(store.add(["3"], ["d"], [1], "ann"))
except StudyError as error:
    print(error.message)
"""


@pytest.mark.skipif(os.name != "posix", reason="resource limits are POSIX's")
@pytest.mark.parametrize("limit", [0, 5_000, 100_000, 400_000])
def test_a_file_that_cannot_grow(store, limit):
    kept = fill(store)
    message, hint, last = finish(start(FULL, store.path, limit)).splitlines()
    assert "the disk could not be read or written" in message
    assert message.endswith("nothing of big.tsv was stored")
    assert "free space" in hint
    if last == "Intake(added=1, known=0, revised=0)":
        kept = [*kept, ("3", "d", "ann", 1.0)]
    else:
        assert last.endswith("nothing of this call was stored")
    assert rows(store) == kept
    assert execute(store, "PRAGMA integrity_check") == [("ok",)]
    assert store.add(["4"], ["d"], [1], "ann") == Intake(1, 0, 0)


def test_a_full_disk(store, monkeypatch):
    kept = fill(store)
    monkeypatch.setattr(stores, "_SETTINGS", stores._SETTINGS + "; PRAGMA max_page_count = 20")
    n = 5_000
    with pytest.raises(StudyError, match=r"the disk is full .*nothing of f.tsv was") as caught:
        store.add(["2"] * n, [f"d{i}" for i in range(n)], [1] * n, "ann", source="f.tsv")
    assert "free some space" in caught.value.hint
    assert rows(store) == kept
    assert store.add(["2"], ["d0"], [1], "ann") == Intake(1, 0, 0)


def test_an_interrupted_call_stores_nothing(store, monkeypatch):
    kept = fill(store)

    class Interrupted:
        @staticmethod
        def now(zone):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stores, "datetime", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.add(["1"], ["d9"], [1], "ann")
    assert rows(store) == kept
    assert store.add(["1"], ["d9"], [1], "ann") == Intake(1, 0, 0)


# Several writers, and killed ones


WRITE = """
import sys
from evenhand.studies.judgments import JudgmentStore
store, name = JudgmentStore.open(sys.argv[1]), sys.argv[2]
known = 0
for batch in range(20):
    own = [f"{name}-{batch}-{i}" for i in range(50)]
    both = [f"both-{batch}-{i}" for i in range(50)]
    done = store.add(["1"] * 100, own + both, [1] * 100, [name] * 50 + ["both"] * 50)
    assert done.added + done.known == 100
    known += done.known
print(known)
"""


def test_two_processes_write_at_once(store):
    writers = [start(WRITE, store.path, name) for name in ("ann", "bob")]
    known = sum(int(finish(writer)) for writer in writers)
    assert known == 1000  # what both gave, one of them found there
    found = store.history()
    assert len(found) == len(set(found.document)) == 3000
    assert set(found.document) == {
        f"{name}-{batch}-{i}"
        for name in ("ann", "bob", "both")
        for batch in range(20)
        for i in range(50)
    }
    assert execute(store, "PRAGMA integrity_check") == [("ok",)]


def test_threads_share_a_store(store):
    def write(name: str) -> None:
        for batch in range(10):
            store.add(["1"] * 20, [f"{batch}-{i}" for i in range(20)], [1] * 20, name)
            assert len(store.read()) >= 20 * (batch + 1)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.read()) == len(store.history()) == 800
    assert store.count() == 200


CREATE = """
import sys
from evenhand.errors import StudyError
from evenhand.studies.judgments import JudgmentStore
try:
    print(JudgmentStore.create(sys.argv[1]).add([sys.argv[2]], ["a"], [1], "x").added)
except StudyError:
    print(0)
"""


def test_one_of_two_creators_wins(tmp_path):
    for i in range(3):
        path = tmp_path / f"{i}.sqlite"
        creators = [start(CREATE, path, name) for name in "ab"]
        won = sum(int(finish(creator)) for creator in creators)
        assert won == JudgmentStore.open(path).count() == 1


ACKNOWLEDGE = """
import sys
from evenhand.studies.judgments import JudgmentStore
store = JudgmentStore.open(sys.argv[1])
for batch in range(int(sys.argv[2]), 10**9):
    store.add([str(batch)] * 40, [f"d{i}" for i in range(40)], [batch] * 40, "ann")
    print(batch, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX's")
def test_killed_writers_lose_nothing(store):
    chance = random.Random(7)
    acknowledged: set[int] = set()
    following = 0
    for _ in range(8):
        writer = start(ACKNOWLEDGE, store.path, following)
        assert writer.stdout is not None
        first = int(writer.stdout.readline())
        timer = threading.Timer(chance.uniform(0, 0.2), writer.send_signal, [signal.SIGKILL])
        timer.start()
        with writer:  # read on where readline stopped: it has taken more lines than it gave
            out, err = writer.stdout.read(), writer.stderr.read() if writer.stderr else ""
        timer.join()
        assert writer.returncode == -signal.SIGKILL, err
        acknowledged |= {first, *(int(line) for line in out.split("\n")[:-1])}

        assert execute(store, "PRAGMA integrity_check") == [("ok",)]
        found = JudgmentStore.open(store.path).read()
        batches, sizes = np.unique(found.query.astype(str), return_counts=True)
        stored = {int(batch) for batch in batches}
        assert acknowledged <= stored  # the last one may be stored and not acknowledged
        assert set(sizes.tolist()) == {40}
        assert len(set(zip(found.query, found.document, strict=True))) == len(found)
        assert len(stored - acknowledged) <= 1
        following = max(acknowledged) + 1  # gives the unacknowledged one again: it is known
    assert len(acknowledged) >= 8


def test_many_rows(store):
    n = 100_000
    query = [str(i // 500) for i in range(n)]
    document = [f"doc-{i * 7919 % 999_983:06d}" for i in range(n)]
    assert store.add(query, document, np.ones(n), "ann") == Intake(n, 0, 0)
    assert store.add(query, document, np.ones(n), "ann") == Intake(0, n, 0)
    assert len(store.read()) == n


def test_no_heavy_imports():
    script = "import sys, evenhand.studies.judgments; print({'jax', 'pandas'} & set(sys.modules))"
    assert finish(start(script)).strip() == "set()"


# Any sequence of acts against a plain model


ACTS = st.lists(
    st.tuples(
        st.lists(
            st.tuples(
                st.sampled_from(["1", "2"]),
                st.sampled_from(["a", "b", "é"]),
                st.sampled_from(["ann", "bob"]),
                st.sampled_from([0.0, 1.0, 0.1]),
            ),
            max_size=4,
        ),
        st.booleans(),
    ),
    max_size=10,
)


@settings(max_examples=60, deadline=None)
@given(acts=ACTS)
def test_any_acts_agree_with_a_dict(acts):
    current: dict[tuple[str, str, str], float] = {}
    history: list[tuple[str, str, str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = JudgmentStore.create(Path(folder) / "judgments.sqlite")
        for given_rows, revise in acts:
            query, document, assessor, grade = (
                [row[column] for row in given_rows] for column in range(4)
            )
            new = dict.fromkeys(given_rows)
            keys = {row[:3] for row in new}
            clash = any(row[:3] in current and current[row[:3]] != row[3] for row in new)
            if len(keys) < len(new) or (clash and not revise):
                with pytest.raises(StudyError):
                    store.add(query, document, grade, assessor, revise=revise)
            else:
                changed = [row for row in new if current.get(row[:3]) != row[3]]
                n_added = sum(row[:3] not in current for row in changed)
                assert store.add(query, document, grade, assessor, revise=revise) == Intake(
                    added=n_added,
                    known=len(given_rows) - len(changed),
                    revised=len(changed) - n_added,
                )
                for row in changed:
                    current.pop(row[:3], None)
                    current[row[:3]] = row[3]
                    history.append(row)
        assert rows(store) == [(*key, grade) for key, grade in current.items()]
        assert store.count() == len({key[:2] for key in current})
        past = store.history()
        columns = (past.query, past.document, past.assessor, past.grade.tolist())
        assert list(zip(*columns, strict=True)) == history
        assert int(past.current.sum()) == len(current)
