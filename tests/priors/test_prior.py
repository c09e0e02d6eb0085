"""Learning from judgments: sensible from few, right on made data, blind to what is not its own."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from evenhand.errors import EvenhandError
from evenhand.estimands.pools import pool
from evenhand.formats.runs import read_runs
from evenhand.priors import fits, log_density, prior
from evenhand.priors.features import feature_table
from evenhand.priors.models import binary, binary_response, continuous, graded
from evenhand.priors.prior import NumPyroPosterior, NumPyroPrior, Posterior, Prior
from evenhand.sampling.labels import Labels

QUERIES = 8


@functools.cache
def table():
    """Features of three systems on eight queries."""
    rng = np.random.default_rng(0)
    merit = rng.normal(size=(QUERIES, 40))
    runs = {
        f"s{j}": {
            f"q{q}": {f"d{d:02}": s for d, s in enumerate(merit[q] + rng.normal(size=40))}
            for q in range(QUERIES)
        }
        for j in range(3)
    }
    return feature_table(pool(read_runs(runs), depth=25))


@functools.cache
def logit():
    """A logit of relevance by cell that the model can express."""
    rng = np.random.default_rng(1)
    x = table().values[:, table().names.index("votes")]
    return -0.5 + 2.0 * x + 1.5 * rng.normal(size=QUERIES)[table().pool.query]


def labels(n, seed=2, levels=(0.0, 1.0), cells=None):
    """Judgments of some random cells, by one or two steps on the logistic scale."""
    rng = np.random.default_rng(seed)
    cells = np.arange(len(table().pool)) if cells is None else cells
    some = rng.permutation(cells)[:n]
    said = logit()[some] + rng.logistic(size=n)
    reached = (said[:, None] > np.arange(len(levels) - 1) * 1.5).sum(1)
    return Labels(some, np.asarray(levels)[reached])


def fit(*sets, **options):
    """Fits of up to eight sets, always of eight, so that they share what is compiled."""
    alike = [labels(0)] * (8 - len(sets))
    return NumPyroPrior(table(), **options).fit([*sets, *alike])[: len(sets)]


def everywhere(posterior):
    return posterior.predict(np.arange(len(table().pool)))


def assert_sensible(moments, low, high):
    for moment in (moments.mean, moments.second_moment):
        assert type(moment) is np.ndarray
        assert moment.dtype == np.float64
        assert moment.shape == (len(table().pool),)
        assert np.isfinite(moment).all()
    assert moments.mean.min() >= low
    assert moments.mean.max() <= high
    assert (moments.second_moment >= moments.mean**2).all()
    assert (moments.second_moment <= max(low**2, high**2) * (1 + 1e-9)).all()


def assert_levels_reached(moments, gain):
    np.testing.assert_array_equal(moments.reach.gain, gain)
    chance = moments.reach.chance
    assert chance.shape == (len(table().pool), len(gain))
    assert ((chance >= 0) & (chance <= 1)).all()
    assert (np.diff(chance, axis=1) < 0).all()  # what reaches the next level reaches this one
    np.testing.assert_allclose(chance @ np.diff(gain, prepend=0), moments.mean, rtol=1e-12)


def one_query_unjudged():
    return np.flatnonzero(table().pool.query != 3)


#: Labels that a prior must not choke on, and the least and greatest judgment that they let expect.
FEW = {
    "none": (labels(0), 0, 1),
    "one": (Labels(np.array([7]), np.array([1.0])), 0, 1),
    "one of nothing": (Labels(np.array([7]), np.array([0.0])), 0, 1),
    "twenty": (labels(20), 0, 1),
    "all alike": (Labels(np.arange(20), np.full(20, 2.0)), 0, 2),
    "all zero": (Labels(np.arange(40), np.zeros(40)), 0, 1),
    "the same cell again": (Labels(np.full(20, 3), np.arange(20) % 2.0), 0, 1),
    "a query without": (labels(40, cells=one_query_unjudged()), 0, 1),
}


@functools.cache
def few():
    """All fits of `FEW` by name, in one call."""
    found = fit(*(given for given, _, _ in FEW.values()))
    return dict(zip(FEW, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_sensible_from_few_labels(name):
    given, low, high = FEW[name]
    posterior = few()[name]
    assert posterior.labels is given
    assert posterior.fitted.converged
    moments = everywhere(posterior)
    assert_sensible(moments, low, high)
    # Of 20 or 40 judgments nothing is certain.
    assert (moments.second_moment - moments.mean**2).min() > 1e-6


def test_few_labels_turn_predictions_their_way():
    no, yes = everywhere(few()["one of nothing"]).mean, everywhere(few()["one"]).mean
    assert no[7] < everywhere(few()["none"]).mean[7] < yes[7]
    assert everywhere(few()["all zero"]).mean[:40].mean() < 0.1
    assert everywhere(few()["all alike"]).mean[:20].mean() > 1.6
    assert everywhere(few()["the same cell again"]).mean[3] == pytest.approx(0.5, abs=0.15)


@pytest.mark.slow
def test_grades_are_taken_as_they_are():
    given = labels(60, levels=(0.0, 1.0, 3.0))
    (posterior,) = NumPyroPrior(table()).fit([given])
    assert posterior.model is graded
    np.testing.assert_array_equal(posterior.levels, [0, 1, 3])
    assert_sensible(everywhere(posterior), 0, 3)
    assert_levels_reached(everywhere(posterior), [1, 3])


def test_levels_below_nothing_are_not_reached():
    """A scale may have a level below 0: what counts is how likely those above are."""
    given, levels = labels(60, levels=(0.0, 1.0, 2.0)), np.array([-2.0, 0.0, 1.0, 2.0])
    reach = everywhere(fit(given, levels=levels)[0]).reach
    assert reach.gain.tolist() == [1, 2]
    assert reach.chance.shape == (len(table().pool), 2)
    assert (np.diff(reach.chance, axis=1) <= 0).all()


def test_levels_from_above_nothing():
    """Where nobody says 0 every judgment reaches the least that is said."""
    given = labels(60, levels=(1.0, 2.0))
    moments = everywhere(fit(given)[0])
    assert_levels_reached(moments, [1, 2])
    assert (moments.reach.chance[:, 0] == 1).all()


@pytest.mark.slow
def test_real_utilities():
    rng = np.random.default_rng(3)
    cells = rng.permutation(len(table().pool))[:60]
    given = Labels(cells, 10 + 2 * logit()[cells] + rng.normal(size=60))
    (posterior,) = NumPyroPrior(table()).fit([given])
    assert posterior.model is continuous
    moments = everywhere(posterior)
    assert moments.reach is None  # there are no levels
    assert np.corrcoef(moments.mean, logit())[0, 1] > 0.9
    assert moments.mean.mean() == pytest.approx(10 + 2 * logit().mean(), abs=1)
    # Around the mean there is the noise at least, whose deviation is 1.
    assert 0.3 < (moments.second_moment - moments.mean**2).min() < 2


@functools.cache
def learned():
    """A fit to labels of most cells."""
    return NumPyroPrior(table()).fit([labels(250)])[0]


def test_it_learns():
    chance = 1 / (1 + np.exp(-logit()))
    unseen = ~np.isin(np.arange(len(chance)), labels(250).cells)
    assert unseen.sum() == 17
    mean = everywhere(learned()).mean
    assert np.corrcoef(mean, chance)[0, 1] > 0.95
    assert np.corrcoef(mean[unseen], chance[unseen])[0, 1] > 0.9
    assert np.abs(mean - chance)[unseen].mean() < 0.1
    assert mean[labels(250).cells].sum() == pytest.approx(labels(250).utility.sum(), rel=0.1)


def test_queries_differ_as_they_were_judged():
    # Two queries, one of them full of relevant documents, alike in all features.
    pooled = table().pool
    cells = np.flatnonzero((pooled.query == 0) | (pooled.query == 1))[:64]
    given = Labels(cells, (pooled.query[cells] == 0).astype(float))
    mean = everywhere(fit(given)[0]).mean
    assert mean[pooled.query == 0].mean() > mean[pooled.query == 1].mean() + 0.5


def assert_same(first, second, atol=0.0):
    for name in first.fitted._fields:
        one, other = getattr(first.fitted, name), getattr(second.fitted, name)
        np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=name)


@pytest.mark.slow
def test_a_fit_depends_on_its_own_labels_alone():
    mine = labels(50)
    first = fit(mine, labels(50, seed=5), labels(50, seed=6))[0]
    # Others that say the contrary, of other cells, of another number, elsewhere in the list.
    assert_same(fit(mine, Labels(mine.cells, 1 - mine.utility), labels(9, seed=9))[0], first)
    assert_same(fit(labels(64, seed=7), labels(0), mine)[2], first)
    # Others of another model, by which this one's are fewer.
    last = NumPyroPrior(table()).fit([labels(60, levels=(0, 1, 3)), *[labels(0)] * 7, mine])[-1]
    assert_same(last, first)


def many():
    """So many labels that they are filled up to another length than a few."""
    given = labels(250)
    return Labels(np.tile(given.cells, 5), np.tile(given.utility, 5))


@pytest.mark.slow
def test_longer_neighbours_only_round_otherwise():
    mine = Labels(labels(250).cells[:50], labels(250).utility[:50])
    alone, beside = (NumPyroPrior(table()).fit(sets)[0] for sets in ([mine], [mine, many()]))
    np.testing.assert_allclose(everywhere(beside).mean, everywhere(alone).mean, rtol=0, atol=1e-7)


@pytest.mark.parametrize("method", ["svi", "nuts"])
def test_what_draws_does_not_see_the_length_of_others(method, monkeypatch):
    # A minibatch is as large as the filled length lets it be, and chains multiply roundings.
    lengths = []

    def record(features, judged, levels, start, *, model, seed):
        lengths.append(len(judged.weight))
        one, none = jnp.asarray(1), jnp.zeros((0, 0))
        return fits.Fitted(start, start[None], one, jnp.asarray(True), none, one)

    monkeypatch.setattr(fits, method, record)
    NumPyroPrior(table(), method=method).fit([labels(50), many(), labels(0)])
    assert lengths[0] == lengths[2] < lengths[1]


def test_fitting_again_gives_the_same():
    again = fit(*[labels(0), FEW["twenty"][0]] * 4)
    for posterior in again[1::2]:
        assert_same(posterior, few()["twenty"])


def test_levels_come_from_the_set_alone():
    fits = fit(
        Labels(np.arange(4), np.array([0.0, 2, 0, 2])),
        Labels(np.arange(4), np.array([0.0, 0, 0, 0])),
        Labels(np.arange(4), np.array([0.0, 1, 3, 3])),
        Labels(np.arange(4), np.array([1.0, 1, 1, 1])),
    )
    assert [f.levels.tolist() for f in fits] == [[0, 2], [0, 1], [0, 1, 3], [0, 1]]
    assert [f.model for f in fits] == [binary, binary, graded, binary]
    # Unless they are given.
    given = np.array([0.0, 1.0, 3.0])
    (wide,) = NumPyroPrior(table(), levels=given).fit([FEW["twenty"][0]])
    assert wide.model is graded
    np.testing.assert_array_equal(wide.levels, given)
    assert everywhere(wide).mean.max() <= 3


def own(features, judged=None, *, levels):
    """Ten lines that know the votes alone."""
    base = numpyro.sample("base", dist.Normal(-1.0, 2.0))
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    with numpyro.plate("queries", features.n_queries):
        shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
    eta = base + scale * features.values[:, 0] + shift[features.query]
    binary_response(eta, judged, levels)


def test_a_model_of_ones_own():
    learn = NumPyroPrior(table(), model=own)
    assert learn.name == "own"
    (posterior,) = learn.fit([labels(250)])
    assert posterior.model is own
    assert posterior.fitted.converged
    assert posterior.fitted.draws.shape == (fits.DRAWS, 2 + QUERIES)
    moments = everywhere(posterior)
    assert_sensible(moments, 0, 1)
    assert np.corrcoef(moments.mean, everywhere(learned()).mean)[0, 1] > 0.95


def test_a_model_that_prefers_assessors():
    # Two assessors of the same cells, one of whom calls everything relevant that is not hopeless.
    rng = np.random.default_rng(4)
    cells = np.repeat(rng.permutation(len(table().pool))[:125], 2)
    who = np.tile(np.array([0, 1], np.int32), 125)
    said = (logit()[cells] + np.array([-2.0, 2.0])[who] + rng.logistic(size=250) > 0) * 1.0
    given = Labels(cells, said, who)
    assert given.only(np.array([1, 3])).assessor.tolist() == [1, 1]
    (posterior,) = NumPyroPrior(table()).fit([given])
    assert posterior.fitted.converged
    # A scale, and a severity and a discrimination of each code: of the two, of those too rarely
    # heard to be told apart, and one that rounds their number up.
    more = posterior.fitted.mode.size - learned().fitted.mode.size
    assert more == 1 + 2 * 4
    moments = everywhere(posterior)
    assert_sensible(moments, 0, 1)
    with jax.enable_x64(True):
        rows = posterior.data()
        _, unravel = log_density.parameters(binary, *rows, jnp.asarray(posterior.levels))
        severity = np.asarray(unravel(jnp.asarray(posterior.fitted.mode))["severity"])
    assert severity[1] < 0 < severity[2]
    assert severity[0] == pytest.approx(0, abs=1e-6)


def test_ways_to_fit():
    with pytest.raises(EvenhandError, match="unknown way to fit 'magic'") as caught:
        NumPyroPrior(table(), method="magic")
    assert caught.value.hint == "known are laplace, svi, nuts"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["svi", "nuts"])
def test_other_ways_come_near(method, monkeypatch):
    short = {"svi": {"steps": 800}, "nuts": {"draws": 100, "warmup": 100}}[method]
    monkeypatch.setattr(fits, method, functools.partial(getattr(fits, method), **short))
    given = FEW["a query without"][0]
    (found,) = NumPyroPrior(table(), method=method).fit([given])
    for name in found.fitted._fields:
        assert isinstance(getattr(found.fitted, name), np.ndarray | np.generic), name
    moments = everywhere(found)
    assert_sensible(moments, 0, 1)
    laplace = everywhere(few()["a query without"])
    assert np.corrcoef(moments.mean, laplace.mean)[0, 1] > 0.9


def test_chunks_do_not_matter(monkeypatch):
    whole = everywhere(learned())
    some = np.array([200, 3, 3, 150])
    monkeypatch.setattr(prior, "CHUNK", 64)
    parts = everywhere(learned())
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(parts.second_moment, whole.second_moment, rtol=1e-12)
    np.testing.assert_allclose(learned().predict(some).mean, whole.mean[some], rtol=1e-12)
    assert learned().predict(np.zeros(0, np.int64)).mean.shape == (0,)


def test_millions_in_single_precision(monkeypatch):
    posterior = learned()
    half = replace(posterior, fitted=posterior.fitted._replace(draws=posterior.fitted.draws[::2]))
    wanted = everywhere(half)
    monkeypatch.setattr(prior, "MANY", 64)
    found = everywhere(posterior)
    assert found.mean.dtype == found.second_moment.dtype == np.float64
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-5)
    spread, exact = (m.second_moment - m.mean**2 for m in (found, wanted))
    np.testing.assert_allclose(spread, exact, rtol=1e-5)


def test_blocks_do_not_matter(monkeypatch):
    whole = learned()
    monkeypatch.setattr(prior, "BLOCK", 64)
    (parts,) = NumPyroPrior(table()).fit([labels(250)])
    np.testing.assert_allclose(parts.fitted.mode, whole.fitted.mode, rtol=0, atol=1e-7)
    np.testing.assert_allclose(everywhere(parts).mean, everywhere(whole).mean, atol=1e-6)


def test_numpy_leaves_in_double_precision():
    assert not jax.config.jax_enable_x64  # a caller who set nothing
    posterior = learned()
    for name in posterior.fitted._fields:
        assert isinstance(getattr(posterior.fitted, name), np.ndarray | np.generic), name
    for name in ("mode", "draws"):
        assert getattr(posterior.fitted, name).dtype == np.float64
    for part in jax.tree.leaves(posterior.data()):
        assert isinstance(part, np.ndarray)
    assert posterior.levels.dtype == np.float64
    assert not jax.config.jax_enable_x64


def test_protocols():
    assert isinstance(NumPyroPrior(table()), Prior)
    assert isinstance(learned(), Posterior)
    assert isinstance(learned(), NumPyroPosterior)
    assert not isinstance(learned(), Prior)
    assert not isinstance(object(), Posterior)
    assert NumPyroPrior(table()).name == "learned"
    assert everywhere(learned()).name == "learned"


def test_no_sets_no_fits():
    assert NumPyroPrior(table()).fit([]) == []


def test_lapack_has_one_thread_while_a_fit_lasts(monkeypatch):
    seen = []

    def watched(*given, **options):
        seen.extend(lib["num_threads"] for lib in prior._linear_algebra().info())
        return laplace(*given, **options)

    laplace = fits.laplace
    monkeypatch.setattr(fits, "laplace", watched)
    fit(labels(20))
    assert seen
    assert set(seen) == {1}
