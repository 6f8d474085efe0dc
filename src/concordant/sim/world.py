"""The world: machines, nodes and virtual time in one thread.

It takes the next thing that happens, gives it to a machine, and carries out the effects. The same
seed gives the same run, in any process and under any hash seed: things that happen at the same
instant happen in the order in which they were caused. A node may crash, come back with what its
disk has, pause, be slow, or have a clock that is wrong; `faults` decides when. The world knows the
machine contract and no protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any

from concordant.errors import InvariantViolation, UsageError
from concordant.machine.contract import Machine
from concordant.machine.effects import (
    CancelTimer,
    Deliver,
    Delivery,
    Disseminate,
    Effect,
    Ignore,
    Listen,
    Note,
    Persist,
    Send,
    SendAll,
    SetTimer,
)
from concordant.machine.inputs import (
    Command,
    Input,
    Listening,
    Message,
    Received,
    Record,
    Request,
    Started,
    TimerFired,
)
from concordant.sim.network import Link, Network, NetworkSpec
from concordant.sim.recorder import Recorder

_ARRIVE, _TIMER, _SERVE, _SYNCED, _LISTEN, _CALL = range(6)

Watch = Callable[["World", "Place", Input, Sequence[Effect]], None]
"""Sees every step, for transcripts; changes nothing."""


class Node:
    """A process that hosts machines."""

    __slots__ = (
        "clock_offset_us",
        "doomed",
        "free_at",
        "inbox",
        "name",
        "paused",
        "places",
        "plain",
        "service_us",
        "sync_us",
        "up",
        "usual_service_us",
    )

    def __init__(self, name: str, *, service_us: int = 0, sync_us: int = 0) -> None:
        self.name = name
        self.up = False
        self.paused = False
        self.service_us = self.usual_service_us = service_us
        """What one message costs."""
        self.sync_us = sync_us
        """How long a write takes to be durable."""
        self.doomed = ""
        """What will happen to the next write: `lost-writes` or `failing-writes`."""
        self.clock_offset_us = 0
        self.free_at = 0
        self.inbox: deque[tuple[int, Place, Any]] = deque()
        self.places: list[Place] = []
        self.plain = False

    def revise(self) -> None:
        """A plain node takes everything at once."""
        self.plain = self.up and not self.paused and not self.service_us


class Place:
    """Where a machine lives: its address, its timers and its disk outlive the machine."""

    __slots__ = (
        "address",
        "links",
        "listens",
        "log",
        "machine",
        "make",
        "node",
        "syncing",
        "taken_count",
        "timers",
        "unsynced",
        "waiting",
    )

    def __init__(self, address: str, node: Node, make: Callable[[], Machine]) -> None:
        self.address = address
        self.node = node
        self.make = make
        self.machine = make()
        self.links: dict[str, tuple[Link, Place]] = {}
        self.listens: dict[str, bool] = {}
        self.timers: dict[str, int] = {}
        self.log: list[Record] = []
        self.unsynced: list[Persist] = []
        self.syncing = 0
        """The serial of the running write; 0 if none runs."""
        self.waiting: deque[Effect] = deque()
        """Effects behind a write that is not durable yet."""
        self.taken_count = 0


class World:
    """One run."""

    def __init__(
        self,
        *,
        seed: str,
        network: NetworkSpec | None = None,
        recorder: Recorder | None = None,
        watch: Watch | None = None,
        step_count_max: int = 1_000_000_000,
    ) -> None:
        self.now = 0
        self._step_count_max = step_count_max
        self.step_count = 0
        self.recorder = Recorder(seed) if recorder is None else recorder
        self.network = Network(
            network or NetworkSpec(), Random(f"{seed}/network"), self.count_fault
        )
        self.nodes: dict[str, Node] = {}
        self.places: dict[str, Place] = {}
        self.on_delivery: Callable[[Place, Iterable[Delivery]], None] | None = None
        self._rng = Random(f"{seed}/world")
        self._watch = watch
        self._listeners: dict[str, dict[str, Place]] = {}
        self._heap: list[tuple[int, int, int, Any, Any]] = []
        self._serial = 0
        self._tree = self.network.spec.dissemination == "tree"

    # --- building -----------------------------------------------------------------------------

    def add(
        self,
        address: str,
        make: Callable[[], Machine],
        *,
        node: str = "",
        service_us: int = 0,
        sync_us: int = 0,
    ) -> None:
        """A machine on a node, which is made if it is new; without a name, a node of its own."""
        name = node or address
        if name not in self.nodes:
            self.nodes[name] = Node(name, service_us=service_us, sync_us=sync_us)
        place = Place(address, self.nodes[name], make)
        self.places[address] = place
        place.node.places.append(place)

    def start(self) -> None:
        """Give every machine its first input."""
        for node in self.nodes.values():
            self._start_node(node)

    def call(self, at: int, what: Callable[[], None]) -> None:
        """Do something at an instant of virtual time."""
        self._push(at, _CALL, None, what)

    def command(self, address: str, *requests: Request) -> bool:
        """Requests of an application; False if its node is down or paused, or it refused them."""
        place = self.places[address]
        if not place.node.up or place.node.paused:
            return False
        self._serial += 1
        try:
            self._give(place, Command(requests, self._serial))
        except UsageError:
            self.recorder.counts["refused"] += 1
            return False
        return True

    def count_fault(self, kind: str) -> None:
        self.recorder.counts[f"fault {kind}"] += 1

    # --- time ---------------------------------------------------------------------------------

    def run(self, until: int) -> None:
        """Let everything happen that happens up to an instant."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, code, place, what = heappop(heap)
            if code == _ARRIVE:
                if place.node.plain:
                    self._give(place, what)
                else:
                    self._arrive(place, what)
            elif code == _CALL:
                what()
            elif code == _TIMER:
                self._fire(place, *what)
            elif code == _SYNCED:
                if place.syncing == what:
                    self._synced(place)
            elif code == _SERVE:
                machine, given = what
                if place.machine is machine and place.node.up:  # the life to which it arrived
                    self._serve(place, given)
            else:
                self._heard(place, *what)
        self.now = max(self.now, until)

    def _push(self, at: int, code: int, place: Any, what: Any) -> int:
        self._serial = serial = self._serial + 1
        heappush(self._heap, (at, serial, code, place, what))
        return serial

    def _give(self, place: Place, given: Input) -> None:
        self.step_count += 1
        if self.step_count > self._step_count_max:
            raise InvariantViolation(
                f"the run does not come to an end after {self.step_count:,} steps"
            )
        effects = place.machine.handle(self.now + place.node.clock_offset_us, given)
        if self._watch is not None:
            self._watch(self, place, given, effects)
        if place.syncing:
            place.waiting.extend(effects)
        else:
            self._carry_out(place, effects)

    def _arrive(self, place: Place, given: Input) -> None:
        node = place.node
        if not node.up:
            return
        if node.paused:
            node.inbox.append((_ARRIVE, place, given))
        else:  # a node with a service time
            cost = node.service_us * (len(given.messages) if type(given) is Received else 1)
            node.free_at = max(self.now, node.free_at) + cost
            self._push(node.free_at, _SERVE, place, (place.machine, given))

    def _serve(self, place: Place, given: Input) -> None:
        if place.node.paused:
            place.node.inbox.append((_SERVE, place, (place.machine, given)))
        else:
            self._give(place, given)

    def _fire(self, place: Place, name: str, token: int) -> None:
        if place.timers.get(name) != token:
            return
        if place.node.paused:
            place.node.inbox.append((_TIMER, place, (name, token)))
            return
        del place.timers[name]
        self._serial += 1
        self._give(place, TimerFired((name,), self._serial))

    def _heard(self, place: Place, machine: Machine, topics: tuple[str, ...]) -> None:
        topics = tuple(topic for topic in topics if topic in place.listens)
        if place.machine is not machine or not topics:
            return
        for topic in topics:
            self._listeners.setdefault(topic, {})[place.address] = place
        self._serial += 1
        self._arrive_now(place, Listening(topics, self._serial))

    def _arrive_now(self, place: Place, given: Input) -> None:
        if place.node.plain:
            self._give(place, given)
        else:
            self._arrive(place, given)

    # --- effects ------------------------------------------------------------------------------

    def _carry_out(self, place: Place, effects: Iterable[Effect]) -> None:
        rest = iter(effects)
        for effect in rest:
            kind = type(effect)
            if kind is Send:
                self._send(place, effect.to, effect.messages)  # type: ignore[union-attr,arg-type]  # `kind` says it
            elif isinstance(effect, SetTimer):
                at = max(self.now, effect.at - place.node.clock_offset_us)
                token = self._serial + 1
                place.timers[effect.name] = token
                self._push(at, _TIMER, place, (effect.name, token))
            elif kind is Deliver:
                self._deliver(place, effect.deliveries)  # type: ignore[union-attr]
            elif isinstance(effect, Persist):
                if not self._persist(place, effect):
                    place.waiting.extend(rest)
                    return
            elif isinstance(effect, Disseminate):
                self._disseminate(place, effect)
            elif isinstance(effect, SendAll):
                for to in effect.to:
                    self._send(place, to, effect.messages)
            elif isinstance(effect, Note):
                self._note(place, effect)
            elif isinstance(effect, CancelTimer):
                place.timers.pop(effect.name, None)
            elif isinstance(effect, Listen):
                place.listens.update(dict.fromkeys(effect.topics, True))
                at = self.now + self.network.link(place.node.name, "").draw()
                self._push(at, _LISTEN, place, (place.machine, effect.topics))
            elif isinstance(effect, Ignore):
                self._ignore(place, effect.topics)

    def _link(self, place: Place, address: str) -> tuple[Link, Place]:
        target = self.places.get(address)
        if target is None:
            raise InvariantViolation(f"{place.address} sent to {address}, which does not exist")
        found = (self.network.link(place.node.name, target.node.name), target)
        place.links[address] = found
        return found

    def _send(self, place: Place, to: str, messages: tuple[Message, ...]) -> None:
        link, target = place.links.get(to) or self._link(place, to)
        for at in self.network.arrivals(self.now, link, messages):
            self._serial = serial = self._serial + 1
            received = Received(place.address, messages, serial)
            heappush(self._heap, (at, serial, _ARRIVE, target, received))

    def _disseminate(self, place: Place, effect: Disseminate) -> None:
        listeners = self._listeners.get(effect.topic)
        if not listeners:
            return
        links = [place.links.get(address) or self._link(place, address) for address in listeners]
        delays: Sequence[int | None] = [None] * len(links)
        if self._tree:
            ways = [link for link, _ in links]
            delays = self.network.tree_delays(effect.topic, place.node.name, ways)
        heap, now, address, messages = self._heap, self.now, place.address, effect.messages
        arrivals = self.network.arrivals
        for (link, target), delay_us in zip(links, delays, strict=True):
            for at in arrivals(now, link, messages, delay_us):
                self._serial = serial = self._serial + 1
                heappush(heap, (at, serial, _ARRIVE, target, Received(address, messages, serial)))

    def _deliver(self, place: Place, deliveries: Sequence[Delivery]) -> None:
        place.taken_count += len(deliveries)
        self.recorder.delivered(self.now, place.node.name, deliveries)
        if self.on_delivery is not None:
            self.on_delivery(place, deliveries)

    def _note(self, place: Place, note: Note) -> None:
        if note.step == "publish":
            self.recorder.published(self.now, place.node.name, note.events)
        elif note.step is not None:
            name = place.node.name
            self.recorder.noted(self.now, name, note.step, note.topics, text=note.text)

    def _ignore(self, place: Place, topics: Iterable[str]) -> None:
        for topic in topics:
            place.listens.pop(topic, None)
            self._listeners.get(topic, {}).pop(place.address, None)

    # --- disks --------------------------------------------------------------------------------

    def _persist(self, place: Place, effect: Persist) -> bool:
        """True if it is durable already; False if the effects behind it have to wait."""
        node = place.node
        if node.doomed == "failing-writes":
            node.doomed = ""
            self.count_fault("failing-writes")
            self.crash(node.name)
            return False
        if not node.sync_us and not node.doomed:
            _write(place.log, effect)
            return True
        self._sync(place, [effect])
        return False

    def _sync(self, place: Place, writes: list[Persist]) -> None:
        node = place.node
        place.unsynced = writes
        place.syncing = self._serial + 1
        self._push(self.now + max(2, node.sync_us), _SYNCED, place, place.syncing)
        if node.doomed == "lost-writes":
            node.doomed = ""
            self.call(self.now + 1, lambda: self.crash(node.name))

    def _synced(self, place: Place) -> None:
        if place.node.paused:
            place.node.inbox.append((_SYNCED, place, place.syncing))
            return
        for write in place.unsynced:
            _write(place.log, write)
        place.unsynced, place.syncing = [], 0
        waiting, place.waiting = place.waiting, deque()
        # What came meanwhile becomes durable by one write.
        writes = [effect for effect in waiting if isinstance(effect, Persist)]
        if not writes:
            self._carry_out(place, waiting)
            return
        first = waiting.index(writes[0])
        self._sync(place, writes)
        place.waiting.extend(one for one in list(waiting)[first:] if not isinstance(one, Persist))
        self._carry_out(place, list(waiting)[:first])

    # --- what faults do -----------------------------------------------------------------------

    def crash(self, name: str) -> None:
        """End the machines of a node; of a running write, nobody knows how much was done."""
        node = self.nodes[name]
        if not node.up:
            return
        node.up = node.paused = False
        node.free_at = 0
        node.inbox.clear()
        node.revise()
        self.count_fault("crash")
        for place in node.places:
            records = [record for write in place.unsynced for record in write.records]
            if records and not any(write.replaces for write in place.unsynced):
                kept_count = self._rng.randint(0, len(records))
                if kept_count < len(records):
                    self.count_fault("lost-writes")
                place.log += records[:kept_count]
            place.unsynced, place.syncing = [], 0
            place.waiting.clear()
            place.timers.clear()
            self._ignore(place, list(place.listens))
        self.recorder.noted(self.now, name, "crash")

    def restart(self, name: str) -> None:
        """A new life with what the disk has."""
        node = self.nodes[name]
        if node.up:
            return
        for place in node.places:
            place.machine = place.make()
            place.waiting.clear()
        self.recorder.noted(self.now, name, "restart")
        self._start_node(node)

    def _start_node(self, node: Node) -> None:
        node.up = True
        node.revise()
        for place in node.places:
            self._serial += 1
            self._give(place, Started(tuple(place.log), place.taken_count, self._serial))

    def pause(self, name: str) -> None:
        """A node that does nothing for a while, and does not know it."""
        node = self.nodes[name]
        if node.up and not node.paused:
            node.paused = True
            node.revise()
            self.count_fault("pause")

    def resume(self, name: str) -> None:
        node = self.nodes[name]
        if node.paused:
            node.paused = False
            node.revise()
            while node.inbox:
                self._push(self.now, *node.inbox.popleft())

    def inject(self, address: str, given: Received) -> None:
        """A message that nobody sent, such as a false suspicion."""
        self._push(self.now, _ARRIVE, self.places[address], given)

    @property
    def held_count(self) -> int:
        """Items that wait somewhere for a message; 0 is a quiet system."""
        return sum(place.machine.held_count for place in self.places.values())


def _write(log: list[Record], effect: Persist) -> None:
    if effect.replaces:
        log.clear()
    log.extend(effect.records)
