"""When to normalise by each list's own draws: beside importance sampling and cross-fitting.

    python tests/benchmarks/normalisation.py [--replications 40] [--sizes 2500]
        [--systems 20] [--measure P@10]

On TREC-8 as it was judged, and on its runs with made utilities: of each pair 1 with a chance p that
is the same for all, so that lists differ by chance alone. Of estimates: root mean square error of
systems and of differences, share of what is true within the intervals of the systems, and the
largest bias of a system in standard errors of its mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from evenhand.designs.proposals import design
from evenhand.designs.utilities import judged_utility, rank_utility
from evenhand.errors import EvenhandError
from evenhand.estimands import goals, targets
from evenhand.estimands.pools import Pool, pool
from evenhand.estimation.cross_fitting import cross_fit
from evenhand.estimation.estimates import Estimate
from evenhand.estimation.importance import estimate
from evenhand.estimation.self_normalised import estimate_normalised
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.measures.grammar import sampled
from evenhand.priors.features import feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import draw

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "trec8-adhoc"


def worlds(cells: Pool, judged: np.ndarray) -> dict[str, np.ndarray]:
    """Utilities of every pair, by name."""
    rng = np.random.default_rng(0)
    made = {f"p = {p}": (rng.random(len(cells)) < p) * 1.0 for p in (0.1, 0.5, 0.9, 0.98)}
    return {"judged": judged, **made}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2500])
    parser.add_argument("--systems", type=int, default=20)
    parser.add_argument("--measure", default="P@10")
    options = parser.parse_args()
    names = (DATA / "judged-runs.txt").read_text().split()
    some = np.random.default_rng(0).choice(names, options.systems, replace=False)
    qrels = read_qrels(DATA / "qrels.trec8.adhoc.gz")
    runs = read_runs(DATA / "runs-top100").select(sorted(some))
    measure = sampled(options.measure)
    cells = pool(runs, depth=measure.cutoff, queries=qrels.queries.to_pylist())
    goal = goals.absolute(targets.target(cells, measure))
    prior = NumPyroPrior(feature_table(cells))
    plan = design(goal, rank_utility(cells))
    x, y = np.triu_indices(options.systems, 1)

    def crossed(goal: goals.Goal, rounds: list[Round]) -> Estimate:
        return estimate(goal, rounds, controls=[cross_fit(prior, goal, rounds, [0])])

    methods: dict[str, Callable[..., Estimate]] = {
        "importance": estimate,
        "self-normalised": estimate_normalised,
        "cross-fitted": crossed,
    }
    print(f"{len(cells):,} pairs, {options.replications} replications, {measure}")
    heads = ("systems", "pairs", "covered", "bias z")
    print(f"{'utilities':<10}{'n':>6} {'estimator':<16}" + "".join(f"{h:>9}" for h in heads))
    for world, utility in worlds(
        cells, np.nan_to_num(judged_utility(cells, qrels, measure))
    ).items():
        truth = goal.target.values(utility)
        for n in options.sizes:
            for method, made in methods.items():
                value, inside = [], []
                try:
                    for key in range(options.replications):
                        sample = draw(jax.random.key(key), plan, n)
                        found = made(goal, [Round(sample, utility[sample.draws])])
                        value.append(found.value)
                        inside.append((found.low <= truth) & (truth <= found.high))
                except EvenhandError as error:
                    print(f"{world:<10}{n:>6} {method:<16} {error}")
                    continue
                error = np.array(value) - truth
                apart = error[:, x] - error[:, y]
                z = np.abs(error.mean(0)) / error.std(0) * np.sqrt(len(error))
                shown = (
                    np.sqrt((error**2).mean()),
                    np.sqrt((apart**2).mean()),
                    np.mean(inside),
                    z.max(),
                )
                print(
                    f"{world:<10}{n:>6} {method:<16}" + "".join(f"{v:>9.4f}" for v in shown),
                    flush=True,
                )


if __name__ == "__main__":
    main()
