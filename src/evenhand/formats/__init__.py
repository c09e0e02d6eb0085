"""Files of the field, in and out of arrays: runs, qrels, query lists, texts.

Everything that was a text, a table or a mapping becomes integer codes and float64 columns here,
once. A fault is reported with its file, line and field.

- `read_runs` reads what systems returned into one `Runs` table of all systems.
- `read_qrels` reads judgments into one `Qrels` table.
- `read_prels` reads judgments of a sample with how it was drawn, as TREC's own samples have it.
- `read_preferences` reads which of two documents assessors prefer.
- `read_queries` reads the ids of the queries to be studied.
- `Texts` finds the texts of documents and topics by id.

The order of a ranking is decided in `ids` and nowhere else: score descending as float64, ties by
document id descending (bytes), which is the order of trec_eval.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
