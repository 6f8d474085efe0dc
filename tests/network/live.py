"""A scenario of the simulator in real time: a process per node, over TCP or NATS, and its history.

The machines are those that the simulator would build. `Live` starts the processes, kills some,
waits until everything owed is there, and gives the rows that `concordant verify` judges. Run as a
program (`python -m tests.network.live FOLDER NODE`) it is one of the nodes: whatever it publishes,
subscribes or delivers is a line of its file, and a delivery is taken when its line is written.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from concordant.errors import UsageError
from concordant.machine.effects import Delivery, Note
from concordant.machine.requests import Publish, Subscribe, Unsubscribe
from concordant.model.history import Row
from concordant.net.carrier import MeshCarrier
from concordant.net.host import Place, microseconds
from concordant.net.link import Identity
from concordant.net.mesh import MeshOptions
from concordant.net.nats import NatsOptions, connect
from concordant.net.nats_carrier import NatsCarrier
from concordant.net.nats_links import NatsMesh
from concordant.net.roles import STRATEGIES
from concordant.net.tcp import Mesh
from concordant.sim.popularity import weights
from concordant.sim.protocols import Layout, layout_of, protocol_of
from concordant.sim.recorder import Recorder
from concordant.sim.scenario import Scenario, scenario_from, scenario_text
from concordant.wire.messages import Codec
from tests.network.nats_process import NatsProcess

OPTIONS = MeshOptions(silence_s=2.0, alive_s=0.3, retry_s=0.02, retry_s_max=0.2)
DEADLINE_S = 90.0
QUIET_S = 2.5
"""Where nothing says how much is owed, a run is over when nothing happened for so long."""
WAITING_COUNT_MAX = 64
"""Events of a publisher that it published and does not know to be durable."""


class Plan(msgspec.Struct, frozen=True):
    """What every node of a run is told."""

    scenario: str
    seed: str
    transport: str
    ports: dict[str, int]
    url: str
    token: str
    endless: bool = False
    """Publish until a file `stop` appears, instead of for the scenario's duration."""


class Parts:
    """Where a protocol of the simulator puts its machines; stands in for a world."""

    def __init__(self, scenario: Scenario, layout: Layout) -> None:
        self.found: dict[str, tuple[str, Callable[[], Any]]] = {}
        protocol_of(scenario).build(self, scenario, layout)  # type: ignore[arg-type]

    def add(self, address: str, make: Callable[[], Any], *, node: str = "", **_: Any) -> None:
        self.found[address] = (node or address, make)

    @property
    def nodes(self) -> list[str]:
        return list(dict.fromkeys(node for node, _ in self.found.values()))


# --- one node -------------------------------------------------------------------------------------


class Journal:
    """The file of one process: a line per step, whole lines only."""

    def __init__(self, path: Path, *, run: str, level: str) -> None:
        whole = path.read_bytes() if path.exists() else b""
        end = whole.rfind(b"\n") + 1
        self.delivered_count = whole[:end].count(b'"step":"deliver"')
        self._run, self._level = run, level
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)

    def delivered(self, process: str, deliveries: Sequence[Delivery]) -> None:
        recorder = Recorder(self._run, level=self._level)
        recorder.delivered(microseconds(), process, deliveries)
        self._write(recorder)

    def noted(self, process: str, note: Note) -> None:
        if note.step is None:
            return
        recorder = Recorder(self._run, level=self._level)
        if note.step == "publish":
            recorder.published(microseconds(), process, note.events)
        else:
            recorder.noted(microseconds(), process, note.step, note.topics, text=note.text)
        self._write(recorder)

    def _write(self, recorder: Recorder) -> None:
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in recorder.rows())
        os.write(self._file, lines)


async def node(folder: Path, name: str) -> None:
    """Be one node until killed."""
    plan = msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)
    scenario = scenario_from(plan.scenario)
    layout = layout_of(scenario, plan.seed)
    parts = Parts(scenario, layout)
    codec = Codec(STRATEGIES[scenario.protocol].messages)
    carrier = await _carrier(plan, name, parts.nodes, codec)
    level = scenario.level or protocol_of(scenario).level
    run = f"{scenario.name or scenario.protocol}/{plan.transport}"
    published: dict[str, int] = {name: 0}
    """The number of the last event that is durable."""
    for address, (where, make) in parts.found.items():
        if where != name:
            continue
        journal = Journal(folder / f"{_file_name(address)}.jsonl", run=run, level=level)

        def hear(note: Note, journal: Journal = journal) -> None:
            journal.noted(name, note)
            if note.step == "publish":
                published[name] = max(published[name], *(event.seq for event in note.events))

        place = Place(
            address,
            make(),
            carrier,
            take=partial(journal.delivered, name),
            hear=hear,
            taken_count=journal.delivered_count,
            folder=folder / "data" / _file_name(address),
            records=STRATEGIES[scenario.protocol].records,
        )
        carrier.add(place)
        await place.settled()
        if address == name and name in scenario.nodes:
            await _use(folder, scenario, layout, plan, place, published)
    await asyncio.Event().wait()


async def _carrier(plan: Plan, name: str, nodes: list[str], codec: Codec) -> MeshCarrier:
    me = Identity("live", name, secrets.token_hex(8), plan.token)
    if plan.transport == "tcp":
        mesh = Mesh(me, {n: ("127.0.0.1", plan.ports[n]) for n in nodes}, options=OPTIONS)
        await mesh.start("127.0.0.1", plan.ports[name])
        return MeshCarrier(mesh, codec)
    server = await connect(NatsOptions((plan.url,), retry_s=0.05), name=name)
    over_nats = NatsMesh(me, nodes, server, options=OPTIONS)
    await over_nats.start()
    carrier = NatsCarrier(over_nats, codec)
    await carrier.start()
    return carrier


async def _use(
    folder: Path,
    scenario: Scenario,
    layout: Layout,
    plan: Plan,
    place: Place,
    published: Mapping[str, int],
) -> None:
    """Publish and change subscriptions as the scenario says; after a crash, what is left of it."""
    spec = scenario.workload
    done = published.get(place.address, 0)
    if not done:
        loop = asyncio.get_running_loop()
        for change in spec.subscriptions:
            if change.node == place.address:
                requests = [Unsubscribe(change.unsubscribe)] if change.unsubscribe else []
                requests += [Subscribe(change.subscribe)] if change.subscribe else []
                loop.call_later(change.at_ms / 1e3, place.command, *requests)
    topics = layout.publishes.get(place.address)
    if not topics:
        return
    count = int(spec.rate_per_s * scenario.duration_ms / 1_000)
    ranks = [scenario.topics.index(topic) for topic in topics]
    shares = weights(len(scenario.topics), spec.popularity)
    cumulative = list(itertools.accumulate(shares[rank] for rank in ranks))
    rng = Random(f"{plan.seed}/{place.address}/{done}")
    told = os.open(folder / f"{place.address}.told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    numbers = itertools.count(done) if plan.endless else range(done, count)
    for _ in numbers:
        if plan.endless and (folder / "stop").exists():
            break
        await asyncio.sleep(rng.expovariate(spec.rate_per_s))
        (topic,) = rng.choices(topics, cum_weights=cumulative)
        kind = 1 + int(rng.random() * spec.kinds)
        while True:
            try:
                place.command(Publish(topic, {"kind": kind}))
                break
            except UsageError:  # no room: those who take are away
                await asyncio.sleep(0.01)
        await place.settled()
        os.write(told, b"%d\n" % published[place.address])
    (folder / f"{place.address}.done").touch()


def _file_name(address: str) -> str:
    return address.replace("/", "-")


# --- all of them ----------------------------------------------------------------------------------


class Live:
    """A run of a scenario by processes."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        transport: str,
        seed: int = 1,
        endless: bool = False,
    ) -> None:
        self.scenario = scenario
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.layout = layout_of(scenario, str(seed))
        self.nodes = Parts(scenario, self.layout).nodes
        self.level = scenario.level or protocol_of(scenario).level
        self.kills: Counter[str] = Counter()
        self._run = f"{scenario.name or scenario.protocol}/{transport}"
        self._rows: list[Row] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.server = NatsProcess(folder / "nats") if transport == "nats" else None
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in self.nodes]
        ports = {n: int(one.getsockname()[1]) for n, one in zip(self.nodes, sockets, strict=True)}
        for one in sockets:
            one.close()
        plan = Plan(
            scenario_text(scenario),
            str(seed),
            transport,
            ports,
            self.server.url if self.server else "",
            secrets.token_hex(8),
            endless,
        )
        (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        for name in self.nodes:
            self._start(name)

    def _start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.network.live", str(self.folder), name],
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        """kill -9, and start it again at once."""
        process = self._processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._rows.append(Row(self._run, name, "crash", microseconds()))
        self.kills[name] += 1
        self._start(name)
        self._rows.append(Row(self._run, name, "restart", microseconds()))

    def end_load(self) -> None:
        """Let the publishers of an endless run come to their end."""
        (self.folder / "stop").touch()

    def progress(self, name: str) -> int:
        """What a node has done: events that it was told to be durable, or deliveries."""
        if name in self.scenario.publishers:
            return self.told(name)
        if name in self.scenario.subscribers:
            return self._lines(name, "deliver")
        return self.delivered_count()  # a server: without it nobody gets anything

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        if self.server is not None:
            self.server.stop()

    # --- what happened --------------------------------------------------------------------------

    def _lines(self, name: str, step: str) -> int:
        path = self.folder / f"{name}.jsonl"
        return path.read_bytes().count(b'"step":"%s"' % step.encode()) if path.exists() else 0

    def delivered_count(self) -> int:
        return sum(self._lines(name, "deliver") for name in self.scenario.subscribers)

    def all_subscribed(self) -> bool:
        """Has every subscriber held by now the topics that it begins with?"""
        held = {
            (row.process, t) for row in self.rows() if row.step == "subscribe" for t in row.topics
        }
        return all((n, t) in held for n, wanted in self.layout.subscribes.items() for t in wanted)

    def told(self, name: str) -> int:
        """How many of its events a publisher was told to be durable."""
        path = self.folder / f"{name}.told"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        numbers = [int(line) for line in lines]
        assert numbers == sorted(set(numbers)), f"{name} gave a number twice"
        return numbers[-1] if numbers else 0

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """A process that ended by itself, or nothing for too long, is a failure."""
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            for name, process in self._processes.items():
                log = (self.folder / f"{name}.log").read_text()
                assert process.poll() is None, f"{name} ended by itself: {log[-2_000:]}"
            counts = {n: self._lines(n, "deliver") for n in self.scenario.subscribers}
            assert time.monotonic() < deadline, f"it never came to rest: {counts}"
            time.sleep(0.05)

    def wait_for_the_end(self) -> None:
        """Until everything was published and everything owed is there."""
        self.wait_until(
            lambda: all((self.folder / f"{n}.done").exists() for n in self.scenario.publishers)
        )
        if self.level == "none" or self.scenario.workload.subscriptions:
            quiet_since, seen = time.monotonic(), -1

            def quiet() -> bool:
                nonlocal quiet_since, seen
                count = self.delivered_count()
                if count != seen:
                    seen, quiet_since = count, time.monotonic()
                return time.monotonic() - quiet_since > QUIET_S

            self.wait_until(quiet)
        else:
            topics = Counter(row.topics[0] for row in self.rows() if row.step == "publish")
            owed = {
                name: sum(topics[topic] for topic in wanted)
                for name, wanted in self.layout.subscribes.items()
            }
            self.wait_until(lambda: all(self._lines(n, "deliver") >= owed[n] for n in owed))
        self._rows.append(Row(self._run, "", "end", microseconds()))

    def rows(self) -> list[Row]:
        """The history so far, by time; a publication that a new life repeats stands once."""
        decode = msgspec.json.Decoder(Row).decode
        found = list(self._rows)
        published: set[str] = set()
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in path.read_bytes().split(b"\n")[:-1]:
                row = decode(line)
                if row.step == "publish":
                    if row.events[0] in published:
                        continue
                    published.add(row.events[0])
                found.append(row)
        return sorted(found, key=lambda row: row.time_us)


if __name__ == "__main__":
    asyncio.run(node(Path(sys.argv[1]), sys.argv[2]))
