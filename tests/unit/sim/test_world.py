"""The world on its own: time, disks, crashes, pauses, links, with machines made for the purpose."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from concordant.errors import InvariantViolation
from concordant.machine.effects import (
    CancelTimer,
    Deliver,
    Delivery,
    Disseminate,
    Effect,
    Ignore,
    Listen,
    Persist,
    Send,
    SetTimer,
)
from concordant.machine.inputs import Command, Input, Received, Started
from concordant.sim.network import FAST, SLOW, Latency, Network, NetworkSpec
from concordant.sim.world import World

CONSTANT = NetworkSpec(Latency("constant", 1_000, 1_000))


class Told(msgspec.Struct, frozen=True):
    """A message, a request and a record, as it is needed."""

    number: int = 0


class Script:
    """A machine that answers each input as a table says, and remembers what it was given."""

    def __init__(self, answers: dict[type, list[Effect]] | None = None) -> None:
        self.answers = answers or {}
        self.given: list[tuple[int, Input]] = []

    def handle(self, now: int, given: Input) -> list[Effect]:
        self.given.append((now, given))
        return self.answers.get(type(given), [])

    held_count = 0

    def snapshot(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:
        del data


def world_of(*, network: NetworkSpec = CONSTANT, sync_us: int = 0, **machines: Script) -> World:
    world = World(seed="1", network=network)
    for name, machine in machines.items():
        world.add(name, lambda machine=machine: machine, sync_us=sync_us)
    world.start()
    return world


def kinds(machine: Script) -> list[str]:
    return [type(given).__name__ for _, given in machine.given]


def test_a_message_arrives_after_its_latency() -> None:
    a, b = Script({Command: [Send("b", (Told(1),))]}), Script()
    world = world_of(a=a, b=b)
    world.call(500, lambda: world.command("a", Told()) and None)
    world.run(1_499)
    assert kinds(b) == ["Started"]
    world.run(1_500)
    assert b.given[-1][0] == 1_500
    assert isinstance(b.given[-1][1], Received)


def test_effects_wait_for_the_disk_and_one_write_serves_all_that_came_meanwhile() -> None:
    a = Script({Command: [Persist((Told(1),)), Send("b", (Told(1),))]})
    b = Script()
    world = world_of(a=a, b=b, sync_us=10_000)
    for at in (0, 1, 2):
        world.call(at, lambda: world.command("a", Told()) and None)
    world.run(10_999)
    assert kinds(b) == ["Started"]
    world.run(11_000)
    assert kinds(b) == ["Started", "Received"]
    world.run(21_000)  # the second and third by one write
    assert kinds(b) == ["Started"] + 3 * ["Received"]
    assert world.places["a"].log == 3 * [Told(1)]


def test_what_was_not_synced_may_be_lost_and_nobody_was_told() -> None:
    kept = set()
    for seed in range(30):
        a = Script({Command: [Persist((Told(1), Told(2))), Send("b", (Told(1),))]})
        b = Script()
        world = World(seed=str(seed), network=CONSTANT)
        world.add("a", lambda a=a: a, sync_us=5_000)
        world.add("b", lambda b=b: b)
        world.start()
        world.command("a", Told())
        world.run(2_000)
        world.crash("a")
        world.run(60_000)
        assert kinds(b) == ["Started"]
        kept.add(len(world.places["a"].log))
    assert kept == {0, 1, 2}


def test_a_failing_write_ends_the_life_of_a_node() -> None:
    a, b = Script({Command: [Persist((Told(1),)), Send("b", (Told(1),))]}), Script()
    world = world_of(a=a, b=b)
    world.nodes["a"].doomed = "failing-writes"
    world.command("a", Told())
    world.run(10_000)
    assert not world.nodes["a"].up
    assert kinds(b) == ["Started"]
    assert not world.command("a", Told())


def test_a_restarted_node_has_its_records_and_knows_what_the_application_took() -> None:
    deliver = Deliver((Delivery((), 1), Delivery((), 2)))
    a = Script({Command: [Persist((Told(7),)), deliver, SetTimer("late", 5_000)]})
    world = world_of(a=a)
    world.command("a", Told())
    world.crash("a")
    world.run(10_000)  # the timer of the old life does not fire
    world.restart("a")
    assert kinds(a) == ["Started", "Command", "Started"]
    given = a.given[-1][1]
    assert isinstance(given, Started)
    assert (given.records, given.taken_count) == ((Told(7),), 2)


def test_a_snapshot_replaces_the_log() -> None:
    a = Script({Command: [Persist((Told(1),)), Persist((Told(2),), replaces=True)]})
    world = world_of(a=a)
    world.command("a", Told())
    assert world.places["a"].log == [Told(2)]


def test_a_paused_node_takes_everything_later_and_in_order() -> None:
    a = Script({Command: [Send("b", (Told(1),)), Send("b", (Told(2),))]})
    b = Script({Started: [SetTimer("t", 1_500)]})
    world = world_of(a=a, b=b)
    world.command("a", Told())
    world.pause("b")
    world.run(9_000)
    assert kinds(b) == ["Started"]
    world.resume("b")
    world.run(9_000)
    assert kinds(b) == ["Started", "Received", "Received", "TimerFired"]


def test_a_service_time_makes_messages_queue() -> None:
    a = Script({Command: [Send("b", (Told(1), Told(2))), Send("b", (Told(3),))]})
    b = Script()
    world = World(seed="1", network=CONSTANT)
    world.add("a", lambda: a)
    world.add("b", lambda: b, service_us=100)
    world.start()
    world.command("a", Told())
    world.run(5_000)
    assert [now for now, given in b.given if isinstance(given, Received)] == [1_200, 1_300]


def test_a_timer_is_replaced_cancelled_and_read_from_a_wrong_clock() -> None:
    a = Script(
        {Command: [SetTimer("x", 100), SetTimer("x", 300), SetTimer("y", 50), CancelTimer("y")]}
    )
    world = world_of(a=a)
    world.nodes["a"].clock_offset_us = 60
    world.command("a", Told())
    world.run(1_000)
    assert [(now, type(given).__name__) for now, given in a.given[2:]] == [(300, "TimerFired")]


def test_only_listeners_hear_a_dissemination() -> None:
    a = Script({Command: [Disseminate("T", (Told(1),))]})
    b, c = Script({Started: [Listen(("T",))]}), Script({Started: [Listen(("T",)), Ignore(("T",))]})
    world = world_of(a=a, b=b, c=c)
    world.run(5_000)
    world.command("a", Told())
    world.run(10_000)
    assert kinds(b) == ["Started", "Listening", "Received"]
    assert kinds(c) == ["Started"]


def test_a_run_without_end_is_given_up() -> None:
    a = Script({Received: [Send("a", (Told(),))], Started: [Send("a", (Told(),))]})
    world = World(seed="1", network=CONSTANT, step_count_max=1_000)
    world.add("a", lambda: a)
    world.start()
    with pytest.raises(InvariantViolation, match="does not come to an end"):
        world.run(1)


def test_sending_to_nobody_is_a_bug_of_the_machine() -> None:
    world = world_of(a=Script({Command: [Send("nobody", (Told(),))]}))
    with pytest.raises(InvariantViolation, match="nobody"):
        world.command("a", Told())


# --- the network ----------------------------------------------------------------------------------


def network_of(spec: NetworkSpec) -> tuple[Network, list[str]]:
    counted: list[str] = []
    return Network(spec, Random(1), counted.append), counted


def test_a_fifo_link_keeps_the_order_that_another_does_not() -> None:
    for fifo in (True, False):
        network, _ = network_of(NetworkSpec(Latency("uniform", 0, 9_000), fifo=fifo))
        link = network.link("a", "b")
        times = [at for now in range(100) for at in network.arrivals(now, link, ())]
        assert (times == sorted(times)) is fifo


def test_bandwidth_makes_packets_queue_behind_each_other() -> None:
    network, _ = network_of(NetworkSpec(Latency("constant", 0, 0), bytes_per_s=1_000))
    link = network.link("a", "b")
    size = len(msgspec.msgpack.encode((Told(1),)))
    times = [network.arrivals(0, link, (Told(1),))[0] for _ in range(3)]
    assert times == [size * 1_000 * n for n in (1, 2, 3)]


def test_trouble_loses_doubles_and_parts() -> None:
    network, counted = network_of(CONSTANT)
    link = network.link("a", "b")
    network.trouble.loss = network.trouble.duplication = 0.5
    network.trouble.revise()
    found = [len(network.arrivals(0, link, ())) for _ in range(400)]
    assert 150 < found.count(0) < 250
    assert 60 < found.count(2) < 140
    network.trouble.parts = {"a": 1}
    network.trouble.revise()
    assert network.arrivals(0, link, ()) == ()
    assert set(counted) == {"loss", "duplication", "partition"}


def test_four_of_five_links_are_fast() -> None:
    network, _ = network_of(NetworkSpec(Latency("two-gaussian")))
    means = []
    for _ in range(200):
        draw = network.link("a", "b").draw
        means.append(sum(draw() for _ in range(50)) / 50)
    fast = [one for one in means if one < 80_000]
    assert 140 < len(fast) < 180
    assert sum(fast) / len(fast) == pytest.approx(FAST[0], rel=0.1)
    slow = [one for one in means if one >= 80_000]
    assert sum(slow) / len(slow) == pytest.approx(SLOW[0], rel=0.15)


def test_a_tree_has_as_many_hops_as_the_logarithm_to_the_base_16() -> None:
    for nodes, hops in ((16, 1.0), (256, 2.0), (100, 1.66), (10_000, 3.32)):
        spec = NetworkSpec(Latency("constant", 1, 1), dissemination="tree", overlay_nodes=nodes)
        network, _ = network_of(spec)
        links = [network.link("p", f"s{n}") for n in range(2_000)]
        delays = network.tree_delays("T", "p", links)
        down = [one - min(delays) + max(1, int(hops)) for one in delays]
        assert sum(down) / len(down) == pytest.approx(hops, abs=0.06)
