"""Pools of any size, made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from evenhand.estimands.pools import Pool


def made_pool(n_cells: int, n_systems: int, n_queries: int, seed: int = 0) -> Pool:
    """Systems that return a cell each with some probability, at a rank near the cell's own."""
    rng = np.random.default_rng(seed)
    count = np.minimum(1 + rng.geometric(0.3, n_cells), n_systems)
    start = np.concatenate([[0], np.cumsum(count)])
    within = np.arange(start[-1]) - np.repeat(start[:-1], count)
    first = np.repeat(rng.integers(0, n_systems - count + 1), count)
    own = np.repeat(rng.integers(1, 101, n_cells), count)
    rank = np.clip(own + rng.integers(-10, 11, start[-1]), 1, 100)
    return Pool(
        systems=tuple(f"s{j}" for j in range(n_systems)),
        queries=pa.array([str(q) for q in range(n_queries)]),
        documents=pa.array(["d"]),
        query=(np.arange(n_cells) * n_queries // n_cells).astype(np.int32),
        document=np.zeros(n_cells, np.int32),
        start=start,
        system=(first + within).astype(np.int32),
        rank=rank.astype(np.int32),
        score=rng.random(start[-1]),
        depth=100,
    )
