"""One replica's part of one merger: its log, its core, and what is at hand to be logged.

The part knows what its core wants: which inputs come next, which filters the parents should have,
who was heard when. It says so as messages and commands and leaves it to the host to carry them. All
of it except the log is forgotten in a crash and comes back from repeated messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from concordant.machine.holdback import Holdback
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.order.merging.core import Core
from concordant.order.merging.inflow import HELD_COUNT_MAX, Inflow
from concordant.order.merging.messages import (
    Advance,
    Batch,
    Borrow,
    Consumer,
    Control,
    Detach,
    Ev,
    Link,
    LogCommand,
    Pull,
    Put,
    Take,
)
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.overlay import SIDES, first_replica, name_of, parents
from concordant.order.merging.readers import Answer, Readers
from concordant.order.merging.stamps import NOWHERE, TICKS, Place, beyond, passed, place_of
from concordant.order.replication import Replica
from concordant.order.streams import Incoming

_commands = msgspec.msgpack.Decoder(LogCommand)
_core = msgspec.msgpack.Decoder(Core)
encode = msgspec.msgpack.Encoder().encode


class Offered(msgspec.Struct):
    """Successive events of a publisher that are to be logged."""

    publisher: str
    n: int
    events: list[Event]

    @property
    def end(self) -> int:
        return self.n + len(self.events)


class Part(msgspec.Struct):
    """See the module's text."""

    name: str
    replica: Replica
    core: Core
    applied: int = 0
    publishers: dict[str, Incoming] = {}
    puts: list[Offered] = []
    controls: dict[bytes, bool] = {}
    """Commands of consumers that are to be logged, each once."""
    logged: dict[bytes, bool] = {}
    """Commands of consumers that are in the log and not applied yet."""
    fresh: dict[bytes, Put | Take] = {}
    """Entries that this replica has written itself and not applied yet, as they were before."""
    unaccepted: dict[str, int] = {}
    """Publishers that are to hear how far their events are accepted, and what they were told."""
    astray: dict[str, bool] = {}
    """Publishers that sent events here although another replica leads."""
    linked_at: Instant = 0
    linked: tuple[int, int, int, bool] = (0, 0, 0, False)
    """What the parents were told last: see `links_to_be`."""
    inputs: list[Inflow] = []
    """From both parents, for the life of the core that they belong to."""
    known: dict[str, int] = {}
    """The last number of each publisher that was in the log, and not applied, when this replica
    began to lead."""
    taken: list[int] = []
    """And the next index from each parent, in the life of that time."""
    taken_life: int = 0
    taken_to: list[Place] = []
    """And how far each has come by that."""
    marked_at: Instant = 0
    """When the parents were asked for marks last."""
    unlinked: dict[str, int] = {}
    """The last life that each parent has seen the end of."""
    led: int = -1
    """The epoch that this replica led when it was looked at last; -1 if it followed."""
    readers: Readers = msgspec.field(default_factory=Readers)
    done: dict[Consumer, tuple[int, int]] = {}
    """Session, and what is below is not asked for again."""
    heard: dict[Consumer, bool] = {}
    """Consumers heard here since the other replicas were told."""
    heard_at: dict[Consumer, Instant] = {}

    # --- the log ------------------------------------------------------------------------------

    def catch_up(self) -> bool:
        """Apply what is committed; True if there was something."""
        replica = self.replica
        if replica.base > self.applied:
            self.core, self.applied = _core.decode(replica.state), replica.base
            self.readers.news = True
        entries = replica.committed(self.applied)
        for entry in entries:
            made = entry in self.fresh
            self.core.apply(self.fresh.pop(entry) if made else _commands.decode(entry))
            if self.logged:
                self.logged.pop(entry, None)
        self.applied += len(entries)
        self.readers.news = self.readers.news or bool(entries)
        return bool(entries)

    def turned(self, now: Instant, options: MergingOptions) -> None:
        """Begin anew with what is at hand if this replica has become the leader, or stopped."""
        if self.replica.leads == self.led:
            return
        self.led = self.replica.leads
        self.catch_up()
        self.publishers, self.puts, self.unaccepted = {}, [], {}
        self.logged, self.controls, self.fresh = {}, {}, {}
        self.inputs, self.known = [], {}
        self.taken, self.taken_life = list(self.core.next), self.core.life
        self.taken_to = list(self.core.frontiers)
        for entry in self.replica.logged(self.applied) if self.replica.leading else ():
            command = _commands.decode(entry)
            if isinstance(command, Put) and command.n <= self._known(command.publisher) + 1:
                last = command.n + len(command.events) - 1
                self.known[command.publisher] = max(last, self._known(command.publisher))
            elif isinstance(command, Take) and command.life == self.core.life:
                side = command.side
                self.taken[side] = max(self.taken[side], command.end)
                for item in command.items[-1:]:
                    place = beyond(item, mixed=self.core.mixed(side))
                    self.taken_to[side] = max(self.taken_to[side], place)
        self.heard_at = dict.fromkeys(self.core.sessions, now)
        self._revive(now, options)

    def _revive(self, now: Instant, options: MergingOptions) -> None:
        core = self.core
        if core.live and (not self.inputs or self.inputs[0].session != core.life):
            same = self.taken_life == core.life
            taken = self.taken if same else [0, 0]
            reached = self.taken_to if same else [NOWHERE, NOWHERE]
            self.inputs = [
                Inflow(
                    name_of(signature),
                    f"{self.name} {SIDES[side]}",
                    core.life,
                    Holdback(HELD_COUNT_MAX),
                    replica=first_replica(self.name, options.replication.replica_count),
                    moved_at=now,
                    frontier=max(core.frontiers[side], reached[side]),
                )
                for side, signature in enumerate(parents(core.signature))
            ]
            for side, one in enumerate(self.inputs):
                one.go_on(max(core.next[side], taken[side]))

    def commands(self, now: Instant, time: Instant, options: MergingOptions) -> list[bytes]:
        """Everything at hand, in the order in which it is to be logged, with times from `time`."""
        self._revive(now, options)
        found: list[bytes] = []
        for control in self.controls:
            if control not in self.logged and self.core.changes(_commands.decode(control)):
                self.logged[control] = True
                found.append(control)
        self.controls = {}
        if self.held_up(options):
            return found
        hint = TICKS * time if options.hinted else 0
        made = [Put(one.publisher, one.n, tuple(one.events), hint) for one in self.puts]
        self.puts = []
        entries = {
            encode(one): one for one in (*made, *(self._takes(hint) if self.core.live else ()))
        }
        self.fresh |= entries
        return [*found, *entries]

    def _takes(self, hint: Instant) -> Iterator[Take]:
        """What both parents have."""
        if self.core.stamped:
            yield from self._takes_by_stamp(hint)
            return
        for side, one in enumerate(self.inputs):
            if one.next < one.due:
                first, items = one.next, one.take_all()
                yield Take(one.session, side, first, one.next, tuple(items), hint)

    def _takes_by_stamp(self, hint: Instant) -> Iterator[Take]:
        """What comes next by its stamp, as long as neither parent can bring something before."""
        while ready := [one for one in self.inputs if self._comes_next(one)]:
            one = ready[0]
            side, first, items = self.inputs.index(one), one.next, []
            while self._comes_next(one):
                items.append(one.take())
                place = beyond(items[-1], mixed=self.core.mixed(side))
                one.frontier = max(one.frontier, place)
            yield Take(one.session, side, first, one.next, tuple(items), hint)
        for side, one in enumerate(self.inputs):
            if not one.ready and one.next < one.due:
                first, one.next = one.next, one.due
                yield Take(one.session, side, first, one.next, (), hint)

    def _comes_next(self, one: Inflow) -> bool:
        """May its next item be taken? Only events have to wait for the other parent's."""
        item = one.head
        if not isinstance(item, Ev):
            return item is not None
        (other,) = (each for each in self.inputs if each is not one)
        if isinstance(other.head, Ev):
            return place_of(item) < place_of(other.head)
        return place_of(item) <= other.frontier

    def marks(self, now: Instant, options: MergingOptions, *, overdue: bool) -> Iterator[Advance]:
        """Stamped: marks that the leader asks of parents which others wait for."""
        if not self.core.waits or not self.core.live or len(self.inputs) < len(SIDES):
            return
        if overdue and now - self.marked_at <= options.repeat_us:
            return
        for side, one in enumerate(self.inputs):
            other, wanted = self.inputs[1 - side], self.core.wished
            if one.head is None and other.head is not None:
                # Not the last one's: a mark may be behind an event whose time it has not passed.
                wanted = max(wanted, *(item.ts for item in other.ready))
            if wanted and passed(one.frontier) < wanted and (overdue or one.marked < wanted):
                one.marked, self.marked_at = wanted, now
                yield Advance(one.merger, one.consumer, one.session, wanted, one.due)

    def held_up(self, options: MergingOptions) -> bool:
        """Some consumer is too far behind. It may be so because it waits for a session that is to
        begin behind what the parents have sent, or for a mark that lies there: then events are
        taken in all the same."""
        core = self.core
        if core.end - core.base <= options.lag_count_max:
            return False
        if core.pending or (core.waits and core.wished):
            return False
        self.trim()
        return core.end - core.base > options.lag_count_max

    def trim(self) -> None:
        """Let go of what all consumers have done with."""
        core = self.core
        least = core.end
        for consumer, session in core.sessions.items():
            number, done = self.done.get(consumer, (0, 0))
            least = min(least, max(session.begin, done if number == session.number else 0))
        core.trim(least)

    # --- what comes in ------------------------------------------------------------------------

    def offer(
        self, publisher: str, n: int, events: Sequence[Event], options: MergingOptions
    ) -> None:
        """Events of a publisher, numbered from `n`, at a root's leader."""
        incoming = self.publishers.get(publisher)
        if incoming is None:
            incoming = self.publishers[publisher] = Incoming(Holdback(options.held_count_max))
        self.unaccepted[publisher] = 0
        ready = incoming.skip(self._known(publisher) + 1)
        ready += incoming.accept_all(n, events)
        first = incoming.next - len(ready)
        last = self.puts[-1] if self.puts else None
        if last is not None and (last.publisher, last.end) == (publisher, first):
            last.events += ready
        elif ready:
            self.puts.append(Offered(publisher, first, ready))

    def _known(self, publisher: str) -> int:
        """The last number of a publisher that has, or will have, a place."""
        return max(self.core.last.get(publisher, 0), self.known.get(publisher, 0))

    def control(self, command: Control) -> bool:
        """A command of a consumer; True if it is at the leader."""
        if isinstance(command, Advance):
            self.readers.marks(command.consumer)
        if self.replica.leading:
            self.controls[encode(command)] = True
        return self.replica.leading

    def take_in(self, now: Instant, side: int, batch: Batch) -> None:
        """Items of a parent, at the leader."""
        if self.replica.leading and self.inputs and self.inputs[side].session == batch.session:
            self.inputs[side].take_in(now, batch)

    def pulled(self, now: Instant, source: str, pull: Pull) -> None:
        """A consumer asks for items and says what it has done with."""
        self.readers.pulled(source, pull)
        self.heard[pull.consumer] = True
        self.reached(now, pull.consumer, pull.session, pull.done)

    def reached(self, now: Instant, consumer: Consumer, session: int, done: int) -> None:
        """A consumer was heard somewhere."""
        self.heard_at[consumer] = now
        if (session, done) > self.done.get(consumer, (0, 0)):
            self.done[consumer] = (session, done)

    # --- what goes out ------------------------------------------------------------------------

    def answers(self, options: MergingOptions) -> Iterator[Answer]:
        """Items for those who asked, as far as they are committed."""
        return self.readers.answers(self.core, options)

    def pulls(
        self, now: Instant, options: MergingOptions, *, overdue: bool
    ) -> Iterator[tuple[int, Pull]]:
        """What the leader asks of its parents: replica, message."""
        if not self.core.live:
            return
        self._revive(now, options)
        for side, one in enumerate(self.inputs):
            yield from one.wishes(now, self.core.next[side], options, overdue=overdue)

    @property
    def links_to_be(self) -> tuple[int, int, int, bool]:
        """Life, filter version, the last cut that queues are asked for, and liveness."""
        core = self.core
        borrowing = max((one.borrowing for one in core.pending), default=0)
        return (core.life, core.version, borrowing, core.live)

    def links(self) -> Iterator[tuple[int, Link | Detach | Borrow]]:
        """What the leader wants of its parents until it is so: side, message."""
        core = self.core
        for one in core.pending:
            if one.borrowing:
                left = f"{self.name} {SIDES[0]}"
                joins = (one.consumer, one.number, one.borrowing, one.prefix)
                yield 0, Borrow(name_of(parents(core.signature)[0]), left, core.life, *joins)
        for side, signature in enumerate(parents(core.signature)):
            consumer = f"{self.name} {SIDES[side]}"
            if core.live and core.in_force[side] < core.version:
                wanted = core.filter.restricted(signature)
                parent = name_of(signature)
                yield side, Link(parent, consumer, core.life, core.version, wanted)
            elif not core.live and self.unlinked.get(consumer, 0) < core.life:
                yield side, Detach(name_of(signature), consumer, core.life)

    def expired(self, now: Instant, options: MergingOptions) -> Iterator[Detach]:
        """Subscribers that were silent for too long."""
        for consumer, session in self.core.sessions.items():
            last = self.heard_at.setdefault(consumer, now)
            if session.version < 0 and now - last > options.lease_us:
                yield Detach(self.name, consumer, session.number)

    def forget(self) -> None:
        """Let go of what belongs to consumers that have gone."""
        for known in (self.done, self.heard_at, self.heard):
            for consumer in [one for one in known if one not in self.core.sessions]:
                if consumer in self.core.gone:
                    del known[consumer]

    @property
    def busy(self) -> bool:
        """Is there something to be worked on, without any message?"""
        replica = self.replica
        return bool(
            self.replica.leads != self.led
            or self.applied < replica.commit
            or self.controls
            or self.puts
        )

    @property
    def held_count(self) -> int:
        away = self.replica.standing or self.replica.arriving
        waiting = len(self.core.pending) if self.replica.leading else bool(away)
        if self.replica.leading and self.core.live:
            waiting += sum(one.count for one in self.inputs)
        return self.replica.length - self.applied + len(self.puts) + waiting
