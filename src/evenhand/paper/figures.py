"""The paper's figures: how often the answer is right, against judgments a query."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from evenhand.paper.rows import Curve
from evenhand.reports.plots import BLUE, GREY, MARKERS, ORANGE

__all__ = ["plot_curves"]

#: Inches: one column of a two-column page.
WIDTH, HEIGHT = 3.4, 2.4


def plot_curves(curves: Sequence[Curve], *, ax: Axes | None = None) -> Axes:
    """Curves of one quantity, one line a design, with bands of 95 % Monte Carlo error.

    Parameters
    ----------
    curves
        Of the same quantity.
    ax
        Axes to draw on; by default those of a new figure as wide as a column.
    """
    if ax is None:
        ax = Figure(figsize=(WIDTH, HEIGHT), layout="constrained").add_subplot()
    colours = {"naive": GREY, "Q*": BLUE}
    for i, curve in enumerate(curves):
        colour = colours.get(curve.design, ORANGE)
        label = r"$Q^*$" if curve.design == "Q*" else curve.design
        ax.plot(
            curve.per_query,
            curve.value,
            color=colour,
            marker=MARKERS[i],
            markersize=3.5,
            linewidth=1.3,
            linestyle="-" if curve.design == "Q*" else "--",
            label=label,
        )
        band = 1.96 * curve.std_error
        ax.fill_between(
            curve.per_query,
            curve.value - band,
            curve.value + band,
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
    first = curves[0]
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(list(first.per_query)))
    ax.xaxis.set_minor_locator(NullLocator())
    # Short enough to stand side by side in one column.
    ax.set_xticklabels([f"{x:g}".lstrip("0") for x in first.per_query])
    ax.tick_params(labelsize=7, length=2.5)
    ax.set_xlabel("judgments per query", fontsize=8)
    ax.set_ylabel(first.quantity, fontsize=8)
    lowest = min(float(curve.value.min()) for curve in curves)
    ax.set_ylim(max(0.0, lowest - 0.05), 1.02)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
