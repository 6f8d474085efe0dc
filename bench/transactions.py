"""Transactions: the paper's figures 5 and 6 in virtual time, hops, and the matching index.

All but the index is simulated, so latencies are virtual and the same on every machine. Links draw
their delays from two Gaussians (80 % fast links of 21 ms, 20 % slow ones of 240 ms); every approach
has the same links and the same places. Beside each figure stands what the paper says in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import mean, median
from time import perf_counter

import msgspec

from bench.measure import interleaved
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.model.event import Event
from concordant.route.filter import Filter, filter_of
from concordant.route.index import MatchingIndex
from concordant.sim.dispatching import (
    APPROACHES,
    OVERLAYS,
    Measured,
    Setup,
    measured,
    shortest,
)
from concordant.sim.network import Latency
from concordant.transact.waiting import calibrated

HOP_US = 1_000
SPECIFIED = {
    "1": {"isolated": 20.0, "open": 20.0, "static": 8.0},
    "3 line": {"isolated": 35.5, "open": 34.1, "static": 16.6},
    "5 star": {"isolated": 45.8, "open": 39.2, "static": 17.8},
    "9 line": {"isolated": 69.5, "open": 65.3, "static": 33.0},
    "9 tree": {"isolated": 63.5, "open": 54.6, "static": 26.4},
}
"""Hops per transaction of a model of the corrected protocols, mean of 60 placements."""
PUBLISHED = {
    ("1", "isolated"): "410 ms",
    ("3 line", "static"): "50 ms",
    ("3 line", "waiting"): "190 ms",
    ("3 line", "open"): "as isolated",
    ("3 line", "isolated"): "570 ms",
    ("9 tree", "isolated"): "911 ms",
}
"""What the paper says in words of its figures 5 and 6a (Jergler 2017, section VII)."""
SUBSCRIPTION_COUNT = 100_000


def _places(size: Size) -> int:
    return 60 if size.name == "full" else 6


def _count(size: Size) -> int:
    return 16 if size.name == "full" else 8


def _pause(setups: Sequence[Setup], attempts: int) -> int:
    """The smallest pause with which so many attempts in a row go well, spread over placements.

    Who publishes does not know who subscribes, or where: a pause is for the whole overlay.
    """
    each = max(1, attempts // (len(setups) * setups[0].scenarios))

    def goes_well(wait_us: int) -> bool:
        return all(
            not measured(_with(one, count=max(one.threads, each), wait_us=wait_us)).wrong_count
            for one in setups
        )

    return calibrated(goes_well)


def _with(setup: Setup, **others: int | str) -> Setup:
    return msgspec.structs.replace(setup, **others)


def _attempts(size: Size, places: int) -> int:
    """For a pause to be trusted. The paper has 1,000 for one placement of clients; here it has to
    suit all of them, and each gets 150 at least."""
    return max(1_000, 150 * places) if size.name == "full" else 150


def _runs(setups: Sequence[Setup], size: Size) -> list[Measured]:
    """The same experiment at several placements."""
    if setups[0].approach == "waiting":
        wait_us = _pause(setups, _attempts(size, len(setups)))
        setups = [_with(one, wait_us=wait_us) for one in setups]
    return [measured(one) for one in setups]


def hops(size: Size) -> Section:
    """Every link takes one unit: how many follow each other in a transaction, and messages."""
    rows: list[Row] = []
    worst = 0.0
    for overlay in OVERLAYS:
        places = [Setup("static", overlay, seed) for seed in range(_places(size))]
        row: Row = {"overlay": overlay, "shortest": f"{mean(map(shortest, places)):.1f}"}
        for approach in ("static", "open", "isolated"):
            runs = [
                measured(Setup(approach, overlay, seed, 4, latency=Latency("constant", HOP_US)))
                for seed in range(_places(size))
            ]
            row[approach] = f"{mean(run.mean_us / HOP_US for run in runs):.1f}"
            row[f"{approach} model"] = f"{SPECIFIED[overlay][approach]:.1f}"
            worst = max(worst, float(row[approach]) / SPECIFIED[overlay][approach])
            count = mean(run.message_count / len(run.latencies_us) for run in runs)
            row[f"{approach} messages"] = f"{count:.0f}"
        rows.append(row)
    kinds = ("static", "open", "isolated")
    return Section(
        "transactions-hops",
        "Hops and messages of a transaction",
        f"Instance dispatching, every link takes one unit; mean of {_places(size)} placements. "
        "Beside each: hops in the model of the specification. The shortest way: from the "
        "environment over dispatcher and agent back.",
        (
            Column("overlay", "brokers"),
            Column("shortest", "shortest way"),
            *(
                Column(f"{kind}{part}", f"{kind}{part}")
                for kind in kinds
                for part in ("", " model", " messages")
            ),
        ),
        rows,
        [Goal("hops against the model", "≤ 1.15x", f"at most {worst:.2f}x")],
    )


def overlays(size: Size) -> Section:
    """Figures 5, 6a and 6b: latency and throughput by overlay, one transaction after the other."""
    rows: list[Row] = []
    orders: list[bool] = []
    ratios: list[float] = []
    means: dict[str, dict[str, float]] = {}
    for overlay in OVERLAYS:
        seeds = range(_places(size) // 3)
        found = means[overlay] = {}
        for approach in APPROACHES:
            setups = [Setup(approach, overlay, n, _count(size)) for n in seeds]
            runs = _runs(setups, size)
            found[approach] = mean(run.mean_us for run in runs)
            rows.append(
                {
                    "overlay": overlay,
                    "brokers": None if overlay == "9 line" else len(OVERLAYS[overlay]),
                    "approach": approach,
                    "latency": found[approach] / 1_000,
                    "rate": mean(run.per_s for run in runs),
                    "paper": PUBLISHED.get((overlay, approach)),
                }
            )
        orders.append(found["static"] < found["open"] <= found["isolated"])
        ratios.append(found["waiting"] / found["static"])
    growth = {name: means["9 tree"][name] / means["1"][name] for name in APPROACHES}
    attempts = _attempts(size, _places(size) // 3)
    return Section(
        "transactions-overlays",
        "Transactions by overlay (figures 5, 6a, 6b)",
        f"One environment, one transaction after the other; mean of {_places(size) // 3} "
        f"placements of {_count(size)} transactions each; one pause for all placements of an "
        f"overlay, with which {attempts:,} attempts go well. The paper, on its own network: "
        "from 1 to 9 brokers isolated 2.2x, waiting 2.6x, static 1.9x.",
        (
            Column("overlay", "brokers"),
            Column("approach", "approach"),
            Column("latency", "latency, ms", "ns"),
            Column("rate", "per second", "ns"),
            Column("paper", "the paper"),
        ),
        rows,
        [
            Goal("static < open ≤ isolated", "always", f"{sum(orders)} of {len(orders)} overlays"),
            Goal(
                "waiting over static",
                "≥ 2x",
                ", ".join(f"{ratio:.2f}x" for ratio in ratios),
            ),
            Goal(
                "from 1 to 9 brokers",
                "as the hops",
                ", ".join(f"{name} {ratio:.1f}x" for name, ratio in growth.items()),
            ),
        ],
        Plot("brokers", "latency", "brokers", "latency, ms", "approach"),
    )


def load(size: Size) -> Section:
    """Figures 6c to 6f: transactions at a time, and clients."""
    rows: list[Row] = []
    rates: dict[tuple[str, str, int], float] = {}
    for what, unit in (("threads", "threads"), ("scenarios", "x 4 clients")):
        for amount in (1, 2, 5, 10):
            for approach in APPROACHES:
                count = _count(size) * (amount if what == "threads" else 1)
                seeds = range(max(2, _places(size) // 10))
                bases = [Setup(approach, "3 line", n, count, service_us=500) for n in seeds]
                runs = _runs([_with(one, **{what: amount}) for one in bases], size)
                rates[what, approach, amount] = mean(run.per_s for run in runs)
                rows.append(
                    {
                        "load": f"{amount} {unit}",
                        "amount": amount,
                        "approach": approach,
                        "line": f"{approach}, {what if what == 'threads' else 'clients'}",
                        "latency": mean(run.mean_us for run in runs) / 1_000,
                        "rate": rates[what, approach, amount],
                    }
                )
    return Section(
        "transactions-load",
        "Transactions by concurrency and clients (figures 6c to 6f)",
        "3 brokers in a line, each message costs a broker 0.5 ms. The paper, at 10 threads: rate "
        "of waiting 7x, static 3.7x, isolated 2.3x; at 40 clients: static and waiting 7x, isolated "
        "falls from 20 clients on.",
        (
            Column("load", "load"),
            Column("approach", "approach"),
            Column("latency", "latency, ms", "ns"),
            Column("rate", "per second", "ns"),
        ),
        rows,
        [
            Goal(
                f"rate at 10 {what} over 1",
                "no collapse",
                ", ".join(
                    f"{name} {rates[what, name, 10] / rates[what, name, 1]:.1f}x"
                    for name in APPROACHES
                ),
            )
            for what in ("threads", "scenarios")
        ],
        Plot("amount", "rate", "threads, or clients by four", "transactions/s", "line"),
    )


def regular(size: Size) -> Section:
    """Figure 6g: regular events at the agents while instances are dispatched."""
    rows: list[Row] = []
    drawn: list[Row] = []
    window_us = 50_000
    for approach in ("static", "open", "isolated"):
        dips = []
        for seed in range(max(2, _places(size) // 10)):
            run = measured(
                Setup(
                    approach,
                    "3 line",
                    seed,
                    4 * _count(size),
                    threads=4,
                    latency=Latency("constant", 10_000),
                    service_us=200,
                    rate_per_s=4_000,
                )
            )
            counts: dict[int, int] = {}
            for at in run.regular_us:
                counts[at // window_us] = counts.get(at // window_us, 0) + 1
            # The first window fills the links, and the last one is cut off.
            steady = [counts.get(n, 0) for n in range(1, max(counts) - 1)]
            dips.append(min(steady) / median(steady))
            if not seed:
                drawn += [
                    {
                        "approach": approach,
                        "seconds": n * window_us / 1e6,
                        "rate": count * 1e6 / window_us,
                    }
                    for n, count in enumerate(steady, 1)
                ]
        rows.append({"approach": approach, "lowest": f"{100 * mean(dips):.0f} %"})
    return Section(
        "transactions-regular",
        "Regular events under transactions (figure 6g)",
        "4,000 regular events/s to the agents while 4 transactions at a time run without pause; "
        "links of 10 ms, 0.2 ms per message at a broker, so that the regular events alone keep it "
        f"busy for 80 % of the time; windows of {window_us // 1_000} ms, "
        "lowest over median, mean of placements. The paper: clear dips for isolated and open, none "
        "for static.",
        (Column("approach", "approach"), Column("lowest", "lowest window")),
        rows,
        [Goal("dip under static transactions", "none", str(rows[0]["lowest"]))],
        Plot("seconds", "rate", "seconds", "regular events/s at the agents", "approach", True),
        drawn=drawn,
    )


def _filters(rng: Random, shape: str, count: int) -> list[Filter]:
    found = []
    for _ in range(count):
        low = rng.random() * 1e6
        if shape == "one value":
            found.append(
                filter_of("Quote", symbol=f"s{rng.randrange(10_000)}", price=(low / 2, 1e6))
            )
        else:
            found.append(filter_of("Quote", price=(low, low + 100)))
    return found


def matching(size: Size) -> Section:
    """The matching index against asking every filter."""
    rows: list[Row] = []
    ratios: list[float] = []
    for shape in ("one value", "range"):
        rng = Random(1)
        filters = _filters(rng, shape, SUBSCRIPTION_COUNT)
        index = MatchingIndex()
        start = perf_counter()
        for number, one in enumerate(filters):
            index.add(str(number), one)
        built = perf_counter() - start
        events = [
            Event(
                "Quote",
                "p",
                n,
                0,
                {"symbol": f"s{rng.randrange(10_000)}", "price": rng.random() * 1e6},
            )
            for n in range(1, 1_001)
        ]
        few = events[:3]

        def indexed(events: list[Event] = events, index: MatchingIndex = index) -> float:
            start = perf_counter()
            for event in events:
                index.matching(event)
            return (perf_counter() - start) / len(events)

        def scanned(events: list[Event] = few, filters: list[Filter] = filters) -> float:
            start = perf_counter()
            for event in events:
                for one in filters:
                    one.matches(event)
            return (perf_counter() - start) / len(events)

        for event in few:
            wanted = sum(one.matches(event) for one in filters)
            assert len(index.matching(event)) == wanted
        times = interleaved(size.rounds, {"index": indexed, "scan": scanned})
        ratios.append(times["scan"].over(times["index"]))
        rows.append(
            {
                "shape": shape,
                "index": times["index"].median,
                "scan": times["scan"].median,
                "ratio": ratios[-1],
                "built": built / SUBSCRIPTION_COUNT,
            }
        )
    return Section(
        "matching",
        "Matching index",
        f"{SUBSCRIPTION_COUNT:,} subscriptions, of which an event concerns about ten; the time of "
        "one event, with the index and by asking every filter, in the same run.",
        (
            Column("shape", "subscriptions by"),
            Column("index", "index", "seconds"),
            Column("scan", "scan", "seconds"),
            Column("ratio", "scan over index", "ratio"),
            Column("built", "to add one", "seconds"),
        ),
        rows,
        [Goal("scan over index", "fast", ", ".join(f"{ratio:,.0f}x" for ratio in ratios))],
    )
