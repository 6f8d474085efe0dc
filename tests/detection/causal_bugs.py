"""Planted bugs in causal delivery: what the paper says, and what drafts of the correction said.

Each is planted while a context is open; drawn cases then have to break one of the promises named
beside it. `cases_to_find` says how many cases that takes. The numbers of rows are those of the
table of errors in docs/concepts/causal.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from concordant.causal import inbox as inbox_module
from concordant.causal import recovery
from concordant.causal import service as service_module
from concordant.causal import subscriber as subscriber_module
from concordant.causal.broker import Broker
from concordant.causal.burial import Burial
from concordant.causal.flush import Flush
from concordant.causal.horizon import Horizon
from concordant.causal.inbox import Inbox, Waiting
from concordant.causal.line import Line
from concordant.causal.messages import Carried, Ordered
from concordant.causal.options import Profile
from concordant.causal.outbox import Outbox
from concordant.causal.records import Learnt, Passed
from concordant.causal.retained import Retained
from concordant.causal.safety import Safety
from concordant.causal.seen import Seen
from concordant.causal.service import Service
from concordant.causal.stability import Stability
from concordant.causal.state import BrokerState, SubscriberState
from concordant.causal.subscriber import Subscriber
from concordant.causal.vector import Vector, join
from concordant.sim.causal import Act, Case, Client, play
from concordant.sim.causal_cases import Mix, drawn
from concordant.sim.scenario import Fault
from tests.detection.planting import Plant, planted

CASE_COUNT_MAX = 3_000
"""A bug that survives so many cases is not caught."""


@dataclass(frozen=True)
class CausalBug:
    """A sentence that is false of the protocol, and how to make it true."""

    name: str
    breaks: tuple[str, ...]
    """Promises, by the beginning of their names, of which one has to be found broken first."""
    plant: Plant
    mix: Mix = "calm"
    profile: Profile = "local"
    dies_at: int = 0
    """The first seed at which it is found, so that the test of it is quick; the campaign looks for
    it from the beginning."""
    sharpen: Callable[[Case], Case] = lambda case: case
    """What a case must have for the bug to show, if that is rare."""


BUGS: list[CausalBug] = []


def bug(name: str, *breaks: str, **others: Any) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        BUGS.append(CausalBug(name, breaks, plant, **others))
        return plant

    return add


def case_for(which: CausalBug, seed: int) -> Case:
    return which.sharpen(drawn(seed, profile=which.profile, mix=which.mix))


def found_at(which: CausalBug, seed: int) -> bool:
    """Is a promise seen broken in the expected way?"""
    with planted(which):
        failure = play(case_for(which, seed), seed=seed).failure
    return failure is not None and failure.name.startswith(which.breaks)


def cases_to_find(which: CausalBug, *, case_count_max: int = CASE_COUNT_MAX) -> int | None:
    """How many cases it takes to find it."""
    return next((seed + 1 for seed in range(case_count_max) if found_at(which, seed)), None)


def _long_silences(case: Case) -> Case:
    """Everybody is silent for longer than a lease."""
    pauses = tuple(Fault("pause", 50, 100, node=one.name) for one in case.clients[::2])
    return msgspec.structs.replace(case, faults=pauses, lease_ms=30)


def _sudden_death(case: Case) -> Case:
    """A broker is held for dead while its events are on their slow way to others."""
    doomed = next((one.suspect or one.node for one in case.faults if _kills(one)), "")
    if not doomed:
        return case
    hit = [Fault("reordering", 0, 140, share=0.9, delay_ms=40)]
    times = [one.at_ms for one in case.acts if one.publish]
    witness = next(one for one in case.brokers if one != doomed)
    hit.append(Fault("suspicion", int(times[len(times) // 2]) + 3, 1, node=witness, suspect=doomed))
    return msgspec.structs.replace(case, faults=tuple(hit), fanout=1)


def _snapshots_and_crashes(case: Case) -> Case:
    """All logs are replaced all the time, and everybody crashes once, for a moment."""
    names = [*case.brokers, *(one.name for one in case.clients)]
    acts = [Act(at_ms, name, compact=True) for at_ms in range(30, 130, 5) for name in names]
    crashes = [Fault("crash", 60 + 7 * k, 3, node=name) for k, name in enumerate(names)]
    return msgspec.structs.replace(
        case,
        acts=tuple(sorted((*case.acts, *acts), key=lambda one: one.at_ms)),
        faults=(*case.faults, *crashes),
    )


def _in_one_line(case: Case) -> Case:
    """Everybody wants one order for all."""
    return msgspec.structs.replace(case, total=True)


def _given_up_in_one_line(case: Case) -> Case:
    """A broker is silent for so long that its clients turn to others, and then goes on."""
    pause = Fault("pause", 28, 80, node=case.brokers[0])
    return _in_one_line(msgspec.structs.replace(case, faults=(*case.faults, pause)))


def _dies_in_one_line(case: Case) -> Case:
    return _in_one_line(_sudden_death(case))


def _dies_unheard(case: Case) -> Case:
    """C hears from the others how far they are, and what it orders reaches none of them before they
    hold it for dead; for a while its own clients go on with it."""
    at_home = {"s": "CAB", "p": "CBA", "q": "ABC", "r": "BAC"}
    clients = tuple(
        Client(name, ("T",), tuple(homes), publishes=name != "s") for name, homes in at_home.items()
    )
    acts = (Act(20.0 + 4 * k, name, publish=("T",)) for k in range(20) for name in "qpr")
    return _in_one_line(
        msgspec.structs.replace(
            case,
            members={"T": ("A", "B", "C")},
            clients=clients,
            acts=tuple(acts),
            faults=(
                Fault("reordering", 0, 140, share=0.7, delay_ms=80),
                Fault("suspicion", 60, 1, node="A", suspect="C"),
            ),
            fanout=1,
        )
    )


def _dies_late(case: Case) -> Case:
    """Nothing is lost but what a broker takes with it; nearly everything comes much too late."""
    doomed = next((one.suspect or one.node for one in case.faults if _kills(one)), "")
    if not doomed:
        return case
    its_own = {one.name for one in case.clients if one.homes[0] == doomed}
    times = [one.at_ms for one in case.acts if one.publish and one.client in its_own] or [60.0]
    witness = next(one for one in case.brokers if one != doomed)
    faults = (
        Fault("reordering", 0, 140, share=0.95, delay_ms=80),
        Fault("suspicion", int(times[len(times) // 2]) + 50, 1, node=witness, suspect=doomed),
    )
    return msgspec.structs.replace(case, faults=faults, fanout=1)


def _dies_late_in_one_line(case: Case) -> Case:
    return _in_one_line(_dies_late(case))


def _joins_after_a_death(case: Case) -> Case:
    """All that s knows died with C, but for its rounds."""
    clients = (Client("s", ("T",), ("C", "A", "B")), Client("p", (), ("C", "B", "A"), True))
    acts = [Act(20.0 + k, "p", publish=("T",)) for k in range(20)]
    return msgspec.structs.replace(
        case,
        members={"T": ("A", "B", "C"), "U": ("A", "B", "C")},
        clients=clients,
        acts=(*acts, Act(100.0, "s", subscribe=("U",))),
        faults=(
            Fault("reordering", 0, 140, share=0.7, delay_ms=80),
            Fault("suspicion", 45, 1, node="A", suspect="C"),
        ),
        fanout=1,
    )


def _apart(case: Case) -> Case:
    """Whoever publishes does it by another client, and what is said takes its time."""
    clients: list[Client] = []
    for one in case.clients:
        if one.publishes and one.topics:
            pen = Client(f"{one.name}/pen", (), one.homes[::-1], publishes=True)
            clients += (msgspec.structs.replace(one, publishes=False, pen=pen.name), pen)
        else:
            clients.append(one)
    slow = Fault("reordering", 0, 140, share=0.5, delay_ms=20)
    return msgspec.structs.replace(case, clients=tuple(clients), faults=(slow,))


def _apart_and_crashing(case: Case) -> Case:
    """Who publishes for another crashes as soon as the event is kept, and what it sent is lost."""
    apart = _apart(case)
    pens = {one.name: one.pen for one in apart.clients}
    crashes = tuple(
        Fault("crash", int(act.at_ms) + 1, 2, node=pens[act.client])
        for act in apart.acts
        if act.publish
    )
    loss = Fault("loss", 0, 140, share=0.6)
    return msgspec.structs.replace(apart, faults=(*apart.faults, loss, *crashes))


def _kills(fault: Fault) -> bool:
    return fault.kind == "suspicion" or (fault.kind == "pause" and fault.node in "ABCDE")


# --- what the paper says --------------------------------------------------------------------------


def _parents(self: Retained, ordered: Any) -> list[Any]:
    """The immediate predecessors in the broker's whole graph, whatever their topics."""
    whole = [
        (topic, origin, kept[0])
        for topic, row in ordered.past.items()
        for origin, n in row.items()
        if (kept := self.last_at(topic, origin, n)) is not None
    ]
    return list(self.immediate(whole))


@bug("row 1: parents in the sender's graph, foreign ones ignored", "I2", "I9", "Causal")
def _(patch: pytest.MonkeyPatch) -> None:
    def candidates(self: Retained, ordered: Any, topics: Any, served: Any, final: Any) -> Any:
        return [one for one in _parents(self, ordered) if one[0] in topics]

    patch.setattr(Retained, "candidates", candidates)


@bug("row 1: parents in the sender's graph, foreign ones waited for", "I4", "I11")
def _(patch: pytest.MonkeyPatch) -> None:
    def candidates(self: Retained, ordered: Any, topics: Any, served: Any, final: Any) -> Any:
        return _parents(self, ordered)

    correct = Inbox.put

    def put(self: Inbox, one: Waiting) -> None:
        if one.carried.id not in self.waiting_ids():  # the paper sends nothing again
            correct(self, one)

    patch.setattr(Retained, "candidates", candidates)
    patch.setattr(Inbox, "put", put)


@bug(
    "row 2: exactly the round before must have been delivered",
    "I4",
    "I11",
    profile="rounds",
    dies_at=2,
)
def _(patch: pytest.MonkeyPatch) -> None:
    def reached(self: Inbox, needs: Any) -> bool:
        return all(self._best(origin) == n for _, origin, n in needs)

    patch.setattr(Inbox, "_reached", reached)


@bug(
    "row 3: one age per broker over all topics, also those not received",
    "I4",
    "I11",
    profile="rounds",
    dies_at=8,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Retained.candidates

    def candidates(self: Retained, ordered: Any, topics: Any, served: Any, final: Any) -> Any:
        return correct(self, ordered, tuple(ordered.past), served, final)

    patch.setattr(Retained, "candidates", candidates)


COLOURS = 3


@bug("row 5: bare colours, compared as they are", "I2", "Causal", profile="rounds", dies_at=4)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = inbox_module.needs_of

    def needs_of(carried: Carried, brokers: Any) -> Waiting:
        needs = correct(carried, brokers).needs
        return Waiting(carried, tuple((t, origin, n % COLOURS) for t, origin, n in needs))

    def reached(self: Inbox, needs: Any) -> bool:
        return all(self._best(origin) % COLOURS >= n for _, origin, n in needs)

    patch.setattr("concordant.causal.subscriber.needs_of", needs_of)
    patch.setattr(Inbox, "_reached", reached)


@bug(
    "row 5: ages modulo the colours, without an escape",
    "I2",
    "I4",
    "I9",
    profile="rounds",
    dies_at=3,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = service_module.encode

    def encode(ages: Any, brokers: Any, *, bits: int) -> bytes:
        return correct(
            {one: (age - 1) % COLOURS + 1 for one, age in ages.items()}, brokers, bits=bits
        )

    patch.setattr(service_module, "encode", encode)


@bug("row 8: only a successor shows that something is missing", "I4", "I11", "Validity", dies_at=0)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Broker, "_compare", lambda self, source, digest, out: None)


@bug("row 8: a subscriber pulls only when something waits", "I4", "I11", "I5", dies_at=51)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Subscriber._acknowledge

    def acknowledge(self: Any, out: Any) -> None:
        if self.state.inbox.held_count:
            correct(self, out)

    patch.setattr(Subscriber, "_acknowledge", acknowledge)


@bug("row 9: events are forgotten after a few rounds", "I2", "I4", "I11", "I1", "I8", dies_at=2)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Broker._tick

    def tick(self: Any, now: Any, out: Any) -> None:
        correct(self, now, out)
        for one in list(self.state.retained.log.values()):
            if one.round <= self.state.round - 3:
                self.state.retained.forget(one)

    patch.setattr(Broker, "_tick", tick)


# --- what drafts of the correction said -----------------------------------------------------------


@bug(
    "stability does not wait for subscribers",
    "I2",
    "I4",
    "I11",
    "Causal",
    mix="migration",
    dies_at=0,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Stability.advertise
    patch.setattr(
        Stability, "advertise", lambda self, me, mine, attached: correct(self, me, mine, ())
    )


@bug(
    "a joined topic brings what is older than the join",
    "I2",
    "Causal",
    "Subscribed",
    mix="migration",
    dies_at=2,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Inbox.silent

    def silent(self: Inbox, carried: Carried, *, again: bool = False) -> bool:
        kept = self.joined_at, self.joining
        self.joined_at, self.joining = {}, {}
        try:
            return correct(self, carried, again=again)
        finally:
            self.joined_at, self.joining = kept

    patch.setattr(Inbox, "silent", silent)


@bug(
    "the context of a client is taken without what lies behind it",
    "I8",
    "I2",
    mix="migration",
    dies_at=7,
)
def _(patch: pytest.MonkeyPatch) -> None:
    def ask(self: Service, held: Any, out: Any) -> None:
        held.asks.clear()

    patch.setattr(Service, "_ask", ask)


@bug("an attach has no floor", "I4", "I2", "I3", "No Duplication", mix="migration", dies_at=54)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Inbox.begin
    patch.setattr(Inbox, "begin", lambda self, floors, missed: correct(self, (), missed))


@bug("a client's publication does not raise the round", "I6", mix="suspicion", dies_at=71)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Service._submit

    def submit(self: Service, client: str, message: Any, out: Any) -> None:
        correct(self, client, msgspec.structs.replace(message, round=0), out)

    patch.setattr(Service, "_submit", submit)


@bug("a resolved context does not raise the round", "I6", mix="migration", dies_at=24)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Service.resolved

    def resolved(self: Service, answer: Any, out: Any) -> None:
        correct(self, msgspec.structs.replace(answer, round=0), out)

    patch.setattr(Service, "resolved", resolved)


@bug("the last answer to an attach counts", "I11", "Validity", "I2", mix="lossy", dies_at=5)
def _(patch: pytest.MonkeyPatch) -> None:
    def attached(self: Any, home: str, answer: Any, out: Any) -> None:
        if self.state.attached:
            join(self.state.inbox.last, answer.floor)
        else:
            correct(self, home, answer, out)

    correct = Subscriber._attached
    patch.setattr(Subscriber, "_attached", attached)


@bug("a client that leaves says so once", "I5", mix="migration", dies_at=4)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Subscriber._leave

    def leave(self: Any, out: Any) -> None:
        correct(self, out)
        self.state.leaving.clear()

    def no_lease(self: Any, now: Any, out: Any) -> None:
        for session in self._broker.state.sessions.values():
            session.heard_at = now
        tick(self, now, out)

    tick = Service.tick
    patch.setattr(Subscriber, "_leave", leave)
    patch.setattr(Service, "tick", no_lease)


@bug(
    "predecessors are reduced for subscribers with two homes",
    "I2",
    "Causal",
    mix="two-homes",
    dies_at=2,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Service._carried

    def carried(self: Service, ordered: Any, session: Any) -> Carried:
        found = correct(self, ordered, session)
        kept = self._broker.state.retained.immediate(found.predecessors)
        return msgspec.structs.replace(found, predecessors=kept)

    patch.setattr(Service, "_carried", carried)


@bug(
    "own topics are raised by what an event follows",
    "I4",
    "I5",
    "I1",
    mix="suspicion",
    sharpen=_sudden_death,
    dies_at=4,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Broker._deliver

    def deliver(self: Any, ordered: Any, out: Any) -> None:
        correct(self, ordered, out)
        join(self.state.delivered, ordered.past)

    patch.setattr(Broker, "_deliver", deliver)


# --- publications under way -----------------------------------------------------------------------


@bug(
    "an answer does not enter what the client knows",
    *("I1", "I2", "I8"),
    mix="migration",
    dies_at=4,
)
def _(patch: pytest.MonkeyPatch) -> None:
    def accept(self: SubscriberState, number: int, context: Any, round: int) -> None:
        correct(self, number, {}, round)

    correct = SubscriberState.accept
    patch.setattr(SubscriberState, "accept", accept)


@bug(
    "what follows a repeated publication builds on it",
    "I1",
    "I2",
    "I8",
    "I6",
    profile="rounds",
    mix="lossy",
    dies_at=467,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Outbox.turn

    def turn(self: Outbox, now: Any, target: str = "") -> None:
        correct(self, now, target)
        self.whole = self.sent + 1

    patch.setattr(Outbox, "turn", turn)


@bug(
    "a publication does not wait for the one before it",
    "I",
    "FIFO",
    "Causal",
    "Validity",
    dies_at=1,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Service._submit

    def submit(self: Service, client: str, message: Any, out: Any) -> None:
        correct(self, client, msgspec.structs.replace(message, after=0), out)

    patch.setattr(Service, "_submit", submit)


@bug(
    "a snapshot forgets what waits to be ordered",
    "Validity",
    "I",
    mix="lossy",
    sharpen=_snapshots_and_crashes,
    dies_at=3,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = SubscriberState.crashed

    def crashed(self: SubscriberState) -> bytes:
        kept = msgspec.structs.replace(self.outbox, waiting={})
        return correct(msgspec.structs.replace(self, outbox=kept))

    patch.setattr(SubscriberState, "crashed", crashed)


@bug(
    "a snapshot forgets what was delivered",
    "I3",
    "No Duplication",
    sharpen=_snapshots_and_crashes,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = SubscriberState.crashed

    def crashed(self: SubscriberState) -> bytes:
        kept = msgspec.structs.replace(self.inbox, last={}, seen={})
        return correct(msgspec.structs.replace(self, inbox=kept))

    patch.setattr(SubscriberState, "crashed", crashed)


@bug("a broker's snapshot forgets what others lack", "I", sharpen=_snapshots_and_crashes, dies_at=0)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = BrokerState.condensed

    def condensed(self: BrokerState) -> bytes:
        return correct(msgspec.structs.replace(self, retained=Retained()))

    patch.setattr(BrokerState, "condensed", condensed)


# --- one order for all ----------------------------------------------------------------------------

_ONE_ORDER = "Total Order, strict"


@bug(
    "a home's word counts before everything is here",
    _ONE_ORDER,
    profile="rounds",
    sharpen=_in_one_line,
    dies_at=11,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Line.show
    patch.setattr(Line, "show", lambda self, rounds, had, again: correct(self, rounds, {}, again))


@bug(
    "a subscriber that joins a topic keeps the rounds that it knows to itself",
    "I4",
    "Drained",
    profile="rounds",
    mix="suspicion",
    sharpen=_joins_after_a_death,
    dies_at=16,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Service._acknowledge

    def acknowledge(self: Service, now: Any, client: str, ack: Any, out: Any) -> None:
        correct(self, now, client, msgspec.structs.replace(ack, round=0), out)

    patch.setattr(Service, "_acknowledge", acknowledge)


@bug(
    "of an event that was ordered twice, the order that comes first counts",
    _ONE_ORDER,
    "Causal",
    "I11",
    profile="rounds",
    sharpen=_given_up_in_one_line,
    dies_at=0,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Inbox.silent
    patch.setattr(Inbox, "silent", lambda self, carried, again=False: correct(self, carried))


@bug(
    "the slowest broker is not waited for",
    _ONE_ORDER,
    profile="rounds",
    sharpen=_in_one_line,
    dies_at=4,
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Service, "_complete", lambda self, topic: self._broker.state.round)


@bug(
    "a broker's round counts before its events are here",
    _ONE_ORDER,
    profile="rounds",
    sharpen=_in_one_line,
    dies_at=7,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Horizon.claimed
    patch.setattr(
        Horizon, "claimed", lambda self, broker, round, positions: correct(self, broker, round, {})
    )


@bug(
    "the dead are not waited for while it is open what exists",
    _ONE_ORDER,
    profile="rounds",
    mix="suspicion",
    sharpen=_dies_in_one_line,
    dies_at=47,
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Burial, "buried", lambda self, origin, topics: origin in self._broker.state.flush.dead
    )


@bug(
    "what may still be lost is let go",
    _ONE_ORDER,
    profile="rounds",
    mix="suspicion",
    sharpen=_dies_unheard,
    dies_at=11,
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Safety, "limit", lambda self, topic, log: None)


@bug(
    "what waits in the line stays there when its home dies, or its topic is left",
    _ONE_ORDER,
    "Subscribed",
    profile="rounds",
    mix="suspicion",
    sharpen=_dies_in_one_line,
    dies_at=154,
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Line, "move", _moved_with_all)


@bug(
    "of an event that was ordered twice, who joins in between gets the second",
    _ONE_ORDER,
    profile="rounds",
    mix="late",
    sharpen=_in_one_line,
    dies_at=193,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Line.show
    patch.setattr(Line, "show", lambda self, rounds, had, again: correct(self, rounds, had, ()))


@bug(
    "an event is forgotten while it may come again at another place",
    "I2",
    "I11",
    _ONE_ORDER,
    profile="rounds",
    mix="suspicion",
    sharpen=_dies_late_in_one_line,
    dies_at=32,
)
def _(patch: pytest.MonkeyPatch) -> None:
    def forget(self: Broker) -> None:
        self.state.retained.drop(self.state.stability.stable, self.state.stability.stable)

    patch.setattr(Broker, "_forget", forget)


@bug(
    "what comes after a later event of its publisher is taken for a repetition",
    "I11",
    profile="rounds",
    mix="suspicion",
    sharpen=_dies_late_in_one_line,
    dies_at=72,
)
def _(patch: pytest.MonkeyPatch) -> None:
    def contains(self: Seen, one: tuple[str, int]) -> bool:
        return one[1] < self.runs.get(one[0], [0])[-1]

    patch.setattr(Seen, "__contains__", contains)


@bug(
    "an event that was too old comes after all, because two brokers ordered it",
    "Causal",
    "I2",
    profile="rounds",
    mix="late",
    dies_at=266,
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inbox, "_had", lambda self, places: False)


def _moved_with_all(self: Line, last: Vector, topics: dict[str, bool]) -> Vector:
    self.shown = None
    self.complete = {topic: n for topic, n in self.complete.items() if topic in topics}
    self.waiting = {
        place: carried
        for place, carried in self.waiting.items()
        if any(topic in topics for topic in carried.at)
    }
    return last


# --- one for each checker -------------------------------------------------------------------------


@bug("brokers deliver what comes as it comes", "I1", "I8", "I9", "Invariants", dies_at=2)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Broker, "_ready", lambda self, ordered: True)


@bug("subscribers deliver what comes as it comes", "I2", "Causal", dies_at=6)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inbox, "_reached", lambda self, needs: True)


@bug("the catch-up is delivered in any order", "I2", "Causal", mix="migration", dies_at=1)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = inbox_module._by_round
    patch.setattr(inbox_module, "_by_round", lambda item: -correct(item))


@bug("what was delivered through another topic is delivered again", "I3", "No Duplication")
def _(patch: pytest.MonkeyPatch) -> None:
    def passed(self: Inbox, carried: Carried, *, silent: bool) -> None:
        correct(self, carried, silent=silent)
        self.seen.runs.clear()
        self.last.get(sorted(carried.at)[0], {}).pop(carried.origin, None)

    correct = Inbox.passed
    patch.setattr(Inbox, "passed", passed)


@bug(
    "a repeated publication is ordered and delivered twice",
    "I3",
    "No Duplication",
    mix="crash",
    dies_at=142,
)
def _(patch: pytest.MonkeyPatch) -> None:
    def passed(self: Inbox, carried: Carried, *, silent: bool) -> None:
        correct(self, carried, silent=silent)
        self.seen.runs.clear()

    def order(self: Service, client: str, held: Any, out: Any) -> None:
        self._broker.state.heard.runs.clear()
        ordered(self, client, held, out)

    correct, ordered = Inbox.passed, Service._order
    patch.setattr(Inbox, "passed", passed)
    patch.setattr(Service, "_order", order)


@bug("nothing is ever forgotten", "I5")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Retained, "drop", lambda self, topics, stable: None)


@bug("what a subscriber no longer wants is not looked at again", "I5", mix="migration", dies_at=67)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Service._attach

    def attach(self: Service, now: Any, client: str, ask: Any, out: Any) -> None:
        changed = self._broker.state.stability.changed
        before = dict(changed)
        correct(self, now, client, ask, out)
        for topic in [one for one in changed if one not in before and one not in ask.topics]:
            del changed[topic]

    patch.setattr(Service, "_attach", attach)


@bug("a subscriber does not say that it joins a topic", "I4", "Drained", mix="migration", dies_at=2)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Service._acknowledge

    def acknowledge(self: Service, now: Any, client: str, ack: Any, out: Any) -> None:
        correct(self, now, client, msgspec.structs.replace(ack, joining=False), out)

    patch.setattr(Service, "_acknowledge", acknowledge)


@bug("a broker advertises what it has only heard of", "I7", dies_at=2)
def _(patch: pytest.MonkeyPatch) -> None:
    def learn(self: Stability, acknowledged: Any) -> None:
        correct(self, acknowledged)
        for mine in list(self.acknowledged.values()):
            for vector in acknowledged.values():
                join(mine, vector)

    correct = Stability.learn
    patch.setattr(Stability, "learn", learn)


@bug("an event does not name topics that its broker does not serve", "I8", "I2", dies_at=2)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Broker._past

    def past(self: Any) -> Any:
        return {topic: row for topic, row in correct(self).items() if topic in self.topics}

    patch.setattr(Broker, "_past", past)


@bug("predecessors that others lead to are kept, those that lead to them go", "I9", "I2")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Retained.immediate

    def immediate(self: Retained, entries: Any) -> Any:
        entries = list(entries)
        kept = correct(self, entries)
        return tuple(one for one in entries if one not in kept) or kept

    patch.setattr(Retained, "immediate", immediate)


@bug(
    "events of a dead broker are still taken after the flush",
    "I10",
    mix="suspicion",
    sharpen=_sudden_death,
    dies_at=24,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Broker._take

    def take(self: Any, now: Any, source: str, message: Any, out: Any) -> None:
        if isinstance(message, Ordered) and not self.state.retired:
            self._receive(source, message, out)
        else:
            correct(self, now, source, message, out)

    patch.setattr(Broker, "_take", take)
    patch.setattr(Flush, "refuses", lambda self, origin, number: False)


@bug(
    "the flush believes that the coordinator has everything",
    "I10",
    "I4",
    "I11",
    mix="suspicion",
    sharpen=_sudden_death,
    dies_at=24,
)
def _(patch: pytest.MonkeyPatch) -> None:
    def answered(self: Flush, broker: str, held: Any, brokers: Any) -> Any:
        self.answers[broker] = held
        return {name: dict(held.get(name, {})) for name in self.names}

    patch.setattr(Flush, "answered", answered)


@bug("a gap is not told", "I11", "Validity", sharpen=_long_silences, dies_at=2)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Subscriber, "_tell_gap", lambda self, gap, out: None)


@bug("a client that comes back has forgotten what it delivered", "No Duplication", "I3", dies_at=11)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = recovery.recovered

    def recovered(state: Any, records: Any, *, total: bool) -> Any:
        found = correct(state, records, total=total)
        if any(isinstance(one, Passed) for one in records):
            found[0].inbox.seen.runs.clear()
            found[0].inbox.last.clear()
        return found

    patch.setattr("concordant.causal.subscriber.recovered", recovered)


@bug("a broker held for dead goes on", "I4", "I2", "I5", "I11", "Drained", mix="suspicion")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Burial, "retire", lambda self: None)


@bug("a broker that comes back numbers from 1 again", "Invariants", "I", mix="crash", dies_at=11)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Broker._start

    def start(self: Any, now: Any, given: Any, out: Any) -> None:
        correct(self, now, given, out)
        self.state.number = 0
        for row in self.state.delivered.values():
            row.pop(self.name, None)

    patch.setattr(Broker, "_start", start)


@bug("a broker that comes back has forgotten what it delivered", "I", mix="crash")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Broker._start

    def start(self: Any, now: Any, given: Any, out: Any) -> None:
        kept = tuple(one for one in given.records if not isinstance(one, Ordered))
        correct(self, now, msgspec.structs.replace(given, records=kept), out)

    patch.setattr(Broker, "_start", start)


@bug(
    "a publisher does not learn what its application has seen elsewhere",
    *("I1", "I2", "I6"),
    sharpen=_apart,
    dies_at=2,
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Subscriber, "_learn", lambda self, known: None)


@bug(
    "what a publisher was told is forgotten in a crash",
    *("I1", "I2", "I6"),
    sharpen=_apart_and_crashing,
    dies_at=21,
)
def _(patch: pytest.MonkeyPatch) -> None:
    real = recovery.recovered

    def without(state: SubscriberState, records: Any, *, total: bool) -> Any:
        kept = tuple(one for one in records if not isinstance(one, Learnt))
        return real(state, kept, total=total)

    patch.setattr(subscriber_module, "recovered", without)
