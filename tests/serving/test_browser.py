"""A whole study by browser: pairs are judged on the page, by keys alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time

import pytest

from evenhand.formats.qrels import read_qrels
from evenhand.simulation import make_collection
from evenhand.studies.judgments import JudgmentStore
from evenhand.study import Study

api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium"),
]
N = 30  # pairs of a round

NARROW = {"width": 320, "height": 640}


@pytest.fixture(scope="module")
def chromium():
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    folder = tmp_path_factory.mktemp("study")
    make_collection(folder, seed=3, n_queries=6, n_documents=120)
    with open(folder / "docs.jsonl", "w", encoding="utf-8") as file:
        for q in range(6):
            for d in range(120):
                row = {"_id": f"d{q}-{d}", "title": f"Title of {d}", "text": f"text {d} " * 400}
                file.write(json.dumps(row) + "\n")
    return Study.create(folder / "study", folder / "runs", measure="DCG@10", grades=(0, 1, 2))


def start(study: Study, *words: str) -> tuple[subprocess.Popen, list[str]]:
    """A server of the study, and the links that it tells: the assessors', then the live page's."""
    words = (str(study.folder), "--port=0", f"--docs={study.folder.parent / 'docs.jsonl'}", *words)
    process = subprocess.Popen(
        [sys.executable, "-m", "evenhand.cli", "serve", *words], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    links = []
    for line in process.stderr:
        links.append(line.split(": ", 1)[1].strip())
        if line.startswith("live"):
            return process, links
    raise AssertionError(links)


@pytest.fixture
def stopped():
    """Whatever is put in here is ended afterwards."""
    processes: list[subprocess.Popen] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def press(page, key: str) -> None:
    """Press a key that leads to another page, and wait for it."""
    with page.expect_navigation():
        page.keyboard.press(key)


def judge_all(page, truth: dict[tuple[str, str], int]) -> int:
    """Judge what the page shows by the true grades, with keys, until all is done."""
    count = 0
    while page.locator("form.answer").count():
        query, document = page.locator("bdi.id").all_inner_texts()
        press(page, str(truth[query, document]))
        count += 1
    return count


def test_a_study_by_keys(study, chromium, stopped):
    said = read_qrels(study.folder.parent / "qrels.txt")
    queries, documents = said.queries.to_pylist(), said.documents.to_pylist()
    truth = {
        (queries[q], documents[d]): int(grade)
        for q, d, grade in zip(said.query, said.document, said.grade, strict=True)
    }
    study.draw(N, seed=1)
    guessed = study.folder.parent / "guessed.tsv"
    rows = [f"{q}\t{d}\t{grade + 0.25}\n" for (q, d), grade in truth.items()]
    guessed.write_text("qid\tdocid\tgrade\n" + "".join(rows))
    server, (link, live) = start(study, "--predictions", str(guessed))
    stopped.append(server)
    page = chromium.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(link)
    assert "Live" not in page.content()

    # What a model predicts is there for who asks.
    first = page.locator("bdi.id").all_inner_texts()
    told = page.get_by_text("it may be wrong")
    assert not told.is_visible()
    page.keyboard.press("p")
    assert told.is_visible()
    assert told.inner_text().startswith(f"{truth[first[0], first[1]] + 0.25:g};")

    # A note, a skip, an undo, a revision.
    page.keyboard.press("n")
    page.keyboard.type("0 and s are letters here")
    assert page.locator("bdi.id").all_inner_texts() == first
    page.keyboard.press("Escape")
    press(page, "s")
    assert page.locator("bdi.id").all_inner_texts() != first
    assert page.locator("#state").inner_text() == "Skipped. You can come back to it at the end."
    second = page.locator("bdi.id").all_inner_texts()
    press(page, "2")
    assert page.title().startswith("Saved: 2.")
    press(page, "u")
    assert page.locator("bdi.id").all_inner_texts() == second
    press(page, str(truth[second[0], second[1]]))

    # Back to a page that was answered: it is made anew, and says so.
    page.go_back()
    page.wait_for_load_state()
    page.goto(link)

    assert judge_all(page, truth) == N - 2
    assert "You skipped 1" in page.inner_text("main")
    press(page, "s")
    assert page.locator("textarea").input_value() == "0 and s are letters here"
    assert judge_all(page, truth) == 1
    kept = JudgmentStore.open(study.folder / "judgments.sqlite").read()
    assert len(kept) == N
    by_pair = zip(kept.query, kept.document, kept.grade, strict=True)
    assert all(truth[q, d] == grade for q, d, grade in by_pair)

    # Estimates, on the live page as by the library.
    watching = chromium.new_page()
    watching.goto(live)
    until = time.monotonic() + 120
    while not watching.locator(".verdict").count():
        assert time.monotonic() < until
        time.sleep(0.5)
        watching.reload()
    found = study.estimate(stop_when="decided")
    shown = watching.locator("table.forest").first.locator("tbody tr").all()
    assert len(shown) == len(found.goal.names)
    for row in shown:
        at = found.goal.names.index(row.locator("th").inner_text())
        texts = row.locator("td.n").all_inner_texts()
        cells = [float(text.replace("\N{MINUS SIGN}", "-")) for text in texts]
        wanted = [found.contrast[at], found.contrast_low[at], found.contrast_high[at]]
        assert cells == pytest.approx(wanted, abs=0.006)
    assert "0 and s are letters here" in watching.inner_text(".notes")

    # The next round learns from them and is there without a restart.
    study.draw(N, seed=2, utility="learned")
    until = time.monotonic() + 10
    while not page.locator("form.answer").count():
        assert time.monotonic() < until
        time.sleep(0.2)
        page.goto(link)
    assert judge_all(page, truth) == N
    assert study.estimate().n_rounds == 2
    assert faults == []


def test_a_link_from_another_site_and_no_script(study, chromium, stopped, tmp_path):
    """Cookies that other sites cannot send, and pages that need no script."""
    study.draw(10, seed=5, kind="naive", rejudge=True)
    server, (_, link, _) = start(study, "--assessor", "ann", "--assessor", "bob")
    stopped.append(server)
    letter = tmp_path / "letter.html"
    letter.write_text(f'<a href="{link}">judge</a>')
    context = chromium.new_context(
        java_script_enabled=False, viewport={"width": 320, "height": 640}
    )
    page = context.new_page()
    page.goto(letter.as_uri())
    page.click("a")
    page.wait_for_selector("form.answer")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", page.url)
    cookies = context.cookies()
    assert [(c["httpOnly"], c["sameSite"]) for c in cookies] == [(True, "Strict")]
    before = len(JudgmentStore.open(study.folder / "judgments.sqlite").read())
    page.get_by_role("button", name="1").click()
    page.wait_for_selector("text=Saved: 1.")
    assert len(JudgmentStore.open(study.folder / "judgments.sqlite").read()) == before + 1


def test_a_narrow_page_and_a_hostile_document(study, chromium, stopped, tmp_path):
    evil = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    with open(tmp_path / "docs.jsonl", "w", encoding="utf-8") as file:
        for q in range(6):
            for d in range(120):
                row = {"_id": f"d{q}-{d}", "title": evil, "text": "\u202e" + evil + "x" * 30_000}
                file.write(json.dumps(row) + "\n")
    runs = study.folder.parent / "runs"
    own = Study.create(tmp_path / "study", runs, measure="DCG@10", grades=(0, 1, 2))
    own.draw(N, seed=1)
    server, links = start(own)
    stopped.append(server)
    for scheme in ("light", "dark"):
        context = chromium.new_context(color_scheme=scheme, viewport=NARROW)
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto(links[0])
        assert "owned" not in page.title()
        assert page.locator("article img, article script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        assert all(url.startswith("http://127.0.0.1") for url in asked)
        # By Tab alone to the first grade: what has focus is seen.
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.value") == "grade:0.0":
                break
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert page.evaluate("document.activeElement.value") == "grade:0.0"
        assert outline == "3px"
        context.close()
