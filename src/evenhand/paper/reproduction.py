"""What a reproduction came to: rows, curves and the tables and figures made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.errors import EvenhandError
from evenhand.paper.figures import plot_curves
from evenhand.paper.printed import NOTES
from evenhand.paper.rows import Curve, Row
from evenhand.reports.plots import save
from evenhand.results import Result, Table

__all__ = ["Reproduction"]


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
