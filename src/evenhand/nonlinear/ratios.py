r"""Estimates of ratio measures: nDCG, AP, recall, R-precision from sampled judgments.

The rounds of a study give each cell an unbiased estimate u^ of its utility
(`evenhand.nonlinear.linearisation`); of each query at least as many documents are relevant as were
seen to be. The estimate of a system is the measure of these, with its bias taken off as far as the
draws show it,

    V^_j = V_j(u^) - B^_j,   B^ of `evenhand.nonlinear.second_order`, equation (1)           (1)

of each query only so much that it stays between 0 and 1; or, where every round has a control
variate, the steadied form of V that its predictions allow.

It is **not exactly unbiased**: what (1) leaves is of the order 1 / n, and the notes of every
estimate say how large the part was that was taken off. Variance and covariances are those of the
linear measure with the gradient at u^ for weights, and those of (4) added.

Each query divides by something of its own, which its own draws must determine (`check_draws`). A
query with no relevant draw has the value 0, too low if it has a relevant document. Predictions
replace it there. Without them (``importance``) intervals for these queries are too short: for
nDCG@10 with 10 or 20 draws of each of 50 queries of 40 documents, some almost without relevant
ones, those of 95 % covered 63 to 70 % for systems and 76 to 78 % for differences (errors of 3; 100
studies), with predictions 93 to 96 % (errors of 2; 60 studies; ``python
tests/benchmarks/population.py --worlds MADE``, with and without ``--learn``).

References
----------
Aslam, Pavlu and Yilmaz 2006, *A statistical method for system evaluation using incomplete
judgments*, for average precision as a ratio of sampled sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.errors import EvenhandError, SupportError
from evenhand.estimands.goals import Goal
from evenhand.estimation.estimates import Estimate
from evenhand.float64 import in_float64
from evenhand.measures.ratios import AP
from evenhand.nonlinear.completions import best, worst
from evenhand.nonlinear.linearisation import Near
from evenhand.sampling.combination import combined
from evenhand.sampling.rounds import Control, Round

__all__ = ["LEAST", "check_draws", "estimate_ratio"]

#: Draws that a query must have on average, so that what it is divided by is determined; `AP`, which
#: is about pairs of documents, needs twice as many.
LEAST = 10


def check_draws(goal: Goal, n_draws: int) -> None:
    """Refuse too few draws to determine what each query is divided by.

    Raises
    ------
    EvenhandError
        If there are fewer than `LEAST` draws a query, or twice that for `AP`, and not all pairs of
        the queries that have fewer.
    """
    pool, measure = goal.target.pool, goal.target.measure
    n_queries = len(pool.queries)
    each = LEAST * (2 if isinstance(measure, AP) else 1)
    least = int(np.minimum(np.bincount(pool.query, minlength=n_queries), each).sum())
    if n_draws < least:
        raise EvenhandError(
            f"{measure} divides by what each query holds, which {n_draws:,} draws for "
            f"{n_queries:,} queries do not tell",
            hint=f"draw at least {least:,} pairs, or take a measure that is a sum",
        )


@in_float64
def estimate_ratio(
    goal: Goal,
    rounds: Sequence[Round],
    *,
    level: float = 0.95,
    planned: Sequence[float] | None = None,
    combine: str = "planned",
    controls: Sequence[Control | None] | None = None,
    interval: str = "auto",
    correct: bool = True,
    bounds: bool = False,
    top_utility: float | None = None,
) -> Estimate:
    """Estimate a ratio measure of every system, and every contrast of the goal.

    Parameters
    ----------
    goal
        The contrasts wanted; its target's measure is a ratio.
    rounds, level, planned, combine, controls
        As in `evenhand.estimation.importance.estimate`.
    interval
        ``auto`` is Student's: a cubic one asks what an event weighs that was not seen, and the
        gradient does not know.
    correct
        Take the bias off, equation (1).
    bounds
        Give intervals, without an estimate, for systems for which pairs count that could not be
        drawn: from the lower end of what they are at worst to the upper end of what they are at
        best (`evenhand.nonlinear.completions`), each an estimate like (1) of its own.
    top_utility
        Largest utility a pair can have; by default the measure's, where it knows it.

    Returns
    -------
    Estimate
        Whose goal has the gradient for weights. Its `covered` is the share of their sizes.

    Raises
    ------
    SupportError
        If a control variate would bias its stage, or bounds are asked for where utilities are
        unbounded.
    """
    found = combined(goal, rounds, planned=planned, combine=combine, controls=controls)
    options: dict[str, Any] = {
        "level": level,
        "planned": planned,
        "combine": combine,
        "controls": controls,
        "interval": interval,
    }

    def corrected(near: Near) -> tuple[Estimate, np.ndarray]:
        bias, beyond = near.beyond()
        bias = _within_range(near.by_query, bias) if correct else np.zeros_like(bias)
        return near.estimate(near.by_query - bias, beyond, **options), bias

    near = Near.of(goal, rounds, found, steady=True)
    plain, bias = corrected(near)
    notes = _notes(near, bias if correct else None)
    out = plain.covered < 1
    if bounds and out.any():
        top = _top(goal, top_utility)
        least, most = (
            corrected(Near.of(goal, rounds, found, steady=True, completed=end, top=top))[0]
            for end in (worst, best)
        )
        plain = replace(
            plain,
            low=np.where(out, np.maximum(least.low, 0.0), plain.low),
            high=np.where(out, np.minimum(most.high, 1.0), plain.high),
        )
        notes.append(
            f"{int(np.sum(near.left)):,} pairs could not be drawn and may have any utility up to "
            f"{top:g}: systems that are not covered have bounds that hold for all of them"
        )
    return replace(plain, notes=(*notes, *plain.notes))


def _notes(near: Near, bias: np.ndarray | None) -> list[str]:
    """How much bias was taken off, and which queries have nothing relevant."""
    pool, measure, notes = near.goal.target.pool, near.goal.target.measure, []
    if bias is not None:
        notes.append(
            f"{measure} is a ratio: estimates are not exactly unbiased; the bias that "
            f"the draws show, {np.abs(bias.sum(0)).max():.2g} at most, is taken off"
        )
    silent = int(np.sum(near.levels.counts(pool)[:, 0] <= 1e-9))
    if silent:
        notes.append(
            f"{silent} of {len(pool.queries):,} queries have no relevant draw and count 0: too low "
            "where they have a relevant document"
        )
    return notes


def _top(goal: Goal, top_utility: float | None) -> float:
    """The largest utility a pair can have, which bounds need."""
    top = goal.target.measure.top_utility if top_utility is None else top_utility
    if top is None:
        raise SupportError(
            f"bounds need the largest utility of a pair; {goal.target.measure} knows none",
            hint="name the scale of the grades",
        )
    return top


def _within_range(by_query: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The bias to take off, where that takes no query out of what a ratio can be, or further out.

    A second-order bias is one of small errors. Where a query's draws are few and one represents
    hundreds it can be many times what is there to be corrected.
    """
    most = 1.0 / len(by_query)
    corrected = np.clip(by_query - bias, np.minimum(by_query, 0.0), np.maximum(by_query, most))
    return by_query - corrected
