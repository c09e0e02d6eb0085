r"""How pairs that could not be drawn may turn out: at worst and at best for each list of a ratio.

A ratio V (`evenhand.nonlinear.gradients`, equation 1) divides by what the whole query holds, so a
pair that could not be drawn, an *open* one, counts for every system. Open utilities may be anything
from 0 to top, and the value lies between

    min over completions z of V_jx(u, z)   and   max over completions z of V_jx(u, z)        (1)

where z says which levels the open pairs of the query reach. Lists differ in their worst and best
completions; queries have no open pair in common, so the extremes of a system are the means of those
of its lists. With u known both are **attained**, by these completions: of the M open pairs of a
query let n be relevant, at the top level.

- *Which n.* With n given, so is what is divided by. The sum of the list grows with each of its own
  documents that is relevant, the more the higher its rank (two documents exchanged: each term of
  nDCG, R and Rprec has the weight of its rank, each pair of AP's sum that of its lower one). The
  best are the n open documents that stand first in the list; the worst are those that the list does
  not return, then those that stand last in it.
- *How many.* All n from 0 to M are tried. More is not always better: a relevant document found far
  down takes more from AP or nDCG than it adds.
- *In between.* AP is a quotient of functions that are linear in each single utility, and so
  monotone in it: its extremes lie where all are 0 or top; those of R likewise. nDCG's sum is linear
  in the utilities and its ideal convex, so that V >= v, that is sum - v ideal >= 0, asks a concave
  function, whose least value lies where all are 0 or top: (1) on the left. On the right let n_l be
  relevant at least to level l. With D(n) the discounts of the n open documents that stand first,

      sum - v ideal = const + sum over l of (g_l - g_{l-1}) (D(n_l) - v W(N_l + n_l))        (2)

  is at its largest for each l alone, and for these n_l no higher level has more than a lower one,
  since W is concave and N_l falls with l. Setting v to the value there, and again until it stays,
  ends at the largest (Dinkelbach 1967, *On nonlinear fractional programming*).

R-precision is of documents that are relevant or not: for means of assessors, between 0 and 1, its
lower end may be too high.

Where u is estimated, the completions are those of the estimates. The least over completions of an
estimate is on average no larger than the least of what it estimates, and the largest no smaller, so
that the ends err outwards; by how much is second order in the errors, and the slope of (1) is that
of V at its completion.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.estimands.pools import Pool
from evenhand.float64 import in_float64
from evenhand.measures.base import Linear
from evenhand.measures.ratios import nDCG
from evenhand.nonlinear.gradients import Levels, by_list, checked, gradient, ideal, layout

__all__ = ["best", "worst"]


class _Open(NamedTuple):
    """The open pairs of each list.

    Attributes
    ----------
    number
        The list of each entry, system times queries plus query; shape (entries,).
    first, last
        Place of each entry among the open ones of its list, from the front and from the end,
        counted from 1; above every n elsewhere. Shape (entries,).
    beside
        How many open pairs of its query each list does not count; shape (lists,).
    total
        How many open pairs there are; shape (lists,).
    """

    number: np.ndarray
    first: np.ndarray
    last: np.ndarray
    beside: np.ndarray
    total: np.ndarray

    @classmethod
    def of(cls, pool: Pool, measure: Linear, left: np.ndarray) -> _Open:
        """From which cells are open; shape (cells,)."""
        k, n_queries = len(pool.systems), len(pool.queries)
        query = pool.query[pool.cell]
        number = pool.system.astype(np.int64) * n_queries + query
        # A document beyond the cutoff counts as one that is not returned.
        counts = measure.cutoff is None or pool.rank <= measure.cutoff
        here = np.flatnonzero(left[pool.cell] & counts)
        here = here[np.lexsort((pool.rank[here], number[here]))]
        lists = number[here]
        own = np.bincount(lists, minlength=k * n_queries)
        begins = np.searchsorted(lists, lists)
        first = np.full(len(number), np.iinfo(np.int64).max)
        last = first.copy()
        first[here] = np.arange(len(here)) - begins + 1
        last[here] = own[lists] - first[here] + 1
        total = np.tile(np.bincount(pool.query[left], minlength=n_queries), k)
        return cls(number, first, last, total - own, total)

    @property
    def most(self) -> int:
        """Open pairs of the query that has most."""
        return int(self.total.max(initial=0))

    def completed(self, levels: Levels, n: np.ndarray, *, highest: bool) -> Levels:
        """With n open pairs of each list relevant, those that stand first, or do least for it.

        Parameters
        ----------
        levels
            Of all other pairs.
        n
            Shape (lists, levels).
        highest
            Those that stand first.
        """
        own = n if highest else n - self.beside[:, None]
        place = self.first if highest else self.last
        added = (place[:, None] <= own[self.number]).astype(np.float64)
        return levels._replace(own=added, beside=n.astype(np.float64))


@partial(jax.jit, static_argnames=("measure", "gain", "highest"))
def _search(own, counts, place, beside, total, most, lists, *, measure, gain, highest):
    """The best or worst of 0, 1, ... relevant open pairs of each list, and what V is there."""
    sign = 1.0 if highest else -1.0

    def step(n, found):
        value, chosen = found
        n = jnp.minimum(n, total)
        last = n if highest else n - beside
        added = (place <= last[lists.number]).astype(own.dtype)
        here = by_list(own + added[:, None], counts + n[:, None], lists, measure, gain)
        better = sign * here > value
        return jnp.where(better, sign * here, value), jnp.where(better, n, chosen)

    nothing = jnp.full(len(counts), -jnp.inf), jnp.zeros_like(total)
    value, chosen = jax.lax.fori_loop(0, most + 1, step, nothing)
    return chosen, sign * value


@partial(jax.jit, static_argnames=("measure",))
def _traded(counts, value, first, total, most, lists, *, measure):
    """How many of each level are most worth what they cost, at a value; shape (lists, levels)."""

    def step(n, found):
        gained, chosen = found
        n = jnp.minimum(n, total)
        within = lists.weight * (first <= n[lists.number])
        sums = jnp.zeros(len(counts)).at[lists.number].add(within)
        whole = [ideal(measure, (1.0,), (count + n)[:, None]) for count in counts.T]
        here = sums[:, None] - value[:, None] * jnp.stack(whole, axis=1)
        better = here > gained + 1e-12
        return jnp.maximum(here, gained), jnp.where(better, n[:, None], chosen)

    nothing = jnp.full(counts.shape, -jnp.inf), jnp.zeros(counts.shape, total.dtype)
    return jax.lax.fori_loop(0, most + 1, step, nothing)[1]


def _ends(
    pool: Pool, measure: Linear, levels: Levels, of: _Open, *, highest: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The number of relevant open pairs, all at the top, that is best or worst, and the value."""
    known, gain = checked(measure, levels)
    order, lists = layout(pool, known)
    own, counts = levels.of_entries(pool)[order], levels.of_lists(pool)
    place = (of.first if highest else of.last)[order]
    found = _search(
        *map(jax.device_put, (own, counts, place, of.beside, of.total, of.most)),
        lists,
        measure=known,
        gain=gain,
        highest=highest,
    )
    return np.asarray(found[0]), np.asarray(found[1])


@in_float64
def worst(pool: Pool, measure: Linear, levels: Levels, left: np.ndarray) -> Levels:
    """Levels completed to what is least for each list, equation (1) on the left.

    Parameters
    ----------
    pool, measure
        As of `evenhand.nonlinear.gradients.gradient`; nDCG, AP, R or Rprec.
    levels
        Which level each cell reaches, 0 at the open ones; the last level is the largest utility.
    left
        Which cells are open; shape (cells,).
    """
    of = _Open.of(pool, measure, left)
    n, _ = _ends(pool, measure, levels, of, highest=False)
    return of.completed(levels, np.tile(n[:, None], len(levels.gain)), highest=False)


@in_float64
def best(pool: Pool, measure: Linear, levels: Levels, left: np.ndarray) -> Levels:
    """Levels completed to what is most for each list, equation (1) on the right.

    Parameters
    ----------
    pool, measure, levels, left
        As of `worst`.
    """
    of = _Open.of(pool, measure, left)
    n, value = _ends(pool, measure, levels, of, highest=True)
    n = np.tile(n[:, None], len(levels.gain))
    if not isinstance(measure, nDCG) or len(levels.gain) == 1:
        return of.completed(levels, n, highest=True)
    order, lists = layout(pool, measure)
    counts, first = levels.of_lists(pool), of.first[order]
    while True:
        known = map(jax.device_put, (counts, value, first, of.total, of.most))
        better = np.asarray(_traded(*known, lists, measure=measure))
        better = np.minimum.accumulate(better, axis=1)
        completed = of.completed(levels, better, highest=True)
        now = gradient(pool, measure, completed).by_query.reshape(-1)
        ahead = now > value + 1e-12
        if not ahead.any():
            return of.completed(levels, n, highest=True)
        n, value = np.where(ahead[:, None], better, n), np.where(ahead, now, value)
