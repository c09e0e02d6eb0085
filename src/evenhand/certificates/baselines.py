r"""What ranking against a baseline costs, its gradient, and the bound that makes the mean the best.

To rank k systems, each is held against a baseline tau, a weight tau_c for every cell. With
z_j = w_jc u_c / q_c for a draw c from q, what counts is the summed variance of one draw,

    Sigma(tau) = min over q of sum_j Var_q(z_j - z_tau) = M(tau)^2 - sum_j L_j(tau)^2        (1)
    M(tau) = sum_c |u_c| ||w_c - tau_c||,     L_j(tau) = sum_c u_c (w_jc - tau_c)            (2)

where ||w_c - tau_c|| = sqrt(sum_j (w_jc - tau_c)^2) and q is proportional to |u_c| ||w_c - tau_c||.
Its gradient, with alpha_i = M(tau) / ||w_i - tau_i||, is

    dSigma / dtau_i = -2 [ |u_i| alpha_i sum_j (w_ji - tau_i) - u_i sum_j L_j(tau) ]         (3)

and by Cauchy and Schwarz neither of its two terms is larger than

    2 sqrt(k) |u_i| M(tau)                                                                   (4)

which is what a gradient is measured by here. The source paper prints a plus before alpha; the minus
of (3) is what differentiation gives. Where all systems and tau agree, ||w_i - tau_i|| has a kink:
its subgradient 0 is taken, so the first term of (3) counts as 0. The one-sided derivatives there
are -2 (-+ sqrt(k) |u_i| M - u_i sum_j L_j), and (4) puts 0 between them.

At the mean, tau_c = sum_j w_jc / k, (3) is 0. That alone proves nothing: Sigma is convex in each
tau_c, as the source paper says, but not in all of them together. With D_c = ||w_c - mean_c|| and
delta = tau - mean,

    Sigma(tau) = [sum_c |u_c| sqrt(D_c^2 + k delta_c^2)]^2 - k (sum_c u_c delta_c)^2
                 - sum_j L_j(mean)^2                                                         (5)
              >= [sum_c |u_c| D_c]^2 - sum_j L_j(mean)^2  =  Sigma(mean)                     (6)

because the vectors |u_c| (D_c, sqrt(k) |delta_c|) of the plane add up to one no longer than the sum
of their lengths. Equality needs them parallel: delta_c = x D_c sign(u_c) ties for every x, and
cells with u_c = 0 may absorb what that adds, so that a tie can be a system, too. The mean is the
only baseline that is best for *every* proposal:

    sum_j Var_q(z_j - z_tau) = sum_j Var_q(z_j - z_mean) + k Var_q(z_mean - z_tau)           (7)

The proposal itself is the stationary point of a Lagrangian that is convex in q,

    sum_c E[r_c^2] ||a_c||^2 / q_c + lambda (sum_c q_c - 1),  lambda = (sum_c s_c ||a_c||)^2  (8)

with s_c = sqrt(E[r_c^2]), for the contrasts a of every goal.

All functions are of arrays in float64 and work under ``jit``, ``vmap`` and ``grad``.

References
----------
Schnabel et al. 2016, section 6: (1) and, but for the sign, (3); (4) to (7) are ours.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from evenhand.estimands.contrasts import norm
from evenhand.float64 import require_float64

__all__ = [
    "Bound",
    "baseline_bound",
    "baseline_gradient",
    "baseline_variance",
    "distance",
    "gradient_size",
    "lagrangian",
    "mean_baseline",
    "multiplier",
    "reach",
]


def mean_baseline(weights: jax.typing.ArrayLike) -> jax.Array:
    """Mean weight of each cell, exactly the common weight where all systems agree.

    Parameters
    ----------
    weights
        w, shape (cells, systems).

    Returns
    -------
    jax.Array
        Shape (cells,).
    """
    weights = require_float64(weights, "weights")
    level = weights.max(-1)
    return level + (weights - level[:, None]).mean(-1)


def distance(tau: jax.typing.ArrayLike, weights: jax.typing.ArrayLike) -> jax.Array:
    """||w_c - tau_c|| of every cell, with the subgradient 0 where all systems and tau agree.

    Parameters
    ----------
    tau
        The baseline, shape (cells,).
    weights
        w, shape (cells, systems).

    Returns
    -------
    jax.Array
        Shape (cells,).
    """
    apart = _apart(tau, weights)
    return norm(apart, jnp.ones(apart.shape[-1], apart.dtype))


def reach(
    tau: jax.typing.ArrayLike, weights: jax.typing.ArrayLike, utility: jax.typing.ArrayLike
) -> jax.Array:
    """M(tau) of equation (2): a scalar, in units of the measure."""
    return jnp.abs(_utility(utility)) @ distance(tau, weights)


def baseline_variance(
    tau: jax.typing.ArrayLike, weights: jax.typing.ArrayLike, utility: jax.typing.ArrayLike
) -> jax.Array:
    """Sigma(tau), equation (1): summed variance of one draw when ranking against tau.

    Parameters
    ----------
    tau
        The baseline, shape (cells,); any numbers, not only a system's weights.
    weights
        w, shape (cells, systems).
    utility
        u, shape (cells,).

    Returns
    -------
    jax.Array
        A scalar, in squared units of the measure. Its gradient is finite everywhere.

    Raises
    ------
    PrecisionError
        If an array is not float64.
    """
    utility = _utility(utility)
    lost = utility @ _apart(tau, weights)
    return reach(tau, weights, utility) ** 2 - (lost**2).sum()


def baseline_gradient(
    tau: jax.typing.ArrayLike, weights: jax.typing.ArrayLike, utility: jax.typing.ArrayLike
) -> jax.Array:
    """Gradient of Sigma in closed form, equation (3); the first term is 0 at a kink.

    Parameters
    ----------
    tau, weights, utility
        As of `baseline_variance`.

    Returns
    -------
    jax.Array
        Shape (cells,).
    """
    utility = _utility(utility)
    summed = _apart(tau, weights).sum(-1)
    length = distance(tau, weights)
    apart = length > 0
    alpha = jnp.where(apart, jnp.abs(utility) @ length / jnp.where(apart, length, 1.0), 0.0)
    return -2.0 * (jnp.abs(utility) * alpha * summed - utility * (utility @ summed))


def gradient_size(
    tau: jax.typing.ArrayLike, weights: jax.typing.ArrayLike, utility: jax.typing.ArrayLike
) -> jax.Array:
    """The largest that a term of the gradient can be, equation (4): shape (cells,)."""
    k = jnp.shape(weights)[-1]
    return 2.0 * k**0.5 * jnp.abs(_utility(utility)) * reach(tau, weights, utility)


class Bound(NamedTuple):
    """Sigma(tau) through the mean, and what it cannot fall below: scalars.

    Attributes
    ----------
    value
        Sigma(tau) by equation (5).
    least
        Sigma(mean), equation (6).
    """

    value: jax.Array
    least: jax.Array


def baseline_bound(
    tau: jax.typing.ArrayLike, weights: jax.typing.ArrayLike, utility: jax.typing.ArrayLike
) -> Bound:
    """The lower bound of Sigma, equations (5) and (6).

    Parameters
    ----------
    tau, weights, utility
        As of `baseline_variance`.
    """
    utility = _utility(utility)
    mean = mean_baseline(weights)
    spread = distance(mean, weights)
    delta = require_float64(tau, "the baseline") - mean
    k = jnp.shape(weights)[-1]
    columns = jnp.stack([spread, k**0.5 * delta], -1)
    longest = jnp.abs(utility) @ norm(columns, jnp.ones(2, columns.dtype))
    lost = ((utility @ _apart(mean, weights)) ** 2).sum()
    return Bound(
        value=longest**2 - k * (utility @ delta) ** 2 - lost,
        least=(jnp.abs(utility) @ spread) ** 2 - lost,
    )


def multiplier(norms: jax.typing.ArrayLike, second_moment: jax.typing.ArrayLike) -> jax.Array:
    """Lambda of equation (8), which is also the least that the first sum of it can be."""
    norms = require_float64(norms, "norms")
    return (jnp.sqrt(jnp.asarray(second_moment)) @ norms) ** 2


def lagrangian(
    q: jax.typing.ArrayLike,
    multiplier: jax.typing.ArrayLike,
    norms: jax.typing.ArrayLike,
    second_moment: jax.typing.ArrayLike,
) -> jax.Array:
    """The Lagrangian of the best proposal, equation (8).

    Parameters
    ----------
    q
        The proposal, shape (cells,).
    multiplier
        Lambda, a scalar.
    norms
        ||a_c||, shape (cells,).
    second_moment
        E[r_c^2], shape (cells,).

    Returns
    -------
    jax.Array
        A scalar. Cells that cannot matter add nothing to the first sum, whatever their q.
    """
    q, norms = require_float64(q, "a proposal"), require_float64(norms, "norms")
    mass = jnp.asarray(second_moment) * norms**2
    matters = mass > 0
    cost = jnp.where(matters, mass / jnp.where(matters, q, 1.0), 0.0)
    return cost.sum() + multiplier * (q.sum() - 1.0)


def _apart(tau: jax.typing.ArrayLike, weights: jax.typing.ArrayLike) -> jax.Array:
    tau = require_float64(tau, "the baseline")
    return require_float64(weights, "weights") - tau[..., None]


def _utility(utility: jax.typing.ArrayLike) -> jax.Array:
    return require_float64(utility, "the utility")
