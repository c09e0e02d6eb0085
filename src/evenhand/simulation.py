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
- ``best``: share of studies whose highest estimate is that of a truly best system;
- ``tau``: mean Kendall tau-a between the estimated and the true order;
- ``coverage``, ``width``: of the interval for each contrast of the goal, averaged over contrasts;
- ``pairs``: coverage of the intervals for all pairs of systems, averaged over pairs.

Studies that learn (`evenhand.loops`) are replicated one after the other, since each fits models on
the way; their rows say in how many rounds. For the goals `best` and `order` there are also studies
whose later rounds are focused on what is undecided (`evenhand.focus`), in rows of the goal's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from evenhand import targets, utilities
from evenhand.designs import Design, design
from evenhand.errors import EvenhandError
from evenhand.evidence import Events, Moments, cumulants, events, pool_moments
from evenhand.features import features, signal
from evenhand.focus import FOCUSED
from evenhand.intervals import DEFAULT, check_interval, check_level, chosen
from evenhand.loops import focused_studies, study_that_learns
from evenhand.measures import Measure, parse
from evenhand.pools import pool
from evenhand.precision import in_float64
from evenhand.prior import NumPyroPrior, Prior
from evenhand.sampling import SAMPLERS, slice_order
from evenhand.steering import split
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
        digits = {"rmse": 4, "rmse_se": 4, "bias_z": 2, "accuracy": 3, "tau": 3, "best": 3}
        digits |= {"coverage": 3, "pairs": 3}
        title = (
            f"{self.measure}, goal {self.goal}: {len(self.systems)} systems, "
            f"{self.replications:,} replications, {self.level:.0%} intervals"
        )
        tables = [Table.of(title, {k: [row[k] for row in self.rows] for k in scalars}, digits)]
        if len(self.systems) <= 10:
            columns: dict[str, list[Any]] = {
                k: [] for k in ("budget", "design", "sampler", "rounds", "system")
            }
            columns |= {"truth": [], "mean": [], "sd": []}
            for row in self.rows:
                for j, system in enumerate(self.systems):
                    values = (*(row[k] for k in list(columns)[:4]), system, self.truth[j])
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


class _Replicates(NamedTuple):
    """Studies of one setting: sums over draws, shapes (studies, ...)."""

    value: Any
    variance: Any
    third: Any
    fourth: Any
    degrees: Any
    relevant: Any
    squares: Any
    fourths: Any
    most: Any


@partial(jax.jit, static_argnames=("sampler", "n"))
def _replicate(keys, expected, order, slot, table, utility, matrix, first, second, *, sampler, n):
    """Estimates, the moments of contrasts and pairs, and what was judged: one study a key.

    `table` holds w_c u_c of the cells with a utility other than 0 and a last row of zeros,
    `utility` their u_c; `slot` leads from a cell to its row. `first` and `second` are the systems
    of each pair.
    """
    law, together = SAMPLERS[sampler], jnp.zeros(n, jnp.int32)

    def study(key):
        cells = law.draw(key, expected, n, order, None)
        at, row = expected[cells], slot[cells]
        z = table[row] / at[:, None]
        asked = [targets.contrasts(z, matrix), z[:, first] - z[:, second]]
        found = cumulants(jnp.concatenate(asked, axis=1), at, together, sampler=sampler, folds=1)
        said = jnp.abs(utility[row])
        return _Replicates(
            z.sum(0),
            *found,
            (said > 0).sum(),
            (said**2).sum(),
            (said**4).sum(),
            said.max(initial=0.0),
        )

    return jax.vmap(study)(keys)


@in_float64
def simulate(
    goal: Goal,
    utility: np.ndarray,
    *,
    budgets: Sequence[int],
    designs: Iterable[str | Design] = ("rank",),
    samplers: Iterable[str] = ("distinct",),
    learn: Sequence[int] = (),
    prior: Prior | None = None,
    focus: Sequence[int] = (2,),
    floor: float = 0.1,
    replications: int = 1000,
    level: float = 0.95,
    interval: str = DEFAULT,
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
    learn
        Also replicate studies that learn, in so many rounds each: designed from ranks, then from
        what was learned, and cross-fitted.
    prior
        What learns; by default the models of `evenhand.models` over the features of the pool.
    focus
        In how many rounds focused studies are drawn, for the goals `best` and `order`.
    floor
        Of the designs given by name.
    replications
        Studies a setting.
    level, interval
        Of the intervals; the kind is one of `evenhand.intervals.INTERVALS`.
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
    kind = check_interval(chosen(interval, None))
    if replications < 2:
        raise EvenhandError(f"a simulation needs at least 2 replications, got {replications}")
    samplers, learn = list(samplers), list(learn)
    focus = list(focus) if goal.kind in FOCUSED else []
    if any(rounds < 1 for rounds in learn + focus):
        raise EvenhandError(f"a study has at least one round, got {min(learn + focus)}")
    if learn and prior is None:
        prior = NumPyroPrior(features(goal.target.pool))
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
    truths = np.append(utility[useful], 0.0)
    first, second = _pairs(len(truth))
    held = [jnp.asarray(x) for x in (order, slot, table, truths, goal.matrix, first, second)]
    likely = utilities.rank_utility(goal.target.pool).second_moment
    settings = len(plans) * len(samplers) + len(focus) + len(learn)
    total = replications * len(budgets) * settings

    def told(done: int) -> None:
        if progress is not None:
            progress(done, total)

    rows = []
    for budget in budgets:
        for name, plan in plans:
            for sampler in samplers:
                expected = SAMPLERS[sampler].expected(jnp.asarray(plan.q), budget)
                found = _run(
                    goal,
                    truth,
                    np.asarray(expected),
                    likely,
                    held,
                    sampler,
                    budget,
                    replications,
                    seed,
                    lambda moments: kind.limits(moments, level),
                    told,
                )
                rows.append({"budget": budget, "design": name, "sampler": sampler, "rounds": 1})
                rows[-1] |= _summary(truth, found)
        for n_rounds in focus:
            first = plan_named("rank", goal, floor)
            found = _focused(
                goal,
                truth,
                utility,
                first,
                split(budget, n_rounds),
                replications,
                seed,
                level,
                told,
            )
            rows.append({"budget": budget, "design": goal.kind, "sampler": "distinct"})
            rows[-1] |= {"rounds": n_rounds} | _summary(truth, found)
        for n_rounds in learn:
            found = _learned(
                goal,
                truth,
                utility,
                prior,
                budget,
                n_rounds,
                floor,
                replications,
                seed,
                level,
                interval,
                told,
            )
            rows.append({"budget": budget, "design": "learned", "sampler": "distinct"})
            rows[-1] |= {"rounds": n_rounds} | _summary(truth, found)
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
    signals: Mapping[str, Qrels] | None = None,
    method: str = "laplace",
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
    signals
        What else is known of pairs, by name, for studies that learn.
    method
        How their models are fitted.
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
    if options.get("learn"):
        known = {name: signal(cells, table) for name, table in (signals or {}).items()}
        options["prior"] = NumPyroPrior(features(cells, known), method=method)
    found = simulate(wanted, utility, seed=seed, **options)
    missing = len(cells) - len(judged)
    notes = [*cells.notes]
    if missing:
        notes.append(f"{missing:,} of {len(cells):,} pairs have no judgment and count as utility 0")
    return replace(found, notes=tuple(notes))


#: Pairs of systems whose intervals are made in every study; of more, as many evenly taken.
_MOST_PAIRS = 1000


def _pairs(k: int) -> tuple[np.ndarray, np.ndarray]:
    """The systems of each pair whose interval is looked at."""
    first, second = np.triu_indices(k, 1)
    some = np.linspace(0, len(first) - 1, min(len(first), _MOST_PAIRS)).round().astype(int)
    return first[some], second[some]


class _Studies(NamedTuple):
    """Replicated studies: estimates, and what became of their intervals.

    `value` has the shape (replications, systems), `covered` and `width` (replications, contrasts),
    and `pairs` (replications,): the share of pairs whose interval covers.
    """

    value: np.ndarray
    covered: np.ndarray
    width: np.ndarray
    pairs: np.ndarray


def _run(
    goal, truth, expected, likely, held, sampler, budget, replications, seed, limits, told
) -> _Studies:
    keys = jax.random.split(jax.random.key(seed), replications)
    first, second = map(np.asarray, held[-2:])
    rows = np.zeros((len(first), len(truth)))
    rows[np.arange(len(first)), first], rows[np.arange(len(first)), second] = 1.0, -1.0
    matrix = np.concatenate([goal.matrix, rows])
    reach = np.where(expected > 0, 1.0 / np.where(expected > 0, expected, 1.0), 0.0)
    pool_sums = events(goal.target, matrix, likely, expected, reach, sampler)
    negative = bool((np.asarray(held[3]) < 0).any())
    # Bounded memory: a batch's draws and, for `distinct`, one shuffled pool for each of its
    # studies.
    draws = budget * (len(truth) + len(matrix))
    width = max(draws, 2 * len(expected) if sampler == "distinct" else 0)
    batch = int(np.clip(1 << 25 >> int(width - 1).bit_length(), 8, replications))
    parts = []
    for start in range(0, replications, batch):
        # The last batch is filled up with keys used before, so that one compilation serves all.
        chosen = np.arange(start, start + batch) % replications
        found = _replicate(keys[chosen], jnp.asarray(expected), *held, sampler=sampler, n=budget)
        moments = _moments(goal, _Replicates(*map(np.asarray, found)), matrix, pool_sums, negative)
        parts.append(_intervals(truth, matrix, moments, np.asarray(found.value), limits))
        told(min(batch, replications - start))
    return _Studies(*(np.concatenate(column)[:replications] for column in zip(*parts, strict=True)))


def _moments(
    goal: Goal, found: _Replicates, matrix: np.ndarray, pool_sums: Events, negative: bool
) -> Moments:
    """What intervals are made from, for every study of a batch; shapes (studies, contrasts)."""
    top = goal.target.measure.top_utility
    most = np.where(found.relevant > 0, found.most, 1.0) if top is None else top
    rho = np.sqrt((found.fourths + most**4) / (found.squares + most**2))[:, None]
    event, side, floor, ceiling = pool_moments(pool_sums, rho, top, negative=negative)
    return Moments(
        found.value @ matrix.T,
        found.variance,
        found.third,
        found.fourth,
        event,
        side,
        found.degrees[:, None],
        floor,
        ceiling,
    )


def _intervals(
    truth: np.ndarray, matrix: np.ndarray, moments: Moments, value: np.ndarray, limits
) -> _Studies:
    """Whether the intervals of contrasts and, after them, of pairs cover."""
    aim = matrix @ truth
    n_pairs = min(len(truth) * (len(truth) - 1) // 2, _MOST_PAIRS)
    m = len(matrix) - n_pairs
    low, high = limits(moments)
    slack = 1e-9 * (1.0 + np.abs(aim))
    inside = (low - slack <= aim) & (aim <= high + slack)
    pairs = inside[:, m:].mean(1) if n_pairs else np.full(len(value), np.nan)
    return _Studies(value, inside[:, :m], (high - low)[:, :m], pairs)


def _focused(goal, truth, utility, first, sizes, replications, seed, level, told) -> _Studies:
    """The same for studies whose later rounds are focused; their intervals are Student's."""
    keys = jax.random.split(jax.random.key(seed), replications)
    value, covariance, degrees = focused_studies(
        keys, goal, utility, sizes, first=first, floor=first.floor, told=told
    )
    k = len(truth)
    compared = np.zeros((k * (k - 1) // 2, k))
    at = np.arange(len(compared))
    first_of, second_of = np.triu_indices(k, 1)
    compared[at, first_of], compared[at, second_of] = 1.0, -1.0
    matrix = np.concatenate([goal.matrix, compared])
    variance = np.einsum("ij,bjk,ik->bi", matrix, covariance, matrix, optimize=True)
    quantile = special.stdtrit(np.maximum(degrees, 1.0), 0.5 + level / 2)[:, None]
    half = quantile * np.sqrt(np.maximum(variance, 0.0))
    aim = matrix @ truth
    inside = np.abs(value @ matrix.T - aim) <= half + 1e-9 * (1.0 + np.abs(aim))
    m = len(goal.matrix)
    pairs = inside[:, m:].mean(1) if k > 1 else np.full(len(value), np.nan)
    return _Studies(value, inside[:, :m], 2 * half[:, :m], pairs)


def _learned(
    goal, truth, utility, prior, budget, rounds, floor, replications, seed, level, interval, told
):
    """The same for studies that learn, one after the other."""
    first = plan_named("rank", goal, floor)
    every = np.triu_indices(len(truth), 1)
    parts = []
    for key in jax.random.split(jax.random.key(seed), replications):
        found = study_that_learns(
            key,
            goal,
            lambda cells: utility[cells],
            prior,
            budget,
            rounds=rounds,
            first=first,
            floor=floor,
            level=level,
            interval=interval,
        )
        aim = goal.matrix @ truth
        inside = (found.contrast_low - 1e-9 <= aim) & (aim <= found.contrast_high + 1e-9)
        between = np.array([np.nan])
        if len(every[0]):
            shown, difference = found.pairs, truth[every[0]] - truth[every[1]]
            covers = (shown.low - 1e-9 <= difference) & (difference <= shown.high + 1e-9)
            between = covers.mean(keepdims=True)
        width = found.contrast_high - found.contrast_low
        parts.append(_Studies(found.value[None], inside[None], width[None], between))
        told(1)
    return _Studies(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _summary(truth: np.ndarray, found: _Studies) -> dict[str, Any]:
    value = found.value
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
    row: dict[str, Any] = {
        "rmse": rmse,
        "rmse_se": square.std(ddof=1) / np.sqrt(count) / (2 * rmse) if rmse > 0 else 0.0,
        "bias_z": z.max(),
    }
    if k > 1:
        row["accuracy"], row["tau"] = _order(value, truth)
        row["best"] = (truth[value.argmax(1)] == truth.max()).mean()
    row |= {"coverage": found.covered.mean(), "width": found.width.mean()}
    if k > 1:
        row["pairs"] = found.pairs.mean()
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
