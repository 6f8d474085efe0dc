"""Planted bugs in ordered merging: the thesis's errors, and mistakes that are easy to make.

Each breaks one rule of the corrected protocol. A bug names the mode of the cases that show it, and
a seed that is known to: the quick test plays that one, the campaign looks for it from seed 0. Three
mistakes are too rare for chance and have tests of their own: a promise that is forgotten in a crash
(`test_replication`), a subscription at run time that begins in the past (`test_client`), and an old
mark that is taken for the latest time at hand (`test_stamped`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from concordant.machine.effects import Persist
from concordant.machine.instant import Instant
from concordant.order.merging import client, merge
from concordant.order.merging.client import MergedClient
from concordant.order.merging.core import Core
from concordant.order.merging.filters import Filter
from concordant.order.merging.inflow import Inflow
from concordant.order.merging.matcher import Correlating
from concordant.order.merging.messages import (
    Advance,
    Control,
    Cut,
    Ev,
    Put,
    Queues,
    packed,
    unpacked,
)
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.part import Offered, Part
from concordant.order.merging.readers import Group, Readers
from concordant.order.merging.records import Begun
from concordant.order.merging.sessions import Session
from concordant.order.merging.stream import Stream, Wanted
from concordant.order.replication import Append, Arrived, Bound, Outbox, Promise, Replica
from concordant.order.replication import Kept as KeptEntries
from concordant.sim.merging_cases import play, random_case
from concordant.sim.merging_oracle import failure
from tests.detection.planting import Plant, planted

CASE_COUNT_MAX = 2_000
"""A bug that survives so many cases is not caught."""

HEAL_US = 3_000_000
"""A case that takes longer to come to rest is stuck."""


@dataclass(frozen=True)
class MergingBug:
    """A sentence that is false of ordered merging, and how to make it true."""

    name: str
    mode: str
    seed: int
    """Of a case that is known to show it."""
    plant: Plant


BUGS: list[MergingBug] = []


def bug(name: str, mode: str, seed: int) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        BUGS.append(MergingBug(name, mode, seed, plant))
        return plant

    return add


def caught(which: MergingBug, seed: int) -> str:
    """The promise that the case of a seed breaks with the bug, if it breaks one."""
    case = msgspec.structs.replace(random_case(seed, which.mode), heal_us=HEAL_US)
    with planted(which):
        found = failure(play(case))
    if found is None or (found.name == "Drained" and failure(play(case)) is not None):
        return ""  # a few cases take longer without any bug
    return found.name


def cases_to_find(which: MergingBug, *, count_max: int = CASE_COUNT_MAX) -> int | None:
    """How many cases it takes, from seed 0 on."""
    for seed in range(count_max):
        if caught(which, seed):
            return seed + 1
    return None


# --- replication ----------------------------------------------------------------------------------


@bug("the leader's streams show what is not committed (erratum 15)", "storm", 4)
def _(patch: pytest.MonkeyPatch) -> None:
    def committed(self: Replica, start: int) -> list[bytes]:
        end = self.length if self.leading else self.commit
        return self.entries[start - self.base : end - self.base]

    patch.setattr(Replica, "committed", committed)


@bug("an old leader's entries are accepted", "storm", 0)
def _(patch: pytest.MonkeyPatch) -> None:
    def appended(self: Replica, now: Instant, source: int, message: Append, out: Outbox) -> None:
        new = message.entries[self.length - message.first :]
        if message.first <= self.length and new and not self.leading:
            self.entries += new
        self.commit = max(self.commit, min(message.commit, self.length))
        out.send(source, KeptEntries(self.log, message.epoch, self.length))

    patch.setattr(Replica, "_appended", appended)


@bug("a new leader keeps its own log", "storm", 3)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Replica._vote

    def vote(self: Replica, voter: int, given: Promise, now: Instant, out: Outbox) -> None:
        mine = msgspec.structs.replace(
            given, accepted=self.accepted, base=self.base, state=self.state, commit=self.commit
        )
        correct(self, voter, msgspec.structs.replace(mine, entries=tuple(self.entries)), now, out)

    patch.setattr(Replica, "_vote", vote)


@bug("progress marks are not in the log", "crashing", 3)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Part.control

    def control(self: Part, command: Control) -> bool:
        if isinstance(command, Advance):
            if self.core.changes(command):
                self.core.apply(command)
            return False
        return correct(self, command)

    patch.setattr(Part, "control", control)


# --- events and filters ---------------------------------------------------------------------------


@bug("a repeated event is taken again", "static", 8)
def _(patch: pytest.MonkeyPatch) -> None:
    def put(self: Core, command: Put) -> None:
        last = command.n + len(command.events) - 1
        self.last[command.publisher] = max(last, self.last.get(command.publisher, 0))
        self._place(command.events, command.hint)

    patch.setattr(Core, "_put", put)

    def offer(self: Part, publisher: str, n: int, events: Any, options: Any) -> None:
        correct(self, publisher, n, events, options)
        if n <= self.core.last.get(publisher, 0):
            self.puts.append(Offered(publisher, n, list(events)))

    correct = Part.offer
    patch.setattr(Part, "offer", offer)


@bug("each link interleaves both sides by itself (erratum 1)", "static", 7)
def _(patch: pytest.MonkeyPatch) -> None:
    def alone(self: Readers, core: Core, consumer: str, *others: Any) -> Iterator[Any]:
        for to, batch in correct(self, core, consumer, *others):
            items = list(unpacked(batch.items))
            for i in range(len(items) - 1 if core.sessions[consumer].begin % 2 else 0):
                one, other = items[i : i + 2]
                both = isinstance(one, Ev) and isinstance(other, Ev)
                if both and one.event.topic != other.event.topic:
                    items[i] = Ev(one.n, one.ts, other.event)
                    items[i + 1] = Ev(other.n, other.ts, one.event)
            yield to, msgspec.structs.replace(batch, items=packed(items))

    correct = Readers._alone
    patch.setattr(Readers, "_alone", alone)


@bug("a subscriber begins before its filter is in force (erratum 10)", "static", 720)
def _(patch: pytest.MonkeyPatch) -> None:
    def need(self: Core, wanted: Filter) -> int:
        correct(self, wanted)
        return 0

    correct = Core._need
    patch.setattr(Core, "_need", need)


@bug("a narrower filter on its way is overlooked (erratum 10)", "filtering", 454)
def _(patch: pytest.MonkeyPatch) -> None:
    def need(self: Core, wanted: Filter) -> int:
        for one in self.requested:
            if one.filter.covers(wanted):
                return one.version
        self._request()
        return self.version

    patch.setattr(Core, "_need", need)


@bug("a merger that comes to life again counts on", "changing", 12)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Core._await

    def wait(self: Core, one: Any) -> None:
        revived = not self.live and self.life > 0
        correct(self, one)
        if revived and not self.root:
            self.life -= 1

    patch.setattr(Core, "_await", wait)


# --- joining --------------------------------------------------------------------------------------


@bug("a donor gives its queues as they are when it is asked (erratum 12)", "crowded", 64)
def _(patch: pytest.MonkeyPatch) -> None:
    def donate(self: Any, stream: Stream, cut: Cut, cause: int, out: list[Any]) -> None:
        if stream.stage == "live":
            queues = self._matchers[stream.name].save()
            message = Queues(cut.joiner, cut.session, cut.cut, queues)
            out.append(client.Send(cut.joiner.partition(" ")[0], (message,), cause))

    patch.setattr(MergedClient, "_donate", donate)


@bug("who joins late starts with empty queues (erratum 12)", "crowded", 8)
def _(patch: pytest.MonkeyPatch) -> None:
    def began(self: Any, stream: Stream, next: int, cause: int, out: list[Any]) -> None:
        stream.queues = b""
        correct(self, stream, next, cause, out)

    correct = MergedClient._began
    patch.setattr(MergedClient, "_began", began)


@bug("a joiner delivers as soon as it has queues, and ignores a later start", "storm", 34)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = MergedClient._complete

    def complete(self: Any, stream: Stream, cause: int, out: list[Any]) -> None:
        correct(self, stream, cause, out)
        if stream.has_queues:
            stream.stage = "live"
            self._began(stream, stream.inflow.next, cause, out)

    patch.setattr(MergedClient, "_complete", complete)


@bug("a join is complete whichever cut was meant", "storm", 0)
def _(patch: pytest.MonkeyPatch) -> None:
    def joining(self: Core, consumer: str, number: int, cut: int) -> Session | None:
        del cut
        session = self.sessions.get(consumer)
        if session is None or session.joined or session.version >= 0:
            return None
        return session if session.number == number else None

    patch.setattr(Core, "_joining", joining)


@bug("what waits for its turn is acknowledged", "changing", 19)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stream, "done", property(lambda self: self.inflow.next))


@bug("who asks for one topic more begins with empty queues (erratum 13)", "changing", 182)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Correlating, "borrow", lambda self, data: None)


@bug("a prefix lends its queues as they are when it is asked", "changing", 364)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = MergedClient._donate

    def donate(self: Any, stream: Stream, cut: Cut, cause: int, out: list[Any]) -> None:
        waiting, stream.waiting = stream.waiting, [] if cut.prefix else stream.waiting
        correct(self, stream, cut, cause, out)
        stream.waiting = waiting

    patch.setattr(MergedClient, "_donate", donate)


@bug("queues that were lent are left aside", "changing", 94)
def _(patch: pytest.MonkeyPatch) -> None:
    def fill(matcher: Any, queues: bytes, *, lent: bool) -> None:
        if queues and not lent:
            matcher.load(queues)

    patch.setattr(client, "fill", fill)


# --- who reads what -------------------------------------------------------------------------------


@bug("credit is given for the first window only, and the last events never come", "changing", 1)
def _(patch: pytest.MonkeyPatch) -> None:
    def wish(self: Inflow, now: Instant, done: int, *others: Any, **more: Any) -> Any:
        return correct(self, now, min(done, 1), *others, **more)

    correct = Inflow.wish
    patch.setattr(Inflow, "wish", wish)


@bug("a group goes on with one whose session has ended", "changing", 1)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Readers, "_leave_if_gone", lambda self, core: None)


@bug("what is for one alone passes its group by", "crowded", 1)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "reads", lambda self, start: False)


@bug("who leaves a group is taken to be as far as the group is later", "changing", 15)
def _(patch: pytest.MonkeyPatch) -> None:
    def share(self: Readers, core: Core, group: Group, options: MergingOptions) -> Iterator[Any]:
        before = list(group.members)
        yield from correct(self, core, group, options)
        for one in before:
            if one in self.single:
                self.asked[one].sent = self.asked[one].next = group.sent

    correct = Readers._share
    patch.setattr(Readers, "_share", share)


# --- disjunctions ---------------------------------------------------------------------------------


@bug("nobody waits for the frontier of another stream", "static", 4)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merge, "limit", lambda one, streams: (1 << 62, ""))


@bug("ties are broken by the order of subscribing (erratum 8)", "changing", 27)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = MergedClient._open

    def opened(self: Any, now: Instant, one: Wanted, cause: int, out: list[Any]) -> None:
        correct(self, now, one, cause, out)
        stream = self._state.streams[one.name]
        stream.key = ("", f"{stream.inflow.session:09}")

    patch.setattr(MergedClient, "_open", opened)


@bug("an event that two conjunctions share is fed to one of them (erratum 2)", "static", 1)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = MergedClient._feed
    fed: dict[tuple[str, str], bool] = {}

    def feed(self: Any, one: Stream, items: Sequence[Ev]) -> list[Any]:
        new = [item for item in items if (self.name, item.event.id) not in fed]
        fed.update(((self.name, item.event.id), True) for item in new)
        return correct(self, one, new) if new else []

    patch.setattr(MergedClient, "_feed", feed)


@bug("a silent stream is never marked (erratum 5)", "static", 1)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MergedClient, "_ask_for_marks", lambda self, now, cause, out: None)


@bug("queues of an earlier cut come back after a crash", "crowded", 13)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = MergedClient._began

    def began(self: Any, stream: Stream, next: int, cause: int, out: list[Any]) -> None:
        queues = stream.queues
        correct(self, stream, next, cause, out)
        for number, effect in enumerate(out):
            if isinstance(effect, Persist) and isinstance(effect.records[0], Begun):
                record = msgspec.structs.replace(effect.records[0], queues=queues)
                out[number] = msgspec.structs.replace(effect, records=(record,))

    patch.setattr(MergedClient, "_began", began)


@bug("a new leader goes on where the merger's last life ended", "crashing", 107)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Part._revive

    def revive(self: Part, now: Instant, options: Any) -> None:
        self.taken_life = self.core.life
        correct(self, now, options)

    patch.setattr(Part, "_revive", revive)


# --- stamps ---------------------------------------------------------------------------------------


@bug("a merger takes what is there without waiting for the other topic", "stamped", 9)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Part, "_comes_next", lambda self, one: one.head is not None)


@bug("of two events with one stamp the conjunction decides, not the topic", "stamped", 216)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merge, "order", lambda stream, item: (item.ts, stream.key))


@bug("a merger passes on a mark that only one parent has passed", "stamped", 25)
def _(patch: pytest.MonkeyPatch) -> None:
    def pass_on(self: Core) -> None:
        self.frontiers, kept = [max(self.frontiers)] * 2, self.frontiers
        correct(self)
        self.frontiers = kept

    correct = Core._pass_on
    patch.setattr(Core, "_pass_on", pass_on)


@bug("a mark that somebody waits for is never asked of the roots", "stamped", 0)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Part, "marks", lambda self, now, options, overdue: iter(()))


@bug("who subscribes at run time begins before its past is passed", "stamped", 47)
def _(patch: pytest.MonkeyPatch) -> None:
    def is_ready(self: Core, one: Any) -> bool:
        return self.root or min(self.in_force) >= one.need

    patch.setattr(Core, "_is_ready", is_ready)


# --- a lost disk ----------------------------------------------------------------------------------


@bug("who takes the place of a replica votes although it knows nothing", "replaced", 0)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "arrive", Replica.begin)


@bug("a leader believes what a replica kept before its disk was lost", "replaced", 1)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Replica.receive

    def receive(self: Replica, now: Instant, source: int, message: Any, out: Outbox) -> None:
        if isinstance(message, Arrived) and self.leading:
            out.send(source, Bound(self.log, self.promised))
        else:
            correct(self, now, source, message, out)

    patch.setattr(Replica, "receive", receive)
