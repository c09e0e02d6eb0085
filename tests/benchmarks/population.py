"""Coverage of intervals for queries like these, by studies of queries drawn anew.

    python tests/benchmarks/population.py [--replications 300] [--sizes 250 1000] [--queries 50]

On TREC-8, 20 of 71 runs, its 50 queries are the population: each study has so many of them, drawn
with replacement, and what is to be covered is the mean over the 50. On SYNTH every study has users
of its own, of 400 items, and what is to be covered is the expectation. Beside intervals for queries
like these stand those for the study's own queries, which claim less and cover less; and the
standard deviation of the estimates over studies beside the root mean square of what is estimated.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pyarrow as pa

from evenhand import targets
from evenhand.designs import design
from evenhand.estimators import estimate
from evenhand.paper.synthetic import PRINTED_SYSTEMS, expected_users, synth
from evenhand.pools import Pool, pool
from evenhand.sampling import draw
from evenhand.stages import Round
from evenhand.trec import read_qrels, read_runs
from evenhand.utilities import judged_utility, rank_utility

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


def rows(world: World, n: int, size: int, replications: int) -> Iterator[tuple[float, ...]]:
    """Of systems and of contrasts: coverage for these and for all queries, true and told sd."""
    rng, found = np.random.default_rng(1), []
    for number in range(replications):
        made, utility = world.study(rng, size)
        goal = targets.rank(targets.target(made, world.measure))
        sample = draw(jax.random.key(number), design(goal, rank_utility(made)), n)
        here = estimate(goal, [Round(sample, utility[sample.draws])])
        wide, aim = here.for_population(), goal.matrix @ world.truth
        found.append(
            [
                (value, inside(here), inside(wide), error**2)
                for value, inside, error in (
                    (
                        wide.value,
                        lambda e: (e.low <= world.truth) & (world.truth <= e.high),
                        wide.std_error,
                    ),
                    (
                        wide.contrast,
                        lambda e, aim=aim: (e.contrast_low <= aim) & (aim <= e.contrast_high),
                        wide.contrast_std_error,
                    ),
                )
            ]
        )
    for parts in zip(*found, strict=True):
        value, narrow, covered, square = map(np.array, zip(*parts, strict=True))
        # Systems of one study are covered together: the error is that of their mean over studies.
        error = covered.mean(1).std(ddof=1) / np.sqrt(replications)
        spread, told = np.sqrt(value.var(0).mean()), np.sqrt(square.mean())
        yield narrow.mean(), covered.mean(), error, spread, told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=300)
    parser.add_argument("--sizes", type=int, nargs="+", default=[250, 1000])
    parser.add_argument("--queries", type=int, default=50)
    options = parser.parse_args()
    worlds = {"SYNTH": of_synth()} | ({"TREC-8": trec()} if DATA.is_dir() else {})
    print("data        n  of         these queries  queries like these       sd  told sd")
    for name, world in worlds.items():
        for n in options.sizes:
            both = rows(world, n, options.queries, options.replications)
            for what, (narrow, covered, error, spread, told) in zip(
                ("systems", "contrasts"), both, strict=True
            ):
                print(
                    f"{name:8} {n:4}  {what:9} {narrow:14.3f} {covered:14.3f} +- {error:.3f} "
                    f"{spread:8.3f} {told:8.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
