"""Priors: NumPyro models that learn from judgments where relevance lies.

A prior is fitted to labels and gives the posterior predictive mean m_c and variance of every cell.
These enter the next design and the control variate of an estimate. A wrong prior moves the variance
of an estimate, never its expectation.

- `feature_table` makes features of pairs from ranks, votes and signals such as an LLM's labels.
- `NumPyroPrior` fits a model by Laplace approximation, SVI or NUTS; `Prior` and `Posterior` are the
  protocols to fulfil with a model of your own.
- `calibration`, `to_arviz` and `doubts` check a fit.

References
----------
Phan, Pradhan and Jankowiak 2019, *Composable effects for flexible and accelerated probabilistic
programming in NumPyro*; Tierney and Kadane 1986 for the Laplace approximation; Hoffman and Gelman
2014 for NUTS.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
