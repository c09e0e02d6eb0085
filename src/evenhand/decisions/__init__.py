"""Decisions: which system is best, when to stop, how many more judgments, which next.

- `ranking` gives rank intervals and chances to be the best.
- `stopped` applies a stopping rule at a look; `plan` and `forecast` say how many judgments are
  still needed.
- `steered` is the design of a next round that a posterior leads to; `focused` puts it where the
  best system, or the order, is still open.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
