"""Whole studies that learn, replicated: no bias, intervals that cover, nothing lost to bad models.

Statistical: each test says how often it would fail by chance, and what it can detect.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

from evenhand.designs.utilities import Moments
from evenhand.estimands import goals
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.priors.features import feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.simulation.adaptive import learned_rounds, study_that_learns
from evenhand.simulation.simulations import simulate, simulate_runs

DL2021 = Path(__file__).resolve().parents[3] / "shared" / "data" / "trec-dl-2021-passage"


@pytest.fixture(scope="module")
def world(made_target):
    """Goal, true utilities and a prior on made data."""
    target, utility = made_target(4)
    return goals.rank(target), utility, NumPyroPrior(feature_table(target.pool))


class Stubborn:
    """A prior that says the same whatever it sees; adversarial if `mean` is."""

    name = "stubborn"

    def __init__(self, mean):
        self.mean = mean

    def fit(self, sets):
        return [self for _ in sets]

    def predict(self, cells):
        mean = self.mean[cells]
        return Moments("stubborn", mean, mean**2 + 0.25)


def test_rounds_of_a_study_that_learns(world):
    goal, utility, prior = world
    key = jax.random.key(0)
    one, two = learned_rounds(key, goal, lambda c: utility[c], prior, [60, 80])
    assert (len(one.sample), len(two.sample)) == (60, 80)
    assert one.depends_on == ()
    assert two.depends_on == ("round 1",)
    assert one.sample.n_folds == two.sample.n_folds == 4
    assert two.known is not None
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(two.known)), one.sample.cells)
    assert not set(one.sample.draws) & set(two.sample.draws)


@pytest.mark.slow
def test_a_study_is_a_function_of_its_key(world):
    goal, utility, prior = world
    first, again, other = (
        study_that_learns(jax.random.key(k), goal, lambda c: utility[c], prior, 140, rounds=2)
        for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.value, again.value)
    assert (first.value != other.value).any()
    assert first.estimator == "cross-fitted"
    np.testing.assert_allclose(first.weights, [0.3203772, 0.6796228], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2])
def test_studies_that_learn_are_unbiased_and_better(world, rounds):
    # 7 systems, 50 studies: the largest |z| exceeds 5 by chance in about one of 10^4 runs (by
    # Student's t); a bias of one standard deviation of an estimate would show as z = 7.
    goal, utility, prior = world
    found = simulate(
        goal, utility, budgets=[150], learn=[rounds], prior=prior, replications=50, seed=rounds
    )
    ranks, learned = found.rows
    assert learned["bias_z"] < 5
    # Their ratio is known to about 14 %; made data are easy to learn from.
    assert learned["rmse"] < 0.9 * ranks["rmse"]
    # Of 350 intervals, 7 in a study: a standard error of about .015.
    assert 0.88 < learned["coverage"] < 0.995
    assert 0.88 < learned["pairs"] < 0.995


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constant", "reversed", "random"])
def test_a_prior_that_is_wrong_costs_little(world, kind):
    # One round of 150 draws, 150 studies: the ratio of RMSEs is known to 8 %, so that a true ratio
    # of 1 exceeds 1.15 in 3 of 100 runs; the seeds are fixed.
    goal, utility, _ = world
    mean = {
        "constant": np.full(len(utility), 1.0),
        "reversed": utility.max() - utility,
        "random": np.random.default_rng(0).random(len(utility)) * 2,
    }[kind]
    found = simulate(
        goal, utility, budgets=[150], learn=[1], prior=Stubborn(mean), replications=150
    )
    ranks, stubborn = found.rows
    assert stubborn["bias_z"] < 4.5
    assert stubborn["rmse"] < 1.15 * ranks["rmse"]


@pytest.mark.slow
def test_rare_relevance_is_not_worse(world):
    # One pair in 25 is relevant, whatever the ranks say; the gate keeps what does not help out.
    # With 40 studies on the same draws the ratio is known to 10 %.
    goal, utility, _ = world
    rare = np.where(np.random.default_rng(2).random(len(utility)) < 0.04, 1.0, 0.0)
    prior = NumPyroPrior(feature_table(goal.target.pool))
    found = simulate(goal, rare, budgets=[100], learn=[1], prior=prior, replications=40)
    ranks, learned = found.rows
    assert learned["bias_z"] < 5
    assert learned["rmse"] < 1.2 * ranks["rmse"]


@cache
def passages():
    """Runs and judgments of TREC 2021's passages, and what a language model says of them."""
    labels = read_qrels(DL2021 / "llm-qrels" / "umbrella_gpt-4_zeroshot_dl21.txt.gz")
    return (
        read_runs(DL2021 / "runs-top100-nist53"),
        read_qrels(DL2021 / "qrels-pass.txt.gz"),
        labels.to_frame(),
    )


@pytest.mark.slow
@pytest.mark.skipif(not DL2021.is_dir(), reason="the runs of TREC 2021 are not here")
@pytest.mark.parametrize(
    ("labels", "factor"),
    [("honest", 0.62), ("shuffled", 1.15), ("inverted", 0.8), ("constant", 1.15)],
)
def test_labels_of_a_language_model(labels, factor):
    # 20 systems, 24 studies of one round: |z| over the systems exceeds 6 by chance in about one of
    # 10^4 runs. On the same draws the ratio of RMSEs is known to about 8 %; it was .55 for honest
    # labels. Inverted ones tell a model that fits a slope as much as honest ones.
    runs, qrels, said = passages()
    rng = np.random.default_rng(0)
    grade = {
        "honest": said["grade"],
        "shuffled": rng.permutation(said["grade"]),
        "inverted": -said["grade"],
        "constant": 1.0,
    }[labels]
    found = simulate_runs(
        runs,
        qrels,
        "DCG@10",
        sample_systems=20,
        signals={"model": read_qrels(said.assign(grade=grade), negative="keep")},
        budgets=[100],
        designs=["rank"],
        learn=[1],
        replications=24,
    )
    ranks, learned = found.rows
    assert learned["bias_z"] < 6
    assert learned["rmse"] < factor * ranks["rmse"]
    assert learned["pairs"] > 0.9
