"""Measures as weighted sums of utilities: weight by rank, utility by grade.

A measure here is *linear*: the value of a ranking y of query x is

    U(x, y) = sum over ranks r of  weight(r) * utility(grade of the document at rank r),     (1)

so that a system's value is a weighted sum over query-document pairs, and sampling pairs estimates
it without bias. (Schnabel et al. 2016, equation 1 and the upper half of Table 1.)

========  ====================================  =========================  =================
measure   weight at rank r                      utility of grade g         unit, range
========  ====================================  =========================  =================
P@k       1/k for r <= k                        1 if g >= rel else 0       share of k, 0..1
DCG@k     1/log_b(1 + r) for r <= k             g, 2^g - 1, or a gain map  gain, 0..
Gain@k    1/k for r <= k                        g, 2^g - 1, or a gain map  gain a rank, 0..
RBP       (1 - p) p^(r - 1), any r (or r <= k)  1 if g >= rel else 0       share, 0..1
========  ====================================  =========================  =================

Precision divides by k however short the list is. The logarithm of `DCG` is to base 2 unless
``log='e'`` (the natural one of the source paper) or another base is named.

A measure is an immutable value: it prints as users write it (the ``ir_measures`` spelling), and
`parse` reads that back, as well as the spellings of trec_eval (``P_10``) and ranx
(``precision@10``). Measures that are not sums of this form (reciprocal rank, ERR) cannot be
estimated without bias from sampled pairs.

References
----------
Moffat and Zobel 2008, *Rank-biased precision*, for RBP. Jarvelin and Kekalainen 2002, *Cumulated
gain-based evaluation*, for DCG; Burges et al. 2005, *Learning to rank using gradient descent*, for
the gain 2^g - 1.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from evenhand.errors import EvenhandError

__all__ = ["DCG", "RBP", "Gain", "Measure", "P", "parse"]

Gains = str | tuple[tuple[float, float], ...]


@runtime_checkable
class Measure(Protocol):
    """What a measure must answer; anything that does can be used as one."""

    @property
    def cutoff(self) -> int | None:
        """The last rank that counts, or None if every rank does."""
        ...

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have, or None if grades are unbounded."""
        ...

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """Weight of each rank; ranks count from 1. Shape as `rank`, float64."""
        ...

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """Utility of each grade. Shape as `grade`, float64."""
        ...


def _check_cutoff(name: str, cutoff: int | None, *, needed: bool) -> None:
    if cutoff is None and needed:
        raise EvenhandError(f"{name} needs a cutoff", hint=f"write {name}@10")
    if cutoff is not None and (isinstance(cutoff, bool) or int(cutoff) != cutoff or cutoff < 1):
        raise EvenhandError(f"the cutoff of {name} must be a whole number from 1, got {cutoff!r}")


def _within(rank: np.ndarray, cutoff: int | None, weight: np.ndarray) -> np.ndarray:
    return weight if cutoff is None else np.where(rank <= cutoff, weight, 0.0)


def _binary(grade: np.ndarray, rel: float) -> np.ndarray:
    return (np.asarray(grade, np.float64) >= rel).astype(np.float64)


def _gain(grade: np.ndarray, gains: Gains) -> np.ndarray:
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


def _gains(name: str, gains: Any) -> Gains:
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


def _text(name: str, cutoff: int | None, options: dict[str, object]) -> str:
    inside = ",".join(f"{key}={value}" for key, value in options.items())
    return name + (f"({inside})" if inside else "") + (f"@{cutoff}" if cutoff else "")


def _number(value: float) -> str:
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _gains_option(gains: Gains) -> dict[str, object]:
    if gains == "linear":
        return {}
    if isinstance(gains, str):
        return {"gains": repr(gains)}
    return {"gains": "{" + ",".join(f"{_number(g)}:{_number(v)}" for g, v in gains) + "}"}


@dataclass(frozen=True, slots=True)
class P:
    """Precision at k: the share of the first k ranks whose grade is at least `rel`.

    >>> str(P(cutoff=10)), str(P(cutoff=5, rel=2))
    ('P@10', 'P(rel=2)@5')
    """

    cutoff: int | None = None
    rel: float = 1

    def __post_init__(self) -> None:
        _check_cutoff("P", self.cutoff, needed=True)

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have."""
        return 1.0

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """1/k up to rank k."""
        assert self.cutoff is not None
        return _within(rank, self.cutoff, np.full(np.shape(rank), 1.0 / self.cutoff))

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """1 where the grade is at least `rel`."""
        return _binary(grade, self.rel)

    def __str__(self) -> str:
        return _text("P", self.cutoff, {} if self.rel == 1 else {"rel": _number(self.rel)})


@dataclass(frozen=True, slots=True)
class DCG:
    """Discounted cumulative gain: gain over log_b(1 + rank), summed up to rank k.

    >>> str(DCG(cutoff=100, log="e")), float(DCG(cutoff=2).weight(np.array([1]))[0])
    ("DCG(log='e')@100", 1.0)
    """

    cutoff: int | None = None
    log: float | str = 2
    gains: Gains = "linear"

    def __post_init__(self) -> None:
        _check_cutoff("DCG", self.cutoff, needed=False)
        if self.log != "e" and not (isinstance(self.log, int | float) and self.log > 1):
            raise EvenhandError(
                f"the log base of DCG must be 'e' or a number above 1, got {self.log!r}"
            )
        object.__setattr__(self, "gains", _gains("DCG", self.gains))

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have: known only with a gain map."""
        return max(v for _, v in self.gains) if isinstance(self.gains, tuple) else None

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """1/log_b(1 + rank) up to rank k."""
        rank = np.asarray(rank, np.float64)
        if self.log == 2:
            discount = np.log2(1.0 + rank)
        else:
            discount = np.log1p(rank) / (1.0 if self.log == "e" else math.log(float(self.log)))
        return _within(rank, self.cutoff, 1.0 / discount)

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """The gain of the grade."""
        return _gain(grade, self.gains)

    def __str__(self) -> str:
        log = (
            {}
            if self.log == 2
            else {"log": repr(self.log) if self.log == "e" else _number(float(self.log))}
        )
        return _text("DCG", self.cutoff, {**log, **_gains_option(self.gains)})


@dataclass(frozen=True, slots=True)
class Gain:
    """Mean gain of the first k ranks, each counted alike.

    >>> str(Gain(cutoff=10))
    'Gain@10'
    """

    cutoff: int | None = None
    gains: Gains = "linear"

    def __post_init__(self) -> None:
        _check_cutoff("Gain", self.cutoff, needed=True)
        object.__setattr__(self, "gains", _gains("Gain", self.gains))

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have: known only with a gain map."""
        return max(v for _, v in self.gains) if isinstance(self.gains, tuple) else None

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """1/k up to rank k."""
        assert self.cutoff is not None
        return _within(rank, self.cutoff, np.full(np.shape(rank), 1.0 / self.cutoff))

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """The gain of the grade."""
        return _gain(grade, self.gains)

    def __str__(self) -> str:
        return _text("Gain", self.cutoff, _gains_option(self.gains))


@dataclass(frozen=True, slots=True)
class RBP:
    """Rank-biased precision: a user who goes on to the next rank with probability `p`.

    >>> str(RBP(p=0.8)), float(RBP(p=0.8).weight(np.array([2]))[0])
    ('RBP(p=0.8)', 0.15999999999999998)
    """

    cutoff: int | None = None
    p: float = 0.8
    rel: float = 1

    def __post_init__(self) -> None:
        _check_cutoff("RBP", self.cutoff, needed=False)
        if not 0 < self.p < 1:
            raise EvenhandError(f"p of RBP must lie between 0 and 1, got {self.p!r}")

    @property
    def top_utility(self) -> float | None:
        """The largest utility a grade can have."""
        return 1.0

    def weight(self, rank: np.ndarray) -> np.ndarray:
        """(1 - p) p^(rank - 1)."""
        rank = np.asarray(rank, np.float64)
        return _within(rank, self.cutoff, (1.0 - self.p) * self.p ** (rank - 1.0))

    def utility(self, grade: np.ndarray) -> np.ndarray:
        """1 where the grade is at least `rel`."""
        return _binary(grade, self.rel)

    def __str__(self) -> str:
        rel = {} if self.rel == 1 else {"rel": _number(self.rel)}
        return _text("RBP", self.cutoff, {"p": _number(self.p), **rel})


_KINDS: dict[str, type] = {"P": P, "DCG": DCG, "Gain": Gain, "RBP": RBP}
# What other tools call them, in lower case; a name of our own spelling is looked up first.
_ALIASES = {"p": "P", "precision": "P", "prec": "P", "dcg": "DCG", "gain": "Gain", "rbp": "RBP"}
_ALIASES |= {"dcg_burges": "DCG"}
_NEITHER = {"rr", "mrr", "recip_rank", "err", "bpref", "success"}

_IR_MEASURES = re.compile(
    r"(?P<name>\w+?)\s*(?:\((?P<options>.*)\))?\s*(?:@(?P<cutoff>[^@]+))?", re.S
)
_TREC_EVAL = re.compile(r"(?P<name>P|dcg|gain)(?:_cut)?[_.](?P<cutoff>\d+)", re.I)
_RANX = re.compile(r"(?P<name>[a-z_]+)(?:\.(?P<p>\d+))?(?:@(?P<cutoff>\d+))?(?:-l(?P<rel>\d+))?")


def parse(text: str | Measure) -> Measure:
    """Read a measure as users write it.

    Parameters
    ----------
    text
        ``ir_measures`` spelling (``P@10``, ``P(rel=2)@5``, ``DCG(log='e')@100``, ``RBP(p=0.8)``),
        trec_eval's (``P_10``) or ranx's (``precision@10``, ``dcg@10``, ``rbp.80``,
        ``precision@10-l2``). A measure is given back as it is.

    Returns
    -------
    Measure
        A value that prints canonically.

    Raises
    ------
    EvenhandError
        If the name or an option is unknown, or an option has a value that it cannot have.

    Examples
    --------
    >>> [str(parse(m)) for m in ("P_10", "precision@10", "rbp.80", "DCG(gains='exp')@10")]
    ['P@10', 'P@10', 'RBP(p=0.8)', "DCG(gains='exp')@10"]
    """
    if not isinstance(text, str):
        if isinstance(text, Measure):
            return text
        raise EvenhandError(f"expected a measure or its name, got {text!r}")
    text = text.strip()
    if match := _TREC_EVAL.fullmatch(text):
        return _build(text, match["name"], {}, match["cutoff"])
    if (match := _RANX.fullmatch(text)) and match["name"] in _ALIASES and text not in _KINDS:
        options: dict[str, object] = {"gains": "exp"} if match["name"] == "dcg_burges" else {}
        if match["p"]:
            options["p"] = float(f"0.{match['p']}")
        if match["rel"]:
            options["rel"] = int(match["rel"])
        return _build(text, match["name"], options, match["cutoff"])
    if match := _IR_MEASURES.fullmatch(text):
        return _build(text, match["name"], _options(text, match["options"] or ""), match["cutoff"])
    raise EvenhandError(f"cannot read the measure {text!r}", hint="write it like P@10 or DCG@100")


def _options(text: str, inside: str) -> dict[str, object]:
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise EvenhandError(
            f"cannot read the options of the measure {text!r}",
            hint="options are written name=value, like P(rel=2)@10 or DCG(log='e')@100",
        ) from error


def _build(text: str, name: str, options: dict[str, object], cutoff: str | None) -> Measure:
    kind = _KINDS.get(name) or _KINDS.get(_ALIASES.get(name.lower(), ""))
    if kind is None:
        if name.lower() in _NEITHER:
            raise EvenhandError(
                f"{text!r} is no weighted sum over documents, nor a ratio of such sums: "
                "it cannot be estimated without bias from sampled pairs",
                hint="RBP and P@k answer a similar question",
            )
        raise EvenhandError(
            f"unknown measure {text!r}",
            hint=f"known are {', '.join(_KINDS)}, like P@10 or RBP(p=0.8)",
        )
    known = set(kind.__dataclass_fields__) - {"cutoff"}
    if unknown := sorted(set(options) - known):
        raise EvenhandError(
            f"{kind.__name__} has no option {unknown[0]!r} (in {text!r})",
            hint=f"its options are {', '.join(sorted(known))}",
        )
    for key in ("rel", "p"):
        if key in options and (
            isinstance(options[key], bool) or not isinstance(options[key], int | float)
        ):
            raise EvenhandError(f"{key} of {kind.__name__} must be a number, got {options[key]!r}")
    if cutoff is None:
        return kind(**options)
    if not cutoff.strip().isdigit():
        raise EvenhandError(f"the cutoff in {text!r} must be a whole number, got {cutoff!r}")
    return kind(cutoff=int(cutoff), **options)
