"""Design, draw and estimate over large pools on JAX's default device, against plain NumPy.

    python tests/benchmarks/numerics.py [--cells 100000 1000000 10000000] [--systems 20] [--draws
    2000]

Compile time and run time are told apart; NumPy does the same arithmetic on the CPU in the same
process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from made import made_pool

from evenhand.designs import proposals
from evenhand.designs.utilities import known_utility, rank_utility
from evenhand.estimands import goals, targets
from evenhand.estimands.contrasts import norms
from evenhand.estimation import importance
from evenhand.measures import grammar
from evenhand.sampling import samplers
from evenhand.sampling.samples import Sample
from evenhand.simulation import simulations

MEASURE = grammar.measure("DCG@100")


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


def plain_estimate(
    target: targets.Target, draws: np.ndarray, expected: np.ndarray, said: np.ndarray
) -> dict[str, np.ndarray]:
    """Systems, their contrasts with the mean, and what an interval needs, in NumPy, by entry."""
    pool, k = target.pool, len(target.systems)
    at, count = pool.start[:-1], np.diff(pool.start)
    depth = pool.depth or pool.rank.max()
    votes = (1.0 - np.log(np.arange(1, depth + 1)) / np.log1p(depth))[pool.rank - 1]
    mass = expected * (0.1 + np.add.reduceat(votes, at) / k)
    reach = np.sqrt(1.0 - expected) / np.where(expected > 0, expected, np.inf)
    middle = np.add.reduceat(target.weight, at) / k * reach
    own = target.weight * np.repeat(reach, count)
    here, heavy = np.repeat(middle, count), np.repeat(mass, count)
    apart = own - here

    def summed(by_entry: np.ndarray) -> np.ndarray:
        return np.bincount(target.system, heavy * by_entry, minlength=k)

    # Where a system does not return a document its contrast is minus the mean: summed over all
    # cells, and taken back where it does.
    squares, cubes = (own**2, apart**2, here**2), (own**3, apart**3, here**3)
    second = summed(squares[0]), summed(squares[1] - squares[2]) + mass @ middle**2
    fourth = summed(squares[0] ** 2), summed(squares[1] ** 2 - squares[2] ** 2) + mass @ middle**4
    signed = summed(cubes[0]), summed(cubes[1] + cubes[2]) - mass @ middle**3
    third = summed(cubes[0]), summed(np.abs(cubes[1]) - cubes[2]) + mass @ middle**3
    weights, f = target.weights(draws), 1.0 - expected[draws]
    value, variance = [], []
    for w in (weights, weights - weights.mean(1, keepdims=True)):
        z = w * (said / expected[draws])[:, None]
        left = np.count_nonzero(f)
        away = z - f @ z / f.sum()
        value.append(z.sum(0))
        variance.append(left / (left - 1.0) * f @ away**2)
    return {
        "estimate": np.concatenate(value),
        "variance": np.concatenate(variance),
        "event": np.concatenate(fourth) / np.concatenate(second),
        "side": np.abs(np.concatenate(signed)) / np.concatenate(third),
    }


class Timed(NamedTuple):
    """A step, seconds of its first call and of the best later one, and of NumPy's; bytes it moves.

    Bytes are what the step must read and write at the least, 0 where that is nothing to speak of.
    """

    step: str
    first: float
    best: float
    plain: float = np.nan
    bytes: float = 0.0


def timed(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the first call, and the best of three more."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return times[0], min(times[1:])


def large(target: targets.Target, n_draws: int) -> Iterator[Timed]:
    """Time design, draw and estimate over one large pool, and check the design against NumPy."""
    n_cells, entries = len(target.pool), len(target.pool.system)
    goal = goals.rank(target)
    utility = rank_utility(target.pool)
    blocks = target.blocks()
    second, q0 = jnp.asarray(utility.second_moment), jnp.asarray(target.mean_weight())

    def design() -> jax.Array:
        lengths = norms(blocks, goal.matrix, goal.importance)[:n_cells]
        return proposals.mixture(proposals.proposal(lengths, second), q0 / q0.sum(), 0.1)

    def plain() -> np.ndarray:
        return plain_design(target, utility.second_moment)

    # Weight and system of every entry; second moment, floor and norm in, q out of every cell.
    moved = 12.0 * entries + 32.0 * n_cells
    yield Timed("design", *timed(design), timed(plain)[1], moved)
    q = design()
    np.testing.assert_allclose(np.asarray(q), plain(), rtol=1e-9)
    order, key = jnp.zeros(0, jnp.int64), jax.random.key(0)
    expectation = jax.jit(samplers.SAMPLERS["distinct"].expected)

    def draw() -> tuple[jax.Array, jax.Array]:
        expected = expectation(q, n_draws)
        draws = samplers._draw(key, expected, order, None, sampler="distinct", n=n_draws)
        return draws, expected

    plain_seconds = timed(lambda: plain_draw(np.asarray(q), n_draws))[1]
    yield Timed("draw", *timed(draw), plain_seconds, 32.0 * n_cells)
    draws, expected = map(np.asarray, draw())
    truth = (np.random.default_rng(1).random(n_cells) < 0.05).astype(float)
    judged = importance.Round(Sample("distinct", draws, expected), truth[draws])

    def beside() -> dict[str, np.ndarray]:
        return plain_estimate(target, draws, expected, judged.utility)

    # Weight and system of every entry, rank too; E of every cell.
    moved = 16.0 * entries + 8.0 * n_cells
    times = timed(lambda: importance.estimate(goal, [judged]).value)
    yield Timed("estimate", *times, timed(beside)[1], moved)
    found = importance.estimate(goal, [judged])
    every = np.concatenate([np.eye(len(target.systems)), goal.matrix])
    ours = found.evidence.moments(every, np.concatenate([found.value, found.contrast]))
    for name, value in beside().items():
        np.testing.assert_allclose(getattr(ours, name), value, rtol=1e-7, atol=1e-12, err_msg=name)


def replicated(replications: int) -> Iterator[Timed]:
    """Time whole studies of one system, drawn and estimated over and over."""
    target = made_target(10_000, 1)
    goal = goals.absolute(target)
    truth = (np.random.default_rng(1).random(10_000) < 0.05).astype(float)
    made = proposals.design(goal, known_utility(0.05 + truth), floor=0.1)

    def studies(sampler: str) -> object:
        found = simulations.simulate(
            goal,
            truth,
            budgets=[250],
            designs=[made],
            samplers=[sampler],
            replications=replications,
        )
        return found.rows[0]["mean"]

    loops = min(replications, 200)

    def plain(sampler: str) -> float:
        rng, q, end = np.random.default_rng(0), made.q, np.cumsum(made.q)
        worth = goal.target.weights(np.arange(len(q)))[:, 0] * truth
        pi = np.asarray(samplers.SAMPLERS["distinct"].expected(jnp.asarray(q), 250))
        found = []
        for _ in range(loops):
            if sampler == "iid":
                drawn = np.searchsorted(end / end[-1], rng.random(250), side="right")
                z = worth[drawn] / q[drawn]
                found.append((z.mean(), z.std(ddof=1)))
                continue
            order = rng.permutation(len(pi))
            points = rng.random() + np.arange(250)
            drawn = order[np.searchsorted(np.cumsum(pi[order]), points, side="right")]
            z, f = worth[drawn] / pi[drawn], 1.0 - pi[drawn]
            found.append((z.sum(), np.sqrt(f @ (z - f @ z / f.sum()) ** 2)))
        return float(np.mean(found))

    for sampler in ("iid", "distinct"):
        times = timed(lambda s=sampler: studies(s))
        beside = timed(lambda s=sampler: plain(s))[1] * replications / loops
        yield Timed(f"{replications:,} studies, {sampler}", *times, beside)


def shown(size: str, one: Timed) -> str:
    """One line of the table."""
    beside = "" if np.isnan(one.plain) else f"{one.plain:>9.3f}{one.plain / one.best:>6.1f}x"
    return f"{size:>12} {one.step:<25}{one.first:>9.3f}{one.best:>9.3f}{beside}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--systems", type=int, default=20)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--replications", type=int, default=10_000)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"device {jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(f"{'cells':>12} {'step':<25}{'first s':>9}{'best s':>9}{'NumPy s':>9}{'ratio':>7}")
    for n_cells in options.cells:
        for one in large(made_target(n_cells, options.systems), options.draws):
            print(shown(f"{n_cells:,}", one), flush=True)
    for one in replicated(options.replications):
        print(shown("10,000", one), flush=True)


if __name__ == "__main__":
    main()
