"""Assessors who disagree: estimates stay unbiased, and variances hold their disagreement."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from evenhand.designs.proposals import design
from evenhand.designs.utilities import flat
from evenhand.estimands import goals
from evenhand.estimation.importance import estimate
from evenhand.sampling.assessor_variance import disagreement, noise
from evenhand.sampling.combination import Combination, combined
from evenhand.sampling.labels import Labels
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import SAMPLERS, draw
from evenhand.sampling.samples import Sample

EXACT = 1e-12

# Two assessors of a cell each say u - d or u + d with equal chance: the mean of both and how often
# it is so.
BOTH = [(-1.0, 1.0, 0.25), (0.0, 0.0, 0.5), (1.0, 1.0, 0.25)]


def said(cells, utility, spread, moods):
    """Labels of two assessors, by what was the mood of each cell."""
    cells = np.unique(cells)
    rows = []
    for c in cells:
        low, high = {-1: (-1, -1), 0: (-1, 1), 1: (1, 1)}[moods[c]]
        rows += [(c, utility[c] + low * spread[c], 0), (c, utility[c] + high * spread[c], 1)]
    c, u, who = map(np.array, zip(*rows, strict=True))
    return Labels(c, u, who.astype(np.int32))


def mean_of(labels, n):
    by_cell = np.full(n, np.nan)
    mean = labels.averaged()
    by_cell[mean.cells] = mean.utility
    return by_cell


def moods_of(spread):
    """Every way in which the assessors of cells may feel, with its chance."""
    for each in itertools.product(*(BOTH if one else [(0.0, 0.0, 1.0)] for one in spread)):
        yield [int(m[0]) for m in each], float(np.prod([m[2] for m in each]))


@pytest.fixture(scope="module")
def cells_of(line_target):
    """``(n)`` to a contrast over n cells, their utilities, and how far assessors are apart."""

    def made(n):
        weights = np.array([[0.5, 0.1, 0.4], [0.1, 0.4, 0.2]])[:, :n]
        goal = goals.pair(line_target(weights), "s0", "s1")
        return goal, np.array([1.0, 0.4, 2.0])[:n], np.array([0.5, 0.4, 0.8])[:n]

    return made


def iid(q, n):
    """Every sample of n independent draws, with its chance."""
    expected = n * q / q.sum()
    for draws in itertools.product(np.flatnonzero(q), repeat=n):
        yield Sample("iid", np.array(draws), expected), float(np.prod(expected[list(draws)] / n))


class Moments:
    """Mean and covariance of estimates, and the mean of what they say of their covariance."""

    def __init__(self):
        self.chance, self.first, self.second, self.told = 0.0, 0.0, 0.0, 0.0

    def add(self, chance, found):
        value = np.concatenate([found.value, found.contrast])
        self.chance += chance
        self.first = self.first + chance * value
        self.second = self.second + chance * np.outer(value, value)[:2, :2]
        self.told = self.told + chance * found.covariance

    def check(self, goal, utility):
        truth = goal.target.values(utility)
        assert abs(self.chance - 1) <= EXACT
        assert np.abs(self.first - [*truth, *(goal.matrix @ truth)]).max() <= EXACT
        return self.second - np.outer(self.first[:2], self.first[:2]), self.told


def test_one_round_is_unbiased_and_so_is_its_variance(cells_of):
    goal, utility, spread = cells_of(3)
    q = np.array([0.5, 0.2, 0.3])
    found, deaf = Moments(), 0.0
    for moods, chance in moods_of(spread):
        for sample, drawn in iid(q, 2):
            heard = said(sample.draws, utility, spread, moods)
            r = mean_of(heard, 3)[sample.draws]
            found.add(chance * drawn, estimate(goal, [Round(sample, r, individual=heard)]))
            deaf += chance * drawn * estimate(goal, [Round(sample, r)]).covariance
    true, told = found.check(goal, utility)
    assert np.abs(told - true).max() <= EXACT
    # Without the noise the variance is short by what assessors add.
    weights = goal.target.weights(np.arange(3))
    missing = weights.T @ (weights * (spread**2 / 2)[:, None])
    assert np.abs(true - deaf - missing).max() <= EXACT


@pytest.mark.slow
def test_rounds_that_share_judgments(cells_of):
    # What is known leaves the second round, and adds there what the first one's assessors said.
    goal, utility, spread = cells_of(3)
    found = Moments()
    for moods, chance in moods_of(spread):
        for sample, drawn in iid(np.array([0.5, 0.2, 0.3]), 2):
            heard = said(sample.draws, utility, spread, moods)
            known = mean_of(heard, 3)
            first = Round(sample, known[sample.draws], name="first", individual=heard)
            q = np.where(np.isnan(known), [0.2, 0.3, 0.4], 0.0)
            q[np.flatnonzero(q)[0]] += 0.1 * np.nansum(known)
            for again, then in iid(q, 2):
                both = said(np.append(sample.draws, again.draws), utility, spread, moods)
                r = mean_of(both, 3)[again.draws]
                second = Round(again, r, ("first",), known=known, individual=both)
                first = Round(sample, known[sample.draws], name="first", individual=both)
                found.add(chance * drawn * then, estimate(goal, [first, second], planned=[2, 2]))
    true, told = found.check(goal, utility)
    assert np.abs(told - true).max() <= EXACT


def test_rounds_judged_again(cells_of):
    # The second design likes cells that the first round's assessors liked.
    goal, utility, spread = cells_of(2)
    spread = spread * [1.6, 0.0]
    found, merged = Moments(), 0.0
    moods_twice = itertools.product(moods_of(spread), repeat=2)
    for (moods, chance), (later, chance_later) in moods_twice:
        for sample, drawn in iid(np.array([0.4, 0.6]), 2):
            heard = said(sample.draws, utility, spread, moods)
            first = Round(sample, mean_of(heard, 2)[sample.draws], name="first", individual=heard)
            q = 0.1 + np.nan_to_num(mean_of(heard, 2))
            for again, then in iid(q, 2):
                p = chance * chance_later * drawn * then
                anew = said(again.draws, utility, spread, later)
                anew = Labels(anew.cells, anew.utility, anew.assessor + 2)
                r = mean_of(anew, 2)[again.draws]
                second = Round(again, r, ("first",), individual=anew, judged_again=True)
                found.add(p, estimate(goal, [first, second], planned=[2, 2]))
                # The trap: judgments of both rounds, averaged for both.
                mean = mean_of(Labels.union([heard, anew]), 2)
                pooled = [
                    Round(sample, mean[sample.draws], name="first"),
                    Round(again, mean[again.draws], ("first",)),
                ]
                merged += p * estimate(goal, pooled, planned=[2, 2]).value
    true, told = found.check(goal, utility)
    assert np.abs(told - true).max() <= EXACT
    assert np.abs(merged - goal.target.values(utility)).max() > 0.004


def test_single_judgments_borrow(cells_of):
    goal, _, _ = cells_of(3)
    sample = Sample("distinct", np.array([0, 1, 2]), np.ones(3))
    who = np.array([0, 1, 0, 0], np.int32)
    heard = Labels(np.array([0, 0, 1, 2]), np.array([0.0, 1, 1, 3]), who)
    assert disagreement(heard)[1].tolist() == [2, 1, 1]
    np.testing.assert_array_equal(disagreement(heard)[2], [0.5, np.nan, np.nan])
    one = Round(sample, np.array([0.5, 1, 3]), individual=heard)
    systems, contrast, degrees = noise(goal, combined(goal, [one]))
    # All cells are certain, so all that varies is who judged: 1/2 for one judgment, 1/4 for two.
    variance = np.array([0.25, 0.5, 0.5])
    weights = goal.target.weights(np.arange(3))
    assert np.abs(systems - weights.T @ (weights * variance[:, None])).max() <= EXACT
    difference = weights[:, 0] - weights[:, 1]
    assert contrast[0, 0] == pytest.approx(variance @ difference**2, abs=EXACT)
    assert degrees == 1
    alone = Round(sample, np.array([0.5, 1, 3]), individual=heard.only(np.array([0, 2, 3])))
    for nothing in (
        noise(goal, combined(goal, [alone])),
        noise(goal, Combination(np.zeros(0), [])),
    ):
        assert not nothing[0].any()
        assert not nothing[1].any()
        assert nothing[2] == 0


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_what_the_draws_hold_already(line_target, sampler):
    # With one judgment that is not 0, and s^2 / k = r^2, the whole covariance is (a r N / E)^2.
    weights = np.random.default_rng(0).gamma(0.5, size=(2, 200))
    goal = goals.absolute(line_target(weights))
    sample = draw(jax.random.key(1), design(goal, flat(goal.target.pool)), 60, sampler=sampler)
    assert sample.n_folds == 4
    cells = sample.cells
    for cell in [*cells[:3], cells[sample.expected[cells].argmax()]]:
        r = np.where(sample.draws == cell, 1.0, 0.0)
        twice = np.repeat(cells, 2)
        heard = Labels(
            twice,
            np.where(twice == cell, np.tile([0.0, 2.0], len(cells)), 0.0),
            np.tile(np.array([0, 1], np.int32), len(cells)),
        )
        found = estimate(goal, [Round(sample, r, individual=heard)]).covariance
        w = goal.target.weights(np.array([cell]))[0] * r.sum() / sample.expected[cell]
        assert np.abs(found - np.outer(w, w)).max() <= 1e-12 * np.outer(w, w).max()
