"""Measures that are no sums of weights times utilities: linearised, then estimated.

A ratio (nDCG, AP, R, Rprec), a swap measure or a rating error is a function of sums. Its gradient
at what is expected gives contrasts to design for, and its gradient at what was estimated gives the
terms of its estimate and variance (the delta method).

- `KINDS` says how each family of measures is designed for and estimated; `kind_of` looks one up.
- `expected_goal` and `expected_deviation` make the goal to design for.
- `estimate_ratio`, `estimate_swaps` and `estimate_deviation` estimate such measures.
- `worst` and `best` complete missing judgments, for bounds.
- `estimate_preferences` estimates swaps from documents that were judged in pairs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
