"""How sure to be: the level of an interval, the probability with which it covers, and its kind."""

from __future__ import annotations

import numpy as np

from evenhand.errors import EvenhandError

__all__ = ["INTERVAL", "Level", "check_level", "percent"]

#: The interval that is taken if nothing else is asked for, of `evenhand.intervals.INTERVALS`.
INTERVAL = "auto"

#: One for all contrasts, or one for each.
Level = float | np.ndarray


def check_level(level: Level) -> Level:
    """Give the confidence level back if it lies in (0, 1)."""
    outside = np.atleast_1d(level)[~((np.atleast_1d(level) > 0) & (np.atleast_1d(level) < 1))]
    if len(outside):
        raise EvenhandError(
            f"the level must lie between 0 and 1, got {outside[0]:g}", hint="--level 0.95"
        )
    return level


def percent(level: float) -> str:
    """A level as text, with the digits that it has, to four.

    >>> percent(0.95), percent(0.99810015)
    ('95%', '99.81%')
    """
    return f"{100 * level:.4g}%"
