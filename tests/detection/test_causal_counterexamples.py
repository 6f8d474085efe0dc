"""Counterexamples for causal delivery, message by message.

Each tells what happens under the protocol, and (where a misreading breaks it) what would happen
under the misreading. Random schedules alone do not find all of them.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from concordant.causal.broker import Broker
from concordant.causal.flush import Flush
from concordant.causal.inbox import Inbox, Waiting
from concordant.causal.messages import (
    Attached,
    Carried,
    Digest,
    Ordered,
    PullPast,
    Resolved,
    Submitted,
)
from concordant.causal.requests import Migrate
from concordant.causal.retained import Retained
from concordant.causal.service import Service
from concordant.machine.inputs import Message
from concordant.machine.requests import Subscribe, Unsubscribe
from tests.causal_stage import Stage, between, event

GROUPS = {"G1": ("A", "B", "C"), "G2": ("A", "B", "D")}
"""Kim and Ahn, figures 4 to 6."""


def a_path_through_a_topic_not_received() -> Stage:
    """a1 (G1, G2), then c1 (G1), then b1 (G1, G2); S4 has G2 only, and gets b1 before a1."""
    stage = Stage(GROUPS)
    stage.client("s4", "G2", at="D")
    for name, home in (("pa", "A"), ("pb", "B"), ("pc", "C")):
        stage.client(name, "G1", at=home)
    stage.flow()
    a1 = stage.publish("pa", "G1", "G2")

    def late(source: str, to: str, message: Message) -> bool:
        return to == "D" and (event(message, a1) or isinstance(message, PullPast))

    stage.flow(late)
    c1 = stage.publish("pc", "G1")
    stage.flow(late)
    b1 = stage.publish("pb", "G1", "G2")
    stage.flow(lambda *wire: late(*wire) or isinstance(wire[2], PullPast))
    assert stage.delivered["pb"] == [a1, c1, b1]
    return stage


def test_b1_waits_for_a1_though_s4_never_receives_c1() -> None:
    stage = a_path_through_a_topic_not_received()
    assert "s4" not in stage.delivered
    stage.settle()
    assert stage.delivered["s4"] == ["pa:1", "pb:1"]


def ce5() -> tuple[Stage, list[str]]:
    """x (g) before y (g), which dies with M, before m (h): C must not deliver m before x."""
    stage = Stage({"g": ("A", "C", "M"), "h": ("C", "D", "M")})
    stage.client("s", "g", "h", at="C")
    stage.client("pa", at="A")
    stage.client("pm", at="M")
    stage.flow()
    x = stage.publish("pa", "g")
    late = between("A", "C", x)
    stage.flow(lambda *wire: late(*wire) or between("M", "C", x)(*wire))
    stage.lose(between("M", "C", x))
    y = stage.publish("pm", "g")
    lost = [between("M", one, y) for one in ("A", "C")]
    stage.flow(lambda *wire: late(*wire) or any(one(*wire) for one in lost))
    m = stage.publish("pm", "h")
    stage.flow(
        lambda *wire: (
            late(*wire)
            or any(one(*wire) for one in lost)
            or isinstance(wire[2], PullPast)
            or between("M", "D", m)(*wire)
        )
    )
    assert len(stage.broker("C").state.pending) == 1
    stage.kill("M")
    stage.suspect("M", "A", "C", "D")
    stage.flow(lambda *wire: late(*wire) or isinstance(wire[2], Digest))
    assert stage.broker("C").state.flush.done
    stage.settle()
    return stage, [x, m]


def test_ce5_what_lies_behind_a_lost_event_is_still_waited_for() -> None:
    stage, in_order = ce5()
    assert stage.delivered["s"] == in_order


def test_ce5_with_immediate_predecessors_between_brokers_is_unsafe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    correct = Broker._past

    def past(self: Any) -> Any:
        whole = [(t, o, n) for t, row in correct(self).items() for o, n in row.items()]
        found: dict[str, dict[str, int]] = {}
        for topic, origin, n in self.state.retained.immediate(whole):
            found.setdefault(topic, {})[origin] = n
        return found

    monkeypatch.setattr(Broker, "_past", past)
    stage, (x, m) = ce5()
    assert stage.delivered["s"] == [m, x]


def a_client_that_brings_a_past() -> tuple[Stage, str, str]:
    """x (h) at A, y (g) after it at A; a client has y, goes to B, and publishes m (h) there."""
    stage = Stage({"g": ("A", "C"), "h": ("A", "B"), "k": ("B", "C")})
    stage.client("s", "h", at="B")
    stage.client("pa", at="A")
    client = stage.client("w", "g", at="C")
    stage.flow()
    x = stage.publish("pa", "h")
    stage.flow(between("A", "B", x))
    stage.publish("pa", "g")
    stage.flow(between("A", "B", x))
    stage.ask("w", Unsubscribe(("g",)), Subscribe(("k",)), Migrate(("B",)))
    stage.flow(between("A", "B", x))
    assert client.state.context == {"g": {"A": 1}}
    m = stage.publish("w", "h")
    client.state.outbox.target = "B"
    stage.lose(lambda source, to, message: event(message, m))
    stage.tick("w")
    stage.flow(between("A", "B", x))
    stage.settle()
    return stage, x, m


def test_a_client_brings_the_whole_past_of_what_it_knows() -> None:
    stage, x, m = a_client_that_brings_a_past()
    assert stage.delivered["s"] == [x, m]


@pytest.mark.parametrize("misreading", ["position only", "foreign topics only"])
def test_half_of_a_clients_past_is_unsafe(monkeypatch: pytest.MonkeyPatch, misreading: str) -> None:
    correct = Service.resolved

    def resolved(self: Any, answer: Resolved, out: Any) -> None:
        keep = {} if misreading == "position only" else answer.delivered
        foreign = {t: row for t, row in keep.items() if t not in self._broker.topics}
        named = Resolved(answer.topic, answer.origin, answer.position, foreign, answer.round)
        correct(self, named, out)

    monkeypatch.setattr(Service, "resolved", resolved)
    stage, x, m = a_client_that_brings_a_past()
    assert stage.delivered["s"] == [m, x]


def two_homes_and_a_hidden_predecessor() -> tuple[Stage, str, str, str]:
    """x (g at C), then y (h at D), then z (h): who joins h after y must still get x before z."""
    stage = Stage({"g": ("A", "C"), "h": ("A", "D")})
    stage.client("s", "g", at="C")
    stage.client("px", at="A")
    stage.client("pa", at="A")
    stage.flow()
    x = stage.publish("px", "g")
    late = between("A", "C", x)
    stage.flow(late)
    y = stage.publish("pa", "h")
    stage.flow(late)
    stage.ask("s", Subscribe(("h",)), Migrate(("C", "D")))
    stage.flow(late)
    z = stage.publish("pa", "h")
    stage.flow(late)
    return stage, x, y, z


def test_with_two_homes_all_predecessors_are_named() -> None:
    stage, x, _, z = two_homes_and_a_hidden_predecessor()
    assert "s" not in stage.delivered
    stage.settle()
    assert stage.delivered["s"] == [x, z]


def test_with_two_homes_reduced_predecessors_are_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    correct = Service._carried

    def carried(self: Any, ordered: Ordered, session: Any) -> Carried:
        found = correct(self, ordered, session)
        log = self._broker.state.retained.log
        kept = tuple(
            (t, o, n)
            for t, o, n in found.predecessors
            if not any(one.past.get(t, {}).get(o, 0) >= n for one in log.values() if one != ordered)
        )
        return msgspec.structs.replace(found, predecessors=kept)

    monkeypatch.setattr(Service, "_carried", carried)
    stage, x, _, z = two_homes_and_a_hidden_predecessor()
    stage.settle()
    assert stage.delivered["s"] == [z, x]


def test_a_second_answer_to_an_attach_loses_nothing() -> None:
    stage = Stage({"g": ("A", "B")})
    client = stage.client("s", "g", at="A")
    stage.tick("s")  # asks again
    stage.flow(lambda source, to, message: to == "s")
    answers = [wire for wire in stage.wires if isinstance(wire[2], Attached)]
    assert len(answers) == 2
    stage.client("p", at="A")
    e = stage.publish("p", "g")
    stage.flow(lambda source, to, message: to == "s")
    stage.flow()
    assert client.state.attached
    assert stage.delivered["s"] == [e]


def test_what_was_lost_after_it_was_sent_is_not_waited_for_for_ever() -> None:
    """y reaches M only; m, which follows y, reaches C and is carried before M dies."""
    stage = Stage({"g": ("C", "D", "M"), "h": ("C", "D", "M")})
    stage.client("s", "g", "h", at="C")
    stage.client("pm", at="M")
    stage.flow()
    y = stage.publish("pm", "g")
    stage.flow(lambda source, to, message: source == "M" and isinstance(message, Ordered))
    m = stage.publish("pm", "h")
    hold_y = lambda source, to, message: source == "M" and event(message, y)  # noqa: E731
    stage.flow(lambda *wire: hold_y(*wire) or isinstance(wire[2], PullPast))
    stage.kill("M")
    stage.suspect("M", "C", "D")
    stage.settle()
    assert stage.delivered["s"] == [m]


def test_without_a_flush_a_lost_event_is_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Flush, "adopt", lambda self, suspects, brokers: False)
    stage, (x, _) = ce5()
    assert stage.delivered["s"] == [x]


def a_predecessor_is_lost_after_it_was_named() -> tuple[Stage, str]:
    """D carries m with y as predecessor; y should come from C, and dies with M."""
    stage = Stage({"g": ("C", "E", "M"), "h": ("D", "E", "M")})
    stage.client("s", "g", "h", at="CD")
    stage.ask("s", Migrate(("C", "D")))
    stage.client("pm", at="M")
    stage.flow()
    y = stage.publish("pm", "g")
    stage.flow(lambda source, to, message: isinstance(message, Ordered))
    m = stage.publish("pm", "h")
    stage.flow(lambda source, to, message: event(message, y) or isinstance(message, PullPast))
    assert stage.machines["s"].held_count == 1
    stage.kill("M")
    stage.suspect("M", "C", "D", "E")
    stage.settle()
    return stage, m


def test_a_predecessor_found_lost_is_taken_back() -> None:
    stage, m = a_predecessor_is_lost_after_it_was_named()
    assert stage.delivered["s"] == [m]


def test_without_newer_predecessors_an_event_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    correct = Inbox.put

    def put(self: Inbox, one: Waiting) -> None:
        if one.carried.id not in self.waiting_ids():
            correct(self, one)

    monkeypatch.setattr(Inbox, "put", put)
    stage, _ = a_predecessor_is_lost_after_it_was_named()
    assert stage.machines["s"].held_count == 1


def test_the_candidates_of_an_event_are_those_of_the_subscribers_topics() -> None:
    stage = a_path_through_a_topic_not_received()
    broker = stage.broker("B")
    b1 = next(one for one in broker.state.retained.log.values() if one.event.id == "pb:1")
    retained: Retained = broker.state.retained
    for_s4 = retained.immediate(retained.candidates(b1, ("G2",), broker.topics, {}))
    for_all = retained.immediate(retained.candidates(b1, ("G1", "G2"), broker.topics, {}))
    assert for_s4 == (("G2", "A", 1),)
    assert for_all == (("G1", "C", 1),)


def test_a_publication_is_answered_again_and_ordered_once() -> None:
    stage = Stage({"g": ("A", "B")})
    stage.client("s", "g", at="A")
    stage.client("p", at="A")
    stage.flow()
    e = stage.publish("p", "g")
    stage.flow(lambda source, to, message: isinstance(message, Submitted))
    stage.lose(lambda source, to, message: isinstance(message, Submitted))
    stage.settle()
    assert stage.delivered["s"] == [e]
    assert stage.machines["p"].held_count == 0
