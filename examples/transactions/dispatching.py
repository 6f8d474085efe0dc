"""Workflow agents: an instance is dispatched to an agent, and later consolidated again.

Three brokers in a line, an environment that sends steps of instances, a dispatcher and two agents.
The dispatcher holds every new instance. A transaction gives instance 7 to agent a1: a1 subscribes,
the dispatcher unsubscribes, the next step is published, all of it or nothing. The consolidation
takes the instance back by a plan, which is printed before it runs.

    python examples/transactions/dispatching.py
"""

from __future__ import annotations

import asyncio

from concordant.model.event import Event
from concordant.net.carrier import MemoryCarrier
from concordant.net.transactions import Answer, Door, host_broker
from concordant.route.filter import Filter, filter_of
from concordant.transact.client import Triggered


def steps_of(instance: object) -> Filter:
    return filter_of("Step", instance=instance)


async def dispatch(trigger: Triggered, answer: Answer) -> None:
    """What the dispatcher does with a new instance: an agent takes it, and it lets go."""
    instance = trigger.event.attributes["instance"]
    await answer.trigger("a1", "Assign", {"to": "a1", "instance": instance})
    await answer.unsubscribe(f"instance {instance}")


async def accept(trigger: Triggered, answer: Answer) -> None:
    """What an agent does with an assignment."""
    instance = trigger.event.attributes["instance"]
    await answer.subscribe(f"instance {instance}", steps_of(instance))


def show(who: str):
    def take(event: Event) -> None:
        if event.topic == "Step":
            print(f"  {who} gets step {event.attributes['step']}")

    return take


async def main() -> None:
    carrier = MemoryCarrier()
    for name, near in {"B1": ("B2",), "B2": ("B1", "B3"), "B3": ("B2",)}.items():
        host_broker(name, carrier, neighbours=near)
    env = Door("env", "B1", carrier)
    dispatcher = Door("dispatcher", "B2", carrier, take=show("dispatcher"), handler=dispatch)
    a1 = Door("a1", "B3", carrier, take=show("a1"), handler=accept)
    a2 = Door("a2", "B1", carrier, take=show("a2"), handler=accept)
    await env.advertise("steps", filter_of("Step"))
    for door in (env, dispatcher):
        await door.advertise("assignments", filter_of("Assign"))
    for door in (dispatcher, a1, a2):
        await door.subscribe("assignments", filter_of("Assign", to=door.name))
    await dispatcher.subscribe("instance 7", steps_of(7))
    await asyncio.sleep(0.2)  # regular traffic promises no answer: let it arrive

    print("dispatching")
    async with env.transaction("open") as tx:
        await tx.trigger("dispatcher", "Step", {"instance": 7, "step": 0})
        await tx.publish("Step", {"instance": 7, "step": 1})
    print(type(tx.outcome).__name__)
    await env.publish("Step", {"instance": 7, "step": 2})
    await asyncio.sleep(0.1)

    print("consolidating")
    async with env.transaction("static") as again:
        take = again.trigger("dispatcher", "Assign", {"to": "dispatcher", "instance": 7})
        take.subscribe("instance 7", steps_of(7))
        back = again.trigger("a1", "Assign", {"to": "a1", "instance": 7})
        back.unsubscribe("instance 7")
        again.publish("Step", {"instance": 7, "step": 3})
        print(again.plan)
    print(type(again.outcome).__name__)
    await asyncio.sleep(0.1)
    for door in (env, dispatcher, a1, a2):
        await door.stop()


if __name__ == "__main__":
    asyncio.run(main())
