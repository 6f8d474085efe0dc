"""Instances dispatched over TCP: brokers in processes of their own with logs, clients here.

Run as a program it is one broker. `dispatched` starts them, lets environments have transactions
open, and takes times: of each transaction, and of each process's processor. Every instance goes
from its dispatcher to its agent and back again and again, five operations of three clients each
time, so that a run may be as long as it likes and the tables stay as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from concordant.errors import InvariantViolation
from concordant.machine.inputs import Message
from concordant.net.carrier import MeshCarrier
from concordant.net.link import Identity
from concordant.net.tcp import Mesh
from concordant.net.transactions import MESSAGES, Answer, Door, host_broker
from concordant.route.filter import Filter, filter_of
from concordant.route.requests import Publish, Subscribe, Unsubscribe
from concordant.sim.dispatching import OVERLAYS
from concordant.transact.actions import Committed, Plan, Trigger
from concordant.transact.client import Triggered
from concordant.wire.messages import Codec

HOST, APP = "127.0.0.1", "app"
_DEADLINE_S = 120
_LOST_S = 1.0
"""A step of the waiting baseline that takes longer is taken for lost."""


class Setup(msgspec.Struct, frozen=True):
    """One experiment."""

    kind: str = "static"
    overlay: str = "3 line"
    count: int = 1_000
    """Transactions per round."""
    rounds: int = 1
    outstanding: int = 1
    scenarios: int = 1
    """Environments, each with a dispatcher and two agents."""
    delay_ms: int = 0
    """What a message takes longer than the loopback lets it."""
    wait_us: int = 0
    """Of the waiting baseline: the pause."""


class Live(msgspec.Struct):
    """What came of a round."""

    latencies_s: list[float] = []
    seconds: float = 0.0
    processor_ms: dict[str, float] = msgspec.field(default_factory=dict)
    """Per transaction, by process."""
    wrong_count: int = 0
    """Of the waiting baseline: steps that did not reach the new place, and it alone."""

    @property
    def per_s(self) -> float:
        return len(self.latencies_s) / self.seconds


class _Delayed(MeshCarrier):
    """A mesh whose messages take a while; in their order."""

    delay_s = 0.0

    def send(self, source: str, to: str, messages: tuple[Message, ...]) -> None:
        if not self.delay_s:
            super().send(source, to, messages)
            return
        give = super().send
        asyncio.get_running_loop().call_later(self.delay_s, give, source, to, messages)


async def _carrier(known: Mapping[str, Any], name: str) -> tuple[_Delayed, Mesh]:
    ports: dict[str, int] = known["ports"]
    mesh = Mesh(
        Identity("bench", name, secrets.token_hex(8), known["token"]),
        {node: (HOST, port) for node, port in ports.items()},
    )
    await mesh.start(HOST, ports[name])
    carrier = _Delayed(mesh, Codec(MESSAGES))
    carrier.delay_s = known["delay_ms"] / 1_000
    return carrier, mesh


async def _broker(file: Path, name: str) -> None:
    """One broker, until it is killed."""
    known = json.loads(file.read_text())
    carrier, _ = await _carrier(known, name)
    host_broker(
        name,
        carrier,
        neighbours=OVERLAYS[known["overlay"]][name],
        isolated=known["isolated"],
        parent=known["parents"][name],
        folder=Path(known["folder"]) / name,
    )
    await asyncio.Event().wait()


def dispatched(setup: Setup) -> list[Live]:
    """Run an experiment to its end: what came of each round."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_dispatched(setup, Path(folder)))


def _parents(near: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Towards the root, which is the first broker."""
    found = {next(iter(near)): ""}
    for broker in (reached := list(found)):
        for other in near[broker]:
            if other not in found:
                found[other] = broker
                reached.append(other)
    return found


@asynccontextmanager
async def _brokers(setup: Setup, folder: Path) -> AsyncIterator[Any]:
    near = OVERLAYS[setup.overlay]
    names = (*near, APP)
    sockets = [socket.create_server((HOST, 0)) for _ in names]
    ports = {n: one.getsockname()[1] for n, one in zip(names, sockets, strict=True)}
    for one in sockets:
        one.close()
    known = {
        "folder": str(folder),
        "ports": ports,
        "token": secrets.token_hex(8),
        "overlay": setup.overlay,
        "isolated": setup.kind == "isolated",
        "parents": _parents(near),
        "delay_ms": setup.delay_ms,
    }
    file = folder / "cluster.json"
    file.write_text(json.dumps(known))
    command = [sys.executable, "-m", "bench.transactions_rig", str(file)]
    processes = {name: subprocess.Popen([*command, name]) for name in near}
    carrier, mesh = await _carrier(known, APP)
    try:
        yield carrier, {APP: os.getpid(), **{name: one.pid for name, one in processes.items()}}
    finally:
        await carrier.stop()
        await mesh.stop()
        for process in processes.values():
            process.kill()
            process.wait()


class _Scenario:
    """An environment, a dispatcher and two agents."""

    def __init__(self, number: int, edges: list[str], carrier: MeshCarrier, setup: Setup) -> None:
        self.kind = setup.kind
        self.wait_s = setup.wait_us / 1e6
        self.wrong_count = 0
        self.step_count = 0
        self.reached: dict[int, list[str]] = {}
        """Who got a step of the waiting baseline, by its number."""
        self._hoping: set[asyncio.Task[None]] = set()
        self.process = f"p{number}"
        self.names = [f"{APP}/{role}{number}" for role in "EDAZ"]
        self.got = 0
        self._changed = asyncio.Event()
        self.doors = {
            name: Door(
                name,
                edges[(number + place) % len(edges)],
                carrier,
                take=partial(self._take, name),
                handler=self._handle,
            )
            for place, name in enumerate(self.names)
        }
        self.owners: dict[int, int] = {}
        """Who has an instance: the place of its name."""

    def _take(self, name: str, event: Any) -> None:
        if event.topic in ("Ready", "Work"):
            self.got += 1
            self.reached.setdefault(event.attributes.get("step", 0), []).append(name)
            self._changed.set()
        elif self.kind == "waiting":
            task = asyncio.create_task(self._hope(name, event.attributes))
            self._hoping.add(task)
            task.add_done_callback(self._hoping.discard)

    async def _hope(self, name: str, about: Mapping[str, Any]) -> None:
        """Without transactions, whoever is called does its part and tells nobody."""
        door, x, then = self.doors[name], about["x"], about["then"]
        if then:
            await door.publish("Call", self._call(then, x, ""))
            await door.unsubscribe(f"x{x}")
        else:
            await door.subscribe(f"x{x}", self._work(x))

    async def _wait(self, x: int, owner: str, new: str) -> None:
        """Call, pause, publish, and see whom it reaches."""
        door = self.doors[self.names[0]]
        self.step_count += 1
        step = self.step_count
        await door.publish("Call", self._call(owner, x, new))
        await asyncio.sleep(self.wait_s)
        await door.publish("Work", {"process": self.process, "x": x, "step": step})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOST_S):
                while new not in self.reached.get(step, ()):
                    self._changed.clear()
                    await self._changed.wait()
        if self.reached.pop(step, []) != [new]:
            self.wrong_count += 1
            await asyncio.sleep(_LOST_S)  # what was late arrives, so that the next one has a chance

    def _work(self, x: int) -> Filter:
        return filter_of("Work", process=self.process, x=x)

    async def set_up(self, count: int) -> None:
        env, *others = self.names
        door = self.doors[env]
        await door.advertise("work", filter_of("Work", process=self.process))
        await door.advertise("ready", filter_of("Ready", process=self.process))
        for name in self.names:
            await self.doors[name].advertise("calls", filter_of("Call", process=self.process))
        for name in others:
            await self.doors[name].subscribe("calls", filter_of("Call", to=name))
            await self.doors[name].subscribe("ready", filter_of("Ready", to=name))
        for x in range(count):
            self.owners[x] = 1
            await self.doors[others[0]].subscribe(f"x{x}", self._work(x))
        # Links keep the order: who gets this has told what it subscribed to before.
        for name in others:
            await self._reach(partial(door.publish, "Ready", self._said(name)))
        for x in (count - 1,):
            await self._reach(partial(door.publish, "Work", {"process": self.process, "x": x}))
        await asyncio.sleep(0.3)

    def _said(self, name: str) -> dict[str, Any]:
        return {"process": self.process, "to": name}

    async def _reach(self, publish: Callable[[], Any]) -> None:
        before = self.got
        async with asyncio.timeout(_DEADLINE_S):
            while self.got == before:
                self._changed.clear()
                await publish()
                try:
                    async with asyncio.timeout(0.5):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    async def _handle(self, trigger: Triggered, answer: Answer) -> None:
        about: Mapping[str, Any] = trigger.event.attributes
        x, then = about["x"], str(about["then"])
        if then:
            await answer.trigger(then, "Call", self._call(then, x, ""))
            await answer.unsubscribe(f"x{x}")
        else:
            await answer.subscribe(f"x{x}", self._work(int(x)))

    def _call(self, to: str, x: Any, then: str) -> dict[str, Any]:
        return {"process": self.process, "to": to, "x": x, "then": then}

    async def run(self, x: int) -> None:
        """One transaction: whoever has the instance gives it to another."""
        env = self.names[0]
        owner, new = self.names[self.owners[x]], self.names[2 + x % 2]
        if owner == new:
            new = self.names[1]
        step = Publish("Work", {"process": self.process, "x": x})
        door = self.doors[env]
        if self.kind == "waiting":
            await self._wait(x, owner, new)
            self.owners[x] = self.names.index(new)
            return
        if self.kind == "static":
            takes = Subscribe(f"x{x}", self._work(x))
            assign = Trigger(new, "Call", self._call(new, x, ""), (takes,))
            gives = (assign, Unsubscribe(f"x{x}"))
            plan = Plan(env, (Trigger(owner, "Call", self._call(owner, x, new), gives), step))
            outcome = await door.run(plan)
        else:
            async with door.transaction(self.kind) as tx:  # type: ignore[call-overload]
                await tx.trigger(owner, "Call", self._call(owner, x, new))
                await tx.publish("Work", step.attributes)
            outcome = tx.outcome
        if not isinstance(outcome, Committed):
            raise InvariantViolation(f"instance {x} of {self.process}: {outcome}")
        self.owners[x] = self.names.index(new)


async def _dispatched(setup: Setup, folder: Path) -> list[Live]:
    async with _brokers(setup, folder) as (carrier, pids):
        edges = list(OVERLAYS[setup.overlay])
        scenarios = [_Scenario(n, edges, carrier, setup) for n in range(setup.scenarios)]
        for one in scenarios:
            await one.set_up(setup.outstanding)
        for x in range(setup.outstanding):  # once, so that all code was run
            await scenarios[0].run(x)
        found = [await _round(setup, scenarios, pids) for _ in range(setup.rounds)]
        for one in scenarios:
            for door in one.doors.values():
                await door.stop()
        return found


async def _round(setup: Setup, scenarios: list[_Scenario], pids: dict[str, int]) -> Live:
    found = Live([])
    left = iter(range(setup.count))

    async def worker(scenario: _Scenario, x: int) -> None:
        for _ in left:
            begun = perf_counter()
            await scenario.run(x)
            found.latencies_s.append(perf_counter() - begun)

    before = {name: _ticks(pid) for name, pid in pids.items()}
    wrong_count = sum(one.wrong_count for one in scenarios)
    start = perf_counter()
    await asyncio.gather(*(worker(one, x) for one in scenarios for x in range(setup.outstanding)))
    found.seconds = perf_counter() - start
    found.wrong_count = sum(one.wrong_count for one in scenarios) - wrong_count
    for name, pid in pids.items():
        used = (_ticks(pid) - before[name]) / os.sysconf("SC_CLK_TCK")
        found.processor_ms[name] = 1_000 * used / setup.count
    return found


def _ticks(pid: int) -> int:
    """Processor time of a process (Linux)."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return sum(map(int, text[text.rindex(")") + 2 :].split()[11:13]))


if __name__ == "__main__":
    asyncio.run(_broker(Path(sys.argv[1]), sys.argv[2]))
