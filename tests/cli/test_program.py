"""The command line as a process of its own: what it imports, and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import evenhand

SOURCE = str(Path(evenhand.__file__).parents[1])
RUNS = {
    name: "".join(f"q{q} Q0 d{d} 1 {(3 * q + d) * sign} {name}\n" for q in (1, 2) for d in range(3))
    for name, sign in (("a", 1), ("b", -1))
}
COMMAND = """if True:
    import json, sys
    from evenhand.cli.__main__ import run
    sys.argv[0] = "evenhand"
    try:
        run()
    except SystemExit as end:
        assert not end.code, end.code
    print(json.dumps(sorted(name for name in sys.modules if "." not in name)))
"""


def python(code: str, *words: str, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize(
    ("module", "waits"),
    [("evenhand.cli", "numpy"), ("evenhand.measures", "jax"), ("evenhand.study", "jax")],
)
def test_what_takes_long_is_imported_when_it_is_needed(module, waits, tmp_path):
    code = f"import sys, {module}; print({waits!r} in sys.modules)"
    assert python(code, folder=tmp_path) == "False\n"


@pytest.mark.slow
def test_a_command_imports_what_it_needs(tmp_path):
    for name, text in RUNS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "qrels").write_text("".join(f"q{q} 0 d{d} 1\n" for q in (1, 2) for d in range(3)))
    for words, without in (
        ("new study a b -m P@3 --goal pair", {"jax", "numpyro"}),
        ("draw study --budget 4 --seed 1", {"numpyro"}),
        ("judge study qrels", {"jax", "numpyro"}),
        ("estimate study --estimator importance", {"starlette"}),
    ):
        told = python(COMMAND, *words.split(), folder=tmp_path).splitlines()[-1]
        imported = set(json.loads(told))
        assert {"numpy", "pyarrow"} <= imported
        assert not without & imported, words
