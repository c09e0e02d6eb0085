r"""Expected moments of the terms under the design, summed over the pool.

Of every cell a_c and E_c are known, whatever is drawn. With y_c = sqrt(1 - E_c) |a_c| / E_c (no
root for draws with replacement) and p_c what the ranks say of the chance of relevance,

    f_k = sum_c E_c p_c y_c^k                                                               (1)

f_2 is the variance to expect, f_4 / f_2 the square of the residual that the next relevant draw is
likely to have, and f_3 by sign says on which side of the estimate such draws fall.
`evenhand.intervals.moments` puts them beside what was drawn.

Of a pool that stays in an engine (`evenhand.engines`) only some cells are at hand. Some of them
then stand for the others in the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.devices import adds_in_order
from evenhand.estimands.blocks import Blocks
from evenhand.estimands.contrasts import along, contrasts
from evenhand.estimands.matrices import DiagonalAndRow, Form, parts, tables
from evenhand.estimands.targets import Target
from evenhand.float64 import in_float64
from evenhand.sampling.samplers import SAMPLERS

__all__ = ["Events", "events", "pool_moments"]

#: Contrasts at a time: memory stays flat with thousands of pairs of systems.
_ROWS = 512
#: A sum below this share of those that it was taken from is added up again by itself.
_DIGITS = 1e-7


class Events(NamedTuple):
    """Sums over the pool: f_2 and f_4 of equation (1), f_3 by sign, the range of sum_c a_c r_c.

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
def _as_tables(blocks: Blocks, *cells: jax.Array, matrix: jax.Array) -> jax.Array:
    """Sums over some blocks for `Events`, of contrasts of any kind: shape (6, contrasts)."""

    def block(weights, mass, reach, free):
        a = contrasts(weights, matrix)
        powers = _powers(a, (reach * jnp.sqrt(free))[:, None])
        return jnp.stack([*(mass @ x for x in powers[:4]), *(x.sum(0) for x in powers[4:])])

    return blocks.map(block, *cells).sum(0)


@jax.jit
def _by_entry(blocks: Blocks, *cells: jax.Array, form: DiagonalAndRow) -> jax.Array:
    """The same by system, and last for one that returns nothing: shape (6, systems + 1).

    What a system does not return is summed as all cells less those that it does.
    """

    def block(entries, mass, reach, free):
        at, scale = entries.of_cells, reach * jnp.sqrt(free)
        a, rest = along(entries, form)
        weights = [at(mass)] * 4 + [jnp.ones(len(a))] * 2
        own, nothing = _powers(a, at(scale)), jnp.zeros(6)
        if form.row is not None:
            # Powers of what is looked up are cheaper than powers looked up.
            own = [x - y for x, y in zip(own, _powers(at(rest), at(scale)), strict=True)]
            powers = _powers(rest, scale)
            nothing = jnp.stack([*(mass @ x for x in powers[:4]), *(x.sum() for x in powers[4:])])
        sums = [entries.by_system(w * x) for w, x in zip(weights, own, strict=True)]
        return jnp.concatenate([jnp.stack(sums) + nothing[:, None], nothing[:, None]], 1)

    return blocks.map_entries(block, *cells).sum(0)


def _powers(a: jax.Array, scale: jax.Array) -> list[jax.Array]:
    """What is summed for `Events`; the first four stand beside the mass of a cell."""
    y = a * scale
    size = jnp.abs(y)
    return [y**2, y * y**2, size**3, y**4, jnp.minimum(a, 0.0), jnp.maximum(a, 0.0)]


def _over_pool(
    target: Target, by_cell: Sequence[np.ndarray], works: Sequence[Callable[..., jax.Array]]
) -> list[np.ndarray]:
    """What each of some works gives of blocks and numbers by cell, summed over the pool."""

    def begin(first: int, last: int) -> list[jax.Array]:
        blocks = target.blocks(first, last)
        padding = (0, blocks.size * len(blocks.place) - (last - first))
        cells = [jax.device_put(np.pad(x[first:last], padding)) for x in by_cell]
        return [work(blocks, *cells) for work in works]

    found: list[Any] = [0.0] * len(works)
    for _, _, sums in target.ahead(begin):
        found = [x + np.asarray(more) for x, more in zip(found, sums, strict=True)]
    return found


@in_float64
def events(
    target: Target,
    matrix: np.ndarray,
    likely: np.ndarray,
    expected: np.ndarray,
    reach: np.ndarray,
    sampler: str,
    blocks: Sequence[tuple[int, Form]] = (),
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
        See `evenhand.intervals.moments.RoundTerms`.
    sampler
        Its name.
    blocks
        Number of rows and form of each block of the matrix, where any has a form.
    """
    free = np.asarray(SAMPLERS[sampler].free(expected))
    by_cell = (expected * likely, reach, free)
    found = np.zeros((6, len(matrix)))
    every = np.arange(len(matrix))
    formed = blocks and adds_in_order()
    groups = parts(blocks, most=_ROWS) if formed else tables(every, most=_ROWS)
    while groups:
        works = [
            partial(_as_tables, matrix=jax.device_put(matrix[rows]))
            if form is None
            else partial(_by_entry, form=form)
            for rows, form in groups
        ]
        lost = []
        for (rows, form), sums in zip(groups, _over_pool(target, by_cell, works), strict=True):
            if form is not None:
                sums, nothing = sums[:, form.place], sums[:, -1:]
                lost.append(rows[_cancelled(sums, nothing)])
            found[:, rows] = sums
        groups = tables(np.concatenate([every[:0], *lost]), most=_ROWS)
    # Differences that are nothing but rounding are nothing.
    for one, other in ((4, 5), (5, 4)):
        found[one] = np.where(np.abs(found[one]) <= 1e-12 * np.abs(found[other]), 0.0, found[one])
    return Events(*found)


def _cancelled(sums: np.ndarray, nothing: np.ndarray) -> np.ndarray:
    """Systems that keep so little of the sums over all cells that the digits are lost."""
    sizes = [np.stack([x[0], x[2], x[3], x[5] - x[4]]) for x in (sums, nothing)]
    return np.any(sizes[0] < _DIGITS * sizes[1], axis=0)


def pool_moments(
    found: Events, rho: np.ndarray | float, top: float | None, *, negative: bool = False
) -> tuple[np.ndarray, ...]:
    """`TermMoments.event`, ``side``, ``floor`` and ``ceiling``.

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
