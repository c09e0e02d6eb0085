r"""Which queries to open, where opening a query costs something before its first judgment.

An assessor has to understand a query before he can judge a pair of it. A query x is opened with
probability phi_x, and n_x pairs of one that is opened are judged, drawn in proportion to sqrt(g_c),
where a cell that is judged with probability pi adds g_c (1 / pi - 1) to the variance
(`evenhand.decisions.planning.Forecast`). `open_queries` finds phi and n for the least variance at a
cost.

References
----------
Cochran 1977, *Sampling Techniques*, chapters 10 and 11: two stages, and the best size of each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenhand.errors import EvenhandError

__all__ = ["Opening", "open_queries"]


class Opening(NamedTuple):
    """Which queries to open, and how far, where opening a query costs something.

    Attributes
    ----------
    chance
        phi_x, the probability of opening each query; shape (queries,).
    judgments
        n_x, the judgments of a query that is opened; shape (queries,).
    variance
        Summed variance that is then to be expected.
    """

    chance: np.ndarray
    judgments: np.ndarray
    variance: float


def open_queries(
    size: np.ndarray,
    query: np.ndarray,
    n_queries: int,
    *,
    budget: float,
    query_cost: float,
    judgment_cost: float = 1.0,
) -> Opening:
    r"""Open some queries, and judge some pairs of each, for the least variance at a cost.

    With W_x = (sum_c sqrt(g_c))^2 and D_x^2 = sum_c g_c over the cells of query x,

    .. math:: \min_{\varphi, n} \sum_x \Big(\frac{1}{\varphi_x} - 1\Big) D_x^2
              + \frac{W_x}{\varphi_x n_x}
              \quad\text{at}\quad \sum_x \varphi_x (C + c\, n_x) = \text{budget}

    is solved by n_x = sqrt(C / c) sqrt(W_x) / D_x and phi_x = D_x / sqrt(lambda C), and where that
    exceeds 1 by phi_x = 1 and n_x = sqrt(W_x / (lambda c)).

    Parameters
    ----------
    size
        g_c, as `evenhand.decisions.planning.Forecast` has it; shape (cells,).
    query
        Code of each cell's query.
    n_queries
        Number of queries.
    budget, query_cost, judgment_cost
        In one currency.

    Raises
    ------
    EvenhandError
        If a cost or the budget is not positive.
    """
    if min(budget, query_cost, judgment_cost) <= 0:
        raise EvenhandError("budget, cost of a query and cost of a judgment must be above 0")
    within = np.bincount(query, np.sqrt(size), minlength=n_queries)
    own = np.sqrt(np.bincount(query, size, minlength=n_queries))
    matters = own > 0

    def opened(price: float) -> tuple[np.ndarray, np.ndarray]:
        chance = np.where(matters, np.minimum(own / np.sqrt(price * query_cost), 1.0), 0.0)
        judged = np.where(
            chance < 1,
            np.sqrt(query_cost / judgment_cost) * within / np.where(matters, own, 1.0),
            within / np.sqrt(price * judgment_cost),
        )
        return chance, judged

    low, high = 1e-30, 1e30  # the price falls as the budget grows
    for _ in range(200):
        price = float(np.sqrt(low * high))
        chance, judged = opened(price)
        spent = (chance * (query_cost + judgment_cost * judged)).sum()
        low, high = (price, high) if spent > budget else (low, price)
    chance, judged = opened(high)
    one = np.where(matters, chance, 1.0)
    n = np.where(matters, judged, 1.0)
    variance = ((1 / one - 1) * own**2 + np.where(matters, within**2 / (one * n), 0.0)).sum()
    return Opening(chance, judged, float(variance))
