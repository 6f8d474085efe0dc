"""The subscriptions that live at a node: each a machine, an outlet and, now and then, a session.

A subscription is asked for by text: names of topics, whose events are delivered as they are, or a
pattern, whose relations are delivered. One with a name outlives its session, and with a data folder
the node as well: what it is owed is in its log, and an application that comes back goes on where it
stopped. One without a name ends with its application, or when that stays away for too long.

It knows machines and outlets. Frames are the door's, time is given by its caller.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import msgspec

from concordant.deliver.correlated import Correlated
from concordant.errors import PeerError, UsageError
from concordant.language import checked, parse
from concordant.machine.contract import Machine
from concordant.machine.effects import Delivery, Note
from concordant.machine.inputs import Request
from concordant.machine.instant import Instant
from concordant.machine.requests import Subscribe, Unsubscribe
from concordant.machine.saved import Compact
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.net.carrier import MemoryCarrier
from concordant.net.cluster import Limits
from concordant.net.host import Place, microseconds
from concordant.net.outlet import Outlet
from concordant.net.register import Register
from concordant.net.roles import Setting, Strategy, strategy_of
from concordant.net.session import Subscribes
from concordant.net.strategy import Knowing

_TOPICS = re.compile(r"\s*[A-Za-z_][\w.]*\s*(,\s*[A-Za-z_][\w.]*\s*)*")

JOIN_S = 10.0
"""So long a subscription may take to begin; then some node does not answer."""


def plain_topics(text: str) -> tuple[str, ...]:
    """The topics, if a text is nothing but names of topics; else nothing.

    >>> plain_topics("Order, Payment"), plain_topics("Order then Payment")
    (('Order', 'Payment'), ())
    """
    if not _TOPICS.fullmatch(text):
        return ()
    return tuple(dict.fromkeys(name.strip() for name in text.split(",")))


@dataclass(eq=False)
class Hosted:
    """One subscription."""

    id: str
    asked: Subscribes
    strategy: Strategy
    topics: tuple[str, ...]
    outlet: Outlet
    place: Place | None = None
    wake: Callable[[], None] | None = None
    """Tells the session that something is due; None while there is no session."""
    release: Callable[[str], None] = lambda reason: None
    """Takes it from its session, and says why."""
    missing: set[str] = field(default_factory=set)
    """Topics that have not begun."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    kept: bool = True
    """False: deliveries were not kept in memory, and are in the log only."""
    left_at: Instant = 0
    """When its last session ended."""

    def slowness(self, now: Instant) -> str:
        """Why it is to be cut off; nothing if it is not."""
        outlet, away = self.outlet, self.wake is None
        if not self.begun.is_set():
            return ""
        if outlet.full:
            return f"more than {outlet.buffer_count_max:,} deliveries waited"
        if away and self.kept and now - self.left_at > outlet.lag_us_max:
            return f"the application stayed away for more than {outlet.lag_us_max / 1e6:g} s"
        if outlet.late(now) and not self.throttles:
            return f"a delivery waited for more than {outlet.lag_us_max / 1e6:g} s"
        return ""

    @property
    def throttles(self) -> bool:
        """True if the publishers are to wait for it rather than that it is cut off."""
        return self.asked.slow == "throttle" and self.wake is not None


class Hosting:
    """All subscriptions of a node."""

    def __init__(
        self,
        setting: Setting,
        carrier: MemoryCarrier,
        strategies: Sequence[Strategy],
        *,
        schemas: Mapping[str, Topic],
        limits: Limits,
        transport: str,
        folder: Path | None,
        hear: Callable[[str, Note], None],
    ) -> None:
        self.delivered_count = 0
        self.cut_count = 0
        self.pressed: Callable[[], None] = lambda: None
        """Called when the publishers are to be held back, or no longer."""
        self._setting = setting
        self._carrier = carrier
        self._strategies = {one.name: one for one in strategies}
        self._schemas = schemas
        self._limits = limits
        self._transport = transport
        self._folder = folder
        self._hear = hear
        self._register = Register(folder / "register") if folder is not None else None
        self._hosted: dict[str, Hosted] = {}

    def __len__(self) -> int:
        return len(self._hosted)

    def all(self) -> list[Hosted]:
        return list(self._hosted.values())

    def start(self) -> None:
        """Let the subscriptions that outlived the node go on."""
        if self._register is not None:
            for asked, taken in self._register.subscriptions():
                one = self._new(asked.name, asked, taken)
                one.kept = False
                self._begin(one, taken)

    async def stop(self) -> None:
        """Stop all machines; the named ones go on when the node starts again."""
        for one in self.all():
            if one.place is not None:
                await one.place.stop()
        if self._register is not None:
            await self._register.stop()

    # --- a subscription begins ------------------------------------------------------------------

    async def open(self, asked: Subscribes) -> Hosted:
        """The subscription that is asked for, new or known, from where its application stopped."""
        known = self._hosted.get(asked.name or asked.id)
        if known is not None:
            return await self._again(known, asked)
        if asked.id:
            raise UsageError(
                "the subscription is over: the node was restarted, or the application stayed away "
                "for too long, and without a name nothing of it was kept",
                hint="subscribe anew; with a name, a subscription is kept",
            )
        id = asked.name or secrets.token_hex(8)
        one = self._new(id, asked, asked.taken or 0)
        if asked.name and self._register is not None:
            await self._register.add(asked)
        self._begin(one, asked.taken or 0)
        try:
            async with asyncio.timeout(JOIN_S):
                await one.begun.wait()
        except TimeoutError:
            await self.end(one)
            raise UsageError(
                f"the subscription could not begin within {JOIN_S:g} s: a node does not answer",
                hint="see whether all nodes of the cluster run",
            ) from None
        except asyncio.CancelledError:
            await self.end(one)
            raise
        return one

    def _new(self, id: str, asked: Subscribes, taken: int) -> Hosted:
        limits = self._limits
        if len(self._hosted) >= limits.subscriptions_max:
            raise UsageError(
                f"{len(self._hosted):,} subscriptions live here, and no more are taken",
                hint="end some, or raise subscriptions_max",
            )
        strategy = strategy_of(asked.order, asked.strategy, transport=self._transport)
        if strategy.name not in self._strategies:
            raise UsageError(
                f"this cluster does not offer the strategy {strategy.name!r}",
                hint=f"it offers {', '.join(self._strategies)}; others are named in its file",
            )
        one = Hosted(id, asked, strategy, (), self._outlet(asked, taken))
        self._machine(one)  # what is wrong with the text is said before anything is kept
        unknown = [topic for topic in one.topics if topic not in self._setting.topics]
        if strategy.declared and unknown:
            raise UsageError(
                f"the strategy {strategy.name!r} knows declared topics only, not {unknown[0]!r}",
                hint=f"declared are {', '.join(self._setting.topics) or 'none'}; [topics] of the "
                "cluster file declares them",
            )
        self._hosted[id] = one
        return one

    def _outlet(self, asked: Subscribes, taken: int) -> Outlet:
        limits = self._limits
        lag_us_max = min(asked.lag_us_max or limits.lag_us_max, limits.lag_us_max)
        return Outlet(taken=taken, buffer_count_max=limits.buffer_count_max, lag_us_max=lag_us_max)

    def _machine(self, one: Hosted) -> Machine:
        """The machine of a subscription; sets its topics."""
        address = self._address(one)
        machine = one.strategy.subscriber(self._setting, address)
        one.topics = plain_topics(one.asked.text)
        if one.topics:
            return machine
        if not one.strategy.composite:
            raise UsageError(
                f"the strategy {one.strategy.name!r} takes no patterns", hint="name topics only"
            )
        known = {**self._schemas, **_topics(one.asked.topics)}
        subscriptions, derived = checked(parse(one.asked.text), known)
        needed = dict.fromkeys(name for s in subscriptions for name in s.topics)
        one.topics = tuple(name for name in needed if name not in derived)
        if one.strategy.patterns is not None:
            return one.strategy.patterns(
                self._setting, address, subscriptions, {**known, **derived}
            )
        return Correlated(
            machine,
            subscriptions=subscriptions,
            schemas={**known, **derived},
            time_ordered=one.strategy.time_ordered,
        )

    def _address(self, one: Hosted) -> str:
        return f"{self._setting.node}/{one.strategy.feed}/{quote(one.id, safe='')}"

    def _begin(self, one: Hosted, taken: int) -> None:
        machine = self._machine(one)
        one.missing = set(one.topics)
        one.begun.clear()
        folder = None
        if self._folder is not None and one.asked.name:
            folder = self._folder / "subscriptions" / quote(one.id, safe="")
        place = Place(
            self._address(one),
            machine,
            self._carrier,
            take=lambda deliveries: self._take(one, deliveries),
            hear=lambda note: self._note(one, note),
            taken_count=taken,
            folder=folder,
            records=one.strategy.records,
            scope=f"{one.strategy.feed}:",
        )
        one.place = place
        self._carrier.add(place)
        place.command(Subscribe(one.topics))

    def _note(self, one: Hosted, note: Note) -> None:
        if note.step == "subscribe":
            one.missing -= set(note.topics)
            if not one.missing:
                one.left_at = microseconds()
                one.begun.set()
        elif note.step is None:
            self._hear(one.id, note)

    async def _again(self, one: Hosted, asked: Subscribes) -> Hosted:
        """A known subscription, from a new channel."""
        first = one.asked
        if (asked.text, asked.order, asked.strategy) != (first.text, first.order, first.strategy):
            raise UsageError(
                f"the subscription {one.id!r} is there already, with another text or order",
                hint="choose another name, or end the other one first",
            )
        if one.wake is not None:  # perhaps a channel that is dead, and nobody knows it yet
            one.release("another session took the subscription over")
            one.wake = None
        taken = one.outlet.taken if asked.taken is None else asked.taken
        if one.kept:
            try:
                one.outlet.again(taken)
            except PeerError as error:
                raise UsageError(str(error)) from None
        else:
            await self._rebuild(one, taken)
        return one

    def move(self, one: Hosted, nodes: tuple[str, ...]) -> None:
        """Let other nodes serve a subscription from now on."""
        known = self._setting.nodes
        if one.strategy.homes is None or one.place is None:
            raise UsageError(
                f"a subscription of the strategy {one.strategy.name!r} is not served by one node",
                hint="only those of `causal` and `gossip` can be moved",
            )
        if not nodes or any(node not in known for node in nodes):
            raise UsageError(
                f"a subscription cannot be moved to {', '.join(nodes) or 'nowhere'}",
                hint=f"the nodes are {', '.join(known)}",
            )
        one.place.command(one.strategy.homes(nodes))

    def known(self, one: Hosted) -> tuple[str, Request]:
        """What the application of a subscription has seen by it, and of which feed."""
        if one.strategy.learns is None or one.place is None:
            raise UsageError(f"the strategy {one.strategy.name!r} does not tell what was seen")
        machine = one.place.machine
        if isinstance(machine, Correlated):
            machine = machine.client
        assert isinstance(machine, Knowing)
        return one.strategy.feed, machine.known

    async def _rebuild(self, one: Hosted, taken: int) -> None:
        """Let the machine read its log again: what is not in memory is there."""
        assert one.place is not None
        known = one.outlet.taken
        self._carrier.remove(one.place.address)
        await one.place.stop()
        one.outlet = self._outlet(one.asked, taken)
        one.kept = True
        self._begin(one, taken)
        await one.place.settled()
        gone = getattr(one.place.machine, "forgotten_count", 0)
        if gone > taken:
            one.outlet = self._outlet(one.asked, max(gone, known))
            one.kept = False
            raise UsageError(
                f"{taken:,} deliveries were taken, and what is kept begins after {gone:,}",
                hint="leave `taken` out, and it goes on after what the node was told",
            )

    # --- while it lives -------------------------------------------------------------------------

    def _take(self, one: Hosted, deliveries: Sequence[Delivery]) -> None:
        self.delivered_count += len(deliveries)
        if one.kept:
            before = one.outlet.half_full
            one.outlet.add(deliveries, microseconds())
            if one.wake is not None:
                one.wake()
            if one.throttles and one.outlet.half_full != before:
                self.pressed()

    def took(self, one: Hosted, count: int) -> None:
        """The application took so many."""
        before = one.outlet.half_full
        if one.outlet.took(count) and one.asked.name and self._register is not None:
            self._register.took(one.id, count)
        if one.throttles and one.outlet.half_full != before:
            self.pressed()

    def compact(self) -> None:
        """Let snapshots take the place of logs that have grown; what was taken goes from them."""
        for one in self._hosted.values():
            place = one.place
            if place is not None and one.strategy.compacts and one.kept and place.grown:
                place.command(Compact(one.outlet.taken, one.outlet.waiting()))

    def slow(self, now: Instant) -> list[tuple[Hosted, str]]:
        """Who is too slow, and why."""
        reasons = [(one, one.slowness(now)) for one in self._hosted.values()]
        return [(one, reason) for one, reason in reasons if reason]

    def held_topics(self, now: Instant) -> list[str]:
        """The topics that are to be held back for subscribers that cannot follow."""
        held = {
            topic
            for one in self._hosted.values()
            if one.throttles and (one.outlet.half_full or one.outlet.late(now))
            for topic in one.topics
        }
        return sorted(held)

    async def cut(self, one: Hosted) -> None:
        """It is too slow. What has a log goes on in it; everything else is over."""
        self.cut_count += 1
        self.leave(one, microseconds())
        if one.kept:
            await self.end(one)

    def leave(self, one: Hosted, now: Instant) -> None:
        """Its session is gone. What has a log is no longer kept in memory."""
        one.wake = None
        one.left_at = now
        if self._durable(one):
            one.kept = False
            one.outlet = self._outlet(one.asked, one.outlet.taken)

    def _durable(self, one: Hosted) -> bool:
        return self._folder is not None and bool(one.asked.name)

    async def end(self, one: Hosted) -> None:
        """It is over, and nothing of it is kept."""
        self._hosted.pop(one.id, None)
        one.wake = None
        place, one.place = one.place, None
        if place is not None:
            place.command(Unsubscribe(one.topics))
            await place.stop()
            self._carrier.remove(place.address)
        if one.asked.name and self._register is not None:
            await self._register.remove(one.id)


def _topics(given: Mapping[str, Mapping[str, str]]) -> dict[str, Topic]:
    """Topics whose kinds an application gave."""
    try:
        return {
            name: Topic(name, msgspec.convert(kinds, dict[str, Kind]))
            for name, kinds in given.items()
        }
    except msgspec.ValidationError as error:
        raise UsageError(f"the kinds of the topics are wrong: {error}") from None
