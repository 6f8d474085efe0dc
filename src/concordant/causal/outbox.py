"""Publications of a client on their way to a broker: one at a time, repeated until it is ordered.

The next one waits for the answer, because it follows the one before, and the answer says where that
is. A broker that died may or may not have ordered an event; it is sent to another one under the
same number, and subscribers drop the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from concordant.machine.clock import HybridClock
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.model.kind import Value


class Outbox(msgspec.Struct):
    """What a client published and no broker has ordered yet."""

    waiting: dict[int, tuple[Event, tuple[str, ...]]] = {}
    clock: HybridClock = msgspec.field(default_factory=HybridClock)
    seq: int = 0
    target: str = ""
    """Who was asked to order the first of them."""
    sent_at: Instant = 0
    sent_first_at: Instant = 0

    def new_event(
        self,
        now: Instant,
        source: str,
        topic: str,
        attributes: Mapping[str, Value],
        time: Instant | None,
    ) -> Event:
        if time is None:
            time = self.clock.tick(now)
        else:
            self.clock.observe(time)
        return Event(topic, source, self.seq + 1, time, attributes)

    def add(self, event: Event, topics: tuple[str, ...]) -> None:
        self.seq = event.seq
        self.waiting[event.seq] = (event, topics)

    def remember(self, event: Event, topics: tuple[str, ...]) -> None:
        """The same, in a later life."""
        self.clock.observe(event.time)
        self.add(event, topics)

    def settle(self, seq: int) -> None:
        self.waiting.pop(seq, None)
        self.target = ""

    def submit(
        self,
        now: Instant,
        brokers: Iterable[str],
        serves: Mapping[str, Sequence[str]],
        *,
        again: bool,
    ) -> tuple[Event, tuple[str, ...]] | None:
        """The first one, to be sent to `target`; nothing if it is on its way, unless `again`."""
        if not self.waiting:
            return None
        event, topics = next(iter(self.waiting.values()))
        if not self.target:
            self.target = next(
                one for one in brokers if all(topic in serves[one] for topic in topics)
            )
            self.sent_first_at = now
        elif not again:
            return None
        self.sent_at = now
        return event, topics
