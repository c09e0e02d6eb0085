"""What a command shows: results on stdout; notes, errors and progress on stderr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from evenhand.errors import EvenhandError

__all__ = ["Commands", "ProgressBar", "show", "show_notes"]


class Commands(click.Group):
    """Turns an error of the library into what is wrong and, on a second line, what to do."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
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


def show_notes(notes: Sequence[str]) -> None:
    """What the user should know."""
    for note in notes:
        _tell("note", note, "cyan")


def show(result: Any, form: str) -> None:
    """A result in the form asked for, and its notes."""
    click.echo(result.render(form), nl=False)
    show_notes(result.notes_shown())


class ProgressBar:
    """A progress bar on stderr, silent where that is no terminal."""

    def __init__(self, what: str) -> None:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self.bar = progress.Progress(
            progress.TextColumn(what),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
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
