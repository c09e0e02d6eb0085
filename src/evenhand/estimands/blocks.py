"""Weights of systems on many cells, a block of cells at a time: as a table, or entry by entry.

Rankings make sparse weights, and sums over contrasts of any kind want rows of all systems. Cells
are cut into blocks, and each block's table exists for as long as its part of a sum takes. Where the
entries say it all (`evenhand.estimands.matrices`) no table is made, and a block's sums are those of
its entries by their cell and by their system.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from evenhand.devices import by_share, mesh, place

__all__ = ["BlockEntries", "Blocks"]

#: Entries of a block that may be filled up to a power of two.
_SMALL = 1 << 12


@dataclass(frozen=True, slots=True)
class BlockEntries:
    """The entries of a block, and sums of numbers that each of them has.

    Attributes
    ----------
    cell
        Of each entry, within the block; what lies outside fills up and is dropped. int32, shape
        (entries,).
    system, weight
        Of each entry, shape (entries,).
    full
        Which cells all systems weigh; bool, shape (cells,).
    n_systems
        How many there are.
    """

    cell: jax.Array
    system: jax.Array
    weight: jax.Array
    full: jax.Array
    n_systems: int

    def by_cell(self, numbers: jax.Array) -> jax.Array:
        """Sums over the entries of each cell: shape (cells,)."""
        return jnp.zeros(len(self.full)).at[self.cell].add(numbers, mode="drop")

    def by_system(self, numbers: jax.Array) -> jax.Array:
        """Sums over the entries of each system: shape (systems,)."""
        inside = jnp.where(self.cell < len(self.full), self.system, self.n_systems)
        return jnp.zeros(self.n_systems).at[inside].add(numbers, mode="drop")

    def of_cells(self, numbers: jax.Array) -> jax.Array:
        """A number of each cell, by entry; 0 for what fills up."""
        return numbers.at[self.cell].get(mode="fill", fill_value=0)

    def apart(self) -> jax.Array:
        """Weights, those of cells that all systems weigh less the weight of the first system."""
        own = jnp.where(self.system == 0, self.cell, len(self.full))
        level = jnp.zeros(len(self.full)).at[own].set(self.weight, mode="drop")
        return self.weight - self.of_cells(jnp.where(self.full, level, 0.0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Blocks:
    """Weights of systems cut into blocks of cells, each small enough to be dense for a moment.

    One compiled pass over the blocks serves ten cells or 10^8 entries in flat memory. Entries of a
    block are padded to one length; padding points outside the block and is dropped. Where there are
    several devices (`evenhand.devices`) each has some of the blocks, and blocks of nothing make
    them as many for each.

    Attributes
    ----------
    place
        ``cell within the block * systems + system`` of each entry; int32, shape (blocks, entries).
    weight
        float64, shape (blocks, entries).
    full
        Which cells all systems weigh; bool, shape (blocks, cells a block).
    size
        Cells a block; static.
    n_systems
        Static.
    over
        The devices that share the blocks; None for one. Static.
    """

    place: jax.Array
    weight: jax.Array
    full: jax.Array
    size: int = field(metadata={"static": True})
    n_systems: int = field(metadata={"static": True})
    over: Mesh | None = field(default=None, metadata={"static": True})

    @classmethod
    def of(cls, start: np.ndarray, system: np.ndarray, weight: np.ndarray, k: int) -> Blocks:
        """Cut weights into blocks.

        Parameters
        ----------
        start
            Where the entries of each cell begin among all: shape (cells + 1,).
        system, weight
            Of these cells' entries; shape (entries,).
        k
            Number of systems.
        """
        n_cells, bounds = len(start) - 1, start - start[0]
        # About a megabyte when dense: what is made of it then stays in a core's cache.
        size = 1 << min(max(((1 << 17) // k).bit_length() - 1, 8), 16)
        size = min(size, 1 << max(n_cells - 1, 0).bit_length())
        bounds = bounds[np.minimum(np.arange(0, n_cells + size, size), n_cells)]
        n_blocks = len(bounds) - 1
        longest = int(np.diff(bounds).max())
        # Rounded up, so that pools of about one size share a compilation: small ones to a power of
        # two, large ones by a sixteenth.
        small = longest <= _SMALL
        step = 1 << ((longest - 1).bit_length() if small else longest.bit_length() - 4)
        longest = -(-longest // step) * step
        over = mesh() if n_blocks > 1 else None
        rows = n_blocks if over is None else -(-n_blocks // over.size) * over.size
        position, dense = np.empty((rows, longest), np.int32), np.zeros((rows, longest))
        full, count = np.zeros(rows * size, bool), np.diff(start)
        full[:n_cells] = count == k
        within = np.arange(size, dtype=np.int32) * np.int32(k)
        for block, (first, last) in enumerate(itertools.pairwise(bounds)):
            here = count[block * size : (block + 1) * size]
            of_cell = np.repeat(within[: len(here)], here)
            np.add(of_cell, system[first:last], out=position[block, : last - first])
            position[block, last - first :] = size * k
            dense[block, : last - first] = weight[first:last]
        position[n_blocks:] = size * k
        whole = full.reshape(rows, size)
        return cls(place(over, position), place(over, dense), place(over, whole), size, k, over)

    def map(self, function: Callable[..., Any], *per_cell: jax.Array) -> Any:
        """Apply ``function(weights, *per_cell)`` to each block; weights are (cells, systems).

        `per_cell` are further arrays by cell, padded to whole blocks.
        """

        def block(place: jax.Array, weight: jax.Array, _: jax.Array, *rest: jax.Array) -> Any:
            flat = jnp.zeros(self.size * self.n_systems, weight.dtype)
            flat = flat.at[place].set(weight, mode="drop", unique_indices=False)
            return function(flat.reshape(self.size, self.n_systems), *rest)

        return self._each(block, per_cell)

    def map_entries(self, function: Callable[..., Any], *per_cell: jax.Array) -> Any:
        """Apply ``function(entries, *per_cell)`` to each block; entries are `BlockEntries`."""

        def block(place: jax.Array, weight: jax.Array, full: jax.Array, *rest: jax.Array) -> Any:
            cell, system = place // self.n_systems, place % self.n_systems
            return function(BlockEntries(cell, system, weight, full, self.n_systems), *rest)

        return self._each(block, per_cell)

    def _each(self, function: Callable[..., Any], per_cell: Sequence[jax.Array]) -> Any:
        def blocks(*columns: jax.Array) -> Any:
            return jax.lax.map(lambda some: function(*some), columns)

        shaped = [x.reshape(len(self.place), self.size, *x.shape[1:]) for x in per_cell]
        columns = (self.place, self.weight, self.full, *shaped)
        return by_share(self.over, blocks, len(columns))(*columns)
