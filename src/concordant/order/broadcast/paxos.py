"""Multi-Paxos: every position of a log is agreed on by itself, under a leader that stays.

A leader asks once for promises (phase 1), for all positions that are not known to be decided, and
proposes again, per position, the value accepted under the greatest ballot, or nothing where nobody
accepted anything. From then on each new value takes one round (phase 2). A value is decided when a
majority has accepted it under one ballot. Acceptors make promises and accepted values durable
before they answer; what is decided is learnt again after a crash.

It has the same door as `order.replication`, which takes over whole logs instead of positions, so
that the sequencer on top does not know the difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from concordant.machine.inputs import Message, Record
from concordant.machine.instant import Instant
from concordant.order.replication import TRIES_MAX, Outbox, ReplicationOptions

NOTHING = b""
"""Decided where a new leader found no value."""


class Vote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value that was accepted for a position, and the ballot under which."""

    slot: int
    ballot: int
    value: bytes


class Ballot(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Phase 1: promise to accept nothing older, and say what you accepted from `start` on."""

    ballot: int
    start: int


class Votes(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Promised. Everything before `decided` is decided: what of it is not in `state` is in
    `values`."""

    ballot: int
    votes: tuple[Vote, ...]
    base: int
    state: bytes
    first: int
    values: tuple[bytes, ...]


class Propose(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Phase 2: accept these for the positions from `first` on; before `decided` all is decided."""

    ballot: int
    first: int
    values: tuple[bytes, ...]
    decided: int


class Accept(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Accepted, and durable."""

    ballot: int
    first: int
    count: int


class Refused(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A greater ballot was promised."""

    ballot: int


class Learn(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Tell me what was decided from here on."""

    start: int


class Decided(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What was decided from `first` on; before it, `state` if the asker lacks that too."""

    base: int
    state: bytes
    first: int
    values: tuple[bytes, ...]


MESSAGES = (Ballot, Votes, Propose, Accept, Refused, Learn, Decided)


class Ballotted(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: nothing of an older ballot is accepted."""

    ballot: int


class AcceptedVotes(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: accepted values."""

    votes: tuple[Vote, ...]


class Acceptor(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: everything, in place of what was there before."""

    ballot: int
    base: int
    state: bytes
    values: tuple[bytes, ...]
    votes: tuple[Vote, ...]


RECORDS = (Ballotted, AcceptedVotes, Acceptor)


class PaxosLog(msgspec.Struct):
    """One process: acceptor, learner, and leader if its turn comes."""

    log: str
    me: int
    options: ReplicationOptions
    seen_at: Instant = 0
    promised: int = 0
    votes: dict[int, Vote] = {}
    """Accepted here, by position."""
    base: int = 0
    state: bytes = b""
    values: list[bytes] = []
    """Decided, from `base` on."""
    leading: bool = False
    standing: int = 0
    above: int = 0
    promises: dict[str, Votes] = {}
    next: int = 0
    """As leader: the next free position."""
    accepts: dict[int, list[int]] = {}
    """As leader: who accepted each position that is not decided."""
    sent: int = 0
    """As leader: positions before this were proposed to all."""
    repeat_at: Instant = 0
    tries: int = 0
    """How often there was no answer: each time this one waits twice as long, so that answers on
    slow links are not overtaken by the next attempt."""
    send_at: Instant = 0
    """When what is not decided may be sent again."""

    @property
    def commit(self) -> int:
        return self.base + len(self.values)

    @property
    def length(self) -> int:
        return self.next if self.leading else self.commit

    @property
    def leader(self) -> int:
        return self.promised % self.options.replica_count

    @property
    def leads(self) -> int:
        return self.promised if self.leading else -1

    @property
    def entry_count(self) -> int:
        return len(self.values)

    @property
    def _majority(self) -> int:
        return self.options.replica_count // 2 + 1

    def committed(self, start: int) -> list[bytes]:
        return self.values[start - self.base :]

    def logged(self, start: int) -> list[bytes]:
        """Values from a position on, decided or proposed here."""
        proposed = range(self.commit, self.next) if self.leading else ()
        return [*self.committed(start), *(self.votes[slot].value for slot in proposed)]

    # --- the first life, and later ones -------------------------------------------------------

    def begin(self, now: Instant) -> None:
        """Nobody has accepted anything: the leader of ballot 0 need not ask."""
        self.seen_at = now
        self.leading = self.me == 0

    def recall(self, record: Record) -> None:
        if isinstance(record, Ballotted):
            self.promised = record.ballot
        elif isinstance(record, AcceptedVotes):
            self._accept(record.votes)
        elif isinstance(record, Acceptor):
            self.promised, self.base, self.state = record.ballot, record.base, record.state
            self.values = list(record.values)
            self.votes = {one.slot: one for one in record.votes}

    def whole(self) -> Acceptor:
        votes = tuple(self.votes.values())
        return Acceptor(self.promised, self.base, self.state, tuple(self.values), votes)

    def compact(self, base: int, state: bytes) -> None:
        """Values before `base` are in `state` now; `whole` has to become durable."""
        del self.values[: base - self.base]
        self.base, self.state = base, state
        self.votes = {slot: one for slot, one in self.votes.items() if slot >= base}

    def _accept(self, votes: Sequence[Vote]) -> None:
        for one in votes:
            self.promised = max(self.promised, one.ballot)
            if one.slot >= self.base:
                self.votes[one.slot] = one

    # --- the leader ---------------------------------------------------------------------------

    def append(self, entries: Sequence[bytes], out: Outbox) -> None:
        """Propose values for the next positions."""
        self._propose(self.next, entries, out)
        self.next += len(entries)
        self._decide()

    def _propose(self, first: int, values: Sequence[bytes], out: Outbox) -> None:
        votes = tuple(Vote(first + i, self.promised, one) for i, one in enumerate(values))
        self._accept(votes)
        out.keep(AcceptedVotes(votes))
        for one in votes:
            self.accepts[one.slot] = [self.me]

    def flush(self, out: Outbox) -> None:
        """Send what was proposed since; with nothing new, nothing."""
        if self.sent < self.next:
            first = max(self.sent, self.commit)
            self._send(first, out)
            self.sent = self.next

    def _send(self, first: int, out: Outbox) -> None:
        values = tuple(self.votes[slot].value for slot in range(first, self.next))
        for to in self._others():
            out.send(to, Propose(self.promised, first, values, self.commit))

    def _others(self) -> list[int]:
        return [one for one in range(self.options.replica_count) if one != self.me]

    def _decide(self) -> None:
        """Positions in their order, as far as a majority has accepted them."""
        while len(self.accepts.get(self.commit, ())) >= self._majority:
            del self.accepts[self.commit]
            self.values.append(self.votes[self.commit].value)

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now: Instant, out: Outbox) -> None:
        """Repeat what was not answered; stand if nobody leads."""
        if self.leading:
            if now >= self.repeat_at:
                self._beat(now, out)
        elif self.standing:
            if now >= self.repeat_at:
                self._ask(now, out)
        else:
            turn = (self.me - self.leader - 1) % self.options.replica_count
            if now - self.seen_at > self.options.elect_us * (1 + turn) << self.tries:
                self._stand(now, out)

    def _beat(self, now: Instant, out: Outbox) -> None:
        """Say that the leader lives, and now and then all that is not decided."""
        self.repeat_at = now + self.options.beat_us
        if now >= self.send_at:
            self.send_at = now + (self.options.beat_us << self.tries)
            self.tries = min(self.tries + 1, TRIES_MAX) if self.commit < self.next else 0
            self._send(self.commit, out)
            self.sent = self.next
        else:
            for to in self._others():
                out.send(to, Propose(self.promised, self.next, (), self.commit))

    def _stand(self, now: Instant, out: Outbox) -> None:
        count = self.options.replica_count
        newest = max(self.promised, self.above)
        ballot = newest - newest % count + self.me
        self.standing = ballot if ballot > newest else ballot + count
        self.promised, self.seen_at, self.promises = self.standing, now, {}
        out.keep(Ballotted(self.standing))
        self._promised(self.me, self._votes(self.standing, self.commit), now, out)
        self._ask(now, out)

    def _ask(self, now: Instant, out: Outbox) -> None:
        self.repeat_at = now + (self.options.beat_us << self.tries)
        self.tries = min(self.tries + 1, TRIES_MAX)
        if self.standing:
            for to in self._others():
                if str(to) not in self.promises:
                    out.send(to, Ballot(self.standing, self.commit))

    def _votes(self, ballot: int, start: int) -> Votes:
        votes = tuple(one for slot, one in self.votes.items() if slot >= start)
        known = self._decided(start)
        return Votes(ballot, votes, known.base, known.state, known.first, known.values)

    def _decided(self, start: int) -> Decided:
        """What was decided from a position on, with the state where that is not enough."""
        if start < self.base:
            return Decided(self.base, self.state, self.base, tuple(self.values))
        return Decided(0, b"", start, tuple(self.values[start - self.base :]))

    def _promised(self, voter: int, given: Votes, now: Instant, out: Outbox) -> None:
        self._learn(given.base, given.state, given.first, given.values, out)
        self.promises[str(voter)] = given
        if len(self.promises) < self._majority:
            return
        best: dict[int, Vote] = {}
        for one in (vote for each in self.promises.values() for vote in each.votes):
            known = best.get(one.slot)
            if one.slot >= self.commit and (known is None or one.ballot > known.ballot):
                best[one.slot] = one
        self.leading, self.standing, self.promises = True, 0, {}
        self.accepts, self.next = {}, max(best, default=self.commit - 1) + 1
        values = [
            best[slot].value if slot in best else NOTHING for slot in range(self.commit, self.next)
        ]
        self._propose(self.commit, values, out)
        self._decide()
        self.sent, self.repeat_at, self.send_at = self.commit, now, now
        self._beat(now, out)

    # --- messages -----------------------------------------------------------------------------

    def receive(self, now: Instant, source: int, message: Message, out: Outbox) -> None:
        match message:
            case Ballot():
                self._ballot(now, source, message, out)
            case Votes():
                if self.standing and message.ballot == self.standing:
                    self._promised(source, message, now, out)
            case Propose():
                self._proposed(now, source, message, out)
            case Accept():
                self._accepted(source, message)
            case Refused():
                self.above = max(self.above, message.ballot)
                if message.ballot > self.promised:
                    self._step_down(now)
            case Learn():
                out.send(source, self._decided(message.start))
            case Decided():
                self._learn(message.base, message.state, message.first, message.values, out)

    def _ballot(self, now: Instant, source: int, message: Ballot, out: Outbox) -> None:
        if message.ballot < self.promised:
            out.send(source, Refused(self.promised))
            return
        if message.ballot > self.promised:
            self._step_down(now)
            self.promised = message.ballot
            out.keep(Ballotted(message.ballot))
        out.send(source, self._votes(message.ballot, message.start))

    def _step_down(self, now: Instant) -> None:
        self.leading, self.standing, self.promises, self.seen_at = False, 0, {}, now

    def _proposed(self, now: Instant, source: int, message: Propose, out: Outbox) -> None:
        if message.ballot < self.promised:
            out.send(source, Refused(self.promised))
            return
        if message.ballot > self.promised:
            self._step_down(now)
            self.promised = message.ballot
        self.seen_at, before = now, self.commit
        votes = tuple(
            Vote(slot, message.ballot, value)
            for slot, value in enumerate(message.values, message.first)
            if slot >= self.commit
        )
        new = tuple(one for one in votes if self.votes.get(one.slot) != one)
        if new:
            self._accept(new)
            out.keep(AcceptedVotes(new))
        if message.values:
            out.send(source, Accept(message.ballot, message.first, len(message.values)))
        # What the leader proposes is what was decided, if it is decided.
        while self.commit < message.decided:
            vote = self.votes.get(self.commit)
            if vote is None or vote.ballot != message.ballot:
                out.send(source, Learn(self.commit))
                break
            self.values.append(vote.value)
        # A leader that is heard and decides nothing may only need more time on slow links.
        settled = message.first + len(message.values) == message.decided
        if self.commit > before or (settled and self.commit == message.decided):
            self.tries = 0

    def _accepted(self, source: int, message: Accept) -> None:
        if self.leading and message.ballot == self.promised:
            for slot in range(message.first, message.first + message.count):
                if slot in self.accepts and source not in self.accepts[slot]:
                    self.accepts[slot].append(source)
                    self.tries = 0
            self._decide()

    def _learn(
        self, base: int, state: bytes, first: int, values: Sequence[bytes], out: Outbox
    ) -> None:
        if base > self.commit:
            self.base, self.state, self.values = base, state, []
            self.votes = {slot: one for slot, one in self.votes.items() if slot >= base}
            out.keep(self.whole())
        if first <= self.commit < first + len(values):
            self.values += values[self.commit - first :]
