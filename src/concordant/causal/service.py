"""What a broker does for its clients: sessions, catch-up, pulls, publications with their context.

A client attaches with what it has, and gets what it missed and a floor: a causally closed cut from
which on it gets everything. While its session lasts, what it has not acknowledged is kept. A
session ends when the client leaves, is silent for too long, or falls too far behind; whoever comes
back after that is told which topics may have a gap.

A publication waits until the broker knows everything that its publisher knew. For a topic that the
broker does not serve, a broker that does is asked for the whole past of the position: the position
alone would lose what lies behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from concordant.causal.messages import (
    Ack,
    Attached,
    AttachHome,
    Carried,
    Detached,
    DetachHome,
    Heard,
    Ordered,
    Resolve,
    Resolved,
    Submit,
    Submitted,
)
from concordant.causal.outgoing import Outgoing
from concordant.causal.pace import Pace
from concordant.causal.rounds import encode
from concordant.causal.vector import Vector, copied, entries, join, position, restricted
from concordant.errors import PeerError
from concordant.machine.inputs import Message
from concordant.machine.instant import Instant

if TYPE_CHECKING:
    from concordant.causal.broker import Broker


class Session(msgspec.Struct):
    """One client that is attached."""

    number: int
    topics: tuple[str, ...]
    solo: bool
    acknowledged: Vector
    heard_at: Instant
    pace: Pace = msgspec.field(default_factory=Pace)


class Held(msgspec.Struct):
    """A publication that waits for its context."""

    submit: Submit
    need: Vector
    round: int
    asks: dict[str, dict[str, int]]
    """Positions in topics that this broker does not serve, whose past is not known yet."""


class Service:
    """The part of a broker that its clients see. All of its state is the broker's."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def check(self, source: str, message: Message) -> None:
        """Refuse what no client may send."""
        broker = self._broker
        if isinstance(message, AttachHome):
            served = [topic for topic in message.topics if topic in broker.topics]
            several = not message.solo and broker.options.profile == "local"
            if not served or (len(served) < len(message.topics) and not several):
                raise PeerError(f"{broker.name} does not serve {message.topics} for {source}")
        elif isinstance(message, Submit):
            if not message.topics or any(one not in broker.topics for one in message.topics):
                raise PeerError(f"{broker.name} does not serve {message.topics} for {source}")
        elif not isinstance(message, Ack | DetachHome):
            raise PeerError(f"a broker was sent a {type(message).__name__} by {source}")

    def take(self, now: Instant, client: str, message: Message, out: Outgoing) -> None:
        """Do what a client asks for."""
        if isinstance(message, Ack):
            self._acknowledge(now, client, message, out)
        elif isinstance(message, Submit):
            self._submit(client, message, out)
        elif isinstance(message, AttachHome):
            self._attach(now, client, message, out)
        elif isinstance(message, DetachHome):
            session = self._broker.state.sessions.get(client)
            if session is not None and session.number <= message.session:
                self._cut(client)
            self._end(client, message.session)
            out.send(client, Detached(message.session))

    # --- sessions -----------------------------------------------------------------------------

    def _attach(self, now: Instant, client: str, ask: AttachHome, out: Outgoing) -> None:
        broker, state = self._broker, self._broker.state
        session = state.sessions.get(client)
        if ask.session <= state.detached.get(client, 0):
            return
        if session is None or session.number < ask.session:
            last = restricted(ask.last, ask.topics)
            session = Session(ask.session, ask.topics, ask.solo, last, now)
            state.sessions[client] = session
        elif session.number > ask.session:
            return
        session.heard_at = now
        mine = {topic: True for topic in ask.topics if topic in broker.topics}
        # Of all its topics, not only of those served here: an event of two topics may be old in the
        # one that is served and new in the other.
        old = {topic: True for topic in ask.topics if topic not in ask.fresh}
        missed = state.retained.beyond(old, ask.last, count_max=len(state.retained.log))
        gap = tuple(
            topic
            for topic in old
            if topic in mine
            and any(
                n > position(ask.last, topic, origin)
                for origin, n in state.retained.dropped.get(topic, {}).items()
            )
        )
        catchup = tuple(self._carried(one, session) for one in missed)
        floor = restricted(state.delivered, mine)
        out.send(client, Attached(ask.session, floor, catchup, gap))

    def _acknowledge(self, now: Instant, client: str, ack: Ack, out: Outgoing) -> None:
        broker, state = self._broker, self._broker.state
        session = state.sessions.get(client)
        if session is None or session.number != ack.session:
            if session is None or session.number < ack.session:
                out.send(client, Detached(ack.session))
            return
        session.heard_at = now
        join(session.acknowledged, restricted(ack.last, session.topics))
        self._send_again(client, session, ack, out)
        rounds = {topic: self._passed(topic) for topic in session.topics if topic in broker.topics}
        out.send(client, Heard(session.number, rounds))

    def _send_again(self, client: str, session: Session, ack: Ack, out: Outgoing) -> None:
        """What a subscriber lacks, the first ones in the order of delivery."""
        broker, state = self._broker, self._broker.state
        waiting = dict.fromkeys(ack.waiting, True)
        log = state.retained.log
        lacking = state.retained.beyond(session.topics, ack.have, count_max=len(log), but=waiting)
        # Those that wait may wait for something that has been found lost since.
        known = [one for one in ack.waiting if one in log]
        again = state.chance.sample(known, broker.options.refresh_count_max)
        first = [one.id for one in lacking[: broker.options.pull_count_max]]
        late = broker.late(session.pace, [*first, *again])
        out.send(client, *(self._carried(log[one], session) for one in late))

    def _passed(self, topic: str) -> int:
        """Every event of the topic that is ordered from now on has a greater round."""
        state = self._broker.state
        return min(
            state.round if one == self._broker.name else state.shown.get(one, 0)
            for one in self._broker.members[topic]
            if one not in state.flush.dead
        )

    def _cut(self, client: str) -> None:
        self._end(client, self._broker.state.sessions.pop(client).number)

    def _end(self, client: str, session: int) -> None:
        detached = self._broker.state.detached
        detached[client] = max(detached.get(client, 0), session)

    def tick(self, now: Instant, out: Outgoing) -> None:
        """End the sessions of those who are silent or too slow; ask again for contexts."""
        state, options = self._broker.state, self._broker.options
        for client, session in list(state.sessions.items()):
            if now - session.heard_at > options.lease_us:
                self._cut(client)
        if len(state.retained.log) > options.retained_count_max and state.sessions:
            slowest = min(
                state.sessions,
                key=lambda one: sum(n for *_, n in entries(state.sessions[one].acknowledged)),
            )
            self._cut(slowest)
        for held in state.submissions.values():
            self._ask(held, out)
        self.settle(out)

    # --- events for subscribers ---------------------------------------------------------------

    def carry(self, ordered: Ordered, out: Outgoing) -> None:
        """Send an event that was just delivered to everybody who wants it."""
        broker = self._broker
        for client, session in broker.state.sessions.items():
            if any(topic in ordered.at for topic in session.topics):
                out.send(client, self._carried(ordered, session))
                session.pace.sent(ordered.id, broker.now, wait_us=2 * broker.options.tick_us)

    def _carried(self, ordered: Ordered, session: Session) -> Carried:
        broker, state = self._broker, self._broker.state
        options = broker.options
        found = state.retained.candidates(ordered, session.topics, broker.topics, state.flush.final)
        ages = b""
        if options.profile == "rounds":
            newest: dict[str, int] = {}
            for _, origin, n in found:
                newest[origin] = max(n, newest.get(origin, 0))
            by_age = {origin: ordered.round - n for origin, n in newest.items()}
            ages = encode(by_age, broker.brokers, bits=options.age_bits)
            found = []
        elif session.solo:
            found = list(state.retained.immediate(found))
        at = {topic: n for topic, n in ordered.at.items() if topic in session.topics}
        return Carried(
            session.number,
            ordered.origin,
            ordered.number,
            at,
            ordered.round,
            tuple(found),
            ages,
            ordered.event,
        )

    # --- publications -------------------------------------------------------------------------

    def _submit(self, client: str, submit: Submit, out: Outgoing) -> None:
        broker, state = self._broker, self._broker.state
        known = state.submitted.get(client)
        if known is not None and known.number >= submit.number:
            out.send(client, known)
            return
        waiting = state.submissions.get(client)
        if waiting is not None and waiting.submit.number >= submit.number:
            out.send(client, Heard(0, {}))  # it is not forgotten
            return
        if len(state.submissions) >= broker.options.submitted_count_max:
            return
        need = copied(submit.context)
        asks: Vector = {}
        for topic, origin, n in entries(need):
            if topic not in broker.topics and position(state.delivered, topic, origin) < n:
                asks.setdefault(topic, {})[origin] = n
        held = Held(submit, need, submit.round, asks)
        state.submissions[client] = held
        self._ask(held, out)
        self.settle(out)

    def _ask(self, held: Held, out: Outgoing) -> None:
        broker, state = self._broker, self._broker.state
        for topic in list(held.asks):
            members = broker.members.get(topic, ())
            live = [one for one in members if one not in state.flush.dead]
            if not live:  # nobody can want it any longer
                del held.asks[topic]
            for origin, n in held.asks.get(topic, {}).items():
                out.send(state.chance.sample(live, 1)[0], Resolve(topic, origin, n))

    def resolved(self, answer: Resolved, out: Outgoing) -> None:
        """The past of a position: from now on it belongs to the context."""
        topic, origin = answer.topic, answer.origin
        for held in self._broker.state.submissions.values():
            asked = held.asks.get(topic, {}).get(origin, 0)
            if 0 < asked <= answer.position:
                join(held.need, answer.delivered)
                held.round = max(held.round, answer.round)
                del held.asks[topic][origin]
                if not held.asks[topic]:
                    del held.asks[topic]
        self.settle(out)

    def settle(self, out: Outgoing) -> None:
        """Order the publications whose context is known."""
        broker, state = self._broker, self._broker.state
        for client, held in list(state.submissions.items()):
            if held.asks or not all(
                broker.satisfied(*one) for one in entries(held.need) if one[0] in broker.topics
            ):
                continue
            del state.submissions[client]
            elsewhere = [topic for topic in held.need if topic not in broker.topics]
            join(state.delivered, restricted(held.need, elsewhere))
            state.round = max(state.round, held.round)
            answer = Submitted(held.submit.number, self._order(held.submit, out), state.round)
            state.submitted[client] = answer
            out.send(client, answer)

    def _order(self, submit: Submit, out: Outgoing) -> Vector:
        """Order an event, unless another broker did and died before it could say so."""
        broker, state = self._broker, self._broker.state
        event = submit.event
        if event.seq <= state.heard.get(event.source, 0):
            return restricted(state.delivered, submit.topics)
        ordered = broker.order(event, submit.topics, out)
        return {topic: {broker.name: n} for topic, n in ordered.at.items()}
