"""Clients of the topic sequencers: publisher, subscriber, or both.

A publisher hands each event to the sequencer of its topic, which disseminates it when it is signed.
A subscriber merges what it gets (`subscriber`). A topic that is subscribed at run time is entered
at the sequencers of all its topics; when each of them has answered, so that from now on everything
is ordered with it, the topic's own sequencer says where it begins. One such change is under way at
a time. After a crash a client has a new life: it repeats its requests under the new number, and
what belongs to an older one is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from concordant.errors import UsageError
from concordant.machine.effects import Effect, Note, Persist, Send, SetTimer
from concordant.machine.inputs import Message, Received, Record, Request
from concordant.machine.instant import Instant
from concordant.machine.requests import Publish, Subscribe
from concordant.model.event import Event
from concordant.order.client import (
    Client,
    Delivered,
    Joined,
    Left,
    Published,
    foreign,
)
from concordant.order.sequencing.channel import Channels
from concordant.order.sequencing.lease import Tenancy
from concordant.order.sequencing.messages import (
    Asked,
    Begin,
    Begun,
    Born,
    Confirmed,
    Content,
    Created,
    Enter,
    Entered,
    Leave,
    Parcel,
    Passed,
    Receipt,
    Renew,
    Renewed,
    SequencingOptions,
    Signed,
)
from concordant.order.sequencing.overlap import Version
from concordant.order.sequencing.publisher import Pipeline
from concordant.order.sequencing.state import Joining, SequencingState
from concordant.order.sequencing.subscriber import Merge, Ready
from concordant.order.streams import Ask, Gone, Mark, Stream

_ASK = "ask"
_EXPIRE = "expire"
_RENEW = "renew"
SEND = "send"
"""The timer that is due at once: events are sent when nothing more is published at this instant."""

_KNOWN = frozenset({Parcel, Receipt, Signed, Mark, Gone, Renewed})
_CONTENTS = frozenset({Created, Entered, Begun})


class SequencingClient(Client):
    """A client with one order across topics."""

    compacts = True
    _state: SequencingState
    _options: SequencingOptions

    def __init__(
        self,
        name: str,
        *,
        sequencers: Mapping[str, str],
        options: SequencingOptions | None = None,
        **others: Any,
    ) -> None:
        """`sequencers` are the addresses of all topics' sequencers."""
        self._sequencers = sequencers
        super().__init__(name, options=options or SequencingOptions(), **others)

    def _new_state(self, topics: dict[str, bool]) -> Any:
        options = self._options
        merge = Merge(options.held_count_max, options.gap_count_max if options.tag else 0)
        for topic in topics:
            merge.hold(topic, 0)
        return SequencingState(
            topics,
            pipeline=Pipeline(options.edge_on == 1),
            merge=merge,
            tenancy=Tenancy(options.lease_us),
            channels=Channels.of(options),
            registered=dict(topics),
        )

    def _check(self, requests: tuple[Request, ...]) -> None:
        for request in requests:
            topics: tuple[str, ...] = ()
            if isinstance(request, Publish) and self._publishes is not None:
                topics = (request.topic,)
            elif isinstance(request, Subscribe):
                topics = request.topics
            for topic in topics:
                if topic not in self._sequencers:
                    raise UsageError(
                        f"the topic {topic!r} has no sequencer that could order it with others",
                        hint=f"the topics that have one: {_some(self._sequencers) or 'none'}",
                    )
        super()._check(requests)

    # --- publisher ----------------------------------------------------------------------------

    @property
    def room(self) -> int:
        return self._options.outbox_count_max - self._state.pipeline.count

    def _check_room(self, count: int) -> None:
        if count > self.room:
            raise UsageError(
                f"{self.name} has {self._state.pipeline.count:,} events on their way to be signed, "
                "and no room for more",
                hint="publish more slowly, or raise outbox_count_max",
            )

    def _spread(self, now: Instant, events: list[Event], cause: int, out: list[Effect]) -> None:
        self._add(events)
        if not self._state.sending:  # what is published together then travels together
            self._state.sending = True
            out.append(SetTimer(SEND, now, cause))

    def _add(self, events: list[Event]) -> None:
        # Who publishes to every topic also has some that nobody orders: they end here.
        self._state.pipeline.add([one for one in events if one.topic in self._sequencers])

    def _send_events(self, now: Instant, cause: int, out: list[Effect]) -> None:
        by_topic: dict[str, list[Content]] = {}
        for run in self._state.pipeline.sendable():
            by_topic.setdefault(run.events[0].topic, []).append(run)
        for topic, contents in by_topic.items():
            self._post(now, topic, contents, cause, out)

    def _post(
        self, now: Instant, topic: str, contents: Sequence[Content], cause: int, out: list[Effect]
    ) -> None:
        state, to = self._state, self._sequencers[topic]
        parcels = []
        for content in contents:
            parcels.append(state.channels.post(to, content))
            state.channels.repeat_later(now, cause, out)
        out.append(Send(to, tuple(parcels), cause))

    # --- messages -----------------------------------------------------------------------------

    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        state, cause = self._state, given.cause
        self._check_kinds(given.messages)
        ready: list[Ready] = []
        for message in given.messages:
            if type(message) is Signed:
                if self._options.lease_us and not state.tenancy.stands(now, state.topics):
                    state.merge.mark(message.event.topic, message.n)  # to be asked for later
                else:
                    ready += state.merge.offer(message, now)
            elif isinstance(message, Mark):
                state.merge.mark(message.stream[1], message.n)
            elif isinstance(message, Receipt):
                state.channels.settle(given.source, message)
            else:
                self._deliver_ready(ready, cause, out)  # on the disk, too, things have their order
                ready = []
                self._hear(now, given.source, message, cause, out)
            if state.merge.ahead:
                if self._options.tag:
                    self._deliver_ready(ready, cause, out)
                    ready = []
                self._watch(now, cause, out)
        self._deliver_ready(ready, cause, out)

    def _hear(
        self, now: Instant, source: str, message: Message, cause: int, out: list[Effect]
    ) -> None:
        state = self._state
        if isinstance(message, Gone):
            self._skip(message, cause, out)
        elif isinstance(message, Renewed):
            self._renewed(now, message, cause, out)
        elif isinstance(message, Parcel):
            if message.life != state.life:  # for an earlier life, which no longer wants it
                out.append(Send(source, (Receipt(message.life, message.n),), cause))
                return
            contents = state.channels.accept(source, message)
            state.channels.acknowledge_later(now, cause, out)
            for content in contents:
                self._take(now, content, cause, out)

    def _check_kinds(self, messages: tuple[Message, ...]) -> None:
        for message in messages:
            if type(message) not in _KNOWN:
                raise foreign(message)
            if isinstance(message, Parcel) and type(message.content) not in _CONTENTS:
                raise foreign(message.content)

    def _take(self, now: Instant, content: Content, cause: int, out: list[Effect]) -> None:
        state = self._state
        if isinstance(content, Created):
            if state.pipeline.confirm(content.topic, content.n):
                out.append(Persist((Confirmed(content.topic, content.n),), cause))
                self._send_events(now, cause, out)
        elif isinstance(content, Entered):
            self._entered(now, content, cause, out)
        elif isinstance(content, Begun):
            self._begun(now, content, cause, out)

    def _skip(self, gone: Gone, cause: int, out: list[Effect]) -> None:
        topic = gone.stream[1]
        merge = self._state.merge
        clock = merge.clocks.get(topic)
        if clock is not None and gone.first > clock + 1:
            text = f"{topic} {clock + 1} to {gone.first - 1} are no longer kept"
            out.append(Note(text, cause=cause))
        self._deliver_ready(merge.skip(topic, gone.first), cause, out)

    # --- deliveries ---------------------------------------------------------------------------

    def _deliver_ready(self, ready: list[Ready], cause: int, out: list[Effect]) -> None:
        if not ready:
            return
        if self._options.tag:  # what was passed over follows from the timestamps
            self._deliver(
                [
                    Passed(
                        one.signed.n,
                        one.signed.event,
                        one.in_order,
                        timestamp=one.signed.timestamp,
                    )
                    for one in ready
                ],
                cause,
                out,
            )
        else:
            self._deliver([Delivered(one.signed.n, one.signed.event) for one in ready], cause, out)

    def _watch(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Something may be missing: ask for it later; and do not wait for ever."""
        state, options = self._state, self._options
        if not state.asking and state.merge.ahead:
            state.asking = True
            out.append(SetTimer(_ASK, now + options.ask_us, cause))
        if options.tag:
            count = state.merge.waiting_count
            if count > options.buffer_count_max:
                self._expire(now, cause, out)
            elif count and not state.expires_at:
                self._expire_later(cause, out)

    def _expire(self, now: Instant, cause: int, out: list[Effect]) -> None:
        before = now - self._options.time_to_live_us
        count_max = self._options.buffer_count_max
        ready, passed = self._state.merge.expire(before, count_max=count_max)
        if passed:
            out.append(Note(", ".join(passed), "suspect", cause=cause))
        self._deliver_ready(ready, cause, out)
        self._expire_later(cause, out)

    def _expire_later(self, cause: int, out: list[Effect]) -> None:
        oldest = self._state.merge.oldest()
        self._state.expires_at = 0
        if oldest is not None:
            self._state.expires_at = oldest + self._options.time_to_live_us
            out.append(SetTimer(_EXPIRE, self._state.expires_at, cause))

    # --- leases -------------------------------------------------------------------------------

    def _renew(self, now: Instant, cause: int, out: list[Effect]) -> None:
        state = self._state
        if not state.tenancy.stands(now, state.topics):
            state.merge.forget()  # what waits must not be delivered until the lease stands again
        for topic in state.topics:
            out.append(Send(self._sequencers[topic], (Renew(now),), cause))
        out.append(SetTimer(_RENEW, now + state.tenancy.wait_us, cause))

    def _renewed(self, now: Instant, given: Renewed, cause: int, out: list[Effect]) -> None:
        state = self._state
        if given.topic not in state.topics:
            return
        if given.known:
            state.tenancy.confirm(given.topic, given.sent_at)
        elif given.sent_at > state.tenancy.confirmed.get(given.topic, 0):  # not an older answer
            self._leave(now, (given.topic,), cause, out)
            self._join(now, (given.topic,), cause, out)

    # --- timers -------------------------------------------------------------------------------

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        state = self._state
        state.channels.wake(now, name, cause, out)
        if name == SEND:
            state.sending = False
            self._send_events(now, cause, out)
        elif name == _ASK:
            state.asking = False
            for topic, first, last in state.merge.missing():
                stream: Stream = (self._sequencers[topic], topic)
                out.append(Send(stream[0], (Ask(stream, first, last),), cause))
            self._watch(now, cause, out)
        elif name == _RENEW:
            self._renew(now, cause, out)
        elif name == _EXPIRE and state.expires_at:
            self._expire(now, cause, out)

    # --- subscriptions at run time ------------------------------------------------------------

    def _asked(self, topic: str) -> bool:
        state = self._state
        joining = state.joining
        return (
            topic in state.topics
            or topic in state.queue
            or (joining is not None and joining.topic == topic and joining.wanted)
        )

    def _join(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        self._state.queue += topics
        self._change(now, cause, out)

    def _listen(self, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        # A new topic is listened to when its turn to be subscribed has come.
        held = tuple(one for one in topics if one in self._state.topics)
        super()._listen(held, cause, out)

    def _change(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Begin the next change of the subscriptions, if none is under way."""
        state = self._state
        if state.joining is not None:
            return
        if state.leaving:
            state.leaving = False
            self._register(now, cause, out)
        if state.queue:
            topic = state.queue.pop(0)
            state.joining = Joining(topic)
            state.merge.prepare(topic)  # before the dissemination can bring anything
            super()._listen((topic,), cause, out)

    def _register(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Tell all who may think otherwise what is held."""
        state = self._state
        leave = Leave(self._next_version(), tuple(state.topics))
        for topic in state.registered:
            self._post(now, topic, (leave,), cause, out)
        state.registered = dict(state.topics)
        out.append(Persist((Asked(tuple(state.topics)),), cause))

    def _next_version(self) -> Version:
        self._state.version += 1
        return self._state.life, self._state.version

    def _listening(
        self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]
    ) -> None:
        state = self._state
        joining = state.joining
        if joining is None or joining.topic not in topics or joining.version != (0, 0):
            return
        joining.version, joining.sent_at = self._next_version(), now
        wanted = (*state.topics, joining.topic)
        joining.unanswered = dict.fromkeys(wanted, True)
        state.registered.update(joining.unanswered)
        out.append(Persist((Asked(tuple(state.registered)),), cause))
        for topic in wanted:
            self._post(now, topic, (Enter(joining.version, wanted, joining.topic),), cause, out)

    def _entered(self, now: Instant, given: Entered, cause: int, out: list[Effect]) -> None:
        joining = self._state.joining
        if joining is None or joining.version != given.version:
            return
        if joining.unanswered.pop(given.topic, False) and not joining.unanswered:
            self._post(now, joining.topic, (Begin(joining.version),), cause, out)

    def _begun(self, now: Instant, given: Begun, cause: int, out: list[Effect]) -> None:
        state = self._state
        joining = state.joining
        if joining is None or joining.version != given.version:
            return
        state.joining = None
        topic = joining.topic
        if joining.wanted:
            start = state.merge.begin(topic, given.n)
            state.tenancy.confirm(topic, joining.sent_at)
            stream: Stream = (self._sequencers[topic], topic)
            self._joined(Joined((topic,), ((stream, start),)), cause, out)
            self._deliver_ready(state.merge.follow([topic]), cause, out)
        else:
            state.merge.leave(topic)
            state.leaving = True
        self._change(now, cause, out)

    def _leave(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        state = self._state
        state.queue = [one for one in state.queue if one not in topics]
        joining = state.joining
        if joining is not None and joining.topic in topics:
            if joining.version == (0, 0):  # nobody was told
                state.joining = None
                state.merge.leave(joining.topic)
            else:
                joining.wanted = False
        state.leaving = True
        super()._leave(now, topics, cause, out)
        for topic in topics:
            state.tenancy.confirmed.pop(topic, None)
            if topic in state.merge.clocks:
                self._deliver_ready(state.merge.leave(topic), cause, out)
        self._change(now, cause, out)

    # --- a life after a crash -----------------------------------------------------------------

    def _remember(self, record: Record) -> None:
        state = self._state
        merge = state.merge
        if isinstance(record, Born):
            state.life = record.life
        elif isinstance(record, Published):
            self._add([record.event])
        elif isinstance(record, Confirmed):
            state.pipeline.forget(record.topic, record.n)
        elif isinstance(record, Asked):
            state.registered = dict.fromkeys(record.topics, True)
        elif isinstance(record, Delivered):
            timestamp = record.timestamp if isinstance(record, Passed) else {}
            signed = Signed(record.n, record.event, timestamp)
            merge.delivered(signed, in_order=record.in_order)
        elif isinstance(record, Joined):
            for (_, topic), n in record.starts:
                merge.hold(topic, n)
        elif isinstance(record, Left):
            for topic in record.topics:
                merge.leave(topic)

    def _crash(self, state: SequencingState) -> None:
        state.pipeline.crash()
        state.merge.crash()
        state.channels = Channels.of(self._options)
        state.tenancy.confirmed = {}
        state.joining, state.queue, state.leaving = None, [], False
        state.version, state.asking, state.expires_at = 0, False, 0
        state.sending = False

    def _begin(self, now: Instant, cause: int, out: list[Effect]) -> None:
        state = self._state
        state.life += 1
        state.channels.life = state.life
        out.append(Persist((Born(state.life),), cause))
        if state.life > 1:
            state.registered.update(state.topics)
            self._register(now, cause, out)
        self._send_events(now, cause, out)
        if self._options.lease_us:
            self._renew(now, cause, out)

    @property
    def held_count(self) -> int:
        state = self._state
        return (
            state.pipeline.count
            + state.channels.waiting_count
            + state.merge.waiting_count
            + len(state.merge.ahead)
            + len(state.queue)
            + (state.joining is not None)
        )


def _some(names: Mapping[str, str]) -> str:
    return ", ".join(list(names)[:12]) + (" …" if len(names) > 12 else "")
