"""Real processes over TCP and NATS, killed under load, and frames made to do harm.

One scenario is run by the simulator, over TCP and over NATS, with every protocol that all of them
know, and judged by the same checkers. Then protocols run with endless load while their nodes,
publishers, subscribers and sequencers in turn, are killed (`kill -9`) and started again. After each
kill the node has to be at work again before the next. In the end nothing that a publisher was told
to be durable may be missing anywhere, and the checkers of the level judge the whole history. Over
NATS the server itself is killed too. A run in which a kill did not happen, or too little was
delivered, fails.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec
from rich.table import Table

from concordant.bus import Bus
from concordant.check.levels import check_level
from concordant.check.verdict import first_violation
from concordant.errors import ConcordantError
from concordant.model.history import Row
from concordant.net.caller import CallerOptions
from concordant.net.cluster import read_cluster
from concordant.net.roles import STRATEGIES
from concordant.sim.protocols import PROTOCOLS, protocol_of
from concordant.sim.run import simulate
from concordant.sim.scenario import Scenario, Topology, Workload, read_scenario
from tests.campaign.shape import Options, Report
from tests.network import fuzz
from tests.network.live import Live

NAME = "network"

KILL_COUNTS = {
    "sequencer": 8,
    "fifo": 6,
    "clock": 6,
    "sequencing": 4,
    "sequencing-strict": 6,
    "sequencing-replicated": 6,
    "stamped": 6,
}
"""Kills per protocol and transport."""
EVERYWHERE = Path(__file__).parents[2] / "examples" / "scenarios" / "everywhere.toml"
PROTOCOLS_LIVE = tuple(name for name in PROTOCOLS if name in STRATEGIES)
"""Protocols that the simulator and the nodes know."""
SERVER_KILL_COUNT = 5
"""Kills of the NATS server, beside them."""
TRANSPORTS = ("tcp", "nats")
RATE_PER_S = 100.0
PATIENT = CallerOptions(connect_s=30.0)
FUZZED_COUNT = 10_000
"""Connections with fuzzed frames."""
GROWN_BYTES_MAX = 1 << 26
"""A node may grow by this under them, for what its allocator keeps: 6 kB for each connection."""


@dataclass
class Outcome:
    """What one run of killed processes showed."""

    transport: str
    protocol: str
    kill_count: int = 0
    server_kill_count: int = 0
    published_count: int = 0
    told_count: int = 0
    delivered_count: int = 0
    late_count: int = 0
    lost_count: int = 0
    """Events that a publisher was told to be durable and a subscriber never got."""
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def scenario_of(protocol: str) -> Scenario:
    return Scenario(
        protocol,
        name=f"killed-{protocol}",
        topology=Topology(topics=3, publishers=2, subscribers=2),
        workload=Workload(RATE_PER_S),
    )


def killed(
    protocol: str, transport: str, rng: Random, kills: int, folder: Path, *, server_kills: int = 0
) -> Outcome:
    """One run; every kill is one repetition."""
    outcome = Outcome(transport, protocol)
    started = time.monotonic()
    live = Live(scenario_of(protocol), folder, transport=transport, endless=True)
    try:
        for name in live.nodes:
            live.wait_until(lambda name=name: live.progress(name) > 20)
        for number in range(kills):
            name = live.nodes[number % len(live.nodes)]
            before = live.progress(name) + rng.randint(1, 100)
            live.wait_until(lambda name=name, before=before: live.progress(name) > before)
            live.kill(name)
            before = live.progress(name)
            live.wait_until(lambda name=name, before=before: live.progress(name) > before + 20)
            outcome.kill_count += 1
        if live.server is not None:
            for _ in range(server_kills):
                live.server.kill()
                live.server.start()
                before = live.delivered_count()
                live.wait_until(lambda before=before: live.delivered_count() > before + 50)
                outcome.server_kill_count += 1
        live.end_load()
        live.wait_for_the_end()
        judge(live, live.rows(), outcome)
    except AssertionError as error:
        outcome.failures.append(f"{protocol} over {transport}: {error}")
    finally:
        live.stop()
    outcome.seconds = time.monotonic() - started
    return outcome


def judge(live: Live, rows: list[Row], outcome: Outcome) -> None:
    """The level's checkers, and what publishers were told."""
    published = {row.events[0]: row.topics[0] for row in rows if row.step == "publish"}
    got = {name: set[str]() for name in live.scenario.subscribers}
    for row in rows:
        if row.step == "deliver":
            got[row.process].add(row.events[0])
            outcome.late_count += not row.in_order
    told = [
        f"{name}:{n}" for name in live.scenario.publishers for n in range(1, live.told(name) + 1)
    ]
    outcome.published_count = len(published)
    outcome.told_count = len(told)
    outcome.delivered_count = sum(map(len, got.values()))
    for name, topics in live.layout.subscribes.items():
        owed = [id for id in told if published.get(id, topics[0]) in topics]
        outcome.lost_count += sum(id not in got[name] for id in owed)
    where = f"{outcome.protocol} over {outcome.transport}"
    if outcome.lost_count:
        outcome.failures.append(f"{where}: {outcome.lost_count} acknowledged events were lost")
    violated = first_violation(tuple(check_level(rows, live.level)))
    if violated is not None:
        outcome.failures.append(f"{where}: {violated}")
    if outcome.delivered_count < 100 * outcome.kill_count:
        outcome.failures.append(
            f"{where}: only {outcome.delivered_count} deliveries: too little load"
        )


def run(options: Options) -> Report:
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    rng = Random(options.seed)
    report.tables.append(_everywhere(options, report.failures))
    outcomes: list[Outcome] = []
    counts = {name: n for name, n in KILL_COUNTS.items() if _wanted(name, options)}
    total = len(TRANSPORTS) * len(counts)
    for transport in TRANSPORTS:
        for protocol, kills in counts.items():
            with tempfile.TemporaryDirectory() as folder:
                servers = SERVER_KILL_COUNT if protocol == "sequencer" else 0
                outcomes.append(
                    killed(protocol, transport, rng, kills, Path(folder), server_kills=servers)
                )
            report.failures += outcomes[-1].failures
            if outcomes[-1].kill_count < kills:
                report.failures.append(f"{protocol} over {transport}: not all kills happened")
            options.progress("runs with kills", len(outcomes), total)
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(fuzzed(rng, FUZZED_COUNT, Path(folder)))
    options.progress("fuzzed connections", FUZZED_COUNT, FUZZED_COUNT)
    report.failures += found.failures
    report.tables += [_table(outcomes), _fuzzed_table(found)]
    return report


def _wanted(protocol: str, options: Options) -> bool:
    return protocol in options.protocols or not options.protocols


def _everywhere(options: Options, failures: list[str]) -> Table:
    """One scenario with every protocol, undisturbed, by all drivers."""
    table = Table(
        *("protocol", "driver", "published", "delivered", "promise"),
        title="One scenario everywhere",
        title_justify="left",
    )
    names = [name for name in PROTOCOLS_LIVE if _wanted(name, options)]
    cells = [(name, driver) for name in names for driver in ("simulator", *TRANSPORTS)]
    for number, (name, driver) in enumerate(cells, 1):
        scenario = msgspec.structs.replace(read_scenario(EVERYWHERE), protocol=name)
        level = protocol_of(scenario).level
        try:
            rows = _rows(scenario, driver, options.seed)
            violated = first_violation(tuple(check_level(rows, level)))
        except AssertionError as error:
            rows, violated = [], error
        if violated is not None:
            failures.append(f"{name} by {driver}: {violated}")
        steps = Counter(row.step for row in rows)
        if steps["publish"] < 100 or steps["deliver"] < 100:
            failures.append(f"{name} by {driver}: too little happened")
        kept = f"{level} kept" if violated is None else "BROKEN"
        table.add_row(name, driver, f"{steps['publish']:,}", f"{steps['deliver']:,}", kept)
        options.progress("scenario everywhere", number, len(cells))
    return table


def _rows(scenario: Scenario, driver: str, seed: int) -> list[Row]:
    if driver == "simulator":
        return list(simulate(scenario, seed=seed).rows)
    with tempfile.TemporaryDirectory() as folder:
        live = Live(scenario, Path(folder), transport=driver, seed=seed)
        try:
            live.wait_for_the_end()
            return live.rows()
        finally:
            live.stop()


# --- frames made to do harm -----------------------------------------------------------------------


@dataclass
class Fuzzed:
    """What a node did under fuzzed frames."""

    attacks: Counter[str] = field(default_factory=Counter)
    refused_count: int = 0
    grown_bytes: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


async def fuzzed(rng: Random, count: int, folder: Path) -> Fuzzed:
    """A node as a process of its own; its memory is looked at before and after."""
    found = Fuzzed()
    started = time.monotonic()
    address, door, http = fuzz.free_ports(3)
    file = folder / "cluster.toml"
    file.write_text(fuzz.CLUSTER.format(address=address, door=door, http=http))
    name = next(n for n in map("good{}".format, range(99)) if read_cluster(file).home(n) == "n1")
    with (folder / "node.log").open("wb") as log:
        node = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "concordant.cli.main", "node", str(file), "--name", "n1"),
            stdout=log,
            stderr=log,
        )
    try:
        await _serves(door, name)
        warm = await fuzz.attacks(rng, count // 10, address=address, door=door)
        before = _resident_bytes(node.pid)
        found.attacks = warm + await fuzz.attacks(rng, count, address=address, door=door)
        await _serves(door, name)
        found.grown_bytes = _resident_bytes(node.pid) - before
        found.refused_count = await _refused(http)
    except (OSError, TimeoutError, ConcordantError, AssertionError) as error:
        found.failures.append(f"fuzzed frames: {type(error).__name__} {error}")
    if node.returncode is not None:
        found.failures.append(f"the node ended: {(folder / 'node.log').read_text()[-2_000:]}")
    else:
        node.kill()
        await node.wait()
    if "Traceback" in (folder / "node.log").read_text():
        found.failures.append("the node wrote a traceback")
    if found.grown_bytes > GROWN_BYTES_MAX:
        found.failures.append(f"the node grew by {found.grown_bytes:,} bytes")
    if found.refused_count < count // 4:
        found.failures.append(f"only {found.refused_count} refusals were counted")
    found.seconds = time.monotonic() - started
    return found


async def _serves(door: int, name: str) -> None:
    """A good application publishes, and gets it in order."""
    url = f"tcp://127.0.0.1:{door}"
    async with (
        asyncio.timeout(30),
        Bus.open(url, name=name, token=fuzz.APPLICATIONS, options=PATIENT) as bus,
        bus.subscribe("Good", order="total strict") as deliveries,
    ):
        await bus.publish("Good", {"n": 1})
        async for delivery in deliveries:
            assert delivery.events[0].source == name
            return


async def _refused(http: int) -> int:
    """What the node's metrics count as refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", http)
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return sum(int(n) for n in re.findall(r"refused_\w+_total(?:\{[^\n]*\})? (\d+)", text))


def _resident_bytes(process: int) -> int:
    (line,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return 1_024 * int(line)


def _fuzzed_table(found: Fuzzed) -> Table:
    table = Table("attack", "connections", title="Fuzzed frames", title_justify="left")
    for name, count in sorted(found.attacks.items()):
        table.add_row(name, f"{count:,}")
    table.add_row("refusals counted", f"{found.refused_count:,}")
    table.add_row("memory grown by", f"{found.grown_bytes / 1e6:.1f} MB")
    table.add_row("s", f"{found.seconds:.0f}")
    return table


def _table(outcomes: list[Outcome]) -> Table:
    heads = ("kills", "of the server", "published", "told", "delivered", "late", "told and lost")
    table = Table("over", "protocol", *heads, "s", title="Killed under load", title_justify="left")
    for one in outcomes:
        numbers = (
            one.kill_count,
            one.server_kill_count,
            one.published_count,
            one.told_count,
            one.delivered_count,
            one.late_count,
            one.lost_count,
        )
        table.add_row(
            one.transport,
            one.protocol,
            *(f"{number:,}" for number in numbers),
            f"{one.seconds:.0f}",
        )
    return table
