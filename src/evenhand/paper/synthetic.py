r"""SYNTH: the paper's data set that resembles recommendations, and the systems made from it.

Each of 6000 users has a rating in 0..4 for each of 2000 items. A Dirichlet draw of parameters
followed by one categorical draw, for every pair anew, is a categorical draw from the mean:

    P(u = 0, 1, 2, 3, 4) = (.54, .25, .175, .03, .005)                                       (1)

Systems, by the rank that each gives to the item at rank r of OPT, out of R items:

=========  ==================================================================
OPT        r: items sorted by their true rating
REV-m      m + 1 - r for r <= m, r below: the first m in reverse order
SHIFT-m    r + m, and r + m - R where that is beyond the last
=========  ==================================================================

The measure is DCG with natural logarithm, weight 1 / ln(1 + rank); the approximate utility of one
system is u~ = 4 (1 - rank / R).

**Users are alike.** Seen by rank in OPT, weights and approximate utilities are the same for every
user, and a user's ratings in that order are known from how many of each there are. So cells fall
into R x 5 kinds (rank r in OPT, rating g), and all that matters of a data set is how many users
have rating g at rank r: what follows is exact, with 10,000 kinds in place of 12 million pairs. The
expected number is known too,

    P(rating at rank r >= g) = P(Binomial(R, P(u >= g)) >= r),                               (2)

which gives the expectation over data sets of everything that is linear in it.

u~ is 0 at the last rank although the method asks for more than 0. No floor is put under it: a pair
that all systems rank last is never drawn, and nothing is lost as long as its rating is 0, which
`evenhand.designs.proposals.variance` checks (it is infinite otherwise). With 2000 items it always
is; in small data sets it need not be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from evenhand.errors import EvenhandError
from evenhand.float64 import in_float64
from evenhand.measures.linear import DCG
from evenhand.paper.dense_cells import Cells

__all__ = [
    "PRINTED_SYSTEMS",
    "PROBABILITIES",
    "Synth",
    "expected_users",
    "merged",
    "opt",
    "rev",
    "shift",
    "spread_over_users",
    "synth",
    "weights",
]

#: Equation (1).
PROBABILITIES: tuple[float, ...] = (0.54, 0.25, 0.175, 0.03, 0.005)

Ranks = Callable[[np.ndarray], np.ndarray]


def opt(rank: np.ndarray) -> np.ndarray:
    """The perfect ranking: each item keeps its rank."""
    return rank


def rev(m: int) -> Ranks:
    """The first m items in reverse order.

    >>> rev(3)(np.arange(1, 6)).tolist()
    [3, 2, 1, 4, 5]
    """
    return lambda rank: np.where(rank <= m, m + 1 - rank, rank)


def shift(m: int) -> Ranks:
    """All items m ranks down, the last m first.

    >>> shift(2)(np.arange(1, 6)).tolist()
    [3, 4, 5, 1, 2]
    """
    return lambda rank: (rank - 1 + m) % len(rank) + 1


#: The systems as the printed numbers have them: what the paper calls SHIFT-5 is a shift by 3.
PRINTED_SYSTEMS: Mapping[str, Ranks] = {
    "OPT": opt,
    "REV-75": rev(75),
    "REV-150": rev(150),
    "SHIFT-5": shift(3),
    "SHIFT-7": shift(7),
}


@dataclass(frozen=True, slots=True, eq=False)
class Synth:
    """A SYNTH data set, as counts.

    Attributes
    ----------
    better
        N_g of each user, the number of items rated g or better, g = 1..4; int64, shape
        (users, 4).
    items
        R, the number of items.
    """

    better: np.ndarray
    items: int

    @property
    def ratings(self) -> np.ndarray:
        """Each user's ratings by rank in OPT, best first; int8, shape (users, items)."""
        rank = np.arange(1, self.items + 1)
        ratings = np.zeros((len(self.better), self.items), np.int8)
        for count in self.better.T:
            ratings += rank <= count[:, None]
        return ratings

    @property
    def users(self) -> np.ndarray:
        """How many users have rating g at rank r of OPT; float64, shape (items, 5)."""
        rank, n_users = np.arange(1, self.items + 1), len(self.better)
        at_least = [np.full(self.items, n_users)]
        for count in self.better.T:
            at_least.append(n_users - np.searchsorted(np.sort(count), rank, side="left"))
        return _by_rating(np.stack(at_least).astype(np.float64))

    def per_user(self, ranks: Ranks) -> np.ndarray:
        """DCG of each user's ranking by a system; shape (users,)."""
        return _first_weights(ranks, self.items)[self.better].sum(1)

    def cells(self, systems: Mapping[str, Ranks] = PRINTED_SYSTEMS) -> Cells:
        """The data set's kinds of cells, as the module docstring has them."""
        return merged(self.users, systems)


def _by_rating(at_least: np.ndarray) -> np.ndarray:
    """From users with rating g or better at rank r, shape (5, items), to those with just g."""
    return np.vstack([at_least[:-1] - at_least[1:], at_least[-1:]]).T


def _first_weights(ranks: Ranks, items: int) -> np.ndarray:
    """The weights that a system gives to the first 0, 1, ..., items of OPT, summed."""
    return np.concatenate([[0.0], np.cumsum(weights(ranks, items))])


def weights(ranks: Ranks, items: int) -> np.ndarray:
    """Weight that a system gives to the item at each rank of OPT; shape (items,)."""
    return DCG(log="e").weight(ranks(np.arange(1, items + 1)))


def merged(users: np.ndarray, systems: Mapping[str, Ranks]) -> Cells:
    """Kinds of cells from the (expected) number of users with rating g at rank r; (items, 5)."""
    items, n_users = len(users), users[0].sum()
    rank = np.arange(1, items + 1)
    weight = np.stack([weights(ranks, items) for ranks in systems.values()], 1)
    guess = np.stack([4.0 * (1.0 - ranks(rank) / items) for ranks in systems.values()], 1)
    size = users.reshape(-1)
    return Cells(
        tuple(systems),
        np.repeat(weight, 5, 0) * (size / n_users)[:, None],
        np.repeat(guess, 5, 0),
        np.tile(np.arange(5.0), items),
        size,
    )


@in_float64
def synth(key: jax.Array, *, users: int = 6000, items: int = 2000) -> Synth:
    """Draw a data set.

    Raises
    ------
    EvenhandError
        If there is no user or no item.
    """
    if users < 1 or items < 1:
        raise EvenhandError(f"SYNTH needs users and items, got {users} and {items}")
    return Synth(np.asarray(_counts(key, users=users, items=items)), items)


@partial(jax.jit, static_argnames=("users", "items"))
def _counts(key: jax.Array, *, users: int, items: int) -> jax.Array:
    """N_g of each user; shape (users, 4)."""
    edges = np.cumsum(PROBABILITIES)[:-1]

    def user(number: jax.Array) -> jax.Array:
        u = jax.random.uniform(jax.random.fold_in(key, number), (items,), jnp.float64)
        return jnp.stack([(u >= edge).sum() for edge in edges])

    return jax.lax.map(user, jnp.arange(users), batch_size=min(50, users))


def expected_users(users: int = 6000, items: int = 2000) -> np.ndarray:
    """Expected number of users with rating g at rank r, equation (2); shape (items, 5)."""
    rank = np.arange(1, items + 1)
    at_least = [np.ones(items), *(stats.binom.sf(rank - 1, items, t) for t in _tails()[1:])]
    share = _by_rating(np.stack(at_least))
    # What never happens would underflow when it is squared.
    return users * np.where(share > 1e-100, share, 0.0)


def _tails() -> np.ndarray:
    """P(u >= g) for g = 0..4."""
    return np.cumsum(PROBABILITIES[::-1])[::-1]


def spread_over_users(systems: Mapping[str, Ranks], items: int = 2000) -> np.ndarray:
    r"""Standard deviation of DCG over users, of each system, exactly; shape (systems,).

    With W(n) the weights of the first n items of OPT summed, a user's DCG is sum_g W(N_g) over
    g = 1..4; N_g is Binomial(R, P(u >= g)), and N_h given N_g, h > g, Binomial(N_g, P(u >= h) /
    P(u >= g)).
    """
    tails, count = _tails(), np.arange(items + 1)
    total = np.stack([_first_weights(ranks, items) for ranks in systems.values()], 1)
    law = [stats.binom.pmf(count, items, tail) for tail in tails]
    mean = sum(p @ total for p in law[1:])
    square = sum(p @ total**2 for p in law[1:])
    for g in range(1, 5):
        seen = np.flatnonzero(law[g] > 1e-18)
        for h in range(g + 1, 5):
            given = stats.binom.pmf(count, seen[:, None], tails[h] / tails[g]) @ total
            square = square + 2.0 * law[g][seen] @ (total[seen] * given)
    return np.sqrt(square - mean**2)
