r"""Estimates of ratio measures: nDCG, AP, recall, R-precision from sampled judgments.

The rounds of a study give each cell an unbiased estimate of its utility,

    u^_c = sum_t omega_tc (m_tc + sum over draws i of c of (r_i - m_tc) / E_tc)              (1)

as in `evenhand.estimators`, with omega, m and E as there; of each query at least as many documents
are relevant as were seen to be. The estimate of a system is the measure of these, with its bias
taken off as far as the draws show it,

    V^_j = V_j(u^) - B^_j,        B^ of `evenhand.gradients`, equation (4)                   (2)

It is **not exactly unbiased**: what (2) leaves is of the order 1 / n, and the notes of every
estimate say how large the part was that was taken off. Variance and covariances are those of the
linear measure with the gradient at u^ for weights (linearisation, or the delta method), and those
of (4) added.

Each query divides by something of its own, which its own draws must tell (`check_draws`). A query
with no relevant draw has the value 0, which is too low if it has a relevant document.

The design is that of the linear measure with the gradient at the utilities *expected*
(`expected_goal`): where the ratio would move most. Its floor is of every pair of the pool, the same
for each query.

References
----------
Woodruff 1971, *A simple method for approximating the variance of a complicated estimate*; Aslam,
Pavlu and Yilmaz 2006, *A statistical method for system evaluation using incomplete judgments*, for
average precision as a ratio of sampled sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from evenhand.errors import EvenhandError, SupportError
from evenhand.estimates import Estimate
from evenhand.estimators import Combination, combined, estimate
from evenhand.gradients import Errors, Gradient, Levels, gradient, second_order
from evenhand.measures import AP
from evenhand.pools import Pool
from evenhand.precision import in_float64
from evenhand.sampling import SAMPLERS
from evenhand.stages import Control, Round, expected_counts, said
from evenhand.targets import Goal, Target
from evenhand.utilities import rank_utility

__all__ = ["LEAST", "check_draws", "estimate_ratio", "expected_goal", "guessed", "worth_a_control"]

#: Draws that a query must have on average, so that what it is divided by can be told; `AP` needs
#: `CONTROLLED`, since it asks of pairs of documents.
LEAST = 10
#: From so many draws a query on, predictions make the estimates better.
CONTROLLED = 40
#: Of the utilities expected, for the design; each counts as much as it is itself.
SCALES = (1.0, 0.5, 0.25, 0.125)
#: What is guessed of the chance of relevance on top of every ranking.
CHANCE = 0.5


def _levels(goal: Goal, rounds: Sequence[Round]) -> np.ndarray:
    """The utilities that were judged, ascending, without 0."""
    known = said(rounds, len(goal.target.pool))
    gain = np.unique(known[~np.isnan(known)])
    if len(gain) and gain[0] < 0:
        raise EvenhandError(f"{goal.target.measure} needs utilities that are not negative")
    gain = gain[gain > 0]
    return gain if len(gain) else np.ones(1)


def _steps(utility: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Which levels a utility reaches; of one level a prediction, or a mean, may reach a part."""
    if len(gain) == 1:
        return utility[:, None] / gain
    return (utility[:, None] >= gain).astype(np.float64)


def _estimated(found: Combination, gain: np.ndarray, n_cells: int) -> np.ndarray:
    """Equation (1) for the share of each cell that reaches each level: shape (cells, levels)."""
    reached = np.zeros((n_cells, len(gain)))
    for weight, stage, mean in zip(found.by_cell, found.together, found.means, strict=True):
        expected = expected_counts(stage, n_cells)
        predicted = np.zeros_like(reached) if mean is None else _steps(mean, gain)
        reached += weight[:, None] * predicted
        for one in stage:
            draws = one.sample.draws
            residual = _steps(one.utility, gain) - predicted[draws]
            np.add.at(reached, draws, residual * (weight[draws] / expected[draws])[:, None])
    return reached


def _linear(goal: Goal, near: Gradient, utility: np.ndarray, unit: float = 1.0) -> Goal:
    """The goal of the linear measure whose weights are the gradient, to stand beside a `unit`."""
    weights = near.weights(np.arange(len(near.pool)), utility) / unit
    return replace(goal, target=Target.of_weights(near.pool, goal.target.measure, weights))


def _errors(found: Combination, gain: np.ndarray, n_cells: int) -> Errors:
    """What is uncertain about (1), each round a group of its own."""
    parts, group = [], 0
    for weight, stage, mean in zip(found.by_cell, found.together, found.means, strict=True):
        expected = expected_counts(stage, n_cells)
        for one in stage:
            at = one.sample.draws
            law = SAMPLERS[one.sample.sampler]
            free = np.asarray(law.free(jnp.asarray(one.sample.expected[at])))
            missed = _steps(one.utility, gain)
            if mean is not None:
                missed = missed - _steps(mean[at], gain)
            n, total = np.count_nonzero(free), free.sum()
            spread = np.sqrt(free * (n / (n - 1) if n > 1 else 1.0))
            share = free / total if n > 1 else np.zeros(len(at))
            term = missed * (weight[at] / expected[at])[:, None]
            parts.append(Errors(at, term, spread, share, np.full(len(at), group)))
            group += 1
    return Errors(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _seen(pool: Pool, known: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """How many documents of each query are known to reach each level: shape (queries, levels)."""
    count = np.zeros((len(pool.queries), len(gain)))
    np.add.at(count, pool.query, _steps(np.nan_to_num(known), gain))
    return count


def check_draws(goal: Goal, n_draws: int) -> None:
    """Refuse what is too little to tell what each query is divided by.

    Raises
    ------
    EvenhandError
        If there are fewer than `LEAST` draws a query, or `CONTROLLED` for `AP`.
    """
    n_queries, measure = len(goal.target.pool.queries), goal.target.measure
    least = n_queries * (CONTROLLED if isinstance(measure, AP) else LEAST)
    if n_draws < least:
        raise EvenhandError(
            f"{measure} divides by what each query holds, which {n_draws:,} draws for "
            f"{n_queries:,} queries do not tell",
            hint=f"draw at least {least:,} pairs, or take a measure that is a sum",
        )


@in_float64
def estimate_ratio(
    goal: Goal,
    rounds: Sequence[Round],
    *,
    level: float = 0.95,
    planned: Sequence[float] | None = None,
    combine: str = "planned",
    controls: Sequence[Control | None] | None = None,
    interval: str = "auto",
    correct: bool = True,
) -> Estimate:
    """Estimate a ratio measure of every system, and every contrast of the goal.

    Parameters
    ----------
    goal
        The contrasts wanted; its target's measure is a ratio.
    rounds, level, planned, combine, controls
        As in `evenhand.estimators.estimate`. Control variates need utilities of one level.
    interval
        ``auto`` is Student's: a cubic one asks what an event weighs that was not seen, and the
        gradient does not know.
    correct
        Take the bias off, equation (2).

    Returns
    -------
    Estimate
        Whose goal has the gradient for weights.

    Raises
    ------
    SupportError
        If some system is not covered, or a control variate is given where there are several levels.
    """
    pool, k = goal.target.pool, len(goal.target.systems)
    n_queries = len(pool.queries)
    found = combined(goal, rounds, planned=planned, combine=combine, controls=controls)
    gain = _levels(goal, rounds)
    if len(gain) > 1 and any(control is not None for control in controls or ()):
        raise SupportError(
            f"{goal.target.measure} with {len(gain)} levels of utility takes no control variate",
            hint="--estimator importance",
        )
    n_cells = len(pool)
    known = said(rounds, n_cells)
    levels = Levels(gain, _estimated(found, gain, n_cells), _seen(pool, known, gain))
    near = gradient(pool, goal.target.measure, levels)
    if len(gain) == 1:
        linear, judged = _linear(goal, near, np.full(n_cells, gain[0]), gain[0]), list(rounds)
    else:
        # Weights are of what was judged, and of a typical relevant document elsewhere.
        relevant = known[known > 0]
        typical = relevant.mean() if len(relevant) else gain[0]
        linear = _linear(goal, near, np.where(np.isnan(known), typical, known))
        judged = [one.as_one() for one in rounds]
    errors = _errors(found, gain, n_cells)
    bias, beyond = second_order(pool, goal.target.measure, levels, errors)
    plain = estimate(
        linear,
        judged,
        level=level,
        planned=planned,
        combine=combine,
        controls=controls,
        interval="student" if interval == "auto" else interval,
        bounded=False,
        beyond=beyond,
        top_utility=float(gain[0]) if len(gain) == 1 else 1.0,
    )
    if (plain.covered < 1).any():
        raise SupportError(
            f"{int((plain.covered < 1).sum())} of {k} systems are not covered: pairs that count "
            f"for {goal.target.measure} could not be drawn",
            hint="draw a further round, with a floor above 0",
        )
    bias = bias if correct else np.zeros(k)
    value = near.value - bias
    moved = goal.matrix @ (value - plain.value)
    silent = int(np.sum(np.bincount(pool.query, levels.reached[:, 0], n_queries) <= 1e-9))
    note = (
        f"{goal.target.measure} is a ratio: estimates are not exactly unbiased; the bias that the "
        f"draws show, {np.abs(bias).max():.2g} at most, is taken off"
    )
    notes = [note] if correct else []
    if silent:
        notes.append(
            f"{silent} of {n_queries:,} queries have no relevant draw and count 0: too low where "
            "they have a relevant document"
        )
    return replace(
        plain,
        value=value,
        low=plain.low + value - plain.value,
        high=plain.high + value - plain.value,
        contrast=plain.contrast + moved,
        contrast_low=plain.contrast_low + moved,
        contrast_high=plain.contrast_high + moved,
        reached_value=value,
        notes=(*notes, *plain.notes),
    )


def guessed(pool: Pool, top: float | None) -> np.ndarray:
    """A first guess of E[r_c] by ranks, for `expected_goal`; shape (cells,)."""
    mean = rank_utility(pool).mean
    return CHANCE * (top or 1.0) * mean / mean.max()


def worth_a_control(goal: Goal, rounds: Sequence[Round]) -> bool:
    """Whether predictions are worth it: of one level of utility, and with enough draws a query.

    Predictions put a residual, of either sign, on every draw. What a query is divided by then
    varies about its value more than it does without, and 1 / N bends: on TREC-8 it pays from about
    `CONTROLLED` draws a query on.
    """
    n_draws = sum(len(one.sample) for one in rounds)
    enough = n_draws >= CONTROLLED * len(goal.target.pool.queries)
    return enough and len(_levels(goal, rounds)) == 1


@in_float64
def expected_goal(goal: Goal, mean: np.ndarray, top: float = 1.0) -> Goal:
    """The contrasts of the linear measure near utilities that are expected: to design a round.

    How many relevant documents a query has is not known well beforehand, and where there are more
    than a measure looks at, their number does not matter: the gradient is a mean over `SCALES` of
    what is expected. The systems' own values count beside the contrasts, since in a difference what
    both are divided by nearly cancels, and neither may then be told well.

    Parameters
    ----------
    goal
        Its target's measure is a ratio.
    mean
        E[r_c], shape (cells,), from 0 to `top`.
    top
        The largest utility.
    """
    pool, gain = goal.target.pool, np.array([top])
    every, weights = np.arange(len(pool)), np.zeros((len(pool), len(pool.systems)))
    for scale in SCALES:
        levels = Levels(gain, np.clip(scale * mean / top, 0.0, 1.0)[:, None])
        near = gradient(pool, goal.target.measure, levels)
        weights += near.weights(every, np.full(len(pool), top)) * scale / top
    plain = Target.of_weights(pool, goal.target.measure, weights / sum(SCALES))
    everywhere = _Everywhere(pool, plain.measure, plain.weight, plain.entries)
    own = np.eye(len(pool.systems))
    counts = np.full(len(own), goal.importance.mean())
    return replace(
        goal,
        target=everywhere,
        names=(*goal.names, *pool.systems),
        matrix=np.concatenate([goal.matrix, own]),
        importance=np.concatenate([goal.importance, counts]),
    )


class _Everywhere(Target):
    """Weights whose floor is of every cell, since each may count for what its query divides by."""

    __slots__ = ()

    def mean_weight(self) -> np.ndarray:
        """Of every query the same share, by what its ranks say: float64, shape (cells,)."""
        likely = np.sqrt(rank_utility(self.pool).second_moment)
        total = np.bincount(self.pool.query, likely, minlength=len(self.pool.queries))
        return likely / total[self.pool.query]
