r"""Studies drawn, judged and estimated over and over, where the utility of every cell is known.

Two kinds, each a function of the same `Replications` and with the same answer, `Studies`:

- `replicate_design`: one round of a design. One compiled call runs a batch of studies under
  ``vmap``; only cells with a utility other than 0 contribute to an estimate, so a batch gathers
  from a table of these alone.
- `replicate_rounds`: several rounds, each steered by those before it
  (`evenhand.simulation.adaptive`): by what was learned, and by what still decides the goal. One
  study after the other.

Each study gets intervals for the contrasts of the goal and for pairs of systems, and records
whether they cover. Both share their keys, so that they differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from evenhand.designs.proposals import Design
from evenhand.designs.utilities import rank_utility
from evenhand.devices import by_share, mesh, place
from evenhand.estimands.contrasts import contrasts
from evenhand.estimands.goals import Goal, differences
from evenhand.estimands.targets import Target
from evenhand.float64 import in_float64
from evenhand.intervals.confidence import INTERVAL
from evenhand.intervals.intervals import check_interval, chosen
from evenhand.intervals.moments import TermMoments, cumulants
from evenhand.intervals.pool_moments import Events, events, pool_moments
from evenhand.priors.prior import Prior
from evenhand.sampling.samplers import SAMPLERS, expected_by_fold, layout
from evenhand.simulation.adaptive import study_that_learns

__all__ = [
    "Replications",
    "Studies",
    "earned",
    "replicate_design",
    "replicate_rounds",
]

#: Pairs of systems whose intervals are made in every study; of more, as many evenly taken.
_MOST_PAIRS = 1000


@dataclass(frozen=True, eq=False)
class Replications:
    """What is replicated, and how often: all that settings of a simulation have in common.

    Attributes
    ----------
    goal
        What the studies estimate.
    utility
        True utility of every cell, shape (cells,).
    count
        Number of studies.
    seed
        Of their draws.
    level, interval
        Of the intervals; the kind is ``auto`` or one of `evenhand.intervals.intervals.INTERVALS`.
    told
        Called with the number of studies done since the last call.
    """

    goal: Goal
    utility: np.ndarray
    count: int
    seed: int = 0
    level: float = 0.95
    interval: str = INTERVAL
    told: Callable[[int], object] = lambda done: None

    @cached_property
    def truth(self) -> np.ndarray:
        """Value of each system; shape (systems,)."""
        return self.goal.target.values(self.utility)

    @cached_property
    def likely(self) -> np.ndarray:
        """What the ranks say of the chance of relevance, in any unit; shape (cells,)."""
        return rank_utility(self.goal.target.pool).second_moment

    @cached_property
    def earned(self) -> tuple[np.ndarray, np.ndarray]:
        """What each cell adds to the systems' values, as `earned` has it."""
        return earned(self.goal.target, self.utility)

    def keys(self) -> jax.Array:
        """A key for each study."""
        return jax.random.split(jax.random.key(self.seed), self.count)


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


class Studies(NamedTuple):
    """Replicated studies: estimates, and what became of their intervals.

    `value` has the shape (studies, systems), `covered` and `width` (studies, contrasts), and
    `pairs` (studies,): the share of pairs whose interval covers; NaN where there is one system.
    """

    value: np.ndarray
    covered: np.ndarray
    width: np.ndarray
    pairs: np.ndarray

    @classmethod
    def of(cls, goal: Goal, value: np.ndarray, inside: np.ndarray, width: np.ndarray) -> Studies:
        """From what holds for the contrasts of the goal and, after them, for pairs."""
        m = len(goal.matrix)
        some = inside.shape[1] > m
        pairs = inside[:, m:].mean(1) if some else np.full(len(value), np.nan)
        return cls(value, inside[:, :m], width[:, :m], pairs)

    @classmethod
    def joined(cls, parts: Sequence[Studies], count: int) -> Studies:
        """The first `count` studies of some batches."""
        return cls(*(np.concatenate(column)[:count] for column in zip(*parts, strict=True)))


class _Drawn(NamedTuple):
    """Studies of a batch: sums over draws, shapes (studies, ...).

    JAX arrays inside the compiled call, NumPy arrays outside.
    """

    value: Any
    variance: Any
    third: Any
    fourth: Any
    degrees: Any
    relevant: Any
    squares: Any
    fourths: Any
    most: Any


class _Known(NamedTuple):
    """What a batch knows of the pool, and the contrasts wanted.

    Attributes
    ----------
    expected, order
        E_c of the round and the order of its cells, shape (cells,).
    slot
        Row of each cell in the next two, shape (cells,).
    earned, utility
        w_c u_c and u_c of the cells with a utility other than 0, and of one that has none.
    matrix
        Contrasts of the goal.
    first, second
        Systems of each pair.
    """

    expected: jax.Array
    order: jax.Array
    slot: jax.Array
    earned: jax.Array
    utility: jax.Array
    matrix: jax.Array
    first: jax.Array
    second: jax.Array


@partial(jax.jit, static_argnames=("sampler", "n", "over"))
def _batch(
    keys: jax.Array, known: _Known, *, sampler: str, n: int, over: Mesh | None = None
) -> _Drawn:
    """Estimates, the moments of contrasts and pairs, and what was judged: one study a key."""
    law, together = SAMPLERS[sampler], jnp.zeros(n, jnp.int32)

    def study(key: jax.Array, known: _Known) -> _Drawn:
        cells = law.draw(key, known.expected, n, known.order, None)
        at, row = known.expected[cells], known.slot[cells]
        z = known.earned[row] / at[:, None]
        asked = [contrasts(z, known.matrix), z[:, known.first] - z[:, known.second]]
        found = cumulants(jnp.concatenate(asked, axis=1), at, together, sampler=sampler, folds=1)
        said = jnp.abs(known.utility[row])
        return _Drawn(
            z.sum(0),
            *found,
            (said > 0).sum(),
            (said**2).sum(),
            (said**4).sum(),
            said.max(initial=0.0),
        )

    return by_share(over, jax.vmap(study, (0, None)), 1)(keys, known)


@in_float64
def replicate_design(given: Replications, design: Design, sampler: str, budget: int) -> Studies:
    """Studies of one round.

    Parameters
    ----------
    given
        What is replicated.
    design, sampler, budget
        Of the round.
    """
    known = _known(given, design, sampler, budget)
    k = len(given.truth)
    pairs = differences(np.asarray(known.first), np.asarray(known.second), k)
    matrix = np.concatenate([given.goal.matrix, pairs])
    expected = np.asarray(known.expected)
    reach = np.where(expected > 0, 1.0 / np.where(expected > 0, expected, 1.0), 0.0)
    blocks = [(len(given.goal.matrix), given.goal.form), (len(pairs), None)]
    over = events(given.goal.target, matrix, given.likely, expected, reach, sampler, blocks)
    interval = check_interval(chosen(given.interval, None))
    aim = matrix @ given.truth
    slack = 1e-9 * (1.0 + np.abs(aim))
    # Bounded memory: a batch's draws and, without repeats, one shuffled pool for each of its
    # studies.
    draws = budget * (k + len(matrix))
    width = max(draws, 0 if SAMPLERS[sampler].repeats else 2 * len(expected))
    batch = int(np.clip(1 << 25 >> int(width - 1).bit_length(), 8, given.count))
    devices = mesh()
    if devices is not None:  # each has memory of its own
        batch = devices.size * min(batch, -(-given.count // devices.size))
    keys, parts = given.keys(), []
    for start in range(0, given.count, batch):
        # The last batch is filled up with keys used before, so that one compilation serves all.
        some = np.arange(start, start + batch) % given.count
        share = place(devices, keys[some])
        found = _batch(share, known, sampler=sampler, n=budget, over=devices)
        drawn = _Drawn(*map(np.asarray, found))
        low, high = interval.limits(_moments(given, drawn, matrix, over), given.level)
        inside = (low - slack <= aim) & (aim <= high + slack)
        parts.append(Studies.of(given.goal, drawn.value, inside, high - low))
        given.told(min(batch, given.count - start))
    return Studies.joined(parts, given.count)


def _known(given: Replications, design: Design, sampler: str, budget: int) -> _Known:
    goal, (slot, rows) = given.goal, given.earned
    useful = np.append(given.utility[given.utility != 0], 0.0)
    first, second = np.triu_indices(len(given.truth), 1)
    some = np.linspace(0, len(first) - 1, min(len(first), _MOST_PAIRS)).round().astype(int)
    told = (layout(goal, sampler), slot, rows, useful, goal.matrix, first[some], second[some])
    expected, _ = expected_by_fold(sampler, design.q, budget)
    return _Known(*map(jax.device_put, (expected, *told)))


def _moments(given: Replications, found: _Drawn, matrix: np.ndarray, over: Events) -> TermMoments:
    """What intervals are made from, for every study of a batch; shapes (studies, contrasts)."""
    top = given.goal.target.measure.top_utility
    most = np.where(found.relevant > 0, found.most, 1.0) if top is None else top
    rho = np.sqrt((found.fourths + most**4) / (found.squares + most**2))[:, None]
    negative = bool((given.utility < 0).any())
    event, side, floor, ceiling = pool_moments(over, rho, top, negative=negative)
    return TermMoments(
        found.value @ matrix.T,
        found.variance,
        found.third,
        found.fourth,
        event,
        side,
        found.degrees[:, None],
        floor,
        ceiling,
    )


@in_float64
def replicate_rounds(
    given: Replications, first: Design, prior: Prior | None, rounds: int, budget: int
) -> Studies:
    """Studies of several rounds.

    Parameters
    ----------
    given
        What is replicated.
    first
        The design of the first round, whose floor the others share.
    prior
        What learns; None if nothing does.
    rounds, budget
        Number of rounds, and draws of all.
    """
    goal, truth = given.goal, given.truth
    x, y = np.triu_indices(len(truth), 1)
    parts = []
    for key in given.keys():
        found = study_that_learns(
            key,
            goal,
            lambda cells: given.utility[cells],
            prior,
            budget,
            rounds=rounds,
            first=first,
            floor=first.floor,
            level=given.level,
            interval=given.interval,
        )
        aim = goal.matrix @ truth
        inside = (found.contrast_low - 1e-9 <= aim) & (aim <= found.contrast_high + 1e-9)
        between = np.array([np.nan])
        if len(x):
            shown, difference = found.pairs, truth[x] - truth[y]
            covers = (shown.low - 1e-9 <= difference) & (difference <= shown.high + 1e-9)
            between = covers.mean(keepdims=True)
        width = found.contrast_high - found.contrast_low
        parts.append(Studies(found.value[None], inside[None], width[None], between))
        given.told(1)
    return Studies.joined(parts, given.count)
