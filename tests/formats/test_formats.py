"""Runs, qrels and query lists in: each rule once, each message once, and real files."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.errors import EvenhandError, FormatError
from evenhand.formats.ids import intern, ranking
from evenhand.formats.qrels import read_qrels
from evenhand.formats.queries import read_queries
from evenhand.formats.runs import read_runs

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="the real data sets are not here")

RUN = "401 Q0 FT911-3 1 4.5 bm25\n401 Q0 FT911-7 2 4.25 bm25\n402 Q0 FT911-3 1 -1e-3 bm25\n"
ROWS = [
    ("bm25", "401", "FT911-3", 1, 4.5),
    ("bm25", "401", "FT911-7", 2, 4.25),
    ("bm25", "402", "FT911-3", 1, -1e-3),
]
SCORES = {"401": {"FT911-7": 4.25, "FT911-3": 4.5}, "402": {"FT911-3": -1e-3}}


@pytest.fixture
def put(tmp_path):
    def put(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return put


def rows(runs):
    frame = runs.to_frame()
    return list(frame.astype({c: object for c in frame}).itertuples(index=False, name=None))


def grades(qrels):
    frame = qrels.to_frame()
    return list(frame.astype({c: object for c in frame}).itertuples(index=False, name=None))


def fault(function, *arguments, **options) -> FormatError:
    with pytest.raises(FormatError) as caught:
        function(*arguments, **options)
    return caught.value


# Runs: what is taken ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t,
        lambda t: t.removesuffix("\n"),
        lambda t: t.replace(" ", "\t"),
        lambda t: t.replace(" ", " \t  "),
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t.replace("\n", "\r"),
        lambda t: t.replace("\n", " \n"),
        lambda t: "\n\n" + t.replace("\n", "\n\n") + "  \n",
        lambda t: "".join(f"  {line}\n" for line in t.splitlines()),
        lambda t: "# a comment of six words here\n" + t + "# end",
        lambda t: t.replace("402", "#402 Q0 FT911-9 1 3 bm25\n402"),
        lambda t: t.replace("4.5", "+4.5"),
        lambda t: t.replace("4.5", "45e-1").replace("4.25", "00004.25"),
        lambda t: "\ufeff" + t,
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_blanks_line_ends_and_comments(put, change, zipped):
    data = change(RUN).encode()
    path = put("a.run", gzip.compress(data) if zipped else data)
    assert rows(read_runs(path)) == ROWS


def test_fields_of_runs(put):
    runs = read_runs(put("a.run", RUN))
    assert runs.systems == ("bm25",)
    assert runs.queries.to_pylist() == ["401", "402"]
    assert runs.documents.to_pylist() == ["FT911-3", "FT911-7"]
    for name in ("system", "query", "document", "rank"):
        assert getattr(runs, name).dtype == np.int32
    assert runs.score.dtype == np.float64
    assert runs.notes == ()
    assert len(runs) == 3
    assert repr(runs) == "Runs(1 systems, 2 queries, 2 documents, 3 rows)"
    assert "bm25" in runs._repr_html_()


@pytest.mark.parametrize("block", [30, 64, 1000])
def test_files_larger_than_a_block(put, monkeypatch, block):
    monkeypatch.setattr("evenhand.formats.parsing._BLOCK", block)
    path = put("a.run", RUN + RUN.replace("bm25", "x") + RUN.replace("40", "50"))
    runs = read_runs(path)
    assert runs.systems == ("bm25", "x")
    assert rows(runs.select("x")) == [("x", *row[1:]) for row in ROWS]
    assert runs.queries.to_pylist() == ["401", "402", "501", "502"]


def test_a_docid_may_hold_a_hash_and_quotes(put):
    runs = read_runs(put("a.run", 'q 0 doc#1_2 1 2 t\nq 0 "d"o,c 2 1 t\nq 0 \u00e9 3 0 t\n'))
    assert [row[2] for row in rows(runs)] == ["doc#1_2", '"d"o,c', "\u00e9"]


def test_order_is_score_descending_then_docid_descending_in_bytes(put):
    text = "q 0 a 1 1 t\nq 0 b 2 1 t\nq 0 \u00e9 3 1 t\nq 0 B 4 1 t\n"
    text += "q 0 z 9 0.5 t\nq 0 y 8 1.5 t\n"
    runs = read_runs(put("a.run", text))
    assert [row[2] for row in rows(runs)] == ["y", "\u00e9", "b", "a", "B", "z"]
    assert [row[3] for row in rows(runs)] == [1, 2, 3, 4, 5, 6]


def test_scores_are_compared_in_double_precision(put):
    runs = read_runs(put("a.run", "q 0 b 1 1.0 t\nq 0 a 2 1.00000000001 t\n"))
    assert [row[2] for row in rows(runs)] == ["a", "b"]


def test_order_by_rank(put):
    path = put("a.run", "q 0 a 2 9 t\nq 0 b 1 1 t\nq 0 c 10 5 t\nq 0 d 10 7 t\n")
    assert [row[2] for row in rows(read_runs(path, order="rank"))] == ["b", "a", "d", "c"]
    assert [row[2] for row in rows(read_runs(path))] == ["a", "d", "c", "b"]
    assert [row[3] for row in rows(read_runs(path, order="rank"))] == [1, 2, 3, 4]
    frame = read_runs(path).to_frame().assign(rank=[4, 3, 2, 1])
    assert [row[2] for row in rows(read_runs(frame, order="rank"))] == ["b", "c", "d", "a"]


def test_queries_need_not_be_in_order_or_together(put):
    text = "9 0 a 1 1 t\n10 0 b 1 3 t\n9 0 c 2 2 t\n10 0 a 1 2 t\n"
    assert [row[1:4] for row in rows(read_runs(put("a.run", text)))] == [
        ("10", "b", 1),
        ("10", "a", 2),
        ("9", "c", 1),
        ("9", "a", 2),
    ]


FRAME = pd.DataFrame(
    {
        "query_id": ["402", "401", "401"],
        "doc_id": ["FT911-3", "FT911-7", "FT911-3"],
        "score": [-1e-3, 4.25, 4.5],
    }
)


@pytest.mark.parametrize(
    "source",
    [
        FRAME,
        FRAME.rename(columns={"query_id": "qid", "doc_id": "docno"}).assign(docid=0, query="x y"),
        FRAME.rename(columns={"query_id": "query-id", "doc_id": "corpus-id"}),
        FRAME.rename(columns={"query_id": "q_id", "doc_id": "docid", "score": "sim"}),
        FRAME.astype({"query_id": int}),
        FRAME.astype({"query_id": "category", "score": "float32"}).assign(score=FRAME["score"]),
        pl.from_pandas(FRAME),
        pa.Table.from_pandas(FRAME),
        SCORES,
        {401: SCORES["401"], 402: SCORES["402"]},
        list(FRAME.itertuples(index=False, name="ScoredDoc")),
    ],
)
def test_tables_and_mappings(source):
    expected = [("run-1", *row[1:]) for row in ROWS]
    assert rows(read_runs(source)) == expected
    assert rows(read_runs([source])) == expected
    named = read_runs({"x": source, "y": source})
    assert named.systems == ("x", "y")
    assert rows(named.select("y")) == [("y", *row[1:]) for row in ROWS]


def test_systems_in_a_frame_and_back(put):
    frame = pd.concat([FRAME.assign(run="b"), FRAME.assign(run="a", score=-FRAME["score"])])
    runs = read_runs(frame)
    assert runs.systems == ("b", "a")
    assert "holds 2 systems" in runs.notes[0]
    assert rows(read_runs(runs.to_frame())) == rows(runs)


def test_files_with_a_header(put, tmp_path):
    text = FRAME.to_csv(index=False)
    pq.write_table(pa.Table.from_pandas(FRAME), tmp_path / "p.parquet")
    for path in (
        put("p.csv", text),
        put("p.tsv", text.replace(",", "\t")),
        put("p.tsv", "\n" + text.replace(",", "\t").replace("\n", "\n\n")),
        put("p.txt", text.replace(",", " ")),
        put("p.csv.gz", gzip.compress(text.replace("402", '"402"').encode())),
        put("p.json", json.dumps(SCORES)),
        put("p.json.gz", gzip.compress(json.dumps(SCORES).encode())),
        str(tmp_path / "p.parquet"),
    ):
        assert rows(read_runs(path)) == [("p", *row[1:]) for row in ROWS], path


def test_integer_ids_become_text():
    runs = read_runs({1: {10: Decimal(1), 9: np.float32(2)}})
    assert rows(runs) == [("run-1", "1", "9", 1, 2.0), ("run-1", "1", "10", 2, 1.0)]
    frame = pd.DataFrame({"qid": [1.0, 2.0], "docno": [1, 2], "score": [1, 2]})
    assert read_runs(frame).queries.to_pylist() == ["1", "2"]


def test_folders_globs_and_lists(put, tmp_path):
    for name in "ba":
        put(f"runs/{name}.run", RUN.replace("bm25", f"tag-{name}"))
    put("runs/.hidden", "nothing")
    put("runs/sub/c.run", RUN)
    folder = str(tmp_path / "runs")
    for source in (folder, Path(folder), f"{folder}/*.run", [f"{folder}/a.run", f"{folder}/b.run"]):
        assert read_runs(source).systems == ("tag-a", "tag-b")
    assert read_runs(f"{folder}/b.run", f"{folder}/a.run").systems == ("tag-b", "tag-a")


# Runs: names --------------------------------------------------------------------------------------


def test_a_shared_tag_gives_way_to_the_file(put):
    paths = [put("input.x.gz", gzip.compress(RUN.encode())), put("y.txt", RUN)]
    paths.append(put("z.txt", RUN.replace("bm25", "other")))
    runs = read_runs(paths)
    assert runs.systems == ("input.x", "y.txt", "other")
    assert runs.notes == (
        "2 runs have the tag bm25; they are named by their files: input.x, y.txt.",
    )
    assert read_runs(*paths, names=["a", "b", "c"]).systems == ("a", "b", "c")
    assert read_runs({"a": paths[0]}, paths[1]).systems == ("a", "bm25")


def test_each_tag_of_a_file_is_a_system(put):
    path = put("two.txt", "q 0 a 1 1 s\nq 0 b 1 2 t\nq 0 c 1 2 s\nq 0 a 1 1 t\n")
    runs = read_runs(path)
    assert runs.notes == (f"{path} holds 2 systems, by their tags: s, t.",)
    assert rows(runs) == [
        ("s", "q", "c", 1, 2.0),
        ("s", "q", "a", 2, 1.0),
        ("t", "q", "b", 1, 2.0),
        ("t", "q", "a", 2, 1.0),
    ]
    assert read_runs(path, put("t.txt", "q 0 a 1 1 t\n")).systems == ("s", "two.txt:t", "t.txt")
    assert "holds 2 systems" in fault(read_runs, {"x": path}).message


def test_two_runs_of_one_name_are_an_error(put):
    a, b = put("a/x.run", RUN), put("b/x.run", RUN)
    error = fault(read_runs, a, b)
    assert error.message == f"2 runs are named x.run: {a}, {b}"
    assert "names=[...]" in error.hint
    with pytest.raises(EvenhandError, match="expected 2 names, one a system, got 1"):
        read_runs(a, b, names=["one"])


def test_select(put):
    runs = read_runs({"a": SCORES, "b": {"402": {"x": 1}}, "c": {"403": {"y": 2, "z": 1}}})
    some = runs.select(["c", "a"])
    assert some.systems == ("c", "a")
    assert rows(some) == [("c", "403", "y", 1, 2.0), ("c", "403", "z", 2, 1.0)] + [
        ("a", *row[1:]) for row in ROWS
    ]
    assert some.queries is runs.queries
    assert len(runs.select([])) == 0
    with pytest.raises(EvenhandError, match="no system is named d"):
        runs.select(["a", "d"])
    with pytest.raises(EvenhandError, match="named twice"):
        runs.select(["a", "a"])


# Runs: the order, against others ------------------------------------------------------------------

ids = st.text("abAB#-\u00e9\u4e2d\U0001f600", min_size=1, max_size=3).filter(
    lambda t: not t.startswith("#")
)
scores = st.sampled_from([-1.0, 0.0, 0.5, 0.5 + 1e-12, 1.0, 1e300, 3.0])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(ids, ids, scores), min_size=1, max_size=40, unique_by=lambda r: r[:2]))
def test_our_order_is_that_of_a_plain_sort(rows_in):
    run: dict[str, dict[str, float]] = {}
    for query, document, score in rows_in:
        run.setdefault(query, {})[document] = score
    runs = read_runs(run)
    expected = []
    for query in sorted(run, key=str.encode):
        by_id = sorted(run[query], key=str.encode, reverse=True)
        ordered = sorted(by_id, key=lambda d: -run[query][d])
        expected += [("run-1", query, d, i, run[query][d]) for i, d in enumerate(ordered, 1)]
    assert rows(runs) == expected


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=1, unique_by=lambda r: r[0])
)
def test_our_order_is_that_of_trec_eval(pairs):
    run = {"q": {f"d{document}": float(score) for document, score in pairs}}
    first = rows(read_runs(run))[0][2]
    for document in run["q"]:
        value = pytrec_eval.RelevanceEvaluator({"q": {document: 1}}, {"P_1"}).evaluate(run)
        assert value["q"]["P_1"] == (document == first)


def test_ranking_returns_none_for_rows_in_order():
    query = np.array([0, 0, 0, 1], np.int32)
    key = np.array([2.0, 1.0, 1.0, 5.0])
    assert ranking(query, key, np.array([3, 2, 1, 0], np.int32)) is None
    order = ranking(query, key, np.array([3, 1, 2, 0], np.int32))
    assert order is not None
    assert order.tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("groups", [1, 2, 3, 9])
def test_ids_are_numbered_in_byte_order(groups):
    parts = [["b", "a"], [], ["\U0001f600", "\uffff", "a"], ["B"]]
    ids, codes = intern([pa.array(part, pa.string()) for part in parts], groups=groups)
    assert ids.to_pylist() == ["B", "a", "b", "\uffff", "\U0001f600"]
    assert [[ids[int(c)].as_py() for c in code] for code in codes] == parts
    assert all(code.dtype == np.int32 for code in codes)


# Runs: faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (
            "401 Q0 FT911-3 12 4.5",
            'expected 6 fields (qid Q0 docid rank score tag), got 5: "401 Q0 FT911-3 12 4.5"',
            "a field is missing",
        ),
        (
            "401  Q0 FT911-3 12 4.5",  # six by accident, were two blanks two delimiters
            'expected 6 fields (qid Q0 docid rank score tag), got 5: "401  Q0 FT911-3 12 4.5"',
            "a field is missing",
        ),
        (
            " 401 FT911-3 12 4.5 bm25",
            'expected 6 fields (qid Q0 docid rank score tag), got 5: "401 FT911-3 12 4.5 bm25"',
            "a field is missing",
        ),
        (
            "401 Q0 FT911-3 12 4.5 ",
            'expected 6 fields (qid Q0 docid rank score tag), got 5: "401 Q0 FT911-3 12 4.5"',
            "a field is missing",
        ),
        (
            "401 Q0 FT911-3 12 4.5 my run",
            "expected 6 fields (qid Q0 docid rank score tag), got 7: "
            '"401 Q0 FT911-3 12 4.5 my run"',
            "remove the text after it",
        ),
        ("401 Q0 d 12 high bm25", 'score is not a number, got "high"', ""),
        ("401 Q0 d 12 1_000 bm25", 'score is not a number, got "1_000"', ""),
        ("401 Q0 d 12 0x1p3 bm25", 'score is not a number, got "0x1p3"', ""),
        ("401 Q0 d 12 NaN bm25", 'score is not finite, got "NaN"', "a finite score"),
        ("401 Q0 d 12 -inf bm25", 'score is not finite, got "-inf"', "a finite score"),
        ("401 Q0 d 12 1e999 bm25", 'score is not finite, got "1e999"', "a finite score"),
    ],
)
def test_faulty_lines(put, line, message, hint):
    path = put("runs/bm25.txt", f"# comment\n{RUN}\n{line}\n")
    error = fault(read_runs, path)
    assert error.message == f"{path}:6: {message}"
    assert hint in error.hint


def test_all_faults_of_a_kind_are_counted(put):
    path = put("a.run", RUN + "1 2\n" * 1234 + "401 Q0 d 1 x t\n")
    error = fault(read_runs, path)
    assert error.message.splitlines() == [
        *(
            f'{path}:{i}: expected 6 fields (qid Q0 docid rank score tag), got 2: "1 2"'
            for i in (4, 5, 6)
        ),
        "... 1,234 in all",
    ]


def test_a_document_twice(put):
    path = put("a.run", "# c\n" + RUN + "\n401 Q0 FT911-3 9 0 bm25\n402 Q0 FT911-3 9 0 bm25\n")
    error = fault(read_runs, path)
    assert error.message.splitlines() == [
        f"{path}:6: document FT911-3 occurs twice in query 401, before at {path}:2",
        f"{path}:7: document FT911-3 occurs twice in query 402, before at {path}:4",
    ]
    frame = pd.DataFrame({"qid": [1, 1], "docno": ["a", "a"], "score": [1, 2]})
    assert fault(read_runs, frame).message.startswith("run 1: row 2: document a occurs twice")
    csv = put("a.csv", "qid,docno,score\n\n1,a,2\n1,b,3\n1,a,1\n")
    assert fault(read_runs, csv).message == (
        f"{csv}:5: document a occurs twice in query 1, before at {csv}:3"
    )
    twice = fault(read_runs, {"1": {"a": 1}, 1: {"a": 2}})
    assert "occurs twice in query 1" in twice.message


def test_ranks_must_be_numbers_where_they_count(put):
    path = put("a.run", "q 0 a first 1 t\n")
    assert len(read_runs(path)) == 1
    assert fault(read_runs, path, order="rank").message == (
        f'{path}:1: rank is not a number, got "first"'
    )
    assert "has no rank" in fault(read_runs, SCORES, order="rank").message
    assert "no column for the rank" in fault(read_runs, FRAME, order="rank").message
    with pytest.raises(EvenhandError, match='"score" or "rank"'):
        read_runs(path, order="docid")


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n", "qid,docid,score\n", "{}"])
def test_no_rows(put, content):
    path = put("a.run", content)
    assert fault(read_runs, path).message == f"{path}: no rows"


def test_missing_files(put, tmp_path):
    missing = str(tmp_path / "none.run")
    assert fault(read_runs, missing).message == f"{missing}: no such file"
    assert fault(read_runs, missing.replace("none", "*")).message.endswith("*.run: matches no file")
    (tmp_path / "empty").mkdir()
    assert "a folder without files" in fault(read_runs, tmp_path / "empty").message
    assert fault(read_runs).message == "no run was given"
    assert "no run was given" in fault(read_runs, []).message


def test_bytes_that_are_no_text(put):
    whole = gzip.compress((RUN * 100).encode())
    for data in (whole[:-20], whole[:30] + b"xxxx" + whole[34:], b"\x1f\x8b"):
        assert "not a whole gzip file" in fault(read_runs, put("a.gz", data)).message
    path = put("a.run", RUN.encode() + b"401 Q0 \xff\xfe 3 1 bm25\n")
    assert fault(read_runs, path).message == (
        f'{path}:4: expected UTF-8, got "401 Q0 \\xff\\xfe 3 1 bm25"'
    )
    path = put("a.csv", b"qid,docid,score\n1,\xff,2\n")
    assert fault(read_runs, path).message == f"{path}:2: expected UTF-8"
    assert "Parquet" in fault(read_runs, put("a.parquet", b"PAR1 and no more")).message


def test_faulty_tables(put):
    frame = FRAME.rename(columns={"doc_id": "title"})
    error = fault(read_runs, frame)
    assert error.message == "run 1: no column for the document, got query_id, title, score"
    assert "doc_id, docno" in error.hint
    path = put("a.csv", "one,two\n1,2\n")
    assert fault(read_runs, path).message == f"{path}: no column for the query, got one, two"
    path = put("a.csv", "qid,docid,score\n1,a,2\n1,b,high\n1,c,\n,d,1\n1,e,inf\n")
    assert fault(read_runs, path).message.splitlines()[0] == f"{path}:5: qid is empty"
    path = put("b.csv", "qid,docid,score\n1,a,2\n1,b,high\n1,c,\n")
    assert fault(read_runs, path).message == "\n".join(
        [f'{path}:3: score is not a number, got "high"', f'{path}:4: score is not a number, got ""']
    )
    path = put("c.csv", "qid,docid,score\n1,a,2\n1,b,2,9\n")
    assert fault(read_runs, path).message == (
        f'{path}:3: expected 3 fields (qid docid score), got 4: "1,b,2,9"'
    )
    path = put("d.csv", "qid,docid,docid,score\n1,a,a,2\n")
    assert fault(read_runs, path).message == f'{path}: two columns are named "docid"'
    nan = FRAME.assign(score=[1, np.nan, np.inf])
    assert fault(read_runs, nan).message.splitlines() == [
        "run 1: row 2: score is empty",
        "run 1: row 3: score is not finite, got inf",
    ]
    assert "query_id is empty" in fault(read_runs, FRAME.assign(query_id=None)).message
    assert "not ids" in fault(read_runs, FRAME.assign(query_id=0.5)).message
    text = FRAME.assign(score=["a", "1", "2"])
    assert fault(read_runs, text).message == 'run 1: row 1: score is not a number, got "a"'
    dates = FRAME.assign(score=[[1], [2], [3]])
    assert "score is not a column of numbers" in fault(read_runs, dates).message
    lazy = fault(read_runs, pl.from_pandas(FRAME).lazy())
    assert "LazyFrame" in lazy.message
    assert "collect" in lazy.hint
    assert "got int" in fault(read_runs, 3).message


def test_faulty_json_and_mappings(put):
    path = put("a.json", '{"q": {"d": 1},\n "r": }')
    assert fault(read_runs, path).message == f"{path}:2: not JSON: Expecting value"
    for content in ("[1, 2]", '{"q": 1}', '{"q": ["d"]}'):
        path = put("a.json", content)
        assert fault(read_runs, path).message.startswith(f"{path}: expected JSON of the shape")
    path = put("a.json", '{"q": {"d": 1, "d": 2}}')
    assert fault(read_runs, path).message == f'{path}: the key "d" occurs twice in one JSON object'
    error = fault(read_runs, {"q": {"d": "high", "e": float("nan"), "f": None, "g": 1}})
    assert error.message.splitlines() == [
        'run 1: query "q", document "d": score is not a number, got "high"',
        'run 1: query "q", document "e": score is not finite, got nan',
        'run 1: query "q", document "f": score is not a number, got None',
    ]


def test_qrels_given_as_a_run(put):
    error = fault(read_runs, put("q.txt", "401 0 FT911-3 1\n"))
    assert "got 4" in error.message
    assert "looks like qrels" in error.hint


# Qrels --------------------------------------------------------------------------------------------

QRELS = "401 0 b 1\n401 0 a 0.5\n402 0 a 2\n"
GRADES = [("401", "a", "", 0.5), ("401", "b", "", 1.0), ("402", "a", "", 2.0)]


@pytest.mark.parametrize(
    "text",
    [
        QRELS,
        QRELS.replace(" ", "\t"),
        "# a comment here too\n" + QRELS.replace(" ", "  ").replace("\n", " \r\n"),
        "query-id\tcorpus-id\tscore\n401\tb\t1\n401\ta\t0.5\n402\ta\t2\n",
        "grade\tdocid\tqid\n1\tb\t401\n0.5\ta\t401\n2\ta\t402\n",
        "qid docid grade\n401 b 1\n401 a 0.5\n402 a 2\n",
        "qid,docid,relevance\n401,b,1\n401,a,0.5\n402,a,2\n",
        '{"401": {"b": 1, "a": 0.5}, "402": {"a": 2}}',
        "401 b 1 1 0.25\n401 a 0.5 0 1\n402 a 2 1 0.001725\n",  # prels
        "401 0 b 1 1\n401 0 a 2 0.5\n401 0 c 2 -1\n402 0 a 1 2\n",  # sample_eval
    ],
)
def test_shapes_of_qrels(put, text):
    qrels = read_qrels(put("q.txt", text))
    assert grades(qrels) == GRADES
    assert qrels.blank == text.count("-1")
    assert qrels.assessors == ("",)


def test_fields_of_qrels(put):
    path = put("q.txt", "# c\n" + QRELS)
    qrels = read_qrels(path)
    assert qrels.queries.to_pylist() == ["401", "402"]
    assert qrels.documents.to_pylist() == ["a", "b"]
    for name in ("query", "document", "assessor"):
        assert getattr(qrels, name).dtype == np.int32
    assert qrels.grade.dtype == np.float64
    assert qrels.line.dtype == np.int64
    assert qrels.line.tolist() == [3, 2, 4]
    assert (qrels.source, qrels.blank, qrels.unjudged, qrels.notes) == (path, 0, 0, ())
    assert repr(qrels) == "Qrels(2 queries, 2 documents, 1 assessors, 3 judgments, 0 blank)"
    assert "q.txt" in qrels._repr_html_()


def test_tables_and_mappings_of_grades():
    frame = pd.DataFrame(
        {"query_id": [401, 401, 402], "doc_id": ["b", "a", "a"], "relevance": [1, 0.5, 2]}
    )
    mapping = {401: {"b": 1, "a": 0.5}, "402": {"a": np.int64(2)}}
    tuples = list(frame.assign(iteration="0").itertuples(index=False, name="TrecQrel"))
    for source in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), mapping, tuples):
        assert grades(read_qrels(source)) == GRADES
    assert read_qrels(mapping).line.tolist() == [0, 0, 0]
    assert read_qrels(frame).line.tolist() == [2, 1, 3]
    assert grades(read_qrels(read_qrels(frame).to_frame())) == GRADES


@pytest.mark.parametrize(
    ("negative", "expected", "unjudged", "note"),
    [
        ("unjudged", [("q", "b", "", 1.0)], 2, "taken as not judged"),
        ("zero", [("q", "a", "", 0.0), ("q", "b", "", 1.0), ("r", "a", "", 0.0)], 0, "taken as 0"),
        ("keep", [("q", "a", "", -2.0), ("q", "b", "", 1.0), ("r", "a", "", -1.0)], 0, "kept"),
    ],
)
def test_negative_grades(put, negative, expected, unjudged, note):
    qrels = read_qrels(put("q.txt", "q 0 a -2\nq 0 b 1\nr 0 a -1\n"), negative=negative)
    assert grades(qrels) == expected
    assert qrels.unjudged == unjudged
    assert qrels.notes[0].startswith(f"2 rows have a negative grade: {note}")
    assert qrels.notes[1:] == (("1 query has no judgment left.",) if unjudged else ())


def test_negative_needs_a_rule(put):
    with pytest.raises(EvenhandError, match="expected negative to be"):
        read_qrels(put("q.txt", QRELS), negative="junk")


def test_identical_rows_merge(put):
    qrels = read_qrels(put("q.txt", QRELS + QRELS + "401 0 a 0.50\n"))
    assert grades(qrels) == GRADES
    assert qrels.line.tolist() == [2, 1, 3]
    assert qrels.notes == ("4 rows were given twice and merged.",)
    assert grades(read_qrels(put("a.txt", QRELS), put("b.txt", QRELS))) == GRADES


def test_conflicting_rows_are_two_assessors(put):
    qrels = read_qrels(put("q.txt", "q 0 a 2\nq 0 b 1\nq 0 a 0\nq 0 a 2\nr 0 a 0\n"))
    assert qrels.assessors == ("#1", "#2")
    assert grades(qrels) == [
        ("q", "a", "#1", 2.0),
        ("q", "a", "#2", 0.0),
        ("q", "b", "#1", 1.0),
        ("r", "a", "#1", 0.0),
    ]
    assert qrels.notes == (
        "1 row was given twice and merged.",
        "1 pair has different grades of one assessor: counted as several assessors.",
    )


def test_named_assessors(put):
    header = "assessor\tqid\tgrade\tdocid\n"
    path = put("j.tsv", header + "ann\tq\t1\ta\nbob\tq\t0\ta\nann\tq\t2\tb\nann\tq\t1\ta\n")
    qrels = read_qrels(path)
    assert qrels.assessors == ("ann", "bob")
    assert grades(qrels) == [("q", "a", "ann", 1), ("q", "a", "bob", 0), ("q", "b", "ann", 2)]
    path = put("j.tsv", header + "ann\tq\t1\ta\nbob\tq\t0\ta\nann\tq\t2\ta\n")
    qrels = read_qrels(path)
    assert qrels.assessors == ("ann", "ann#2", "bob")
    assert grades(qrels) == [("q", "a", "ann", 1), ("q", "a", "ann#2", 2), ("q", "a", "bob", 0)]
    named = read_qrels({"ann": put("a.txt", "q 0 a 1\n"), "bob": {"q": {"a": 0}}})
    assert grades(named) == [("q", "a", "ann", 1), ("q", "a", "bob", 0)]
    some = read_qrels(put("k.tsv", header + "ann\tq\t1\ta\n\tq\t0\ta\n"))
    assert grades(some) == [("q", "a", "ann", 1), ("q", "a", "", 0)]


@pytest.mark.parametrize("end", ["\t", "", "\t \r"])
def test_an_empty_grade_is_not_judged_yet(put, end):
    """An editor may have stripped the tab before the empty grade."""
    qrels = read_qrels(put("to_judge.tsv", f"qid\tdocid\tgrade\nq\ta\t1\nq\tb{end}\nr\tc{end}\n"))
    assert grades(qrels) == [("q", "a", "", 1)]
    assert qrels.blank == 2
    assert qrels.notes == ("2 rows have no grade: not judged.", "1 query has no judgment left.")


def test_nothing_judged_yet(put):
    qrels = read_qrels(put("to_judge.tsv", "qid\tdocid\tgrade\nq\ta\t\n"))
    assert (len(qrels), qrels.blank, qrels.assessors) == (0, 1, ("",))
    assert qrels.queries.to_pylist() == []
    assert read_qrels({"q": {"a": None, "b": 1}}).blank == 1
    assert read_qrels(pd.DataFrame({"qid": ["q"], "docid": ["a"], "grade": [np.nan]})).blank == 1


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("401 0 d abc", 'grade is not a number, got "abc"', ""),
        ("401 0 d nan", 'grade is not finite, got "nan"', "a finite grade"),
        ("401 d 1", 'expected 4 fields (qid iter docid grade), got 3: "401 d 1"', "under a header"),
        (
            "401 Q0 d 1 2.5 bm25",
            'expected 4 fields (qid iter docid grade), got 6: "401 Q0 d 1 2.5 bm25"',
            "looks like a run",
        ),
    ],
)
def test_faulty_judgments(put, line, message, hint):
    path = put("q.txt", f"{QRELS}\n{line}\n")
    error = fault(read_qrels, path)
    assert error.message == f"{path}:5: {message}"
    assert hint in error.hint


def test_faulty_tables_of_grades(put):
    path = put("j.tsv", "qid\tdocid\tgrade\nq\ta\tgood\n")
    assert fault(read_qrels, path).message == f'{path}:2: grade is not a number, got "good"'
    path = put("j.tsv", "qid\tdocid\tgrade\nq\ta\tinf\n")
    assert fault(read_qrels, path).message == f"{path}:2: grade is not finite, got inf"
    error = fault(read_qrels, FRAME.assign(rank=1))
    assert "no column for the grade" in error.message
    assert "looks like a run" in error.hint
    assert "grade is not a number" in fault(read_qrels, {"q": {"d": "good"}}).message
    path = put("p.txt", "401 b 1 1 0.25\n401 a no 0 1\n")
    assert fault(read_qrels, path).message == f'{path}:2: grade is not a number, got "no"'
    assert fault(read_qrels, put("e.txt", "")).message.endswith("e.txt: no rows")
    assert fault(read_qrels).message == "no qrels was given"


# Queries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "402\n401\n402\n",
        "402\tfoo bar baz 9\r\n401\twhat\n",
        "# c\n 402 \n\n401",
        "query_id\ttext\n402\tfoo\n401\tbar\n",
        "402 0 a 1\n401 0 a -1\n402 0 b 0\n",
        "qid\tdocid\tgrade\n402\ta\t\n401\tb\t\n",
    ],
)
def test_queries(put, text):
    assert read_queries(put("q.txt", text)) == ("402", "401")


def test_queries_of_other_things(put):
    assert read_queries([402, "401", 402]) == ("402", "401")
    assert read_queries({"402": {"a": 1}, "401": {"b": 0}}) == ("402", "401")
    path = put("q.txt", "401\n402 what is this\n")
    error = fault(read_queries, path)
    assert error.message == (
        f'{path}:2: expected one query id or qid<TAB>text, got "402 what is this"'
    )
    assert "no rows" in fault(read_queries, put("e.txt", "")).message
    assert "no query" in fault(read_queries, []).message


# Real files ---------------------------------------------------------------------------------------


@real
def test_the_runs_of_trec_8():
    runs = read_runs(DATA / "trec8-adhoc" / "runs-top100")
    assert len(runs) == 644_525
    assert len(runs.systems) == 129
    assert len(runs.queries) == 50
    assert "1" in runs.systems  # a tag
    assert runs.notes == ()
    same = (np.diff(runs.system) == 0) & (np.diff(runs.query) == 0)
    assert (np.diff(runs.rank)[same] == 1).all()
    assert (runs.rank[1:][~same] == 1).all()
    step, ties = np.diff(runs.score)[same], np.diff(runs.document)[same]
    assert ((step < 0) | ((step == 0) & (ties < 0))).all()
    assert (np.diff(runs.system) >= 0).all()
    one, two = runs.select("Mer8Adtd1"), runs.select("Mer8Adtd2")
    for name in ("query", "document", "rank", "score"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@real
@pytest.mark.parametrize("name", ["results.test", "results.comment.test.gz"])
def test_the_runs_of_trec_eval(name):
    path = DATA / "trec_eval-fixtures" / name
    runs = read_runs(path)
    opened = gzip.open(path, "rt") if name.endswith("gz") else path.open()
    with opened as file:
        lines = [line.split() for line in file]
    assert len(runs) == len(lines)
    lines.sort(key=lambda f: f[2].encode(), reverse=True)
    lines.sort(key=lambda f: (f[0].encode(), -float(f[4])))
    frame = runs.to_frame()
    assert frame["document"].astype(str).tolist() == [f[2] for f in lines]
    assert frame["score"].tolist() == [float(f[4]) for f in lines]


@real
def test_text_after_the_tag_is_refused_where_trec_eval_drops_it():
    error = fault(read_runs, DATA / "trec_eval-fixtures" / "results.trunc")
    assert error.message.endswith("... 5 in all")
    assert "remove the text after it" in error.hint


@real
def test_comments_in_the_qrels_of_trec_eval():
    folder = DATA / "trec_eval-fixtures"
    commented = read_qrels(folder / "qrels.test.with-comments")
    bare = read_qrels(folder / "qrels.test")
    assert len(commented) == len(bare)
    hashed = [d for d in commented.documents.to_pylist() if "#" in d]
    assert hashed == ["CR#93E-1860"]
    assert len(read_qrels(folder / "qrels.comment.test")) > 0


@real
def test_real_qrels():
    qrels = read_qrels(DATA / "trec8-adhoc" / "qrels.trec8.adhoc.gz")
    assert len(qrels) == 86_830
    assert int(qrels.grade.sum()) == 4_728
    depth10 = read_qrels(DATA / "trec8-adhoc" / "depth10.qrels.gz")
    assert (len(depth10), depth10.unjudged) == (11_966, 1_114)
    prels = read_qrels(DATA / "trec2009-web-prels" / "prels.web.1-50.txt.gz")
    assert np.bincount(prels.grade.astype(int)).tolist() == [9_116, 2_514, 1_488]
    crowd = read_qrels(DATA / "trec-rf10-crowd" / "trec-rf10-data.txt.gz")
    assert crowd.unjudged == 6_670
    assert len({name.split("#")[0] for name in crowd.assessors}) <= 766
    queries = read_queries(DATA / "trec-dl-2021-passage" / "test-queries.tsv")
    assert len(queries) == 477


def test_importing_the_room_is_cheap():
    code = (
        "import sys, evenhand.formats; "
        "print(*[m for m in ('jax', 'pandas', 'narwhals', 'polars') if m in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == ""


@pytest.mark.parametrize(
    ("systems", "documents"),
    [
        ((["a", "b"], [0, 0, 1]), (["x", "y"], [1, 0, 0])),
        ((["b", "a"], [1, 1, 0]), (["x", "y", "never"], [1, 0, 0])),  # not as they appear, unused
        ((["a", "a", "b"], [0, 1, 2]), (["x", "y", "x"], [2, 1, 0])),  # the same twice
        ((["a", "b"], [0, 0, 1]), ([7, 8], [1, 0, 0])),  # numbers
        ((["a", "b"], [0, None, 1]), (["x", None], [0, 0, 0])),  # nothing, or a text of nothing
        ((["a", "b"], [0, 0, 1]), (["x", ""], [1, 0, 0])),
        ((["a", "b"], [0, 0, 1]), (["x", "y"], [1, None, 0])),
        (([], []), ([], [])),
    ],
)
def test_categories_are_the_texts_that_they_mean(systems, documents):
    columns = {}
    for name, (texts, codes) in {"system": systems, "doc_id": documents}.items():
        kind = None if texts else pa.string()
        columns[name] = pa.DictionaryArray.from_arrays(
            pa.array(codes, pa.int32()), pa.array(texts, kind)
        )
    n = len(systems[1])
    columns |= {
        "query_id": pa.array(["q"] * n, pa.string()),
        "score": pa.array([3.0, 2.0, 1.0][:n]),
    }
    coded = pa.table(columns)
    plain = pa.table(
        {
            name: column.combine_chunks().dictionary_decode()
            if pa.types.is_dictionary(column.type)
            else column
            for name, column in zip(coded.column_names, coded.columns, strict=True)
        }
    )

    def seen(table):
        try:
            return read_runs(table).to_frame().to_dict("list")
        except EvenhandError as error:
            return error.message, error.hint

    assert seen(coded) == seen(plain)
