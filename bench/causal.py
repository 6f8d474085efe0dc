"""Causal delivery: its cost beside the other orders over TCP, what stays, and what travels.

`live` has a publisher and a subscriber on two nodes, with real links over TCP between them, both in
one process: processor time is then that of the whole cluster. `memory` lets a million events
through brokers and clients with their logs on a disk, and looks at what stays. `sizes` is the table
of Kim and Ahn on the messages of the machines here; their figures are in `causal_figures`.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import statistics
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time

from bench.network import free_ports
from bench.network_rig import End, over_tcp, setting
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.bus import Bus
from concordant.causal.options import Profile
from concordant.evaluate.causal_sizes import TABLE, Mean, measure
from concordant.machine.inputs import Message
from concordant.net.cluster import cluster_from
from concordant.net.node import Node
from concordant.wire.messages import Codec

ORDERS = ("none", "fifo", "sequencer", "gossip", "causal")
BATCHES = (1, 100)
WINDOW_COUNT = 2_000
LATENCY_BATCHES = 20
MEMORY_BATCH = 1_000


# --- orders over TCP ------------------------------------------------------------------------------


class Weighed(Codec):
    """A codec that counts what it encodes."""

    byte_count = 0

    def encode(self, messages: Sequence[Message]) -> bytes:
        data = super().encode(messages)
        Weighed.byte_count += len(data)
        return data


class Two:
    """A node that publishes and one that subscribes, over TCP."""

    def __init__(self, here: End, there: End) -> None:
        self._here, self._there = here, there
        self._sent = dict.fromkeys(ORDERS, 0)

    def _got(self, name: str) -> int:
        return self._there.counts[name].total

    async def publish(self, name: str, count: int, *, window: int) -> None:
        """One batch, when no more than a window is under way."""
        # Orders of one feed get the same events.
        for other in ("none", "fifo") if name in ("none", "fifo") else (name,):
            self._sent[other] += count
        self._here.publish(name, self._sent[name], count)
        async with asyncio.timeout(60):
            while self._sent[name] - self._got(name) > window:
                await self._more(name)

    async def _more(self, name: str) -> None:
        more = asyncio.Event()
        self._there.counts[name].on_more = more.set
        await more.wait()

    async def rate(self, name: str, batch: int, count: int) -> tuple[float, float]:
        """Events per processor second of both nodes, and bytes per event between them."""
        gc.collect()
        before, bytes_before = process_time(), Weighed.byte_count
        for _ in range(count // batch):
            await self.publish(name, batch, window=WINDOW_COUNT)
            await asyncio.sleep(0)
        await self.publish(name, batch, window=0)
        sent = (count // batch + 1) * batch
        used = process_time() - before
        return sent / used, (Weighed.byte_count - bytes_before) / sent

    async def latency(self, name: str, batch: int) -> float:
        """From publishing a batch to the delivery of its last event, in seconds."""
        found = self._there.counts[name].latencies_us
        found.clear()
        for _ in range(LATENCY_BATCHES):
            await self.publish(name, batch, window=0)
        return statistics.median(found) / 1e6


@asynccontextmanager
async def _two() -> AsyncIterator[Two]:
    ports = dict(zip(("p", "s"), free_ports(2), strict=True))
    async with (
        over_tcp("p", ports, codec=Weighed) as first,
        over_tcp("s", ports, codec=Weighed) as second,
    ):
        here = End("p", first, levels=ORDERS, told=setting("p"))
        there = End("s", second, levels=ORDERS, told=setting("s"))
        there.subscribe()
        async with asyncio.timeout(60):
            while there.missing:
                await asyncio.sleep(0.05)
        yield Two(here, there)


def live(size: Size) -> Section:
    """Every order in turn, once per round."""
    return asyncio.run(_live(size))


async def _live(size: Size) -> Section:
    count, rounds = (20_000, 3) if size.name == "full" else (3_000, 2)
    cells: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    async with _two() as two:
        for _ in range(rounds):
            for name in ORDERS:
                for batch in BATCHES:
                    rate, weight = await two.rate(name, batch, count if batch > 1 else count // 10)
                    found = (rate, weight, await two.latency(name, batch))
                    cells.setdefault((name, batch), []).append(found)
    rows: list[Row] = []
    for (name, batch), values in cells.items():
        ground = [rate for rate, *_ in cells["fifo", batch]]
        rows.append(
            {
                "order": name,
                "batch": batch,
                "rate": statistics.median(rate for rate, *_ in values),
                "ratio": statistics.median(
                    theirs / mine for theirs, (mine, *_) in zip(ground, values, strict=True)
                ),
                "bytes": statistics.median(weight for _, weight, _ in values),
                "latency": statistics.median(latency for *_, latency in values),
            }
        )
    cost = {(row["order"], row["batch"]): row["ratio"] for row in rows}
    return Section(
        "causal",
        "Causal order beside the others, over TCP",
        "A node that publishes and one that subscribes, links over TCP on one machine, no disk, "
        "events with three attributes. Both nodes are in one process, so *per processor second* "
        "counts the work of the whole cluster; *cost* is that of the row over that of `fifo`, "
        "round by round. Bytes are those of encoded messages, acknowledgements and digests among "
        "them. `causal` and `gossip` have a broker at each node, and a client submits to its own.",
        (
            Column("order", "order"),
            Column("batch", "batch", "count"),
            Column("rate", "per processor second", "rate"),
            Column("ratio", "cost", "ratio"),
            Column("bytes", "bytes per event", "bytes"),
            Column("latency", "latency", "seconds"),
        ),
        rows,
        [Goal("cost of causal over fifo, batches of 100", "≤ 3x", f"{cost['causal', 100]:.2f}x")],
    )


# --- memory ---------------------------------------------------------------------------------------


def memory(size: Size) -> Section:
    """A million events, and what stays of them."""
    return asyncio.run(_memory(1_000_000 if size.name == "full" else 40_000))


async def _memory(total: int) -> Section:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        (port,) = free_ports(1)
        cluster = cluster_from(
            f'[cluster]\nname = "flat"\nstrategies = ["causal"]\ndata = "{folder}"\n'
            f'[nodes.n1]\ndoor = "127.0.0.1:{port}"\n'
        )
        node = Node(cluster, "n1")
        await node.start()
        try:
            async with (
                Bus(f"tcp://127.0.0.1:{port}") as bus,
                bus.subscribe("T", order="causal", name="reader") as found,
            ):
                began, done = process_time(), 0
                for step in range(10):
                    await asyncio.gather(_publish(bus, total // 10), _read(found, total // 10))
                    done += total // 10
                    rows.append(
                        {
                            "events": done,
                            "rate": done / (process_time() - began),
                            "memory": _resident(),
                            "disk": _disk(Path(folder)),
                            "step": step,
                        }
                    )
        finally:
            await node.stop()
    early = rows[len(rows) // 2 - 1]
    return Section(
        "causal-memory",
        "Causal order: memory and logs over many events",
        "One node with its logs on a disk (broker, publisher, a named subscriber), and an "
        "application over TCP, in one process. The logs are replaced by snapshots as they grow.",
        (
            Column("events", "events", "count"),
            Column("rate", "per processor second", "rate"),
            Column("memory", "memory", "megabytes"),
            Column("disk", "logs", "megabytes"),
        ),
        rows,
        [
            Goal(
                "memory at the end over half way",
                "≤ 1.1x",
                f"{rows[-1]['memory'] / early['memory']:.2f}x",
            )
        ],
        Plot("events", "memory", "events", "bytes of memory"),
    )


async def _publish(bus: Bus, count: int) -> None:
    """In large batches: each waits for the disk."""
    for first in range(0, count, MEMORY_BATCH):
        await bus.publish([{"topic": "T", "n": first + n} for n in range(MEMORY_BATCH)])


async def _read(found: object, count: int) -> None:
    for _ in range(count):
        await anext(found)  # type: ignore[call-overload]


def _resident() -> int:
    """Bytes that the process has in memory now."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    return pages * resource.getpagesize()


def _disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# --- bytes ----------------------------------------------------------------------------------------


def sizes(size: Size) -> Section:
    """The causal part of messages as they are encoded."""
    steps = 60 if size.name == "full" else 25
    shapes = TABLE if size.name == "full" else TABLE[:3]
    rows: list[Row] = []
    for shape in shapes:
        found = {profile: measure(shape, profile, steps=steps) for profile in _PROFILES}
        local = found["local"]
        last = {profile: one.last_hop for profile, one in found.items()}
        rows.append(
            {
                "shape": f"{shape.brokers} / {shape.topics} / {shape.topics_per_broker} / "
                f"{shape.rate}",
                "whole": _mean(local.whole),
                "between": _mean(local.between),
                "local": _mean(last["local"]),
                "rounds": _mean(last["rounds"]),
                "less": local.whole.bytes / last["local"].bytes,
            }
        )
    return Section(
        "causal-bytes",
        "Bytes of causal information per message",
        "What an encoded message has more than the same message without its causal part; one topic "
        "per event, 5 % of messages lost, each way takes a step. Entries in the mean, the largest "
        "in brackets. Brokers, topics, topics of a broker, events per broker and step.",
        (
            Column("shape", "brokers / topics / of a broker / events"),
            Column("whole", "vectors per group"),
            Column("between", "between brokers"),
            Column("local", "`local`, last hop"),
            Column("rounds", "`rounds`, last hop"),
            Column("less", "vectors over last hop", "ratio"),
        ),
        rows,
    )


_PROFILES: tuple[Profile, ...] = ("local", "rounds")


def _mean(one: Mean) -> str:
    return f"{one.entries:.1f} ({one.entry_max}) = {one.bytes:.0f} B"
