"""Three nodes as processes of their own, killed at random, and applications that keep on going."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from concordant.bus import Bus, Subscription
from concordant.net.caller import CallerOptions
from tests.ports import free_ports

NODES = ("n1", "n2", "n3")
QUICK = CallerOptions(connect_s=20.0, retry_s=0.02, retry_s_max=0.2)
COUNT = 60
PUBLISHERS = ("p1", "p2", "p3", "p4")


class Cluster:
    """Three nodes from one file."""

    def __init__(self, folder: Path, strategies: tuple[str, ...]) -> None:
        self.folder = folder
        ports = free_ports(9)
        tables = "".join(
            f'[nodes.{name}]\ndoor = "127.0.0.1:{ports[3 * n]}"\n'
            f'address = "127.0.0.1:{ports[3 * n + 1]}"\nhttp = "127.0.0.1:{ports[3 * n + 2]}"\n'
            for n, name in enumerate(NODES)
        )
        self.doors = {name: f"tcp://127.0.0.1:{ports[3 * n]}" for n, name in enumerate(NODES)}
        self.http = {name: ports[3 * n + 2] for n, name in enumerate(NODES)}
        self.file = folder / "cluster.toml"
        self.file.write_text(
            f'[cluster]\nname = "test"\ndata = "data"\nstrategies = {list(strategies)}\n{tables}'
        )
        self.processes = {name: self.start(name) for name in NODES}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = ["-m", "concordant.cli.main", "node", str(self.file), "--name", name]
            return subprocess.Popen([sys.executable, *command], stderr=log)

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()
        self.processes[name] = self.start(name)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(tmp_path, request.param)
    yield made
    made.stop()


async def read(found: Subscription, taken: list[str], count: int) -> None:
    async for delivery in found:
        taken.append(delivery.events[0].id)
        if len(taken) == count:
            return


@pytest.mark.parametrize(
    ("cluster", "order", "strategy"),
    [
        (("sequencer",), "total strict", "sequencer"),
        (("fifo",), "fifo", ""),
    ],
    indirect=["cluster"],
)
async def test_killed_nodes_come_back_and_nothing_stored_is_lost(
    cluster: Cluster, order: str, strategy: str
) -> None:
    rng = Random(7)
    stored: list[str] = []
    taken: dict[str, list[str]] = {"x1": [], "x2": []}

    async def publish(name: str) -> None:
        async with Bus.open(cluster.doors["n1"], name=name, options=QUICK) as bus:
            for n in range(COUNT):
                stored.append(await bus.publish(("A", "B")[n % 2], {"n": n}))
                await asyncio.sleep(0.01)

    async def subscribe(name: str, door: str, begun: asyncio.Event) -> None:
        async with (
            Bus.open(door, options=QUICK) as bus,
            bus.subscribe("A, B", order=order, strategy=strategy, name=name) as found,
        ):
            begun.set()
            await read(found, taken[name], COUNT * len(PUBLISHERS))

    async def kill() -> None:
        for step in range(1, 5):
            while len(stored) < step * COUNT * len(PUBLISHERS) // 6:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(cluster.kill, rng.choice(NODES))

    async with asyncio.timeout(90):
        begun = [asyncio.Event(), asyncio.Event()]
        readers = [
            asyncio.create_task(subscribe("x1", cluster.doors["n1"], begun[0])),
            asyncio.create_task(subscribe("x2", cluster.doors["n2"], begun[1])),
        ]
        for event in begun:
            await event.wait()
        await asyncio.gather(*(publish(name) for name in PUBLISHERS), kill())
        await asyncio.gather(*readers)
    one, other = taken["x1"], taken["x2"]
    assert sorted(one) == sorted(other) == sorted(stored)
    if order == "total strict":
        assert one == other
    for ids in (one, other):
        for name in PUBLISHERS:
            mine = [one_id for one_id in ids if one_id.startswith(f"{name}:")]
            if order == "fifo":  # per source and topic
                odd = [i for i in mine if int(i.rpartition(":")[2]) % 2]
                assert odd == [f"{name}:{n}" for n in range(1, COUNT + 1, 2)]
            else:
                assert mine == [f"{name}:{n}" for n in range(1, COUNT + 1)]


@pytest.mark.parametrize("cluster", [("clock", "none")], indirect=True)
async def test_over_three_nodes_the_clock_gives_one_order_and_says_what_is_late(
    cluster: Cluster,
) -> None:
    found: dict[str, list[tuple[str, bool]]] = {name: [] for name in NODES}

    async def subscribe(name: str, begun: asyncio.Event) -> None:
        asked = {"order": "total strict", "strategy": "clock"}
        async with (
            Bus.open(cluster.doors[name], options=QUICK) as bus,
            bus.subscribe("A, B", **asked) as deliveries,
        ):
            begun.set()
            async for one in deliveries:
                found[name].append((one.events[0].id, one.in_order))
                if len(found[name]) == COUNT * len(PUBLISHERS):
                    return

    async def publish(name: str) -> None:
        async with Bus.open(cluster.doors["n3"], name=name, options=QUICK) as bus:
            for n in range(COUNT):
                await bus.publish(("A", "B")[n % 2], {"n": n})

    async with asyncio.timeout(60):
        begun = {name: asyncio.Event() for name in NODES}
        readers = [asyncio.create_task(subscribe(name, begun[name])) for name in NODES]
        for event in begun.values():
            await event.wait()
        await asyncio.gather(*(publish(name) for name in PUBLISHERS))
        await asyncio.gather(*readers)
    in_order = [[one for one, good in found[name] if good] for name in NODES]
    common = set(in_order[0]) & set(in_order[1]) & set(in_order[2])
    assert len(common) > 0.9 * COUNT * len(PUBLISHERS)
    first, second, third = ([i for i in ids if i in common] for ids in in_order)
    assert first == second == third


@pytest.mark.parametrize("cluster", [("sequencer",)], indirect=True)
async def test_a_node_tells_its_health_and_ends_cleanly(cluster: Cluster) -> None:
    async with Bus.open(cluster.doors["n2"], options=QUICK) as bus:
        await bus.publish("A", {"n": 1})
    async with Bus.open(cluster.doors["n1"], options=QUICK):  # it has started as well
        pass
    url = f"http://127.0.0.1:{cluster.http['n2']}"
    health = json.loads(await asyncio.to_thread(_get, f"{url}/health"))
    assert health["ok"]
    assert health["peers"] == ["n1", "n3"]
    metrics = await asyncio.to_thread(_get, f"{url}/metrics")
    assert 'concordant_connected{node="n1"}' in metrics
    for signum in (signal.SIGTERM, signal.SIGINT):
        name = {signal.SIGTERM: "n1", signal.SIGINT: "n2"}[signum]
        cluster.processes[name].send_signal(signum)
        assert await asyncio.to_thread(cluster.processes[name].wait, 20) == 0
        lines = (cluster.folder / f"{name}.log").read_text().splitlines()
        assert json.loads(lines[-1])["what"] == "stopped"
        assert all(json.loads(line)["node"] == name for line in lines)


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())
