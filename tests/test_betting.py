"""Betting: capitals are fair, intervals cover, sequences are never wrong but at their rate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenhand.betting import SHARES, betting, capital, sequence, term_bounds
from evenhand.errors import EvenhandError
from evenhand.precision import in_float64


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
