"""Leaders killed with SIGKILL under load, over TCP: of ordered merging, and of multi-Paxos.

A run has a process per node, logs on a real disk, two publishers and two subscribers that correlate
two topics. Again and again whoever leads (the merger of both topics, or the Paxos log) is killed
and started again, and the others have to go on. At the end no relation may be missing or doubled,
and both subscribers must have the same ones in the same order. Each event is in one relation, the
oldest with the oldest, so what is missing shows in the history itself: what a publisher's events
contributed is a whole piece of what it published, and to the end of the topic that ran out.

Run as a program (`python -m tests.campaign.merging_live FOLDER NODE`) it is one of the nodes, and
says in a file whether it leads.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from rich.table import Table

from concordant.check.levels import check_level
from concordant.check.verdict import first_violation
from concordant.model.history import Row
from concordant.net.host import Place
from concordant.order.broadcast.replicated import ReplicatedSequencer
from concordant.order.merging.host import MergerHost
from concordant.sim.scenario import Scenario, Topology, Workload
from tests.campaign.shape import Options, Report
from tests.network import live
from tests.network.live import Live

NAME = "merging-live"

PROTOCOLS = ("merging", "paxos")
REPETITION_COUNT = 20
"""Kills per protocol, for as many cases as a campaign has by default."""
KILLS_PER_RUN = 5
RATE_PER_S = 200.0
TOPICS = ("T1", "T2")
QUIET_S = 2.0
"""Nothing was delivered for so long after the load ended: what is missing now will not come."""
_LOOK_S = 0.02


# --- one node -------------------------------------------------------------------------------------


async def node(folder: Path, name: str) -> None:
    """A node as `tests.network.live` has it, which also says whether it leads."""
    places: list[Place] = []

    class Seen(Place):
        def __init__(self, *given: Any, **others: Any) -> None:
            super().__init__(*given, **others)
            places.append(self)

    live.Place = Seen  # type: ignore[misc]
    told = folder / f"{name}.leads"
    working = asyncio.create_task(live.node(folder, name))
    leads = None
    while not working.done():
        now = any(leading(place.machine) for place in places)
        if now != leads:
            leads = now
            told.write_text(str(int(now)))
        await asyncio.sleep(_LOOK_S)
    await working


def leading(machine: Any) -> bool:
    """Does a server decide the order right now?"""
    if isinstance(machine, MergerHost):
        part = machine._state.parts.get("+".join(TOPICS))
        return part is not None and part.replica.leading and part.core.live
    return isinstance(machine, ReplicatedSequencer) and machine._log.leading


# --- all of them ----------------------------------------------------------------------------------


class Killed(Live):
    """Processes of a run whose leaders are killed."""

    def _start(self, name: str) -> None:
        (self.folder / f"{name}.leads").unlink(missing_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self.folder), name], stdout=log, stderr=log
            )

    def leaders(self) -> list[str]:
        """Servers that say that they lead."""
        found = []
        for name in self.nodes:
            told = self.folder / f"{name}.leads"
            if told.exists() and told.read_text() == "1":
                found.append(name)
        return found

    def wait_for_more(self, count: int) -> None:
        """Every subscriber has delivered so many relations more."""
        names = self.scenario.subscribers
        before = {name: self._lines(name, "deliver") for name in names}
        self.wait_until(
            lambda: all(self._lines(name, "deliver") >= before[name] + count for name in names)
        )

    def wait_until_quiet(self) -> None:
        """Everything was published, and nothing is delivered any longer."""
        self.wait_until(
            lambda: all((self.folder / f"{n}.done").exists() for n in self.scenario.publishers)
        )
        seen, since = -1, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            count = self.delivered_count()
            if count != seen:
                seen, since = count, time.monotonic()
            return time.monotonic() - since > QUIET_S

        self.wait_until(quiet)


@dataclass
class Outcome:
    """What some kills of one protocol's leader showed."""

    protocol: str
    kill_count: int = 0
    published_count: int = 0
    relation_count: int = 0
    seconds: float = 0.0
    pauses_s: list[float] = field(default_factory=list)
    """From each kill until both subscribers had delivered something more."""
    wrong: list[str] = field(default_factory=list)


def killed(
    protocol: str, rng: Random, kills: int, folder: Path, told: Callable[[int], None]
) -> Outcome:
    """One run; each kill is one repetition, and `told` when the load has survived it."""
    outcome = Outcome(protocol)
    started = time.monotonic()
    scenario = Scenario(
        protocol,
        name=f"killed-{protocol}",
        topology=Topology(topics=len(TOPICS), publishers=2, subscribers=2),
        workload=Workload(RATE_PER_S),
        subscription=f"pairs: {' and '.join(TOPICS)}",
    )
    run = Killed(scenario, folder, transport="tcp", endless=True)
    try:
        for _ in range(kills):
            run.wait_for_more(rng.randint(5, 40))
            run.wait_until(lambda: bool(run.leaders()))
            run.kill(rng.choice(run.leaders()))
            died = time.monotonic()
            run.wait_for_more(1)
            outcome.pauses_s.append(time.monotonic() - died)
            run.wait_for_more(20)
            outcome.kill_count += 1
            told(outcome.kill_count)
        run.end_load()
        run.wait_until_quiet()
        rows = run.rows()
        outcome.wrong += wrong(rows, scenario.subscribers)
        violated = first_violation(tuple(check_level(rows, run.level)))
        outcome.wrong += [] if violated is None else [str(violated)]
        outcome.published_count = sum(row.step == "publish" for row in rows)
        outcome.relation_count = sum(row.step == "deliver" for row in rows)
    except AssertionError as error:
        outcome.wrong.append(str(error))
    finally:
        run.stop()
    outcome.seconds = time.monotonic() - started
    return outcome


# --- what must hold -------------------------------------------------------------------------------


def wrong(rows: Iterable[Row], subscribers: Iterable[str]) -> Iterator[str]:
    """What a history of pairs, the oldest with the oldest, says against the order."""
    published: dict[tuple[str, str], list[str]] = {}
    home: dict[str, tuple[str, str]] = {}
    found: dict[str, list[tuple[str, ...]]] = {name: [] for name in subscribers}
    for row in rows:
        if row.step == "publish":
            source = row.events[0].rpartition(":")[0]
            home[row.events[0]] = (row.topics[0], source)
            published.setdefault(home[row.events[0]], []).append(row.events[0])
        elif row.step == "deliver":
            found[row.process].append(row.events)
    for name, relations in found.items():
        used = [event for relation in relations for event in relation]
        if len(set(used)) < len(used):
            yield f"{name} delivered an event twice"
        yield from _lost(name, used, published, home)
    longest = max(found.values(), key=len)
    for name, relations in found.items():
        if not relations:
            yield f"{name} delivered nothing"
        elif longest[-len(relations) :] != relations:
            yield f"{name} delivered other relations than the others"


def _lost(
    name: str,
    used: list[str],
    published: dict[tuple[str, str], list[str]],
    home: dict[str, tuple[str, str]],
) -> Iterator[str]:
    left: dict[str, int] = dict.fromkeys(TOPICS, 0)
    for (topic, source), events in published.items():
        mine = [event for event in used if home[event] == (topic, source)]
        start = events.index(mine[0]) if mine else 0
        if events[start : start + len(mine)] != mine:
            yield f"{name} did not take the events of {source} to {topic} one after the other"
        left[topic] += len(events) - start - len(mine)
    if all(left.values()):
        yield f"{name} lost relations: {left} events are left over"


def run(options: Options) -> Report:
    """Runs of both protocols, one after the other: each has processes of its own."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    count = max(1, options.case_count * REPETITION_COUNT // Options.case_count)
    wanted = [one for one in PROTOCOLS if one in options.protocols or not options.protocols]
    totals: list[Outcome] = []
    for protocol in wanted:
        total = Outcome(protocol)
        totals.append(total)
        while total.kill_count < count and not total.wrong:
            rng = Random(f"{options.seed}/{protocol}/{total.kill_count}")
            kills = min(KILLS_PER_RUN, count - total.kill_count)
            told = partial(_tell, options, f"kills of {protocol}", total.kill_count, count)
            with tempfile.TemporaryDirectory() as folder:
                one = killed(protocol, rng, kills, Path(folder), told)
            total.kill_count += one.kill_count
            total.published_count += one.published_count
            total.relation_count += one.relation_count
            total.seconds += one.seconds
            total.wrong += one.wrong
            total.pauses_s += one.pauses_s
        report.failures += [f"{protocol}: {sentence}" for sentence in total.wrong]
        if total.relation_count < 20 * total.kill_count:
            report.failures.append(f"{protocol}: only {total.relation_count} relations")
    report.tables.append(_table(totals))
    return report


def _tell(options: Options, stage: str, before: int, count: int, done: int) -> None:
    options.progress(stage, before + done, count)


def _table(totals: list[Outcome]) -> Table:
    heads = (
        "leader of",
        "kills",
        "published",
        "relations delivered",
        "wrong",
        "longest pause",
        "s",
    )
    table = Table(*heads)
    for one in totals:
        numbers = (one.kill_count, one.published_count, one.relation_count, len(one.wrong))
        pause = f"{max(one.pauses_s, default=0.0):.1f} s"
        cells = (*(f"{number:,}" for number in numbers), pause, f"{one.seconds:.0f}")
        table.add_row(one.protocol, *cells)
    return table


if __name__ == "__main__":
    asyncio.run(node(Path(sys.argv[1]), sys.argv[2]))
