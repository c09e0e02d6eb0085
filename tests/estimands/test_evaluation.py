"""Plain evaluation: by hand, by definition, against other programs (see also conformance)."""

from __future__ import annotations

import csv
import io
import itertools
import json
import subprocess
import sys
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.designs.utilities import mean_utility
from evenhand.errors import EvenhandError
from evenhand.estimands.evaluation import Evaluation, evaluate
from evenhand.estimands.pools import pool
from evenhand.estimands.targets import target
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.measures import grammar
from evenhand.measures.linear import P

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="the real data sets are not here")

RUNS = {
    "x": {"q1": {"a": 3.0, "b": 2.0, "c": 1.0}, "q2": {"d": 1.0}},
    "y": {"q1": {"c": 9.0, "e": 9.0}, "q9": {"a": 1.0}},
}
QRELS = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"d": 3, "f": 1}}


def test_by_hand():
    found = evaluate(RUNS, QRELS, ["P@2", "DCG@3", "RBP(p=0.5)", "Gain@2"])
    assert found.systems == ("x", "y")
    assert found.queries == ("q1", "q2")
    assert [str(m) for m in found.measures] == ["P@2", "DCG@3", "RBP(p=0.5)", "Gain@2"]
    # y ties c and e on q1: the larger docid comes first, so c is at rank 2, and e is unjudged.
    expected = [
        [[0.5, 0.5], [0.5, 0.0]],
        [[1 + 2 / 2, 3.0], [2 / np.log2(3), 0.0]],
        [[0.5 + 0.125, 0.5], [0.25, 0.0]],
        [[0.5, 1.5], [1.0, 0.0]],
    ]
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(found.value, found.values.mean(-1))
    assert found.values.dtype == np.float64
    np.testing.assert_array_equal(found.unjudged, np.tile([0.0, 0.5], (4, 1)))


def test_measures_of_whole_lists_by_hand():
    # x ranks a b c on q1 (grades 1 0 2) and d on q2 (grade 3); q2 has f, grade 1, as well.
    names = ["nDCG", "nDCG@1", "nDCG(dcg='exp-log2')@2", "AP", "AP(rel=2)", "AP@1", "R@2", "Rprec"]
    found = evaluate({"x": RUNS["x"]}, QRELS, names)
    ideal = 2 + 1 / np.log2(3)
    second = 3 + 1 / np.log2(3)
    expected = [
        [(1 + 2 / 2) / ideal, 3 / second],
        [1 / 2, 1.0],
        [1 / (3 + 1 / np.log2(3)), 7 / (7 + 1 / np.log2(3))],
        [(1 + 2 / 3) / 2, 1 / 2],
        [1 / 3, 1.0],
        [1 / 2, 1 / 2],
        [1 / 2, 1 / 2],
        [1 / 2, 1 / 2],
    ]
    np.testing.assert_allclose(found.values[:, 0], expected, rtol=0, atol=1e-15)
    # y ranks e (unjudged) and c (grade 2) on q1, both with score 9, and misses q2.
    names = ["MAE", "MSE@1", "Swaps", "wSwaps", "Swaps@1", "Judged", "Judged@1"]
    found = evaluate(RUNS, QRELS, [*names, "P(judged_only=True)@2"])
    expected = [
        [[(2 + 2 + 1) / 3, 2.0], [(9 + 7) / 2, 0]],
        [[4.0, 4.0], [81.0, 0]],
        [[2 / 3, 0], [1.0, 0]],
        [[(1 / 3 + 1 / 6) / 3, 0], [1 / 2, 0]],
        [[0, 0], [0, 0]],
        [[1.0, 1.0], [1 / 2, 0]],
        [[1.0, 1.0], [0, 0]],
        [[1 / 2, 1 / 2], [1 / 2, 0]],
    ]
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-15)
    unjudged = [[0, 0.5], [0, 1], [0, 0.5], [0, 0.5], [0, 1], [0, 0.5], [0, 1], [0, 0]]
    np.testing.assert_array_equal(found.unjudged, unjudged)


def test_notes_of_what_has_nothing_to_find_and_of_faults():
    qrels = {"q1": {"a": 1, "b": 0}, "q2": {"d": 0}}
    found = evaluate(RUNS, qrels, ["P@1", "AP", "nDCG@2", "AP(rel=2)", "Judged"])
    assert found.notes[2:4] == (
        "AP, nDCG@2: without a relevant document, so that every system earns 0: 1 query (q2).",
        "AP(rel=2): without a relevant document, so that every system earns 0: 2 queries (q1, q2).",
    )
    assert not found.values[3].any()
    found = evaluate(RUNS, qrels, ["MAE@1", "Swaps", "P@1"])
    assert found.notes[1:] == (
        "Unanswered by y, which earns 0: 1 query (q2).",
        "MAE@1, Swaps: lower is better, and an unanswered query counts as 0.",
        "MAE@1: 33.3 % of the 3 ranked documents that count are unjudged and count as grade 0, "
        "most of y (100.0 %).",
        "Swaps: 50.0 % of the 6 ranked documents that count are unjudged and count as grade 0, "
        "most of y (100.0 %).",
        "P@1: 33.3 % of the 3 ranked documents that count are unjudged and earn 0, "
        "most of y (100.0 %).",
    )


def test_notes():
    found = evaluate(RUNS, QRELS, "P@2")
    assert found.notes == (
        "Ignored, not among the 2 queries evaluated: 1 query of the runs.",
        "Unanswered by y, which earns 0: 1 query (q2).",
        "P@2: 20.0 % of the 5 ranked documents that count are unjudged and earn 0, "
        "most of y (50.0 %).",
    )
    assert all(note in str(found) for note in found.notes)
    assert evaluate({"x": RUNS["x"]}, QRELS, "P@2").notes == ()
    many = {f"q{i}": {"a": 1.0} for i in range(9)}
    runs = {"all": many, **{f"s{i}": {"q0": {"a": 1.0}} for i in range(7)}}
    notes = evaluate(runs, {**many, "z": {"a": 1}}, "P@1").notes
    assert notes[0] == "Answered by no system, which earns 0: 1 query (z)."
    assert notes[1] == "Unanswered by s0, which earns 0: 8 queries (q1, q2, q3, q4, q5, ...)."
    assert notes[-1] == "2 more of the systems leave queries unanswered."
    assert len(notes) == 7
    read = read_qrels({"q1": {"a": -1, "b": 1}})
    assert evaluate({"x": {"q1": {"b": 1.0}}}, read, "P@1").notes == read.notes


def test_queries_given():
    found = evaluate(RUNS, QRELS, "P@1", queries=["q9", "q1"])
    assert found.queries == ("q1", "q9")
    np.testing.assert_array_equal(found.values, [[[1, 0], [0, 0]]])
    assert "Without a judgment, so that every system earns 0: 1 query (q9)." in found.notes
    assert evaluate(RUNS, QRELS, "P@1", queries=["q2"]).values.tolist() == [[[1.0], [0.0]]]


def test_several_assessors_are_averaged():
    qrels = read_qrels({"u": {"q1": {"a": 1}}, "v": {"q1": {"a": 0}}, "w": {"q1": {"a": 3}}})
    found = evaluate({"x": {"q1": {"a": 1.0}}}, qrels, ["P@1", "DCG@1", "DCG(gains='exp')@1"])
    np.testing.assert_allclose(found.value[:, 0], [2 / 3, 4 / 3, 8 / 3], rtol=1e-15)


def test_several_assessors_of_whole_lists():
    """Sums over pairs of documents expect one assessor of each, drawn independently."""
    said = {"a": [0, 1], "b": [2], "c": [1, 3, 0]}
    qrels = read_qrels(
        {f"u{i}": {"q": {d: g[i] for d, g in said.items() if i < len(g)}} for i in range(3)}
    )
    run = {"x": {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}}
    names = ["AP", "R@2", "Rprec", "nDCG@2", "MAE", "MSE", "Swaps", "wSwaps", "Swaps@2"]
    found = evaluate(run, qrels, names).values[:, 0, 0]
    drawn = [dict(zip(said, g, strict=True)) for g in itertools.product(*said.values())]
    relevant = np.mean([sum(g >= 1 for g in one.values()) for one in drawn])
    expected = [np.mean([plain(m, run["x"]["q"], one) for one in drawn]) for m in names]
    total = np.mean(
        [plain("AP", run["x"]["q"], one) * sum(map(bool, one.values())) for one in drawn]
    )
    expected[0] = total / relevant
    rel = [0.5, 1.0, 2 / 3]
    assert relevant == pytest.approx(sum(rel))
    expected[1] = 1.5 / relevant
    expected[2] = 1.0  # R is 13/6, so that three ranks count
    gain = [0.5, 2.0, 4 / 3]
    expected[3] = (0.5 + 2 / np.log2(3)) / (2 + 4 / 3 / np.log2(3))
    assert gain == [np.mean(g) for g in said.values()]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_measures_are_taken_as_text_or_value_and_once():
    found = evaluate(RUNS, QRELS, ["P_1", P(cutoff=1), "precision@1"])
    assert found.measures == (P(cutoff=1),)
    assert evaluate(RUNS, QRELS, P(cutoff=1)).measures == (P(cutoff=1),)


@pytest.mark.parametrize(
    ("runs", "qrels", "options", "says"),
    [
        (RUNS, QRELS, {"measures": []}, "no measure"),
        (RUNS, QRELS, {"measures": "P@1", "queries": []}, "no queries"),
        (RUNS, {"zz": {"a": 1}}, {"measures": "P@1"}, "no run answers any query"),
        (RUNS, {"q1": {"a": -1}}, {"measures": "P@1"}, "holds no judgment"),
        (pool(read_runs(RUNS), depth=1), QRELS, {"measures": "P@2"}, "looks deeper than the pool"),
        (pool(read_runs(RUNS), depth=1), QRELS, {"measures": "AP@2"}, "looks deeper than the pool"),
        (pool(read_runs(RUNS), depth=1), QRELS, {"measures": "Rprec"}, "looks deeper than the"),
        (
            pool(read_runs(RUNS), depth=1),
            QRELS,
            {"measures": "P(judged_only=True)@1"},
            "looks deeper than the pool",
        ),
        (RUNS, QRELS, {"measures": "MRR"}, "no weighted sum over documents"),
        (RUNS, QRELS, {"measures": "nDCG(gains={0:0,1:1})@2"}, "no gain for grade"),
        (RUNS, QRELS, {"measures": "DCG(gains={0:0,1:1})@2"}, "no gain for grade"),
    ],
)
def test_refusals(runs, qrels, options, says):
    with pytest.raises(EvenhandError, match=says):
        evaluate(runs, qrels, **options)


def test_json_csv_latex():
    one = evaluate(RUNS, QRELS, "P@2")
    assert json.loads(one.to_json()) == {
        "measure": "P@2",
        "systems": [{"system": "x", "value": 0.5}, {"system": "y", "value": 0.25}],
    }
    assert json.loads(one.render("json", per_query=True)) == {
        "measure": "P@2",
        "systems": [
            {"system": "x", "value": 0.5, "queries": {"q1": 0.5, "q2": 0.5}},
            {"system": "y", "value": 0.25, "queries": {"q1": 0.5, "q2": 0.0}},
        ],
    }
    two = evaluate(RUNS, QRELS, ["P@2", "P@1"])
    assert two.to_dict() == {
        "measures": [one.to_dict(), evaluate(RUNS, QRELS, "P@1").to_dict()],
    }
    assert two.render("csv") == "system,P@2,P@1\nx,0.5,1.0\ny,0.25,0.0\n"
    rows = list(csv.reader(io.StringIO(two.render("csv", per_query=True))))
    assert rows[0] == ["system", "query", "P@2", "P@1"]
    assert rows[1:] == [
        ["x", "q1", "0.5", "1.0"],
        ["x", "q2", "0.5", "1.0"],
        ["y", "q1", "0.5", "0.0"],
        ["y", "q2", "0.0", "0.0"],
    ]
    assert r"x & 0.5000 & 1.0000 \\" in two.render("latex")
    assert r"y & q2 & 0.0000 & 0.0000 \\" in two.render("latex", per_query=True)
    shown = two.render("table", per_query=True)
    assert shown.index("2 systems by query") < shown.index("Means over 2 queries")
    assert two.to_frame()["P@2"].tolist() == [0.5, 0.25]
    assert repr(two) == "Evaluation(P@2, P@1 of 2 systems on 2 queries)"


def test_does_not_import_jax():
    code = "import sys, evenhand.estimands.evaluation; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Against other programs

ids = st.sampled_from(["a", "b", "B", "c", "é", "d1", "d10", "d#2", "e", "f"])
lists = st.dictionaries(ids, st.sampled_from([-1.0, 0.0, 0.25, 1e9, 1.0]), min_size=1, max_size=9)
asked = st.sampled_from(["1", "2", "10", "q"])
many_runs = st.dictionaries(
    st.sampled_from(["s", "t", "u"]), st.dictionaries(asked, lists, min_size=1), min_size=1
)
whole = st.dictionaries(
    asked, st.dictionaries(ids, st.integers(-2, 3), min_size=1), min_size=1, max_size=4
)
fractional = st.dictionaries(
    asked, st.dictionaries(ids, st.sampled_from([-0.5, 0.0, 0.3, 1.0, 1.5, 2.25]), min_size=1)
)


def judged(qrels):
    """Whether a judgment is left when negative grades count as unjudged."""
    return any(grade >= 0 for pairs in qrels.values() for grade in pairs.values())


def attempt(runs, qrels, measures) -> Evaluation | None:
    if not judged(qrels):
        return None
    left = {q for q, pairs in qrels.items() if any(g >= 0 for g in pairs.values())}
    if not left & {q for run in runs.values() for q in run}:
        return None
    return evaluate(runs, qrels, measures)


def loop(run, qrels, queries, measure):
    """Equation (1) as it stands, a rank at a time."""
    values = []
    for query in queries:
        order = sorted(
            run.get(query, {}).items(), key=lambda row: (row[1], row[0].encode()), reverse=True
        )
        value = 0.0
        for rank, (document, _) in enumerate(order, start=1):
            grade = qrels.get(query, {}).get(document)
            if grade is not None and grade >= 0:
                at = measure.weight(np.array([rank]))[0]
                value += at * measure.utility(np.array([float(grade)]))[0]
        values.append(value)
    return values


def plain(measure, scores, grades):
    """The value of one list by the definition; grades by document, unjudged ones absent."""
    measure = grammar.measure(measure)
    name, k = type(measure).__name__, measure.cutoff
    order = sorted(scores, key=lambda d: (scores[d], d.encode()), reverse=True)
    rel = getattr(measure, "rel", 1)
    relevant = {d for d in grades if grades[d] >= rel}
    if name == "JudgedP":
        return sum(d in relevant for d in [d for d in order if d in grades][:k]) / k
    top = order[:k]
    if name == "Judged":
        return sum(d in grades for d in top) / max(len(top), 1)
    if name == "Rprec":
        top = order[: len(relevant)]
    if name in ("R", "Rprec"):
        return sum(d in relevant for d in top) / len(relevant) if relevant else 0.0
    if name == "AP":
        precisions = [
            sum(d in relevant for d in top[:r]) / r
            for r in range(1, len(top) + 1)
            if top[r - 1] in relevant
        ]
        return sum(precisions) / len(relevant) if relevant else 0.0
    if name == "nDCG":
        gains = [2.0**g - 1 if measure.gains == "exp" else g for g in grades.values()]
        gain = dict(zip(grades, gains, strict=True))
        best = sorted((g for g in gains if g > 0), reverse=True)[:k]
        ideal = sum(g / np.log2(1 + r) for r, g in enumerate(best, 1))
        found = sum(gain.get(d, 0.0) / np.log2(1 + r) for r, d in enumerate(top, 1))
        return found / ideal if ideal > 0 else 0.0
    grade = [grades.get(d, 0.0) for d in top]
    if name in ("MAE", "MSE"):
        power = 1 if name == "MAE" else 2
        errors = [abs(scores[d] - g) ** power for d, g in zip(top, grade, strict=True)]
        return sum(errors) / max(len(top), 1)
    pairs = list(itertools.combinations(range(1, len(top) + 1), 2))
    swapped = [(i, j) for i, j in pairs if grade[i - 1] < grade[j - 1]]
    weights = [1.0 if name == "Swaps" else 1 / (i * j) for i, j in swapped]
    return sum(weights) / max(len(pairs), 1)


LISTWISE = [
    "nDCG",
    "nDCG@3",
    "nDCG(dcg='exp-log2')@5",
    "AP",
    "AP@2",
    "AP(rel=1.5)",
    "R@2",
    "R(rel=0.3)@4",
    "Rprec",
    "Rprec(rel=2)",
    "Judged",
    "Judged@3",
    "P(judged_only=True)@2",
    "P(rel=0.3,judged_only=True)@4",
    "MAE",
    "MAE@2",
    "MSE",
    "Swaps",
    "Swaps@4",
    "wSwaps",
    "wSwaps@3",
]

LINEAR = [
    "P@3",
    "P(rel=2)@2",
    "P(rel=0.3)@4",
    "DCG",
    "DCG@3",
    "DCG(log='e',gains='exp')@5",
    "Gain@2",
    "RBP(p=0.7)",
]


@given(many_runs, st.one_of(whole, fractional))
@settings(max_examples=150, deadline=None)
def test_equals_a_plain_loop(runs, qrels):
    found = attempt(runs, qrels, LINEAR)
    if found is None:
        return
    for m, measure in enumerate(map(grammar.measure, LINEAR)):
        for j, name in enumerate(found.systems):
            expected = loop(runs[name], qrels, found.queries, measure)
            np.testing.assert_allclose(found.values[m, j], expected, rtol=0, atol=1e-10)


@given(many_runs, st.one_of(whole, fractional), st.sampled_from(["unjudged", "zero", "keep"]))
@settings(max_examples=60, deadline=None)
def test_measures_of_whole_lists_equal_their_definitions(runs, qrels, negative):
    answered = {q for run in runs.values() for q in run}
    if not any(
        g >= 0 or negative != "unjudged" for q in qrels if q in answered for g in qrels[q].values()
    ):
        return
    table = read_qrels(qrels, negative=negative)
    kept = {
        q: {d: max(g, 0) if negative == "zero" else g for d, g in pairs.items()}
        for q, pairs in qrels.items()
    }
    if negative == "unjudged":
        kept = {q: {d: g for d, g in pairs.items() if g >= 0} for q, pairs in kept.items()}
    found = evaluate(runs, table, LISTWISE)
    expected = [
        [[plain(m, runs[s].get(q, {}), kept[q]) for q in found.queries] for s in found.systems]
        for m in LISTWISE
    ]
    np.testing.assert_allclose(found.values, expected, rtol=1e-13, atol=1e-10)
    cells = pool(read_runs(runs), queries=found.queries)
    np.testing.assert_allclose(evaluate(cells, table, LISTWISE).values, found.values, rtol=1e-13)


def test_swaps_of_long_lists_of_many_grades():
    """Lists long enough for every split by a digit of the levels, and unequal."""
    rng = np.random.default_rng(7)
    runs = {
        s: {q: {f"d{i}": float(v) for i, v in enumerate(rng.permutation(n))} for q, n in sizes}
        for s, sizes in (("x", [("1", 150), ("2", 3)]), ("y", [("1", 1), ("2", 211)]))
    }
    qrels = {q: {f"d{i}": float(rng.integers(-3, 30)) / 4 for i in range(180)} for q in ("1", "2")}
    for negative in ("zero", "keep"):
        grades = {
            q: {d: max(g, 0.0) if negative == "zero" else g for d, g in pairs.items()}
            for q, pairs in qrels.items()
        }
        names = ["Swaps", "wSwaps", "Swaps@100", "wSwaps@100"]
        found = evaluate(runs, read_qrels(qrels, negative=negative), names)
        for m, name in enumerate(names):
            expected = [
                [plain(name, runs[s][q], grades[q]) for q in ("1", "2")] for s in ("x", "y")
            ]
            np.testing.assert_allclose(found.values[m], expected, rtol=0, atol=1e-13)


@given(many_runs, whole)
@settings(max_examples=100, deadline=None)
def test_equals_pytrec_eval_and_ir_measures(runs, qrels):
    found = attempt(runs, qrels, ["P@1", "P@5", "P(rel=2)@5"])
    if found is None:
        return
    kept = {q: {d: g for d, g in pairs.items() if g >= 0} for q, pairs in qrels.items()}
    for j, name in enumerate(found.systems):
        for m, (level, k) in enumerate([(1, 1), (1, 5), (2, 5)]):
            scorer = pytrec_eval.RelevanceEvaluator(kept, {f"P.{k}"}, relevance_level=level)
            scores = scorer.evaluate(runs[name])
            expected = [scores.get(q, {}).get(f"P_{k}", 0.0) for q in found.queries]
            np.testing.assert_allclose(found.values[m, j], expected, rtol=0, atol=1e-10)
            expected = by_ir_measures(f"P(rel={level})@{k}", kept, runs[name], found.queries)
            np.testing.assert_allclose(found.values[m, j], expected, rtol=0, atol=1e-10)


def by_ir_measures(measure, qrels, run, queries):
    parsed = ir_measures.parse_measure(measure)
    scores = {m.query_id: m.value for m in ir_measures.iter_calc([parsed], qrels, run)}
    return [scores.get(query, 0.0) for query in queries]


@given(many_runs, whole)
@settings(max_examples=50, deadline=None)
def test_a_pool_gives_what_its_runs_give_and_what_targets_give(runs, qrels):
    measures = ["P@2", "DCG@3", "RBP(p=0.8)@4"]
    queries = sorted(qrels)
    table = read_runs(runs)
    found = attempt(runs, qrels, measures)
    if found is None or not set(queries) & set(table.queries.to_pylist()):
        return
    found = evaluate(table, qrels, measures, queries=queries)
    for depth in (None, 4):
        cells = pool(table, queries=queries, depth=depth)
        again = evaluate(cells, qrels, measures)
        assert again.queries == found.queries
        np.testing.assert_allclose(again.values, found.values, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(again.unjudged, found.unjudged)
        grades = read_qrels(qrels)
        for m, measure in enumerate(measures):
            judged, mean = mean_utility(
                cells.cells_of(grades), grades.grade, grammar.measure(measure)
            )
            utility = np.zeros(len(cells))
            utility[judged] = mean
            values = target(cells, measure).values(utility)
            np.testing.assert_allclose(values, found.value[m], rtol=0, atol=1e-14)


def test_a_sparse_table_of_judgments():
    """Many documents and queries, few judgments: the pairs are then found by another way."""
    rng = np.random.default_rng(5)
    qrels = {f"{q}": {f"d{rng.integers(10**6)}": 1} for q in range(400)}
    run = {q: {d: 1.0, "other": 2.0} for q, pairs in qrels.items() for d in pairs}
    found = evaluate({"x": run}, qrels, "P@2")
    np.testing.assert_array_equal(found.values, np.full((1, 1, 400), 0.5))


# Real collections


@pytest.fixture(scope="module")
def trec8():
    folder = DATA / "trec8-adhoc"
    return read_runs(folder / "runs-top100"), read_qrels(folder / "qrels.trec8.adhoc.gz")


@real
def test_trec8_dcg_of_the_source_paper(trec8):
    found = evaluate(trec8[0], trec8[1], "DCG(log='e')@100")
    value = dict(zip(found.systems, found.value[0], strict=True))
    shown = [f"{value[s]:.3f}" for s in ("mds08a3", "nttd8ale", "weaver2")]
    assert shown == ["6.960", "9.007", "7.484"]


@real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "qrels"),
    [
        ("trec-dl-2021-passage/runs-top100-nist53", "trec-dl-2021-passage/qrels-pass.txt.gz"),
        ("trec-covid-2020/round1/runs-top100", "trec-covid-2020/round1/qrels.covid-round1.txt.gz"),
    ],
)
def test_graded_collections_equal_other_programs(runs, qrels):
    table, judged = read_runs(DATA / runs), read_qrels(DATA / qrels)
    measures = ["P(rel=2)@10", "P@100", "P(rel=2)@20", "DCG@20"]
    found = evaluate(table, judged, measures)
    frame = judged.to_frame().astype({"query": str, "document": str})
    grades = {
        query: dict(zip(rows["document"], rows["grade"].astype(int), strict=True))
        for query, rows in frame.groupby("query")
    }
    at_2 = pytrec_eval.RelevanceEvaluator(grades, {"P.10"}, relevance_level=2)
    at_1 = pytrec_eval.RelevanceEvaluator(grades, {"P.100"})
    chosen = table.systems[::6]
    for name in chosen:
        j = table.systems.index(name)
        rows = table.select(name).to_frame().astype({"query": str, "document": str})
        run = {
            query: dict(zip(part["document"], part["score"], strict=True))
            for query, part in rows.groupby("query")
        }
        first, second = at_2.evaluate(run), at_1.evaluate(run)
        by_hand = loop(run, grades, found.queries, grammar.measure("DCG@20"))
        for values, expected in zip(
            found.values[:, j],
            (
                [first.get(q, {}).get("P_10", 0.0) for q in found.queries],
                [second.get(q, {}).get("P_100", 0.0) for q in found.queries],
                by_ir_measures("P(rel=2)@20", grades, run, found.queries),
                by_hand,
            ),
            strict=True,
        ):
            np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)


@real
def test_rbp_equals_cwl_eval():
    """Made with cwl-eval 1.0.12 through ir_measures 0.4.3, ties broken by docid descending."""
    folders = {
        "trec-dl-2021-passage/runs-top100-nist53": {
            "Fast_ForwardP_2": 0.474599075448738,
            "mono_electra_h3": 0.6087718069078345,
            "uogTrBasePDQ": 0.40013863440232467,
        },
        "trec-covid-2020/round1/runs-top100": {
            "10x10.prf.unipd.it": 0.36806770027284846,
            "DA_IICT_narr_qe": 0.12689342155959013,
            "RUIR-bm25-mt-exp": 0.145867706941262,
            "UP-rrf5rnd1": 0.4282600463021867,
            "irc_entrez": 0.16114998184111656,
            "smith.bm25": 0.310929104715295,
        },
    }
    for folder, expected in folders.items():
        files = [DATA / folder / f"{name}.gz" for name in expected]
        (qrels,) = (DATA / folder).parent.glob("qrels*.gz")
        found = evaluate(read_runs(files), qrels, "RBP(p=0.8,rel=2)")
        np.testing.assert_allclose(found.value[0], list(expected.values()), rtol=0, atol=1e-10)
