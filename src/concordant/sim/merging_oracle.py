"""Judges a played case of ordered merging: against the logs of the mergers, and as a history.

The logs say everything: which event has which place, which subscriber joined where, with whose
queues. The oracle replays them, one merger at a time, with a matcher per session, and compares
what each subscriber was fed and what it delivered. It uses the core of a merger and nothing of
replicas, streams, clients or drivers. What the core itself could do wrong is judged against the
roots: a stream is, per topic, a whole piece of the root's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations

import msgspec

from concordant.check.levels import check_level
from concordant.check.verdict import Verdict, Violation, first_violation
from concordant.model.event import Event
from concordant.order.merging.client import MergedClient
from concordant.order.merging.core import Core
from concordant.order.merging.filters import Filter
from concordant.order.merging.host import MergerHost
from concordant.order.merging.matcher import Correlating, Matcher
from concordant.order.merging.messages import Cut, Ev, LogCommand, Put, Start, Take
from concordant.order.merging.overlay import name_of, parents
from concordant.order.merging.part import Part
from concordant.order.merging.records import Fed, Opened
from concordant.order.merging.sessions import Session
from concordant.sim.merging_cases import Played, known_topics, subscription

_commands = msgspec.msgpack.Decoder(LogCommand)


@dataclass
class Owed:
    """What the log says about one session of a subscriber."""

    name: str
    filter: Filter
    alive: bool = True
    joined: bool = False
    seen: int = 0
    matcher: Matcher | None = None
    items: list[Ev] = field(default_factory=list)
    """Events since the last start."""
    relations: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """By the number of the event that completes each."""
    lender: Owed | None = None
    """Who has the conjunction without its last topic, and lent its queues."""


@dataclass
class Replayed:
    """A merger's log, replayed."""

    core: Core
    order: list[Event] = field(default_factory=list)
    """Events in the order in which the merger emitted them."""
    owed: dict[tuple[str, int], Owed] = field(default_factory=dict)


def judge(played: Played) -> list[Verdict]:
    """All verdicts, those about the machinery first."""
    if played.broken:
        return [Verdict("Invariants", 1, Violation(played.broken))]
    found = [_drained(played)]
    parts = _parts(played)
    found.append(_one_log(parts))
    if first_violation(found) is not None and found[1].violation is not None:
        return found
    mergers = replay_all(_logs(parts))
    found.append(_roots(played, mergers))
    found.append(_pieces(played, mergers))
    found.append(_prefixes(mergers))
    found.append(_streams(played, mergers))
    found.append(_covering(played, mergers))
    if played.case.options.stamped:
        found.append(_total_order(played))
    found += check_level(played.recorder.rows(), "agreed")
    return found


def failure(played: Played) -> Verdict | None:
    """The first promise that was broken."""
    return first_violation(judge(played))


# --- logs -----------------------------------------------------------------------------------------


def _parts(played: Played) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = {}
    for host in played.case.hosts:
        machine = played.world.places[host].machine
        assert isinstance(machine, MergerHost)
        for name, part in machine._state.parts.items():
            found.setdefault(name, []).append(part)
    return found


def _one_log(parts: dict[str, list[Part]]) -> Verdict:
    """Replicas of a merger agree on what is committed."""
    checked = 0
    for name, replicas in parts.items():
        for one in replicas:
            for other in replicas:
                start = max(one.replica.base, other.replica.base)
                end = max(start, min(one.replica.commit, other.replica.commit))
                mine = one.replica.entries[start - one.replica.base : end - one.replica.base]
                theirs = other.replica.entries[start - other.replica.base :]
                checked += len(mine)
                if mine != theirs[: len(mine)]:
                    sentence = f"two replicas of {name} committed different entries"
                    return Verdict("One Log", checked, Violation(sentence))
    return Verdict("One Log", checked)


def _logs(parts: dict[str, list[Part]]) -> dict[str, tuple[Core, list[LogCommand]]]:
    """The commands of each merger whose log is whole on some replica."""
    found = {}
    for name, replicas in parts.items():
        commit = max(one.replica.commit for one in replicas)  # one that is behind is not whole
        whole = [
            one.replica for one in replicas if (one.replica.base, one.replica.commit) == (0, commit)
        ]
        if whole:
            longest = whole[0]
            commands = [_commands.decode(entry) for entry in longest.committed(0)]
            known = replicas[0].core
            found[name] = (Core(known.signature, known.stamped), commands)
    return found


Joins = tuple[str, int, int]
"""A consumer, its session, and the cut that it joins by."""

Loans = dict[Joins, tuple[Owed, bytes]]
"""Queues that were lent to a subscriber of another merger, and by whom."""


def replay_all(logs: dict[str, tuple[Core, list[LogCommand]]]) -> dict[str, Replayed]:
    """Replay the logs, prefixes first; those are left out that need one that is not there."""
    found: dict[str, Replayed] = {}
    loans: Loans = {}
    for name in sorted(logs, key=lambda name: len(logs[name][0].signature)):
        with suppress(LookupError):
            found[name] = replay(logs[name], loans)
    return found


def replay(log: tuple[Core, list[LogCommand]], loans: Loans) -> Replayed:
    """Apply a log to an empty core, with a matcher per session."""
    core, commands = log
    found = Replayed(core)
    before: dict[tuple[str, int], Session] = {}
    for command in (one for each in commands for one in _single(each)):
        event = _event_of(command) if core.changes(command) else None
        core.apply(command)
        if event is not None:
            found.order.append(event)
        now = {(name, one.number): one for name, one in core.sessions.items() if one.version < 0}
        for key in before:
            if key not in now:
                found.owed[key].alive = False
        before = now
        for key, session in now.items():
            if key not in found.owed:
                found.owed[key] = Owed(key[0], session.filter, seen=session.begin)
            found.owed[key].alive = True  # it may have waited for a while
            found.owed[key].seen = max(found.owed[key].seen, session.begin)
            _follow(found, key, session, loans)
    return found


def _single(command: LogCommand) -> Iterator[LogCommand]:
    """One event is one step: that mergers take many together must not be seen."""
    replace = msgspec.structs.replace
    if isinstance(command, Put):
        for i, event in enumerate(command.events):
            yield replace(command, n=command.n + i, events=(event,))
    elif isinstance(command, Take):
        index = command.index
        for item in command.items:
            yield replace(command, index=index, end=item.n + 1, items=(item,))
            index = item.n + 1
        if index < command.end:
            yield replace(command, index=index, items=())
    else:
        yield command


def _event_of(command: LogCommand) -> Event | None:
    if isinstance(command, Put):
        return command.events[0]
    if isinstance(command, Take) and command.items and isinstance(command.items[0], Ev):
        return command.items[0].event
    return None


def _follow(found: Replayed, key: tuple[str, int], session: Session, loans: Loans) -> None:
    core, owed = found.core, found.owed[key]
    owed.joined = session.joined
    for item in core.between(owed.seen, core.end):
        if not session.sees(item):
            continue
        if isinstance(item, Start):
            owed.items, owed.relations = [], []
            number = int(owed.name.partition(" q")[2].partition("/")[0])
            owed.matcher, owed.lender = Correlating(subscription(number), 1, known_topics()), None
            if item.donor and item.prefix:
                owed.lender, queues = loans[*key, item.cut]
                owed.matcher.borrow(queues)
            elif item.donor:
                donor = next(
                    one
                    for one in found.owed.values()
                    if one.name == item.donor and one.alive and one.matcher is not None
                )
                assert donor.matcher is not None
                owed.matcher.load(donor.matcher.save())
                owed.lender = donor.lender
        elif isinstance(item, Cut) and item.prefix:
            assert owed.matcher is not None
            loans[item.joiner, item.session, item.cut] = (owed, owed.matcher.lend())
        elif isinstance(item, Ev):
            assert owed.matcher is not None
            owed.items.append(item)
            for one in owed.matcher.feed((item.event,)):
                owed.relations.append((item.n, tuple(event.id for event in one.events)))
    owed.seen = core.end


# --- verdicts -------------------------------------------------------------------------------------


def _drained(played: Played) -> Verdict:
    places = played.world.places
    if played.rested:
        return Verdict("Drained", len(places))
    waiting = [name for name, one in places.items() if one.machine.held_count]
    sentence = f"it did not come to rest; {', '.join(waiting) or 'nobody'} held back something"
    return Verdict("Drained", len(places), Violation(sentence))


def _roots(played: Played, mergers: dict[str, Replayed]) -> Verdict:
    """At the end, every published event has one place in the order of its root."""
    checked = 0
    placed: dict[str, int] = {}
    for name, one in mergers.items():
        if one.core.root:
            for event in one.order:
                checked += 1
                placed[event.id] = placed.get(event.id, 0) + 1
                if placed[event.id] > 1:
                    return _wrong("Roots", checked, f"{event.id} has two places in {name}")
    for row in played.recorder.rows():
        if row.step == "publish" and played.rested:
            checked += 1
            whole = name_of((row.topics[0],)) in mergers
            if whole and row.events[0] not in placed:
                return _wrong("Roots", checked, f"{row.events[0]} never got a place")
    return Verdict("Roots", checked)


def _pieces(played: Played, mergers: dict[str, Replayed]) -> Verdict:
    """What a session brings is, per topic, a whole piece of the root's filtered order, to the end
    if the session lasts."""
    checked = 0
    for merger in mergers.values():
        for owed in merger.owed.values():
            for topic in merger.core.signature:
                root = mergers.get(name_of((topic,)))
                if root is None or not owed.joined:
                    continue
                whole = [event.id for event in root.order if owed.filter.passes(event)]
                piece = [item.event.id for item in owed.items if item.event.topic == topic]
                checked += len(piece)
                if not piece:
                    continue
                start = whole.index(piece[0]) if piece[0] in whole else len(whole)
                end = len(whole) if owed.alive and played.rested else start + len(piece)
                if whole[start:end] != piece:
                    sentence = f"{owed.name} was to get {whole[start:end]} and {piece} came"
                    return _wrong("Whole Pieces", checked, sentence)
    return Verdict("Whole Pieces", checked)


def _prefixes(mergers: dict[str, Replayed]) -> Verdict:
    """A merger keeps the order of its prefix, so all who extend a prefix agree on it."""
    checked = 0
    for name, merger in mergers.items():
        for parent in parents(merger.core.signature):
            above = mergers.get(name_of(parent))
            if above is None:
                continue
            place = {event.id: number for number, event in enumerate(above.order)}
            mine = [event.id for event in merger.order if event.topic in parent]
            checked += len(mine)
            places = [place.get(one, -1) for one in mine]
            if places != sorted(set(places)) or -1 in places:
                return _wrong("Prefix Order", checked, f"{name} changed the order of its parent")
    return Verdict("Prefix Order", checked)


def _streams(played: Played, mergers: dict[str, Replayed]) -> Verdict:
    """Subscribers are fed what the log says, and deliver what follows from it."""
    checked = 0
    for client in played.case.subscribes:
        place = played.world.places[client]
        machine = place.machine
        assert isinstance(machine, MergedClient)
        expected: dict[str, list[tuple[str, ...]]] = {}
        whole = True
        for (name, session, merger), fed in _fed(place.log):
            replayed = mergers.get(merger)
            if replayed is None:
                whole = False
                continue
            owed = replayed.owed.get((f"{client} {name}", session))
            wanted = [] if owed is None or not owed.joined else owed.items
            checked += len(fed)
            due = [(item.n, item.ts, item.event.id) for item in wanted]
            stream = machine._state.streams.get(name)
            lasts = stream is not None and stream.inflow.session == session and played.rested
            if fed != (due if lasts else due[: len(fed)]):
                sentence = f"{client} was fed {fed} for {name}, and the log says {due}"
                return _wrong("Streams", checked, sentence)
            last = fed[-1][0] if fed else -1
            relations = [] if owed is None else owed.relations
            found = [ids for index, ids in relations if index <= last]
            expected.setdefault(name.partition("/")[0], []).extend(found)
        delivered = _delivered(played, client)
        if whole and played.rested and delivered != {k: v for k, v in expected.items() if v}:
            sentence = f"{client} delivered {delivered}, and {expected} follows from the log"
            return _wrong("Relations", checked, sentence)
    return Verdict("Streams", checked)


def _covering(played: Played, mergers: dict[str, Replayed]) -> Verdict:
    """Who began with the queues of a shorter conjunction delivers what its lender delivers, with
    one topic more."""
    checked = 0
    for merger in mergers.values():
        for owed in merger.owed.values():
            lender = owed.lender
            if not (owed.joined and lender is not None and lender.alive and played.rested):
                continue
            known = {ids for _, ids in lender.relations}
            for _, ids in owed.relations:
                checked += 1
                if not any(ids[: len(one)] == one for one in known):
                    sentence = f"{owed.name} was owed {ids}, and {lender.name} nothing of it"
                    return _wrong("Covering", checked, sentence)
    return Verdict("Covering", checked)


def _total_order(played: Played) -> Verdict:
    """Any two subscribers are fed what both are fed in one order, whatever they subscribe."""
    checked = 0
    fed: dict[str, dict[str, bool]] = {}
    for client in played.case.subscribes:
        records = (one for one in played.world.places[client].log if isinstance(one, Fed))
        fed[client] = {item.event.id: True for one in records for item in one.items}
    for (one, mine), (other, theirs) in combinations(fed.items(), 2):
        common = [event for event in mine if event in theirs]
        checked += len(common)
        if common != [event for event in theirs if event in mine]:
            return _wrong("Total Order", checked, f"{one} and {other} were fed in two orders")
    return Verdict("Total Order", checked)


Told = tuple[str, int, str]


def _fed(log: Iterable[msgspec.Struct]) -> Iterator[tuple[Told, list[tuple[int, int, str]]]]:
    """What each session of a client was fed, in the order of the sessions."""
    sessions: dict[Told, list[tuple[int, int, str]]] = {}
    current: dict[str, Told] = {}
    for record in log:
        if isinstance(record, Opened):
            name = record.wanted.name
            current[name] = (name, record.session, name_of(record.wanted.signature))
            sessions[current[name]] = []
        elif isinstance(record, Fed):
            sessions[current[record.name]] += [
                (item.n, item.ts, item.event.id) for item in record.items
            ]
    return iter(sessions.items())


def _delivered(played: Played, client: str) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for row in played.recorder.rows():
        if row.process == client and row.step == "deliver":
            found.setdefault(row.subscription, []).append(row.events)
    return found


def _wrong(name: str, checked: int, sentence: str) -> Verdict:
    return Verdict(name, checked, Violation(sentence))
