"""Tiny pools, and the exact law of a sampler on them.

A sampler is a piecewise-constant function of its uniforms. `draws_law` runs the real code on
uniforms that it supplies, finds the break points along each uniform by bisection to the last bit,
and runs it once more in every piece: the outcomes and their probabilities are then exact but for
rounding, whatever the sampler.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import platform
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

CACHE_BYTES = 1 << 30


def shared_cache() -> Path | None:
    """A folder for what JAX compiles, in the user's cache folder; None where none can be written.

    One for each kind of processor. Entries that a killed process left half written since the last
    run are removed: JAX would read them in vain, warn, and never replace them.
    """
    cpuinfo = Path("/proc/cpuinfo")
    flags = re.search(r"^flags.*", cpuinfo.read_text(), re.M) if cpuinfo.exists() else None
    processor = flags.group() if flags else platform.processor()
    folder = user_cache_path("evenhand") / f"tests-{zlib.crc32(processor.encode()):08x}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        checked = folder / "checked"
        since = checked.stat().st_mtime if checked.exists() else 0.0
        checked.touch()
    except OSError:
        return None
    for entry in folder.glob("*-cache"):
        if entry.stat().st_mtime >= since:
            data = entry.read_bytes()
            try:
                if not data.startswith(b"\x28\xb5\x2f\xfd"):  # by Zstandard, where JAX finds it
                    zlib.decompress(data)
            except zlib.error:
                entry.unlink(missing_ok=True)
    return folder


# Half of the suite's time is compilation: workers, the processes that tests start and later runs
# share what was compiled. JAX reads these when it is imported; a folder of your own is left alone.
CACHE = None
if "JAX_COMPILATION_CACHE_DIR" not in os.environ and (CACHE := shared_cache()) is not None:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenhand.designs.utilities import judged_utility
from evenhand.estimands import goals, targets
from evenhand.estimands.pools import pool
from evenhand.estimands.targets import target
from evenhand.float64 import in_float64
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.sampling import samplers
from evenhand.sampling.folds import Folds
from evenhand.simulation import make_collection

BATCH = 512
# Compiling costs more than running here.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
LAST = 1.0 - 2.0**-52  # the largest uniform that JAX makes


def pytest_sessionfinish(session):
    """Keep what was compiled within `CACHE_BYTES`: the oldest goes first."""
    if CACHE is None or hasattr(session.config, "workerinput"):
        return
    entries = [(path, path.stat()) for path in CACHE.glob("*-cache")]
    entries.sort(key=lambda entry: entry[1].st_mtime, reverse=True)
    sizes = itertools.accumulate(stat.st_size for _, stat in entries)
    for (path, _), size in zip(entries, sizes, strict=True):
        if size > CACHE_BYTES:
            path.unlink(missing_ok=True)


@pytest.fixture(autouse=True, scope="module")
def forgotten():
    """Forget what was compiled before a process has as many mappings as it may (65,530 on Linux).

    Each compiled function takes some twenty; XLA aborts where it gets no more. No module compiles
    a thousand.
    """
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > 40_000:
        jax.clear_caches()


@dataclass(frozen=True)
class Law:
    """Every outcome of a sampler (cells in ascending order) and its probability."""

    draws: np.ndarray
    probability: np.ndarray

    def counts(self, cells: int) -> np.ndarray:
        """N_c by outcome, shape (outcomes, cells)."""
        return (self.draws[:, :, None] == np.arange(cells)).sum(1)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Expectation of what each outcome is worth."""
        return np.tensordot(self.probability, values, 1)


@functools.cache
def _sampler(name: str, cells: int, n: int, by_fold: int):
    """The sampler as a function of its uniforms, and how many it takes."""
    taken = []

    def run(uniforms, expected, order, permutation, *folds):
        taken.clear()
        taken.append(0)

        def supplied(key, shape=(), dtype=None):
            size = math.prod(shape)
            taken[0] += size
            return uniforms[taken[0] - size : taken[0]].reshape(shape)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.random, "uniform", supplied)
            patch.setattr(samplers, "shuffle", lambda key, n: permutation)
            apart = Folds(*folds) if folds else None
            return samplers.SAMPLERS[name].draw(jax.random.key(0), expected, n, order, apart)

    padded = 1 << max(1, (cells - 1).bit_length())
    arguments = (np.ones(cells), np.arange(cells), np.arange(padded, dtype=np.uint32))
    if by_fold:
        arguments += (np.zeros(cells, np.int32), np.zeros(by_fold, np.int64))
    axes = (0, *(None for _ in arguments))
    many = jax.jit(jax.vmap(run, axes), compiler_options=QUICK)
    jax.eval_shape(run, np.zeros(1000), *arguments)
    size = taken[0]

    def outcomes(points: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        found = []
        for start in range(0, len(points), BATCH):
            some = points[start : start + BATCH]
            batch = np.zeros((BATCH, size))
            batch[: len(some)] = some
            found.append(np.asarray(many(batch, *rest))[: len(some)])
        return np.concatenate(found)

    return outcomes, size


def _breaks(outcomes, size: int, grid: int, keep: int = 8) -> list[np.ndarray]:
    """Where the outcome changes along each uniform, the others held at a few values."""
    held = np.random.default_rng(0).random((keep, size))

    def at(axis: np.ndarray, place: np.ndarray) -> np.ndarray:
        points = np.repeat(held[None], len(axis), 0)
        points[np.arange(len(axis)), :, axis] = place[:, None]
        return outcomes(points.reshape(-1, size)).reshape(len(axis), -1)

    places = np.append(np.arange(grid) / grid, LAST)
    axis = np.repeat(np.arange(size), grid + 1)
    found = at(axis, np.tile(places, size)).reshape(size, grid + 1, -1)
    axis, low = np.nonzero((found[:, 1:] != found[:, :-1]).any(-1))
    low, high = places[low], places[low + 1]
    breaks: list[list[float]] = [[] for _ in range(size)]
    while len(axis):
        first, far = at(axis, low), high.copy()
        while ((high - low) > 2.0**-53).any():
            middle = (low + high) / 2
            stuck = (middle <= low) | (middle >= high)
            if stuck.all():
                break
            same = (at(axis, middle) == first).all(1)
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        for a, place in zip(axis, high, strict=True):
            breaks[a].append(place)
        # An interval may hold several breaks: go on behind the one just found.
        more = (at(axis, high) != at(axis, far)).any(1)
        axis, low, high = axis[more], high[more], far[more]
    return [np.unique(b) for b in breaks]


@functools.cache
def _law(
    name: str, expected: bytes, n: int, order: bytes, permutation: bytes, of: bytes, sizes: bytes
) -> Law:
    arguments = (
        np.frombuffer(expected),
        np.frombuffer(order, np.int64),
        np.frombuffer(permutation, np.uint32),
    )
    cells = len(arguments[0])
    folds = (np.frombuffer(of, np.int32), np.frombuffer(sizes, np.int64))
    if of:
        arguments += folds
    run, size = _sampler(name, cells, n, len(folds[1]))

    def outcomes(points: np.ndarray) -> np.ndarray:
        return run(points, *arguments)

    for grid in (128, 4096):
        breaks = _breaks(outcomes, size, grid)
        edges = [np.concatenate([[0.0], b, [1.0]]) for b in breaks]
        middles = [(e[1:] + e[:-1]) / 2 for e in edges]
        points = np.array(list(itertools.product(*middles)))
        weight = functools.reduce(np.multiply.outer, [np.diff(e) for e in edges]).reshape(-1)
        found = outcomes(points)
        # The pieces are a grid: no outcome may change inside one.
        probe = np.random.default_rng(1).random((1000, size))
        where = [np.searchsorted(b, probe[:, i], side="right") for i, b in enumerate(breaks)]
        flat = np.ravel_multi_index(where, [len(m) for m in middles])
        if np.array_equal(outcomes(probe), found[flat]):
            break
    else:
        pytest.fail(f"{name}: the pieces of its law were not found")
    distinct, which = np.unique(np.sort(found, 1), axis=0, return_inverse=True)
    probability = np.bincount(which.reshape(-1), weight)
    return Law(distinct.astype(np.int64), probability)


@pytest.fixture(scope="session")
def draws_law():
    """``(sampler, expected, n, order=, permutation=, folds=)`` to the exact `Law`.

    `folds` is the fold of each cell and the draws of each fold, for a round drawn by fold.
    """

    @in_float64
    def law(name, expected, n, *, order=None, permutation=None, folds=None) -> Law:
        cells = len(expected)
        padded = 1 << max(1, (cells - 1).bit_length())
        of, sizes = ([], []) if folds is None else folds
        if order is None or not len(order):
            order = np.argsort(of, kind="stable") if len(of) else np.arange(cells)
        permutation = np.arange(padded) if permutation is None else permutation
        return _law(
            name,
            np.asarray(expected, np.float64).tobytes(),
            n,
            np.asarray(order, np.int64).tobytes(),
            np.asarray(permutation, np.uint32).tobytes(),
            np.asarray(of, np.int32).tobytes(),
            np.asarray(sizes, np.int64).tobytes(),
        )

    return law


@pytest.fixture(scope="session")
def expected_counts():
    """``(sampler, q, n)`` to E, in NumPy."""

    @functools.partial(jax.jit, static_argnames="name")
    def compiled(q, n, *, name):
        return samplers.SAMPLERS[name].expected(q, n)

    @in_float64
    def expected(name, q, n) -> np.ndarray:
        return np.asarray(compiled(jnp.asarray(q, jnp.float64), n, name=name))

    return expected


#: Runs, measure and true utility by cell of each tiny pool.
POOLS = {
    # Two systems that agree on one of three cells.
    "agree": (
        {"a": {"q": {"d1": 9, "d2": 8}}, "b": {"q": {"d1": 9, "d3": 8}}},
        "DCG@2",
        (0.7, 1.0, 4.0),
    ),
    # Three systems, one of which leaves a query unanswered.
    "missed": (
        {
            "a": {"1": {"d1": 2, "d2": 1}, "2": {"d1": 1}},
            "b": {"1": {"d2": 2, "d1": 1}},
            "c": {"1": {"d3": 5}, "2": {"d1": 1}},
        },
        "DCG@3",
        (1.0, 0.0, 3.0, 2.0),
    ),
    # Scores tie (broken by document id), one document has no utility, weights differ a lot.
    "ties": (
        {
            "a": {"1": {"d1": 1, "d2": 1, "d3": 1}, "2": {"e1": 1, "e2": 1}},
            "b": {"1": {"d3": 2, "d2": 1}, "2": {"e1": 3, "e2": 2}},
            "c": {"1": {"d1": 5, "d3": 3}, "2": {"e2": 1}},
        },
        "RBP(p=0.5)",
        (1.0, 0.25, 0.0, 3.0, 0.5),
    ),
    # Three systems with one common cell of weight 0.1, two of them identical.
    "twins": (
        {
            "a": {"1": {"d1": 9, "d2": 8}, "2": {"e1": 7, "e2": 3}},
            "b": {"1": {"d1": 9, "d2": 8}, "2": {"e1": 7, "e2": 3}},
            "c": {"1": {"d1": 9, "d3": 8}, "2": {"e3": 7, "e1": 3}},
        },
        "P@5",
        (1.0, 0.5, 0.0, 1.0, 2.0, 1.0),
    ),
}


@functools.cache
def _tiny(name: str):
    runs, measure, utility = POOLS[name]
    pooled = pool(read_runs(runs))
    assert len(pooled) == len(utility)
    return target(pooled, measure), np.array(utility)


@pytest.fixture(scope="session")
def tiny():
    """``(name)`` to the target and the true utility of a tiny pool."""
    return _tiny


@pytest.fixture(scope="session")
def made_folder(tmp_path_factory):
    """``(seed)`` to a folder with made runs and judgments of a dozen queries, to be read only."""

    @functools.cache
    def make(seed):
        folder = tmp_path_factory.mktemp("made")
        make_collection(folder, seed=seed, n_queries=12, n_documents=150)
        return folder

    return make


@pytest.fixture(scope="session")
def made_target(made_folder):
    """``(seed)`` to the target and the true utilities of `made_folder`."""

    @functools.cache
    def make(seed):
        qrels = read_qrels(made_folder(seed) / "qrels.txt")
        runs = read_runs(made_folder(seed) / "runs")
        found = target(pool(runs, depth=20, queries=qrels.queries.to_pylist()), "DCG@20")
        return found, np.nan_to_num(judged_utility(found.pool, qrels, found.measure))

    return make


#: Ways in which a file is lost or spoiled.
DAMAGE = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\x00garb\xff"),
    "list": lambda path: path.write_bytes(b"[]"),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
}


@pytest.fixture(params=DAMAGE)
def damage(request):
    """Each way in which a file may be damaged: its name, and ``(path)`` that does it."""
    return request.param, DAMAGE[request.param]


@pytest.fixture(scope="session")
def make_goal():
    """``(target, kind)`` to a goal; ``own`` is a contrast of one's own with importances."""

    def make(on, kind):
        first, second = on.systems[0], on.systems[-1]
        k = len(on.systems)
        if kind == "own":
            matrix = [[1.0, *[-1.0 / (k - 1)] * (k - 1)], [0.5, *[0.25] * (k - 1)]]
            return goals.contrast(on, np.array(matrix), importance=[1.0, 3.0])
        if kind == "pair":
            return goals.pair(on, first, second)
        return goals.goal(on, kind, system=second if kind == "baseline" else None)

    return make


@pytest.fixture(scope="session")
def line_target():
    """``(weights)`` to a target of one query whose system j weighs cell c with weights[j, c]."""

    def make(weights):
        weights = np.atleast_2d(np.asarray(weights, np.float64))
        k, cells = weights.shape
        runs = {f"s{j}": {"q": {f"d{c:04}": cells - c for c in range(cells)}} for j in range(k)}
        pooled = pool(read_runs(runs))
        return targets.Target(pooled, target(pooled, "DCG").measure, weights.T.reshape(-1).copy())

    return make
