"""Brokers on a tree: tables come to be what they must be, and events reach whom they concern."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from concordant.check.overlay import check_tables, recipients
from concordant.errors import PeerError, UsageError
from concordant.machine.inputs import Command, Received
from concordant.model.event import Event
from concordant.route.broker import Broker
from concordant.route.client import Client
from concordant.route.filter import filter_of
from concordant.route.messages import Subscribed, Welcome
from concordant.route.requests import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from tests.unit.route.overlay import Overlay, random_tree

CLIENTS = ("c1", "c2", "c3", "c4")


def change(overlay: Overlay, client: str, rng: Random) -> None:
    """A random regular operation of a client."""
    core = overlay.core(client)
    low = rng.randrange(6)
    wanted = filter_of("T", x=(low, low + rng.randrange(3)))
    name = f"n{rng.randrange(3)}"
    if rng.random() < 0.5:
        request = Unsubscribe(name) if name in core.subscriptions else Subscribe(name, wanted)
    else:
        request = Unadvertise(name) if name in core.advertisements else Advertise(name, wanted)
    overlay.world.command(client, request)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("reliable", [False, True])
def test_tables_are_right_when_all_has_arrived(seed: int, reliable: bool) -> None:
    rng = Random(seed)
    tree = random_tree(rng, rng.randint(1, 6), CLIENTS)
    overlay = Overlay(tree, seed=seed, reliable=reliable, sync_us=rng.choice([0, 3_000]))
    world = overlay.world
    if reliable:
        world.network.trouble.loss = 0.1
        world.network.trouble.duplication = 0.1
        world.network.trouble.revise()
    for _ in range(40):
        change(overlay, rng.choice(CLIENTS), rng)
        if reliable and rng.random() < 0.1:
            name = rng.choice([*tree.neighbours, *CLIENTS])
            world.crash(name)
            world.run(world.now + rng.randrange(30_000))
            world.restart(name)
        world.run(world.now + rng.randrange(20_000))
    world.network.trouble.loss = world.network.trouble.duplication = 0.0
    overlay.rest()
    verdict = check_tables(
        tree, overlay.placed("advertisements"), overlay.placed("subscriptions"), overlay.seen()
    )
    assert verdict.holds, verdict


@pytest.mark.parametrize("seed", range(12))
def test_events_reach_whom_they_concern_once_through_loss_and_crashes(seed: int) -> None:
    rng = Random(seed)
    tree = random_tree(rng, rng.randint(1, 6), CLIENTS)
    overlay = Overlay(tree, seed=seed, reliable=True, sync_us=rng.choice([0, 2_000]))
    world = overlay.world
    for client in CLIENTS:
        world.command(client, Advertise("all", filter_of("T")))
        for number in range(2):
            low = rng.randrange(6)
            world.command(client, Subscribe(f"s{number}", filter_of("T", x=(low, low + 2))))
    overlay.rest()
    world.network.trouble.loss = 0.1
    world.network.trouble.revise()
    published = []
    for _ in range(30):
        client = rng.choice(CLIENTS)
        if world.command(client, Publish("T", {"x": rng.randrange(8)})):
            published.append(client)
        if rng.random() < 0.2:
            name = rng.choice([*tree.neighbours, *CLIENTS])
            world.crash(name)
            world.run(world.now + rng.randrange(30_000))
            world.restart(name)
        world.run(world.now + rng.randrange(10_000))
    world.network.trouble.loss = 0.0
    overlay.rest()
    rows = list(world.recorder.rows())
    events = [row.event for row in rows if row.step == "publish"]
    subscriptions = overlay.placed("subscriptions")
    for event in events:
        got = Counter(r.process for r in rows if r.step == "deliver" and event.id in r.events)
        wanted = [one for one in recipients(subscriptions, event) if one != event.source]
        assert got == Counter(wanted), event
    assert len(events) > 20 or seed


def test_a_client_that_lost_its_memory_is_told_what_it_has() -> None:
    tree = random_tree(Random(1), 2, ("c1", "c2"))
    overlay = Overlay(tree, seed=1, reliable=True)
    overlay.world.command("c1", Advertise("mine", filter_of("T")))
    overlay.world.command("c1", Subscribe("yours", filter_of("T", x=1)))
    overlay.rest()
    before = overlay.core("c1").subscriptions
    overlay.world.crash("c1")
    overlay.world.places["c1"].log.clear()
    overlay.world.restart("c1")
    assert not overlay.core("c1").connected
    overlay.rest()
    assert overlay.core("c1").subscriptions == before
    assert overlay.world.command("c1", Unsubscribe("yours"), Unadvertise("mine"))
    overlay.rest()
    assert check_tables(tree, [], [], overlay.seen()).holds


# --- bad input ------------------------------------------------------------------------------------


def connected() -> Client:
    client = Client("c", broker="B")
    client.handle(0, Received("B", (Welcome(),)))
    return client


@pytest.mark.parametrize(
    ("requests", "says"),
    [
        ((Publish("T"),), "no advertisement covers T"),
        ((Unsubscribe("x"),), "there is no 'x' to end"),
        ((Subscribe("x", filter_of("T")), Subscribe("x", filter_of("T"))), "'x' is in use"),
        ((Subscribe("a#b", filter_of("T")),), "is no name"),
        ((Subscribe("", filter_of("T")),), "is no name"),
    ],
)
def test_a_request_that_cannot_be_met_changes_nothing(requests: tuple, says: str) -> None:
    client = connected()
    before = client.snapshot()
    with pytest.raises(UsageError, match=says):
        client.handle(0, Command(requests))
    assert client.snapshot() == before


def test_who_is_not_connected_is_told_to_wait() -> None:
    with pytest.raises(UsageError, match="not connected yet"):
        Client("c", broker="B").handle(0, Command((Subscribe("x", filter_of("T")),)))


def test_a_stranger_is_not_the_broker_and_a_broker_takes_no_nonsense() -> None:
    with pytest.raises(PeerError, match="is not the broker"):
        connected().handle(0, Received("X", (Welcome(),)))
    with pytest.raises(PeerError, match="sent a broker a Welcome"):
        Broker("B").handle(0, Received("c", (Welcome(),)))
    with pytest.raises(UsageError, match="takes no requests"):
        Broker("B").handle(0, Command((Publish("T"),)))


def test_a_client_cannot_fill_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concordant.route.router.ENTRY_COUNT_MAX", 3)
    broker = Broker("B", neighbours=("N",))
    for number in range(5):
        broker.handle(0, Received("c", (Subscribed(f"c/{number}", filter_of("T")),)))
        broker.handle(0, Received("N", (Subscribed(f"n/{number}", filter_of("T")),)))
    ids = list(broker.router.tables.subscriptions)
    assert [id for id in ids if id.startswith("c")] == ["c/0", "c/1", "c/2"]
    assert len([id for id in ids if id.startswith("n")]) == 5


def test_a_snapshot_brings_the_index_back() -> None:
    broker = Broker("B")
    broker.handle(0, Received("c", (Subscribed("c/1", filter_of("T", x=(1, 2))),)))
    other = Broker("B")
    other.restore(broker.snapshot())
    event = Event("T", "p", 1, 0, {"x": 2})
    assert other.router.hops_of(event, but="") == ["c"]
