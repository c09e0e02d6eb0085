"""Design, draw and estimate over large pools on JAX's default device, against plain NumPy.

    python tests/benchmarks/numerics.py [--cells 100000 1000000 10000000] [--systems 20] [--draws
    2000]

Compile time and run time are told apart; NumPy does the same arithmetic on the CPU in the same
process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from made import made_pool

from evenhand import designs, estimators, sampling, simulation, targets
from evenhand.measures import parse
from evenhand.utilities import known_utility, rank_utility

MEASURE = parse("DCG@100")


def made_target(n_cells: int, n_systems: int) -> targets.Target:
    """A target over a made pool."""
    return targets.target(made_pool(n_cells, n_systems, max(n_cells // 1000, 1)), MEASURE)


def plain_design(target: targets.Target, second: np.ndarray) -> np.ndarray:
    """The rank design in NumPy: two passes by entry, no dense table."""
    pool, k = target.pool, len(target.systems)
    at = pool.start[:-1]
    count = np.diff(pool.start)
    mean = np.add.reduceat(target.weight, at) / k
    square = np.add.reduceat((target.weight - np.repeat(mean, count)) ** 2, at)
    norms = np.sqrt(square + (k - count) * mean**2)
    q = np.sqrt(second) * norms
    return 0.9 * q / q.sum() + 0.1 * mean / mean.sum()


def plain_draw(q: np.ndarray, n: int) -> np.ndarray:
    """Water-filling and systematic sampling of shuffled cells in NumPy."""
    rng = np.random.default_rng(0)
    full = np.zeros(len(q), bool)
    while True:
        pi = np.where(full, 1.0, (n - full.sum()) * q / q[~full].sum())
        more = full | (pi >= 1)
        if (more == full).all():
            break
        full = more
    order = rng.permutation(len(q))
    end = np.cumsum(pi[order])
    points = (rng.random() + np.arange(n)) * (end[-1] / n)
    return order[np.searchsorted(end, points, side="right")]


def timed(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the first call, and the best of three more."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return times[0], min(times[1:])


def large(n_cells: int, n_systems: int, n_draws: int) -> None:
    """Time design, draw and estimate over one large pool, and check the design against NumPy."""
    target = made_target(n_cells, n_systems)
    goal = targets.rank(target)
    utility = rank_utility(target.pool)
    blocks = targets.Blocks.of(target)
    matrix, importance = jnp.asarray(goal.matrix), jnp.asarray(goal.importance)
    second, q0 = jnp.asarray(utility.second_moment), jnp.asarray(target.mean_weight())

    def design() -> jax.Array:
        norms = targets._norms(blocks, matrix, importance)[:n_cells]
        return designs.mixture(designs.proposal(norms, second), q0 / q0.sum(), 0.1)

    def plain() -> np.ndarray:
        return plain_design(target, utility.second_moment)

    row(n_cells, "design", timed(design), timed(plain))
    q = design()
    np.testing.assert_allclose(np.asarray(q), plain(), rtol=1e-9)
    order, key = jnp.zeros(0, jnp.int64), jax.random.key(0)
    expectation = jax.jit(sampling.SAMPLERS["distinct"].expected)

    def draw() -> tuple[jax.Array, jax.Array]:
        expected = expectation(q, n_draws)
        draws = sampling._draw(key, expected, order, None, sampler="distinct", n=n_draws)
        return draws, expected

    row(n_cells, "draw", timed(draw), timed(lambda: plain_draw(np.asarray(q), n_draws)))
    draws, expected = map(np.asarray, draw())
    truth = (np.random.default_rng(1).random(n_cells) < 0.05).astype(float)
    judged = estimators.Round(sampling.Sample("distinct", draws, expected), truth[draws])
    row(n_cells, "estimate", timed(lambda: estimators.estimate(goal, [judged]).value), None)


def row(
    n_cells: int, step: str, ours: tuple[float, float], theirs: tuple[float, float] | None
) -> None:
    """Print one line of the table."""
    beside = f"{theirs[1]:>9.3f}{theirs[1] / ours[1]:>6.1f}x" if theirs else ""
    print(f"{n_cells:>12,} {step:<12}{ours[0]:>9.3f}{ours[1]:>9.3f}{beside}", flush=True)


def replicated(replications: int) -> None:
    """Time whole studies of one system, drawn and estimated over and over."""
    target = made_target(10_000, 1)
    goal = targets.absolute(target)
    truth = (np.random.default_rng(1).random(10_000) < 0.05).astype(float)
    made = designs.design(goal, known_utility(0.05 + truth), floor=0.1)

    def studies(sampler: str) -> object:
        found = simulation.simulate(
            goal,
            truth,
            budgets=[250],
            designs=[made],
            samplers=[sampler],
            replications=replications,
        )
        return found.rows[0]["mean"]

    for sampler in ("iid", "distinct"):
        first, best = timed(lambda s=sampler: studies(s))
        print(f"{replications:>12,} studies, {sampler:<9}{first:>9.3f}{best:>9.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--systems", type=int, default=20)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--replications", type=int, default=10_000)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"device {jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(f"{'cells':>12} {'step':<12}{'first s':>9}{'best s':>9}{'NumPy s':>9}{'ratio':>7}")
    for n_cells in options.cells:
        large(n_cells, options.systems, options.draws)
    replicated(options.replications)


if __name__ == "__main__":
    main()
