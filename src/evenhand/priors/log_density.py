"""Minus the log density of a model, as a function of its parameters on the whole real line, flat.

With gradient and Hessian by autodiff; over blocks of rows, so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.util import potential_energy

from evenhand.errors import EvenhandError
from evenhand.priors.features import Features
from evenhand.priors.models import Model, Observed

__all__ = ["energy", "first_order", "over_blocks", "parameters", "second_order"]


def parameters(
    model: Model, features: Features, judged: Observed | None, levels: jax.Array
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
    model: Model, features: Features, judged: Observed, levels: jax.Array
) -> Callable[[jax.Array], jax.Array]:
    """Minus log p(theta, data) as a function of the flat parameters."""
    _, unravel = parameters(model, features, judged, levels)
    return _energy(model, features, judged, levels, unravel)


def _energy(
    model: Model, features: Features, judged: Observed, levels: jax.Array, unravel: Callable
) -> Callable[[jax.Array], jax.Array]:
    arguments, options = (features, judged), {"levels": levels}
    return lambda theta: jnp.asarray(potential_energy(model, arguments, options, unravel(theta)))


def first_order(down: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], tuple]:
    """Value and gradient."""
    return jax.value_and_grad(down)


def second_order(down: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], tuple]:
    """Value, gradient and Hessian, in one pass for all directions."""

    def expanded(theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        (value, gradient), along = jax.linearize(jax.value_and_grad(down), theta)
        directions = jnp.eye(len(theta), dtype=theta.dtype)
        return value, gradient, jax.vmap(lambda v: along(v)[1])(directions)

    return expanded


def over_blocks(
    model: Model, features: Features, judged: Observed, levels: jax.Array
) -> Callable[..., tuple]:
    """A function ``total(wanted, theta)``: the energy over blocks of rows, the prior counted once.

    `wanted`, one of `first_order` and `second_order`, says what of each block's energy is summed.

    Blocks of nothing but filling at the end cost nothing.
    """
    first: tuple[Features, Observed] = jax.tree.map(lambda x: x[0], (features, judged))
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
            block: tuple[Features, Observed] = jax.tree.map(
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
        shapes = ((), (d,)) if wanted is first_order else ((), (d,), (d, d))
        nothing = tuple(jnp.zeros(shape, theta.dtype) for shape in shapes)
        return jax.lax.fori_loop(jnp.where(used == 1, 1, 0), used + 1, add, nothing)

    return total
