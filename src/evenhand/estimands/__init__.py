"""What is estimated: contrasts of systems, as weighted sums over a pool.

A *cell* c is a query-document pair, and the *pool* is the set of cells that any system returns.
System j gives cell c the weight w_jc, by the rank at which it returns it, over the number of
queries; its value is

    U_j = sum_c w_jc u_c                                                                     (1)

with u_c the expected utility of the cell. A *goal* is a matrix C of contrasts,

    D = C U = sum_c a_c u_c,    a_c = C w_c                                                  (2)

- `pool` numbers the pairs of some runs; `target` gives each system's weights for a measure.
- `rank`, `baseline`, `pair`, `absolute`, `best`, `order` and `contrast` make goals.
- `evaluate` gives the values themselves, where every pair that counts is judged.
- `norm` is ||a_c||, which designs need: 0 for a pair that every system returns alike.

Source: Schnabel et al. 2016, sections 2 and 4. Weights are not normalised, so that estimates come
in the measure's own unit.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
