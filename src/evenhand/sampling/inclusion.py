r"""With which probability a pair is in a sample: drawn at least once, in a round or in several.

An estimate of this library needs expected counts E_c (`evenhand.sampling.samplers`); TREC's
programs ask for the probability pi_c that a pair was judged at all:

==========  ======================================================================================
sampler     pi_c of one round
==========  ======================================================================================
`distinct`  E_c
`iid`       1 - (1 - E_c / n)^n, n the draws of the pair's fold
`slices`    1 - product over slices i of (1 - s_ci), s_ci the share of slice i that is the pair's
==========  ======================================================================================

Rounds whose designs were fixed before the first judgment draw independently of each other:

    pi_c = 1 - product over rounds t of (1 - pi_tc).                                         (1)

The design of a later round, once judgments are in, depends on which pairs earlier rounds drew and
on judgments; then no such probability is known.
"""

from __future__ import annotations

from collections.abc import Iterable

import jax
import numpy as np

from evenhand.estimands.goals import Goal
from evenhand.float64 import in_float64
from evenhand.sampling.algorithms import cumulate
from evenhand.sampling.samplers import SAMPLERS, layout
from evenhand.sampling.samples import Sample

__all__ = ["at_least_once", "together"]


def at_least_once(sample: Sample, goal: Goal) -> np.ndarray:
    """The probability of each cell to be drawn by one round.

    Parameters
    ----------
    sample
        The round: its sampler, expected counts and folds, and how many draws each fold had.
    goal
        That of its design, over the pool of that time; only slices, whose order follows from it,
        need it.

    Returns
    -------
    numpy.ndarray
        float64, shape (cells,).
    """
    if not SAMPLERS[sample.sampler].repeats:
        return sample.expected
    if sample.sampler == "slices":
        return _sliced(sample, goal)
    drawn = np.bincount(sample.fold_at(sample.draws), minlength=sample.n_folds)
    n = drawn[sample.fold_at(np.arange(len(sample.expected)))]
    share = np.minimum(sample.expected / np.maximum(n, 1), 1.0)
    with np.errstate(divide="ignore"):  # a cell that has all of the mass is certain
        return -np.expm1(n * np.log1p(-share))


@in_float64
def _sliced(sample: Sample, goal: Goal) -> np.ndarray:
    order, n = layout(goal, "slices", sample.fold), len(sample)
    end = np.asarray(cumulate(jax.device_put(sample.expected)[order])) * n
    edges = np.union1d(end, np.arange(n + 1.0))
    share, middle = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    cell = order[np.minimum(np.searchsorted(end, middle, side="right"), len(order) - 1)]
    never = np.zeros(len(order))
    with np.errstate(divide="ignore"):  # as above, of a slice
        np.add.at(never, cell, np.log1p(-np.minimum(share, 1.0)))
    return -np.expm1(never)


def together(each: Iterable[np.ndarray]) -> np.ndarray:
    """Equation (1): the probability of each cell to be drawn by any of the rounds given.

    >>> together([np.array([0.5, 1.0, 0.0]), np.array([0.5, 0.2, 0.0])]).tolist()
    [0.75, 1.0, 0.0]
    """
    return 1.0 - np.prod([1.0 - one for one in each], axis=0)
