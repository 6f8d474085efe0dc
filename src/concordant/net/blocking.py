"""For programs without an event loop: one in a thread of its own, and what is not awaited.

`Loop` runs work and waits for it. `Unawaited` has the operations of something asynchronous, without
`await`; `Blocking` is a transaction by `with`. The module knows no protocol.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from concordant.net.transactions import Answer, Handler, Planning, Transaction
from concordant.transact.actions import Outcome
from concordant.transact.client import Triggered

T = TypeVar("T")

BlockingHandler = Callable[[Triggered, "Unawaited"], None]
"""What a participant does when it is triggered; it acts through the second, and awaits nothing."""


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this on the loop, and wait for it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def handler(self, wanted: BlockingHandler | None) -> Handler | None:
        """The same as a coroutine: each call has a thread, so that it may wait for what it does."""
        if wanted is None:
            return None

        async def handle(trigger: Triggered, answer: Answer) -> None:
            await asyncio.to_thread(wanted, trigger, Unawaited(self, answer))

        return handle


class Unawaited:
    """The operations of something asynchronous, without `await`."""

    def __init__(self, loop: Loop, within: Any) -> None:
        self._loop = loop
        self._within = within

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._within, name)
        if not asyncio.iscoroutinefunction(found):
            return found
        return lambda *given, **named: self._loop.run(found(*given, **named))


class Blocking(Unawaited):
    """A transaction by `with`."""

    _within: Planning | Transaction

    def __enter__(self) -> Blocking:
        self._loop.run(self._within.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self._within.__aexit__(kind, error, trace))

    @property
    def outcome(self) -> Outcome:
        """Known after the block."""
        return self._within.outcome
