"""Swapped pairs from samples: unbiased to rounding, and exact where all is judged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np
import pytest

from evenhand.designs.proposals import design
from evenhand.designs.utilities import flat, rank_utility
from evenhand.errors import EvenhandError, SupportError
from evenhand.estimands import goals, targets
from evenhand.estimands.evaluation import evaluate
from evenhand.estimands.pools import pool
from evenhand.estimation.importance import estimate
from evenhand.formats.runs import read_runs
from evenhand.nonlinear.design_goals import expected_goal, guessed
from evenhand.nonlinear.gradients import Levels, gradient
from evenhand.nonlinear.second_order import Errors, even_parts
from evenhand.nonlinear.swaps import estimate_swaps
from evenhand.sampling import folds
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import draw, expected_by_fold
from evenhand.sampling.samples import Sample
from evenhand.study import Study

#: Four documents of one query and one of another; y misses one, z answers one query only.
RUNS = {
    "x": {"q1": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}, "q2": {"a": 1.0}},
    "y": {"q1": {"c": 4.0, "b": 3.0, "a": 1.0}, "q2": {"a": 2.0}},
    "z": {"q1": {"d": 2.0, "b": 1.5, "a": 1.0}},
}
GRADES = {"q1": {"a": 1, "b": 3, "c": 0, "d": 2}, "q2": {"a": 2}}
NAMES = ["Swaps", "wSwaps", "Swaps@3", "wSwaps@2"]
Q = np.array([0.14, 0.3, 0.2, 0.16, 0.2])
#: Without the second query, whose document makes no pair.
ONE = {name: {"q1": found["q1"]} for name, found in RUNS.items()}
FEW = np.array([0.2, 0.35, 0.3, 0.15])


def asked(name: str, kind: str = "absolute", runs=RUNS) -> goals.Goal:
    return goals.goal(targets.target(pool(read_runs(runs)), name), kind)


def grades(goal: goals.Goal, of=GRADES) -> np.ndarray:
    cells = goal.target.pool
    names = zip(*cells.names(np.arange(len(cells))), strict=True)
    return np.array([of[query][document] for query, document in names], float)


def truth(name: str, runs=RUNS) -> np.ndarray:
    """`evaluate`, which is held to a plain loop elsewhere."""
    of = {query: GRADES[query] for query in runs["x"]}
    return evaluate(read_runs(runs), of, [name]).value[0]


def independent_draws(q: np.ndarray, n: int) -> Iterator[tuple[float, Sample]]:
    for draws in itertools.product(range(len(q)), repeat=n):
        if (chance := np.prod(q[list(draws)])) > 0:
            yield chance, Sample("iid", np.array(draws), n * q)


@pytest.fixture(scope="module")
def outcomes(draws_law, expected_counts):
    """``(sampler, q, n)`` to every sample that can be drawn in pairs and its probability.

    The real sampler on folds of which all assignments are enumerated, the certain cells apart.
    """

    def found(sampler: str, q: np.ndarray, n: int) -> Iterator[tuple[float, Sample]]:
        if sampler == "iid":
            yield from independent_draws(q, n)
            return
        certain = expected_counts("distinct", q, n) == 1.0
        if n - certain.sum() == 1:
            certain[:] = False
        free = np.flatnonzero(~certain)
        # The first may as well be in fold 1: which fold has which number is all the same.
        for others in itertools.product([1, 2], repeat=len(free) - 1):
            by_chance, fold = (1, *others), np.zeros(len(q), np.int32)
            fold[free] = by_chance
            expected, sizes = expected_by_fold("distinct", q, n, fold)
            padded = np.zeros(3, np.int64)
            padded[: len(sizes)] = sizes
            law = draws_law("distinct", expected, n, folds=(fold, padded))
            for draws, chance in zip(law.draws, law.probability, strict=True):
                yield chance / 2.0 ** len(others), Sample("distinct", draws, expected, fold, 2)

    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_census_is_the_value(name):
    goal = asked(name)
    grade = grades(goal)
    every = np.arange(len(grade))
    found = estimate_swaps(goal, [Round(Sample("distinct", every, np.ones(len(grade))), grade)])
    np.testing.assert_allclose(found.value, truth(name), rtol=0, atol=1e-12)
    assert (found.std_error <= 1e-12).all()


def check(goal, name, found, runs=RUNS) -> None:
    """The mean of all outcomes is the truth, and they are no constant."""
    value_there = truth(name, runs)
    chance = np.array([p for p, _ in found])
    value = np.array([e.value for _, e in found])
    contrast = np.array([e.contrast for _, e in found])
    assert abs(chance.sum() - 1) < 1e-12
    np.testing.assert_allclose(chance @ value, value_there, rtol=0, atol=1e-12)
    np.testing.assert_allclose(chance @ contrast, goal.matrix @ value_there, rtol=0, atol=1e-12)
    assert np.ptp(value, axis=0).max() > 0.1


def test_enumerated_certain_cells_pair_with_every_other(outcomes):
    """One cell is so likely that it is drawn for certain, and belongs to no fold at random."""
    goal, q = asked("Swaps"), np.array([0.05, 0.8, 0.05, 0.04, 0.06])
    grade, found = grades(goal), []
    for chance, sample in outcomes("distinct", q, 3):
        assert sample.expected[1] == 1.0
        assert sample.fold[1] == 0
        found.append((chance, estimate_swaps(goal, [Round(sample, grade[sample.draws])])))
    check(goal, "Swaps", found)


def test_rounds_fixed_in_advance_are_weighed_by_their_draws():
    goal = asked("wSwaps", runs=ONE)
    grade = grades(goal)
    first, second = (Sample("iid", np.array(d), 2 * q) for d, q in (([0, 1], FEW), ([2, 3], FEW)))
    rounds = [Round(one, grade[one.draws]) for one in (first, second)]
    weights = estimate_swaps(goal, rounds).weights
    np.testing.assert_allclose(weights, [1 / (1 + 2**0.5), 2**0.5 / (1 + 2**0.5)])


def test_what_is_not_corrected_is_biased(outcomes):
    """The measure of unbiased utilities is off: draws of one round are not independent."""
    goal, mean = asked("Swaps"), 0.0
    grade = grades(goal)
    gain = np.array([1.0, 2.0, 3.0])
    for chance, sample in outcomes("iid", Q, 3):
        reached = np.zeros((5, 3))
        steps = (grade[sample.draws][:, None] >= gain) * 1.0
        np.add.at(reached, sample.draws, steps / sample.expected[sample.draws][:, None])
        measure = goal.target.measure
        mean += chance * gradient(goal.target.pool, measure, Levels(gain, reached)).value
    assert np.abs(mean - truth("Swaps")).max() > 0.02


def test_folds_at_random_are_uniform():
    """4,000 cells, of which 100 certain, among 8 folds: chi-squared(7) is above 32 once in 2e4.

    A fold that is a tenth too likely is found for certain but for 1 in 100.
    """
    expected = np.where(np.arange(4000) < 100, 1.0, 900 / 3900)
    fold, n_folds = folds.scatter(jax.random.key(3), expected, 1000)
    assert n_folds == folds.SCATTERED == 8
    np.testing.assert_array_equal(np.flatnonzero(fold == 0), np.arange(100))
    count = np.bincount(fold[100:], minlength=9)[1:]
    assert ((count - 3900 / 8) ** 2 / (3900 / 8)).sum() < 32
    # Two draws at least must be left for the folds.
    fold, n_folds = folds.scatter(jax.random.key(3), np.array([1.0, 0.6, 0.4]), 2)
    assert n_folds == 2
    assert (fold > 0).all()


def test_draws_in_pairs():
    goal = asked("Swaps", "rank")
    made = design(expected_goal(goal, guessed(goal.target.pool, 3.0)), flat(goal.target.pool))
    key = jax.random.key(0)
    sample = draw(key, made, 3, in_pairs=True)
    assert len(set(sample.draws.tolist())) == 3
    assert sample.scattered == 2
    np.testing.assert_allclose(sample.expected.sum(), 3)
    assert draw(key, made, 5, in_pairs=True).expected.tolist() == [1.0] * 5
    independent = draw(key, made, 30, sampler="iid", in_pairs=True)
    assert independent.n_folds == 1
    for options, words in (
        ({"sampler": "slices"}, "two documents of one slice are never drawn together"),
        ({"n": 1}, "at least 2 draws, got 1"),
    ):
        with pytest.raises(EvenhandError, match=words):
            draw(key, made, **{"n": 3, "in_pairs": True, **options})


@pytest.mark.slow
def test_what_was_not_drawn_in_pairs_is_refused():
    goal = asked("Swaps")
    grade = grades(goal)
    made = design(expected_goal(goal, guessed(goal.target.pool, 3.0)), flat(goal.target.pool))
    for sampler in ("distinct", "slices"):
        sample = draw(jax.random.key(0), made, 3, sampler=sampler)
        with pytest.raises(SupportError, match="drawing two documents together is not known"):
            estimate_swaps(goal, [Round(sample, grade[sample.draws])])
    both = [Round(draw(jax.random.key(0), made, 3, in_pairs=True), grade[:3])] * 2
    with pytest.raises(SupportError, match="cannot be combined by the balance heuristic"):
        estimate_swaps(goal, both, combine="balance")
    one = draw(jax.random.key(0), made, 1, sampler="iid")
    with pytest.raises(SupportError, match="round 1 has one draw"):
        estimate_swaps(goal, [Round(one, grade[one.draws])])
    sample = draw(jax.random.key(0), made, 3, in_pairs=True)
    with pytest.raises(EvenhandError, match="not negative"):
        estimate_swaps(goal, [Round(sample, grade[sample.draws] - 1)])
    for act in (lambda: design(goal, flat(goal.target.pool)), lambda: estimate(goal, [])):
        with pytest.raises(EvenhandError, match="Swaps is no sum over documents"):
            act()
    # A document that could not be drawn counts for its pairs.
    out = replace(sample, expected=np.where(np.arange(5) == 3, 0.0, sample.expected))
    out = replace(out, draws=out.draws[out.draws != 3])
    found = estimate_swaps(goal, [Round(out, grade[out.draws])])
    assert np.isnan(found.value).tolist() == [True, False, True]  # y does not return it
    assert any("2 of 3 systems are not covered" in note for note in found.notes)
    out = replace(sample, expected=np.where(np.arange(5) == 0, 0.0, sample.expected))
    out = replace(out, draws=out.draws[out.draws != 0])  # all return it
    with pytest.raises(SupportError, match="no system is covered"):
        estimate_swaps(goal, [Round(out, grade[out.draws])])


def test_a_system_that_came_later_leaves_the_others_alone():
    """What only it returns could not be drawn, and counts for nobody else."""
    early, late = {name: RUNS[name] for name in "yz"}, {"x": {"q1": {"a": 2.0, "new": 1.0}}}
    more = asked("Swaps", runs={**early, **late})
    cells = more.target.pool
    of = {"q1": {**GRADES["q1"], "new": 3}, "q2": GRADES["q2"]}
    known = np.array([d != "new" for d in cells.names(np.arange(len(cells)))[1]])
    every = np.flatnonzero(known)
    one = Round(Sample("distinct", every, known * 1.0), grades(more, of)[every], n_cells=len(every))
    found = estimate_swaps(more, [one])
    before = evaluate(read_runs(early), GRADES, ["Swaps"]).value[0]
    at = [more.target.systems.index(name) for name in "yz"]
    np.testing.assert_allclose(found.value[at], before, rtol=0, atol=1e-12)
    assert np.isnan(found.value[more.target.systems.index("x")])


def test_the_even_part_is_the_quadratic_form():
    """-B(e, e) by a plain loop, wherever it is taken."""
    goal = asked("wSwaps@3")
    cells, rng = goal.target.pool, np.random.default_rng(0)
    gain, e = np.array([1.0, 2.0, 3.0]), rng.normal(size=(5, 3))
    errors = Errors(np.arange(5), e, np.ones(5), np.zeros(5), np.zeros(5, int))
    expected = np.zeros(3)
    for j, system in enumerate(cells.systems):
        for query, found in RUNS[system].items():
            names = list(zip(*cells.names(np.arange(5)), strict=True))
            place = [names.index((query, d)) for d in sorted(found, key=found.get, reverse=True)]
            place = place[:3]
            pairs = max(len(place) * (len(place) - 1) / 2, 1)
            for (s, first), (t, second) in itertools.combinations(enumerate(place, 1), 2):
                here = e[second] - np.append(e[second][1:], 0.0)
                expected[j] -= here @ e[first] / (s * t * pairs * 2)
    for reached in (np.zeros((5, 3)), rng.normal(size=(5, 3))):
        levels = Levels(gain, reached)
        found = even_parts(cells, goal.target.measure, levels, errors, np.ones((1, 5)))
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_intervals_cover():
    """150 studies of 300 draws, 25 a query out of about 45.

    Of 150 studies x 4 systems a coverage of .93 is below .85 with a chance of 1e-4, even if the
    systems of a study are covered together; the error of a mean is 1/12 of the deviation, so that a
    bias of .75 deviations fails for certain and none with a chance of 1e-8.
    """
    rng = np.random.default_rng(2)
    hidden = rng.normal(size=(12, 60))
    runs: dict[str, dict[str, dict[str, float]]] = {}
    for j in range(4):
        score = hidden + (0.3 + 0.4 * j) * rng.normal(size=hidden.shape)
        runs[f"s{j}"] = {
            f"q{x}": {f"d{d}": float(score[x, d]) for d in np.argsort(-score[x])[:25]}
            for x in range(12)
        }
    goal = asked("wSwaps@20", "rank", runs)
    cells = goal.target.pool
    document = np.array([int(name[1:]) for name in cells.documents.to_pylist()])
    chance = 1 / (1 + np.exp(-1.5 * (hidden[cells.query, document[cells.document]] - 0.7)))
    grade = rng.binomial(2, chance).astype(float)
    every = Sample("distinct", np.arange(len(cells)), np.ones(len(cells)))
    value = estimate_swaps(goal, [Round(every, grade)]).value
    made = design(expected_goal(goal, guessed(cells, 2.0), 2.0), rank_utility(cells))
    estimates, covered = [], []
    for key in jax.random.split(jax.random.key(1), 150):
        sample = draw(key, made, 300, in_pairs=True)
        found = estimate_swaps(goal, [Round(sample, grade[sample.draws])])
        estimates.append(found.value)
        covered.append((found.low <= value) & (value <= found.high))
    spread = np.std(estimates, 0)
    assert (np.abs(np.mean(estimates, 0) - value) < 0.5 * spread).all()
    assert np.mean(covered) > 0.85


@pytest.mark.slow
def test_a_study(tmp_path):
    """Drawn in pairs, stored, and estimated twice: the second round learns."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(8, 14))
    runs = {
        name: {
            f"q{x}": {f"d{d}": float(hidden[x, d] + noise * rng.normal()) for d in range(14)}
            for x in range(8)
        }
        for name, noise in (("good", 0.2), ("fair", 0.8), ("bad", 2.0))
    }
    grade = np.clip(np.round(hidden + 0.5), 0, 3).astype(int)
    qrels = {f"q{x}": {f"d{d}": int(grade[x, d]) for d in range(14)} for x in range(8)}
    study = Study.create(tmp_path / "s", runs, measure="Swaps@10", goal="rank")
    study.draw(50, seed=1)
    study.judge(qrels)
    first = study.estimate()
    study.draw(30, utility="learned", seed=2)
    study.judge(qrels)
    # What was drawn is read from disk with its folds.
    again = Study.open(tmp_path / "s")
    assert [one.sample.scattered for one in again.rounds()] == [4, 2]
    second = again.estimate()
    value = evaluate(read_runs(runs), qrels, ["Swaps@10"]).value[0]
    assert (np.abs(second.value - value) < 5 * second.std_error).all()
    assert second.std_error.mean() < first.std_error.mean()
    assert second.value[0] < second.value[2]
    assert again.plan(half_width=0.02).needed is not None
    for options in ({"bounds": True}, {"estimator": "cross-fitted"}):
        with pytest.raises(EvenhandError, match="Swaps@10 takes neither bounds nor a control"):
            again.estimate(**options)
    with pytest.raises(EvenhandError, match="two documents of one slice"):
        again.draw(10, sampler="slices")
