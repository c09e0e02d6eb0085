"""What a study says: estimates from all rounds that are wholly judged.

Which estimator is used, and with which weights, follows from rules fixed in advance and from what
the rounds recorded when they were drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evenhand.decisions.stopping import check_rule, level_at, stopped
from evenhand.errors import EvenhandError, MissingJudgments, SupportError
from evenhand.estimands.goals import Goal
from evenhand.estimation.cross_fitting import control, cross_fit
from evenhand.estimation.estimates import Estimate
from evenhand.estimation.importance import estimate
from evenhand.estimation.self_normalised import estimate_normalised
from evenhand.intervals.confidence import INTERVAL
from evenhand.intervals.intervals import check_interval, chosen
from evenhand.measures.base import Deviation, Listwise, Pairwise, Ratio
from evenhand.nonlinear.design_goals import expected_goal, guessed
from evenhand.nonlinear.rating_errors import estimate_deviation
from evenhand.nonlinear.ratios import check_draws, estimate_ratio
from evenhand.nonlinear.swaps import estimate_swaps
from evenhand.priors.models import Model
from evenhand.sampling.rounds import Control, Round, stages
from evenhand.studies.round_files import Stored
from evenhand.studies.snapshots import Snapshot

__all__ = ["ESTIMATORS", "answer"]

ESTIMATORS = ("auto", "importance", "difference", "cross-fitted", "self-normalised")


def answer(
    at: Snapshot,
    *,
    level: float = 0.95,
    question: str = "queries",
    interval: str = INTERVAL,
    stop_when: str | None = None,
    bounds: bool = False,
    combine: str = "planned",
    estimator: str = "auto",
    model: Model | None = None,
    method: str = "laplace",
) -> Estimate:
    """Estimate systems and contrasts; options as in `evenhand.study.Study.estimate`.

    Raises
    ------
    MissingJudgments
        If no round is wholly judged.
    """
    if estimator not in ESTIMATORS:
        raise EvenhandError(
            f"unknown estimator {estimator!r}", hint=f"known are {', '.join(ESTIMATORS)}"
        )
    if question not in ("queries", "population"):
        raise EvenhandError(f"unknown question {question!r}", hint="'queries' or 'population'")
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
    if stop_when is not None:
        check_rule(stop_when)
        level = level_at(level, len(rounds))
    measure, goal = at.goal.target.measure, at.goal
    if estimator == "auto" and check_interval(chosen(interval, None)).bets:
        estimator = "importance"  # the only one that they are for
    common: dict[str, Any] = {
        "level": level,
        "interval": interval,
        "planned": at.planned(rounds),
        "combine": combine,
    }
    if estimator == "self-normalised" and (bounds or isinstance(measure, Listwise)):
        raise EvenhandError(
            "self-normalised estimates are of sums of utilities, and have no bounds"
            + (f"; {measure} is no such sum" if isinstance(measure, Listwise) else ""),
            hint="--estimator importance",
        )
    if isinstance(measure, Deviation | Pairwise):
        if bounds or estimator not in ("auto", "importance"):
            raise EvenhandError(
                f"{measure} takes neither bounds nor a control variate",
                hint="--estimator importance, without --bounds",
            )
        plain = estimate_swaps if isinstance(measure, Pairwise) else estimate_deviation
        found = plain(goal, rounds, **common)
    elif isinstance(measure, Ratio):
        check_draws(goal, sum(len(one.sample) for one in rounds))
        steered = expected_goal(goal, guessed(goal.target.pool, at.top_utility))
        controls = _controls(at, steered, rounds, files, combine, estimator, model, method)
        found = estimate_ratio(
            goal, rounds, **common, controls=controls, bounds=bounds, top_utility=at.top_utility
        )
    elif estimator == "self-normalised":
        found = estimate_normalised(goal, rounds, **common, top_utility=at.top_utility)
    else:
        controls = _controls(at, goal, rounds, files, combine, estimator, model, method)
        top = None if at.settings.grades is None else at.top_utility
        found = estimate(goal, rounds, **common, controls=controls, bounds=bounds, top_utility=top)
    if question == "population":
        found = found.for_population()
    if stop_when is not None:
        found = stopped(found, stop_when)
    notes = [f"left out, {text}" for text in waiting]
    return replace(found, notes=(*found.notes, *notes, *at.notes()))


def _controls(
    at: Snapshot,
    goal: Goal,
    rounds: Sequence[Round],
    files: Sequence[Stored],
    combine: str,
    estimator: str,
    model: Model | None,
    method: str,
) -> list[Control | None] | None:
    """The control variate of each stage, from the signals and systems that there were by then.

    What came later may have been made with the judgments that are to be corrected.
    """
    by_fold = any(r.sample.fold is not None for r in rounds)
    if estimator == "importance" or (estimator == "auto" and not by_fold):
        return None
    if estimator == "cross-fitted" and not by_fold:
        raise SupportError(
            "no round was drawn by fold, so that nothing can be cross-fitted",
            hint="rounds of at least 40 pairs are drawn by fold",
        )
    found: list[Control | None] = []
    for stage in stages(rounds, combine):
        systems = files[stage[-1]].record.systems or None
        prior = at.prior(files[: stage[-1] + 1], systems=systems, model=model, method=method)
        if estimator == "difference":
            late = rounds[stage[0]].depends_on
            found.append(control(prior, rounds, stage[0]) if late else None)
        else:
            found.append(cross_fit(prior, goal, rounds, stage))
    return found
