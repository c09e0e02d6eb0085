"""Weights of systems on many cells, dense a block at a time.

Rankings make sparse weights, and sums over contrasts want rows of all systems. Cells are cut into
blocks, and each block's table stands for as long as its part of a sum takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from evenhand.devices import by_share, mesh, place

__all__ = ["Blocks"]


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
    size
        Cells a block; static.
    n_systems
        Static.
    over
        The devices that share the blocks; None for one. Static.
    """

    place: jax.Array
    weight: jax.Array
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
        # Rounded up, so that pools of about one size share a compilation.
        longest = -(-longest // (step := 1 << max(longest.bit_length() - 4, 0))) * step
        within = np.arange(n_cells, dtype=np.int32) % size * np.int32(k)
        entry = np.repeat(within, np.diff(start)) + system
        over = mesh() if n_blocks > 1 else None
        rows = n_blocks if over is None else -(-n_blocks // over.size) * over.size
        position, dense = np.full((rows, longest), size * k, np.int32), np.zeros((rows, longest))
        for block, (first, last) in enumerate(itertools.pairwise(bounds)):
            position[block, : last - first] = entry[first:last]
            dense[block, : last - first] = weight[first:last]
        return cls(place(over, position), place(over, dense), size, k, over)

    def map(self, function: Callable[..., Any], *per_cell: jax.Array) -> Any:
        """Apply ``function(weights, *per_cell)`` to each block; weights are (cells, systems).

        `per_cell` are further arrays by cell, padded to whole blocks.
        """

        def block(columns: tuple[jax.Array, ...]) -> Any:
            place, weight, *rest = columns
            flat = jnp.zeros(self.size * self.n_systems, weight.dtype)
            flat = flat.at[place].set(weight, mode="drop", unique_indices=False)
            return function(flat.reshape(self.size, self.n_systems), *rest)

        def blocks(*columns: jax.Array) -> Any:
            return jax.lax.map(block, columns)

        shaped = [x.reshape(len(self.place), self.size, *x.shape[1:]) for x in per_cell]
        columns = (self.place, self.weight, *shaped)
        return by_share(self.over, blocks, len(columns))(*columns)
