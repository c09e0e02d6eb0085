r"""Calibration of a learned prior: observed against predicted judgments, by bin.

A round that was designed from a model keeps its posterior in ``posterior.nc``: for each of the n
judgments that it learned from, what was observed and what S draws of the parameters simulate. With
s_i the mean over draws of the simulated utility of judgment i, judgments are sorted by s_i and cut
into bins of equal size; of each bin B

    predicted = mean over i in B of s_i,     observed = mean over i in B of u_i              (1)

and the interval holds the level's share of the S simulated means of the bin: where the model is
right, that share of the observed means lies inside (a posterior predictive check; Gelman, Meng and
Stern 1996). The judgments are those that the model has seen, so (1) can show that it is wrong, not
that it foretells.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpyro.diagnostics import split_gelman_rubin

from evenhand.priors.diagnostics import MOST_RHAT
from evenhand.priors.models import continuous, model_for

__all__ = ["Calibration", "read_calibration"]

#: Bins, at most, and judgments that each should hold.
BINS, LEAST = 10, 5


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Equation (1) for the prior of one round.

    Attributes
    ----------
    round
        Name of the round that was designed from it.
    judgments
        Number in each bin; shape (bins,).
    predicted, observed
        Mean utility of each bin; shape (bins,).
    low, high
        Ends of the interval of the predicted mean; shape (bins,).
    faults
        What is poor about the fit, a sentence each.
    """

    round: str
    judgments: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    faults: tuple[str, ...] = ()

    @property
    def inside(self) -> np.ndarray:
        """Whether the observed mean of each bin lies in its interval; bool, shape (bins,)."""
        return (self.low <= self.observed) & (self.observed <= self.high)


def read_calibration(
    path: Path, name: str, *, levels: np.ndarray | None = None, level: float = 0.95
) -> Calibration | None:
    """Read it from the posterior of a round; None where the model had nothing to learn from.

    Parameters
    ----------
    path
        ``posterior.nc`` of the round.
    name
        Of the round.
    levels
        Utilities that a judgment can have, where they are known.
    level
        Share of simulated means between the ends of an interval.

    Raises
    ------
    OSError, LookupError, ValueError
        If the file is not what a round writes.
    """
    with h5py.File(path) as file:
        if "observed_data" not in file:
            return None
        said = np.asarray(file["observed_data/judgment"], np.float64).reshape(-1)
        utility = np.asarray(file["constant_data/utility"], np.float64).reshape(-1)
        drawn = np.asarray(file["posterior_predictive/judgment"], np.float64)
        group: Any = file["posterior"]  # h5py's types do not know that it is no array
        sites = {name: np.asarray(site) for name, site in group.items() if np.ndim(site) > 1}
    simulated = _in_utilities(drawn.reshape(-1, len(said)), said, utility, levels)
    expected = simulated.mean(0)
    order = np.argsort(expected, kind="stable")
    bins = np.array_split(order, min(BINS, max(1, len(order) // LEAST)))
    means = np.array([simulated[:, members].mean(1) for members in bins])
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2], axis=1)
    return Calibration(
        name,
        np.array([len(members) for members in bins]),
        np.array([expected[members].mean() for members in bins]),
        np.array([utility[members].mean() for members in bins]),
        low,
        high,
        tuple(_faults(simulated.sum(1), utility.sum(), sites)),
    )


def _in_utilities(
    drawn: np.ndarray, said: np.ndarray, utility: np.ndarray, levels: np.ndarray | None
) -> np.ndarray:
    """What was simulated, by the model's own codes, in utilities.

    The codes of a model of the user's own may be neither numbers of levels nor standardised; a line
    through what was observed is then the best summary.
    """
    model, levels = model_for(utility if levels is None else levels)
    if model is continuous:
        return levels[0] + levels[1] * drawn
    codes = np.concatenate([said, drawn.reshape(-1)])
    whole = (codes == np.round(codes)).all() and 0 <= codes.min() and codes.max() < len(levels)
    if whole and np.allclose(levels[said.astype(int)], utility):
        return levels[drawn.astype(int)]
    slope, intercept = np.polyfit(said, utility, 1) if np.ptp(said) > 0 else (1.0, 0.0)
    return intercept + slope * drawn


def _faults(total: np.ndarray, said: float, sites: dict[str, np.ndarray]) -> list[str]:
    found = []
    if abs(said - total.mean()) > 4.0 * max(float(total.std()), 1e-12):
        found.append(
            f"the model predicts {total.mean():.4g} in all where assessors said {said:.4g}"
        )
    chains = [x for x in sites.values() if x.shape[0] > 1 and x.shape[1] >= 4]
    rhat = max((float(np.max(split_gelman_rubin(x))) for x in chains), default=1.0)
    if rhat > MOST_RHAT:
        found.append(f"the model's chains disagree (R-hat {rhat:.3f})")
    return found
