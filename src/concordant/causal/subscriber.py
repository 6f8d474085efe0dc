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
    Submit,
    Submitted,
)
from concordant.causal.options import ClientOptions, Profile
from concordant.causal.outbox import Outbox
from concordant.causal.outgoing import Outgoing
from concordant.causal.placement import Members
from concordant.causal.records import Accepted, Caught, Gap, Joined, Moved, Passed, Published
from concordant.causal.requests import Address, Migrate
from concordant.causal.rules import Rules, plain, targets_of
from concordant.causal.vector import Vector, copied, join, lift
from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Delivery, Effect
from concordant.machine.holdback import Holdback
from concordant.machine.inputs import (
    Command,
    Input,
    Message,
    Received,
    Record,
    Request,
    Started,
    TimerFired,
)
from concordant.machine.instant import Instant
from concordant.machine.requests import Publish, Subscribe, Unsubscribe
from concordant.model.event import Event

_TICK = "tick"

GAP = "gap"
"""The name of the subscription of a delivery that says that something is missing."""


class SubscriberState(msgspec.Struct):
    """All that a client remembers."""

    inbox: Inbox
    avoided: dict[str, bool] = {}
    """Brokers that were silent or are held for dead: only if there is no other."""
    outbox: Outbox = msgspec.field(default_factory=Outbox)
    context: Vector = {}
    """Everything that was delivered or published, of topics that were left as well."""
    position: int = 0
    session: int = 0
    homes: dict[str, Attached | None] = {}
    """What each home has answered to the attach of this session."""
    attached: bool = False
    heard_at: dict[str, Instant] = {}
    asked_at: Instant = 0
    leaving: dict[str, int] = {}
    """Brokers that still have to be told that a session is over."""
    promised: dict[str, int] = {}
    """By topic: every event ordered from now on has a greater round."""
    acknowledged: bool = False
    """An event that waits was told to the homes since the last tick."""


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
        options: ClientOptions | None = None,
    ) -> None:
        """`topics` are subscribed from the start, `publishes` may be published to (all topics if it
        is None); `prefers` names the brokers to be tried first, `informs` the client that publishes
        for the application that this one delivers to."""
        self.name = name
        self._options = options or ClientOptions()
        self._informs = informs
        self._rules = Rules(
            name, members, publishes=publishes, prefers=prefers, several=profile == "local"
        )
        self._first_topics = tuple(dict.fromkeys(topics))
        self.state = SubscriberState(Inbox(Holdback(self._options.held_count_max)))
        self._rules.homes(self._first_topics)

    # --- the door -----------------------------------------------------------------------------

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out = Outgoing(given.cause)
        if isinstance(given, Received):
            for message in given.messages:
                self._check_message(given.source, message)
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
        waits = bool(state.inbox.topics) and not state.attached
        joins = bool(state.inbox.joining)
        return state.inbox.held_count + len(state.outbox.waiting) + waits + joins

    def _check_message(self, source: str, message: Message) -> None:
        if type(message) is Known:
            return
        if source not in self._rules.serves:
            raise PeerError(f"{source} is no broker and sent a {type(message).__name__}")
        if type(message) not in _KNOWN:
            raise PeerError(f"a causal client was sent a {type(message).__name__}")
        carried = message.catchup if isinstance(message, Attached) else (message,)
        for one in carried:
            if isinstance(one, Carried):
                needs_of(one, self._rules.brokers)

    def _take(self, now: Instant, source: str, message: Message, out: Outgoing) -> None:
        state = self.state
        if isinstance(message, Known):
            join(state.context, message.context)
            state.inbox.newest = max(state.inbox.newest, message.round)
            return
        state.heard_at[source] = now
        state.avoided.pop(source, None)
        match message:
            case Carried():
                self._carried(message, out)
            case Heard():
                if message.session == state.session and source in state.homes:
                    self._promise(message.rounds, out)
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
    def room(self) -> int:
        """So many events more can be published now."""
        return self._options.outbox_count_max - len(self.state.outbox.waiting)

    def _homes_for(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        return self._rules.homes(topics, self.state.avoided)

    def _obey(self, now: Instant, request: Request, out: Outgoing) -> None:
        state = self.state
        held = tuple(state.inbox.topics)
        if isinstance(request, Publish | Address):
            targets = targets_of(request)
            wanted = plain(request)
            event = state.outbox.new_event(now, wanted.source or self.name, wanted)
            out.persist(Published(event, targets))
            out.note("publish", targets, (event,))
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
        elif isinstance(request, Migrate):
            serves = self._rules.serves
            homes = [one for one in request.homes if any(topic in serves[one] for topic in held)]
            self._move(now, held, tuple(homes), out)

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
        state.inbox.move(topics, joined_at)
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
        state.inbox.begin([one.floor for one in answers], missed)
        gap = tuple(sorted({topic for one in answers for topic in one.gap}))
        if gap:
            self._tell_gap(Gap(gap), out)
        self._drain(out)
        self._leave(out)

    def _leave(self, out: Outgoing) -> None:
        """Not before the new homes have answered: until then the old ones keep what is missing."""
        if self.state.attached or not self.state.homes:
            for broker, session in self.state.leaving.items():
                out.send(broker, DetachHome(session))

    def _tell_gap(self, gap: Gap, out: Outgoing) -> None:
        out.persist(gap)
        self.state.position += 1
        out.deliver(_delivery_of_gap(gap, self.state.position))

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
            state.outbox.target = ""
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
            self._attach(now, out)
            self._leave(out)
        outbox = state.outbox
        if outbox.waiting and outbox.target:
            heard = max(outbox.sent_first_at, state.heard_at.get(outbox.target, 0))
            if now - heard > options.silence_us:
                self._avoid(now, outbox.target, out)
            elif now - outbox.sent_at >= options.repeat_us:
                self._submit(now, out, again=True)

    # --- deliveries ---------------------------------------------------------------------------

    def _carried(self, carried: Carried, out: Outgoing) -> None:
        state = self.state
        if carried.session != state.session or not state.attached:
            return
        state.inbox.put(needs_of(carried, self._rules.brokers))
        self._drain(out)
        if state.inbox.held_count and not state.acknowledged:
            state.acknowledged = True
            self._acknowledge(out)

    def _drain(self, out: Outgoing) -> None:
        inbox, before = self.state.inbox, self.state.position
        for carried in inbox.ready():
            silent = inbox.silent(carried)
            out.persist(Passed(carried, silent))
            shown = self._shown(carried)
            inbox.passed(carried, silent=silent)
            if not silent:
                self._know(carried)
                self.state.position += 1
                out.deliver(Delivery((shown,), self.state.position))
        if self._informs and self.state.position > before:
            # In the same step, so that it is there before the application can answer.
            out.send(self._informs, Known(copied(self.state.context), inbox.newest))
        if inbox.caught_up:
            inbox.finish()
            out.persist(Caught(copied(inbox.last)))
        self._promise({}, out)

    def _shown(self, carried: Carried) -> Event:
        """The event under a topic that is held: its own, or the first that it is addressed to."""
        held = [
            topic
            for topic in sorted(carried.at)
            if topic in self.state.inbox.topics and topic not in self.state.inbox.joining
        ]
        if carried.event.topic in held or not held:
            return carried.event
        return msgspec.structs.replace(carried.event, topic=held[0])

    def _know(self, carried: Carried) -> None:
        for topic, n in carried.at.items():
            lift(self.state.context, topic, carried.origin, n)

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
        if joined:
            for topic in joined:
                del inbox.joining[topic]
            out.persist(Joined(joined))
            out.note("subscribe", joined)

    def _acknowledge(self, out: Outgoing) -> None:
        state, inbox = self.state, self.state.inbox
        last = copied(inbox.last)
        ack = Ack(state.session, last, inbox.have(), inbox.waiting_ids())
        for home in state.homes:
            out.send(home, ack)

    # --- publications -------------------------------------------------------------------------

    def _submit(self, now: Instant, out: Outgoing, *, again: bool = False) -> None:
        """Send the oldest publication; one at a time, so that each follows the one before."""
        state = self.state
        brokers = sorted(
            self._rules.order, key=lambda one: (one in state.avoided, one not in state.homes)
        )
        first = state.outbox.submit(now, brokers, self._rules.serves, again=again)
        if first is not None:
            out.send(state.outbox.target, Submit(*first, copied(state.context), state.inbox.newest))

    def _accepted(self, now: Instant, broker: str, answer: Submitted, out: Outgoing) -> None:
        if answer.number not in self.state.outbox.waiting:
            return
        record = Accepted(answer.number, broker, answer.context, answer.round)
        out.persist(record)
        self._settle(record)
        self._submit(now, out)

    def _settle(self, record: Accepted) -> None:
        state = self.state
        state.outbox.settle(record.number)
        state.inbox.newest = max(state.inbox.newest, record.round)
        join(state.context, record.context)

    # --- a life after a crash -----------------------------------------------------------------

    def _start(self, now: Instant, given: Started, out: Outgoing) -> None:
        state = self.state
        delivered = self._recover(given.records)
        state.position = min(given.taken_count, len(delivered))
        # The last life may have ended between the disk and the history: say everything again.
        published = tuple(one.event for one in given.records if isinstance(one, Published))
        if published:
            out.note("publish", (), published)
        held = tuple(one for one in state.inbox.topics if one not in state.inbox.joining)
        if held:
            out.note("subscribe", held)
        for one in delivered[state.position :]:
            state.position += 1
            if isinstance(one, Gap):
                out.deliver(_delivery_of_gap(one, state.position))
            else:
                out.deliver(Delivery((self._shown(one),), state.position))
        moved = any(isinstance(one, Moved) for one in given.records)
        topics = tuple(state.inbox.topics) if moved else self._first_topics
        if topics:
            self._move(now, topics, self._homes_for(topics), out)
        self._submit(now, out)
        out.wake(_TICK, now + self._options.acknowledge_us)

    def _recover(self, records: Iterable[Record]) -> list[Carried | Gap]:
        """Rebuild the state; everything that was ever delivered."""
        state, inbox = self.state, self.state.inbox
        delivered: list[Carried | Gap] = []
        for record in records:
            match record:
                case Published():
                    state.outbox.add(record.event, record.topics)
                case Accepted():
                    self._settle(record)
                case Moved():
                    state.session = record.session
                    inbox.move(record.topics, record.joined_at)
                case Passed():
                    inbox.passed(record.carried, silent=record.silent)
                    if not record.silent:
                        self._know(record.carried)
                        delivered.append(record.carried)
                case Caught():
                    inbox.floor = copied(record.last)
                    inbox.finish()
                case Joined():
                    for topic in record.topics:
                        inbox.joining.pop(topic, None)
                case Gap():
                    delivered.append(record)
        return delivered


def _delivery_of_gap(gap: Gap, position: int) -> Delivery:
    return Delivery((), position, False, GAP, key=gap.topics)


_KNOWN = frozenset({Carried, Heard, Submitted, Attached, Detached, Excluded})
