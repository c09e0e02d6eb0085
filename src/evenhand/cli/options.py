"""The options and arguments that several commands share, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click

from evenhand.studies.options import MethodName, QuestionName

__all__ = [
    "BASELINE",
    "FORMAT",
    "GOAL",
    "LEVEL",
    "MEASURE",
    "METHOD",
    "NEGATIVE",
    "ORDER",
    "QUERIES",
    "QUESTION",
    "RUNS",
    "SEED",
    "SEED_0",
    "STUDY",
    "GradeNames",
    "Names",
    "Numbers",
    "plot_option",
    "signals_option",
]

QUESTION = click.option(
    "--for",
    "question",
    type=click.Choice(get_args(QuestionName)),
    default="queries",
    show_default=True,
    help="Intervals for this set of queries, or for a population of queries like these.",
)
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "latex"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
MEASURE = click.option(
    "-m",
    "--measure",
    required=True,
    help="Measure, such as P@10, DCG@100, RBP(p=0.8), nDCG@10, AP, R@100, MAE, Swaps.",
)
ORDER = click.option(
    "--order",
    type=click.Choice(["score", "rank"]),
    default="score",
    show_default=True,
    help="Order documents by score, as trec_eval does, or by the rank column.",
)
NEGATIVE = click.option(
    "--negative",
    type=click.Choice(["unjudged", "zero", "keep"]),
    default="unjudged",
    show_default=True,
    help="How to read grades below 0.",
)
LEVEL = click.option(
    "--level", type=float, default=0.95, show_default=True, help="Confidence level."
)
SEED = click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of the draw; recorded.")
SEED_0 = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
GOAL = click.option(
    "--goal",
    type=click.Choice(["absolute", "pair", "baseline", "rank", "best", "order"]),
    default="rank",
    show_default=True,
    help="What to compare: each system by itself (absolute), two systems (pair), all with a "
    "baseline, or all with each other (rank). best and order also rank, and spend later rounds on "
    "undecided pairs.",
)
BASELINE = click.option(
    "--baseline", metavar="SYSTEM", help="Baseline system, for the goal baseline."
)
QUERIES = click.option(
    "--queries",
    type=click.Path(exists=True, dir_okay=False),
    help="Queries to use: a file with one id a line, 'qid text', or qrels.",
)
METHOD = click.option(
    "--method",
    type=click.Choice(get_args(MethodName)),
    default="laplace",
    show_default=True,
    help="How to fit the model that learns from judgments.",
)
RUNS = click.argument("runs", nargs=-1, required=True, metavar="RUN...")
STUDY = click.argument("study", type=click.Path(), metavar="STUDY")


def signals_option(purpose: str) -> Callable[..., Any]:
    """The option for files of signals, with their purpose."""
    return click.option(
        "--signals",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help=f"Signals {purpose}: lines of qid, docid, value, such as LLM labels. Repeatable.",
    )


def plot_option(text: str) -> Callable[..., Any]:
    """A file for a picture, and the help that says of what."""
    return click.option("--plot", type=click.Path(dir_okay=False), help=text)


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


class GradeNames(click.ParamType):
    """Grades with what each is called, like ``0=not relevant,1=relevant``."""

    name = "GRADE=TEXT,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Split and convert."""
        if not isinstance(value, str):
            return value
        found = {}
        for part in value.split(","):
            grade, equals, text = part.partition("=")
            try:
                found[float(grade)] = text.strip()
            except ValueError:
                equals = ""
            if not equals or not text.strip():
                self.fail(f"expected '0=not relevant,1=relevant', got {part!r}", param, ctx)
        return found
