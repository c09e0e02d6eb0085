"""Posteriors: modes against SciPy, blocks and fits that must not matter, ways against each other.

Compiling is most of the time here: the data sets share their shapes, and fits are made once.
"""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.optimize

from evenhand.errors import EvenhandError
from evenhand.priors import fits, log_density, predictive
from evenhand.priors.features import Features
from evenhand.priors.models import Observed, binary, continuous, graded

LEVELS = {
    binary: np.array([0.0, 1.0]),
    graded: np.array([0.0, 1.0, 3.0]),
    continuous: np.array([1.0, 2.0]),
}
N, QUERIES = 320, 6
# Compiling costs more than running here.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture(scope="module", autouse=True)
def double():
    """These are functions on arrays: they follow the caller's precision."""
    with jax.enable_x64(True):
        yield


@functools.cache
def data(model, seed=0):
    """Features and judgments that follow a logit which the model can express."""
    rng = np.random.default_rng(seed)
    features = Features(
        rng.normal(size=(N, 2)),
        rng.random((N, 3)),
        rng.integers(QUERIES, size=N).astype(np.int32),
        QUERIES,
    )
    of_query = rng.normal(size=QUERIES)
    eta = features.values @ [1.5, -0.7] + features.votes @ [1, 0, -1] + of_query[features.query]
    noise = rng.logistic(size=N)
    if model is binary:
        utility = (eta + noise > 0.5).astype(float)
    elif model is graded:
        utility = LEVELS[graded][(eta + noise > 0).astype(int) + (eta + noise > 1.5)]
    else:
        utility = 1 + eta + 0.5 * rng.normal(size=N)
    return features, Observed(utility, np.ones(N), np.zeros(N, np.int32))


def start_of(model, features, judged):
    return log_density.parameters(model, features, judged, jnp.asarray(LEVELS[model]))[0] + 0.01


def mode(model, *sets, blocks=1):
    """`laplace` of some data sets, each cut into blocks."""
    start = jnp.stack([start_of(model, *one) for one in sets])
    rows = [jax.tree.map(lambda x: np.reshape(x, (blocks, -1, *x.shape[1:])), one) for one in sets]
    features, judged = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *rows)
    found = fits.laplace(features, judged, jnp.asarray(LEVELS[model]), start, model=model)
    return jax.tree.map(np.asarray, found)


@functools.cache
def fitted(model):
    return mode(model, data(model))


def filled(features, judged, size):
    """The same data with rows that do not count, whose content is nonsense."""
    more = size - len(judged.weight)
    grown = Features(
        np.pad(features.values, ((0, more), (0, 0)), constant_values=9.0),
        np.pad(features.votes, ((0, more), (0, 0)), constant_values=-3.0),
        np.pad(features.query, (0, more)),
        features.n_queries,
    )
    counted = Observed(
        np.pad(judged.utility, (0, more), constant_values=1.0),
        np.pad(judged.weight, (0, more)),
        np.pad(judged.assessor, (0, more)),
        judged.n_assessors,
    )
    return grown, counted


@functools.cache
def expansion(model):
    """Energy of the data with gradient and Hessian, by a route of its own."""
    energy = log_density.energy(model, *data(model), jnp.asarray(LEVELS[model]))

    def expanded(theta):
        return energy(theta), jax.grad(energy)(theta), jax.hessian(energy)(theta)

    compiled = jax.jit(expanded, compiler_options=QUICK)
    return lambda theta: [np.asarray(x, np.float64) for x in compiled(theta)]


@pytest.mark.slow
@pytest.mark.parametrize("model", LEVELS)
def test_mode_is_that_of_scipy(model):
    found = fitted(model)
    expanded = expansion(model)
    theirs = scipy.optimize.minimize(
        lambda theta: expanded(theta)[:2],
        np.asarray(start_of(model, *data(model))),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-7},
    )
    value, slope, _ = expanded(found.mode[0])
    assert found.converged[0]
    assert np.abs(slope).max() < 1e-5
    assert value == pytest.approx(theirs.fun, rel=0, abs=1e-6)
    np.testing.assert_allclose(found.mode[0], theirs.x, atol=1e-4)


@pytest.mark.parametrize("model", LEVELS)
def test_draws_are_of_the_normal_at_the_mode(model):
    found = fitted(model)
    d = found.mode.shape[1]
    draws = found.draws[0]
    assert draws.shape == (fits.DRAWS, d)
    half = len(draws) // 2
    # In antithetic pairs, so that the mean is the mode.
    np.testing.assert_allclose(draws[:half] + draws[half:], 2 * found.mode.repeat(half, 0))
    np.testing.assert_allclose(draws.mean(0), found.mode[0], atol=1e-12)
    # Whitened by the Hessian they are the standard normals that were drawn.
    expanded = expansion(model)
    white = (draws[:half] - found.mode) @ np.linalg.cholesky(expanded(found.mode[0])[2])
    noise = np.random.default_rng(0).standard_normal((half, d))
    np.testing.assert_allclose(white, noise, atol=1e-6)


def test_laplace_is_deterministic():
    features, judged = data(binary)
    again = mode(binary, (features, judged))
    for first, second in zip(fitted(binary), again, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_blocks_do_not_matter():
    whole, cut = fitted(graded), mode(graded, data(graded), blocks=4)
    assert cut.converged[0]
    np.testing.assert_allclose(cut.mode, whole.mode, atol=1e-7)
    np.testing.assert_allclose(cut.draws, whole.draws, atol=1e-6)


@pytest.mark.slow
def test_filling_up_does_not_matter():
    # The second block is of nothing but filling.
    whole, grown = fitted(binary), mode(binary, filled(*data(binary), 2 * N), blocks=2)
    np.testing.assert_allclose(grown.mode, whole.mode, atol=1e-7)
    np.testing.assert_allclose(grown.draws, whole.draws, atol=1e-6)


def test_several_fits_are_each_alone():
    sets = [data(binary), data(binary, seed=1)]
    alone = [fitted(binary), mode(binary, sets[1])]
    both, turned = mode(binary, *sets), mode(binary, *sets[::-1])
    for i in range(2):
        np.testing.assert_allclose(both.mode[i], alone[i].mode[0], atol=1e-10)
        np.testing.assert_allclose(both.draws[i], alone[i].draws[0], atol=1e-10)
        assert both.steps[i] == alone[i].steps[0]
        # The neighbour does not matter, to the bit.
        for first, second in zip(both, turned, strict=True):
            np.testing.assert_array_equal(first[i], second[1 - i])


def test_discrete_parameters_are_refused():
    def mixture(features, judged=None, *, levels):
        numpyro.sample("kind", dist.Bernoulli(0.5))

    features, judged = data(binary)
    with pytest.raises(EvenhandError, match="'kind' of the model is discrete") as caught:
        log_density.parameters(mixture, features, judged, jnp.zeros(2))
    assert caught.value.hint == "sum it out in the model"


def test_parameters_are_on_the_real_line():
    def model(features, judged=None, *, levels):
        numpyro.sample("simplex", dist.Dirichlet(jnp.ones(4)))
        numpyro.sample("positive", dist.HalfNormal(1.0).expand([2]).to_event(1))
        numpyro.sample("seen", dist.Normal(0, 1), obs=1.0)

    zeros, unravel = log_density.parameters(model, *data(binary), jnp.zeros(2))
    assert {name: x.shape for name, x in unravel(zeros).items()} == {
        "positive": (2,),
        "simplex": (3,),  # one fewer than it has parts
    }
    np.testing.assert_array_equal(zeros, np.zeros(5))
    assert zeros.dtype == jnp.float64


def test_a_fit_that_fails_says_so():
    def hopeless(features, judged=None, *, levels):
        numpyro.sample("x", dist.Normal(0, 1))
        numpyro.factor("nowhere", jnp.nan)

    features, judged = jax.tree.map(lambda x: jnp.asarray(x)[None, None], data(binary))
    found = fits.laplace(features, judged, jnp.zeros(2), jnp.full((1, 1), 0.01), model=hopeless)
    assert not found.converged[0]


def test_too_few_steps_are_told():
    features, judged = data(binary)
    rows = jax.tree.map(lambda x: jnp.asarray(x)[None, None], (features, judged))
    start = start_of(binary, features, judged)[None]
    found = fits.laplace(*rows, jnp.asarray(LEVELS[binary]), start, model=binary, most=2)
    assert found.steps[0] == 2
    assert not found.converged[0]


def predicted(draws):
    mean, variance, reached = predictive.moments(
        data(binary)[0], jnp.asarray(draws), jnp.asarray(LEVELS[binary]), model=binary
    )
    assert reached is not None
    np.testing.assert_array_equal(reached[:, 0], mean)  # of 0 and 1
    return np.asarray(mean), np.asarray(variance)


def test_moments_average_over_draws():
    features, draws = data(binary)[0], fitted(binary).draws[0]
    mean, variance = predicted(draws)
    _, unravel = log_density.parameters(binary, *data(binary), jnp.asarray(LEVELS[binary]))
    total = np.zeros(N)
    for draw in draws:
        p = {name: np.asarray(x) for name, x in unravel(jnp.asarray(draw)).items()}
        eta = (
            p["intercept"]
            + features.values @ p["slopes"]
            + np.exp(p["query_scale"]) * p["queries"][features.query]
            + np.exp(p["trust_scale"]) * (features.votes @ p["trust"])
        )
        total += 1 / (1 + np.exp(-eta))
    np.testing.assert_allclose(mean, total / len(draws), rtol=1e-10)
    np.testing.assert_allclose(variance, mean * (1 - mean), rtol=1e-10)  # of 0 and 1


@pytest.mark.slow
def test_svi_comes_near_laplace():
    features, judged = data(binary)
    levels, start = jnp.asarray(LEVELS[binary]), start_of(binary, features, judged)
    # Filled up with nonsense that no minibatch may take, which are smaller than the data.
    rows = jax.tree.map(jnp.asarray, filled(features, judged, 512))
    fit = functools.partial(fits.svi, *rows, levels, start, model=binary, batch=64, steps=1000)
    found = fit(seed=0)
    assert found.draws.shape == (fits.DRAWS, len(start))
    assert found.converged
    climbed = fitted(binary)
    best, begun, ended = (
        expansion(binary)(theta)[0] for theta in (climbed.mode[0], start, found.mode)
    )
    assert best - 1e-6 <= ended
    assert ended - best < 0.1 * (begun - best)
    mine, theirs = predicted(found.draws)[0], predicted(climbed.draws[0])[0]
    assert np.corrcoef(mine, theirs)[0, 1] > 0.97
    np.testing.assert_array_equal(found.draws, fit(seed=0).draws)
    assert not np.array_equal(found.draws, fit(seed=1).draws)


@pytest.mark.slow
def test_laplace_comes_near_nuts():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arviz 0.x announces 1.x when it is imported
        import arviz
    levels, start = jnp.asarray(LEVELS[binary]), start_of(binary, *data(binary))
    chains, draws, warmup = 2, 250, 200
    found = fits.nuts(
        *data(binary), levels, start, model=binary, draws=draws, warmup=warmup, chains=chains
    )
    assert found.draws.shape == (chains * draws, len(start))
    assert found.steps == draws + warmup
    assert found.converged
    np.testing.assert_allclose(found.mode, found.draws.mean(0), rtol=1e-12)
    by_chain = np.asarray(found.draws).reshape(chains, draws, -1)
    hat = [float(arviz.rhat(by_chain[..., i])) for i in range(len(start))]
    assert max(hat) < 1.05
    # From 320 judgments a chance is known to some 0.05; the two ways differ by less than that.
    apart = np.abs(predicted(found.draws)[0] - predicted(fitted(binary).draws[0])[0])
    assert apart.mean() < 0.015
    assert apart.max() < 0.06
