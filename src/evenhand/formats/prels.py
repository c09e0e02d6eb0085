r"""How judgments were sampled: of which pool, in which strata, with which probability.

Three files of the field hold it, recognised by their shape:

==========================================  =======================================================
a line                                      what it holds
==========================================  =======================================================
``topic docid judgment method prob``        *prels* of TREC's million query and web tracks: the
                                            probability with which a judged pair was drawn. What
                                            was pooled and not drawn is not in the file.
``topic 0 docid stratum rel``               *sample_eval*'s qrels: the stratum of every pooled
                                            pair; a negative rel: pooled and not drawn.
``topic iter docid rel``                    qrels: one stratum a query; a negative rel: pooled and
                                            not drawn, as for trec_eval's infAP.
==========================================  =======================================================

Where strata are given, draws are uniform within each, so that its pairs were drawn with probability

    pi = judged pairs of the stratum / pooled pairs of the stratum.                          (1)

In prels the method says who chose a pair: 1 the sampler; 0 the MTC algorithm, 2 both. MTC chooses
without chance, so that what it chose was certain: pi = 1 there, whatever the file says (as in the
track's own program, statAP_MQ_eval). A probability ``NA`` is unknown: such a judgment counts in no
estimate.

Judgments themselves are a `Qrels` here as elsewhere; `Prels` says what is known beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.errors import FormatError
from evenhand.formats.ids import intern
from evenhand.formats.parsing import Faults, number, quote
from evenhand.formats.qrels import PRELS, SAMPLED, Qrels, merged, read_part
from evenhand.formats.reading import Part
from evenhand.formats.sources import expand

__all__ = ["Prels", "read_prels"]

#: Methods that choose a pair for certain: MTC alone, and MTC beside the sampler.
_CERTAIN = ("0", "2")


@dataclass(frozen=True, slots=True, eq=False)
class Prels:
    """Judgments of a sample with its inclusion probabilities or strata; one row a pair, n of them.

    Rows are the pairs that the files name, sorted by query and document: of prels the judged ones,
    else all that were pooled.

    Attributes
    ----------
    qrels
        The judgments.
    queries, documents
        The distinct ids of all rows, sorted by bytes.
    query, document
        Codes into them; int32 [n].
    stratum
        Number of the pair's stratum, each of one query; -1 where the file has none; int32 [n].
    probability
        With which the pair was drawn, from 0 to 1; NaN where unknown; float64 [n].
    notes
        What was noticed while reading, a sentence each.
    """

    qrels: Qrels
    queries: pa.StringArray
    documents: pa.StringArray
    query: np.ndarray
    document: np.ndarray
    stratum: np.ndarray
    probability: np.ndarray
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.query)

    @property
    def keys(self) -> np.ndarray:
        """A number for each pair, ascending: int64 [n]."""
        return self.query.astype(np.int64) * len(self.documents) + self.document

    @property
    def stratified(self) -> bool:
        """Whether it is known what was pooled and not drawn."""
        return bool((self.stratum >= 0).all())

    def __repr__(self) -> str:
        how = f"{int(self.stratum.max(initial=-1)) + 1:,} strata" if self.stratified else "no pool"
        return f"Prels({len(self):,} pairs, {len(self.qrels):,} judgments, {how})"


def read_prels(*sources: Any) -> Prels:
    """Read judgments of a sample, and how it was drawn.

    Parameters
    ----------
    *sources
        Whatever `read_qrels` takes: prels, sample_eval's five columns, or qrels in which a grade
        below 0 (in a table, an empty one too) is of a pair that was pooled and not drawn.

    Returns
    -------
    Prels
        With the judgments of all sources as its `qrels`.

    Raises
    ------
    FormatError
        A source that is missing or malformed; prels beside another kind; a probability of a judged
        pair that is none; a pair with two probabilities or in two strata.

    Examples
    --------
    >>> prels = read_prels({"q1": {"a": 1, "b": 0, "c": -1, "d": -1}})
    >>> prels, prels.probability.tolist()
    (Prels(4 pairs, 2 judgments, 1 strata), [0.5, 0.5, 0.5, 0.5])
    """
    parts = [read_part(source) for source in expand(sources, "qrels")]
    told = [part.layout is PRELS for part in parts]
    if any(told) and not all(told):
        raise FormatError(
            f"{parts[told.index(False)].place.name} tells no probabilities, "
            f"{parts[told.index(True)].place.name} does",
            hint="evaluate them one at a time",
        )
    notes: list[str] = []
    queries, query_codes = intern([part.texts("query") for part in parts])
    documents, document_codes = intern([part.texts("document") for part in parts])
    query, document = (
        np.concatenate(
            [code[part.codes(role)] for code, part in zip(codes, parts, strict=True)]
        ).astype(np.int32)
        for role, codes in (("query", query_codes), ("document", document_codes))
    )
    # An empty grade compares as not judged.
    judged = np.concatenate([part.numbers("grade") for part in parts]) >= 0
    key = query.astype(np.int64) * len(documents) + document
    _, first, pair = np.unique(key, return_index=True, return_inverse=True)
    if all(told):
        value, what = _probabilities(parts, judged, notes), "probability"
        stratum = np.full(len(first), -1, np.int32)
    else:
        value, what = _strata(parts), "stratum"
        _, stratum = np.unique(np.stack([query, value])[:, first], axis=1, return_inverse=True)
        stratum = stratum.reshape(-1).astype(np.int32)
    twice = ~((value == value[first][pair]) | (np.isnan(value) & np.isnan(value[first][pair])))
    if twice.any():
        _refuse_twice(parts, np.flatnonzero(twice), what)
    if all(told):
        probability = value[first]
    else:
        known = np.bincount(pair, judged, minlength=len(first)) > 0
        probability = _shares(stratum, known, notes)
    return Prels(
        qrels=merged(parts, "unjudged"),
        queries=queries,
        documents=documents,
        query=query[first],
        document=document[first],
        stratum=stratum,
        probability=probability,
        notes=tuple(notes),
    )


def _probabilities(parts: list[Part], judged: np.ndarray, notes: list[str]) -> np.ndarray:
    """The probability of each row, NaN where unknown; float64 [rows]."""
    faults, found, certain, start = Faults(), [], 0, 0
    for part in parts:
        texts = part.texts("prob").to_pylist()
        values = [np.nan if text == "NA" else number(text) for text in texts]
        codes = part.codes("prob")
        wanted = judged[start : start + len(part)]
        start += len(part)
        wrong = np.array([v is None or not (np.isnan(v) or 0 < v <= 1) for v in values], bool)
        for row in np.flatnonzero(wrong[codes] & wanted):
            faults.add(
                "prob",
                f"{part.place.at(int(row))}: prob is not above 0 and at most 1, got "
                f"{quote(texts[codes[row]])}",
                "give the probability with which the pair was drawn; NA where it is unknown",
            )
        value = np.array([np.nan if v is None else v for v in values], np.float64)[codes]
        by_choice = np.isin(part.texts("method").to_pylist(), _CERTAIN)[part.codes("method")]
        certain += int(np.sum(wanted & by_choice & (value != 1)))
        found.append(np.where(by_choice, 1.0, value))
    faults.check()
    probability = np.concatenate(found)
    if certain:
        notes.append(
            f"{certain:,} judged by the methods 0 and 2, which choose without chance: their "
            "probability is taken as 1."
        )
    unknown = int(np.sum(judged & np.isnan(probability)))
    if unknown:
        notes.append(f"{unknown:,} judged with an unknown probability: left out of estimates.")
    return probability


def _strata(parts: list[Part]) -> np.ndarray:
    """A number for the name of each row's stratum; float64 [rows]."""
    for part in parts:
        if part.layout is SAMPLED:
            _check_grades(part)
    _, codes = intern(
        [part.texts("stratum") if "stratum" in part.columns else pa.array([""]) for part in parts]
    )
    return np.concatenate(
        [
            code[part.codes("stratum")] if "stratum" in part.columns else np.repeat(code, len(part))
            for code, part in zip(codes, parts, strict=True)
        ]
    ).astype(np.float64)


def _check_grades(part: Part) -> None:
    """Refuse probabilities where grades should be: some tracks have qrels with one behind."""
    grade = part.numbers("grade")
    broken = np.flatnonzero(grade != np.round(grade))
    if len(broken) and grade.min() >= 0 and grade.max() <= 1:
        raise FormatError(
            f"{part.place.at(int(broken[0]))}: expected a grade in the fifth column "
            f"({' '.join(SAMPLED.fields)}), got {grade[broken[0]]:g}",
            hint="if that is a probability, write prels: topic docid judgment method prob",
        )


def _shares(stratum: np.ndarray, judged: np.ndarray, notes: list[str]) -> np.ndarray:
    """Equation (1) of each pair; float64 [n]."""
    pooled = np.bincount(stratum)
    drawn = np.bincount(stratum, judged, minlength=len(pooled))
    if judged.all():
        notes.append("No pair is marked as pooled and not drawn: the whole pool counts as judged.")
    silent = int(np.sum(drawn == 0))
    if silent:
        notes.append(
            f"{silent:,} of {len(pooled):,} strata have no judged pair: what estimates say of "
            f"their {int(pooled[drawn == 0].sum()):,} pairs is a guess."
        )
    return (drawn / pooled)[stratum]


def _refuse_twice(parts: list[Part], rows: np.ndarray, what: str) -> None:
    ends = np.cumsum([len(part) for part in parts])
    faults = []
    for row in rows[:3]:
        which = int(np.searchsorted(ends, row, side="right"))
        part, own = parts[which], int(row - (ends[which] - len(parts[which])))
        query, document = (
            part.texts(role)[int(part.codes(role)[own])].as_py() for role in ("query", "document")
        )
        faults.append(f"{part.place.at(own)}: {query} {document} has another {what} before")
    raise FormatError.collect(
        faults, hint=f"give each pair one {what}; drop the other line", total=len(rows)
    )
