"""Random worlds for transactions: trees, clients, plans, and what goes wrong; all from a seed.

A `Scene` is data: who sits where, what is set up, which plans run when, what regular traffic there
is, and which faults. The same scene runs with every kind of transaction. `transactions` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from concordant.check.overlay import Tree
from concordant.route.filter import Filter, filter_of
from concordant.route.requests import (
    Advertise,
    Change,
    Publish,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from concordant.sim.network import Latency, NetworkSpec
from concordant.transact.actions import Action, Kind, Plan, Trigger

BROKER_COUNT_MAX = 9
SPAN_US = 400_000
"""Plans and faults begin within this time."""
PATIENT_US = 3_600_000_000
"""A time-out that no undisturbed transaction reaches."""


class Begun(msgspec.Struct, frozen=True):
    """A plan and when it is begun."""

    at_us: int
    plan: Plan
    abort_at_us: int = 0
    """0: its coordinator does not give up."""


class Disruption(msgspec.Struct, frozen=True):
    """Something goes wrong with a node for a while."""

    kind: str
    """`crash`, `pause` (mute), or `amnesia`: a crash after which a client remembers nothing."""
    node: str
    at_us: int
    for_us: int


class Scene(msgspec.Struct, frozen=True):
    """One world."""

    seed: int
    kind: Kind
    workload: str
    tree: Tree
    setup: tuple[tuple[str, Change], ...]
    begun: tuple[Begun, ...]
    changes: tuple[tuple[int, str, Change], ...] = ()
    """Regular changes beside the transactions."""
    events: tuple[tuple[int, str, Publish], ...] = ()
    """Regular events beside them, which no transaction touches."""
    disruptions: tuple[Disruption, ...] = ()
    loss: float = 0.0
    sync_us: int = 0
    reliable: bool = False
    network: NetworkSpec = NetworkSpec()
    transaction_us: int = PATIENT_US
    serial: bool = False
    """Even without isolation, events reach whom they would reach one after the other."""
    residents: tuple[str, ...] = ()
    """Clients of the nodes themselves, one at each broker; what the first is given enters the
    common order."""
    mailbox_count_max: int = 0
    """0: mailboxes are as large as they usually are."""

    @property
    def disturbed(self) -> bool:
        """Something may end a transaction that nobody aborted."""
        return bool(self.disruptions) or self.transaction_us < PATIENT_US


def tree_of(rng: Random, brokers: int, clients: tuple[str, ...]) -> Tree:
    """A random tree with random places for clients."""
    names = [f"B{n}" for n in range(1, brokers + 1)]
    neighbours: dict[str, list[str]] = {name: [] for name in names}
    for number, name in enumerate(names[1:], 1):
        other = names[rng.randrange(number)]
        neighbours[name].append(other)
        neighbours[other].append(name)
    return Tree(
        {name: tuple(sorted(others)) for name, others in neighbours.items()},
        {client: rng.choice(names) for client in clients},
    )


def call(target: str, *actions: Action) -> Trigger:
    """Make a client act."""
    return Trigger(target, "Call", {"to": target}, actions)


_Load = tuple[list[tuple[str, Change]], list[Plan]]


def dispatch_plan(env: str, dispatcher: str, agent: str, x: int, *, process: str = "p") -> Plan:
    """The paper's use case 1: an instance goes from the dispatcher to an agent."""
    wanted = work(x, process)
    return Plan(
        env,
        (
            call(
                dispatcher,
                call(agent, Subscribe(f"{process}{x}", wanted)),
                Unsubscribe(f"{process}{x}"),
            ),
            Publish("Work", {"process": process, "x": x, "step": 1}),
        ),
    )


def work(x: int, process: str = "p") -> Filter:
    return filter_of("Work", process=process, x=x)


def _dispatch(rng: Random, clients: tuple[str, ...]) -> _Load:
    env, dispatcher, *agents = clients
    setup: list[tuple[str, Change]] = [(env, Advertise("work", filter_of("Work", process="p")))]
    plans = []
    for x in range(rng.randint(1, 6)):
        setup.append((dispatcher, Subscribe(f"p{x}", work(x))))
        plans.append(dispatch_plan(env, dispatcher, rng.choice(agents), x))
    return setup, plans


def _move(rng: Random, clients: tuple[str, ...]) -> _Load:
    """Subscriptions move between clients while others publish for them (section III-C)."""
    setup: list[tuple[str, Change]] = [(c, Advertise("work", filter_of("Work"))) for c in clients]
    plans = []
    for x in range(2):
        setup.append((clients[0], Subscribe(f"p{x}", work(x))))
    for number in range(rng.randint(2, 5)):
        x = number % 2
        publish = Publish("Work", {"process": "p", "x": 1 - x, "n": number})
        move = (
            call(clients[1 + number % 3], Subscribe(f"m{number}", work(x))),
            call(clients[0], Unsubscribe(f"p{x}")),
        )
        author = rng.choice(clients[1:])
        if number >= 2:  # a name can be ended once
            plans.append(Plan(author, (publish,)))
        else:
            plans.append(Plan(author, (publish, *_but(author, move))))
    return setup, plans


def _but(author: str, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Nobody calls itself: it does those actions on its own."""
    found: list[Action] = []
    for action in actions:
        if isinstance(action, Trigger) and action.target == author:
            found += _but(author, action.actions)
        elif isinstance(action, Trigger):
            inner = _but(action.target, action.actions)
            found.append(msgspec.structs.replace(action, actions=inner))
        else:
            found.append(action)
    return tuple(found)


def _data(rng: Random) -> Filter:
    low = rng.randrange(6)
    return filter_of("Data", x=(low, low + rng.randrange(4)))


def _fuzz(count_max: int) -> Callable[[Random, tuple[str, ...]], _Load]:
    def load(rng: Random, clients: tuple[str, ...]) -> _Load:
        setup: list[tuple[str, Change]] = []
        owned: dict[str, list[tuple[str, str]]] = {client: [] for client in clients}
        for client in clients:
            if rng.random() < 0.7:
                setup.append((client, Advertise("data", filter_of("Data", x=(0, 9)))))
            for number in range(rng.randint(0, 2)):
                setup.append((client, Subscribe(f"d{number}", _data(rng))))
                owned[client].append(("subscription", f"d{number}"))
            if rng.random() < 0.5:
                setup.append((client, Advertise("more", _data(rng))))
                owned[client].append(("advertisement", "more"))
        author = _Author(rng, clients, setup, owned)
        return setup, [author.plan(n) for n in range(rng.randint(1, count_max))]

    return load


class _Author:
    """Writes random plans that can be carried out if they do not get in each other's way."""

    def __init__(
        self,
        rng: Random,
        clients: tuple[str, ...],
        setup: list[tuple[str, Change]],
        owned: dict[str, list[tuple[str, str]]],
    ) -> None:
        self._rng = rng
        self._clients = clients
        self._publishers = {client for client, one in setup if one == _ALL_DATA}
        self._owned = owned
        self._new: dict[str, list[str]] = {}
        """Subscriptions of the plan that is being written, by client."""
        self._count = 0

    def plan(self, number: int) -> Plan:
        client = self._rng.choice(self._clients)
        advertised: set[str] = set()
        self._new = {}
        return Plan(client, self._actions(client, f"t{number}", 0, advertised))

    def _actions(
        self, client: str, prefix: str, depth: int, advertised: set[str]
    ) -> tuple[Action, ...]:
        found = [
            self._action(client, prefix, depth, advertised) for _ in range(self._rng.randint(1, 3))
        ]
        return tuple(found)

    def _action(self, client: str, prefix: str, depth: int, advertised: set[str]) -> Action:
        rng = self._rng
        self._count += 1
        name = f"{prefix}n{self._count}"
        draw = rng.random()
        if draw < 0.3 and depth < 2:
            target = rng.choice([one for one in self._clients if one != client])
            return call(target, *self._actions(target, prefix, depth + 1, advertised))
        if draw < 0.45:
            if self._new.get(client) and rng.random() < 0.3:
                return Unsubscribe(self._new[client].pop())
            self._new.setdefault(client, []).append(name)
            return Subscribe(name, _data(rng))
        if draw < 0.55 and self._owned[client]:
            what, other = self._owned[client].pop(rng.randrange(len(self._owned[client])))
            return Unsubscribe(other) if what == "subscription" else Unadvertise(other)
        if draw < 0.7:
            advertised.add(client)
            return Advertise(name, filter_of("Data", x=(0, 9)))
        if client in self._publishers or client in advertised:
            return Publish("Data", {"x": rng.randrange(10), "n": self._count})
        return Subscribe(name, _data(rng))


_ALL_DATA = Advertise("data", filter_of("Data", x=(0, 9)))


def _figure_2(rng: Random, clients: tuple[str, ...]) -> _Load:
    """A subscription waits for the advertisement of a transaction (the paper's figure 2)."""
    setup: list[tuple[str, Change]] = [
        (client, Subscribe("d", filter_of("Data", x=(0, 5)))) for client in clients[1:]
    ]
    actions = (
        Advertise("a", filter_of("Data", x=(0, 9))),
        call(clients[1], Subscribe("e", filter_of("Data", x=(6, 9)))),
        Publish("Data", {"x": rng.randrange(10)}),
    )
    return setup, [Plan(clients[0], actions)]


def _late_publication(rng: Random, clients: tuple[str, ...]) -> _Load:
    """The last operation is a publication by somebody else than the coordinator."""
    setup: list[tuple[str, Change]] = [(clients[1], Advertise("work", filter_of("Work")))]
    setup += [(client, Subscribe("w", filter_of("Work"))) for client in clients[2:]]
    publish = Publish("Work", {"process": "p", "x": 1})
    return setup, [Plan(clients[0], (call(clients[1], publish),))]


def _newcomers(rng: Random, clients: tuple[str, ...]) -> _Load:
    """One transaction advertises and publishes while others subscribe: nobody has before."""
    one, *others = rng.sample(clients, len(clients))
    wanted = filter_of("Data", x=1)
    plans = [Plan(one, (Advertise("a", wanted), Publish("Data", {"x": 1})))]
    plans += [Plan(other, (Subscribe("s", wanted),)) for other in others[:2]]
    return [], plans


def _second_thoughts(rng: Random, clients: tuple[str, ...]) -> _Load:
    """What is begun is ended, and begun anew, in one transaction."""
    setup: list[tuple[str, Change]] = [(c, Advertise("data", _ALL_DATA.filter)) for c in clients]
    setup.append((clients[1], Subscribe("old", _data(rng))))
    wanted = _data(rng)
    again = (Subscribe("s", wanted), Unsubscribe("s"), Subscribe("s", wanted), Unsubscribe("s"))
    actions = (
        call(clients[1], Unsubscribe("old"), Subscribe("old", wanted), *again),
        Publish("Data", {"x": rng.randrange(10)}),
    )
    return setup, [Plan(clients[0], actions)]


def _unanswered(rng: Random, clients: tuple[str, ...]) -> _Load:
    """A trigger that never reaches its target: nobody does what it was to lead to."""
    setup: list[tuple[str, Change]] = [(clients[0], Advertise("work", filter_of("Work")))]
    lost = Trigger(clients[1], "Call", {"to": "nobody"}, (Subscribe("w", filter_of("Work")),))
    found = lost if rng.random() < 0.5 else call(clients[2], lost)
    return setup, [Plan(clients[0], (found, Publish("Work", {"x": 1})))]


def _advertise_or_subscribe(rng: Random, clients: tuple[str, ...]) -> _Load:
    """One transaction advertises while another subscribes: whoever is first, they find together."""
    one, two = rng.sample(clients, 2)
    wanted = filter_of("Data", x=1)
    return [], [Plan(one, (Advertise("a", wanted),)), Plan(two, (Subscribe("s", wanted),))]


def _entering(rng: Random, clients: tuple[str, ...]) -> _Load:
    """Who publishes advertises just before, and nothing ever until then (`scene` does that): no
    subscription was attracted to it yet."""
    plans = []
    for number in range(rng.randint(1, 4)):
        author, other = rng.choice(clients[:2]), rng.choice(clients[2:])
        mine = [Publish("Work", {"n": number, "k": k}) for k in range(rng.randint(1, 3))]
        theirs = (Advertise(f"own{number}", filter_of("Work")), Publish("Work", {"n": number}))
        calls = (call(other, *theirs),) if rng.random() < 0.5 else ()
        plans.append(Plan(author, (mine[0], *calls, *mine[1:])))
    return [], plans


def _crowded(rng: Random, clients: tuple[str, ...]) -> _Load:
    """More is committed for a client than its mailbox holds, while it is mute (`scene`)."""
    setup: list[tuple[str, Change]] = [(c, Advertise("work", filter_of("Work"))) for c in clients]
    setup += [(client, Subscribe("work", filter_of("Work"))) for client in clients[-2:]]
    plans = []
    for number in range(rng.randint(2, 6)):
        count = rng.randint(1, 3)
        events = (Publish("Work", {"n": number, "k": k}) for k in range(count))
        plans.append(Plan(rng.choice(clients[:2]), tuple(events)))
    return setup, plans


WORKLOADS: dict[str, Callable[[Random, tuple[str, ...]], _Load]] = {
    "dispatch": _dispatch,
    "forgetful": _dispatch,
    "move": _move,
    "fuzz": _fuzz(5),
    "alone": _fuzz(1),
    "changing": _fuzz(4),
    "figure 2": _figure_2,
    "late publication": _late_publication,
    "advertise or subscribe": _advertise_or_subscribe,
    "newcomers": _newcomers,
    "second thoughts": _second_thoughts,
    "unanswered": _unanswered,
    "entering": _entering,
    "crowded": _crowded,
}
CROWD_COUNT_MAX = 4
"""Committed events that a mailbox holds in a crowded scene."""
_SERIAL = ("dispatch", "forgetful", "alone", "figure 2", "late publication", "second thoughts")
_OFTEN_ABORTED = ("second thoughts",)


def scene(kind: Kind, workload: str, seed: int, *, faults: bool | None = None) -> Scene:
    """The world of a seed; `faults` says whether things go wrong, None leaves it to the seed."""
    rng = Random(f"{seed}/{workload}")
    clients = ("c1", "c2", "c3", "c4", "c5")[: rng.randint(4, 5)]
    tree = tree_of(rng, rng.randint(1, BROKER_COUNT_MAX), clients)
    residents: tuple[str, ...] = ()
    if workload == "entering":
        residents = tuple(f"resident-{broker}" for broker in tree.neighbours)
        homes = dict(zip(residents, tree.neighbours, strict=True))
        tree = msgspec.structs.replace(tree, edges={**tree.edges, **homes})
    more, plans = WORKLOADS[workload](rng, clients)
    usual = clients[2:] if workload == "entering" else clients
    setup = [change for client in usual for change in _common(client)] + more
    reliable = rng.random() < 0.4 if faults is None else faults
    disturbed = reliable or rng.random() < 0.25
    begun = []
    for plan in plans:
        at = rng.randrange(SPAN_US) if rng.random() < 0.5 else rng.randrange(20_000)
        gives_up = rng.random() < (0.15 * disturbed if workload not in _OFTEN_ABORTED else 0.6)
        begun.append(Begun(at, plan, at + rng.randrange(1, SPAN_US) if gives_up else 0))
    disruptions = _disruptions(rng, tree, reliable) if disturbed else ()
    if workload == "forgetful" and reliable:
        disruptions = tuple(_forgetting(rng, one) for one in begun)
    if workload == "crowded":
        mute = Disruption("pause", clients[-1], 0, rng.randrange(1, 2 * SPAN_US))
        disruptions = (*disruptions, mute)
    if residents and reliable:
        crash = Disruption("crash", residents[0], rng.randrange(SPAN_US), rng.randrange(1, SPAN_US))
        disruptions = (*disruptions, crash)
    impatient = bool(disruptions) or (disturbed and rng.random() < 0.3) or workload == "unanswered"
    low_us = rng.choice((200, 2_000))
    uniform = Latency("uniform", low_us, low_us * rng.choice((2, 10, 40)))
    changes = tuple(_changes(rng, clients)) if workload == "changing" else ()
    if workload == "entering":
        late = Advertise("late", filter_of())
        first = {one.plan.client: one.at_us for one in sorted(begun, key=lambda one: -one.at_us)}
        changes = tuple((at, client, late) for client, at in first.items())
        begun = [msgspec.structs.replace(one, at_us=one.at_us + 1) for one in begun]
    return Scene(
        seed,
        kind,
        workload,
        tree,
        tuple(setup),
        tuple(begun),
        changes=changes,
        events=tuple(_events(rng, clients)) if workload != "crowded" else (),
        disruptions=disruptions,
        loss=rng.choice((0.0, 0.05, 0.2)) if reliable else 0.0,
        sync_us=rng.choice((0, 0, 1_000, 5_000)) if reliable else 0,
        reliable=reliable,
        network=NetworkSpec(
            Latency("two-gaussian") if rng.random() < 0.3 else uniform, fifo=not reliable
        ),
        transaction_us=rng.choice((100_000, 1_000_000, 3_000_000)) if impatient else PATIENT_US,
        serial=workload in _SERIAL,
        residents=residents,
        mailbox_count_max=CROWD_COUNT_MAX if workload == "crowded" else 0,
    )


def _common(client: str) -> list[tuple[str, Change]]:
    """Everybody can be called, and everybody has regular traffic."""
    return [
        (client, Advertise("calls", filter_of("Call"))),
        (client, Subscribe("calls", filter_of("Call", to=client))),
        (client, Advertise("regular", filter_of("Regular"))),
        (client, Subscribe("regular", filter_of("Regular", k=int(client[1:]) % 2))),
    ]


def _disruptions(rng: Random, tree: Tree, crashes: bool) -> tuple[Disruption, ...]:
    found = []
    clients, brokers = list(tree.edges), list(tree.neighbours)
    own = [one for one in clients if not one.startswith("resident-")]
    for _ in range(rng.randint(0, 4)):
        kind = rng.choice(("crash", "crash", "pause", "amnesia")) if crashes else "pause"
        # A resident's log lies beside its broker's: it does not forget.
        nodes = own if kind == "amnesia" else clients + brokers
        if not crashes:
            nodes = clients
        at_us, for_us = rng.randrange(SPAN_US), rng.randrange(1, SPAN_US)
        found.append(Disruption(kind, rng.choice(nodes), at_us, for_us))
    return tuple(found)


def _forgetting(rng: Random, begun: Begun) -> Disruption:
    """A client loses its memory, and nothing else, while it takes part."""
    actors = [client for client, _ in begun.plan.lines() if client != begun.plan.client]
    after_us = int(rng.random() ** 3 * SPAN_US)
    return Disruption(
        "amnesia", rng.choice(actors), begun.at_us + after_us, rng.randrange(1, 5_000)
    )


def _changes(rng: Random, clients: tuple[str, ...]) -> list[tuple[int, str, Change]]:
    found: list[tuple[int, str, Change]] = []
    for number in range(rng.randint(2, 12)):
        client, at = rng.choice(clients), rng.randrange(SPAN_US)
        until = at + rng.randrange(1, SPAN_US)
        name = f"r{number}"
        if rng.random() < 0.5:
            found.append((at, client, Advertise(name, _data(rng))))
            end: Change = Unadvertise(name)
        else:
            found.append((at, client, Subscribe(name, _data(rng))))
            end = Unsubscribe(name)
        if rng.random() < 0.6:
            found.append((until, client, end))
    return found


def _events(rng: Random, clients: tuple[str, ...]) -> list[tuple[int, str, Publish]]:
    return [
        (rng.randrange(SPAN_US), rng.choice(clients), Publish("Regular", {"k": n % 2, "n": n}))
        for n in range(rng.randint(0, 6))
    ]
