r"""Errors of scores from sampled judgments: MAE and MSE, exactly unbiased.

Where scores predict grades, what a pair adds depends on the system as well: with s_jc the score
that system j gives cell c, and w_jc = 1 / (|X| |y|) for the |y| documents of its list,

    U_j = sum_c v_jc,        v_jc = w_jc error(s_jc, r_c)                                    (1)

A judgment r gives v of every system at once, and

    U^_j = sum_t omega_t sum over draws i of round t of  v_j,c_i / E_i                       (2)

is the estimator of `evenhand.estimation.importance` with weights v that are of what was judged, and
1 for utility: exactly unbiased, with the same rounds, variances and intervals (Student's). Where a
pair has several judgments, its error is the mean of the errors to each.

The design draws where systems are expected to differ in their errors. With rho_c a grade that is
expected, and tau what it may be off, r_c is taken to be rho_c - tau or rho_c + tau, each as likely,
and q is proportional to

    ||a_c||^2 = mean over both of sum_i h_i (sum_j C_ij w_jc error(s_jc, r_c))^2             (3)

The contrast of errors that are expected would not do: of two systems, of which one says too much
and the other as much too little, it is 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenhand.estimands.goals import Goal
from evenhand.estimands.pools import Pool
from evenhand.estimands.targets import Target
from evenhand.estimation.estimates import Estimate
from evenhand.estimation.importance import estimate
from evenhand.float64 import in_float64
from evenhand.measures.base import Deviation
from evenhand.sampling.assessor_variance import several_said
from evenhand.sampling.combination import combined
from evenhand.sampling.labels import Labels
from evenhand.sampling.rounds import Round, known_utility

__all__ = ["estimate_deviation", "expected_deviation", "score_grade"]


def score_grade(pool: Pool) -> np.ndarray:
    """The grade that the systems together predict: the mean of their scores; shape (cells,)."""
    return np.add.reduceat(pool.score, pool.start[:-1]) / np.diff(pool.start)


def _errors(goal: Goal, grade: np.ndarray) -> np.ndarray:
    """The error of each entry of the pool where each cell has one grade; shape (entries,)."""
    pool, measure = goal.target.pool, goal.target.measure
    assert isinstance(measure, Deviation)
    return measure.error(pool.score, grade[pool.cell])


def _judged_errors(goal: Goal, rounds: Sequence[Round]) -> np.ndarray:
    """The mean error of each entry to what was judged of its cell; to a typical grade elsewhere."""
    pool, measure = goal.target.pool, goal.target.measure
    assert isinstance(measure, Deviation)
    grade = known_utility(rounds, len(pool))
    error = _errors(goal, np.where(np.isnan(grade), np.nanmean(grade), grade))
    every = Labels.union([one.labels() for one in rounds])
    count = np.bincount(every.cells, minlength=len(pool))
    several = every.only(count[every.cells] > 1)
    # Each judgment beside each entry of its cell.
    size = np.diff(pool.start)[several.cells]
    begins = np.cumsum(size) - size
    entry = np.arange(size.sum()) + np.repeat(pool.start[several.cells] - begins, size)
    each = measure.error(pool.score[entry], np.repeat(several.utility, size))
    total = np.bincount(entry, each, minlength=len(error))
    count = count[pool.cell]
    return np.where(count > 1, total / np.maximum(count, 1), error)


def _weighted(goal: Goal, errors: np.ndarray) -> Goal:
    """The goal whose weights are v of equation (1) for the error of each entry."""
    pool, every = goal.target.pool, np.arange(len(goal.target.pool))
    weights = pool.dense(goal.target.weight * errors, every)
    return replace(goal, target=Target.of_weights(pool, goal.target.measure, weights))


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
        As in `evenhand.estimation.importance.estimate`; ``auto`` is Student's.

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
    found = estimate(
        _weighted(goal, _judged_errors(goal, rounds)),
        [one.as_one() for one in rounds],
        level=level,
        interval="student" if interval == "auto" else interval,
        bounded=False,
        top_utility=1.0,
        **options,
    )
    return replace(found, notes=(*found.notes, *several_said(goal, rounds)))


@in_float64
def expected_deviation(goal: Goal, grade: np.ndarray, off: np.ndarray | float) -> Goal:
    """The contrasts of errors, with the norms that are expected, equation (3): for a design.

    Parameters
    ----------
    goal
        Its target's measure is `evenhand.measures.MAE` or ``MSE``.
    grade
        rho_c, what is expected or known of each cell; shape (cells,).
    off
        tau, in grades; 0 where the grade is known.
    """
    off = np.broadcast_to(off, len(grade))
    ends = [_weighted(goal, _errors(goal, r)) for r in (grade - off, grade + off)]
    mean = _weighted(goal, (_errors(goal, grade - off) + _errors(goal, grade + off)) / 2.0)
    by_cell = np.sqrt(np.mean([end.norms() ** 2 for end in ends], axis=0))
    return replace(mean, expected_norms=by_cell)
