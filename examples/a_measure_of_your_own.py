"""A kind of measure of your own, in one entry of `KINDS`: log DCG, whose differences are ratios.

    V_j = log U_j

of an unbiased sum U_j is not linear, but near the estimate of U_j it is, with weights w_c / U_j: so
`estimate` gives errors and intervals of "x % better". ``--fast`` takes fewer queries.
"""

# %% The measure weighs ranks and grades as DCG does.
import argparse
from dataclasses import dataclass, replace

import jax
import numpy as np

import evenhand as eh
from evenhand.estimands import Target
from evenhand.nonlinear import KINDS, Kind, kind_of

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--fast", action="store_true", help="fewer queries")
given = parser.parse_args()


@dataclass(frozen=True)
class LogDCG(eh.DCG): ...


# %% Its estimate: DCG first, then the linear measure near it, moved to V.
def estimate_log(goal, rounds, *, interval="auto", **options):
    target, cells = goal.target, np.arange(len(goal.target.pool))
    value = eh.estimate(goal, rounds, **options).value
    weights = target.weights(cells) / value
    near = replace(goal, target=Target.of_weights(target.pool, target.measure, weights))
    interval = "student" if interval == "auto" else interval
    plain = eh.estimate(near, rounds, interval=interval, bounded=False, **options)
    return plain.moved(np.log(value), plain.covered)


KINDS.insert(0, Kind(LogDCG, estimate_log))

# %% 250 judged pairs, then all of them: the difference is that of the logarithms.
rng = np.random.default_rng(0)
names = [f"q{q}" for q in range(15 if given.fast else 50)]
qrels = {q: {f"d{d}": int(rng.random() < 0.3) for d in range(30)} for q in names}
runs = {
    system: {q: {d: rng.random() + skill * r for d, r in of.items()} for q, of in qrels.items()}
    for system, skill in (("good", 0.8), ("poor", 0.2))
}
goal = eh.pair(eh.target(eh.pool(eh.read_runs(runs)), LogDCG(20)), "good", "poor")
design = eh.design(goal, eh.rank_utility(goal.target.pool))
for n in (250, np.count_nonzero(design.q)):
    sample = eh.draw(jax.random.key(0), design, n)
    judged = eh.judge(goal.target, sample, eh.read_qrels(qrels))
    found = kind_of(goal.target.measure).estimate(goal, [judged])
    low, mid, high = np.expm1([found.contrast_low, found.contrast, found.contrast_high])[:, 0]
    print(f"{found.n_judged} pairs judged: good is {mid:.0%} better ({low:.0%} to {high:.0%})")

# %% To prove it for good, add it to the measures of tests/nonlinear/test_kinds.py.
