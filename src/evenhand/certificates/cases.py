r"""A case for the certificates: a pool, what is claimed of it, what is tried; and the verdict.

Errors are relative, so that they mean the same on every pool: a gradient to the largest that one of
its terms can be (4), a variance to the second moment that it is the remainder of, M(tau)^2 or
sum_c u_c^2 ||a_c||^2 / q_c. Tolerances are not tuned; each is one of

    4 eps (cells + k)                           sums of that many terms, in any order          (a)
    (a) + 4 eps sqrt(k) max_c (k + |mean_c| / D_c)                                             (b)
    1e-6                                        central differences of order 6                 (c)
    1e-3                                        the accuracy that a minimax design promises    (d)

with eps the spacing of float64 at 1. (a) bounds the rounding of a sum, and of products of sums. (b)
adds that the mean itself is rounded, which matters near a kink, where D_c is small against the
weights. (c): a step is 3 % of the length on which Sigma bends, which truncates about 1e-8; the
rounding of Sigma is divided by the step and by the cell's share of M, so coordinates are taken
among the cells that add at least the average to M, and one direction moves every cell at once.

The equation (4) is that of `evenhand.certificates.baselines`, where Sigma and M are (1) and (2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.certificates.baselines import distance, mean_baseline
from evenhand.errors import EvenhandError
from evenhand.estimands.goals import Goal

__all__ = ["Arrays", "Case", "Certificate", "Trials", "case", "relative", "worst"]

EPS = float(np.finfo(np.float64).eps)
#: Tolerances (c) and (d).
DIFFERENCES, GAP = 1e-6, 1e-3


@dataclass(frozen=True)
class Certificate:
    """One claim of the theory, and how well it holds.

    Attributes
    ----------
    name
        As in the table of `evenhand.certificates.checks`.
    statement
        The claim, in words.
    error
        How far the data are from it, relative.
    tolerance
        The error that rounding or the method explains.
    numbers
        What else was found, by what it is.
    """

    name: str
    statement: str
    error: float
    tolerance: float
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the claim holds; not if anything is NaN."""
        return bool(self.error <= self.tolerance)

    def __str__(self) -> str:
        verdict = "holds" if self.passed else "FAILS"
        lines = [
            f"{self.name} {verdict}: {self.statement}",
            f"  error {self.error:.2g}, tolerance {self.tolerance:.2g}",
            *(f"  {name}: {value:.6g}" for name, value in self.numbers.items()),
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain Python values."""
        return {
            "name": self.name,
            "passed": self.passed,
            "statement": self.statement,
            "error": self.error,
            "tolerance": self.tolerance,
            "numbers": dict(self.numbers),
        }


class Arrays(NamedTuple):
    """A pool: weights (cells, systems) and utility (cells,)."""

    weights: jax.Array
    utility: jax.Array


class Trials(NamedTuple):
    """What is tried at random, n of each.

    Attributes
    ----------
    baselines
        In turn on the simplex of the mean, and anywhere: there each cell moves by up to twice the
        systems' spread, or its weight where they agree; shape (n, cells).
    proposals
        With full support; shape (n, cells).
    multiples
        Of the systems' spread, for ties, in turn above and below 0; shape (n,).
    importances
        On the simplex; shape (n, systems).
    """

    baselines: jax.Array
    proposals: jax.Array
    multiples: jax.Array
    importances: jax.Array


class Case(NamedTuple):
    """What the checks share.

    Attributes
    ----------
    goal
        Ranking the systems.
    pool
        Its weights and utilities.
    tau, mean
        The claimed baseline, and the mean.
    trials
        What is tried against the claims.
    key
        Chooses coordinates for finite differences.
    summed, averaged
        The tolerances (a) and (b).
    """

    goal: Goal
    pool: Arrays
    tau: jax.Array
    mean: jax.Array
    trials: Trials
    key: jax.Array
    summed: float
    averaged: float


def case(key: jax.Array, goal: Goal, pool: Arrays, n: int, tau: np.ndarray | None = None) -> Case:
    """Draw `n` trials of each kind and work out the tolerances; tau is the mean by default.

    Raises
    ------
    EvenhandError
        If nothing varies.
    """
    key, drawn = jax.random.split(key)
    mean, near, differ, trials = _drawn(drawn, pool, n)
    if not differ:
        raise EvenhandError(
            "the systems differ nowhere, or only where the utility is 0: "
            "every variance is 0, there is nothing to certify"
        )
    cells, k = pool.weights.shape
    summed = 4 * EPS * (cells + k)
    return Case(
        goal=goal,
        pool=pool,
        tau=mean if tau is None else jnp.asarray(tau, jnp.float64),
        mean=mean,
        trials=trials,
        key=key,
        summed=summed,
        averaged=summed + 4 * EPS * k**0.5 * (k + float(near)),
    )


@partial(jax.jit, static_argnames="n")
def _drawn(key: jax.Array, pool: Arrays, n: int) -> tuple[jax.Array, jax.Array, jax.Array, Trials]:
    """The mean, how near it is to a kink, whether anything varies, and trials."""
    cells, k = pool.weights.shape
    mean = mean_baseline(pool.weights)
    spread = distance(mean, pool.weights)
    apart = spread > 0
    near = jnp.where(apart, jnp.abs(mean) / jnp.where(apart, spread, 1.0), 0.0).max()
    differ = (apart & (pool.utility != 0)).any()
    # One draw of all, because each one takes long to compile.
    uniform = jax.random.uniform(key, (n, 2 * cells + k + 1))
    where, chance, weight, size = jnp.split(uniform, [cells, 2 * cells, 2 * cells + k], axis=1)
    odd = jnp.arange(n)[:, None] % 2 == 1
    length = jnp.where(apart, spread / k**0.5, jnp.abs(mean))
    anywhere = mean + length * (4.0 * where - 2.0)
    trials = Trials(
        baselines=jnp.where(odd, anywhere, _simplex(where) * mean.sum()),
        proposals=(0.1 + chance) / (0.1 + chance).sum(1, keepdims=True),
        multiples=jnp.where(odd, -4.0, 4.0)[:, 0] * size[:, 0],
        importances=_simplex(weight),
    )
    return mean, near, differ, trials


def _simplex(uniform: jax.Array) -> jax.Array:
    """Uniform on the simplex, row by row."""
    positive = -jnp.log1p(-uniform)
    return positive / positive.sum(1, keepdims=True)


def worst(*values: float) -> float:
    """The largest; NaN if there is one, as `max` of Python would not have it."""
    return float(np.max(values))


def relative(difference: jax.Array, size: jax.Array) -> jax.Array:
    """|difference| / size: 0 where both are 0, infinite where only the size is, and on NaN."""
    difference = jnp.where(jnp.isnan(difference), jnp.inf, jnp.abs(difference))
    ratio = difference / jnp.where(size > 0, size, 1.0)
    return jnp.where(size > 0, ratio, jnp.where(difference > 0, jnp.inf, 0.0))
