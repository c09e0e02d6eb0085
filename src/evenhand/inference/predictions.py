"""What a model predicts of cells, averaged over draws of its parameters."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from numpyro.infer.util import constrain_fn

from evenhand.features import Features
from evenhand.inference.energies import parameters
from evenhand.models import Judged, Model

__all__ = ["moments"]

#: Cells predicted at once: with their draws they stay in a processor's cache.
PIECE = 2048


@partial(jax.jit, static_argnames=("model", "n_assessors"))
def moments(
    features: Features,
    draws: jax.Array,
    levels: jax.Array,
    *,
    model: Model,
    n_assessors: int = 1,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Posterior predictive E[r] and Var[r] of some cells, shapes (n,), and what they reach.

    The variance is E[spread] + Var[mean] over the draws: nothing cancels, in whatever precision.
    P(r >= level) is of all levels but the lowest, shape (n, levels - 1); None where the model does
    not record it.

    Parameters
    ----------
    features
        The cells.
    draws
        Of the parameters; shape (draws, d).
    levels, model, n_assessors
        As fitted.
    """
    one = jnp.zeros(1, levels.dtype)
    heard = Judged(one, one, jnp.zeros(1, jnp.int32), n_assessors)
    _, unravel = parameters(model, features.take(jnp.zeros(1, jnp.int32)), heard, levels)

    def some(piece: Features) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        def predicted(theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array | None]:
            sites = constrain_fn(
                model, (piece,), {"levels": levels}, unravel(theta), return_deterministic=True
            )
            return sites["mean"], sites["spread"], sites.get("reached")

        mean, spread, reached = jax.vmap(predicted)(draws)
        centre = mean.mean(0)
        variance = (spread + (mean - centre) ** 2).mean(0)
        return centre, variance, None if reached is None else reached.mean(0)

    n = features.query.shape[0]
    if n <= PIECE or n % PIECE:
        return some(features)
    pieces = jax.tree.map(lambda x: x.reshape(-1, PIECE, *x.shape[1:]), features)
    return jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), jax.lax.map(some, pieces))
