"""Control variates: exactly unbiased whatever they learn, by enumeration of every sample."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from evenhand.decisions.steering import learned_utility
from evenhand.designs.proposals import design, variance
from evenhand.designs.utilities import Moments, Reach, flat, rank_utility
from evenhand.errors import EvenhandError, SupportError
from evenhand.estimands import goals
from evenhand.estimation.cross_fitting import control, control_variates, cross_fit, labels
from evenhand.estimation.importance import estimate
from evenhand.float64 import in_float64
from evenhand.priors import fits
from evenhand.priors.features import feature_table
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.labels import Labels
from evenhand.sampling.rounds import Control, Round, planned_weights
from evenhand.sampling.samplers import SAMPLERS, expected_by_fold, layout
from evenhand.sampling.samples import Sample

EXACT = 1e-12
# Tiny pools with their folds: `folds_for` wants 40 draws, so samples here are made by hand.
TWO = ("ties", np.array([0, 1, 0, 1, 1], np.int32))
THREE = ("twins", np.array([0, 1, 2, 0, 1, 2], np.int32))


class Learned:
    """What `Toy` makes of some labels: anything but harmless where it leaks."""

    def __init__(self, known):
        self.known = known

    def predict(self, cells):
        cells, seen = np.asarray(cells), self.known
        base = seen.utility.mean() if len(seen) else 0.7
        code = ((seen.cells + 1.0) ** 1.5 * (seen.utility + 0.5)).sum()
        mean = base * (1.0 + 0.6 * np.sin(code * (cells + 1.0)))
        mean = mean + 0.4 * np.isin(cells, seen.cells)
        gain = np.unique(seen.utility[seen.utility > 0])
        chance = 0.5 + 0.5 * np.sin(code * (cells[:, None] + gain))
        return Moments("toy", mean, mean**2 + 0.5, Reach(gain, chance))


class Toy:
    """A prior without a model, whose predictions change with every cell seen."""

    name = "toy"

    def fit(self, sets):
        return [Learned(one) for one in sets]


class Oracle:
    """A prior that knows the truth."""

    name = "oracle"

    def __init__(self, utility):
        self.utility = utility

    def fit(self, sets):
        return [self] * len(sets)

    def predict(self, cells):
        return Moments("oracle", self.utility[cells], self.utility[cells] ** 2)


TOY = Toy()


@pytest.fixture(scope="module")
def samples(draws_law):
    """``(goal, q, sampler, n, fold)`` to every (chance, sample) of a round."""

    def samples(goal, q, sampler, n, fold=None):
        expected, sizes = expected_by_fold(sampler, q, n, fold)
        law = draws_law(
            sampler,
            expected,
            n,
            order=layout(goal, sampler, fold),
            folds=None if fold is None else (fold, sizes),
        )
        assert abs(law.probability.sum() - 1) <= EXACT
        return [
            (chance, Sample(sampler, draws, expected, fold))
            for chance, draws in zip(law.probability, law.draws, strict=True)
        ]

    return samples


def check(goal, utility, outcomes):
    """Mean of all (chance, estimate) against the truth, to EXACT."""
    value, contrast, total = 0.0, 0.0, 0.0
    for chance, found in outcomes:
        assert found.reached.all()
        value = value + chance * found.value
        contrast = contrast + chance * found.contrast
        total += chance
    assert abs(total - 1) <= EXACT
    truth = goal.target.values(utility)
    assert np.abs(value - truth).max() <= EXACT
    assert np.abs(contrast - goal.matrix @ truth).max() <= EXACT


def judged(sample, utility, **about):
    return Round(sample, utility[sample.draws], **about)


def only_known(cells, utility):
    known = np.full(len(utility), np.nan)
    known[cells] = utility[cells]
    return known


# One round


@pytest.mark.parametrize(
    ("where", "n", "gated", "kind"),
    [
        # Contrasts of one number share a compilation, which takes most of the time.
        *((THREE, 4, True, kind) for kind in ("absolute", "rank", "own")),
        (THREE, 4, False, "absolute"),
        (TWO, 3, True, "pair"),
        (TWO, 3, True, "baseline"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else str(value),
)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_enumerated_cross_fitted_round_is_unbiased(
    tiny, make_goal, samples, sampler, where, n, kind, gated
):
    (pool_name, fold), outcomes, gates = where, [], set()
    target, utility = tiny(pool_name)
    goal = make_goal(target, kind)
    plan = design(goal, rank_utility(target.pool), floor=0.2)
    for chance, sample in samples(goal, plan.q, sampler, n, fold):
        rounds = [judged(sample, utility)]
        controls = control_variates(TOY, goal, rounds, gated=gated)
        assert (controls[0].crossed, controls[0].past) == ((0,), ())
        found = estimate(goal, rounds, controls=controls)
        assert found.estimator == "cross-fitted"
        outcomes.append((chance, found))
        gates.update(controls[0].gate)
    check(goal, utility, outcomes)
    if gated and fold.max() == 2:
        # Only then is there a third fold to judge a prediction of the second from the first by.
        assert any(0 < gate < 1 for gate in gates)
        assert 0 <= min(gates) <= max(gates) <= 1
    else:
        assert gates == {1.0}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_enumerated_cross_fit_is_unbiased_with_a_noisy_judge(tiny, make_goal, samples, sampler):
    # Each cell is judged once, 1 with its probability, else 0.
    pool_name, fold = TWO
    target, _ = tiny(pool_name)
    goal = make_goal(target, "rank")
    probability = np.array([0.2, 1.0, 0.5, 0.6, 0.0])
    plan = design(goal, flat(target.pool), floor=0.2)
    drawn, outcomes = samples(goal, plan.q, sampler, 2, fold), []
    for said in itertools.product([0.0, 1.0], repeat=5):
        said = np.array(said)
        chance_said = np.where(said == 1, probability, 1 - probability).prod()
        if not chance_said:
            continue
        for chance, sample in drawn:
            rounds = [judged(sample, said)]
            found = estimate(goal, rounds, controls=control_variates(TOY, goal, rounds))
            outcomes.append((chance * chance_said, found))
    check(goal, probability, outcomes)


@pytest.mark.parametrize("gated", [True, False])
def test_no_fold_sees_itself(tiny, make_goal, gated):
    pool_name, fold = THREE
    target, utility = tiny(pool_name)
    goal = make_goal(target, "rank")
    expected = np.full(6, 4 / 6)
    said = np.random.default_rng(0).random(6)
    for f in range(3):
        means, chances = [], []
        # Other cells of fold f, and other labels of it.
        for inside, labelled in itertools.product(([f], [f + 3], [f, f + 3]), (utility, said)):
            draws = np.array([*np.flatnonzero(fold != f)[1:], *inside])
            by_cell = np.where(fold == f, labelled, utility)
            rounds = [judged(Sample("distinct", draws, expected, fold), by_cell)]
            control = cross_fit(TOY, goal, rounds, [0], gated=gated)
            means.append(control.mean)
            chances.append(control.reach.at(np.array([0.5, 1.0, 2.0])))
        for found in (means, chances):
            for one in found[1:]:
                np.testing.assert_array_equal(one[fold == f], found[0][fold == f])
            assert not np.array_equal(found[0], found[1])


def test_gate_is_the_least_squares_factor(tiny, make_goal):
    pool_name, fold = THREE
    target, utility = tiny(pool_name)
    goal = make_goal(target, "own")
    expected = np.array([0.3, 0.9, 0.5, 1.0, 0.7, 0.6])
    draws = np.array([0, 1, 2, 3, 4, 5])
    rounds = [judged(Sample("distinct", draws, expected, fold), utility)]
    found = cross_fit(TOY, goal, rounds, [0])
    weight = (goal.at(draws) ** 2 @ goal.importance) * (1 - expected) / expected**2
    for f in range(3):
        product = square = 0.0
        for c in np.flatnonzero(fold != f):
            inner = np.flatnonzero((fold != f) & (fold != fold[c]))
            m = TOY.fit([Labels(inner, utility[inner])])[0].predict(np.array([c])).mean[0]
            product, square = product + weight[c] * utility[c] * m, square + weight[c] * m**2
        assert found.gate[f] == pytest.approx(np.clip(product / square, 0, 1), rel=1e-12)
        outer = np.flatnonzero(fold != f)
        m = TOY.fit([Labels(outer, utility[outer])])[0].predict(np.arange(6)).mean
        np.testing.assert_allclose(found.mean[fold == f], (found.gate[f] * m)[fold == f])
        # The chances of levels are scaled with the mean.
        reach = TOY.fit([Labels(outer, utility[outer])])[0].predict(np.arange(6)).reach
        chance = found.gate[f] * reach.at(found.reach.gain)
        np.testing.assert_allclose(found.reach.chance[fold == f], chance[fold == f])
    assert len(np.unique(found.gate)) > 1


def test_gate_shuts_where_nothing_was_predicted(tiny, make_goal):
    pool_name, fold = THREE
    target, utility = tiny(pool_name)
    goal = make_goal(target, "rank")
    rounds = [judged(Sample("distinct", np.arange(6), np.full(6, 0.9), fold), utility)]
    nothing = cross_fit(Oracle(np.zeros(6)), goal, rounds, [0])
    assert nothing.gate.tolist() == [0, 0, 0]
    # A prediction of the wrong sign is not turned round, a timid one not made bold.
    for factor, gate in ((-1.0, 0.0), (0.5, 1.0), (2.0, 0.5)):
        found = cross_fit(Oracle(factor * utility), goal, rounds, [0])
        np.testing.assert_allclose(found.gate, gate)


class Halves(Toy):
    """A prior of which some fits tell levels and others do not."""

    def fit(self, sets):
        return [self.Half(one) for one in sets]

    class Half(Learned):
        def predict(self, cells):
            found = super().predict(cells)
            return replace(found, reach=found.reach if 0 in self.known.cells else None)


def test_levels_are_told_for_every_fold_or_none(tiny, make_goal):
    pool_name, fold = THREE
    target, utility = tiny(pool_name)
    goal = make_goal(target, "rank")
    rounds = [judged(Sample("distinct", np.arange(6), np.full(6, 0.9), fold), utility)]
    assert cross_fit(Halves(), goal, rounds, [0]).reach is None
    told = cross_fit(TOY, goal, rounds, [0])
    assert told.reach.gain.tolist() == [0.5, 1, 2]
    short = replace(told, reach=Reach(told.reach.gain[:2], told.reach.chance))
    with pytest.raises(EvenhandError, match="knows 2 levels must say how likely each of the 6"):
        estimate(goal, rounds, controls=[short])


# Several rounds


@pytest.mark.parametrize("by_fold", [True, False])
def test_what_each_stage_learns_from(tiny, make_goal, by_fold):
    # That no such study is biased, `tests/test_laws.py` enumerates.
    pool_name, fold = TWO
    target, utility = tiny(pool_name)
    goal, expected = make_goal(target, "rank"), np.full(5, 0.6)
    one = judged(Sample("distinct", np.array([0, 1, 2]), expected, fold), utility, name="1")
    two = Sample("distinct", np.array([1, 3, 4]), expected, fold if by_fold else None)
    fixed = control_variates(TOY, goal, [one, judged(two, utility)])
    # A second round that is not drawn by fold is corrected by what the first learned.
    assert [c.crossed for c in fixed] == [(0, 1) if by_fold else (0,)]
    rounds = [one, judged(two, utility, depends_on=("1",))]
    later = control_variates(TOY, goal, rounds)
    assert [c.crossed for c in later] == [(0,), (1,) if by_fold else ()]
    assert [c.past for c in later] == [(), (0,)]
    found = estimate(goal, rounds, planned=(1, 2), controls=later)
    np.testing.assert_allclose(found.weights, planned_weights(np.array([1, 2])))
    with pytest.raises(EvenhandError, match="there are 1 control variates for 2 stages"):
        estimate(goal, rounds, controls=later[:1])
    with pytest.raises(EvenhandError, match="the plan names 1 stages, there are 2"):
        estimate(goal, rounds, planned=(1,))


def test_without_folds_only_the_past_is_learned_from(tiny, make_goal):
    target, utility = tiny("missed")
    goal, expected = make_goal(target, "rank"), np.full(4, 0.5)
    one = judged(Sample("distinct", np.array([0, 2]), expected), utility, name="1")
    two = judged(Sample("distinct", np.array([1, 2]), expected), utility, depends_on=("1",))
    past = control(TOY, [one, two], 1)
    guess = TOY.fit([labels([one])])[0].predict(np.arange(4))
    np.testing.assert_array_equal(past.mean, guess.mean)
    first, second = control_variates(TOY, goal, [one, two])
    assert not first.mean.any()
    np.testing.assert_array_equal(second.mean, past.mean)


def test_trap_support_that_depends_on_draws(tiny, make_goal, samples):
    # Topping up what the first round happened not to draw, and letting each cell count in the
    # round that drew it, says that what was drawn first is all there is.
    target, utility = tiny("ties")
    goal, found = make_goal(target, "absolute"), []
    for chance, one in samples(goal, np.full(5, 0.2), "distinct", 2):
        rest = ~np.isin(np.arange(5), one.draws)
        # All that is left is judged: the second round is a census.
        two = Sample("distinct", np.flatnonzero(rest), rest.astype(float))
        rounds = [judged(one, utility), judged(two, utility)]
        # Pooled, each cell has an expected count of 2/5, and the others of 7/5.
        found.append((chance, estimate(goal, rounds).value))
    assert bias(goal, utility, found) > 1e-3


# The model that the library brings


@pytest.mark.slow
def test_enumerated_cross_fit_of_the_real_model_is_unbiased(tiny, make_goal, samples):
    pool_name, fold = THREE
    target, _ = tiny(pool_name)
    utility = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    goal = make_goal(target, "rank")
    prior = NumPyroPrior(feature_table(target.pool))
    plan = design(goal, flat(target.pool), floor=0.3)
    for sampler in ("distinct", "iid"):
        outcomes, means = [], []
        for chance, sample in samples(goal, plan.q, sampler, 3, fold):
            rounds = [judged(sample, utility)]
            controls = control_variates(prior, goal, rounds)
            assert (controls[0].gate > 0).any()
            means.append(controls[0].mean)
            outcomes.append((chance, estimate(goal, rounds, controls=controls)))
        check(goal, utility, outcomes)
        assert np.ptp(means, axis=0).min() > 0.05  # it does learn


@pytest.mark.slow
def test_enumerated_cross_fitted_round_with_stochastic_fits_is_unbiased(
    tiny, make_goal, samples, monkeypatch
):
    # Few steps: the fit is poor, and depends on its minibatches and on nothing else.
    monkeypatch.setattr(fits, "svi", partial(fits.svi, steps=40))
    pool_name, fold = TWO
    target, _ = tiny(pool_name)
    utility = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    goal = make_goal(target, "rank")
    prior = NumPyroPrior(feature_table(target.pool), method="svi")
    plan = design(goal, flat(target.pool), floor=0.3)
    outcomes, means = [], []
    for chance, sample in samples(goal, plan.q, "distinct", 3, fold):
        rounds = [judged(sample, utility)]
        controls = control_variates(prior, goal, rounds, gated=False)
        means.append(controls[0].mean)
        outcomes.append((chance, estimate(goal, rounds, controls=controls)))
    check(goal, utility, outcomes)
    assert np.ptp(means, axis=0).min() > 0.01


# Traps


@pytest.fixture
def trapped(tiny, make_goal, samples):
    """``(sampler, n, fold)`` to the goal, the true utility and every (chance, round)."""

    def trapped(sampler, n, fold=None):
        target, utility = tiny(TWO[0])
        goal = make_goal(target, "absolute")
        plan = design(goal, flat(target.pool), floor=0.3)
        drawn = samples(goal, plan.q, sampler, n, fold)
        return goal, utility, [(chance, judged(sample, utility)) for chance, sample in drawn]

    return trapped


def bias(goal, utility, found):
    """Largest bias of any system over all (chance, value)."""
    return np.abs(
        sum(chance * value for chance, value in found) - goal.target.values(utility)
    ).max()


@pytest.mark.parametrize("by_fold", [True, False])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_trap_control_variate_fitted_on_the_draws_it_corrects(trapped, sampler, by_fold):
    goal, utility, outcomes = trapped(sampler, 3, TWO[1] if by_fold else None)
    found = []
    for chance, one in outcomes:
        mean = TOY.fit([labels([one])])[0].predict(np.arange(5)).mean
        # Only a lie about what it saw passes.
        found.append((chance, estimate(goal, [one], controls=[Control(mean)]).value))
        with pytest.raises(SupportError, match="judgments that it is to correct"):
            estimate(goal, [one], controls=[Control(mean, past=(0,))])
        if not by_fold:
            with pytest.raises(SupportError, match="folds that were not drawn"):
                estimate(goal, [one], controls=[Control(mean, crossed=(0,), fold=TWO[1])])
    assert bias(goal, utility, found) > 1e-3


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_trap_gate_fitted_on_the_labels_it_scales(tiny, make_goal, samples, sampler):
    # The predictions themselves are cross-fitted; one factor for all, from all labels, is not.
    pool_name, fold = THREE
    target, utility = tiny(pool_name)
    goal = make_goal(target, "absolute")
    plan = design(goal, flat(target.pool), floor=0.3)
    found, honest = [], []
    for chance, sample in samples(goal, plan.q, sampler, 4, fold):
        one = judged(sample, utility)
        raw = cross_fit(TOY, goal, [one], [0], gated=False)
        c = sample.cells
        weight = (goal.at(c) ** 2 @ goal.importance) / sample.expected[c] ** 2
        factor = (weight * utility[c]) @ raw.mean[c] / (weight @ raw.mean[c] ** 2)
        lie = replace(raw, mean=np.clip(factor, 0, 1) * raw.mean)
        found.append((chance, estimate(goal, [one], controls=[lie]).value))
        gated = cross_fit(TOY, goal, [one], [0])
        honest.append((chance, estimate(goal, [one], controls=[gated]).value))
    assert bias(goal, utility, found) > 1e-3
    assert bias(goal, utility, honest) <= EXACT


def test_trap_folds_by_draw_instead_of_by_cell(trapped):
    # Four distinct cells of one common draw, halved at random: what one half has the other lacks.
    goal, utility, outcomes = trapped("distinct", 4)
    cells, halves = np.arange(5), list(itertools.combinations(range(4), 2))
    found = []
    for chance, one in outcomes:
        draws = one.sample.draws
        for half in halves:
            inside = np.isin(np.arange(4), half)
            value = 0.0
            for mine in (inside, ~inside):
                seen = Labels(draws[~mine], one.utility[~mine])
                mean = TOY.fit([seen])[0].predict(cells).mean
                residual = (
                    (utility - mean) / (one.sample.expected / 2) * np.isin(cells, draws[mine])
                )
                value = value + goal.target.values(mean + residual) / 2
            found.append((chance / len(halves), value))
    assert bias(goal, utility, found) > 1e-3
    # The library draws by fold, or does not cross: a label on the cells afterwards is no fold.
    for _, one in outcomes:
        assert cross_fit(TOY, goal, [one], [0]).crossed == ()
        with pytest.raises(SupportError, match="folds that were not drawn"):
            estimate(goal, [one], controls=[Control(np.zeros(5), crossed=(0,), fold=TWO[1])])


def test_trap_past_labels_dropped_where_the_fold_itself_drew_them_again(tiny, make_goal):
    # A past label may give way to a new one of the same cell, but not in the fit for that cell's
    # own fold: its absence would tell that the cell was drawn.
    pool_name, fold = TWO
    target, utility = tiny(pool_name)
    goal, q = make_goal(target, "rank"), np.full(5, 0.4)
    past = judged(Sample("iid", np.array([0, 1, 2, 3, 4]), 2.5 * q), utility, name="1")

    def mean(again):
        now = Sample("iid", np.array([again, 1, 3]), 1.5 * q, fold)
        rounds = [past, judged(now, utility, depends_on=("1",))]
        return cross_fit(TOY, goal, rounds, [1]).mean

    np.testing.assert_array_equal(mean(0)[fold == 0], mean(2)[fold == 0])
    # Nor does a label count twice.
    everything = TOY.fit([Labels(np.arange(5), utility)])[0].predict(np.arange(5)).mean
    np.testing.assert_allclose(mean(0), everything, rtol=1e-12)


def test_trap_q_from_the_mean_where_a_control_variate_follows(line_target):
    # What is drawn for is the residual r - p of a binary judgment, of variance p (1 - p).
    rng = np.random.default_rng(0)
    weight, p = rng.random(40), rng.random(40) ** 3
    goal = goals.absolute(line_target([weight]))
    posterior = Oracle(p)
    posterior.predict = lambda cells: Moments("binary", p[cells], p[cells])
    utility = learned_utility(posterior, 40)
    q = design(goal, utility, floor=0.0).q

    @in_float64
    def cost(q):
        nothing = np.zeros(40)
        return float(variance(q, weight[:, None], nothing, p * (1 - p))[0])

    def share(mass):
        return weight * mass / (weight * mass).sum()

    np.testing.assert_allclose(q, share(np.sqrt(p * (1 - p))), rtol=1e-12)
    assert cost(q) < 0.999 * min(cost(share(np.sqrt(p))), cost(share(p)), cost(share(1.0)))
    # Without one, p is worth as much as nothing, and its root is best.
    raw = in_float64(lambda q: float(variance(q, weight[:, None], p, p)[0]))
    assert raw(share(p)) == pytest.approx(raw(share(1.0)), rel=1e-12)
    assert raw(share(np.sqrt(p))) < 0.9 * raw(share(p))
    # Even the best proposal for the raw judgment costs more than the residual's.
    assert cost(q) < raw(share(np.sqrt(p)))


# What holds in every sample


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_prediction_that_is_true_leaves_no_error(trapped, sampler):
    goal, utility, outcomes = trapped(sampler, 3, TWO[1])
    for _, one in outcomes:
        controls = control_variates(Oracle(utility), goal, [one])
        found = estimate(goal, [one], controls=controls)
        np.testing.assert_allclose(found.value, goal.target.values(utility), rtol=1e-14)
        assert not found.std_error.any()
        assert not found.contrast_std_error.any()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_identical_systems_differ_by_exactly_nothing_under_a_control(tiny, samples, sampler):
    pool_name, fold = THREE
    target, utility = tiny(pool_name)
    goal = goals.contrast(target, np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]]))
    plan = design(goal, flat(target.pool), floor=0.3)
    for _, sample in samples(goal, plan.q, sampler, 4, fold):
        one = judged(sample, utility)
        found = estimate(goal, [one], controls=control_variates(TOY, goal, [one]))
        assert found.contrast[0] == 0
        assert found.contrast_std_error[0] == 0
        assert found.contrast_low[0] == found.contrast_high[0] == 0
        assert found.value[0] == found.value[1]
    twins = found.pairs.to_dict()["pairs"][0]
    assert twins["estimate"] == twins["std_error"] == 0


def test_a_census_by_fold_is_exact(tiny, make_goal, samples):
    pool_name, fold = THREE
    target, utility = tiny(pool_name)
    goal = make_goal(target, "rank")
    plan = design(goal, rank_utility(target.pool), floor=0.3)
    ((chance, sample),) = samples(goal, plan.q, "distinct", 6, fold)
    assert chance == pytest.approx(1, abs=EXACT)
    np.testing.assert_array_equal(sample.expected, 1)
    one = judged(sample, utility)
    for gated in (True, False):
        found = estimate(goal, [one], controls=control_variates(TOY, goal, [one], gated=gated))
        truth = target.values(utility)
        np.testing.assert_allclose(found.value, truth, rtol=1e-13)
        np.testing.assert_allclose(found.contrast, goal.matrix @ truth, atol=1e-14)
        assert not found.std_error.any()
        assert not found.contrast_std_error.any()


@pytest.mark.parametrize("crossed", [True, False])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_enumerated_known_cells_count_exactly(tiny, make_goal, samples, sampler, crossed):
    pool_name, fold = TWO
    target, utility = tiny(pool_name)
    goal, outcomes = make_goal(target, "own"), []
    known = only_known(np.array([1, 2]), utility)
    plan = design(goal, flat(target.pool), floor=0.3, known=np.isfinite(known))
    for chance, sample in samples(goal, plan.q, sampler, 2, fold):
        assert not np.isin(sample.draws, [1, 2]).any()
        one = judged(sample, utility, known=known)
        controls = control_variates(TOY, goal, [one]) if crossed else None
        found = estimate(goal, [one], controls=controls)
        assert (found.covered == 1).all()
        outcomes.append((chance, found))
        # Not told of them, the estimate owns that it has not reached them.
        blind = estimate(goal, [replace(one, known=None)])
        np.testing.assert_array_equal(blind.reached, ~np.isfinite(known))
        assert np.isnan(blind.value).any()
    check(goal, utility, outcomes)


def test_known_cells_and_a_census_of_the_rest_are_exact(tiny, make_goal, samples):
    pool_name, fold = TWO
    target, utility = tiny(pool_name)
    goal = make_goal(target, "rank")
    known = only_known(np.array([0, 3]), utility)
    plan = design(goal, flat(target.pool), floor=0.3, known=np.isfinite(known))
    ((_, sample),) = samples(goal, plan.q, "distinct", 3, fold)
    found = estimate(goal, [judged(sample, utility, known=known)])
    np.testing.assert_allclose(found.value, target.values(utility), rtol=1e-14)
    assert found.reached.all()
    assert not found.std_error.any()
    assert (found.n_draws, found.n_judged, found.estimator) == (3, 3, "importance")


def test_labels_are_distinct_cells_with_a_judgment():
    expected = np.ones(5)
    one = Round(Sample("iid", np.array([3, 1, 3]), expected), np.array([2.0, np.nan, 2.0]))
    two = Round(Sample("iid", np.array([1, 4]), expected), np.array([0.5, np.nan]))
    found = labels([one, two])
    assert (found.cells.tolist(), found.utility.tolist()) == ([1, 3], [0.5, 2.0])
    assert len(labels([])) == 0
