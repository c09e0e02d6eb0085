r"""A line of cells in an engine, and the cells that lie at its points.

`evenhand.sampling.algorithms` draws by laying cells on a line, each as long as its E_c, and looking
up who lies at some places of it. Here the engine lays the line, and only who is asked for comes
back.

**Order.** Cells come in the order of a random number each,

    h = f(number of the query) + g(number of the document) mod p,     p = 2^31 - 1            (1)

with f and g polynomials of degree 3 over the integers mod p whose coefficients come from the key.
Any three cells are ordered as three independent numbers would (Carter and Wegman 1979; Patrascu and
Thorup 2012, *The power of simple tabulation hashing*), and it takes no hash function of an engine's
own, so that all engines have the same order. Which order does not matter to the expectations.

**Length.** No engine has to sum over all cells in one place: the line is cut where h passes
multiples of one width, the sums of these stretches are added up on the driver, and within its
stretch each is cumulated by itself. Each cell begins exactly where the one before it ends, and the
last ends at n, so that every place is some cell's.

**Lookup.** Cells between two whole numbers are joined with the places between these. A cell that
spans a whole number goes to the driver, which needs it anyway; there are at most n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import narwhals as nw
import numpy as np

from evenhand.engines.cells import CELL
from evenhand.engines.workspace import Workspace

__all__ = ["PRIME", "Line", "ordered"]

#: Numbers by chance lie below it.
PRIME = 2**31 - 1
#: Cells that one stretch holds on average, and the most stretches.
_STRETCH, _MOST = 1 << 14, 1 << 12
_COLUMNS = (*CELL, "q", "expected", "begin", "end")


def ordered(key: jax.Array, made: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """The cells with the random number of equation (1), column ``chance``.

    Parameters
    ----------
    key
        Typed key.
    made
        Columns of `CELL`, and any others.
    """
    drawn = np.asarray(jax.random.randint(key, (2, 4), 1, PRIME)).tolist()

    def polynomial(x: nw.Expr, factors: list[int]) -> nw.Expr:
        value = x * 0 + factors[0]
        for factor in factors[1:]:
            value = (value * x + factor) % PRIME
        return value

    parts = [polynomial(nw.col(name), c) for name, c in zip(CELL, drawn, strict=True)]
    return made.with_columns(chance=(parts[0] + parts[1]) % PRIME)


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Cells laid out in the order of ``chance``, each as long as its ``expected``.

    Attributes
    ----------
    engine
        It keeps the line.
    frame
        Columns of `CELL`, q, expected, begin, end.
    spanning
        The cells that span a whole number, in the order of the line, as NumPy arrays by column.
    length
        n, where the last one ends.
    """

    engine: Workspace
    frame: nw.LazyFrame[Any]
    spanning: dict[str, np.ndarray]
    length: int

    @classmethod
    def of(cls, engine: Workspace, made: nw.LazyFrame[Any], n: int, cells: int) -> Line:
        """Lay out cells that have the columns q, expected (summing to n) and chance.

        Parameters
        ----------
        engine, made
            The engine, and the cells.
        n
            Length of the line.
        cells
            How many there are, about.
        """
        width = -(-PRIME // int(np.clip(cells // _STRETCH, 1, _MOST)))
        stretch = ((nw.col("chance") - nw.col("chance") % width) / width).round().cast(nw.Int64)
        made = made.with_columns(stretch=stretch)
        sums = made.group_by("stretch").agg(nw.col("expected").sum()).sort("stretch").collect()
        mass = np.cumsum(sums["expected"].to_numpy().astype(np.longdouble))
        stop = (mass / mass[-1] * n).astype(np.float64)
        start = np.concatenate([[0.0], stop[:-1]])
        edges = {"stretch": sums["stretch"].to_numpy().astype(np.int64)}
        edges |= {"low": start, "high": stop}
        made = made.join(engine.table(edges), on="stretch", how="inner")
        place: dict[str, Any] = {"order_by": ["chance", *CELL]}
        end = nw.col("low") + nw.col("expected").cum_sum().over("stretch", **place)
        after = nw.col("end").shift(-1).over("stretch", **place)
        made = made.with_columns(end=end).with_columns(after=after)
        last = nw.when(nw.col("after").is_null()).then(nw.col("high")).otherwise(nw.col("end"))
        made = made.with_columns(end=last)
        before = nw.col("end").shift(1).over("stretch", **place)
        made = made.with_columns(before=before)
        begin = nw.when(nw.col("before").is_null()).then(nw.col("low")).otherwise(nw.col("before"))
        made = made.with_columns(begin=begin).select(*_COLUMNS)
        stratum = nw.col("begin").floor().cast(nw.Int64)
        made = engine.keep(made.with_columns(stratum=stratum, until=nw.col("end").floor()))
        inside = nw.col("until") <= nw.col("stratum").cast(nw.Float64)
        found = _columns(made.filter(~inside))
        order = np.lexsort((found["end"], found["begin"]))
        return cls(engine, made.filter(inside), {c: x[order] for c, x in found.items()}, n)

    def at(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """The cell at each place, begin <= place < end.

        Parameters
        ----------
        places
            float64, shape (m,), from 0 to below the length.

        Returns
        -------
        dict
            Columns of `CELL`, q and expected; shape (m,).
        """
        asked = {"point": np.arange(len(places)), "place": places}
        asked["stratum"] = np.floor(places).astype(np.int64)
        joined = self.frame.join(self.engine.table(asked), on="stratum", how="inner")
        within = (nw.col("begin") <= nw.col("place")) & (nw.col("place") < nw.col("end"))
        found = _columns(joined.filter(within), "point")
        # Of two cells whose ends rounding has crossed, the first in line has the place.
        order = np.lexsort((found["begin"], found["point"]))
        point, first = np.unique(found["point"][order], return_index=True)
        names = (*CELL, "q", "expected")
        answer = {name: np.zeros(len(places), found[name].dtype) for name in names}
        for name in names:
            answer[name][point] = found[name][order][first]
        left = np.setdiff1d(np.arange(len(places)), point)
        beyond = np.searchsorted(self.spanning["begin"], places[left], side="right") - 1
        for name in names:
            answer[name][left] = self.spanning[name][beyond]
        return answer


def _columns(frame: nw.LazyFrame[Any], *more: str) -> dict[str, np.ndarray]:
    found = frame.select(*_COLUMNS, *more).collect()
    whole = {*CELL, "point"}
    return {
        name: found[name].to_numpy().astype(np.int64 if name in whole else np.float64)
        for name in found.columns
    }
