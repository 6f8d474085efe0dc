"""Cases of causal delivery drawn from a seed, and the smallest case that still fails.

Half of the cases have the groups of Kim and Ahn (four brokers, two overlapping topics), the others
random ones. Faults hit a few brokers, the doomed ones: fewer than half, and never all that serve a
topic, so that whatever is owed can still arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

import msgspec

from concordant.causal.homes import homes_for
from concordant.causal.options import Profile
from concordant.errors import UsageError
from concordant.sim.causal import Act, Case, Client, play
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.scenario import Fault

Members = dict[str, tuple[str, ...]]

Mix = Literal["calm", "lossy", "crash", "suspicion", "late", "migration", "two-homes"]
MIXES: tuple[Mix, ...] = Mix.__args__  # type: ignore[attr-defined]
"""What a case has most of: loss of 5 %, of 30 %, dead brokers, brokers falsely held for dead,
the same while most messages are so late that what such a broker ordered has reached few others,
clients that move and change topics, clients with two homes."""

PAPER: Members = {"T1": ("A", "B", "C"), "T2": ("A", "B", "D")}
"""The overlapping groups of Kim and Ahn, figures 4 to 6."""


def drawn(seed: int, *, profile: Profile = "local", mix: Mix = "calm") -> Case:
    """A case; the seed names everything."""
    rng = Random(f"{seed}/{profile}/{mix}/causal")
    members = _sparse_members(rng) if mix == "two-homes" else _members(rng)
    brokers = sorted({one for names in members.values() for one in names})
    doomed = _doomed(rng, members, brokers) if mix in ("crash", "suspicion", "late") else []
    safe = [one for one in brokers if one not in doomed]
    two_homes = profile == "local" and (mix == "two-homes" or rng.random() < 0.15)
    clients = [
        _client(rng, f"c{number}", members, safe, two_homes=two_homes)
        for number in range(1, rng.randint(2, 5) + 1)
    ]
    if not any(one.publishes for one in clients):
        clients[0] = msgspec.structs.replace(clients[0], publishes=True)
    duration = 110
    acts = _publications(rng, {one: _serves(members)[one] for one in safe}, clients, duration)
    times = [one.at_ms for one in acts if one is not None]
    busy = mix in ("migration", "two-homes")
    moves = rng.randint(3, 8) if busy else rng.choice((0, 0, 1, 3))
    held = {one.name: set(one.topics) for one in clients}
    for _ in range(moves):
        move = _move(rng, members, clients, duration, two_homes)
        if move is not None and move.subscribe and profile == "rounds":
            wanted = held[move.client] | set(move.subscribe)
            if not any(wanted <= set(_serves(members)[one]) for one in safe):
                continue  # nobody who stays could serve all of it
            held[move.client] = wanted
        acts.append(move)
    low_us = rng.choice((100, 500))
    wrong = list(_faults(rng, mix, doomed, clients, times, duration))
    wrong += _apart(Random(f"{seed}/apart"), clients, acts)
    acts += _compactions(Random(f"{seed}/compact"), [*brokers, *held], duration)
    return Case(
        members,
        tuple(clients),
        tuple(sorted((one for one in acts if one is not None), key=lambda one: one.at_ms)),
        tuple(wrong),
        profile,
        NetworkSpec(latency=Latency("uniform", low_us, low_us * rng.choice((2, 8, 30)))),
        duration,
        sync_us=rng.choice((0, 0, 0, 700)),
        fanout=1 if mix == "late" else rng.choice((1, 2, 3)),
        lease_ms=rng.choice((40, 150, 150)),
    )


def _members(rng: Random) -> Members:
    if rng.random() < 0.5:
        return PAPER
    brokers = ["A", "B", "C", "D", "E"][: rng.randint(3, 5)]
    return {
        f"T{number}": tuple(sorted(rng.sample(brokers, rng.randint(2, len(brokers)))))
        for number in range(1, rng.randint(2, 4) + 1)
    }


def _sparse_members(rng: Random) -> Members:
    """Every topic at two brokers, so that few brokers serve what a client wants."""
    brokers = ["A", "B", "C", "D", "E"][: rng.randint(3, 5)]
    return {
        f"T{number}": tuple(sorted(rng.sample(brokers, 2)))
        for number in range(1, rng.randint(3, 4) + 1)
    }


def _doomed(rng: Random, members: Members, brokers: list[str]) -> list[str]:
    used = len(brokers)
    many = rng.sample(brokers, min((used - 1) // 2, rng.randint(1, 2)))
    return many if all(any(one not in many for one in names) for names in members.values()) else []


def _client(
    rng: Random, name: str, members: Members, safe: list[str], *, two_homes: bool
) -> Client:
    topics = rng.sample(sorted(members), rng.randint(1 + two_homes, len(members)))
    serves = _serves(members)
    if not two_homes:  # one broker that stays must be able to serve everything
        home = rng.choice(safe)
        topics = [one for one in topics if one in serves[home]] or [serves[home][0]]
    homes = list(serves)
    rng.shuffle(homes)
    return Client(name, tuple(sorted(topics)), tuple(homes), publishes=rng.random() < 0.7)


def _serves(members: Members) -> dict[str, list[str]]:
    brokers = sorted({one for names in members.values() for one in names})
    return {one: [topic for topic, names in members.items() if one in names] for one in brokers}


def _publications(
    rng: Random, serves: dict[str, list[str]], clients: list[Client], duration: int
) -> list[Act | None]:
    """Each to topics that one broker serves which stays."""
    publishers = [one.name for one in clients if one.publishes]
    style = rng.choice(("one", "some", "all"))
    acts: list[Act | None] = []
    for _ in range(rng.randint(8, 20)):
        topics = rng.choice(list(serves.values()))
        count = {"one": 1, "some": rng.randint(1, len(topics)), "all": len(topics)}[style]
        at_ms = round(rng.uniform(25, duration - 5), 2)
        acts.append(Act(at_ms, rng.choice(publishers), publish=tuple(rng.sample(topics, count))))
    return acts


def _move(
    rng: Random, members: Members, clients: list[Client], duration: int, two_homes: bool
) -> Act | None:
    client = rng.choice(clients)
    at_ms = round(rng.uniform(28, duration - 5), 2)
    serves = _serves(members)
    kind = rng.random()
    if kind < 0.6:
        order = list(serves)
        rng.shuffle(order)
        topics = client.topics
        try:
            homes = homes_for(topics, serves, order=order, several=two_homes)
        except UsageError:
            return None
        return Act(at_ms, client.name, migrate=homes)
    if kind < 0.8:
        return Act(at_ms, client.name, subscribe=(rng.choice(sorted(members)),))
    return Act(at_ms, client.name, unsubscribe=(rng.choice(client.topics),))


def _apart(rng: Random, clients: list[Client], acts: list[Act | None]) -> Iterator[Fault]:
    """Some clients publish by another one elsewhere, which may crash right after."""
    for number, client in enumerate(list(clients)):
        if not client.publishes or rng.random() > 0.2:
            continue
        pen = f"{client.name}/pen"
        clients[number] = msgspec.structs.replace(client, publishes=False, pen=pen)
        homes = rng.sample(client.homes, len(client.homes))
        clients.append(Client(pen, (), tuple(homes), publishes=True))
        times = [one.at_ms for one in acts if one and one.publish and one.client == client.name]
        if times and rng.random() < 0.5:
            yield Fault("crash", int(rng.choice(times)) + 1, rng.choice((3, 40)), node=pen)


def _compactions(rng: Random, names: list[str], duration: int) -> list[Act | None]:
    """Logs are replaced by snapshots now and then, of brokers and of clients."""
    count = rng.choice((0, 0, 3, 8))
    times = [round(rng.uniform(20, duration), 2) for _ in range(count)]
    return [Act(at_ms, rng.choice(names), compact=True) for at_ms in times]


def _faults(
    rng: Random,
    mix: Mix,
    doomed: list[str],
    clients: list[Client],
    times: list[float],
    duration: int,
) -> Iterator[Fault]:
    heavy = mix == "lossy"
    yield Fault("loss", 0, duration, share=0.3 if heavy else 0.05)
    yield Fault("duplication", 0, duration, share=0.2 if heavy else 0.05)
    if mix == "late":
        share, delay_ms = rng.choice((0.7, 0.9, 0.95)), rng.choice((40, 80))
        yield Fault("reordering", 0, duration + 30, share=share, delay_ms=delay_ms)
    else:
        share = rng.choice((0.3, 0.3, 0.9))
        yield Fault("reordering", 0, duration, share=share, delay_ms=rng.choice((2, 10, 25)))
    for broker in doomed:
        at_ms = rng.randint(26, duration - 10)
        if rng.random() < 0.5:  # just when something was published, which may then be lost
            at_ms = int(rng.choice(times)) + rng.randint(1, 3)
        if mix == "crash":
            yield Fault("crash", at_ms, rng.choice((5, 60, 1_000)), node=broker)
        elif mix != "late" and rng.random() < 0.5:
            yield Fault("pause", at_ms, rng.choice((30, 200)), node=broker)
        else:
            if mix == "late":
                at_ms = int(rng.choice(times)) + rng.choice((3, 14, 22, 35, 50))
            others = [one for one in "ABCDE" if one != broker]
            yield Fault("suspicion", at_ms, 1, node=rng.choice(others), suspect=broker)
    for client in clients:
        kind = rng.random()
        if kind < 0.1:
            yield Fault("crash", rng.randint(20, duration), rng.choice((3, 40)), node=client.name)
        elif kind < 0.2:
            yield Fault("pause", rng.randint(20, duration), rng.choice((10, 60)), node=client.name)


# --- the smallest failure -------------------------------------------------------------------------


def minimised(case: Case, seed: int, *, try_count_max: int = 300) -> Case:
    """The smallest case found that still breaks the same property with the same seed."""
    wanted = play(case, seed=seed).failure
    if wanted is None:
        return case
    tries = 0
    again = True
    while again:
        again = False
        for smaller in _smaller(case):
            tries += 1
            if tries > try_count_max:
                return case
            failure = play(smaller, seed=seed).failure
            if failure is not None and failure.name == wanted.name:
                case, again = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    replace = msgspec.structs.replace
    for number in range(len(case.faults)):
        yield replace(case, faults=case.faults[:number] + case.faults[number + 1 :])
    pens = {one.pen for one in case.clients}
    for client in case.clients:
        gone = (client.name, client.pen)
        left = tuple(one for one in case.clients if one.name not in gone)
        acts = tuple(one for one in case.acts if one.client not in gone)
        if left and client.name not in pens:
            faults = tuple(one for one in case.faults if not one.node or one.node not in gone)
            yield replace(case, clients=left, acts=acts, faults=faults)
    for number in range(len(case.acts)):
        yield replace(case, acts=case.acts[:number] + case.acts[number + 1 :])
    if case.sync_us:
        yield replace(case, sync_us=0)
