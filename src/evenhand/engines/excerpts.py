r"""Draw in an engine, and bring back what was drawn: an excerpt of the pool.

Draws follow the laws of `evenhand.sampling.samplers`, with the same functions of the same uniforms
on a line that the engine laid (`evenhand.engines.line`):

==========  ===============  =========================================================
sampler     E_c              how
==========  ===============  =========================================================
`distinct`  min(1, kappa q)  cells with E = 1 are taken; of the others the engine finds
                             those that span the whole numbers, and one in each stretch
                             between; `evenhand.sampling.algorithms.duels` chooses among them
`iid`       n q              the engine finds who lies at n uniform places
==========  ===============  =========================================================

So E[N_c] = E_c exactly, and what `evenhand.estimation.importance` proves of its estimates holds.
Slices are not offered: they need one telling order of all cells, which no two workers could share.

An `Excerpt` holds the drawn cells as a pool of their own, with every system's weight on them, and
what estimates ask of the rest: the systems' summed weights, and *witnesses*. Intervals
(`evenhand.intervals.pool_moments`) ask for sums over the pool of E p y^2 and E p y^4, y what a draw
of the cell would add. The draws themselves would represent rare large y worst. So some cells more
come back, each by itself with a chance of

    min(1, WITNESSES t_c / sum t),     t = E p y^3,                                          (1)

in the middle between the two, and count as one over that chance. In a pool that has no more cells
than `WITNESSES` all come, and intervals are those of the pool in memory.

An excerpt is one round, estimated without a model: a control variate would have to be summed over
the whole pool, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import narwhals as nw
import numpy as np
import pyarrow as pa

from evenhand.engines.cells import CELL, GoalSpec, cells, proposal
from evenhand.engines.line import PRIME, Line, ordered
from evenhand.engines.ranked_entries import RankedEntries, entries, weighed
from evenhand.engines.workspace import Workspace
from evenhand.errors import EvenhandError
from evenhand.estimands import goals
from evenhand.estimands.goals import Goal
from evenhand.estimands.pools import Pool, codes_in
from evenhand.estimands.targets import Target, Whole
from evenhand.estimation.importance import judge
from evenhand.float64 import in_float64
from evenhand.formats.qrels import Qrels
from evenhand.measures.base import Measure
from evenhand.sampling.algorithms import Borders, between, duels
from evenhand.sampling.rounds import Round
from evenhand.sampling.samples import Sample

__all__ = ["SAMPLERS", "Excerpt", "excerpt"]

SAMPLERS = ("distinct", "iid")
#: About how many cells come back for intervals, beside those drawn.
WITNESSES = 1 << 12
_COLUMNS = (*CELL, "q", "expected")


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """What was drawn from a pool that stays in its engine.

    Attributes
    ----------
    goal
        The contrasts, over the cells at hand: those drawn, and the witnesses.
    sample
        The draws, numbered within the excerpt.
    q
        Probability of each cell at hand in one draw; shape (cells,).
    n_cells
        Cells of the whole pool that could be drawn.
    """

    goal: Goal
    sample: Sample
    q: np.ndarray
    n_cells: int

    def judge(self, qrels: Qrels) -> Round:
        """The round that a table of judgments makes of it, for `evenhand.estimate`."""
        return judge(self.goal.target, self.sample, qrels)

    def pairs(self) -> tuple[list[str], list[str]]:
        """Query and document ids of the distinct pairs to judge."""
        return self.goal.target.pool.names(self.sample.cells)

    def __repr__(self) -> str:
        pairs = f"{len(self.sample.cells):,} of {self.n_cells:,} pairs"
        return f"Excerpt({pairs}, {len(self.sample):,} draws, {self.sample.sampler})"


@in_float64
def excerpt(
    key: jax.Array,
    frame: Any,
    measure: Measure | str,
    n: int,
    *,
    goal: str = "rank",
    systems: Sequence[str] = (),
    utility: str = "rank",
    floor: float = 0.1,
    sampler: str = "distinct",
    depth: int | None = None,
    queries: Sequence[str] | None = None,
) -> Excerpt:
    """Design and draw in the engine of a lazy frame, and bring back the draws.

    Parameters
    ----------
    key
        Typed key, ``jax.random.key(seed)``.
    frame
        Entries of runs, as `evenhand.engines.ranked_entries.entries` takes them: a lazy frame of
        DuckDB, PySpark or Polars.
    measure
        A measure whose weights are by rank alone: P, DCG, Gain, RBP.
    n
        Number of draws; distinct pairs for `distinct`.
    goal
        One of `evenhand.estimands.goals.GOALS`.
    systems
        The baseline, or the two systems of a pair.
    utility
        ``rank``, ``flat``, or the name of a column of predicted second moments.
    floor
        eps in (0, 1], the share of q0: above 0, so that whatever a system weighs can be drawn.
    sampler
        One of `SAMPLERS`.
    depth, queries
        As for `evenhand.pool`; by default the measure's cutoff, and the queries of the frame.

    Returns
    -------
    Excerpt

    Raises
    ------
    FormatError
        If the frame is no lazy frame, or cannot be read as entries of runs.
    EvenhandError
        If an option cannot be used, or more pairs are asked for than can be drawn.

    Notes
    -----
    The same key gives the same draws in every engine, up to the last digits of sums.
    """
    measure = weighed(measure)
    _check_options(n, sampler, floor)
    question = GoalSpec(goal, tuple(systems))
    moment = None if utility in ("rank", "flat") else utility
    with Workspace(frame) as engine:
        given = entries(engine, measure, depth=depth, queries=queries, second_moment=moment)
        made = cells(given, question, utility if moment is None else "column")
        made = proposal(engine, made, floor).filter(nw.col("q") > 0)
        key_order, key_draw = jax.random.split(key)
        made = ordered(key_order, made)
        support = int(made.select(nw.len()).collect()["len"][0])
        if sampler == "distinct":
            if n > support:
                raise EvenhandError(
                    f"cannot draw {n:,} distinct pairs: the design can draw {support:,}",
                    hint="a budget of that size judges every pair",
                )
            made = made.with_columns(expected=_filled(made, n))
            drawn = _distinct(key_draw, engine, made, n, support)
        else:
            total = float(made.select(nw.col("q").sum()).collect()["q"][0])
            made = made.with_columns(expected=nw.col("q") * (n / total))
            drawn = Line.of(engine, made, n, support).at(_points(key_draw, n))
        seen = _witnesses(jax.random.fold_in(key, 1), made, sampler, support, len(given.systems))
        return _brought(engine, given, question, drawn, seen, sampler, support)


def _check_options(n: int, sampler: str, floor: float) -> None:
    """Refuse what an engine cannot draw."""
    if sampler not in SAMPLERS:
        hint = f"in an engine there are {', '.join(SAMPLERS)}"
        raise EvenhandError(f"unknown sampler {sampler!r}", hint=hint)
    if not 0 < floor <= 1:
        raise EvenhandError(f"in an engine the floor must lie in (0, 1], got {floor:g}")
    if n < 1:
        raise EvenhandError(f"the number of pairs to draw must be at least 1, got {n}")


def _points(key: jax.Array, n: int) -> np.ndarray:
    """Where independent draws fall on a line of length n; shape (n,)."""
    u = np.asarray(jax.random.uniform(key, (n,), jnp.float64)) * n
    return np.minimum(u, np.nextafter(float(n), 0.0))


def _filled(made: nw.LazyFrame[Any], n: int) -> nw.Expr:
    """The E of `evenhand.sampling.water_fill`, in as many queries as it takes to know kappa."""
    largest = made.select("q").sort("q", descending=True).head(n).collect()["q"].to_numpy()
    sums = made.select(nw.col("q").sum(), nw.len()).collect()
    before = float(sums["q"][0]) - np.concatenate([[0.0], np.cumsum(largest)[:-1]])
    # Going down, each is certain while what is left to draw would give it 1 or more.
    over = (n - np.arange(len(largest))) * largest >= before
    certain = len(largest) if over.all() else int(np.argmin(over))
    least = float(largest[certain - 1]) if certain else np.inf
    left = made.filter(nw.col("q") < least).select(nw.col("q").sum(), nw.len()).collect()
    count = int(left["len"][0])
    kappa = (n - (int(sums["len"][0]) - count)) / float(left["q"][0]) if count else 0.0
    # What is certain but for rounding is certain.
    sure = (nw.col("q") >= least) | (nw.col("q") * kappa > 1.0 - 1e-12)
    return nw.when(sure).then(nw.lit(1.0)).otherwise(nw.col("q") * kappa)


def _distinct(
    key: jax.Array, engine: Workspace, made: nw.LazyFrame[Any], n: int, support: int
) -> dict[str, np.ndarray]:
    sure = nw.col("expected") == 1.0
    certain = made.filter(sure).select(*_COLUMNS).sort(*CELL).collect()
    parts = [{name: certain[name].to_numpy() for name in _COLUMNS}]
    left = n - len(certain)
    if left:
        line = Line.of(engine, made.filter(~sure), left, support)
        # Each whole number is spanned by one cell, since all are shorter than 1; were it crossed to
        # and fro by rounding, by the first.
        _, first = np.unique(np.floor(line.spanning["end"]), return_index=True)
        border = {name: column[first] for name, column in line.spanning.items()}
        u, v = jax.random.uniform(key, (2, left), jnp.float64)
        spans = Borders(jax.device_put(border["begin"]), jax.device_put(border["end"]))
        place, old = map(np.asarray, between(u, spans))
        found = line.at(place[~old])
        inside = np.zeros(left, np.int64)
        inside[~old] = left + np.arange(np.count_nonzero(~old))
        chosen = np.asarray(
            duels(v, spans, jax.device_put(old), jnp.arange(left), jax.device_put(inside))
        )
        both = {name: np.concatenate([border[name], found[name]]) for name in _COLUMNS}
        parts.append({name: column[chosen] for name, column in both.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}


def _witnesses(
    key: jax.Array, made: nw.LazyFrame[Any], sampler: str, support: int, k: int
) -> dict[str, np.ndarray]:
    """Cells of equation (1), and how many each represents."""
    made, chance = ordered(key, made), nw.lit(1.0)
    if support > WITNESSES:
        expected = nw.col("expected")
        free = 1.0 - expected if sampler == "distinct" else nw.lit(1.0)
        # Both contrasts and the systems' own values are asked about.
        y = (nw.col("norm") + nw.col("size") / k) * free.sqrt() / expected
        made = made.with_columns(size=expected * nw.col("likely") * y * y * y)
        total = float(made.select(nw.col("size").sum()).collect()["size"][0])
        share = nw.col("size") * (WITNESSES / total if total > 0 else 0.0)
        chance = nw.when(share < 1.0).then(share).otherwise(nw.lit(1.0))
    made = made.with_columns(share=chance)
    came = made.filter(nw.col("chance").cast(nw.Float64) < nw.col("share") * PRIME)
    found = came.select(*_COLUMNS, "share").sort(*CELL).collect()
    return {name: found[name].to_numpy() for name in found.columns}


def _brought(
    engine: Workspace,
    given: RankedEntries,
    question: GoalSpec,
    drawn: dict[str, np.ndarray],
    seen: dict[str, np.ndarray],
    sampler: str,
    support: int,
) -> Excerpt:
    """Cells with every entry of theirs, as a pool of their own."""
    joined = {name: np.concatenate([drawn[name], seen[name]]) for name in _COLUMNS}
    both = np.stack([joined[name] for name in CELL], axis=1)
    distinct, first, number = np.unique(both, axis=0, return_index=True, return_inverse=True)
    draws, witness = np.split(number.reshape(-1), [len(drawn["q"])])
    represents = np.zeros(len(distinct))
    represents[witness] = 1.0 / seen["share"]
    asked = {name: distinct[:, i] for i, name in enumerate(CELL)}
    asked["cell"] = np.arange(len(distinct))
    columns = ("cell", "query", "document", "system", "rank", "score", "weight")
    table = given.frame.join(engine.table(asked), on=list(CELL), how="inner").select(*columns)
    rows = table.sort("cell", "system").collect()
    cell, system, rank = (rows[c].to_numpy().astype(np.int64) for c in ("cell", "system", "rank"))
    start = np.searchsorted(cell, np.arange(len(distinct) + 1))
    ids = {
        c: pa.array(rows[c].to_list(), pa.string()).take(pa.array(start[:-1]))
        for c in ("query", "document")
    }
    queries = pa.array(given.queries, pa.string())
    documents = pa.array(sorted(set(ids["document"].to_pylist()), key=str.encode), pa.string())
    pool = Pool(
        systems=given.systems,
        queries=queries,
        documents=documents,
        query=codes_in(ids["query"], queries),
        document=codes_in(ids["document"], documents),
        start=start,
        system=system.astype(np.int32),
        rank=rank.astype(np.int32),
        score=rows["score"].to_numpy().astype(np.float64),
        depth=given.depth,
    )
    weight = rows["weight"].to_numpy().astype(np.float64)
    target = Target(pool, given.measure, weight, whole=Whole(given.total, represents, support))
    sample = Sample(sampler, draws, joined["expected"][first])
    if question.kind == "pair":
        goal = goals.pair(target, *question.named)
    else:
        goal = goals.goal(target, question.kind, system=(*question.named, None)[0])
    return Excerpt(goal, sample, joined["q"][first], support)
