"""Small cases of total notification order: who holds what, what happens when, judged by checkers.

A case is readable and its schedules are many: the seed draws how long every message takes. The
papers' counterexamples and the planted bugs both run here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from concordant.check.levels import check_level
from concordant.check.verdict import Verdict, Violation, first_violation
from concordant.errors import ConcordantError
from concordant.machine.contract import Machine
from concordant.machine.requests import Publish, Subscribe, Unsubscribe
from concordant.machine.saved import Compact, Saved
from concordant.model.history import Row
from concordant.order.sequencing.client import SequencingClient
from concordant.order.sequencing.coordinator import Coordinator
from concordant.order.sequencing.messages import (
    COORDINATOR,
    Forget,
    Handled,
    Rerank,
    SequencingOptions,
    sequencer_of,
)
from concordant.order.sequencing.sequencer import TopicSequencer
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.recorder import Recorder
from concordant.sim.world import World

OPTIONS = SequencingOptions(
    ask_us=10_000, mark_us=20_000, mark_us_max=50_000, repeat_us=40_000, acknowledge_us=2_000
)


@dataclass(frozen=True)
class Case:
    """Topics are single letters or digits; they are ranked by name."""

    holds: tuple[str, ...]
    """What each subscriber holds from the start, a letter per topic."""
    events: str
    """The topics of the events, in the order in which they are published."""
    changes: tuple[tuple[int, str], ...] = ()
    """(subscriber from 0, "+1" or "-1"): it subscribes or unsubscribes."""
    edge_on: int = 2
    spread_ms: int = 20
    """Events and changes happen within this time, at random instants."""
    latency_ms: int = 20
    in_order: bool = False
    """Events and changes happen in the given order: all changes, then all events."""
    options: SequencingOptions = OPTIONS
    crashes: tuple[str, ...] = ()
    """Nodes that crash once and come back."""
    down_ms: int = 60
    """They are away for at most so long."""
    forever: bool = False
    """They do not come back."""
    loss: float = 0.0
    duplication: float = 0.0
    reranks: tuple[str, ...] = ()
    """New rankings, each asked for once at a random moment."""
    stamped: bool = False
    """Events are stamped in parallel, by the sequencers of all topics."""
    topics_named: str = ""
    """Topics beside those that somebody holds or publishes."""
    turns: int = 0
    """So many events of one publisher, each on the next topic."""
    level: str = ""
    """Promise another level than that of `edge_on`."""
    compact_ms: int = 0
    """So often snapshots take the place of all logs; 0: never."""
    batch_count_max: int = 1
    """Each of the events is published so often at once, at most."""

    @property
    def topics(self) -> tuple[str, ...]:
        changed = (change[1:] for _, change in self.changes)
        named = "".join((*self.holds, self.events, *changed, self.topics_named))
        return tuple(sorted(set(named)))

    @property
    def promise(self) -> str:
        return self.level or ("total strict" if self.edge_on == 1 else "total")


@dataclass
class Played:
    """What came of a case."""

    rows: list[Row]
    verdicts: list[Verdict]
    world: World = field(repr=False)

    @property
    def failure(self) -> Verdict | None:
        return first_violation(self.verdicts)

    @property
    def ranking(self) -> tuple[str, ...]:
        """The order of the topics at the end."""
        machine = self.world.places[COORDINATOR].machine
        assert isinstance(machine, Coordinator)
        return machine.order

    @property
    def forgotten_count(self) -> int:
        """How many leases ended, as far as the logs still tell."""
        records = (record for place in self.world.places.values() for record in place.log)
        return sum(isinstance(one, Handled) and isinstance(one.content, Forget) for one in records)

    @property
    def snapshot_count(self) -> int:
        """How many clients have a snapshot in place of their first records."""
        logs = (place.log for place in self.world.places.values())
        return sum(bool(log) and isinstance(log[0], Saved) for log in logs)

    def delivered(self, name: str) -> list[str]:
        """The topics of what a subscriber delivered, in its order."""
        return [row.topics[0] for row in self.rows if row.step == "deliver" and row.process == name]


def play(case: Case, seed: int) -> Played:
    """Run a case under the schedule of a seed and judge it."""
    rng = Random(f"{seed}/case")
    world = World(
        seed=str(seed),
        network=NetworkSpec(Latency("uniform", 500, case.latency_ms * 1_000)),
        recorder=Recorder("case", level=case.promise),
        step_count_max=200_000,
    )
    _build(world, case)
    world.start()
    moments = sorted(
        rng.randrange(case.spread_ms * 1_000) for _ in range(len(case.events) + len(case.changes))
    )
    if not case.in_order:
        rng.shuffle(moments)
    for (number, change), at in zip(case.changes, moments, strict=False):
        kind = Subscribe if change[0] == "+" else Unsubscribe
        world.call(at, partial(world.command, f"s{number}", kind((change[1:],))))
    batches = Random(f"{seed}/batches")
    for topic, at in zip(case.events, moments[len(case.changes) :], strict=True):
        batch = [Publish(topic)] * batches.randint(1, case.batch_count_max)
        world.call(at, partial(world.command, f"p{topic}", *batch))
    for turn in range(case.turns):
        topic = case.topics[turn % len(case.topics)]
        world.call(turn * 500, partial(world.command, "p", Publish(topic)))
    for order in case.reranks:
        at = rng.randrange(case.spread_ms * 1_000)
        world.call(at, partial(world.command, COORDINATOR, Rerank(tuple(order))))
    for node in case.crashes:
        at = rng.randrange(case.spread_ms * 2_000)
        world.call(at, partial(world.crash, node))
        if not case.forever:
            world.call(
                at + rng.randrange(1_000, case.down_ms * 1_000), partial(world.restart, node)
            )
    if case.compact_ms:
        for at in range(case.compact_ms * 1_000, case.spread_ms * 2_000, case.compact_ms * 1_000):
            world.call(at, partial(_compact, world))
    _trouble(world, case.loss, case.duplication)
    verdicts: list[Verdict] = []
    try:
        away_ms = case.down_ms if case.crashes else 0
        world.run((case.spread_ms * 2 + away_ms + 100) * 1_000)
        _trouble(world, 0.0, 0.0)
        for _ in range(60):
            world.run(world.now + 200_000)
            if not held_count(world):
                break
        else:
            sentence = f"{held_count(world)} items still wait"
            verdicts.append(Verdict("Drained", 1, Violation(sentence)))
        world.run(world.now + 200_000)
        world.recorder.noted(world.now, "", "end")
    except ConcordantError as error:
        verdicts.append(Verdict("Invariants", 1, Violation(str(error))))
    rows = list(world.recorder.rows())
    return Played(rows, [*verdicts, *check_level(rows, case.promise)], world)


def _compact(world: World) -> None:
    for address, place in world.places.items():
        world.command(address, Compact(place.taken_count))


def _trouble(world: World, loss: float, duplication: float) -> None:
    trouble = world.network.trouble
    trouble.loss, trouble.duplication = loss, duplication
    trouble.revise()


def random_case(seed: int) -> Case:
    """Topics, overlaps, load, changes, faults and promise, all of it from the seed."""
    rng = Random(f"{seed}/sequencing")
    topics = "12345"[: rng.randint(2, 5)]
    subscribers = rng.randint(2, 5)
    holds = tuple(
        "".join(sorted(rng.sample(topics, rng.randint(1, min(3, len(topics))))))
        for _ in range(subscribers)
    )
    changes = tuple(
        (rng.randrange(subscribers), rng.choice("+-") + rng.choice(topics))
        for _ in range(rng.choice((0, 0, 1, 3, 5)))
    )
    reranks = tuple(
        "".join(rng.sample(topics, len(topics))) for _ in range(rng.choice((0, 0, 0, 1, 2)))
    )
    nodes = [
        *(sequencer_of(topic) for topic in topics),
        *(f"p{topic}" for topic in topics),
        *(f"s{number}" for number in range(subscribers)),
        *([COORDINATOR] if reranks else ()),
    ]
    options = OPTIONS
    if rng.random() < 0.4:
        options = with_options(
            OPTIONS,
            tag=True,
            time_to_live_us=rng.choice((5_000, 30_000)),
            buffer_count_max=rng.choice((0, 2, 30)),
        )
    return Case(
        holds,
        "".join(rng.choice(topics) for _ in range(rng.randint(3, 14))),
        changes,
        edge_on=rng.choice((1, 2)),
        spread_ms=rng.choice((20, 100, 300)),
        latency_ms=rng.choice((5, 20, 60)),
        options=with_options(
            options,
            log_count_max=rng.choice((3, 50_000)),
            lease_us=rng.choice((0, 0, 300_000)),
        ),
        crashes=tuple(rng.sample(nodes, rng.choice((0, 0, 0, 1, 2, 3)))),
        loss=rng.choice((0.0, 0.0, 0.1, 0.3)),
        duplication=rng.choice((0.0, 0.0, 0.2)),
        reranks=reranks,
        topics_named=topics,
        stamped=not reranks and rng.random() < 0.2,
        down_ms=rng.choice((60, 800)),
        compact_ms=rng.choice((0, 0, 7)),
        batch_count_max=rng.choice((1, 1, 4)),
    )


def held_count(world: World) -> int:
    """What waits at nodes that are up, and not for somebody who never comes back."""
    down = [name for name, node in world.nodes.items() if not node.up]
    return sum(
        place.machine.held_count - sum(_unsent(place.machine, name) for name in down)
        for place in world.places.values()
        if place.node.up
    )


def _unsent(machine: Machine, to: str) -> int:
    assert isinstance(machine, SequencingClient | TopicSequencer | Coordinator)
    box = machine._state.channels.outboxes.get(to)
    return len(box.waiting) if box is not None else 0


def _build(world: World, case: Case) -> None:
    options = with_options(case.options, edge_on=case.edge_on)
    sequencers = {topic: sequencer_of(topic) for topic in case.topics}
    held = {f"s{number}": tuple(topics) for number, topics in enumerate(case.holds)}
    if case.reranks:
        world.add(COORDINATOR, partial(Coordinator, sequencers, options=options))
    for topic in case.topics:
        world.add(
            sequencer_of(topic),
            partial(
                TopicSequencer,
                topic,
                sequencers=sequencers,
                subscriptions=held,
                stamped_with=case.topics if case.stamped else None,
                options=options,
            ),
        )
        world.add(
            f"p{topic}",
            partial(
                SequencingClient,
                f"p{topic}",
                sequencers=sequencers,
                publishes=(topic,),
                options=options,
            ),
        )
    if case.turns:
        world.add(
            "p",
            partial(
                SequencingClient,
                "p",
                sequencers=sequencers,
                publishes=case.topics,
                options=options,
            ),
        )
    for name, topics in held.items():
        world.add(
            name,
            partial(SequencingClient, name, sequencers=sequencers, topics=topics, options=options),
        )


def with_options(options: SequencingOptions, **changed: object) -> SequencingOptions:
    fields = {name: getattr(options, name) for name in options.__struct_fields__}
    return SequencingOptions(**{**fields, **changed})


def found_after(case: Case, count: int, *names: str) -> int | None:
    """How many schedules it takes until one of these properties is seen broken."""
    for seed in range(count):
        failure = play(case, seed).failure
        if failure is not None and (not names or failure.name in names):
            return seed + 1
    return None


def clean(case: Case, count: int) -> None:
    """No schedule breaks anything."""
    for seed in range(count):
        failure = play(case, seed).failure
        assert failure is None, f"{case}, seed {seed}: {failure}"


def strict(case: Case) -> Case:
    """The same case under the stronger promise."""
    return replace(case, edge_on=1)
