"""Pictures of results: one function a result, each gives back the axes that it drew on.

Colours are those of Okabe and Ito, which people with any colour vision can distinguish. Figures are
made without pyplot, so nothing is kept open and no window appears; pass ``ax=`` to draw into a
figure of your own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evenhand.errors import EvenhandError
from evenhand.intervals.confidence import percent

if TYPE_CHECKING:
    from evenhand.decisions.planning import Plan
    from evenhand.decisions.ranks import Standings
    from evenhand.estimands.evaluation import Evaluation
    from evenhand.estimands.pools import Pool
    from evenhand.estimation.estimates import Estimate
    from evenhand.intervals.simultaneous import Comparisons
    from evenhand.sampling.samples import Sample
    from evenhand.simulation.simulations import Simulation

__all__ = [
    "figure",
    "plot_comparisons",
    "plot_contrasts",
    "plot_draws",
    "plot_estimate",
    "plot_evaluation",
    "plot_plan",
    "plot_simulation",
    "plot_standings",
    "save",
]

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
SERIES = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = "osD^vP*X"
#: How a name is written: text between two dollars is no mathematics.
_AS_IT_IS: Mapping[str, Any] = {"parse_math": False}


def figure(
    columns: int = 1, *, height: float = 4.0, width: float = 6.4
) -> tuple[Figure, list[Axes]]:
    """Make a figure with axes side by side; sizes in inches, of each."""
    fig = Figure(figsize=(width * columns, height), layout="constrained")
    return fig, [fig.add_subplot(1, columns, i + 1) for i in range(columns)]


def save(ax: Axes, path: str | Path) -> Path:
    """Write the figure of some axes to a file; its ending says the format (png, pdf, svg).

    Raises
    ------
    EvenhandError
        If the format is unknown or the file cannot be written.
    """
    path = Path(path)
    try:
        ax.get_figure(root=True).savefig(path, dpi=150)  # type: ignore[union-attr] - never None here
    except (ValueError, OSError) as error:
        raise EvenhandError(
            f"cannot write the picture {path}: {error}", hint="try a name that ends in .png"
        ) from error
    return path


def _plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=3)


def _axes(ax: Axes | None, rows: int) -> Axes:
    return figure(height=max(2.2, 0.9 + 0.24 * rows))[1][0] if ax is None else ax


def _forest(
    ax: Axes, names, value, low, high, *, colour: str, label: str, width: float = 1.4
) -> np.ndarray:
    """Estimates with intervals, one row each, the largest on top; gives the row of each."""
    row = np.empty(len(value))
    row[np.argsort(np.where(np.isnan(value), -np.inf, value), kind="stable")] = np.arange(
        len(value)
    )
    shown = ~np.isnan(value)
    ax.errorbar(
        value[shown],
        row[shown],
        # What is known exactly may lie outside its interval by a rounding.
        xerr=np.maximum([(value - low)[shown], (high - value)[shown]], 0.0),
        fmt="o",
        color=colour,
        markersize=4,
        linewidth=width,
        capsize=2,
        label=label,
    )
    ax.set_yticks(row, labels=[str(n) for n in names], **_AS_IT_IS)
    ax.set_ylim(-0.7, len(value) - 0.3)
    _plain(ax)
    return row


def plot_estimate(
    estimate: Estimate,
    *,
    truth: np.ndarray | None = None,
    contrasts: bool | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Intervals of systems or contrasts, the best on top.

    Parameters
    ----------
    estimate
        What to show.
    truth
        True values of the same, where they are known.
    contrasts
        Show the contrasts; by default where the goal compares and any is known.
    ax
        Axes to draw on.
    """
    if contrasts is None:  # of systems that came later only bounds of their own are known
        contrasts = estimate.goal.kind != "absolute" and not np.isnan(estimate.contrast_low).all()
    if contrasts:
        names, values = (
            estimate.goal.names,
            (estimate.contrast, estimate.contrast_low, estimate.contrast_high),
        )
    else:
        names, values = estimate.goal.target.systems, (estimate.value, estimate.low, estimate.high)
    ax = _axes(ax, len(names))
    row = _forest(
        ax, names, *values, colour=BLUE, label=f"estimate, {percent(estimate.level)} interval"
    )
    if contrasts:
        ax.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
    if truth is not None:
        ax.plot(
            truth,
            row,
            linestyle="none",
            marker="|",
            color=ORANGE,
            markersize=11,
            markeredgewidth=2,
            label="truth",
        )
    ax.set_xlabel(f"{estimate.goal.target.measure}{', difference' if contrasts else ''}")
    ax.set_title(f"{estimate.n_judged:,} judged pairs", loc="left", fontsize="medium")
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return ax


def plot_comparisons(comparisons: Comparisons, *, ax: Axes | None = None) -> Axes:
    """Every pair as a square: colour says by how many standard errors the row beats the column.

    Systems stand in the order of their mean difference to the others, the best on top. A dot marks
    a pair that is decided, all pairs taken together; a grey square one that is not covered.
    """
    k = len(comparisons.systems)
    first, second = np.triu_indices(k, 1)
    size = comparisons.std_error > 0
    ratio = np.where(size, comparisons.value / np.where(size, comparisons.std_error, 1.0), 0.0)
    table, decided = np.zeros((k, k)), np.zeros((k, k), bool)
    table[first, second], table[second, first] = ratio, -ratio
    decided[first, second] = decided[second, first] = comparisons.decided
    order = np.argsort(-np.nan_to_num(table).mean(1), kind="stable")
    table, decided = table[np.ix_(order, order)], decided[np.ix_(order, order)]
    side = max(3.0, 1.2 + 0.22 * k)
    ax = figure(height=side, width=side * 1.15)[1][0] if ax is None else ax
    ax.set_facecolor("#DDDDDD")
    image = ax.imshow(np.ma.masked_invalid(table), cmap="PuOr_r", vmin=-5, vmax=5)
    row, column = np.nonzero(decided)
    dot = {"markerfacecolor": "white", "markeredgecolor": "black", "markeredgewidth": 0.5}
    ax.plot(column, row, linestyle="none", marker="o", markersize=2.5, **dot)
    names = [comparisons.systems[j] for j in order]
    ax.set_xticks(np.arange(k), labels=names, rotation=90, fontsize="small", **_AS_IT_IS)
    ax.set_yticks(np.arange(k), labels=names, fontsize="small", **_AS_IT_IS)
    bar = ax.get_figure(root=True).colorbar(image, ax=ax, shrink=0.8, extend="both")  # type: ignore[union-attr] - never None here
    bar.set_label("row minus column, in standard errors", fontsize="small")
    ax.set_title(
        f"dot: decided at {percent(comparisons.level)}, all pairs together", fontsize="medium"
    )
    return ax


def plot_contrasts(comparisons: Comparisons, *, ax: Axes | None = None) -> Axes:
    """Contrasts with the interval of each alone, and thin behind it the one that holds all."""
    ax = _axes(ax, len(comparisons.names))
    value, level, names = comparisons.value, percent(comparisons.level), comparisons.names
    together, own = f"all together, {level}", f"each alone, {level}"
    ends = (comparisons.low_all, comparisons.high_all)
    _forest(ax, names, value, *ends, colour=GREY, label=together, width=0.8)
    ends = (comparisons.low, comparisons.high)
    row = _forest(ax, names, value, *ends, colour=BLUE, label=own, width=2.4)
    sure = comparisons.decided
    ax.plot(value[sure], row[sure], "o", color=ORANGE, markersize=4, zorder=4, label="decided")
    ax.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_xlabel("difference")
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return ax


def plot_draws(sample: Sample, pool: Pool, *, ax: Axes | None = None) -> Axes:
    """Where the judgments went: the share of pairs drawn, by their best rank in any system."""
    ax = figure()[1][0] if ax is None else ax
    best = np.minimum.reduceat(pool.rank, pool.start[:-1])
    edges = np.unique(np.geomspace(1, best.max() + 1, 13).round().astype(int))
    there, _ = np.histogram(best, edges)
    drawn, _ = np.histogram(best[sample.cells], edges)
    share = drawn / np.where(there > 0, there, 1)
    middle = np.arange(len(there))
    ax.bar(middle, share, color=BLUE, width=0.85)
    for x, count, height in zip(middle, drawn, share, strict=True):
        ax.annotate(
            f"{count:,}", (x, height), ha="center", va="bottom", fontsize="x-small", color=GREY
        )
    labels = [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in itertools.pairwise(edges)]
    ax.set_xticks(
        middle, labels=labels, rotation=45, ha="right", rotation_mode="anchor", fontsize="small"
    )
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_xlabel("best rank of the pair in any system")
    ax.set_ylabel("share of these pairs drawn")
    ax.set_title(
        f"Where {len(sample.cells):,} of {len(pool):,} pairs were drawn",
        loc="left",
        fontsize="medium",
    )
    _plain(ax)
    return ax


def plot_evaluation(evaluation: Evaluation, *, measure: int = 0, ax: Axes | None = None) -> Axes:
    """Values of the systems in one measure, the best on top."""
    value = evaluation.value[measure]
    ax = _axes(ax, len(value))
    order = np.argsort(value, kind="stable")
    ax.plot(value[order], np.arange(len(value)), "o", color=BLUE, markersize=4)
    names = [evaluation.systems[j] for j in order]
    ax.set_yticks(np.arange(len(value)), labels=names, **_AS_IT_IS)
    ax.set_xlabel(str(evaluation.measures[measure]))
    _plain(ax)
    return ax


def plot_simulation(
    simulation: Simulation, *, column: str = "rmse", ax: Axes | None = None
) -> Axes:
    """One column of a simulation against the budget, a line for each design and sampler."""
    ax = figure()[1][0] if ax is None else ax
    lines: Mapping[tuple[str, str], list[tuple[float, float]]] = {}
    for row in simulation.rows:
        lines.setdefault((row["design"], row["sampler"]), []).append((row["budget"], row[column]))
    samplers = {sampler for _, sampler in lines}
    for i, ((design, sampler), points) in enumerate(lines.items()):
        label = design if len(samplers) == 1 else f"{design}, {sampler}"
        ax.plot(
            *np.array(points).T,
            color=SERIES[i % len(SERIES)],
            marker=MARKERS[i % len(MARKERS)],
            markersize=4,
            linewidth=1.4,
            label=label,
        )
    ax.set_xscale("log")
    budgets = sorted({row["budget"] for row in simulation.rows})
    ax.set_xticks(budgets, labels=[f"{b:,}" for b in budgets])
    ax.minorticks_off()
    if column == "rmse":
        ax.set_yscale("log")
    ax.set_xlabel("pairs drawn")
    ax.set_ylabel({"rmse": "RMSE", "tau": "Kendall tau"}.get(column, column))
    ax.set_title(f"{simulation.measure}, goal {simulation.goal}", loc="left", fontsize="medium")
    ax.legend(frameon=False, fontsize="small")
    _plain(ax)
    return ax


def plot_plan(plan: Plan, *, ax: Axes | None = None) -> Axes:
    """Half-width against the number of further judgments, and what is needed.

    Parameters
    ----------
    plan
        What to show.
    ax
        Axes to draw on.
    """
    ax = figure()[1][0] if ax is None else ax
    judgments, width = plan.columns["judgments"], plan.columns["half_width"]
    ax.plot(judgments, width, "o-", color=BLUE, markersize=4, label="expected half-width")
    ax.axhline(plan.floor, color=GREY, linewidth=0.8, linestyle=":", label="all pairs judged")
    if plan.needed is not None:
        ax.axvline(plan.needed, color=ORANGE, linewidth=1.2, label=f"needed: {plan.needed:,}")
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("further judgments")
    ax.set_ylabel(f"half-width of {percent(plan.level)} intervals")
    ax.set_title(plan.question, fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    _plain(ax)
    return ax


def plot_standings(standings: Standings, *, ax: Axes | None = None) -> Axes:
    """Rank intervals, the best on top, and each system's chance to be the best.

    Parameters
    ----------
    standings
        What to show.
    ax
        Axes to draw on.
    """
    k = len(standings.systems)
    ax = _axes(ax, k)
    row = np.arange(k)[::-1]
    ax.hlines(row, standings.first - 0.3, standings.last + 0.3, color=BLUE, linewidth=5, alpha=0.35)
    ax.plot(np.arange(1, k + 1), row, "o", color=BLUE, markersize=4)
    for at, last, chance in zip(row, standings.last, standings.best, strict=True):
        if chance >= 0.005:
            ax.annotate(f"{chance:.0%}", (last + 0.45, at), fontsize=8, va="center", color=ORANGE)
    ax.set_yticks(row, labels=list(standings.systems), **_AS_IT_IS)
    ax.set_ylim(-0.7, k - 0.3)
    ax.set_xlim(0.4, k + 1.4)
    ax.set_xlabel(
        f"rank: all intervals together at {percent(standings.level)}; "
        "chance to be the best (joint normal) in colour"
    )
    _plain(ax)
    return ax
