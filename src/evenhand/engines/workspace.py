"""What narwhals leaves to each engine: to keep a result there, and to send it a small table.

A lazy frame is a recipe. A design asks several things of one recipe (its sums, its largest
probabilities, its draws), so what is asked again is *kept* by the engine: as a temporary table
(DuckDB), persisted by the executors (Spark) or collected (Polars). Small tables go the other way:
weights by rank, the places of the draws. A `Workspace` does both and gives everything back at its
end.
"""

from __future__ import annotations

import itertools
from types import TracebackType
from typing import Any

import narwhals as nw
import numpy as np

from evenhand.errors import EvenhandError, FormatError

__all__ = ["Workspace"]

_NUMBER = itertools.count()
_KNOWN = (
    nw.Implementation.DUCKDB,
    nw.Implementation.POLARS,
    nw.Implementation.PYSPARK,
)


class Workspace:
    """An engine at work on one frame; a context manager.

    Parameters
    ----------
    frame
        Anything that narwhals takes for a lazy frame of DuckDB, PySpark or Polars.

    Raises
    ------
    FormatError
        If it is of another engine, or held in memory.
    EvenhandError
        If narwhals is too old for lazy frames.
    """

    def __init__(self, frame: Any) -> None:
        # Earlier ones lack some expressions, and sort some windows otherwise.
        if tuple(map(int, nw.__version__.split(".")[:2])) < (2, 14):
            raise EvenhandError(
                f"lazy frames need narwhals 2.14 or later, got {nw.__version__}",
                hint="pip install 'evenhand[engines]'",
            )
        try:
            taken = nw.from_native(frame)
        except TypeError:
            taken = None
        if taken is None or taken.implementation not in _KNOWN:
            kind = type(frame).__name__
            raise FormatError(
                f"not a lazy frame of DuckDB, PySpark or Polars, got {kind}",
                hint="what fits into memory goes to `evenhand.read_runs`",
            )
        self.frame: nw.LazyFrame[Any] = taken.lazy()
        self._native: Any = self.frame.to_native()
        self._undo: list[Any] = []

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for undo in reversed(self._undo):
            undo()

    def keep(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The same rows, made once and kept by the engine until the work is done."""
        native: Any = frame.to_native()
        if frame.implementation is nw.Implementation.POLARS:
            return nw.from_native(native.collect().lazy())
        if frame.implementation is nw.Implementation.DUCKDB:
            # Views and tables of a relation live in its own connection, which it does not expose.
            name = f"evenhand_{next(_NUMBER)}"
            native.query("made", f"create temp table {name} as select * from made")
            self._undo.append(lambda: native.query("made", f"drop table if exists {name}"))
            return nw.from_native(native.query("made", f"select * from {name}")).lazy()
        kept = native.persist()
        self._undo.append(kept.unpersist)
        return nw.from_native(kept)

    def table(self, columns: dict[str, np.ndarray]) -> nw.LazyFrame[Any]:
        """A small table, sent to the engine; int64 and float64 columns, or texts."""
        if self.frame.implementation is nw.Implementation.POLARS:
            import polars as pl

            return nw.from_native(pl.LazyFrame(columns))
        if self.frame.implementation is nw.Implementation.DUCKDB:
            shown = ", ".join(f'unnest({_literal(c)}) as "{name}"' for name, c in columns.items())
            return nw.from_native(self._native.query("made", f"select {shown}")).lazy()
        rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
        kinds = ", ".join(f"{name} {_SPARK[c.dtype.kind]}" for name, c in columns.items())
        return nw.from_native(self._native.sparkSession.createDataFrame(rows, kinds))


_SPARK = {"i": "bigint", "f": "double", "U": "string", "O": "string"}


def _literal(column: np.ndarray) -> str:
    """A list in SQL, with every bit of its numbers."""
    if column.dtype.kind == "f":
        return f"[{', '.join(f'{x:.17e}' for x in column.tolist())}]::double[]"
    if column.dtype.kind == "i":
        return f"[{', '.join(map(str, column.tolist()))}]::bigint[]"
    quoted = ("'" + str(x).replace("'", "''") + "'" for x in column.tolist())
    return f"[{', '.join(quoted)}]::varchar[]"
