r"""Three ways to a posterior, with one signature and one answer, `Fitted`.

`laplace` takes the normal approximation at the mode:

    theta ~ N(mode, H^-1),      H = -d2/dtheta2 log p(theta, data) at the mode              (1)

Scales are parameters like others, under the tight priors that the models give them. All fits of one
shape are one compiled function.

`svi` fits a low-rank normal by stochastic gradients on minibatches of constant size: for models
with very many parameters, or a log density that cannot be climbed so. `nuts` is the reference.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoLowRankMultivariateNormal
from numpyro.infer.util import constrain_fn
from numpyro.optim import Adam

from evenhand.priors.features import Features
from evenhand.priors.log_density import energy, over_blocks, parameters
from evenhand.priors.models import Model, Observed
from evenhand.priors.optimiser import minimise

__all__ = ["DRAWS", "Fitted", "laplace", "nuts", "svi"]

#: Draws of the parameters that predictions average over, in antithetic pairs.
DRAWS = 32


class Fitted(NamedTuple):
    """What a fit found; with a leading axis where several were made.

    Attributes
    ----------
    mode
        Parameters on the real line, flat: the mode, or the mean of the draws; shape (d,).
    draws
        Draws of them; shape (draws, d).
    steps
        Steps taken.
    converged
        Whether the climb came to rest.
    factor
        Cholesky factor of the precision, where the law is normal around the mode: shape (d, d), or
        (0, 0) where it is not.
    chains
        Number of chains that the draws come from, one after the other.
    """

    mode: jax.Array
    draws: jax.Array
    steps: jax.Array
    converged: jax.Array
    factor: jax.Array
    chains: jax.Array


def laplace(
    features: Features,
    judged: Observed,
    levels: jax.Array,
    start: jax.Array | np.ndarray,
    *,
    model: Model,
    draws: int = DRAWS,
    most: int = 200,
) -> Fitted:
    """Normal approximation at the mode, equation (1), for several data sets, one after the other.

    Parameters
    ----------
    features, judged
        With leading axes (fits, blocks).
    levels
        Utilities that the model distinguishes; shape (levels,).
    start
        Where to start; shape (fits, d).
    model
        A model of `evenhand.priors.models`, or your own.
    draws
        Of the parameters, even.
    most
        Steps, each of one gradient.
    """
    # The same for every fit; by NumPy, since JAX would compile half a second for it.
    shape = (draws // 2, start.shape[-1])
    noise = np.random.default_rng(0).standard_normal(shape).astype(levels.dtype)

    def fit(i: int) -> Fitted:
        one = jax.tree.map(lambda x: x[i], (features, judged, start))
        return _laplace(*one, levels, noise, model=model, most=most)

    return jax.tree.map(lambda *x: np.stack(x), *map(fit, range(len(start))))


@partial(jax.jit, static_argnames=("model", "most"))
def _laplace(
    features: Features,
    judged: Observed,
    start: jax.Array,
    levels: jax.Array,
    noise: jax.Array,
    *,
    model: Model,
    most: int,
) -> Fitted:
    """One fit, however many there are: few shapes are compiled, and each climb ends by itself."""
    end = minimise(over_blocks(model, features, judged, levels), start, most)
    away = jax.lax.map(lambda z: solve_triangular(end.factor, z, lower=True, trans=1), noise)
    draws = end.theta + jnp.concatenate([away, -away])
    return Fitted(end.theta, draws, end.steps, end.converged, end.factor, jnp.asarray(1))


@partial(jax.jit, static_argnames=("model", "draws", "steps", "batch"))
def svi(
    features: Features,
    judged: Observed,
    levels: jax.Array,
    start: jax.Array,
    *,
    model: Model,
    draws: int = DRAWS,
    steps: int = 2000,
    batch: int = 1024,
    rate: float = 0.01,
    seed: int = 0,
) -> Fitted:
    """Low-rank normal by stochastic gradients, for one data set.

    Parameters
    ----------
    features, judged
        All rows; without leading axes.
    levels, start, model, draws
        As in `laplace`; `start` has shape (d,).
    steps, batch, rate
        Gradient steps, judgments in each, and their rate, which falls to a hundredth.
    seed
        Of the minibatches and draws.
    """
    size = judged.weight.shape[0]
    batch = min(batch, size)
    total = judged.weight.sum()
    _, unravel = parameters(model, features, judged, levels)
    sites = constrain_fn(model, (features, judged), {"levels": levels}, unravel(start))
    guide = AutoLowRankMultivariateNormal(model, init_loc_fn=init_to_value(values=sites))

    def schedule(step: Any) -> Any:
        return rate * 0.01 ** (step / steps)

    learner = SVI(model, guide, Adam(schedule), Trace_ELBO())

    def some(key: jax.Array) -> tuple[Features, Observed]:
        # Rows by their weight, so that filling is never taken.
        share = jnp.cumsum(judged.weight) / total
        rows = jnp.searchsorted(share, jax.random.uniform(key, (batch,)), side="right")
        rows = jnp.minimum(rows, size - 1)
        weight = jnp.full(batch, total / batch)
        return features.take(rows), Observed(
            judged.utility[rows], weight, judged.assessor[rows], judged.n_assessors
        )

    key_start, key_steps, key_draws = jax.random.split(jax.random.key(seed), 3)
    state = learner.init(key_start, *some(key_start), levels=levels)

    def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        return learner.update(state, *some(key), levels=levels)

    state, losses = jax.lax.scan(step, state, jax.random.split(key_steps, steps))
    found = guide.get_posterior(learner.get_params(state))
    latent = found.sample(key_draws, (draws,))
    # The guide orders parameters as they occur in the model, `unravel` by name.
    theta = jax.vmap(lambda x: ravel_pytree(guide._unpack_latent(x))[0])(latent)
    none = jnp.zeros((0, 0), theta.dtype)
    rested = jnp.isfinite(losses[-1])
    return Fitted(theta.mean(0), theta, jnp.asarray(steps), rested, none, jnp.asarray(1))


def nuts(
    features: Features,
    judged: Observed,
    levels: jax.Array,
    start: jax.Array,
    *,
    model: Model,
    draws: int = 1000,
    warmup: int = 500,
    chains: int = 2,
    seed: int = 0,
) -> Fitted:
    """Draws by the No-U-Turn sampler, chain after chain, for one data set.

    Parameters
    ----------
    features, judged, levels, start, model
        As in `svi`.
    draws, warmup, chains
        Draws and warm-up steps of each chain, and chains.
    seed
        Of the chains.
    """
    down = energy(model, features, judged, levels)
    kernel = NUTS(potential_fn=down)
    sampler = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="sequential",
        progress_bar=False,
    )
    begin = jnp.broadcast_to(start, (chains, *start.shape)) if chains > 1 else start
    sampler.run(jax.random.key(seed), init_params=begin, extra_fields=("diverging",))
    theta = jnp.asarray(sampler.get_samples())
    diverging = np.asarray(sampler.get_extra_fields()["diverging"]).sum()
    return Fitted(
        theta.mean(0),
        theta,
        jnp.asarray(warmup + draws),
        jnp.asarray(diverging == 0),
        jnp.zeros((0, 0), theta.dtype),
        jnp.asarray(chains),
    )
