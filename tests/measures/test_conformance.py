"""Values of trec_eval and ir_measures, on their own fixtures, real collections and made runs.

pytrec_eval holds scores in single precision, in which some real runs have ties that they do not
have in double precision. Where runs are real, it is therefore given the place of each document in
an order that is made here, a list at a time.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.errors import EvenhandError
from evenhand.estimands.evaluation import evaluate
from evenhand.formats.prels import read_prels
from evenhand.formats.qrels import Qrels, read_qrels
from evenhand.formats.runs import Runs, read_runs
from evenhand.measures import grammar
from evenhand.measures.base import Measure

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="the real data sets are not here")
TREC8 = ("trec8-adhoc/runs-top100", "trec8-adhoc/qrels.trec8.adhoc.gz")
TREC8_FULL = ("trec8-adhoc/runs-full", TREC8[1])
COVID = (
    "trec-covid-2020/round1/runs-top100",
    "trec-covid-2020/round1/qrels.covid-round1.txt.gz",
)
DL21 = ("trec-dl-2021-passage/runs-top100-nist53", "trec-dl-2021-passage/qrels-pass.txt.gz")


def named(*cutoffs: int) -> list[str]:
    """Names of trec_eval for what it has at cutoffs."""
    return [f"{name}_{k}" for name in ("P", "recall", "ndcg_cut", "map_cut") for k in cutoffs]


SHARED = ["map", "Rprec", "ndcg", *named(1, 5, 10, 20, 100, 1000)]


def at_level(name: str, level: float) -> Measure:
    """A measure of trec_eval with its option -l, which nDCG takes no notice of."""
    measure = grammar.measure(name)
    return replace(measure, rel=level) if hasattr(measure, "rel") else measure


def by_place(table: Runs) -> dict[str, dict[str, dict[str, float]]]:
    """``{system: {query: {document: -place}}}``, ordered by score, then document, descending."""
    queries, documents = table.queries.to_pylist(), table.documents.to_pylist()
    found = {name: defaultdict(list) for name in table.systems}
    columns = (table.system, table.query, table.document, table.score)
    for j, x, d, score in zip(*(column.tolist() for column in columns), strict=True):
        found[table.systems[j]][queries[x]].append((score, documents[d].encode(), documents[d]))
    return {
        name: {
            query: {row[2]: -float(i) for i, row in enumerate(sorted(rows, reverse=True))}
            for query, rows in lists.items()
        }
        for name, lists in found.items()
    }


def by_query(qrels: Qrels) -> dict[str, dict[str, int]]:
    queries, documents = qrels.queries.to_pylist(), qrels.documents.to_pylist()
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for x, d, g in zip(
        qrels.query.tolist(), qrels.document.tolist(), qrels.grade.tolist(), strict=True
    ):
        assert g == int(g)
        found[queries[x]][documents[d]] = int(g)
    return dict(found)


def by_pytrec_eval(run, grades, queries, level) -> np.ndarray:
    """Values of `SHARED`: shape (measures, queries)."""
    scores = pytrec_eval.RelevanceEvaluator(
        grades, {name.replace("_cut_", "_cut.") for name in SHARED}, relevance_level=level
    ).evaluate(run)
    return np.array([[scores.get(q, {}).get(name, 0.0) for q in queries] for name in SHARED])


def by_ir_measures(run, grades, queries, names) -> np.ndarray:
    """Each measure in a call of its own: ir_measures 0.4.3 takes up a set of them in the order of
    their hashes, and gives a plain nDCG the gains of another nDCG that happens to come first.
    """
    expected = []
    for peer in map(ir_measures.parse_measure, names):
        value = {m.query_id: m.value for m in ir_measures.iter_calc([peer], grades, run)}
        expected.append([value.get(query, 0.0) for query in queries])
    return np.array(expected)


@real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "levels", "n_values"),
    [
        (TREC8, (1,), 174_150),
        (TREC8_FULL, (1,), 16_200),
        (COVID, (1, 2), 231_660),
        (DL21, (1, 2, 3), 270_459),
    ],
    ids=["trec8", "trec8-full", "covid", "dl21"],
)
def test_real_runs_equal_trec_eval(files, levels, n_values):
    table, qrels = (
        read(DATA / file) for read, file in zip((read_runs, read_qrels), files, strict=True)
    )
    runs, grades = by_place(table), by_query(qrels)
    n = 0
    for level in levels:
        found = evaluate(table, qrels, [at_level(name, level) for name in SHARED])
        for j, system in enumerate(found.systems):
            expected = by_pytrec_eval(runs[system], grades, found.queries, level)
            np.testing.assert_allclose(found.values[:, j], expected, rtol=0, atol=1e-10)
            n += expected.size
    assert n == n_values


IR_MEASURES = [
    "nDCG",
    "nDCG@10",
    "nDCG(gains={0:0,1:1,2:4,3:11})@20",
    "AP",
    "AP@100",
    "AP(rel=2)",
    "R@100",
    "R(rel=2)@20",
    "Rprec",
    "Rprec(rel=2)",
    "P@10",
    "P(rel=2)@10",
    "P(judged_only=True)@10",
    "P(rel=2,judged_only=True)@50",
    "Judged",
    "Judged@10",
]


@real
@pytest.mark.slow
@pytest.mark.parametrize("files", [COVID, DL21], ids=["covid", "dl21"])
def test_real_runs_equal_ir_measures(files):
    table, qrels = (
        read(DATA / file) for read, file in zip((read_runs, read_qrels), files, strict=True)
    )
    table = table.select(table.systems[::9])
    runs, grades = by_place(table), by_query(qrels)
    found = evaluate(table, qrels, IR_MEASURES)
    assert [str(measure) for measure in found.measures] == IR_MEASURES
    for j, system in enumerate(found.systems):
        expected = by_ir_measures(runs[system], grades, found.queries, IR_MEASURES)
        np.testing.assert_allclose(found.values[:, j], expected, rtol=0, atol=1e-10)


@real
@pytest.mark.parametrize(
    ("files", "names", "n_values"),
    [
        (TREC8, named(5, 10, 15, 20, 30, 100), 154_800),
        (
            TREC8_FULL,
            ["map", "Rprec", "ndcg", *named(5, 10, 15, 20, 30, 100, 200, 500, 1000)],
            23_400,
        ),
    ],
    ids=["trec8", "trec8-full"],
)
def test_trec8_equals_the_official_values(files, names, n_values):
    """Every system, topic and cutoff, to the four decimals that NIST published."""
    found = evaluate(read_runs(DATA / files[0]), read_qrels(DATA / files[1]), names)
    n = 0
    for j, system in enumerate(found.systems):
        path = DATA / "trec8-adhoc" / "official-summary" / f"summary.{system}.newfmt.gz"
        with gzip.open(path, "rt") as lines:
            official = {(name, query): value for name, query, value in map(str.split, lines)}
        for m, name in enumerate(names):
            for query, value in zip(found.queries, found.values[m, j], strict=True):
                assert f"{value:.4f}" == official.get((name, query), "0.0000")
                n += (name, query) in official
            assert f"{found.value[m, j]:.4f}" == official[name, "all"]
    assert n == n_values


@real
def test_trec8_equals_the_official_mean_average_precision():
    lines = (DATA / "trec8-adhoc" / "official-scores.map").read_text().splitlines()
    official = {system: value for system, value in map(str.split, lines)}
    found = evaluate(
        *(f(DATA / file) for f, file in zip((read_runs, read_qrels), TREC8_FULL, strict=True)),
        "map",
    )
    assert len(found.systems) == 12
    for system, value in zip(found.systems, found.value[0], strict=True):
        assert f"{value:.4f}" == official[system]


def first_fields(path: Path, depth: int | None = None) -> dict[str, dict[str, dict[str, float]]]:
    """A run of trec_eval's with junk behind its tags."""
    run: dict[str, dict[str, float]] = defaultdict(dict)
    for line in path.read_text().splitlines():
        query, _, document, _, score, *_ = line.split()
        run[query][document] = float(score)
    for query, scores in run.items():
        kept = sorted(scores, key=lambda d: (scores[d], d.encode()), reverse=True)[:depth]
        run[query] = {document: scores[document] for document in kept}
    return {"made": dict(run)}


@real
@pytest.mark.parametrize(
    ("run", "qrels", "output", "options", "n_values"),
    [
        ("results.test", "qrels.test", "out.test", {}, 11),
        ("results.test", "qrels.test.with-comments", "out.test", {}, 11),
        ("results.comment.test.gz", "qrels.comment.test", "out.comment.test", {}, 11),
        ("results.test", "qrels.test", "out.test.a", {}, 40),
        ("results.test", "qrels.test", "out.test.aq", {}, 160),
        ("results.trunc", "qrels.test", "out.test.aqc", {"complete": True}, 160),
        ("results.trunc", "qrels.test", "out.test.aqcM", {"complete": True, "depth": 100}, 160),
        ("results.test", "qrels.rel_level", "out.test.aql", {"level": 2}, 160),
        ("results.test", "qrels.test", "out.test.meas_params", {}, 36),
    ],
)
def test_trec_eval_fixtures(run, qrels, output, options, n_values):
    """What trec_eval itself is tested with, to its four decimals.

    Its P, recall, ndcg, ndcg_cut, map, map_cut, Rprec and infAP; the arguments behind each output
    are told beside the files.
    """
    folder = DATA / "trec_eval-fixtures"
    expected: dict[str, dict[str, str]] = defaultdict(dict)
    for line in (folder / output).read_text().splitlines():
        name, query, value = line.split()[:3]
        expected[name][query] = value
    wanted = {}
    for name in expected:
        if name == "ndcg_1=3,2=9,4=4.5":
            wanted[name] = grammar.measure("nDCG(gains={0:0,1:3,2:9,3:3,4:4.5})")
        elif name != "rbp":  # which takes another p there, where none is given
            try:
                wanted[name] = at_level(name, options.get("level", 1))
            except EvenhandError:
                continue
    trunc = run == "results.trunc"
    table = read_runs(first_fields(folder / run, options.get("depth")) if trunc else folder / run)
    judged = read_prels(folder / qrels)
    queries = judged.qrels.queries.to_pylist()
    if not options.get("complete"):
        queries = sorted(set(queries) & set(table.queries.to_pylist()))
    found = evaluate(table, judged, list(wanted.values()), queries=queries)
    n = 0
    for name, measure in wanted.items():
        m = found.measures.index(measure)
        for query, value in expected[name].items():
            mean = found.value[m, 0]
            mine = mean if query == "all" else found.values[m, 0, found.queries.index(query)]
            assert f"{mine:.4f}" == value, (name, query)
            n += 1
    assert n == n_values


# Made runs: ties, missing queries, short lists

ids = st.sampled_from(["a", "b", "B", "c", "é", "d1", "d10", "d#2", "e", "f"])
lists = st.dictionaries(ids, st.sampled_from([-1.0, 0.0, 0.25, 1e9, 1.0]), min_size=1, max_size=9)
asked = st.sampled_from(["1", "2", "10", "q"])
runs = st.dictionaries(asked, lists, min_size=1)
quarters = st.dictionaries(
    asked, st.dictionaries(ids, st.integers(-3, 9), min_size=1), min_size=1, max_size=4
)


@given(runs, quarters)
@settings(max_examples=80, deadline=None)
def test_made_runs_equal_trec_eval_and_ir_measures(run, qrels):
    """Whole grades, of which negative ones mean unjudged, and the same over 4.

    trec_eval cuts fractions off, so it gets whole grades: with the level multiplied like the
    grades, all that it counts is the same, and nDCG does not change with the unit of gain.
    """
    grades = {q: {d: g for d, g in pairs.items() if g >= 0} for q, pairs in qrels.items()}
    grades = {q: pairs for q, pairs in grades.items() if pairs}
    if not set(grades) & set(run):
        return
    level = 2
    whole = evaluate({"x": run}, qrels, [at_level(name, level) for name in SHARED])
    expected = by_pytrec_eval(run, grades, whole.queries, level)
    np.testing.assert_allclose(whole.values[:, 0], expected, rtol=0, atol=1e-10)
    fractions = {q: {d: g / 4 for d, g in pairs.items()} for q, pairs in qrels.items()}
    found = evaluate({"x": run}, fractions, [at_level(name, level / 4) for name in SHARED])
    np.testing.assert_allclose(found.values, whole.values, rtol=0, atol=1e-10)

    # exp gains are linear ones of other grades; `Judged` of ir_measures breaks ties its own way.
    raised = {q: {d: 2**g - 1 for d, g in pairs.items()} for q, pairs in grades.items()}
    exp = evaluate({"x": run}, qrels, ["ndcg_burges", "ndcg_burges@5"]).values[:, 0]
    names = ["ndcg", "ndcg_cut_5"]
    expected = by_pytrec_eval(run, raised, whole.queries, 1)[[SHARED.index(m) for m in names]]
    np.testing.assert_allclose(exp, expected, rtol=0, atol=1e-10)
    names = ["P(judged_only=True)@2", "P(rel=2,judged_only=True)@5", "Judged@2", "Judged"]
    placed = by_place(read_runs({"x": run}))["x"]
    found = evaluate({"x": run}, qrels, names)
    expected = by_ir_measures(placed, grades, found.queries, names)
    np.testing.assert_allclose(found.values[:, 0], expected, rtol=0, atol=1e-10)
