r"""Find the posterior mode by damped Newton and BFGS steps on the negative log density.

A Hessian H in d parameters costs d gradients. So few are made, and gradients do the rest: a round
starts from H, damped where it is not that of a valley (Levenberg and Marquardt), and goes on with
what each step of length s teaches about its inverse (Broyden, Fletcher, Goldfarb and Shanno), in
coordinates u = L' theta in which B starts as I:

    m = -s B g,        g = L^-1 dE/dtheta,        L L' = H + damping I                       (1)
    B <- (I - m t'/t'm) B (I - t m'/t'm) + m m'/t'm,        t = change of g                  (2)

Two rounds and the Hessian at the end are the rule.

References
----------
Nocedal and Wright 2006, *Numerical optimization*, chapter 6, for (2).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from evenhand.priors.log_density import first_order, second_order

__all__ = ["Minimum", "minimise"]

#: Steps between two Hessians; of many rows one costs about as much as that many gradients.
ROUND = 32
#: Newton decrement g' H^-1 g at which a climb rests: within 1e-7 standard deviations of the mode.
REST = 1e-14


class Minimum(NamedTuple):
    """State of a search.

    Attributes
    ----------
    theta
        Parameters; shape (d,).
    factor
        Cholesky factor of the last Hessian; shape (d, d).
    steps
        Steps taken.
    moved, rest
        Whether the last round moved, and whether there is none left.
    converged
        Whether theta is the bottom of a valley.
    """

    theta: jax.Array
    factor: jax.Array
    steps: jax.Array
    moved: jax.Array
    rest: jax.Array
    converged: jax.Array


class _Descent(NamedTuple):
    """One round; all but theta in coordinates in which the Hessian that began it is I."""

    theta: jax.Array
    value: jax.Array
    gradient: jax.Array
    inverse: jax.Array
    ahead: jax.Array
    length: jax.Array
    steps: jax.Array
    moved: jax.Array


def _factor(hessian: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cholesky's factor of H + damping I, and the damping: none in a valley.

    No eigenvalues, no inverse, and vectors solved for one by one: LAPACK shares larger work among
    threads that then spin, and fits would take several times as long on a busy machine.
    """
    identity = jnp.eye(len(hessian), dtype=hessian.dtype)
    least = 1e-3 * jnp.abs(jnp.diagonal(hessian)).mean()

    def helped(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        damping = jnp.maximum(2.0 * state[1], least)
        return jnp.linalg.cholesky(hessian + damping * identity), damping

    return jax.lax.while_loop(
        lambda state: ~jnp.isfinite(state[0]).all() & (state[1] < 1e9 * least),
        helped,
        (jnp.linalg.cholesky(hessian), jnp.zeros((), hessian.dtype)),
    )


def minimise(total: Callable[..., Any], start: jax.Array, most: int) -> Minimum:
    """Climb down an energy, equations (1) and (2).

    Parameters
    ----------
    total
        As `evenhand.priors.log_density.over_blocks` makes it.
    start
        Where to start; shape (d,).
    most
        Steps, each of one gradient.
    """
    identity = jnp.eye(len(start), dtype=start.dtype)

    def step(factor: jax.Array, now: _Descent) -> _Descent:
        move = now.length * now.ahead
        theta = now.theta + solve_triangular(factor, move, lower=True, trans=1)
        value, gradient = total(first_order, theta)
        gradient = solve_triangular(factor, gradient, lower=True)
        slope = now.gradient @ move
        # At the bottom the value moves up and down by its own rounding.
        slack = 1e-12 * (1.0 + jnp.abs(now.value))
        better = jnp.isfinite(value) & (value <= now.value + 1e-4 * slope + slack)
        # Equation (2), where the curvature along the move is that of a valley.
        turn = gradient - now.gradient
        curve = turn @ move
        bent = better & (curve > 1e-10 * jnp.sqrt((turn @ turn) * (move @ move)))
        rate = 1.0 / jnp.where(bent, curve, 1.0)
        across = now.inverse @ turn
        inverse = (
            now.inverse
            + (rate + rate**2 * (turn @ across)) * jnp.outer(move, move)
            - rate * (jnp.outer(across, move) + jnp.outer(move, across))
        )
        kept = now._replace(
            theta=jnp.where(better, theta, now.theta),
            value=jnp.where(better, value, now.value),
            gradient=jnp.where(better, gradient, now.gradient),
            inverse=jnp.where(bent, inverse, now.inverse),
            length=jnp.where(better, 1.0, now.length * jnp.where(jnp.isfinite(value), 0.5, 0.1)),
            steps=now.steps + 1,
            moved=now.moved | better,
        )
        return kept._replace(ahead=-kept.inverse @ kept.gradient)

    def advance(now: Minimum) -> Minimum:
        value, gradient, hessian = total(second_order, now.theta)
        factor, damping = _factor(hessian)
        gradient = solve_triangular(factor, gradient, lower=True)
        left = gradient @ gradient
        # Also where it is not a number.
        rest = ~(left > REST) | ~now.moved | (now.steps >= most)
        last = jnp.where(rest, now.steps, jnp.minimum(now.steps + ROUND, most))
        end = jax.lax.while_loop(
            lambda d: (d.steps < last) & (-d.gradient @ d.ahead > 1e-4 * REST),
            partial(step, factor),
            _Descent(
                now.theta,
                value,
                gradient,
                identity,
                -gradient,
                jnp.ones((), start.dtype),
                now.steps,
                jnp.asarray(False),
            ),
        )
        valley = (left < 1e6 * REST) & (damping == 0)
        return Minimum(end.theta, factor, end.steps, end.moved, rest, valley)

    yes, no = jnp.asarray(True), jnp.asarray(False)
    begin = Minimum(start, identity, jnp.asarray(0), yes, no, no)
    return jax.lax.while_loop(lambda now: ~now.rest, advance, begin)
