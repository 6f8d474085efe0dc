"""Instances dispatched over TCP, by three broker processes that are killed while it goes on.

Each broker is a process of its own with its log, forked from a server that has loaded everything,
so that a life begins in milliseconds. `run_dispatching` hosts the clients, begins transactions,
kills brokers with SIGKILL and starts them again, and says what is wrong at the end: each instance
must be where its transaction's outcome says.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from concordant.model.event import Event
from concordant.net.carrier import MeshCarrier
from concordant.net.link import Identity
from concordant.net.mesh import MeshOptions
from concordant.net.tcp import Mesh
from concordant.net.transactions import MESSAGES, Answer, Door, host_broker
from concordant.route.filter import Filter, filter_of
from concordant.route.link import LinkOptions
from concordant.route.requests import Publish, Subscribe, Unsubscribe
from concordant.transact.actions import Committed, Outcome, Plan, Trigger
from concordant.transact.client import Triggered
from concordant.transact.options import TransactOptions
from concordant.wire.messages import Codec

NEAR = {"b1": ("b2",), "b2": ("b1", "b3"), "b3": ("b2",)}
APP = "app"
MESH = MeshOptions(silence_s=2.0, alive_s=0.3, retry_s=0.02, retry_s_max=0.2)
LINKS = LinkOptions(repeat_us=150_000, repeat_us_max=600_000, gathers=True, log_count_max=500)
TRANSACTION_US = 5_000_000
DEADLINE_S = 60
FENCE = -1
"""An instance that everybody gets the steps of."""
DRAIN_COUNT_MAX = 20
KILL_S = 0.25
"""Between two kills, at most: a transaction takes some milliseconds."""

_NURSERY = get_context("forkserver")
_NURSERY.set_forkserver_preload(["tests.network.dispatching"])


def work(x: Any) -> Filter:
    return filter_of("Work", process="p", x=x)


@dataclass
class Said:
    """What came of it."""

    committed_count: int = 0
    aborted_count: int = 0
    killed_count: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


def live(known: dict[str, Any], name: str) -> None:
    """The life of a broker's process."""
    log = os.open(Path(known["folder"]) / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    asyncio.run(broker(known, name))


async def broker(known: dict[str, Any], name: str) -> None:
    """One broker, until it is killed."""
    carrier, _ = await _mesh(known, name)
    host_broker(
        name,
        carrier,
        neighbours=NEAR[name],
        isolated=known["isolated"],
        parent="" if name == "b2" else "b2",
        folder=Path(known["folder"]) / name,
        options=TransactOptions(transaction_us=TRANSACTION_US),
        links=LINKS,
    )
    await asyncio.Event().wait()


async def _mesh(known: dict[str, Any], name: str) -> tuple[MeshCarrier, Mesh]:
    ports: dict[str, int] = known["ports"]
    mesh = Mesh(
        Identity("test", name, secrets.token_hex(8), known["token"]),
        {node: ("127.0.0.1", port) for node, port in ports.items()},
        options=MESH,
    )
    await mesh.start("127.0.0.1", ports[name])
    return MeshCarrier(mesh, Codec(MESSAGES)), mesh


class Lives:
    """Processes that are killed and begin again."""

    def __init__(
        self, folder: Path, names: Iterable[str], live: Callable[[Any, str], None], known: Any
    ) -> None:
        """`live` is what a process does, with what all know and its own name."""
        self.folder = folder
        self._live = live
        self._told = known
        self.processes = {name: self.start(name) for name in names}

    def start(self, name: str) -> ForkServerProcess:
        process = _NURSERY.Process(target=self._live, args=(self._told, name), daemon=True)
        process.start()
        return process

    def kill(self, name: str) -> None:
        """By SIGKILL, at whatever it does."""
        self.processes[name].kill()
        self.processes[name].join()
        self.processes[name] = self.start(name)

    def check(self) -> None:
        """A process that ended by itself is a failure."""
        for name, process in self.processes.items():
            if process.exitcode is not None:
                raise AssertionError((self.folder / f"{name}.log").read_text()[-3_000:])

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()


class Brokers(Lives):
    """The broker processes."""

    def __init__(self, folder: Path, *, isolated: bool) -> None:
        names = (*NEAR, APP)
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]
        ports = {n: one.getsockname()[1] for n, one in zip(names, sockets, strict=True)}
        for one in sockets:
            one.close()
        self.known = {
            "folder": str(folder),
            "ports": ports,
            "token": secrets.token_hex(8),
            "isolated": isolated,
        }
        super().__init__(folder, NEAR, live, self.known)


class Clients:
    """An environment, a dispatcher and two agents in this process."""

    def __init__(self, carrier: MeshCarrier, brokers: Brokers, rng: Random) -> None:
        self.brokers = brokers
        self.got: dict[str, list[Event]] = {}
        self.doors: dict[str, Door] = {}
        for name, handler in (
            ("env", None),
            ("dispatcher", self._dispatch),
            ("a0", self._accept),
            ("a1", self._accept),
        ):
            events = self.got[name] = []
            self.doors[name] = Door(
                f"{APP}/{name}",
                rng.choice(list(NEAR)),
                carrier,
                take=events.append,
                handler=handler,
                links=LINKS,
            )

    async def _dispatch(self, trigger: Triggered, answer: Answer) -> None:
        x = trigger.event.attributes["x"]
        await answer.trigger(_agent(x), "Assign", {"to": _agent(x), "x": x})
        await answer.unsubscribe(f"x{x}")

    async def _accept(self, trigger: Triggered, answer: Answer) -> None:
        x = trigger.event.attributes["x"]
        await answer.subscribe(f"x{x}", work(x))

    async def set_up(self, count: int) -> None:
        await self.doors["env"].advertise("work", filter_of("Work"))
        await self.doors["env"].advertise("calls", filter_of("Call"))
        await self.doors["dispatcher"].advertise("assign", filter_of("Assign"))
        await self.doors["dispatcher"].subscribe("calls", filter_of("Call"))
        for n in range(2):
            await self.doors[f"a{n}"].subscribe("assign", filter_of("Assign", to=_agent(n)))
        for name in ("dispatcher", "a0", "a1"):
            await self.doors[name].subscribe("fence", work(FENCE))
        for x in range(count):
            await self.doors["dispatcher"].subscribe(f"x{x}", work(x))
        await self.reach(count - 1, "dispatcher", step=-1)
        await self.warm_up()

    async def warm_up(self) -> None:
        """Everybody can be called: what was advertised has arrived everywhere."""
        await self.doors["dispatcher"].subscribe("warm", filter_of("Warm"))
        await self.doors["a0"].advertise("warm", filter_of("Warm"))
        await self.doors["a1"].advertise("warm", filter_of("Warm"))
        for name in ("a0", "a1"):
            for attempt in range(1_000):
                await self.doors[name].publish("Warm", {"from": name, "n": attempt})
                await asyncio.sleep(0.02)
                if any(e.attributes.get("from") == name for e in self.got["dispatcher"]):
                    break

    async def run(self, kind: str, x: int) -> Outcome:
        env = self.doors["env"]
        if kind == "static":
            accept = Subscribe(f"x{x}", work(x))
            assign = Trigger(_agent(x), "Assign", {"to": _agent(x), "x": x}, (accept,))
            call = Trigger(f"{APP}/dispatcher", "Call", {"x": x}, (assign, Unsubscribe(f"x{x}")))
            step = Publish("Work", {"process": "p", "x": x, "step": 1})
            return await env.run(Plan(f"{APP}/env", (call, step)))
        async with env.transaction(kind) as tx:  # type: ignore[arg-type]
            await tx.trigger(f"{APP}/dispatcher", "Call", {"x": x})
            await tx.publish("Work", {"process": "p", "x": x, "step": 1})
        return tx.outcome

    async def reach(self, x: int, name: str, *, step: int) -> None:
        """Publish for an instance until a client gets it."""
        deadline = perf_counter() + DEADLINE_S
        while not self.has(name, x, step):
            self.brokers.check()
            if perf_counter() > deadline:
                raise AssertionError(f"instance {x}, step {step} does not reach {name}")
            await self.doors["env"].publish("Work", {"process": "p", "x": x, "step": step})
            await self.until(lambda: self.has(name, x, step), seconds=0.2)

    async def publish_all(self, instances: list[int], step: int) -> None:
        """A step of every instance; on return it has reached whom it reaches: links keep the
        order, and everybody has the fence that was published after it."""
        for x in instances:
            await self.doors["env"].publish("Work", {"process": "p", "x": x, "step": step})
        for name in ("dispatcher", "a0", "a1"):
            await self.reach(FENCE, name, step=step)

    def has(self, name: str, x: int, step: int) -> bool:
        return bool(self.count(name, x, step))

    def count(self, name: str, x: int, step: int) -> int:
        return sum(
            e.topic == "Work" and e.attributes["x"] == x and e.attributes["step"] == step
            for e in self.got[name]
        )

    async def until(self, holds: Callable[[], bool], seconds: float) -> None:
        deadline = perf_counter() + seconds
        while not holds() and perf_counter() < deadline:
            await asyncio.sleep(0.01)


def _agent(x: Any) -> str:
    return f"{APP}/a{int(x) % 2}"


async def run_dispatching(
    kind: str, folder: Path, *, rng: Random, count: int, kill_count: int, at_once: int = 3
) -> Said:
    """Dispatch instances while brokers are killed, and look where everything is at the end."""
    said = Said()
    folder.mkdir(parents=True, exist_ok=True)
    brokers = Brokers(folder, isolated=kind == "isolated")
    carrier, mesh = await _mesh(brokers.known, APP)
    try:
        clients = Clients(carrier, brokers, rng)
        await asyncio.wait_for(clients.set_up(count), DEADLINE_S)
        started = perf_counter()
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(count))

        async def worker() -> None:
            while waiting:
                x = waiting.pop(0)
                outcomes[x] = await asyncio.wait_for(clients.run(kind, x), DEADLINE_S)

        async def killer() -> None:
            for _ in range(kill_count):
                await asyncio.sleep(rng.random() * KILL_S)
                await asyncio.to_thread(brokers.kill, rng.choice(list(NEAR)))
                said.killed_count += 1

        await asyncio.gather(killer(), *(worker() for _ in range(at_once)))
        said.seconds = perf_counter() - started
        await _judge(clients, outcomes, said)
        brokers.check()
        for door in clients.doors.values():
            await door.stop()
    finally:
        await carrier.stop()
        await mesh.stop()
        brokers.stop()
    return said


async def _judge(clients: Clients, outcomes: dict[int, Outcome], said: Said) -> None:
    """Where is every instance? Its step of the transaction, and regular ones, must say the same."""
    places = {x: _places(x, outcome) for x, outcome in sorted(outcomes.items())}
    await asyncio.gather(*(clients.reach(x, owner, step=2) for x, (owner, _) in places.items()))
    for x, outcome in sorted(outcomes.items()):
        owner, other = places[x]
        committed = isinstance(outcome, Committed)
        said.committed_count += committed
        said.aborted_count += not committed
        if committed:
            await clients.until(lambda o=owner, x=x: clients.has(o, x, 1), seconds=5.0)  # type: ignore[misc]
        count = clients.count(owner, x, 1)
        if count != committed:
            said.wrong.append(f"{x}: {outcome}, and {owner} got step 1 {count} times")
        if clients.has(other, x, 1):
            said.wrong.append(f"{x}: {outcome}, and {other} got step 1, too")
    for step in range(3, 3 + DRAIN_COUNT_MAX):
        await clients.publish_all(list(places), step)
        late = [x for x, (_, other) in places.items() if clients.has(other, x, step)]
        if not late:
            break
        await asyncio.sleep(0.2)  # isolated: the old place counts until everybody has committed
    said.wrong += [f"{x}: {outcomes[x]}, and {places[x][1]} still gets its steps" for x in late]
    for x, (owner, _) in places.items():
        if clients.count(owner, x, step) != 1:
            said.wrong.append(f"{x}: {outcomes[x]}, and {owner} did not get step {step} once")


def _places(x: int, outcome: Outcome) -> tuple[str, str]:
    """Who must have an instance, and who must not."""
    agent = f"a{x % 2}"
    return (agent, "dispatcher") if isinstance(outcome, Committed) else ("dispatcher", agent)
