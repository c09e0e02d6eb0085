"""A complete study of a synthetic collection whose truth is known: draw, judge, estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.errors import EvenhandError, StudyError
from evenhand.estimands.evaluation import evaluate
from evenhand.estimation.estimates import Estimate
from evenhand.formats.qrels import read_qrels
from evenhand.formats.runs import read_runs
from evenhand.intervals.confidence import percent
from evenhand.reports.plots import figure, plot_draws, plot_estimate, save
from evenhand.results import Result, Table
from evenhand.simulation.collections import SYSTEMS, make_collection
from evenhand.study import Study

__all__ = ["Demo", "demo"]


@dataclass(frozen=True)
class Demo(Result):
    """What the study found beside the truth.

    Attributes
    ----------
    estimate
        Of the study.
    truth
        Value of each system from complete judgments; shape (systems,).
    n_pairs
        Pairs that complete judgments need.
    picture
        The PNG.
    """

    estimate: Estimate
    truth: np.ndarray
    n_pairs: int
    picture: Path

    def tables(self) -> list[Table]:
        """Contrasts beside the truth."""
        e = self.estimate
        inside = (e.contrast_low <= self.contrast_truth) & (self.contrast_truth <= e.contrast_high)
        columns = {
            "contrast": e.goal.names,
            "estimate": e.contrast,
            "low": e.contrast_low,
            "high": e.contrast_high,
            "truth": self.contrast_truth,
            "covered": ["yes" if ok else "no" for ok in inside],
        }
        pairs = f"{e.n_judged:,} of {self.n_pairs:,} pairs"
        title = f"{e.goal.target.measure} from {pairs}, {percent(e.level)} intervals"
        return [Table.of(title, columns, 3)]

    @property
    def contrast_truth(self) -> np.ndarray:
        """True contrasts; shape (contrasts,)."""
        return self.estimate.goal.matrix @ self.truth

    def notes_shown(self) -> tuple[str, ...]:
        """Where the picture is."""
        return (f"picture: {self.picture}", f"study: {self.picture.parent / 'study'}")

    def to_dict(self) -> dict[str, Any]:
        """The estimate with the truth beside it."""
        found = self.estimate.to_dict()
        for rows, truth in (
            (found["systems"], self.truth),
            (found["contrasts"], self.contrast_truth),
        ):
            for row, value in zip(rows, truth, strict=True):
                row["truth"] = float(value)
        return found | {"picture": str(self.picture)}


def demo(
    out: str | Path = "evenhand-demo",
    *,
    budget: int = 400,
    seed: int = 0,
    tell: Callable[[str], Any] = lambda step: None,
) -> Demo:
    """Make data, run a study on it, and hold the answer against the truth.

    Parameters
    ----------
    out
        Folder for runs, judgments, study and picture; must not exist.
    budget
        Pairs to judge.
    seed
        Of the data and the draw.
    tell
        Called with a sentence before each step.

    Raises
    ------
    StudyError
        If the folder exists.
    """
    out = Path(out)
    if out.exists():
        raise StudyError(f"{out} exists already", hint="choose another folder: --out FOLDER")
    try:
        out.mkdir(parents=True)
        tell(f"making runs of {len(SYSTEMS)} systems, and their judgments, in {out}")
        make_collection(out, seed=seed)
    except OSError as error:
        raise EvenhandError(f"cannot write into {out}: {error.strerror}") from error
    measure = "DCG@20"
    study = Study.create(
        out / "study", out / "runs", measure=measure, goal="rank", grades=(0, 1, 2)
    )
    tell(f"drawing {budget:,} of {len(study.pool):,} query-document pairs to judge")
    study.draw(budget, seed=seed)
    tell("judging them")
    study.judge(out / "qrels.txt")
    tell("estimating")
    found = study.estimate()
    complete = evaluate(read_runs(out / "runs"), read_qrels(out / "qrels.txt"), measure)
    by_name = dict(zip(complete.systems, complete.value[0], strict=True))
    truth = np.array([by_name[name] for name in study.pool.systems])
    _, (left, right) = figure(2)
    plot_estimate(found, truth=found.goal.matrix @ truth, ax=left)
    plot_draws(study.rounds()[0].sample, study.pool, ax=right)
    picture = save(left, out / "demo.png")
    return Demo(found, truth, len(study.pool), picture)
