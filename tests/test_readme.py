"""The README is true: its commands and blocks run, and the output that it shows is printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

import evenhand
from evenhand.cli import main
from evenhand.simulation import make_collection

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.S)
SETUP = "python3 -m venv .venv && . .venv/bin/activate && pip install "


def blocks(kind: str) -> list[str]:
    return [text for name, text in BLOCKS if name == kind]


def commands() -> list[list[str]]:
    """Every command line that starts with evenhand, in order, as words."""
    lines = [line for text in blocks("sh") for line in text.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("evenhand ")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README speaks of."""
    folder = tmp_path_factory.mktemp("readme")
    make_collection(folder, seed=1, n_queries=30, n_documents=150)
    (folder / "runs" / "rerank-l.txt").rename(folder / "late.txt")
    said = [line.split() for line in (folder / "qrels.txt").read_text().splitlines()[::3]]
    rows = [f"{qid}\t{docid}\t{grade}" for qid, _, docid, grade in said]
    texts = [{"_id": docid, "text": f"text of {docid}"} for _, _, docid, _ in said]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "one"}\n')
    (folder / "guidelines.md").write_text("# Grades\n")
    (folder / "labels.tsv").write_text("\n".join(["qid\tdocid\tvalue", *rows]) + "\n")
    return folder


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


@pytest.mark.slow
def test_the_commands_run_in_their_order(place, monkeypatch):
    monkeypatch.chdir(place)
    for words in commands():
        if words[0] == "serve":  # until it is told to stop
            serves(words)
            continue
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, (words, result.output, result.exception)
        assert result.stdout.strip(), words
    assert (place / "intervals.png").stat().st_size > 10_000


def test_the_python_blocks_run(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    source = "\n".join(blocks("python"))
    space: dict[str, Any] = {}
    exec(compile(source, "README.md", "exec"), space)
    assert capsys.readouterr().out.count("300 pairs judged") == 2
    assert len(space["frame"]) == 15


def test_the_output_shown_is_what_the_demo_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    (shown,) = blocks("text")
    assert result.stdout.strip() == shown.strip()


def test_set_up_is_one_command_each():
    setups = [
        line for text in blocks("sh") for line in text.splitlines() if line.startswith("python3")
    ]
    assert setups == [
        SETUP + ". && evenhand demo",
        SETUP + '-e ".[test]" && python -m pytest -n auto',
    ]
