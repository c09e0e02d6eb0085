r"""How many judgments are still needed, before they are paid for.

With s_c = E[(r_c - m_c)^2] what is expected of the residuals, a further round of n distinct pairs
with inclusion probabilities pi_c(n) adds to the variance of contrast i

    V_i(n) = kappa sum_c a_ic^2 s_c (1 / pi_c(n) - 1)                                        (1)

(Horvitz-Thompson under Poisson sampling, which a draw of fixed size does not exceed by much), and
with the rounds so far, of weights omega,

    Var_i(n) = (1 - omega_T)^2 Var_i(so far) + omega_T^2 V_i(n) [+ B_i].                     (2)

kappa is the ratio of the variance that the rounds so far came to and what (1) says of them; with
nothing judged it is 1, and s_c a guess from ranks: a utility near the largest at the top. B_i is
the between-query part of `evenhand.intervals.between_queries`, a floor for claims about queries
like these.

`Forecast` holds (2); `plan` finds the least n for a half-width, a power or a winner, and makes a
table around it. Where a query costs something before its first judgment, since an assessor has to
understand it, n pairs cost

    c n + C sum_x [1 - prod_{c in x} (1 - pi_c(n))]                                          (3)

over the queries x that no judgment has opened yet.

References
----------
Sarndal, Swensson and Wretman 1992, *Model Assisted Survey Sampling*, chapters 3.5 and 12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from evenhand.designs.proposals import Design
from evenhand.errors import EvenhandError
from evenhand.estimation.estimates import Estimate
from evenhand.intervals.confidence import check_level, percent
from evenhand.results import Result, Table, rows
from evenhand.sampling.rounds import Round
from evenhand.sampling.samplers import expected_by_fold

__all__ = ["Forecast", "Plan", "forecast", "plan"]

#: Simulated rankings behind the probability that the leader is best.
DRAWS = 4000


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """What a further round would bring.

    Attributes
    ----------
    design
        Of that round.
    size
        kappa sum_i h_i a_ic^2 s_c of each cell; shape (cells,).
    shares
        Share of each contrast in the variance of the round, by importance; shape (contrasts,).
    so_far
        Variance of each contrast that the rounds so far leave, weighted; shape (contrasts,).
    weight
        omega of the further round.
    between
        Between-query variance, 0 for this set of queries; shape (contrasts,).
    population
        Whether claims about queries like these are asked for.
    estimate
        What the rounds so far say; None where there are none.
    opened
        Queries of which something is judged; bool, shape (queries,).
    """

    design: Design
    size: np.ndarray
    shares: np.ndarray
    so_far: np.ndarray
    weight: float
    between: np.ndarray
    population: bool
    estimate: Estimate | None
    opened: np.ndarray

    @property
    def most(self) -> int:
        """Pairs that the round could draw."""
        return int(np.count_nonzero(self.design.q))

    def variance(self, n: int) -> np.ndarray:
        """Equation (2) for n more judgments; shape (contrasts,)."""
        return self.within(n) + self.between

    def within(self, n: int) -> np.ndarray:
        """The part of it that judging only some pairs leaves; shape (contrasts,)."""
        total = _left(self.size, _included(self.design.q, n))
        return self.so_far + self.weight**2 * total * self.shares

    def half_widths(self, n: int, level: float) -> np.ndarray:
        """Half-widths after n more judgments, as of `intervals.widened`; shape (contrasts,)."""
        z = special.ndtri(0.5 + level / 2)
        return np.hypot(z * np.sqrt(self.within(n)), self.of_queries(level))

    def of_queries(self, level: float) -> np.ndarray:
        """What of it no judgment takes away: (contrasts,)."""
        if not self.between.any():
            return np.zeros(len(self.between))
        return special.stdtrit(len(self.opened) - 1, 0.5 + level / 2) * np.sqrt(self.between)

    def opens(self, n: int) -> float:
        """Queries that n more judgments are expected to open, by equation (3)."""
        pool = self.design.goal.target.pool
        missed = np.log1p(-np.minimum(_included(self.design.q, n), 1.0 - 1e-12))
        none = np.exp(np.bincount(pool.query, missed, minlength=len(pool.queries)))
        return float((1.0 - none)[~self.opened].sum())


def _included(q: np.ndarray, n: int) -> np.ndarray:
    return expected_by_fold("distinct", q, n)[0]


def _left(size: np.ndarray, expected: np.ndarray) -> float:
    """Sum of size (1 / E - 1) over the cells that can be drawn and are not certain."""
    open_to = (expected > 0) & (expected < 1)
    return float((size[open_to] * (1.0 / expected[open_to] - 1.0)).sum())


def forecast(
    design: Design,
    second_moment: np.ndarray,
    *,
    estimate: Estimate | None = None,
    rounds: list[Round] | None = None,
    weights: np.ndarray | None = None,
    population: bool = False,
) -> Forecast:
    """What a further round of a design would bring.

    Parameters
    ----------
    design
        Of the further round.
    second_moment
        s_c of equation (1), shape (cells,).
    estimate, rounds
        The rounds so far, and what they say.
    weights
        omega of each stage so far and, last, of the further round.
    population
        Add the between-query variance.
    """
    goal = design.goal
    cells = np.arange(len(design.q))
    square, scale = goal.norms() ** 2 * second_moment, 1.0
    m = len(goal.names)
    so_far, between, weight = np.zeros(m), np.zeros(m), 1.0
    if estimate is not None and rounds:
        omega = np.ones(1) if weights is None else np.asarray(weights)
        weight = float(omega[-1])
        seen = np.diag(estimate.contrast_covariance)
        so_far = (1.0 - weight) ** 2 * seen
        before = estimate.weights
        expected = [one.sample.expected for one in rounds]
        # Rounds fixed together are one stage: their counts add up.
        first = [e for one, e in zip(rounds, expected, strict=True) if not one.depends_on]
        later = [e for one, e in zip(rounds, expected, strict=True) if one.depends_on]
        staged = [np.minimum(np.sum(first, 0), 1.0)] if first else []
        said = sum(w**2 * _left(square, e) for w, e in zip(before, [*staged, *later], strict=True))
        found = float(seen @ goal.importance)
        scale = found / said if said > 0 and found > 0 else 1.0
        between = np.diag(estimate.contrast_between) if population else between
    typical = _included(design.q, max(1, int(np.count_nonzero(design.q)) // 10))
    open_to = np.flatnonzero((typical > 0) & (typical < 1))
    each = np.zeros(m)
    for some in np.array_split(open_to, -(-len(open_to) // 65536)) if len(open_to) else ():
        factor = second_moment[some] * (1.0 / typical[some] - 1.0)
        each += factor @ goal.at(cells[some]) ** 2
    total = float(each @ goal.importance)
    # Weights that are a mean may be 0 where norms are not (`evenhand.nonlinear.rating_errors`).
    shares = each / total if total > 0 else np.full(m, 1.0 / goal.importance.sum())
    pool = goal.target.pool
    opened = np.zeros(len(pool.queries), bool)
    for one in rounds or ():
        opened[pool.query[one.sample.draws]] = True
    return Forecast(
        design, scale * square, shares, so_far, weight, between, population, estimate, opened
    )


@dataclass(frozen=True)
class Plan(Result):
    """Judgments still needed.

    Attributes
    ----------
    question
        What is wanted, in words.
    needed
        Judgments still needed, 0 where the rounds so far are enough; None where no number is.
    level
        Of the intervals.
    columns
        A table by number of further judgments.
    floor
        Mean half-width that remains when every pair is judged.
    notes
        What a user should know.
    """

    question: str
    needed: int | None
    level: float
    columns: dict[str, Any]
    floor: float
    notes: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        """A row a number of judgments."""
        need = "cannot be reached" if self.needed is None else f"{self.needed:,} more judgments"
        title = f"{self.question}: {need}; {percent(self.level)} intervals"
        return [Table.of(title, self.columns, {"best": 3, "power": 3})]

    def notes_shown(self) -> tuple[str, ...]:
        """What the user should know."""
        return self.notes

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return {
            "question": self.question,
            "needed": self.needed,
            "level": self.level,
            "floor": self.floor,
            "rows": rows(self.columns),
            "notes": list(self.notes),
        }


def plan(
    told: Forecast,
    *,
    half_width: float | None = None,
    power: float | None = None,
    effect: float | None = None,
    winner: float | None = None,
    level: float = 0.95,
    query_cost: float = 0.0,
    judgment_cost: float = 1.0,
) -> Plan:
    """Find the least number of further judgments.

    Parameters
    ----------
    told
        What a further round would bring.
    half_width
        Wanted mean half-width of the contrasts' intervals.
    power, effect
        Wanted probability that the interval of two systems which differ by `effect` leaves out 0.
    winner
        Wanted probability that the leader so far is the best, if values are as estimated.
    level
        Of the intervals.
    query_cost, judgment_cost
        What a query costs before its first judgment, and what each judgment costs, in one currency.

    Raises
    ------
    EvenhandError
        If not exactly one thing is wanted, or a number cannot be used.
    """
    check_level(level)
    _check_aims(half_width, power, effect, winner)
    if query_cost < 0 or judgment_cost <= 0:
        raise EvenhandError("a judgment must cost something, and a query nothing or something")
    leads = _leader(told)
    if half_width is not None:
        question = f"half-width {half_width:g}"
        needed = _least(lambda n: _width(told, n, level) <= half_width, told.most)
        if _width_so_far(told) <= half_width:  # what is there is enough
            needed = 0
    elif power is not None and effect is not None:
        question = f"power {power:g} for a difference of {effect:g}"
        needed = _least(lambda n: _power(told, n, effect, level) >= power, told.most)
    else:
        question = f"best with probability {winner:g}"
        _check_leader(told)
        needed = _least(lambda n: leads(n) >= (winner or 1.0), told.most)
    parts = (needed or told.most) * np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    grid = np.unique(np.clip(np.round(parts), 1, told.most).astype(int))
    columns: dict[str, Any] = {
        "judgments": grid.tolist(),
        "half_width": [_width(told, n, level) for n in grid],
    }
    if effect is not None:
        columns["power"] = [_power(told, n, effect, level) for n in grid]
    if told.estimate is not None and len(told.estimate.value) > 1:
        columns["best"] = [leads(n) for n in grid]
    if query_cost:
        columns["queries"] = [told.opens(n) for n in grid]
        both = zip(grid, columns["queries"], strict=True)
        columns["cost"] = [judgment_cost * n + query_cost * opens for n, opens in both]
    floor = _width(told, told.most, level)
    return Plan(question, needed, level, columns, floor, _notes(told, needed, floor, level))


def _check_aims(
    half_width: float | None, power: float | None, effect: float | None, winner: float | None
) -> None:
    wanted = [half_width is not None, power is not None or effect is not None, winner is not None]
    if sum(wanted) != 1 or (power is None) != (effect is None):
        raise EvenhandError(
            "a plan needs one aim: a half-width, a power for an effect, or a decided winner",
            hint="--half-width W, or --power P --effect D, or --winner P",
        )
    for name, number, top in (
        ("half-width", half_width, np.inf),
        ("effect", effect, np.inf),
        ("power", power, 1.0),
        ("probability of the winner", winner, 1.0),
    ):
        if number is not None and not 0 < number < top:
            raise EvenhandError(f"the {name} must lie between 0 and {top:g}, got {number:g}")


def _check_leader(told: Forecast) -> None:
    if told.estimate is None:
        raise EvenhandError("nothing is judged yet: there is no leader", hint="judge a first round")
    if unknown := told.estimate.why_unranked():
        raise EvenhandError(f"who is likely the best cannot be foreseen: {unknown}")


def _width(told: Forecast, n: int, level: float) -> float:
    """Mean half-width of the contrasts after n more judgments."""
    return float(told.half_widths(n, level).mean())


def _width_so_far(told: Forecast) -> float:
    """Mean half-width of the contrasts now; infinite where nothing is judged."""
    if told.estimate is None:
        return float("inf")
    seen = told.estimate.for_population() if told.population else told.estimate
    return float((seen.contrast_high - seen.contrast_low).mean() / 2)


def _power(told: Forecast, n: int, effect: float, level: float) -> float:
    """Probability that the interval of a difference leaves out 0, after n more judgments."""
    variance = _pair_variance(told, n)
    if len(variance) == len(told.shares) and told.shares.any():
        variance = variance[told.shares > 0]  # systems that return the same never differ
    sd, z = np.sqrt(variance), float(special.ndtri(0.5 + level / 2))
    sure = np.where(sd > 0, effect / np.where(sd > 0, sd, 1.0), np.inf)
    return float(special.ndtr(sure - z).mean())


def _notes(told: Forecast, needed: int | None, floor: float, level: float) -> tuple[str, ...]:
    """What limits the plan."""
    notes = []
    if needed is None and told.so_far.sum() > told.between.sum():
        notes.append(
            f"the rounds so far keep a weight of {1 - told.weight:.0%}, which leaves a half-width "
            f"of {floor:.4g}: name the rounds' sizes when a study is made (`--plan`)"
        )
    if told.between.any():
        notes.append(
            f"a half-width of {told.of_queries(level).mean():.4g} comes from the choice of "
            "queries: no judgment takes it away, more queries do"
        )
    elif told.population and told.estimate is None:
        notes.append("what the choice of queries adds is not known yet, and left out")
    if told.estimate is None:
        notes.append(
            "nothing is judged yet: utilities are guessed from ranks, and the plan with them; plan "
            "again after a first round"
        )
    return tuple(notes)


def _least(aim: Callable[[int], bool], most: int) -> int | None:
    """The least n in 1..most that meets an aim which larger n meet too."""
    if not aim(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if aim(middle) else (middle, high)
    return high


def _pair_variance(told: Forecast, n: int) -> np.ndarray:
    """Variance of a difference of two systems: of the contrasts, or of the mean pair in ranking."""
    variance, goal = told.variance(n), told.design.goal
    k = len(goal.target.systems)
    if goal.kind == "absolute":  # as if values were independent, safe where they share pairs
        return np.array([2.0 * variance.mean()])
    if goal.kind not in ("rank", "best", "order"):
        return variance
    # sum over pairs of Var(x - y) = k sum_j Var(j - mean)
    return np.array([2.0 * variance.sum() / max(k - 1, 1)])


def _leader(told: Forecast) -> Callable[[int], float]:
    """Probability that the leader is the best, by the number of further judgments."""
    found = told.estimate
    if found is None or found.why_unranked():
        return lambda n: float("nan")
    value, vector = np.linalg.eigh(found.covariance)
    root = vector * np.sqrt(np.maximum(value, 0.0))
    noise = np.random.default_rng(0).normal(size=(DRAWS, len(value))) @ root.T
    now = float(np.diag(found.contrast_covariance).sum())
    merit = found.goal.target.sign * found.value
    # Systems that return the same are the best together.
    same = merit == merit.max()

    def leads(n: int) -> float:
        scale = np.sqrt(told.variance(n).sum() / now) if now > 0 else 0.0
        return float(same[(merit + scale * noise).argmax(1)].mean())

    return leads
