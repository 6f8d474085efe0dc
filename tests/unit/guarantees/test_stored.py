"""The stored counterexamples: each is one, each is small, and the table has no gap."""

from __future__ import annotations

import msgspec
import pytest

from concordant.check.properties import INFEASIBLE
from concordant.guarantees.scene import Scene
from concordant.guarantees.search import renumbered, violated
from concordant.guarantees.stored import names_in, sections, stored, stored_scene
from concordant.guarantees.table import CLAUSES, COVERING, ORDERS, lost_by_policy
from tests.generators import ALL_POLICIES

ENTRIES = [(section, name) for section in sections() for name in names_in(section)]
CAUSED = [(section, name) for section, name in ENTRIES if not section.startswith(("match", "any"))]


@pytest.mark.parametrize(("section", "name"), ENTRIES)
def test_a_stored_counterexample_violates_its_property(section: str, name: str) -> None:
    assert stored(section, name).verdict.name == name


@pytest.mark.parametrize(("section", "name"), ENTRIES)
def test_no_event_of_a_stored_counterexample_can_be_left_out(section: str, name: str) -> None:
    scene = stored_scene(section, name)
    for i in range(len(scene.events)):
        assert violated(without(scene, i), name) is None


def without(scene: Scene, i: int) -> Scene:
    in_cycle = i >= len(scene.events) - scene.cycle_count
    if in_cycle and scene.cycle_count == 1:
        return msgspec.structs.replace(scene, events=scene.events[:-1], cycle_count=0)
    return msgspec.structs.replace(
        scene,
        events=renumbered([*scene.events[:i], *scene.events[i + 1 :]]),
        cycle_count=scene.cycle_count - in_cycle,
        arrivals={
            process: tuple(j - (j > i) for j in order if j != i)
            for process, order in scene.arrivals.items()
        },
    )


@pytest.mark.parametrize(("section", "name"), CAUSED)
def test_the_policy_is_not_to_blame_where_a_clause_or_a_level_is(section: str, name: str) -> None:
    policy = stored_scene(section, name).subscribers[0].policy
    assert name not in lost_by_policy(policy) or (section.startswith("order") and name == COVERING)


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=str)
def test_every_property_that_a_policy_loses_has_a_counterexample(policy: object) -> None:
    assert {*names_in(str(policy))} == {*lost_by_policy(policy)}  # type: ignore[arg-type]


def test_every_clause_and_order_level_has_its_counterexamples() -> None:
    assert {c: {*names_in(c)} for c in CLAUSES} == {c: {*lost} for c, lost in CLAUSES.items()}
    assert {o: {*names_in(f"order {o}")} for o in ORDERS} == {o: {*w} for o, w in ORDERS.items()}
    assert {*names_in("any policy")} == {*INFEASIBLE}


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=str)
def test_partitions_and_missing_order_lose_the_same_under_every_policy(policy: object) -> None:
    for section in ("partition by", "order none"):
        for name in names_in(section):
            scene = stored_scene(section, name, policy)  # type: ignore[arg-type]
            found = violated(scene, name)
            assert found is not None or name in lost_by_policy(policy), (section, name)  # type: ignore[arg-type]
