"""Texts by id, from the formats that collections come in."""

from __future__ import annotations

import gzip
import json
import time
from contextlib import ExitStack, closing

import pytest

from evenhand.errors import FormatError
from evenhand.formats.corpora import Text, Texts, read_topics

JSON = [
    {"_id": "d1", "title": "One", "text": "first\ntext", "metadata": {"_id": "d9"}},
    {"text": "an id that comes last", "docid": "d2", "headline": "Two"},
    {"_id": "d4", "text": 'it says {"_id": "d5"}', "url": "http://x"},
    {"id": 7, "contents": ["a", "b"], "title": None},
]


def write(path, data: bytes):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def lines(rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def texts():
    with ExitStack() as stack:

        def make(path, *ids, **options) -> Texts:
            return stack.enter_context(closing(Texts(path, lambda: set(ids), **options)))

        yield make


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_json_lines(tmp_path, texts, name, start):
    path = write(tmp_path / name, start + lines(JSON))
    for source in (path, tmp_path):  # a folder of BEIR
        found = texts(source, "d1", "d2", "d3", "d4", "d5", "7")
        assert len(found) == 4
        assert found.get("d1") == Text("One", "first\ntext")
        assert found.get("d2") == Text("Two", "an id that comes last")
        assert found.get("d4") == Text("", 'it says {"_id": "d5"}', "", "http://x")
        assert found.get("7") == Text("", "a\n\nb")
        assert found.get("d3") is None


@pytest.mark.parametrize("name", ["c.tsv", "c.tsv.gz"])
def test_rows_with_tabs(tmp_path, texts, name):
    rows = b"7\tpassage seven\n8\tpassage \xff eight\r\n9\tfull\ttext\n10\thttp://x\ttitle\ta\tb"
    found = texts(write(tmp_path / name, rows), "7", "8", "9", "10")
    assert found.get("7") == Text("", "passage seven")
    assert found.get("8") == Text("", "passage \N{REPLACEMENT CHARACTER} eight")
    assert found.get("9") == Text("full", "text")
    assert found.get("10") == Text("title", "a\tb", "", "http://x")
    headed = write(tmp_path / ("h" + name), b"id\ttext\ttitle\n7\tbody\tname\n")
    assert texts(headed, "7", "id").get("7") == Text("name", "body")
    assert texts(headed, "id").get("id") is None


def test_queries_have_more_to_say(tmp_path, texts):
    rows = [{"_id": "1", "text": "light", "description": "What is it?", "narrative": "Physics."}]
    found = texts(write(tmp_path / "queries.jsonl", lines(rows)), "1", name="queries")
    assert found.get("1") == Text("", "light", "What is it?\n\nPhysics.")


def test_topics_of_trec(tmp_path):
    old = b"""<top>
<num> Number: 401
<title> foreign minorities,
 Germany
<desc> Description:
What <b>language</b> &amp; differences?
<narr> Narrative:
A relevant document...
</top>
<top><num>402</num><title>behavioral genetics</title></top>"""
    found = read_topics(write(tmp_path / "topics.401.gz", old))
    assert found["401"].text == "foreign minorities, Germany"
    assert found["401"].more.startswith("What")
    assert found["401"].more.endswith("A relevant document...")
    assert found["402"] == Text("", "behavioral genetics")
    new = b'<topics><topic number="1"><query>q</query><question>w?</question></topic></topics>'
    assert read_topics(write(tmp_path / "t.xml", new)) == {"1": Text("", "q", "w?")}
    assert read_topics(write(tmp_path / "q.tsv", b"1\tq\n")) is None


@pytest.mark.parametrize(
    ("data", "place", "hint"),
    [
        (b'{"_id": "d1", "text": ""}\n{"text": "no id"}\n', ":2:", '"_id"'),
        (b'{"_id": "d1", "text": ""}\n[1]\n', ":2:", '"_id"'),
        (b'{"text": "cut\n', ":1:", '"_id"'),
        (b"d1\ttext\nno tab\n", ":2:", "tabs"),
    ],
)
def test_a_fault_is_told_with_its_line(tmp_path, texts, data, place, hint):
    path = write(tmp_path / "c", data)
    with pytest.raises(FormatError) as caught:
        texts(path, "d1")
    assert f"{path}{place}" in caught.value.message
    assert hint in caught.value.hint


def test_files_that_cannot_be_read(tmp_path, texts):
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(lines(JSON) * 50)[:60])
    for path in (tmp_path / "none", tmp_path, cut):
        with pytest.raises(FormatError, match=path.name):
            texts(path, "d1")


def test_a_wanted_row_that_is_broken_later_is_found_at_the_start(tmp_path, texts):
    path = write(tmp_path / "c.jsonl", b'{"_id": "d1", "text": "cut\n')
    with pytest.raises(FormatError, match=r"c\.jsonl:1"):
        texts(path, "d1")


def test_ids_that_join_later_are_looked_for_beside(tmp_path):
    path = write(tmp_path / "c.jsonl", lines(JSON))
    wanted = {"d1"}
    with closing(Texts(path, lambda: wanted)) as found:
        wanted.add("d2")
        assert found.get("d2") is None
        until = time.monotonic() + 10
        while found.get("d2") is None and time.monotonic() < until:
            time.sleep(0.01)
        assert found.get("d2").title == "Two"


def test_little_is_kept_in_memory(tmp_path, texts):
    path = write(
        tmp_path / "c.jsonl", lines({"_id": f"d{i}", "text": "x" * 10**6} for i in range(20))
    )
    found = texts(path, *(f"d{i}" for i in range(20)))
    assert all(len(found.get(f"d{i}").text) == 10**6 for i in range(20))
    assert found._size < 10**7
