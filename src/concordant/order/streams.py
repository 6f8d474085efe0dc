"""Numbered streams over a dissemination that loses, doubles and overtakes: nothing lost, in order.

A sender numbers what it sends from 1 and keeps it. A receiver lets through only the next number,
holds back what is ahead and asks for what is missing; marks tell it of a tail that was lost. The
module knows numbers and nothing of levels: who may be asked, and when, is for the client to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from concordant.machine.holdback import Holdback
from concordant.machine.instant import Instant
from concordant.model.event import Event

Stream = tuple[str, str]
"""Who numbers, and which topic."""


class Numbered(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An event with its number in a stream."""

    stream: Stream
    n: int
    event: Event


class Mark(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A progress mark: the stream is at number `n`, and what follows is younger than `time`."""

    stream: Stream
    n: int
    time: Instant = 0


class Ask(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Send these numbers again, both ends included."""

    stream: Stream
    first: int
    last: int


class Gone(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Numbers before `first` are no longer kept."""

    stream: Stream
    first: int


class Where(msgspec.Struct, frozen=True, tag=True, gc=False):
    """How far is your stream of this topic? I begin after what you answer."""

    topic: str
    time: Instant = 0
    """Everything after your answer has to be younger than this."""


class Here(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The answer to `Where`."""

    mark: Mark


class Outgoing(msgspec.Struct):
    """What one sender sent on one stream, as far as it is kept."""

    kept_count_max: int
    """Older events are forgotten, so that a stream cannot fill the memory; who asks for them is
    told that they are gone."""
    kept: list[Event] = []
    first: int = 1
    """The number of the oldest kept event."""

    @property
    def last(self) -> int:
        return self.first + len(self.kept) - 1

    def append(self, event: Event) -> int:
        """Keep an event and give it its number."""
        self.kept.append(event)
        if len(self.kept) > 2 * self.kept_count_max:  # in halves: each event moves once
            del self.kept[: self.kept_count_max]
            self.first += self.kept_count_max
        return self.last

    def answer(self, ask: Ask, *, count_max: int) -> list[Numbered | Gone]:
        """What is asked for, oldest first, at most so many; the asker will ask again."""
        start = max(ask.first, self.first)
        events = islice(self.kept, start - self.first, max(start, ask.last + 1) - self.first)
        found: list[Numbered | Gone] = [
            Numbered(ask.stream, start + i, event)
            for i, event in enumerate(islice(events, count_max))
        ]
        return [Gone(ask.stream, self.first), *found] if ask.first < self.first else found


class Incoming(msgspec.Struct):
    """One stream as a receiver sees it."""

    held: Holdback[int, Event]
    next: int = 1
    """The number that is due."""
    known: int = 0
    """The largest number that is known to exist."""

    def accept(self, n: int, event: Event) -> list[Event]:
        """The events that this one makes ready, in order; their numbers end before `next`."""
        if n != self.next:
            self.hold(n, event)
            return []
        if n > self.known:
            self.known = n
        self.next = n + 1
        if not self.held.waiting:
            return [event]
        return [event, *self._follow()]

    def accept_all(self, n: int, events: Sequence[Event]) -> list[Event]:
        """The same for events with successive numbers from `n` on."""
        if n > self.next or self.held.waiting:
            return [one for i, event in enumerate(events) for one in self.accept(n + i, event)]
        ready = list(events[self.next - n :])
        self.next += len(ready)
        self.known = max(self.known, self.next - 1)
        return ready

    def hold(self, n: int, event: Event) -> None:
        """Keep an event whose turn is still to come."""
        if n > self.known:
            self.known = n
        if n >= self.next:
            self.held.put(n, event)

    def skip(self, first: int) -> list[Event]:
        """Go on at `first` because what is before is gone; the events that become ready."""
        if first > self.next:
            self.held.drain(lambda n: n < first)
            self.next = first
        return self._follow()

    def _follow(self) -> list[Event]:
        ready: list[Event] = []
        while (event := self.held.take(self.next)) is not None:
            ready.append(event)
            self.next += 1
        return ready

    @property
    def complete(self) -> bool:
        """True if nothing that is known to exist is missing."""
        return self.known < self.next

    def missing(self) -> tuple[int, int]:
        """The first numbers that are missing, both ends included."""
        ahead = self.held.least()
        return self.next, (self.known if ahead is None else ahead - 1)
