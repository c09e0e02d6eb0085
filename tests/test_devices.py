"""One device and eight give the same q and draws, bit for bit, and the same estimates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import evenhand
from evenhand.devices import by_share, mesh, place, spread
from evenhand.errors import EvenhandError

DRIVER = """
import hashlib, json, sys, time
from contextlib import nullcontext
sys.path.insert(0, sys.argv[1])
import jax
import numpy as np
from made import made_pool
import evenhand as eh
from evenhand.devices import mesh, spread
from evenhand.estimands import targets
from evenhand.intervals.pool_moments import events
from evenhand.simulation import simulate

large = targets.target(made_pool(150_000, 20, 150), "DCG@100")
small = targets.target(made_pool(600, 4, 10, seed=1), "DCG@100")
utility = np.where(np.random.default_rng(2).random(600) < 0.3, 1.0, 0.0)
said = np.where(np.random.default_rng(3).random(150_000) < 0.1, 1.0, 0.0)


def bits(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def answers(studies):
    goal = eh.rank(large)
    exact, near = {}, {}
    for kind in ("optimal", "minimax"):
        design = eh.design(goal, eh.rank_utility(large.pool), kind=kind)
        exact |= {f"q {kind}": bits(design.q)} if kind == "optimal" else {}
        near[f"q {kind}"] = design.q[::997].tolist()
        for sampler in ("distinct", "slices", "iid"):
            if kind == "minimax" and sampler != "distinct":
                continue
            sample = eh.draw(jax.random.key(0), design, 300, sampler=sampler)
            exact[f"draws {kind} {sampler}"] = bits(sample.draws)
            exact[f"E {kind} {sampler}"] = bits(sample.expected) if kind == "optimal" else ""
            if kind == "optimal" and sampler == "distinct":
                found = eh.estimate(goal, [eh.Round(sample, said[sample.draws])])
                for name in ("value", "std_error", "low", "high", "contrast_low"):
                    near[name] = getattr(found, name).tolist()
    if not studies:
        return {"exact": exact, "near": near}
    some = eh.rank(small)
    (row,) = simulate(some, utility, budgets=[30], replications=30).rows
    near["simulated"] = [*row["mean"], *row["sd"], row["coverage"], row["width"]]
    return {"exact": exact, "near": near}


found, seconds = {}, {}
for n in (None, 2, 8):
    with nullcontext() if n is None else spread(n):
        assert (mesh() is None) == (n is None)
        if n:
            blocks = large.blocks()
            assert len(blocks.place.sharding.device_set) == n
            assert len(blocks.place) % n == 0 and len(blocks.place) >= 10
        begin = time.perf_counter()
        found[n or 1] = answers(studies=n != 2)
        seconds[n or 1] = time.perf_counter() - begin
json.dump({"found": found, "seconds": seconds, "devices": len(jax.devices())}, sys.stdout)
"""


def flat(x) -> list[float]:
    return [y for part in x for y in flat(part)] if isinstance(x, list) else [x]


@pytest.mark.slow
def test_eight_devices_draw_and_answer_as_one_does():
    source = Path(evenhand.__file__).parents[1]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(Path(__file__).parent / "benchmarks")],
        env={
            **os.environ,
            "XLA_FLAGS": flags.strip(),
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["devices"] == 8
    one = told["found"]["1"]
    assert len(one["exact"]) == 9
    for n in ("2", "8"):
        other = told["found"][n]
        assert other["exact"] == one["exact"]
        assert ("simulated" in other["near"]) == (n == "8")
        for name, values in other["near"].items():
            near = pytest.approx(flat(one["near"][name]), rel=1e-9, abs=1e-12)
            assert flat(values) == near, (n, name)


def test_one_device_is_left_alone():
    assert mesh() is None

    def function(x):
        return x

    assert by_share(None, function, 1) is function
    with spread(1):
        assert mesh() is None
    with spread(jax.devices()[:1]):
        assert mesh() is None


def test_more_devices_than_there_are_is_told():
    there = len(jax.local_devices())
    with pytest.raises(EvenhandError, match=f"asked for {there + 1} devices, JAX has {there}"):
        with spread(there + 1):
            pass
    with pytest.raises(EvenhandError, match="asked for 0 devices"):
        with spread(0):
            pass
    with pytest.raises(EvenhandError, match="there is no device"):
        with spread([]):
            pass
    assert mesh() is None
    assert place(None, np.ones(2)).shape == (2,)
