"""The paper's evaluation in virtual time: instances are dispatched, and times are taken.

Four clients per scenario (an environment, a dispatcher, two agents) on an overlay; a transaction
moves one instance to an agent and publishes its next step. Each kind runs on its own brokers, the
waiting baseline on plain ones. The module builds the world and takes the times; what they are
compared with is for benchmarks to say. (Jergler 2017, section VII.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec

from concordant.check.overlay import Tree
from concordant.errors import InvariantViolation
from concordant.machine.contract import Machine
from concordant.machine.effects import Delivery, Effect
from concordant.machine.inputs import Input, Received
from concordant.route.broker import Broker
from concordant.route.client import Client
from concordant.route.filter import filter_of
from concordant.route.requests import Advertise, Publish, Subscribe, Unsubscribe
from concordant.sim.network import Latency, Link, Network, NetworkSpec
from concordant.sim.transaction_load import PATIENT_US, call, dispatch_plan, work
from concordant.sim.world import Place, World
from concordant.transact import requests
from concordant.transact.actions import Committed
from concordant.transact.broker import IsolatedBroker, SharedBroker
from concordant.transact.client import TransactClient, outcome_of, trigger_of
from concordant.transact.options import TransactOptions
from concordant.transact.waiting import Attempt, WaitingClient

APPROACHES = ("static", "waiting", "open", "isolated")

SETTLE_US = 20_000_000
"""So long the setup has to arrive."""


def _line(count: int) -> dict[str, tuple[str, ...]]:
    names = [f"B{n}" for n in range(1, count + 1)]
    return {
        name: tuple(names[max(0, n - 1) : n] + names[n + 1 : n + 2]) for n, name in enumerate(names)
    }


OVERLAYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "1": _line(1),
    "3 line": _line(3),
    "5 star": {"B1": ("B2", "B3", "B4", "B5"), **{f"B{n}": ("B1",) for n in range(2, 6)}},
    "9 line": _line(9),
    "9 tree": {
        "B1": ("B2", "B3"),
        "B2": ("B1", "B4", "B5"),
        "B3": ("B1", "B6", "B7"),
        "B4": ("B2", "B8", "B9"),
        "B5": ("B2",),
        "B6": ("B3",),
        "B7": ("B3",),
        "B8": ("B4",),
        "B9": ("B4",),
    },
}


class Setup(msgspec.Struct, frozen=True):
    """One experiment."""

    approach: str
    overlay: str = "3 line"
    seed: int = 0
    count: int = 20
    """Transactions per scenario."""
    scenarios: int = 1
    threads: int = 1
    """Transactions that one environment has open at a time."""
    latency: Latency = Latency("two-gaussian")
    service_us: int = 0
    """What one message costs a broker."""
    wait_us: int = 0
    rate_per_s: int = 0
    """Regular events to each agent beside the transactions."""


class Measured(msgspec.Struct):
    """What came of it."""

    latencies_us: list[int] = []
    begun_us: list[int] = []
    wrong_count: int = 0
    """Instances whose next step did not reach exactly their agent, or whose transaction aborted."""
    message_count: int = 0
    duration_us: int = 0
    regular_us: list[int] = []
    """When regular events reached agents."""

    @property
    def mean_us(self) -> float:
        return sum(self.latencies_us) / len(self.latencies_us)

    @property
    def per_s(self) -> float:
        return len(self.latencies_us) * 1e6 / max(1, self.duration_us)


def measured(setup: Setup) -> Measured:
    """Run an experiment to its end."""
    return _Experiment(setup).run()


def shortest(setup: Setup) -> float:
    """Hops before the environment can know an outcome: over its dispatcher and an agent back."""
    experiment = _Experiment(setup)
    env, dispatcher, *agents = (experiment.tree.edges[name] for name in experiment.roles[0])
    from_env, from_dispatcher = map(experiment.tree.distances, (env, dispatcher))
    ways = [from_env[dispatcher] + from_dispatcher[one] + from_env[one] for one in agents]
    return 6 + sum(ways) / len(ways)  # each of the three is one hop from its broker, both ways


class _SameLinks(Network):
    """Which links are slow, and how slow each packet is, depends on the link alone: experiments
    with the same seed have the same links, whoever uses them first."""

    def __init__(self, spec: NetworkSpec, seed: str) -> None:
        super().__init__(spec, Random(seed), lambda kind: None)
        self._seed = seed

    def link(self, source: str, target: str) -> Link:
        if source == target:
            return super().link(source, target)
        rng = Random(f"{self._seed}/{source}/{target}")
        return Link(source, target, self.spec.latency.draw(rng), local=False)


class _Experiment:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.found = Measured([], [], 0, 0, 0, [])
        rng = Random(f"{setup.seed}/{setup.overlay}/places")
        near = OVERLAYS[setup.overlay]
        self.roles = [tuple(f"{role}{n}" for role in "EDAZ") for n in range(setup.scenarios)]
        self.tree = Tree(near, {name: rng.choice(list(near)) for one in self.roles for name in one})
        self.world = World(
            seed=f"{setup.seed}/{setup.overlay}",
            network=NetworkSpec(setup.latency, fifo=True),
            watch=self._count,
        )
        self.world.network = _SameLinks(self.world.network.spec, f"{setup.seed}/{setup.overlay}")
        self.world.on_delivery = self._delivered
        root = self.tree.centre()
        up = self.tree.ways(root)
        for name, others in near.items():
            make = partial(self._broker, name, others, "" if name == root else up[name])
            self.world.add(name, make, service_us=setup.service_us)
        for name, edge in self.tree.edges.items():
            self.world.add(name, partial(self._client, name, edge))
        self._plans: dict[str, tuple[int, int]] = {}
        """Scenario and instance of each transaction."""
        self._begun: dict[tuple[int, int], int] = {}
        self._next = [0] * setup.scenarios
        self._reached: dict[tuple[int, int], list[str]] = {}
        self._start_us = 0
        self._measuring = False

    def _broker(self, name: str, near: tuple[str, ...], parent: str) -> Machine:
        options = TransactOptions(transaction_us=PATIENT_US)
        if self.setup.approach == "isolated":
            return IsolatedBroker(name, neighbours=near, parent=parent, options=options)
        if self.setup.approach == "waiting":
            return Broker(name, neighbours=near)
        return SharedBroker(name, neighbours=near, options=options)

    def _client(self, name: str, edge: str) -> Client:
        kind = WaitingClient if self.setup.approach == "waiting" else TransactClient
        return kind(name, broker=edge)

    def _agent(self, scenario: int, x: int) -> str:
        return self.roles[scenario][2 + x % 2]

    # --- the experiment -----------------------------------------------------------------------

    def run(self) -> Measured:
        world, setup, found = self.world, self.setup, self.found
        world.start()
        world.run(SETTLE_US)
        for number, (env, dispatcher, *agents) in enumerate(self.roles):
            world.command(env, Advertise("work", filter_of("Work", process=_process(number))))
            for name in (env, dispatcher):
                world.command(name, Advertise("calls", filter_of("Call")))
            for name in (dispatcher, *agents):
                world.command(name, Subscribe("calls", filter_of("Call", to=name)))
            world.command(env, Advertise("regular", filter_of("Regular")))
            for name in agents:
                world.command(name, Subscribe("regular", filter_of("Regular", to=name)))
        world.run(2 * SETTLE_US)
        for number, (_, dispatcher, *_) in enumerate(self.roles):
            for x in range(setup.count):
                process = _process(number)
                world.command(dispatcher, Subscribe(f"{process}{x}", work(x, process)))
        world.run(4 * SETTLE_US)
        self._start_us, self._measuring = world.now, True
        if setup.rate_per_s:
            self._regular(0)
        for number in range(setup.scenarios):
            for _ in range(setup.threads):
                self._begin(number)
        wanted = setup.count * setup.scenarios
        while len(found.latencies_us) < wanted:
            before = world.step_count
            world.run(world.now + 10_000_000)
            if world.step_count == before:
                break
        world.run(world.now + SETTLE_US)  # the last one has arrived, and what went to a wrong place
        self._judge(wanted)
        return found

    def _judge(self, wanted: int) -> None:
        found = self.found
        right = sum(
            self._reached.get((number, x)) == [self._agent(number, x)]
            for number in range(self.setup.scenarios)
            for x in range(self.setup.count)
        )
        found.wrong_count += wanted - right
        if self.setup.approach != "waiting" and found.wrong_count:
            raise InvariantViolation(
                f"{self.setup.approach}: {found.wrong_count} of {wanted} instances went wrong"
            )

    def _begin(self, scenario: int) -> None:
        x = self._next[scenario]
        if x >= self.setup.count:
            return
        self._next[scenario] += 1
        env, dispatcher, *_ = self.roles[scenario]
        process, agent = _process(scenario), self._agent(scenario, x)
        self._begun[scenario, x] = self.world.now
        self.found.begun_us.append(self.world.now - self._start_us)
        plan = dispatch_plan(env, dispatcher, agent, x, process=process)
        if self.setup.approach == "waiting":
            first = Publish("Call", {"to": dispatcher, "scenario": scenario, "x": x})
            second = Publish("Work", {"process": process, "x": x, "step": 1})
            self.world.command(env, Attempt(first, second, self.setup.wait_us))
        elif self.setup.approach == "static":
            self.world.command(env, requests.Run(plan))
            self._plans[self._last(env)] = (scenario, x)
        else:
            self.world.command(env, requests.Begin(self.setup.approach))  # type: ignore[arg-type]
            tx = self._last(env)
            self._plans[tx] = (scenario, x)
            for action in (call(dispatcher), plan.actions[1]):
                self.world.command(env, requests.Act(tx, action))
            self.world.command(env, requests.Commit(tx))

    def _last(self, client: str) -> str:
        machine: Any = self.world.places[client].machine
        return str(machine.last_transaction)

    def _ended(self, scenario: int, x: int) -> None:
        now = self.world.now
        self.found.latencies_us.append(now - self._begun.pop((scenario, x)))
        self.found.duration_us = now - self._start_us
        self.world.call(now, partial(self._begin, scenario))

    # --- applications -------------------------------------------------------------------------

    def _delivered(self, place: Place, deliveries: Iterable[Delivery]) -> None:
        for one in deliveries:
            event = one.events[0]
            outcome, trigger = outcome_of(one), trigger_of(one)
            if outcome is not None:
                known = self._plans[outcome.transaction]
                if place.address == self.roles[known[0]][0]:
                    self.found.wrong_count += not isinstance(outcome, Committed)
                    self._ended(*known)
            elif trigger is not None:
                self._answer(place.address, trigger)
            elif event.topic == "Regular":
                self.found.regular_us.append(self.world.now - self._start_us)
            elif event.topic == "Work":
                which = (int(place.address[1:]), int(event.attributes["x"]))  # type: ignore[arg-type]
                self._reached.setdefault(which, []).append(place.address)
                if self.setup.approach == "waiting" and which in self._begun:
                    self._ended(*which)
            elif self.setup.approach == "waiting":
                self.world.call(self.world.now, partial(self._hope, place.address, event))

    def _answer(self, client: str, trigger: Any) -> None:
        scenario, x = self._plans[trigger.transaction]
        process = _process(scenario)
        if client == self.roles[scenario][1]:
            actions: tuple[Any, ...] = (
                call(self._agent(scenario, x)),
                Unsubscribe(f"{process}{x}"),
            )
        else:
            actions = (Subscribe(f"{process}{x}", work(x, process)),)
        asked = [requests.Act(trigger.transaction, one, trigger.thread) for one in actions]
        last = requests.Return(trigger.transaction, trigger.thread)
        self.world.call(self.world.now, partial(self._ask, client, *asked, last))

    def _ask(self, client: str, *asked: Any) -> None:
        self.world.command(client, *asked)

    def _hope(self, client: str, event: Any) -> None:
        """Without transactions, whoever is called does its part and tells nobody."""
        scenario, x = event.attributes["scenario"], event.attributes["x"]
        process = _process(scenario)
        if client == self.roles[scenario][1]:
            agent = self._agent(scenario, x)
            sent = Publish("Call", {"to": agent, "scenario": scenario, "x": x})
            self.world.command(client, sent, Unsubscribe(f"{process}{x}"))
        else:
            self.world.command(client, Subscribe(f"{process}{x}", work(x, process)))

    def _regular(self, number: int) -> None:
        for env, _, *agents in self.roles:
            self.world.command(env, Publish("Regular", {"to": agents[number % 2], "n": number}))
        if any(n < self.setup.count for n in self._next) or self._begun:
            at = self._start_us + (number + 1) * 1_000_000 // self.setup.rate_per_s
            self.world.call(at, partial(self._regular, number + 1))

    def _count(self, world: World, place: Place, given: Input, effects: Sequence[Effect]) -> None:
        del world, place, effects
        if self._measuring and isinstance(given, Received):
            self.found.message_count += len(given.messages)


def _process(scenario: int) -> str:
    return f"p{scenario}-"
