r"""Rank intervals: which system is best, and which cannot be distinguished.

From all pairs at once: a system is ranked between

    1 + (systems that are above it)   and   k - (systems that are below it)                  (1)

where x is *above* y if the simultaneous interval of their difference lies above 0
(`evenhand.intervals.simultaneous.Comparisons`). All rank intervals hold together with the
probability of the level, and *contenders* are the systems above which no other is (Hsu 1996,
*Multiple Comparisons*; Mohamad et al. 2019 for ranks).

`best` is another kind of number: the probability that a system is the best if values are jointly
normal around the estimates,

    theta ~ N(U^, Cov^),      best_j = P(theta_j is the largest)                              (2)

a posterior under a flat prior, approximate where few pairs are judged. Systems that return the
same share it. `best_posterior` is the share of draws of `evenhand.decisions.posterior` in which it
is, where a model learned from the judgments: as right as that model.

Where a measure counts faults (MAE, Swaps), a lower value is better: (1) and (2) are then of the
values with their signs turned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.errors import listed
from evenhand.estimands.goals import pairs as all_pairs
from evenhand.estimation.estimates import Estimate
from evenhand.intervals.confidence import percent
from evenhand.results import Result, Table, rows

if TYPE_CHECKING:
    from evenhand.decisions.posterior import Beliefs

__all__ = ["Standings", "ranking"]

#: Simulated values behind equation (2).
DRAWS = 20_000


@dataclass(frozen=True, eq=False)
class Standings(Result):
    """Systems from best to worst.

    Attributes
    ----------
    level
        Probability with which all rank intervals hold together.
    systems
        Names, from the best estimate to the worst; those that are not covered are left out.
    value
        Estimates, shape (systems,).
    first, last
        Rank interval of each, equation (1).
    best
        Probability of being the best, equation (2); NaN where draws say nothing of some system yet.
    best_posterior
        The same in the eyes of a model that learned; None where none did.
    uncovered
        Systems that are left out, any of which may be better than these.
    notes
        What the user should know.
    """

    level: float
    systems: tuple[str, ...]
    value: np.ndarray
    first: np.ndarray
    last: np.ndarray
    best: np.ndarray
    best_posterior: np.ndarray | None = None
    uncovered: int = 0
    notes: tuple[str, ...] = ()

    @property
    def contenders(self) -> tuple[str, ...]:
        """The systems above which no other is: one of them is the best."""
        return tuple(s for s, first in zip(self.systems, self.first, strict=True) if first == 1)

    def _columns(self) -> dict[str, Any]:
        columns = {
            "system": self.systems,
            "estimate": self.value,
            "rank_low": self.first,
            "rank_high": self.last,
            "best": self.best,
        }
        if self.best_posterior is not None:
            columns["best_posterior"] = self.best_posterior
        return columns

    def tables(self) -> list[Table]:
        """One table, a row a system."""
        title = (
            f"Ranks, all intervals together at {percent(self.level)}; and the chance to be the "
            "best, were values jointly normal around the estimates"
        )
        if self.best_posterior is not None:
            title += ", and in the posterior of a model that learned"
        return [Table.of(title, self._columns(), {"best": 3, "best_posterior": 3})]

    def notes_shown(self) -> tuple[str, ...]:
        """Who may be the best, and further notes."""
        names = self.contenders
        if len(names) == 1:
            said = f"{names[0]} is the best" + (" of those covered" if self.uncovered else "")
        else:
            said = f"the best is one of {len(names)} systems: {', '.join(names)}"
        return (said, *self.notes)

    def to_dict(self) -> dict[str, Any]:
        """The rows, in full precision."""
        return {
            "level": self.level,
            "contenders": list(self.contenders),
            "systems": rows(self._columns()),
            "notes": list(self.notes),
        }


def ranking(found: Estimate, beliefs: Beliefs | None = None) -> Standings:
    """Rank the systems of an estimate.

    Parameters
    ----------
    found
        Of `evenhand.estimation.importance.estimate`.
    beliefs
        Of `evenhand.study.Study.beliefs`, to be shown beside it.

    Returns
    -------
    Standings

    Examples
    --------
    >>> import jax
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> goal = eh.pair(target)
    >>> design = eh.design(goal, eh.rank_utility(target.pool))
    >>> sample = eh.draw(jax.random.key(0), design, 3)
    >>> judged = eh.judge(target, sample, eh.read_qrels({"q": {"a": 1, "b": 0, "c": 1}}))
    >>> eh.ranking(eh.estimate(goal, [judged])).systems
    ('x', 'y')
    """
    k = len(found.value)
    covered = np.flatnonzero(~np.isnan(found.value))
    compared, sign = found.pairs, found.goal.target.sign
    above = np.zeros((k, k), bool)
    first, second = np.triu_indices(k, 1)
    sure = compared.decided & ~found.zero_variance_unknown(
        all_pairs(found.goal.target).matrix, compared.spread
    )
    up = sure & (sign * compared.value > 0)
    down = sure & (sign * compared.value < 0)
    above[first[up], second[up]] = True
    above[second[down], first[down]] = True
    # Identical systems differ by exactly 0, and are the best together or not at all.
    group = found.alike
    value, vector = np.linalg.eigh(found.covariance[np.ix_(covered, covered)])
    root = vector * np.sqrt(np.maximum(value, 0.0))
    noise = np.random.default_rng(0).normal(size=(DRAWS, len(covered))) @ root.T
    drawn = sign * found.value[covered] + noise
    leader = group[covered][drawn.argmax(1)] if len(covered) else np.zeros(0, int)
    best = np.array([(leader == group[j]).mean() if len(leader) else np.nan for j in covered])
    untold = found.zero_variance_unknown(np.eye(k), np.sqrt(np.diag(found.covariance)))
    untold &= ~np.isnan(found.value)
    if untold.any():
        best[:] = np.nan
    order = covered[np.argsort(-sign * found.value[covered], kind="stable")]
    place = {j: i for i, j in enumerate(covered)}
    among, among_all = np.ix_(covered, covered), np.where(np.isnan(found.value), -1, group)
    better = np.zeros(k, int)
    worse = np.zeros(k, int)
    better[covered] = above[among].sum(0)
    worse[covered] = above[among].sum(1)
    notes = []
    if len(covered) < k:
        notes.append(f"{k - len(covered)} of {k} systems are not covered and have no rank")
    if untold.any():
        silent = listed([found.goal.target.systems[j] for j in np.flatnonzero(untold)])
        notes.append(
            f"draws say nothing yet of {silent}, so that nobody knows the chances to be the best"
            + ("" if beliefs is None else " without believing a model")
        )
    return Standings(
        level=found.level,
        systems=tuple(found.goal.target.systems[j] for j in order),
        value=found.value[order],
        first=1 + better[order],
        last=len(covered) - worse[order],
        best=best[[place[j] for j in order]],
        best_posterior=None if beliefs is None else beliefs.best(among_all, sign)[order],
        uncovered=k - len(covered),
        notes=tuple(notes),
    )
