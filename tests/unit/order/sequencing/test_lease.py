"""Leases: who is not heard of is forgotten, and has stopped delivering before."""

from __future__ import annotations

from random import Random

import msgspec

from concordant.machine.effects import Deliver, Effect, Note, Persist, Send
from concordant.machine.inputs import Message, Received, Started, TimerFired
from concordant.model.event import Event
from concordant.order.sequencing.client import SequencingClient
from concordant.order.sequencing.messages import (
    Create,
    Forget,
    Handled,
    Parcel,
    Renew,
    Renewed,
    SequencingOptions,
    Signed,
)
from concordant.order.sequencing.sequencer import TopicSequencer
from concordant.order.streams import Ask
from concordant.sim.swarm import random_scenario
from tests import laws

SEQUENCERS = {"a": "sequencer-a", "b": "sequencer-b"}
BOTH = {"s": ("a", "b"), "t": ("a", "b")}
OPTIONS = SequencingOptions(lease_us=8_000)


def sequencer(records: tuple[Handled, ...] = ()) -> TopicSequencer:
    found = TopicSequencer("b", sequencers=SEQUENCERS, subscriptions=BOTH, options=OPTIONS)
    found.handle(0, Started(records))
    return found


def sent(effects: list[Effect], to: str) -> list[Message]:
    return [m for e in effects if isinstance(e, Send) and e.to == to for m in e.messages]


def tick(machine: TopicSequencer, until: int, *renewing: str) -> list[Effect]:
    found: list[Effect] = []
    for now in range(2_000, until + 1, 2_000):
        for client in renewing:
            machine.handle(now, Received(client, (Renew(now),)))
        found += machine.handle(now, TimerFired(("lease",)))
    return found


def test_who_renews_is_kept_and_who_does_not_is_forgotten() -> None:
    machine = sequencer()
    effects = tick(machine, 14_000, "s")
    records = [r for e in effects if isinstance(e, Persist) for r in e.records]
    assert records == [Handled("", 0, 0, Forget("t", (0, 0)))]
    answers = [sent(machine.handle(1, Received(c, (Renew(1),))), c) for c in ("s", "t")]
    assert answers == [[Renewed("b", 1, True)], [Renewed("b", 1, False)]]


def test_an_edge_that_only_the_dead_held_is_gone_also_after_a_crash() -> None:
    machine = sequencer()
    records = [r for e in tick(machine, 20_000) if isinstance(e, Persist) for r in e.records]
    reborn = sequencer(tuple(one for one in records if isinstance(one, Handled)))
    for one in (machine, reborn):
        create = Parcel(1, 1, Create(1, (Event("b", "p", 1, 1),)))
        effects = one.handle(30_000, Received("p", (create,)))
        assert sent(effects, "sequencer-a") == []  # nobody has to sign any longer


def client() -> SequencingClient:
    found = SequencingClient("s", sequencers=SEQUENCERS, topics=("a",), options=OPTIONS)
    found.handle(0, Started())
    return found


def signed(n: int) -> Signed:
    return Signed(n, Event("a", "p", n, n), {"a": n})


def delivered(effects: list[Effect]) -> list[int]:
    deliveries = (d for e in effects if isinstance(e, Deliver) for d in e.deliveries)
    return [one.events[0].seq for one in deliveries]


def test_a_subscriber_delivers_only_while_its_lease_stands() -> None:
    machine = client()
    assert delivered(machine.handle(10, Received("sequencer-a", (signed(1),)))) == []
    machine.handle(20, Received("sequencer-a", (Renewed("a", 0, True),)))
    assert delivered(machine.handle(30, Received("sequencer-a", (signed(1),)))) == [1]
    # Half of the lease after the renewal was sent, it could be forgotten soon.
    assert delivered(machine.handle(4_000, Received("sequencer-a", (signed(2),)))) == []
    asked = sent(machine.handle(30_000, TimerFired(("ask",))), "sequencer-a")
    assert asked == [Ask(("sequencer-a", "a"), 2, 2)]


def test_what_waits_is_let_go_when_the_lease_no_longer_stands() -> None:
    machine = client()
    machine.handle(20, Received("sequencer-a", (Renewed("a", 0, True),)))
    machine.handle(30, Received("sequencer-a", (signed(2),)))
    machine.handle(5_000, TimerFired(("renew",)))
    machine.handle(5_100, Received("sequencer-a", (Renewed("a", 5_000, True),)))
    assert delivered(machine.handle(5_200, Received("sequencer-a", (signed(1),)))) == [1]


def test_who_was_forgotten_subscribes_anew() -> None:
    machine = client()
    effects = machine.handle(2_000, Received("sequencer-a", (Renewed("a", 1_000, False),)))
    steps = [effect.step for effect in effects if isinstance(effect, Note)]
    assert steps == ["unsubscribe"]
    assert machine.held_count > 0  # the topic is on its way to be subscribed


def test_the_laws_hold_with_leases() -> None:
    scenario = random_scenario("sequencing", 3)
    scenario = msgspec.structs.replace(
        scenario, parameters={**scenario.parameters, "lease_us": 60_000}
    )
    for life in laws.lives_of(scenario, seed=3):
        laws.a_batch_equals_its_items(life, Random(3))
        laws.a_restored_machine_goes_on_alike(life, Random(3))
        laws.effects_repeat_their_cause(life)
