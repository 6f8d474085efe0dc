"""Total notification order over TCP: a sequencer per topic against one for all, by nodes.

Every node is a process that publishes to a topic of its own and subscribes to it and to the next
two, so that neighbours share topics and have to agree. The machines are those that nodes host,
without disk, both strategies in the same processes and in turn. Rates depend on how many
processors there are for how many nodes; what the busiest process could take does not. Run as a
program it is one of the nodes: it is told what to measure line by line.
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

from bench.network import WINDOW_BATCHES, WINDOW_COUNT_MAX, free_ports
from bench.network_rig import HOST, End, over_tcp
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.net.cluster import cluster_from

STRATEGIES = ("sequencer", "sequencing")
NODE_COUNTS = (2, 5, 10)
BATCHES = (1, 100)
EACH = 3
"""Topics of a subscriber."""
_READY_S = 60.0


def run(size: Size) -> Section:
    """All numbers of nodes, every cell once per round."""
    seconds, rounds = (2.0, 3) if size.name == "full" else (0.5, 1)
    rows: list[Row] = []
    for count in NODE_COUNTS:
        rows += asyncio.run(_rows(count, seconds, rounds))
    cell = {(row["nodes"], row["strategy"], row["batch"]): row for row in rows}
    return Section(
        "sequencing-tcp",
        "Total notification order over TCP",
        f"Each node is a process that publishes to its own topic and subscribes to {EACH}; links "
        "over TCP on one machine, no disk. *Per processor second* counts the busiest process only, "
        "as if each had a processor for itself; *against the sequencer* is that of the row over "
        "that of one sequencer for all, taken in the same round.",
        (
            Column("nodes", "nodes", "count"),
            Column("strategy", "strategy"),
            Column("batch", "batch", "count"),
            Column("rate", "events published by all", "rate"),
            Column("busiest", "per processor second", "rate"),
            Column("ratio", "against the sequencer", "ratio"),
            Column("latency", "latency", "seconds"),
        ),
        rows,
        [
            Goal(
                f"events per processor second, sequencing over the sequencer, batches of {batch}",
                "grows with the nodes",
                ", ".join(
                    f"{cell[n, 'sequencing', batch]['ratio']:.1f}x with {n}" for n in NODE_COUNTS
                ),
            )
            for batch in BATCHES
        ],
        Plot("nodes", "busiest", "nodes", "events per processor second", "series"),
    )


async def _rows(count: int, seconds: float, rounds: int) -> list[Row]:
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    async with _nodes(count) as nodes:
        await _ask(nodes, {"begun": True})
        for name in STRATEGIES:
            await _measure(nodes, name, 1, 0.1)  # everything was done once
        for _ in range(rounds):
            for batch in BATCHES:
                for name in STRATEGIES:
                    one = await _measure(nodes, name, batch, seconds)
                    found.setdefault((name, batch), []).append(one)
    rows: list[Row] = []
    for (name, batch), many in found.items():
        ground = found["sequencer", batch]
        pairs = zip(many, ground, strict=True)
        middle = {key: statistics.median(one[key] for one in many) for key in many[0]}
        ratio = statistics.median(mine["busiest"] / theirs["busiest"] for mine, theirs in pairs)
        series = f"{name}, batches of {batch}"
        row = {"nodes": count, "strategy": name, "batch": batch, "series": series, "ratio": ratio}
        rows.append({**row, **middle})
    return rows


async def _measure(
    nodes: list[asyncio.subprocess.Process], name: str, batch: int, seconds: float
) -> dict[str, float]:
    """What all nodes together publish, everything delivered to everybody in the end."""
    before = await _ask(nodes, {"count": name})
    said = await _ask(nodes, {"measure": name, "batch": batch, "seconds": seconds})
    size = len(nodes)
    owed = [sum(said[(n + k) % size]["sent"] for k in range(min(EACH, size))) for n in range(size)]
    async with asyncio.timeout(_READY_S):
        while True:
            after = await _ask(nodes, {"count": name})
            got = [a["total"] - b["total"] for a, b in zip(after, before, strict=True)]
            if all(mine >= due for mine, due in zip(got, owed, strict=True)):
                break
            await asyncio.sleep(0.05)
    spent = [a["cpu_s"] - b["cpu_s"] for a, b in zip(after, before, strict=True)]
    events = sum(one["sent"] for one in said)
    return {
        "rate": events / max(one["took_s"] for one in said),
        "busiest": events / max(spent),
        "latency": statistics.median(one["latency_us"] for one in said) / 1e6,
    }


@asynccontextmanager
async def _nodes(count: int) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    ports = {f"n{number:02}": port for number, port in enumerate(free_ports(count), 1)}
    nodes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.sequencing_network", name, json.dumps(ports)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for name in ports
    ]
    try:
        yield nodes
    finally:
        for node in nodes:
            node.kill()
            await node.wait()


async def _ask(
    nodes: list[asyncio.subprocess.Process], question: dict[str, Any]
) -> list[dict[str, Any]]:
    async with asyncio.timeout(_READY_S):
        for node in nodes:
            assert node.stdin is not None
            node.stdin.write(json.dumps(question).encode() + b"\n")
        lines = [await node.stdout.readline() for node in nodes if node.stdout is not None]
    return [json.loads(line) for line in lines]


# --- one node, as a program -----------------------------------------------------------------------


async def main(name: str, where: str) -> None:
    ports: dict[str, int] = json.loads(where)
    names = list(ports)
    topics = [f"T{one}" for one in names]
    mine = topics[names.index(name)]
    async with over_tcp(name, ports) as carrier:
        told = cluster_from(_cluster(ports, topics)).setting(name)
        end = End(name, carrier, levels=STRATEGIES, told=told, topic=mine)
        first = names.index(name)
        wanted = [topics[(first + k) % len(topics)] for k in range(EACH)]
        end.subscribe(tuple(dict.fromkeys(wanted)))
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            asked = json.loads(line)
            if "begun" in asked:
                while end.missing:
                    await asyncio.sleep(0.01)
                said = {}
            elif "measure" in asked:
                said = await publish(end, asked["measure"], asked["batch"], asked["seconds"])
            else:
                said = {"total": end.counts[asked["count"]].total, "cpu_s": process_time()}
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()


def _cluster(ports: dict[str, int], topics: list[str]) -> str:
    """Each sequencer where its topic is published; the one for all at the first node."""
    first = next(iter(ports))
    tables = [f'[cluster]\nname = "bench"\nstrategies = {json.dumps(STRATEGIES)}']
    for number, (name, port) in enumerate(ports.items(), 1):
        tables.append(f'[nodes.{name}]\ndoor = "{HOST}:{number}"\naddress = "{HOST}:{port}"')
    tables += [f"[topics.{topic}]" for topic in topics]
    placed = [f'"sequencing/{t}" = "{n}"' for t, n in zip(topics, ports, strict=True)]
    return "\n".join([*tables, "[placed]", f'"sequencer/sequencer" = "{first}"', *placed])


async def publish(
    end: End, name: str, batch: int, seconds: float, window: int = 0
) -> dict[str, float]:
    """Publish with a window under way until the time is over, and wait for all of it."""
    count = end.counts[name]
    count.latencies_us = []
    more = asyncio.Event()
    count.on_more = more.set
    window = window or min(WINDOW_BATCHES * batch, WINDOW_COUNT_MAX)
    start, first, sent = perf_counter(), count.own, 0
    while perf_counter() - start < seconds:
        await end.room(name, batch)
        end.publish(name, sent, batch)
        sent += batch
        await asyncio.sleep(0)
        while sent - (count.own - first) >= window:
            more.clear()
            await more.wait()
    while sent > count.own - first:
        more.clear()
        await more.wait()
    latency_us = statistics.median(count.latencies_us)
    return {"sent": sent, "took_s": perf_counter() - start, "latency_us": latency_us}


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
