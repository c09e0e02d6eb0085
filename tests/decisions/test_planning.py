"""Judgments still needed: forecasts against what studies then come to."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.stats

from evenhand.decisions.planning import forecast, plan
from evenhand.decisions.ranks import ranking
from evenhand.designs.proposals import design
from evenhand.designs.utilities import flat, rank_utility
from evenhand.errors import EvenhandError
from evenhand.estimands import goals
from evenhand.estimation.importance import estimate
from evenhand.reports.gather import gather
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import draw
from evenhand.study import Study

AB = ("a", 2), ("b", 3)


@pytest.fixture(scope="module")
def told(line_target):
    """A goal of three systems over 300 cells, and utilities of which a fifth are 1."""
    rng = np.random.default_rng(0)
    target = line_target(rng.gamma(0.5, size=(3, 300)))
    return goals.rank(target), (rng.random(300) < 0.2).astype(float)


def sampled(goal, utility, n, key=0, **about):
    made = design(goal, about.pop("by", flat(goal.target.pool)))
    sample = draw(jax.random.key(key), made, n, folds=1)
    return Round(sample, utility[sample.draws], **about)


@pytest.mark.slow
def test_a_forecast_of_a_first_round_is_its_variance(told):
    # With s = E[u^2] the variance of Poisson sampling; that of a fixed size is a few percent less.
    goal, utility = told
    made = design(goal, flat(goal.target.pool))
    found = forecast(made, np.full(300, utility.mean()))
    for n in (40, 120):
        values = [estimate(goal, [sampled(goal, utility, n, key)]).contrast for key in range(300)]
        seen = np.var(values, axis=0)
        # 150 samples know a variance to 12 %; the mean of three to about 6 %.
        assert found.variance(n).sum() == pytest.approx(seen.sum(), rel=0.25)
    assert found.most == 300
    assert found.variance(300) == pytest.approx(0, abs=1e-12)
    assert (np.diff([found.variance(n).sum() for n in range(1, 301, 10)]) < 0).all()


def test_a_forecast_after_a_round_is_calibrated(told):
    goal, utility = told
    one = sampled(goal, utility, 60, name="1")
    so_far = estimate(goal, [one])
    # The guess is wrong by a factor of 5: what the first round came to sets it right.
    made = design(goal, flat(goal.target.pool))
    found = forecast(
        made, np.ones(300), estimate=so_far, rounds=[one], weights=np.array([0.3, 0.7])
    )
    seen = np.diag(so_far.contrast_covariance)
    np.testing.assert_allclose(found.so_far, 0.09 * seen, rtol=1e-12)
    again = forecast(
        made, np.ones(300), estimate=so_far, rounds=[one], weights=np.array([0.0, 1.0])
    )
    assert again.variance(60).sum() == pytest.approx(seen.sum(), rel=1e-9)


def test_the_least_number_that_meets_an_aim(told):
    goal, _ = told
    found = forecast(design(goal, flat(goal.target.pool)), np.full(300, 0.2))
    z = 1.959963984540054

    def width(n):
        return z * np.sqrt(found.variance(n)).mean()

    wanted = width(77) * (1 + 1e-12)
    answer = plan(found, half_width=wanted)
    assert answer.needed == 77
    assert answer.columns["judgments"] == [19, 38, 77, 154, 300]
    assert answer.columns["half_width"][2] == pytest.approx(wanted)
    assert answer.floor == pytest.approx(0, abs=1e-9)
    assert "nothing is judged yet" in answer.notes[0]
    assert plan(found, half_width=wanted * (1 - 1e-9)).needed == 78
    assert plan(found, half_width=1e6).needed == 1
    text = str(answer)
    assert "77 more judgments" in text
    assert answer.to_dict()["rows"][2]["judgments"] == 77

    # Power: 80 % for an effect of 2.8 standard errors of a difference.
    sd = np.sqrt(2 * found.variance(77).sum() / 2)
    answer = plan(found, power=0.8, effect=(z + 0.8416212335729143) * sd)
    assert answer.needed == 77
    assert answer.columns["power"][2] == pytest.approx(0.8, abs=1e-6)

    with pytest.raises(EvenhandError, match="there is no leader"):
        plan(found, winner=0.9)


def test_the_winner(told):
    goal, utility = told
    one = sampled(goal, utility, 60, by=rank_utility(goal.target.pool), name="1")
    so_far = estimate(goal, [one])
    found = forecast(
        design(goal, flat(goal.target.pool)),
        np.full(300, 0.2),
        estimate=so_far,
        rounds=[one],
        weights=np.array([0.05, 0.95]),
    )
    answer = plan(found, winner=0.95)
    best = answer.columns["best"]
    assert (np.diff(best) >= -0.01).all()
    if answer.needed is not None:
        assert best[answer.columns["judgments"].index(answer.needed)] >= 0.95
    certain = plan(found, winner=0.34)
    assert certain.needed == 1


def test_what_rounds_keep_and_what_queries_add_is_a_floor(told):
    goal, utility = told
    one = sampled(goal, utility, 60, name="1")
    so_far = estimate(goal, [one])
    about = {"estimate": so_far, "rounds": [one], "weights": np.array([0.4, 0.6])}
    made = design(goal, flat(goal.target.pool))
    answer = plan(forecast(made, np.full(300, 0.2), **about), half_width=1e-6)
    assert answer.needed is None
    assert "cannot be reached" in str(answer)
    assert "a weight of 40%" in answer.notes[0]
    want = 1.959963984540054 * 0.4 * np.sqrt(np.diag(so_far.contrast_covariance)).mean()
    assert answer.floor == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(
    ("aims", "message"),
    [
        ({}, "one aim"),
        ({"half_width": 1.0, "winner": 0.9}, "one aim"),
        ({"power": 0.8}, "one aim"),
        ({"effect": 0.8}, "one aim"),
        ({"half_width": -1.0}, "half-width must lie between 0 and inf, got -1"),
        ({"power": 1.5, "effect": 1.0}, "power must lie between 0 and 1, got 1.5"),
        ({"half_width": 1.0, "level": 2.0}, "level must lie"),
    ],
)
def test_aims_that_cannot_be(told, aims, message):
    goal, _ = told
    found = forecast(design(goal, flat(goal.target.pool)), np.full(300, 0.2))
    with pytest.raises(EvenhandError, match=message):
        plan(found, **aims)


@pytest.mark.slow
def test_what_queries_cost(made_target):
    target, utility = made_target(0)
    goal, pool = goals.rank(target), target.pool
    made = design(goal, rank_utility(pool))
    found = forecast(made, rank_utility(pool).second_moment)
    for n in (5, 20):
        seen = [
            len(np.unique(pool.query[draw(jax.random.key(key), made, n, folds=1).draws]))
            for key in range(200)
        ]
        # A sample of fixed size differs a little from independent draws of its cells.
        assert found.opens(n) == pytest.approx(np.mean(seen), rel=0.05)
    told = plan(found, half_width=0.3, query_cost=10.0, judgment_cost=2.0)
    shown = told.columns
    for n, queries, cost in zip(shown["judgments"], shown["queries"], shown["cost"], strict=True):
        assert cost == pytest.approx(2 * n + 10 * queries)
    assert "cost" not in plan(found, half_width=0.3).columns
    # A query that was opened costs nothing more.
    first = draw(jax.random.key(0), made, 30, folds=1)
    judged = Round(first, utility[first.draws])
    again = forecast(
        made, rank_utility(pool).second_moment, estimate=estimate(goal, [judged]), rounds=[judged]
    )
    opened = np.unique(pool.query[first.draws])
    assert again.opened.sum() == len(opened)
    assert again.opens(40) <= len(pool.queries) - len(opened)
    with pytest.raises(EvenhandError, match="a judgment must cost something"):
        plan(found, half_width=0.3, judgment_cost=0.0)


def test_systems_that_return_the_same_need_no_power(line_target):
    """A twin of the baseline never differs, and says nothing of the others."""
    rng = np.random.default_rng(0)
    weights = rng.gamma(0.5, size=(3, 60))
    needed = []
    for rows in (weights, np.concatenate([weights, weights[:1]])):
        goal = goals.baseline(line_target(rows), "s0")
        found = forecast(design(goal, flat(goal.target.pool)), np.full(60, 0.2))
        needed.append(plan(found, power=0.8, effect=1.0))
    assert 1 < needed[0].needed < 60
    # The design is another with a system more, but nearly as good.
    assert needed[1].needed == pytest.approx(needed[0].needed, abs=2)


def test_pairs_are_differences_already(told):
    goal, _ = told
    power = {}
    for of in (goal, goals.pairs(goal.target)):
        found = forecast(design(of, flat(goal.target.pool)), np.full(300, 0.2))
        power[of.kind] = plan(found, power=0.8, effect=3.0).needed
    # Three variances that hardly differ, for each its own or for all their mean.
    assert power["pairs"] == pytest.approx(power["rank"], rel=0.1)


def test_queries_like_these_have_their_own_quantile(made_target):
    """As `estimate` has it: with few queries Student's is far above the normal one."""
    target, utility = made_target(0)
    goal = goals.rank(target)
    made = design(goal, rank_utility(target.pool))
    sample = draw(jax.random.key(1), made, 300, folds=1)
    one = Round(sample, utility[sample.draws], name="1")
    so_far = estimate(goal, [one])
    about = {"estimate": so_far, "rounds": [one], "weights": np.array([0.0, 1.0])}
    found = forecast(made, np.full(len(utility), 0.2), population=True, **about)
    t = scipy.stats.t.ppf(0.975, len(target.pool.queries) - 1)
    want = t * np.sqrt(np.diag(so_far.contrast_between)).mean()
    answer = plan(found, half_width=want / 2)
    assert answer.needed is None
    assert answer.floor == pytest.approx(want, rel=1e-6)
    assert f"a half-width of {want:.4g} comes from the choice of queries" in answer.notes[0]
    seen = so_far.for_population()
    enough = (seen.contrast_high - seen.contrast_low).mean() / 2
    assert plan(found, half_width=enough).needed == 0


def test_nobody_is_foreseen_to_win_of_whom_nothing_is_known(told):
    goal, _ = told
    one = sampled(goal, np.zeros(300), 60, name="1")
    so_far = estimate(goal, [one])
    about = {"estimate": so_far, "rounds": [one], "weights": np.array([0.3, 0.7])}
    found = forecast(design(goal, flat(goal.target.pool)), np.full(300, 0.2), **about)
    with pytest.raises(EvenhandError, match="draws say nothing yet of s0, s1, s2"):
        plan(found, winner=0.9)
    assert np.isnan(plan(found, half_width=1e-3).columns["best"]).all()
    assert np.isnan(ranking(so_far).best).all()
    assert "nobody knows the chances to be the best" in ranking(so_far).notes[0]


def test_a_study_says_where_no_round_can_follow(tmp_path):
    runs = {name: {"q": {f"d{i}": float(i * step % 7) for i in range(6)}} for name, step in AB}
    study = Study.create(tmp_path / "s", runs, measure="P@3", plan=[4])
    with pytest.raises(EvenhandError, match="one query says nothing of other queries"):
        study.plan(half_width=0.1, question="population")
    assert study.plan(half_width=0.1).needed is not None
    study.draw(4, seed=1)
    study.judge({"q": {f"d{i}": i % 2 for i in range(6)}})
    with pytest.raises(EvenhandError, match="names 1 rounds, and all are drawn"):
        study.plan(half_width=0.1)
    told = gather(study._snapshot(), study.store.read()).conclusion
    assert told.needed is None
    assert any("would decide is not known: the study's plan" in one for one in told.remarks)


def test_a_top_up_is_no_round_of_the_plan(tmp_path):
    runs = {name: {"q": {f"d{i}": float(i * step % 7) for i in range(6)}} for name, step in AB}
    study = Study.create(tmp_path / "s", runs, measure="P@3", plan=[4, 2])
    qrels = {"q": {f"{x}{i}": i % 2 for i in range(6) for x in "de"}}
    study.draw(4, seed=1)
    study.judge(qrels)
    study.add({"late": {"q": {f"e{i}": float(i) for i in range(4)}}})
    study.draw(2, seed=2, top_up=True)
    study.judge(qrels)
    assert study.plan(half_width=0.1).columns["judgments"]
