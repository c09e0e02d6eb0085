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

    D^ = sum_t omega_t D^_t,    sum_t omega_t = 1,    omega_t fixed before round t's first judgment  (2)

with each round divided by its own expectations. Here omega_t is proportional to (planned n_t)
sqrt(t) (Owen and Zhou 2020, *The square root rule for adaptive importance sampling*: at most 9/8 of
the best variance over a wide family of decay rates). Without a plan, rounds count as planned alike:
the size that a later round turns out to have may depend on what was seen, so it must not enter the
weights.

Which case a round belongs to is read from its record, `Round.depends_on`. Pairs that only later
systems return are shared, in the same proportions, among the rounds since these arrived.

**Variance.** Given the past, rounds are uncorrelated (martingale differences):

    Cov^ = sum_t omega_t^2 Cov^_t,        Cov^_t from the sampler                            (3)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenhand import intervals
from evenhand.errors import EvenhandError, MissingJudgments, SupportError
from evenhand.precision import in_float64
from evenhand.sampling import SAMPLERS, Sample
from evenhand.tables import Result, Table
from evenhand.targets import Goal, Target, contrasts
from evenhand.targets import pairs as all_pairs
from evenhand.trec import Qrels
from evenhand.utilities import mean_utility

__all__ = ["Comparisons", "Estimate", "Round", "estimate", "judge", "planned_weights", "terms"]


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


def planned_weights(planned: np.ndarray) -> np.ndarray:
    """omega_t proportional to (planned n_t) sqrt(t), summing to 1: shape (rounds,)."""
    planned = np.asarray(planned, np.float64)
    raw = planned * np.sqrt(np.arange(1, len(planned) + 1))
    return raw / raw.sum()


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What a round drew and what its judgments said.

    Attributes
    ----------
    sample
        The draws.
    utility
        Judged utility of each draw, shape (n,); NaN where the pair is not judged yet.
    depends_on
        Names of the rounds whose judgments the design could have looked at; empty if it was fixed
        before the first judgment.
    name
        The name by which later rounds refer to it.
    n_cells
        Cells of the pool when it was drawn, where systems arrived later; None for all.
    """

    sample: Sample
    utility: np.ndarray
    depends_on: tuple[str, ...] = ()
    name: str = ""
    n_cells: int | None = None


class Comparisons(Result):
    """Every system against every other, with intervals for each alone and for all together."""

    __slots__ = (
        "degrees",
        "factor",
        "high",
        "level",
        "low",
        "multiplier",
        "names",
        "std_error",
        "value",
    )

    def __init__(
        self,
        names: tuple[str, ...],
        value: np.ndarray,
        factor: np.ndarray,
        degrees: np.ndarray,
        level: float,
    ) -> None:
        self.names, self.value, self.level, self.degrees = names, value, level, degrees
        self.factor = factor
        self.std_error = np.sqrt((factor**2).sum(1))
        self.low, self.high = intervals.student(value, self.std_error, degrees, level)
        self.multiplier = intervals.simultaneous(factor, degrees, level)

    def tables(self) -> list[Table]:
        """One table, a row a pair."""
        half = self.multiplier * self.std_error
        decided = np.abs(self.value) > half
        columns = {
            "contrast": self.names,
            "estimate": self.value,
            "std_error": self.std_error,
            "low": self.low,
            "high": self.high,
            "low_all": self.value - half,
            "high_all": self.value + half,
            "decided": ["yes" if d else "no" for d in decided],
        }
        title = (
            f"All pairs; low/high cover each, low_all/high_all all together, at {self.level:.0%}"
        )
        return [Table.of(title, columns, _digits(self.std_error))]

    def to_dict(self) -> dict[str, Any]:
        """The rows of the table, in full precision."""
        return {"level": self.level, "multiplier": self.multiplier, "pairs": self.to_rows()}

    def to_rows(self) -> list[dict[str, Any]]:
        """A dictionary for each pair."""
        table = self.tables()[0]
        return [
            dict(zip(table.columns, row, strict=True))
            for row in zip(*table.columns.values(), strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Estimate(Result):
    """Systems and contrasts with intervals.

    Attributes
    ----------
    goal
        What was asked.
    level
        Confidence level of the intervals.
    value, std_error, low, high
        By system, in the measure's unit, shape (systems,); NaN where a system is not covered.
    covered
        Share of each system's weight that every needed round could draw; shape (systems,).
    contrast, contrast_std_error, contrast_low, contrast_high
        By contrast of the goal; shape (contrasts,).
    covariance, contrast_covariance
        Of the systems' and the contrasts' estimates; shapes (systems, systems), (contrasts,
        contrasts).
    degrees
        Degrees of freedom, by system.
    reached
        Which cells every needed round could draw; shape (cells,).
    reached_value
        By system, the part of its value that lies in those cells; shape (systems,).
    weights
        omega of each stage, equation (2).
    n_rounds, n_draws, n_judged
        Rounds used, draws in them, and distinct pairs judged.
    ess
        Effective sample size of the importance weights: (sum g)^2 / sum g^2 with g = ||a|| / E.
    max_weight_share
        Largest share of one draw in sum g.
    notes
        What a user should know, a sentence each.
    """

    goal: Goal
    level: float
    value: np.ndarray
    std_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    covered: np.ndarray
    contrast: np.ndarray
    contrast_std_error: np.ndarray
    contrast_low: np.ndarray
    contrast_high: np.ndarray
    covariance: np.ndarray
    contrast_covariance: np.ndarray
    degrees: np.ndarray
    reached: np.ndarray
    reached_value: np.ndarray
    weights: np.ndarray
    n_rounds: int
    n_draws: int
    n_judged: int
    ess: float
    max_weight_share: float
    notes: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        """Systems and, unless the goal is `absolute`, contrasts."""
        digits = _digits(np.concatenate([self.std_error, self.contrast_std_error]))
        title = (
            f"{self.goal.target.measure} on this set of {len(self.goal.target.pool.queries)} queries, "
            f"{self.level:.0%} intervals; {self.n_judged:,} pairs judged, {self.n_draws:,} draws, "
            f"{self.n_rounds} round{'s' if self.n_rounds != 1 else ''}"
        )
        columns = {key: [row[key] for row in self._systems()] for key in self._systems()[0]}
        tables = [Table.of(title, columns, digits)]
        if self.goal.kind != "absolute":
            rows = self._contrasts()
            columns = {key: [row[key] for row in rows] for key in rows[0]}
            tables.append(Table.of(f"Contrasts of the goal '{self.goal.kind}'", columns, digits))
        return tables

    def notes_shown(self) -> tuple[str, ...]:
        """Diagnostics and notes."""
        return (
            f"effective sample size {self.ess:.1f}; largest weight share {self.max_weight_share:.3f}",
            *self.notes,
        )

    def _systems(self) -> list[dict[str, Any]]:
        columns = (
            self.goal.target.systems,
            self.value,
            self.std_error,
            self.low,
            self.high,
            self.covered,
        )
        names = ("system", "estimate", "std_error", "low", "high", "covered")
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _contrasts(self) -> list[dict[str, Any]]:
        columns = (
            self.goal.names,
            self.contrast,
            self.contrast_std_error,
            self.contrast_low,
            self.contrast_high,
        )
        names = ("contrast", "estimate", "std_error", "low", "high")
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``evenhand estimate``."""
        return {
            "measure": str(self.goal.target.measure),
            "goal": self.goal.kind,
            "for": "queries",
            "level": self.level,
            "n_queries": len(self.goal.target.pool.queries),
            "n_rounds": self.n_rounds,
            "n_draws": self.n_draws,
            "n_judged": self.n_judged,
            "systems": self._systems(),
            "contrasts": self._contrasts(),
            "diagnostics": {"ess": self.ess, "max_weight_share": self.max_weight_share},
            "notes": list(self.notes),
        }

    @cached_property
    def pairs(self) -> Comparisons:
        """Every system against every other, with simultaneous intervals; NaN where a pair is not
        covered."""
        goal = all_pairs(self.goal.target)
        lost = _uncovered_contrasts(goal, self.reached)
        # F F' = covariance; an eigenvector basis stands a covariance of lower rank than size.
        eigenvalue, eigenvector = np.linalg.eigh(self.covariance)
        factor = goal.matrix @ (eigenvector * np.sqrt(np.maximum(eigenvalue, 0.0)))
        first, second = (np.argmax(goal.matrix, 1), np.argmin(goal.matrix, 1))
        same = (self._same[first, second])[:, None]
        degrees = np.minimum(self.degrees[first], self.degrees[second])
        return Comparisons(
            goal.names,
            np.where(lost, np.nan, goal.matrix @ self.reached_value),
            np.where(same, 0.0, factor),
            degrees,
            self.level,
        )

    @cached_property
    def _same(self) -> np.ndarray:
        """Which systems have the same weights everywhere, so that they differ by exactly 0."""
        target = self.goal.target
        counts = target.weight != 0
        system, cell, weight = (
            x[counts] for x in (target.pool.system, target.pool.cell, target.weight)
        )
        order = np.argsort(system, kind="stable")
        bounds = np.cumsum(np.bincount(system, minlength=len(target.systems)))[:-1]
        ranking = zip(np.split(cell[order], bounds), np.split(weight[order], bounds), strict=True)
        first: dict[tuple[bytes, bytes], int] = {}
        group = [
            first.setdefault((c.tobytes(), w.tobytes()), j) for j, (c, w) in enumerate(ranking)
        ]
        return np.equal.outer(group, group)


def _digits(std_error: np.ndarray) -> int:
    """Decimals that show the smallest standard error with two digits."""
    positive = std_error[np.isfinite(std_error) & (std_error > 0)]
    return int(np.clip(1 - np.floor(np.log10(positive.min())), 2, 8)) if len(positive) else 4


def _stages(rounds: Sequence[Round], combine: str) -> list[list[Round]]:
    """Rounds that were fixed before the first judgment together, the others each alone."""
    later = [r for r in rounds if r.depends_on]
    if combine == "balance" and later:
        names = ", ".join(r.name or f"round {rounds.index(r) + 1}" for r in later)
        raise SupportError(
            f"the balance heuristic is biased for rounds that were designed after looking: {names}",
            hint="combine='planned' weights rounds by the plan, which is exactly unbiased",
        )
    if combine not in ("planned", "balance"):
        raise EvenhandError(
            f"unknown way to combine rounds {combine!r}", hint="'planned' or 'balance'"
        )
    together = [r for r in rounds if not r.depends_on]
    return ([together] if together else []) + [[r] for r in later]


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
                f"{one.name or f'round {number}'}: {len(missing):,} of {len(one.sample.cells):,} pairs "
                "are not judged yet",
                hint="judge them all: leaving pairs out biases the estimate",
            )


@partial(jax.jit, static_argnames=("sampler",))
def _one_round(weights, matrix, utility, stage_expected, own_expected, *, sampler):
    """Sums and covariances of one round's terms, for systems and contrasts."""
    law = SAMPLERS[sampler]
    z_system = terms(weights, utility, stage_expected)
    z_contrast = terms(contrasts(weights, matrix), utility, stage_expected)
    cov_system, degrees = law.covariance(z_system, own_expected)
    cov_contrast, _ = law.covariance(z_contrast, own_expected)
    return z_system.sum(0), z_contrast.sum(0), cov_system, cov_contrast, degrees


@in_float64
def estimate(
    goal: Goal,
    rounds: Sequence[Round],
    *,
    level: float = 0.95,
    planned: Sequence[float] | None = None,
    combine: str = "planned",
    bounds: bool = False,
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
        in advance are one stage together, each later round is one. By default all stages alike.
    combine
        ``"planned"``, equation (2), or ``"balance"``: the balance heuristic over all rounds,
        refused where a round was designed after looking.
    bounds
        Give intervals, without an estimate, for systems that the rounds do not cover wholly: from
        nothing to
        `top_utility` for what could not be drawn.
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
        If the balance heuristic is asked for where it is biased, or bounds where utilities are
        unbounded.
    """
    intervals.check_level(level)
    _check(goal, rounds)
    stages = _stages(rounds, combine)
    if planned is not None and len(planned) < len(stages):
        raise EvenhandError(f"the plan names {len(planned)} stages, there are {len(stages)}")
    omega = planned_weights(
        np.ones(len(stages)) if planned is None else np.asarray(planned[: len(stages)])
    )
    by_cell = _weights_by_cell(omega, stages, len(goal.target.pool))
    target, k, m = goal.target, len(goal.target.systems), len(goal.names)
    value, contrast = np.zeros(k), np.zeros(m)
    covariance, contrast_covariance = np.zeros((k, k)), np.zeros((m, m))
    variances, contrast_variances, degrees, shares = [], [], [], []
    reached = (by_cell > 0).sum(0) > 0
    for weight, stage in zip(by_cell, stages, strict=True):
        expected = sum((r.sample.expected for r in stage), np.zeros(len(target.pool)))
        reached = reached & ((expected > 0) | (weight == 0))
        for one in stage:
            draws = one.sample.draws
            weights = target.weights(draws)
            system, contrasted, cov, contrast_cov, freedom = map(
                np.asarray,
                _one_round(
                    weights,
                    goal.matrix,
                    one.utility * weight[draws],
                    expected[draws],
                    one.sample.expected[draws],
                    sampler=one.sample.sampler,
                ),
            )
            value += system
            contrast += contrasted
            covariance += cov
            contrast_covariance += contrast_cov
            variances.append(np.diag(cov))
            contrast_variances.append(np.diag(contrast_cov))
            degrees.append(float(freedom))
            size = np.sqrt(np.asarray(contrasts(weights, goal.matrix)) ** 2 @ goal.importance)
            shares.append(weight[draws] * size / expected[draws])
    freedom = intervals.welch(np.array(variances), np.array(degrees))
    contrast_freedom = intervals.welch(np.array(contrast_variances), np.array(degrees))
    std_error = np.sqrt(np.diag(covariance))
    contrast_std_error = np.sqrt(np.diag(contrast_covariance))
    low, high = intervals.student(value, std_error, freedom, level)
    contrast_low, contrast_high = intervals.student(
        contrast, contrast_std_error, contrast_freedom, level
    )

    notes, reached_value = [], value
    total, inside = target.total(), target.total(reached)
    covered = np.where(total > 0, inside / np.where(total > 0, total, 1.0), 1.0)
    covered = np.where(
        np.isclose(covered, 1.0, rtol=0, atol=1e-12) & _whole(goal, reached), 1.0, covered
    )
    out = covered < 1
    if out.any():
        notes.append(
            f"{int(out.sum())} of {k} systems are not covered: pairs that they weigh could not be drawn, "
            "so their own value has no unbiased estimate (the contrasts have, where they are given)"
        )
        if bounds:
            top = target.measure.top_utility if top_utility is None else top_utility
            if top is None:
                raise SupportError(
                    f"bounds need the largest utility that a pair can have; {target.measure} knows none",
                    hint="name the scale of the grades",
                )
            high = np.where(out, high + top * (total - inside), high)
        else:
            low, high = np.where(out, np.nan, low), np.where(out, np.nan, high)
        value, std_error = np.where(out, np.nan, value), np.where(out, np.nan, std_error)
    lost = _uncovered_contrasts(goal, reached)
    if lost.any():
        notes.append(
            f"{int(lost.sum())} of {m} contrasts weigh pairs that could not be drawn and are left out"
        )
        contrast, contrast_std_error, contrast_low, contrast_high = (
            np.where(lost, np.nan, x)
            for x in (contrast, contrast_std_error, contrast_low, contrast_high)
        )
    if not any((one.utility > 0).any() for one in rounds):
        notes.append(
            "no judged pair has any utility: estimates are 0 and their intervals say nothing yet"
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
        degrees=freedom,
        reached=reached,
        reached_value=reached_value,
        weights=omega,
        n_rounds=len(rounds),
        n_draws=sum(len(one.sample) for one in rounds),
        n_judged=len(np.unique(np.concatenate([one.sample.draws for one in rounds]))),
        ess=float(total_share**2 / (share**2).sum()) if total_share > 0 else 0.0,
        max_weight_share=float(share.max() / total_share) if total_share > 0 else 0.0,
        notes=tuple(notes),
    )


def _weights_by_cell(omega: np.ndarray, stages: list[list[Round]], n_cells: int) -> np.ndarray:
    """Weight of each stage at each cell, shape (stages, cells): equation (2) cell by cell.

    A cell that joined the pool later is shared only among the stages since then. Which these are
    depends on when systems arrived, never on what was judged, so each weight is still fixed in
    advance.
    """
    raw = np.repeat(omega[:, None], n_cells, axis=1)
    for row, stage in zip(raw, stages, strict=True):
        known = max(n_cells if r.n_cells is None else r.n_cells for r in stage)
        row[known:] = 0.0
    total = raw.sum(0)
    return raw / np.where(total > 0, total, 1.0)


def _whole(goal: Goal, reached: np.ndarray) -> np.ndarray:
    """Which systems weigh no cell that could not be drawn."""
    missed = (goal.target.weight != 0) & ~reached[goal.target.pool.cell]
    return np.bincount(goal.target.pool.system, missed, minlength=len(goal.target.systems)) == 0


def _uncovered_contrasts(goal: Goal, reached: np.ndarray) -> np.ndarray:
    """Which contrasts weigh a cell that could not be drawn."""
    lost = np.zeros(len(goal.names), bool)
    cells = np.flatnonzero(~reached)
    # Some at a time: contrasts are dense here, and there may be thousands.
    for some in np.array_split(cells, -(-len(cells) // 4096)) if len(cells) else ():
        lost |= (goal.at(some) != 0).any(0)
    return lost


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
    cells, utility = mean_utility(target.pool.cells_of(qrels), qrels.grade, target.measure)
    by_cell = np.full(len(target.pool), np.nan)
    by_cell[cells] = utility
    return Round(sample, by_cell[sample.draws], depends_on)
