r"""Self-normalised estimates of measures that are sums: each list's own mean utility.

Importance sampling divides by what the draws were expected to hold. What they held is known as
well: with w_jc the weight of cell c in system j's list for query x, E and omega as in
`evenhand.estimation.importance`, and W_jx = sum_c w_jc known before anything is judged,

    u-bar_jx = sum_i omega w_j,c_i r_i / E_c_i  /  sum_i omega w_j,c_i / E_c_i
    U^_j = sum_x W_jx u-bar_jx - B^_j                                                        (1)

a ratio of two estimated sums for each list (Hajek 1971; self-normalised importance sampling). Where
utilities of a list are alike its mean hardly depends on which of its pairs were drawn, and (1)
hardly varies: where all are alike, not at all. Where few are relevant it is no better than
importance sampling. P@10 of 20 TREC-8 runs, 2,500 of 5,135 pairs drawn, root mean square error of
systems and coverage of intervals of 95 % (``python tests/benchmarks/normalisation.py``, 40
studies), as judged and with made judgments:

============  ==============  ==================  ==================
relevant      importance      self-normalised     cross-fitted
============  ==============  ==================  ==================
as judged     .0154 (.95)     .0140 (.92)         .0124 (.94)
10 %          .0130 (.94)     .0130 (.92)         .0124 (.93)
50 %          .0271 (.95)     .0221 (.95)         .0210 (.93)
90 %          .0337 (.95)     .0128 (.93)         .0117 (.93)
98 %          .0353 (.96)     .0054 (.86)         .0050 (.86)
============  ==============  ==================  ==================

So it is for those who want no model, and have much judged of lists that are mostly alike.

It is **not exactly unbiased**, its bias is of the order 1 / n. With X the sum below the line and D
= sum_i omega w (r_i - u-bar) / E, a Taylor expansion around E[X] = W gives for each list

    B_jx = -Cov(X_jx, D_jx) / W_jx                                                           (2)

estimated from the draws, each round a group of its own, and taken off; the notes say how much it
was. Variances and covariances are those of the linear measure with the terms

    z_i = W_jx / (X_jx (1 - h_i))  omega w_j,c_i (r_i - u-bar_jx) / E_c_i                    (3)

with h_i the share of draw i in X: linearisation, each residual from the mean of the other draws,
since a mean is drawn towards the draws that it is fitted to (the jackknife; with sqrt(1 - h), or
without, intervals of 95 % covered 92 and 90 % where draws had eight a list). What assessors'
disagreement adds is that of the weights W / X w.

Each system is normalised by itself, and contrasts are differences of systems: what a contrast's
weights of both signs sum up to is no scale of anything.

**Lists with too few draws.** One draw has no residual, and none no mean. A list with fewer
than `LEAST` draws, not all of whose pairs are known, takes the mean of its system's other lists,

    u-bar_jx = sum of W u-bar over those with enough draws / sum of their W                  (4)

Which lists these are depends on the design and on chance, not on utilities, and the chance falls
off exponentially as more is drawn, so the bias stays of the order 1 / n. Where they hold more than
`MOST` of a system's weight, (4) would be a guess, and the estimate is refused: with 38 % of a
TREC-8 system's weight in such lists intervals of 95 % covered 88.5 %, with 26 % 92.6 %.

Rounds are put together as ever: sums of numerators and denominators with each round's weight, which
was fixed in advance. A prediction of utilities has no place in (1); who has one takes the
difference estimator instead.

References
----------
Hajek 1971, comment on *An essay on the logical foundations of survey sampling*; Sarndal, Swensson
and Wretman 1992, *Model Assisted Survey Sampling*, section 5.7; MacKinnon and White 1985, *Some
heteroskedasticity-consistent covariance matrix estimators*, for 1 - h; Owen 2013, *Monte
Carlo theory, methods and examples*, section 9.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from evenhand.errors import EvenhandError, SupportError, listed
from evenhand.estimands.goals import Goal
from evenhand.estimands.targets import Target
from evenhand.estimation.estimates import Estimate
from evenhand.estimation.importance import estimate
from evenhand.float64 import in_float64
from evenhand.sampling.assessor_variance import noise
from evenhand.sampling.combination import Combination, combined
from evenhand.sampling.rounds import Round, known_utility

__all__ = ["LEAST", "MOST", "estimate_normalised"]

#: Draws that a list must have to be estimated by itself.
LEAST = 2
#: Share of a system's weight that lists may hold which have fewer.
MOST = 0.2


class _Lists(NamedTuple):
    """What the draws say of each list; shapes (queries, systems).

    Attributes
    ----------
    weight
        W of equation (1).
    held
        X: what the draws held of it.
    mean
        u-bar; 0 where there is none.
    draws
        How many there are, those known beforehand included.
    covariance
        Of X and D, equation (2).
    """

    weight: np.ndarray
    held: np.ndarray
    mean: np.ndarray
    draws: np.ndarray
    covariance: np.ndarray

    @property
    def told(self) -> np.ndarray:
        """Whether a list has enough draws, or nothing left to draw."""
        whole = np.abs(self.held - self.weight) <= 1e-12 * self.weight
        return (self.draws >= LEAST) | (whole & (self.draws > 0)) | (self.weight == 0)


def _reach(found: Combination, n_cells: int) -> np.ndarray:
    """The largest omega / E with which each cell was drawn; 0 elsewhere, shape (cells,)."""
    reach = np.zeros(n_cells)
    for one in found.rounds():
        np.maximum.at(reach, one.draws, one.coefficient)
    return reach


def _over(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


def _lists(target: Target, found: Combination, place: np.ndarray) -> _Lists:
    """What the rounds say of each list, whose number `place` has for each entry."""
    pool = target.pool
    shape = len(pool.queries), len(target.systems)

    def by_list(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, values, minlength=shape[0] * shape[1]).reshape(shape)

    top, held, draws, covariance = np.zeros((4, *shape))
    for one in found.rounds():
        at, stage, known = one.draws, one.stage, one.round.known
        w = target.weights(at)
        p = w * one.coefficient[:, None]
        np.add.at(held, pool.query[at], p)
        np.add.at(top, pool.query[at], p * one.round.utility[:, None])
        np.add.at(draws, pool.query[at], w > 0)
        if known is not None and stage.mean is not None:  # it counts for certain
            entries = target.weight * (np.isfinite(known) * stage.weight)[target.cell]
            held += by_list(entries)
            top += by_list(entries * stage.mean[target.cell])
            draws += by_list((entries > 0) * 1.0)
    mean_utility = _over(top, held)
    for one in found.rounds():
        at, x, free = one.draws, pool.query[one.draws], one.free
        p = target.weights(at) * one.coefficient[:, None]
        d = p * (one.round.utility[:, None] - mean_utility[x])
        both, of_p, of_d = np.zeros((3, *shape))
        for sums, terms in ((both, p * d), (of_p, p), (of_d, d)):
            np.add.at(sums, x, free[:, None] * terms)
        n, mass = np.count_nonzero(free), free.sum()
        if n > 1:
            both = n / (n - 1) * (both - of_p * of_d / mass)
        covariance += both
    return _Lists(by_list(target.weight), held, mean_utility, draws, covariance)


@in_float64
def estimate_normalised(
    goal: Goal,
    rounds: Sequence[Round],
    *,
    level: float = 0.95,
    planned: Sequence[float] | None = None,
    combine: str = "planned",
    interval: str = "auto",
    correct: bool = True,
    top_utility: float | None = None,
) -> Estimate:
    """Estimate every system and every contrast of the goal, equation (1).

    Parameters
    ----------
    goal
        The contrasts wanted, of a measure that is a sum of bounded utilities.
    rounds, level, planned, combine
        As in `evenhand.estimation.importance.estimate`.
    interval
        ``auto`` is Student's: what an event weighs that was not seen depends on the means.
    correct
        Take the bias off, equation (2).
    top_utility
        Largest utility a pair can have; by default the measure's, where it knows it.

    Returns
    -------
    Estimate
        Whose goal has the terms (3) for weights.

    Raises
    ------
    SupportError
        If utilities have no known top, or lists without enough draws hold more than `MOST` of a
        system's weight.
    MissingJudgments
        If a drawn pair is not judged.
    """
    target, pool = goal.target, goal.target.pool
    _check_bounded(target, top_utility)
    found = combined(goal, rounds, planned=planned, combine=combine)
    k, reached = len(target.systems), found.reached()
    place = pool.query[target.cell].astype(np.int64) * k + target.system
    lists = _lists(target, found, place)
    told, total, inside = lists.told, target.total(), target.total(reached)
    covered = inside >= total
    enough = (told * lists.weight).sum(0)
    _check_told(goal, 1.0 - np.where(covered, _over(enough, total), 1.0))

    bias = -_over(lists.covariance, lists.weight) if correct else np.zeros_like(lists.mean)
    own = np.where(told, lists.weight * lists.mean - bias, 0.0)
    by_query = np.where(told, own, lists.weight * _over(own.sum(0), enough))  # equation (4)
    scale = np.where(told, _over(lists.weight, lists.held), 0.0) * _over(total, enough)
    scaled = target.weight * scale.reshape(-1)[place]
    weight = _weights(target, found, rounds, lists, place, scaled)
    weight = np.where(reached[target.cell], weight, target.weight)
    disagreed, *_ = noise(replace(goal, target=replace(target, weight=scaled)), found)
    plain = estimate(
        replace(goal, target=replace(target, weight=weight, entries=(target.start, target.system))),
        [one.as_one() for one in rounds],
        level=level,
        planned=planned,
        combine=combine,
        interval="student" if interval == "auto" else interval,
        bounded=False,
        beyond=disagreed,
        by_query=by_query,
        top_utility=1.0,
    )
    notes = _notes(told, bias if correct else None)
    answer = plain.moved(by_query.sum(0), _over(inside, total))
    return replace(answer, estimator="self-normalised", notes=(*notes, *answer.notes))


def _check_bounded(target: Target, top_utility: float | None) -> None:
    """Refuse measures and pools that self-normalised estimates are not for."""
    target.check_linear()
    if (target.measure.top_utility if top_utility is None else top_utility) is None:
        raise SupportError(
            f"self-normalised estimates are of bounded utilities, and {target.measure} knows no "
            "largest one",
            hint="name the scale when the study starts (evenhand new ... --grades 0,1,2), or take "
            "--estimator importance",
        )
    if target.whole is not None:
        raise SupportError(
            "self-normalised estimates need every pair of each list, and only some are at hand",
            hint="estimate what was drawn in an engine by --estimator importance",
        )


def _weights(
    target: Target,
    found: Combination,
    rounds: Sequence[Round],
    lists: _Lists,
    place: np.ndarray,
    scaled: np.ndarray,
) -> np.ndarray:
    """The weight (3) of each entry, 0 where its cell was not drawn; shape (entries,)."""
    utility = known_utility(rounds, len(target.pool))
    away = np.nan_to_num(utility)[target.cell] - lists.mean.reshape(-1)[place]
    reach = _reach(found, len(target.pool))[target.cell]
    share = _over(target.weight * reach, lists.held.reshape(-1)[place])
    without = np.where(share < 1.0 - 1e-9, 1.0 - share, 1.0)
    return np.where(np.isfinite(utility)[target.cell], scaled * away / without, 0.0)


def _notes(told: np.ndarray, bias: np.ndarray | None) -> list[str]:
    """How much bias was taken off, and how many lists have too few draws."""
    notes = []
    if bias is not None:
        notes.append(
            "self-normalised estimates are not exactly unbiased; bias O(1/n); what the draws show "
            f"of it, {np.abs(np.where(told, bias, 0.0).sum(0)).max():.2g} at most, is taken off"
        )
    if not told.all():
        notes.append(
            f"{int((~told).sum()):,} of {told.size:,} lists have fewer than {LEAST} draws and "
            "count with the mean of their system's others"
        )
    return notes


def _check_told(goal: Goal, share: np.ndarray) -> None:
    """Refuse where too much of a system's weight has too few draws; shape (systems,)."""
    poor = np.flatnonzero(share > MOST)
    if len(poor):
        systems = listed([goal.target.systems[j] for j in poor])
        raise EvenhandError(
            f"self-normalised estimates need {LEAST} draws of each list: queries with fewer hold "
            f"up to {share.max():.1%} of the weight of {systems}, more than {MOST:.0%}",
            hint="draw more pairs, or take --estimator importance, which needs no draw of each",
        )
