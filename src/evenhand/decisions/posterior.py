r"""What a model that learned from the judgments believes of the systems' values.

Draws of its posterior, in which every pair has a judgment: that of an assessor where there is one,
his mean where there are several, and elsewhere one that the model made up,

    theta ~ p(theta | judged),   r_c ~ p(r | theta, c) of pairs not judged,   V_j = U_j(r)   (1)

with U_j what the measure makes of complete judgments. So this holds for every measure, ratios, too.

This is no estimate. It is as right as the model is, where estimates are unbiased and intervals hold
whatever the model says; and it never enters one. It answers another question: who is probably the
best, if what was judged is like the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

from evenhand.estimands.targets import Target
from evenhand.float64 import in_float64
from evenhand.measures.base import uses_scores
from evenhand.nonlinear.gradients import FlatLists, Levels, Smooth, by_list, checked, layout
from evenhand.nonlinear.kinds import kind_of
from evenhand.priors.prior import NumPyroPrior
from evenhand.sampling.labels import Labels

__all__ = ["Beliefs", "believed"]

#: Draws of a posterior, and the judgments that all of them may have together.
DRAWS, MOST = 1000, 1 << 26
#: Entries of the pool, over draws, that are added up at once.
PIECE = 1 << 23


@dataclass(frozen=True, slots=True, eq=False)
class Beliefs:
    """Draws of the systems' values, equation (1).

    Attributes
    ----------
    model
        What it is called that learned.
    systems
        Their names.
    value
        In the measure's unit; shape (draws, systems).
    """

    model: str
    systems: tuple[str, ...]
    value: np.ndarray

    def best(self, groups: np.ndarray, sign: int) -> np.ndarray:
        """In which share of the draws each system is the best, ties split: shape (systems,).

        NaN where the model's fit is not finite.

        Parameters
        ----------
        groups
            Of each system, the first that returns the same: these are the best together or not at
            all. -1 leaves a system out.
        sign
            -1 where lower values are better.
        """
        among = np.unique(groups[groups >= 0])
        merit = sign * self.value[:, among]
        if not np.isfinite(merit).all():
            return np.full(len(groups), np.nan)
        leads = merit >= merit.max(1, keepdims=True, initial=-np.inf) - 1e-12
        chance = np.zeros(len(groups))
        chance[among] = (leads / leads.sum(1, keepdims=True)).mean(0)
        return np.where(groups >= 0, chance[groups], 0.0)


def believed(
    target: Target,
    known: np.ndarray,
    prior: NumPyroPrior,
    labels: Labels,
    *,
    said: np.ndarray | None = None,
    seed: int = 0,
) -> Beliefs:
    """Fit a model to judgments, and draw its systems' values.

    Parameters
    ----------
    target
        The systems' weights.
    known
        Utility of each cell, NaN where it is not judged; shape (cells,).
    prior
        What learns.
    labels
        What it learns from.
    said
        Every utility judged, by default those of `labels`.
    seed
        Of the draws: `DRAWS`, and fewer in pools of more than 60,000 pairs. Of 1,000 a probability
        has a standard error of at most .016.
    """
    posterior = prior.fit([labels])[0]
    n = int(np.clip(MOST // max(len(known), 1), 16, DRAWS))
    utility = posterior.simulate(n, seed=seed)
    # What lists divide by counts documents by level: those of the model, where it knows utilities
    # one by one (of another `levels` are a centre and a scale), else those that were judged.
    levels = posterior.levels.astype(utility.dtype)
    said = labels.utility if said is None else said
    said = levels if np.isin(utility[0], levels).all() else said
    sure = np.isfinite(known)
    utility[:, sure] = known[sure]
    if kind_of(target.measure).whole_lists:
        gain = np.unique(said[said > 0])
        value = _of_lists(target, utility, gain if len(gain) else np.ones(1))
    else:
        value = _of_sums(target, utility)
    return Beliefs(prior.name, target.systems, value)


def _of_sums(target: Target, utility: np.ndarray) -> np.ndarray:
    """U_j of sums over documents, for several complete judgments: shape (draws, systems)."""
    pool, measure = target.pool, target.measure
    entry, cell = np.arange(len(target.weight)), target.cell
    add = csr_array((target.weight, (target.system, entry)), (len(target.systems), len(entry)))
    parts = []
    for some in np.array_split(utility, -(-utility.shape[0] * len(entry) // PIECE)):
        each = some[:, cell].astype(np.float64)
        if uses_scores(measure):
            each = measure.error(pool.score, each)
        parts.append((add @ each.T).T)
    return np.concatenate(parts)


@in_float64
def _of_lists(target: Target, utility: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """U_j of measures of whole lists, likewise."""
    pool = target.pool
    measure, gains = checked(target.measure, Levels(gain, np.zeros((0, len(gain)))))
    order, lists = layout(pool, measure)
    where = jax.device_put(pool.query), jax.device_put(pool.cell[order])
    value = _by_draw(
        jax.device_put(utility),
        *where,
        lists,
        measure=measure,
        gain=gains,
        shape=(len(pool.systems), len(pool.queries)),
    )
    return np.asarray(value)


@partial(jax.jit, static_argnames=("measure", "gain", "shape"))
def _by_draw(
    utility: jax.Array,
    query: jax.Array,
    cell: jax.Array,
    lists: FlatLists,
    *,
    measure: Smooth,
    gain: tuple[float, ...],
    shape: tuple[int, int],
) -> jax.Array:
    top = jnp.asarray(gain)
    below = jnp.append(0.0, top[:-1])

    def one(said: jax.Array) -> jax.Array:
        reached = jnp.clip((said[:, None].astype(top.dtype) - below) / (top - below), 0.0, 1.0)
        counts = jnp.zeros((shape[1], len(gain))).at[query].add(reached)
        found = by_list(reached[cell], jnp.tile(counts, (shape[0], 1)), lists, measure, gain)
        return found.reshape(shape).mean(1)

    return jax.lax.map(one, utility)
