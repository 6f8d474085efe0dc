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
from concordant.order.merging.core import Core, Session
from concordant.order.merging.inflow import HELD_COUNT_MAX, Inflow
from concordant.order.merging.messages import (
    Advance,
    Batch,
    Consumer,
    Control,
    Detach,
    Ended,
    Ev,
    Item,
    Link,
    LogCommand,
    Past,
    Pull,
    Put,
    Take,
    packed,
)
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.overlay import SIDES, first_replica, name_of, parents
from concordant.order.merging.stamps import NOWHERE, TICKS, Place, beyond, passed, place_of
from concordant.order.replication import Replica
from concordant.order.streams import Incoming

_commands = msgspec.msgpack.Decoder(LogCommand)
_core = msgspec.msgpack.Decoder(Core)
encode = msgspec.msgpack.Encoder().encode
_NOTHING = packed(())

Answer = tuple[tuple[str, ...], Batch | Ended]
"""To whom, and what."""

MANY_COUNT_MAX = 64
"""Consumers that one batch is for."""


class Asked(msgspec.Struct):
    """A consumer's wish for items, at this replica."""

    source: str
    session: int
    sent: int
    """What is below was sent."""
    next: int
    """What is below was sent, or is not worth a message yet."""
    end: int
    answered: bool = False
    """It has heard of us since it asked, if only by an empty batch."""
    known: bool = False
    """It knows where its session began."""
    marking: bool = False
    """It waits for marks, whoever asked for them."""


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
    unaccepted: dict[str, int] = {}
    """Publishers that are to hear how far their events are accepted, and what they were told."""
    astray: dict[str, bool] = {}
    """Publishers that sent events here although another replica leads."""
    linked_at: Instant = 0
    linked: tuple[int, int, bool] = (0, 0, False)
    """Life, filter version and liveness of which the parents were told last."""
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
    asked: dict[Consumer, Asked] = {}
    news: bool = False
    """There may be something to answer."""
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
            self.news = True
        entries = replica.committed(self.applied)
        for entry in entries:
            self.core.apply(_commands.decode(entry))
            if self.logged:
                self.logged.pop(entry, None)
        self.applied += len(entries)
        self.news = self.news or bool(entries)
        return bool(entries)

    def turned(self, now: Instant, options: MergingOptions) -> None:
        """Begin anew with what is at hand if this replica has become the leader, or stopped."""
        if self.replica.leads == self.led:
            return
        self.led = self.replica.leads
        self.publishers, self.puts, self.unaccepted = {}, [], {}
        self.logged, self.controls = {}, {}
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
        found += [encode(Put(one.publisher, one.n, tuple(one.events), hint)) for one in self.puts]
        self.puts = []
        if self.core.live:
            found += map(encode, self._takes(hint))
        return found

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
                wanted = max(wanted, other.ready[-1].ts)
            if wanted and passed(one.frontier) < wanted and (overdue or one.marked < wanted):
                one.marked, self.marked_at = wanted, now
                yield Advance(one.merger, one.consumer, one.session, wanted)

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
        if isinstance(command, Advance) and command.consumer in self.asked:
            asked = self.asked[command.consumer]  # the mark may be there already
            asked.marking, asked.next = True, asked.sent
            self.news = True
        if self.replica.leading:
            self.controls[encode(command)] = True
        return self.replica.leading

    def take_in(self, now: Instant, side: int, batch: Batch) -> None:
        """Items of a parent, at the leader."""
        if self.replica.leading and self.inputs and self.inputs[side].session == batch.session:
            self.inputs[side].take_in(now, batch)

    def pulled(self, now: Instant, source: str, pull: Pull) -> None:
        """A consumer asks for items and says what it has done with."""
        before = self.asked.get(pull.consumer)
        if before is None or (before.source, before.session) != (source, pull.session):
            asked = Asked(source, pull.session, pull.start, pull.start, pull.end)
        elif pull.again:
            asked = Asked(source, pull.session, pull.start, pull.start, pull.end)
            asked.marking = before.marking
        else:  # what is on its way need not be sent again
            asked = before
            asked.answered = False
            asked.end = max(asked.end, pull.end)
            asked.sent = max(asked.sent, pull.start)
            asked.next = max(asked.next, pull.start)
        self.asked[pull.consumer] = asked
        self.heard[pull.consumer] = self.news = True
        self.reached(now, pull.consumer, pull.session, pull.done)

    def reached(self, now: Instant, consumer: Consumer, session: int, done: int) -> None:
        """A consumer was heard somewhere."""
        self.heard_at[consumer] = now
        if (session, done) > self.done.get(consumer, (0, 0)):
            self.done[consumer] = (session, done)

    # --- what goes out ------------------------------------------------------------------------

    def answers(self, options: MergingOptions) -> Iterator[Answer]:
        """Items for those who asked, as far as they are committed. Those who are equally far and
        have the same filter get them together."""
        if not self.news:
            return
        self.news = False
        core, base, total = self.core, self.core.base, self.core.end
        together: dict[tuple[bytes, int, int, int, bool], list[tuple[Session, Asked]]] = {}
        for consumer, asked in list(self.asked.items()):
            session = core.sessions.get(consumer)
            if session is None or session.number != asked.session:
                yield from self._unbegun(consumer, asked)
                continue
            if asked.sent < base or asked.sent < session.begin:
                asked.end += max(0, session.begin - asked.sent)
                asked.sent = asked.next = max(session.begin, base)
                asked.known = False
            end = asked.end if asked.end < total else total
            if asked.answered and end <= asked.next:
                continue
            alone = session.version >= 0 or (session.alone and session.alone[-1] >= asked.sent)
            if alone or not asked.known:
                yield from self._alone(consumer, session, asked, end, options)
            else:
                key = (session.key, asked.sent, asked.next, end, asked.marking)
                together.setdefault(key, []).append((session, asked))
        for (_, sent, first, end, _), some in together.items():
            yield from self._share(some, sent, first, max(first, end), options)

    def _unbegun(self, consumer: Consumer, asked: Asked) -> Iterator[Answer]:
        """The session has ended, or not begun."""
        if self.core.gone.get(consumer, 0) >= asked.session:
            del self.asked[consumer]
            yield (asked.source,), Ended(self.name, consumer, asked.session)
        elif not asked.answered:
            asked.answered, at = True, asked.sent
            empty = Batch(self.name, at, at, _NOTHING, consumer, asked.session, begin=-1)
            yield (asked.source,), empty

    def _alone(
        self, consumer: Consumer, session: Session, asked: Asked, end: int, options: MergingOptions
    ) -> Iterator[Answer]:
        """A batch for one: it has to know where it stands, or there is something for it alone."""
        core = self.core
        end = max(end, asked.next)
        items = [item for item in core.between(asked.next, end) if session.sees(item)]
        if not self._worth(items, asked, end, options):
            asked.next = end
            return
        stands = (consumer, asked.session, max(session.begin, core.base), session.begin)
        for last, some in _pieces(items, end, options.batch_count_max):
            yield (asked.source,), Batch(self.name, asked.sent, last, packed(some), *stands)
            asked.sent = asked.next = last
        asked.answered = asked.known = True

    def _share(
        self,
        some: list[tuple[Session, Asked]],
        sent: int,
        first: int,
        end: int,
        options: MergingOptions,
    ) -> Iterator[Answer]:
        """A batch for many."""
        session, asked = some[0]
        passes = session.filter.passes
        items: list[Item] = [
            one
            for one in self.core.between(first, end)
            if type(one) is Past or (type(one) is Ev and (not session.key or passes(one.event)))
        ]
        owed = not all(one.answered for _, one in some)
        if owed or self._worth(items, asked, end, options):
            for last, piece in _pieces(items, end, options.batch_count_max):
                data = packed(piece)
                for i in range(0, len(some), MANY_COUNT_MAX):
                    who = some[i : i + MANY_COUNT_MAX]
                    begins = tuple(one.begin for one, _ in who)
                    batch = Batch(self.name, sent, last, data, many=begins)
                    yield tuple(one.source for _, one in who), batch
                sent = last
        for _, one in some:
            one.sent, one.next, one.answered = sent, end, True

    def _worth(
        self, items: Sequence[Item], asked: Asked, end: int, options: MergingOptions
    ) -> bool:
        """Is there something to say? That nothing was for a consumer it hears now and then, so that
        it can say that it has done with it."""
        pause = min(options.window_count, options.lag_count_max) // 4
        if not (asked.answered and asked.known) or end >= asked.end or end - asked.sent > pause:
            return True
        return bool(items) if asked.marking else any(type(one) is not Past for one in items)

    def pulls(
        self, now: Instant, options: MergingOptions, *, overdue: bool
    ) -> Iterator[tuple[int, int, Pull]]:
        """What the leader asks of its parents: side, replica, message."""
        if not self.core.live:
            return
        for side, one in enumerate(self.inputs):
            wish = one.wish(now, self.core.next[side], options, overdue=overdue)
            if wish is not None:
                yield side, one.replica, wish

    def links(self) -> Iterator[tuple[int, Link | Detach]]:
        """What the leader wants of its parents until it is so: side, message."""
        core = self.core
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


def _pieces(items: list[Item], end: int, count_max: int) -> Iterator[tuple[int, list[Item]]]:
    """Items in pieces of a bounded size, each with the number where it ends; at least one."""
    for i in range(0, max(1, len(items)), count_max):
        some = items[i : i + count_max]
        yield (end if i + count_max >= len(items) else some[-1].n + 1), some
