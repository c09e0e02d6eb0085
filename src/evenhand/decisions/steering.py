r"""What was learned steers the next round.

`learned_utility` turns a posterior into what a design needs; `steered` makes the design of a round
that learns, as three parts:

    q = (1 - eps) [ (1 - s) q_learned + s q_ranks ] + eps q_0                                (1)

with q_learned proportional to ||a_c|| sqrt(Var[r_c]), the predictive deviation, since a control
variate will take off the mean; q_ranks the heuristic design, whose share s bounds what a wrong
model can cost; and the floor. Cells whose judgment is known are left out: the estimate counts them
exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.designs.proposals import Design, design
from evenhand.designs.utilities import Moments, rank_utility
from evenhand.estimands.goals import Goal
from evenhand.estimation.cross_fitting import labels
from evenhand.priors import diagnostics
from evenhand.priors.prior import NumPyroPosterior, Posterior
from evenhand.sampling.rounds import Round

__all__ = ["GUARD", "GUARD_POOR", "known_utilities", "learned_utility", "split", "steered"]

#: Share s of the heuristic in a learned design; more where the model's diagnostics are poor.
GUARD, GUARD_POOR = 0.2, 0.5


def learned_utility(posterior: Posterior, n_cells: int) -> Moments:
    """What a design needs that is followed by a control variate: the variance that remains.

    With r replaced by r - E[r], the second moment of what is drawn for is the predictive variance,
    of parameters and assessor both.
    """
    found = posterior.predict(np.arange(n_cells))
    remains = np.maximum(found.second_moment - found.mean**2, 0.0)
    return Moments(found.name, np.zeros(n_cells), remains)


def steered(
    goal: Goal,
    posterior: Posterior,
    *,
    known: np.ndarray | None = None,
    kind: str = "optimal",
    floor: float = 0.1,
    doubts: Sequence[str] = (),
) -> tuple[Design, list[str]]:
    """The design of a round that learns, equation (1), and doubts about its model.

    Parameters
    ----------
    goal
        The contrasts to estimate.
    posterior
        What was learned from earlier rounds.
    known
        Cells whose judgment is known; bool, shape (cells,).
    kind, floor
        As in `evenhand.designs.proposals.design`.
    doubts
        Further doubts about the model, such as `evenhand.priors.diagnostics.doubts`.

    Examples
    --------
    >>> import numpy as np
    >>> import evenhand as eh
    >>> runs = {"x": {"q": {"a": 2, "b": 1}}, "y": {"q": {"b": 2, "c": 1}}}
    >>> target = eh.target(eh.pool(eh.read_runs(runs)), "DCG@2")
    >>> goal = eh.pair(target)
    >>> class Half:  # predicts .5 for every pair, whatever it is fitted to
    ...     name = "half"
    ...
    ...     def fit(self, sets):
    ...         return [self] * len(sets)
    ...
    ...     def predict(self, cells):
    ...         half = np.full(len(cells), 0.5)
    ...         return eh.Moments("half", half, half)
    >>> design, doubts = eh.steered(goal, Half())
    >>> design.name, doubts
    ('optimal/half', [])
    """
    ranks, poor = rank_utility(goal.target.pool), list(doubts)
    if isinstance(posterior, NumPyroPosterior):
        poor += diagnostics.faults(posterior)
        if not np.isfinite(posterior.fitted.draws).all():
            return design(goal, ranks, kind=kind, floor=floor, known=known), poor
    made = design(
        goal,
        learned_utility(posterior, len(goal.target.pool)),
        kind=kind,
        floor=floor,
        known=known,
        guard=ranks,
        guard_share=GUARD_POOR if poor else GUARD,
    )
    return made, poor


def known_utilities(rounds: Sequence[Round], n_cells: int) -> np.ndarray:
    """Utility of every cell that some rounds judged, NaN elsewhere; shape (cells,)."""
    said = labels(rounds).averaged()
    by_cell = np.full(n_cells, np.nan)
    by_cell[said.cells] = said.utility
    return by_cell


def split(budget: int, rounds: int) -> list[int]:
    """Draws of each round, growing as 2 : 3 : 4 ...: the first only has to teach."""
    share = np.cumsum(np.arange(2.0, rounds + 2.0))
    ends = np.round(budget * share / share[-1]).astype(int)
    return np.diff(ends, prepend=0).tolist()
