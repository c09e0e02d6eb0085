"""Confidence intervals from the moments of an estimate's terms.

- `INTERVALS` holds the intervals by name: ``cubic`` (the default without a model), ``moderated``
  (with one), ``student``, ``normal`` and ``betting``.
- `Comparisons` adjusts intervals and p-values for all contrasts together.
- `sequence` is a confidence sequence, valid after every single draw.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
