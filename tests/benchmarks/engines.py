"""A design and a draw inside DuckDB, beside the same in memory: seconds, and the peak of memory.

    python tests/benchmarks/engines.py [--systems 20] [--queries 10000] [--documents 50]
        [--draws 5000] [--limit 500MB]

Made runs lie in one Parquet file of a row an entry; three quarters of a list are documents that
others return too. Each way runs in a process of its own, so that the peak of its memory is its own,
and reads the file itself. Both say how many pairs there are and what they drew.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = ("engine", "memory")


def make(path: Path, systems: int, queries: int, documents: int) -> None:
    """Runs whose lists are stretches of one long list a query, with documents of their own."""
    import duckdb

    duckdb.sql(
        f"""
        copy (
            select
                's' || s as system,
                'q' || q as query,
                case when hash(s, q, r) % 4 > 0 then 'd' || q || '-' || (r + hash(s, q) % 25)
                else 'd' || q || '-' || s || '.' || r end as document,
                100.0 - r as score
            from range({systems}) a(s), range({queries}) b(q), range({documents}) c(r)
        ) to '{path}' (format parquet)
        """
    )


def one_way(way: str, path: str, documents: int, n: int, limit: str | None) -> None:
    """Design and draw, and print what it took."""
    import jax

    import evenhand as eh

    begin, measure = time.perf_counter(), f"DCG@{documents}"
    if way == "engine":
        import duckdb

        from evenhand import engines

        if limit:
            duckdb.sql(f"set memory_limit = '{limit}'")
        found = engines.excerpt(jax.random.key(0), duckdb.read_parquet(path), measure, n)
        cells, drawn = found.n_cells, len(found.sample.cells)
    else:
        pool = eh.pool(eh.read_runs(path), depth=documents)
        design = eh.design(eh.rank(eh.target(pool, measure)), eh.rank_utility(pool))
        cells, drawn = len(pool), len(eh.draw(jax.random.key(0), design, n).cells)
    seconds, used = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    busy, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20
    took = f"{seconds:>8.1f} s, {busy:>6.1f} s of processors, {peak:.2f} GiB"
    print(f"{way:<8}{cells:>12,} pairs{drawn:>8,} drawn{took}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", type=int, default=20)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=50)
    parser.add_argument("--draws", type=int, default=5_000)
    parser.add_argument("--limit", help="memory that DuckDB may use before it spills, as 500MB")
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        one_way(*options.only, options.documents, options.draws, options.limit)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.parquet"
        make(path, options.systems, options.queries, options.documents)
        rest = sys.argv[1:]
        for way in WAYS:
            subprocess.run([sys.executable, __file__, *rest, "--only", way, str(path)], check=True)


if __name__ == "__main__":
    main()
