"""Ratio measures from sampled judgments: exact where all is judged, nearly unbiased elsewhere."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pytest

from evenhand import measures
from evenhand.designs.proposals import design
from evenhand.designs.utilities import Reach, judged_utility, rank_utility
from evenhand.errors import EvenhandError, SupportError
from evenhand.estimands import goals, targets
from evenhand.estimands.evaluation import evaluate
from evenhand.estimands.pools import pool
from evenhand.estimation.cross_fitting import cross_fit
from evenhand.estimation.importance import estimate
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.nonlinear import linearisation
from evenhand.nonlinear.design_goals import SCALES, expected_goal, guessed
from evenhand.nonlinear.gradients import Levels, gradient
from evenhand.nonlinear.ratios import check_draws, estimate_ratio
from evenhand.priors.features import feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.rounds import Control, Round
from evenhand.sampling.samplers import draw
from evenhand.sampling.samples import Sample
from evenhand.simulation.simulations import simulate
from evenhand.study import Study

DL2021 = Path(__file__).resolve().parents[3] / "shared" / "data" / "trec-dl-2021-passage"
GRADED = "nDCG(gains={0:0,1:1,2:3})@10"
NAMES = ["nDCG@10", "AP@20", "R@5", "Rprec", GRADED]


def made(queries: int = 8, systems: int = 4, depth: int = 20, documents: int = 40):
    """A pool of systems of which two are twins, and utilities that fall with rank."""
    rng = np.random.default_rng(11)
    hidden = rng.normal(size=(queries, documents))
    runs: dict[str, dict[str, dict[str, float]]] = {}
    for j in range(systems):
        score = hidden + (0.3 + 0.4 * j) * rng.normal(size=hidden.shape)
        runs[f"s{j}"] = {
            f"q{x}": {f"d{d}": float(score[x, d]) for d in np.argsort(-score[x])[:depth]}
            for x in range(queries)
        }
    runs["twin"] = runs["s0"]
    cells = pool(read_runs(runs))
    document = np.array([int(name[1:]) for name in cells.documents.to_pylist()])
    chance = 1 / (1 + np.exp(-1.5 * (hidden[cells.query, document[cells.document]] - 0.7)))
    grade = rng.binomial(2, chance)
    return cells, grade


def asked(name: str, cells, kind: str = "rank") -> goals.Goal:
    return goals.goal(targets.target(cells, name), kind)


def drawn(goal: goals.Goal, n: int, seed: int = 0) -> Sample:
    """A sample by the design of the ratio."""
    cells = goal.target.pool
    linear = expected_goal(goal, guessed(cells, 1.0))
    return draw(jax.random.key(seed), design(linear, rank_utility(cells)), n)


def everything(cells, expected: np.ndarray | None = None) -> Sample:
    """Every cell, drawn for certain."""
    every = np.arange(len(cells))
    return Sample("distinct", every, np.ones(len(cells)) if expected is None else expected)


def truth(goal: goals.Goal, grade: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Utility of every cell, and value of every system."""
    utility = goal.target.measure.utility(grade)
    gain = np.unique(utility[utility > 0])
    levels = Levels(gain, (utility[:, None] >= gain) * 1.0)
    return utility, gradient(goal.target.pool, goal.target.measure, levels).value


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_census_is_the_value(name):
    cells, grade = made()
    goal = asked(name, cells)
    utility, value = truth(goal, grade)
    found = estimate_ratio(goal, [Round(everything(cells), utility)])
    np.testing.assert_allclose(found.value, value, rtol=0, atol=1e-12)
    assert (found.std_error <= 1e-12).all()
    assert (found.covered == 1).all()
    twins = found.pairs.names.index("s0 - twin")
    assert found.pairs.value[twins] == found.pairs.low[twins] == found.pairs.high[twins] == 0


@pytest.mark.parametrize("name", ["AP@9", "nDCG@7", "R@2"])
def test_the_bias_that_is_taken_off(name):
    """Every sample of seven of a query's nine documents, all alike likely.

    Recall is then right by itself.
    """
    cells = pool(read_runs({"a": {"q": {f"d{d}": float(-d) for d in range(9)}}}), depth=9)
    goal = asked(name, cells, "absolute")
    utility, value = truth(goal, np.array([1, 0, 1, 1, 0, 1, 0, 0, 1]))
    found = {True: [], False: []}
    for draws in itertools.combinations(range(9), 7):
        one = Round(Sample("distinct", np.array(draws), np.full(9, 7 / 9)), utility[list(draws)])
        for correct, values in found.items():
            values.append(estimate_ratio(goal, [one], correct=correct).value[0])
    off = {correct: abs(np.mean(values) - value[0]) for correct, values in found.items()}
    assert off[True] < max(0.5 * off[False], 0.002)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nDCG@10", "R@5"])
def test_estimates_come_near_and_intervals_cover(name):
    """150 studies of 240 draws, 20 a query out of about 37.

    The error of a mean is 1/12 of the deviation, so that a bias of .75 deviations fails for certain
    and none fails with a chance of 1e-8; a coverage of .93 is below .85 with a chance of 1e-4.
    """
    cells, grade = made(queries=12)
    goal = asked(name, cells)
    utility, value = truth(goal, grade)
    estimates, covered = [], []
    for seed in range(150):
        sample = drawn(goal, 240, seed)
        found = estimate_ratio(goal, [Round(sample, utility[sample.draws])])
        estimates.append(found.value)
        covered.append((found.low <= value) & (value <= found.high))
    spread = np.std(estimates, 0)
    assert (np.abs(np.mean(estimates, 0) - value) < 0.5 * spread).all()
    assert np.mean(covered) > 0.85


@pytest.mark.parametrize("name", ["AP@20", "nDCG@10"])
@pytest.mark.parametrize("kind", ["rank", "pair"])
def test_norms_of_a_design_are_those_expected(name, kind):
    """Against differences of the measure, at each part of the utilities that are expected."""
    cells, _ = made(queries=3)
    target = targets.target(cells, name)
    goal = goals.pair(target, "s0", "s2") if kind == "pair" else goals.goal(target, kind)
    mean = guessed(cells, 1.0)
    step = 1e-6
    found = expected_goal(goal, mean)
    # A system's own value counts as much as contrasts hang on it: for a pair, that of these two.
    own = found.importance[len(goal.names) :]
    np.testing.assert_allclose(own, [1, 0, 1, 0, 0] if kind == "pair" else np.full(5, 0.8))

    def value(utility: np.ndarray) -> np.ndarray:
        return gradient(cells, target.measure, Levels(np.ones(1), utility[:, None])).value

    for cell in np.random.default_rng(0).choice(len(cells), 8, replace=False):
        square = 0.0
        for scale in SCALES:
            moved = np.where(np.arange(len(cells)) == cell, step, 0.0)
            slope = (value(scale * mean + moved) - value(scale * mean - moved)) / (2 * step)
            square += scale * (found.matrix @ slope) ** 2 @ found.importance
        expected = np.sqrt(square / sum(SCALES))
        np.testing.assert_allclose(found.norms()[cell], expected, rtol=1e-5, atol=1e-9)


@pytest.mark.slow
def test_cross_fitted():
    cells, grade = made(queries=6)
    goal = asked("AP@20", cells)
    utility, value = truth(goal, grade)
    sample = drawn(goal, 120, 1)
    rounds = [Round(sample, utility[sample.draws])]
    linear = expected_goal(goal, guessed(cells, 1.0))
    controls = [cross_fit(NumPyroPrior(feature_table(cells, {})), linear, rounds, [0])]
    found = estimate_ratio(goal, rounds, controls=controls)
    assert found.estimator == "cross-fitted"
    assert (np.abs(found.value - value) < 5 * found.std_error).all()
    assert found.std_error.mean() < estimate_ratio(goal, rounds).std_error.mean()
    assert "not exactly unbiased" in found.notes[0]


@pytest.mark.slow
def test_cross_fitted_with_several_levels():
    """12 studies: predictions of utilities between two levels make the errors smaller."""
    cells, grade = made(queries=6)
    goal = asked(GRADED, cells)
    utility, value = truth(goal, grade)
    linear = expected_goal(goal, guessed(cells, 3.0), 3.0)
    prior, plain, fitted = NumPyroPrior(feature_table(cells, {})), [], []
    for seed in range(12):
        sample = drawn(goal, 90, seed)
        rounds = [Round(sample, utility[sample.draws])]
        plain.append(estimate_ratio(goal, rounds))
        controls = [cross_fit(prior, linear, rounds, [0])]
        fitted.append(estimate_ratio(goal, rounds, controls=controls))
    assert {one.estimator for one in fitted} == {"cross-fitted"}
    errors, beside = (
        np.sqrt(np.mean([(one.value - value) ** 2 for one in given])) for given in (fitted, plain)
    )
    assert errors < beside
    spread = np.sqrt(np.mean([one.std_error**2 for one in fitted]))
    assert 0.5 < errors / spread < 1.6
    twins = fitted[0].pairs.names.index("s0 - twin")
    assert fitted[0].pairs.std_error[twins] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AP@20", GRADED])
def test_predictions_of_what_is_certain_do_not_matter(name):
    cells, grade = made(queries=6)
    goal = asked(name, cells)
    utility, _ = truth(goal, grade)
    sample = drawn(goal, 150)
    certain = sample.expected == 1
    assert 20 < certain.sum() < 150
    rounds = [Round(sample, utility[sample.draws])]
    rng = np.random.default_rng(0)
    mean = 0.3 * utility + rng.random(len(cells))
    other = np.where(certain, utility.max() * rng.random(len(cells)), mean)
    first, second = (estimate_ratio(goal, rounds, controls=[Control(m)]) for m in (mean, other))
    np.testing.assert_allclose(second.value, first.value, rtol=0, atol=1e-12)
    np.testing.assert_allclose(second.std_error, first.std_error, rtol=1e-9)
    np.testing.assert_allclose(second.contrast_low, first.contrast_low, rtol=0, atol=1e-10)
    wrong = np.where(certain, mean, other + 0.2)
    moved = estimate_ratio(goal, rounds, controls=[Control(wrong)]).value - first.value
    assert np.abs(moved).max() > 1e-4  # of what is not certain they do


@pytest.mark.slow
def test_a_correction_leads_nowhere_that_a_ratio_cannot_be():
    """One query; of what is not on top few pairs are drawn, each of which stands for fifty."""
    cells, _ = made(queries=1, documents=300, depth=300)
    goal, n_cells = asked(GRADED, cells), 300
    top = cells.dense(1.0 / cells.rank, np.arange(n_cells)).max(1) >= 0.1
    expected, control = np.where(top, 1.0, 0.02), Control(np.where(top, 0.0, 0.4))
    for seed in (5, 35, 44, 57):
        rng = np.random.default_rng(seed)
        utility = np.where(rng.random(n_cells) < 0.3, 1.0, 0.0)
        utility[rng.random(n_cells) < 0.05] = 3.0
        rare = np.flatnonzero(~top)[rng.random((~top).sum()) < 0.02]
        sample = Sample("distinct", np.concatenate([np.flatnonzero(top), rare]), expected)
        rounds = [Round(sample, utility[sample.draws])]
        for correct in (False, True):  # once -0.2, and from -2.5 to 3.4
            value = estimate_ratio(goal, rounds, controls=[control], correct=correct).value
            assert ((value >= 0) & (value <= 1)).all()


@pytest.mark.slow
@pytest.mark.skipif(not DL2021.is_dir(), reason="the runs of TREC 2021 are not here")
def test_graded_judgments_of_real_runs():
    """Eight studies of ten draws a query; a tangent without bounds erred by .35, not by .05."""
    qrels = read_qrels(DL2021 / "qrels-pass.txt.gz")
    runs = read_runs(DL2021 / "runs-top100-nist53")
    names = sorted(np.random.default_rng(0).choice(runs.systems, 20, replace=False))
    cells = pool(runs.select(names), depth=100, queries=qrels.queries.to_pylist())
    goal = asked("nDCG@10", cells)
    utility = np.nan_to_num(judged_utility(cells, qrels, goal.target.measure))
    levels = np.unique(utility[utility > 0])
    value = gradient(
        cells, goal.target.measure, Levels(levels, (utility[:, None] >= levels) * 1.0)
    ).value
    linear = expected_goal(goal, guessed(cells, levels[-1]), levels[-1])
    proposal, prior = design(linear, rank_utility(cells)), NumPyroPrior(feature_table(cells, {}))
    errors = []
    for key in jax.random.split(jax.random.key(0), 8):
        sample = draw(key, proposal, 10 * len(cells.queries))
        rounds = [Round(sample, utility[sample.draws])]
        controls = [None], [cross_fit(prior, linear, rounds, [0])]
        errors.append([estimate_ratio(goal, rounds, controls=c).value - value for c in controls])
    plain, fitted = np.sqrt((np.array(errors) ** 2).mean((0, 2)))
    assert fitted < 0.65 * plain  # .42 in 12 studies; .66 where levels are told from means alone
    assert fitted < 0.06


def test_what_is_refused():
    cells, grade = made(queries=4)
    goal = asked("AP@20", cells)
    utility, _ = truth(goal, grade)
    sample = drawn(goal, 60)
    one = Round(sample, utility[sample.draws])
    for act in (
        lambda: design(goal, rank_utility(cells)),
        lambda: estimate(goal, [one]),
        lambda: simulate(goal, utility, budgets=[10], replications=2),
    ):
        with pytest.raises(EvenhandError, match="AP@20 is no sum over documents"):
            act()
    with pytest.raises(EvenhandError, match="79 draws for 4 queries do not tell"):
        check_draws(goal, 79)
    check_draws(goal, 80)
    check_draws(asked("nDCG@10", cells), 40)
    few = asked("AP@20", made(queries=3, depth=5, documents=5)[0])
    check_draws(few, len(few.target.pool))  # all there is tells all
    with pytest.raises(EvenhandError, match="14 draws for 3 queries do not tell"):
        check_draws(few, len(few.target.pool) - 1)
    with pytest.raises(SupportError, match="cubic intervals ask what a pair weighs"):
        estimate_ratio(goal, [one], interval="cubic")
    # A cell that could not be drawn counts for what its query divides by.
    lacking = everything(cells, np.where(np.arange(len(cells)) == 7, 0.0, 1.0))
    lacking = replace(lacking, draws=lacking.draws[lacking.draws != 7])
    found = estimate_ratio(goal, [Round(lacking, utility[lacking.draws])])
    assert (found.covered < 1).all()
    assert np.isnan([found.value, found.low, found.high]).all()
    assert any("5 of 5 systems are not covered" in note for note in found.notes)


def test_a_query_without_a_relevant_draw_is_told():
    cells, grade = made(queries=4)
    goal = asked("R@5", cells)
    utility = np.where(cells.query == 2, 0.0, truth(goal, grade)[0])
    sample = drawn(goal, 80)
    found = estimate_ratio(goal, [Round(sample, utility[sample.draws])])
    assert any("1 of 4 queries have no relevant draw" in note for note in found.notes)
    # Predictions that were far too high leave a count below 0, of a query with relevant draws.
    first = np.arange(len(cells)) < 15
    held = Sample("distinct", np.arange(30), np.where(first, 1.0, 0.02))
    assert (cells.query[:30] == 0).all()
    rounds, control = [Round(held, first[:30] * 1.0)], Control(np.full(len(cells), 0.9))
    found = estimate_ratio(goal, rounds, controls=[control])
    assert not any("no relevant draw" in note for note in found.notes)


def test_a_study(tmp_path):
    """Drawn, judged and estimated twice: the second round learns, and knows what was judged."""
    cells, grade = made()
    queries, documents = cells.names(np.arange(len(cells)))
    runs: dict[str, dict[str, dict[str, float]]] = {name: {} for name in cells.systems}
    for j, c, rank in zip(cells.system, cells.cell, cells.rank, strict=True):
        runs[cells.systems[j]].setdefault(queries[c], {})[documents[c]] = float(-rank)
    qrels: dict[str, dict[str, int]] = {}
    for query, document, g in zip(queries, documents, grade, strict=True):
        qrels.setdefault(query, {})[document] = int(g)
    study = Study.create(tmp_path / "s", runs, measure="nDCG@10", goal="best")
    assert study.settings.depth == 100
    with pytest.raises(EvenhandError, match="79 draws for 8 queries do not tell"):
        study.draw(79)
    study.draw(90, seed=1)
    study.judge(qrels)
    first = study.estimate()
    study.draw(60, utility="learned", seed=2)
    study.judge(qrels)
    second = study.estimate()
    assert second.n_judged == 150
    assert second.to_dict()["measure"] == "nDCG@10"
    assert second.std_error.mean() < first.std_error.mean()
    _, value = truth(asked("nDCG@10", study.pool), grade_of(study.pool, qrels))
    assert (np.abs(second.value - value) < 5 * second.std_error).all()
    assert study.plan(half_width=0.02).needed is not None
    wide = study.estimate(question="population")
    assert wide.to_dict()["for"] == "population"
    assert (wide.std_error > second.std_error).all()
    assert (wide.value == second.value).all()
    assert (study.estimate(bounds=True).low == second.low).all()  # all are covered


def grade_of(cells, qrels) -> np.ndarray:
    names = zip(*cells.names(np.arange(len(cells))), strict=True)
    return np.array([qrels[query][document] for query, document in names])


def test_measures_say_what_they_are():
    assert measures.AP(cutoff=10).weight(np.array([2, 11])).tolist() == [0.5, 0.0]
    assert measures.nDCG(cutoff=10).top_utility is None
    assert measures.R(cutoff=5, rel=2).utility(np.array([1, 2])).tolist() == [0.0, 1.0]


def one_query(name: str):
    """A query of nine documents, all in one list, of which four are relevant."""
    cells = pool(read_runs({"a": {"q": {f"d{d}": float(-d) for d in range(9)}}}), depth=9)
    goal = asked(name, cells, "absolute")
    grade = np.array([1, 0, 2, 1, 0, 1, 0, 0, 2])
    utility, value = truth(goal, grade if "gains" in name else np.minimum(grade, 1))
    return goal, utility, value


def each_sample(utility: np.ndarray, n: int):
    """A round of each sample of so many of nine documents, all alike likely."""
    for draws in itertools.combinations(range(9), n):
        yield Round(Sample("distinct", np.array(draws), np.full(9, n / 9)), utility[list(draws)])


@pytest.mark.parametrize("name", ["AP@9", "nDCG@7", "R@2", GRADED.replace("10", "7")])
def test_a_right_prediction_leaves_no_error(name):
    goal, utility, value = one_query(name)
    levels = len(np.unique(utility)) - 1
    samples = (one for one in each_sample(utility, 4) if len(set(one.utility) - {0.0}) == levels)
    for one in itertools.islice(samples, 10):
        found = estimate_ratio(goal, [one], controls=[Control(utility)])
        np.testing.assert_allclose(found.value, value, rtol=0, atol=1e-12)
        assert found.std_error[0] < 1e-12


SEVEN = GRADED.replace("10", "7")


def test_a_right_prediction_by_level_leaves_no_error():
    goal, utility, value = one_query(SEVEN)
    reach = Reach(np.array([1.0, 3.0]), (utility[:, None] >= [1.0, 3.0]) * 1.0)
    wrong = 0.5 * utility + 0.2  # levels count where they are told
    samples = (one for one in each_sample(utility, 4) if {1.0, 3.0} <= set(one.utility))
    for one in itertools.islice(samples, 10):
        found = estimate_ratio(goal, [one], controls=[Control(wrong, reach=reach)])
        np.testing.assert_allclose(found.value, value, rtol=0, atol=1e-12)
        assert found.std_error[0] < 1e-12


def test_grades_are_divided_by_what_levels_tell():
    """All documents are alike to the prediction, which is right of them together.

    A mean of 1 may be of nine fair documents, or of three fair ones and two that are perfect; an
    ideal list holds the latter.
    """
    goal, utility, value = one_query(SEVEN)
    reach = Reach(np.array([1.0, 3.0]), np.tile([5 / 9, 2 / 9], (9, 1)))
    means, told = Control(np.ones(9)), Control(np.ones(9), reach=reach)
    off = {
        name: np.array(
            [
                estimate_ratio(goal, [one], controls=[given]).value[0] - value[0]
                for one in each_sample(utility, 4)
            ]
        )
        for name, given in (("means", means), ("told", told))
    }
    assert (off["told"] ** 2).mean() < 0.6 * (off["means"] ** 2).mean()
    assert abs(off["told"].mean()) < 0.2 * abs(off["means"].mean())


def test_an_ideal_list_that_seems_full_may_not_be(monkeypatch):
    """The list's first two are known, and an ideal list of two is thought full: no slope is left.

    Of the other seven, which are good to the prediction and are not, two are drawn.
    """
    goal, *_ = one_query(GRADED.replace("10", "2"))
    utility, expected = (
        np.where(np.arange(9) == 0, 3.0, 0.0),
        np.where(np.arange(9) < 2, 1.0, 2 / 7),
    )
    control = Control(np.full(9, 1.05), reach=Reach(np.array([1.0, 3.0]), np.full((9, 2), 0.35)))
    draws = np.array([0, 1, 4, 7])
    rounds = [Round(Sample("distinct", draws, expected), utility[draws])]
    found = estimate_ratio(goal, rounds, controls=[control])
    assert found.value < 0.7  # of 1
    assert found.std_error > 0.01
    monkeypatch.setattr(linearisation, "_flattened", lambda *given: np.zeros(1))
    assert estimate_ratio(goal, rounds, controls=[control]).std_error == 0


def test_what_counts_leave_where_slopes_say_too_little():
    """Equation (4) by hand: five fair documents or better, two of them good, give or take one."""
    goal, utility, _ = one_query(GRADED.replace("10", "2"))
    levels = Levels(np.array([1.0, 3.0]), (utility[:, None] >= [1.0, 3.0]) * 1.0)
    cells, measure = goal.target.pool, goal.target.measure
    first, second = 1.0, 1.0 / np.log2(3)
    assert utility[:2].tolist() == [1, 0]
    assert levels.counts(cells).tolist() == [[5, 2]]
    full, lacking = first + second + 2 * (first + second), first + second + 2 * first
    found = linearisation._flattened(cells, measure, levels, np.full((1, 2), 1 / np.sqrt(3)))
    np.testing.assert_allclose(found, [(first / lacking - first / full) / 6], rtol=1e-9)


@pytest.mark.parametrize("name", ["AP@9", "nDCG@7", "R@2"])
def test_a_wrong_prediction_is_outvoted(name):
    """Predicted the wrong way round: what it puts off falls as more is drawn, to 0 for a census."""
    goal, utility, value = one_query(name)
    wrong = Control(0.7 - 0.6 * utility)
    off = {}
    for n in (3, 8, 9):
        estimates = [
            estimate_ratio(goal, [one], controls=[wrong]).value[0]
            for one in each_sample(utility, n)
        ]
        off[n] = abs(np.mean(estimates) - value[0])
    assert off[3] > 0.01
    assert off[8] < off[3] / 2
    assert off[9] < 1e-12


def test_predictions_steady_what_is_divided_by():
    """Three draws of nine: the number of relevant documents that they say is 0 to 9."""
    goal, utility, value = one_query("R@2")
    control = Control(np.full(9, 0.5))
    plain, steadied = (
        [estimate_ratio(goal, [one], controls=c).value[0] for one in each_sample(utility, 3)]
        for c in (None, [control])
    )
    assert np.mean((np.array(steadied) - value) ** 2) < 0.5 * np.mean(
        (np.array(plain) - value) ** 2
    )


@pytest.mark.parametrize("name", ["R@5", "AP@20"])
def test_assessors_who_all_disagree(name):
    """Where two assessors say 0 and 1 of all that is relevant, R is the sum of these halves."""
    cells, grade = made()
    goal = asked(name, cells)
    half = (grade > 0) * 0.5
    found = estimate_ratio(goal, [Round(everything(cells), half)])
    judged: dict[str, list] = {"qid": [], "docid": [], "grade": [], "assessor": []}
    for query, document, of in zip(*cells.names(np.arange(len(cells))), grade > 0, strict=True):
        for assessor, said in (("a", int(of)), ("b", 0)):
            row = (query, document, said, assessor)
            for column, value in zip(judged.values(), row, strict=True):
                column.append(value)
    value = evaluate(cells, read_qrels(pa.table(judged)), name).value[0]
    np.testing.assert_allclose(found.value, value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["R@5", "nDCG@10"])
def test_a_prediction_of_nothing_is_none(name):
    """A round drawn as one has nothing to learn from: what it is divided by is what it says."""
    cells, grade = made(queries=2)
    goal = asked(name, cells)
    sample = drawn(goal, 36)
    one = Round(sample, goal.target.measure.utility(grade)[sample.draws])
    nothing = cross_fit(NumPyroPrior(feature_table(cells, {})), goal, [one], [0])
    assert not nothing.mean.any()
    found, plain = (estimate_ratio(goal, [one], controls=[c]) for c in (nothing, None))
    np.testing.assert_allclose(found.value, plain.value, rtol=0, atol=1e-12)
