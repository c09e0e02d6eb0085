"""Results as tables: hostile names, missing numbers, and every format."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.results import FORMATS, Result, Table, plain

HOSTILE = [
    "[bold]bm25[/bold]",
    "<script>alert('1')</script>",
    'a,"b"\nc',
    "50%_of$x&y#z{}~^\\",
    "名前 é",
    "[/]",
]


class Answer(Result):
    """Two tables and a note."""

    def tables(self):
        first = Table.of("Means", {"system": HOSTILE, "value": np.arange(6) / 3})
        return [first, Table.of("Counts", {"n": [1]})]

    def notes_shown(self):
        return ("one <note>", "another")

    def to_dict(self):
        return {"value": np.float64("nan"), "names": HOSTILE, "n": np.int64(3), "ok": np.True_}


def test_plain():
    found = plain(
        {
            1: np.float64(0.5),
            "nan": float("nan"),
            "inf": np.array([np.inf, -np.inf, 1.0]),
            "int": np.int32(7),
            "text": np.str_("x"),
            "none": None,
            "nested": [(1, {"b": np.bool_(False)})],
        }
    )
    assert found == {
        "1": 0.5,
        "nan": None,
        "inf": [None, None, 1.0],
        "int": 7,
        "text": "x",
        "none": None,
        "nested": [[1, {"b": False}]],
    }
    assert type(found["int"]) is int
    assert type(found["1"]) is float


def test_text():
    table = Table.of(
        "Means", {"system": ["bm25", "x"], "value": [0.12345, np.nan], "n": [1234567, 8]}
    )
    assert len(table) == 2
    assert table.rows() == [["bm25", "0.1235", "1,234,567"], ["x", "-", "8"]]
    lines = table.to_text().splitlines()
    assert lines[0] == "Means"
    assert lines[1].split() == ["system", "value", "n"]
    assert lines[-2].split() == ["bm25", "0.1235", "1,234,567"]
    assert lines[-1].split() == ["x", "-", "8"]
    assert not any(line != line.rstrip() for line in lines)
    # Numbers end in one column.
    assert lines[-2].index("0.1235") + 6 == lines[-1].index("-") + 1


def test_digits():
    columns = {"a": [1.5], "b": [2.25]}
    assert Table.of("", columns).rows() == [["1.5000", "2.2500"]]
    assert Table.of("", columns, 1).rows() == [["1.5", "2.2"]]
    assert Table.of("", columns, {"b": 0}).rows() == [["1.5000", "2"]]


def test_nothing_is_below_nothing():
    assert Table.of("", {"a": [-0.0, -1e-9, -0.5]}).rows() == [["0.0000"], ["0.0000"], ["-0.5000"]]


def test_what_is_above_nothing_is_not_shown_as_nothing():
    columns = {"p": [4.9e-5, 5.1e-5, 1e-300, 0.0, np.nan, 1.0], "x": [4.9e-5] * 6}
    table = Table.of("", columns, positive=["p"])
    p, x = zip(*table.rows(), strict=True)
    assert p == ("<0.0001", "0.0001", "<0.0001", "0.0000", "-", "1.0000")
    assert x == ("0.0000",) * 6  # an estimate may be 0, or below
    lines = table.to_text().splitlines()
    assert lines[-6].split() == ["<0.0001", "0.0000"]
    assert lines[-6].index("0.0001") == lines[-5].index("0.0001")
    assert Table.of("", columns, {"p": 2}, positive=["p"]).rows()[0][0] == "<0.01"
    assert r"$<$0.0001 & 0.0000 \\" in table.to_latex()
    page = Texts()
    page.feed(table.to_html())
    assert "<0.0001" in page.texts
    # Where numbers are read by a program they are whole.
    assert table.to_csv().splitlines()[1] == "4.9e-05,4.9e-05"
    assert table.to_frame()["p"].tolist()[:4] == columns["p"][:4]


def test_an_empty_table():
    table = Table.of("None", {"system": [], "value": []})
    assert len(table) == 0
    assert table.rows() == []
    assert table.to_csv() == "system,value\n"
    assert table.to_text().splitlines()[0] == "None"
    assert r"\begin{tabular}" in table.to_latex()
    assert len(table.to_frame()) == 0


def test_hostile_names_in_text_are_shown_as_they_are():
    names = [name for name in HOSTILE if "\n" not in name]
    lines = Table.of("[red]title", {"[b]system": names, "value": [1.0] * len(names)}).to_text()
    assert lines.startswith("[red]title\n")
    assert "[b]system" in lines
    for name in names:
        assert name in lines


def test_a_csv_reads_back():
    columns = {"system, name": HOSTILE, "value": [0.1 + 0.2, np.nan, 1e-300, 1.0, 2.0, -3.5]}
    rows = list(csv.reader(io.StringIO(Table.of("t", columns).to_csv())))
    assert rows[0] == ["system, name", "value"]
    assert [row[0] for row in rows[1:]] == HOSTILE
    assert [row[1] for row in rows[1:]] == [
        "0.30000000000000004",
        "",
        "1e-300",
        "1.0",
        "2.0",
        "-3.5",
    ]


def test_latex():
    table = Table.of("t", {"a_b": HOSTILE[3:4], "n": [3], "x": [np.nan]})
    assert table.to_latex() == "\n".join(
        [
            "% t",
            r"\begin{tabular}{lrr}",
            r"\toprule",
            r"a\_b & n & x \\",
            r"\midrule",
            r"50\%\_of\$x\&y\#z\{\}\textasciitilde{}\textasciicircum{}\textbackslash{} & 3 & - \\",
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


class Texts(HTMLParser):
    """The texts and tags of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_html_escapes_every_text():
    page = Texts()
    page.feed(Answer()._repr_html_())
    assert page.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    for text in (*HOSTILE, "Means", "Counts", "one <note>", "another", "0.3333"):
        assert text in page.texts


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), max_size=4))
@settings(deadline=None)  # how busy a machine is says nothing of names
def test_any_name_survives_csv_json_and_html(names):
    table = Table.of("t", {"system": names, "value": np.linspace(0, 1, len(names))})
    rows = list(csv.reader(io.StringIO(table.to_csv())))
    assert [row[0] for row in rows[1:]] == names
    page = Texts()
    page.feed(table.to_html())
    assert page.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert json.loads(json.dumps(plain({"names": names})))["names"] == names
    assert len(table.to_text().splitlines()[0]) == 1


def test_result():
    answer = Answer()
    found = json.loads(answer.to_json())
    assert found == {"value": None, "names": HOSTILE, "n": 3, "ok": True}
    assert "名前" in answer.to_json()
    assert answer.render("json") == answer.to_json() + "\n"
    assert answer.render("csv").endswith("\n\nn\n1\n")
    assert answer.render("latex").count(r"\begin{tabular}") == 2
    # A format prints the tables; the notes are for people.
    assert answer.render() == answer.render("table")
    assert str(answer) == answer.render() + "\none <note>\nanother"
    shown = str(answer)
    assert shown.index("Means") < shown.index("Counts") < shown.index("one <note>")
    assert shown.endswith("another")
    assert answer.to_frame()["value"].tolist() == [i / 3 for i in range(6)]
    assert answer.to_frame(1)["n"].tolist() == [1]
    assert set(FORMATS) == {"table", "json", "csv", "latex"}


def test_a_result_must_say_what_it_holds():
    with pytest.raises(TypeError, match=r"abstract methods? .*tables.*to_dict"):
        Result()
