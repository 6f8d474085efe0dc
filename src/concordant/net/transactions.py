"""Transactions live: brokers and clients of the overlay at work, and a door for applications.

A broker is hosted with its log, so that it can be killed at any moment. A client's door gives an
application what the client machine can do: publish and subscribe, run a plan, and a block in which
operations belong together:

    async with door.transaction("isolated") as tx:
        await tx.subscribe("orders", "Order.total > 100")
        await tx.publish("Ready", {"who": "me"})
    assert isinstance(tx.outcome, Committed)

A static block is written down first, with what its participants do, and runs as a plan at its end;
until then it can be printed. A block that raises aborts. An abort is a value in `outcome`, never an
exception. The module knows time and how machines are hosted; how messages travel is the carrier's
matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, get_args, overload

import msgspec

from concordant.errors import ConcordantError, UsageError
from concordant.language import parse
from concordant.machine.effects import Delivery, Effect
from concordant.machine.inputs import Input, Received, Request
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.model.kind import Value
from concordant.net.carrier import MemoryCarrier
from concordant.net.host import Place
from concordant.net.tasks import ended
from concordant.route.compile import filters_of
from concordant.route.filter import Filter
from concordant.route.link import LinkOptions, Newer, Reliable
from concordant.route.requests import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from concordant.transact.actions import Action, Kind, Outcome, Plan, Trigger
from concordant.transact.broker import IsolatedBroker, SharedBroker
from concordant.transact.client import TransactClient, Triggered, outcome_of, trigger_of
from concordant.transact.messages import WIRE, Packet, Recalled
from concordant.transact.options import TransactOptions
from concordant.transact.requests import Abort, Act, Begin, Commit, Return, Run

MESSAGES = (Packet, Newer)
"""What travels: for the codec of a carrier between nodes."""

LINKS = LinkOptions(gathers=True)
"""How links are if nothing else is said."""

Handler = Callable[[Triggered, "Answer"], Awaitable[None]]
"""What a participant does when it is triggered; it acts through the answer."""

TakeEvent = Callable[[Event], None]
"""What an application does with events of its subscriptions."""

Cut = Callable[[tuple[str, ...]], None]
"""What it does when subscriptions of these names are gone: it took nothing for so long that its
mailbox was full, or lost its memory in a transaction that ended them."""


def host_broker(
    name: str,
    carrier: MemoryCarrier,
    *,
    neighbours: Sequence[str] = (),
    isolated: bool = False,
    parent: str = "",
    folder: Path | None = None,
    options: TransactOptions | None = None,
    links: LinkOptions | None = None,
) -> Place:
    """A broker at work; with a folder, it survives being killed."""
    near = tuple(neighbours)
    core: IsolatedBroker | SharedBroker
    if isolated:
        core = IsolatedBroker(name, neighbours=near, parent=parent, options=options)
    else:
        core = SharedBroker(name, neighbours=near, options=options)
    machine = Reliable(
        core, wire=WIRE, brokers=near, durable=folder is not None, options=links or LINKS
    )
    place = Place(name, machine, carrier, folder=folder, records=Reliable.records)
    carrier.add(place)
    return place


class _Watched(Reliable):
    """Says when the broker has greeted back, and when it has cut the client off."""

    def __init__(self, client: TransactClient, *, options: LinkOptions | None) -> None:
        super().__init__(client, wire=WIRE, durable=False, client=True, options=options or LINKS)
        self.client = client
        self.connected = asyncio.Event()
        self.cut: Cut = lambda names: None

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        before = self.client.subscriptions if _recalls(given) else {}
        effects = super().handle(now, given)
        if self.client.connected:
            self.connected.set()
        gone = tuple(name for name in before if name not in self.client.subscriptions)
        if gone:
            self.cut(gone)
        return effects


def _recalls(given: Input) -> bool:
    return isinstance(given, Received) and any(
        isinstance(message, Recalled)
        for packet in given.messages
        if isinstance(packet, Packet)
        for message in packet.messages
    )


class Door:
    """A client for an application. What it has at its broker outlives it; its open transactions
    do not."""

    def __init__(
        self,
        name: str,
        broker: str,
        carrier: MemoryCarrier,
        *,
        take: TakeEvent | None = None,
        handler: Handler | None = None,
        cut: Cut | None = None,
        links: LinkOptions | None = None,
    ) -> None:
        self.name = name
        self.kinds: tuple[str, ...] = get_args(Kind)
        """The transactions that there are."""
        self.topics: tuple[str, ...] | None = None
        """What may be published; None: anything."""
        self.take = take or (lambda event: None)
        self.handler = handler
        self._failure: ConcordantError | None = None
        self._outcomes: dict[str, asyncio.Future[Outcome]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._machine = _Watched(TransactClient(name, broker=broker), options=links)
        self.cut = cut or (lambda names: None)
        self._machine.cut = lambda names: self.cut(names)
        self._place = Place(name, self._machine, carrier, take=self._take)
        carrier.add(self._place)

    async def connected(self) -> None:
        """Wait for the broker's welcome."""
        await self._machine.connected.wait()
        if self._failure is not None:
            raise self._failure

    def fail(self, error: ConcordantError) -> None:
        """Its broker cannot be reached any longer: whoever waits is told."""
        self._failure = self._failure or error
        self._machine.connected.set()
        for found in self._outcomes.values():
            if not found.done():
                found.set_exception(error)
                found.exception()  # nobody may be waiting any longer

    async def stop(self) -> None:
        await ended(*self._answering)
        await self._place.stop()

    async def advertise(self, name: str, wanted: Filter | str) -> None:
        await self.ask(Advertise(name, _filter(wanted)))

    async def unadvertise(self, name: str) -> None:
        await self.ask(Unadvertise(name))

    async def subscribe(self, name: str, wanted: Filter | str) -> None:
        await self.ask(Subscribe(name, _filter(wanted)))

    async def unsubscribe(self, name: str) -> None:
        await self.ask(Unsubscribe(name))

    async def publish(self, topic: str, attributes: Mapping[str, Value] | None = None) -> None:
        await self.ask(Publish(topic, attributes or {}))

    async def run(self, plan: Plan) -> Outcome:
        """Run a static transaction to its end."""
        await self._check_kind("static")
        await self.ask(Run(plan))
        return await self.outcome(self._machine.client.last_transaction)

    @overload
    def transaction(self, kind: Literal["static"]) -> Planning: ...

    @overload
    def transaction(self, kind: Literal["isolated", "open"] = "isolated") -> Transaction: ...

    def transaction(self, kind: Kind = "isolated") -> Planning | Transaction:
        """A block of operations that belong together."""
        return Planning(self) if kind == "static" else Transaction(self, kind)

    async def ask(self, *requests: Request) -> None:
        await self.connected()
        if self.topics is not None:
            for request in requests:
                _check_topics(request, self.topics)
        self._place.command(*requests)

    async def begin(self, kind: Kind) -> str:
        await self._check_kind(kind)
        await self.ask(Begin(kind))
        return self._machine.client.last_transaction

    async def _check_kind(self, kind: Kind) -> None:
        await self.connected()
        if kind not in self.kinds:
            raise UsageError(
                f"there are no {kind} transactions here",
                hint=f"there are {' and '.join(self.kinds)}",
            )

    def _outcome(self, tx: str) -> asyncio.Future[Outcome]:
        if self._failure is not None:
            raise self._failure
        if tx not in self._outcomes:
            self._outcomes[tx] = asyncio.get_running_loop().create_future()
        return self._outcomes[tx]

    async def outcome(self, tx: str) -> Outcome:
        """Wait for the outcome of a transaction that was begun here."""
        found = await self._outcome(tx)
        del self._outcomes[tx]
        return found

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        for one in deliveries:
            outcome, trigger = outcome_of(one), trigger_of(one)
            if outcome is not None:
                if outcome.transaction.startswith(f"{self.name}#"):
                    found = self._outcome(outcome.transaction)
                    if not found.done():
                        found.set_result(outcome)
            elif trigger is not None:
                task = asyncio.get_running_loop().create_task(self._answer(trigger))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            else:
                self.take(one.events[0])

    async def _answer(self, trigger: Triggered) -> None:
        tx, thread = trigger.transaction, trigger.thread
        ran = self.handler is not None
        try:
            if self.handler is not None:
                await self.handler(trigger, Answer(self, tx, thread))
            self._place.command(Return(tx, thread, ran))
        except UsageError:
            if self._machine.client.takes_part(tx):  # it is not over, but cannot be done
                self._place.command(Return(tx, thread, ran=False))


class Answer:
    """The actions of one client in a transaction, one after the other."""

    def __init__(self, door: Door, tx: str, thread: str = "") -> None:
        self._door = door
        self.name = tx
        self._thread = thread

    async def advertise(self, name: str, wanted: Filter | str) -> None:
        await self._act(Advertise(name, _filter(wanted)))

    async def unadvertise(self, name: str) -> None:
        await self._act(Unadvertise(name))

    async def subscribe(self, name: str, wanted: Filter | str) -> None:
        await self._act(Subscribe(name, _filter(wanted)))

    async def unsubscribe(self, name: str) -> None:
        await self._act(Unsubscribe(name))

    async def publish(self, topic: str, attributes: Mapping[str, Value] | None = None) -> None:
        await self._act(Publish(topic, attributes or {}))

    async def trigger(
        self, target: str, topic: str, attributes: Mapping[str, Value] | None = None
    ) -> None:
        await self._act(Trigger(target, topic, attributes or {}))

    async def _act(self, action: Action) -> None:
        await self._door.ask(Act(self.name, action, self._thread))


class Transaction(Answer):
    """An `async with` block: commits at its end, aborts if it raises."""

    outcome: Outcome
    """Known after the block."""

    def __init__(self, door: Door, kind: Kind) -> None:
        super().__init__(door, "")
        self._kind: Kind = kind

    async def __aenter__(self) -> Transaction:
        self.name = await self._door.begin(self._kind)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self._door.ask(Commit(self.name))
        else:
            await self._door.ask(Abort(self.name, f"its block raised {type(error).__name__}"))
        self.outcome = await self._door.outcome(self.name)


class Steps:
    """What one client does in a plan, written down and not done yet."""

    def __init__(self) -> None:
        self._written: list[Action | tuple[Trigger, Steps]] = []

    @property
    def actions(self) -> tuple[Action, ...]:
        """What is written down so far, with what triggers lead to."""
        return tuple(
            msgspec.structs.replace(one[0], actions=one[1].actions)
            if isinstance(one, tuple)
            else one
            for one in self._written
        )

    def advertise(self, name: str, wanted: Filter | str) -> None:
        self._written.append(Advertise(name, _filter(wanted)))

    def unadvertise(self, name: str) -> None:
        self._written.append(Unadvertise(name))

    def subscribe(self, name: str, wanted: Filter | str) -> None:
        self._written.append(Subscribe(name, _filter(wanted)))

    def unsubscribe(self, name: str) -> None:
        self._written.append(Unsubscribe(name))

    def publish(self, topic: str, attributes: Mapping[str, Value] | None = None) -> None:
        self._written.append(Publish(topic, attributes or {}))

    def trigger(
        self, target: str, topic: str, attributes: Mapping[str, Value] | None = None
    ) -> Steps:
        """Make another client act; write down what it does in what is returned."""
        steps = Steps()
        self._written.append((Trigger(target, topic, attributes or {}), steps))
        return steps


class Planning(Steps):
    """An `async with` block that writes a plan and runs it at its end.

    Nothing is asked of anybody before, so its operations are no awaitables, and a block that raises
    has done nothing.
    """

    outcome: Outcome
    """Known after the block."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self._door = door

    @property
    def plan(self) -> Plan:
        """The transaction as it is written so far: print it before it runs."""
        return Plan(self._door.name, self.actions)

    async def __aenter__(self) -> Planning:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.outcome = await self._door.run(self.plan)


def _filter(wanted: Filter | str) -> Filter:
    """A filter, or the text of one: a topic, and what its attributes are compared with."""
    if isinstance(wanted, Filter):
        return wanted
    found = [one for subscription in parse(wanted) for one in filters_of(subscription)]
    if len(found) != 1:
        raise UsageError(f"{wanted!r} is not one filter", hint="take a name for each of them")
    return found[0]


def _check_topics(request: Request, known: tuple[str, ...]) -> None:
    """Refuse what no feed of the cluster would take."""
    for topic in _topics(request):
        if topic not in known:
            raise UsageError(
                f"the cluster does not know the topic {topic!r}",
                hint=f"declared are {', '.join(known) or 'none'}; [topics] of the cluster file "
                "declares them",
            )


def _topics(request: Request) -> Iterator[str]:
    """The topics that a request publishes to."""
    action = request.action if isinstance(request, Act) else request
    if isinstance(action, Publish | Trigger):
        yield action.topic
    elif isinstance(action, Run):
        for _, step in action.plan.lines():
            yield from _topics(step.action)
