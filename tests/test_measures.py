"""Measures: spellings, weights, utilities, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand import measures
from evenhand.errors import EvenhandError


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("P@10", "P@10"),
        ("P_10", "P@10"),
        ("P.10", "P@10"),
        ("precision@10", "P@10"),
        ("Precision@10", "P@10"),
        ("precision@10-l2", "P(rel=2)@10"),
        (" P( rel = 2 )@5 ", "P(rel=2)@5"),
        ("DCG", "DCG"),
        ("DCG@100", "DCG@100"),
        ("dcg@10", "DCG@10"),
        ("dcg_cut_10", "DCG@10"),
        ("dcg_burges@10", "DCG(gains='exp')@10"),
        ("DCG(log='e')@100", "DCG(log='e')@100"),
        ("DCG(log=10)", "DCG(log=10)"),
        ("DCG(gains='exp')@10", "DCG(gains='exp')@10"),
        ("DCG(gains={2:3,0:0,1:1})@10", "DCG(gains={0:0,1:1,2:3})@10"),
        ("Gain@10", "Gain@10"),
        ("RBP", "RBP(p=0.8)"),
        ("RBP(p=0.95)", "RBP(p=0.95)"),
        ("RBP(p=0.5,rel=2)@20", "RBP(p=0.5,rel=2)@20"),
        ("rbp.80", "RBP(p=0.8)"),
        ("rbp.95", "RBP(p=0.95)"),
    ],
)
def test_spellings_print_canonically_and_parse_back(written, canonical):
    measure = measures.parse(written)
    assert str(measure) == canonical
    assert measures.parse(canonical) == measure
    assert hash(measures.parse(canonical)) == hash(measure)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("P", "needs a cutoff"),
        ("Gain", "needs a cutoff"),
        ("P@0", "whole number from 1"),
        ("P@x", "must be a whole number"),
        ("P(rel='a')@5", "must be a number"),
        ("P(p=0.8)@5", "has no option 'p'"),
        ("P(2)@5", "cannot read the options"),
        ("P(rel=)@5", "cannot read the options"),
        ("RBP(p=1)", "between 0 and 1"),
        ("DCG(log=1)", "log base"),
        ("DCG(gains='cubic')@5", "gains of DCG"),
        ("DCG(gains={0:0,1:-1})@5", "gains of DCG"),
        ("MRR", "cannot be estimated without bias"),
        ("ERR@20", "cannot be estimated without bias"),
        ("quality@10", "unknown measure"),
        ("@@", "cannot read the measure"),
        ("", "cannot read the measure"),
    ],
)
def test_refusals_say_why(written, says):
    with pytest.raises(EvenhandError, match=says):
        measures.parse(written)


def test_what_is_no_measure_is_refused():
    with pytest.raises(EvenhandError, match="expected a measure"):
        measures.parse(10)


def test_weights_by_hand():
    rank = np.array([1, 2, 3, 4])
    np.testing.assert_allclose(measures.parse("P@2").weight(rank), [0.5, 0.5, 0, 0])
    np.testing.assert_allclose(measures.parse("Gain@4").weight(rank), [0.25] * 4)
    np.testing.assert_allclose(
        measures.parse("DCG@3").weight(rank), [1, 0.6309297535714575, 0.5, 0], rtol=1e-15
    )
    np.testing.assert_allclose(
        measures.parse("DCG(log='e')").weight(rank)[:2], [1.4426950408889634, 0.9102392266268373]
    )
    np.testing.assert_allclose(
        measures.parse("DCG(log=10)").weight(np.array([9, 99])), [1, 0.5], rtol=1e-14
    )
    np.testing.assert_allclose(
        measures.parse("RBP(p=0.5)").weight(rank), [0.5, 0.25, 0.125, 0.0625]
    )
    np.testing.assert_allclose(measures.parse("RBP(p=0.5)@2").weight(rank), [0.5, 0.25, 0, 0])


def test_utilities_by_hand():
    grade = np.array([0.0, 1.0, 1.5, 3.0])
    np.testing.assert_array_equal(measures.parse("P@2").utility(grade), [0, 1, 1, 1])
    np.testing.assert_array_equal(measures.parse("P(rel=2)@2").utility(grade), [0, 0, 0, 1])
    np.testing.assert_array_equal(measures.parse("DCG").utility(grade), grade)
    np.testing.assert_allclose(
        measures.parse("DCG(gains='exp')").utility(grade), [0, 1, 2**1.5 - 1, 7]
    )
    mapped = measures.parse("Gain(gains={0:0,1:1,3:9})@5")
    np.testing.assert_array_equal(mapped.utility(np.array([3.0, 0.0, 1.0])), [9, 0, 1])
    with pytest.raises(EvenhandError, match=r"no gain for grade 1\.5"):
        mapped.utility(grade)


def test_top_utility_is_known_where_it_can_be():
    assert measures.parse("P@5").top_utility == 1
    assert measures.parse("RBP").top_utility == 1
    assert measures.parse("DCG").top_utility is None
    assert measures.parse("DCG(gains={0:0,2:7})").top_utility == 7
