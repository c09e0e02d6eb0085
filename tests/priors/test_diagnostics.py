"""What is told of a fit: groups that ArviZ reads, calibration by hand, and faults in words."""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

from evenhand.estimands.pools import pool
from evenhand.formats.runs import read_runs
from evenhand.priors import diagnostics
from evenhand.priors.diagnostics import DRAWS
from evenhand.priors.features import feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.labels import Labels

QUERIES, N = 6, 60


@functools.cache
def table():
    rng = np.random.default_rng(0)
    runs = {
        f"s{j}": {
            f"q{q}": {f"d{d:02}": s for d, s in enumerate(rng.normal(size=30))}
            for q in range(QUERIES)
        }
        for j in range(3)
    }
    return feature_table(pool(read_runs(runs), depth=20))


@functools.cache
def fits():
    """A fit to binary judgments, one to grades, and one to nothing, by name."""
    rng = np.random.default_rng(1)
    cells = rng.permutation(len(table().pool))[:N]
    said = 1.5 * table().values[cells, 0] + rng.logistic(size=N)
    sets = {
        "binary": Labels(cells, (said > 0.5) * 1.0),
        "graded": Labels(cells, np.array([0.0, 1.0, 3.0])[(said > 0).astype(int) + (said > 1.5)]),
        "nothing": Labels(cells[:0], np.zeros(0)),
    }
    return dict(zip(sets, NumPyroPrior(table()).fit(list(sets.values())), strict=True))


@functools.cache
def handed(name):
    return diagnostics.to_arviz(fits()[name])


@functools.cache
def arviz():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # arviz 0.x announces 1.x when it is imported
        import arviz
    return arviz


def groups(data):
    """Names of the groups of an InferenceData of arviz 0.x or a DataTree of arviz 1.x."""
    if arviz().__version__.startswith("0."):
        assert isinstance(data, arviz().InferenceData)
        return set(data.groups())
    return set(data.children)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["binary", "graded"])
def test_groups_and_shapes(name):
    posterior, data = fits()[name], handed(name)
    assert groups(data) == {
        "posterior",
        "posterior_predictive",
        "log_likelihood",
        "observed_data",
        "constant_data",
    }
    k = len(table().pool.systems)
    shapes = {
        "slopes": (1, DRAWS, len(table().names)),
        "queries": (1, DRAWS, QUERIES),
        "trust": (1, DRAWS, k),
        "query_scale": (1, DRAWS),
        "trust_scale": (1, DRAWS),
    }
    if name == "binary":
        shapes |= {"intercept": (1, DRAWS)}
    else:
        shapes |= {"first_cut": (1, DRAWS), "cut_steps": (1, DRAWS, 1)}
    found = data["posterior"]
    assert {str(v): found[v].shape for v in found.data_vars} == shapes
    assert found["slopes"].dims[:2] == ("chain", "draw")
    assert (found["query_scale"].values > 0).all()  # as the model means it, not its logarithm
    for group in ("posterior_predictive", "log_likelihood"):
        assert data[group]["judgment"].shape == (1, DRAWS, N)
    constant = data["constant_data"]
    np.testing.assert_array_equal(constant["cell"], posterior.labels.cells)
    np.testing.assert_array_equal(constant["utility"], posterior.labels.utility)
    np.testing.assert_array_equal(constant["query"], table().pool.query[posterior.labels.cells])
    # Judgments are observed as the model has them: by level.
    np.testing.assert_array_equal(
        posterior.levels[data["observed_data"]["judgment"].values.astype(int)],
        posterior.labels.utility,
    )


def test_likelihood_by_hand():
    posterior, data = fits()["binary"], handed("binary")
    rows, given = posterior.data(), data["posterior"]
    at = {str(v): given[v].values[0] for v in given.data_vars}
    eta = (
        at["intercept"][:, None]
        + at["slopes"] @ rows[0].values.T
        + at["query_scale"][:, None] * at["queries"][:, rows[0].query]
        + at["trust_scale"][:, None] * (at["trust"] @ rows[0].votes.T)
    )
    sign = 2 * posterior.labels.utility - 1
    expected = -np.log1p(np.exp(-sign * eta))
    np.testing.assert_allclose(data["log_likelihood"]["judgment"].values[0], expected, rtol=1e-9)
    # Simulated judgments have the chances of the draws: 1920 of them, so within 5 deviations.
    chance = 1 / (1 + np.exp(-eta))
    simulated = data["posterior_predictive"]["judgment"].values
    assert set(np.unique(simulated)) == {0, 1}
    deviation = np.sqrt((chance * (1 - chance)).sum())
    assert abs(simulated.sum() - chance.sum()) < 5 * deviation


def test_without_judgments_there_is_a_posterior_alone():
    assert groups(handed("nothing")) == {"posterior"}
    assert handed("nothing")["posterior"]["slopes"].shape[:2] == (1, DRAWS)


def test_loo():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 32 draws make for rough tails, of which ArviZ warns
        found = arviz().loo(handed("binary"))
    elpd = found.elpd_loo if hasattr(found, "elpd_loo") else found.elpd
    assert N * np.log(0.1) < elpd < 0
    # Better than knowing nothing.
    share = fits()["binary"].labels.utility.mean()
    assert elpd > N * (share * np.log(share) + (1 - share) * np.log(1 - share)) - 5


def test_saved_files_are_read_by_arviz_alone(tmp_path):
    path = tmp_path / "posterior.nc"
    diagnostics.save(fits()["graded"], path)
    script = (
        "import sys, arviz\n"
        "data = arviz.from_netcdf(sys.argv[1])\n"
        "print(*data['posterior']['slopes'].shape, *data['log_likelihood']['judgment'].shape)\n"
        "print(data['constant_data']['utility'].values.sum())\n"
        "print(float(data['posterior']['slopes'].values.sum()))\n"
        "print('evenhand' in sys.modules)\n"
    )
    read = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    shapes, utility, slopes, ours = read.stdout.splitlines()
    assert shapes == f"1 {DRAWS} {len(table().names)} 1 {DRAWS} {N}"
    assert float(utility) == fits()["graded"].labels.utility.sum()
    assert float(slopes) == pytest.approx(
        float(handed("graded")["posterior"]["slopes"].values.sum()), rel=1e-12
    )
    assert ours == "False"


def columns(made):
    """A table's columns as NumPy arrays, by name."""
    frame = made.to_frame()
    return {name: frame[name].to_numpy() for name in frame}


@pytest.mark.parametrize("bins", [1, 7, 10, 500])
def test_calibration_by_prediction(bins):
    posterior = fits()["graded"]
    predicted = posterior.predict(posterior.labels.cells).mean
    found = columns(diagnostics.calibration(posterior, bins=bins))
    n_bins = min(bins, N)
    assert list(found) == ["bin", "judgments", "predicted", "observed"]
    assert found["bin"].tolist() == [str(i + 1) for i in range(n_bins)]
    assert found["judgments"].sum() == N
    assert np.ptp(found["judgments"]) <= 1  # of equal size, but for the remainder
    order = np.argsort(predicted, kind="stable")
    parts = np.split(order, np.cumsum(found["judgments"])[:-1])
    np.testing.assert_allclose(found["predicted"], [predicted[p].mean() for p in parts], rtol=1e-12)
    np.testing.assert_allclose(
        found["observed"], [posterior.labels.utility[p].mean() for p in parts], rtol=1e-12
    )
    assert (np.diff(found["predicted"]) >= 0).all()


def test_calibration_by_query():
    whole = fits()["binary"]
    # Query q3 unjudged: it has no row.
    kept = table().pool.query[whole.labels.cells] != 3
    posterior = replace(whole, labels=whole.labels.only(np.flatnonzero(kept)))
    cells, said = posterior.labels.cells, posterior.labels.utility
    predicted = posterior.predict(cells).mean
    found = columns(diagnostics.calibration(posterior, by="query"))
    assert found["query"].tolist() == ["q0", "q1", "q2", "q4", "q5"]
    for row, query in enumerate((0, 1, 2, 4, 5)):
        rows = table().pool.query[cells] == query
        assert found["judgments"][row] == rows.sum()
        assert found["predicted"][row] == pytest.approx(predicted[rows].mean(), rel=1e-12)
        assert found["observed"][row] == pytest.approx(said[rows].mean(), rel=1e-12)


@pytest.mark.parametrize("by", ["prediction", "query"])
def test_calibration_of_nothing_is_empty(by):
    made = diagnostics.calibration(fits()["nothing"], by=by)
    assert len(made.to_frame()) == 0


@pytest.mark.parametrize("name", ["binary", "graded", "nothing"])
def test_a_fine_fit_has_no_faults(name):
    assert diagnostics.faults(fits()[name]) == []


def test_faults_are_told():
    fine = fits()["binary"]
    restless = replace(fine, fitted=fine.fitted._replace(converged=np.array(False)))
    (said,) = diagnostics.faults(restless)
    assert "did not come to rest" in said
    assert "try method 'svi' or 'nuts'" in said
    broken = replace(fine, fitted=fine.fitted._replace(draws=fine.fitted.draws * np.nan))
    (said,) = diagnostics.faults(broken)
    assert "not finite" in said
    assert (
        len(
            diagnostics.faults(
                replace(broken, fitted=broken.fitted._replace(converged=np.array(False)))
            )
        )
        == 2
    )
    # Held against what it was not fitted to: assessors who call everything relevant.
    labels = Labels(fine.labels.cells, np.ones(N))
    (said,) = diagnostics.faults(replace(fine, labels=labels))
    assert f"in all where assessors said {N}" in said
    assert "check the model's levels and signals" in said
    # Of fewer than 20 judgments nothing is made.
    few = labels.only(np.arange(19))
    assert diagnostics.faults(replace(fine, labels=few)) == []


@pytest.mark.slow
def test_a_few_judgments_that_carry_the_fit_are_told():
    # Every judgment has a query of its own, so that each query's effect leans on one of them.
    runs = {
        f"s{j}": {f"q{q}": {f"d{d}": float(d * (j + 1) % 7) for d in range(4)} for q in range(60)}
        for j in range(2)
    }
    own = feature_table(pool(read_runs(runs), depth=4))
    cells = np.arange(0, len(own.pool), 4)
    rng = np.random.default_rng(0)
    said = np.exp(2.0 * rng.normal(size=len(cells)))
    (alone,) = NumPyroPrior(own).fit([Labels(cells, said)])
    (found,) = diagnostics.doubts(alone)
    assert "judgments carry the model alone (Pareto k above 0.7)" in found
    assert diagnostics.doubts(fits()["binary"]) == []
    assert diagnostics.doubts(fits()["nothing"]) == []


def test_chains_that_disagree_are_told():
    fine = fits()["binary"]
    d = fine.fitted.mode.size
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(2, 100, d))
    apart[1] += 3.0
    none = np.zeros((0, 0))
    chained = fine.fitted._replace(draws=apart.reshape(200, d), factor=none, chains=np.asarray(2))
    (found,) = [f for f in diagnostics.faults(replace(fine, fitted=chained)) if "chains" in f]
    assert found.startswith("the model's chains disagree (R-hat 2")
    together = rng.normal(scale=0.01, size=(400, d)) + fine.fitted.mode
    chained = chained._replace(draws=together)
    assert not [f for f in diagnostics.faults(replace(fine, fitted=chained)) if "chains" in f]
    assert diagnostics.to_arviz(replace(fine, fitted=chained))["posterior"]["slopes"].shape[:2] == (
        2,
        200,
    )
