"""Rules to stop: valid for whoever looks after every round."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.errors import EvenhandError
from evenhand.stopping import check_rule, level_at, stopped
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
