"""Publications of a client on their way to a broker: one at a time, repeated until it is ordered.

The next one waits for the answer, because it follows the one before, and the answer says where that
is. A broker that died may or may not have ordered an event; it is sent to another broker under the
same number, and subscribers drop what they get twice. A client may publish for others (the
applications of a node): each source has numbers and times of its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from concordant.machine.clock import HybridClock
from concordant.machine.instant import Instant
from concordant.machine.requests import Publish
from concordant.model.event import Event

Publication = tuple[Event, tuple[str, ...]]
"""An event, and the topics that it is addressed to."""


class Source(msgspec.Struct):
    """One who publishes through this client."""

    seq: int = 0
    clock: HybridClock = msgspec.field(default_factory=HybridClock)


class Outbox(msgspec.Struct):
    """What a client published and no broker has ordered yet."""

    waiting: dict[int, Publication] = {}
    """By number; all publications of the client are counted."""
    count: int = 0
    sources: dict[str, Source] = {}
    target: str = ""
    """Who was asked to order the first of them."""
    sent_at: Instant = 0
    sent_first_at: Instant = 0

    def source(self, name: str) -> Source:
        return self.sources.get(name) or Source()

    def new_event(self, now: Instant, name: str, request: Publish) -> Event:
        """The next event of a source; it is not published before `add`."""
        source = self.source(name)
        time = request.time
        if time is None:
            time = max(now, source.clock.last + 1)
        attributes = request.attributes
        return Event(request.topic, name, source.seq + 1, time, attributes, request.id)

    def add(self, event: Event, topics: tuple[str, ...]) -> None:
        """Publish an event, now or in an earlier life."""
        source = self.sources.setdefault(event.source, Source())
        source.seq = event.seq
        source.clock.observe(event.time)
        self.count += 1
        self.waiting[self.count] = (event, topics)

    def settle(self, number: int) -> None:
        """A broker has this publication."""
        self.waiting.pop(number, None)
        self.target = ""

    def submit(
        self,
        now: Instant,
        brokers: Iterable[str],
        serves: Mapping[str, Container[str]],
        *,
        again: bool,
    ) -> tuple[int, Event, tuple[str, ...]] | None:
        """The first one, to be sent to `target`; nothing if it is on its way, unless `again`."""
        if not self.waiting or (self.target and not again):
            return None
        number, (event, topics) = next(iter(self.waiting.items()))
        if not self.target:
            self.target = next(
                one for one in brokers if all(topic in serves[one] for topic in topics)
            )
            self.sent_first_at = now
        self.sent_at = now
        return number, event, topics
