r"""Errors of scores from sampled judgments: MAE and MSE, exactly unbiased.

Where scores predict grades, what a pair adds depends on the system as well: with s_jc the score
that system j gives cell c, and w_jc = 1 / (|X| |y|) for the |y| documents of its list,

    U_j = sum_c v_jc,        v_jc = w_jc error(s_jc, r_c)                                    (1)

A judgment r tells v of every system at once, and

    U^_j = sum_t omega_t sum over draws i of round t of  v_j,c_i / E_i                       (2)

is the estimator of `evenhand.estimators` with weights v that are of what was judged, and 1 for
utility: exactly unbiased, with the same rounds, variances and intervals (Student's). Where a pair
has several judgments, r is their mean.

The design draws where systems are expected to differ in their errors. With rho_c a grade that is
expected, and tau^2 the square of what it may be off,

    E[error] ~ sqrt((s_jc - rho_c)^2 + tau^2)                                                (3)

for MAE, the square of that for MSE, and q is proportional to the norm of the contrasts of w_jc
times that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenhand.estimates import Estimate
from evenhand.estimators import combined, estimate
from evenhand.goals import Goal
from evenhand.measures import Deviation
from evenhand.pools import Pool
from evenhand.precision import in_float64
from evenhand.stages import Round, said
from evenhand.targets import Target

__all__ = ["estimate_deviation", "expected_deviation", "score_grade"]


def score_grade(pool: Pool) -> np.ndarray:
    """The grade that the systems together predict: the mean of their scores; shape (cells,)."""
    return np.add.reduceat(pool.score, pool.start[:-1]) / np.diff(pool.start)


def _weighted(goal: Goal, grade: np.ndarray, off: np.ndarray | float = 0.0) -> Goal:
    """The goal whose weights are v of equation (1) for grades, each off by a deviation."""
    pool, measure = goal.target.pool, goal.target.measure
    assert isinstance(measure, Deviation)
    deviation = np.sqrt(
        (pool.score - grade[pool.cell]) ** 2 + np.broadcast_to(off, len(pool))[pool.cell] ** 2
    )
    error = measure.error(deviation, np.zeros(len(deviation)))
    weights = pool.dense(goal.target.weight * error, np.arange(len(pool)))
    return replace(goal, target=Target.of_weights(pool, measure, weights))


@in_float64
def estimate_deviation(
    goal: Goal,
    rounds: Sequence[Round],
    *,
    level: float = 0.95,
    planned: Sequence[float] | None = None,
    combine: str = "planned",
    interval: str = "auto",
) -> Estimate:
    """Estimate MAE or MSE of every system, and every contrast of the goal, equation (2).

    Parameters
    ----------
    goal
        The contrasts wanted; its target's measure is `evenhand.measures.MAE` or ``MSE``.
    rounds
        With grades for utilities.
    level, planned, combine, interval
        As in `evenhand.estimators.estimate`; ``auto`` is Student's.

    Returns
    -------
    Estimate
        Whose goal has v for weights.

    Raises
    ------
    MissingJudgments
        If a drawn pair is not judged.
    """
    options = {"planned": planned, "combine": combine}
    combined(goal, rounds, **options)  # refuses rounds that cannot be
    grade = said(rounds, len(goal.target.pool))
    typical = np.nanmean(grade)
    return estimate(
        _weighted(goal, np.where(np.isnan(grade), typical, grade)),
        [one.as_one() for one in rounds],
        level=level,
        interval="student" if interval == "auto" else interval,
        bounded=False,
        top_utility=1.0,
        **options,
    )


@in_float64
def expected_deviation(goal: Goal, grade: np.ndarray, off: np.ndarray | float) -> Goal:
    """The contrasts of the errors that are expected, equation (3), to design a round with.

    Parameters
    ----------
    goal
        Its target's measure is `evenhand.measures.MAE` or ``MSE``.
    grade
        rho_c, what is expected or known of each cell; shape (cells,).
    off
        tau, in grades; 0 where the grade is known.
    """
    return _weighted(goal, grade, off)
