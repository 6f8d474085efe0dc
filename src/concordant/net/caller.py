"""An application's side of a session: one door, called again whenever the channel breaks.

A `Caller` keeps what must outlive a channel: events that the node has not stored, subscriptions and
how much of each was taken. After a break it says who it is and goes on, so that nothing is lost or
doubled while the node's word holds. Waiting times grow between attempts; only the first connection
has a deadline.

It knows frames and numbers, and how to wait. What a door is made of, its `connect` knows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from concordant.errors import ConcordantError, PeerError, UsageError
from concordant.net.handles import Pen, Reading
from concordant.net.session import (
    VERSION,
    Alive,
    Announce,
    Announced,
    Bye,
    Channel,
    Delivers,
    Ended,
    Ends,
    Frame,
    Joined,
    Knock,
    Left,
    Moved,
    Moves,
    Parcel,
    Recalled,
    Recalls,
    Refused,
    Stored,
    Subscribed,
    Subscribes,
    Unstored,
    Welcome,
)
from concordant.net.tasks import ended
from concordant.net.tunnel import Tunnel

Connect = Callable[[], Awaitable[Channel]]
"""A new channel to the door; `OSError` if nobody answers."""

Answer = Callable[[Frame], None]


class CallerOptions(msgspec.Struct, frozen=True):
    """Waiting times of an application."""

    connect_s: float = 5.0
    """If nobody answers for so long at first, that is an error."""
    silence_s: float = 10.0
    alive_s: float = 2.0
    retry_s: float = 0.05
    retry_s_max: float = 2.0
    """After a failure the next attempt waits, twice as long each time, up to this."""


class MovedAway(Exception):  # noqa: N818 - an outcome, which the bus takes up
    """What was asked for belongs to another door."""

    def __init__(self, node: str, door: str) -> None:
        super().__init__(door)
        self.node = node
        self.door = door


class Caller:
    """An application at one door."""

    def __init__(
        self, connect: Connect, *, where: str, token: str = "", options: CallerOptions | None = None
    ) -> None:
        """`where` names the door in errors."""
        self.where = where
        self.batch_count_max = 1
        self.channel_count = 0
        """How often a channel was opened."""
        self._connect = connect
        self._token = token
        self._options = options or CallerOptions()
        self._channel: Channel | None = None
        self._pens: dict[str, Pen] = {}
        self._readings: dict[str, Reading] = {}
        self._tunnels: dict[str, Tunnel] = {}
        self._asked: dict[int, _Asked] = {}
        """Requests without an answer, to be made again on a new channel."""
        self._answers: dict[int, Answer] = {}
        """Who takes the answers that are due on this channel."""
        self._request = 0
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._failure: ConcordantError | None = None

    # --- the application's side -----------------------------------------------------------------

    async def start(self) -> None:
        """Connect; raises if nobody answers in time, or does not let us in."""
        self._running = asyncio.create_task(self._run())
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait((ready, self._running), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Hang up."""
        if self._running is not None:
            await ended(self._running)
        self._fail(UsageError("the bus is closed"))

    async def pen(self, source: str, *, drawn: bool = False) -> Pen:
        """The publisher of a name, which was given or drawn."""
        found = Pen(self, source, drawn=drawn)

        def begin(answer: Frame) -> None:
            assert isinstance(answer, Announced)
            found.announced(answer.last, first=True)
            self._pens[source] = found

        await self._ask(lambda request: Announce(request, source, found.writer, drawn=drawn), begin)
        return found

    async def read(self, asked: Subscribes) -> Reading:
        """A subscription that has begun."""
        found = Reading(self, asked)

        def begin(answer: Frame) -> None:  # at once: deliveries may stand right behind the answer
            assert isinstance(answer, Subscribed)
            found.begun(answer)
            self._readings[answer.id] = found

        await self._ask(lambda request: msgspec.structs.replace(asked, request=request), begin)
        return found

    async def move(self, reading: Reading, nodes: tuple[str, ...]) -> None:
        """Let other nodes serve a subscription from now on."""
        await self._ask(lambda n: Moves(n, reading.id, nodes), lambda answer: None)

    async def recall(self, reading: Reading) -> bytes:
        """What was seen by a subscription, to be told to another node."""
        known = b""

        def take(answer: Frame) -> None:
            nonlocal known
            assert isinstance(answer, Recalled)
            known = answer.known

        await self._ask(lambda n: Recalls(n, reading.id), take)
        return known

    async def end(self, reading: Reading, *, keep: bool) -> None:
        """A subscription is read no more; the node keeps it for another time, or forgets it.

        If the node is not there now, it is not waited for: it will find out by itself.
        """
        if self._readings.pop(reading.id, None) is not None and self._channel is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.connect_s):
                    await self._ask(lambda n: Ends(n, reading.id, keep), lambda answer: None)

    async def join(self, tunnel: Tunnel) -> None:
        """Let a client take part in transactions."""

        def begin(answer: Frame) -> None:
            assert isinstance(answer, Joined)
            tunnel.line = self.send
            self._tunnels[tunnel.name] = tunnel
            tunnel.joined(answer)

        await self._ask(tunnel.asks, begin)

    def next_request(self) -> int:
        self._request += 1
        return self._request

    def send(self, frame: Frame) -> None:
        """On the channel, if there is one; what must arrive is sent again on the next."""
        if self._channel is not None:
            with contextlib.suppress(OSError, EOFError):
                self._channel.send(frame)

    async def drain(self) -> None:
        if self._channel is not None:
            with contextlib.suppress(OSError, EOFError):
                await self._channel.drain()

    async def _ask(self, make: Callable[[int], Frame], begin: Answer) -> None:
        """Ask, on as many channels as it takes, until there is an answer."""
        if self._failure is not None:
            raise self._failure
        request = self.next_request()
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asked = self._asked[request] = _Asked(make, begin, answered)
        self._answers[request] = asked.take
        self.send(make(request))
        try:
            await answered
        finally:
            del self._asked[request]
            self._answers.pop(request, None)

    # --- channels -------------------------------------------------------------------------------

    async def _run(self) -> None:
        options = self._options
        wait = options.retry_s
        loop = asyncio.get_running_loop()
        deadline = loop.time() + options.connect_s
        while True:
            before = self.channel_count
            try:
                await self._converse()
            except (OSError, EOFError, TimeoutError) as error:
                if not self.channel_count and loop.time() + wait > deadline:
                    said = getattr(error, "strerror", None) or str(error) or "no answer"
                    self._fail(
                        UsageError(
                            f"nobody answers at {self.where}: {said}",
                            hint="start a node there: concordant node CLUSTER.toml --name N",
                        )
                    )
                    return
            except ConcordantError as error:
                self._fail(error)
                return
            wait = options.retry_s if self.channel_count > before else wait
            await asyncio.sleep(wait)
            wait = min(2 * wait, options.retry_s_max)

    async def _converse(self) -> None:
        """One channel, until it breaks."""
        options = self._options
        async with asyncio.timeout(options.connect_s):
            channel = await self._connect()
        alive: asyncio.Task[None] | None = None
        try:
            channel.send(Knock(VERSION, self._token))
            async with asyncio.timeout(options.connect_s):
                welcome = await channel.receive()
            if isinstance(welcome, Bye):
                raise UsageError(f"the node at {self.where} does not let us in: {welcome.reason}")
            if not isinstance(welcome, Welcome):
                raise PeerError(f"what answers at {self.where} is no node")
            self.batch_count_max = welcome.batch_count_max
            self.channel_count += 1
            self._channel = channel
            self._resume()
            self._ready.set()
            alive = asyncio.create_task(self._live(channel))
            while True:
                async with asyncio.timeout(options.silence_s):
                    frame = await channel.receive()
                self._take(frame)
        finally:
            self._channel = None
            if alive is not None:
                alive.cancel()
            channel.close()

    async def _live(self, channel: Channel) -> None:
        while True:
            await asyncio.sleep(self._options.alive_s)
            with contextlib.suppress(OSError, EOFError):
                channel.send(Alive())

    def _resume(self) -> None:
        """Say on a new channel who we are and what we want; answers to the old one are void."""
        self._answers = {}
        for pen in self._pens.values():
            request = self.next_request()
            self._answers[request] = partial(self._pen_resumed, pen)
            self.send(Announce(request, pen.source, pen.writer, resumes=True, drawn=pen.drawn))
        for reading in self._readings.values():
            request = self.next_request()
            self._answers[request] = partial(self._reading_resumed, reading)
            self.send(msgspec.structs.replace(reading.again(), request=request))
        for tunnel in self._tunnels.values():
            request = self.next_request()
            self._answers[request] = partial(self._tunnel_resumed, tunnel)
            self.send(tunnel.asks(request, resumes=True))
        for request, asked in self._asked.items():
            self._answers[request] = asked.take
            self.send(asked.make(request))

    def _pen_resumed(self, pen: Pen, answer: Frame) -> None:
        if isinstance(answer, Announced):
            pen.announced(answer.last, first=False)
        else:
            pen.fail(_error(answer))

    def _reading_resumed(self, reading: Reading, answer: Frame) -> None:
        if isinstance(answer, Subscribed):
            reading.begun(answer)
        else:
            self._readings.pop(reading.id, None)
            reading.fail(_error(answer))

    def _tunnel_resumed(self, tunnel: Tunnel, answer: Frame) -> None:
        if not isinstance(answer, Joined):
            self._tunnels.pop(tunnel.name, None)
            tunnel.fail(_error(answer))

    def _take(self, frame: Frame) -> None:
        match frame:
            case Delivers():
                reading = self._readings.get(frame.id)
                if reading is not None:
                    reading.arrived(frame)
            case Stored():
                if frame.source in self._pens:
                    self._pens[frame.source].stored(frame.last)
            case Unstored():
                if frame.source in self._pens:
                    error = UsageError(frame.message, hint=frame.hint)
                    self._pens[frame.source].unstored(frame.request, error)
            case Ended(request=0):
                ended = self._readings.pop(frame.id, None)
                if ended is not None:
                    ended.fail(PeerError(f"the node ended the subscription: {frame.reason}"))
            case Parcel():
                if frame.name in self._tunnels:
                    self._tunnels[frame.name].arrived(frame)
            case Left():
                left = self._tunnels.pop(frame.name, None)
                if left is not None:
                    left.fail(PeerError(frame.reason))
            case Announced() | Subscribed() | Recalled() | Joined() | Moved() | Refused() | Ended():
                answer = self._answers.pop(frame.request, None)
                if answer is not None:
                    answer(frame)
            case Bye():
                raise EOFError(frame.reason)
            case Alive():
                pass
            case _:
                raise PeerError(f"a node sent a {type(frame).__name__}")

    def _fail(self, error: ConcordantError) -> None:
        """It is over; whoever waits is told."""
        self._failure = self._failure or error
        for asked in self._asked.values():
            if not asked.answered.done():
                asked.answered.set_exception(error)
        for pen in self._pens.values():
            pen.fail(error)
        for reading in self._readings.values():
            reading.fail(error)
        for tunnel in self._tunnels.values():
            tunnel.fail(error)


class _Asked:
    """A request without an answer yet."""

    def __init__(
        self, make: Callable[[int], Frame], begin: Answer, answered: asyncio.Future[None]
    ) -> None:
        self.make = make
        self.answered = answered
        self._begin = begin

    def take(self, answer: Frame) -> None:
        if self.answered.done():
            return
        if isinstance(answer, Moved):
            self.answered.set_exception(MovedAway(answer.node, answer.door))
        elif isinstance(answer, Refused):
            self.answered.set_exception(_error(answer))
        else:
            self._begin(answer)
            self.answered.set_result(None)


def _error(answer: Frame) -> ConcordantError:
    if isinstance(answer, Refused):
        return UsageError(answer.message, hint=answer.hint, place=answer.place)
    return PeerError(f"the node answered with a {type(answer).__name__}")
