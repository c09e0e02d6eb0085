"""Unbiased estimates of measures that are sums, from the rounds of a study.

    D^ = sum_c a_c m_c + sum_c N_c a_c (r_c - m_c) / E_c                                     (1)

for one round with counts N, expected counts E and a control variate m that was fixed before the
draws that it corrects; rounds are combined with weights that no judgment of theirs moves.

- `judge` looks up the judgments of a sample; `estimate` is (1) for all systems and contrasts.
- `cross_fit` and `control_variates` make m from a prior, without the judgments that it corrects.
- `estimate_normalised` divides by estimated weights instead: less variance for some pools, and a
  small bias.
- `terms` is the sum of (1) on arrays, inside your own ``jit``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
