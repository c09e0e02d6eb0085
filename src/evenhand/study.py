"""A study on disk: its systems, rounds and judgments, resumable at any point.

::

    study/
        study.json            measure, goal, depth, grades, plan: fixed when the study is made
        queries.txt           the queries of the study, one id a line
        systems-001.parquet   the runs, to the study's depth; later systems are added as 002, ...
        judgments.sqlite      what assessors said; append-only
        round-001/            see `evenhand.rounds`

Every step is one transaction: it happens wholly or not at all, so any command may be killed and run
again.

What keeps estimates exactly unbiased is recorded, not promised: a round notes which earlier rounds
had a judgment when it was drawn, and the weights of later rounds follow the plan of the study (or
a fixed rule), never what was seen.
"""

from __future__ import annotations

import importlib.metadata
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from evenhand import archive, diagnostics, targets
from evenhand import rounds as round_files
from evenhand.controls import control, cross_fit
from evenhand.designs import Design, design
from evenhand.errors import (
    EvenhandError,
    FormatError,
    MissingJudgments,
    StudyError,
    SupportError,
    listed,
)
from evenhand.estimates import Estimate
from evenhand.estimators import estimate
from evenhand.features import features, signal
from evenhand.focus import FOCUSED, deciding, focused
from evenhand.intervals import DEFAULT
from evenhand.ledger import Ledger
from evenhand.measures import Measure, parse
from evenhand.models import Model
from evenhand.plans import Plan, forecast, plan
from evenhand.pools import Pool, pool
from evenhand.prior import NumPyroPosterior, NumPyroPrior
from evenhand.receipts import Drawn, Taken
from evenhand.sampling import draw
from evenhand.stages import Control, Round, planned_weights, stages, unplanned
from evenhand.steering import learned_utility, steered
from evenhand.stopping import check_rule, level_at, stopped
from evenhand.store import JudgmentStore
from evenhand.trec import Qrels, Runs, read_qrels, read_queries, read_runs
from evenhand.utilities import Utility, rank_utility, utility_named

__all__ = ["ESTIMATORS", "Study"]

ESTIMATORS = ("auto", "importance", "difference", "cross-fitted")
_VERSIONS = ("evenhand", "jax", "numpy", "numpyro")


@dataclass(frozen=True)
class Study:
    """A study in a folder. Make one with `create`, open one with `open`."""

    folder: Path
    settings: archive.Settings

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
            Deepest rank to keep; the measure's cutoff by default.
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
        folder, measure = Path(folder), parse(measure)
        if folder.exists():
            raise StudyError(
                f"{folder} exists already",
                hint="choose another name, or go on with `evenhand draw`",
            )
        depth = measure.cutoff if depth is None else depth
        asked = None if queries is None else read_queries(queries)
        table = (
            runs[0]
            if len(runs) == 1 and isinstance(runs[0], Runs)
            else read_runs(*runs, order=order)
        )
        cells = pool(table, depth=depth, queries=asked)
        archive.check_storable(cells)
        target = targets.target(cells, measure)
        targets.goal(target, goal, system=baseline)
        settings = archive.Settings(
            format=archive.FORMAT,
            evenhand=importlib.metadata.version("evenhand"),
            created=_now(),
            measure=str(measure),
            goal=goal,
            baseline=baseline,
            pair=(target.systems[0], target.systems[1]) if goal == "pair" else None,
            depth=depth,
            n_queries=len(cells.queries),
            grades=None if grades is None else tuple(sorted({float(g) for g in grades})),
            plan=None if plan is None else tuple(int(n) for n in plan),
        )
        if settings.plan is not None and (not settings.plan or min(settings.plan) < 1):
            raise EvenhandError(
                f"a plan names at least one round of at least one draw, got {list(settings.plan)}"
            )
        with round_files.appearing(folder, f"{folder} exists already") as work:
            archive.write(work, settings, cells)
            JudgmentStore.create(work / "judgments.sqlite")
        study = cls(folder, settings)
        study.__dict__["pool"] = cells
        study.__dict__["_files"] = (folder / "systems-001.parquet",)
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
        return cls(folder, archive.read_settings(folder))

    @property
    def measure(self) -> Measure:
        """The measure of the study."""
        return parse(self.settings.measure)

    @cached_property
    def pool(self) -> Pool:
        """The pairs of all systems; those of the first come first, so that their numbers stay."""
        return archive.read_pool(self.folder, self.settings, self._files)

    @cached_property
    def _files(self) -> tuple[Path, ...]:
        return archive.system_files(self.folder)

    @cached_property
    def target(self) -> targets.Target:
        """Weights of every system."""
        return targets.target(self.pool, self.measure)

    @cached_property
    def goal(self) -> targets.Goal:
        """The contrasts of the study."""
        if self.settings.pair is not None:
            return targets.pair(self.target, *self.settings.pair)
        return targets.goal(self.target, self.settings.goal, system=self.settings.baseline)

    @property
    def store(self) -> JudgmentStore:
        """The judgments."""
        return JudgmentStore.open(self.folder / "judgments.sqlite")

    def rounds(self) -> list[Round]:
        """All rounds with what is judged of them so far."""
        return self._ledger().rounds()

    def _rounds(self) -> list[round_files.Stored]:
        return [
            round_files.load(self.folder, name, self.pool)
            for name in round_files.names(self.folder)
        ]

    def _ledger(self, files: Sequence[round_files.Stored] | None = None) -> Ledger:
        """What was judged, by round."""
        files = self._rounds() if files is None else files
        return Ledger.of(self.store.read(), self.pool, self.measure, files)

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
        archive.check_storable(cells)
        # Numbered after the files that names were compared with: of two processes that add at once,
        # one is told to run again.
        archive.add_systems(self.folder, self._files, cells)
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
        rejudge: bool = False,
        top_up: bool = False,
        seed: int | None = None,
    ) -> Drawn:
        """Design the next round and draw it.

        Parameters
        ----------
        budget
            Number of draws; of distinct pairs for the sampler ``distinct``.
        utility
            ``rank``, ``flat``, ``score``, a file of predicted grades (``qid docid value``), or a
            `Utility` of yours; ``learned`` fits a model to all judgments so far.
        kind, floor
            See `evenhand.designs.design`. For the goals ``best`` and ``order``, an ``optimal``
            round is for the pairs that the rounds judged so far leave undecided.
        sampler
            ``distinct``, ``slices`` or ``iid``.
        signals
            Tables of what else is known of pairs (``qid docid value``), such as an LLM judge's
            labels: whatever `read_qrels` takes, or ``{name: table}``. Models learn how far to trust
            them, in this round's estimate and later ones.
        model, method
            For ``learned``: a model of `evenhand.models` or your own, and how to fit it.
        rejudge
            Have all pairs of this round judged for it, by another assessor where they were judged
            before: right where assessors disagree. Without it a judgment is as good as the truth,
            and pairs that have one are not drawn again.
        top_up
            Draw only pairs that no earlier round could draw, since their systems joined later. What
            earlier rounds say of the others stays as it is. Which pairs these are follows from when
            systems arrived (`evenhand.stages.weights_by_cell`); whether to top up should, too. Such
            a round is none of the plan's.
        seed
            Of the draw; chosen at random and recorded by default.

        Returns
        -------
        Drawn

        Raises
        ------
        EvenhandError
            If an argument cannot be used; then nothing is written.
        """
        earlier = self._rounds()
        name = round_files.named(len(earlier) + 1)
        plan, joined = self.settings.plan, max((r.record.cells for r in earlier), default=0)
        if top_up and not 0 < joined < len(self.pool):
            raise StudyError(
                "there is nothing to top up: "
                + ("every pair could have been drawn before" if earlier else "no round was drawn"),
                hint="add a system first, or draw a round of all pairs (without --top-up)",
            )
        if top_up and sampler == "distinct" and budget > len(self.pool) - joined:
            raise StudyError(
                f"cannot top up by {budget:,} distinct pairs: {len(self.pool) - joined:,} joined "
                "since the last round",
                hint=f"--budget {len(self.pool) - joined} judges all of them",
            )
        ordinary = [r for r in earlier if not r.record.first]
        if plan is not None and not top_up and len(ordinary) >= len(plan):
            raise StudyError(
                f"the plan of {self.folder} names {len(plan)} rounds, and all are drawn",
                hint="a plan cannot be changed after the first judgment: start a new study",
            )
        given = self._read_signals(signals)
        ledger = self._ledger(earlier)
        first = joined if top_up else 0
        cells = np.arange(len(self.pool))
        known = np.flatnonzero(np.isfinite(ledger.utility()) & (cells >= first) & (not rejudge))
        left_out = np.isin(cells, known) | (cells < first) if len(known) or first else None
        seed = secrets.randbits(32) if seed is None else seed
        made, posterior, notes = self._design(
            ledger, left_out, utility, given, kind=kind, floor=floor, model=model, method=method
        )
        key = jax.random.fold_in(jax.random.key(seed), len(earlier) + 1)
        sample = draw(key, made, budget, sampler=sampler)
        # Read last: a judgment that came in meanwhile counts as seen, which is the safe side.
        ledger = self._ledger(earlier)
        judged = ledger.judged()
        record = round_files.Record(
            name=name,
            created=_now(),
            versions={p: importlib.metadata.version(p) for p in _VERSIONS},
            budget=budget,
            sampler=sampler,
            design=made.name,
            floor=floor,
            seed=seed,
            depends_on=tuple(r.record.name for r in earlier if judged[r.sample.draws].any()),
            cells=len(self.pool),
            pool=round_files.fingerprint(self.pool),
            gap=None if made.gap is None else made.gap.relative,
            folds=sample.n_folds,
            known=len(known),
            signals=tuple(given),
            systems=self.pool.systems,
            rejudge=rejudge,
            mark=ledger.mark,
            first=first,
        )
        waits = np.isnan(ledger.utility()) | rejudge
        todo = sample.cells[waits[sample.cells]]
        path = round_files.save(
            self.folder,
            round_files.Stored(record, sample, known, given),
            made.q,
            self.pool,
            todo,
            None if posterior is None else partial(diagnostics.save, posterior),
        )
        if made.gap is not None:
            notes.append(str(made.gap))
        if made.goal.kind != "absolute" and any(
            len(group) == len(self.pool.systems) for group in self.target.identical()
        ):
            notes.append(
                "all systems return the same rankings: every difference is exactly 0, and these "
                "judgments can only tell the systems' own values"
            )
        return Drawn(
            name=name,
            to_judge=path,
            n_draws=len(sample),
            n_distinct=len(sample.cells),
            n_new=len(todo),
            design=made.name,
            sampler=sampler,
            seed=seed,
            notes=tuple(notes),
        )

    def _design(
        self,
        ledger: Ledger,
        left_out: np.ndarray | None,
        utility: str | Path | Utility,
        signals: Mapping[str, np.ndarray],
        *,
        kind: str,
        floor: float,
        model: Model | None,
        method: str,
        thorough: bool = True,
    ) -> tuple[Design, NumPyroPosterior | None, list[str]]:
        """The design of the next round, what it learned from, and what the user should know."""
        notes: list[str] = []
        posterior = None
        if isinstance(utility, str) and utility == "learned":
            if len(ledger.labels):
                prior = self.prior(ledger.files, extra=signals, model=model, method=method)
                posterior = prior.fit([ledger.to_learn()])[0]
            else:
                notes.append("nothing is judged yet: this round is designed from ranks")
                utility = "rank"
        asked = self.goal
        if self.goal.kind in FOCUSED and kind == "optimal":
            # With a model where the round has one anyway: who leads is then known better.
            asked, told = self._focused("importance" if posterior is None else "auto", method)
            notes.append(told)
        if posterior is not None:
            made, poor = steered(
                asked,
                posterior,
                known=left_out,
                kind=kind,
                floor=floor,
                doubts=diagnostics.doubts(posterior) if thorough else (),
            )
            notes += poor
        else:
            if isinstance(utility, str | Path):
                utility = utility_named(utility, self.pool, self.measure)
            made = design(asked, utility, kind=kind, floor=floor, known=left_out)
        if asked is not self.goal:
            made = replace(made, name=f"{made.name}/{asked.kind}")
        return made, posterior, notes

    def plan(
        self,
        *,
        half_width: float | None = None,
        power: float | None = None,
        effect: float | None = None,
        winner: float | None = None,
        level: float = 0.95,
        question: str = "queries",
    ) -> Plan:
        """How many more judgments are needed, in one further round; see `evenhand.plans`.

        Parameters
        ----------
        half_width
            Wanted mean half-width of the contrasts' intervals, in the measure's unit.
        power, effect
            Wanted probability to tell two systems apart that differ by `effect`.
        winner
            Wanted probability that the leader so far is the best.
        level, question
            Of the intervals, as in `estimate`.

        Raises
        ------
        EvenhandError
            If not exactly one thing is wanted, or a number cannot be used.
        """
        files = self._rounds()
        ledger = self._ledger(files)
        rounds = [r for r in ledger.rounds() if not np.isnan(r.utility).any()]
        rejudged = any(r.rejudged for r in rounds)
        known = np.isfinite(ledger.utility()) & (not rejudged)
        found = self.estimate(level=level, question="queries") if rounds else None
        learn = found is not None and found.estimator != "importance"
        made, posterior, _ = self._design(
            ledger,
            known if known.any() else None,
            "learned" if learn else "rank",
            {},
            kind="optimal",
            floor=0.1,
            model=None,
            method="laplace",
            thorough=False,
        )
        if posterior is not None:
            second = learned_utility(posterior, len(self.pool)).second_moment
        else:
            top = self.measure.top_utility
            if self.settings.grades is not None:
                top = float(self.measure.utility(np.asarray(self.settings.grades)).max())
            second = rank_utility(self.pool).second_moment * (top or 1.0) ** 2
        n_stages = len(stages(rounds))
        planned = self.settings.plan
        sizes = list(self._planned(rounds) or []) if planned is not None and rounds else []
        if planned is not None and len(planned) > len(files):
            sizes = [*sizes, planned[len(files)]]
        else:
            sizes = unplanned(n_stages + 1).tolist()
        told = forecast(
            replace(made, goal=self.goal),  # whatever pairs it is focused on
            second,
            estimate=found,
            rounds=rounds,
            weights=planned_weights(np.asarray(sizes)),
            population=question == "population",
        )
        return plan(
            told, half_width=half_width, power=power, effect=effect, winner=winner, level=level
        )

    def _focused(self, estimator: str, method: str) -> tuple[targets.Goal, str]:
        """The contrasts that the next round is designed for, and a sentence that says which."""
        try:
            found = self.estimate(estimator=estimator, method=method)
        except MissingJudgments:
            return self.goal, "no round is wholly judged yet: this round is for all pairs alike"
        made = focused(self.goal, found)
        shares = ", ".join(f"{name} ({share:.0%})" for name, share in deciding(made))
        return made, f"designed for the pairs that still decide '{made.kind}', above all {shares}"

    def _read_signals(self, signals: Sequence[Any] | Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Each signal as a column over the pool."""
        if isinstance(signals, Mapping):
            tables = dict(signals)
        else:
            names = [
                Path(s).name.removesuffix(".gz") if isinstance(s, str | Path) else f"signal {i}"
                for i, s in enumerate(signals, 1)
            ]
            if len(set(names)) < len(names):
                raise EvenhandError("two signals have the same name", hint="rename a file")
            tables = dict(zip(names, signals, strict=True))
        return {
            name: signal(self.pool, table if isinstance(table, Qrels) else read_qrels(table))
            for name, table in tables.items()
        }

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
        signals: dict[str, np.ndarray] = {}
        for stored in self._rounds() if rounds is None else rounds:
            signals |= stored.signals
        table = features(self.pool, signals | dict(extra or {}), systems=systems)
        levels = None
        if self.settings.grades is not None:
            levels = np.unique(self.measure.utility(np.asarray(self.settings.grades)))
        return NumPyroPrior(table, model=model, levels=levels, method=method)

    def judge(self, *sources: Any, negative: str = "unjudged", revise: bool = False) -> Taken:
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
        cells = self.pool.cells_of(table)
        wanted = np.zeros(len(self.pool) + 1, bool)
        wanted[np.concatenate([r.sample.draws for r in drawn])] = True
        rows = np.flatnonzero(wanted[cells])
        if not len(rows) and len(table):
            raise StudyError(
                f"none of the {len(table):,} judgments of {table.source} is of a pair that this "
                "study drew",
                hint="are they for another study?",
            )
        self._check_grades(table, rows)
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
            for f, cells in zip(drawn, self._ledger(drawn).missing(), strict=True)
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

    def _check_grades(self, table: Qrels, rows: np.ndarray) -> None:
        """Refuse grades that the scale lacks, or of which the measure cannot make a utility."""
        grade = table.grade[rows]
        allowed = self.settings.grades
        if allowed is None:
            self.measure.utility(grade)
            return
        bad = rows[~np.isin(grade, allowed)]
        if len(bad):
            faults = []
            for row in bad[:3]:
                # A line tells the place only where there is one source, and it has lines.
                line = int(table.line[row]) if ", " not in table.source else 0
                pair = (table.queries[table.query[row]], table.documents[table.document[row]])
                faults.append(
                    f"{table.source}{f':{line}' if line else ''}: grade {table.grade[row]:g} of "
                    f"{pair[0].as_py()} {pair[1].as_py()} is not on the study's scale"
                )
            scale = ", ".join(f"{g:g}" for g in allowed)
            raise FormatError.collect(
                faults, hint=f"its grades are {scale}; nothing was stored", total=len(bad)
            )
        self.measure.utility(grade)

    def estimate(
        self,
        *,
        level: float = 0.95,
        question: str = "queries",
        interval: str = DEFAULT,
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
        level
            Confidence level.
        question
            ``queries``: intervals for this set of queries; ``population``: for queries like these.
        interval
            One of `evenhand.intervals.INTERVALS`.
        stop_when
            A rule of `evenhand.stopping`: the intervals are then those of a look that may be the
            last or not, and the answer says whether to stop.
        bounds
            Give bounds for systems that the rounds do not cover.
        combine
            See `evenhand.estimators.estimate`.
        estimator
            ``importance``, ``difference`` or ``cross-fitted`` (see `evenhand.estimators`); ``auto``
            takes the last where a round was drawn by fold, else the first.
        model, method
            What learns the control variate, and how it is fitted.

        Raises
        ------
        MissingJudgments
            If no round is wholly judged.
        """
        if estimator not in ESTIMATORS:
            raise EvenhandError(
                f"unknown estimator {estimator!r}", hint=f"known are {', '.join(ESTIMATORS)}"
            )
        if question not in ("queries", "population"):
            raise EvenhandError(f"unknown question {question!r}", hint="'queries' or 'population'")
        files = self._rounds()
        rounds = self._ledger(files).rounds()
        judged = [not np.isnan(r.utility).any() for r in rounds]
        whole = [r for r, done in zip(rounds, judged, strict=True) if done]
        files = [f for f, done in zip(files, judged, strict=True) if done]
        waiting = []
        for one in rounds:
            missing = np.unique(one.sample.draws[np.isnan(one.utility)])
            if len(missing):
                waiting.append(
                    f"{one.name}: {len(missing):,} of {len(one.sample.cells):,} pairs "
                    "are not judged yet"
                )
        if not whole:
            todo = self.folder / (rounds[0].name if rounds else "") / "to_judge.tsv"
            raise MissingJudgments(
                "\n".join(waiting) or "nothing has been drawn yet",
                hint=f"evenhand judge {self.folder} {todo}"
                if waiting
                else f"evenhand draw {self.folder} --budget N",
            )
        top = None
        if self.settings.grades is not None:
            top = float(self.measure.utility(np.asarray(self.settings.grades)).max())
        if stop_when is not None:
            check_rule(stop_when)
            level = level_at(level, len(whole))
        found = estimate(
            self.goal,
            whole,
            level=level,
            interval=interval,
            planned=self._planned(whole),
            combine=combine,
            controls=self._controls(whole, files, combine, estimator, model, method),
            bounds=bounds,
            top_utility=top,
        )
        if question == "population":
            found = found.for_population()
        if stop_when is not None:
            found = stopped(found, stop_when)
        notes = [f"left out, {text}" for text in waiting]
        return replace(found, notes=(*found.notes, *notes, *self.notes()))

    def _controls(
        self,
        rounds: Sequence[Round],
        files: Sequence[round_files.Stored],
        combine: str,
        estimator: str,
        model: Model | None,
        method: str,
    ) -> list[Control | None] | None:
        """The control variate of each stage, from the signals and systems that there were by then.

        What came later may have been made with the judgments that are to be corrected.
        """
        by_fold = any(r.sample.fold is not None for r in rounds)
        if estimator == "importance" or (estimator == "auto" and not by_fold):
            return None
        if estimator == "cross-fitted" and not by_fold:
            raise SupportError(
                "no round was drawn by fold, so that nothing can be cross-fitted",
                hint="rounds of at least 40 pairs are drawn by fold",
            )
        found: list[Control | None] = []
        for stage in stages(rounds, combine):
            systems = files[stage[-1]].record.systems or None
            prior = self.prior(files[: stage[-1] + 1], systems=systems, model=model, method=method)
            if estimator == "difference":
                late = rounds[stage[0]].depends_on
                found.append(control(prior, rounds, stage[0]) if late else None)
            else:
                found.append(cross_fit(prior, self.goal, rounds, stage))
        return found

    def notes(self) -> list[str]:
        """A sentence for each group of identical systems, and for queries left unanswered."""
        identical = [
            f"{', '.join(names[:-1])} and {names[-1]} return the same rankings: "
            "they differ by exactly 0, whatever is judged"
            for group in self.target.identical()
            if (names := [self.target.systems[j] for j in group])
        ]
        unanswered = [
            f"{system} leaves {len(missed)} {'query' if len(missed) == 1 else 'queries'} "
            f"unanswered and earns 0 there: {listed(missed)}"
            for system, missed in self.pool.unanswered().items()
        ]
        return identical + unanswered

    def _planned(self, rounds: Sequence[Round]) -> list[int] | None:
        """Planned draws of each stage: rounds drawn before the first judgment are one stage.

        A round that tops up counts with its own size, fixed like its design before it was judged;
        it has no weight where an earlier round has any.
        """
        if self.settings.plan is None:
            return None
        files = self._rounds()
        ordinary = [f.record.name for f in files if not f.record.first]
        planned = dict(zip(ordinary, self.settings.plan, strict=False))
        planned |= {f.record.name: f.record.budget for f in files if f.record.first}
        if any(r.name not in planned for r in rounds):
            raise StudyError(
                f"the plan of {self.folder} names {len(self.settings.plan)} rounds, and more were "
                "drawn",
                hint="a plan cannot be changed after the first judgment: start a new study",
            )
        together = [planned[r.name] for r in rounds if not r.depends_on]
        later = [planned[r.name] for r in rounds if r.depends_on]
        return [sum(together), *later] if together else later


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
