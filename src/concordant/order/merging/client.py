"""A client of ordered merging: publishes to roots, subscribes conjunctions, delivers relations.

Each conjunction has a stream of its own, and its events go to its own matcher only. Streams are
merged by (logical time, conjunction): an event is fed when no stream can still bring one that
belongs before it. So two subscribers that hold the same two conjunctions deliver the relations of
both in one order, whatever else they hold. Where a stream is silent, a mark is asked of its merger.

What was fed is durable before it is delivered; after a crash the session goes on where it was, or,
if its merger has given it up, a new one begins with the queues of another subscriber.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from concordant.errors import UsageError
from concordant.machine.effects import Deliver, Delivery, Effect, Note, Persist, Send, SetTimer
from concordant.machine.holdback import Holdback
from concordant.machine.inputs import Command, Input, Message, Received, Record, Request, Started
from concordant.machine.instant import Instant
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas
from concordant.order.client import Published, foreign
from concordant.order.merging.inflow import HELD_COUNT_MAX, NEVER, Inflow
from concordant.order.merging.matcher import Correlating, Matcher, Plain, fill
from concordant.order.merging.merge import due, unmarked
from concordant.order.merging.messages import (
    Accepted,
    Batch,
    Cut,
    Detach,
    Elsewhere,
    Ended,
    Ev,
    Item,
    Queues,
    check,
    event_of,
)
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.overlay import first_replica, name_of
from concordant.order.merging.publisher import MergedPublisher
from concordant.order.merging.records import (
    Begun,
    Closed,
    Correlate,
    Drop,
    Fed,
    MergedState,
    Opened,
    Through,
)
from concordant.order.merging.stamps import ALL, TICKS, beyond, passed
from concordant.order.merging.stream import Stream, Wanted, subscribed, wanted

_TICK, _MARK = "tick", "mark"
_KNOWN = frozenset({Accepted, Elsewhere, Batch, Ended, Queues})


class _Saved(msgspec.Struct):
    state: MergedState
    matchers: dict[str, bytes]


class MergedClient(MergedPublisher):
    """See the module's text."""

    def __init__(
        self,
        name: str,
        *,
        hosts: Sequence[str],
        subscriptions: Sequence[Subscription] = (),
        schemas: Schemas | None = None,
        merging: MergingOptions | None = None,
        **others: Any,
    ) -> None:
        """`topics` are delivered event by event, `subscriptions` as relations, both from the start;
        `schemas` are needed for subscriptions."""
        super().__init__(name, hosts=hosts, merging=merging, **others)
        self._schemas = schemas or {}
        self._matchers: dict[str, Matcher] = {}
        self._first = [one for each in subscriptions for one in wanted(each)]
        self._first += [Wanted(None, topic=topic) for topic in self._state.topics]

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out = super().handle(now, given)
        self._rise(now, given.cause, out)
        return out

    def _rise(self, now: Instant, cause: int, out: list[Effect]) -> None:
        if self._state.resting and self._restless:
            self._state.resting = False
            self._look_at(now + self._merging.tick_us, cause, out)

    def _look_at(self, at: Instant, cause: int, out: list[Effect]) -> None:
        self._state.look_at = at
        out.append(SetTimer(_TICK, at, cause))

    @property
    def _restless(self) -> bool:
        """Can something be overdue soon? Who only listens looks more rarely."""
        return self.held_count > 0 or any(
            one.inflow.awaited_at != NEVER for one in self._state.streams.values()
        )

    def _matcher(self, one: Wanted) -> Matcher:
        if one.subscription is None:
            return Plain()
        return Correlating(one.subscription, one.number, self._schemas)

    # --- requests -----------------------------------------------------------------------------

    def _check(self, requests: tuple[Request, ...]) -> None:
        names = {
            one.wanted.subscription.name
            for one in self._state.streams.values()
            if one.wanted.subscription is not None
        }
        for request in requests:
            if isinstance(request, Correlate):
                name = request.subscription.name
                if name in names:
                    raise UsageError(
                        f"{self.name} has a subscription {name!r} already",
                        hint="drop it first, or give the new one another name",
                    )
                names.add(name)
                for one in wanted(request.subscription):
                    self._matcher(one)  # it raises if a topic or an attribute is unknown
        super()._check(tuple(one for one in requests if not isinstance(one, Correlate | Drop)))

    def _obey(self, now: Instant, given: Command, out: list[Effect]) -> None:
        others: list[Request] = []
        for request in given.requests:
            if not isinstance(request, Correlate | Drop):
                others.append(request)
                continue
            super()._obey(now, Command(tuple(others), given.cause), out)
            others = []
            if isinstance(request, Correlate):
                for one in wanted(request.subscription):
                    self._open(now, one, given.cause, out)
            else:
                names = [
                    name
                    for name, one in self._state.streams.items()
                    if one.wanted.subscription is not None
                    and one.wanted.subscription.name == request.name
                ]
                self._close(now, names, given.cause, out)
        super()._obey(now, Command(tuple(others), given.cause), out)

    def _asked(self, topic: str) -> bool:
        """Subscribed as it is, or read by a conjunction."""
        return any(topic in one.wanted.signature for one in self._state.streams.values())

    def _join(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        for topic in topics:
            self._open(now, Wanted(None, topic=topic), cause, out)

    def _leave(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        self._close(now, [one for one in topics if one in self._state.streams], cause, out)

    # --- messages -----------------------------------------------------------------------------

    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        for message in given.messages:
            if type(message) not in _KNOWN:
                raise foreign(message)
            if isinstance(message, Batch):
                check(message)
        for message in given.messages:
            self._take(now, message, given.cause, out)
            self._rise(now, given.cause, out)

    def _take(self, now: Instant, message: Message, cause: int, out: list[Effect]) -> None:
        match message:
            case Batch():
                self._batch(now, message, cause, out)
            case Accepted():
                self._accepted(now, message, cause, out)
            case Elsewhere():
                self._elsewhere(now, message, cause, out)
            case Ended():
                self._ended(now, message, cause, out)
            case Queues():
                stream = self._stream_of(message.consumer, message.session)
                if stream is not None:
                    stream.given(message.cut, message.state)
                    self._complete(stream, cause, out)

    def _stream_of(self, consumer: str, session: int) -> Stream | None:
        stream = self._state.streams.get(consumer.partition(" ")[2])
        return stream if stream is not None and stream.inflow.session == session else None

    def _batch(self, now: Instant, batch: Batch, cause: int, out: list[Effect]) -> None:
        streams = self._readers(batch)
        for stream in streams:
            inflow = stream.inflow
            inflow.take_in(now, batch)
            plain, items = inflow.only_events, inflow.take_all()
            if plain:
                stream.keep(items)  # type: ignore[arg-type]  # `plain` says it
                continue
            for kind, run in groupby(items, type):
                if kind is Ev:
                    stream.keep(list(run))  # type: ignore[arg-type]  # `kind` says it
                else:
                    for item in run:
                        self._told(now, stream, item, cause, out)
        if streams:
            self._merge(now, cause, out)
            self._pull_more(now, cause, out)

    def _readers(self, batch: Batch) -> list[Stream]:
        """The streams that a batch is for."""
        if batch.consumer:
            found = self._stream_of(batch.consumer, batch.session)
            return [] if found is None else [found]
        return [
            one
            for one in self._state.streams.values()
            if one.inflow.begin in batch.many and one.inflow.merger == batch.merger
        ]

    def _told(
        self, now: Instant, stream: Stream, item: Item, cause: int, out: list[Effect]
    ) -> None:
        """An item that is no event."""
        if isinstance(item, Cut):
            self._donate(stream, item, cause, out)
        if stream.take(now, item):
            self._began(stream, item.n + 1, cause, out)
        elif stream.stage == "waiting":
            self._complete(stream, cause, out)

    # --- joining ------------------------------------------------------------------------------

    def _open(self, now: Instant, one: Wanted, cause: int, out: list[Effect]) -> None:
        state = self._state
        state.sessions += 1
        merger = name_of(one.signature)
        consumer = f"{self.name} {one.name}"
        held = Holdback[int, Batch](HELD_COUNT_MAX)
        replica = first_replica(consumer, self._merging.replication.replica_count)
        inflow = Inflow(merger, consumer, state.sessions, held, replica=replica, moved_at=now)
        after = state.reached + TICKS * self._merging.ahead_us if state.reached else 0
        name, key = one.name, (one.conjunction, one.name)
        stamped = self._merging.stamped
        stream = state.streams[name] = Stream(
            *(one, inflow, name, key, after, (after, ALL)),
            stamped=stamped,
            mixed=stamped and len(one.signature) > 1,
            began_at=now,
        )
        out.append(Persist((Opened(one, state.sessions),), cause))
        self._to_all(merger, stream.attach(), cause, out)
        self._pull(now, stream, cause, out, overdue=False)

    def _began(self, stream: Stream, next: int, cause: int, out: list[Effect]) -> None:
        matcher = self._matcher(stream.wanted)
        # Those of an earlier cut are void, and must not come back after a crash either.
        queues = stream.queues if stream.queues_cut == stream.cut else b""
        fill(matcher, queues, lent=stream.lent)
        name = stream.name
        self._matchers[name] = matcher
        kept = tuple(stream.waiting)
        begun = Begun(name, next, passed(stream.frontier), queues, stream.lent, kept)
        stream.queues = b""
        out.append(Persist((begun,), cause))
        out.append(subscribed(stream.wanted, cause))

    def _complete(self, stream: Stream, cause: int, out: list[Effect]) -> None:
        if stream.has_queues:
            self._to_all(stream.inflow.merger, stream.complete(), cause, out)

    def _donate(self, stream: Stream, cut: Cut, cause: int, out: list[Effect]) -> None:
        """The queues as they are at the cut, whether or not the merge has come that far: who waits
        for one another's queues would wait for ever."""
        if stream.stage != "live":
            return
        copy = self._matcher(stream.wanted)
        copy.load(self._matchers[stream.name].save())
        copy.feed([item.event for item in stream.waiting])
        state = copy.lend() if cut.prefix else copy.save()
        queues = Queues(cut.joiner, cut.session, cut.cut, state)
        out.append(Send(cut.joiner.partition(" ")[0], (queues,), cause))

    # --- leaving ------------------------------------------------------------------------------

    def _close(self, now: Instant, names: list[str], cause: int, out: list[Effect]) -> None:
        state = self._state
        for name in names:
            stream = state.streams.pop(name)
            self._matchers.pop(name, None)
            inflow = stream.inflow
            state.leaving[inflow.consumer] = (inflow.merger, inflow.session)
            state.topics.pop(name, None)
            out.append(Persist((Closed(name),), cause))
            self._note_left(stream, cause, out)
            detach = Detach(inflow.merger, inflow.consumer, inflow.session)
            self._to_all(inflow.merger, detach, cause, out)
        state.left_at = now
        self._merge(now, cause, out)

    def _note_left(self, stream: Stream, cause: int, out: list[Effect]) -> None:
        others = [one for one in self._state.streams.values() if one is not stream]
        held = {t for one in others if one.stage == "live" for t in one.wanted.signature}
        topics = tuple(topic for topic in stream.wanted.signature if topic not in held)
        if stream.stage == "live":
            out.append(Note(stream.wanted.text, "unsubscribe", topics, (), cause))

    def _ended(self, now: Instant, message: Ended, cause: int, out: list[Effect]) -> None:
        leaving = self._state.leaving
        if leaving.get(message.consumer, ("", 0))[1] == message.session:
            del leaving[message.consumer]
        stream = self._stream_of(message.consumer, message.session)
        if stream is not None:  # the merger took this client for dead: begin again
            self._matchers.pop(stream.name, None)
            self._note_left(stream, cause, out)
            self._open(now, stream.wanted, cause, out)
            self._merge(now, cause, out)

    # --- the merge ----------------------------------------------------------------------------

    def _merge(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Feed what no stream can come before (Wilkin 2015, fig. 3.7, corrected)."""
        found: list[Delivery] = []
        ready = due(self._state.streams.values())
        for stream, items in ready:
            found += self._feed(stream, items)
        if ready:
            out.append(Persist(tuple(Fed(stream.name, items) for stream, items in ready), cause))
        if found:
            out.append(Deliver(tuple(found), cause))
        self._ask_for_marks_later(now, cause, out)

    def _feed(self, stream: Stream, items: Sequence[Ev]) -> list[Delivery]:
        state, one = self._state, stream.wanted
        state.reached = max(state.reached, items[-1].ts)
        name = "" if one.subscription is None else one.subscription.name
        before = state.positions.get(name, 0)
        found = self._matchers[stream.name].feed(map(event_of, items), before + 1)
        state.positions[name] = before + len(found)
        return found

    def _ask_for_marks_later(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Mostly what makes a mark needless is on its way."""
        state, options = self._state, self._merging
        if not state.marking and unmarked(state.streams.values(), now, options):
            state.marking = True
            out.append(SetTimer(_MARK, now + options.mark_us, cause))

    def _ask_for_marks(self, now: Instant, cause: int, out: list[Effect]) -> None:
        for one, ts in unmarked(self._state.streams.values(), now, self._merging):
            self._to_all(one.inflow.merger, one.mark(now, ts), cause, out)

    # --- what is overdue ----------------------------------------------------------------------

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        if name == _MARK:
            self._state.marking = False
            self._ask_for_marks(now, cause, out)
        elif name == _TICK:
            self._look(now, cause, out)

    def _look(self, now: Instant, cause: int, out: list[Effect]) -> None:
        state, options = self._state, self._merging
        self._offer_overdue(now, cause, out)
        for stream in state.streams.values():
            stream.inflow.late(now - state.look_at)
            if (needed := stream.push(now, options)) is not None:
                self._to_all(needed.merger, needed, cause, out)
            self._pull(now, stream, cause, out, overdue=True)
        self._ask_for_marks(now, cause, out)
        if now - state.left_at > options.repeat_us:
            state.left_at = now
            for consumer, (merger, session) in state.leaving.items():
                self._to_all(merger, Detach(merger, consumer, session), cause, out)
        state.resting = not self._restless
        # Where answers take long, nothing is overdue sooner, but for what was published.
        taking_us = min((one.inflow.waited_us for one in state.streams.values()), default=0)
        most_us = options.repeat_us if self._offered_count else options.idle_us // 2
        pause_us = most_us if state.resting else max(options.tick_us, min(taking_us, most_us))
        self._look_at(now + pause_us, cause, out)

    @property
    def _patient(self) -> bool:
        """While a session is to begin, somebody may wait for a cut that lies ahead in another."""
        return not [one for one in self._state.streams.values() if one.stage != "live"]

    def _pull_more(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Ask for more wherever enough was done with: what one stream brings lets others go on."""
        patient, options = self._patient, self._merging
        for stream in self._state.streams.values():
            if not patient or stream.inflow.has_room(stream.done, options):
                self._pull(now, stream, cause, out, overdue=False)

    def _pull(
        self, now: Instant, stream: Stream, cause: int, out: list[Effect], *, overdue: bool
    ) -> None:
        inflow, patient = stream.inflow, self._patient
        wished = inflow.wishes(now, stream.done, self._merging, overdue=overdue, patient=patient)
        for place, pull in wished:
            out.append(Send(self._replicas(inflow.merger)[place], (pull,), cause))

    def _to_all(self, merger: str, message: Message, cause: int, out: list[Effect]) -> None:
        out += [Send(one, (message,), cause) for one in self._replicas(merger)]

    # --- a life after a crash -----------------------------------------------------------------

    def _start(self, now: Instant, given: Started, out: list[Effect]) -> None:
        found: list[Delivery] = []
        live: dict[str, Stream] = {}
        for record in given.records:
            found += self._recall(now, record)
            if isinstance(record, Begun):
                live[record.name] = self._state.streams[record.name]
        published = tuple(one.event for one in given.records if isinstance(one, Published))
        if published:
            out.append(Note("", "publish", (), published, given.cause))
        state = self._state
        for name, stream in live.items():  # the last life may have ended before it could say so
            if name not in state.streams or state.streams[name].stage != "live":
                self._note_left(stream, given.cause, out)
        known = any(isinstance(one, Opened) for one in given.records)
        for one in () if known else self._first:
            self._open(now, one, given.cause, out)
        for stream in list(state.streams.values()) if known else []:
            if stream.stage == "live":
                out.append(subscribed(stream.wanted, given.cause))
                stream.inflow.asked_at = stream.inflow.awaited_at = NEVER  # in another life
            else:
                self._open(now, stream.wanted, given.cause, out)
        if found[given.taken_count :]:
            out.append(Deliver(tuple(found[given.taken_count :]), given.cause))
        for topic in state.outlets:
            self._offer_again(now, topic, given.cause, out)
        for stream in state.streams.values():
            self._pull(now, stream, given.cause, out, overdue=False)
        self._look_at(now + self._merging.tick_us, given.cause, out)

    def _recall(self, now: Instant, record: Record) -> list[Delivery]:
        state = self._state
        if isinstance(record, Published | Through):
            self._recall_published(record)
        elif isinstance(record, Opened):
            state.sessions = record.session - 1
            self._open(now, record.wanted, 0, [])
        elif isinstance(record, Closed):
            del state.streams[record.name]
        elif isinstance(record, Begun):
            self._recall_begun(record)
        elif isinstance(record, Fed):
            stream, last = state.streams[record.name], record.items[-1]
            stream.waiting = [one for one in stream.waiting if one.n > last.n]
            if last.n >= stream.inflow.due:
                stream.inflow.go_on(last.n + 1)
            stream.frontier = max(stream.frontier, beyond(last, mixed=stream.mixed))
            return self._feed(stream, record.items)
        return []

    def _recall_begun(self, record: Begun) -> None:
        stream = self._state.streams[record.name]
        stream.stage, stream.waiting = "live", list(record.kept)
        stream.inflow.go_on(record.next)
        stream.frontier = (record.ts, ALL)
        if stream.waiting:
            last = beyond(stream.waiting[-1], mixed=stream.mixed)
            stream.frontier = max(stream.frontier, last)
        matcher = self._matchers[record.name] = self._matcher(stream.wanted)
        fill(matcher, record.queues, lent=record.lent)

    @property
    def held_count(self) -> int:
        state = self._state
        waiting = self._offered_count
        for one in state.streams.values():
            waiting += len(one.waiting) + one.inflow.count + (one.stage != "live")
        return waiting + len(state.leaving)

    def snapshot(self) -> bytes:
        saved = {name: one.save() for name, one in self._matchers.items()}
        return msgspec.msgpack.encode(_Saved(self._state, saved))

    def restore(self, data: bytes) -> None:
        saved = msgspec.msgpack.decode(data, type=_Saved)
        self._state, self._matchers = saved.state, {}
        for name, queues in saved.matchers.items():
            matcher = self._matchers[name] = self._matcher(self._state.streams[name].wanted)
            matcher.load(queues)
