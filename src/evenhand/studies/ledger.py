"""Which judgment counts for which round.

Rounds share their judgments: a pair that two of them drew is judged once. A round that is to be
*judged again* has judgments of its own: those that came in after it was drawn, for the pairs that
it drew. That keeps it unbiased where assessors disagree: its design may have looked at what was
judged before, and an earlier judgment may not count again.

So each judgment belongs to the last round, of those drawn before it came in, that drew its pair:
to that round alone if it is to be judged again, else to all rounds that are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenhand.estimands.pools import Pool
from evenhand.measures.base import Linear
from evenhand.sampling.labels import Judgments, Labels
from evenhand.sampling.rounds import Round
from evenhand.studies.round_files import Stored

__all__ = ["SHARED", "Ledger"]

#: Owner of the judgments that rounds share.
SHARED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """The judgments of a study by cell, and whose they are.

    Attributes
    ----------
    files
        The rounds.
    labels
        Every judgment that counts, its assessor by a code.
    owner
        Number of the round that each is for; `SHARED` for all that share; shape (judgments,).
    mark
        Place in the history of the newest judgment.
    n_cells
        Cells of the pool.
    assessors
        Number of assessors.
    """

    files: Sequence[Stored]
    labels: Labels
    owner: np.ndarray
    mark: int
    n_cells: int
    assessors: int

    @property
    def n_ordinary(self) -> int:
        """Rounds that a study's plan counts: all but those that top up."""
        return sum(not file.record.first for file in self.files)

    @classmethod
    def of(cls, said: Judgments, pool: Pool, measure: Linear, files: Sequence[Stored]) -> Ledger:
        """Sort judgments by the rounds that they are for."""
        cells = pool.find(said.query.tolist(), said.document.tolist())
        inside = cells >= 0
        cells, seq = cells[inside], said.seq[inside]
        names, who = np.unique(said.assessor[inside].astype(str), return_inverse=True)
        labels = Labels(cells, measure.utility(said.grade[inside]), who.astype(np.int32))
        owner = np.full(len(cells), SHARED)
        if any(f.record.rejudge for f in files):
            for number, stored in enumerate(files):
                after = (seq > stored.record.mark) & np.isin(cells, stored.sample.draws)
                owner[after] = number if stored.record.rejudge else SHARED
        return cls(files, labels, owner, int(said.seq.max(initial=0)), len(pool), len(names))

    def whose(self, number: int) -> int:
        """`number`, or `SHARED`, whichever owns the judgments of that round."""
        return number if self.files[number].record.rejudge else SHARED

    def utility(self, owner: int = SHARED) -> np.ndarray:
        """Mean utility of each cell by the judgments of one owner, NaN where there is none."""
        by_cell = np.full(self.n_cells, np.nan)
        mean = self.labels.only(self.owner == owner).averaged()
        by_cell[mean.cells] = mean.utility
        return by_cell

    def judged(self) -> np.ndarray:
        """Which cells anyone has judged, for any round; bool, shape (cells,)."""
        found = np.zeros(self.n_cells, bool)
        found[self.labels.cells] = True
        return found

    def to_learn(self) -> Labels:
        """All judgments, for a model; with the assessor of each where there are several."""
        return self.labels if self.assessors > 1 else self.labels.averaged()

    def rounds(self) -> list[Round]:
        """All rounds with what is judged of them so far."""
        return [self._round(number) for number in range(len(self.files))]

    def missing(self) -> list[np.ndarray]:
        """The cells that each round still waits for."""
        return [np.unique(r.sample.draws[np.isnan(r.utility)]) for r in self.rounds()]

    def _round(self, number: int) -> Round:
        stored, owner = self.files[number], self.whose(number)
        record, sample = stored.record, stored.sample
        utility, known = self.utility(owner), None
        if len(stored.known):
            known = np.full(self.n_cells, np.nan)
            known[stored.known] = utility[stored.known]
        return Round(
            sample,
            utility[sample.draws],
            record.depends_on,
            record.name,
            record.cells,
            known,
            individual=self.labels.only(self.owner == owner) if self.assessors > 1 else None,
            judged_again=record.rejudge,
            first=record.first,
        )
