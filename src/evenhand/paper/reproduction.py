"""What a reproduction came to: rows, curves and the tables and figures made of them.

Every row names where the number is in the paper and what it is of, and holds

- ``paper``: what the paper prints, where it does;
- ``expected``: what it should be, from a closed form or an independent program;
- ``ours``: what this run found;
- ``tolerance``: how far `ours` may be from `expected`; a row without one is shown, not checked;
- ``mark``: letters of `evenhand.paper.printed.NOTES`, where a number needs a word.

Figures show how often the answer is right, against judgments a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from evenhand.errors import EvenhandError
from evenhand.paper.printed import NOTES
from evenhand.reports.plots import BLUE, GREY, MARKERS, ORANGE, save
from evenhand.results import Result, Table

__all__ = ["Curve", "Reproduction", "Row", "plot_curves"]


@dataclass(frozen=True, slots=True)
class Row:
    """One number; the module docstring says what its fields are."""

    table: str
    quantity: str
    system: str
    paper: float | None
    expected: float | None
    ours: float
    tolerance: float | None
    mark: str = ""

    @property
    def ok(self) -> bool | None:
        """Whether `ours` is as expected; None where that is not checked."""
        if self.expected is None or self.tolerance is None:
            return None
        # A tolerance of 0 asks for equality but for rounding.
        return bool(abs(self.ours - self.expected) <= self.tolerance + 1e-9)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """How often one design is right, against judgments a query.

    Attributes
    ----------
    figure
        Its place in the paper.
    kind
        ``pair``, ``baseline`` or ``rank``.
    quantity, design
        What is shown, and of which design.
    per_query
        Judgments a query; shape (budgets,).
    value, std_error
        Mean over studies, and its Monte Carlo standard error; same shape.
    expected
        From an independent program; None where there is none.
    """

    figure: str
    kind: str
    quantity: str
    design: str
    per_query: tuple[float, ...]
    value: np.ndarray
    std_error: np.ndarray
    expected: tuple[float, ...] | None

    def rows(self) -> list[Row]:
        """A row a budget; within .03 and three standard errors of what is expected."""
        return [
            Row(
                self.figure,
                f"{self.quantity}, {self.design}",
                f"{budget:g} a query",
                None,
                None if self.expected is None else self.expected[i],
                float(self.value[i]),
                None if self.expected is None else 0.03 + 3.0 * float(self.std_error[i]),
            )
            for i, budget in enumerate(self.per_query)
        ]


#: Inches: one column of a two-column page.
WIDTH, HEIGHT = 3.4, 2.4


def plot_curves(curves: Sequence[Curve], *, ax: Axes | None = None) -> Axes:
    """Curves of one quantity, one line a design, with bands of 95 % Monte Carlo error.

    Parameters
    ----------
    curves
        Of the same quantity.
    ax
        Axes to draw on; by default those of a new figure as wide as a column.
    """
    if ax is None:
        ax = Figure(figsize=(WIDTH, HEIGHT), layout="constrained").add_subplot()
    colours = {"naive": GREY, "Q*": BLUE}
    for i, curve in enumerate(curves):
        colour = colours.get(curve.design, ORANGE)
        label = r"$Q^*$" if curve.design == "Q*" else curve.design
        ax.plot(
            curve.per_query,
            curve.value,
            color=colour,
            marker=MARKERS[i],
            markersize=3.5,
            linewidth=1.3,
            linestyle="-" if curve.design == "Q*" else "--",
            label=label,
        )
        band = 1.96 * curve.std_error
        ax.fill_between(
            curve.per_query,
            curve.value - band,
            curve.value + band,
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
    first = curves[0]
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(list(first.per_query)))
    ax.xaxis.set_minor_locator(NullLocator())
    # Short enough to stand side by side in one column.
    ax.set_xticklabels([f"{x:g}".lstrip("0") for x in first.per_query])
    ax.tick_params(labelsize=7, length=2.5)
    ax.set_xlabel("judgments per query", fontsize=8)
    ax.set_ylabel(first.quantity, fontsize=8)
    lowest = min(float(curve.value.min()) for curve in curves)
    ax.set_ylim(max(0.0, lowest - 0.05), 1.02)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


@dataclass(frozen=True)
class Reproduction(Result):
    """The paper's tables and figures on one data set.

    Attributes
    ----------
    data
        ``SYNTH`` or ``TREC``.
    rows
        The numbers of Tables 2 to 7.
    curves
        The lines of the three figures.
    trials, seed
        Replicated studies behind each number that is not exact, and their seed.
    remarks
        What else a reader should know, a sentence each.
    """

    data: str
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    trials: int
    seed: int
    remarks: tuple[str, ...] = ()

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """`rows`, and those of the curves."""
        return (*self.rows, *(row for curve in self.curves for row in curve.rows()))

    @property
    def failures(self) -> tuple[Row, ...]:
        """Rows that are not as expected."""
        return tuple(row for row in self.all_rows if row.ok is False)

    @property
    def passed(self) -> bool:
        """Whether every number that is checked is as expected."""
        return not self.failures

    def tables(self) -> list[Table]:
        """One for each table and figure of the paper."""
        rows = self.all_rows
        names = list(dict.fromkeys(row.table for row in rows))
        return [self._table(name, [row for row in rows if row.table == name]) for name in names]

    def _table(self, name: str, rows: Sequence[Row]) -> Table:
        return Table.of(
            f"{name}, {self.data}",
            {
                "quantity": [row.quantity for row in rows],
                "system": [row.system for row in rows],
                "paper": [row.paper for row in rows],
                "expected": [row.expected for row in rows],
                "ours": [row.ours for row in rows],
                "tolerance": [row.tolerance for row in rows],
                "ok": [{True: "yes", False: "NO", None: "-"}[row.ok] for row in rows],
                "mark": [row.mark for row in rows],
            },
            {"paper": 2, "expected": 4, "ours": 4, "tolerance": 4},
        )

    def notes_shown(self) -> tuple[str, ...]:
        """How many numbers are as expected, the footnotes used, and remarks."""
        checked = [row for row in self.all_rows if row.ok is not None]
        wrong = self.failures
        used = sorted({mark for row in self.all_rows for mark in row.mark})
        said = f"{len(checked) - len(wrong)} of {len(checked)} numbers are as expected"
        where = "".join(f"; not {r.table}: {r.quantity} of {r.system}" for r in wrong[:5])
        return (
            *(f"({mark}) {NOTES[mark]}" for mark in used),
            *self.remarks,
            f"{said} ({self.trials:,} trials, seed {self.seed}){where}.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Every row, in full precision."""
        names = ("table", "quantity", "system", "paper", "expected", "ours", "tolerance", "ok")
        rows = [{name: getattr(row, name) for name in (*names, "mark")} for row in self.all_rows]
        return {
            "data": self.data,
            "trials": self.trials,
            "seed": self.seed,
            "passed": self.passed,
            "rows": rows,
            "notes": list(self.notes_shown()),
        }

    def figures(self, folder: str | Path) -> list[Path]:
        """Write each figure as PNG and PDF into a folder; gives the files.

        Raises
        ------
        EvenhandError
            If the folder cannot be written.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EvenhandError(f"cannot write into {folder}: {error.strerror}") from error
        written = []
        for kind in dict.fromkeys(curve.kind for curve in self.curves):
            ax = plot_curves([curve for curve in self.curves if curve.kind == kind])
            name = f"{self.data.lower()}-{kind}"
            written += [save(ax, folder / f"{name}.{ending}") for ending in ("png", "pdf")]
        return written
