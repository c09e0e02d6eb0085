"""Judgments needed to name the best system of TREC-8 with 95 % probability.

    python tests/benchmarks/best.py [--windows 0 6 40] [--samples 2] [--replications 200]

Systems are windows of five that are adjacent in their true order (0 begins with the best of all
71), and samples of 20 of the 71; the same studies' keys serve all designs. For each design the
budget grows by steps until nearly all studies name the truly best system; a probit curve in log n
through the shares gives the budget for 95 %, and its standard error by the delta method.

`rank 2` has two rounds as `best` has, the second not focused: what of the gain is due to rounds.
At the end stand the geometric means of the factors over the windows and over the samples.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, special

from evenhand.decisions.focus import FOCUSED, UNIFORM, pair_weights, root, tempered
from evenhand.decisions.steering import split
from evenhand.designs.proposals import Design, mixture, proposal
from evenhand.designs.utilities import judged_utility, rank_utility
from evenhand.devices import by_share, mesh, place
from evenhand.estimands import goals, targets
from evenhand.estimands.contrasts import contrasts, norm
from evenhand.estimands.goals import Goal
from evenhand.estimands.pools import pool
from evenhand.float64 import in_float64
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.sampling.rounds import planned_weights
from evenhand.sampling.samplers import SAMPLERS
from evenhand.simulation.replicates import earned
from evenhand.simulation.simulations import plan_named

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "trec8-adhoc"
MEASURE = "DCG(log='e')@100"
#: Design of the first round, number of rounds, and goal of the later one.
DESIGNS = {
    "naive": ("naive", 1, "rank"),
    "rank": ("rank", 1, "rank"),
    "rank 2": ("rank", 2, "rank"),
    "best 2": ("rank", 2, "best"),
}


@in_float64
def focused_studies(
    keys: jax.Array,
    goal: Goal,
    utility: np.ndarray,
    sizes: Sequence[int],
    *,
    first: Design,
    share: float = UNIFORM,
    floor: float = 0.1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Replicate studies whose later rounds are focused on what still decides the goal.

    All rounds are drawn by `distinct` and designed from ranks; none learns where relevance lies, so
    that a compiled call runs a batch of studies. What a round judged is known in later ones.

    Parameters
    ----------
    keys
        One for each study.
    goal
        Later rounds are focused if it is of a kind in `evenhand.decisions.focus.FOCUSED`; else they
        are for all pairs alike, which is to compare with.
    utility
        True utility of every cell, shape (cells,).
    sizes
        Draws of each round.
    first
        The design of the first round.
    share, floor
        The weights' share that is uniform, and the floor, of later rounds.

    Returns
    -------
    value, covariance, degrees
        Shapes (studies, systems), (studies, systems, systems) and (studies,).
    """
    pool, k = goal.target.pool, len(goal.target.systems)
    held = (
        first.q,
        goal.target.weights(np.arange(len(pool))),
        rank_utility(pool).second_moment,
        goal.target.mean_weight(),
        *earned(goal.target, utility),
    )
    kind = goal.kind if goal.kind in FOCUSED else None
    # Bounded memory: weights of all pairs are dense for a moment, once a study.
    batch = int(np.clip((1 << 22) // (len(pool) * k), 1, 16))
    over = mesh()
    batch *= 1 if over is None else over.size
    parts = []
    for start in range(0, len(keys), batch):
        # The last batch is filled up with keys used before, so that one compilation serves all.
        chosen = np.arange(start, start + batch) % len(keys)
        found = _focused(
            place(over, keys[chosen]),
            *held,
            kind=kind,
            sizes=tuple(sizes),
            share=share,
            floor=floor,
            over=over,
        )
        parts.append([np.asarray(x) for x in found])
    value, covariance, degrees = (
        np.concatenate(column)[: len(keys)] for column in zip(*parts, strict=True)
    )
    return value, covariance, degrees


@partial(jax.jit, static_argnames=("kind", "sizes", "share", "floor", "over"))
def _focused(keys, q, weights, second, base, slot, earned, *, kind, sizes, share, floor, over):
    """A batch of focused studies; `earned` holds w_c u_c of cells that `slot` leads to."""
    law, k = SAMPLERS["distinct"], weights.shape[1]

    def study(key, q, weights, second, base, slot, earned):
        free, exact, one_each = jnp.ones(len(q)), jnp.zeros(k), jnp.ones(k - 1)
        values, covariances, degrees = [], [], []
        value, covariance, proposed = jnp.zeros(k), jnp.zeros((k, k)), q
        for number, n in enumerate(sizes):
            if number:
                pairs = pair_weights(kind, value, covariance) if kind else jnp.zeros((k, k))
                norms = norm(contrasts(weights, root(tempered(pairs, share))), one_each)
                made = proposal(norms * free, second)
                rest = base * free
                proposed = mixture(made, rest / rest.sum(), floor)
            expected = law.expected(proposed, n)
            cells = law.draw(
                jax.random.fold_in(key, number), expected, n, jnp.zeros(0, jnp.int64), None
            )
            z = earned[slot[cells]] / expected[cells][:, None]
            spread, nu = law.covariance(z, expected[cells], jnp.zeros(n, jnp.int32), 1)
            values.append(exact + z.sum(0))
            covariances.append(spread)
            degrees.append(nu)
            omega = planned_weights(np.asarray(sizes[: number + 1]))
            value = jnp.asarray(omega) @ jnp.stack(values)
            covariance = jnp.tensordot(jnp.asarray(omega) ** 2, jnp.stack(covariances), 1)
            exact = exact + earned[slot[cells]].sum(0)
            free = free.at[cells].set(0.0)
        return value, covariance, jnp.stack(degrees).min()

    studies = jax.vmap(study, (0, *[None] * 6))
    return by_share(over, studies, 1)(keys, q, weights, second, base, slot, earned)


def world(runs, qrels, systems):
    """The target of some systems, and the true utility of each of their pairs."""
    chosen = runs if systems is None else runs.select(systems)
    cells = pool(chosen, depth=100, queries=qrels.queries.to_pylist())
    target = targets.target(cells, MEASURE)
    return target, np.nan_to_num(judged_utility(cells, qrels, target.measure))


def shares(target, utility, design, replications, seed, step):
    """Budgets, and at each the number of studies that name the best system."""
    first, rounds, kind = DESIGNS[design]
    goal = replace(goals.rank(target), kind=kind)
    plan = plan_named(first, goal, 0.1)
    keys = jax.random.split(jax.random.key(seed), replications)
    best, found, budget = target.values(utility).argmax(), [], 200
    while budget < len(utility):
        value = focused_studies(keys, goal, utility, split(budget, rounds), first=plan)[0]
        found.append((budget, int((value.argmax(1) == best).sum())))
        if found[-1][1] >= 0.975 * replications:
            break
        budget = round(budget * step)
    return np.array(found, float).T


def needed(budgets, named, replications, level=0.95):
    """Log of the budget at which a probit curve reaches `level`, and its standard error."""
    near = named > 0.5 * replications
    if not near.any():
        return np.inf, np.nan
    x, y = np.log(budgets[near]), named[near]

    def loss(curve):
        at = special.log_ndtr(curve[0] + curve[1] * x)
        beside = special.log_ndtr(-curve[0] - curve[1] * x)
        return -(y * at + (replications - y) * beside).sum()

    a, b = optimize.minimize(loss, [-7.0, 1.2], method="BFGS").x
    # The information of a probit curve; what BFGS makes of the Hessian on its way is too rough.
    log_density = -((a + b * x) ** 2) / 2 - np.log(2 * np.pi) / 2
    beside = special.log_ndtr(a + b * x) + special.log_ndtr(-a - b * x)
    weight = replications * np.exp(2 * log_density - beside)
    rows = np.stack([np.ones(len(x)), x], axis=1)
    at = (special.ndtri(level) - a) / b
    slope = np.array([-1.0, -at]) / b
    variance = slope @ np.linalg.pinv(rows.T @ (weight[:, None] * rows)) @ slope
    return at, float(np.sqrt(variance))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, nargs="*", default=[0, 6, 40])
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--step", type=float, default=1.6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    runs = read_runs(DATA / "runs-top100")
    qrels = read_qrels(DATA / "qrels.trec8.adhoc.gz")
    names = (DATA / "judged-runs.txt").read_text().split()
    runs = runs.select(names)
    target, utility = world(runs, qrels, None)
    ranked = [target.systems[j] for j in np.argsort(-target.values(utility))]
    rng = np.random.default_rng(options.seed)
    some = [(f"5 from {w}", ranked[w : w + 5]) for w in options.windows]
    for number in range(options.samples):
        chosen = sorted(rng.choice(len(ranked), 20, replace=False))
        some.append((f"20, sample {number}", [ranked[j] for j in chosen]))
    print(f"{MEASURE}, {options.replications} studies; budget for 95 % (relative standard error)")
    heads = ("systems", "lead", *DESIGNS, "naive / best 2", "rank / best 2")
    print("".join(f"{title:>19}" for title in heads))
    factors: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for title, systems in some:
        target, utility = world(runs, qrels, systems)
        first, second = np.sort(target.values(utility))[::-1][:2]
        at = {}
        for design in DESIGNS:
            found = shares(
                target, utility, design, options.replications, options.seed, options.step
            )
            at[design] = needed(*found, options.replications)
        cells = [f"{np.exp(n):,.0f} ({error:.0%})" for n, error in at.values()]
        for than in ("naive", "rank"):
            found = at[than][0] - at["best 2"][0], np.hypot(at[than][1], at["best 2"][1])
            kind = "windows of 5" if len(systems) == 5 else "samples of 20"
            factors.setdefault((kind, than), []).append(found)
            cells.append(f"{np.exp(found[0]):.2f} +- {np.exp(found[0]) * found[1]:.2f}")
        row = (title, f"{first - second:.2f}", *cells)
        print("".join(f"{cell:>19}" for cell in row), flush=True)
    for (kind, than), found in factors.items():
        log, error = np.array(found).T
        mean, told = np.exp(log.mean()), np.sqrt((error**2).sum()) / len(log)
        print(f"{len(log)} {kind}: {than} / best 2 = {mean:.2f} +- {mean * told:.2f}")


if __name__ == "__main__":
    main()
