"""The recorder: what a run did, as rows of a history.

It writes down and judges nothing. A publication is written once, however often a publisher that
came back from a crash repeats it. Rows are kept as plain tuples and become `Row`s when somebody
reads them, because most runs of a swarm are read by a checker once and then thrown away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from concordant.machine.effects import Delivery
from concordant.model.event import Event
from concordant.model.history import Row, Step


class _Noted(NamedTuple):
    topics: tuple[str, ...]
    text: str


_What = Event | Delivery | _Noted
_Written = tuple[Step, int, str, _What]


class Recorder:
    """The history of one run."""

    def __init__(self, run: str, *, level: str = "") -> None:
        self.run = run
        self.level = level
        """What was promised to the subscribers."""
        self.counts: Counter[str] = Counter()
        """How often what happened, faults included."""
        self._written: list[_Written] = []
        self._published: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._written)

    def published(self, now: int, process: str, events: Iterable[Event]) -> None:
        for event in events:
            if event.seq > self._published.get(event.source, 0):
                self._published[event.source] = event.seq
                self._written.append(("publish", now, process, event))

    def delivered(self, now: int, process: str, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            self._written.append(("deliver", now, process, delivery))

    def noted(
        self,
        now: int,
        process: str,
        step: Step,
        topics: tuple[str, ...] = (),
        *,
        text: str = "",
    ) -> None:
        self._written.append((step, now, process, _Noted(topics, text)))

    def rows(self) -> Iterator[Row]:
        """The history, in the order of virtual time."""
        return (self._row(*one) for one in self._written)

    def _row(self, step: Step, now: int, process: str, what: _What) -> Row:
        if isinstance(what, Delivery):
            return Row(
                self.run,
                process,
                step,
                now,
                subscription=what.subscription,
                topics=tuple(event.topic for event in what.events),
                events=tuple(event.id for event in what.events),
                conjunction=what.conjunction,
                key=what.key,
                position=what.position,
                in_order=what.in_order,
            )
        if isinstance(what, Event):
            return Row(
                self.run, process, step, now, topics=(what.topic,), events=(what.id,), event=what
            )
        level = self.level if step == "subscribe" else ""
        return Row(self.run, process, step, now, text=what.text, topics=what.topics, level=level)
