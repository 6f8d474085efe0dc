"""Real processes over TCP and NATS, killed under load, and frames made to do harm.

Every protocol runs with endless load while its nodes, publishers, subscribers and sequencers in
turn, are killed (`kill -9`) and started again. After each kill the node has to be at work again
before the next. In the end nothing that a publisher was told to be durable may be missing anywhere,
and the checkers of the level judge the whole history. Over NATS the server itself is killed too. A
run in which a kill did not happen, or too little was delivered, fails.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from rich.table import Table

from concordant.check.levels import check_level
from concordant.check.verdict import first_violation
from concordant.model.history import Row
from concordant.sim.scenario import Scenario, Topology, Workload
from tests.campaign.shape import Options, Report
from tests.network.live import Live

NAME = "network"

KILL_COUNTS = {"sequencer": 8, "fifo": 6, "clock": 6}
"""Kills per protocol and transport: 20 each."""
SERVER_KILL_COUNT = 5
"""Kills of the NATS server, beside them."""
TRANSPORTS = ("tcp", "nats")
RATE_PER_S = 100.0


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


def killed(protocol: str, transport: str, rng: Random, kills: int, folder: Path) -> Outcome:
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
        if live.server is not None and protocol == "sequencer":
            for _ in range(SERVER_KILL_COUNT):
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
    outcomes: list[Outcome] = []
    total = len(TRANSPORTS) * len(KILL_COUNTS)
    for transport in TRANSPORTS:
        for protocol, kills in KILL_COUNTS.items():
            with tempfile.TemporaryDirectory() as folder:
                outcomes.append(killed(protocol, transport, rng, kills, Path(folder)))
            report.failures += outcomes[-1].failures
            if outcomes[-1].kill_count < kills:
                report.failures.append(f"{protocol} over {transport}: not all kills happened")
            options.progress("runs with kills", len(outcomes), total)
    report.tables.append(_table(outcomes))
    return report


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
