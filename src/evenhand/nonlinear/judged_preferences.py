r"""Judged preferences: Swaps and wSwaps from pairs of documents that are judged as pairs.

An assessor is shown two documents of a query and says which is better, or that they are equal. No
grade is needed, and preferences need not be transitive. A measure is then over the judgments of
pairs: with d_ji what the rank of document i gives in the list of system j,

    v_j(x; {i, k}) = d_ji d_jk p      if j returns both,     else 0,                          (1)
    V_j = (1 / |X|) sum over x and pairs {i, k} of v_j(x; {i, k}),

p the share of the pair's judgments that say that the document ranked lower is better: 0 or 1 where
there is one, 0 for a tie. Where preferences follow from grades, V is `evenhand.measures.Swaps` or
``wSwaps`` of these grades.

`evenhand.sampling.document_pairs` draws pairs; with N draws of law Q each is expected E = N Q
times, and

    V^_j = (1 / |X|) sum over draws of v_j / E                                               (2)

is exactly unbiased, and so is every contrast; identical systems differ by exactly 0. Rounds whose
designs were fixed before the first judgment are one stage, with E the sum of theirs. Each later one
is a stage of its own, since its design may depend on earlier judgments, and

    V^ = sum over stages t of omega_t V^_t,         omega fixed in advance                    (3)

is unbiased given the past (`evenhand.sampling.rounds.planned_weights`). The draws of a round are
independent, so that their own covariance is unbiased, too.

Where swapped pairs are rare, few draws say anything, and Student's interval is too narrow: ranking
20 systems of TREC-8 by wSwaps@20, preferences taken from grades, it covers .80 of the systems' own
values and .87 of the contrasts with 360 pairs judged. The default, the cubic interval of
`evenhand.intervals.intervals`, covers .997 of both, and with 1,060 pairs .977 where Student's
covers .90. The event that it takes as still unseen has the size

    tau = f_4 / f_2,      f_k = sum over pairs and both of their outcomes of E |a / E|^k,      (4)

a what the outcome adds to the contrast. Its sums over all pairs are means over unjudged draws of
the same law.

`evenhand.sampling.document_pairs.write_pairs` makes the table to be judged,
`evenhand.formats.read_preferences` reads it filled in.

References
----------
Carterette, Bennett, Chickering and Dumais 2008, *Here or there: preference judgments for
relevance*, for judging so; Schnabel et al. 2016, Table 1, for the measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.errors import EvenhandError, MissingJudgments, SupportError, listed
from evenhand.estimands.contrasts import contrasts
from evenhand.estimands.goals import Goal
from evenhand.estimands.pools import codes_in
from evenhand.estimands.targets import Target
from evenhand.estimation.estimates import IntervalTable
from evenhand.float64 import in_float64
from evenhand.formats.preferences import Preferences
from evenhand.intervals import intervals
from evenhand.intervals.confidence import INTERVAL, percent
from evenhand.intervals.moments import TermMoments, cumulants
from evenhand.sampling.document_pairs import PairSample, draw_pairs, shares
from evenhand.sampling.rounds import weighed_stages
from evenhand.sampling.variance import independent

__all__ = [
    "PairRound",
    "PreferenceEstimate",
    "estimate_preferences",
    "judge_pairs",
]


#: Unjudged draws for the sums over all pairs (4), and how many at a time.
AHEAD = 16384
_BLOCK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class PairRound:
    """The draws of a round and their judgments.

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


@dataclass(frozen=True, eq=False, kw_only=True)
class PreferenceEstimate(IntervalTable):
    """Systems and contrasts with intervals, for this set of queries and these preferences.

    Attributes
    ----------
    contrast_degrees
        Degrees of freedom of the contrasts' variances; shape (contrasts,).

    See Also
    --------
    evenhand.estimation.estimates.IntervalTable : The values, intervals and covariances.
    """

    contrast_degrees: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the contrasts."""
        return self.goal.names

    def _asked(self) -> str:
        return (
            f"{self.goal.target.measure} of judged preferences on this set of "
            f"{len(self.goal.target.pool.queries):,} queries, {percent(self.level)} intervals; "
            f"{self.n_judged:,} pairs of documents judged"
        )

    def notes_shown(self) -> tuple[str, ...]:
        """The notes."""
        return self.notes

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python values."""
        return {**self._found("queries"), "notes": list(self.notes)}


def _checked_interval(name: str) -> intervals.Interval:
    """The interval of this name, where it is for judged preferences."""
    kind = intervals.check_interval(intervals.chosen(name, None))
    if kind.bets or kind.foresees:
        raise SupportError(
            f"{kind.name} intervals are for documents that are graded, not for judged preferences",
            hint="take the interval auto",
        )
    return kind


@dataclass(slots=True, eq=False)
class _Sums:
    """What the rounds add up to, systems and contrasts side by side."""

    both: np.ndarray
    higher: np.ndarray
    events: np.ndarray
    covariance: np.ndarray
    contrast_covariance: np.ndarray
    seen: np.ndarray
    variances: list[np.ndarray] = field(default_factory=list)
    degrees: list[int] = field(default_factory=list)
    keys: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(cls, goal: Goal) -> _Sums:
        """Empty sums, before any round."""
        k, m = len(goal.target.systems), len(goal.names)
        return cls(
            np.zeros(k + m),
            np.zeros((2, k + m)),
            np.zeros((4, k + m)),
            np.zeros((k, k)),
            np.zeros((m, m)),
            np.zeros(k),
        )

    def add(
        self,
        goal: Goal,
        given: np.ndarray,
        weight: float,
        stage: Sequence[PairRound],
        one: PairRound,
        rounds: Sequence[PairRound],
    ) -> None:
        """Add a round of a stage that has this weight."""
        sample = one.sample
        paired, upper = _paired(goal.target, given, sample)
        counts = np.any(paired, axis=1)
        _check_judged(one, counts, rounds)
        first, second = (np.nan_to_num(x)[:, None] for x in (one.first_better, one.second_better))
        worth = paired * np.where(upper, second, first)
        terms = _one_round(worth, goal.matrix, _scale(weight, stage, sample))
        total, covariance, contrast_covariance, higher = map(np.asarray, terms)
        self.both += total
        self.covariance += covariance
        self.contrast_covariance += contrast_covariance
        self.variances.append(np.concatenate([np.diag(covariance), np.diag(contrast_covariance)]))
        self.degrees.append(len(sample) - 1)
        self.higher += higher
        self.events += _events_ahead(goal, given, weight, stage, one)
        self.seen += worth.sum(0)
        self.keys.append(sample.keys[counts])

    def moments(self, goal: Goal, given: np.ndarray) -> TermMoments:
        """What intervals are made from."""
        events = self.events
        floor, ceiling = _range(goal, given)
        return TermMoments(
            estimate=self.both,
            variance=np.sum(self.variances, 0),
            third=self.higher[0],
            fourth=self.higher[1],
            event=events[3] / np.where(events[0] > 0, events[0], 1.0),
            side=np.abs(events[1]) / np.where(events[2] > 0, events[2], 1.0),
            degrees=intervals.welch(np.array(self.variances), np.array(self.degrees)),
            floor=floor,
            ceiling=ceiling,
        )


@in_float64
def estimate_preferences(
    goal: Goal,
    rounds: Sequence[PairRound],
    *,
    level: float = 0.95,
    planned: Sequence[float] | None = None,
    interval: str = INTERVAL,
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
    interval
        One of `evenhand.intervals.intervals.INTERVALS`; ``auto`` is ``cubic``.

    Returns
    -------
    PreferenceEstimate

    Raises
    ------
    MissingJudgments
        If a drawn pair that counts for any system is not judged.
    SupportError
        If a system has a pair that a stage could not draw, or intervals are to be `betting`.
    EvenhandError
        If the measure is no sum over pairs, or rounds are missing or of another pool.

    Examples
    --------
    >>> import jax, pyarrow, evenhand as eh
    >>> from evenhand.sampling.document_pairs import draw_pairs, pair_design
    >>> runs = {"x": {"q": {"a": 3, "b": 2, "c": 1}}, "y": {"q": {"c": 3, "a": 2, "b": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "Swaps")
    >>> sample = draw_pairs(jax.random.key(0), pair_design(target), 2000)
    >>> better = {"docA": ["a", "b", "c"], "docB": ["b", "c", "a"], "preferred": ["a", "=", "a"]}
    >>> answers = eh.read_preferences(pyarrow.table({"qid": ["q"] * 3, **better}))
    >>> found = estimate_preferences(eh.pair(target), [judge_pairs(sample, answers)])
    >>> found.value.round(1).tolist(), found.names  # y ranks c above a: one pair of three
    ([0.0, 0.3], ('x - y',))
    """
    intervals.check_level(level)
    kind = _checked_interval(interval)
    target, given = goal.target, shares(goal.target)
    _check_rounds(target, rounds)
    omega, numbers = weighed_stages(rounds, planned)
    k, sums = len(target.systems), _Sums.of(goal)
    for weight, stage in zip(omega, [[rounds[i] for i in some] for some in numbers], strict=True):
        _check_support(target, given, stage)
        for one in stage:
            sums.add(goal, given, weight, stage, one, rounds)
    moments = sums.moments(goal, given)
    silent = (sums.seen == 0) & (moments.ceiling[:k] > 0)
    return PreferenceEstimate(
        goal=goal,
        level=level,
        **_columns(moments, kind, level, k),
        covariance=sums.covariance,
        contrast_covariance=sums.contrast_covariance,
        interval=kind.name,
        weights=omega,
        n_rounds=len(rounds),
        n_draws=sum(len(one.sample) for one in rounds),
        n_judged=len(np.unique(np.concatenate(sums.keys))),
        notes=_notes(target, silent),
    )


def _columns(
    moments: TermMoments, kind: intervals.Interval, level: float, k: int
) -> dict[str, Any]:
    """Estimates, errors, limits and degrees of freedom: of k systems, and of the contrasts."""
    low, high = kind.limits(moments, level)
    of = {
        "std_error": np.sqrt(moments.variance),
        "low": low,
        "high": high,
        "degrees": moments.degrees,
    }
    systems = {"value": moments.estimate[:k]} | {name: x[:k] for name, x in of.items()}
    others = {f"contrast_{name}": x[k:] for name, x in of.items()}
    return systems | {"contrast": moments.estimate[k:]} | others


def _notes(target: Target, silent: np.ndarray) -> tuple[str, ...]:
    """Which systems draws say nothing of yet; bool, shape (systems,)."""
    if not silent.any():
        return ()
    names = [target.systems[j] for j in np.flatnonzero(silent)]
    return (
        f"no judged pair of {listed(names)} is swapped: its estimate and interval say nothing yet",
    )


def _side_by_side(worth: jax.Array, matrix: jax.Array) -> jax.Array:
    return jnp.concatenate([worth, contrasts(worth, matrix)], 1)


@jax.jit
def _one_round(worth, matrix, scale):
    """Sums of one round's terms (2), covariances of systems and contrasts, higher moments."""
    k, fold = worth.shape[1], jnp.zeros(len(scale), jnp.int32)
    z = _side_by_side(worth, matrix) * scale[:, None]
    y, _ = independent(z, scale, fold, 1)
    _, third, fourth, _ = cumulants(z, scale, fold, sampler="iid", folds=1)
    own, between = y[:, :k], y[:, k:]
    return z.sum(0), own.T @ own, between.T @ between, jnp.stack([third, fourth])


def _scale(weight: float, stage: Sequence[PairRound], sample: PairSample) -> np.ndarray:
    """The factor of v_j of each draw: omega / (|X| E), shape (n,)."""
    chances = (
        len(one.sample) * one.sample.design.probability(sample.first, sample.second)
        for one in stage
    )
    return weight / len(sample.design.by_query) / np.sum(list(chances), axis=0)


def _events_ahead(
    goal: Goal, given: np.ndarray, weight: float, stage: Sequence[PairRound], one: PairRound
) -> np.ndarray:
    """Sums over all pairs that a round could draw, as `Events`, equation (4).

    The pairs are too many to go through, but their law is known: others are drawn from it, which
    nobody judges.

    Returns
    -------
    numpy.ndarray
        f_2, f_3 with and without sign, f_4: shape (4, systems + contrasts).
    """
    ahead = draw_pairs(jax.random.fold_in(jax.random.key(0), AHEAD), one.sample.design, AHEAD)
    paired, upper = _paired(goal.target, given, ahead)
    found = _events(paired, upper, goal.matrix, _scale(weight, stage, ahead))
    return len(one.sample) / AHEAD * np.asarray(found)


@jax.jit
def _events(paired, upper, matrix, scale):
    def block(columns):
        paired, upper, scale = columns
        either = (jnp.where(upper, 0.0, paired), jnp.where(upper, paired, 0.0))
        y = jnp.concatenate([_side_by_side(worth, matrix) * scale[:, None] for worth in either])
        return jnp.stack([part.sum(0) for part in (y**2, y**3, jnp.abs(y) ** 3, y**4)])

    columns = (x.reshape(-1, _BLOCK, *x.shape[1:]) for x in (paired, upper, scale))
    return jax.lax.map(block, tuple(columns)).sum(0)


def _range(goal: Goal, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What systems and contrasts lie between: shapes (systems + contrasts,)."""
    pool, k, x = goal.target.pool, len(goal.target.systems), len(goal.target.pool.queries)
    number = pool.system.astype(np.int64) * x + pool.query[pool.cell]
    first, second = (np.bincount(number, y, minlength=k * x) for y in (given, given**2))
    top = np.maximum(first**2 - second, 0.0).reshape(k, x).sum(1) / (2.0 * x)
    matrix = np.concatenate([np.eye(k), goal.matrix])
    return np.minimum(matrix, 0.0) @ top, np.maximum(matrix, 0.0) @ top


def _paired(target: Target, given: np.ndarray, sample: PairSample) -> tuple[np.ndarray, np.ndarray]:
    """d_ji d_jk of each draw, and whether j ranks the first above: shapes (n, systems)."""
    (share, rank), (other, below) = (
        [target.pool.dense(by_entry, cells) for by_entry in (given, target.pool.rank)]
        for cells in (sample.first, sample.second)
    )
    return share * other, rank < below


def _check_judged(one: PairRound, counts: np.ndarray, rounds: Sequence[PairRound]) -> None:
    """Refuse a round of which pairs that count for any system are not judged."""
    missing = np.isnan(one.first_better) & counts
    if missing.any():
        number = next(i for i, other in enumerate(rounds, 1) if other is one)
        keys = one.sample.keys
        raise MissingJudgments(
            f"{one.name or f'round {number}'}: {len(np.unique(keys[missing])):,} of "
            f"{len(np.unique(keys[counts])):,} pairs are not judged yet",
            hint="judge them all: leaving pairs out biases the estimate",
        )


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
            hint="draw from a design for this measure (`evenhand.sampling.pair_design`)",
        )
