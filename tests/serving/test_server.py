"""The judging page: what it shows, what it stores, and what it refuses."""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from evenhand.cli import main
from evenhand.errors import EvenhandError, FormatError, StudyError
from evenhand.serving import access, answers, live, pages, server
from evenhand.serving.answers import Desk
from evenhand.serving.live import Live
from evenhand.studies import round_files
from evenhand.studies.judgments import JudgmentStore
from evenhand.study import Study

URL = "http://127.0.0.1:8765"
N = 8
SYSTEMS = {"zebra": 1, "yeti": 2, "xerus": 5}
RUNS = {
    name: {f"q{q}": {f"d{(step * i + q) % 9}": 9.0 - i for i in range(5)} for q in range(3)}
    for name, step in SYSTEMS.items()
}
HOSTILE = {
    "d0": ("<script>alert(1)</script>", "</div></article><script src=//evil></script>"),
    "d1": ("a\u202eb", "\u202e\u2067right to left \u05d0\u05d1"),
    "d2": ("<img src=x onerror=alert(1)>", "{{ 7 * 7 }} {% include '/etc/passwd' %} &lt;b&gt;"),
    "d3": ("", "\x00\x07\x1b[31m\ufffe"),
    "d4": ("plain", "<!-- --> ]]> \" ' onmouseover=alert(1) style=position:fixed"),
    "d5": ("long", "word " * 1_000_000),
    "d6": ("\N{GRINNING FACE}", "\r\ntwo\r\nlines\n\n"),
    "d7": ("empty", ""),
    "d8": ("half a character \ud800", "\udfff"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A study that has drawn a round, and files of texts; to be copied."""
    folder = tmp_path_factory.mktemp("world")
    study = Study.create(folder / "study", RUNS, measure="DCG@5", grades=(0, 1, 2))
    study.draw(N, seed=1)
    with open(folder / "docs.jsonl", "wb") as file:
        for id, (title, text) in HOSTILE.items():
            file.write(json.dumps({"_id": id, "title": title, "text": text}).encode() + b"\n")
    queries = "q0\twhat is \xff light\nq1\t<b onload=x>bold</b>\nq2\tthird\n"
    (folder / "queries.tsv").write_bytes(queries.encode("latin-1"))
    (folder / "guide.md").write_text("# <u>Grades</u>\n\n- 1 <script>x</script>\n- 0 not\n")
    return folder


@pytest.fixture
def folder(world, tmp_path) -> Path:
    return shutil.copytree(world, tmp_path / "w") / "study"


@pytest.fixture
def serving(folder, world):
    """``(*assessors, **options)`` to a browser for each of them, of one server."""
    with ExitStack() as stack:

        def start(*assessors: str, **options) -> list[Browser]:
            texts = {"docs": world / "docs.jsonl", "queries": world / "queries.tsv"}
            texts["guidelines"] = world / "guide.md"
            given = {"assessors": assessors or ("ann",), **texts, **options}
            site = stack.enter_context(server.open_site(folder, **given))
            app = pages.make_app(site)
            browsers = [Browser(app, site) for _ in given["assessors"]]
            if not site.access.open:
                for browser, name in zip(browsers, given["assessors"], strict=True):
                    browser.client.get(f"/enter?token={site.access.token(name)}")
            return browsers

        yield start


class Browser:
    def __init__(self, app, site) -> None:
        self.site, self.app = site, app
        self.client = TestClient(app, base_url=URL, follow_redirects=False)

    def page(self, path: str = "/") -> str:
        got = self.client.get(path)
        assert got.status_code == 200, got.text
        return got.text

    def form(self, path: str = "/") -> dict[str, str]:
        fields = r'<input type="hidden" name="(\w+)" value="([^"]*)">'
        found = {name: html.unescape(value) for name, value in re.findall(fields, self.page(path))}
        assert set(found) == {"pair", "nonce", "revision", "seal"}
        return found

    def send(self, form: dict[str, str], act: str, headers=None, **more: str):
        return self.client.post("/answer", data={**form, "act": act, **more}, headers=headers)

    def judge(self, grade: float, path: str = "/") -> dict[str, str]:
        form = self.form(path)
        got = self.send(form, f"grade:{float(grade)!r}")
        assert (got.status_code, got.headers["location"]) == (303, "/"), got.text
        return form


def rows(folder: Path) -> list[tuple]:
    found = JudgmentStore.open(folder / "judgments.sqlite").history()
    return list(zip(found.query, found.document, found.assessor, found.grade.tolist(), strict=True))


def counting(folder: Path) -> list[tuple]:
    found = JudgmentStore.open(folder / "judgments.sqlite").read()
    return list(zip(found.query, found.document, found.assessor, found.grade.tolist(), strict=True))


# What is shown


def test_a_page_shows_query_document_and_grades_and_nothing_else(serving):
    (ann,) = serving(labels={0: "no", 1: "some", 2: "yes"})
    seen = ""
    for _ in range(N):
        page = ann.page()
        seen += page
        for grade, label in enumerate(["no", "some", "yes"]):
            button = f'name="act" value="grade:{grade}.0" data-key="{grade}"'
            assert button in page
            assert f"<kbd>{grade}</kbd><span>{label}</span>" in page
        assert '<html lang="en">' in page
        assert 'role="status" aria-live="polite"' in page
        ann.judge(1)
    for word in (*SYSTEMS, "rank", "score", "predict", "expected", "seed", "DCG"):
        assert word not in seen
    assert "That is all for now" in ann.page()
    assert f"You judged {N} pairs" in ann.page()


def test_predictions_are_there_for_who_asks(serving, folder, tmp_path):
    """Each pair's own, the mean of several, negative ones too; shown nowhere until opened."""
    said = {pair: value for value, pair in enumerate(round_files.asked(folder, "round-001")[2])}
    lacking = next(iter(said))
    rows = [f"{q} {d} {value - 2.5}\n" for (q, d), value in said.items() if (q, d) != lacking]
    last = list(said)[-1]
    rows += [f"{last[0]} {last[1]} {said[last] - 1.5} bob\n", "q0 d-other 9\n"]
    path = tmp_path / "llm.tsv"
    path.write_text(
        "qid\tdocid\tgrade\tassessor\n"
        + "".join("\t".join([*row.split(), "ann"][:4]) + "\n" for row in rows)
    )
    (ann,) = serving(predictions=path)
    for _ in said:
        page = ann.page()
        pair = ann.site.desk.queues.pairs[int(ann.form()["pair"])]
        wanted = said[pair] - (2.0 if pair == last else 2.5)
        text = (
            "There is none for this pair." if pair == lacking else f"{wanted:.3g}; it may be wrong"
        )
        offer = re.search(r'<details class="predicted">(.*?)</details>', page, re.S)
        assert offer is not None
        assert text in offer[1]
        assert '<summary data-key="p"' in offer[1]
        ann.judge(1)


def test_predictions_that_cannot_be_read(serving, tmp_path):
    with pytest.raises(FormatError, match=r"nowhere\.tsv"):
        serving(predictions=tmp_path / "nowhere.tsv")


def test_without_files_ids_are_shown(serving):
    (ann,) = serving(docs=None, queries=None, guidelines=None)
    page = ann.page()
    assert "No file of documents was given" in page
    assert re.search(r"<h1[^>]*>q\d</h1>", page)


def test_texts_are_shown_as_texts(serving, folder):
    """Whatever a document holds, the page's elements are those of a page without it."""
    (ann,) = serving()
    seen = {}
    for _ in range(N):
        page = ann.page()
        seen[ann.site.desk.queues.pairs[int(ann.form()["pair"])][1]] = page
        tags = re.findall(r"<\s*(/?[a-zA-Z][\w-]*)", page)
        assert set(tags) <= {
            *("html", "head", "meta", "title", "script", "link", "body", "header", "div", "span"),
            *("bdi", "progress", "p", "main", "details", "summary", "h1", "h2", "ul", "li"),
            *("article", "form", "input", "button", "kbd", "a", "label", "textarea", "strong"),
            *("/html", "/head", "/title", "/script", "/body", "/header", "/div", "/span", "/bdi"),
            *("/progress", "/p", "/main", "/details", "/summary", "/h1", "/h2", "/ul", "/li"),
            *("/article", "/form", "/button", "/kbd", "/a", "/label", "/textarea", "/strong"),
        }
        scripts = re.findall(r"<script[^>]*>.*?</script>", page)
        assert scripts == ['<script src="/page.js" defer></script>']
        assert not re.search(r"<[^>]+\s(on\w+|style)\s*=", page)
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", page)
        ann.judge(0)
    assert set(seen) & set(HOSTILE)
    for document, page in seen.items():
        if document not in ("d3", "d5", "d6", "d8"):
            for text in HOSTILE[document]:
                assert html.escape(text, quote=False) in page.replace("&#34;", '"').replace(
                    "&#39;", "'"
                )
        if document == "d8":
            assert "half a character ?" in page
        assert '<div class="text" dir="auto"' in page or document == "d7"


def test_a_missing_document_is_told(serving, tmp_path):
    (tmp_path / "docs.tsv").write_text("another\ttext\n")
    (ann,) = serving(docs=tmp_path / "docs.tsv")
    assert "The text of this document is missing: no row" in ann.page()


def test_the_style_isolates_what_runs_from_right_to_left():
    style = (Path(pages.__file__).parent / "static" / "page.css").read_text()
    assert "bdi, [dir] { unicode-bidi: isolate; }" in style


def pair_of(browser: Browser, document: str) -> int:
    """Judge until a document is on the desk."""
    while True:
        number = int(browser.form()["pair"])
        if browser.site.desk.queues.pairs[number][1] == document:
            return number
        browser.judge(0)


def test_five_megabytes_are_cut_and_can_be_read_on(serving, folder):
    (ann,) = serving()
    number = pair_of(ann, "d5")
    start = time.perf_counter()
    page = ann.page()
    assert time.perf_counter() - start < 1.0
    assert len(page) < 60_000
    assert "first 20,000 of 5,000,000 characters" in page
    (link,) = re.findall(r'href="(/text/[^"]*)"', page)
    assert link == f"/text/{number}?from=20000"
    part = ann.page(link)
    assert "characters 20,001 to 120,000 of 5,000,000" in part
    assert f"/text/{number}?from=120000" in part
    assert "to 5,000,000 of 5,000,000" in ann.page(f"/text/{number}?from=4999000")
    for odd in ("5000000", "-1", "x", "1e3", "%00", "9" * 30, "٣"):
        assert ann.client.get(f"/text/{number}?from={odd}").status_code == 404
    (unseen, *_) = (n for n in range(N) if not ann.site.desk.queues.may_see("ann", n))
    assert ann.client.get(f"/text/{unseen}?from=0").status_code == 404
    assert ann.client.get(f"/pair/{unseen}").status_code == 404


# What is stored


def test_a_judgment_is_in_the_store_before_it_is_acknowledged(serving, folder):
    (ann,) = serving()
    form = ann.form()
    pair = ann.site.desk.queues.pairs[int(form["pair"])]
    assert ann.send(form, "grade:2.0").status_code == 303
    assert rows(folder) == [(*pair, "ann", 2.0)]
    history = JudgmentStore.open(folder / "judgments.sqlite").history()
    assert history.source.tolist() == [f"serve:{form['nonce']}"]
    page = ann.page()
    assert "Saved: 2." in page
    assert f"1 of {N}" in page
    assert "Saved" not in ann.page()  # told once


def test_a_form_sent_again_is_done_once(serving, folder):
    (ann,) = serving()
    form = ann.form()
    for _ in range(4):
        assert ann.send(form, "grade:1.0").status_code == 303
    assert "That was saved already: 1." in ann.page()
    other = ann.send(form, "grade:2.0")
    assert other.status_code == 409
    assert "your earlier answer is kept, 1" in other.text
    assert ann.send(form, "skip").status_code == 409
    assert len(rows(folder)) == 1


def test_two_tabs(serving, folder):
    (ann,) = serving()
    tabs = [ann.form() for _ in range(3)]
    assert len({tab["pair"] for tab in tabs}) == 1
    assert len({tab["nonce"] for tab in tabs}) == 3
    assert ann.send(tabs[0], "grade:1.0").status_code == 303
    assert ann.send(tabs[1], "grade:1.0").status_code == 303  # the same, nothing is lost
    assert ann.send(tabs[2], "grade:0.0").status_code == 409
    assert ann.send(tabs[2], "skip").status_code == 409
    assert [row[3] for row in rows(folder)] == [1.0]


def test_undo_is_a_revision_with_its_history(serving, folder):
    (ann,) = serving()
    first, second = ann.judge(0), ann.judge(1)
    (back,) = re.findall(r'href="(/pair/\d+)" data-key="u"', ann.page())
    assert back == f"/pair/{second['pair']}"
    (further,) = re.findall(r'href="(/pair/\d+)" data-key="u"', ann.page(back))
    assert further == f"/pair/{first['pair']}"
    page = ann.page(further)
    assert "Your grade is <strong>0</strong>" in page
    assert re.search(r'value="grade:0.0"[^>]*aria-current="true"', page)
    stale = ann.form(further)
    ann.judge(2, further)
    assert [row[3] for row in rows(folder)] == [0.0, 1.0, 2.0]
    assert sorted(row[3] for row in counting(folder)) == [1.0, 2.0]
    assert ann.send(stale, "grade:1.0").status_code == 409  # made for the grade before
    kept = ann.judge(2, further)
    assert ann.send(kept, "grade:2.0").status_code == 303
    assert ann.send(kept, "grade:1.0").status_code == 409  # that form was answered
    assert len(rows(folder)) == 3
    assert 'data-key="u"' not in ann.page(further)  # nothing before the first


def test_a_skip_lasts_and_others_get_the_pair(serving, folder):
    ann, bob = serving("ann", "bob")
    form = ann.form()
    for _ in range(2):
        assert ann.send(form, "skip").status_code == 303
    assert ann.send(form, "grade:1.0").status_code == 409
    assert ann.form()["pair"] != form["pair"]
    (again, _) = serving("ann", "bob")  # after a restart
    seen = []
    while "That is all" not in (page := again.page()):
        seen.append(again.judge(1)["pair"])
    assert form["pair"] not in seen
    assert "You skipped 1" in page
    assert f'href="/pair/{form["pair"]}"' in page
    assert bob.form()["pair"] == form["pair"]
    again.judge(2, f"/pair/{form['pair']}")
    assert "You skipped" not in again.page()
    assert len(rows(folder)) == N
    assert bob.form  # bob's turn is over: someone else was asked
    assert "That is all" in bob.page()


def test_notes_are_kept(serving, folder):
    (ann,) = serving()
    text = "  not </textarea><script>sure</script>\r\nabout it  "
    form = ann.form()
    pair = form["pair"]
    got = ann.send(form, "note", note=text)
    assert (got.status_code, got.headers["location"]) == (303, f"/pair/{pair}")
    assert ann.send(form, "note", note=text).status_code == 303
    page = ann.page(f"/pair/{pair}")
    assert "Note saved." in page
    assert "not &lt;/textarea&gt;&lt;script&gt;sure&lt;/script&gt;\nabout it</textarea>" in page
    assert ann.send(ann.form(), "grade:1.0", note="changed").status_code == 303
    assert ann.send(form, "note", note="changed").status_code == 303
    (ann,) = serving()
    assert ">\nchanged</textarea>" in ann.page(f"/pair/{pair}")
    with sqlite3.connect(folder / "serving.sqlite") as connection:
        said = connection.execute(
            "SELECT text FROM remark WHERE act = 'note' ORDER BY seq"
        ).fetchall()
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute("DELETE FROM remark")
    connection.close()
    assert [text for (text,) in said] == [
        "not </textarea><script>sure</script>\nabout it",
        "changed",
    ]
    (note,) = ann.site.desk.notes()
    assert (note.assessor, note.text) == ("ann", "changed")
    page = ann.page("/live")
    assert "changed" in page
    assert "<script" not in page


def test_notes_have_bounds(serving, folder):
    (ann,) = serving()
    form = ann.form()
    assert ann.send(form, "grade:1.0", note="x" * 2001).status_code == 413
    for i in range(60):
        assert ann.send(form, "note", note=f"n{i}").status_code == 303
    late = ann.send(form, "grade:1.0", note="one more")
    assert late.status_code == 429
    assert rows(folder) == []
    assert ann.send(form, "grade:1.0", note="n59").status_code == 303


def test_two_assessors_at_one_pair_are_both_heard(serving, folder):
    ann, bob = serving("ann", "bob", overlap=2)
    one = ann.judge(1)
    while (form := bob.form())["pair"] != one["pair"]:
        bob.judge(0)
    assert bob.send(form, "grade:2.0").status_code == 303
    said = {
        row[2]: row[3]
        for row in counting(folder)
        if row[:2] == tuple(ann.site.desk.queues.pairs[int(one["pair"])])
    }
    assert said == {"ann": 1.0, "bob": 2.0}


def test_judgments_and_rounds_from_elsewhere_are_taken_up(serving, folder, monkeypatch):
    (ann,) = serving()
    study = Study.open(folder)
    form = ann.form()
    query, document = ann.site.desk.queues.pairs[int(form["pair"])]
    study.judge({query: {document: 2}})
    assert ann.form()["pair"] != form["pair"]
    assert f"1 of {N}" in ann.page()
    assert ann.send(form, "grade:1.0").status_code == 303  # what is said is heard
    while "That is all" not in ann.page():
        ann.judge(1)
    study.draw(len(study.pool), seed=2, kind="uniform", rejudge=True)
    monkeypatch.setattr(answers, "_LOOK", 0.0)
    assert [done for _, done, _ in ann.site.desk.rounds()] == [N, 0]
    while "That is all" not in ann.page():
        ann.judge(1)
    assert "wait for somebody else" in ann.page("/live")
    # Pairs of the new round that ann has judged before wait for another.
    ann, bob = serving("ann", "bob")
    while "That is all" not in bob.page():
        bob.judge(0)
    assert [asked - done for _, done, asked in ann.site.desk.rounds()] == [0, 0]
    bob.client.get(f"/enter?token={bob.site.access.token('')}")
    assert "wait for somebody else" not in bob.page("/live")
    assert all(not len(cells) for cells in study._snapshot().ledger.missing())


def test_a_later_round_that_cannot_be_read_stops_nobody(serving, folder, monkeypatch):
    (ann,) = serving()
    monkeypatch.setattr(answers, "_LOOK", 0.0)
    (folder / "round-002").mkdir()
    ann.judge(1)
    assert "round-002 is not a whole round" in ann.page("/live")
    with pytest.raises(StudyError, match="round-002"):
        Desk(folder, ["ann"])


def test_before_anything_is_drawn(serving, folder):
    shutil.rmtree(folder / "round-001")
    (ann,) = serving()
    assert "Nothing to judge yet" in ann.page()
    assert "Nothing was drawn yet" in ann.page("/live")


# Whatever happens


def test_a_restart_forgets_nothing(serving, folder):
    ann, bob = serving("ann", "bob")
    done, open_form = ann.judge(1), ann.form()
    cookies = dict(ann.client.cookies)
    ann, _ = serving("ann", "bob")
    ann.client.cookies.clear()
    ann.client.cookies.update(cookies)
    assert ann.send(done, "grade:1.0").status_code == 303
    assert ann.send(done, "grade:2.0").status_code == 409
    assert ann.send(open_form, "grade:0.0").status_code == 303
    assert [row[3] for row in rows(folder)] == [1.0, 0.0]
    bob.judge(2)  # the other server, too
    assert "all 3 of 8" in ann.page()


def test_killed_between_the_commit_and_the_answer(serving, folder):
    (ann,) = serving()
    form = ann.form()
    query, document = ann.site.desk.queues.pairs[int(form["pair"])]
    cookies = dict(ann.client.cookies)
    JudgmentStore.open(folder / "judgments.sqlite").add(
        [query], [document], [1.0], ["ann"], source=f"serve:{form['nonce']}"
    )
    (ann,) = serving()
    ann.client.cookies.update(cookies)
    assert ann.send(form, "grade:1.0").status_code == 303
    assert "saved already" in ann.page()
    assert len(rows(folder)) == 1


def test_a_full_disk_is_told_and_the_same_answer_works_later(serving, folder, monkeypatch):
    (ann,) = serving()
    form = ann.form()
    with monkeypatch.context() as patch:

        def full(*_, **__):
            raise StudyError("the disk is full", hint="free some space")

        patch.setattr(JudgmentStore, "add", full)
        got = ann.send(form, "grade:1.0")
        assert got.status_code == 500
        assert "Not saved" in got.text
        assert "free some space" in got.text
    assert rows(folder) == []
    assert ann.send(form, "grade:1.0").status_code == 303
    assert len(rows(folder)) == 1


# Who may


def test_links_and_cookies(serving, folder):
    ann, bob = serving("ann", "b<b>")
    assert "b&lt;b&gt;" in bob.page()
    token = ann.site.access.token("ann")
    fresh = TestClient(ann.app, base_url=URL, follow_redirects=False)
    got = fresh.get(f"/enter?token={token}")
    assert (got.status_code, got.headers["location"]) == (303, "/")
    cookie = got.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert fresh.get("/").status_code == 200
    assert os.stat(folder / "serving.key").st_mode & 0o777 == 0o600
    assert token not in (folder / "serving.key").read_text()
    assert fresh.get("/live").status_code == 401  # not an assessor's business
    own = fresh.get(f"/enter?token={ann.site.access.token('')}")
    assert own.headers["location"] == "/live"
    assert fresh.get("/live").status_code == 200
    (secure,) = serving("ann", url="https://judge.example.org")
    got = secure.client.get(f"/enter?token={token}")
    assert "Secure" in got.headers["set-cookie"]


def test_forged_tokens_and_cookies(serving):
    ann, _ = serving("ann", "bob")
    keys = ann.site.access
    name, token = keys.cookie_name(False), keys.token("ann")
    stranger = access.Access(b"x" * 43, ["ann"], open=False)
    client = TestClient(ann.app, base_url=URL, follow_redirects=False)
    for forged in ("", "ann", token[:-1], token + "A", token.lower(), stranger.token("ann"), "ü"):
        assert client.get("/enter", params={"token": forged}).status_code == 403
    assert client.get("/enter").status_code == 403
    for forged in (token, f"{token}.", f"{stranger.token('ann')}.abc", f".{token}", "x" * 5000):
        got = client.get("/", headers={"cookie": f"{name}={forged}"})
        assert got.status_code == 401, forged
        assert "use your own link" in got.text
    live_cookie = f"{keys.cookie_name(True)}={keys.begin('ann').cookie}"
    assert client.get("/live", headers={"cookie": live_cookie}).status_code == 401
    assert client.post("/answer", data={"act": "skip"}).status_code == 401
    gone = access.Access(keys._secret, ["bob"], open=False)  # ann judges no more
    assert gone.resume(keys.begin("ann").cookie, live=False) is None


def test_a_form_is_good_for_its_session_and_pair_alone(serving, folder):
    ann, bob = serving("ann", "bob")
    form = ann.form()
    forged = [
        {"pair": "0" if form["pair"] != "0" else "1"},
        {"revision": "0"},
        {"nonce": "anothernonce"},
        {"seal": ""},
        {"seal": form["seal"][:-1]},
        {"seal": bob.form()["seal"]},
    ]
    for change in forged:
        got = ann.send({**form, **change}, "grade:1.0")
        assert got.status_code == 403
        assert "Nothing was stored" in got.text
    assert bob.send(form, "grade:1.0").status_code == 403
    ann.client.get(f"/enter?token={ann.site.access.token('ann')}")  # another session of ann's
    assert ann.send(form, "grade:1.0").status_code == 403
    assert rows(folder) == []


def test_without_links_the_cookie_is_still_wanted(serving, folder):
    (ann,) = serving()
    form = ann.form()
    ann.client.cookies.clear()
    assert ann.send(form, "grade:1.0").status_code == 403
    assert rows(folder) == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8765", "", "[::2]:1"])
def test_another_name_for_this_machine_is_refused(serving, host):
    (ann,) = serving()
    assert ann.client.get("/", headers={"host": host}).status_code == 421
    assert ann.client.get("/live", headers={"host": host}).status_code == 421
    for own in ("localhost:8765", "LOCALHOST", "[::1]:8765", "[::1]", "127.0.0.1"):
        assert ann.client.get("/", headers={"host": own}).status_code == 200


def test_requests_from_other_sites(serving, folder):
    (ann,) = serving()
    form = ann.form()
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8765"},  # same machine, another origin
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "null", "sec-fetch-site": "cross-site"},
    ):
        assert ann.send(form, "grade:1.0", headers=headers).status_code == 403, headers
    loads = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    frame = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "iframe"}
    for headers in (loads, frame):
        assert ann.client.get("/", headers=headers).status_code == 403
    assert rows(folder) == []
    (behind,) = serving("ann", url="https://judge.example.org")
    behind.client.base_url = "https://judge.example.org"
    behind.client.get(f"/enter?token={behind.site.access.token('ann')}")
    assert behind.send(behind.form(), "skip", headers={"origin": "http://evil"}).status_code == 403
    proxied = {"origin": "https://judge.example.org"}
    assert behind.send(behind.form(), "skip", headers=proxied).status_code == 303
    own = {"origin": URL, "sec-fetch-site": "same-origin"}
    assert ann.send(form, "grade:1.0", headers=own).status_code == 303
    hidden = {"origin": "null", "sec-fetch-site": "same-origin"}  # no referrer, no origin
    assert ann.send(ann.form(), "grade:1.0", headers=hidden).status_code == 303


def test_a_link_followed_from_another_page_leads_on(serving):
    ann, _ = serving("ann", "bob")
    client = TestClient(ann.app, base_url=URL, follow_redirects=False)
    got = client.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
    assert got.status_code == 200
    assert '<meta http-equiv="refresh" content="0; url=/">' in got.text
    assert client.get("/", headers={"sec-fetch-site": "same-origin"}).status_code == 401


def test_forms_that_are_none(serving, folder):
    (ann,) = serving()
    form = ann.form()
    client, body = ann.client, urlencode({**form, "act": "grade:1.0"})
    plain = {"content-type": "application/x-www-form-urlencoded"}
    for act in ("", "grade:3.0", "grade:1", "grade:nan", "undo", "grade:1.0\0"):
        assert ann.send(form, act).status_code == 400
    for field in form:
        lacking = {name: value for name, value in form.items() if name != field}
        assert ann.send(lacking, "grade:1.0").status_code == 400
    for odd in ("x", "1.5", "9" * 5000, "1_0"):
        assert ann.send({**form, "pair": odd}, "grade:1.0").status_code in (400, 403)
    assert client.post("/answer", content=b"\xff=\xfe", headers=plain).status_code == 400
    assert client.post("/answer", content="&a=1" * 50, headers=plain).status_code == 400
    assert client.post("/answer", json={**form, "act": "grade:1.0"}).status_code == 400
    text = {"content-type": "text/plain"}
    assert client.post("/answer", content=body, headers=text).status_code == 400
    assert rows(folder) == []
    assert client.post("/answer", content=body, headers=plain).status_code == 303


def test_bodies_that_are_too_long(serving, folder):
    (ann,) = serving()
    form = {**ann.form(), "act": "grade:1.0"}
    plain = {"content-type": "application/x-www-form-urlencoded"}
    assert ann.client.post("/answer", data={**form, "x": "y" * 70_000}).status_code == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    assert ann.client.post("/answer", content=chunks(), headers=plain).status_code == 413
    odd = ann.client.post("/answer", content=b"x", headers={**plain, "content-length": "-5"})
    assert odd.status_code == 413
    assert rows(folder) == []


@pytest.mark.parametrize(
    "path",
    [
        *("/study.json", "/serving.key", "/judgments.sqlite", "/static/page.css", "/templates/"),
        *("/../serving.key", "/%2e%2e/serving.key", "/..%2fserving.key", "/page.css/../../x"),
        *("/pair/", "/pair/-1", "/pair/0x1", "/pair/99999999999999999999", "/pair/1/..", "/text/1"),
        *("/\\evil", "/%00", "/pair/%2e", "/docs", "/openapi.json", "/live/"),
        *("/?from=/etc/passwd&file=../x", "/page.css?x=/etc/passwd"),
    ],
)
def test_no_path_leads_to_a_file(serving, path):
    (ann,) = serving()
    got = ann.client.get(path)
    known = path.startswith(("/?", "/page.css?"))
    assert got.status_code == (200 if known else 404), got.text
    assert "root:" not in got.text
    assert (ann.site.desk.folder / "serving.key").read_text().strip() not in got.text


def test_only_known_methods(serving):
    (ann,) = serving()
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO"):
        for path in ("/", "/answer", "/live"):
            assert ann.client.request(method, path).status_code == 405
    assert ann.client.get("/answer").status_code == 405
    assert ann.client.post("/").status_code == 405
    assert ann.client.head("/").status_code == 200


def test_every_answer_forbids_what_it_does_not_need(serving):
    (ann,) = serving()
    answers = [ann.client.get(path) for path in ("/", "/live", "/none", "/page.css", "/page.js")]
    answers += [ann.client.put("/"), ann.client.get("/", headers={"host": "evil"})]
    answers += [ann.send(ann.form(), "grade:1.0"), ann.client.get("/enter")]
    for got in answers:
        policy = got.headers["content-security-policy"].split("; ")
        assert {
            *("default-src 'none'", "style-src 'self'", "script-src 'self'", "form-action 'self'"),
            *("frame-ancestors 'none'", "base-uri 'none'"),
        } <= set(policy)
        assert "unsafe" not in got.headers["content-security-policy"]
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["referrer-policy"] == "no-referrer"
        if not got.request.url.path.startswith("/page."):
            assert got.headers["cache-control"] == "no-store"


# The live page


def test_the_live_page_says_only_what_whole_rounds_say(serving, folder, monkeypatch):
    (ann,) = serving(options={"stop_when": "half-width<9"})
    assert "No round is wholly judged yet" in ann.page("/live")
    asked = []

    def answer(self):
        asked.append(json.loads(self._request))
        found = {"measure": "DCG@5", "goal": "rank", "level": 0.9696, "stop": True, "n_rounds": 1}
        found |= {"n_draws": N, "n_judged": N, "notes": ["stop: the mean half-width is 1; more"]}
        row = {"estimate": -0.5, "std_error": 0.1, "low": -0.75, "high": -0.25}
        none = dict.fromkeys(row)
        return json.dumps(
            found
            | {"systems": [{"system": "<b>", **none}, {"system": "c", **row}]}
            | {"contrasts": [{"contrast": "a - b", **row}]}
        )

    monkeypatch.setattr(Live, "_ask", answer)
    while "That is all" not in ann.page():
        ann.judge(1)
    assert "first estimate is being made" in ann.page("/live")
    until = time.monotonic() + 10
    while "<strong>Stop</strong>" not in (page := ann.page("/live")):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert "the mean half-width is 1." in page
    assert "96.96%" in page
    assert "&lt;b&gt;" in page
    assert "\N{MINUS SIGN}0.75" in page
    for _ in range(3):
        ann.page("/live")
    assert len(asked) == 1
    assert asked[0]["options"] == {"stop_when": "half-width<9"}
    (back,) = re.findall(r'href="(/pair/\d+)" data-key="u"', ann.page())
    ann.judge(2, back)  # a revision of a whole round makes another estimate
    ann.page("/live")
    while len(asked) < 2:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_what_the_estimating_process_answers(folder):
    class Found:
        def to_json(self):
            return '{"measure": "P@5"}'

    line = json.dumps({"study": str(folder), "options": {"level": 0.9}})
    assert json.loads(live.answers(line, lambda level: Found())) == {"measure": "P@5"}
    with pytest.raises(EvenhandError) as refused:
        Study.open(folder).estimate()
    assert json.loads(live.answers(line))["error"] == str(refused.value)
    assert "TypeError" in json.loads(live.answers(line, lambda: None))["error"]
    assert "error" in json.loads(live.answers("no json"))


def test_an_estimating_process_that_dies_is_started_anew(folder, monkeypatch):
    made = Live(folder, {})
    monkeypatch.setattr(live.sys, "executable", "false")
    until = time.monotonic() + 20
    while "has ended" not in made.look("basis").error:
        assert time.monotonic() < until
        time.sleep(0.01)
    monkeypatch.setattr(Live, "_ask", lambda self: '{"measure": "P@5"}')
    while not (found := made.look("basis")).found:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert found.error == ""
    made.close()


# Starting


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"overlap": 2}, "2 of 1 assessors"),
        ({"assessors": []}, "needs a name"),
        ({"assessors": ["a", " "]}, "needs a name"),
        ({"assessors": ["a", "a"]}, "different names"),
        ({"labels": {3: "x"}}, "no grade 3; its grades are 0, 1, 2"),
        ({"url": "judge.example.org"}, "address of a server"),
        ({"url": "https://x/path"}, "address of a server"),
        ({"port": 70_000}, "between 0 and 65535"),
        ({"host": "no such host"}, "cannot listen"),
        ({"docs": "none.jsonl"}, "none.jsonl: no such file"),
        ({"queries": "none.tsv"}, "none.tsv: no such file"),
        ({"guidelines": "none.md"}, "none.md: cannot be read"),
        ({"stop_when": "now"}, "unknown rule"),
        ({"level": 2.0}, "level"),
    ],
)
def test_what_cannot_be_served(folder, options, said):
    with pytest.raises(EvenhandError) as caught:
        server.serve(folder, tell=lambda _: pytest.fail("was served"), **{"port": 0, **options})
    assert said in caught.value.message
    assert caught.value.hint or isinstance(caught.value, FormatError)


def test_no_study_and_a_study_that_is_served(folder, tmp_path):
    with pytest.raises(StudyError, match="no study"):
        server.serve(tmp_path / "none")
    with server._alone(folder), pytest.raises(StudyError, match="served already"):
        server.serve(folder, port=0)


def test_a_link_is_good_once_it_is_told(folder):
    class Told(Exception):
        pass

    def follow(served):
        place = urlsplit(served.url)
        socket.create_connection((place.hostname, place.port), timeout=5).close()
        raise Told

    with pytest.raises(Told):
        server.serve(folder, port=0, tell=follow)


def test_a_port_that_is_taken(folder):
    with socket.create_server(("127.0.0.1", 0)) as other:
        ran = CliRunner().invoke(
            main, ["serve", str(folder), "--port", str(other.getsockname()[1])]
        )
    assert ran.exit_code == 1
    assert "cannot listen on 127.0.0.1" in ran.stderr
    assert "hint: --port 0 takes a free port" in ran.stderr


def test_labels_on_the_command_line(folder):
    for odd in ("yes", "0=", "a=b", "0=x,,1=y"):
        ran = CliRunner().invoke(main, ["serve", str(folder), "--labels", odd])
        assert ran.exit_code == 2
        assert "expected '0=not relevant,1=relevant'" in ran.stderr


@pytest.mark.parametrize(
    ("settings", "labels", "keys"),
    [
        ((0, 1), None, {"0": "not relevant", "1": "relevant"}),
        ((0, 1, 2), {2: "best"}, {"0": "", "1": "", "2": "best"}),
        ((0, 0.5, 1), None, {"1": "", "2": "", "3": ""}),
        (None, None, {"0": "not relevant", "1": "relevant"}),
        (None, {0: "no", 3: "yes"}, {"0": "no", "3": "yes"}),
        (tuple(range(12)), None, None),
    ],
)
def test_grades_and_their_keys(tmp_path, settings, labels, keys):
    study = Study.create(tmp_path / "s", RUNS, measure="DCG@5", grades=settings)
    grades = server._grades(study.settings, labels)
    if keys is None:
        assert [grade.key for grade in grades] == [*"123456789", "", "", ""]
    else:
        assert {grade.key: grade.label for grade in grades} == keys
    assert len({grade.act for grade in grades}) == len(grades)


def test_links_are_told(folder):
    def told(**options):
        host, url = options.pop("host", "127.0.0.1"), options.get("url")
        with server.open_site(folder, host=host, **options) as site:
            return server.links(site, host, 80, url), site.hosts

    served, hosts = told()
    assert served.assessors == {"assessor": "http://127.0.0.1:80/"}
    assert served.live == "http://127.0.0.1:80/live"
    assert "localhost" in hosts
    served, hosts = told(host="0.0.0.0")
    assert all("/enter?token=" in link for link in (*served.assessors.values(), served.live))
    assert "unencrypted" in str(served)
    assert hosts == ()
    served, hosts = told(url="https://judge.example.org/", assessors=["a", "b"])
    assert served.assessors["a"].startswith("https://judge.example.org/enter?token=")
    assert "judge.example.org" in hosts
    assert not served.notes
    assert told(host="::1")[0].assessors == {"assessor": "http://[::1]:80/"}


def test_secrets_that_are_none(folder, tmp_path):
    (tmp_path / "key").write_text("short")
    with pytest.raises(StudyError, match="holds no secret"):
        access.read_secret(tmp_path / "key")
    with pytest.raises(StudyError, match="cannot keep"):
        access.read_secret(tmp_path / "none" / "key")
    (folder / "serving.sqlite").write_bytes(b"no database, but long enough to be looked at" * 30)
    with pytest.raises(StudyError, match=r"serving\.sqlite"):
        Desk(folder, ["ann"])


# A real server


@pytest.fixture(scope="module")
def load():
    """The program that puts a real server under load."""
    path = Path(__file__).parents[1] / "benchmarks" / "serving.py"
    spec = importlib.util.spec_from_file_location("serving_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def raw(port: int, request: bytes) -> bytes:
    """Send bytes as they are, and give what comes back until nothing more does."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        with suppress(ConnectionError, TimeoutError):
            connection.sendall(request)
            while part := connection.recv(65536):
                got += part
                connection.settimeout(1)
    return got


def test_a_server_starts_without_jax_and_takes_raw_requests(folder, world, load):
    shutil.copy(world / "docs.jsonl", folder.parent / "docs.tsv")
    server = load.Server(folder, ["ann"])
    try:
        maps = Path(f"/proc/{server.process.pid}/maps")
        if maps.exists():  # Linux
            assert "jaxlib" not in maps.read_text()
        host = b"Host: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % server.port
        assert raw(server.port, b"GET / HTTP/1.1\r\n" + host).startswith(b"HTTP/1.1 200")
        for path in (b"//evil/", b"/../../../../etc/passwd", b"/..\\..\\x", b"/%2e%2e/serving.key"):
            got = raw(server.port, b"GET " + path + b" HTTP/1.1\r\n" + host)
            assert got.startswith(b"HTTP/1.1 404"), (path, got[:200])
            assert b"root:" not in got
        absolute = raw(
            server.port, b"GET http://evil/ HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n"
        )
        assert not absolute.startswith(b"HTTP/1.1 200")
        for odd in (b"GET /", b"\x16\x03\x01", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):
            assert not raw(server.port, odd + b"\r\n\r\n").startswith(b"HTTP/1.1 200")
        twice = b"POST /answer HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
        assert not raw(server.port, twice + host + b"0\r\n\r\n").startswith(b"HTTP/1.1 303")
        long = b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n" + host
        assert not raw(server.port, long).startswith(b"HTTP/1.1 200")
        assert raw(server.port, b"GET / HTTP/1.1\r\n" + host).startswith(b"HTTP/1.1 200")
        with pytest.raises(RuntimeError, match="being served already"):
            load.Server(folder, ["ann"])
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 0
    finally:
        server.kill()


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_or_doubled_when_killed(tmp_path, load):
    """20 assessors at once, 5 kills; EVENHAND_JUDGMENTS=10000 does it at full size."""
    n = int(os.environ.get("EVENHAND_JUDGMENTS", "600"))
    found = load.kill(load.make_study(tmp_path, n), assessors=20, kills=5)
    print(found)
    assert found["pairs"] == n


# For everyone


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast(scheme):
    """WCAG 2.2: at least 4.5 for text, 3 for what tells a control or a state."""
    style = (Path(pages.__file__).parent / "static" / "page.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.S)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[scheme]))
    texts = [(ink, on) for ink in ("ink", "soft", "accent") for on in ("ground", "sheet")]
    texts += [("ink", "tint"), ("on-accent", "accent"), ("good", "ground"), ("good", "sheet")]
    texts += [("warn", "ground"), ("warn", "wash"), ("soft", "tint")]
    graphics = [("accent", "track"), ("soft", "sheet"), ("accent", "sheet")]
    for pairs, least in ((texts, 4.5), (graphics, 3.0)):
        for one, other in pairs:
            dark, bright = sorted(luminance(colours[name]) for name in (one, other))
            assert (bright + 0.05) / (dark + 0.05) >= least, (one, other)
