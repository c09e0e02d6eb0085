"""Results of drawing a round and of taking in judgments."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from evenhand.results import Result, Table

__all__ = ["Drawn", "Taken"]


@dataclass(frozen=True)
class Drawn(Result):
    """A round that was drawn, or several for as many looks: what to judge now.

    Attributes
    ----------
    name
        The round.
    to_judge
        Path of the file to fill in.
    n_draws, n_distinct, n_new
        Draws, distinct pairs among them, and those of them without a judgment yet.
    design, sampler, seed
        How it was made.
    later
        The rounds drawn together with it, for later looks; what an earlier one asks for already is
        not asked again.
    """

    name: str
    to_judge: Path
    n_draws: int
    n_distinct: int
    n_new: int
    design: str
    sampler: str
    seed: int
    notes: tuple[str, ...] = ()
    later: tuple[Drawn, ...] = ()

    def tables(self) -> list[Table]:
        """One row a round."""
        rounds = (self, *self.later)
        columns = {
            "round": [one.name for one in rounds],
            "draws": [one.n_draws for one in rounds],
            "distinct pairs": [one.n_distinct for one in rounds],
            "to judge": [one.n_new for one in rounds],
            "design": [one.design for one in rounds],
            "sampler": [one.sampler for one in rounds],
            "seed": [str(one.seed) for one in rounds],
        }
        then = "".join(f", then {one.name}" for one in self.later)
        return [Table.of(f"Pairs to judge are in {self.to_judge}{then}", columns)]

    def notes_shown(self) -> tuple[str, ...]:
        """What the user should know."""
        return self.notes

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        later = [one.to_dict() for one in self.later]
        return own | {"to_judge": str(self.to_judge), "later": later}


@dataclass(frozen=True)
class Taken(Result):
    """What became of the rows of a judgment file.

    Attributes
    ----------
    rows
        Rows with a grade.
    added, known, revised
        Rows stored now, stored before, and corrected now.
    not_drawn
        Rows of pairs that no round drew: left alone.
    blank, negative
        Rows without a grade, and rows left out because a negative grade counts as unjudged.
    missing
        Drawn pairs that still have no judgment, by round.
    """

    rows: int
    added: int
    known: int
    revised: int
    not_drawn: int
    blank: int
    negative: int
    missing: dict[str, int]
    notes: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        """Counts, then what is missing by round."""
        counts = {
            "rows": [self.rows],
            "added": [self.added],
            "known before": [self.known],
            "revised": [self.revised],
            "not drawn": [self.not_drawn],
            "no grade": [self.blank],
            "negative": [self.negative],
        }
        left = {"round": list(self.missing), "pairs to judge": list(self.missing.values())}
        return [Table.of("Judgments taken in", counts), Table.of("Still to judge", left)]

    def notes_shown(self) -> tuple[str, ...]:
        """What the user should know."""
        return self.notes

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)
