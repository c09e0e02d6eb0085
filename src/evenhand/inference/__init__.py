"""The posterior of a NumPyro model, as draws of its parameters on the whole real line.

`laplace` finds the mode of the model's own log density and takes the normal approximation there;
`svi` fits a normal by stochastic gradients; `nuts` is the reference. What they find are draws, over
which `moments` averages the model's predictions.

Judgments come in blocks of a fixed length, so that memory does not grow with their number, and
shapes are filled up, so that rounds and folds of about one size share a compilation. All are
deterministic given the seed.

=============  =====================================================================
room           holds
=============  =====================================================================
`energies`     the log density as a function of flat parameters, and its derivatives
`climbs`       the way down to the mode
`fits`         `laplace`, `svi` and `nuts`
`predictions`  moments of cells, and judgments simulated
=============  =====================================================================

References
----------
Phan, Pradhan and Jankowiak 2019, *Composable effects for flexible and accelerated probabilistic
programming in NumPyro*; Tierney and Kadane 1986 for `laplace`; Hoffman and Gelman 2014 for `nuts`.
"""

from __future__ import annotations

from evenhand.inference.energies import energy, parameters
from evenhand.inference.fits import DRAWS, Fitted, laplace, nuts, svi
from evenhand.inference.predictions import judgments, moments

__all__ = [
    "DRAWS",
    "Fitted",
    "energy",
    "judgments",
    "laplace",
    "moments",
    "nuts",
    "parameters",
    "svi",
]
