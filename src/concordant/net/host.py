"""A host runs machines in real time: inputs in, effects carried out, what is to be durable first.

Each place has one machine, its inbox, its timers and, if it is given a folder, its durable log. The
host keeps the contract's two rules: what `Persist` names is on the disk before a later effect
leaves, and a write that fails ends the machine's life. While one write waits for the disk, further
inputs are handled and their writes gather behind it.

It knows time and disks. How messages travel is a `Carrier`'s matter, what they mean the machine's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Protocol

import msgspec

from concordant.errors import ConcordantError, PeerError, UsageError
from concordant.machine.contract import Machine
from concordant.machine.effects import (
    CancelTimer,
    Deliver,
    Delivery,
    Disseminate,
    Effect,
    Ignore,
    Listen,
    Note,
    Persist,
    Send,
    SendAll,
    SetTimer,
)
from concordant.machine.inputs import (
    Command,
    Input,
    Listening,
    Message,
    Received,
    Record,
    Request,
    Started,
    TimerFired,
)
from concordant.net.commit import GroupCommit
from concordant.net.log import Log

Take = Callable[[Sequence[Delivery]], None]
"""The application: it takes deliveries in their order."""

Hear = Callable[[Note], None]
"""Who wants to know what a machine notes."""


GROWN_BYTES_MIN = 1 << 20
"""A log that grew by less is left alone."""


class Carrier(Protocol):
    """What carries messages between places; it may lose, double and overtake."""

    def send(self, source: str, to: str, messages: tuple[Message, ...]) -> None: ...

    def send_all(self, source: str, to: tuple[str, ...], messages: tuple[Message, ...]) -> None: ...

    def disseminate(self, source: str, topic: str, messages: tuple[Message, ...]) -> None: ...

    def listen(self, place: str, topics: tuple[str, ...]) -> None: ...

    def ignore(self, place: str, topics: tuple[str, ...]) -> None: ...


def microseconds() -> int:
    """Now, by this machine's clock."""
    return time.time_ns() // 1_000


class Place:
    """One machine at work."""

    def __init__(
        self,
        address: str,
        machine: Machine,
        carrier: Carrier,
        *,
        take: Take | None = None,
        hear: Hear | None = None,
        taken_count: int = 0,
        folder: Path | None = None,
        records: Iterable[type[Record]] = (),
        scope: str = "",
        clock: Callable[[], int] = microseconds,
    ) -> None:
        """
        `records` are the kinds that the machine persists; `taken_count` is the application's.
        Topics of different scopes are different, though their names are the same.
        """
        self.address = address
        self.machine = machine
        self.refused_count = 0
        """Messages that broke the protocol; each was dropped and changed nothing."""
        self._carrier = carrier
        self._take = take or (lambda deliveries: None)
        self._hear = hear or (lambda note: None)
        self._scope = scope
        self._clock = clock
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._effects: list[Effect] = []
        self._given_count = 0
        self._carried_count = 0
        """Effects that there were, and those of them that were carried out."""
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits until so many were carried out."""
        self._watchers: list[asyncio.Future[None]] = []
        """Who waits for the machine's next step."""
        self._carrying: asyncio.Task[None] | None = None
        self._failure: ConcordantError | None = None
        self._cause = 0
        self._log = Log(folder) if folder is not None else None
        self._commit = GroupCommit(self._log) if self._log is not None else None
        self._encoder = msgspec.msgpack.Encoder()
        kinds = tuple(records)
        kept: tuple[Record, ...] = ()
        self._log_bytes = 0
        """What is in the log, and what of it is the last snapshot."""
        self._snapshot_bytes = 0
        if self._log is not None:
            decoder = msgspec.msgpack.Decoder(reduce(or_, kinds))
            data = tuple(self._log.records())
            self._log_bytes = sum(map(len, data))
            kept = tuple(decoder.decode(record) for record in data)
        self._given(Started(kept, taken_count, self._next_cause()))

    # --- inputs ---------------------------------------------------------------------------------

    def received(self, source: str, messages: tuple[Message, ...]) -> None:
        """Messages of another place. What breaks the protocol is counted and dropped."""
        if self._failure is not None:
            return
        try:
            self._given(Received(source, messages, self._next_cause()))
        except PeerError:
            self.refused_count += len(messages)

    def listening(self, topics: tuple[str, ...]) -> None:
        """The carrier brings these topics now."""
        if self._failure is not None:
            return
        heard = tuple(topic[len(self._scope) :] for topic in topics)
        self._given(Listening(heard, self._next_cause()))

    def command(self, *requests: Request) -> None:
        """Requests of the application; one that cannot be met raises `UsageError`."""
        self._given(Command(requests, self._next_cause()))

    @property
    def failure(self) -> ConcordantError | None:
        """Why the machine's life is over, if it is."""
        return self._failure

    @property
    def grown(self) -> bool:
        """True if a snapshot would make the log much shorter, and nothing is on its way."""
        new = self._log_bytes - self._snapshot_bytes
        idle = self._carried_count == self._given_count
        return idle and new > max(self._snapshot_bytes, GROWN_BYTES_MIN)

    async def settled(self) -> None:
        """Wait until everything asked for so far is durable and carried out."""
        if self._failure is None and self._carried_count < self._given_count:
            done = asyncio.get_running_loop().create_future()
            self._waiters.append((self._given_count, done))
            await done
        if self._failure is not None:
            raise self._failure

    async def stepped(self) -> None:
        """Wait until the machine was given something more."""
        if self._failure is not None:
            raise self._failure
        step = asyncio.get_running_loop().create_future()
        self._watchers.append(step)
        await step

    def _next_cause(self) -> int:
        self._cause += 1
        return self._cause

    def _given(self, given: Input) -> None:
        if self._failure is not None:
            raise self._failure
        effects = self.machine.handle(self._clock(), given)
        if self._watchers:
            watchers, self._watchers = self._watchers, []
            for step in watchers:
                _resolve(step)
        if not effects:
            return
        self._effects += effects
        self._given_count += len(effects)
        if self._carrying is None or self._carrying.done():
            if self._commit is None:
                waiting, self._effects = self._effects, []
                self._carry_out(waiting)
            else:
                self._carrying = asyncio.create_task(self._carry())

    # --- effects --------------------------------------------------------------------------------

    async def _carry(self) -> None:
        """Carry out what waits, the writes of all of it first and together."""
        assert self._commit is not None
        while self._effects:
            waiting, self._effects = self._effects, []
            try:
                await self._write([one for one in waiting if isinstance(one, Persist)])
            except ConcordantError as error:
                self._fail(error)
                return
            self._carry_out(waiting)

    def _fail(self, error: ConcordantError) -> None:
        """The machine's life is over; whoever waits is told."""
        self._failure = self._failure or error
        self._stop_timers()
        for future in (*(one for _, one in self._waiters), *self._watchers):
            _resolve(future)
        self._waiters, self._watchers = [], []

    async def _write(self, writes: list[Persist]) -> None:
        assert self._commit is not None
        given = []
        for one in writes:
            records = [self._encoder.encode(record) for record in one.records]
            size = sum(map(len, records))
            if one.replaces:
                self._log_bytes = self._snapshot_bytes = size
                given.append(self._commit.replace(records))
            elif records:
                self._log_bytes += size
                given.append(self._commit.append(records))
        await asyncio.gather(*given)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._do(effect)
        self._carried_count += len(effects)
        while self._waiters and self._waiters[0][0] <= self._carried_count:
            _resolve(self._waiters.pop(0)[1])

    def _do(self, effect: Effect) -> None:
        match effect:  # the most frequent first
            case Deliver():
                self._take(effect.deliveries)
            case Persist():
                pass  # written before
            case Send():
                self._carrier.send(self.address, effect.to, effect.messages)
            case SetTimer():
                self._set_timer(effect)
            case SendAll():
                self._carrier.send_all(self.address, effect.to, effect.messages)
            case Disseminate():
                topic = self._scope + effect.topic
                self._carrier.disseminate(self.address, topic, effect.messages)
            case CancelTimer():
                self._cancel_timer(effect.name)
            case Listen():
                self._carrier.listen(self.address, self._scoped(effect.topics))
            case Ignore():
                self._carrier.ignore(self.address, self._scoped(effect.topics))
            case Note():
                self._hear(effect)

    def _scoped(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self._scope + topic for topic in topics)

    def _set_timer(self, effect: SetTimer) -> None:
        self._cancel_timer(effect.name)
        wait_s = max(0, effect.at - self._clock()) / 1e6
        loop = asyncio.get_running_loop()
        self._timers[effect.name] = loop.call_later(wait_s, self._fire, effect.name)

    def _cancel_timer(self, name: str) -> None:
        handle = self._timers.pop(name, None)
        if handle is not None:
            handle.cancel()

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        if self._failure is None:
            self._given(TimerFired((name,), self._next_cause()))

    def _stop_timers(self) -> None:
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    async def stop(self) -> None:
        """Carry out what waits, and let go of the log."""
        self._stop_timers()
        try:
            await self.settled()
        finally:
            self._fail(UsageError(f"{self.address} has been stopped"))
            if self._log is not None:
                self._log.close()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
