r"""Cells laid out on a line, each as long as it is likely, and draws of n of them.

**Water-filling.** For `distinct`, kappa is such that sum_c min(1, kappa q_c) = n.

**Pivotal sampling in O(n).** Lay the cells on a line, each as long as its E_c, so that the line has
length n. The cell k_i that spans the point i (a_i before it, b_i behind it) may be taken on either
side. For i = 1..n: F_i is drawn from the stretch (i - 1, i - a_i), where a point on the part
b_{i-1} means the cell H_{i-1} that was left over; then k_i is taken with probability a_i / (1
- b_i) and F_i left over as H_i, or F_i is taken and k_i left over. This is the ordered pivotal
method of Deville and Tille (1998) as Chauvet (2012) describes it: n distinct cells, E[N_c] = E_c
exactly, for any order.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from evenhand.float64 import require_float64
from evenhand.sampling.folds import Folds

__all__ = [
    "Borders",
    "between",
    "cumulate",
    "duels",
    "fold_by_fold",
    "independent",
    "pivotal",
    "shuffle",
    "sliced",
    "water_fill",
]


def cumulate(mass: jax.typing.ArrayLike) -> jax.Array:
    """Cumulative shares of `mass`, ending at exactly 1; a cell without mass adds exactly nothing.

    A parallel sum need not grow monotonically in its last digits; this one does, so that a search
    for u in [0, 1) with ``side="right"`` can meet neither a cell without mass nor the end.
    """
    mass = require_float64(mass, "the mass to draw from")
    total = jnp.where(mass > 0, jnp.cumsum(mass), 0.0)
    total = jax.lax.cummax(total)
    # XLA may multiply by the reciprocal instead, which need not give 1 at the end.
    return jnp.where(total < total[-1], total / total[-1], 1.0)


def _line(expected: jax.Array, n: int) -> jax.Array:
    """Where each cell ends on a line of length n; at whole numbers where it does but for rounding.

    Without that a certain cell might seem to span two points, and be taken twice.
    """
    end = cumulate(expected) * n
    whole = jnp.round(end)
    return jnp.where(jnp.abs(end - whole) < n * 2.0**-45, whole, end)


def independent(
    key: jax.Array, expected: jax.Array, n: int, sizes: jax.Array | None = None
) -> jax.Array:
    """Draw n cells with replacement, c with probability E_c / n: int, shape (n,).

    Parameters
    ----------
    key
        Typed key.
    expected
        Sums to n; shape (cells,).
    n
        Number of draws.
    sizes
        Draws of each fold, where cells are laid out fold by fold; shape (folds,).
    """
    u = jax.random.uniform(key, (n,), jnp.float64)
    stop = jnp.asarray([n]) if sizes is None else jnp.cumsum(sizes)
    fold = jnp.searchsorted(stop, jnp.arange(n), side="right")
    last = stop[fold].astype(u.dtype)
    first = jnp.where(fold > 0, stop[fold - 1], 0)
    place = jnp.minimum(first + u * (last - first), jnp.nextafter(last, 0.0))
    return jnp.searchsorted(_line(expected, n), place, side="right")


def sliced(key: jax.Array, expected: jax.Array, n: int) -> jax.Array:
    """One draw from each of n equal slices of the mass, in the order given: int, shape (n,)."""
    point = jnp.arange(1.0, n + 1.0)
    u = jax.random.uniform(key, (n,), jnp.float64)
    place = jnp.minimum(point - 1.0 + u, jnp.nextafter(point, 0.0))
    return jnp.searchsorted(_line(expected, n), place, side="right")


def pivotal(key: jax.Array, expected: jax.Array, n: int) -> jax.Array:
    """Draw n distinct cells, c with probability E_c <= 1, sum E = n, in the order given."""
    u, v = jax.random.uniform(key, (2, n), jnp.float64)
    end = _line(expected, n)
    border = jnp.searchsorted(end, jnp.arange(1.0, n + 1.0), side="left")
    spans = Borders(jnp.where(border > 0, end[border - 1], 0.0), end[border])
    place, old = between(u, spans)
    return duels(v, spans, old, border, jnp.searchsorted(end, place, side="right"))


class Borders(NamedTuple):
    """Where the cell begins and ends that spans each point 1..n of the line; shapes (n,)."""

    begin: jax.Array
    end: jax.Array


def between(u: jax.Array, borders: Borders) -> tuple[jax.Array, jax.Array]:
    """The place on the line of each F_i, and whether it means the cell left over before it.

    Parameters
    ----------
    u
        Uniform, shape (n,).
    borders
        The cells at the whole numbers.

    Returns
    -------
    place, old
        Shapes (n,); where `old` holds, the place means nothing.
    """
    point = jnp.arange(1.0, len(u) + 1.0)
    before = point - borders.begin
    # The stretch between two border cells, by its ends on the line: differences of these would
    # round, and a border cell be met again.
    start = jnp.concatenate([jnp.zeros(1), borders.end[:-1]])
    stop = borders.begin
    place = point - 1.0 + u * (1.0 - before)
    old = (place < start) | (start >= stop)
    return jnp.clip(place, start, jnp.nextafter(stop, 0.0)), old


def duels(
    v: jax.Array, borders: Borders, old: jax.Array, border: jax.Array, inside: jax.Array
) -> jax.Array:
    """Who is taken at each point: the cell that spans it, or F_i; the other is left over.

    Parameters
    ----------
    v
        Uniform, shape (n,).
    borders, old
        As of `between`.
    border, inside
        Number of the cell at each point, and of the one at each place; int, shape (n,).

    Returns
    -------
    jax.Array
        Number of each cell drawn; shape (n,).
    """
    point = jnp.arange(1.0, len(v) + 1.0)
    before, behind = point - borders.begin, borders.end - point
    take_border = v < before / (1.0 - behind)

    def duel(left_over: jax.Array, stratum: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        old, inside, border, take_border = stratum
        rival = jnp.where(old, left_over, inside)
        return jnp.where(take_border, rival, border), jnp.where(take_border, border, rival)

    strata = (old, inside, border, take_border)
    return jax.lax.scan(duel, jnp.zeros((), inside.dtype), strata)[1]


def water_fill(q: jax.typing.ArrayLike, n: int | jax.Array) -> jax.Array:
    """min(1, kappa q) with kappa such that the sum is n; at least n cells must have q > 0.

    Parameters
    ----------
    q
        Shape (cells,).
    n
        The sum wanted.
    """
    q = require_float64(q, "a proposal")

    def scaled(full: jax.Array) -> jax.Array:
        rest = jnp.where(full, 0.0, q).sum()
        kappa = (n - full.sum()) / jnp.where(rest > 0, rest, 1.0)
        return jnp.where(full, 1.0, kappa * q)

    def spill(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        full = state[0] | (scaled(state[0]) >= 1.0)
        return full, (full != state[0]).any()

    full, _ = jax.lax.while_loop(
        lambda s: s[1], spill, (jnp.zeros(q.shape, bool), jnp.asarray(True))
    )
    filled = scaled(full)
    # What is certain but for rounding is certain: a census has no sampling error.
    return jnp.where(filled > 1.0 - 1e-12, 1.0, filled)


def shuffle(key: jax.Array, n: int) -> jax.Array:
    """A pseudo-random order of 0..m-1, m the power of two from n on: uint32, shape (m,).

    A Feistel network whose round keys come from `key`: no sort, which on 10^7 cells would take most
    of a draw. Positions from n on are padding; give them no mass.
    """
    bits = max(1, (n - 1).bit_length())
    widths = (bits // 2, bits - bits // 2)
    x = jnp.arange(1 << bits, dtype=jnp.uint32)
    left, right = x >> widths[1], x & ((1 << widths[1]) - 1)
    for round_key in jax.random.bits(key, (8,), jnp.uint32):
        hashed = (right + round_key) * jnp.uint32(0x9E3779B1)
        hashed = (hashed ^ (hashed >> 15)) * jnp.uint32(0x85EBCA77)
        hashed = (hashed ^ (hashed >> 13)) * jnp.uint32(0xC2B2AE3D)
        left, right = right, left ^ ((hashed ^ (hashed >> 16)) & ((1 << widths[0]) - 1))
        widths = widths[::-1]
    return (left << widths[1]) | right


def fold_by_fold(chance: jax.Array, folds: Folds) -> jax.Array:
    """The same order, but fold by fold; padding last."""
    n_folds = len(folds.sizes)
    belongs = folds.of.at[chance].get(mode="fill", fill_value=n_folds)

    def count(number: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        place, before = state
        inside = belongs == number
        count = jnp.cumsum(inside.astype(jnp.int32))
        return jnp.where(inside, before + count - 1, place), before + count[-1]

    # Counting, since sorting takes longer than drawing.
    start = jnp.zeros(chance.shape, jnp.int32), jnp.zeros((), jnp.int32)
    place, _ = jax.lax.fori_loop(0, n_folds + 1, count, start)
    return jnp.zeros_like(chance).at[place].set(chance, unique_indices=True)
