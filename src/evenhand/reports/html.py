"""A report as one HTML file that needs nothing else: no network, no font, no other file.

`render` makes the page from facts, and `write` puts it where it belongs, whole or not at all. Every
text is escaped by the template; a policy in the page (CSP) forbids whatever is not the page's own,
and names its one script by hash.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2

from evenhand.errors import StudyError
from evenhand.reports.drawings import Picture
from evenhand.reports.facts import Facts
from evenhand.reports.methods import BIBTEX, CITATION, LINK, paragraph
from evenhand.reports.report_figures import pictures_of
from evenhand.reports.report_tables import HEADINGS, sheets_of
from evenhand.reports.summary import told_apart
from evenhand.studies.round_files import flush

__all__ = ["check_place", "render", "save_pictures", "write"]

_TEMPLATES = resources.files("evenhand.reports") / "templates"
#: Columns of text that is no name and no number: in a face of fixed width.
_CODE = ("sha256", "pool (sha256)", "seed")


@cache
def _environment() -> jinja2.Environment:
    def load(name: str) -> str | None:
        file = _TEMPLATES / name
        return file.read_text(encoding="utf-8") if file.is_file() else None

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {"number": _number, "heading": lambda name: HEADINGS.get(name, name)}
    made.tests["code"] = lambda name: name in _CODE
    return made


def _shown(value: object) -> object:
    """Text without the characters that no page may hold."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "\ufffd" for c in value
    )


def _number(text: str) -> str:
    """A number with a minus, not a hyphen."""
    return f"\u2212{text[1:]}" if text.startswith("-") and len(text) > 1 else text


def render(facts: Facts, pictures: Mapping[str, Picture] | None = None) -> str:
    """The page.

    Parameters
    ----------
    facts
        Its content.
    pictures
        Of `evenhand.reports.report_figures.pictures_of`, where they are made already.
    """
    pictures = pictures_of(facts) if pictures is None else pictures
    style = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template("report.html")
        .render(
            facts=facts,
            conclusion=facts.conclusion,
            contrasts=told_apart(facts.goal),
            methods=paragraph(facts),
            bibtex=BIBTEX,
            citation=CITATION,
            link=LINK,
            pictures=pictures,
            sheets=sheets_of(facts),
            style=style,
            script=script,
            policy=policy,
        )
    )


def check_place(path: Path) -> None:
    """Refuse a place where no page can be written, before anything is made for it.

    Raises
    ------
    StudyError
        If its folder is missing or cannot be written into, or it is a folder itself.
    """
    if path.is_dir():
        raise StudyError(f"{path} is a folder", hint="name a file: --output report.html")
    if not path.parent.is_dir():
        raise StudyError(f"there is no folder {path.parent}", hint="make it, then run this again")
    if not os.access(path.parent, os.W_OK):
        raise StudyError(
            f"{path.parent} cannot be written into", hint="choose another place with --output"
        )


def write(text: str, path: Path) -> Path:
    """Write a page, which appears whole or not at all; one of that name is replaced.

    Raises
    ------
    StudyError
        If the disk does not take it.
    """
    work = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        work.write_text(text, encoding="utf-8", errors="replace")
        flush(work)
        os.replace(work, path)
        flush(path.parent)
    except OSError as error:
        raise StudyError(
            f"cannot write {path}: {error.strerror or error}; nothing was written",
            hint="free some space, or choose another place with --output",
        ) from error
    finally:
        work.unlink(missing_ok=True)
    return path


def save_pictures(pictures: Mapping[str, Picture], folder: Path) -> list[Path]:
    """Write every picture as SVG, PNG and PDF into a folder, which is made if it is not there.

    Raises
    ------
    StudyError
        If the folder cannot be made.
    EvenhandError
        If a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(
            f"cannot write into {folder}: {error.strerror or error}",
            hint="choose another folder with --figures",
        ) from error
    return [path for picture in pictures.values() for path in picture.save(folder)]
