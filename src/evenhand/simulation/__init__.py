"""Studies replayed against complete judgments, to compare designs before one is paid for.

- `simulate` replicates studies of a goal and reports bias, error and coverage.
- `study_that_learns` runs one study in memory whose later rounds learn.
- `make_collection` writes a synthetic collection to try them on.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
