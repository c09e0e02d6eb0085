"""Measures: what a ranked list is worth, given the grades of documents.

The value of a list y of query x is a sum over its parts,

    U(x, y) = sum over parts of  weight(part in y) * utility(part),                          (1)

or such a sum divided by a norm of the query (Schnabel et al. 2016, equation 1 and Table 1). With r
the rank of a document, g its grade, rel(g) = 1 if g >= rel else 0, R the number of relevant
documents among all judged for the query, and n the length of the list (within the cutoff, where one
is given):

=====================  ============================  =======================  ==================
measure                weight                        utility of a part        unit, range
=====================  ============================  =======================  ==================
*linear*               by rank alone                 of a document, by grade
P@k                    1/k for r <= k                rel(g)                   share of k, 0..1
DCG, DCG@k             1/log_b(1 + r) for r <= k     g, 2^g - 1, or a map     gain, 0..
Gain@k                 1/k for r <= k                g, 2^g - 1, or a map     gain a rank, 0..
RBP, RBP@k             (1 - p) p^(r - 1)             rel(g)                   share, 0..1
*linear*               by rank and length            of the system's own
MAE, MAE@k             1/n                           document: |score - g|    grades, 0..
MSE, MSE@k             1/n                           document:                squared grades,
                                                     (score - g)^2            0..
*linear in pairs*      by two ranks and length       of a pair of documents
Swaps, Swaps@k         1/(n (n - 1)/2)               pair (i before j):       share of pairs,
                                                     1 if g_i < g_j else 0    0..1
wSwaps, wSwaps@k       1/(n (n - 1)/2 r_i r_j)       as Swaps                 share, 0..1/2
*ratios*               a sum over                    norm
nDCG, nDCG@k           DCG of the list               its largest value        share, ..1
AP, AP@k               pairs (j not below i):        R                        share, 0..1
                       rel(g_i) rel(g_j) / r_i
R@k                    documents, r <= k: rel(g)     R                        share, 0..1
Rprec                  documents, r <= R: rel(g)     R                        share, 0..1
*neither*
P(judged_only=True)@k  precision of the list without what nobody judged       share of k, 0..1
Judged, Judged@k       share of the list that somebody judged                 share, 0..1
*estimates*            of AP, nDCG, P, R and Rprec from samples of TREC's own  as theirs
infAP, xinfAP, infNDCG (`inferred`); statAP, statP@k, statR@k, statRprec (`stat_ap`)
=====================  ============================  =======================  ==================

What is *linear* by rank and grade alone is estimated from sampled pairs without any bias (`Linear`,
`linear`). So are MAE and MSE, whose utility depends on the system
(`evenhand.nonlinear.rating_errors`), and Swaps and wSwaps, which are linear in pairs of documents
(`evenhand.nonlinear.swaps`); a *ratio* is with a small bias, since its norm must be estimated as
well (`evenhand.nonlinear.ratios`). The *estimates* are what TREC has made of judgments that its own
sampling chose: they ask how that was done (`evenhand.formats.read_prels`), and are for reading its
files and comparing with it. Samples of this library have estimates of their own, with intervals.
Reciprocal rank, ERR, bpref and success are none of all this, and refused.

Conventions are trec_eval's. Precision divides by k however short the list is. The ideal of nDCG and
R come from the judgments, not from what was returned; AP@k divides by R; a query without a relevant
document is worth 0. A document that nobody judged is worth 0: utility 0 where a measure sums
utilities, grade 0 in errors and swaps. A list that is not there is worth 0 too; mind that for
errors and swaps, lower is better.

A measure is an immutable value: it prints as users write it (the ``ir_measures`` spelling), and
`measure` reads that back, as well as the spellings of trec_eval (``P_10``, ``ndcg_cut_10``) and
ranx (``precision@10``, ``ndcg@10``).

Modules: `base` (what a measure must answer), `lists` (ranked lists and judgments as arrays),
`validation`; `linear`, `rating_errors`, `swaps`, `ratios`, `judged`, `inferred`, `stat_ap` (the
measures, by what they are made of); `grammar`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
