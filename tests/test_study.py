"""A study on disk: what is recorded, what is refused, and that nothing is ever lost."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import evenhand
from evenhand.designs.utilities import flat
from evenhand.errors import EvenhandError, FormatError, MissingJudgments, StudyError, SupportError
from evenhand.estimands.evaluation import evaluate
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.simulation import make_collection
from evenhand.studies.round_files import names
from evenhand.study import Study

TREC8 = Path(__file__).resolve().parents[2] / "shared" / "data" / "trec8-adhoc"
SOURCE = str(Path(evenhand.__file__).parents[1])
N = 10  # draws of a round, everywhere the same, so that little is compiled

# Four systems that rank the same 12 documents in different orders, for each of four queries.
STEPS = {"b": (5, 3), "a": (1, 0), "c": (7, 1), "late": (11, 5)}
RANKED = {
    system: {
        f"q{q}": {f"d{(step * i + q + start) % 12}": float(9 - i) for i in range(6)}
        for q in range(4)
    }
    for system, (step, start) in STEPS.items()
}
LATE = {"late": {q: {"x" + d: s for d, s in docs.items()} for q, docs in RANKED["late"].items()}}
RUNS = {system: RANKED[system] for system in "bac"}
QRELS = {
    f"q{q}": {f"{x}d{d}": (q + d * d) % 3 for d in range(12) for x in ("", "x")} for q in range(4)
}


@pytest.fixture
def make(tmp_path):
    def make(name: str = "s", *runs, measure: str = "DCG@5", **options) -> Study:
        return Study.create(tmp_path / name, *(runs or (RUNS,)), measure=measure, **options)

    return make


def asked(study: Study, number: int = 1) -> list[tuple[str, str]]:
    """The pairs of a file to judge."""
    path = study.folder / f"round-{number:03}" / "to_judge.tsv"
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    assert header == "qid\tdocid\tgrade"
    assert all(row.endswith("\t") for row in rows)
    return [tuple(row.split("\t")[:2]) for row in rows]


def grades(pairs, grade=None) -> dict[str, dict[str, float]]:
    """Judgments of some pairs: the true ones, or one and the same."""
    found: dict[str, dict[str, float]] = {}
    for query, document in pairs:
        found.setdefault(query, {})[document] = QRELS[query][document] if grade is None else grade
    return found


def drawn(study: Study, number: int = 1) -> list[int]:
    path = study.folder / f"round-{number:03}" / "draws.parquet"
    return pq.read_table(path)["cell"].to_pylist()


def record(study: Study, number: int = 1) -> dict:
    path = study.folder / f"round-{number:03}" / "round.json"
    return json.loads(path.read_text(encoding="utf-8"))


def refused(kind, function, /, *arguments, **options) -> EvenhandError:
    with pytest.raises(kind) as caught:
        function(*arguments, **options)
    return caught.value


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but the judgments, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "judgments.sqlite" not in path.name
    }


def said(study: Study) -> list[tuple[str, str, str, float]]:
    found = study.store.read()
    return sorted(zip(found.query, found.document, found.assessor, found.grade, strict=True))


# A new study


def test_what_is_fixed_is_written_down(make, tmp_path):
    study = make(goal="baseline", baseline="a", grades=[2, 0, 1, 1], plan=[10, 20])
    assert sorted(os.listdir(study.folder)) == [
        *("judgments.sqlite", "queries.txt", "study.json", "systems-001.parquet")
    ]
    written = json.loads((study.folder / "study.json").read_text(encoding="utf-8"))
    assert written.pop("created").endswith("+00:00")
    assert written == {
        "format": 1,
        "evenhand": importlib.metadata.version("evenhand"),
        "measure": "DCG@5",
        "goal": "baseline",
        "baseline": "a",
        "pair": None,
        "depth": 5,
        "n_queries": 4,
        "grades": [0, 1, 2],
        "plan": [10, 20],
    }
    assert (study.folder / "queries.txt").read_text() == "q0\nq1\nq2\nq3\n"
    assert os.listdir(tmp_path) == ["s"]


def test_an_opened_study_is_the_one_that_was_made(make):
    made = make()
    opened = Study.open(str(made.folder))
    assert opened.settings == made.settings
    assert opened.pool.systems == made.pool.systems == ("b", "a", "c")
    for name in ("query", "document", "start", "system", "rank", "score"):
        assert np.array_equal(getattr(opened.pool, name), getattr(made.pool, name)), name
    assert opened.pool.documents.equals(made.pool.documents)
    assert opened.target.weight.tolist() == made.target.weight.tolist()
    assert opened.goal.names == ("b - mean", "a - mean", "c - mean")
    assert len(opened.store.read()) == 0


@pytest.mark.parametrize("name", ["goal=rank", "with space", "é文", "st[u]dy*", ".hidden"])
def test_a_folder_may_have_any_name(make, name):
    make(f"{name}/study {name}").draw(N, seed=1)
    study = Study.open(make("s").folder.parent / name / f"study {name}")
    study.judge(study.folder / "round-001" / "to_judge.tsv")
    assert study.judge(QRELS).missing == {"round-001": 0}


def test_the_pair_is_that_of_the_first_systems(make):
    study = make("p", {"a": RUNS["a"], "c": RUNS["c"]}, goal="pair")
    assert study.settings.pair == ("a", "c")
    study.add(LATE)
    assert study.goal.names == Study.open(study.folder).goal.names == ("a - c",)


def test_one_system_alone(make):
    study = make("one", {"a": RUNS["a"]}, goal="absolute")
    study.draw(N, seed=1)
    study.judge(QRELS)
    answer = study.estimate().to_dict()
    assert [row["system"] for row in answer["systems"]] == ["a"]
    assert [row["contrast"] for row in answer["contrasts"]] == ["a"]


def test_queries_of_the_study(make):
    study = make(queries=["q1", "q0", "q9"])
    assert study.pool.queries.to_pylist() == ["q0", "q1", "q9"]
    assert study.notes() == [
        f"{system} leaves 1 query unanswered and earns 0 there: q9" for system in "bac"
    ]
    assert Study.open(study.folder).target.weight.tolist() == study.target.weight.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "Foo@3"}, "unknown measure 'Foo@3'"),
        ({"goal": "pair"}, "the goal 'pair' needs two systems, got 3"),
        ({"goal": "worst"}, "unknown goal 'worst'"),
        ({"depth": 0}, "the depth must be at least 1, got 0"),
        ({"depth": 3}, "DCG@5 looks deeper than the pool, whose depth is 3"),
        ({"queries": ["q9"]}, "no run answers any query of the study"),
        ({"plan": []}, "a plan names at least one round of at least one draw, got []"),
        ({"plan": [5, 0]}, "a plan names at least one round of at least one draw, got [5, 0]"),
    ],
    ids=str,
)
def test_what_cannot_be_studied_is_refused(make, tmp_path, options, message):
    assert refused(EvenhandError, make, **options).message == message
    assert os.listdir(tmp_path) == []


def test_a_system_that_answers_nothing_is_refused(make, tmp_path):
    # It would have no row in the study's file, and be gone when the study is opened again.
    error = refused(EvenhandError, make, "s", RUNS, {"none": {"q9": {"d1": 1}}}, queries=["q0"])
    assert error.message == "no query of the study is answered by none"
    assert error.hint == "leave the run out, or check that it is of the same collection"
    assert os.listdir(tmp_path) == []
    study = make(queries=["q0", "q1"])
    assert refused(EvenhandError, study.add, {"none": {"q9": {"d1": 1}}, **LATE}).message == (
        "no query of the study is answered by none"
    )
    assert study.pool.systems == Study.open(study.folder).pool.systems == ("b", "a", "c")


@pytest.mark.parametrize(
    "run",
    [{"q\n1": {"d": 1}}, {"q1": {"d\t1": 1}}, {"q1": {"d\r": 1}}, {"#1": {"d": 1}}],
    ids=repr,
)
def test_ids_that_break_a_line_are_refused(make, tmp_path, run):
    error = refused(EvenhandError, make, "s", {"a": run}, goal="absolute")
    assert error.message.endswith(
        " cannot stand in a file to judge: it holds a tab or a line end, or is a query that begins "
        "with #"
    )
    assert os.listdir(tmp_path) == []


def test_odd_ids_that_are_one_line_are_fine(make):
    odd = {"q 1": {"#d": 3, ' d"': 2, "d'": 1}, '"q"': {"é,文": 2, "\x85\u2028": 1}}
    study = make("s", {"a": odd}, goal="absolute")
    study.draw(4, seed=0)
    path = study.folder / "round-001" / "to_judge.tsv"
    path.write_text(path.read_text(encoding="utf-8").replace("\t\n", "\t1\n"), encoding="utf-8")
    taken = Study.open(study.folder).judge(path)
    assert (taken.added, taken.missing) == (4, {"round-001": 0})


def test_an_existing_folder_is_left_alone(make, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "mine").write_text("mine")
    error = refused(StudyError, make)
    assert error.message == f"{tmp_path / 's'} exists already"
    assert error.hint == "choose another name, or go on with `evenhand draw`"
    assert files(tmp_path) == {"s/mine": b"mine"}


# Draws


def test_a_draw_is_recorded(make):
    study = make()
    made = study.draw(N, seed=3, floor=0.2)
    assert (made.name, made.n_draws, made.n_distinct, made.n_new) == ("round-001", N, N, N)
    assert (made.design, made.sampler, made.seed) == ("optimal/rank", "distinct", 3)
    assert made.to_judge == study.folder / "round-001" / "to_judge.tsv"
    kept = record(study)
    assert {k: kept[k] for k in ("budget", "sampler", "design", "floor", "seed")} == {
        **{"budget": N, "sampler": "distinct", "design": "optimal/rank", "floor": 0.2, "seed": 3}
    }
    assert kept["depends_on"] == []
    assert kept["cells"] == len(study.pool)
    assert list(kept["versions"]) == ["evenhand", "jax", "numpy", "numpyro"]
    assert study.pool.names(np.array(sorted(drawn(study)))) == tuple(
        map(list, zip(*asked(study), strict=True))
    )
    q = pq.read_table(study.folder / "round-001" / "design.parquet")["q"].to_numpy()
    assert q.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.slow
def test_a_budget_for_several_looks(make):
    study = make()
    made = study.draw(N, seed=3, looks=3)
    rounds = [made, *made.later]
    called = ["round-001", "round-002", "round-003"]
    assert [one.name for one in rounds] == called == names(study.folder)
    assert [one.n_draws for one in rounds] == [N // 3 + (look < N % 3) for look in range(3)]
    # Each is a draw of its own, and none of them depends on another.
    samples = [drawn(study, number) for number in (1, 2, 3)]
    assert len({frozenset(one) for one in samples}) == 3
    assert [record(study, number)["depends_on"] for number in (1, 2, 3)] == [[], [], []]
    # What an earlier look asks for is not asked again.
    wanted = [set(asked(study, number)) for number in (1, 2, 3)]
    assert sum(map(len, wanted)) == len(set.union(*wanted)) == len(set(np.concatenate(samples)))
    assert [one.n_new for one in rounds] == [len(some) for some in wanted]
    title = f"Pairs to judge are in {made.to_judge}, then round-002, then round-003"
    assert made.tables()[0].title == title
    assert [one["name"] for one in made.to_dict()["later"]] == called[1:]
    # An estimate after each, all of them of one stage with the draws of what is judged.
    for number in (1, 2, 3):
        study.judge(grades(wanted[number - 1]))
        found = study.estimate(stop_when="decided", estimator="importance")
        assert (found.n_rounds, len(found.weights)) == (number, 1)
        fixed = [r for r in study.rounds() if not np.isnan(r.utility).any()]
        by_hand = sum(
            (
                study.target.weights(r.sample.draws)
                * (r.utility / sum(o.sample.expected for o in fixed)[r.sample.draws])[:, None]
            ).sum(0)
            for r in fixed
        )
        assert found.value == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"looks": 0}, f"cannot look 0 times at {N} draws"),
        ({"looks": N + 1}, f"cannot look {N + 1} times at {N} draws"),
        ({"looks": 2, "rejudge": True}, "a round that is judged again or tops up is drawn as one"),
    ],
)
def test_looks_that_cannot_be(make, options, message):
    study = make()
    before = files(study.folder)
    assert refused(EvenhandError, study.draw, N, **options).message == message
    assert files(study.folder) == before


def test_looks_are_fixed_before_the_first_judgment(make):
    study = make()
    study.draw(5, seed=1)
    study.judge(grades(asked(study)[:1]))
    error = refused(EvenhandError, study.draw, N, looks=2)
    assert error.message.startswith(
        "a budget is split for several looks only before the first judgment"
    )
    assert error.hint == "leave out --looks; the rounds judged so far are there to look at"


def test_each_look_is_a_round_of_the_plan(make):
    study = make(plan=[5, 5, 5])
    error = refused(StudyError, study.draw, 20, looks=4)
    assert error.message == f"the plan of {study.folder} names 3 rounds, and 3 are left for 4 looks"
    study.draw(15, looks=3)
    study.judge(QRELS)
    assert study.estimate().weights == pytest.approx([1.0])


def test_draws_follow_the_seed(make):
    one, two = make("one"), make("two")
    for study in (one, two):
        study.draw(N, seed=5)
        study.draw(N, seed=5)
    assert drawn(one) == drawn(two)
    assert drawn(one, 2) == drawn(two, 2)
    assert drawn(one) != drawn(one, 2)  # the same seed in another round draws other pairs
    three = make("three")
    three.draw(N, seed=6)
    assert drawn(three) != drawn(one)
    seeds = {make(f"free{i}").draw(N).seed for i in range(3)}
    assert len(seeds) == 3


def test_a_seed_that_was_chosen_can_be_given_again(make):
    first, second = make("first"), make("second")
    second.draw(N, seed=first.draw(N).seed)
    assert drawn(first) == drawn(second)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["iid", "slices"])
def test_samplers_with_repeats(make, sampler):
    study = make()
    made = study.draw(40, sampler=sampler, seed=0)
    assert made.n_draws == len(drawn(study)) == 40
    assert made.n_distinct == len(set(drawn(study))) == len(asked(study)) < 40
    assert study.judge(QRELS).added == made.n_distinct
    assert study.estimate().n_judged == made.n_distinct


def test_utilities_to_draw_by(make, tmp_path):
    study, files = make(), tmp_path / "labels.tsv"
    files.write_text("qid\tdocid\tgrade\nq0\td0\t2\nq1\td1\t0\nq0\tnone\t1\n")
    for utility, name in (
        ("flat", "flat"),
        ("score", "score"),
        (files, "labels.tsv"),
        (str(files), "labels.tsv"),
        (flat(study.pool), "flat"),
    ):
        assert study.draw(N, utility=utility, seed=0).design == f"optimal/{name}"
    made = study.draw(N, kind="minimax", seed=0)
    assert made.design == "minimax/rank"
    assert made.notes[0].startswith("worst variance ")
    assert record(study, 6)["gap"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(
    ("budget", "options", "message"),
    [
        (0, {}, "the number of pairs to draw must be at least 1, got 0"),
        (-3, {}, "the number of pairs to draw must be at least 1, got -3"),
        (10**6, {}, "cannot draw 1,000,000 distinct pairs: the design can draw 40"),
        (N, {"floor": -0.1}, "the floor must lie in [0, 1], got -0.1"),
        (N, {"floor": 1.5}, "the floor must lie in [0, 1], got 1.5"),
        (N, {"floor": float("nan")}, "the floor must lie in [0, 1], got nan"),
        (N, {"utility": "oracle"}, "unknown utility 'oracle'"),
        (N, {"kind": "best"}, "unknown design 'best'"),
        (N, {"sampler": "all"}, "unknown sampler 'all'"),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_refused(make, budget, options, message):
    study = make()
    before = files(study.folder)
    assert refused(EvenhandError, study.draw, budget, **options).message == message
    assert files(study.folder) == before
    assert sorted(os.listdir(study.folder))[0] == "judgments.sqlite"


def test_a_pair_is_to_be_judged_once(make):
    # What is known is left out and counted exactly; what is still open may be drawn again.
    study = make()
    study.draw(N, seed=1)
    study.judge(grades(asked(study)[:4]))
    known = set(study.pool.find(*zip(*asked(study)[:4], strict=True)).tolist())
    second = study.draw(N, seed=2)
    assert not set(drawn(study, 2)) & known
    assert second.n_new == len(asked(study, 2)) == N
    assert record(study, 2)["known"] == 4
    one, two = study.rounds()
    assert one.known is None
    assert two.known is not None
    assert set(np.flatnonzero(np.isfinite(two.known))) == known
    assert not two.sample.expected[list(known)].any()
    assert set(drawn(study)) & set(drawn(study, 2))


def test_a_round_depends_on_those_of_which_a_judgment_was_known(make):
    study = make()
    study.draw(N, seed=1)
    study.draw(N, seed=2)
    assert record(study, 2)["depends_on"] == []
    one = next(p for p in asked(study, 2) if p not in asked(study))
    study.judge(grades([one]))
    study.draw(N, seed=3)
    assert record(study, 3)["depends_on"] == ["round-002"]
    study.judge(QRELS)
    study.draw(N, seed=4)
    assert record(study, 4)["depends_on"] == ["round-001", "round-002", "round-003"]
    assert [r.depends_on for r in study.rounds()] == [
        *((), (), ("round-002",), ("round-001", "round-002", "round-003"))
    ]


# Judgments


def test_judging_is_safe_to_repeat(make):
    study = make()
    study.draw(N, seed=1)
    first, again = study.judge(QRELS), study.judge(QRELS)
    rows = sum(map(len, QRELS.values()))
    assert (first.rows, first.added, first.known, first.not_drawn) == (rows, N, 0, rows - N)
    assert (again.rows, again.added, again.known, again.not_drawn) == (rows, 0, N, rows - N)
    assert first.missing == again.missing == {"round-001": 0}
    assert len(study.store.history()) == N


def test_pairs_that_were_not_drawn_are_not_stored(make):
    study = make()
    study.draw(N, seed=1)
    study.judge(read_qrels(QRELS))
    assert [(q, d) for q, d, _, _ in said(study)] == sorted(asked(study))
    # So they are asked for when a later round draws them.
    assert study.draw(N, seed=2).n_new == len(set(drawn(study, 2)) - set(drawn(study)))


def test_a_file_half_filled_in(make):
    study = make()
    study.draw(N, seed=1)
    path = study.folder / "round-001" / "to_judge.tsv"
    header, *rows = path.read_text().splitlines(keepends=True)
    half = [row.replace("\t\n", "\t1\n") if i % 2 else row for i, row in enumerate(rows)]
    path.write_text(header + "".join(half))
    taken = study.judge(path)
    assert (taken.rows, taken.added, taken.blank) == (N // 2, N // 2, N - N // 2)
    assert taken.missing == {"round-001": N - N // 2}
    assert taken.notes == ("5 rows have no grade: not judged.",)
    error = refused(MissingJudgments, study.estimate)
    assert error.message == "round-001: 5 of 10 pairs are not judged yet"
    assert error.hint == f"evenhand judge {study.folder} {path}"
    path.write_text(header + "".join(row.replace("\t\n", "\t1\n") for row in rows))
    taken = study.judge(path)
    assert (taken.added, taken.known, taken.missing) == (N // 2, N // 2, {"round-001": 0})


def test_assessors_are_averaged(make):
    study = make("s", {"a": RUNS["a"]}, goal="absolute", measure="P(rel=2)@5")
    study.draw(20, seed=0)
    frame = pd.DataFrame(
        [(q, d, grade, who) for q, d in asked(study) for grade, who in ((2, "ann"), (1, "bob"))],
        columns=["qid", "docid", "grade", "assessor"],
    )
    assert study.judge(frame).added == 40
    assert study.store.count() == 20
    # Every pair of the pool was drawn: half of the assessors find each relevant.
    assert study.estimate().value.tolist() == [pytest.approx(0.5, abs=1e-12)]
    assert study.judge(frame[frame.assessor == "bob"]).known == 20


def test_an_assessor_who_changes_a_grade(make):
    study = make()
    study.draw(N, seed=1)
    pairs = asked(study)
    study.judge({"ann": grades(pairs, 1)})
    before = said(study)
    error = refused(StudyError, study.judge, {"ann": grades(pairs[:2], 0), "bob": grades(pairs)})
    assert error.message == (
        "an assessor gives another grade than the stored one; nothing of ann, bob was stored\n"
        f"{' '.join(pairs[0])} by ann: 1, then 0\n{' '.join(pairs[1])} by ann: 1, then 0"
    )
    assert error.hint == "`--revise` keeps the old grade in the history and counts the new one"
    assert said(study) == before
    taken = study.judge({"ann": grades(pairs[:2], 0)}, revise=True)
    assert (taken.added, taken.known, taken.revised) == (0, 0, 2)
    assert len(study.store.history()) == N + 2
    assert [grade for *_, grade in said(study)].count(0) == 2


@pytest.mark.parametrize(
    ("rule", "grade", "counts"),
    [("unjudged", None, (9, 1)), ("zero", 0.0, (10, 0)), ("keep", -2.0, (10, 0))],
)
def test_negative_grades_follow_the_rule(make, rule, grade, counts):
    study = make()
    study.draw(N, seed=1)
    pairs = asked(study)
    taken = study.judge([grades(pairs[:1], -2), grades(pairs[1:], 1)], negative=rule)
    assert (taken.added, taken.negative) == counts
    assert taken.missing == {"round-001": counts[1]}
    assert taken.notes[0].startswith("1 row has a negative grade: ")
    found = {(q, d): g for q, d, _, g in said(study)}
    assert found.get(pairs[0]) == grade


def test_grades_off_the_scale_are_refused(make, tmp_path):
    study = make(grades=[0, 1])
    study.draw(N, seed=1)
    path, pairs = tmp_path / "j.tsv", sorted(asked(study))
    rows = [f"{q}\t{d}\t{i % 5}" for i, (q, d) in enumerate(pairs)]
    path.write_text("\n".join(["qid\tdocid\tgrade", *rows]))
    off = [i for i in range(N) if i % 5 > 1][:3]
    end = [f"grade {i % 5} of {' '.join(pairs[i])} is not on the study's scale" for i in off]
    error = refused(FormatError, study.judge, path)
    assert error.message == "\n".join(
        [*(f"{path}:{i + 2}: {text}" for i, text in zip(off, end, strict=True)), "... 6 in all"]
    )
    assert error.hint == "its grades are 0, 1; nothing was stored"
    # Without lines, or with several files, the pair alone says where.
    error = refused(FormatError, study.judge, grades(pairs, 2))
    assert error.message.splitlines()[0] == (
        f"qrels 1: grade 2 of {' '.join(pairs[0])} is not on the study's scale"
    )
    error = refused(FormatError, study.judge, path, grades(pairs[:1], 0))
    assert error.message.splitlines()[0] == f"{path}, qrels 2: {end[0]}"
    assert said(study) == []
    # A pair that was not drawn may have any grade: it is not taken.
    other = next((q, d) for q in QRELS for d in QRELS[q] if (q, d) not in asked(study))
    assert study.judge(grades(asked(study), 1), grades([other], 7)).not_drawn == 1


def test_a_measure_that_has_no_gain_for_a_grade(make):
    study = make(measure="DCG(gains={0:0,1:1})@5")
    study.draw(N, seed=1)
    error = refused(EvenhandError, study.judge, grades(asked(study), 3))
    assert error.message == "the gain map names no gain for grade 3"
    assert said(study) == []


def test_judgments_of_another_study(make):
    study = make()
    error = refused(StudyError, study.judge, QRELS)
    assert error.message == "nothing has been drawn yet"
    assert error.hint == f"evenhand draw {study.folder} --budget N"
    study.draw(N, seed=1)
    error = refused(StudyError, study.judge, {"q0": {"z1": 1, "z2": 0}})
    assert error.message == ("none of the 2 judgments of qrels 1 is of a pair that this study drew")
    assert error.hint == "are they for another study?"
    assert said(study) == []


# Estimates


def test_only_whole_rounds_count(make):
    study = make()
    assert refused(MissingJudgments, study.estimate).message == "nothing has been drawn yet"
    assert refused(MissingJudgments, study.estimate).hint == (
        f"evenhand draw {study.folder} --budget N"
    )
    study.draw(N, seed=1)
    study.draw(N, seed=2)
    message = refused(MissingJudgments, study.estimate).message
    assert message == (
        "round-001: 10 of 10 pairs are not judged yet\nround-002: 10 of 10 pairs are not judged yet"
    )
    study.judge(grades(asked(study)))
    alone = study.estimate()
    open_pairs = len(set(asked(study, 2)) - set(asked(study)))
    assert (alone.n_rounds, alone.n_draws, alone.n_judged) == (1, N, N)
    assert alone.notes == (f"left out, round-002: {open_pairs} of 10 pairs are not judged yet",)
    study.judge(QRELS)
    both = study.estimate()
    assert (both.n_rounds, both.n_draws, both.notes) == (2, 2 * N, ())
    assert both.n_judged == N + open_pairs


def test_rounds_drawn_before_any_judgment_are_one_stage(make):
    study = make()
    study.draw(N, seed=1)
    study.draw(N, seed=2)
    study.judge(QRELS)
    planned, balance = study.estimate(), study.estimate(combine="balance")
    assert planned.weights.tolist() == balance.weights.tolist() == [1.0]
    assert planned.value.tolist() == balance.value.tolist()
    study.draw(N, seed=3)
    study.judge(QRELS)
    root = np.sqrt(2)
    assert study.estimate().weights == pytest.approx(
        [1 / (1 + 2 * root), 2 * root / (1 + 2 * root)]
    )
    error = refused(SupportError, study.estimate, combine="balance")
    assert error.message == (
        "the balance heuristic is biased for rounds that were designed after looking: round-003"
    )
    assert error.hint == ("combine='planned' weights rounds by the plan, which is exactly unbiased")


def test_a_round_far_smaller_than_others_is_told(make):
    """It counts by its number, whatever its size."""
    study = make()
    assert study.draw(16, seed=1).notes == ()
    study.judge(QRELS)
    assert study.draw(4, seed=2, rejudge=True).notes == ()
    (said,) = study.draw(3, seed=3, rejudge=True).notes
    assert said.startswith("this round will count 64% of the estimate")
    planned = make("planned", plan=[16, 3])
    planned.draw(16, seed=1)
    planned.judge(QRELS)
    assert planned.draw(3, seed=2, rejudge=True).notes == ()


def test_weights_follow_the_plan(make):
    study = make(plan=[10, 20, 40])
    study.draw(N, seed=1)  # a round may turn out smaller than planned: its weight does not
    study.draw(N, seed=2)
    study.judge(grades(asked(study)))
    study.draw(N, seed=3)
    study.judge(QRELS)
    raw = np.array([10 + 20, 40 * np.sqrt(2)])
    assert study.estimate().weights == pytest.approx(raw / raw.sum())
    before = files(study.folder)
    error = refused(StudyError, study.draw, N)
    assert error.message == f"the plan of {study.folder} names 3 rounds, and all are drawn"
    assert error.hint == "a plan cannot be changed after the first judgment: start a new study"
    assert files(study.folder) == before


def test_a_later_round_alone_under_a_plan(make):
    # The first round is not whole yet, so the second is the only stage.
    study = make(plan=[10, 20])
    study.draw(N, seed=1)
    study.judge(grades(asked(study)[:1]))
    study.draw(N, seed=2)
    study.judge(grades(asked(study, 2)))
    if set(drawn(study)) <= set(drawn(study, 2)):
        pytest.fail("the two rounds draw the same pairs: choose other seeds")
    answer = study.estimate()
    assert answer.weights.tolist() == [1.0]
    assert answer.n_rounds == 1
    assert np.isfinite(answer.value).all()


def test_everything_judged_is_the_truth(make):
    study = make()
    study.draw(len(study.pool), seed=1)
    study.judge(QRELS)
    answer, truth = study.estimate(), evaluate(read_runs(RUNS), read_qrels(QRELS), "DCG@5")
    assert answer.value == pytest.approx(truth.value[0], abs=1e-12)
    assert answer.contrast == pytest.approx(truth.value[0] - truth.value[0].mean(), abs=1e-12)
    assert answer.std_error == pytest.approx([0, 0, 0], abs=1e-12)


def test_identical_systems_differ_by_exactly_0(make):
    twins = {"x": RUNS["a"], "y": RUNS["a"]}
    told = "x and y return the same rankings: they differ by exactly 0, whatever is judged"
    study = make("s", {"c": RUNS["c"], **twins})
    assert study.notes() == [told]
    study.draw(N, seed=1)
    study.judge(QRELS)
    answer = study.estimate()
    assert answer.notes == (told,)
    assert answer.value[1] == answer.value[2]
    rows = {row["contrast"]: row for row in answer.pairs.to_dict()["pairs"]}
    assert list(rows) == ["c - x", "c - y", "x - y"]
    assert [rows["x - y"][k] for k in ("estimate", "std_error", "low", "high")] == [0, 0, 0, 0]
    assert (rows["x - y"]["low_all"], rows["x - y"]["high_all"]) == (0, 0)
    assert rows["x - y"]["decided"] == "no"
    assert rows["c - x"]["estimate"] == rows["c - y"]["estimate"]


@pytest.mark.parametrize("goal", ["pair", "rank"])
def test_a_study_of_identical_systems_says_so(make, goal):
    study = make("s", {"x": RUNS["a"], "y": RUNS["a"]}, goal=goal)
    made = study.draw(N, seed=1)
    assert made.notes == (
        "all systems return the same rankings: every difference is exactly 0, and these judgments "
        "can only tell the systems' own values",
    )
    study.judge(QRELS)
    answer = study.estimate()
    assert set(answer.contrast) == set(answer.contrast_std_error) == {0.0}
    assert "x and y return the same rankings" in str(answer)
    assert refused(EvenhandError, study.draw, N, floor=0).message == (
        "all systems return the same rankings: every difference is exactly 0, there is nothing to "
        "judge"
    )


# Systems that arrive later


def test_cells_keep_their_numbers(make):
    study = make()
    before = study.pool
    study.draw(N, seed=1)
    kept, sample = drawn(study), study.rounds()[0].sample
    assert study.add(LATE) == ("late",)
    for pool in (study.pool, Study.open(study.folder).pool):
        assert pool.systems == ("b", "a", "c", "late")
        assert len(pool) > len(before)
        every = np.arange(len(before))
        assert pool.names(every) == before.names(every)
    assert sorted(p.name for p in study.folder.glob("systems-*")) == [
        *("systems-001.parquet", "systems-002.parquet")
    ]
    (later,) = Study.open(study.folder).rounds()
    assert later.sample.draws.tolist() == kept
    assert later.sample.expected[: len(before)].tolist() == sample.expected.tolist()
    assert not later.sample.expected[len(before) :].any()
    study.add({"later": RANKED["late"]})
    assert Study.open(study.folder).pool.systems == ("b", "a", "c", "late", "later")


def test_a_late_system_is_estimated_once_a_round_covers_it(make):
    study = make(goal="absolute", grades=[0, 1, 2])
    study.draw(N, seed=1)
    study.judge(QRELS)
    study.add(LATE)
    answer = study.estimate()
    assert answer.covered.tolist() == [1, 1, 1, 0]
    row = answer.to_dict()["systems"][3]
    assert json.loads(answer.to_json())["systems"][3] == {
        **{"system": "late", "estimate": None, "std_error": None, "low": None, "high": None},
        "covered": 0.0,
    }
    assert np.isnan(row["estimate"])
    assert answer.notes[0].startswith("1 of 4 systems are not covered: ")
    bounds = study.estimate(bounds=True)
    assert np.isnan(bounds.value[3])
    # At best every document that could not be drawn has the highest grade.
    best = 2 * (1 / np.log2(np.arange(2, 7))).sum()
    assert (bounds.low[3], bounds.high[3]) == (pytest.approx(0), pytest.approx(best))
    assert bounds.low[:3].tolist() == answer.low[:3].tolist()
    study.draw(N, seed=2)
    study.judge(QRELS)
    answer = study.estimate()
    assert answer.covered.tolist() == [1, 1, 1, 1]
    assert np.isfinite([answer.value, answer.low, answer.high]).all()
    assert answer.notes == ()


def test_a_top_up_draws_what_joined_and_nothing_else(make):
    study = make(goal="rank", plan=[N])
    error = refused(StudyError, study.draw, 4, top_up=True)
    assert error.message == "there is nothing to top up: no round was drawn"
    study.draw(N, seed=1)
    study.judge(QRELS)
    error = refused(StudyError, study.draw, 4, top_up=True)
    assert error.message == "there is nothing to top up: every pair could have been drawn before"
    assert "add a system first" in error.hint
    old, alone = len(study.pool), study.estimate()
    study.add(LATE)
    missing = len(study.pool) - old
    error = refused(StudyError, study.draw, missing + 1, top_up=True)
    assert error.hint == f"--budget {missing} judges all of them"
    # The plan's only round is drawn; one that tops up is none of them.
    made = study.draw(N, top_up=True, seed=2)
    assert made.n_new == N
    assert min(drawn(study, 2)) >= old
    about = record(study, 2)
    assert (about["first"], about["cells"]) == (old, len(study.pool))
    assert (about["depends_on"], about["known"]) == (["round-001"], 0)
    assert np.isnan(study.estimate().contrast).all()
    study.judge(QRELS)
    answer = Study.open(study.folder).estimate()
    assert answer.covered.tolist() == [1, 1, 1, 1]
    assert np.isfinite([answer.contrast, answer.contrast_std_error]).all()
    # What the first systems return was not drawn again, and says what it said.
    assert answer.value[:3] == pytest.approx(alone.value, abs=1e-12)
    assert answer.std_error[:3] == pytest.approx(alone.std_error, abs=1e-12)
    error = refused(StudyError, study.draw, 4, top_up=True)
    assert "every pair could have been drawn before" in error.message


@pytest.mark.slow
def test_a_census_of_what_joined_is_its_truth(make):
    study = make(goal="absolute")
    study.draw(N, seed=1)
    study.judge(QRELS)
    old = len(study.pool)
    study.add(LATE)
    study.draw(len(study.pool) - old, top_up=True, utility="learned", seed=2)
    study.judge(QRELS)
    answer, truth = study.estimate(), evaluate(read_runs(LATE), read_qrels(QRELS), "DCG@5")
    assert answer.value[3] == pytest.approx(truth.value[0, 0], abs=1e-12)
    assert answer.std_error[3] == pytest.approx(0, abs=1e-12)


def test_a_late_system_before_any_judgment(make):
    study = make(goal="absolute")
    study.draw(N, seed=1)
    study.add(LATE)
    study.draw(N, seed=2)
    study.judge(QRELS)
    answer = study.estimate()
    assert answer.weights.tolist() == [1.0]
    assert answer.covered.tolist() == [1, 1, 1, 1]


def test_bounds_need_a_scale(make):
    study = make()
    study.draw(N, seed=1)
    study.judge(QRELS)
    study.add(LATE)
    error = refused(SupportError, study.estimate, bounds=True)
    assert error.message == "bounds need the largest utility of a pair; DCG@5 knows none"
    assert error.hint == "name the scale of the grades"


def test_a_name_is_taken_once(make, tmp_path):
    study = make()
    before = files(study.folder)
    error = refused(EvenhandError, study.add, {"late": RUNS["b"], "c": RUNS["b"]})
    assert error.message == "the study has a system named c already"
    assert error.hint == "rename the new run's tag"
    assert refused(FormatError, study.add, tmp_path / "none").message == (
        f"{tmp_path / 'none'}: no such file"
    )
    assert files(study.folder) == before


def test_of_two_that_add_at_once_one_is_told(make):
    study = make()
    other = Study.open(study.folder)
    assert other.pool.systems == ("b", "a", "c")  # read before the first has added
    study.add(LATE)
    error = refused(StudyError, other.add, LATE)
    assert error.message == "another process has added systems meanwhile; run the command again"
    error = refused(EvenhandError, Study.open(study.folder).add, LATE)
    assert error.message == "the study has a system named late already"
    assert Study.open(study.folder).pool.systems == ("b", "a", "c", "late")


# What is not a study

ABOUT = {
    "study.json": "{s}/study.json is damaged: ",
    "queries.txt": "queries.txt or a systems-*.parquet of {s} is damaged: ",
    "systems-001.parquet": "queries.txt or a systems-*.parquet of {s} is damaged: ",
    "judgments.sqlite": "{s}/judgments.sqlite: ",
}


@pytest.mark.parametrize("file", ABOUT)
def test_a_damaged_study_is_refused(make, file, damage):
    folder, (name, spoil) = make().folder, damage
    spoil(folder / file)
    before = files(folder)
    for act in (
        lambda study: study.draw(N, seed=1),
        lambda study: study.add(LATE),
        lambda study: study.rounds() and study.judge(QRELS),
    ):
        if file == "judgments.sqlite" and name != "missing" and act.__code__.co_names[0] == "add":
            continue
        error = refused(StudyError, lambda act=act: act(Study.open(folder)))
        if name == "missing":
            assert error.message == f"{folder} is not a whole study: it lacks {file}"
            assert error.hint == "is it the right folder? A study can be restored only from a copy"
        else:
            assert error.message.startswith(ABOUT[file].format(s=folder))
            assert "restore" in error.hint or "check the path" in error.hint
    assert files(folder) == before


def settings(folder: Path, **changes) -> None:
    path = folder / "study.json"
    written = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({k: v for k, v in written.items() if v != "drop"}))


@pytest.mark.parametrize(
    "changes", [{"format": "x"}, {"format": "drop"}, {"plan": "drop"}], ids=str
)
def test_damaged_settings_are_refused(make, changes):
    folder = make().folder
    settings(folder, **changes)
    error = refused(StudyError, Study.open, folder)
    assert error.message.startswith(f"{folder / 'study.json'} is damaged: ")
    assert error.hint == "restore the file from a copy of the study"


@pytest.mark.parametrize("changes", [{}, {"measure": "drop", "new": 1}], ids=str)
def test_a_study_of_a_later_format_is_refused(make, changes):
    folder = make().folder
    settings(folder, format=2, evenhand="9.8", **changes)
    error = refused(StudyError, Study.open, folder)
    assert error.message == (
        f"{folder} was made by evenhand 9.8, in a later format than this version reads"
    )
    assert error.hint == "upgrade evenhand"


def test_settings_that_a_later_version_adds_are_ignored(make):
    folder = make().folder
    settings(folder, comment="new")
    assert Study.open(folder).settings.measure == "DCG@5"


def test_no_study(tmp_path):
    (tmp_path / "file").write_text("no study")
    for folder in (tmp_path / "none", tmp_path / "file"):
        error = refused(StudyError, Study.open, folder)
        assert error.message == f"there is no study at {folder}"
        assert error.hint == "start one with `evenhand new`"
    error = refused(StudyError, Study.open, tmp_path)
    assert error.message == (
        f"{tmp_path} is not a whole study: "
        "it lacks study.json, queries.txt, systems-001.parquet, judgments.sqlite"
    )


def test_a_damaged_round_stops_everything(make):
    study = make()
    study.draw(N, seed=1)
    (study.folder / "round-001" / "draws.parquet").write_bytes(b"PAR1 and no more")
    for act in (lambda: study.judge(QRELS), lambda: study.draw(N), study.estimate, study.rounds):
        assert refused(StudyError, act).message.startswith(
            f"{study.folder / 'round-001'} is not a whole round: "
        )
    assert said(study) == []


def test_queries_that_were_changed_are_noticed(make):
    study = make()
    study.draw(N, seed=1)
    (study.folder / "queries.txt").write_text("q0\nq1\nq2\nq3\nq4\n")
    assert refused(StudyError, Study.open(study.folder).rounds).message == (
        f"queries.txt or a systems-*.parquet of {study.folder} is damaged: "
        "5 queries instead of 4 in queries.txt"
    )
    (study.folder / "queries.txt").write_text("q0\nq1\nq2\nq4\n")
    assert refused(StudyError, Study.open(study.folder).rounds).message == (
        f"{study.folder / 'round-001'} was drawn from other query-document pairs than the study's"
    )


# Processes that are killed, meet a full disk, or run at once
#
# A driver process imports everything once and then forks: each child is a process of its own that
# runs one command of the command line.

DRIVER = r"""
import itertools, json, os, resource, shutil, signal, sqlite3, sys, types, warnings
warnings.simplefilter("ignore")  # its output is compared word for word
from pathlib import Path
import numpy as np
import pyarrow.parquet as pq
from evenhand.cli import main
from evenhand.designs.proposals import Design
from evenhand.sampling.samples import Sample
from evenhand.studies import drawing, proposing

def without_jax():
    # What is drawn does not matter here, and JAX cannot be used on both sides of a fork.
    def design(goal, utility, *, kind, floor, known):
        mass = 1 + np.random.default_rng(0).random(len(goal.target.pool))
        if known is not None:
            mass[known] = 0
        return Design(goal, "optimal/rank", mass / mass.sum(), floor)
    def draw(key, made, n, *, sampler, in_pairs):
        cells = np.random.default_rng(key).permutation(np.flatnonzero(made.q))[:n]
        return Sample(sampler, cells.astype(np.int64), n * made.q)
    proposing.design, drawing.draw = design, draw
    drawing.jax = types.SimpleNamespace(
        random=types.SimpleNamespace(key=lambda seed: seed, fold_in=lambda seed, n: (seed, n))
    )

def die_at(k):
    count = itertools.count(1)
    def step(half=None):
        if next(count) == k:
            if half:
                half()
            os.kill(os.getpid(), signal.SIGKILL)
    def wrap(owner, name, half=None):
        old = getattr(owner, name)
        def call(*args, **options):
            step(half and (lambda: half(*args)))
            return old(*args, **options)
        setattr(owner, name, call)
    for name in ("fsync", "rename", "link", "mkdir", "unlink", "chmod", "rmdir"):
        wrap(os, name)
    wrap(pq, "write_table", lambda table, path: Path(path).write_bytes(b"PAR1" + bytes(99)))
    wrap(Path, "write_text", lambda path, text: path.write_bytes(text.encode()[: len(text) // 2]))
    connect = sqlite3.connect
    def traced(*args, **options):
        connection = connect(*args, **options)
        connection.set_trace_callback(lambda statement: step())
        return connection
    sqlite3.connect = traced

def limit(size):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

def start(folder, args, prepare, gate=None):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    code = 99
    try:
        os.chdir(folder)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        without_jax()
        prepare()
        if gate:
            os.close(gate[1])
            os.read(gate[0], 1)
        main.main(args, prog_name="evenhand")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

def end(pid, reader):
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status), text

def kill(job):
    for first in range(1, 500, 4):  # four at a time
        cases = [Path(job["to"], f"{k:03}") for k in range(first, first + 4)]
        running = [
            start(shutil.copytree(job["base"], case), job["args"], lambda: die_at(int(case.name)))
            for case in cases
        ]
        ended = False
        for case, one in zip(cases, [end(*one) for one in running]):
            if ended:
                shutil.rmtree(case)
            else:
                yield one
            ended = ended or one[0] != -signal.SIGKILL
        if ended:
            return

def plain(job):
    yield end(*start(job["base"], job["args"], lambda: None))

def full(job):
    for size in job["sizes"]:
        case = shutil.copytree(job["base"], Path(job["to"], str(size)))
        yield end(*start(case, job["args"], lambda: limit(size)))

def together(job):
    for case in range(job["times"]):
        case = shutil.copytree(job["base"], Path(job["to"], str(case)))
        gate = os.pipe()
        running = [start(case, args, lambda: None, gate) for args in job["commands"]]
        os.close(gate[0])
        os.close(gate[1])  # opens the gate for all
        yield [end(*one) for one in running]

# What is imported late is imported here, once for all children.
import pandas, scipy.sparse, evenhand.formats.frames, rich.table, rich.console, rich.box
work = {"plain": plain, "kill": kill, "full": full, "together": together}
for line in sys.stdin:
    job = json.loads(line)
    print(json.dumps(list(work[job["what"]](job))), flush=True)
"""


@pytest.fixture(scope="module")
def drive():
    """Run commands in copies of the folder `base` below `to`: their exit status and output."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def drive(what: str, base: Path, to: Path, **job) -> list:
        to.mkdir(exist_ok=True)
        job |= {"what": what, "base": str(base), "to": str(to)}
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield drive
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.fixture
def base(tmp_path):
    """A folder with runs in files, a study `s` of which one pair is judged, and what to judge."""
    base = tmp_path / "base"
    base.mkdir()
    for system, run in {**RUNS, **LATE}.items():
        rows = [f"{q} Q0 {d} 0 {s} {system}\n" for q, docs in run.items() for d, s in docs.items()]
        (base / f"{system}.run").write_text("".join(rows))
    study = Study.create(base / "s", *(base / f"{s}.run" for s in "bac"), measure="DCG@5")
    study.draw(N, seed=1)
    study.judge(grades(asked(study)[:1]))
    rows = [f"{q} 0 {d} {QRELS[q][d]}\n" for q, d in asked(study)]
    for name, part in (("all", rows), ("one", rows[:4]), ("two", rows[4:7]), ("three", rows[7:])):
        (base / f"{name}.qrels").write_text("".join(part))
    return base


NEW = ["new", "t", "b.run", "a.run", "c.run", "-m", "DCG@5"]
DRAW = ["draw", "s", "--budget", str(N), "--seed", "2"]
JUDGE = ["judge", "s", "all.qrels"]
ADD = ["add", "s", "late.run"]


def again(case: Path, args: list[str], monkeypatch, capsys) -> tuple[int, str]:
    """The same command once more, in this process: its exit status and stderr."""
    from evenhand.cli import main

    monkeypatch.chdir(case)
    with pytest.raises(SystemExit) as caught:
        main.main(args, prog_name="evenhand")
    return caught.value.code, capsys.readouterr().err


def check_old(case: Path) -> Study:
    """The study opens, and what it held before is there."""
    study = Study.open(case / "s")
    assert said(study)[0][:2] in asked(study)
    assert len(drawn(study)) == N
    for one in study.rounds():
        assert one.sample.expected.sum() == pytest.approx(len(one.sample))
    return study


def killed(found: list) -> int:
    *before, (status, text) = found
    assert status == 0, text
    assert {status for status, _ in before} == {-9}
    return len(before)


@pytest.mark.slow
def test_killed_while_judging(drive, base, tmp_path, monkeypatch, capsys):
    found = drive("kill", base, tmp_path / "cases", args=JUDGE)
    assert killed(found) > 20
    counts = []
    for case in sorted((tmp_path / "cases").iterdir()):
        study = check_old(case)
        counts.append(len(said(study)))
        assert again(case, JUDGE, monkeypatch, capsys) == (0, "")
        assert [(q, d) for q, d, _, _ in said(study)] == sorted(asked(study))
        assert len(study.store.history()) == N
    assert Study.open(case / "s").estimate().n_judged == N
    assert counts == sorted(counts)  # before its transaction none is there, and after it all
    assert set(counts) == {1, N}


@pytest.mark.slow
def test_killed_while_drawing(drive, base, tmp_path, monkeypatch, capsys):
    found = drive("kill", base, tmp_path / "cases", args=DRAW)
    assert killed(found) > 10
    counts = []
    for case in sorted((tmp_path / "cases").iterdir()):
        study = check_old(case)
        counts.append(len(names(study.folder)))
        assert again(case, DRAW, monkeypatch, capsys) == (0, "")
        assert len(names(study.folder)) == counts[-1] + 1
        assert record(study, 2)["depends_on"] == ["round-001"]
        study.judge(QRELS)
        assert set(study.judge(QRELS).missing.values()) == {0}
    assert counts == sorted(counts)
    assert set(counts) == {1, 2}


@pytest.mark.slow
def test_killed_while_a_study_is_made(drive, base, tmp_path, monkeypatch, capsys):
    found = drive("kill", base, tmp_path / "cases", args=NEW)
    assert killed(found) > 20
    there = []
    for case in sorted((tmp_path / "cases").iterdir()):
        check_old(case)
        there.append((case / "t").exists())
        status, err = again(case, NEW, monkeypatch, capsys)
        if there[-1]:
            assert (status, err.splitlines()[0]) == (1, "error: t exists already")
        else:
            assert (status, err) == (0, "")
        study = Study.open(case / "t")
        assert study.pool.systems == ("b", "a", "c")
        assert said(study) == []
        study.draw(N, seed=1)
    assert there == sorted(there)
    assert set(there) == {False, True}


def test_killed_while_a_system_is_added(drive, base, tmp_path, monkeypatch, capsys):
    found = drive("kill", base, tmp_path / "cases", args=ADD)
    assert killed(found) >= 4
    there = []
    for case in sorted((tmp_path / "cases").iterdir()):
        there.append("late" in check_old(case).pool.systems)
        status, err = again(case, ADD, monkeypatch, capsys)
        assert status == there[-1]
        if there[-1]:
            assert err.splitlines()[0] == "error: the study has a system named late already"
        assert Study.open(case / "s").pool.systems == ("b", "a", "c", "late")
    assert there == sorted(there)
    assert set(there) == {False, True}


FULL = {
    # 32 kB is what SQLite needs beside the file to read it at all.
    "judge": (JUDGE, [0, 20_000], "error: s/judgments.sqlite: the disk "),
    "judge, long": (
        ["judge", "s", "long.tsv"],
        [40_000, 80_000],
        "error: s/judgments.sqlite: the disk could not be read or written (full, over a quota or "
        "size limit, or failing) (disk I/O error); nothing of long.tsv was stored",
    ),
    "draw": (DRAW, [0, 20_000], "error: s/judgments.sqlite: the disk "),
    "draw, long": (
        [DRAW[0], "big", *DRAW[2:]],
        [40_000],
        "error: cannot write big/round-001: Error writing bytes to file. ",
    ),
    "new": (NEW, [0, 100, 1000], "error: cannot write t: "),
    "new, store": (NEW, [5000], "error: "),
    "add": (ADD, [0, 1000], "error: cannot write s/systems-002.parquet: "),
}


@pytest.mark.parametrize("what", FULL)
def test_a_full_disk(drive, base, tmp_path, what):
    args, sizes, message = FULL[what]
    if what == "draw, long":
        run = {f"q{q}": {f"d{d}": -d for d in range(100)} for q in range(40)}
        Study.create(base / "big", {"a": run}, goal="absolute", measure="DCG@100")
    if what == "judge, long":
        rows = [
            f"{q}\t{d}\t1\t{i:020000}" for i, (q, d) in enumerate(asked(Study.open(base / "s")))
        ]
        (base / "long.tsv").write_text("\n".join(["qid\tdocid\tgrade\tassessor", *rows]))
    before = files(base)
    found = drive("full", base, tmp_path / "cases", args=args, sizes=sizes)
    assert len(found) == len(sizes)
    for size, (status, text) in zip(sizes, found, strict=True):
        case = tmp_path / "cases" / str(size)
        assert status == 1, text
        assert text.startswith(message), text
        assert "Traceback" not in text
        if "cannot write" in text:
            assert "File too large; nothing was written\n" in text
        assert text.splitlines()[-1] in (
            "hint: free some space or choose another place, then run the same command again",
            "hint: free some space or make the folder writable, then run the same command again",
            "hint: check the disk and its free space, then run the same again",
        )
        assert files(case) == before
        assert sorted(os.listdir(case)) == sorted(os.listdir(base))
        assert not [name for name in os.listdir(case / "s") if name.startswith(".")]
        assert len(said(check_old(case))) == 1
        ((status, text),) = drive("plain", case, tmp_path, args=args)
        assert status == 0, text


def test_many_judge_at_once(drive, base, tmp_path):
    commands = [["judge", "s", f"{name}.qrels"] for name in ("all", "one", "all", "two", "three")]
    runs = drive("together", base, tmp_path / "cases", commands=commands, times=2)
    for number, run in enumerate(runs):
        assert [status for status, _ in run] == [0] * len(commands), run
        study = check_old(tmp_path / "cases" / str(number))
        assert [(q, d) for q, d, _, _ in said(study)] == sorted(asked(study))
        assert len(study.store.history()) == N


TOLD = "was drawn by another process meanwhile; run the command again"


def test_many_draw_at_once(drive, base, tmp_path):
    commands = [[*DRAW[:-1], str(seed)] for seed in range(4)] + [JUDGE]
    runs = drive("together", base, tmp_path / "cases", commands=commands, times=2)
    for number, run in enumerate(runs):
        assert run[-1][0] == 0, run
        ends = [status for status, _ in run[:-1]]
        assert set(ends) <= {0, 1}
        assert 0 in ends
        for status, text in run[:-1]:
            assert status == 0 or TOLD in text, text
        study = check_old(tmp_path / "cases" / str(number))
        assert len(names(study.folder)) == 1 + ends.count(0)
        assert not [p for p in study.folder.iterdir() if p.name.startswith(".")]
        assert len(said(study)) == N
        seeds = [record(study, n)["seed"] for n in range(2, 2 + ends.count(0))]
        assert sorted(seeds) == [seed for seed, status in enumerate(ends) if status == 0]


def test_many_add_at_once(drive, base, tmp_path):
    runs = drive("together", base, tmp_path / "cases", commands=[ADD] * 4, times=2)
    for number, run in enumerate(runs):
        assert sorted(status for status, _ in run) == [0, 1, 1, 1], run
        for status, text in run:
            assert status == 0 or "added systems meanwhile" in text or "named late already" in text
        assert check_old(tmp_path / "cases" / str(number)).pool.systems == ("b", "a", "c", "late")


@pytest.mark.slow
def test_two_real_commands_draw_at_once(base):
    def start(seed: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "evenhand.cli", *DRAW[:-1], str(seed)],
            cwd=base,
            env={**os.environ, "PYTHONPATH": SOURCE},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    ends = []
    for process in (start(1), start(2)):
        out, err = process.communicate(timeout=120)
        ends.append(process.returncode)
        if process.returncode:
            assert (out, TOLD in err) == ("", True)
        else:
            assert (err, "Pairs to judge are in s/round-00" in out) == ("", True)
    assert 0 in ends
    assert len(names(check_old(base).folder)) == 1 + ends.count(0)


# Real data

real = pytest.mark.skipif(not TREC8.is_dir(), reason=f"the TREC-8 runs are not at {TREC8}")
MEASURE = "DCG(log='e')@100"


def top100(names):
    return [TREC8 / "runs-top100" / f"input.{name}.gz" for name in names]


def close(answer, truth) -> None:
    """The truth lies within 5 standard errors of every system and contrast.

    But for the systems that find hardly anything: the few relevant pairs on which their estimates
    rest make their standard errors too small. With 2,000 draws, none of 20 seeds had a contrast of
    the goals `rank` and `baseline` beyond 5 standard errors.
    """
    usual = truth > np.median(truth) / 2
    assert usual.mean() > 0.8
    error = np.abs(answer.value - truth)
    assert (error <= 5 * answer.std_error)[usual].all()
    contrast = np.abs(answer.contrast - answer.goal.matrix @ truth)
    assert (contrast <= 5 * answer.contrast_std_error + 1e-12).all()
    # And that says something: the errors are smaller than the values.
    assert np.median(answer.std_error) < 0.5 * np.median(truth)


@pytest.mark.slow
@real
def test_three_systems_of_trec8(tmp_path):
    runs, qrels = top100(["mds08a3", "nttd8ale", "weaver2"]), TREC8 / "qrels.trec8.adhoc.gz"
    Study.create(tmp_path / "s", *runs, measure=MEASURE, goal="rank", queries=qrels)
    assert Study.open(tmp_path / "s").draw(250, seed=8).n_new == 250
    taken = Study.open(tmp_path / "s").judge(qrels)
    assert (taken.rows, taken.added, taken.missing) == (86_830, 250, {"round-001": 0})
    answer = Study.open(tmp_path / "s").estimate()
    truth = evaluate(read_runs(*runs), read_qrels(qrels), MEASURE)
    assert answer.goal.target.systems == truth.systems
    close(answer, truth.value[0])
    Study.open(tmp_path / "s").draw(250, seed=9)
    Study.open(tmp_path / "s").judge(qrels)
    answer = Study.open(tmp_path / "s").estimate()
    assert answer.weights == pytest.approx([1 / (1 + 2**1.5), 2**1.5 / (1 + 2**1.5)])
    close(answer, truth.value[0])


@pytest.fixture(scope="module")
def seventy_one():
    listed = (TREC8 / "judged-runs.txt").read_text().split()
    assert len(listed) == 71
    qrels = read_qrels(TREC8 / "qrels.trec8.adhoc.gz")
    runs = read_runs(*top100(listed))
    return runs, qrels, evaluate(runs, qrels, MEASURE).value[0]


@real
@pytest.mark.slow
@pytest.mark.parametrize("goal", ["rank", "baseline"])
def test_all_judged_systems_of_trec8(tmp_path, seventy_one, goal):
    runs, qrels, truth = seventy_one
    options = {"baseline": "weaver2"} if goal == "baseline" else {}
    study = Study.create(tmp_path / "s", runs, measure=MEASURE, goal=goal, **options)
    assert len(study.pool) == 86_830
    told = (
        "Mer8Adtd1 and Mer8Adtd2 return the same rankings: "
        "they differ by exactly 0, whatever is judged"
    )
    assert told in study.notes()
    study = Study.open(study.folder)
    assert study.pool.systems == runs.systems
    study.draw(2000, seed=8)
    study.judge(qrels)
    answer = study.estimate()
    close(answer, truth)
    assert told in answer.notes
    one, two = (study.pool.systems.index(name) for name in ("Mer8Adtd1", "Mer8Adtd2"))
    assert answer.value[one] == answer.value[two]
    (row,) = (
        r for r in answer.pairs.to_dict()["pairs"] if r["contrast"] == "Mer8Adtd1 - Mer8Adtd2"
    )
    assert [row[k] for k in ("estimate", "std_error", "low", "high")] == [0, 0, 0, 0]


@pytest.mark.slow
@real
def test_two_runs_of_trec8_that_are_one(tmp_path):
    study = Study.create(
        tmp_path / "s", *top100(["isa25t", "isa50t"]), measure=MEASURE, goal="pair"
    )
    told = (
        "isa25t and isa50t return the same rankings: they differ by exactly 0, whatever is judged"
    )
    assert study.notes() == [told]
    made = study.draw(100, seed=1)
    assert made.notes[0].startswith("all systems return the same rankings: ")
    study.judge(TREC8 / "qrels.trec8.adhoc.gz")
    missing = study.judge(TREC8 / "qrels.trec8.adhoc.gz").missing["round-001"]
    if missing:  # these two were not among the runs that made the pool
        study.judge(grades_of_zero(study))
    answer = study.estimate()
    assert answer.value[0] == answer.value[1]
    assert (answer.contrast.tolist(), answer.contrast_std_error.tolist()) == ([0.0], [0.0])
    assert told in answer.notes


def grades_of_zero(study: Study) -> dict[str, dict[str, float]]:
    """Grade 0 for every pair that is still to be judged."""
    judged = {(q, d) for q, d, _, _ in said(study)}
    found: dict[str, dict[str, float]] = {}
    for query, document in asked(study):
        if (query, document) not in judged:
            found.setdefault(query, {})[document] = 0.0
    return found


# Studies that learn


@pytest.fixture(scope="module")
def learning(tmp_path_factory):
    """A study of two rounds, the second steered by the first, and its judgments."""
    folder = tmp_path_factory.mktemp("learning")
    make_collection(folder, seed=5, n_queries=12, n_documents=150)
    qrels = folder / "qrels.txt"
    study = Study.create(
        folder / "s", folder / "runs", measure="DCG@20", grades=(0, 1, 2), plan=(60, 80)
    )
    noisy = read_qrels(qrels).to_frame()
    noisy["grade"] = np.random.default_rng(0).permutation(noisy["grade"])
    made = [study.draw(60, utility="learned", seed=1)]
    study.judge(qrels)
    made.append(study.draw(80, utility="learned", signals={"noise": noisy}, seed=2))
    study.judge(qrels)
    return study, qrels, made


@pytest.mark.slow
def test_a_round_that_learns_is_recorded(learning):
    study, _, (first, second) = learning
    assert first.design == "optimal/rank"
    assert first.notes == ("nothing is judged yet: this round is designed from ranks",)
    assert (second.design, second.n_new) == ("optimal/learned", 80)
    one, two = record(study), record(study, 2)
    assert (one["folds"], one["known"], one["depends_on"], one["signals"]) == (4, 0, [], [])
    assert (two["folds"], two["known"], two["depends_on"]) == (4, 60, ["round-001"])
    assert two["signals"] == ["noise"]
    assert not set(drawn(study)) & set(drawn(study, 2))
    assert sorted(os.listdir(study.folder / "round-002")) == [
        *("design.parquet", "draws.parquet", "known.parquet", "posterior.nc", "round.json"),
        *("signals.parquet", "to_judge.tsv"),
    ]


@pytest.mark.slow
def test_estimators_agree_and_say_which_they_are(learning):
    study, qrels, _ = learning
    truth = evaluate(study_runs(study), read_qrels(qrels), "DCG@20")
    true = dict(zip(truth.systems, truth.value[0], strict=True))
    found = {}
    for name in ("auto", "cross-fitted", "difference", "importance"):
        found[name] = answer = study.estimate(estimator=name)
        assert answer.estimator == ("cross-fitted" if name == "auto" else name)
        assert answer.estimator in answer.notes_shown()[0]
        assert answer.to_dict()["estimator"] == answer.estimator
        assert answer.n_judged == 140
        assert (answer.covered == 1).all()
        # Six standard errors: by chance in less than one of 10^6.
        off = answer.value - np.array([true[s] for s in study.pool.systems])
        assert (np.abs(off) < 6 * answer.std_error).all()
    np.testing.assert_array_equal(found["auto"].value, found["cross-fitted"].value)
    width = {name: answer.contrast_std_error.mean() for name, answer in found.items()}
    assert width["cross-fitted"] < width["importance"]


def study_runs(study):
    return read_runs(study.folder.parent / "runs")


def test_small_rounds_are_not_drawn_by_fold(make):
    study = make()
    study.draw(N, seed=1)
    study.judge(QRELS)
    assert record(study)["folds"] == 1
    assert study.estimate().estimator == "importance"
    error = refused(SupportError, study.estimate, estimator="cross-fitted")
    assert error.message == "no round was drawn by fold, so that nothing can be cross-fitted"
    assert refused(EvenhandError, study.estimate, estimator="best").message == (
        "unknown estimator 'best'"
    )


def test_signals_that_cannot_be_used(make, tmp_path):
    study = make()
    other = {"q9": {"d1": 1}}
    assert "is among the" in refused(EvenhandError, study.draw, N, signals=[other]).message
    named = refused(EvenhandError, study.draw, N, signals=["a/x.tsv", "b/x.tsv"])
    assert named.message == "two signals have the same name"
    assert not (study.folder / "round-001").exists()


@pytest.mark.slow
def test_the_posterior_is_read_by_arviz_without_this_library(learning):
    study, _, _ = learning
    path = study.folder / "round-002" / "posterior.nc"
    code = (
        "import sys, arviz\n"
        f"found = arviz.from_netcdf({str(path)!r})\n"
        "assert 'evenhand' not in sys.modules\n"
        "print(dict(found['constant_data'].sizes))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "60" in done.stdout


# What is still needed


def test_a_plan_before_and_after_a_first_round(make):
    study = make()
    blind = study.plan(half_width=0.5)
    assert "nothing is judged yet" in blind.notes[0]
    assert blind.needed is not None
    study.draw(N, seed=1)
    study.judge(QRELS)
    seen = study.plan(half_width=10.0)
    assert seen.needed == 0
    assert "best" in seen.columns
    found = study.estimate()
    # Every remaining pair judged: what is left is the first round's share of the weights.
    half = 1.959963984540054 * np.sqrt(np.diag(found.contrast_covariance)).mean()
    assert seen.floor == pytest.approx(half / (1 + 2**1.5), rel=1e-6)
    wide = study.plan(half_width=0.01, question="population")
    assert wide.needed is None
    assert any("choice of queries" in note for note in wide.notes)


@pytest.mark.parametrize("goal", ["best", "order", "absolute"])
def test_plans_for_every_goal(make, goal):
    study = make(goal=goal, plan=[N, 2 * N])
    study.draw(N, seed=1)
    study.judge(QRELS)
    answer = study.plan(half_width=1e3)
    assert answer.needed == 0
    assert np.isfinite(answer.columns["half_width"]).all()
    omega = 1 / (1 + 2 * 2**0.5)
    covariance = study.estimate().contrast_covariance
    half = 1.959963984540054 * np.sqrt(np.diag(covariance)).mean()
    assert answer.floor == pytest.approx(half * omega, rel=1e-6)


def test_for_queries_like_these(make):
    study = make()
    study.draw(2 * N, seed=1)
    study.judge(QRELS)
    here, wide = study.estimate(), study.estimate(question="population")
    assert wide.to_dict()["for"] == "population"
    assert (wide.high - wide.low >= here.high - here.low).all()
    assert (wide.value == here.value).all()
    pairs = wide.pairs
    assert (pairs.high - pairs.low >= here.pairs.high - here.pairs.low).all()
    with pytest.raises(EvenhandError, match="unknown question 'all'"):
        study.estimate(question="all")
