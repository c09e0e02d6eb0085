"""One number, and one line of a figure: what is printed beside what is exact and what is ours.

Every row names where the number stands in the paper and what it is of, and holds

- ``paper``: what the paper prints, where it does;
- ``expected``: what it should be, from a closed form or an independent program;
- ``ours``: what this run found;
- ``tolerance``: how far `ours` may be from `expected`; a row without one is shown, not checked;
- ``mark``: letters of `evenhand.paper.printed.NOTES`, where a number needs a word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Curve", "Row"]


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
        Where it stands in the paper.
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
