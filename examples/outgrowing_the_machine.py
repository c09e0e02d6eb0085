"""Runs that stay in a database: designed and drawn there, and only the draws come back.

Made data in a Parquet file, in DuckDB; a frame of PySpark goes in the same way. Run it as it is, or
with your own entries (columns system, query, document, score)::

    python examples/outgrowing_the_machine.py entries.parquet --measure DCG@10 --draws 500
"""

# %% Made entries, unless yours are given: one row for each document that a system returned.
import argparse
import tempfile
from pathlib import Path

import duckdb
import jax

import evenhand as eh
from evenhand import engines
from evenhand.simulation import make_collection

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("entries", nargs="?", help="a Parquet file, or a pattern of several")
parser.add_argument("--measure", default="DCG@20")
parser.add_argument("--draws", type=int, default=300)
parser.add_argument("--fast", action="store_true", help="a smaller collection")
options = parser.parse_args()

folder = Path(tempfile.mkdtemp())
if options.entries is None:
    size = {"n_queries": 15, "n_documents": 150} if options.fast else {}
    make_collection(folder, seed=0, **size)
    runs = eh.read_runs(folder / "runs")
    table = runs.to_frame()
    duckdb.from_df(table).write_parquet(str(folder / "entries.parquet"))
    options.entries = str(folder / "entries.parquet")

# %% A recipe, not a table: nothing is read before it is asked for.
entries = duckdb.read_parquet(options.entries).select("system, query, document, score")

# %% Weights, contrasts, the proposal and the draw, all in the engine.
excerpt = engines.excerpt(jax.random.key(1), entries, options.measure, options.draws)
print(excerpt)

# %% What is to be judged.
queries, documents = excerpt.pairs()
for query, document in list(zip(queries, documents, strict=True))[:5]:
    print(f"{query}\t{document}\t?")

# %% Judged by complete judgments, which a real study would not have, and estimated as ever.
if (folder / "qrels.txt").exists():
    judged = excerpt.judge(eh.read_qrels(folder / "qrels.txt"))
    print(eh.estimate(excerpt.goal, [judged]))
    truth = eh.evaluate(runs, eh.read_qrels(folder / "qrels.txt"), [options.measure])
    print(truth)
