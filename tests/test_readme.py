"""The README is true: its commands and blocks run, and the output that it shows is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evenhand.cli import main
from evenhand.demo import make_collection

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
    (folder / "labels.tsv").write_text("\n".join(["qid\tdocid\tvalue", *rows]) + "\n")
    return folder


@pytest.mark.slow
def test_the_commands_run_in_their_order(place, monkeypatch):
    monkeypatch.chdir(place)
    for words in commands():
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
