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
    help="Deepest rank to keep.  [default: the measure's cutoff; 100 for nDCG@k and other ratios]",
)
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
    """Add systems that arrive later."""
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
@click.option("--budget", type=int, required=True, metavar="N", help="Pairs to draw.")
@click.option(
    "--utility",
    default="rank",
    show_default=True,
    metavar="rank|flat|score|learned|FILE",
    help="What judgments are expected to say; FILE holds lines of qid, docid, value.",
)
@signals_option("for models to learn from")
@METHOD
@click.option(
    "--design",
    "kind",
    type=click.Choice(get_args(DesignName)),
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
    "--looks",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Draw it as N rounds, to have an estimate whenever one is judged; before the first "
    "judgment only.",
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

    show(Study.open(study).draw(budget, **options), form)


@click.command()
@STUDY
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@NEGATIVE
@click.option("--revise", is_flag=True, help="Let an assessor's new grade supersede the old one.")
@click.option(
    "--queries", metavar="FILE", help="Texts of queries, where judgments name a query by its text."
)
@FORMAT
def judge(study: str, files: tuple[str, ...], form: str, **options: Any) -> None:
    """Take in judgments: qrels, the filled-in to_judge.tsv, or what a tool exports.

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
    help="Kind; auto is cubic, which holds where relevance is rare, or moderated, where a model "
    "holds, and Student's of measures that are no sums; betting holds for every n, in one round.",
)
@click.option(
    "--stop-when",
    metavar="RULE",
    help="half-width<W, decided or best: valid though you look after every round.",
)
@click.option("--bounds", is_flag=True, help="Give bounds for systems that no round covers wholly.")
@click.option("--pairs", is_flag=True, help="Compare every pair, each alone and all together.")
@click.option(
    "--against",
    metavar="SYSTEM|mean",
    help="Compare every other system with this one, or with the mean of all.",
)
@click.option("--ranks", is_flag=True, help="Rank intervals, and the chance to be the best.")
@click.option(
    "--combine",
    type=click.Choice(get_args(CombineName)),
    default="planned",
    show_default=True,
    help="Weights of rounds; the balance heuristic only where it is unbiased.",
)
@click.option(
    "--estimator",
    type=click.Choice(get_args(EstimatorName)),
    default="auto",
    show_default=True,
    help="With or without predictions that learn from the judgments, all unbiased; or by the mean "
    "of each list's draws, nearly so.",
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
@click.option("--half-width", type=float, metavar="W", help="Of the contrasts' intervals.")
@click.option(
    "--power", type=float, metavar="P", help="To tell two systems apart that differ by D."
)
@click.option("--effect", type=float, metavar="D", help="Their difference, in the measure's unit.")
@click.option("--winner", type=float, metavar="P", help="Probability that the leader is the best.")
@click.option(
    "--query-cost",
    type=float,
    default=0.0,
    show_default=True,
    help="Of a query before its first judgment: adds a column of costs.",
)
@click.option("--judgment-cost", type=float, default=1.0, show_default=True, help="Of each.")
@LEVEL
@QUESTION
@plot_option("Also draw width by judgments.")
@FORMAT
def plan(study: str, plot: str | None, form: str, **options: Any) -> None:
    """Tell how many judgments are still needed."""
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
    """Write the judgments as a file of TREC's, or the pairs to judge as tasks of a tool."""
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
@click.option("--guidelines", metavar="FILE", help="What to go by: text, or a little markdown.")
@click.option("--labels", type=GradeNames(), help="What each grade is called.")
@click.option(
    "--predictions",
    metavar="FILE",
    help="Predicted grades (qid, docid, value), each shown to an assessor who asks for it. "
    "Assessors who have seen one judge towards it.",
)
@click.option(
    "--assessor",
    "assessors",
    multiple=True,
    default=["assessor"],
    show_default=True,
    metavar="NAME",
    help="Who judges; repeatable.",
)
@click.option(
    "--overlap",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="How many assessors judge each pair.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen; elsewhere than on this machine each assessor needs his link.",
)
@click.option("--port", type=int, default=8765, show_default=True, help="0 takes a free one.")
@click.option("--url", help="Address that a proxy shows to others.")
@LEVEL
@click.option(
    "--stop-when",
    metavar="RULE",
    help="Of the live page: half-width<W, decided or best.  [default: decided; best for that goal]",
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
    help="Where to write it.  [default: report.html in STUDY]",
)
@click.option(
    "--figures",
    type=click.Path(),
    metavar="FOLDER",
    help="Also write the pictures as files (svg, png, pdf).",
)
@click.option("--title", help="Of the page.  [default: the name of STUDY]")
@LEVEL
@QUESTION
def report(study: str, **options: Any) -> None:
    """Write one HTML file that tells all of a study, offline and on paper, too."""
    from evenhand.study import Study

    click.echo(Study.open(study).report(**options))
