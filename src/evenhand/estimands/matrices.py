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

A system that does not return a document has a_jc = t w_c, whichever it is. So a sum over cells of
any f is that of f(t w_c), one number for all, and of f(a_jc) - f(t w_c) over the entries of j: of
100 systems each returns a twentieth of the pool, and a pass by entry does a twentieth of the work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["DiagonalAndRow", "Part", "diagonal_and_row", "parts", "tables"]

#: Fewer rows are no more work as a table.
_FEW = 3


class DiagonalAndRow(NamedTuple):
    """Equation (1), by system: the contrast i of a matrix is that of the system `place[i]`.

    Attributes
    ----------
    diagonal
        d; float64, shape (systems,).
    row
        t, likewise; None if it is 0.
    place
        The system of each contrast; int64, shape (contrasts,).
    """

    diagonal: np.ndarray
    row: np.ndarray | None
    place: np.ndarray


def diagonal_and_row(matrix: np.ndarray) -> DiagonalAndRow | None:
    """The matrix in the form of equation (1), or None if it has none or is better off as a table.

    Parameters
    ----------
    matrix
        C, shape (contrasts, systems).

    Notes
    -----
    Where there is a common row, all contrasts must sum to 0: cells that all systems weigh alike are
    then exactly 0.
    """
    m, k = matrix.shape
    if not _FEW <= m <= k:
        return None
    row = np.median(matrix, axis=0)  # in each column all rows but one are alike
    differ = matrix != row
    if (differ.sum(1) != 1).any() or (differ.sum(0) > 1).any():
        return None
    size = np.abs(matrix).sum(1)
    if row.any() and (np.abs(matrix.sum(1)) > 16 * np.finfo(float).eps * size).any():
        return None
    place = differ.argmax(1)
    diagonal = np.zeros(k)
    diagonal[place] = matrix[np.arange(m), place] - row[place]
    return DiagonalAndRow(diagonal, row if row.any() else None, place)


#: Numbers of some rows of a matrix, and their form of equation (1) if they have one.
Part = tuple[np.ndarray, DiagonalAndRow | None]


def parts(matrix: np.ndarray, *, most: int) -> list[Part]:
    """The rows of a matrix in parts that have the form of equation (1), and others.

    Parameters
    ----------
    matrix
        C, shape (contrasts, systems): often a row for each system, and a goal's contrasts below.
    most
        How many rows a part without the form may have.
    """
    alone = np.count_nonzero(matrix, axis=1) == 1
    found, others = [], []
    for rows in (np.flatnonzero(alone), np.flatnonzero(~alone)):
        form = diagonal_and_row(matrix[rows])
        if form is None:
            others.append(rows)
        else:
            found.append((rows, form))
    return [*found, *tables(np.concatenate([np.zeros(0, int), *others]), most=most)]


def tables(rows: np.ndarray, *, most: int) -> list[Part]:
    """Rows in parts of at most so many, whatever their form."""
    n_parts = -(-len(rows) // most)
    return [(some, None) for some in np.array_split(rows, n_parts)] if n_parts else []
