r"""Intervals for contrasts, by name in `INTERVALS`; all answer for *this query set*.

===========  ====================================================================================
name         when to take it
===========  ====================================================================================
`auto`       `moderated` for cross-fitted estimates whose predictions hold, else `cubic`
`cubic`      holds where relevance is rare and n small, and is Student's where not
`moderated`  for estimates with a control variate: Student's where many residuals count
`student`    estimate +- t se: what most papers print; needs a few dozen relevant draws
`normal`     estimate +- z se, the source paper's; needs more
`betting`    whatever the utilities and n, if these have a known top: claims that must hold
===========  ====================================================================================

Without a model only relevant draws say anything, and few of them leave much unseen. With one every
draw has a residual, and a difference is soon normal: of 20 systems of TREC-8 ranked by 250
judgments, Student's intervals cover 94 to 96 %, cubic ones 99 %. Predictions *hold* where the gates
of `evenhand.estimation.cross_fitting` let more than half of them through, on average.

===========  =========================  =====================  ===================  ==============
name         coverage                   rounds                 control variate      population
===========  =========================  =====================  ===================  ==============
`cubic`      as measured                any                    any                  yes
`moderated`  as measured                any                    needed               yes
`student`    for many relevant draws    any                    any                  yes
`normal`     for more                   any                    any                  yes
`betting`    proved, every n            fixed before judging   none                 no
===========  =========================  =====================  ===================  ==============

A betting interval (`evenhand.intervals.betting`) was twice as wide as the cubic one where 20
systems of TREC-8 were ranked by 250 to 4,000 judgments, and 48 of 190 pairs were decided, all
together, by 1,000. It gains nothing from predictions, nor from how much of the pool is judged: by
distinct draws of a third of it, it is four times as wide. Where it does not hold it is refused. A
round is judged as a whole before it says anything, so that there is no look after every judgment;
who takes that look himself has `evenhand.intervals.betting.sequence`.

**The cubic interval.** Relevant draws come one by one, like Poisson events of different sizes, and
the next one may weigh more than all seen. With the moments of `evenhand.intervals.moments` and z
the normal quantile, one event is taken as still unseen:

    v   = (F + tau^2) / (V + tau)             square of an event, one unseen among them       (1)
    s^2 = V + (3/2 - sigma^2) v               variance, with a share of that event           (2)
    g+- = sigma^2 (T +- tau^(3/2)) / (V + tau)                                               (3)

    D^ + s k(z; g+/s) + g+/6   and   D^ + s k(-z; g-/s) + g-/6,
    k(z; a) = z + a z^2/3 + a^2 z^3/27 = ((1 + a z/3)^3 - 1) / a                             (4)

k is Hall's transformation (1992, *On the removal of skewness by transformation*, J. R. Statist.
Soc. B 54), with the skewness of V itself growing with D as in a Poisson law: for one system whose
draws all weigh alike (4) is within 0.3 events of the mid-p limits of a Poisson mean, and Wilson and
Hilferty's cube at heart. A difference has events of both signs, and almost no skewness; it is
then symmetric, D^ +- z sqrt(V + 3/2 v), as Agresti and Coull add pseudo-observations to a
proportion. The share 3/2 - sigma^2 was chosen by measurement (`tests/benchmarks/coverage.py`).

It *needs* draws of a known law and utilities that are not negative or nearly so. It *gives up*
nothing for many events: V grows, v does not. Ends are held to the range that the contrast can have.

**The moderated interval.** Residuals of a system's own value mostly have one sign, and a draw that
is missing makes both the estimate and V too small: Student's interval then is too short just where
it is too low. That of a difference, whose residuals have either sign, is not. So V is moderated
towards what the whole pool leads to expect, M, the more the fewer residuals count and the more they
have one sign, and the degrees of freedom are those that so many events leave,

    V*  = (nu_V V + sigma^2 nu_0 M) / (nu_V + sigma^2 nu_0),         nu_V = 2 V^2 / F         (5)
    1 / nu* = sigma^2 / nu_1 + (1 - sigma^2) / nu,
    nu_1 = ((nu_V + nu_0) / (sqrt(nu_V) + nu_0 / sqrt(nu_M)))^2                               (6)

with nu those of the draws, and nu_1 those of a mean of V and M that err together, as they do where
the scale of M comes from the same draws. nu_0 = 4 was chosen by measurement
(`tests/benchmarks/population.py`); 2 and 8 did as well. Moderated variances are Smyth's (2004,
*Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments*), whose nu_0 is estimated from thousands of contrasts; for symmetry and Student's t see
Efron 1969, *Student's t-test under symmetry conditions*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from evenhand.errors import EvenhandError
from evenhand.intervals import betting
from evenhand.intervals.confidence import Level, check_level
from evenhand.intervals.moments import TermMoments, welch
from evenhand.sampling.rounds import Control

__all__ = [
    "INTERVALS",
    "Interval",
    "check_interval",
    "chosen",
    "cubic",
    "moderated",
    "student",
    "welch",
    "widened",
]


#: nu_0 of equation (5): how many degrees of freedom what is foreseen counts for.
FORESEEN = 4.0
# Where tails are matched for several contrasts together: ten, of which 95 % of the times none is
# missed, have each a chance of .005.
_FAR = 0.9975


def _ratio(top, bottom, xp):
    return xp.where(bottom > 0, top / xp.where(bottom > 0, bottom, 1.0), 0.0)


def _unseen(m: TermMoments, xp):
    """V of equation (1)."""
    return _ratio(m.fourth + m.event**2, m.variance + m.event, xp)


def _spread(m: TermMoments):
    """S of equation (2)."""
    xp = m.variance.__array_namespace__()
    return xp.sqrt(m.variance + (1.5 - m.side**2) * _unseen(m, xp))


def cubic(m: TermMoments, level: Level):
    """Limits of equation (4), held to the range of the contrast and around the estimate.

    Parameters
    ----------
    m
        Arrays of NumPy or JAX, of any one shape; works under ``jit`` and ``vmap``.
    level
        Nominal coverage of the two limits together; static.
    """
    xp = m.variance.__array_namespace__()
    z = special.ndtri(0.5 + check_level(level) / 2)
    s = _spread(m)

    def limit(sign: int):
        skew = m.third + sign * m.event**1.5
        g = m.side**2 * _ratio(skew, m.variance + m.event, xp)
        a, x = _ratio(g, s, xp), sign * z
        return m.estimate + s * (x + a * x**2 / 3 + a**2 * x**3 / 27) + g / 6

    low = xp.minimum(xp.maximum(limit(-1), m.floor), m.estimate)
    high = xp.maximum(xp.minimum(limit(1), m.ceiling), m.estimate)
    return low, high


def student(
    estimate: np.ndarray, std_error: np.ndarray, degrees: np.ndarray, level: Level
) -> tuple[np.ndarray, np.ndarray]:
    """Student's interval for each estimate alone; shapes (m,), in the measure's unit."""
    check_level(level)
    half = special.stdtrit(degrees, 0.5 + level / 2) * std_error
    return estimate - half, estimate + half


def _student(m: TermMoments, level: Level) -> tuple[np.ndarray, np.ndarray]:
    return student(m.estimate, np.sqrt(m.variance), np.maximum(m.degrees, 1.0), level)


def _moderation(m: TermMoments) -> tuple[np.ndarray, np.ndarray]:
    """V* and nu* of equations (5) and (6)."""
    assert m.foreseen is not None
    assert m.foreseen_degrees is not None
    most, one_sided = np.maximum(m.degrees, 1.0), m.side**2
    own = np.where(m.fourth > 0, 2.0 * _ratio(m.variance**2, m.fourth, np), 0.0)
    own = np.where((m.fourth == 0) & (m.variance > 0), most, own)  # of no draw, but of assessors
    trust = one_sided * FORESEEN
    variance = _ratio(own * m.variance + trust * m.foreseen, own + trust, np)
    root = np.sqrt(own) + _ratio(FORESEEN, np.sqrt(m.foreseen_degrees), np)
    events = np.clip(_ratio(own + FORESEEN, root, np) ** 2, 1.0, most)
    return variance, 1.0 / (one_sided / events + (1.0 - one_sided) / most)


def moderated(m: TermMoments, level: Level) -> tuple[np.ndarray, np.ndarray]:
    """Student's limits with the variance (5) and its degrees of freedom (6)."""
    variance, degrees = _moderation(m)
    return student(m.estimate, np.sqrt(variance), degrees, level)


def _moderated_spread(m: TermMoments) -> np.ndarray:
    """As much as makes a normal quantile Student's, far out, where several are covered together."""
    variance, degrees = _moderation(m)
    return np.sqrt(variance) * special.stdtrit(degrees, _FAR) / special.ndtri(_FAR)


def _normal(m: TermMoments, level: Level) -> tuple[np.ndarray, np.ndarray]:
    half = special.ndtri(0.5 + check_level(level) / 2) * np.sqrt(m.variance)
    return m.estimate - half, m.estimate + half


def widened(
    estimate: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    variance: np.ndarray,
    degrees: float,
    level: Level,
) -> tuple[np.ndarray, np.ndarray]:
    r"""An interval for a sum of two independent errors, from that for one and the other's variance.

    .. math:: \hat D - \sqrt{(\hat D - \mathrm{low})^2 + t_\nu^2 V}

    and alike above: each side keeps its own length (Zou and Donner 2008, *Construction of
    confidence limits about effect measures*).
    """
    half = special.stdtrit(degrees, 0.5 + check_level(level) / 2) * np.sqrt(variance)
    return estimate - np.hypot(estimate - low, half), estimate + np.hypot(high - estimate, half)


@dataclass(frozen=True, slots=True)
class Interval:
    """A kind of interval. To add one, put it into `INTERVALS`: estimates and tests then know it.

    Attributes
    ----------
    name
        What users call it.
    limits
        ``(moments, level)`` to low and high.
    spread
        What replaces the standard error where several contrasts are covered together; 0 where
        nothing can vary.
    p
        The p-values of the same test, against 0; by default found from the limits
        (`evenhand.intervals.simultaneous.p_alone`).
    bets
        It holds for every n, is made from the terms of the draws (`TermMoments.terms`), and several
        contrasts are put together by Bonferroni's bound.
    """

    name: str
    limits: Callable[[TermMoments, Level], tuple[np.ndarray, np.ndarray]]
    spread: Callable[[TermMoments], np.ndarray]
    p: Callable[[TermMoments], np.ndarray] | None = None
    bets: bool = False
    foresees: bool = False


def _std_error(m: TermMoments) -> np.ndarray:
    return np.sqrt(m.variance)


def _betting(m: TermMoments, level: Level) -> tuple[np.ndarray, np.ndarray]:
    assert m.terms is not None
    low, high = betting.limits(m.terms, level)
    # What is left of a term's bounds by rounding must not leave out the estimate.
    low = np.minimum(np.maximum(low, m.floor), m.estimate)
    return low, np.maximum(np.minimum(high, m.ceiling), m.estimate)


def _p_betting(m: TermMoments) -> np.ndarray:
    assert m.terms is not None
    return betting.p_value(m.terms)


INTERVALS: dict[str, Interval] = {
    one.name: one
    for one in (
        Interval("cubic", cubic, _spread),
        Interval("moderated", moderated, _moderated_spread, foresees=True),
        Interval("student", _student, _std_error),
        Interval("normal", _normal, _std_error),
        Interval("betting", _betting, _spread, _p_betting, bets=True),
    )
}


def chosen(name: str, controls: Sequence[Control | None] | None) -> str:
    """The interval that `auto` means with these control variates; any other name is itself."""
    if name != "auto":
        return name
    gates = [np.mean(c.gate) for c in controls or () if c is not None and c.gate is not None]
    return "moderated" if gates and min(gates) > 0.5 else "cubic"


def check_interval(name: str) -> Interval:
    """The interval of this name, one of `INTERVALS`."""
    if name not in INTERVALS:
        known = ", ".join(("auto", *INTERVALS))
        raise EvenhandError(f"unknown interval {name!r}", hint=f"known are {known}")
    return INTERVALS[name]
