"""Causal delivery as one of the protocols that any scenario can name: three brokers for all topics.

Brokers are nodes of their own and may crash and come back. Their failure detectors are patient:
who is held for dead stays dead, and events may die with it, which a scenario of the common kind
does not allow for. Dead brokers, moves and two homes are the matter of `sim.causal`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from concordant.causal.broker import Broker
from concordant.causal.options import BrokerOptions, Profile
from concordant.causal.options import ClientOptions as CausalOptions
from concordant.causal.placement import Everywhere
from concordant.causal.subscriber import Subscriber
from concordant.machine.contract import Machine
from concordant.machine.detector import Detector, DetectorOptions
from concordant.machine.instant import SECOND
from concordant.machine.view import View
from concordant.order.client import ClientOptions
from concordant.sim.scenario import Scenario
from concordant.sim.world import World

BROKERS = ("broker-1", "broker-2", "broker-3")

_PATIENCE_US = 600 * SECOND


def servers(scenario: Scenario) -> tuple[str, ...]:
    del scenario
    return BROKERS


def build(
    world: World,
    scenario: Scenario,
    *,
    publishes: Mapping[str, tuple[str, ...]],
    subscribes: Mapping[str, tuple[str, ...]],
    options: ClientOptions,
    on_top: Callable[[Machine], Machine],
    total: bool,
) -> None:
    """Put brokers, their failure detectors and all clients into a world; `total`: as `gossip`."""
    shape = scenario.topology
    members = Everywhere(BROKERS)
    profile: Profile = "rounds" if total else "local"
    broker_options = BrokerOptions(
        profile=profile, tick_us=options.ask_us, resend_us=2 * options.ask_us, lease_us=_PATIENCE_US
    )
    patient = DetectorOptions(suspect_us=_PATIENCE_US)
    for name in BROKERS:
        make = partial(Broker, name, members=members, options=broker_options)
        world.add(name, make, service_us=shape.service_us, sync_us=shape.sync_us)
        view = View.of(1, BROKERS)
        detector = partial(Detector, name, view=view, listeners=(name,), options=patient)
        world.add(f"{name}/detector", detector, node=name)
    waits = CausalOptions(
        acknowledge_us=options.ask_us,
        repeat_us=options.repeat_us,
        silence_us=20 * options.repeat_us,
        outbox_count_max=options.outbox_count_max,
        held_count_max=options.held_count_max,
    )
    for number, name in enumerate(scenario.nodes):

        def client(name: str = name, number: int = number) -> Machine:
            found = Subscriber(
                name,
                members=members,
                topics=subscribes.get(name, ()),
                publishes=publishes.get(name, ()),
                prefers=(BROKERS[number % len(BROKERS)],),
                profile=profile,
                total=total,
                options=waits,
            )
            return on_top(found) if name in subscribes else found

        world.add(name, client, service_us=shape.service_us, sync_us=shape.sync_us)
