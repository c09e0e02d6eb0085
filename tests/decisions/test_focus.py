"""Weights of pairs for the goals `best` and `order`, and rounds that are designed by them."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from evenhand.decisions.focus import AHEAD, FOCUSED, deciding, focused, pair_weights, root, tempered
from evenhand.designs.proposals import design
from evenhand.designs.utilities import rank_utility
from evenhand.errors import EvenhandError, SupportError
from evenhand.estimands import goals
from evenhand.estimands.contrasts import contrasts
from evenhand.estimation.importance import estimate
from evenhand.float64 import in_float64
from evenhand.priors.features import feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import draw, expected_by_fold, layout
from evenhand.sampling.samples import Sample
from evenhand.simulation.adaptive import learned_rounds
from evenhand.simulation.simulations import simulate
from evenhand.study import Study

EXACT = 1e-12


@in_float64
def weights_of(kind, value, covariance, **about):
    value, covariance = jnp.asarray(value, float), jnp.asarray(covariance, float)
    return np.asarray(pair_weights(kind, value, covariance, **about))


@in_float64
def matrix_of(weights, share=0.2):
    mixed = tempered(jnp.asarray(weights, float), share)
    return np.asarray(mixed), np.asarray(root(mixed))


def rate(gap, square):
    s = np.sqrt(square)
    return abs(gap) * stats.norm.pdf(gap / s) / (2 * s**3)


# Weights


@pytest.mark.parametrize(("gap", "variance"), [(0.0, 1.0), (0.7, 2.0), (-3.0, 0.5), (4.0, 0.5)])
def test_weights_are_the_expected_rate(gap, variance):
    # With two systems one of both is always the best. A little is added to each variance.
    square = 1.05 * variance
    covariance = np.diag([variance, 0.0])
    found = integrate.quad(
        lambda d: rate(d, AHEAD * square) * stats.norm.pdf(d, gap, np.sqrt(square)),
        *(-20, 20),
        points=[0, gap],
    )[0]
    exact = weights_of("order", [gap, 0.0], covariance)
    np.testing.assert_allclose(exact, found * (1 - np.eye(2)), rtol=1e-8, atol=1e-12)
    # By simulation, of values that are spread by the estimated variance alone.
    narrow = integrate.quad(
        lambda d: rate(d, AHEAD * square) * stats.norm.pdf(d, gap, np.sqrt(variance)),
        *(-20, 20),
        points=[0, gap],
    )[0]
    simulated = weights_of("best", [gap, 0.0], covariance, n_draws=1 << 18)
    np.testing.assert_allclose(simulated, narrow * (1 - np.eye(2)), rtol=0.05, atol=1e-12)


def test_who_leads_decides_what_is_best_and_close_pairs_the_order():
    # Two that lead, two far behind that are as close.
    value, covariance = [5.0, 4.8, 1.0, 0.9], np.eye(4) * 0.1
    best, order = (weights_of(kind, value, covariance) for kind in FOCUSED)
    for weights in (best, order):
        np.testing.assert_array_equal(weights, weights.T)
        assert (weights >= 0).all()
        assert not np.diag(weights).any()
    assert best[0, 1] > 1e6 * max(best[2, 3], best[0, 2], 1e-30)
    assert order[2, 3] == pytest.approx(order[0, 1], rel=0.2)
    assert order[0, 1] > 100 * order[0, 2]


def test_a_challenger_counts_more_if_it_is_closer():
    best = weights_of("best", [3.0, 2.5, 1.5, 0.0], 0.5 * np.eye(4))
    assert best[0, 1] > 2 * best[0, 2] > 4 * best[0, 3] > 0


def test_systems_that_are_one_have_no_weight_and_nothing_known_is_all_alike():
    covariance = np.array([[1.0, 1.0, 0.2], [1.0, 1.0, 0.2], [0.2, 0.2, 1.0]])
    for kind in FOCUSED:
        weights = weights_of(kind, [2.0, 2.0, 1.0], covariance)
        assert weights[0, 1] == 0
        assert weights[0, 2] > 0
        nothing = weights_of(kind, np.zeros(3), np.zeros((3, 3)))
        assert not nothing.any()
    mixed, _ = matrix_of(np.zeros((3, 3)))
    np.testing.assert_allclose(mixed, (1 - np.eye(3)) / 3)


def test_a_share_of_the_weights_is_uniform():
    given = np.zeros((4, 4))
    given[0, 1] = given[1, 0] = 7.0
    mixed, _ = matrix_of(given, 0.3)
    assert mixed[0, 1] == pytest.approx(0.7 + 0.3 / 6)
    assert mixed[2, 3] == pytest.approx(0.3 / 6)
    assert np.triu(mixed, 1).sum() == pytest.approx(1)


# The contrasts


@pytest.mark.parametrize("k", [2, 3, 9])
def test_the_root_gives_the_weighted_sum_over_pairs(k):
    rng = np.random.default_rng(k)
    given = np.triu(rng.exponential(size=(k, k)) ** 6, 1)
    mixed, rows = matrix_of(given + given.T, 0.1)
    assert rows.shape == (k - 1, k)
    laplacian = np.diag(mixed.sum(1)) - mixed
    np.testing.assert_allclose(rows.T @ rows, laplacian, atol=1e-14)
    weights = rng.random((50, k))
    apart = (weights[:, :, None] - weights[:, None]) ** 2
    expected = (apart * np.triu(mixed, 1)).sum((1, 2))
    found = np.asarray(contrasts(weights, rows), np.float64)
    np.testing.assert_allclose((found**2).sum(1), expected, rtol=1e-5)


@pytest.fixture
def judged_once(tiny):
    """``(pool, kind)`` to a goal, the true utility, and a round that judged all cells but one."""

    def judged_once(name, kind):
        target, utility = tiny(name)
        draws = np.arange(len(utility) - 1)
        sample = Sample("distinct", draws, np.full(len(utility), 0.8))
        return goals.goal(target, kind), utility, Round(sample, utility[draws], name="1")

    return judged_once


@pytest.mark.parametrize("kind", FOCUSED)
@pytest.mark.parametrize("name", ["missed", "ties", "twins"])
def test_a_focused_goal_has_the_norms_of_its_weights(judged_once, name, kind):
    goal, _, one = judged_once(name, kind)
    found = estimate(goal, [one])
    made = focused(goal, found)
    assert made.kind == kind
    mixed, _ = matrix_of(weights_of(kind, found.value, found.covariance))
    w = goal.target.weights(np.arange(len(goal.target.pool)))
    apart = (w[:, :, None] - w[:, None]) ** 2
    norms = np.sqrt((apart * np.triu(mixed, 1)).sum((1, 2)))
    np.testing.assert_allclose(made.norms(), norms, rtol=1e-9, atol=1e-15)
    # Exactly nothing where all systems agree.
    np.testing.assert_array_equal(made.norms() == 0, (np.ptp(w, axis=1) == 0))
    # All weights uniform: the goal `rank`, but for a factor.
    alike = focused(goal, found, share=1.0).norms()
    some = alike > 0
    ratio = alike[some] / goals.rank(goal.target).norms()[some]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)
    shares = dict(deciding(made, most=9))
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_pairs_of_which_nothing_is_known_count_as_the_most_decisive(tiny):
    # System c alone returns the third cell, which the round could not draw.
    target, utility = tiny("missed")
    goal = goals.best(target)
    sample = Sample("iid", np.array([0, 1, 3]), np.array([1.0, 1.0, 0.0, 1.0]))
    found = estimate(goal, [Round(sample, utility[sample.draws])])
    assert (found.covered < 1).any()
    lost = [f"{target.systems[i]} - {target.systems[2]}" for i in (0, 1)]
    shares = dict(deciding(focused(goal, found)))
    assert shares[lost[0]] == pytest.approx(shares[lost[1]])
    assert shares[lost[0]] == pytest.approx(max(shares.values()))


def test_other_goals_ask_the_same_of_every_round(judged_once):
    goal, _, one = judged_once("missed", "rank")
    with pytest.raises(EvenhandError, match="'rank' asks the same of every round"):
        focused(goal, estimate(goal, [one]))


# Exactly unbiased (`tests/test_laws.py`), and not if it hides what it learned from


@pytest.fixture(scope="module")
def rounds_law(draws_law):
    """``(goal, q, n)`` to every (chance, sample) of a round of independent draws."""

    def law(goal, q, n):
        expected, _ = expected_by_fold("iid", q, n)
        found = draws_law("iid", expected, n, order=layout(goal, "iid"))
        return [
            (chance, Sample("iid", draws, expected))
            for chance, draws in zip(found.probability, found.draws, strict=True)
        ]

    return law


def two_rounds(goal, utility, rounds_law):
    """Every (chance, rounds) of a study whose second round is focused, and does not say so."""
    first = design(goal, rank_utility(goal.target.pool), floor=0.3)
    for chance_1, one in rounds_law(goal, first.q, 2):
        before = Round(one, utility[one.draws], name="1")
        asked = focused(goal, estimate(goal, [before]))
        second = design(asked, rank_utility(goal.target.pool), floor=0.3)
        for chance_2, two in rounds_law(asked, second.q, 2):
            yield chance_1 * chance_2, [before, Round(two, utility[two.draws], name="2")]


@pytest.mark.parametrize("kind", FOCUSED)
def test_trap_weights_from_the_data_in_a_mixture(tiny, rounds_law, kind):
    # Told that the second round was fixed in advance, the balance heuristic is off.
    target, utility = tiny("ties")
    goal = goals.goal(target, kind)
    value = 0.0
    for chance, rounds in two_rounds(goal, utility, rounds_law):
        value = value + chance * estimate(goal, rounds, combine="balance").value
        honest = [rounds[0], replace(rounds[1], depends_on=("1",))]
        with pytest.raises(SupportError, match="designed after looking: 2"):
            estimate(goal, honest, combine="balance")
    assert np.abs(value - target.values(utility)).max() > 1e-4


# Whole studies


@pytest.fixture(scope="module")
def made(made_folder):
    """A folder with made runs and judgments."""
    return made_folder(4)


@pytest.fixture(scope="module")
def world(made_target):
    """Target and true utilities of made data."""
    return made_target(4)


@pytest.mark.slow
def test_a_study_focuses_its_later_rounds(made, tmp_path):
    study = Study.create(tmp_path / "study", made / "runs", measure="DCG@20", goal="best")
    drawn = study.draw(60, seed=1)
    assert drawn.design == "optimal/rank"
    assert "no round is wholly judged yet" in drawn.notes[0]
    study.judge(made / "qrels.txt")
    drawn = study.draw(60, seed=2)
    assert drawn.design == "optimal/rank/best"
    assert "still decide 'best', above all" in drawn.notes[0]
    record = json.loads((study.folder / drawn.name / "round.json").read_text(encoding="utf-8"))
    assert record["depends_on"] == ["round-001"]
    study.judge(made / "qrels.txt")
    with pytest.raises(SupportError, match="designed after looking: round-002"):
        study.estimate(combine="balance")
    # Designs that do not minimise a sum over pairs are as ever.
    assert study.draw(20, kind="minimax", seed=3).design == "minimax/rank"
    found = study.estimate()
    assert found.goal.names[0].endswith(" - mean")
    assert (found.covered == 1).all()


@pytest.mark.slow
def test_a_study_that_learns_is_focused_too(made, tmp_path):
    study = Study.create(tmp_path / "study", made / "runs", measure="DCG@20", goal="order")
    study.draw(60, seed=1)
    study.judge(made / "qrels.txt")
    drawn = study.draw(60, utility="learned", seed=2)
    assert drawn.design == "optimal/learned/order"
    (_, later) = study.rounds()
    assert later.depends_on == ("round-001",)
    assert later.known is not None


@pytest.mark.slow
def test_learned_rounds_are_focused(world):
    target, utility = world
    prior = NumPyroPrior(feature_table(target.pool))
    expected = []
    for goal in (goals.rank(target), goals.best(target)):
        key = jax.random.key(0)
        rounds = learned_rounds(key, goal, lambda c: utility[c], prior, [60, 60])
        assert rounds[1].depends_on == ("round 1",)
        expected.append(rounds[1].sample.expected)
    assert np.abs(expected[0] - expected[1]).max() > 0.01


@pytest.mark.slow
def test_rounds_that_learn_nothing_are_focused_too(world):
    target, utility = world
    goal, key = goals.best(target), jax.random.key(3)
    first, later = learned_rounds(key, goal, lambda c: utility[c], None, [30, 40])
    assert later.depends_on == ("round 1",)
    assert first.known is None
    np.testing.assert_array_equal(later.known[first.sample.draws], utility[first.sample.draws])
    assert not np.isin(later.sample.draws, first.sample.draws).any()
    # The parts, one after the other.
    asked = focused(goal, estimate(goal, [first], planned=[30]))
    known = np.isfinite(later.known)
    made = design(asked, rank_utility(target.pool), known=known)
    again = draw(jax.random.fold_in(key, 1), made, 40)
    np.testing.assert_array_equal(later.sample.draws, again.draws)
    (_, alike) = learned_rounds(key, goals.rank(target), lambda c: utility[c], None, [30, 40])
    assert np.abs(alike.sample.expected - later.sample.expected).max() > 1e-3


@pytest.mark.slow
def test_simulated_studies_are_unbiased_and_name_the_best_more_often(world):
    # 7 systems, 100 studies: the largest |z| exceeds 4.5 by chance in one of 10^4 runs.
    target, utility = world
    found = simulate(
        goals.best(target), utility, budgets=[200], designs=["rank"], replications=100, focus=[2]
    )
    assert found.goal == "best"
    ranks, best = found.rows
    assert (best["design"], best["rounds"], best["sampler"]) == ("best", 2, "distinct")
    assert best["bias_z"] < 4.5
    assert 0.9 < best["pairs"] < 0.99
    # On other draws: each share has a standard error of up to .05.
    assert best["best"] > ranks["best"] - 0.2
    with pytest.raises(EvenhandError, match="at least one round"):
        simulate(goals.best(target), utility, budgets=[40], focus=[0])
