"""The mean over all outcomes is the truth: every estimator, kind of measure, sampler and rule.

`CASES` is the one list that a new estimator, measure, sampler or rule for rounds joins. In each,
every sample that every round can draw is enumerated with its probability, judged and estimated, and
the mean of values and contrasts must be the truth to 1e-12. Ratios are not in it: their estimates
are nearly unbiased (`tests/nonlinear/test_ratios.py`). One round of every design and goal is
enumerated in `tests/estimation`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

from evenhand.decisions.focus import focused
from evenhand.designs.proposals import design
from evenhand.designs.utilities import Moments, flat, rank_utility
from evenhand.estimands import goals, targets
from evenhand.estimands.evaluation import evaluate
from evenhand.estimands.goals import Goal
from evenhand.estimands.pools import pool
from evenhand.estimation.cross_fitting import control, control_variates, labels
from evenhand.estimation.importance import estimate
from evenhand.formats.runs import read_runs
from evenhand.nonlinear.kinds import KINDS, RATIOS, SUMS, Kind, kind_of
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import SAMPLERS, expected_by_fold, layout
from evenhand.sampling.samples import Sample

EXACT = 1e-12
#: Four documents of a query; y misses one, z another.
RUNS = {
    "x": {"q": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}},
    "y": {"q": {"c": 4.0, "b": 3.0, "a": 1.0}},
    "z": {"q": {"d": 2.0, "b": 1.5, "a": 1.0}},
}
GRADES = {"q": {"a": 1, "b": 3, "c": 0, "d": 2}}
#: For rounds that only add what joined: six documents, of which two came later.
MORE = {
    "x": {"q": {"a": 4.0, "b": 3.0, "e": 2.5, "c": 2.0}},
    "y": {"q": {"c": 4.0, "d": 3.0, "f": 2.0}},
    "z": {"q": {"f": 2.0, "e": 1.5, "a": 1.0}},
}
MORE_GRADES = {"q": {"a": 1, "b": 3, "c": 0, "d": 2, "e": 3, "f": 1}}


class Toy:
    """A prior without a model, whose predictions change with every cell and utility seen."""

    name = "toy"

    def __init__(self, seen=None):
        self.seen = seen

    def fit(self, sets):
        return [Toy(one) for one in sets]

    def predict(self, cells):
        cells, seen = np.asarray(cells), self.seen
        code = ((seen.cells + 1.0) ** 1.5 * (seen.utility + 0.5)).sum()
        mean = 1.0 + 0.8 * np.sin(code * (cells + 1.0)) + 0.4 * np.isin(cells, seen.cells)
        return Moments("toy", mean, mean**2 + 0.5)


TOY = Toy()


class Outcomes(NamedTuple):
    """Every sample that a round can draw.

    `fold` is that of each cell where rounds are drawn by fold, `in_pairs` whether the chance to
    draw any two cells is known, by folds at random of which all assignments are enumerated.
    """

    law: Callable
    fold: np.ndarray | None
    in_pairs: bool

    def of(self, goal: Goal, q: np.ndarray, sampler: str, n: int) -> Iterator[tuple[float, Sample]]:
        if not (self.in_pairs and sampler == "distinct"):
            yield from self.by_fold(goal, q, sampler, n, self.fold)
            return
        ways = list(itertools.product([1, 2], repeat=len(q) - 1))
        for others in ways:  # the first may as well be in fold 1
            fold = np.array([1, *others], np.int32)
            for chance, sample in self.by_fold(goal, q, sampler, n, fold):
                yield chance / len(ways), replace(sample, scattered=2)

    def by_fold(self, goal, q, sampler, n, fold):
        expected, sizes = expected_by_fold(sampler, q, n, fold)
        folds = None
        if fold is not None:
            folds = fold, np.pad(sizes, (0, max(3 - len(sizes), 0)))
        law = self.law(sampler, expected, n, order=layout(goal, sampler, fold), folds=folds)
        for chance, draws in zip(law.probability, law.draws, strict=True):
            yield chance, Sample(sampler, draws, expected, fold)


class Study(NamedTuple):
    """What is estimated, the true utility of each cell, and how its rounds are drawn."""

    goal: Goal
    kind: Kind
    utility: np.ndarray
    outcomes: Outcomes
    samplers: tuple[str, ...]

    @property
    def cells(self) -> np.ndarray:
        return np.arange(len(self.utility))

    def q(self, rounds=(), *, guess=None, known=None) -> np.ndarray:
        """The proposal of a round after others: all cells can be drawn but those left out."""
        if guess is None:
            guess = TOY.fit([labels(rounds)])[0].predict(self.cells) if rounds else flat(self.pool)
        asked = self.goal
        if self.kind.design_goal is not None:
            mean = np.clip(guess.mean, 0.1, 2.9)
            asked = self.kind.design_goal(asked, mean, np.full(len(mean), 0.5), 3.0)
        return design(asked, guess, floor=0.3, known=known).q

    @property
    def pool(self):
        return self.goal.target.pool

    def as_one(self) -> Study:
        """The same with rounds that are not drawn by fold."""
        return self._replace(outcomes=self.outcomes._replace(fold=None))

    def drawn(self, number: int, q: np.ndarray, n: int = 2, **about) -> Iterator:
        """Every round and its probability."""
        for chance, sample in self.outcomes.of(self.goal, q, self.samplers[number], n):
            yield chance, Round(sample, self.utility[sample.draws], name=str(number), **about)

    def after(self, rounds: list[Round], knows: bool) -> dict:
        """What a round records that learned from others, and what it knows of those left out."""
        about: dict = {"depends_on": tuple(one.name for one in rounds)}
        if knows:
            seen = np.isin(self.cells, np.concatenate([one.sample.draws for one in rounds]))
            about["known"] = np.where(seen, self.utility, np.nan)
        return about


def one_round(study):
    for chance, one in study.drawn(0, study.q(), 3):
        yield chance, [one]


def fixed_in_advance(study, *, by_fold=True):
    """Both designs are fixed before the first judgment; the second may be drawn as one."""
    q = study.q(guess=rank_utility(study.pool))
    then = study if by_fold else study.as_one()
    parts = study.drawn(0, study.q()), then.drawn(1, q)
    for (first, one), (second, two) in itertools.product(*parts):
        yield first * second, [one, two]


def learned(study, *, knows=False):
    """The second round is designed from what the first judged, which it may leave out."""
    for first, one in study.drawn(0, study.q()):
        about = study.after([one], knows)
        known = np.isfinite(about["known"]) if knows else None
        for second, two in study.drawn(1, study.q([one], known=known), **about):
            yield first * second, [one, two]


def is_focused(study, *, kind):
    """The second round is designed for what the first left undecided."""
    goal = goals.goal(study.goal.target, kind)
    for first, one in study.drawn(0, study.q()):
        controls = None
        if study.outcomes.fold is not None:
            controls = control_variates(TOY, goal, [one])
        asked = focused(goal, estimate(goal, [one], controls=controls))
        about = study.after([one], True)
        q = design(asked, rank_utility(study.pool), floor=0.3, known=np.isfinite(about["known"])).q
        for second, two in study.drawn(1, q, **about):
            yield first * second, [one, two]


def cells_join(study, *, learns):
    """The first round knew all cells but the last."""
    old = np.append(np.ones(len(study.cells) - 1), 0.0) * study.q()
    for first, one in study.drawn(0, old / old.sum(), n_cells=len(old) - 1):
        about = study.after([one], False) if learns else {}
        for second, two in study.drawn(1, study.q([one] if learns else ()), **about):
            yield first * second, [one, two]


def topped_up(study, *, again):
    """Two rounds, the second of which learns, know four of six cells; a third draws one of the
    others, and perhaps a last one of all six, having learned from all."""
    old = np.where(study.cells < 4, 1.0, 0.0)
    new = np.where(study.cells < 4, 0.0, np.array([0, 0, 0, 0, 0.7, 0.3]))
    alone = study.as_one()
    for first, one in study.drawn(0, old / old.sum(), n_cells=4):
        q = study.q([one], known=study.cells >= 4)
        for second, two in study.drawn(1, q, n_cells=4, **study.after([one], False)):
            before = study.after([one, two], False)
            for third, three in alone.drawn(2, new, 1, n_cells=6, first=4, **before):
                rounds = [one, two, three]
                chance = first * second * third
                if not again:
                    yield chance, rounds
                    continue
                q = study.q(rounds)
                for last, four in alone.drawn(3, q, 1, n_cells=6, **study.after(rounds, False)):
                    yield chance * last, [*rounds, four]


RULES = {
    "one round": one_round,
    "fixed in advance": fixed_in_advance,
    "fixed in advance, then as one": partial(fixed_in_advance, by_fold=False),
    "learned": learned,
    "learned, known left out": partial(learned, knows=True),
    "best": partial(is_focused, kind="best"),
    "order": partial(is_focused, kind="order"),
    "cells join": partial(cells_join, learns=False),
    "cells join, learned": partial(cells_join, learns=True),
    "topped up": partial(topped_up, again=False),
    "topped up, learned": partial(topped_up, again=True),
}


def with_difference(study, rounds):
    """Without folds: each later round is corrected by what the earlier ones say."""
    past = [control(TOY, rounds, number) for number in range(1, len(rounds))]
    found = estimate(study.goal, rounds, controls=[None, *past])
    assert found.estimator == "difference"
    return found


def with_cross_fit(study, rounds):
    """By fold: each fold is corrected by what the others say."""
    found = estimate(study.goal, rounds, controls=control_variates(TOY, study.goal, rounds))
    assert found.estimator == "cross-fitted"
    return found


def with_weights(study, rounds, **options):
    """By inverse expected counts, or as the kind of the measure does it."""
    return study.kind.estimate(study.goal, rounds, **options)


ESTIMATORS = {
    "importance": with_weights,
    "balance": partial(with_weights, combine="balance"),
    "each": partial(with_weights, combine="each"),
    "difference": with_difference,
    "cross-fitted": with_cross_fit,
}


@dataclass(frozen=True)
class Case:
    measure: str
    samplers: tuple[str, ...]
    rule: str
    estimator: str

    def __str__(self) -> str:
        return "-".join([self.measure, *self.samplers, self.rule, self.estimator])


ALL = list(itertools.product(SAMPLERS, repeat=2))
#: Each sampler before each other one; and each twice.
CYCLE = list(zip(SAMPLERS, [*list(SAMPLERS)[1:], next(iter(SAMPLERS))], strict=True))
SAME = [(name, name) for name in SAMPLERS]
PAIRED = [("iid", "iid"), ("iid", "distinct"), ("distinct", "iid")]
CASES = [
    Case(measure, samplers, rule, estimator)
    for measure, tried, rules, estimators in (
        ("DCG@3", ALL, ["learned", "cells join", "cells join, learned"], ["importance"]),
        ("RBP(p=0.5)", ALL, ["fixed in advance"], ["importance", "balance"]),
        ("P@2", CYCLE, ["fixed in advance"], ["each"]),
        ("P@3", CYCLE, ["learned, known left out"], ["importance"]),
        ("DCG@3", SAME, ["best", "order"], ["importance", "cross-fitted"]),
        ("DCG@3", CYCLE, ["learned"], ["difference", "cross-fitted"]),
        ("Gain@3", SAME, ["learned, known left out", "learned"], ["cross-fitted"]),
        ("DCG@3", CYCLE, ["fixed in advance"], ["cross-fitted"]),
        ("DCG@3", CYCLE, ["fixed in advance, then as one"], ["cross-fitted"]),
        ("RBP(p=0.5)", SAME, ["cells join", "cells join, learned"], ["cross-fitted"]),
        ("Swaps", [("iid",), ("distinct",)], ["one round"], ["importance"]),
        ("wSwaps@3", [("iid",), ("distinct",)], ["one round"], ["importance"]),
        ("Swaps", PAIRED, ["learned", "learned, known left out"], ["importance"]),
        ("wSwaps", PAIRED[:2], ["fixed in advance"], ["importance"]),
        ("MAE", [(name,) for name in SAMPLERS], ["one round"], ["importance"]),
        ("MSE@2", [(name,) for name in SAMPLERS], ["one round"], ["importance"]),
        ("MAE", CYCLE, ["learned", "learned, known left out"], ["importance"]),
        ("MSE", CYCLE, ["fixed in advance"], ["importance", "balance"]),
        ("DCG@3", [("distinct",) * 4, ("slices",) * 4], ["topped up, learned"], ["difference"]),
        ("DCG@3", [("distinct",) * 4, ("slices",) * 4], ["topped up, learned"], ["cross-fitted"]),
        ("P@3", [("iid",) * 4], ["topped up"], ["importance", "cross-fitted"]),
    )
    for samplers in tried
    for rule in rules
    for estimator in estimators
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_mean_of_all_outcomes_is_the_truth(draws_law, case):
    more = case.rule.startswith("topped up")
    runs, grades = (MORE, MORE_GRADES) if more else (RUNS, GRADES)
    on = targets.target(pool(read_runs(runs)), case.measure)
    kind = kind_of(on.measure)
    _, documents = on.pool.names(np.arange(len(on.pool)))
    utility = np.array([grades["q"][document] for document in documents], float)
    truth = on.values(utility)
    if kind is not SUMS:  # these, `evaluate` holds to other programs
        truth = evaluate(read_runs(runs), grades, [case.measure]).value[0]
    fold = np.arange(len(utility), dtype=np.int32) % 2 if case.estimator == "cross-fitted" else None
    study = Study(
        goals.rank(on),
        kind,
        utility,
        Outcomes(draws_law, fold, kind.in_pairs),
        case.samplers,
    )
    total, value, contrast, values, designs = 0.0, 0.0, 0.0, [], []
    for chance, rounds in RULES[case.rule](study):
        found = ESTIMATORS[case.estimator](study, rounds)
        assert found.reached.all()
        total += chance
        value, contrast = value + chance * found.value, contrast + chance * found.contrast
        values.append(found.value)
        designs.append(rounds[min(1, len(rounds) - 1)].sample.expected)
    assert abs(total - 1) <= EXACT
    np.testing.assert_allclose(value, truth, rtol=0, atol=EXACT)
    np.testing.assert_allclose(contrast, study.goal.matrix @ truth, rtol=0, atol=EXACT)
    assert np.ptp(values, axis=0).max() > 0.1  # there is something to average
    if any(one.depends_on for one in rounds[1:2]):  # which does change what is drawn next
        assert np.ptp(designs, axis=0).max() > 0.03


def test_all_are_tried():
    assert {s for case in CASES for s in case.samplers} == set(SAMPLERS)
    kinds = [kind_of(targets.target(pool(read_runs(RUNS)), c.measure).measure) for c in CASES]
    assert {*kinds, RATIOS} == set(KINDS)
    assert {case.rule for case in CASES} == set(RULES)
    assert {case.estimator for case in CASES} == set(ESTIMATORS)
