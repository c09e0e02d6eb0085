"""How far a learned prior can be trusted: ArviZ's view of it, calibration, and faults.

`to_arviz` hands a posterior to ArviZ: an ``InferenceData`` of arviz 0.x or a ``DataTree`` of
arviz 1.x, through one seam. `save` writes the same into a file that ArviZ reads alone.
`calibration` holds predictions against what was judged; `faults` says what is poor, in words; and
`doubts` asks ArviZ, by leaving judgments out one by one, whether a few of them carry the fit.

None of this touches an estimate's validity: a poor prior costs width. The design leans more on the
heuristic where something is poor.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import Predictive, log_likelihood
from numpyro.infer.util import constrain_fn

from evenhand.errors import EvenhandError
from evenhand.float64 import in_float64
from evenhand.priors import log_density
from evenhand.priors.features import Features
from evenhand.priors.models import Model, Observed
from evenhand.priors.prior import NumPyroPosterior
from evenhand.results import Table

__all__ = ["calibration", "doubts", "faults", "save", "to_arviz"]

#: Draws that ArviZ gets of a normal posterior.
DRAWS = 400
#: Split R-hat, and effective draws of a parameter, beyond which chains are not trusted; and the
#: share of judgments with a Pareto k above 0.7 (Vehtari, Gelman and Gabry 2017).
MOST_RHAT, LEAST_ESS, MOST_K = 1.05, 100, 0.05


@in_float64
def _groups(posterior: NumPyroPosterior) -> dict[str, dict[str, np.ndarray]]:
    """Every group by name: draws have the shape (chains, draws, ...)."""
    labels, drawn = posterior.labels, posterior.parameters(DRAWS)
    chains = len(drawn)
    groups, observed = _by_draw(
        drawn.reshape(-1, drawn.shape[-1]),
        *posterior.data(),
        posterior.levels,
        model=posterior.model,
        judging=len(labels) > 0,
    )
    found = {
        group: {
            name: np.asarray(value).reshape(chains, -1, *np.shape(value)[1:])
            for name, value in values.items()
        }
        for group, values in groups.items()
    }
    if len(labels):
        found["observed_data"] = {"judgment": np.asarray(observed)}
        found["constant_data"] = {
            "query": posterior.table.pool.query[labels.cells],
            "cell": labels.cells,
            "utility": labels.utility,
        }
    return found


@partial(jax.jit, static_argnames=("model", "judging"))
def _by_draw(
    draws: jax.Array,
    features: Features,
    judged: Observed,
    levels: jax.Array,
    *,
    model: Model,
    judging: bool,
) -> tuple[dict[str, dict[str, jax.Array]], jax.Array | None]:
    """Groups by name, a row for each draw of the parameters; and the judgments as the model has."""
    _, unravel = log_density.parameters(model, features, judged, levels)

    def constrained(theta: jax.Array) -> dict[str, jax.Array]:
        return constrain_fn(model, (features, judged), {"levels": levels}, unravel(theta))

    sites = jax.vmap(constrained)(draws)
    if not judging:
        return {"posterior": sites}, None
    likelihood = log_likelihood(model, sites, features, judged, levels=levels)
    simulated = Predictive(handlers.uncondition(model), sites, return_sites=["judgment"])(
        jax.random.key(0), features, judged, levels=levels
    )
    seeded = handlers.trace(handlers.seed(model, 0))
    observed = seeded.get_trace(features, judged, levels=levels)["judgment"]["value"]
    return {
        "posterior": sites,
        "log_likelihood": likelihood,
        "posterior_predictive": simulated,
    }, observed


def to_arviz(posterior: NumPyroPosterior) -> Any:
    """The posterior as ArviZ knows it.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        With the groups posterior, posterior_predictive, log_likelihood, observed_data and
        constant_data; the first alone where nothing was judged.
    """
    groups = _groups(posterior)
    arviz = _arviz()
    make: Any = arviz.from_dict  # each version takes groups in its own way
    if arviz.__version__.startswith("0."):  # 1.x knows the name InferenceData, and warns of it
        return make(**groups)
    return make(groups)


def _arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arviz 0.x announces 1.x when it is imported
        import arviz
    return arviz


def save(posterior: NumPyroPosterior, path: Path) -> None:
    """Write what `to_arviz` gives; ``arviz.from_netcdf(path)`` reads it back."""
    to_arviz(posterior).to_netcdf(path, engine="h5netcdf")


def calibration(posterior: NumPyroPosterior, *, by: str = "prediction", bins: int = 10) -> Table:
    """Mean judgment beside mean prediction.

    Parameters
    ----------
    posterior
        What was learned; it is held against the labels that it was fitted to.
    by
        ``prediction``: by bins of equal size; ``query``: by query.
    bins
        Number of bins.

    Raises
    ------
    EvenhandError
        If `by` is neither.
    """
    if by not in ("prediction", "query"):
        raise EvenhandError(f"unknown calibration by {by!r}", hint="'prediction' or 'query'")
    labels = posterior.labels
    predicted = posterior.predict(labels.cells).mean
    if by == "query":
        pool = posterior.table.pool
        codes, group = np.unique(pool.query[labels.cells], return_inverse=True)
        names = [str(pool.queries[int(code)].as_py()) for code in codes]
    else:
        order = np.argsort(predicted, kind="stable")
        group = np.empty(len(labels), np.int64)
        group[order] = np.arange(len(labels)) * min(bins, len(labels)) // max(len(labels), 1)
        names = [f"{i + 1}" for i in range(int(group.max(initial=-1)) + 1)]
    count = np.bincount(group, minlength=len(names))
    columns = {
        "query" if by == "query" else "bin": names,
        "judgments": count,
        "predicted": np.bincount(group, predicted, minlength=len(names)) / count,
        "observed": np.bincount(group, labels.utility, minlength=len(names)) / count,
    }
    return Table.of(f"Calibration by {by}", columns, 3)


def faults(posterior: NumPyroPosterior) -> list[str]:
    """What is poor about a fit and what to do, a sentence each; empty if nothing is."""
    found, labels = [], posterior.labels
    if not np.all(posterior.fitted.converged):
        found.append(
            "the model's fit did not come to rest: the design leans on ranks; try method 'svi' or "
            "'nuts', or tighter priors"
        )
    if not np.isfinite(posterior.fitted.draws).all():
        found.append("the model's fit is not finite: the design is that from ranks alone")
        return found
    if int(posterior.fitted.chains) > 1:
        drawn = posterior.parameters(DRAWS)
        rhat = float(np.max(split_gelman_rubin(drawn)))
        ess = float(np.min(effective_sample_size(drawn)))
        if rhat > MOST_RHAT or ess < LEAST_ESS:
            found.append(
                f"the model's chains disagree (R-hat {rhat:.3f}, {ess:.0f} effective draws): the "
                "design leans on ranks; take more draws, or method 'laplace'"
            )
    if len(labels) >= 20:
        predicted = posterior.predict(labels.cells)
        spread = np.sqrt(np.maximum(predicted.second_moment - predicted.mean**2, 0.0).sum())
        off = (labels.utility - predicted.mean).sum()
        if abs(off) > 4.0 * max(spread, 1e-12):
            found.append(
                f"the model predicts {predicted.mean.sum():.4g} in all where assessors said "
                f"{labels.utility.sum():.4g}: the design leans on ranks; check the model's levels "
                "and signals"
            )
    return found


def doubts(posterior: NumPyroPosterior) -> list[str]:
    """What leaving judgments out one by one says against a fit (PSIS-LOO), a sentence or nothing.

    A Pareto k above 0.7 means that without that judgment the model would have learned something
    else. It takes seconds rather than milliseconds, so `faults` leaves it out.
    """
    if len(posterior.labels) < 20 or not np.isfinite(posterior.fitted.draws).all():
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the very judgments that are counted here
        k = np.asarray(_arviz().loo(to_arviz(posterior), pointwise=True).pareto_k)
    poor = int((k > 0.7).sum())
    if poor <= MOST_K * len(k):
        return []
    return [
        f"{poor:,} of {len(k):,} judgments carry the model alone (Pareto k above 0.7): the design "
        "leans on ranks; it will settle with more judgments, or with fewer signals"
    ]
