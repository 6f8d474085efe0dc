"""A merger as a state machine: commands in the order of its log, streams of items out.

There is one stream, a pure function of the log: events, filters in force, cuts and progress marks
are items of it, so they have one place on which all replicas and all consumers agree. A consumer
sees the events that pass its filter, the marks, and what is for it alone.

The core decides nothing: who logs what and when is the replica's matter, and a command that is
late, doubled or no longer true changes nothing. Terms of the thesis: Wilkin 2015, figures 3.4 and
3.6, corrected.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from itertools import groupby

import msgspec

from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.order.merging.filters import Filter, union
from concordant.order.merging.messages import (
    Advance,
    Attach,
    Borrow,
    Complete,
    Consumer,
    Cut,
    Detach,
    Ev,
    Item,
    Lent,
    Link,
    Live,
    LogCommand,
    Past,
    Put,
    Recut,
    Start,
    Take,
    Widened,
    event_of,
)
from concordant.order.merging.overlay import Signature, parents
from concordant.order.merging.sessions import LENT_COUNT_MAX, Pending, Requested, Session
from concordant.order.merging.stamps import NOWHERE, Place, beyond, passed

_encode = msgspec.msgpack.Encoder().encode


class Core(msgspec.Struct):
    """The state of a merger."""

    signature: Signature
    stamped: bool = False
    """Events keep the times of their roots, and are taken in the order of these."""
    items: list[Item] = []
    base: int = 0
    """Items before this number are gone: everybody has done with them."""
    ts: int = 0
    """The last logical time given or promised."""
    placed: int = 0
    placed_at: int = -1
    """The time of the last event in the stream, and its number."""
    marked: int = 0
    marked_at: int = -1
    """The same of the last mark."""
    wishes: list[int] = []
    """Stamped: times that somebody waits for this stream to pass, least first."""
    sessions: dict[Consumer, Session] = {}
    pending: list[Pending] = []
    gone: dict[Consumer, int] = {}
    """The last session of each consumer that ended."""
    ended: int = 0
    """How many sessions have ended, or begin anew."""
    cut: int = 0
    last: dict[str, int] = {}
    """Root: the last number of each publisher."""
    live: bool = False
    life: int = 0
    """Counts how often the merger came to life."""
    next: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    """The next index from each parent."""
    in_force: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    """The filter version in force in what was taken from each parent."""
    frontiers: list[Place] = msgspec.field(default_factory=lambda: [NOWHERE, NOWHERE])
    """Stamped: how far each parent has come."""
    version: int = 0
    requested: list[Requested] = []

    @property
    def root(self) -> bool:
        return len(self.signature) == 1

    @property
    def end(self) -> int:
        """The number of the next item."""
        return self.base + len(self.items)

    @property
    def filter(self) -> Filter:
        """What was asked of the parents last."""
        return self.requested[-1].filter if self.requested else Filter()

    def apply(self, command: LogCommand) -> None:
        """Take the next command of the log."""
        match command:
            case Put():
                self._put(command)
            case Take():
                self._take(command)
            case Attach():
                self._attach(command)
            case Link():
                self._link(command)
            case Detach():
                self._detach(command)
            case Complete():
                self._complete(command)
            case Recut():
                session = self._joining(command.consumer, command.session, command.cut)
                if session is not None:
                    self._start_again([(command.consumer, session)])
            case Borrow():
                self._lend(command)
            case Advance():
                self._advance(command)

    def changes(self, command: LogCommand) -> bool:
        """Would it change anything? What would not need not be logged."""
        match command:
            case Put():
                return bool(self._new_events(command))
            case Take():
                due = self.next[command.side]
                return command.life == self.life and command.index <= due < command.end
            case Attach() | Link():
                return self._is_new(command)
            case Detach():
                return self.gone.get(command.consumer, 0) < command.session
            case Complete() | Recut():
                return self._joining(command.consumer, command.session, command.cut) is not None
            case Borrow():
                child = self.sessions.get(command.consumer)
                known = child is not None and child.number == command.session
                return known and command.cut not in self.sessions[command.consumer].lent
            case Advance():
                session = self.sessions.get(command.consumer)
                if session is None or session.number != command.session:
                    return False
                # In a stream of several roots another event may still have the last one's time.
                coming = command.ts <= self.marked and command.read <= self.marked_at
                if not session.key and command.ts <= self.placed - self.waits:
                    coming = coming or command.read <= self.placed_at
                return not coming and command.ts not in self.wishes

    # --- events -------------------------------------------------------------------------------

    def _new_events(self, command: Put) -> tuple[Event, ...]:
        """Those whose turn it is."""
        known = self.last.get(command.publisher, 0) + 1 - command.n
        return command.events[known:] if known >= 0 else ()

    def _put(self, command: Put) -> None:
        events = self._new_events(command)
        if events:
            self.last[command.publisher] = command.n + len(command.events) - 1
            self._place(events, command.hint)

    def _take(self, command: Take) -> None:
        if not self.live or not self.changes(command):
            return
        side, items = command.side, command.items
        if command.index < self.next[side]:  # a new leader has taken again what its log had
            items = tuple(item for item in items if item.n >= self.next[side])
        self.next[side] = command.end
        if self.stamped:
            for item in items:
                place = beyond(item, mixed=self.mixed(side))
                self.frontiers[side] = max(self.frontiers[side], place)
                if isinstance(item, Ev):
                    self._emit([Ev(self.end, item.ts, item.event)])
                else:
                    self._obey(side, item)
                self._pass_on()
            return
        for kind, run in groupby(items, type):
            if kind is Ev:
                self._place(list(map(event_of, run)), command.hint)
            else:
                for item in run:
                    self._obey(side, item)

    def _obey(self, side: int, item: Item) -> None:
        """What a parent says that is no event."""
        if isinstance(item, Widened):
            self.in_force[side] = item.version
            self.requested = [o for o in self.requested if o.version >= min(self.in_force)]
            self._activate()
        elif isinstance(item, Lent):
            for one in list(self.pending):
                if (one.consumer, one.number, one.borrowing) == item.joins:
                    self._borrowed(one, item)

    def _place(self, events: Sequence[Event], hint: Instant) -> None:
        """Events get their times here, one after the other."""
        first = max(self.ts + 1, hint)
        self.ts = first + len(events) - 1
        later = first - self.end
        self._emit([Ev(n, n + later, event) for n, event in enumerate(events, self.end)])

    def _emit(self, items: Sequence[Ev]) -> None:
        """One event is one step: it has one place for all who want it (erratum 1). If there is
        nobody, it is not kept."""
        if self.sessions:
            self.items += items
            self.placed, self.placed_at = items[-1].ts, items[-1].n

    # --- progress -----------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """It cannot give times, but has to wait until both parents have passed them."""
        return self.stamped and not self.root

    def mixed(self, side: int) -> bool:
        """Does a parent's stream have stamps of several roots?"""
        return self.stamped and len(parents(self.signature)[side]) > 1

    def _advance(self, command: Advance) -> None:
        if not self.changes(command):
            return
        if self.waits:
            insort(self.wishes, command.ts)
            self._pass_on()
        else:
            self.ts = max(self.ts, command.ts)
            self._mark()

    def _mark(self) -> None:
        self.marked, self.marked_at = self.ts, self.end
        self.items.append(Past(self.end, self.ts))

    def _pass_on(self) -> None:
        """What both parents have passed is passed here: who waits for it hears so, or begins."""
        self.ts = max(self.ts, min(map(passed, self.frontiers)))
        if self.wishes and self.wishes[0] <= self.ts:
            self.wishes = [one for one in self.wishes if one > self.ts]
            self._mark()
        if self.pending:
            self._activate()

    @property
    def wished(self) -> int:
        """Stamped: the time that both parents have to pass for all who wait here."""
        return max((*self.wishes, *(one.after for one in self.pending)), default=0)

    # --- consumers ----------------------------------------------------------------------------

    def _is_new(self, command: Attach | Link) -> bool:
        consumer = command.consumer
        if self.gone.get(consumer, 0) >= command.session:
            return False
        version = command.version if isinstance(command, Link) else -1
        known = [(one.number, one.version) for one in self.pending if one.consumer == consumer]
        if consumer in self.sessions:
            known.append((self.sessions[consumer].number, self.sessions[consumer].version))
        return all(one < (command.session, version) for one in known)

    def _attach(self, command: Attach) -> None:
        if not self._is_new(command):
            return
        self._end_older(command.consumer, command.session)
        one = Pending(command.consumer, command.session, command.filter, 0)
        one.conjunction, one.prefix = command.conjunction, command.prefix
        one.after = command.after
        self._await(one)

    def _link(self, command: Link) -> None:
        if not self._is_new(command):
            return
        self._end_older(command.consumer, command.session)
        self.pending = [one for one in self.pending if one.consumer != command.consumer]
        one = Pending(command.consumer, command.session, command.filter, 0)
        one.version = command.version
        self._await(one)

    def _end_older(self, consumer: Consumer, number: int) -> None:
        """A new session ends the one before."""
        found = self.sessions.get(consumer)
        if found is not None and found.number < number:
            self._drop(consumer, number - 1)
        self.pending = [
            one for one in self.pending if one.consumer != consumer or one.number >= number
        ]

    def _await(self, one: Pending) -> None:
        self.pending.append(one)
        if not self.live and not self.root:
            self.live, self.life = True, self.life + 1
            self.next, self.in_force, self.requested = [0, 0], [0, 0], []
            self.frontiers, self.wishes = [NOWHERE, NOWHERE], []
        if not self.root:
            one.need = self._need(one.filter)
        self._activate()

    def _need(self, wanted: Filter) -> int:
        """The first version from which on every version asked for covers the filter (erratum 10);
        if there is none, one is asked for that does."""
        need = 0
        for one in reversed(self.requested):
            if not one.filter.covers(wanted):
                break
            need = one.version
        if not need:
            self._request()
            need = self.version
        return need

    def _request(self) -> None:
        wanted = [one.filter for one in self.sessions.values()]
        wanted += [one.filter for one in self.pending]
        self.version += 1
        self.requested.append(Requested(self.version, union(wanted)))

    def _activate(self) -> None:
        """Who waited for a filter that is in force now begins."""
        for one in [one for one in self.pending if self._is_ready(one)]:
            if one.version >= 0:
                session = self._begin(one)
                session.version = one.version
                self._tell(session, Widened(self.end, self.ts, one.version))
            elif self._donor(one.conjunction) or not one.prefix:
                self.ts = max(self.ts, one.after)
                self._start(one.consumer, self._begin(one))
            elif not self._beginning(one.conjunction):
                self.ts = max(self.ts, one.after)
                self.cut += 1
                one.borrowing = self.cut

    def _begin(self, one: Pending) -> Session:
        """It waits no longer, and reads from here on."""
        self.pending = [other for other in self.pending if other is not one]
        session = self.sessions.get(one.consumer)
        if session is None or one.version < 0:
            session = Session(one.number, self.end, one.filter)
            session.conjunction, session.prefix = one.conjunction, one.prefix
            self.sessions[one.consumer] = session
        self._filter(session, one.filter)
        return session

    def _filter(self, session: Session, wanted: Filter) -> None:
        """From here on this is its filter."""
        if self.end > session.begin:
            session.earlier.append((self.end, session.filter))
        session.filter = wanted
        session.key = b"" if wanted.whole(self.signature) else _encode(wanted)

    def _tell(self, session: Session, item: Item) -> None:
        """An item for one consumer alone."""
        session.alone.append(self.end)
        self.items.append(item)

    def _is_ready(self, one: Pending) -> bool:
        if self.root:
            return True
        if one.borrowing or min(self.in_force) < one.need:
            return False
        return not self.stamped or self.ts >= one.after

    # --- joining by a cut ---------------------------------------------------------------------

    def _start(self, consumer: Consumer, session: Session) -> None:
        """The session begins here, with the queues of one who has the same conjunction."""
        self.cut += 1
        session.cut = self.cut
        session.donor = self._donor(session.conjunction)
        session.joined = not session.donor
        self._tell(session, Start(self.end, self.ts, session.donor, self.cut))
        if session.donor:
            giving = Cut(self.end, self.ts, consumer, session.number, self.cut)
            self._tell(self.sessions[session.donor], giving)

    def _donor(self, conjunction: str) -> Consumer:
        """One who has the same conjunction, and its queues."""
        mine = (it for it in self.sessions.items() if it[1].conjunction == conjunction)
        return next((consumer for consumer, session in mine if session.joined), "")

    def _start_again(self, joining: list[tuple[Consumer, Session]]) -> None:
        """They wait for queues that will not come: for those of another, or of a prefix."""
        conjunction, prefix = joining[0][1].conjunction, joining[0][1].prefix
        if self._donor(conjunction):
            for consumer, session in joining:
                self._start(consumer, session)
        elif prefix:
            for consumer, session in joining:
                del self.sessions[consumer]
                self.ended += 1
                one = Pending(consumer, session.number, session.filter, 0)
                one.conjunction, one.prefix = conjunction, prefix
                self.pending.append(one)
            self._activate()
        else:
            # All of them at this one place of the log: nobody has delivered anything yet.
            self.cut += 1
            for _, session in joining:
                session.cut, session.donor, session.joined = self.cut, "", True
                self._tell(session, Start(self.end, self.ts, "", self.cut))

    def _joining(self, consumer: Consumer, number: int, cut: int) -> Session | None:
        session = self.sessions.get(consumer)
        if session is None or session.joined or session.version >= 0:
            return None
        return session if (session.number, session.cut) == (number, cut) else None

    def _complete(self, command: Complete) -> None:
        session = self._joining(command.consumer, command.session, command.cut)
        if session is not None:
            session.joined = True
            self._tell(session, Live(self.end, self.ts))
            self._activate()

    # --- queues of a prefix -------------------------------------------------------------------

    def _beginning(self, conjunction: str) -> bool:
        """Is somebody about to have the first queues of a conjunction? Others wait for them."""
        return any(
            one.conjunction == conjunction and not one.joined for one in self.sessions.values()
        ) or any(one.conjunction == conjunction and one.borrowing for one in self.pending)

    def _lend(self, command: Borrow) -> None:
        """A child has a subscriber that begins with the queues of one here: cut both here."""
        if not self.changes(command):
            return
        child = self.sessions[command.consumer]
        child.lent = [*child.lent[1 - LENT_COUNT_MAX :], command.cut]
        donor = self._donor(command.conjunction)
        joins = (command.joiner, command.number, command.cut)
        if donor:
            self._tell(self.sessions[donor], Cut(self.end, self.ts, *joins, prefix=True))
        self._tell(child, Lent(self.end, self.ts, *joins, donor))

    def _borrowed(self, one: Pending, item: Lent) -> None:
        """It begins where its prefix was cut, or with nothing if nobody had queues to lend."""
        session = self._begin(one)
        session.cut, session.joined = item.cut, not item.donor
        self._tell(session, Start(self.end, self.ts, item.donor, item.cut, prefix=True))
        self._activate()

    # --- leaving ------------------------------------------------------------------------------

    def _detach(self, command: Detach) -> None:
        if self.gone.get(command.consumer, 0) >= command.session:
            return
        self._drop(command.consumer, command.session)
        self._activate()
        if self.root:
            return
        if not self.sessions and not self.pending:
            self.live = False
        elif self.live:
            wanted = [one.filter for one in self.sessions.values()]
            wanted += [one.filter for one in self.pending]
            if union(wanted) != self.filter:
                self._request()

    def _drop(self, consumer: Consumer, number: int) -> None:
        self.gone[consumer] = max(number, self.gone.get(consumer, 0))
        self.pending = [
            one for one in self.pending if one.consumer != consumer or one.number > number
        ]
        left = self.sessions.get(consumer)
        if left is None or left.number > number:
            return
        del self.sessions[consumer]
        self.ended += 1
        orphans = [
            (name, one)
            for name, one in self.sessions.items()
            if not one.joined and one.version < 0 and one.donor == consumer
        ]
        if orphans:
            self._start_again(orphans)

    # --- reading ------------------------------------------------------------------------------

    def between(self, first: int, end: int) -> list[Item]:
        """The items from a number that is still kept up to another."""
        return self.items[first - self.base : end - self.base]

    def trim(self, done: int) -> None:
        """Everybody has done with what is below."""
        if done > self.base:
            del self.items[: done - self.base]
            self.base = done
            for session in self.sessions.values():
                if session.alone and session.alone[0] < done:
                    session.alone = [n for n in session.alone if n >= done]
                    session.earlier = [one for one in session.earlier if one[0] > done]
