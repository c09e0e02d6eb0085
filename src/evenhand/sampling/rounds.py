r"""Rounds, and what may be combined with what: the record decides, never a flag.

A round may depend on everything seen before it, and then the rounds may not be pooled as if they
had been one. `stages` puts rounds together that were all fixed before the first judgment, and
leaves every later one alone; `Control` holds a control variate m_c and what it was fitted on.

A control variate is legal for a stage if, for every cell, it was fixed before the draws that it
corrects were made, or does not depend on them:

- fitted on rounds before the stage (`past`): they are what the stage itself may depend on;
- fitted for the cells of fold f on the stage's judgments of *other* folds (`crossed`), where each
  fold was drawn by itself: given the others, the draws of fold f still have their law.

Anything else, such as a mean fitted on the very draws that it corrects, is biased and refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from evenhand.designs.utilities import Reach
from evenhand.errors import EvenhandError, SupportError
from evenhand.sampling.labels import Labels
from evenhand.sampling.samples import Sample

__all__ = [
    "Control",
    "Planned",
    "Round",
    "check_control",
    "default_plan",
    "known_utility",
    "planned_weights",
    "stages",
    "weighed_stages",
    "weights_by_cell",
]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """The draws of a round and their judgments.

    Attributes
    ----------
    sample
        The draws.
    utility
        Judged utility of each draw, shape (n,); NaN where the pair is not judged yet.
    depends_on
        Names of the rounds whose judgments the design could have looked at; empty if it was fixed
        before the first judgment.
    name
        The name by which later rounds refer to it.
    n_cells
        Cells of the pool when it was drawn, where systems arrived later; None for all.
    first
        First cell that it could draw: above 0 for a round that tops up, of the cells alone that no
        earlier round knew.
    known
        Utility of the cells that were known when it was drawn and therefore left out of it, NaN
        elsewhere; shape (cells,). None if all could be drawn.
    individual
        The single judgments that `utility` averages, of the cells drawn and known, where assessors
        may disagree; None where a judgment is as good as the truth.
    judged_again
        Its judgments were made for it alone, also those of cells that had been judged before.
        Rounds that are not share their judgments.
    """

    sample: Sample
    utility: np.ndarray
    depends_on: tuple[str, ...] = ()
    name: str = ""
    n_cells: int | None = None
    known: np.ndarray | None = None
    individual: Labels | None = None
    judged_again: bool = False
    first: int = 0

    def as_one(self) -> Round:
        """The same round where every judgment is 1, for weights that say what it was."""
        known = None if self.known is None else np.where(np.isfinite(self.known), 1.0, np.nan)
        return replace(self, utility=np.ones(len(self.sample)), known=known, individual=None)

    def labels(self) -> Labels:
        """What was judged of its draws, to learn from."""
        if self.individual is not None:
            return self.individual.only(np.isin(self.individual.cells, self.sample.draws))
        judged = ~np.isnan(self.utility)
        return Labels.union([Labels(self.sample.draws[judged], self.utility[judged])])


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """A control variate of one stage, and what it was fitted on.

    Attributes
    ----------
    mean
        m_c, what the judgment of each cell is expected to say; float64, shape (cells,).
    past
        Numbers (from 0) of the rounds of which it saw every judgment.
    crossed
        Numbers of the rounds of which, for the cells of a fold, it saw the other folds only.
    fold
        Those folds: of each cell, shape (cells,); None if nothing was crossed.
    gate
        Factor in [0, 1] by which each fold's prediction was scaled; shape (folds,).
    reach
        How likely each utility is reached, where that is predicted too.
    """

    mean: np.ndarray
    past: tuple[int, ...] = ()
    crossed: tuple[int, ...] = ()
    fold: np.ndarray | None = None
    gate: np.ndarray | None = None
    reach: Reach | None = None


def planned_weights(planned: np.ndarray) -> np.ndarray:
    """omega_t proportional to (planned n_t) sqrt(t), summing to 1: shape (rounds,)."""
    planned = np.asarray(planned, np.float64)
    raw = planned * np.sqrt(np.arange(1, len(planned) + 1))
    return raw / raw.sum()


def default_plan(n_stages: int) -> np.ndarray:
    """Draws of stages that nobody planned, as if each were to be twice as large as the last.

    The sizes that they turn out to have may depend on what was seen, and must not enter weights.
    The first round only has to teach the next, which counts what is known exactly: weights of .26
    and .74 for two.
    """
    return 2.0 ** np.arange(n_stages)


class Planned(Protocol):
    """What stages are made of: anything that says which rounds it was designed after."""

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Names of the rounds whose judgments the design could have looked at."""
        ...

    @property
    def name(self) -> str:
        """The name by which later rounds refer to it."""
        ...


def stages(rounds: Sequence[Planned], combine: str = "planned") -> list[list[int]]:
    """Numbers of the rounds fixed before the first judgment together, of the others each alone.

    ``combine="each"`` makes every round a stage of its own, whenever it was fixed.

    Raises
    ------
    SupportError
        If all rounds are to be combined by the balance heuristic and one was designed after
        looking.
    """
    later = [i for i, r in enumerate(rounds) if r.depends_on]
    if combine == "balance" and later:
        names = ", ".join(rounds[i].name or f"round {i + 1}" for i in later)
        raise SupportError(
            f"the balance heuristic is biased for rounds that were designed after looking: {names}",
            hint="combine='planned' weights rounds by the plan, which is exactly unbiased",
        )
    if combine == "each":
        return [[i] for i in range(len(rounds))]
    if combine not in ("planned", "balance"):
        raise EvenhandError(
            f"unknown way to combine rounds {combine!r}", hint="'planned' or 'balance'"
        )
    together = [i for i, r in enumerate(rounds) if not r.depends_on]
    return ([together] if together else []) + [[i] for i in later]


def weighed_stages(
    rounds: Sequence[Planned], planned: Sequence[float] | None, combine: str = "planned"
) -> tuple[np.ndarray, list[list[int]]]:
    """Omega of each stage, shape (stages,), and the numbers of its rounds.

    Parameters
    ----------
    rounds, combine
        As of `stages`.
    planned
        Planned draws of each stage; more than there are yet are left alone. None for
        `default_plan`.

    Raises
    ------
    EvenhandError
        If the plan is for fewer stages than there are.
    """
    numbers = stages(rounds, combine)
    if planned is None:
        return planned_weights(default_plan(len(numbers))), numbers
    if len(planned) < len(numbers):
        raise EvenhandError(f"the plan names {len(planned)} stages, there are {len(numbers)}")
    return planned_weights(np.asarray(planned[: len(numbers)])), numbers


def known_utility(rounds: Sequence[Round], n_cells: int) -> np.ndarray:
    """Utility of every cell that the rounds judged or knew, NaN elsewhere; shape (cells,)."""
    utility = np.full(n_cells, np.nan)
    for one in rounds:
        utility[one.sample.draws] = one.utility
        if one.known is not None:
            utility = np.where(np.isfinite(one.known), one.known, utility)
    return utility


def weights_by_cell(
    omega: np.ndarray, together: Sequence[Sequence[Round]], n_cells: int
) -> np.ndarray:
    """Weight of each stage at each cell, summing to 1 over the stages: shape (stages, cells).

    With F_s the cells that stage s was for, those from `Round.first` up to `Round.n_cells` of each
    of its rounds,

        omega_s(c) = omega_s 1[c in F_s] / sum_t omega_t 1[c in F_t]

    so a cell that joined the pool later is shared only among the stages since then, and a round
    that tops up has a weight on the cells alone that joined since the round before it.

    F_s depends on when systems arrived, never on what was judged, so each weight is still fixed in
    advance. That is why it is a stretch of the numbering and not, say, the cells that have no
    judgment yet: the weight of an earlier round would then turn on what it happened to draw, and
    the sum be biased.
    """
    raw = np.zeros((len(together), n_cells))
    for row, share, stage in zip(raw, omega, together, strict=True):
        for one in stage:
            row[one.first : one.n_cells] = share
    total = raw.sum(0)
    return raw / np.where(total > 0, total, 1.0)


def check_control(control: Control, stage: Sequence[int], rounds: Sequence[Round]) -> None:
    """Refuse a control variate that would bias its stage.

    Raises
    ------
    SupportError
        If it saw judgments of the stage itself, or of later rounds, other than across folds that
        were drawn each by itself.
    """
    n_cells = len(rounds[stage[0]].sample.expected)
    if control.mean.shape != (n_cells,) or not np.isfinite(control.mean).all():
        raise EvenhandError(
            f"a control variate must be finite for each of the {n_cells:,} cells of the pool"
        )
    if control.reach is not None:
        gain, chance = control.reach
        if chance.shape != (n_cells, len(gain)) or not np.isfinite(chance).all():
            raise EvenhandError(
                f"a control variate that knows {len(gain):,} levels must say how likely each of "
                f"the {n_cells:,} cells of the pool reaches them"
            )
    names = ", ".join(rounds[i].name or f"round {i + 1}" for i in stage)
    hint = (
        "fit it on earlier rounds, or across folds (`evenhand.estimation.cross_fitting.cross_fit`)"
    )
    if any(i >= min(stage) for i in control.past):
        raise SupportError(
            f"the control variate of {names} was fitted on judgments that it is to correct: the "
            "estimate would be biased",
            hint=hint,
        )
    for i in control.crossed:
        drawn = rounds[i].sample
        if i not in stage:
            raise SupportError(
                f"the control variate of {names} was fitted on a part of round {i + 1}, which is "
                "another stage: what that round drew may depend on the part left out",
                hint=hint,
            )
        possible = drawn.expected > 0
        if control.fold is None or drawn.fold is None:
            crossing = False
        else:
            crossing = np.array_equal(drawn.fold[possible], control.fold[possible])
        if not crossing:
            raise SupportError(
                f"the control variate of {names} was fitted across folds that were not drawn each "
                "by itself",
                hint="draw rounds of at least 40 pairs, which are drawn by fold",
            )
