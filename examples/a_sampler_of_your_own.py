"""A sampler of your own, in one entry of `SAMPLERS`: systematic sampling after a shuffle.

One uniform places n equally spaced points on the line of inclusion probabilities, in random order.
Every design, estimator and study then knows it by its name. ``--fast`` replicates it less often.
"""

# %% What a sampler must answer: expected counts, draws, residuals of its variance.
import argparse

import jax
import jax.numpy as jnp
import numpy as np

import evenhand as eh
from evenhand.sampling import SAMPLERS, Sampler, algorithms, variance

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--fast", action="store_true", help="fewer replications")
given = parser.parse_args()


def systematic(key, expected, n, order, folds):
    """Points u, u + 1, ..., u + n - 1 on the line; each fold has a u of its own."""
    key_order, key_start = jax.random.split(key)
    shuffled = algorithms.shuffle(key_order, expected.shape[0])
    starts, of_point = jax.random.uniform(key_start, (1,)), jnp.zeros(n, int)
    if folds is not None:
        shuffled = algorithms.fold_by_fold(shuffled, folds)
        of_point = jnp.searchsorted(jnp.cumsum(folds.sizes), jnp.arange(n), side="right")
        starts = jax.random.uniform(key_start, folds.sizes.shape)
    mass = expected.at[shuffled].get(mode="fill", fill_value=0.0)
    points = jnp.arange(n) + starts[of_point]
    line = algorithms.cumulate(mass) * n
    return shuffled[jnp.searchsorted(line, points, side="right")].astype(int)


SAMPLERS["systematic"] = Sampler(
    "systematic",
    algorithms.water_fill,  # inclusion probabilities min(1, kappa q)
    systematic,
    variance.without_replacement,  # as if drawn with the highest entropy: the shuffle's variance
    variance.unsure,
    repeats=False,
)

# %% Its estimates are unbiased, and its intervals cover: replicated on 200 pairs.
rng = np.random.default_rng(0)
runs = {s: {f"q{q}": {f"d{d}": rng.random() for d in range(10)} for q in range(20)} for s in "ab"}
goal = eh.pair(eh.target(eh.pool(eh.read_runs(runs)), "P@5"), "a", "b")
found = eh.simulate(
    goal,
    (rng.random(len(goal.target.pool)) < 0.3) * 1.0,
    budgets=[60],
    samplers=["systematic", "distinct"],
    replications=100 if given.fast else 2000,
)
print(found)

# %% To prove it for good, add its name to `SAMPLERS` of tests/sampling/test_samplers.py.
