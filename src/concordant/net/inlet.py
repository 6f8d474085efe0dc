"""The events of applications on their way into the feeds of a node.

A node publishes for its applications: each feed of events (`net.roles`) has one machine here that
numbers and keeps them, and every event goes into all feeds with one identity: the application's
name, its own number, one time. An application that repeats what it sent before, because it does not
know whether it arrived, gets no event twice.

It knows publishers and numbers; sessions and sockets are the door's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from concordant.causal.requests import Address
from concordant.errors import UsageError
from concordant.machine.inputs import Request
from concordant.machine.requests import Publish, Retire
from concordant.net.flow import Flow
from concordant.net.host import Place, microseconds
from concordant.net.known import Seal
from concordant.net.roles import Publisher
from concordant.net.session import Given
from concordant.order.client import Client


@dataclass(frozen=True)
class Feed:
    """One feed of events: where it is numbered."""

    place: Place
    publisher: Publisher
    retires: bool = False
    """It can forget a source."""
    learns: type[Request] | None = None
    """It orders events after what their application has seen."""
    addresses: bool = False
    """Its events may have several topics."""


class Inlet:
    """Takes events in, for all applications of a node."""

    def __init__(
        self,
        feeds: Mapping[str, Feed],
        flow: Place,
        *,
        seal: Seal,
        publishers_max: int,
        batch_count_max: int,
        forgot: bool = False,
    ) -> None:
        """`forgot`: the numbers of what was published here before are lost."""
        assert isinstance(flow.machine, Flow)
        self.published_count = 0
        self.seal = seal
        self._feeds = feeds
        self._learning = {name: one.learns for name, one in feeds.items() if one.learns is not None}
        self._flow = flow
        self._held = flow.machine
        self._publishers_max = publishers_max
        self._batch_count_max = batch_count_max
        self._forgot = forgot

    def last(self, source: str) -> int:
        """The number of a source's last event that is in every feed."""
        if self._forgot:  # events under old numbers would be taken for repeated ones, and dropped
            raise UsageError(
                "this node lost its disk, and with it the numbers of what was published here",
                hint="publish under another name, which belongs to another node",
            )
        publishers = [feed.publisher for feed in self._feeds.values()]
        last = min(one.seq_of(source) for one in publishers)
        known = max((one.guest_count for one in publishers if isinstance(one, Client)), default=0)
        if not last and known >= self._publishers_max:
            raise UsageError(
                f"{known:,} publishers are known here, and no more are taken",
                hint="publish under a name that was used before, or raise publishers_max",
            )
        return last

    def learn(self, sealed: Iterable[bytes]) -> None:
        """Applications have seen this at other nodes; what they publish from now on comes after."""
        for one in sealed:
            feed, known = self.seal.open(one, self._learning)
            self._feeds[feed].place.command(known)

    def retire(self, source: str) -> None:
        """A source with a drawn name is gone for good: forget it, in the feeds that can."""
        for feed in self._feeds.values():
            if feed.retires:
                feed.place.command(Retire(source))

    async def publish(self, source: str, first: int, events: Sequence[Given]) -> int:
        """Give events to all feeds, in order; the number of the last. Wait for `settled`.

        Who publishes waits here while a subscriber holds the topics, or a feed is full.
        """
        if len(events) > self._batch_count_max:
            raise UsageError(
                f"a batch of {len(events):,} events is too large",
                hint=f"publish at most {self._batch_count_max:,} at once",
            )
        topics = dict.fromkeys(one for event in events for one in (event.topic, *event.others))
        self._check_topics(events)
        while (busy := self._busy(topics, len(events))) is not None:
            await busy.stepped()
        known = self.last(source)
        if first > known + 1:
            raise UsageError(f"number {first} of {source} came where {known + 1} was due")
        self._give(source, first, events)
        return first + len(events) - 1

    def _busy(self, topics: Iterable[str], count: int) -> Place | None:
        """Whose next step may change that so many events cannot be taken now."""
        if any(self._held.holds(topic) for topic in topics):
            return self._flow
        full = [feed.place for feed in self._feeds.values() if feed.publisher.room < count]
        return full[0] if full else None

    def _give(self, source: str, first: int, events: Sequence[Given]) -> None:
        floor = max(feed.publisher.time_of(source) for feed in self._feeds.values())
        now = microseconds()
        requests: list[Publish | Address] = []
        for event in events:
            time = event.time
            if time is None:
                time = max(now, floor + 1)
            floor = max(floor, time)
            if event.others:
                addressed = (event.topic, *event.others)
                requests.append(Address(addressed, event.attributes, time, source, event.id))
            else:
                requests.append(Publish(event.topic, event.attributes, time, source, event.id))
        wanted = [
            (feed, requests[max(0, feed.publisher.seq_of(source) + 1 - first) :])
            for feed in self._feeds.values()
        ]
        self._check(source, wanted)
        for feed, new in wanted:
            if new:
                feed.place.command(*new)
        self.published_count += max(len(new) for _, new in wanted)

    def _check_topics(self, events: Sequence[Given]) -> None:
        """Refuse events of several topics where a feed would give them to one of them only."""
        single = [name for name, feed in self._feeds.items() if not feed.addresses]
        if single and any(event.others for event in events):
            raise UsageError(
                "an event of several topics needs a cluster whose strategies all have them, and "
                f"this one offers {', '.join(single)}",
                hint="offer `causal` or `gossip` only, or publish one event per topic",
            )

    def _check(
        self, source: str, wanted: Sequence[tuple[Feed, Sequence[Publish | Address]]]
    ) -> None:
        """Refuse for all feeds what one of them would refuse, before any has changed."""
        for feed, new in wanted:
            last = feed.publisher.time_of(source)
            for request in new:
                assert request.time is not None
                if request.time <= last:
                    raise UsageError(
                        f"the time {request.time} is too early: {last} has passed for {source}",
                        hint="give increasing times, or leave them out; where events are ordered "
                        "by the clock, they cannot lie in the past",
                    )
                last = request.time
            feed.publisher.check(tuple(new))

    async def settled(self) -> None:
        """Wait until everything given so far is durable in all feeds."""
        await asyncio.gather(*(feed.place.settled() for feed in self._feeds.values()))
