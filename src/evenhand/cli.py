"""The command line: each command one library call of the same name and words.

The only room that prints or exits. Results go to stdout, progress and notes to stderr; exit status
0 is done, 1 failed, 2 misused. Imports that take long wait until a command needs them.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from evenhand.errors import EvenhandError

__all__ = ["main"]

QUESTION = click.option(
    "--for",
    "question",
    type=click.Choice(["queries", "population"]),
    default="queries",
    show_default=True,
    help="What the intervals answer for: this set of queries, or queries like these.",
)
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "latex"]),
    default="table",
    show_default=True,
    help="How to print the result.",
)
MEASURE = click.option("-m", "--measure", required=True, help="Like P@10, DCG@100, RBP(p=0.8).")
ORDER = click.option(
    "--order",
    type=click.Choice(["score", "rank"]),
    default="score",
    show_default=True,
    help="What orders a run.",
)
NEGATIVE = click.option(
    "--negative",
    type=click.Choice(["unjudged", "zero", "keep"]),
    default="unjudged",
    show_default=True,
    help="What a grade below 0 means.",
)
LEVEL = click.option(
    "--level", type=float, default=0.95, show_default=True, help="Of the intervals."
)
SEED = click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Of the draw; recorded.")
SEED_0 = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
GOAL = click.option(
    "--goal",
    type=click.Choice(["absolute", "pair", "baseline", "rank", "best", "order"]),
    default="rank",
    show_default=True,
    help="Each system alone, two against each other, all against --baseline, or all ranked; best "
    "and order: the same, and later rounds go where the best, or the order, is undecided.",
)
BASELINE = click.option("--baseline", metavar="SYSTEM", help="The system to compare with.")
QUERIES = click.option(
    "--queries",
    type=click.Path(exists=True, dir_okay=False),
    help="File of the study's queries: one id a line, 'qid text', or qrels.",
)
METHOD = click.option(
    "--method",
    type=click.Choice(["laplace", "svi", "nuts"]),
    default="laplace",
    show_default=True,
    help="How a model that learns is fitted.",
)
RUNS = click.argument("runs", nargs=-1, required=True, metavar="RUN...")
STUDY = click.argument("study", type=click.Path(), metavar="STUDY")


class Numbers(click.ParamType):
    """Numbers with commas between, like ``250,1000``."""

    name = "N,N,..."

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Split and convert."""
        if not isinstance(value, str):
            return value
        try:
            return [self.kind(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"expected numbers with commas between, got {value!r}", param, ctx)


class Names(click.ParamType):
    """Names with commas between."""

    name = "NAME,NAME,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Split."""
        return value.split(",") if isinstance(value, str) else value


class _Commands(click.Group):
    """Turns an error of the library into what is wrong and, on a second line, what to do."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EvenhandError as error:
            if ctx.params.get("debug"):
                raise
            _tell("error", error.message, "red")
            if error.hint:
                _tell("hint", error.hint, "yellow")
            ctx.exit(1)


def _tell(kind: str, text: str, colour: str) -> None:
    click.secho(f"{kind}: ", fg=colour, bold=True, nl=False, err=True)
    click.echo(text, err=True)


def _notes(notes: Sequence[str]) -> None:
    for note in notes:
        _tell("note", note, "cyan")


def _print(result: Any, form: str) -> None:
    click.echo(result.render(form), nl=False)
    _notes(result.notes_shown())


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(importlib.metadata.version("evenhand"), prog_name="evenhand")
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
def main(debug: bool) -> None:
    """Tell which ranking system is better, by how much and how surely, from few judgments.

    A study in four commands:

    \b
      evenhand new study runs/* -m DCG@100 --goal rank
      evenhand draw study --budget 500
      evenhand judge study study/round-001/to_judge.tsv
      evenhand estimate study

    `evenhand demo` shows all of it on made data. For shell completion, put
    eval "$(_EVENHAND_COMPLETE=bash_source evenhand)" into ~/.bashrc (or zsh_source, fish_source).
    """  # noqa: D301 - click wants the backspace itself


@main.command()
@click.option(
    "--out", type=click.Path(), default="evenhand-demo", show_default=True, help="Folder."
)
@click.option("--budget", type=int, default=400, show_default=True, help="Pairs to judge.")
@SEED_0
@FORMAT
def demo(out: str, budget: int, seed: int, form: str) -> None:
    """Run a complete study on made data with known truth."""
    from evenhand.demo import demo as run

    result = run(out, budget=budget, seed=seed, tell=lambda step: click.echo(step, err=True))
    _print(result, form)


@main.command()
@RUNS
@click.option("--qrels", required=True, multiple=True, help="Judgments.")
@click.option(
    "-m", "--measure", "measures", required=True, multiple=True, help="Like P@10; repeatable."
)
@click.option("-q", "per_query", is_flag=True, help="Print every query's value too.")
@QUERIES
@NEGATIVE
@ORDER
@FORMAT
def evaluate(
    runs: tuple[str, ...],
    qrels: tuple[str, ...],
    measures: tuple[str, ...],
    per_query: bool,
    queries: str | None,
    negative: str,
    order: str,
    form: str,
) -> None:
    """Evaluate runs with complete judgments, as trec_eval does."""
    from evenhand.evaluation import evaluate as run
    from evenhand.trec import read_qrels, read_queries, read_runs

    result = run(
        read_runs(*runs, order=order),
        read_qrels(*qrels, negative=negative),
        measures,
        queries=None if queries is None else read_queries(queries),
    )
    click.echo(result.render(form, per_query=per_query), nl=False)
    _notes(result.notes)


@main.command()
@STUDY
@RUNS
@MEASURE
@GOAL
@BASELINE
@click.option("--depth", type=int, help="Deepest rank to keep.  [default: the measure's cutoff]")
@QUERIES
@click.option(
    "--grades", type=Numbers(float), help="Grades that a judgment may have.  [default: any]"
)
@click.option("--plan", type=Numbers(int), help="Planned draws of each round; fixes their weights.")
@ORDER
def new(study: str, runs: tuple[str, ...], measure: str, **options: Any) -> None:
    """Start a study of RUN... in the folder STUDY."""
    from evenhand.study import Study

    made = Study.create(study, *runs, measure=measure, **options)
    _notes(made.pool.notes)
    _notes(made.notes())
    pool = made.pool
    click.echo(
        f"{study}: {made.settings.measure}, goal {made.settings.goal}, "
        f"{len(pool.systems):,} systems, {len(pool.queries):,} queries, {len(pool):,} pairs"
    )


@main.command()
@STUDY
@RUNS
@ORDER
def add(study: str, runs: tuple[str, ...], order: str) -> None:
    """Add systems that arrive later."""
    from evenhand.study import Study

    before = Study.open(study)
    pairs = len(before.pool)
    names = before.add(*runs, order=order)
    after = Study.open(study)
    click.echo(
        f"added {', '.join(names)}: {len(after.pool) - pairs:,} pairs that no earlier one returned"
    )


@main.command()
@STUDY
@click.option("--budget", type=int, required=True, metavar="N", help="Pairs to draw.")
@click.option(
    "--utility",
    default="rank",
    show_default=True,
    metavar="rank|flat|score|learned|FILE",
    help="What judgments are expected to say; FILE holds lines of qid, docid, value.",
)
@click.option(
    "--signals",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="What else is known of pairs (qid, docid, value), for models to learn from; repeatable.",
)
@METHOD
@click.option(
    "--design",
    "kind",
    type=click.Choice(["optimal", "minimax", "naive", "uniform"]),
    default="optimal",
    show_default=True,
)
@click.option(
    "--floor", type=float, default=0.1, show_default=True, help="Share kept for other goals."
)
@click.option(
    "--sampler",
    type=click.Choice(["distinct", "slices", "iid"]),
    default="distinct",
    show_default=True,
    help="Without repeats, stratified, or independent.",
)
@click.option(
    "--rejudge",
    is_flag=True,
    help="Have pairs judged again, by others: for assessors who disagree.",
)
@click.option(
    "--top-up",
    is_flag=True,
    help="Draw only pairs of systems that were added since the last round.",
)
@SEED
@FORMAT
def draw(study: str, budget: int, form: str, **options: Any) -> None:
    """Design the next round and draw it."""
    from evenhand.study import Study

    _print(Study.open(study).draw(budget, **options), form)


@main.command()
@STUDY
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@NEGATIVE
@click.option("--revise", is_flag=True, help="Let an assessor's new grade supersede the old one.")
@FORMAT
def judge(study: str, files: tuple[str, ...], negative: str, revise: bool, form: str) -> None:
    """Take in judgments: qrels, or the filled-in to_judge.tsv. Safe to repeat."""
    from evenhand.study import Study

    _print(Study.open(study).judge(*files, negative=negative, revise=revise), form)


@main.command()
@STUDY
@LEVEL
@QUESTION
@click.option(
    "--interval",
    type=click.Choice(["auto", "cubic", "student", "normal"]),
    default="auto",
    show_default=True,
    help="Kind; auto is cubic, which holds where relevance is rare, unless a model holds.",
)
@click.option(
    "--stop-when",
    metavar="RULE",
    help="half-width<W, decided or best: valid though you look after every round.",
)
@click.option("--bounds", is_flag=True, help="Give bounds for systems that no round covers wholly.")
@click.option("--pairs", is_flag=True, help="Compare every pair, each alone and all together.")
@click.option("--ranks", is_flag=True, help="Rank intervals, and the chance to be the best.")
@click.option(
    "--combine",
    type=click.Choice(["planned", "balance"]),
    default="planned",
    show_default=True,
    help="Weights of rounds; the balance heuristic only where it is unbiased.",
)
@click.option(
    "--estimator",
    type=click.Choice(["auto", "importance", "difference", "cross-fitted"]),
    default="auto",
    show_default=True,
    help="With or without predictions that learn from the judgments; all are unbiased.",
)
@METHOD
@click.option(
    "--plot", type=click.Path(dir_okay=False), help="Also draw the intervals into this file."
)
@FORMAT
def estimate(
    study: str,
    level: float,
    question: str,
    bounds: bool,
    pairs: bool,
    ranks: bool,
    plot: str | None,
    form: str,
    **options: Any,
) -> None:
    """Estimate systems and contrasts with intervals."""
    from evenhand.study import Study

    found = Study.open(study).estimate(level=level, question=question, bounds=bounds, **options)
    standings = None
    if pairs and ranks:
        raise click.UsageError("--pairs and --ranks are two answers: ask for one at a time")
    if ranks:
        from evenhand.standings import ranking

        standings = ranking(found)
        _print(standings, form)
    else:
        _print(found.pairs if pairs else found, form)
    if plot is not None:
        from evenhand import pictures

        if standings is not None:
            ax = pictures.plot_standings(standings)
        elif pairs:
            ax = pictures.plot_comparisons(found.pairs)
        else:
            ax = pictures.plot_estimate(found)
        pictures.save(ax, plot)


@main.command()
@STUDY
@click.option("--half-width", type=float, metavar="W", help="Of the contrasts' intervals.")
@click.option(
    "--power", type=float, metavar="P", help="To tell two systems apart that differ by D."
)
@click.option("--effect", type=float, metavar="D", help="Their difference, in the measure's unit.")
@click.option("--winner", type=float, metavar="P", help="Probability that the leader is the best.")
@LEVEL
@QUESTION
@click.option("--plot", type=click.Path(dir_okay=False), help="Also draw width by judgments.")
@FORMAT
def plan(study: str, plot: str | None, form: str, **options: Any) -> None:
    """Tell how many judgments are still needed."""
    from evenhand.study import Study

    answer = Study.open(study).plan(**options)
    _print(answer, form)
    if plot is not None:
        from evenhand.pictures import plot_plan, save

        save(plot_plan(answer), plot)


@main.command()
@RUNS
@click.option("--qrels", required=True, multiple=True, help="Complete judgments.")
@MEASURE
@GOAL
@BASELINE
@click.option("--systems", type=Names(), help="Only these systems.")
@click.option("--sample-systems", type=int, metavar="K", help="Only K systems, drawn by the seed.")
@QUERIES
@click.option("--budgets", type=Numbers(int), default="250,1000", show_default=True)
@click.option("--designs", type=Names(), default="naive,flat,rank", show_default=True)
@click.option("--samplers", type=Names(), default="distinct", show_default=True)
@click.option(
    "--utility",
    type=click.Choice(["learned"]),
    help="Also replicate studies that learn: cross-fitted, and steered from the second round on.",
)
@click.option(
    "--rounds",
    type=Numbers(int),
    default="1,2",
    show_default=True,
    help="In how many rounds they learn, and are focused for the goals best and order.",
)
@click.option(
    "--signals",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="What else is known of pairs (qid, docid, value), to learn from; repeatable.",
)
@METHOD
@click.option("--floor", type=float, default=0.1, show_default=True)
@click.option("--replications", type=int, default=1000, show_default=True)
@SEED_0
@click.option(
    "--plot", type=click.Path(dir_okay=False), help="Also draw the errors into this file."
)
@LEVEL
@NEGATIVE
@ORDER
@FORMAT
def simulate(
    runs: tuple[str, ...],
    qrels: tuple[str, ...],
    measure: str,
    order: str,
    negative: str,
    plot: str | None,
    utility: str | None,
    rounds: list[int],
    signals: tuple[str, ...],
    form: str,
    **options: Any,
) -> None:
    """Replicate studies against complete judgments: error, order, coverage."""
    from evenhand.simulation import simulate_runs
    from evenhand.trec import read_qrels, read_queries, read_runs

    if options["queries"] is not None:
        options["queries"] = read_queries(options["queries"])
    with _Progress("studies") as progress:
        result = simulate_runs(
            read_runs(*runs, order=order),
            read_qrels(*qrels, negative=negative),
            measure,
            learn=rounds if utility else (),
            focus=[number for number in rounds if number > 1],
            signals={Path(name).name: read_qrels(name) for name in signals},
            progress=progress,
            **options,
        )
    _print(result, form)
    if plot is not None:
        from evenhand.pictures import plot_simulation, save

        save(plot_simulation(result), plot)


@main.command()
@click.argument("paths", nargs=-1, required=True, metavar="STUDY | RUN...")
@click.option("-m", "--measure", help="Like P@10, DCG@100; a study has its own.")
@click.option("--qrels", multiple=True, help="Complete judgments to take the utilities from.")
@SEED_0
@NEGATIVE
@ORDER
@FORMAT
def certify(paths: tuple[str, ...], form: str, **options: Any) -> None:
    """Check the theory on your own data: best baseline, proposals, duality gap."""
    from evenhand.certificates import certify_files

    result = certify_files(*paths, **options)
    _print(result, form)
    if not result.passed:
        sys.exit(1)


TRIALS = click.option("--trials", type=int, help="Replications of a number.  [default: 1000]")
FAST = click.option("--fast", is_flag=True, help="100 trials, wider tolerances.")
FIGURES = click.option("--figures", type=click.Path(file_okay=False), help="Also draw them there.")


@main.group()
def reproduce() -> None:
    """Repeat the source paper's tables and figures, each number beside the exact one."""


def _reproduced(result: Any, figures: str | None, form: str) -> None:
    _print(result, form)
    if figures is not None:
        result.figures(figures)
    if not result.passed:
        sys.exit(1)


@reproduce.command()
@TRIALS
@SEED_0
@FAST
@FIGURES
@FORMAT
def synth(figures: str | None, form: str, **options: Any) -> None:
    """On its own data set, which is drawn."""
    from evenhand.paper import reproduce_synth

    with _Progress("studies") as progress:
        result = reproduce_synth(progress=progress, **options)
    _reproduced(result, figures, form)


@reproduce.command()
@click.option("--runs", required=True, multiple=True, help="Runs of TREC-8 ad hoc; a folder.")
@click.option("--qrels", required=True, multiple=True, help="Their judgments.")
@click.option("--systems", type=click.File(), help="Names of the systems to take, one a line.")
@TRIALS
@SEED_0
@FAST
@FIGURES
@FORMAT
def trec(
    runs: tuple[str, ...],
    qrels: tuple[str, ...],
    systems: Any,
    figures: str | None,
    form: str,
    **options: Any,
) -> None:
    """On real runs with complete judgments."""
    from evenhand.paper import reproduce_trec
    from evenhand.trec import read_qrels, read_runs

    names = None if systems is None else systems.read().split()
    with _Progress("studies") as progress:
        result = reproduce_trec(
            read_runs(*runs), read_qrels(*qrels), names, progress=progress, **options
        )
    _reproduced(result, figures, form)


class _Progress:
    """A progress bar on stderr, silent where that is no terminal."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self.bar = Progress(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Callable[[int, int], None]:
        self.bar.start()
        task = self.bar.add_task("", total=None)
        return lambda done, total: self.bar.update(task, advance=done, total=total)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


if __name__ == "__main__":
    sys.exit(main())
