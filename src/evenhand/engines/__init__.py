"""Designs and draws where the runs are: in a dataframe engine, locally or on a cluster.

What outgrows the memory of one machine stays in the engine that holds it: DuckDB, PySpark or
Polars, by lazy expressions of narwhals. It computes weights, norms, q and the drawn sample, and
only what was drawn comes back, with its counts, expected counts, q and every system's weight on it:

    excerpt = engines.excerpt(jax.random.key(0), entries, "DCG@20", 500)
    answer = eh.estimate(excerpt.goal, [excerpt.judge(eh.read_qrels("qrels.txt"))])

The numbers are those of `evenhand.design` and `evenhand.draw` on a pool in memory, to rounding.

Modules: `workspace` (what each engine does its own way), `ranked_entries` (checked, ranked,
numbered), `cells` (norms and q), `line` (cells laid out for drawing), `excerpts` (what comes back).

It takes the extra ``evenhand[engines]``, or the DuckDB or PySpark that is there already.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
