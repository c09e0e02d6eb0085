r"""Between-query variance: from this set of queries to queries like these.

Estimates answer for *this* set of queries. Where its queries are themselves a sample of those that
users ask, what a system is worth to *them* is also uncertain because other queries might have been
taken. By two-stage sampling (Cochran 1977, chapter 11),

    Var = Var_within + Var_between,      Var_between = (|X| / (|X| - 1)) sum_x (U_x - mean)^2  (1)

with U_x what query x adds to the value, a sum over queries. U_x is only estimated, by t_x, and that
makes the t_x vary more than the U_x do, by the variance of the draws within queries. So

    B^ = |X| / (|X| - 1) sum_x (t_x - mean)(t_x - mean)' - sum over draws of f z z'              (2)

with z the terms of the estimate and f = 1 - E for distinct draws, 1 for others. Of any contrasts it
is C B^ C', each variance as right as that of a system; those below 0 become 0 (`positive`). To make
B^ a covariance first would be wrong: what is then added to values of systems, which vary much,
drowns the differences of systems, which vary little.

A ratio or swapped pairs of query x are no sum over draws: t_x is then the estimate of the query's
own, V_jx / |X| with its bias taken off, z are the terms of its linearisation, and what that leaves
out (`evenhand.nonlinear.linearisation`) is also subtracted. Judging more makes the first part of
(1) smaller, and never the second: once they are alike, more judgments are hardly worth their price
for this question, and more queries are.

**How intervals for queries like these cover.** Each is the interval for the study's own queries,
widened by t sqrt(B^) on either side, and it can be no truer than that. Measured with 50 queries
drawn anew for each of 150 studies, 1,000 of SYNTH with n = 250, and 300 without a model (``python
tests/benchmarks/population.py``, with and without ``--learn``), in per cent, with an error of .4 to
.9, and .5 to 2.4 for SYNTH:

=========  ====  =========  =============  ==============  =============  ==============
data       n     of         cross-fitted   Student's       no model       Student's
=========  ====  =========  =============  ==============  =============  ==============
TREC-8     250   systems    96.1 (96.8)    94.5 (94.8)     97.7 (97.3)    86.9 (87.3)
TREC-8     250   contrasts  95.3 (95.3)    94.3 (94.1)     98.7 (98.6)    94.5 (93.9)
TREC-8     1000  systems    94.4 (95.1)    93.1 (93.5)     96.0 (96.7)    91.9 (93.0)
TREC-8     1000  contrasts  94.4 (94.8)    93.8 (94.0)     95.6 (95.9)    94.5 (94.9)
SYNTH      250   systems    93.3 (92.8)    89.5 (89.0)     100 (100)      96.0 (95.4)
SYNTH      250   contrasts  93.8 (94.6)    93.8 (94.4)     95.9 (95.3)    95.3 (94.4)
SYNTH      1000  systems    96.0 (93.9)    94.7 (92.0)     98.1 (97.1)    94.7 (94.3)
SYNTH      1000  contrasts  94.1 (94.9)    94.1 (94.9)     94.8 (93.9)    94.7 (93.7)
=========  ====  =========  =============  ==============  =============  ==============

In brackets: how often the interval for the study's own queries covers what is true of
*these*: where the one is too wide or too narrow so is the other, and by as much. Without a model it
is the cubic interval that is wide, which reckons with one event unseen
(`evenhand.intervals.intervals`) where few relevant draws count, as with 250 judgments of 50
queries; B^ counts nothing twice. To shrink that event by how far the variance seen falls short of
what the pool leads to expect would narrow it, and was tried: it takes chance for knowledge where
the rare large draws are just missing, and the worst contrast of 2 to 6 draws that count falls from
93 to 88 % (`tests/benchmarks/coverage.py`, short pool). The value of a SYNTH system, drawn for
contrasts, depends on the 25 draws of the floor, of which four count: cross-fitted its variance is
right on average, and Student's interval knows too many degrees of freedom for it, the moderated one
as many as these leave.

B^ itself is unbiased but for the floor at 0. Where the choice of queries matters little beside the
draws (SYNTH, n = 250: a standard deviation of .66 beside 6.7) half of the differences (2) fall
below 0, and the floor adds 5 % to the width. It stays: without it an interval for other queries
could be narrower than that for these.

The t_x of a ratio vary as its draws make them, also where linearisation takes these to vary less
than they do, as it does with few relevant draws a query and no model. The sum (1) is then right,
and B^ too large by what the first part lacks. nDCG@10 of 50 made queries with 40 documents each,
150 studies (``--worlds MADE --sizes 500 1000``), in per cent:

=========  ====  =========  =============  =============
data       n     of         cross-fitted   no model
=========  ====  =========  =============  =============
MADE       500   systems    92.7 (89.6)    93.8 (68.4)
MADE       500   contrasts  91.1 (93.1)    92.0 (75.6)
MADE       1000  systems    93.8 (93.3)    95.6 (64.7)
MADE       1000  contrasts  94.7 (96.2)    95.3 (78.4)
=========  ====  =========  =============  =============

`worth` says what a further query may cost. With n judgments of |X| queries, and W and B the parts
of (1), a judgment more takes W / n off the variance; a query more, judged like the others, takes
(W + B) / |X|. The latter is worth its price up to

    (W + B) n / (W |X|) judgments,                                                             (3)

of which n / |X| are those of its own pairs.
"""

from __future__ import annotations

import numpy as np

from evenhand.estimands.goals import Goal
from evenhand.float64 import in_float64
from evenhand.sampling.combination import Combination

__all__ = ["between_queries", "positive", "worth"]


def positive(matrix: np.ndarray) -> np.ndarray:
    """The covariance nearest to a symmetric matrix, with its variances where these are above 0."""
    wanted = np.maximum(np.diag(matrix), 0.0)
    value, vector = np.linalg.eigh(matrix)
    root = vector * np.sqrt(np.maximum(value, 0.0))
    spread = np.sqrt((root**2).sum(1))
    root = (
        root
        * np.where(spread > 0, np.sqrt(wanted) / np.where(spread > 0, spread, 1.0), 0.0)[:, None]
    )
    return root @ root.T


@in_float64
def between_queries(
    goal: Goal,
    combination: Combination,
    *,
    by_query: np.ndarray | None = None,
    beyond: np.ndarray | None = None,
) -> np.ndarray:
    """What the choice of queries adds to the covariance of the systems, B^ of equation (2).

    Parameters
    ----------
    goal
        The contrasts.
    combination
        The rounds, combined.
    by_query
        t_x, what each query adds, where it is no sum of its terms; shape (queries, systems).
    beyond
        Covariance of what the terms leave out, shape (systems, systems).

    Returns
    -------
    numpy.ndarray
        Symmetric, but of either sign where draws vary more than queries: shape (systems, systems);
        0 where there is but one query.
    """
    target = goal.target
    pool, k = target.pool, len(target.systems)
    n_queries = len(pool.queries)
    if n_queries < 2:
        return np.zeros((k, k))
    summed, terms, free, place = np.zeros((n_queries, k)), [], [], None
    for stage in combination.stages:
        predicted = stage.predicted()
        if predicted is not None:
            if place is None:
                place = pool.query[target.cell].astype(np.int64) * k + target.system
            added = target.weight * predicted[target.cell]
            summed += np.bincount(place, added, minlength=n_queries * k).reshape(-1, k)
        for one in stage.rounds():
            z = target.weights(one.draws) * (one.residual * one.weight / one.expected)[:, None]
            np.add.at(summed, pool.query[one.draws], z)
            terms.append(z)
            free.append(one.free)
    z, f = np.concatenate(terms), np.concatenate(free)[:, None]
    of_queries = summed if by_query is None else by_query
    away = of_queries - of_queries.mean(0)
    found = n_queries / (n_queries - 1) * away.T @ away - z.T @ (f * z)
    return found if beyond is None else found - beyond


def worth(within: float, between: float, n_judged: int, n_queries: int) -> float:
    """How many judgments a further query may cost, equation (3); inf where nothing is left to draw.

    Parameters
    ----------
    within, between
        The two parts of a variance.
    n_judged, n_queries
        Judgments so far, and queries of the study.
    """
    if within <= 0:
        return float("inf")
    return float((within + between) * n_judged / (within * n_queries))
