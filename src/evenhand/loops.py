"""One whole study that learns, against complete judgments: for simulations and examples.

Each round is drawn, "judged" from known utilities, and learned from; the next is steered by what
was learned; the estimate is cross-fitted in every round. It is what a study on disk does, without
the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import numpy as np

from evenhand.controls import control_variates, labels
from evenhand.designs import Design, design
from evenhand.estimates import Estimate
from evenhand.estimators import estimate
from evenhand.intervals import DEFAULT
from evenhand.prior import NumPyroPosterior, NumPyroPrior, Prior
from evenhand.sampling import draw
from evenhand.stages import Round
from evenhand.steering import known_utilities, split, steered
from evenhand.targets import Goal
from evenhand.utilities import rank_utility

__all__ = ["learned_rounds", "study_that_learns"]

#: Judges cells: their utilities, as an assessor would say them.
Judge = Callable[[np.ndarray], np.ndarray]


def learned_rounds(
    key: jax.Array,
    goal: Goal,
    judge: Judge,
    prior: Prior,
    sizes: Sequence[int],
    *,
    first: Design | None = None,
    sampler: str = "distinct",
    floor: float = 0.1,
) -> list[Round]:
    """Draw and judge rounds, each steered by all before it.

    Parameters
    ----------
    key
        Typed key.
    goal
        The contrasts to estimate.
    judge
        Gives the utility of cells.
    prior
        What learns.
    sizes
        Draws of each round.
    first
        The design of the first round; by default that from ranks.
    sampler, floor
        As in `evenhand.sampling.draw` and `evenhand.designs.design`.
    """
    n_cells = len(goal.target.pool)
    made = first
    if made is None:
        made = design(goal, rank_utility(goal.target.pool), floor=floor)
    rounds: list[Round] = []
    for number, n in enumerate(sizes):
        known = None
        if rounds:
            known = known_utilities(rounds, n_cells)
            posterior = prior.fit([labels(rounds)])[0]
            if isinstance(prior, NumPyroPrior) and isinstance(posterior, NumPyroPosterior):
                prior = replace(prior, start=posterior)
            made, _ = steered(goal, posterior, known=np.isfinite(known), floor=floor)
        sample = draw(jax.random.fold_in(key, number), made, n, sampler=sampler)
        past = tuple(r.name for r in rounds)
        rounds.append(Round(sample, judge(sample.draws), past, f"round {number + 1}", known=known))
    return rounds


def study_that_learns(
    key: jax.Array,
    goal: Goal,
    judge: Judge,
    prior: Prior,
    budget: int,
    *,
    rounds: int = 1,
    first: Design | None = None,
    sampler: str = "distinct",
    floor: float = 0.1,
    level: float = 0.95,
    interval: str = DEFAULT,
) -> Estimate:
    """A study of so many draws in so many rounds, estimated; see `learned_rounds`."""
    sizes = split(budget, rounds)
    drawn = learned_rounds(
        key, goal, judge, prior, sizes, first=first, sampler=sampler, floor=floor
    )
    controls = control_variates(prior, goal, drawn)
    return estimate(goal, drawn, level=level, planned=sizes, controls=controls, interval=interval)
