r"""Certificates: the theory, checked by autodiff on the user's own data.

`certify` takes the systems' weights and a utility and examines every claim on which a study rests:
that the mean of the systems is the best baseline to rank them against, although the cost of a
baseline is not convex; that the proposal q* is the best for every goal; that a minimax design is
within its duality gap of the best possible. Which claims, what is compared and how near it must
come is in `evenhand.certificates.checks` and `evenhand.certificates.cases`; the equations, and
why they hold, in
`evenhand.certificates.baselines`.

A judgment is taken to be free of noise: r_c = u_c = sqrt(E[r_c^2]). The second moment is all that a
proposal is made of, and with noise the inequalities hold all the more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evenhand.certificates import checks
from evenhand.certificates.baselines import baseline_gradient
from evenhand.certificates.cases import Arrays, Certificate, case
from evenhand.designs import proposals
from evenhand.designs.utilities import Moments, Utility, judged_utility, known_utility, rank_utility
from evenhand.errors import EvenhandError
from evenhand.estimands import goals, targets
from evenhand.estimands.pools import pool
from evenhand.estimands.targets import Target
from evenhand.float64 import in_float64
from evenhand.formats.qrels import Qrels, read_qrels
from evenhand.formats.runs import Runs, read_runs
from evenhand.measures.base import Measure
from evenhand.measures.grammar import linear
from evenhand.results import Result, Table
from evenhand.study import Study

__all__ = ["Certificate", "Certificates", "certify", "certify_files", "certify_runs"]

#: Pools of more entries (cells x systems) are certified on a sample of their queries: at the peak
#: an entry takes about 80 bytes.
MOST = 100_000_000


@dataclass(frozen=True)
class Certificates(Result):
    """The certificates of a pool.

    Attributes
    ----------
    measure, utility
        What the weights and the utilities are.
    systems, queries, cells
        How many were examined.
    certificates
        In the order of the table of `evenhand.certificates.checks`.
    notes
        What the user should know.
    """

    measure: str
    utility: str
    systems: int
    queries: int
    cells: int
    certificates: tuple[Certificate, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all hold."""
        return all(each.passed for each in self.certificates)

    def __getitem__(self, name: str) -> Certificate:
        """The certificate called `name`."""
        for each in self.certificates:
            if each.name == name:
                return each
        raise KeyError(name)

    def tables(self) -> list[Table]:
        """The verdicts; and everything that was found on the way."""
        held = sum(each.passed for each in self.certificates)
        title = (
            f"{self.measure}, utility {self.utility}: {self.systems:,} systems, "
            f"{self.queries:,} queries, {self.cells:,} pairs; "
            f"{held} of {len(self.certificates)} certificates hold"
        )
        verdicts = {
            "certificate": [each.name for each in self.certificates],
            "holds": ["yes" if each.passed else "NO" for each in self.certificates],
            "error": [f"{each.error:.1e}" for each in self.certificates],
            "tolerance": [f"{each.tolerance:.1e}" for each in self.certificates],
            "statement": [each.statement for each in self.certificates],
        }
        found = [
            (each.name, name, f"{value:.6g}")
            for each in self.certificates
            for name, value in each.numbers.items()
        ]
        columns = zip(("certificate", "number", "value"), zip(*found, strict=True), strict=True)
        return [Table.of(title, verdicts), Table.of("What was found", dict(columns))]

    def notes_shown(self) -> Sequence[str]:
        """What the user should know."""
        return self.notes

    def to_dict(self) -> dict[str, Any]:
        """The certificates, in full precision."""
        return {
            "measure": self.measure,
            "utility": self.utility,
            "systems": self.systems,
            "queries": self.queries,
            "cells": self.cells,
            "passed": self.passed,
            "certificates": [each.to_dict() for each in self.certificates],
            "notes": list(self.notes),
        }


@in_float64
def certify(
    target: Target,
    utility: Utility | np.ndarray | None = None,
    *,
    seed: int = 0,
    n_baselines: int = 5,
    baseline: np.ndarray | None = None,
    gradient: checks.Gradient = baseline_gradient,
    proposal: checks.Proposal = proposals.proposal,
    minimax: checks.Minimax = proposals.DESIGNS["minimax"],
) -> Certificates:
    """Check the theory on a pool.

    Parameters
    ----------
    target
        The systems' weights; at least two systems.
    utility
        What judgments are expected to say, or u itself by cell; `rank_utility` by default.
    seed, n_baselines
        Of random baselines, proposals and importances, and their number; the seed also chooses
        queries of a pool of more than 10^8 entries, which is too large to be certified whole.
    baseline
        Claimed to be the best, by cell, and put for the mean throughout; the mean by default.
    gradient
        Claimed to be the gradient of Sigma, ``(tau, weights, utility)`` to one number a cell.
    proposal
        Claimed to be the best, ``(norms, second moment)`` to q.
    minimax
        Claimed to be the minimax design, ``(goal, utility)`` to q and its certificate.

    Returns
    -------
    Certificates
        The last four arguments let you see them fail on a claim that is wrong.

    Raises
    ------
    EvenhandError
        If there is one system only, the utility does not fit, or nothing varies.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> eh.certify(eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")).passed
    True
    """
    if n_baselines < 1:
        raise EvenhandError(f"at least 1 random baseline is needed, got {n_baselines}")
    name, values = _utility_of(target, utility)
    if baseline is not None:
        baseline = _by_cell(target, baseline, "baseline")
    cells, n_queries, notes = _sample(target, seed)
    if len(cells) < len(target.pool):
        target, values = _restricted(target, cells), values[cells]
        baseline = None if baseline is None else baseline[cells]
    goal = goals.rank(target)
    arrays = Arrays(jax.device_put(target.weights(np.arange(len(cells)))), jax.device_put(values))
    tried = case(jax.random.key(seed), goal, arrays, n_baselines, baseline)
    certificates = (
        *checks.gradients(tried, gradient),
        checks.kinks(tried),
        checks.lower_bound(tried),
        checks.ties(tried),
        checks.every_proposal(tried),
        checks.all_pairs(tried),
        checks.optimal_proposal(tried, proposal),
        *checks.duality(tried, minimax),
    )
    return Certificates(
        measure=str(target.measure),
        utility=name,
        systems=len(target.systems),
        queries=n_queries,
        cells=len(cells),
        certificates=certificates,
        notes=notes,
    )


def certify_runs(
    runs: Runs, measure: Measure | str, *, qrels: Qrels | None = None, **options: Any
) -> Certificates:
    """Check the theory on some runs.

    Parameters
    ----------
    runs
        What the systems returned.
    measure
        Gives weights and utilities.
    qrels
        Complete judgments to take the utilities from, where a pair without one counts as 0; the
        queries are then theirs. Without it, `rank_utility`.
    **options
        Of `certify`.
    """
    measure = linear(measure)
    queries = None if qrels is None else qrels.queries.to_pylist()
    target = targets.target(pool(runs, depth=measure.cutoff, queries=queries), measure)
    return certify(target, None if qrels is None else _judged(target, qrels), **options)


def certify_files(
    *paths: str | Path,
    measure: Measure | str | None = None,
    qrels: Iterable[str | Path] = (),
    order: str = "score",
    negative: str = "unjudged",
    **options: Any,
) -> Certificates:
    """Check the theory on a study, or on runs if a measure is given.

    Parameters
    ----------
    *paths
        The folder of one study, or files and folders of runs.
    measure
        What weights the runs; a study has its own.
    qrels
        Complete judgments to take the utilities from; `rank_utility` without.
    order, negative
        What orders a run, and what a grade below 0 means.
    **options
        Of `certify`.

    Raises
    ------
    EvenhandError
        If the files cannot be read, or runs come without a measure.
    """
    files = list(qrels)
    judgments = read_qrels(*files, negative=negative) if files else None
    if measure is not None:
        return certify_runs(read_runs(*paths, order=order), measure, qrels=judgments, **options)
    if len(paths) != 1 or not Path(paths[0]).is_dir():
        raise EvenhandError(
            "without a measure, the folder of one study is needed",
            hint="for runs, say which measure: -m DCG@100",
        )
    target = Study.open(paths[0]).target
    return certify(target, None if judgments is None else _judged(target, judgments), **options)


def _judged(target: Target, qrels: Qrels) -> Moments:
    """The utilities by complete judgments; 0 for a pair without one."""
    utility = np.nan_to_num(judged_utility(target.pool, qrels, target.measure))
    return known_utility(utility, name="judged")


def _utility_of(target: Target, utility: Utility | np.ndarray | None) -> tuple[str, np.ndarray]:
    if utility is None:
        utility = rank_utility(target.pool)
    if isinstance(utility, Utility):
        return utility.name, _by_cell(target, np.sqrt(utility.second_moment), "utility")
    return "given", _by_cell(target, utility, "utility")


def _by_cell(target: Target, values: np.ndarray, what: str) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.shape != (len(target.pool),) or not np.isfinite(values).all():
        raise EvenhandError(
            f"the {what} must be a finite number for each of the {len(target.pool):,} pairs, "
            f"got an array of shape {values.shape}"
        )
    return values


def _sample(target: Target, seed: int) -> tuple[np.ndarray, int, tuple[str, ...]]:
    """The cells to certify, of how many queries, and a note if they are not all."""
    cells, k, n_queries = len(target.pool), len(target.systems), len(target.pool.queries)
    if cells * k <= MOST:
        return np.arange(cells), n_queries, ()
    order = np.random.default_rng(seed).permutation(n_queries)
    size = np.bincount(target.pool.query, minlength=n_queries)
    kept = max(1, int(np.searchsorted(np.cumsum(size[order]) * k, MOST, side="right")))
    chosen = np.flatnonzero(np.isin(target.pool.query, order[:kept]))
    note = (
        f"{cells:,} pairs x {k:,} systems are too many to hold at once: "
        f"certified on {kept:,} of {n_queries:,} queries, drawn by seed {seed}"
    )
    return chosen, kept, (note,)


def _restricted(target: Target, cells: np.ndarray) -> Target:
    """The target of some cells, weights as they are."""
    whole = target.pool
    length = np.diff(whole.start)
    entries = np.flatnonzero(np.isin(whole.cell, cells))
    start = np.concatenate([[0], np.cumsum(length[cells])])
    part = replace(
        whole,
        query=whole.query[cells],
        document=whole.document[cells],
        start=start,
        system=whole.system[entries],
        rank=whole.rank[entries],
        score=whole.score[entries],
    )
    return replace(target, pool=part, weight=target.weight[entries])
