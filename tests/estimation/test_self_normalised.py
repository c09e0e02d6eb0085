"""Self-normalised estimates: by hand, by enumeration, and exact where they must be."""

from __future__ import annotations

import itertools
import json
from math import factorial, prod

import jax
import numpy as np
import pytest
from scipy import stats

from evenhand.cli import main
from evenhand.designs.proposals import design
from evenhand.designs.utilities import flat, rank_utility
from evenhand.errors import EvenhandError, SupportError
from evenhand.estimands import goals, targets
from evenhand.estimands.pools import pool
from evenhand.estimation.importance import estimate
from evenhand.estimation.self_normalised import LEAST, estimate_normalised
from evenhand.formats.runs import read_runs
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import draw
from evenhand.sampling.samples import Sample
from evenhand.study import Study


def one_list(measure: str, documents: int):
    """A query whose documents one system returns in their order."""
    runs = {"a": {"q": {f"d{d}": float(-d) for d in range(documents)}}}
    return goals.absolute(targets.target(pool(read_runs(runs)), measure))


def independent(q: list[float], draws: list[int], utility: np.ndarray) -> Round:
    at = np.array(draws)
    return Round(Sample("iid", at, len(draws) * np.array(q)), utility[at])


def test_by_hand():
    """Two draws of P@4, the first relevant: w / E are 1/4 over .8 and over .4.

    They hold X = .3125 + .625 of 1, of which a third is relevant. D has the terms +-.208333, so
    that -Cov(X, D) = .130208. Of X the draws have shares of 1/3 and 2/3, so that the terms of the
    variance are .208333 / .9375 / (2/3) = 1/3 and -.208333 / .9375 / (1/3) = -2/3, one apart.
    """
    goal = one_list("P@4", 4)
    one = independent([0.4, 0.3, 0.2, 0.1], [0, 2], np.array([1.0, 0.0, 0.0, 1.0]))
    plain = estimate_normalised(goal, [one], correct=False)
    assert plain.value[0] == pytest.approx(1 / 3, abs=1e-15)
    found = estimate_normalised(goal, [one])
    assert found.value[0] == pytest.approx(1 / 3 - 0.130208333, abs=1e-8)
    assert found.std_error[0] == pytest.approx(1.0, abs=1e-12)
    assert found.estimator == "self-normalised"
    assert "not exactly unbiased; bias O(1/n)" in found.notes[0]
    assert "0.13 at most" in found.notes[0]


def every_sample(q: list[float], n: int, utility: np.ndarray):
    """All that n independent draws of three cells may be, each with its chance."""
    for first, second in itertools.product(range(n + 1), repeat=2):
        counts = (first, second, n - first - second)
        if counts[2] >= 0:
            ways = factorial(n) / prod(map(factorial, counts))
            chance = ways * prod(p**c for p, c in zip(q, counts, strict=True))
            yield chance, independent(q, np.repeat(range(3), counts).tolist(), utility)


@pytest.mark.slow
def test_the_bias_falls_like_one_over_n_and_the_correction_takes_it_off():
    """Three cells, all outcomes of 4, 8 and 16 draws."""
    goal, q = one_list("DCG(log='e')@3", 3), [0.5, 0.2, 0.3]
    utility = np.array([0.9, 0.1, 0.6])
    truth = goal.target.values(utility)[0]
    off, left, told, varies = [], [], [], []
    for n in (4, 8, 16):
        chance, rounds = zip(*every_sample(q, n, utility), strict=True)
        plain, fitted = (
            [estimate_normalised(goal, [one], correct=c, top_utility=1.0) for one in rounds]
            for c in (False, True)
        )
        value = np.array([one.value[0] for one in plain])
        off.append(chance @ value - truth)
        left.append(chance @ np.array([one.value[0] for one in fitted]) - truth)
        varies.append(chance @ (value - chance @ value) ** 2)
        told.append(chance @ np.array([one.std_error[0] ** 2 for one in plain]))
    assert 1.6 < off[0] / off[1] < 2.5
    assert 1.6 < off[1] / off[2] < 2.5
    assert (np.abs(left) < 0.5 * np.abs(off)).all()
    assert abs(left[2]) < 0.15 * abs(off[2])
    # Too large rather than too small, and less so as more is drawn.
    ratio = np.array(told) / varies
    assert (ratio > 1).all()
    assert ratio[0] > ratio[1] > ratio[2]
    assert ratio[2] < 1.2


def some_queries(queries: int = 6, seed: int = 3):
    """A pool of three systems, and utilities that fall with rank."""
    rng = np.random.default_rng(seed)
    runs = {
        f"s{j}": {
            f"q{x}": {f"d{d}": -float(r) for r, d in enumerate(rng.permutation(14)[:10])}
            for x in range(queries)
        }
        for j in range(3)
    }
    runs["twin"] = runs["s0"]
    cells = pool(read_runs(runs), depth=10)
    return cells, (rng.random(len(cells)) < 0.6) * 1.0


@pytest.mark.slow
def test_exact_where_it_must_be():
    """For a census; and where all utilities are alike, whatever is drawn."""
    cells, utility = some_queries()
    goal = goals.rank(targets.target(cells, "P@10"))
    every = np.arange(len(cells))
    found = estimate_normalised(
        goal, [Round(Sample("distinct", every, np.ones(len(every))), utility)]
    )
    np.testing.assert_allclose(found.value, goal.target.values(utility), rtol=1e-12)
    assert not found.std_error.any()
    by_query = np.zeros((len(cells.queries), len(cells.systems)))
    np.add.at(by_query, cells.query, goal.target.weights(every) * utility[:, None])
    wide, low = found.for_population(), []
    for column in by_query.T * len(cells.queries):
        low.append(stats.ttest_1samp(column, 0.0).confidence_interval(0.95).low)
    np.testing.assert_allclose(wide.low, low, rtol=1e-9)
    sample = draw(jax.random.key(0), design(goal, rank_utility(cells)), 50)
    alike = np.full(len(cells), 0.7)
    found = estimate_normalised(goal, [Round(sample, alike[sample.draws])])
    np.testing.assert_allclose(found.value, goal.target.values(alike), rtol=1e-12)
    assert (found.std_error < 1e-12).all()
    importance = estimate(goal, [Round(sample, alike[sample.draws])])
    assert (importance.std_error > 0.01).all()
    one = estimate_normalised(goal, [Round(sample, utility[sample.draws])])
    twins = one.pairs.names.index("s0 - twin")
    assert one.pairs.value[twins] == one.pairs.low[twins] == one.pairs.high[twins] == 0


@pytest.mark.slow
def test_rounds_are_put_together_by_weights_fixed_in_advance():
    """Two rounds, the second of which knows the first: sums by their definition, in loops."""
    cells, utility = some_queries(3)
    goal = goals.absolute(targets.target(cells, "P@10"))
    plan = design(goal, flat(cells))
    first = draw(jax.random.key(1), plan, 20, folds=1)
    known = np.full(len(cells), np.nan)
    known[first.draws] = utility[first.draws]
    rest = draw(jax.random.key(2), plan, 30, folds=1)
    chance = np.where(np.isfinite(known), 0.0, rest.expected)
    later = rest.draws[np.isnan(known[rest.draws])]
    rounds = [
        Round(first, utility[first.draws], name="1"),
        Round(Sample("distinct", later, chance), utility[later], ("1",), "2", known=known),
    ]
    found = estimate_normalised(goal, rounds, planned=[20, 30], correct=False)
    omega = np.array([20.0, 30 * np.sqrt(2)])
    omega /= omega.sum()
    for j in range(len(cells.systems)):
        total = 0.0
        for x in range(3):
            top = bottom = whole = 0.0
            for c in np.flatnonzero(cells.query == x):
                w = goal.target.weights(np.array([c]))[0, j]
                whole += w
                hit = omega[0] * (c in first.draws) / first.expected[c]
                if np.isfinite(known[c]):
                    hit += omega[1]
                elif c in later:
                    hit += omega[1] / chance[c]
                top, bottom = top + w * hit * utility[c], bottom + w * hit
            total += whole * top / bottom
        assert found.value[j] == pytest.approx(total, abs=1e-12)


def test_lists_without_enough_draws():
    """One list of forty has a draw, another none; both take the mean of their system's others."""
    runs = {"a": {f"q{x}": {f"d{d}": -float(d) for d in range(2)} for x in range(40)}}
    cells = pool(read_runs(runs))
    goal = goals.absolute(targets.target(cells, "P@2"))
    utility = (cells.query % 2 == 0) * 1.0
    drawn = np.flatnonzero((cells.query > 1) | ((cells.query == 1) & (cells.document == 0)))
    one = Round(Sample("distinct", drawn, np.full(len(cells), 0.9)), utility[drawn])
    found = estimate_normalised(goal, [one])
    assert found.value[0] == pytest.approx(0.5, abs=1e-12)
    assert f"2 of 40 lists have fewer than {LEAST} draws" in found.notes[1]
    few = drawn[cells.query[drawn] > 8]
    with pytest.raises(EvenhandError, match=r"hold up to 22\.5% of the weight of a, more than 20"):
        estimate_normalised(
            goal, [Round(Sample("distinct", few, one.sample.expected), utility[few])]
        )


def test_intervals_cover():
    """120 studies of 60 draws of 84 pairs: a coverage of .95 is below .88 with a chance of 1e-3."""
    cells, utility = some_queries()
    goal = goals.pair(targets.target(cells, "P@10"), "s0", "s1")
    truth = goal.target.values(utility)
    aim = goal.matrix @ truth
    plan, inside, of_contrasts, value = (
        design(goals.absolute(goal.target), flat(cells)),
        [],
        [],
        [],
    )
    for key in range(120):
        sample = draw(jax.random.key(key), plan, 60)
        found = estimate_normalised(goal, [Round(sample, utility[sample.draws])])
        inside.append((found.low <= truth) & (truth <= found.high))
        of_contrasts.append((found.contrast_low <= aim) & (aim <= found.contrast_high))
        value.append(found.value)
    assert np.mean(inside) > 0.88
    assert np.mean(of_contrasts) > 0.88
    # The mean is known to 1/11 of the deviation.
    assert (np.abs(np.mean(value, 0) - truth) < 0.35 * np.std(value, 0)).all()


def test_what_is_refused():
    cells, utility = some_queries()
    goal = goals.rank(targets.target(cells, "DCG@10"))
    every = np.arange(len(cells))
    one = Round(Sample("distinct", every, np.ones(len(every))), utility)
    with pytest.raises(SupportError, match="bounded utilities"):
        estimate_normalised(goal, [one])
    assert estimate_normalised(goal, [one], top_utility=1.0).std_error.max() == 0
    precision = goals.rank(targets.target(cells, "P@10"))
    with pytest.raises(SupportError, match="betting"):
        estimate_normalised(precision, [one], interval="betting")
    # A pair that no round could draw.
    part = Sample("distinct", every[1:], np.where(every == 0, 0.0, 1.0))
    found = estimate_normalised(precision, [Round(part, utility[1:])])
    returns = precision.target.weights(np.array([0]))[0] > 0
    assert (np.isnan(found.value) == returns).all()
    assert found.covered[returns] == pytest.approx(1 - 1 / 60)


def test_a_study(tmp_path, capsys):
    cells, utility = some_queries()
    queries, documents = cells.names(np.arange(len(cells)))
    runs: dict[str, dict[str, dict[str, float]]] = {name: {} for name in cells.systems}
    for j, c, rank in zip(cells.system, cells.cell, cells.rank, strict=True):
        runs[cells.systems[j]].setdefault(queries[c], {})[documents[c]] = float(-rank)
    qrels: dict[str, dict[str, int]] = {}
    for query, document, u in zip(queries, documents, utility, strict=True):
        qrels.setdefault(query, {})[document] = int(u)
    study = Study.create(tmp_path / "s", runs, measure="P@10", goal="rank")
    study.draw(60, seed=1)
    study.judge(qrels)
    found = study.estimate(estimator="self-normalised")
    assert found.estimator == "self-normalised"
    with pytest.raises(EvenhandError, match="have no bounds"):
        study.estimate(estimator="self-normalised", bounds=True)
    command = [
        "estimate",
        str(tmp_path / "s"),
        "--estimator",
        "self-normalised",
        "--format",
        "json",
    ]
    main(command, standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert told["estimator"] == "self-normalised"
    assert [row["estimate"] for row in told["systems"]] == pytest.approx(found.value.tolist())
    assert "not exactly unbiased" in told["notes"][0]
