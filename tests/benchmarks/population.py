"""Coverage of intervals for queries like these, by studies of queries drawn anew.

    python tests/benchmarks/population.py [--replications 300] [--sizes 250 1000] [--queries 50]
        [--worlds SYNTH TREC-8 MADE] [--learn]

On TREC-8, 20 of 71 runs, its 50 queries are the population: each study has so many of them, drawn
with replacement, and what is to be covered is the mean over the 50. On SYNTH every study has users
of its own, of 400 items, and what is to be covered is the expectation. MADE is for a ratio,
nDCG@10: three systems that order 40 documents by chance, relevant the likelier the higher they
stand, a third of them in an easy query and next to none in a hard one. `all` is how often intervals
for queries like these cover that, by the default and by Student's intervals; `own`, how often those
for the study's own queries cover what is true of these. An interval for all queries is one for its
own, widened: where `own` is above 95 %, `all` is for the same reason.

Beside them stand the parts of the standard deviation: of the estimates over studies and as told,
and of the study's own true values over studies and as told, which is what choosing the queries
adds. With --learn estimates are cross-fitted, as a study's on disk are.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pyarrow as pa

from evenhand.designs.proposals import design
from evenhand.designs.utilities import judged_utility, rank_utility
from evenhand.estimands import goals, targets
from evenhand.estimands.goals import Goal
from evenhand.estimands.pools import Pool, pool
from evenhand.estimation.cross_fitting import cross_fit
from evenhand.estimation.importance import estimate
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.measures.base import Ratio
from evenhand.nonlinear.design_goals import expected_goal, guessed
from evenhand.nonlinear.gradients import Levels, gradient
from evenhand.nonlinear.ratios import estimate_ratio
from evenhand.paper.synthetic import PRINTED_SYSTEMS, expected_users, synth
from evenhand.priors.features import feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import draw

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "trec8-adhoc"
DEPTH, ITEMS = 100, 400


class World(NamedTuple):
    """A measure, the systems' true values in the population, and what draws a study's queries."""

    measure: str
    truth: np.ndarray
    study: Callable[[np.random.Generator, int], tuple[Pool, np.ndarray]]


def trec() -> World:
    """Queries of TREC-8 with replacement."""
    runs, qrels = read_runs(DATA / "runs-top100"), read_qrels(DATA / "qrels.trec8.adhoc.gz")
    judged = (DATA / "judged-runs.txt").read_text().split()
    names = sorted(np.random.default_rng(0).choice(judged, 20, replace=False))
    whole = pool(runs.select(names), depth=DEPTH, queries=qrels.queries.to_pylist())
    measure = f"DCG(log='e')@{DEPTH}"
    target = targets.target(whole, measure)
    utility = np.nan_to_num(judged_utility(whole, qrels, target.measure))
    k, n = len(whole.systems), len(whole.queries)
    entries = np.diff(whole.start)
    cells = np.bincount(whole.query, minlength=n)
    rows = np.bincount(whole.query, entries, minlength=n).astype(int)
    # All queries get as many cells and entries, so that one compilation serves all studies: beyond
    # the measure's depth stand documents that weigh nothing and are never drawn.
    most = cells.max() + 64
    fill = most - cells
    wide = (rows + fill).max()

    def one(x: int) -> tuple[np.ndarray, ...]:
        own = np.flatnonzero(whole.query == x)
        at = np.concatenate([np.arange(whole.start[c], whole.start[c + 1]) for c in own])
        extra = np.full(fill[x], (wide - rows[x]) // fill[x])
        extra[: (wide - rows[x]) % fill[x]] += 1
        assert extra.max() <= k
        system = np.concatenate([whole.system[at], *(np.arange(e) for e in extra)])
        deep = np.repeat(DEPTH + 1 + np.arange(fill[x]), extra)
        return (
            np.concatenate([entries[own], extra]),
            system.astype(np.int32),
            np.concatenate([whole.rank[at], deep]).astype(np.int32),
            np.concatenate([whole.score[at], -deep.astype(float)]),
            np.concatenate([utility[own], np.zeros(fill[x])]),
        )

    queries = [one(x) for x in range(n)]

    def study(rng: np.random.Generator, size: int) -> tuple[Pool, np.ndarray]:
        taken = [queries[x] for x in rng.integers(0, n, size)]
        count, system, rank, score, said = map(np.concatenate, zip(*taken, strict=True))
        made = Pool(
            systems=whole.systems,
            queries=pa.array([str(i) for i in range(size)]),
            documents=pa.array([str(i) for i in range(most)]),
            query=np.repeat(np.arange(size, dtype=np.int32), most),
            document=np.tile(np.arange(most, dtype=np.int32), size),
            start=np.concatenate([[0], np.cumsum(count)]),
            system=system,
            rank=rank,
            score=score,
            depth=DEPTH + most,
        )
        return made, said

    return World(measure, target.values(utility), study)


def of_synth() -> World:
    """Users of SYNTH, drawn anew."""
    place = np.arange(1, ITEMS + 1)
    ranks = np.stack([ranks(place) for ranks in PRINTED_SYSTEMS.values()], axis=1)
    likely = expected_users(1, ITEMS) @ np.arange(5.0)
    k = len(PRINTED_SYSTEMS)

    def study(rng: np.random.Generator, size: int) -> tuple[Pool, np.ndarray]:
        ratings = synth(jax.random.key(rng.integers(1 << 31)), users=size, items=ITEMS).ratings
        made = Pool(
            systems=tuple(PRINTED_SYSTEMS),
            queries=pa.array([str(i) for i in range(size)]),
            documents=pa.array([str(i) for i in range(ITEMS)]),
            query=np.repeat(np.arange(size, dtype=np.int32), ITEMS),
            document=np.tile(np.arange(ITEMS, dtype=np.int32), size),
            start=np.arange(0, k * size * ITEMS + 1, k),
            system=np.tile(np.arange(k, dtype=np.int32), size * ITEMS),
            rank=np.tile(ranks, (size, 1)).reshape(-1).astype(np.int32),
            score=-np.tile(ranks, (size, 1)).reshape(-1).astype(float),
            depth=ITEMS,
        )
        return made, ratings.reshape(-1).astype(float)

    measure = f"DCG(log='e')@{ITEMS}"
    one, _ = study(np.random.default_rng(0), 1)
    return World(measure, targets.target(one, measure).values(likely), study)


def value(goal: Goal, utility: np.ndarray) -> np.ndarray:
    """True values of the systems for these queries; shape (systems,)."""
    if isinstance(goal.target.measure, Ratio):
        levels = Levels(np.ones(1), utility[:, None])
        return gradient(goal.target.pool, goal.target.measure, levels).value
    return goal.target.values(utility)


def of_made() -> World:
    """Queries of 40 documents, with binary relevance."""
    k, documents = 3, 40

    def study(rng: np.random.Generator, size: int) -> tuple[Pool, np.ndarray]:
        ranks = np.argsort(rng.random((size, k, documents))) + 1
        by_cell = ranks.transpose(0, 2, 1).reshape(-1, k)
        made = Pool(
            systems=tuple(f"s{j}" for j in range(k)),
            queries=pa.array([str(i) for i in range(size)]),
            documents=pa.array([str(i) for i in range(documents)]),
            query=np.repeat(np.arange(size, dtype=np.int32), documents),
            document=np.tile(np.arange(documents, dtype=np.int32), size),
            start=np.arange(0, k * size * documents + 1, k),
            system=np.tile(np.arange(k, dtype=np.int32), size * documents),
            rank=by_cell.reshape(-1).astype(np.int32),
            score=-by_cell.reshape(-1).astype(float),
            depth=documents,
        )
        easy = np.repeat(rng.beta(1, 2, size), documents)
        chance = easy * np.clip(np.exp((8 - by_cell.mean(1)) / 12), 0, 1)
        return made, (rng.random(len(chance)) < chance) * 1.0

    rng = np.random.default_rng(0)
    many, utility = study(rng, 10_000)
    measure = "nDCG@10"
    return World(measure, value(goals.rank(targets.target(many, measure)), utility), study)


def rows(
    world: World, n: int, size: int, replications: int, learn: bool
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Of systems and of contrasts: coverage by kind, its Monte Carlo error, and the parts of sd."""
    rng = np.random.default_rng(1)
    found: dict[str, list[list[np.ndarray]]] = {"systems": [], "contrasts": []}
    for number in range(replications):
        made, utility = world.study(rng, size)
        goal = goals.rank(targets.target(made, world.measure))
        ratio = isinstance(goal.target.measure, Ratio)
        asked = expected_goal(goal, guessed(made, 1.0)) if ratio else goal
        sample = draw(jax.random.key(number), design(asked, rank_utility(made)), n)
        judged = [Round(sample, utility[sample.draws])]
        controls = None
        if learn:
            controls = [cross_fit(NumPyroPrior(feature_table(made)), asked, judged, [0])]
        estimated = estimate_ratio if ratio else estimate
        here = estimated(goal, judged, controls=controls)
        simple = estimated(goal, judged, controls=controls, interval="student")
        own, k = value(goal, utility), len(world.truth)
        for what, prefix, matrix in (
            ("systems", "", np.eye(k)),
            ("contrasts", "contrast_", goal.matrix),
        ):

            def covers(e, truth, prefix=prefix, matrix=matrix):
                low, high = (getattr(e, f"{prefix}{end}") for end in ("low", "high"))
                return (low <= matrix @ truth) & (matrix @ truth <= high)

            wide = here.for_population()
            found[what].append(
                [
                    covers(here, own),
                    covers(simple, own),
                    covers(wide, world.truth),
                    covers(simple.for_population(), world.truth),
                    getattr(here, "contrast" if prefix else "value"),
                    getattr(wide, f"{prefix}std_error") ** 2,
                    matrix @ own,
                    np.diag(getattr(here, f"{prefix}between")),
                ]
            )
    for what, studies in found.items():
        *covered, found_value, told, own, between = map(np.array, zip(*studies, strict=True))
        # Systems of one study are covered together: the error is that of their mean over studies.
        error = [c.mean(1).std(ddof=1) / np.sqrt(replications) for c in covered]
        parts = (found_value.var(0).mean(), told.mean(), own.var(0).mean(), between.mean())
        yield what, np.array([c.mean() for c in covered]), np.array(error), np.sqrt(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=300)
    parser.add_argument("--sizes", type=int, nargs="+", default=[250, 1000])
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--worlds", nargs="+", default=["SYNTH", "TREC-8"])
    parser.add_argument("--learn", action="store_true", help="cross-fitted estimates")
    options = parser.parse_args()
    makers = {"SYNTH": of_synth, "MADE": of_made} | ({"TREC-8": trec} if DATA.is_dir() else {})
    kinds = ("own", "own, Student", "all", "all, Student")
    heads = "".join(f"{kind:>16}" for kind in kinds)
    print(f"data        n  of       {heads}      sd    told queries    told")
    for name, maker in makers.items():
        if name not in options.worlds:
            continue
        world = maker()
        for n in options.sizes:
            counts = (n, options.queries, options.replications)
            for what, covered, error, parts in rows(world, *counts, options.learn):
                cells = (f"{c:.3f} +- {e:.3f}" for c, e in zip(covered, error, strict=True))
                text = "".join(f"{cell:>16}" for cell in cells)
                text += "".join(f"{part:8.3f}" for part in parts)
                print(f"{name:8} {n:4}  {what:9}{text}", flush=True)


if __name__ == "__main__":
    main()
