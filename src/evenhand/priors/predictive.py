"""What a model predicts of cells: moments over draws of its parameters, and judgments by draw."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from numpyro.infer.util import constrain_fn

from evenhand.priors.features import Features
from evenhand.priors.log_density import parameters
from evenhand.priors.models import Model, Observed

__all__ = ["judgments", "moments"]

#: Cells predicted at once: with their draws they stay in a processor's cache.
PIECE = 2048


#: E[r] and Var[r] of cells given the parameters, and P(r >= level) where there are levels.
_Predicted = tuple[jax.Array, jax.Array, jax.Array | None]


def _predicted(
    features: Features, levels: jax.Array, model: Model, n_assessors: int
) -> Callable[[Features, jax.Array], _Predicted]:
    """What flat parameters predict of cells, in a model that was fitted to data like these."""
    one = jnp.zeros(1, levels.dtype)
    judged = Observed(one, one, jnp.zeros(1, jnp.int32), n_assessors)
    _, unravel = parameters(model, features.take(jnp.zeros(1, jnp.int32)), judged, levels)

    def predicted(cells: Features, theta: jax.Array) -> _Predicted:
        sites = constrain_fn(
            model, (cells,), {"levels": levels}, unravel(theta), return_deterministic=True
        )
        return sites["mean"], sites["spread"], sites.get("reached")

    return predicted


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
    predicted = _predicted(features, levels, model, n_assessors)

    def some(piece: Features) -> _Predicted:
        mean, spread, reached = jax.vmap(partial(predicted, piece))(draws)
        centre = mean.mean(0)
        variance = (spread + (mean - centre) ** 2).mean(0)
        return centre, variance, None if reached is None else reached.mean(0)

    n = features.query.shape[0]
    if n <= PIECE or n % PIECE:
        return some(features)
    pieces = jax.tree.map(lambda x: x.reshape(-1, PIECE, *x.shape[1:]), features)
    return jax.tree.map(lambda x: x.reshape(n, *x.shape[2:]), jax.lax.map(some, pieces))


@partial(jax.jit, static_argnames=("model", "n_assessors"))
def judgments(
    key: jax.Array,
    features: Features,
    draws: jax.Array,
    levels: jax.Array,
    *,
    model: Model,
    n_assessors: int = 1,
) -> jax.Array:
    """A judgment of each cell for each draw of the parameters, shape (draws, n).

    It is one of `levels` where the model records what is ``reached``, and normal with the model's
    mean and spread where it does not.

    Parameters
    ----------
    key
        Of the draws.
    features, draws, levels, model, n_assessors
        As of `moments`.
    """
    predicted = _predicted(features, levels, model, n_assessors)

    def one(given: tuple[jax.Array, jax.Array]) -> jax.Array:
        key, theta = given
        mean, spread, reached = predicted(features, theta)
        if reached is None:
            return mean + jnp.sqrt(spread) * jax.random.normal(key, mean.shape, mean.dtype)
        at = jax.random.uniform(key, mean.shape, mean.dtype)
        return levels[(at[:, None] < reached).sum(1)]

    return jax.lax.map(one, (jax.random.split(key, len(draws)), draws), batch_size=8)
