r"""Unbiased estimates of systems and contrasts from the rounds of a study.

**One round.** With draws c_1..c_n, expected counts E and judged utilities r,

    D^ = sum_i a_{c_i} r_i / E_{c_i}                                                         (1)

is exactly unbiased for D = sum_c a_c u_c if E_c > 0 wherever a_c u_c != 0 (importance sampling;
Horvitz-Thompson for draws without replacement).

**Rounds that were all fixed before the first judgment** are one round with E_c = sum_t E_tc: the
balance heuristic of multiple importance sampling (Veach and Guibas 1995), which is never much worse
than the best weighting.

**Rounds designed after looking** may depend on everything seen before. For these the balance
heuristic is biased, and the bias does not shrink with n: a cell that looked relevant is drawn more,
and its weight is made to depend on that. Exactly unbiased is

    D^ = sum_t omega_t D^_t,  sum omega = 1,  omega_t fixed before round t's first judgment  (2)

with each round divided by its own expectations. Here omega_t is proportional to (planned n_t)
sqrt(t) (Owen and Zhou 2020, *The square root rule for adaptive importance sampling*: at most 9/8 of
the best variance over a wide family of decay rates). Without a plan, each round counts as if it had
been planned twice as large as the last: the size that it turns out to have may depend on what was
seen, so it must not enter the weights.

Which case a round belongs to is read from its record, `Round.depends_on`. Pairs that only later
systems return are shared, in the same proportions, among the rounds since these arrived.

**Control variate.** With m_c a prediction of the utility (`evenhand.sampling.rounds.Control`),

    D^_t = sum_c a_c m_c + sum_i a_{c_i} (r_i - m_{c_i}) / E_{c_i}                           (3)

is exactly unbiased for every m that was fixed before the draws that it corrects: a poor m costs
width, never validity. It is the *difference* estimator where m comes from earlier rounds, and the
*cross-fitted* one where m for each fold of cells comes from the round's other folds as well. Cells
that were known when a round was drawn have E = 0 there and m_c = r_c: they add their exact share.

**Variance.** Given the past, rounds are uncorrelated (martingale differences):

    Cov^ = sum_t omega_t^2 Cov^_t,        Cov^_t from the sampler                            (4)

Where assessors disagree, `evenhand.sampling.assessor_variance` adds what that adds.

**Intervals** are those of `evenhand.intervals.intervals`, made from `evenhand.intervals.moments`.

References
----------
Cassel, Sarndal and Wretman 1976 for the difference estimator; Chernozhukov et al. 2018 for
cross-fitting.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.designs.utilities import Reach, judged_utility
from evenhand.errors import EvenhandError, MissingJudgments, SupportError, listed
from evenhand.estimands.contrasts import contrasts
from evenhand.estimands.goals import Goal
from evenhand.estimands.targets import Target
from evenhand.estimation.estimates import Estimate, uncovered_contrasts
from evenhand.float64 import in_float64
from evenhand.formats.qrels import Qrels
from evenhand.intervals import intervals
from evenhand.intervals.between_queries import between_queries
from evenhand.intervals.confidence import INTERVAL, check_level
from evenhand.intervals.moments import Evidence, RoundTerms
from evenhand.sampling.assessor_variance import noise
from evenhand.sampling.rounds import (
    Control,
    Round,
    check_control,
    default_plan,
    expected_counts,
    planned_weights,
    reachable,
    stages,
    weights_by_cell,
)
from evenhand.sampling.samplers import SAMPLERS
from evenhand.sampling.samples import Sample

__all__ = ["Combination", "Round", "combined", "estimate", "estimator_name", "judge", "terms"]


def terms(
    values: jax.typing.ArrayLike, utility: jax.typing.ArrayLike, expected: jax.typing.ArrayLike
) -> jax.Array:
    """z_i = a_{c_i} r_i / E_{c_i}: their sum is the estimate (1).

    Parameters
    ----------
    values
        a (or w) at the draws, shape (n, m).
    utility
        r at the draws, shape (n,).
    expected
        E at the draws, shape (n,).
    """
    return jnp.asarray(values) * (jnp.asarray(utility) / jnp.asarray(expected))[:, None]


def _check(goal: Goal, rounds: Sequence[Round]) -> None:
    if not rounds:
        raise MissingJudgments("no round has been drawn and judged yet")
    for number, one in enumerate(rounds, 1):
        if one.utility.shape != one.sample.draws.shape:
            raise EvenhandError(
                f"round {number} has {len(one.sample):,} draws and {len(one.utility):,} utilities"
            )
        if len(one.sample.expected) != len(goal.target.pool):
            raise EvenhandError(
                f"round {number} was drawn from a pool of {len(one.sample.expected):,} pairs, "
                f"the goal's has {len(goal.target.pool):,}"
            )
        missing = np.unique(one.sample.draws[np.isnan(one.utility)])
        if len(missing):
            raise MissingJudgments(
                f"{one.name or f'round {number}'}: {len(missing):,} of "
                f"{len(one.sample.cells):,} pairs are not judged yet",
                hint="judge them all: leaving pairs out biases the estimate",
            )


@partial(jax.jit, static_argnames=("sampler", "folds"))
def _one_round(weights, matrix, residual, stage_expected, own_expected, fold, *, sampler, folds):
    """Sums and covariances of one round's terms, for systems and contrasts."""
    law = SAMPLERS[sampler]
    z_system = terms(weights, residual, stage_expected)
    z_contrast = terms(contrasts(weights, matrix), residual, stage_expected)
    cov_system, _ = law.covariance(z_system, own_expected, fold, folds)
    cov_contrast, _ = law.covariance(z_contrast, own_expected, fold, folds)
    return z_system.sum(0), z_contrast.sum(0), cov_system, cov_contrast


class Combination(NamedTuple):
    """How the rounds of a study enter an estimate.

    Attributes
    ----------
    weights
        omega of each stage, equation (2).
    together
        The rounds of each stage.
    by_cell
        omega of each stage at each cell, shape (stages, cells).
    means
        m_c of each stage, with what was known put in; None where there is neither.
    reaches
        How likely each utility is by these predictions; None where they are means alone.
    """

    weights: np.ndarray
    together: list[list[Round]]
    by_cell: np.ndarray
    means: list[np.ndarray | None]
    reaches: list[Reach | None]

    def reached(self) -> np.ndarray:
        """Which cells every stage that needs them could draw, or knew; shape (cells,)."""
        found = (self.by_cell > 0).sum(0) > 0
        for weight, stage in zip(self.by_cell, self.together, strict=True):
            within = reachable(stage, expected_counts(stage, self.by_cell.shape[1]))
            found &= within | (weight == 0)
        return found


def combined(
    goal: Goal,
    rounds: Sequence[Round],
    *,
    planned: Sequence[float] | None = None,
    combine: str = "planned",
    controls: Sequence[Control | None] | None = None,
) -> Combination:
    """How rounds enter an estimate; parameters and errors as of `estimate`."""
    _check(goal, rounds)
    numbers = stages(rounds, combine)
    for what, given in (("plan", planned), ("control variates", controls)):
        if given is not None and len(given) < len(numbers):
            raise EvenhandError(f"the {what} name {len(given)} stages, there are {len(numbers)}")
    omega = planned_weights(
        default_plan(len(numbers)) if planned is None else np.asarray(planned[: len(numbers)])
    )
    together = [[rounds[i] for i in stage] for stage in numbers]
    by_cell = weights_by_cell(omega, together, len(goal.target.pool))
    means, reaches = _predicted(numbers, rounds, controls)
    if goal.target.whole is not None and any(mean is not None for mean in means):
        raise SupportError(
            "a control variate is summed over the whole pool, of which only some pairs are at hand",
            hint="estimate what was drawn in an engine without one",
        )
    return Combination(omega, together, by_cell, means, reaches)


@in_float64
def estimate(
    goal: Goal,
    rounds: Sequence[Round],
    *,
    level: float = 0.95,
    planned: Sequence[float] | None = None,
    combine: str = "planned",
    controls: Sequence[Control | None] | None = None,
    interval: str = INTERVAL,
    bounds: bool = False,
    bounded: bool = True,
    beyond: np.ndarray | None = None,
    by_query: np.ndarray | None = None,
    top_utility: float | None = None,
) -> Estimate:
    """Estimate every system and every contrast of the goal.

    Parameters
    ----------
    goal
        The contrasts wanted; it need not be the goal that the rounds were designed for.
    rounds
        Fully judged rounds, in the order in which they were drawn.
    level
        Confidence level of the intervals.
    planned
        Planned draws of each stage, as fixed before the first judgment: the rounds that were fixed
        in advance are one stage together, each later round is one. By default each twice as
        large as the last.
    combine
        ``"planned"``, equation (2), or ``"balance"``: the balance heuristic over all rounds,
        refused where a round was designed after looking.
    controls
        A control variate for each stage, equation (3), or None where there is none: of
        `evenhand.estimation.cross_fitting.cross_fit`.
    interval
        One of `evenhand.intervals.intervals.INTERVALS`, or ``auto``.
    bounds
        Give intervals, without an estimate, for systems that the rounds do not cover wholly: from
        nothing to `top_utility` for what could not be drawn.
    bounded
        Hold intervals to what contrasts can be, from the range of utilities.
    beyond
        Covariance of the systems that the draws' own does not hold, shape (systems, systems).
    by_query
        What each query adds to the systems' values, where it is no sum of its draws' terms; shape
        (queries, systems).
    top_utility
        Largest utility a pair can have; by default the measure's, where it knows it.

    Returns
    -------
    Estimate

    Raises
    ------
    MissingJudgments
        If a drawn pair is not judged.
    SupportError
        If the balance heuristic or a control variate is asked for where it is biased or cannot be
        summed, bounds where utilities are unbounded, or an interval where it does not hold.
    """
    goal.target.check_linear()
    check_level(level)
    interval = intervals.chosen(interval, controls)
    kind = intervals.check_interval(interval)
    if interval == "cubic" and not bounded:
        raise SupportError(
            "cubic intervals ask what a pair weighs that was not drawn, and weights of "
            f"{goal.target.measure} are those of what was",
            hint="take the interval auto",
        )
    found = combined(goal, rounds, planned=planned, combine=combine, controls=controls)
    omega, together, by_cell, means, _ = found
    if kind.foresees and all(mean is None for mean in means):
        raise SupportError(
            f"{interval} intervals are for estimates with a control variate",
            hint="take the interval auto",
        )
    target, k, m = goal.target, len(goal.target.systems), len(goal.names)
    value, contrast = np.zeros(k), np.zeros(m)
    covariance, contrast_covariance = np.zeros((k, k)), np.zeros((m, m))
    top = target.measure.top_utility if top_utility is None else top_utility
    said = np.concatenate([one.utility for one in rounds])
    evidence = Evidence(
        target,
        said,
        top,
        bounded=bounded,
        n_stages=len(together),
        predicted=any(mean is not None for mean in means),
    )
    judged, shares = np.zeros(k), []
    reached = found.reached()
    for weight, stage, mean in zip(by_cell, together, means, strict=True):
        expected = expected_counts(stage, len(target.pool))
        if mean is not None:
            within = reachable(stage, expected)
            predicted = target.values(np.where(within, weight * mean, 0.0))
            value += predicted
            contrast += contrasts(predicted, goal.matrix)
        for one in stage:
            draws = one.sample.draws
            weights = target.weights(draws)
            residual = one.utility if mean is None else one.utility - mean[draws]
            reach = np.where(expected > 0, weight / np.where(expected > 0, expected, 1.0), 0.0)
            evidence.rounds.append(RoundTerms(one.sample, residual * reach[draws], reach, mean))
            system, contrasted, cov, contrast_cov = map(
                np.asarray,
                _one_round(
                    weights,
                    goal.matrix,
                    residual * weight[draws],
                    expected[draws],
                    one.sample.expected[draws],
                    one.sample.fold_at(draws),
                    sampler=one.sample.sampler,
                    folds=one.sample.n_folds,
                ),
            )
            value += system
            contrast += contrasted
            covariance += cov
            contrast_covariance += contrast_cov
            size = np.sqrt(contrasts(weights, goal.matrix) ** 2 @ goal.importance)
            shares.append(weight[draws] * size / expected[draws])
            judged += np.abs(one.utility) @ weights
    disagreed, contrasts_disagreed, judged_again = noise(goal, together, by_cell)
    if judged_again:
        covariance += disagreed
        contrast_covariance += contrasts_disagreed
        evidence.added.append((disagreed, judged_again))
    if beyond is not None:
        covariance += beyond
        contrast_covariance += goal.matrix @ beyond @ goal.matrix.T
        evidence.added.append((beyond, float(len(said))))
    between = between_queries(goal, together, by_cell, means, by_query=by_query, beyond=beyond)
    every = np.concatenate([np.eye(k), goal.matrix])  # together: one pass over the pool
    together_moments = evidence.moments(every, np.concatenate([value, contrast]), terms=kind.bets)
    moments, contrast_moments = together_moments.split(k)
    std_error = np.sqrt(np.diag(covariance))
    contrast_std_error = np.sqrt(np.diag(contrast_covariance))
    low, high = kind.limits(moments, level)
    contrast_low, contrast_high = kind.limits(contrast_moments, level)

    notes, reached_value = [], value
    total = target.total()
    inside = total if reached.all() else target.total(reached)
    covered = np.where(total > 0, inside / np.where(total > 0, total, 1.0), 1.0)
    covered = np.where(_whole(goal, reached), 1.0, np.minimum(covered, np.nextafter(1.0, 0.0)))
    out = covered < 1
    if out.any():
        notes.append(
            f"{int(out.sum())} of {k} systems are not covered: pairs that they weigh could not be "
            "drawn, so their own value has no unbiased estimate (contrasts have, where given)"
        )
        if bounds:
            if top is None:
                raise SupportError(
                    f"bounds need the largest utility of a pair; {target.measure} knows none",
                    hint="name the scale of the grades",
                )
            high = np.where(out, high + top * (total - inside), high)
        else:
            low, high = np.where(out, np.nan, low), np.where(out, np.nan, high)
        value, std_error = np.where(out, np.nan, value), np.where(out, np.nan, std_error)
    lost = uncovered_contrasts(goal, reached)
    if lost.any():
        notes.append(
            f"{int(lost.sum())} of {m} contrasts are left out: they weigh pairs that could not be "
            "drawn"
        )
        contrast, contrast_std_error, contrast_low, contrast_high = (
            np.where(lost, np.nan, x)
            for x in (contrast, contrast_std_error, contrast_low, contrast_high)
        )
    silent = [target.systems[j] for j in np.flatnonzero((judged == 0) & (total > 0))]
    if silent:
        notes.append(
            f"no judged pair of {listed(silent)} has any utility: its estimate and interval say "
            "nothing yet"
        )
    share = np.concatenate(shares)
    total_share = share.sum()
    return Estimate(
        goal=goal,
        level=level,
        value=value,
        std_error=std_error,
        low=low,
        high=high,
        covered=covered,
        contrast=contrast,
        contrast_std_error=contrast_std_error,
        contrast_low=contrast_low,
        contrast_high=contrast_high,
        covariance=covariance,
        contrast_covariance=contrast_covariance,
        between=between,
        degrees=moments.degrees,
        interval=interval,
        evidence=evidence,
        reached=reached,
        reached_value=reached_value,
        weights=omega,
        estimator=estimator_name(controls),
        n_rounds=len(rounds),
        n_draws=sum(len(one.sample) for one in rounds),
        n_judged=len(np.unique(np.concatenate([one.sample.draws for one in rounds]))),
        ess=float(total_share**2 / (share**2).sum()) if total_share > 0 else 0.0,
        max_weight_share=float(share.max() / total_share) if total_share > 0 else 0.0,
        notes=tuple(notes),
    )


def estimator_name(controls: Sequence[Control | None] | None) -> str:
    """What the estimator is called."""
    used = [control for control in controls or () if control is not None]
    if any(control.crossed for control in used):
        return "cross-fitted"
    return "difference" if used else "importance"


def _predicted(
    numbers: list[list[int]],
    rounds: Sequence[Round],
    controls: Sequence[Control | None] | None,
) -> tuple[list[np.ndarray | None], list[Reach | None]]:
    """The `Combination.means` and ``reaches`` of each stage."""
    means: list[np.ndarray | None] = []
    reaches: list[Reach | None] = []
    for stage, control in zip(numbers, controls or [None] * len(numbers), strict=False):
        if control is not None:
            check_control(control, stage, rounds)
        mean, reach = (None, None) if control is None else (control.mean, control.reach)
        for one in (rounds[i] for i in stage):
            if one.known is not None:
                mean = np.zeros(len(one.known)) if mean is None else mean
                mean = np.where(np.isfinite(one.known), one.known, mean)
                reach = None if reach is None else reach.knowing(one.known)
        means.append(mean)
        reaches.append(reach)
    return means, reaches


def _whole(goal: Goal, reached: np.ndarray) -> np.ndarray:
    """Which systems weigh no cell that could not be drawn."""
    if reached.all():
        return np.ones(len(goal.target.systems), bool)
    missed = (goal.target.weight != 0) & ~reached[goal.target.cell]
    return np.bincount(goal.target.system, missed, minlength=len(goal.target.systems)) == 0


def judge(
    target: Target, sample: Sample, qrels: Qrels, *, depends_on: tuple[str, ...] = ()
) -> Round:
    """Judge a sample from a table of judgments.

    Parameters
    ----------
    target
        Gives the utility of a grade; a pair that several assessors judged has the mean of their
        utilities.
    sample
        The draws.
    qrels
        The judgments; a drawn pair that they lack stays unjudged (NaN).
    depends_on
        See `Round`.
    """
    utility = judged_utility(target.pool, qrels, target.measure)
    return Round(sample, utility[sample.draws], depends_on)
