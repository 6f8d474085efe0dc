"""What a run measured: how much was published and delivered, how late, and what went wrong."""

from __future__ import annotations

import msgspec

from concordant.sim.run import Outcome


class Metrics(msgspec.Struct, frozen=True):
    """The numbers of one run; latencies from publication to delivery, in virtual time."""

    run: str
    protocol: str
    level: str
    seed: int
    published: int
    delivered: int
    out_of_order: int
    latency_us_mean: int
    latency_us_p50: int
    latency_us_p99: int
    steps: int
    ended_at_us: int
    faults: dict[str, int]
    """How often each kind of fault really did something."""


def measure(outcome: Outcome) -> Metrics:
    """The metrics of a run, from its history."""
    published: dict[str, int] = {}
    latencies: list[int] = []
    delivered = out_of_order = 0
    for row in outcome.rows:
        if row.step == "publish":
            published[row.events[0]] = row.time_us
        elif row.step == "deliver":
            delivered += 1
            out_of_order += not row.in_order
            known = [published[event] for event in row.events if event in published]
            if known:  # a relation may consist of derived events alone
                latencies.append(row.time_us - max(known))
    latencies.sort()
    count = len(latencies)
    counts = outcome.recorder.counts
    return Metrics(
        run=outcome.recorder.run,
        protocol=outcome.scenario.protocol,
        level=outcome.level,
        seed=outcome.seed,
        published=len(published),
        delivered=delivered,
        out_of_order=out_of_order,
        latency_us_mean=sum(latencies) // count if count else 0,
        latency_us_p50=latencies[count // 2] if count else 0,
        latency_us_p99=latencies[count * 99 // 100] if count else 0,
        steps=outcome.step_count,
        ended_at_us=outcome.ended_at_us,
        faults={
            name.removeprefix("fault "): number
            for name, number in sorted(counts.items())
            if name.startswith("fault ")
        },
    )
