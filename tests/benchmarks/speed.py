"""One table of what the library takes: time beside a peer's, bytes beside the memory's speed.

    python tests/benchmarks/speed.py [--sizes toy TREC large] [--device cpu] [--json FILE]
        [--against FILE]

=======  =======================================  ======================
size     runs (systems x queries x documents)     cells of the pool
=======  =======================================  ======================
toy      5 x 10 x 20                              of these runs
TREC     71 x 50 x 100                            of these runs
large    100 x 50 x 1000                          of these runs
wide     none: a pool is made                     10^7, of 20 systems
=======  =======================================  ======================

10^8 entries, by the command line, have a script of their own, `web.py`.

Each size runs in a process of its own, so that the peak of its memory is its own. `first` is the
first call, which compiles; `best`, the best of later ones. Peers: bare pyarrow for reading (the
least that anything must do that pools files), plain NumPy elsewhere. `floor` is how often the step
could read and write its bytes as fast as this memory copies. --against tells how much faster or
slower an earlier table was; compare tables of one machine only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SIZES = {"toy": (5, 10, 20), "TREC": (71, 50, 100), "large": (100, 50, 1000), "wide": None}
WIDE = (10_000_000, 20)


def copy_speed() -> float:
    """Bytes a second that a large copy reads and writes."""
    source = np.ones(1 << 25)
    aim, times = np.empty_like(source), []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(aim, source)
        times.append(time.perf_counter() - start)
    return 2 * source.nbytes / min(times)


def best(function, repeats: int = 3) -> tuple[float, float]:
    """Seconds of the first call, and the best of later ones."""
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return times[0], min(times[1:])


def steps(size: str) -> Iterator:
    """Every step of one size."""
    import jax
    import numerics
    from prior import made_labels, plain_fit, plain_predict
    from reading import bare, make, pooled

    from evenhand.estimands import targets
    from evenhand.estimands.evaluation import evaluate
    from evenhand.estimands.pools import pool
    from evenhand.formats.qrels import read_qrels
    from evenhand.formats.runs import read_runs
    from evenhand.priors.features import feature_table
    from evenhand.priors.prior import NumPyroPrior

    jax.config.update("jax_enable_x64", True)
    shape, timed = SIZES[size], numerics.Timed
    if shape is None:
        target = numerics.made_target(*WIDE)
    else:
        with tempfile.TemporaryDirectory() as folder:
            paths = make(Path(folder), *shape)
            reading = best(lambda: pooled(folder))
            yield timed("read and pool", *reading, best(lambda: bare(paths))[1])
            runs = read_runs(folder)
        cells = pool(runs, depth=100 if shape[2] > 100 else None)
        queries, documents = cells.names(np.arange(0, len(cells), 7))
        qrels: dict[str, dict[str, int]] = {}
        for place, (query, document) in enumerate(zip(queries, documents, strict=True)):
            qrels.setdefault(query, {})[document] = int(place % 5 == 0)
        whole, loaded = pool(runs), read_qrels(qrels)
        utility = np.zeros(len(whole))
        utility[:: max(len(whole) // 1000, 1)] = 1.0
        weights = [(whole.rank <= 10) / 10.0, np.where(whole.rank <= 100, 1.0, 0.0)]
        weights[1] /= np.log2(1.0 + whole.rank)
        number = whole.system.astype(np.int64) * len(whole.queries) + whole.query[whole.cell]
        yield timed(
            "evaluate P@10, DCG@100",
            *best(lambda: evaluate(whole, loaded, ["P@10", "DCG@100"])),
            best(lambda: [np.bincount(number, w * utility[whole.cell]) for w in weights])[1],
        )
        target = targets.target(cells, numerics.MEASURE)
    n_cells = len(target.pool)
    yield from numerics.large(target, min(2000, n_cells // 4))
    if size != "wide":
        table = feature_table(target.pool)
        labels, prior = made_labels(table, min(2000, n_cells // 2)), NumPyroPrior(table)
        every = np.arange(n_cells)
        yield timed(
            f"fit {len(labels):,}",
            *best(lambda: prior.fit([labels])),
            best(lambda: plain_fit(table, labels))[1],
        )
        posterior, plain = prior.fit([labels])[0], plain_fit(table, labels)
        yield timed(
            "predict",
            *best(lambda: posterior.predict(every)),
            best(lambda: plain_predict(table, plain, every))[1],
        )
    if size == "TREC":
        yield from numerics.replicated(10_000)


def one_size(size: str) -> None:
    """Print the rows of one size as JSON, a line each."""
    speed = copy_speed()
    for one in steps(size):
        row = one._asdict() | {
            "size": size,
            "ratio": one.plain / one.best,
            "floor": one.best / (one.bytes / speed) if one.bytes else float("nan"),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        print(json.dumps(row), flush=True)


def shown(row: dict, before: dict[tuple[str, str], float]) -> str:
    """A line of the table."""

    def cell(value: float, form: str, unit: str = "") -> str:
        return f"{'' if np.isnan(value) else format(value, form) + unit:>9}"

    earlier = before.get((row["size"], row["step"]), float("nan"))
    return (
        f"{row['size']:<6}{row['step']:<26}{row['first']:>9.3f}{row['best']:>9.4f}"
        + cell(row["plain"], ".4f")
        + cell(row["ratio"], ".2f", "x")
        + cell(row["floor"], ".1f", "x")
        + f"{row['peak_mb']:>9,.0f}"
        + (cell(earlier / row["best"], ".2f", "x") if before else "")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["toy", "TREC", "large"])
    parser.add_argument("--device", default="cpu", help="of JAX: cpu, gpu, ...")
    parser.add_argument("--json", type=Path, help="where to write the table, too")
    parser.add_argument("--against", type=Path, help="an earlier --json, to compare with")
    parser.add_argument("--only", choices=SIZES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        one_size(options.only)
        return
    before: dict[tuple[str, str], float] = {}
    if options.against:
        rows = json.loads(options.against.read_text())["rows"]
        before = {(row["size"], row["step"]): row["best"] for row in rows}
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    heads = [
        "first s",
        "best s",
        "peer s",
        "ratio",
        "floor",
        "peak MB",
        *(["before"] * bool(before)),
    ]
    print(f"{'size':<6}{'step':<26}" + "".join(f"{h:>9}" for h in heads))
    rows = []
    for size in options.sizes:
        command = [sys.executable, __file__, "--only", size]
        settings = os.environ | {"JAX_PLATFORMS": options.device.replace("gpu", "cuda")}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings) as run:
            assert run.stdout is not None
            for line in run.stdout:
                rows.append(json.loads(line))
                print(shown(rows[-1], before), flush=True)
        if run.returncode:
            sys.exit(run.returncode)
    if options.json:
        machine = {"machine": platform.platform(), "device": options.device}
        options.json.write_text(json.dumps(machine | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
