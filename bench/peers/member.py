"""One member of a group of ours, as a program: it publishes to all and takes what all publish.

It is told what to do line by line, as `JGroupsMember.java` is, and answers in the same words. The
machines are those that nodes host, over TCP, without disk; all members subscribe to one topic.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from time import process_time, time_ns
from typing import Any

from bench.network_rig import HOST, TOPIC, Count, End, over_tcp
from bench.sequencing_network import publish
from concordant.machine.effects import Delivery
from concordant.net.cluster import cluster_from

_MASK = (1 << 64) - 1


class Taken(Count):
    """What a member got: how many, in which order, and its own."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self.digest = 0
        """Of all sources and numbers in their order: equal at all members, or the order is not."""
        self._node = node
        self._indices: dict[str, int] = {}

    def take(self, deliveries: Sequence[Delivery]) -> None:
        digest = self.digest
        last = None
        for one in deliveries:
            (event,) = one.events
            source = self._indices.get(event.source)
            if source is None:
                source = self._indices[event.source] = int(event.source.partition("/")[0][1:])
            digest = (31 * digest + 1_000_003 * source + event.seq) & _MASK
            if event.source.startswith(self._node):
                self.own += 1
                last = event
        self.digest = digest
        self.total += len(deliveries)
        if last is not None:
            self.latencies_us.append(time_ns() // 1_000 - last.time)
            self.on_more()


async def main(strategy: str, number: str, where: str) -> None:
    ports = {f"m{one}": port for one, port in enumerate(json.loads(where), 1)}
    name = f"m{number}"
    async with over_tcp(name, ports) as carrier:
        told = cluster_from(_cluster(ports, strategy)).setting(name)
        end = End(name, carrier, levels=(strategy,), told=told)
        taken = end.counts[strategy] = Taken(f"{name}/")
        end.subscribe()
        _say({})
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while words := (await reader.readline()).decode().split():
            match words:
                case ["begun", _]:
                    while end.missing:
                        await asyncio.sleep(0.01)
                    _say({})
                case ["measure", batch, seconds, window]:
                    _say(await publish(end, strategy, int(batch), float(seconds), int(window)))
                case _:
                    digest = f"{taken.digest:016x}"
                    _say({"total": taken.total, "digest": digest, "cpu_s": process_time()})


def _cluster(ports: dict[str, int], strategy: str) -> str:
    """Nodes and their ports; the door is never opened."""
    tables = [f'[cluster]\nname = "bench"\nstrategies = ["{strategy}"]\n[topics.{TOPIC}]']
    for number, (name, port) in enumerate(ports.items(), 1):
        tables.append(f'[nodes.{name}]\ndoor = "{HOST}:{number}"\naddress = "{HOST}:{port}"')
    return "\n".join(tables)


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
