"""Brokers and causal clients keep the laws of the machine contract."""

from __future__ import annotations

from random import Random

import pytest

from concordant.causal.options import Profile
from concordant.machine.inputs import Input
from concordant.sim import causal
from concordant.sim.causal_cases import MIXES, Mix, drawn
from concordant.sim.world import Place, World
from tests import laws

PROFILES: tuple[Profile, ...] = ("local", "rounds")


def lives_of(seed: int, profile: Profile, mix: Mix) -> list[laws.Life]:
    """All lives of all machines in a case, failure detectors left out."""
    lives: dict[int, laws.Life] = {}
    machines = []

    class Watching(causal.Watcher):
        def watch(self, world: World, place: Place, given: Input, effects: object) -> None:
            if "/" not in place.address:
                if id(place.machine) not in lives:
                    machines.append(place.machine)
                    lives[id(place.machine)] = laws.Life(place.address, place.make)
                now = world.now + place.node.clock_offset_us
                lives[id(place.machine)].inputs.append((now, given))
            super().watch(world, place, given, effects)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(causal, "Watcher", Watching)
        causal.play(drawn(seed, profile=profile, mix=mix), seed=seed)
    return list(lives.values())


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mix", MIXES)
def test_the_laws_hold(profile: Profile, mix: Mix, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = lives_of(1, profile, mix)
    for name in ("order", "_deliver", "_tick"):
        monkeypatch.delattr(causal._Watched, name)
    monkeypatch.delattr(causal._WatchedBurial, "end")
    batches = 0
    for life in lives:
        rng = Random(1)
        batches += laws.a_batch_equals_its_items(life, rng)
        laws.a_restored_machine_goes_on_alike(life, rng)
        laws.effects_repeat_their_cause(life)
        laws.an_illegal_input_changes_nothing(life, rng)
    assert batches > 5
