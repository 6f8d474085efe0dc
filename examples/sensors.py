"""A moving subscriber over three sensor grids, whose readings are fused by a pattern.

Each grid has a broker; all of them serve both topics. The patrol starts at the first grid and moves
on twice. Its pattern asks for smoke and then heat in the same room. Heat is published *because of*
smoke, by a controller in another grid that has seen it; whatever broker the patrol is at, and
whatever was lost on the way, no heat comes before the smoke that caused it, so no pair is missed.

Virtual time, a fifth of all packets lost: `python examples/sensors.py`.
"""

from __future__ import annotations

from functools import partial

from concordant.causal.broker import Broker
from concordant.causal.placement import Everywhere
from concordant.causal.requests import Migrate
from concordant.causal.subscriber import Subscriber
from concordant.deliver.correlated import Correlated
from concordant.language import checked, parse
from concordant.machine.requests import Publish
from concordant.model.kind import Kind
from concordant.model.topic import Topic, schemas
from concordant.sim.world import World

GRIDS = Everywhere(["grid-1", "grid-2", "grid-3"])
QUESTION = "fire: Smoke then Heat partition by room within 1 min"
TOPICS = schemas([Topic("Smoke", {"room": Kind.INT}), Topic("Heat", {"room": Kind.INT})])


def patrol() -> Correlated:
    client = Subscriber("patrol", members=GRIDS, topics=("Smoke", "Heat"), prefers=("grid-1",))
    subscriptions, _ = checked(parse(QUESTION), TOPICS)
    return Correlated(client, subscriptions=subscriptions, schemas=TOPICS, time_ordered=False)


def main() -> None:
    world = World(seed="sensors")
    for grid in GRIDS.brokers:
        world.add(grid, partial(Broker, grid, members=GRIDS))
    world.add("patrol", patrol)
    sensor = partial(Subscriber, "sensor", members=GRIDS, publishes=("Smoke",), prefers=["grid-1"])
    world.add("sensor", sensor)
    controller = partial(
        Subscriber,
        "controller",
        members=GRIDS,
        topics=("Smoke",),
        publishes=("Heat",),
        prefers=["grid-3"],
    )
    world.add("controller", controller)
    world.start()
    world.network.trouble.loss = 0.2
    world.network.trouble.revise()

    def react(place, deliveries) -> None:  # type: ignore[no-untyped-def]
        for delivery in deliveries:
            if place.address == "controller":
                room = delivery.events[0].read("room")
                world.command("controller", Publish("Heat", {"room": room}))
            elif place.address == "patrol":
                in_time = sorted(delivery.events, key=lambda event: event.time)
                pair = ", then ".join(f"{event.topic} ({event.id})" for event in in_time)
                print(f"{world.now / 1e6:.2f} s: fire in room {delivery.key[0]}: {pair}")

    world.on_delivery = react
    for number in range(6):
        at = 200_000 + 150_000 * number
        world.call(
            at, lambda room=number: world.command("sensor", Publish("Smoke", {"room": room}))
        )
    for at, grid in ((350_000, "grid-2"), (800_000, "grid-3")):
        world.call(at, lambda grid=grid: world.command("patrol", Migrate((grid,))))
    world.run(2_000_000)


if __name__ == "__main__":
    main()
