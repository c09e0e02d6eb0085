"""The next round of a study: which pairs it is to draw, and what it would bring.

A proposal may look at every judgment there is. That is legal, since the round that is drawn from it
records which rounds it could have looked at (`evenhand.sampling.rounds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evenhand.decisions.focus import FOCUSED, deciding, focused
from evenhand.decisions.planning import Forecast, forecast
from evenhand.designs.proposals import Design, design
from evenhand.designs.utilities import Utility, flat, rank_utility, utility_named
from evenhand.errors import MissingJudgments
from evenhand.estimands.goals import Goal
from evenhand.estimation.estimates import Estimate
from evenhand.nonlinear.design_goals import guessed
from evenhand.nonlinear.kinds import kind_of
from evenhand.nonlinear.rating_errors import score_grade
from evenhand.sampling.rounds import default_plan, planned_weights, stages
from evenhand.studies.options import DrawOptions, EstimateOptions
from evenhand.studies.snapshots import Snapshot

# NumPyro takes half a second to import, which a round that learns nothing need not wait for.
if TYPE_CHECKING:
    from evenhand.priors.prior import NumPyroPosterior

__all__ = ["Proposal", "foresee", "propose"]


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """What the next round is to be drawn from.

    Attributes
    ----------
    design
        The probabilities.
    posterior
        What was learned for it; None where nothing was.
    notes
        What the user should know.
    """

    design: Design
    posterior: NumPyroPosterior | None
    notes: list[str]


def propose(
    at: Snapshot,
    options: DrawOptions,
    *,
    left_out: np.ndarray | None = None,
    signals: Mapping[str, np.ndarray] | None = None,
    thorough: bool = True,
) -> Proposal:
    """Design the next round.

    Parameters
    ----------
    at
        The study as it is.
    options
        Its utility, design and model.
    left_out
        Cells that it is not to draw; bool, shape (cells,).
    signals
        Those given with this round, as arrays by cell.
    thorough
        Ask of a model also what takes longer (`evenhand.priors.diagnostics.doubts`).
    """
    notes: list[str] = []
    posterior, utility, kind, floor = None, options.utility, options.kind, options.floor
    if isinstance(utility, str) and utility == "learned":
        if len(at.ledger.labels):
            prior = at.prior(extra=signals, model=options.model, method=options.method)
            posterior = prior.fit([at.ledger.to_learn()])[0]
        else:
            notes.append("nothing is judged yet: this round is designed from ranks")
            utility = "rank"
    asked = at.goal
    if at.goal.kind in FOCUSED and kind == "optimal":
        # With a model where the round has one anyway: who leads is then known better.
        asked, told = _focused(at, "importance" if posterior is None else "auto", options.method)
        notes.append(told)
    focuses = asked is not at.goal
    of = kind_of(asked.target.measure)
    if of.design_goal is not None:
        expected = (
            _expected_grade(at, posterior, utility) if of.grades else _expected(at, posterior)
        )
        asked = of.design_goal(asked, *expected, at.top_utility or 1.0)
    if of.grades:
        # What a judgment says is in the weights.
        made = design(asked, flat(at.goal.target.pool), kind=kind, floor=floor, known=left_out)
    elif posterior is not None:
        from evenhand.decisions.steering import steered
        from evenhand.priors.diagnostics import doubts as doubts_about

        doubts = doubts_about(posterior) if thorough else ()
        made, poor = steered(
            asked, posterior, known=left_out, kind=kind, floor=floor, doubts=doubts
        )
        notes += poor
    else:
        if isinstance(utility, str | Path):
            utility = utility_named(utility, at.goal.target.pool, at.goal.target.measure)
        made = design(asked, utility, kind=kind, floor=floor, known=left_out)
    if focuses:
        made = replace(made, name=f"{made.name}/{asked.kind}")
    return Proposal(made, posterior, notes)


def _expected(at: Snapshot, posterior: NumPyroPosterior | None) -> tuple[np.ndarray, np.ndarray]:
    """What utility is expected of each cell, or known, and no spread of it: shapes (cells,)."""
    pool, known = at.goal.target.pool, at.ledger.utility()
    if posterior is None:
        mean = guessed(pool, at.top_utility)
    else:
        mean = posterior.predict(np.arange(len(pool))).mean
    return np.where(np.isfinite(known), known, mean), np.zeros_like(mean)


def _expected_grade(
    at: Snapshot, posterior: NumPyroPosterior | None, utility: str | Path | Utility
) -> tuple[np.ndarray, np.ndarray]:
    """What grade is expected of each cell, or known, and what it may be off: shapes (cells,)."""
    pool, known = at.goal.target.pool, at.ledger.utility()
    off = np.full(len(pool), pool.score.std())
    if posterior is not None:
        found = posterior.predict(np.arange(len(pool)))
        grade = found.mean
        off = np.sqrt(np.maximum(found.second_moment - grade**2, 0.0))
    elif isinstance(utility, str | Path) and str(utility) in ("rank", "flat", "score"):
        grade = score_grade(pool)
    else:
        if isinstance(utility, str | Path):
            utility = utility_named(utility, pool, at.goal.target.measure)
        grade = utility.mean
    sure = np.isfinite(known)
    return np.where(sure, known, grade), np.where(sure, 0.0, off)


def _focused(at: Snapshot, estimator: str, method: str) -> tuple[Goal, str]:
    """The contrasts that the next round is designed for, and a sentence that says which."""
    from evenhand.studies.estimating import answer

    try:
        found = answer(at, EstimateOptions(estimator=estimator, method=method))
    except MissingJudgments:
        return at.goal, "no round is wholly judged yet: this round is for all pairs alike"
    made = focused(at.goal, found)
    shares = ", ".join(f"{name} ({share:.0%})" for name, share in deciding(made))
    return made, f"designed for the pairs that still decide '{made.kind}', above all {shares}"


def foresee(at: Snapshot, found: Estimate | None, *, population: bool = False) -> Forecast:
    """What one further round would bring.

    Parameters
    ----------
    at
        The study as it is.
    found
        What the rounds that are wholly judged say; None where there are none.
    population
        Add the between-query variance.

    Raises
    ------
    StudyError
        If the study's plan has no further round.
    """
    upcoming, (rounds, _) = at.next_planned(), at.whole()
    known = np.isfinite(at.ledger.utility()) & (not any(r.judged_again for r in rounds))
    learn = found is not None and found.estimator != "importance"
    proposal = propose(
        at,
        DrawOptions(utility="learned" if learn else "rank"),
        left_out=known if known.any() else None,
        thorough=False,
    )
    pool = at.goal.target.pool
    if kind_of(at.goal.target.measure).grades:
        second = np.ones(len(pool))
    elif proposal.posterior is not None:
        from evenhand.decisions.steering import learned_utility

        second = learned_utility(proposal.posterior, len(pool)).second_moment
    else:
        second = rank_utility(pool).second_moment * (at.top_utility or 1.0) ** 2
    if upcoming is None:
        sizes = default_plan(len(stages(rounds)) + 1).tolist()
    else:
        sizes = [*((at.planned(rounds) or []) if rounds else []), upcoming]
    return forecast(
        # Whatever pairs it is focused on.
        replace(proposal.design, goal=replace(at.goal, target=proposal.design.goal.target)),
        second,
        estimate=found,
        rounds=rounds,
        weights=planned_weights(np.asarray(sizes)),
        population=population,
    )
