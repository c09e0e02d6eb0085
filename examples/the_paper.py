"""The source paper, section by section, on its own data set made small; then its tables.

Schnabel, Swaminathan, Frazier and Joachims, *Unbiased Comparative Evaluation of Ranking Functions*,
ICTIR 2016. Run it as it is, or cell by cell in an editor that knows ``# %%``. ``--fast`` makes data
and replications fewer.
"""

# %% Section 7.1: SYNTH. Users rate items 0 to 4; five systems rank them, OPT by the true rating.
import argparse

import jax
import numpy as np

import evenhand as eh
from evenhand.paper import opt, reproduce_synth, rev, shift, synth

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--fast", action="store_true", help="less data, fewer replications")
fast = parser.parse_args().fast

USERS, ITEMS = (15, 100) if fast else (60, 300)
REPLICATIONS = 200 if fast else 2000
SYSTEMS = {
    "OPT": opt,
    "REV-10": rev(10),
    "REV-20": rev(20),
    "SHIFT-3": shift(3),
    "SHIFT-7": shift(7),
}

ratings = synth(jax.random.key(0), users=USERS, items=ITEMS).ratings
rank = np.arange(1, ITEMS + 1)
runs = eh.read_runs(
    {
        name: {
            f"user{x}": {f"i{r}": -float(ranks(rank)[r - 1]) for r in rank} for x in range(USERS)
        }
        for name, ranks in SYSTEMS.items()
    }
)
qrels = eh.read_qrels(
    {f"user{x}": {f"i{r}": int(ratings[x, r - 1]) for r in rank} for x in range(USERS)}
)
print(runs)

# %% Section 3.1: a measure is a sum of weight x utility over query-document pairs.
pool = eh.pool(runs, depth=ITEMS)
target = eh.target(pool, f"DCG(log='e')@{ITEMS}")
truth = eh.evaluate(runs, qrels, f"DCG(log='e')@{ITEMS}")
print(truth)

# %% Section 3.3: from judgments drawn with known probability, an unbiased estimate. One system:
one = runs.select(["OPT"])
one_target = eh.target(eh.pool(one, depth=ITEMS), target.measure)
goal = eh.absolute(one_target)
design = eh.design(goal, eh.rank_utility(one_target.pool), floor=0.0)
sample = eh.draw(jax.random.key(1), design, 5 * USERS, sampler="iid")
answer = eh.estimate(goal, [eh.judge(one_target, sample, qrels)])
print(answer)

# %% Section 3.4: the design decides the error. Q*, Q^P (no utilities known) and uniform draws:
from evenhand.simulation.simulations import simulate_runs  # noqa: E402

options = {"budgets": [5 * USERS], "samplers": ["iid"], "replications": REPLICATIONS}
single = simulate_runs(
    one,
    qrels,
    target.measure,
    goal="absolute",
    designs=["rank", "flat", "uniform"],
    floor=0.0,
    **options,
)
print(single)

# %% Section 3.5, noise and reuse: the theory is about E[r^2], and a floor keeps draws reusable.
reusable = eh.design(eh.rank(target), eh.rank_utility(pool), floor=0.1)
weights = target.weights(np.arange(len(pool)))
print(f"{reusable}: largest weight / q is {(weights.max(1) / reusable.q).max():.3g}")

# %% Section 4: two systems. Where both rank alike nothing is drawn.
two = runs.select(["REV-10", "REV-20"])
two_target = eh.target(eh.pool(two, depth=ITEMS), target.measure)
pair = eh.design(eh.pair(two_target), eh.rank_utility(two_target.pool), floor=0.0)
print(f"{pair}: the other pairs cannot tell these two apart")
compared = simulate_runs(
    two, qrels, target.measure, goal="pair", designs=["naive", "rank"], **options
)
print(compared)

# %% Section 5: several systems against a baseline.
against = simulate_runs(
    runs,
    qrels,
    target.measure,
    goal="baseline",
    baseline="SHIFT-3",
    designs=["naive", "rank"],
    **options,
)
print(against.tables()[0].to_text())

# %% Section 6: ranking. The best to compare every system with is the mean of all.
ranked = simulate_runs(
    runs, qrels, target.measure, goal="rank", designs=["naive", "rank"], **options
)
print(ranked.tables()[0].to_text())

# %% Section 7: its tables and figures at full size, each number beside the exact one.
found = reproduce_synth(fast=fast)
for table in found.tables()[: 3 if fast else None]:
    print(table.to_text(), end="\n\n")
print("\n".join(found.notes_shown()))
