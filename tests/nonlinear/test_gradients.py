"""Ratio measures as functions of utilities: values, slopes, and what the slopes leave out."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.errors import EvenhandError
from evenhand.estimands.evaluation import evaluate
from evenhand.estimands.pools import Pool, pool
from evenhand.formats.runs import read_runs
from evenhand.measures import grammar
from evenhand.nonlinear.gradients import Levels, gradient, turned
from evenhand.nonlinear.second_order import Errors, even_parts, second_order

GRADED = "nDCG(gains={0:0,1:1,2:3})@4"
SWAPS = ["Swaps", "Swaps@4", "wSwaps@6"]
NAMES = ["nDCG@3", "nDCG@6", "AP@6", "AP@3", "R@2", "Rprec", GRADED, *SWAPS]


@pytest.fixture(scope="module")
def cells() -> Pool:
    """Three systems, the last of which leaves a query unanswered, on six queries."""
    rng = np.random.default_rng(5)
    runs = {
        f"s{j}": {
            f"q{x}": {f"d{d}": float(rng.normal()) for d in rng.permutation(9)[:6]}
            for x in range(6 - (j == 2))
        }
        for j in range(3)
    }
    return pool(read_runs(runs), depth=6)


def grades(cells: Pool, seed: int) -> np.ndarray:
    """A grade for each cell; nothing of the first query is relevant."""
    grade = np.random.default_rng(seed).choice([0, 1, 2], len(cells), p=[0.6, 0.2, 0.2])
    return np.where(cells.query == 0, 0, grade)


def levels(measure, grade: np.ndarray) -> Levels:
    utility = measure.utility(grade)
    gain = np.unique(utility[utility > 0])
    return Levels(gain, (utility[:, None] >= gain) * 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_complete_judgments(cells, name):
    """`evaluate` is held to trec_eval and ir_measures elsewhere."""
    grade = grades(cells, 1) if name in (GRADED, *SWAPS) else np.minimum(grades(cells, 1), 1)
    qrels: dict[str, dict[str, int]] = {}
    for query, document, g in zip(*cells.names(np.arange(len(cells))), grade, strict=True):
        qrels.setdefault(query, {})[document] = int(g)
    # Rprec looks as deep as it must, here no deeper than the pool.
    found = gradient(cells, measure := grammar.measure(name), levels(measure, grade))
    runs = {
        system: {
            query: {
                document: float(-rank)
                for s, q, document, rank in entries(cells)
                if (s, q) == (system, query)
            }
            for query in cells.queries.to_pylist()
        }
        for system in cells.systems
    }
    expected = evaluate(read_runs(runs), qrels, [measure])
    np.testing.assert_allclose(found.by_query, expected.values[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.value, expected.value[0], rtol=0, atol=1e-12)


def entries(cells: Pool):
    queries, documents = cells.names(cells.cell)
    systems = [cells.systems[j] for j in cells.system]
    return list(zip(systems, queries, documents, cells.rank.tolist(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_those_of_central_differences(cells, name):
    """At estimates that lie anywhere, moved along what a judgment of each cell adds."""
    measure = grammar.measure(name)
    grade = grades(cells, 2) if name in (GRADED, *SWAPS) else np.minimum(grades(cells, 2), 1)
    base = levels(measure, grade)
    rng = np.random.default_rng(3)
    near = base._replace(reached=base.reached + rng.uniform(0.05, 0.3, base.reached.shape))
    step, every = 1e-6, np.arange(len(cells))
    utility = rng.choice(base.gain, len(cells))
    weights = gradient(cells, measure, near).weights(every, utility)
    moved = (utility[:, None] >= base.gain) * 1.0
    for cell in range(0, len(cells), 5):
        ends = []
        for sign in (1, -1):
            reached = near.reached.copy()
            reached[cell] += sign * step * moved[cell]
            ends.append(gradient(cells, measure, near._replace(reached=reached)).value)
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(weights[cell], slope, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["AP@6", "R@2", "nDCG@3"])
def test_what_slopes_leave_out(cells, name):
    """Errors so small that third derivatives do not count: half the trace of the second ones."""
    measure = grammar.measure(name)
    near = levels(measure, np.minimum(grades(cells, 4), 1))
    near = near._replace(reached=0.1 + 0.7 * near.reached)
    draws = np.arange(0, len(cells), 3)
    n = len(draws)
    size = 1e-3 * np.random.default_rng(0).uniform(0.5, 1, n)
    errors = Errors(draws, size[:, None], np.ones(n), np.zeros(n), np.zeros(n, int))
    found, covariance = second_order(cells, measure, near, errors)
    here, half = gradient(cells, measure, near).value, np.zeros(3)
    for cell, error in zip(draws, size, strict=True):
        for sign in (1, -1):
            reached = near.reached.copy()
            reached[cell] += sign * error
            half += (gradient(cells, measure, near._replace(reached=reached)).value - here) / 2
    # Of random signs: the mean of what crosses errors is 0 within five of its deviations.
    slack = 5 * np.sqrt(np.diag(covariance) / 100) + 1e-12
    assert (np.abs(found - half) <= slack).all()
    assert np.abs(half).max() > 1e-8


@pytest.mark.parametrize("name", ["AP@6", "Rprec", "nDCG@3", "wSwaps@4"])
def test_second_derivatives_alone(cells, name):
    """Those of errors a thousandth as large, by differences, times a million."""
    measure = grammar.measure(name)
    near = levels(measure, np.minimum(grades(cells, 4), 1))
    near = near._replace(reached=0.1 + 0.7 * near.reached)
    n = len(cells)
    size = np.random.default_rng(0).uniform(0.5, 1, (n, 1))
    errors = Errors(np.arange(n), size, np.ones(n), np.zeros(n), np.zeros(n, int))
    moves = np.random.default_rng(1).choice([-1.0, 1.0], (3, n))
    found = even_parts(cells, measure, near, errors, moves, curved=True)
    small = even_parts(cells, measure, near, errors._replace(term=1e-3 * size), moves)
    np.testing.assert_allclose(found, 1e6 * small, rtol=1e-3, atol=1e-7)
    assert np.abs(found).max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_how_the_gradient_turns(cells, name):
    """By central differences along a direction, a share of it for each query and level."""
    measure = grammar.measure(name)
    grade = grades(cells, 2) if name in (GRADED, *SWAPS) else np.minimum(grades(cells, 2), 1)
    near = levels(measure, grade)
    rng = np.random.default_rng(3)  # at whole counts some gradients jump
    near = near._replace(reached=near.reached + rng.uniform(0.05, 0.3, near.reached.shape))
    along = rng.normal(size=near.reached.shape)
    share = rng.uniform(0, 1, (len(cells.queries), near.reached.shape[1]))
    here = gradient(cells, measure, near)
    found = turned(cells, measure, near, here, along, share)
    ahead, behind = (
        gradient(cells, measure, near._replace(reached=near.reached + step * along))
        for step in (1e-5, -1e-5)
    )
    own = share[cells.query[cells.cell]] * (ahead.own - behind.own) / 2e-5
    count = share * (ahead.count - behind.count) / 2e-5
    np.testing.assert_allclose(found.own - here.own, own, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.count - here.count, count, rtol=1e-5, atol=1e-7)


def test_where_a_count_is_held_nothing_bends(cells):
    """As many are known to be relevant as are estimated: differences would meet a kink there."""
    measure = grammar.measure("R@2")
    near = levels(measure, np.minimum(grades(cells, 4), 1))
    near = near._replace(least=near.counts(cells))
    n = len(cells)
    errors = Errors(np.arange(n), np.ones((n, 1)), np.ones(n), np.zeros(n), np.zeros(n, int))
    mean, covariance = second_order(cells, measure, near, errors, curved=True)
    assert np.abs(mean).max() < 1
    assert np.abs(covariance).max() < 1


def test_a_group_of_fixed_size_is_certain_of_its_sum(cells):
    """Equal terms of one group: their sum over the group does not move, and with it N."""
    measure = grammar.measure("R@6")
    near = levels(measure, np.ones(len(cells), int))
    draws = np.flatnonzero(cells.query == 1)
    n = len(draws)
    errors = Errors(draws, np.ones((n, 1)), np.ones(n), np.full(n, 1 / n), np.zeros(n, int))
    found, covariance = second_order(cells, measure, near, errors)
    # R@6 of lists of six is then linear, and nothing is left out.
    np.testing.assert_allclose(found, 0, atol=1e-12)
    np.testing.assert_allclose(covariance, 0, atol=1e-12)
    loose = second_order(cells, measure, near, errors._replace(share=np.zeros(n)))[0]
    assert np.abs(loose).max() > 1e-3


def test_what_has_no_gradient(cells):
    for name in ("DCG@3", "MAE"):
        with pytest.raises(EvenhandError, match="has no gradient"):
            gradient(cells, grammar.measure(name), Levels(np.ones(1), np.zeros((len(cells), 1))))
    two = Levels(np.array([1.0, 3.0]), np.zeros((len(cells), 2)))
    with pytest.raises(EvenhandError, match="relevant and not, got 2 levels"):
        gradient(cells, grammar.measure("AP@6"), two)
