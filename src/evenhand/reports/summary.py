r"""The answer of a study in one sentence, honest about what is not known.

What a sentence claims follows from intervals alone: x *beats* y where the interval of their
difference leaves out 0. One pair that was asked for has the interval of its own; of several
systems, intervals hold all together (`evenhand.intervals.simultaneous`), so that the whole
sentence is wrong with a probability of at most 1 - level.

The number of judgments that would decide comes from `evenhand.decisions.planning`: in one further
round, with the probability `POWER`, for a difference as large as the estimate, against the same
critical value as the sentence's own intervals, of multiplier c

    level = 2 Phi(c) - 1                                                                     (1)

and, for the goal ``best``, until the leader is the best with the level's probability.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from evenhand.decisions.planning import Plan
from evenhand.decisions.ranks import Standings
from evenhand.errors import EvenhandError
from evenhand.estimands.goals import Goal
from evenhand.estimation.estimates import Estimate
from evenhand.intervals.confidence import percent
from evenhand.intervals.simultaneous import Comparisons

__all__ = ["Conclusion", "Planner", "conclude", "isolated", "spoken", "told_apart"]

#: Probability with which the further judgments that are named would decide.
POWER = 0.8

#: ``(**aim)`` of `evenhand.decisions.planning.plan` to a plan.
Planner = Callable[..., Plan]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A sentence, in clauses.

    Attributes
    ----------
    clauses
        The first is the main one.
    remarks
        What the sentence means by its words and numbers, a sentence each.
    needed
        Further judgments that would decide; None where nothing is open, or no number is known.
    """

    clauses: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    needed: int | None = None

    def __str__(self) -> str:
        return "; ".join(self.clauses) + "."


@dataclass(frozen=True, slots=True)
class _Gap:
    """By how much one system is better than another, in the measure's unit."""

    better: str
    worse: str
    size: float
    low: float
    high: float
    decided: bool
    same: bool

    @property
    def open(self) -> bool:
        return not self.decided and not self.same and not np.isnan(self.size)


@dataclass(frozen=True, slots=True)
class _Further:
    """What further judgments are for: an aim of a plan, and the clause that says so."""

    aim: dict[str, float]
    clause: str
    remark: str


def conclude(
    found: Estimate | None, standings: Standings | None, reason: str, planner: Planner
) -> Conclusion:
    """Say what a study found.

    Parameters
    ----------
    found
        The estimate; None where there is none.
    standings
        Its systems from best to worst; None where there is one system.
    reason
        Why there is no estimate.
    planner
        Tells how many more judgments an aim needs.
    """
    if found is None:
        return Conclusion(
            (f"No answer yet: {reason.splitlines()[0] if reason else 'no estimate'}",)
        )
    together = "all of them together"
    if standings is None or found.goal.kind == "absolute":
        clauses, further = _alone(found, standings)
        together = "each alone" if standings is None else "each alone (comparisons all together)"
    elif found.goal.kind == "pair":
        clauses, further = _pair(found)
        together = ""
    elif found.goal.kind == "baseline":
        clauses, further = _baseline(found)
    else:
        clauses, further = _ranked(found, standings)
    queries = "this set of queries" if found.question == "queries" else "queries like these"
    at = percent(found.level) + (f", {together}" if together else "")
    remarks = [f"Intervals are at {at}, and answer for {queries}."]
    needed = None
    if further is not None:
        try:
            planned = planner(**further.aim)
        except EvenhandError as error:
            remarks.append(f"How many more judgments would decide is not known: {error.message}.")
        else:
            needed = planned.needed
            if needed is None:
                why = next(iter(planned.notes), "the difference is too small")
                remarks.append(f"No number of judgments in one further round would decide: {why}.")
            else:
                n = _rounded(needed)
                judgments = "judgment" if n == 1 else "judgments"
                clauses.append(f"about {n:,} more {judgments} {further.clause}")
                remarks.append(further.remark)
    return Conclusion(tuple(clauses), tuple(remarks), needed)


def isolated(name: str) -> str:
    """A name that may be written from right to left, kept from reordering the text around it."""
    if any(unicodedata.bidirectional(c) in ("R", "AL", "AN", "RLE", "RLO", "RLI") for c in name):
        return f"\u2068{name}\u2069"
    return name


def told_apart(goal: Goal) -> dict[str, str]:
    """Each contrast's name with its systems kept apart.

    Two that are written from right to left would change places around the minus.
    """
    shown = {}
    for name, row in zip(goal.names, goal.matrix, strict=True):
        first = goal.target.systems[int(row.argmax())]
        rest = name.removeprefix(f"{first} - ")
        shown[name] = name if rest == name else f"{isolated(first)} - {isolated(rest)}"
    return shown


def spoken(value: float, low: float, high: float) -> str:
    """A number with its interval, to two digits of its uncertainty.

    >>> spoken(0.3141, 0.1941, 0.4341), spoken(6.92, 6.2, 8.3), spoken(0.25, 0.25, 0.25)
    ('0.31 ± 0.12', '6.9 (6.2 to 8.3)', '0.25 exactly')
    >>> spoken(5.23, 0.02, 10.44)  # a bound beside 0 is not rounded away
    '5.23 ± 5.21'
    """
    half = (high - low) / 2
    if not half > 0:
        return f"{value:.4g} exactly"
    digits = int(np.clip(1 - np.floor(np.log10(half)), 0, 8))
    if abs((high - value) - half) <= 0.05 * half:
        while abs(value) > half and round(abs(value), digits) <= round(half, digits) < 1e8:
            digits += 1
        return f"{value:z.{digits}f} ± {half:.{digits}f}"
    return f"{value:z.{digits}f} ({low:z.{digits}f} to {high:z.{digits}f})"


def _rounded(n: int) -> int:
    """To two digits: no forecast knows the third."""
    step = 10 ** max(len(str(n)) - 2, 0)
    return -(-n // step) * step


def _listed(names: Sequence[str], most: int = 4) -> str:
    shown = [isolated(name) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most:,} others"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _gaps(found: Estimate, compared: Comparisons, matrix: np.ndarray, alone: bool) -> list[_Gap]:
    """Differences of two systems, turned so that they are how much better the first one is."""
    sign, systems, alike = found.goal.target.sign, found.goal.target.systems, found.alike
    gaps = []
    for i, row in enumerate(matrix):
        x, y = int(row.argmax()), int(row.argmin())
        low, high = compared.low_all[i], compared.high_all[i]
        if alone:
            low, high = compared.low[i], compared.high[i]
        value = float(compared.value[i])
        decided, same = bool(low > 0 or high < 0), bool(alike[x] == alike[y])
        # How much better x is: of faults, how many fewer it has.
        value, low, high = (value, low, high) if sign > 0 else (-value, -high, -low)
        if value < 0:
            x, y, value, low, high = y, x, -value, -high, -low
        ends = float(low), float(high)
        gaps.append(_Gap(systems[x], systems[y], value, *ends, decided, same))
    return gaps


def _by(found: Estimate, gap: _Gap) -> str:
    measured = spoken(gap.size, gap.low, gap.high)
    if found.goal.target.sign > 0:
        return f"by {measured} in {found.goal.target.measure}"
    return f"with {found.goal.target.measure} lower by {measured}"


def _decide(gap: _Gap, level: float, clause: str) -> _Further | None:
    """The aim to decide between two systems."""
    if not gap.open or not gap.size > 0:
        return None
    return _Further(
        {"power": POWER, "effect": gap.size, "level": level},
        clause,
        f"More judgments: in one further round, with probability {POWER:.0%}, if the difference of "
        f"{isolated(gap.better)} and {isolated(gap.worse)} is as large as it now looks.",
    )


def _level(found: Estimate, compared: Comparisons) -> float:
    """Equation (1)."""
    if compared.multiplier is None:
        return found.level
    return float(np.clip(2.0 * special.ndtr(compared.multiplier) - 1.0, found.level, 1.0 - 1e-12))


def _pair(found: Estimate) -> tuple[list[str], _Further | None]:
    compared = found.compare(found.goal)
    (gap,) = _gaps(found, compared, found.goal.matrix, alone=True)
    better, worse = isolated(gap.better), isolated(gap.worse)
    if gap.same:
        return [f"{better} and {worse} return the same: no judgment can tell them apart"], None
    if np.isnan(gap.size):
        return [f"{better} and {worse} cannot be compared yet: the rounds do not cover both"], None
    if gap.decided:
        return [f"{better} beats {worse} {_by(found, gap)}"], None
    measured = spoken(gap.size, gap.low, gap.high)
    clauses = [
        f"{better} cannot be told from {worse}",
        f"it looks better by {measured} in {found.goal.target.measure}, and that may be chance",
    ]
    return clauses, _decide(gap, found.level, "would decide")


def _baseline(found: Estimate) -> tuple[list[str], _Further | None]:
    compared = found.compare(found.goal)
    matrix = found.goal.matrix
    gaps = sorted(_gaps(found, compared, matrix, alone=False), key=lambda gap: -gap.size)
    base = found.goal.target.systems[int(matrix[0].argmin())]
    level = [gap for gap in gaps if gap.open]
    clauses = _beating(found, base, gaps)
    below = [gap for gap in gaps if gap.decided and gap.better == base]
    if below:
        clauses.append(f"{_listed([gap.worse for gap in below])} {_is(below)} worse")
    others = [_other(gap, base) for gap in level]
    if others:
        clauses.append(f"{_listed(others)} cannot be told from {isolated(base)}")
    for what, some in (
        ("the same as it", [gap for gap in gaps if gap.same]),
        ("not covered", [gap for gap in gaps if np.isnan(gap.size) and not gap.same]),
    ):
        if some:
            clauses.append(f"{_listed([_other(gap, base) for gap in some])} {_is(some)} {what}")
    if not level:
        return clauses, None
    clause = "would decide" if len(level) == 1 else f"would decide on {isolated(others[0])}"
    return clauses, _decide(level[0], _level(found, compared), clause)


def _beating(found: Estimate, base: str, gaps: Sequence[_Gap]) -> list[str]:
    """Which systems beat the baseline."""
    above = [gap for gap in gaps if gap.decided and gap.worse == base]
    if len(above) == 1:
        return [f"{isolated(above[0].better)} beats {isolated(base)} {_by(found, above[0])}"]
    if above:
        return [
            f"{len(above)} of {len(gaps)} systems beat {isolated(base)}, above all "
            f"{isolated(above[0].better)} {_by(found, above[0])}"
        ]
    return [f"No system is shown to beat {isolated(base)}"] if gaps else []


def _other(gap: _Gap, base: str) -> str:
    return gap.worse if gap.better == base else gap.better


def _is(gaps: Sequence[_Gap]) -> str:
    return "is" if len(gaps) == 1 else "are"


class _Field(NamedTuple):
    """The leader of a ranking, and how all others compare with it, in their order."""

    leader: str
    twins: list[str]
    rivals: list[tuple[str, _Gap]]
    beaten: list[tuple[str, _Gap]]
    gaps: list[_Gap]
    of: dict[frozenset[str], _Gap]
    pairs: Comparisons

    @classmethod
    def compared(cls, found: Estimate, standings: Standings) -> _Field:
        """All pairs of systems, judged together."""
        systems = found.goal.target.systems
        first, second = np.triu_indices(len(systems), 1)
        matrix = np.zeros((len(first), len(systems)))
        matrix[np.arange(len(first)), first], matrix[np.arange(len(first)), second] = 1.0, -1.0
        pairs = found.pairs
        gaps = _gaps(found, pairs, matrix, alone=False)
        of = {frozenset((gap.better, gap.worse)): gap for gap in gaps}
        leader, *rest = standings.systems
        against = [(other, of[frozenset((leader, other))]) for other in rest]
        return cls(
            leader,
            [other for other, gap in against if gap.same],
            [(other, gap) for other, gap in against if gap.open],
            [(other, gap) for other, gap in against if gap.decided],
            [gap for gap in gaps if not gap.same],
            of,
            pairs,
        )


def _ranked(found: Estimate, standings: Standings) -> tuple[list[str], _Further | None]:
    systems = found.goal.target.systems
    if not standings.systems:
        return ["No system is covered: pairs that it weighs could not be drawn"], None
    field = _Field.compared(found, standings)
    clauses = _leading(found, field)
    if field.rivals:
        others = _listed([other for other, _ in field.rivals])
        clauses.append(f"{others} cannot be told from {isolated(field.leader)}")
    if len(standings.systems) < len(systems):
        lost = [s for s in systems if s not in standings.systems]
        clauses.append(f"{_listed(lost)} {'is' if len(lost) == 1 else 'are'} not covered")
    apart = sum(gap.decided for gap in field.gaps)
    if len(field.gaps) > 1 and found.goal.kind != "best":
        are = "is" if apart == 1 else "are"
        clauses.append(f"{apart:,} of {len(field.gaps):,} pairs {are} decided")
    return clauses, _open_question(found, standings, field)


def _leading(found: Estimate, field: _Field) -> list[str]:
    """Which system leads, and which others it beats."""
    systems, beaten = found.goal.target.systems, field.beaten
    if not field.rivals and not beaten:
        return [f"All {len(systems)} systems return the same: no judgment can tell them apart"]
    subject = isolated(field.leader)
    if field.twins:
        subject = f"{subject} (and {_listed(field.twins)}, which {_same(field.twins)})"
    if not beaten:
        return [f"No system is shown to be the best; {subject} leads"]
    nearest = f"{isolated(beaten[0][0])} {_by(found, beaten[0][1])}"
    if not field.rivals:
        return [
            f"{subject} is the best of {len(systems)} systems",
            f"it beats {isolated(beaten[0][0])}, the next, {_by(found, beaten[0][1])}",
        ]
    if len(beaten) > 1:
        nearest = f"{len(beaten)} of {len(systems) - 1} others, the highest of them {nearest}"
    return [f"{subject} leads, and beats {nearest}"]


def _open_question(found: Estimate, standings: Standings, field: _Field) -> _Further | None:
    """What further judgments would decide first."""
    kind, rivals = found.goal.kind, field.rivals
    if kind == "best":
        if not rivals:
            return None
        return _Further(
            {"winner": found.level, "level": found.level},
            "would decide which is the best",
            f"More judgments: in one further round, until the leader is the best with probability "
            f"{percent(found.level)}, if values are as estimated.",
        )
    if kind == "order":
        order = zip(standings.systems, standings.systems[1:], strict=False)
        next_to = [field.of[frozenset(two)] for two in order]
        gap = max((gap for gap in next_to if gap.open), key=lambda gap: gap.size, default=None)
    else:
        gap = rivals[0][1] if rivals else None
    if gap is None:
        return None
    open_pairs = sum(not gap.decided for gap in field.gaps)
    alone = open_pairs == 1 or (kind == "rank" and len(rivals) == 1)
    two = f"would tell {isolated(gap.better)} from {isolated(gap.worse)}"
    return _decide(gap, _level(found, field.pairs), "would decide" if alone else two)


def _same(twins: Sequence[str]) -> str:
    return "returns the same" if len(twins) == 1 else "return the same"


def _alone(found: Estimate, standings: Standings | None) -> tuple[list[str], _Further | None]:
    systems, measure = found.goal.target.systems, found.goal.target.measure
    covered = np.flatnonzero(~np.isnan(found.value))
    if not len(covered):
        return ["No system is covered: pairs that it weighs could not be drawn"], None
    best = int(covered[(found.goal.target.sign * found.value[covered]).argmax()])
    measured = spoken(found.value[best], found.low[best], found.high[best])
    clauses = [f"{isolated(systems[best])} has {measure} {measured}"]
    if len(systems) > 1:
        extreme = "highest" if found.goal.target.sign > 0 else "lowest, and so best,"
        clauses[0] += f", the {extreme} of {len(systems)} systems"
    if standings is not None and len(standings.contenders) > 1:
        rivals = [name for name in standings.contenders if name != systems[best]]
        clauses.append(f"{_listed(rivals)} cannot be told from it")
    half = float(np.nanmean(found.high - found.low)) / 2
    if not half > 0:
        return clauses, None
    # Plans reckon with normal intervals of the contrasts, which are here the systems themselves.
    z = special.ndtri(0.5 + found.level / 2)
    plain = float(np.mean(z * np.sqrt(np.diag(found.contrast_covariance))))
    if found.goal.kind != "absolute" or not plain > 0:
        return clauses, None
    return clauses, _Further(
        {"half_width": plain / 2, "level": found.level},
        "would halve the intervals" if len(systems) > 1 else "would halve the interval",
        "More judgments: in one further round, by what the rounds so far vary.",
    )
