"""The network: events per second and latency per order and transport, by size of batch.

One publisher (with the sequencer) and one subscriber, in one process (memory) or in two (TCP, NATS,
a real server), with the machines that nodes host and without disk. *Bare* is the ground: the same
events over the same transport, encoded and decoded, with no machine, no link and no order. Rates
are taken with a bounded window under way, latencies with one batch at a time: from publishing to
the delivery of its last event.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from bench.network_rig import BARE, HOST, LEVELS, NODES, End, Rig, bare_batch, over_nats, over_tcp
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.net.carrier import MemoryCarrier

BATCHES = (1, 10, 100, 1_000)
WINDOW_BATCHES = 64
WINDOW_COUNT_MAX = 8_000
"""Events under way; below what the sequencer's clients let wait."""
LATENCY_BATCHES = 40
RATE_WANTED = 31_400
_READY_S = 60.0
SHOWN = {
    *(("tcp", name) for name in (BARE, *LEVELS)),
    *(("nats", name) for name in (BARE, "fifo", "sequencer")),
}
"""The lines of the plot: as many as there are colours."""


def run(size: Size) -> Section:
    """All transports in one run, every cell once per round."""
    return asyncio.run(_run(size))


async def _run(size: Size) -> Section:
    seconds = max(0.1, size.budget_seconds)
    rounds = max(1, size.rounds // 2)
    rates: dict[tuple[str, str, int], list[float]] = {}
    busiest: dict[tuple[str, str, int], list[float]] = {}
    latencies: dict[tuple[str, str, int], list[float]] = {}
    async with _memory() as memory, _tcp() as tcp, _nats() as nats:
        rigs = {"memory": memory, "tcp": tcp, "nats": nats}
        for _ in range(rounds):
            for transport, rig in rigs.items():
                for name in (BARE, *LEVELS) if rig.bare else LEVELS:
                    for batch in BATCHES:
                        cell = (transport, name, batch)
                        rate, per_cpu = await _rate(rig, name, batch, seconds)
                        rates.setdefault(cell, []).append(rate)
                        busiest.setdefault(cell, []).append(per_cpu)
                        latencies.setdefault(cell, []).append(await _latency(rig, name, batch))
    rows: list[Row] = []
    for cell, found in busiest.items():
        transport, name, batch = cell
        ground = busiest[transport, BARE if transport != "memory" else "none", batch]
        rows.append(
            {
                "transport": transport,
                "order": name,
                "series": f"{name}, {transport}",
                "batch": batch,
                "shown": batch if (transport, name) in SHOWN else None,
                "rate": statistics.median(rates[cell]),
                "busiest": statistics.median(found),
                "ratio": statistics.median(
                    theirs / mine for theirs, mine in zip(ground, found, strict=True)
                ),
                "latency": statistics.median(latencies[cell]) / 1e6,
            }
        )
    best = {(row["transport"], row["order"]): row for row in rows if row["batch"] == BATCHES[-1]}
    return Section(
        "network",
        "Orders over the network",
        "One publisher and one subscriber, events with three attributes, no disk; memory is one "
        "process, TCP and NATS are two, with a NATS server as a third. *Bare* is the same events "
        "over the same transport with no machine, link or order. *Per processor second* counts the "
        "busiest process only, so it hardly depends on what else the machine does; *cost* is that "
        "of the ground over that of the row (in memory, where nothing is bare, of `none`). Rates "
        f"have at most {WINDOW_BATCHES} batches or {WINDOW_COUNT_MAX:,} events under way; "
        "latencies are medians with one batch at a time. The clock waits for the marks of all "
        "publishers, 40 ms apart.",
        (
            Column("transport", "transport"),
            Column("order", "order"),
            Column("batch", "batch", "count"),
            Column("rate", "events", "rate"),
            Column("busiest", "per processor second", "rate"),
            Column("ratio", "cost", "ratio"),
            Column("latency", "latency", "seconds"),
        ),
        rows,
        [
            Goal(
                f"events to a subscriber, {name} over {transport}, batches of {BATCHES[-1]:,}",
                f"≥ {RATE_WANTED:,}/s",
                f"{best[transport, name]['rate']:,.0f}/s, "
                f"{best[transport, name]['busiest']:,.0f} per processor second",
            )
            for transport in ("tcp", "nats")
            for name in ("fifo", "clock", "sequencer")
        ],
        Plot("shown", "busiest", "events in a batch", "events per processor second", "series"),
    )


async def _rate(rig: Rig, name: str, batch: int, seconds: float) -> tuple[float, float]:
    """Events that arrive with a window under way: per second, and per processor second of the
    busiest process."""
    await _drained(rig, name)
    await rig.latencies(name)  # it says its processor time too
    before = rig.cpu_s()
    window = min(WINDOW_BATCHES * batch, WINDOW_COUNT_MAX)
    first = rig.totals[name]
    start = perf_counter()
    while perf_counter() - start < seconds:
        await rig.publish(name, batch)
        await asyncio.sleep(0)
        while rig.under_way(name) >= window:
            await rig.wait()
    await _drained(rig, name)
    count, taken = rig.totals[name] - first, perf_counter() - start
    await rig.latencies(name)
    busiest = max(after - was for after, was in zip(rig.cpu_s(), before, strict=True))
    return count / taken, count / busiest


async def _latency(rig: Rig, name: str, batch: int) -> float:
    """Microseconds, the median over some batches, one at a time."""
    await rig.latencies(name)
    for _ in range(LATENCY_BATCHES if name != "clock" else LATENCY_BATCHES // 4):
        await rig.publish(name, batch)
        await _drained(rig, name)
    return statistics.median(await rig.latencies(name))


async def _drained(rig: Rig, name: str) -> None:
    async with asyncio.timeout(60):
        while rig.under_way(name) > 0:
            await rig.wait()


# --- transports -----------------------------------------------------------------------------------


@asynccontextmanager
async def _memory() -> AsyncIterator[Rig]:
    end = End("p", MemoryCarrier())
    other = End("s", end.carrier)
    other.subscribe()
    totals = dict.fromkeys((*LEVELS, BARE), 0)
    more = asyncio.Event()

    def count() -> None:
        totals.update({name: one.total for name, one in other.counts.items()})
        more.set()

    for one in other.counts.values():
        one.on_more = count

    async def wait() -> None:
        more.clear()
        await more.wait()

    async def latencies(name: str) -> list[int]:
        found, other.counts[name].latencies_us = other.counts[name].latencies_us, []
        return found

    rig = Rig(end, totals, wait=wait)
    rig.latencies = latencies
    await asyncio.sleep(0.5)  # every subscription has begun
    yield rig


@asynccontextmanager
async def _tcp() -> AsyncIterator[Rig]:
    *ports, bare_port = free_ports(3)
    where = dict(zip(NODES, ports, strict=True))
    async with (
        over_tcp("p", where) as carrier,
        _two(End("p", carrier), "tcp", json.dumps(where), str(bare_port)) as rig,
    ):
        _, writer = await asyncio.open_connection(HOST, bare_port)

        async def bare(number: int, count: int) -> None:
            data = bare_batch(number, count)
            writer.write(len(data).to_bytes(4, "big") + data)
            await writer.drain()

        rig.bare = bare
        yield rig
        writer.close()


@asynccontextmanager
async def _nats() -> AsyncIterator[Rig]:
    program = Path(sys.executable).with_name("nats-server")
    (port,) = free_ports(1)
    folder = tempfile.mkdtemp()
    process = await asyncio.create_subprocess_exec(
        *(str(program), "-a", HOST, "-p", str(port), "-l", str(Path(folder) / "log"))
    )
    try:
        url = f"nats://{HOST}:{port}"
        async with (
            over_nats("p", url) as (server, carrier),
            _two(End("p", carrier), "nats", url, "0") as rig,
        ):

            async def bare(number: int, count: int) -> None:
                await server.publish("bench.bare", bare_batch(number, count))

            rig.bare = bare
            yield rig
    finally:
        process.kill()
        await process.wait()
        shutil.rmtree(folder)


@asynccontextmanager
async def _two(end: End, *arguments: str) -> AsyncIterator[Rig]:
    """The other end in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.network_rig", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    totals = dict.fromkeys((*LEVELS, BARE), 0)
    more = asyncio.Event()
    answers: asyncio.Queue[list[int]] = asyncio.Queue()

    async def listen() -> None:
        while line := await stdout.readline():
            said = json.loads(line)
            rig.other_cpu_s = said["cpu_s"]
            if "latencies_us" in said:
                answers.put_nowait(said["latencies_us"])
            else:
                totals.update(said["totals"])
            more.set()

    async def wait() -> None:
        more.clear()
        await more.wait()

    async def latencies(name: str) -> list[int]:
        stdin.write(f"{name}\n".encode())
        return await answers.get()

    rig = Rig(end, totals, wait=wait)
    rig.latencies = latencies
    listening = asyncio.create_task(listen())
    try:
        async with asyncio.timeout(_READY_S):
            await wait()
        await asyncio.sleep(1.0)  # links are made, every subscription has begun
        yield rig
    finally:
        listening.cancel()
        process.kill()
        await process.wait()


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
