r"""Cells in an engine: weights, the contrasts' norm and the proposal, in one group-by.

Every goal that has a name compares each system with a reference of the cell, m_c:

    ||a_c||^2 = sum_j (w_jc - m_c)^2                                                         (1)

==========================  ======================  ===================
goal                        m_c                     j
==========================  ======================  ===================
absolute                    0                       every system
baseline                    weight of the baseline  every system
rank, best, order           mean of all systems     every system
pair                        weight of the second    the first
==========================  ======================  ===================

so that no contrast is ever written out: a cell has a row for each system that returns it, and those
that do not have w = 0. With d = w - l, l the largest weight of the cell (of the baseline in its
goal), s_1 and s_2 the sums of d and d^2 over the m systems that return it, and k systems,

    rank:      s_2 + (k - m) l^2 - (s_1 - (k - m) l)^2 / k                                   (2)
    baseline:  s_2 + (k - m) l^2                                                             (3)

Where all agree both are exactly 0. The difference in (2) is harmless because one d is 0: the sum of
squares about the mean is then at least the square of the mean, so that the first part exceeds it
k + 1 times at most, and no more than that is lost of the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw

from evenhand.designs.utilities import PRIOR_SHARE
from evenhand.engines.ranked_entries import MOMENT, RankedEntries
from evenhand.engines.workspace import Workspace
from evenhand.errors import EvenhandError
from evenhand.estimands.goals import GOALS

__all__ = ["CELL", "GoalSpec", "cells", "proposal"]

#: Columns that identify a cell.
CELL = ("cell_query", "cell_document")


@dataclass(frozen=True, slots=True)
class GoalSpec:
    """A goal by name, with the systems that it names.

    Attributes
    ----------
    kind
        One of `evenhand.estimands.goals.GOALS`.
    named
        The baseline; for a pair the first and the second system; else empty.
    """

    kind: str
    named: tuple[str, ...] = ()

    def codes(self, systems: tuple[str, ...]) -> list[int]:
        """Numbers of the named systems.

        Raises
        ------
        EvenhandError
            If the goal is unknown, or names too many, too few, or unknown systems.
        """
        if self.kind not in GOALS:
            raise EvenhandError(
                f"unknown goal {self.kind!r}", hint=f"the goals are {', '.join(GOALS)}"
            )
        named = systems if self.kind == "pair" and not self.named else self.named
        wanted = {"baseline": 1, "pair": 2}.get(self.kind, 0)
        if len(set(named)) != wanted or len(named) != wanted:
            raise EvenhandError(
                f"the goal {self.kind!r} names {wanted} systems, got {len(named)}: "
                f"{', '.join(named)}"
            )
        unknown = [name for name in named if name not in systems]
        if unknown:
            raise EvenhandError(
                f"there is no system named {unknown[0]!r}",
                hint=f"the systems are {', '.join(systems[:8])}",
            )
        if self.kind in ("baseline", "rank", "best", "order") and len(systems) < 2:
            raise EvenhandError(f"the goal {self.kind!r} needs at least two systems, got 1")
        return [systems.index(name) for name in named]


def cells(given: RankedEntries, question: GoalSpec, utility: str = "rank") -> nw.LazyFrame[Any]:
    """Each cell's norm, summed weights and second moment, equations (1) to (3).

    Parameters
    ----------
    given
        The entries.
    question
        What is to be estimated.
    utility
        ``rank``, ``flat``, or ``column``: the predictions that came with the entries.

    Returns
    -------
    narwhals.LazyFrame
        Columns of `CELL`, norm, size (sum of |w_jc|), second_moment, and likely, what the ranks
        say of the chance of relevance.
    """
    k, codes = len(given.systems), question.codes(given.systems)
    frame, w, zero = given.frame, nw.col("weight"), nw.lit(0.0)
    if question.kind == "pair":
        sides = [nw.when(nw.col("system") == j).then(w).otherwise(zero) for j in codes]
        frame = frame.with_columns(first=sides[0], second=sides[1])
        sums = [nw.col("first").sum(), nw.col("second").sum()]
        norm = (nw.col("first") - nw.col("second")).abs()
    elif question.kind == "absolute":
        frame = frame.with_columns(square=w * w)
        sums, norm = [nw.col("square").sum()], nw.col("square").sqrt()
    else:
        one = nw.when(nw.col("system") == codes[0]).then(w).otherwise(zero) if codes else w
        frame = frame.with_columns(one=one)
        frame = frame.with_columns(level=nw.col("one").max().over(*CELL))
        frame = frame.with_columns(apart=w - nw.col("level"))
        frame = frame.with_columns(square=nw.col("apart") * nw.col("apart"))
        sums = [nw.col("level").max(), nw.col("apart").sum(), nw.col("square").sum()]
        missing = (nw.lit(k) - nw.col("returned")).cast(nw.Float64) * nw.col("level")
        norm = nw.col("square") + missing * nw.col("level")
        if not codes:
            mean = nw.col("apart") - missing
            norm = norm - mean * mean / k
        norm = nw.when(norm > 0).then(norm).otherwise(zero).sqrt()
    likely = nw.col("vote") / k + PRIOR_SHARE
    moment = {
        "flat": nw.lit(1.0),
        "rank": likely,
        "column": nw.col("moment"),
    }[utility]
    if utility == "column":
        sums.append(nw.col(MOMENT).max().alias("moment"))
    frame = frame.with_columns(size=w.abs())
    grouped = frame.group_by(*CELL).agg(
        *sums,
        nw.col("size").sum(),
        nw.col("vote").sum(),
        nw.len().cast(nw.Int64).alias("returned"),
    )
    return grouped.select(*CELL, "size", norm=norm, second_moment=moment, likely=likely)


def proposal(engine: Workspace, made: nw.LazyFrame[Any], floor: float) -> nw.LazyFrame[Any]:
    """The same cells with q, the probability of each in one draw, as `evenhand.designs.design`.

    Parameters
    ----------
    engine
        It keeps the cells.
    made
        Of `cells`.
    floor
        eps, the share of q0, above 0: every weight can then be drawn.
    """
    root = nw.col("second_moment").sqrt() * nw.col("norm")
    made = engine.keep(made.with_columns(root=root))
    sums = made.select(nw.col("root").sum(), nw.col("size").sum()).collect()
    root_total, size_total = float(sums["root"][0]), float(sums["size"][0])
    if size_total == 0:
        raise EvenhandError("no entry has any weight: there is nothing to judge")
    q = nw.col("size") / size_total
    if root_total > 0:
        q = floor * q + (1.0 - floor) * (nw.col("root") / root_total)
    return made.with_columns(q=q).drop("root")
