r"""Second to fourth moments of an estimate's terms, for intervals.

An interval needs more than a variance where relevance is rare: the draws then hold few cells that
count, and say little of those that they missed. But of every cell of the pool a_c and E_c are
known, whatever is drawn. `TermMoments` puts both together, a number each for each contrast, and
every interval (`evenhand.intervals.intervals.INTERVALS`) is a function of them:

    estimate    D^                                                                          (1)
    variance    V = sum_i y_i^2      y the residuals of the draws (`evenhand.sampling.variance`)
    third       T = sum_i y_i^3
    fourth      F = sum_i y_i^4
    event       tau = rho^2 f_4 / f_2                                                       (2)
    side        sigma = (sum of y^3 where a > 0, less where a < 0) / (both together)        (3)

with f_k what the pool could have given (`evenhand.intervals.pool_moments`; the scale of the chances
of relevance cancels), and rho^2 = sum r^4 / sum r^2 over the utilities judged, with one of the
largest possible among them: 1 for binary relevance.

`foreseen` is the variance that predictions lead to expect (`evenhand.intervals.foreseen`).

`event` is the square of the residual that the next relevant draw is likely to have, where those
that matter to the variance count more: f_2 is the variance expected, and F / V estimates rho^2
f_4 / f_2 once there are many. `side` is 1 for a system's own value, where no cell counts
negatively, and near 0 for a difference of similar systems.

Everything here is additive over rounds: a y carries the weight of its round.

Of a pool that stays in an engine (`evenhand.engines`) ranges are made from the systems' summed
weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.designs.utilities import rank_utility
from evenhand.errors import EvenhandError, SupportError
from evenhand.estimands.contrasts import contrasts
from evenhand.estimands.matrices import Form
from evenhand.estimands.targets import Target
from evenhand.float64 import in_float64
from evenhand.intervals.foreseen import foreseen, likely, scale_sums
from evenhand.intervals.pool_moments import Events, events, pool_moments
from evenhand.sampling.combination import Combination
from evenhand.sampling.samplers import SAMPLERS
from evenhand.sampling.samples import Sample
from evenhand.sampling.variance import scattered

__all__ = [
    "Evidence",
    "RoundTerms",
    "TermMoments",
    "Terms",
    "cumulants",
    "of_contrasts",
    "scale",
    "welch",
]

_ROWS = 512  # contrasts at a time: memory stays flat with thousands of pairs of systems
_CELLS = 4096  # cells at a time, likewise


class Terms(NamedTuple):
    """Each draw's own term of some contrasts, and what none can pass: for betting intervals.

    Attributes
    ----------
    value
        n a r / E, whose mean over the draws is the estimate; shape (rows, contrasts).
    times
        How many draws each row represents; shape (rows,).
    low, high
        Bounds of n a r / E over all that could be drawn and all possible judgments; shape
        (contrasts,).
    """

    value: np.ndarray
    times: np.ndarray
    low: np.ndarray
    high: np.ndarray


class TermMoments(NamedTuple):
    """What intervals are made from, equations (1) to (3); arrays of one shape, (..., contrasts).

    Attributes
    ----------
    estimate, variance, third, fourth
        Of the draws; residuals enter as in `evenhand.sampling.variance`.
    event, side
        Of the pool, with the scale of the utilities judged.
    degrees
        Degrees of freedom of the variance.
    floor, ceiling
        What the contrast cannot go beyond; infinite where nothing is known.
    terms
        The terms themselves, where an interval asks for them; else None.
    foreseen, foreseen_degrees
        M and nu_M of `evenhand.intervals.foreseen`, where residuals are of predictions; else None.
    """

    estimate: np.ndarray
    variance: np.ndarray
    third: np.ndarray
    fourth: np.ndarray
    event: np.ndarray
    side: np.ndarray
    degrees: np.ndarray
    floor: np.ndarray
    ceiling: np.ndarray
    terms: Terms | None = None
    foreseen: np.ndarray | None = None
    foreseen_degrees: np.ndarray | None = None

    def split(self, first: int) -> tuple[TermMoments, TermMoments]:
        """Those of the first contrasts, and of the others."""

        def some(here: slice) -> TermMoments:
            terms = self.terms
            if terms is not None:
                terms = Terms(terms.value[:, here], terms.times, terms.low[here], terms.high[here])
            arrays = {
                name: x[here]
                for name, x in self._asdict().items()
                if name != "terms" and x is not None
            }
            return TermMoments(**arrays, terms=terms)

        return some(slice(first)), some(slice(first, None))


@dataclass(frozen=True, slots=True, eq=False)
class RoundTerms:
    """One round as it enters an estimate.

    Attributes
    ----------
    sample
        Its draws.
    residual
        The factor of a_c in each term z, shape (n,): weight (r - m) / E of its stage.
    reach
        weight / E of its stage, by cell: the factor of a_c r_c if it should be drawn.
    mean
        m_c of its stage, by cell; None where nothing is predicted or known.
    """

    sample: Sample
    residual: np.ndarray
    reach: np.ndarray
    mean: np.ndarray | None = None


def welch(variances: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    r"""Degrees of freedom of a sum of variances, those of Welch and Satterthwaite.

    .. math:: \nu = (\sum_t v_t)^2 / \sum_t (v_t^2 / \nu_t)

    Parameters
    ----------
    variances
        v_t, shape (rounds, m).
    degrees
        nu_t, shape (rounds,).

    Returns
    -------
    numpy.ndarray
        Shape (m,); the sum of nu_t where nothing varies.
    """
    degrees = np.maximum(np.asarray(degrees, np.float64), 1.0)
    bottom = (variances**2 / degrees[:, None]).sum(0)
    top = variances.sum(0) ** 2
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), degrees.sum())


def of_contrasts(covariance: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Variances of the contrasts C U, exactly 0 where they are below it or nothing but rounding."""
    found = np.einsum("ij,jk,ik->i", matrix, covariance, matrix, optimize=True)
    return np.where(found <= 1e-12 * (matrix**2 @ np.abs(np.diag(covariance))), 0.0, found)


def cumulants(
    z: jax.Array, expected: jax.Array, fold: jax.Array, *, sampler: str, folds: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Variance, third and fourth moments of one round's terms (1), and degrees of freedom.

    Parameters
    ----------
    z
        Terms of each draw; shape (n, m).
    expected, fold
        At the draws, shape (n,).
    sampler, folds
        Static.
    """
    law = SAMPLERS[sampler]
    y, degrees = law.residuals(z, expected, fold, folds)
    variance = (y**2).sum(0)
    around, _ = scattered(z, law.free(expected), fold, folds)
    fourth = (around**4).sum(0)
    # Collapsed strata may find next to no variance where terms are skewed.
    most = jnp.sqrt(variance * fourth)
    return variance, jnp.clip((around**3).sum(0), -most, most), fourth, degrees


def scale(utility: np.ndarray, top: float | None) -> float:
    """The size rho of a relevant judgment, and of the largest where the measure does not say.

    Parameters
    ----------
    utility
        Judged, repeats included.
    top
        The largest utility there can be; None takes the largest judged, and 1 if none was.
    """
    said = np.abs(utility[utility != 0])
    most = (said.max() if len(said) else 1.0) if top is None else top
    bottom = (said**2).sum() + most**2
    return float(np.sqrt(((said**4).sum() + most**4) / bottom)) if bottom > 0 else 0.0


@partial(jax.jit, static_argnames=("sampler", "folds"))
def _round_moments(weights, matrix, residual, expected, fold, *, sampler, folds):
    z = contrasts(weights, matrix) * residual[:, None]
    return cumulants(z, expected, fold, sampler=sampler, folds=folds)


@dataclass(slots=True, eq=False)
class Evidence:
    """The judged rounds of a study, ready to be asked about any contrasts.

    Attributes
    ----------
    target
        The systems' weights.
    utility
        Everything judged, repeats included.
    top
        The largest utility that a judgment can have, where it is known.
    bounded
        Whether a contrast lies within what its weights and utilities allow.
    rounds
        As they enter the estimate.
    added
        What adds to the covariance of the systems beside the draws, shape (systems, systems), such
        as assessors' disagreement; and its degrees of freedom.
    n_stages
        How many stages the rounds are.
    predicted
        Whether a control variate, or what was known before, enters the estimate.
    """

    target: Target
    utility: np.ndarray
    top: float | None = None
    bounded: bool = True
    rounds: list[RoundTerms] = field(default_factory=list)
    added: list[tuple[np.ndarray, float]] = field(default_factory=list)
    n_stages: int = 1
    predicted: bool = False

    @classmethod
    def of(
        cls, target: Target, found: Combination, *, top: float | None, bounded: bool
    ) -> Evidence:
        """The judged rounds of a study, as they were combined."""
        rounds = []
        for stage in found.stages:
            reach = stage.inverse()
            rounds += [
                RoundTerms(one.round.sample, one.residual * reach[one.draws], reach, stage.mean)
                for one in stage.rounds()
            ]
        utility = np.concatenate([one.round.utility for one in found.rounds()])
        n_stages = len(found.stages)
        return cls(target, utility, top, bounded, rounds, [], n_stages, found.predicts)

    def _check_terms(self) -> None:
        hint = "take --interval auto"
        if self.target.whole is not None:
            raise SupportError(
                "betting intervals look at every pair that could be drawn, and only those that "
                "were are at hand",
                hint=hint,
            )
        if not self.bounded:
            raise SupportError(
                f"betting intervals need weights known beforehand, and those of "
                f"{self.target.measure} depend on what was judged",
                hint=hint,
            )
        if self.n_stages > 1:
            raise SupportError(
                f"betting intervals are for one stage, and these rounds are {self.n_stages}: a "
                "later one was designed after looking",
                hint=hint,
            )
        if self.predicted:
            raise SupportError(
                "betting intervals are for estimates without a control variate",
                hint=f"--estimator importance, or {hint}",
            )
        if self.added:
            raise SupportError(
                "betting intervals take a judgment for the truth, and assessors disagree here",
                hint=hint,
            )
        if self.top is None:
            raise SupportError(
                "betting intervals need the largest utility that a pair can have; "
                f"{self.target.measure} knows none",
                hint="name the scale when the study starts (evenhand new ... --grades 0,1,2), or "
                + hint,
            )
        if (self.utility < 0).any() or (self.utility > self.top * (1 + 1e-9)).any():
            raise EvenhandError(
                f"betting intervals need utilities from 0 to {self.top:g}, got "
                f"{self.utility.min():g} to {self.utility.max():g}",
                hint=hint,
            )

    @in_float64
    def terms(self, matrix: np.ndarray) -> Terms:
        """Terms of the contrasts C U, and their bounds from all cells that could be drawn.

        Parameters
        ----------
        matrix
            C, shape (contrasts, systems).

        Raises
        ------
        SupportError
            If there is more than one stage, a control variate, or disagreement of assessors, or
            where the terms have no bounds known beforehand.
        """
        self._check_terms()
        assert self.top is not None
        n = sum(len(one.sample) for one in self.rounds)
        rows, times = [np.zeros((1, len(matrix)))], [np.zeros(1)]
        for one in self.rounds:
            said = one.residual != 0  # one row represents all others
            weights = self.target.weights(one.sample.draws[said])
            z = contrasts(weights, matrix) * (n * one.residual[said])[:, None]
            rows.append(z)
            times.append(np.ones(len(z)))
            times[0] += np.count_nonzero(~said)
        low, high = np.zeros((2, len(matrix)))
        reach = n * self.top * self.rounds[0].reach  # of the stage, alike for each of its rounds
        cells = np.flatnonzero(reach)
        for some in np.array_split(cells, -(-len(cells) // _CELLS)) if len(cells) else ():
            x = contrasts(self.target.weights(some), matrix) * reach[some, None]
            low, high = np.minimum(low, x.min(0)), np.maximum(high, x.max(0))
        return Terms(np.concatenate(rows), np.concatenate(times), low, high)

    @in_float64
    def moments(
        self,
        matrix: np.ndarray,
        estimate: np.ndarray,
        *,
        blocks: Sequence[tuple[int, Form]] = (),
        terms: bool = False,
    ) -> TermMoments:
        """Moments of the contrasts C U.

        Parameters
        ----------
        matrix
            C, shape (contrasts, systems).
        estimate
            Of the contrasts, shape (contrasts,).
        blocks
            As in `evenhand.intervals.pool_moments.events`.
        terms
            Give the terms too.
        """
        of_draws = self.terms(matrix) if terms else None
        ranks, whole = rank_utility(self.target.pool).second_moment, self.target.whole
        if whole is not None:
            ranks = ranks * whole.inverse_probability
        top = self.top
        sums, over = np.zeros((3, len(matrix))), np.zeros((6, len(matrix)))
        scales, variances, degrees = np.zeros((3, 2)), [], []
        for one in self.rounds:
            own, draws = one.sample.expected, one.sample.draws
            held = (one.residual, own[draws], one.sample.fold_at(draws))
            static = {"sampler": one.sample.sampler, "folds": one.sample.n_folds}
            weights = self.target.weights(draws)
            parts = [
                _round_moments(weights, rows, *held, **static)
                for rows in np.array_split(matrix, -(-len(matrix) // _ROWS))
            ]
            found = np.concatenate([np.stack(part[:3]) for part in parts], axis=1)
            sums += found
            variances.append(found[0])
            degrees.append(float(parts[0][3]))
            mass = ranks if one.mean is None else likely(one.mean, ranks)
            free = np.asarray(SAMPLERS[one.sample.sampler].free(own[draws]))
            expected = free * one.reach[draws] ** 2 * mass[draws]
            scales += scale_sums(weights, free * one.residual**2, expected)
            here = events(self.target, matrix, mass, own, one.reach, one.sample.sampler, blocks)
            over[:4] += here[:4]
            over[4:] = here[4:]  # the range is the pool's, whatever was drawn
        if whole is not None:  # no narrower than that of the cells that are not at hand
            over[4:] = np.minimum(matrix, 0.0) @ whole.total, np.maximum(matrix, 0.0) @ whole.total
        negative = not self.bounded or bool((self.utility < 0).any())
        event, side, floor, ceiling = pool_moments(
            Events(*over), scale(self.utility, top), top, negative=negative
        )
        ahead, ahead_degrees = foreseen(scales, matrix, over[0])
        for covariance, known_to in self.added:
            more = of_contrasts(covariance, matrix)
            sums[0] += more
            ahead += more
            variances.append(more)
            degrees.append(known_to)
        freedom = welch(np.array(variances), np.array(degrees))
        return TermMoments(
            estimate,
            sums[0],
            sums[1],
            sums[2],
            event,
            side,
            freedom,
            floor,
            ceiling,
            of_draws,
            ahead if self.predicted else None,
            ahead_degrees if self.predicted else None,
        )
