"""The comparison with JGroups must notice members that took different sequences."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from bench.peers.groups import DifferentOrder, GroupError, _group, _measure
from bench.peers.member import Taken
from concordant.machine.effects import Delivery
from concordant.model.event import Event

MEMBER = """
import json, sys
print("{}", flush=True)
for line in sys.stdin:
    sent = line.startswith("measure")
    if sent:
        print(json.dumps({"sent": 1, "took_s": 0.1, "latency_us": 5}), flush=True)
    elif line.startswith("count"):
        print(json.dumps({"total": TOTAL, "digest": DIGEST, "cpu_s": 1.0 + TOTAL}), flush=True)
        TOTAL += GROWTH
    else:
        print("{}", flush=True)
"""


def member(digest: str, *, growth: int = 2) -> list[str]:
    """A program that answers as a member does."""
    said = f"DIGEST, TOTAL, GROWTH = {json.dumps(digest)}, 0, {growth}"
    return [sys.executable, "-c", said + MEMBER]


async def measured(*commands: list[str]) -> None:
    async with _group(list(commands)) as members:
        await _measure(members, 1, 0.1)


def test_the_digest_of_a_member_tells_sequences_apart() -> None:
    events = [Event("T", f"m{n % 2 + 1}/sequencer", n, n) for n in range(1, 6)]
    digests = []
    for sequence in (events, events, [events[1], events[0], *events[2:]], events[:4]):
        taken = Taken("m1/")
        for at, event in enumerate(sequence):  # however it is cut into batches
            taken.take([Delivery((event,), at)])
        digests.append((taken.total, taken.digest))
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_members_with_different_sequences_end_the_comparison() -> None:
    asyncio.run(measured(member("a"), member("a")))
    with pytest.raises(DifferentOrder, match="different sequences"):
        asyncio.run(measured(member("a"), member("b")))


def test_a_member_that_died_is_told() -> None:
    with pytest.raises(GroupError, match="ended before"):
        asyncio.run(measured(member("a"), [sys.executable, "-c", "print('{}')"]))
