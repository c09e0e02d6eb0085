r"""What the paper's experiments need of a data set: weights, approximate and true utilities by cell.

`Cells` holds them densely, one column a system. Cells that are alike (one weight in every system,
one approximate utility, one true utility) may be merged: m of them together behave in every
equation as a single cell whose weights are m times as large,

    sum over m alike cells of (a u)^2 / q = (m a u)^2 / (m q),                               (1)

so that what is exact for cells is exact for merged cells. SYNTH has 12 million cells and 10,000
kinds of them.

A `Question` is a set of systems and the contrasts that are asked of them. Two designs answer it,

    naive  q proportional to  u~ mean_j w_j                                                  (2)
    Q*     q proportional to  u~ ||a||                                                       (3)

with the approximate utility u~ averaged over the systems that the question mixes, or with the true
utility in its place; `variances` gives the exact variance of one draw for the four of them.

References
----------
Schnabel et al. 2016, sections 4 to 6 and 7.1; `evenhand.designs` for the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.designs import mixture, proposal, variance
from evenhand.errors import EvenhandError
from evenhand.precision import in_float64
from evenhand.targets import contrasts, norm

__all__ = ["DESIGNS", "SINGLE", "Cells", "Question", "questions", "single_masses", "variances"]

#: The four designs of the comparative experiments: sampler, and the utility that it knows.
DESIGNS: tuple[tuple[str, str], ...] = (
    ("naive", "u~"),
    ("Q*", "u~"),
    ("naive", "u*"),
    ("Q*", "u*"),
)

#: The designs of the experiments with one system; the last has a floor of 4 % uniform draws.
SINGLE: tuple[str, ...] = ("Q*", "Q^P", "Q^unif", "sqrt(u~)", "Q*, 4 % floor")


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A data set as arrays by cell.

    Attributes
    ----------
    systems
        Their names.
    weight
        w_jc, times `size`; float64, shape (cells, systems).
    guess
        u~_jc, the approximate utility as system j has it; shape (cells, systems).
    utility
        u_c; shape (cells,).
    size
        How many query-document pairs each cell stands for; shape (cells,).
    """

    systems: tuple[str, ...]
    weight: np.ndarray
    guess: np.ndarray
    utility: np.ndarray
    size: np.ndarray

    @property
    def values(self) -> np.ndarray:
        """U_j = sum_c w_jc u_c; shape (systems,)."""
        return self.utility @ self.weight

    def only(self, systems: Sequence[int]) -> Cells:
        """The given systems, and the cells that one of them returns."""
        weight = self.weight[:, systems]
        kept = (weight > 0).any(1)
        return Cells(
            tuple(self.systems[j] for j in systems),
            weight[kept],
            self.guess[kept][:, systems],
            self.utility[kept],
            self.size[kept],
        )

    def padded(self, length: int) -> Cells:
        """With empty cells behind, so that data sets of several sizes share a compilation."""

        def fill(array: np.ndarray) -> np.ndarray:
            wide = np.zeros((length, *array.shape[1:]))
            wide[: len(array)] = array
            return wide

        arrays = (self.weight, self.guess, self.utility, self.size)
        return Cells(self.systems, *map(fill, arrays))


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What is asked of some systems.

    Attributes
    ----------
    kind
        ``pair``, ``baseline`` or ``rank``.
    cells
        Their cells.
    matrix
        C; shape (contrasts, systems).
    mixed
        Share of each system in the mean weight and the mean u~ that designs use; sums to 1.
    """

    kind: str
    cells: Cells
    matrix: np.ndarray
    mixed: np.ndarray

    @property
    def truth(self) -> np.ndarray:
        """D = C U, exactly 0 where the systems are alike; shape (contrasts,)."""
        return self.cells.utility @ np.asarray(self.contrasts())

    @in_float64
    def contrasts(self) -> np.ndarray:
        """a_c of every cell; shape (cells, contrasts)."""
        return np.asarray(contrasts(self.cells.weight, self.matrix))

    @in_float64
    def masses(self) -> np.ndarray:
        """Probability of each cell in one draw, for the four `DESIGNS`; shape (4, cells)."""
        return np.asarray(_masses(*self._arrays())[1])

    @in_float64
    def variances(self) -> np.ndarray:
        """Variance of one draw, summed over contrasts, for the four `DESIGNS`; shape (4,)."""
        return np.asarray(_variances(*self._arrays()))

    def padded(self, length: int) -> Question:
        """With empty cells behind."""
        return replace(self, cells=self.cells.padded(length))

    def _arrays(self) -> tuple[jax.Array, ...]:
        c = self.cells
        return tuple(map(jnp.asarray, (c.weight, c.guess, c.utility, self.matrix, self.mixed)))


def _matrix(kind: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Contrasts and shares of k systems in order; the baseline is the middle one."""
    if kind == "pair":
        return np.array([[1.0, -1.0]]), np.full(2, 0.5)
    if kind == "rank":
        return np.eye(k) - 1.0 / k, np.full(k, 1.0 / k)
    middle = k // 2
    others = [j for j in range(k) if j != middle]
    matrix = np.eye(k)[others]
    matrix[:, middle] = -1.0
    mixed = np.zeros(k)
    mixed[others] = 1.0 / len(others)
    return matrix, mixed


def questions(cells: Cells, kind: str) -> list[Question]:
    """The paper's sets of systems that are hard to tell apart.

    Systems are ordered by true value. ``pair`` asks for each two neighbours; ``baseline`` and
    ``rank`` slide a window of five, in which ``baseline`` compares the middle system with the other
    four. (The paper's heuristic mixes those four, without the baseline.)

    Raises
    ------
    EvenhandError
        If there are fewer systems than one question needs.
    """
    k = 2 if kind == "pair" else 5
    if len(cells.systems) < k:
        raise EvenhandError(f"{kind!r} needs at least {k} systems, got {len(cells.systems)}")
    order = np.argsort(-cells.values, kind="stable")
    matrix, mixed = _matrix(kind, k)
    return [
        Question(kind, cells.only(order[first : first + k]), matrix, mixed)
        for first in range(len(order) - k + 1)
    ]


def _masses(weight, guess, utility, matrix, mixed) -> tuple[jax.Array, jax.Array]:
    """Contrasts, and the four proposals of equations (2) and (3)."""
    a = contrasts(weight, matrix)
    mean = weight @ mixed
    # A weighted mean of norms serves every goal: each contrast counts alike.
    size = norm(a, jnp.ones(matrix.shape[0]))
    known = (guess @ mixed, utility)
    # The heuristic (2) is (3) with the mean weight in place of the norm.
    return a, jnp.stack([proposal(s, u**2) for u in known for s in (mean, size)])


@jax.jit
def _variances(weight, guess, utility, matrix, mixed) -> jax.Array:
    a, q = _masses(weight, guess, utility, matrix, mixed)
    return jax.vmap(lambda mass: variance(mass, a, utility, utility**2).sum())(q)


def variances(asked: Sequence[Question]) -> np.ndarray:
    """Mean over the contrasts of the variance of one draw; shape (questions, 4 designs).

    Exact. Divided by n it is the variance of the estimates; the paper counts n a query.
    """
    longest = max(len(q.cells.utility) for q in asked)
    length = 1 << (longest - 1).bit_length()
    return np.array([q.padded(length).variances() / len(q.matrix) for q in asked])


@in_float64
def single_masses(cells: Cells) -> dict[str, np.ndarray]:
    """Probability of each cell when one system is evaluated alone, for the designs `SINGLE`."""
    weight, guess = cells.weight[:, 0], cells.guess[:, 0]
    flat = cells.size / cells.size.sum()
    best = np.asarray(proposal(weight, guess**2))
    # With a second moment of 1, or of u~ where u~ is read as a probability of relevance.
    plain, root = (np.asarray(proposal(weight, moment)) for moment in (np.ones_like(guess), guess))
    return dict(zip(SINGLE, (best, plain, flat, root, np.asarray(mixture(best, flat, 0.04)))))
