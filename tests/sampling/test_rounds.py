"""Rounds, their weights, and which control variate is legal for which."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.errors import EvenhandError, SupportError
from evenhand.sampling.rounds import (
    Control,
    Round,
    check_control,
    planned_weights,
    stages,
    weights_by_cell,
)
from evenhand.sampling.samples import Sample

FOLD = np.array([0, 1, 0, 1], np.int32)


def drawn(*depends_on, name="", fold=None, expected=(0.5, 0.5, 0.5, 0.5), **about):
    """A round of two draws from a pool of four cells."""
    sample = Sample("distinct", np.array([0, 1]), np.array(expected), fold)
    return Round(sample, np.ones(2), depends_on=depends_on, name=name, **about)


# Stages


def test_rounds_fixed_in_advance_are_one_stage():
    first, fixed, later = drawn(), drawn(), drawn("1")
    assert stages([first]) == [[0]]
    assert stages([first, fixed]) == [[0, 1]]
    assert stages([first, later, later]) == [[0], [1], [2]]
    # A round whose design was made before any judgment belongs to the first, whenever drawn.
    assert stages([first, later, fixed]) == [[0, 2], [1]]
    assert stages([later]) == [[0]]
    assert stages([]) == []


def test_the_balance_heuristic_is_for_rounds_fixed_in_advance():
    assert stages([drawn(), drawn()], "balance") == [[0, 1]]
    with pytest.raises(SupportError, match="after looking: two, round 3") as error:
        stages([drawn(), drawn("one", name="two"), drawn("one")], "balance")
    assert "planned" in error.value.hint
    with pytest.raises(EvenhandError, match="unknown way to combine rounds 'mean'"):
        stages([drawn()], "mean")


# Weights


def test_planned_weights_sum_to_one_and_follow_the_square_root_rule():
    planned = np.array([10, 20, 5, 40])
    weights = planned_weights(planned)
    assert weights.sum() == pytest.approx(1, abs=1e-15)
    ratio = weights / (planned * np.sqrt([1, 2, 3, 4]))
    np.testing.assert_allclose(ratio, ratio[0])
    assert planned_weights(np.array([7])).tolist() == [1.0]


def test_a_cell_is_shared_among_the_stages_since_it_joined():
    omega = np.array([0.2, 0.3, 0.5])
    together = [[drawn(n_cells=2), drawn(n_cells=1)], [drawn("1", n_cells=3)], [drawn("1")]]
    found = weights_by_cell(omega, together, 4)
    np.testing.assert_allclose(found[:, 0], omega)
    # One round of the stage knew it: that stage could draw it.
    np.testing.assert_allclose(found[:, 1], omega)
    np.testing.assert_allclose(found[:, 2], [0, 0.375, 0.625])
    np.testing.assert_allclose(found[:, 3], [0, 0, 1])
    # A cell that none of them knew has no weight, rather than NaN.
    np.testing.assert_array_equal(weights_by_cell(omega[:1], together[:1], 4)[0], [1, 1, 0, 0])


def test_a_round_that_tops_up_counts_on_what_joined_alone():
    omega = np.array([0.2, 0.3, 0.5])
    late, all_of_it = drawn("1", n_cells=3, first=2), drawn("1")
    found = weights_by_cell(omega, [[drawn(n_cells=2)], [late], [all_of_it]], 4)
    np.testing.assert_allclose(found[:, 1], [2 / 7, 0, 5 / 7])
    np.testing.assert_allclose(found[:, 2], [0, 0.375, 0.625])
    np.testing.assert_allclose(found[:, 3], [0, 0, 1])
    # Drawn before the first judgment it is of one stage with the first round.
    found = weights_by_cell(omega[:1], [[drawn(n_cells=1), drawn(n_cells=4, first=2)]], 4)
    np.testing.assert_array_equal(found[0], [1, 0, 1, 1])


# Control variates


FIRST = [drawn(fold=FOLD, name="one"), drawn(fold=FOLD)]  # one stage
ROUNDS = [*FIRST, drawn("one", fold=FOLD, name="two"), drawn("one", "two", fold=FOLD)]
ZEROS = np.zeros(4)


@pytest.mark.parametrize(
    ("stage", "past", "crossed"),
    [
        ([0, 1], (), ()),
        ([0, 1], (), (0, 1)),
        ([0, 1], (), (1,)),
        ([2], (), ()),
        ([2], (0,), ()),
        ([2], (0, 1), (2,)),
        ([3], (0, 1, 2), (3,)),
    ],
)
def test_what_cannot_bias_is_allowed(stage, past, crossed):
    fold = FOLD if crossed else None
    check_control(Control(ZEROS, past=past, crossed=crossed, fold=fold), stage, ROUNDS)


@pytest.mark.parametrize(
    ("stage", "past"), [([2], (0, 2)), ([2], (3,)), ([0, 1], (0,)), ([0, 1], (1,)), ([0, 1], (3,))]
)
def test_a_control_that_saw_its_own_or_later_judgments_is_refused(stage, past):
    name = "two" if stage == [2] else "one, round 2"
    message = f"{name} was fitted on judgments that it is to correct: the estimate would be biased"
    with pytest.raises(SupportError, match=message) as error:
        check_control(Control(ZEROS, past=past), stage, ROUNDS)
    assert "cross_fit" in error.value.hint
    # Folds do not make up for it.
    with pytest.raises(SupportError, match=message):
        check_control(Control(ZEROS, past=past, crossed=tuple(stage), fold=FOLD), stage, ROUNDS)


def test_a_control_crossed_with_a_round_of_another_stage_is_refused():
    for crossed in ((0, 2), (3,)):
        with pytest.raises(SupportError, match=r"two was fitted on a part of round [14]") as error:
            check_control(Control(ZEROS, crossed=crossed, fold=FOLD), [2], ROUNDS)
        assert "another stage" in str(error.value)


@pytest.mark.parametrize(
    ("drawn_by", "fold"),
    [(None, FOLD), (FOLD, None), (FOLD, 1 - FOLD), (FOLD, np.array([0, 1, 1, 1]))],
    ids=["drawn as one", "not crossed", "exchanged", "another cell"],
)
def test_a_control_crossed_over_other_folds_than_drawn_is_refused(drawn_by, fold):
    rounds = [drawn(fold=drawn_by, name="one")]
    with pytest.raises(SupportError, match="one was fitted across folds that were not") as error:
        check_control(Control(ZEROS, crossed=(0,), fold=fold), [0], rounds)
    assert "40 pairs" in error.value.hint
    # One good round does not make up for the other of the stage.
    rounds = [drawn(fold=FOLD), *rounds]
    with pytest.raises(SupportError, match="not drawn each by itself"):
        check_control(Control(ZEROS, crossed=(0, 1), fold=fold), [0, 1], rounds)


def test_folds_of_cells_that_could_not_be_drawn_do_not_matter():
    rounds = [drawn(fold=FOLD, expected=(1.0, 1.0, 0.0, 0.0))]
    check_control(Control(ZEROS, crossed=(0,), fold=np.array([0, 1, 1, 0])), [0], rounds)


@pytest.mark.parametrize(
    "mean", [np.zeros(3), np.zeros((4, 1)), np.array([0, 1, np.nan, 0]), np.full(4, np.inf)]
)
def test_a_control_must_be_finite_for_every_cell(mean):
    with pytest.raises(EvenhandError, match="finite for each of the 4 cells of the pool"):
        check_control(Control(mean), [0], [drawn()])
