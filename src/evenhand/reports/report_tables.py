"""The tables of a report, each of which can be copied as CSV and as LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evenhand.intervals.confidence import percent
from evenhand.reports.facts import Facts
from evenhand.results import Table, decimals

__all__ = ["HEADINGS", "sheets_of"]

#: What a column is called on the page; copies keep the names of ``evenhand estimate``.
HEADINGS: Mapping[str, str] = {
    "std_error": "std. error",
    "low_all": "low (all)",
    "high_all": "high (all)",
    "p_all": "p (all)",
    "rank_low": "best rank",
    "rank_high": "worst rank",
    "best": "chance to be best (joint normal)",
    "n_judged": "pairs judged",
    "max_share": "largest share",
    "ess": "effective size",
    "no_weight": "without weight",
    "to_judge": "not judged yet",
    "sha256": "SHA-256",
}
_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def sheets_of(facts: Facts) -> dict[str, Table]:
    """Every table that there is something to put into, by name."""
    made: dict[str, Table] = {}
    if facts.rounds:
        made["rounds"] = _rounds(facts)
    made |= _estimates(facts)
    if len(facts.looks) > 1:
        made["looks"] = _looks(facts)
    if facts.rounds:
        made |= _places(facts)
    if facts.weights is not None and len(facts.weights.size):
        made["weights"] = _weights(facts)
    if facts.calibrations:
        made["calibration"] = _calibration(facts)
    if facts.rounds:
        made["records"] = _records(facts)
    made["versions"] = Table.of(
        "This report was made with",
        {"program": list(facts.versions), "version": list(facts.versions.values())},
    )
    made["files"] = Table.of(
        "Files of the study", {"file": list(facts.files), "sha256": list(facts.files.values())}
    )
    return made


def _rounds(facts: Facts) -> Table:
    rounds = facts.rounds
    columns: dict[str, list[Any]] = {
        "round": [one.record.name for one in rounds],
        "draws": [one.n_draws for one in rounds],
        "pairs": [one.n_distinct for one in rounds],
        "to_judge": [one.n_missing for one in rounds],
        "design": [one.kind for one in rounds],
        "utility": [one.utility for one in rounds],
        "sampler": [one.record.sampler for one in rounds],
        "floor": [one.record.floor for one in rounds],
        "after seeing": [", ".join(one.record.depends_on) or "nothing" for one in rounds],
    }
    return Table.of("Rounds", columns, {"floor": 2})


def _estimates(facts: Facts) -> dict[str, Table]:
    """Systems, contrasts and ranks, the best on top."""
    found, compared, standings = facts.estimate, facts.compared, facts.standings
    if found is None or compared is None:
        return {}
    digits = decimals(np.concatenate([found.std_error, found.contrast_std_error]))
    sign = facts.goal.target.sign
    columns: dict[str, Any] = {
        "system": found.goal.target.systems,
        "estimate": found.value,
        "std_error": found.std_error,
        "low": found.low,
        "high": found.high,
        "covered": found.covered,
    }
    title = f"Systems, {percent(found.level)} intervals"
    made = {"systems": Table.of(title, _sorted(columns, sign * found.value), digits)}
    if facts.comparative:
        columns = {
            "contrast": found.goal.names,
            "estimate": found.contrast,
            "std_error": found.contrast_std_error,
            "low": found.contrast_low,
            "high": found.contrast_high,
            "low_all": compared.low_all,
            "high_all": compared.high_all,
            "p_all": compared.p_all,
            "decided": [
                None if np.isnan(value) else "yes" if sure else "no"
                for value, sure in zip(found.contrast, compared.decided, strict=True)
            ],
        }
        title = f"Contrasts, {percent(found.level)} intervals of each alone and of all together"
        made["contrasts"] = Table.of(
            title,
            _sorted(columns, sign * found.contrast),
            dict.fromkeys(columns, digits) | {"p_all": 4},
            positive=("p_all",),
        )
    if standings is not None and standings.systems:
        plain = standings.tables()[0]
        made["standings"] = Table.of(
            plain.title, plain.columns, {"estimate": digits, "best": 3}, positive=("best",)
        )
    return made


def _sorted(columns: dict[str, Any], merit: np.ndarray) -> dict[str, Any]:
    """Columns with the row of most merit on top, and what has none at the end."""
    order = np.argsort(-np.where(np.isnan(merit), -np.inf, merit), kind="stable")
    return {name: [column[i] for i in order] for name, column in columns.items()}


def _looks(facts: Facts) -> Table:
    """One row for each look at each contrast (or system), those of the best first."""
    estimates = [look.estimate for look in facts.looks]
    if facts.comparative:
        kind, prefix = "contrast", "contrast_"
        names, value = facts.goal.names, [found.contrast for found in estimates]
    else:
        kind, prefix = "system", ""
        names, value = facts.systems, [found.value for found in estimates]
    n = len(names)
    numbers = {
        "estimate": np.stack(value, axis=1).ravel(),
        **{
            end: np.stack([getattr(found, prefix + end) for found in estimates], axis=1).ravel()
            for end in ("low", "high")
        },
    }
    columns = {
        kind: np.repeat(names, len(estimates)).tolist(),
        "after": [look.rounds[-1] for look in facts.looks] * n,
        "n_judged": [found.n_judged for found in estimates] * n,
        **numbers,
    }
    merit = np.repeat(facts.goal.target.sign * value[-1], len(estimates))
    errors = np.concatenate([getattr(found, f"{prefix}std_error") for found in estimates])
    return Table.of("Estimates after each round", _sorted(columns, merit), decimals(errors))


def _places(facts: Facts) -> dict[str, Table]:
    places = facts.places
    made = {}
    for name, title, counts in (
        ("drawn", "Draws by rank", places.drawn),
        ("judged", "Judged pairs by rank", places.judged),
        ("returned", "Pairs that each system returns, by rank", places.returned),
    ):
        columns = {"system": places.systems}
        columns |= dict(zip(places.bins, counts.T.tolist(), strict=True))
        made[name] = Table.of(title, columns)
    return made


def _weights(facts: Facts) -> Table:
    weights = facts.weights
    assert weights is not None
    columns: dict[str, list[Any]] = {
        "draws": [len(weights.size)],
        "no_weight": [weights.zero],
        "ess": [weights.ess],
        "max_share": [weights.max_share],
    }
    for share, value in zip(_QUANTILES, np.quantile(weights.size, _QUANTILES), strict=True):
        columns[{0.0: "least", 0.5: "median", 1.0: "most"}.get(share, f"{share:.0%}")] = [value]
    digits = dict.fromkeys(columns, 2) | {"ess": 1, "max_share": 4}
    return Table.of("Importance weights of the draws; their mean is 1", columns, digits)


def _calibration(facts: Facts) -> Table:
    every = facts.calibrations
    columns = {
        "round": [one.round for one in every for _ in one.judgments],
        "bin": [i + 1 for one in every for i in range(len(one.judgments))],
    }
    for name in ("judgments", "predicted", "low", "high", "observed"):
        columns[name] = [value for one in every for value in getattr(one, name).tolist()]
    columns["inside"] = ["yes" if ok else "no" for one in every for ok in one.inside]
    return Table.of("Calibration of the prior by bin", columns, 3)


def _records(facts: Facts) -> Table:
    records = [one.record for one in facts.rounds]
    columns: dict[str, list[Any]] = {
        "round": [record.name for record in records],
        "drawn": [record.created for record in records],
        "seed": [str(record.seed) for record in records],
        "design": [record.design for record in records],
        "sampler": [record.sampler for record in records],
        "folds": [record.folds for record in records],
    }
    columns["made with"] = [
        ", ".join(f"{name} {version}" for name, version in record.versions.items())
        for record in records
    ]
    columns["pool (sha256)"] = [record.pool for record in records]
    return Table.of("How each round was drawn", columns)
