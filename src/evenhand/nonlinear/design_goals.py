r"""Linear measures near what is expected: to design a round for a measure that is no sum.

A round is designed for the linear measure whose weights are the gradient
(`evenhand.nonlinear.gradients`) at the utilities that are expected, where the measure would move
most. Its floor is of every pair of the pool, the same for each query.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evenhand.designs.utilities import rank_utility
from evenhand.estimands.contrasts import contrasts
from evenhand.estimands.goals import Goal
from evenhand.estimands.pools import Pool
from evenhand.estimands.targets import Target
from evenhand.float64 import in_float64
from evenhand.nonlinear.gradients import Levels, gradient

__all__ = ["SCALES", "expected_goal", "guessed"]

#: Parts s of the utilities expected, for the design. With an eighth beside them errors of nDCG@10
#: on TREC-8 were a tenth larger, and those of AP@100 no smaller (`tests/benchmarks/ratios.py`).
SCALES = (1.0, 0.5, 0.25)
_CELLS = 1 << 16  # cells whose contrasts are dense at a time
#: What is guessed of the chance of relevance on top of every ranking.
CHANCE = 0.5


def guessed(pool: Pool, top: float | None) -> np.ndarray:
    """A first guess of E[r_c] by ranks, for `expected_goal`; shape (cells,)."""
    mean = rank_utility(pool).mean
    return CHANCE * (top or 1.0) * mean / mean.max()


@in_float64
def expected_goal(goal: Goal, mean: np.ndarray, top: float = 1.0) -> Goal:
    r"""The contrasts of the linear measure near utilities that are expected: to design a round.

    The number of relevant documents of a query is not known well beforehand, and the weight of a
    document depends on it: with fewer it counts more. So the norms are those expected when
    utilities are one of the parts s in `SCALES` of what is expected, each as likely,

    .. math:: ||a_c||^2 = \sum_s s ||a_c(s m)||^2 / \sum_s s,                               (1)

    since the chance that c is relevant is then s of what it is, too. Weights are the mean over the
    parts, each weighed by itself. The systems' own values count beside the contrasts, each as much
    as these depend on it: in a difference the common divisor nearly cancels, and a design for
    differences alone may leave each value unsure.

    Parameters
    ----------
    goal
        Its target's measure is a ratio, or of swapped pairs.
    mean
        E[r_c], shape (cells,), from 0 to `top`.
    top
        The largest utility.
    """
    pool, gain = goal.target.pool, np.array([top])
    every, weights = np.arange(len(pool)), np.zeros((len(pool), len(pool.systems)))
    own = np.eye(len(pool.systems))
    matrix = np.concatenate([goal.matrix, own])
    importance = np.concatenate([goal.importance, goal.importance @ goal.matrix**2])
    square = np.zeros(len(pool))
    for scale in SCALES:
        levels = Levels(gain, np.clip(scale * mean / top, 0.0, 1.0)[:, None])
        near = gradient(pool, goal.target.measure, levels)
        here = near.weights(every, np.full(len(pool), top)) / top
        weights += scale * here
        for some in np.array_split(every, -(-len(every) // _CELLS)):
            square[some] += scale * contrasts(here[some], matrix) ** 2 @ importance
    plain = Target.of_weights(pool, goal.target.measure, weights / sum(SCALES))
    return Goal(
        replace(plain, floor=_by_ranks(pool)),
        goal.kind,
        (*goal.names, *pool.systems),
        matrix,
        importance,
        expected_norms=np.sqrt(square / sum(SCALES)),
    )


def _by_ranks(pool: Pool) -> np.ndarray:
    """The same share for every query, by what its ranks say: float64, shape (cells,).

    Each cell may count, for what its query divides by.
    """
    likely = np.sqrt(rank_utility(pool).second_moment)
    total = np.bincount(pool.query, likely, minlength=len(pool.queries))
    return likely / total[pool.query]
