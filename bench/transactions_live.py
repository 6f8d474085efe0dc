"""Transactions over TCP: how many per second, and the paper's figures 5 and 6 with delayed links.

Brokers are processes with logs and fsync. Wall-clock times are this machine's and nobody else's;
beside the rate stands the processor time of a transaction, by process, which says what the machine
allows. The pause of the waiting baseline is found by trying, as in the paper, with fewer attempts.
"""

from __future__ import annotations

from statistics import mean, median

import msgspec

from bench.result import Column, Goal, Row, Section, Size
from bench.transactions_rig import Live, Setup, dispatched
from concordant.sim.dispatching import OVERLAYS
from concordant.transact.waiting import calibrated

KINDS = ("static", "open", "isolated")
OUTSTANDING = 64
DELAY_MS = 10
WAITED = {"quick": (), "full": ("1", "3 line", "9 tree")}
"""Overlays on which the waiting baseline is tried; finding its pause takes a while."""


def rate(size: Size) -> Section:
    """Transactions per second over 3 brokers, 64 outstanding, group commit."""
    rows: list[Row] = []
    rates: dict[str, float] = {}
    for kind in KINDS:
        count = 2_000 if size.name == "full" else 400
        rounds = dispatched(
            Setup(kind, count=count, outstanding=OUTSTANDING, rounds=size.rounds // 2)
        )
        best = max(rounds, key=lambda one: one.per_s)
        rates[kind] = best.per_s
        rows.append(
            {
                "kind": kind,
                "rate": best.per_s,
                "latency": median(best.latencies_s),
                **best.processor_ms,
                "sum": sum(best.processor_ms.values()),
            }
        )
    return Section(
        "transactions-rate",
        "Transactions per second over TCP",
        f"3 brokers in a line, each a process with a log and fsync by group commit; {OUTSTANDING} "
        "transactions outstanding of one environment, 5 operations of 3 clients each; the best of "
        f"{size.rounds // 2} rounds. Processor time of one transaction by process, in ms; `app` "
        "has all clients.",
        (
            Column("kind", "kind"),
            Column("rate", "rate", "rate"),
            Column("latency", "latency", "seconds"),
            *(Column(name, name, "ns") for name in ("app", "B1", "B2", "B3")),
            Column("sum", "all, ms", "ns"),
        ),
        rows,
        [Goal("static transactions per second", "≥ 1,000", f"{rates['static']:,.0f}")],
    )


def figures(size: Size) -> Section:
    """Figures 5, 6a and 6c to 6f with the real code on real sockets."""
    each = 8 if size.name == "full" else 4
    amounts = (1, 2, 5, 10) if size.name == "full" else (1, 5)
    rows: list[Row] = []
    orders = []
    found: dict[tuple[str, str, int], Live] = {}
    overlays = tuple(OVERLAYS) if size.name == "full" else ("1", "3 line")
    for overlay in overlays:
        for kind in KINDS:
            found[overlay, kind, 1] = _measured(kind, each, overlay=overlay)
            rows.append(_row(f"{overlay} brokers", kind, found[overlay, kind, 1]))
        if overlay in WAITED[size.name]:
            rows.append(_row(f"{overlay} brokers", "waiting", _waited(size, overlay, each)))
        means = [mean(found[overlay, kind, 1].latencies_s) for kind in KINDS]
        orders.append(means[0] < means[1] <= 1.05 * means[2])
    for what, unit in (("outstanding", "threads"), ("scenarios", "x 4 clients")):
        for amount in amounts[1:]:
            for kind in KINDS:
                found[what, kind, amount] = _measured(kind, each * amount, **{what: amount})
                rows.append(_row(f"{amount} {unit}", kind, found[what, kind, amount]))
    top = amounts[-1]
    return Section(
        "transactions-tcp",
        "Transactions over TCP (figures 5, 6a, 6c to 6f)",
        f"Processes over the loopback, every message {DELAY_MS} ms late; {each} transactions one "
        "after the other by overlay, then 3 brokers with more at a time. The paper, at 3 brokers: "
        "isolated 570 ms, static 50 ms, open as isolated.",
        (
            Column("load", "load"),
            Column("kind", "kind"),
            Column("latency", "latency", "seconds"),
            Column("rate", "rate", "rate"),
        ),
        rows,
        [
            Goal(
                "static < open ≤ isolated (within 5 %)",
                "always",
                f"{sum(orders)} of {len(orders)} overlays",
            ),
            *(
                Goal(
                    f"rate at {top} {what} over 1",
                    "no collapse",
                    ", ".join(
                        f"{kind} {found[what, kind, top].per_s / one.per_s:.1f}x"
                        for kind in KINDS
                        if (one := found["3 line", kind, 1])
                    ),
                )
                for what in ("outstanding", "scenarios")
            ),
        ],
    )


def _measured(kind: str, count: int, **others: int | str) -> Live:
    return dispatched(Setup(kind, count=count, delay_ms=DELAY_MS, **others))[0]  # type: ignore[arg-type]


def _waited(size: Size, overlay: str, count: int) -> Live:
    """The waiting baseline with the smallest pause with which all attempts go well."""
    base = Setup("waiting", overlay, delay_ms=DELAY_MS)
    attempts = 100 if size.name == "full" else 40

    def goes_well(wait_us: int) -> bool:
        sought = msgspec.structs.replace(base, wait_us=wait_us, count=attempts, outstanding=20)
        return not dispatched(sought)[0].wrong_count

    wait_us = calibrated(goes_well, start_us=500_000)
    return dispatched(msgspec.structs.replace(base, wait_us=wait_us, count=count))[0]


def _row(load: str, kind: str, live: Live) -> Row:
    return {"load": load, "kind": kind, "latency": mean(live.latencies_s), "rate": live.per_s}
