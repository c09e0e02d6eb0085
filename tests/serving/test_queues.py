"""Which pair each assessor sees next."""

from __future__ import annotations

import itertools
import random
import time

import numpy as np
import pytest

from evenhand.sampling.labels import Arrival
from evenhand.serving.queues import LEASE, Asked, Queues
from evenhand.studies import round_files
from evenhand.study import Study

PAIRS = [(f"q{q}", f"d{d}") for q in range(4) for d in range(6)]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def queues(*assessors, pairs=PAIRS, clock=time.monotonic, overlap=1) -> Queues:
    return Queues([Asked("round-001", False, 0, pairs)], assessors, overlap=overlap, clock=clock)


def judge(to: Queues, assessor: str, pair: int, grade: float = 1.0, revision: int = 0) -> None:
    seq = next(judge.seq)
    to.take([Arrival(seq, *to.pairs[pair], assessor, revision, grade, "")])


judge.seq = itertools.count(1)


def finish(to: Queues, assessor: str) -> list[tuple[str, str]]:
    """What one assessor gets until nothing is left."""
    seen = []
    while (pair := to.next(assessor)) is not None:
        seen.append(to.pairs[pair])
        judge(to, assessor, pair)
    return seen


def test_the_same_pair_is_shown_until_it_is_answered():
    q = queues("ann")
    first = q.next("ann")
    assert [q.next("ann") for _ in range(5)] == [first] * 5
    judge(q, "ann", first)
    assert q.next("ann") != first


def test_every_pair_once_and_a_querys_documents_together():
    seen = finish(queues("ann"), "ann")
    assert sorted(seen) == sorted(PAIRS)
    assert len([query for query, _ in itertools.groupby(seen, lambda pair: pair[0])]) == 4


def test_order_is_neither_that_of_the_draw_nor_the_same_for_two():
    orders = [finish(queues(name), name) for name in ("ann", "bob", "cem")]
    assert orders[0] == finish(queues("ann"), "ann")  # after a restart as before
    assert len({tuple(order) for order in [*orders, PAIRS, PAIRS[::-1]]}) == 5


def test_the_place_in_the_draw_says_nothing_of_the_place_in_the_queue():
    # Of 200 queries with 10 documents each the correlation of both places has standard error
    # 1 / sqrt(200 x 9); five of them are passed by chance once in 1.7 million, and a correlation of
    # .24 is found with certainty as good.
    pairs = [(f"q{q}", f"d{d}") for q in range(200) for d in range(10)]
    by_query: dict[str, list[int]] = {}
    for query, document in finish(queues("ann", pairs=pairs), "ann"):
        by_query.setdefault(query, []).append(int(document[1:]))
    places = np.array(list(by_query.values()), float)
    correlation = np.corrcoef(places.ravel(), np.tile(np.arange(10.0), len(places)))[0, 1]
    assert abs(correlation) < 5 / np.sqrt(200 * 9)


def test_two_work_apart_and_share_all(clock):
    q = queues("ann", "bob", clock=clock)
    seen = {"ann": [], "bob": []}
    for name in itertools.cycle(seen):
        pair = q.next(name)
        if pair is None:
            break
        seen[name].append(q.pairs[pair])
        judge(q, name, pair)
    assert sorted(seen["ann"] + seen["bob"]) == sorted(PAIRS)
    first = {name: {query for query, _ in pairs[:6]} for name, pairs in seen.items()}
    assert not first["ann"] & first["bob"]


def test_a_leased_pair_goes_to_others_last_or_after_the_lease(clock):
    q = queues("ann", "bob", pairs=PAIRS[:3], clock=clock)
    held = q.next("ann")
    others = []
    for _ in range(2):
        others.append(q.next("bob"))
        judge(q, "bob", others[-1])
    assert held not in others
    assert q.next("bob") == held  # all that is left


def test_a_lease_runs_out(clock):
    q = queues("ann", "bob", pairs=PAIRS[:4], clock=clock)
    held, places = q.next("ann"), []
    clock.now += LEASE + 1
    while (pair := q.next("bob")) is not None:
        places.append(pair)
        judge(q, "bob", pair)
    # No lease: the place of the pair is that of bob's own order.
    alone = queues("bob", pairs=PAIRS[:4])
    assert places == [alone.number[pair] for pair in finish(alone, "bob")]
    assert places[-1] != held


def test_overlap_asks_each_pair_of_as_many():
    q = queues("ann", "bob", "cem", overlap=2)
    said = {name: finish(q, name) for name in ("ann", "bob", "cem")}
    counts = [sum(pair in pairs for pairs in said.values()) for pair in PAIRS]
    assert counts == [2] * len(PAIRS)
    assert q.progress("ann")[2:] == (48, 48)
    assert q.lacking == [0]


def test_a_skipped_pair_is_for_others_and_can_be_come_back_to():
    q = queues("ann", "bob", pairs=PAIRS[:2])
    pair = q.next("ann")
    q.skip("ann", pair)
    assert q.is_skipped("ann", pair)
    other = q.next("ann")
    assert other != pair
    judge(q, "ann", other)
    assert q.next("ann") is None
    assert q.skipped("ann") == [pair]
    assert q.next("bob") == pair
    judge(q, "ann", pair)
    assert q.skipped("ann") == []
    assert q.next("bob") is None


def test_the_last_ones_are_gone_back_to_in_order():
    q = queues("ann", pairs=PAIRS[:4])
    order = []
    while (pair := q.next("ann")) is not None:
        order.append(pair)
        judge(q, "ann", pair)
    back = [q.before("ann")]
    while (earlier := q.before("ann", back[-1])) is not None:
        back.append(earlier)
    assert back == order[::-1]
    judge(q, "ann", order[1], 2.0, revision=1)
    assert q.said("ann", order[1]) == (1, 2.0)
    assert q.before("ann") == order[-1]  # a revision is no later judgment


def test_nobody_sees_what_he_was_not_shown():
    q = queues("ann", "bob")
    mine = q.next("ann")
    assert q.may_see("ann", mine)
    assert [q.may_see("bob", pair) for pair in (mine, -1, 10**9)] == [False] * 3


def test_judgments_of_strangers_count():
    q = queues("ann", pairs=PAIRS[:2])
    judge(q, "from a file", 0)
    assert q.progress("ann") == (0, 1, 1, 2)
    assert q.next("ann") == 1


def test_the_earliest_round_first():
    rounds = [Asked("1", False, 0, PAIRS[:6]), Asked("2", False, 0, PAIRS[3:])]
    q = Queues(rounds, ["ann"])
    seen = finish(q, "ann")
    assert set(seen[:6]) == set(PAIRS[:6])
    assert len(seen) == len(set(seen)) == len(PAIRS)


RUNS = {
    name: {f"q{q}": {f"d{(step * i + q) % 9}": 9.0 - i for i in range(5)} for q in range(3)}
    for name, step in (("a", 1), ("b", 2), ("c", 5))
}


def test_what_is_lacking_is_what_the_ledger_says(tmp_path):
    """Rounds that share and rounds judged again, judgments between them: as the estimates see."""
    study = Study.create(tmp_path / "s", RUNS, measure="DCG@5")
    rng = random.Random(3)
    names = ["ann", "bob", "cem"]
    for step in range(5):
        study.draw(6, seed=step, rejudge=step in (2, 4), kind="naive")
        study = Study.open(study.folder)
        asked = [
            Asked(name, *round_files.asked(study.folder, name))
            for name in round_files.names(study.folder)
        ]
        live = Queues(asked, names)
        live.take(study.store.arrivals())
        for _ in range(7):
            name = rng.choice(names)
            pair = live.next(name)
            if pair is None:
                continue
            query, document = live.pairs[pair]
            study.store.add([query], [document], [rng.randint(0, 2)], name)
            live.take(study.store.arrivals(len(study.store.history()) - 1))
            missing = study._snapshot().ledger.missing()
            assert live.lacking == [len(cells) for cells in missing]
    assert any(live.lacking)  # not all of it trivially done


def test_a_hundred_thousand_pairs_cost_no_more_than_ten():
    """No request looks at all pairs: times of a judgment at both sizes are alike."""
    took = {}
    for n in (1_000, 100_000):
        pairs = [(f"q{i % (n // 100)}", f"d{i}") for i in range(n)]
        names = [f"a{i}" for i in range(20)]
        q = queues(*names, pairs=pairs)
        for name in names:
            q.next(name)
        start = time.perf_counter()
        for i in range(600):
            name = names[i % 20]
            judge(q, name, q.next(name))
            q.progress(name)
        took[n] = (time.perf_counter() - start) / 600
    assert took[100_000] < 20 * took[1_000] + 1e-3, took
