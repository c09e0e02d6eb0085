r"""How the rounds of a study enter an estimate: weight, expected counts and prediction of each.

With omega_s(c) the weight of stage s at cell c, E_s its expected counts, m_s its control variate,

    D^ = sum_s [ sum_c omega_s(c) a_c m_sc
                 + sum_i omega_s(c_i) a_{c_i} (r_i - m_s(c_i)) / E_s(c_i) ]                  (1)

over the draws i of the rounds of each stage (`evenhand.sampling.rounds`). `combined` decides which
rounds are one stage, and `Combination` yields what (1) needs: every estimator, variance and
interval goes through its `stages`, or through `rounds` where stages do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenhand.designs.utilities import Reach
from evenhand.errors import EvenhandError, MissingJudgments, SupportError
from evenhand.estimands.goals import Goal
from evenhand.sampling.rounds import (
    Control,
    Round,
    check_control,
    weighed_stages,
    weights_by_cell,
)
from evenhand.sampling.samplers import SAMPLERS

__all__ = ["Combination", "CombinedRound", "Stage", "combined"]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Rounds that count as one, as they enter equation (1).

    Attributes
    ----------
    members
        The rounds.
    weight
        omega at each cell; shape (cells,).
    expected
        E, the sum of the rounds' own; shape (cells,).
    mean
        m, with what was known put in; None where there is neither. Shape (cells,).
    reach
        How likely each utility is by that prediction; None where it is a mean alone.
    """

    members: Sequence[Round]
    weight: np.ndarray
    expected: np.ndarray
    mean: np.ndarray | None = None
    reach: Reach | None = None

    def reachable(self) -> np.ndarray:
        """Whether the stage could draw each cell, or knew it: shape (cells,)."""
        known = [np.isfinite(one.known) for one in self.members if one.known is not None]
        return (self.expected > 0) | np.any(known, axis=0)

    def predicted(self) -> np.ndarray | None:
        """Omega m, the first sum of (1) by cell, 0 where nothing could be drawn; shape (cells,)."""
        if self.mean is None:
            return None
        return np.where(self.reachable(), self.weight * self.mean, 0.0)

    def inverse(self) -> np.ndarray:
        """Omega / E by cell, 0 where nothing could be drawn; shape (cells,)."""
        could = self.expected > 0
        return np.where(could, self.weight / np.where(could, self.expected, 1.0), 0.0)

    def rounds(self) -> Iterator[CombinedRound]:
        """Its rounds, each with what (1) needs at its draws."""
        return (CombinedRound(one, self) for one in self.members)


@dataclass(frozen=True, slots=True, eq=False)
class CombinedRound:
    """One round as it enters equation (1); arrays at its draws have shape (n,).

    Attributes
    ----------
    round
        Its draws and judgments.
    stage
        The stage that it is of.
    """

    round: Round
    stage: Stage

    @property
    def draws(self) -> np.ndarray:
        """The cell of each draw."""
        return self.round.sample.draws

    @property
    def weight(self) -> np.ndarray:
        """Omega at the draws."""
        return self.stage.weight[self.draws]

    @property
    def expected(self) -> np.ndarray:
        """E of the stage at the draws."""
        return self.stage.expected[self.draws]

    @property
    def own_expected(self) -> np.ndarray:
        """E of the round itself at the draws, on which its variance depends."""
        return self.round.sample.expected[self.draws]

    @property
    def coefficient(self) -> np.ndarray:
        """Omega / E at the draws."""
        return self.weight / self.expected

    @property
    def residual(self) -> np.ndarray:
        """The residuals r - m at the draws."""
        mean = self.stage.mean
        return self.round.utility if mean is None else self.round.utility - mean[self.draws]

    @property
    def free(self) -> np.ndarray:
        """How much each draw varies, 1 or less: 0 for cells that were certain to be drawn."""
        law = SAMPLERS[self.round.sample.sampler]
        return np.asarray(law.free(self.own_expected))


class Combination(NamedTuple):
    """The rounds of a study, combined.

    Attributes
    ----------
    weights
        omega of each stage; shape (stages,).
    stages
        The stages, in the order of their first rounds.
    """

    weights: np.ndarray
    stages: Sequence[Stage]

    def rounds(self) -> Iterator[CombinedRound]:
        """Every round, stage by stage."""
        return (one for stage in self.stages for one in stage.rounds())

    @property
    def predicts(self) -> bool:
        """Whether any stage has a control variate, or knew a cell."""
        return any(stage.mean is not None for stage in self.stages)

    def reached(self) -> np.ndarray:
        """Which cells every stage that needs them could draw, or knew; shape (cells,)."""
        found = np.any([stage.weight > 0 for stage in self.stages], axis=0)
        for stage in self.stages:
            found &= stage.reachable() | (stage.weight == 0)
        return found


def _check(goal: Goal, rounds: Sequence[Round]) -> None:
    if not rounds:
        raise MissingJudgments("no round has been drawn and judged yet")
    for number, one in enumerate(rounds, 1):
        if one.utility.shape != one.sample.draws.shape:
            raise EvenhandError(
                f"round {number} has {len(one.sample):,} draws and {len(one.utility):,} utilities"
            )
        if len(one.sample.expected) != len(goal.target.pool):
            raise EvenhandError(
                f"round {number} was drawn from a pool of {len(one.sample.expected):,} pairs, "
                f"the goal's has {len(goal.target.pool):,}"
            )
        missing = np.unique(one.sample.draws[np.isnan(one.utility)])
        if len(missing):
            raise MissingJudgments(
                f"{one.name or f'round {number}'}: {len(missing):,} of "
                f"{len(one.sample.cells):,} pairs are not judged yet",
                hint="judge them all: leaving pairs out biases the estimate",
            )


def combined(
    goal: Goal,
    rounds: Sequence[Round],
    *,
    planned: Sequence[float] | None = None,
    combine: str = "planned",
    controls: Sequence[Control | None] | None = None,
) -> Combination:
    """How rounds enter an estimate.

    Parameters and errors are those of `evenhand.estimation.importance.estimate`.
    """
    _check(goal, rounds)
    omega, numbers = weighed_stages(rounds, planned, combine)
    if controls is not None and len(controls) < len(numbers):
        raise EvenhandError(
            f"there are {len(controls)} control variates for {len(numbers)} stages of rounds"
        )
    members, n_cells = [[rounds[i] for i in stage] for stage in numbers], len(goal.target.pool)
    weights = weights_by_cell(omega, members, n_cells)
    found = []
    for number, (together, weight) in enumerate(zip(members, weights, strict=True)):
        control = None if controls is None else controls[number]
        if control is not None:
            check_control(control, numbers[number], rounds)
        expected = sum((one.sample.expected for one in together), np.zeros(n_cells))
        found.append(Stage(together, weight, expected, *_predictions(control, together)))
    made = Combination(omega, found)
    if goal.target.whole is not None and made.predicts:
        raise SupportError(
            "a control variate is summed over the whole pool, of which only some pairs are at hand",
            hint="estimate what was drawn in an engine without one",
        )
    return made


def _predictions(
    control: Control | None, members: Sequence[Round]
) -> tuple[np.ndarray | None, Reach | None]:
    """The `Stage.mean` and ``reach`` of a control variate and of what rounds knew."""
    mean, reach = (None, None) if control is None else (control.mean, control.reach)
    for one in members:
        if one.known is not None:
            mean = np.zeros(len(one.known)) if mean is None else mean
            mean = np.where(np.isfinite(one.known), one.known, mean)
            reach = None if reach is None else reach.knowing(one.known)
    return mean, reach
