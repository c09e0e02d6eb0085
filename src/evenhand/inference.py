r"""The posterior of a NumPyro model, as draws of its parameters on the whole real line.

`laplace` finds the mode of the model's own log density, with gradient and Hessian by autodiff, and
takes the normal approximation there:

    theta ~ N(mode, H^-1),      H = -d2/dtheta2 log p(theta, data) at the mode              (1)

A Hessian in d parameters costs d gradients. So few are made, and gradients do the rest: a round
starts from H, damped where it is not that of a valley (Levenberg and Marquardt), and goes on with
what each step of length s teaches about its inverse (Broyden, Fletcher, Goldfarb and Shanno), in
coordinates u = L' theta in which B starts as I:

    m = -s B g,        g = L^-1 dE/dtheta,        L L' = H + damping I                       (2)
    B <- (I - m t'/t'm) B (I - t m'/t'm) + m m'/t'm,        t = change of g                  (3)

Two rounds and the Hessian at the end are the rule. Scales are parameters like others, under the
tight priors that the models give them. Judgments come in blocks of a fixed length, so that memory
does not grow with their number, and shapes are filled up, so that rounds and folds of about one
size share a compilation. Many fits are one compiled call.

`svi` fits a low-rank normal by stochastic gradients on minibatches of constant size: for models
with very many parameters, or a log density that cannot be climbed so. `nuts` is the reference.

All are deterministic given the seed.

References
----------
Phan, Pradhan and Jankowiak 2019, *Composable effects for flexible and accelerated probabilistic
programming in NumPyro*; Tierney and Kadane 1986 for (1); Nocedal and Wright 2006, *Numerical
optimization*, chapter 6, for (3); Hoffman and Gelman 2014 for NUTS.
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
from jax.scipy.linalg import solve_triangular
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
#: Steps between two Hessians, one of which costs about as much as that many gradients.
ROUND = 16
#: Cells predicted at once: with their draws they stay in a processor's cache.
PIECE = 2048
#: Newton decrement g' H^-1 g at which a climb rests: within 1e-7 standard deviations of the mode.
REST = 1e-14


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
    return _energy(model, features, judged, levels, unravel)


def _energy(
    model: Model, features: Features, judged: Judged, levels: jax.Array, unravel: Callable
) -> Callable[[jax.Array], jax.Array]:
    arguments, options = (features, judged), {"levels": levels}
    return lambda theta: jnp.asarray(potential_energy(model, arguments, options, unravel(theta)))


def _slope(down: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], tuple]:
    """Value and gradient."""
    return jax.value_and_grad(down)


def _expansion(down: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], tuple]:
    """Value, gradient and Hessian, in one pass for all directions."""

    def expanded(theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        (value, gradient), along = jax.linearize(jax.value_and_grad(down), theta)
        directions = jnp.eye(len(theta), dtype=theta.dtype)
        return value, gradient, jax.vmap(lambda v: along(v)[1])(directions)

    return expanded


def _over_blocks(
    model: Model, features: Features, judged: Judged, levels: jax.Array
) -> Callable[..., tuple]:
    """A sum over blocks of rows of what `wanted` makes of their energy, the prior counted once.

    Blocks of nothing but filling at the end cost nothing.
    """
    first: tuple[Features, Judged] = jax.tree.map(lambda x: x[0], (features, judged))
    _, unravel = parameters(model, *first, levels)
    numbers = 1 + jnp.arange(judged.weight.shape[0])
    used = jnp.max(jnp.where((judged.weight > 0).any(1), numbers, 1))

    def total(wanted: Callable, theta: jax.Array) -> tuple:
        if len(numbers) == 1:
            return wanted(_energy(model, *first, levels, unravel))(theta)

        def add(number: jax.Array, so_far: tuple) -> tuple:
            # Number 0 is the first block without its judgments: the prior, which each of the
            # others counts once more.
            prior = number == 0
            block: tuple[Features, Judged] = jax.tree.map(
                lambda x: jax.lax.dynamic_index_in_dim(
                    x, jnp.maximum(number - 1, 0), keepdims=False
                ),
                (features, judged),
            )
            rows = replace(block[1], weight=jnp.where(prior, 0.0, block[1].weight))
            found = wanted(_energy(model, block[0], rows, levels, unravel))(theta)
            times = jnp.where(prior, 1.0 - used, 1.0).astype(theta.dtype)
            return jax.tree.map(lambda s, x: s + times * x, so_far, found)

        d = len(theta)
        shapes = ((), (d,)) if wanted is _slope else ((), (d,), (d, d))
        nothing = tuple(jnp.zeros(shape, theta.dtype) for shape in shapes)
        return jax.lax.fori_loop(jnp.where(used == 1, 1, 0), used + 1, add, nothing)

    return total


class _Climb(NamedTuple):
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


def _climb(total: Callable[..., Any], start: jax.Array, most: int) -> _Climb:
    """Climb down the energy, equations (2) and (3)."""
    identity = jnp.eye(len(start), dtype=start.dtype)

    def step(factor: jax.Array, now: _Descent) -> _Descent:
        move = now.length * now.ahead
        theta = now.theta + solve_triangular(factor, move, lower=True, trans=1)
        value, gradient = total(_slope, theta)
        gradient = solve_triangular(factor, gradient, lower=True)
        slope = now.gradient @ move
        # At the bottom the value moves up and down by its own rounding.
        slack = 1e-12 * (1.0 + jnp.abs(now.value))
        better = jnp.isfinite(value) & (value <= now.value + 1e-4 * slope + slack)
        # Equation (3), where the curvature along the move is that of a valley.
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

    def climb(now: _Climb) -> _Climb:
        value, gradient, hessian = total(_expansion, now.theta)
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
        return _Climb(end.theta, factor, end.steps, end.moved, rest, valley)

    yes, no = jnp.asarray(True), jnp.asarray(False)
    begin = _Climb(start, identity, jnp.asarray(0), yes, no, no)
    return jax.lax.while_loop(lambda now: ~now.rest, climb, begin)


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
        Steps, each of one gradient.
    """
    noise = jax.random.normal(jax.random.key(0), (draws // 2, start.shape[-1]), levels.dtype)

    def fit(features: Features, judged: Judged, start: jax.Array) -> Fitted:
        total = _over_blocks(model, features, judged, levels)
        end = _climb(total, start, most)
        away = jax.lax.map(lambda z: solve_triangular(end.factor, z, lower=True, trans=1), noise)
        away = jnp.concatenate([away, -away])
        return Fitted(
            end.theta, end.theta + away, end.steps, end.converged, end.factor, jnp.asarray(1)
        )

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
    none = jnp.zeros((0, 0), theta.dtype)
    rested = jnp.isfinite(losses[-1])
    return Fitted(theta.mean(0), theta, jnp.asarray(steps), rested, none, jnp.asarray(1))


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
        jnp.zeros((0, 0), theta.dtype),
        jnp.asarray(chains),
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
    """Posterior predictive E[r] and Var[r] of some cells: shapes (n,).

    The variance is E[spread] + Var[mean] over the draws: nothing cancels, in whatever precision.

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

    def some(piece: Features) -> tuple[jax.Array, jax.Array]:
        def predicted(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
            sites = constrain_fn(
                model, (piece,), {"levels": levels}, unravel(theta), return_deterministic=True
            )
            return sites["mean"], sites["spread"]

        mean, spread = jax.vmap(predicted)(draws)
        centre = mean.mean(0)
        return centre, (spread + (mean - centre) ** 2).mean(0)

    n = features.query.shape[0]
    if n <= PIECE or n % PIECE:
        return some(features)
    pieces = jax.tree.map(lambda x: x.reshape(-1, PIECE, *x.shape[1:]), features)
    mean, variance = jax.lax.map(some, pieces)
    return mean.reshape(-1), variance.reshape(-1)
