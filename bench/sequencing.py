"""Total notification order: what a place in one order costs, by overlap, popularity and ranking.

All of it is simulated, so the numbers are virtual time, hops and bytes, and the same on every
machine; only the last section says how long the simulation itself took. Figures are those of
Baldoni 2011.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from time import process_time
from typing import Any

import msgspec

from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.check.levels import check_level
from concordant.machine.effects import Delivery, Disseminate, Effect, Send
from concordant.machine.inputs import Input
from concordant.machine.requests import Publish
from concordant.model.event import Event
from concordant.order.sequencing.forest import mean_hops
from concordant.order.sequencing.messages import COORDINATOR, Fill, Parcel, Signed
from concordant.order.sequencing.ranking import (
    eliminated,
    network_hops,
    placed,
    popular_first,
    ranked,
    swapped,
    swaps,
)
from concordant.order.sequencing.sequencer import TopicSequencer
from concordant.order.sequencing.stamping import Stamper
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.protocols import PROTOCOLS, layout_of
from concordant.sim.recorder import Recorder
from concordant.sim.scenario import Change, Popularity, Scenario, Topology, Workload
from concordant.sim.workload import Load
from concordant.sim.world import Place, World
from tests.overlaps import ROWS, drawn

PATIENT = {
    "ask_us": 30_000_000,
    "mark_us": 10_000_000,
    "mark_us_max": 600_000_000,
    "repeat_us": 20_000_000,
    "repeat_us_max": 60_000_000,
}
"""Nothing is lost in these runs, so nothing is asked for or repeated while it is on its way."""


class Meter(Recorder):
    """Counts what passes instead of writing it down, but for a few subscribers."""

    def __init__(self, *, kept: Iterable[str] = ()) -> None:
        super().__init__("bench", level="total")
        self.published_at: dict[str, int] = {}
        self.signed_at: dict[str, int] = {}
        self.latencies: list[tuple[int, int]] = []
        """Instant of publication, and time to the delivery."""
        self.entries: list[int] = []
        self.lower: list[int] = []
        """Entries as the paper of 2011 has them: of the event's own topic and of lower ones."""
        self.parcel_count = self.fill_count = 0
        self.bytes = 0
        self._kept = frozenset(kept)

    def published(self, now: int, process: str, events: Iterable[Event]) -> None:
        events = tuple(events)
        self.published_at.update({event.id: now for event in events})
        super().published(now, process, events)

    def delivered(self, now: int, process: str, deliveries: Iterable[Delivery]) -> None:
        deliveries = tuple(deliveries)
        for one in deliveries:
            at = self.published_at[one.events[0].id]
            self.latencies.append((at, now - at))
        if process in self._kept:
            super().delivered(now, process, deliveries)

    def watch(self, world: World, place: Place, given: Input, effects: Sequence[Effect]) -> None:
        del given
        if not place.address.startswith("sequencer-"):
            return
        for effect in effects:
            if isinstance(effect, Send) and effect.to.startswith("sequencer-"):
                parcels = [m for m in effect.messages if isinstance(m, Parcel)]
                self.parcel_count += len(parcels)
                self.fill_count += sum(type(m.content) is Fill for m in parcels)
                self.bytes += sum(len(msgspec.msgpack.encode(parcel)) for parcel in parcels)
            elif isinstance(effect, Disseminate):
                for message in effect.messages:
                    if isinstance(message, Signed):
                        self.signed_at[message.event.id] = world.now
                        self.entries.append(len(message.timestamp))
                        self.lower.append(1 + lower_count(place, message))


def lower_count(place: Place, signed: Signed) -> int:
    """Entries of topics that are ranked lower than the event's."""
    assert isinstance(place.machine, TopicSequencer)
    signer = place.machine._state.signer
    if isinstance(signer, Stamper):  # nobody is ranked
        return len(signed.timestamp) - 1
    here = signer.rank[signed.event.topic]
    return sum(signer.rank[topic] < here for topic in signed.timestamp)


def play(
    scenario: Scenario,
    meter: Meter,
    *,
    watch: bool = True,
    first: Callable[[World], None] | None = None,
) -> Any:
    """Run a scenario; `first` is done when everybody listens, before anything is published."""
    world = World(
        seed="1",
        network=scenario.network,
        recorder=meter,
        watch=meter.watch if watch else None,
    )
    layout = layout_of(scenario, "1")
    PROTOCOLS[scenario.protocol].build(world, scenario, layout)
    gc.disable()
    try:
        world.start()
        world.run(2_000_000)  # everybody listens
        if first is not None:
            first(world)
        Load(world, scenario, layout, seed="1").begin()
        world.run(scenario.duration_ms * 1_000)
        world.run(world.now + 30_000_000)
    finally:
        gc.enable()
    return world


# --- latency, figures 9 to 12 ---------------------------------------------------------------------

_MODELS: dict[str, tuple[Popularity, int]] = {
    "worst: the last topic": ("uniform", 1),
    "uniform": ("uniform", 0),
    "power law 0.901": ("power-law 0.901", 0),
}


def latency(size: Size) -> Section:
    """Fifty topics that everybody holds, one event per second."""
    seconds = 300 if size.name == "full" else 60
    rows: list[Row] = []
    for nodes in (10, 100, 1_000, 10_000):
        for name, (popularity, only) in _MODELS.items():
            scenario = Scenario(
                "sequencing",
                duration_ms=seconds * 1_000,
                topology=Topology(50, 1 if not only else 50, 10, topics_per_publisher=only),
                network=NetworkSpec(
                    Latency("two-gaussian"), dissemination="tree", overlay_nodes=nodes
                ),
                workload=Workload(1.0 if not only else 1e-9, popularity=popularity),
                parameters=PATIENT,
            )
            meter = Meter()
            if only:
                _play_last(scenario, meter, seconds)
            else:
                play(scenario, meter)
            rows.append({"nodes": nodes, "model": name, **_figures(meter)})
    return Section(
        "sequencing",
        "Total notification order: latency",
        "50 topics, 10 subscribers of all of them, 1 event/s, links of 21 ms (80 %) and 240 ms; "
        "simulated. Figures 9 to 12 of Baldoni 2011: published, the worst case grows steeply with "
        "the nodes and is mostly timestamp, and the power law stays reasonable.",
        (
            Column("nodes", "nodes of the overlay", "count"),
            Column("model", "events are published to"),
            Column("latency", "latency", "seconds"),
            Column("timestamp", "of it, timestamp", "seconds"),
            Column("second", "within 1 s", "percent"),
            Column("hops", "hops", "ns"),
            Column("entries", "entries", "ns"),
            Column("bytes", "bytes among sequencers", "bytes"),
        ),
        rows,
        [
            Goal(
                "a good order of topics",
                "power law: the timestamp takes no longer than the dissemination",
                _timestamp_share(rows),
            )
        ],
        Plot("nodes", "latency", "nodes of the overlay", "latency in seconds", "model"),
    )


def _play_last(scenario: Scenario, meter: Meter, seconds: int) -> None:
    """The worst case: only the topic that is ranked highest has events."""
    world = World(seed="1", network=scenario.network, recorder=meter, watch=meter.watch)
    PROTOCOLS[scenario.protocol].build(world, scenario, layout_of(scenario, "1"))
    world.start()

    def publish() -> None:
        world.command("p50", Publish("T50"))

    for second in range(seconds):
        world.call((second + 2) * 1_000_000, publish)
    world.run(seconds * 1_000_000 + 60_000_000)


def _figures(meter: Meter) -> Row:
    stamped = [meter.signed_at[one] - at for one, at in meter.published_at.items()]
    latencies = [one for _, one in meter.latencies]
    events = len(meter.published_at)
    return {
        "latency": mean(latencies) / 1e6,
        "timestamp": mean(stamped) / 1e6,
        "second": sum(one <= 1_000_000 for one in latencies) / len(latencies),
        "hops": meter.fill_count / events,
        "entries": mean(meter.entries),
        "bytes": meter.bytes / events,
    }


def _timestamp_share(rows: list[Row]) -> str:
    good = [row for row in rows if row["model"].startswith("power")]
    return ", ".join(
        f"{row['timestamp']:.2f} of {row['latency']:.2f} s ({row['nodes']:,} nodes)" for row in good
    )


# --- stamping in parallel -------------------------------------------------------------------------


def stamping(size: Size) -> Section:
    """The forest against stamping in parallel, on overlaps from none to all."""
    seconds = 120 if size.name == "full" else 30
    rows: list[Row] = []
    for topics, each in ((10, 1), (10, 3), (10, 10), (50, 5), (50, 50)):
        for protocol in ("sequencing", "sequencing-strict", "stamped"):
            scenario = Scenario(
                protocol,
                duration_ms=seconds * 1_000,
                topology=Topology(
                    topics, 10, 50, topics_per_publisher=1, topics_per_subscriber=each
                ),
                network=NetworkSpec(Latency("two-gaussian")),
                workload=Workload(1.0),
                parameters=PATIENT,
            )
            meter = Meter()
            play(scenario, meter)
            found = _figures(meter)
            row = {"overlap": f"{topics} topics, 50 subscribers of {each}", "protocol": protocol}
            messages = meter.parcel_count / len(meter.published_at)
            rows.append({**row, **found, "messages": messages})
    return Section(
        "stamping",
        "Total notification order: the forest and stamping in parallel",
        "10 publishers of 1 event/s, links of 21 ms (80 %) and 240 ms, topics ranked as listed; "
        "messages are those among sequencers, per event.",
        (
            Column("overlap", "overlap"),
            Column("protocol", "protocol"),
            Column("timestamp", "timestamp", "seconds"),
            Column("latency", "latency", "seconds"),
            Column("messages", "messages", "ns"),
            Column("entries", "entries", "ns"),
        ),
        rows,
    )


# --- rankings -------------------------------------------------------------------------------------


def rankings(size: Size) -> Section:
    """Hops per event on random overlaps, by the policy that ranks the topics."""
    trials = 2_000 if size.name == "full" else 200
    rows: list[Row] = []
    for row in ROWS:
        found: dict[str, list[float]] = {}
        for seed in range(1, 4):
            graph, rates, order = drawn(row, seed=seed)
            counts = {topic: round(20 * row.topics * rate) for topic, rate in rates.items()}
            ours = ranked(graph, rates, trial_count_max=trials)
            for name, tried in (
                ("random", order),
                ("popular", popular_first(rates)),
                ("swaps", swapped(order, swaps(graph, order, counts))),
                ("greedy", eliminated(graph, rates)),
                ("ours", ours),
            ):
                found.setdefault(name, []).append(mean_hops(graph, tried, rates))
            nodes = [f"n{number}" for number in range(10)]
            hashed = {topic: nodes[hash_of(topic) % 10] for topic in rates}
            for name, places in (("hashed", hashed), ("placed", placed(graph, ours, nodes))):
                found.setdefault(name, []).append(network_hops(graph, ours, rates, places))
        rows.append({"overlap": str(row), **{name: mean(hops) for name, hops in found.items()}})
    beaten = sum(row["ours"] < min(row["swaps"], row["popular"]) for row in rows)
    return Section(
        "ranking",
        "Total notification order: rankings",
        "Mean hops between sequencers per event, weighed by rates; three random overlaps per row. "
        "Swaps: Baldoni 2011 with α = 0.1, β = 0.2, until nobody asks for another. The last two "
        "columns are hops between 10 nodes, topics placed by a hash or by the forest.",
        (
            Column("overlap", "topics, subscribers x topics, popularity"),
            Column("random", "random", "ns"),
            Column("popular", "popular first", "ns"),
            Column("swaps", "swaps", "ns"),
            Column("greedy", "degree × rate", "ns"),
            Column("ours", "and local search", "ns"),
            Column("hashed", "network, hashed", "ns"),
            Column("placed", "network, placed", "ns"),
        ),
        rows,
        [
            Goal(
                "fewer hops than swaps and popular first", "5 of 5 rows", f"{beaten} of {len(rows)}"
            )
        ],
    )


def hash_of(text: str) -> int:
    """A hash that is the same in every process."""
    return sum(ord(letter) * 31**place for place, letter in enumerate(text))


# --- rankings that change, figures 18 to 20 -------------------------------------------------------


def reranking(size: Size) -> Section:
    """Latency over time: a bad ranking, the best one at first, one that looks for itself."""
    seconds = 600 if size.name == "full" else 240
    topics, subscribers = (200, 500) if size.name == "full" else (50, 100)
    rows: list[Row] = []
    for name, survey_s, changes in (
        ("as drawn, never changed", 0, (0, seconds // 2)),
        ("the best at first, never changed", 0, (seconds // 2,)),
        ("as drawn, looks every 30 s", 30, (0, seconds // 2)),
    ):
        scenario = Scenario(
            "sequencing",
            duration_ms=seconds * 1_000,
            topology=Topology(topics, 1, subscribers, topics_per_subscriber=10),
            network=NetworkSpec(
                Latency("two-gaussian"), dissemination="tree", overlay_nodes=10_000
            ),
            workload=Workload(
                5.0,
                popularity="power-law 0.901",
                changes=tuple(Change(at * 1_000, shuffle=True) for at in changes),
            ),
            parameters={**PATIENT, "survey_us": survey_s * 1_000_000, "prepare_us_max": 60_000_000}
            if survey_s
            else PATIENT,
        )
        meter = Meter()
        world = play(scenario, meter)
        row: Row = {"ranking": name, "epochs": 0}
        if survey_s:
            row["epochs"] = world.places[COORDINATOR].machine._state.epoch
        entries = list(zip(meter.signed_at.values(), meter.lower, meter.entries, strict=True))
        for part in range(6):
            low, high = (seconds * 1_000_000 * one // 6 for one in (part, part + 1))
            row[f"part{part}"] = mean(d for at, d in meter.latencies if low <= at < high) / 1e6
            if part in (0, 2, 5):
                row[f"bytes{part}"] = 24 * mean(n for at, n, _ in entries if low <= at < high)
        row["all"] = 24 * mean(n for at, _, n in entries if low <= at < high)
        rows.append(row)
    return Section(
        "reranking",
        "Total notification order: rankings that change",
        f"{topics} topics, {subscribers} subscribers of 10 each, 5 events/s by power law 0.901, "
        f"popularity shuffled after {seconds // 2} s, and for a random ranking at the beginning; "
        "mean latency in each sixth of the run, and bytes of timestamps (24 an entry) in three of "
        "them, with the entries that the paper has: own topic and lower ones. *All*: with those "
        "of higher topics, without which the order does not hold (erratum 10; `sequencing-bytes` "
        "has what really travels). Figures 18 to 20 of Baldoni 2011: published, the dynamic "
        "ranking soon beats the static best one, bytes converge to about 100, and a shuffle is a "
        "spike that passes.",
        (
            Column("ranking", "ranking"),
            Column("epochs", "changes", "count"),
            *(Column(f"part{part}", f"sixth {part + 1}", "seconds") for part in range(6)),
            *(Column(f"bytes{part}", f"bytes, sixth {part + 1}", "bytes") for part in (0, 2, 5)),
            Column("all", "all, sixth 6", "bytes"),
        ),
        rows,
    )


# --- 10,000 nodes ---------------------------------------------------------------------------------


def large(size: Size) -> Section:
    """10,000 nodes, 1,000 topics, 100 topics per subscriber, one event per second."""
    nodes, seconds = (10_000, 600) if size.name == "full" else (1_000, 60)
    scenario = Scenario(
        "sequencing",
        duration_ms=seconds * 1_000,
        topology=Topology(
            1_000, 1, nodes - 1, topics_per_subscriber=100, popularity="power-law 0.901"
        ),
        network=NetworkSpec(Latency("two-gaussian"), dissemination="tree", overlay_nodes=nodes),
        workload=Workload(1.0, popularity="power-law 0.901"),
        parameters=PATIENT,
    )
    kept = [f"s{number}" for number in range(1, nodes, nodes // 50)]
    meter = Meter(kept=kept)
    start = process_time()
    world = play(scenario, meter, watch=False)
    took = process_time() - start
    rows_kept = [row for row in meter.rows() if row.process in kept or row.step == "publish"]
    wrong = [str(one) for one in check_level(rows_kept, "total") if not one.holds]
    if wrong:
        raise AssertionError(wrong[0])
    row: Row = {
        "nodes": nodes,
        "simulated": seconds,
        "events": len(meter.published_at),
        "deliveries": len(meter.latencies),
        "latency": mean(one for _, one in meter.latencies) / 1e6,
        "steps": world.step_count,
        "took": took,
    }
    return Section(
        "total-large",
        "Total notification order: 10,000 nodes",
        "1,000 topics, 100 per subscriber, 1 event/s, subscriptions installed at 0, one process; "
        "the order of 50 subscribers is checked.",
        (
            Column("nodes", "nodes", "count"),
            Column("simulated", "simulated seconds", "count"),
            Column("events", "events", "count"),
            Column("deliveries", "deliveries", "count"),
            Column("latency", "latency", "seconds"),
            Column("steps", "machine steps", "count"),
            Column("took", "processor time", "seconds"),
        ),
        [row],
        [Goal("10,000 nodes for 600 s", "minutes", f"{took:.0f} s for {nodes:,} nodes")],
    )
