"""Total order in a group: JGroups and Concordant, the same messages among as many members.

Every member is a process that sends to all and takes what all send, over TCP on this machine and
without disk. Sides take turns by rounds, each with processes of its own. What all members took must
be the very same sequence, or nothing was measured.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from bench.network import WINDOW_BATCHES, free_ports
from bench.network_rig import HOST, bare_batch
from bench.peers import jgroups
from bench.result import Column, Goal, Row, Section

MEMBER_COUNTS = (3, 10)
BATCHES = (1, 100)
PEER = "JGroups SEQUENCER"
OURS = {"sequencer": "sequencer", "replicated sequencer": "replicated", "merging": "merging"}
"""Our strategies by what they are called on the page."""
WINDOW_COUNT = 8_000
"""Events of all members under way."""
WARM_S = 2.0
"""A JVM has compiled what it needs most."""
_READY_S = 120.0
_LOOK_S = 0.02
_Process = asyncio.subprocess.Process


class DifferentOrder(Exception):  # noqa: N818 - a finding, and no error of the program
    """Members of one group took different sequences."""


class GroupError(Exception):
    """A member of a group died, or did not answer."""


class Found(msgspec.Struct, frozen=True):
    """What one side took, once."""

    rate: float
    """Events per second that every member took."""
    busiest: float
    """The same per processor second of the busiest process."""
    total: float
    """And per processor second of all processes together."""
    latency: float


FoundBy = dict[tuple[int, int, str], list[Found]]
"""By number of members, size of batch, and side; one per round."""


async def compare(
    *, rounds: int, seconds: float, quick: bool, say: Callable[[str], None]
) -> Section:
    """All sides, members and batches."""
    java = jgroups.member()
    counts = MEMBER_COUNTS[:1] if quick else MEMBER_COUNTS
    sides = {f"JGroups {one}": _jgroups(java, one) for one in ("SEQUENCER", "SEQUENCER2")}
    sides |= {name: _concordant(strategy) for name, strategy in OURS.items()}
    found: FoundBy = {}
    for number in range(rounds):
        for count in counts:
            for name, commands in sides.items():
                async with _group(commands(free_ports(count))) as members:
                    await _measure(members, BATCHES[-1], WARM_S)
                    for batch in BATCHES:
                        one = await _measure(members, batch, seconds)
                        found.setdefault((count, batch, name), []).append(one)
                        say(
                            f"  round {number + 1}, {count} members, batches of {batch}, {name}: "
                            f"{one.rate:,.0f}/s, {one.busiest:,.0f} per processor second"
                        )
    return _section(found)


def _section(found: FoundBy) -> Section:
    rows: list[Row] = []
    for (count, batch, name), many in found.items():
        ground = found[count, batch, PEER]
        row = {"members": count, "batch": batch, "side": name}
        for key in Found.__struct_fields__:
            row[key] = statistics.median(getattr(one, key) for one in many)
        for key in ("rate", "busiest", "total"):
            pairs = zip(many, ground, strict=True)
            ratios = [getattr(one, key) / getattr(theirs, key) for one, theirs in pairs]
            row[f"{key}_ratio"] = statistics.median(ratios)
        rows.append(row)
    rows.sort(key=lambda row: (row["members"], row["batch"]))
    return Section(
        "jgroups",
        "Total order in a group",
        "",
        (
            Column("members", "members", "count"),
            Column("batch", "batch", "count"),
            Column("side", "order"),
            Column("rate", "events to each", "rate"),
            Column("rate_ratio", "ratio", "ratio"),
            Column("busiest", "per processor second, busiest", "rate"),
            Column("busiest_ratio", "ratio", "ratio"),
            Column("total", "of all", "rate"),
            Column("total_ratio", "ratio", "ratio"),
            Column("latency", "latency", "seconds"),
        ),
        rows,
        [
            Goal(
                f"{name} / {PEER}, {row['members']} members, batches of {row['batch']}",
                "whichever way it falls",
                f"{row['rate_ratio']:.2f}x by time, {row['busiest_ratio']:.2f}x by processor time "
                "of the busiest process",
            )
            for row in rows
            if (name := row["side"]) in ("sequencer", "merging")
        ],
    )


def message_bytes() -> int:
    """The size of one of our events; so large are the messages of JGroups."""
    return len(bare_batch(0, 1))


# --- groups ---------------------------------------------------------------------------------------

Commands = Callable[[Sequence[int]], list[list[str]]]
"""What starts the members, by their ports."""


def _jgroups(java: list[str], protocol: str) -> Commands:
    def commands(ports: Sequence[int]) -> list[list[str]]:
        settings = {
            "java.net.preferIPv4Stack": "true",
            "jgroups.bind_addr": HOST,
            "jgroups.tcpping.initial_hosts": ",".join(f"{HOST}[{port}]" for port in ports),
            "jgroups.tcp.port_range": "0",
        }
        start = [*java, *(f"-D{key}={value}" for key, value in settings.items())]
        size = str(message_bytes())
        return [
            [*start, f"-Djgroups.bind_port={port}", "JGroupsMember", protocol, str(number), size]
            for number, port in enumerate(ports, 1)
        ]

    return commands


def _concordant(strategy: str) -> Commands:
    def commands(ports: Sequence[int]) -> list[list[str]]:
        program = [sys.executable, "-m", "bench.peers.member", strategy]
        where = json.dumps(list(ports))
        return [[*program, str(number), where] for number, _ in enumerate(ports, 1)]

    return commands


@asynccontextmanager
async def _group(commands: list[list[str]]) -> AsyncIterator[list[_Process]]:
    members: list[_Process] = []
    try:
        for several in (commands[:1], commands[1:]):  # JGroups: whoever comes first is found
            began = [await _start(one) for one in several]
            members += began
            await _answers(began)
        await _ask(members, f"begun {len(members)}")
        yield members
    finally:
        for one in members:
            if one.returncode is None:
                one.kill()
            await one.wait()


async def _start(command: list[str]) -> _Process:
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=nothing)


async def _measure(members: list[_Process], batch: int, seconds: float) -> Found:
    """What all members send, everything taken by everybody in the end."""
    before = await _ask(members, "count")
    window = max(batch, min(WINDOW_BATCHES * batch, WINDOW_COUNT // len(members)))
    said = await _ask(members, f"measure {batch} {seconds} {window}")
    sent = sum(one["sent"] for one in said)
    due = [one["total"] + sent for one in before]
    for _ in range(int(_READY_S / _LOOK_S)):
        after = await _ask(members, "count")
        if all(one["total"] >= count for one, count in zip(after, due, strict=True)):
            break
        await asyncio.sleep(_LOOK_S)
    else:
        raise GroupError(f"not every member took the {sent:,} events that were sent")
    if len({(one["total"], one["digest"]) for one in after}) > 1:
        raise DifferentOrder(f"the members of a group took different sequences: {after}")
    spent = [a["cpu_s"] - b["cpu_s"] for a, b in zip(after, before, strict=True)]
    latency_us = statistics.median(one["latency_us"] for one in said)
    took_s = max(one["took_s"] for one in said)
    return Found(sent / took_s, sent / max(spent), sent / sum(spent), latency_us / 1e6)


async def _ask(members: list[_Process], words: str) -> list[dict[str, Any]]:
    for one in members:
        assert one.stdin is not None
        one.stdin.write(f"{words}\n".encode())
    return await _answers(members)


async def _answers(members: list[_Process]) -> list[dict[str, Any]]:
    try:
        async with asyncio.timeout(_READY_S):
            lines = [await one.stdout.readline() for one in members if one.stdout is not None]
    except TimeoutError:
        raise GroupError(f"a member of a group said nothing for {_READY_S:.0f} s") from None
    if not all(lines):
        raise GroupError("a member of a group ended before it was asked to")
    return [json.loads(line) for line in lines]
