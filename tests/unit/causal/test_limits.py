"""Every bound of brokers and clients: what happens when it is reached, and that nothing is lost."""

from __future__ import annotations

import pytest

from concordant.causal.broker import Broker
from concordant.causal.messages import Ack, Carried, Ordered, Submit, Submitted
from concordant.causal.options import BrokerOptions, ClientOptions
from concordant.causal.placement import Everywhere
from concordant.causal.records import Condensed
from concordant.causal.requests import Address, Migrate
from concordant.causal.subscriber import Subscriber
from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Persist, Send
from concordant.machine.inputs import Command, Received, Started, TimerFired
from concordant.machine.requests import Install, Publish, Subscribe
from concordant.machine.saved import Compact
from concordant.machine.view import View
from concordant.model.event import Event
from tests.causal_stage import Stage, event

MEMBERS = {"g": ("A", "B"), "h": ("B", "C")}


def ordered(number: int, *, follows: int) -> Ordered:
    past = {"g": {"A": follows}} if follows else {}
    what = Event("g", "p", number, number)
    return Ordered("A", number, {"g": number}, number, past, what)


def test_a_broker_holds_back_so_many_events_and_asks_again_for_the_others() -> None:
    broker = Broker("B", members=MEMBERS, options=BrokerOptions(pending_count_max=2))
    broker.handle(0, Started())
    late = tuple(ordered(number, follows=number - 1) for number in (5, 4, 3, 2))
    broker.handle(0, Received("A", late))
    assert [one.number for one in broker.state.pending.waiting.values()] == [3, 2]
    broker.handle(0, Received("A", (ordered(1, follows=0),)))
    assert broker.state.delivered == {"g": {"A": 3}}


def test_a_broker_takes_so_many_publications_that_wait() -> None:
    broker = Broker("B", members=MEMBERS, options=BrokerOptions(submitted_count_max=1))
    broker.handle(0, Started())
    for client in ("p", "q"):
        submit = Submit(1, Event("g", client, 1, 1), ("g",), {"g": {"A": 9}}, 9)
        broker.handle(0, Received(client, (submit,)))
    assert list(broker.state.submissions) == ["p"]


@pytest.mark.parametrize(("name", "count"), [("digest_count_max", 3), ("pull_count_max", 2)])
def test_an_answer_has_so_many_events_the_oldest_first(name: str, count: int) -> None:
    stage = Stage(MEMBERS, broker_options=BrokerOptions(**{name: count}, lease_us=10**9))
    stage.client("s", "g", at="B")
    stage.client("p", at="B")
    stage.flow()
    ids = []
    for _ in range(6):
        ids.append(stage.publish("p", "g"))
        stage.flow(lambda source, to, message: isinstance(message, Ordered | Carried))
    stage.lose(lambda source, to, message: isinstance(message, Ordered | Carried))
    if name == "digest_count_max":
        stage.tick("A")
        stage.flow(lambda source, to, message: source == "B" and to == "A")
        sent = [m.event.id for _, to, m in stage.wires if isinstance(m, Ordered) and to == "A"]
    else:
        stage.now += 1_000_000  # what was sent should have arrived by now
        stage.give("B", Received("s", (Ack(1, {}, {}, ()),)))
        sent = [m.event.id for _, to, m in stage.wires if isinstance(m, Carried)]
    assert sent == ids[:count]
    stage.settle()
    assert stage.delivered["s"] == ids


def test_who_is_too_slow_is_cut_off_and_told_of_a_gap() -> None:
    options = BrokerOptions(retained_count_max=3, lease_us=10**12)
    stage = Stage({"g": ("A", "B")}, broker_options=options)
    stage.client("s", "g", at="A")
    stage.client("p", at="A")
    stage.flow()
    deaf = lambda source, to, message: to == "s"  # noqa: E731
    ids = []
    for _ in range(6):
        ids.append(stage.publish("p", "g"))
        stage.flow(deaf)
    stage.lose(deaf)
    for _ in range(8):
        stage.tick("A", "B")
        stage.flow(deaf)
    assert not stage.broker("A").state.retained.log
    stage.lose(deaf)
    stage.settle()
    assert stage.delivered["s"] == [""]  # no event, but said so


def test_who_is_silent_for_longer_than_the_lease_no_longer_holds_events() -> None:
    stage = Stage({"g": ("A", "B")}, broker_options=BrokerOptions(lease_us=300_000))
    stage.client("s", "g", at="A")
    stage.client("p", at="A")
    stage.flow()
    stage.publish("p", "g")
    stage.flow(lambda source, to, message: to == "s")
    stage.lose(lambda source, to, message: to == "s")
    for _ in range(8):
        stage.tick("A", "B")
        stage.flow()
    assert not stage.broker("A").state.retained.log
    stage.settle()
    assert stage.delivered["s"] == [""]


def test_a_client_refuses_to_publish_beyond_its_outbox() -> None:
    client = Subscriber(
        "p", members=MEMBERS, publishes=("g",), options=ClientOptions(outbox_count_max=2)
    )
    client.handle(0, Started())
    client.handle(0, Command((Publish("g"), Publish("g"))))
    before = client.snapshot()
    with pytest.raises(UsageError, match="no room for more"):
        client.handle(0, Command((Publish("g"),)))
    assert client.snapshot() == before


def test_a_client_holds_back_so_many_events_and_gets_the_others_again() -> None:
    stage = Stage({"g": ("A", "B")})
    client = stage.client("s", "g", at="A")
    client.state.inbox.waiting.count_max = 2
    stage.client("p", at="A")
    stage.flow()
    first = stage.publish("p", "g")
    stage.flow(lambda source, to, message: to == "s" and event(message, first))
    ids = [first]
    for _ in range(5):
        ids.append(stage.publish("p", "g"))
        stage.flow(lambda source, to, message: to == "s" and event(message, first))
    assert client.state.inbox.held_count == 2
    stage.lose(lambda source, to, message: to == "s")
    stage.settle()
    assert stage.delivered["s"] == ids


def test_a_broker_lets_its_state_take_the_place_of_its_log() -> None:
    broker = Broker("A", members=Everywhere(["A"]))
    broker.handle(0, Started())
    disk: list[object] = []
    for number in range(1, 9):
        submit = Submit(number, Event("T", "p", number, number), ("T",), {}, 0)
        for effect in (
            *broker.handle(0, Received("p", (submit,))),
            *broker.handle(0, TimerFired(("tick",))),
            *(broker.handle(0, Command((Compact(),))) if number % 5 == 0 else ()),
        ):
            if isinstance(effect, Persist):
                disk = [*([] if effect.replaces else disk), *effect.records]
    assert isinstance(disk[0], Condensed)
    assert len(disk) == 1 + 3
    again = Broker("A", members=Everywhere(["A"]))
    again.handle(0, Started(tuple(disk)))  # type: ignore[arg-type]
    assert again.state.delivered == broker.state.delivered
    assert again.state.number == 8
    assert again.state.round >= broker.state.promised


def test_a_repeated_submission_is_known_after_a_crash() -> None:
    broker = Broker("A", members=Everywhere(["A"]))
    broker.handle(0, Started())
    submit = Submit(1, Event("T", "p", 1, 1), ("T",), {}, 0)
    effects = broker.handle(0, Received("p", (submit,)))
    disk = tuple(r for one in effects if isinstance(one, Persist) for r in one.records)
    again = Broker("A", members=Everywhere(["A"]))
    again.handle(0, Started(disk))
    (answer,) = [
        message
        for one in again.handle(0, Received("p", (submit,)))
        if isinstance(one, Send)
        for message in one.messages
    ]
    assert isinstance(answer, Submitted)
    assert answer.context == {"T": {"A": 1}}
    assert again.state.number == 1


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Publish("x"), "does not publish to the topic 'x'"),
        (Address(()), "an event needs a topic"),
        (Address(("g", "h", "k")), "no broker serves"),
        (Subscribe(("nowhere",)), "no broker serves nowhere"),
        (Migrate(("Z",)), "cannot be served by Z"),
        (Migrate(()), "cannot be served by nobody"),
        (Install(View(1)), "cannot Install"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(request_: object, says: str) -> None:
    members = {**MEMBERS, "k": ("C",)}
    client = Subscriber("s", members=members, topics=("g",), publishes=("g", "h", "k"))
    client.handle(0, Started())
    before = client.snapshot()
    with pytest.raises(UsageError, match=says):
        client.handle(0, Command((request_,)))  # type: ignore[arg-type]
    assert client.snapshot() == before


def test_times_of_a_source_increase() -> None:
    client = Subscriber("p", members=MEMBERS, publishes=("g",))
    client.handle(0, Started())
    client.handle(0, Command((Publish("g", time=5),)))
    with pytest.raises(UsageError, match="5 is too early"):
        client.handle(0, Command((Publish("g", time=5),)))


def test_a_profile_with_one_home_refuses_topics_that_no_broker_serves_together() -> None:
    with pytest.raises(UsageError, match="one home only"):
        Subscriber("s", members={"g": ("A",), "h": ("B",)}, topics=("g", "h"), profile="rounds")


def test_a_broker_refuses_what_strangers_say() -> None:
    broker = Broker("B", members=MEMBERS)
    broker.handle(0, Started())
    foreign = Ordered("C", 1, {"g": 1}, 1, {}, Event("g", "p", 1, 1))  # C does not serve g
    for source, message in (
        ("A", foreign),
        ("s", ordered(1, follows=0)),
        ("s", Ack(1, {}, {}, ())),
    ):
        if isinstance(message, Ack):
            broker.handle(0, Received(source, (message,)))  # is told that it is not attached
            continue
        with pytest.raises(PeerError):
            broker.handle(0, Received(source, (message,)))
    assert broker.state.delivered == {}
