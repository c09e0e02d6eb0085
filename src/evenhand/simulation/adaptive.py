"""Whole studies of several rounds against complete judgments: for simulations and examples.

Each round is drawn, "judged" from known utilities, and learned from; the next is steered by what
was learned, and focused on what still decides the goals `best` and `order`; the estimate is
cross-fitted in every round. It is what a study on disk does, without the disk. Studies that are
focused but learn nothing else are replicated many at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.decisions.focus import FOCUSED, UNIFORM, focused, pair_weights, root, tempered
from evenhand.decisions.steering import known_utilities, split, steered
from evenhand.designs.proposals import Design, design, mixture, proposal
from evenhand.designs.utilities import rank_utility
from evenhand.devices import by_share, mesh, place
from evenhand.estimands.contrasts import contrasts, norm
from evenhand.estimands.goals import Goal
from evenhand.estimands.targets import Target
from evenhand.estimation.cross_fitting import control_variates, labels
from evenhand.estimation.estimates import Estimate
from evenhand.estimation.importance import estimate
from evenhand.float64 import in_float64
from evenhand.intervals.confidence import INTERVAL
from evenhand.priors.prior import NumPyroPosterior, NumPyroPrior, Prior
from evenhand.sampling.rounds import Round, planned_weights
from evenhand.sampling.samplers import SAMPLERS, draw

__all__ = ["earned", "focused_studies", "learned_rounds", "study_that_learns"]

#: Judges cells: their utilities, as an assessor would say them.
Judge = Callable[[np.ndarray], np.ndarray]


def learned_rounds(
    key: jax.Array,
    goal: Goal,
    judge: Judge,
    prior: Prior,
    sizes: Sequence[int],
    *,
    first: Design | None = None,
    sampler: str = "distinct",
    floor: float = 0.1,
) -> list[Round]:
    """Draw and judge rounds, each steered by all before it.

    Parameters
    ----------
    key
        Typed key.
    goal
        The contrasts to estimate.
    judge
        Gives the utility of cells.
    prior
        What learns.
    sizes
        Draws of each round.
    first
        The design of the first round; by default that from ranks.
    sampler, floor
        As in `evenhand.sampling.samplers.draw` and `evenhand.designs.proposals.design`.
    """
    n_cells = len(goal.target.pool)
    made = first
    if made is None:
        made = design(goal, rank_utility(goal.target.pool), floor=floor)
    rounds: list[Round] = []
    steering = prior  # starts where the last round ended; control variates start afresh
    for number, n in enumerate(sizes):
        known = None
        if rounds:
            known = known_utilities(rounds, n_cells)
            posterior = steering.fit([labels(rounds)])[0]
            if isinstance(prior, NumPyroPrior) and isinstance(posterior, NumPyroPosterior):
                steering = replace(prior, start=posterior)
            asked = goal
            if goal.kind in FOCUSED:
                controls = control_variates(prior, goal, rounds)
                found = estimate(goal, rounds, planned=sizes[:number], controls=controls)
                asked = focused(goal, found)
            made, _ = steered(asked, posterior, known=np.isfinite(known), floor=floor)
        sample = draw(jax.random.fold_in(key, number), made, n, sampler=sampler)
        past = tuple(r.name for r in rounds)
        rounds.append(Round(sample, judge(sample.draws), past, f"round {number + 1}", known=known))
    return rounds


def study_that_learns(
    key: jax.Array,
    goal: Goal,
    judge: Judge,
    prior: Prior,
    budget: int,
    *,
    rounds: int = 1,
    first: Design | None = None,
    sampler: str = "distinct",
    floor: float = 0.1,
    level: float = 0.95,
    interval: str = INTERVAL,
) -> Estimate:
    """A study of so many draws in so many rounds, estimated; see `learned_rounds`."""
    sizes = split(budget, rounds)
    drawn = learned_rounds(
        key, goal, judge, prior, sizes, first=first, sampler=sampler, floor=floor
    )
    controls = control_variates(prior, goal, drawn)
    return estimate(goal, drawn, level=level, planned=sizes, controls=controls, interval=interval)


def earned(target: Target, utility: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What each cell adds to the value of each system, small enough to gather from.

    Parameters
    ----------
    target
        The systems' weights.
    utility
        True utility of every cell, shape (cells,).

    Returns
    -------
    slot, earned
        w_c u_c of the cells whose utility is not 0 and a last row of zeros, shape (rows, systems);
        `slot`, shape (cells,), leads from a cell to its row.
    """
    useful = np.flatnonzero(utility)
    slot = np.full(len(utility), len(useful))
    slot[useful] = np.arange(len(useful))
    rows = np.zeros((len(useful) + 1, len(target.systems)))
    rows[:-1] = target.weights(useful) * utility[useful, None]
    return slot, rows


@in_float64
def focused_studies(
    keys: jax.Array,
    goal: Goal,
    utility: np.ndarray,
    sizes: Sequence[int],
    *,
    first: Design,
    share: float = UNIFORM,
    floor: float = 0.1,
    told: Callable[[int], object] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Replicate studies whose later rounds are focused on what still decides the goal.

    All rounds are drawn by `distinct` and designed from ranks; none learns where relevance lies, so
    that a compiled call runs a batch of studies. What a round judged is known in later ones.

    Parameters
    ----------
    keys
        One for each study.
    goal
        Later rounds are focused if it is of a kind in `evenhand.decisions.focus.FOCUSED`; else they
        are for all pairs alike, which is to compare with.
    utility
        True utility of every cell, shape (cells,).
    sizes
        Draws of each round.
    first
        The design of the first round.
    share, floor
        The weights' share that is uniform, and the floor, of later rounds.
    told
        Called with the number of studies done since the last call.

    Returns
    -------
    value, covariance, degrees
        Shapes (studies, systems), (studies, systems, systems) and (studies,).
    """
    pool, k = goal.target.pool, len(goal.target.systems)
    held = (
        first.q,
        goal.target.weights(np.arange(len(pool))),
        rank_utility(pool).second_moment,
        goal.target.mean_weight(),
        *earned(goal.target, utility),
    )
    kind = goal.kind if goal.kind in FOCUSED else None
    # Bounded memory: weights of all pairs are dense for a moment, once a study.
    batch = int(np.clip((1 << 22) // (len(pool) * k), 1, 16))
    over = mesh()
    batch *= 1 if over is None else over.size
    parts = []
    for start in range(0, len(keys), batch):
        # The last batch is filled up with keys used before, so that one compilation serves all.
        chosen = np.arange(start, start + batch) % len(keys)
        found = _focused(
            place(over, keys[chosen]),
            *held,
            kind=kind,
            sizes=tuple(sizes),
            share=share,
            floor=floor,
            over=over,
        )
        parts.append([np.asarray(x) for x in found])
        if told is not None:
            told(min(batch, len(keys) - start))
    value, covariance, degrees = (
        np.concatenate(column)[: len(keys)] for column in zip(*parts, strict=True)
    )
    return value, covariance, degrees


@partial(jax.jit, static_argnames=("kind", "sizes", "share", "floor", "over"))
def _focused(keys, q, weights, second, base, slot, earned, *, kind, sizes, share, floor, over):
    """A batch of focused studies; `earned` holds w_c u_c of cells that `slot` leads to."""
    law, k = SAMPLERS["distinct"], weights.shape[1]

    def study(key, q, weights, second, base, slot, earned):
        free, exact, one_each = jnp.ones(len(q)), jnp.zeros(k), jnp.ones(k - 1)
        values, covariances, degrees = [], [], []
        value, covariance, proposed = jnp.zeros(k), jnp.zeros((k, k)), q
        for number, n in enumerate(sizes):
            if number:
                pairs = pair_weights(kind, value, covariance) if kind else jnp.zeros((k, k))
                norms = norm(contrasts(weights, root(tempered(pairs, share))), one_each)
                made = proposal(norms * free, second)
                rest = base * free
                proposed = mixture(made, rest / rest.sum(), floor)
            expected = law.expected(proposed, n)
            cells = law.draw(
                jax.random.fold_in(key, number), expected, n, jnp.zeros(0, jnp.int64), None
            )
            z = earned[slot[cells]] / expected[cells][:, None]
            spread, nu = law.covariance(z, expected[cells], jnp.zeros(n, jnp.int32), 1)
            values.append(exact + z.sum(0))
            covariances.append(spread)
            degrees.append(nu)
            omega = planned_weights(np.asarray(sizes[: number + 1]))
            value = jnp.asarray(omega) @ jnp.stack(values)
            covariance = jnp.tensordot(jnp.asarray(omega) ** 2, jnp.stack(covariances), 1)
            exact = exact + earned[slot[cells]].sum(0)
            free = free.at[cells].set(0.0)
        return value, covariance, jnp.stack(degrees).min()

    studies = jax.vmap(study, (0, *[None] * 6))
    return by_share(over, studies, 1)(keys, q, weights, second, base, slot, earned)
