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
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.designs.utilities import judged_utility
from evenhand.errors import SupportError, listed
from evenhand.estimands.contrasts import contrasts
from evenhand.estimands.goals import Goal, absolute
from evenhand.estimands.targets import Target
from evenhand.estimation.estimates import Estimate, uncovered_contrasts
from evenhand.float64 import in_float64
from evenhand.formats.qrels import Qrels
from evenhand.intervals import intervals
from evenhand.intervals.between_queries import between_queries
from evenhand.intervals.confidence import INTERVAL, check_level
from evenhand.intervals.moments import Evidence
from evenhand.sampling.assessor_variance import noise
from evenhand.sampling.combination import Combination, CombinedRound, combined
from evenhand.sampling.rounds import Control, Round
from evenhand.sampling.samplers import SAMPLERS
from evenhand.sampling.samples import Sample

__all__ = ["estimate", "estimator_name", "judge", "terms"]


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


@partial(jax.jit, static_argnames=("sampler", "folds"))
def _one_round(weights, matrix, residual, stage_expected, own_expected, fold, *, sampler, folds):
    """Sums and covariances of one round's terms, for systems and contrasts."""
    law = SAMPLERS[sampler]
    z_system = terms(weights, residual, stage_expected)
    z_contrast = terms(contrasts(weights, matrix), residual, stage_expected)
    cov_system, _ = law.covariance(z_system, own_expected, fold, folds)
    cov_contrast, _ = law.covariance(z_contrast, own_expected, fold, folds)
    return z_system.sum(0), z_contrast.sum(0), cov_system, cov_contrast


@dataclass(slots=True, eq=False)
class _Sums:
    """What the rounds add up to: equation (2), its covariance (4), and the weight of each draw."""

    value: np.ndarray
    contrast: np.ndarray
    covariance: np.ndarray
    contrast_covariance: np.ndarray
    judged: np.ndarray
    shares: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(cls, goal: Goal, found: Combination) -> _Sums:
        """Add up predictions and draws, stage by stage."""
        target, k, m = goal.target, len(goal.target.systems), len(goal.names)
        sums = cls(np.zeros(k), np.zeros(m), np.zeros((k, k)), np.zeros((m, m)), np.zeros(k))
        for stage in found.stages:
            by_cell = stage.predicted()
            if by_cell is not None:
                predicted = target.values(by_cell)
                sums.value += predicted
                sums.contrast += contrasts(predicted, goal.matrix)
            for one in stage.rounds():
                sums._add(goal, one)
        return sums

    def _add(self, goal: Goal, one: CombinedRound) -> None:
        weights, sample = goal.target.weights(one.draws), one.round.sample
        system, contrast, covariance, contrast_covariance = map(
            np.asarray,
            _one_round(
                weights,
                goal.matrix,
                one.residual * one.weight,
                one.expected,
                one.own_expected,
                sample.fold_at(one.draws),
                sampler=sample.sampler,
                folds=sample.n_folds,
            ),
        )
        self.value += system
        self.contrast += contrast
        self.covariance += covariance
        self.contrast_covariance += contrast_covariance
        size = np.sqrt(contrasts(weights, goal.matrix) ** 2 @ goal.importance)
        self.shares.append(one.weight * size / one.expected)
        self.judged += np.abs(one.round.utility) @ weights

    def beyond(
        self, goal: Goal, covariance: np.ndarray, of_contrasts: np.ndarray | None = None
    ) -> None:
        """Add a covariance that the draws' own does not hold."""
        if of_contrasts is None:
            of_contrasts = goal.matrix @ covariance @ goal.matrix.T
        self.covariance += covariance
        self.contrast_covariance += of_contrasts


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
    level, interval
        Confidence level, and one of `evenhand.intervals.intervals.INTERVALS` or ``auto``.
    planned
        Planned draws of each stage, as fixed before the first judgment: rounds fixed in advance are
        one stage together, each later round is one. By default each is twice as large as the last.
    combine
        ``"planned"``, equation (2); ``"each"``: the same, every round a stage of its own;
        ``"balance"``: the balance heuristic, refused for rounds designed after looking.
    controls
        A control variate for each stage, equation (3), or None: see `control_variates`.
    bounds
        Also give intervals, from no utility to `top_utility`, for systems not covered completely.
    bounded
        Restrict intervals to what contrasts can be, from the range of utilities.
    beyond, by_query
        Covariance of the systems beside that of the draws, shape (systems, systems); and what each
        query adds to values that are no sums of draws' terms, shape (queries, systems).
    top_utility
        Largest utility a pair can have; by default the measure's, where it knows it.

    Raises
    ------
    MissingJudgments
        If a drawn pair is not judged.
    SupportError
        If the balance heuristic or a control variate is asked for where it is biased or cannot be
        summed, bounds where utilities are unbounded, or an interval where it does not hold.

    Examples
    --------
    >>> import numpy as np
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2}}, "y": {"q": {"b": 1}}}
    >>> goal = eh.pair(eh.target(eh.pool(eh.read_runs(runs)), "P@1"))
    >>> census = eh.Round(eh.Sample("distinct", np.arange(2), np.ones(2)), np.array([1.0, 0.0]))
    >>> found = eh.estimate(goal, [census])  # every pair is judged: there is no error
    >>> found.contrast.tolist(), found.contrast_std_error.tolist()
    ([1.0], [0.0])
    """
    kind = _checked(goal, level, intervals.chosen(interval, controls), bounded)
    found = combined(goal, rounds, planned=planned, combine=combine, controls=controls)
    top = goal.target.measure.top_utility if top_utility is None else top_utility
    sums = _Sums.of(goal, found)
    evidence = _evidence(goal, found, sums, top, bounded, beyond)
    columns = _columns(goal, sums, evidence, kind, level)
    return Estimate(
        goal=goal,
        level=level,
        **_covered(goal, found.reached(), sums, columns, top, bounds),
        between=between_queries(goal, found, by_query=by_query, beyond=beyond),
        interval=kind.name,
        evidence=evidence,
        weights=found.weights,
        estimator=estimator_name(controls),
        **_counts(rounds, np.concatenate(sums.shares)),
    )


def _counts(rounds: Sequence[Round], share: np.ndarray) -> dict[str, Any]:
    """How much was drawn and judged, and how evenly the draws weigh; `share` by draw."""
    total = share.sum()
    return {
        "n_rounds": len(rounds),
        "n_draws": sum(len(one.sample) for one in rounds),
        "n_judged": len(np.unique(np.concatenate([one.sample.draws for one in rounds]))),
        "ess": float(total**2 / (share**2).sum()) if total > 0 else 0.0,
        "max_weight_share": float(share.max() / total) if total > 0 else 0.0,
    }


def _evidence(
    goal: Goal,
    found: Combination,
    sums: _Sums,
    top: float | None,
    bounded: bool,
    beyond: np.ndarray | None,
) -> Evidence:
    """What moments are made from; covariances beside the draws' own are added to the sums, too."""
    evidence = Evidence.of(goal.target, found, top=top, bounded=bounded)
    disagreed, contrasts_disagreed, degrees = noise(goal, found)
    if degrees:
        sums.beyond(goal, disagreed, contrasts_disagreed)
        evidence.added.append((disagreed, degrees))
    if beyond is not None:
        sums.beyond(goal, beyond)
        evidence.added.append((beyond, float(len(evidence.utility))))
    return evidence


def _checked(goal: Goal, level: float, interval: str, bounded: bool) -> intervals.Interval:
    """The interval wanted; refuses measures, levels and intervals that cannot be."""
    goal.target.check_linear()
    check_level(level)
    kind = intervals.check_interval(interval)
    if interval == "cubic" and not bounded:
        raise SupportError(
            "cubic intervals ask what a pair weighs that was not drawn, and weights of "
            f"{goal.target.measure} are those of what was",
            hint="take the interval auto",
        )
    return kind


def _columns(
    goal: Goal, sums: _Sums, evidence: Evidence, kind: intervals.Interval, level: float
) -> dict[str, Any]:
    """Estimates, errors and limits of systems and contrasts, by their names in `Estimate`."""
    if kind.foresees and not evidence.predicted:
        raise SupportError(
            f"{kind.name} intervals are for estimates with a control variate",
            hint="take the interval auto",
        )
    k = len(goal.target.systems)
    own = absolute(goal.target)
    every = np.concatenate([own.matrix, goal.matrix])  # together: one pass over the pool
    blocks = [(k, own.form), (len(goal.matrix), goal.form)]
    both = np.concatenate([sums.value, sums.contrast])
    moments, contrast_moments = evidence.moments(every, both, blocks=blocks, terms=kind.bets).split(
        k
    )
    low, high = kind.limits(moments, level)
    contrast_low, contrast_high = kind.limits(contrast_moments, level)
    return {
        "value": sums.value,
        "reached_value": sums.value,
        "std_error": np.sqrt(np.diag(sums.covariance)),
        "low": low,
        "high": high,
        "contrast": sums.contrast,
        "contrast_std_error": np.sqrt(np.diag(sums.contrast_covariance)),
        "contrast_low": contrast_low,
        "contrast_high": contrast_high,
        "covariance": sums.covariance,
        "contrast_covariance": sums.contrast_covariance,
        "degrees": moments.degrees,
    }


def _covered(
    goal: Goal,
    reached: np.ndarray,
    sums: _Sums,
    columns: dict[str, Any],
    top: float | None,
    bounds: bool,
) -> dict[str, Any]:
    """The columns without what draws could not reach, with what says so."""
    target, columns, notes = goal.target, dict(columns), []
    total = target.total()
    inside = total if reached.all() else target.total(reached)
    covered = np.where(total > 0, inside / np.where(total > 0, total, 1.0), 1.0)
    covered = np.where(_whole(goal, reached), 1.0, np.minimum(covered, np.nextafter(1.0, 0.0)))
    columns["covered"], out = covered, covered < 1
    if out.any():
        notes.append(
            f"{int(out.sum())} of {len(out)} systems are not covered: pairs that they weigh "
            "could not be drawn, so their own value has no unbiased estimate (contrasts have, "
            "where given)"
        )
        blank = ["value", "std_error", *(() if bounds else ("low", "high"))]
        columns |= {name: np.where(out, np.nan, columns[name]) for name in blank}
        if bounds:
            if top is None:
                raise SupportError(
                    f"bounds need the largest utility of a pair; {target.measure} knows none",
                    hint="name the scale of the grades",
                )
            high = columns["high"]
            columns["high"] = np.where(out, high + top * (total - inside), high)
    lost = uncovered_contrasts(goal, reached)
    if lost.any():
        notes.append(
            f"{int(lost.sum())} of {len(lost)} contrasts are left out: they weigh pairs that could "
            "not be drawn"
        )
        blank = ("contrast", "contrast_std_error", "contrast_low", "contrast_high")
        columns |= {name: np.where(lost, np.nan, columns[name]) for name in blank}
    silent = [target.systems[j] for j in np.flatnonzero((sums.judged == 0) & (total > 0))]
    if silent:
        notes.append(
            f"no judged pair of {listed(silent)} has any utility: its estimate and interval say "
            "nothing yet"
        )
    return {**columns, "reached": reached, "notes": tuple(notes)}


def estimator_name(controls: Sequence[Control | None] | None) -> str:
    """What the estimator is called."""
    used = [control for control in controls or () if control is not None]
    if any(control.crossed for control in used):
        return "cross-fitted"
    return "difference" if used else "importance"


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

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> goal = eh.pair(target)
    >>> design = eh.design(goal, eh.rank_utility(target.pool))
    >>> sample = eh.draw(jax.random.key(0), design, 3)
    >>> judged = eh.judge(target, sample, eh.read_qrels({"q": {"a": 1, "b": 0, "c": 1}}))
    >>> judged.utility[np.argsort(sample.draws)].tolist()
    [1.0, 0.0, 1.0]
    """
    utility = judged_utility(target.pool, qrels, target.measure)
    return Round(sample, utility[sample.draws], depends_on)
