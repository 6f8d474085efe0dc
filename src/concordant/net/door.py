"""Where applications come in: sessions, their requests, and what they are sent.

A session is served from its greeting to its end, over any channel. What an application may cost is
bounded: connections, frames, batches, what waits for it. What it does wrong is answered with a
sentence, or ends its session with a counted reason; it never reaches a machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import traceback
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from concordant.errors import PeerError, UsageError
from concordant.machine.instant import Instant
from concordant.net.cluster import Cluster
from concordant.net.host import microseconds
from concordant.net.hosting import Hosted, Hosting
from concordant.net.inlet import Inlet
from concordant.net.overlay import Member, Overlay
from concordant.net.session import (
    PUBLISHES_COUNT_MAX,
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
    Joins,
    Knock,
    Left,
    Moved,
    Moves,
    Parcel,
    Publishes,
    Recalled,
    Recalls,
    Refused,
    Stored,
    Subscribed,
    Subscribes,
    Took,
    Unstored,
    Welcome,
)
from concordant.net.tasks import ended

GREETING_S = 5.0
"""A connection that does not greet in this time is closed."""
ALIVE_S = 2.0
SILENCE_S = 10.0
"""Both sides speak every two seconds at least; who is silent for ten is taken for gone."""
_REASON_COUNT_MAX = 64

Say = Callable[..., None]
"""Writes to the node's journal: what happened, and fields."""


class Door:
    """Serves the sessions of a node."""

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        inlet: Inlet,
        hosting: Hosting,
        overlay: Overlay | None = None,
        *,
        token: str,
        say: Say,
    ) -> None:
        self.cluster = cluster
        self.node = node
        self.inlet = inlet
        self.hosting = hosting
        self.overlay = overlay
        """Where transactions are, if the cluster has them."""
        self.say = say
        self.refused: Counter[str] = Counter()
        """Sessions that were ended, by reason."""
        self.sessions: dict[Session, bool] = {}
        self._emptied = asyncio.Event()
        self.writers: dict[str, str] = {}
        """Who publishes under a name: the last one that came."""
        self.drawn: dict[str, Instant] = {}
        """Drawn names whose application is away, and since when."""
        self._token = token

    async def serve(self, channel: Channel) -> None:
        """One session, from its greeting to its end."""
        session: Session | None = None
        try:
            async with asyncio.timeout(GREETING_S):
                knock = await channel.receive()
            self._let_in(knock)
            channel.send(
                Welcome(
                    VERSION,
                    self.cluster.cluster.name,
                    self.node,
                    self.cluster.limits.batch_count_max,
                )
            )
            session = Session(self, channel)
            self.sessions[session] = True
            await session.run()
        except (OSError, EOFError, TimeoutError) as error:
            if session is None:
                self._count(type(error).__name__)
        except PeerError as error:
            self._count(str(error))
            with contextlib.suppress(OSError, EOFError):
                channel.send(Bye(str(error)))
        finally:
            if session is not None:
                self.sessions.pop(session, None)
                session.leave()
                self._emptied.set()
            channel.close()

    def _let_in(self, knock: Frame) -> None:
        if not isinstance(knock, Knock):
            raise PeerError("the first frame is no greeting")
        if knock.version != VERSION:
            raise PeerError(f"version {knock.version} of the sessions, and this is {VERSION}")
        if not hmac.compare_digest(knock.token.encode(), self._token.encode()):
            raise PeerError("it does not show the credentials of an application")
        if len(self.sessions) >= self.cluster.limits.sessions_max:
            raise PeerError("too many sessions")

    def _count(self, reason: str) -> None:
        # Reasons may quote strangers, who must not fill the memory with them.
        if len(self.refused) >= _REASON_COUNT_MAX and reason not in self.refused:
            reason = "other"
        self.refused[reason] += 1

    def moved(self, key: str) -> tuple[str, str] | None:
        """The node and the door that a name belongs to, if that is another one."""
        home = self.cluster.home(key)
        return None if home == self.node else (home, self.cluster.nodes[home].door)

    def retire(self, now: Instant) -> None:
        """Forget the publishers that had drawn names and stay away."""
        longest = self.cluster.limits.lag_us_max
        for source in [one for one, since in self.drawn.items() if now - since > longest]:
            del self.drawn[source]
            self.writers.pop(source, None)
            self.inlet.retire(source)

    def close(self) -> None:
        """End all sessions: the node stops."""
        for session in list(self.sessions):
            session.end("the node stops")

    async def empty(self) -> None:
        """Wait until all sessions have ended."""
        while self.sessions:
            self._emptied.clear()
            await self._emptied.wait()


class Session:
    """One application that is here."""

    def __init__(self, door: Door, channel: Channel) -> None:
        self._door = door
        self._channel = channel
        self._work = asyncio.Event()
        """Deliveries may be due, or events stored."""
        self._publishes: deque[Publishes] = deque()
        """Events that wait: for their turn, for slow subscribers, for room."""
        self._publishing: asyncio.Task[None] | None = None
        self._stored: deque[Stored] = deque()
        """Events that were given, and are not durable yet."""
        self._storing: asyncio.Task[None] | None = None
        self._subscriptions: dict[str, Hosted] = {}
        self._writers: dict[str, str] = {}
        self._drawn: list[str] = []
        """Those of the names that were drawn."""
        self._requests: set[asyncio.Task[None]] = set()
        self._members: dict[str, str] = {}
        """Under which names the application takes part in transactions, and its tokens."""

    async def run(self) -> None:
        """Until either side ends it."""
        sending = asyncio.create_task(self._send())
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, sending):
                if task.done():
                    task.result()
        finally:
            tasks = [sending, reading, *self._requests]
            tasks += [one for one in (self._publishing, self._storing) if one is not None]
            await ended(*tasks)

    def leave(self) -> None:
        """The session is over; its subscriptions go on for a while, or as long as they have to."""
        now = microseconds()
        for one in self._subscriptions.values():
            if one.wake is not None:
                self._door.hosting.leave(one, now)
        for source in self._drawn:
            if self._door.writers.get(source) == self._writers[source]:
                self._door.drawn[source] = now
        for name, token in self._members.items():
            if self._door.overlay is not None:
                self._door.overlay.leave(name, token)

    def end(self, reason: str) -> None:
        """Say good-bye."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.send(Bye(reason))
        self._channel.close()

    # --- out ------------------------------------------------------------------------------------

    async def _send(self) -> None:
        while True:
            try:
                async with asyncio.timeout(ALIVE_S):
                    await self._work.wait()
            except TimeoutError:
                self._channel.send(Alive())
            self._work.clear()
            busy = True
            while busy:
                busy = False
                for id, one in list(self._subscriptions.items()):
                    first, found = one.outlet.due()
                    if found:
                        busy = True
                        self._channel.send(Delivers(id, first, found))
                await self._channel.drain()

    def tell(self, frame: Frame) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._channel.send(frame)

    # --- in -------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            async with asyncio.timeout(SILENCE_S):
                frame = await self._channel.receive()
            if isinstance(frame, Publishes):
                self._publish_later(frame)
            elif isinstance(frame, Took):
                one = self._subscriptions.get(frame.id)
                if one is not None:  # else it was cut off meanwhile
                    self._door.hosting.took(one, frame.count)
                    self._work.set()
            elif isinstance(frame, Announce):
                self._request(self._announce, frame)
            elif isinstance(frame, Subscribes):
                self._request(self._subscribe, frame)
            elif isinstance(frame, Ends):
                self._request(self._end, frame)
            elif isinstance(frame, Moves):
                self._request(self._move, frame)
            elif isinstance(frame, Recalls):
                self._request(self._recall, frame)
            elif isinstance(frame, Joins):
                self._request(self._join, frame)
            elif isinstance(frame, Parcel):
                self._parcel(frame)
            elif not isinstance(frame, Alive):
                raise PeerError(f"a {type(frame).__name__} in the middle of a session")

    def _request(self, answer: Callable[[Any], Any], frame: Any) -> None:
        """Answer beside the reading: a subscription may take a while to begin."""
        if len(self._requests) >= self._door.cluster.limits.subscriptions_max:
            raise PeerError("too many requests at once")
        task = asyncio.create_task(self._answered(answer, frame))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _answered(self, answer: Callable[[Any], Any], frame: Any) -> None:
        try:
            await answer(frame)
        except UsageError as error:
            self.tell(Refused(frame.request, error.message, error.hint, error.place))
        except Exception as error:  # whatever it is, it is ours: the application must not wait
            self._door.say("bug", error=repr(error), trace=traceback.format_exc())
            said = f"a bug in concordant: {type(error).__name__}: {error}"
            self.tell(Refused(frame.request, said, "see the journal of the node"))

    def _name(self, name: str) -> None:
        most = self._door.cluster.limits.text_bytes_max
        if len(name.encode()) > most:
            raise UsageError(f"a text or name has at most {most:,} bytes")

    # --- publishing -----------------------------------------------------------------------------

    async def _announce(self, frame: Announce) -> None:
        door = self._door
        self._name(frame.source)
        if not frame.source or frame.source.startswith("$"):
            raise UsageError(
                f"{frame.source!r} is no name for a publisher",
                hint="choose one that does not begin with $",
            )
        # Nobody comes again under a drawn name: it may stay where its application is, which has
        # its subscriptions there.
        elsewhere = None if frame.drawn else door.moved(frame.source)
        if elsewhere is not None:
            self.tell(Moved(frame.request, *elsewhere))
            return
        writer = door.writers.get(frame.source)
        if frame.resumes and writer is not None and writer != frame.writer:
            raise UsageError(
                f"another application publishes as {frame.source!r} now",
                hint="give each application that publishes a name of its own",
            )
        door.writers[frame.source] = self._writers[frame.source] = frame.writer
        if frame.drawn:
            self._drawn.append(frame.source)
            door.drawn.pop(frame.source, None)
        await door.inlet.settled()
        self.tell(Announced(frame.request, door.inlet.last(frame.source)))

    def _publish_later(self, frame: Publishes) -> None:
        # Beside the reading: what the application took is read while its own events are held back.
        if len(self._publishes) >= PUBLISHES_COUNT_MAX:
            raise PeerError("more events at once than a session may send")
        if frame.source not in self._writers:
            raise PeerError("events of a publisher that was not announced")
        self._publishes.append(frame)
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self._publish_waiting())

    async def _publish_waiting(self) -> None:
        while self._publishes:
            await self._publish(self._publishes[0])
            self._publishes.popleft()

    async def _publish(self, frame: Publishes) -> None:
        door = self._door
        writer = self._writers[frame.source]
        try:
            if door.writers.get(frame.source) != writer:
                raise UsageError(
                    f"another application publishes as {frame.source!r} now",
                    hint="give each application that publishes a name of its own",
                )
            door.inlet.learn(frame.known)
            last = await door.inlet.publish(frame.source, frame.first, frame.events)
        except UsageError as error:
            self.tell(Unstored(frame.request, frame.source, error.message, error.hint))
            return
        self._stored.append(Stored(frame.source, last))
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store())

    async def _store(self) -> None:
        """Tell what is durable, as soon as it is, many at a time."""
        while self._stored:
            given, self._stored = self._stored, deque()
            await self._door.inlet.settled()
            for source, last in {one.source: one.last for one in given}.items():
                self.tell(Stored(source, last))

    # --- subscriptions --------------------------------------------------------------------------

    async def _subscribe(self, frame: Subscribes) -> None:
        door = self._door
        self._name(frame.text)
        self._name(frame.name)
        if frame.name:
            elsewhere = door.moved(frame.name)
            if elsewhere is not None:
                self.tell(Moved(frame.request, *elsewhere))
                return
        one = await door.hosting.open(frame)
        one.wake = self._work.set
        one.release = lambda reason: self.release(one, reason)
        self._subscriptions[one.id] = one
        door.say("subscribed", id=one.id, text=frame.text, strategy=one.strategy.name)
        self.tell(Subscribed(frame.request, one.id, one.outlet.taken))
        self._work.set()

    async def _move(self, frame: Moves) -> None:
        one = self._subscriptions.get(frame.id)
        if one is None:
            raise UsageError("the subscription is over")
        self._door.hosting.move(one, frame.nodes)
        self.tell(Subscribed(frame.request, one.id, one.outlet.taken))

    async def _recall(self, frame: Recalls) -> None:
        one = self._subscriptions.get(frame.id)
        if one is None:
            raise UsageError("the subscription is over")
        known = self._door.hosting.known(one)
        self.tell(Recalled(frame.request, self._door.inlet.seal.close(*known)))

    async def _end(self, frame: Ends) -> None:
        one = self._subscriptions.pop(frame.id, None)
        if one is not None and frame.keep:
            self._door.hosting.leave(one, microseconds())
        elif one is not None:
            await self._door.hosting.end(one)
            self._door.say("unsubscribed", id=frame.id)
        self.tell(Ended(frame.id, "", frame.request))

    def release(self, one: Hosted, reason: str) -> None:
        """A subscription no longer belongs to this session, and the application is told."""
        if self._subscriptions.pop(one.id, None) is not None:
            self.tell(Ended(one.id, reason))

    # --- transactions ---------------------------------------------------------------------------

    async def _join(self, frame: Joins) -> None:
        overlay = self._door.overlay
        if overlay is None:
            raise UsageError(
                "this cluster has no transactions",
                hint='write transactions = "shared" or "isolated" under [cluster] in its file; a '
                "bus in memory is given it when it is opened",
            )
        self._name(frame.name)
        elsewhere = self._door.moved(frame.name)
        if elsewhere is not None:
            self.tell(Moved(frame.request, *elsewhere))
            return
        member = Member(
            frame.member,
            send=lambda body: self.tell(Parcel(frame.name, body)),
            leave=lambda reason: self.tell(Left(frame.name, reason)),
        )
        await overlay.join(frame.name, member, resumes=frame.resumes)
        self._members[frame.name] = frame.member
        self.tell(overlay.joined(frame.request))

    def _parcel(self, frame: Parcel) -> None:
        if self._door.overlay is None or frame.name not in self._members:
            raise PeerError("messages of a client that has not joined")
        self._door.overlay.received(frame, self._members[frame.name])
