"""Samplers: their exact laws, what may never happen, and one look at real draws."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.designs.proposals import Design, design
from evenhand.designs.utilities import flat
from evenhand.errors import EvenhandError, PrecisionError
from evenhand.estimands import goals
from evenhand.float64 import in_float64
from evenhand.sampling import algorithms
from evenhand.sampling.algorithms import cumulate, shuffle, water_fill
from evenhand.sampling.folds import Folds, fold_of, fold_sizes, folds_for
from evenhand.sampling.samplers import (
    SAMPLERS,
    draw,
    expected_by_fold,
    layout,
    slice_order,
    slices_variance,
)
from evenhand.sampling.samples import Sample

EXACT = 1e-12
LARGEST = 1.0 - 2.0**-53  # the largest double below 1
PROPOSALS = {
    "even": [0.25, 0.25, 0.25, 0.25],
    "steep": [0.6, 0.25, 0.1, 0.05],
    "holes": [0.0, 0.3, 0.0, 0.45, 0.25, 0.0],
    "rising": [0.01, 0.09, 0.2, 0.3, 0.4],
}


_fill, _cumulate = jax.jit(water_fill), jax.jit(cumulate)


@in_float64
def filled_up(q, n):
    """Water-filled expectations, in NumPy."""
    return np.asarray(_fill(np.array(q, np.float64), n))


@in_float64
def cumulated(mass):
    """Cumulative shares as compiled code has them, in NumPy."""
    return np.asarray(_cumulate(np.array(mass, np.float64)))


def supplied(sampler, monkeypatch):
    """The sampler as a compiled function of the uniforms that it finds: (uniforms, expected)."""

    def run(uniforms, expected):
        def uniform(key, shape=(), dtype=None):
            return uniforms[: math.prod(shape)].reshape(shape)

        with monkeypatch.context() as patch:
            patch.setattr(jax.random, "uniform", uniform)
            return sampler(jax.random.key(0), expected)

    return jax.jit(run)


# Exact laws


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_expected_counts_are_exact(draws_law, expected_counts, sampler, proposal, n):
    q = np.array(PROPOSALS[proposal])
    expected = expected_counts(sampler, q, n)
    law = draws_law(sampler, expected, n)
    assert expected.sum() == pytest.approx(n, abs=1e-14)
    assert ((expected > 0) == (q > 0)).all()
    assert law.draws.shape[1] == n
    assert abs(law.probability.sum() - 1) <= EXACT
    counts = law.counts(len(q))
    np.testing.assert_allclose(law.mean(counts), expected, rtol=0, atol=EXACT)
    if SAMPLERS[sampler].repeats:
        np.testing.assert_allclose(expected, n * q, rtol=1e-15)
    else:
        assert counts.max() == 1


def test_independent_draws_are_independent(draws_law):
    # The law of counts is multinomial.
    q = np.array(PROPOSALS["steep"])
    law = draws_law("iid", 3 * q, 3)
    expected = scipy.stats.multinomial.pmf(law.counts(4), 3, q)
    np.testing.assert_allclose(law.probability, expected, rtol=1e-12)
    assert len(law.draws) == 20


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_slices_follow_the_order_given(draws_law, order):
    # Two slices: the first draws from the first half of the mass in this order.
    q, order = np.array([0.5, 0.3, 0.2]), np.array(order)
    law = draws_law("slices", 2 * q, 2, order=order)
    np.testing.assert_allclose(law.mean(law.counts(3)), 2 * q, atol=EXACT)
    # A cell's count deviates from its expectation by less than 2 ends of slices allow.
    assert (np.abs(law.counts(3) - 2 * q) < 2).all()


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(4))))
def test_distinct_keeps_its_law_in_every_order(draws_law, expected_counts, permutation):
    for proposal, n in (("even", 2), ("steep", 2), ("steep", 3)):
        expected = expected_counts("distinct", PROPOSALS[proposal], n)
        law = draws_law("distinct", expected, n, permutation=np.array(permutation))
        counts = law.counts(4)
        assert counts.max() == 1
        np.testing.assert_allclose(law.mean(counts), expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize(("share", "certain"), [(10, 1), (3, 2), (7, 3)])
def test_certain_cells_are_drawn_once_in_every_order(share, certain):
    # Sums such as ten times 0.1, just short of 1, made a certain cell seem to span two points.
    expected = np.concatenate([np.full(share, 1 / share), np.ones(certain)])
    n = certain + 1
    rng = np.random.default_rng(0)
    orders = np.array(
        [np.arange(len(expected)), *(rng.permutation(len(expected)) for _ in range(2000))]
    )
    with jax.enable_x64(True):
        one = jax.jit(jax.vmap(lambda key, e: algorithms.pivotal(key, e, n)))
        place = np.asarray(one(jax.random.split(jax.random.key(1), len(orders)), expected[orders]))
    drawn = np.sort(np.take_along_axis(orders, place, 1), 1)
    assert (np.diff(drawn, axis=1) > 0).all()
    np.testing.assert_array_equal(
        drawn[:, 1:], np.tile(share + np.arange(certain), (len(orders), 1))
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 100, 1023, 1025, 70_000])
def test_shuffle_is_a_permutation(n):
    size = 1 << max(1, (n - 1).bit_length())
    orders = [np.asarray(shuffle(jax.random.key(seed), n)) for seed in range(8)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(size))
    assert n < 4 or len({order.tobytes() for order in orders}) > 1


def test_shuffle_puts_every_cell_everywhere():
    """Position of cell 0 among 16 over 8,000 keys is uniform, at a false-alarm rate of 1e-6.

    In 99 % of cases the test finds a place that is 45 % too frequent.
    """
    keys = jax.random.split(jax.random.key(5), 8000)
    place = np.asarray(jax.jit(jax.vmap(lambda k: jnp.argmin(shuffle(k, 16))))(keys))
    limit = scipy.stats.chi2.isf(1e-6, 15)
    assert scipy.stats.ncx2.sf(limit, 15, 8000 * 0.45**2 / 16) > 0.99
    assert scipy.stats.chisquare(np.bincount(place, minlength=16)).statistic < limit


# What may never happen


@pytest.mark.parametrize("place", ["ends", "inside", "spread"])
def test_cells_without_mass_are_never_drawn(monkeypatch, place):
    mass = np.array([1e-300, 1.0, 1e-12, 0.3, 1e-100, 0.7, 1e-17, 2.0, 1e-5, 1e-200])
    if place == "ends":
        mass = np.concatenate([np.zeros(3), mass, np.zeros(3)])
    elif place == "inside":
        mass[[2, 4, 5, 8]] = 0
    else:
        mass = np.insert(mass, np.arange(len(mass) + 1), 0.0)
    extremes = np.array([0.0, 5e-324, 1e-300, 2.0**-53, 0.25, 0.5, LARGEST - 2.0**-53, LARGEST])
    share = mass / mass.sum()
    edges = np.cumsum(share)
    near = np.clip(
        np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)]), 0, LARGEST
    )
    uniforms = np.concatenate([extremes, near])
    n, cells = len(uniforms), jnp.arange(len(mass))
    with jax.enable_x64(True):
        for law in SAMPLERS.values():
            if law.repeats:
                run = supplied(lambda k, e, law=law: law.draw(k, e, n, cells, None), monkeypatch)
                drawn = np.asarray(run(uniforms, n * share))
                assert ((drawn >= 0) & (drawn < len(mass))).all()
                assert (mass[drawn] > 0).all()
        run = supplied(lambda k, e: algorithms.pivotal(k, e, 2), monkeypatch)
        expected = filled_up(share, 2)
        for four in itertools.product(extremes[[0, 2, 4, 6, 7]], repeat=4):
            drawn = np.asarray(run(np.array(four), expected))
            assert (mass[drawn] > 0).all()
            assert drawn[0] != drawn[1]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1e-16, 0.1, 1 / 3, 1.0, 7.0]), min_size=12, max_size=12)
)
def test_cumulated_mass_grows_to_exactly_one(mass):
    if not sum(mass):
        return
    mass = np.array(mass)
    share = cumulated(mass)
    assert share[-1] == 1
    assert (np.diff(share, prepend=0.0) >= 0).all()
    assert (np.diff(share, prepend=0.0)[mass == 0] == 0).all()


def test_trap_float32_cumulative_sums():
    # Half of the cells would have no mass. float64 grows at every cell, and float32 is refused.
    rng = np.random.default_rng(0)
    mass = rng.random(1_000_000) + 0.01
    mass[rng.random(len(mass)) < 0.2] = 0
    share = cumulated(mass)
    steps = np.diff(share, prepend=0.0)
    assert (steps[mass > 0] > 0).all()
    assert (steps[mass == 0] == 0).all()
    assert share[-1] == 1
    for refused in (cumulate, lambda q: water_fill(q, 1), lambda q: SAMPLERS["iid"].expected(q, 2)):
        with pytest.raises(PrecisionError, match="float64") as error:
            refused(mass[:100])
        assert "jax_enable_x64" in error.value.hint


# Water-filling


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.floats(1e-6, 1.0), min_size=8, max_size=8),
    st.integers(1, 8),
    st.sampled_from([1, 4, 10]),
)
def test_water_filling(mass, n, power):
    q = np.array(mass) ** power
    q /= q.sum()
    if q.min() < 1e-12:
        return
    filled = filled_up(q, n)
    assert filled.sum() == pytest.approx(n, abs=1e-11)
    assert filled.max() <= 1
    free = filled < 1
    ratio = filled[free] / q[free]
    if len(ratio):
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-10)
        # A cell is full only if its share of the water is 1 at that level.
        assert (q[~free] * ratio[0] >= 1 - 1e-10).all()
    order = np.argsort(q)
    assert (np.diff(filled[order]) >= -1e-15).all()


def test_trap_inclusion_probabilities_truncated_instead_of_water_filled():
    q = np.array([0.7, 0.1, 0.1, 0.1])
    filled = filled_up(q, 2)
    np.testing.assert_allclose(filled, [1, 1 / 3, 1 / 3, 1 / 3], rtol=1e-15)
    assert np.minimum(1, 2 * q).sum() < 1.7
    # Filling one cell can spill over the next.
    np.testing.assert_allclose(filled_up([0.6, 0.3, 0.05, 0.05], 3), [1, 1, 0.5, 0.5], rtol=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_as_many_draws_as_cells_are_certain(seed):
    rng = np.random.default_rng(seed)
    for k in (1, 2, 5, 8):
        for power in (0, 1, 6):
            q = np.zeros(8)
            q[rng.permutation(8)[:k]] = rng.random(k) ** power
            q /= q.sum()
            np.testing.assert_array_equal(filled_up(q, k), (q > 0).astype(float))


# Slices


def exact_variances(z, q, n):
    iid = (q * z**2).sum() - (q @ z) ** 2
    return iid / n


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(0, 1)), min_size=7, max_size=7),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_slices_never_vary_more_than_iid(cells, n, random):
    z, mass = np.array(cells).T
    mass = mass + 1e-3
    q = mass / mass.sum()
    order = list(range(len(q)))
    random.shuffle(order)
    found = slices_variance(z[:, None], q, np.array(order), n)[0]
    assert -1e-12 <= found <= exact_variances(z, q, n) + 1e-12


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("proposal", PROPOSALS)
def test_slices_variance_is_that_of_their_law(draws_law, proposal, n):
    q = np.array(PROPOSALS[proposal])
    z = np.random.default_rng(0).normal(size=(len(q), 2))
    for order in (np.arange(len(q)), np.argsort(-z[:, 0])):
        law = draws_law("slices", n * q, n, order=order)
        values = z[law.draws].mean(1)
        true = law.mean(values**2) - law.mean(values) ** 2
        np.testing.assert_allclose(slices_variance(z, q, order, n), true, atol=1e-13)


def test_trap_systematic_sampling_in_layout_order(draws_law):
    # One uniform for all slices resonates with a period of the layout; slices of their own do not.
    q, z = np.full(8, 1 / 8), np.array([1.0, -1.0] * 4)
    assert "systematic" not in SAMPLERS
    systematic = z.reshape(4, 2).mean(0).var()
    assert systematic == pytest.approx(4 * exact_variances(z, q, 4))
    assert slices_variance(z[:, None], q, np.arange(8), 4)[0] <= exact_variances(z, q, 4)


def test_slice_order_is_telling(tiny, make_goal):
    target, _ = tiny("missed")
    order = slice_order(make_goal(target, "pair"))
    np.testing.assert_array_equal(np.sort(order), np.arange(len(target.pool)))
    sign = np.sign(make_goal(target, "pair").at(order)[:, 0])
    assert (np.diff(sign) >= 0).all()
    best = np.minimum.reduceat(target.pool.rank, target.pool.start[:-1])
    assert (np.diff(best[slice_order(make_goal(target, "rank"))]) >= 0).all()


# Real draws


@pytest.fixture(scope="module")
def fifty(line_target):
    rng = np.random.default_rng(3)
    target = line_target(rng.random((2, 50)) ** 3)
    return design(goals.absolute(target), flat(target.pool), floor=0.1)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_real_draws_fit_the_proposal(fifty, expected_counts, sampler):
    """The cells of 20,000 rounds of one draw against q, at a false-alarm rate of 1e-6.

    In 99 % of cases the test finds a law p that is off by sum (p - q)^2 / q = 0.0065: for example
    by 8 % on every cell, up on one half of the mass and down on the other.
    """
    n, alarm, power = 20_000, 1e-6, 0.99
    law, q = SAMPLERS[sampler], fifty.q
    limit = scipy.stats.chi2.isf(alarm, len(q) - 1)
    assert scipy.stats.ncx2.sf(limit, len(q) - 1, n * 0.0065) > power
    assert n * q.min() > 5
    with jax.enable_x64(True):
        expected = law.expected(q, 1)
        one = jax.jit(jax.vmap(lambda key: law.draw(key, expected, 1, jnp.arange(len(q)), None)[0]))
        drawn = np.asarray(one(jax.random.split(jax.random.key(11), n)))
    counts = np.bincount(drawn, minlength=len(q))
    assert scipy.stats.chisquare(counts, n * q).statistic < limit


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_real_counts_have_their_expectation(fifty, expected_counts, sampler):
    """Mean counts of 4,000 rounds of ten draws; false-alarm rate 1e-6 over the 50 cells.

    The variance of a count is at most its expectation E. A cell of E > 0.2 that is 45 % off is
    found, for the limit is less than half of that.
    """
    rounds, n = 4000, 10
    law = SAMPLERS[sampler]
    expected = expected_counts(sampler, fifty.q, n)
    order = slice_order(fifty.goal)
    with jax.enable_x64(True):
        many = jax.jit(
            jax.vmap(lambda key: law.draw(key, jnp.asarray(expected), n, jnp.asarray(order), None))
        )
        drawn = np.asarray(many(jax.random.split(jax.random.key(12), rounds)))
    if not law.repeats:
        assert (np.diff(np.sort(drawn, 1), axis=1) > 0).all()
    mean = np.bincount(drawn.reshape(-1), minlength=50) / rounds
    limit = scipy.stats.norm.isf(1e-6 / 100) * np.sqrt(expected / rounds)
    assert 2 * limit[expected > 0.2].max() < 0.45
    assert (np.abs(mean - expected) <= limit + 1e-12).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_draws_are_a_function_of_the_key(fifty, sampler):
    samples = [draw(jax.random.key(seed), fifty, 8, sampler=sampler) for seed in (0, 0, 1, 2)]
    np.testing.assert_array_equal(samples[0].draws, samples[1].draws)
    assert len({s.draws.tobytes() for s in samples}) == 3
    sample = samples[0]
    assert (sample.sampler, len(sample), sample.draws.dtype) == (sampler, 8, np.int64)
    assert sample.expected.dtype == np.float64
    assert sample.expected.sum() == pytest.approx(8)
    for array in (sample.draws, sample.expected):
        assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(sample.cells, np.unique(sample.draws))
    assert sampler in repr(sample)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_work_under_vmap(fifty, sampler):
    law = SAMPLERS[sampler]
    order = jnp.arange(50)
    with jax.enable_x64(True):
        expected = law.expected(jnp.asarray(fifty.q), 6)
        keys = jax.random.split(jax.random.key(0), 4)
        one = jax.jit(lambda key: law.draw(key, expected, 6, order, None))
        together = np.asarray(jax.vmap(one)(keys))
        alone = [np.asarray(one(key)) for key in keys]
    np.testing.assert_array_equal(together, alone)


def test_drawing_every_cell_draws_every_cell(fifty):
    sample = draw(jax.random.key(0), fifty, 50)
    np.testing.assert_array_equal(sample.cells, np.arange(50))
    np.testing.assert_array_equal(sample.expected, np.ones(50))


# By fold


def test_folds_are_balanced_and_stay_what_they_are():
    # A study that is read back, or goes on elsewhere, must find the folds that it was drawn by.
    assert fold_of(16, 4).tolist() == [3, 1, 2, 1, 2, 2, 0, 3, 2, 0, 2, 1, 3, 3, 2, 1]
    assert fold_of(5, 1).tolist() == [0] * 5
    for folds in (2, 3, 4, 5):
        many = fold_of(100_000, folds)
        assert many.dtype == np.int32
        # Cells that join the pool leave the others where they are.
        np.testing.assert_array_equal(many[:1000], fold_of(1000, folds))
        counts = np.bincount(many, minlength=folds)
        assert scipy.stats.chisquare(counts).pvalue > 1e-6
        # Neighbours are mostly of one query: they fall apart like strangers.
        pairs = np.bincount(many[1:] * folds + many[:-1], minlength=folds**2)
        assert scipy.stats.chisquare(pairs).pvalue > 1e-6


def test_few_draws_are_not_split_into_folds(fifty):
    assert folds_for(39, 50) is None
    assert folds_for(400, 50, 1) is None
    np.testing.assert_array_equal(folds_for(40, 50), fold_of(50, 4))
    np.testing.assert_array_equal(folds_for(20, 50, 2), fold_of(50, 2))
    for n, folds in ((39, 1), (40, 4)):
        assert draw(jax.random.key(0), fifty, n, sampler="iid").n_folds == folds
    with pytest.raises(EvenhandError, match="number of folds must be at least 1, got 0"):
        draw(jax.random.key(0), fifty, 40, folds=0)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_fold_sizes(data):
    folds = data.draw(st.integers(1, 6))
    support = np.array(data.draw(st.lists(st.integers(0, 30), min_size=folds, max_size=folds)))
    alive = int((support > 0).sum())
    if not alive:
        return
    n = data.draw(st.integers(alive, int(support.sum())))
    # Expectations of at most the support that sum to n, as water-filling gives.
    share = np.array(data.draw(st.lists(st.floats(0.01, 1), min_size=folds, max_size=folds)))
    q = np.zeros(180)  # one length for all, which compiles once
    q[: support.sum()] = np.repeat(share, support) / (share @ support)
    expected = np.bincount(
        np.repeat(np.arange(folds), support), filled_up(q, n)[: support.sum()], minlength=folds
    )
    sizes = fold_sizes(expected, support)
    assert sizes.dtype == np.int64
    assert sizes.sum() == n
    assert (sizes <= support).all()
    assert (sizes[support > 0] >= 1).all()
    # Each fold that had to be given its one draw takes at most one from the others.
    raised = int(((expected < 1 - 1e-9) & (support > 0)).sum())
    assert (np.abs(sizes - expected) < 1 + raised + 1e-9).all()
    whole = np.round(expected, 9) == np.round(expected)
    if whole.all() and not raised:
        np.testing.assert_array_equal(sizes, np.round(expected))


FOLDED = {
    # Cells' proposals, folds and draws of each fold.
    "two and two": ([0.2, 0.15, 0.1, 0.25, 0.1, 0.2], [0, 1, 0, 1, 1, 0], 4),
    "hole": ([0.2, 0.0, 0.2, 0.1, 0.3, 0.2], [0, 0, 1, 0, 1, 1], 3),
    "full": ([0.05, 0.05, 0.1, 0.4, 0.4], [0, 0, 1, 0, 1], 3),
    "three": ([0.1, 0.2, 0.3, 0.1, 0.3], [2, 0, 1, 1, 0], 3),
}


def by_fold(sampler, case):
    """Expectations, and (of, sizes)."""
    q, of, n = (np.array(x) for x in FOLDED[case])
    expected, sizes = expected_by_fold(sampler, q, int(n), of)
    return expected, (of, sizes)


def check_folds(law, expected, folds):
    """Expectations, number of draws of each fold, and independence of the folds, to EXACT."""
    of, sizes = folds
    counts = law.counts(len(of))
    np.testing.assert_allclose(law.mean(counts), expected, rtol=0, atol=EXACT)
    parts = []
    for f, size in enumerate(sizes):
        assert (counts[:, of == f].sum(1) == size).all()
        parts.append(np.unique(counts[:, of == f], axis=0, return_inverse=True)[1].reshape(-1))
    shape = [part.max() + 1 for part in parts]
    joint = np.zeros(shape)
    np.add.at(joint, tuple(parts), law.probability)
    marginals = [
        joint.sum(tuple(a for a in range(len(shape)) if a != f)) for f in range(len(shape))
    ]
    product = marginals[0]
    for marginal in marginals[1:]:
        product = np.multiply.outer(product, marginal)
    np.testing.assert_allclose(joint, product, rtol=0, atol=EXACT)


@pytest.mark.parametrize("case", FOLDED)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_folds_are_drawn_independently_with_exact_expectations(draws_law, sampler, case):
    expected, (of, sizes) = by_fold(sampler, case)
    q, n = np.array(FOLDED[case][0]), FOLDED[case][2]
    assert sizes.sum() == n
    assert ((expected > 0) == (q > 0)).all()
    np.testing.assert_allclose(np.bincount(of, expected), sizes, rtol=1e-14)
    for f in range(len(sizes)):  # in proportion within a fold, but for what is certain
        ratio = (expected / np.where(q > 0, q, 1))[(of == f) & (expected < 1) & (q > 0)]
        np.testing.assert_allclose(ratio, ratio[:1].repeat(len(ratio)), rtol=1e-12)
    law = draws_law(sampler, expected, n, folds=(of, sizes))
    check_folds(law, expected, (of, sizes))
    if not SAMPLERS[sampler].repeats:
        assert law.counts(len(q)).max() == 1
    # A telling order within each fold changes nothing of it.
    telling = np.lexsort((-q, of))
    check_folds(
        draws_law(sampler, expected, n, order=telling, folds=(of, sizes)), expected, (of, sizes)
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", ["two and two", "hole", "three"])
def test_distinct_folds_are_independent_in_every_order(draws_law, case, seed):
    expected, folds = by_fold("distinct", case)
    # Padding may stand anywhere too.
    permutation = np.random.default_rng(seed).permutation(8)
    law = draws_law("distinct", expected, FOLDED[case][2], permutation=permutation, folds=folds)
    check_folds(law, expected, folds)
    assert law.counts(len(expected)).max() == 1


def test_trap_folds_of_one_common_draw(draws_law, expected_counts):
    # Drawn as one, what one fold has the other lacks.
    q, of = np.array(FOLDED["two and two"][0]), np.array(FOLDED["two and two"][1])
    law = draws_law("distinct", expected_counts("distinct", q, 4), 4)
    first = law.counts(6)[:, of == 0].sum(1)
    assert len(np.unique(first)) > 1
    assert expected_by_fold("distinct", q, 4)[1] is None


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_layout_goes_fold_by_fold(tiny, make_goal, sampler):
    goal = make_goal(tiny("twins")[0], "pair")
    of = np.array([1, 0, 1, 0, 0, 1])
    order = layout(goal, sampler, of)
    if sampler == "distinct":  # in a random order of its own
        assert len(order) == 0
        return
    np.testing.assert_array_equal(np.sort(order), np.arange(6))
    assert (np.diff(of[order]) >= 0).all()
    telling = slice_order(goal) if sampler == "slices" else np.arange(6)
    for f in (0, 1):
        np.testing.assert_array_equal(order[of[order] == f], telling[of[telling] == f])
    assert len(layout(goal, "iid")) == 0
    np.testing.assert_array_equal(layout(goal, "slices"), slice_order(goal))


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_real_draws_by_fold(line_target, sampler):
    """Each fold has exactly its draws, and counts their expectation, over 2,000 rounds of 48.

    The limit has a false-alarm rate of 1e-6 over the 80 cells; see the test without folds.
    """
    rng = np.random.default_rng(4)
    target, rounds, n = line_target(rng.random((2, 80)) ** 3), 2000, 48
    plan = design(goals.absolute(target), flat(target.pool), floor=0.1)
    samples = [draw(jax.random.key(seed), plan, n, sampler=sampler) for seed in range(3)]
    of = fold_of(80, 4)
    expected, sizes = expected_by_fold(sampler, plan.q, n, of)
    assert sizes.tolist() == np.bincount(of[samples[0].draws], minlength=4).tolist()
    for sample in samples:
        np.testing.assert_array_equal(sample.expected, expected)
        np.testing.assert_array_equal(sample.fold, of)
        np.testing.assert_array_equal(np.bincount(sample.fold_at(sample.draws)), sizes)
        assert sample.n_folds == 4
    with jax.enable_x64(True):
        order, folds = (
            jnp.asarray(layout(plan.goal, sampler, of)),
            Folds(*map(jnp.asarray, (of, sizes))),
        )

        def one(key):
            return SAMPLERS[sampler].draw(key, jnp.asarray(expected), n, order, folds)

        keys = jax.random.split(jax.random.key(12), rounds)
        drawn = np.asarray(jax.jit(jax.vmap(one))(keys))
    for key, draws in zip(keys[:2], drawn[:2], strict=True):
        np.testing.assert_array_equal(draw(key, plan, n, sampler=sampler).draws, draws)
    counts = np.array([np.bincount(d, minlength=80) for d in drawn])
    for f in range(4):
        assert (counts[:, of == f].sum(1) == sizes[f]).all()
    if not SAMPLERS[sampler].repeats:
        assert counts.max() == 1
    limit = scipy.stats.norm.isf(1e-6 / 160) * np.sqrt(expected / rounds)
    assert (np.abs(counts.mean(0) - expected) <= limit + 1e-12).all()


def test_drawing_every_cell_by_fold_draws_every_cell(fifty):
    sample = draw(jax.random.key(0), fifty, 50)
    assert sample.n_folds == 4
    np.testing.assert_array_equal(sample.cells, np.arange(50))
    np.testing.assert_array_equal(sample.expected, np.ones(50))


# Covariance


def covariance(sampler, z, expected, fold, folds):
    """Covariance of the sum over some draws, in NumPy."""
    with jax.enable_x64(True):
        compiled = jax.jit(SAMPLERS[sampler].covariance, static_argnums=3)
        return jax.tree.map(np.asarray, compiled(z, expected, np.asarray(fold, np.int32), folds))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_covariances_of_folds_add_up(sampler):
    rng = np.random.default_rng(0)
    z, expected = rng.normal(size=(12, 3)), rng.uniform(0.1, 0.9, 12)
    expected[[2, 7]] = 1.0  # certain
    fold = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 3, 3, 3])  # none of fold 2
    found, degrees = covariance(sampler, z, expected, fold, 4)
    rows = [fold == f for f in (0, 1, 3)]
    apart = [covariance(sampler, z[r], expected[r], np.zeros(r.sum()), 1) for r in rows]
    np.testing.assert_allclose(found, sum(c for c, _ in apart), rtol=1e-12)
    assert degrees == sum(d for _, d in apart)
    if sampler == "iid":
        np.testing.assert_allclose(found, sum(np.cov(z[r].T) * r.sum() for r in rows), rtol=1e-12)
    if sampler == "slices":  # pairs of neighbours, and three where one would be left over
        groups = [[0, 1], [2, 3, 4], [5, 6], [7, 8], [9, 10, 11]]
        by_hand = sum(np.cov(z[g].T) * len(g) for g in groups)
        np.testing.assert_allclose(found, by_hand, rtol=1e-12)
        assert degrees == 7


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_fold_with_one_free_draw_counts_with_its_square(sampler):
    z = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])
    expected = np.array([0.75, 0.5, 0.5])
    found, degrees = covariance(sampler, z, expected, [1, 0, 0], 2)
    alone, _ = covariance(sampler, z[1:], expected[1:], [0, 0], 1)
    free = 0.25 if sampler == "distinct" else 1.0
    np.testing.assert_allclose(found, alone + free * np.outer(z[0], z[0]), rtol=1e-12)
    assert degrees == 1
    # Each fold with one: the sum of their squares, which still says something.
    found, degrees = covariance(sampler, z, expected, [0, 1, 2], 3)
    free = 1 - expected if sampler == "distinct" else np.ones(3)
    np.testing.assert_allclose(found, (free * z.T) @ z, atol=1e-14)
    assert (np.diag(found) > 0).all()
    # One in all, too.
    found, _ = covariance(sampler, z[:1], expected[:1], [1], 2)
    np.testing.assert_allclose(found, free[0] * np.outer(z[0], z[0]), rtol=1e-12)
    if sampler == "distinct":
        # What is certain does not vary, nor counts as a draw that does.
        np.testing.assert_array_equal(covariance(sampler, z, np.ones(3), [1, 0, 0], 2)[0], 0)
        one_free = np.array([1.0, 1.0, 0.5])
        found, _ = covariance(sampler, z, one_free, [1, 0, 0], 2)
        np.testing.assert_allclose(found, 0.5 * np.outer(z[2], z[2]), rtol=1e-12)


# What is refused


@pytest.mark.slow
def test_faults_are_told(fifty):
    key = jax.random.key(0)
    with pytest.raises(EvenhandError, match="at least 1, got 0"):
        draw(key, fifty, 0)
    with pytest.raises(
        EvenhandError, match="cannot draw 51 distinct pairs: the design can draw 50"
    ):
        draw(key, fifty, 51)
    half = Design(fifty.goal, "half", np.repeat([0.04, 0.0], 25), 0.0)
    with pytest.raises(EvenhandError, match="the design can draw 25"):
        draw(key, half, 26)
    with pytest.raises(EvenhandError, match="unknown sampler 'poisson'") as error:
        draw(key, fifty, 5, sampler="poisson")
    for name in SAMPLERS:
        assert name in error.value.hint
    # With replacement there may be more draws than cells.
    assert isinstance(draw(key, half, 60, sampler="iid"), Sample)
