"""The laws of the machine contract, tried on what machines really received in simulated runs.

A machine is a pure function of its inputs, so a run gives each of them a list of inputs to replay:
gathered into batches and one by one, with a snapshot in between, with an illegal input on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec
import pytest

from concordant.errors import ConcordantError
from concordant.machine.contract import Machine, flat
from concordant.machine.effects import Effect
from concordant.machine.inputs import Command, Input, Received, Request, TimerFired
from concordant.sim.run import simulate
from concordant.sim.scenario import Scenario
from concordant.sim.world import Place, World


class Nonsense(msgspec.Struct, frozen=True):
    """Neither a message nor a request of any protocol."""


@dataclass
class Life:
    """One life of one machine: how it is made, and what it was given."""

    address: str
    make: Callable[[], Machine]
    inputs: list[tuple[int, Input]] = field(default_factory=list)


def lives_of(scenario: Scenario, *, seed: int) -> list[Life]:
    """All lives of all machines in a run."""
    machines: list[Machine] = []  # kept, so that no two have one identity
    lives: dict[int, Life] = {}

    def watch(world: World, place: Place, given: Input, effects: object) -> None:
        del effects
        if id(place.machine) not in lives:
            machines.append(place.machine)
            lives[id(place.machine)] = Life(place.address, place.make)
        now = world.now + place.node.clock_offset_us
        lives[id(place.machine)].inputs.append((now, given))

    simulate(scenario, seed=seed, watch=watch)
    return list(lives.values())


def a_batch_equals_its_items(life: Life, rng: Random) -> int:
    """Give neighbours as one batch and one by one; how many batches there were."""
    batched, single = life.make(), life.make()
    batch_count = 0
    for now, batch in gathered(life.inputs, rng):
        items = list(items_of(batch))
        batch_count += len(items) > 1
        one_by_one: list[Effect] = []
        for item in items:
            one_by_one += single.handle(now, item)
        assert flat(batched.handle(now, batch)) == flat(one_by_one), f"{life.address}: {batch}"
        assert batched.snapshot() == single.snapshot(), f"{life.address}: {batch}"
    return batch_count


def gathered(inputs: list[tuple[int, Input]], rng: Random) -> Iterator[tuple[int, Input]]:
    """Neighbours of one kind, and from one source, become batches now and then."""
    waiting: tuple[int, Input] | None = None
    for now, given in inputs:
        joined = _joined(waiting[1], given) if waiting and rng.random() < 0.7 else None
        if waiting and joined is not None:
            waiting = (waiting[0], joined)
            continue
        if waiting:
            yield waiting
        waiting = (now, given)
    if waiting:
        yield waiting


def _joined(one: Input, other: Input) -> Input | None:
    if isinstance(one, Received) and isinstance(other, Received) and one.source == other.source:
        return Received(one.source, one.messages + other.messages, one.cause)
    if isinstance(one, TimerFired) and isinstance(other, TimerFired):
        return TimerFired(one.names + other.names, one.cause)
    if isinstance(one, Command) and isinstance(other, Command):
        return Command(one.requests + other.requests, one.cause)
    return None


def items_of(given: Input) -> Iterator[Input]:
    if isinstance(given, Received):
        yield from (Received(given.source, (one,), given.cause) for one in given.messages)
    elif isinstance(given, TimerFired):
        yield from (TimerFired((one,), given.cause) for one in given.names)
    elif isinstance(given, Command):
        yield from (Command((one,), given.cause) for one in given.requests)
    else:
        yield given


def a_restored_machine_goes_on_alike(life: Life, rng: Random) -> None:
    cut = rng.randrange(len(life.inputs) + 1)
    machine = life.make()
    for now, given in life.inputs[:cut]:
        machine.handle(now, given)
    restored = life.make()
    restored.restore(machine.snapshot())
    for now, given in life.inputs[cut:]:
        assert list(machine.handle(now, given)) == list(restored.handle(now, given))
    assert machine.snapshot() == restored.snapshot()


def effects_repeat_their_cause(life: Life) -> None:
    machine = life.make()
    for now, given in life.inputs:
        for effect in machine.handle(now, given):
            assert effect.cause == given.cause, f"{life.address}: {given} led to {effect}"


def an_illegal_input_changes_nothing(life: Life, rng: Random) -> None:
    machine = life.make()
    for now, given in life.inputs[: rng.randrange(1, len(life.inputs) + 1)]:
        machine.handle(now, given)
    before = machine.snapshot()
    good = next((g.messages for _, g in life.inputs if isinstance(g, Received)), ())
    asked: tuple[Request, ...] = next(
        (g.requests for _, g in life.inputs if isinstance(g, Command)), ()
    )
    for bad in (Received("stranger", (*good, Nonsense())), Command((*asked, Nonsense()))):
        with pytest.raises(ConcordantError):
            machine.handle(0, bad)
        assert machine.snapshot() == before, f"{life.address}: {bad}"
