r"""Tables 2 to 4: one system alone, by pools and by sampling.

The estimate of U from n draws of q has the variance

    n Var(U^) = sum_c (w_c u_c)^2 / q_c - U^2                                                (1)

exactly; replicated studies give its standard deviation again, the mean half-width 1.96 s / sqrt(n)
of the paper's interval, and how often that covers U.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from evenhand.paper import printed
from evenhand.paper.dense_cells import Cells, single
from evenhand.paper.pooling import deep_pool, deep_pool_sd, shallow_pool
from evenhand.paper.replication import replicate
from evenhand.paper.reproduction import Row

__all__ = [
    "QUANTILE",
    "Aims",
    "Sampled",
    "StudySizes",
    "System",
    "exact_sds",
    "sample",
    "single_rows",
]


#: The paper's 95 % interval.
QUANTILE = 1.96


@dataclass(frozen=True, slots=True, eq=False)
class System:
    """One system on one data set.

    Attributes
    ----------
    name
        Of the system.
    cells
        Its cells.
    rank
        The rank that it gives to each; shape (cells,).
    per_query
        Value of each query's ranking, shape (|X|,); their mean is the system's value.
    """

    name: str
    cells: Cells
    rank: np.ndarray
    per_query: np.ndarray

    @property
    def value(self) -> float:
        """U, from complete judgments."""
        return float(self.cells.values[0])


@dataclass(frozen=True, slots=True)
class Sampled:
    """What replicated studies of one design came to.

    Attributes
    ----------
    mean, sd
        Of the estimates.
    interval
        Mean half-width.
    coverage
        Share of the intervals that hold the true value.
    """

    mean: float
    sd: float
    interval: float
    coverage: float


def exact_sds(cells: Cells, n: int) -> dict[str, float]:
    """Standard deviation of the estimate from n draws, for every design, equation (1)."""
    return {name: float(np.sqrt(square / n)) for name, square in single(cells.padded())[1].items()}


def sample(
    key: jax.Array,
    cells: Cells,
    designs: Sequence[str],
    *,
    n: int,
    budgets: Sequence[int],
    trials: int,
) -> dict[str, Sampled]:
    """Replicate studies of one system for the designs named, with n draws, one of `budgets`."""
    truth, cells = float(cells.values[0]), cells.padded()
    masses, at = single(cells)[0], list(budgets).index(n)
    found = {}
    for i, name in enumerate(designs):
        key_design = jax.random.fold_in(key, i)
        studies = replicate(
            key_design, masses[name], cells.weight, cells.utility, budgets=budgets, trials=trials
        )
        estimate, half = studies.estimate[:, at, 0], QUANTILE * studies.std_error[:, at, 0]
        found[name] = Sampled(
            float(estimate.mean()),
            float(estimate.std(ddof=1)),
            float(half.mean()),
            float((np.abs(estimate - truth) <= half).mean()),
        )
    return found


#: The designs of the paper's Table 3.
PRINTED_DESIGNS: tuple[str, ...] = ("Q*", "Q^P", "Q^unif")


@dataclass(frozen=True, slots=True)
class StudySizes:
    """What the experiments with one system share.

    Attributes
    ----------
    n
        Draws of a study, one of `budgets`.
    budgets
        Numbers of draws at which studies are read.
    depth
        Judgments a query of ShallowPool.
    deep_queries
        Queries that DeepPool judges.
    trials
        Replicated studies.
    designs
        Names of the designs, the first being the one of Tables 2 and 4.
    widths
        Standard errors that an empirical standard deviation may be off.
    """

    n: int
    budgets: tuple[int, ...]
    depth: float
    deep_queries: int
    trials: int
    designs: tuple[str, ...]
    widths: float


@dataclass(frozen=True, slots=True)
class Aims:
    """What is expected of one system, and how near one must come.

    Attributes
    ----------
    name
        In the paper, for its numbers.
    value, shallow, deep_sd
        Expected, each with its tolerance; None where nothing is known.
    sd
        Expected standard deviation of the estimate, by design.
    sd_tolerance, interval_tolerance
        Of the exact standard deviation and of the mean interval, given what is expected.
    marks
        Footnotes: by design for Table 3, and ``value``, ``deep`` and ``interval`` (which goes to
        the design that the paper's interval fits, ``fits``).
    fits
        The design whose intervals the paper's fit.
    """

    name: str
    value: tuple[float, float] | None
    shallow: tuple[float, float] | None
    deep_sd: float | None
    sd: dict[str, float]
    sd_tolerance: Callable[[float], float]
    interval_tolerance: Callable[[float], float]
    marks: dict[str, str]
    fits: str


def _aimed(
    table: str,
    quantity: str,
    system: str,
    paper: float | None,
    aim: tuple[float, float] | None,
    ours: float,
    mark: str = "",
) -> Row:
    expected, tolerance = (None, None) if aim is None else aim
    return Row(table, quantity, system, paper, expected, float(ours), tolerance, mark)


def _spread_tolerance(sd: float, plan: StudySizes, values: np.ndarray | None = None) -> float:
    """The error of an empirical standard deviation; for a normal law, if `values` are not given."""
    kurtosis = 3.0
    if values is not None:
        centred = values - values.mean()
        kurtosis = max(kurtosis, float((centred**4).mean() / (centred**2).mean() ** 2))
    return plan.widths * sd * float(np.sqrt((kurtosis - 1.0) / (4.0 * plan.trials)))


def _pool_rows(key: jax.Array, system: System, plan: StudySizes, aims: Aims) -> list[Row]:
    known, name, truth = printed.PRINTED.get(aims.name), system.name, system.value
    cells, mark = system.cells, aims.marks.get("value", "")
    shallow = shallow_pool(system.rank, cells.weight[:, 0], cells.utility, depth=plan.depth)
    sd = deep_pool_sd(system.per_query, queries=plan.deep_queries)
    deep = deep_pool(key, system.per_query, queries=plan.deep_queries, trials=plan.trials)
    # One query a trial is as far from normal as queries are.
    few = system.per_query if plan.deep_queries == 1 else None
    spread = (aims.deep_sd or sd, _spread_tolerance(sd, plan, few))
    centre = (truth, 4.0 * sd / np.sqrt(plan.trials))
    paper = (known.value, known.shallow, known.deep_sd) if known else (None, None, None)
    return [
        _aimed("Table 2", "U", name, paper[0], aims.value, truth, mark),
        _aimed("Table 2", "ShallowPool", name, paper[1], aims.shallow, shallow, mark),
        _aimed("Table 2", "DeepPool, mean", name, None, centre, deep.mean()),
        _aimed(
            "Table 2",
            "DeepPool, sd",
            name,
            paper[2],
            spread,
            deep.std(ddof=1),
            aims.marks.get("deep", ""),
        ),
    ]


def _interval_rows(
    system: System, plan: StudySizes, aims: Aims, sd: dict[str, float], found: dict[str, Sampled]
) -> list[Row]:
    known, name = printed.PRINTED.get(aims.name), system.name
    paper = (known.interval, known.coverage) if known else (None, None)
    slack = 4.0 * float(np.sqrt(0.0475 / plan.trials))
    rows = []
    for design in plan.designs:
        if design not in (plan.designs[0], aims.fits):
            continue
        half = QUANTILE * aims.sd.get(design, sd[design])
        aim = (half, aims.interval_tolerance(half))
        mark = aims.marks.get("interval", "") if design == aims.fits else ""
        outcome = found[design]
        rows += [
            _aimed("Table 4", f"interval, {design}", name, paper[0], aim, outcome.interval, mark),
            _aimed(
                "Table 4", f"coverage, {design}", name, paper[1], (0.95, slack), outcome.coverage
            ),
        ]
    return rows


def single_rows(key: jax.Array, system: System, plan: StudySizes, aims: Aims) -> list[Row]:
    """Rows of Tables 2 to 4 for one system."""
    key_deep, key_draw = jax.random.split(key)
    known, name = printed.PRINTED.get(aims.name), system.name
    rows = _pool_rows(key_deep, system, plan, aims)
    sd = exact_sds(system.cells, plan.n)
    found = sample(
        key_draw, system.cells, plan.designs, n=plan.n, budgets=plan.budgets, trials=plan.trials
    )
    best = plan.designs[0]
    centre = (system.value, 4.0 * sd[best] / np.sqrt(plan.trials))
    rows.append(_aimed("Table 2", "sampling, mean", name, None, centre, found[best].mean))
    paper: dict[str, float] = {}
    if known is not None:
        paper = dict(zip(PRINTED_DESIGNS, known.sd, strict=True))
    for design in plan.designs:
        printed_sd, mark = paper.get(design), aims.marks.get(design, "")
        aim = (aims.sd[design], aims.sd_tolerance(aims.sd[design])) if design in aims.sd else None
        spread = (sd[design], _spread_tolerance(sd[design], plan))
        rows += [
            _aimed("Table 3", f"sd exact, {design}", name, printed_sd, aim, sd[design], mark),
            _aimed(
                "Table 3",
                f"sd of trials, {design}",
                name,
                printed_sd,
                spread,
                found[design].sd,
                mark,
            ),
        ]
    return rows + _interval_rows(system, plan, aims, sd, found)
