"""MAE and MSE from samples: unbiased to rounding, and exact where all is judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from evenhand.decisions.focus import deciding, focused
from evenhand.decisions.ranks import ranking
from evenhand.designs.proposals import design
from evenhand.designs.utilities import flat
from evenhand.errors import EvenhandError
from evenhand.estimands import goals, targets
from evenhand.estimands.evaluation import evaluate
from evenhand.estimands.pools import pool
from evenhand.estimation.importance import estimate
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.nonlinear.rating_errors import estimate_deviation, expected_deviation, score_grade
from evenhand.sampling.rounds import Round
from evenhand.sampling.samples import Sample
from evenhand.study import Study

RUNS = {
    "x": {"q1": {"a": 3.0, "b": 2.5, "c": 0.5}, "q2": {"a": 1.0}},
    "y": {"q1": {"b": 4.0, "a": 1.0}, "q2": {"a": 2.0, "c": 1.5}},
    "z": {"q1": {"a": 2.0, "c": 1.0}},
}
GRADES = {"q1": {"a": 3, "b": 1, "c": 0}, "q2": {"a": 2, "c": 4}}
NAMES = ["MAE", "MSE", "MAE@2", "MSE@1"]


def asked(name: str, kind: str = "absolute", runs=RUNS) -> goals.Goal:
    return goals.goal(targets.target(pool(read_runs(runs)), name), kind)


def grades(goal: goals.Goal) -> np.ndarray:
    cells = goal.target.pool
    names = zip(*cells.names(np.arange(len(cells))), strict=True)
    return np.array([GRADES[query][document] for query, document in names], float)


def truth(name: str) -> np.ndarray:
    """`evaluate`, which is held to a plain loop elsewhere."""
    return evaluate(read_runs(RUNS), GRADES, [name]).value[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_census_is_the_value(name):
    goal = asked(name)
    grade = grades(goal)
    every = np.arange(len(grade))
    found = estimate_deviation(goal, [Round(Sample("distinct", every, np.ones(len(grade))), grade)])
    np.testing.assert_allclose(found.value, truth(name), rtol=0, atol=1e-12)
    assert (found.std_error == 0).all()


def test_the_best_has_the_smallest_error():
    goal = asked("MAE", "best")
    grade = grades(goal)
    every = np.arange(len(grade))
    found = estimate_deviation(goal, [Round(Sample("distinct", every, np.ones(len(grade))), grade)])
    order = np.argsort(truth("MAE"))
    standings = ranking(found)
    assert standings.systems == tuple(goal.target.systems[j] for j in order)
    assert standings.contenders == standings.systems[:1]
    assert standings.best.tolist() == [1, 0, 0]
    # What is open is who of the two with the smallest errors leads, not who has the largest.
    close = replace(found, reached_value=np.array([1.0, 1.1, 2.0]), covariance=np.eye(3) * 0.01)
    assert deciding(focused(goal, close))[0][0] == "x - y"
    apart = replace(close, reached_value=np.array([1.0, 1.9, 2.0]))
    assert deciding(focused(goal, apart))[0][0] != "y - z"


def test_the_design_is_for_the_errors_expected():
    goal = asked("MSE", "rank")
    cells = goal.target.pool
    np.testing.assert_allclose(score_grade(cells), [2.0, 3.25, 0.75, 1.5, 1.5])
    found = expected_deviation(goal, score_grade(cells), 1.0)
    square = np.zeros(5)
    for off in (-1.0, 1.0):
        error = (cells.score - score_grade(cells)[cells.cell] - off) ** 2
        weights = cells.dense(goal.target.weight * error, np.arange(5))
        square += ((weights @ goal.matrix.T) ** 2).sum(1) / 2
    norm = np.sqrt(square)
    made = design(found, flat(cells), floor=0)
    np.testing.assert_allclose(made.q, norm / norm.sum(), rtol=1e-12)
    for act in (lambda: design(goal, flat(cells)), lambda: estimate(goal, [])):
        with pytest.raises(EvenhandError, match="MSE is no sum over documents"):
            act()


def test_systems_of_one_ranking_differ_by_their_scores():
    runs = {
        "a": {"q": {"x": 3.0, "y": 1.0}},
        "b": {"q": {"x": 2.0, "y": 1.0}},
        "a again": {"q": {"x": 3.0, "y": 1.0}},
    }
    goal = asked("MAE", runs=runs)
    assert goal.target.systems == ("a", "b", "a again")
    assert goal.target.identical() == [[0, 2]]
    grade = np.array([2.0, 0.0])
    one = Round(Sample("distinct", np.arange(2), np.ones(2)), grade)
    pairs = estimate_deviation(goal, [one]).pairs
    assert pairs.value.tolist() == [0.5, 0.0, -0.5]
    assert targets.target(goal.target.pool, "P@2").identical() == [[0, 1, 2]]


@pytest.mark.slow
def test_a_study(tmp_path):
    rng = np.random.default_rng(0)
    rating = rng.integers(1, 6, (10, 12))
    runs = {
        name: {
            f"u{x}": {f"i{i}": float(rating[x, i] + noise * rng.normal()) for i in range(12)}
            for x in range(10)
        }
        for name, noise in (("good", 0.3), ("bad", 1.5))
    }
    qrels = {f"u{x}": {f"i{i}": int(rating[x, i]) for i in range(12)} for x in range(10)}
    study = Study.create(tmp_path / "s", runs, measure="MAE", goal="pair")
    study.draw(60, seed=1)
    study.judge(qrels)
    first = study.estimate()
    study.draw(30, utility="learned", seed=2)
    study.judge(qrels)
    second = study.estimate()
    value = evaluate(read_runs(runs), qrels, ["MAE"]).value[0]
    for found in (first, second):
        assert (np.abs(found.value - value) < 5 * found.std_error).all()
    assert second.contrast_std_error[0] < first.contrast_std_error[0]
    population = study.estimate(question="population")
    assert (population.std_error >= second.std_error).all()
    assert population.contrast_std_error[0] > second.contrast_std_error[0]
    assert study.plan(half_width=0.2).needed is not None
    for options in ({"bounds": True}, {"estimator": "cross-fitted"}):
        with pytest.raises(EvenhandError, match="MAE takes neither bounds nor a control"):
            study.estimate(**options)


@pytest.mark.parametrize("name", ["MAE", "MSE"])
def test_two_systems_around_what_is_expected(tmp_path, name):
    """What they say together is as far from either, and yet they differ on every item."""
    rng = np.random.default_rng(1)
    score = rng.normal(3.0, 1.0, (2, 5, 20))
    runs = {
        system: {f"u{x}": {f"i{i}": float(of[x, i]) for i in range(20)} for x in range(5)}
        for system, of in zip("ab", score, strict=True)
    }
    goal = asked(name, "pair", runs)
    cells = goal.target.pool
    norm = expected_deviation(goal, score_grade(cells), cells.score.std()).norms()
    gap = np.abs(np.diff(cells.score.reshape(-1, 2), axis=1)[:, 0])
    assert (norm > 0).all()
    assert np.corrcoef(norm, gap)[0, 1] > 0.8
    study = Study.create(tmp_path / "s", runs, measure=name, goal="pair")
    assert study.draw(40, seed=1, floor=0.0).notes == ()


def test_assessors_who_disagree(tmp_path):
    """Errors to each judgment, averaged, as `evaluate` has them; the estimate says whose."""
    judged: dict[str, list] = {"qid": [], "docid": [], "grade": [], "assessor": []}
    for query, found in GRADES.items():
        for document, grade in found.items():
            for assessor, said in (("ann", grade), ("bob", (3 * grade + 1) % 5)):
                row = (query, document, said, assessor)
                for column, value in zip(judged.values(), row, strict=True):
                    column.append(value)
    table = pa.table(judged)
    for name in ("MAE", "MSE"):
        study = Study.create(tmp_path / name, RUNS, measure=name)
        study.draw(5, seed=1)
        study.judge(table)
        found = study.estimate()
        value = evaluate(read_runs(RUNS), read_qrels(table), [name])
        at = [value.systems.index(system) for system in found.goal.target.systems]
        np.testing.assert_allclose(found.value, value.value[0][at], rtol=0, atol=1e-12)
        assert any(
            note.startswith(f"{name} is of what these assessors said") for note in found.notes
        )
        assert any("z leaves 1 query unanswered and has no fault there" in n for n in found.notes)
