"""An interval of your own, in one entry of `INTERVALS`: Chebyshev's, which knows no normal law.

Every estimate, study and adjusted comparison then knows it by its name. ``--fast`` replicates it
less often.
"""

# %% What an interval must answer: limits, and what stands for a standard error.
import argparse

import numpy as np

import evenhand as eh
from evenhand.intervals import INTERVALS, Interval

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--fast", action="store_true", help="fewer replications")
given = parser.parse_args()


def chebyshev(moments, level):
    """Estimate +- s / sqrt(1 - level), within what the contrast can be."""
    half = np.sqrt(moments.variance / (1.0 - level))
    low = np.maximum(moments.estimate - half, moments.floor)
    return low, np.minimum(moments.estimate + half, moments.ceiling)


INTERVALS["chebyshev"] = Interval("chebyshev", chebyshev, lambda m: np.sqrt(m.variance))

# %% One estimate with it, and how often it covers beside Student's: 600 pairs, a third relevant.
rng = np.random.default_rng(0)
runs = {s: {f"q{q}": {f"d{d}": rng.random() for d in range(20)} for q in range(30)} for s in "ab"}
goal = eh.pair(eh.target(eh.pool(eh.read_runs(runs)), "P@10"), "a", "b")
relevant = (rng.random(len(goal.target.pool)) < 0.3) * 1.0
times = 100 if given.fast else 2000
for name in ("chebyshev", "student"):
    (row,) = eh.simulate(goal, relevant, budgets=[80], interval=name, replications=times).rows
    print(f"{name}: covers {row['coverage']:.3f}, mean width {row['width']:.3f}")

# %% To prove it for good, add its name to the intervals of tests/intervals/test_intervals.py.
