"""Tables 2 to 4: the rows of one system, its pools and its estimates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from evenhand.paper import printed
from evenhand.paper.one_system import QUANTILE, Sampled, System, exact_sds, sample
from evenhand.paper.pooling import deep_pool, deep_pool_sd, shallow_pool
from evenhand.paper.rows import Row

__all__ = ["Aims", "StudySizes", "single_rows"]


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
    """Of an empirical standard deviation; of a normal law, if `values` are not given."""
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
