"""What the rounds of a study say: systems, contrasts and pairs, with intervals.

An `Estimate` is made by `evenhand.estimation.importance.estimate`; its `~Estimate.pairs` compares
every system with every other. Both print as tables, and as the JSON of ``evenhand estimate``.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evenhand.errors import EvenhandError, listed
from evenhand.estimands.goals import Goal, baseline, rank
from evenhand.estimands.goals import pairs as all_pairs
from evenhand.estimands.targets import Target, target
from evenhand.float64 import in_float64
from evenhand.intervals import intervals
from evenhand.intervals.between_queries import positive, worth
from evenhand.intervals.confidence import percent
from evenhand.intervals.moments import Evidence, of_contrasts
from evenhand.intervals.simultaneous import Comparisons, Joint, p_alone
from evenhand.results import Result, Table, decimals, rows
from evenhand.sampling.samplers import SAMPLERS

__all__ = ["Estimate", "IntervalTable", "uncovered_contrasts"]


@dataclass(frozen=True, eq=False, kw_only=True)
class IntervalTable(Result):
    """Systems and contrasts with intervals, as tables and as JSON.

    Attributes
    ----------
    goal
        What was asked.
    level
        Confidence level of the intervals.
    value, std_error, low, high
        By system, in the measure's unit, shape (systems,); NaN where a system is not covered.
    contrast, contrast_std_error, contrast_low, contrast_high
        By contrast of the goal; shape (contrasts,).
    covariance, contrast_covariance
        Of the systems' and the contrasts' estimates; shapes (systems, systems), (contrasts,
        contrasts).
    degrees
        Degrees of freedom, by system.
    interval
        Kind of the intervals, one of `evenhand.intervals.intervals.INTERVALS`.
    weights
        omega of each stage, fixed before its first judgment; shape (stages,).
    n_rounds, n_draws, n_judged
        Rounds used, draws in them, and distinct pairs judged.
    notes
        What a user should know, a sentence each.
    """

    goal: Goal
    level: float
    value: np.ndarray
    std_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    contrast: np.ndarray
    contrast_std_error: np.ndarray
    contrast_low: np.ndarray
    contrast_high: np.ndarray
    covariance: np.ndarray
    contrast_covariance: np.ndarray
    degrees: np.ndarray
    interval: str
    weights: np.ndarray
    n_rounds: int
    n_draws: int
    n_judged: int
    notes: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        """Systems and, unless the goal is `absolute`, contrasts."""
        digits = decimals(np.concatenate([self.std_error, self.contrast_std_error]))
        title = (
            f"{self._asked()}, {self.n_draws:,} draws, "
            f"{self.n_rounds} round{'s' if self.n_rounds != 1 else ''}"
        )
        tables = [Table.of(title, self._systems(), digits)]
        if self.goal.kind != "absolute":
            title = f"Contrasts of the goal '{self.goal.kind}'"
            tables.append(Table.of(title, self._contrasts(), digits))
        return tables

    @abstractmethod
    def _asked(self) -> str:
        """What was asked, and what was judged: the head of the title."""

    def _systems(self) -> dict[str, Any]:
        return {
            "system": self.goal.target.systems,
            "estimate": self.value,
            "std_error": self.std_error,
            "low": self.low,
            "high": self.high,
        }

    def _contrasts(self) -> dict[str, Any]:
        return {
            "contrast": self.goal.names,
            "estimate": self.contrast,
            "std_error": self.contrast_std_error,
            "low": self.contrast_low,
            "high": self.contrast_high,
        }

    def _found(self, question: str) -> dict[str, Any]:
        return {
            "measure": str(self.goal.target.measure),
            "goal": self.goal.kind,
            "for": question,
            "level": self.level,
            "n_queries": len(self.goal.target.pool.queries),
            "n_rounds": self.n_rounds,
            "n_draws": self.n_draws,
            "n_judged": self.n_judged,
            "systems": rows(self._systems()),
            "contrasts": rows(self._contrasts()),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate(IntervalTable):
    """Systems and contrasts with intervals, from judged pairs of queries and documents.

    Attributes
    ----------
    covered
        Share of each system's weight that every needed round could draw; shape (systems,).
    between
        B^ of `evenhand.intervals.between_queries`: what the choice of queries adds to the systems'
        covariance, for claims about queries like these.
    evidence
        The judged rounds, to be asked about further contrasts.
    reached
        Which cells every needed round could draw; shape (cells,).
    reached_value
        By system, the part of its value that lies in those cells; shape (systems,).
    estimator
        ``importance``, ``difference`` or ``cross-fitted`` (`evenhand.estimation.importance`), or
        ``self-normalised`` (`evenhand.estimation.self_normalised`).
    ess
        Effective sample size of the importance weights: (sum g)^2 / sum g^2 with g = ||a|| / E.
    max_weight_share
        Largest share of one draw in sum g.
    question
        ``queries``: intervals answer for this set of queries; ``population``: for queries like
        these.
    stop
        Whether a rule to stop is met (`evenhand.decisions.stopping`); None where none was asked.

    See Also
    --------
    IntervalTable : The values, intervals and covariances.
    """

    covered: np.ndarray
    between: np.ndarray
    evidence: Evidence
    reached: np.ndarray
    reached_value: np.ndarray
    estimator: str
    ess: float
    max_weight_share: float
    question: str = "queries"
    stop: bool | None = None

    def for_population(self) -> Estimate:
        """The same estimates with intervals for queries like these.

        Each side is widened by what the choice of queries adds
        (`evenhand.intervals.intervals.widened`).

        Raises
        ------
        EvenhandError
            If there is but one query, or the intervals hold for this set of queries alone.
        """
        n_queries = len(self.goal.target.pool.queries)
        if intervals.check_interval(self.interval).bets:
            raise EvenhandError(
                f"{self.interval} intervals are for this set of queries, and nothing bounds others",
                hint="--for queries, or --interval auto",
            )
        if n_queries < 2:
            raise EvenhandError(
                "one query says nothing of other queries", hint="ask for this set of queries"
            )
        if self.question == "population":
            return self
        found: dict[str, Any] = {"covariance": self.covariance + positive(self.between)}
        found["contrast_covariance"] = self.contrast_covariance + self.contrast_between
        for prefix in ("", "contrast_"):
            value = self.contrast if prefix else self.value
            matrix = self.goal.matrix if prefix else np.eye(len(value))
            between = of_contrasts(self.between, matrix)
            low, high = getattr(self, f"{prefix}low"), getattr(self, f"{prefix}high")
            low, high = intervals.widened(value, low, high, between, n_queries - 1, self.level)
            std_error = np.sqrt(np.diag(found[f"{prefix}covariance"]))
            std_error = np.where(np.isnan(value), np.nan, std_error)
            found |= {f"{prefix}low": low, f"{prefix}high": high, f"{prefix}std_error": std_error}
        within, between = np.diag(self.contrast_covariance), np.diag(self.contrast_between)
        share = float(between.sum() / max(within.sum() + between.sum(), 1e-300))
        price = worth(within.sum(), between.sum(), self.n_judged, n_queries)
        if self.zero_variance_unknown(self.goal.matrix, np.sqrt(within)).any():
            notes = [
                "draws say nothing yet of some contrasts: whether further judgments or further "
                "queries narrow these intervals cannot be told"
            ]
        else:
            notes = [
                f"{share:.0%} of the contrasts' variance comes from the choice of the "
                f"{n_queries:,} queries, the rest from judging only some pairs",
                f"a further query, judged like these, is worth up to {price:,.0f} judgments "
                f"(its own take {self.n_judged / n_queries:,.0f})"
                if np.isfinite(price)
                else "every pair is judged: only further queries can narrow these intervals",
            ]
        if (np.isnan(self.value) & np.isfinite(self.low)).any():
            notes.append(
                "bounds of systems that are not covered are for this set of queries, and left out"
            )
        return replace(self, **found, question="population", notes=(*notes, *self.notes))

    def moved(self, value: np.ndarray, covered: np.ndarray) -> Estimate:
        """The same errors around other values, where these are no sums of draws' terms.

        Parameters
        ----------
        value
            Of the systems, shape (systems,); NaN stays where a system is not covered.
        covered
            The covered share of each such system; shape (systems,).
        """
        away, lost = value - self.reached_value, self.covered < 1
        moved = self.goal.matrix @ away
        return replace(
            self,
            value=np.where(lost, np.nan, value),
            covered=np.where(lost, covered, 1.0),
            low=self.low + away,
            high=self.high + away,
            contrast=self.contrast + moved,
            contrast_low=self.contrast_low + moved,
            contrast_high=self.contrast_high + moved,
            reached_value=value,
        )

    @cached_property
    def lists(self) -> Target:
        """What systems return, weighed by rank, also where the goal has weights of its own."""
        own = self.goal.target
        return own if own.entries is None else target(own.pool, own.measure)

    @cached_property
    def alike(self) -> np.ndarray:
        """The first system that returns the same, often itself: int, shape (systems,)."""
        return self.lists.alike()

    @in_float64
    def zero_variance_unknown(self, matrix: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Which contrasts seem not to vary since nothing that varies was seen yet.

        Exactly known are only those whose systems differ in pairs that were certain to be drawn.

        Parameters
        ----------
        matrix
            C, shape (contrasts, systems).
        spread
            Of each contrast, a standard error or width; shape (contrasts,).
        """
        own, unsure = self.lists, ~self.reached
        for one in self.evidence.rounds:
            free = SAMPLERS[one.sample.sampler].free(one.sample.expected)
            unsure |= (one.reach > 0) & (np.asarray(free) > 0)
        if own.whole is not None:  # so are cells that are not at hand
            unsure[:] = True
        left = replace(own, weight=np.where(unsure[own.cell], own.weight, 0.0))
        k = len(own.systems)
        varies = np.bincount(left.system, left.weight != 0, minlength=k) > 0
        apart = matrix @ ((left.alike()[:, None] == np.arange(k)) * varies[:, None])
        return (spread == 0) & (np.abs(apart).max(1) > 1e-12)

    def why_unranked(self) -> str | None:
        """Why the chances to be the best are unknown yet; None where they are known."""
        systems = np.array(self.goal.target.systems)
        if len(systems) < 2:
            return "there is one system only"
        lost = np.isnan(self.value)
        if lost.any():
            return f"{listed(systems[lost].tolist())} {_is_are(lost)} not covered"
        untold = self.zero_variance_unknown(np.eye(len(systems)), np.sqrt(np.diag(self.covariance)))
        if untold.any():
            return f"draws say nothing yet of {listed(systems[untold].tolist())}"
        return None

    @cached_property
    def contrast_between(self) -> np.ndarray:
        """What the choice of queries adds to the contrasts' covariance."""
        matrix = self.goal.matrix
        return positive(matrix @ self.between @ matrix.T)

    def _asked(self) -> str:
        which = "this set of" if self.question == "queries" else "queries like these"
        queries = f"{which} {len(self.goal.target.pool.queries):,} queries"
        return (
            f"{self.goal.target.measure} on {queries}, {percent(self.level)} intervals; "
            f"{self.n_judged:,} pairs judged"
        )

    def notes_shown(self) -> tuple[str, ...]:
        """Diagnostics and notes."""
        return (
            f"{self.estimator} estimates; effective sample size {self.ess:.1f}, "
            f"largest share of one draw {self.max_weight_share:.3f}",
            *self.notes,
        )

    def _systems(self) -> dict[str, Any]:
        return {**super()._systems(), "covered": self.covered}

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``evenhand estimate``."""
        return {
            **self._found(self.question),
            "diagnostics": {"ess": self.ess, "max_weight_share": self.max_weight_share},
            "estimator": self.estimator,
            **({} if self.stop is None else {"stop": self.stop}),
            "notes": list(self.notes),
        }

    @cached_property
    def pairs(self) -> Comparisons:
        """Every system against every other; NaN where a pair is not covered."""
        return self.compare(all_pairs(self.goal.target))

    def against(self, system: str | None = None) -> Comparisons:
        """Every other system against one of them, or against the mean of all.

        Raises
        ------
        EvenhandError
            If there is no such system.
        """
        target = self.goal.target
        return self.compare(rank(target) if system is None else baseline(target, system))

    def compare(self, goal: Goal) -> Comparisons:
        """Any contrasts of the systems, each alone and all together."""
        lost = uncovered_contrasts(goal, self.reached)
        # F F' = covariance; an eigenvector basis allows a covariance of lower rank than size.
        eigenvalue, eigenvector = np.linalg.eigh(self.covariance)
        factor = goal.matrix @ (eigenvector * np.sqrt(np.maximum(eigenvalue, 0.0)))
        # Twins differ by exactly 0, however their weights are rounded.
        apart = goal.matrix @ (self.alike[:, None] == np.arange(len(self.alike)))
        factor[np.abs(apart).max(1) <= 1e-12] = 0.0
        involved = goal.matrix != 0
        degrees = np.where(involved, self.degrees, np.inf).min(1)
        value = np.where(lost, np.nan, goal.matrix @ self.reached_value)
        std_error = np.where(lost, np.nan, np.sqrt((factor**2).sum(1)))
        kind = intervals.check_interval(self.interval)
        blocks = [(len(goal.matrix), goal.form)]
        moments = self.evidence.moments(goal.matrix, value, blocks=blocks, terms=kind.bets)
        spread = kind.spread(moments)
        between, known_to = np.zeros(len(value)), len(self.goal.target.pool.queries) - 1
        population = self.question == "population"
        if population:
            between = of_contrasts(self.between, goal.matrix)
            spread = np.sqrt(spread**2 + between)
            std_error = np.where(lost, np.nan, np.sqrt(moments.variance + between))
            degrees = np.minimum(degrees, known_to)

        def limits(level: intervals.Level) -> tuple[np.ndarray, np.ndarray]:
            low, high = kind.limits(moments, level)
            if not population:
                return low, high
            return intervals.widened(value, low, high, between, known_to, level)

        low, high = limits(self.level)
        p = p_alone(limits, value) if kind.p is None else np.where(lost, np.nan, kind.p(moments))
        if kind.bets:
            m = max(int(np.sum((spread > 0) & ~lost)), 1)
            low_all, high_all = limits(1.0 - (1.0 - self.level) / m)
            multiplier, p_all = None, np.minimum(m * p, 1.0)
        else:
            if ((std_error == 0) & (spread > 0)).any():  # draws that say nothing of how these vary
                joint = Joint.unknown(len(value), degrees)
            else:
                joint = Joint.of(factor, degrees)
            with np.errstate(divide="ignore", invalid="ignore"):  # known exactly is certain
                t = np.where(value == 0, 0.0, np.abs(value) / spread)
            multiplier, p_all = joint.multiplier(self.level), np.maximum(joint.p_value(t), p)
            low_all, high_all = value - multiplier * spread, value + multiplier * spread
            if not population:  # nor beyond what the contrast can be, where its own is held to that
                bottom, top = moments.floor, moments.ceiling
                low_all = np.where(low >= bottom, np.maximum(low_all, bottom), low_all)
                high_all = np.where(high <= top, np.minimum(high_all, top), high_all)
        return Comparisons(
            systems=self.goal.target.systems,
            names=goal.names,
            level=self.level,
            value=value,
            std_error=std_error,
            low=low,
            high=high,
            spread=spread,
            multiplier=multiplier,
            low_all=low_all,
            high_all=high_all,
            p=p,
            p_all=p_all,
        )


def _is_are(which: np.ndarray) -> str:
    return "is" if which.sum() == 1 else "are"


def uncovered_contrasts(goal: Goal, reached: np.ndarray) -> np.ndarray:
    """Which contrasts weigh a cell that could not be drawn."""
    lost = np.zeros(len(goal.names), bool)
    cells = np.flatnonzero(~reached)
    # Some at a time: contrasts are dense here, and there may be thousands.
    for some in np.array_split(cells, -(-len(cells) // 4096)) if len(cells) else ():
        lost |= (goal.at(some) != 0).any(0)
    return lost
