"""README and guides: their commands and blocks run, and their links and topics lead somewhere."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

import evenhand
from evenhand.cli import main
from evenhand.simulation import make_collection

ROOT = Path(__file__).resolve().parents[1]
GUIDES = sorted((ROOT / "src" / "evenhand" / "guides").glob("*.md"))
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *GUIDES]}
SETUP = "python3 -m venv .venv && . .venv/bin/activate && pip install "


def blocks(page: str, kind: str) -> list[str]:
    found = re.findall(r"```(\w+)\n(.*?)```", PAGES[page], re.S)
    return [text for name, text in found if name == kind]


def commands(page: str) -> list[list[str]]:
    """Every command line of a page that starts with evenhand, in order, as words."""
    lines = [line for text in blocks(page, "sh") for line in text.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("evenhand ")]


@pytest.fixture
def place(tmp_path) -> Path:
    """A folder with the files that the pages name."""
    make_collection(tmp_path, seed=1, n_queries=30, n_documents=150)
    (tmp_path / "runs" / "rerank-l.txt").rename(tmp_path / "late.txt")
    said = [line.split() for line in (tmp_path / "qrels.txt").read_text().splitlines()[::3]]
    rows = [f"{qid}\t{docid}\t{grade}" for qid, _, docid, grade in said]
    texts = [{"_id": docid, "text": f"text of {docid}"} for _, _, docid, _ in said]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "one"}\n')
    (tmp_path / "guidelines.md").write_text("# Grades\n")
    (tmp_path / "labels.tsv").write_text("\n".join(["qid\tdocid\tvalue", *rows]) + "\n")
    return tmp_path


def serves(words: list[str]) -> None:
    """Start a server, open the link of the first assessor, and stop it as one does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "evenhand.cli", *words, "--port", "0"],
        env={**os.environ, "PYTHONPATH": str(Path(evenhand.__file__).parents[1])},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        links = []
        while not links or not links[-1].startswith("live: "):
            links.append(process.stderr.readline())
            assert links[-1], links
        with httpx.Client(follow_redirects=True) as client:
            page = client.get(links[0].split(": ")[1].strip())
        assert page.status_code == 200
        # Before it the README has judged every pair, once.
        assert ("grade:1.0" if "--overlap" in words else "All done") in page.text
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def run_in_order(page: str) -> None:
    for words in commands(page):
        if words[0] == "serve":  # until it is stopped
            serves(words)
            continue
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, (words, result.output, result.exception)
        assert result.stdout.strip(), words


def test_the_commands_of_the_front_page_run(place, monkeypatch):
    monkeypatch.chdir(place)
    run_in_order("README")


@pytest.mark.parametrize("page", [path.stem for path in GUIDES if commands(path.stem)])
def test_the_commands_of_guides_run(page, place, monkeypatch):
    monkeypatch.chdir(place)
    run_in_order(page)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_the_python_blocks_run(page, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    space: dict[str, Any] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), space)
    found = space["eh"].estimate(space["goal"], [space["judged"]]) if "goal" in space else None
    assert found is None or found.n_judged == 300
    if page in ("README", "large"):
        assert capsys.readouterr().out.count("300 pairs judged") == 1


def test_the_output_shown_is_what_the_demo_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    (shown,) = blocks("README", "text")
    assert result.stdout.strip() == shown.strip()


def test_set_up_is_one_command_each():
    lines = [line for text in blocks("README", "sh") for line in text.splitlines()]
    setups = [line for line in lines if line.startswith("python3")]
    assert setups == [
        SETUP + ". && evenhand demo",
        SETUP + '-e ".[test]" && python -m pytest -n auto',
    ]


def test_the_front_page_is_short_and_leads_to_every_guide():
    assert len(PAGES["README"].splitlines()) <= 150
    for path in GUIDES:
        assert f"({path.relative_to(ROOT)})" in PAGES["README"], path.name


def test_links_lead_to_files():
    for page in PAGES:
        folder = ROOT if page == "README" else GUIDES[0].parent
        for link in re.findall(r"\]\((?!http)([^)#]+)", PAGES[page]):
            assert (folder / link).exists(), (page, link)
        for topic in re.findall(r"`evenhand help ([a-z-]+)`", PAGES[page]):
            assert topic in PAGES, (page, topic)
        for test in re.findall(r"`(tests/\S+\.py)", PAGES[page]):
            assert (ROOT / test).exists(), (page, test)


def test_guides_are_printed():
    listed = CliRunner().invoke(main, ["help"])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [p.stem for p in GUIDES]
    for path in GUIDES:
        result = CliRunner().invoke(main, ["help", path.stem])
        assert result.stdout == PAGES[path.stem]
        assert PAGES[path.stem].startswith("# ")
    unknown = CliRunner().invoke(main, ["help", "nothing"])
    assert unknown.exit_code == 1
    assert "there is no guide 'nothing'" in unknown.stderr
    assert "start" in unknown.stderr


#: Words that are riddles where a standard term exists, with what to write instead.
WORDS = {
    "room": "package or module",
    "whoever": "you, or the name of the role",
    "whom": "a sentence of its own",
    "spoken of": "named",
    "made data": "synthetic data",
    "made studies": "simulated studies",
    "heard": "judged",
    "hangs on": "depends on",
    "stands for": "is",
    "told apart": "distinguished",
    "is told": "is given, knows, or sees",
    "are told": "are given, know, or see",
    "tells apart": "distinguishes",
    "asks of": "needs",
}


def riddles(text: str) -> dict[str, str]:
    return {word: cure for word, cure in WORDS.items() if re.search(rf"\b{word}\b", text, re.I)}


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_in_plain_words(page):
    assert riddles(PAGES[page]) == {}
    assert re.findall(r"(?:^|[.!?] )Of [a-z]", PAGES[page], re.M) == []


def test_docstrings_comments_and_help_are_in_plain_words():
    for path in (ROOT / "src").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                assert riddles(token.string) == {}, (path.name, token.start[0])
