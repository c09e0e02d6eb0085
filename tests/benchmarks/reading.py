"""Reading and pooling runs against bare pyarrow, in one process, on files made here.

    python tests/benchmarks/reading.py [--runs 100] [--queries 50] [--depth 1000] [--repeats 3]

"bare pyarrow" is `pyarrow.csv.read_csv` of each file and `dictionary_encode` of the query column,
the document column and their pairs over all files: the least that anything that pools such files
must do.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from evenhand.estimands.pools import pool
from evenhand.formats.runs import read_runs


def make(folder: Path, runs: int, queries: int, depth: int) -> list[Path]:
    """Write run files in which systems share most documents, each sorted by score."""
    rng = np.random.default_rng(20161003)
    pools = [
        np.char.add(
            np.char.add("FT", rng.integers(911, 945, 5 * depth).astype(str)),
            np.char.add("-", rng.permutation(10 * depth)[: 5 * depth].astype(str)),
        )
        for _ in range(queries)
    ]
    paths = []
    for run in range(runs):
        lines = []
        for query, documents_of in enumerate(pools):
            merit = (
                -np.log(rng.random(len(documents_of))) * np.arange(1, len(documents_of) + 1) ** 0.8
            )
            documents = documents_of[np.argsort(merit)[:depth]]
            scores = np.sort(rng.gamma(2.0, 5.0, depth))[::-1]
            lines += [
                f"{401 + query} Q0 {document} {rank} {score:.6f} system{run:03d}\n"
                for rank, (document, score) in enumerate(zip(documents, scores, strict=True), 1)
            ]
        path = folder / f"input.system{run:03d}"
        path.write_text("".join(lines))
        paths.append(path)
    return paths


def bare(paths: list[Path]) -> int:
    """Parse each file with pyarrow, and encode two columns."""
    names = ["qid", "Q0", "docid", "rank", "score", "tag"]
    tables = [
        pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(column_names=names),
            parse_options=pacsv.ParseOptions(delimiter=" "),
        )
        for path in paths
    ]
    table = pa.concat_tables(tables)
    query, document = (
        table[name].combine_chunks().dictionary_encode() for name in ("qid", "docid")
    )
    pairs = query.indices.to_numpy().astype(np.int64) * len(document.dictionary)
    pairs += document.indices.to_numpy()
    return len(pa.array(pairs).dictionary_encode().dictionary)


def pooled(folder: str) -> int:
    """Read all files and number their pairs."""
    return len(pool(read_runs(folder)))


def seconds(function, *arguments) -> tuple[float, float]:
    """Time one call: by the wall, and of all cores."""
    wall, cores = time.perf_counter(), time.process_time()
    function(*arguments)
    return time.perf_counter() - wall, time.process_time() - cores


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Reading runs against bare pyarrow.")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = make(Path(folder), options.runs, options.queries, options.depth)
        size = sum(path.stat().st_size for path in paths) / 1e6
        start = peak_gb()
        reading, pooling, ours_peak, theirs = [], [], 0.0, []
        for _ in range(options.repeats):
            pooling.append(seconds(pooled, folder))
            ours_peak = ours_peak or peak_gb()  # before bare pyarrow has run
            reading.append(seconds(read_runs, folder))
            theirs.append(seconds(bare, paths))
        print(read_runs(folder), f"{size:,.0f} MB in {len(paths)} files")
    print(f"{'':<14}{'median s':>10}{'min s':>10}{'max s':>10}{'median CPU s':>14}")
    medians = []
    for name, times in (
        ("read_runs", reading),
        ("and pool", pooling),
        ("bare pyarrow", theirs),
    ):
        wall, cores = zip(*times, strict=True)
        medians.append((statistics.median(wall), statistics.median(cores)))
        shown = "".join(f"{t:>10.2f}" for t in (medians[-1][0], min(wall), max(wall)))
        print(f"{name:<14}{shown}{medians[-1][1]:>14.2f}")
    wall, cores = (a / b for a, b in zip(*medians[1:], strict=True))
    print(f"read and pooled against bare: ratio {wall:.2f} by the wall, {cores:.2f} of CPU time")
    print(f"peak memory {ours_peak:.2f} GB, of it {start:.2f} GB before reading")


if __name__ == "__main__":
    main()
