"""The commands of a study, in the order in which they are used."""

from __future__ import annotations

from typing import Any, get_args

import click

from evenhand.cli.console import show, show_notes
from evenhand.cli.options import (
    BASELINE,
    FORMAT,
    GOAL,
    LEVEL,
    MEASURE,
    METHOD,
    NEGATIVE,
    ORDER,
    QUERIES,
    QUESTION,
    RUNS,
    SEED,
    STUDY,
    GradeNames,
    Numbers,
    plot_option,
    signals_option,
)
from evenhand.studies.options import CombineName, DesignName, EstimatorName

__all__ = ["add", "draw", "estimate", "export", "judge", "new", "plan", "report", "serve"]


@click.command()
@STUDY
@RUNS
@MEASURE
@GOAL
@BASELINE
@click.option(
    "--depth",
    type=int,
    help="Deepest rank to use.  [default: the measure's cutoff; 100 for ratios such as nDCG@k]",
)
@QUERIES
@click.option(
    "--grades", type=Numbers(float), help="Possible grades, such as 0,1,2.  [default: any]"
)
@click.option(
    "--plan",
    type=Numbers(int),
    help="Planned draws of each round, which fix the weights of rounds.",
)
@ORDER
def new(study: str, runs: tuple[str, ...], measure: str, **options: Any) -> None:
    """Create the folder STUDY for a study of RUN..."""
    from evenhand.study import Study

    made = Study.create(study, *runs, measure=measure, **options)
    show_notes(made.pool.notes)
    show_notes(made.notes())
    pool = made.pool
    click.echo(
        f"{study}: {made.settings.measure}, goal {made.settings.goal}, "
        f"{len(pool.systems):,} systems, {len(pool.queries):,} queries, {len(pool):,} pairs"
    )


@click.command()
@STUDY
@RUNS
@ORDER
def add(study: str, runs: tuple[str, ...], order: str) -> None:
    """Add systems to a study."""
    from evenhand.study import Study

    before = Study.open(study)
    pairs = len(before.pool)
    names = before.add(*runs, order=order)
    after = Study.open(study)
    click.echo(
        f"added {', '.join(names)}: {len(after.pool) - pairs:,} pairs that no earlier one returned"
    )


@click.command()
@STUDY
@click.option("--budget", type=int, required=True, metavar="N", help="Number of pairs to draw.")
@click.option(
    "--utility",
    default="rank",
    show_default=True,
    metavar="rank|flat|score|learned|FILE",
    help="Expected relevance: from ranks, the same for all, from scores, learned from judgments, "
    "or a file with lines of qid, docid, value.",
)
@signals_option("for the model")
@METHOD
@click.option(
    "--design",
    "kind",
    type=click.Choice(get_args(DesignName)),
    default="optimal",
    show_default=True,
)
@click.option(
    "--floor",
    type=float,
    default=0.1,
    show_default=True,
    help="Share of the draws kept for other questions.",
)
@click.option(
    "--sampler",
    type=click.Choice(["distinct", "slices", "iid"]),
    default="distinct",
    show_default=True,
    help="Draw without repeats, stratified, or independently.",
)
@click.option(
    "--looks",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Split the budget into N rounds with an estimate after each; before the first judgment "
    "only.",
)
@click.option(
    "--rejudge",
    is_flag=True,
    help="Have pairs judged again by other assessors, to measure disagreement.",
)
@click.option(
    "--top-up",
    is_flag=True,
    help="Draw only pairs of systems added since the last round.",
)
@SEED
@FORMAT
def draw(study: str, budget: int, form: str, **options: Any) -> None:
    """Design the next round and draw it."""
    from evenhand.study import Study

    show(Study.open(study).draw(budget, **options), form)


@click.command()
@STUDY
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@NEGATIVE
@click.option("--revise", is_flag=True, help="Replace an assessor's earlier grade by the new one.")
@click.option(
    "--queries", metavar="FILE", help="Texts of queries, if judgments name queries by their text."
)
@FORMAT
def judge(study: str, files: tuple[str, ...], form: str, **options: Any) -> None:
    """Read judgments: qrels, the completed to_judge.tsv, or the export of an annotation tool.

    Safe to repeat. Label Studio's and Argilla's JSON and Quepid's CSV are understood.
    """
    from evenhand.study import Study

    show(Study.open(study).judge(*files, **options), form)


@click.command()
@STUDY
@LEVEL
@QUESTION
@click.option(
    "--interval",
    type=click.Choice(["auto", "cubic", "moderated", "student", "normal", "betting"]),
    default="auto",
    show_default=True,
    help="Kind of interval. auto: cubic, which covers where relevance is rare; moderated where a "
    "model is used; Student's for ratios. betting: proved for every sample size, one round.",
)
@click.option(
    "--stop-when",
    metavar="RULE",
    help="Stopping rule: half-width<W, decided, or best. Intervals hold at all looks together.",
)
@click.option(
    "--bounds",
    is_flag=True,
    help="Also give bounds for systems that rounds do not cover completely.",
)
@click.option(
    "--pairs",
    is_flag=True,
    help="Compare all pairs of systems, with individual and simultaneous intervals.",
)
@click.option(
    "--against",
    metavar="SYSTEM|mean",
    help="Compare all other systems with this one, or with the mean of all.",
)
@click.option("--ranks", is_flag=True, help="Rank intervals, and probabilities of being the best.")
@click.option(
    "--combine",
    type=click.Choice(get_args(CombineName)),
    default="planned",
    show_default=True,
    help="Weights of rounds: planned, or the balance heuristic where it is unbiased.",
)
@click.option(
    "--estimator",
    type=click.Choice(get_args(EstimatorName)),
    default="auto",
    show_default=True,
    help="With predictions (difference, cross-fitted) or without (importance), all unbiased; "
    "self-normalised is nearly unbiased.",
)
@METHOD
@plot_option("Also draw the intervals into this file.")
@FORMAT
def estimate(
    study: str,
    level: float,
    question: str,
    bounds: bool,
    pairs: bool,
    against: str | None,
    ranks: bool,
    plot: str | None,
    form: str,
    **options: Any,
) -> None:
    """Estimate systems and contrasts with intervals."""
    from evenhand.study import Study

    if sum([pairs, against is not None, ranks]) > 1:
        raise click.UsageError("--pairs, --against and --ranks are one answer each: ask for one")
    if options.get("stop_when") and (pairs or ranks or against is not None):
        raise click.UsageError(
            "--stop-when is answered beside the estimates: ask without --pairs, --against, --ranks"
        )
    opened = Study.open(study)
    found = opened.estimate(level=level, question=question, bounds=bounds, **options)
    answer, picture = found, "plot_estimate"
    if pairs:
        answer, picture = found.pairs, "plot_comparisons"
    elif against is not None:
        whole = against == "mean" and against not in found.goal.target.systems
        answer, picture = found.against(None if whole else against), "plot_contrasts"
    elif ranks:
        from evenhand.decisions.ranks import ranking

        learned = found.estimator in ("difference", "cross-fitted")
        answer = ranking(found, opened.beliefs() if learned else None)
        picture = "plot_standings"
    show(answer, form)
    if plot is not None:
        from evenhand.reports import plots

        plots.save(getattr(plots, picture)(answer), plot)


@click.command()
@STUDY
@click.option(
    "--half-width", type=float, metavar="W", help="Half-width of the intervals that you want."
)
@click.option("--power", type=float, metavar="P", help="Probability of finding a difference of D.")
@click.option(
    "--effect",
    type=float,
    metavar="D",
    help="Difference to find, in the measure's unit; with --power.",
)
@click.option(
    "--winner", type=float, metavar="P", help="Probability that the best system is identified."
)
@click.option(
    "--query-cost",
    type=float,
    default=0.0,
    show_default=True,
    help="Cost of opening a query; adds a column of costs.",
)
@click.option(
    "--judgment-cost", type=float, default=1.0, show_default=True, help="Cost of one judgment."
)
@LEVEL
@QUESTION
@plot_option("Also draw width by judgments.")
@FORMAT
def plan(study: str, plot: str | None, form: str, **options: Any) -> None:
    """Forecast how many further judgments are needed."""
    from evenhand.study import Study

    answer = Study.open(study).plan(**options)
    show(answer, form)
    if plot is not None:
        from evenhand.reports.plots import plot_plan, save

        save(plot_plan(answer), plot)


@click.command()
@STUDY
@click.option(
    "--as",
    "kind",
    type=click.Choice(["qrels", "prels", "sampled", "csv", "label-studio", "argilla"]),
    default="qrels",
    show_default=True,
    help="Judgments: qrels; prels, with inclusion probabilities for statAP; sampled, with strata "
    "for sample_eval. Pairs to judge: csv, label-studio, argilla.",
)
@click.option("--docs", metavar="FILE", help="Texts of documents, for pairs to judge.")
@click.option("--queries", metavar="FILE", help="Texts of queries, for pairs to judge.")
@click.option(
    "--out", type=click.Path(dir_okay=False), help="File to write.  [default: standard output]"
)
def export(study: str, kind: str, out: str | None, **texts: str | None) -> None:
    """Write judgments as TREC files, or pairs to judge as tasks of an annotation tool."""
    from evenhand.study import Study

    made = Study.open(study).export(kind, **texts)
    if out is None:
        click.echo(made.text, nl=False)
    else:
        made.write(out)
        click.echo(f"{out}: {made.text.count(chr(10)):,} lines")
    show_notes(made.notes)


@click.command()
@STUDY
@click.option(
    "--docs",
    metavar="FILE",
    help="Texts of documents: JSON lines (BEIR's too), or rows of id, title, text with tabs.",
)
@click.option("--queries", metavar="FILE", help="Texts of queries: the same, or TREC's topics.")
@click.option(
    "--guidelines", metavar="FILE", help="Guidelines for assessors: text or simple Markdown."
)
@click.option("--labels", type=GradeNames(), help="Labels of the grades, such as 0=no,1=yes.")
@click.option(
    "--predictions",
    metavar="FILE",
    help="Predicted grades (qid, docid, value), shown to an assessor on request. "
    "Assessors who have seen one tend to agree with it.",
)
@click.option(
    "--assessor",
    "assessors",
    multiple=True,
    default=["assessor"],
    show_default=True,
    metavar="NAME",
    help="Name of an assessor; repeatable.",
)
@click.option(
    "--overlap",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Number of assessors for each pair.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Assessors on other machines need their links.",
)
@click.option(
    "--port", type=int, default=8765, show_default=True, help="Port; 0 for any free port."
)
@click.option("--url", help="Public address, if a proxy forwards to the server.")
@LEVEL
@click.option(
    "--stop-when",
    metavar="RULE",
    help="Stopping rule of the live page: half-width<W, decided or best.  "
    "[default: decided; best for that goal]",
)
def serve(study: str, **options: Any) -> None:
    """Serve a judging page for assessors, and a live page for you."""
    from evenhand.serving.server import serve as run

    run(study, tell=lambda served: click.echo(str(served), err=True), **options)


@click.command()
@STUDY
@click.option(
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="File to write.  [default: report.html in STUDY]",
)
@click.option(
    "--figures",
    type=click.Path(),
    metavar="FOLDER",
    help="Also write the pictures as files (svg, png, pdf).",
)
@click.option("--title", help="Title of the page.  [default: the name of STUDY]")
@LEVEL
@QUESTION
def report(study: str, **options: Any) -> None:
    """Write a report of the study: one HTML file that needs no network."""
    from evenhand.study import Study

    click.echo(Study.open(study).report(**options))
