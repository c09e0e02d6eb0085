"""TREC: real runs with complete judgments, as the paper's experiments need them.

Documents of each query are judged 0 or 1; a system's first 100 count, with DCG's natural logarithm,
and its approximate utility is u~ = 16 / (rank + 34), 0 where it does not return the document.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.designs.utilities import PAPER_CURVES, judged_utility
from evenhand.errors import EvenhandError
from evenhand.estimands.pools import Pool, pool
from evenhand.estimands.targets import Target, target
from evenhand.formats.qrels import Qrels
from evenhand.formats.runs import Runs
from evenhand.paper.dense_cells import Cells
from evenhand.paper.one_system import System

__all__ = ["MEASURE", "MISSING", "NAMED", "Collection", "trec_cells", "trec_system"]

MEASURE = "DCG(log='e')@100"

#: u~ of a document that a system does not return, if it counts as at rank 101.
MISSING = 16.0 / (101 + 34)

#: The systems of Tables 2 to 4.
NAMED: tuple[str, ...] = ("mds08a3", "nttd8ale", "weaver2")


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """Runs and judgments, pooled.

    Attributes
    ----------
    pool
        The query-document pairs of all systems.
    target
        Their weights.
    cells
        The same densely, with utilities.
    remarks
        What a reader should know.
    """

    pool: Pool
    target: Target
    cells: Cells
    remarks: tuple[str, ...]


def trec_cells(runs: Runs, qrels: Qrels) -> Collection:
    """Pool the runs to depth 100, on the queries of the qrels."""
    found = pool(runs, depth=100, queries=qrels.queries.to_pylist())
    wanted = target(found, MEASURE)
    everything = np.arange(len(found))
    # The matrix of approximate utilities has the shape of that of weights.
    guess = Target(found, wanted.measure, PAPER_CURVES["paper-trec"](found.rank))
    judged = judged_utility(found, qrels, wanted.measure)
    missing = np.isnan(judged)
    remarks = []
    if missing.any():
        share = f"{missing.sum():,} of {len(found):,}"
        remarks.append(f"{share} pairs have no judgment and count as not relevant.")
    # By column, so that a few systems of many are taken quickly.
    cells = Cells(
        found.systems,
        np.asfortranarray(wanted.weights(everything)),
        np.asfortranarray(guess.weights(everything)),
        np.where(missing, 0.0, judged),
        np.ones(len(found)),
    )
    return Collection(found, wanted, cells, tuple(remarks))


def trec_system(collection: Collection, name: str) -> System:
    """One system of a collection.

    Raises
    ------
    EvenhandError
        If no run has this name.
    """
    code = collection.pool.system_code(name)
    entry = np.flatnonzero(collection.pool.system == code)
    cell = collection.pool.cell[entry]
    if not len(cell):
        raise EvenhandError(f"the run {name!r} returns nothing")
    n_queries = len(collection.pool.queries)
    gain = collection.target.weight[entry] * collection.cells.utility[cell] * n_queries
    per_query = np.bincount(collection.pool.query[cell], gain, minlength=n_queries)
    return System(name, collection.cells.only([code]), collection.pool.rank[entry], per_query)
