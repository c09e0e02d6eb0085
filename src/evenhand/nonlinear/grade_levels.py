r"""Which levels of utility each cell reaches, as the rounds of a study say it.

With R_cl whether cell c reaches the l-th level, omega and E as in `evenhand.estimation.importance`,
and m_tcl what is predicted for stage t,

    R^_cl = sum_t omega_tc (m_tcl + sum over draws i of c of (R_il - m_tcl) / E_tc)          (1)

is unbiased for every level. What measures that are no sums make of it, see
`evenhand.nonlinear.linearisation`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.errors import EvenhandError
from evenhand.estimands.goals import Goal
from evenhand.estimands.pools import Pool
from evenhand.nonlinear.second_order import Errors
from evenhand.sampling.combination import Combination
from evenhand.sampling.rounds import Round, known_utility
from evenhand.sampling.samplers import SAMPLERS

__all__ = [
    "estimated_levels",
    "foretold_levels",
    "level_errors",
    "levels_said",
    "levels_seen",
    "missed_levels",
    "steps_of",
]


def levels_said(goal: Goal, rounds: Sequence[Round]) -> np.ndarray:
    """The utilities that were judged, ascending, without 0.

    Raises
    ------
    EvenhandError
        If one is negative.
    """
    known = known_utility(rounds, len(goal.target.pool))
    gain = np.unique(known[~np.isnan(known)])
    if len(gain) and gain[0] < 0:
        raise EvenhandError(f"{goal.target.measure} needs utilities that are not negative")
    gain = gain[gain > 0]
    return gain if len(gain) else np.ones(1)


def steps_of(utility: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Which levels a utility reaches; a prediction, or a mean, may reach a part of one.

    Steps of the levels sum up to the utility.
    """
    below = np.append(0.0, gain[:-1])
    steps = (utility[:, None] - below) / (gain - below)
    return steps if len(gain) == 1 else np.clip(steps, 0.0, 1.0)


def foretold_levels(found: Combination, gain: np.ndarray) -> list[np.ndarray | None]:
    """Chances of levels by each stage's prediction, shape (cells, levels); None without one.

    A mean alone says little of it: then it is taken to reach the lower levels first.
    """
    foretold = []
    for stage in found.stages:
        if stage.reach is not None:
            foretold.append(stage.reach.at(gain))
        else:
            foretold.append(None if stage.mean is None else steps_of(stage.mean, gain))
    return foretold


def estimated_levels(
    found: Combination, foretold: Sequence[np.ndarray | None], gain: np.ndarray, n_cells: int
) -> tuple[np.ndarray, np.ndarray]:
    """Equation (1) for which level each cell reaches, and what was predicted of it.

    Both have shape (cells, levels). Cells that are certain to be drawn need no prediction.
    """
    reached, predicted = np.zeros((2, n_cells, len(gain)))
    for stage, told in zip(found.stages, foretold, strict=True):
        steps = np.zeros_like(reached) if told is None else told
        predicted += stage.weight[:, None] * steps
        for one in stage.rounds():
            residual = steps_of(one.round.utility, gain) - steps[one.draws]
            np.add.at(reached, one.draws, residual * one.coefficient[:, None])
    reached += predicted
    return reached, np.where(_certain(found, n_cells)[:, None], reached, predicted)


def _certain(found: Combination, n_cells: int) -> np.ndarray:
    """Which cells each stage that counts there was sure to draw: bool, shape (cells,)."""
    certain = np.ones(n_cells, bool)
    for stage in found.stages:
        drawn = stage.expected > 0
        for sample in (one.sample for one in stage.members):
            free = np.asarray(SAMPLERS[sample.sampler].free(sample.expected))
            drawn &= (sample.expected == 0) | (free == 0)
        certain &= drawn | (stage.weight == 0)
    return certain


def missed_levels(
    found: Combination, foretold: Sequence[np.ndarray | None], gain: np.ndarray, n_cells: int
) -> np.ndarray:
    """How far what was judged is from what was predicted, of each level: shape (cells, levels).

    Cells that were not drawn reach what a typical relevant document reaches.
    """
    drawn = [one.round.utility for one in found.rounds()]
    relevant = np.concatenate([utility[utility > 0] for utility in drawn])
    missed = np.tile(
        steps_of(relevant.mean(keepdims=True) if len(relevant) else gain[:1], gain), (n_cells, 1)
    )
    for stage, told in zip(found.stages, foretold, strict=True):
        for one in stage.rounds():
            predicted = 0.0 if told is None else told[one.draws]
            missed[one.draws] = steps_of(one.round.utility, gain) - predicted
    return missed


def level_errors(
    found: Combination, foretold: Sequence[np.ndarray | None], gain: np.ndarray
) -> Errors:
    """What is uncertain about (1), each round a group of its own."""
    parts, group = [], 0
    for stage, told in zip(found.stages, foretold, strict=True):
        for one in stage.rounds():
            at, free = one.draws, one.free
            missed = steps_of(one.round.utility, gain)
            if told is not None:
                missed = missed - told[at]
            n, total = np.count_nonzero(free), free.sum()
            spread = np.sqrt(free * (n / (n - 1) if n > 1 else 1.0))
            share = free / total if n > 1 else np.zeros(len(at))
            term = missed * one.coefficient[:, None]
            parts.append(Errors(at, term, spread, share, np.full(len(at), group)))
            group += 1
    return Errors(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def levels_seen(pool: Pool, known: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """How many documents of each query are known to reach each level: shape (queries, levels)."""
    count = np.zeros((len(pool.queries), len(gain)))
    np.add.at(count, pool.query, steps_of(np.nan_to_num(known), gain))
    return count
