"""Ordered merging over TCP beside every baseline: deliveries per second, and latency.

Three servers, two clients that hold the subscribers, and the publisher are processes; each run has
those of one order, and the orders take turns. Subscribers get topics as they are, or relations of
scenarios without binary predicates: what is delivered is known exactly, and a run that delivers
less never ends. Where relations are delivered every order is measured once: matching takes most of
the time, and is the same for all. The program of the processes is `merging_end`.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter, process_time
from typing import Any

import msgspec

from bench.merging_end import (
    BEGUN,
    CLIENTS,
    EVENTS,
    ORDERS,
    PUBLISHER,
    RELATIONS,
    SERVERS,
    TELL,
    publisher,
)
from bench.merging_loads import exact
from bench.network import free_ports
from bench.network_rig import over_tcp
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.machine.requests import Publish
from concordant.net.host import Place

BATCH = 100
WINDOW_COUNT, RELATIONS_COUNT = 1_000, 300
"""Events of one topic under way when rates are taken, the second where relations are delivered."""
CALM_COUNT = 20
"""Batches, one at a time, when latencies are taken; fewer where many are given relations."""
RATE_WANTED, LATENCY_WANTED_S = 31_400, 0.150
RATIO_WANTED = 2
_READY_S = 120.0
_NODES = (*SERVERS, *CLIENTS, PUBLISHER)
LOADS = (
    ("one", EVENTS, (10,)),
    ("pair", RELATIONS, (10,)),
    ("C", EVENTS, (12, 60, 240, 600)),
    *((scenario, RELATIONS, (12, 120, 600)) for scenario in "ABCD"),
)
"""Scenario, what is delivered, how many subscribers."""


class Found(msgspec.Struct, frozen=True):
    """What one order did, once."""

    rate: float
    """Events that each subscriber took in a second."""
    total: float
    """Events that all of them took in a second."""
    busiest: float
    """The same per processor second of the busiest process."""
    server: float
    """And of the busiest server."""
    all: float
    """And of all processes together."""
    loaded: float
    """Latency at that rate: median."""
    calm: float
    """Latency with one batch under way: median, from publishing to the last event of it."""


class Rig:
    """All processes of a run, from the publisher."""

    def __init__(self, order: str, load: str, kind: str, subscribers: int) -> None:
        self.work = exact(load, subscribers)
        self._widths = self.work.widths(plain=kind == EVENTS)
        self._window_count = WINDOW_COUNT if kind == EVENTS else RELATIONS_COUNT
        self._told = (order, load, str(subscribers), kind)
        self._sent = 0
        self._least = dict.fromkeys(CLIENTS, 0)
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._answers: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self._more = asyncio.Event()
        self._listening: list[asyncio.Task[None]] = []

    async def start(self, ports: str, place: Place) -> None:
        self._publisher = place
        pipe = asyncio.subprocess.PIPE
        for node in (*SERVERS, *CLIENTS):
            one = self._processes[node] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.merging_end", node, ports, *self._told),
                stdin=pipe,
                stdout=pipe,
                limit=1 << 24,
            )
            self._answers[node] = asyncio.Queue()
            self._listening.append(asyncio.create_task(self._listen(node, one)))
        await self._ask(BEGUN)

    async def stop(self) -> None:
        for task in self._listening:
            task.cancel()
        for one in self._processes.values():
            one.kill()
            await one.wait()

    async def _listen(self, node: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            said = json.loads(line)
            if "least" in said:
                self._least[node] = said["least"]
                self._more.set()
            else:
                self._answers[node].put_nowait(said)

    async def _ask(self, words: bytes) -> dict[str, dict[str, Any]]:
        for one in self._processes.values():
            assert one.stdin is not None
            one.stdin.write(words)
        async with asyncio.timeout(_READY_S):
            return {node: await answers.get() for node, answers in self._answers.items()}

    async def publish(self) -> None:
        """A batch to every topic."""
        numbers = range(self._sent, self._sent + BATCH)
        for topic in self.work.topics:
            requests = [Publish(topic, {"a": n, "b": n % 2, "c": 7}) for n in numbers]
            self._publisher.command(*requests)
        self._sent += BATCH
        await asyncio.sleep(0)

    async def until(self, under_way: int) -> None:
        """Wait until no more than so many events of a topic are under way."""
        async with asyncio.timeout(_READY_S):
            while self._sent - min(self._least.values()) > under_way:
                self._more.clear()
                await self._more.wait()

    async def calm(self, count: int) -> float:
        """Seconds, the median over some batches, one at a time."""
        await self._ask(TELL)
        for _ in range(count):
            await self.publish()
            await self.until(0)
        return _middle(await self._ask(TELL))

    async def loaded(self, seconds: float) -> Found:
        """Publish as fast as it goes, with a window under way."""
        before = await self._ask(TELL)
        mine, start, first = process_time(), perf_counter(), self._sent
        while perf_counter() - start < seconds:
            await self.publish()
            await self.until(self._window_count - BATCH)
        await self.until(0)
        took = perf_counter() - start
        after = await self._ask(TELL)
        spent = {node: one["cpu_s"] - before[node]["cpu_s"] for node, one in after.items()}
        spent[PUBLISHER] = process_time() - mine
        total = sum(self._widths) * (self._sent - first)
        each = total / len(self._widths)
        return Found(
            each / took,
            total / took,
            total / max(spent.values()),
            total / max(spent[node] for node in SERVERS),
            total / sum(spent.values()),
            _middle(after),
            0.0,
        )


def _middle(said: dict[str, dict[str, Any]]) -> float:
    found: list[int] = [us for one in said.values() for us in one["latencies_us"]]
    return statistics.median(found) / 1e6


@asynccontextmanager
async def rig(order: str, load: str, kind: str, subscribers: int) -> AsyncIterator[Rig]:
    """Everybody has joined, and everything was done once."""
    ports = dict(zip(_NODES, free_ports(len(_NODES)), strict=True))
    found = Rig(order, load, kind, subscribers)
    async with over_tcp(PUBLISHER, ports) as carrier:
        try:
            await found.start(json.dumps(ports), publisher(carrier, order))
            await found.calm(3)
            yield found
        finally:
            await found.stop()


async def _measured(order: str, load: str, kind: str, subscribers: int, seconds: float) -> Found:
    async with rig(order, load, kind, subscribers) as one:
        few = kind == RELATIONS and subscribers > 100
        calm = await one.calm(CALM_COUNT // 5 if few else CALM_COUNT)
        return msgspec.structs.replace(await one.loaded(seconds), calm=calm)


def run(size: Size) -> Section:
    """All loads, every order once per round."""
    full = size.name == "full"
    seconds, rounds = (2.0, (size.rounds + 1) // 2) if full else (0.5, 1)
    rows: list[Row] = []
    for load, kind, counts in LOADS if full else (LOADS[0], LOADS[2]):
        for subscribers in counts if full else counts[:1]:
            found: dict[str, list[Found]] = {order: [] for order in ORDERS}
            for _ in range(rounds if kind == EVENTS else 1):
                for order, name in ORDERS.items():
                    one = asyncio.run(_measured(name, load, kind, subscribers, seconds))
                    found[order].append(one)
            rows += _rows(load, kind, subscribers, found)
    return _section(rows)


def _rows(load: str, kind: str, subscribers: int, found: dict[str, list[Found]]) -> list[Row]:
    rows: list[Row] = []
    for order, many in found.items():
        row: Row = {
            "load": load,
            "kind": kind,
            "subscribers": subscribers,
            "order": order,
            "shown": subscribers if (load, kind) == ("C", EVENTS) else None,
        }
        for key in Found.__struct_fields__:
            row[key] = statistics.median(getattr(one, key) for one in many)
        rounds = list(zip(found["merging"], many, strict=True))
        row["ratio"] = statistics.median(mine.total / one.total for mine, one in rounds)
        row["busiest_ratio"] = statistics.median(m.busiest / one.busiest for m, one in rounds)
        rows.append(row)
    return rows


def _section(rows: list[Row]) -> Section:
    goals = [
        Goal(
            f"C, {row['kind']} to {row['subscribers']} subscribers: merging / {row['order']}",
            f"≥ {RATIO_WANTED}x deliveries/s",
            f"{row['ratio']:.2f}x, {row['busiest_ratio']:.2f}x per processor second of the busiest",
        )
        for row in rows
        if (row["load"], row["kind"]) == ("C", EVENTS) and row["order"] != "merging"
    ]
    goals += [
        Goal(
            f"{row['load']}, {row['kind']}: events to each of {row['subscribers']} subscribers",
            f"≥ {RATE_WANTED:,}/s at ≤ {1_000 * LATENCY_WANTED_S:.0f} ms",
            f"{row['rate']:,.0f}/s at {1_000 * row['loaded']:.0f} ms",
        )
        for row in rows
        if row["load"] in ("one", "pair") and row["order"] == "merging"
    ]
    return Section(
        "merging-tcp",
        "Ordered merging over TCP",
        f"Batches of {BATCH} events to each topic. Three servers, two clients that share the "
        "subscribers, and the publisher are processes on one machine; no disk. *one* is one topic, "
        "*pair* two, *A* a chain of two to four topics, *B* the same with filters that every "
        "second event passes, *C* all pairs of four, *D* disjunctions of one to three pairs; none "
        "has binary predicates, so that all orders deliver the same. Subscribers get the events of "
        "their topics, or relations. *To each* and *to all* are events delivered, alone or in "
        f"relations, with at most {WINDOW_COUNT:,} of a topic under way ({RELATIONS_COUNT:,} where "
        "relations are delivered, and one round); *loaded* is the latency "
        "then, *calm* with one batch under way, both from publishing to the batch's last event. "
        "*Per processor second* divides by the processor time of the busiest process, of the "
        "busiest server, of all processes. *merging over it* divides what merging delivered to all "
        "by what the row did, in the same round. All processes share the processors, so what all "
        "together cost decides the rates: merging keeps each event at three replicas of a root, "
        "and of a merger where there are pairs, which a sequencer does not. The replicated "
        "sequencer and multi-Paxos do. Where every process has a processor, the busiest one "
        "decides.",
        (
            Column("load", "load"),
            Column("kind", "delivered"),
            Column("subscribers", "subscribers", "count"),
            Column("order", "order"),
            Column("rate", "to each", "rate"),
            Column("total", "to all", "rate"),
            Column("ratio", "merging over it", "ratio"),
            Column("busiest", "per processor second, busiest", "rate"),
            Column("server", "servers", "rate"),
            Column("all", "all", "rate"),
            Column("loaded", "loaded", "seconds"),
            Column("calm", "calm", "seconds"),
        ),
        rows,
        goals,
        Plot("shown", "total", "subscribers on C", "events delivered to all, per second", "order"),
        (Plot("shown", "calm", "subscribers on C", "latency in seconds", "order"),),
    )
