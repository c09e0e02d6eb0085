r"""What is asked of the systems' values: the contrasts to estimate.

With U the systems' values and w_c their weights on cell c (`evenhand.estimands.targets`, equation
1),

    a_c = C w_c,   D = C U = sum_c a_c u_c   the contrasts of the goal with matrix C           (2)

A goal is a matrix, contrasts x systems; there is no code path by scenario:

==========  =========================================  ============================
goal        contrasts                                  rows of C
==========  =========================================  ============================
`absolute`  each system's own value                    e_j
`pair`      one system against another                 e_x - e_y
`baseline`  every other system against a baseline      e_j - e_baseline
`rank`      each system against the mean of all        e_j - (1, ..., 1) / k
`best`      the same; which of them is best            those of `rank`
`order`     the same; in which order they come         those of `rank`
`contrast`  your own                                   any
==========  =========================================  ============================

`best` and `order` ask as `rank` does, and differ in what later rounds are designed for: the pairs
that earlier rounds left undecided (`evenhand.decisions.focus`). What is reported never depends on
judgments.

Designs need only the norm of a_c, weighted by the importance h_i of each contrast:

    ||a_c|| = sqrt( sum_i h_i a_ic^2 )                                                       (3)

Differences are taken before squaring, relative to the largest weight of the cell: where all systems
agree, a comparative contrast is exactly 0, not a rounding error.

References
----------
Schnabel et al. 2016, sections 3 to 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evenhand.errors import EvenhandError
from evenhand.estimands.matrices import Form, diagonal_and_row
from evenhand.estimands.targets import Target
from evenhand.float64 import in_float64

__all__ = [
    "GOALS",
    "Goal",
    "absolute",
    "baseline",
    "best",
    "contrast",
    "differences",
    "goal",
    "order",
    "pair",
    "pairs",
    "rank",
]


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """The contrasts to estimate, equation (2).

    Attributes
    ----------
    target
        The systems' weights.
    kind
        Name of the goal.
    names
        Name of each contrast.
    matrix
        C; float64, shape (contrasts, systems).
    importance
        h_i >= 0 of each contrast in the design's objective; shape (contrasts,).
    form
        The diagonal and the row that make up C, where it has this form
        (`evenhand.estimands.matrices`).
    expected_norms
        ||a_c||, shape (cells,), where it is an expectation and not that of C and the weights; None
        for equation (3).
    """

    target: Target
    kind: str
    names: tuple[str, ...]
    matrix: np.ndarray
    importance: np.ndarray
    form: Form = None
    expected_norms: np.ndarray | None = None

    def __repr__(self) -> str:
        return (
            f"Goal({self.kind}: {len(self.names)} contrasts of {len(self.target.systems)} systems)"
        )

    def at(self, cells: np.ndarray) -> np.ndarray:
        """a_c of some cells: float64, shape (cells given, contrasts)."""
        from evenhand.estimands.contrasts import contrasts

        return contrasts(self.target.weights(cells), self.matrix)

    @in_float64
    def norms(self) -> np.ndarray:
        """||a_c|| of every cell, equation (3): float64, shape (cells,)."""
        from evenhand.estimands.contrasts import norms

        if self.expected_norms is not None:
            return self.expected_norms

        def begin(first: int, last: int) -> Any:
            blocks = self.target.blocks(first, last)
            return norms(blocks, self.matrix, self.importance, self.form)

        found = np.empty(len(self.target.pool))
        for first, last, here in self.target.ahead(begin):
            found[first:last] = np.asarray(here)[: last - first]
        return found


def contrast(
    target: Target,
    matrix: np.ndarray,
    *,
    names: Sequence[str] | None = None,
    importance: np.ndarray | Sequence[float] | None = None,
    kind: str = "contrast",
) -> Goal:
    """Your own contrasts.

    Parameters
    ----------
    target
        The systems' weights.
    matrix
        C, shape (contrasts, systems).
    names
        A name for each contrast.
    importance
        h_i >= 0, shape (contrasts,): how much each contrast's variance counts in the design; all
        alike by default.
    kind
        Name of the goal.

    Raises
    ------
    EvenhandError
        If shapes do not fit, or a number is not finite or negative where it must not be.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> goal = eh.contrast(target, [[0.5, -0.5]], names=["half the difference"])
    >>> goal.norms().round(3).tolist()
    [0.5, 0.185, 0.315]
    """
    try:
        matrix = np.atleast_2d(np.asarray(matrix, np.float64))
    except (TypeError, ValueError) as error:
        raise EvenhandError("the contrast matrix must be a table of numbers") from error
    if matrix.ndim != 2 or matrix.shape[1] != len(target.systems) or not len(matrix):
        raise EvenhandError(
            f"the contrast matrix must have a column for each of the {len(target.systems)} systems "
            f"and at least one row, got shape {matrix.shape}"
        )
    names = (
        tuple(f"contrast {i + 1}" for i in range(len(matrix))) if names is None else tuple(names)
    )
    importance = np.ones(len(matrix)) if importance is None else np.asarray(importance, np.float64)
    if len(names) != len(matrix) or importance.shape != (len(matrix),):
        raise EvenhandError(
            f"{len(matrix)} contrasts need as many names and importances, "
            f"got {len(names)} and {importance.size}"
        )
    if not (
        np.isfinite(matrix).all() and np.isfinite(importance).all() and (importance >= 0).all()
    ):
        raise EvenhandError("contrasts must be finite, and importances finite and not negative")
    if not importance.any():
        raise EvenhandError("at least one contrast needs an importance above 0")
    return Goal(target, kind, names, matrix, importance)


def absolute(target: Target) -> Goal:
    """Each system's own value: the rows e_j.

    Parameters
    ----------
    target
        The systems' weights.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> eh.absolute(target).names
    ('x', 'y')
    """
    own = np.eye(len(target.systems))
    form = diagonal_and_row(own, np.arange(len(own)))
    return replace(contrast(target, own, names=target.systems, kind="absolute"), form=form)


def pair(target: Target, first: str | None = None, second: str | None = None) -> Goal:
    """One system against another; by default the only two there are.

    Parameters
    ----------
    target
        The systems' weights.
    first, second
        The contrast is first - second.

    Raises
    ------
    EvenhandError
        If systems are not named and there are not exactly two, or both are the same.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> eh.pair(target).names
    ('x - y',)
    """
    if first is None and second is None:
        if len(target.systems) != 2:
            raise EvenhandError(
                f"the goal 'pair' needs two systems, got {len(target.systems)}",
                hint="give two runs, or take the goal 'rank' or 'baseline'",
            )
        first, second = target.systems
    if first is None or second is None or first == second:
        raise EvenhandError(f"a pair needs two different systems, got {first!r} and {second!r}")
    row = np.zeros((1, len(target.systems)))
    row[0, target.pool.system_code(first)] = 1.0
    row[0, target.pool.system_code(second)] = -1.0
    return contrast(target, row, names=[f"{first} - {second}"], kind="pair")


def baseline(target: Target, system: str) -> Goal:
    """Every other system against the baseline `system`.

    Parameters
    ----------
    target
        The systems' weights.
    system
        The baseline.

    Raises
    ------
    EvenhandError
        If no system has this name, or it is the only one.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> eh.baseline(target, "x").names
    ('y - x',)
    """
    code = target.pool.system_code(system)
    others = [j for j in range(len(target.systems)) if j != code]
    if not others:
        raise EvenhandError(f"there is no system to compare with the baseline {system!r}")
    matrix = np.eye(len(target.systems))[others]
    matrix[:, code] = -1.0
    names = [f"{target.systems[j]} - {system}" for j in others]
    row = np.zeros(len(target.systems))
    row[code] = -1.0
    form = diagonal_and_row(matrix, np.array(others), row)
    return replace(contrast(target, matrix, names=names, kind="baseline"), form=form)


def rank(target: Target) -> Goal:
    """Each system against the mean of all: what ranks them.

    Its norm is that of all pairs but for a factor, so one design is best for both.

    Parameters
    ----------
    target
        The systems' weights.

    Raises
    ------
    EvenhandError
        If there is only one system.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> eh.rank(target).names
    ('x - mean', 'y - mean')
    """
    k = len(target.systems)
    if k < 2:
        raise EvenhandError("ranking needs at least two systems, got 1")
    names = [f"{name} - mean" for name in target.systems]
    matrix = np.eye(k) - 1.0 / k
    form = diagonal_and_row(matrix, np.arange(k), np.full(k, -1.0 / k))
    return replace(contrast(target, matrix, names=names, kind="rank"), form=form)


def differences(first: np.ndarray, second: np.ndarray, k: int) -> np.ndarray:
    """e_x - e_y for each pair (x, y) of `first` and `second` among k systems: shape (pairs, k)."""
    matrix, row = np.zeros((len(first), k)), np.arange(len(first))
    matrix[row, first], matrix[row, second] = 1.0, -1.0
    return matrix


def pairs(target: Target) -> Goal:
    """Every system against every other, k (k - 1) / 2 contrasts."""
    k = len(target.systems)
    if k < 2:
        raise EvenhandError("comparing pairs needs at least two systems, got 1")
    first, second = np.triu_indices(k, 1)
    matrix = differences(first, second, k)
    names = [
        f"{target.systems[x]} - {target.systems[y]}" for x, y in zip(first, second, strict=True)
    ]
    return contrast(target, matrix, names=names, kind="pairs")


def best(target: Target) -> Goal:
    """Which system is best: contrasts as of `rank`, later rounds where challengers are close.

    Parameters
    ----------
    target
        The systems' weights.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> eh.best(target)
    Goal(best: 2 contrasts of 2 systems)
    """
    return replace(rank(target), kind="best")


def order(target: Target) -> Goal:
    """The order of all systems: contrasts as of `rank`, later rounds where pairs are close.

    Parameters
    ----------
    target
        The systems' weights.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> eh.order(target)
    Goal(order: 2 contrasts of 2 systems)
    """
    return replace(rank(target), kind="order")


GOALS: tuple[str, ...] = ("absolute", "pair", "baseline", "rank", "best", "order")


def goal(target: Target, kind: str, *, system: str | None = None) -> Goal:
    """The goal called `kind`, one of `GOALS`; `system` is the baseline.

    Raises
    ------
    EvenhandError
        If there is no such goal, or a baseline is missing or not wanted.
    """
    if kind not in GOALS:
        raise EvenhandError(f"unknown goal {kind!r}", hint=f"the goals are {', '.join(GOALS)}")
    if (kind == "baseline") != (system is not None):
        if system is None:
            raise EvenhandError("the goal 'baseline' needs a baseline", hint="--baseline SYSTEM")
        raise EvenhandError(f"the goal {kind!r} takes no baseline, got {system!r}")
    if system is not None:
        return baseline(target, system)
    makers = {"absolute": absolute, "pair": pair, "rank": rank, "best": best, "order": order}
    return makers[kind](target)
