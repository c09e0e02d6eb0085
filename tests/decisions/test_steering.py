"""What was learned steers the next round, and costs little where it is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evenhand.decisions.steering import (
    GUARD,
    GUARD_POOR,
    known_utilities,
    learned_utility,
    split,
    steered,
)
from evenhand.designs.proposals import design, variance
from evenhand.designs.utilities import Moments, rank_utility
from evenhand.estimands import goals
from evenhand.float64 import in_float64
from evenhand.priors.features import feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.labels import Labels
from evenhand.sampling.rounds import Round
from evenhand.sampling.samples import Sample


class Told:
    """A posterior that says what it is told."""

    def __init__(self, mean, second):
        self.mean, self.second = np.asarray(mean, float), np.asarray(second, float)

    def predict(self, cells):
        return Moments("told", self.mean[cells], self.second[cells])


@pytest.fixture(scope="module")
def world(made_target):
    """Goal and true utilities of made data."""
    target, utility = made_target(3)
    return goals.rank(target), utility


def test_what_remains_is_the_predictive_variance():
    found = learned_utility(Told([1.0, 2.0, 0.5], [1.5, 4.0, 0.2]), 3)
    assert found.name == "told"
    np.testing.assert_allclose(found.second_moment, [0.5, 0.0, 0.0])


def test_a_steered_design_is_the_mixture_that_it_says(world):
    goal, _ = world
    cells, norms = len(goal.target.pool), goal.norms()
    rng = np.random.default_rng(0)
    mean, spread = rng.random(cells), rng.random(cells)
    known = rng.random(cells) < 0.1
    made, poor = steered(goal, Told(mean, mean**2 + spread), known=known, floor=0.2)
    assert poor == []
    parts = []
    for mass in (
        np.sqrt(spread) * norms,
        np.sqrt(rank_utility(goal.target.pool).second_moment) * norms,
        goal.target.mean_weight(),
    ):
        free = np.where(known, 0.0, mass)
        parts.append(free / free.sum())
    expected = 0.8 * ((1 - GUARD) * parts[0] + GUARD * parts[1]) + 0.2 * parts[2]
    np.testing.assert_allclose(made.q, expected, rtol=1e-12)
    assert not made.q[known].any()


@in_float64
def cost(goal, q, utility):
    a = goal.at(np.arange(len(q)))
    return float(np.asarray(variance(q, a, utility, utility**2)).sum())


@pytest.mark.parametrize("wrong", ["constant", "reversed", "random", "nothing", "one cell"])
def test_a_wrong_model_costs_little(world, wrong):
    # RMSE against the heuristic's own design, for the same draws: at most 1 / sqrt(share of it),
    # whatever the model says; for models that are merely wrong far less.
    goal, utility = world
    heuristic = rank_utility(goal.target.pool)
    rng = np.random.default_rng(1)
    spread = {
        "constant": np.ones(len(utility)),
        "reversed": 1.0 / heuristic.second_moment,
        "random": rng.random(len(utility)),
        "nothing": np.zeros(len(utility)),
        "one cell": np.eye(1, len(utility), 5)[0],
    }[wrong]
    made, _ = steered(goal, Told(np.zeros(len(utility)), spread))
    alone = design(goal, heuristic)
    ratio = np.sqrt(cost(goal, made.q, utility) / cost(goal, alone.q, utility))
    assert ratio < np.sqrt(1 / GUARD)
    if wrong in ("constant", "random", "nothing"):
        assert ratio < 1.15


def test_a_poor_fit_leaves_more_to_the_ranks(world):
    goal, utility = world
    cells = np.arange(0, len(utility), 11)
    fitted = NumPyroPrior(feature_table(goal.target.pool)).fit([Labels(cells, utility[cells])])[0]
    fine, none = steered(goal, fitted)
    assert none == []
    restless = replace(fitted, fitted=fitted.fitted._replace(converged=np.asarray(False)))
    poor, said = steered(goal, restless)
    assert "did not come to rest" in said[0]
    heuristic = design(goal, rank_utility(goal.target.pool), floor=0.1).q
    near = [np.abs(made.q - heuristic).sum() for made in (fine, poor)]
    assert near[1] / near[0] == pytest.approx((1 - GUARD_POOR) / (1 - GUARD), rel=1e-6)


def test_what_is_known_is_known():
    sample = Sample("iid", np.array([2, 0, 2]), np.full(4, 0.75))
    waiting = Sample("iid", np.array([1]), np.full(4, 0.25))
    rounds = [Round(sample, np.array([1.0, 0.0, 1.0])), Round(waiting, np.array([np.nan]))]
    np.testing.assert_array_equal(known_utilities(rounds, 4), [0.0, np.nan, 1.0, np.nan])


@pytest.mark.parametrize(
    ("budget", "rounds", "sizes"), [(100, 1, [100]), (100, 2, [40, 60]), (9, 3, [2, 3, 4])]
)
def test_rounds_grow(budget, rounds, sizes):
    assert split(budget, rounds) == sizes
