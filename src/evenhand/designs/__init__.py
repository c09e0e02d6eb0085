"""Designs: which pairs to judge, with which probability.

The proposal with the least sum of variances over the contrasts of a goal is

    q_c  proportional to  sqrt(E[r_c^2]) ||a_c||                                             (1)

with r_c the judged utility and a_c the contrasts at cell c (Schnabel et al. 2016, section 5, with
the second moment in place of the squared mean).

- `rank_utility`, `score_utility`, `external_utility`, `curve_utility`, `known_utility` and `flat`
  say what is expected of r_c; they change the variance, never the expectation of an estimate.
- `design` makes a `Design` for a goal; `proposal` is (1) on arrays, inside your own ``jit``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
