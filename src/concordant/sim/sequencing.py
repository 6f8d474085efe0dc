"""Total notification order in a world: a sequencer per topic, and clients of all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from concordant.order.sequencing.client import SequencingClient
from concordant.order.sequencing.coordinator import Coordinator
from concordant.order.sequencing.messages import COORDINATOR, SequencingOptions, sequencer_of
from concordant.order.sequencing.sequencer import TopicSequencer
from concordant.sim.scenario import Scenario
from concordant.sim.world import World

if TYPE_CHECKING:
    from concordant.sim.protocols import Layout


def build(
    world: World,
    scenario: Scenario,
    layout: Layout,
    *,
    options: SequencingOptions,
    clients: Callable[..., None],
) -> None:
    """Topics are ranked as they are listed, the most popular lowest; `clients` adds clients."""
    shape = scenario.topology
    sequencers = {topic: sequencer_of(topic) for topic in scenario.topics}
    members = layout.members
    add = partial(world.add, service_us=shape.service_us, sync_us=shape.sync_us)
    for topic, address in sequencers.items():
        make = partial(
            TopicSequencer,
            topic,
            sequencers=sequencers,
            subscriptions=members.get(topic, {}),
            options=options,
        )
        add(address, make)
    if options.survey_us:
        add(COORDINATOR, partial(Coordinator, sequencers, options=options))
    clients(SequencingClient, world, scenario, layout, options=options, sequencers=sequencers)


def servers(scenario: Scenario) -> tuple[str, ...]:
    """The nodes of the sequencers, and of the coordinator if it surveys them."""
    coordinator = (COORDINATOR,) if scenario.parameters.get("survey_us") else ()
    return (*(sequencer_of(topic) for topic in scenario.topics), *coordinator)
