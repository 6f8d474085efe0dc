"""Causal delivery in virtual time: brokers, clients that come, go and move, and what is seen of it.

A case is data: which broker serves which topic, which client holds and publishes what, who does
what when, what goes wrong. The workload here is a list of acts, because what breaks causal delivery
is the interplay of a few moves with a few faults, and a list can be drawn, read and shortened.
`Watcher` tells a `Witness` what happens; it looks into machines and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from concordant.causal.broker import Broker
from concordant.causal.burial import Burial
from concordant.causal.flush import Kept
from concordant.causal.inbox import ANY_TOPIC, needs_of
from concordant.causal.messages import Carried, Ordered
from concordant.causal.options import BrokerOptions, ClientOptions, Profile
from concordant.causal.outgoing import Outgoing
from concordant.causal.records import Accepted, Joined, Moved, Passed
from concordant.causal.requests import Address, Migrate
from concordant.causal.subscriber import Subscriber
from concordant.causal.vector import Vector, copied, entries, join, position
from concordant.check import causal_end, causal_order
from concordant.check.causal import BrokerEnd, Carriage, Fact, Id, SubscriberEnd, Witness
from concordant.check.levels import check_level
from concordant.check.verdict import Verdict, Violation, first_violation
from concordant.machine.detector import Detector, DetectorOptions
from concordant.machine.effects import Delivery, Effect, Note, Persist, Send, SetTimer
from concordant.machine.inputs import Input, Request
from concordant.machine.instant import MILLISECOND, Instant
from concordant.machine.requests import Subscribe, Unsubscribe
from concordant.machine.saved import Compact
from concordant.machine.view import View
from concordant.model.event import Event
from concordant.sim import faults
from concordant.sim.network import NetworkSpec
from concordant.sim.protocols import detector_of
from concordant.sim.recorder import Recorder
from concordant.sim.scenario import Fault, Table
from concordant.sim.world import Place, World

BROKER_OPTIONS = BrokerOptions(
    tick_us=12 * MILLISECOND,
    resend_us=16 * MILLISECOND,
    digest_count_max=6,
    pull_count_max=5,
    lease_us=150 * MILLISECOND,
)
CLIENT_OPTIONS = ClientOptions(
    acknowledge_us=12 * MILLISECOND, repeat_us=12 * MILLISECOND, silence_us=70 * MILLISECOND
)
DETECTOR_OPTIONS = DetectorOptions(beat_us=15 * MILLISECOND, suspect_us=120 * MILLISECOND)
"""Short waits and small answers, so that a run is short and still sees repeats and pulls."""

_QUIET_TICKS = 3
"""A run is over when nothing was said or kept for so long: everybody has spoken to somebody."""


class Client(Table, frozen=True):
    """A client at the start of a case."""

    name: str
    topics: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    """Where it is first."""
    publishes: bool = False
    pen: str = ""
    """Another client, elsewhere, that publishes for it and is told what it has seen."""


class Act(Table, frozen=True):
    """Somebody does something; exactly one of the last five is given."""

    at_ms: float
    client: str
    """Or, to compact its log, a broker."""
    publish: tuple[str, ...] = ()
    migrate: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    compact: bool = False

    def request(self, taken_count: int) -> Request:
        if self.compact:
            return Compact(taken_count)
        if self.publish:
            return Address(self.publish)
        if self.migrate:
            return Migrate(self.migrate)
        return Subscribe(self.subscribe) if self.subscribe else Unsubscribe(self.unsubscribe)


class Case(Table, frozen=True):
    """One run of causal delivery."""

    members: dict[str, tuple[str, ...]]
    """By topic: the brokers that serve it."""
    clients: tuple[Client, ...]
    acts: tuple[Act, ...]
    faults: tuple[Fault, ...] = ()
    profile: Profile = "local"
    network: NetworkSpec = NetworkSpec()
    duration_ms: int = 120
    heal_ms: int = 1_500
    sync_us: int = 0
    """How long a client's write takes to be durable."""
    fanout: int = 3
    age_bits: int = 2
    total: bool = False
    """Clients want one order for all."""
    lease_ms: int = 150

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(sorted({one for names in self.members.values() for one in names}))


class Outcome(msgspec.Struct, frozen=True):
    """What came of a case."""

    case: Case
    seed: int
    seen: Witness
    recorder: Recorder
    verdicts: tuple[Verdict, ...]
    step_count: int
    ended_at_us: int

    @property
    def failure(self) -> Verdict | None:
        return first_violation(self.verdicts)


class _Watched(Broker):
    """A broker that is looked at."""

    watcher: Watcher
    advertised: Vector
    """What this life said on its last tick that it and its subscribers have."""

    def order(self, event: Event, topics: Iterable[str], out: Outgoing) -> Ordered:
        join(self.watcher.stable, self.state.stability.stable)
        return super().order(event, topics, out)

    def _deliver(self, ordered: Ordered, out: Outgoing) -> None:
        self.watcher.delivering(self, ordered)
        super()._deliver(ordered, out)

    def _tick(self, now: Instant, out: Outgoing) -> None:
        super()._tick(now, out)
        self.watcher.ticked(self)


class _WatchedBurial(Burial):
    """What is agreed to be lost is looked at."""

    def end(self, kept: Kept, out: Outgoing) -> None:
        broker = self._broker
        assert isinstance(broker, _Watched)
        if not broker.state.flush.done:
            for origin, numbers in kept.items():
                broker.watcher.seen.refused.append((broker.name, origin, frozenset(numbers)))
        super().end(kept, out)


class Watcher:
    """Tells a witness what happens in a world."""

    def __init__(self) -> None:
        self.seen = Witness()
        self.stable: Vector = {}
        """What was stable for anybody who has ordered something: then it was for all."""
        self.readers: dict[str, str] = {}
        """Who reads what a client publishes after, if that is another one."""
        self.late: dict[str, bool] = {}
        """Clients that joined something after the first event."""
        self._knows: dict[str, list[Id]] = {}
        self._published: dict[str, list[str]] = {}
        self._context: dict[str, tuple[tuple[Id, ...], tuple[str, ...]]] = {}
        """By event: what its publisher had delivered and published."""
        self._passed: dict[tuple[str, str], tuple[int, str, int]] = {}
        self._forgotten: set[tuple[str, str]] = set()
        """Passed and not delivered, before a move: they come again."""
        """By client and event: round, origin and number."""

    def delivering(self, broker: Broker, ordered: Ordered) -> None:
        seen = self.seen
        if ordered.id not in seen.facts:
            knew, published = self._context[ordered.event.id]
            seen.facts[ordered.id] = Fact(
                ordered.id,
                ordered.event.id,
                ordered.at,
                ordered.round,
                ordered.past,
                {topic: dict(row) for topic, row in self.stable.items()},
                len(seen.deliveries.get(broker.name, ())),
                knew,
                published,
                ordered.event.source,
            )
        seen.delivered(broker.name, ordered.id)

    def ticked(self, broker: _Watched) -> None:
        """I7, as it happens."""
        state = broker.state
        if state.retired:
            return
        mine = state.stability.acknowledged.get(broker.name, {})
        stable, wrong = state.stability.stable, self.seen.unstable
        self.seen.stability_count += 1
        if mine != broker.advertised:
            for topic, origin, n in entries(broker.advertised):
                if position(mine, topic, origin) < n:
                    wrong.append(f"{broker.name} took back what it said of {topic}")
            broker.advertised = copied(mine)
            for topic, origin, n in entries(mine):
                if n > position(state.delivered, topic, origin):
                    wrong.append(f"{broker.name} advertised more than it has of {topic}")
        for topic, row in stable.items():
            if topic in broker.topics:
                for origin, n in row.items():
                    if n > position(mine, topic, origin):
                        wrong.append(f"{topic} is stable beyond what {broker.name} has")

    def watch(self, world: World, place: Place, given: Input, effects: Sequence[Effect]) -> None:
        """Look at one step."""
        del world, given
        name, machine = place.address, place.machine
        if isinstance(machine, Broker):
            for effect in effects:
                if type(effect) is Send:
                    for message in effect.messages:
                        if type(message) is Carried:
                            self._carried(machine, effect.to, message)
        elif isinstance(machine, Subscriber):
            for effect in effects:
                kind = type(effect)
                if kind is Send or kind is SetTimer:
                    continue
                if isinstance(effect, Persist):
                    for record in effect.records:
                        if isinstance(record, Passed) and not record.silent:
                            self._pass(name, record.carried)
                        elif isinstance(record, Moved) and machine.total:
                            self._forgotten |= {one for one in self._passed if one[0] == name}
                        elif isinstance(record, Accepted):
                            self._accepted(name, f"{name}:{record.number}", record.broker)
                        elif isinstance(record, Joined) and self.seen.facts:
                            self.late[name] = True
                elif isinstance(effect, Note) and effect.step == "publish":
                    for one in effect.events:
                        self._publishing(name, one.id)

    def _pass(self, name: str, carried: Carried) -> None:
        """Of an event that was ordered twice, the first in the line is the one delivered."""
        one = (name, carried.event.id)
        known = None if one in self._forgotten else self._passed.get(one)
        self._forgotten.discard(one)
        place = (carried.round, *carried.id)
        self._passed[one] = min(place, known) if known else place

    def _accepted(self, name: str, event: str, broker: str) -> None:
        """The broker ordered it, or had it from another that did."""
        for one in self.seen.deliveries[broker]:
            if self.seen.facts[one].event == event:
                self.seen.accepted.setdefault((name, event), one)

    def _publishing(self, name: str, event: str) -> None:
        before = self._published.setdefault(name, [])
        if event not in self._context:
            self._context[event] = (
                tuple(self._knows.get(self.readers.get(name, name), ())),
                tuple(before),
            )
            before.append(event)

    def _carried(self, broker: Broker, client: str, carried: Carried) -> None:
        """I9 for an event that was delivered just now, to a subscriber with one home."""
        session = broker.state.sessions.get(client)
        if session is None or session.number != carried.session or not session.solo:
            return
        retained = broker.state.retained
        if not retained.log or next(reversed(retained.log)) != carried.id:
            return
        needs = needs_of(carried, broker.brokers).needs
        found = [
            one.id
            for one in retained.log.values()
            for topic, origin, n in needs
            if one.origin == origin
            and (one.round == n if topic == ANY_TOPIC else one.at.get(topic) == n)
        ]
        topics = set(session.topics)
        self.seen.carriages.append(
            Carriage(
                carried.id,
                session.topics,
                tuple(found),
                tuple(one.id for one in retained.log.values() if topics & set(one.at)),
                broker.options.profile == "local",
            )
        )

    def delivered(self, place: Place, deliveries: Iterable[Delivery]) -> None:
        """What an application got."""
        name = place.address
        for delivery in deliveries:
            for event in delivery.events:
                one = self._passed[name, event.id][1:]
                self.seen.upcalls.setdefault(name, []).append(one)
                self._knows.setdefault(name, []).append(one)
            if not delivery.events:
                self.seen.gaps[name] = self.seen.gaps.get(name, 0) + 1


def build(world: World, case: Case, watcher: Watcher, *, seed: int) -> None:
    """Put brokers, their failure detectors, and clients into a world."""
    options = msgspec.structs.replace(
        BROKER_OPTIONS,
        profile=case.profile,
        seed=seed,
        fanout=case.fanout,
        age_bits=case.age_bits,
        lease_us=case.lease_ms * MILLISECOND,
    )
    view = View.of(1, case.brokers)
    # Where nothing ever happens to a broker, detectors would only fill the run with heartbeats.
    watched = any(one.node in case.brokers for one in case.faults)
    for name in case.brokers:

        def make(name: str = name) -> Broker:
            broker = _Watched(name, members=case.members, options=options)
            broker.watcher, broker.advertised = watcher, {}
            broker.burial = _WatchedBurial(broker)
            return broker

        world.add(name, make)
        if watched:
            detector = partial(
                Detector, name, view=view, listeners=(name,), options=DETECTOR_OPTIONS
            )
            world.add(detector_of(name), detector, node=name)
    watcher.readers.update({one.pen: one.name for one in case.clients if one.pen})
    for client in case.clients:
        make_client = partial(
            Subscriber,
            client.name,
            members=case.members,
            topics=client.topics,
            publishes=tuple(case.members) if client.publishes else (),
            prefers=client.homes,
            profile=case.profile,
            total=case.total,
            options=CLIENT_OPTIONS,
        )
        world.add(client.name, make_client, sync_us=case.sync_us)


def play(case: Case, *, seed: int) -> Outcome:
    """Run a case and judge it."""
    watcher = Watcher()
    level = "total strict" if case.total else "causal"
    recorder = Recorder(f"causal/{seed}", level=level)
    world = World(
        seed=str(seed),
        network=case.network,
        recorder=recorder,
        watch=watcher.watch,
        step_count_max=200_000,
    )
    world.on_delivery = watcher.delivered
    broken: Verdict | None = None
    try:
        _phases(world, case, watcher, seed)
    except Exception as error:  # whatever it is, a machine broke: a finding with its seed
        sentence = f"{type(error).__name__}: {error}"
        broken = Verdict("Invariants", world.step_count, Violation(sentence))
    seen = watcher.seen
    verdicts = [broken] if broken else []
    verdicts += causal_order.all_of(seen)
    verdicts += causal_end.all_of(seen)
    # Where events have several topics, FIFO per topic says nothing that I2 does not. With a broker,
    # events may die that it had accepted (no validity), and one that its publisher never heard of
    # is ordered again, perhaps after what follows its first order: I2 looks at orders.
    died = any(one.state.retired for one in _brokers(world))
    idle = {"FIFO", "Validity", "Causal"} if died else {"FIFO"}
    rows = recorder.rows()
    verdicts += [one for one in check_level(rows, recorder.level) if one.name not in idle]
    return Outcome(case, seed, seen, recorder, tuple(verdicts), world.step_count, world.now)


def _phases(world: World, case: Case, watcher: Watcher, seed: int) -> None:
    build(world, case, watcher, seed=seed)
    world.start()
    faults.schedule(world, case.faults)
    pens = {one.name: one.pen for one in case.clients if one.pen}
    for act in case.acts:
        world.call(int(act.at_ms * 1_000), partial(_act, world, act, pens))
    world.run(case.duration_ms * 1_000)
    if not all(world.nodes[one].up for one in case.brokers):
        world.run(world.now + 2 * DETECTOR_OPTIONS.suspect_us)  # until they are missed
    faults.heal(world)
    end_us = world.now + case.heal_ms * 1_000
    quiet_count = 0
    while world.now < end_us:
        before = len(world.recorder)
        world.run(min(end_us, world.now + BROKER_OPTIONS.tick_us))
        quiet = not (len(world.recorder) > before or world.held_count or _kept(world))
        quiet_count = quiet_count + 1 if quiet else 0
        if quiet_count == _QUIET_TICKS:
            world.recorder.noted(world.now, "", "end")
            break
    _look_at_the_end(world, case, watcher)


def _act(world: World, act: Act, pens: Mapping[str, str]) -> None:
    place = world.places[act.client]
    request = act.request(place.taken_count)
    if not act.publish or act.client not in pens:
        world.command(act.client, request)
    elif place.node.up and not place.node.paused:
        assert isinstance(place.machine, Subscriber)
        world.command(pens[act.client], place.machine.known, request)


def _brokers(world: World) -> list[Broker]:
    machines = (place.machine for place in world.places.values())
    return [one for one in machines if isinstance(one, Broker)]


def _kept(world: World) -> bool:
    """Is something still kept, or does a broker not know yet that others hold it for dead?"""
    alive = [one for one in _brokers(world) if not one.state.retired]
    dead = {name for one in alive for name in one.state.flush.dead}
    return any(one.state.retained.log or one.name in dead for one in alive)


def _look_at_the_end(world: World, case: Case, watcher: Watcher) -> None:
    seen = watcher.seen
    seen.ended = True
    for broker in _brokers(world):
        if not broker.state.retired:
            seen.brokers[broker.name] = BrokerEnd(
                tuple(topic for topic in case.members if topic in broker.topics),
                broker.state.delivered,
                broker.held_count,
                len(broker.state.retained.log),
            )
    changed = {act.client for act in case.acts if act.subscribe or act.unsubscribe}
    for client in case.clients:
        subscriber = world.places[client.name].machine
        assert isinstance(subscriber, Subscriber)
        inbox = subscriber.state.inbox
        seen.subscribers[client.name] = SubscriberEnd(
            tuple(inbox.topics),
            inbox.last,
            tuple(subscriber.state.homes),
            subscriber.held_count,
            client.name not in changed and client.name not in watcher.late,
        )
