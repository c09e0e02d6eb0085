r"""What could have been drawn: sums over the whole pool of the terms that draws would have.

Of every cell a_c and E_c are known, whatever is drawn. With y_c = sqrt(1 - E_c) |a_c| / E_c (no
root for draws with replacement) and p_c what the ranks say of the chance of relevance,

    f_k = sum_c E_c p_c y_c^k                                                               (1)

f_2 is the variance to expect, f_4 / f_2 the square of the residual that the next relevant draw is
likely to have, and f_3 by sign says on which side of the estimate such draws fall.
`evenhand.evidence` puts them beside what was drawn.

Of a pool that stays in an engine (`evenhand.scale`) only some cells are at hand. Some of them then
stand for the others in the sums.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.blocks import Blocks
from evenhand.norms import contrasts
from evenhand.precision import in_float64
from evenhand.sampling import SAMPLERS
from evenhand.targets import Target

__all__ = ["Events", "events", "pool_moments"]

_ROWS = 512  # contrasts at a time: memory stays flat with thousands of pairs of systems


class Events(NamedTuple):
    """Sums over the pool: f_2 and f_4 of equation (2), f_3 by sign, the range of sum_c a_c r_c.

    `below` and `above` are the sums of a where it is negative and positive: with utilities in
    [0, top] a contrast lies in [top below, top above].
    """

    second: np.ndarray
    signed: np.ndarray
    third: np.ndarray
    fourth: np.ndarray
    below: np.ndarray
    above: np.ndarray


@jax.jit
def _sums(
    blocks: Blocks, matrix: jax.Array, mass: jax.Array, reach: jax.Array, free: jax.Array
) -> jax.Array:
    """Sums over the pool for `Events`: shape (6, contrasts)."""

    def block(weights, mass, reach, free):
        a = contrasts(weights, matrix)
        y = a * (reach * jnp.sqrt(free))[:, None]
        size = jnp.abs(y)
        parts = (y**2, y * y**2, size**3, y**4)
        sums = [mass @ part for part in parts]
        return jnp.stack([*sums, jnp.minimum(a, 0.0).sum(0), jnp.maximum(a, 0.0).sum(0)])

    return blocks.map(block, mass, reach, free).sum(0)


@in_float64
def events(
    target: Target,
    matrix: np.ndarray,
    likely: np.ndarray,
    expected: np.ndarray,
    reach: np.ndarray,
    sampler: str,
) -> Events:
    """Sums over the pool for some contrasts under one round.

    Parameters
    ----------
    target
        The systems' weights.
    matrix
        C, shape (contrasts, systems).
    likely
        p_c, in any unit; shape (cells,).
    expected
        E_c of the round, shape (cells,).
    reach
        See `Drawn`.
    sampler
        Its name.
    """
    free = np.asarray(SAMPLERS[sampler].free(jnp.asarray(expected)))
    found, running = np.zeros((6, len(matrix))), []
    for first, last in target.pieces():
        blocks = target.blocks(first, last)
        padding = (0, blocks.size * len(blocks.place) - (last - first))
        by_cell = [
            jnp.asarray(np.pad(x[first:last], padding)) for x in (expected * likely, reach, free)
        ]
        # One stretch is summed while the next is cut into blocks, and no more are in memory.
        before, running = (
            running,
            [
                _sums(blocks, jnp.asarray(rows), *by_cell)
                for rows in np.array_split(matrix, -(-len(matrix) // _ROWS))
            ],
        )
        if before:
            found += np.concatenate(before, axis=1)
    if running:
        found += np.concatenate(running, axis=1)
    # Differences that are nothing but rounding are nothing.
    for one, other in ((4, 5), (5, 4)):
        found[one] = np.where(np.abs(found[one]) <= 1e-12 * np.abs(found[other]), 0.0, found[one])
    return Events(*found)


def pool_moments(
    found: Events, rho: np.ndarray | float, top: float | None, *, negative: bool = False
) -> tuple[np.ndarray, ...]:
    """`Moments.event`, ``side``, ``floor`` and ``ceiling``.

    Parameters
    ----------
    found
        Sums over the pool.
    rho
        Size of a relevant judgment, a number or one a study, shape (studies, 1).
    top
        The largest utility, if the measure says.
    negative
        Whether utilities below 0 were judged: then nothing is known of the range.
    """
    event = rho**2 * found.fourth / np.where(found.second > 0, found.second, 1.0)
    side = np.abs(found.signed) / np.where(found.third > 0, found.third, 1.0)
    if negative:
        return event, side, np.full_like(side, -np.inf), np.full_like(side, np.inf)
    if top is None:
        floor = np.where(found.below == 0, 0.0, -np.inf)
        return event, side, floor, np.where(found.above == 0, 0.0, np.inf)
    return event, side, top * found.below, top * found.above
