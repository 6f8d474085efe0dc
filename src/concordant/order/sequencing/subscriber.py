"""The subscriber's side: which event is next, decided from timestamps and own clocks alone.

An event is next if it has the next number of its topic and everything that its timestamp names
before it, of topics that are held, has been delivered. A timestamp's entries of other topics are
passed over (Baldoni 2015, figure 3, corrected: published, they are waited for). What is not next
waits in a holdback of its topic. With `tag` it does not wait for ever: after a time, or when too
many wait, an event is delivered without those before it; one of those that comes after all is
delivered out of order and says so.

It knows no network: whoever owns it brings events and asks for what is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from concordant.machine.holdback import Holdback
from concordant.machine.instant import Instant
from concordant.order.sequencing.messages import Signed


class Ready(msgspec.Struct, frozen=True, gc=False):
    """An event whose turn has come, or whose turn was missed."""

    signed: Signed
    in_order: bool = True


class Merge(msgspec.Struct):
    """One subscriber's topics, merged into one sequence."""

    held_count_max: int
    gap_count_max: int = 0
    """0: what was passed over is not remembered; only `expire` passes over anything."""
    clocks: dict[str, int] = {}
    """Of each topic that is held, the number of the last delivered event."""
    starting: dict[str, int] = {}
    """Of each topic that is about to be held, where it begins at the earliest."""
    held: dict[str, Holdback[int, Signed]] = {}
    known: dict[str, int] = {}
    """The largest number that is known to exist."""
    ahead: dict[str, bool] = {}
    """Topics of which something is known that was not delivered."""
    blocked: dict[str, list[str]] = {}
    """Topics whose next event waits for the topic."""
    arrivals: dict[str, dict[int, Instant]] = {}
    """With gaps: when each waiting event came."""
    gaps: dict[str, dict[int, bool]] = {}
    """Numbers that were passed over."""

    # --- topics -------------------------------------------------------------------------------

    def hold(self, topic: str, n: int) -> None:
        """The topic is held, and everything up to a number is behind."""
        self.clocks[topic] = n
        self.known[topic] = max(n, self.known.get(topic, 0))
        self.held.setdefault(topic, Holdback(self.held_count_max))

    def prepare(self, topic: str) -> None:
        """Before the dissemination brings a topic: keep what comes."""
        self.starting[topic] = 0
        self.held[topic] = Holdback(self.held_count_max)

    def begin(self, topic: str, n: int) -> int:
        """A prepared topic begins after a number: this one, or a later one that is behind already.

        Call `follow` for what is ready then.
        """
        start = max(self.starting.pop(topic), n)
        held = self.held[topic]
        held.drain(lambda key: key <= start)
        self.known[topic] = max(held, default=start)
        self.hold(topic, start)
        self._revise(topic)
        return start

    def leave(self, topic: str) -> list[Ready]:
        """No longer held: what waited for it waits no longer."""
        tables: tuple[dict[str, Any], ...] = (
            self.clocks,
            self.starting,
            self.held,
            self.known,
            self.ahead,
            self.gaps,
            self.arrivals,
        )
        for table in tables:
            table.pop(topic, None)
        return self.follow(self.blocked.pop(topic, []))

    def _revise(self, topic: str) -> None:
        if self.known[topic] > self.clocks[topic] or self.gaps.get(topic):
            self.ahead[topic] = True
        else:
            self.ahead.pop(topic, None)

    # --- events -------------------------------------------------------------------------------

    def offer(self, signed: Signed, now: Instant = 0) -> list[Ready]:
        """An event came; what becomes ready, in order."""
        topic, n = signed.event.topic, signed.n
        clock = self.clocks.get(topic)
        if clock is None:
            if topic in self.starting:
                self._keep(topic, signed, now)
            return []
        if n <= clock:
            if not self.gaps.get(topic, {}).pop(n, False):
                return []
            self._revise(topic)
            return [Ready(signed, in_order=False)]
        if n > self.known[topic]:
            self.known[topic] = n
        if n == clock + 1 and self._obstacle(signed) is None:
            self.held[topic].take(n)
            self._step(signed)
            if not self.held[topic] and not self.blocked:
                return [Ready(signed)]
            return [Ready(signed), *self.follow([topic, *self.blocked.pop(topic, ())])]
        self.ahead[topic] = True
        self._keep(topic, signed, now)
        return self.follow([topic]) if n == clock + 1 else []

    def _keep(self, topic: str, signed: Signed, now: Instant) -> None:
        if self.held[topic].put(signed.n, signed) and self.gap_count_max:
            self.arrivals.setdefault(topic, {})[signed.n] = now

    def _obstacle(self, signed: Signed) -> str | None:
        """A topic that the event has to wait for."""
        topic, timestamp = signed.event.topic, signed.timestamp
        clocks = self.clocks
        if len(timestamp) <= len(clocks):
            for other, n in timestamp.items():
                if n > clocks.get(other, n) and other != topic:
                    return other
            return None
        for other, clock in clocks.items():
            if timestamp.get(other, 0) > clock and other != topic:
                return other
        return None

    def follow(self, topics: list[str]) -> list[Ready]:
        """What becomes ready when the heads of these topics are looked at again."""
        ready: list[Ready] = []
        todo = deque(topics)
        while todo:
            topic = todo.popleft()
            clock = self.clocks.get(topic)
            if clock is None:
                continue
            held = self.held[topic]
            signed = held.waiting.get(clock + 1)
            if signed is None:
                continue
            obstacle = self._obstacle(signed)
            if obstacle is not None:
                waiting = self.blocked.setdefault(obstacle, [])
                if topic not in waiting:
                    waiting.append(topic)
                continue
            held.take(clock + 1)
            self._step(signed)
            ready.append(Ready(signed))
            todo.append(topic)
            todo.extend(self.blocked.pop(topic, ()))
        return ready

    def _step(self, signed: Signed) -> None:
        """Move the clocks past an event."""
        topic = signed.event.topic
        self.clocks[topic] = signed.n
        if topic in self.ahead:
            self._revise(topic)
        arrived = self.arrivals.get(topic)
        if arrived:
            arrived.pop(signed.n, None)
        if self.starting:
            for other in self.starting:
                n = signed.timestamp.get(other, 0)
                if n > self.starting[other]:
                    self.starting[other] = n

    # --- what is missing ----------------------------------------------------------------------

    def mark(self, topic: str, n: int) -> None:
        """So many events of a topic exist."""
        if topic in self.clocks and n > self.known[topic]:
            self.known[topic] = n
            self._revise(topic)

    def missing(self) -> Iterator[tuple[str, int, int]]:
        """Holes: for each topic the first numbers that are not here, both ends included."""
        for topic, clock in self.clocks.items():
            held = self.held[topic]
            for n in self.gaps.get(topic, ()):
                yield topic, n, n
            first = clock + 1
            while first in held:
                first += 1
            if first <= self.known[topic]:
                later = [n for n in held.waiting if n > first]
                yield topic, first, min(later) - 1 if later else self.known[topic]

    def forget(self) -> None:
        """Let go of everything that waits; it is missing then."""
        for topic, clock in self.clocks.items():
            self.held[topic].drain(lambda n: True)
            self.arrivals.pop(topic, None)
            if self.known[topic] > clock:
                self.ahead[topic] = True

    def skip(self, topic: str, first: int) -> list[Ready]:
        """Numbers before `first` are lost for good."""
        clock = self.clocks.get(topic)
        if clock is None:
            return []
        gaps = self.gaps.get(topic, {})
        for n in [one for one in gaps if one < first]:
            del gaps[n]
        if first <= clock + 1:
            self._revise(topic)
            return []
        self.held[topic].drain(lambda n: n < first)
        self.clocks[topic] = first - 1
        self.known[topic] = max(self.known[topic], first - 1)
        self._revise(topic)
        return self.follow([topic, *self.blocked.pop(topic, ())])

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self.held.values()))

    # --- not for ever -------------------------------------------------------------------------

    def _waiting(self) -> list[tuple[Instant, str, int]]:
        """What waits and could be delivered, with the instant at which it came."""
        return [
            (at, topic, n)
            for topic, arrived in self.arrivals.items()
            if topic in self.clocks
            for n, at in arrived.items()
            if n in self.held[topic]
        ]

    def oldest(self) -> Instant | None:
        """When the event came that has waited longest."""
        return min((at for at, _, _ in self._waiting()), default=None)

    def expire(self, before: Instant, *, count_max: int) -> tuple[list[Ready], list[str]]:
        """Deliver what came before an instant, and the oldest while more wait than may.

        Also the topics of which something was passed over.
        """
        ready: list[Ready] = []
        passed: dict[str, bool] = {}
        while waiting := self._waiting():
            at, topic, n = min(waiting)
            if at > before and len(waiting) <= count_max:
                break
            ready += self._force(self._earliest(topic, n), passed)
        return ready, list(passed)

    def _earliest(self, topic: str, n: int) -> Signed:
        """The waiting event that comes first among those before the given one, and itself."""
        signed = self.held[topic].waiting[n]
        while True:
            for other, clock in self.clocks.items():
                limit = signed.timestamp.get(other, 0)
                if other == signed.event.topic:
                    limit -= 1
                least = self.held[other].least()
                if least is not None and clock < least <= limit:
                    signed = self.held[other].waiting[least]
                    break
            else:
                return signed

    def _force(self, signed: Signed, passed: dict[str, bool]) -> list[Ready]:
        """Deliver an event and pass over everything before it that is not here."""
        woken: list[str] = []
        for other, limit in signed.timestamp.items():
            own = other == signed.event.topic
            clock = self.clocks.get(other)
            end = limit - 1 if own else limit
            if clock is not None and end > clock:
                passed[other] = True
                gaps = self.gaps.setdefault(other, {})
                first = max(clock, end - self.gap_count_max) + 1
                gaps.update(dict.fromkeys(range(first, end + 1), True))
                while len(gaps) > self.gap_count_max:
                    del gaps[next(iter(gaps))]
                self.clocks[other] = end
                self.known[other] = max(self.known[other], end)
                self._revise(other)
                woken += [other, *self.blocked.pop(other, ())]
        topic = signed.event.topic
        self.held[topic].take(signed.n)
        self.known[topic] = max(self.known[topic], signed.n)
        self._step(signed)
        return [Ready(signed), *self.follow([topic, *woken, *self.blocked.pop(topic, ())])]

    # --- a life after a crash -----------------------------------------------------------------

    def crash(self) -> None:
        """In another life there is what was delivered or passed over, and nothing that waits."""
        self.starting, self.blocked, self.arrivals, self.ahead = {}, {}, {}, {}
        self.held = {topic: Holdback(self.held_count_max) for topic in self.clocks}
        self.known = dict(self.clocks)
        for topic in self.clocks:
            self._revise(topic)

    def delivered(self, signed: Signed, *, in_order: bool) -> None:
        """An event was delivered before: move past it."""
        topic = signed.event.topic
        if topic in self.clocks:
            if in_order:
                self._force(signed, {})
            else:
                self.gaps.get(topic, {}).pop(signed.n, None)
                self._revise(topic)
