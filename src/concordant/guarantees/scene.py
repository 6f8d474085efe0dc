"""Scenes: a few subscribers, a few events, and what happens; the currency of the search.

A scene is a value: who asks what, which events are published in which order, how many of the last
ones repeat for ever, and in which order each process gets them where that differs. A `Stage` plays
many scenes with the same subscribers on the clear engine and returns rows of history, indexed for
the checkers. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

import msgspec

from concordant.check.run import Run
from concordant.correlate.engine import Engine
from concordant.correlate.plan import Plan, compile_plan
from concordant.guarantees.repeat import Rounds, state_of
from concordant.model.event import Event
from concordant.model.history import Row
from concordant.model.subscription import Subscription

Subscribers = tuple[Subscription, ...]
"""One subscription per process, named after the process."""

_RUN = "scene"


class Scene(msgspec.Struct, frozen=True):
    """Subscribers and the events that they get."""

    subscribers: Subscribers
    events: tuple[Event, ...]
    """In the order of publication, at increasing times."""
    cycle_count: int = 0
    """How many of the last events are published again and again; 0 for a finite input."""
    arrivals: Mapping[str, tuple[int, ...]] = {}
    """Per process, the indexes of the events in the order in which it gets them, if not all get
    them in the order of publication."""


class Played(msgspec.Struct, frozen=True):
    """What happened in a scene."""

    rows: list[Row]
    run: Run


@lru_cache(maxsize=4_096)
def _planned(subscribers: Subscribers) -> Plan:
    """Their plan; the same subscribers come again and again in a search."""
    return compile_plan(subscribers, {})


class Stage:
    """Plays scenes of the same subscribers."""

    def __init__(self, subscribers: Subscribers) -> None:
        self.subscribers = subscribers
        self._begin = [
            Row(_RUN, one.name, "subscribe", subscription=one.name, topics=one.topics)
            for one in subscribers
        ]
        self._by_name = {one.name: one for one in subscribers}

    @cached_property
    def _plan(self) -> Plan:
        return _planned(self.subscribers)

    @cached_property
    def _plans(self) -> dict[str, Plan]:
        return {one.name: _planned((one,)) for one in self.subscribers}

    def play(
        self,
        events: Sequence[Event],
        *,
        cycle_count: int = 0,
        arrivals: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Played | None:
        """What happens; None if an endless input came to no end within the bound of rounds."""
        if arrivals:
            return self._play_apart(events, arrivals)
        engine = Engine(self._plan)
        rows = [*self._begin]
        if not cycle_count:
            self._take(engine, rows, events)
            return self._played(rows)
        prefix, cycle = events[:-cycle_count], events[-cycle_count:]
        self._take(engine, rows, prefix)
        rounds = Rounds(prefix, cycle, self.subscribers)
        for again in rounds:
            self._take(engine, rows, again)
            rounds.saw(state_of(engine, rounds))
        if rounds.repeats_from_us is None:
            return None
        return self._played(
            rows,
            repeats_from_us=rounds.repeats_from_us,
            prefix_until_us=prefix[-1].time if prefix else 0,
        )

    def _take(self, engine: Engine, rows: list[Row], events: Sequence[Event]) -> None:
        for event in events:
            rows.append(_published(event))
            for relation in engine.step((event,)):
                rows.append(
                    Row(
                        _RUN,
                        relation.subscription,
                        "deliver",
                        event.time,
                        relation.subscription,
                        events=relation.event_ids,
                        conjunction=relation.conjunction,
                        key=relation.key,
                        position=relation.position,
                    )
                )

    def _play_apart(
        self, events: Sequence[Event], arrivals: Mapping[str, tuple[int, ...]]
    ) -> Played:
        """Each process gets the events in an order of its own, none before it is published."""
        timed: list[tuple[int, int, Row]] = [(e.time, 0, _published(e)) for e in events]
        for name, plan in self._plans.items():
            engine = Engine(plan, time_ordered=False)
            now = 0
            for index in arrivals.get(name, range(len(events))):
                now = max(now, events[index].time)
                rows: list[Row] = []
                self._take(engine, rows, (events[index],))
                timed += [(now, 1, msgspec.structs.replace(row, time_us=now)) for row in rows[1:]]
        timed.sort(key=lambda item: item[:2])
        ids = {name: [events[index].id for index in indexes] for name, indexes in arrivals.items()}
        return self._played([*self._begin, *(row for _, _, row in timed)], arrivals=ids)

    def _played(
        self,
        rows: list[Row],
        *,
        arrivals: Mapping[str, Sequence[str]] | None = None,
        repeats_from_us: int | None = None,
        prefix_until_us: int = 0,
    ) -> Played:
        run = Run.of(
            rows,
            subscriptions=self._by_name,
            arrivals=arrivals,
            repeats_from_us=repeats_from_us,
            prefix_until_us=prefix_until_us,
        )
        return Played(rows, run)


def play(scene: Scene) -> Played | None:
    """What happens in one scene."""
    return Stage(scene.subscribers).play(
        scene.events, cycle_count=scene.cycle_count, arrivals=scene.arrivals
    )


def _published(event: Event) -> Row:
    return Row(
        _RUN,
        event.source,
        "publish",
        event.time,
        topics=(event.topic,),
        events=(event.id,),
        event=event,
    )
