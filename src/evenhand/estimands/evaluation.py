r"""Plain evaluation with complete judgments: what trec_eval does, for every system at once.

For measure m, the value of system j on query x is, where the measure is linear, the weighted sum of
utilities over its ranking, and otherwise what `evenhand.measures` says of it:

    V_mjx = sum over ranks r of  weight_m(r) * u_m(pair at rank r of j's list for x)          (1)
    V_mj  = (1 / |X|) sum_x V_mjx                                                             (2)

in the measure's own unit, with u the utility of the grade, averaged where a pair has several
judgments. A pair that nobody judged counts as 0 (MAE, MSE, Swaps, wSwaps: as grade 0), and so does
a query that a system does not answer; the notes say how many. Where many ranked documents are
unjudged, values are not comparable between systems: draw and judge (the rest of this library)
instead of evaluating.

Measures that estimate from judgments of a sample (infAP, xinfAP, infNDCG, statAP and its kin) ask
how it was drawn: `read_prels` reads that beside the judgments.

- `evaluate`: runs (or a pool that is there already) and judgments to values.
- `Evaluation`: the values by measure, system and query; prints as table, JSON, CSV and LaTeX.

No JAX is needed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.errors import EvenhandError
from evenhand.estimands.pools import Pool, codes_in
from evenhand.formats.prels import Prels, read_prels
from evenhand.formats.qrels import Qrels, read_qrels
from evenhand.formats.runs import Runs, read_runs
from evenhand.measures import grammar
from evenhand.measures.base import Inferred, Linear, Listwise, Measure, Ratio
from evenhand.measures.lists import Inclusion, Lists
from evenhand.results import Result, Table, plain

__all__ = ["Evaluation", "asks_sampling", "evaluate"]

#: How many names a note lists.
MOST = 5


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation(Result):
    """Values of systems under complete judgments.

    Attributes
    ----------
    measures
        What was measured, M of them.
    systems
        Names of the k systems.
    queries
        Ids of the |X| queries, sorted by bytes.
    values
        V_mjx, in the measure's unit; float64, shape (M, k, |X|).
    unjudged
        Share of the ranked documents that count for the measure and that nobody judged, from 0 to
        1; float64, shape (M, k); NaN for a system of which none counts.
    notes
        What a user should know, a sentence each.
    """

    measures: tuple[Measure, ...]
    systems: tuple[str, ...]
    queries: tuple[str, ...]
    values: np.ndarray
    unjudged: np.ndarray
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(map(str, self.measures))
        return f"Evaluation({names} of {len(self.systems)} systems on {len(self.queries)} queries)"

    @property
    def value(self) -> np.ndarray:
        """Mean over the queries, equation (2), in the measure's unit: float64, shape (M, k)."""
        return self.values.mean(-1)

    def tables(self) -> list[Table]:
        """One table, a row a system and a column a measure."""
        columns = {
            "system": self.systems,
            **{str(m): value for m, value in zip(self.measures, self.value, strict=True)},
        }
        return [Table.of(f"Means over {len(self.queries)} queries", columns)]

    def by_query(self) -> Table:
        """The table of all values, a row a system and query."""
        k, n = len(self.systems), len(self.queries)
        columns = {
            "system": np.repeat(np.array(self.systems, object), n),
            "query": np.tile(np.array(self.queries, object), k),
            **{str(m): v.reshape(-1) for m, v in zip(self.measures, self.values, strict=True)},
        }
        return Table.of(f"{k} systems by query", columns)

    def notes_shown(self) -> Sequence[str]:
        """The notes."""
        return self.notes

    def to_dict(self, per_query: bool = False) -> dict[str, Any]:
        """The values as plain Python values.

        Parameters
        ----------
        per_query
            Also name the value of each query, under each system.

        Returns
        -------
        dict
            ``{"measure": "P@10", "systems": [{"system": "bm25", "value": 0.4}]}``, with
            ``"queries": {"401": 0.3}`` in each system where asked for; of several measures
            ``{"measures": [such, such]}``.
        """

        def one(m: int) -> dict[str, Any]:
            systems: list[dict[str, Any]] = [
                {"system": name, "value": value}
                for name, value in zip(self.systems, self.value[m].tolist(), strict=True)
            ]
            if per_query:
                for entry, row in zip(systems, self.values[m].tolist(), strict=True):
                    entry["queries"] = dict(zip(self.queries, row, strict=True))
            return {"measure": str(self.measures[m]), "systems": systems}

        found = [one(m) for m in range(len(self.measures))]
        return found[0] if len(found) == 1 else {"measures": found}

    def to_json(self, per_query: bool = False) -> str:
        """`to_dict` as JSON text."""
        found = plain(self.to_dict(per_query))
        return json.dumps(found, ensure_ascii=False, indent=2, allow_nan=False)

    def render(self, format: str = "table", *, per_query: bool = False) -> str:
        """The values in one of `evenhand.results.FORMATS`.

        Parameters
        ----------
        format
            ``"table"``, ``"json"``, ``"csv"`` or ``"latex"``.
        per_query
            Also give the value of each query: in JSON under its system, in CSV instead of the
            means, otherwise in a table of its own before them.
        """
        if not per_query:
            return Result.render(self, format)
        table = self.by_query()
        if format == "json":
            return self.to_json(per_query=True) + "\n"
        if format == "csv":
            return table.to_csv()
        if format == "latex":
            return f"{table.to_latex()}\n{Result.render(self, format)}"
        return f"{table.to_text()}\n\n{Result.render(self, format)}"


def evaluate(
    runs: Runs | Pool | Any,
    qrels: Qrels | Prels | Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    queries: Iterable[str] | None = None,
) -> Evaluation:
    """Evaluate systems with complete judgments, equations (1) and (2).

    Parameters
    ----------
    runs
        The systems: `Runs`, anything that `read_runs` takes, or a `Pool` that is there already.
    qrels
        The judgments: `Qrels`, `Prels`, or anything that `read_qrels` takes; where a measure asks
        how they were sampled, `Prels` or anything that `read_prels` takes.
    measures
        One or several, as measures or as users write them (``"P@10"``, ``"nDCG@10"``, ``"AP"``).
    queries
        Ids of the queries to average over. By default those of the qrels, or of the pool if one is
        given. A query that a system does not answer earns 0, and a run's other queries are ignored;
        the notes give both.

    Returns
    -------
    Evaluation
        Values in each measure's own unit.

    Raises
    ------
    FormatError
        If runs or qrels cannot be read.
    EvenhandError
        If no measure or query is given, no run answers any of the queries, the pool is shallower
        than a measure looks, or a measure needs what the judgments do not have.

    Examples
    --------
    >>> run = {"q1": {"a": 3.0, "b": 2.0}, "q2": {"a": 1.0}}
    >>> found = evaluate({"bm25": run}, {"q1": {"b": 1}, "q2": {"a": 2, "c": 1}}, ["P@2", "DCG@2"])
    >>> found.value.round(4).tolist()
    [[0.5], [1.3155]]
    """
    wanted = _measures(measures)
    if not isinstance(runs, Runs | Pool):
        runs = read_runs(runs)
    qrels, prels = _judgments(qrels, wanted)
    if queries is not None:
        known: pa.Array = pa.array(sorted({str(q) for q in queries}, key=str.encode), pa.string())
    else:
        known = (runs.queries if isinstance(runs, Pool) else qrels.queries).cast(pa.string())
    if not len(known):
        raise EvenhandError("there are no queries to evaluate on")

    if isinstance(runs, Pool):
        _check_depth(runs, wanted)
    lists, ignored = _lists(runs, qrels, known, _deepest(wanted), prels)
    k, n = lists.n_systems, lists.n_queries
    answered = np.bincount(lists.number[lists.rank == 1], minlength=k * n).reshape(k, n) > 0
    if any(isinstance(measure, Listwise) for measure in wanted):
        lists = lists.ordered()

    values, counted, missing = _of_lists(wanted, lists)
    share = np.divide(missing, counted, out=np.full_like(missing, np.nan), where=counted > 0)
    return Evaluation(
        measures=wanted,
        systems=runs.systems,
        queries=tuple(known.to_pylist()),
        values=values,
        unjudged=share,
        notes=(
            *runs.notes,
            *qrels.notes,
            *(() if prels is None else prels.notes),
            *_query_notes(runs.systems, qrels, known, answered, ignored),
            *_norm_notes(wanted, lists, known),
            *_fault_notes(wanted, answered),
            *_unjudged_notes(wanted, runs.systems, counted, missing),
        ),
    )


def _judgments(given: Any, wanted: Sequence[Linear | Listwise]) -> tuple[Qrels, Prels | None]:
    """The judgments, and how they were sampled if they say so."""
    if not isinstance(given, Qrels | Prels):
        given = read_prels(given) if asks_sampling(wanted) else read_qrels(given)
    qrels, prels = (given.qrels, given) if isinstance(given, Prels) else (given, None)
    if not len(qrels):
        raise EvenhandError(f"{qrels.source} holds no judgment")
    return qrels, prels


def _of_lists(
    wanted: Sequence[Linear | Listwise], lists: Lists
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values by measure, system and query; documents that count, and those of them not judged."""
    k, n = lists.n_systems, lists.n_queries
    values = np.empty((len(wanted), k, n))
    counted, missing = np.empty((2, len(wanted), k))
    hit = np.flatnonzero(lists.pair >= 0)
    hit_pair, hit_number, hit_rank = lists.pair[hit], lists.number[hit], lists.rank[hit]
    ranks = np.arange(1, int(lists.rank.max()) + 1)
    for m, measure in enumerate(wanted):
        if isinstance(measure, Listwise):
            values[m] = measure.values(lists)
            counts = measure.counts(lists)
            counted[m] = np.bincount(lists.system[counts], minlength=k)
            missing[m] = np.bincount(lists.system[counts & (lists.pair < 0)], minlength=k)
            continue
        utility = lists.averaged(measure.utility(lists.grade))
        weight = measure.weight(ranks)
        product = weight[hit_rank - 1] * utility[hit_pair]
        # Most judged documents are not relevant: only the others add to a sum.
        some = np.flatnonzero(product)
        values[m] = lists.total(hit_number[some], product[some])
        counts = weight != 0
        counted[m] = _count(lists.system, lists.rank, counts, k)
        missing[m] = counted[m] - _count(lists.system[hit], hit_rank, counts, k)
    return values, counted, missing


def asks_sampling(measures: str | Measure | Iterable[str | Measure]) -> bool:
    """Whether a measure asks how judgments were sampled, so that `read_prels` must read them."""
    return any(isinstance(measure, Inferred) for measure in _measures(measures))


def _measures(measures: str | Measure | Iterable[str | Measure]) -> tuple[Linear | Listwise, ...]:
    if isinstance(measures, str | Measure):
        measures = [measures]
    wanted = {str(measure): measure for measure in map(grammar.measure, measures)}
    if not wanted:
        raise EvenhandError("no measure was given", hint="give one like P@10 or DCG@100")
    return tuple(wanted.values())


def _deepest(wanted: Sequence[Linear | Listwise]) -> int | None:
    """The last rank that any of the measures looks at; None where one looks at all."""
    depths = [_depth(measure) for measure in wanted]
    return None if None in depths else max(d for d in depths if d is not None)


def _depth(measure: Linear | Listwise) -> int | None:
    """The last rank that a measure looks at."""
    return measure.depth if isinstance(measure, Listwise) else measure.cutoff


def _check_depth(pool: Pool, measures: Iterable[Linear | Listwise]) -> None:
    if pool.depth is None or int(pool.rank.max(initial=0)) < pool.depth:
        return
    for measure in measures:
        depth = _depth(measure)
        if depth is None or depth > pool.depth:
            raise EvenhandError(
                f"{measure} looks deeper than the pool, whose depth is {pool.depth}",
                hint="evaluate the runs themselves, or pool them to the measure's cutoff",
            )


def _pairs(qrels: Qrels) -> tuple[np.ndarray, np.ndarray]:
    """Number of the distinct pair of each judgment, and the pairs' keys, ascending."""
    keys = qrels.query.astype(np.int64) * len(qrels.documents) + qrels.document
    # Judgments come sorted by query, document and assessor.
    first = np.concatenate([[True], keys[1:] != keys[:-1]])
    return np.cumsum(first) - 1, keys[first]


def _lists(
    runs: Runs | Pool, qrels: Qrels, known: pa.Array, depth: int | None, prels: Prels | None
) -> tuple[Lists, int]:
    """What the systems return within the depth, and how many queries of theirs were ignored."""
    judgment, judged = _pairs(qrels)
    rows = slice(None) if depth is None else np.flatnonzero(runs.rank <= depth)
    system, rank, score = runs.system[rows], runs.rank[rows], runs.score[rows]
    if isinstance(runs, Pool):
        cell = np.repeat(np.arange(len(runs), dtype=np.int32), np.diff(runs.start))[rows]
        query, document = runs.query[cell], runs.document[cell]
    else:
        query, document = runs.query[rows], runs.document[rows]

    answered = np.zeros(len(runs.queries), bool)
    answered[query] = True
    recode = codes_in(runs.queries, known)
    ignored = int(np.sum(answered & (recode < 0)))
    if ignored:
        keep = np.flatnonzero(recode[query] >= 0)
        system, rank, score, query, document = (
            x[keep] for x in (system, rank, score, query, document)
        )
    if not len(system):
        raise EvenhandError(
            "no run answers any query of the judgments",
            hint="check that runs and qrels come from the same collection",
        )
    inclusion = None
    if prels is not None:
        place = _places(runs, query, document, prels, prels.keys)
        own = _places(
            qrels, judged // len(qrels.documents), judged % len(qrels.documents), prels, prels.keys
        )
        pooled = np.full(len(place), -1, np.int64)
        pooled[place >= 0] = prels.stratum[place[place >= 0]]
        inclusion = Inclusion(pooled, prels.probability[own], prels.stratified)
    lists = Lists(
        n_systems=len(runs.systems),
        n_queries=len(known),
        system=system,
        number=system.astype(np.int64) * len(known) + recode[query],
        rank=rank,
        score=score,
        pair=_places(runs, query, document, qrels, judged),
        judgment=judgment,
        grade=qrels.grade,
        query=codes_in(qrels.queries, known)[judged // len(qrels.documents)],
        inclusion=inclusion,
    )
    return lists, ignored


def _places(
    source: Runs | Pool | Qrels,
    query: np.ndarray,
    document: np.ndarray,
    table: Qrels | Prels,
    keys: np.ndarray,
) -> np.ndarray:
    """Places of pairs, by their codes in a source, among those of a table; -1 where absent."""
    # Ids of documents are compared once each, and only those that a pair has.
    used = np.zeros(len(source.documents), bool)
    used[document] = True
    kept = np.flatnonzero(used)
    documents = np.full(len(used), -1, np.int32)
    documents[kept] = codes_in(source.documents.take(pa.array(kept)), table.documents)
    its_document = documents[document]
    its_query = codes_in(source.queries, table.queries)[query]
    place = np.full(len(query), -1, np.int32)
    hit = np.flatnonzero((its_document >= 0) & (its_query >= 0))
    wanted = its_query[hit].astype(np.int64) * len(table.documents) + its_document[hit]
    place[hit] = _find(keys, wanted, len(table.queries) * len(table.documents))
    return place


def _find(keys: np.ndarray, wanted: np.ndarray, n_keys: int) -> np.ndarray:
    """Places of the wanted in distinct keys below `n_keys`, -1 where they are not among them."""
    if n_keys <= 16 * (len(keys) + len(wanted)):
        place = np.full(n_keys, -1, np.int32)
        place[keys] = np.arange(len(keys), dtype=np.int32)
        return place[wanted]
    return codes_in(pa.array(wanted), pa.array(keys))


def _count(system: np.ndarray, rank: np.ndarray, counts: np.ndarray, k: int) -> np.ndarray:
    """How many ranked documents of each system count."""
    if not counts.all():
        system = system[counts[rank - 1]]
    return np.bincount(system, minlength=k)


def _query_notes(
    systems: tuple[str, ...],
    qrels: Qrels,
    known: pa.Array,
    answered: np.ndarray,
    ignored: int,
) -> list[str]:
    notes = []
    if ignored:
        notes.append(
            f"Ignored, not among the {len(known):,} queries evaluated: "
            f"{_counted(ignored)} of the runs."
        )
    by_any = np.asarray(answered.any(0))
    for what, absent in (
        ("Without a judgment, so that every system earns 0", codes_in(known, qrels.queries) < 0),
        ("Answered by no system, which earns 0", ~by_any),
    ):
        if absent.any():
            notes.append(f"{what}: {_named(known, absent)}.")
    partial = np.flatnonzero(~answered[:, by_any].all(1))
    for j in partial[:MOST]:
        absent = by_any & ~answered[j]
        notes.append(f"Unanswered by {systems[j]}, which earns 0: {_named(known, absent)}.")
    if len(partial) > MOST:
        notes.append(f"{len(partial) - MOST:,} more of the systems leave queries unanswered.")
    return notes


def _norm_notes(measures: Iterable[Measure], lists: Lists, known: pa.Array) -> list[str]:
    """Queries that have judgments and nothing to find, a sentence for measures that agree."""
    judged = lists.by_query(np.ones(len(lists.query))) > 0
    empty: dict[bytes, list[str]] = {}
    for measure in measures:
        if isinstance(measure, Ratio):
            nothing = judged & ~(measure.norm(lists) > 0)
            if nothing.any():
                empty.setdefault(nothing.tobytes(), []).append(str(measure))
    return [
        f"{', '.join(names)}: without a relevant document, so that every system earns 0: "
        f"{_named(known, np.frombuffer(which, bool))}."
        for which, names in empty.items()
    ]


def _fault_notes(measures: Iterable[Measure], answered: np.ndarray) -> list[str]:
    """That an unanswered query looks perfect to a measure that counts faults."""
    names = [str(m) for m in measures if isinstance(m, Listwise) and m.lower_is_better]
    if not names or answered.all():
        return []
    return [f"{', '.join(names)}: lower is better, and an unanswered query counts as 0."]


def _unjudged_notes(
    measures: tuple[Measure, ...],
    systems: tuple[str, ...],
    counted: np.ndarray,
    missing: np.ndarray,
) -> list[str]:
    notes = []
    for measure, total, lacking in zip(measures, counted, missing, strict=True):
        if lacking.any():
            share = np.divide(lacking, total, out=np.zeros_like(lacking), where=total > 0)
            worst = int(share.argmax())
            faults = isinstance(measure, Listwise) and measure.lower_is_better
            worth = "count as grade 0" if faults else "earn 0"
            notes.append(
                f"{measure}: {_percent(lacking.sum() / total.sum())} of the "
                f"{int(total.sum()):,} ranked documents that count are unjudged and {worth}"
                + (f", most of {systems[worst]} ({_percent(share[worst])})" * (len(systems) > 1))
                + "."
            )
    return notes


def _percent(share: float) -> str:
    return "under 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def _counted(n: int) -> str:
    return "1 query" if n == 1 else f"{n:,} queries"


def _named(known: pa.Array, which: np.ndarray) -> str:
    names = known.filter(pa.array(which)).to_pylist()
    more = ", ..." if len(names) > MOST else ""
    return f"{_counted(len(names))} ({', '.join(names[:MOST])}{more})"
