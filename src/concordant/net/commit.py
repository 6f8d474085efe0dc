"""Group commit: many wait for the disk together.

While one sync is under way, what is appended meanwhile gathers, and goes to the disk as one frame.
One caller alone waits for one sync each time; a thousand callers wait for it together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from concordant.net.log import Log


@dataclass
class _Given:
    records: Sequence[bytes]
    replaces: bool
    durable: asyncio.Future[None]


class GroupCommit:
    """Writes to a log from one event loop; the disk is waited for in a thread."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._given: list[_Given] = []
        self._writer: asyncio.Task[None] | None = None

    async def append(self, records: Sequence[bytes]) -> None:
        """Append records; on return they are durable, in the order of the calls.

        A failed write is raised to everybody whose records were in it or came after it. A caller
        that is cancelled does not take its records back.
        """
        await self._give(records, replaces=False)

    async def replace(self, records: Sequence[bytes]) -> None:
        """Let records take the place of everything given before; durable on return."""
        await self._give(records, replaces=True)

    async def _give(self, records: Sequence[bytes], *, replaces: bool) -> None:
        durable = asyncio.get_running_loop().create_future()
        self._given.append(_Given(records, replaces, durable))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        await durable

    async def _write(self) -> None:
        while self._given:
            given, self._given = self._given, []
            snapshots = [place for place, one in enumerate(given) if one.replaces]
            write = self._log.replace if snapshots else self._log.append
            wanted = given[snapshots[-1] :] if snapshots else given
            records = [record for one in wanted for record in one.records]
            try:
                await asyncio.to_thread(write, records)
            except Exception as error:
                for one in given:
                    if not one.durable.done():
                        one.durable.set_exception(error)
            else:
                for one in given:
                    if not one.durable.done():
                        one.durable.set_result(None)

    async def settle(self) -> None:
        """Wait until everything given so far was written, well or not."""
        if self._writer is not None:
            await asyncio.shield(self._writer)
