"""Which queries to open: the cost is kept, and no other way is better."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.decisions.query_costs import open_queries
from evenhand.errors import EvenhandError


def test_opening_queries_costs_what_it_may_and_no_other_way_is_better():
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(12), 20)
    size = rng.gamma(0.4, size=240) * np.repeat(rng.gamma(1.0, size=12), 20)
    size[query == 5] = 0.0
    within = np.bincount(query, np.sqrt(size))
    own = np.bincount(query, size)

    def cost(chance, judged, query_cost, judgment_cost):
        return (chance * (query_cost + judgment_cost * judged)).sum()

    def variance(chance, judged):
        on = own > 0
        return ((1 / chance[on] - 1) * own[on] + within[on] ** 2 / (chance[on] * judged[on])).sum()

    for budget, query_cost, judgment_cost in (
        (40.0, 5.0, 1.0),
        (500.0, 5.0, 1.0),
        (60.0, 1.0, 2.0),
    ):
        found = open_queries(
            size,
            query,
            12,
            budget=budget,
            query_cost=query_cost,
            judgment_cost=judgment_cost,
        )
        chance, judged = found.chance, found.judgments
        assert cost(chance, judged, query_cost, judgment_cost) == pytest.approx(budget, rel=1e-6)
        assert found.variance == pytest.approx(variance(chance, judged), rel=1e-12)
        assert (chance <= 1).all()
        assert chance[5] == 0
        for _ in range(200):
            other = np.clip(chance * rng.lognormal(0, 0.1, 12), 0, 1)
            more = judged * rng.lognormal(0, 0.1, 12)
            left = budget - query_cost * other.sum()
            more *= left / (judgment_cost * (other * more).sum())
            if left > 0:
                assert variance(other, more) >= found.variance * (1 - 1e-9)
    with pytest.raises(EvenhandError, match="must be above 0"):
        open_queries(size, query, 12, budget=0.0, query_cost=1.0)
