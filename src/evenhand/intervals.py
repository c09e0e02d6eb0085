r"""Intervals from an estimate, its covariance and degrees of freedom.

`student` covers each estimate alone: estimate +- t_{nu} std_error. `simultaneous` covers all of
them together: the multiplier is the quantile of max_i |T_i|, T multivariate t with the estimated
correlation, found by simulation with a fixed key; with one contrast it is the Student quantile, and
never above Bonferroni's.

The degrees of freedom of a sum over rounds are Welch and Satterthwaite's,

    nu = (sum_t v_t)^2 / sum_t (v_t^2 / nu_t),      v_t the variance that round t adds.      (1)

Both answer for *this query set*. They are the source paper's interval (its equation for the CLT)
with Student's t for the normal, and need n large where relevance is rare.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from evenhand.errors import EvenhandError
from evenhand.precision import in_float64

__all__ = ["check_level", "simultaneous", "student", "welch"]


def check_level(level: float) -> float:
    """Give the confidence level back if it lies in (0, 1)."""
    if not 0 < level < 1:
        raise EvenhandError(
            f"the level must lie between 0 and 1, got {level:g}", hint="--level 0.95"
        )
    return level


def welch(variances: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """Degrees of freedom of a sum of variances, equation (1).

    Parameters
    ----------
    variances
        v_t, shape (rounds, m).
    degrees
        nu_t, shape (rounds,).

    Returns
    -------
    numpy.ndarray
        Shape (m,); the sum of nu_t where nothing varies.
    """
    degrees = np.maximum(np.asarray(degrees, np.float64), 1.0)
    bottom = (variances**2 / degrees[:, None]).sum(0)
    top = variances.sum(0) ** 2
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), degrees.sum())


def student(
    estimate: np.ndarray, std_error: np.ndarray, degrees: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Student's interval for each estimate alone; shapes (m,), in the measure's unit."""
    check_level(level)
    half = special.stdtrit(degrees, 0.5 + level / 2) * std_error
    return estimate - half, estimate + half


@in_float64
def simultaneous(
    factor: np.ndarray, degrees: np.ndarray, level: float, *, n_draws: int = 20_000
) -> float:
    """Multiplier c such that estimate +- c std_error covers all m contrasts together.

    Parameters
    ----------
    factor
        F with F F' the covariance of the contrasts; shape (m, r).
    degrees
        Shape (m,); the smallest is taken.
    level
        Probability that all are covered.
    n_draws
        Simulated maxima; the multiplier is then right to about 0.02.
    """
    check_level(level)
    spread = np.sqrt((factor**2).sum(1))
    factor = factor[spread > 0] / spread[spread > 0, None]
    nu = float(np.min(degrees))
    alone = float(special.stdtrit(nu, 0.5 + level / 2))
    if len(factor) <= 1:
        return alone
    maxima = np.asarray(_maxima(jax.random.key(0), jnp.asarray(factor), jnp.asarray(nu), n_draws))
    bonferroni = float(special.stdtrit(nu, 1 - (1 - level) / (2 * len(factor))))
    return float(np.clip(np.quantile(maxima, level), alone, bonferroni))


@partial(jax.jit, static_argnames=("n_draws",))
def _maxima(key: jax.Array, factor: jax.Array, nu: jax.Array, n_draws: int) -> jax.Array:
    key_normal, key_chi = jax.random.split(key)
    normal = jax.random.normal(key_normal, (n_draws, factor.shape[1]), factor.dtype)
    highest = jax.lax.map(lambda z: jnp.abs(factor @ z).max(), normal, batch_size=256)
    return highest / jnp.sqrt(jax.random.chisquare(key_chi, nu, (n_draws,), factor.dtype) / nu)
