"""The command line: each command one library call of the same name and words.

The only modules that print or exit. Results go to stdout, progress and notes to stderr; exit status
0 is done, 1 failed, 2 misused. Imports that take long wait until a command needs them.
"""

from __future__ import annotations

import importlib.metadata

import click

from evenhand.cli import guides, research, studies
from evenhand.cli.console import Commands, keep_compiled

__all__ = ["main"]


@click.group(
    cls=Commands,
    commands=[
        studies.new,
        studies.add,
        studies.draw,
        studies.judge,
        studies.estimate,
        studies.plan,
        studies.export,
        studies.serve,
        studies.report,
        research.demo,
        research.evaluate,
        research.simulate,
        research.certify,
        research.reproduce,
        guides.guide,
    ],
    context_settings={"help_option_names": ["-h", "--help"]},
)
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

    `evenhand demo` shows all of it on synthetic data; `evenhand help` lists the guides. For shell
    completion, put
    eval "$(_EVENHAND_COMPLETE=bash_source evenhand)" into ~/.bashrc (or zsh_source, fish_source).
    """  # noqa: D301 - click wants the backspace itself
    keep_compiled()
