"""Planted bugs in total notification order: the papers' errata, and mistakes one could make here.

Each runs on the case where it shows, under many schedules, until a checker finds it. Published
points that have no counterpart here are not among them: the papers' bookkeeping of subscription
updates, and entries that every passing timestamp leaves behind (harmless on forest routes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from concordant.machine.effects import Effect, Persist
from concordant.machine.instant import Instant
from concordant.order.sequencing import signing, stamping
from concordant.order.sequencing.channel import Channels
from concordant.order.sequencing.client import SequencingClient
from concordant.order.sequencing.forest import Branch, Out
from concordant.order.sequencing.messages import (
    Begin,
    Commit,
    Create,
    Enter,
    Entered,
    Fill,
    Link,
    Prepare,
    Prepared,
    Proposal,
    Signed,
)
from concordant.order.sequencing.overlap import Edges
from concordant.order.sequencing.publisher import Pipeline
from concordant.order.sequencing.sequencer import TopicSequencer
from concordant.order.sequencing.signing import Signer
from concordant.order.sequencing.stamping import Stamper
from concordant.order.sequencing.subscriber import Merge, Ready
from tests.detection.planting import Plant, planted
from tests.sequencing_cases import OPTIONS, Case, found_after, with_options

SCHEDULE_COUNT_MAX = 3_000
"""A bug that survives so many schedules is not caught."""


TOTAL = ("Total Order", "Total Order, strict")


@dataclass(frozen=True)
class SequencingBug:
    """A sentence that is false of the protocol, and how to make it true."""

    name: str
    case: Case
    breaks: tuple[str, ...]
    """The properties of which one has to be found violated first."""
    plant: Plant


BUGS: list[SequencingBug] = []


def bug(name: str, case: Case, *breaks: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        BUGS.append(SequencingBug(name, case, breaks, plant))
        return plant

    return add


def schedules_to_find(which: SequencingBug) -> int | None:
    """How many schedules it takes until a promise is seen broken in the expected way."""
    with planted(which):
        return found_after(which.case, SCHEDULE_COUNT_MAX, *which.breaks)


# --- errata of the papers -------------------------------------------------------------------------


@bug(
    "a subscriber waits for topics that it does not hold (2015, isNext)",
    Case(("12", "12", "2"), "12"),
    "Drained",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge._obstacle

    def obstacle(self: Merge, signed: Signed) -> str | None:
        foreign = [t for t, n in signed.timestamp.items() if n and t not in self.clocks]
        return foreign[0] if foreign else correct(self, signed)

    patch.setattr(Merge, "_obstacle", obstacle)


@bug(
    "a subscriber's clock stays at the value before (2015, figure 3 l.14)",
    Case(("1", "1"), "11"),
    "Drained",
    "No Duplication",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge._step

    def step(self: Merge, signed: Signed) -> None:
        before = self.clocks[signed.event.topic]
        correct(self, signed)
        self.clocks[signed.event.topic] = before

    patch.setattr(Merge, "_step", step)


FOUR = Case(("134", "134", "23", "23"), "431", spread_ms=5, latency_ms=40)


@bug(
    "timestamps go straight to the next sequencer that signs (2015, Lemmas 1 and 2)",
    FOUR,
    "Drained",
    "Invariants",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def send(self: Branch, message: Any, out: Out) -> None:
        out.append((message.todo[0], message))

    patch.setattr(Branch, "send", send)


@bug(
    "to subscribe a topic moves all clocks to the present (2015, figure 4 l.09)",
    Case(("12", "2"), "2222", ((1, "+1"),), latency_ms=40),
    "Validity",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge.begin

    def begin(self: Merge, topic: str, n: int) -> int:
        for other in self.clocks:
            self.clocks[other] = self.known[other]
            self.held[other].drain(lambda key: True)
            self._revise(other)
        return correct(self, topic, n)

    patch.setattr(Merge, "begin", begin)


@bug(
    "topics are ordered no longer as soon as fewer than two hold both (2015, Theorem 1)",
    Case(("12", "12"), "121212", ((1, "-1"),), latency_ms=60, spread_ms=40),
    *TOTAL,
    "Drained",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def revise(self: Edges, other: str) -> None:
        if self.shared.get(other, 0) >= self.edge_on:
            self.active[other] = True
        else:
            self.active.pop(other, None)

    patch.setattr(Edges, "_revise", revise)


@bug(
    "an event is let through if any entry is greater (2011, definition 3)",
    Case(("123", "23", "12"), "123", latency_ms=40),
    *TOTAL,
)
def _(patch: pytest.MonkeyPatch) -> None:
    def offer(self: Merge, signed: Signed, now: Instant = 0) -> list[Ready]:
        clocks, topic = self.clocks, signed.event.topic
        seen = self.arrivals.setdefault(topic, {})
        if topic not in clocks or signed.n in seen:
            return []
        seen[signed.n] = now
        known = {t: n for t, n in signed.timestamp.items() if t in clocks}
        if any(n < clocks[t] for t, n in known.items()):
            return [Ready(signed, in_order=False)]
        for other, n in known.items():
            clocks[other] = max(n, clocks[other])
            self.known[other] = max(n, self.known[other])
        return [Ready(signed)]

    patch.setattr(Merge, "offer", offer)


@bug(
    "a timestamp says nothing about higher topics (2011, section 5)",
    Case(("12", "12"), "1212", latency_ms=40),
    *TOTAL,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Signer._forward

    def forward(self: Signer, message: Any, out: Any, signed: Any) -> None:
        if isinstance(message, Fill) and message.topic == self.topic:
            self.open[message.n].timestamp = {self.topic: message.n}
        correct(self, message, out, signed)

    patch.setattr(Signer, "_forward", forward)


CRASHING = Case(("12", "12"), "121212", crashes=("sequencer-1", "sequencer-2"), latency_ms=10)


@bug(
    "a sequencer speaks before it has written (2011, section 5)",
    CRASHING,
    *TOTAL,
    "Drained",
    "Validity",
    "Invariants",
    "No Duplication",
)
def _(patch: pytest.MonkeyPatch) -> None:
    # The write comes with the next one, and a crash in between forgets it.
    correct = TopicSequencer.handle
    late: dict[int, list[Effect]] = {}

    def handle(self: Any, now: Instant, given: Any) -> list[Effect]:
        effects = correct(self, now, given)
        writes = [one for one in effects if isinstance(one, Persist)]
        before = late.pop(id(self), [])
        late[id(self)] = writes
        return [*before, *(one for one in effects if not isinstance(one, Persist))]

    patch.setattr(TopicSequencer, "handle", handle)


@bug(
    "an event that is asked for again gets another number (2011, section 5)",
    Case(("12", "12"), "1212", crashes=("p1", "p2"), latency_ms=10),
    "No Duplication",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def create(self: Signer, source: str, given: Create, out: Any, signed: Any) -> None:
        self.created.pop(source, None)
        correct(self, source, given, out, signed)

    correct = signing.STEPS[Create]
    patch.setitem(signing.STEPS, Create, create)


@bug(
    "who signs a run of events knows the first of them only",
    Case(("12", "12"), "1212", latency_ms=40, batch_count_max=4),
    *TOTAL,
)
def _(patch: pytest.MonkeyPatch) -> None:
    def fill(self: Signer, source: str, given: Fill, out: Any, signed: Any) -> None:
        before = self.counts.get(given.topic, 0)
        correct(self, source, given, out, signed)
        self.counts[given.topic] = min(before + 1, self.counts.get(given.topic, 0))

    correct = signing.STEPS[Fill]
    patch.setitem(signing.STEPS, Fill, fill)


RERANKING = Case(("123", "23", "12"), "123" * 6, spread_ms=200, latency_ms=40, reranks=("321",))


@bug(
    "what is under way when the order changes is discarded (2011, section 5)",
    RERANKING,
    "Drained",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Signer.handle

    def handle(self: Signer, source: str, content: Any, out: Any, signed: Any) -> None:
        if isinstance(content, Fill) and content.epoch < self.epoch:
            return
        opened, self.open = self.open, {} if isinstance(content, Commit) else self.open
        if isinstance(content, Prepare):
            self.preparing, self.prepared = content.epoch, True
            out.append((self.coordinator, Prepared(content.epoch, self.topic, self.count)))
        else:
            correct(self, source, content, out, signed)
        if isinstance(content, Commit):
            self.open = {**opened, **self.open}

    patch.setattr(Signer, "handle", handle)


@bug("a new order begins without the counts of the old one", RERANKING, *TOTAL, "Drained")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = signing.STEPS[Commit]

    def commit(self: Signer, source: str, given: Commit, out: Any, signed: Any) -> None:
        correct(self, source, msgspec.structs.replace(given, counts={}), out, signed)

    patch.setitem(signing.STEPS, Commit, commit)


# --- mistakes that one could make -----------------------------------------------------------------


@bug(
    "who leaves a topic still waits for its events",
    Case(("12", "12"), "1212121212", ((0, "-1"),), latency_ms=60, spread_ms=100),
    "Drained",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge.leave

    def leave(self: Merge, topic: str) -> list[Ready]:
        blocked = self.blocked.pop(topic, [])
        correct(self, topic)
        del blocked
        return []

    patch.setattr(Merge, "leave", leave)


GROWING = Case(
    ("13", "13", "3", "3"),
    "33313131",
    ((2, "+2"), (3, "+2"), (2, "+1"), (0, "+2")),
    latency_ms=60,
    spread_ms=150,
)


@bug(
    "a sequencer takes a better parent without a flush",
    replace(GROWING, latency_ms=100),
    "Invariants",
    *TOTAL,
    "Drained",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def grow(
        self: Branch, topics: Iterable[str], *, rank: dict[str, int], epoch: int, out: Out
    ) -> None:
        new = [one for one in topics if one not in self.lower and one != self.topic]
        if new:
            self.lower.update(dict.fromkeys(new, True))
            self.parent = max(self.lower, key=rank.__getitem__)
            out.append((self.parent, Link(epoch, tuple(self.lower))))

    patch.setattr(Branch, "grow", grow)


@bug("children do not say what they need", FOUR, "Invariants", "Drained")
def _(patch: pytest.MonkeyPatch) -> None:
    def link(self: Signer, source: str, given: Link, out: Any, signed: Any) -> None:
        del self, source, given, out, signed

    patch.setitem(signing.STEPS, Link, link)
    # And what passes tells nothing either, or it would say in time what is needed.
    patch.setattr(Signer, "_grow", lambda self, topics, out: _own(self, topics, out))


def _own(self: Signer, topics: Iterable[str], out: Any) -> None:
    upwards: Out = []
    known = [one for one in topics if one in self.edges.active]
    self.branch.grow(known, rank=self.rank, epoch=self.epoch, out=upwards)
    self._address(upwards, out)


JOINING = Case(("12", "2"), "2121212121", ((1, "+1"),), latency_ms=40, spread_ms=300)


@bug(
    "sequencers are not introduced before a topic begins",
    replace(JOINING, holds=("1", "2", "12"), changes=((0, "+2"), (1, "+1")), spread_ms=120),
    *TOTAL,
    "Validity",
    "Drained",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def enter(self: Signer, source: str, given: Enter, out: Any, signed: Any) -> None:
        del signed
        self.edges.register(source, given.version, given.topics)
        self._grow(self._low(self.edges.active), out)
        out.append((source, Entered(given.version, self.topic)))

    patch.setitem(signing.STEPS, Enter, enter)


@bug(
    "a topic begins before all sequencers know",
    replace(JOINING, events="12" * 12, latency_ms=100),
    *TOTAL,
    "Causal",
    "FIFO",
    "Drained",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def entered(self: Any, now: Instant, given: Entered, cause: int, out: list[Effect]) -> None:
        joining = self._state.joining
        if joining is not None and joining.unanswered:
            joining.unanswered = {}
            self._post(now, joining.topic, (Begin(joining.version),), cause, out)

    patch.setattr(SequencingClient, "_entered", entered)


@bug(
    "a topic begins at what its sequencer says, whatever was delivered since",
    replace(JOINING, events="12" * 10, latency_ms=80),
    *TOTAL,
    "Drained",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge.begin

    def begin(self: Merge, topic: str, n: int) -> int:
        self.starting[topic] = 0
        return correct(self, topic, n)

    patch.setattr(Merge, "begin", begin)


@bug("a new subscription starts one event too late", JOINING, "Validity")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge.begin
    patch.setattr(Merge, "begin", lambda self, topic, n: correct(self, topic, n + 1))


@bug("the next number alone decides", Case(("12", "12"), "1212", latency_ms=40), *TOTAL)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Merge, "_obstacle", lambda self, signed: None)


@bug(
    "a publisher does not wait before it goes to another topic",
    replace(Case(("12", "12"), ""), edge_on=1, turns=8, latency_ms=40),
    "Causal",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Pipeline.sendable

    def sendable(self: Pipeline) -> list[Any]:
        self.one_topic = False
        return correct(self)

    patch.setattr(Pipeline, "sendable", sendable)


@bug(
    "an order is promised to subscribers that nobody else shares it with",
    Case(
        ("12", "1"),
        "12" * 6,
        ((1, "-1"), (1, "+2")),
        latency_ms=4,
        spread_ms=120,
        loss=0.5,
        level="total strict",
    ),
    "Total Order, strict",
)
def _(patch: pytest.MonkeyPatch) -> None:
    del patch  # the promise itself is the bug: two subscribers never hold both (edge_on = 2)


TAGGING = replace(
    Case(("12", "12"), "12121212", latency_ms=40),
    options=with_options(OPTIONS, tag=True, time_to_live_us=15_000, buffer_count_max=1),
)


@bug("what is too late does not say so", TAGGING, *TOTAL)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge.offer

    def offer(self: Merge, signed: Signed, now: Instant = 0) -> list[Ready]:
        return [Ready(one.signed) for one in correct(self, signed, now)]

    patch.setattr(Merge, "offer", offer)


@bug("what is in order says that it is too late", TAGGING, "Tags")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge.offer

    def offer(self: Merge, signed: Signed, now: Instant = 0) -> list[Ready]:
        found = correct(self, signed, now)
        return [Ready(one.signed, in_order=one.signed.n % 3 != 0) for one in found]

    patch.setattr(Merge, "offer", offer)


@bug("what was passed over is dropped when it comes", TAGGING, "Validity", "Drained")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge._force

    def force(self: Merge, signed: Signed, passed: dict[str, bool]) -> list[Ready]:
        found = correct(self, signed, passed)
        self.gaps.clear()
        return found

    patch.setattr(Merge, "_force", force)


@bug("doubles are delivered as too late", TAGGING, "No Duplication")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge.offer

    def offer(self: Merge, signed: Signed, now: Instant = 0) -> list[Ready]:
        clock = self.clocks.get(signed.event.topic)
        if clock is not None and signed.n <= clock:
            self.gaps.get(signed.event.topic, {}).pop(signed.n, None)
            self._revise(signed.event.topic)
            return [Ready(signed, in_order=False)]
        return correct(self, signed, now)

    patch.setattr(Merge, "offer", offer)


@bug("nobody repeats what was not acknowledged", replace(FOUR, loss=0.3), "Drained")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Channels, "repeats", lambda self, count_max: {})


@bug(
    "links let through what is ahead of its turn",
    Case(("12", "12"), "1212121212", latency_ms=60),
    "Invariants",
    *TOTAL,
    "Drained",
    "Validity",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Channels.accept

    def accept(self: Channels, source: str, parcel: Any) -> list[Any]:
        inbox = self.inboxes.get(source)
        if inbox is not None and inbox.life == parcel.life and parcel.n > inbox.next:
            inbox.next = parcel.n
        return correct(self, source, parcel)

    patch.setattr(Channels, "accept", accept)


CONDENSED = Case(
    ("12", "12"),
    "12" * 6,
    ((0, "-2"), (0, "+2")),
    edge_on=1,
    spread_ms=60,
    crashes=("s0",),
    compact_ms=3,
)


@bug(
    "a snapshot has no events that are on their way to be signed",
    Case(("1", "1"), "1" * 8, latency_ms=60, crashes=("p1",), loss=0.3, compact_ms=1),
    "Validity",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pipeline, "crash", lambda self: self.sent.clear())


@bug("a snapshot counts as delivered what waited", CONDENSED, "Validity", "Drained", *TOTAL)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Merge.crash

    def crash(self: Merge) -> None:
        self.clocks = {
            topic: max(held, default=self.clocks[topic])
            for topic, held in self.held.items()
            if topic in self.clocks
        }
        correct(self)

    patch.setattr(Merge, "crash", crash)


# --- stamping in parallel -------------------------------------------------------------------------

STAMPED = Case(("123", "123"), "123" * 4, edge_on=1, stamped=True, latency_ms=40)


@bug("an event gets its place while a smaller stamp may come", STAMPED, *TOTAL, "Drained", "Causal")
def _(patch: pytest.MonkeyPatch) -> None:
    def first(self: Stamper) -> Any:
        final = [
            (stamp, topic, request)
            for topic, requests in self.pending.items()
            for request, (stamp, is_final) in requests.items()
            if is_final
        ]
        return min(final, default=None)

    patch.setattr(Stamper, "_first", first)


@bug("the last proposal wins, not the greatest", STAMPED, *TOTAL, "Drained", "Causal", "FIFO")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = stamping.STEPS[Proposal]

    def proposal(self: Stamper, source: str, given: Proposal, out: Any, signed: Any) -> None:
        self.mine[given.request].stamp = 0
        correct(self, source, given, out, signed)

    patch.setitem(stamping.STEPS, Proposal, proposal)


@bug("a sequencer's clock does not look at stamps", STAMPED, *TOTAL, "Drained", "Causal", "FIFO")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Stamper._place

    def place(self: Stamper, *given: Any) -> None:
        before = self.clock
        correct(self, *given)
        self.clock = before

    patch.setattr(Stamper, "_place", place)
