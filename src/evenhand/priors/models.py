r"""NumPyro models of what an assessor says of a pair.

A model is a plain function ``model(features, judged=None, *, levels)``. It samples its parameters,
forms a linear predictor eta, and ends in a response, which records two deterministic sites by cell,

    ``mean``      E[r | parameters]           expected judgment of the cell                  (1)
    ``spread``    Var[r | parameters]         of one judgment around it                      (2)

and observes the judgments where there are any. That is all that `evenhand.priors.prior` needs of a
model, so one of yours is ten lines: see `binary`. One that knows utilities one by one may record a
third,

    ``reached``   P(r >= level l | parameters)   of all levels but the lowest, (cells, L - 1)

which ratios of grades divide by (`evenhand.nonlinear.linearisation`).

The models here have one predictor: features with weak slopes, an intercept for each query, a vote
for each system, the latter two shrunk and non-centred:

    eta_c = b0 + x_c' b + s_q z_{q(c)} + s_v sum_j v_jc t_j,       z, t ~ N(0, 1)            (3)

- `binary`: two utilities; P(the larger) = logistic(eta). (Bernoulli-logit.)
- `graded`: L utilities; P(r >= level l) = logistic(eta - cut_l). (Ordered logistic.)
- `continuous`: r ~ Normal(eta, noise), in units of its own.

With several named assessors, assessor a answers by d_a (eta + s_a). Severity s_a and
discrimination d_a are shrunk to those of the mean assessor, s = 0 and d = 1, the assessor of
``mean`` and ``spread``.

A model may be as wrong as it likes: it steers the design and the control variate, and moves only
the width of intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers

from evenhand.priors.features import Array, Features

__all__ = [
    "Model",
    "Observed",
    "binary",
    "binary_response",
    "continuous",
    "continuous_response",
    "graded",
    "graded_response",
    "model_for",
    "predictor",
]

Model = Callable[..., None]

#: Utilities up to which grades are modelled one by one.
MOST_LEVELS = 8


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Observed:
    """Judged utilities, filled up to a fixed length.

    Attributes
    ----------
    utility
        Shape (n,).
    weight
        How often each row counts: 0 for filling, n / B for a row of a minibatch of B; shape (n,).
    assessor
        Code of the assessor; int32, shape (n,).
    n_assessors
        Static; 1 where assessors are not distinguished.
    """

    utility: Array
    weight: Array
    assessor: Array
    n_assessors: int = field(metadata={"static": True}, default=1)


def predictor(features: Features) -> jax.Array:
    """Eta of equation (3), without the intercept b0; shape (n,)."""
    n_features, n_systems = features.values.shape[1], features.votes.shape[1]
    slopes = _draw("slopes", _normal(n_features, 1.5))
    query_scale = _draw("query_scale", dist.LogNormal(0.0, 0.3))
    trust_scale = _draw("trust_scale", dist.LogNormal(0.0, 0.3))
    queries = _draw("queries", _normal(features.n_queries))
    trust = _draw("trust", _normal(n_systems))
    return (
        features.values @ slopes
        + query_scale * queries[features.query]
        + trust_scale * (features.votes @ trust)
    )


def _draw(name: str, law: dist.Distribution) -> jax.Array:
    return jnp.asarray(numpyro.sample(name, law))


def _normal(n: int, scale: float = 1.0) -> dist.Distribution:
    return dist.Normal(0.0, scale).expand([n]).to_event(1)


def _by_assessor(eta: jax.Array, judged: Observed | None) -> jax.Array:
    """Eta as each row's assessor understands it."""
    if judged is None or judged.n_assessors == 1:
        return eta
    severity = _draw("severity", _normal(judged.n_assessors))
    sharpness = _draw("discrimination", _normal(judged.n_assessors))
    scale = _draw("assessor_scale", dist.LogNormal(-0.7, 0.3))
    return jnp.exp(0.5 * sharpness)[judged.assessor] * (eta + scale * severity[judged.assessor])


def _observe(law: dist.Distribution, judged: Observed | None, value: jax.Array | None) -> None:
    if judged is None:
        return
    counts = judged.weight > 0
    with handlers.mask(mask=counts), handlers.scale(scale=jnp.where(counts, judged.weight, 1.0)):
        numpyro.sample("judgment", law, obs=value)


def binary_response(eta: jax.Array, judged: Observed | None, levels: jax.Array) -> None:
    """Two utilities, `levels`; the larger with probability logistic(eta)."""
    p, gap = jax.nn.sigmoid(eta), levels[1] - levels[0]
    numpyro.deterministic("mean", levels[0] + gap * p)
    numpyro.deterministic("spread", gap**2 * p * (1.0 - p))
    numpyro.deterministic("reached", p[:, None])
    high = None if judged is None else (judged.utility > levels.mean()).astype(eta.dtype)
    _observe(dist.Bernoulli(logits=_by_assessor(eta, judged)), judged, high)


def graded_response(
    eta: jax.Array, judged: Observed | None, levels: jax.Array, cuts: jax.Array
) -> None:
    """L ordered utilities, `levels`; at least level l with probability logistic(eta - cut_l)."""
    reached = jax.nn.sigmoid(eta[:, None] - cuts)
    mean = levels[0] + reached @ jnp.diff(levels)
    square = levels[0] ** 2 + reached @ jnp.diff(levels**2)
    numpyro.deterministic("mean", mean)
    numpyro.deterministic("spread", jnp.maximum(square - mean**2, 0.0))
    numpyro.deterministic("reached", reached)
    level = None
    if judged is not None:
        level = jnp.abs(judged.utility[:, None] - levels).argmin(1)
    _observe(dist.OrderedLogistic(_by_assessor(eta, judged), cuts), judged, level)


def continuous_response(
    eta: jax.Array, judged: Observed | None, levels: jax.Array, noise: jax.Array
) -> None:
    """Real utilities around eta, in units of `levels` = (centre, scale)."""
    numpyro.deterministic("mean", levels[0] + levels[1] * eta)
    numpyro.deterministic("spread", jnp.broadcast_to((levels[1] * noise) ** 2, eta.shape))
    value = None if judged is None else (judged.utility - levels[0]) / levels[1]
    _observe(dist.Normal(_by_assessor(eta, judged), noise), judged, value)


def binary(features: Features, judged: Observed | None = None, *, levels: jax.Array) -> None:
    """Two utilities: Bernoulli-logit with the predictor (3)."""
    intercept = _draw("intercept", dist.Normal(-1.5, 2.0))
    binary_response(intercept + predictor(features), judged, levels)


def graded(features: Features, judged: Observed | None = None, *, levels: jax.Array) -> None:
    """A few ordered utilities: ordered logistic with the predictor (3)."""
    first = _draw("first_cut", dist.Normal(0.5, 2.0))
    steps = _draw("cut_steps", dist.LogNormal(0.0, 0.7).expand([len(levels) - 2]).to_event(1))
    cuts = first + jnp.concatenate([jnp.zeros(1, steps.dtype), jnp.cumsum(steps)])
    graded_response(predictor(features), judged, levels, cuts)


def continuous(features: Features, judged: Observed | None = None, *, levels: jax.Array) -> None:
    """Real utilities: normal with the predictor (3), halved since it is made for logits."""
    intercept = _draw("intercept", dist.Normal(0.0, 1.0))
    noise = _draw("noise", dist.LogNormal(-0.5, 0.5))
    continuous_response(intercept + 0.5 * predictor(features), judged, levels, noise)


def model_for(utility: np.ndarray) -> tuple[Model, np.ndarray]:
    """The model for the utilities that occur, and its `levels`.

    Parameters
    ----------
    utility
        Judged utilities.

    Returns
    -------
    model, levels
        `binary` for up to two distinct utilities (0, or the next one up, is added where there is
        one), `graded` for up to eight, else `continuous`.
    """
    levels = np.unique(utility)
    if len(levels) == 0:
        levels = np.array([0.0, 1.0])
    elif len(levels) == 1:
        levels = np.unique([0.0, levels[0]]) if levels[0] != 0 else np.array([0.0, 1.0])
    if len(levels) == 2:
        return binary, levels
    if len(levels) <= MOST_LEVELS:
        return graded, levels
    return continuous, np.array([utility.mean(), utility.std()])
