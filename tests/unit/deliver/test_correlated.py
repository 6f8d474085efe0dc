"""The kernel on top of a level, one delivery at a time."""

from __future__ import annotations

from concordant.deliver.correlated import Correlated
from concordant.language import checked, parse
from concordant.machine.effects import Deliver, Effect, Note, Persist
from concordant.machine.inputs import Received, Started
from concordant.model.event import Event
from concordant.model.kind import Kind
from concordant.model.topic import Topic, schemas
from concordant.order.none import NoneClient
from concordant.order.streams import Numbered

TOPICS = schemas([Topic("A", {"x": Kind.INT}), Topic("B", {"x": Kind.INT})])


def machine() -> Correlated:
    good, _ = checked(parse("pair: A then B consume matched"), TOPICS)
    client = NoneClient("s", topics=("A", "B"))
    return Correlated(client, subscriptions=good, schemas=TOPICS, time_ordered=False)


def arrives(topic: str, seq: int) -> Received:
    return Received("p", (Numbered(("p", topic), seq, Event(topic, "p", seq, 0)),))


def relations(effects: list[Effect]) -> list[tuple[int, tuple[str, ...]]]:
    return [
        (one.position, tuple(event.id for event in one.events))
        for effect in effects
        if isinstance(effect, Deliver)
        for one in effect.deliveries
    ]


def test_relations_are_delivered_instead_of_events() -> None:
    subscriber = machine()
    started = subscriber.handle(0, Started())
    assert any(isinstance(e, Note) and e.text.startswith("pair:") for e in started)
    assert relations(subscriber.handle(1, arrives("A", 1))) == []
    assert relations(subscriber.handle(2, arrives("B", 2))) == [(1, ("p:1", "p:2"))]


def test_after_a_crash_only_what_the_application_has_not_taken_is_delivered() -> None:
    subscriber = machine()
    subscriber.handle(0, Started())
    records: list[object] = []
    for given in (
        arrives("A", 1),
        arrives("B", 2),
        arrives("A", 3),
        arrives("B", 4),
        arrives("A", 5),
    ):
        for effect in subscriber.handle(1, given):
            if isinstance(effect, Persist):
                records += effect.records
    reborn = machine()
    again = reborn.handle(2, Started(tuple(records), taken_count=1))  # type: ignore[arg-type]
    assert relations(again) == [(2, ("p:3", "p:4"))]
    assert relations(reborn.handle(3, arrives("B", 6))) == [(3, ("p:5", "p:6"))]
