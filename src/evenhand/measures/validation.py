"""What measures have in common: cutoffs, relevance levels, gains, and how they are written."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from evenhand.errors import EvenhandError

__all__ = [
    "Gains",
    "as_gains",
    "check_cutoff",
    "check_number",
    "gain",
    "gains_option",
    "is_number",
    "number",
    "rel_option",
    "relevance",
    "text",
    "within",
]

Gains = str | tuple[tuple[float, float], ...]


def check_cutoff(name: str, cutoff: int | None, *, needed: bool = False) -> None:
    """Refuse a cutoff that is none.

    Raises
    ------
    EvenhandError
        If it is no whole number from 1, or is needed and not there.
    """
    if cutoff is None and needed:
        raise EvenhandError(f"{name} needs a cutoff", hint=f"write {name}@10")
    if cutoff is None:
        return
    if not is_number(cutoff) or int(cutoff) != cutoff or cutoff < 1:
        raise EvenhandError(f"the cutoff of {name} must be a whole number from 1, got {cutoff!r}")


def check_number(name: str, option: str, value: Any) -> None:
    """Refuse the value of an option that is no finite number.

    Raises
    ------
    EvenhandError
        If it is not.
    """
    if not is_number(value):
        raise EvenhandError(f"{option} of {name} must be a number and finite, got {_short(value)}")


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that floats can hold."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def _short(value: Any) -> str:
    """What was given, of which only the head is shown where it is long."""
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def within(rank: np.ndarray, cutoff: int | None, weight: np.ndarray) -> np.ndarray:
    """The weight up to the cutoff, 0 beyond it."""
    return weight if cutoff is None else np.where(rank <= cutoff, weight, 0.0)


def relevance(grade: np.ndarray, rel: float) -> np.ndarray:
    """1 where the grade is at least `rel`, else 0; float64."""
    return (np.asarray(grade, np.float64) >= rel).astype(np.float64)


def gain(grade: np.ndarray, gains: Gains) -> np.ndarray:
    """The gain of each grade: the grade itself, 2^grade - 1, or what the map says.

    Raises
    ------
    EvenhandError
        If a map lacks a grade.
    """
    grade = np.asarray(grade, np.float64)
    if isinstance(gains, tuple):
        known = np.array([g for g, _ in gains])
        value = np.array([v for _, v in gains])
        at = np.searchsorted(known, grade)
        miss = (at == len(known)) | (known[np.minimum(at, len(known) - 1)] != grade)
        if miss.any():
            raise EvenhandError(
                f"the gain map names no gain for grade {grade[miss][0]:g}",
                hint="add the grade to gains={...}",
            )
        return value[at]
    return np.exp2(grade) - 1.0 if gains == "exp" else grade


def as_gains(name: str, gains: Any) -> Gains:
    """The gains of the measure called `name`, checked; a map becomes sorted pairs.

    Raises
    ------
    EvenhandError
        If they are neither ``"linear"``, ``"exp"`` nor a map to gains from 0.
    """
    if gains in ("linear", "exp"):
        return str(gains)
    if isinstance(gains, dict) and gains:
        gains = tuple(gains.items())
    try:
        # What else was given is no iterable of pairs, and says so here.
        pairs = sorted((float(g), float(v)) for g, v in gains)
    except (TypeError, ValueError):
        pairs = []
    if not pairs or not all(math.isfinite(v) and v >= 0 for _, v in pairs):
        raise EvenhandError(
            f"the gains of {name} must be 'linear', 'exp' or a map from grades to gains "
            f"that are not negative, got {gains!r}"
        )
    return tuple(pairs)


def text(name: str, cutoff: int | None, options: dict[str, str] | None = None) -> str:
    """A measure as users write it.

    >>> text("P", 5, {"rel": "2"}), text("AP", None)
    ('P(rel=2)@5', 'AP')
    """
    inside = ",".join(f"{key}={value}" for key, value in (options or {}).items())
    return name + (f"({inside})" if inside else "") + (f"@{cutoff}" if cutoff else "")


def number(value: float) -> str:
    """A number as short as it can be read back."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def rel_option(rel: float) -> dict[str, str]:
    """The option `rel` where it is not 1."""
    return {} if rel == 1 else {"rel": number(rel)}


def gains_option(gains: Gains, exponential: tuple[str, str] = ("gains", "'exp'")) -> dict[str, str]:
    """The option that names the gains where they are not linear; `exponential` if they are that."""
    if gains == "linear":
        return {}
    if isinstance(gains, str):
        return dict([exponential])
    return {"gains": "{" + ",".join(f"{number(g)}:{number(v)}" for g, v in gains) + "}"}
