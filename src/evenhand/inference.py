r"""The posterior of a NumPyro model, as draws of its parameters on the whole real line.

`laplace` finds the mode by Newton's method on the model's own log density, with gradient and
Hessian by autodiff, and takes the normal approximation there:

    theta ~ N(mode, H^-1),      H = -d2/dtheta2 log p(theta, data) at the mode              (1)

Scales are parameters like others, under the tight priors that the models give them. Judgments come
in blocks of a fixed length, so that memory does not grow with their number, and shapes are filled
up, so that rounds and folds of about one size share a compilation. Many fits are one compiled call.

`svi` fits a low-rank normal by stochastic gradients on minibatches of constant size: for models
with very many parameters, or a log density that Newton cannot climb. `nuts` is the reference.

All are deterministic given the seed.

References
----------
Phan, Pradhan and Jankowiak 2019, *Composable effects for flexible and accelerated probabilistic
programming in NumPyro*; Tierney and Kadane 1986 for (1); Hoffman and Gelman 2014 for NUTS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoLowRankMultivariateNormal
from numpyro.infer.util import constrain_fn, potential_energy
from numpyro.optim import Adam

from evenhand.errors import EvenhandError
from evenhand.features import Features
from evenhand.models import Judged, Model

__all__ = ["Fitted", "energy", "laplace", "moments", "nuts", "parameters", "svi"]

#: Draws of the parameters that predictions average over, in antithetic pairs.
DRAWS = 32
#: Damping at which Newton's method gives up.
MOST_DAMPING = 1e12


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
    """

    mode: jax.Array
    draws: jax.Array
    steps: jax.Array
    converged: jax.Array


def parameters(
    model: Model, features: Features, judged: Judged | None, levels: jax.Array
) -> tuple[jax.Array, Callable[[jax.Array], dict[str, jax.Array]]]:
    """Zeros on the real line for all parameters of a model, flat, and what unravels them.

    Raises
    ------
    EvenhandError
        If a parameter is discrete.
    """
    seeded = handlers.seed(model, jax.random.key(0))
    sites = handlers.trace(seeded).get_trace(features, judged, levels=levels)
    zeros = {}
    for name, site in sites.items():
        if site["type"] != "sample" or site["is_observed"]:
            continue
        support = site["fn"].support
        if support.is_discrete:
            raise EvenhandError(
                f"the parameter {name!r} of the model is discrete, which cannot be differentiated",
                hint="sum it out in the model",
            )
        shape = biject_to(support).inverse_shape(jnp.shape(site["value"]))
        zeros[name] = jnp.zeros(shape, levels.dtype)
    return ravel_pytree(zeros)


def energy(
    model: Model, features: Features, judged: Judged, levels: jax.Array
) -> Callable[[jax.Array], jax.Array]:
    """Minus log p(theta, data) as a function of the flat parameters."""
    _, unravel = parameters(model, features, judged, levels)
    arguments, options = (features, judged), {"levels": levels}
    return lambda theta: jnp.asarray(potential_energy(model, arguments, options, unravel(theta)))


def _over_blocks(
    model: Model, features: Features, judged: Judged, levels: jax.Array
) -> Callable[..., Any]:
    """A sum over blocks of rows of what `wanted` makes of their energy, the prior counted once."""
    blocks = judged.weight.shape[0]
    first: tuple[Features, Judged] = jax.tree.map(lambda x: x[0], (features, judged))

    def total(wanted: Callable, theta: jax.Array) -> Any:
        if blocks == 1:
            return wanted(energy(model, first[0], first[1], levels))(theta)
        nothing = replace(first[1], weight=jnp.zeros_like(first[1].weight))
        prior = wanted(energy(model, first[0], nothing, levels))(theta)

        def add(so_far: Any, block: tuple[Features, Judged]) -> tuple[Any, None]:
            found = wanted(energy(model, block[0], block[1], levels))(theta)
            return jax.tree.map(lambda s, x, p: s + x - p, so_far, found, prior), None

        return jax.lax.scan(add, prior, (features, judged))[0]

    return total


class _Climb(NamedTuple):
    theta: jax.Array
    value: jax.Array
    gradient: jax.Array
    hessian: jax.Array
    ahead: jax.Array
    damping: jax.Array
    steps: jax.Array
    rest: jax.Array


def _expansion(down: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], tuple]:
    """Value, gradient and Hessian."""

    def expanded(theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(down)(theta)
        return value, gradient, jax.jacfwd(jax.grad(down))(theta)

    return expanded


def _newton(total: Callable[..., Any], start: jax.Array, most: int) -> _Climb:
    """Climb down the energy by damped Newton steps (Levenberg and Marquardt)."""
    identity = jnp.eye(len(start), dtype=start.dtype)

    def step(now: _Climb) -> _Climb:
        value, gradient, hessian = total(_expansion, now.ahead)
        # At the bottom the value moves up and down by its own rounding.
        slack = 1e-10 * (1.0 + jnp.abs(value))
        better = jnp.isfinite(value) & (value <= now.value + slack)
        fell = now.value - value
        kept = now._replace(
            theta=jnp.where(better, now.ahead, now.theta),
            value=jnp.where(better, value, now.value),
            gradient=jnp.where(better, gradient, now.gradient),
            hessian=jnp.where(better, hessian, now.hessian),
        )
        damping = jnp.where(
            better,
            jnp.where(now.damping < 1e-3, 0.0, now.damping / 8.0),
            jnp.maximum(now.damping * 8.0, 1e-2),
        )
        factor = jnp.linalg.cholesky(kept.hessian + damping * identity)
        move = jax.scipy.linalg.cho_solve((factor, True), kept.gradient)
        stuck = ~jnp.isfinite(move).all()  # not a valley yet: more damping next time
        return kept._replace(
            ahead=jnp.where(stuck, kept.theta + jnp.nan, kept.theta - move),
            damping=damping,
            steps=now.steps + 1,
            rest=(better & (now.damping == 0) & (fell < 1e-8)) | (damping > MOST_DAMPING),
        )

    nothing = jnp.zeros_like(start)
    begin = _Climb(
        start,
        jnp.full((), jnp.inf, start.dtype),
        nothing,
        identity,
        start,
        jnp.zeros((), start.dtype),
        jnp.asarray(0),
        jnp.asarray(False),
    )
    return jax.lax.while_loop(lambda now: ~now.rest & (now.steps < most), step, begin)


@partial(jax.jit, static_argnames=("model", "draws", "most"))
def laplace(
    features: Features,
    judged: Judged,
    levels: jax.Array,
    start: jax.Array,
    *,
    model: Model,
    draws: int = DRAWS,
    most: int = 200,
) -> Fitted:
    """Normal approximation at the mode, equation (1), for several data sets at once.

    Parameters
    ----------
    features, judged
        With leading axes (fits, blocks).
    levels
        Utilities that the model tells apart; shape (levels,).
    start
        Where to start; shape (fits, d).
    model
        A model of `evenhand.models`, or your own.
    draws
        Of the parameters, even.
    most
        Newton steps.
    """
    noise = jax.random.normal(jax.random.key(0), (draws // 2, start.shape[-1]), levels.dtype)
    noise = jnp.concatenate([noise, -noise])

    def fit(features: Features, judged: Judged, start: jax.Array) -> Fitted:
        total = _over_blocks(model, features, judged, levels)
        end = _newton(total, start, most)
        # At a saddle or a ridge the Hessian needs help to be a precision.
        identity = jnp.eye(len(start), dtype=start.dtype)

        def helped(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            _, jitter = state
            factor = jnp.linalg.cholesky(end.hessian + jitter * identity)
            return factor, jnp.maximum(jitter * 30.0, 1e-6)

        factor, _ = jax.lax.while_loop(
            lambda state: ~jnp.isfinite(state[0]).all() & (state[1] < 1e9),
            helped,
            (jnp.full_like(end.hessian, jnp.nan), jnp.zeros((), start.dtype)),
        )
        away = jax.scipy.linalg.solve_triangular(factor, noise.T, lower=True, trans=1).T
        # Where no damping helped, the climb gave up.
        rested = end.rest & (end.damping <= MOST_DAMPING)
        return Fitted(end.theta, end.theta + away, end.steps, rested)

    # One after the other: each climb ends when it is done, and memory is that of one.
    return jax.lax.map(lambda one: fit(*one), (features, judged, start))


@partial(jax.jit, static_argnames=("model", "draws", "steps", "batch"))
def svi(
    features: Features,
    judged: Judged,
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

    def some(key: jax.Array) -> tuple[Features, Judged]:
        # Rows by their weight, so that filling is never taken.
        share = jnp.cumsum(judged.weight) / total
        rows = jnp.searchsorted(share, jax.random.uniform(key, (batch,)), side="right")
        rows = jnp.minimum(rows, size - 1)
        weight = jnp.full(batch, total / batch)
        return features.take(rows), Judged(
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
    return Fitted(theta.mean(0), theta, jnp.asarray(steps), jnp.isfinite(losses[-1]))


def nuts(
    features: Features,
    judged: Judged,
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
    features, judged
        All rows; without leading axes.
    levels, start, model
        As in `laplace`; `start` has shape (d,).
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
    )


@partial(jax.jit, static_argnames=("model", "n_assessors"))
def moments(
    features: Features,
    draws: jax.Array,
    levels: jax.Array,
    *,
    model: Model,
    n_assessors: int = 1,
) -> tuple[jax.Array, jax.Array]:
    """Posterior predictive E[r] and E[r^2] of some cells: shapes (n,).

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

    def predicted(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        sites = constrain_fn(
            model, (features,), {"levels": levels}, unravel(theta), return_deterministic=True
        )
        return sites["mean"], sites["mean"] ** 2 + sites["spread"]

    mean, square = jax.vmap(predicted)(draws)
    return mean.mean(0), square.mean(0)
