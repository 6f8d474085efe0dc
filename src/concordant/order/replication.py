"""A replicated log: a few replicas, one leader per epoch, entries that a majority keeps for good.

The leader of epoch e is replica e mod count. It appends, sends what is new, and an entry is
committed when a majority keeps it under this very epoch. Who wants to lead asks for promises; with
a majority of them it takes the log with the greatest (epoch accepted, length) and makes it that of
its own epoch before anything else. So what was committed once is in the log of every later leader.

The module knows entries as bytes, and time only as it is told. What entries mean, how messages
travel and when to suspect a leader early is for its owner to say. Promises, logs and epochs are
durable before they are spoken of; who leads, and how much is committed, is forgotten in a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from concordant.errors import InvariantViolation
from concordant.machine.inputs import Message, Record
from concordant.machine.instant import MILLISECOND, Duration, Instant


class Prepare(msgspec.Struct, frozen=True, tag=True, gc=False):
    """I want to lead this epoch: promise to follow no older one."""

    log: str
    epoch: int


class Promise(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Promised; this is what I keep, and the epoch in which I accepted it."""

    log: str
    epoch: int
    accepted: int
    base: int
    state: bytes
    entries: tuple[bytes, ...]
    commit: int


class Lead(msgspec.Struct, frozen=True, tag=True, gc=False):
    """I lead this epoch, and this is its log."""

    log: str
    epoch: int
    base: int
    state: bytes
    entries: tuple[bytes, ...]
    commit: int


class Append(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Entries of this epoch, numbered from `first`; without any, it says that the leader lives."""

    log: str
    epoch: int
    first: int
    entries: tuple[bytes, ...]
    commit: int


class Kept(msgspec.Struct, frozen=True, tag=True, gc=False):
    """My log of this epoch is so long, and durable."""

    log: str
    epoch: int
    length: int


class Higher(msgspec.Struct, frozen=True, tag=True, gc=False):
    """I have promised to follow this epoch or a later one."""

    log: str
    epoch: int


class Arrived(msgspec.Struct, frozen=True, tag=True, gc=False):
    """I am in the place of a replica whose disk is lost, and have nothing of this log."""

    log: str


class Bound(msgspec.Struct, frozen=True, tag=True, gc=False):
    """To one that arrived: whom you were may have promised this epoch to me, and no later one."""

    log: str
    epoch: int


MESSAGES = (Prepare, Promise, Lead, Append, Kept, Higher, Arrived, Bound)


class Promised(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: no older epoch is followed."""

    log: str
    epoch: int


class Adopted(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: the whole log, in place of what was there before."""

    log: str
    promised: int
    accepted: int
    base: int
    state: bytes
    entries: tuple[bytes, ...]


class Grown(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: entries at the end of the log."""

    log: str
    entries: tuple[bytes, ...]


RECORDS = (Promised, Adopted, Grown)


TRIES_MAX = 6
"""Waiting times double at most so often."""


class ReplicationOptions(msgspec.Struct, frozen=True):
    """Waiting times and bounds of replicated logs."""

    replica_count: int = 3
    beat_us: Duration = 50 * MILLISECOND
    """A leader is heard, and repeats what is not acknowledged, so often."""
    elect_us: Duration = 400 * MILLISECOND
    """A leader may be silent for so long; the next in line stands first."""
    entry_count_max: int = 10_000
    """Entries kept before the committed ones become one state."""
    entry_bytes_max: int = 4 << 20
    """And their length together."""


class Replica(msgspec.Struct):
    """One replica of one log."""

    log: str
    me: int
    options: ReplicationOptions
    seen_at: Instant = 0
    """When the leader was heard, or when this replica stood last."""
    promised: int = 0
    accepted: int = 0
    base: int = 0
    """Entries before this number are in `state`."""
    state: bytes = b""
    entries: list[bytes] = []
    entry_bytes: int = 0
    """How long the entries are together."""
    commit: int = 0
    leading: bool = False
    standing: int = 0
    """The epoch that this replica wants to lead; 0 if it does not."""
    above: int = 0
    """The greatest epoch heard of."""
    votes: dict[str, Promise] = {}
    kept: list[int] = []
    """As leader: how much each replica keeps under this epoch; -1 if it has not accepted it."""
    sent: list[int] = []
    told: list[int] = []
    """As leader: up to where each replica knows that entries are committed."""
    repeat_at: Instant = 0
    tries: int = 0
    """How often this replica stood, or said whole logs, since a follower agreed: each time it waits
    twice as long, so that logs on slow links are not overtaken by the next attempt."""
    lead_at: Instant = 0
    """When whole logs may be said again."""
    arriving: bool = False
    """In the place of one whose promises nobody knows: it votes for nobody and keeps nothing until
    it has a leader's whole log, of an epoch that is no older than any it could have promised."""
    bounds: dict[str, int] = {}
    """While arriving: what the others have promised."""

    @property
    def length(self) -> int:
        return self.base + len(self.entries)

    @property
    def leader(self) -> int:
        """Who leads the epoch that was promised, as far as is known here."""
        return self.promised % self.options.replica_count

    @property
    def leads(self) -> int:
        """The epoch that this replica leads; -1 if it follows."""
        return self.promised if self.leading else -1

    @property
    def entry_count(self) -> int:
        return len(self.entries)

    @property
    def full(self) -> bool:
        """Is it time that committed entries become one state?"""
        many = len(self.entries) > self.options.entry_count_max
        return many or self.entry_bytes > self.options.entry_bytes_max

    def _grow(self, entries: Sequence[bytes]) -> None:
        self.entries += entries
        self.entry_bytes += sum(map(len, entries))

    @property
    def _majority(self) -> int:
        return self.options.replica_count // 2 + 1

    def committed(self, start: int) -> list[bytes]:
        """Committed entries from a number on."""
        return self.entries[start - self.base : self.commit - self.base]

    def logged(self, start: int) -> list[bytes]:
        """Entries from a number on, committed or not."""
        return self.entries[start - self.base :]

    # --- the first life, and later ones -------------------------------------------------------

    def begin(self, now: Instant) -> None:
        """A log that nobody has written to: its first leader needs no promise."""
        self.seen_at = now
        if self.me == 0:
            self._take_the_lead()
            self.kept = [0] * self.options.replica_count

    def arrive(self, now: Instant) -> None:
        """The first life in the place of a replica whose disk is lost."""
        self.seen_at = now
        self.arriving = self.options.replica_count > 1
        if not self.arriving:  # there is nobody to have it from
            self.begin(now)

    def recall(self, record: Record) -> None:
        """Rebuild what is durable."""
        if isinstance(record, Promised):
            self.promised = record.epoch
        elif isinstance(record, Adopted):
            self.promised, self.accepted = record.promised, record.accepted
            self.base, self.state = record.base, record.state
            self.entries, self.entry_bytes = [], 0
            self._grow(record.entries)
            self.commit = self.base
        elif isinstance(record, Grown):
            self._grow(record.entries)

    def whole(self) -> Adopted:
        """Everything durable as one record."""
        return Adopted(
            self.log, self.promised, self.accepted, self.base, self.state, tuple(self.entries)
        )

    def compact(self, base: int, state: bytes) -> None:
        """Entries before `base` are in `state` now; `whole` has to become durable."""
        self.entry_bytes -= sum(map(len, self.entries[: base - self.base]))
        del self.entries[: base - self.base]
        self.base, self.state = base, state

    # --- the leader ---------------------------------------------------------------------------

    def append(self, entries: Sequence[bytes], out: Outbox) -> None:
        """Entries for the end of the log."""
        self._grow(entries)
        out.keep(Grown(self.log, tuple(entries)))
        self.kept[self.me] = self.length
        self._count()

    def flush(self, out: Outbox) -> None:
        """Tell the followers what is new."""
        for to in self._others():
            news = self.sent[to] < self.length or self.told[to] < self.commit
            if self.kept[to] >= 0 and news:
                first = max(self.sent[to], self.base)
                if first > self.sent[to]:  # it needs what has become state
                    out.send(to, self._lead())
                else:
                    entries = tuple(self.entries[first - self.base :])
                    out.send(to, Append(self.log, self.promised, first, entries, self.commit))
                self.sent[to], self.told[to] = self.length, self.commit

    def _count(self) -> None:
        held = sorted(self.kept, reverse=True)[self._majority - 1]
        self.commit = max(self.commit, held)

    def _others(self) -> list[int]:
        return [one for one in range(self.options.replica_count) if one != self.me]

    def _lead(self) -> Lead:
        return Lead(
            self.log, self.promised, self.base, self.state, tuple(self.entries), self.commit
        )

    def _take_the_lead(self) -> None:
        count = self.options.replica_count
        self.leading, self.standing, self.votes = True, 0, {}
        self.kept, self.sent, self.told = [-1] * count, [0] * count, [0] * count
        self.kept[self.me] = self.length

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now: Instant, out: Outbox) -> None:
        """Repeat what was not answered; stand if nobody leads."""
        if self.arriving:
            if now >= self.repeat_at:
                self.repeat_at = now + self.options.beat_us
                for to in self._others():
                    out.send(to, Arrived(self.log))
        elif self.leading:
            self._beat(now, out)
        elif self.standing:
            if now >= self.repeat_at:
                self._ask(now, out)
        elif now - self.seen_at > self.options.elect_us * (1 + self._turn()) << self.tries:
            self.stand(now, out)

    def _turn(self) -> int:
        """How many come before this one when the leader is gone."""
        count = self.options.replica_count
        return (self.me - self.leader - 1) % count

    def doubt(self, now: Instant) -> None:
        """The leader is suspected: do not wait for long."""
        if not self.leading and not self.standing:
            self.seen_at = min(self.seen_at, now - self.options.elect_us)

    def _beat(self, now: Instant, out: Outbox) -> None:
        if now < self.repeat_at:
            return
        self.repeat_at = now + self.options.beat_us
        behind = [to for to in self._others() if self.kept[to] < self.base]
        if behind and now >= self.lead_at:
            self._wait_longer()
            self.lead_at = now + (self.options.beat_us << self.tries)
            for to in behind:
                out.send(to, self._lead())
                self.sent[to] = self.length
        for to in self._others():
            first = max(self.kept[to], self.base)
            entries = () if to in behind else tuple(self.entries[first - self.base :])
            out.send(to, Append(self.log, self.promised, first, entries, self.commit))
            self.sent[to] = max(self.sent[to], first + len(entries))
            self.told[to] = self.commit

    def _wait_longer(self) -> None:
        self.tries = min(self.tries + 1, TRIES_MAX)

    def stand(self, now: Instant, out: Outbox) -> None:
        """Ask to lead a new epoch."""
        count = self.options.replica_count
        epoch = max(self.promised, self.above) // count * count + self.me
        while epoch <= max(self.promised, self.above):
            epoch += count
        self.leading, self.standing, self.votes = False, epoch, {}
        self.promised, self.seen_at = epoch, now
        out.keep(Promised(self.log, epoch))
        self._vote(self.me, self._promise(epoch), now, out)
        self._ask(now, out)

    def _ask(self, now: Instant, out: Outbox) -> None:
        self.repeat_at = now + (self.options.beat_us << self.tries)
        self._wait_longer()
        if self.standing:
            for to in self._others():
                if str(to) not in self.votes:
                    out.send(to, Prepare(self.log, self.standing))

    def _promise(self, epoch: int) -> Promise:
        whole = (self.base, self.state, tuple(self.entries), self.commit)
        return Promise(self.log, epoch, self.accepted, *whole)

    def _vote(self, voter: int, given: Promise, now: Instant, out: Outbox) -> None:
        self.votes[str(voter)] = given
        if len(self.votes) < self._majority:
            return
        best = max(self.votes.values(), key=lambda one: (one.accepted, one.base + len(one.entries)))
        commit = max(one.commit for one in self.votes.values())
        self._adopt(self.standing, best.base, best.state, best.entries, commit, out)
        self._take_the_lead()
        self._count()
        self.repeat_at = self.lead_at = now
        self._beat(now, out)

    # --- messages -----------------------------------------------------------------------------

    def receive(self, now: Instant, source: int, message: Message, out: Outbox) -> None:
        """A message of another replica."""
        if self.arriving:
            self._arriving(now, source, message, out)
            return
        match message:
            case Prepare():
                self._prepared(now, source, message, out)
            case Promise():
                if self.standing and message.epoch == self.standing:
                    self._vote(source, message, now, out)
            case Lead():
                self._led(now, source, message, out)
            case Append():
                self._appended(now, source, message, out)
            case Kept():
                if self.leading and message.epoch == self.promised:
                    self.kept[source] = max(self.kept[source], message.length)
                    self.tries = 0
                    self.sent[source] = max(self.sent[source], message.length)
                    self._count()
            case Higher():
                self._overtaken(now, message.epoch)
            case Arrived():
                out.send(source, Bound(self.log, self.promised))
                if self.leading:  # whatever it had acknowledged
                    self.kept[source], self.lead_at = -1, now

    def _arriving(self, now: Instant, source: int, message: Message, out: Outbox) -> None:
        """Every majority that it may have been part of has one of those that were asked."""
        if isinstance(message, Bound):
            self.bounds[str(source)] = max(message.epoch, self.bounds.get(str(source), 0))
        elif isinstance(message, Lead):
            known = len(self.bounds) > self.options.replica_count - self._majority
            if known and message.epoch >= max(self.bounds.values()):
                self.arriving = False
                self._take_over(message, now, out)
                out.send(source, Kept(self.log, message.epoch, self.length))

    def _prepared(self, now: Instant, source: int, message: Prepare, out: Outbox) -> None:
        if message.epoch < self.promised:
            out.send(source, Higher(self.log, self.promised))
            return
        if message.epoch > self.promised:
            self._follow(message.epoch, now)
            out.keep(Promised(self.log, message.epoch))
        out.send(source, self._promise(message.epoch))

    def _follow(self, epoch: int, now: Instant) -> None:
        self.promised, self.seen_at = epoch, now
        self.leading, self.standing, self.votes = False, 0, {}

    def _led(self, now: Instant, source: int, message: Lead, out: Outbox) -> None:
        if message.epoch < self.promised:
            out.send(source, Higher(self.log, self.promised))
            return
        if message.epoch > self.accepted or message.base > self.length:
            self._take_over(message, now, out)
        self.seen_at = now
        self.commit = max(self.commit, min(message.commit, self.length))
        out.send(source, Kept(self.log, message.epoch, self.length))

    def _take_over(self, lead: Lead, now: Instant, out: Outbox) -> None:
        """Follow a leader with its whole log."""
        self._follow(lead.epoch, now)
        self._adopt(lead.epoch, lead.base, lead.state, lead.entries, lead.commit, out)

    def _adopt(
        self,
        epoch: int,
        base: int,
        state: bytes,
        entries: tuple[bytes, ...],
        commit: int,
        out: Outbox,
    ) -> None:
        if base + len(entries) < self.commit:
            raise InvariantViolation(f"{self.log}: epoch {epoch} would undo what is committed")
        self.promised = self.accepted = epoch
        self.base, self.state, self.entries, self.entry_bytes = base, state, [], 0
        self._grow(entries)
        self.commit = max(self.commit, base, min(commit, self.length))
        out.keep(self.whole())

    def _appended(self, now: Instant, source: int, message: Append, out: Outbox) -> None:
        if message.epoch < self.promised:
            out.send(source, Higher(self.log, self.promised))
            return
        self.seen_at = now
        if message.epoch != self.promised or message.epoch != self.accepted:
            return  # the leader will repeat the beginning of its epoch
        self.tries = 0
        new = message.entries[self.length - message.first :] if message.first <= self.length else ()
        if new:
            self._grow(new)
            out.keep(Grown(self.log, tuple(new)))
        self.commit = max(self.commit, min(message.commit, self.length))
        if message.entries or message.first != self.length:  # the leader knows of the others
            out.send(source, Kept(self.log, message.epoch, self.length))

    def _overtaken(self, now: Instant, epoch: int) -> None:
        self.above = max(self.above, epoch)
        if epoch > self.promised and (self.leading or self.standing):
            self.leading, self.standing, self.votes = False, 0, {}
            self.seen_at = now


class Outbox:
    """Where a replica leaves what has to be durable and what has to be sent, in this order."""

    def __init__(self, keep: Callable[[Record], None], send: Callable[[int, Message], None]):
        self.keep = keep
        self.send = send
