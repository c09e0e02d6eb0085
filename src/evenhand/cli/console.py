"""What a command shows, and what it keeps for the next.

Results go to stdout; notes, errors and progress to stderr. What JAX compiled for one command is
kept for the next: half of a short command's time.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import click

from evenhand.errors import EvenhandError

__all__ = ["Commands", "ProgressBar", "keep_compiled", "show", "show_notes"]

#: Settings of JAX, unless the user has set them.
KEPT = {
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(1 << 28),  # bytes; what was used least goes first
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def keep_compiled() -> None:
    """Tell JAX, which is not imported yet, to keep what it compiles in the user's cache folder.

    By machine, since compiled code is of one processor. A user who names a folder of his own
    (``JAX_COMPILATION_CACHE_DIR``) is left alone; where none can be written, nothing is kept.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    from platformdirs import user_cache_path

    folder = user_cache_path("evenhand") / (platform.node() or "here")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(folder, os.W_OK):
        return
    # An entry that a killed process left half written costs a compilation, and is no news.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    for name, value in KEPT.items():
        os.environ.setdefault(name, value)


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
