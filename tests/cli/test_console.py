"""What the command line keeps compiled from one command to the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import evenhand
from evenhand.cli.console import KEPT, keep_compiled

SOURCE = str(Path(evenhand.__file__).parents[1])


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A home of a user whose JAX keeps nothing yet."""
    for name in ("JAX_COMPILATION_CACHE_DIR", *KEPT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    return tmp_path


def draw(folder: Path, name: str) -> None:
    """A study of two systems, and a draw, each in a process of its own."""
    for system in "ab":
        rows = [f"q{q} Q0 d{d} 1 {3 * q + d} {system}\n" for q in (1, 2) for d in range(3)]
        (folder / f"{system}.run").write_text("".join(rows))
    for words in (f"new {name} a.run b.run -m P@3", f"draw {name} --budget 2 --seed 1"):
        told = subprocess.run(
            [sys.executable, "-m", "evenhand.cli", *words.split()],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "compilation cache" not in told.stderr


def entries(home: Path, what: str = "cache") -> dict[Path, bytes]:
    """The compiled programs that are kept; or ``"atime"``, when each was last read."""
    return {path: path.read_bytes() for path in home.rglob(f"*-{what}")}


@pytest.mark.slow
def test_kept_and_used(home, monkeypatch):
    # Whatever it took to compile: by default a slower moment would keep more the second time.
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    draw(home, "first")
    kept, read = entries(home), entries(home, "atime")
    assert kept
    draw(home, "second")
    assert entries(home) == kept
    assert not entries(home, "atime").items() & read.items()  # each of them was read again
    # A process was killed while it wrote one: nothing but time is lost.
    for path in kept:
        path.write_bytes(path.read_bytes()[:7])
    draw(home, "third")


def test_a_folder_of_the_users_own_is_left_alone(home, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    keep_compiled()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "elsewhere"
    assert not KEPT.keys() & os.environ.keys()


def test_nothing_is_kept_where_nothing_can_be_written(home):
    (home / "cache").write_text("a file where a folder should be")
    keep_compiled()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
