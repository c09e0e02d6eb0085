"""The theory of baselines and proposals by other means; certificates that hold and that fail."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenhand.certificates import certification, checks
from evenhand.certificates.baselines import (
    baseline_bound,
    baseline_gradient,
    baseline_variance,
    distance,
    gradient_size,
    lagrangian,
    mean_baseline,
    multiplier,
    reach,
)
from evenhand.certificates.cases import Certificate
from evenhand.certificates.certification import Certificates, certify, certify_files, certify_runs
from evenhand.designs import proposals
from evenhand.designs.proposals import DESIGNS, Gap
from evenhand.designs.utilities import flat, known_utility
from evenhand.errors import EvenhandError, PrecisionError
from evenhand.estimands import goals
from evenhand.estimands.pools import pool
from evenhand.estimands.targets import target
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.measures import grammar
from evenhand.study import Study

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="the real data sets are not here")

NAMES = (
    "optimal baseline",
    "gradient",
    "differences",
    "kinks",
    "lower bound",
    "ties",
    "every proposal",
    "all pairs",
    "optimal proposal",
    "minimax design",
    "weak duality",
)


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield


def arrays(seed: int, k: int = 5, cells: int = 40):
    """Weights (cells, systems) and utility with everything that may trouble a derivative.

    Every sixth cell is a kink, the next one nearly so, the next has no utility; scales differ by
    orders of magnitude, and one system is another's twin.
    """
    rng = np.random.default_rng(seed)
    weights = rng.random((cells, k)) * np.exp(rng.normal(0, 2, (cells, 1)))
    weights[rng.random((cells, k)) < 0.3] = 0.0
    weights[0::6] = (
        rng.random((len(weights[0::6]), 1)) * (np.arange(len(weights[0::6])) != 1)[:, None]
    )
    weights[1::6] = rng.random((len(weights[1::6]), 1)) * (1 + 1e-6 * rng.random((1, k)))
    if k > 2:
        weights[:, k - 1] = weights[:, 0]
    utility = rng.gamma(0.5, 1.0, cells)
    utility[2::6] = 0.0
    return weights, utility


def failed(found: Certificates) -> set[str]:
    return {each.name for each in found.certificates if not each.passed}


# --- Arrays ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_variance_is_that_of_the_best_proposal(float64, seed):
    weights, utility = arrays(seed)
    tau = np.random.default_rng(seed).random(len(utility))
    mass = utility * np.sqrt(((weights - tau[:, None]) ** 2).sum(1))
    q = mass / mass.sum()
    found = 0.0
    for j in range(weights.shape[1]):
        z = [(weights[c, j] - tau[c]) * utility[c] / q[c] if q[c] else 0.0 for c in range(len(q))]
        found += sum(p * x**2 for p, x in zip(q, z, strict=True))
        found -= sum(p * x for p, x in zip(q, z, strict=True)) ** 2
    np.testing.assert_allclose(baseline_variance(tau, weights, utility), found, rtol=1e-12)
    other = proposals.variance(
        np.full(len(q), 1 / len(q)), weights - tau[:, None], utility, utility**2
    )
    assert other.sum() > found


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_by_differences_in_numpy(float64, seed):
    weights, utility = arrays(seed)
    rng = np.random.default_rng(seed)
    tau = weights.mean(1) + rng.normal(0, 0.1 + weights.std(1))

    def sigma(tau):
        apart = weights - tau[:, None]
        return (utility @ np.sqrt((apart**2).sum(1))) ** 2 - ((utility @ apart) ** 2).sum()

    step = 1e-3 * np.sqrt(((weights - tau[:, None]) ** 2).sum(1))
    by_hand = np.array(
        [
            (sigma(tau + h * e) - sigma(tau - h * e)) / (2 * h)
            for h, e in zip(step, np.eye(40), strict=True)
        ]
    )
    size = np.asarray(gradient_size(tau, weights, utility))
    closed = np.asarray(baseline_gradient(tau, weights, utility))
    slope = np.asarray(jax.grad(baseline_variance)(tau, weights, utility))
    assert (np.abs(closed) <= 2 * size * (1 + 1e-12)).all()
    np.testing.assert_array_less(np.abs(closed - slope), 1e-13 * size + 1e-300)
    np.testing.assert_array_less(np.abs(closed - by_hand), 1e-5 * size + 1e-300)
    # The sign that is printed in the source paper: right at the mean only.
    wrong = -closed + 4 * utility * (utility @ (weights - tau[:, None])).sum()
    assert (np.abs(wrong - slope)[size > 0] > 1e-2 * size[size > 0]).mean() > 0.9


def test_a_kink_has_a_gradient(float64):
    weights = np.array([[0.1, 0.1, 0.1], [0.5, 0.2, 0.1], [0.0, 0.0, 0.0], [0.3, 0.0, 0.1]])
    utility = np.array([2.0, 1.0, 1.0, 0.5])
    mean = np.asarray(mean_baseline(weights))

    def naive(tau):
        apart = weights - tau[:, None]
        return (utility @ jnp.sqrt((apart**2).sum(1))) ** 2 - ((utility @ apart) ** 2).sum()

    assert np.isnan(jax.grad(naive)(mean)[np.array([0, 2])]).all()
    for slope in (jax.grad(baseline_variance), baseline_gradient):
        np.testing.assert_allclose(slope(mean, weights, utility), 0.0, atol=1e-15)
    # One-sided quotients have 0 between them, at the mean and where tau is off elsewhere.
    for elsewhere in (0.0, 0.4, -3.0):
        tau = mean + elsewhere * np.array([0, 1, 0, 1])
        here = baseline_variance(tau, weights, utility)
        size = gradient_size(tau, weights, utility)
        slope = jax.grad(baseline_variance)(tau, weights, utility)
        np.testing.assert_allclose(slope, baseline_gradient(tau, weights, utility), atol=1e-13)
        for cell in (0, 2):
            right, left = (
                (baseline_variance(tau + h * np.eye(4)[cell], weights, utility) - here) / h
                for h in (1e-7, -1e-7)
            )
            assert left <= 1e-5
            assert right >= -1e-5
            assert left - 1e-5 <= slope[cell] <= right + 1e-5
            np.testing.assert_allclose(right - left, 2 * size[cell], rtol=1e-5)


def test_the_mean_of_equal_weights_is_exact(float64):
    for k in (3, 6, 7, 49):
        weights = np.full((4, k), [[0.1], [1 / 3], [1e-9 / 7], [0.0]])
        np.testing.assert_array_equal(mean_baseline(weights), weights[:, 0])
        assert not distance(mean_baseline(weights), weights).any()


@pytest.mark.parametrize("seed", range(3))
def test_the_bound(float64, seed):
    weights, utility = arrays(seed)
    mean = mean_baseline(weights)
    least = baseline_variance(mean, weights, utility)
    taus = np.asarray(mean) + np.random.default_rng(seed).normal(0, 1, (50, 40)) * 0.1
    value, bound = jax.jit(jax.vmap(baseline_bound, (0, None, None)))(taus, weights, utility)
    sigma = jax.jit(jax.vmap(baseline_variance, (0, None, None)))(taus, weights, utility)
    np.testing.assert_allclose(value, sigma, rtol=1e-11)
    np.testing.assert_allclose(bound, least, rtol=1e-12)
    assert (sigma > least).all()


def test_convex_in_each_cell_but_not_in_all(float64):
    weights, utility = arrays(0)
    mean = np.asarray(mean_baseline(weights))
    rng = np.random.default_rng(0)
    sigma = jax.jit(jax.vmap(lambda tau: baseline_variance(tau, weights, utility)))

    def bends(start, move):
        low, middle, high = (sigma(start + x * move) for x in (-1, 0, 1))
        return np.asarray((low + high) / 2 - middle) / np.asarray(middle)

    start = mean + rng.normal(0, 0.3, (200, 40))
    alone = np.eye(40)[rng.integers(0, 40, 200)] * rng.random((200, 1))
    assert bends(start, alone).min() > -1e-12
    # From one minimum to another, and on: along the ray of ties, started beside it.
    spread = np.asarray(distance(mean, weights))
    beside = mean + 0.3 * spread * rng.normal(1, 0.2, (200, 40))
    assert bends(beside, np.broadcast_to(0.3 * spread, (200, 40))).min() < -1e-6


def test_a_system_that_ties_with_the_mean(float64):
    weights, utility = np.array([[0.5, 0.3], [0.2, 0.4], [0.3, 0.3]]), np.array([1.0, 2.0, 0.0])
    mean = np.asarray(mean_baseline(weights))
    tau = mean + np.sqrt(0.02) / 2 * np.array([1, 1, -2])
    np.testing.assert_allclose(tau, [0.4707, 0.3707, 0.1586], atol=5e-5)
    np.testing.assert_allclose(tau.sum(), 1.0, rtol=1e-15)
    least = baseline_variance(mean, weights, utility)
    np.testing.assert_allclose(baseline_variance(tau, weights, utility), least, rtol=1e-14)
    np.testing.assert_allclose(baseline_gradient(tau, weights, utility), 0.0, atol=1e-15)


@pytest.mark.parametrize("seed", range(2))
def test_the_lagrangian(float64, seed):
    weights, utility = arrays(seed)
    norms = distance(mean_baseline(weights), weights)
    square = utility**2
    q, price = proposals.proposal(norms, square), multiplier(norms, square)
    slope = jax.jit(jax.grad(lagrangian, (0, 1)))
    by_q, by_price = slope(q, price, norms, square)
    inside = np.asarray(q) > 0
    np.testing.assert_allclose(by_q[inside] / price, 0.0, atol=1e-11)
    np.testing.assert_array_equal(by_q[~inside], price)
    np.testing.assert_allclose(by_price, 0.0, atol=1e-14)
    np.testing.assert_allclose(lagrangian(q, price, norms, square), price, rtol=1e-13)
    other = proposals.mixture(q, np.full(40, 1 / 40), 0.2)
    assert lagrangian(other, price, norms, square) > price
    assert np.abs(slope(other, price, norms, square)[0]).max() > 1e-2 * price


@pytest.mark.slow
def test_arrays_work_under_jit_vmap_and_grad(float64):
    weights, utility = arrays(1)
    taus = np.random.default_rng(0).random((3, 40))
    for function in (baseline_variance, baseline_gradient, gradient_size, reach):
        one = np.stack([function(tau, weights, utility) for tau in taus])
        many = jax.jit(jax.vmap(function, (0, None, None)))(taus, weights, utility)
        np.testing.assert_allclose(many, one, rtol=1e-12)
    by_weights = jax.jit(jax.grad(baseline_variance, (0, 1, 2)))(
        mean_baseline(weights), weights, utility
    )
    assert all(np.isfinite(slope).all() for slope in by_weights)
    hessian = jax.hessian(baseline_variance)(taus[0], weights, utility)
    np.testing.assert_allclose(
        hessian, jax.jacobian(baseline_gradient)(taus[0], weights, utility), rtol=1e-9, atol=1e-9
    )


def test_float32_is_refused():
    weights, utility = arrays(0)
    tau = weights.mean(1)
    for function in (baseline_variance, baseline_gradient, baseline_bound, gradient_size, reach):
        for called in (function, jax.jit(function)):
            with pytest.raises(PrecisionError, match="jax_enable_x64"):
                called(tau, weights, utility)
    with pytest.raises(PrecisionError):
        mean_baseline(weights)
    with pytest.raises(PrecisionError):
        lagrangian(utility, 1.0, tau, utility)


# --- Certificates that hold --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_pools(line_target, seed):
    weights, utility = arrays(seed)
    found = certify(line_target(weights.T), utility, seed=seed)
    assert found.passed, str(found)
    assert tuple(each.name for each in found.certificates) == NAMES
    kinks = (weights == weights[:, :1]).all(1).sum()
    assert found["kinks"].numbers["kinks"] == kinks > 0
    assert (
        found["optimal baseline"].numbers["relative gradient at random baselines, at least"] > 0.1
    )
    assert found["lower bound"].numbers["smallest gap of a random baseline, relative"] > 0.01


def test_negative_utilities(line_target):
    weights, utility = arrays(9)
    utility[::3] *= -1
    found = certify(line_target(weights.T), utility)
    assert found.passed, str(found)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "cells"), [(2, 12), (150, 30)])
def test_few_and_many_systems(line_target, k, cells):
    weights, utility = arrays(k, k, cells)
    found = certify(line_target(weights.T), utility)
    assert found.passed, str(found)
    assert found.systems == k


def test_a_dense_pool_of_shifted_rankings():
    # Every system returns all documents; some shift the best ranking or reverse its top.
    rng = np.random.default_rng(0)
    documents, grades = 20, {}
    names = ("best", "shift-3", "shift-5", "reverse-6", "reverse-9")
    runs: dict[str, dict] = {name: {} for name in names}
    for query in ("1", "2"):
        grade = rng.choice(5, documents, p=[0.6, 0.2, 0.1, 0.06, 0.04])
        best = np.argsort(-grade, kind="stable")
        for name in names:
            kind, _, by = name.partition("-")
            order = np.roll(best, int(by)) if kind == "shift" else best.copy()
            if kind == "reverse":
                order[: int(by)] = order[: int(by)][::-1]
            runs[name][query] = {f"d{d}": float(documents - i) for i, d in enumerate(order)}
        grades[query] = {f"d{d}": int(g) for d, g in enumerate(grade)}
    found = certify_runs(read_runs(runs), grammar.measure("DCG@20"), qrels=read_qrels(grades))
    assert found.passed, str(found)
    assert (found.cells, found.queries, found.utility) == (40, 2, "judged")


def test_utilities_and_seeds(line_target):
    made = line_target(arrays(0)[0].T)
    found = certify(made)
    assert found.passed
    assert found.utility == "rank"
    assert certify(made, flat(made.pool), seed=3).passed
    assert certify(made) == found
    given = certify(made, np.full(len(made.pool), 2.0))
    assert given.passed
    assert given.utility == "given"
    assert jnp.ones(1).dtype == jnp.float32


@pytest.mark.slow
@real
@pytest.mark.parametrize("judged", [True, False])
def test_trec8(judged):
    folder = DATA / "trec8-adhoc"
    names = set((folder / "judged-runs.txt").read_text(encoding="utf-8").split())
    runs = read_runs(folder / "runs-top100")
    runs = runs.select([system for system in runs.systems if system in names])
    qrels = read_qrels(folder / "qrels.trec8.adhoc.gz") if judged else None
    found = certify_runs(runs, grammar.measure("DCG@100"), qrels=qrels, n_baselines=3)
    assert found.passed, str(found)
    assert (found.systems, found.queries) == (71, 50)


# --- Certificates that fail --------------------------------------------------------------------


@pytest.fixture
def sample(line_target):
    """A target and its utility: of the shape of the random pools, which is compiled already."""
    weights, utility = arrays(0)
    return line_target(weights.T), utility


def test_another_baseline_fails(sample):
    made, utility = sample
    mean = made.mean_weight()
    moved = mean.copy()
    cell = int(np.argmax(utility * mean))
    moved[cell] *= 1.001
    all_of_the_mean = {"optimal baseline", "lower bound", "ties", "every proposal", "all pairs"}
    assert failed(certify(made, utility, baseline=moved)) == all_of_the_mean
    assert failed(certify(made, utility, baseline=0.9 * mean)) >= all_of_the_mean
    system = made.weights(np.arange(len(made.pool)))[:, 1]
    assert failed(certify(made, utility, baseline=system)) >= all_of_the_mean


def test_a_tie_is_told_from_the_mean(line_target):
    # The system of before, among cells on which nothing depends.
    weights, utility, move = np.zeros((2, 12)), np.zeros(12), np.zeros(12)
    weights[:, :3], utility[:3] = [[0.5, 0.2, 0.3], [0.3, 0.4, 0.3]], [1.0, 2.0, 0.0]
    move[:3] = np.sqrt(0.02) / 2 * np.array([1, 1, -2])
    tie = weights.mean(0) + move
    made = line_target(weights)
    assert certify(made, utility).passed
    # No worse at its own best proposal; but the mean alone is best for every proposal.
    lost = failed(certify(made, utility, baseline=tie))
    assert "every proposal" in lost
    assert not lost & {"optimal baseline", "lower bound", "gradient", "kinks"}


def papers_sign(tau, weights, utility):
    """The condition as the source paper prints it, with a plus before alpha."""
    lost = 2 * utility * (utility @ (weights - tau[:, None]).sum(1))
    return lost + (lost - baseline_gradient(tau, weights, utility))


def one_entry_off(tau, weights, utility):
    slope = baseline_gradient(tau, weights, utility)
    return slope.at[jnp.argsort(jnp.abs(slope))[len(tau) // 2]].multiply(1.001)


def naive_at_kinks(tau, weights, utility):
    apart = weights - tau[:, None]
    summed = apart.sum(1)
    length = jnp.sqrt((apart**2).sum(1))
    return -2 * utility * ((utility @ length) * summed / length - utility @ summed)


@pytest.mark.parametrize(
    ("gradient", "lost"),
    [
        (lambda *arrays: -baseline_gradient(*arrays), {"gradient"}),
        (papers_sign, {"gradient"}),
        (one_entry_off, {"gradient"}),
        (naive_at_kinks, {"optimal baseline", "gradient"}),
    ],
    ids=["flipped", "paper", "one entry", "naive"],
)
def test_another_gradient_fails(sample, gradient, lost):
    assert failed(certify(*sample, gradient=gradient)) == lost


def test_autodiff_gone_wrong_fails(sample, monkeypatch):
    def blind(tau, weights, utility):
        kept = jnp.where(jnp.arange(len(tau)) % 2 == 0, tau, jax.lax.stop_gradient(tau))
        return baseline_variance(kept, weights, utility)

    monkeypatch.setattr(checks, "baseline_variance", blind)
    # A function of its own, so that nothing compiled before is reused.
    found = certify(*sample, gradient=lambda *arrays: baseline_gradient(*arrays))
    assert failed(found) >= {"gradient", "differences"}


def perturbed(norms, second_moment):
    q = proposals.proposal(norms, second_moment)
    return q.at[jnp.argmax(q)].multiply(1 + 1e-9)


def papers_mistake(norms, second_moment):
    return proposals.proposal(norms, second_moment**2)


@pytest.mark.parametrize("proposal", [perturbed, papers_mistake])
def test_another_proposal_fails(sample, proposal):
    found = certify(*sample, proposal=proposal)
    assert failed(found) == {"optimal proposal"}
    assert set(found["optimal proposal"].numbers) == {
        "goal absolute",
        "goal pair",
        "goal baseline",
        "goal rank",
    }


@pytest.mark.parametrize("fault", ["worst", "bound below", "bound above", "design"])
def test_another_minimax_design_fails(sample, fault):
    def claimed(goal, utility):
        q, gap = DESIGNS["minimax"](goal, utility)
        assert gap is not None
        if fault == "design":
            return DESIGNS["optimal"](goal, utility)[0], gap
        if fault == "worst":
            return q, Gap(gap.worst * 1.01, gap.bound)
        return q, Gap(gap.worst, gap.bound * (0.99 if fault == "bound below" else 1.01))

    assert failed(certify(*sample, minimax=claimed)) == {"minimax design"}


def test_a_minimax_design_without_a_certificate(sample):
    with pytest.raises(EvenhandError, match="no duality gap"):
        certify(*sample, minimax=DESIGNS["optimal"])


# --- What they are -----------------------------------------------------------------------------


def test_a_certificate_prints_and_fails_on_nan():
    found = Certificate("kinks", "nothing is bent", 2e-3, 1e-6, {"kinks": 7})
    assert str(found) == (
        "kinks FAILS: nothing is bent\n  error 0.002, tolerance 1e-06\n  kinks: 7"
    )
    assert not found.passed
    assert Certificate("kinks", "nothing is bent", 1e-6, 1e-6).passed
    assert not Certificate("kinks", "nothing is bent", float("nan"), 1e-6).passed


def test_the_result_is_plain_and_prints(sample):
    found = certify(*sample)
    answer = json.loads(found.to_json())
    assert answer == found.to_dict()
    assert answer["passed"] is True
    for each in answer["certificates"]:
        assert type(each["passed"]) is bool
        assert type(each["error"]) is type(each["tolerance"]) is float
        assert all(type(value) in (int, float) for value in each["numbers"].values())
    text = str(found)
    assert "11 of 11 certificates hold" in text
    assert all(name in text for name in NAMES)
    assert found.to_frame()["holds"].tolist() == ["yes"] * 11
    for form in ("csv", "latex", "json"):
        assert "weak duality" in found.render(form)
    with pytest.raises(KeyError):
        found["no such certificate"]


def test_a_pool_too_large_is_sampled_by_query(monkeypatch):
    rng = np.random.default_rng(0)
    runs = {
        f"s{j}": {f"q{x}": {f"d{d}": rng.random() for d in range(8)} for x in range(10)}
        for j in range(5)
    }
    made = target(pool(read_runs(runs)), "DCG@8")
    monkeypatch.setattr(certification, "MOST", 5 * 8 * 5)  # five queries of eight cells
    utility = rng.random(len(made.pool))
    found = certify(made, utility, seed=1)
    assert found.passed, str(found)
    assert (found.queries, found.cells) == (5, 40)
    assert "certified on 5 of 10 queries, drawn by seed 1" in str(found)
    mean = made.mean_weight()
    assert certify(made, utility, seed=1, baseline=mean).passed
    chosen = np.random.default_rng(1).permutation(10)[:5]
    cells = np.flatnonzero(np.isin(made.pool.query, chosen))
    part = certification._restricted(made, cells)
    np.testing.assert_array_equal(part.weights(np.arange(40)), made.weights(cells))
    np.testing.assert_array_equal(goals.rank(part).norms(), goals.rank(made).norms()[cells])


def test_files(tmp_path):
    rng = np.random.default_rng(0)
    runs = tmp_path / "runs"
    runs.mkdir()
    for system in "abcde":
        lines = [f"{q} Q0 d{d} 0 {rng.random()} {system}" for q in range(5) for d in range(8)]
        (runs / system).write_text("\n".join(lines) + "\n", encoding="utf-8")
    qrels = tmp_path / "qrels"
    lines = [f"{q} 0 d{d} {rng.integers(0, 3)}" for q in range(5) for d in range(6)]
    qrels.write_text("\n".join(lines) + "\n", encoding="utf-8")
    by_rank = certify_files(runs, measure="DCG@8")
    assert by_rank.passed
    assert (by_rank.systems, by_rank.cells, by_rank.utility) == (5, 40, "rank")
    judged = certify_files(*sorted(runs.iterdir()), measure="DCG@8", qrels=[qrels])
    assert judged.passed
    assert judged.utility == "judged"
    Study.create(tmp_path / "study", runs, measure="DCG@8")
    assert certify_files(tmp_path / "study") == by_rank
    assert certify_files(tmp_path / "study", qrels=[str(qrels)]) == judged
    for paths in ([runs / "a"], [runs / "a", runs / "b"], [tmp_path / "study", runs]):
        with pytest.raises(EvenhandError, match="say which measure"):
            certify_files(*paths)
    with pytest.raises(EvenhandError, match="not a whole study"):
        certify_files(runs)


def test_faults_are_told(line_target):
    weights, utility = arrays(0)
    made = line_target(weights.T)
    with pytest.raises(EvenhandError, match="at least two systems"):
        certify(line_target(weights.T[:1]))
    with pytest.raises(EvenhandError, match="nothing to certify"):
        certify(line_target(np.stack([weights[:, 0]] * 5)))
    with pytest.raises(EvenhandError, match="nothing to certify"):
        certify(made, np.where((weights == weights[:, :1]).all(1), 1.0, 0.0))
    with pytest.raises(EvenhandError, match=r"utility must be .* each of the 40 pairs"):
        certify(made, utility[:-1])
    with pytest.raises(EvenhandError, match="baseline must be"):
        certify(made, utility, baseline=np.full(40, np.nan))
    with pytest.raises(EvenhandError, match="at least 1 random baseline"):
        certify(made, utility, n_baselines=0)


def test_twins_first(line_target):
    # The first two systems are one: the pair has nothing to design for, and the rest holds.
    weights, utility = arrays(0)
    weights[:, 1] = weights[:, 0]
    found = certify(line_target(weights.T), known_utility(utility))
    assert found.passed, str(found)
    assert "goal pair" not in found["optimal proposal"].numbers
