"""Inputs of a model: each column by hand, signals and what they may lack."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand.designs.utilities
import evenhand.priors.features
from evenhand.errors import EvenhandError
from evenhand.estimands.pools import pool, stretches
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.priors.features import feature_table, signal

RUNS = {
    "x": {"q1": {"a": 30.0, "b": 20.0, "c": 10.0}, "q2": {"a": 4.0}},
    "y": {"q1": {"b": 1.0, "a": 0.5}, "q2": {"b": 7.0, "a": 7.0}},
}
# Cells: q1 a, q1 b, q1 c, q2 a, q2 b; ties in rank go to the larger id.
RANK_X = np.array([1, 2, 3, 1, np.inf])
RANK_Y = np.array([2, 1, np.inf, 2, 1])
SINGLE = 2.0**-23  # relative rounding of float32


@pytest.fixture
def cells():
    return pool(read_runs(RUNS))


def standardised(column):
    return (column - np.mean(column)) / np.std(column)


def votes(rank, depth):
    return np.where(np.isinf(rank), 0.0, 1 - np.log(np.minimum(rank, 99)) / np.log(1 + depth))


def column(table, name):
    return table.values[:, table.names.index(name)]


def by_hand(depth):
    mean = (votes(RANK_X, depth) + votes(RANK_Y, depth)) / 2
    return {
        "votes": mean,
        "votes^2": mean**2,
        "reciprocal": np.sqrt((1 / RANK_X + 1 / RANK_Y) / 2),
        "fusion": (1 / (60 + RANK_X) + 1 / (60 + RANK_Y)) / 2,
        "returned": np.log([1, 1, 0.5, 1, 0.5]),
        "best": np.log(np.minimum(RANK_X, RANK_Y)),
        # x by scaled score 1, 0.5, 0, 1, -; y 0, 1, -, 1, 1 (documents that all tie count as 1).
        "score": np.array([1, 1.5, 0, 2, 1]) / 2,
    }


def test_columns_by_hand(cells):
    table = feature_table(cells)
    expected = by_hand(depth=3)  # nothing was cut: the deepest rank
    assert table.names == tuple(expected)
    assert table.values.dtype == np.float32
    for name, values in expected.items():
        np.testing.assert_allclose(
            column(table, name), standardised(values), rtol=2e-6, atol=2e-7, err_msg=name
        )


def test_votes_know_the_depth():
    # Beyond the depth nothing counts, and the depth asked for scales the votes, reached or not.
    assert feature_table(pool(read_runs(RUNS), depth=2)).depth == 2
    deep = feature_table(pool(read_runs(RUNS), depth=10))
    assert deep.depth == 10
    np.testing.assert_allclose(
        column(deep, "votes"), standardised(by_hand(10)["votes"]), rtol=2e-6, atol=2e-7
    )
    rows = deep.rows(np.arange(5))
    np.testing.assert_allclose(rows.votes[:, 0], votes(RANK_X, 10), rtol=SINGLE)
    np.testing.assert_allclose(rows.votes[:, 1], votes(RANK_Y, 10), rtol=SINGLE)


def test_every_column_is_standardised():
    rng = np.random.default_rng(0)
    runs = {
        name: {f"q{q}": {f"d{d}": s for d, s in enumerate(rng.normal(size=30))} for q in range(5)}
        for name in "xyz"
    }
    pooled = pool(read_runs(runs), depth=20)
    some = np.where(rng.random(len(pooled)) < 0.5, rng.normal(size=len(pooled)), np.nan)
    table = feature_table(pooled, {"clicks": some})
    np.testing.assert_allclose(table.values.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(table.values.std(0), 1, rtol=1e-5)


def test_a_constant_column_is_zero(cells):
    # A column that says nothing must not be blown up to noise of deviation 1.
    one = pool(read_runs({"x": {"q1": {"a": 1.0}, "q2": {"b": 5.0}}}))
    np.testing.assert_array_equal(feature_table(one).values, 0)
    table = feature_table(cells, {"same": np.full(5, 0.1), "only": np.array([np.nan, 3, 3, 3, 3])})
    for name in ("same", "same^2", "only", "only^2"):
        np.testing.assert_array_equal(column(table, name), 0, err_msg=name)
    assert column(table, "only known").std() > 0


def test_signals(cells):
    full, part = np.array([1.0, 2, 4, 8, 16]), np.array([1.0, np.nan, 3, 8, np.inf])
    table = feature_table(cells, {"llm": full, "clicks": part})
    assert table.names[7:] == ("llm", "llm^2", "clicks", "clicks^2", "clicks known")
    z = standardised(full)
    np.testing.assert_allclose(column(table, "llm"), z, rtol=1e-6)
    np.testing.assert_allclose(column(table, "llm^2"), standardised(z**2), rtol=1e-5)
    filled = standardised([1, 4, 3, 8, 4])  # 4 is the mean of those known: 1, 3 and 8
    np.testing.assert_allclose(column(table, "clicks"), filled, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        column(table, "clicks known"), standardised([1.0, 0, 1, 1, 0]), rtol=1e-6
    )
    # The pool's own columns do not move.
    np.testing.assert_array_equal(table.values[:, :7], feature_table(cells).values)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.ones(4), "'llm' must have a value for some of the 5 pairs, got 4 of 4"),
        (np.ones((5, 1)), "'llm' must have a value for some of the 5 pairs"),
        (np.full(5, np.nan), "'llm' must have a value for some of the 5 pairs, got 0 of 5"),
    ],
)
def test_signals_that_are_refused(cells, given, says):
    with pytest.raises(EvenhandError, match=says):
        feature_table(cells, {"llm": given})


def test_a_signal_from_a_table(cells):
    # Two predictors of one pair are averaged; a pair outside the pool is left out.
    table = read_qrels(
        {"m1": {"q1": {"a": 3, "zz": 9}, "q2": {"b": 1}}, "m2": {"q1": {"a": 0}, "q9": {"a": 5}}}
    )
    np.testing.assert_array_equal(signal(cells, table), [1.5, np.nan, np.nan, np.nan, 1])
    with pytest.raises(EvenhandError, match="is among the 5 pairs of the pool") as caught:
        signal(cells, read_qrels({"q9": {"a": 1}}))
    assert "check that its query and document ids" in caught.value.hint


def test_rows_are_filled_up(cells):
    table = feature_table(cells)
    wanted = np.array([4, 0, 0, 2])
    rows, filled = table.rows(wanted), table.rows(wanted, 7)
    assert rows.n_queries == filled.n_queries == 2
    np.testing.assert_array_equal(rows.values, table.values[wanted])
    np.testing.assert_allclose(rows.votes[:, 0], votes(RANK_X, 3)[wanted], rtol=SINGLE)
    np.testing.assert_allclose(rows.votes[:, 1], votes(RANK_Y, 3)[wanted], rtol=SINGLE)
    np.testing.assert_array_equal(rows.query, [1, 0, 0, 0])
    for name in ("values", "votes", "query"):
        short, long = getattr(rows, name), getattr(filled, name)
        assert long.dtype == short.dtype
        assert len(long) == 7
        np.testing.assert_array_equal(long[:4], short)
        np.testing.assert_array_equal(long[4:], 0)
    assert rows.values.dtype == rows.votes.dtype == np.float32
    taken = rows.take(np.array([3, 1]))
    np.testing.assert_array_equal(taken.values, rows.values[[3, 1]])
    np.testing.assert_array_equal(taken.query, [0, 0])
    assert len(table.rows(np.zeros(0, np.int64), 3).values) == 3


def test_names_of_documents_say_nothing():
    # No scores tie, so that only the numbering of the cells can change.
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(3, 4, 12))
    renamed = rng.permutation(12)

    def made(names):
        runs = {
            f"s{j}": {
                f"q{q}": {f"d{names[d]:02}": scores[j, q, d] for d in range(12) if (d + j + q) % 3}
                for q in range(4)
            }
            for j in range(3)
        }
        pooled = pool(read_runs(runs), depth=6)
        return feature_table(pooled, {"top": np.arange(len(pooled)) * 0.0})

    plain, other = made(np.arange(12)), made(renamed)
    queries, documents = plain.pool.names(np.arange(len(plain.pool)))
    there = other.pool.find(queries, [f"d{renamed[int(d[1:])]:02}" for d in documents])
    assert sorted(there) == list(range(len(plain.pool)))
    np.testing.assert_allclose(other.values[there], plain.values, rtol=1e-5, atol=1e-6)
    mine, theirs = plain.rows(np.arange(len(there))), other.rows(there)
    np.testing.assert_allclose(theirs.votes, mine.votes, rtol=1e-15)
    np.testing.assert_array_equal(theirs.query, mine.query)


def test_systems_that_came_later_betray_nothing():
    # Features of the first two systems are those of a pool that knows no other.
    early = pool(read_runs(RUNS), depth=5)
    late = {"zz": {q: {f"new{i}": 1.0 + i for i in range(4)} for q in next(iter(RUNS.values()))}}
    both = pool(read_runs(RUNS, late), depth=5, after=early)
    assert len(both) > len(early)
    whole, part = feature_table(early), feature_table(both, systems=early.systems)
    old = np.arange(len(early))
    np.testing.assert_array_equal(part.values[old], whole.values)
    np.testing.assert_array_equal(part.rows(old).votes, whole.rows(old).votes)
    assert np.isfinite(part.values).all()
    assert np.abs(feature_table(both).values[old] - whole.values).max() > 0.01


@pytest.mark.parametrize("piece", [1, 7, 20])
def test_pieces_of_a_pool_make_the_same_features(monkeypatch, piece):
    rng = np.random.default_rng(0)
    runs = {
        f"s{j}": {f"q{q}": {f"d{d}": rng.random() for d in range(9)} for q in range(3)}
        for j in range(3)
    }
    cells = pool(read_runs(runs), depth=6)
    whole = feature_table(cells, systems=["s0", "s2"])
    monkeypatch.setattr(evenhand.priors.features, "PIECE", piece)
    monkeypatch.setattr(evenhand.designs.utilities, "PIECE", piece)
    assert len(list(stretches(cells.start, piece))) > 1
    np.testing.assert_array_equal(feature_table(cells, systems=["s0", "s2"]).values, whole.values)
