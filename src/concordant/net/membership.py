"""An application in transactions: it joins at the node of its name when it is first needed.

A `Membership` hosts the application's client (`net.transactions.Door`) and leads its messages
through the application's session. The module knows who joins where; sessions are the caller's
matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from concordant.errors import ConcordantError, UsageError
from concordant.net.caller import Caller
from concordant.net.session import Joined
from concordant.net.tasks import ended
from concordant.net.transactions import Cut, Door, Handler, TakeEvent
from concordant.net.tunnel import BROKER, Tunnel

AtHome = Callable[[Callable[[Caller], Awaitable[None]]], Awaitable[None]]
"""Asks at the door of the node that the name belongs to."""


class Membership:
    """One application's part in transactions."""

    def __init__(self, name: str, at_home: AtHome, *, drawn: bool) -> None:
        self._name = name
        self._drawn = drawn
        self._at_home = at_home
        self._door: Door | None = None
        self._joining: asyncio.Task[None] | None = None

    def door(self) -> Door:
        """The application's client; whoever uses it waits until it has joined."""
        if self._drawn:
            raise UsageError(
                "a bus without a name takes part in no transaction: what it advertises and "
                "subscribes to is kept under its name",
                hint='give it one: Bus.open(url, name="shop")',
            )
        if self._door is None:
            tunnel = Tunnel(self._name)
            self._door = Door(self._name, BROKER, tunnel)
            self._joining = asyncio.create_task(self._join(self._door, tunnel))
        return self._door

    async def participant(
        self, handler: Handler | None, take: TakeEvent | None, cut: Cut | None
    ) -> Door:
        """The client, joined, with what it does when a trigger or an event comes."""
        found = self.door()
        found.handler = handler or found.handler
        found.take = take or found.take
        found.cut = cut or found.cut
        await found.connected()
        return found

    async def _join(self, door: Door, tunnel: Tunnel) -> None:
        def joined(answer: Joined) -> None:
            door.kinds, door.topics = answer.kinds, answer.topics

        tunnel.joined, tunnel.fail = joined, door.fail
        try:
            await self._at_home(lambda caller: caller.join(tunnel))
        except ConcordantError as error:
            door.fail(error)
            self._door = None  # whoever asks again, tries again

    async def stop(self) -> None:
        """What the application has stays at its broker; its open transactions abort in time."""
        if self._joining is not None:
            await ended(self._joining)
        if self._door is not None:
            await self._door.stop()
