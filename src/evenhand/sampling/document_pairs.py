r"""Which two documents of a query an assessor is shown side by side: pairs drawn, never built.

A query of n documents has n (n - 1) / 2 pairs, so the proposal over all pairs is made of two
factors. With s a distribution over the documents of query x, and P one over the queries,

    Q(x; {i, j}) = P_x 2 s_i s_j / D_x,         D_x = 1 - sum over c of s_c^2                (1)

where D_x is the chance that two documents drawn by s are not the same one. It is drawn without
rejection: i with probability P_x s_i (1 - s_i) / D_x, then j by inverse CDF over what s gives to
the query's other documents, s_j / (1 - s_i). Both orders of a pair are equally likely,

    P_x s_i (1 - s_i) / D_x  s_j / (1 - s_i)  =  P_x s_i s_j / D_x,

so that which document is shown first is a fair coin, whatever the pair: an assessor's liking for
the first place favours no system.

What a pair is worth to system j is at most d_ji d_jk, with d_ji what the rank of document i gives
(`evenhand.measures.Pairwise`, ``share``; 0 where j does not return i). By default

    s_i  proportional to  sqrt( mean over systems of d_ji^2 ),                                (2)
    P_x  proportional to  sqrt( sum over pairs and systems of d_ji^2 d_jk^2 / q_x(i, k) ),    (3)

q_x the second factor of (1): P is then the best that goes with s where pairs of one query are as
often swapped as those of another. The sum of (3) is in closed form, with b_ji = d_ji^2 / s_i:

    D_x / 4  sum over j of  (sum over i of b_ji)^2 - sum over i of b_ji^2.

References
----------
Schnabel et al. 2016, section 4, for drawing in proportion to the root of an expected square.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.errors import EvenhandError, StudyError, SupportError, listed
from evenhand.estimands.targets import Target
from evenhand.float64 import in_float64
from evenhand.formats.preferences import COLUMNS, EQUAL
from evenhand.measures.base import sums_pairs
from evenhand.sampling.algorithms import cumulate, independent

__all__ = [
    "PairDesign",
    "PairSample",
    "draw_pairs",
    "pair_design",
    "pairs",
    "shares",
    "write_pairs",
]


def shares(target: Target) -> np.ndarray:
    """What the rank of each entry of the pool gives to the weight of a pair, d: shape (entries,).

    Raises
    ------
    EvenhandError
        If the target's measure is no sum over pairs of documents.
    """
    measure, pool = target.measure, target.pool
    if not sums_pairs(measure):
        raise EvenhandError(
            f"judged pairs tell of Swaps and wSwaps, not of {measure}",
            hint="take the measure Swaps or wSwaps, or have documents graded one at a time",
        )
    number = pool.system.astype(np.int64) * len(pool.queries) + pool.query[pool.cell]
    return measure.share(pool.rank, np.bincount(number)[number])


@dataclass(frozen=True, eq=False)
class PairDesign:
    """A proposal over the unordered pairs of documents of a query, equation (1).

    Attributes
    ----------
    target
        The systems, and the measure whose pairs are drawn.
    share
        s, summing to 1 in each query that has pairs, else 0; float64, shape (cells,).
    by_query
        P, summing to 1; float64, shape (queries,).
    """

    target: Target
    share: np.ndarray
    by_query: np.ndarray

    def __repr__(self) -> str:
        n, queries = np.count_nonzero(self.share), np.count_nonzero(self.by_query)
        return f"PairDesign({n:,} documents of {queries:,} queries)"

    @cached_property
    def apart(self) -> np.ndarray:
        """D_x of each query: float64, shape (queries,)."""
        query, s = self.target.pool.query, self.share
        return np.bincount(query, s * (1.0 - s), minlength=len(self.by_query))

    def probability(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Q of pairs of cells, 0 for two of different queries: float64, shape as `first`."""
        query = self.target.pool.query
        x = query[first]
        apart = np.where(self.apart[x] > 0, self.apart[x], 1.0)
        found = self.by_query[x] * 2.0 * self.share[first] * self.share[second] / apart
        return np.where((x == query[second]) & (np.asarray(first) != second), found, 0.0)

    def reaches(self) -> np.ndarray:
        """Which cells it can draw, with others of their query: bool, shape (cells,)."""
        able = (self.by_query > 0) & (self.apart > 0)
        return (self.share > 0) & able[self.target.pool.query]


@in_float64
def pair_design(
    target: Target,
    *,
    share: np.ndarray | None = None,
    by_query: np.ndarray | None = None,
    floor: float = 0.1,
) -> PairDesign:
    """Make a proposal over pairs, before their judgments are looked at.

    Parameters
    ----------
    target
        Its measure is `evenhand.measures.Swaps` or ``wSwaps``.
    share
        s in any unit, finite and not negative, shape (cells,); by default equation (2). A later
        round may have any s that was made from judgments of *earlier* rounds.
    by_query
        P in any unit, shape (queries,); by default equation (3) for the s that is taken.
    floor
        Share, from 0 to 1, of the uniform distribution in s and in P: over the documents of a query
        that count for any system, and over the queries that have pairs.

    Raises
    ------
    SupportError
        If a pair that counts could never be drawn.
    EvenhandError
        If the measure is no sum over pairs, no list has a pair, `share` or `by_query` does not fit,
        or `floor` is not in [0, 1].
    """
    pool, given = target.pool, shares(target)
    if not 0 <= floor <= 1:
        raise EvenhandError(f"the floor must lie in [0, 1], got {floor:g}")
    for name, what, array, size in (
        ("share", "cells", share, len(pool)),
        ("by_query", "queries", by_query, len(pool.queries)),
    ):
        if array is None:
            continue
        if np.shape(array) != (size,) or not (np.isfinite(array).all() and (array >= 0).all()):
            raise EvenhandError(
                f"{name} must be finite and not negative for each of the {size:,} {what}, "
                f"got shape {np.shape(array)}"
            )
    square = np.bincount(pool.cell, given**2, minlength=len(pool))
    counts = square > 0
    if not counts.any():
        raise EvenhandError(
            f"no list has two documents that count for {target.measure}: there is no pair to judge"
        )
    wanted = np.sqrt(square) if share is None else np.asarray(share, np.float64)
    s = _mixed(np.where(counts, wanted, 0.0), counts, pool.query, len(pool.queries), floor)
    asked = np.bincount(pool.query, counts, minlength=len(pool.queries)) > 0
    likely = np.sqrt(_spread(target, given, s)) if by_query is None else np.asarray(by_query)
    p = _mixed(np.where(asked, likely, 0.0), asked, np.zeros(len(asked), np.int64), 1, floor)
    made = PairDesign(target, s, p)
    lost = int(np.count_nonzero(counts & ~made.reaches()))
    if lost:
        raise SupportError(
            f"{lost:,} documents that count for {target.measure} could never be drawn, and the "
            "estimate would be biased",
            hint="set a floor above 0",
        )
    return made


def _mixed(
    wanted: np.ndarray, possible: np.ndarray, group: np.ndarray, groups: int, floor: float
) -> np.ndarray:
    """`wanted` to sum 1 in each group, with a share of the uniform law on what is possible."""
    found = _share_of_groups(*map(np.float64, (wanted, possible)), group, groups, floor)
    return np.asarray(found)


@partial(jax.jit, static_argnames=("groups", "floor"))
def _share_of_groups(
    wanted: jax.Array, possible: jax.Array, of: jax.Array, groups: int, floor: float
) -> jax.Array:
    def normalised(mass: jax.Array) -> tuple[jax.Array, jax.Array]:
        # The largest first, so that neither sums nor squares leave the range of floats.
        top = jax.ops.segment_max(mass, of, groups)
        mass = mass / jnp.where(top > 0, top, 1.0)[of]
        total = jax.ops.segment_sum(mass, of, groups)
        return mass / jnp.where(total > 0, total, 1.0)[of], (total > 0)[of]

    own, known = normalised(wanted)
    even, _ = normalised(possible)
    # A group of which nothing is wanted has all of the floor, unless there is to be none.
    weight = jnp.where(known, floor, 1.0 if floor > 0 else 0.0)
    return (1.0 - weight) * own + weight * even


def _spread(target: Target, given: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The sum under the root of equation (3): shape (queries,)."""
    pool, k, x = target.pool, len(target.systems), len(target.pool.queries)
    own = s[pool.cell]
    # A document that is never drawn is refused later.
    b = np.divide(given**2, own, out=np.zeros(len(own)), where=own > 0)
    number = pool.system.astype(np.int64) * x + pool.query[pool.cell]
    first, second = (np.bincount(number, y, minlength=k * x) for y in (b, b**2))
    apart = np.bincount(pool.query, s * (1.0 - s), minlength=x)
    return apart / 4.0 * np.maximum(first**2 - second, 0.0).reshape(k, x).sum(0)


def pairs(
    key: jax.Array, share: jax.Array, start: jax.Array, by_query: jax.Array, n: int
) -> tuple[jax.Array, jax.Array]:
    """Draw n pairs independently by equation (1); works under ``jit`` and ``vmap``.

    Parameters
    ----------
    key
        Typed key.
    share
        s in any unit, the documents of a query one after the other; float64, shape (documents,).
    start
        Where the documents of each query begin; int, shape (queries + 1,).
    by_query
        P; 0 for a query with fewer than two documents of s > 0. Shape (queries,).
    n
        Static.

    Returns
    -------
    first, second
        Places in `share`, never the same; int, shape (n,).
    """
    key_first, key_second = jax.random.split(key)
    end = cumulate(share)
    low = jnp.concatenate([jnp.zeros(1), end[:-1]])
    edge = jnp.concatenate([jnp.zeros(1), end])[start]
    query = jnp.searchsorted(start, jnp.arange(len(share)), side="right") - 1
    # What lies before and behind each document within its query, on the line of all.
    before, behind = low - edge[query], edge[query + 1] - end
    mass = (end - low) * (before + behind)
    total = jax.ops.segment_sum(mass, query, len(start) - 1)
    mass = mass * (by_query / jnp.where(total > 0, total, 1.0))[query]
    first = independent(key_first, mass * (n / mass.sum()), n)
    # The line without the stretch of the first.
    rest = before[first] + behind[first]
    u = jax.random.uniform(key_second, (n,), jnp.float64)
    place = jnp.minimum(u * rest, jnp.nextafter(rest, 0.0))
    passed = place >= before[first]
    # Held to the stretches on either side, where sums round.
    left = jnp.minimum(edge[query[first]] + place, jnp.nextafter(low[first], 0.0))
    top = jnp.nextafter(edge[query[first] + 1], 0.0)
    right = jnp.minimum(end[first] + (place - before[first]), top)
    return first, jnp.searchsorted(end, jnp.where(passed, right, left), side="right")


_pairs = jax.jit(pairs, static_argnames="n")


@dataclass(frozen=True, eq=False)
class PairSample:
    """Pairs drawn independently from a design, with replacement.

    Attributes
    ----------
    design
        What they were drawn from.
    first, second
        Cells of the two documents, in the order in which they are shown; int64, shape (n,).
    """

    design: PairDesign
    first: np.ndarray
    second: np.ndarray

    def __len__(self) -> int:
        return len(self.first)

    def __repr__(self) -> str:
        return f"PairSample({len(self):,} draws, {len(self.to_judge()):,} distinct pairs to judge)"

    @cached_property
    def keys(self) -> np.ndarray:
        """A number for each draw's pair, in whichever order: int64, shape (n,)."""
        low, high = np.minimum(self.first, self.second), np.maximum(self.first, self.second)
        return low * len(self.design.target.pool) + high

    @cached_property
    def counts(self) -> np.ndarray:
        """Whether any system returns both documents where they count: bool, shape (n,).

        A pair that none does is worth 0 to all, whatever an assessor would say.
        """
        given, pool = shares(self.design.target), self.design.target.pool
        both = pool.dense(given, self.first) * pool.dense(given, self.second)
        return np.any(both > 0, axis=1)

    def to_judge(self) -> np.ndarray:
        """Draws whose pairs have to be judged, each pair once, in the order drawn; int64."""
        _, at = np.unique(self.keys, return_index=True)
        at = np.sort(at)
        return at[self.counts[at]]


@in_float64
def draw_pairs(key: jax.Array, design: PairDesign, n: int) -> PairSample:
    """Draw n pairs from a design, independently and with replacement.

    Parameters
    ----------
    key
        Typed key, ``jax.random.key(seed)``.
    design
        Of `pair_design`.
    n
        Number of draws, at least 2: one draw says nothing of its own spread.

    Raises
    ------
    EvenhandError
        If n is below 2.
    """
    if n < 2:
        raise EvenhandError(f"the number of pairs to draw must be at least 2, got {n}")
    query = design.target.pool.query
    # Cells of a query lie together but for those that came later.
    order = np.argsort(query, kind="stable")
    start = np.searchsorted(query[order], np.arange(len(design.by_query) + 1))
    columns = map(jax.device_put, (design.share[order], start, design.by_query))
    first, second = map(np.asarray, _pairs(key, *columns, n=n))
    return PairSample(design, order[first], order[second])


def write_pairs(sample: PairSample, path: str | Path) -> None:
    """Write the pairs to be judged, each once; `read_preferences` reads the answers.

    Parameters
    ----------
    sample
        The draws. A pair that no system returns both documents of is left out: it is worth 0 to
        all.
    path
        A file that is not there yet: one that is may hold judgments.

    Raises
    ------
    EvenhandError
        If an id cannot be written so that it is read again.
    StudyError
        If the file exists, or cannot be written.
    """
    at, pool = sample.to_judge(), sample.design.target.pool
    queries, first = pool.names(sample.first[at])
    _, second = pool.names(sample.second[at])
    ids = {*queries, *first, *second}
    odd = sorted(
        i for i in ids if i in ("", EQUAL) or i != i.strip() or i[0] == "#" or set("\t\n\r") & {*i}
    )
    if odd:
        raise EvenhandError(
            f"ids that a table of pairs cannot hold: {listed([repr(i) for i in odd])}",
            hint=f"rename those that are {EQUAL}, begin with #, or hold a tab or an outer blank",
        )
    lines = [f"{x}\t{a}\t{b}\t\n" for x, a, b in zip(queries, first, second, strict=True)]
    try:
        with Path(path).open("x", encoding="utf-8", newline="\n") as file:
            file.write("\t".join(COLUMNS) + "\n" + "".join(lines))
    except FileExistsError:
        raise StudyError(
            f"{path} exists, and may hold judgments", hint="give the name of a new file"
        ) from None
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror or error}") from None
