r"""Swapped pairs from sampled judgments: Swaps and wSwaps, exactly unbiased.

A part is a pair of documents, but documents are judged one at a time, and n judgments cover n (n
- 1) / 2 pairs. So documents are drawn, and every pair of drawn ones counts: the proposal of pairs
is factorised, and pays for a document once. With s, t ranks of a list y, s before t, grades g, and
d_s the share of a rank in the weight of a pair,

    V_j = (1 / |X|) sum over x, s < t of d_s d_t 1[g_s < g_t]
        = L - B,                                                                             (1)
    L = sum of d_s d_t 1[g_t > 0],      B = sum of d_s d_t 1[g_t > 0] 1[g_s >= g_t].

L is a sum over documents, and a term of B is not 0 only where both are relevant. Put the unbiased
estimates R^ of `evenhand.nonlinear.linearisation` into both. For different rounds these are right
on average even where a later round was designed after looking, since it draws anew. For the terms
e of one round, E[N_s N_t] gives the error of B(e, e):

==========  ====================================  ==========================================
sampler     E[N_s N_t] / (E_s E_t)                B of the round
==========  ====================================  ==========================================
`iid`       1 - 1/n, in different folds 1         B(e, e) + sum over folds B(e_f, e_f)/(n_f - 1)
`distinct`  1 where either is certain; in two     B(e, e) + (B(e', e') - F sum B(e'_f, e'_f))
            folds at random 1; in one: not known  / (F - 1)
==========  ====================================  ==========================================

with e' the terms of the cells that were not certain, e'_f those of fold f, and F folds at random:
what meets in one fold is left out, and what meets in two replaces it (`evenhand.sampling.folds`,
1). So

    V^ = L^ - B^  is exactly unbiased,                                                       (2)

for any design that can draw every document of the lists. Variances are by linearisation.

Rounds that were fixed in advance have weights by their sizes, each alone: their expected counts
depend on the folds, and the sum of these in a denominator (the balance heuristic) would not leave
the expectation alone.

Where a pair has several judgments, g is their mean, and the estimates say so.

References
----------
Hoeffding 1948, *A class of statistics with asymptotically normal distribution*, for sums over
pairs of draws; Schnabel et al. 2016, Table 1, for the measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenhand.errors import SupportError
from evenhand.estimands.goals import Goal
from evenhand.estimation.estimates import Estimate
from evenhand.float64 import in_float64
from evenhand.nonlinear.linearisation import Near
from evenhand.nonlinear.second_order import even_parts
from evenhand.sampling.assessor_variance import several_said
from evenhand.sampling.combination import combined
from evenhand.sampling.rounds import Round, default_plan
from evenhand.sampling.samples import Sample

__all__ = ["estimate_swaps"]


def _unpaired(sample: Sample, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Which draws to take together, and how often to add their even part -B(e, e).

    Returns
    -------
    groups, factor
        Shapes (groups, n) and (groups,).
    """
    fold = sample.fold_at(sample.draws)
    every = np.ones((1, len(sample)))
    # The last folds at random may be empty.
    apart = (fold == np.arange(max(sample.n_folds, sample.scattered + 1))[:, None]) * 1.0
    if sample.sampler == "iid":
        size = apart.sum(1)
        if (size == 1).any():
            raise SupportError(f"{name} has one draw, which makes no pair", hint="draw more")
        return apart, 1.0 / np.maximum(size - 1.0, 1.0)
    if sample.sampler == "distinct" and (sample.expected[sample.draws] == 1.0).all():
        return every[:0], np.zeros(0)
    if sample.sampler != "distinct" or sample.scattered < 2:
        raise SupportError(
            f"{name} was drawn so that the chance of drawing two documents together is not known",
            hint="draw in pairs: `evenhand.sampling.samplers.draw(..., in_pairs=True)`",
        )
    folds = sample.scattered
    factor = np.full(folds, -folds / (folds - 1.0))
    return np.concatenate([every - apart[:1], apart[1:]]), np.append(1.0 / (folds - 1.0), factor)


def _apart(
    rounds: Sequence[Round], planned: Sequence[float] | None, combine: str
) -> tuple[list[Round], list[float]]:
    """The rounds, those fixed in advance first, and a plan in which each is a stage of its own."""
    if combine != "planned":
        raise SupportError(
            "rounds of draws in pairs cannot be combined by the balance heuristic: it is biased",
            hint="combine with planned weights, as by default",
        )
    fixed = [one for one in rounds if not one.depends_on]
    later = [one for one in rounds if one.depends_on]
    plan = list(default_plan(bool(fixed) + len(later)) if planned is None else planned)
    total = sum(len(one.sample) for one in fixed)
    shares = [plan[0] * len(one.sample) / total for one in fixed]
    return [*fixed, *later], [*shares, *plan[bool(fixed) :]]


@in_float64
def estimate_swaps(
    goal: Goal,
    rounds: Sequence[Round],
    *,
    level: float = 0.95,
    planned: Sequence[float] | None = None,
    combine: str = "planned",
    interval: str = "auto",
) -> Estimate:
    """Estimate Swaps or wSwaps of every system, and every contrast of the goal, equation (2).

    Parameters
    ----------
    goal
        The contrasts wanted; its target's measure is `evenhand.measures.Swaps` or ``wSwaps``.
    rounds
        With grades for utilities, drawn ``in_pairs`` (`evenhand.sampling.samplers.draw`).
    level, planned, combine, interval
        As in `evenhand.estimation.importance.estimate`; ``auto`` is Student's.

    Returns
    -------
    Estimate
        Whose goal has the gradient for weights.

    Raises
    ------
    MissingJudgments
        If a drawn pair is not judged.
    SupportError
        If no system is covered, or a round was not drawn in pairs.
    """
    rounds, planned = _apart(rounds, planned, combine)
    found = combined(goal, rounds, planned=planned, combine="each")
    near = Near.of(goal, rounds, found)
    pool, measure = goal.target.pool, goal.target.measure
    _, beyond = near.beyond()
    by_query, start = near.by_query.copy(), 0
    for number, one in enumerate((r.round for r in found.rounds()), 1):
        groups, factor = _unpaired(one.sample, one.name or f"round {number}")
        moves = np.zeros((len(groups), len(near.errors.draws)))
        moves[:, start : start + len(one.sample)] = groups
        start += len(one.sample)
        if len(groups):
            by_query += even_parts(pool, measure, near.levels, near.errors, moves, factor=factor)
    answer = near.estimate(
        by_query, beyond, level=level, interval=interval, planned=planned, combine="each"
    )
    if (answer.covered < 1).all():
        raise SupportError(
            f"no system is covered: pairs that count for {measure} could not be drawn",
            hint="draw a further round, with a floor above 0",
        )
    return replace(answer, notes=(*answer.notes, *several_said(goal, rounds)))
