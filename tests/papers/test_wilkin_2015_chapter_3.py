"""Wilkin 2015, chapter 3: what ordered merging keeps, on its smallest cases, and what not."""

from __future__ import annotations

from concordant.check.levels import check_level
from concordant.language import checked, parse
from concordant.machine.requests import Publish
from concordant.model.kind import Kind
from concordant.model.topic import Schemas, Topic, schemas
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.overlay import hosts_of
from concordant.order.replication import ReplicationOptions
from concordant.sim.merging import add_clients, add_hosts
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.recorder import Recorder
from concordant.sim.world import World

OPTIONS = MergingOptions(replication=ReplicationOptions(replica_count=1))
HOSTS = ("m1", "m2", "m3", "m4")
MS = 1_000


def topics() -> Schemas:
    return schemas(Topic(name, {"a": Kind.INT}) for name in "ABCD")


def played(
    subscribers: dict[str, tuple[str, ...]],
    events: list[tuple[str, int]],
    *,
    slow: dict[tuple[str, str], int] | None = None,
    gap_us: int = 20 * MS,
) -> Recorder:
    """Events are published one after the other; `slow` links take so much longer."""
    recorder = Recorder("chapter 3", level="agreed")
    network = NetworkSpec(Latency("constant", 1 * MS, 1 * MS))
    world = World(seed="3", network=network, recorder=recorder)
    add_hosts(world, HOSTS, options=OPTIONS)
    subscriptions = {}
    for name, texts in subscribers.items():
        good, _ = checked([one for text in texts for one in parse(text)], topics())
        subscriptions[name] = good
    add_clients(
        world,
        [*subscribers, "p"],
        HOSTS,
        topics={},
        publishes={"p": tuple("ABCD")},
        subscriptions=subscriptions,
        schemas=topics(),
        options=OPTIONS,
    )
    world.start()
    world.run(500 * MS)
    for source, target in slow or {}:
        link, place = world._link(world.places[source], target)
        delay = (slow or {})[source, target]
        link.draw = lambda delay=delay: delay
        world.places[source].links[target] = (link, place)
    for topic, value in events:
        world.command("p", Publish(topic, {"a": value}))
        world.run(world.now + gap_us)
    world.run(world.now + 3_000 * MS)
    recorder.noted(world.now, "", "end")
    return recorder


def relations(recorder: Recorder, process: str) -> list[tuple[str, ...]]:
    return [r.events for r in recorder.rows() if r.step == "deliver" and r.process == process]


EVENTS = [("B", 1), ("B", 2), ("A", 2), ("A", 1), ("C", 1), ("A", 2), ("B", 2), ("C", 2)]


def test_conjunction_agreement_the_same_conjunction_gives_the_same_relations() -> None:
    found = played(dict.fromkeys(("s", "t", "u"), ("q: A.a = B.a",)), EVENTS)
    assert relations(found, "s") == relations(found, "t") == relations(found, "u")
    assert len(relations(found, "s")) >= 1
    assert all(verdict.holds for verdict in check_level(found.rows(), "agreed"))


def test_covering_the_longer_conjunction_has_the_relations_of_its_prefix() -> None:
    found = played({"s": ("q: A and B",), "t": ("r: A and B and C",)}, EVENTS)
    short = relations(found, "s")
    assert short and all(relation[:2] in short for relation in relations(found, "t"))


def test_disjunction_total_order_holds_whatever_else_is_subscribed() -> None:
    both = ("q: A and B", "r: A.a <= B.a")
    found = played({"s": both, "t": (*reversed(both), "u: C and D")}, EVENTS)
    mine = [r.subscription + str(r.events) for r in found.rows() if r.process == "s"]
    theirs = [
        r.subscription + str(r.events)
        for r in found.rows()
        if r.process == "t" and r.subscription in ("q", "r")
    ]
    assert [one for one in mine if one[0] in "qr"] == theirs
    assert all(verdict.holds for verdict in check_level(found.rows(), "agreed"))


def test_an_event_of_two_conjunctions_is_fed_to_both_once() -> None:
    # Figure 3.7 l.12 keys by topic: it loses the second copy, or takes it twice (erratum 2).
    found = played({"s": ("q: A and B", "r: A and C")}, [("A", 1), ("B", 1), ("C", 1)])
    assert sorted(relations(found, "s")) == [("p:1", "p:2"), ("p:1", "p:3")]


def test_the_newest_event_does_not_wait_for_ever() -> None:
    # Figure 3.7 l.18 needs a younger event on every other stream (erratum 5).
    found = played({"s": ("q: A and B", "r: C and D")}, [("A", 1), ("B", 1)])
    assert relations(found, "s") == [("p:1", "p:2")]


def test_agreed_is_not_total() -> None:
    # Two mergers over different topics interleave the topics that they share as they like:
    # with a1=2 a2=1 c1=1 c2=2, [A,C] sees a1 a2 c1 c2, and [A,B,C] sees c1 c2 before a1 a2.
    (ab,), (abc,) = hosts_of(("A", "B"), HOSTS, 1), hosts_of(("A", "B", "C"), HOSTS, 1)
    assert ab not in (abc, *hosts_of(("C",), HOSTS, 1)), "the slow link is of A+B alone"
    slow = {(ab, abc): 200 * MS}
    found = played(
        {"s": ("q: A.a = C.a",), "t": ("r: A.a = C.a and B",)},
        [("B", 0), ("A", 2), ("A", 1), ("C", 1), ("C", 2)],
        slow=slow,
    )
    assert relations(found, "s")[0] == ("p:3", "p:4")
    assert relations(found, "t")[0] == ("p:2", "p:1", "p:5")
    assert all(verdict.holds for verdict in check_level(found.rows(), "agreed"))
