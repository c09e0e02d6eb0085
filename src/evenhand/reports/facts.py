"""The content of a report as plain values: numbers, names and tables, and no page.

Pages and pictures are made from `Facts` alone; `evenhand.reports.gather` asks a study for them.
What is not known yet is None, or empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.decisions.ranks import Standings
from evenhand.estimands.goals import Goal
from evenhand.estimation.estimates import Estimate
from evenhand.intervals.simultaneous import Comparisons
from evenhand.measures.base import Linear
from evenhand.reports.calibration import Calibration
from evenhand.reports.summary import Conclusion
from evenhand.studies.round_files import Record

__all__ = ["Facts", "Look", "Places", "RoundFacts", "Weights"]


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """One round.

    Attributes
    ----------
    record
        How it was made.
    n_draws, n_distinct
        Draws, and distinct pairs among them.
    n_missing
        Pairs that are not judged yet.
    """

    record: Record
    n_draws: int
    n_distinct: int
    n_missing: int

    @property
    def kind(self) -> str:
        """Kind of the design: ``optimal``, ``minimax``, ``naive`` or ``uniform``."""
        return self.record.design.split("/")[0]

    @property
    def utility(self) -> str:
        """What judgments were expected to say."""
        return "/".join(self.record.design.split("/")[1:]) or "-"


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What was known after some of the rounds.

    Attributes
    ----------
    rounds
        Names of the rounds used.
    estimate
        From these alone.
    """

    rounds: tuple[str, ...]
    estimate: Estimate


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where the judgments went: by system and rank.

    Attributes
    ----------
    systems
        Their names.
    edges
        First rank of each bin, and the rank behind the last; shape (bins + 1,).
    returned
        Pairs that each system returns at these ranks; shape (systems, bins).
    drawn
        Draws of these pairs; a pair counts for every system that returns it.
    judged
        Pairs among them that are judged.
    """

    systems: tuple[str, ...]
    edges: np.ndarray
    returned: np.ndarray
    drawn: np.ndarray
    judged: np.ndarray

    @property
    def bins(self) -> list[str]:
        """Names of the bins of ranks."""
        both = zip(self.edges[:-1].tolist(), (self.edges[1:] - 1).tolist(), strict=True)
        return [str(a) if a == b else f"{a}-{b}" for a, b in both]


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Importance weights of the draws.

    Attributes
    ----------
    size
        g = ||a|| / E of each draw times its round's weight, in units of their mean; shape (n,).
    ess
        (sum g)^2 / sum g^2.
    max_share
        Largest share of one draw in sum g.
    """

    size: np.ndarray
    ess: float
    max_share: float

    @property
    def zero(self) -> int:
        """Draws of pairs on which all systems agree: they say nothing of the contrasts."""
        return int((self.size == 0).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """The content of a report.

    Attributes
    ----------
    title
        Of the page.
    folder
        Where the study lies.
    made
        When the report was made: UTC, ISO 8601.
    measure, goal
        What is estimated, and the contrasts.
    baseline, depth, grades, plan, created
        As fixed when the study was made.
    level, question
        Of the intervals.
    systems
        Names.
    n_queries, n_pairs
        Queries of the study, and pairs of its pool.
    n_judged, n_assessors
        Distinct pairs with a judgment, for whichever round; and who judged them.
    rounds
        In the order in which they were drawn.
    estimate
        From all rounds that are wholly judged; None where there is none.
    reason
        Why there is none, and what to do.
    compared
        The contrasts of the goal, each alone and all together; None without an estimate.
    standings
        Who is best; None where there is nothing to rank.
    conclusion
        The answer in words.
    looks
        What was known after each round.
    places
        Where the judgments went.
    weights
        Of the draws; None without an estimate.
    calibrations
        Of each prior that was fitted.
    warnings, notes
        What a reader must know, and what he should; a sentence each.
    versions
        Of the programs that made this report, by name.
    files
        SHA-256 of each file of the study, by its path within it; and of its judgments.
    """

    title: str
    folder: str
    made: str
    measure: Linear
    goal: Goal
    baseline: str | None
    depth: int | None
    grades: tuple[float, ...] | None
    plan: tuple[int, ...] | None
    created: str
    level: float
    question: str
    systems: tuple[str, ...]
    n_queries: int
    n_pairs: int
    n_judged: int
    n_assessors: int
    rounds: tuple[RoundFacts, ...]
    estimate: Estimate | None
    reason: str
    compared: Comparisons | None
    standings: Standings | None
    conclusion: Conclusion
    looks: tuple[Look, ...]
    places: Places
    weights: Weights | None
    calibrations: tuple[Calibration, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    versions: dict[str, str]
    files: dict[str, str]

    @property
    def n_draws(self) -> int:
        """Draws of all rounds."""
        return sum(one.n_draws for one in self.rounds)

    @property
    def comparative(self) -> bool:
        """Whether the goal compares systems, and there are at least two."""
        return self.goal.kind != "absolute" and len(self.systems) > 1
