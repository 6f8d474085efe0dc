"""A broker killed with SIGKILL while a subscriber moves away from it, over TCP.

Three nodes are processes with logs on a disk. Two applications publish at nodes that stay, one
answers what it sees, one publishes at the node that is killed. The subscriber is served by the
broker of that node, and moves away at about the moment at which it dies. The node comes back at
once, or not before the others hold it for dead. What the subscriber got is judged by the checkers
of the level; what is missing must have been told as a gap, or have died with the node that
published it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from concordant.bus import Bus, Subscription
from concordant.check.levels import check_level
from concordant.model.event import Event
from concordant.model.history import Row
from concordant.net.caller import CallerOptions
from concordant.net.cluster import Cluster, cluster_from
from concordant.net.host import microseconds
from tests.ports import free_ports

NAMES = ("n1", "n2", "n3")
DOOMED = "n3"
TOPICS = "Question, Answer"
PACE_S = 0.01
"""Between two events of a publisher."""
QUIET_S = 3.0
"""Nothing came for so long after the load ended: what is missing now will not come."""
GRACE_S = 0.5
"""Everything came, and something may still come twice."""
DEADLINE_S = 120.0
_START_S = 60.0


@dataclass
class Said:
    """What came of one repetition."""

    wrong: list[str] = field(default_factory=list)
    published_count: int = 0
    delivered_count: int = 0
    gap_count: int = 0
    lost_count: int = 0
    """Events of the killed node that nobody saw."""
    checked: dict[str, int] = field(default_factory=dict)


class Nodes:
    """Three nodes in processes of their own."""

    def __init__(self, folder: Path, *, suspect_us: int) -> None:
        """Brokers are held for dead after twenty times as long as others are suspected."""
        ports = free_ports(6)
        text = (
            f'[cluster]\nname = "moves"\nstrategies = ["causal"]\ndata = "{folder / "data"}"\n'
            f"[parameters]\nsuspect_us = {suspect_us}\n"
            + "".join(
                f'[nodes.{name}]\ndoor = "127.0.0.1:{ports[2 * n]}"\n'
                f'address = "127.0.0.1:{ports[2 * n + 1]}"\n'
                for n, name in enumerate(NAMES)
            )
        )
        self.cluster: Cluster = cluster_from(text)
        self._folder = folder
        self._file = folder / "cluster.toml"
        self._file.write_text(text)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            command = [
                sys.executable,
                "-m",
                "concordant.cli.main",
                "node",
                str(self._file),
                "--name",
                name,
            ]
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait()

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def bus(self, node: str, name: str) -> Bus:
        """A bus at a node, which may still have to start."""
        url = f"tcp://{self.cluster.nodes[node].door}"
        return Bus(url, name=name, options=CallerOptions(connect_s=_START_S))

    def publisher(self, node: str, kind: str) -> str:
        """A name that belongs to this node."""
        names = (f"{kind}{number}" for number in range(1_000))
        return next(one for one in names if self.cluster.home(one) == node)


class History:
    """What applications did, row by row."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._seqs: dict[str, int] = {}

    async def publish(self, bus: Bus, topic: str) -> None:
        """Written before it happens: what is delivered from now on came later."""
        self._seqs[bus.name] = seq = self._seqs.get(bus.name, 0) + 1
        event = Event(topic, bus.name, seq, microseconds())
        self.rows.append(
            Row(
                "",
                bus.name,
                "publish",
                event.time,
                topics=(topic,),
                events=(event.id,),
                event=event,
            )
        )
        await bus.publish(topic, {"n": seq})

    @property
    def complete(self) -> bool:
        """Has the mover everything that was published?"""
        published = {one for row in self.rows if row.step == "publish" for one in row.events}
        got = (row for row in self.rows if row.step == "deliver" and row.process == "mover")
        return published <= {one for row in got for one in row.events}

    async def read(self, process: str, found: Subscription, then: object = None) -> None:
        """Take deliveries for ever; `then` is told of each."""
        async for delivery in found:
            now = microseconds()
            events = delivery.events
            self.rows.append(
                Row(
                    *("", process, "deliver", now),
                    subscription=delivery.subscription,
                    topics=tuple(event.topic for event in events),
                    events=tuple(event.id for event in events),
                    position=delivery.position,
                    in_order=delivery.in_order,
                )
            )
            if callable(then):
                await then(delivery)


async def run_move(folder: Path, *, rng: Random, returns: bool, event_count: int = 60) -> Said:
    """One repetition; `returns`: the killed node is back before anybody misses it."""
    nodes = Nodes(folder, suspect_us=2_000_000 if returns else 100_000)
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await _move(nodes, rng, returns=returns, event_count=event_count)
    finally:
        nodes.stop()


async def _move(nodes: Nodes, rng: Random, *, returns: bool, event_count: int) -> Said:
    history = History()
    names = {kind: nodes.publisher(node, kind) for kind, node in _PLACES.items()}
    if rng.random() < 0.5:  # the answerer reads at one node, and publishes at another
        names["answerer"] = nodes.publisher(_PLACES["asker"], "answerer")
    async with contextlib.AsyncExitStack() as stack:
        buses = {
            kind: await stack.enter_async_context(nodes.bus(node, names[kind]))
            for kind, node in _PLACES.items()
        }
        mover = await stack.enter_async_context(nodes.bus("n1", "mover"))
        moving = await stack.enter_async_context(mover.subscribe(TOPICS, order="causal"))
        asked = buses["answerer"].subscribe("Question", order="causal")
        await stack.enter_async_context(asked)
        for process in ("mover", names["answerer"]):
            topics = tuple(TOPICS.split(", ")) if process == "mover" else ("Question",)
            history.rows.append(Row("", process, "subscribe", microseconds(), topics=topics))

        async def answer(delivery: object) -> None:
            await history.publish(buses["answerer"], "Answer")

        await moving.move(DOOMED)
        readers = [
            asyncio.create_task(history.read("mover", moving)),
            asyncio.create_task(history.read(names["answerer"], asked, answer)),
        ]

        async def load(kind: str) -> None:
            for _ in range(event_count):
                await history.publish(buses[kind], "Question")
                await asyncio.sleep(PACE_S * rng.uniform(0.5, 1.5))

        loads = [asyncio.create_task(load(kind)) for kind in ("asker", "doomed")]
        await asyncio.sleep(rng.uniform(0.2, 0.4))
        early = rng.random() < 0.5  # the move begins before, or after, the broker is dead
        if early:
            await moving.move("n2")
            await asyncio.sleep(rng.uniform(0, 0.03))
        nodes.kill(DOOMED)
        if not early:
            await moving.move("n2")
        if not returns:
            await asyncio.sleep(4.0)
        nodes.start(DOOMED)
        await asyncio.gather(*loads)
        await _quiet(history)
        for task in (*readers, *loads):
            task.cancel()
        await asyncio.gather(*readers, *loads, return_exceptions=True)
    return _judged(history, names, returns=returns)


_PLACES = {"asker": "n1", "answerer": "n2", "doomed": DOOMED}


async def _quiet(history: History) -> None:
    """Until nothing came for a while: a short one if nothing is missing."""
    before, idle_s = -1, 0.0
    while idle_s < (GRACE_S if history.complete else QUIET_S):
        idle_s = idle_s + 0.1 if len(history.rows) == before else 0.0
        before = len(history.rows)
        await asyncio.sleep(0.1)


def _judged(history: History, names: dict[str, str], *, returns: bool) -> Said:
    rows = history.rows
    published = {one: row.process for row in rows if row.step == "publish" for one in row.events}
    got = [row for row in rows if row.step == "deliver" and row.process == "mover"]
    had = {one for row in got for one in row.events}
    gaps = [row for row in got if row.subscription == "gap"]
    missing = [one for one in published if one not in had]
    died = [one for one in missing if published[one] == names["doomed"] and not returns]
    said = Said(
        published_count=len(published),
        delivered_count=len(had),
        gap_count=len(gaps),
        lost_count=len(died),
    )
    for verdict in check_level((row for row in rows if row.subscription != "gap"), "causal"):
        said.checked[verdict.name] = verdict.checked
        if not verdict.holds:
            said.wrong.append(str(verdict))
    silent = [one for one in missing if one not in died]
    if silent and not gaps:
        said.wrong.append(f"{len(silent)} events are missing without a gap, {silent[0]} among them")
    return said
