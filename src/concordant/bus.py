"""One door for applications: publish events, subscribe to them in a chosen order, transactions.

    async with Bus.open("memory:") as bus:
        async with bus.subscribe("Order then Payment", order="total strict", ...) as found:
            await bus.publish("Order", {"order_id": 17})
            async for delivery in found:
                ...

`memory:` is a whole cluster of one node inside this process; `tcp://host:port` is the door of a
node (`concordant node`), `nats://host:port/CLUSTER/NODE` the same through a NATS server, and
everything else is alike. The bus finds the node that a name belongs to, connects again when a
connection breaks, and neither loses nor doubles anything while it lives. `bus.transaction` is a
block of operations of which all take effect or none. `Bus.blocking` is the same for programs
without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypeVar, overload

import msgspec

from concordant.errors import ConcordantError, UsageError
from concordant.machine.effects import Delivery
from concordant.machine.instant import Duration
from concordant.net.blocking import Blocking, BlockingHandler, Loop, Unawaited
from concordant.net.caller import Caller, CallerOptions, MovedAway
from concordant.net.cluster import address_of
from concordant.net.entry import connect, entry_of, nats_parts, trusting
from concordant.net.given import batch_of, given_of
from concordant.net.handles import Pen, Reading
from concordant.net.membership import Membership
from concordant.net.node import Node, memory_cluster
from concordant.net.roles import strategy_of
from concordant.net.session import (
    Channel,
    MemoryChannel,
    Subscribes,
)
from concordant.net.transactions import Cut, Door, Handler, Planning, TakeEvent, Transaction
from concordant.transact.actions import Aborted, Committed, Kind

__all__ = [
    "Aborted",
    "BlockingBus",
    "BlockingSubscription",
    "Bus",
    "Committed",
    "Delivery",
    "Subscription",
]

_MOVES_MAX = 3
"""A name belongs to one node; being sent on more often than this is a wrong cluster file."""

T = TypeVar("T")


class Bus:
    """A connection to a cluster; see the module's text."""

    def __init__(
        self,
        url: str = "memory:",
        *,
        name: str = "",
        token: str = "",
        authority: str = "",
        strategies: Iterable[str] | None = None,
        topics: Mapping[str, Mapping[str, str]] | None = None,
        transactions: Literal["", "shared", "isolated"] = "",
        options: CallerOptions | None = None,
    ) -> None:
        """
        `name` is the source of what is published; without one, a name is drawn. `token` is what the
        cluster wants to see of applications. `authority` is a file with the certificate of the
        authority that signed the nodes': with it, connections are secured by TLS. A bus in memory
        is told here what else a cluster file says: the `strategies` and `transactions` that it
        offers, and the kinds of attributes by topic.
        """
        self.name = name or f"app-{secrets.token_hex(8)}"
        self._drawn = not name
        self._url = url
        self._token = token
        self._options = options
        self._tls = trusting(authority) if authority else None
        self._strategies = tuple(strategies) if strategies is not None else None
        self._topics = topics
        self._transactions = transactions
        self._membership = Membership(self.name, self._at_home, drawn=self._drawn)
        self._callers: dict[str, Caller] = {}
        self._node: Node | None = None
        self._calls: Any = None
        """Through NATS: the doors that are called."""
        self._sessions: set[asyncio.Task[None]] = set()
        self._pen: tuple[Caller, Pen] | None = None
        self._reading: dict[Subscription, bool] = {}
        """Subscriptions that tell what the application has seen by them."""
        self._known: dict[str, bytes] = {}
        """What was seen by a subscription, and the node where we publish was not told yet."""
        self._picking = asyncio.Lock()
        said = strategies is not None or topics is not None or bool(transactions)
        self._entry = entry_of(url, in_memory=said)

    @classmethod
    def open(cls, url: str = "memory:", **options: Any) -> Bus:
        """A bus to be entered: `async with Bus.open("memory:") as bus`."""
        return cls(url, **options)

    @classmethod
    def blocking(cls, url: str = "memory:", **options: Any) -> BlockingBus:
        """The same for programs without an event loop: `with Bus.blocking("memory:") as bus`."""
        return BlockingBus(url, **options)

    async def __aenter__(self) -> Bus:
        if self._url.startswith("nats:"):
            from concordant.net.nodes_over_nats import Calls  # needs nats-py

            self._calls = Calls(*nats_parts(self._url)[:2])
        elif not self._entry:
            cluster = memory_cluster(self._strategies, self._topics, self._transactions)
            self._node = Node(cluster, "memory")
            await self._node.start(door=False)
        try:
            await self._caller(self._entry)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up; a node in memory ends, and what nobody took is gone with it."""
        await self._membership.stop()
        for caller in self._callers.values():
            await caller.stop()
        self._callers.clear()
        if self._calls is not None:
            await self._calls.stop()
        if self._node is not None:
            await self._node.stop()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    # --- publish --------------------------------------------------------------------------------

    async def publish(
        self,
        events: str | Iterable[Mapping[str, Any]],
        attributes: Mapping[str, Any] | None = None,
        *,
        time: Any = None,
        topics: Iterable[str] = (),
    ) -> str:
        """Publish one event, or a batch; on return the node has stored it. The id of the last.

        One: `publish("Order", {"order_id": 17})`. A batch: rows as in a file of JSON Lines, each
        with its `topic`, and perhaps `time` and `id`. A batch is taken whole or not at all. Where
        all strategies are causal, an event may be addressed to further `topics`: who holds more
        than one of them gets it once.
        """
        if isinstance(events, str):
            row = {**(attributes or {}), "topic": events}
            event = given_of(row if time is None else {**row, "time": time})
            given = [msgspec.structs.replace(event, others=tuple(topics))]
        else:
            given = batch_of(events)
        caller, pen = await self._publisher()
        if not given:
            return ""
        for one in list(self._reading):
            await one.recall(caller)
        known, self._known = self._known, {}
        last = await pen.publish(given, tuple(known.values()))
        return given[-1].id or f"{pen.source}:{last}"

    async def _publisher(self) -> tuple[Caller, Pen]:
        async def begin(caller: Caller) -> tuple[Caller, Pen]:
            return caller, await caller.pen(self.name, drawn=self._drawn)

        async with self._picking:
            if self._pen is None:
                self._pen = await self._at_home(begin)
        return self._pen

    # --- subscribe ------------------------------------------------------------------------------

    def subscribe(
        self,
        text: str,
        *,
        order: str = "fifo",
        strategy: str = "",
        name: str = "",
        taken: int | None = None,
        slow: Literal["cut", "throttle"] = "cut",
        lag_us_max: Duration | None = None,
        topics: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Subscription:
        """Deliveries of topics (`"Order, Payment"`) or of a pattern (`"Order then Payment"`).

        With a `name` the subscription outlives the application: whoever subscribes under it again
        goes on after what was taken, or after `taken` deliveries. Who is slower than `lag_us_max`
        is cut off and told so, or holds the publishers back (`slow="throttle"`). `topics` gives the
        kinds of attributes for a pattern, where the cluster file does not declare them.

        Use it by `async with`: on entering, the subscription has begun.
        """
        strategy_of(order, strategy)
        if slow not in ("cut", "throttle"):
            raise UsageError(f"slow={slow!r}", hint="a slow subscriber is 'cut', or 'throttle's")
        kinds = {topic: dict(given) for topic, given in (topics or {}).items()}
        asked = Subscribes(0, text, order, strategy, name, taken, slow, lag_us_max, kinds)
        return Subscription(self, asked)

    async def _read(self, asked: Subscribes) -> tuple[Caller, Reading]:
        async def begin(caller: Caller) -> tuple[Caller, Reading]:
            return caller, await caller.read(asked)

        return await self._at_home(begin)

    # --- transactions ---------------------------------------------------------------------------

    @overload
    def transaction(self, kind: Literal["static"]) -> Planning: ...

    @overload
    def transaction(self, kind: Literal["isolated", "open"]) -> Transaction: ...

    def transaction(self, kind: Kind) -> Planning | Transaction:
        """Operations of this bus, and of those whom it triggers: all take effect, or none.

            async with bus.transaction("static") as tx:
                tx.publish("Order", {"order_id": 17})
            assert isinstance(tx.outcome, Committed)

        It commits at the end of the block, and aborts if the block raises. What it publishes enters
        the order levels of all subscribers when it commits.
        """
        door = self._membership.door()
        return door.transaction("static") if kind == "static" else door.transaction(kind)

    async def participant(
        self,
        handler: Handler | None = None,
        *,
        take: TakeEvent | None = None,
        cut: Cut | None = None,
    ) -> Door:
        """This bus in the transactions of others: `handler` acts when a trigger comes, `take` is
        given the events of what was subscribed in transactions or by the participant, and `cut`
        the names of what ended because nobody took them."""
        return await self._membership.participant(handler, take, cut)

    # --- doors ----------------------------------------------------------------------------------

    async def _at_home(self, ask: Callable[[Caller], Awaitable[T]]) -> T:
        """Ask at our door; if what we ask for belongs to another node, there."""
        door = self._entry
        for _ in range(_MOVES_MAX):
            caller = await self._caller(door)
            try:
                return await ask(caller)
            except MovedAway as moved:
                door = moved.node if self._calls is not None else moved.door
        raise UsageError(
            f"the nodes send us on and on, last to {door}",
            hint="see that all nodes run with the same cluster file",
        )

    async def _caller(self, door: str) -> Caller:
        found = self._callers.get(door)
        if found is None:
            found = Caller(
                self._connect(door),
                where=door or "memory:",
                token=self._token,
                options=self._options,
            )
            await found.start()
            self._callers[door] = found
        return found

    def _connect(self, door: str) -> Callable[[], Awaitable[Channel]]:
        if self._node is not None:
            return self._connect_in_memory
        if self._calls is not None:
            return partial(self._calls.open, door)
        return partial(connect, *address_of(door, place=self._url), self._tls)

    async def _connect_in_memory(self) -> Channel:
        assert self._node is not None
        mine, its = MemoryChannel.pair()
        task = asyncio.create_task(self._node.serve(its))
        self._sessions.add(task)
        task.add_done_callback(self._sessions.discard)
        return mine


class Subscription:
    """Deliveries, in the promised order; each has its events, a position and `in_order`."""

    def __init__(self, bus: Bus, asked: Subscribes) -> None:
        self._bus = bus
        self._asked = asked
        self._caller: Caller | None = None
        self._reading: Reading | None = None
        self._recalled_count = 0

    @property
    def taken(self) -> int:
        """How many deliveries were taken: keep it with your results to go on exactly there."""
        return self._reading.taken if self._reading is not None else 0

    async def __aenter__(self) -> Subscription:
        await self._begun()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Delivery:
        """The next delivery; the one before counts as taken from now on."""
        return await (await self._begun()).next()

    async def _begun(self) -> Reading:
        if self._reading is None:
            self._caller, self._reading = await self._bus._read(self._asked)
            if strategy_of(self._asked.order, self._asked.strategy).learns is not None:
                self._bus._reading[self] = True
        return self._reading

    async def recall(self, caller: Caller | None) -> None:
        """Keep for the next publication what was seen by it, if another node takes that."""
        reading = self._reading
        if reading is None or self._caller is None or self._caller is caller:
            return
        seen_count = reading.seen_count
        if seen_count > self._recalled_count:
            self._bus._known[reading.id] = await self._caller.recall(reading)
            self._recalled_count = seen_count

    async def move(self, *nodes: str) -> None:
        """Let the brokers of these nodes serve a subscription of causal order from now on.

        Nothing is lost or doubled by that. What a broker can no longer give because it died is told
        by a delivery without events, whose `subscription` is `gap`.
        """
        reading = await self._begun()
        assert self._caller is not None
        await self._caller.move(reading, nodes)

    async def leave(self) -> None:
        """Read no more. A named subscription is kept by the node, any other ends."""
        await self._end(keep=bool(self._asked.name))

    async def end(self) -> None:
        """End the subscription for good, whatever it is called."""
        await self._end(keep=False)

    async def _end(self, *, keep: bool) -> None:
        if self._reading is not None and self._caller is not None:
            self._reading.take(tell=True)
            if self._bus._reading.pop(self, False):
                with contextlib.suppress(ConcordantError):
                    pen = self._bus._pen
                    await self.recall(pen[0] if pen is not None else None)
            with contextlib.suppress(UsageError):  # the bus is closed, and so is this
                await self._caller.end(self._reading, keep=keep)


# --- without an event loop ------------------------------------------------------------------------


class BlockingBus:
    """A bus for programs without an event loop: it has one of its own, in a thread."""

    def __init__(self, url: str = "memory:", **options: Any) -> None:
        self._loop = Loop()
        self._run = self._loop.run
        self._url = url
        self._options = options
        self._bus: Bus | None = None

    def __enter__(self) -> BlockingBus:
        self._loop.start()

        async def enter() -> Bus:
            return await Bus(self._url, **self._options).__aenter__()

        try:
            self._bus = self._run(enter())
        except BaseException:
            self._loop.end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if self._bus is not None:
                self._run(self._bus.close())
        finally:
            self._loop.end()

    @property
    def name(self) -> str:
        return self._opened.name

    @property
    def _opened(self) -> Bus:
        if self._bus is None:
            raise UsageError("the bus is not open", hint="use it by `with`")
        return self._bus

    def publish(self, events: Any, attributes: Any = None, **options: Any) -> str:
        """As `Bus.publish`."""
        return self._run(self._opened.publish(events, attributes, **options))

    def transaction(self, kind: Kind) -> Blocking:
        """As `Bus.transaction`, by `with`; its operations are not awaited."""

        async def begin() -> Planning | Transaction:
            return self._opened.transaction(kind)

        return Blocking(self._loop, self._run(begin()))

    def participant(
        self,
        handler: BlockingHandler | None = None,
        *,
        take: TakeEvent | None = None,
        cut: Cut | None = None,
    ) -> Unawaited:
        """As `Bus.participant`: what the handler does is not awaited, nor are the operations of
        what is returned. `take` and `cut` are called in the thread of the bus, and must not wait
        for it."""
        work = self._opened.participant(self._loop.handler(handler), take=take, cut=cut)
        return Unawaited(self._loop, self._run(work))

    def subscribe(self, text: str, **options: Any) -> BlockingSubscription:
        """As `Bus.subscribe`; to be entered by `with`, and read by `for`."""
        return BlockingSubscription(self, self._opened.subscribe(text, **options))


class BlockingSubscription:
    """Deliveries for a program without an event loop."""

    def __init__(self, bus: BlockingBus, subscription: Subscription) -> None:
        self._run = bus._run
        self._subscription = subscription

    @property
    def taken(self) -> int:
        return self._subscription.taken

    def __enter__(self) -> BlockingSubscription:
        self._run(self._subscription.__aenter__())
        return self

    def __exit__(self, *exception: object) -> None:
        self._run(self._subscription.leave())

    def __iter__(self) -> Iterator[Delivery]:
        while True:
            yield self.next()

    def move(self, *nodes: str) -> None:
        """As `Subscription.move`."""
        self._run(self._subscription.move(*nodes))

    def next(self, timeout_s: float | None = None) -> Delivery:
        """The next delivery; `TimeoutError` if there is none for so long."""

        async def wait() -> Delivery:
            async with asyncio.timeout(timeout_s):
                return await self._subscription.__anext__()

        return self._run(wait())
