"""What a stream is fed to: the engine for one conjunction, or nothing but a counter.

A matcher takes events in their order and returns what is to be delivered. Its state can be copied
to another subscriber of the same conjunction, which then finds the same relations from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from concordant.correlate.engine import Engine
from concordant.correlate.plan import compile_plan
from concordant.model.event import Event
from concordant.model.kind import Value
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas

Found = tuple[tuple[Event, ...], tuple[Value, ...]]
"""Events of a relation, and its partition value."""


class Matcher(Protocol):
    """One conjunction's queues."""

    def feed(self, events: Sequence[Event]) -> list[Found]: ...

    def save(self) -> bytes: ...

    def load(self, data: bytes) -> None: ...


class Plain:
    """Every event is delivered as it is."""

    def feed(self, events: Sequence[Event]) -> list[Found]:
        return [((event,), ()) for event in events]

    def save(self) -> bytes:
        return b""

    def load(self, data: bytes) -> None:
        del data


class Correlating:
    """The clear engine for a subscription of one conjunction."""

    def __init__(self, subscription: Subscription, schemas: Schemas) -> None:
        self._engine = Engine(compile_plan([subscription], schemas), time_ordered=False)

    def feed(self, events: Sequence[Event]) -> list[Found]:
        return [(one.events, one.key) for one in self._engine.step(events)]

    def save(self) -> bytes:
        return self._engine.save()

    def load(self, data: bytes) -> None:
        self._engine.load(data)


Make = Callable[[], Matcher]
