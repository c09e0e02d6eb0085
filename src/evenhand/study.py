"""A study on disk: its systems, rounds and judgments, resumable at any point.

::

    study/
        study.json            measure, goal, depth, grades, plan: fixed when the study is made
        queries.txt           the queries of the study, one id a line
        systems-001.parquet   the runs, to the study's depth; later systems are added as 002, ...
        judgments.sqlite      all judgments; append-only
        round-001/            see `evenhand.studies.round_files`
        serving.sqlite, .key  what assessors skipped and noted on a page, and the secret of their
                              links (`evenhand.serving`)

Every step is one transaction: it happens wholly or not at all, so any command may be killed and run
again.

What keeps estimates exactly unbiased is recorded, not promised: a round notes which earlier rounds
had a judgment when it was drawn, and the weights of later rounds follow the plan of the study (or
a fixed rule), never what was seen.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from evenhand.designs.utilities import Utility
from evenhand.errors import EvenhandError, StudyError
from evenhand.estimands import goals, targets
from evenhand.estimands.pools import Pool, pool
from evenhand.formats.qrels import Qrels, read_qrels
from evenhand.formats.queries import read_queries
from evenhand.formats.runs import Runs, read_runs
from evenhand.intervals.confidence import INTERVAL
from evenhand.measures.base import Linear, Measure, least_depth
from evenhand.measures.grammar import sampled
from evenhand.sampling.rounds import Round
from evenhand.studies import round_files, study_files
from evenhand.studies.exports import Export, export
from evenhand.studies.judgments import JudgmentStore
from evenhand.studies.ledger import Ledger
from evenhand.studies.options import DrawOptions, EstimateOptions
from evenhand.studies.receipts import Drawn, Taken
from evenhand.studies.snapshots import Snapshot
from evenhand.studies.tasks import KINDS as TASKS
from evenhand.studies.tasks import named_queries, tasks

# NumPyro takes half a second to import, which a command that fits nothing need not wait for: what
# needs it is imported where it is used.
if TYPE_CHECKING:
    from evenhand.decisions.planning import Plan
    from evenhand.decisions.posterior import Beliefs
    from evenhand.estimation.estimates import Estimate
    from evenhand.priors.models import Model
    from evenhand.priors.prior import NumPyroPrior

__all__ = ["Study"]


@dataclass(frozen=True)
class Study:
    """A study in a folder. Make one with `create`, open one with `open`."""

    folder: Path
    settings: study_files.Settings

    @classmethod
    def create(
        cls,
        folder: str | Path,
        *runs: Any,
        measure: str | Measure,
        goal: str = "rank",
        baseline: str | None = None,
        depth: int | None = None,
        queries: Any = None,
        grades: Sequence[float] | None = None,
        plan: Sequence[int] | None = None,
        order: str = "score",
    ) -> Study:
        """Start a study.

        Parameters
        ----------
        folder
            Where it shall be; must not exist.
        *runs
            Whatever `read_runs` takes.
        measure, goal, baseline
            What to estimate, of what, against what.
        depth
            Deepest rank to keep. By default the measure's cutoff; of a ratio, which is divided by
            what the whole pool holds, at least 100 ranks.
        queries
            The queries of the study: whatever `read_queries` takes. By default those that any run
            answers.
        grades
            Grades that a judgment may have; by default any.
        plan
            Planned draws of each round. Weights of rounds follow it, so it cannot be changed later.
        order
            ``"score"`` or ``"rank"``: what orders a run.

        Returns
        -------
        Study

        Raises
        ------
        EvenhandError
            If runs, measure, goal or an option cannot be used; then nothing is written.
        StudyError
            If the folder exists or cannot be written.
        """
        folder, measure = Path(folder), sampled(measure)
        if folder.exists():
            raise StudyError(
                f"{folder} exists already",
                hint="choose another name, or go on with `evenhand draw`",
            )
        if depth is None and measure.cutoff is not None:
            depth = max(measure.cutoff, least_depth(measure))
        asked = None if queries is None else read_queries(queries)
        # Runs get no name here: their memory is free once pairs are numbered.
        cells = pool(_read(runs, order), depth=depth, queries=asked)
        study_files.check_storable(cells)
        goals.goal(targets.target(cells, measure), goal, system=baseline)
        settings = study_files.Settings(
            format=study_files.FORMAT,
            evenhand=importlib.metadata.version("evenhand"),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            measure=str(measure),
            goal=goal,
            baseline=baseline,
            pair=(cells.systems[0], cells.systems[1]) if goal == "pair" else None,
            depth=depth,
            n_queries=len(cells.queries),
            grades=None if grades is None else tuple(sorted({float(g) for g in grades})),
            plan=None if plan is None else tuple(int(n) for n in plan),
        )
        settings.check_plan()
        with round_files.appearing(folder, f"{folder} exists already") as work:
            study_files.write(work, settings, cells)
            JudgmentStore.create(work / "judgments.sqlite")
        study = cls(folder, settings)
        study.__dict__.update(pool=cells, _files=(folder / "systems-001.parquet",))
        return study

    @classmethod
    def open(cls, folder: str | Path) -> Study:
        """Open a study.

        Raises
        ------
        StudyError
            If the folder is no study, is only half there, or is of a later version.
        """
        folder = Path(folder)
        return cls(folder, study_files.read_settings(folder))

    @property
    def measure(self) -> Linear:
        """The measure of the study."""
        return sampled(self.settings.measure)

    @cached_property
    def pool(self) -> Pool:
        """The pairs of all systems; those of the first come first, so that their numbers stay."""
        return study_files.read_pool(self.folder, self.settings, self._files)

    @cached_property
    def _files(self) -> tuple[Path, ...]:
        return study_files.system_files(self.folder)

    @cached_property
    def target(self) -> targets.Target:
        """Weights of every system."""
        return targets.target(self.pool, self.measure)

    @cached_property
    def goal(self) -> goals.Goal:
        """The contrasts of the study."""
        if self.settings.pair is not None:
            return goals.pair(self.target, *self.settings.pair)
        return goals.goal(self.target, self.settings.goal, system=self.settings.baseline)

    @property
    def store(self) -> JudgmentStore:
        """The judgments."""
        return JudgmentStore.open(self.folder / "judgments.sqlite")

    def rounds(self) -> list[Round]:
        """All rounds with what is judged of them so far."""
        return self._snapshot().ledger.rounds()

    def _rounds(self) -> list[round_files.Stored]:
        return [
            round_files.load(self.folder, name, self.pool)
            for name in round_files.names(self.folder)
        ]

    def _snapshot(self, files: Sequence[round_files.Stored] | None = None) -> Snapshot:
        """The study as it is now."""
        files = self._rounds() if files is None else files
        ledger = Ledger.of(self.store.read(), self.pool, self.measure, files)
        return Snapshot(self.folder, self.settings, self.goal, ledger)

    def add(self, *runs: Any, order: str = "score") -> tuple[str, ...]:
        """Take in systems that arrive later; gives their names.

        Pairs that only they return get new numbers behind the old ones; rounds drawn before could
        not draw these, so the new systems are estimated once a further round covers them: any, or
        one that tops up and draws nothing else.

        Raises
        ------
        EvenhandError
            If a name is taken, or no query of the study is answered.
        """
        table = read_runs(*runs, order=order)
        taken = sorted(set(table.systems) & set(self.pool.systems))
        if taken:
            raise EvenhandError(
                f"the study has a system named {', '.join(taken)} already",
                hint="rename the new run's tag",
            )
        cells = pool(table, depth=self.settings.depth, queries=self.pool.queries.to_pylist())
        study_files.check_storable(cells)
        # Numbered after the files that names were compared with: of two processes that add at once,
        # one has to run again.
        study_files.add_systems(self.folder, self._files, cells)
        for known in ("_files", "pool", "target", "goal"):
            self.__dict__.pop(known, None)
        return table.systems

    def draw(
        self,
        budget: int,
        *,
        utility: str | Path | Utility = "rank",
        kind: str = "optimal",
        floor: float = 0.1,
        sampler: str = "distinct",
        signals: Sequence[Any] | Mapping[str, Any] = (),
        model: Model | None = None,
        method: str = "laplace",
        looks: int = 1,
        rejudge: bool = False,
        top_up: bool = False,
        seed: int | None = None,
    ) -> Drawn:
        """Design the next round and draw it.

        Parameters
        ----------
        budget
            Number of draws; of distinct pairs for the sampler ``distinct``.
        utility, kind, floor, sampler, signals, model, method, looks, rejudge, top_up, seed
            See `evenhand.studies.options.DrawOptions`.

        Returns
        -------
        Drawn

        Raises
        ------
        EvenhandError
            If an argument cannot be used; then nothing is written.
        """
        from evenhand.studies.drawing import draw_rounds

        options = DrawOptions(
            utility=utility,
            kind=kind,
            floor=floor,
            sampler=sampler,
            signals=signals,
            model=model,
            method=method,
            looks=looks,
            rejudge=rejudge,
            top_up=top_up,
            seed=seed,
        )
        earlier = self._rounds()
        return draw_rounds(
            self._snapshot(earlier), lambda: self._snapshot(earlier), budget, options
        )

    def plan(
        self,
        *,
        half_width: float | None = None,
        power: float | None = None,
        effect: float | None = None,
        winner: float | None = None,
        level: float = 0.95,
        question: str = "queries",
        query_cost: float = 0.0,
        judgment_cost: float = 1.0,
    ) -> Plan:
        """How many more judgments are needed, in one further round; see `decisions.planning`.

        Parameters
        ----------
        half_width
            Wanted mean half-width of the contrasts' intervals, in the measure's unit.
        power, effect
            Wanted probability of finding a difference of `effect`.
        winner
            Wanted probability that the leader so far is the best.
        level, question
            Of the intervals, as in `estimate`.
        query_cost, judgment_cost
            What a query costs before its first judgment, and what each judgment costs.

        Raises
        ------
        EvenhandError
            If not exactly one thing is wanted, or a number cannot be used.
        """
        from evenhand.decisions.planning import plan
        from evenhand.studies.estimating import answer
        from evenhand.studies.proposing import foresee

        at = self._snapshot()
        if question == "population" and len(at.goal.target.pool.queries) < 2:
            raise EvenhandError(
                "one query says nothing of other queries", hint="ask for this set of queries"
            )
        found = answer(at, EstimateOptions(level=level)) if at.whole()[0] else None
        return plan(
            foresee(at, found, population=question == "population"),
            half_width=half_width,
            power=power,
            effect=effect,
            winner=winner,
            level=level,
            query_cost=query_cost,
            judgment_cost=judgment_cost,
        )

    def prior(
        self,
        rounds: Sequence[round_files.Stored] | None = None,
        *,
        extra: Mapping[str, np.ndarray] | None = None,
        systems: Collection[str] | None = None,
        model: Model | None = None,
        method: str = "laplace",
    ) -> NumPyroPrior:
        """The model that learns from this study's judgments.

        Parameters
        ----------
        rounds
            Rounds whose signals it may use; all by default.
        extra
            Further signals.
        systems
            Those of which features are made; all by default.
        model, method
            A model of your own, and how it is fitted.
        """
        return self._snapshot().prior(
            rounds, extra=extra, systems=systems, model=model, method=method
        )

    def judge(
        self,
        *sources: Any,
        negative: str = "unjudged",
        revise: bool = False,
        queries: str | Path | None = None,
    ) -> Taken:
        """Take in judgments: whatever `read_qrels` takes. All rows are stored, or none.

        Safe to repeat. Only pairs that a round drew are taken. Rows without a grade are waited for.

        Parameters
        ----------
        *sources
            Files or tables, or one `Qrels` that was read already.
        negative
            ``unjudged`` leaves negative grades out, ``zero`` takes them as 0, ``keep`` as they are
            (of a `Qrels` that was decided when it was read).
        revise
            Let an assessor's new grade supersede his old one; without it that is an error.
        queries
            Texts of the queries, where judgments name a query by its text
            (`evenhand.studies.tasks`).

        Raises
        ------
        FormatError
            If a file cannot be read, or a grade is not on the study's scale.
        StudyError
            If nothing was drawn yet, no row is of a drawn pair, or an assessor contradicts himself.
        """
        drawn = self._rounds()
        if not drawn:
            raise StudyError(
                "nothing has been drawn yet", hint=f"evenhand draw {self.folder} --budget N"
            )
        table = (
            sources[0]
            if len(sources) == 1 and isinstance(sources[0], Qrels)
            else read_qrels(*sources, negative=negative)
        )
        if queries is not None:
            ids = named_queries(queries, self.pool.queries.to_pylist())
            told = [ids.get(" ".join(text.split()), text) for text in table.queries.to_pylist()]
            table = replace(table, queries=pa.array(told, pa.string()))
        rows = self._rows_wanted(table, drawn)
        intake = self.store.add(
            table.queries.take(pa.array(table.query[rows])).to_pylist(),
            table.documents.take(pa.array(table.document[rows])).to_pylist(),
            table.grade[rows],
            [table.assessors[code] for code in table.assessor[rows]],
            source=table.source,
            revise=revise,
        )
        waits = {
            f.record.name: len(cells)
            for f, cells in zip(drawn, self._snapshot(drawn).ledger.missing(), strict=True)
        }
        notes = list(table.notes)
        if intake.known and any(f.record.rejudge and waits[f.record.name] for f in drawn):
            notes.append(
                "a round that is to be judged again waits for judgments by assessors who have not "
                "judged the pair before: name them in the column `assessor`"
            )
        return Taken(
            rows=len(table),
            added=intake.added,
            known=intake.known,
            revised=intake.revised,
            not_drawn=len(table) - len(rows),
            blank=table.blank,
            negative=table.unjudged,
            missing=waits,
            notes=tuple(notes),
        )

    def _rows_wanted(self, table: Qrels, drawn: Sequence[round_files.Stored]) -> np.ndarray:
        """Which judgments are of pairs that a round drew; refuses grades that cannot be."""
        wanted = np.zeros(len(self.pool) + 1, bool)
        wanted[np.concatenate([r.sample.draws for r in drawn])] = True
        rows = np.flatnonzero(wanted[self.pool.cells_of(table)])
        if not len(rows) and len(table):
            raise StudyError(
                f"none of the {len(table):,} judgments of {table.source} is of a pair that this "
                "study drew",
                hint="are they for another study?",
            )
        if self.settings.grades is not None:
            table.check_grades(self.settings.grades, rows)
        self.measure.utility(table.grade[rows])  # refuses what it can make no utility of
        return rows

    def estimate(
        self,
        *,
        level: float = 0.95,
        question: str = "queries",
        interval: str = INTERVAL,
        stop_when: str | None = None,
        bounds: bool = False,
        combine: str = "planned",
        estimator: str = "auto",
        model: Model | None = None,
        method: str = "laplace",
    ) -> Estimate:
        """Estimate systems and contrasts from all rounds that are wholly judged.

        Parameters
        ----------
        level, question, interval, stop_when, bounds, combine, estimator, model, method
            See `evenhand.studies.options.EstimateOptions`.

        Raises
        ------
        MissingJudgments
            If no round is wholly judged.
        """
        from evenhand.studies.estimating import answer

        options = EstimateOptions(
            level=level,
            question=question,
            interval=interval,
            stop_when=stop_when,
            bounds=bounds,
            combine=combine,
            estimator=estimator,
            model=model,
            method=method,
        )
        return answer(self._snapshot(), options)

    def beliefs(
        self, *, model: Model | None = None, method: str = "laplace", seed: int = 0
    ) -> Beliefs:
        """What a model that learns from all judgments believes of the systems' values.

        Draws of its posterior, for `evenhand.decisions.ranks.ranking` to show beside estimates, or
        for ArviZ. No estimate: it is as right as the model (`evenhand.decisions.posterior`).

        Parameters
        ----------
        model, method
            What learns, and how it is fitted.
        seed
            Of the draws.
        """
        from evenhand.decisions.posterior import believed

        at = self._snapshot()
        return believed(
            at.goal.target,
            at.ledger.utility(),
            at.prior(model=model, method=method),
            at.ledger.to_learn(),
            said=at.ledger.labels.utility,
            seed=seed,
        )

    def export(
        self,
        kind: str = "qrels",
        *,
        docs: str | Path | None = None,
        queries: str | Path | None = None,
    ) -> Export:
        """The judgments as a file of TREC's, or the pairs to judge as tasks of other tools.

        See `evenhand.studies.exports` and `evenhand.studies.tasks`.

        Parameters
        ----------
        kind
            ``qrels``, ``prels`` (with inclusion probabilities) or ``sampled`` (with strata); or
            ``csv``, ``label-studio`` or ``argilla``.
        docs, queries
            For the latter: files of texts, by id.

        Raises
        ------
        StudyError
            If nothing is judged, or no pair waits for a judgment.
        SupportError, MissingJudgments
            For ``prels`` and ``sampled``: if the probabilities of the draws are unknown, or a drawn
            pair is not judged yet.
        """
        if kind in TASKS:
            return tasks(self._snapshot(), kind, docs=docs, queries=queries)
        return export(self._snapshot(), self.store.read(), kind)

    def report(
        self,
        output: str | Path | None = None,
        *,
        figures: str | Path | None = None,
        title: str | None = None,
        level: float = 0.95,
        question: str = "queries",
    ) -> Path:
        """Write all that the study says into one HTML file; see `evenhand.reports`.

        The file needs no other and no network. It can be made at any time, also of a study of which
        nothing is judged yet; one that is there already is replaced, whole or not at all.

        Parameters
        ----------
        output
            The file; ``report.html`` in the study's folder by default.
        figures
            A folder for the pictures as files, too (SVG, PNG and PDF); made if it is not there.
        title
            Of the page; the name of the study's folder by default.
        level, question
            Of the intervals, as in `estimate`.

        Returns
        -------
        pathlib.Path
            Of the file.

        Raises
        ------
        StudyError
            If the file or the folder cannot be written.
        EvenhandError
            If the level is none, or the measure has no intervals for the question.
        """
        # Drawing takes long to import, and nothing else of a study needs it.
        from evenhand.reports import gather, html, report_figures

        path = self.folder / "report.html" if output is None else Path(output)
        html.check_place(path)
        told = gather.gather(
            self._snapshot(), self.store.read(), title=title, level=level, question=question
        )
        pictures = report_figures.pictures_of(told)
        page = html.render(told, pictures)
        if figures is not None:
            html.save_pictures(pictures, Path(figures))
        return html.write(page, path)

    def notes(self) -> list[str]:
        """A sentence for each group of identical systems, and for queries left unanswered."""
        return self._snapshot().notes()


def _read(runs: Sequence[Any], order: str) -> Runs:
    """One table of runs, read or given."""
    if len(runs) == 1 and isinstance(runs[0], Runs):
        return runs[0]
    return read_runs(*runs, order=order)
