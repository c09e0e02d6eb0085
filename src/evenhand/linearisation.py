r"""Linear measures near what is estimated, or expected, for measures that are no sums.

**Estimated.** The rounds of a study give each cell an unbiased estimate of its utility,

    u^_c = sum_t omega_tc (m_tc + sum over draws i of c of (r_i - m_tc) / E_tc)              (1)

as in `evenhand.estimators`, with omega, m and E as there, and likewise of whether it reaches each
level of utility. Variances, covariances and designs are those of the linear measure whose weights
are the gradient there (`evenhand.gradients`), with the covariance of what this leaves out added:
linearisation, or the delta method.

**Expected.** A round is designed for the linear measure whose weights are the gradient at the
utilities that are expected, where the measure would move most. Its floor is of every pair of the
pool, the same for each query.

References
----------
Woodruff 1971, *A simple method for approximating the variance of a complicated estimate*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from evenhand.errors import EvenhandError, SupportError
from evenhand.estimates import Estimate
from evenhand.estimators import Combination, estimate
from evenhand.gradients import Errors, Gradient, Levels, gradient, second_order
from evenhand.pools import Pool
from evenhand.precision import in_float64
from evenhand.sampling import SAMPLERS
from evenhand.stages import Round, expected_counts, said
from evenhand.targets import Goal, Target
from evenhand.utilities import rank_utility

__all__ = ["Near", "expected_goal", "guessed", "levels_said"]

#: Of the utilities expected, for the design; each counts as much as it is itself.
SCALES = (1.0, 0.5, 0.25, 0.125)
#: What is guessed of the chance of relevance on top of every ranking.
CHANCE = 0.5


def levels_said(goal: Goal, rounds: Sequence[Round]) -> np.ndarray:
    """The utilities that were judged, ascending, without 0.

    Raises
    ------
    EvenhandError
        If one is negative.
    """
    known = said(rounds, len(goal.target.pool))
    gain = np.unique(known[~np.isnan(known)])
    if len(gain) and gain[0] < 0:
        raise EvenhandError(f"{goal.target.measure} needs utilities that are not negative")
    gain = gain[gain > 0]
    return gain if len(gain) else np.ones(1)


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """A measure near what the rounds of a study say.

    Attributes
    ----------
    goal
        The contrasts wanted.
    rounds
        Fully judged rounds.
    levels
        Equation (1).
    errors
        What is uncertain about it, each round a group of its own.
    gradient
        The measure there.
    """

    goal: Goal
    rounds: Sequence[Round]
    levels: Levels
    errors: Errors
    gradient: Gradient

    @classmethod
    def of(cls, goal: Goal, rounds: Sequence[Round], found: Combination) -> Near:
        """Linearise where the rounds, combined like this, put the utilities."""
        pool, gain = goal.target.pool, levels_said(goal, rounds)
        reached = _estimated(found, gain, len(pool))
        levels = Levels(gain, reached, _seen(pool, said(rounds, len(pool)), gain))
        near = gradient(pool, goal.target.measure, levels)
        return cls(goal, rounds, levels, _errors(found, gain, len(pool)), near)

    def estimate(
        self, value: np.ndarray, beyond: np.ndarray, notes: Sequence[str] = (), **options: Any
    ) -> Estimate:
        """The estimate of the linear measure, moved to the values given.

        Parameters
        ----------
        value
            Estimates of the systems; shape (systems,).
        beyond
            Covariance of what linearisation leaves out; shape (systems, systems).
        notes
            What the user should know.
        options
            Of `evenhand.estimators.estimate`; the interval ``auto`` is Student's: a cubic one asks
            what an event weighs that was not seen, and the gradient does not know.

        Raises
        ------
        SupportError
            If some system is not covered.
        """
        goal, gain, pool = self.goal, self.levels.gain, self.goal.target.pool
        one_level = len(gain) == 1
        if one_level:
            weights, judged = self._weights(np.full(len(pool), gain[0])) / gain[0], self.rounds
        else:
            # Weights are of what was judged, and of a typical relevant document elsewhere.
            known = said(self.rounds, len(pool))
            typical = known[known > 0].mean() if (known > 0).any() else gain[0]
            typical = gain[np.argmin(np.abs(gain - typical))]
            weights = self._weights(np.where(np.isnan(known), typical, known))
            judged = [one.as_one() for one in self.rounds]
        interval = options.pop("interval", "auto")
        plain = estimate(
            replace(goal, target=Target.of_weights(pool, goal.target.measure, weights)),
            judged,
            interval="student" if interval == "auto" else interval,
            bounded=False,
            beyond=beyond,
            top_utility=float(gain[0]) if one_level else 1.0,
            **options,
        )
        lost = int((plain.covered < 1).sum())
        if lost:
            raise SupportError(
                f"{lost} of {len(value)} systems are not covered: pairs that count "
                f"for {goal.target.measure} could not be drawn",
                hint="draw a further round, with a floor above 0",
            )
        moved = goal.matrix @ (value - plain.value)
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

    def beyond(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of what linearisation leaves out (`second_order`)."""
        return second_order(
            self.goal.target.pool, self.goal.target.measure, self.levels, self.errors
        )

    def _weights(self, utility: np.ndarray) -> np.ndarray:
        return self.gradient.weights(np.arange(len(self.goal.target.pool)), utility)


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


def guessed(pool: Pool, top: float | None) -> np.ndarray:
    """A first guess of E[r_c] by ranks, for `expected_goal`; shape (cells,)."""
    mean = rank_utility(pool).mean
    return CHANCE * (top or 1.0) * mean / mean.max()


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
        Its target's measure is a ratio, or of swapped pairs.
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
