"""Work on Spark in a thread of its own, so that Ctrl-C never meets a call to the JVM.

Python raises an interruption in the main thread, wherever that is. In the middle of a call to the
JVM it tears the connection down half-used, while the work has yet to be stopped over it. So the
main thread only waits: an interruption asks the work to stop, cancels its jobs, and is raised when
the work has ended. A second one is raised at once. Knows threads, nothing of events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Event, Thread
from typing import Any, TypeVar

_R = TypeVar("_R")

_AGAIN_SECONDS = 0.5
"""How long a wait lasts. An interruption that came just before a wait does not end it, so it is
raised between two. Work that was asked to stop may begin another job: that is cancelled, too."""


class Stop:
    """What the one who waits and the one who works share."""

    def __init__(self) -> None:
        self._asked = Event()
        self.session: Any = None
        """The session whose jobs are cancelled, as soon as the work has one."""

    def ask(self) -> None:
        """The work shall end; said by the one who waits."""
        self._asked.set()
        if self.session is not None:
            with contextlib.suppress(Exception):  # it may end at this moment
                self.session.interruptAll()

    def check(self) -> None:
        """Called by the work, wherever it may end."""
        if self._asked.is_set():
            raise KeyboardInterrupt


def aside(work: Callable[[Stop], _R], *, stopping: Callable[[], None] = lambda: None) -> _R:
    """Do the work, given the means to hear of an interruption; `stopping` hears of one, too."""
    stop, begun, done = Stop(), Event(), Future[_R]()

    def run() -> None:
        begun.wait()
        try:
            done.set_result(work(stop))
        except BaseException as error:  # told to whoever waits, whatever it is
            done.set_exception(error)

    Thread(target=run, name="work on Spark", daemon=True).start()
    try:
        begun.set()  # from here on an interruption is heard; one before it finds nothing begun
        while wait([done], timeout=_AGAIN_SECONDS).not_done:
            pass
        return done.result()
    except KeyboardInterrupt:
        stopping()
        stop.ask()
        while wait([done], timeout=_AGAIN_SECONDS).not_done:
            stop.ask()
        raise
