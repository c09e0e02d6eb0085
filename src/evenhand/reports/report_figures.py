"""Pictures of a study's facts: `pictures_of` draws what there is to draw.

The functions below it draw one each, in the colours of `evenhand.reports.plots`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from evenhand.reports.calibration import Calibration
from evenhand.reports.drawings import LONGEST, TEXT, Picture, drawing, shortened, width
from evenhand.reports.facts import Facts, Look, Places, Weights
from evenhand.reports.plots import BLUE, GREEN, GREY, MARKERS, ORANGE, plot_contrasts, plot_estimate
from evenhand.reports.summary import told_apart

__all__ = ["pictures_of", "plot_calibrations", "plot_looks", "plot_places", "plot_weights"]

_SERIES = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000", GREY)
#: Series that can be distinguished in a picture.
MOST = 8
#: Width of a picture and height of a row, in inches.
WIDTH, ROW = 7.2, 0.2


def _room(names: Iterable[str]) -> float:
    """Inches that the widest of some names takes in whatever font, and a little air."""
    return 0.15 + 0.08 * max(map(width, names), default=8)


def _axes(
    rows: float, names: Sequence[str] = (), *, columns: int = 1, across: float = WIDTH, below=0.55
) -> tuple[Figure, list[Axes]]:
    """Axes with space for names on the left, each `rows` high; sizes do not hang on fonts."""
    left = _room(shortened(n) for n in names)
    height = rows + below + 0.35
    fig = Figure(figsize=(across, height))
    gap, right = 0.25, 0.15
    each = (across - left - right - gap * (columns - 1)) / columns
    axes = [
        fig.add_axes(
            ((left + i * (each + gap)) / across, below / height, each / across, rows / height)
        )
        for i in range(columns)
    ]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(length=3)
    return fig, axes


def _relabel(ax: Axes, most: int = LONGEST) -> None:
    """Rows by shortened names."""
    names = [shortened(label.get_text(), most) for label in ax.get_yticklabels()]
    ax.set_yticks(ax.get_yticks(), labels=names)
    if len(names) > 1:
        ax.set_ylim(-0.7, len(names) - 0.3)


def _legend(ax: Axes) -> None:
    """Above the drawing, where nothing can be hidden by it."""
    figure = ax.get_figure(root=True)
    assert figure is not None  # it was drawn
    height = ax.get_position().height * figure.get_figheight()
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(
        handles,
        labels,
        frameon=False,
        fontsize=TEXT,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0, 1.0, 0.1 / height),
        ncols=3,
        borderaxespad=0.2,
        handletextpad=0.5,
        columnspacing=1.5,
    )


def _systems(facts: Facts) -> Picture:
    found = facts.estimate
    assert found is not None
    fig, (ax,) = _axes(ROW * (len(facts.systems) + 0.8), facts.systems)
    plot_estimate(found, contrasts=False, ax=ax)
    _relabel(ax)
    ax.set_title("", loc="left")
    ax.set_xlabel(_unit(facts))
    _legend(ax)
    return Picture("systems", f"{facts.measure} of each system with its interval", fig)


def _unit(facts: Facts, of: str = "") -> str:
    better = "" if facts.goal.target.sign > 0 else " (lower is better)"
    return f"{of}{facts.measure}{better}"


def _contrasts(facts: Facts) -> Picture:
    assert facts.compared is not None
    apart = told_apart(facts.goal)
    compared = replace(facts.compared, names=tuple(apart[name] for name in facts.compared.names))
    names = [shortened(name, 40) for name in compared.names]
    fig, (ax,) = _axes(ROW * (len(names) + 0.8))
    left = _room(names) / WIDTH
    place = ax.get_position()
    ax.set_position((left, place.y0, 1 - 0.15 / WIDTH - left, place.height))
    plot_contrasts(compared, ax=ax)
    _relabel(ax, 40)
    ax.set_xlabel(_unit(facts, "difference in "))
    _legend(ax)
    return Picture("contrasts", "each contrast with its interval, alone and all together", fig)


def plot_looks(looks: Sequence[Look], *, contrasts: bool, sign: int = 1) -> Figure:
    """Estimates after each round with their intervals, against the pairs judged by then.

    With more systems than can be distinguished, the best are in colour and the others grey.
    """
    last = looks[-1].estimate
    prefix = "contrast_" if contrasts else ""
    names = last.goal.names if contrasts else last.goal.target.systems
    value, low, high = (
        np.array([getattr(look.estimate, name) for look in looks])
        for name in ("contrast" if contrasts else "value", f"{prefix}low", f"{prefix}high")
    )
    judged = np.array([look.estimate.n_judged for look in looks], float)
    merit = np.where(np.isnan(value[-1]), -np.inf, sign * value[-1])
    order = np.argsort(-merit, kind="stable")
    shown = order[:MOST]
    fig, (ax,) = _axes(2.9, below=0.5)
    measure = last.goal.target.measure
    ax.set_ylabel(f"difference in {measure}" if contrasts else str(measure))
    for j in order[MOST:]:
        ax.plot(judged, value[:, j], color=GREY, linewidth=0.7, alpha=0.35)
    step = 0.012 * (np.ptp(judged) or 1.0)
    for i, j in enumerate(shown):
        at = judged + (i - (len(shown) - 1) / 2) * step
        ax.errorbar(
            at,
            value[:, j],
            yerr=np.maximum([value[:, j] - low[:, j], high[:, j] - value[:, j]], 0.0),
            color=_SERIES[i],
            marker=MARKERS[i],
            markersize=4,
            linewidth=1.2,
            elinewidth=0.9,
            label=shortened(names[j]),
        )
    if contrasts:
        ax.axhline(0, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_xticks(judged, labels=[f"{int(n):,}" for n in judged])
    ax.set_xlabel("pairs judged")
    place = ax.get_position()
    legend = (0.4 + _room(shortened(names[j]) for j in shown)) / WIDTH
    ax.set_position((0.075, place.y0, 0.925 - legend, place.height))
    ax.legend(frameon=False, fontsize=TEXT, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def plot_places(places: Places) -> Figure:
    """Draws, and the share of pairs that are judged, by system and rank: one row a system."""
    k, bins = places.drawn.shape
    fig, axes = _axes(ROW * k, places.systems, columns=2, below=0.75)
    share = places.judged / np.where(places.returned > 0, places.returned, 1)
    per_rank = places.drawn / np.maximum(np.diff(places.edges), 1)
    both = (
        (per_rank, places.drawn, f"draws; darkest: {per_rank.max():.0f} a rank", "{:,}".format),
        (share, share, f"share of pairs judged; darkest: {share.max():.0%}", "{:.0%}".format),
    )
    for ax, (strength, numbers, title, text) in zip(axes, both, strict=True):
        most = float(strength.max()) or 1.0
        _squares(ax, strength / most, places.returned > 0)
        if k <= 40:
            for s, b in np.argwhere(places.returned > 0):
                ax.text(
                    b,
                    s,
                    text(numbers[s, b]),
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    color="#000000",
                )
        slanted = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(range(bins), labels=places.bins, **slanted)
        ax.set_xlim(-0.5, bins - 0.5)
        ax.set_ylim(k - 0.5, -0.5)
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        ax.set_title(title, loc="left")
        ax.set_xlabel("rank in the system’s result")
    axes[0].set_yticks(range(k), labels=[shortened(name) for name in places.systems])
    axes[1].set_yticks([])
    return fig


def _by_merit(facts: Facts) -> Places:
    """The places with the best system on top, where it is known which that is."""
    places, found = facts.places, facts.estimate
    if found is None:
        return places
    merit = np.where(np.isnan(found.value), -np.inf, facts.goal.target.sign * found.value)
    order = np.argsort(-merit, kind="stable")
    names = tuple(places.systems[j] for j in order)
    tables = (x[order] for x in (places.returned, places.drawn, places.judged))
    return Places(names, places.edges, *tables)


def _squares(ax: Axes, strength: np.ndarray, there: np.ndarray) -> None:
    """A square a number from 0 to 1: one colour, more or less of it, on whatever ground."""
    for s, b in np.argwhere(there):
        ax.add_patch(
            Rectangle(
                (b - 0.47, s - 0.44),
                0.94,
                0.88,
                facecolor=BLUE,
                alpha=0.05 + 0.5 * float(strength[s, b]),
                linewidth=0,
            )
        )


def plot_weights(weights: Weights) -> Figure:
    """How many draws have which importance weight, in units of the mean weight."""
    fig, (ax,) = _axes(2.0, below=0.5)
    place = ax.get_position()
    ax.set_position((0.075, place.y0, 0.9, place.height))
    size = weights.size[weights.size > 0]
    low, high = (float(size.min()), float(size.max())) if len(size) else (0.5, 2.0)
    if high / low < 1.2:
        low, high = low / 1.2, high * 1.2
    edges = np.geomspace(low, high * (1 + 1e-9), 31)
    count, _ = np.histogram(size, edges)
    ax.bar(edges[:-1], count, np.diff(edges), align="edge", color=BLUE, linewidth=0, alpha=0.85)
    ax.axvline(1.0, color=ORANGE, linewidth=1.2, label="mean weight")
    ax.set_xscale("log")
    ticks = [t for t in 10.0 ** np.arange(-6, 7) if low <= t <= high]
    if len(ticks) < 2:
        ticks = [t * m for t in 10.0 ** np.arange(-6, 7) for m in (1, 2, 5) if low <= t * m <= high]
    ax.set_xticks(ticks, labels=[f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("importance weight of a draw, mean = 1")
    ax.set_ylabel("draws")
    _legend(ax)
    return fig


def plot_calibrations(calibrations: Sequence[Calibration]) -> Figure:
    """Observed against predicted mean utility by bin, with what the model would allow."""
    fig, (ax,) = _axes(3.2, across=4.6, below=0.5)
    place = ax.get_position()
    ax.set_position((0.13, place.y0, 0.83, place.height))
    top = 0.0
    for i, one in enumerate(calibrations[-MOST:]):
        colour = _SERIES[i % len(_SERIES)]
        ax.vlines(one.predicted, one.low, one.high, color=colour, linewidth=5, alpha=0.25)
        ax.plot(
            one.predicted,
            one.observed,
            color=colour,
            marker=MARKERS[i % len(MARKERS)],
            markersize=4.5,
            linestyle="none",
            label=one.round,
        )
        top = max(top, float(one.high.max()), float(one.observed.max()))
    ax.plot([0, top], [0, top], color=GREY, linewidth=0.8, linestyle=":")
    ax.set_xlabel("predicted utility")
    ax.set_ylabel("observed utility")
    _legend(ax)
    return fig


def pictures_of(facts: Facts) -> dict[str, Picture]:
    """Every picture that there is something to draw for, by name."""
    made: list[Callable[[], Picture]] = []
    found = facts.estimate
    if found is not None and not np.isnan(found.value).all():
        made.append(lambda: _systems(facts))
    if found is not None and facts.comparative and not np.isnan(found.contrast).all():
        made.append(lambda: _contrasts(facts))
    if len(facts.looks) > 1:
        made.append(
            lambda: Picture(
                "looks",
                "estimates after each round with their intervals",
                plot_looks(facts.looks, contrasts=facts.comparative, sign=facts.goal.target.sign),
            )
        )
    if facts.rounds:
        alt = "draws, and share of pairs judged, by system and rank"
        made.append(lambda: Picture("places", alt, plot_places(_by_merit(facts))))
    if facts.weights is not None and len(facts.weights.size):
        weights = facts.weights
        alt = "distribution of the importance weights of the draws"
        made.append(lambda: Picture("weights", alt, plot_weights(weights)))
    if facts.calibrations:
        alt = "observed against predicted utility by bin"
        made.append(lambda: Picture("calibration", alt, plot_calibrations(facts.calibrations)))
    with drawing():
        return {picture.name: picture for picture in (make() for make in made)}
