"""Which pair each assessor sees next: in memory, without a look at more than a few pairs.

Pairs are numbered in the order in which rounds drew them, so that a number means the same after a
restart. A *group* is the pairs of one round and one query. An assessor goes through the groups of
the earliest round first, since only whole rounds are estimated from. A hash of the ids and the
assessor's name orders queries and documents: never a rank, and never the same order for two.

A pair is *complete* once as many assessors as asked have judged it for the round that owns new
judgments of it (`evenhand.studies.ledger`). What an assessor may still be asked is everything
incomplete that he has neither judged, for whichever round, nor skipped.

A pair that is shown is *leased*: others get it only when nothing else is left for them, or when the
lease has run out. A lease is a courtesy; a judgment without one counts like any other.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evenhand.sampling.labels import Arrival

__all__ = ["Asked", "Queues", "Remaining"]

_SHARED = -1  # owner of the judgments that rounds share

#: Seconds for which a shown pair is kept for one assessor.
LEASE = 600.0


class Asked(NamedTuple):
    """What one round asks: its name, `Record.rejudge`, `Record.mark` and its distinct pairs."""

    name: str
    rejudge: bool
    mark: int
    pairs: Sequence[tuple[str, str]]


class Remaining(NamedTuple):
    """Judgments made by one assessor, pairs still open to him; judgments made and asked of all."""

    mine: int
    open: int
    done: int
    asked: int


@dataclass(slots=True, eq=False)
class _Own:
    """One assessor's state: pairs judged, skipped and left, and the current group."""

    said: dict[int, tuple[int, float]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)
    skipped: dict[int, None] = field(default_factory=dict)
    left: list[int] = field(default_factory=list)
    total: int = 0
    groups: list[int] | None = None
    first: int = 0
    group: int = -1
    remaining: OrderedDict[int, None] = field(default_factory=OrderedDict)
    current: int = -1


class Queues:
    """The queues of all assessors of a study, for the rounds that there are.

    Parameters
    ----------
    rounds
        In their order.
    assessors
        Whose queues there are; judgments of others count, too.
    overlap
        How many assessors are to judge each pair.
    clock
        Seconds, growing.
    """

    def __init__(
        self,
        rounds: Sequence[Asked],
        assessors: Sequence[str],
        *,
        overlap: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rounds, self.overlap, self._clock = tuple(rounds), overlap, clock
        self.pairs: list[tuple[str, str]] = []
        self.number: dict[tuple[str, str], int] = {}
        self.lacking = [len(r.pairs) for r in rounds]
        #: Changes whenever a judgment comes in that a wholly judged round may be estimated from.
        self.version = 0
        self._drawn_by: list[list[int]] = []
        self._group: list[int] = []
        self._groups: list[tuple[int, str]] = []
        self._members: list[list[int]] = []
        self._by_owner: dict[tuple[int, int], set[str]] = {}
        self._leases: dict[int, dict[str, float]] = {}
        self._here: dict[int, set[str]] = {}
        self._done = 0
        groups: dict[tuple[int, str], int] = {}
        for at, asked in enumerate(rounds):
            for pair in asked.pairs:
                number = self.number.setdefault(pair, len(self.pairs))
                if number == len(self.pairs):
                    group = groups.setdefault((at, pair[0]), len(self._members))
                    if group == len(self._members):
                        self._members.append([])
                        self._groups.append((at, pair[0]))
                    self.pairs.append(pair)
                    self._drawn_by.append([])
                    self._group.append(group)
                    self._members[group].append(number)
                self._drawn_by[number].append(at)
        sizes = [len(members) for members in self._members]
        self._own = {
            name: _Own(left=list(sizes), total=len(self.pairs)) for name in dict.fromkeys(assessors)
        }

    @property
    def assessors(self) -> tuple[str, ...]:
        """Whose queues there are."""
        return tuple(self._own)

    def _whose(self, at: int) -> int:
        return at if self.rounds[at].rejudge else _SHARED

    def _owner(self, pair: int, seq: float = float("inf")) -> int:
        """Which round a judgment at place `seq` of the history is for: the rule of the ledger."""
        owner = _SHARED
        for at in self._drawn_by[pair]:
            if seq > self.rounds[at].mark:
                owner = self._whose(at)
        return owner

    def _judges(self, pair: int) -> set[str]:
        return self._by_owner.get((pair, self._owner(pair)), set())

    def _complete(self, pair: int) -> bool:
        return len(self._judges(pair)) >= self.overlap

    def _open_to(self, own: _Own, pair: int) -> bool:
        return not (pair in own.said or pair in own.skipped or self._complete(pair))

    def _close(self, own: _Own, pair: int) -> None:
        """Take a pair that was open to an assessor off his queue."""
        own.left[self._group[pair]] -= 1
        own.total -= 1
        own.remaining.pop(pair, None)

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Take in what was stored, in its order of arrival; pairs not drawn are ignored."""
        for row in arrivals:
            pair = self.number.get((row.query, row.document))
            if pair is not None:
                self._take(pair, row)

    def _take(self, pair: int, row: Arrival) -> None:
        own = self._own.get(row.assessor)
        was_open = own is not None and self._open_to(own, pair)
        if row.revision == 0:
            owner = self._owner(pair, row.seq)
            judges = self._by_owner.setdefault((pair, owner), set())
            counts = owner == self._owner(pair)
            if counts and len(judges) < self.overlap:
                self._done += 1
            if not judges:
                for at in self._drawn_by[pair]:
                    self.lacking[at] -= self._whose(at) == owner
            closes = counts and len(judges) == self.overlap - 1
            if closes:
                for name, other in self._own.items():
                    if name != row.assessor and self._open_to(other, pair):
                        self._close(other, pair)
            judges.add(row.assessor)
        if any(not self.lacking[at] for at in self._drawn_by[pair]):
            self.version += 1
        if own is None:
            return
        if was_open:
            self._close(own, pair)
        own.skipped.pop(pair, None)
        if pair not in own.said:
            own.place[pair] = len(own.order)
            own.order.append(pair)
        own.said[pair] = (row.revision, row.grade)
        self._release(row.assessor, pair)

    def skip(self, assessor: str, pair: int) -> None:
        """Ask an assessor no more for a pair, unless he comes back to it."""
        own = self._own.get(assessor)
        if own is None or pair in own.said:
            return
        if self._open_to(own, pair):
            self._close(own, pair)
        own.skipped[pair] = None
        self._release(assessor, pair)

    def _release(self, assessor: str, pair: int) -> None:
        leases = self._leases.get(pair)
        if leases is not None:
            leases.pop(assessor, None)
            if not leases:
                del self._leases[pair]

    def said(self, assessor: str, pair: int) -> tuple[int, float] | None:
        """Revision and grade that an assessor's pair has, None where he has not judged it."""
        return self._own[assessor].said.get(pair)

    def skipped(self, assessor: str) -> list[int]:
        """The pairs that an assessor skipped and that still lack a judgment."""
        own = self._own[assessor]
        return [pair for pair in own.skipped if not self._complete(pair)]

    def is_skipped(self, assessor: str, pair: int) -> bool:
        """Whether an assessor skipped a pair and has not come back to it."""
        return pair in self._own[assessor].skipped

    def may_see(self, assessor: str, pair: int) -> bool:
        """Whether an assessor was shown a pair: those that he judged or skipped, and his next."""
        own = self._own[assessor]
        return pair in own.said or pair in own.skipped or (pair >= 0 and pair == own.current)

    def before(self, assessor: str, pair: int | None = None) -> int | None:
        """The pair that an assessor judged before `pair`, or last of all; None for none."""
        own = self._own[assessor]
        place = len(own.order) if pair is None else own.place.get(pair, len(own.order))
        return own.order[place - 1] if place else None

    def progress(self, assessor: str) -> Remaining:
        """How far one and all are."""
        own = self._own[assessor]
        return Remaining(len(own.said), own.total, self._done, self.overlap * len(self.pairs))

    def made(self) -> dict[str, int]:
        """Pairs judged, by assessor."""
        return {name: len(own.said) for name, own in self._own.items()}

    def stuck(self) -> bool:
        """Whether judgments are lacking that none of the assessors is asked for."""
        return any(self.lacking) and not any(own.total for own in self._own.values())

    def carry(self, before: Queues) -> None:
        """Keep what earlier queues had shown: the numbers of their pairs are the same here."""
        self._leases = {pair: dict(leases) for pair, leases in before._leases.items()}
        for name, own in self._own.items():
            if name in before._own:
                own.current = before._own[name].current

    def next(self, assessor: str) -> int | None:
        """The pair to show to an assessor, the same until he answers; None if nothing is left."""
        own, now = self._own[assessor], self._clock()
        if own.current >= 0 and not self._open_to(own, own.current):
            self._release(assessor, own.current)
            own.current = -1
        if own.current < 0 and own.total:
            own.current = self._find(assessor, own, now)
        if own.current < 0:
            self._move(assessor, own, -1)
            return None
        if own.group != self._group[own.current]:
            self._move(assessor, own, self._group[own.current])
        self._leases.setdefault(own.current, {})[assessor] = now + LEASE
        return own.current

    def _move(self, assessor: str, own: _Own, group: int) -> None:
        if own.group >= 0:
            self._here[own.group].discard(assessor)
        own.group = group
        own.remaining = OrderedDict()
        if group >= 0:
            self._here.setdefault(group, set()).add(assessor)
            pairs = [pair for pair in self._members[group] if self._open_to(own, pair)]
            pairs.sort(key=lambda pair: _hash(assessor, *self.pairs[pair]))
            own.remaining = OrderedDict.fromkeys(pairs)

    def _find(self, assessor: str, own: _Own, now: float) -> int:
        """The next open pair: of the same group, else of another; a leased one at last."""
        for leased in (False, True):
            if own.group >= 0 and (found := self._pick(assessor, own, now, leased)) >= 0:
                return found
            for group in self._by_preference(assessor, own):
                self._move(assessor, own, group)
                if (found := self._pick(assessor, own, now, leased)) >= 0:
                    return found
        return -1

    def _by_preference(self, assessor: str, own: _Own) -> Iterator[int]:
        """Open groups, the earliest round's first, and of a round first those where nobody is."""
        shared: list[int] = []
        at = -1
        for group in self._open_groups(assessor, own):
            if self._groups[group][0] != at:
                yield from shared
                at, shared = self._groups[group][0], []
            if self._here.get(group, set()) - {assessor}:
                shared.append(group)
            else:
                yield group
        yield from shared

    def _open_groups(self, assessor: str, own: _Own) -> Iterator[int]:
        if own.groups is None:
            keys = [(at, _hash(assessor, query)) for at, query in self._groups]
            own.groups = sorted(range(len(keys)), key=keys.__getitem__)
        while own.first < len(own.groups) and not own.left[own.groups[own.first]]:
            own.first += 1  # what is closed stays closed
        for place in range(own.first, len(own.groups)):
            if own.left[own.groups[place]]:
                yield own.groups[place]

    def _pick(self, assessor: str, own: _Own, now: float, leased: bool) -> int:
        for pair in own.remaining:
            leases = self._leases.get(pair, {})
            others = sum(end > now for name, end in leases.items() if name != assessor)
            if leased or len(self._judges(pair)) + others < self.overlap:
                return pair
        return -1


def _hash(*texts: str) -> bytes:
    return hashlib.blake2b(repr(texts).encode("utf-8", "replace"), digest_size=8).digest()
