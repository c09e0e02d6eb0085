r"""The variance that predictions lead to expect, before it shows in the draws.

Where residuals are of predictions m_c, of every cell it is known how likely it was to be drawn and,
up to a scale, how large its residual is likely to be: p_c (`likely`). All draws together give the
scale. So the variance of a contrast to expect is, with f_2 of `evenhand.intervals.pool_moments`,

    M = phi f_2,        phi = sum_i k_i z_i^2 / sum_i k_i E[z_i^2]                            (1)
    nu_M = 2 (sum_i k_i z_i^2)^2 / sum_i k_i^2 z_i^4                                          (2)

over the draws i, where z_i is the factor of a_c in the term of a draw, and E[z_i^2] its mean by p.
So that more draws than its own give the scale of a contrast, k is sum_j w_j^2 for values of
systems, and sum_j (w_j - mean)^2 for contrasts whose entries sum to 0. By (2) as many degrees of
freedom are left as for a variance of as many events: phi varies by the sum of fourth powers.
"""

from __future__ import annotations

import numpy as np

__all__ = ["foreseen", "likely", "scale_sums"]

#: Share of the ranks' guess in what is `likely` beside a prediction.
_RANKS = 0.2


def likely(mean: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """What is likely of the square of a residual, p_c of equation (1), in any unit.

    The variance of a count goes as its mean, and so do those of a rating or of a relevance that is
    rare. A share of the ranks' guess keeps cells above 0 where a model is sure.

    Parameters
    ----------
    mean
        m_c, shape (cells,).
    ranks
        What ranks say of the square of the utility, in any unit; shape (cells,).
    """
    above = np.maximum(mean, 0.0)
    total = above.sum()
    if total == 0:
        return ranks
    return (1.0 - _RANKS) * above + _RANKS * (total / ranks.sum()) * ranks


def scale_sums(weights: np.ndarray, seen: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Sums of one round's draws for equations (1) and (2), to be added up over rounds.

    Parameters
    ----------
    weights
        w at the draws, shape (n, systems).
    seen, expected
        z_i^2 and E[z_i^2], shape (n,).

    Returns
    -------
    numpy.ndarray
        Of k z^2, of k E[z^2] and of k^2 z^4, for values of systems and for comparisons: shape
        (3, 2).
    """
    away = weights - weights.mean(1, keepdims=True)
    k = np.stack([(weights**2).sum(1), (away**2).sum(1)], axis=1)
    square = k * seen[:, None]
    return np.stack([square.sum(0), (k * expected[:, None]).sum(0), (square**2).sum(0)])


def foreseen(
    sums: np.ndarray, matrix: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """M and nu_M of each contrast; shapes (contrasts,).

    Parameters
    ----------
    sums
        Of `scale_sums`, over all rounds.
    matrix
        C, shape (contrasts, systems).
    second
        f_2 of each contrast, shape (contrasts,).
    """
    seen, expected, square = sums
    phi = seen / np.where(expected > 0, expected, 1.0)
    degrees = 2.0 * seen**2 / np.where(square > 0, square, 1.0)
    compares = (np.abs(matrix.sum(1)) <= 1e-12 * np.abs(matrix).sum(1)).astype(int)
    return phi[compares] * second, degrees[compares]
