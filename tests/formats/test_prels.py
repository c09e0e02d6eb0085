"""Judgments of samples: what their files tell, and TREC's estimates beside TREC's programs."""

from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.cli import main
from evenhand.errors import EvenhandError, FormatError
from evenhand.estimands.evaluation import evaluate
from evenhand.formats.prels import read_prels
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.measures import grammar
from evenhand.measures.grammar import sampled

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="the real data sets are not here")

STRATA = """\
1 0 a 1 1
1 0 b 1 0
1 0 c 1 2
1 0 d 2 1
1 0 e 2 -1
1 0 f 2 0
1 0 g 2 -1
1 0 h 3 2
1 0 i 3 -1
1 0 j 3 -1
1 0 k 3 -1
2 0 a 1 0
2 0 b 2 -1
2 0 c 2 1
2 0 d 2 -1
2 0 e 1 2
"""
PRELS = """\
1 a 1 1 0.25
1 b 0 1 0.5
1 c 2 0 0.3
1 d 1 2 0.125
1 h 1 1 0.4
2 a 0 1 1
2 c 1 1 0.2
2 e 2 1 0.9
2 z 1 1 NA
3 a 0 1 0.5
"""
RUN = "".join(
    f"{query} Q0 {document} 1 {20 - i} r\n"
    for query, documents in (("1", "edxaifhc"), ("2", "bczae"), ("3", "a"))
    for i, document in enumerate(documents)
)


@pytest.fixture
def put(tmp_path):
    def put(name, text):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
        return str(path)

    return put


def fault(function, *arguments, kind=FormatError, **options):
    with pytest.raises(kind) as caught:
        function(*arguments, **options)
    return caught.value


def rows(prels):
    names = prels.queries.to_pylist(), prels.documents.to_pylist()
    return {
        (names[0][q], names[1][d]): (s, p)
        for q, d, s, p in zip(
            prels.query, prels.document, prels.stratum.tolist(), prels.probability, strict=True
        )
    }


# Reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["q.txt", "q.gz"])
def test_what_strata_tell(put, name):
    prels = read_prels(put(name, STRATA))
    found = rows(prels)
    assert len(prels) == 16
    assert prels.stratified
    # Strata of one name in two queries are two.
    assert [found["1", d][0] for d in "adh"] == [0, 1, 2]
    assert [found["2", d][0] for d in "ab"] == [3, 4]
    assert [found["1", d][1] for d in "abcdefghijk"] == [1.0] * 3 + [0.5] * 4 + [0.25] * 4
    assert found["2", "d"][1] == 1 / 3
    assert len(prels.qrels) == 9
    assert prels.notes == ()


def test_what_prels_tell(put):
    prels = read_prels(put("p.txt", PRELS))
    found = rows(prels)
    assert not prels.stratified
    assert len(prels) == len(prels.qrels) == 10
    assert found["1", "a"][1] == 0.25
    # Chosen without chance, by MTC alone and beside the sampler.
    assert found["1", "c"][1] == found["1", "d"][1] == 1
    assert np.isnan(found["2", "z"][1])
    assert [note.split(":")[0] for note in prels.notes] == [
        "2 judged by the methods 0 and 2, which choose without chance",
        "1 judged with an unknown probability",
    ]


def test_grades_of_prels_are_read_whatever_their_probabilities(put):
    text = PRELS.replace(" NA", " ?")
    assert len(read_qrels(put("p.txt", text))) == 10
    assert "p.txt:9" in fault(read_prels, put("p.txt", text)).message


def test_what_qrels_tell(put):
    text = "1 0 a 1\n1 0 b -1\n1 0 c -2\n1 0 d 0\n2 0 a 1\n2 0 b -1\n"
    found = rows(read_prels(put("q.txt", text)))
    assert [p for _, p in found.values()] == [0.5] * 6
    assert len({s for s, _ in found.values()}) == 2
    blank = read_prels(put("q.tsv", "qid\tdocid\tgrade\n1\ta\t1\n1\tb\t\n"))
    assert blank.probability.tolist() == [0.5, 0.5]
    whole = read_prels({"1": {"a": 1}})
    assert whole.probability.tolist() == [1.0]
    assert "counts as judged" in whole.notes[0]


def test_a_stratum_without_a_judged_pair_is_told(put):
    prels = read_prels(put("q.txt", "1 0 a 1 1\n1 0 b 2 -1\n1 0 c 2 -1\n"))
    assert prels.notes == (
        "1 of 2 strata have no judged pair: what estimates say of their 2 pairs is a guess.",
    )


@pytest.mark.parametrize(
    ("text", "says", "cure"),
    [
        ("1 a 1 1 0\n", 'p.txt:1: prob is not above 0 and at most 1, got "0"', "NA"),
        ("1 a 1 1 0.5\n\n# c\n1 b 1 1 1.5\n", 'p.txt:4: prob is not above 0 .* got "1.5"', "NA"),
        ("1 a 1 1 x\n", 'p.txt:1: prob is not .* got "x"', "NA"),
        ("1 a 1 1 nan\n1 b 1 1 inf\n", "p.txt:2: prob", "NA"),
        ("1 a x 1 1\n", "p.txt:1: grade is not a number", ""),
        ("1 a 1 1 .5\n1 b 0 1 1\n1 a 1 1 .4\n", "p.txt:3: 1 a has another probability", "drop"),
        ("1 0 a 1 1\n1 0 b 1 0\n1 0 a 2 1\n", "p.txt:3: 1 a has another stratum", "drop"),
        ("1 0 a 1 0.25\n1 0 b 0 1\n", "p.txt:1: expected a grade in the fifth .*0.25", "prels"),
        ("1 0 a 1\n1 0 b 1 1\n", "p.txt:2: expected 4 fields", ""),
        ("", "no rows", ""),
    ],
)
def test_faults_have_their_line_and_cure(put, text, says, cure):
    error = fault(read_prels, put("p.txt", text))
    assert re.search(says, error.message), error.message
    assert cure in error.hint


def test_a_probability_matters_only_where_something_is_judged(put):
    prels = read_prels(put("p.txt", "1 a 1 1 0.5\n1 b -1 1 0\n"))
    assert len(prels.qrels) == 1


def test_prels_beside_another_kind(put):
    error = fault(read_prels, put("p.txt", PRELS), put("q.txt", STRATA))
    assert "q.txt tells no probabilities" in error.message
    assert "one at a time" in error.hint


@real
def test_real_prels():
    prels = read_prels(DATA / "trec2009-web-prels" / "prels.web.1-50.txt.gz")
    assert (len(prels), len(prels.queries), prels.notes) == (13_118, 50, ())
    assert int(np.sum(prels.probability == 1)) == 10_620
    assert prels.probability.min() == 0.00172549053372166
    # The number of relevant documents of topic 1, summed line by line.
    text = gzip.open(DATA / "trec2009-web-prels" / "prels.web.1-50.txt.gz", "rt").read()
    lines = [line.split() for line in text.splitlines()]
    by_hand = sum(1 / float(p) for q, _, g, _, p in lines if q == "1" and int(g) > 0)
    run = {"x": {"1": {d: 1.0 for q, d, *_ in lines if q == "1"}}}
    found = evaluate(run, prels, ["statR@1000", "statP@1000"], queries=["1"]).values[:, 0, 0]
    assert found[0] == pytest.approx(1, rel=1e-12)
    assert found[1] * 1000 == pytest.approx(by_hand, rel=1e-12)


# Values of TREC's programs ------------------------------------------------------------------------


def test_values_of_sample_eval(put):
    # Printed by the arithmetic of NIST's sample_eval.pl (version of October 2011) for these two
    # files, by query; with its maxResultSize 1000, and 4. (At 4 its ideal DCG has a term of rank 6,
    # which is beyond the 4 that it says it allows: not so here, hence xinfAP alone.)
    runs, prels = read_runs(put("r.txt", RUN)), read_prels(put("q.txt", STRATA))
    found = evaluate(runs, prels, ["xinfAP@1000", "infNDCG@1000", "xinfAP", "infNDCG"])
    expected = [[0.620159421621, 0.649998500045], [0.484116378570, 0.571530074775]]
    np.testing.assert_allclose(found.values[:2, 0], expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.values[2:], found.values[:2])
    cut = evaluate(runs, prels, "xinfAP@4")
    np.testing.assert_allclose(cut.values[0, 0], [0.260415416704, 0.5], rtol=0, atol=1e-12)


def test_values_of_the_million_query_tracks_program(put):
    # Printed by the arithmetic of statAP_MQ_eval_v3.pl for these two files, its cutoff set to 3; it
    # leaves the third query out, which has no relevant document.
    names = ["statAP", "statRprec", "statP@3"]
    expected = [[0.671218487395, 0.627272727273], [1.0, 1.0], [1 / 3, 5 / 3]]
    found = evaluate(read_runs(put("r.txt", RUN)), read_prels(put("p.txt", PRELS)), names)
    np.testing.assert_allclose(found.values[:, 0, :2], expected, rtol=0, atol=1e-12)
    assert not found.values[:, 0, 2].any()
    assert any("without a relevant document" in note for note in found.notes)


def by_trec_eval(run, grades, queries):
    found = pytrec_eval.RelevanceEvaluator(grades, {"infAP"}).evaluate(run)
    return [found[q]["infAP"] if q in found else 0.0 for q in queries]


def part_of(grades, share, seed):
    rng = np.random.default_rng(seed)
    return {
        query: {d: g if rng.random() < share else -1 for d, g in sorted(of.items())}
        for query, of in grades.items()
    }


def lines_of(path):
    opened = gzip.open(path, "rt") if str(path).endswith("gz") else open(path, encoding="utf-8")
    with opened as file:
        return [line.split() for line in file]


@real
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
@pytest.mark.parametrize(
    ("run", "qrels"),
    [
        ("trec_eval-fixtures/results.test", "trec_eval-fixtures/qrels.test"),
        ("trec8-adhoc/runs-top100/input.att99atc.gz", "trec8-adhoc/qrels.trec8.adhoc.gz"),
    ],
)
def test_infap_is_trec_evals(run, qrels, share):
    grades: dict[str, dict[str, int]] = {}
    scores: dict[str, dict[str, float]] = {}
    for query, _, document, grade in lines_of(DATA / qrels):
        grades.setdefault(query, {})[document] = int(grade)
    for query, _, document, _, score, _ in lines_of(DATA / run):
        # pytrec_eval holds scores in single precision.
        scores.setdefault(query, {})[document] = float(np.float32(score))
    grades = part_of(grades, share, 3)
    found = evaluate({"x": scores}, read_prels(grades), "infAP")
    expected = by_trec_eval(scores, grades, found.queries)
    assert max(expected) > 0.1
    np.testing.assert_allclose(found.values[0, 0], expected, rtol=0, atol=1e-12)


# Identities ---------------------------------------------------------------------------------------

GRADE = st.integers(-1, 2)
POOL = st.dictionaries(
    st.sampled_from("abcdefghijkl"), st.tuples(GRADE, st.integers(0, 2)), min_size=1
)


def evaluated(pool, order, names, line):
    """Values of one list of one query; `line` makes a line of a pooled document."""
    run = {"x": {"q": {d: -float(i) for i, d in enumerate(order)}}}
    return evaluate(run, line(pool), names).values[:, 0, 0]


@settings(max_examples=100, deadline=None)
@given(pool=POOL, order=st.permutations("abcdefghijkl"), length=st.integers(1, 12))
def test_each_estimate_by_its_definition(pool, order, length):
    """Loops over ranks and strata, as the docstrings have the equations."""
    if all(g < 0 for g, _ in pool.values()):
        return
    order = order[:length]
    drawn = {d: g for d, (g, _) in pool.items() if g >= 0}
    of = {d: s for d, (_, s) in pool.items()}
    pi = {d: sum(of[e] == of[d] for e in drawn) / sum(of[e] == of[d] for e in pool) for d in drawn}
    eps = 1e-5

    def inferred(of, weight, prior):
        total = norm = 0.0
        for d, g in drawn.items():
            norm += (g > 0) / weight[d]
            if g > 0 and d in order:
                above = order[: order.index(d)]
                p = 1.0
                for s in set(of.values()):
                    mine = [e for e in above if e in of and of[e] == s]
                    if mine:
                        judged = [e for e in mine if e in drawn]
                        relevant = [e for e in judged if drawn[e] > 0]
                        p += len(mine) * (len(relevant) + eps) / (len(judged) + prior * eps)
                total += p / (len(above) + 1) / weight[d]
        return total / norm if norm else 0.0

    def ndcg():
        dcg = ideal = 0.0
        for s in set(of.values()):
            mine = [d for d in order if of.get(d) == s]
            judged = [d for d in mine if d in drawn]
            if judged:
                gain = sum(drawn[d] / np.log2(2 + order.index(d)) for d in judged)
                dcg += len(mine) / len(judged) * gain
        rank = 1
        for grade in (2, 1):
            for _ in range(int(sum(1 / pi[d] for d in drawn if drawn[d] == grade) + 0.5 + 1e-9)):
                rank += 1
                ideal += grade / np.log2(rank)
        return dcg / ideal if ideal else 0.0

    def stat():
        total = before = 0.0
        for r, d in enumerate(order, 1):
            if drawn.get(d, 0) > 0:
                total += (1 + before) / r / pi[d]
                before += 1 / pi[d]
        norm = sum(1 / pi[d] for d in drawn if drawn[d] > 0)
        return [total / norm if norm else 0.0, before / norm if norm else 0.0]

    text = "".join(f"q 0 {d} s{s} {g}\n" for d, (g, s) in pool.items())
    prels = _as_file(text)
    names = ["infAP", "xinfAP", "infNDCG", "statAP", "statR@12"]
    found = evaluated(prels, order, names, lambda x: x)
    expected = [
        inferred(dict.fromkeys(of, 0), dict.fromkeys(of, 1.0), 2),
        inferred(of, pi, 3),
        ndcg(),
        *stat(),
    ]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    global PLACE
    PLACE = tmp_path_factory.mktemp("pools")


def _as_file(text):
    path = PLACE / "pool.txt"
    path.write_text(text, encoding="utf-8")
    return read_prels(path)


@settings(max_examples=25, deadline=None)
@given(
    grades=st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(0, 2), min_size=1),
    order=st.permutations("abcdefghijkl"),
)
def test_with_complete_judgments_they_are_what_they_estimate(grades, order):
    run = read_runs({"x": {"q": {d: -float(i) for i, d in enumerate(order)}}})
    exact = ["statAP", "statAP@5", "statP@5", "statR@5", "statRprec", "infNDCG", "infNDCG@5"]
    plain = ["AP", "AP@5", "P@5", "R@5", "Rprec", "nDCG", "nDCG@5"]
    for text in (
        "".join(f"q {d} {g} 1 1\n" for d, g in grades.items()),
        "".join(f"q 0 {d} {'ab'[ord(d) % 2]} {g}\n" for d, g in grades.items()),
    ):
        prels = _as_file(text)
        names = exact if prels.stratified else exact[:5]
        found = evaluate(run, prels, names).value[:, 0]
        expected = evaluate(run, {"q": grades}, plain[: len(names)]).value[:, 0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    found = evaluate(run, prels, ["infAP", "xinfAP"]).value[:, 0]
    expected = evaluate(run, {"q": grades}, "AP").value[0, 0]
    # Smoothing is within 3 eps of each stratum's share where something is judged above.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(pool=POOL, order=st.permutations("bcdefghijkl"))
def test_with_one_stratum_xinfap_is_infap_but_for_its_smoothing(pool, order):
    """Under a judged document at rank 1 there is no list part of which nothing is known."""
    pool = {**pool, "a": (1, 0)}
    run = {"x": {"q": {d: -float(i) for i, d in enumerate(["a", *order])}}}
    text = "".join(f"q 0 {d} 1 {g}\n" for d, (g, _) in pool.items())
    infap, xinfap = evaluate(run, _as_file(text), ["infAP", "xinfAP"]).value[:, 0]
    assert infap == pytest.approx(xinfap, abs=12 * 1e-5)


def test_where_nothing_is_judged_above_the_two_differ_as_their_programs_do():
    run = {"x": {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}}
    prels = read_prels({"q": {"a": -1, "b": -1, "c": 1}})
    infap, xinfap = evaluate(run, prels, ["infAP", "xinfAP"]).value[:, 0]
    assert infap == pytest.approx((1 + 2 / 2) / 3, rel=1e-12)
    assert xinfap == pytest.approx((1 + 2 / 3) / 3, rel=1e-12)


def test_sums_by_inclusion_probabilities_are_unbiased_by_enumeration():
    """Every subset of five documents, drawn independently with unequal probabilities.

    E[statP] = P; the number of relevant documents, and the numerator of statAP (the ratio times
    that number), have expectations R and R AP.
    """
    grades, order = {"a": 1, "b": 0, "c": 2, "d": 1, "e": 0}, "cbade"
    pi = {"a": 0.5, "b": 0.9, "c": 0.25, "d": 0.7, "e": 0.3}
    run = {"x": {"q": {d: -float(i) for i, d in enumerate(order)}}}
    names = ["statP@3", "statP@5", "statAP"]
    mean = np.zeros(3)
    for taken in itertools.product([False, True], repeat=5):
        chance = np.prod([pi[d] if t else 1 - pi[d] for d, t in zip(pi, taken, strict=True)])
        text = "".join(
            f"q {d} {grades[d]} 1 {pi[d]}\n" for d, t in zip(pi, taken, strict=True) if t
        )
        if not text:
            continue
        p3, p5, ap = evaluate(run, _as_file(text), names).value[:, 0]
        mean += chance * np.array([p3, p5, ap * p5 * 5])
    exact = evaluate(run, {"q": grades}, ["P@3", "P@5", "AP"]).value[:, 0]
    np.testing.assert_allclose(mean, [exact[0], exact[1], 3 * exact[2]], rtol=0, atol=1e-12)


def test_many_systems_and_queries_are_as_each_alone():
    rng = np.random.default_rng(7)
    documents = [f"d{i}" for i in range(40)]
    runs = {
        f"s{j}": {
            f"q{x}": {d: float(rng.random()) for d in rng.permutation(documents)[: 5 + 7 * j]}
            for x in range(4)
            if (j, x) != (1, 2)
        }
        for j in range(3)
    }
    text = "".join(
        f"q{x} 0 {d} {rng.integers(3)} {rng.integers(-1, 3)}\n"
        for x in range(4)
        for d in documents[::2]
    )
    prels = _as_file(text)
    names = ["infAP", "xinfAP@9", "infNDCG@9", "infNDCG", "statAP", "statP@5", "statRprec"]
    found = evaluate(runs, prels, names)
    for j, (system, run) in enumerate(runs.items()):
        for x, query in enumerate(found.queries):
            if query in run:
                alone = evaluate({system: {query: run[query]}}, prels, names, queries=[query])
                np.testing.assert_allclose(
                    found.values[:, j, x], alone.values[:, 0, 0], rtol=0, atol=1e-12
                )
            else:
                assert not found.values[:, j, x].any()


# What is refused ----------------------------------------------------------------------------------


def test_prels_have_no_pool_to_infer_from(put):
    runs, prels = read_runs(put("r.txt", RUN)), read_prels(put("p.txt", PRELS))
    for name in ("infAP", "xinfAP", "infNDCG"):
        error = fault(evaluate, runs, prels, name, kind=EvenhandError)
        assert f"{name} asks what was pooled" in error.message
        assert "statAP" in error.hint


def test_qrels_read_without_their_sampling_are_refused(put):
    runs, qrels = read_runs(put("r.txt", RUN)), read_qrels(put("q.txt", STRATA))
    error = fault(evaluate, runs, qrels, "infAP", kind=EvenhandError)
    assert "asks how judged pairs were sampled" in error.message
    assert "read_prels" in error.hint


def test_they_are_no_measures_of_a_study():
    for name in ("infAP", "infNDCG@10", "statP@10"):
        error = fault(sampled, name, kind=EvenhandError)
        assert "TREC" in error.message
    assert "AP" in error.hint or "P@10" in error.hint


def test_spellings():
    names = ["infAP", "xinfAP@1000", "infNDCG(gains='exp')@10", "statAP(rel=2)", "statP@5"]
    assert [str(grammar.measure(name)) for name in names] == names
    assert str(grammar.measure("infap")) == "infAP"
    for name in ("statP", "statR"):
        assert "needs a cutoff" in fault(grammar.measure, name, kind=EvenhandError).message
    assert "no cutoff" in fault(grammar.measure, "statRprec@5", kind=EvenhandError).message


# On the command line ------------------------------------------------------------------------------


def test_evaluate_reads_the_sampling(put):
    run, strata = put("r.txt", RUN), put("q.txt", STRATA)
    arguments = ["evaluate", run, "--qrels", strata, "-m", "xinfAP", "-m", "P@10"]
    result = CliRunner().invoke(main, [*arguments, "--format", "json"])
    assert result.exit_code == 0, result.output
    assert '"xinfAP"' in result.stdout
    result = CliRunner().invoke(main, [*arguments, "--negative", "zero"])
    assert result.exit_code == 2
    assert "not drawn" in result.stderr
    result = CliRunner().invoke(main, ["evaluate", run, "--qrels", put("p", PRELS), "-m", "infAP"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "hint: statAP" in result.stderr
