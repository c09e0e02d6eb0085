"""A drawing of matplotlib as a picture on a page, or as files.

On a page it is SVG with the page's own fonts, and with colours that follow the page's theme: each
colour of `evenhand.reports.plots` becomes a variable of the style sheet. Names are shown as they
are, never read as mathematics or as markup, and long ones are cut in the middle.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.figure import Figure

from evenhand.reports.plots import BLUE, GREEN, GREY, ORANGE, save

__all__ = ["COLOURS", "LONGEST", "TEXT", "Picture", "drawing", "shortened", "width"]

#: Colours of `evenhand.reports.plots`, and the page's names of them.
COLOURS = {
    BLUE: "blue",
    ORANGE: "orange",
    GREEN: "green",
    GREY: "muted",
    "#CC79A7": "rose",
    "#E69F00": "amber",
    "#56B4E9": "sky",
    "#000000": "ink",
    "#FFFFFF": "ground",
}
#: Size of text, in points, and columns of a name.
TEXT, LONGEST = 8.5, 26
#: Fonts for scripts that matplotlib's own lacks, where the machine has them.
_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "PingFang SC",
    "Microsoft YaHei",
    "WenQuanYi Micro Hei",
    "Noto Naskh Arabic",
    "Noto Sans Arabic",
    "Geeza Pro",
    "Arial",
)


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """One picture.

    Attributes
    ----------
    name
        Of its files, without an ending.
    alt
        What it shows, for readers who cannot see it.
    figure
        The drawing.
    """

    name: str
    alt: str
    figure: Figure

    def svg(self) -> str:
        """An ``svg`` element for a page: its names are unique, and it loads nothing."""
        out = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with drawing():
            self.figure.savefig(out, format="svg", transparent=True, metadata=nothing)
        text = out.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
        # It would hold for the whole page.
        text = re.sub(r"<style[^>]*>.*?</style>\s*", "", text, flags=re.S)
        head, body = text.split(">", 1)
        box = re.search(r'viewBox="([^"]+)"', head)
        assert box is not None
        body = re.sub(r"<g id=[^>]*/>\s*", "", body)
        # Within tags alone: what a name holds stays as it is.
        body = re.sub(r"<[^>]*>", self._tag, body)
        return f'<svg viewBox="{box[1]}" aria-hidden="true">{body}'

    def _tag(self, found: re.Match[str]) -> str:
        tag = re.sub(r'\bid="([^"]+)"', rf'id="{self.name}-\1"', found[0])
        tag = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{self.name}-\1"', tag)
        tag = re.sub(r"url\(#([^)]+)\)", rf"url(#{self.name}-\1)", tag)
        tag = _TEXT.sub(_own_font, tag)
        for colour, name in COLOURS.items():
            tag = re.sub(rf"(?<=: ){colour}\b", f"var(--{name})", tag, flags=re.I)
        return tag

    def save(self, folder: Path) -> list[Path]:
        """Write it as SVG, PNG and PDF."""
        with drawing():
            ax = self.figure.axes[0]
            return [save(ax, folder / f"{self.name}.{e}") for e in ("svg", "png", "pdf")]


#: The style of a text, in which some versions name size and family apart, and some together.
_TEXT = re.compile(r'style="([^"]*\bfont[^"]*)"')


def _own_font(found: re.Match[str]) -> str:
    """The style without a family, so that the page's is taken."""
    size = re.search(r"([\d.]+)px", found[1])
    parts = [part.strip() for part in found[1].split(";")]
    rest = [part for part in parts if part and not part.startswith("font")]
    kept = "; ".join([f"font-size: {size[1] if size else TEXT}px", *rest])
    return f'style="{kept}"'


@contextmanager
def drawing() -> Iterator[None]:
    """Text as text, the same bytes for the same facts, and no complaint of a missing glyph."""
    known = {font.name for font in font_manager.fontManager.ttflist}
    options: Any = {
        "font.family": ["DejaVu Sans", *(name for name in _FONTS if name in known)],
        "font.size": TEXT,
        "axes.titlesize": TEXT,
        "axes.linewidth": 0.7,
        "xtick.major.width": 0.7,
        "ytick.major.width": 0.7,
        "svg.fonttype": "none",
        "svg.hashsalt": "evenhand",
        "text.parse_math": False,
        "path.simplify": False,
    }
    with mpl.rc_context(options), warnings.catch_warnings():
        # On a page the reader's own fonts show it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def width(text: str) -> int:
    """Columns that a text takes; letters of Chinese, Japanese and Korean take two."""
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def shortened(name: str, most: int = LONGEST) -> str:
    """A name of at most so many columns, cut in the middle; without characters that do not show.

    >>> shortened("bm25"), shortened("a" * 30 + "-v2", most=10)
    ('bm25', 'aaaaa…a-v2')
    """
    name = "".join(c if unicodedata.category(c) not in ("Cc", "Cs", "Co") else "�" for c in name)
    if width(name) <= most:
        return name
    head, tail = "", ""
    for c in name:
        if width(head + c) > (most - 1 + 1) // 2:
            break
        head += c
    for c in reversed(name):
        if width(head + c + tail) > most - 1:
            break
        tail = c + tail
    return f"{head}…{tail}"
