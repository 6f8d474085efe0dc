"""Publications of a client on their way to a broker: a flight of them, each after the one before.

A broker orders the publications of a client in their order, so the next one need not wait for the
answer: it names the one that went before it to the same broker, and what the client has learnt
since. A flight begins with all that the client knows: at another broker, and whenever an answer is
missing for too long. A broker that died may or may not have ordered an event; it is sent to another
broker under the same number, and subscribers drop what they get twice. A client may publish for
others (the applications of a node): each source has numbers and times of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

import msgspec

from concordant.causal.vector import Vector, join
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
    """The broker of the flight."""
    sent: int = 0
    """Up to this number everything is under way, or was answered."""
    flying_count: int = 0
    """How many of them were not answered."""
    after: int = 0
    """The last publication that this flight sent."""
    news: Vector = {}
    """What the client has learnt since then."""
    whole: int = 0
    """Up to this number, publications carry all that the client knows: of one that the broker has
    already it takes nothing, so what the next one says must not build on it."""
    began_at: Instant = 0
    """When something was last sent while nothing was under way."""
    moved_at: Instant = 0
    """When something was last answered, or the flight began (again)."""

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
        source = self.sources.get(event.source)
        if source is None:
            source = self.sources[event.source] = Source()
        source.seq = event.seq
        source.clock.observe(event.time)
        self.count += 1
        self.waiting[self.count] = (event, topics)

    def retire(self, source: str) -> bool:
        """Forget a source that will not come again; False if it is not known."""
        return self.sources.pop(source, None) is not None

    def learn(self, context: Vector) -> None:
        """The client knows this as well, and whoever orders its next event has to know it."""
        if self.after:
            join(self.news, context)

    def settle(self, number: int) -> None:
        """A broker has this publication."""
        if self.waiting.pop(number, None) is not None and number <= self.sent:
            self.flying_count -= 1

    def turn(self, now: Instant, target: str = "") -> None:
        """Begin a new flight, with everything that was not answered."""
        self.target, self.after, self.moved_at = target, 0, now
        self.whole, self.flying_count = self.count + 1, 0
        self.sent = next(iter(self.waiting), self.count + 1) - 1

    def fly(
        self,
        now: Instant,
        serves: Mapping[str, Container[str]],
        *,
        best: Callable[[tuple[str, ...]], str],
        count_max: int,
    ) -> Iterator[tuple[int, Publication]]:
        """What is to be sent to `target` now; each is under way when the next is asked for.

        `best` says which broker is to order an event of these topics, if nothing is under way.
        """
        while self.sent < self.count:
            publication = self.waiting.get(self.sent + 1)
            if publication is None:  # answered in an earlier flight
                self.sent += 1
                continue
            topics = publication[1]
            if self.flying_count >= count_max:
                return
            if not self.flying_count and (self.after or not self.target):  # else it is repeated
                target = best(topics)
                if target != self.target:
                    self.turn(now, target)
                self.began_at = self.moved_at = now
            elif not all(topic in serves[self.target] for topic in topics):
                return
            self.sent += 1
            self.flying_count += 1
            yield self.sent, publication
            self.after = self.sent
