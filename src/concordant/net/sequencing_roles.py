"""The entries of total notification order: a sequencer for each topic that the cluster declares.

Topics are ranked in the order of the cluster file. Where the file says which topics are subscribed
together, their sequencers are placed along the forest, so that what an event passes lies on one
node. With replicas, each sequencer and the coordinator has three of them on three nodes, the first
where the only one would be; a cluster of fewer nodes has one of each. `roles` lists the entries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from concordant.machine.contract import Machine
from concordant.machine.saved import Saved
from concordant.net.strategy import Make, Part, Publisher, Setting, Strategy, homes, part_of
from concordant.order import replication
from concordant.order.client import Delivered, Installed, Joined, Left, Published, Retired
from concordant.order.sequencing.client import SequencingClient
from concordant.order.sequencing.coordinator import Coordinator
from concordant.order.sequencing.messages import (
    Asked,
    Born,
    Condensed,
    Confirmed,
    GivenUp,
    Handled,
    Parcel,
    Passed,
    Proposed,
    Receipt,
    Renew,
    Renewed,
    Report,
    SequencingOptions,
    Signed,
    Survey,
)
from concordant.order.sequencing.overlap import overlap
from concordant.order.sequencing.ranking import placed
from concordant.order.sequencing.replicated import ReachingClient, Replicated, Service
from concordant.order.sequencing.sequencer import TopicSequencer
from concordant.order.streams import Ask, Gone, Mark

RANKING = "ranking*"
"""The part that changes the ranking; no topic is called so."""

REPLICA_COUNT = 3

MESSAGES = (Parcel, Receipt, Signed, Mark, Ask, Gone, Survey, Report, Renew, Renewed)
RECORDS = (
    *(Published, Delivered, Joined, Left, Installed, Retired, Saved),
    *(Born, Asked, Confirmed, Passed, Handled, Condensed, Proposed, GivenUp),
)


def entries() -> tuple[Strategy, ...]:
    """All strategies of total notification order; of one level, the usual one first."""
    return (
        _sequencing("sequencing", "total", edge_on=2),
        _sequencing("sequencing-strict", "total strict", edge_on=1),
        _replicated("sequencing-replicated", "total", edge_on=2),
        _sequencing("stamped", "total strict", edge_on=1, stamped=True),
    )


def _options(setting: Setting, edge_on: int) -> SequencingOptions:
    found: SequencingOptions = setting.options(SequencingOptions)
    return msgspec.structs.replace(found, edge_on=edge_on)


def _forest_homes(setting: Setting) -> dict[str, str]:
    """Nodes of the topics, if the cluster file says which are subscribed together."""
    if not setting.together:
        return {}
    graph = overlap(setting.together, edge_on=1)
    return placed(graph, setting.topics, setting.nodes)


def _sequencing(name: str, level: str, *, edge_on: int, stamped: bool = False) -> Strategy:
    """One machine per topic; `stamped`: all of them stamp every event, and nobody ranks."""

    def addresses(setting: Setting) -> dict[str, str]:
        at = setting.placed
        return {topic: at.get(f"{name}/{topic}", topic) for topic in setting.topics}

    def client(setting: Setting, address: str) -> Publisher:
        return SequencingClient(
            address,
            sequencers=addresses(setting),
            publishes=None,
            options=_options(setting, edge_on),
        )

    def sequencer(topic: str, setting: Setting, address: str) -> Machine:
        del address
        return TopicSequencer(
            topic,
            sequencers=addresses(setting),
            coordinator=setting.placed.get(f"{name}/{RANKING}", RANKING),
            stamped_with=setting.topics if stamped else None,
            options=_options(setting, edge_on),
        )

    def coordinator(setting: Setting, address: str) -> Machine:
        del address
        return Coordinator(addresses(setting), options=_options(setting, edge_on))

    def parts(setting: Setting) -> tuple[Part, ...]:
        near = _forest_homes(setting)
        ranking = () if stamped or not setting.topics else (Part(RANKING, coordinator),)
        return (
            *(
                Part(topic, partial(sequencer, topic), home=near.get(topic, ""))
                for topic in setting.topics
            ),
            *ranking,
        )

    return Strategy(
        level,
        name,
        declared=True,
        subscriber=client,
        publisher=client,
        parts=parts,
        messages=MESSAGES,
        records=RECORDS,
        compacts=True,
    )


def _replicated(name: str, level: str, *, edge_on: int) -> Strategy:
    """Replicas of each sequencer and of the coordinator, on nodes of their own."""

    def options(setting: Setting) -> SequencingOptions:
        # Without leases: when one ends is decided by a clock, and replicas have one each.
        return msgspec.structs.replace(_options(setting, edge_on), lease_us=0)

    def names(setting: Setting, service: str) -> tuple[str, ...]:
        count = REPLICA_COUNT if len(setting.nodes) >= REPLICA_COUNT else 1
        return tuple(f"{service}*{number}" for number in range(1, count + 1))

    def services(setting: Setting) -> dict[str, tuple[str, ...]]:
        at, own = setting.placed, setting.node
        return {
            service: tuple(
                at.get(f"{name}/{one}", part_of(own, name, one)) for one in names(setting, service)
            )
            for service in (*setting.topics, RANKING)
        }

    def client(setting: Setting, address: str) -> Publisher:
        return ReachingClient(
            address,
            sequencers={topic: topic for topic in setting.topics},
            services=services(setting),
            publishes=None,
            options=options(setting),
        )

    def service(setting: Setting, which: str) -> Callable[[], Service]:
        sequencers = {topic: topic for topic in setting.topics}
        if which == RANKING:
            return partial(Coordinator, sequencers, options=options(setting))
        return partial(
            TopicSequencer,
            which,
            sequencers=sequencers,
            coordinator=RANKING,
            options=options(setting),
        )

    def replica(which: str) -> Make:
        return lambda setting, address: Replicated(
            address,
            service(setting, which),
            service=which,
            services=services(setting),
            queue_count_max=options(setting).queue_count_max,
        )

    def parts(setting: Setting) -> tuple[Part, ...]:
        near = _forest_homes(setting)
        found: list[Part] = []
        for which in (*setting.topics, RANKING) if setting.topics else ():
            nodes = homes(f"{name}/{which}", setting.nodes, first=near.get(which, ""))
            found += [
                Part(one, replica(which), home=node)
                for one, node in zip(names(setting, which), nodes, strict=False)
            ]
        return tuple(found)

    return Strategy(
        level,
        name,
        declared=True,
        subscriber=client,
        publisher=client,
        parts=parts,
        messages=(*MESSAGES, *replication.MESSAGES),
        records=(*RECORDS, *replication.RECORDS),
        compacts=True,
    )
