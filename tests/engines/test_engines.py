"""Designs and draws in dataframe engines are those of the pool in memory."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import duckdb
import jax
import jax.numpy as jnp
import narwhals as nw
import numpy as np
import polars as pl
import pytest

import evenhand as eh
from evenhand import engines
from evenhand.engines import excerpts
from evenhand.engines.cells import GoalSpec, cells, proposal
from evenhand.engines.line import ordered
from evenhand.errors import EvenhandError, FormatError, SupportError
from evenhand.estimands import goals, targets
from evenhand.measures import grammar
from evenhand.sampling import algorithms, samplers
from evenhand.simulation import make_collection

COLUMNS = ("system", "query", "document", "score")
CONNECTION = duckdb.connect()
ENGINES = {
    "duckdb": lambda columns: CONNECTION.from_arrow(pl.DataFrame(columns).to_arrow()),
    "polars": pl.LazyFrame,
}
GOALS = {
    "absolute": (),
    "pair": ("bm25", "fusion"),
    "baseline": ("bm25",),
    "rank": (),
    "best": (),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs of a small collection, their entries as columns, and the judgments."""
    folder = tmp_path_factory.mktemp("scale")
    make_collection(folder, seed=1, n_queries=20, n_documents=100)
    runs = eh.read_runs(folder / "runs")
    runs = runs.select(sorted(runs.systems, key=str.encode))  # as engines have them
    frame = runs.to_frame()
    columns = {name: frame[name].astype(str).to_list() for name in COLUMNS[:3]}
    columns["score"] = frame["score"].to_list()
    return runs, columns, eh.read_qrels(folder / "qrels.txt")


@pytest.fixture(params=ENGINES)
def engine(request):
    return ENGINES[request.param]


def entries_of(lists: dict[str, dict[str, list[str]]]) -> dict[str, list]:
    """Columns of systems' ranked lists, the best first."""
    rows = [
        (system, query, document, float(len(ranked) - place))
        for system, answers in lists.items()
        for query, ranked in answers.items()
        for place, document in enumerate(ranked)
    ]
    return dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))


def designed(frame, measure, goal, utility="rank", floor=0.1, **options):
    """Every cell with its norm, q and ids, by query and document."""
    with engines.Workspace(frame) as work:
        given = engines.entries(work, grammar.measure(measure), **options)
        table = proposal(work, cells(given, goal, utility), floor)
        ids = given.frame.select("cell_query", "cell_document", "query", "document").unique()
        joined = table.join(ids, on=["cell_query", "cell_document"], how="inner").collect()
    return {name: joined[name].to_list() for name in joined.columns}


def in_memory(runs, measure, kind, named, utility=eh.rank_utility):
    measure = grammar.measure(measure)
    pool = eh.pool(runs, depth=measure.cutoff)
    target = eh.target(pool, measure)
    if kind == "pair":
        goal = goals.pair(target, *named)
    else:
        goal = goals.goal(target, kind, system=(*named, None)[0])
    return goal, eh.design(goal, utility(pool), floor=0.1)


@pytest.mark.parametrize("kind", GOALS)
@pytest.mark.parametrize("measure", ["DCG@20", "RBP(p=0.8)@5"])
def test_norms_and_q_are_those_of_the_pool_in_memory(made, engine, kind, measure):
    runs, columns, _ = made
    found = designed(engine(columns), measure, GoalSpec(kind, GOALS[kind]))
    goal, design = in_memory(runs, measure, kind, GOALS[kind])
    cell = goal.target.pool.find(found["query"], found["document"])
    assert np.array_equal(np.sort(cell), np.arange(len(goal.target.pool)))
    np.testing.assert_allclose(found["norm"], goal.norms()[cell], rtol=1e-12, atol=0)
    np.testing.assert_allclose(found["q"], design.q[cell], rtol=1e-12, atol=0)


def predicted(queries, documents) -> list[float]:
    return [1.0 + sum(map(ord, q + d)) % 7 for q, d in zip(queries, documents, strict=True)]


@pytest.mark.parametrize("utility", ["flat", "column"])
def test_utilities_are_those_of_the_pool_in_memory(made, engine, utility):
    runs, columns, _ = made
    given = {**columns, "predicted": predicted(columns["query"], columns["document"])}
    column = {"second_moment": "predicted"} if utility == "column" else {}
    found = designed(engine(given), "DCG@20", GoalSpec("rank"), utility, **column)
    pool = eh.pool(runs, depth=20)
    second = np.ones(len(pool))
    if utility == "column":
        second = np.array(predicted(*pool.names(np.arange(len(pool)))))
    design = eh.design(eh.rank(eh.target(pool, "DCG@20")), eh.Moments("given", second, second))
    cell = pool.find(found["query"], found["document"])
    np.testing.assert_allclose(found["q"], design.q[cell], rtol=1e-12, atol=0)


@pytest.mark.parametrize("n_systems", [3, 40])
def test_close_weights_keep_their_digits_and_equal_ones_differ_by_exactly_nothing(
    engine, n_systems
):
    depth = 1000
    ranked = [f"d{i:04}" for i in range(depth)]
    swapped = [*ranked[:-2], ranked[-1], ranked[-2]]
    lists = {f"s{j}": {"q": swapped if j == 0 else ranked} for j in range(n_systems)}
    found = designed(engine(entries_of(lists)), f"DCG@{depth}", GoalSpec("rank"))
    norm = dict(zip(found["document"], found["norm"], strict=True))
    first, second = (
        Fraction(float(w)) for w in grammar.measure("DCG").weight(np.array([depth - 1, depth]))
    )
    share = Fraction(n_systems - 1, n_systems)  # sum of squares about the mean: one differs
    exact = float((first - second) ** 2 * share) ** 0.5
    assert norm["d0998"] == pytest.approx(exact, rel=1e-13 * n_systems, abs=0)
    assert norm["d0999"] == pytest.approx(exact, rel=1e-13 * n_systems, abs=0)
    # A sum of squares less a square of the sum would have lost this.
    squares = n_systems * float(second) ** 2
    assert squares * 2.0**-53 / exact**2 > 1e-8
    assert {norm[d] for d in ranked[:-2]} == {0.0}


# UTF-8, UTF-16 and collations sort these in different orders; 0 and -0 are one score.
ODD = {
    "docno": ["a", "B", "é", "z", "Z", "10", "9", "\ufffd", "\U0001f600", "aa", "a b"],
    "score": [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, -0.0, 0.0, -0.0, 7.0, -3.5],
    "tag": ["s"] * 11,
    "qid": ["q"] * 11,
}


def in_files() -> list[str]:
    """The odd documents as `read_runs` ranks them."""
    runs = eh.read_runs({"s": {"q": dict(zip(ODD["docno"], ODD["score"], strict=True))}})
    return [runs.documents[int(code)].as_py() for code in runs.document]


def test_ranks_are_those_of_files(engine):
    assert ranked_by(engine, ODD) == in_files()
    given = {name: ODD[name] for name in ("docno", "tag", "qid")}
    given["rank"] = [3, 1, 2, 2, 5, 6, 7, 8, 9, 10, 11]
    # Ties by document id descending: "é" before "z" in bytes from behind.
    assert ranked_by(engine, given) == ["B", "é", "z", "a", *ODD["docno"][4:]]


def ranked_by(engine, columns) -> list[str]:
    with engines.Workspace(engine(columns)) as work:
        given = engines.entries(work, grammar.measure("DCG"))
        return given.frame.select("rank", "document").sort("rank").collect()["document"].to_list()


def test_what_is_missing_or_odd_is_told(made, engine):
    _, columns, _ = made

    def refused(match, measure="DCG@20", n=10, **changed):
        options = {
            k: changed.pop(k)
            for k in ("goal", "systems", "floor", "sampler", "utility", "depth", "queries")
            if k in changed
        }
        given = {k: v for k, v in {**columns, **changed}.items() if v is not None}
        with pytest.raises(EvenhandError, match=match):
            engines.excerpt(jax.random.key(0), engine(given), measure, n, **options)

    def put(name, value):
        return {name: [value, *columns[name][1:]]}

    refused("document: 1 values are missing", **put("document", None))
    refused("query: 1 values are missing", **put("query", ""))
    refused("score: 1 values are missing or not finite", **put("score", None))
    refused("score: 1 values are missing or not finite", **put("score", float("nan")))
    refused("score: 1 values are missing or not finite", **put("score", float("-inf")))
    refused("score is not a column of numbers", score=["high"] * len(columns["score"]))
    refused("no column for the score or rank", score=None)
    refused("no column for the document", document=None)
    refused(
        "predicted: 1 values are negative",
        utility="predicted",
        predicted=[-1.0] + [1.0] * (len(columns["score"]) - 1),
    )
    refused("no column guess", utility="guess")
    refused("is no sum over documents", measure="nDCG@10")
    refused(r"floor must lie in \(0, 1\], got 0", floor=0.0)
    refused("unknown sampler 'slices'", sampler="slices")
    refused("unknown goal", goal="worst")
    refused("names 1 systems, got 0", goal="baseline")
    refused("no system named 'x'", goal="baseline", systems=("x",))
    refused("names 2 systems, got 7", goal="pair")
    refused("cannot draw 1,000,000 distinct", n=1_000_000)
    refused("at least 1, got 0", n=0)
    refused("looks deeper", depth=10)
    refused("no run answers", queries=["nobody asks this"])
    twice = {name: [*values, values[0]] for name, values in columns.items()}
    refused(f"document {columns['document'][0]} occurs twice in query", **twice)


def test_a_frame_in_memory_is_sent_elsewhere(made):
    _, columns, _ = made
    with pytest.raises(
        FormatError, match="not a lazy frame of DuckDB, PySpark or Polars, got dict"
    ):
        engines.excerpt(jax.random.key(0), columns, "DCG@20", 10)
    pandas = pl.DataFrame(columns).to_pandas()
    with pytest.raises(FormatError, match="read_runs"):
        engines.excerpt(jax.random.key(0), pandas, "DCG@20", 10)


def test_nothing_is_left_in_the_database(made):
    _, columns, _ = made
    connection = duckdb.connect()
    frame = connection.from_arrow(pl.DataFrame(columns).to_arrow())
    engines.excerpt(jax.random.key(0), frame, "DCG@20", 10)
    with pytest.raises(EvenhandError, match="cannot draw"):
        engines.excerpt(jax.random.key(0), frame, "DCG@20", 1_000_000)
    assert connection.sql("select count(*) from duckdb_tables()").fetchall() == [(0,)]


def chances(key: jax.Array, cell: np.ndarray) -> list[int]:
    """Equation (1) of `lines`, by Python's own integers."""
    prime = 2**31 - 1
    factors = np.asarray(jax.random.randint(key, (2, 4), 1, prime)).tolist()
    polynomials = [
        [sum(c * int(x) ** (3 - i) for i, c in enumerate(f)) % prime for x in column]
        for f, column in zip(factors, cell.T, strict=True)
    ]
    return [sum(pair) % prime for pair in zip(*polynomials, strict=True)]


@pytest.mark.parametrize("sampler", engines.SAMPLERS)
def test_draws_are_those_of_the_samplers_on_one_line(made, engine, sampler):
    runs, columns, _ = made
    goal, design = in_memory(runs, "DCG@20", "rank", ())
    pool = goal.target.pool
    # A document's number is its place among those that any system returns for the query.
    within = np.arange(len(pool)) - np.searchsorted(pool.query, pool.query)
    number = np.stack([pool.query, within], axis=1)
    for seed, n in ((0, 60), (2, 400)):
        found = engines.excerpt(jax.random.key(seed), engine(columns), "DCG@20", n, sampler=sampler)
        with jax.enable_x64(True):
            key_order, key_draw = jax.random.split(jax.random.key(seed))
            order = np.lexsort((within, pool.query, chances(key_order, number)))
            expected = np.asarray(samplers.SAMPLERS[sampler].expected(jnp.asarray(design.q), n))
            sure = np.flatnonzero(expected == 1.0) if sampler == "distinct" else order[:0]
            rest = order[~np.isin(order, sure)]
            draw = algorithms.pivotal if sampler == "distinct" else algorithms.independent
            drawn = rest[np.asarray(draw(key_draw, expected[rest], n - len(sure)))]
        cell = pool.find(*found.goal.target.pool.names(np.arange(len(found.q))))
        assert np.array_equal(cell[found.sample.draws], np.concatenate([sure, drawn]))
        np.testing.assert_allclose(found.sample.expected, expected[cell], rtol=1e-12, atol=0)
        np.testing.assert_allclose(found.q, design.q[cell], rtol=1e-12, atol=0)
        assert found.n_cells == np.count_nonzero(design.q)
        mine, theirs = found.goal.target, goal.target
        np.testing.assert_array_equal(mine.weights(np.arange(len(cell))), theirs.weights(cell))
        np.testing.assert_allclose(mine.total(), theirs.total(), rtol=1e-12)
        # The last budget has certain cells, and the others have none.
        assert (len(sure) > 0) == (n == 400 and sampler == "distinct")


LISTS = {
    "x": {"p": ["a", "b"], "q": ["c"]},
    "y": {"p": ["b", "d"], "q": ["c", "e"]},
    "z": {"q": ["e", "c"]},
}


@pytest.mark.parametrize("sampler", engines.SAMPLERS)
def test_every_sample_enumerated_gives_the_truth(monkeypatch, sampler):
    """E[N_c] = E_c and E[estimate] = truth, from the outcome in every piece of the uniforms."""
    key, n, frame = jax.random.key(5), 2, pl.LazyFrame(entries_of(LISTS))
    uniforms = np.zeros((2, n))

    def supplied(key, shape, dtype=None):
        return jnp.asarray(uniforms[: shape[0]] if len(shape) == 2 else uniforms[0])

    # Where the outcome can change: at the ends of cells, as the line in memory has them.
    runs = eh.read_runs(
        {
            s: {q: {d: -float(i) for i, d in enumerate(r)} for q, r in a.items()}
            for s, a in LISTS.items()
        }
    )
    goal, design = in_memory(runs, "DCG@2", "rank", ())
    pool = goal.target.pool
    within = np.arange(len(pool)) - np.searchsorted(pool.query, pool.query)
    with jax.enable_x64(True):
        order_key, _ = jax.random.split(key)
        order = np.lexsort(
            (within, pool.query, chances(order_key, np.stack([pool.query, within], 1)))
        )
        expected = np.asarray(samplers.SAMPLERS[sampler].expected(jnp.asarray(design.q), n))
    assert expected.max() < 1.0
    end = np.cumsum(expected[order])
    edges = [[0.0, 1.0] for _ in range(2 * n)]
    if sampler == "iid":
        edges = [[0.0, *(end[:-1] / n), 1.0]] * n + [[0.0, 1.0]] * n
    else:
        begin = np.concatenate([[0.0], end[:-1]])
        for i in range(1, n + 1):
            k = int(np.searchsorted(end, i - 1e-12))
            before, behind = i - begin[k], max(end[k] - i, 0.0)
            inner = (end - (i - 1)) / (1.0 - before)
            edges[i - 1] = [0.0, *inner[(inner > 1e-9) & (inner < 1 - 1e-9)], 1.0]
            edges[n + i - 1] = [0.0, min(before / (1.0 - behind), 1.0), 1.0]
    pieces = [[(b - a, (a + b) / 2) for a, b in itertools.pairwise(e) if b > a] for e in edges]
    utility = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
    mass, counts, values = 0.0, np.zeros(len(pool)), np.zeros(3)
    monkeypatch.setattr(jax.random, "uniform", supplied)
    for piece in itertools.product(*pieces):
        probability = float(np.prod([length for length, _ in piece]))
        uniforms[:] = np.reshape([middle for _, middle in piece], (2, n))
        found = engines.excerpt(key, frame, "DCG@2", n, sampler=sampler)
        cell = pool.find(*found.goal.target.pool.names(np.arange(len(found.q))))
        np.testing.assert_allclose(found.sample.expected, expected[cell], rtol=1e-12)
        draws = found.sample.draws
        weights = found.goal.target.weights(draws)
        reached = utility[cell[draws]] / found.sample.expected[draws]
        counts += probability * np.bincount(cell[draws], minlength=len(pool))
        values += probability * (weights * reached[:, None]).sum(0)
        mass += probability
    assert mass == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(counts, expected, atol=1e-12)
    np.testing.assert_allclose(values, goal.target.values(utility), atol=1e-12)


def test_a_census_is_the_truth(made):
    runs, columns, qrels = made
    _, design = in_memory(runs, "P@5", "rank", ())
    every = int(np.count_nonzero(design.q))
    census = engines.excerpt(jax.random.key(0), pl.LazyFrame(columns), "P@5", every)
    answer = eh.estimate(census.goal, [census.judge(qrels)])
    truth = eh.evaluate(runs, qrels, ["P@5"]).values[0].mean(1)
    np.testing.assert_allclose(answer.value, truth, rtol=1e-12)
    assert (answer.std_error == 0).all()


@pytest.mark.parametrize("sampler", engines.SAMPLERS)
def test_a_sample_is_estimated_as_in_memory(made, monkeypatch, sampler):
    runs, columns, qrels = made
    goal, design = in_memory(runs, "P@5", "rank", ())

    def both(key, n):
        found = engines.excerpt(key, pl.LazyFrame(columns), "P@5", n, sampler=sampler)
        cell = goal.target.pool.find(*found.goal.target.pool.names(np.arange(len(found.q))))
        with jax.enable_x64(True):
            expected = np.asarray(samplers.SAMPLERS[sampler].expected(jnp.asarray(design.q), n))
        whole = eh.Sample(sampler, cell[found.sample.draws], expected)
        there = eh.estimate(goal, [eh.judge(goal.target, whole, qrels)])
        return found, eh.estimate(found.goal, [found.judge(qrels)]), there

    found, here, there = both(jax.random.key(3), 100)
    for name in ("value", "std_error", "contrast", "contrast_std_error", "covered"):
        np.testing.assert_allclose(getattr(here, name), getattr(there, name), rtol=1e-10)
    for name in ("covariance", "between"):
        near = 1e-12 * np.abs(getattr(there, name)).max()
        np.testing.assert_allclose(getattr(here, name), getattr(there, name), atol=near)
    for name in ("low", "high"):  # ends are held to what a system can have: that is alike, too
        np.testing.assert_allclose(getattr(here, name), getattr(there, name), rtol=1e-10)
    with pytest.raises(SupportError, match="at hand"):
        eh.estimate(found.goal, [found.judge(qrels)], interval="betting")
    control = eh.Control(np.zeros(len(found.q)))
    with pytest.raises(SupportError, match="only some pairs are at hand"):
        eh.estimate(found.goal, [found.judge(qrels)], controls=[control])
    with pytest.raises(SupportError, match="could draw no others"):
        eh.design(found.goal, eh.flat(found.goal.target.pool))

    # A few witnesses for the pool: close, and on either side.
    monkeypatch.setattr(excerpts, "WITNESSES", 200)
    ratios = []
    for key in jax.random.split(jax.random.key(4), 5):
        found, here, there = both(key, 100)
        assert len(found.q) < 350
        ratios.append((here.high - here.low) / (there.high - there.low))
    np.testing.assert_allclose(ratios, 1.0, atol=0.1)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.02)


def test_a_pool_that_is_all_at_hand_has_the_same_moments(made):
    runs, _, qrels = made
    goal, design = in_memory(runs, "P@5", "rank", ())
    target = goal.target
    whole = targets.Whole(target.total(), np.ones(len(target.pool)), len(target.pool))
    same = eh.rank(targets.Target(target.pool, target.measure, target.weight, whole=whole))
    judged = eh.judge(target, eh.draw(jax.random.key(0), design, 100), qrels)
    plain, told = (eh.estimate(one, [judged]).evidence for one in (goal, same))
    one, other = (e.moments(goal.matrix, np.zeros(len(goal.names))) for e in (plain, told))
    for name in ("variance", "third", "fourth", "event", "side", "degrees"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12)
    assert (other.floor <= one.floor + 1e-12).all()
    assert (other.ceiling >= one.ceiling - 1e-12).all()
    assert np.isfinite(other.ceiling).all()


def test_queries_that_nobody_answers_count(made, engine):
    _, columns, _ = made
    asked = [*sorted(set(columns["query"]))[:5], "unanswered"]
    # One system answers none of them.
    idle = ("zero", sorted(set(columns["query"]))[5], "d", 1.0)
    columns = {n: [*columns[n], value] for n, value in zip(COLUMNS, idle, strict=True)}
    found = engines.excerpt(jax.random.key(0), engine(columns), "DCG@20", 30, queries=asked)
    pool = eh.pool(eh.read_runs(pl.DataFrame(columns)), depth=20, queries=asked)
    target = eh.target(pool, "DCG@20")
    assert len(found.goal.target.pool.queries) == 6
    assert found.goal.target.systems == tuple(sorted(target.systems, key=str.encode))
    order = [target.systems.index(name) for name in found.goal.target.systems]
    np.testing.assert_allclose(found.goal.target.total(), target.total()[order], rtol=1e-12)
    assert found.goal.target.total()[-1] == 0


def test_cells_are_in_random_order():
    """Chances are even: the mean rank of each cell over keys.

    60 cells, 400 keys: the sum of squared standard scores is chi-squared with 59 degrees of freedom
    (about); beyond 130 by chance in 1 of 4 million. A cell whose mean place is off by a fifth of
    the line would add (0.2 / 0.289)^2 * 400 = 192.
    """
    number = pl.LazyFrame(
        {"cell_query": np.repeat(np.arange(6), 10), "cell_document": np.tile(np.arange(10), 6)}
    )
    places = []
    for key in jax.random.split(jax.random.key(0), 400):
        chance = ordered(key, nw.from_native(number)).collect()["chance"].to_numpy()
        places.append(chance / (2**31 - 1))
    score = (np.mean(places, 0) - 0.5) * np.sqrt(12 * len(places))
    assert (score**2).sum() < 130


SPARK = """
import json, sys
import jax
from pyspark.sql import SparkSession
from evenhand import engines
from evenhand.measures import measure

path, odd, out = sys.argv[1:]
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "4")
    .getOrCreate()
)
frame = spark.read.parquet(path)
made = engines.excerpt(jax.random.key(2), frame, "DCG@20", 400)
target = made.goal.target
found = {
    "pairs": made.pairs(),
    "draws": made.sample.draws.tolist(),
    "expected": made.sample.expected.tolist(),
    "q": made.q.tolist(),
    "weights": target.weights(made.sample.cells).tolist(),
    "total": target.total().tolist(),
    "cells": made.n_cells,
}
with engines.Workspace(spark.read.parquet(odd)) as work:
    ranked = engines.entries(work, measure("DCG")).frame.select("rank", "document").sort("rank")
    order = ranked.collect()["document"].to_list()
kept = spark.sparkContext._jsc.getPersistentRDDs().size()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
json.dump({"found": found, "order": order, "kept": kept, "executors": executors}, open(out, "w"))
spark.stop()
"""


@pytest.mark.slow
def test_a_cluster_of_two_workers_draws_the_same(made, tmp_path):
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed: pip install evenhand[engines]")
    if shutil.which("java") is None:
        pytest.skip("PySpark needs Java, and there is none")
    _, columns, _ = made
    files = [tmp_path / "runs.parquet", tmp_path / "odd.parquet"]
    for table, path in zip((columns, ODD), files, strict=True):
        pl.DataFrame(table).write_parquet(path)
    script, out = tmp_path / "driver.py", tmp_path / "found.json"
    script.write_text(SPARK)
    source = str(Path(eh.__file__).parents[1])
    paths = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *map(str, (script, *files, out))],
        env={**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(out.read_text())
    assert told["executors"] == 2
    assert told["kept"] == 0
    assert told["order"] == in_files()
    spark, here = (
        told["found"],
        engines.excerpt(jax.random.key(2), pl.LazyFrame(columns), "DCG@20", 400),
    )
    assert [list(names) for names in here.pairs()] == spark["pairs"]
    assert here.sample.draws.tolist() == spark["draws"]
    assert here.n_cells == spark["cells"]
    np.testing.assert_allclose(spark["expected"], here.sample.expected, rtol=1e-12)
    np.testing.assert_allclose(spark["q"], here.q, rtol=1e-12)
    weights = here.goal.target.weights(here.sample.cells)
    np.testing.assert_allclose(spark["weights"], weights, rtol=1e-12)
    np.testing.assert_allclose(spark["total"], here.goal.target.total(), rtol=1e-12)
