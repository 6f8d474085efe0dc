"""Applications run transactions by the bus, over a cluster of three nodes and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from concordant.bus import Aborted, Bus, Committed, Subscription
from concordant.errors import PeerError, UsageError
from concordant.net import overlay
from concordant.net.blocking import Unawaited
from concordant.net.cluster import cluster_from
from concordant.net.host import Place
from concordant.net.node import Node
from concordant.net.roles import rendezvous
from concordant.transact.client import Triggered
from tests.network.nats_process import NatsProcess
from tests.network.selling import run_selling
from tests.ports import free_ports


def test_killed_nodes_lose_no_sale_and_show_no_aborted_one(tmp_path: Path) -> None:
    said = asyncio.run(run_selling("static", tmp_path, rng=Random(3), count=6, kill_count=2))
    assert said.wrong == []
    assert said.killed_count == 2
    assert said.committed_count > 4
    assert said.aborted_count > 1


@asynccontextmanager
async def one_node(folder: Path, more: str = "", head: str = "") -> AsyncIterator[str]:
    """A node with a disk; its door."""
    (port,) = free_ports(1)
    cluster = cluster_from(
        f'[cluster]\nname = "shop"\ntransactions = "shared"\ndata = "data"\n{head}'
        f'[nodes.n1]\ndoor = "127.0.0.1:{port}"\n{more}'
    )
    node = Node(cluster, "n1", beside=folder)
    await node.start()
    try:
        async with asyncio.timeout(30):
            yield f"tcp://127.0.0.1:{port}"
    finally:
        await node.stop()


async def numbers(found: Subscription, count: int) -> list[object]:
    return [(await anext(found)).events[0].attributes["n"] for _ in range(count)]


async def sell(bus: Bus, *sold: int) -> None:
    async with bus.transaction("open") as tx:
        for n in sold:
            await tx.publish("Order", {"n": n})
    assert tx.outcome == Committed(tx.name)


async def lives(folder: Path) -> list[object]:
    """Sales in two lives of a node, as a named subscription reads them."""
    got: list[object] = []
    for sold in ((1, 2), (3,)):
        async with (
            one_node(folder) as door,
            Bus(door, name="shop") as bus,
            bus.subscribe("Order", name="orders", order="total strict") as found,
        ):
            if not got:
                await (await bus.participant()).advertise("orders", "Order")
            await sell(bus, *sold)
            got += await numbers(found, len(sold))
    return got


async def test_a_node_that_comes_back_lets_nothing_enter_twice(tmp_path: Path) -> None:
    assert await lives(tmp_path) == [1, 2, 3]


async def test_a_planted_bug_that_lets_events_enter_twice_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgets(*given, **named) -> Place:
        return Place(*given, **{**named, "taken_count": 0})

    monkeypatch.setattr(overlay, "Place", forgets)
    assert await lives(tmp_path) == [1, 2, 1]


async def test_a_transaction_enters_all_orders_when_it_commits_and_not_before() -> None:
    async with (
        asyncio.timeout(30),
        Bus(name="shop", transactions="isolated", strategies=["fifo", "sequencer"]) as bus,
        bus.subscribe("Order, Payment", order="fifo") as one,
        bus.subscribe("Order, Payment", order="total strict") as other,
    ):
        await (await bus.participant()).advertise("all", "Order")
        with pytest.raises(RuntimeError):
            async with bus.transaction("isolated") as tx:
                await tx.publish("Order", {"n": 1})
                raise RuntimeError
        assert tx.outcome == Aborted(tx.name, "its block raised RuntimeError")
        async with bus.transaction("isolated") as tx:
            await tx.advertise("payments", "Payment")
            await tx.publish("Order", {"n": 2})
            await tx.publish("Payment", {"n": 3})
            await bus.publish("Order", {"n": 4})
        for found in (one, other):
            events = [(await anext(found)).events[0] for _ in range(3)]
            assert [event.attributes["n"] for event in events] == [4, 2, 3]
            assert events[1].id.startswith("shop:")


async def test_over_nats_two_nodes_sell_in_one_order(tmp_path: Path) -> None:
    server = NatsProcess(tmp_path / "nats")
    doors = free_ports(2)
    cluster = cluster_from(
        '[cluster]\nname = "shop"\ntransport = "nats"\ndata = "data"\ntransactions = "shared"\n'
        f'[nodes.n1]\ndoor = "127.0.0.1:{doors[0]}"\n[nodes.n2]\ndoor = "127.0.0.1:{doors[1]}"\n'
        f'[nats]\nservers = ["{server.url}"]\nretry_s = 0.05\n'
    )
    nodes = [Node(cluster, name, beside=tmp_path) for name in cluster.names]
    try:
        for node in nodes:
            await node.start()
        async with (
            asyncio.timeout(30),
            Bus(f"{server.url}/shop/n1", name="one") as one,
            Bus(f"{server.url}/shop/n2", name="two") as two,
            two.subscribe("Order", order="total strict") as found,
        ):
            for bus in (one, two):
                async with bus.transaction("open") as tx:
                    await tx.advertise("orders", "Order")
            for n, bus in enumerate((one, two, one)):
                await sell(bus, n)
            assert sorted(await numbers(found, 3)) == [0, 1, 2]
    finally:
        for node in nodes:
            await node.stop()
        server.stop()


async def test_without_transactions_or_a_name_it_is_said_what_to_do() -> None:
    async with asyncio.timeout(30), Bus(name="shop") as bus:
        with pytest.raises(UsageError, match="this cluster has no transactions") as refused:
            async with bus.transaction("static") as tx:
                tx.publish("Order", {})
        assert 'transactions = "shared"' in refused.value.hint
    async with asyncio.timeout(30), Bus(transactions="shared") as bus:
        with pytest.raises(UsageError, match="without a name"):
            bus.transaction("static")
    async with asyncio.timeout(30), Bus(name="a/b", transactions="shared") as bus:
        with pytest.raises(UsageError, match="'a/b' is no name"):
            await bus.participant()
    async with asyncio.timeout(30), Bus(name="shop", transactions="shared") as bus:
        with pytest.raises(UsageError, match="no isolated transactions") as refused:
            async with bus.transaction("isolated"):
                pass
        assert refused.value.hint == "there are static and open"
        with pytest.raises(UsageError, match="no advertisement covers Order"):
            async with bus.transaction("static") as tx:
                tx.publish("Order", {})
    with pytest.raises(UsageError, match="named by the cluster file"):
        Bus("tcp://127.0.0.1:1", transactions="shared")


async def test_a_topic_that_an_order_does_not_know_is_refused() -> None:
    topics = {"Order": {"n": "int"}}
    async with (
        asyncio.timeout(30),
        Bus(name="shop", transactions="shared", strategies=["sequencing"], topics=topics) as bus,
        bus.subscribe("Order", order="total") as found,
    ):
        await (await bus.participant()).advertise("all", "Order")
        with pytest.raises(UsageError, match="does not know the topic 'Stock'") as refused:
            async with bus.transaction("static") as tx:
                tx.publish("Order", {"n": 1})
                tx.trigger("till", "Stock")
        assert "declared are Order" in refused.value.hint
        await sell(bus, 2)
        assert await numbers(found, 1) == [2]


async def test_a_participant_may_not_answer_or_not_be_there(tmp_path: Path) -> None:
    async with (
        one_node(tmp_path, "[parameters]\ntransaction_us = 300_000\n") as door,
        Bus(door, name="shop") as shop,
        Bus(door, name="till") as till,
    ):
        client = await shop.participant()
        await client.advertise("all", "Ring")
        await (await till.participant()).subscribe("rings", "Ring.to = 'till'")
        await sell_nothing(shop)
        async with shop.transaction("open") as tx:
            await tx.trigger("till", "Ring", {"to": "till"})
        assert tx.outcome == Aborted(tx.name, "refused: a trigger was not answered")
        async with shop.transaction("static") as plan:
            plan.trigger("nobody", "Ring", {"to": "nobody"}).publish("Order", {})
            plan.publish("Ring", {"to": "nobody"})
        assert isinstance(plan.outcome, Aborted)
        assert plan.outcome.reason == "it took too long"


async def sell_nothing(bus: Bus) -> None:
    """What was asked for before it has arrived: one broker, one order."""
    async with bus.transaction("open") as tx:
        await tx.advertise("nothing", "Nothing")


async def test_of_two_applications_with_one_name_the_first_is_told_to_go(tmp_path: Path) -> None:
    async with one_node(tmp_path) as door, Bus(door, name="shop") as first:
        client = await first.participant()
        async with Bus(door, name="shop") as second:
            await (await second.participant()).advertise("orders", "Order")
            await sell(second, 1)
            with pytest.raises(PeerError, match="another application takes part as 'shop'"):
                while True:
                    await client.publish("Order", {})
                    await asyncio.sleep(0.01)


def test_a_program_without_an_event_loop_has_transactions_as_well() -> None:
    with (
        Bus.blocking(name="shop", transactions="shared") as bus,
        bus.subscribe("Order", order="total strict") as found,
    ):
        with bus.transaction("static") as plan:
            plan.advertise("orders", "Order")
            plan.publish("Order", {"n": 1})
            assert str(plan.plan).splitlines()[1] == "2  shop: publish Order(n=1)"
        assert isinstance(plan.outcome, Committed)
        with bus.transaction("open") as tx:
            tx.publish("Order", {"n": 2})
        assert isinstance(tx.outcome, Committed)
        assert [found.next(10).events[0].attributes["n"] for _ in range(2)] == [1, 2]


def ring_up(trigger: Triggered, answer: Unawaited) -> None:
    answer.publish("Receipt", {"n": trigger.event.attributes["n"]})


async def test_a_program_without_an_event_loop_takes_part(tmp_path: Path) -> None:
    """The till waits for what it does, in a thread of its own; a receipt is part of the sale."""

    def sale(door: str) -> list[object]:
        with (
            Bus.blocking(door, name="shop") as shop,
            Bus.blocking(door, name="till") as till,
            shop.subscribe("Receipt", order="total strict") as receipts,
        ):
            registered = till.participant(ring_up)
            registered.subscribe("rings", "Ring")
            registered.advertise("receipts", "Receipt")
            shop.participant().advertise("rings", "Ring")
            with shop.transaction("open") as tx:
                tx.trigger("till", "Ring", {"n": 7})
            assert isinstance(tx.outcome, Committed)
            return [receipts.next(10).events[0].attributes["n"]]

    async with one_node(tmp_path) as door:
        assert await asyncio.to_thread(sale, door) == [7]


async def test_without_the_other_nodes_it_is_said_who_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "JOIN_S", 0.2)
    other, address, *mine = free_ports(4)
    more = (
        f'address = "127.0.0.1:{mine[0]}"\n[nodes.n2]\ndoor = "127.0.0.1:{other}"\n'
        f'address = "127.0.0.1:{address}"\n[placed]\n"transactions/hub" = "n2"\n'
    )
    name = next(one for one in map(str, range(100)) if rendezvous(one, ("n1", "n2")) == "n1")
    async with one_node(tmp_path, more) as door, Bus(door, name=name) as bus:
        with pytest.raises(UsageError, match="a node does not answer"):
            await bus.participant()


def test_several_nodes_need_a_disk_for_transactions() -> None:
    nodes = "".join(
        f'[nodes.n{n}]\ndoor = "127.0.0.1:740{n}"\naddress = "127.0.0.1:741{n}"\n' for n in (1, 2)
    )
    text = f'[cluster]\nname = "shop"\ntransactions = "shared"\n{nodes}'
    with pytest.raises(UsageError, match="a broker that forgets cannot go on"):
        cluster_from(text)
    cluster = cluster_from(
        text.replace('"shop"\n', '"shop"\ndata = "data"\n')
        + '[placed]\n"transactions/hub" = "n2"\n'
    )
    assert cluster.hub == "n2"
