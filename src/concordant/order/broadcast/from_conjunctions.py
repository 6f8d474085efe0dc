"""Total order from conjunctions: algorithm 2.2 of Wilkin 2015, with its proof's assumptions stated.

Every process subscribes to a majority of instances of one topic, and has at most one message of its
own under correlation. Any two relations then share a process, and the numbers of that process say
which of them comes first, in whatever order relations are delivered to anybody: agreement on the
set of relations is enough. A relation is unpacked when each of its messages is the next of its
process. It needs a majority of processes that keep going.

The module knows relations and nothing of how they come about. The thesis lets idle processes send
empty messages for ever (line 16); here a process that waits says so, and the idle ones answer with
one, so a system with nothing to say is quiet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from concordant.errors import PeerError
from concordant.model.kind import Value


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A message under correlation: whose, its number there, and what, or nothing."""

    process: str
    n: int
    content: Mapping[str, Value] | None = None


def majority(count: int) -> int:
    """How many instances a conjunction of so many processes has.

    >>> [majority(count) for count in (1, 2, 3, 4, 5)]
    [1, 2, 2, 3, 3]
    """
    return count // 2 + 1


class TotalOrder(msgspec.Struct):
    """The state of one process. Variables of the thesis: broadcasts, tbdelivered, seq, last_sent,
    last_recv, last_delivered."""

    process: str
    processes: tuple[str, ...]
    waiting: list[Mapping[str, Value]] = []
    """To be broadcast."""
    held: list[tuple[Sent, ...]] = []
    """Relations in which some message is not the next of its process."""
    n: int = 0
    """The number of the last own message."""
    returned: int = 0
    """The last own message that came back in a relation."""
    delivered: dict[str, int] = {}

    def broadcast(self, content: Mapping[str, Value]) -> None:
        """Lines 18 to 20: queue a message."""
        self.waiting.append(content)

    def next_sent(self, *, wanted: bool = False) -> Sent | None:
        """Lines 8 to 17: what to multicast now, if nothing of its own is under correlation: a
        message, or, if somebody waits for company, an empty one."""
        if self.returned != self.n or not (self.waiting or wanted):
            return None
        self.n += 1
        content = self.waiting.pop(0) if self.waiting else None
        return Sent(self.process, self.n, content)

    @property
    def waits(self) -> bool:
        """Is a message of its own under correlation?"""
        return self.returned != self.n

    def relation(self, events: Sequence[Sent]) -> list[Sent]:
        """Lines 21 to 33: a relation was delivered; messages that are delivered now, in order."""
        self._check(events)
        self.held.append(tuple(events))
        for one in events:
            if one.process == self.process:
                self.returned = max(self.returned, one.n)
        found: list[Sent] = []
        while (ready := self._ready()) is not None:
            self.held.remove(ready)
            for one in ready:
                self.delivered[one.process] = one.n
                if one.content is not None:
                    found.append(one)
        return found

    def _ready(self) -> tuple[Sent, ...] | None:
        for each in self.held:
            if all(one.n == self.delivered.get(one.process, 0) + 1 for one in each):
                return each
        return None

    def _check(self, events: Iterable[Sent]) -> None:
        names = [one.process for one in events]
        if len(set(names)) < len(names) or len(names) != majority(len(self.processes)):
            raise PeerError(f"a relation of {', '.join(names)} is none of a majority")
        if not set(names) <= set(self.processes):
            raise PeerError(f"a relation of {', '.join(names)} has a stranger in it")
