"""The gateway: plain NATS subjects in, ordered ones out, so that any language can take part.

Publishers send JSON, MessagePack or CloudEvents to `events.<topic>` and, if they ask, are answered
when the event is stored. Subscribers read `ordered.<topic>`: every event has a position, the same
for all of them, and one subscription to `ordered.>` sees the positions one after the other. The
order is promised from the gateway on: it publishes what comes in the order in which it comes.

What is wrong with a message is answered, or dropped, and counted by reason; it never reaches a
machine. The gateway is an application like others: a pen and a reading (`net.handles`) are all it
has of the cluster. Formats are `net.plain`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from typing import Any

import msgspec
from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.js import api

from concordant.errors import ConcordantError, UsageError
from concordant.machine.effects import Delivery
from concordant.net import plain
from concordant.net.handles import Pen, Reading
from concordant.net.hosting import plain_topics
from concordant.net.nats import NatsServer, token_of
from concordant.net.session import Given, Subscribes
from concordant.net.tasks import ended

_DUPLICATES_S = 120.0
"""So long the server knows the positions it was given: one that is given again is dropped."""


class GatewayOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes in and out, and the bounds."""

    topics: tuple[str, ...]
    """The topics that are given out in order; every topic is taken in."""
    order: str = "total strict"
    strategy: str = ""
    name: str = "gateway"
    """Of its publisher, the source of all its events, and of its subscription, which is kept."""
    takes: str = "events"
    """Plain events come on subjects below this."""
    gives: str = "ordered"
    """Ordered ones go to subjects below this."""
    format: plain.Format = "json"
    durable: bool = False
    """Keep what goes out in a stream of JetStream, each position once, for who comes later."""
    kept_bytes_max: int = 1 << 30
    """Of that stream; beyond it the oldest go."""
    body_bytes_max: int = 1 << 20
    """A longer message is refused."""
    events_count_max: int = 1_000
    """Events in one message."""
    waiting_count_max: int = 10_000
    """Events that came and are not stored yet; further ones are refused as 'busy'."""
    remembered_count_max: int = 100_000
    """Ids that publishers gave, remembered so that a repetition is stored once."""

    def asked(self) -> Subscribes:
        """The subscription that the gateway reads."""
        text = ", ".join(self.topics)
        return Subscribes(0, text, self.order, self.strategy, self.name, None, "throttle")


class _Came(msgspec.Struct):
    """A message that waits to be stored."""

    reply: str
    events: list[Given]
    names: list[str]


class Gateway:
    """The role; `start` with a pen and a reading of the cluster."""

    def __init__(self, server: NatsServer, options: GatewayOptions) -> None:
        _check_prefixes(options)
        self.options = options
        self.taken_count = 0
        """Events that were taken in and are stored."""
        self.given_count = 0
        self.repeated_count = 0
        """Events that had been stored before, by their ids."""
        self.refused: Counter[str] = Counter()
        """Messages that were refused, by reason."""
        self.failure: ConcordantError | None = None
        self._server = server
        self._pen: Pen | None = None
        self._reading: Reading | None = None
        self._came: deque[_Came] = deque()
        self._came_count = 0
        self._known: OrderedDict[str, str] = OrderedDict()
        """Ids of events that are stored, by the names that publishers gave them."""
        self._last: dict[str, int] = {}
        """Positions given last, by topic."""
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._subscription: Any = None

    async def start(self, pen: Pen, reading: Reading) -> None:
        """Begin; on return what is published to the plain subjects is heard."""
        options = self.options
        self._pen, self._reading = pen, reading
        if options.durable:
            await self._keep()
        self._subscription = await self._server.subscribe(f"{options.takes}.>", self._take)
        self._tasks = [
            asyncio.create_task(self._guarded(self._store())),
            asyncio.create_task(self._guarded(self._give())),
        ]

    async def stop(self) -> None:
        """Take no more in, and stop; what was told to be stored is."""
        if self._subscription is not None:
            with contextlib.suppress(nats_errors.Error):  # there is no server any more
                await self._subscription.unsubscribe()
        await ended(*self._tasks)

    async def _guarded(self, work: Any) -> None:
        """Whoever hosts the gateway looks at `failure`."""
        try:
            await work
        except ConcordantError as error:
            self.failure = self.failure or error

    # --- in -------------------------------------------------------------------------------------

    async def _take(self, message: Msg) -> None:
        try:
            self._accept(message)
        except plain.Refusal as refusal:
            await self._refuse(message.reply, refusal.reason, refusal.sentence)

    def _accept(self, message: Msg) -> None:
        options = self.options
        if len(message.data) > options.body_bytes_max:
            raise plain.Refusal("length", f"a message has at most {options.body_bytes_max:,} bytes")
        topic = plain.topic_of(options.takes, message.subject)
        events = plain.events_of(
            topic, message.data, message.headers, count_max=options.events_count_max
        )
        if self._came_count + len(events) > options.waiting_count_max:
            raise plain.Refusal("busy", "too many events wait to be stored: come again later")
        self._came_count += len(events)
        names = [plain.name_of(event) for event in events]
        self._came.append(_Came(message.reply, events, names))
        self._work.set()

    async def _store(self) -> None:
        """Publish what came, as much at once as there is, and answer when it is stored."""
        while True:
            while not self._came:
                self._work.clear()
                await self._work.wait()
            batch: list[_Came] = []
            count = 0
            while self._came and count + len(self._came[0].events) <= self.options.events_count_max:
                batch.append(self._came.popleft())
                count += len(batch[-1].events)
            self._came_count -= count
            try:
                await self._publish(batch)
            except UsageError:  # one of them is not welcome: find out which
                for one in batch:
                    try:
                        await self._publish([one])
                    except UsageError as error:
                        await self._refuse(one.reply, "node", error.message)

    async def _publish(self, batch: list[_Came]) -> None:
        """Store the events of some messages that are not stored yet, and answer."""
        assert self._pen is not None
        source = self._pen.source
        new: list[Given] = []
        named: dict[str, int] = {}
        """Where the events with names stand in `new`."""
        found: list[list[int | str]] = []
        """For every event of every message, where it stands in `new`, or the id that it has."""
        for one in batch:
            places: list[int | str] = []
            for name, event in zip(one.names, one.events, strict=True):
                place = self._known.get(name) or named.get(name, len(new))
                if place == len(new):
                    new.append(event)
                    if name:
                        named[name] = place
                places.append(place)
            found.append(places)
        first = await self._pen.publish(new) - len(new) + 1 if new else 0
        for name, place in named.items():
            self._known[name] = f"{source}:{first + place}"
        while len(self._known) > self.options.remembered_count_max:
            self._known.popitem(last=False)
        self.taken_count += len(new)
        self.repeated_count += sum(map(len, found)) - len(new)
        for one, places in zip(batch, found, strict=True):
            ids = [p if isinstance(p, str) else f"{source}:{first + p}" for p in places]
            await self._answer(one.reply, {"ok": True, "ids": ids})

    async def _refuse(self, reply: str, reason: str, sentence: str) -> None:
        self.refused[reason] += 1
        await self._answer(reply, {"ok": False, "reason": reason, "message": sentence[:500]})

    async def _answer(self, reply: str, answer: dict[str, Any]) -> None:
        if reply:
            await self._server.publish(reply, msgspec.json.encode(answer))

    # --- out ------------------------------------------------------------------------------------

    async def _give(self) -> None:
        """Every delivery to the subject of its topic, in order; taken when it has left."""
        assert self._reading is not None
        publish = self._publish_kept if self.options.durable else self._publish_once
        while True:
            delivery = await self._reading.next()
            if delivery.events:
                await publish(delivery)
                self.given_count += 1
            else:  # a gap: the next message of each topic will name a position that nobody saw
                self._last.update(dict.fromkeys(map(str, delivery.key), delivery.position))

    def _message(self, delivery: Delivery) -> tuple[str, bytes]:
        topic = delivery.events[0].topic
        previous = self._last.get(topic)
        self._last[topic] = delivery.position
        data = plain.message_of(delivery, previous, format=self.options.format)
        return plain.subject_of(self.options.gives, topic), data

    async def _publish_once(self, delivery: Delivery) -> None:
        await self._server.publish(*self._message(delivery))

    async def _publish_kept(self, delivery: Delivery) -> None:
        subject, data = self._message(delivery)
        headers = {"Nats-Msg-Id": f"{self.options.name}:{delivery.position}"}
        while True:
            try:
                await self._jetstream.publish(subject, data, headers=headers)
                return
            except (nats_errors.Error, TimeoutError) as error:
                self._server.errors[type(error).__name__] += 1
                if self._server.client.is_closed:
                    raise UsageError("the connection to NATS was closed") from None
                await asyncio.sleep(self._server.options.retry_s)

    async def _keep(self) -> None:
        """Make the stream of what goes out, unless it is there."""
        options = self.options
        self._jetstream = self._server.client.jetstream(timeout=self._server.options.connect_s)
        try:
            await self._jetstream.add_stream(
                api.StreamConfig(
                    name=token_of(options.gives),
                    subjects=[f"{options.gives}.>"],
                    max_bytes=options.kept_bytes_max,
                    duplicate_window=_DUPLICATES_S,
                )
            )
        except (nats_errors.Error, TimeoutError) as error:
            raise UsageError(
                f"the NATS server cannot keep what the gateway gives: {error}",
                hint="start it with JetStream (nats-server -js), or leave durable out",
            ) from None


def _check_prefixes(options: GatewayOptions) -> None:
    for name, prefix in (("takes", options.takes), ("gives", options.gives)):
        parts = prefix.split(".")
        if not all(part and part == token_of(part) for part in parts):
            raise UsageError(
                f"{prefix!r} is no prefix of subjects",
                hint="use letters, digits, - and _, in parts between dots",
                place=name,
            )
    if f"{options.takes}.".startswith(f"{options.gives}.") or f"{options.gives}.".startswith(
        f"{options.takes}."
    ):
        raise UsageError(
            "what the gateway gives would come in again",
            hint="choose prefixes of which neither begins with the other",
            place="takes, gives",
        )
    if not options.topics or plain_topics(", ".join(options.topics)) != options.topics:
        raise UsageError(
            "a gateway needs the names of the topics to give out, each once",
            hint="letters, digits, _ and dots, as in a subscription",
            place="topics",
        )
