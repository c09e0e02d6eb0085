r"""Contrasts of weights, and their norms: what designs and estimates make of a goal's matrix.

    a = C w,        ||a|| = sqrt( sum_i h_i a_i^2 )                                           (1)

with w the weights of all systems on a cell (`evenhand.estimands.goals`, equations 2 and 3). Goals
whose matrix is a diagonal and a row (`evenhand.estimands.matrices`) need the entries of a cell
only, all others its table. Accelerators have tables throughout: they add scattered numbers as they
come, and the last digits of a design would differ from run to run.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.devices import adds_in_order
from evenhand.estimands.blocks import BlockEntries, Blocks
from evenhand.estimands.matrices import DiagonalAndRow, Form

__all__ = ["along", "by_block", "by_entry", "contrasts", "norm", "norms"]

#: What is left of a sum of importances is nothing below this share of it.
_ROUNDING = 1e-12


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
    return _root((contrast_values**2) @ importance)


def _root(square: jax.Array) -> jax.Array:
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


def norms(
    blocks: Blocks, matrix: np.ndarray, importance: np.ndarray, form: Form = None
) -> jax.Array:
    """||a|| of every cell of some blocks of weights, padded to whole blocks.

    Parameters
    ----------
    blocks
        The weights.
    matrix
        C, shape (contrasts, systems).
    importance
        h, shape (contrasts,).
    form
        Of the matrix.
    """
    if form is None or not adds_in_order():
        return by_block(blocks, jax.device_put(matrix), jax.device_put(importance))
    by_system = np.zeros(len(form.diagonal))
    by_system[form.place] = importance
    return by_entry(blocks, form, by_system)


@jax.jit
def by_block(blocks: Blocks, matrix: jax.Array, importance: jax.Array) -> jax.Array:
    """||a|| of every cell by way of tables, for any matrix."""
    return blocks.map(lambda w: norm(contrasts(w, matrix), importance)).reshape(-1)


@jax.jit
def by_entry(blocks: Blocks, form: DiagonalAndRow, importance: jax.Array) -> jax.Array:
    """||a|| of every cell by way of its entries; importance by system, shape (systems,).

    With s = t w, those who return a cell have a = d w + s, and all others s: squared and weighted,

        ||a||^2 = sum over entries of h (d w + s)^2  +  s^2 (sum of h less that of the entries).
    """

    def block(entries: BlockEntries) -> jax.Array:
        a, rest = along(entries, form)
        h = importance[entries.system]
        square = entries.by_cell(h * a**2)
        if form.row is not None:
            total = importance.sum()
            left = total - entries.by_cell(h)
            square += rest**2 * jnp.where(left > _ROUNDING * total, left, 0.0)
        return _root(square)

    return blocks.map_entries(block).reshape(-1)


def along(entries: BlockEntries, form: DiagonalAndRow) -> tuple[jax.Array, jax.Array]:
    """Contrasts where a system returns a cell, and where it does not.

    Returns
    -------
    tuple of jax.Array
        a of each entry's own contrast, shape (entries,), and t w of each cell, shape (cells,).
        Both are exactly 0 where all systems weigh a cell alike and there is a common row.
    """
    own = jnp.asarray(form.diagonal)[entries.system]
    if form.row is None:
        return own * entries.weight, jnp.zeros(len(entries.full))
    weight = entries.apart()
    rest = entries.by_cell(jnp.asarray(form.row)[entries.system] * weight)
    return own * weight + entries.of_cells(rest), rest
