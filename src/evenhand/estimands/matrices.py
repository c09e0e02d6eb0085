r"""Matrices of contrasts that are a diagonal and one row, so that sums need a pool's entries only.

The contrasts that are asked for most often differ from one common row in one system each:

    C = diag(d) + 1 t^T,        a_jc = d_j w_jc + t w_c                                       (1)

========== ====== ======================
goal       d      t
========== ====== ======================
`absolute` 1      0
`baseline` 1      -e_baseline
`rank`     1      -(1, ..., 1) / k
========== ====== ======================

Goals say so of their own matrix (`evenhand.estimands.goals.Goal.form`); nothing is guessed.

A system that does not return a document has a_jc = t w_c, whichever it is. So a sum over cells of
any f is that of f(t w_c), one number for all, and of f(a_jc) - f(t w_c) over the entries of j: of
100 systems each returns a twentieth of the pool, and a pass by entry does a twentieth of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["DiagonalAndRow", "Form", "Part", "diagonal_and_row", "parts", "tables"]

#: Fewer rows are no more work as a table.
_FEW = 3


class DiagonalAndRow(NamedTuple):
    """Equation (1), by system: the contrast i of a matrix is that of the system `place[i]`.

    Attributes
    ----------
    diagonal
        d; float64, shape (systems,).
    row
        t, likewise; None if it is 0. Where it is not, each contrast sums to 0, so that cells which
        all systems weigh alike are exactly 0.
    place
        The system of each contrast; int64, shape (contrasts,).
    """

    diagonal: np.ndarray
    row: np.ndarray | None
    place: np.ndarray


#: The form of a matrix, or None for one that is better off as a table.
Form = DiagonalAndRow | None
#: Numbers of some rows of a matrix, and their form.
Part = tuple[np.ndarray, Form]


def diagonal_and_row(matrix: np.ndarray, place: np.ndarray, row: np.ndarray | None = None) -> Form:
    """The form of a matrix of contrasts that are known to have it.

    Parameters
    ----------
    matrix
        C, shape (contrasts, systems).
    place
        The system of each contrast, each once.
    row
        t, shape (systems,); None if it is 0. Each contrast must sum to 0 where it is not.
    """
    m, k = matrix.shape
    if m < _FEW:
        return None
    diagonal = np.zeros(k)
    diagonal[place] = matrix[np.arange(m), place] - (0.0 if row is None else row[place])
    return DiagonalAndRow(diagonal, row, place)


def parts(blocks: Sequence[tuple[int, Form]], *, most: int) -> list[Part]:
    """The rows of a matrix in parts that have the form of equation (1), and others.

    Parameters
    ----------
    blocks
        Number of rows and form of each block of the matrix, from its top: often a row for each
        system, and a goal's contrasts below.
    most
        How many rows a part without the form may have.
    """
    ends = np.cumsum([n for n, _ in blocks])
    rows = [np.arange(end - n, end) for end, (n, _) in zip(ends, blocks, strict=True)]
    forms = [form for _, form in blocks]
    found: list[Part] = [
        (some, form) for some, form in zip(rows, forms, strict=True) if form is not None
    ]
    others = [some for some, form in zip(rows, forms, strict=True) if form is None]
    return [*found, *tables(np.concatenate([np.zeros(0, int), *others]), most=most)]


def tables(rows: np.ndarray, *, most: int) -> list[Part]:
    """Rows in parts of at most so many, whatever their form."""
    n_parts = -(-len(rows) // most)
    return [(some, None) for some in np.array_split(rows, n_parts)] if n_parts else []
