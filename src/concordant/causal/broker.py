"""The broker: orders what its clients publish, gossips it, and serves subscribers.

A broker serves some topics. It delivers an event when it has delivered everything of its own topics
that the event follows, then tells a few peers and its subscribers. Between brokers an event names
its whole past, one position per topic and origin, because a lost event must not hide what lies
behind it (Kim and Ahn send immediate predecessors only; see docs/concepts/causal.md). Only the last
hop is short: `retained` works out what each subscriber must have.

This module is the door, the delivery rule and the gossip. What clients ask for is in `service`,
dead brokers in `burial`, who has what in `stability`. A broker is told who the brokers are and
which topics each serves; it does not know how messages travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from concordant.causal.burial import Burial
from concordant.causal.chance import Chance
from concordant.causal.gossip import targets
from concordant.causal.messages import (
    PEER_MESSAGES,
    Digest,
    Excluded,
    FlushAsk,
    Flushed,
    FlushHeld,
    FlushTaken,
    Id,
    Ordered,
    PullPast,
    Resolve,
    Resolved,
    Retired,
)
from concordant.causal.options import BrokerOptions
from concordant.causal.outgoing import Outgoing
from concordant.causal.pace import Pace
from concordant.causal.placement import Everywhere, Members, brokers_of, topics_of
from concordant.causal.records import Condensed, Died, Ended, Promised
from concordant.causal.retained import last_available
from concordant.causal.safety import Stale, deaths_max
from concordant.causal.service import Service
from concordant.causal.state import BrokerState
from concordant.causal.vector import Vector, copied, lift, position, restricted
from concordant.errors import PeerError, UsageError
from concordant.machine.detector import Suspected, Trusted
from concordant.machine.effects import Effect, Persist
from concordant.machine.holdback import Holdback
from concordant.machine.inputs import Command, Input, Message, Received, Started, TimerFired
from concordant.machine.instant import Instant
from concordant.machine.saved import Compact
from concordant.model.event import Event

_TICK = "tick"

ROUNDS_AHEAD = 1_000
"""How far ahead rounds are made durable: after a crash a broker goes on from there."""


class Broker:
    """One broker."""

    def __init__(
        self,
        name: str,
        *,
        members: Members,
        options: BrokerOptions | None = None,
        detector: str = "",
    ) -> None:
        """`members` says for each topic which brokers serve it; `detector` is the address of the
        failure detector, whose suspicions count."""
        self.name = name
        self.members = members
        self.topics = topics_of(members, name)
        self.brokers = brokers_of(members)
        self.options = options or BrokerOptions()
        self._serves = {one: topics_of(members, one) for one in self.brokers}
        self._serves_all = isinstance(members, Everywhere)
        self._enough = deaths_max(len(self.brokers)) + 1
        """So many brokers with an event: one of them lives."""
        self._detector = detector or f"{name}/detector"
        self._known_peers: dict[tuple[int, str, tuple[str, ...]], list[str]] = {}
        self._service = Service(self)
        self.burial = Burial(self)
        self.now = 0
        """The instant of the input that is handled."""
        self.state = BrokerState(
            Chance.of(self.options.seed, name), Holdback(self.options.pending_count_max)
        )

    # --- the door -----------------------------------------------------------------------------

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out = Outgoing(given.cause)
        self.now = now
        if isinstance(given, Received):
            source = given.source
            for message in given.messages:
                self._check(source, message)
            for message in given.messages:
                self._take(now, source, message, out)
                if self.state.round > self.state.promised:
                    self._promise(out)
        elif isinstance(given, TimerFired):
            for _ in given.names:
                self._tick(now, out)
                if self.state.round > self.state.promised:
                    self._promise(out)
        elif isinstance(given, Started):
            self._start(now, given, out)
        elif isinstance(given, Command):
            for request in given.requests:
                if type(request) is not Compact:
                    raise UsageError(
                        f"a broker cannot {type(request).__name__}",
                        hint="send the request to a client",
                    )
            for _ in given.requests:
                record = Condensed(self.state.condensed())
                out.replace(Persist((record,), out.cause, replaces=True))
        return out.effects()

    def _promise(self, out: Outgoing) -> None:
        """What is shown after this input must not be shown again by a later life."""
        self.state.promised = self.state.round + ROUNDS_AHEAD
        out.persist(Promised(self.state.promised))

    def _start(self, now: Instant, given: Started, out: Outgoing) -> None:
        """Go on where the last life ended; what waited, and who was attached, comes again."""
        state = self.state
        for record in given.records:
            match record:
                case Condensed():
                    state = self.state = msgspec.msgpack.decode(record.state, type=BrokerState)
                    state.round = state.promised  # some of them may have been shown
                case Ordered():
                    self._apply(record)
                case Promised():
                    state.promised = state.round = record.round
                case Died():
                    state.flush.dead = dict.fromkeys(record.dead, True)
                    if record.kept is not None:
                        state.flush.end(record.dead, record.kept)
                case Ended():
                    self.burial.retire()
        if given.records:
            state.safety.unsafe = dict.fromkeys(state.retained.log, True)
            state.patient_until = now + self.options.lease_us
            state.stability.touch_all()
        out.wake(_TICK, now + self.options.tick_us)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def restore(self, data: bytes) -> None:
        self.state = msgspec.msgpack.decode(data, type=BrokerState)

    @property
    def held_count(self) -> int:
        state = self.state
        if state.retired:
            return 0
        return len(state.pending) + len(state.submissions) + (not state.flush.done)

    def _check(self, source: str, message: Message) -> None:
        kind = type(message)
        if kind is Suspected or kind is Trusted:
            if source != self._detector:
                raise PeerError(f"{source} is not the failure detector of {self.name}")
        elif kind in _PEER:
            if source not in self._serves:
                raise PeerError(f"{source} is no broker and sent a {type(message).__name__}")
            if isinstance(message, Ordered) and not self._sound(message):
                raise PeerError(f"{source} sent an event of {message.origin} for {message.at}")
        else:
            self._service.check(source, message)

    def _sound(self, ordered: Ordered) -> bool:
        """Does its origin serve the topics that it is addressed to?"""
        for topic in ordered.at:
            if ordered.origin not in self.members.get(topic, ()):
                return False
        return ordered.round > 0 and bool(ordered.at)

    def _take(self, now: Instant, source: str, message: Message, out: Outgoing) -> None:
        state, kind = self.state, type(message)
        if isinstance(message, Suspected):
            self.burial.adopt(message.members, out)
        elif kind is Trusted:
            pass  # death is for good
        elif state.retired:
            if kind is not Retired and kind is not Excluded:
                out.send(source, Retired() if source in self._serves else Excluded())
        elif source not in self._serves:
            self._service.take(now, source, message, out)
        elif source in state.flush.dead:
            if kind is not Retired and kind is not Excluded:
                out.send(source, Excluded())
        elif isinstance(message, Ordered):
            self._receive(source, message, out)
        elif isinstance(message, Digest):
            self._compare(source, message, out)
        else:
            self._take_rare(source, message, out)

    def _take_rare(self, source: str, message: Message, out: Outgoing) -> None:
        match message:
            case PullPast():
                self._answer(source, message.delivered, out)
            case FlushAsk() | FlushHeld() | Flushed() | FlushTaken():
                self.burial.take(source, message, out)
            case Resolve():
                self._resolve(source, message, out)
            case Resolved():
                self._service.resolved(message, out)
            case Retired():
                self.burial.adopt((source,), out)
            case Excluded():
                self.burial.retire()
                out.persist(Ended())

    # --- delivery -----------------------------------------------------------------------------

    def _receive(self, source: str, ordered: Ordered, out: Outgoing) -> None:
        state = self.state
        if state.flush.refuses(ordered.origin, ordered.number) or not self._new(ordered):
            return
        if self._ready(ordered):
            self._deliver(ordered, out)
            if state.pending.waiting or state.submissions:
                self.drain(out)
        elif state.pending.put((ordered.round, *ordered.id), ordered):
            self._pull(source, out)

    def _new(self, ordered: Ordered) -> bool:
        """Is it of a topic of this broker, and was it not delivered?"""
        delivered, own = self.state.delivered, False
        for topic, n in ordered.at.items():
            if self._serves_all or topic in self.topics:
                if n <= position(delivered, topic, ordered.origin):
                    return False
                own = True
        return own

    def satisfied(self, topic: str, origin: str, n: int) -> bool:
        """Was everything up to this position delivered, or lost with its origin?"""
        reached = position(self.state.delivered, topic, origin)
        if reached >= n:
            return True
        final = self.state.flush.final
        return origin in final and last_available(final, topic, origin, n) <= reached

    def _ready(self, ordered: Ordered) -> bool:
        delivered = self.state.delivered
        for topic, row in ordered.past.items():
            if self._serves_all or topic in self.topics:
                mine = delivered.get(topic, {})
                for origin, n in row.items():
                    if mine.get(origin, 0) < n and not self.satisfied(topic, origin, n):
                        return False
        return True

    def drain(self, out: Outgoing) -> None:
        """Deliver what has become ready. By round, so one pass is enough."""
        pending = self.state.pending
        for key in pending:
            ordered = pending.waiting[key]
            if not self._new(ordered):
                pending.take(key)
            elif self._ready(ordered):
                pending.take(key)
                self._deliver(ordered, out)
        self._service.settle(out)

    def _apply(self, ordered: Ordered) -> None:
        """Deliver, as far as the own state is concerned."""
        state = self.state
        # Own topics advance by delivery only: else a skipped event would never be waited for.
        if not self._serves_all:
            for topic, row in ordered.past.items():
                if topic not in self.topics:
                    self.know(topic, row)
        for topic, n in ordered.at.items():
            lift(state.delivered, topic, ordered.origin, n)
            state.stability.delivered(topic, ordered.origin, n)
        state.round = max(state.round, ordered.round)
        state.stability.touch(ordered.at)
        state.horizon.delivered(ordered.origin, ordered.round)
        source, seq = ordered.event.source, ordered.event.seq
        if self._enough > 1 and self.options.profile == "rounds":
            state.safety.unsafe[ordered.id] = True
        if (source, seq) in state.heard:
            self._note_copy(ordered)
        state.retained.add(ordered)
        state.heard.add(source, seq)
        if ordered.origin == self.name:
            state.number = max(state.number, ordered.number)

    def _note_copy(self, again: Ordered) -> None:
        """Two brokers have ordered an event; the first of it is still kept, in one line."""
        state, event = self.state, again.event
        state.copies[again.id], later = {}, again
        for one in state.retained.log.values():
            if one.event.seq == event.seq and one.event.source == event.source:
                state.copies[again.id] = {topic: {one.origin: n} for topic, n in one.at.items()}
                later = max(one, again, key=lambda which: (which.round, which.origin))
        state.repeated[later.id] = True

    def know(self, topic: str, row: Mapping[str, int]) -> None:
        """Positions of a topic that is not served here lie in the past of something that is."""
        for origin, n in row.items():
            lift(self.state.delivered, topic, origin, n)
            self.state.stability.delivered(topic, origin, n)

    def _deliver(self, ordered: Ordered, out: Outgoing) -> None:
        state = self.state
        out.persist(ordered)
        self._apply(ordered)
        self._push(ordered, out)
        if self.options.push_count > 1:
            left = self.options.push_count - 1
            state.pushing.setdefault(ordered.origin, {})[ordered.number] = left
        self._service.carry(ordered, out)

    def order(self, event: Event, topics: Iterable[str], out: Outgoing) -> Ordered:
        """Give a client's event its place, and deliver it."""
        state = self.state
        state.round += 1
        state.number += 1
        rounds = self.options.profile == "rounds"
        at = {
            topic: state.round if rounds else position(state.delivered, topic, self.name) + 1
            for topic in topics
        }
        ordered = Ordered(self.name, state.number, at, state.round, self._past(), event)
        self._deliver(ordered, out)
        return ordered

    def _past(self) -> Vector:
        return copied(self.state.stability.unstable)

    # --- gossip -------------------------------------------------------------------------------

    def _push(self, ordered: Ordered, out: Outgoing) -> None:
        options = self.options
        for peer in targets(
            self.state.chance,
            self._peers(ordered.origin, tuple(ordered.at)),
            fanout=options.fanout,
            view_count_max=options.view_count_max,
        ):
            out.send(peer, ordered)
            self._pace(peer).sent(ordered.id, self.now, wait_us=options.resend_us)

    def _peers(self, origin: str, topics: tuple[str, ...]) -> list[str]:
        """The live brokers, but for this one and the origin, that serve one of these topics, or
        any if none is given."""
        dead = self.state.flush.dead
        key = (len(dead), origin, topics)  # the dead only become more
        found = self._known_peers.get(key)
        if found is None:
            found = self._known_peers[key] = [
                one
                for one in self.brokers
                if one not in (self.name, origin)
                and one not in dead
                and (not topics or any(topic in self._serves[one] for topic in topics))
            ]
        return found

    def _push_again(self, out: Outgoing) -> None:
        for origin, numbers in self.state.pushing.items():
            for number in list(numbers):
                ordered = self.state.retained.log.get((origin, number))
                numbers[number] -= 1
                if ordered is not None:
                    self._push(ordered, out)
                if ordered is None or not numbers[number]:
                    del numbers[number]

    def _pull(self, source: str, out: Outgoing) -> None:
        """Something cannot be delivered: who sent it has what it follows."""
        if self.options.pull and source not in self.state.pulled:
            self.state.pulled[source] = True
            out.send(source, PullPast(restricted(self.state.delivered, self.topics)))

    def _compare(self, source: str, digest: Digest, out: Outgoing) -> None:
        state = self.state
        if digest.dead and self.burial.adopt(digest.dead, out) and state.retired:
            return
        state.stability.learn(digest.acknowledged)
        state.round = max(state.round, digest.round)
        state.shown[source] = max(state.shown.get(source, 0), digest.round)
        mine = {
            topic: row.get(source, 0)
            for topic, row in digest.delivered.items()
            if topic in self.topics
        }
        state.horizon.claimed(source, digest.round, mine)
        if state.safety.unsafe:
            state.safety.had[source] = digest.delivered
            state.safety.settle(
                self.name, state.retained.log, self.members, state.flush.dead, enough=self._enough
            )
        self._answer(source, digest.delivered, out)

    def _answer(self, peer: str, delivered: Vector, out: Outgoing) -> None:
        """Send what a peer lacks, the first ones in the order of delivery."""
        retained, log = self.state.retained, self.state.retained.log
        if not log:
            self.state.paces.pop(peer, None)
            return
        count_max = self.options.digest_count_max
        lacking = retained.beyond(self._serves[peer], delivered, count_max=count_max)
        first = [one.id for one in lacking]
        out.send(peer, *(log[one] for one in self.late(self._pace(peer), first)))

    def _pace(self, peer: str) -> Pace:
        return self.state.paces.setdefault(peer, Pace())

    def late(self, pace: Pace, lacking: Iterable[Id]) -> list[Id]:
        """Of what somebody lacks, what should have arrived by now."""
        options = self.options
        return pace.due(
            lacking, self.now, wait_us=options.resend_us, longest_us=options.resend_us_max
        )

    def _tick(self, now: Instant, out: Outgoing) -> None:
        state = self.state
        out.wake(_TICK, now + self.options.tick_us)
        peers = self._peers(self.name, ())
        if state.retired:
            for peer in state.chance.sample(peers, 1):
                out.send(peer, Retired())
            return
        state.pulled.clear()
        if state.pushing:
            self._push_again(out)
        self._service.tick(now, out)
        self._settle(now)
        for peer in state.chance.sample(peers, 1):
            mine = restricted(state.delivered, self.topics)
            known = dict(state.stability.acknowledged)
            out.send(peer, Digest(mine, state.round, known, state.flush.names))
        self.burial.coordinate(out)

    def _settle(self, now: Instant) -> None:
        """Work out what everybody has, and forget it."""
        state, stability = self.state, self.state.stability
        if now < state.patient_until:
            return
        topics: list[str] = []
        if stability.changed:
            stability.advertise(
                self.name,
                {topic: row for topic, row in state.delivered.items() if topic in self.topics},
                ((one.topics, one.acknowledged) for one in state.sessions.values()),
            )
            topics = stability.settle(self.members, state.flush.dead)
        if self.options.profile == "local":
            state.retained.drop(topics, stability.stable)
        elif state.retained.log:
            self._forget()
        log = state.retained.log
        state.copies = {one: at for one, at in state.copies.items() if one in log}
        state.repeated = {one: True for one in state.repeated if one in log}

    def _forget(self) -> None:
        """In one line, an event is kept until it cannot come again at another place: whoever has
        ordered it as well did that before it had it, with a round that is known here by now."""
        state = self.state
        if state.stale is None:
            state.stale = Stale(state.round, copied(state.stability.stable))
        state.horizon.look(state.delivered)
        if all(
            one == self.name
            or self.burial.buried(one, self.topics)
            or state.horizon.reached.get(one, 0) >= state.stale.round
            for one in self.brokers
        ):
            state.retained.drop(state.stale.stable, state.stale.stable)
            state.stale = None

    # --- contexts of clients from elsewhere ---------------------------------------------------

    def _resolve(self, source: str, ask: Resolve, out: Outgoing) -> None:
        """Answer when the position was delivered; until then the asker repeats."""
        if self.satisfied(ask.topic, ask.origin, ask.position):
            state = self.state
            past = copied(state.delivered)
            out.send(source, Resolved(ask.topic, ask.origin, ask.position, past, state.round))


_PEER = frozenset(PEER_MESSAGES)
