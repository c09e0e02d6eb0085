"""Certificates: the theory, checked by automatic differentiation on your own data.

===============  =====================================================================
module           holds
===============  =====================================================================
`baselines`      the cost of a baseline as a function, its gradient, its lower bound
`cases`          a pool, random trials on it, a certificate and its tolerance
`checks`         one check for each claim of the theory
`certification`  `certify`: all claims on a target, on runs, or on a study
===============  =====================================================================
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
