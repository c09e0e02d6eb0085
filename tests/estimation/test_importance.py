"""Unbiased estimates of systems and contrasts: exact first, by enumeration of every sample."""

from __future__ import annotations

import functools
import inspect
import io
import itertools
import json

import jax
import numpy as np
import pytest
import scipy.stats

from evenhand.designs.proposals import DESIGNS, design
from evenhand.designs.utilities import Moments, flat, rank_utility, score_utility
from evenhand.errors import EvenhandError, MissingJudgments, SupportError
from evenhand.estimands import goals, targets
from evenhand.estimands.goals import GOALS
from evenhand.estimands.pools import pool
from evenhand.estimation.importance import estimate, judge, terms
from evenhand.float64 import in_float64
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.intervals.intervals import student, welch
from evenhand.sampling.rounds import Round, planned_weights
from evenhand.sampling.samplers import SAMPLERS, draw, slice_order
from evenhand.sampling.samples import Sample

# The contrasts of `best` and `order` are those of `rank`.
KINDS = [*(kind for kind in GOALS if kind not in ("best", "order")), "own"]
UTILITIES = {"agree": flat, "missed": rank_utility, "ties": score_utility, "twins": rank_utility}
EXACT = 1e-12


def sample_law(draws_law, expected_counts, plan, sampler, n, permutation=None):
    """Expected counts, and the exact law of the draws from a design."""
    expected = expected_counts(sampler, plan.q, n)
    order = slice_order(plan.goal)
    return expected, draws_law(sampler, expected, n, order=order, permutation=permutation)


def truths(goal, utility):
    value = goal.target.values(utility)
    return value, goal.matrix @ value


@in_float64
def sums(goal, law, utility, expected):
    """The contrasts' estimates by outcome, as sums of `terms`: shape (outcomes, contrasts)."""
    a = goal.at(np.arange(len(utility)))
    return np.array([terms(a[d], utility[d], expected[d]).sum(0) for d in law.draws])


@pytest.fixture(scope="module")
def plans(tiny, make_goal):
    """All designs and floors that are legal for a goal: with floor 1 all designs are one."""

    @functools.cache
    def plans(pool_name, kind):
        target, _ = tiny(pool_name)
        goal, utility = make_goal(target, kind), UTILITIES[pool_name](target.pool)
        # Compiling a minimax design takes seconds: on one pool for all goals, else for square ones.
        square = len(goal.names) == len(target.systems)
        kinds = [d for d in DESIGNS if d != "minimax" or square or pool_name == "missed"]
        made = [design(goal, utility, kind=d, floor=f) for d in kinds for f in (0.0, 0.1)]
        return goal, [*made, design(goal, utility, floor=1.0)]

    return plans


# One round


@pytest.mark.parametrize("pool_name", UTILITIES)
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", KINDS)
def test_enumerated_estimate_is_unbiased(
    tiny, plans, draws_law, expected_counts, pool_name, sampler, kind
):
    _, utility = tiny(pool_name)
    goal, designs = plans(pool_name, kind)
    value, contrast = truths(goal, utility)
    for plan in designs:
        # Fewer distinct cells than the design supports: drawing all would be a census.
        n = min(2, max(1, np.count_nonzero(plan.q) - 1))
        expected, law = sample_law(draws_law, expected_counts, plan, sampler, n)
        assert abs(law.probability.sum() - 1) <= EXACT
        estimates = [
            estimate(goal, [Round(Sample(sampler, draws, expected), utility[draws])])
            for draws in law.draws
        ]
        covered = estimates[0].covered == 1
        # Only a comparative design without a floor may leave a system's own value uncovered.
        assert covered.all() or (plan.floor == 0 and plan.name.startswith(("optimal", "minimax")))
        values = np.array([e.value for e in estimates])
        assert np.isnan(values[:, ~covered]).all()
        bias = law.mean(values[:, covered]) - value[covered]
        assert np.abs(bias).max(initial=0) <= EXACT, plan
        bias = law.mean(np.array([e.contrast for e in estimates])) - contrast
        assert np.abs(bias).max() <= EXACT, plan


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("pool_name", ["missed", "twins"])
def test_enumerated_terms_are_unbiased_for_any_number_of_draws(
    tiny, plans, draws_law, expected_counts, pool_name, sampler, n
):
    _, utility = tiny(pool_name)
    goal, designs = plans(pool_name, "rank")
    for plan in designs:
        if np.count_nonzero(plan.q) <= n:
            continue
        expected, law = sample_law(draws_law, expected_counts, plan, sampler, n)
        bias = law.mean(sums(goal, law, utility, expected)) - truths(goal, utility)[1]
        assert np.abs(bias).max() <= EXACT, plan


@pytest.mark.parametrize("pool_name", ["agree", "missed"])
def test_distinct_is_unbiased_in_every_order(tiny, plans, draws_law, expected_counts, pool_name):
    _, utility = tiny(pool_name)
    goal, designs = plans(pool_name, "rank")
    floored = [plan for plan in designs if plan.floor == 0.1]
    plan = floored[0]
    for permutation in itertools.permutations(range(4)):
        expected, law = sample_law(
            draws_law, expected_counts, plan, "distinct", 2, np.array(permutation)
        )
        bias = law.mean(sums(goal, law, utility, expected)) - truths(goal, utility)[1]
        assert np.abs(bias).max() <= EXACT, permutation


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_enumerated_estimate_is_unbiased_with_a_noisy_judge(
    plans, draws_law, expected_counts, sampler
):
    # Each cell is judged once, 1 with its probability, else 0; its draws count as often as drawn.
    probability = np.array([0.2, 0.9, 0.5])
    goal, designs = plans("agree", "rank")
    plan = designs[1]
    expected, law = sample_law(draws_law, expected_counts, plan, sampler, 2)
    mean = 0.0
    for said in itertools.product([0.0, 1.0], repeat=3):
        said = np.array(said)
        chance = np.where(said == 1, probability, 1 - probability).prod()
        mean = mean + chance * law.mean(sums(goal, law, said, expected))
    assert np.abs(mean - truths(goal, probability)[1]).max() <= EXACT


def test_trap_self_normalising_a_contrast(tiny, plans, draws_law, expected_counts):
    # The same sums divided by the mean importance weight are biased.
    _, utility = tiny("missed")
    goal, designs = plans("missed", "rank")
    plan = designs[1]
    expected, law = sample_law(draws_law, expected_counts, plan, "iid", 2)
    estimates = sums(goal, law, utility, expected)
    weight = (1 / (len(plan.q) * expected[law.draws])).sum(1)
    truth = truths(goal, utility)[1]
    assert np.abs(law.mean(estimates / weight[:, None]) - truth).max() > 0.01
    assert np.abs(law.mean(estimates) - truth).max() <= EXACT


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_trap_clipping_weights(line_target, draws_law, expected_counts, sampler):
    # A cell drawn once in ten thousand keeps its weight of ten thousand.
    target, utility = line_target([[0.5, 0.3, 0.2]]), np.array([1.0, 0.0, 3.0])
    goal = goals.absolute(target)
    q = np.array([0.6, 0.3999, 0.0001])
    expected = expected_counts(sampler, q, 1)
    law = draws_law(sampler, expected, 1)
    values = [
        estimate(goal, [Round(Sample(sampler, d, expected), utility[d])]).value[0]
        for d in law.draws
    ]
    assert max(values) == pytest.approx(0.6 / 0.0001)
    assert abs(law.mean(np.array(values)) - 1.1) <= EXACT


# Rounds


def learned(target, draws, utility):
    """What a deterministic learner makes of it: value + 0.1 where judged, 1 elsewhere."""
    mean = np.ones(len(target.pool))
    mean[draws] = utility[draws] + 0.1
    return Moments("learned", mean, mean**2)


@pytest.fixture(scope="module")
def two_rounds(draws_law, expected_counts):
    """``(goal, utility, samplers, n)`` to all (chance, sample, sample) of rounds that learn."""

    def outcomes(goal, utility, samplers, n, floor=0.2):
        first = design(goal, flat(goal.target.pool), floor=floor)
        expected_1, law_1 = sample_law(draws_law, expected_counts, first, samplers[0], n[0])
        found = []
        for chance_1, draws_1 in zip(law_1.probability, law_1.draws, strict=True):
            second = design(goal, learned(goal.target, draws_1, utility), floor=floor)
            expected_2, law_2 = sample_law(draws_law, expected_counts, second, samplers[1], n[1])
            found += [
                (
                    chance_1 * chance_2,
                    Sample(samplers[0], draws_1, expected_1),
                    Sample(samplers[1], draws_2, expected_2),
                )
                for chance_2, draws_2 in zip(law_2.probability, law_2.draws, strict=True)
            ]
        assert abs(sum(chance for chance, *_ in found) - 1) <= EXACT
        return found

    return outcomes


@pytest.mark.parametrize(
    ("weights", "utility", "n", "bias"),
    [
        ((0.5, 0.3, 0.2), (0.0, 1.0, 4.0), 1, -0.068908),
        ((0.5, 0.3, 0.2), (0.0, 1.0, 4.0), 2, -0.044630),
        ((0.5, 0.5), (1.0, 4.0), 1, -0.162616),
    ],
)
def test_trap_mixture_denominators_with_learned_q(line_target, weights, utility, n, bias):
    # Round 1 uniform; round 2 proportional to u~ + 0.1, u~ the judged value or 1 where not judged.
    # The balance heuristic, told that nothing was learned, is off by this; planned weights are not.
    utility = np.array(utility)
    cells = len(utility)
    goal = goals.absolute(line_target([weights]))
    truth = goal.target.values(utility)[0]
    uniform = np.full(cells, 1 / cells)
    mean = {"balance": 0.0, "planned": 0.0}
    for first in itertools.product(range(cells), repeat=n):
        one = Sample("iid", np.array(first), n * uniform)
        guess = np.ones(cells)
        guess[one.draws] = utility[one.draws]
        q = (guess + 0.1) / (guess + 0.1).sum()
        for second in itertools.product(range(cells), repeat=n):
            two = Sample("iid", np.array(second), n * q)
            chance = uniform[one.draws].prod() * q[two.draws].prod()
            judged = [utility[s.draws] for s in (one, two)]
            lie = [Round(one, judged[0]), Round(two, judged[1])]
            mean["balance"] += chance * estimate(goal, lie, combine="balance").value[0]
            true = [lie[0], Round(two, judged[1], depends_on=("1",))]
            mean["planned"] += chance * estimate(goal, true).value[0]
    assert mean["balance"] - truth == pytest.approx(bias, abs=5e-7)
    assert abs(mean["planned"] - truth) <= EXACT


def test_the_balance_heuristic_is_refused_for_rounds_that_learned(tiny, plans):
    goal, _ = plans("agree", "pair")
    sample = Sample("iid", np.array([0, 1]), np.full(3, 2 / 3))
    rounds = [
        Round(sample, np.ones(2), name="one"),
        Round(sample, np.ones(2), depends_on=("one",), name="two"),
    ]
    with pytest.raises(SupportError, match="two") as error:
        estimate(goal, rounds, combine="balance")
    assert "planned" in error.value.hint


def test_trap_rmse_only_tests(tiny, make_goal, two_rounds):
    # The biased balance heuristic has the smaller mean square error: only the mean tells.
    target, utility = tiny("agree")
    goal = make_goal(target, "pair")
    truth = truths(goal, utility)[1][0]
    moments = {"balance": np.zeros(2), "planned": np.zeros(2)}
    for chance, one, two in two_rounds(goal, utility, ("iid", "iid"), (1, 1), floor=0.1):
        lie = [Round(one, utility[one.draws]), Round(two, utility[two.draws])]
        true = [lie[0], Round(two, utility[two.draws], depends_on=("1",))]
        for name, rounds in (("balance", lie), ("planned", true)):
            miss = estimate(goal, rounds).contrast[0] - truth
            moments[name] += chance * np.array([miss, miss**2])
    assert moments["balance"][1] < moments["planned"][1]
    assert abs(moments["balance"][0]) > 0.01
    assert abs(moments["planned"][0]) <= EXACT


def test_trap_weights_from_the_data(line_target, draws_law):
    # Inverse-variance weights from the same draws are biased; ours do not know the draws.
    target, utility = line_target([[0.5, 0.3, 0.2]]), np.array([0.0, 1.0, 4.0])
    goal = goals.absolute(target)
    expected = np.ones(3)
    law = draws_law("iid", expected, 3)
    z = (goal.at(np.arange(3))[:, 0] * utility / expected)[law.draws]
    value, spread = z.sum(1), z.var(1, ddof=1) + 0.01
    chance = np.multiply.outer(law.probability, law.probability)
    mixed = (value[:, None] / spread[:, None] + value / spread) / (1 / spread[:, None] + 1 / spread)
    assert abs((chance * mixed).sum() - 1.1) > 0.05
    seen = set()
    for draws in law.draws[:5]:
        sample = Sample("iid", draws, expected)
        rounds = [
            Round(sample, utility[draws]),
            Round(sample, utility[draws], depends_on=("1",)),
        ]
        seen.add(tuple(estimate(goal, rounds).weights))
    assert len(seen) == 1


def test_trap_changing_the_plan_after_seeing_data(tiny, plans):
    # A second round that turned out larger does not count for more: only the plan does.
    _, utility = tiny("agree")
    goal, _ = plans("agree", "absolute")

    def rounds(n):
        return [
            Round(Sample("iid", d, np.full(3, len(d) / 3)), utility[d], depends_on=depends)
            for d, depends in ((np.array([0, 1]), ()), (np.arange(n) % 3, ("1",)))
        ]

    for n in (2, 9):
        np.testing.assert_allclose(
            estimate(goal, rounds(n)).weights, np.array([1, 2**1.5]) / (1 + 2**1.5)
        )
        planned = estimate(goal, rounds(n), planned=(2, 4)).weights
        np.testing.assert_allclose(planned, planned_weights(np.array([2, 4])))


def test_trap_stopping_when_it_looks_good(line_target):
    # One draw a round: a running mean that is reported as soon as it reaches the truth is off by
    # 13/60. Two rounds as planned are not.
    target, utility = line_target([[0.5, 0.3, 0.2]]), np.array([0.0, 1.0, 4.0])
    goal, expected = goals.absolute(target), np.full(3, 1 / 3)
    truth = target.values(utility)[0]
    assert truth == pytest.approx(1.1, abs=1e-15)
    stopped = planned = 0.0
    for first, second in itertools.product(range(3), repeat=2):
        rounds = [
            Round(Sample("iid", np.array([c]), expected), utility[[c]]) for c in (first, second)
        ]
        one, both = (estimate(goal, some).value[0] for some in (rounds[:1], rounds))
        stopped += (one if one >= truth else both) / 9
        planned += both / 9
    assert stopped - truth == pytest.approx(13 / 60, abs=1e-12)
    assert abs(planned - truth) <= EXACT


# Standard errors


def covariances(goal, law, sampler, expected, utility):
    """True covariance of the contrasts' estimates, and the expectation of its estimate."""
    found = [estimate(goal, [Round(Sample(sampler, d, expected), utility[d])]) for d in law.draws]
    value = np.array([e.contrast for e in found])
    residual = value - law.mean(value)
    true = np.einsum("o,oi,oj->ij", law.probability, residual, residual)
    return true, law.mean(np.array([e.contrast_covariance for e in found]))


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("pool_name", ["agree", "missed"])
def test_expected_covariance_is_true_for_iid(tiny, plans, draws_law, expected_counts, pool_name, n):
    _, utility = tiny(pool_name)
    goal, designs = plans(pool_name, "rank")
    for plan in designs[:2]:
        expected, law = sample_law(draws_law, expected_counts, plan, "iid", n)
        true, mean = covariances(goal, law, "iid", expected, utility)
        np.testing.assert_allclose(mean, true, rtol=0, atol=EXACT)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("pool_name", ["agree", "missed"])
def test_expected_covariance_is_conservative_for_slices(
    tiny, plans, draws_law, expected_counts, pool_name, n
):
    _, utility = tiny(pool_name)
    goal, designs = plans(pool_name, "rank")
    for plan in designs[:2]:
        expected, law = sample_law(draws_law, expected_counts, plan, "slices", n)
        true, mean = covariances(goal, law, "slices", expected, utility)
        assert np.linalg.eigvalsh(mean - true).min() >= -EXACT


def test_hajek_variance_is_close_for_distinct(line_target):
    """Mean of the estimated against the variance seen in 4,000 samples of 25 of 100 cells.

    The ratio has a relative standard error of sqrt(2 / 4000) = 2.2 %; five of them and 4 % for
    Hajek's approximation make 15 %: false alarms below 1e-6, and an error of 25 % is found in all
    but 1e-5 of cases.
    """
    rng = np.random.default_rng(5)
    target = line_target(rng.random((2, 100)))
    goal = goals.pair(target)
    utility = rng.integers(0, 3, 100).astype(float)
    plan = design(goal, flat(target.pool), floor=0.1)
    sampler = SAMPLERS["distinct"]

    @jax.jit
    def replicate(key, q, a, u):
        expected = sampler.expected(q, 25)

        def one(key):
            draws = sampler.draw(key, expected, 25, np.arange(0), None)
            z = terms(a[draws], u[draws], expected[draws])
            together = np.zeros(25, np.int32)
            return z.sum(), sampler.covariance(z, expected[draws], together, 1)[0][0, 0]

        return jax.vmap(one)(jax.random.split(key, 4000))

    with jax.enable_x64(True):
        found = replicate(jax.random.key(0), plan.q, goal.at(np.arange(100)), utility)
    values, estimated = map(np.asarray, found)
    assert estimated.mean() / values.var() == pytest.approx(1, abs=0.15)
    sigma = values.std() / np.sqrt(4000)
    assert abs(values.mean() - truths(goal, utility)[1][0]) < 5 * sigma


@pytest.mark.parametrize("interval", ["cubic", "student"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_single_draw_counts_with_its_square(tiny, plans, sampler, interval):
    """E[z^2] is the variance and the square of the mean: too much rather than too little."""
    _, utility = tiny("agree")
    goal, _ = plans("agree", "absolute")
    sample = Sample(sampler, np.array([1]), np.full(3, 1 / 3))
    found = estimate(goal, [Round(sample, utility[[1]])], interval=interval)
    free = 2 / 3 if sampler == "distinct" else 1.0
    np.testing.assert_allclose(found.std_error, np.sqrt(free) * found.value, rtol=1e-12)
    # Of a utility that may be 4 times that seen, which nobody knows of one draw.
    assert (found.low <= found.value / 3).all()
    assert np.isfinite(found.high).all()
    assert (found.high >= found.value).all()
    assert (found.high > found.value)[found.value > 0].all()
    assert np.isfinite(found.pairs.low_all).all()


@pytest.mark.parametrize("pool_name", UTILITIES)
def test_a_census_is_exact_and_has_no_error(tiny, plans, pool_name):
    target, utility = tiny(pool_name)
    goal, designs = plans(pool_name, "rank")
    for plan in designs:
        if not plan.q.all():
            continue
        sample = draw(jax.random.key(3), plan, len(target.pool))
        found = estimate(goal, [Round(sample, utility[sample.draws])])
        value, contrast = truths(goal, utility)
        np.testing.assert_allclose(found.value, value, rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(found.contrast, contrast, rtol=1e-13, atol=1e-15)
        assert (found.std_error == 0).all()
        assert (found.contrast_std_error == 0).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_identical_systems_differ_by_exactly_nothing(tiny, plans, sampler):
    target, utility = tiny("twins")
    _, designs = plans("twins", "rank")
    goal = goals.contrast(target, np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]]))
    sample = draw(jax.random.key(1), designs[1], 3, sampler=sampler)
    found = estimate(goal, [Round(sample, utility[sample.draws])])
    assert found.contrast[0] == 0
    assert found.contrast_std_error[0] == 0
    assert found.contrast_low[0] == found.contrast_high[0] == 0
    assert found.value[0] == found.value[1]
    twins, other, _ = found.pairs.to_dict()["pairs"]
    assert twins["contrast"] == "a - b"
    assert twins["estimate"] == twins["std_error"] == twins["low"] == twins["high_all"] == 0
    assert twins["decided"] == "no"
    assert other["std_error"] > 0


def test_pairs_agree_with_the_contrasts_of_their_own_goal(tiny, plans):
    target, utility = tiny("missed")
    goal, designs = plans("missed", "rank")
    sample = draw(jax.random.key(1), designs[1], 3, sampler="iid")
    judged = [Round(sample, utility[sample.draws])]
    found, direct = estimate(goal, judged).pairs, estimate(goals.pairs(target), judged)
    np.testing.assert_allclose(found.value, direct.contrast, atol=1e-13)
    np.testing.assert_allclose(found.std_error, direct.contrast_std_error, atol=1e-12)
    np.testing.assert_allclose(found.low, direct.contrast_low, atol=1e-10)
    assert found.names == direct.goal.names


# What is not covered, not judged, or not meant


def test_what_could_not_be_drawn_has_no_estimate(tiny, make_goal):
    target, utility = tiny("agree")
    goal = make_goal(target, "pair")
    sample = draw(jax.random.key(0), design(goal, flat(target.pool), floor=0.0), 4, sampler="iid")
    judged = [Round(sample, utility[sample.draws])]
    found = estimate(goal, judged)
    # Each system has weight 1 on the common document and 1/log2(3) on its own.
    own = 1 / np.log2(3)
    np.testing.assert_allclose(found.covered, own / (1 + own))
    for array in (found.value, found.std_error, found.low, found.high):
        assert np.isnan(array).all()
    assert np.isfinite(found.contrast).all()
    assert np.isfinite(found.pairs.value).all()
    assert found.pairs.value[0] == pytest.approx(found.contrast[0])
    row = json.loads(found.to_json())["systems"][0]
    assert [row[k] for k in ("estimate", "std_error", "low", "high")] == [None] * 4
    assert "not covered" in found.notes[0]
    # A contrast that weighs the common document is left out too.
    absolute = make_goal(target, "absolute")
    assert np.isnan(estimate(absolute, judged).contrast).all()


def test_bounds_reach_from_nothing_to_all_that_could_not_be_drawn(tiny, make_goal):
    target, utility = tiny("agree")
    goal = make_goal(target, "pair")
    sample = draw(jax.random.key(0), design(goal, flat(target.pool), floor=0.0), 4, sampler="iid")
    judged = [Round(sample, utility[sample.draws])]
    with pytest.raises(SupportError, match="utility"):
        estimate(goal, judged, bounds=True)
    # Student's interval looks at the draws alone, so that what the bounds add is seen by itself.
    low, high = (
        estimate(goal, judged, bounds=True, top_utility=top, interval="student")
        for top in (0.0, 5.0)
    )
    assert np.isnan(high.value).all()
    np.testing.assert_array_equal(low.low, high.low)
    np.testing.assert_allclose(high.high - low.high, 5.0)


def test_unjudged_pairs_are_refused(tiny, plans):
    _, utility = tiny("agree")
    goal, _ = plans("agree", "pair")
    sample = Sample("iid", np.array([0, 1, 1]), np.ones(3))
    said = utility[sample.draws]
    said[1:] = np.nan
    with pytest.raises(MissingJudgments, match=r"round 1: 1 of 2 pairs"):
        estimate(goal, [Round(sample, said)])
    with pytest.raises(MissingJudgments):
        estimate(goal, [])


def test_faults_are_told(tiny, plans):
    goal, _ = plans("agree", "pair")
    sample = Sample("iid", np.array([0, 1]), np.ones(3))
    good = Round(sample, np.ones(2))
    with pytest.raises(EvenhandError, match="2 draws and 1 utilities"):
        estimate(goal, [Round(sample, np.ones(1))])
    with pytest.raises(EvenhandError, match="pool of 2"):
        estimate(goal, [Round(Sample("iid", np.array([0, 1]), np.ones(2)), np.ones(2))])
    with pytest.raises(EvenhandError, match="combine"):
        estimate(goal, [good], combine="mean")
    with pytest.raises(EvenhandError, match="level"):
        estimate(goal, [good], level=95)
    with pytest.raises(EvenhandError, match="plan"):
        estimate(goal, [good, Round(sample, np.ones(2), depends_on=("1",))], planned=[2])


def test_nothing_relevant_is_said(plans):
    goal, _ = plans("agree", "pair")
    found = estimate(goal, [Round(Sample("iid", np.array([0, 1]), np.ones(3)), np.zeros(2))])
    assert any("no judged pair" in note for note in found.notes)


def test_judge_reads_judgments_and_leaves_the_rest_unjudged(tiny):
    target, _ = tiny("agree")
    qrels = read_qrels({"q": {"d1": 2, "d3": 1}})
    cells = target.pool.find(["q"] * 3, ["d3", "d1", "d2"])
    judged = judge(target, Sample("iid", cells, np.ones(3)), qrels, depends_on=("x",))
    np.testing.assert_array_equal(judged.utility, [1, 2, np.nan])
    assert judged.depends_on == ("x",)


# Identities


def test_trap_repeats_counted_as_new_judgments(tiny, plans):
    _, utility = tiny("agree")
    goal, _ = plans("agree", "absolute")
    draws = np.array([2, 0, 2, 2])
    found = estimate(goal, [Round(Sample("iid", draws, np.full(3, 4 / 3)), utility[draws])])
    assert (found.n_draws, found.n_judged, found.n_rounds) == (4, 2, 1)
    # Each draw counts as often as drawn, in the estimate and in the degrees of freedom.
    z = goal.at(draws) * utility[draws, None] / (1 / 3)
    np.testing.assert_allclose(found.contrast, z.mean(0))
    np.testing.assert_allclose(found.std_error, z.std(0, ddof=1) / 2)
    np.testing.assert_allclose(found.degrees, 3)


def test_values_are_those_of_scipy_for_one_iid_round(tiny, plans):
    _, utility = tiny("missed")
    goal, designs = plans("missed", "rank")
    sample = draw(jax.random.key(7), designs[1], 12, sampler="iid")
    found = estimate(goal, [Round(sample, utility[sample.draws])], level=0.9, interval="student")
    z = goal.at(sample.draws) * (utility / designs[1].q)[sample.draws, None]
    for i in range(3):
        test = scipy.stats.ttest_1samp(z[:, i], 0.0)
        interval = test.confidence_interval(0.9)
        assert found.contrast[i] == pytest.approx(z[:, i].mean(), rel=1e-12)
        assert found.contrast_low[i] == pytest.approx(interval.low, rel=1e-9)
        assert found.contrast_high[i] == pytest.approx(interval.high, rel=1e-9)
    share = np.sqrt((goal.at(sample.draws) ** 2).sum(1)) / sample.expected[sample.draws]
    assert found.ess == pytest.approx(share.sum() ** 2 / (share**2).sum())
    assert found.max_weight_share == pytest.approx(share.max() / share.sum())


def test_two_fixed_rounds_equal_one_of_their_size(tiny, plans):
    _, utility = tiny("missed")
    goal, designs = plans("missed", "rank")
    q, draws = designs[1].q, np.array([0, 3, 1, 1, 2, 0])
    whole = estimate(goal, [Round(Sample("iid", draws, 6 * q), utility[draws])])
    halves = estimate(
        goal, [Round(Sample("iid", d, 3 * q), utility[d]) for d in (draws[:3], draws[3:])]
    )
    np.testing.assert_allclose(halves.value, whole.value, rtol=1e-13)
    np.testing.assert_allclose(halves.contrast, whole.contrast, atol=1e-13)


def test_scale_of_the_utility_is_that_of_the_estimate(tiny, plans):
    _, utility = tiny("missed")
    goal, designs = plans("missed", "rank")
    sample = draw(jax.random.key(0), designs[1], 3)
    one, ten = (estimate(goal, [Round(sample, s * utility[sample.draws])]) for s in (1, 10))
    for name in ("value", "std_error", "low", "high", "contrast", "contrast_std_error"):
        np.testing.assert_allclose(
            getattr(ten, name), 10 * getattr(one, name), rtol=1e-9, atol=1e-12
        )
    np.testing.assert_allclose(ten.degrees, one.degrees)


def test_names_of_documents_and_order_of_systems_change_nothing():
    runs = {
        "a": {"1": {"x": 3, "y": 2, "z": 1}, "2": {"x": 1}},
        "b": {"1": {"y": 3, "z": 2}, "2": {"w": 2, "x": 1}},
        "c": {"1": {"z": 3}, "2": {"w": 2}},
    }
    grades = {("1", "x"): 1.0, ("1", "y"): 2.0, ("1", "z"): 0.0, ("2", "x"): 3.0, ("2", "w"): 1.0}
    rename = {"x": "p", "y": "c", "z": "a", "w": "b"}
    other = {
        name.upper(): {q: {rename[d]: s for d, s in docs.items()} for q, docs in runs[name].items()}
        for name in ("c", "a", "b")
    }
    asked = [("1", "x"), ("2", "w"), ("1", "z"), ("2", "x"), ("1", "z")]
    said = np.array([grades[pair] for pair in asked])
    found = []
    for source, names in ((runs, {d: d for d in rename}), (other, rename)):
        pooled = pool(read_runs(source))
        goal = goals.rank(targets.target(pooled, "DCG@3"))
        plan = design(goal, rank_utility(pooled))
        cells = pooled.find([q for q, _ in asked], [names[d] for _, d in asked])
        sample = Sample("iid", cells, 5 * plan.q)
        answer = estimate(goal, [Round(sample, said)])
        found.append(
            {
                name.lower(): (
                    answer.value[j],
                    answer.std_error[j],
                    answer.contrast[j],
                    answer.contrast_low[j],
                )
                for j, name in enumerate(goal.target.systems)
            }
        )
    for name in runs:
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-10, atol=1e-13)


# Intervals


def test_welch_degrees_are_those_of_scipy():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=7), 3 * rng.normal(size=12)
    variances = np.array([[first.var(ddof=1) / 7], [second.var(ddof=1) / 12]])
    found = welch(variances, np.array([6, 11]))
    test = scipy.stats.ttest_ind(first, second, equal_var=False)
    assert found[0] == pytest.approx(test.df, rel=1e-12)
    # One round: its own degrees. Nothing varies: the sum.
    assert welch(np.array([[2.0]]), np.array([5.0])).tolist() == [5.0]
    assert welch(np.zeros((2, 1)), np.array([5.0, 3.0])).tolist() == [8.0]


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_student_interval_is_that_of_scipy(level):
    value, error, nu = np.array([1.0, -2.0, 0.0]), np.array([0.5, 3.0, 0.0]), np.array([3, 40.5, 2])
    low, high = student(value, error, nu, level)
    for i in range(2):
        expected = scipy.stats.t.interval(level, nu[i], value[i], error[i])
        np.testing.assert_allclose([low[i], high[i]], expected, rtol=1e-10)
    assert low[2] == high[2] == 0


# How results are shown


@pytest.fixture
def answer(tiny, plans):
    _, utility = tiny("missed")
    goal, designs = plans("missed", "rank")
    sample = draw(jax.random.key(0), designs[1], 6, sampler="iid")
    return estimate(goal, [Round(sample, utility[sample.draws])])


def test_dictionary_follows_the_contract(answer):
    content = answer.to_dict()
    assert list(content)[:11] == [
        "measure",
        "goal",
        "for",
        "level",
        "n_queries",
        "n_rounds",
        "n_draws",
        "n_judged",
        "systems",
        "contrasts",
        "diagnostics",
    ]
    assert (content["measure"], content["goal"], content["for"]) == ("DCG@3", "rank", "queries")
    assert (content["level"], content["n_queries"], content["n_draws"]) == (0.95, 2, 6)
    assert list(content["systems"][0]) == [
        "system",
        "estimate",
        "std_error",
        "low",
        "high",
        "covered",
    ]
    assert list(content["contrasts"][0]) == ["contrast", "estimate", "std_error", "low", "high"]
    assert [row["contrast"] for row in content["contrasts"]] == ["a - mean", "b - mean", "c - mean"]
    assert list(content["diagnostics"]) == ["ess", "max_weight_share"]
    again = json.loads(answer.to_json())
    assert again["systems"][1]["estimate"] == float(answer.value[1])


def test_tables_are_shown_everywhere(answer):
    import pandas

    frame = answer.to_frame()
    assert frame["system"].tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(frame["estimate"], answer.value)
    assert answer.to_frame(1)["contrast"].tolist()[0] == "a - mean"
    table, contrasts = answer.tables()
    assert table.to_latex().count(r"\\") == 4
    assert contrasts.to_latex().startswith("% Contrasts")
    read = pandas.read_csv(io.StringIO(table.to_csv()))
    np.testing.assert_array_equal(read["estimate"], answer.value)
    page = answer._repr_html_()
    assert page.count("<table>") == page.count("</table>") == 2
    assert "a - mean" in page
    assert "a - mean" in str(answer)
    for form in ("table", "json", "csv", "latex"):
        assert "c - mean" in answer.render(form)
    assert "decided" in answer.pairs._repr_html_()
    assert len(answer.pairs.to_frame()) == 3


def test_everything_a_user_holds_is_numpy_in_float64(answer):
    for name in inspect.get_annotations(type(answer)):
        value = getattr(answer, name)
        assert not isinstance(value, jax.Array), name
        if isinstance(value, np.ndarray) and name != "reached":
            assert value.dtype == np.float64, name
