"""A client of the overlay as a machine: names to ids, events to messages, messages to deliveries.

It talks to one broker, its edge. What it has advertised and subscribed stands at the broker as
well, so a client that lost its memory greets, and is told. One counter numbers everything: ids,
events and transactions. It begins at the instant of the client's life, so that a life after a loss
of memory never gives a number again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Deliver, Delivery, Effect, Note, Send
from concordant.machine.inputs import Command, Input, Message, Received, Request, Started
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.route.filter import Filter
from concordant.route.messages import (
    Advertised,
    Hello,
    Published,
    Subscribed,
    Unadvertised,
    Unsubscribed,
    Welcome,
)
from concordant.route.requests import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from concordant.route.router import ENTRY_COUNT_MAX


class Entry(msgspec.Struct, frozen=True):
    """What a name stands for."""

    id: str
    filter: Filter


class ClientState(msgspec.Struct):
    """What a client remembers."""

    connected: bool = False
    number: int = 0
    position: int = 0
    advertisements: dict[str, Entry] = {}
    subscriptions: dict[str, Entry] = {}


class Client:
    """A publisher and subscriber without transactions."""

    def __init__(self, name: str, *, broker: str) -> None:
        self.name = name
        self._broker = broker
        self._state = self._new_state()

    def _new_state(self) -> Any:
        return ClientState()

    @property
    def connected(self) -> bool:
        """The broker has greeted back; requests are taken from then on."""
        return bool(self._state.connected)

    @property
    def advertisements(self) -> dict[str, Entry]:
        """What is advertised, by name."""
        return dict(self._state.advertisements)

    @property
    def subscriptions(self) -> dict[str, Entry]:
        return dict(self._state.subscriptions)

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out: list[Effect] = []
        if isinstance(given, Received):
            for message in given.messages:
                self._check(given.source, message)
            for message in given.messages:
                self._receive(now, message, given.cause, out)
        elif isinstance(given, Command):
            self._ask_all(now, given, out)
        elif isinstance(given, Started):
            self._state.number = max(self._state.number, now)
            self._send(Hello(), given.cause, out)
        return _gathered(out)

    # --- requests -----------------------------------------------------------------------------

    def _ask_all(self, now: Instant, given: Command, out: list[Effect]) -> None:
        """All or nothing: one that is refused must not leave an earlier one done."""
        several = len(given.requests) > 1
        before = self.snapshot() if several else b""
        try:
            for request in given.requests:
                self._ask(now, request, given.cause, out)
        except UsageError:
            if several:
                self.restore(before)
            raise

    def _ask(self, now: Instant, request: Request, cause: int, out: list[Effect]) -> None:
        if not self._state.connected:
            raise UsageError(
                f"{self.name} is not connected yet", hint="wait for its broker's welcome"
            )
        if isinstance(request, Publish):
            event = self.event_of(now, request, self._state.advertisements)
            out.append(Note(step="publish", events=(event,), cause=cause))
            self._send(Published(event), cause, out)
        else:
            self._send(self.change_of(request), cause, out)

    def change_of(self, request: Request) -> Message:
        """Do a change to the names here, and say the message that does it at the broker."""
        state = self._state
        match request:
            case Advertise():
                entry = self.new_entry(request.name, request.filter, state.advertisements)
                state.advertisements[request.name] = entry
                return Advertised(entry.id, entry.filter)
            case Subscribe():
                entry = self.new_entry(request.name, request.filter, state.subscriptions)
                state.subscriptions[request.name] = entry
                return Subscribed(entry.id, entry.filter)
            case Unadvertise():
                return Unadvertised(_taken(request.name, state.advertisements).id)
            case Unsubscribe():
                return Unsubscribed(_taken(request.name, state.subscriptions).id)
        raise UsageError(f"a {type(request).__name__} is no request to a client")

    def new_entry(self, name: str, wanted: Filter, names: dict[str, Entry]) -> Entry:
        """An entry with a new id for a name that must be free."""
        if name in names:
            raise UsageError(f"{name!r} is in use", hint="end it first, or take another name")
        if not name or "#" in name:
            raise UsageError(f"{name!r} is no name", hint="take a word without #")
        if len(names) >= ENTRY_COUNT_MAX // 2:
            raise UsageError(f"{self.name} has {len(names):,} names, and no room for more")
        return Entry(f"{self.name}/{name}#{self.next_number()}", wanted)

    def next_number(self) -> int:
        self._state.number += 1
        return int(self._state.number)

    def event_of(self, now: Instant, request: Publish, advertised: dict[str, Entry]) -> Event:
        """The event of a request. What no advertisement covers would reach nobody: brokers route
        subscriptions towards advertisements."""
        number = self._state.number + 1
        time = now if request.time is None else request.time
        event = Event(request.topic, self.name, number, time, dict(request.attributes))
        if not any(one.filter.matches(event) for one in advertised.values()):
            raise UsageError(
                f"no advertisement covers {event.topic} {dict(event.attributes)}",
                hint="advertise such events before you publish one",
            )
        self._state.number = number
        return event

    # --- messages -----------------------------------------------------------------------------

    def _check(self, source: str, message: Message) -> None:
        if source != self._broker:
            raise PeerError(f"{source} is not the broker of {self.name}")
        if not isinstance(message, Published | Welcome):
            raise PeerError(f"a client was sent a {type(message).__name__}")

    def _receive(self, now: Instant, message: Message, cause: int, out: list[Effect]) -> None:
        del now
        if isinstance(message, Published):
            self._deliver(message.event, cause, out)
        elif isinstance(message, Welcome):
            state = self._state
            state.connected = True
            state.advertisements = by_name(self.name, message.advertisements)
            state.subscriptions = by_name(self.name, message.subscriptions)

    def _deliver(self, event: Event, cause: int, out: list[Effect]) -> None:
        self._state.position += 1
        out.append(Deliver((Delivery((event,), self._state.position),), cause))

    def _send(self, message: Message, cause: int, out: list[Effect]) -> None:
        out.append(Send(self._broker, (message,), cause))

    @property
    def held_count(self) -> int:
        return 0

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=type(self._state))


def _taken(name: str, names: dict[str, Entry]) -> Entry:
    if name not in names:
        known = ", ".join(names) or "none"
        raise UsageError(f"there is no {name!r} to end", hint=f"the names are: {known}")
    return names.pop(name)


def by_name(client: str, entries: tuple[tuple[str, Filter], ...]) -> dict[str, Entry]:
    """What ids and filters of a client stand for."""
    start = len(client) + 1
    return {id[start:].rpartition("#")[0]: Entry(id, one) for id, one in entries}


def _gathered(effects: list[Effect]) -> list[Effect]:
    """The same effects, neighbouring messages to the broker in one batch."""
    found: list[Effect] = []
    for effect in effects:
        last = found[-1] if found else None
        if isinstance(effect, Send) and isinstance(last, Send) and last.to == effect.to:
            found[-1] = Send(effect.to, last.messages + effect.messages, effect.cause)
        else:
            found.append(effect)
    return found
