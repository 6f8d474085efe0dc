"""The client: publishes and subscribes through brokers, and moves between them.

A client is attached to a broker that serves all of its topics, its home, or (in the profile
`local`) to several that serve them together. It moves when it is told to, when its topics change,
and when a home is silent or says that it is held for dead. Every move is a new session: the client
says what it has, and takes what it missed. Nothing is passed over in silence: where something that
it missed is no longer kept, the application gets a delivery without events that names the topics.

What it delivers, publishes and joins is durable first, so a client that comes back from a crash
goes on where it was. How deliveries are ordered is in `inbox`, publications are in `outbox`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from concordant.causal.inbox import Inbox, Waiting, needs_of
from concordant.causal.messages import (
    Ack,
    Attached,
    AttachHome,
    Carried,
    Detached,
    DetachHome,
    Excluded,
    Heard,
    Known,
    Submitted,
)
from concordant.causal.options import ClientOptions, Profile
from concordant.causal.outgoing import Outgoing
from concordant.causal.placement import Members
from concordant.causal.records import (
    Accepted,
    Caught,
    Gap,
    Joined,
    Learnt,
    Moved,
    Passed,
    Published,
    Released,
    Retired,
)
from concordant.causal.recovery import recovered
from concordant.causal.requests import Address, Migrate
from concordant.causal.rules import Rules, plain, targets_of
from concordant.causal.state import SubscriberState
from concordant.causal.submitting import submissions
from concordant.causal.vector import copied, join
from concordant.errors import UsageError
from concordant.machine.effects import Delivery, Effect
from concordant.machine.holdback import Holdback
from concordant.machine.inputs import (
    Command,
    Input,
    Message,
    Received,
    Request,
    Started,
    TimerFired,
)
from concordant.machine.instant import Instant
from concordant.machine.requests import Publish, Retire, Subscribe, Unsubscribe
from concordant.machine.saved import Compact, saving

_TICK = "tick"


class Subscriber:
    """One client."""

    def __init__(
        self,
        name: str,
        *,
        members: Members,
        topics: Iterable[str] = (),
        publishes: Iterable[str] | None = (),
        prefers: Iterable[str] = (),
        informs: str = "",
        profile: Profile = "local",
        total: bool = False,
        options: ClientOptions | None = None,
    ) -> None:
        """`topics` are subscribed from the start, `publishes` may be published to (all topics if it
        is None); `prefers` names the brokers to be tried first, `informs` the client that publishes
        for the application that this one delivers to. `total`: all clients that want it deliver
        their common events in one order; then one broker has to serve all topics."""
        self.name = name
        self._options = options or ClientOptions()
        self._informs = informs
        self.total = total
        self._rules = Rules(
            name,
            members,
            publishes=publishes,
            prefers=prefers,
            several=profile == "local" and not total,
        )
        self._first_topics = tuple(dict.fromkeys(topics))
        self.state = SubscriberState(Inbox(Holdback(self._options.held_count_max)))
        self.forgotten_count = 0
        """Deliveries of earlier lives that are no longer in the log, because they were taken."""
        self._rules.homes(self._first_topics)

    # --- the door -----------------------------------------------------------------------------

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out = Outgoing(given.cause)
        if isinstance(given, Received):
            for message in given.messages:
                self._rules.check_message(given.source, message)
            for message in given.messages:
                self._take(now, given.source, message, out)
        elif isinstance(given, TimerFired):
            for _ in given.names:
                self._tick(now, out)
        elif isinstance(given, Command):
            self.check(given.requests)
            for request in given.requests:
                self._obey(now, request, out)
        elif isinstance(given, Started):
            self._start(now, given, out)
        return out.effects()

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def restore(self, data: bytes) -> None:
        self.state = msgspec.msgpack.decode(data, type=SubscriberState)

    @property
    def held_count(self) -> int:
        state = self.state
        waits, joins = bool(state.inbox.topics) and not state.attached, bool(state.inbox.joining)
        held = state.inbox.held_count + len(state.line.waiting)
        return held + len(state.outbox.waiting) + waits + joins

    def _take(self, now: Instant, source: str, message: Message, out: Outgoing) -> None:
        state = self.state
        if isinstance(message, Known):
            self._learn(message)
            return
        state.heard_at[source] = now
        if state.avoided:
            state.avoided.pop(source, None)
        match message:
            case Carried():
                self._carried(message, out)
            case Heard():
                if message.session == state.session and source in state.homes:
                    self._promise(message.rounds, out)
                    if self.total:
                        state.line.show(message.complete, message.had, message.repeated)
                        self._release(out)
            case Submitted():
                self._accepted(now, source, message, out)
            case Attached():
                if message.session == state.session and source in state.homes:
                    self._attached(source, message, out)
            case Detached():
                if state.leaving.get(source, 0) <= message.session:
                    state.leaving.pop(source, None)
                if message.session == state.session and source in state.homes:
                    self._move(now, tuple(state.inbox.topics), tuple(state.homes), out)
            case Excluded():
                self._avoid(now, source, out)

    # --- requests -----------------------------------------------------------------------------

    def check(self, requests: tuple[Request, ...]) -> None:
        """Refuse a whole batch before anything has changed."""
        count = self._rules.check(requests, self.state.inbox.topics, self.state.outbox)
        if count > self.room:
            raise UsageError(
                f"{self.name} has {len(self.state.outbox.waiting):,} publications that are not "
                "ordered yet, and no room for more",
                hint="publish more slowly, or raise outbox_count_max",
            )

    def seq_of(self, source: str) -> int:
        """The number of the last event of a source."""
        return self.state.outbox.source(source).seq

    def time_of(self, source: str) -> Instant:
        """What a source publishes next has to be younger than this."""
        return self.state.outbox.source(source).clock.last

    @property
    def known(self) -> Known:
        """What its application has seen by it."""
        return Known(copied(self.state.context), self.state.inbox.newest)

    @property
    def room(self) -> int:
        """So many events more can be published now."""
        return self._options.outbox_count_max - len(self.state.outbox.waiting)

    def _homes_for(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        return self._rules.homes(topics, self.state.avoided)

    def _obey(self, now: Instant, request: Request, out: Outgoing) -> None:
        state = self.state
        held = tuple(state.inbox.topics)
        if isinstance(request, Publish | Address):
            targets, wanted = targets_of(request), plain(request)
            event = state.outbox.new_event(now, wanted.source or self.name, wanted)
            if state.unwritten:  # a later life must not publish it as if it had not been told
                out.persist(Learnt(state.unwritten, state.inbox.newest))
                state.unwritten = {}
            out.persist(Published(event, targets))
            out.publish(event)
            state.outbox.add(event, targets)
            self._submit(now, out)
        elif isinstance(request, Subscribe):
            new = tuple(one for one in dict.fromkeys(request.topics) if one not in held)
            if new:
                topics = (*held, *new)
                kept = tuple(state.homes)
                enough = self._rules.suffice(kept, topics)
                self._move(now, topics, kept if enough else self._homes_for(topics), out)
        elif isinstance(request, Unsubscribe):
            gone = tuple(one for one in dict.fromkeys(request.topics) if one in held)
            if gone:
                topics = tuple(one for one in held if one not in gone)
                self._move(now, topics, self._homes_for(topics) if topics else (), out)
                out.note("unsubscribe", gone)
        elif isinstance(request, Known):
            self._learn(request)
        elif isinstance(request, Compact):
            self._compact(request, out)
        elif isinstance(request, Retire):
            if state.outbox.retire(request.source):
                out.persist(Retired(request.source))
        elif isinstance(request, Migrate):
            serves = self._rules.serves
            homes = [one for one in request.homes if any(topic in serves[one] for topic in held)]
            self._move(now, held, tuple(homes), out)

    def _compact(self, request: Compact, out: Outgoing) -> None:
        """Let a snapshot take the place of the log, unless a delivery is still on its way."""
        position = self.state.position
        if request.taken_count < 0:
            request = Compact(position)
        if request.taken_count + len(request.untaken) == position:
            out.replace(saving(self.state.crashed(), request, out.cause))

    # --- sessions -----------------------------------------------------------------------------

    def _move(
        self, now: Instant, topics: tuple[str, ...], homes: tuple[str, ...], out: Outgoing
    ) -> None:
        """A new session with these topics at these brokers."""
        state = self.state
        for home in state.homes:
            if home not in homes:
                state.leaving[home] = state.session
        for home in homes:
            state.leaving.pop(home, None)
        joined_at = state.inbox.to_join(topics)
        state.session += 1
        state.move(topics, joined_at, total=self.total)
        state.homes = dict.fromkeys(homes)
        state.attached, state.promised = False, {}
        out.persist(Moved(state.session, topics, joined_at))
        state.heard_at.update(dict.fromkeys(homes, now))
        self._attach(now, out)

    def _attach(self, now: Instant, out: Outgoing) -> None:
        state, inbox = self.state, self.state.inbox
        state.asked_at = now
        ask = AttachHome(
            state.session,
            tuple(inbox.topics),
            copied(inbox.last),
            tuple(inbox.fresh),
            len(state.homes) == 1,
            self.total,
        )
        for home, answer in state.homes.items():
            if answer is None:
                out.send(home, ask)

    def _attached(self, home: str, answer: Attached, out: Outgoing) -> None:
        """Only the first answer counts: a later one has a higher floor, and would lose events."""
        state = self.state
        if state.homes[home] is None:
            state.homes[home] = answer
        answers = [one for one in state.homes.values() if one is not None]
        if state.attached or len(answers) < len(state.homes):
            return
        state.attached = True
        missed: list[Waiting] = [
            needs_of(one, self._rules.brokers) for answer in answers for one in answer.catchup
        ]
        state.begin([one.floor for one in answers], missed)
        if self._informs and state.context:  # an earlier life of it may have known more
            out.send(self._informs, self.known)
        gap = tuple(sorted({topic for one in answers for topic in one.gap}))
        if gap:
            self._tell_gap(Gap(gap), out)
        self._drain(out)
        self._leave(out)

    def _leave(self, out: Outgoing) -> None:
        """Not before the new homes have answered: until then the old ones keep what is missing."""
        settled = not self.total or self.state.line.reached(self.state.inbox.topics)
        if (self.state.attached and settled) or not self.state.homes:
            for broker, session in self.state.leaving.items():
                out.send(broker, DetachHome(session))

    def _tell_gap(self, gap: Gap, out: Outgoing) -> None:
        out.persist(gap)
        self.state.position += 1
        out.deliver(gap.delivery(self.state.position))

    def _avoid(self, now: Instant, broker: str, out: Outgoing) -> None:
        """This broker is dead or silent: try another."""
        state = self.state
        state.avoided[broker] = True
        state.leaving.pop(broker, None)
        if broker in state.homes:
            topics = tuple(state.inbox.topics)
            self._move(now, topics, self._homes_for(topics), out)
            state.leaving.pop(broker, None)
        if state.outbox.target == broker:
            state.outbox.turn(now)
            self._submit(now, out)

    def _tick(self, now: Instant, out: Outgoing) -> None:
        state, options = self.state, self._options
        out.wake(_TICK, now + options.acknowledge_us)
        state.acknowledged = False
        for home in list(state.homes):
            if home in state.homes and now - state.heard_at[home] > options.silence_us:
                self._avoid(now, home, out)
        if state.attached:
            self._acknowledge(out)
        if now - state.asked_at >= options.repeat_us:
            state.asked_at = now
            if not state.attached:
                self._attach(now, out)
            self._leave(out)
        outbox = state.outbox
        if outbox.flying_count:
            heard = max(outbox.began_at, state.heard_at.get(outbox.target, 0))
            if now - heard > options.silence_us:
                self._avoid(now, outbox.target, out)
            elif now - outbox.moved_at >= options.repeat_us:
                outbox.turn(now, outbox.target)
                self._submit(now, out)

    # --- deliveries ---------------------------------------------------------------------------

    def _carried(self, carried: Carried, out: Outgoing) -> None:
        state = self.state
        if carried.session != state.session or not state.attached:
            return
        one = needs_of(carried, self._rules.brokers)
        if state.inbox.direct(one):
            self._pass(carried, out)
            if self.total:
                self._release(out)
            return
        state.inbox.put(one)
        self._drain(out)
        if state.inbox.held_count and not state.acknowledged:
            state.acknowledged = True
            self._acknowledge(out)

    def _drain(self, out: Outgoing) -> None:
        inbox = self.state.inbox
        for carried in inbox.ready():
            self._pass(carried, out)
        if inbox.caught_up:
            self.state.finish(total=self.total)
            out.persist(Caught(copied(inbox.last)))
        if inbox.joining:
            self._promise({}, out)
        if self.total:
            self._release(out)

    def _pass(self, carried: Carried, out: Outgoing) -> None:
        state, inbox = self.state, self.state.inbox
        silent = inbox.silent(carried, again=self.total)
        out.persist(Passed(carried, silent))
        shown = self.state.inbox.shown(carried)
        inbox.passed(carried, silent=silent)
        if not silent:
            context = carried.context
            state.learn(context, 0)
            if self.total:
                state.line.put(carried)
            else:
                state.position += 1
                out.deliver(Delivery((shown,), state.position))
            if self._informs:
                # In the same step, so that it is there before the application can answer.
                out.send(self._informs, Known(context, inbox.newest))

    def _release(self, out: Outgoing) -> None:
        """Deliver, in one order for all, what nothing can come before."""
        state, line = self.state, self.state.line
        line.look(state.inbox.last)
        frontier = line.frontier(state.inbox.topics)
        if not line.due(frontier, state.inbox.last):
            return
        released = Released(frontier, line.repeated)
        out.persist(released)
        for carried in line.release(released, state.inbox.topics):
            state.position += 1
            out.deliver(Delivery((self.state.inbox.shown(carried),), state.position))

    def _learn(self, known: Known) -> None:
        self.state.learn(known.context, known.round)
        join(self.state.unwritten, known.context)

    def _promise(self, rounds: Mapping[str, int], out: Outgoing) -> None:
        """A joined topic is promised when nothing can come any longer that has to be skipped."""
        state, inbox = self.state, self.state.inbox
        state.promised.update(rounds)
        if not inbox.joining or inbox.fresh or not state.attached:
            return
        joined = tuple(
            topic
            for topic in inbox.joining
            if state.promised.get(topic, 0) >= inbox.joined_at[topic]
        )
        for topic in joined:
            del inbox.joining[topic]
        if joined:
            out.persist(Joined(joined))
            out.note("subscribe", joined)

    def _acknowledge(self, out: Outgoing) -> None:
        state, inbox = self.state, self.state.inbox
        newest = inbox.newest if inbox.joining else 0
        waiting = inbox.waiting_ids() if inbox.held_count else ()
        last, floor = copied(inbox.last), copied(inbox.floor)
        settled = state.line.settled(last) if self.total else None
        ack = Ack(state.session, last, floor, waiting, newest, bool(inbox.joining), settled)
        for home in state.homes:
            out.send(home, ack)

    # --- publications -------------------------------------------------------------------------

    def _submit(self, now: Instant, out: Outgoing) -> None:
        """Send what may be under way, and is not yet."""
        if self.state.outbox.sent < self.state.outbox.count:
            count_max = self._options.flight_count_max
            for submit in submissions(self.state, self._rules, now, count_max=count_max):
                out.send(self.state.outbox.target, submit)

    def _accepted(self, now: Instant, broker: str, answer: Submitted, out: Outgoing) -> None:
        outbox = self.state.outbox
        # What an earlier target ordered, the present one was asked to order as well, and what is
        # under way to it follows its own order.
        if answer.number not in outbox.waiting or broker != outbox.target:
            return
        record = Accepted(answer.number, broker, answer.context, answer.round)
        out.persist(record)
        self.state.accept(record.number, record.context, record.round)
        outbox.moved_at = now
        self._submit(now, out)

    # --- a life after a crash -----------------------------------------------------------------

    def _start(self, now: Instant, given: Started, out: Outgoing) -> None:
        self.state, delivered, self.forgotten_count = recovered(
            self.state, given.records, total=self.total
        )
        state, first = self.state, self.forgotten_count
        state.position = first + len(delivered)
        # The last life may have ended between the disk and the history: say everything again.
        for record in given.records:
            if isinstance(record, Published):
                out.publish(record.event)
        if held := tuple(one for one in state.inbox.topics if one not in state.inbox.joining):
            out.note("subscribe", held)
        if state.inbox.left:
            out.note("unsubscribe", tuple(state.inbox.left))
        for number, one in enumerate(delivered, first + 1):
            if number > given.taken_count:
                out.deliver(self._delivery(one, number))
        topics = tuple(state.inbox.topics) if state.session else self._first_topics
        if topics:
            self._move(now, topics, self._homes_for(topics), out)
        state.outbox.turn(now)
        self._submit(now, out)
        out.wake(_TICK, now + self._options.acknowledge_us)

    def _delivery(self, one: Carried | Gap | Delivery, position: int) -> Delivery:
        if isinstance(one, Delivery):
            return one
        if isinstance(one, Gap):
            return one.delivery(position)
        return Delivery((self.state.inbox.shown(one),), position)
