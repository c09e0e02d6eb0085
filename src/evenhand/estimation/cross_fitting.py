r"""Control variates that learn from a round's own judgments, and still cannot bias it.

`cross_fit` makes the control variate of one stage: for the cells of fold f the prior is fitted on
all earlier rounds and on this stage's judgments of the *other* folds, so that, given those, the
draws of fold f still have their law (Chernozhukov et al. 2018, *Double/debiased machine learning*).

**Gate.** A prediction from few labels may do harm. That of fold f is scaled by

    lambda_f = clip( sum_S w r m~ / sum_S w m~^2, 0, 1 ),      w = ||a||^2 (1 - E) / E^2     (1)

over the judged cells S of the other folds, with m~ predictions of an inner fit that saw neither
fold f nor the fold of the cell predicted: the factor that would have made these draws' variance
smallest. It has seen no label of fold f either.

With K folds that is K fits and K (K - 1) / 2 inner ones, all at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evenhand.designs.utilities import Reach
from evenhand.estimands.goals import Goal
from evenhand.priors.prior import Posterior, Prior
from evenhand.sampling.labels import Labels
from evenhand.sampling.rounds import Control, Round, stages

__all__ = ["control", "control_variates", "cross_fit", "labels"]


def labels(rounds: Sequence[Round]) -> Labels:
    """What some rounds judged: each judgment once, in however many of them its cell was drawn."""
    return Labels.union([r.labels() for r in rounds])


def control(prior: Prior, rounds: Sequence[Round], number: int) -> Control:
    """Predictions from the rounds before round `number` alone (the difference estimator)."""
    past = range(number)
    n_cells = len(rounds[number].sample.expected)
    fitted = prior.fit([labels([rounds[i] for i in past])])[0]
    found = fitted.predict(np.arange(n_cells))
    return Control(found.mean, past=tuple(past), reach=found.reach)


def cross_fit(
    prior: Prior, goal: Goal, rounds: Sequence[Round], stage: Sequence[int], *, gated: bool = True
) -> Control:
    """Predictions for one stage, cross-fitted over its folds.

    Parameters
    ----------
    prior
        What learns.
    goal
        Says which residuals matter, for the gate.
    rounds
        All rounds, judged, in the order in which they were drawn.
    stage
        Numbers of the rounds of the stage, as `evenhand.sampling.rounds.stages` gives them. Those
        that were drawn by fold are crossed.
    gated
        Scale predictions by equation (1).

    Returns
    -------
    Control

    Examples
    --------
    >>> import numpy as np
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> goal = eh.pair(target)
    >>> sample = eh.Sample("distinct", np.array([0, 1, 2]), np.full(3, 0.9), np.array([0, 1, 0]))
    >>> judged = eh.Round(sample, np.array([1.0, 0.0, 1.0]))
    >>> class Half:  # predicts .5 for every pair, whatever it is fitted to
    ...     name = "half"
    ...
    ...     def fit(self, sets):
    ...         return [self] * len(sets)
    ...
    ...     def predict(self, cells):
    ...         half = np.full(len(cells), 0.5)
    ...         return eh.Moments("half", half, half)
    >>> control = eh.cross_fit(Half(), goal, [judged], [0])
    >>> control.mean.tolist(), control.past
    ([0.5, 0.5, 0.5], ())
    """
    crossed = [i for i in stage if rounds[i].sample.fold is not None]
    past = tuple(range(min(stage))) if rounds[stage[0]].depends_on else ()
    seen = [rounds[i] for i in past]
    if not crossed:
        if past:
            return control(prior, rounds, stage[0])
        return Control(np.zeros(len(goal.target.pool)))
    fold = rounds[crossed[0]].sample.fold
    assert fold is not None
    before, now = labels(seen), labels([rounds[i] for i in crossed])
    belongs, folds = fold[now.cells], np.unique(fold)

    def without(*left_out: int) -> Labels:
        # What earlier rounds judged stays: that a fold left out drew it again must not show.
        return Labels.union([before, now.only(~np.isin(belongs, left_out))])

    couples = list(itertools.combinations(folds, 2)) if gated and len(folds) > 2 else []
    fitted = prior.fit([without(*out) for out in [*((f,) for f in folds), *couples]])
    outer = dict(zip(folds, fitted, strict=False))
    inner = dict(zip(couples, fitted[len(folds) :], strict=True))
    mean, gate = np.zeros(len(fold)), np.ones(len(folds))
    reaches: dict[Any, Reach | None] = {}
    if couples:
        seen_now = now.averaged()
        weight = _gate_weights(goal, rounds, crossed, seen_now.cells)
        gate = _gates(inner, folds, seen_now, fold[seen_now.cells], weight)
    for number, f in enumerate(folds):
        cells = np.flatnonzero(fold == f)
        found = outer[f].predict(cells)
        mean[cells] = gate[number] * found.mean
        reaches[f] = found.reach and Reach(found.reach.gain, gate[number] * found.reach.chance)
    reach = _together(reaches, fold)
    return Control(mean, past=past, crossed=tuple(crossed), fold=fold, gate=gate, reach=reach)


def _gates(
    inner: Mapping[tuple[Any, Any], Posterior],
    folds: np.ndarray,
    seen: Labels,
    apart: np.ndarray,
    weight: np.ndarray,
) -> np.ndarray:
    """Equation (1) for each fold, from models that saw neither it nor what they predict."""
    gate = np.zeros(len(folds))
    for number, f in enumerate(folds):
        product, square = 0.0, 0.0
        for g in folds[folds != f]:
            rows = np.flatnonzero(apart == g)
            if len(rows):
                predicted = inner[min(f, g), max(f, g)].predict(seen.cells[rows]).mean
                product += (weight[rows] * seen.utility[rows]) @ predicted
                square += weight[rows] @ predicted**2
        gate[number] = np.clip(product / square, 0.0, 1.0) if square > 0 else 0.0
    return gate


def _together(reaches: Mapping[Any, Reach | None], fold: np.ndarray) -> Reach | None:
    """Chances by level of all folds together; None where some fold has none."""
    each = {f: reach for f, reach in reaches.items() if reach is not None}
    if len(each) < len(reaches):
        return None
    gain = np.unique(np.concatenate([reach.gain for reach in each.values()]))
    chance = np.empty((len(fold), len(gain)))
    for f, reach in each.items():
        chance[fold == f] = reach.at(gain)
    return Reach(gain, chance)


def _gate_weights(
    goal: Goal, rounds: Sequence[Round], crossed: Sequence[int], cells: np.ndarray
) -> np.ndarray:
    """W of equation (1) at the judged cells."""
    expected = np.sum([rounds[i].sample.expected[cells] for i in crossed], axis=0)
    square = goal.at(cells) ** 2 @ goal.importance
    return square * np.maximum(1.0 - np.minimum(expected, 1.0), 0.0) / expected**2


def control_variates(
    prior: Prior, goal: Goal, rounds: Sequence[Round], *, gated: bool = True
) -> list[Control]:
    """The control variate of every stage, each by `cross_fit`.

    Parameters
    ----------
    prior, goal, rounds, gated
        As of `cross_fit`.

    Returns
    -------
    list of Control
        One for each stage, for the argument `controls` of `evenhand.estimate`.

    Examples
    --------
    >>> import numpy as np
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> goal = eh.pair(target)
    >>> sample = eh.Sample("distinct", np.array([0, 1, 2]), np.full(3, 0.9), np.array([0, 1, 0]))
    >>> judged = eh.Round(sample, np.array([1.0, 0.0, 1.0]))
    >>> class Half:  # predicts .5 for every pair, whatever it is fitted to
    ...     name = "half"
    ...
    ...     def fit(self, sets):
    ...         return [self] * len(sets)
    ...
    ...     def predict(self, cells):
    ...         half = np.full(len(cells), 0.5)
    ...         return eh.Moments("half", half, half)
    >>> (control,) = eh.control_variates(Half(), goal, [judged])
    >>> control.mean.tolist(), control.crossed
    ([0.5, 0.5, 0.5], (0,))
    """
    return [cross_fit(prior, goal, rounds, stage, gated=gated) for stage in stages(rounds)]
