r"""Each claim of the theory as a check on a pool: what is compared, and how near it must come.

The equations are numbered in `evenhand.certificates.baselines`, Sigma is its (1), M its (2); errors
and tolerances are in `evenhand.certificates.cases`.

====================  ==================  ==========================================================
check                 certificates        what is compared
====================  ==================  ==========================================================
`gradients`           optimal baseline    the gradient of Sigma at the mean, by autodiff and by (3),
                                          with 0
\                     gradient            autodiff with (3), at the mean and at random baselines
\                     differences         autodiff with central differences of Sigma, along
                                          coordinates and along all at once
`kinks`               kinks               one-sided derivatives where all systems agree, with 0
                                          between them
`lower_bound`         lower bound         Sigma of random baselines, on the simplex and off it, with
                                          Sigma(mean); and with (5)
`ties`                ties                Sigma at mean + x D sign(u), for random x, with that of
                                          the mean
`every_proposal`      every proposal      both sides of (7), for random proposals and baselines
`all_pairs`           all pairs           variance summed over all pairs of systems, with k times
                                          that against the mean
`optimal_proposal`    optimal proposal    the gradient of the Lagrangian (8) at q*, with 0, for each
                                          of the four goals
`duality`             minimax design      its worst variance, computed anew, with its bound
\                     weak duality        the dual at random importances, with the worst variance of
                                          random proposals
====================  ==================  ==========================================================

The baseline, the gradient, the proposal and the minimax design that are checked are *claims*: give
another one, and the check fails.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.certificates.baselines import (
    baseline_bound,
    baseline_variance,
    distance,
    gradient_size,
    lagrangian,
    multiplier,
    reach,
)
from evenhand.certificates.cases import (
    DIFFERENCES,
    EPS,
    GAP,
    Arrays,
    Case,
    Certificate,
    relative,
    worst,
)
from evenhand.designs.proposals import Gap, proposal, variance
from evenhand.designs.utilities import Utility, known_utility
from evenhand.errors import EvenhandError
from evenhand.estimands import goals
from evenhand.estimands.contrasts import contrasts, norm
from evenhand.estimands.goals import Goal

__all__ = [
    "all_pairs",
    "duality",
    "every_proposal",
    "gradients",
    "kinks",
    "lower_bound",
    "optimal_proposal",
    "ties",
]

#: Finite differences: offsets of the central formula of order 6 and what each counts, the length of
#: a step, and how many coordinates are tried.
OFFSETS = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
COUNTS = np.array([-1.0, 9.0, -45.0, 45.0, -9.0, 1.0]) / 60.0
STEP = 0.03
COORDINATES = 4

Gradient = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
Proposal = Callable[[jax.Array, jax.Array], jax.Array]
Minimax = Callable[[Goal, Utility], tuple[jax.Array, Gap | None]]


@partial(jax.jit, static_argnames="gradient")
def _slopes(
    key: jax.Array, tau: jax.Array, pool: Arrays, gradient: Gradient
) -> dict[str, jax.Array]:
    """The gradient of Sigma at one baseline.

    Relative: its size, and how far the closed form and finite differences are from autodiff. And
    its largest entry, and the largest that a term of it can be, in units.
    """
    slope, size = jax.grad(baseline_variance)(tau, *pool), gradient_size(tau, *pool)
    closed = gradient(tau, *pool)
    return {
        "zero": jnp.maximum(relative(slope, size), relative(closed, size)).max(),
        "closed": relative(slope - closed, size).max(),
        "differences": _differences(key, tau, pool, slope, size).max(),
        "largest": jnp.abs(slope).max(),
        "size": size.max(),
    }


def _differences(
    key: jax.Array, tau: jax.Array, pool: Arrays, slope: jax.Array, size: jax.Array
) -> jax.Array:
    """Relative error of autodiff's `slope` against finite differences, by direction.

    The directions are the steepest coordinate and some at random, of those that add at least the
    average to M, and then the way uphill in every coordinate at once.
    """
    length = distance(tau, pool.weights)
    step = STEP * length / pool.weights.shape[1] ** 0.5
    share = jnp.abs(pool.utility) * length
    ample = share >= share.mean()
    steepest = jnp.argmax(jnp.where(ample, jnp.abs(slope), -1.0))
    others = jax.random.categorical(key, jnp.where(ample, 0.0, -jnp.inf), shape=(COORDINATES - 1,))
    every = -1
    places = jnp.concatenate([steepest[None], others, jnp.array([every])])

    def along(place: jax.Array) -> jax.Array:
        chosen = jnp.where(jnp.arange(len(tau)) == place, 1.0, 0.0)
        direction = step * jnp.where(place == every, jnp.sign(slope), chosen)
        values = jax.lax.map(
            lambda offset: baseline_variance(tau + offset * direction, *pool), OFFSETS
        )
        return relative(COUNTS @ values - direction @ slope, jnp.abs(direction) @ size)

    return jax.lax.map(along, places)


def gradients(case: Case, gradient: Gradient) -> tuple[Certificate, Certificate, Certificate]:
    """Optimal baseline, gradient, differences."""
    found = [
        _slopes(jax.random.fold_in(case.key, i), tau, case.pool, gradient)
        for i, tau in enumerate([case.tau, *case.trials.baselines])
    ]
    here, *elsewhere = ({name: float(value) for name, value in each.items()} for each in found)
    closed, differences = (
        {"at the mean": here[way], "at random baselines": worst(*(each[way] for each in elsewhere))}
        for way in ("closed", "differences")
    )
    return (
        Certificate(
            "optimal baseline",
            "the mean of the systems is a stationary point of Sigma",
            here["zero"],
            case.averaged,
            {
                "largest |gradient| there": here["largest"],
                "largest that a term of it could be": here["size"],
                "relative gradient at random baselines, at least": min(
                    e["zero"] for e in elsewhere
                ),
            },
        ),
        Certificate(
            "gradient",
            "autodiff and the closed form give one gradient of Sigma",
            worst(*closed.values()),
            case.summed,
            closed,
        ),
        Certificate(
            "differences",
            "autodiff and central finite differences give one gradient of Sigma",
            worst(*differences.values()),
            DIFFERENCES,
            differences,
        ),
    )


@jax.jit
def _sides(tau: jax.Array, pool: Arrays) -> tuple[jax.Array, ...]:
    """Relative derivatives at the kinks.

    Displaced by a hair, the gradient of a kink's coordinate is its one-sided derivative. Gives the
    number of kinks, by how much 0 is not between the sides, the largest gradient, the smallest
    derivative to the right, and the largest to the left.
    """
    kink = distance(tau, pool.weights) == 0
    hair = jnp.where(kink, EPS**0.5 * jnp.abs(pool.weights).max(), 0.0)

    def slope(at: jax.Array) -> jax.Array:
        size = gradient_size(at, *pool)
        return jax.grad(baseline_variance)(at, *pool) / jnp.where(size > 0, size, 1.0)

    here, right, left = jax.lax.map(slope, jnp.stack([tau, tau + hair, tau - hair]))
    outside = jnp.maximum(jnp.maximum(-right, left), 0.0)
    outside = jnp.where(jnp.isfinite(here) & jnp.isfinite(outside), outside, jnp.inf)
    return (
        kink.sum(),
        jnp.where(kink, outside, 0.0).max(),
        jnp.where(kink, jnp.abs(here), 0.0).max(),
        jnp.where(kink, right, jnp.inf).min(),
        jnp.where(kink, left, -jnp.inf).max(),
    )


def kinks(case: Case) -> Certificate:
    """Kinks of the claimed baseline."""
    count, error, largest, right, left = map(float, _sides(case.tau, case.pool))
    sides = {
        "largest relative gradient there": largest,
        "smallest derivative to the right, relative": right,
        "largest derivative to the left, relative": left,
    }
    return Certificate(
        "kinks",
        "where all systems agree the gradient is finite, and 0 is a subgradient",
        error,
        case.summed,
        {"kinks": int(count), **(sides if count else {})},
    )


@jax.jit
def _bounds(taus: jax.Array, pool: Arrays) -> tuple[jax.Array, ...]:
    """Sigma, its bound's expression, the bound, and M^2, of each baseline."""
    return jax.lax.map(
        lambda tau: (
            baseline_variance(tau, *pool),
            *baseline_bound(tau, *pool),
            reach(tau, *pool) ** 2,
        ),
        taus,
    )


def lower_bound(case: Case) -> Certificate:
    """Lower bound: the claimed baseline against the mean and random ones."""
    taus = jnp.stack([case.tau, case.mean, *case.trials.baselines])
    value, expressed, least, size = map(np.asarray, _bounds(taus, case.pool))
    gap = (value - value[0]) / size
    apart = worst(*np.abs(value - expressed) / size, *np.abs(value[0] - least) / size)
    return Certificate(
        "lower bound",
        "no baseline has a smaller Sigma: a bound that holds everywhere, where Sigma is not convex",
        worst(apart, -gap.min()),
        case.averaged,
        {
            "Sigma(mean)": float(value[0]),
            "smallest gap of a random baseline, relative": float(gap[2:].min()),
            "largest gap of a random baseline, relative": float(gap[2:].max()),
            "Sigma against the bound's expression": apart,
        },
    )


@jax.jit
def _tied(multiples: jax.Array, tau: jax.Array, pool: Arrays) -> jax.Array:
    """Relative distance of Sigma at tau + x ||w - tau|| sign(u) from Sigma(tau), for each x."""
    along = distance(tau, pool.weights) * jnp.sign(pool.utility)
    least = baseline_variance(tau, *pool)

    def apart(x: jax.Array) -> jax.Array:
        moved = tau + x * along
        return jnp.abs(baseline_variance(moved, *pool) - least) / reach(moved, *pool) ** 2

    return jax.lax.map(apart, multiples)


def ties(case: Case) -> Certificate:
    """Ties of the claimed baseline."""
    multiples = case.trials.multiples
    return Certificate(
        "ties",
        "moving every cell by the same multiple of the systems' spread leaves Sigma as it is",
        float(_tied(multiples, case.tau, case.pool).max()),
        case.averaged,
        {
            "smallest multiple tried": float(multiples.min()),
            "largest multiple tried": float(multiples.max()),
        },
    )


def _variances(q: jax.Array, values: jax.Array, utility: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Variance of one draw of each column of values (cells, columns), and its second moment."""
    each = variance(q, values, utility, utility**2)
    return each, each + (utility @ values) ** 2


@jax.jit
def _split(
    proposals: jax.Array, rivals: jax.Array, tau: jax.Array, pool: Arrays
) -> tuple[jax.Array, jax.Array]:
    """Relative distance between the sides of (7), and the share of a rival's cost that it adds."""
    weights, utility = pool

    def apart(both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        q, rival = both
        moved, second = (x.sum() for x in _variances(q, weights - rival[:, None], utility))
        kept = _variances(q, weights - tau[:, None], utility)[0].sum()
        between = weights.shape[1] * _variances(q, (tau - rival)[:, None], utility)[0].sum()
        return jnp.abs(moved - kept - between) / second, between / moved

    return jax.lax.map(apart, (proposals, rivals))


def every_proposal(case: Case) -> Certificate:
    """Every proposal: equation (7) with the claimed baseline for the mean."""
    error, share = _split(case.trials.proposals, case.trials.baselines, case.tau, case.pool)
    return Certificate(
        "every proposal",
        "whatever the proposal, a baseline costs k times its variance against the mean on top",
        float(error.max()),
        case.averaged,
        {
            "smallest share that a random baseline adds": float(share.min()),
            "largest share that a random baseline adds": float(share.max()),
        },
    )


@jax.jit
def _paired(
    norms: jax.Array, values: jax.Array, proposals: jax.Array, tau: jax.Array, pool: Arrays
) -> tuple[jax.Array, ...]:
    """For q* and each proposal: variance of all pairs, k times that against tau, second moment.

    And k Sigma(tau). `norms` are ||a_c|| of all pairs, `values` the systems' values.
    """
    weights, utility = pool
    lost = ((values[:, None] - values) ** 2).sum() / 2
    square = (utility * norms) ** 2
    best = proposal(distance(tau, weights), utility**2)

    def both(q: jax.Array) -> tuple[jax.Array, ...]:
        second = jnp.where(square > 0, square / jnp.where(square > 0, q, 1.0), 0.0).sum()
        against = weights.shape[1] * _variances(q, weights - tau[:, None], utility)[0].sum()
        return second - lost, against, second

    sigma = weights.shape[1] * baseline_variance(tau, *pool)
    return *jax.lax.map(both, jnp.concatenate([best[None], proposals])), sigma


def all_pairs(case: Case) -> Certificate:
    """All pairs, at the best proposal and at random ones."""
    target = case.goal.target
    norms, values = goals.pairs(target).norms(), target.values(np.asarray(case.pool.utility))
    found = _paired(norms, values, case.trials.proposals, case.tau, case.pool)
    total, against, second, sigma = map(np.asarray, found)
    error = worst(*np.abs(total - against) / second, abs(total[0] - sigma) / second[0])
    return Certificate(
        "all pairs",
        "the variances of all k (k - 1) / 2 differences of systems add up to k Sigma(mean)",
        error,
        case.averaged,
        {"variance of all pairs at q*": float(total[0]), "k Sigma(mean)": float(sigma)},
    )


@partial(jax.jit, static_argnames="proposal")
def _unbalanced(norms: jax.Array, second_moment: jax.Array, proposal: Proposal) -> jax.Array:
    """How far the proposal is from the conditions for a minimum of the convex problem.

    The gradient of the Lagrangian, relative to lambda, must be 0 where a cell matters; q must be 0
    elsewhere, where the gradient is lambda > 0; and q must sum to 1. Cells so unlikely that q^2 is
    not a normal number are left out.
    """
    q = proposal(norms, second_moment)
    price = multiplier(norms, second_moment)
    slope = jax.grad(lagrangian)(q, price, norms, second_moment) / price
    mass = second_moment * norms**2
    matters = mass > jnp.maximum(price, 1.0) * (jnp.finfo(q.dtype).tiny / EPS)
    inside = relative(jnp.where(matters, slope, 0.0), jnp.ones_like(slope)).max()
    outside = jnp.where(mass > 0, 0.0, q).max()
    return jnp.maximum(jnp.maximum(inside, outside), jnp.abs(q.sum() - 1.0))


def optimal_proposal(case: Case, proposal: Proposal) -> Certificate:
    """Optimal proposal, for each of the four goals."""
    target, square = case.goal.target, case.pool.utility**2
    first, second, *_ = target.systems
    numbers = {}
    for goal in (
        goals.absolute(target),
        goals.pair(target, first, second),
        goals.baseline(target, first),
        case.goal,
    ):
        norms = goal.norms()
        if (np.asarray(square) * norms).any():  # Not if the two of the pair are one.
            numbers[f"goal {goal.kind}"] = float(_unbalanced(norms, square, proposal))
    return Certificate(
        "optimal proposal",
        "q* is the stationary point of its convex problem, for every goal",
        worst(*numbers.values()),
        case.summed,
        numbers,
    )


@jax.jit
def _dual(
    q: jax.Array, proposals: jax.Array, importances: jax.Array, matrix: jax.Array, pool: Arrays
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Worst variances, the second moments that they are the remainders of, and duals.

    The first two of q and of each proposal; the dual, (sum_c |u_c| sqrt(sum_i h_i a_ic^2))^2 -
    sum_i h_i D_i^2, which is below every worst variance, at each h.
    """
    weights, utility = pool
    values = contrasts(weights, matrix)
    difference = (utility @ values) ** 2
    largest, second = jax.lax.map(
        lambda p: tuple(x.max() for x in _variances(p, values, utility)),
        jnp.concatenate([q[None], proposals]),
    )
    dual = jax.lax.map(
        lambda h: (jnp.abs(utility) @ norm(values, h)) ** 2 - h @ difference, importances
    )
    return largest, second, dual


def duality(case: Case, minimax: Minimax) -> tuple[Certificate, Certificate]:
    """Minimax design and weak duality, for ranking."""
    q, gap = minimax(case.goal, known_utility(np.asarray(case.pool.utility)))
    if gap is None:
        raise EvenhandError("the claimed minimax design has no duality gap to check")
    found = _dual(q, case.trials.proposals, case.trials.importances, case.goal.matrix, case.pool)
    largest, second, dual = map(np.asarray, found)
    # A variance far below its second moment is what rounding left of a difference.
    size = max(largest[0], 1e-9 * second[0])
    error = worst(*np.abs([largest[0] - gap.bound, largest[0] - gap.worst, gap.worst - gap.bound]))
    above = (largest - dual.max()) / second
    return (
        Certificate(
            "minimax design",
            "no proposal's worst variance is much below that of the minimax design",
            error / float(size),
            GAP,
            {"worst variance": float(largest[0]), "bound": gap.bound, "duality gap": gap.relative},
        ),
        Certificate(
            "weak duality",
            "the dual at any importances is below the worst variance of any proposal",
            worst(0.0, -above.min()),
            case.summed,
            {
                "largest dual tried": float(dual.max()),
                "smallest distance to a worst variance, relative": float(above.min()),
            },
        ),
    )
