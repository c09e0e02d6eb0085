r"""Intervals that hold for every n, and sequences that hold at every look, by betting.

Someone who doubts that bounded terms x in [0, 1] have the mean m bets on it: of a capital of 1, a
share f is staked on every draw at odds that are fair if the mean is m,

    K_f(m) = prod_i (1 - f + f x_i / m)      against "the mean is m or less"                (1)

and the same with 1 - x and 1 - m against "m or more". Capital that grows is evidence against m: a
capital above 1 / alpha has probability at most alpha. Shares f are fixed in advance, spread evenly
over log f (`SHARES`), and their capitals are averaged: no tuning, no look ahead, and the result
does not depend on the order of the draws. K falls as m grows, so that the means not rejected are
an interval, found by bisection; each side has alpha / 2.

======================  ===========================  =========================================
function                law of the draws             holds
======================  ===========================  =========================================
`betting`, `limits`     `iid`                        for the n planned
`betting`, `limits`     `slices`                     for the n planned: (2)
`betting`, `limits`     `distinct`                   for the n planned: (3)
`sequence`              `iid`                        at every look, for ever
======================  ===========================  =========================================

`betting` is of one mean; `limits` and `p_value` are of the contrasts of an estimate, as
``--interval betting`` asks for them.

With D = sum_c a_c u_c and E the expected counts of n draws, x is n a r / E, brought from its known
bounds [low, high] to [0, 1]; its mean over the n draws is D's place between them.

(2) A product of independent factors with means y_i has mean prod y_i, at most (mean y)^n = 1. It
is so too where each fold is drawn by itself, or several rounds were fixed before the first
judgment, with E the sum of theirs.

(3) Pivotal sampling is strongly Rayleigh (Branden and Jonasson 2012, *Negative dependence in
sampling*): its generating polynomial g is homogeneous of degree n and stable, so that g^(1/n) is
concave where all arguments are positive (Garding 1959). The mean capital is g at the factors y_c of
the cells, whence g(y)^(1/n) <= 1 + sum_c E_c (y_c - 1) / n = 1. A product of such polynomials, of
folds or rounds, is one again.

**P-values** are those of the same test: the smallest alpha whose interval leaves 0 out,

    p = min(1, 2 / max(K(0), K'(0)))                                                         (4)

with K and K' the capitals of the two sides against "the contrast is 0". By Markov's
inequality each side is wrong with probability alpha / 2 at most. A capital does not depend on
alpha, so that none need be searched for.

At any n *before* the last, `slices` and `distinct` have other means, and neither may be looked at
early. For a budget fixed beforehand `evenhand.intervals.intervals` is much shorter; take `betting`
where a claim must hold whatever the utilities, and `sequence` to stop when it looks good.

References
----------
Waudby-Smith and Ramdas 2024, *Estimating means of bounded random variables by betting*, J. R.
Statist. Soc. B 86, for capitals, of which these with fixed shares are a mixture; Ville 1939 for the
bound at every look.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.errors import EvenhandError
from evenhand.float64 import in_float64
from evenhand.intervals.confidence import Level, check_level
from evenhand.intervals.moments import Terms

__all__ = [
    "SHARES",
    "Sequence",
    "betting",
    "capital",
    "limits",
    "p_value",
    "sequence",
    "term_bounds",
]

#: Shares of the capital that are staked, each with the same part of it.
SHARES: np.ndarray = 1.0 - np.exp(-np.geomspace(1e-4, 5.0, 48))

#: Log of the smallest mean, as a share of its bounds, that is distinguished from 0.
_FARTHEST = -200.0


class Sequence(NamedTuple):
    """Limits after each draw, shape (n,): all hold together with the level."""

    low: np.ndarray
    high: np.ndarray


def term_bounds(values: np.ndarray, q: np.ndarray, top: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of x = a r / q over the whole pool, for utilities r in [0, top].

    Parameters
    ----------
    values
        a of every cell, shape (cells, m).
    q
        Probability of each cell in one draw, or E / n; shape (cells,).

    Returns
    -------
    low, high
        Shape (m,). A cell that cannot be drawn must not matter.
    """
    possible = q > 0
    x = top * values[possible] / q[possible, None]
    return np.minimum(x.min(0), 0.0), np.maximum(x.max(0), 0.0)


@jax.jit
def capital(
    x: jax.typing.ArrayLike,
    mean: jax.typing.ArrayLike,
    times: jax.typing.ArrayLike | None = None,
) -> jax.Array:
    """Log of the capital (1) won against "the mean is `mean` or less" after all draws.

    Parameters
    ----------
    x
        Terms in [0, 1], shape (n,); or (n, *shape of the mean), with terms of its own for each.
    mean
        In (0, 1], any shape.
    times
        How many draws each row of `x` represents, shape (n,); by default 1.
    """
    x, mean = jnp.asarray(x), jnp.asarray(mean)
    times = jnp.ones(len(x)) if times is None else jnp.asarray(times)
    shares = jnp.asarray(SHARES)

    def add(total: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        one, often = row
        won = jnp.log1p(shares * (one[..., None] / mean[..., None] - 1.0))
        return total + often * won, None

    total, _ = jax.lax.scan(add, jnp.zeros((*mean.shape, len(SHARES))), (x, times))
    return jax.nn.logsumexp(total, axis=-1) - np.log(len(SHARES))


def _scaled(terms: Terms) -> np.ndarray:
    """Terms brought from their bounds to [0, 1]; 0 where nothing can vary."""
    value, low, high = terms.value, terms.low, terms.high
    bad = ~((high >= low) & np.isfinite(low) & np.isfinite(high))
    if bad.any():
        i = int(bad.argmax())
        raise EvenhandError(f"terms need finite bounds, got {low[i]:g} to {high[i]:g}")
    if not len(value):
        return value
    slack = 1e-9 * (high - low)
    least, most = value.min(0), value.max(0)
    beyond = (least < low - slack) | (most > high + slack)
    if beyond.any():
        i = int(beyond.argmax())
        raise EvenhandError(
            f"terms go from {least[i]:g} to {most[i]:g}, beyond their bounds {low[i]:g} to "
            f"{high[i]:g}"
        )
    span = np.where(high > low, high - low, 1.0)
    return np.clip(np.where(high > low, (value - low) / span, 0.0), 0.0, 1.0)


def _filled(x: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """With rows that stand for no draw, up to a power of two: few sizes to compile."""
    more = (1 << max(3, (len(x) - 1).bit_length())) - len(x)
    return np.pad(x, ((0, more), (0, 0))), np.pad(np.asarray(times, np.float64), (0, more))


@jax.jit
def _lower(x: jax.Array, times: jax.Array, threshold: jax.Array) -> jax.Array:
    """Largest mean that (1) rejects, and with it every smaller one; by bisection of its log."""

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rejected, kept = ends
        middle = (rejected + kept) / 2
        rich = capital(x, jnp.exp(middle), times) >= threshold
        return jnp.where(rich, middle, rejected), jnp.where(rich, kept, middle)

    start = (jnp.full(x.shape[1], _FARTHEST), jnp.zeros(x.shape[1]))
    rejected, _ = jax.lax.fori_loop(0, 60, halve, start)
    return jnp.where(rejected > _FARTHEST, jnp.exp(rejected), 0.0)


@in_float64
def limits(terms: Terms, level: Level) -> tuple[np.ndarray, np.ndarray]:
    """Limits of contrasts, each alone, valid for every n; see the table above.

    Parameters
    ----------
    terms
        Of `evenhand.intervals.moments.Evidence.terms`.
    level
        Coverage at least; one for all or one for each contrast.

    Returns
    -------
    low, high
        Shape (contrasts,), in the measure's unit.

    Raises
    ------
    EvenhandError
        If a term passes its bounds, or these are not finite.
    """
    # Far levels, where 1 - level rounds to 0, are beyond double precision.
    alpha = np.maximum(1.0 - np.asarray(check_level(level)), 2.0**-53)
    threshold = jax.device_put(np.broadcast_to(-np.log(alpha / 2), terms.low.shape))
    x = _scaled(terms)
    below = np.asarray(_lower(*map(jax.device_put, _filled(x, terms.times)), threshold))
    above = 1.0 - np.asarray(_lower(*map(jax.device_put, _filled(1.0 - x, terms.times)), threshold))
    span = terms.high - terms.low
    return terms.low + span * below, terms.low + span * above


@in_float64
def p_value(terms: Terms) -> np.ndarray:
    """P-values against 0, equation (4): below alpha just where the limits leave out 0.

    Parameters
    ----------
    terms
        Of `evenhand.intervals.moments.Evidence.terms`.

    Returns
    -------
    numpy.ndarray
        Shape (contrasts,); 1 where nothing can vary.
    """
    x, span = _scaled(terms), terms.high - terms.low
    varies = span > 0
    zero = np.where(varies, -terms.low / np.where(varies, span, 1.0), 0.5)
    least = np.exp(_FARTHEST)
    most = np.maximum(
        *(
            np.asarray(capital(rows, np.clip(mean, least, 1.0), times))
            for mean, (rows, times) in (
                (zero, _filled(x, terms.times)),
                (1.0 - zero, _filled(1.0 - x, terms.times)),
            )
        )
    )
    return np.where(varies, np.minimum(2.0 * np.exp(-most), 1.0), 1.0)


@in_float64
def betting(terms: np.ndarray, low: float, high: float, level: float = 0.95) -> tuple[float, float]:
    """Limits of the mean of bounded terms, valid for every n; see the table above.

    Parameters
    ----------
    terms
        n a r / E of each draw, shape (n,), so that their mean is the estimate.
    low, high
        Bounds that no term can pass, known beforehand: of `term_bounds`.
    level
        Coverage at least.

    Examples
    --------
    >>> low, high = betting(np.zeros(100), 0.0, 1.0)
    >>> low, 0.03 < high < 0.06
    (0.0, True)
    """
    below, above = limits(_alone(terms, low, high), level)
    return float(below[0]), float(above[0])


def _alone(terms: np.ndarray, low: float, high: float) -> Terms:
    value = np.asarray(terms, np.float64)[:, None]
    return Terms(value, np.ones(len(value)), np.array([low], float), np.array([high], float))


@jax.jit
def _running(x: jax.Array, means: jax.Array, threshold: jax.Array) -> jax.Array:
    """Largest of the ascending `means` rejected so far, after each draw: its number, -1 if none."""
    shares = jnp.asarray(SHARES)

    def step(state, one):
        total, best = state
        total = total + jnp.log1p(shares * (one / means[:, None] - 1.0))
        # No maximum is taken off: a capital beyond the range of floats is rich anyway.
        rich = jnp.exp(total).mean(1) >= jnp.exp(threshold)
        best = jnp.maximum(best, rich.sum() - 1)
        return (total, best), best

    start = (jnp.zeros((len(means), len(SHARES))), jnp.asarray(-1))
    return jax.lax.scan(step, start, x)[1]


@in_float64
def sequence(
    terms: np.ndarray, low: float, high: float, level: float = 0.95, *, points: int = 600
) -> Sequence:
    """Limits after every draw, which hold at all of them together: look as often as you like.

    Parameters
    ----------
    terms
        a r / q of independent draws, in the order in which they were judged; shape (n,).
    low, high
        Bounds that no term can pass, known beforehand: of `term_bounds`.
    level
        Probability that no look is ever wrong, at least.
    points
        Means that are tried, spread by their logit; limits are rounded outwards to these.
    """
    x = _scaled(_alone(terms, low, high))[:, 0]
    threshold = jnp.asarray(-np.log((1 - check_level(level)) / 2))
    means = 1.0 / (1.0 + np.exp(-np.linspace(-16.0, 16.0, points)))

    def limit(x: np.ndarray) -> np.ndarray:
        best = np.asarray(_running(jax.device_put(x), jax.device_put(means), threshold))
        return np.where(best >= 0, means[best], 0.0)

    below, above = limit(x), 1.0 - limit(1.0 - x)
    return Sequence(low + (high - low) * below, low + (high - low) * above)
