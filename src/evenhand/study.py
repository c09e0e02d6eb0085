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
count all alike), never what was seen.
"""

from __future__ import annotations

import importlib.metadata
import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenhand import rounds as round_files
from evenhand import targets
from evenhand.designs import design
from evenhand.errors import EvenhandError, FormatError, MissingJudgments, StudyError
from evenhand.estimates import Estimate
from evenhand.estimators import Round, estimate
from evenhand.judgments import JudgmentStore
from evenhand.measures import Measure, parse
from evenhand.pools import Pool, pool
from evenhand.sampling import Sample, draw
from evenhand.tables import Result, Table
from evenhand.trec import Qrels, Runs, read_qrels, read_queries, read_runs
from evenhand.utilities import Utility, mean_utility, utility_named

__all__ = ["Drawn", "Settings", "Study", "Taken"]

_FORMAT = 1
_RESTORE = "restore the file from a copy of the study"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is fixed when a study is made; the content of ``study.json``.

    Attributes
    ----------
    measure
        Canonical spelling.
    goal
        ``absolute``, ``pair``, ``baseline`` or ``rank``.
    baseline
        The baseline system, or None.
    pair
        The two systems of the goal ``pair``, or None.
    depth
        Ranks beyond it are not kept; None keeps all.
    n_queries
        Number of queries, whether answered or not.
    grades
        Grades that a judgment may have; None allows any.
    plan
        Planned draws of each round, fixed before the first judgment; None counts rounds alike.
    """

    format: int
    evenhand: str
    created: str
    measure: str
    goal: str
    baseline: str | None
    pair: tuple[str, str] | None
    depth: int | None
    n_queries: int
    grades: tuple[float, ...] | None
    plan: tuple[int, ...] | None


@dataclass(frozen=True)
class Drawn(Result):
    """A round that was drawn: what to judge now.

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

    def tables(self) -> list[Table]:
        """One row."""
        row = {
            "round": [self.name],
            "draws": [self.n_draws],
            "distinct pairs": [self.n_distinct],
            "to judge": [self.n_new],
            "design": [self.design],
            "sampler": [self.sampler],
            "seed": [str(self.seed)],
        }
        return [Table.of(f"Pairs to judge are in {self.to_judge}", row)]

    def notes_shown(self) -> tuple[str, ...]:
        """What the user should know."""
        return self.notes

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return {**asdict(self), "to_judge": str(self.to_judge)}


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


@dataclass(frozen=True)
class Study:
    """A study in a folder. Make one with `create`, open one with `open`."""

    folder: Path
    settings: Settings

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
        _check_pool(cells)
        target = targets.target(cells, measure)
        targets.goal(target, goal, system=baseline)
        settings = Settings(
            format=_FORMAT,
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
            (work / "study.json").write_text(
                json.dumps(asdict(settings), indent=2) + "\n", encoding="utf-8"
            )
            (work / "queries.txt").write_text(
                "\n".join(cells.queries.to_pylist()) + "\n", encoding="utf-8"
            )
            pq.write_table(_columns(cells, range(len(cells.systems))), work / "systems-001.parquet")
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
        if not folder.is_dir():
            raise StudyError(f"there is no study at {folder}", hint="start one with `evenhand new`")
        wanted = ("study.json", "queries.txt", "systems-001.parquet", "judgments.sqlite")
        lacking = [name for name in wanted if not (folder / name).is_file()]
        if lacking:
            raise StudyError(
                f"{folder} is not a whole study: it lacks {', '.join(lacking)}",
                hint="is it the right folder? A study can be restored only from a copy",
            )
        try:
            content = json.loads((folder / "study.json").read_text(encoding="utf-8"))
            later = int(content["format"]) > _FORMAT
            known = {field.name for field in fields(Settings)}
            values: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in content.items() if k in known
            }
            settings = None if later else Settings(**values)
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise StudyError(
                f"{folder / 'study.json'} is damaged: {error}", hint=_RESTORE
            ) from error
        if settings is None:
            raise StudyError(
                f"{folder} was made by evenhand {content.get('evenhand', '?')}, "
                "in a later format than this version reads",
                hint="upgrade evenhand",
            )
        return cls(folder, settings)

    @property
    def measure(self) -> Measure:
        """The measure of the study."""
        return parse(self.settings.measure)

    @cached_property
    def pool(self) -> Pool:
        """The pairs of all systems; those of the first come first, so that their numbers stay."""
        cells = None
        try:
            queries = (self.folder / "queries.txt").read_text(encoding="utf-8").split("\n")[:-1]
            if len(queries) != self.settings.n_queries:
                raise ValueError(
                    f"{len(queries)} queries instead of {self.settings.n_queries} in queries.txt"
                )
            tables = [pq.read_table(path) for path in self._files]
            for last in range(1, len(tables) + 1):
                runs = read_runs(*tables[:last], order="rank")
                cells = pool(runs, depth=self.settings.depth, queries=queries, after=cells)
        except (OSError, ValueError) as error:
            said = error.message if isinstance(error, EvenhandError) else error
            raise StudyError(
                f"queries.txt or a systems-*.parquet of {self.folder} is damaged: {said}",
                hint=_RESTORE,
            ) from error
        assert cells is not None
        return cells

    @cached_property
    def _files(self) -> tuple[Path, ...]:
        """Files of the systems, in the order of their arrival."""
        return tuple(sorted(self.folder.glob("systems-*.parquet")))

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
        utility = self._utility_by_cell()
        return [
            Round(sample, utility[sample.draws], record.depends_on, record.name, record.cells)
            for record, sample in self._rounds()
        ]

    def _rounds(self) -> list[tuple[round_files.Record, Sample]]:
        return [
            round_files.load(self.folder, name, self.pool)
            for name in round_files.names(self.folder)
        ]

    def _utility_by_cell(self) -> np.ndarray:
        said = self.store.read()
        cells = self.pool.find(said.query.tolist(), said.document.tolist())
        judged, utility = mean_utility(cells, said.grade, self.measure)
        by_cell = np.full(len(self.pool), np.nan)
        by_cell[judged] = utility
        return by_cell

    def add(self, *runs: Any, order: str = "score") -> tuple[str, ...]:
        """Take in systems that arrive later; gives their names.

        Pairs that only they return get new numbers behind the old ones; rounds drawn before could
        not draw these, so the new systems are estimated once a further round covers them.

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
        _check_pool(cells)
        # The next number after the files that names were compared with: of two processes that add
        # at once, one is told to run again.
        round_files.write_whole(
            self.folder / f"systems-{len(self._files) + 1:03}.parquet",
            _columns(cells, range(len(cells.systems))),
            "another process has added systems meanwhile; run the command again",
        )
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
        seed: int | None = None,
    ) -> Drawn:
        """Design the next round and draw it.

        Parameters
        ----------
        budget
            Number of draws; of distinct pairs for the sampler ``distinct``.
        utility
            ``rank``, ``flat``, ``score``, a file of predicted grades (``qid docid value``), or a
            `Utility` of yours.
        kind, floor
            See `evenhand.designs.design`.
        sampler
            ``distinct``, ``slices`` or ``iid``.
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
        if isinstance(utility, str | Path):
            utility = utility_named(utility, self.pool, self.measure)
        earlier = self._rounds()
        name = round_files.named(len(earlier) + 1)
        plan = self.settings.plan
        if plan is not None and len(earlier) >= len(plan):
            raise StudyError(
                f"the plan of {self.folder} names {len(plan)} rounds, and all are drawn",
                hint="a plan cannot be changed after the first judgment: start a new study",
            )
        seed = secrets.randbits(32) if seed is None else seed
        made = design(self.goal, utility, kind=kind, floor=floor)
        key = jax.random.fold_in(jax.random.key(seed), len(earlier) + 1)
        sample = draw(key, made, budget, sampler=sampler)
        # Read last: a judgment that came in meanwhile counts as seen, which is the safe side.
        judged = ~np.isnan(self._utility_by_cell())
        record = round_files.Record(
            name=name,
            created=_now(),
            versions={p: importlib.metadata.version(p) for p in ("evenhand", "jax", "numpy")},
            budget=budget,
            sampler=sampler,
            design=made.name,
            floor=floor,
            seed=seed,
            depends_on=tuple(r.name for r, s in earlier if judged[s.draws].any()),
            cells=len(self.pool),
            pool=round_files.fingerprint(self.pool),
            gap=None if made.gap is None else made.gap.relative,
        )
        todo = sample.cells[~judged[sample.cells]]
        path = round_files.save(self.folder, record, sample, made.q, self.pool, todo)
        notes = [] if made.gap is None else [str(made.gap)]
        if made.goal.kind != "absolute" and any(
            len(group) == len(self.pool.systems) for group in _identical(self.target)
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
        wanted[np.concatenate([s.draws for _, s in drawn])] = True
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
        open_cells = np.isnan(self._utility_by_cell())
        return Taken(
            rows=len(table),
            added=intake.added,
            known=intake.known,
            revised=intake.revised,
            not_drawn=len(table) - len(rows),
            blank=table.blank,
            negative=table.unjudged,
            missing={r.name: int(open_cells[s.cells].sum()) for r, s in drawn},
            notes=table.notes,
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
        self, *, level: float = 0.95, bounds: bool = False, combine: str = "planned"
    ) -> Estimate:
        """Estimate systems and contrasts from all rounds that are wholly judged.

        Parameters
        ----------
        level
            Confidence level.
        bounds
            Give bounds for systems that the rounds do not cover.
        combine
            See `evenhand.estimators.estimate`.

        Raises
        ------
        MissingJudgments
            If no round is wholly judged.
        """
        rounds = self.rounds()
        whole = [r for r in rounds if not np.isnan(r.utility).any()]
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
        found = estimate(
            self.goal,
            whole,
            level=level,
            planned=self._planned(whole),
            combine=combine,
            bounds=bounds,
            top_utility=top,
        )
        notes = [f"left out, {text}" for text in waiting]
        return replace(found, notes=(*found.notes, *notes, *self.notes()))

    def notes(self) -> list[str]:
        """A sentence for each group of identical systems, and for queries left unanswered."""
        identical = [
            f"{', '.join(group[:-1])} and {group[-1]} return the same rankings: "
            "they differ by exactly 0, whatever is judged"
            for group in _identical(self.target)
        ]
        unanswered = [
            f"{system} leaves {len(missed)} {'query' if len(missed) == 1 else 'queries'} "
            f"unanswered and earns 0 there: {_some(missed)}"
            for system, missed in self.pool.unanswered().items()
        ]
        return identical + unanswered

    def _planned(self, rounds: Sequence[Round]) -> list[int] | None:
        """Planned draws of each stage: rounds drawn before the first judgment are one stage."""
        if self.settings.plan is None:
            return None
        planned = dict(zip(round_files.names(self.folder), self.settings.plan, strict=False))
        if any(r.name not in planned for r in rounds):
            raise StudyError(
                f"the plan of {self.folder} names {len(self.settings.plan)} rounds, and more were "
                "drawn",
                hint="a plan cannot be changed after the first judgment: start a new study",
            )
        together = [planned[r.name] for r in rounds if not r.depends_on]
        later = [planned[r.name] for r in rounds if r.depends_on]
        return [sum(together), *later] if together else later


def _identical(target: targets.Target) -> list[list[str]]:
    """Groups of systems that weigh the same pairs alike, so that they differ by exactly 0."""
    counts = np.flatnonzero(target.weight)
    counts = counts[np.argsort(target.pool.system[counts], kind="stable")]
    cell, weight = target.pool.cell[counts], target.weight[counts]
    bounds = np.searchsorted(target.pool.system[counts], np.arange(1, len(target.systems)))
    groups: dict[tuple[bytes, bytes], list[str]] = {}
    for name, c, w in zip(
        target.systems, np.split(cell, bounds), np.split(weight, bounds), strict=True
    ):
        groups.setdefault((c.tobytes(), w.tobytes()), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _check_pool(cells: Pool) -> None:
    """Refuse what could not be stored: systems without a pair, ids that break a line."""
    for ids, breaks in ((cells.queries, r"[\t\r\n]|^#"), (cells.documents, r"[\t\r\n]")):
        hit = pc.match_substring_regex(ids, breaks)  # pyright: ignore[reportAttributeAccessIssue]
        odd = ids.filter(hit)
        if len(odd):
            raise EvenhandError(
                f"the id {odd[0].as_py()!r} cannot stand in a file to judge: it holds a tab or a "
                "line end, or is a query that begins with #",
                hint="replace such characters in runs and judgments",
            )
    silent = np.bincount(cells.system, minlength=len(cells.systems)) == 0
    if silent.any():
        names = [name for name, none in zip(cells.systems, silent, strict=True) if none]
        raise EvenhandError(
            f"no query of the study is answered by {_some(names)}",
            hint="leave the run out, or check that it is of the same collection",
        )


def _some(ids: Sequence[str], most: int = 5) -> str:
    return ", ".join(ids[:most]) + (", ..." if len(ids) > most else "")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _columns(cells: Pool, systems: Iterable[int]) -> pa.Table:
    """The runs of a pool as a table that `read_runs` reads, ids stored once."""
    order = np.lexsort((cells.rank, cells.query[cells.cell], cells.system))
    cell = cells.cell[order]

    def coded(codes: np.ndarray, names: pa.Array) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)

    return pa.table(
        {
            "system": coded(cells.system[order], pa.array([cells.systems[j] for j in systems])),
            "query_id": coded(cells.query[cell], cells.queries),
            "doc_id": coded(cells.document[cell], cells.documents),
            "rank": cells.rank[order],
            "score": cells.score[order],
        }
    )
