"""Whole studies of several rounds against complete judgments: for simulations and examples.

Each round is drawn, "judged" from known utilities, and learned from; the next is steered by what
was learned, and focused on what still decides the goals `best` and `order`; the estimate is
cross-fitted in every round. Without a prior, later rounds are designed from ranks as the first is,
and what was judged is known to them. It is what a study on disk does, without the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import numpy as np

from evenhand.decisions.focus import FOCUSED, focused
from evenhand.decisions.steering import known_utilities, split, steered
from evenhand.designs.proposals import Design, design
from evenhand.designs.utilities import rank_utility
from evenhand.estimands.goals import Goal
from evenhand.estimation.cross_fitting import control_variates, labels
from evenhand.estimation.estimates import Estimate
from evenhand.estimation.importance import estimate
from evenhand.intervals.confidence import INTERVAL
from evenhand.priors.prior import NumPyroPosterior, NumPyroPrior, Prior
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import draw

__all__ = ["learned_rounds", "study_that_learns"]

#: Judges cells: their utilities, as an assessor would say them.
Judge = Callable[[np.ndarray], np.ndarray]


def learned_rounds(
    key: jax.Array,
    goal: Goal,
    judge: Judge,
    prior: Prior | None,
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
        What learns; None if nothing does.
    sizes
        Draws of each round.
    first
        The design of the first round; by default that from ranks.
    sampler, floor
        As in `evenhand.sampling.samplers.draw` and `evenhand.designs.proposals.design`.
    """
    pool, made = goal.target.pool, first
    ranks = rank_utility(pool)
    if made is None:
        made = design(goal, ranks, floor=floor)
    rounds: list[Round] = []
    steering = prior  # starts where the last round ended; control variates start afresh
    for number, n in enumerate(sizes):
        known = None
        if rounds:
            known = known_utilities(rounds, len(pool))
            asked = goal
            if goal.kind in FOCUSED:
                controls = None if prior is None else control_variates(prior, goal, rounds)
                found = estimate(goal, rounds, planned=sizes[:number], controls=controls)
                asked = focused(goal, found)
            if steering is None:
                made = design(asked, ranks, floor=floor, known=np.isfinite(known))
            else:
                posterior = steering.fit([labels(rounds)])[0]
                if isinstance(prior, NumPyroPrior) and isinstance(posterior, NumPyroPosterior):
                    steering = replace(prior, start=posterior)
                made, _ = steered(asked, posterior, known=np.isfinite(known), floor=floor)
        sample = draw(jax.random.fold_in(key, number), made, n, sampler=sampler)
        past = tuple(r.name for r in rounds)
        rounds.append(Round(sample, judge(sample.draws), past, f"round {number + 1}", known=known))
    return rounds


def study_that_learns(
    key: jax.Array,
    goal: Goal,
    judge: Judge,
    prior: Prior | None,
    budget: int,
    *,
    rounds: int = 1,
    first: Design | None = None,
    sampler: str = "distinct",
    floor: float = 0.1,
    level: float = 0.95,
    interval: str = INTERVAL,
) -> Estimate:
    """A study of so many draws in so many rounds, estimated; see `learned_rounds`.

    Parameters
    ----------
    key, goal, judge, prior, first, sampler, floor
        As of `learned_rounds`.
    budget, rounds
        Draws in all, and the number of rounds.
    level, interval
        As of `evenhand.estimation.importance.estimate`.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> goal = eh.pair(target)
    >>> utility = np.array([1.0, 0.0, 1.0])
    >>> judge = utility.__getitem__  # knows the grade of every pair
    >>> key = jax.random.key(0)
    >>> found = eh.study_that_learns(key, goal, judge, None, 3, rounds=2)
    >>> found.n_rounds, found.n_judged
    (2, 3)
    """
    sizes = split(budget, rounds)
    drawn = learned_rounds(
        key, goal, judge, prior, sizes, first=first, sampler=sampler, floor=floor
    )
    controls = None if prior is None else control_variates(prior, goal, drawn)
    return estimate(goal, drawn, level=level, planned=sizes, controls=controls, interval=interval)
