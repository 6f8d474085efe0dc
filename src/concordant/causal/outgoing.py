"""What one input leads to, gathered: messages to one place leave as one batch.

Records, deliveries and notes keep their order, since a history and a disk are read in it. Messages
and timers follow them, so nothing is said before it is durable.
"""

from __future__ import annotations

from concordant.machine.effects import Deliver, Delivery, Effect, Note, Persist, Send, SetTimer
from concordant.machine.inputs import Message, Record
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.model.history import Step


class Outgoing:
    """The effects of one input."""

    __slots__ = ("_deliveries", "_first", "_messages", "_published", "_records", "_timers", "cause")

    def __init__(self, cause: int) -> None:
        self.cause = cause
        self._first: list[Effect] = []
        self._messages: dict[str, list[Message]] = {}
        self._timers: dict[str, Instant] = {}
        self._records: list[Record] = []
        self._deliveries: list[Delivery] = []
        self._published: list[Event] = []

    def send(self, to: str, *messages: Message) -> None:
        if messages:
            waiting = self._messages.get(to)
            if waiting is None:
                self._messages[to] = list(messages)
            else:
                waiting.extend(messages)

    def wake(self, name: str, at: Instant) -> None:
        self._timers[name] = at

    def persist(self, record: Record) -> None:
        self._records.append(record)

    def replace(self, write: Persist) -> None:
        """This write takes the place of all before."""
        self._close()
        self._first.append(write)

    def deliver(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)

    def publish(self, event: Event) -> None:
        """It is published as soon as what was to be persisted is; many of them are one note."""
        self._published.append(event)

    def note(self, step: Step, topics: tuple[str, ...]) -> None:
        self._close()
        self._first.append(Note("", step, topics, (), self.cause))

    def _close(self) -> None:
        # Together: all records of a run of deliveries are durable before the first of them.
        if self._records:
            self._first.append(Persist(tuple(self._records), self.cause))
        if self._published:
            events = tuple(self._published)
            self._first.append(Note("", "publish", (), events, self.cause))
        if self._deliveries:
            self._first.append(Deliver(tuple(self._deliveries), self.cause))
        self._records, self._deliveries, self._published = [], [], []

    def effects(self) -> list[Effect]:
        if self._records or self._deliveries or self._published:
            self._close()
        found, cause = self._first, self.cause
        for to, many in self._messages.items():
            found.append(Send(to, tuple(many), cause))
        for name, at in self._timers.items():
            found.append(SetTimer(name, at, cause))
        return found
