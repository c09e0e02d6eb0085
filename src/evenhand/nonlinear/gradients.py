r"""Measures that are no sums, near the utilities at hand: value, slope, and what that leaves out.

Ratios and swapped pairs (`evenhand.measures`) are no weighted sums of utilities, but smooth
functions of which levels g_1 < g_2 < ... of utility each document reaches. For system j on query x,
with R_l(r) = 1 where the document at rank r of j's list reaches the l-th level, u_r = sum_l (g_l -
g_{l-1}) R_l(r) its utility, and N_l the number of documents of the query, anyone's, that reach it,

    V_jx = F(R, N),          V_j = (1 / |X|) sum_x V_jx                                      (1)

=======  ==============================================================  ======================
measure  sum of the list                                                 divided by
=======  ==============================================================  ======================
nDCG@k   sum over ranks r <= k of u_r / log2(1 + r)                      the ideal (2)
AP@k     sum over r <= k of u_r (1 + sum over s < r of u_s) / r          N
R@k      sum over r <= k of u_r                                          N
Rprec    sum over r of u_r min(1, max(0, N - r + 1))                     N
Swaps    sum over l, s < r of (R_l(r) - R_l+1(r)) (1 - R_l(s))           n (n - 1) / 2
wSwaps   the same, each term divided by r s                              n (n - 1) / 2
=======  ==============================================================  ======================

    ideal = sum_l (g_l - g_{l-1}) W(N_l),    W(m) = sum over r <= min(m, k) of 1 / log2(1 + r)   (2)

with n the documents of the list within the cutoff, and W carried on smoothly between whole numbers.
N without a level is that of the only one, times its utility: below 1 where assessors disagree about
all that is relevant.
Near estimates R^ the measure is linear,

    V_j ~ V_j(R^) + sum_cl w_jcl (R_cl - R^_cl),      w_jcl = dV_j / dR_cl                    (3)

so that its *gradient* are weights, and designs, variances and intervals are those of a linear
measure with the `Target` of these weights. Each list has gradients of its own, so that one backward
pass gives those of all systems. N counts for every cell of the query, so that w_jc differs from 0
also where j does not return c: finding that a document is relevant takes from everybody's share.

Where utilities are binary, (3) holds with one weight for each cell whatever it turns out to be.
With several levels a judgment r adds the sum over g_l <= r of dV/dR_l + dV/dN_l, which is no
multiple of r; such weights are of what was judged, and the utility beside them is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.errors import EvenhandError
from evenhand.estimands.pools import Pool
from evenhand.float64 import in_float64
from evenhand.measures.base import Linear
from evenhand.measures.ratios import AP, R, Rprec, nDCG
from evenhand.measures.swaps import Swaps, wSwaps

__all__ = [
    "FlatLists",
    "Gradient",
    "Levels",
    "Smooth",
    "by_list",
    "checked",
    "gradient",
    "ideal",
    "layout",
    "turned",
]

Smooth = nDCG | AP | R | Rprec | Swaps | wSwaps


class Levels(NamedTuple):
    """The utilities that there are, and of each cell an estimate of which it reaches.

    Attributes
    ----------
    gain
        g_1 < g_2 < ..., all above 0; shape (levels,).
    reached
        Of each cell whether its utility is at least g_l, or an estimate of it; shape (cells,
        levels).
    least
        What N_l of each query is at least, since so many were seen: shape (queries, levels).
    own, beside
        What is added in the eyes of each system alone (`evenhand.nonlinear.completions`): to the
        levels of each entry of the pool, shape (entries, levels), and to the N_l of each list, by
        system and query, shape (lists, levels).
    """

    gain: np.ndarray
    reached: np.ndarray
    least: np.ndarray | None = None
    own: np.ndarray | None = None
    beside: np.ndarray | None = None

    @property
    def step(self) -> np.ndarray:
        """g_l - g_{l-1}."""
        return np.diff(self.gain, prepend=0.0)

    @property
    def utility(self) -> np.ndarray:
        """By cell; shape (cells,)."""
        return self.reached @ self.step

    def counts(self, pool: Pool) -> np.ndarray:
        """N_l of each query; shape (queries, levels)."""
        found = np.zeros((len(pool.queries), len(self.gain)))
        np.add.at(found, pool.query, self.reached)
        return found if self.least is None else np.maximum(found, self.least)

    def of_entries(self, pool: Pool) -> np.ndarray:
        """Which levels each entry of the pool reaches; shape (entries, levels)."""
        found = self.reached[pool.cell]
        return found if self.own is None else found + self.own

    def of_lists(self, pool: Pool) -> np.ndarray:
        """N_l of each list, by system and query; shape (lists, levels)."""
        found = np.tile(self.counts(pool), (len(pool.systems), 1))
        return found if self.beside is None else found + self.beside


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """A measure of every system near some utilities.

    Attributes
    ----------
    by_query
        V_jx, shape (systems, queries).
    own
        dV_j / dR_l of each entry of the pool, at the cells that a system returns; shape (entries,
        levels).
    count
        dV_j / dN_l; shape (systems, queries, levels).
    """

    pool: Pool
    gain: np.ndarray
    by_query: np.ndarray
    own: np.ndarray
    count: np.ndarray

    @property
    def value(self) -> np.ndarray:
        """V_j, shape (systems,)."""
        return self.by_query.mean(1)

    def weights(self, cells: np.ndarray, utility: np.ndarray) -> np.ndarray:
        """What a judgment of each cell adds, equation (3): shape (cells given, systems).

        Parameters
        ----------
        cells
            Numbers of cells.
        utility
            Of each; shape (cells given,).
        """
        return self.adds(cells, (utility[:, None] >= self.gain).astype(np.float64))

    def adds(self, cells: np.ndarray, reached: np.ndarray) -> np.ndarray:
        """What each cell adds that reaches levels so far: shape (cells given, systems).

        Parameters
        ----------
        cells
            Numbers of cells.
        reached
            Of each and every level; shape (cells given, levels).
        """
        found = np.einsum("cl,jcl->cj", reached, self.count[:, self.pool.query[cells]])
        for level, slope in zip(reached.T, self.own.T, strict=True):
            found += self.pool.dense(slope, cells) * level[:, None]
        return found

    def changes(self, along: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the cells of each query add by themselves, and by being counted in N_l.

        Parameters
        ----------
        along
            How far each cell reaches each level; shape (cells, levels).

        Returns
        -------
        tuple of numpy.ndarray
            Both of shape (queries, systems).
        """
        pool, own = self.pool, (self.own * along[self.pool.cell]).sum(1)
        shape = len(pool.queries), len(pool.systems)
        of_query = np.zeros((shape[0], len(self.gain)))
        np.add.at(of_query, pool.query, along)
        place = pool.query[pool.cell].astype(np.int64) * shape[1] + pool.system
        by_list = np.bincount(place, own, minlength=shape[0] * shape[1]).reshape(shape)
        return by_list, np.einsum("jxl,xl->xj", self.count, of_query)


class FlatLists(NamedTuple):
    """The lists of all systems, an entry each place, by system, query and rank.

    `number` says which list an entry is of, and `first` where that begins; `weight` is what stands
    beside its utility: a discount, or whether it is within the cutoff. The weight of a pair is the
    product of those of both.
    """

    weight: jax.Array
    number: jax.Array
    first: jax.Array
    rank: jax.Array


def ideal(measure: nDCG, gain: tuple[float, ...], counts: jax.Array) -> jax.Array:
    """Equation (2), shape (lists,)."""
    from scipy.interpolate import PchipInterpolator  # here, since it takes a tenth of a second

    last = measure.cutoff or 100_000
    whole = np.concatenate([[0.0], np.cumsum(measure.dcg.weight(np.arange(1, last + 1)))])
    # Beyond rank k nothing is added.
    place = np.arange(len(whole) + 2)
    curve = PchipInterpolator(place, np.append(whole, [whole[-1]] * 2))
    coefficients = jnp.asarray(curve.c)
    inside = jnp.clip(counts, 0.0, len(whole))
    at = jnp.clip(jnp.floor(jax.lax.stop_gradient(inside)), 0, len(whole)).astype(int)
    x, (a, b, c, d) = inside - at, coefficients[:, at]
    return (((a * x + b) * x + c) * x + d) @ jnp.diff(jnp.asarray(gain), prepend=0.0)


def by_list(
    own: jax.Array, counts: jax.Array, lists: FlatLists, measure: Smooth, gain: tuple[float, ...]
) -> jax.Array:
    """F of equation (1), shape (lists,); 0 where nothing of a query is relevant."""
    if isinstance(measure, Swaps | wSwaps):
        return jnp.zeros(len(counts)).at[lists.number].add(_swapped(own, lists))
    steps = jnp.diff(jnp.asarray(gain), prepend=0.0)
    norm = ideal(measure, gain, counts) if isinstance(measure, nDCG) else counts @ steps
    utility = own @ steps
    terms = utility * lists.weight
    if isinstance(measure, AP):
        terms = terms * (1.0 + _earlier(utility, lists))
    elif isinstance(measure, Rprec):
        terms = terms * jnp.clip(norm[lists.number] - lists.rank + 1.0, 0.0, 1.0)
    sums = jnp.zeros(len(counts)).at[lists.number].add(terms)
    some = norm > 1e-9
    return jnp.where(some, sums / jnp.where(some, norm, 1.0), 0.0)


def _earlier(values: jax.Array, lists: FlatLists) -> jax.Array:
    """Sum of the values that stand before each entry in its list."""
    passed = jnp.cumsum(values, 0) - values
    return passed - passed[lists.first]


def _swapped(own: jax.Array, lists: FlatLists) -> jax.Array:
    """What each entry adds by the documents before it that are worse."""
    here = own - jnp.concatenate([own[:, 1:], jnp.zeros((len(own), 1))], axis=1)
    worse = _earlier(lists.weight[:, None] * (1.0 - own), lists)
    return lists.weight * (here * worse).sum(1)


@partial(jax.jit, static_argnames=("measure", "gain"))
def _slopes(own, counts, lists, *, measure, gain):
    """Values and first derivatives; every list has derivatives of its own."""

    def both(own, counts):
        found = by_list(own, counts, lists, measure, gain)
        return found.sum(), found

    (_, value), slope = jax.value_and_grad(both, (0, 1), has_aux=True)(own, counts)
    return value, *slope


@partial(jax.jit, static_argnames=("measure", "gain"))
def _bends(own, counts, along, lists, *, measure, gain):
    """How the first derivatives of each list change along a direction of both."""

    def total(own, counts):
        return by_list(own, counts, lists, measure, gain).sum()

    return jax.jvp(jax.grad(total, (0, 1)), (own, counts), along)[1]


def layout(pool: Pool, measure: Smooth) -> tuple[np.ndarray, FlatLists]:
    """Order of the pool's entries by system, query and rank, and the lists that they make."""
    query = pool.query[pool.cell]
    order = np.lexsort((pool.rank, query, pool.system))
    number = (pool.system.astype(np.int64) * len(pool.queries) + query)[order]
    begins = np.concatenate([[True], number[1:] != number[:-1]])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(number)), 0))
    rank = pool.rank[order].astype(np.float64)
    if isinstance(measure, Swaps | wSwaps):
        weight = measure.share(rank, np.bincount(number)[number])
    else:
        weight = measure.weight(rank)
    return order, FlatLists(*map(jax.device_put, (weight, number, first, rank)))


def checked(measure: Linear, levels: Levels) -> tuple[Smooth, tuple[float, ...]]:
    """The measure and its levels, as what is static of a computation.

    Raises
    ------
    EvenhandError
        If it has no gradient, or knows but relevant and not where there are several levels.
    """
    if not isinstance(measure, Smooth):
        raise EvenhandError(
            f"{measure} has no gradient here", hint="nDCG, AP, R, Rprec, Swaps or wSwaps"
        )
    if len(levels.gain) != 1 and not isinstance(measure, nDCG | Swaps | wSwaps):
        raise EvenhandError(f"{measure} knows relevant and not, got {len(levels.gain)} levels")
    return measure, tuple(map(float, levels.gain))


@in_float64
def gradient(pool: Pool, measure: Linear, levels: Levels) -> Gradient:
    """A measure of every system near some utilities, equations (1) to (3).

    Parameters
    ----------
    pool
        The cells; what is not in it does not count for N either.
    measure
        nDCG, AP, R, Rprec, Swaps or wSwaps.
    levels
        The utilities; they may be estimates, and then be negative or above their range.

    Raises
    ------
    EvenhandError
        If it is another measure, or knows but relevant and not where there are several levels.
    """
    known, gain = checked(measure, levels)
    k, n_queries = len(pool.systems), len(pool.queries)
    order, lists = layout(pool, known)
    counts = jax.device_put(levels.of_lists(pool))
    own = jax.device_put(levels.of_entries(pool)[order])
    value, by_entry, by_count = map(
        np.asarray, _slopes(own, counts, lists, measure=known, gain=gain)
    )
    slope = np.empty_like(by_entry)
    slope[order] = by_entry / n_queries
    return Gradient(
        pool,
        gain=levels.gain,
        by_query=value.reshape(k, n_queries),
        own=slope,
        count=by_count.reshape(k, n_queries, -1) / n_queries,
    )


@in_float64
def turned(
    pool: Pool,
    measure: Linear,
    levels: Levels,
    near: Gradient,
    along: np.ndarray,
    share: np.ndarray,
) -> Gradient:
    """The gradient with a share of what it changes along a direction: w + share w' (along).

    Parameters
    ----------
    pool, measure, levels
        As of `gradient`.
    near
        Their gradient.
    along
        The direction, shape (cells, levels).
    share
        Of each query and level; shape (queries, levels).
    """
    known, gain = checked(measure, levels)
    k, n_queries = len(pool.systems), len(pool.queries)
    order, lists = layout(pool, known)
    place = (levels.of_entries(pool)[order], levels.of_lists(pool))
    counted = Levels(levels.gain, along).counts(pool)
    held = 0.0 if levels.least is None else levels.least
    counted = np.where(levels._replace(least=None).counts(pool) > held, counted, 0.0)
    moves = (along[pool.cell][order], np.tile(counted, (k, 1)))
    own, count = _bends(
        *map(jax.device_put, place),
        tuple(map(jax.device_put, moves)),
        lists,
        measure=known,
        gain=gain,
    )
    by_entry = np.empty_like(near.own)
    by_entry[order] = np.asarray(own) / n_queries
    by_entry *= share[pool.query[pool.cell]]
    by_count = np.asarray(count).reshape(k, n_queries, -1) / n_queries * share
    return replace(near, own=near.own + by_entry, count=near.count + by_count)
