"""The table of kinds: each can be designed for, and a census has the value of `evaluate`."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.designs.proposals import design
from evenhand.designs.utilities import flat
from evenhand.errors import EvenhandError
from evenhand.estimands import goals
from evenhand.estimands.evaluation import evaluate
from evenhand.estimands.pools import pool
from evenhand.estimands.targets import target
from evenhand.formats.runs import read_runs
from evenhand.measures import grammar
from evenhand.nonlinear.kinds import ERRORS, KINDS, RATIOS, SUMS, SWAPS, kind_of
from evenhand.sampling.rounds import Round
from evenhand.sampling.samples import Sample

#: Measures of every kind: one of your own joins here.
MEASURES = {
    "P@3": SUMS,
    "DCG@3": SUMS,
    "Gain@2": SUMS,
    "RBP(p=0.5)": SUMS,
    "nDCG@3": RATIOS,
    "AP": RATIOS,
    "R@2": RATIOS,
    "Rprec": RATIOS,
    "Swaps": SWAPS,
    "wSwaps@3": SWAPS,
    "MAE": ERRORS,
    "MSE@3": ERRORS,
}
RUNS = {
    "x": {"q1": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}, "q2": {"a": 1.0, "c": 0.5}},
    "y": {"q1": {"c": 4.0, "b": 3.0, "a": 1.0}, "q2": {"a": 2.0, "b": 1.0}},
}
GRADES = {"q1": {"a": 1, "b": 0, "c": 0, "d": 1}, "q2": {"a": 0, "b": 1, "c": 1}}


@pytest.fixture(params=MEASURES)
def case(request):
    """A measure's kind, its goal, the utility of every cell, and the value of each system."""
    on = target(pool(read_runs(RUNS)), request.param)
    kind, goal, every = kind_of(on.measure), goals.absolute(on), np.arange(len(on.pool))
    names = zip(*on.pool.names(every), strict=True)
    utility = np.array([GRADES[query][document] for query, document in names], float)
    truth = evaluate(read_runs(RUNS), GRADES, [request.param]).value[0]
    assert kind is MEASURES[request.param]
    return kind, goal, utility, truth


def test_a_census_is_the_value(case):
    kind, goal, utility, truth = case
    sample = Sample("distinct", np.arange(len(utility)), np.ones(len(utility)))
    found = kind.estimate(goal, [Round(sample, utility)])
    np.testing.assert_allclose(found.value, truth, rtol=0, atol=1e-12)
    assert (found.std_error <= 1e-9).all()


def test_it_can_be_designed_for(case):
    kind, goal, utility, _ = case
    asked = goal
    if kind.design_goal is not None:
        asked = kind.design_goal(goal, 0.2 + 0.6 * utility, np.full(len(utility), 0.5), 1.0)
    q = design(asked, flat(goal.target.pool), floor=0.1).q
    weighed = (goal.target.weights(np.arange(len(q))) != 0).any(1)
    assert (q[weighed] > 0).all()
    assert q.sum() == pytest.approx(1, abs=1e-12)


def test_every_kind_is_tried():
    assert set(MEASURES.values()) == set(KINDS)


def test_what_has_no_kind_is_refused():
    with pytest.raises(EvenhandError, match="Judged@10 cannot be estimated from sampled pairs"):
        kind_of(grammar.measure("Judged@10"))
