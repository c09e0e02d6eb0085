"""How a study was made, as a paragraph of methods that is true of it, and what to cite.

Every clause follows from what the rounds recorded and from what the estimate says of itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.intervals.confidence import percent
from evenhand.nonlinear.kinds import kind_of
from evenhand.reports.facts import Facts, RoundFacts
from evenhand.reports.summary import isolated

__all__ = ["BIBTEX", "CITATION", "LINK", "paragraph"]

#: Identifier of the preprint of the paper.
LINK = "https://doi.org/10.48550/arXiv.1604.07209"
CITATION = (
    "Tobias Schnabel, Adith Swaminathan, Peter I. Frazier and Thorsten Joachims. 2016. Unbiased "
    "Comparative Evaluation of Ranking Functions. In Proceedings of the 2016 ACM International "
    "Conference on the Theory of Information Retrieval (ICTIR ’16)."
)
BIBTEX = """@inproceedings{schnabel2016unbiased,
  author    = {Schnabel, Tobias and Swaminathan, Adith and Frazier, Peter I. and
               Joachims, Thorsten},
  title     = {Unbiased Comparative Evaluation of Ranking Functions},
  booktitle = {Proceedings of the 2016 ACM International Conference on the
               Theory of Information Retrieval (ICTIR '16)},
  year      = {2016},
  eprint    = {1604.07209},
  archivePrefix = {arXiv},
}
"""

_GOALS = {
    "absolute": "each system’s own value",
    "pair": "the difference of two systems",
    "baseline": "the difference of each system to the baseline",
    "rank": "the difference of each system to the mean of all",
    "best": "the difference of each system to the mean of all, to find the best",
    "order": "the difference of each system to the mean of all, to find their order",
}
_DESIGNS = {
    "optimal": "the proposal that minimises the summed variance of the contrasts",
    "minimax": "the proposal that minimises the largest variance of any contrast",
    "naive": "probabilities proportional to expected utility times the systems’ mean weight",
    "uniform": "the same probability for every pair",
}
_UTILITIES = {
    "rank": "expected utility was guessed from the systems’ ranks",
    "flat": "the same utility was expected of every pair",
    "score": "expected utility was taken from the systems’ scores",
    "learned": "expected utility was learned from all earlier judgments by a Bayesian model",
}
_SAMPLERS = {
    "distinct": "without replacement (pivotal sampling with fixed inclusion probabilities)",
    "slices": "by one draw from each of equal slices of the probability (stratified)",
    "iid": "independently, with replacement",
}
_INTERVALS = {
    "student": "Student’s intervals",
    "cubic": "intervals that reckon with relevant pairs not yet drawn (a skewness-corrected "
    "transformation)",
    "moderated": "Student’s intervals with a moderated variance (held near what the whole pool "
    "leads to expect)",
    "normal": "normal intervals",
    "betting": "finite-sample betting intervals",
}


def paragraph(facts: Facts) -> str:
    """The paragraph; sentences that the study's state does not bear out yet are left out."""
    return " ".join([_asked(facts), *_drawn(facts), *_estimated(facts), _made(facts)])


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _asked(facts: Facts) -> str:
    pool = f"{_count(facts.n_pairs, 'query-document pair')} (the union of the systems’ results"
    pool += f" to rank {facts.depth})" if facts.depth else ")"
    base = f" {isolated(facts.baseline)}" if facts.baseline else ""
    return (
        f"We estimated {facts.measure} of {_count(len(facts.systems), 'ranking system')} on "
        f"{_count(facts.n_queries, 'query', 'queries')} from relevance judgments of a sample of "
        f"{pool}, following Schnabel et al. (2016); the quantity of interest was "
        f"{_GOALS.get(facts.goal.kind, 'a set of contrasts')}{base}."
    )


def _drawn(facts: Facts) -> list[str]:
    if not facts.rounds:
        return ["No pairs have been drawn yet."]
    sentences = []
    for number, one in enumerate(facts.rounds):
        sentences.append(_round(one, facts.rounds[number - 1] if number else None))
    missing = sum(one.n_missing for one in facts.rounds)
    who = f" by {_count(facts.n_assessors, 'assessor')}" if facts.n_assessors > 1 else ""
    sentences.append(
        f"In all {_count(facts.n_judged, 'distinct pair was', 'distinct pairs were')} judged{who}"
        + (f", and {missing:,} drawn pairs are not judged yet." if missing else ".")
    )
    return sentences


def _round(one: RoundFacts, before: RoundFacts | None) -> str:
    record, name = one.record, _named(one.record.name)
    law = (record.sampler, one.kind, record.floor)
    if before is not None and law == (before.record.sampler, before.kind, before.record.floor):
        parts = [f"{name.capitalize()} drew {_count(one.n_draws, 'pair')} in the same way"]
    else:
        floor = (
            f", mixed with a share of {record.floor:.0%} for other goals" if record.floor else ""
        )
        parts = [
            f"{name.capitalize()} drew {_count(one.n_draws, 'pair')} "
            f"{_SAMPLERS.get(record.sampler, record.sampler)} from "
            f"{_DESIGNS.get(one.kind, f'a proposal of the kind {one.kind}')}"
            f"{floor if record.floor and one.kind != 'uniform' else ''}"
        ]
    if one.kind != "uniform":
        utility, *focus = one.utility.split("/")
        parts.append(
            _UTILITIES.get(utility, f"expected utility was given by predictions ({utility})")
        )
        if focus:
            parts.append(f"it was focused on the pairs of systems that decide ‘{focus[0]}’")
    if record.signals:
        parts.append(f"the model was given further signals ({', '.join(record.signals)})")
    if record.depends_on:
        seen = _and([_named(other) for other in record.depends_on])
        parts.append(f"it was designed after judgments of {seen} were seen")
    if record.first:
        parts.append("it drew only pairs of systems that had joined since")
    if record.rejudge:
        parts.append("its pairs were judged anew for it")
    return "; ".join(parts) + "."


def _named(name: str) -> str:
    """``round-002`` in words."""
    return f"round {int(name.removeprefix('round-'))}"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _estimated(facts: Facts) -> list[str]:
    found = facts.estimate
    if found is None:
        return []
    measure, sentences = facts.measure, []
    if method := kind_of(measure).method:
        sentences.append(method.format(measure=measure))
    else:
        how = {
            "importance": "weighting each judgment by the inverse of its expected count "
            "(importance sampling; Horvitz–Thompson without replacement)",
            "difference": "the difference estimator, with predictions fitted to earlier rounds",
            "cross-fitted": "the cross-fitted difference estimator: predictions of a Bayesian "
            "model, each fitted without the judgments that it is to correct, plus inversely "
            "weighted residuals",
        }.get(found.estimator, found.estimator)
        sentences.append(f"Estimates are unbiased, by {how}.")
    if len(found.weights) > 1:
        weights = _and([f"{w:.2f}" for w in found.weights.tolist()])
        sentences.append(
            f"Rounds were combined with weights fixed before judging ({weights}), since later "
            "designs depend on earlier judgments."
            if any(one.record.depends_on for one in facts.rounds)
            else f"Rounds were combined with weights fixed before judging ({weights})."
        )
    kind = _INTERVALS.get(found.interval, f"{found.interval} intervals")
    scope = (
        "this set of queries"
        if found.question == "queries"
        else "queries like these, and hold what their choice adds"
    )
    sentences.append(f"We report {kind} at {percent(found.level)}, for {scope}.")
    if facts.compared is not None and len(facts.compared.names) > 1 and facts.comparative:
        sentences.append(
            "Differences are also judged all together: by the single-step method, from the "
            "simulated maximum of their joint distribution (Hothorn et al. 2008)."
            if facts.compared.multiplier is not None
            else "Differences are also judged all together, by Bonferroni’s bound."
        )
    return sentences


def _made(facts: Facts) -> str:
    v = facts.versions
    return (
        f"Computations were made with evenhand {v['evenhand']} (JAX {v['jax']}, NumPyro "
        f"{v['numpyro']}, Python {v['python']})."
    )
