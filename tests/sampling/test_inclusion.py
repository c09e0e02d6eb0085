"""With which probability a pair is drawn: by the exact law of each sampler."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from evenhand.designs.proposals import design
from evenhand.designs.utilities import flat
from evenhand.estimands import goals
from evenhand.sampling.inclusion import at_least_once, together
from evenhand.sampling.samplers import SAMPLERS, draw, layout
from evenhand.sampling.samples import Sample


def by_law(law, cells: int) -> np.ndarray:
    return law.mean((law.counts(cells) > 0).astype(np.float64))


@pytest.mark.parametrize("name", ["ties", "missed", "twins"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_each_sampler_by_enumeration(sampler, name, tiny, draws_law, expected_counts):
    on, _ = tiny(name)
    cells, n = len(on.pool), 3
    goal = goals.goal(on, "rank")
    # One cell is likelier than a slice is long, and one cannot be drawn.
    q = np.array([5.0, 1.0, 2.0, 0.5, 1.5, 3.0][:cells])
    q[1] = 0.0
    q /= q.sum()
    expected = expected_counts(sampler, q, n)
    law = draws_law(sampler, expected, n, order=layout(goal, sampler))
    found = at_least_once(Sample(sampler, law.draws[0], expected), goal)
    np.testing.assert_allclose(found, by_law(law, cells), rtol=0, atol=1e-9)
    assert found[1] == 0
    if sampler != "distinct":
        # A pair may be drawn twice, so that an expected count is no probability.
        assert np.any(expected > found + 1e-3)


@pytest.mark.parametrize("sampler", ["iid", "slices", "distinct"])
def test_by_fold(sampler, tiny, draws_law):
    on, _ = tiny("ties")
    goal = goals.goal(on, "rank")
    fold, sizes = np.array([0, 0, 0, 1, 1], np.int32), np.array([2, 1])
    expected = np.array([0.9, 0.7, 0.4, 0.75, 0.25])
    order = layout(goal, sampler, fold)
    folds = (fold, sizes)
    law = draws_law(sampler, expected, 3, order=order, folds=folds)
    # Any outcome has the folds' numbers of draws, which is all that is taken from it.
    found = at_least_once(Sample(sampler, law.draws[0], expected, fold), goal)
    np.testing.assert_allclose(found, by_law(law, 5), rtol=0, atol=1e-9)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_census_is_certain(sampler, tiny):
    on, _ = tiny("agree")
    goal = goals.absolute(on)
    sample = Sample(sampler, np.array([1, 1, 1]), np.array([0.0, 3.0, 0.0]))
    if sampler == "distinct":
        sample = draw(jax.random.key(0), design(goal, flat(on.pool)), len(on.pool))
        assert at_least_once(sample, goal).tolist() == [1.0] * len(on.pool)
    else:
        assert at_least_once(sample, goal).tolist() == [0.0, 1.0, 0.0]


def test_rounds_together():
    found = together([np.array([0.5, 0.0, 1.0]), np.array([0.1, 0.0, 0.3]), np.array([0.2, 0, 0])])
    np.testing.assert_allclose(found, [1 - 0.5 * 0.9 * 0.8, 0.0, 1.0], rtol=0, atol=1e-15)
