r"""When to stop judging, for people who look after every round.

An interval at a fixed level is wrong too often if you look again and again and stop when it suits
you: with 49 looks a 95 % interval misses the truth at some look in 31 % of studies. So look t
gets the level

    1 - alpha_t,       alpha_t = alpha 6 / (pi^2 t^2),       sum_t alpha_t = alpha               (1)

and the intervals of *all* looks together cover with the probability 1 - alpha, however many there
are and whatever decides when the last one is. Looks are counted by rounds: the same judgments say
the same however often they are looked at.

Three rules, each judged by the intervals of (1):

- ``half-width<W``: the mean half-width of the contrasts' intervals is below W;
- ``decided``: every pair of systems that differ at all is decided;
- ``best``: one system, or one group that returns the same, is above all others, and all are
  covered.

Draws that say nothing yet, such as those that found nothing relevant, seem not to vary: an interval
without width is believed only of what was certain to be drawn.

A study that stops because of what it saw has estimates that are *biased* by that: who leads at a
lucky moment stops. What stays true at the stop is the interval, which is therefore what to report.
For looks after every single judgment there is `evenhand.intervals.betting.sequence`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from evenhand.errors import EvenhandError
from evenhand.intervals.confidence import percent

if TYPE_CHECKING:
    from evenhand.estimation.estimates import Estimate

__all__ = ["check_rule", "level_at", "stopped"]


def level_at(level: float, look: int) -> float:
    """The level of look number `look`, from 1 on, equation (1)."""
    return 1.0 - (1.0 - level) * 6.0 / (np.pi * look) ** 2


def check_rule(rule: str) -> tuple[str, float]:
    """The name of a rule and its number, 0 if it has none.

    Raises
    ------
    EvenhandError
        If there is no such rule.
    """
    text = rule.replace(" ", "")
    if text in ("decided", "best"):
        return text, 0.0
    found = re.fullmatch(r"half-width<(\d+\.?\d*|\.\d+)", text)
    if found and float(found[1]) > 0:
        return "half-width", float(found[1])
    raise EvenhandError(
        f"unknown rule to stop {rule!r}", hint="'half-width<0.3' (any width), 'decided' or 'best'"
    )


def stopped(found: Estimate, rule: str) -> Estimate:
    """Say whether a rule is met by an estimate whose level is that of its look.

    Parameters
    ----------
    found
        Made with the level `level_at` of its number of rounds.
    rule
        As the module docstring names them.

    Returns
    -------
    Estimate
        With ``stop`` set, and a note with the reason.
    """
    name, wanted = check_rule(rule)
    if name == "half-width":
        widths = found.contrast_high - found.contrast_low
        width, untold = (
            float(widths.mean() / 2),
            found.zero_variance_unknown(found.goal.matrix, widths),
        )
        met, said = width < wanted, f"the mean half-width is {width:.4g}, asked is {wanted:g}"
        if np.isnan(widths).any():
            said = f"{np.isnan(widths).sum():,} of {len(widths):,} contrasts are not covered"
        elif untold.any():
            met = False
            said = f"draws say nothing yet of {untold.sum():,} of {len(untold):,} widths"
    elif name == "decided":
        # Here, so that a rule can be checked without waiting for JAX.
        from evenhand.estimands.goals import pairs

        compared = found.pairs
        untold = found.zero_variance_unknown(pairs(found.goal.target).matrix, compared.spread)
        open_to = np.where(compared.spread == 0, untold, ~compared.decided)
        met, said = not open_to.any(), f"{int(open_to.sum()):,} of {len(open_to):,} pairs are open"
    else:
        from evenhand.decisions.ranks import ranking

        ranks = ranking(found)
        best = ranks.contenders
        alone = len({found.alike[found.goal.target.systems.index(name)] for name in best}) == 1
        met = alone and not ranks.uncovered
        if met:
            said = f"{best[0]} is the best"
        elif alone:
            said = f"{ranks.uncovered:,} systems are not covered, and may be better than {best[0]}"
        else:
            said = f"{len(best)} systems may be the best"
    note = (
        f"{'stop' if met else 'go on'}: {said}; intervals are at {percent(found.level)} each, so "
        "that those of all looks hold together; the estimates of a study that stops for what it "
        "saw are biased, its intervals are not"
    )
    return replace(found, stop=bool(met), notes=(note, *found.notes))
