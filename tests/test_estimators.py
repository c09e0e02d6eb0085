"""Unbiased estimates of systems and contrasts: exact first, by enumeration of every sample."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from evenhand.designs import DESIGNS, design
from evenhand.estimators import Round, estimate
from evenhand.sampling import SAMPLERS, Sample, slice_order
from evenhand.targets import GOALS
from evenhand.utilities import Moments, flat, rank_utility, score_utility

KINDS = [*GOALS, "own"]
UTILITIES = {"agree": flat, "missed": rank_utility, "ties": score_utility, "twins": rank_utility}
EXACT = 1e-12


def sample_law(draws_law, expected_counts, plan, sampler, n, permutation=None):
    """Expected counts, and the exact law of the draws from a design."""
    expected = expected_counts(sampler, plan.q, n)
    order = slice_order(plan.goal)
    return expected, draws_law(sampler, expected, n, order=order, permutation=permutation)


def truths(goal, utility):
    value = goal.target.values(utility)
    return value, goal.matrix @ value


def plans(goal, utility):
    """All designs and floors that are legal: with floor 1 all designs are one."""
    made = [design(goal, utility, kind=kind, floor=f) for kind in DESIGNS for f in (0.0, 0.1)]
    return [*made, design(goal, utility, floor=1.0)]


@pytest.mark.parametrize("pool_name", UTILITIES)
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", KINDS)
def test_enumerated_estimate_is_unbiased(
    tiny, make_goal, draws_law, expected_counts, pool_name, sampler, kind
):
    target, utility = tiny(pool_name)
    goal = make_goal(target, kind)
    value, contrast = truths(goal, utility)
    for plan in plans(goal, UTILITIES[pool_name](target.pool)):
        # No more distinct cells than the design supports, and not all of them: that would be a census.
        n = min(2, max(1, np.count_nonzero(plan.q) - 1))
        expected, law = sample_law(draws_law, expected_counts, plan, sampler, n)
        assert abs(law.probability.sum() - 1) <= EXACT
        estimates = [
            estimate(goal, [Round(Sample(sampler, draws, expected), utility[draws])])
            for draws in law.draws
        ]
        covered = estimates[0].covered == 1
        assert covered.all() or (plan.floor == 0 and plan.name.startswith(("optimal", "minimax")))
        values = np.array([e.value for e in estimates])
        assert np.isnan(values[:, ~covered]).all()
        bias = law.mean(values[:, covered]) - value[covered]
        assert np.abs(bias).max(initial=0) <= EXACT, plan
        bias = law.mean(np.array([e.contrast for e in estimates])) - contrast
        assert np.abs(bias).max() <= EXACT, plan
