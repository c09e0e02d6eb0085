"""Every example runs, small, from start to end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(script, tmp_path):
    done = subprocess.run(
        [sys.executable, str(script), "--fast"],
        cwd=tmp_path,
        # That it runs is asked, not how fast: compiling takes most of the time.
        env={**os.environ, "MPLBACKEND": "agg", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
