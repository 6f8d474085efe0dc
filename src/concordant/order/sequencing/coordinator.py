"""The coordinator changes the ranking: everybody finishes what was begun, then all begin anew.

It asks all sequencers to begin nothing new. When each has said that it is done and how far its
topic is, the new order is in force, and with it every sequencer knows every count: nothing of the
old order is under way. If one does not answer in time, nothing comes of it and all go on as before.
One change is under way at a time, and what was decided is durable before it is told.

It may look for a better ranking by itself: it surveys the sequencers now and then, and changes the
order if events would take enough fewer hops. A change stops new events for a while, so it has to
pay (Baldoni 2011 swaps two topics at a time, and loses the events of the old order).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Effect, Note, Persist, Send, SetTimer
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
from concordant.machine.saved import Compact
from concordant.order.sequencing.channel import ACKNOWLEDGE, REPEAT, Channels
from concordant.order.sequencing.forest import mean_hops
from concordant.order.sequencing.messages import (
    Abort,
    Commit,
    Condensed,
    Content,
    GivenUp,
    Handled,
    Parcel,
    Prepare,
    Prepared,
    Proposed,
    Receipt,
    Report,
    Rerank,
    SequencingOptions,
    Survey,
)
from concordant.order.sequencing.ranking import ranked

_GIVE_UP = "give up"
_SURVEY = "survey"

_AT_ONCE_PERCENT = 75
"""A ranking that saves so many of the hops does not wait for its turn."""
_SPACING_MAX = 64
"""So many surveys at most lie between smaller changes. What they save is partly chance, because the
events that ask for a ranking also judge it; each one is followed by a wait twice as long."""


class _State(msgspec.Struct):
    channels: Channels
    order: tuple[str, ...]
    epoch: int = 0
    """Of the last proposal."""
    proposed: tuple[str, ...] = ()
    """The order that is being prepared; empty if none is."""
    counts: dict[str, int] = {}
    """How far each topic is, of those that have answered."""
    reports: dict[str, Report] = {}
    """Answers to the survey that is under way."""
    signed: dict[str, int] = {}
    """How far each topic was at the last complete survey."""
    rates: dict[str, float] = {}
    """How many of the last events each topic has."""
    waited: int = 0
    """Surveys since the last change."""
    spacing: int = 1
    """So many have to pass before a change that saves little."""


class Coordinator:
    """Installs rankings."""

    decides: frozenset[str] = frozenset({_GIVE_UP, _SURVEY})
    wakes: tuple[str, ...] = (ACKNOWLEDGE, REPEAT, _GIVE_UP)

    def __init__(
        self, sequencers: Mapping[str, str], *, options: SequencingOptions | None = None
    ) -> None:
        """`sequencers` are the addresses of all topics' sequencers, in rank order."""
        self._addresses = dict(sequencers)
        self._options = options or SequencingOptions()
        self._state = _State(Channels.of(self._options), tuple(sequencers))

    @property
    def order(self) -> tuple[str, ...]:
        """The ranking in force, the lowest topic first."""
        return self._state.order

    # --- the door -----------------------------------------------------------------------------

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out: list[Effect] = []
        if isinstance(given, Received):
            self._receive(now, given, out)
        elif isinstance(given, TimerFired):
            for name in given.names:
                self._wake(now, name, given.cause, out)
        elif isinstance(given, Command):
            self._obey(now, given, out)
        elif isinstance(given, Started):
            self._start(now, given, out)
        return out

    def _obey(self, now: Instant, given: Command, out: list[Effect]) -> None:
        self.vet(given.requests)
        for request in given.requests:
            if isinstance(request, Rerank):
                self._propose(now, request.order, given.cause, out)
            else:  # the state takes the place of the log
                out.append(Persist((Condensed(self.snapshot()),), given.cause, replaces=True))

    def due(self, source: str) -> tuple[int, int]:
        """The life of a source, and the number of its parcel that is due."""
        return self._state.channels.due(source)

    def vet(self, requests: tuple[Request, ...]) -> None:
        """Refuse what cannot be done now."""
        orders = [request for request in requests if not isinstance(request, Compact)]
        for request in orders:
            if not isinstance(request, Rerank):
                raise UsageError(
                    f"a coordinator cannot {type(request).__name__}",
                    hint="send the request to a client",
                )
            if sorted(request.order) != sorted(self._addresses):
                raise UsageError("a ranking names every topic once", hint="list all topics")
        if orders and (self._state.proposed or len(orders) > 1):
            raise UsageError(
                "a change of the ranking is under way", hint="one at a time: ask again later"
            )

    def check(self, messages: tuple[Message, ...]) -> None:
        """Refuse what no sequencer sends."""
        for message in messages:
            content = message.content if isinstance(message, Parcel) else message
            if not isinstance(content, Prepared | Receipt | Report):
                raise PeerError(f"a coordinator was sent a {type(content).__name__}")

    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        self.check(given.messages)
        state = self._state
        for message in given.messages:
            if isinstance(message, Receipt):
                state.channels.settle(given.source, message)
            elif isinstance(message, Report):
                state.reports[message.topic] = message
                if len(state.reports) == len(self._addresses):
                    self._consider(now, given.cause, out)
            elif isinstance(message, Parcel):
                contents = state.channels.accept(given.source, message)
                state.channels.acknowledge_later(now, given.cause, out)
                first = state.channels.inboxes[given.source].next - len(contents)
                for n, content in enumerate(contents, first):
                    out.append(Persist((Handled(given.source, 0, n, content),), given.cause))
                    self._send(now, self._prepared(content), given.cause, out)

    # --- decisions ----------------------------------------------------------------------------

    def _propose(self, now: Instant, order: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        record = Proposed(self._state.epoch + 1, order)
        out.append(Persist((record,), cause))
        self._send(now, self._proposal(record), cause, out)
        out.append(SetTimer(_GIVE_UP, now + self._options.prepare_us_max, cause))

    def _proposal(self, record: Proposed) -> list[Content]:
        state = self._state
        state.epoch, state.proposed, state.counts = record.epoch, record.order, {}
        return [Prepare(record.epoch)]

    def _prepared(self, content: Content) -> list[Content]:
        """What follows from an answer, for all sequencers: with the last one, the new order."""
        state = self._state
        if not isinstance(content, Prepared) or content.epoch != state.epoch or not state.proposed:
            return []
        state.counts[content.topic] = content.n
        if len(state.counts) < len(self._addresses):
            return []
        state.order, state.proposed = state.proposed, ()
        return [Commit(state.epoch, state.order, state.counts)]

    def _give_up(self) -> list[Content]:
        self._state.proposed = ()
        return [Abort(self._state.epoch)]

    def _send(
        self, now: Instant, contents: Iterable[Content], cause: int, out: list[Effect]
    ) -> None:
        """To all sequencers, and again until they have it."""
        channels = self._state.channels
        for content in contents:
            for to in self._addresses.values():
                out.append(Send(to, (channels.post(to, content),), cause))
            if isinstance(content, Commit):
                text = f"epoch {content.epoch}: the ranking is {', '.join(content.order)}"
                out.append(Note(text, cause=cause))
            channels.repeat_later(now, cause, out)

    # --- timers -------------------------------------------------------------------------------

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        state = self._state
        state.channels.wake(now, name, cause, out)
        if name == _GIVE_UP and state.proposed:
            out.append(Persist((GivenUp(state.epoch),), cause))
            self._send(now, self._give_up(), cause, out)
        elif name == _SURVEY:
            state.reports = {}
            out += [Send(to, (Survey(),), cause) for to in self._addresses.values()]
            out.append(SetTimer(_SURVEY, now + self._options.survey_us, cause))

    def _consider(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Change the ranking if what the last survey says makes that worth its pause."""
        state = self._state
        reports, state.reports = state.reports, {}
        graph: dict[str, set[str]] = {topic: set() for topic in reports}
        for topic, report in reports.items():
            for other in report.edges:  # one end may know of an edge before the other does
                graph[topic].add(other)
                graph[other].add(topic)
        known, fresh = state.rates, self._learn(reports)
        if state.proposed or not any(known.values()) or not any(fresh.values()):
            return
        # Events that ask for a ranking would flatter it: those that came later judge it.
        best = ranked(graph, known, trial_count_max=self._options.trial_count_max)
        hops, least = (mean_hops(graph, order, fresh) for order in (state.order, best))
        saved_percent = 100 * (hops - least) / hops if hops else 0.0
        state.waited += 1
        if saved_percent >= _AT_ONCE_PERCENT:
            state.spacing = 1
        elif saved_percent < self._options.gain_percent_min or state.waited < state.spacing:
            return
        state.waited, state.spacing = 0, min(2 * state.spacing, _SPACING_MAX)
        self._propose(now, tuple(best), cause, out)

    def _learn(self, reports: Mapping[str, Report]) -> dict[str, int]:
        """Events by topic since the last survey; they are added to those that are known."""
        state = self._state
        # A report that was on its way for very long may be older than the last survey.
        fresh = {
            one: max(0, report.n - state.signed.get(one, 0)) for one, report in reports.items()
        }
        for topic, count in fresh.items():
            state.signed[topic] = state.signed.get(topic, 0) + count
        room = max(0, self._options.sample_count - sum(fresh.values()))
        share = min(1.0, room / (sum(state.rates.values()) or 1))
        state.rates = {
            topic: share * state.rates.get(topic, 0) + count for topic, count in fresh.items()
        }
        return fresh

    # --- a life after a crash -----------------------------------------------------------------

    def _start(self, now: Instant, given: Started, out: list[Effect]) -> None:
        state = self._state
        for record in given.records:
            contents: list[Content] = []
            if isinstance(record, Condensed):
                self.restore(record.state)
                state = self._state
            elif isinstance(record, Proposed):
                contents = self._proposal(record)
            elif isinstance(record, GivenUp):
                contents = self._give_up()
            elif isinstance(record, Handled):
                state.channels.replay(record.source, record.life, record.n)
                contents = self._prepared(record.content)
            for content in contents:
                for to in self._addresses.values():
                    state.channels.post(to, content)
        if given.records:
            state.channels.begin_again(now, given.cause, out)
        if state.proposed:
            out.append(SetTimer(_GIVE_UP, now + self._options.prepare_us_max, given.cause))
        if self._options.survey_us:
            out.append(SetTimer(_SURVEY, now + self._options.survey_us, given.cause))

    @property
    def held_count(self) -> int:
        return bool(self._state.proposed) + self._state.channels.waiting_count

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=_State)
