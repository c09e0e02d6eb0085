"""evenhand: which ranking system is better, from few judgments, without bias.

The way through the library::

    runs   = eh.read_runs("runs/*.gz")                      what the systems returned
    pool   = eh.pool(runs, depth=100)                       their query-document pairs, numbered
    target = eh.target(pool, "DCG@100")                     each system's weights over them
    goal   = eh.rank(target)                                contrasts that answer the question
    design = eh.design(goal, eh.rank_utility(pool))         which pairs, with which probability
    sample = eh.draw(jax.random.key(0), design, 500)        500 distinct pairs
    judged = eh.judge(target, sample, eh.read_qrels(file))  what assessors say of them
    answer = eh.estimate(goal, [judged])                    estimates with intervals
    prior  = eh.NumPyroPrior(eh.feature_table(pool))        a model that learns where relevance lies
    design, _ = eh.steered(goal, prior.fit([labels])[0])    which pairs next

`Study` does the same on disk, resumable at any point; `simulate` replicates it against complete
judgments. The functions on arrays below these (`evenhand.designs.proposal`,
`evenhand.sampling.pivotal`, ...) work inside your own ``jit``, ``vmap`` and ``grad``.

Names are loaded when they are first used, so that ``evenhand --help`` need not wait for JAX.

Packages of the method, each importing only from those before it: `formats` reads, `measures` values
a ranked list, `estimands` says what is asked, `designs` and `sampling` choose and draw pairs,
`priors` learn, `intervals`, `estimation` and `nonlinear` estimate, `decisions` concludes. Above
them are its uses: `simulation`, `studies`, `engines`, `reports`, `paper`, `certificates`,
`serving`, `cli`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
