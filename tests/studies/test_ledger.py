"""Which judgment counts for which round: those of a round judged again are its own."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from evenhand.cli import main
from evenhand.errors import StudyError
from evenhand.study import Study

RUNS = {
    system: {f"q{q}": {f"d{(step * i + q) % 9}": 9.0 - i for i in range(6)} for q in range(4)}
    for system, step in {"a": 1, "b": 2, "c": 4}.items()
}
N = 10


def truth(query, document):
    return (int(query[1]) + int(document[1]) ** 2) % 3


def by(assessor, path, shift=0.0):
    """A filled-in file, by one assessor."""
    asked = pd.read_csv(path, sep="\t", dtype=str)
    grade = [truth(*row) + shift for row in zip(asked.qid, asked.docid, strict=True)]
    return asked.assign(grade=grade, assessor=assessor)


@pytest.fixture
def study(tmp_path):
    made = Study.create(tmp_path / "s", RUNS, measure="DCG@6")
    first = made.draw(N, seed=1).to_judge
    made.judge(by("ann", first), by("bob", first, shift=1.0))
    return made


def record(study, number):
    return json.loads((study.folder / f"round-00{number}" / "round.json").read_text())


def test_rounds_share_what_is_said_of_a_pair(study):
    (one,) = study.rounds()
    assert not one.judged_again
    assert one.individual is not None
    assert len(one.individual) == 2 * N
    assert sorted(set(one.individual.assessor.tolist())) == [0, 1]
    want = [truth(*row) + 0.5 for row in zip(*study.pool.names(one.sample.draws), strict=True)]
    assert one.utility.tolist() == want
    found = study.estimate()
    # Two assessors who differ by 1 everywhere: what they add is as large as that makes it.
    alone = Study.create(study.folder.parent / "alone", RUNS, measure="DCG@6")
    alone.judge(by("ann", alone.draw(N, seed=1).to_judge))
    assert alone.rounds()[0].individual is None
    assert (found.std_error > alone.estimate().std_error).all()


def test_a_round_judged_again_waits_for_others(study):
    drawn = study.draw(2 * N, seed=2, rejudge=True)
    assert drawn.n_new == drawn.n_distinct == 2 * N
    assert record(study, 2)["rejudge"] is True
    assert record(study, 2)["mark"] == 2 * N
    assert record(study, 2)["known"] == 0
    again = set(study.rounds()[0].sample.draws) & set(study.rounds()[1].sample.draws)
    assert again
    # Ann has judged some of these pairs before: for them she cannot stand in for another.
    taken = study.judge(by("ann", drawn.to_judge))
    assert taken.missing == {"round-001": 0, "round-002": len(again)}
    assert "by assessors who have not judged the pair before" in taken.notes[-1]
    whole = study.estimate()
    assert whole.n_rounds == 1
    assert any("round-002" in note for note in whole.notes)
    taken = study.judge(by("eve", drawn.to_judge, shift=2.0))
    assert taken.missing == {"round-001": 0, "round-002": 0}
    assert not taken.notes
    first, second = study.rounds()
    assert second.judged_again
    pairs = list(zip(*study.pool.names(second.sample.draws), strict=True))
    want = [
        truth(*pair) + (2.0 if cell in again else 1.0)
        for cell, pair in zip(second.sample.draws, pairs, strict=True)
    ]
    assert second.utility.tolist() == want
    # The first round's judgments are what they were.
    want = [truth(*row) + 0.5 for row in zip(*study.pool.names(first.sample.draws), strict=True)]
    assert first.utility.tolist() == want
    assert study.estimate().n_rounds == 2


def test_a_judgment_belongs_to_the_last_round_that_asked(study):
    path = study.draw(2 * N, seed=2, rejudge=True).to_judge
    # Late answers to the first round are of the second where it drew the pair too.
    study.judge(by("dan", study.folder / "round-001" / "to_judge.tsv", shift=5.0))
    first, second = study.rounds()
    both = np.isin(first.sample.draws, second.sample.draws)
    want = np.array([truth(*r) for r in zip(*study.pool.names(first.sample.draws), strict=True)])
    assert first.utility[both].tolist() == (want[both] + 0.5).tolist()
    assert first.utility[~both].tolist() == (want[~both] + 2.0).tolist()
    # A correction stays where the judgment was.
    late = by("dan", study.folder / "round-001" / "to_judge.tsv", shift=8.0)
    study.judge(late, revise=True)
    first, second = study.rounds()
    assert first.utility[~both].tolist() == (want[~both] + 3.0).tolist()
    # After it, rounds that share leave out only what is known to those that share.
    study.judge(by("eve", path))
    third = study.draw(5, seed=3)
    assert record(study, 3)["known"] == N
    assert not np.isin(study.rounds()[2].sample.draws, first.sample.draws).any()
    assert third.n_new == 5
    study.judge(by("fay", third.to_judge))
    found = study.estimate()
    assert found.n_rounds == 3
    assert np.isfinite(found.std_error).all()


def test_the_command(study):
    runner = CliRunner()
    result = runner.invoke(main, ["draw", str(study.folder), "--budget", "7", "--rejudge"])
    assert result.exit_code == 0, result.output
    assert record(study, 2)["rejudge"] is True
    with pytest.raises(StudyError, match="none of the 1 judgments"):
        study.judge(pd.DataFrame({"qid": ["q0"], "docid": ["zz"], "grade": [1.0]}))


@pytest.mark.slow
def test_models_hear_who_said_it(tmp_path):
    # Each of two assessors judges one half of a round of 40, one of them by far too kindly.
    runs = {
        system: {f"q{q}": {f"d{(step * i + q) % 23}": 9.0 - i for i in range(9)} for q in range(8)}
        for system, step in {"a": 1, "b": 2, "c": 5}.items()
    }
    study = Study.create(tmp_path / "s", runs, measure="P@9")
    drawn = study.draw(40, seed=1)
    asked = pd.read_csv(drawn.to_judge, sep="\t", dtype=str)
    grade = [int(truth("q0", "d" + d[1]) > 1) for d in asked.docid]
    kind = np.arange(len(asked)) % 2 == 0
    said = asked.assign(grade=np.maximum(grade, kind), assessor=np.where(kind, "kind", "strict"))
    study.judge(said)
    drawn = study.draw(40, seed=2, utility="learned", rejudge=True)
    assert "learned" in drawn.design
    import arviz

    kept = arviz.from_netcdf(study.folder / "round-002" / "posterior.nc")
    assert "severity" in kept["posterior"]
