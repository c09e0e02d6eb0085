"""Proposals: the formula against brute force, its certificates, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from evenhand.designs.proposals import DESIGNS, Design, design, mixture, proposal, variance
from evenhand.designs.utilities import Moments, flat, known_utility, rank_utility, score_utility
from evenhand.errors import EvenhandError, PrecisionError, SupportError
from evenhand.estimands import goals
from evenhand.estimands.contrasts import contrasts, norm
from evenhand.estimands.goals import GOALS
from evenhand.float64 import in_float64

# The contrasts of `best` and `order` are those of `rank`.
KINDS = [*(kind for kind in GOALS if kind not in ("best", "order")), "own"]
POOLS = ["agree", "missed", "ties", "twins"]
COMPARATIVE = ["pair", "baseline", "rank"]
VARIANCE = in_float64(lambda *arrays: np.asarray(variance(*map(np.asarray, arrays))))


def noisy(pool):
    """Moments of a judge who is unsure: the second moment is not the square of the mean."""
    mean = np.linspace(0.2, 1.4, len(pool))
    return Moments("noisy", mean, mean**2 + np.linspace(0.5, 0.05, len(pool)))


UTILITIES = [flat, rank_utility, score_utility, noisy]


def objective(goal, q, utility):
    """Summed variance of one draw, equation (1), by brute force."""
    a = goal.at(np.arange(len(q)))
    total = 0.0
    for i in range(a.shape[1]):
        d = sum(utility.mean[c] * a[c, i] for c in range(len(q)))
        square = sum(
            utility.second_moment[c] * a[c, i] ** 2 / q[c] for c in range(len(q)) if a[c, i]
        )
        total += goal.importance[i] * (square - d**2)
    return total


# Every design


@pytest.mark.slow
@pytest.mark.parametrize("pool_name", POOLS)
@pytest.mark.parametrize("kind", DESIGNS)
def test_every_design_is_a_proposal(tiny, make_goal, kind, pool_name):
    target, _ = tiny(pool_name)
    q0 = target.mean_weight() / target.mean_weight().sum()
    # Goals with as many contrasts share a compilation.
    for goal_kind in KINDS if pool_name == "missed" else ("absolute", "rank"):
        goal = make_goal(target, goal_kind)
        bare = design(goal, noisy(target.pool), kind=kind, floor=0.0)
        for floor in (0.0, 0.1, 0.7, 1.0):
            plan = design(goal, noisy(target.pool), kind=kind, floor=floor)
            assert isinstance(plan, Design)
            assert type(plan.q) is np.ndarray
            assert plan.q.dtype == np.float64
            assert plan.q.sum() == pytest.approx(1, abs=1e-14)
            assert (plan.q >= floor * q0 * (1 - 1e-12)).all()
            np.testing.assert_allclose(plan.q, (1 - floor) * bare.q + floor * q0, atol=1e-15)
            assert (plan.floor, plan.name) == (floor, f"{kind}/noisy")
            assert (plan.gap is not None) == (kind == "minimax")
            # Whatever matters to the goal can be drawn.
            assert (plan.q[goal.norms() > 0] > 0).all()


@pytest.mark.parametrize("pool_name", POOLS)
def test_yardsticks_are_what_they_say(tiny, make_goal, pool_name):
    target, _ = tiny(pool_name)
    goal, utility = make_goal(target, "rank"), noisy(target.pool)
    naive = utility.mean * target.mean_weight()
    np.testing.assert_allclose(
        design(goal, utility, kind="naive", floor=0).q, naive / naive.sum(), rtol=1e-14
    )
    uniform = design(goal, utility, kind="uniform", floor=0).q
    np.testing.assert_allclose(uniform, 1 / len(uniform), rtol=1e-15)


# The formula


@pytest.mark.parametrize("pool_name", POOLS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_formula_minimises_the_variance(tiny, make_goal, kind, pool_name):
    target, _ = tiny(pool_name)
    goal = make_goal(target, kind)
    rng = np.random.default_rng(1)
    for make in UTILITIES:
        utility = make(target.pool)
        q = design(goal, utility, floor=0.0).q
        best = objective(goal, q, utility)
        a = goal.norms() * np.sqrt(utility.second_moment)
        np.testing.assert_allclose(q, a / a.sum(), rtol=1e-13)
        for size in (0.01, 0.3, 2.0):
            for _ in range(20):
                other = (q + 1e-9) * np.exp(size * rng.normal(size=len(q)))
                other /= other.sum()
                assert objective(goal, other, utility) >= best * (1 - 1e-12) - 1e-15


@pytest.mark.parametrize("pool_name", ["agree", "missed", "ties"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_formula_is_the_brute_force_optimum(tiny, make_goal, kind, pool_name):
    target, _ = tiny(pool_name)
    goal, utility = make_goal(target, kind), noisy(target.pool)
    matters = goal.norms() > 0

    def spread(x):
        q = np.full(len(matters), 1e-300)
        q[matters] = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
        return objective(goal, q, utility)

    found = scipy.optimize.minimize(spread, np.zeros(matters.sum()), method="BFGS", tol=1e-10)
    q = np.exp(found.x - found.x.max())
    plan = design(goal, utility, floor=0.0)
    np.testing.assert_allclose(plan.q[matters], q / q.sum(), atol=2e-5)
    assert objective(goal, plan.q, utility) == pytest.approx(found.fun, rel=1e-7)


def test_trap_q_from_the_mean_of_a_binary_judgment(line_target):
    # q proportional to p^alpha: alpha = 1 costs as much as alpha = 0, and sqrt(p) is best.
    rng = np.random.default_rng(0)
    weight, p = rng.random(40), rng.random(40) ** 3
    goal = goals.absolute(line_target([weight]))
    cost = {}
    for alpha in (0.0, 0.25, 0.5, 0.75, 1.0):
        q = weight * p**alpha / (weight * p**alpha).sum()
        cost[alpha] = VARIANCE(q, weight[:, None], p, p)[0]
    assert cost[1.0] == pytest.approx(cost[0.0], rel=1e-12)
    assert cost[0.75] == pytest.approx(cost[0.25], rel=1e-12)
    assert cost[0.5] < cost[0.25] < cost[0.0]
    # The library takes E[r^2] = p for what it is, and the paper's literal p^2 where it is asked.
    q = design(goal, Moments("binary", p, p), floor=0.0).q
    np.testing.assert_allclose(q, weight * np.sqrt(p) / (weight * np.sqrt(p)).sum(), rtol=1e-12)
    assert VARIANCE(q, weight[:, None], p, p)[0] == pytest.approx(cost[0.5], rel=1e-12)
    q = design(goal, known_utility(p), floor=0.0).q
    assert VARIANCE(q, weight[:, None], p, p)[0] == pytest.approx(cost[1.0], rel=1e-12)


# Cells that cannot matter, and cells that must


@pytest.mark.parametrize("kind", COMPARATIVE)
def test_where_all_systems_agree_nothing_is_drawn(tiny, make_goal, kind):
    target, _ = tiny("twins")
    weights = target.weights(np.arange(6))
    same = (weights == weights[:, :1]).all(1)
    assert same.sum() == 2
    # Subtracting the mean of three weights of 0.1 would leave a rounding error.
    assert not (weights[same] - weights[same].mean(1, keepdims=True) == 0).all()
    goal = make_goal(target, kind)
    np.testing.assert_array_equal(goal.at(np.flatnonzero(same)), 0)
    np.testing.assert_array_equal(goal.norms()[same], 0)
    for name in ("optimal", "minimax"):
        plan = design(goal, rank_utility(target.pool), kind=name, floor=0.0)
        np.testing.assert_array_equal(plan.q[same], 0)
        assert (plan.q[~same] > 0).all()


@pytest.mark.parametrize("kind", ["optimal", "minimax"])
def test_identical_systems_leave_nothing_to_judge(line_target, kind):
    target = line_target(np.tile([0.1, 0.3, 0.7], (3, 1)))
    goal = goals.rank(target)
    with pytest.raises(EvenhandError, match="every difference is exactly 0"):
        design(goal, flat(target.pool), kind=kind, floor=0.0)
    # With a floor the systems' own values can still be estimated.
    plan = design(goal, flat(target.pool), kind=kind, floor=0.1)
    np.testing.assert_allclose(plan.q, np.array([0.1, 0.3, 0.7]) / 1.1)


@pytest.mark.parametrize("kind", ["optimal", "minimax", "naive"])
def test_trap_no_proposal_where_the_guess_happens_to_be_nothing(tiny, make_goal, kind):
    target, _ = tiny("agree")
    goal = make_goal(target, "pair")
    guess = np.array([1.0, 0.0, 1.0])
    with pytest.raises(SupportError, match="1 pairs that matter") as error:
        design(goal, Moments("guess", guess, guess), kind=kind, floor=0.0)
    assert "floor" in error.value.hint
    assert design(goal, Moments("guess", guess, guess), kind=kind, floor=0.1).q[1] > 0
    # Where the pair does not matter to the goal, nothing is lost.
    guess = np.array([0.0, 1.0, 1.0])
    assert design(goal, Moments("guess", guess, guess), kind=kind, floor=0.0).q[0] == 0


# Cells that are known, and a guard against a wrong utility


@pytest.mark.parametrize("kind", DESIGNS)
def test_known_cells_are_left_out_and_the_others_keep_their_proportions(tiny, make_goal, kind):
    target, _ = tiny("missed")
    goal, utility = make_goal(target, "rank"), noisy(target.pool)
    known = np.array([False, True, False, False])
    bare = design(goal, utility, kind=kind, floor=0.0).q
    q0 = target.mean_weight()
    for floor in (0.0, 0.1, 1.0):
        q = design(goal, utility, kind=kind, floor=floor, known=known).q
        assert q[1] == 0
        assert q.sum() == pytest.approx(1, abs=1e-14)
        left, even = np.where(known, 0, bare), np.where(known, 0, q0)
        expected = (1 - floor) * left / left.sum() + floor * even / even.sum()
        np.testing.assert_allclose(q, expected, rtol=1e-12)
    # That nothing is known yet changes nothing.
    nothing = design(goal, utility, kind=kind, floor=0.1, known=np.zeros(4, bool)).q
    np.testing.assert_allclose(nothing, design(goal, utility, kind=kind, floor=0.1).q, rtol=1e-15)


def test_what_is_known_must_leave_something_to_draw(tiny, make_goal):
    target, _ = tiny("agree")
    goal, utility = make_goal(target, "pair"), flat(target.pool)
    for floor in (0.0, 0.1):
        with pytest.raises(EvenhandError, match="every pair is judged: there is nothing left"):
            design(goal, utility, floor=floor, known=np.ones(3, bool))
    # The systems agree on the cell that is left: it matters to their own values alone.
    known = np.array([False, True, True])
    with pytest.raises(EvenhandError, match="every pair that matters to the goal is judged"):
        design(goal, utility, floor=0.0, known=known)
    assert design(goal, utility, floor=0.1, known=known).q.tolist() == [1, 0, 0]
    # A known cell is not lost for never being drawn.
    guess = np.array([1.0, 0.0, 1.0])
    known = np.array([False, True, False])
    assert design(goal, Moments("guess", guess, guess), floor=0.0, known=known).q[2] == 1


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
@pytest.mark.parametrize("kind", ["absolute", "rank"])
def test_guard_bounds_what_a_wrong_utility_can_cost(line_target, make_goal, kind, share):
    rng = np.random.default_rng(0)
    target = line_target(rng.random((3, 30)) ** 2)
    goal, guard = make_goal(target, kind), rank_utility(target.pool)
    true = rng.random(30)
    # A utility that expects nothing where everything is.
    wrong = Moments("wrong", np.zeros(30), 1e-12 + (1 - true) ** 40)
    a = goal.at(np.arange(30))

    def square(q, mean=0.0):
        """Mean square of one draw; its variance, where the mean is given too."""
        return VARIANCE(q, a, np.broadcast_to(mean, 30), true**2)

    alone = design(goal, guard, floor=0.0).q
    bare = design(goal, wrong, floor=0.0).q
    guarded = design(goal, wrong, guard=guard, guard_share=share, floor=0.0).q
    np.testing.assert_allclose(guarded, (1 - share) * bare + share * alone, rtol=1e-12)
    assert (square(guarded) <= square(alone) / share).all()
    assert (square(bare) > 10 * square(alone) / share).all()
    # The variance has that bound and what the mean adds, since both draws have the same mean.
    added = (1 / share - 1) * (true @ a) ** 2
    assert (square(guarded, true) <= square(alone, true) / share + added + 1e-12).all()
    # The floor takes its share of both.
    floored = design(goal, wrong, guard=guard, guard_share=share, floor=0.3).q
    assert (square(floored) <= square(alone) / (0.7 * share)).all()


def test_guard_without_a_share_or_a_rival(tiny, make_goal):
    target, _ = tiny("missed")
    goal, utility, guard = make_goal(target, "rank"), noisy(target.pool), flat(target.pool)
    alone, bare = (design(goal, one, floor=0.0).q for one in (guard, utility))
    for share, expected in ((0.0, bare), (1.0, alone)):
        q = design(goal, utility, guard=guard, guard_share=share, floor=0.0).q
        np.testing.assert_allclose(q, expected, rtol=1e-14)
    # Where the utility has no mass at all, the guard has it all; where it misses a cell, not.
    nothing = Moments("nothing", np.zeros(4), np.zeros(4))
    np.testing.assert_allclose(design(goal, nothing, guard=guard, floor=0.0).q, alone, rtol=1e-14)
    part = np.array([1.0, 0.0, 1.0, 1.0])
    assert (design(goal, Moments("part", part, part), guard=guard, floor=0.0).q > 0).all()
    # What is known is left out of both.
    known = np.array([True, False, False, False])
    q = design(goal, utility, guard=guard, floor=0.0, known=known).q
    parts = [np.where(known, 0, one) for one in (bare, alone)]
    expected = 0.8 * parts[0] / parts[0].sum() + 0.2 * parts[1] / parts[1].sum()
    np.testing.assert_allclose(q, expected, rtol=1e-12)


# What is refused


def test_faults_are_told(tiny, make_goal):
    target, _ = tiny("agree")
    goal = make_goal(target, "pair")
    with pytest.raises(EvenhandError, match="unknown design 'best'") as error:
        design(goal, flat(target.pool), kind="best")
    assert all(name in error.value.hint for name in DESIGNS)
    for floor in (-0.1, 1.1, float("nan")):
        with pytest.raises(EvenhandError, match="floor must lie"):
            design(goal, flat(target.pool), floor=floor)
    with pytest.raises(EvenhandError, match="2 cells, the pool 3"):
        design(goal, Moments("short", np.ones(2), np.ones(2)))


# Minimax


def random_target(line_target, k, cells, seed):
    rng = np.random.default_rng(seed)
    scale = rng.random((k, 1)) * 3  # systems that differ in how hard they are to measure
    return line_target(scale * rng.random((k, cells)) ** 2)


@pytest.mark.parametrize(("k", "seed"), [(3, 0), (5, 1), (8, 2)])
@pytest.mark.parametrize("kind", ["absolute", "baseline", "rank"])
def test_minimax_is_certified(line_target, make_goal, kind, k, seed):
    target = random_target(line_target, k, 20, seed)
    goal, utility = make_goal(target, kind), noisy(target.pool)
    a = goal.at(np.arange(20))

    def worst(q):
        return VARIANCE(q, a, utility.mean, utility.second_moment).max()

    plan = design(goal, utility, kind="minimax", floor=0.0)
    assert plan.gap.relative <= 1e-5
    assert plan.gap.worst == pytest.approx(worst(plan.q), rel=1e-9)
    assert plan.gap.bound <= plan.gap.worst * (1 + 1e-12)
    assert "duality gap" in str(plan.gap)
    optimal = design(goal, utility, floor=0.0).q
    assert worst(plan.q) <= worst(optimal) * (1 + 1e-9)
    rng = np.random.default_rng(seed)
    for start in (plan.q, optimal, np.full(20, 0.05)):
        for size in (0.02, 0.3, 1.0):
            for _ in range(10):
                q = start * np.exp(size * rng.normal(size=20))
                assert worst(q / q.sum()) >= plan.gap.bound * (1 - 1e-12)


def test_minimax_of_one_contrast_is_optimal(tiny, make_goal):
    target, _ = tiny("missed")
    goal, utility = make_goal(target, "pair"), noisy(target.pool)
    plan = design(goal, utility, kind="minimax", floor=0.0)
    np.testing.assert_allclose(plan.q, design(goal, utility, floor=0.0).q, rtol=1e-12)
    assert plan.gap.relative <= 1e-12


# Functions on arrays


@pytest.mark.parametrize("pool_name", POOLS)
def test_variance_is_that_of_one_enumerated_draw(tiny, make_goal, pool_name):
    target, utility = tiny(pool_name)
    goal = make_goal(target, "rank")
    q = design(goal, noisy(target.pool), floor=0.1).q
    a = goal.at(np.arange(len(q)))
    # A judgment says u - 0.3 or u + 0.3.
    z = np.stack([a * ((utility + s) / q)[:, None] for s in (-0.3, 0.3)])
    mean = np.einsum("c,sci->i", q / 2, z)
    square = np.einsum("c,sci->i", q / 2, z**2)
    np.testing.assert_allclose(mean, utility @ a, atol=1e-14)
    found = VARIANCE(q, a, utility, utility**2 + 0.09)
    np.testing.assert_allclose(found, square - mean**2, rtol=1e-12)


def test_variance_where_nothing_can_be_drawn():
    q, a = np.array([0.0, 0.5, 0.5]), np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert np.isinf(VARIANCE(q, a, np.ones(3), np.ones(3))[0])
    np.testing.assert_allclose(VARIANCE(q, a, np.ones(3), np.ones(3))[1], 0, atol=1e-15)
    # No utility for sure, or no weight: nothing is lost.
    sure = np.array([0.0, 1.0, 1.0])
    assert np.isfinite(VARIANCE(q, a, sure, sure)).all()


def test_mixture_without_any_mass_is_the_floor():
    with jax.enable_x64(True):
        q0 = jnp.array([0.25, 0.75])
        np.testing.assert_allclose(mixture(jnp.zeros(2), q0, 0.1), q0)
        np.testing.assert_allclose(mixture(jnp.array([1.0, 0.0]), q0, 0.2), [0.85, 0.15])
        assert not np.asarray(proposal(jnp.zeros(3), jnp.ones(3))).any()


@pytest.mark.slow
def test_array_functions_work_under_jit_vmap_and_grad():
    rng = np.random.default_rng(0)
    w, second, matrix = rng.random((5, 3)), rng.random(5), np.eye(3) - 1 / 3
    w[2] = 0.1  # all systems agree: the norm has a kink here
    with jax.enable_x64(True):
        w, second, matrix, h = map(jnp.asarray, (w, second, matrix, np.ones(3)))
        q0 = jnp.full(5, 0.2)

        def cost(w, second):
            a = contrasts(w, matrix)
            q = mixture(proposal(norm(a, h), second), q0, 0.1)
            return variance(q, a, second / 2, second).sum()

        plain = cost(w, second)
        np.testing.assert_allclose(jax.jit(cost)(w, second), plain, rtol=1e-12)
        several = jax.vmap(cost)(jnp.stack([w, 2 * w]), jnp.stack([second, second]))
        np.testing.assert_allclose(several, [plain, 4 * plain], rtol=1e-12)
        by_w, by_second = jax.grad(cost, (0, 1))(w, second)
        assert np.isfinite(by_w).all()
        assert np.isfinite(by_second).all()
        step = 1e-6 * jnp.zeros_like(w).at[0, 1].set(1)
        slope = (cost(w + step, second) - cost(w - step, second)) / 2e-6
        assert by_w[0, 1] == pytest.approx(float(slope), rel=1e-6)
        slope = (cost(w, second.at[1].add(1e-6)) - cost(w, second.at[1].add(-1e-6))) / 2e-6
        assert by_second[1] == pytest.approx(float(slope), rel=1e-6)


def test_gradient_of_the_norm_is_zero_at_the_kink():
    with jax.enable_x64(True):
        slope = jax.grad(lambda a: norm(a, jnp.ones(3)).sum())(jnp.zeros((2, 3)))
        np.testing.assert_array_equal(slope, 0)
        slope = jax.grad(lambda a: norm(a, jnp.array([1.0, 3.0])))(jnp.array([1.0, 1.0]))
        np.testing.assert_allclose(slope, [0.5, 1.5])


def test_gradient_is_finite_where_no_utility_is_expected():
    # sqrt has an infinite slope at 0: a learned second moment may be 0 where a cell cannot matter.
    with jax.enable_x64(True):

        def first(second):
            return proposal(jnp.array([1.0, 2.0, 0.0]), second)[0]

        assert np.isfinite(jax.grad(first)(jnp.array([1.0, 0.5, 0.0]))).all()


def test_float32_is_refused_where_it_would_lose_mass():
    with pytest.raises(PrecisionError, match="float64") as error:
        proposal(np.ones(3), np.ones(3))
    assert "jax_enable_x64" in error.value.hint
    with jax.enable_x64(True), pytest.raises(PrecisionError):
        proposal(np.ones(3, np.float32), np.ones(3, np.float32))


def test_the_setting_of_the_caller_is_left_alone(tiny, make_goal):
    target, _ = tiny("agree")
    design(make_goal(target, "pair"), flat(target.pool))
    assert jnp.ones(1).dtype == jnp.float32
    assert not jax.config.jax_enable_x64
