"""Group commit: many wait for the disk together.

While one sync is under way, what is appended meanwhile gathers, and goes to the disk as one frame.
One caller alone waits for one sync each time; a thousand callers wait for it together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from concordant.errors import UsageError
from concordant.net.log import Log


class _Durable(asyncio.Future[None]):
    """Many wait for it, and one that gives up does not end the wait of the others.

    A task that is cancelled while it waits ends when the write has ended.
    """

    def cancel(self, msg: object | None = None) -> bool:
        return False


class _Group:
    """What goes to the disk together."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.replaces = False
        self.durable = _Durable()


class GroupCommit:
    """Writes to a log from one event loop; the disk is waited for in a thread."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._group: _Group | None = None
        """What was given and is not being written yet."""
        self._writer: asyncio.Task[None] | None = None

    async def append(self, records: Sequence[bytes]) -> None:
        """Append records; on return they are durable, in the order of the calls.

        A failed write is raised to everybody whose records were in it or came after it. A caller
        that is cancelled does not take its records back.
        """
        group = self._gathering()
        group.records += records
        await group.durable

    async def replace(self, records: Sequence[bytes]) -> None:
        """Let records take the place of everything given before; durable on return."""
        group = self._gathering()
        group.records = list(records)
        group.replaces = True
        await group.durable

    def _gathering(self) -> _Group:
        if self._group is None:
            self._group = _Group()
            if self._writer is None or self._writer.done():
                self._writer = asyncio.create_task(self._write())
                self._writer.add_done_callback(self._ended)
        return self._group

    async def _write(self) -> None:
        while self._group is not None:
            group, self._group = self._group, None
            await self._write_group(group)

    def _ended(self, writer: asyncio.Task[None]) -> None:
        """Perhaps before its time, because the event loop ends: nobody may wait for ever."""
        if writer.cancelled() and self._group is not None:
            _fail(self._group, UsageError("the log is closed"))
            self._group = None

    async def _write_group(self, group: _Group) -> None:
        write = self._log.replace if group.replaces else self._log.append
        try:
            await asyncio.to_thread(write, group.records)
        except BaseException as error:
            _fail(group, error)
            if not isinstance(error, Exception):
                raise
        else:
            group.durable.set_result(None)

    async def settle(self) -> None:
        """Wait until everything given so far was written, well or not."""
        if self._writer is not None:
            await asyncio.shield(self._writer)


def _fail(group: _Group, error: BaseException) -> None:
    if not isinstance(error, Exception):
        error = UsageError("the log is closed")
    group.durable.set_exception(error)
    group.durable.exception()  # those who waited may be gone
