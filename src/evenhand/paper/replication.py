r"""Replicated draws: thousands of studies in one compiled call.

A study draws n cells independently from q and needs, for each budget along the way, the sums of

    z_c = a_c u_c / q_c        and of its square                                             (1)

over the draws. Cells with u = 0 add nothing, and are one cell to it. A draw takes one uniform
number and two look-ups (the alias method: column i of K equal columns holds cell i with probability
keep_i and cell other_i else); the sums are counts times z.

References
----------
Walker 1977, *An efficient method for generating discrete random variables with general
distributions*; Vose 1991 for the table in linear time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.float64 import in_float64

__all__ = ["Replicates", "alias", "replicate"]

BATCH, LEAST_ROWS, LEAST_COLUMNS = 16, 2048, 5


@dataclass(frozen=True, slots=True, eq=False)
class Replicates:
    """Estimates of replicated studies.

    Attributes
    ----------
    budgets
        Numbers of draws; a study's draws at one budget begin with those of the budget before.
    estimate
        Shape (trials, budgets, contrasts).
    std_error
        Estimated standard error of each, with n - 1; same shape.
    """

    budgets: tuple[int, ...]
    estimate: np.ndarray
    std_error: np.ndarray


def alias(probability: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The alias table of a distribution: (keep, other), each of its length.

    A cell without probability gets keep = 0, and is nobody's other: it is never drawn.
    """
    k = len(probability)
    scaled = np.asarray(probability, np.float64) * (k / np.sum(probability))
    keep, other = np.ones(k), np.arange(k)
    mass = scaled.tolist()
    small = [i for i in range(k) if mass[i] < 1.0]
    large = [i for i in range(k) if mass[i] >= 1.0]
    while small and large:
        low, high = small.pop(), large[-1]
        keep[low], other[low] = mass[low], high
        mass[high] -= 1.0 - mass[low]
        if mass[high] < 1.0:
            small.append(large.pop())
    # Left over by rounding: those that have mass stand for themselves.
    best = int(np.argmax(scaled))
    for i in small:
        if scaled[i] == 0.0:
            keep[i], other[i] = 0.0, best
    return keep, other


@partial(jax.jit, static_argnames=("budgets", "trials"))
def _sums(key, keep, other, table, *, budgets, trials):
    """Sums of the rows of `table` over the draws up to each budget; (trials, budgets, columns)."""
    k, n = len(keep), budgets[-1]
    stage = jnp.asarray(np.searchsorted(budgets, np.arange(n), side="right") * k)

    def study(trial):
        place = jax.random.uniform(jax.random.fold_in(key, trial), (n,), jnp.float64) * k
        column = jnp.minimum(place.astype(jnp.int32), k - 1)
        cell = jnp.where(place - column < keep[column], column, other[column])
        counts = jnp.bincount(stage + cell, length=len(budgets) * k).reshape(len(budgets), k)
        return jnp.cumsum(counts @ table, 0)

    return jax.lax.map(study, jnp.arange(trials), batch_size=BATCH)


@in_float64
def replicate(
    key: jax.Array,
    q: np.ndarray,
    contrast_values: np.ndarray,
    utility: np.ndarray,
    *,
    budgets: Sequence[int],
    trials: int,
) -> Replicates:
    """Replicate studies of one design.

    Parameters
    ----------
    key
        Typed key.
    q
        Probability of each cell; shape (cells,).
    contrast_values
        a; shape (cells, contrasts).
    utility
        u; shape (cells,).
    budgets
        Ascending numbers of draws.
    trials
        Number of studies.
    """
    useful = np.flatnonzero((utility != 0) & (q > 0) & (contrast_values != 0).any(1))
    # The last row represents all cells that add nothing. Rows, columns and studies are filled up,
    # so that designs and questions share a compilation.
    length = max(LEAST_ROWS, 1 << len(useful).bit_length())
    m = contrast_values.shape[1]
    mass, z = np.zeros(length), np.zeros((length, max(m, LEAST_COLUMNS)))
    mass[: len(useful)] = q[useful]
    mass[-1] = max(q.sum() - q[useful].sum(), 0.0)
    z[: len(useful), :m] = contrast_values[useful] * (utility[useful] / q[useful])[:, None]
    arrays = map(jax.device_put, (*alias(mass), np.hstack([z, z**2])))
    whole = -(-trials // BATCH) * BATCH
    found = np.asarray(_sums(key, *arrays, budgets=tuple(budgets), trials=whole))[:trials]
    n = np.asarray(budgets, np.float64)[:, None]
    estimate, square = np.split(found / n, 2, axis=2)
    spread = np.maximum(square - estimate**2, 0.0) / np.maximum(n - 1.0, 1.0)
    return Replicates(tuple(budgets), estimate[..., :m], np.sqrt(spread)[..., :m])
