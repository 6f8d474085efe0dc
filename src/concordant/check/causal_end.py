"""The end of a run of causal delivery: nothing waits, nothing is kept, nobody lacks anything.

Also what must hold all the time and is noticed when it happens: stability that goes back or runs
ahead, and events that come back from the dead. The numbers are those of docs/concepts/causal.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from concordant.check.causal import Witness, position
from concordant.check.verdict import Verdict, Violation


def drained(seen: Witness) -> Verdict:
    """I4. Nothing waits; live brokers of a topic delivered the same; subscribers have all of it."""
    name = "I4 Drained"
    checked = len(seen.brokers) + len(seen.subscribers)
    for process, held in (
        *((one, end.held_count) for one, end in seen.brokers.items()),
        *((one, end.held_count) for one, end in seen.subscribers.items()),
    ):
        if held:
            return Verdict(name, checked, Violation(f"{process} still holds back {held}"))
    had = {broker: set(seen.deliveries.get(broker, ())) for broker in seen.brokers}
    for one in seen.facts.values():
        here = [
            broker
            for broker, end in seen.brokers.items()
            if any(topic in end.topics for topic in one.at)
        ]
        with_it = [broker for broker in here if one.id in had[broker]]
        checked += 1
        if with_it and len(with_it) < len(here):
            without = next(broker for broker in here if broker not in with_it)
            sentence = f"{with_it[0]} delivered {one.event} and {without} never did"
            return Verdict(name, checked, Violation(sentence, (one.event,)))
    for subscriber, sub in seen.subscribers.items():
        for home in (seen.brokers[one] for one in sub.homes if one in seen.brokers):
            for topic in sub.topics:
                for origin, n in home.delivered.get(topic, {}).items():
                    if topic in home.topics and position(sub.last, topic, origin) < n:
                        sentence = f"{subscriber} is behind its home in {topic} of {origin}"
                        return Verdict(name, checked, Violation(sentence))
    return Verdict(name, checked)


def forgotten(seen: Witness) -> Verdict:
    """I5. When everybody has everything, no broker keeps anything."""
    for broker, end in seen.brokers.items():
        if end.kept_count:
            sentence = f"{broker} still keeps {end.kept_count} events that everybody has"
            return Verdict("I5 Forgotten", len(seen.brokers), Violation(sentence))
    return Verdict("I5 Forgotten", len(seen.brokers))


def stability(seen: Witness) -> Verdict:
    """I7. Advertisements rise; stable ≤ advertised ≤ delivered."""
    if seen.unstable:
        return Verdict("I7 Stability", seen.stability_count, Violation(seen.unstable[0]))
    return Verdict("I7 Stability", seen.stability_count)


def refusals(seen: Witness) -> Verdict:
    """I10. What a broker refused after a flush, it never delivers."""
    for broker, one in seen.resurrected:
        event = seen.facts[one].event
        sentence = f"{broker} delivered {event} of {one[0]} after it had agreed that it is lost"
        return Verdict("I10 Refusals", len(seen.refused), Violation(sentence, (event,)))
    return Verdict("I10 Refusals", len(seen.refused))


def complete(seen: Witness) -> Verdict:
    """I11. Who always had the same topics, and no gap, got exactly the events of these topics."""
    name, checked = "I11 Complete", 0
    for process, end in seen.subscribers.items():
        if not end.static or seen.gaps.get(process):
            continue
        got = {seen.facts[one].event for one in seen.upcalls.get(process, ())}
        addressed = [one for one in seen.facts.values() if set(one.at) & set(end.topics)]
        for fact in addressed:
            checked += 1
            if fact.event not in got and fact.id not in seen.lost:
                sentence = f"{process} never delivered {fact.event}, and was told of no gap"
                return Verdict(name, checked, Violation(sentence, (fact.event,)))
        for event in sorted(got - {one.event for one in addressed}):
            sentence = f"{process} delivered {event}, which is of no topic of its own"
            return Verdict(name, checked, Violation(sentence, (event,)))
    return Verdict(name, checked)


def all_of(seen: Witness) -> Iterator[Verdict]:
    if seen.ended:
        yield from (drained(seen), forgotten(seen), complete(seen))
    yield from (stability(seen), refusals(seen))
