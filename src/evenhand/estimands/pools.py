"""The query-document pairs of all runs, numbered once.

A *cell* is a pair (query, document) that at least one system returns within the depth; the *pool*
is the set of cells. Everything downstream uses cells by number: weights, utilities, proposals,
draws.

Who returned a cell, and where, is kept by cell in compressed rows: the entries of cell c are
``start[c]:start[c + 1]``, sorted by system. Nothing of size systems x cells is ever held.
"""

# pyarrow makes its compute functions when it is imported.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.errors import EvenhandError, listed
from evenhand.formats.qrels import Qrels
from evenhand.formats.runs import Runs

__all__ = ["Pool", "codes_in", "dense", "pool", "stretches"]

#: Entries numbered at a time: what that takes of memory passes by.
PIECE = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The cells of a study and the systems that return them.

    Attributes
    ----------
    systems
        Names of the k systems.
    queries
        Ids of the queries of the study, |X| of them, whether answered or not.
    documents
        Ids of the documents that occur in the pool.
    query, document
        Codes into `queries` and `documents` by cell; int32, shape (cells,).
    start
        Where the entries of each cell begin; int64, shape (cells + 1,).
    system, rank, score
        By entry: who returned the cell, at which rank (from 1), with which score; shape (entries,).
    depth
        Ranks beyond it were left out; None if none were.
    notes
        What a user should know about how the pool came to be, a sentence each.
    """

    systems: tuple[str, ...]
    queries: pa.Array
    documents: pa.Array
    query: np.ndarray
    document: np.ndarray
    start: np.ndarray
    system: np.ndarray
    rank: np.ndarray
    score: np.ndarray
    depth: int | None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.query)

    def __repr__(self) -> str:
        depth = f", depth {self.depth}" if self.depth else ""
        return (
            f"Pool({len(self):,} query-document pairs of {len(self.systems)} systems "
            f"on {len(self.queries)} queries{depth})"
        )

    @property
    def cell(self) -> np.ndarray:
        """The cell of each entry; int64, shape (entries,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def dense(self, by_entry: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Values by entry as a table, 0 where a system does not return a cell.

        Parameters
        ----------
        by_entry
            Shape (entries,).
        cells
            The rows wanted.

        Returns
        -------
        numpy.ndarray
            float64, shape (cells given, systems).
        """
        return dense(self.start, self.system, by_entry, cells, len(self.systems))

    def names(self, cells: np.ndarray) -> tuple[list[str], list[str]]:
        """Query ids and document ids of the given cells."""
        return (
            self.queries.take(pa.array(self.query[cells])).to_pylist(),
            self.documents.take(pa.array(self.document[cells])).to_pylist(),
        )

    def find(
        self, queries: Sequence[str] | pa.Array, documents: Sequence[str] | pa.Array
    ) -> np.ndarray:
        """Cells of the given pairs, -1 for a pair outside the pool; int64, as many as pairs."""
        query, document = (
            codes_in(pa.array(ids, table.type), table)
            for ids, table in ((queries, self.queries), (documents, self.documents))
        )
        return self.locate(query, document)

    def cells_of(self, table: Qrels) -> np.ndarray:
        """The cell of each row of a table of judgments, -1 outside the pool."""
        query, document = (
            codes_in(ids, known)[codes]
            for ids, known, codes in (
                (table.queries, self.queries, table.query),
                (table.documents, self.documents, table.document),
            )
        )
        return self.locate(query, document)

    def locate(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """Cells of pairs given as codes into `queries` and `documents` (-1: unknown)."""
        found = np.full(len(query), -1, np.int64)
        if not len(self):
            return found
        keys = self.query.astype(np.int64) * len(self.documents) + self.document
        # Cells are in key order but for those that a later arrival appended.
        order = None if np.all(keys[1:] > keys[:-1]) else np.argsort(keys)
        known = np.flatnonzero((query >= 0) & (document >= 0))
        wanted = query[known].astype(np.int64) * len(self.documents) + document[known]
        ordered = keys if order is None else keys[order]
        at = np.minimum(np.searchsorted(ordered, wanted), len(keys) - 1)
        hit = ordered[at] == wanted
        found[known[hit]] = at[hit] if order is None else order[at[hit]]
        return found

    def system_code(self, name: str) -> int:
        """Number of the system called `name`.

        Raises
        ------
        EvenhandError
            If no system has this name.
        """
        if name not in self.systems:
            raise EvenhandError(
                f"there is no system named {name!r}",
                hint=f"the systems are {listed(self.systems, most=8)}",
            )
        return self.systems.index(name)

    def unanswered(self) -> dict[str, list[str]]:
        """The queries that each system left unanswered; a system that answered all is absent."""
        answered = np.zeros((len(self.systems), len(self.queries)), bool)
        answered[self.system, self.query[self.cell]] = True
        return {
            name: self.queries.take(pa.array(np.flatnonzero(~row))).to_pylist()
            for name, row in zip(self.systems, answered, strict=True)
            if not row.all()
        }


def dense(
    start: np.ndarray, system: np.ndarray, by_entry: np.ndarray, cells: np.ndarray, n_systems: int
) -> np.ndarray:
    """Rows of a sparse table, as `Pool` keeps it by cell: float64, shape (cells given, systems)."""
    first, last = start[cells], start[np.asarray(cells) + 1]
    length = last - first
    row = np.repeat(np.arange(len(cells)), length)
    entry = np.arange(length.sum()) + np.repeat(first - (np.cumsum(length) - length), length)
    table = np.zeros((len(cells), n_systems))
    table[row, system[entry]] = by_entry[entry]
    return table


def stretches(start: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """First cell and end of stretches of cells of about `most` entries each, from first to last."""
    bounds = np.searchsorted(start, np.arange(0, start[-1], most)[1:])
    return itertools.pairwise(np.unique([0, *bounds, len(start) - 1]).tolist())


def codes_in(ids: pa.Array, table: pa.Array) -> np.ndarray:
    """Place of each id in a table of distinct ids, -1 where it is not there; int32."""
    if ids.type != table.type:
        ids, table = ids.cast(pa.large_string()), table.cast(pa.large_string())
    return pc.fill_null(pc.index_in(ids, value_set=table), -1).to_numpy()


def pool(
    runs: Runs,
    *,
    depth: int | None = None,
    queries: Iterable[str] | None = None,
    after: Pool | None = None,
) -> Pool:
    """Number the query-document pairs of all runs.

    Parameters
    ----------
    runs
        Ranked lists of the systems.
    depth
        Deepest rank that counts; None for all.
    queries
        The queries of the study. By default those that any run answers. A run's other queries are
        ignored and counted in the notes; a query that a system leaves unanswered stays, and earns 0
        there.
    after
        An earlier pool whose cells keep their numbers: cells that it lacks are appended. The
        study's queries are then those of `after`.

    Returns
    -------
    Pool

    Raises
    ------
    EvenhandError
        If `depth` is below 1, no query is left, or no run has a query of the study.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> eh.pool(eh.read_runs(runs)).names([0, 1, 2])
    (['q', 'q', 'q'], ['a', 'b', 'c'])
    """
    if depth is not None and depth < 1:
        raise EvenhandError(f"the depth must be at least 1, got {depth}")
    pa.default_memory_pool().release_unused()  # what the runs were read from
    known, notes = _study_queries(runs, queries if after is None else after.queries.to_pylist())
    # Codes of the runs' queries among those of the study, -1 where the study does not ask it.
    query = codes_in(runs.queries, known)[runs.query]
    if depth is not None:
        query[runs.rank > depth] = -1
    counts = np.bincount(query + 1, minlength=len(known) + 1)[1:]
    if not counts.any():
        raise EvenhandError(
            "no run answers any query of the study",
            hint="check that runs and queries (or qrels) come from the same collection",
        )
    documents, narrow = _used(runs, query)
    n, filled, by_cell = int(counts.sum()), 0, []
    system, rank, score = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n)
    # Cells that a later arrival appends stand behind those of all queries.
    for rows in _pieces(query, counts, PIECE if after is None else n):
        part = _numbered(runs, query, narrow, rows, len(documents))
        if after is not None:
            part = _append(after, documents, part)
        here = slice(filled, filled + len(part.system))
        system[here], rank[here], score[here] = part.system, part.rank, part.score
        by_cell.append((part.query, part.document, part.length))
        filled = here.stop
    cell_query, cell_document, length = map(np.concatenate, zip(*by_cell, strict=True))
    return Pool(
        systems=runs.systems,
        queries=known,
        documents=documents,
        query=cell_query,
        document=cell_document,
        start=np.concatenate([[0], np.cumsum(length)]),
        system=system,
        rank=rank,
        score=score,
        depth=depth,
        notes=(*runs.notes, *notes),
    )


def _used(runs: Runs, query: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The documents of the pool, in the runs' order, that of their ids; and their numbers in it."""
    used = np.zeros(len(runs.documents), bool)
    used[runs.document[query >= 0]] = True
    kept = np.flatnonzero(used)
    narrow = np.zeros(len(used), np.int32)
    narrow[kept] = np.arange(len(kept), dtype=np.int32)
    return runs.documents.take(pa.array(kept)), narrow


class _Numbered(NamedTuple):
    """The cells of some queries and their entries, as `Pool` has them; the length of each cell."""

    query: np.ndarray
    document: np.ndarray
    length: np.ndarray
    system: np.ndarray
    rank: np.ndarray
    score: np.ndarray


def _pieces(query: np.ndarray, counts: np.ndarray, most: int) -> Iterator[np.ndarray | slice]:
    """Rows of the queries, a few queries at a time, so that what is made of them passes by.

    Parameters
    ----------
    query
        Of each row; -1 for none.
    counts
        Rows of each query.
    most
        Rows wanted at a time; a single query may have more.
    """
    if counts.sum() <= most:
        yield slice(None) if (query >= 0).all() else np.flatnonzero(query >= 0)
        return
    piece = (np.cumsum(counts) - 1) // most
    bounds = np.flatnonzero(np.diff(piece, prepend=-1, append=piece[-1] + 1))
    for first, last in itertools.pairwise(bounds):
        yield np.flatnonzero((query >= first) & (query < last))


def _numbered(
    runs: Runs, query: np.ndarray, narrow: np.ndarray, rows: np.ndarray | slice, n_documents: int
) -> _Numbered:
    """Number the cells of some rows of the runs."""
    system = runs.system[rows]
    cell_query, cell_document, cell = _cells(query[rows], narrow[runs.document[rows]], n_documents)
    order, start = _by_cell(cell, system, len(cell_query), len(runs.systems))
    entries = order if isinstance(rows, slice) else rows[order]
    return _Numbered(
        cell_query,
        cell_document,
        np.diff(start),
        system[order],
        runs.rank[entries],
        runs.score[entries],
    )


def _study_queries(runs: Runs, queries: Iterable[str] | None) -> tuple[pa.Array, list[str]]:
    if queries is None:
        return runs.queries, []
    asked = pa.array(sorted({str(q) for q in queries}, key=str.encode), pa.string())
    if not len(asked):
        raise EvenhandError("the study has no queries")
    extra = int((codes_in(runs.queries, asked) < 0).sum())
    notes = []
    if extra:
        count = "1 query" if extra == 1 else f"{extra:,} queries"
        notes.append(f"Ignored, not among the study's queries: {count} of the runs.")
    return asked, notes


def _cells(query: np.ndarray, document: np.ndarray, n_documents: int) -> tuple[np.ndarray, ...]:
    """Distinct (query, document) pairs in that order, and the cell of each row."""
    keys = pa.array(query.astype(np.int64) * n_documents + document).dictionary_encode()
    distinct = keys.dictionary.to_numpy()
    order = np.argsort(distinct)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    distinct = distinct[order]
    cell_query, cell_document = np.divmod(distinct, n_documents)
    return (
        cell_query.astype(np.int32),
        cell_document.astype(np.int32),
        number[keys.indices.to_numpy()],
    )


def _append(after: Pool, documents: pa.Array, now: _Numbered) -> _Numbered:
    """Give cells that an earlier pool has their old numbers, and the others the numbers behind."""
    recode = codes_in(after.documents, documents)
    if (recode < 0).any():
        raise EvenhandError("the earlier pool holds documents that none of these runs returns")
    old_document = recode[after.document]
    earlier = after.query.astype(np.int64) * len(documents) + old_document
    keys = now.query.astype(np.int64) * len(documents) + now.document
    at = np.searchsorted(keys, earlier)
    if (keys[np.minimum(at, len(keys) - 1)] != earlier).any():
        raise EvenhandError("the earlier pool holds pairs that none of these runs returns")
    fresh = np.ones(len(keys), bool)
    fresh[at] = False
    order = np.concatenate([at, np.flatnonzero(fresh)])
    # The entries of each cell move with it.
    start = np.concatenate([[0], np.cumsum(now.length)])
    length = now.length[order]
    end = np.cumsum(length)
    entries = np.arange(end[-1]) + np.repeat(start[order] - (end - length), length)
    return _Numbered(
        now.query[order],
        now.document[order],
        length,
        now.system[entries],
        now.rank[entries],
        now.score[entries],
    )


def _by_cell(
    cell: np.ndarray, system: np.ndarray, n_cells: int, n_systems: int
) -> tuple[np.ndarray, np.ndarray]:
    """Order of the rows by (cell, system), and where each cell begins."""
    import scipy.sparse

    # A counting sort: rows come sorted by system, and turning rows into columns keeps that order.
    counts = np.bincount(system, minlength=n_systems)
    by_system = scipy.sparse.csr_array(
        (np.arange(len(cell)), cell, np.concatenate([[0], np.cumsum(counts)])),
        shape=(n_systems, n_cells),
    )
    by_cell = by_system.tocsc()
    return by_cell.data, by_cell.indptr.astype(np.int64)
