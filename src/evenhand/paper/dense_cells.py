r"""What the paper's experiments need of a data set: weights and utilities by cell.

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
Schnabel et al. 2016, sections 4 to 6 and 7.1; `evenhand.designs.proposals` for the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.designs.proposals import mixture, proposal, variance
from evenhand.errors import EvenhandError
from evenhand.estimands.contrasts import contrasts, norm
from evenhand.float64 import in_float64

__all__ = ["DESIGNS", "SINGLE", "Cells", "Question", "questions", "single", "variances"]

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
        How many query-document pairs each cell represents; shape (cells,).
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

    def only(self, systems: Sequence[int] | np.ndarray) -> Cells:
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

    def padded(self, length: int | None = None) -> Cells:
        """With empty cells behind, up to a power of two: several sizes then share a compilation."""
        length = _power(len(self.utility)) if length is None else length

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
        return self.cells.utility @ self.contrasts()

    def contrasts(self) -> np.ndarray:
        """a_c of every cell; shape (cells, contrasts)."""
        return self._answers()[0]

    def masses(self) -> np.ndarray:
        """Probability of each cell in one draw, for the four `DESIGNS`; shape (4, cells)."""
        return self._answers()[1]

    def variances(self) -> np.ndarray:
        """Variance of one draw, summed over contrasts, for the four `DESIGNS`; shape (4,).

        Cells that a design cannot draw are left out, see `unreached`.
        """
        return self._answers()[2]

    def unreached(self) -> np.ndarray:
        """Part of each contrast in cells that a design cannot draw; shape (4, contrasts).

        It is the bias of the design's estimate, with the opposite sign.
        """
        return self._answers()[3]

    @in_float64
    def _answers(self) -> tuple[np.ndarray, ...]:
        c = self.cells
        arrays = map(jax.device_put, (c.weight, c.guess, c.utility, self.matrix, self.mixed))
        return tuple(map(np.asarray, _answers(*arrays)))


def _matrix(kind: str, k: int, mix_baseline: bool) -> tuple[np.ndarray, np.ndarray]:
    """Contrasts and shares of k systems in order; the baseline is the middle one."""
    if kind == "pair":
        return np.array([[1.0, -1.0]]), np.full(2, 0.5)
    if kind == "rank":
        return np.eye(k) - 1.0 / k, np.full(k, 1.0 / k)
    middle = k // 2
    others = [j for j in range(k) if j != middle]
    matrix = np.eye(k)[others]
    matrix[:, middle] = -1.0
    mixed = np.full(k, 1.0)
    mixed[middle] = float(mix_baseline)
    return matrix, mixed / mixed.sum()


def questions(
    cells: Cells, kind: str, *, mix_baseline: bool = False, window: int | None = None
) -> list[Question]:
    """The paper's sets of systems that are hard to distinguish.

    Systems are ordered by true value. ``pair`` asks for each two neighbours; ``baseline`` and
    ``rank`` slide a window of five, in which ``baseline`` compares the middle system with the other
    four. Sets whose systems are all alike are left out: there is nothing to ask.

    Parameters
    ----------
    cells
        The data set.
    kind
        ``pair``, ``baseline`` or ``rank``.
    mix_baseline
        Let the designs of ``baseline`` mix all five systems, not the four candidates only as the
        paper has it. Needed where the baseline returns what no candidate returns.
    window
        Systems in each set: by default 2 for ``pair`` and 5 for the others.

    Raises
    ------
    EvenhandError
        If there are fewer systems than one question needs.
    """
    k = window or (2 if kind == "pair" else 5)
    if len(cells.systems) < k:
        raise EvenhandError(f"{kind!r} needs at least {k} systems, got {len(cells.systems)}")
    order = np.argsort(-cells.values, kind="stable")
    matrix, mixed = _matrix(kind, k, mix_baseline)
    windows = [cells.only(order[first : first + k]) for first in range(len(order) - k + 1)]
    differ = [w for w in windows if (w.weight != w.weight[:, :1]).any()]
    length = _power(max((len(w.utility) for w in differ), default=1))
    return [Question(kind, window.padded(length), matrix, mixed) for window in differ]


def _power(length: int) -> int:
    """The power of two from `length` on."""
    return 1 << max(length - 1, 0).bit_length()


@jax.jit
def _answers(weight, guess, utility, matrix, mixed) -> tuple[jax.Array, ...]:
    """Contrasts, the four proposals of equations (2) and (3), their variances and biases."""
    a = contrasts(weight, matrix)
    size = norm(a, jnp.ones(matrix.shape[0]))
    # The heuristic (2) is (3) with the mean weight in place of the norm.
    q = jnp.stack(
        [
            proposal(each, known**2)
            for known in (guess @ mixed, utility)
            for each in (weight @ mixed, size)
        ]
    )

    def outcome(mass: jax.Array) -> tuple[jax.Array, jax.Array]:
        drawn = mass > 0
        reached = jnp.where(drawn[:, None], a, 0.0)
        summed = variance(mass, reached, utility, utility**2).sum()
        return summed, jnp.where(drawn, 0.0, utility) @ a

    return a, q, *jax.vmap(outcome)(q)


def variances(asked: Sequence[Question]) -> np.ndarray:
    """Mean over the contrasts of the variance of one draw; shape (questions, 4 designs).

    Exact. Divided by n it is the variance of the estimates; the paper counts n a query.
    """
    return np.array([q.variances() / len(q.matrix) for q in asked])


@jax.jit
def _single(weight, guess, utility, size) -> tuple[jax.Array, jax.Array]:
    flat = size / size.sum()
    best = proposal(weight, guess**2)
    # With a second moment of 1, or of u~ where u~ is read as a probability of relevance.
    plain, root = proposal(weight, jnp.ones_like(guess)), proposal(weight, guess)
    q = jnp.stack([best, plain, flat, root, mixture(best, flat, 0.04)])
    moments = (weight[:, None], utility, utility**2)
    return q, jax.vmap(lambda mass: variance(mass, *moments)[0])(q)


@in_float64
def single(cells: Cells) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    r"""Designs for the first system alone.

    Returns
    -------
    masses
        Probability of each cell in one draw, by the names of `SINGLE`.
    variances
        Of one draw, n Var(U^) = sum_c (w_c u_c)^2 / q_c - U^2, exactly.
    """
    columns = (cells.weight[:, 0], cells.guess[:, 0], cells.utility, cells.size)
    q, squares = map(np.asarray, _single(*columns))
    masses = dict(zip(SINGLE, q, strict=True))
    return masses, dict(zip(SINGLE, map(float, squares), strict=True))
