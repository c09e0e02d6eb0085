r"""What is to be estimated: each system's weights over the pool.

With w_jc = weight(rank of cell c in system j) / |X| (0 where j does not return c) and u_c the
utility of c,

    U_j = sum_c w_jc u_c                     the value of system j, in the measure's own unit  (1)

What is asked of the systems' values, and with it the contrasts that designs are made for, is a
goal (`evenhand.estimands.goals`).

References
----------
Schnabel et al. 2016, sections 3 to 6. Weights here are not normalised to sum to one over the pool,
so that the measure's own unit comes out and lists of different length stay comparable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from evenhand.errors import EvenhandError
from evenhand.estimands.pools import Pool, dense, stretches
from evenhand.measures.base import Linear, Measure, is_sum, sign, uses_lengths, uses_scores
from evenhand.measures.grammar import sampled

if TYPE_CHECKING:
    from evenhand.estimands.blocks import Blocks

__all__ = ["Target", "Whole", "target"]

Begun = TypeVar("Begun")

#: Entries that pass at a time, in blocks.
PIECE = 1 << 21
#: Entries summed at a time, few enough to stay in a core's cache.
_CACHED = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """What is known of a pool of which only some cells are at hand (`evenhand.engines`).

    Attributes
    ----------
    total
        Weight of each system over the whole pool; shape (systems,).
    inverse_probability
        Inverse inclusion probability of each cell at hand: how many cells of the whole it counts
        as; 0 where it came for another reason. Shape (cells,).
    n_cells
        Cells of the whole pool.
    """

    total: np.ndarray
    inverse_probability: np.ndarray
    n_cells: int


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Each system's weights over the pool, equation (1).

    Attributes
    ----------
    pool
        The cells.
    measure
        Gives the weight of a rank and the utility of a grade.
    weight
        w_jc by entry, in the measure's unit divided by |X|; float64, shape (entries,).
    entries
        Where the entries of each cell begin, shape (cells + 1,), and whose they are, shape
        (entries,), if systems weigh also what they do not return; None for those of the pool.
    whole
        What is known of the other cells, where only some are at hand; None if all are.
    floor
        What designs mix in so that every cell can be drawn, shape (cells,); None for the mean
        weight.
    """

    pool: Pool
    measure: Linear
    weight: np.ndarray
    entries: tuple[np.ndarray, np.ndarray] | None = None
    whole: Whole | None = None
    floor: np.ndarray | None = None

    @classmethod
    def of_weights(cls, pool: Pool, measure: Linear, weights: np.ndarray) -> Target:
        """From a table of weights, shape (cells, systems), which may be negative."""
        cell, system = np.nonzero(weights)
        start = np.searchsorted(cell, np.arange(len(pool) + 1))
        return cls(pool, measure, weights[cell, system], (start, system.astype(np.int32)))

    @property
    def start(self) -> np.ndarray:
        """Where the entries of each cell begin; int64, shape (cells + 1,)."""
        return self.pool.start if self.entries is None else self.entries[0]

    @property
    def system(self) -> np.ndarray:
        """The system of each entry; int32, shape (entries,)."""
        return self.pool.system if self.entries is None else self.entries[1]

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems."""
        return self.pool.systems

    @property
    def sign(self) -> int:
        """1 where a higher value is better, -1 where the measure counts faults."""
        return sign(self.measure)

    def check_linear(self) -> None:
        """Refuse weights by rank alone of a measure that is no sum of these and utilities.

        Raises
        ------
        EvenhandError
            If the measure is a ratio, or of errors, and the weights are by rank.
        """
        if self.entries is None and not is_sum(self.measure):
            raise EvenhandError(
                f"{self.measure} is no sum over documents of weight by rank times utility by grade",
                hint=f"`evenhand.nonlinear.kind_of({str(self.measure)!r})` has a `design_goal` "
                "and an `estimate`",
            )

    @property
    def cell(self) -> np.ndarray:
        """The cell of each entry; int64, shape (entries,)."""
        return np.repeat(np.arange(len(self.pool)), np.diff(self.start))

    def weights(self, cells: np.ndarray) -> np.ndarray:
        """w_c of some cells: float64, shape (cells given, systems)."""
        return dense(self.start, self.system, self.weight, cells, len(self.systems))

    def pieces(self) -> Iterator[tuple[int, int]]:
        """First cell and end of stretches of the pool, of about `PIECE` entries each."""
        return stretches(self.start, PIECE)

    def ahead(self, work: Callable[[int, int], Begun]) -> Iterator[tuple[int, int, Begun]]:
        """What `work` gives of each stretch of `pieces`, its first cell and its end before it.

        Work that JAX has only begun goes on while the next stretch is cut into blocks; no more than
        two are in memory.
        """
        begun: tuple[int, int, Begun] | None = None
        for first, last in self.pieces():
            following = first, last, work(first, last)
            if begun is not None:
                yield begun
            begun = following
        if begun is not None:
            yield begun

    def blocks(self, first: int = 0, last: int | None = None) -> Blocks:
        """The weights in blocks: those of all cells, or of a stretch of them."""
        from evenhand.estimands.blocks import Blocks

        start = self.start[first : len(self.pool) + 1 if last is None else last + 1]
        here = slice(start[0], start[-1])
        return Blocks.of(start, self.system[here], self.weight[here], len(self.systems))

    def mean_weight(self) -> np.ndarray:
        """Mean size of the weights of each cell over the systems, or the `floor` that is given.

        Returns
        -------
        numpy.ndarray
            float64, shape (cells,).
        """
        if self.floor is not None:
            return self.floor
        size = np.append(np.abs(self.weight), 0.0)  # a cell without entries may be the last
        summed = np.add.reduceat(size, self.start[:-1])
        return np.where(np.diff(self.start) > 0, summed, 0.0) / len(self.systems)

    def total(self, inside: np.ndarray | None = None) -> np.ndarray:
        """Weight of each system, over all cells or those where `inside` holds: shape (systems,).

        Cells that are not at hand could be drawn, and count as inside.
        """
        if self.whole is not None:
            outside = np.zeros(len(self.pool)) if inside is None else ~inside * 1.0
            return self.whole.total - self.values(outside)
        return self.values(np.ones(len(self.pool)) if inside is None else inside * 1.0)

    def values(self, utility: np.ndarray) -> np.ndarray:
        """U_j of each system given the utility of every cell, equation (1): shape (systems,)."""
        found = np.zeros(len(self.systems))
        for first, last in stretches(self.start, _CACHED):
            here = slice(self.start[first], self.start[last])
            said = np.repeat(utility[first:last], np.diff(self.start[first : last + 1]))
            said *= self.weight[here]
            found += np.bincount(self.system[here], said, minlength=len(found))
        return found

    def identical(self) -> list[list[int]]:
        """Groups of systems that weigh the same pairs alike, so that they differ by exactly 0.

        Where weights are to stand beside errors of scores, these must be the same, too.
        """
        columns = [self.weight]
        if uses_scores(self.measure) and self.entries is None:
            columns.append(self.pool.score)
        counts = self._fingerprints(columns)
        seeming = [np.flatnonzero(counts == count) for count in np.unique(counts)]
        groups: dict[bytes, list[int]] = {}
        for j in sorted(int(j) for alike in seeming if len(alike) > 1 for j in alike):
            own = np.flatnonzero((self.system == j) & (self.weight != 0))
            cell = np.searchsorted(self.start, own, side="right")
            digest = hashlib.sha256(cell.tobytes())
            for column in columns:
                digest.update(column[own].tobytes())
            groups.setdefault(digest.digest(), []).append(j)
        return [group for group in groups.values() if len(group) > 1]

    def _fingerprints(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """A number of each system that differs, but for rare chance, where a column of it does.

        The sum of numbers in [0, 1) that are made from cell and columns of each entry that counts.
        Alike systems have the same sum to the bit, since both are added in the order of the cells.
        """
        found = np.zeros(len(self.systems))
        for first, last in stretches(self.start, _CACHED):
            here = slice(self.start[first], self.start[last])
            mixed = np.repeat(
                np.arange(first, last, dtype=np.uint64), np.diff(self.start[first : last + 1])
            )
            for column in columns:
                mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= np.ascontiguousarray(column[here], np.float64).view(np.uint64)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(27)
            made = np.where(self.weight[here] != 0, (mixed >> np.uint64(11)) * 2.0**-53, 0.0)
            found += np.bincount(self.system[here], made, minlength=len(found))
        return found

    def alike(self) -> np.ndarray:
        """The first system that weighs the same pairs alike, often itself: int, shape (systems,).

        Contrasts of a matrix C are exactly 0 where ``C @ (alike()[:, None] == arange(k))`` is.
        """
        first = np.arange(len(self.systems))
        for group in self.identical():
            first[group] = group[0]
        return first


def target(pool: Pool, measure: Measure | str) -> Target:
    """Weights of every system over the pool, equation (1).

    For a ratio these are the factors of the utilities in its sum, for MAE and MSE the factors of
    errors, and for Swaps what a rank weighs together with those before it, to make goals of:
    designs and estimates take weights of their own (`evenhand.nonlinear.ratios`,
    `evenhand.nonlinear.rating_errors`, `evenhand.nonlinear.swaps`).

    Parameters
    ----------
    pool
        The cells.
    measure
        Gives the weight of a rank, and the utility of a grade.

    Raises
    ------
    EvenhandError
        If the measure cannot be estimated from samples, or the pool is shallower than it looks.

    Examples
    --------
    >>> import numpy as np
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> target.weights(np.arange(3)).round(3).tolist()  # by pair and system
    [[1.0, 0.0], [0.631, 1.0], [0.0, 0.631]]
    """
    measure = sampled(measure)
    if pool.depth is not None and (measure.cutoff is None or measure.cutoff > pool.depth):
        deepest = int(pool.rank.max(initial=0))
        if deepest == pool.depth:
            raise EvenhandError(
                f"{measure} looks deeper than the pool, whose depth is {pool.depth}",
                hint="pool the runs to the measure's cutoff",
            )
    return Target(pool, measure, _by_rank(pool, measure) / len(pool.queries))


def _by_rank(pool: Pool, measure: Any) -> np.ndarray:
    """What a measure makes of the rank of each entry, and of the length of its list if it asks."""
    if not uses_lengths(measure):
        # Ranks are few, so that their weights are looked up.
        return measure.weight(np.arange(1, pool.rank.max(initial=0) + 1))[pool.rank - 1]
    number = pool.system.astype(np.int64) * len(pool.queries) + pool.query[pool.cell]
    return measure.weight(pool.rank, np.bincount(number)[number])
