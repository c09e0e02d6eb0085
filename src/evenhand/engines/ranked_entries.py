"""Run entries in an engine: checked, ranked, and numbered.

Ids become numbers inside the engine: a query its place among all queries, a document its place
among those of its query. Both are places in the order of the ids' bytes. (DuckDB and Polars compare
UTF-8 byte by byte, and so does Spark under its own collation, UTF8_BINARY; a column with another
collation is compared as that says.) So all engines number alike, and draw alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from evenhand.designs.utilities import rank_votes
from evenhand.engines.workspace import Workspace
from evenhand.errors import EvenhandError, FormatError
from evenhand.formats.frames import ROLES, column_of
from evenhand.measures import grammar
from evenhand.measures.base import Linear, Measure, is_sum

__all__ = ["MOMENT", "RankedEntries", "entries", "weighed"]

#: The column of predicted second moments, where there is one, under this name from here on.
MOMENT = "second_moment"


@dataclass(frozen=True, slots=True, eq=False)
class RankedEntries:
    """Ranked entries as the engine keeps them, and what little the driver knows of them.

    Attributes
    ----------
    frame
        Columns query, document (texts), cell_query, cell_document (their numbers), system (its
        number), rank, score, weight (lambda(rank) / |X|), vote, and `MOMENT` where given.
    measure
        Gives weight by rank and utility by grade.
    systems
        Names, in the order of their bytes.
    queries
        Ids of the study's queries, in the order of their bytes.
    total
        W_j, the summed weight of each system; shape (systems,).
    depth
        Deepest rank kept.
    """

    frame: nw.LazyFrame[Any]
    measure: Linear
    systems: tuple[str, ...]
    queries: tuple[str, ...]
    total: np.ndarray
    depth: int


def weighed(measure: Measure | str) -> Linear:
    """The measure, if its weights are by rank alone.

    Raises
    ------
    EvenhandError
        If it is a ratio, or a sum of errors or pairs.
    """
    measure = grammar.measure(measure) if isinstance(measure, str) else measure
    if not is_sum(measure):
        raise EvenhandError(
            f"{measure} is no sum over documents of weight by rank times utility by grade",
            hint="in an engine take P, DCG, Gain or RBP",
        )
    return measure


def entries(
    engine: Workspace,
    measure: Linear,
    *,
    depth: int | None = None,
    queries: Sequence[str] | None = None,
    second_moment: str | None = None,
) -> RankedEntries:
    """Check, rank and number the entries of a frame.

    Parameters
    ----------
    engine
        At work on a frame with columns for system, query, document, and score or rank, under any of
        the names that data frames of runs may have; both as `evenhand.read_runs` reads them: by
        score descending, or where there is none by rank ascending, ties by document id descending.
    measure
        Gives the weight of a rank.
    depth
        Deepest rank kept; by default the measure's cutoff, or all.
    queries
        The study's queries; by default those of the frame.
    second_moment
        A column of predicted second moments, alike in each entry of a pair.

    Raises
    ------
    FormatError
        If a column is missing or of another type, a value is missing or not finite, or a system
        returns a document twice.
    EvenhandError
        If no entry is of the study's queries, or the depth is below the measure's cutoff.
    """
    if depth is not None and depth < 1:
        raise EvenhandError(f"the depth must be at least 1, got {depth}")
    if depth is not None and (measure.cutoff is None or measure.cutoff > depth):
        raise EvenhandError(
            f"{measure} looks deeper than the depth, {depth}",
            hint="leave the depth out: it is then the measure's cutoff",
        )
    depth = measure.cutoff if depth is None else depth
    frame = _checked(engine.frame, second_moment)
    systems = _texts(frame.select("system").unique(), "system")
    asked = None if queries is None else sorted({str(q) for q in queries}, key=str.encode)
    if asked is not None:
        if not asked:
            raise EvenhandError("the study has no queries")
        wanted = engine.table({"query": np.array(asked, dtype=object)})
        frame = frame.join(wanted, on="query", how="inner")
    # Every list has a first rank: none of these are lost by the depth.
    number = frame.select("query").unique().with_row_index("cell_query", order_by="query")
    number = engine.keep(number.with_columns(nw.col("cell_query").cast(nw.Int64)))
    ids = _texts(number, "query", "cell_query")
    if not ids:
        raise EvenhandError(
            "no run answers any query of the study",
            hint="check that runs and queries come from the same collection",
        )
    frame = _ranked(frame)
    if depth is not None:
        frame = frame.filter(nw.col("rank") <= depth)
    order = nw.col("document").rank("dense").over("query").cast(nw.Int64) - 1
    frame = frame.with_columns(cell_document=order).join(number, on="query", how="inner")
    frame = _coded(engine, frame, systems)
    if depth is None:
        frame = engine.keep(frame)
        depth = int(frame.select(nw.col("rank").max()).collect()["rank"][0])
    ranks = np.arange(1, depth + 1)
    known = ids if asked is None else tuple(asked)
    by_rank = {
        "rank": ranks,
        "weight": np.asarray(measure.weight(ranks), np.float64) / len(known),
        "vote": rank_votes(ranks, depth),
    }
    frame = engine.keep(frame.join(engine.table(by_rank), on="rank", how="inner"))
    _check_repeats(frame)
    sums = frame.group_by("system").agg(nw.col("weight").sum()).sort("system").collect()
    total = np.zeros(len(systems))  # one may answer none of the study's queries
    total[sums["system"].to_numpy()] = sums["weight"].to_numpy()
    return RankedEntries(frame, measure, systems, known, total, depth)


def _texts(frame: nw.LazyFrame[Any], name: str, by: str | None = None) -> tuple[str, ...]:
    """The texts of a small column, in the order of another, or of their bytes."""
    found = frame.sort(by or name).collect()[name].to_list()
    return tuple(found if by else sorted(found, key=str.encode))


def _coded(
    engine: Workspace, frame: nw.LazyFrame[Any], systems: Sequence[str]
) -> nw.LazyFrame[Any]:
    """With the number of each system for its name."""
    code = engine.table(
        {"system": np.array(systems, dtype=object), "code": np.arange(len(systems))}
    )
    return frame.join(code, on="system", how="inner").drop("system").rename({"code": "system"})


def _ranked(frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """With the rank of each entry: by score descending, ties by document id descending."""
    # The place from the end in ascending order of both is the rank, in descending order of both.
    rank = (
        nw.col("one").cum_sum(reverse=True).over("system", "query", order_by=["score", "document"])
    )
    return frame.with_columns(one=nw.lit(1)).with_columns(rank=rank.cast(nw.Int64)).drop("one")


def _found_columns(
    schema: Any, second_moment: str | None
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The column of each role, and those of numbers under the names that they get."""
    found = {role: column_of(schema.names(), role) for role in ("system", "query", "document")}
    # A column `score` goes before `rank`, as in files of runs.
    key = "score" if column_of(schema.names(), "score") else "rank"
    found[key] = column_of(schema.names(), key)
    for role, name in found.items():
        if name is None:
            role = "score or rank" if role == "rank" else role
            names = ROLES["score"] + ROLES["rank"] if role == "score or rank" else ROLES[role]
            raise FormatError(
                f"no column for the {role}, got {', '.join(schema.names())}",
                hint=f"name it one of {', '.join(names)}",
            )
    numbers = {"score": found[key]}
    if second_moment is not None:
        if second_moment not in schema.names():
            raise FormatError(
                f"no column {second_moment}, got {', '.join(schema.names())}",
                hint="name the column of predicted second moments",
            )
        numbers[MOMENT] = second_moment
    for name in numbers.values():
        if not schema[str(name)].is_numeric():
            raise FormatError(f"{name} is not a column of numbers, got {schema[str(name)]}")
    return found, numbers


def _checked(frame: nw.LazyFrame[Any], second_moment: str | None) -> nw.LazyFrame[Any]:
    """The columns under their own names and types, without a missing value."""
    found, numbers = _found_columns(frame.collect_schema(), second_moment)
    key = "score" if "score" in found else "rank"
    texts = [
        nw.col(str(found[r])).cast(nw.String).alias(r) for r in ("system", "query", "document")
    ]
    taken = [nw.col(str(name)).cast(nw.Float64).alias(to) for to, name in numbers.items()]
    frame = frame.select(*texts, *taken)
    # 0 and -0 are one score, though engines may sort them apart.
    sign = -1.0 if key == "rank" else 1.0
    empty = [
        (nw.col(r).is_null() | (nw.col(r) == "")).cast(nw.Int64).sum().alias(r)
        for r in ("system", "query", "document")
    ]
    # NaN before null: an engine may make NaN of what is missing.
    wrong = [
        (nw.col(to).is_null() | ~nw.col(to).is_finite()).cast(nw.Int64).sum().alias(to)
        for to in numbers
    ]
    if second_moment is not None:
        wrong.append((nw.col(MOMENT) < 0).cast(nw.Int64).sum().alias("negative"))
    counted = frame.select(*empty, *wrong).collect()
    names = {r: str(found[r]) for r in ("system", "query", "document")}
    names |= {to: str(name) for to, name in numbers.items()}
    faults = [
        f"{names.get(what, second_moment)}: {int(counted[what][0]):,} values are "
        + {"negative": "negative"}.get(
            what, "missing" if what in found and what != "score" else "missing or not finite"
        )
        for what in counted.columns
        if counted[what][0]
    ]
    if faults:
        raise FormatError.collect(faults, hint="mend or drop these rows")
    score = nw.when(nw.col("score") == 0).then(nw.lit(0.0)).otherwise(sign * nw.col("score"))
    return frame.with_columns(score=score)


def _check_repeats(frame: nw.LazyFrame[Any]) -> None:
    """Refuse documents that a system returns twice for a query."""
    by = ("cell_query", "cell_document", "system")
    twice = frame.group_by(*by).agg(times=nw.len()).filter(nw.col("times") > 1)
    number = int(twice.select(nw.len()).collect()["len"][0])
    if number:
        shown = frame.join(twice.sort(*by).head(3), on=list(by), how="inner")
        named = shown.select("query", "document").unique().sort("query", "document").collect()
        faults = [f"document {d} occurs twice in query {q}" for q, d in named.iter_rows()]
        raise FormatError.collect(
            faults,
            hint="keep one row a document: a system ranks each at most once a query",
            total=max(number, len(faults)),
        )
