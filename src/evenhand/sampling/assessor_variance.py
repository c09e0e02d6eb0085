r"""Variance due to disagreement between assessors.

The utility of a cell is what assessors say of it on average. Who happened to judge it moves the
estimate even where the draw did not: a cell that is drawn for certain still counts by the
assessors it got. The samplers' covariance holds the part of that noise that comes with the draws;
this module adds the rest.

Say that estimates take in the mean judgment r_c of cell c with the coefficient kappa_c a_c, added
up over all rounds that share the judgment: omega / E for a draw, omega where it was known and left
out of a round. The draws' own covariance is a quadratic form in the r_c, with i_c a_c a_c' before
r_c^2. What is missing is

    Cov_noise = sum_c (kappa_c^2 - i_c) a_c a_c' s_c^2 / k_c                                 (1)

over the judged cells, k_c the number of judgments and s_c^2 their variance. Where a cell has one
judgment the mean s^2 of the others is taken, weighted as they weigh in (1). Where no cell has two
judgments nothing can be known of noise, and judgments are taken as the truth.

In expectation (1) is sum_c a_c a_c' Var(r_c) / k_c for one round, which is what a variance over
draws lacks (Cochran 1977, *Sampling Techniques*, chapter 13, on errors of response).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from evenhand.estimands.contrasts import contrasts
from evenhand.estimands.goals import Goal
from evenhand.float64 import in_float64
from evenhand.sampling.combination import Combination, CombinedRound
from evenhand.sampling.labels import Labels
from evenhand.sampling.rounds import Round
from evenhand.sampling.variance import strata

__all__ = ["disagreement", "noise", "several_said"]


def disagreement(given: Labels) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many judgments the distinct cells have, ascending, and how these vary.

    Returns
    -------
    cells, count, variance
        Each of shape (distinct cells,); the unbiased variance, NaN where there is one judgment.
    """
    cells, which = np.unique(given.cells, return_inverse=True)
    count = np.bincount(which, minlength=len(cells))
    mean = np.bincount(which, given.utility, minlength=len(cells)) / count
    square = np.bincount(which, (given.utility - mean[which]) ** 2, minlength=len(cells))
    return cells, count, np.where(count > 1, square / np.maximum(count - 1, 1), np.nan)


def _coefficients(rounds: Sequence[CombinedRound], n_cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Kappa and i of equation (1) by cell, for rounds that share their judgments."""
    kappa, included = np.zeros(n_cells), np.zeros(n_cells)
    for one in rounds:
        draws, sample = one.draws, one.round.sample
        each, free = one.coefficient, one.free
        # As `evenhand.sampling.variance` does it: n / (n - 1) [ sum f z^2 - (sum f z)^2 / sum f ]
        # in each group, n over the draws that vary.
        fold = sample.fold_at(draws)
        if sample.sampler == "slices":
            fold = np.asarray(strata(jax.device_put(fold), sample.n_folds))
        n = np.bincount(fold, free > 0)
        mass = np.bincount(fold, free)
        scale = np.where(n > 1, n / np.maximum(n - 1, 1), 1.0)[fold]
        centred = np.where(n > 1, 1.0 / np.where(mass > 0, mass, 1.0), 0.0)[fold]
        np.add.at(kappa, draws, each)
        np.add.at(included, draws, scale * free * each**2)
        # A cell may be drawn in more than one of them.
        key, which = np.unique(fold * np.int64(n_cells) + draws, return_inverse=True)
        first = np.bincount(which, free * each * np.sqrt(scale * centred))
        np.add.at(included, key % n_cells, -(first**2))
        if one.round.known is not None:
            left_out = np.isfinite(one.round.known)
            kappa[left_out] += one.stage.weight[left_out]
    return kappa, included


@in_float64
def noise(goal: Goal, found: Combination) -> tuple[np.ndarray, np.ndarray, float]:
    """What assessors' disagreement adds to the covariance, equation (1).

    Parameters
    ----------
    goal
        The contrasts.
    found
        The rounds, combined.

    Returns
    -------
    systems, contrasts, degrees
        Covariances, shapes (systems, systems) and (contrasts, contrasts), and the degrees of
        freedom of the disagreement: 0 where there is none.
    """
    # Rounds share their judgments, but for those that were judged again, each for itself.
    groups: dict[int, list[CombinedRound]] = {}
    for number, one in enumerate(found.rounds(), 1):
        if one.round.individual is not None:
            groups.setdefault(number if one.round.judged_again else 0, []).append(one)
    cells, count, variance, factor = [], [], [], []
    for group in groups.values():
        kappa, included = _coefficients(group, len(goal.target.pool))
        single = (one.round.individual for one in group)
        at, k, spread = disagreement(Labels.union([s for s in single if s is not None]))
        cells.append(at)
        count.append(k)
        variance.append(spread)
        factor.append(np.maximum(kappa[at] ** 2 - included[at], 0.0))
    if not groups:
        return _nothing(goal)
    cells, count, variance, factor = map(np.concatenate, (cells, count, variance, factor))
    told = np.isfinite(variance)
    if not told.any():
        return _nothing(goal)
    weights = goal.target.weights(cells)
    values = contrasts(weights, goal.matrix)
    size = factor * (values**2 @ goal.importance)
    pooled = np.average(variance[told], weights=size[told] if size[told].any() else None)
    add = factor * np.where(told, variance, pooled) / count
    return (
        weights.T @ (add[:, None] * weights),
        values.T @ (add[:, None] * values),
        float((count[told] - 1).sum()),
    )


def _nothing(goal: Goal) -> tuple[np.ndarray, np.ndarray, float]:
    k, m = len(goal.target.systems), len(goal.names)
    return np.zeros((k, k)), np.zeros((m, m)), 0.0


def several_said(goal: Goal, rounds: Sequence[Round]) -> list[str]:
    """Whose judgments an estimate is of, where a pair has several and (1) says nothing of it."""
    every = Labels.union([one.labels() for one in rounds])
    if len(np.unique(every.cells)) == len(every):
        return []
    return [
        f"{goal.target.measure} is of what these assessors said: how far others would differ is "
        "not in the intervals"
    ]
