r"""Contrasts of weights, and their norms: what designs and estimates make of a goal's matrix.

    a = C w,        ||a|| = sqrt( sum_i h_i a_i^2 )                                           (1)

with w the weights of all systems on a cell (`evenhand.targets`, equations 2 and 3).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from evenhand.blocks import Blocks

__all__ = ["by_block", "contrasts", "norm"]


def contrasts(weights: Any, matrix: Any) -> Any:
    """The contrasts a = C w, with exactly 0 where a comparative contrast meets equal weights.

    Parameters
    ----------
    weights
        w, shape (..., systems); of NumPy or JAX, and so is what comes back.
    matrix
        C, shape (contrasts, systems).

    Returns
    -------
    array
        a, shape (..., contrasts).

    Notes
    -----
    C w = C (w - max w) + (C 1) max w, and a row whose entries sum to 0 but for rounding counts as
    summing to 0.
    """
    xp = weights.__array_namespace__()
    matrix = xp.asarray(matrix)
    level = weights.max(-1, keepdims=True)
    total = matrix.sum(-1)
    size = xp.abs(matrix).sum(-1)
    total = xp.where(xp.abs(total) <= 16 * xp.finfo(matrix.dtype).eps * size, 0.0, total)
    return (weights - level) @ matrix.T + level * total


def norm(contrast_values: jax.Array, importance: jax.Array) -> jax.Array:
    """||a|| = sqrt(sum_i h_i a_i^2), equation (1), with the subgradient 0 where all a_i are 0.

    Parameters
    ----------
    contrast_values
        a, shape (..., contrasts).
    importance
        h, shape (contrasts,).
    """
    square = (contrast_values**2) @ importance
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


@jax.jit
def by_block(blocks: Blocks, matrix: jax.Array, importance: jax.Array) -> jax.Array:
    """||a|| of every cell of some blocks of weights, padded to whole blocks."""
    return blocks.map(lambda w: norm(contrasts(w, matrix), importance)).reshape(-1)
