"""Coverage and width of the intervals over a grid of studies, on the same draws.

    python tests/benchmarks/coverage.py [--fast] [--pools short deep graded] [--replications 2000]
        [--json coverage.json] [--plot coverage.png]

The grid: made pools, prevalence of relevance 1, 3, 10 and 30 %, independent of rank or falling with
it, n from 20 to 500, goals `absolute`, `pair` (similar and different systems) and `rank`, four
designs, two samplers. Beside the intervals of the library stand the *oracle* normal interval
(estimate +- 1.96 times the true standard deviation, which nobody knows) and, where it is installed,
`ppi_py.ppi_mean_ci` with importance weights.

A point *counts for width* if the oracle covers there and at least so many relevant draws are
effectively expected in the contrast, (sum y^2)^2 / sum y^4: with fewer, an interval that covers
must be wider, since the draws do not tell its scale.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.designs.utilities import rank_utility, rank_votes
from evenhand.estimands import goals, targets
from evenhand.estimands.pools import Pool, pool
from evenhand.formats.runs import read_runs
from evenhand.intervals.intervals import INTERVALS
from evenhand.intervals.moments import TermMoments, cumulants
from evenhand.intervals.pool_moments import events, pool_moments
from evenhand.reports import plots
from evenhand.sampling.folds import Folds, folds_for
from evenhand.sampling.samplers import SAMPLERS, expected_by_fold
from evenhand.simulation.simulations import plan_named

# Else numba, which ppi_py needs, would take this file for the package of its name.
sys.path = [folder for folder in sys.path if Path(folder) != Path(__file__).parent]
try:
    import ppi_py
except ImportError:
    ppi_py = None

PREVALENCE, SIZES = (0.01, 0.03, 0.1, 0.3), (20, 50, 100, 200, 500)
DESIGNS, LAWS, KINDS = ("rank", "flat", "naive", "uniform"), ("distinct", "iid"), ("any", "top")
GOALS = ("absolute", "pair-near", "pair-far", "rank")
ENOUGH = (4.0, 6.0, 10.0)
OF_MOMENTS = [name for name, one in INTERVALS.items() if not one.bets and not one.foresees]
#: Queries, systems, depth, documents a query, and measure of each made pool.
POOLS = {
    "short": (20, 6, 20, 80, "RBP(p=0.8)@20"),
    "deep": (20, 8, 50, 150, "DCG@50"),
    "graded": (30, 6, 30, 100, "DCG(gains={0:0,1:1,2:3,3:7})@30"),
}


def made_pool(seed: int, queries: int, systems: int, depth: int, documents: int) -> Pool:
    """Systems that rank by one hidden score with noise of their own, some more than others."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(queries, documents))
    family = rng.normal(size=(queries, documents, 3))
    runs: dict[str, dict[str, dict[str, float]]] = {}
    for j in range(systems):
        noise = 0.7 * family[..., j % 3] + rng.normal(size=hidden.shape)
        score = hidden + (1 + 0.15 * j) * noise
        runs[f"s{j:02}"] = {
            f"q{q:02}": {f"d{d:03}": float(score[q, d]) for d in np.argsort(-score[q])[:depth]}
            for q in range(queries)
        }
    return pool(read_runs(runs), depth=depth)


def relevance(cells: Pool, kind: str, prevalence: float, *, graded: bool) -> np.ndarray:
    """Utilities with exactly the prevalence named: independent of rank, or falling with it."""
    rng = np.random.default_rng(7)
    votes = rank_votes(cells.rank, cells.depth or 1)
    mean = np.add.reduceat(votes, cells.start[:-1]) / len(cells.systems)
    odds = np.exp(5 * mean) if kind == "top" else np.ones(len(cells))
    first = np.argsort(rng.exponential(size=len(cells)) / odds)
    utility = np.zeros(len(cells))
    utility[first[: max(1, round(prevalence * len(cells)))]] = 1.0
    return (
        utility * rng.choice([1.0, 3.0, 7.0], len(cells), p=[0.5, 0.3, 0.2]) if graded else utility
    )


@partial(jax.jit, static_argnames=("sampler", "n", "folds"))
def drawn(keys, expected, fold, sizes, *, sampler, n, folds):
    """The cells of many rounds, drawn as `evenhand.draw` does."""
    apart = Folds(fold, sizes) if folds > 1 else None
    order = jnp.argsort(fold, stable=True)

    def one(key: jax.Array) -> jax.Array:
        return SAMPLERS[sampler].draw(key, expected, n, order, apart)

    return jax.lax.map(one, keys, batch_size=32)


@partial(jax.jit, static_argnames=("sampler", "folds"))
def measured(cells, reach, utility, expected, fold, *, sampler, folds):
    """Estimates and moments of many rounds."""

    def one(c):
        z = reach[c] * utility[c][:, None]
        found = cumulants(z, expected[c], fold[c], sampler=sampler, folds=folds)
        said = utility[c]
        return z.sum(0), *found, (said > 0).sum(), (said**2).sum(), (said**4).sum()

    return jax.lax.map(one, cells, batch_size=32)


def goal_named(name: str, target: targets.Target, value: np.ndarray) -> goals.Goal:
    """A goal of the grid."""
    if not name.startswith("pair"):
        return goals.goal(target, name)
    order = np.argsort(value)
    first, second = (0, 1) if name == "pair-near" else (order[-1], order[0])
    return goals.pair(target, target.systems[first], target.systems[second])


def peer(reach: np.ndarray, n: int, utility: np.ndarray, cells: np.ndarray, truth: float):
    """Coverage and width of ppi_py's weighted interval for one contrast; no predictions."""
    inside, width = [], []
    for c in cells:
        term = n * reach[c] * utility[c]
        nothing = np.zeros(n)
        low, high = ppi_py.ppi_mean_ci(term, nothing, nothing, alpha=0.05, lam=0.0)
        inside.append(low - 1e-9 <= truth <= high + 1e-9)
        width.append(high - low)
    return float(np.mean(inside)), float(np.mean(width))


def points(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every point of the grid in one pool."""
    *shape, measure = POOLS[name]
    cells = made_pool(list(POOLS).index(name), *shape)
    target = targets.target(cells, measure)
    top, every = target.measure.top_utility or 1.0, np.arange(len(cells))
    truths = {
        (kind, p): relevance(cells, kind, p, graded=name == "graded")
        for kind, p in itertools.product(KINDS, PREVALENCE)
    }
    likely = rank_utility(cells).second_moment
    value = target.values(truths["top", 0.3])
    print(f"# {name}: {len(cells):,} cells, {measure}", flush=True)
    for goal_name, plan in itertools.product(GOALS, DESIGNS):
        goal = goal_named(goal_name, target, value)
        q, a = plan_named(plan, goal, 0.1).q, goal.at(every)
        for law, n in itertools.product(LAWS, options.sizes):
            if law == "distinct" and n > 0.9 * np.count_nonzero(q):
                continue
            fold = folds_for(n, len(cells))
            expected, sizes = expected_by_fold(law, q, n, fold)
            held = np.where(expected > 0, 1 / np.where(expected > 0, expected, 1), 0.0)
            reach, static = a * held[:, None], {"sampler": law, "folds": 1 if fold is None else 4}
            fold = np.zeros(len(cells), np.int32) if fold is None else fold
            keys = jax.random.split(jax.random.key(n), options.replications)
            sizes = jnp.asarray([n] if sizes is None else sizes)
            picked = drawn(keys, jnp.asarray(expected), fold, sizes, n=n, **static)
            over = events(target, goal.matrix, likely, expected, held, law)
            free = np.asarray(SAMPLERS[law].free(jnp.asarray(expected)))
            for (kind, p), utility in truths.items():
                found = measured(picked, reach, utility, jnp.asarray(expected), fold, **static)
                d, variance, third, fourth, degrees, k, squares, fourths = map(np.asarray, found)
                truth = a.T @ utility
                rho = np.sqrt((fourths + top**4) / (squares + top**2))[:, None]
                event, side, floor, ceiling = pool_moments(over, rho, top)
                moments = TermMoments(
                    d, variance, third, fourth, event, side, degrees[:, None], floor, ceiling
                )
                y = (expected * free)[:, None] * (reach * utility[:, None]) ** 2
                y4 = (expected * free**2)[:, None] * (reach * utility[:, None]) ** 4
                effective = (y.sum(0) ** 2 / np.where(y4.sum(0) > 0, y4.sum(0), 1)).mean()
                sd = d.std(0)
                limits = {i: INTERVALS[i].limits(moments, 0.95) for i in OF_MOMENTS}
                limits["oracle"] = d - 1.959964 * sd, d + 1.959964 * sd
                row: dict[str, Any] = {
                    "pool": name,
                    "goal": goal_name,
                    "design": plan,
                    "sampler": law,
                    "n": n,
                    "relevance": kind,
                    "prevalence": p,
                    "events": float(effective),
                    "relevant": float(k.mean()),
                }
                for i, (low, high) in limits.items():
                    inside = (low <= truth + 1e-9) & (high >= truth - 1e-9)
                    row |= {f"{i} coverage": float(inside.mean())}
                    row |= {f"{i} worst": float(inside.mean(0).min())}
                    row |= {f"{i} width": float((high - low).mean())}
                if (
                    ppi_py is not None
                    and law == "iid"
                    and (goal_name, plan) == ("absolute", "rank")
                ):
                    some = np.asarray(picked[:300])
                    inside, width = peer(reach[:, 0], n, utility, some, truth[0])
                    row |= {"ppi_py coverage": inside, "ppi_py width": width}
                yield row


def shown(rows: list[dict[str, Any]], count: int) -> None:
    """Print what the grid came to."""
    noise = np.sqrt(0.95 * 0.05 / count)
    print(f"\n{len(rows):,} points, {count:,} replications each (Monte Carlo error {noise:.4f})")

    def column(name: str) -> np.ndarray:
        return np.array([row[name] for row in rows])

    oracle, effective = column("oracle coverage"), column("events")
    heads = "".join(f"{f'ratio, {e:g}+ events':>20}" for e in ENOUGH)
    print(f"{'interval':<10}{'lowest':>9}{'contrast':>9}{'< .935':>9}{'mean':>8}{heads}")
    for name in (*OF_MOMENTS, "oracle"):
        coverage, worst = column(f"{name} coverage"), column(f"{name} worst")
        ratio = column(f"{name} width") / np.maximum(column("oracle width"), 1e-300)
        text = f"{name:<10}{coverage.min():>9.3f}{worst.min():>9.3f}{(coverage < 0.935).sum():>9}"
        text += f"{coverage.mean():>8.3f}"
        for enough in ENOUGH:
            fair = (oracle >= 0.935) & (effective >= enough)
            most = f"{ratio[fair].max():.2f} (median {np.median(ratio[fair]):.2f})"
            text += f"{most if fair.any() else '':>20}"
        print(text)
    print("\nlowest coverage by prevalence and n")
    print(
        f"{'':<10}" + "".join(f"{f'{p:.0%}, {n}':>9}" for p in PREVALENCE for n in (20, 100, 500))
    )
    for name in (*OF_MOMENTS, "oracle"):
        text = f"{name:<10}"
        for p, n in itertools.product(PREVALENCE, (20, 100, 500)):
            some = [r[f"{name} coverage"] for r in rows if (r["prevalence"], r["n"]) == (p, n)]
            text += f"{min(some):>9.3f}" if some else f"{'':>9}"
        print(text)
    peers = [row for row in rows if "ppi_py coverage" in row]
    if peers:
        lowest = min(row["ppi_py coverage"] for row in peers)
        print(f"\nppi_py on {len(peers)} of them (iid, absolute, rank): lowest {lowest:.3f}")
    else:
        print("\nppi_py is not installed: left out")
    print("\npoints where the default covers least, and where it is widest against the oracle")
    keys = ("pool", "goal", "design", "sampler", "n", "relevance", "prevalence")
    ratio = column("cubic width") / np.maximum(column("oracle width"), 1e-300)
    fair = np.where((oracle >= 0.935) & (effective >= ENOUGH[1]), ratio, 0.0)
    for i in (*np.argsort(column("cubic coverage"))[:8], *np.argsort(-fair)[:8]):
        row = rows[i]
        print(
            " ".join(f"{row[k]}" for k in keys),
            f": coverage {row['cubic coverage']:.3f} (oracle {oracle[i]:.3f})",
            f"ratio {ratio[i]:.2f}, {effective[i]:.1f} events",
        )


def picture(rows: list[dict[str, Any]], path: str) -> Path:
    """Coverage, and width against the oracle's, by the events expected."""
    _, (left, right) = plots.figure(2)
    effective = np.array([row["events"] for row in rows])
    for i, name in enumerate(("student", "cubic")):
        style = {
            "linestyle": "none",
            "marker": plots.MARKERS[i],
            "markersize": 2.5,
            "alpha": 0.5,
            "color": (plots.ORANGE, plots.BLUE)[i],
            "label": name,
            "rasterized": True,
        }
        left.plot(effective, [row[f"{name} coverage"] for row in rows], **style)
        ratio = [row[f"{name} width"] / max(row["oracle width"], 1e-300) for row in rows]
        right.plot(effective, ratio, **style)
    left.axhline(0.95, color=plots.GREY, linewidth=0.8, linestyle=":")
    right.axhline(1.0, color=plots.GREY, linewidth=0.8, linestyle=":")
    right.axhline(1.15, color=plots.GREY, linewidth=0.8, linestyle="--")
    left.set_ylabel("coverage of nominal 95 %")
    right.set_ylabel("mean width / oracle's")
    right.set_ylim(0, 3)
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_xlim(0.1, effective.max() * 1.2)
        ax.set_xlabel("relevant draws that count, expected")
        ax.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize="small", loc="lower right")
    return plots.save(left, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="one pool, three sizes, 300 studies")
    parser.add_argument("--pools", nargs="+", choices=POOLS)
    parser.add_argument("--sizes", nargs="+", type=int)
    parser.add_argument("--replications", type=int)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot")
    options = parser.parse_args()
    options.pools = options.pools or (["short"] if options.fast else list(POOLS))
    options.sizes = options.sizes or ((20, 100, 500) if options.fast else SIZES)
    options.replications = options.replications or (300 if options.fast else 2000)
    jax.config.update("jax_enable_x64", True)
    start, rows = time.perf_counter(), []
    for name in options.pools:
        rows += points(name, options)
        print(f"# {time.perf_counter() - start:.0f} s", flush=True)
    shown(rows, options.replications)
    if options.json:
        options.json.write_text(json.dumps(rows))
    if options.plot:
        print(f"written to {picture(rows, options.plot)}")


if __name__ == "__main__":
    main()
