"""The guides, printed: Markdown files beside the package's modules."""

from __future__ import annotations

import importlib.resources

import click

from evenhand.errors import EvenhandError

__all__ = ["guide", "topics"]

_FOLDER = importlib.resources.files("evenhand") / "guides"


def topics() -> dict[str, str]:
    """The title of each guide, by topic."""
    files = (path for path in _FOLDER.iterdir() if path.name.endswith(".md"))
    return {
        path.name.removesuffix(".md"): path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        for path in sorted(files, key=lambda path: path.name)
    }


@click.command("help")
@click.argument("topic", required=False)
def guide(topic: str | None) -> None:
    """Print a guide, or the list of all guides."""
    known = topics()
    if topic is None:
        width = max(map(len, known))
        click.echo("".join(f"{name:{width}}  {title}\n" for name, title in known.items()), nl=False)
        return
    if topic not in known:
        raise EvenhandError(f"there is no guide {topic!r}", hint=f"guides: {', '.join(known)}")
    text = (_FOLDER / f"{topic}.md").read_text(encoding="utf-8")
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        from rich.markdown import Markdown

        console.print(Markdown(text))
    else:
        click.echo(text, nl=False)
