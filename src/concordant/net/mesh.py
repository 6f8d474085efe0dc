"""The links of one node: connections made, kept, broken and made anew, whatever carries them.

Of two nodes, the one with the smaller name connects and the other is connected to, so that there is
one connection. A mesh hands out payloads as they arrive, and one counts as taken when the
application asks for the next. The peer is told so with what goes to it anyway, or a moment later:
a frame for every payload would cost as much as the payloads do. A mesh knows waiting times and who
may come in; numbers and windows are the link's, how bytes travel is for `tcp` and `nats_links` to
say, and what a payload means is unknown here.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from concordant.errors import PeerError, UsageError
from concordant.net.link import (
    FRAME_BYTES_MAX,
    Alive,
    Bye,
    Frame,
    Hello,
    Identity,
    Link,
    Taken,
    decode_frame,
    encode_frame,
)
from concordant.net.tasks import ended

_TOLD_COUNT = 64
_TOLD_SHARE = 4
_TOLD_S = 0.02
"""A peer is told that payloads were taken after so many, or this part of the window, or so long."""
PAYLOAD_BYTES_MAX = FRAME_BYTES_MAX // 2
"""What is longer cannot be sent at once."""

_REASON_COUNT_MAX = 64
_READ_BYTES = 1 << 18


class Reader(Protocol):
    """Bytes of a connection, in order; `EOFError` or `OSError` when it is gone."""

    async def read(self, n: int, /) -> bytes:
        """What is there, up to so many bytes, waiting for at least one; nothing at the end."""
        ...

    async def readexactly(self, n: int, /) -> bytes: ...


class Writer(Protocol):
    """Where the bytes of a connection go."""

    def write(self, data: bytes, /) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class MeshOptions:
    """Waiting times and bounds of connections."""

    greeting_s: float = 5.0
    """A connection that does not greet in this time is closed: it may hold a place, not keep it."""
    silence_s: float = 10.0
    """A peer that says nothing for so long is taken for gone, and the connection is made anew."""
    alive_s: float = 2.0
    """A sign of life is sent so often."""
    retry_s: float = 0.05
    retry_s_max: float = 2.0
    """After a failure the next attempt waits, twice as long each time, up to this."""
    strangers_max: int = 64
    """Connections that have not greeted yet; further ones are closed at once."""
    waiting_bytes_max: int = 1 << 24


@dataclass(eq=False)
class Peer:
    link: Link
    writer: Writer | None = None
    work: asyncio.Event = field(default_factory=asyncio.Event)
    """Something may be due to be sent."""
    room: asyncio.Event = field(default_factory=asyncio.Event)
    """The peer took something, so that there may be room again."""
    life: str = ""
    """Of the peer, on the last connection."""
    untold: int = 0
    untold_bytes: int = 0
    """Payloads of this life that the application took, and the peer was not told."""


class Links(ABC):
    """The links of one node; a kind of connection fills in `_open`."""

    def __init__(self, me: Identity, peers: Iterable[str], *, options: MeshOptions | None) -> None:
        self.me = me
        self.options = options or MeshOptions()
        self.refused: Counter[str] = Counter()
        """Connections that were closed, by reason."""
        self._peers = {name: Peer(self._link()) for name in peers if name != me.node}
        self._arrived: deque[tuple[Peer, str, str, bytes]] = deque()
        """From whom, in which life, its name, and the payload; bounded by the windows of all
        links."""
        self._arrival = asyncio.Event()
        self._taking: tuple[Peer, str, int] | None = None
        """The payload received last: from whom, in which life, its length."""
        self._telling: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stranger_count = 0

    def _link(self) -> Link:
        return Link(self.me, waiting_bytes_max=self.options.waiting_bytes_max)

    @abstractmethod
    async def _open(self, name: str) -> tuple[Reader, Writer]:
        """A connection to a peer; `OSError` if there is none now."""

    def _connect_to(self, names: Iterable[str]) -> None:
        """Connect to those of the peers with greater names; the others connect to us."""
        for name in names:
            if self.me.node < name:
                self._spawn(self._connect(name, self._peers[name]))

    # --- the node's side ------------------------------------------------------------------------

    async def stop(self) -> None:
        """Say good-bye and close everything."""
        if self._telling is not None:
            self._telling.cancel()
            self._tell_all()
        for peer in self._peers.values():
            if peer.writer is not None:
                with contextlib.suppress(OSError):
                    peer.writer.write(encode_frame(Bye("the node stops")))
        await ended(*self._tasks)

    async def send(self, to: str, payload: bytes) -> None:
        """Let a payload go to a peer; waits while too much waits already."""
        while not self.send_now(to, payload):
            room = self._peers[to].room
            room.clear()
            await room.wait()

    def send_now(self, to: str, payload: bytes) -> bool:
        """Let a payload go to a peer; False (and nothing is kept) if too much waits already."""
        peer = self._peers.get(to)
        if peer is None:
            raise UsageError(f"there is no peer {to!r}", hint=f"known: {', '.join(self._peers)}")
        if not 0 < len(payload) <= PAYLOAD_BYTES_MAX:
            raise UsageError(
                f"a payload of {len(payload):,} bytes cannot be sent",
                hint=f"send 1 to {PAYLOAD_BYTES_MAX:,} bytes at once",
            )
        if not peer.link.send(payload):
            return False
        peer.work.set()
        return True

    async def receive(self) -> tuple[str, bytes]:
        """The next payload, and whose it is. The one before counts as taken from now on.

        An empty one is no payload: the connection to this node was made (anew) just now.
        """
        self.take()
        while not self._arrived:
            self._arrival.clear()
            await self._arrival.wait()
        peer, life, name, payload = self._arrived.popleft()
        self._taking = (peer, life, len(payload)) if payload else None
        return name, payload

    def take(self) -> None:
        """The payload received last is done with; peers are told in groups."""
        if self._taking is None:
            return
        peer, life, size = self._taking
        self._taking = None
        if life != peer.life:  # of a former life there is nobody to be told
            return
        peer.untold += 1
        peer.untold_bytes += size
        much = peer.untold_bytes >= self.me.window_bytes // _TOLD_SHARE
        if peer.untold >= _TOLD_COUNT or much:
            self._tell_taken(peer)
        elif self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_TOLD_S, self._tell_all)

    def _tell_all(self) -> None:
        self._telling = None
        for peer in self._peers.values():
            self._tell_taken(peer)

    def _tell_taken(self, peer: Peer) -> None:
        if peer.untold and peer.writer is not None and peer.link.is_open:
            peer.writer.write(self._taken(peer))

    def _taken(self, peer: Peer) -> bytes:
        taken = peer.link.took(peer.untold)
        peer.untold = peer.untold_bytes = 0
        return encode_frame(taken)

    @property
    def peers(self) -> list[str]:
        """The other nodes."""
        return list(self._peers)

    @property
    def connected(self) -> list[str]:
        """The other nodes that are there now."""
        return [name for name, peer in self._peers.items() if peer.link.is_open]

    def pending_count(self, to: str) -> int:
        """Payloads that a peer has not taken."""
        return self._peers[to].link.pending_count

    # --- connections ----------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._track(asyncio.create_task(work))

    def _track(self, task: asyncio.Task[None]) -> None:
        """Let a task end with the mesh."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, name: str, peer: Peer) -> None:
        wait = self.options.retry_s
        while True:
            try:
                async with asyncio.timeout(self.options.greeting_s):
                    reader, writer = await self._open(name)
            except (OSError, TimeoutError):
                await asyncio.sleep(wait)
                wait = min(2 * wait, self.options.retry_s_max)
                continue
            try:
                hello = peer.link.connected()
                writer.write(encode_frame(hello))
                frames = _Frames(reader)
                async with asyncio.timeout(self.options.greeting_s):
                    greeting = await frames.next()
                if not isinstance(greeting, Hello) or greeting.node != name:
                    raise PeerError(f"who answers for {name!r} does not greet by that name")
                peer.link.receive(greeting)
                wait = self.options.retry_s
                await self._converse(name, peer, frames, writer)
            except (OSError, TimeoutError, EOFError) as error:
                self._count(type(error).__name__)
            except PeerError as error:
                self._refuse(writer, error)
            finally:
                self._close(peer, writer)
            await asyncio.sleep(wait)
            wait = min(2 * wait, self.options.retry_s_max)

    async def _accept(self, reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._track(task)
        peer: Peer | None = None
        try:
            if self._stranger_count >= self.options.strangers_max:
                raise PeerError("too many connections that have not greeted")
            self._stranger_count += 1
            try:
                frames = _Frames(reader)
                async with asyncio.timeout(self.options.greeting_s):
                    hello = await frames.next()
            finally:
                self._stranger_count -= 1
            if not isinstance(hello, Hello):
                raise PeerError("the first frame is no greeting")
            found = self._peers.get(hello.node)
            if found is None:
                raise PeerError(f"{hello.node[:80]!r} is no member of the cluster")
            if hello.token != self.me.token or hello.cluster != self.me.cluster:
                raise PeerError("it does not know the cluster's name and token")
            if found.writer is not None:  # it came anew: the old connection is dead
                self._close(found, found.writer)
            peer = found
            writer.write(encode_frame(peer.link.connected()))
            peer.link.receive(hello)
            await self._converse(hello.node, peer, frames, writer)
        except (OSError, TimeoutError, EOFError) as error:
            self._count(type(error).__name__)
        except PeerError as error:
            self._refuse(writer, error)
        except asyncio.CancelledError:
            pass  # the node stops
        finally:
            if peer is not None:
                self._close(peer, writer)
            else:
                writer.close()

    def _refuse(self, writer: Writer, error: PeerError) -> None:
        self._count(str(error))
        with contextlib.suppress(OSError):
            writer.write(encode_frame(Bye(str(error))))

    def _count(self, reason: str) -> None:
        # Reasons quote strangers, who must not fill the memory with them.
        if len(self.refused) >= _REASON_COUNT_MAX and reason not in self.refused:
            reason = "other"
        self.refused[reason] += 1

    def _close(self, peer: Peer, writer: Writer) -> None:
        writer.close()
        if peer.writer is None or peer.writer is writer:
            peer.writer = None
            peer.link.disconnected()

    async def _converse(self, name: str, peer: Peer, frames: _Frames, writer: Writer) -> None:
        """Both directions of an open connection, until one of them ends."""
        assert peer.link.peer is not None
        life = peer.link.peer.life
        if life != peer.life:
            peer.life, peer.untold, peer.untold_bytes = life, 0, 0
        peer.writer = writer
        peer.work.set()
        self._arrived.append((peer, life, name, b""))
        self._arrival.set()
        sending = asyncio.create_task(self._send_due(peer, writer))
        now = asyncio.get_running_loop().time
        silence_s = self.options.silence_s
        try:
            async with asyncio.timeout(silence_s) as limit:
                renewed = now()
                while True:
                    frame = await frames.next()
                    if now() > renewed + silence_s / 4:  # not for every frame: a timer is dear
                        renewed = now()
                        limit.reschedule(renewed + silence_s)
                    if peer.writer is not writer:
                        return
                    for payload in peer.link.receive(frame):
                        self._arrived.append((peer, life, name, payload))
                        self._arrival.set()
                    if isinstance(frame, Taken):
                        peer.room.set()
                        peer.work.set()
                    if sending.done():
                        return
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending

    async def _send_due(self, peer: Peer, writer: Writer) -> None:
        alive = asyncio.create_task(self._live(writer))
        try:
            while True:
                await peer.work.wait()
                peer.work.clear()
                frames = [encode_frame(frame) for frame in peer.link.due()]
                if frames:
                    told = [self._taken(peer)] if peer.untold else []
                    writer.write(b"".join(told + frames))
                    await writer.drain()
        finally:
            alive.cancel()

    async def _live(self, writer: Writer) -> None:
        """A sign of life now and then; what is said otherwise need not be counted for it."""
        while True:
            await asyncio.sleep(self.options.alive_s)
            writer.write(encode_frame(Alive()))


class _Frames:
    """The frames of a connection; many may come at once."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._buffer = bytearray()
        self._start = 0
        """Where in the buffer the next frame begins."""

    async def next(self) -> Frame:
        """The next frame; a longer one than allowed is refused before it is read."""
        while True:
            end = self._end()
            if end <= len(self._buffer):
                body = bytes(memoryview(self._buffer)[self._start + 4 : end])
                self._start = end
                return decode_frame(body)
            if self._start:
                del self._buffer[: self._start]
                self._start = 0
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise asyncio.IncompleteReadError(bytes(self._buffer), None)
            self._buffer += data

    def _end(self) -> int:
        """Where the next frame ends, or at least the bytes that say so."""
        head = self._start + 4
        if len(self._buffer) < head:
            return head
        size = int.from_bytes(self._buffer[self._start : head], "big")
        if size > FRAME_BYTES_MAX:
            raise PeerError(f"a frame of {size:,} bytes")
        return head + size
