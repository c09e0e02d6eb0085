"""Certificates: the theory, checked by automatic differentiation on the user's own data.

=============  =====================================================================
room           holds
=============  =====================================================================
`baselines`    the cost of a baseline as a function, its gradient, its lower bound
`cases`        a pool, random trials on it, a certificate and its tolerance
`proofs`       one check for each claim of the theory
`verdicts`     `certify`: all claims on a target, on runs, or on a study
=============  =====================================================================
"""

from __future__ import annotations

from evenhand.certificates.cases import Certificate
from evenhand.certificates.verdicts import Certificates, certify, certify_files, certify_runs

__all__ = ["Certificate", "Certificates", "certify", "certify_files", "certify_runs"]
