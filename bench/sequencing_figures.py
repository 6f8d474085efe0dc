"""Total notification order beside the figures of Baldoni 2011 that turn on overlap and swaps.

What a timestamp costs by how many topics subscribers hold (figures 13 and 14), of which bytes that
consists (19), and the published
policy of swaps, installed by epochs, against the ranking that looks for itself (16 and 17). All of
it is simulated: virtual time, bytes and counts, the same on every machine. Figures 22 to 24 compare
a prototype on virtual machines with JGroups over an emulated network; they are left out here, and
`sequencing-tcp` measures against a sequencer of our own instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from statistics import mean

import msgspec

from bench.result import Column, Goal, Plot, Row, Section, Size
from bench.sequencing import PATIENT, Meter, lower_count, play
from concordant.machine.effects import Disseminate, Effect, Send
from concordant.machine.inputs import Input, Message, Received
from concordant.order.sequencing.coordinator import Coordinator
from concordant.order.sequencing.messages import (
    COORDINATOR,
    Create,
    Done,
    Fill,
    Parcel,
    Receipt,
    Rerank,
    Signed,
    sequencer_of,
)
from concordant.order.sequencing.overlap import overlap
from concordant.order.sequencing.ranking import popularity, swapped, swaps
from concordant.order.sequencing.sequencer import TopicSequencer
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.protocols import layout_of
from concordant.sim.scenario import Change, Popularity, Scenario, Topology, Workload
from concordant.sim.world import Place, World

ENTRY_BYTES = 24
"""Of an entry of a timestamp, as the paper counts it."""

_ASKED_ONLY = {**PATIENT, "survey_us": 10**15, "prepare_us_max": 60_000_000}
"""A coordinator that changes the ranking when it is asked, and never by itself."""
_OVERLAY = NetworkSpec(Latency("two-gaussian"), dissemination="tree", overlay_nodes=10_000)


# --- overhead, figures 13 and 14 ------------------------------------------------------------------


class _Foreign(Meter):
    """Counts what sequencers handle for events of other topics."""

    def __init__(self) -> None:
        super().__init__()
        self.handled_count = self.foreign_count = 0

    def watch(self, world: World, place: Place, given: Input, effects: Sequence[Effect]) -> None:
        super().watch(world, place, given, effects)
        if isinstance(given, Received) and place.address.startswith("sequencer-"):
            for message in given.messages:
                if isinstance(message, Parcel) and isinstance(
                    message.content, Create | Fill | Done
                ):
                    self.handled_count += 1
                    self.foreign_count += isinstance(message.content, Fill)


def overhead(size: Size) -> Section:
    """Bytes and foreign messages by how many topics a subscriber holds."""
    seconds = 300 if size.name == "full" else 60
    models: tuple[tuple[str, Popularity, bool], ...] = (
        ("power law 0.901, popular lowest", "power-law 0.901", False),
        ("power law 0.901, popular highest", "power-law 0.901", True),
        ("uniform", "uniform", False),
    )
    rows: list[Row] = []
    for each in (1, 5, 10, 25, 50):
        for name, model, worst in models:
            scenario = Scenario(
                "sequencing",
                duration_ms=seconds * 1_000,
                topology=Topology(50, 1, 100, topics_per_subscriber=each, popularity=model),
                network=_OVERLAY,
                workload=Workload(1.0, popularity=model),
                parameters=_ASKED_ONLY,
            )
            meter = _Foreign()
            ranking = tuple(reversed(scenario.topics)) if worst else ()
            play(scenario, meter, first=partial(_rerank, order=ranking))
            rows.append(
                {
                    "each": each,
                    "model": name,
                    "bytes": ENTRY_BYTES * mean(meter.entries),
                    "foreign": meter.foreign_count / meter.handled_count,
                    "latency": mean(one for _, one in meter.latencies) / 1e6,
                }
            )
    best = [row for row in rows if row["model"] == models[0][0]]
    return Section(
        "overhead",
        "Total notification order: overhead",
        "50 topics, 100 subscribers, 1 event/s, links of 21 ms (80 %) and 240 ms; events and "
        "subscriptions by the same model. Figures 13 and 14 of Baldoni 2011, which say by picture "
        "that with the best order both overheads are low and flat. Bytes: entries of 24 bytes in "
        "an event's timestamp. Foreign: of the messages that sequencers handle for events, those "
        "for events of other topics.",
        (
            Column("each", "topics per subscriber", "count"),
            Column("model", "events are published to"),
            Column("bytes", "bytes per event", "bytes"),
            Column("foreign", "foreign messages", "percent"),
            Column("latency", "latency", "seconds"),
        ),
        rows,
        [
            Goal(
                "overhead with the best order, from few topics to all",
                "low and flat (figures 13, 14)",
                ", ".join(f"{row['bytes']:.0f} B and {row['foreign']:.0%}" for row in best),
            )
        ],
        Plot("each", "bytes", "topics per subscriber", "bytes per event", "model"),
    )


def _rerank(world: World, order: tuple[str, ...]) -> None:
    if order and not world.command(COORDINATOR, Rerank(order)):
        raise AssertionError("the coordinator refused a ranking")


# --- bytes, figure 19 -----------------------------------------------------------------------------


class _Bytes(Meter):
    """What travels for events, by kind of message and by field, as it is encoded."""

    FIELDS = ("event", "lower", "higher", "todo", "rest")

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.fields: Counter[tuple[str, str]] = Counter()

    def watch(self, world: World, place: Place, given: Input, effects: Sequence[Effect]) -> None:
        super().watch(world, place, given, effects)
        for effect in effects:
            if isinstance(effect, Send):
                for message in effect.messages:
                    if isinstance(message, Parcel):
                        self._add(type(message.content).__name__, message, message.content, 0)
                    elif isinstance(message, Receipt):
                        self._add("Receipt", message, message, 0)
            elif isinstance(effect, Disseminate):
                for message in effect.messages:
                    if isinstance(message, Signed):
                        self._add("Signed", message, message, 1 + lower_count(place, message))

    def _add(self, kind: str, message: Message, content: Message, lower: int) -> None:
        """A message, and of its content what is known; its first `lower` entries are lower ones,
        and those of a timestamp that is not complete are lower ones only."""
        sizes = dict.fromkeys(self.FIELDS, 0)
        if isinstance(content, Create):
            sizes["event"] = sum(map(_size, content.events))
        elif isinstance(content, Signed):
            sizes["event"] = _size(content.event)
        if hasattr(content, "timestamp"):
            bytes_ = sum(_size(topic) + _size(n) for topic, n in content.timestamp.items())
            count = len(content.timestamp)
            sizes["lower"] = bytes_ * lower // count if lower and count else bytes_
            sizes["higher"] = bytes_ - sizes["lower"]
        if hasattr(content, "todo"):
            sizes["todo"] = _size(content.todo)
        sizes["rest"] = _size(message) - sum(sizes.values())
        self.counts[kind] += 1
        for name, size in sizes.items():
            self.fields[kind, name] += size


def _size(value: object) -> int:
    return len(msgspec.msgpack.encode(value))


def sizes(size: Size) -> Section:
    """Bytes per event by kind of message and field, under the best ranking."""
    seconds = 300 if size.name == "full" else 60
    rows: list[Row] = []
    meter = _Bytes()
    scenario = Scenario(
        "sequencing",
        duration_ms=seconds * 1_000,
        topology=Topology(50, 1, 100, topics_per_subscriber=10),
        network=_OVERLAY,
        workload=Workload(5.0, popularity="power-law 0.901"),
        parameters=PATIENT,
    )
    play(scenario, meter)
    events = len(meter.published_at)
    for kind, count in meter.counts.items():
        row: Row = {"kind": kind, "count": count / events}
        row |= {name: meter.fields[kind, name] / events for name in meter.FIELDS}
        rows.append({**row, "bytes": sum(row[name] for name in meter.FIELDS)})
    lower, entries = mean(meter.lower), mean(meter.entries)
    return Section(
        "sequencing-bytes",
        "Total notification order: bytes by message and field",
        "50 topics ranked by popularity, 100 subscribers of 10 each, 5 events/s by power law "
        "0.901; bytes per event as messages are encoded one by one, dissemination counted once. "
        "The paper counts 24 bytes an entry and has entries of the own and of lower topics: "
        f"{lower:.1f} of them here, {ENTRY_BYTES * lower:.0f} bytes (figure 19: about 100). Those "
        f"of higher topics, {entries - lower:.1f} more, tell a subscriber what it has to wait for "
        "(erratum 10). They stay where the event has its number and travel in the last message "
        "only.",
        (
            Column("kind", "message"),
            Column("count", "per event", "ns"),
            Column("bytes", "bytes", "bytes"),
            Column("event", "event", "bytes"),
            Column("lower", "entries, own and lower", "bytes"),
            Column("higher", "entries, higher", "bytes"),
            Column("todo", "still to sign", "bytes"),
            Column("rest", "rest", "bytes"),
        ),
        rows,
    )


# --- swaps, figures 16 and 17 ---------------------------------------------------------------------

_PUBLISHED = {
    (0.1, 0.2): "converges; 15.1 swaps",
    (0.3, 0.2): "converges",
    (0.5, 0.2): "no benefit; 7.4 swaps",
    (0.1, 0.1): "51.8 swaps",
    (0.1, 0.3): "7.8 swaps",
}
_BEFORE = 3
"""Events of every topic before the first one that is looked at, in the second half of the rows."""
_LOOK_US = 10_000_000
"""How often the counts are looked at."""


class _Swapping:
    """The published policy: who is more popular by more than β changes places."""

    def __init__(self, scenario: Scenario, alpha: float, beta: float, *, before: int) -> None:
        """Every topic had so many events `before`."""
        self.count = self.epochs = 0
        self._scenario, self._alpha, self._beta, self._before = scenario, alpha, beta, before
        self._graph = overlap(layout_of(scenario, "1").subscribes.values())

    def look(self, world: World) -> None:
        """Install the exchanges that the counts so far ask for, all of them in one epoch."""
        coordinator = world.places[COORDINATOR].machine
        assert isinstance(coordinator, Coordinator)
        order = coordinator.order
        found = swaps(self._graph, order, self._counts(world), alpha=self._alpha, beta=self._beta)
        if found and world.command(COORDINATOR, Rerank(tuple(swapped(order, found)))):
            self.count += len(found)
            self.epochs += 1
        if world.now < self._scenario.duration_ms * 1_000:
            world.call(world.now + _LOOK_US, lambda: self.look(world))

    def _counts(self, world: World) -> dict[str, int]:
        counts = {}
        for topic in self._scenario.topics:
            machine = world.places[sequencer_of(topic)].machine
            assert isinstance(machine, TopicSequencer)
            counts[topic] = self._before + machine._state.signer.count
        return counts

    @property
    def needed(self) -> int:
        """So many events more than others a topic must have to pass them."""
        value = partial(popularity, alpha=self._alpha)
        least = value(self._before) + self._beta
        return next(n for n in range(1, 10_000) if value(self._before + n) > least)


def swapping(size: Size) -> Section:
    """Latency over time under swaps with several α and β, and under our ranking."""
    topics, subscribers, seconds = (400, 200, 600) if size.name == "full" else (60, 40, 240)
    scenario = Scenario(
        "sequencing",
        duration_ms=seconds * 1_000,
        topology=Topology(topics, 1, subscribers, topics_per_subscriber=topics // 10),
        network=_OVERLAY,
        workload=Workload(1.0, popularity="power-law 0.901", changes=(Change(0, shuffle=True),)),
        parameters=_ASKED_ONLY,
    )
    rows: list[Row] = [_over_time("as drawn, never changed", scenario, None)]
    for before in (0, _BEFORE):
        for (alpha, beta), published in _PUBLISHED.items():
            policy = _Swapping(scenario, alpha, beta, before=before)
            row = _over_time(f"swaps, α = {alpha}, β = {beta}", scenario, policy)
            rows.append({**row, "before": before, "needed": policy.needed, "published": published})
    ours = msgspec.structs.replace(scenario, parameters={**_ASKED_ONLY, "survey_us": _LOOK_US})
    rows.append(_over_time("ours, looks every 10 s", ours, None))
    best = min(row["whole"] for row in rows[1:-1])
    return Section(
        "swapping",
        "Total notification order: swaps by α and β",
        f"{topics} topics in random order, {subscribers} subscribers of {topics // 10} each, 1 "
        "event/s by power law 0.901; mean latency in each quarter of the run. Figures 16 and 17 of "
        "Baldoni 2011 (1,000 topics, 10,000 nodes), with their words and numbers of swaps beside. "
        "Counts are looked at every 10 s, and what they ask for is installed in one epoch. "
        "Published, α = 0.5 swaps least. With the printed function e^(-1/(α(x+1))) and counts from "
        "zero it swaps most: a topic passes a silent one after *events to pass*, and that is one "
        "event. Only when all topics have a few events before does a great α slow swaps down, "
        f"because all are nearly popular then; with {_BEFORE}, the numbers of swaps stand to each "
        "other about as published (15.1 to 7.4 for α, 51.8 to 15.1 to 7.8 for β).",
        (
            Column("ranking", "ranking"),
            Column("before", "events before", "count"),
            Column("needed", "events to pass", "count"),
            Column("swaps", "swaps", "count"),
            Column("epochs", "epochs", "count"),
            *(Column(f"part{part}", f"quarter {part + 1}", "seconds") for part in range(4)),
            Column("whole", "whole run", "seconds"),
            Column("published", "published"),
        ),
        rows,
        [
            Goal(
                "latency over the run, our ranking against the best swaps",
                "not above",
                f"{rows[-1]['whole']:.2f} s and {best:.2f} s",
            )
        ],
    )


def _over_time(name: str, scenario: Scenario, policy: _Swapping | None) -> Row:
    meter = Meter()
    world = play(scenario, meter, watch=False, first=policy.look if policy else None)
    length = scenario.duration_ms * 1_000 // 4
    parts = {
        f"part{part}": mean(
            late for at, late in meter.latencies if part * length <= at < (part + 1) * length
        )
        / 1e6
        for part in range(4)
    }
    parts["whole"] = mean(late for _, late in meter.latencies) / 1e6
    epochs = world.places[COORDINATOR].machine._state.epoch
    return {"ranking": name, "swaps": policy.count if policy else None, "epochs": epochs, **parts}
