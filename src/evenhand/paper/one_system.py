r"""Tables 2 to 4: one system alone, by pools and by sampling.

The estimate of U from n draws of q has the variance

    n Var(U^) = sum_c (w_c u_c)^2 / q_c - U^2                                                (1)

exactly; replicated studies give its standard deviation again, the mean half-width 1.96 s / sqrt(n)
of the paper's interval, and how often that covers U.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from evenhand.paper.dense_cells import Cells, single
from evenhand.paper.replication import replicate

__all__ = ["QUANTILE", "Sampled", "System", "exact_sds", "sample"]

#: Of the paper's 95 % interval.
QUANTILE = 1.96


@dataclass(frozen=True, slots=True, eq=False)
class System:
    """One system on one data set.

    Attributes
    ----------
    name
        Of the system.
    cells
        Its cells.
    rank
        The rank that it gives to each; shape (cells,).
    per_query
        Value of each query's ranking, shape (|X|,); their mean is the system's value.
    """

    name: str
    cells: Cells
    rank: np.ndarray
    per_query: np.ndarray

    @property
    def value(self) -> float:
        """U, from complete judgments."""
        return float(self.cells.values[0])


@dataclass(frozen=True, slots=True)
class Sampled:
    """What replicated studies of one design came to.

    Attributes
    ----------
    mean, sd
        Of the estimates.
    interval
        Mean half-width.
    coverage
        Share of the intervals that hold the true value.
    """

    mean: float
    sd: float
    interval: float
    coverage: float


def exact_sds(cells: Cells, n: int) -> dict[str, float]:
    """Standard deviation of the estimate from n draws, for every design, equation (1)."""
    return {name: float(np.sqrt(square / n)) for name, square in single(cells.padded())[1].items()}


def sample(
    key: jax.Array,
    cells: Cells,
    designs: Sequence[str],
    *,
    n: int,
    budgets: Sequence[int],
    trials: int,
) -> dict[str, Sampled]:
    """Replicate studies of one system for the designs named, with n draws, one of `budgets`."""
    truth, cells = float(cells.values[0]), cells.padded()
    masses, at = single(cells)[0], list(budgets).index(n)
    found = {}
    for i, name in enumerate(designs):
        key_design = jax.random.fold_in(key, i)
        studies = replicate(
            key_design, masses[name], cells.weight, cells.utility, budgets=budgets, trials=trials
        )
        estimate, half = studies.estimate[:, at, 0], QUANTILE * studies.std_error[:, at, 0]
        found[name] = Sampled(
            float(estimate.mean()),
            float(estimate.std(ddof=1)),
            float(half.mean()),
            float((np.abs(estimate - truth) <= half).mean()),
        )
    return found
