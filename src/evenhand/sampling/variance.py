r"""How far draws lie from what their sampler makes of them: residuals y with Cov = y' y.

With z_i = a r / E of each draw, in groups of which each is drawn by itself,

    y_i = sqrt( n/(n - 1) free_i ) (z_i - B),      B the mean of z weighted by free           (1)

with n the draws of the group that vary and free_i how much draw i varies: 1 for draws with
replacement, 1 - E_i for distinct ones (Hajek 1964). The covariance of the sum of z is y' y.

==========  =====================================  ===============================
sampler     groups                                 free
==========  =====================================  ===============================
`iid`       folds                                  1
`distinct`  folds                                  1 - E
`slices`    pairs of adjacent slices of a fold     1
==========  =====================================  ===============================

**Collapsed strata.** A slice has one draw, which says nothing of its own spread. Two adjacent ones
have (z_1 - z_2)^2, which is on average Var z_1 + Var z_2 + (E z_1 - E z_2)^2: never too small on
average, and far below `iid`'s where the order of the cells predicts their terms. An odd slice makes
the last group one of three. (Cochran 1977, *Sampling Techniques*, section 5A.12.)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

__all__ = [
    "all_free",
    "collapsed",
    "independent",
    "scattered",
    "strata",
    "unsure",
    "without_replacement",
]


def all_free(expected: Any) -> Any:
    """Draws with replacement all vary: 1 for each, of NumPy or JAX as E is."""
    return expected.__array_namespace__().ones_like(expected)


def unsure(expected: Any) -> Any:
    """Distinct draws vary the less, the surer they were: 1 - E, of NumPy or JAX as E is."""
    return (1.0 - expected).clip(0.0)


def scattered(
    z: jax.Array, free: jax.Array, group: jax.Array, groups: int
) -> tuple[jax.Array, jax.Array]:
    """Residuals of equation (1) and their degrees of freedom.

    A group with one draw that varies says nothing of its spread: it counts with its full square,
    which is too much rather than too little.

    Parameters
    ----------
    z
        Shape (n, m).
    free, group
        Shape (n,).
    groups
        Static; some may be empty.
    """
    total = partial(jax.ops.segment_sum, segment_ids=group, num_segments=groups)
    n, mass = total((free > 0).astype(z.dtype)), total(free)
    centre = total(free[:, None] * z) / jnp.where(mass > 0, mass, 1.0)[:, None]
    centre = jnp.where((n > 1)[:, None], centre, 0.0)
    scale = jnp.where(n > 1, n / jnp.maximum(n - 1.0, 1.0), 1.0)
    residual = jnp.sqrt(free * scale[group])[:, None] * (z - centre[group])
    return residual, n.sum() - jnp.maximum((n > 0).sum(), 1)


def independent(
    z: jax.Array, expected: jax.Array, fold: jax.Array, folds: int
) -> tuple[jax.Array, jax.Array]:
    """Residuals of independent draws."""
    return scattered(z, all_free(expected), fold, folds)


def without_replacement(
    z: jax.Array, expected: jax.Array, fold: jax.Array, folds: int
) -> tuple[jax.Array, jax.Array]:
    """Residuals of distinct draws, of which the certain ones do not vary."""
    return scattered(z, unsure(expected), fold, folds)


def collapsed(
    z: jax.Array, expected: jax.Array, fold: jax.Array, folds: int
) -> tuple[jax.Array, jax.Array]:
    """Residuals of draws by slices, which must come in the order of their slices."""
    return scattered(z, all_free(expected), strata(fold, folds), len(z))


@partial(jax.jit, static_argnames="folds")
def strata(fold: jax.Array, folds: int) -> jax.Array:
    """The pair of adjacent slices that each draw belongs to; shape (n,)."""
    n = len(fold)
    count = jax.ops.segment_sum(jnp.ones(n, jnp.int32), fold, folds)
    order = jnp.argsort(fold, stable=True)
    place = jnp.zeros(n, count.dtype).at[order].set(jnp.arange(n, dtype=count.dtype))
    place = place - (jnp.cumsum(count) - count)[fold]
    pairs = jnp.maximum(count // 2, jnp.minimum(count, 1))  # none in an empty fold
    return (jnp.cumsum(pairs) - pairs)[fold] + jnp.minimum(place // 2, pairs[fold] - 1)
