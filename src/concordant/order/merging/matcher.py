"""What a stream is fed to: the engine for one conjunction, or nothing but a counter.

A matcher takes events in their order and returns what is to be delivered. Its state can be copied
to another subscriber of the same conjunction, which then finds the same relations from there on.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Protocol

import msgspec

from concordant.correlate.engine import Engine
from concordant.correlate.plan import compile_plan
from concordant.machine.effects import Delivery
from concordant.model.event import Event
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas


class Matcher(Protocol):
    """One conjunction's queues."""

    def feed(self, events: Iterable[Event], first: int = 1) -> list[Delivery]:
        """What is to be delivered, with positions from `first` on."""
        ...

    def save(self) -> bytes: ...

    def load(self, data: bytes) -> None: ...

    def lend(self) -> bytes:
        """What waits in the queues, for a conjunction that asks for more."""
        ...

    def borrow(self, data: bytes) -> None:
        """Begin with what waits in the queues of a conjunction that asks for less."""
        ...


class Plain:
    """Every event is delivered as it is."""

    def feed(self, events: Iterable[Event], first: int = 1) -> list[Delivery]:
        return list(map(Delivery, zip(events, strict=True), count(first)))

    def save(self) -> bytes:
        return b""

    def load(self, data: bytes) -> None:
        del data

    def lend(self) -> bytes:
        return _events.encode(())

    def borrow(self, data: bytes) -> None:
        del data


class Correlating:
    """The clear engine for a subscription of one conjunction."""

    def __init__(self, subscription: Subscription, number: int, schemas: Schemas) -> None:
        """`number` is that of the conjunction where it was written."""
        self._name, self._number = subscription.name, number
        self._engine = Engine(compile_plan([subscription], schemas), time_ordered=False)

    def feed(self, events: Iterable[Event], first: int = 1) -> list[Delivery]:
        return [
            Delivery(one.events, position, True, self._name, self._number, one.key)
            for position, one in enumerate(self._engine.step(events), first)
        ]

    def save(self) -> bytes:
        return self._engine.save()

    def load(self, data: bytes) -> None:
        self._engine.load(data)

    def lend(self) -> bytes:
        parts = (part for *_, part in self._engine.waiting())
        found = {one.serial: one for part in parts for each in part.queues.values() for one in each}
        return _events.encode([found[serial].event for serial in sorted(found)])

    def borrow(self, data: bytes) -> None:
        self._engine.step(_decoder.decode(data))  # nothing is complete without the last topic


def fill(matcher: Matcher, queues: bytes, *, lent: bool) -> None:
    """Begin with a donor's queues, if there are some; those that are lent are of a conjunction that
    asks for less."""
    if queues and lent:
        matcher.borrow(queues)
    elif queues:
        matcher.load(queues)


_events = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Event, ...])
