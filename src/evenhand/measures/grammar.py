"""Measures as users write them: three tools' spellings in, one out."""

from __future__ import annotations

import ast
import re
from typing import Any

from evenhand.errors import EvenhandError
from evenhand.measures.base import Linear, Listwise, Measure
from evenhand.measures.inferred import infAP, infNDCG, xinfAP
from evenhand.measures.judged import Judged, JudgedP
from evenhand.measures.linear import DCG, RBP, Gain, P
from evenhand.measures.rating_errors import MAE, MSE
from evenhand.measures.ratios import AP, R, Rprec, nDCG
from evenhand.measures.stat_ap import statAP, statP, statR, statRprec
from evenhand.measures.swaps import Swaps, wSwaps
from evenhand.measures.validation import check_number

__all__ = ["linear", "measure", "sampled"]

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(P, DCG, Gain, RBP, nDCG, AP, R, Rprec, MAE, MSE, Swaps, wSwaps, Judged),
        *(infAP, xinfAP, infNDCG, statAP, statP, statR, statRprec),
    )
}
# What other tools call them, in lower case; a name of our own spelling is looked up first.
_ALIASES = {name.lower(): name for name in _KINDS if name != "R"} | {
    "precision": "P",
    "prec": "P",
    "dcg_burges": "DCG",
    "ndcg_burges": "nDCG",
    "map": "AP",
    "recall": "R",
    "r-precision": "Rprec",
}
# Options that are read but are no field of the value.
_READ = {"P": {"judged_only"}, "nDCG": {"dcg"}}

_IR_MEASURES = re.compile(
    r"(?P<name>\w+?)\s*(?:\((?P<options>.*)\))?\s*(?:@(?P<cutoff>[^@]+))?", re.S
)
_TREC_EVAL = re.compile(
    r"(?P<name>P|recall|dcg|gain|ndcg(?=_cut)|map(?=_cut))(?:_cut)?[_.](?P<cutoff>\d+)", re.I
)
_RANX = re.compile(
    r"(?P<name>[a-z_]+|r-precision)(?:\.(?P<p>\d+))?(?:@(?P<cutoff>\d+))?(?:-l(?P<rel>\d+))?"
)


def measure(text: str | Measure) -> Linear | Listwise:
    """Read a measure as users write it.

    Parameters
    ----------
    text
        ``ir_measures`` spelling (``P@10``, ``P(rel=2)@5``, ``DCG(log='e')@100``, ``nDCG@10``,
        ``AP``), trec_eval's (``P_10``, ``ndcg_cut_10``, ``map``) or ranx's (``precision@10``,
        ``rbp.80``, ``map@100-l2``). A measure is given back as it is.

    Returns
    -------
    Linear or Listwise
        A value that prints canonically.

    Raises
    ------
    EvenhandError
        If the name or an option is unknown, or an option has a value that it cannot have.

    Examples
    --------
    >>> [str(measure(m)) for m in ("P_10", "precision@10", "rbp.80", "DCG(gains='exp')@10")]
    ['P@10', 'P@10', 'RBP(p=0.8)', "DCG(gains='exp')@10"]
    >>> [str(measure(m)) for m in ("ndcg_cut_10", "map@100-l2", "r-precision", "ndcg_burges@10")]
    ['nDCG@10', 'AP(rel=2)@100', 'Rprec', "nDCG(dcg='exp-log2')@10"]
    """
    if not isinstance(text, str):
        if isinstance(text, Linear | Listwise):
            return text
        raise EvenhandError(f"expected a measure or its name, got {text!r}")
    text = text.strip()
    if match := _TREC_EVAL.fullmatch(text):
        return _build(text, match["name"], {}, match["cutoff"])
    if (match := _RANX.fullmatch(text)) and match["name"] in _ALIASES and text not in _KINDS:
        options: dict[str, object] = {"gains": "exp"} if match["name"].endswith("_burges") else {}
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
        if not isinstance(call, ast.Call) or call.args or any(k.arg is None for k in call.keywords):
            raise ValueError
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, TypeError, ValueError) as error:  # TypeError: a list as a map's grade
        raise EvenhandError(
            f"cannot read the options of the measure {text!r}",
            hint="options are written name=value, like P(rel=2)@10 or DCG(log='e')@100",
        ) from error


def _build(
    text: str, name: str, options: dict[str, object], cutoff: str | None
) -> Linear | Listwise:
    kind: type | None = _KINDS.get(name) or _KINDS.get(_ALIASES.get(name.lower(), ""))
    if kind is None:
        if re.match(r"(n?err|m?rr|recip_rank|bpref|success)(?![a-z])", name.lower()):
            raise EvenhandError(
                f"{text!r} is no weighted sum over documents, nor a ratio of such sums: "
                "it cannot be estimated without bias from sampled pairs",
                hint="RBP and P@k answer a similar question",
            )
        raise EvenhandError(
            f"unknown measure {text!r}",
            hint=f"known are {', '.join(_KINDS)}, like P@10 or RBP(p=0.8)",
        )
    name = kind.__name__
    known = (set(kind.__dataclass_fields__) - {"cutoff"}) | _READ.get(name, set())
    if unknown := sorted(set(options) - known):
        raise EvenhandError(
            f"{name} has no option {unknown[0]!r} (in {text!r})",
            hint=f"its options are {', '.join(sorted(known))}" if known else f"write {name}",
        )
    for key in ("rel", "p"):
        if key in options:
            check_number(name, key, options[key])
    if "judged_only" in options:
        only = options.pop("judged_only")
        if not isinstance(only, bool):
            raise EvenhandError(f"judged_only of {name} must be True or False, got {only!r}")
        kind = JudgedP if only else kind
    if "dcg" in options:
        form = options.pop("dcg")
        if form not in ("log2", "exp-log2") or (form == "exp-log2" and "gains" in options):
            raise EvenhandError(
                f"dcg of {name} must be 'log2', or 'exp-log2' without gains, got {form!r}",
                hint="write nDCG@10, nDCG(dcg='exp-log2')@10 or nDCG(gains={0:0,1:1,2:3})@10",
            )
        options |= {"gains": "exp"} if form == "exp-log2" else {}
    if cutoff is None:
        return kind(**options)
    if not re.fullmatch(r"[0-9]{1,9}", cutoff.strip()):
        raise EvenhandError(f"the cutoff in {text!r} must be a whole number, got {cutoff!r}")
    return kind(cutoff=int(cutoff), **options)


def linear(text: str | Measure) -> Linear:
    """Read a measure that is a weighted sum over documents, which samples estimate without bias.

    Raises
    ------
    EvenhandError
        If it cannot be read, or is no such sum.
    """
    found = measure(text)
    if isinstance(found, Linear) and not isinstance(found, Listwise):
        return found
    raise _refusal(found, "this takes only sums")


def sampled(text: str | Measure) -> Linear:
    """Read a measure that sampled pairs can estimate: a weighted sum over documents, or a ratio.

    Raises
    ------
    EvenhandError
        If it cannot be read, or is neither.
    """
    found = measure(text)
    if isinstance(found, Linear):
        return found
    raise _refusal(found, "it cannot be estimated from sampled pairs")


def _refusal(measure: Any, therefore: str) -> EvenhandError:
    return EvenhandError(
        f"{measure} is not a sum over documents of weight by rank times utility by grade, but "
        f"{measure.reason}: {therefore}",
        hint="evaluate it with complete judgments (`evenhand evaluate`)"
        + (f", or take {measure.instead}" if measure.instead else ""),
    )
