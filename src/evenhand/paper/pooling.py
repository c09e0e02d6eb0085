r"""The deterministic pools that the paper compares with: ShallowPool and DeepPool.

Both spend n judgments on |X| queries whose lists are b long.

- *ShallowPool* judges the first n / |X| ranks of every query and takes the rest for utility 0:
  deterministic, and biased downwards by all that lies below.
- *DeepPool* judges whole lists of l = n / b queries drawn without replacement, and averages them:
  unbiased, with the standard deviation

      S sqrt( (1 - l / |X|) / l ),     S^2 the variance over queries with |X| - 1.            (1)

References
----------
Schnabel et al. 2016, section 7.2; Sparck Jones and van Rijsbergen 1975 for pooling.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.errors import EvenhandError
from evenhand.float64 import in_float64

__all__ = ["deep_pool", "deep_pool_sd", "shallow_pool"]


def shallow_pool(
    rank: np.ndarray, weight: np.ndarray, utility: np.ndarray, *, depth: float
) -> float:
    """Value of a system with judgments of the first `depth` ranks only.

    Parameters
    ----------
    rank, weight, utility
        Of each pair that the system returns: shape (pairs,).
    depth
        Judgments a query, n / |X|; what is left of a rank is not used.
    """
    return float(np.sum(np.where(rank <= depth, weight * utility, 0.0)))


def deep_pool_sd(per_query: np.ndarray, *, queries: int) -> float:
    """Standard deviation of the mean over `queries` queries drawn, equation (1)."""
    share = queries / len(per_query)
    return float(np.std(per_query, ddof=1) * np.sqrt((1.0 - share) / queries))


@partial(jax.jit, static_argnames=("queries", "trials"))
def _means(key: jax.Array, per_query: jax.Array, *, queries: int, trials: int) -> jax.Array:
    first = jnp.arange(queries)

    def mean(trial: jax.Array) -> jax.Array:
        # The first steps of a Fisher-Yates shuffle.
        u = jax.random.uniform(jax.random.fold_in(key, trial), (queries,), per_query.dtype)
        place = first + (u * (len(per_query) - first)).astype(first.dtype)

        def take(left: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            i, j = step
            return left.at[j].set(left[i]), left[j]

        return jax.lax.scan(take, per_query, (first, place))[1].mean()

    return jax.lax.map(mean, jnp.arange(trials))


@in_float64
def deep_pool(key: jax.Array, per_query: np.ndarray, *, queries: int, trials: int) -> np.ndarray:
    """Replicated DeepPool estimates; shape (trials,).

    Parameters
    ----------
    key
        Typed key.
    per_query
        Value of each query's ranking; shape (|X|,).
    queries
        How many are judged, from 1 to |X|.
    trials
        Number of studies.

    Raises
    ------
    EvenhandError
        If there are not that many queries.
    """
    if not 1 <= queries <= len(per_query):
        raise EvenhandError(f"cannot judge {queries} of {len(per_query)} queries")
    return np.asarray(_means(key, jax.device_put(per_query), queries=queries, trials=trials))
