"""Time and peak memory of a whole study of many queries, by the command line, on files made here.

    python tests/benchmarks/web.py [--systems 20] [--queries 100000] [--depth 50] [--budget 2000]
        [--folder FOLDER]

With the defaults, 10^8 run entries (4 GB of text, made in FOLDER and kept there if it is given).
Each command is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

#: Documents of the collection, and those of a query that any system may return.
COLLECTION, CANDIDATES = 8_841_823, 120
#: Queries made at once.
CHUNK = 5_000


def make(folder: Path, systems: int, queries: int, depth: int) -> None:
    """Write a run a system; they share most documents of a query, and order them differently."""
    options = pacsv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    names = ["qid", "Q0", "docid", "rank", "score", "tag"]
    for j in range(systems):
        path, rank = folder / f"input.system{j:03}", np.tile(np.arange(1, depth + 1), CHUNK)
        schema = pa.schema(
            [*((n, pa.string()) for n in names[:3]), ("rank", pa.int64()), ("score", pa.float64())]
        ).append(pa.field("tag", pa.string()))
        with pacsv.CSVWriter(path, schema, write_options=options) as out:
            for first in range(0, queries, CHUNK):
                n = min(CHUNK, queries - first)
                shared, own = (
                    np.random.default_rng([1, first]),
                    np.random.default_rng([2, j, first]),
                )
                # Distinct in a query: one out of each stretch of the collection.
                stretch = COLLECTION // CANDIDATES
                documents = shared.integers(0, stretch, (n, CANDIDATES))
                documents += np.arange(CANDIDATES) * stretch
                merit = shared.gumbel(size=(n, CANDIDATES)) + 0.7 * own.normal(size=(n, CANDIDATES))
                best = np.argsort(-merit, axis=1)[:, :depth]
                found = np.take_along_axis(documents, best, 1).ravel()
                score = np.round(np.take_along_axis(merit, best, 1).ravel(), 6)
                query = np.repeat(np.arange(first, first + n), depth)
                rows = n * depth
                constant = [pa.repeat(text, rows) for text in ("Q0", f"system{j:03}")]
                text = [pc.cast(pa.array(x), pa.string()) for x in (query, found)]
                columns = [text[0], constant[0], text[1], rank[:rows], score, constant[1]]
                out.write_batch(pa.record_batch([pa.array(c) for c in columns], schema=schema))


def timed(*words: str) -> None:
    """Run one command, and tell its time and its peak."""
    program = "import resource, sys\nfrom evenhand.cli import main\ntry:\n    main(sys.argv[1:])\n"
    program += "finally:\n    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    program += "    print(f'peak {peak / 1e6:.2f} GB', file=sys.stderr)"
    start = time.perf_counter()
    told = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, env=os.environ
    )
    seconds = time.perf_counter() - start
    if told.returncode:
        sys.exit(told.stderr)
    print(f"{words[0]:<10}{seconds:>8.1f} s   {told.stderr.splitlines()[-1]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", type=int, default=20)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--budget", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="where to make the runs, and to leave them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        runs = (options.folder or Path(scratch)) / "runs"
        if not runs.exists():
            start = time.perf_counter()
            runs.mkdir(parents=True)
            make(runs, options.systems, options.queries, options.depth)
            print(f"{'made':<10}{time.perf_counter() - start:>8.1f} s")
        study = Path(scratch) / "study"
        timed("new", str(study), str(runs), "-m", f"DCG@{options.depth}", "--goal", "rank")
        timed("draw", str(study), "--budget", str(options.budget), "--seed", "1")
        todo = study / "round-001" / "to_judge.tsv"
        lines = todo.read_text().splitlines()
        rng = np.random.default_rng(3)
        judged = [f"{line.rstrip(chr(9))}\t{rng.integers(0, 2)}" for line in lines[1:]]
        (study / "judged.tsv").write_text("\n".join([lines[0], *judged]) + "\n")
        timed("judge", str(study), str(study / "judged.tsv"))
        timed("estimate", str(study))


if __name__ == "__main__":
    main()
