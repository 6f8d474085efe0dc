"""The kernel on top of a level: a client that delivers relations instead of events.

It wraps the client of any level and changes nothing but its deliveries: events that the level
delivers in order go to the engine, and the relations that they complete go to the application.
Two subscribers of one subscription whose levels deliver the same events in the same order
therefore deliver the same relations in the same order. An event that the level says is out of order
is not correlated; it is noted. After a crash the level delivers everything again from its durable
log, the engine finds the same relations again, and those that the application took are left out. A
snapshot of the level takes the engine with it.

Live traffic comes in ones and twos, so the clear engine does the work; this module is the one place
where that is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from concordant.correlate.engine import Engine
from concordant.correlate.plan import compile_plan
from concordant.machine.contract import Machine
from concordant.machine.effects import Deliver, Delivery, Effect, Note, Persist
from concordant.machine.inputs import Command, Input, Started
from concordant.machine.instant import Instant
from concordant.machine.saved import Compact, Saved, saved_state, saving
from concordant.model.event import Event
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas


class _State(msgspec.Struct):
    client: bytes
    engine: bytes
    positions: dict[str, int]


class _Saved(msgspec.Struct):
    client: tuple[Saved, ...]
    engine: bytes
    positions: dict[str, int]


_ALL = Compact(-1)


class Correlated:
    """A client of some level, with subscriptions on top."""

    def __init__(
        self,
        client: Machine,
        *,
        subscriptions: Sequence[Subscription],
        schemas: Schemas,
        time_ordered: bool,
    ) -> None:
        """`time_ordered`: the level delivers by time, so that `within` may forget what is old."""
        self.forgotten_count = 0
        """Relations of earlier lives that are no longer in the log, because they were taken."""
        self._client = client
        self._engine = Engine(compile_plan(subscriptions, schemas), time_ordered=time_ordered)
        self._positions: dict[str, int] = {}
        self._texts = tuple(str(subscription) for subscription in subscriptions)

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        taken_count = 0
        out: list[Effect] = []
        snapshots: list[Compact] = []
        if isinstance(given, Started):
            taken_count = given.taken_count
            given = self._recover(given, out)
        elif isinstance(given, Command):
            snapshots = [one for one in given.requests if isinstance(one, Compact)]
            if snapshots:  # the engine has taken whatever the level delivered
                asked = (_ALL if isinstance(one, Compact) else one for one in given.requests)
                given = Command(tuple(asked), given.cause)
        for effect in self._client.handle(now, given):
            if isinstance(effect, Deliver):
                out += self._correlate(effect, taken_count)
            elif isinstance(effect, Persist) and effect.replaces:
                self._save(effect, snapshots.pop(0), out)
            elif isinstance(effect, Note) and effect.step == "subscribe":
                text = "\n".join(self._texts)
                out.append(msgspec.structs.replace(effect, text=text))
            else:
                out.append(effect)
        return out

    def _save(self, effect: Persist, request: Compact, out: list[Effect]) -> None:
        """Let what the level saved, and the engine, take the place of the log."""
        if request.taken_count + len(request.untaken) == sum(self._positions.values()):
            saved = _Saved(effect.records, self._engine.save(), self._positions)  # type: ignore[arg-type]  # a snapshot has no others
            out.append(saving(msgspec.msgpack.encode(saved), request, effect.cause))

    def _recover(self, given: Started, out: list[Effect]) -> Started:
        """What the level starts with; relations that were saved and not taken are delivered."""
        data, last, rest = saved_state(given.records)
        if last is None:
            return Started(given.records, 0, given.cause)
        saved = msgspec.msgpack.decode(data, type=_Saved)
        self._engine.load(saved.engine)
        self._positions = saved.positions
        self.forgotten_count = last.taken_count
        untaken = last.untaken[max(0, given.taken_count - last.taken_count) :]
        if untaken:
            out.append(Deliver(untaken, given.cause))
        return Started((*saved.client, *rest), saved.client[-1].taken_count, given.cause)

    def _correlate(self, effect: Deliver, taken_count: int) -> list[Effect]:
        out: list[Effect] = []
        events: list[Event] = []
        for delivery in effect.deliveries:
            if delivery.in_order:
                events += delivery.events
            else:
                late = ", ".join(event.id for event in delivery.events)
                out.append(Note(f"too late to be correlated: {late}", cause=effect.cause))
        found: list[Delivery] = []
        positions = self._positions
        already = taken_count - sum(positions.values()) if taken_count else 0
        for number, relation in enumerate(self._engine.step(events)):
            name = relation.subscription
            positions[name] = positions.get(name, 0) + 1
            if number >= already:
                found.append(
                    Delivery(
                        relation.events,
                        positions[name],
                        True,
                        relation.subscription,
                        relation.conjunction,
                        relation.key,
                    )
                )
        if found:
            out.append(Deliver(tuple(found), effect.cause))
        return out

    @property
    def client(self) -> Machine:
        """The client of the level."""
        return self._client

    @property
    def held_count(self) -> int:
        return self._client.held_count

    def snapshot(self) -> bytes:
        state = _State(self._client.snapshot(), self._engine.save(), self._positions)
        return msgspec.msgpack.encode(state)

    def restore(self, data: bytes) -> None:
        state = msgspec.msgpack.decode(data, type=_State)
        self._client.restore(state.client)
        self._engine.load(state.engine)
        self._positions = state.positions
