r"""Contrasts compared, each alone and all together: intervals and p-values that agree.

Together, with T_i = (D^_i - D_i) / s_i taken as a multivariate t of the correlation estimated,

    D^_i +- c s_i,      c the quantile of max_j |T_j|,                                         (1)
    adjusted p_i = P( max_j |T_j| >= |D^_i| / s_i ),                                           (2)

so an adjusted p is below 1 - level just where the interval of (1) leaves out 0 (the single-step
method). The law of the maximum is simulated with a fixed key; no c is above Bonferroni's.

Alone, p is 1 minus the largest level at which the contrast's own interval leaves out 0, whatever
its kind: below .05 just where the 95 % interval leaves out 0. So it is as right as the interval is
where relevance is rare, which a t test is not.

References
----------
Hothorn, Bretz and Westfall 2008, *Simultaneous inference in general parametric models*; Westfall
and Young 1993, *Resampling-based multiple testing*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from evenhand.float64 import in_float64
from evenhand.intervals.confidence import check_level, percent
from evenhand.results import Result, Table, decimals, rows

__all__ = ["Comparisons", "Joint", "p_alone"]

#: Normal quantile up to which p-values are distinguished: none is given as below 1.3e-15.
FARTHEST = 8.0


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """The law of the largest |T| of some contrasts.

    Attributes
    ----------
    maxima
        Draws of it; none where nothing is known of the contrasts but their number.
    m
        Number of contrasts that can vary.
    degrees
        Degrees of freedom.
    """

    maxima: np.ndarray
    m: int
    degrees: float

    @classmethod
    @in_float64
    def of(cls, factor: np.ndarray, degrees: np.ndarray, *, n_draws: int = 20_000) -> Joint:
        """Simulate it.

        Parameters
        ----------
        factor
            F with F F' the covariance of the contrasts; shape (m, r).
        degrees
            Shape (m,); the smallest is taken.
        n_draws
            Simulated maxima; multipliers are then right to about 0.02.
        """
        spread = np.sqrt((factor**2).sum(1))
        factor = factor[spread > 0] / spread[spread > 0, None]
        nu = float(np.min(degrees))
        if len(factor) <= 1:
            return cls.unknown(1, degrees)
        key = jax.random.key(0)
        found = _maxima(key, factor, nu, n_draws)
        return cls(found, len(factor), nu)

    @classmethod
    def unknown(cls, m: int, degrees: np.ndarray) -> Joint:
        """Bonferroni's bound, for m contrasts whose covariance is not known."""
        return cls(np.zeros(0), m, float(np.min(degrees)))

    def multiplier(self, level: float) -> float:
        """The c of equation (1): Student's with one contrast, and never above Bonferroni's."""
        outside = 1.0 - check_level(level)
        most = float(special.stdtrit(self.degrees, 1.0 - outside / (2 * self.m)))
        if not len(self.maxima):
            return most
        alone = float(special.stdtrit(self.degrees, 1.0 - outside / 2))
        return float(np.clip(np.quantile(self.maxima, level), alone, most))

    def p_value(self, t: np.ndarray) -> np.ndarray:
        """Equation (2) for each |t|; between that of one contrast and Bonferroni's."""
        alone = 2.0 * special.stdtr(self.degrees, -t)
        most = np.minimum(self.m * alone, 1.0)
        if not len(self.maxima):
            return most
        beyond = 1.0 - np.searchsorted(np.sort(self.maxima), t) / len(self.maxima)
        return np.clip(np.where(np.isnan(t), np.nan, beyond), alone, most)


def _maxima(key: jax.Array, factor: np.ndarray, nu: float, n_draws: int) -> np.ndarray:
    # Drawn outside of what is compiled anew for each number of contrasts: to compile a chi-square
    # takes ten times as long as the rest.
    key_normal, key_chi = jax.random.split(key)
    normal = jax.random.normal(key_normal, (n_draws, factor.shape[1]), factor.dtype)
    chi_square = jax.random.chisquare(key_chi, nu, (n_draws,), factor.dtype)
    return np.asarray(_highest(factor, normal)) / np.sqrt(np.asarray(chi_square) / nu)


@jax.jit
def _highest(factor: jax.Array, normal: jax.Array) -> jax.Array:
    return jax.lax.map(lambda z: jnp.abs(factor @ z).max(), normal, batch_size=256)


def p_alone(
    limits: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], value: np.ndarray
) -> np.ndarray:
    """P-values of contrasts against 0, from their intervals.

    Parameters
    ----------
    limits
        Gives low and high at a level for each contrast; shapes (m,).
    value
        The estimates, shape (m,); NaN where there is none.
    """
    near, far = np.zeros(len(value)), np.full(len(value), FARTHEST)
    for _ in range(50):
        z = (near + far) / 2
        low, high = limits(special.erf(z / np.sqrt(2.0)))
        out = (low > 0) | (high < 0)
        near, far = np.where(out, z, near), np.where(out, far, z)
    return np.where(np.isnan(value), np.nan, 2.0 * special.ndtr(-near))


@dataclass(frozen=True, eq=False)
class Comparisons(Result):
    """Contrasts with intervals and p-values, each alone and all together.

    Attributes
    ----------
    systems
        Names of the k systems.
    names
        Of the m contrasts, such as ``x - y``; of all pairs in the order of `systems`.
    level
        Confidence level of the intervals.
    value, std_error, low, high
        By contrast, in the measure's unit; NaN where it is not covered.
    spread
        What replaces the standard error where all are covered together: with few relevant draws
        it is larger, see `evenhand.intervals.intervals`.
    multiplier
        How many of it to either side cover all together, equation (1); None for a kind of interval
        that holds for every n, which Bonferroni's bound puts together.
    low_all, high_all
        Ends that hold all together.
    p, p_all
        Against a difference of 0: unadjusted, and adjusted for all together, equation (2), where
        that is not below the other.
    """

    systems: tuple[str, ...]
    names: tuple[str, ...]
    level: float
    value: np.ndarray
    std_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    spread: np.ndarray
    multiplier: float | None
    low_all: np.ndarray
    high_all: np.ndarray
    p: np.ndarray
    p_all: np.ndarray

    @property
    def decided(self) -> np.ndarray:
        """Which differences are not 0, all taken together; bool, shape (m,)."""
        return (self.low_all > 0) | (self.high_all < 0)

    def _columns(self) -> dict[str, Any]:
        return {
            "contrast": self.names,
            "estimate": self.value,
            "std_error": self.std_error,
            "low": self.low,
            "high": self.high,
            "low_all": self.low_all,
            "high_all": self.high_all,
            "p": self.p,
            "p_all": self.p_all,
            "decided": ["yes" if d else "no" for d in self.decided],
        }

    def tables(self) -> list[Table]:
        """One table, a row a contrast."""
        title = (
            f"low, high and p are of each alone; low_all, high_all and p_all of all together, "
            f"at {percent(self.level)}"
        )
        columns = self._columns()
        digits = dict.fromkeys(columns, decimals(self.std_error)) | {"p": 4, "p_all": 4}
        return [Table.of(title, columns, digits, positive=("p", "p_all"))]

    def to_dict(self) -> dict[str, Any]:
        """The rows of the table, in full precision."""
        return {
            "level": self.level,
            "multiplier": self.multiplier,
            "pairs": rows(self._columns()),
        }
