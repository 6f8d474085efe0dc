"""How an event spreads among real brokers, step by step, beside the analysis in `epidemic`.

The machines are those that run live, in either profile. In a step, everything that was pushed in
the step before arrives or is lost, and then every broker pushes all that it has, once. Digests do
not arrive: they would repair what is to be measured. A pull takes no time, as in the analysis:
question and answer, which may be lost, come in the same step.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np

from concordant.causal.broker import Broker
from concordant.causal.messages import Ordered, PullPast, Submit
from concordant.causal.options import BrokerOptions, Profile
from concordant.causal.placement import Everywhere
from concordant.evaluate.epidemic import Shape, Spread
from concordant.machine.effects import Effect, Send
from concordant.machine.inputs import Message, Received, Started, TimerFired
from concordant.model.event import Event

_TOPIC = "T"
_FIRST = 1


def broker_spread(
    shape: Shape,
    *,
    profile: Profile,
    runs: int,
    steps: int,
    successors: bool = False,
    pull: bool = False,
    seed: int = 1,
) -> Spread:
    """Play: one event, and (with `successors`) one more per step that follows all before."""
    found = Spread(runs)
    reached, complete = np.zeros(steps + 1), np.zeros(steps + 1)
    for run in range(runs):
        world = _World(shape, profile, Random(f"{seed}/{run}"), pull=pull)
        world.publish("b0", _FIRST)
        curve = [1]
        for step in range(1, steps + 1):
            if successors:
                world.publish(world.last_holder, step + 1)
            world.step()
            curve.append(world.reached)
        reached += curve
        done = [n == world.alive_count for n in curve]
        complete += done
        found.steps_to_all += (done.index(True) if True in done else steps) / runs
        found.pulls += world.pull_count / runs
        found.messages += world.push_count / runs
    found.reached = [float(one) for one in reached / runs]
    found.all_by = [float(one) for one in complete / runs]
    return found


class _World:
    """Brokers, and what is on its way between them."""

    def __init__(self, shape: Shape, profile: Profile, rng: Random, *, pull: bool) -> None:
        self._rng, self._loss = rng, shape.loss
        names = [f"b{number}" for number in range(shape.count)]
        options = BrokerOptions(
            profile=profile,
            fanout=shape.fanout,
            view_count_max=shape.view_count_max,
            push_count=1_000,
            pull=pull,
            seed=rng.getrandbits(32),
        )
        alive = [one for one in names if one == "b0" or rng.random() >= shape.crash]
        self.alive_count = len(alive)
        members = Everywhere(names)
        self._brokers = {one: Broker(one, members=members, options=options) for one in alive}
        self._moving: list[tuple[str, str, Ordered]] = []
        self.pull_count = self.push_count = 0
        self._last = 0
        for broker in self._brokers.values():
            broker.handle(0, Started())

    def publish(self, name: str, number: int) -> None:
        """A client of its own has a broker order its event."""
        submit = Submit(1, Event(_TOPIC, f"p{number}", 1, number), (_TOPIC,), {}, 0)
        self._last = number
        self._pushed(name, self._brokers[name].handle(0, Received(f"p{number}", (submit,))))

    def step(self) -> None:
        arriving, self._moving = self._moving, []
        for source, to, ordered in arriving:
            self._arrive(source, to, ordered)
        for name, broker in self._brokers.items():
            self._pushed(name, broker.handle(0, TimerFired(("tick",))))

    def _pushed(self, name: str, effects: list[Effect]) -> None:
        for to, message in _sent(effects):
            if isinstance(message, Ordered):
                self.push_count += message.event.source == f"p{_FIRST}"
                self._moving.append((name, to, message))

    def _arrive(self, source: str, to: str, message: Ordered | PullPast) -> None:
        """Whoever gets an event pushes it when the step ends; pulls are answered at once."""
        broker = self._brokers.get(to)
        if broker is None or self._rng.random() < self._loss:
            return
        for peer, answer in _sent(broker.handle(0, Received(source, (message,)))):
            if isinstance(answer, PullPast):
                self.pull_count += 1
                self._arrive(to, peer, answer)
            elif isinstance(answer, Ordered) and isinstance(message, PullPast):
                self._arrive(to, peer, answer)

    @property
    def reached(self) -> int:
        """Brokers that have the first event."""
        return sum(f"p{_FIRST}" in one.state.heard.runs for one in self._brokers.values())

    @property
    def last_holder(self) -> str:
        """Somebody who has the last event."""
        have = [k for k, one in self._brokers.items() if f"p{self._last}" in one.state.heard.runs]
        return self._rng.choice(have)


def _sent(effects: list[Effect]) -> Iterator[tuple[str, Message]]:
    sends = (one for one in effects if isinstance(one, Send))
    return ((one.to, message) for one in sends for message in one.messages)
