r"""What linearisation leaves out: the curvature of measures that are no sums.

Near estimates R^ a measure is linear (`evenhand.nonlinear.gradients`, equation 3). What that leaves
out are, with errors e of the R^ (`Errors`) and random signs,

    V_even = (V(R^ + e) + V(R^ - e)) / 2 - V(R^)                                             (1)

whose mean says how far V(R^) is off on average, and whose variance is what a quadratic form such as
AP's sum adds to that of its linear part. Swaps *are* a linear and a quadratic form, V = L - B, so
that V_even = -B(e, e) wherever it is taken.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.estimands.pools import Pool
from evenhand.float64 import in_float64
from evenhand.measures.base import Linear
from evenhand.nonlinear.gradients import Levels, by_list, checked, layout

__all__ = ["Errors", "even_parts", "second_order"]

#: Pairs of errors (1).
REPLICATES = 100


class Errors(NamedTuple):
    """How far estimates of utilities may be off, draw by draw: shapes (n,), of `term` (n, levels).

    With random signs s, draw i moves its cell by its `term` times (s_i spread_i - share_i sum over
    its group of s spread): as the residuals of `evenhand.sampling.variance` do, so that what a
    group of fixed size knows for certain does not move.

    Attributes
    ----------
    draws
        Cells; one may come repeatedly.
    term
        What each draw adds to which levels its cell reaches.
    spread, share, group
        How much it varies, its share in what the group varies, and the group.
    """

    draws: Any
    term: Any
    spread: Any
    share: Any
    group: Any


class _Cells(NamedTuple):
    """The query of each cell, and the cell of each place of the lists."""

    query: jax.Array
    entry: jax.Array


@partial(jax.jit, static_argnames=("measure", "gain", "shape", "curved"))
def _even(moves, factor, draws, term, levels, cells, lists, *, measure, gain, shape, curved):
    """Equation (1) where the terms of the draws count as often as `moves` say.

    By system, shape (moves, systems), and their sum with factors by query, shape (systems,
    queries).
    """
    k, n_queries = shape
    reached, least, own, beside = levels

    def value(reached):
        counts = jnp.zeros((n_queries, len(gain))).at[cells.query].add(reached)
        counts = jnp.tile(jnp.maximum(counts, least), (k, 1)) + beside
        return by_list(reached[cells.entry] + own, counts, lists, measure, gain).reshape(k, -1)

    here = value(reached)

    def even(move):
        moved = jnp.zeros_like(reached).at[draws].add(move[:, None] * term)
        if curved:
            here_slope = partial(_slope, lambda t: value(reached + t * moved))
            return _slope(here_slope, 0.0) / 2
        return (value(reached + moved) + value(reached - moved)) / 2 - here

    def one(summed, given):
        move, times = given
        found = even(move)
        return summed + times * found, found.mean(1)

    summed, by_move = jax.lax.scan(one, jnp.zeros_like(here), (moves, factor))
    return by_move, summed / n_queries


def _slope(function, at):
    """Derivative of a function of one number."""
    return jax.jvp(function, (at,), (1.0,))[1]


@partial(jax.jit, static_argnames="groups")
def _signs(key: jax.Array, errors: Errors, groups: int) -> jax.Array:
    """Random signs of the errors, within their groups: shape (replicates, n)."""

    def one(key):
        sign = jax.random.rademacher(key, errors.draws.shape, errors.spread.dtype)
        move = sign * errors.spread
        together = jax.ops.segment_sum(move, errors.group, groups)
        return move - errors.share * together[errors.group]

    return jax.lax.map(one, jax.random.split(key, REPLICATES))


@in_float64
def second_order(
    pool: Pool,
    measure: Linear,
    levels: Levels,
    errors: Errors,
    *,
    curved: bool = False,
    seed: int = 0,
    by_query: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """What linearisation leaves out where the utilities are estimates, equation (1).

    Parameters
    ----------
    pool, measure, levels
        As of `evenhand.nonlinear.gradients.gradient`.
    errors
        What is uncertain about the utilities.
    curved
        Of (1) the second derivative alone, e' V'' e / 2: whole errors may bring what a ratio is
        divided by to nothing.
    seed
        Of the signs.
    by_query
        Give the bias by query, what each adds to that of the systems: shape (queries, systems).

    Returns
    -------
    bias, covariance
        Mean and covariance of the part that is even in the errors: shapes (systems,), (systems,
        systems).
    """
    given = Errors(*map(jax.device_put, errors))
    moves = _signs(jax.random.key(seed), given, int(errors.group.max()) + 1)
    factor = np.full(len(moves), 1.0 / len(moves))
    even, mean = _evens(pool, measure, levels, given, moves, factor, curved=curved)
    return mean if by_query else mean.sum(0), np.atleast_2d(np.cov(even.T))


@in_float64
def even_parts(
    pool: Pool,
    measure: Linear,
    levels: Levels,
    errors: Errors,
    moves: jax.typing.ArrayLike,
    *,
    curved: bool = False,
    factor: np.ndarray | None = None,
) -> np.ndarray:
    """Equation (1) for given multiples of the errors' terms: float64, shape (moves, systems).

    Parameters
    ----------
    pool, measure, levels, errors, curved
        As of `second_order`.
    moves
        How often the term of each draw counts; shape (moves, n).
    factor
        Sum over the moves with these factors, shape (moves,), and give the sum by query, what each
        adds to that of the systems: shape (queries, systems).
    """
    times = np.zeros(len(np.asarray(moves))) if factor is None else factor
    by_move, summed = _evens(pool, measure, levels, errors, moves, times, curved=curved)
    return by_move if factor is None else summed


def _evens(
    pool: Pool,
    measure: Linear,
    levels: Levels,
    errors: Errors,
    moves: jax.typing.ArrayLike,
    factor: np.ndarray,
    *,
    curved: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Both answers of `even_parts`."""
    known, gain = checked(measure, levels)
    order, lists = layout(pool, known)
    least = np.zeros((len(pool.queries), len(gain))) if levels.least is None else levels.least
    nothing = jnp.zeros((1, len(gain)))
    own = nothing if levels.own is None else jax.device_put(levels.own[order])
    beside = nothing if levels.beside is None else jax.device_put(levels.beside)
    by_move, summed = _even(
        jnp.asarray(moves, jnp.float64),
        jnp.asarray(factor, jnp.float64),
        jax.device_put(errors.draws),
        jax.device_put(errors.term),
        (jax.device_put(levels.reached), jax.device_put(least), own, beside),
        _Cells(jax.device_put(pool.query), jax.device_put(pool.cell[order])),
        lists,
        measure=known,
        gain=gain,
        shape=(len(pool.systems), len(pool.queries)),
        curved=curved,
    )
    return np.asarray(by_move), np.asarray(summed).T
