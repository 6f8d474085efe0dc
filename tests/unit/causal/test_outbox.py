"""Publications under way: in a chain, and again from the first that was not answered."""

from __future__ import annotations

from concordant.causal.messages import Carried, Submit
from concordant.causal.outbox import Outbox
from concordant.machine.inputs import Received
from concordant.model.event import Event
from tests.causal_stage import Stage


def flown(outbox: Outbox, now: int = 0, count_max: int = 10) -> list[int]:
    serves = {"A": ("T",), "B": ("T", "U")}
    chosen = outbox.fly(
        now, serves, best=lambda topics: "A" if "U" not in topics else "B", count_max=count_max
    )
    return [number for number, _ in chosen]


def filled(*topics: str) -> Outbox:
    outbox = Outbox()
    for number, topic in enumerate(topics, 1):
        outbox.add(Event(topic, "p", number, number), (topic,))
    return outbox


def test_no_more_than_a_bound_is_under_way() -> None:
    outbox = filled("T", "T", "T")
    assert flown(outbox, count_max=2) == [1, 2]
    outbox.settle(1)
    assert flown(outbox, count_max=2) == [3]


def test_a_flight_begins_anew_where_answers_came_out_of_turn() -> None:
    outbox = filled("T", "T", "T")
    assert flown(outbox) == [1, 2, 3]
    outbox.settle(2)
    outbox.turn(5, "A")
    assert flown(outbox) == [1, 3]
    assert outbox.flying_count == 2


def test_what_the_broker_of_a_flight_does_not_serve_waits_until_all_is_answered() -> None:
    outbox = filled("T", "U")
    assert flown(outbox) == [1]
    assert outbox.target == "A"
    outbox.settle(1)
    assert flown(outbox) == [2]
    assert (outbox.target, outbox.after) == ("B", 2)


def test_what_was_sent_before_and_the_next_one_carry_everything() -> None:
    stage = Stage({"g": ("A", "B")})
    stage.client("p", "g", at="A")
    stage.flow()
    stage.publish("p", "g")
    stage.flow(lambda source, to, message: source == "A" and to == "p")
    # The answer is lost, and the client learns something before it repeats.
    stage.lose(lambda source, to, message: source == "A" and to == "p")
    carried = Carried(1, "B", 1, {"g": 1}, 7, (), b"", Event("g", "q", 1, 1))
    stage.give("p", Received("A", (carried,)))
    stage.tick("p")
    stage.publish("p", "g")
    submits = [message for *_, message in stage.wires if isinstance(message, Submit)]
    assert [one.number for one in submits] == [1, 2]
    assert [one.context for one in submits] == [{"g": {"B": 1}}] * 2
    assert [one.after for one in submits] == [0, 1]
