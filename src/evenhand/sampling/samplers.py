r"""Draw pairs from a proposal: counts N_c with known expectations E_c.

Every sampler answers with the cell of each of n draws, and knows the expected count E_c = E[N_c] of
every cell. That is all an estimator needs: for any contrast a and utility u,

    E[ sum over draws of a_c u_c / E_c ] = sum_c a_c u_c       wherever E_c > 0.             (1)

==========  ===============  ==============================================================
sampler     E_c              how
==========  ===============  ==============================================================
`distinct`  min(1, kappa q)  fixed size, no cell twice: the pivotal method in random order.
                             The default: nothing is paid for twice, large pairs are certain.
`slices`    n q              the cumulated mass of q in a telling order is cut into n equal
                             slices, one draw from each: never a larger variance than `iid`.
`iid`       n q              n independent draws; the source paper's sampler.
==========  ===============  ==============================================================

Systematic sampling is not offered: its variance can be several times that of `iid` and cannot be
estimated without bias.

**By fold.** An estimate may lean on a model that was fitted to the judgments of *other* cells, if
these say nothing of which cells of its own were drawn. So cells are hashed into folds before any
judgment (`evenhand.sampling.folds`), each has a number of draws of its own, fixed in advance, and
is drawn independently. Laid out fold by fold the line of `evenhand.sampling.algorithms` ends each
fold at a whole number, where no cell spans a point, so that the same pass serves.

**Covariance** of the sum of z_i = a r / E over the draws: for `iid` n/(n - 1) sum (z - mean)(z -
mean)'; for `distinct` Hajek's n'/(n' - 1) sum (1 - E)(z - B)(z - B)', B the mean weighted by 1 - E,
over the n' draws with E < 1 (Hajek 1964; Deville and Tille 2005, *Variance approximation under
balanced sampling*); for `slices` that of collapsed strata (`evenhand.sampling.variance`). Folds add
up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.designs.proposals import Design
from evenhand.errors import EvenhandError
from evenhand.estimands.goals import Goal
from evenhand.float64 import in_float64, require_float64
from evenhand.sampling import variance
from evenhand.sampling.algorithms import (
    cumulate,
    fold_by_fold,
    independent,
    pivotal,
    shuffle,
    sliced,
    water_fill,
)
from evenhand.sampling.folds import FOLDS, Folds, fold_sizes, folds_for, scatter
from evenhand.sampling.samples import Sample

__all__ = [
    "SAMPLERS",
    "Sampler",
    "draw",
    "expected_by_fold",
    "layout",
    "slice_order",
    "slices_variance",
]


def _proportional(q: jax.Array, n: int) -> jax.Array:
    q = require_float64(q, "a proposal")
    return q * (n / jnp.where(q.sum() > 0, q.sum(), 1.0))


def _draw_independent(
    key: jax.Array, expected: jax.Array, n: int, order: jax.Array, folds: Folds | None
) -> jax.Array:
    if folds is None:
        return independent(key, expected, n)
    return order[independent(key, expected[order], n, folds.sizes)]


def _draw_sliced(
    key: jax.Array, expected: jax.Array, n: int, order: jax.Array, folds: Folds | None
) -> jax.Array:
    return order[sliced(key, expected[order], n)]


def _draw_distinct(
    key: jax.Array, expected: jax.Array, n: int, order: jax.Array, folds: Folds | None
) -> jax.Array:
    key_order, key_draw = jax.random.split(key)
    chance = shuffle(key_order, expected.shape[0])
    if folds is not None:
        chance = fold_by_fold(chance, folds)
    mixed = expected.at[chance].get(mode="fill", fill_value=0.0)
    return chance[pivotal(key_draw, mixed, n)].astype(jnp.int64)


@dataclass(frozen=True, slots=True)
class Sampler:
    """A law of drawing. To add one, put it into `SAMPLERS`: the tests then cover it.

    Attributes
    ----------
    name
        What users call it.
    expected
        ``(q, n)`` to E, shape (cells,).
    draw
        ``(key, expected, n, order, folds)`` to the cell of each draw, int, shape (n,). `order` is
        that of `layout`; folds is None for a round drawn as one. Works under ``jit`` and ``vmap``;
        n is static.
    residuals
        ``(z, expected at the draws, fold of the draws, number of folds)`` to y, shape (n, m), such
        that the covariance of ``z.sum(0)`` is y' y, and its degrees of freedom; z has shape (n, m)
        and the order in which it was drawn.
    free
        E at the draws to how much each of them varies, 1 or less; of NumPy or JAX.
    repeats
        Whether a cell can be drawn twice.
    order
        The order in which it takes the cells of a goal, which `draw` gets fold by fold; None where
        it has an order of its own.
    """

    name: str
    expected: Callable[[jax.Array, int], jax.Array]
    draw: Callable[[jax.Array, jax.Array, int, jax.Array, Folds | None], jax.Array]
    residuals: Callable[[jax.Array, jax.Array, jax.Array, int], tuple[jax.Array, jax.Array]]
    free: Callable[[Any], Any]
    repeats: bool
    order: Callable[[Goal], np.ndarray] | None = None

    def covariance(
        self, z: jax.Array, expected: jax.Array, fold: jax.Array, folds: int
    ) -> tuple[jax.Array, jax.Array]:
        """Covariance of ``z.sum(0)``, shape (m, m), and its degrees of freedom."""
        y, degrees = self.residuals(z, expected, fold, folds)
        return y.T @ y, degrees


def slice_order(goal: Goal) -> np.ndarray:
    """The telling order of the cells: sign of the contrast, best rank, query.

    With several contrasts only rank and query order the cells.
    """
    pool = goal.target.pool
    best = np.minimum.reduceat(pool.rank, pool.start[:-1])
    sign = np.zeros(len(pool))
    if len(goal.names) == 1:
        sign = np.sign(goal.at(np.arange(len(pool)))[:, 0])
    return np.lexsort((pool.query, best, sign))


def _numbered(goal: Goal) -> np.ndarray:
    return np.arange(len(goal.target.pool))


SAMPLERS: dict[str, Sampler] = {
    sampler.name: sampler
    for sampler in (
        Sampler(
            "distinct",
            water_fill,
            _draw_distinct,
            variance.without_replacement,
            variance.unsure,
            repeats=False,
        ),
        Sampler(
            "slices",
            _proportional,
            _draw_sliced,
            variance.collapsed,
            variance.all_free,
            repeats=True,
            order=slice_order,
        ),
        Sampler(
            "iid",
            _proportional,
            _draw_independent,
            variance.independent,
            variance.all_free,
            repeats=True,
            order=_numbered,
        ),
    )
}


@functools.cache
def _expected(sampler: str) -> Callable[[jax.Array, int], jax.Array]:
    return jax.jit(SAMPLERS[sampler].expected)


def layout(goal: Goal, sampler: str, fold: np.ndarray | None = None) -> np.ndarray:
    """The order in which a sampler lays out the cells, fold by fold; empty where it has its own."""
    order = SAMPLERS[sampler].order
    if order is None or (order is _numbered and fold is None):  # an order of its own, or none
        return np.zeros(0, np.int64)
    cells = order(goal)
    return cells if fold is None else cells[np.argsort(fold[cells], kind="stable")]


@in_float64
def expected_by_fold(
    sampler: str, q: np.ndarray, n: int, fold: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """E of every cell, and the draws of each fold; both fixed before a label is seen.

    Parameters
    ----------
    sampler
        One of `SAMPLERS`.
    q
        The proposal; shape (cells,).
    n
        Number of draws.
    fold
        Fold of each cell; None for one draw of all.
    """
    law = _expected(sampler)
    together = np.asarray(law(jax.device_put(q), n))
    if fold is None:
        return together, None
    folds = int(fold.max()) + 1
    support = np.bincount(fold, q > 0, minlength=folds).astype(np.int64)
    most = np.full(folds, n) * (support > 0) if SAMPLERS[sampler].repeats else support
    sizes = fold_sizes(np.bincount(fold, together, minlength=folds), most)
    apart = [
        np.asarray(law(jax.device_put(np.where(fold == f, q, 0.0)), int(size)))
        for f, size in enumerate(sizes)
    ]
    return np.sum(apart, 0), sizes


@partial(jax.jit, static_argnames=("sampler", "n"))
def _draw(
    key: jax.Array,
    expected: jax.Array,
    order: jax.Array,
    folds: Folds | None,
    *,
    sampler: str,
    n: int,
) -> jax.Array:
    return SAMPLERS[sampler].draw(key, expected, n, order, folds)


@in_float64
def draw(
    key: jax.Array,
    design: Design,
    n: int,
    *,
    sampler: str = "distinct",
    folds: int = FOLDS,
    in_pairs: bool = False,
) -> Sample:
    """Draw n pairs from a design.

    Parameters
    ----------
    key
        Typed key, ``jax.random.key(seed)``.
    design
        The proposal.
    n
        Number of draws; distinct pairs for `distinct`.
    sampler
        One of `SAMPLERS`.
    folds
        Folds of cells, each drawn by itself so that an estimate may be cross-fitted; 1 for none.
        Where a fold would have fewer than 10 draws there are none either.
    in_pairs
        Draw so that the chance of drawing any two cells together is known, which sums over pairs
        of documents need: scattered (`evenhand.sampling.folds`) for `distinct`, as one for `iid`.

    Raises
    ------
    EvenhandError
        If n or `folds` is below 1, more distinct pairs are asked for than can be drawn, or cells
        are to be drawn in pairs with fewer than two draws, or by slices, each of which has one.

    Examples
    --------
    >>> import jax
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> goal = eh.pair(target)
    >>> design = eh.design(goal, eh.rank_utility(target.pool))
    >>> sample = eh.draw(jax.random.key(0), design, 2)
    >>> len(sample.cells), sample.expected.round(3).tolist()
    (2, [1.0, 0.525, 0.475])
    """
    if sampler not in SAMPLERS:
        raise EvenhandError(f"unknown sampler {sampler!r}", hint=f"known are {', '.join(SAMPLERS)}")
    if n < 1 or folds < 1:
        what = "pairs to draw" if n < 1 else "folds"
        raise EvenhandError(f"the number of {what} must be at least 1, got {min(n, folds)}")
    support = int(np.count_nonzero(design.q))
    if not SAMPLERS[sampler].repeats and n > support:
        raise EvenhandError(
            f"cannot draw {n:,} distinct pairs: the design can draw {support:,}",
            hint="a budget of that size judges every pair; `evaluate` then needs no sampling",
        )
    fold, scattered = folds_for(n, len(design.q), folds), 0
    if in_pairs:
        key, key_fold = jax.random.split(key)
        fold, scattered = _in_pairs(key_fold, sampler, design.q, n)
    expected, sizes = expected_by_fold(sampler, design.q, n, fold)
    draws = _draw(
        key,
        jax.device_put(expected),
        jax.device_put(layout(design.goal, sampler, fold)),
        None if fold is None else Folds(jax.device_put(fold), jax.device_put(sizes)),
        sampler=sampler,
        n=n,
    )
    return Sample(sampler, np.asarray(draws, np.int64), expected, fold, scattered)


def _in_pairs(key: jax.Array, sampler: str, q: np.ndarray, n: int) -> tuple[np.ndarray | None, int]:
    """Folds under which any two cells can be drawn together, and how many are at random."""
    if n < 2:
        raise EvenhandError("a sum over pairs of documents needs at least 2 draws, got 1")
    if sampler == "slices":
        raise EvenhandError(
            "two documents of one slice are never drawn together, which sums over pairs need",
            hint="take the sampler distinct or iid",
        )
    if sampler == "iid" or n >= np.count_nonzero(q):
        fold, scattered = None, 0
    else:
        fold, scattered = scatter(key, _expected(sampler)(jax.device_put(q), n), n)
    return fold, scattered


@in_float64
def slices_variance(z: np.ndarray, q: np.ndarray, order: np.ndarray, n: int) -> np.ndarray:
    """Exact variance of the mean of z over n draws by slices, for comparison with ``iid``.

    Slice i draws from q restricted to its stretch of the cumulated mass, so the variance is the sum
    of the variances within slices.

    Parameters
    ----------
    z
        Value of each cell; shape (cells, m).
    q, order
        Proposal and order of the cells; shape (cells,).
    n
        Number of slices.

    Returns
    -------
    numpy.ndarray
        Shape (m,).
    """
    end = np.asarray(cumulate(jax.device_put(q)[order])) * n
    edges = np.union1d(end, np.arange(n + 1.0))
    edges = edges[edges <= n]
    share, middle = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    cell = order[np.minimum(np.searchsorted(end, middle, side="right"), len(order) - 1)]
    which = np.minimum(middle.astype(np.int64), n - 1)
    first, second = np.zeros((n, z.shape[1])), np.zeros((n, z.shape[1]))
    np.add.at(first, which, share[:, None] * z[cell])
    np.add.at(second, which, share[:, None] * z[cell] ** 2)
    return (second - first**2).sum(0) / n**2
