"""Betting: capitals are fair, intervals cover, sequences are never wrong but at their rate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special

import evenhand as eh
from evenhand.errors import EvenhandError, SupportError
from evenhand.estimation.importance import estimate
from evenhand.float64 import in_float64
from evenhand.formats.runs import read_runs
from evenhand.intervals.betting import (
    SHARES,
    betting,
    capital,
    limits,
    p_value,
    sequence,
    term_bounds,
)
from evenhand.intervals.moments import Terms
from evenhand.sampling.labels import Labels
from evenhand.sampling.rounds import Round
from evenhand.sampling.samples import Sample


@in_float64
def log_capital(x, mean):
    return np.asarray(capital(jnp.asarray(x), jnp.asarray(mean)))


def test_capital_is_the_mean_over_shares_of_products():
    x = np.array([0.0, 0.3, 1.0, 0.1])
    for mean in (0.05, 0.4):
        by_hand = np.prod(1 - SHARES[:, None] + SHARES[:, None] * x / mean, 1).mean()
        assert log_capital(x, mean) == pytest.approx(np.log(by_hand), rel=1e-12)


@pytest.mark.parametrize("sampler", ["iid", "slices", "distinct"])
@pytest.mark.parametrize("n", [2, 3])
def test_the_mean_capital_is_at_most_one_under_the_truth(draws_law, expected_counts, sampler, n):
    """Exactly, over the law of the sampler: equations (2) and (3), for both sides."""
    q, a = np.array([0.4, 0.1, 0.25, 0.25]), np.array([0.5, -0.2, 0.3, 0.1])
    expected = expected_counts(sampler, q, n)
    law = draws_law(sampler, expected, n)
    for utility in ([1.0, 1, 0, 1], [0.0, 0, 1, 0], [1.0, 0, 0, 0]):
        low, high = (x[0] for x in term_bounds(a[:, None], expected / n, 1.0))
        x = (n * (a * utility / expected)[law.draws] - low) / (high - low)
        mean = (a @ utility - low) / (high - low)
        for terms, m in ((x, mean), (1 - x, 1 - mean)):
            won = np.exp([log_capital(one, m) for one in terms])
            assert law.probability @ won <= 1 + 1e-9
            if sampler == "iid":
                assert law.probability @ won == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("sampler", ["iid", "slices", "distinct"])
def test_the_mean_capital_is_at_most_one_by_fold(draws_law, expected_counts, sampler):
    """As above, where two folds are drawn each by itself."""
    q, a = np.array([0.4, 0.1, 0.25, 0.1, 0.15]), np.array([0.5, -0.2, 0.3, 0.1, 0.4])
    fold, sizes = np.array([0, 0, 0, 1, 1]), np.array([2, 1])
    expected = np.zeros(5)
    for f, n in enumerate(sizes):
        expected += expected_counts(sampler, np.where(fold == f, q, 0), n)
    law = draws_law(sampler, expected, 3, folds=(fold, sizes))
    for utility in ([1.0, 1, 0, 1, 0], [1.0, 0, 0, 0, 1]):
        low, high = (x[0] for x in term_bounds(a[:, None], expected / 3, 1.0))
        x = (3 * (a * utility / expected)[law.draws] - low) / (high - low)
        mean = (a @ utility - low) / (high - low)
        for terms, m in ((x, mean), (1 - x, 1 - mean)):
            assert law.probability @ np.exp([log_capital(one, m) for one in terms]) <= 1 + 1e-9


def test_limits_do_not_depend_on_order_and_grow_with_the_level():
    x = np.random.default_rng(0).uniform(0.2, 0.9, 60) ** 3
    whole = betting(x, 0.0, 1.0)
    np.testing.assert_allclose(betting(x[::-1], 0.0, 1.0), whole, rtol=1e-9)
    wider = betting(x, 0.0, 1.0, 0.99)
    assert wider[0] < whole[0] < x.mean() < whole[1] < wider[1]
    # Turned round and moved.
    low, high = betting(5 - 2 * x, 3.0, 5.0)
    np.testing.assert_allclose([(5 - high) / 2, (5 - low) / 2], whole, rtol=1e-6)


def test_edges_of_betting():
    low, high = betting(np.zeros(50), 0.0, 1.0)
    assert low == 0
    assert 0.06 < high < 0.12
    low, high = betting(np.ones(50), 0.0, 1.0)
    assert 0.88 < low < 0.94
    assert high == pytest.approx(1)
    assert betting(np.zeros(3), 0.0, 0.0) == (0.0, 0.0)
    assert betting(np.zeros(0), -1.0, 1.0) == pytest.approx((-1.0, 1.0))
    with pytest.raises(EvenhandError, match="beyond"):
        betting(np.array([2.0]), 0.0, 1.0)
    with pytest.raises(EvenhandError, match="bounds"):
        betting(np.zeros(2), 0.0, np.inf)


def test_bounds_of_terms_are_those_of_the_pool():
    low, high = term_bounds(
        np.array([[1.0, 0.0], [-2.0, 3.0], [9, 9]]), np.array([0.5, 0.5, 0]), 2.0
    )
    np.testing.assert_array_equal(low, [-8, 0])
    np.testing.assert_array_equal(high, [4, 12])


def test_betting_covers_rare_events():
    """1,000 studies of 30 draws: of 95 % at least; fails by chance with probability below 1e-4."""
    rng = np.random.default_rng(0)
    for p in (0.02, 0.3):
        hits = rng.binomial(30, p, 1000)
        ends = {k: betting(np.r_[np.ones(k), np.zeros(30 - k)], 0.0, 1.0) for k in set(hits)}
        assert np.mean([ends[k][0] <= p <= ends[k][1] for k in hits]) > 0.92


def test_sequence_narrows_and_holds_what_betting_holds():
    x = (np.random.default_rng(1).random(400) < 0.2).astype(float)
    found = sequence(x, 0.0, 1.0)
    assert (np.diff(found.low) >= 0).all()
    assert (np.diff(found.high) <= 0).all()
    assert found.low[-1] <= x.mean() <= found.high[-1]
    # The last look at the same capital, rounded outwards, or an earlier one that was sharper.
    low, high = betting(x, 0.0, 1.0)
    assert found.low[-1] > low - 0.03 * low
    assert found.high[-1] < high + 0.03 * (1 - high)


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.01, 0.2])
@in_float64
def test_trap_peeking_is_safe_with_the_sequence(p):
    """2,000 people look after every judgment, 5,000 times each; at most 5 % are ever wrong.

    A limit is wrong as soon as either capital reaches 2 / alpha at the true mean. At a rate of
    exactly 5 % more than 6.6 % has probability below 1e-3.
    """
    # Terms of three sizes: what weights do to a binary judgment.
    key, other = jax.random.split(jax.random.key(0))
    size = jax.random.choice(key, jnp.array([0.2, 0.5, 1.0]), (5000, 2000))
    x = jnp.where(jax.random.uniform(other, (5000, 2000), jnp.float64) < p, size, 0.0)
    mean = p * 1.7 / 3
    shares = jnp.asarray(SHARES)

    @jax.jit
    def wrong(x):
        def look(state, one):
            up, down, bad = state
            up = up * (1 + shares * (one[:, None] / mean - 1))
            down = down * (1 + shares * ((1 - one[:, None]) / (1 - mean) - 1))
            rich = (up.mean(1) >= 40) | (down.mean(1) >= 40)
            return (up, down, bad | rich), None

        start = (jnp.ones((2000, len(SHARES))),) * 2
        return jax.lax.scan(look, (*start, jnp.zeros(2000, bool)), x)[0][2].mean()

    assert wrong(x) < 0.066


# As the intervals of an estimate


def by_hand(x, low, high, alpha):
    """Limits and p-value of one mean, in NumPy and SciPy alone."""
    x = (np.asarray(x) - low) / (high - low)

    def won(x, mean):
        return scipy.special.logsumexp(
            np.log(1 - SHARES + SHARES * x[:, None] / mean).sum(0), b=1 / 48
        )

    def lower(x):
        if x.max() == 0:
            return 0.0
        return scipy.optimize.brentq(lambda m: won(x, m) + np.log(alpha / 2), 1e-12, 1.0)

    zero = -low / (high - low)
    ends = low + (high - low) * lower(x), low + (high - low) * (1 - lower(1 - x))
    return *ends, min(1.0, 2 * np.exp(-max(won(x, max(zero, 1e-80)), won(1 - x, 1 - zero))))


@pytest.fixture(scope="module")
def study():
    """``(n, sampler, seed)`` to a goal and one judged round; few pairs are relevant."""
    rng = np.random.default_rng(0)
    orders = {
        j: [f"d{d:02}" for d in np.argsort(np.arange(30) + rng.normal(scale=8, size=30))]
        for j in range(3)
    }
    runs = {
        f"s{j}": {f"q{q}": {d: 30.0 - i for i, d in enumerate(orders[j])} for q in range(6)}
        for j in orders
    }
    target = eh.target(eh.pool(read_runs(runs), depth=20), "DCG@20")
    utility = (rng.random(len(target.pool)) < 0.1).astype(float)
    goal = eh.rank(target)
    plan = eh.design(goal, eh.rank_utility(target.pool))

    def make(n=60, sampler="iid", seed=0, said=utility):
        sample = eh.draw(jax.random.key(seed), plan, n, sampler=sampler)
        return goal, Round(sample, said[sample.draws])

    make.truth = utility
    return make


@pytest.mark.parametrize("sampler", ["iid", "slices", "distinct"])
def test_intervals_of_an_estimate_are_those_of_its_terms(study, sampler):
    goal, one = study(sampler=sampler)
    found = estimate(goal, [one], interval="betting", top_utility=1.0, level=0.9)
    n, expected, draws = 60, one.sample.expected, one.sample.draws
    weights = goal.target.weights(np.arange(len(goal.target.pool)))
    for value, a in [
        *zip(zip(found.value, found.low, found.high, strict=True), weights.T, strict=True),
        *zip(
            zip(found.contrast, found.contrast_low, found.contrast_high, strict=True),
            (weights - weights.mean(1, keepdims=True)).T,
            strict=True,
        ),
    ]:
        reach = n * a / np.where(expected > 0, expected, np.inf)
        bounds = min(reach.min(), 0), max(reach.max(), 0)
        low, high, _ = by_hand((reach[draws] * one.utility), *bounds, 0.1)
        whole = np.minimum(a, 0).sum(), np.maximum(a, 0).sum()
        wanted = max(low, whole[0]), min(high, whole[1])
        np.testing.assert_allclose(value[1:], wanted, rtol=1e-6, atol=1e-9)
        assert value[1] <= value[0] <= value[2]


def test_p_values_and_simultaneous_intervals_are_of_the_same_test(study):
    goal, one = study(400, seed=3)
    shown = estimate(goal, [one], interval="betting", top_utility=1.0).pairs
    weights = goal.target.weights(np.arange(len(goal.target.pool)))
    draws, expected = one.sample.draws, one.sample.expected
    for i, (x, y) in enumerate(((0, 1), (0, 2), (1, 2))):
        a = weights[:, x] - weights[:, y]
        reach = 400 * a / np.where(expected > 0, expected, np.inf)
        bounds = reach.min(), reach.max()
        p = by_hand(reach[draws] * one.utility, *bounds, 0.05)[2]
        assert shown.p[i] == pytest.approx(p, rel=1e-9)
        assert shown.p_all[i] == pytest.approx(min(3 * p, 1), rel=1e-9)
        together = by_hand(reach[draws] * one.utility, *bounds, 0.05 / 3)[:2]
        np.testing.assert_allclose((shown.low_all[i], shown.high_all[i]), together, rtol=1e-6)
    assert shown.multiplier is None
    np.testing.assert_array_equal(shown.decided, shown.p_all < 0.05)
    assert shown.p.min() < 0.9


def test_the_interval_at_one_minus_p_touches_zero():
    rng = np.random.default_rng(2)
    value = np.where(rng.random((300, 4)) < 0.5, rng.uniform(-0.3, 1, (300, 4)), 0.0)
    value[:, 3] = 0.0
    terms = Terms(value, np.ones(300), np.array([-1.0, -2, -1, 0]), np.array([1.0, 1, 4, 0]))
    p = p_value(terms)
    assert p[3] == 1
    assert (p[:3] < 0.9).all()
    for i in range(3):
        for factor, out in ((1.001, True), (0.999, False)):
            low, high = limits(terms, 1 - min(factor * p[i], 1.0))
            assert (low[i] > 0 or high[i] < 0) == out
    # Rows may stand for several draws.
    halves = Terms(np.concatenate([value, value]), np.full(600, 0.5), terms.low, terms.high)
    np.testing.assert_allclose(p_value(halves), p, rtol=1e-9)
    np.testing.assert_allclose(limits(halves, 0.9), limits(terms, 0.9), rtol=1e-9)


@pytest.mark.parametrize("sampler", ["iid", "slices", "distinct"])
def test_it_covers_exactly_as_often_as_it_says(line_target, expected_counts, draws_law, sampler):
    """Over the whole law of three draws: never less than the level, and not always."""
    target = line_target([[1.0, 1, 1, 1, 1], [0.5, 1, 2, 0.1, 1]])
    goal = eh.rank(target)
    expected = expected_counts(sampler, np.array([0.02, 0.2, 0.3, 0.3, 0.18]), 3)
    law = draws_law(sampler, expected, 3)
    outcomes, which = np.unique(np.sort(law.draws, axis=1), axis=0, return_inverse=True)
    chance = np.bincount(which.reshape(-1), law.probability)
    missed = []
    for utility in ([1.0, 0, 0, 0, 0], [1.0, 1, 0.5, 0, 1]):
        utility = np.array(utility)
        values = target.values(utility)
        truth = np.r_[values, goal.matrix @ values]
        for level in (0.05, 0.3, 0.6):
            inside = []
            for draws in outcomes:
                one = Round(Sample(sampler, draws, expected), utility[draws])
                found = estimate(goal, [one], interval="betting", top_utility=1.0, level=level)
                low = np.r_[found.low, found.contrast_low]
                high = np.r_[found.high, found.contrast_high]
                inside.append((low <= truth + 1e-12) & (truth - 1e-12 <= high))
            coverage = chance @ np.array(inside)
            assert (coverage >= level - 1e-9).all()
            missed.append(1 - coverage)
    assert np.max(missed) > 0.01


def test_nothing_relevant_drawn_says_little(study):
    goal, one = study(said=np.zeros(400))
    found = estimate(goal, [one], interval="betting", top_utility=1.0)
    weights = goal.target.weights(np.arange(len(goal.target.pool)))
    assert (found.value == 0).all()
    assert (found.low == 0).all()
    # A rule of three, with alpha / 2 and shares for all n: at least -ln(.025) / n of the bound.
    most = (60 * weights / one.sample.expected[:, None]).max(0)
    least = np.minimum(most * (1 - np.exp(np.log(0.025) / 60)), weights.sum(0))
    assert (found.high >= least * (1 - 1e-9)).all()
    assert not found.pairs.decided.any()
    assert (found.pairs.p == 1).all()


@pytest.mark.slow
def test_it_covers_where_students_does_not(study):
    """500 studies of 60 draws of rare relevance; 95 % or more, .92 fails with chance below 1e-3.

    Student's intervals, of the same draws, miss often enough to show that there was need.
    """
    covered = {"betting": [], "student": []}
    for seed in range(500):
        goal, one = study(seed=seed)
        for name, kept in covered.items():
            found = estimate(goal, [one], interval=name, top_utility=1.0)
            truth = found.goal.target.values(study.truth)
            kept.append((found.low <= truth) & (truth <= found.high))
    assert np.mean(covered["betting"]) > 0.92
    assert np.mean(covered["student"]) < 0.92


def test_where_it_does_not_hold_it_is_refused(study):
    goal, one = study()
    ask = {"interval": "betting", "top_utility": 1.0}
    later = Round(one.sample, one.utility, ("round 1",), "round 2")
    with pytest.raises(SupportError, match="are for one stage, and these rounds are 2"):
        estimate(goal, [one, later], **ask)
    control = eh.Control(np.full(len(goal.target.pool), 0.1))
    with pytest.raises(SupportError, match="without a control variate") as refused:
        estimate(goal, [one], controls=[control], **ask)
    assert "--estimator importance" in str(refused.value.hint)
    with pytest.raises(SupportError, match="largest utility") as refused:
        estimate(goal, [one], interval="betting")
    assert "--grades" in str(refused.value.hint)
    with pytest.raises(EvenhandError, match=r"utilities from 0 to 0\.5, got 0 to 1"):
        estimate(goal, [one], interval="betting", top_utility=0.5)
    with pytest.raises(SupportError, match="depend on what was judged"):
        estimate(goal, [one], bounded=False, **ask)
    cells = one.sample.cells
    who = np.tile([1, 2], len(cells)).astype(np.int32)
    heard = Labels(np.repeat(cells, 2), np.tile([0.0, 1.0], len(cells)), who)
    unsure = Round(one.sample, np.full(60, 0.5), individual=heard)
    with pytest.raises(SupportError, match="assessors disagree"):
        estimate(goal, [unsure], **ask)
    with pytest.raises(EvenhandError, match="for this set of queries"):
        estimate(goal, [one], **ask).for_population()
