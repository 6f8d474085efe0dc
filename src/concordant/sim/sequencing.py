"""Total notification order in a world: a sequencer per topic, and clients of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from concordant.order.sequencing.client import SequencingClient
from concordant.order.sequencing.messages import SequencingOptions, sequencer_of
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
    """Topics are ranked by their names' order, which is by popularity; `clients` adds clients."""
    shape = scenario.topology
    sequencers = {topic: sequencer_of(topic) for topic in scenario.topics}
    for topic in scenario.topics:

        def make(topic: str = topic) -> TopicSequencer:
            return TopicSequencer(
                topic,
                sequencers=sequencers,
                subscriptions=layout.subscribes,
                options=options,
            )

        address = sequencer_of(topic)
        world.add(address, make, service_us=shape.service_us, sync_us=shape.sync_us)
    clients(SequencingClient, world, scenario, layout, options=options, sequencers=sequencers)


def servers(scenario: Scenario) -> tuple[str, ...]:
    """The nodes of the sequencers."""
    return tuple(sequencer_of(topic) for topic in scenario.topics)
