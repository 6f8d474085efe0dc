"""The publisher's side: what was published and is not yet signed, and what may be sent now.

Events of one topic follow each other without waiting. Where one order over whole histories is
promised (`edge_on` = 1), an event of another topic is sent only when everything before it is
signed: a sequencer orders what it is told one after the other, and only so do all of them put a
publisher's later event behind its earlier one. It knows no links.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from operator import ge, itemgetter

import msgspec

from concordant.model.event import Event
from concordant.order.sequencing.messages import RUN_COUNT_MAX, Create


class Pipeline(msgspec.Struct):
    """
    >>> pipeline = Pipeline(one_topic=True)
    >>> pipeline.add([Event("a", "p", 1, 0), Event("b", "p", 2, 0), Event("b", "p", 3, 0)])
    >>> [run.n for run in pipeline.sendable()]
    [1]
    >>> pipeline.confirm("a", 1)
    True
    >>> [(run.n, run.last) for run in pipeline.sendable()]
    [(2, 3)]
    """

    one_topic: bool
    """Only events of one topic are on their way at a time."""
    last: int = 0
    """Events are numbered over all topics and lives."""
    waiting: list[tuple[int, Event]] = []
    """Not sent yet, in order."""
    sent: dict[str, dict[int, Event]] = {}
    """Sent and not signed, by topic and number, in order."""

    def add(self, events: list[Event]) -> None:
        self.waiting += enumerate(events, self.last + 1)
        self.last += len(events)

    def sendable(self) -> list[Create]:
        """What may be sent now, in runs of one topic; it counts as sent."""
        count = 0
        for n, event in self.waiting:
            if self.one_topic and any(topic != event.topic for topic in self.sent):
                break
            self.sent.setdefault(event.topic, {})[n] = event
            count += 1
        if not count:
            return []
        found, self.waiting = self.waiting[:count], self.waiting[count:]
        return list(_runs(found))

    def confirm(self, topic: str, n: int) -> bool:
        """Events of a topic are signed up to a number; False if that is no news."""
        events = self.sent.get(topic, {})
        signed = list(takewhile(partial(ge, n), events))
        for one in signed:
            del events[one]
        if not events:
            self.sent.pop(topic, None)
        return bool(signed)

    def forget(self, topic: str, n: int) -> None:
        """In an earlier life, events of a topic were signed up to a number."""
        self.waiting = [one for one in self.waiting if one[1].topic != topic or one[0] > n]

    def crash(self) -> None:
        """In another life, what is not signed is sent again."""
        under_way = [one for events in self.sent.values() for one in events.items()]
        self.waiting = [*sorted(under_way, key=itemgetter(0)), *self.waiting]
        self.sent = {}

    @property
    def count(self) -> int:
        return len(self.waiting) + sum(map(len, self.sent.values()))


def _runs(numbered: list[tuple[int, Event]]) -> Iterator[Create]:
    """Events of one topic with numbers that follow each other, together."""
    start = 0
    for place in range(1, len(numbered) + 1):
        if place < len(numbered) and place - start < RUN_COUNT_MAX:
            (n, event), (after, following) = numbered[place - 1 : place + 1]
            if after == n + 1 and following.topic == event.topic:
                continue
        yield Create(numbered[start][0], tuple(event for _, event in numbered[start:place]))
        start = place
