"""Entry points: the paper's experiments on SYNTH and on TREC runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from evenhand.errors import EvenhandError
from evenhand.formats.qrels import Qrels
from evenhand.formats.runs import Runs
from evenhand.paper import printed
from evenhand.paper.dense_cells import Cells, Question, questions
from evenhand.paper.many_systems import KINDS, curves, variance_rows
from evenhand.paper.one_system import Aims, StudySizes, System, exact_sds, single_rows
from evenhand.paper.pooling import deep_pool_sd, shallow_pool
from evenhand.paper.reproduction import Curve, Reproduction, Row
from evenhand.paper.synthetic import (
    PRINTED_SYSTEMS,
    Ranks,
    Synth,
    expected_users,
    merged,
    shift,
    spread_over_users,
    synth,
)
from evenhand.paper.trec8 import MISSING, NAMED, Collection, trec_cells, trec_system

__all__ = ["reproduce_synth", "reproduce_trec"]

TRIALS, FEW_TRIALS = 1000, 100
Progress = Callable[[int, int], Any]

#: What the paper calls SHIFT-5, as it is defined.
AS_DEFINED = "SHIFT-5 by 5"


class _Teller:
    """Tells progress in studies done, of a number known beforehand."""

    def __init__(self, progress: Progress | None, trials: int, designs: int) -> None:
        self.progress, self.trials, self.total = progress, trials, trials * designs

    def __call__(self, designs: int = 1) -> None:
        if self.progress is not None:
            self.progress(self.trials * designs, self.total)


def _trials(trials: int | None, fast: bool) -> int:
    trials = (FEW_TRIALS if fast else TRIALS) if trials is None else trials
    if trials < 10:
        raise EvenhandError(f"a reproduction needs at least 10 trials, got {trials}")
    return trials


def _ordered(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: row.table))


def _widths(trials: int) -> float:
    """Standard errors that an empirical standard deviation may be off."""
    return 3.0 if trials >= TRIALS else 4.0


def _few(trials: int) -> tuple[str, ...]:
    if trials >= TRIALS:
        return ()
    return (f"With {trials:,} trials in place of {TRIALS:,}, tolerances are wider.",)


def _sets(asked: Sequence[Question]) -> str:
    """How many sets of how many systems."""
    k = len(asked[0].cells.systems)
    return f"{len(asked)} {'set' if len(asked) == 1 else 'sets'} of {k}"


def _synth_rows(
    key: jax.Array, data: Synth, plan: StudySizes, told: Callable[[int], None]
) -> list[Row]:
    """Tables 2 to 4."""
    systems = {**PRINTED_SYSTEMS, AS_DEFINED: shift(5)}
    n_users, items = len(data.better), data.items
    mean_users = expected_users(n_users, items)
    spread = spread_over_users(systems, items)
    share = plan.deep_queries / n_users
    value, ours, rows = {}, {}, []
    for number, (name, ranks) in enumerate(systems.items()):
        label = "SHIFT-5" if name == AS_DEFINED else name
        known, mark = printed.PRINTED[label], "a" if label == "SHIFT-5" else ""
        shallow_tolerance, gap_tolerance = printed.TOLERANCES[label]
        mean, rank = merged(mean_users, {name: ranks}), _ranks(ranks, items)
        system = System(name, data.cells({name: ranks}), rank, data.per_user(ranks))
        value[name], ours[name] = float(mean.values[0]), system.value
        shallow = shallow_pool(rank, mean.weight[:, 0], mean.utility, depth=plan.depth)
        aims = Aims(
            label,
            value=(value[name], 0.40),
            shallow=(shallow, shallow_tolerance),
            deep_sd=float(spread[number] * np.sqrt((1.0 - share) / plan.deep_queries)),
            sd=exact_sds(mean, plan.n),
            sd_tolerance=lambda sd: 0.005 * sd,
            interval_tolerance=lambda half: 0.007 * half,
            marks={"value": mark, "interval": "c"}
            | ({"Q^P": "b"} if label in printed.UNMATCHED else {}),
            fits="Q*, 4 % floor",
        )
        rows += single_rows(jax.random.fold_in(key, number), system, plan, aims)
        if name != "OPT":
            gap = printed.PRINTED["OPT"].value - known.value
            expected, found = value["OPT"] - value[name], ours["OPT"] - ours[name]
            rows.append(
                Row("Table 2", "U of OPT, less U", name, gap, expected, found, gap_tolerance, mark)
            )
        told(len(plan.designs))
    return rows


def _ranks(ranks: Ranks, items: int) -> np.ndarray:
    """Rank that a system gives to each kind of cell."""
    return np.repeat(ranks(np.arange(1, items + 1)), 5)


def reproduce_synth(
    *,
    trials: int | None = None,
    seed: int = 0,
    fast: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """Draw SYNTH and repeat Tables 2 to 7 and the figures on it.

    Parameters
    ----------
    trials
        Replicated studies behind each number that is not exact: 1000, or 100 with `fast`. The paper
        has 100.
    seed
        Of the data set and all draws.
    fast
        Fewer trials; tolerances widen with them.
    progress
        Called with the number of studies done since the last call, and the number in all.

    Returns
    -------
    Reproduction
        Beside each number its expectation over data sets, in closed form. The tolerance of an
        empirical standard deviation is three of its standard errors, so that about one seed in
        eight has one just outside; with few trials it is four.

    Raises
    ------
    EvenhandError
        If there are fewer than 10 trials.
    """
    trials = _trials(trials, fast)
    key_data, key_single, key_curves = jax.random.split(jax.random.key(seed), 3)
    data = synth(key_data)
    n_users, n = len(data.better), 5 * len(data.better)
    budgets = tuple(round(share * n_users) for share in printed.BUDGETS["SYNTH"])
    designs = ("Q*", "Q^P", "Q^unif", "Q*, 4 % floor")
    plan = StudySizes(n, budgets, n / n_users, n // data.items, trials, designs, _widths(trials))
    cells, mean = data.cells(), merged(expected_users(n_users, data.items), PRINTED_SYSTEMS)
    asked = {kind: questions(cells, kind) for kind in KINDS}
    told = _Teller(
        progress,
        trials,
        len(designs) * (len(PRINTED_SYSTEMS) + 1) + 2 * sum(map(len, asked.values())),
    )
    rows = _synth_rows(key_single, data, plan, told)
    lines: list[Curve] = []
    for number, (kind, sets) in enumerate(asked.items()):
        rows += variance_rows(
            sets,
            n_users,
            paper=printed.VARIANCES["SYNTH"][kind],
            expected=questions(mean, kind),
            system=_sets(sets),
        )
        lines += curves(
            jax.random.fold_in(key_curves, number),
            sets,
            n_users,
            per_query=printed.BUDGETS["SYNTH"],
            trials=trials,
            expected=printed.SYNTH_CURVES[kind],
            told=told,
        )
    remarks = (
        "Expected values are means over data sets, in closed form; those of the figures are an "
        "independent program's replications.",
        *_few(trials),
    )
    return Reproduction("SYNTH", _ordered(rows), tuple(lines), trials, seed, remarks)


def _trec_rows(
    key: jax.Array,
    found: Collection,
    named: Sequence[str],
    plan: StudySizes,
    told: Callable[[int], None],
) -> list[Row]:
    """Tables 2 to 4."""
    rows = []
    for number, name in enumerate(named):
        system, exact = trec_system(found, name), printed.TREC_EXPECTED.get(name)
        known = printed.PRINTED.get(name)
        aims = Aims(
            name,
            value=exact and (exact[0], 0.0006),
            shallow=exact and (exact[1], 0.0006),
            deep_sd=exact and exact[2],
            sd=dict(zip(plan.designs, exact[3], strict=True)) if exact else {},
            sd_tolerance=lambda sd: 0.0006,
            interval_tolerance=lambda half: 0.02 * half,
            marks={"deep": "d", "interval": "e"},
            fits="sqrt(u~)",
        )
        rows += single_rows(jax.random.fold_in(key, number), system, plan, aims)
        two = deep_pool_sd(system.per_query, queries=min(2, len(system.per_query)))
        paper = known.deep_sd if known else None
        rows.append(Row("Table 2", "DeepPool of two, sd exact", name, paper, None, two, None, "d"))
        told(len(plan.designs))
    return rows


def _trec_variances(cells: Cells, group: str, n_queries: int) -> list[Row]:
    """Tables 5 to 7 on one set of systems, in the readings of `printed.NOTES`."""
    lacking = replace(cells, guess=np.where(cells.weight > 0, cells.guess, MISSING))
    paper, mixed = printed.VARIANCES["TREC"], {"mix_baseline": True}
    at_once = {"window": len(cells.systems)}
    zero, ranked = f"{group}, absent 0", f"{group}, absent 101"
    versions = [
        ("pair", cells, zero, {}, "f"),
        ("pair", lacking, ranked, {}, "f"),
        ("pair", lacking, f"{ranked}, transposed", {}, "i"),
        ("baseline", cells, zero, {}, "g"),
        ("baseline", cells, f"{zero}, baseline mixed in", mixed, "g"),
        ("baseline", lacking, f"{ranked}, baseline mixed in", mixed, "g"),
        ("rank", cells, f"{zero}, all at once", at_once, "h"),
        ("rank", lacking, f"{ranked}, all at once", at_once, "h"),
        ("rank", cells, f"{zero}, fives", {}, "h"),
        ("rank", lacking, f"{ranked}, fives", {}, "h"),
    ]
    rows = []
    for kind, members, system, options, mark in versions:
        naive, q_star, naive_known, q_star_known = paper[kind]
        if mark == "i":
            q_star, naive_known = naive_known, q_star
        rows += variance_rows(
            questions(members, kind, **options),
            n_queries,
            paper=(naive, q_star, naive_known, q_star_known),
            system=system,
            mark=mark,
        )
    return rows


def _drawn(cells: Cells, some: int, seed: int) -> Cells:
    """So many systems, drawn by the seed; all where there are no more."""
    chosen = np.arange(len(cells.systems))
    if len(chosen) > some:
        chosen = np.sort(np.random.default_rng(seed).choice(len(chosen), some, replace=False))
    return cells.only(chosen)


def _trec_sizes(n_queries: int, trials: int) -> StudySizes:
    """How much is drawn for Tables 2 to 4."""
    budgets = tuple(round(share * n_queries) for share in printed.BUDGETS["TREC"])
    designs = ("Q*", "Q^P", "Q^unif", "sqrt(u~)")
    return StudySizes(5 * n_queries, budgets, 5.0, 1, trials, designs, _widths(trials))


def reproduce_trec(
    runs: Runs,
    qrels: Qrels,
    systems: Iterable[str] | None = None,
    *,
    named: Sequence[str] = NAMED,
    some: int = 20,
    trials: int | None = None,
    seed: int = 0,
    fast: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """Repeat Tables 2 to 7 and the figures on real runs: DCG with natural logarithm at depth 100.

    Parameters
    ----------
    runs, qrels
        The paper's are those of the TREC-8 ad hoc task. A pair without a judgment counts as not
        relevant.
    systems
        Only these, for instance those whose first 100 documents are fully judged (the paper's
        experiment takes no others); by default all runs.
    named
        The systems of Tables 2 to 4.
    some
        Tables 5 to 7 are also made with so many systems, drawn by the seed, and the figures with
        them only.
    trials, seed, fast, progress
        As in `reproduce_synth`.

    Returns
    -------
    Reproduction
        Numbers of the systems named are held against those of an independent program. Tables 5 to
        7 depend on which systems are drawn, which the paper does not say: they are shown beside
        the paper's, not checked.

    Raises
    ------
    EvenhandError
        If a system named is not among the runs, or there are fewer than five.
    """
    trials = _trials(trials, fast)
    key_single, key_curves = jax.random.split(jax.random.key(seed))
    if systems is not None:
        runs = runs.select(systems)
    if missing := [name for name in named if name not in runs.systems]:
        raise EvenhandError(
            f"there is no run named {missing[0]!r}, which Tables 2 to 4 are about",
            hint="give the runs of the TREC-8 ad hoc task, or name other systems",
        )
    found = trec_cells(runs, qrels)
    cells, n_queries = found.cells, len(found.pool.queries)
    few, plan = _drawn(cells, some, seed), _trec_sizes(n_queries, trials)
    asked = {kind: questions(few, kind, mix_baseline=True) for kind in KINDS}
    n_designs = len(plan.designs) * len(named)
    told = _Teller(progress, trials, n_designs + 2 * sum(map(len, asked.values())))
    rows = _trec_rows(key_single, found, named, plan, told)
    if len(few.systems) < len(cells.systems):
        rows += _trec_variances(few, f"{len(few.systems)} drawn", n_queries)
    rows += _trec_variances(cells, f"all {len(cells.systems)}", n_queries)
    lines: list[Curve] = []
    for number, sets in enumerate(asked.values()):
        lines += curves(
            jax.random.fold_in(key_curves, number),
            sets,
            n_queries,
            per_query=printed.BUDGETS["TREC"],
            trials=trials,
            told=told,
        )
    drawn = ", ".join(few.systems)
    remarks = (
        f"Figures, and the numbers of {len(few.systems)} drawn, are of {drawn}.",
        *found.pool.notes,
        *found.remarks,
        *_few(trials),
    )
    return Reproduction("TREC", _ordered(rows), tuple(lines), trials, seed, remarks)
