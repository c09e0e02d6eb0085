r"""Linear measures near what is estimated, for measures that are no sums.

**Estimated.** The rounds of a study give each cell an unbiased estimate of its utility,

    u^_c = sum_t omega_tc (m_tc + sum over draws i of c of (r_i - m_tc) / E_tc)              (1)

as in `evenhand.estimation.importance`, with omega, m and E as there, and likewise of whether it
reaches each level of utility. Variances, covariances and designs are those of the linear measure
whose weights are the gradient there (`evenhand.nonlinear.gradients`), with the covariance of what
this leaves out added: linearisation, or the delta method.

**Steadied.** A ratio divides by the number N of relevant documents of a query, and 1 / N^ bends the
more, the less the draws say about N. A model that predicts u by m often knows N better. Then the
measure is linearised between both,

    V^ = V(v) + sum_c w_c(v) (u^_c - v_c),        v = (1 - lambda) m + lambda u^,            (2)
    lambda_x = (rho M_x)^2 / ((rho M_x)^2 + s_x^2),

with M_x the number of relevant documents predicted, trusted to within a share rho of itself, and
s_x the deviation of the number estimated. If draws determine N well, lambda is 1 and V^ is V(u^);
if they say little, V^ does not divide by what they say. For a pair that was certain to be drawn
v is what was judged. All this is by level of utility, M and s of the documents that reach it, and m
the chance that one does (`evenhand.designs.utilities.Reach`): the few of the best grade are what an
ideal list has on top, and draws determine them last. A prediction that is a mean alone, between two
levels, reaches the upper one in part. By N^ a query changes no further than it would if all were
relevant that was not seen not to be: the tangent of 1 / N falls below 0 where one draw represents
hundreds of documents. V^ has the gradient, with w' the derivative of w,

    dV^ / du^_c = w_c(v) + lambda sum_b w'_cb(v) (u^_b - v_b),                               (3)

and of the errors e = u^ - u its even part is that of V times 2 lambda - lambda^2; where two levels
meet, times the geometric mean of theirs. What (2) leaves of m - u is of the order (1 - lambda)^2,
which vanishes faster than 1/n.

**Where slopes say too little.** An ideal list of k documents is full from N = k on, and flat there:
estimated to be full, it has no slope, though N may be k - 1. So with several levels

    b_j = sum_xl (V_jx(N_xl + sqrt(3) D_xl) + V_jx(N_xl - sqrt(3) D_xl) - 2 V_jx(N_xl)) / 6  (4)
    D_xl^2 = (1 - lambda)^2 (tau_l M_xl)^2 + lambda^2 max(s_xl^2, S_xl^2)

is what a count that is off by D in deviation adds on average, D that of v, and b b' is added to the
covariance: where it is of one sign in all queries it does not average out. tau_l is the share by
which predictions were off in all queries together, at least rho, and S what they lead to expect of
s: of rare documents the draws may hold none, and then know nothing of their variance. No count is
halved or more.

References
----------
Woodruff 1971, *A simple method for approximating the variance of a complicated estimate*; for (2)
see one-step estimators (van der Vaart 1998, *Asymptotic Statistics*, section 5.7), whose starting
point here is drawn towards a model's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenhand.estimands.goals import Goal
from evenhand.estimands.pools import Pool
from evenhand.estimands.targets import Target
from evenhand.estimation.estimates import Estimate
from evenhand.estimation.importance import estimate, estimator_name
from evenhand.measures.base import Linear, Pairwise
from evenhand.nonlinear.grade_levels import (
    estimated_levels,
    foretold_levels,
    level_errors,
    levels_said,
    levels_seen,
    missed_levels,
    steps_of,
)
from evenhand.nonlinear.gradients import Gradient, Levels, gradient, turned
from evenhand.nonlinear.second_order import Errors, second_order
from evenhand.sampling.combination import Combination
from evenhand.sampling.rounds import Round, known_utility

__all__ = ["Near"]

#: What makes levels of the cells that could not be drawn (`evenhand.nonlinear.completions`).
Completed = Callable[[Pool, Linear, Levels, np.ndarray], Levels]
#: rho of equation (2).
TRUST = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """A measure near what the rounds of a study say.

    Attributes
    ----------
    goal
        The contrasts wanted.
    rounds
        Fully judged rounds.
    reached
        Equation (1): of each cell which level it reaches; shape (cells, levels).
    levels
        Where the measure is linearised: there, or at v of equation (2).
    errors
        What is uncertain about (1), each round a group of its own; times the root of what their
        even part counts.
    gradient
        The measure at `levels`, with the slope (3).
    by_query
        What each query adds to V(R^), or to equation (2); shape (queries, systems).
    missed
        Of the cells drawn, how far each level is from its prediction, and of all others what a
        typical relevant document reaches; shape (cells, levels).
    left
        Which cells could not be drawn: they count as without utility, or as they are completed;
        shape (cells,).
    curved
        Whether what this leaves out is of second derivatives alone, as befits (2).
    doubt
        D of equation (4), shape (queries, levels); None where it does not apply.
    """

    goal: Goal
    rounds: Sequence[Round]
    reached: np.ndarray
    levels: Levels
    errors: Errors
    gradient: Gradient
    by_query: np.ndarray
    missed: np.ndarray
    left: np.ndarray
    curved: bool = False
    doubt: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        goal: Goal,
        rounds: Sequence[Round],
        found: Combination,
        *,
        steady: bool = False,
        completed: Completed | None = None,
        top: float | None = None,
    ) -> Near:
        """Linearise where the rounds, combined like this, put the utilities.

        Parameters
        ----------
        goal, rounds, found
            What is asked, and how the rounds enter an estimate.
        steady
            By equation (2), where every stage has a prediction.
        completed
            What cells that could not be drawn are taken for: `evenhand.nonlinear.completions.worst`
            or ``best``.
        top
            The largest utility, for these.
        """
        pool, gain = goal.target.pool, levels_said(goal, rounds)
        # One that nobody drew, but is predicted, counts for what is divided by.
        told = [stage.reach.gain for stage in found.stages if stage.reach is not None]
        gain = np.unique(np.concatenate([gain, *told]))
        if top is not None and top > gain[-1]:
            gain = np.append(gain, top)
        left = ~found.reached()
        foretold = foretold_levels(found, gain)
        reached, predicted = estimated_levels(found, foretold, gain, len(pool))
        reached[left] = predicted[left] = 0.0
        known = np.where(left, np.nan, known_utility(rounds, len(pool)))
        levels = Levels(gain, reached, levels_seen(pool, known, gain))
        errors, curved, doubt = level_errors(found, foretold, gain), False, None
        errors = errors._replace(term=np.where(left[errors.draws, None], 0.0, errors.term))
        if completed is None:

            def complete(levels: Levels) -> Levels:
                return levels

        else:

            def complete(levels: Levels) -> Levels:
                return completed(pool, goal.target.measure, levels, left)

        # Where no judgment could be learned from, nothing is predicted: that is no prediction.
        if steady and all(told is not None and told.any() for told in foretold):
            share = _share(pool, levels, predicted, errors)
            if len(gain) > 1:
                doubt = _doubt(
                    pool, levels, predicted, errors, share, _ahead(pool, found, foretold)
                )
            between = predicted + share[pool.query] * (reached - predicted)
            levels = complete(levels._replace(reached=between))
            at = share[pool.query[errors.draws]]
            errors = errors._replace(term=errors.term * np.sqrt(2 * at - at**2))
            curved = True
            near = gradient(pool, goal.target.measure, levels)
            rest = reached - between
            by_query = near.by_query.T / len(pool.queries)
            by_entry, by_count = near.changes(rest)
            by_query = by_query + by_entry + _held(goal, levels, known, by_query, by_count)
            near = turned(pool, goal.target.measure, levels, near, rest, share)
        else:
            levels = complete(levels)
            near = gradient(pool, goal.target.measure, levels)
            by_query = near.by_query.T / len(pool.queries)
        missed = missed_levels(found, foretold, gain, len(pool))
        return cls(
            goal, rounds, reached, levels, errors, near, by_query, missed, left, curved, doubt
        )

    def estimate(
        self, by_query: np.ndarray, beyond: np.ndarray, notes: Sequence[str] = (), **options: Any
    ) -> Estimate:
        """The estimate of the linear measure, moved to the values given.

        Parameters
        ----------
        by_query
            What each query adds to the estimates of the systems; shape (queries, systems).
        beyond
            Covariance of what linearisation leaves out; shape (systems, systems).
        notes
            What the user should know.
        options
            Of `evenhand.estimation.importance.estimate`; the interval ``auto`` is Student's: a
            cubic one asks what an event weighs that was not seen, and the gradient does not know.

        Returns
        -------
        Estimate
            NaN for systems for which pairs count that could not be drawn, unless these are
            completed.
        """
        goal, gain, pool = self.goal, self.levels.gain, self.goal.target.pool
        one_level, every = len(gain) == 1, np.arange(len(pool))
        controls = options.pop("controls", None)
        if one_level:
            weights = self.gradient.weights(every, np.full(len(pool), gain[0])) / gain[0]
            judged = self.rounds
        else:
            # Weights are of what was judged, less what was predicted.
            weights = self.gradient.adds(every, self.missed)
            judged = [one.as_one() for one in self.rounds]
        weights[self.left] = self._open_weights(weights[self.left])
        interval = options.pop("interval", "auto")
        plain = estimate(
            replace(goal, target=Target.of_weights(pool, goal.target.measure, weights)),
            judged,
            interval="student" if interval == "auto" else interval,
            bounded=False,
            beyond=beyond,
            by_query=by_query,
            top_utility=float(gain[0]) if one_level else 1.0,
            controls=controls if one_level else None,
            **options,
        )
        # Weights of both signs have no share, their sizes do.
        size = np.abs(weights)
        share = size[~self.left].sum(0) / np.maximum(size.sum(0), 1e-300)
        answer = plain.moved(by_query.sum(0), share)
        return replace(answer, estimator=estimator_name(controls), notes=(*notes, *answer.notes))

    def _open_weights(self, weights: np.ndarray) -> np.ndarray:
        """Weights of the cells that could not be drawn: shape (cells left, systems).

        Where they are completed they do not vary. Else the slope may be 0 where they count: in a
        query in which nothing relevant was seen those by rank stand in, and where more is thought
        to be relevant than a measure looks at, what they would take from the value if it were not.
        """
        if self.levels.own is not None:
            return np.zeros_like(weights)
        pool, cells = self.goal.target.pool, np.flatnonzero(self.left)
        if isinstance(self.goal.target.measure, Pairwise):  # nothing that others return counts
            return np.where(weights == 0, self.goal.target.weights(cells), weights)
        counts = self.levels.counts(pool)[:, 0]
        seen = counts > 1e-9
        share = self.gradient.by_query / np.where(seen, counts, 1.0) / len(counts)
        query = pool.query[cells]
        weights = np.where(weights == 0, -share.T[query], weights)
        return np.where(seen[query, None], weights, self.goal.target.weights(cells))

    def beyond(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of what linearisation leaves out (`second_order`), b b' added.

        The mean is by query, what each adds to that of the systems: shape (queries, systems).
        """
        pool, measure = self.goal.target.pool, self.goal.target.measure
        mean, covariance = second_order(
            pool, measure, self.levels, self.errors, curved=self.curved, by_query=True
        )
        if self.doubt is not None:
            off = _flattened(pool, measure, self.levels, self.doubt)
            covariance = covariance + np.outer(off, off)
        return mean, covariance


def _held(
    goal: Goal, levels: Levels, known: np.ndarray, value: np.ndarray, change: np.ndarray
) -> np.ndarray:
    """What counts of relevant documents change, no further than the most there can be would.

    The tangent of 1 / N falls below 0 where one draw represents hundreds of documents; V falls no
    lower than with all documents of a query relevant that were not seen not to be.

    Parameters
    ----------
    goal, levels
        What is asked, and v.
    known
        Utilities judged, NaN where there is none; shape (cells,).
    value
        V(v), as each query adds to it; shape (queries, systems).
    change
        By the tangent, likewise.
    """
    pool = goal.target.pool
    open_to = np.where(np.isnan(known)[:, None], 1.0, steps_of(np.nan_to_num(known), levels.gain))
    most = np.zeros((len(pool.queries), len(levels.gain)))
    np.add.at(most, pool.query, open_to)
    at_most = gradient(pool, goal.target.measure, levels._replace(least=most))
    gap = at_most.by_query.T / len(pool.queries) - value
    return np.where(gap < 0, np.maximum(change, gap), np.minimum(change, gap))


def _ahead(pool: Pool, found: Combination, foretold: Sequence[np.ndarray | None]) -> np.ndarray:
    """S^2 of equation (4), by Poisson sampling: shape (queries, levels)."""
    parts = []
    for stage, told in zip(found.stages, foretold, strict=True):
        at = np.flatnonzero((stage.expected > 0) & (stage.expected < 1))
        assert told is not None
        chance = np.clip(told[at], 0.0, 1.0)
        variance = stage.weight[at] ** 2 * (1.0 / stage.expected[at] - 1.0)
        each = chance * (1.0 - chance) * variance[:, None]
        parts.append(np.zeros((len(pool.queries), chance.shape[1])))
        np.add.at(parts[-1], pool.query[at], each)
    return np.sum(parts, 0)


def _doubt(
    pool: Pool,
    levels: Levels,
    predicted: np.ndarray,
    errors: Errors,
    share: np.ndarray,
    ahead: np.ndarray,
) -> np.ndarray:
    """D of equation (4), shape (queries, levels)."""
    count, variance = _counted(pool, levels, predicted, errors)
    off = levels._replace(least=None).counts(pool) - count
    missed = ((off**2 - variance).sum(0) / np.maximum((count**2).sum(0), 1e-12)).clip(TRUST**2)
    most = np.maximum(variance, ahead)
    return np.sqrt((1.0 - share) ** 2 * missed * count**2 + share**2 * most)


def _flattened(pool: Pool, measure: Linear, levels: Levels, doubt: np.ndarray) -> np.ndarray:
    """B of equation (4), shape (systems,)."""
    k = len(pool.systems)
    beside = 0.0 if levels.beside is None else levels.beside
    step = np.minimum(np.sqrt(3.0) * doubt, levels.counts(pool).clip(0.0) / 2)

    def value(by: np.ndarray) -> np.ndarray:
        return gradient(pool, measure, levels._replace(beside=beside + np.tile(by, (k, 1)))).value

    total = -2 * step.shape[1] * value(np.zeros_like(step))
    for level in np.eye(step.shape[1]):
        total += value(step * level) + value(-step * level)
    return total / 6


def _counted(
    pool: Pool, levels: Levels, predicted: np.ndarray, errors: Errors
) -> tuple[np.ndarray, np.ndarray]:
    """M and s^2 of equation (2), both of shape (queries, levels)."""
    count = levels._replace(reached=predicted).counts(pool)
    variance = np.zeros_like(count)
    np.add.at(variance, pool.query[errors.draws], (errors.spread[:, None] * errors.term) ** 2)
    return count, variance


def _share(pool: Pool, levels: Levels, predicted: np.ndarray, errors: Errors) -> np.ndarray:
    """The shares lambda of each query, equation (2): shape (queries, levels)."""
    count, variance = _counted(pool, levels, predicted, errors)
    trusted = (TRUST * count) ** 2
    return np.where(variance > 0, trusted / np.where(variance > 0, trusted + variance, 1.0), 1.0)
