"""Who is best: rank intervals, contenders, and the chance to be the best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evenhand.decisions.ranks import ranking
from evenhand.estimands import goals
from evenhand.estimation.importance import estimate
from evenhand.sampling.rounds import Round
from evenhand.sampling.samples import Sample


@pytest.fixture
def found(line_target):
    """Four systems over six cells, judged wholly; the second and third return the same."""
    weights = np.array(
        [
            [3.0, 0, 0, 0, 1, 0],
            [0.0, 2, 0, 0, 0, 0],
            [0.0, 2, 0, 0, 0, 0],
            [0.0, 0, 0, 1, 1, 1],
        ]
    )
    goal = goals.rank(line_target(weights))
    sample = Sample("distinct", np.arange(6), np.ones(6))
    return estimate(goal, [Round(sample, np.array([0.1, 1, 0, 0, 0.1, 0.7]))])


def with_spread(found, spread):
    covariance = np.diag(np.asarray(spread, float) ** 2)
    twins = np.eye(4)
    twins[2] = twins[1]  # what returns the same has the same error
    covariance = twins @ covariance @ twins.T
    evidence = replace(found.evidence, added=[(covariance, 1e6)])
    return replace(found, covariance=covariance, degrees=np.full(4, 1e6), evidence=evidence)


def test_a_census_ranks_for_certain(found):
    answer = ranking(found)
    assert answer.systems == ("s1", "s2", "s3", "s0")
    assert answer.value.tolist() == pytest.approx([2, 2, 0.8, 0.4])
    assert answer.first.tolist() == [1, 1, 3, 4]
    assert answer.last.tolist() == [2, 2, 3, 4]
    assert answer.best.tolist() == [1, 1, 0, 0]
    assert answer.contenders == ("s1", "s2")
    assert "the best is one of 2 systems: s1, s2" in str(answer)
    assert answer.to_dict()["systems"][0] == {
        "system": "s1",
        "estimate": pytest.approx(2.0),
        "rank_low": 1,
        "rank_high": 2,
        "best": 1.0,
    }


def test_what_cannot_be_told_apart_shares_ranks(found):
    answer = ranking(with_spread(found, [0.1, 0.1, 0.1, 1.0]))
    # s3 overlaps all; s0 is below the twins.
    assert dict(zip(answer.systems, answer.first, strict=True)) == {
        "s1": 1,
        "s2": 1,
        "s3": 1,
        "s0": 3,
    }
    assert dict(zip(answer.systems, answer.last, strict=True)) == {
        "s1": 3,
        "s2": 3,
        "s3": 4,
        "s0": 4,
    }
    assert answer.contenders == ("s1", "s2", "s3")
    # P(N(0.8, 1) > N(2, 0.1^2)) = Phi(-1.2 / sqrt(1.01)), to 4 standard errors of 20,000 draws.
    chance = dict(zip(answer.systems, answer.best, strict=True))
    assert chance["s3"] == pytest.approx(0.11622, abs=0.0091)
    assert chance["s1"] == chance["s2"] == pytest.approx(1 - chance["s3"])
    assert chance["s0"] == 0


def test_one_leader(found):
    sure = replace(
        found, value=np.array([9.0, 2, 2, 0.8]), reached_value=np.array([9.0, 2, 2, 0.8])
    )
    answer = ranking(with_spread(sure, [0.1, 0.1, 0.1, 0.1]))
    assert answer.contenders == ("s0",)
    assert answer.notes_shown()[0] == "s0 is the best"


def test_what_is_not_covered_has_no_rank(found):
    value = found.value.copy()
    value[3] = np.nan
    reached = found.reached.copy()
    reached[3] = False
    answer = ranking(replace(found, value=value, reached=reached))
    assert answer.systems == ("s1", "s2", "s0")
    assert answer.last.tolist() == [2, 2, 3]
    assert answer.notes == ("1 of 4 systems are not covered and have no rank",)
