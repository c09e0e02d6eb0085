"""Weights of systems over the pool, and the contrasts of a goal, against dense arrays."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.errors import EvenhandError
from evenhand.estimands import goals, targets
from evenhand.estimands.contrasts import norm
from evenhand.estimands.goals import contrast, goal
from evenhand.estimands.pools import pool
from evenhand.estimands.targets import Target, target
from evenhand.formats.runs import read_runs
from evenhand.intervals.pool_moments import events
from evenhand.measures import grammar

RUNS = {
    "x": {"q1": {"a": 3.0, "b": 2.0}, "q2": {"a": 1.0}},
    "y": {"q1": {"b": 9.0, "c": 8.0}},
    "z": {"q2": {"a": 5.0}},
}

MEASURES = ("P@2", "DCG@3", "DCG(log='e')", "Gain@1", "RBP(p=0.6)")
lists = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([0.0, 1.0, 2.5]), min_size=1)
run = st.dictionaries(st.sampled_from(["1", "2", "10"]), lists, min_size=1)
many_runs = st.dictionaries(st.sampled_from(["s", "t", "u", "v"]), run, min_size=1)


def random_target(seed: int, k: int, *, n_queries=4, depth=12, documents=30, measure="DCG@10"):
    rng = np.random.default_rng(seed)
    runs = {
        f"s{j}": {
            f"q{x}": {
                f"d{d}": float(depth - i)
                for i, d in enumerate(rng.choice(documents, depth, replace=False))
            }
            for x in range(n_queries)
            if x == 0 or rng.random() < 0.9
        }
        for j in range(k)
    }
    return target(pool(read_runs(runs)), measure)


def dense(goal_or_target) -> np.ndarray:
    """w, shape (cells, systems), an entry at a time."""
    found = goal_or_target
    w = np.zeros((len(found.pool), len(found.systems)))
    for cell, system, rank in zip(found.pool.cell, found.pool.system, found.pool.rank, strict=True):
        weight = found.measure.weight(np.array([rank]))[0]
        w[cell, system] += weight / len(found.pool.queries)
    return w


def dense_norms(w: np.ndarray, matrix: np.ndarray, importance: np.ndarray) -> np.ndarray:
    return np.sqrt(((w @ matrix.T) ** 2) @ importance)


def test_by_hand():
    found = target(pool(read_runs(RUNS)), "P@2")
    assert found.systems == ("x", "y", "z")
    # Cells: q1 a, q1 b, q1 c, q2 a; every weight is 1/2 over two queries.
    quarter = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 1]]) / 4
    np.testing.assert_array_equal(found.weights(np.arange(4)), quarter)
    np.testing.assert_array_equal(found.weights(np.array([3, 1, 3])), quarter[[3, 1, 3]])
    assert found.weights(np.array([], np.int64)).shape == (0, 3)
    np.testing.assert_array_equal(found.total(), [0.75, 0.5, 0.25])
    inside = np.array([True, False, False, True])
    np.testing.assert_array_equal(found.total(inside), [0.5, 0.0, 0.25])
    np.testing.assert_allclose(found.mean_weight(), quarter.mean(1), rtol=1e-15)
    np.testing.assert_array_equal(found.values(np.array([0.0, 1.0, 2.0, 4.0])), [1.25, 0.75, 1.0])


@pytest.mark.parametrize("measure", ["Judged", "Judged@2", "P(judged_only=True)@2"])
def test_what_is_no_sum_over_documents_is_refused(measure):
    with pytest.raises(EvenhandError, match="is not a sum over documents"):
        target(pool(read_runs(RUNS)), measure)


@given(many_runs, st.sampled_from(MEASURES), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_equals_dense_arrays(runs, measure, seed):
    found = target(pool(read_runs(runs)), measure)
    rng = np.random.default_rng(seed)
    w, cells = dense(found), np.arange(len(found.pool))
    utility, inside = rng.normal(size=len(cells)), rng.random(len(cells)) < 0.5
    close = {"rtol": 0, "atol": 1e-14}
    np.testing.assert_allclose(found.weights(cells), w, **close)
    np.testing.assert_allclose(found.mean_weight(), w.mean(1), **close)
    np.testing.assert_allclose(found.total(), w.sum(0), **close)
    np.testing.assert_allclose(found.total(inside), w[inside].sum(0), **close)
    np.testing.assert_allclose(found.values(utility), utility @ w, **close)
    some = rng.integers(len(cells), size=5)
    np.testing.assert_allclose(found.weights(some), w[some], **close)


@given(many_runs)
@settings(max_examples=50, deadline=None)
def test_the_weights_of_full_precision_lists_sum_to_their_length(runs):
    found = target(pool(read_runs(runs)), "P@3")
    n_queries = len(found.pool.queries)
    lengths = [sum(min(len(docs), 3) for docs in runs[name].values()) for name in found.systems]
    np.testing.assert_allclose(found.total(), np.array(lengths) / 3 / n_queries, rtol=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_alike_is_what_dense_columns_say(seed, monkeypatch):
    monkeypatch.setattr(targets, "_CACHED", 50)  # several stretches of a small pool
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 3, (40, 6)) / 4.0
    weights[:, 3] = weights[:, 1]
    weights[:, 4] = rng.permutation(weights[:, 1])  # the same weights, of other pairs
    weights[:, 5] = weights[:, 0]
    weights[rng.integers(40), 5] += 2.0**-50
    found = random_target(seed, 6)
    made = Target.of_weights(found.pool, found.measure, weights[: len(found.pool)])
    columns = weights[: len(found.pool)].T
    first = [next(i for i in range(6) if (columns[i] == column).all()) for column in columns]
    np.testing.assert_array_equal(made.alike(), first)
    assert first == [0, 1, 2, 1, 4, 5]


def test_systems_that_are_alike(tiny):
    found, _ = tiny("twins")
    assert found.identical() == [[0, 1]]
    np.testing.assert_array_equal(found.alike(), [0, 0, 2])
    runs = {name: {"q": {name[0]: 1.0, "z": 0.0}} for name in ("a1", "b1", "a2", "c", "b2", "a3")}
    found = target(pool(read_runs(runs)), "P@2")
    np.testing.assert_array_equal(found.alike(), [0, 1, 0, 3, 1, 0])
    np.testing.assert_array_equal(tiny("agree")[0].alike(), [0, 1])


def test_a_measure_must_not_look_deeper_than_the_pool():
    cells = pool(read_runs({"x": {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}}), depth=2)
    for measure in ("P@3", "DCG", "RBP(p=0.8)"):
        with pytest.raises(EvenhandError, match="looks deeper than the pool, whose depth is 2"):
            target(cells, measure)
    assert target(cells, "P@2").total() == [1.0]
    # Lists that end before the pool's depth hide nothing.
    short = pool(read_runs({"x": {"q": {"a": 3.0, "b": 2.0}}}), depth=3)
    assert target(short, grammar.measure("P@10")).total() == [0.2]


GOALS = [
    ("absolute", None, ["x", "y", "z"], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    ("baseline", "y", ["x - y", "z - y"], [[1, -1, 0], [0, -1, 1]]),
    *(
        (
            kind,
            None,
            ["x - mean", "y - mean", "z - mean"],
            np.array([[2, -1, -1], [-1, 2, -1], [-1, -1, 2]]) / 3,
        )
        for kind in ("rank", "best", "order")
    ),
]


@pytest.mark.parametrize(("kind", "system", "names", "matrix"), GOALS)
def test_contrasts_of_each_goal(kind, system, names, matrix):
    found = target(pool(read_runs(RUNS)), "P@2")
    made = goal(found, kind, system=system)
    assert made.kind == kind
    assert made.names == tuple(names)
    np.testing.assert_allclose(made.matrix, matrix, rtol=1e-15)
    np.testing.assert_array_equal(made.importance, np.ones(len(names)))
    cells = np.arange(len(found.pool))
    expected = dense(found) @ np.asarray(matrix).T
    np.testing.assert_allclose(made.at(cells), expected, rtol=0, atol=1e-16)
    np.testing.assert_allclose(made.norms(), np.sqrt((expected**2).sum(1)), rtol=1e-14, atol=1e-16)
    assert repr(made) == f"Goal({kind}: {len(names)} contrasts of 3 systems)"


def test_pair():
    found = target(pool(read_runs(RUNS)), "P@2")
    made = goals.pair(found, "z", "x")
    assert made.names == ("z - x",)
    np.testing.assert_array_equal(made.matrix, [[-1, 0, 1]])
    two = target(pool(read_runs({name: RUNS[name] for name in ("y", "z")})), "P@2")
    assert goal(two, "pair").names == ("y - z",)
    np.testing.assert_array_equal(goal(two, "pair").matrix, [[1, -1]])


def test_pairs():
    found = target(pool(read_runs(RUNS)), "P@2")
    made = goals.pairs(found)
    assert made.names == ("x - y", "x - z", "y - z")
    np.testing.assert_array_equal(made.matrix, [[1, -1, 0], [1, 0, -1], [0, 1, -1]])


@pytest.mark.parametrize("k", [2, 3, 7])
def test_ranking_minimises_all_pairs(k):
    """sum over pairs (a_x - a_y)^2 = k * sum_j (a_j - mean)^2, cell by cell."""
    found = random_target(k, k)
    np.testing.assert_allclose(
        goals.pairs(found).norms(), np.sqrt(k) * goals.rank(found).norms(), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda t: goals.pair(t), "needs two systems, got 3"),
        (lambda t: goals.pair(t, "x"), "two different systems, got 'x' and None"),
        (lambda t: goals.pair(t, "x", "x"), "two different systems"),
        (lambda t: goals.pair(t, "x", "w"), "no system named 'w'"),
        (lambda t: goals.baseline(t, "w"), "no system named 'w'"),
        (lambda t: goal(t, "baseline"), "needs a baseline"),
        (lambda t: goal(t, "rank", system="x"), "takes no baseline, got 'x'"),
        (lambda t: goal(t, "worst"), "unknown goal 'worst'"),
        (lambda t: contrast(t, np.ones((1, 2))), r"got shape \(1, 2\)"),
        (lambda t: contrast(t, np.ones((0, 3))), r"got shape \(0, 3\)"),
        (lambda t: contrast(t, np.ones((1, 1, 3))), "got shape"),
        (lambda t: contrast(t, [[1, np.nan, 0]]), "must be finite"),
        (lambda t: contrast(t, [[1, np.inf, 0]]), "must be finite"),
        (lambda t: contrast(t, [[1, -1, 0]], names=["a", "b"]), "as many names"),
        (lambda t: contrast(t, [[1, -1, 0]], importance=[1.0, 1.0]), "as many names"),
        (lambda t: contrast(t, [[1, -1, 0]], importance=[-1.0]), "not negative"),
        (lambda t: contrast(t, [[1, -1, 0]], importance=[np.nan]), "finite and not negative"),
        (lambda t: contrast(t, [[1, -1, 0]], importance=[0.0]), "an importance above 0"),
    ],
)
def test_refusals(make, says):
    with pytest.raises(EvenhandError, match=says):
        make(target(pool(read_runs(RUNS)), "P@2"))


def test_refusals_of_one_system():
    alone = target(pool(read_runs({"x": RUNS["x"]})), "P@2")
    for make, says in (
        (goals.rank, "at least two systems, got 1"),
        (goals.pairs, "at least two systems, got 1"),
        (lambda t: goals.baseline(t, "x"), "no system to compare with"),
        (goals.pair, "needs two systems, got 1"),
    ):
        with pytest.raises(EvenhandError, match=says):
            make(alone)
    assert goals.absolute(alone).norms().shape == (3,)


def test_your_own_contrast():
    found = target(pool(read_runs(RUNS)), "P@2")
    made = contrast(found, [1.0, -0.5, -0.5])
    assert made.names == ("contrast 1",)
    assert made.kind == "contrast"
    weighed = contrast(
        found, [[1, -1, 0], [0, 1, -1]], names=["a", "b"], importance=np.array([4.0, 0.25])
    )
    expected = dense_norms(dense(found), weighed.matrix, weighed.importance)
    np.testing.assert_allclose(weighed.norms(), expected, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 17, 40])
@pytest.mark.parametrize("n_queries", [1, 6])
def test_norms_equal_dense_arrays(k, n_queries):
    found = random_target(100 * k + n_queries, k, n_queries=n_queries)
    w, rng = dense(found), np.random.default_rng(k)
    asked = [
        goals.absolute(found),
        contrast(found, rng.normal(size=(3, k)), importance=[1, 0, 5]),
    ]
    if k > 1:
        asked += [goals.rank(found), goals.baseline(found, "s1"), goals.pairs(found)]
    for made in asked:
        expected = dense_norms(w, made.matrix, made.importance)
        np.testing.assert_allclose(made.norms(), expected, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("k", [2, 40])
def test_norms_over_many_blocks(k):
    found = random_target(k, k, n_queries=60, documents=3000, depth=600 if k == 2 else 60)
    size, n_cells = found.blocks().size, len(found.pool)
    # Blocks of two systems hold 2^16 cells: more names, which return nothing, make them smaller.
    if n_cells <= size:
        cells = found.pool
        wide = tuple(f"n{i}" for i in range(2000 - k))
        found = Target(replace(cells, systems=cells.systems + wide), found.measure, found.weight)
        k = 2000
    assert n_cells > found.blocks().size
    assert len(found.blocks().place) > 1
    w = found.weights(np.arange(n_cells))
    matrix = np.zeros((2, k))
    matrix[0, :2], matrix[1, 1] = (1, -1), 0.5
    made = contrast(found, matrix, importance=[2.0, 3.0])
    expected = dense_norms(w, matrix, made.importance)
    np.testing.assert_allclose(made.norms(), expected, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_blocks_hold_every_entry_once(extra):
    """Pools of one block less one, exactly one, and one more than one block of 256 cells."""
    k = 2100
    documents = {f"d{i:04d}": 1.0 + i for i in range(256 + extra)}
    runs = {"a": {"q": documents}, **{f"s{j}": {"q": {"d0000": 1.0}} for j in range(k - 1)}}
    found = target(pool(read_runs(runs)), "DCG")
    with jax.enable_x64(True):
        blocks = found.blocks()
        assert (blocks.size, len(blocks.place)) == (256, 2 if extra == 1 else 1)
        per_cell = jnp.arange(float(len(blocks.place) * blocks.size))
        w = np.asarray(blocks.map(lambda w, _: w, per_cell)).reshape(-1, k)[: len(found.pool)]
        index = np.asarray(blocks.map(lambda _, i: i, per_cell)).reshape(-1)
    np.testing.assert_array_equal(w, found.weights(np.arange(len(found.pool))))
    np.testing.assert_array_equal(index, np.arange(len(index)))


@pytest.mark.parametrize("k", [2, 3, 7, 10, 31])
def test_exactly_nothing_where_all_systems_agree(k):
    """All lists alike but for one document: comparative contrasts are 0, not a rounding error."""
    shared = {f"q{x}": {f"d{i}": 10.0 - i for i in range(7)} for x in range(3)}
    runs = {f"s{j}": dict(shared) for j in range(k)}
    runs["s1"] = {**shared, "q2": {**shared["q2"], "new": 0.5}}
    found = target(pool(read_runs(runs)), "DCG(log='e')@10")
    agreed = np.ones(len(found.pool), bool)
    agreed[found.pool.find(["q2"], ["new"])] = False
    for made in (
        goals.rank(found),
        goals.pairs(found),
        goals.baseline(found, "s0"),
        contrast(found, np.full((1, k), 0.1 / k) - np.eye(k)[:1] * 0.1),
    ):
        norms = made.norms()
        assert (norms[agreed] == 0).all()
        assert (norms[~agreed] > 0).all()
        assert (made.at(np.flatnonzero(agreed)) == 0).all()
    assert (goals.absolute(found).norms() > 0).all()


def test_the_norm_has_a_gradient_where_nothing_differs():
    with jax.enable_x64(True):
        importance = jnp.array([1.0, 4.0])
        gradient = jax.grad(lambda a: norm(a, importance).sum())
        np.testing.assert_array_equal(gradient(jnp.zeros((2, 2))), np.zeros((2, 2)))
        a = jnp.array([[3.0, 2.0]])
        np.testing.assert_allclose(norm(a, importance), [5.0], rtol=1e-15)
        np.testing.assert_allclose(gradient(a), [[3 / 5, 8 / 5]], rtol=1e-15)


@pytest.mark.parametrize("piece", [1, 50, 150])
def test_a_pool_passes_in_pieces(monkeypatch, piece):
    found = random_target(5, 5, n_queries=6, documents=40, depth=10)
    made = goals.rank(found)
    cells = np.arange(len(found.pool))
    rng = np.random.default_rng(0)
    likely, reach = rng.random((2, len(cells)))
    expected = 20 * likely / likely.sum()

    def both():
        return made.norms(), events(found, made.matrix, likely, expected, reach, "distinct")

    assert list(found.pieces()) == [(0, len(cells))]
    norms, whole = both()
    monkeypatch.setattr(targets, "PIECE", piece)
    bounds = list(found.pieces())
    assert len(bounds) > 1
    assert [first for first, _ in bounds[1:]] == [last for _, last in bounds[:-1]]
    pieced_norms, pieced = both()
    np.testing.assert_allclose(pieced_norms, norms, rtol=1e-13)
    for one, other in zip(pieced, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
