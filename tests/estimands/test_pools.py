"""The pool: cells numbered once, found again, and never renumbered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.errors import EvenhandError
from evenhand.estimands import pools
from evenhand.estimands.pools import Pool, codes_in, pool
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs

RUNS = {
    "x": {"q1": {"a": 3.0, "b": 2.0}, "q2": {"a": 1.0}},
    "y": {"q1": {"b": 9.0, "c": 8.0, "a": 7.0}},
}

documents = st.sampled_from(["a", "b", "B", "c", "é", "d1", "d10", "d#2"])
queries = st.sampled_from(["1", "2", "10", "q"])
lists = st.dictionaries(documents, st.sampled_from([-1.0, 0.0, 2.5, 7.0]), min_size=1)
run = st.dictionaries(queries, lists, min_size=1)
names = st.sampled_from(["s", "t", "u", "v"])
many_runs = st.dictionaries(names, run, min_size=1)


def rows(cells: Pool) -> list[tuple]:
    """All entries, by name."""
    query, document = cells.names(cells.cell)
    return sorted(
        zip(
            query,
            document,
            (cells.systems[s] for s in cells.system),
            cells.rank.tolist(),
            cells.score.tolist(),
            strict=True,
        )
    )


def table(cells: Pool) -> list[tuple[str, str]]:
    return list(zip(*cells.names(np.arange(len(cells))), strict=True))


def test_by_hand():
    cells = pool(read_runs(RUNS))
    assert cells.systems == ("x", "y")
    assert cells.queries.to_pylist() == ["q1", "q2"]
    assert cells.documents.to_pylist() == ["a", "b", "c"]
    assert table(cells) == [("q1", "a"), ("q1", "b"), ("q1", "c"), ("q2", "a")]
    np.testing.assert_array_equal(cells.start, [0, 2, 4, 5, 6])
    np.testing.assert_array_equal(cells.cell, [0, 0, 1, 1, 2, 3])
    np.testing.assert_array_equal(cells.system, [0, 1, 0, 1, 1, 0])
    np.testing.assert_array_equal(cells.rank, [1, 3, 2, 1, 2, 1])
    np.testing.assert_array_equal(cells.score, [3.0, 7.0, 2.0, 9.0, 8.0, 1.0])
    assert cells.depth is None
    assert cells.notes == ()
    assert len(cells) == 4
    assert cells.unanswered() == {"y": ["q2"]}
    assert repr(cells) == "Pool(4 query-document pairs of 2 systems on 2 queries)"
    assert cells.system_code("y") == 1


def test_depth_leaves_deeper_ranks_out():
    cells = pool(read_runs(RUNS), depth=2)
    assert table(cells) == [("q1", "a"), ("q1", "b"), ("q1", "c"), ("q2", "a")]
    assert cells.rank.max() == 2
    assert cells.depth == 2
    assert "depth 2" in repr(cells)
    assert table(pool(read_runs(RUNS), depth=1)) == [("q1", "a"), ("q1", "b"), ("q2", "a")]


def test_queries_given_are_the_studys_in_order_of_ids():
    cells = pool(read_runs(RUNS), queries=["q3", "q2", "q2"])
    assert cells.queries.to_pylist() == ["q2", "q3"]
    assert table(cells) == [("q2", "a")]
    assert cells.documents.to_pylist() == ["a"]
    assert cells.unanswered() == {"x": ["q3"], "y": ["q2", "q3"]}
    assert cells.notes == ("Ignored, not among the study's queries: 1 query of the runs.",)


def test_notes_of_the_runs_stay():
    noted = replace(read_runs(RUNS), notes=("said before",))
    assert pool(noted).notes == ("said before",)


def test_refusals():
    runs = read_runs(RUNS)
    for options, says in (
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"queries": []}, "no queries"),
        ({"queries": ["zz"]}, "no run answers any query"),
    ):
        with pytest.raises(EvenhandError, match=says):
            pool(runs, **options)
    with pytest.raises(EvenhandError, match="no system named 'z'") as caught:
        pool(runs).system_code("z")
    assert caught.value.hint == "the systems are x, y"
    wide = pool(read_runs({f"s{i}": {"q": {"a": 1.0}} for i in range(12)}))
    with pytest.raises(EvenhandError, match=r"s7, \.\.\. \(12 in all\)"):
        wide.system_code("z")


@given(many_runs, st.sampled_from([None, 1, 3]))
@settings(max_examples=150, deadline=None)
def test_holds_every_row_once(runs, depth):
    source = read_runs(runs)
    cells = pool(source, depth=depth)
    keep = np.ones(len(source), bool) if depth is None else source.rank <= depth
    expected = sorted(
        (
            source.queries[int(q)].as_py(),
            source.documents[int(d)].as_py(),
            source.systems[s],
            int(r),
            float(score),
        )
        for s, q, d, r, score in zip(
            source.system[keep],
            source.query[keep],
            source.document[keep],
            source.rank[keep],
            source.score[keep],
            strict=True,
        )
    )
    assert rows(cells) == expected
    # Cells are distinct and in order; entries of a cell are in order of systems.
    named = table(cells)
    assert len(set(named)) == len(named)
    assert named == sorted(named, key=lambda pair: [text.encode() for text in pair])
    assert cells.start[0] == 0
    assert cells.start[-1] == len(cells.system)
    assert (np.diff(cells.start) > 0).all()
    inside = np.diff(cells.cell) == 0
    assert (np.diff(cells.system)[inside] > 0).all()
    assert set(cells.documents.to_pylist()) == {d for _, d in named}


@given(many_runs)
@settings(max_examples=100, deadline=None)
def test_names_find_and_locate_are_inverse(runs):
    cells = pool(read_runs(runs))
    every = np.arange(len(cells))
    query, document = cells.names(every)
    np.testing.assert_array_equal(cells.find(query, document), every)
    np.testing.assert_array_equal(cells.find(pa.array(query), pa.array(document)), every)
    np.testing.assert_array_equal(cells.locate(cells.query, cells.document), every)
    outside = cells.find([query[0], "nowhere", query[0]], [document[0], document[0], "nothing"])
    np.testing.assert_array_equal(outside, [0, -1, -1])
    assert len(cells.find([], [])) == 0
    known = set(zip(query, document, strict=True))
    for q in cells.queries.to_pylist():
        for d in cells.documents.to_pylist():
            (at,) = cells.find([q], [d])
            assert (at >= 0) == ((q, d) in known)


def test_cells_of_judgments():
    cells = pool(read_runs(RUNS))
    qrels = read_qrels({"q1": {"c": 1, "zz": 0}, "q2": {"a": 2, "b": 1}, "q7": {"a": 1}})
    np.testing.assert_array_equal(cells.cells_of(qrels), [2, -1, 3, -1, -1])
    wide = replace(qrels, documents=qrels.documents.cast(pa.large_string()))
    np.testing.assert_array_equal(cells.cells_of(wide), [2, -1, 3, -1, -1])


def test_codes_in_tables_of_either_string_type():
    small = pa.array(["b", "z", "a"])
    large = pa.array(["a", "b"], pa.large_string())
    np.testing.assert_array_equal(codes_in(small, large), [1, -1, 0])
    np.testing.assert_array_equal(codes_in(large, small), [2, 0])


@pytest.mark.slow
@given(many_runs, many_runs, st.sampled_from([None, 2]))
@settings(max_examples=150, deadline=None)
def test_cells_keep_their_numbers_when_systems_arrive(first, second, depth):
    later = {**{f"new-{name}": lists for name, lists in second.items()}, **first}
    before = pool(read_runs(first), depth=depth)
    after = pool(read_runs(later), depth=depth, after=before)
    assert table(after)[: len(before)] == table(before)
    assert after.queries.equals(before.queries)
    # The same cells and entries as a pool made afresh, whatever the numbers.
    fresh = pool(read_runs(later), depth=depth, queries=before.queries.to_pylist())
    assert sorted(table(after)) == sorted(table(fresh))
    assert rows(after) == rows(fresh)
    every = np.arange(len(after))
    np.testing.assert_array_equal(after.find(*after.names(every)), every)
    new = table(after)[len(before) :]
    assert new == sorted(new, key=lambda pair: [text.encode() for text in pair])
    # And a third arrival on top of the second.
    third = {**later, "third": {q: {"zz": 1.0, "a": 0.5} for q in before.queries.to_pylist()}}
    again = pool(read_runs(third), depth=depth, after=after)
    assert table(again)[: len(after)] == table(after)
    fresh = pool(read_runs(third), depth=depth, queries=before.queries.to_pylist())
    assert rows(again) == rows(fresh)


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ({"x": {"q1": {"b": 1.0}}}, "documents that none of these runs returns"),
        ({"x": {"q1": {"a": 1.0, "b": 2.0, "c": 3.0}}}, "pairs that none of these runs returns"),
    ],
)
def test_earlier_cells_must_still_be_there(runs, says):
    with pytest.raises(EvenhandError, match=says):
        pool(read_runs(runs), after=pool(read_runs(RUNS)))


@given(many_runs, st.permutations(range(8)))
@settings(max_examples=60, deadline=None)
def test_relabelling_changes_nothing(runs, order):
    """New ids of documents and queries; scores made distinct, since ties are broken by id."""
    ids = ["a", "b", "B", "c", "é", "d1", "d10", "d#2"]
    new = {name: f"doc{order[i]}" for i, name in enumerate(ids)}
    distinct = {
        name: {
            q: {d: score + 0.01 * i for i, (d, score) in enumerate(sorted(scores.items()))}
            for q, scores in lists.items()
        }
        for name, lists in runs.items()
    }
    renamed = {
        name: {f"topic-{q}": {new[d]: s for d, s in scores.items()} for q, scores in lists.items()}
        for name, lists in distinct.items()
    }
    cells, other = pool(read_runs(distinct)), pool(read_runs(renamed))
    query, document = cells.names(np.arange(len(cells)))
    number = other.find([f"topic-{q}" for q in query], [new[d] for d in document])
    assert sorted(number) == list(range(len(cells)))
    entries = zip(number[cells.cell], cells.system, cells.rank, strict=True)
    assert sorted(entries) == sorted(zip(other.cell, other.system, other.rank, strict=True))


@given(many_runs, st.sampled_from([None, 1, 3]), st.sampled_from([1, 2, 7]))
@settings(max_examples=100, deadline=None)
def test_pieces_of_the_queries_make_the_same_pool(runs, depth, piece):
    source = read_runs(runs)
    asked = [None, ["2", "10", "none"]]
    for queries in asked if any("2" in run or "10" in run for run in runs.values()) else asked[:1]:
        whole = pool(source, depth=depth, queries=queries)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pools, "PIECE", piece)
            pieced = pool(source, depth=depth, queries=queries)
        for name in ("query", "document", "start", "system", "rank", "score"):
            one, other = getattr(pieced, name), getattr(whole, name)
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
