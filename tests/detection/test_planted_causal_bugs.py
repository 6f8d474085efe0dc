"""Every bug planted in causal delivery is found in drawn cases; without one, nothing is."""

from __future__ import annotations

import msgspec
import pytest

from concordant.sim.causal import play
from concordant.sim.causal_cases import MIXES, Mix, drawn
from tests.detection.causal_bugs import (
    BUGS,
    CausalBug,
    case_for,
    found_at,
    planted,
)

CLEAN_COUNT = 4


@pytest.mark.parametrize("which", BUGS, ids=lambda which: which.name)
def test_a_checker_finds(which: CausalBug) -> None:
    assert found_at(which, which.dies_at), (
        f"{which.name!r} no longer dies at {which.dies_at}: the campaign says where it does"
    )


@pytest.mark.parametrize("mix", MIXES)
def test_without_a_bug_nothing_is_found(mix: Mix) -> None:
    for which in BUGS:
        with planted(which):
            pass
    for seed in range(CLEAN_COUNT):
        for profile in ("local", "rounds"):
            failure = play(drawn(seed, profile=profile, mix=mix), seed=seed).failure
            assert failure is None, f"{profile}, {mix}, seed {seed}: {failure}"


@pytest.mark.parametrize(
    ("mix", "seed"),
    [("suspicion", 756), ("suspicion", 1267), ("calm", 1735), ("migration", 1656)],
)
def test_a_line_that_once_broke_holds(mix: Mix, seed: int) -> None:
    """A home held for dead had sent what the others never got, or a topic was left while an event
    of it waited in the line."""
    case = msgspec.structs.replace(drawn(seed, profile="rounds", mix=mix), total=True)
    assert play(case, seed=seed).failure is None


def test_what_a_bug_needs_to_show_breaks_nothing_by_itself() -> None:
    for which in BUGS:
        failure = play(case_for(which, which.dies_at), seed=which.dies_at).failure
        assert failure is None, f"{which.name}: {failure}"


def test_bugs_have_names_of_their_own() -> None:
    names = [which.name for which in BUGS]
    assert sorted(set(names)) == sorted(names)
