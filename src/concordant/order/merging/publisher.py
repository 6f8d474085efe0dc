"""The publisher's part of a client of ordered merging: events to the roots of their topics.

Each topic's events are numbered, sent to the replica of the root that is believed to lead, and
repeated until the root has them for good; what is on its way is bounded, and beyond that publishing
is refused. The module knows roots and nothing of subscriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from concordant.errors import UsageError
from concordant.machine.effects import Effect, Persist, Send
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.order.client import Client, Published
from concordant.order.merging.messages import Accepted, Elsewhere, Offer
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.outlet import Outlet
from concordant.order.merging.overlay import hosts_of, name_of, signature_named
from concordant.order.merging.records import MergedState, Through


class MergedPublisher(Client):
    """See the module's text."""

    _state: MergedState

    def __init__(
        self, name: str, *, hosts: Sequence[str], merging: MergingOptions | None, **others: Any
    ) -> None:
        super().__init__(name, **others)
        self._hosts = tuple(hosts)
        self._merging = merging or MergingOptions()

    def _new_state(self, topics: dict[str, bool]) -> Any:
        return MergedState(topics)

    def _listen(self, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        """Nothing is disseminated."""

    def _replicas(self, merger: str) -> tuple[str, ...]:
        count = self._merging.replication.replica_count
        return hosts_of(signature_named(merger), self._hosts, count)

    @property
    def room(self) -> int:
        return self._merging.outbox_count_max - self._offered_count

    @property
    def _offered_count(self) -> int:
        return sum(len(one.waiting) for one in self._state.outlets.values())

    def _check_room(self, count: int) -> None:
        if count > self.room:
            raise UsageError(
                f"{self.name} has no room for {count:,} more events on their way to the roots",
                hint="publish more slowly, or raise outbox_count_max",
            )

    def _spread(self, now: Instant, events: list[Event], cause: int, out: list[Effect]) -> None:
        outlets = self._state.outlets
        for event in events:
            outlet = outlets.setdefault(event.topic, Outlet())
            if not outlet.waiting:  # who publishes all the time has to notice that nobody answers
                outlet.sent_at = now
            outlet.add(event)
        for topic in dict.fromkeys(event.topic for event in events):
            self._offer(topic, outlets[topic].more(topic, self._merging), cause, out)

    def _offer_again(self, now: Instant, topic: str, cause: int, out: list[Effect]) -> None:
        outlet = self._state.outlets[topic]
        outlet.sent_at = now
        self._offer(topic, outlet.again(topic, self._merging), cause, out)

    def _offer(self, topic: str, offer: Offer | None, cause: int, out: list[Effect]) -> None:
        outlet = self._state.outlets[topic]
        if offer is not None:
            out.append(Send(self._replicas(name_of((topic,)))[outlet.replica], (offer,), cause))

    def _accepted(self, now: Instant, message: Accepted, cause: int, out: list[Effect]) -> None:
        outlet = self._state.outlets.get(message.topic)
        if outlet is not None and outlet.accepted(message.n):
            outlet.sent_at = now
            out.append(Persist((Through(message.topic, message.n),), cause))
            self._offer(message.topic, outlet.more(message.topic, self._merging), cause, out)

    def _elsewhere(self, now: Instant, message: Elsewhere, cause: int, out: list[Effect]) -> None:
        replicas = self._replicas(name_of((message.topic,)))
        outlet = self._state.outlets.get(message.topic)
        if outlet is None or message.leader not in replicas:
            return
        if outlet.redirect(replicas.index(message.leader)):
            self._offer_again(now, message.topic, cause, out)

    def _offer_overdue(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Repeat what was not accepted in time, to the next replica."""
        options = self._merging
        for topic, outlet in self._state.outlets.items():
            if outlet.waiting and now - outlet.sent_at > options.repeat_us:
                outlet.next_replica(options.replication.replica_count)
                self._offer_again(now, topic, cause, out)

    def _recall_published(self, record: Published | Through) -> None:
        """After a crash: what was published, and how far it was accepted."""
        outlets = self._state.outlets
        if isinstance(record, Through):
            outlets[record.topic].accepted(record.n)
            return
        event = record.event
        self._number(event.source, event.seq)
        self._clock_of(self._timekeeper(event.source)).observe(event.time)
        outlets.setdefault(event.topic, Outlet()).add(event)
