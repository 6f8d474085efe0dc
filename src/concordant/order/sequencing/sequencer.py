"""The sequencer of a topic as a machine: what it takes is durable, then it acts.

Every content that arrives in turn is written to the log before anything that follows from it
leaves; the state is what the log makes of it (`signing`). So a sequencer that crashed goes on as if
nothing had happened, and repeats at most what was said before. It disseminates its events itself,
in the order of their numbers, keeps them for those who missed some, and marks its progress so that
a lost tail is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Disseminate, Effect, Persist, Send, SetTimer
from concordant.machine.inputs import (
    Command,
    Input,
    Message,
    Received,
    Request,
    Started,
    TimerFired,
)
from concordant.machine.instant import Duration, Instant
from concordant.machine.saved import Compact
from concordant.order.sequencing.channel import ACKNOWLEDGE, REPEAT, Channels
from concordant.order.sequencing.lease import Tenants
from concordant.order.sequencing.messages import (
    COORDINATOR,
    Condensed,
    Content,
    Forget,
    Handled,
    Leave,
    Parcel,
    Receipt,
    Renew,
    Renewed,
    SequencingOptions,
    Signed,
    Survey,
)
from concordant.order.sequencing.signing import Sent, Signer
from concordant.order.sequencing.stamping import Stamper
from concordant.order.streams import Ask, Gone, Mark, Stream

_MARK = "mark"
_LEASE = "lease"


class _State(msgspec.Struct):
    signer: Signer | Stamper
    channels: Channels
    tenants: Tenants
    kept: list[Signed] = []
    """Own events in the order of their numbers, as far as they are kept."""
    first: int = 1
    """The number of the oldest kept event."""
    logged_count: int = 0
    mark_at: Instant = 0
    mark_wait_us: Duration = 0

    @property
    def last(self) -> int:
        return self.first + len(self.kept) - 1


class _Step:
    """What one input leads to, gathered."""

    __slots__ = ("records", "sends", "signed")

    def __init__(self) -> None:
        self.records: list[Handled] = []
        self.sends: dict[str, list[Message]] = {}
        self.signed: list[Signed] = []


class TopicSequencer:
    """Gives the events of one topic their places among all topics."""

    decides: frozenset[str] = frozenset()
    wakes: tuple[str, ...] = (ACKNOWLEDGE, REPEAT, _MARK)

    def __init__(
        self,
        topic: str,
        *,
        sequencers: Mapping[str, str],
        coordinator: str = COORDINATOR,
        subscriptions: Mapping[str, tuple[str, ...]] | None = None,
        stamped_with: Iterable[str] | None = None,
        options: SequencingOptions | None = None,
    ) -> None:
        """
        `sequencers` are the addresses of all topics' sequencers, in rank order, the lowest first;
        `subscriptions` are there from the start. With `stamped_with`, events are not signed up the
        forest but stamped in parallel, together with these topics.
        """
        self.topic = topic
        self._options = options or SequencingOptions()
        self._stream: Stream = (sequencers[topic], topic)
        signer: Signer | Stamper = Signer.of(
            topic,
            addresses=dict(sequencers),
            coordinator=coordinator,
            edge_on=self._options.edge_on,
            members={c: topics for c, topics in (subscriptions or {}).items() if topic in topics},
        )
        if stamped_with is not None:
            group = tuple(one for one in stamped_with if one != topic)
            signer = Stamper(topic, dict(sequencers), group)
        channels = Channels.of(self._options)
        self._state = _State(signer, channels, Tenants(self._options.lease_us))

    # --- the door -----------------------------------------------------------------------------

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out: list[Effect] = []
        if isinstance(given, Received):
            self._receive(now, given, out)
        elif isinstance(given, TimerFired):
            for name in given.names:
                self._wake(now, name, given.cause, out)
        elif isinstance(given, Command):
            self.vet(given.requests)
            self._condense(given.cause, out)
        elif isinstance(given, Started):
            self._start(now, given, out)
        return out

    def check(self, messages: tuple[Message, ...]) -> None:
        """Refuse what no correct machine sends here."""
        for message in messages:
            if isinstance(message, Parcel):
                self._state.signer.check(message.content)
            elif not isinstance(message, Receipt | Ask | Survey | Renew):
                raise PeerError(f"a sequencer was sent a {type(message).__name__}")

    def due(self, source: str) -> tuple[int, int]:
        """The life of a source, and the number of its parcel that is due."""
        return self._state.channels.due(source)

    def vet(self, requests: tuple[Request, ...]) -> None:
        """Refuse every request but to keep the log short."""
        if not all(isinstance(request, Compact) for request in requests):
            raise UsageError("a sequencer takes no requests", hint="send them to a client")

    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        state, source = self._state, given.source
        self.check(given.messages)
        step = _Step()
        for message in given.messages:
            if isinstance(message, Parcel):
                if message.life and not self._has_room(source):
                    continue  # not taken, so its client repeats it
                if message.life and self._options.lease_us:
                    state.tenants.hear(source, now)
                ready = state.channels.accept(source, message)
                state.channels.acknowledge_later(now, given.cause, out)
                if ready:
                    self._take(now, source, ready, step, given.cause, out)
            elif isinstance(message, Receipt):
                state.channels.settle(source, message)
            elif isinstance(message, Ask):
                self._answer(source, message, step)
            elif isinstance(message, Renew):
                if self._options.lease_us:
                    state.tenants.hear(source, now)
                answer = Renewed(self.topic, message.sent_at, state.signer.knows(source))
                step.sends.setdefault(source, []).append(answer)
            elif isinstance(message, Survey):
                step.sends.setdefault(source, []).append(state.signer.report())
        self._act(now, step, given.cause, out)

    def _has_room(self, client: str) -> bool:
        """Whether a request of a client can be taken; who has left makes room for who is new."""
        state, options = self._state, self._options
        if state.signer.request_count >= options.queue_count_max:
            return False
        return state.channels.has_room(client, options.client_count_max)

    def _take(
        self,
        now: Instant,
        source: str,
        ready: list[Content],
        step: _Step,
        cause: int,
        out: list[Effect],
    ) -> None:
        """What came in turn is to be made durable, and has its consequences."""
        state = self._state
        inbox = state.channels.inboxes[source]
        for n, content in enumerate(ready, inbox.next - len(ready)):
            step.records.append(Handled(source, inbox.life, n, content))
            if self._apply(source, content, step):
                state.channels.repeat_later(now, cause, out)
            if state.logged_count >= self._options.log_count_max:
                out.append(Persist(tuple(step.records), cause))
                step.records = []
                self._condense(cause, out)

    def _condense(self, cause: int, out: list[Effect]) -> None:
        """Let the state take the place of the log."""
        self._state.logged_count = 0
        out.append(Persist((Condensed(self.snapshot()),), cause, replaces=True))

    def _evict(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Forget those whose leases have ended; that, too, is durable first."""
        state, step = self._state, _Step()
        members = state.signer.members
        for client in state.tenants.gone(now, members):
            content = Forget(client, members[client])
            step.records.append(Handled("", 0, 0, content))
            self._apply("", content, step)
        self._act(now, step, cause, out)
        out.append(SetTimer(_LEASE, now + state.tenants.wait_us, cause))

    def _apply(self, source: str, content: Content, step: _Step) -> bool:
        """Let the signer take a content; True if it has something to send."""
        state = self._state
        state.logged_count += 1
        sent: Sent = []
        signed: list[Signed] = []
        state.signer.handle(source, content, sent, signed)
        leaves = isinstance(content, Leave) and not content.topics
        if leaves and source not in state.signer.created:  # and it publishes nothing either
            state.channels.end(source)
        for to, one in sent:
            step.sends.setdefault(to, []).append(state.channels.post(to, one))
        for new in signed:
            state.kept.append(new)
            if len(state.kept) > 2 * self._options.kept_count_max:  # in halves: each moves once
                del state.kept[: self._options.kept_count_max]
                state.first += self._options.kept_count_max
        step.signed += signed
        return bool(sent)

    def _act(self, now: Instant, step: _Step, cause: int, out: list[Effect]) -> None:
        """Carry out a step, what is durable first."""
        state = self._state
        if step.records:
            out.append(Persist(tuple(step.records), cause))
        out += [Send(to, tuple(messages), cause) for to, messages in step.sends.items()]
        if step.signed:
            out.append(Disseminate(self.topic, tuple(step.signed), cause))
            state.mark_wait_us = self._options.mark_us
            due = now + state.mark_wait_us
            if state.mark_at == 0 or state.mark_at > due:
                state.mark_at = due
                out.append(SetTimer(_MARK, due, cause))

    def _answer(self, source: str, ask: Ask, step: _Step) -> None:
        state = self._state
        start = max(ask.first, state.first)
        end = min(ask.last, state.last, start + self._options.answer_count_max - 1)
        answer: list[Message] = []
        if ask.first < state.first:
            answer.append(Gone(self._stream, state.first))
        answer += state.kept[start - state.first : max(start, end + 1) - state.first]
        if answer:
            step.sends.setdefault(source, []).extend(answer)

    # --- timers -------------------------------------------------------------------------------

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        state = self._state
        state.channels.wake(now, name, cause, out)
        if name == _LEASE:
            self._evict(now, cause, out)
        elif name == _MARK and state.last:
            out.append(Disseminate(self.topic, (Mark(self._stream, state.last),), cause))
            wait_us = max(2 * state.mark_wait_us, self._options.mark_us)
            state.mark_wait_us = min(wait_us, self._options.mark_us_max)
            state.mark_at = now + state.mark_wait_us
            out.append(SetTimer(_MARK, state.mark_at, cause))

    # --- a life after a crash -----------------------------------------------------------------

    def _start(self, now: Instant, given: Started, out: list[Effect]) -> None:
        step = _Step()
        if self._options.lease_us:
            out.append(SetTimer(_LEASE, now + self._state.tenants.wait_us, given.cause))
        for to, content in self._state.signer.grow():
            step.sends.setdefault(to, []).append(self._state.channels.post(to, content))
        if not given.records:
            self._act(now, step, given.cause, out)
            if step.sends:
                self._state.channels.repeat_later(now, given.cause, out)
            return
        for record in given.records:
            if isinstance(record, Condensed):
                self.restore(record.state)
            elif isinstance(record, Handled):
                if record.n:
                    self._state.channels.replay(record.source, record.life, record.n)
                self._apply(record.source, record.content, step)
        # Whatever of it did not arrive is repeated, and what was missed is asked for.
        state = self._state
        state.channels.begin_again(now, given.cause, out)
        state.tenants.heard = {}
        if state.last:
            state.mark_wait_us = self._options.mark_us
            state.mark_at = now
            out.append(SetTimer(_MARK, now, given.cause))

    @property
    def held_count(self) -> int:
        return self._state.signer.held_count + self._state.channels.waiting_count

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=_State)
