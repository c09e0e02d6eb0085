"""AP and nDCG from few judgments: error beside uniform and statAP-like sampling at the same cost.

    python tests/benchmarks/ratios.py [--replications 40] [--sizes .05 .1] [--systems 20] [--seed 0]
                                      [--methods statAP "two rounds"]

On TREC-8, 20 of 71 runs at depth 100, drawn by the seed. Each method draws n pairs, given as a
number or as a share of the pool; what is to be met is the value that all judgments of the pool
give. Errors are of all differences of two systems.

- infAP: uniform draws without replacement, and trec_eval's ``infAP`` (through pytrec_eval).
- uniform: the same draws, the ratio of Horvitz-Thompson sums.
- statAP: draws with the prior of statAP, the same share for each query, the same ratio.
- evenhand: `evenhand.nonlinear.ratios`, one round, and two or four that learn from those before.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
from scipy import stats

from evenhand.decisions.steering import known_utilities, steered
from evenhand.designs.proposals import Design, design
from evenhand.designs.utilities import judged_utility, rank_utility
from evenhand.estimands import goals, targets
from evenhand.estimands.pools import Pool, pool
from evenhand.estimation.cross_fitting import control_variates, labels
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.nonlinear.design_goals import expected_goal, guessed
from evenhand.nonlinear.gradients import Levels, gradient
from evenhand.nonlinear.ratios import estimate_ratio
from evenhand.priors.features import feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import draw

try:
    import pytrec_eval
except ImportError:
    pytrec_eval = None

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "trec8-adhoc"
DEPTH = 100


def stat_ap(cells: Pool) -> np.ndarray:
    """The prior of statAP: mean over systems of 1 + 1/r + ... + 1/depth, each query alike."""
    tail = np.cumsum(1.0 / np.arange(DEPTH, 0, -1))[::-1]
    mass = np.add.reduceat(1.0 + tail[cells.rank - 1], cells.start[:-1])
    total = np.bincount(cells.query, mass)
    return mass / total[cells.query] / len(total)


def inferred(cells: Pool, runs: dict, utility: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """trec_eval's infAP: pooled documents that were not drawn have the grade -1."""
    grade = np.full(len(cells), -1)
    grade[drawn] = utility[drawn]
    qrels: dict[str, dict[str, int]] = {}
    for query, document, g in zip(*cells.names(np.arange(len(cells))), grade.tolist(), strict=True):
        qrels.setdefault(query, {})[document] = g
    judge = pytrec_eval.RelevanceEvaluator(qrels, {"infAP"})
    values = []
    for name in cells.systems:
        found = judge.evaluate(runs[name])
        values.append(sum(one["infAP"] for one in found.values()) / len(cells.queries))
    return np.array(values)


def ranked(cells: Pool) -> dict[str, dict[str, dict[str, float]]]:
    """The lists as pytrec_eval takes them, scored by rank."""
    queries, documents = cells.names(cells.cell)
    found: dict = {name: {} for name in cells.systems}
    for system, query, document, rank in zip(
        cells.system.tolist(), queries, documents, cells.rank.tolist(), strict=True
    ):
        found[cells.systems[system]].setdefault(query, {})[document] = float(-rank)
    return found


def parts(n: int, rounds: int) -> list[int]:
    """So many draws, as even as can be."""
    return [n * (k + 1) // rounds - n * k // rounds for k in range(rounds)]


def methods(goal: goals.Goal, utility: np.ndarray) -> dict[str, Callable]:
    """Name of each method to what it makes of a key and a number of draws: value, covers."""
    cells = goal.target.pool
    linear = expected_goal(goal, guessed(cells, 1.0))
    uniform = design(linear, rank_utility(cells), kind="uniform", floor=0)
    prior = NumPyroPrior(feature_table(cells, {}))
    lists = ranked(cells)

    def plain(made: Design, correct: bool = False):
        def one(key, n):
            sample = draw(key, made, n)
            return estimate_ratio(goal, [Round(sample, utility[sample.draws])], correct=correct)

        return one

    def ours(key, n, sizes):
        rounds: list[Round] = []
        made, known = design(linear, rank_utility(cells)), None
        for number, size in enumerate(sizes(n)):
            if rounds:
                known = known_utilities(rounds, len(cells))
                posterior = prior.fit([labels(rounds)])[0]
                mean = posterior.predict(np.arange(len(cells))).mean
                mean = np.where(np.isfinite(known), known, mean)
                expected = expected_goal(goal, mean)
                made, _ = steered(expected, posterior, known=np.isfinite(known))
            sample = draw(jax.random.fold_in(key, number), made, size)
            past = tuple(one.name for one in rounds)
            rounds.append(Round(sample, utility[sample.draws], past, str(number), known=known))
        controls = control_variates(prior, linear, rounds)
        return estimate_ratio(goal, rounds, controls=controls, planned=sizes(n))

    def infer(key, n):
        return inferred(cells, lists, utility, draw(key, uniform, n).draws)

    found = {"uniform": plain(uniform), "statAP": plain(replace(uniform, q=stat_ap(cells)))}
    if pytrec_eval is not None and str(goal.target.measure).startswith("AP"):
        found["infAP"] = infer
    return {
        **found,
        "one round": partial(ours, sizes=lambda n: [n]),
        "two rounds": partial(ours, sizes=lambda n: parts(n, 2)),
        "four rounds": partial(ours, sizes=lambda n: parts(n, 4)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--systems", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the sample of systems")
    parser.add_argument("--measures", nargs="+", default=["AP@100", "nDCG@10"])
    parser.add_argument("--methods", nargs="+", help="only these")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    judged = (DATA / "judged-runs.txt").read_text().split()
    names = np.random.default_rng(options.seed).choice(judged, options.systems, replace=False)
    qrels = read_qrels(DATA / "qrels.trec8.adhoc.gz")
    runs = read_runs(DATA / "runs-top100").select(sorted(names))
    cells = pool(runs, depth=DEPTH, queries=qrels.queries.to_pylist())
    x, y = np.triu_indices(options.systems, 1)
    print(f"{len(cells):,} pairs, {options.replications} replications")
    heads = ("rmse", "se", "bias", "tau", "covered", "width")
    print(f"{'measure':<10}{'n':>6} {'method':<12}" + "".join(f"{h:>9}" for h in heads))
    for name in options.measures:
        base = targets.target(cells, name)
        goal = goals.rank(base)
        utility = np.nan_to_num(judged_utility(cells, qrels, base.measure))
        truth = gradient(cells, base.measure, Levels(np.ones(1), utility[:, None])).value
        aim = truth[x] - truth[y]
        for size in options.sizes:
            n = round(size * len(cells) if size < 1 else size)
            for method, made in methods(goal, utility).items():
                if options.methods and method not in options.methods:
                    continue
                value, covered, width = [], [], []
                for key in jax.random.split(jax.random.key(n), options.replications):
                    found = made(key, n)
                    if isinstance(found, np.ndarray):
                        value.append(found)
                        continue
                    value.append(found.value)
                    pairs = found.pairs
                    covered.append(((pairs.low <= aim) & (aim <= pairs.high)).mean())
                    width.append((pairs.high - pairs.low).mean())
                value = np.array(value)
                error = ((value[:, x] - value[:, y] - aim) ** 2).mean(1)
                rmse = np.sqrt(error.mean())
                tau = np.mean([stats.kendalltau(v, truth)[0] for v in value])
                shown = (
                    rmse,
                    error.std() / np.sqrt(len(error)) / 2 / rmse,
                    (value - truth).mean(),
                    tau,
                    np.mean(covered) if covered else np.nan,
                    np.mean(width) if width else np.nan,
                )
                print(
                    f"{name:<10}{n:>6} {method:<12}" + "".join(f"{v:>9.4f}" for v in shown),
                    flush=True,
                )


if __name__ == "__main__":
    main()
