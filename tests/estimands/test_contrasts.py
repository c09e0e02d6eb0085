"""Contrasts that are a diagonal and a row: told by goals, summed by entry as if by tables."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from evenhand.devices import adds_in_order
from evenhand.estimands import contrasts, goals, targets
from evenhand.estimands.goals import contrast, differences
from evenhand.estimands.matrices import parts
from evenhand.estimands.pools import pool
from evenhand.estimands.targets import Target
from evenhand.formats.runs import read_runs
from evenhand.intervals import pool_moments
from evenhand.intervals.pool_moments import events
from evenhand.measures import grammar


def weighed(seed: int, k: int, *, full: float = 0.3, signed: bool = False) -> Target:
    """Systems' weights on 300 cells, some returned by all, alike or not, and some by one."""
    rng, n_cells = np.random.default_rng(seed), 300
    lists = {f"s{j}": {"q": {f"d{i}": float(-i) for i in range(n_cells)}} for j in range(k)}
    cells = pool(read_runs(lists))
    w = rng.random((n_cells, k)) * (rng.random((n_cells, k)) < 0.3)
    alike = rng.random(n_cells) < full
    w[alike] = np.where(rng.random((alike.sum(), 1)) < 0.5, 1.0, rng.random((alike.sum(), k)))
    w[alike] *= rng.random((alike.sum(), 1))
    w[:20] = rng.random((20, 1)) * (np.arange(k) < k - 1)  # alike for all but the last
    if signed:
        w *= rng.choice([-1.0, 1.0], (n_cells, 1))
    return Target.of_weights(cells, grammar.measure("DCG@10"), w)


def by_tables(monkeypatch, function):
    """What a function gives where nothing is summed by entry."""
    with monkeypatch.context() as patch:
        patch.setattr(contrasts, "adds_in_order", lambda: False)
        patch.setattr(pool_moments, "adds_in_order", lambda: False)
        return function()


@pytest.mark.parametrize("k", [3, 5, 20])
def test_forms_of_goals(k):
    found = weighed(0, k)
    for goal, row in (
        (goals.absolute(found), None),
        (goals.rank(found), np.full(k, -1 / k)),
        (goals.baseline(found, "s1"), -np.eye(k)[1]),
    ):
        form = goal.form
        if len(goal.matrix) < 3:
            assert form is None  # no more work as a table
            continue
        if row is None:
            assert form.row is None
            row = np.zeros(k)
        else:
            np.testing.assert_array_equal(form.row, row)
        again = np.diag(form.diagonal)[form.place] + row
        np.testing.assert_allclose(again, goal.matrix, rtol=1e-15, atol=1e-16)
    assert goals.best(found).form is not None
    pairs = goals.pairs(found)
    rows = [(len(rows), form) for rows, form in parts([(len(pairs.matrix), pairs.form)], most=2)]
    if k > 3:
        assert rows == [(2, None)] * (k * (k - 1) // 4)


def test_your_own_contrasts_are_tables():
    found = weighed(0, 5)
    own = contrast(found, goals.rank(found).matrix)
    assert own.form is None
    np.testing.assert_allclose(own.norms(), goals.rank(found).norms(), rtol=1e-12, atol=1e-15)


def test_parts_of_a_matrix_are_all_of_its_rows():
    found = weighed(0, 5)
    rank, pairs = goals.rank(found), goals.pairs(found)
    blocks = [(5, rank.form), (10, pairs.form), (5, goals.absolute(found).form)]
    told = parts(blocks, most=4)
    assert [form is None for _, form in told] == [False, False, True, True, True]
    np.testing.assert_array_equal(told[0][0], np.arange(5))
    np.testing.assert_array_equal(told[1][0], np.arange(15, 20))
    rows = np.concatenate([rows for rows, _ in told])
    np.testing.assert_array_equal(np.sort(rows), np.arange(20))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("k", [3, 4, 20])
def test_norms_by_entry_are_those_by_tables(monkeypatch, k, signed):
    found, rng = weighed(k, k, signed=signed), np.random.default_rng(k)
    assert adds_in_order() == (jax.default_backend() == "cpu")
    for made in (
        goals.absolute(found),
        goals.rank(found),
        goals.baseline(found, "s0"),
        replace(goals.rank(found), importance=rng.random(k) * (np.arange(k) > 0)),
        replace(
            goals.baseline(found, "s0"), importance=rng.random(k - 1) * (np.arange(1, k) < k - 1)
        ),
    ):
        tables = by_tables(monkeypatch, made.norms)
        np.testing.assert_allclose(made.norms(), tables, rtol=1e-11, atol=1e-15)
        np.testing.assert_array_equal(made.norms() == 0, tables == 0)


@pytest.mark.slow
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("piece", [1 << 20, 200])
@pytest.mark.parametrize("k", [3, 4, 20])
def test_sums_by_entry_are_those_by_tables(monkeypatch, k, piece, signed):
    found, rng = weighed(k, k, signed=signed), np.random.default_rng(k)
    monkeypatch.setattr(targets, "PIECE", piece)
    likely, expected, reach = rng.random((3, len(found.pool)))
    first, second = np.triu_indices(k, 1)
    made = [goals.rank(found), goals.absolute(found), goals.baseline(found, "s1")]
    more = differences(first, second, k)[: max(k, 9)]
    matrix = np.concatenate([*(goal.matrix for goal in made), more])
    blocks = [*((len(goal.matrix), goal.form) for goal in made), (len(more), None)]

    def summed():
        return events(found, matrix, likely, expected, reach, "distinct", blocks)

    ours, tables = summed(), by_tables(monkeypatch, summed)
    for one, other, size in zip(
        ours, tables, (*tables[:1], *tables[2:3], *tables[2:]), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13 * np.abs(size).max())


def test_what_little_differs_keeps_its_digits(monkeypatch):
    """A system that is the baseline but for a hair, and one that is the baseline."""
    rng, base = np.random.default_rng(3), weighed(1, 6)
    w = base.weights(np.arange(len(base.pool)))
    w[:, 1] = w[:, 2] = w[:, 0]
    w[7, 2] += 1e-7
    found = Target.of_weights(base.pool, base.measure, w)
    goal = goals.baseline(found, "s0")
    assert goal.form is not None
    likely, expected, reach = rng.random((3, len(found.pool)))

    def summed():
        return events(found, goal.matrix, likely, expected, reach, "iid", [(5, goal.form)])

    ours, tables = summed(), by_tables(monkeypatch, summed)
    for one, other in zip(ours, tables, strict=True):
        assert one[0] == 0
        np.testing.assert_allclose(one[1], other[1], rtol=1e-9)
        np.testing.assert_allclose(one, other, rtol=1e-9)
    assert tables.second[1] > 0
