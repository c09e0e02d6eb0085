"""What a model believes of systems' values: right of complete judgments, and by its own law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from evenhand.decisions.posterior import Beliefs, believed
from evenhand.decisions.ranks import ranking
from evenhand.estimands.evaluation import evaluate
from evenhand.formats.runs import read_runs
from evenhand.priors.models import continuous
from evenhand.study import Study

N, QUERIES = 8, 6


def made(seed=0):
    """Two systems and a twin of the second on a few queries, and grades of all documents."""
    rng = np.random.default_rng(seed)
    merit = {f"q{q}": {f"d{d}": rng.normal() for d in range(N + 4)} for q in range(QUERIES)}
    runs = {}
    for name in ("x", "y"):
        seen = {q: {d: m + rng.normal() for d, m in of.items()} for q, of in merit.items()}
        runs[name] = {
            q: dict(sorted(of.items(), key=lambda one: -one[1])[:N]) for q, of in seen.items()
        }
    runs["twin"] = runs["y"]
    grades = {
        q: {d: float(np.clip(round(m + rng.normal()), 0, 2)) for d, m in of.items()}
        for q, of in merit.items()
    }
    return runs, grades


def judged(folder, measure, n):
    """A study of which `n` pairs are judged, by default all; and what was said."""
    runs, grades = made()
    study = Study.create(folder, runs, measure=measure, grades=[0, 1, 2])
    study.draw(n or len(study.pool), kind="naive", seed=1)
    cells = np.unique(np.concatenate([one.sample.draws for one in study._rounds()]))
    told: dict[str, dict[str, float]] = {}
    for query, document in zip(*study.pool.names(cells), strict=True):
        told.setdefault(query, {})[document] = grades[query][document]
    study.judge(told)
    return study, told


MEASURES = ["P@4", "DCG@6", "Gain@3", "RBP(p=0.8)", "nDCG@5", "AP", "R@4", "Rprec"]
MEASURES += ["MAE", "MSE@3", "Swaps", "wSwaps"]


@pytest.mark.parametrize("measure", MEASURES)
def test_complete_judgments_leave_nothing_to_believe(tmp_path, measure):
    study, told = judged(tmp_path / "s", measure, None)
    found = study.beliefs()
    truth = evaluate(read_runs(made()[0]), told, [measure]).value[0]
    assert found.systems == ("x", "y", "twin")
    # Utilities are kept in single precision, in which these are exact.
    np.testing.assert_allclose(found.value, np.tile(truth, (1000, 1)), rtol=0, atol=1e-6)
    assert found.model == "learned"


@pytest.mark.parametrize("measure", ["DCG@6", "MAE", "Swaps"])
def test_what_is_not_judged_is_drawn_from_the_model(tmp_path, measure):
    study, _ = judged(tmp_path / "s", measure, 25)
    at = study._snapshot()
    labels = at.ledger.to_learn()
    found = believed(at.goal.target, at.ledger.utility(), at.prior(), labels)
    posterior = at.prior().fit([labels])[0]
    draws = posterior.simulate(1000, seed=0)
    known = at.ledger.utility()
    draws[:, np.isfinite(known)] = known[np.isfinite(known)]
    names = list(zip(*study.pool.names(np.arange(len(study.pool))), strict=True))
    for draw, value in list(zip(draws, found.value, strict=True))[:5]:
        told: dict[str, dict[str, float]] = {}
        for (query, document), grade in zip(names, draw, strict=True):
            told.setdefault(query, {})[document] = float(grade)
        truth = evaluate(read_runs(made()[0]), told, [measure]).value[0]
        np.testing.assert_allclose(value, truth, rtol=0, atol=1e-6)
    # Systems that return the same are worth the same, up to the order in which lists are summed.
    np.testing.assert_allclose(found.value[:, 1], found.value[:, 2], rtol=0, atol=1e-12)
    assert found.value.std(0).min() > 0
    again = study.beliefs()
    assert (again.value == found.value).all()
    assert (study.beliefs(seed=1).value != found.value).any()


@pytest.mark.parametrize("model", [None, continuous])
def test_simulated_judgments_have_the_predicted_moments(tmp_path, model):
    study, _ = judged(tmp_path / "s", "DCG@6", 25)
    at = study._snapshot()
    posterior = at.prior(model=model).fit([at.ledger.to_learn()])[0]
    # The draws of the parameters that predictions average over, each as often.
    alike = posterior.fitted._replace(factor=np.zeros((0, 0)))
    draws = replace(posterior, fitted=alike).simulate(32 * 512)
    told = posterior.predict(np.arange(draws.shape[1]))
    if model is None:
        assert np.isin(draws, posterior.levels).all()
    # 5 standard errors for 50 cells: a false alarm in 3e4 runs. Fourth moments are at most 3 times
    # the square of the variance, or the range's; means that are .02 off would be seen.
    spread = np.sqrt(told.second_moment - told.mean**2)
    error = 5 / np.sqrt(len(draws))
    assert (np.abs(draws.mean(0) - told.mean) < error * spread).all()
    fourth = ((draws - draws.mean(0)) ** 4).mean(0)
    noise = np.sqrt(fourth - spread**4)
    assert (np.abs(draws.var(0) - spread**2) < error * noise).all()


def test_who_is_the_best():
    rng = np.random.default_rng(0)
    value = np.column_stack([rng.normal(size=20_000), np.ones(20_000), np.ones(20_000)])
    found = Beliefs("m", ("a", "b", "c"), value)
    # Twins are the best together; 5 standard errors of 20,000 draws.
    chance = found.best(np.array([0, 1, 1]), 1)
    assert chance == pytest.approx([ndtr(-1), ndtr(1), ndtr(1)], abs=0.013)
    # Others that tie share it; lower may be better; a system may be left out.
    assert found.best(np.array([0, 1, 2]), 1)[1:] == pytest.approx([ndtr(1) / 2] * 2, abs=0.0065)
    assert found.best(np.array([0, 1, 1]), -1)[0] == pytest.approx(ndtr(1), abs=0.013)
    assert found.best(np.array([-1, 1, 1]), 1).tolist() == [0, 1, 1]
    assert found.best(np.array([-1, -1, -1]), 1).tolist() == [0, 0, 0]
    lost = Beliefs("m", ("a", "b", "c"), np.where(value == value[0, 0], np.nan, value))
    assert np.isnan(lost.best(np.array([0, 1, 1]), 1)).all()


def test_told_beside_estimates(tmp_path):
    study, _ = judged(tmp_path / "s", "DCG@6", 25)
    found, beliefs = study.estimate(), study.beliefs()
    plain, both = ranking(found), ranking(found, beliefs)
    assert plain.best_posterior is None
    assert "best_posterior" not in plain.to_dict()["systems"][0]
    assert both.best.tolist() == plain.best.tolist()
    place = [beliefs.systems.index(name) for name in both.systems]
    expected = beliefs.best(np.array([0, 1, 1]), 1)[place]
    assert both.best_posterior is not None
    assert both.best_posterior.tolist() == expected.tolist()
    assert expected[place.index(0)] + expected[place.index(1)] == pytest.approx(1)
    assert "in the posterior of a model that learned" in str(both)
    assert "posterior" not in str(plain)
