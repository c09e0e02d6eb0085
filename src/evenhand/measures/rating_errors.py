r"""Errors of scores that predict grades: the mean over a list of how far they are off.

    value of list y  =  sum over its documents of  weight * error(score, grade),
    weight = 1 / |y|                                                                     (1)

with |y| the number of documents of the list within the cutoff. A document that nobody judged counts
as grade 0 (complete judgments have none), and where a document has several judgments their errors
are averaged. An empty list has no error: its value is 0, as for every measure, though here 0 is the
best value there is.

These are linear in the pairs of a query and a document, but a pair's error depends on the system,
whose score it is: `evenhand.nonlinear.rating_errors` estimates them from samples, without bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evenhand.measures.lists import Lists, WithinCutoff

__all__ = ["MAE", "MSE"]


class _Deviation(WithinCutoff):
    """Mean error of the scores of a list, equation (1)."""

    __slots__ = ()
    lower_is_better: ClassVar[bool] = True
    reason: ClassVar[str] = "of errors, which depend on the system's own score as well"

    @property
    def top_utility(self) -> float | None:
        """None: nothing bounds a grade."""
        return None

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """The grade itself, which the scores predict."""
        return np.asarray(grade, np.float64)

    def weight(self, rank: np.ndarray, length: np.ndarray) -> np.ndarray:
        """1/|y| within the cutoff, by the rank and by how many documents were returned."""
        if self.cutoff is None:
            return 1.0 / np.broadcast_to(length, np.shape(rank))
        return np.where(rank <= self.cutoff, 1.0 / np.minimum(length, self.cutoff), 0.0)

    def error(self, score: np.ndarray, grade: np.ndarray) -> np.ndarray:
        """How far a score is off its grade."""
        raise NotImplementedError  # each measure's own

    def values(self, lists: Lists) -> np.ndarray:
        """Equation (1) of each list."""
        lists = lists.cut(self.cutoff)
        document, grade, share = lists.said()
        number = lists.number[document]
        weight = self.weight(lists.rank[document], lists.length()[number])
        return lists.total(number, weight * share * self.error(lists.score[document], grade))


@dataclass(frozen=True, slots=True)
class MAE(_Deviation):
    """Mean absolute error: the mean of |score - grade| over the documents returned.

    >>> str(MAE()), float(MAE().error(np.array([2.5]), np.array([1.0]))[0])
    ('MAE', 1.5)
    """

    cutoff: int | None = None

    def error(self, score: np.ndarray, grade: np.ndarray) -> np.ndarray:
        """The absolute difference, in grades."""
        return np.abs(np.asarray(score, np.float64) - grade)


@dataclass(frozen=True, slots=True)
class MSE(_Deviation):
    """Mean squared error: the mean of (score - grade)^2 over the documents returned.

    >>> str(MSE(cutoff=20)), float(MSE().error(np.array([2.5]), np.array([1.0]))[0])
    ('MSE@20', 2.25)
    """

    cutoff: int | None = None

    def error(self, score: np.ndarray, grade: np.ndarray) -> np.ndarray:
        """The squared difference, in squared grades."""
        return (np.asarray(score, np.float64) - grade) ** 2
