r"""Learn from judgments where relevance lies, and predict the moments of every pair.

A `Prior` fits sets of `Labels` and answers with a `Posterior` for each, which predicts, for any
cells, the posterior predictive

    mean_c = E[m_c],      second_c = E[m_c^2 + v_c]                                          (1)

with m and v the model's mean and spread (`evenhand.priors.models`), averaged over draws of its
parameters. Designs take the second moment, or, with a control variate, the variance second - mean^2
of what remains; the mean itself is what a control variate subtracts.

`NumPyroPrior` is the one that the library brings; anything with a method ``fit`` may stand in its
place. Labels enter unweighted: which cells were judged depends on the past only, never on what the
labels would say, so selection is ignorable.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import solve_triangular
from threadpoolctl import ThreadpoolController

from evenhand.designs.utilities import Moments, Reach
from evenhand.errors import EvenhandError
from evenhand.float64 import in_float64
from evenhand.priors import fits, log_density, predictive
from evenhand.priors.features import Features, FeatureTable
from evenhand.priors.fits import Fitted
from evenhand.priors.models import Model, Observed, model_for
from evenhand.sampling.labels import Labels

__all__ = [
    "METHODS",
    "NumPyroPosterior",
    "NumPyroPrior",
    "Posterior",
    "Prior",
]

#: Ways to find a posterior.
METHODS = ("laplace", "svi", "nuts")
#: Rows a block, and cells a chunk of predictions.
BLOCK, CHUNK = 2048, 1 << 14
#: Queries that models distinguish: a Hessian has the square of their number, and among so many few
#: have the judgments that show how they differ.
MOST_QUERIES = 512
#: Cells from which on predictions average over half the draws, in single precision.
MANY = 1 << 20
#: Judgments from which on an assessor is distinguished from the others.
LEAST_JUDGED = 8


@runtime_checkable
class Posterior(Protocol):
    """Protocol: what was learned from one set of labels."""

    def predict(self, cells: np.ndarray) -> Moments:
        """Moments of the judgment of each of the given cells, equation (1)."""
        ...


@runtime_checkable
class Prior(Protocol):
    """Protocol: learns from labels."""

    @property
    def name(self) -> str:
        """What it is called in reports."""
        ...

    def fit(self, sets: Sequence[Labels]) -> Sequence[Posterior]:
        """Learn from several sets of labels, each for itself.

        Must depend on nothing but each set's own labels: that is what keeps cross-fitted estimates
        unbiased.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class NumPyroPosterior:
    """What a NumPyro model learned from one set of labels.

    Attributes
    ----------
    table
        Features of the pool.
    model, levels
        The model, and the utilities that it distinguishes.
    labels
        What it was fitted to.
    fitted
        Its parameters.
    """

    table: FeatureTable
    model: Model
    levels: np.ndarray
    labels: Labels
    fitted: Fitted

    def data(self) -> tuple[Features, Observed]:
        """What the model was given."""
        return _rows(self.table, self.labels, len(self.labels))

    @in_float64
    def predict(self, cells: np.ndarray) -> Moments:
        """Moments of each of the given cells, chunk by chunk in flat memory."""
        cells = np.asarray(cells)
        # One length for all but large pools: each is compiled, which takes longer than to predict.
        size = CHUNK if len(cells) > 8 * CHUNK else BLOCK
        # Thinned where there are thousands, and in pools of millions: there 16 draws, in antithetic
        # pairs, lose less than 1 % in variance, and single precision, which features have, nothing.
        many = len(cells) >= MANY
        most, kind = (fits.DRAWS // 2, np.float32) if many else (fits.DRAWS, np.float64)
        thin = -(-len(self.fitted.draws) // most)
        draws = jnp.asarray(self.fitted.draws[::thin], kind)
        own = _told_apart(self.table, self.labels)
        levels = jnp.asarray(self.levels, kind)
        mean, second = np.empty((2, len(cells)))
        reached: dict[int, np.ndarray] = {}

        @in_float64  # a setting of each thread
        def chunk(first: int) -> None:
            some = cells[first : first + size]
            found = predictive.moments(
                self.table.rows(some, size, own=own),
                draws,
                levels,
                model=self.model,
                n_assessors=_n_assessors(self.labels),
            )
            here = slice(first, first + len(some))
            mean[here], second[here] = (np.asarray(x)[: len(some)] for x in found[:2])
            second[here] += mean[here] ** 2
            if found[2] is not None:
                reached[first] = np.asarray(found[2])[: len(some)]

        # One thread makes features while the other predicts.
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(chunk, range(0, len(cells), size)))
        return Moments("learned", mean, second, self._reach(reached) if reached else None)

    def parameters(self, n: int) -> np.ndarray:
        """Draws of the parameters by chain, shape (chains, draws, d).

        `n` of a posterior that is normal; of another, those that its fit took.
        """
        fitted = self.fitted
        d = fitted.mode.shape[-1]
        if fitted.factor.size and np.isfinite(fitted.factor).all():
            noise = np.random.default_rng(0).normal(size=(d, n))
            away = solve_triangular(np.asarray(fitted.factor), noise, lower=True, trans=1)
            return (np.asarray(fitted.mode)[:, None] + away).T[None]
        return np.asarray(fitted.draws).reshape(int(fitted.chains), -1, d)

    @in_float64
    def simulate(self, n: int, *, seed: int = 0) -> np.ndarray:
        """Posterior predictive draws: what judging the whole pool may say.

        Parameters
        ----------
        n
            Number of draws, each of parameters of its own where there are as many.
        seed
            Of the judgments.

        Returns
        -------
        numpy.ndarray
            A judgment of every cell, by one assessor: float32, shape (n, cells).
        """
        drawn = self.parameters(n)
        drawn = drawn.reshape(-1, drawn.shape[-1])
        draws = jax.device_put(drawn[np.arange(n) * len(drawn) // n])
        levels, own = jax.device_put(self.levels), _told_apart(self.table, self.labels)
        cells = np.arange(len(self.table.pool))
        found = np.empty((n, len(cells)), np.float32)
        for first in cells[::BLOCK]:
            some = cells[first : first + BLOCK]
            said = predictive.judgments(
                jax.random.fold_in(jax.random.key(seed), first),
                self.table.rows(some, BLOCK, own=own),
                draws,
                levels,
                model=self.model,
                n_assessors=_n_assessors(self.labels),
            )
            found[:, first : first + len(some)] = np.asarray(said)[:, : len(some)]
        return found

    def _reach(self, chunks: dict[int, np.ndarray]) -> Reach:
        """Chances of all levels above 0; every judgment reaches the lowest."""
        chance = np.concatenate([chunks[first] for first in sorted(chunks)])
        if self.levels[0] <= 0:
            above = int(np.searchsorted(self.levels[1:], 0.0, side="right"))
            return Reach(self.levels[1 + above :], chance[:, above:])
        return Reach(self.levels, np.pad(chance, ((0, 0), (1, 0)), constant_values=1.0))


@dataclass(frozen=True, slots=True, eq=False)
class NumPyroPrior:
    """A NumPyro model over the features of a pool.

    Attributes
    ----------
    table
        The features.
    model
        Your own model; by default the one of `evenhand.priors.models` that suits the labels.
    levels
        Utilities that judgments can have; by default those that occur in the labels.
    method
        ``laplace`` (the default), ``svi`` or ``nuts``.
    seed
        For the methods that draw.
    start
        What an earlier round learned, to start from where the parameters are the same. It must be
        of the past: never of labels that a fit is to be blind to.
    """

    table: FeatureTable
    model: Model | None = None
    levels: np.ndarray | None = None
    method: str = "laplace"
    seed: int = 0
    start: NumPyroPosterior | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise EvenhandError(
                f"unknown way to fit {self.method!r}", hint=f"known are {', '.join(METHODS)}"
            )

    @property
    def name(self) -> str:
        """``learned``, or the name of your own model."""
        return "learned" if self.model is None else self.model.__name__

    @in_float64
    def fit(self, sets: Sequence[Labels]) -> list[NumPyroPosterior]:
        """Fit each set; by Laplace those of one model at once, filled up to one length."""
        sets = [labels.told_apart(LEAST_JUDGED) for labels in sets]
        chosen = [self._chosen(labels) for labels in sets]
        longest = _filled_up(max((len(labels) for labels in sets), default=0))
        groups: dict[tuple, list[int]] = {}
        for i, (labels, (model, levels)) in enumerate(zip(sets, chosen, strict=True)):
            groups.setdefault((model, levels.tobytes(), _n_assessors(labels)), []).append(i)
        found: dict[int, NumPyroPosterior] = {}
        for (model, *_), members in groups.items():
            levels = chosen[members[0]][1]
            at_once = self.method == "laplace"
            for together in [members] if at_once else [[i] for i in members]:
                # Filling rounds otherwise. Newton's method forgets that; minibatches and chains of
                # a set must not know how long the others are.
                size = longest if at_once else _filled_up(len(sets[together[0]]))
                fitted = self._fit([sets[i] for i in together], model, levels, size)
                for i, one in zip(together, fitted, strict=True):
                    found[i] = NumPyroPosterior(self.table, model, levels, sets[i], one)
        return [found[i] for i in range(len(sets))]

    def _chosen(self, labels: Labels) -> tuple[Model, np.ndarray]:
        """Model and levels for some labels, from nothing but these."""
        model, levels = model_for(labels.utility if self.levels is None else self.levels)
        return (self.model or model), np.asarray(levels, np.float64)

    def _fit(
        self, sets: Sequence[Labels], model: Model, levels: np.ndarray, size: int
    ) -> list[Fitted]:
        block = min(size, BLOCK) if self.method == "laplace" else size
        rows = [
            jax.tree.map(
                lambda x: x.reshape(-1, block, *x.shape[1:]), _rows(self.table, labels, size)
            )
            for labels in sets
        ]
        stacked = jax.tree.map(lambda *x: np.stack(x), *rows)
        one = jax.tree.map(lambda x: jax.device_put(x[0, 0]), stacked)
        features, judged = stacked
        leaves, made_of = jax.tree.flatten((*one, levels))
        d = _n_parameters(model, made_of, tuple((x.shape, x.dtype) for x in leaves))
        # Not quite 0: there NumPyro's Bernoulli has a kink, of which autodiff takes one side.
        start = np.full((len(sets), d), 0.01)
        if self.start is not None and self.start.fitted.mode.shape == (d,):
            start[:] = self.start.fitted.mode
        if self.method == "laplace":
            with _linear_algebra().limit(limits=1, user_api="blas"):
                fitted = fits.laplace(features, judged, jax.device_put(levels), start, model=model)
            return [Fitted(*(x[i] for x in fitted)) for i in range(len(sets))]
        method = {"svi": fits.svi, "nuts": fits.nuts}[self.method]
        fitted = method(*one, jax.device_put(levels), start[0], model=model, seed=self.seed)
        return [jax.tree.map(np.asarray, fitted)]


@functools.cache
def _linear_algebra() -> ThreadpoolController:
    """The threads of LAPACK, to be limited to one while it factorises many small matrices.

    It would share each among threads that spin while they wait for one another: on a busy machine
    a fit then takes twenty times as long.
    """
    return ThreadpoolController()


@functools.lru_cache(maxsize=256)
def _n_parameters(model: Model, made_of: Any, leaves: tuple[tuple, ...]) -> int:
    """Number of parameters of a model; remembered, since NumPyro takes a while."""
    given = jax.tree.unflatten(made_of, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])
    found = jax.eval_shape(lambda *given: log_density.parameters(model, *given)[0], *given)
    return len(found)


def _rows(table: FeatureTable, labels: Labels, size: int) -> tuple[Features, Observed]:
    """Features and judgments of one set, filled up."""
    missing = size - len(labels)
    assessor = np.zeros(len(labels), np.int32) if labels.assessor is None else labels.assessor
    judged = Observed(
        np.pad(labels.utility, (0, missing)),
        np.pad(np.ones(len(labels)), (0, missing)),
        np.pad(assessor.astype(np.int32), (0, missing)),
        _n_assessors(labels),
    )
    return table.rows(labels.cells, size, own=_told_apart(table, labels)), judged


def _told_apart(table: FeatureTable, labels: Labels) -> np.ndarray | None:
    """The queries with most judgments, where there are too many to distinguish all; else None."""
    n_queries = len(table.pool.queries)
    if n_queries <= MOST_QUERIES:
        return None
    judged = np.bincount(table.pool.query[labels.cells], minlength=n_queries)
    return np.argsort(-judged, kind="stable")[: MOST_QUERIES - 1]


def _n_assessors(labels: Labels) -> int:
    """Number of codes of assessors, rounded up so that few are compiled."""
    if labels.assessor is None or not len(labels):
        return 1
    return 1 << int(labels.assessor.max()).bit_length()


def _filled_up(n: int) -> int:
    """Length to which n rows are filled up, so that few lengths are compiled."""
    size = 1 << max(9, (max(n, 1) - 1).bit_length())
    # Blocks of nothing but filling cost memory alone, which is bounded where it matters.
    step = size // 8
    return size if size <= 8 * BLOCK else -(-n // step) * step
