"""The source paper, reproduced: its data set, its deterministic pools, its tables and figures.

Schnabel, Swaminathan, Frazier and Joachims, *Unbiased Comparative Evaluation of Ranking Functions*,
ICTIR 2016, section 7. `reproduce_synth` and `reproduce_trec` do all of it, with each number that
the paper prints beside its exact expectation and ours::

    from evenhand.paper import reproduce_synth

    found = reproduce_synth(fast=True)
    print(found)                    # Tables 2 to 7, Figures 1 to 3
    found.figures("figures")        # as PNG and PDF

==================  ====================================================================
room                holds
==================  ====================================================================
`synthetic`         the data set SYNTH, OPT, REV-m and SHIFT-m, expectations over data sets
`trec`              real runs with complete judgments
`cells`             weights, approximate and true utilities by cell; designs and variances
`pooling`           ShallowPool and DeepPool
`replication`       replicated draws in one compiled call
`singles`           one system alone
`printed`           the paper's numbers, and footnotes to them
`rows`              a number, and a line of a figure
`reproduction`      rows, curves and tables of a reproduction
`tables`            Tables 2 to 4
`comparisons`       Tables 5 to 7, Figures 1 to 3
`figures`           the figures, drawn
`reproduce`         the entry points
==================  ====================================================================
"""

from __future__ import annotations

from evenhand.paper.cells import Cells, Question, questions
from evenhand.paper.pooling import deep_pool, deep_pool_sd, shallow_pool
from evenhand.paper.reproduce import reproduce_synth, reproduce_trec
from evenhand.paper.reproduction import Reproduction
from evenhand.paper.rows import Curve, Row
from evenhand.paper.synthetic import Synth, opt, rev, shift, synth

__all__ = [
    "Cells",
    "Curve",
    "Question",
    "Reproduction",
    "Row",
    "Synth",
    "deep_pool",
    "deep_pool_sd",
    "opt",
    "questions",
    "reproduce_synth",
    "reproduce_trec",
    "rev",
    "shallow_pool",
    "shift",
    "synth",
]
