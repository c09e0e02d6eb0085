"""Bounds of ratios: the truth lies within for every utility of what could not be drawn."""

from __future__ import annotations

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest

from evenhand.designs.proposals import design
from evenhand.designs.utilities import rank_utility
from evenhand.errors import SupportError
from evenhand.estimands import goals, targets
from evenhand.estimands.pools import pool
from evenhand.formats.runs import read_runs
from evenhand.measures.grammar import sampled
from evenhand.nonlinear.completions import best, worst
from evenhand.nonlinear.design_goals import expected_goal, guessed
from evenhand.nonlinear.gradients import Levels, gradient
from evenhand.nonlinear.ratios import estimate_ratio
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import draw
from evenhand.sampling.samples import Sample
from evenhand.study import Study

GRADED = "nDCG(gains={0:0,1:1,2:3})@3"
LISTS = {
    "early": {"q": "abcde", "r": "fgh"},
    "late": {"q": "xbyca", "r": "zfw"},
    "other": {"q": "dxaez", "r": "hg"},
}
KNOWN = {"q": dict(zip("abcde", (1, 0, 1, 1, 0), strict=True)), "r": {"f": 1, "g": 0, "h": 0}}


def by_hand(name: str, ranked: list[float], every: list[float], k: int) -> float:
    """A ratio of one list by its definition, from the utilities of its ranks and of all pairs."""
    number = sum(every)
    if number <= 0:
        return 0.0
    if name == "nDCG":
        ideal = sorted(every, reverse=True)[:k]
        return _gain(ranked[:k]) / _gain(ideal)
    if name == "AP":
        here = ranked[:k]
        return sum(u * (1 + sum(here[:r])) / (r + 1) for r, u in enumerate(here)) / number
    if name == "Rprec":
        assert number == int(number)
        return sum(ranked[: int(number)]) / number
    return sum(ranked[:k]) / number


def _gain(utilities: list[float]) -> float:
    return sum(u / np.log2(r + 2) for r, u in enumerate(utilities))


def studied(name: str, known: dict[str, dict[str, int]]):
    """A census of what is known; x, y, z and w could not be drawn."""
    lists = {
        system: {query: {d: -float(r) for r, d in enumerate(row)} for query, row in rows.items()}
        for system, rows in LISTS.items()
    }
    cells = pool(read_runs(lists))
    goal = goals.absolute(targets.target(cells, name))
    queries, documents = cells.names(np.arange(len(cells)))
    names = list(zip(queries, documents, strict=True))
    grade = np.array([known[q].get(d, np.nan) for q, d in names])
    utility = goal.target.measure.utility(np.nan_to_num(grade))
    drawn = np.flatnonzero(~np.isnan(grade))
    sample = Sample("distinct", drawn, np.where(np.isnan(grade), 0.0, 1.0))
    return goal, names, utility, [Round(sample, utility[drawn])]


NOTHING = {"q": dict.fromkeys("abcde", 0), "r": {"f": 0, "g": 1, "h": 0}}


@pytest.mark.parametrize(
    ("name", "known"),
    [(name, KNOWN) for name in ("nDCG@3", GRADED, "AP@4", "R@2", "Rprec")] + [("AP@4", NOTHING)],
)
def test_the_truth_lies_within_and_ends_are_attained(name, known):
    """All 2^4 (or 4^4, by thirds of the top) ways that four pairs of two queries may turn out."""
    known = {q: dict(rows) for q, rows in known.items()}
    if name == GRADED:
        known["q"]["c"] = 2 * known["q"]["c"]
    goal, names, utility, rounds = studied(name, known)
    top = goal.target.measure.top_utility or 1.0
    found = estimate_ratio(goal, rounds, bounds=True, top_utility=top)
    left = [c for c, (q, d) in enumerate(names) if d not in known[q]]
    if name == "nDCG@3":
        with pytest.raises(SupportError, match="bounds need the largest utility"):
            estimate_ratio(goal, rounds, bounds=True)
    # Between the levels, too: R-precision knows relevant and not.
    steps = 1 if name == "Rprec" else 3
    kind, k = name.split("(")[0].split("@")[0], goal.target.measure.cutoff or 0
    values = []
    for way in itertools.product(np.arange(steps + 1) / steps * top, repeat=len(left)):
        u = utility.copy()
        u[left] = way
        said = dict(zip(names, u, strict=True))
        values.append(
            [
                np.mean(
                    [
                        by_hand(
                            kind,
                            [said[q, d] for d in LISTS[system].get(q, "")],
                            [v for (other, _), v in said.items() if other == q],
                            k,
                        )
                        for q in ("q", "r")
                    ]
                )
                for system in goal.target.systems
            ]
        )
    low, high = np.min(values, axis=0), np.max(values, axis=0)
    np.testing.assert_allclose(found.low, low, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.high, high, rtol=0, atol=1e-12)
    assert (low < high).any()


@pytest.mark.parametrize("name", ["nDCG@3", GRADED, "AP@4", "R@2", "Rprec"])
def test_ends_of_many_worlds(name):
    """40 pools of one query with four open pairs; their graded best is often between levels."""
    rng = np.random.default_rng(6)
    measure, between = sampled(name), 0
    top = measure.top_utility or 1.0
    gain = np.array([1.0, 3.0]) if name == GRADED else np.ones(1)
    kind, k = name.split("(")[0].split("@")[0], measure.cutoff or 0
    for _ in range(40):
        rows = [rng.permutation(9) for _ in range(3)]
        cells = pool(read_runs({f"s{j}": {"q": ordered(row)} for j, row in enumerate(rows)}))
        known = rng.choice([0.0, *gain], 5)
        levels = Levels(gain, (np.append(known, [0.0] * 4)[:, None] >= gain) * 1.0)
        left = np.arange(9) >= 5
        ways = np.array(list(itertools.product([0.0, *gain], repeat=4)))
        utility = np.concatenate([np.tile(known, (len(ways), 1)), ways], axis=1)
        values = np.array(
            [[by_hand(kind, list(u[row]), list(u), k) for row in rows] for u in utility]
        )
        for end, want in ((worst, values.min(0)), (best, values.max(0))):
            made = end(cells, measure, levels, left)
            found = gradient(cells, measure, made).by_query[:, 0]
            np.testing.assert_allclose(found, want, rtol=0, atol=1e-12)
        extreme = np.isin(ways, [0.0, top]).all(1)
        between += int(np.sum(values[extreme].max(0) < values.max(0) - 1e-9))
    assert (between > 0) == (name == GRADED)


def ordered(row: np.ndarray) -> dict[str, float]:
    """A list of documents by their numbers."""
    return {f"d{d}": -float(r) for r, d in enumerate(row)}


@pytest.mark.slow
def test_what_was_seen_of_the_rest_is_estimated():
    """30 studies in which a late system's own documents cannot be drawn.

    The truth is that a third of them are relevant. Bounds of 95 % that err outwards hold more often
    than that; fewer than 25 in 30 would be seen in one of 300 runs. The early systems, which could
    be drawn, are bounded too, since what they are divided by is not known.
    """
    rng = np.random.default_rng(7)
    hidden = rng.normal(size=(8, 40))
    runs: dict[str, dict[str, dict[str, float]]] = {}
    for j in range(3):
        score = hidden + 0.5 * rng.normal(size=hidden.shape)
        some = np.arange(40) < 34 if j < 2 else np.arange(40) >= 10
        runs[f"s{j}"] = {
            f"q{x}": {f"d{d}": score[x, d] for d in np.argsort(-score[x]) if some[d]}
            for x in range(8)
        }
    cells = pool(read_runs(runs))
    document = np.array([int(name[1:]) for name in cells.names(np.arange(len(cells)))[1]])
    chance = 1 / (1 + np.exp(-1.5 * (hidden[cells.query, document] - 0.7)))
    utility = (rng.random(len(cells)) < chance) * 1.0
    utility[document >= 34] = document[document >= 34] % 3 == 0
    goal = goals.absolute(targets.target(cells, "nDCG@5"))
    truth = gradient(cells, goal.target.measure, Levels(np.ones(1), utility[:, None])).value
    plan = design(expected_goal(goal, guessed(cells, 1.0)), rank_utility(cells))
    q = np.where(document >= 34, 0.0, plan.q)
    plan = replace(plan, q=q / q.sum())
    inside, width = [], []
    for key in range(30):
        sample = draw(jax.random.key(key), plan, 160, folds=1)
        one = Round(sample, utility[sample.draws])
        found = estimate_ratio(goal, [one], bounds=True, top_utility=1.0)
        assert np.isnan(found.value).all()
        inside.append((found.low <= truth) & (truth <= found.high))
        width.append(found.high - found.low)
    assert (np.sum(inside, 0) >= 25).all()
    assert (np.mean(width, 0) < 0.9).all()


@pytest.mark.slow
def test_a_study(tmp_path):
    """A system that arrives late bounds them all, until a round has topped up."""
    rows = {"a": "abcdefghij", "b": "badcfehgji"}
    runs = {
        s: {x: dict(zip(row, range(0, -10, -1), strict=True)) for x in "xyz"}
        for s, row in rows.items()
    }
    study = Study.create(tmp_path / "s", runs, measure="nDCG@3", goal="absolute", grades=[0, 1])
    study.draw(30, seed=1)
    qrels = {x: {d: int(d in "adk") for d in "abcdefghijkl"} for x in "xyz"}
    study.judge(qrels)
    late = {"late": {x: {"k": 3.0, "l": 2.0, "a": 1.0} for x in "xyz"}}
    study.add(late)
    null = study.estimate()
    assert np.isnan(null.value).all()
    assert np.isnan([null.low, null.high]).all()
    found = study.estimate(bounds=True)
    assert (found.covered < 1).all()
    # Of a: d at 4 does not count. At worst k and l are relevant, at best neither is.
    gains = 1 / np.log2(np.arange(2, 5))
    assert found.low[0] == pytest.approx(1 / gains.sum(), abs=1e-12)
    assert found.high[0] == pytest.approx(1 / gains[:2].sum(), abs=1e-12)
    assert found.high[2] == 1
    wide = found.for_population()
    assert np.isnan([wide.low, wide.high]).all()
    assert any("bounds of systems that are not covered are for this set" in n for n in wide.notes)
    study.draw(6, top_up=True)
    study.judge(qrels)
    after = study.estimate()
    assert (after.covered == 1).all()
    assert ((found.low <= after.value) & (after.value <= found.high)).all()
