"""Results as tables: one shape for terminal, notebook, pandas, CSV, LaTeX and JSON.

A result is a `Result`: it names its tables, and everything that prints is derived from them.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas

__all__ = ["FORMATS", "Result", "Table", "decimals", "plain", "rows"]

Value = str | float | int | None


def plain(value: Any) -> Any:
    """A value as JSON knows it: NumPy scalars and arrays unpacked, NaN and infinities as None."""
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length.

    Attributes
    ----------
    title
        One line above it.
    columns
        Values by heading.
    digits
        Decimals of a number that is not whole, by heading; 4 where it is not named.
    positive
        Headings of numbers above 0, such as p-values: one that its decimals would show as 0 is
        shown as below the last of them (``<0.0001``).
    """

    title: str
    columns: Mapping[str, Sequence[Value]]
    digits: Mapping[str, int]
    positive: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        title: str,
        columns: Mapping[str, Sequence[Any]],
        digits: Mapping[str, int] | int = 4,
        *,
        positive: Collection[str] = (),
    ) -> Table:
        """Make a table from arrays or lists; `digits` may be one number for all columns."""
        values = {str(name): plain(list(column)) for name, column in columns.items()}
        if isinstance(digits, int):
            digits = dict.fromkeys(values, digits)
        return cls(title, values, digits, frozenset(positive))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> list[list[str]]:
        """The cells as text."""
        columns = [
            [self._text(value, self.digits.get(name, 4), name in self.positive) for value in column]
            for name, column in self.columns.items()
        ]
        return [list(row) for row in zip(*columns, strict=True)]

    @staticmethod
    def _text(value: Value, digits: int, positive: bool) -> str:
        if value is None:
            return "-"
        if isinstance(value, float):
            shown = f"{value:z.{digits}f}"
            if positive and value > 0 and float(shown) == 0:
                return f"<{10.0**-digits:.{digits}f}"
            return shown
        return (
            f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        )

    def numeric(self) -> list[bool]:
        """Which columns hold numbers."""
        return [not any(isinstance(v, str) for v in column) for column in self.columns.values()]

    def to_text(self, width: int | None = None) -> str:
        """The table as a terminal shows it; `width` in characters."""
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE, pad_edge=False)
        for name, numeric in zip(self.columns, self.numeric(), strict=True):
            table.add_column(Text(name), justify="right" if numeric else "left", no_wrap=True)
        for row in self.rows():
            table.add_row(*map(Text, row))
        out = io.StringIO()
        Console(file=out, width=width or 10_000).print(table)
        body = [line.rstrip() for line in out.getvalue().strip("\n").splitlines()]
        return "\n".join([self.title, *(line for line in body if line)])

    def to_html(self) -> str:
        """The table as HTML; every text is escaped."""
        numeric = self.numeric()
        style = ["text-align:right" if n else "text-align:left" for n in numeric]
        head = "".join(
            f'<th style="{s}">{html.escape(n)}</th>'
            for n, s in zip(self.columns, style, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="{s}">{html.escape(c)}</td>' for c, s in zip(row, style, strict=True)
            )
            + "</tr>"
            for row in self.rows()
        )
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def to_csv(self) -> str:
        """Comma-separated, with a heading, in full precision."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(
            zip(*(["" if v is None else v for v in c] for c in self.columns.values()), strict=True)
        )
        return out.getvalue()

    def to_latex(self) -> str:
        """A LaTeX tabular with booktabs rules."""
        special = {c: rf"\{c}" for c in "&%$#_{}"} | {
            "~": r"\textasciitilde{}",
            "^": r"\textasciicircum{}",
            # The classic fonts of text have other signs in their places.
            "<": "$<$",
            ">": "$>$",
        }

        def escape(text: str) -> str:
            return "".join({"\\": r"\textbackslash{}", **special}.get(c, c) for c in text)

        align = "".join("r" if n else "l" for n in self.numeric())
        lines = [
            " & ".join(map(escape, row)) + r" \\" for row in [list(self.columns), *self.rows()]
        ]
        return "\n".join(
            [
                f"% {self.title}",
                rf"\begin{{tabular}}{{{align}}}",
                r"\toprule",
                lines[0],
                r"\midrule",
                *lines[1:],
                r"\bottomrule",
                r"\end{tabular}",
                "",
            ]
        )

    def to_frame(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame, in full precision."""
        import pandas

        return pandas.DataFrame({name: list(column) for name, column in self.columns.items()})


def rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Columns of equal length as one dictionary a row."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def decimals(std_error: np.ndarray) -> int:
    """Decimals that show the smallest standard error with two digits."""
    positive = std_error[np.isfinite(std_error) & (std_error > 0)]
    return int(np.clip(1 - np.floor(np.log10(positive.min())), 2, 8)) if len(positive) else 4


#: How a result can be printed.
FORMATS: tuple[str, ...] = ("table", "json", "csv", "latex")


class Result(ABC):
    """Base of everything that the library answers with: tables, and what follows from them."""

    __slots__ = ()

    @abstractmethod
    def tables(self) -> list[Table]:
        """The tables of the result, the main one first."""

    def notes_shown(self) -> Sequence[str]:
        """Sentences to print below the tables."""
        return ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python values, as its JSON has it."""

    def to_frame(self, which: int = 0) -> pandas.DataFrame:
        """One of the tables as a pandas DataFrame, the main one by default."""
        return self.tables()[which].to_frame()

    def to_json(self) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(plain(self.to_dict()), ensure_ascii=False, indent=2, allow_nan=False)

    def render(self, format: str = "table") -> str:
        """The tables in one of `FORMATS`; JSON and `str` have the notes too."""
        if format == "json":
            return self.to_json() + "\n"
        if format == "csv":
            return "\n".join(table.to_csv() for table in self.tables())
        if format == "latex":
            return "\n".join(table.to_latex() for table in self.tables())
        return "\n\n".join(table.to_text() for table in self.tables()) + "\n"

    def __str__(self) -> str:
        notes = "\n".join(self.notes_shown())
        return self.render().rstrip("\n") + (f"\n\n{notes}" if notes else "")

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes_shown())
        return "".join(table.to_html() for table in self.tables()) + notes
