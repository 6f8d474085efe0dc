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

from collections.abc import Iterator
from itertools import chain
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
    Id,
    Ordered,
    Resolve,
    Resolved,
    Submit,
    Submitted,
)
from concordant.causal.outgoing import Outgoing
from concordant.causal.pace import Pace
from concordant.causal.rounds import encode
from concordant.causal.vector import (
    Entry,
    Vector,
    copied,
    entries,
    join,
    joined,
    position,
    restricted,
)
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
    total: bool = False
    tip: Id | None = None
    """The last event that was delivered and carried to it."""


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
        if type(message) is Ack:
            return
        if isinstance(message, Submit):
            if not message.topics or any(one not in broker.topics for one in message.topics):
                raise PeerError(f"{broker.name} does not serve {message.topics} for {source}")
        elif isinstance(message, AttachHome):
            served = [topic for topic in message.topics if topic in broker.topics]
            several = not message.solo and broker.options.profile == "local"
            if not served or (len(served) < len(message.topics) and not several):
                raise PeerError(f"{broker.name} does not serve {message.topics} for {source}")
        elif not isinstance(message, DetachHome):
            raise PeerError(f"a broker was sent a {type(message).__name__} by {source}")

    def take(self, now: Instant, client: str, message: Message, out: Outgoing) -> None:
        """Do what a client asks for."""
        if isinstance(message, Submit):
            self._submit(client, message, out)
        elif isinstance(message, Ack):
            self._acknowledge(now, client, message, out)
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
            if session is not None:  # what it no longer wants may now be forgotten
                state.stability.touch(session.topics)
            session = Session(ask.session, ask.topics, ask.solo, last, now, total=ask.total)
            state.sessions[client] = session
            state.stability.touch(ask.topics)
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
        state.round = max(state.round, ack.round)
        settled = ack.last if ack.settled is None else ack.settled
        if settled != session.acknowledged and join(
            session.acknowledged, restricted(settled, session.topics)
        ):
            state.stability.touch(session.topics)
        if state.retained.log:
            self._send_again(client, session, ack, out)
        else:
            session.pace.events.clear()
        rounds: dict[str, int] = {}
        if ack.joining:
            mine = (topic for topic in session.topics if topic in broker.topics)
            rounds = {topic: self._passed(topic) for topic in mine}
        if session.total:
            state.horizon.look(state.delivered)
            complete = {topic: self._complete(topic) for topic in session.topics}
            had = restricted(state.delivered, session.topics)
            repeated = tuple(state.repeated)
            out.send(client, Heard(session.number, rounds, complete, had, repeated))
        else:
            out.send(client, Heard(session.number, rounds))

    def _send_again(self, client: str, session: Session, ack: Ack, out: Outgoing) -> None:
        """What a subscriber lacks, the first ones in the order of delivery."""
        broker, state = self._broker, self._broker.state
        waiting = dict.fromkeys(ack.waiting, True)
        log = state.retained.log
        count_max = broker.options.pull_count_max
        have = joined(ack.last, ack.floor)
        lacking = state.retained.beyond(session.topics, have, count_max=count_max, but=waiting)
        if not lacking and not waiting:
            session.pace.events.clear()
            return
        # Those that wait may wait for something that has been found lost since.
        known = [one for one in ack.waiting if one in log]
        again = state.chance.sample(known, broker.options.refresh_count_max)
        first = [one.id for one in lacking]
        late = broker.late(session.pace, [*first, *again])
        out.send(client, *(self._carried(log[one], session) for one in late))

    def _passed(self, topic: str) -> int:
        """Every event of the topic that is ordered from now on has a greater round."""
        broker, state = self._broker, self._broker.state
        found = state.round
        for one in broker.members[topic]:
            if one != broker.name and one not in state.flush.dead:
                found = min(found, state.shown.get(one, 0))
        return found

    def _complete(self, topic: str) -> int:
        """Everything of the topic up to this round, of whatever broker, was delivered here, and
        cannot be lost any longer."""
        broker, state = self._broker, self._broker.state
        unsafe = state.safety.limit(topic, state.retained.log)
        found = state.round if unsafe is None else min(state.round, unsafe - 1)
        for one in broker.members[topic]:
            if one != broker.name and not broker.burial.buried(one, (topic,)):
                found = min(found, state.horizon.reached.get(one, 0))
        return found

    def _cut(self, client: str) -> None:
        session = self._broker.state.sessions.pop(client)
        self._end(client, session.number)
        self._broker.state.stability.touch(session.topics)

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
        for held in self._all_held():
            self._ask(held, out)
        if state.submissions:
            self.settle(out)

    # --- events for subscribers ---------------------------------------------------------------

    def carry(self, ordered: Ordered, out: Outgoing) -> None:
        """Send an event that was just delivered to everybody who wants it."""
        broker = self._broker
        wait_us = broker.options.resend_us
        for client, session in broker.state.sessions.items():
            for topic in session.topics:
                if topic in ordered.at:
                    out.send(client, self._carried(ordered, session))
                    session.pace.sent(ordered.id, broker.now, wait_us=wait_us)
                    session.tip = ordered.id
                    break

    def _carried(self, ordered: Ordered, session: Session) -> Carried:
        broker, state = self._broker, self._broker.state
        options = broker.options
        at = {topic: n for topic, n in ordered.at.items() if topic in session.topics}
        again = state.copies.get(ordered.id)
        if again:
            again = restricted(again, session.topics)
        tip = self._tip(ordered, session)
        if tip is not None:
            return Carried(
                session.number,
                ordered.origin,
                ordered.number,
                at,
                ordered.round,
                (tip,),
                b"",
                ordered.event,
                again,
            )
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
        return Carried(
            session.number,
            ordered.origin,
            ordered.number,
            at,
            ordered.round,
            tuple(found),
            ages,
            ordered.event,
            again,
        )

    def _tip(self, ordered: Ordered, session: Session) -> Entry | None:
        """The one immediate predecessor, where that is plain: both were ordered here, one after the
        other, so the first follows whatever else the second follows."""
        tip, me = session.tip, self._broker.name
        if (
            tip is None
            or tip[0] != me
            or ordered.origin != me
            or tip[1] >= ordered.number
            or not session.solo
            or self._broker.options.profile != "local"
        ):
            return None
        last = self._broker.state.retained.log.get(tip)
        if last is None:
            return None
        return next((topic, me, last.at[topic]) for topic in session.topics if topic in last.at)

    # --- publications -------------------------------------------------------------------------

    def _submit(self, client: str, submit: Submit, out: Outgoing) -> None:
        broker, state = self._broker, self._broker.state
        done = state.submitted.get(client, 0)
        if submit.number <= done:
            context = restricted(state.delivered, submit.topics)
            out.send(client, Submitted(submit.number, context, state.round))
            return
        waiting = state.submissions.get(client)
        last = waiting[-1].submit.number if waiting else done
        if submit.number <= last:
            out.send(client, Heard(0, {}))  # it is not forgotten
            return
        if submit.after > last:
            return  # the one before it was lost, and is repeated before this one
        if not submit.after and waiting:
            waiting.clear()  # others have ordered what still waits here
        asks: Vector = {}
        for topic, origin, n in entries(submit.context):
            if topic not in broker.topics and position(state.delivered, topic, origin) < n:
                asks.setdefault(topic, {})[origin] = n
        held = Held(submit, submit.context, submit.round, asks)
        if not waiting and self._satisfied(held):
            state.submissions.pop(client, None)
            self._order(client, held, out)
            return
        if sum(map(len, state.submissions.values())) >= broker.options.submitted_count_max:
            return
        held.need = copied(held.need)
        state.submissions.setdefault(client, []).append(held)
        self._ask(held, out)

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
        for held in self._all_held():
            asked = held.asks.get(topic, {}).get(origin, 0)
            if 0 < asked <= answer.position:
                join(held.need, answer.delivered)
                held.round = max(held.round, answer.round)
                del held.asks[topic][origin]
                if not held.asks[topic]:
                    del held.asks[topic]
        self.settle(out)

    def _all_held(self) -> Iterator[Held]:
        return chain.from_iterable(self._broker.state.submissions.values())

    def _satisfied(self, held: Held) -> bool:
        broker = self._broker
        return not held.asks and all(
            broker.satisfied(topic, origin, n)
            for topic, row in held.need.items()
            if topic in broker.topics
            for origin, n in row.items()
        )

    def settle(self, out: Outgoing) -> None:
        """Order the publications whose context is known, those of a client in their order."""
        submissions = self._broker.state.submissions
        for client in list(submissions):
            waiting = submissions.get(client, [])
            while waiting and self._satisfied(waiting[0]):
                self._order(client, waiting.pop(0), out)
            if not waiting:
                submissions.pop(client, None)

    def _order(self, client: str, held: Held, out: Outgoing) -> None:
        """Order an event, unless another broker did and died before it could say so."""
        broker, state = self._broker, self._broker.state
        for topic, row in held.need.items():
            if topic not in broker.topics:
                broker.know(topic, row)
        state.round = max(state.round, held.round)
        submit = held.submit
        event = submit.event
        state.submitted[client] = submit.number
        if (event.source, event.seq) in state.heard:
            context = restricted(state.delivered, submit.topics)
        else:
            at = broker.order(event, submit.topics, out).at
            context = {topic: {broker.name: n} for topic, n in at.items()}
        out.send(client, Submitted(submit.number, context, state.round))
