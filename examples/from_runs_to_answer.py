"""Which of seven systems is best? From runs to an answer, step by step, on made data.

Run it as it is, or cell by cell in an editor that knows ``# %%``. ``--fast`` makes it smaller.
"""

# %% Made data: runs in TREC format, and complete judgments that a real study would not have.
import argparse
import tempfile
from pathlib import Path

import jax
import numpy as np

import evenhand as eh
from evenhand.simulation import make_collection

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--fast", action="store_true", help="a smaller collection, fewer replications")
fast = parser.parse_args().fast

folder = Path(tempfile.mkdtemp())
make_collection(folder, seed=0, n_queries=15 if fast else 50, n_documents=150 if fast else 400)
runs = eh.read_runs(folder / "runs")
qrels = eh.read_qrels(folder / "qrels.txt")

# %% The pairs that any system returns in its first 20, and each system's weights over them.
pool = eh.pool(runs, depth=20, queries=qrels.queries.to_pylist())
target = eh.target(pool, "DCG@20")
print(pool)

# %% The question: each system against the mean of all. The design: where a judgment tells most.
goal = eh.rank(target)
design = eh.design(goal, eh.rank_utility(pool))
print(design)

# %% 200 distinct pairs are judged, and every system is estimated without bias.
sample = eh.draw(jax.random.key(1), design, 200)
answer = eh.estimate(goal, [eh.judge(target, sample, qrels)])
print(answer)

# %% Which differences are decided, all of them taken together?
decided = answer.pairs.to_frame().query("decided == 'yes'")
print(decided.to_string(index=False))

# %% What would other designs have cost? Replicated studies against the complete judgments.
from evenhand.simulation.simulations import simulate_runs  # noqa: E402

table = simulate_runs(
    runs,
    qrels,
    "DCG@20",
    budgets=[100, 200],
    designs=["naive", "flat", "rank"],
    replications=50 if fast else 1000,
)
print(table)
best = min(table.rows, key=lambda row: row["rmse"])
print(
    f"least error: {best['design']} with {best['budget']} pairs, RMSE {np.round(best['rmse'], 3)}"
)
