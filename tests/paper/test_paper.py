"""The paper, reproduced: definitions by hand, exact numbers by enumeration, and all of it."""

from __future__ import annotations

import functools
import itertools
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.designs import proposals
from evenhand.errors import EvenhandError
from evenhand.float64 import in_float64
from evenhand.paper import many_systems, printed
from evenhand.paper.dense_cells import DESIGNS, SINGLE, Cells, questions, single, variances
from evenhand.paper.one_system import exact_sds, sample
from evenhand.paper.pooling import deep_pool, deep_pool_sd, shallow_pool
from evenhand.paper.replication import alias, replicate
from evenhand.paper.reproduce import reproduce_synth, reproduce_trec
from evenhand.paper.reproduction import Curve, Reproduction, Row
from evenhand.paper.synthetic import (
    PRINTED_SYSTEMS,
    PROBABILITIES,
    Synth,
    expected_users,
    merged,
    opt,
    rev,
    shift,
    spread_over_users,
    synth,
    weights,
)

TREC8 = Path(__file__).resolve().parents[3] / "shared" / "data" / "trec8-adhoc"
SYSTEMS = {"OPT": opt, "REV-3": rev(3), "REV-5": rev(5), "SHIFT-2": shift(2), "SHIFT-4": shift(4)}


# Definitions, by hand.


def test_systems_by_hand():
    ratings = np.array([[4, 3, 2, 1, 0]])  # of items a to e, best first, which is OPT
    rank = np.arange(1, 6)
    lists = {
        "OPT": "abcde",
        "REV-3": "cbade",
        "REV-5": "edcba",
        "SHIFT-2": "deabc",
        "SHIFT-4": "bcdea",
    }
    discount = 1 / np.log1p(rank)
    for name, ranks in SYSTEMS.items():
        order = np.argsort(ranks(rank))
        assert "".join("abcde"[i] for i in order) == lists[name]
        value = (discount * ratings[0][order]).sum()
        better = np.array([[4, 3, 2, 1]])
        np.testing.assert_allclose(Synth(better, 5).per_user(ranks), [value], rtol=1e-14)


def test_what_the_paper_calls_a_shift_by_five_is_one_by_three():
    rank = np.arange(1, 11)
    assert PRINTED_SYSTEMS["SHIFT-5"](rank)[:7].tolist() == [4, 5, 6, 7, 8, 9, 10]


def test_ratings_and_users_by_hand():
    data = Synth(np.array([[3, 2, 1, 0], [5, 1, 1, 1]]), 6)
    assert data.ratings.tolist() == [[3, 2, 1, 0, 0, 0], [4, 1, 1, 1, 1, 0]]
    by_hand = [[(data.ratings[:, r] == g).sum() for g in range(5)] for r in range(6)]
    np.testing.assert_array_equal(data.users, by_hand)


def test_discounts_sum_to_what_the_paper_needs():
    assert weights(opt, 2000).sum() == pytest.approx(314.7633, abs=5e-5)
    assert weights(opt, 100).sum() == pytest.approx(30.208, abs=5e-4)


def test_drawn_ratings_follow_their_law():
    data = synth(jax.random.key(3), users=400, items=500)
    n = 400 * 500
    share = np.append(1.0, data.better.sum(0) / n)
    tail = np.cumsum(PROBABILITIES[::-1])[::-1]
    # Six standard errors: a false alarm in 10^8 runs; an error of 0.007 would be seen.
    slack = 6 * np.sqrt(tail * (1 - tail) / n) + 1e-12
    assert (np.abs(share - tail) < slack).all()
    with pytest.raises(EvenhandError, match="needs users and items"):
        synth(jax.random.key(0), users=0)


# Pools.


def test_shallow_pool_by_hand():
    rank, weight, utility = (
        np.array([1, 2, 3, 1]),
        np.array([2.0, 1, 0.5, 4]),
        np.array([1, 0, 3, 2]),
    )
    assert shallow_pool(rank, weight, utility, depth=1) == 2 + 8
    assert shallow_pool(rank, weight, utility, depth=3.9) == 2 + 1.5 + 8


@pytest.mark.parametrize("queries", [1, 2, 4, 6])
def test_deep_pool_sd_is_that_of_every_choice(queries):
    per_query = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.6])
    means = [np.mean(chosen) for chosen in itertools.combinations(per_query, queries)]
    assert deep_pool_sd(per_query, queries=queries) == pytest.approx(np.std(means), abs=1e-14)
    trials = deep_pool(jax.random.key(0), per_query, queries=queries, trials=2000)
    assert (np.abs(trials[:, None] - means).min(1) < 1e-12).all()
    # Five standard errors of the mean.
    assert abs(trials.mean() - np.mean(per_query)) <= 5 * np.std(means) / np.sqrt(2000) + 1e-12


def test_deep_pool_needs_queries():
    with pytest.raises(EvenhandError, match="cannot judge 4 of 3"):
        deep_pool(jax.random.key(0), np.ones(3), queries=4, trials=10)


# Expectations over data sets, against every data set.


@functools.cache
def every_user(items: int):
    """Every rating of the items, its probability, and N_g."""
    ratings = np.array(list(itertools.product(range(5), repeat=items)))
    probability = np.prod(np.array(PROBABILITIES)[ratings], 1)
    better = (ratings[:, :, None] >= np.arange(1, 5)).sum(1)
    return probability, better


def test_expected_users_and_spread_are_those_of_every_user():
    items = 4
    probability, better = every_user(items)
    data = Synth(better, items)
    by_hand = [[probability @ (data.ratings[:, r] == g) for g in range(5)] for r in range(items)]
    np.testing.assert_allclose(expected_users(1, items), by_hand, atol=1e-15)
    systems = {"OPT": opt, "REV-3": rev(3), "SHIFT-1": shift(1)}
    spread = spread_over_users(systems, items)
    expected = merged(expected_users(1, items), systems).values
    for j, ranks in enumerate(systems.values()):
        value = data.per_user(ranks)
        mean = probability @ value
        assert expected[j] == pytest.approx(mean, rel=1e-12)
        assert spread[j] == pytest.approx(np.sqrt(probability @ (value - mean) ** 2), rel=1e-10)


def test_published_expectations():
    """Held against those of an independent program."""
    cells = merged(expected_users(), PRINTED_SYSTEMS)
    np.testing.assert_allclose(
        cells.values, [284.589, 277.819, 271.476, 275.128, 270.047], atol=6e-4
    )
    spread = spread_over_users(PRINTED_SYSTEMS) / np.sqrt(6000)
    np.testing.assert_allclose(spread, [0.088, 0.102, 0.085, 0.087, 0.087], atol=6e-4)
    known = {
        "pair": (2.183, 0.2464, 1.138, 0.2100),
        "baseline": (1.320, 0.1801, 0.7029, 0.1522),
        "rank": (0.8661, 0.1107, 0.4668, 0.0948),
    }
    for kind, numbers in known.items():
        found = variances(questions(cells, kind)).mean(0) / 6000
        np.testing.assert_allclose(found, numbers, rtol=6e-4)
    sds = {"OPT": (1.090, 1.882, 3.131), "SHIFT-7": (1.079, 1.804, 2.405)}
    for name, three in sds.items():
        alone = merged(expected_users(), {name: PRINTED_SYSTEMS[name]})
        np.testing.assert_allclose(list(exact_sds(alone, 30_000).values())[:3], three, atol=6e-4)


# Merged cells against the library's own pool, target and designs.


@functools.cache
def small():
    """A small SYNTH as merged cells, and as runs that are pooled."""
    items, users = 8, 9
    data = synth(jax.random.key(5), users=users, items=items)
    rank = np.arange(1, items + 1)
    runs = eh.read_runs(
        {
            name: {
                f"x{x}": {f"i{r}": -float(ranks(rank)[r - 1]) for r in rank} for x in range(users)
            }
            for name, ranks in SYSTEMS.items()
        }
    )
    qrels = {f"x{x}": {f"i{r}": int(data.ratings[x, r - 1]) for r in rank} for x in range(users)}
    return data.cells(SYSTEMS), runs, eh.read_qrels(qrels), items


def pooled(runs, qrels, items):
    target = eh.target(eh.pool(runs, depth=items), f"DCG(log='e')@{items}")
    utility = np.zeros(len(target.pool))
    utility[target.pool.cells_of(qrels)] = qrels.grade
    guess = eh.curve_utility(target.pool, lambda rank: 4.0 * (1.0 - rank / items))
    return target, utility, guess


@in_float64
def one_draw(goal, q, utility):
    a = goal.at(np.arange(len(q)))
    return np.asarray(proposals.variance(q, a, utility, utility**2)).sum()


def test_merged_cells_have_the_values_of_the_pool():
    cells, runs, qrels, items = small()
    target, utility, _ = pooled(runs, qrels, items)
    by_name = dict(zip(target.systems, target.values(utility), strict=True))
    np.testing.assert_allclose(cells.values, [by_name[n] for n in cells.systems], rtol=1e-12)


@pytest.mark.parametrize("kind", ["pair", "rank"])
def test_merged_cells_have_the_variances_of_the_pool(kind):
    cells, runs, qrels, items = small()
    for asked in questions(cells, kind):
        target, utility, guess = pooled(runs.select(asked.cells.systems), qrels, items)
        goal = eh.pair(target, *asked.cells.systems) if kind == "pair" else eh.rank(target)
        known = eh.known_utility(utility)
        for i, (design, informed) in enumerate(DESIGNS):
            made = eh.design(
                goal,
                guess if informed == "u~" else known,
                kind="naive" if design == "naive" else "optimal",
                floor=1e-300,  # no floor, and no check of support: u* is 0 somewhere
            )
            assert asked.variances()[i] == pytest.approx(one_draw(goal, made.q, utility), rel=1e-9)
            assert asked.masses()[i].sum() == pytest.approx(1.0, abs=1e-12)
        assert not asked.unreached().any()


def test_baseline_is_the_middle_system():
    cells, runs, qrels, items = small()
    (asked,) = questions(cells, "baseline", mix_baseline=True)
    order = sorted(zip(cells.values, cells.systems, strict=True), reverse=True)
    middle = order[2][1]
    target, utility, guess = pooled(runs, qrels, items)
    goal = eh.baseline(target, middle)
    for i, kind in enumerate(("naive", "optimal")):
        made = eh.design(goal, guess, kind=kind, floor=1e-300)
        assert asked.variances()[i] == pytest.approx(one_draw(goal, made.q, utility), rel=1e-9)


def test_designs_of_one_system():
    _, runs, qrels, items = small()
    for name in ("OPT", "SHIFT-2"):
        cells = small()[0]
        alone = cells.only([cells.systems.index(name)])
        target, utility, guess = pooled(runs.select([name]), qrels, items)
        goal = eh.absolute(target)
        _, squares = single(alone.padded())
        for design, kind, moments in (
            ("Q*", "optimal", guess),
            ("Q^P", "optimal", eh.flat(target.pool)),
            ("Q^unif", "uniform", guess),
        ):
            q = eh.design(goal, moments, kind=kind, floor=1e-300).q
            assert squares[design] == pytest.approx(one_draw(goal, q, utility), rel=1e-9)
        assert set(squares) == set(SINGLE)


def test_a_pair_that_only_the_baseline_returns_is_out_of_reach():
    """With the candidates alone mixed, as in the paper, it is never drawn; the loss is told."""
    weight = np.array([[3.0, 0, 0, 0, 0], [0, 2.0, 0, 0, 0], [0, 0, 1.5, 0, 0], [0, 0, 0, 1.0, 0]])
    weight = np.vstack([weight, [0, 0, 0, 0, 0.5]])
    cells = Cells(tuple("abcde"), weight, (weight > 0) * 1.0, np.ones(5), np.ones(5))
    (paper,) = questions(cells, "baseline")
    assert paper.unreached()[0].tolist() == [-1.5] * 4  # what only c, the baseline, returns
    assert np.isfinite(paper.variances()).all()
    (mixed,) = questions(cells, "baseline", mix_baseline=True)
    assert not mixed.unreached().any()


def test_equal_systems_are_not_asked_about():
    weight = np.array([[1.0, 1.0, 0.5], [0.5, 0.5, 1.0]])
    cells = Cells(("a", "b", "c"), weight, np.ones((2, 3)), np.array([2.0, 1.0]), np.ones(2))
    assert [q.cells.systems for q in questions(cells, "pair")] == [("b", "c")]
    with pytest.raises(EvenhandError, match="needs at least 5 systems, got 3"):
        questions(cells, "rank")


# Replicated draws.


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=40).filter(lambda x: sum(x) > 1e-3))
def test_alias_table_is_the_distribution(mass):
    p = np.array(mass) / np.sum(mass)
    keep, other = alias(p)
    drawn = (keep + np.bincount(other, 1 - keep, minlength=len(p))) / len(p)
    np.testing.assert_allclose(drawn, p, atol=1e-12)
    assert (drawn[p == 0] == 0).all()


def test_replicates_have_the_exact_mean_and_spread():
    cells = small()[0].only([1]).padded()
    trials, budgets = 4000, (7, 20)
    masses, squares = single(cells)
    found = replicate(
        jax.random.key(2),
        masses["Q^P"],
        cells.weight,
        cells.utility,
        budgets=budgets,
        trials=trials,
    )
    assert found.estimate.shape == (trials, 2, 1)
    for i, n in enumerate(budgets):
        sd = np.sqrt(squares["Q^P"] / n)
        # Five standard errors each: one false alarm in 10^6 runs.
        assert abs(found.estimate[:, i].mean() - cells.values[0]) < 5 * sd / np.sqrt(trials)
        assert found.estimate[:, i].std() == pytest.approx(sd, rel=5 / np.sqrt(2 * trials) * 1.5)
        np.testing.assert_allclose((found.std_error[:, i] ** 2).mean(), sd**2, rtol=0.08)


def test_a_later_budget_begins_with_the_draws_of_the_earlier():
    z = np.array([[1.0], [10.0]])
    q = np.array([0.5, 0.5])
    found = replicate(jax.random.key(0), q, z, np.ones(2), budgets=(1, 2), trials=50)
    first, both = found.estimate[:, 0, 0], found.estimate[:, 1, 0] * 2
    assert set(np.round(both - first, 9)) <= {2.0, 20.0}
    second = both - first
    spread = np.abs(first - second) / 2  # s / sqrt(2) of two numbers
    np.testing.assert_allclose(found.std_error[:, 1, 0], spread, atol=1e-9)


def test_intervals_of_the_paper():
    cells = small()[0].only([0])
    found = sample(jax.random.key(1), cells, ["Q*"], n=400, budgets=(100, 400), trials=1600)["Q*"]
    exact = exact_sds(cells, 400)["Q*"]
    assert found.interval == pytest.approx(1.96 * exact, rel=0.02)
    # .95 up to four standard errors, and a little for n = 400.
    assert found.coverage == pytest.approx(0.95, abs=0.03)


def test_agreement_by_hand():
    truth = np.array([2.0, 0.0, -1.0])
    found = np.array([[1.0, 5.0, 1.0], [3.0, -1.0, -1.0], [0.0, 0.0, 0.0]])
    assert many_systems.agreement("pair", found, truth).tolist() == [0.5, 1.0, 0.0]
    # Orders of the pairs (a, b), (a, c), (b, c): true + + +.
    tau = many_systems.agreement("rank", found, truth)
    np.testing.assert_allclose(tau, [(-1 + 0 + 1) / 3, (1 + 1 + 0) / 3, 0.0])


# The whole of it.


@pytest.fixture(scope="module")
def fast():
    told = []
    found = reproduce_synth(fast=True, progress=lambda done, total: told.append((done, total)))
    assert sum(done for done, _ in told) == told[0][1]
    return found


def test_synth_is_reproduced(fast):
    assert not fast.failures
    assert fast.passed
    assert {row.table for row in fast.rows} == {f"Table {i}" for i in range(2, 8)}
    checked = [row for row in fast.all_rows if row.ok is not None]
    assert len(checked) == len(fast.all_rows)
    assert any("100 trials" in note for note in fast.notes_shown())


def test_unmatched_numbers_are_marked(fast):
    marked = {row.system for row in fast.rows if "b" in row.mark}
    assert marked == set(printed.UNMATCHED)
    for row in fast.rows:
        if "b" in row.mark and row.quantity.startswith("sd exact"):
            assert row.paper is not None
            assert row.expected is not None
            assert 0.18 < 1 - row.paper / row.expected < 0.24
    assert all(set(row.mark) <= set(printed.NOTES) for row in fast.rows)


def test_both_shifts_are_shown(fast):
    shallow = {r.system: r for r in fast.rows if r.quantity == "ShallowPool"}
    assert shallow["SHIFT-5"].ours == pytest.approx(4.72, abs=0.01)
    assert shallow["SHIFT-5 by 5"].ours == 0.0
    assert shallow["SHIFT-5"].paper == shallow["SHIFT-5 by 5"].paper == 4.72


def test_reproduction_prints_in_every_format(fast):
    content = json.loads(fast.render("json"))
    assert content["passed"] is True
    assert len(content["rows"]) == len(fast.all_rows)
    assert set(content["rows"][0]) >= {"table", "quantity", "system", "paper", "expected", "ours"}
    latex = fast.render("latex")
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 9
    for line in latex.splitlines():
        if line.endswith(r"\\"):
            assert len(re.findall(r"(?<!\\)&", line)) == 7
            assert not re.search(r"(?<!\\)[%#_~^]", line)
    assert "Q*" in fast.render("csv")
    assert "numbers are as expected" in str(fast)


def test_figures_are_written(fast, tmp_path):
    files = fast.figures(tmp_path / "figures")
    assert [f.name for f in files] == [
        f"synth-{kind}.{ending}"
        for kind in ("pair", "baseline", "rank")
        for ending in ("png", "pdf")
    ]
    for file in files:
        assert file.read_bytes()[:4] == {".png": b"\x89PNG", ".pdf": b"%PDF"}[file.suffix]
    (tmp_path / "taken").write_text("")
    with pytest.raises(EvenhandError, match="cannot write into"):
        fast.figures(tmp_path / "taken")


def test_a_number_off_is_told():
    rows = (
        Row("Table 2", "U", "OPT", 284.40, 284.5, 290.0, 0.4),
        Row("Table 2", "U", "REV-75", None, None, 1.0, None),
    )
    curve = Curve(
        "Figure 1", "pair", "accuracy", "Q*", (1.0,), np.array([0.9]), np.zeros(1), (0.92,)
    )
    found = Reproduction("SYNTH", rows, (curve,), 100, 0)
    assert [row.ok for row in found.all_rows] == [False, None, True]
    assert not found.passed
    assert "1 of 2 numbers are as expected (100 trials, seed 0); not Table 2: U of OPT" in str(
        found
    )
    assert "NO" in found.tables()[0].to_text()


def test_too_few_trials():
    with pytest.raises(EvenhandError, match="at least 10 trials, got 2"):
        reproduce_synth(trials=2)


# Real runs.


def made_runs(n_systems: int):
    rng = np.random.default_rng(1)
    merit = rng.normal(size=(6, 60))
    runs = {
        f"s{j}": {
            f"q{q}": {f"d{d}": s for d, s in enumerate(merit[q] + rng.normal(0, 0.5 + j / 4, 60))}
            for q in range(6)
        }
        for j in range(n_systems)
    }
    qrels = {f"q{q}": {f"d{d}": int(merit[q, d] > 1) for d in range(60)} for q in range(6)}
    return eh.read_runs(runs), eh.read_qrels(qrels)


def test_trec_on_other_runs():
    """Nothing is expected of runs that the paper does not name; what can be checked still is."""
    runs, qrels = made_runs(7)
    found = reproduce_trec(runs, qrels, named=["s0", "s3"], some=5, trials=16)
    truth = eh.evaluate(runs, qrels, "DCG(log='e')@100")
    by_name = dict(zip(truth.systems, truth.value[0], strict=True))
    values = {row.system: row for row in found.rows if row.quantity == "U"}
    assert set(values) == {"s0", "s3"}
    for name, row in values.items():
        assert row.ours == pytest.approx(by_name[name], rel=1e-12)
        assert (row.paper, row.expected, row.ok) == (None, None, None)
    assert {row.ok for row in found.rows if row.quantity.startswith("sd of trials")} <= {
        True,
        False,
    }
    assert len(found.curves) == 6
    with pytest.raises(EvenhandError, match="no run named 'mds08a3'"):
        reproduce_trec(runs, qrels)
    with pytest.raises(EvenhandError, match="needs at least 5 systems"):
        reproduce_trec(runs, qrels, systems=["s0", "s1"], named=["s0"])


@pytest.fixture(scope="module")
def trec8():
    if not TREC8.is_dir():
        pytest.skip("the runs of TREC-8 are not there")
    runs = eh.read_runs(TREC8 / "runs-top100")
    qrels = eh.read_qrels(TREC8 / "qrels.trec8.adhoc.gz")
    judged = (TREC8 / "judged-runs.txt").read_text().split()
    return reproduce_trec(runs, qrels, judged, fast=True)


@pytest.mark.slow
def test_trec_is_reproduced(trec8):
    assert not trec8.failures
    values = {r.system: r.ours for r in trec8.rows if r.quantity == "U"}
    assert values == pytest.approx(
        {"mds08a3": 6.960, "nttd8ale": 9.007, "weaver2": 7.484}, abs=6e-4
    )
    assert all(mark in printed.NOTES for row in trec8.rows for mark in row.mark)


@pytest.mark.slow
def test_trec_variances_of_an_independent_program(trec8):
    """Those of a plain NumPy program of 40 lines, on all 71 runs."""
    known = {
        ("Table 5", "all 71, absent 101"): (7.2993, 4.3945, 1.6520, 0.8867),
        ("Table 5", "all 71, absent 0"): (9.8236, 4.7605, 1.6520, 0.8867),
        ("Table 6", "all 71, absent 0, baseline mixed in"): (21.97, 9.05, 2.33, 1.40),
        ("Table 7", "all 71, absent 0, fives"): (8.91, 3.91, 0.94, 0.60),
        ("Table 7", "all 71, absent 101, fives"): (4.48, 3.16, 0.94, 0.60),
    }
    for (table, system), numbers in known.items():
        found = [
            row.ours
            for row in trec8.rows
            if (row.table, row.system) == (table, system) and row.quantity.startswith("variance")
        ]
        np.testing.assert_allclose(found, numbers, atol=6e-3)


@pytest.mark.slow
def test_paper_method_gains_from_documents_that_are_absent(trec8):
    """Counted as at rank 101 rather than worth nothing, they make the paper's own Q* better."""
    q_star = {
        row.system: row.ours
        for row in trec8.rows
        if row.table == "Table 7" and row.quantity == "variance, Q*, u~"
    }
    gain = q_star["20 drawn, absent 0, all at once"] / q_star["20 drawn, absent 101, all at once"]
    assert gain == pytest.approx(1.52, abs=0.01)
