"""Models of what assessors say: moments and log densities against direct computation."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats
from scipy.special import expit

from evenhand.priors import log_density, models
from evenhand.priors.features import Features
from evenhand.priors.models import Observed, binary, continuous, graded, model_for

LEVELS = {
    binary: np.array([1.0, 3.0]),
    graded: np.array([0.0, 1.0, 3.0, 7.0]),
    continuous: np.array([2.0, 0.5]),  # centre and scale
}
MODELS = list(LEVELS)
N = 6


@pytest.fixture(autouse=True)
def double():
    """These are functions on arrays: they follow the caller's precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def features():
    rng = np.random.default_rng(0)
    query = np.array([0, 1, 1, 2, 0, 2], np.int32)
    return Features(rng.normal(size=(N, 2)), rng.random((N, 3)), query, 4)


def judged_by(model, n_assessors=1):
    rng = np.random.default_rng(1)
    levels = LEVELS[model]
    utility = rng.normal(2, 0.5, N) if model is continuous else rng.choice(levels, N)
    assessor = (np.arange(N) % n_assessors).astype(np.int32)
    return Observed(utility, np.ones(N), assessor, n_assessors)


def some_parameters(model, n_assessors=1):
    """Values of every parameter, where the model means them."""
    rng = np.random.default_rng(2)
    found = {
        "slopes": rng.normal(size=2),
        "query_scale": np.array(0.7),
        "trust_scale": np.array(1.3),
        "queries": rng.normal(size=4),
        "trust": rng.normal(size=3),
    }
    if model is graded:
        found |= {"first_cut": np.array(-0.4), "cut_steps": np.array([0.6, 1.1])}
    else:
        found |= {"intercept": np.array(-0.3)}
    if model is continuous:
        found |= {"noise": np.array(0.8)}
    if n_assessors > 1:
        found |= {
            "severity": rng.normal(size=n_assessors),
            "discrimination": rng.normal(size=n_assessors),
            "assessor_scale": np.array(0.4),
        }
    return found


def eta_of(features, p):
    return (
        features.values @ p["slopes"]
        + p["query_scale"] * p["queries"][features.query]
        + p["trust_scale"] * (features.votes @ p["trust"])
    )


def cuts_of(p):
    return p["first_cut"] + np.concatenate([[0.0], np.cumsum(p["cut_steps"])])


def sites_of(model, features, judged, p):
    fixed = handlers.seed(handlers.substitute(model, p), jax.random.key(0))
    return handlers.trace(fixed).get_trace(features, judged, levels=jnp.asarray(LEVELS[model]))


def surprise(model, features, utility, p, heard=lambda eta: eta):
    """Minus log likelihood of each row, in NumPy; `heard` is what assessors make of eta."""
    eta, levels = eta_of(features, p), LEVELS[model]
    if model is binary:
        chance = expit(heard(p["intercept"] + eta))
        return -np.log(np.where(utility == levels[1], chance, 1 - chance))
    if model is graded:
        reached = expit(heard(eta)[:, None] - cuts_of(p))
        bounds = np.hstack([np.ones((N, 1)), reached, np.zeros((N, 1))])
        level = np.searchsorted(levels, utility)
        return -np.log(bounds[np.arange(N), level] - bounds[np.arange(N), level + 1])
    z = (utility - levels[0]) / levels[1]
    return -stats.norm.logpdf(z, heard(p["intercept"] + 0.5 * eta), p["noise"])


def flat(model, features, judged, p):
    """Energy of the model and the flat parameters at which it is that of `p`."""
    levels = jnp.asarray(LEVELS[model])
    _, unravel = log_density.parameters(model, features, judged, levels)
    positive = ("query_scale", "trust_scale", "cut_steps", "noise", "assessor_scale")
    real = {name: np.log(v) if name in positive else v for name, v in p.items()}
    theta, _ = jax.flatten_util.ravel_pytree(jax.tree.map(jnp.asarray, real))
    assert set(unravel(theta)) == set(p)
    return log_density.energy(model, features, judged, levels), theta


def test_binary_moments(features):
    p = some_parameters(binary)
    sites = sites_of(binary, features, None, p)
    chance = expit(p["intercept"] + eta_of(features, p))
    np.testing.assert_allclose(sites["mean"]["value"], 1 + 2 * chance, rtol=1e-12)
    np.testing.assert_allclose(sites["spread"]["value"], 4 * chance * (1 - chance), rtol=1e-12)
    np.testing.assert_allclose(sites["reached"]["value"], chance[:, None], rtol=1e-12)


def test_graded_moments(features):
    p = some_parameters(graded)
    sites = sites_of(graded, features, None, p)
    eta, cuts, levels = eta_of(features, p), cuts_of(p), LEVELS[graded]
    law = np.asarray(dist.OrderedLogistic(eta, cuts).probs)
    np.testing.assert_allclose(law.sum(1), 1, rtol=1e-12)
    # What the module says of it: at least level l with probability logistic(eta - cut_l).
    at_least = np.cumsum(law[:, ::-1], 1)[:, -2::-1]
    np.testing.assert_allclose(at_least, expit(eta[:, None] - cuts), rtol=1e-10)
    np.testing.assert_allclose(sites["reached"]["value"], at_least, rtol=1e-10)
    mean = law @ levels
    np.testing.assert_allclose(sites["mean"]["value"], mean, rtol=1e-12)
    spread = (law * (levels - mean[:, None]) ** 2).sum(1)
    np.testing.assert_allclose(sites["spread"]["value"], spread, rtol=1e-10)


def test_graded_spread_is_never_negative(features):
    p = some_parameters(graded) | {"first_cut": np.array(-60.0)}  # certain of the lowest step
    spread = np.asarray(sites_of(graded, features, None, p)["spread"]["value"])
    assert (spread >= 0).all()


def test_continuous_moments(features):
    p = some_parameters(continuous)
    sites = sites_of(continuous, features, None, p)
    mean = 2 + 0.5 * (p["intercept"] + 0.5 * eta_of(features, p))
    np.testing.assert_allclose(sites["mean"]["value"], mean, rtol=1e-12)
    np.testing.assert_allclose(sites["spread"]["value"], np.full(N, (0.5 * 0.8) ** 2), rtol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_energy_is_prior_and_likelihood(model, features):
    judged, p = judged_by(model), some_parameters(model)
    energy, theta = flat(model, features, judged, p)

    def normal(name, centre=0.0, scale=1.0):
        return stats.norm.logpdf(p[name], centre, scale).sum()

    def lognormal(name, centre, scale):
        # On the real line, the density of the logarithm: that of the parameter times itself.
        return stats.norm.logpdf(np.log(p[name]), centre, scale).sum()

    prior = normal("slopes", scale=1.5) + normal("queries") + normal("trust")
    prior += lognormal("query_scale", 0, 0.3) + lognormal("trust_scale", 0, 0.3)
    if model is binary:
        prior += normal("intercept", -1.5, 2)
    elif model is graded:
        prior += normal("first_cut", 0.5, 2) + lognormal("cut_steps", 0, 0.7)
    else:
        prior += normal("intercept") + lognormal("noise", -0.5, 0.5)
    expected = surprise(model, features, judged.utility, p).sum() - prior
    np.testing.assert_allclose(energy(theta), expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_weights_count_rows(model, features):
    judged, p = judged_by(model), some_parameters(model)

    def value(weight, utility=judged.utility):
        given = replace(judged, weight=np.asarray(weight, np.float64), utility=utility)
        energy, theta = flat(model, features, given, p)
        found, slope = jax.value_and_grad(energy)(theta)
        assert np.isfinite(slope).all()
        return float(found)

    prior = value(np.zeros(N))
    # Filling counts for nothing, whatever it holds.
    assert value(np.zeros(N), np.full(N, 1e9)) == prior
    weight = np.array([1, 0, 2.5, 0, 1, 100])
    expected = weight @ surprise(model, features, judged.utility, p)
    np.testing.assert_allclose(value(weight) - prior, expected, rtol=1e-9)
    spoilt = np.where(weight > 0, judged.utility, 1e9)
    np.testing.assert_allclose(value(weight, spoilt), value(weight), rtol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_assessors_enter_the_likelihood_alone(model, features):
    judged, p = judged_by(model, 3), some_parameters(model, 3)
    alone = replace(judged, assessor=np.zeros(N, np.int32), n_assessors=1)
    without = {name: value for name, value in p.items() if name in some_parameters(model)}
    told, untold = sites_of(model, features, judged, p), sites_of(model, features, alone, without)
    assert set(told) - set(untold) == {"severity", "discrimination", "assessor_scale"}
    for name in ("mean", "spread"):  # those of the mean assessor
        np.testing.assert_array_equal(told[name]["value"], untold[name]["value"])

    def likelihood(p, given, n):
        energy, theta = flat(model, features, given, p)
        silent = replace(given, weight=np.zeros(N))
        return float(energy(theta) - flat(model, features, silent, p)[0](theta))

    who = judged.assessor

    def heard(eta):
        said = eta + p["assessor_scale"] * p["severity"][who]
        return np.exp(0.5 * p["discrimination"])[who] * said

    expected = surprise(model, features, judged.utility, p, heard).sum()
    np.testing.assert_allclose(likelihood(p, judged, 3), expected, rtol=1e-9)
    plain = p | {"severity": np.zeros(3), "discrimination": np.zeros(3)}
    np.testing.assert_allclose(
        likelihood(plain, judged, 3), likelihood(without, alone, 1), rtol=1e-9
    )


def test_nearest_level_is_meant(features):
    # Utilities went through float arithmetic: a hair beside a level is that level.
    for model in (binary, graded):
        judged, p = judged_by(model), some_parameters(model)
        off = replace(judged, utility=judged.utility + 1e-9)
        for given in (judged, off):
            energy, theta = flat(model, features, given, p)
            value = float(energy(theta))
            if given is judged:
                exact = value
        assert value == exact


@pytest.mark.parametrize(
    ("utility", "model", "levels"),
    [
        ([], binary, [0, 1]),
        ([0, 0], binary, [0, 1]),
        ([3, 3], binary, [0, 3]),
        ([-2.0], binary, [-2, 0]),
        ([3, 1, 3], binary, [1, 3]),
        ([3, 0, 1, 1, 7], graded, [0, 1, 3, 7]),
        (np.arange(8.0), graded, np.arange(8.0)),
        (np.arange(9.0), continuous, [4, np.sqrt(60 / 9)]),
        ([*np.arange(9.0), 8.0], continuous, [4.4, np.std([*np.arange(9.0), 8.0])]),
    ],
)
def test_model_for(utility, model, levels):
    chosen, found = model_for(np.asarray(utility, np.float64))
    assert chosen is model
    np.testing.assert_allclose(found, levels, rtol=1e-15)
    assert found.dtype == np.float64


def test_five_levels_are_graded():
    chosen, levels = model_for(np.array([0.0, 1, 2, 3, 4]))
    assert chosen is graded
    assert len(levels) == 5
    assert models.MOST_LEVELS == 8
