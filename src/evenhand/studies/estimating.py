"""What a study says: estimates from all rounds that are wholly judged.

Which estimator is used, and with which weights, follows from rules fixed in advance and from what
the rounds recorded when they were drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.decisions.stopping import check_rule, level_at, stopped
from evenhand.errors import EvenhandError, MissingJudgments, SupportError
from evenhand.estimands.goals import Goal
from evenhand.estimation.cross_fitting import control, cross_fit
from evenhand.estimation.estimates import Estimate
from evenhand.estimation.self_normalised import estimate_normalised
from evenhand.intervals.intervals import check_interval, chosen
from evenhand.measures.base import is_sum
from evenhand.nonlinear.design_goals import guessed
from evenhand.nonlinear.kinds import kind_of
from evenhand.sampling.rounds import Control, Round, stages
from evenhand.studies.options import EstimateOptions
from evenhand.studies.round_files import Stored
from evenhand.studies.snapshots import Snapshot

__all__ = ["answer"]


def answer(at: Snapshot, options: EstimateOptions | None = None) -> Estimate:
    """Estimate systems and contrasts.

    Raises
    ------
    MissingJudgments
        If no round is wholly judged.
    """
    options = EstimateOptions() if options is None else options
    rounds, files = at.whole()
    waiting = at.waiting()
    if not rounds:
        first = at.ledger.files[0].record.name if waiting else ""
        raise MissingJudgments(
            "\n".join(waiting) or "nothing has been drawn yet",
            hint=f"evenhand judge {at.folder} {at.folder / first / 'to_judge.tsv'}"
            if waiting
            else f"evenhand draw {at.folder} --budget N",
        )
    if options.stop_when is not None:
        check_rule(options.stop_when)
        options = replace(options, level=level_at(options.level, len(rounds)))
    found = _estimate(at, rounds, files, options)
    if options.question == "population":
        found = found.for_population()
    if options.stop_when is not None:
        found = stopped(found, options.stop_when)
    notes = [f"left out, {text}" for text in waiting]
    return replace(found, notes=(*found.notes, *notes, *at.notes()))


def _estimate(
    at: Snapshot, rounds: Sequence[Round], files: Sequence[Stored], options: EstimateOptions
) -> Estimate:
    """By the estimator that the options name, of the kind that the measure is."""
    goal, bounds = at.goal, options.bounds
    measure, kind = goal.target.measure, kind_of(goal.target.measure)
    estimator = options.estimator
    if estimator == "auto" and check_interval(chosen(options.interval, None)).bets:
        estimator = "importance"  # the only one that they are for
    common: dict[str, Any] = {
        "level": options.level,
        "interval": options.interval,
        "planned": at.planned(rounds),
        "combine": options.combine,
    }
    if estimator == "self-normalised" and (bounds or not is_sum(measure)):
        raise EvenhandError(
            "self-normalised estimates are of sums of utilities, and have no bounds"
            + ("" if is_sum(measure) else f"; {measure} is no such sum"),
            hint="--estimator importance",
        )
    if not kind.controls and (bounds or estimator not in ("auto", "importance")):
        raise EvenhandError(
            f"{measure} takes neither bounds nor a control variate",
            hint="--estimator importance, without --bounds",
        )
    kind.check_draws(goal, sum(len(one.sample) for one in rounds))
    if estimator == "self-normalised":
        return estimate_normalised(goal, rounds, **common, top_utility=at.top_utility)
    if kind.controls:
        asked = goal
        if kind.design_goal is not None:
            mean = guessed(goal.target.pool, at.top_utility)
            asked = kind.design_goal(goal, mean, np.zeros_like(mean), 1.0)
        controls = _controls(at, asked, rounds, files, replace(options, estimator=estimator))
        common |= {"controls": controls, "bounds": bounds, "top_utility": at.top_utility}
    return kind.estimate(goal, rounds, **common)


def _controls(
    at: Snapshot,
    goal: Goal,
    rounds: Sequence[Round],
    files: Sequence[Stored],
    options: EstimateOptions,
) -> list[Control | None] | None:
    """The control variate of each stage, from the signals and systems that there were by then.

    What came later may have been made with the judgments that are to be corrected.
    """
    by_fold, estimator = any(r.sample.fold is not None for r in rounds), options.estimator
    if estimator == "importance" or (estimator == "auto" and not by_fold):
        return None
    if estimator == "cross-fitted" and not by_fold:
        raise SupportError(
            "no round was drawn by fold, so that nothing can be cross-fitted",
            hint="rounds of at least 40 pairs are drawn by fold",
        )
    found: list[Control | None] = []
    for stage in stages(rounds, options.combine):
        systems = files[stage[-1]].record.systems or None
        prior = at.prior(
            files[: stage[-1] + 1], systems=systems, model=options.model, method=options.method
        )
        if estimator == "difference":
            late = rounds[stage[0]].depends_on
            found.append(control(prior, rounds, stage[0]) if late else None)
        else:
            found.append(cross_fit(prior, goal, rounds, stage))
    return found
