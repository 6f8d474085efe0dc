"""What an application holds in its hand: a pen that publishes, a reading of a subscription.

Both outlive the channels that carry them. A pen numbers events and sends them until they are
stored; a reading takes deliveries by their numbers, each once. They know numbers and waiting, and
send by a line (`net.caller`) that may be down.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import Protocol

import msgspec

from concordant.errors import ConcordantError, PeerError
from concordant.machine.effects import Delivery
from concordant.net.session import (
    PUBLISHES_COUNT_MAX,
    Delivers,
    Frame,
    Given,
    Publishes,
    Subscribed,
    Subscribes,
    Took,
)

_TOLD_COUNT = 64
"""A node is told what was taken after so many deliveries, or when no more are here."""


class Line(Protocol):
    """Sends frames, if there is a channel."""

    def next_request(self) -> int: ...

    def send(self, frame: Frame) -> None: ...

    async def drain(self) -> None: ...


class Pen:
    """One publisher: its events get numbers, and are sent until they are stored."""

    def __init__(self, line: Line, source: str, *, drawn: bool) -> None:
        self.source = source
        self.drawn = drawn
        self.writer = secrets.token_hex(8)
        self._line = line
        self._next = 1
        self._under_way: dict[int, tuple[Publishes, asyncio.Future[int]]] = {}
        """By request, in the order of numbers."""
        self._room = asyncio.Event()
        self._failure: ConcordantError | None = None

    async def publish(self, events: list[Given], known: tuple[bytes, ...] = ()) -> int:
        """Publish events together; on return they are stored. The number of the last.

        `known` is what the application has seen at other nodes.
        """
        while self._failure is None and len(self._under_way) >= PUBLISHES_COUNT_MAX:
            self._room.clear()
            await self._room.wait()
        if self._failure is not None:
            raise self._failure
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._send(events, known, stored)
        await self._line.drain()
        # Whoever gives up waiting does not take the events back: they may be on their way.
        return await asyncio.shield(stored)

    def _send(
        self, events: list[Given], known: tuple[bytes, ...], stored: asyncio.Future[int]
    ) -> None:
        frame = Publishes(self._line.next_request(), self.source, self._next, events, known)
        self._next += len(events)
        self._under_way[frame.request] = (frame, stored)
        self._line.send(frame)

    def announced(self, last: int, *, first: bool) -> None:
        """The node has everything up to this number."""
        if first:
            self._next = last + 1
            return
        if last >= self._next:
            self.fail(
                PeerError(f"another application publishes as {self.source!r}: give it another name")
            )
            return
        self.stored(last)
        for frame, _ in self._under_way.values():
            self._line.send(frame)

    def stored(self, last: int) -> None:
        for request, (frame, stored) in list(self._under_way.items()):
            end = frame.first + len(frame.events) - 1
            if end > last:
                break
            del self._under_way[request]
            if not stored.done():
                stored.set_result(end)
        self._room.set()

    def unstored(self, request: int, error: ConcordantError) -> None:
        """A batch was refused: what was sent after it gets its numbers."""
        refused = self._under_way.pop(request, None)
        if refused is None:
            return
        later = [one for one in self._under_way.values() if one[0].first > refused[0].first]
        for frame, _ in later:
            del self._under_way[frame.request]
        self._next = refused[0].first
        for frame, stored in later:
            self._send(frame.events, frame.known, stored)
        if not refused[1].done():
            refused[1].set_exception(error)
        self._room.set()

    def fail(self, error: ConcordantError) -> None:
        self._failure = self._failure or error
        for _, stored in self._under_way.values():
            if not stored.done():
                stored.set_exception(error)
                stored.exception()  # nobody may be waiting any longer
        self._under_way.clear()
        self._room.set()


class Reading:
    """One subscription: its deliveries in order, each once."""

    def __init__(self, line: Line, asked: Subscribes) -> None:
        self.asked = asked
        self.id = ""
        self.taken = asked.taken or 0
        self._line = line
        self._arrived: deque[Delivery] = deque()
        """The first has the number `taken + 1`, or the one after if it is being taken."""
        self._taking = False
        self._told = 0
        self._more = asyncio.Event()
        self._failure: ConcordantError | None = None

    @property
    def seen_count(self) -> int:
        """How many deliveries the application has had in its hands."""
        return self.taken + self._taking

    async def next(self) -> Delivery:
        """The next delivery. The one before counts as taken from now on."""
        self.take()
        while not self._arrived:
            if self._failure is not None:
                raise self._failure
            self._more.clear()
            await self._more.wait()
        self._taking = True
        return self._arrived.popleft()

    def take(self, *, tell: bool = False) -> None:
        """The last delivery is done with; the node is told at once, or in groups."""
        if self._taking:
            self._taking = False
            self.taken += 1
        untold = self.taken - self._told
        if untold >= _TOLD_COUNT or (untold and (tell or not self._arrived)):
            self._told = self.taken
            self._line.send(Took(self.id, self.taken))

    def begun(self, frame: Subscribed) -> None:
        """The node sends what comes after so many; what was not taken comes again."""
        self.id = frame.id
        self.taken = self._told = frame.taken
        self._arrived.clear()

    def arrived(self, frame: Delivers) -> None:
        due = self.taken + self._taking + len(self._arrived) + 1
        if frame.first > due:
            raise PeerError(f"delivery {frame.first} came where {due} was due")
        self._arrived.extend(frame.deliveries[due - frame.first :])
        self._more.set()

    def again(self) -> Subscribes:
        """What to ask for on a new channel."""
        id = "" if self.asked.name else self.id
        return msgspec.structs.replace(self.asked, id=id, taken=self.taken)

    def fail(self, error: ConcordantError) -> None:
        """There will be no more."""
        self._failure = self._failure or error
        self._more.set()
