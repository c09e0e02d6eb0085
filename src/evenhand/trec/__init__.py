"""Runs, relevance judgments (qrels) and query lists in.

The first room: everything that was a text, a table or a mapping becomes integer codes and float64
columns here, once, and every fault is told with its file, line and field.

- `read_runs` reads what systems returned into one `Runs` table of all systems.
- `read_qrels` reads what assessors said into one `Qrels` table.
- `read_prels` reads judgments of a sample with how it was drawn, as TREC's own samples tell it.
- `read_preferences` reads which of two documents assessors prefer.
- `read_queries` reads the ids of the queries to be studied.

A document's place in a ranking is decided here and nowhere else: score descending as float64, ties
by document id descending (bytes), which is the order of trec_eval.
"""

from __future__ import annotations

from evenhand.trec.preferences import Preferences, read_preferences
from evenhand.trec.prels import Prels, read_prels
from evenhand.trec.qrels import Qrels, read_qrels
from evenhand.trec.queries import read_queries
from evenhand.trec.runs import Runs, read_runs

__all__ = [
    "Preferences",
    "Prels",
    "Qrels",
    "Runs",
    "read_preferences",
    "read_prels",
    "read_qrels",
    "read_queries",
    "read_runs",
]
