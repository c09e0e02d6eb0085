"""Intervals and p-values of contrasts, each alone and all together."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
import scipy.stats

import evenhand as eh
from evenhand.errors import EvenhandError
from evenhand.estimands import goals
from evenhand.formats.runs import read_runs
from evenhand.intervals.intervals import INTERVALS
from evenhand.intervals.simultaneous import Joint, p_alone


def joint(factor: np.ndarray, nu: float) -> Joint:
    return Joint.of(factor, np.full(len(factor), nu))


def test_one_contrast_is_students():
    for nu in (4.0, 30.0):
        # A contrast that cannot vary does not count.
        for factor in ([[3.0]], [[3.0], [0.0]]):
            found = joint(np.array(factor), nu)
            assert found.multiplier(0.95) == pytest.approx(scipy.stats.t.ppf(0.975, nu))
            t = np.array([0.0, 1.0, 3.0, np.inf])
            np.testing.assert_allclose(found.p_value(t), 2 * scipy.stats.t.sf(t, nu), rtol=1e-10)


@pytest.mark.parametrize("m", [2, 10])
def test_independent_contrasts_are_sidaks(m):
    found = joint(np.diag(np.arange(1.0, m + 1)), 1e6)
    sidak = scipy.stats.norm.ppf((1 + 0.95 ** (1 / m)) / 2)
    assert found.multiplier(0.95) == pytest.approx(sidak, abs=0.03)
    t = np.array([1.5, 2.0, 2.5])
    # 20,000 simulated maxima: four standard errors.
    wanted = 1 - (1 - 2 * scipy.stats.norm.sf(t)) ** m
    np.testing.assert_allclose(found.p_value(t), wanted, atol=4 * 0.5 / np.sqrt(20_000))


def test_several_cost_between_one_and_bonferroni():
    rng = np.random.default_rng(2)
    t = np.linspace(0, 12, 40)
    for m, rank, nu in ((3, 1, 5.0), (10, 10, 9.0)):
        found = joint(rng.normal(size=(m, rank)), nu)
        multiplier, alone = found.multiplier(0.9), scipy.stats.t.ppf(0.95, nu)
        assert alone - 1e-12 <= multiplier <= scipy.stats.t.ppf(1 - 0.05 / m, nu) + 1e-12
        p, one = found.p_value(t), 2 * scipy.stats.t.sf(t, nu)
        assert (p >= one).all()
        assert (p <= np.minimum(m * one, 1)).all()
        if rank == 1:  # All one contrast: no price for several.
            assert multiplier == pytest.approx(alone, abs=0.03)
            np.testing.assert_allclose(p, one, atol=0.015)
        # A p-value is below .1 where the interval of 90 % leaves out 0.
        np.testing.assert_array_equal(p[t != multiplier] < 0.1, t[t != multiplier] > multiplier)
    assert np.isnan(found.p_value(np.array([np.nan, 1.0]))).tolist() == [True, False]


@pytest.fixture
def answer():
    """Six systems, of which two are twins, and one only returns what nobody judged relevant."""
    rng = np.random.default_rng(0)
    runs = {
        f"s{j}": {f"q{q}": {f"d{d}": float(rng.random()) for d in range(30)} for q in range(8)}
        for j in range(4)
    }
    runs["twin"] = runs["s0"]
    runs["bad"] = {
        q: {f"z{i}": s for i, s in enumerate(docs.values())} for q, docs in runs["s1"].items()
    }
    qrels = {
        f"q{q}": {f"d{d}": int(d % 4 == 0) for d in range(30)} | {f"z{d}": 0 for d in range(30)}
        for q in range(8)
    }
    target = eh.target(eh.pool(read_runs(runs), depth=10), "DCG@10")
    goal = eh.rank(target)
    sample = eh.draw(jax.random.key(1), eh.design(goal, eh.rank_utility(target.pool)), 120)
    judged = eh.judge(target, sample, eh.read_qrels(qrels))
    predicted = [eh.Control(np.full(len(target.pool), 0.2))]

    def estimated(**options):
        foresees = options.get("interval") == "moderated"
        return eh.estimate(goal, [judged], **options, controls=predicted if foresees else None)

    return estimated


@pytest.mark.slow
@pytest.mark.parametrize("question", ["queries", "population"])
@pytest.mark.parametrize("interval", [n for n, one in INTERVALS.items() if not one.bets])
def test_p_values_agree_with_intervals(answer, interval, question):
    found = answer(interval=interval)
    found = found.for_population() if question == "population" else found
    p = dict(zip(found.pairs.names, found.pairs.p, strict=True))
    assert ((found.pairs.p > 1e-6) & (found.pairs.p < 0.9)).any()
    for name, one in p.items():
        if not 1e-9 < one < 1 - 1e-9:
            continue
        # The interval at level 1 - p just touches 0.
        at = answer(interval=interval, level=1 - one)
        at = (at.for_population() if question == "population" else at).pairs
        i = at.names.index(name)
        near = min(abs(at.low[i]), abs(at.high[i]))
        assert near == pytest.approx(0, abs=1e-6 * (at.high[i] - at.low[i]))


def test_students_are_those_of_the_t_test(answer):
    found = answer(interval="student")
    shown = found.pairs
    moments = found.evidence.moments(goals.pairs(found.goal.target).matrix, shown.value)
    some = shown.std_error > 0
    t = np.abs(shown.value[some]) / shown.std_error[some]
    wanted = np.maximum(2 * scipy.stats.t.sf(t, moments.degrees[some]), 2 * scipy.stats.norm.sf(8))
    np.testing.assert_allclose(shown.p[some], wanted, rtol=1e-6)


def test_twins_differ_by_nothing(answer):
    shown = answer().pairs
    i = shown.names.index("s0 - twin")
    assert shown.value[i] == shown.std_error[i] == shown.low[i] == shown.high[i] == 0
    assert shown.p[i] == shown.p_all[i] == 1
    assert not shown.decided[i]


def test_no_p_value_is_shown_as_nothing(answer):
    found = answer()
    shown = replace(found.pairs, p=np.full_like(found.pairs.p, 3e-6))
    (table,) = shown.tables()
    at = list(table.columns).index("p")
    assert {row[at] for row in table.rows()} == {"<0.0001"}
    assert "<0.0001" in shown.render()
    assert {row["p"] for row in shown.to_dict()["pairs"]} == {3e-6}
    assert "3e-06" in shown.render("csv")
    assert "<" not in shown.render("csv")


@pytest.mark.slow
def test_against_one_and_against_the_mean(answer):
    found = answer()
    shown, pairs = found.against("s1"), found.pairs
    assert shown.names == tuple(f"{s} - s1" for s in ("s0", "s2", "s3", "twin", "bad"))
    for name, value, low, p in zip(shown.names, shown.value, shown.low, shown.p, strict=True):
        other = name.split(" - ")[0]
        if f"{other} - s1" in pairs.names:
            i, sign = pairs.names.index(f"{other} - s1"), 1
        else:
            i, sign = pairs.names.index(f"s1 - {other}"), -1
        assert value == pytest.approx(sign * pairs.value[i])
        assert low == pytest.approx(pairs.low[i] if sign > 0 else -pairs.high[i])
        assert p == pytest.approx(pairs.p[i])
    # Fewer comparisons cost less.
    assert shown.multiplier < pairs.multiplier
    mean = found.against()
    np.testing.assert_allclose(mean.value, found.value - found.value.mean(), atol=1e-12)
    with pytest.raises(EvenhandError, match="there is no system named 's9'"):
        found.against("s9")


def test_adjusted_values_are_never_below_the_others(answer):
    for shown in (answer().pairs, answer().against("s1"), answer().against()):
        assert (shown.p_all >= shown.p).all()
        assert ((shown.p_all < 0.05) <= shown.decided).all()


def test_a_contrast_that_cannot_be_told_spoils_no_other():
    value = np.array([1.0, np.nan, 0.0])

    def limits(level):
        half = scipy.stats.norm.ppf(0.5 + level / 2)
        return value - half, value + half

    p = p_alone(limits, value)
    np.testing.assert_allclose(p[[0, 2]], [2 * scipy.stats.norm.sf(1), 1], rtol=1e-6)
    assert np.isnan(p[1])


@pytest.mark.slow
def test_all_null_hypotheses_together_are_rejected_as_often_as_said():
    # 2,000 studies of 5 independent normal contrasts: a share of .05 has a standard error of .005;
    # the test is alarmed without cause once in 15,000, and finds .07 instead of .05 nearly always.
    rng, together = np.random.default_rng(0), joint(np.eye(5), 1e9)
    least = together.p_value(np.abs(rng.normal(size=(2000, 5)))).min(1)
    assert abs((least < 0.05).mean() - 0.05) < 4 * 0.005


def test_all_together_within_what_can_be(line_target):
    """Two draws know next to nothing; that a value lies between 0 and its weights they know."""
    weights = np.array([[1.0, 1, 1, 0, 0], [0.0, 1, 1, 1, 0], [0.0, 0, 1, 1, 1]])
    target = line_target(weights)
    sample = eh.Sample("distinct", np.array([0, 3]), np.full(5, 0.4))
    goal = eh.rank(target)
    found = eh.estimate(goal, [eh.Round(sample, np.array([0.3, 0.0]))], top_utility=1.0).pairs
    first, second = np.triu_indices(3, 1)
    apart = weights[first] - weights[second]
    assert (found.low_all >= np.minimum(apart, 0).sum(1) - 1e-12).all()
    assert (found.high_all <= np.maximum(apart, 0).sum(1) + 1e-12).all()
    assert (found.low_all <= found.low).all()
    assert (found.high_all >= found.high).all()
