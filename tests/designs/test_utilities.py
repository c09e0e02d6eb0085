"""Approximate utilities: each formula by hand, and what a table of predictions may lack."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.designs import utilities
from evenhand.designs.utilities import (
    Moments,
    Reach,
    Utility,
    curve_utility,
    external_utility,
    mean_utility,
)
from evenhand.errors import EvenhandError
from evenhand.estimands.pools import pool
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.measures import grammar
from evenhand.measures.linear import DCG, P

RUNS = {
    "x": {"q1": {"a": 30.0, "b": 20.0, "c": 10.0}, "q2": {"a": 4.0}},
    "y": {"q1": {"b": 1.0, "a": 0.5}, "q2": {"b": 7.0, "a": 7.0}},
}
# Cells: q1 a, q1 b, q1 c, q2 a, q2 b; ranks of x: 1 2 3 1 -, of y: 2 1 - 2 1 (ties: larger id).


@pytest.fixture
def cells():
    return pool(read_runs(RUNS))


def test_every_utility_is_one(cells):
    qrels = read_qrels({"q1": {"a": 1}})
    for made in (
        utilities.flat(cells),
        utilities.rank_utility(cells),
        utilities.score_utility(cells),
        curve_utility(cells),
        external_utility(cells, qrels, P(cutoff=1)),
        utilities.known_utility(np.zeros(5)),
    ):
        assert isinstance(made, Utility)
        for moment in (made.mean, made.second_moment):
            assert moment.shape == (5,)
            assert moment.dtype == np.float64


def test_flat(cells):
    made = utilities.flat(cells)
    assert made.name == "flat"
    np.testing.assert_array_equal(made.mean, np.ones(5))
    np.testing.assert_array_equal(made.second_moment, np.ones(5))


def test_rank(cells):
    def v(rank, depth):
        return 1 - np.log(rank) / np.log(1 + depth)

    made = utilities.rank_utility(cells)  # the deepest rank is 3
    both = (v(1, 3) + v(2, 3)) / 2
    expected = 0.1 + np.array([both, both, v(3, 3) / 2, both, v(1, 3) / 2])
    assert made.name == "rank"
    np.testing.assert_allclose(made.second_moment, expected, rtol=1e-15)
    np.testing.assert_allclose(made.mean, expected, rtol=1e-15)
    shallow = utilities.rank_utility(pool(read_runs(RUNS), depth=2))  # without q1 c
    both = (v(1, 2) + v(2, 2)) / 2
    np.testing.assert_allclose(
        shallow.second_moment, 0.1 + np.array([both, both, both, v(1, 2) / 2]), rtol=1e-15
    )
    top = utilities.rank_utility(pool(read_runs({"x": {"q": {"a": 1.0}}})))
    np.testing.assert_array_equal(top.second_moment, [1.1])


def test_score(cells):
    made = utilities.score_utility(cells)
    scaled_x = np.array([1, 0.5, 0, 1, 0])  # one document alone counts as 1
    scaled_y = np.array([0, 1, 0, 1, 1])  # so do documents that all tie
    assert made.name == "score"
    np.testing.assert_allclose(made.second_moment, 0.1 + (scaled_x + scaled_y) / 2, rtol=1e-15)


@given(
    st.lists(st.floats(-1e6, 1e6).map(lambda s: round(s, 3)), min_size=2, max_size=6, unique=True),
    st.sampled_from([1e-3, 1.0, 1e5]),
    st.sampled_from([-100.0, 0.0, 3.0]),
)
@settings(max_examples=60, deadline=None)
def test_scaled_scores_forget_unit_and_origin(scores, unit, origin):
    def made(values):
        runs = {"x": {"q": {f"d{i}": v for i, v in enumerate(values)}}, "y": {"q": {"d0": 1.0}}}
        return utilities.score_utility(pool(read_runs(runs))).second_moment

    moved = made([unit * s + origin for s in scores])
    np.testing.assert_allclose(moved, made(scores), rtol=0, atol=1e-6)
    assert moved.min() >= 0.1 - 1e-15
    assert moved.max() <= 1.1 + 1e-15


def test_curves(cells):
    def u(rank):
        return 16 / (rank + 34)

    both = (u(1) + u(2)) / 2
    expected = np.array([both, both, u(3) / 2, both, u(1) / 2])
    literal = curve_utility(cells)
    assert literal.name == "paper-trec"
    np.testing.assert_allclose(literal.mean, expected, rtol=1e-15)
    np.testing.assert_allclose(literal.second_moment, expected**2, rtol=1e-15)
    root = curve_utility(cells, literal=False)
    assert root.name == "sqrt-paper-trec"
    np.testing.assert_allclose(root.mean, expected, rtol=1e-15)
    np.testing.assert_allclose(root.second_moment, expected, rtol=1e-15)
    synth = curve_utility(cells, "paper-synth")
    both = (4 * (1 - 1 / 2000) + 4 * (1 - 2 / 2000)) / 2
    np.testing.assert_allclose(synth.mean[0], both, rtol=1e-15)
    own = curve_utility(cells, lambda rank: 1 / rank)
    assert own.name == "curve"
    np.testing.assert_allclose(own.mean, [0.75, 0.75, 1 / 6, 0.75, 0.5], rtol=1e-15)
    with pytest.raises(EvenhandError, match="unknown curve 'paper'") as caught:
        curve_utility(cells, "paper")
    assert caught.value.hint == "known are paper-trec, paper-synth"


def test_external(cells):
    table = read_qrels({"q1": {"a": 4, "c": 0, "zz": 9}, "q2": {"b": 2}})
    made = external_utility(cells, table, DCG(), name="llm")
    mean = np.array([4, 2, 0, 2, 2])  # 2 is the mean of 4, 0 and 2: zz is outside the pool
    assert made.name == "llm"
    np.testing.assert_allclose(made.mean, mean, rtol=1e-15)
    np.testing.assert_allclose(made.second_moment, 0.1 * 16 + 0.9 * 4 * mean, rtol=1e-15)
    binary = external_utility(cells, table, P(cutoff=5))
    np.testing.assert_allclose(binary.second_moment, 0.1 + 0.9 * binary.mean, rtol=1e-15)
    np.testing.assert_allclose(binary.mean, [1, 2 / 3, 0, 2 / 3, 1], rtol=1e-15)


def test_external_of_several_predictors_is_their_mean(cells):
    table = read_qrels({"m1": {"q1": {"a": 3}}, "m2": {"q1": {"a": 0}}})
    made = external_utility(cells, table, grammar.measure("DCG(gains='exp')@5"))
    np.testing.assert_allclose(made.mean, np.full(5, 3.5), rtol=1e-15)


def test_external_that_predicts_nothing_knows_nothing(cells):
    made = external_utility(cells, read_qrels({"q1": {"a": 0}}), DCG())
    np.testing.assert_array_equal(made.mean, np.zeros(5))
    assert (made.second_moment > 0).all()
    assert np.ptp(made.second_moment) == 0


def test_external_refusals(cells):
    with pytest.raises(EvenhandError, match="is among the 5 pairs of the pool"):
        external_utility(cells, read_qrels({"q9": {"a": 1}}), DCG())
    table = read_qrels({"q1": {"a": -2, "b": 1}}, negative="keep")
    with pytest.raises(EvenhandError, match="predicts a negative utility, -2"):
        external_utility(cells, table, DCG())
    np.testing.assert_array_equal(external_utility(cells, table, P(cutoff=1)).mean[0], 0)


@given(
    st.lists(st.tuples(st.integers(-1, 4), st.sampled_from([0.0, 0.5, 1.0, 3.0])), max_size=12),
    st.sampled_from(["P@3", "DCG", "DCG(gains='exp')"]),
)
@settings(max_examples=100, deadline=None)
def test_mean_utility(judgments, measure):
    measure = grammar.measure(measure)
    where = np.array([cell for cell, _ in judgments], np.int64)
    grade = np.array([g for _, g in judgments], np.float64)
    judged, mean = mean_utility(where, grade, measure)
    assert judged.tolist() == sorted({cell for cell, _ in judgments if cell >= 0})
    for cell, value in zip(judged, mean, strict=True):
        np.testing.assert_allclose(value, measure.utility(grade[where == cell]).mean(), rtol=1e-14)


def test_known():
    made = utilities.known_utility(np.array([0.0, 0.5, 2.0]))
    np.testing.assert_array_equal(made.mean, [0, 0.5, 2])
    np.testing.assert_array_equal(made.second_moment, [0, 0.25, 4])


@pytest.mark.parametrize(
    ("mean", "second", "says"),
    [
        ([np.nan], [1.0], "the mean of the utility 'mine' is not finite"),
        ([1.0], [np.inf], "the second moment of the utility 'mine' is not finite"),
        ([1.0], [-1e-9], "the second moment of the utility 'mine' is negative"),
    ],
)
def test_moments_are_checked(mean, second, says):
    with pytest.raises(EvenhandError, match=says):
        Moments("mine", np.array(mean), np.array(second))


def test_levels_are_reached():
    reach = Reach(np.array([1.0, 3.0]), np.array([[0.75, 0.25], [0.5, 0.0], [1.0, 1.0]]))
    # To reach 0.5 is to reach 1, which comes next, and 2 is 3; nothing is above 3.
    found = reach.at(np.array([0.5, 1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_array_equal(found[0], [0.75, 0.75, 0.25, 0.25, 0])
    np.testing.assert_array_equal(found[2], [1, 1, 1, 1, 0])
    knowing = reach.knowing(np.array([np.nan, 4.0, 1.0]))
    np.testing.assert_array_equal(knowing.gain, [1, 3, 4])
    np.testing.assert_array_equal(knowing.chance, [[0.75, 0.25, 0], [1, 1, 1], [1, 0, 0]])
    np.testing.assert_array_equal(reach.chance[1], [0.5, 0.0])  # what was given stays
