"""An immutable view of a study: settings, goal, rounds, judgments.

A `Snapshot` is read once, so that whatever is made from it is of one state of the judgments,
though assessors go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evenhand.errors import StudyError, listed
from evenhand.estimands.goals import Goal
from evenhand.sampling.rounds import Round
from evenhand.studies.ledger import Ledger
from evenhand.studies.round_files import Stored
from evenhand.studies.study_files import Settings

if TYPE_CHECKING:
    from evenhand.priors.models import Model
    from evenhand.priors.prior import NumPyroPrior

__all__ = ["Snapshot"]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A study at one moment.

    Attributes
    ----------
    folder
        Where it lies, for messages.
    settings
        What was fixed when it was made.
    goal
        Its contrasts, over the pairs of all systems that there are.
    ledger
        Its rounds and judgments.
    """

    folder: Path
    settings: Settings
    goal: Goal
    ledger: Ledger

    @property
    def top_utility(self) -> float | None:
        """The largest utility that a judgment can have; None where nothing limits it."""
        measure = self.goal.target.measure
        if self.settings.grades is None:
            return measure.top_utility
        return float(measure.utility(np.asarray(self.settings.grades)).max())

    def whole(self) -> tuple[list[Round], list[Stored]]:
        """The rounds that are wholly judged, and their files."""
        both = zip(self.ledger.rounds(), self.ledger.files, strict=True)
        done = [(r, f) for r, f in both if not np.isnan(r.utility).any()]
        return [r for r, _ in done], [f for _, f in done]

    def waiting(self) -> list[str]:
        """A sentence for each round that is not wholly judged."""
        files = self.ledger.files
        return [
            f"{f.record.name}: {len(missing):,} of {len(f.sample.cells):,} pairs are not judged yet"
            for f, missing in zip(files, self.ledger.missing(), strict=True)
            if len(missing)
        ]

    def planned(self, rounds: Sequence[Round]) -> list[int] | None:
        """Planned draws of each stage: rounds drawn before the first judgment are one stage.

        A round that tops up counts with its own size, fixed like its design before it was judged;
        it has no weight where an earlier round has any. None where nothing was planned.
        """
        plan = self.settings.plan
        if plan is None:
            return None
        files = self.ledger.files
        ordinary = [f.record.name for f in files if not f.record.first]
        planned = dict(zip(ordinary, plan, strict=False))
        planned |= {f.record.name: f.record.budget for f in files if f.record.first}
        if any(r.name not in planned for r in rounds):
            raise StudyError(
                f"the plan of {self.folder} names {len(plan)} rounds, and more were drawn",
                hint="a plan cannot be changed after the first judgment: start a new study",
            )
        together = [planned[r.name] for r in rounds if not r.depends_on]
        later = [planned[r.name] for r in rounds if r.depends_on]
        return [sum(together), *later] if together else later

    def next_planned(self) -> int | None:
        """Planned draws of the round that comes next; None where nothing was planned.

        Raises
        ------
        StudyError
            If all rounds of the plan are drawn.
        """
        plan, drawn = self.settings.plan, self.ledger.n_ordinary
        if plan is None:
            return None
        if drawn >= len(plan):
            raise StudyError(
                f"the study's plan names {len(plan)} rounds, and all are drawn: no "
                "further round can be planned",
                hint="a plan cannot be changed after the first judgment: start a new study",
            )
        return plan[drawn]

    def prior(
        self,
        files: Sequence[Stored] | None = None,
        *,
        extra: Mapping[str, np.ndarray] | None = None,
        systems: Collection[str] | None = None,
        model: Model | None = None,
        method: str = "laplace",
    ) -> NumPyroPrior:
        """The model that learns from the study's judgments; see `evenhand.study.Study.prior`."""
        from evenhand.priors.features import feature_table
        from evenhand.priors.prior import NumPyroPrior

        signals: dict[str, np.ndarray] = {}
        for stored in self.ledger.files if files is None else files:
            signals |= stored.signals
        target = self.goal.target
        table = feature_table(target.pool, signals | dict(extra or {}), systems=systems)
        levels = None
        if self.settings.grades is not None:
            levels = np.unique(target.measure.utility(np.asarray(self.settings.grades)))
        return NumPyroPrior(table, model=model, levels=levels, method=method)

    def notes(self) -> list[str]:
        """A sentence for each group of identical systems, and for queries left unanswered."""
        target = self.goal.target
        identical = [
            f"{', '.join(names[:-1])} and {names[-1]} return the same rankings: "
            "they differ by exactly 0, whatever is judged"
            for group in target.identical()
            if (names := [target.systems[j] for j in group])
        ]
        earns = "has no fault there, the best there is" if target.sign < 0 else "earns 0 there"
        unanswered = [
            f"{system} leaves {len(missed)} {'query' if len(missed) == 1 else 'queries'} "
            f"unanswered and {earns}: {listed(missed)}"
            for system, missed in target.pool.unanswered().items()
        ]
        return identical + unanswered
