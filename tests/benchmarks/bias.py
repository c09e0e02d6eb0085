"""The bias of ratios against the number of draws, with and without correction.

    python tests/benchmarks/bias.py [--replications 40] [--draws 10 20 40 80]

On TREC-8, 20 of 71 runs at depth 100, on the passages of TREC DL 2021, 20 of 63 runs at depth 100
with grades, and on a SYNTH of 50 users and 400 items. Draws are by query, on average. Beside the
mean error of the systems' values, its Monte Carlo error and the root mean square error stands how
often the intervals of systems cover.

- plain: the ratio of unbiased estimates; corrected: with its second-order bias taken off.
- steadied: with a cross-fitted model's predictions, corrected.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from population import ITEMS, of_synth
from ratios import DATA, DEPTH

from evenhand.designs.proposals import design
from evenhand.designs.utilities import judged_utility, rank_utility
from evenhand.estimands import goals, targets
from evenhand.estimands.pools import Pool, pool
from evenhand.estimation.cross_fitting import control_variates
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.nonlinear.design_goals import expected_goal, guessed
from evenhand.nonlinear.gradients import Levels, gradient
from evenhand.nonlinear.ratios import estimate_ratio
from evenhand.priors.features import feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import draw

GRADED = DATA.parent / "trec-dl-2021-passage"


def trec(measure: str) -> tuple[Pool, np.ndarray]:
    """20 runs of TREC-8 and the utility of every cell."""
    judged = (DATA / "judged-runs.txt").read_text().split()
    return of(measure, DATA / "runs-top100", DATA / "qrels.trec8.adhoc.gz", judged)


def passages(measure: str) -> tuple[Pool, np.ndarray]:
    """20 runs of TREC DL 2021, whose judgments have grades, and the utility of every cell."""
    return of(measure, GRADED / "runs-top100-nist53", GRADED / "qrels-pass.txt.gz")


def of(
    measure: str, folder: Path, judgments: Path, among: Sequence[str] = ()
) -> tuple[Pool, np.ndarray]:
    """20 runs, and the utility of every cell."""
    runs, qrels = read_runs(folder), read_qrels(judgments)
    names = np.random.default_rng(0).choice(among or runs.systems, 20, replace=False)
    cells = pool(runs.select(sorted(names)), depth=DEPTH, queries=qrels.queries.to_pylist())
    kind = targets.target(cells, measure).measure
    return cells, np.nan_to_num(judged_utility(cells, qrels, kind))


def rows(cells: Pool, utility: np.ndarray, measure: str, n: int, replications: int):
    """Of each method the errors of all systems, and whether intervals cover: (studies, systems)."""
    goal = goals.rank(targets.target(cells, measure))
    gain = np.unique(utility[utility > 0])
    every = Levels(gain, (utility[:, None] >= gain) * 1.0)
    truth = gradient(cells, goal.target.measure, every).value
    linear = expected_goal(goal, guessed(cells, gain[-1]), gain[-1])
    made = design(linear, rank_utility(cells))
    prior = NumPyroPrior(feature_table(cells, {}))
    found: dict[str, list] = {"plain": [], "corrected": [], "steadied": []}
    for key in jax.random.split(jax.random.key(n), replications):
        sample = draw(key, made, n)
        rounds = [Round(sample, utility[sample.draws])]
        controls = control_variates(prior, linear, rounds)
        for name, given in found.items():
            options = {"controls": controls} if name == "steadied" else {}
            one = estimate_ratio(goal, rounds, correct=name != "plain", **options)
            covers = (one.low <= truth) & (truth <= one.high)
            given.append((one.value - truth, covers))
    return {name: np.array(given) for name, given in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--draws", type=int, nargs="+", default=[10, 20, 40, 80])
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    heads = ("bias", "error", "rmse", "covered")
    print(
        f"{'data':<8}{'measure':<10}{'draws':>6} {'method':<10}" + "".join(f"{h:>9}" for h in heads)
    )
    for data, measure in (
        ("TREC-8", "nDCG@10"),
        ("TREC-8", "AP@100"),
        ("DL 2021", "nDCG@10"),
        ("SYNTH", "nDCG@10"),
    ):
        if data == "SYNTH":
            cells, utility = of_synth().study(np.random.default_rng(0), 50)
            assert cells.depth == ITEMS
        else:
            cells, utility = (trec if data == "TREC-8" else passages)(measure)
        for draws in options.draws:
            n = draws * len(cells.queries)
            for method, one in rows(cells, utility, measure, n, options.replications).items():
                off, covers = one[:, 0], one[:, 1]
                error = off.mean(1).std(ddof=1) / np.sqrt(len(off))
                shown = (off.mean(), error, np.sqrt((off**2).mean()), covers.mean())
                print(
                    f"{data:<8}{measure:<10}{draws:>6} {method:<10}"
                    + "".join(f"{v:>9.4f}" for v in shown),
                    flush=True,
                )


if __name__ == "__main__":
    main()
