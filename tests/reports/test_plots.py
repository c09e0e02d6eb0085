"""Pictures: what is drawn is what the result says, and the axes are given back."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import evenhand as eh
from evenhand.decisions.planning import Plan
from evenhand.reports import plots
from evenhand.simulation import make_collection


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    make_collection(folder, seed=2, n_queries=8, n_documents=60)
    runs, qrels = eh.read_runs(folder / "runs"), eh.read_qrels(folder / "qrels.txt")
    pool = eh.pool(runs, depth=10)
    target = eh.target(pool, "DCG@10")
    goal = eh.rank(target)
    sample = eh.draw(jax.random.key(0), eh.design(goal, eh.rank_utility(pool)), 120)
    answer = eh.estimate(goal, [eh.judge(target, sample, qrels)])
    complete = eh.evaluate(runs, qrels, "DCG@10")
    return SimpleNamespace(pool=pool, sample=sample, answer=answer, complete=complete)


def test_intervals_are_where_the_estimate_has_them(world):
    answer = world.answer
    ax = plots.plot_estimate(answer, truth=answer.contrast)
    (bars,) = ax.containers
    order = [answer.goal.names.index(label.get_text()) for label in ax.get_yticklabels()]
    points = dict(zip(bars.lines[0].get_ydata(), bars.lines[0].get_xdata(), strict=True))
    assert sorted(points.values()) == pytest.approx(sorted(answer.contrast))
    (segments,) = bars.lines[2]
    ends = {s[0, 1]: (s[0, 0], s[1, 0]) for s in segments.get_segments()}
    for place, j in zip(ax.get_yticks(), order, strict=True):
        assert points[place] == answer.contrast[j]
        assert ends[place] == pytest.approx((answer.contrast_low[j], answer.contrast_high[j]))
    # The best is on top.
    assert points[len(order) - 1] == answer.contrast.max()
    assert ax.get_xlabel() == "DCG@10, difference"


def test_names_are_no_mathematics(world, tmp_path):
    answer = world.answer
    target = SimpleNamespace(systems=[f"$\\x{j}$" for j in range(7)], measure="DCG@10")
    goal = SimpleNamespace(kind="absolute", target=target)
    ends = {"value": answer.value, "low": answer.low, "high": answer.high}
    shown = SimpleNamespace(goal=goal, level=0.95, n_judged=120, **ends)
    standings = replace(eh.ranking(answer), systems=tuple(target.systems))
    compared = replace(answer.pairs, systems=tuple(target.systems))
    for ax in (
        plots.plot_estimate(shown),
        plots.plot_standings(standings),
        plots.plot_comparisons(compared),
    ):
        assert plots.save(ax, tmp_path / "a.png").stat().st_size > 5000
        assert "$\\x3$" in [label.get_text() for label in ax.get_yticklabels()]


def test_systems_instead_of_contrasts(world):
    ax = plots.plot_estimate(world.answer, contrasts=False)
    assert {label.get_text() for label in ax.get_yticklabels()} == set(world.pool.systems)
    assert ax.get_xlabel() == "DCG@10"


def test_a_system_without_an_estimate_has_a_row_and_no_point(world):
    answer = world.answer
    unknown = np.where(np.arange(len(answer.value)) == 2, np.nan, answer.value)
    holes = SimpleNamespace(
        goal=answer.goal, level=0.95, n_judged=120, value=unknown, low=unknown, high=unknown
    )
    ax = plots.plot_estimate(holes, contrasts=False)
    (bars,) = ax.containers
    assert len(bars.lines[0].get_xdata()) == len(unknown) - 1
    assert len(ax.get_yticks()) == len(unknown)


def test_comparisons_are_antisymmetric_and_dots_mark_what_is_decided(world):
    pairs = world.answer.pairs
    ax = plots.plot_comparisons(pairs)
    (image,) = ax.images
    table = np.asarray(image.get_array())
    np.testing.assert_array_equal(table, -table.T)
    names = [label.get_text() for label in ax.get_yticklabels()]
    x, y = pairs.names[0].split(" - ")
    assert table[names.index(x), names.index(y)] == pytest.approx(
        pairs.value[0] / pairs.std_error[0]
    )
    dots = ax.lines[0].get_xydata()
    assert len(dots) == 2 * pairs.decided.sum()


def test_contrasts_alone_and_together(world):
    shown = world.answer.against()
    ax = plots.plot_contrasts(shown)
    together, own = ax.containers
    for bars, low, high in (
        (together, shown.low_all, shown.high_all),
        (own, shown.low, shown.high),
    ):
        (segments,) = bars.lines[2]
        ends = np.array([(s[0, 0], s[1, 0]) for s in segments.get_segments()])
        np.testing.assert_allclose(ends, np.stack([low, high], axis=1))
    (dots,) = [line for line in ax.lines if line.get_label() == "decided"]
    assert sorted(dots.get_xdata()) == sorted(shown.value[shown.decided])


def test_draws_by_rank_count_every_drawn_pair(world):
    ax = plots.plot_draws(world.sample, world.pool)
    assert sum(int(text.get_text().replace(",", "")) for text in ax.texts) == 120


def test_evaluation_and_simulation(world):
    ax = plots.plot_evaluation(world.complete)
    assert list(ax.lines[0].get_xdata()) == sorted(world.complete.value[0])
    rows = tuple(
        {"budget": b, "design": d, "sampler": "iid", "rmse": 1 / b}
        for d in ("flat", "rank")
        for b in (100, 200)
    )
    ax = plots.plot_simulation(SimpleNamespace(rows=rows, measure="DCG@10", goal="rank"))
    assert [line.get_label() for line in ax.lines] == ["flat", "rank"]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[100, 0.01], [200, 0.005]])


def test_axes_of_the_callers_own_are_used(world):
    _, (left, right) = plots.figure(2)
    assert plots.plot_estimate(world.answer, ax=left) is left
    assert plots.plot_draws(world.sample, world.pool, ax=right) is right


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files_are_written(world, tmp_path, ending):
    path = plots.save(plots.plot_estimate(world.answer), tmp_path / f"a.{ending}")
    assert path.stat().st_size > 1000


def test_a_file_that_cannot_be_written_says_so(world, tmp_path):
    ax = plots.plot_estimate(world.answer)
    for name in ("a.none", "no folder/a.png"):
        with pytest.raises(eh.EvenhandError, match="cannot write the picture"):
            plots.save(ax, tmp_path / name)


def test_a_plan_shows_what_is_needed(tmp_path):
    plan = Plan(
        "half-width 0.5",
        77,
        0.95,
        {"judgments": [19, 38, 77, 154], "half_width": [1.1, 0.8, 0.5, 0.3]},
        0.1,
    )
    ax = plots.plot_plan(plan)
    curve, floor, needed = ax.lines
    assert curve.get_xydata().tolist() == [[19, 1.1], [38, 0.8], [77, 0.5], [154, 0.3]]
    assert floor.get_ydata()[0] == 0.1
    assert needed.get_xdata()[0] == 77
    assert ax.get_legend().get_texts()[-1].get_text() == "needed: 77"
    assert plots.save(ax, tmp_path / "plan.png").stat().st_size > 5000


def test_ranks_are_shown_from_the_best_down(world, tmp_path):
    standings = eh.ranking(world.answer)
    ax = plots.plot_standings(standings)
    assert [t.get_text() for t in ax.get_yticklabels()] == list(standings.systems)
    ends = {
        segment[0, 1]: (segment[0, 0], segment[1, 0])
        for segment in ax.collections[0].get_segments()
    }
    k = len(standings.systems)
    for i in range(k):
        want = (standings.first[i] - 0.3, standings.last[i] + 0.3)
        assert ends[k - 1 - i] == pytest.approx(want)
    assert len(ax.texts) == (standings.best >= 0.005).sum()
    assert plots.save(ax, tmp_path / "ranks.png").stat().st_size > 5000


def test_where_no_contrast_is_known_systems_are_shown(world):
    answer = replace(world.answer, contrast_low=np.full(len(world.answer.contrast), np.nan))
    labels = {label.get_text() for label in plots.plot_estimate(answer).get_yticklabels()}
    assert labels == set(answer.goal.target.systems)
