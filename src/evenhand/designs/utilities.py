r"""What a judgment is expected to say, before it is asked for: two moments for each cell.

A utility holds, for each cell c of the pool,

    mean_c = E[r_c],     second_moment_c = E[r_c^2]                                          (1)

of the judgment r_c. Designs need the *second* moment: with r in {0, 1} and P(r = 1) = p the best
proposal is proportional to sqrt(p), and p itself (the mean, as the source paper has it) costs
exactly as much as knowing nothing: for q proportional to p^alpha the variance is symmetric about
alpha = 1/2. Only ratios between cells matter to a design, so a guess need not be calibrated; and no
guess, however wrong, biases an estimate.

- `flat`: knows nothing; every cell alike.
- `rank_utility`: from the ranks that the systems give. The default.
- `score_utility`: from the runs' scores.
- `external_utility`: from a table of yours, such as an LLM judge's labels.
- `curve_utility`: the source paper's heuristics, a curve over ranks (`PAPER_CURVES`).

Anything with the two arrays is a `Utility`: a researcher's own model fits in as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from evenhand.errors import EvenhandError
from evenhand.estimands.pools import PIECE, Pool, stretches
from evenhand.formats.qrels import Qrels, read_qrels
from evenhand.measures.base import Linear

__all__ = [
    "PAPER_CURVES",
    "Moments",
    "Reach",
    "Utility",
    "curve_utility",
    "external_utility",
    "flat",
    "judged_utility",
    "known_utility",
    "mean_utility",
    "rank_utility",
    "rank_votes",
    "scaled_scores",
    "score_utility",
    "utility_named",
]

#: What a pair is worth when nothing speaks for it, beside 1 for a pair on top of every ranking.
PRIOR_SHARE = 0.1
#: Entries summed at a time.
_CACHED = 1 << 16


@runtime_checkable
class Utility(Protocol):
    """Two moments of the judgment of each cell."""

    @property
    def name(self) -> str:
        """What it is called in reports."""
        ...

    @property
    def mean(self) -> np.ndarray:
        """E[r], float64, shape (cells,)."""
        ...

    @property
    def second_moment(self) -> np.ndarray:
        """E[r^2], float64, shape (cells,)."""
        ...


class Reach(NamedTuple):
    """How likely a judgment reaches each of some utilities, P(r_c >= g_l).

    Two moments say little of how many documents are of the best: many that may be fair and a few
    that are perfect can have the same.

    Attributes
    ----------
    gain
        g_1 < g_2 < ..., shape (levels,).
    chance
        Shape (cells, levels).
    """

    gain: np.ndarray
    chance: np.ndarray

    def at(self, gain: np.ndarray) -> np.ndarray:
        """Chances of other utilities, shape (cells, levels); 0 above all of `gain`."""
        return np.pad(self.chance, ((0, 0), (0, 1)))[:, np.searchsorted(self.gain, gain)]

    def knowing(self, utility: np.ndarray) -> Reach:
        """The same where some utilities are known, and NaN elsewhere: shape (cells,)."""
        known = np.isfinite(utility)
        gain = np.union1d(self.gain, utility[known & (utility > 0)])
        chance = self.at(gain)
        chance[known] = utility[known, None] >= gain
        return Reach(gain, chance)


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """A utility given by its two moments, equation (1).

    Attributes
    ----------
    name
        What it is called in reports.
    mean, second_moment
        Float64, shape (cells,).
    reach
        How likely each utility is reached, where that is known too.
    """

    name: str
    mean: np.ndarray
    second_moment: np.ndarray
    reach: Reach | None = None

    def __post_init__(self) -> None:
        for what, moment in (("mean", self.mean), ("second moment", self.second_moment)):
            if not np.isfinite(moment).all():
                raise EvenhandError(
                    f"the {what} of the utility {self.name!r} is not finite everywhere"
                )
        if (self.second_moment < 0).any():
            raise EvenhandError(
                f"the second moment of the utility {self.name!r} is negative somewhere"
            )


def flat(pool: Pool) -> Moments:
    """Every cell alike: for runs that say nothing of relevance.

    Parameters
    ----------
    pool
        The cells.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> pool = eh.pool(eh.read_runs(runs))  # the pairs of q with a, b and c
    >>> eh.flat(pool).second_moment.tolist()
    [1.0, 1.0, 1.0]
    """
    ones = np.ones(len(pool))
    return Moments("flat", ones, ones)


def rank_utility(pool: Pool) -> Moments:
    r"""From ranks: a document is the likelier relevant, the more systems return it, and the higher.

    .. math:: E[r_c^2] \propto 0.1 + \frac1k \sum_j v_{jc},
              \qquad v_{jc} = 1 - \ln(\mathrm{rank}_{jc}) / \ln(1 + \mathrm{depth})

    with v = 0 where system j does not return the document. On six real collections a curve fitted
    to that very collection's relevance gained at most 3 % on it.

    Parameters
    ----------
    pool
        The cells.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> pool = eh.pool(eh.read_runs(runs))  # the pairs of q with a, b and c
    >>> eh.rank_utility(pool).second_moment.round(3).tolist()
    [0.6, 0.785, 0.285]
    """
    deepest = int(pool.rank.max())
    votes = rank_votes(np.arange(1, deepest + 1), pool.depth or deepest)
    return _votes("rank", pool, lambda here: votes[pool.rank[here] - 1])


def score_utility(pool: Pool) -> Moments:
    """From the runs' scores, scaled to [0, 1] within each system and query; mean over systems.

    E[r^2] is proportional to 0.1 + the mean scaled score, 0 where a system does not return the
    document. A list whose scores are all one counts as 1 throughout.

    Parameters
    ----------
    pool
        The cells.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> pool = eh.pool(eh.read_runs(runs))  # the pairs of q with a, b and c
    >>> eh.score_utility(pool).second_moment.round(3).tolist()
    [0.6, 0.6, 0.1]
    """
    scores = scaled_scores(pool)
    return _votes("score", pool, lambda here: scores[here])


def rank_votes(rank: np.ndarray, depth: int) -> np.ndarray:
    """V = 1 - ln(rank) / ln(1 + depth): 1 at the top, near 0 at the bottom of a list."""
    return 1.0 - np.log(rank) / np.log1p(depth)


def scaled_scores(pool: Pool) -> np.ndarray:
    """Scores scaled to [0, 1] within each system and query, by entry: shape (entries,)."""
    low = np.full(len(pool.systems) * len(pool.queries), np.inf)
    high, found = -low, np.empty(len(pool.score))

    def pieces() -> Iterator[tuple[slice, np.ndarray]]:
        for first, last in stretches(pool.start, PIECE):
            here = slice(pool.start[first], pool.start[last])
            query = np.repeat(pool.query[first:last], np.diff(pool.start[first : last + 1]))
            yield here, pool.system[here].astype(np.int64) * len(pool.queries) + query

    for here, group in pieces():
        np.minimum.at(low, group, pool.score[here])
        np.maximum.at(high, group, pool.score[here])
    for here, group in pieces():
        spread = high[group] - low[group]
        above = (pool.score[here] - low[group]) / np.where(spread > 0, spread, 1.0)
        found[here] = np.where(spread > 0, above, 1.0)
    return found


def _votes(name: str, pool: Pool, votes: Callable[[slice], np.ndarray]) -> Moments:
    """From the votes of some entries, a few at a time so that they stay in a core's cache."""
    moment = np.empty(len(pool))
    for first, last in stretches(pool.start, _CACHED):
        start = pool.start[first:last]
        summed = np.add.reduceat(votes(slice(start[0], pool.start[last])), start - start[0])
        moment[first:last] = PRIOR_SHARE + summed / len(pool.systems)
    return Moments(name, moment, moment)


#: The source paper's approximate utilities by rank: for TREC-8, and for SYNTH (2000 ranks).
PAPER_CURVES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "paper-trec": lambda rank: 16.0 / (rank + 34.0),
    "paper-synth": lambda rank: 4.0 * (1.0 - rank / 2000.0),
}


def curve_utility(
    pool: Pool,
    curve: Callable[[np.ndarray], np.ndarray] | str = "paper-trec",
    *,
    literal: bool = True,
) -> Moments:
    """An approximate utility u~ by rank, mean over systems; 0 where one lacks the document.

    Parameters
    ----------
    pool
        The cells.
    curve
        u~ of each rank, or a name of `PAPER_CURVES`.
    literal
        True plugs u~ in as the source paper does: q proportional to u~, that is E[r^2] = u~^2.
        False takes it for what it is in a binary world, E[r^2] proportional to u~, which is better
        on every collection tried.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> pool = eh.pool(eh.read_runs(runs))  # the pairs of q with a, b and c
    >>> eh.curve_utility(pool, lambda rank: 1 / rank).mean.tolist()
    [0.5, 0.75, 0.25]
    """
    name = curve if isinstance(curve, str) else "curve"
    if isinstance(curve, str):
        if curve not in PAPER_CURVES:
            raise EvenhandError(
                f"unknown curve {curve!r}", hint=f"known are {', '.join(PAPER_CURVES)}"
            )
        curve = PAPER_CURVES[curve]
    mean = np.add.reduceat(curve(pool.rank.astype(np.float64)), pool.start[:-1]) / len(pool.systems)
    return Moments(name if literal else f"sqrt-{name}", mean, mean**2 if literal else mean)


def external_utility(
    pool: Pool, table: Qrels, measure: Linear, *, name: str = "external"
) -> Moments:
    """From a table of predicted grades (``qid docid value``), such as an LLM judge's labels.

    The value v of a pair is taken as a grade: u~ = the measure's utility of v, averaged where a
    pair has several. A predictor is right only most of the time, so E[r^2] is proportional to

        0.1 m^2 + 0.9 m u~,     m = the largest u~ of the table                              (2)

    (which for binary relevance is a probability of relevance between 0.1 and 1); a pair that the
    table lacks gets the table's mean u~.

    Parameters
    ----------
    pool
        The cells.
    table
        The predictions.
    measure
        Gives the utility of a grade.
    name
        What it is called.

    Raises
    ------
    EvenhandError
        If no pair of the table is in the pool, or a utility is negative.

    Examples
    --------
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> pool = eh.pool(eh.read_runs(runs))  # the pairs of q with a, b and c
    >>> labels = eh.read_qrels({"q": {"a": 3, "b": 0}})
    >>> eh.external_utility(pool, labels, eh.measure("DCG@2")).mean.tolist()
    [3.0, 0.0, 1.5]
    """
    cells, utility = mean_utility(pool.cells_of(table), table.grade, measure)
    if not len(cells):
        raise EvenhandError(
            f"no pair of {table.source} is among the {len(pool):,} pairs of the pool",
            hint="check that its query and document ids are those of the runs",
        )
    if utility.min() < 0:
        raise EvenhandError(f"{table.source} predicts a negative utility, {utility.min():g}")
    mean = np.full(len(pool), utility.mean())
    mean[cells] = utility
    top = utility.max() or 1.0
    return Moments(name, mean, PRIOR_SHARE * top**2 + (1 - PRIOR_SHARE) * top * mean)


def mean_utility(
    cells: np.ndarray, grade: np.ndarray, measure: Linear
) -> tuple[np.ndarray, np.ndarray]:
    """Utility of each judged cell, averaged over its judgments.

    Parameters
    ----------
    cells, grade
        By judgment: the cell (-1: outside the pool, left out) and the grade.
    measure
        Gives the utility of a grade.

    Returns
    -------
    cells, utility
        The distinct cells judged, ascending, and the mean utility of each.
    """
    inside = cells >= 0
    judged, which = np.unique(cells[inside], return_inverse=True)
    total = np.bincount(which, measure.utility(grade[inside]), minlength=len(judged))
    return judged, total / np.bincount(which, minlength=len(judged))


def judged_utility(pool: Pool, qrels: Qrels, measure: Linear) -> np.ndarray:
    """Utility of every cell of a pool as a table of judgments has it: float64, shape (cells,).

    The mean where a pair has several judgments, NaN where it has none.
    """
    cells, utility = mean_utility(pool.cells_of(qrels), qrels.grade, measure)
    by_cell = np.full(len(pool), np.nan)
    by_cell[cells] = utility
    return by_cell


def known_utility(utility: np.ndarray, *, name: str = "known") -> Moments:
    """The true utilities, noise-free: what no design can beat, for simulations and bounds.

    Parameters
    ----------
    utility
        u of every cell, shape (cells,).
    name
        What it is called.

    Examples
    --------
    >>> import numpy as np
    >>> import evenhand as eh
    >>> eh.known_utility(np.array([1.0, 0.0, 3.0])).second_moment.tolist()
    [1.0, 0.0, 9.0]
    """
    return Moments(name, utility, utility**2)


def utility_named(name: str | Path, pool: Pool, measure: Linear) -> Moments:
    """The utility that the command line calls `name`: ``rank``, ``flat``, ``score``, or a file.

    Raises
    ------
    EvenhandError
        If it is neither a known name nor a file.
    """
    known = {"rank": rank_utility, "flat": flat, "score": score_utility}
    if str(name) in known:
        return known[str(name)](pool)
    if not Path(name).is_file():
        raise EvenhandError(
            f"unknown utility {str(name)!r}",
            hint=f"one of {', '.join(known)}, or a file of predicted grades (qid docid value)",
        )
    return external_utility(pool, read_qrels(name), measure, name=Path(name).name)
