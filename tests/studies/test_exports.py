"""Judgments as files of TREC's: written, read again and scored."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from click.testing import CliRunner

from evenhand.cli import main
from evenhand.errors import EvenhandError, MissingJudgments, StudyError, SupportError
from evenhand.estimands.evaluation import evaluate
from evenhand.formats.prels import read_prels
from evenhand.formats.qrels import read_qrels
from evenhand.study import Study

N = 20
# Three systems, four queries, fifteen documents each.
STEPS = {"b": (5, 3), "a": (1, 0), "c": (7, 1)}
RUNS = {
    system: {
        f"q{q}": {f"d{(step * i + q + start) % 15}": float(9 - i) for i in range(8)}
        for q in range(4)
    }
    for system, (step, start) in STEPS.items()
}
QRELS = {f"q{q}": {f"d{d}": (q + d * d) % 3 for d in range(15)} for q in range(4)}


@pytest.fixture
def make(tmp_path):
    def make(*budgets, name="s", measure="P@8", goal="absolute", judge=True, **options) -> Study:
        study = Study.create(tmp_path / name, RUNS, measure=measure, goal=goal)
        for seed, budget in enumerate(budgets, 1):
            study.draw(budget, seed=seed, **options)
        if judge:
            study.judge(QRELS)
        return study

    return make


@pytest.fixture
def read(tmp_path):
    def read(made, function=read_prels):
        path = tmp_path / made.kind
        made.write(path)
        return function(path)

    return read


def refused(kind, function, *arguments):
    with pytest.raises(kind) as caught:
        function(*arguments)
    return caught.value


def pairs(study) -> set[tuple[str, str]]:
    found = study.store.read()
    return set(zip(found.query.tolist(), found.document.tolist(), strict=True))


def test_qrels_are_what_was_judged(make, read):
    study = make(N, N, sampler="iid")
    qrels = read(study.export(), read_qrels)
    frame = qrels.to_frame()
    found = {
        (q, d): g for q, d, g in zip(frame["query"], frame["document"], qrels.grade, strict=True)
    }
    assert set(found) == pairs(study)
    assert all(QRELS[q][d] == grade for (q, d), grade in found.items())
    first = study.export().text.splitlines()[0].split()
    assert first[1] == "0"
    assert len(first) == 4


@pytest.mark.parametrize("sampler", ["distinct", "iid", "slices"])
@pytest.mark.parametrize("budgets", [(N,), (N, N)])
def test_prels_say_with_which_probability(make, read, sampler, budgets):
    study = make(*budgets, sampler=sampler)
    prels = read(study.export("prels"))
    assert len(prels) == len(pairs(study))
    assert prels.notes == ()
    rounds = study.rounds()
    for q, d, p in zip(prels.query, prels.document, prels.probability, strict=True):
        cell = study.pool.find([prels.queries[q].as_py()], [prels.documents[d].as_py()])[0]
        expected = [r.sample.expected[cell] for r in rounds]
        if sampler == "distinct":
            assert p == pytest.approx(1 - np.prod([1 - e for e in expected]), abs=1e-15)
        elif sampler == "iid":
            never = np.prod([(1 - e / N) ** N for e in expected])
            assert p == pytest.approx(1 - never, abs=1e-12)
        else:
            # A pair lies in one slice or in more: at best it has the mean number of draws.
            assert p <= min(1, sum(expected)) + 1e-12
            assert p >= 1 - np.prod([np.exp(-e) for e in expected]) - 1e-12


def test_statp_of_the_prels_is_the_studys_own_estimate(make, read):
    """One round without replacement: Horvitz-Thompson sums both, by two ways through the code."""
    study = make(N)
    prels = read(study.export("prels"))
    own = study.estimate(estimator="importance")
    found = evaluate(RUNS, prels, "statP@8", queries=sorted(QRELS))
    by_name = dict(zip(found.systems, found.value[0], strict=True))
    expected = dict(zip(own.goal.target.systems, own.value, strict=True))
    for system, value in by_name.items():
        assert value == pytest.approx(expected[system], rel=1e-12)
    assert any(0 < p < 1 for p in prels.probability)


def test_a_census_gives_complete_judgments(make, read):
    study = make(len(make(judge=False, name="t").pool))
    prels = read(study.export("prels"))
    assert (prels.probability == 1).all()
    found = evaluate(RUNS, prels, ["statAP", "statP@8"])
    exact = evaluate(RUNS, read(study.export(), read_qrels), ["AP", "P@8"])
    np.testing.assert_allclose(found.values, exact.values, rtol=0, atol=1e-14)
    strata = read(study.export("sampled"))
    assert "counts as judged" in strata.notes[0]
    assert evaluate(RUNS, strata, "infNDCG").values == pytest.approx(
        evaluate(RUNS, of_the_pool(study), "nDCG").values, abs=1e-14
    )


def of_the_pool(study):
    """The truth of the pool alone."""
    found = {}
    for query, document in zip(*study.pool.names(np.arange(len(study.pool))), strict=True):
        found.setdefault(query, {})[document] = QRELS[query][document]
    return found


def test_strata_are_pairs_as_likely_drawn(make, read):
    study = make(N, kind="uniform", floor=0.0)
    made = study.export("sampled")
    lines = [line.split() for line in made.text.splitlines()]
    assert len(lines) == len(study.pool)
    drawn = {(q, d) for q, _, d, _, grade in lines if grade != "-1"}
    assert drawn == pairs(study)
    assert {stratum for *_, stratum, _ in lines} == {"1"}
    prels = read(made)
    assert len(prels.qrels) == N
    for query in range(4):
        of = prels.query == query
        share = np.mean([(f"q{query}", d) in drawn for q, _, d, *_ in lines if q == f"q{query}"])
        assert prels.probability[of] == pytest.approx(share)
    assert np.isfinite(evaluate(RUNS, prels, ["xinfAP", "infNDCG"]).values).all()


def test_strata_of_unequal_probabilities(make):
    study = make(N)
    made = study.export("sampled")
    of = {}
    for query, _, document, stratum, _ in map(str.split, made.text.splitlines()):
        cell = study.pool.find([query], [document])[0]
        of.setdefault((query, int(stratum)), set()).add(
            round(study.rounds()[0].sample.expected[cell], 11)
        )
    assert all(len(levels) == 1 for levels in of.values())
    for (query, stratum), (level,) in of.items():
        if stratum > 1:
            assert level < min(of[query, stratum - 1])
    assert "strata hold no drawn pair" in made.notes[0]
    assert "--design uniform --floor 0" in made.notes[0]


def test_what_depends_on_judgments_has_no_probability(make):
    study = make(N)
    study.draw(N, seed=9)
    study.judge(QRELS)
    for kind in ("prels", "sampled"):
        error = refused(SupportError, study.export, kind)
        assert "round-002" in error.message
        assert "before the first judgment" in error.hint
    assert len(study.export().text.splitlines()) == len(pairs(study))


def test_what_is_not_judged_yet(make):
    study = make(N, judge=False)
    assert "nothing is judged" in refused(StudyError, study.export).message
    some = dict(itertools.islice(QRELS.items(), 3))
    study.judge(some)
    error = refused(MissingJudgments, study.export, "prels")
    assert "round-001" in error.message
    assert study.export().text


def test_slices_of_another_set_of_systems(make):
    study = make(N, sampler="slices")
    assert study.export("prels").text
    study.add({"late": RUNS["a"]})
    assert "order changed" in refused(StudyError, study.export, "prels").message


def test_several_assessors_have_their_mean(make):
    study = make(N, judge=False)
    query, document = study.pool.names(study.rounds()[0].sample.draws)
    for name, more in (("ann", 0), ("bob", 1)):
        rows: dict = {}
        for q, d in zip(query, document, strict=True):
            rows.setdefault(q, {})[d] = QRELS[q][d] + more
        study.judge({name: rows})
    made = study.export()
    assert all(float(line.split()[3]) % 1 == 0.5 for line in made.text.splitlines())
    assert "mean" in made.notes[0]


def test_ids_with_blanks(tmp_path):
    study = Study.create(tmp_path / "s", {"a": {"q": {"d 1": 1.0}}}, measure="P@1", goal="absolute")
    study.draw(1, seed=1)
    study.judge({"q": {"d 1": 1}})
    assert "'d 1' holds a blank" in refused(EvenhandError, study.export).message


def test_an_unknown_kind(make):
    assert "qrels, prels, sampled" in refused(EvenhandError, make(N).export, "trec").hint


def test_on_the_command_line(make, tmp_path):
    folder = str(make(N).folder)
    result = CliRunner().invoke(main, ["export", folder])
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == N
    out = tmp_path / "prels.txt"
    result = CliRunner().invoke(main, ["export", folder, "--as", "prels", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{out}: {N} lines\n"
    assert all(len(line.split()) == 5 for line in out.read_text().splitlines())
    result = CliRunner().invoke(main, ["export", folder, "--out", str(tmp_path / "no" / "x")])
    assert (result.exit_code, "cannot write" in result.stderr) == (1, True)


def test_sample_eval_has_whole_grades(make, read):
    """Of what is judged: -1 says that a pair was not drawn, and a mean may look like a share."""
    study = make(N, judge=False)
    query, document = study.pool.names(study.rounds()[0].sample.draws)
    for name, grades in (("ann", (-2, 1, 0)), ("bob", (0, 0, 0))):
        rows: dict = {}
        for i, (q, d) in enumerate(zip(query, document, strict=True)):
            rows.setdefault(q, {})[d] = grades[min(i, 2)]
        study.judge({name: rows}, negative="keep")
    made = study.export("sampled")
    grade = [int(line.split()[4]) for line in made.text.splitlines()]
    assert (grade.count(-1), grade.count(1)) == (len(study.pool) - N, 1)
    assert "rounded" in made.notes[0]
    assert made.notes[1].startswith("1 grades below 0 are written as 0")
    read(made)
