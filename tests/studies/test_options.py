"""Options as values: their names are those that the method knows, and others are refused."""

from __future__ import annotations

from typing import get_args

import pytest

from evenhand.designs.proposals import DESIGNS
from evenhand.errors import EvenhandError
from evenhand.priors.prior import METHODS
from evenhand.studies.options import DesignName, EstimateOptions, MethodName


def test_names_are_those_of_the_method():
    assert set(get_args(DesignName)) == set(DESIGNS)
    assert set(get_args(MethodName)) == set(METHODS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"estimator": "best"}, "unknown estimator 'best'"),
        ({"question": "me"}, "unknown question 'me'"),
        ({"combine": "each"}, "unknown way to combine rounds 'each'"),
    ],
)
def test_names_that_are_none_are_refused(options, words):
    with pytest.raises(EvenhandError, match=words):
        EstimateOptions(**options)
