"""The entries of causal delivery: a broker at every node, which serves all topics.

Clients prefer the broker of their own node. `causal` gives causes before effects; `gossip` puts the
events of such brokers into one line, by round and origin. `roles` lists the entries.
"""

from __future__ import annotations

import msgspec

from concordant.causal.broker import Broker
from concordant.causal.messages import CLIENT_MESSAGES, PEER_MESSAGES, Known
from concordant.causal.options import BrokerOptions, ClientOptions, Profile
from concordant.causal.placement import Everywhere
from concordant.causal.records import BROKER_RECORDS, CLIENT_RECORDS
from concordant.causal.requests import Migrate
from concordant.causal.subscriber import Subscriber
from concordant.machine.contract import Machine
from concordant.machine.detector import Detector, DetectorOptions, Heartbeat, Suspected, Trusted
from concordant.machine.view import View
from concordant.net.strategy import Part, Publisher, Setting, Strategy, part_of, publisher_of


def entries() -> tuple[Strategy, ...]:
    """Both strategies."""
    return (
        _strategy("causal", "causal", profile="local"),
        _strategy("gossip", "total strict", profile="rounds"),
    )


def broker_of(node: str, strategy: str) -> str:
    """The address of the broker at a node."""
    return part_of(node, strategy, "broker")


def _strategy(name: str, level: str, *, profile: Profile) -> Strategy:
    def brokers(setting: Setting) -> tuple[str, ...]:
        return tuple(broker_of(node, name) for node in setting.nodes)

    def client(setting: Setting, address: str, *, publishes: bool) -> Publisher:
        return Subscriber(
            address,
            members=Everywhere(brokers(setting)),
            publishes=None if publishes else (),
            prefers=(broker_of(setting.node, name),),
            informs="" if publishes else publisher_of(setting.node, name),
            profile=profile,
            total=level != "causal",
            options=setting.options(ClientOptions),
        )

    def broker(setting: Setting, address: str) -> Machine:
        options: BrokerOptions = setting.options(BrokerOptions)
        return Broker(
            address,
            members=Everywhere(brokers(setting)),
            detector=part_of(setting.node, name, "detector"),
            options=msgspec.structs.replace(options, profile=profile),
        )

    def detector(setting: Setting, address: str) -> Machine:
        del address
        options: DetectorOptions = setting.options(DetectorOptions)
        own = broker_of(setting.node, name)
        return Detector(
            own,
            view=View.of(1, brokers(setting)),
            listeners=(own,),
            # Who is held for dead here stays dead: be slow to believe it.
            options=msgspec.structs.replace(
                options, group=f"heartbeats/{name}", suspect_us=20 * options.suspect_us
            ),
        )

    return Strategy(
        level,
        name,
        subscriber=lambda setting, address: client(setting, address, publishes=False),
        publisher=lambda setting, address: client(setting, address, publishes=True),
        parts=lambda setting: (
            Part("broker", broker, everywhere=True),
            Part("detector", detector, everywhere=True),
        ),
        messages=(*PEER_MESSAGES, *CLIENT_MESSAGES, Heartbeat, Suspected, Trusted),
        records=(*CLIENT_RECORDS, *BROKER_RECORDS),
        homes=lambda nodes: Migrate(tuple(broker_of(node, name) for node in nodes)),
        learns=Known,
        addresses=True,
        compacts=True,
    )
