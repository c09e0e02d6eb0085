"""The source paper, reproduced: its data set, its deterministic pools, its tables and figures.

Schnabel, Swaminathan, Frazier and Joachims, *Unbiased Comparative Evaluation of Ranking Functions*,
ICTIR 2016, section 7. `reproduce_synth` and `reproduce_trec` do all of it, with each number that
the paper prints beside its exact expectation and ours::

    from evenhand.paper import reproduce_synth

    found = reproduce_synth(fast=True)
    print(found)                    # Tables 2 to 7, Figures 1 to 3
    found.figures("figures")        # as PNG and PDF

==================  ====================================================================
module              holds
==================  ====================================================================
`synthetic`         the data set SYNTH, OPT, REV-m and SHIFT-m, expectations over data sets
`trec8`             real runs with complete judgments
`dense_cells`       weights, approximate and true utilities by cell; designs and variances
`pooling`           ShallowPool and DeepPool
`replication`       replicated draws in one compiled call
`one_system`        one system alone: Tables 2 to 4
`printed`           the paper's numbers, and footnotes to them
`reproduction`      rows, curves, tables and figures of a reproduction
`many_systems`      Tables 5 to 7, Figures 1 to 3
`reproduce`         the entry points
==================  ====================================================================
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
