"""The order of causal delivery: at brokers, at subscribers, in rounds, in what events say of pasts.

Each function takes what a `Witness` saw and gives a verdict. The numbers I1, I2 … are those of
docs/concepts/causal.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from concordant.check.causal import Fact, Id, Vector, Witness, position
from concordant.check.verdict import Verdict, Violation


def broker_order(seen: Witness) -> Verdict:
    """I1. No broker delivers an event before one of its topics that the event follows."""
    return _ordered("I1 Broker Order", seen, seen.deliveries)


def subscriber_order(seen: Witness) -> Verdict:
    """I2. Nothing reaches an application before something that it follows."""
    return _ordered("I2 Subscriber Order", seen, seen.upcalls)


def _ordered(name: str, seen: Witness, sequences: Mapping[str, Sequence[Id]]) -> Verdict:
    checked = 0
    for process, sequence in sequences.items():
        behind = 0
        for number, one in enumerate(sequence):
            checked += 1
            if behind & seen.bits[one] and one not in sequence[:number]:
                later = next(x for x in sequence if seen.pasts[x] & seen.bits[one])
                sentence = f"{process} delivered {_text(seen, later)} before {_text(seen, one)}, "
                return _broken(name, checked, sentence + "which it follows", seen, later, one)
            behind |= seen.pasts[one]
    return Verdict(name, checked)


def once(seen: Witness) -> Verdict:
    """I3. No event reaches an application twice."""
    checked = 0
    for process, sequence in seen.upcalls.items():
        had: dict[str, Id] = {}
        for one in sequence:
            checked += 1
            event = seen.facts[one].event
            if event in had:
                sentence = f"{process} delivered {event} twice"
                return _broken("I3 No Duplication", checked, sentence, seen, had[event], one)
            had[event] = one
    return Verdict("I3 No Duplication", checked)


def rounds(seen: Witness) -> Verdict:
    """I6. What an event follows, or says it follows, has a smaller round."""
    name, checked = "I6 Rounds", 0
    places = {
        (topic, *one.id[:1], n): one for one in seen.facts.values() for topic, n in one.at.items()
    }
    for fact in seen.facts.values():
        said = (
            places.get((topic, origin, n))
            for topic, row in fact.past.items()
            for origin, n in row.items()
        )
        true = (seen.facts[one] for one in seen.named(seen.pasts[fact.id]))
        for earlier in (*true, *(one for one in said if one is not None)):
            checked += 1
            if earlier.round >= fact.round:
                sentence = (
                    f"{_text(seen, fact.id)} has round {fact.round} and follows "
                    f"{_text(seen, earlier.id)} of round {earlier.round}"
                )
                return _broken(name, checked, sentence, seen, earlier.id, fact.id)
    return Verdict(name, checked)


def closure(seen: Witness) -> Verdict:
    """I8. An event names everything that it follows, but for what was stable or is lost."""
    name, checked = "I8 Closure", 0
    for fact in seen.facts.values():
        for one in seen.named(seen.pasts[fact.id]):
            earlier = seen.facts[one]
            if one in seen.lost:
                continue
            for topic, n in earlier.at.items():
                checked += 1
                if (
                    max(position(fact.past, topic, one[0]), position(fact.stable, topic, one[0]))
                    < n
                ):
                    sentence = (
                        f"{_text(seen, fact.id)} follows {_text(seen, one)}, which was not stable "
                        f"in {topic}, and does not name it"
                    )
                    return _broken(name, checked, sentence, seen, one, fact.id)
    return Verdict(name, checked)


def projection(seen: Witness) -> Verdict:
    """I9. A subscriber is told predecessors through which all that matters to it is reached.

    What matters is kept by the broker, addressed to the subscriber's topics, and was not stable
    when the event was ordered. And where only the immediate predecessors are claimed, none of them
    is reached through another.
    """
    name, checked = "I9 Projection", 0
    for one in seen.carriages:
        checked += 1
        stable = seen.facts[one.event].stable
        lacked = (other for other in one.kept if not _stable(seen.facts[other], one.topics, stable))
        expected = sum(seen.bits[other] for other in lacked) & seen.pasts[one.event]
        reached = 0
        for other in one.predecessors:
            if one.minimal and any(
                seen.said[third] & seen.bits[other] for third in one.predecessors if third != other
            ):
                sentence = (
                    f"{_text(seen, one.event)} was sent with {_text(seen, other)} as immediate "
                    "predecessor, though another predecessor follows that"
                )
                return _broken(name, checked, sentence, seen, other, one.event)
            reached |= seen.bits[other]
        # By round, the youngest first: each leads to what it follows, or says it follows.
        if not expected & ~reached:
            continue
        for other in sorted(one.kept, key=lambda id: -seen.facts[id].round):
            if reached & seen.bits[other]:
                reached |= seen.pasts[other] | seen.said[other]
        missing = expected & ~reached
        if missing:
            other = seen.named(missing)[0]
            sentence = (
                f"{_text(seen, one.event)} was sent to a subscriber of {', '.join(one.topics)} "
                f"with nothing that leads to {_text(seen, other)}, which it follows"
            )
            return _broken(name, checked, sentence, seen, other, one.event)
    return Verdict(name, checked)


def _stable(fact: Fact, topics: Sequence[str], stable: Vector) -> bool:
    return any(position(stable, t, fact.id[0]) >= n for t, n in fact.at.items() if t in topics)


def _text(seen: Witness, one: Id) -> str:
    fact: Fact = seen.facts[one]
    return f"{fact.event} ({'+'.join(sorted(fact.at))} of {one[0]})"


def _broken(name: str, checked: int, sentence: str, seen: Witness, *events: Id) -> Verdict:
    ids = tuple(seen.facts[one].event for one in events)
    return Verdict(name, checked, Violation(sentence, ids))


def all_of(seen: Witness) -> Iterator[Verdict]:
    for check in (broker_order, subscriber_order, once, rounds, closure, projection):
        yield check(seen)
