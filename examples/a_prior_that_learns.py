"""How much do studies save that learn from their own judgments? Replicated, on made data or yours.

``--runs`` and ``--qrels`` name your own files; ``--signals`` one more table of ``qid docid value``,
such as an LLM judge's labels, that the models may learn from. ``--fast`` makes it smaller.
"""

# %% The data: your own, or made, with labels of a predictor that is right about four times in five.
import argparse
import tempfile
from pathlib import Path

import numpy as np

import evenhand as eh
from evenhand.simulation import make_collection
from evenhand.simulation.simulations import simulate_runs

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--runs", help="a folder of runs")
parser.add_argument("--qrels", help="their complete judgments")
parser.add_argument("--signals", help="labels of a predictor")
parser.add_argument("-m", "--measure", default="DCG@20")
parser.add_argument("--fast", action="store_true", help="a smaller collection, few replications")
given = parser.parse_args()

if given.runs is None:
    folder = Path(tempfile.mkdtemp())
    make_collection(folder, seed=0, n_queries=15 if given.fast else 50)
    given.runs, given.qrels = folder / "runs", folder / "qrels.txt"
    truth = eh.read_qrels(given.qrels).to_frame()
    wrong = np.random.default_rng(0).random(len(truth)) < 0.2
    truth["grade"] = np.where(wrong, np.random.default_rng(1).permutation(truth.grade), truth.grade)
    labels = eh.read_qrels(truth)
else:
    labels = None if given.signals is None else eh.read_qrels(given.signals)

# %% One round, cross-fitted; two rounds, the second steered by what the first taught.
answer = simulate_runs(
    eh.read_runs(given.runs),
    eh.read_qrels(given.qrels),
    given.measure,
    budgets=[100] if given.fast else [100, 300],
    designs=["flat", "rank"],
    learn=[1, 2],
    replications=2 if given.fast else 40,
)
print(answer)

# %% The same with the predictor's labels as a signal: the models learn how far to trust them.
if labels is not None:
    answer = simulate_runs(
        eh.read_runs(given.runs),
        eh.read_qrels(given.qrels),
        given.measure,
        budgets=[100] if given.fast else [100, 300],
        designs=["rank"],
        learn=[1, 2],
        signals={"predictor": labels},
        replications=2 if given.fast else 40,
    )
    print(answer)
