r"""What is known of each pair before any judgment: the inputs of a model of relevance.

By cell, from the ranks and scores that the systems gave, and from signals of yours (an LLM judge's
labels, click rates):

===============  ==================================================================
feature          of cell c
===============  ==================================================================
`votes`          (1/k) sum_j v_jc, with v_jc = 1 - ln(rank_jc) / ln(1 + depth)
`votes^2`        its square
`reciprocal`     root of the mean reciprocal rank, (1/k) sum_j 1 / rank_jc
`fusion`         reciprocal rank fusion, (1/k) sum_j 1 / (60 + rank_jc)
`returned`       ln of the share of systems that return it
`best`           ln of its best rank
`score`          mean score, scaled to [0, 1] within each system and query
signals          as given, and squared; a cell without a value has the mean, and a
                 column says which have one
===============  ==================================================================

with v = 0 where a system does not return the document. Every column is standardised over the pool:
nothing here has seen a label. Beside them stand the votes v_jc of each system alone, since some
systems deserve more trust.

References
----------
Cormack, Clarke and Buettcher 2009, *Reciprocal rank fusion outperforms Condorcet and individual
rank learning methods*.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.sparse import csr_array

from evenhand.designs.utilities import rank_votes, scaled_scores
from evenhand.errors import EvenhandError
from evenhand.estimands.pools import PIECE, Pool, stretches
from evenhand.formats.qrels import Qrels, read_qrels

__all__ = ["Array", "FeatureTable", "Features", "feature_table", "read_signals", "signal"]

#: Of NumPy where a user makes it, of JAX inside a model.
Array = jax.Array | Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Features:
    """Inputs of a model for some cells; what a model function receives.

    Attributes
    ----------
    values
        Standardised features; shape (n, features).
    votes
        v_jc of each system; shape (n, systems).
    query
        Code of each cell's query; int32, shape (n,).
    n_queries
        Number of codes of queries; static.
    """

    values: Array
    votes: Array
    query: Array
    n_queries: int = field(metadata={"static": True})

    def take(self, rows: jax.Array) -> Features:
        """Some of the rows."""
        return Features(self.values[rows], self.votes[rows], self.query[rows], self.n_queries)


@dataclass(frozen=True, slots=True, eq=False)
class FeatureTable:
    """Features of every cell of a pool.

    Attributes
    ----------
    pool
        The cells.
    names
        Name of each column of `values`.
    values
        float32, shape (cells, features): single precision is ample for a prediction.
    seen
        Codes of the systems that the features are made of.
    depth
        Deepest rank that counts.
    """

    pool: Pool
    names: tuple[str, ...]
    values: np.ndarray
    seen: np.ndarray
    depth: int

    def rows(
        self, cells: np.ndarray, size: int | None = None, *, own: np.ndarray | None = None
    ) -> Features:
        """Features of some cells, as a model takes them, filled up to `size` rows of zeros.

        Parameters
        ----------
        cells
            Of the pool.
        size
            Rows wanted; as many as cells by default.
        own
            The queries that have a code of their own, in its order; all others share the one
            behind. By default every query has its own.
        """
        cells = np.asarray(cells)
        query, n_queries = self.pool.query[cells], len(self.pool.queries)
        if own is not None:
            code = np.full(n_queries, len(own), np.int32)
            code[own] = np.arange(len(own))
            query, n_queries = code[query], len(own) + 1
        more = (len(cells) if size is None else size) - len(cells)
        # Ranks are few, so that their votes are looked up.
        by_rank = _votes_by_rank(self.depth)
        entry, start = self._entries(cells)
        rank = np.minimum(self.pool.rank[entry], self.depth)
        start = np.concatenate([start, np.full(more, start[-1])])
        shape = (len(cells) + more, len(self.pool.systems))
        votes = csr_array((by_rank[rank], self.pool.system[entry], start), shape=shape).toarray()
        return Features(
            np.pad(self.values[cells], ((0, more), (0, 0))),
            votes if len(self.seen) == shape[1] else votes[:, self.seen],
            np.pad(query, (0, more)),
            n_queries,
        )

    def _entries(self, cells: np.ndarray) -> tuple[np.ndarray | slice, np.ndarray]:
        """Entries of some cells, one cell's after the other's, and where each cell's begin."""
        first, length = self.pool.start[cells], self.pool.start[cells + 1] - self.pool.start[cells]
        start = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
        if len(cells) and (np.diff(cells) == 1).all():  # as in a pass over the pool
            return slice(first[0], first[0] + start[-1]), start
        return np.arange(start[-1]) + np.repeat(first - start[:-1], length), start


@lru_cache(maxsize=8)
def _votes_by_rank(depth: int) -> np.ndarray:
    """Votes of the ranks from 0, which has none; float32, like the other features."""
    votes = rank_votes(np.arange(1.0, depth + 1.0), depth)
    return np.concatenate([[0.0], votes]).astype(np.float32)


def feature_table(
    pool: Pool,
    signals: Mapping[str, np.ndarray] | None = None,
    *,
    systems: Collection[str] | None = None,
) -> FeatureTable:
    """Make the features of a pool.

    Parameters
    ----------
    pool
        The cells.
    signals
        Further columns by name, each of shape (cells,); not finite where there is no value.
    systems
        Make the features of these systems only. A system that arrived later may have been built
        with judgments of earlier rounds, which its rankings would then betray.

    Raises
    ------
    EvenhandError
        If a signal has the wrong length, no value at all, or the name of another feature, or none
        of the systems is there.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> pool = eh.pool(eh.read_runs(runs))  # the pairs of q with a, b and c
    >>> eh.feature_table(pool).names
    ('votes', 'votes^2', 'reciprocal', 'fusion', 'returned', 'best', 'score')
    """
    named = np.array([systems is None or name in systems for name in pool.systems])
    seen = np.flatnonzero(named)
    if not len(seen):
        raise EvenhandError("features need a system: none of those named returns anything here")
    k, score = len(seen), scaled_scores(pool)
    depth = pool.depth or int(pool.rank[named[pool.system]].max())
    votes, returned, reciprocal, fusion, best, scores = np.empty((6, len(pool)))
    for first, last in stretches(pool.start, PIECE):
        cells, here = slice(first, last), slice(pool.start[first], pool.start[last])
        begin = pool.start[cells] - here.start
        counts, rank = named[pool.system[here]], pool.rank[here].astype(np.float64)

        def mean(by_entry: np.ndarray, counts=counts, begin=begin) -> np.ndarray:
            return np.add.reduceat(np.where(counts, by_entry, 0.0), begin) / k

        votes[cells], returned[cells] = mean(rank_votes(rank, depth)), mean(np.ones(len(rank)))
        reciprocal[cells], fusion[cells] = mean(1.0 / rank), mean(1.0 / (60.0 + rank))
        best[cells] = np.minimum.reduceat(np.where(counts, rank, depth + 1.0), begin)
        scores[cells] = mean(score[here])
    columns = {
        "votes": votes,
        "votes^2": votes**2,
        "reciprocal": np.sqrt(reciprocal),
        "fusion": fusion,
        "returned": np.log(np.maximum(returned, 0.5 / k)),
        "best": np.log(best),
        "score": scores,
    }
    inside = returned > 0
    for name, given in (signals or {}).items():
        given = np.asarray(given, np.float64)
        if name in columns:
            raise EvenhandError(
                f"there is a feature named {name!r} already", hint="rename the signal"
            )
        known = np.isfinite(given)
        if given.shape != (len(pool),) or not known.any():
            raise EvenhandError(
                f"the signal {name!r} must have a value for some of the {len(pool):,} pairs, "
                f"got {int(known.sum()):,} of {given.size:,}"
            )
        filled = _standardised(np.where(known, given, given[known].mean()), inside)
        columns |= {name: filled, f"{name}^2": filled**2}
        if not known.all():
            columns[f"{name} known"] = known.astype(np.float64)
    values = [_standardised(column, inside).astype(np.float32) for column in columns.values()]
    return FeatureTable(pool, tuple(columns), np.stack(values, axis=1), seen, depth)


def _standardised(column: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1 over some cells; a column that is the same everywhere becomes 0."""
    some = column[inside]
    spread = some.std()
    flat = spread <= 1e-12 * np.abs(some).max(initial=0.0)
    return (column - some.mean()) / (np.inf if flat else spread)


def signal(pool: Pool, table: Qrels) -> np.ndarray:
    """A column from a table ``qid docid value``: mean value of each cell, NaN where there is none.

    Raises
    ------
    EvenhandError
        If no pair of the table is in the pool.
    """
    cells = pool.cells_of(table)
    inside = cells >= 0
    if not inside.any():
        raise EvenhandError(
            f"no pair of {table.source} is among the {len(pool):,} pairs of the pool",
            hint="check that its query and document ids are those of the runs",
        )
    total = np.bincount(cells[inside], table.grade[inside], minlength=len(pool))
    count = np.bincount(cells[inside], minlength=len(pool))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def read_signals(pool: Pool, tables: Sequence[Any] | Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Each of some tables as a column over the pool; see `signal`.

    Parameters
    ----------
    pool
        The pairs.
    tables
        Whatever `evenhand.formats.read_qrels` takes, by name; a file in a sequence is called by its
        file name.

    Raises
    ------
    EvenhandError
        If two have the same name, or one cannot be read.
    """
    if not isinstance(tables, Mapping):
        names = [
            Path(t).name.removesuffix(".gz") if isinstance(t, str | Path) else f"signal {i}"
            for i, t in enumerate(tables, 1)
        ]
        if len(set(names)) < len(names):
            raise EvenhandError("two signals have the same name", hint="rename a file")
        tables = dict(zip(names, tables, strict=True))
    return {
        name: signal(pool, table if isinstance(table, Qrels) else read_qrels(table))
        for name, table in tables.items()
    }
