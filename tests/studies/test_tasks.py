"""Pairs to judge go out to annotation tools, and their answers come back, each once."""

from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from evenhand.cli import main
from evenhand.errors import EvenhandError, FormatError, StudyError
from evenhand.formats.qrels import read_qrels
from evenhand.studies.tasks import interface, named_queries
from evenhand.study import Study

TEXTS = {"1": "red shoes", "2": "=SUM(A1) shoes", "3": "blue, “shoes”\nsize 9"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study of two systems with a round drawn, and files of texts."""
    folder = tmp_path_factory.mktemp("tasks")
    rng = np.random.default_rng(0)
    runs = {
        f"s{j}": {q: {f"d{d}": float(s) for d, s in enumerate(rng.normal(size=12))} for q in TEXTS}
        for j in range(2)
    }
    study = Study.create(folder / "study", runs, measure="DCG@10", goal="pair", grades=[0, 1, 2])
    study.draw(20, seed=1)
    rows = [{"_id": q, "text": text} for q, text in TEXTS.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"_id": f"d{d}", "title": f"T{d}", "text": f"<b>text</b> {d}\n"} for d in range(11)]
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def study(made, tmp_path):
    """A copy, for a test to judge."""
    import shutil

    shutil.copytree(made / "study", tmp_path / "study")
    return Study.open(tmp_path / "study")


def drawn(study):
    """The pairs that the round drew."""
    (stored,) = study._rounds()
    return set(zip(*study.pool.names(stored.sample.cells), strict=True))


def grade_of(qid, docid):
    """What assessors say of a pair here."""
    return (int(qid) + int(docid[1:])) % 3


def assert_judged(study, assessors):
    """Each pair is judged once by each, as `grade_of` says."""
    said = study.store.read()
    found = list(zip(said.query, said.document, said.assessor, said.grade, strict=True))
    expected = {(q, d, a, float(grade_of(q, d))) for q, d in drawn(study) for a in assessors}
    assert len(found) == len(expected)
    assert set(found) == expected


def out(study, made, kind):
    """What is exported."""
    return study.export(kind, docs=made / "docs.jsonl", queries=made / "queries.jsonl")


def test_a_spreadsheet(study, made, tmp_path):
    text = out(study, made, "csv").text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {(row["qid"], row["docid"]) for row in rows} == drawn(study)
    assert len(rows) == 20
    assert [row["qid"] for row in rows] == sorted(row["qid"] for row in rows)
    shown = {row["qid"]: row["query"] for row in rows}
    assert shown == {"1": "red shoes", "2": " =SUM(A1) shoes", "3": TEXTS["3"]}
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows({**row, "grade": grade_of(row["qid"], row["docid"])} for row in rows)
    (tmp_path / "filled.csv").write_text(file.getvalue(), encoding="utf-8")
    assert study.judge(tmp_path / "filled.csv").added == 20
    assert study.judge(tmp_path / "filled.csv").added == 0
    assert_judged(study, [""])
    with pytest.raises(StudyError, match=r"no pair of .* waits"):
        study.export("csv")


def answered(task, **how):
    """A task of Label Studio as two assessors leave it: one in a choice, one as a number."""
    said = grade_of(task["data"]["qid"], task["data"]["docid"])
    choice = {"from_name": "grade", "type": "choices", "value": {"choices": [str(said)]}}
    number = {"from_name": "grade", "type": "number", "value": {"number": said}}
    comment = {"from_name": "why", "type": "textarea", "value": {"text": ["since"]}}
    return {
        "id": 7,
        **task,
        "annotations": [
            {"completed_by": 4, "was_cancelled": False, "result": [choice, comment]},
            {"completed_by": {"id": 5, "email": "b@x"}, "result": [number]},
            {"completed_by": 6, "was_cancelled": True, "result": []},
        ],
        "predictions": [],
    }


def test_label_studio(study, made, tmp_path):
    export = out(study, made, "label-studio")
    tasks = json.loads(export.text)
    assert {(t["data"]["qid"], t["data"]["docid"]) for t in tasks} == drawn(study)
    assert set(tasks[0]) == {"data"}
    assert set(tasks[0]["data"]) == {"qid", "docid", "query", "title", "text"}
    view = ElementTree.fromstring(export.notes[-1].removeprefix("labelling interface: "))
    assert [choice.get("value") for choice in view.iter("Choice")] == ["0", "1", "2"]
    assert {x.get("value")[1:] for x in view if "$" in x.get("value", "")} <= set(tasks[0]["data"])
    (tmp_path / "export.json").write_text(json.dumps([answered(task) for task in tasks]))
    assert study.judge(tmp_path / "export.json").added == 40
    assert_judged(study, ["4", "b@x"])


def test_label_studio_in_short(study, made, tmp_path):
    tasks = [task["data"] for task in json.loads(out(study, made, "label-studio").text)]
    flat = [
        {**task, "grade": str(grade_of(task["qid"], task["docid"])), "annotator": 3, "id": i}
        for i, task in enumerate(tasks)
    ]
    (tmp_path / "min.json").write_text(json.dumps(flat))
    assert study.judge(tmp_path / "min.json").added == 20
    assert_judged(study, ["3"])


@pytest.mark.parametrize("sent", [False, True])
def test_argilla(study, made, tmp_path, sent):
    records = json.loads(out(study, made, "argilla").text)
    assert {(r["metadata"]["qid"], r["metadata"]["docid"]) for r in records} == drawn(study)
    assert set(records[0]["fields"]) == {"query", "document"}
    for record in records:
        said = str(grade_of(**record["metadata"]))
        if sent:  # as its server has them
            record["responses"] = [
                {"values": {"grade": {"value": said}}, "status": "submitted", "user_id": "u1"},
                {"values": {"grade": {"value": "2"}}, "status": "draft", "user_id": "u2"},
                {"values": None, "status": "discarded", "user_id": "u3"},
            ]
        else:
            record["responses"] = {
                "grade": [{"value": said, "user_id": "u1"}],
                "why": [{"value": "since", "user_id": "u1"}],
            }
    (tmp_path / "records.json").write_text(json.dumps(records))
    assert study.judge(tmp_path / "records.json").added == 20
    assert_judged(study, ["u1"])


def test_a_book_of_quepid(study, made, tmp_path):
    """A query is named by its text there, and each rater has a column."""
    book = [["query", "docid", "Ann", "Bob B."]]
    for qid, docid in sorted(drawn(study)):
        text = TEXTS[qid].replace("\n", " ")
        said = grade_of(qid, docid)
        book.append([f" {text}" if text.startswith("=") else text, docid, said, f"{said}.0"])
    file = io.StringIO()
    csv.writer(file).writerows(book)
    (tmp_path / "book.csv").write_text(file.getvalue(), encoding="utf-8")
    words = ["judge", study.folder, tmp_path / "book.csv", "--queries", made / "queries.jsonl"]
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == 0, result.output
    assert_judged(study, ["Ann", "Bob B."])


def test_a_case_of_quepid(study, made, tmp_path):
    rows = [f"{q},{d},{grade_of(q, d)}\n" for q, d in drawn(study)]
    (tmp_path / "case.csv").write_text("query,docid,rating\n" + "".join(rows))
    assert study.judge(tmp_path / "case.csv").added == 20
    assert_judged(study, [""])


def test_what_nobody_answered_is_not_judged(study, made, tmp_path):
    tasks = json.loads(out(study, made, "label-studio").text)
    left = [{**task, "annotations": []} for task in tasks[1:]]
    (tmp_path / "export.json").write_text(json.dumps([answered(tasks[0]), *left]))
    taken = study.judge(tmp_path / "export.json")
    assert (taken.added, taken.blank) == (2, 19)
    assert taken.missing == {"round-001": 19}
    (tmp_path / "tasks.json").write_text(study.export("label-studio").text)
    taken = study.judge(tmp_path / "tasks.json")  # as they went out
    assert (taken.added, taken.blank) == (0, 19)


def test_without_texts_ids_stand(study):
    for task in json.loads(study.export("label-studio").text):
        assert task["data"]["query"] == task["data"]["qid"]
        assert task["data"]["title"] == task["data"]["docid"]


PAIR = {"metadata": {"qid": 1, "docid": "d"}}


def result(**value):
    return {"data": {"qid": 1, "docid": "d"}, "annotations": [{"result": [{"value": value}]}]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([result(choices=["good"])], 'object 1: the answer is not a number, got "good"'),
        ([result(choices=["1", "2"])], "object 1: the answer is not a number"),
        ([result(labels=["1"])], "object 1: an annotation has 0 answers"),
        ([{"grade": 1}], "object 1: no qid and docid"),
        ([{"qid": 1, "docid": 2, "grade": True}], "object 1: the answer is not a number"),
        ([{"qid": 1, "docid": 2, "grade": 1}, 3], 'object 2: expected an object, got "3"'),
        (
            [{**PAIR, "responses": {"a": [{"value": 1}], "b": [{"value": 1}]}}],
            "object 1: answers 2 questions",
        ),
        ([], "no rows"),
    ],
)
def test_refusals(tmp_path, content, says):
    path = tmp_path / "export.json"
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=says):
        read_qrels(path)


def test_texts_that_cannot_be_told_apart(made, tmp_path):
    (tmp_path / "same.tsv").write_text("1\tred shoes\n2\tred  shoes\n")
    assert named_queries(tmp_path / "same.tsv", ["1", "3"]) == {"red shoes": "1"}
    with pytest.raises(EvenhandError, match="the queries 1 and 2 have one text"):
        named_queries(tmp_path / "same.tsv", ["1", "2"])


def test_the_command(made):
    words = ["export", str(made / "study"), "--as", "csv", "--docs", str(made / "docs.jsonl")]
    found = CliRunner().invoke(main, words)
    assert found.exit_code == 0
    assert found.stdout.startswith("qid,docid,query,title,text,grade\n")
    assert "documents have no text in" in found.stderr
    assert interface([0.5, 1]).count("<Choice value=") == 2
