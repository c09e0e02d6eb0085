"""The commands that need complete judgments, or bring them: what designs and theory are worth."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from evenhand.cli.console import ProgressBar, show, show_notes
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
    RUNS,
    SEED_0,
    Names,
    Numbers,
    plot_option,
    signals_option,
)

__all__ = ["certify", "demo", "evaluate", "reproduce", "simulate"]


@click.command()
@click.option(
    "--out",
    type=click.Path(),
    default="evenhand-demo",
    show_default=True,
    help="Folder to write to.",
)
@click.option(
    "--budget", type=int, default=400, show_default=True, help="Number of pairs to judge."
)
@SEED_0
@FORMAT
def demo(out: str, budget: int, seed: int, form: str) -> None:
    """Run a complete study on synthetic data with known truth."""
    from evenhand.cli.demo import demo as run

    result = run(out, budget=budget, seed=seed, tell=lambda step: click.echo(step, err=True))
    show(result, form)


@click.command()
@RUNS
@click.option("--qrels", required=True, multiple=True, help="Judgments (qrels).")
@click.option(
    "-m",
    "--measure",
    "measures",
    required=True,
    multiple=True,
    help="Measure, such as P@10, DCG@100, nDCG@10, AP, R@100, Judged@10; for TREC's samples also "
    "infAP, xinfAP, infNDCG, statAP, statP@10; repeatable.",
)
@click.option("-q", "per_query", is_flag=True, help="Also print the value of each query.")
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
    from evenhand.estimands.evaluation import asks_sampling
    from evenhand.estimands.evaluation import evaluate as run
    from evenhand.formats.prels import read_prels
    from evenhand.formats.qrels import read_qrels
    from evenhand.formats.queries import read_queries
    from evenhand.formats.runs import read_runs

    sampled = asks_sampling(measures)
    if sampled and negative != "unjudged":
        raise click.UsageError("a measure of a sample takes negative grades for pairs not drawn")
    result = run(
        read_runs(*runs, order=order),
        read_prels(*qrels) if sampled else read_qrels(*qrels, negative=negative),
        measures,
        queries=None if queries is None else read_queries(queries),
    )
    click.echo(result.render(form, per_query=per_query), nl=False)
    show_notes(result.notes)


@click.command()
@RUNS
@click.option("--qrels", required=True, multiple=True, help="Complete judgments (qrels).")
@MEASURE
@GOAL
@BASELINE
@click.option("--systems", type=Names(), help="Only these systems.")
@click.option("--sample-systems", type=int, metavar="K", help="Only K systems, drawn at random.")
@QUERIES
@click.option("--budgets", type=Numbers(int), default="250,1000", show_default=True)
@click.option("--designs", type=Names(), default="naive,flat,rank", show_default=True)
@click.option("--samplers", type=Names(), default="distinct", show_default=True)
@click.option(
    "--utility",
    type=click.Choice(["learned"]),
    help="Also replicate studies with a model that learns from judgments.",
)
@click.option(
    "--rounds",
    type=Numbers(int),
    default="1,2",
    show_default=True,
    help="Numbers of rounds of studies that learn, or that have the goal best or order.",
)
@signals_option("for the model")
@METHOD
@click.option("--floor", type=float, default=0.1, show_default=True)
@click.option("--replications", type=int, default=1000, show_default=True)
@SEED_0
@plot_option("Also draw the errors into this file.")
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
    from evenhand.formats.qrels import read_qrels
    from evenhand.formats.queries import read_queries
    from evenhand.formats.runs import read_runs
    from evenhand.simulation.simulations import simulate_runs

    if options["queries"] is not None:
        options["queries"] = read_queries(options["queries"])
    with ProgressBar("studies") as progress:
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
    show(result, form)
    if plot is not None:
        from evenhand.reports.plots import plot_simulation, save

        save(plot_simulation(result), plot)


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="STUDY | RUN...")
@click.option(
    "-m", "--measure", help="Measure, such as DCG@100; not for a study, which has its own."
)
@click.option("--qrels", multiple=True, help="Complete judgments, to take utilities from.")
@SEED_0
@NEGATIVE
@ORDER
@FORMAT
def certify(paths: tuple[str, ...], form: str, **options: Any) -> None:
    """Check the theory on your data: optimal baseline, proposals, duality gap."""
    from evenhand.certificates.certification import certify_files

    result = certify_files(*paths, **options)
    show(result, form)
    if not result.passed:
        sys.exit(1)


TRIALS = click.option("--trials", type=int, help="Number of replications.  [default: 1000]")
FAST = click.option("--fast", is_flag=True, help="100 trials, wider tolerances.")
FIGURES = click.option(
    "--figures", type=click.Path(file_okay=False), help="Folder for the figures."
)


@click.group()
def reproduce() -> None:
    """Repeat the source paper's tables and figures, each number beside the exact one."""


def _reproduced(result: Any, figures: str | None, form: str) -> None:
    show(result, form)
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
    """Reproduce the SYNTH experiment, on its generated data set."""
    from evenhand.paper.reproduce import reproduce_synth

    with ProgressBar("studies") as progress:
        result = reproduce_synth(progress=progress, **options)
    _reproduced(result, figures, form)


@reproduce.command()
@click.option("--runs", required=True, multiple=True, help="Folder with the runs of TREC-8 ad hoc.")
@click.option("--qrels", required=True, multiple=True, help="Their judgments.")
@click.option(
    "--systems", type=click.File(), help="File with the names of the systems to use, one a line."
)
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
    """Reproduce the TREC-8 experiment, on runs with complete judgments."""
    from evenhand.formats.qrels import read_qrels
    from evenhand.formats.runs import read_runs
    from evenhand.paper.reproduce import reproduce_trec

    names = None if systems is None else systems.read().split()
    with ProgressBar("studies") as progress:
        result = reproduce_trec(
            read_runs(*runs), read_qrels(*qrels), names, progress=progress, **options
        )
    _reproduced(result, figures, form)
