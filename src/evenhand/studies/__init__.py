"""A study on disk: the parts of `evenhand.study.Study`.

==================  ====================================================================
module              holds
==================  ====================================================================
`study_files`       study.json, queries and systems files, the numbered pool
`round_files`       the folder of each round
`judgments`         `JudgmentStore`: append-only SQLite, safe under kill -9 and two writers
`ledger`            which judgment counts for which round
`snapshots`         an immutable view of a study, all that a design or an estimate may see
`proposing`         the design of the next round
`drawing`           draws rounds and writes them; `receipts` are their reports
`estimating`        the estimator that an option names
`exports`, `tasks`  files for other programs and for annotation tools
==================  ====================================================================
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
