"""Kinds of measures: how each family is designed for, drawn and estimated; the rows of `KINDS`.

=========  ================================  ====================================================
kind       measures                          how they are estimated from samples
=========  ================================  ====================================================
`ERRORS`   MAE, MSE                          weights hold the errors (`rating_errors`), unbiased
`SWAPS`    Swaps, wSwaps                     pairs of draws, by their chance (`swaps`), unbiased
`RATIOS`   nDCG, AP, R, Rprec                linearised (`ratios`), nearly unbiased
`SUMS`     P, DCG, Gain, RBP                 inverse expected counts, unbiased
=========  ================================  ====================================================

To add a kind, write a `Kind` and insert it into `KINDS` before those whose protocol its measures
also fulfil: studies, plans and reports read this table and know no kind by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.errors import EvenhandError
from evenhand.estimands.goals import Goal
from evenhand.estimation.estimates import Estimate
from evenhand.estimation.importance import estimate
from evenhand.measures.base import Deviation, Linear, Measure, Pairwise, Ratio
from evenhand.nonlinear.design_goals import expected_goal
from evenhand.nonlinear.rating_errors import estimate_deviation, expected_deviation
from evenhand.nonlinear.ratios import check_draws, estimate_ratio
from evenhand.nonlinear.swaps import estimate_swaps

__all__ = ["ERRORS", "KINDS", "RATIOS", "SUMS", "SWAPS", "Kind", "kind_of"]


def _any_number(goal: Goal, n_draws: int) -> None:
    """Every number of draws is enough."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a family of measures is designed for, drawn and estimated.

    Attributes
    ----------
    protocol
        The protocol of `evenhand.measures.base` that its measures fulfil.
    estimate
        ``(goal, rounds, *, level, interval, planned, combine)`` to an `Estimate`; where `controls`
        holds, also with the options ``controls``, ``bounds`` and ``top_utility``.
    design_goal
        ``(goal, mean, spread, top)`` to the goal to design for: `mean` is what is expected of each
        cell and `spread` how far that may be off, shapes (cells,), `top` the largest utility. None
        where the goal itself is designed for.
    check_draws
        ``(goal, n_draws)``: refuses a number of draws that is too small.
    controls
        Whether control variates, and bounds where not all pairs could be drawn, are for it.
    in_pairs
        Whether the chance of drawing any two cells together must be known.
    grades
        Whether its expectations are grades, and its weights hold what was judged; else utilities.
    whole_lists
        Whether a value is a function of whole lists, rather than a sum over the entries.
    method
        A sentence for the methods of a report, with ``{measure}`` for its name; empty for sums,
        whose sentence names the estimator.
    """

    protocol: type
    estimate: Callable[..., Estimate]
    design_goal: Callable[[Goal, np.ndarray, np.ndarray, float], Goal] | None = None
    check_draws: Callable[[Goal, int], None] = _any_number
    controls: bool = False
    in_pairs: bool = False
    grades: bool = False
    whole_lists: bool = False
    method: str = ""


def _near_expected(goal: Goal, mean: np.ndarray, spread: np.ndarray, top: float) -> Goal:
    return expected_goal(goal, mean, top)


def _near_expected_grades(goal: Goal, mean: np.ndarray, spread: np.ndarray, top: float) -> Goal:
    return expected_deviation(goal, mean, spread)


ERRORS = Kind(
    Deviation,
    estimate_deviation,
    _near_expected_grades,
    grades=True,
    method="Errors were weighted by inverse expected counts, which is unbiased.",
)
SWAPS = Kind(
    Pairwise,
    estimate_swaps,
    _near_expected,
    in_pairs=True,
    whole_lists=True,
    method="Every two documents judged together count as a pair, weighted by the chance of "
    "drawing both, which is unbiased.",
)
RATIOS = Kind(
    Ratio,
    estimate_ratio,
    _near_expected,
    check_draws,
    controls=True,
    whole_lists=True,
    method="{measure} is a ratio, so that estimates are not exactly unbiased: it was computed "
    "from unbiased estimates of each pair’s utility, and the bias that the draws show was "
    "taken off.",
)
SUMS = Kind(Linear, estimate, controls=True)

#: The kinds; a measure is of the first whose protocol it fulfils.
KINDS = [ERRORS, SWAPS, RATIOS, SUMS]


def kind_of(measure: Measure) -> Kind:
    """The kind of a measure.

    Raises
    ------
    EvenhandError
        If samples cannot estimate it.

    Examples
    --------
    >>> import evenhand as eh
    >>> kind_of(eh.measure("nDCG@10")) is RATIOS, kind_of(eh.measure("MAE")).grades
    (True, True)
    """
    for kind in KINDS:
        if isinstance(measure, kind.protocol):
            return kind
    raise EvenhandError(
        f"{measure} cannot be estimated from sampled pairs",
        hint="evaluate it with complete judgments (`evenhand evaluate`)",
    )
