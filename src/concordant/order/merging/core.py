"""A merger as a state machine: commands in the order of its log, streams of items out.

Every stream is a pure function of the log: events, filters in force, cuts and progress marks are
items of it, so they have one place on which all replicas and all consumers agree. The core decides
nothing: who logs what and when is the replica's matter, and a command that is late, doubled or no
longer true changes nothing. Terms of the thesis: Wilkin 2015, figures 3.4 and 3.6, corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.order.merging.filters import ALL, Filter, union
from concordant.order.merging.messages import (
    Advance,
    Attach,
    Complete,
    Consumer,
    Cut,
    Detach,
    Ev,
    Item,
    Link,
    Live,
    LogCommand,
    Past,
    Put,
    Recut,
    Start,
    Take,
    Widened,
)
from concordant.order.merging.overlay import Signature, parents
from concordant.order.merging.stamps import NOWHERE, Place, beyond, passed


class Session(msgspec.Struct):
    """A consumer whose stream has begun."""

    number: int
    filter: Filter
    whole: tuple[str, ...] = ()
    """Topics of which every event passes. All of them is the usual case, and quick to see."""
    version: int = -1
    """Of a child's filter; -1 for a subscriber."""
    conjunction: str = ""
    joined: bool = False
    """Its deliveries have begun, so it can give its queues to others."""
    donor: Consumer = ""
    cut: int = 0
    trimmed: int = 0
    """The time of the last item that is gone."""
    base: int = 0
    """Items before this number were acknowledged and are gone."""
    items: list[Item] = []
    wish: int = 0
    """Stamped: the time that somebody waits for this stream to pass; 0 if nobody does."""

    @property
    def end(self) -> int:
        return self.base + len(self.items)

    @property
    def last(self) -> int:
        """The time of the last item."""
        return self.items[-1].ts if self.items else self.trimmed

    def widen(self, wanted: Filter) -> None:
        """From here on this is its filter."""
        self.filter = wanted
        self.whole = tuple(topic for topic, each in wanted.topics.items() if each == ALL)

    def append(self, item: Item) -> None:
        self.items.append(item)

    def trim(self, done: int) -> None:
        """What is below `done` is not asked for again."""
        if done > self.base:
            self.trimmed = self.items[done - self.base - 1].ts
            del self.items[: done - self.base]
            self.base = done


class Pending(msgspec.Struct):
    """A consumer that waits for its filter to be in force."""

    consumer: Consumer
    number: int
    filter: Filter
    need: int
    """The filter version that both parents must have in force."""
    version: int = -1
    conjunction: str = ""
    after: int = 0


class Requested(msgspec.Struct, frozen=True):
    """A filter that was asked of the parents."""

    version: int
    filter: Filter


class Core(msgspec.Struct):
    """The state of a merger."""

    signature: Signature
    stamped: bool = False
    """Events keep the times of their roots, and are taken in the order of these."""
    ts: int = 0
    """The last logical time given or promised."""
    sessions: dict[Consumer, Session] = {}
    pending: list[Pending] = []
    gone: dict[Consumer, int] = {}
    """The last session of each consumer that ended."""
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
                    self._start(command.consumer, session)
            case Advance():
                session = self.sessions.get(command.consumer)
                if session is not None and session.number == command.session:
                    self._advance(session, command.ts)

    def changes(self, command: LogCommand) -> bool:
        """Would it change anything? What would not need not be logged."""
        match command:
            case Put():
                return bool(self._new_events(command))
            case Take():
                return bool(self._new_items(command))
            case Attach() | Link():
                return self._is_new(command)
            case Detach():
                return self.gone.get(command.consumer, 0) < command.session
            case Complete() | Recut():
                found = self._joining(command.consumer, command.session, command.cut)
                return found is not None
            case Advance():
                session = self.sessions.get(command.consumer)
                if session is None or session.number != command.session:
                    return False
                if self.waits:  # another topic's event may still have the last one's time
                    return command.ts > max(session.last - 1, session.wish)
                return session.last < command.ts

    # --- events -------------------------------------------------------------------------------

    def _new_events(self, command: Put) -> tuple[Event, ...]:
        """Those whose turn it is."""
        known = self.last.get(command.publisher, 0) + 1 - command.n
        return command.events[known:] if known >= 0 else ()

    def _new_items(self, command: Take) -> tuple[Item, ...]:
        """Those whose turn it is."""
        known = self.next[command.side] - command.index
        return command.items[known:] if known >= 0 and command.life == self.life else ()

    def _put(self, command: Put) -> None:
        events = self._new_events(command)
        if events:
            self.last[command.publisher] = command.n + len(command.events) - 1
            self._place(events, command.hint)

    def _take(self, command: Take) -> None:
        if not self.live:
            return
        side, items = command.side, self._new_items(command)
        self.next[side] += len(items)
        if self.stamped:
            for item in items:
                place = beyond(item, mixed=self.mixed(side))
                self.frontiers[side] = max(self.frontiers[side], place)
                if isinstance(item, Ev):
                    self._emit((item,))
                else:
                    self._obey(side, item)
                self._pass_on()
            return
        for event, run in groupby(items, lambda item: type(item) is Ev):
            if event:
                self._place([item.event for item in run if isinstance(item, Ev)], command.hint)
            else:
                for item in run:
                    self._obey(side, item)

    def _obey(self, side: int, item: Item) -> None:
        """What a parent says that is no event."""
        if isinstance(item, Widened):
            self.in_force[side] = item.version
            oldest = min(self.in_force)
            self.requested = [one for one in self.requested if one.version >= oldest]
            self._activate()

    def _place(self, events: Sequence[Event], hint: Instant) -> None:
        """Events get their times here, one after the other."""
        first = max(self.ts + 1, hint)
        self.ts = first + len(events) - 1
        self._emit([Ev(ts, event) for ts, event in enumerate(events, first)])

    def _emit(self, items: Sequence[Ev]) -> None:
        """One event is one step: its place in the streams of all who want it (erratum 1). Events
        that come together are put there together, in the same order everywhere."""
        for session in self.sessions.values():
            if len(session.whole) == len(self.signature):
                session.items += items
            else:
                passes = session.filter.passes
                session.items += [item for item in items if passes(item.event)]

    # --- progress -----------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """It cannot give times, but has to wait until both parents have passed them."""
        return self.stamped and not self.root

    def mixed(self, side: int) -> bool:
        """Does a parent's stream have stamps of several roots?"""
        return self.stamped and len(parents(self.signature)[side]) > 1

    def _advance(self, session: Session, ts: int) -> None:
        if self.waits:
            session.wish = max(session.wish, ts)
            self._pass_on()
        else:
            self.ts = max(self.ts, ts)
            session.append(Past(self.ts))

    def _pass_on(self) -> None:
        """What both parents have passed is passed here: who waits for it hears so, or begins."""
        self.ts = max(self.ts, min(map(passed, self.frontiers)))
        for session in self.sessions.values():
            if session.wish and session.wish <= self.ts:
                session.wish = 0
                session.append(Past(self.ts))
        if self.pending:
            self._activate()

    @property
    def wished(self) -> int:
        """Stamped: the time that both parents have to pass for all who wait here."""
        found = [session.wish for session in self.sessions.values()]
        found += [one.after for one in self.pending]
        return max(found, default=0)

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
        one.conjunction, one.after = command.conjunction, command.after
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
            self.frontiers = [NOWHERE, NOWHERE]
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
        ready = [one for one in self.pending if self._is_ready(one)]
        if not ready:
            return
        self.pending = [one for one in self.pending if not self._is_ready(one)]
        for one in ready:
            session = self.sessions.get(one.consumer)
            if one.version >= 0:
                if session is None:
                    session = Session(one.number, one.filter)
                    self.sessions[one.consumer] = session
                session.widen(one.filter)
                session.version = one.version
                session.append(Widened(self.ts, one.version))
            else:
                self.ts = max(self.ts, one.after)
                session = Session(one.number, one.filter, conjunction=one.conjunction)
                session.widen(one.filter)
                self.sessions[one.consumer] = session
                self._start(one.consumer, session)

    def _is_ready(self, one: Pending) -> bool:
        if self.root:
            return True
        return min(self.in_force) >= one.need and (not self.stamped or self.ts >= one.after)

    # --- joining by a cut ---------------------------------------------------------------------

    def _start(self, consumer: Consumer, session: Session) -> None:
        """The session begins here, with the queues of one who has the same conjunction."""
        self.cut += 1
        session.cut = self.cut
        session.donor = next(
            (
                name
                for name, one in self.sessions.items()
                if one.joined and one.conjunction == session.conjunction
            ),
            "",
        )
        session.joined = not session.donor
        session.append(Start(self.ts, session.donor, self.cut))
        if session.donor:
            giving = Cut(self.ts, consumer, session.number, self.cut)
            self.sessions[session.donor].append(giving)

    def _joining(self, consumer: Consumer, number: int, cut: int) -> Session | None:
        session = self.sessions.get(consumer)
        if session is None or session.joined or session.version >= 0:
            return None
        return session if (session.number, session.cut) == (number, cut) else None

    def _complete(self, command: Complete) -> None:
        session = self._joining(command.consumer, command.session, command.cut)
        if session is not None:
            session.joined = True
            session.append(Live(self.ts))

    # --- leaving ------------------------------------------------------------------------------

    def _detach(self, command: Detach) -> None:
        if self.gone.get(command.consumer, 0) >= command.session:
            return
        self._drop(command.consumer, command.session)
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
        orphans = [
            (name, one)
            for name, one in self.sessions.items()
            if not one.joined and one.version < 0 and one.donor == consumer
        ]
        if not orphans:
            return
        conjunction = orphans[0][1].conjunction
        if any(o.joined and o.conjunction == conjunction for o in self.sessions.values()):
            for name, one in orphans:
                self._start(name, one)
        else:
            # All of them at this one place of the log: nobody has delivered anything yet.
            self.cut += 1
            for _, one in orphans:
                one.cut, one.donor, one.joined = self.cut, "", True
                one.append(Start(self.ts, "", self.cut))
