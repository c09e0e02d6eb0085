"""Pairs of documents: the sampler's law is exactly the proposal's, and this what it says."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from evenhand.errors import EvenhandError, SupportError
from evenhand.estimands import targets
from evenhand.estimands.pools import pool
from evenhand.float64 import in_float64
from evenhand.formats.runs import read_runs
from evenhand.sampling import document_pairs
from evenhand.sampling.document_pairs import PairDesign, draw_pairs, pair_design, shares

LAST = 1.0 - 2.0**-52  # the largest uniform that JAX makes

#: Query q3 has one document, and no pair; y misses d and q2, z has q1 only.
RUNS = {
    "x": {
        "q1": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0},
        "q2": {"e": 2.0, "f": 1.0},
        "q3": {"g": 1.0},
    },
    "y": {"q1": {"c": 4.0, "b": 3.0, "a": 1.0}, "q3": {"g": 1.0}},
    "z": {"q1": {"d": 2.0, "b": 1.5, "a": 1.0}},
}


def asked(name: str = "Swaps", runs=RUNS) -> targets.Target:
    return targets.target(pool(read_runs(runs)), name)


def all_pairs(target: targets.Target) -> list[tuple[int, int]]:
    query = target.pool.query
    return [p for p in itertools.combinations(range(len(query)), 2) if len(set(query[[*p]])) == 1]


def loop_shares(measure: str, length: int) -> list[float]:
    """What each rank of a list gives, by the definition in the paper's Table 1."""
    cutoff = int(measure.partition("@")[2] or length)
    n = min(length, cutoff)
    if n < 2:
        return [0.0] * length
    root = math.sqrt(n * (n - 1) / 2)
    weigh = (lambda r: 1 / r) if measure.startswith("w") else (lambda r: 1.0)
    return [weigh(r) / root if r <= n else 0.0 for r in range(1, length + 1)]


def test_the_proposal_is_equation_1():
    target = asked()
    rng = np.random.default_rng(0)
    s, p = rng.random(7), rng.random(3)
    made = pair_design(target, share=s, by_query=p, floor=0.0)
    query = target.pool.query
    named = dict(zip(target.pool.documents.to_pylist(), target.pool.document, strict=True))
    assert list(named) == list("abcdefg")
    s[6] = p[2] = 0.0  # the third query has no pair
    total = 0.0
    for i, k in all_pairs(target):
        x = query[i]
        own = s[query == x] / s[query == x].sum()
        apart = sum(one * other for one, other in itertools.permutations(own, 2))
        by_hand = p[x] / p.sum() * 2 * s[i] * s[k] / s[query == x].sum() ** 2 / apart
        total += by_hand
        for first, second in ((i, k), (k, i)):
            found = made.probability(np.array([first]), np.array([second]))[0]
            assert abs(found - by_hand) < 1e-14
    assert abs(total - 1) < 1e-12
    assert made.probability(np.array([0, 1]), np.array([4, 1])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["Swaps", "wSwaps", "wSwaps@2"])
def test_the_default_is_equations_2_and_3(name):
    target = asked(name)
    ids = dict(zip("abcdefg", range(7), strict=True))
    square, by_list = np.zeros(7), []
    for runs in RUNS.values():
        for found in runs.values():
            order = sorted(found, key=found.get, reverse=True)
            one = {ids[d]: g for d, g in zip(order, loop_shares(name, len(order)), strict=True)}
            by_list.append(one)
            for i, g in one.items():
                square[i] += g**2 / len(RUNS)
    query, s = target.pool.query, np.sqrt(square)
    total = np.array([max(s[query == x].sum(), 1e-300) for x in range(3)])
    s = s / total[query]
    spread = np.zeros(3)
    for i, k in all_pairs(target):
        x = query[i]
        q = 2 * s[i] * s[k] / (1 - (s[query == x] ** 2).sum())
        worth = sum((one.get(i, 0) * one.get(k, 0)) ** 2 for one in by_list)
        if worth:
            spread[x] += worth / q
    p = np.sqrt(spread) / np.sqrt(spread).sum()
    found = pair_design(target, floor=0.0)
    np.testing.assert_allclose(found.share, s, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.by_query, p, rtol=0, atol=1e-12)
    counts, answered = s > 0, np.array([True, True, False])
    even = counts / np.array([max(counts[query == x].sum(), 1) for x in range(3)])[query]
    mixed = pair_design(target, share=s, by_query=p, floor=0.3)
    np.testing.assert_allclose(mixed.share, 0.7 * s + 0.3 * even, rtol=0, atol=1e-12)
    np.testing.assert_allclose(mixed.by_query, 0.7 * p + 0.3 * answered / 2, rtol=0, atol=1e-12)


def pieces(function) -> list[tuple[int, float, float]]:
    """Value, middle and length of every piece of a piecewise constant function on [0, 1)."""
    places = np.append(np.arange(4096) / 4096, LAST)
    found = function(places)
    at = np.flatnonzero(found[1:] != found[:-1])
    low, high = places[at], places[at + 1]
    for _ in range(60):
        middle = (low + high) / 2
        same = function(middle) == found[at]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    edges = [0.0, *high, 1.0]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
    values = function(np.array(middles))
    return [
        (int(v), m, b - a)
        for v, m, (a, b) in zip(values, middles, itertools.pairwise(edges), strict=True)
    ]


@in_float64
def law(share: np.ndarray, start: np.ndarray, by_query: np.ndarray) -> dict:
    """Probability of every ordered pair of the real sampler, on uniforms that are supplied."""

    def run(u, v):
        given = iter((u, v))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.random, "uniform", lambda key, shape, dtype: next(given).reshape(1))
            columns = map(jnp.asarray, (share, start, by_query))
            first, second = document_pairs.pairs(jax.random.key(0), *columns, n=1)
        return first[0], second[0]

    many = jax.jit(jax.vmap(run))
    chance: dict[tuple[int, int], float] = {}
    for first, middle, length in pieces(lambda u: np.asarray(many(u, np.full_like(u, 0.4))[0])):

        def second(v, middle=middle):
            return np.asarray(many(np.full_like(v, middle), v)[1])

        for other, _, part in pieces(second):
            chance[first, other] = chance.get((first, other), 0.0) + length * part
    return chance


@pytest.mark.parametrize(
    ("share", "size", "by_query"),
    [
        ([0.3, 0.1, 0.4, 0.2], [4], [1.0]),
        ([5.0, 1.0, 0.0, 2.0, 0.0, 3.0, 3.0, 1.0, 0.0], [5, 0, 2, 2], [0.7, 0.0, 0.3, 0.0]),
        # One document with nearly all, and two of which neither can be without the other.
        ([0.0, 0.96, 0.01, 0.03, 1.0, 4.0], [4, 2], [0.2, 0.8]),
    ],
)
def test_the_law_is_exactly_q(share, size, by_query):
    share, by_query = np.array(share), np.array(by_query)
    start = np.concatenate([[0], np.cumsum(size)])
    found = law(share, start, by_query)
    expected = {}
    for x, (a, b) in enumerate(itertools.pairwise(start)):
        own = share[a:b] / max(share[a:b].sum(), 1e-300)
        apart = 1 - (own**2).sum()
        for i, k in itertools.permutations(range(b - a), 2):
            if by_query[x] * own[i] * own[k] > 0:
                # Either order half of the time.
                expected[a + i, a + k] = by_query[x] * own[i] * own[k] / apart
    assert found.keys() == expected.keys()
    for key, chance in expected.items():
        assert abs(found[key] - chance) < 1e-12, key
    assert abs(sum(found.values()) - 1) < 1e-12


def test_the_ends_of_the_line_meet_no_document_without_mass():
    """Uniforms at 0, at the last one there is, and at every border between two documents."""
    share = np.array([0.0, 0.1, 0.0, 0.3, 0.6, 0.0, 0.0, 1.0, 2.0, 0.0])
    start, by_query = np.array([0, 6, 10]), np.array([0.5, 0.5])
    near = {0.0, 0.25, 0.5, LAST}
    for i in (1, 3, 4, 7, 8):
        own = share[:6] if i < 6 else share[6:] / 3
        at = (own.cumsum() / own.sum()).tolist()
        near |= {e for e in at if 0 < e < 1} | {e / 2 for e in at}
    near |= {np.nextafter(u, s) for u in near for s in (0.0, 1.0) if 0 < u < LAST}
    u, v = map(np.array, zip(*itertools.product(sorted(near), repeat=2), strict=True))

    @in_float64
    def found():
        given = iter((u, v))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.random, "uniform", lambda key, shape, dtype: next(given))
            columns = map(jnp.asarray, (share, start, by_query))
            return map(np.asarray, document_pairs.pairs(jax.random.key(0), *columns, n=len(u)))

    first, second = found()
    assert (share[first] > 0).all()
    assert (share[second] > 0).all()
    assert (first != second).all()
    assert ((first < 6) == (second < 6)).all()


def test_draws_follow_the_proposal():
    """40,000 draws of 14 ordered pairs: chi-squared(13) is above 48.6 once in 2e5.

    Any pair of which the chance is off by 3 percentage points is found all but once in 1e5.
    """
    made = pair_design(asked("wSwaps"))
    sample = draw_pairs(jax.random.key(5), made, 40_000)
    ordered = [p for a, b in all_pairs(made.target) for p in ((a, b), (b, a))]
    count = np.array([np.sum((sample.first == a) & (sample.second == b)) for a, b in ordered])
    assert count.sum() == 40_000
    a, b = np.array(ordered).T
    expected = 40_000 * made.probability(a, b) / 2
    limit = stats.chi2.isf(5e-6, len(ordered) - 1)
    assert ((count - expected) ** 2 / expected).sum() < limit
    # 3 points of 40,000 draws: noncentrality above 0.03^2 n / p for the largest p there is.
    off = 0.03**2 * 40_000 / (expected.max() / 40_000)
    assert stats.ncx2.cdf(limit, len(ordered) - 1, off) < 1e-5


def test_cells_that_came_later_are_drawn_with_their_query():
    """A later system's cells stand behind all others, and not beside those of their query."""
    early = {name: RUNS[name] for name in ("y", "z")}
    late = pool(read_runs(RUNS), after=pool(read_runs(early), queries=["q1", "q2", "q3"]))
    assert (np.diff(late.query) < 0).any()
    sample = draw_pairs(jax.random.key(1), pair_design(targets.target(late, "Swaps")), 500)
    assert (late.query[sample.first] == late.query[sample.second]).all()
    drawn = {*late.names(sample.first)[1], *late.names(sample.second)[1]}
    assert drawn == set("abcdef")


def test_pairs_that_no_system_returns_need_no_judgment():
    runs = {"x": {"q": {"a": 2.0, "b": 1.0}}, "y": {"q": {"c": 2.0, "d": 1.0}}}
    sample = draw_pairs(jax.random.key(0), pair_design(asked(runs=runs)), 200)
    at = sample.to_judge()
    names = [
        set(two)
        for two in zip(
            *(sample.design.target.pool.names(c)[1] for c in (sample.first[at], sample.second[at])),
            strict=True,
        )
    ]
    assert sorted(names, key=min) == [{"a", "b"}, {"c", "d"}]
    assert len(np.unique(sample.keys)) == 6
    assert repr(sample) == "PairSample(200 draws, 2 distinct pairs to judge)"
    assert repr(sample.design) == "PairDesign(4 documents of 1 queries)"


def test_a_million_documents_are_drawn_from():
    """What is drawn has mass, and belongs to one query."""
    rng = np.random.default_rng(0)
    start = np.append(np.sort(rng.choice(10**6, 999, replace=False)), 10**6)
    start = np.concatenate([[0], start])
    share = rng.random(10**6) ** 8 * (rng.random(10**6) < 0.5)
    by_query = (np.add.reduceat((share > 0) * 1, start[:-1]) > 1) * 1.0

    @in_float64
    def drawn():
        return map(
            np.asarray, document_pairs._pairs(jax.random.key(2), share, start, by_query, n=50_000)
        )

    first, second = drawn()
    query = np.searchsorted(start, np.arange(10**6), side="right")
    assert (query[first] == query[second]).all()
    assert (first != second).all()
    assert share[first].min() > 0
    assert share[second].min() > 0


def test_wrong_use_is_refused():
    target = asked()
    made = pair_design(target)
    given = np.ones(7)
    for act, words in (
        (lambda: draw_pairs(jax.random.key(0), made, 1), "at least 2, got 1"),
        (lambda: pair_design(target, floor=1.1), r"in \[0, 1\], got 1.1"),
        (lambda: pair_design(target, share=given[:4]), "each of the 7 cells"),
        (lambda: pair_design(target, share=-given), "not negative"),
        (lambda: pair_design(target, by_query=np.array([1.0, np.nan, 1.0])), "the 3 queries"),
        (lambda: pair_design(asked("DCG@3")), "not of DCG@3"),
        (lambda: pair_design(asked(runs={"x": {"q": {"a": 1.0}}})), "no pair to judge"),
    ):
        with pytest.raises(EvenhandError, match=words):
            act()
    given[2] = 0.0
    with pytest.raises(SupportError, match="1 documents that count for Swaps could never"):
        pair_design(target, share=given, floor=0.0)
    assert (pair_design(target, share=given, floor=0.01).share[:6] > 0).all()
    with pytest.raises(SupportError, match="2 documents that count"):
        pair_design(target, by_query=np.array([1.0, 0.0, 0.0]), floor=0.0)
    # Of what is wanted of no document of a query, all is floor.
    given[:4] = 0.0
    assert pair_design(target, share=given).share[:4].tolist() == [0.25] * 4


def test_shares_are_those_of_the_lists():
    target = asked("wSwaps@3")
    found = shares(target)
    for j, system in enumerate(target.systems):
        for documents in RUNS[system].values():
            order = sorted(documents, key=documents.get, reverse=True)
            for document, g in zip(order, loop_shares("wSwaps@3", len(order)), strict=True):
                at = target.pool.system == j
                at &= target.pool.cell == "abcdefg".index(document)
                np.testing.assert_allclose(found[at], [g], rtol=0, atol=1e-15)


def test_one_document_with_nearly_all_still_has_pairs():
    """D is near 0 where s is nearly all on one document; Q still sums to 1."""
    target = asked()
    share = np.array([1.0, 1e-9, 2e-9, 1e-9, 1.0, 1.0, 0.0])
    made = PairDesign(target, share / np.array([1 + 4e-9] * 4 + [2.0] * 3), np.array([1.0, 0, 0]))
    chance = made.probability(*np.array(all_pairs(target)).T)
    assert abs(chance.sum() - 1) < 1e-6
