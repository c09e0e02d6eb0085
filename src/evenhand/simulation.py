r"""Replicated studies against complete judgments: what a design would have been worth.

With the utility of every cell known, a study is drawn, "judged" and estimated thousands of times,
and the estimates are held against the truth. One compiled call runs a batch of replications under
``vmap``; only cells with a utility above 0 contribute to an estimate, so a batch gathers from a
table of these alone.

For each budget, design and sampler:

- ``rmse``: root of the mean squared error of all pairwise differences (of the system's value, where
  there is one), over systems and replications, with its Monte Carlo standard error;
- ``bias_z``: largest |mean error| over its Monte Carlo standard error, over the systems;
- ``accuracy``: share of pairs of truly different systems whose order is right;
- ``tau``: mean Kendall tau-a between the estimated and the true order;
- ``coverage``, ``width``: of the interval for each contrast of the goal, averaged over contrasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from evenhand import targets, utilities
from evenhand.designs import Design, design
from evenhand.errors import EvenhandError
from evenhand.intervals import check_level
from evenhand.measures import Measure, parse
from evenhand.pools import pool
from evenhand.precision import in_float64
from evenhand.sampling import SAMPLERS, slice_order
from evenhand.tables import Result, Table
from evenhand.targets import Goal
from evenhand.trec import Qrels, Runs

__all__ = ["PLANS", "Simulation", "plan_named", "simulate", "simulate_runs"]

#: Designs by the names of ``evenhand simulate``: kind of design, and utility of a pool.
PLANS: dict[str, tuple[str, Callable[..., Any]]] = {
    "rank": ("optimal", utilities.rank_utility),
    "flat": ("optimal", utilities.flat),
    "score": ("optimal", utilities.score_utility),
    "paper": ("optimal", partial(utilities.curve_utility, curve="paper-trec")),
    "sqrt": ("optimal", partial(utilities.curve_utility, curve="paper-trec", literal=False)),
    "naive": ("naive", partial(utilities.curve_utility, curve="paper-trec")),
    "minimax": ("minimax", utilities.rank_utility),
    "uniform": ("uniform", utilities.flat),
}


def plan_named(name: str, goal: Goal, floor: float) -> Design:
    """The design that ``evenhand simulate`` calls `name`, one of `PLANS`.

    Raises
    ------
    EvenhandError
        If there is none.
    """
    if name not in PLANS:
        raise EvenhandError(f"unknown design {name!r}", hint=f"known are {', '.join(PLANS)}")
    kind, utility = PLANS[name]
    return design(goal, utility(goal.target.pool), kind=kind, floor=floor)


@dataclass(frozen=True)
class Simulation(Result):
    """What replicated studies came to.

    Attributes
    ----------
    measure, goal
        What was estimated.
    truth
        Value of each system; shape (systems,).
    rows
        One for each budget, design and sampler, as the module docstring describes them; ``mean``
        and ``sd`` hold the mean and standard deviation of each system's estimates.
    replications, level
        Studies a row, and level of the intervals.
    """

    measure: str
    goal: str
    systems: tuple[str, ...]
    truth: np.ndarray
    rows: tuple[dict[str, Any], ...]
    replications: int
    level: float
    notes: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        """A row a setting; with few systems also each system's mean and standard deviation."""
        scalars = [k for k, v in self.rows[0].items() if not isinstance(v, np.ndarray)]
        digits = {"rmse": 4, "rmse_se": 4, "bias_z": 2, "accuracy": 3, "tau": 3, "coverage": 3}
        title = (
            f"{self.measure}, goal {self.goal}: {len(self.systems)} systems, "
            f"{self.replications:,} replications, {self.level:.0%} intervals"
        )
        tables = [Table.of(title, {k: [row[k] for row in self.rows] for k in scalars}, digits)]
        if len(self.systems) <= 10:
            columns: dict[str, list[Any]] = {
                k: [] for k in ("budget", "design", "sampler", "system")
            }
            columns |= {"truth": [], "mean": [], "sd": []}
            for row in self.rows:
                for j, system in enumerate(self.systems):
                    values = (row["budget"], row["design"], row["sampler"], system, self.truth[j])
                    for name, value in zip(
                        columns, (*values, row["mean"][j], row["sd"][j]), strict=True
                    ):
                        columns[name].append(value)
            tables.append(Table.of("Each system's estimates", columns))
        return tables

    def notes_shown(self) -> tuple[str, ...]:
        """What the user should know."""
        return self.notes

    def to_dict(self) -> dict[str, Any]:
        """The rows, in full precision."""
        return {
            "measure": self.measure,
            "goal": self.goal,
            "replications": self.replications,
            "level": self.level,
            "systems": list(self.systems),
            "truth": self.truth,
            "rows": list(self.rows),
        }


@partial(jax.jit, static_argnames=("sampler", "n"))
def _replicate(keys, expected, order, slot, table, matrix, *, sampler, n):
    """Estimates, contrasts, their variances and degrees of freedom: one study a key.

    `table` holds w_c u_c of the cells with a utility above 0 and a last row of zeros; `slot` leads
    from a cell to its row.
    """
    law, together = SAMPLERS[sampler], jnp.zeros(n, jnp.int32)

    def study(key):
        cells = law.draw(key, expected, n, order, None)
        at = expected[cells]
        z = table[slot[cells]] / at[:, None]
        contrasted = targets.contrasts(z, matrix)

        def alone(column):  # each contrast's own variance, without the covariances
            square, degrees = law.covariance(column[:, None], at, together, 1)
            return square[0, 0], degrees

        variance, degrees = jax.vmap(alone, in_axes=1)(contrasted)
        return z.sum(0), contrasted.sum(0), variance, degrees[0]

    return jax.vmap(study)(keys)


@in_float64
def simulate(
    goal: Goal,
    utility: np.ndarray,
    *,
    budgets: Sequence[int],
    designs: Iterable[str | Design] = ("rank",),
    samplers: Iterable[str] = ("distinct",),
    floor: float = 0.1,
    replications: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    progress: Callable[[int, int], Any] | None = None,
) -> Simulation:
    """Replicate studies.

    Parameters
    ----------
    goal
        What they are to estimate.
    utility
        True utility of every cell, shape (cells,).
    budgets
        Numbers of draws.
    designs
        Names of `PLANS`, or designs.
    samplers
        Names of `evenhand.sampling.SAMPLERS`.
    floor
        Of the designs given by name.
    replications
        Studies a setting.
    level
        Of the intervals.
    seed
        Settings share it, so that they differ in nothing else.
    progress
        Called with the number of studies done since the last call, and the number in all.

    Raises
    ------
    EvenhandError
        If a budget, design or sampler cannot be used.
    """
    check_level(level)
    if replications < 2:
        raise EvenhandError(f"a simulation needs at least 2 replications, got {replications}")
    samplers = list(samplers)
    for name in samplers:
        if name not in SAMPLERS:
            raise EvenhandError(
                f"unknown sampler {name!r}", hint=f"known are {', '.join(SAMPLERS)}"
            )
    plans = [
        (d, plan_named(d, goal, floor)) if isinstance(d, str) else (d.name, d) for d in designs
    ]
    for budget in budgets:
        for name, plan in plans:
            support = int(np.count_nonzero(plan.q))
            if budget < 1 or ("distinct" in samplers and budget > support):
                raise EvenhandError(
                    f"the budget must lie between 1 and the {support:,} pairs that design "
                    f"{name!r} can draw, got {budget:,}"
                )
    useful = np.flatnonzero(utility)
    slot = np.full(len(goal.target.pool), len(useful))
    slot[useful] = np.arange(len(useful))
    table = np.vstack(
        [goal.target.weights(useful) * utility[useful, None], np.zeros(len(goal.target.systems))]
    )
    truth = goal.target.values(utility)
    order = slice_order(goal) if "slices" in samplers else np.zeros(0, np.int64)
    held = [jnp.asarray(x) for x in (order, slot, table, goal.matrix)]
    total = replications * len(budgets) * len(plans) * len(samplers)

    def told(done: int) -> None:
        if progress is not None:
            progress(done, total)

    rows = []
    for budget in budgets:
        for name, plan in plans:
            for sampler in samplers:
                expected = SAMPLERS[sampler].expected(jnp.asarray(plan.q), budget)
                found = _run(expected, held, sampler, budget, replications, seed, told)
                rows.append({"budget": budget, "design": name, "sampler": sampler})
                rows[-1] |= _summary(goal, truth, level, *found)
    return Simulation(
        measure=str(goal.target.measure),
        goal=goal.kind,
        systems=goal.target.systems,
        truth=truth,
        rows=tuple(rows),
        replications=replications,
        level=level,
    )


def simulate_runs(
    runs: Runs,
    qrels: Qrels,
    measure: Measure | str,
    *,
    goal: str = "rank",
    baseline: str | None = None,
    systems: Sequence[str] | None = None,
    sample_systems: int | None = None,
    queries: Iterable[str] | None = None,
    seed: int = 0,
    **options: Any,
) -> Simulation:
    """Replicate studies of some runs, judged by a table of complete judgments.

    Parameters
    ----------
    runs, qrels
        What the systems returned and what assessors say; a pair without a judgment counts as
        utility 0.
    measure, goal, baseline
        What the studies estimate.
    systems
        Only these.
    sample_systems
        Only so many, drawn at random by `seed`.
    queries
        By default those of the qrels.
    seed
        Of systems and draws.
    **options
        Of `simulate`.

    Raises
    ------
    EvenhandError
        If more systems are asked for than there are, or an option cannot be used.
    """
    measure = parse(measure)
    if systems is not None:
        runs = runs.select(systems)
    if sample_systems is not None:
        if not 1 <= sample_systems <= len(runs.systems):
            raise EvenhandError(f"cannot take {sample_systems} of {len(runs.systems)} systems")
        chosen = np.random.default_rng(seed).choice(
            len(runs.systems), sample_systems, replace=False
        )
        runs = runs.select([runs.systems[j] for j in sorted(chosen)])
    asked = qrels.queries.to_pylist() if queries is None else queries
    cells = pool(runs, depth=measure.cutoff, queries=asked)
    judged, known = utilities.mean_utility(cells.cells_of(qrels), qrels.grade, measure)
    utility = np.zeros(len(cells))
    utility[judged] = known
    wanted = targets.goal(targets.target(cells, measure), goal, system=baseline)
    found = simulate(wanted, utility, seed=seed, **options)
    missing = len(cells) - len(judged)
    notes = [*cells.notes]
    if missing:
        notes.append(f"{missing:,} of {len(cells):,} pairs have no judgment and count as utility 0")
    return replace(found, notes=tuple(notes))


def _run(expected, held, sampler, budget, replications, seed, told):
    keys = jax.random.split(jax.random.key(seed), replications)
    # Bounded memory: a batch's draws and, for `distinct`, one shuffled pool for each of its
    # studies.
    width = max(budget * held[2].shape[1], 2 * len(expected) if sampler == "distinct" else 0)
    batch = int(np.clip(1 << 25 >> int(width - 1).bit_length(), 8, replications))
    parts = []
    for first in range(0, replications, batch):
        # The last batch is filled up with keys used before, so that one compilation serves all.
        chosen = np.arange(first, first + batch) % replications
        parts.append(
            [
                np.asarray(x)
                for x in _replicate(keys[chosen], expected, *held, sampler=sampler, n=budget)
            ]
        )
        told(min(batch, replications - first))
    return tuple(np.concatenate(column)[:replications] for column in zip(*parts, strict=True))


def _summary(
    goal: Goal,
    truth: np.ndarray,
    level: float,
    value: np.ndarray,
    contrast: np.ndarray,
    variance: np.ndarray,
    degrees: np.ndarray,
) -> dict[str, Any]:
    error = value - truth
    k, count = len(truth), len(value)
    if k > 1:
        # Mean over pairs of (e_x - e_y)^2, without building the pairs.
        centred = error - error.mean(1, keepdims=True)
        square = 2.0 / (k - 1) * (centred**2).sum(1)
    else:
        square = error[:, 0] ** 2
    rmse = np.sqrt(square.mean())
    spread = error.std(0, ddof=1) / np.sqrt(count)
    z = np.abs(error.mean(0)) / np.where(spread > 0, spread, 1.0)
    true_contrast = goal.matrix @ truth
    quantile = special.stdtrit(np.maximum(degrees, 1.0), 0.5 + level / 2)
    half = quantile[:, None] * np.sqrt(variance)
    row: dict[str, Any] = {
        "rmse": rmse,
        "rmse_se": square.std(ddof=1) / np.sqrt(count) / (2 * rmse) if rmse > 0 else 0.0,
        "bias_z": z.max(),
    }
    if k > 1:
        row["accuracy"], row["tau"] = _order(value, truth)
    slack = 1e-9 * (1.0 + np.abs(true_contrast))
    row["coverage"] = (np.abs(contrast - true_contrast) <= half + slack).mean()
    row["width"] = 2 * half.mean()
    return {**row, "mean": value.mean(0), "sd": value.std(0, ddof=1)}


def _order(value: np.ndarray, truth: np.ndarray, most: int = 1 << 22) -> tuple[float, float]:
    """Accuracy over pairs that truly differ, and Kendall's tau-a (a tie counts for neither)."""
    first, second = np.triu_indices(len(truth), 1)
    true = np.sign(truth[first] - truth[second])
    accuracy, tau = [], []
    for part in np.array_split(value, max(1, value.shape[0] * len(first) // most)):
        sign = np.sign(part[:, first] - part[:, second])
        agree = sign * true
        accuracy.append((agree[:, true != 0] > 0).mean(1))
        tau.append(agree.mean(1))
    return float(np.concatenate(accuracy).mean()), float(np.concatenate(tau).mean())
