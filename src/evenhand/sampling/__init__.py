"""Samples: how pairs are drawn, and what a round of a study is.

A sampler gives each cell c a count N_c whose expectation E_c it knows, so that

    sum_c N_c a_c r_c / E_c                                                                  (1)

is exactly unbiased for sum_c a_c u_c wherever E_c > 0 for all a_c u_c != 0.

- `draw` takes a sample of a design; `SAMPLERS` holds the samplers by name.
- `pivotal` and `water_fill` are the algorithms below, on arrays.
- `Round` is a judged sample with what its design depended on, `Control` a control variate for it,
  and `stages` says which rounds may be weighted together.
- `Labels` are the judgments that a model learns from.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
