r"""Which pairs of systems still decide the answer: weights for the goals `best` and `order`.

To learn which system is best, or in which order they come, a judgment is worth most where two
systems may still be taken for one another. With the true gap delta_ij of systems i and j, and the
variance s_ij^2 of the estimate of it that the study will end with, they are misordered with the
probability Phi(-|delta_ij| / s_ij). So the expected number of errors falls with each variance at
the rate

    h_ij = E[ 1_ij |delta_ij| phi(delta_ij / s_ij) / (2 s_ij^3) ]                              (1)

where phi is the standard normal density. For `order` 1_ij = 1: every misordered pair is an error
(Kendall's tau). For `best` 1_ij = 1 where i or j is the best of all: an error is a challenger that
is taken for better than the best (Bonferroni's bound on the probability of an incorrect selection,
which optimal computing budget allocation minimises). The expectation is over the true values given
the rounds so far, jointly normal around their estimates with their covariance: who leads is
uncertain too. s_ij^2 is taken as `AHEAD` times the variance to date. For `order`, with d_ij the
estimate of the gap, v_ij its variance, rho = `AHEAD` and t^2 = rho d_ij^2 / ((1 + rho) v_ij),

    h_ij = exp(-t^2 / (2 rho)) / (2 sqrt(2 pi rho) (1 + rho) v_ij)
           * [ sqrt(2 / pi) exp(-t^2 / 2) + t erf(t / sqrt(2)) ]                               (2)

For `best` it is a mean over draws of the true values with a fixed key.

To first order, the round that does most for the goal minimises sum_ij h_ij Var(d_ij). Its norm is a
quadratic form in the graph Laplacian L of the weights (L_ij = -h_ij, rows that sum to 0):

    ||a_c||^2 = sum_{i<j} h_ij (w_ic - w_jc)^2 = w_c' L w_c = ||R w_c||^2,    R'R = L          (3)

R has k - 1 rows that sum to 0: a matrix of contrasts, for which designs need nothing new. A share
of the weights, `UNIFORM`, is the same for all pairs, so that none starves whose first judgments
misled. In the first round, of which nothing is known, all weights are alike: the goal `rank`.

Weights see judgments. They may shape the *next* round, which records on which rounds it depends
(`Round.depends_on`), so that each estimate stays exactly unbiased; they never enter an estimate.

References
----------
Chen, Lin, Yucesan and Chick 2000, *Simulation budget allocation for further enhancing the
efficiency of ordinal optimization*; Glynn and Juneja 2004, *A large deviations perspective on
ordinal optimization*, for what (1) leads to where errors are rare.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.errors import EvenhandError
from evenhand.estimands.goals import Goal, contrast, pairs
from evenhand.estimation.estimates import Estimate, uncovered_contrasts
from evenhand.float64 import in_float64

__all__ = ["AHEAD", "FOCUSED", "UNIFORM", "deciding", "focused", "pair_weights", "root", "tempered"]

#: Goals whose later rounds are focused.
FOCUSED: tuple[str, ...] = ("best", "order")
#: Share of the weights that is the same for all pairs.
UNIFORM = 0.2
#: Variance of a gap at the end of a study over that to date, as weights foresee it.
AHEAD = 0.5
# Share of the mean variance of a gap that is added to each: one estimated from few judgments, or
# from none that distinguishes the two, may be far too small.
_STEADY = 0.05


@partial(jax.jit, static_argnames=("kind", "n_draws"))
def pair_weights(
    kind: str, value: jax.Array, covariance: jax.Array, *, n_draws: int = 2048
) -> jax.Array:
    """Weights h of equation (1), one a pair: symmetric, 0 where two systems differ by exactly 0.

    Parameters
    ----------
    kind
        One of `FOCUSED`.
    value, covariance
        Estimates of the systems, shapes (k,) and (k, k).
    n_draws
        Draws of the true values, for ``best``; half of them mirror the others.

    Returns
    -------
    jax.Array
        Shape (k, k), per squared unit of the measure.
    """
    own = jnp.diag(covariance)
    size = own[:, None] + own
    between = size - 2.0 * covariance
    apart = between > 1e-12 * size
    steady = _STEADY * jnp.where(apart, between, 0.0).sum() / jnp.maximum(apart.sum(), 1)
    variance = jnp.where(apart, between + steady, 1.0)
    if kind == "order":
        gap = value[:, None] - value
        rate = _expected_rate(gap, variance)
    else:
        rate = _rate_of_best(value, covariance, variance, n_draws)
    return jnp.where(apart, rate, 0.0)


def _expected_rate(gap: jax.Array, variance: jax.Array) -> jax.Array:
    """Equation (2)."""
    t = jnp.abs(gap) * jnp.sqrt(AHEAD / ((1.0 + AHEAD) * variance))
    folded = jnp.sqrt(2.0 / jnp.pi) * jnp.exp(-(t**2) / 2.0)
    folded += t * jax.scipy.special.erf(t / jnp.sqrt(2.0))
    scale = jnp.sqrt(8.0 * jnp.pi * AHEAD) * (1.0 + AHEAD) * variance
    return jnp.exp(-(t**2) / (2.0 * AHEAD)) * folded / scale


def _rate_of_best(
    value: jax.Array, covariance: jax.Array, variance: jax.Array, n_draws: int
) -> jax.Array:
    """Equation (1) for `best`, by simulation of the true values."""
    k = len(value)
    eigenvalue, eigenvector = jnp.linalg.eigh(covariance)
    factor = eigenvector * jnp.sqrt(jnp.maximum(eigenvalue, 0.0))
    moved = jax.random.normal(jax.random.key(0), (n_draws // 2, k), value.dtype) @ factor.T
    true = value + jnp.concatenate([moved, -moved])
    best = true.argmax(1)
    gap = true.max(1, keepdims=True) - true
    square = AHEAD * variance[best]
    rate = gap * jnp.exp(-(gap**2) / (2.0 * square)) / (jnp.sqrt(8.0 * jnp.pi) * square**1.5)
    leads = jax.nn.one_hot(best, k, dtype=value.dtype).T @ rate / len(true)
    return leads + leads.T


@jax.jit
def tempered(weights: jax.Array, share: float = UNIFORM) -> jax.Array:
    """Weights of pairs that sum to 1, a share of them the same for all; shape (k, k).

    All are alike where none is above 0.
    """
    others = 1.0 - jnp.eye(len(weights))
    alike = others / jnp.maximum(others.sum() / 2.0, 1.0)
    total = jnp.triu(weights, 1).sum()
    scaled = jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), alike)
    return (1.0 - share) * scaled + share * alike


@jax.jit
def root(weights: jax.Array) -> jax.Array:
    """R of equation (3): shape (k - 1, k), each row summing to 0 but for rounding."""
    eigenvalue, eigenvector = jnp.linalg.eigh(jnp.diag(weights.sum(1)) - weights)
    rows = (eigenvector * jnp.sqrt(jnp.maximum(eigenvalue, 0.0))).T[1:]
    return rows - rows.mean(1, keepdims=True)


@in_float64
def focused(goal: Goal, found: Estimate, *, share: float = UNIFORM) -> Goal:
    """The contrasts to design the next round for, given an estimate from the rounds before.

    Parameters
    ----------
    goal
        Of a kind in `FOCUSED`.
    found
        The estimate from the rounds *before* the one to be designed.
    share
        Of weights that all pairs have alike.

    Returns
    -------
    Goal
        With the matrix R of equation (3). A pair of which nothing is known, since the rounds do not
        cover it, counts as much as the most decisive one.

    Raises
    ------
    EvenhandError
        If the goal is of another kind.

    Examples
    --------
    >>> import jax
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> goal = eh.pair(target)
    >>> design = eh.design(goal, eh.rank_utility(target.pool))
    >>> sample = eh.draw(jax.random.key(0), design, 3)
    >>> judged = eh.judge(target, sample, eh.read_qrels({"q": {"a": 1, "b": 0, "c": 1}}))
    >>> best = eh.best(target)
    >>> eh.focused(best, eh.estimate(best, [judged])).matrix.shape
    (1, 2)
    """
    if goal.kind not in FOCUSED:
        raise EvenhandError(
            f"the goal {goal.kind!r} asks the same of every round",
            hint=f"rounds are focused for {' and '.join(FOCUSED)}",
        )
    # Where a measure counts faults, the best is the lowest.
    value = jax.device_put(goal.target.sign * found.reached_value)
    covariance = jax.device_put(found.covariance)
    weights = np.array(pair_weights(goal.kind, value, covariance))
    if (found.covered < 1).any():
        every = pairs(goal.target)
        lost = every.matrix[uncovered_contrasts(every, found.reached)]
        i, j = lost.argmax(1), lost.argmin(1)
        weights[i, j] = weights[j, i] = 0.0
        weights[i, j] = weights[j, i] = weights.max() if weights.any() else 1.0
    matrix = np.asarray(root(tempered(jax.device_put(weights), share)))
    names = [f"direction {i}" for i in range(1, len(matrix) + 1)]
    return contrast(goal.target, matrix, names=names, kind=goal.kind)


def deciding(goal: Goal, most: int = 3) -> list[tuple[str, float]]:
    """The pairs with the largest weights of a focused goal, and their share of all weights."""
    weights = -np.triu(goal.matrix.T @ goal.matrix, 1)
    chosen = np.argsort(-weights, axis=None, kind="stable")[:most]
    systems = goal.target.systems
    return [
        (f"{systems[i]} - {systems[j]}", float(weights[i, j] / weights.sum()))
        for i, j in zip(*np.unravel_index(chosen, weights.shape), strict=True)
        if weights[i, j] > 0
    ]
