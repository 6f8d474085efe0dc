"""One run of a scenario: two phases, then the verdicts.

In the first phase there is load and things go wrong; what was promised for any moment (safety) is
checked over all of it. Then everything heals and nobody publishes any longer; the run ends when
nothing is held back and nothing happens any more, and whatever is owed has to be there (liveness).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import msgspec

from concordant.check.levels import check_level
from concordant.check.verdict import Verdict, Violation, first_violation
from concordant.errors import ConcordantError, UsageError
from concordant.model.history import Row
from concordant.sim import faults
from concordant.sim.protocols import check_nodes, layout_of, options_of, protocol_of
from concordant.sim.recorder import Recorder
from concordant.sim.scenario import Scenario
from concordant.sim.workload import Load
from concordant.sim.world import Watch, World


class Outcome(msgspec.Struct, frozen=True):
    """What came of a run."""

    scenario: Scenario
    """With the faults that were drawn."""
    seed: int
    level: str
    recorder: Recorder
    verdicts: tuple[Verdict, ...]
    step_count: int
    """Inputs that machines handled."""
    ended_at_us: int

    @property
    def failure(self) -> Verdict | None:
        """The first promise that was broken."""
        return first_violation(self.verdicts)

    @property
    def rows(self) -> Iterator[Row]:
        return self.recorder.rows()

    def counts(self) -> dict[str, int]:
        """How often what happened: steps of the history, and faults."""
        found: dict[str, int] = {}
        for row in self.rows:
            found[row.step] = found.get(row.step, 0) + 1
        return {**found, **dict(sorted(self.recorder.counts.items()))}


def with_chaos(scenario: Scenario, seed: int) -> Scenario:
    """The same scenario with the faults that the seed draws written out."""
    if scenario.chaos is None:
        return scenario
    rng = Random(f"{seed}/chaos")
    more = faults.drawn(scenario, scenario.chaos, rng)
    return msgspec.structs.replace(scenario, faults=(*scenario.faults, *more), chaos=None)


def simulate(scenario: Scenario, *, seed: int, watch: Watch | None = None) -> Outcome:
    """Run a scenario and judge it."""
    scenario = with_chaos(scenario, seed)
    check_nodes(scenario)
    protocol = protocol_of(scenario)
    level = scenario.level or protocol.level
    name = f"{scenario.name or scenario.protocol}/{seed}"
    recorder = Recorder(name, level=level)
    world = World(
        seed=str(seed),
        network=scenario.network,
        recorder=recorder,
        watch=watch,
        step_count_max=scenario.step_count_max,
    )
    broken: Verdict | None = None
    rested = False
    with _no_collector():
        try:
            rested = _phases(world, scenario, str(seed))
        except UsageError:
            raise
        except ConcordantError as error:
            broken = Verdict("Invariants", world.step_count, Violation(str(error)))
    verdicts = [broken] if broken else [_drained(world, rested)]
    verdicts += check_level(recorder.rows(), level)
    return Outcome(scenario, seed, level, recorder, tuple(verdicts), world.step_count, world.now)


def _phases(world: World, scenario: Scenario, seed: str) -> bool:
    """True if the run came to rest."""
    protocol = protocol_of(scenario)
    layout = layout_of(scenario, seed)
    protocol.build(world, scenario, layout)
    world.start()
    faults.schedule(world, scenario.faults)
    Load(world, scenario, layout, seed=seed).begin()
    world.run(scenario.duration_ms * 1_000)
    faults.heal(world)
    options = options_of(scenario)
    pause_us = options.mark_us_max + options.repeat_us
    end_us = world.now + scenario.heal_ms * 1_000
    quiet = False
    while world.now < end_us:
        before = len(world.recorder)
        world.run(min(end_us, world.now + pause_us))
        # Quiet twice: once might have been between two marks.
        was_quiet, quiet = quiet, len(world.recorder) == before and not world.held_count
        if quiet and was_quiet:
            world.recorder.noted(world.now, "", "end")
            return True
    return False


def _drained(world: World, rested: bool) -> Verdict:
    """Nothing waits for something that will never come, and nothing happens for ever."""
    waiting = {
        place.address: place.machine.held_count
        for place in world.places.values()
        if place.machine.held_count
    }
    if rested:
        return Verdict("Drained", len(world.places))
    sentence = f"the run did not come to rest in {world.now / 1e6:.1f} s"
    if waiting:
        name, count = next(iter(waiting.items()))
        sentence += f": {name} still holds back {count}"
    return Verdict("Drained", len(world.places), Violation(sentence))


@contextmanager
def _no_collector() -> Iterator[None]:
    """Effects and rows are trees: the collector would look at all of them and find nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
