r"""Judged preferences: Swaps and wSwaps from pairs of documents that are judged as pairs.

An assessor is shown two documents of a query and says which is better, or that they are equal. No
grade is needed, and preferences need not be transitive. A measure is then over what was said of
pairs: with d_ji what the rank of document i gives in the list of system j,

    v_j(x; {i, k}) = d_ji d_jk p      if j returns both,     else 0,                          (1)
    V_j = (1 / |X|) sum over x and pairs {i, k} of v_j(x; {i, k}),

p the share of the pair's judgments that say that the document ranked lower is better: 0 or 1 where
there is one, 0 for a tie. Where preferences follow from grades, V is `evenhand.measures.Swaps` or
``wSwaps`` of these grades.

`evenhand.pairings` draws pairs; with N draws of law Q each is expected E = N Q times, and

    V^_j = (1 / |X|) sum over draws of v_j / E                                               (2)

is exactly unbiased, and so is every contrast; identical systems differ by exactly 0. Rounds whose
designs were fixed before the first judgment are one stage, with E the sum of theirs. Each later one
is a stage of its own, since its design may follow from what was said before, and

    V^ = sum over stages t of omega_t V^_t,         omega fixed in advance                    (3)

is unbiased given the past (`evenhand.stages.planned_weights`). The draws of a round are
independent, so that their own covariance is unbiased, too; intervals are Student's.

`write_pairs` makes the table to be filled in, `evenhand.trec.read_preferences` reads it.

References
----------
Carterette, Bennett, Chickering and Dumais 2008, *Here or there: preference judgments for
relevance*, for judging so; Schnabel et al. 2016, Table 1, for the measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenhand import intervals
from evenhand.errors import EvenhandError, MissingJudgments, StudyError, SupportError, listed
from evenhand.pairings import PairSample, shares
from evenhand.pools import codes_in
from evenhand.precision import in_float64
from evenhand.residuals import independent
from evenhand.stages import planned_weights, unplanned
from evenhand.tables import Result, Table, decimals, rows
from evenhand.targets import Goal, Target, contrasts
from evenhand.trec.preferences import COLUMNS, EQUAL, Preferences

__all__ = [
    "PairRound",
    "PreferenceEstimate",
    "estimate_preferences",
    "judge_pairs",
    "write_pairs",
]


def write_pairs(sample: PairSample, path: str | Path) -> None:
    """Write the pairs to be judged, each once; `evenhand.trec.read_preferences` reads the answers.

    Parameters
    ----------
    sample
        The draws. A pair that no system returns both documents of is left out: it is worth 0 to
        all.
    path
        A file that is not there yet: one that is may hold judgments.

    Raises
    ------
    EvenhandError
        If an id cannot be written so that it is read again.
    StudyError
        If the file exists, or cannot be written.
    """
    at, pool = sample.to_judge(), sample.design.target.pool
    queries, first = pool.names(sample.first[at])
    _, second = pool.names(sample.second[at])
    ids = {*queries, *first, *second}
    odd = sorted(
        i for i in ids if i in ("", EQUAL) or i != i.strip() or i[0] == "#" or set("\t\n\r") & {*i}
    )
    if odd:
        raise EvenhandError(
            f"ids that a table of pairs cannot hold: {listed([repr(i) for i in odd])}",
            hint=f"rename those that are {EQUAL}, begin with #, or hold a tab or an outer blank",
        )
    lines = [f"{x}\t{a}\t{b}\t\n" for x, a, b in zip(queries, first, second, strict=True)]
    try:
        with Path(path).open("x", encoding="utf-8", newline="\n") as file:
            file.write("\t".join(COLUMNS) + "\n" + "".join(lines))
    except FileExistsError:
        raise StudyError(
            f"{path} exists, and may hold judgments", hint="give the name of a new file"
        ) from None
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True, eq=False)
class PairRound:
    """What a round drew and what its judgments said.

    Attributes
    ----------
    sample
        The draws.
    first_better, second_better
        Share of the judgments of each draw's pair that say so, the rest being ties; float64, shape
        (n,), NaN where the pair is not judged yet.
    depends_on
        Names of the rounds whose judgments the design could have looked at; empty if it was fixed
        before the first judgment.
    name
        The name by which later rounds refer to it.
    """

    sample: PairSample
    first_better: np.ndarray
    second_better: np.ndarray
    depends_on: tuple[str, ...] = ()
    name: str = ""


def judge_pairs(
    sample: PairSample,
    preferences: Preferences,
    *,
    depends_on: tuple[str, ...] = (),
    name: str = "",
) -> PairRound:
    """Judge a sample from a table of preferences.

    Parameters
    ----------
    sample
        The draws.
    preferences
        The judgments; those of other pairs are ignored, and a drawn pair that they lack stays
        unjudged (NaN).
    depends_on, name
        See `PairRound`.
    """
    pool = sample.design.target.pool
    query = codes_in(preferences.queries, pool.queries)[preferences.query]
    known = codes_in(preferences.documents, pool.documents)
    a, b = (pool.locate(query, known[code]) for code in (preferences.first, preferences.second))
    inside = (a >= 0) & (b >= 0)
    a, b = a[inside], b[inside]
    better = np.where(a < b, preferences.better[inside], -preferences.better[inside])
    keys, which = np.unique(np.minimum(a, b) * len(pool) + np.maximum(a, b), return_inverse=True)
    count = np.bincount(which, minlength=len(keys))
    low, high = (np.bincount(which, better == s, minlength=len(keys)) / count for s in (1, -1))
    at = np.searchsorted(keys, sample.keys)
    judged = np.append(keys, -1)[at] == sample.keys
    low, high = (np.where(judged, np.append(x, np.nan)[at], np.nan) for x in (low, high))
    swapped = sample.first > sample.second
    first, second = np.where(swapped, high, low), np.where(swapped, low, high)
    return PairRound(sample, first, second, tuple(depends_on), name)


@dataclass(frozen=True, eq=False)
class PreferenceEstimate(Result):
    """Systems and contrasts with intervals, for this set of queries and these preferences.

    Attributes
    ----------
    goal
        What was asked.
    level
        Confidence level of the intervals.
    value, std_error, low, high
        By system, in the measure's unit; shape (systems,).
    contrast, contrast_std_error, contrast_low, contrast_high
        By contrast of the goal; shape (contrasts,).
    covariance, contrast_covariance
        Of the systems' and the contrasts' estimates; shapes (systems, systems), (contrasts,
        contrasts).
    degrees, contrast_degrees
        Degrees of freedom of the variances; shapes (systems,), (contrasts,).
    weights
        omega of each stage, equation (3).
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
    contrast_degrees: np.ndarray
    weights: np.ndarray
    n_rounds: int
    n_draws: int
    n_judged: int
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the contrasts."""
        return self.goal.names

    def tables(self) -> list[Table]:
        """Systems and, unless the goal is `absolute`, contrasts."""
        digits = decimals(np.concatenate([self.std_error, self.contrast_std_error]))
        title = (
            f"{self.goal.target.measure} of judged preferences on this set of "
            f"{len(self.goal.target.pool.queries):,} queries, {self.level:.0%} intervals; "
            f"{self.n_judged:,} pairs of documents judged, {self.n_draws:,} draws, "
            f"{self.n_rounds} round{'s' if self.n_rounds != 1 else ''}"
        )
        tables = [Table.of(title, self._systems(), digits)]
        if self.goal.kind != "absolute":
            title = f"Contrasts of the goal '{self.goal.kind}'"
            tables.append(Table.of(title, self._contrasts(), digits))
        return tables

    def notes_shown(self) -> tuple[str, ...]:
        """The notes."""
        return self.notes

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
            "contrast": self.names,
            "estimate": self.contrast,
            "std_error": self.contrast_std_error,
            "low": self.contrast_low,
            "high": self.contrast_high,
        }

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python values."""
        return {
            "measure": str(self.goal.target.measure),
            "goal": self.goal.kind,
            "for": "queries",
            "level": self.level,
            "n_queries": len(self.goal.target.pool.queries),
            "n_rounds": self.n_rounds,
            "n_draws": self.n_draws,
            "n_judged": self.n_judged,
            "systems": rows(self._systems()),
            "contrasts": rows(self._contrasts()),
            "notes": list(self.notes),
        }


@in_float64
def estimate_preferences(
    goal: Goal,
    rounds: Sequence[PairRound],
    *,
    level: float = 0.95,
    planned: Sequence[float] | None = None,
) -> PreferenceEstimate:
    """Estimate Swaps or wSwaps of every system, and every contrast of the goal, equation (3).

    Parameters
    ----------
    goal
        The contrasts wanted; its target's measure is `evenhand.measures.Swaps` or ``wSwaps``.
    rounds
        Fully judged rounds, in the order in which they were drawn.
    level
        Confidence level of the intervals.
    planned
        Planned draws of each stage, as fixed before the first judgment: the rounds that were fixed
        in advance are one stage together, each later round is one. By default each twice as large
        as the last.

    Returns
    -------
    PreferenceEstimate

    Raises
    ------
    MissingJudgments
        If a drawn pair that counts for any system is not judged.
    SupportError
        If a system has a pair that a stage could not draw.
    EvenhandError
        If the measure is no sum over pairs, or rounds are missing or of another pool.
    """
    intervals.check_level(level)
    target, given = goal.target, shares(goal.target)
    _check_rounds(target, rounds)
    fixed = [one for one in rounds if not one.depends_on]
    stages = ([fixed] if fixed else []) + [[one] for one in rounds if one.depends_on]
    if planned is not None and len(planned) < len(stages):
        raise EvenhandError(f"the plan names {len(planned)} stages, there are {len(stages)}")
    omega = planned_weights(
        unplanned(len(stages)) if planned is None else np.asarray(planned[: len(stages)])
    )
    k, m = len(target.systems), len(goal.names)
    value, contrast = np.zeros(k), np.zeros(m)
    covariance, contrast_covariance = np.zeros((k, k)), np.zeros((m, m))
    variances, contrast_variances, degrees = [], [], []
    keys, seen = [], np.zeros(k)
    for weight, stage in zip(omega, stages, strict=True):
        _check_support(target, given, stage)
        for one in stage:
            sample = one.sample
            worth, missing = _worth(target, given, one)
            if missing.any():
                n_missing = len(np.unique(sample.keys[missing]))
                raise MissingJudgments(
                    f"{one.name or f'round {_number(rounds, one)}'}: {n_missing:,} of "
                    f"{len(np.unique(sample.keys)):,} pairs are not judged yet",
                    hint="judge them all: leaving pairs out biases the estimate",
                )
            expected = sum(
                (
                    len(other.sample) * other.sample.design.probability(sample.first, sample.second)
                    for other in stage
                ),
                np.zeros(len(sample)),
            )
            scale = weight / len(target.pool.queries) / expected
            found = map(np.asarray, _one_round(worth, goal.matrix, scale))
            system, contrasted, cov, contrast_cov = found
            value += system
            contrast += contrasted
            covariance += cov
            contrast_covariance += contrast_cov
            variances.append(np.diag(cov))
            contrast_variances.append(np.diag(contrast_cov))
            degrees.append(len(sample) - 1)
            seen += worth.sum(0)
            keys.append(sample.keys[_paired(target, given, sample).any(1)])
    own, between = (
        intervals.welch(np.array(x), np.array(degrees)) for x in (variances, contrast_variances)
    )
    std_error = np.sqrt(np.diag(covariance))
    contrast_std_error = np.sqrt(np.diag(contrast_covariance))
    low, high = intervals.student(value, std_error, own, level)
    contrast_low, contrast_high = intervals.student(contrast, contrast_std_error, between, level)
    pairs_of = np.bincount(target.pool.system, given, minlength=k) > 0
    silent = [target.systems[j] for j in np.flatnonzero((seen == 0) & pairs_of)]
    notes = []
    if silent:
        notes.append(
            f"no judged pair of {listed(silent)} is swapped: its estimate and interval say nothing "
            "yet"
        )
    return PreferenceEstimate(
        goal=goal,
        level=level,
        value=value,
        std_error=std_error,
        low=low,
        high=high,
        contrast=contrast,
        contrast_std_error=contrast_std_error,
        contrast_low=contrast_low,
        contrast_high=contrast_high,
        covariance=covariance,
        contrast_covariance=contrast_covariance,
        degrees=own,
        contrast_degrees=between,
        weights=omega,
        n_rounds=len(rounds),
        n_draws=sum(len(one.sample) for one in rounds),
        n_judged=len(np.unique(np.concatenate(keys))),
        notes=tuple(notes),
    )


@jax.jit
def _one_round(worth, matrix, scale):
    """Sums and covariances of one round's terms (2), for systems and contrasts."""
    fold = jnp.zeros(len(scale), jnp.int32)
    z = worth * scale[:, None]
    z_contrast = contrasts(worth, matrix) * scale[:, None]
    (y, _), (y_contrast, _) = (independent(t, scale, fold, 1) for t in (z, z_contrast))
    return z.sum(0), z_contrast.sum(0), y.T @ y, y_contrast.T @ y_contrast


def _paired(target: Target, given: np.ndarray, sample: PairSample) -> np.ndarray:
    """d_ji d_jk of each draw: shape (n, systems)."""
    dense = partial(target.pool.dense, given)
    return dense(sample.first) * dense(sample.second)


def _worth(target: Target, given: np.ndarray, one: PairRound) -> tuple[np.ndarray, np.ndarray]:
    """Equation (1) of each draw, shape (n, systems), and which lack a judgment that counts."""
    paired = _paired(target, given, one.sample)
    rank = partial(target.pool.dense, target.pool.rank)
    upper = rank(one.sample.first) < rank(one.sample.second)
    missing = np.isnan(one.first_better) & paired.any(1)
    first, second = (np.nan_to_num(x)[:, None] for x in (one.first_better, one.second_better))
    return paired * np.where(upper, second, first), missing


def _number(rounds: Sequence[PairRound], one: PairRound) -> int:
    return next(i for i, other in enumerate(rounds, 1) if other is one)


def _check_rounds(target: Target, rounds: Sequence[PairRound]) -> None:
    if not rounds:
        raise EvenhandError("no round was given")
    for number, one in enumerate(rounds, 1):
        n, cells = len(one.sample), len(one.sample.design.share)
        if cells != len(target.pool):
            raise EvenhandError(
                f"round {number} was drawn from a pool of {cells:,} query-document pairs, the "
                f"goal's has {len(target.pool):,}"
            )
        if n < 2 or not np.shape(one.first_better) == np.shape(one.second_better) == (n,):
            raise EvenhandError(
                f"round {number} has {n:,} draws and {np.size(one.first_better):,} judgments of "
                "them; at least 2 are needed, and as many"
            )


def _check_support(target: Target, given: np.ndarray, stage: Sequence[PairRound]) -> None:
    """Refuse a stage none of whose designs reaches every pair of some list."""
    pool, k, x = target.pool, len(target.systems), len(target.pool.queries)
    number, cell = pool.system.astype(np.int64) * x + pool.query[pool.cell], pool.cell
    missed = [
        np.bincount(number, (given > 0) & ~one.sample.design.reaches()[cell], minlength=k * x) > 0
        for one in stage
    ]
    lost = np.all(missed, axis=0).reshape(k, x).any(1)
    if lost.any():
        names = [target.systems[j] for j in np.flatnonzero(lost)]
        raise SupportError(
            f"{listed(names)} has pairs for {target.measure} that a round could not draw: the "
            "estimate would be biased",
            hint="draw from a design for this measure (`evenhand.pairings.pair_design`)",
        )
