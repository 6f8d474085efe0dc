"""The named subscriptions of a node, on its disk: what was asked for, and how much was taken.

It knows a log and subscriptions as they were asked for. What was taken is written without waiting:
after a crash an application that does not know better is given a few deliveries again.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from urllib.parse import quote

import msgspec

from concordant.errors import ConcordantError
from concordant.net.commit import GroupCommit
from concordant.net.log import Log
from concordant.net.session import Subscribes

_SPARE_COUNT = 1_000
"""Records that may be outdated before the log is written anew."""


class _Added(msgspec.Struct, frozen=True, tag="added"):
    asked: Subscribes


class _Took(msgspec.Struct, frozen=True, tag="took"):
    name: str
    count: int


class _Removed(msgspec.Struct, frozen=True, tag="removed"):
    name: str


_Record = _Added | _Took | _Removed
_decoder = msgspec.msgpack.Decoder(_Record)
_encoder = msgspec.msgpack.Encoder()


class Register:
    """Subscriptions by name, durable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = Log(folder)
        self._commit = GroupCommit(self._log)
        self._asked: dict[str, Subscribes] = {}
        self._taken: dict[str, int] = {}
        self._record_count = 0
        self._writes: set[asyncio.Task[None]] = set()
        for data in self._log.records():
            self._remember(_decoder.decode(data))

    def _remember(self, record: _Record) -> None:
        self._record_count += 1
        if isinstance(record, _Added):
            self._asked[record.asked.name] = record.asked
            self._taken[record.asked.name] = record.asked.taken or 0
        elif isinstance(record, _Took):
            if record.name in self._taken:
                self._taken[record.name] = record.count
        else:
            self._asked.pop(record.name, None)
            self._taken.pop(record.name, None)

    def subscriptions(self) -> list[tuple[Subscribes, int]]:
        """All of them, and how much of each was taken."""
        return [(asked, self._taken[name]) for name, asked in self._asked.items()]

    async def add(self, asked: Subscribes) -> None:
        """A new one; on return it is durable."""
        await self._write(_Added(asked))

    async def remove(self, name: str) -> None:
        """One that is over, with its log."""
        await self._write(_Removed(name))
        folder = self._folder.parent / "subscriptions" / quote(name, safe="")
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def took(self, name: str, count: int) -> None:
        """So many were taken; written soon."""
        self._spawn(self._write(_Took(name, count)))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._writes.add(task)
        task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writes.discard(task)
        if not task.cancelled() and isinstance(task.exception(), ConcordantError):
            return  # the next `add` says what is wrong with the disk

    async def _write(self, record: _Record) -> None:
        self._remember(record)
        if self._record_count > 2 * len(self._asked) + _SPARE_COUNT:
            records: list[_Record] = []
            for name, asked in self._asked.items():
                records += [_Added(asked), _Took(name, self._taken[name])]
            self._record_count = len(records)
            await self._commit.replace([_encoder.encode(one) for one in records])
        else:
            await self._commit.append([_encoder.encode(record)])

    async def stop(self) -> None:
        """Wait for the writes, and let go of the log."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        self._log.close()
