"""Rules to stop: valid when asked after every round."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from evenhand.cli import main
from evenhand.decisions.ranks import ranking
from evenhand.decisions.stopping import check_rule, level_at, stopped
from evenhand.errors import EvenhandError
from evenhand.estimands import goals
from evenhand.estimation.importance import estimate
from evenhand.sampling.rounds import Round
from evenhand.sampling.samples import Sample
from evenhand.study import Study

RUNS = {
    system: {f"q{q}": {f"d{(step * i + q) % 9}": 9.0 - i for i in range(6)} for q in range(4)}
    for system, step in {"a": 1, "b": 2, "c": 4}.items()
}
QRELS = {f"q{q}": {f"d{d}": int(d < 3) for d in range(9)} for q in range(4)}


def test_the_levels_of_all_looks_add_up():
    spent = sum(1 - level_at(0.95, look) for look in range(1, 100_001))
    assert spent == pytest.approx(0.05, rel=1e-4)
    assert level_at(0.95, 1) == pytest.approx(1 - 0.05 * 6 / np.pi**2)
    assert level_at(0.95, 2) > level_at(0.95, 1) > 0.95


def test_rules():
    assert check_rule("half-width<0.3") == ("half-width", 0.3)
    assert check_rule("half-width < 2") == ("half-width", 2.0)
    assert check_rule("decided") == ("decided", 0.0)
    for wrong in ("half-width>0.3", "half-width<0", "soon", "half-width<x"):
        with pytest.raises(EvenhandError, match="unknown rule to stop"):
            check_rule(wrong)


@pytest.mark.slow
def test_a_study_that_looks(tmp_path):
    study = Study.create(tmp_path / "s", RUNS, measure="DCG@6")
    study.draw(10, seed=1)
    study.judge(QRELS)
    plain = study.estimate()
    assert plain.stop is None
    assert "stop" not in plain.to_dict()
    wide = study.estimate(stop_when="half-width<0.001")
    assert wide.level == pytest.approx(level_at(0.95, 1))
    assert wide.stop is False
    assert wide.to_dict()["stop"] is False
    assert wide.notes[0].startswith("go on: the mean half-width is ")
    assert (wide.contrast_high - wide.contrast_low > plain.contrast_high - plain.contrast_low).all()
    assert study.estimate(stop_when="half-width<1000").stop is True
    study.draw(5, seed=2)
    study.judge(QRELS)
    assert study.estimate(stop_when="decided").level == pytest.approx(level_at(0.95, 2))
    with pytest.raises(EvenhandError, match="unknown rule"):
        study.estimate(stop_when="never")
    # Everything judged: all is decided, and the best is known.
    whole = Study.create(tmp_path / "w", RUNS, measure="DCG@6")
    whole.draw(len(whole.pool), seed=1)
    whole.judge(QRELS)
    assert whole.estimate(stop_when="decided").stop is True
    best = whole.estimate(stop_when="best")
    assert best.stop is True
    assert best.notes[0].startswith("stop: ")
    assert "is the best" in best.notes[0]
    assert stopped(best, "half-width<1").stop is True


def test_systems_that_return_the_same_are_the_best_together(tmp_path):
    runs = {**RUNS, "twin": RUNS["a"]}
    whole = Study.create(tmp_path / "w", runs, measure="DCG@6")
    whole.draw(len(whole.pool), seed=1)
    whole.judge(
        {f"q{q}": {f"d{d}": int((d - q) % 9 in (0, 1, 2)) for d in range(9)} for q in range(4)}
    )
    found = whole.estimate(stop_when="best")
    assert found.stop is True
    assert "a is the best" in found.notes[0]
    assert whole.estimate(stop_when="decided").stop is True


WIDE = {
    system: {f"q{q}": {f"d{(step * i + q) % 31}": 15.0 - i for i in range(15)} for q in range(2)}
    for system, step in {"a": 1, "b": 2, "c": 4}.items()
}
NOTHING = {f"q{q}": {f"d{d}": 0 for d in range(31)} for q in range(2)}
RULES = ("best", "decided", "half-width<0.05")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("measure", "interval", "n"), [("nDCG@5", "auto", 24), ("P@5", "student", 12)]
)
def test_draws_that_found_nothing_stop_nobody(tmp_path, measure, interval, n, rule):
    """Their variance is 0, and so are intervals that know no better."""
    study = Study.create(tmp_path / "s", WIDE, measure=measure, grades=[0, 1])
    study.draw(n, seed=1)
    study.judge(NOTHING)
    found = study.estimate(stop_when=rule, interval=interval)
    assert (found.contrast_high == found.contrast_low).all()
    assert found.stop is False
    assert found.notes[0].startswith("go on: ")
    assert any("cannot be told" in note for note in found.for_population().notes)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_census_that_found_nothing_does(tmp_path, rule):
    """Then all are known to be alike, but only systems that return the same are the best."""
    study = Study.create(tmp_path / "s", WIDE, measure="nDCG@5", grades=[0, 1])
    study.draw(len(study.pool), seed=1)
    study.judge(NOTHING)
    assert study.estimate(stop_when=rule).stop is (rule != "best")


def test_what_is_not_covered_may_be_better(line_target):
    target = line_target(np.array([[1.0, 1, 0, 0], [0.0, 1, 0, 1]]))
    one = Round(
        Sample("distinct", np.array([0, 1, 2]), np.array([1.0, 1, 1, 0])), np.array([1.0, 0, 1])
    )
    found = estimate(goals.rank(target), [one])
    assert np.isnan(found.value).tolist() == [False, True]
    for rule in RULES:
        assert stopped(found, rule).stop is False
    assert "may be better than s0" in stopped(found, "best").notes[0]
    assert "2 of 2 contrasts are not covered" in stopped(found, "half-width<0.05").notes[0]
    assert np.isnan(found.pairs.std_error).all()
    assert ranking(found).notes_shown()[0] == "s0 is the best of those covered"


def test_a_rule_is_answered_beside_the_estimates(tmp_path):
    study = Study.create(tmp_path / "s", RUNS, measure="DCG@6")
    study.draw(10, seed=1)
    study.judge(QRELS)
    asked = ["estimate", str(study.folder), "--stop-when", "decided"]
    assert '"stop": ' in CliRunner().invoke(main, [*asked, "--format", "json"]).stdout
    for other in (["--ranks"], ["--pairs"], ["--against", "mean"]):
        result = CliRunner().invoke(main, [*asked, *other])
        assert (result.exit_code, "--stop-when is answered beside" in result.stderr) == (2, True)
