"""What is delivered at all: nothing invented, nothing twice, nothing unasked for, nothing missing.

These hold or fail without any order. Each function takes the index of a run and gives a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable

from concordant.check.levels_index import Delivered, Item, Publication, Seen
from concordant.check.verdict import Verdict, Violation


def no_creation(index: Seen) -> Verdict:
    """Every delivered event was published, or made here by an `emit` from what was delivered."""
    checked = 0
    for process in index.processes.values():
        made: set[str] = set()
        for one in process.deliveries:
            checked += 1
            if one.row.conjunction:
                made.add(f"{one.row.subscription}:{one.row.position}")
            for event in one.row.events:
                if event not in index.published and event not in made:
                    sentence = f"{process.name} delivered {event}, which nobody published"
                    return _violated("No Creation", checked, sentence, [event], [one])
    return Verdict("No Creation", checked)


def no_duplication(index: Seen) -> Verdict:
    """No process delivers an event, or a relation of a subscription, twice."""
    checked = 0
    for process in index.processes.values():
        before: dict[tuple[str, Item], Delivered] = {}
        for one in process.deliveries:
            checked += 1
            first = before.setdefault((one.row.subscription, one.item), one)
            if first is not one:
                sentence = f"{process.name} delivered {_named(one)} twice"
                return _violated("No Duplication", checked, sentence, one.row.events, [first, one])
    return Verdict("No Duplication", checked)


def subscribed(index: Seen) -> Verdict:
    """A process delivers only what it has subscribed at that moment."""
    checked = 0
    for process in index.processes.values():
        if not process.ever_subscribed:
            continue
        for one in process.deliveries:
            checked += 1
            foreign = [
                topic
                for topic, event in zip(one.row.topics, one.row.events, strict=True)
                if topic not in (one.held or ()) and event in index.published
            ]
            if foreign:
                sentence = (
                    f"{process.name} delivered {_named(one)} of {foreign[0]}, "
                    "which it had not subscribed"
                )
                return _violated("Subscribed", checked, sentence, one.row.events, [one])
    return Verdict("Subscribed", checked)


def validity(index: Seen) -> Verdict:
    """At the end, everybody who is up has every event of the topics that it held all the time.

    What a process published that never came back is owed only if somebody delivered it: then its
    word was kept towards one, and must be kept towards all.
    """
    if not index.ended:
        return Verdict("Validity", 0)
    checked = 0
    delivered = {
        process.name: {one.item for one in process.deliveries}
        for process in index.processes.values()
    }
    by_topic: dict[str, list[tuple[str, Publication]]] = {}
    for event, publication in index.published.items():
        by_topic.setdefault(publication.row.topics[0], []).append((event, publication))
    anywhere = set().union(*delivered.values()) if delivered else set()
    for process in index.subscribers:
        if not process.up or process.correlates or process.gapped:
            continue
        here = delivered[process.name]
        owed = (
            (event, publication, since)
            for topic, since in process.held.items()
            for event, publication in by_topic.get(topic, ())
        )
        for event, publication, since in owed:
            if publication.row.time_us <= since.time_us:
                continue
            if not index.processes[publication.row.process].up and event not in anywhere:
                continue
            checked += 1
            if event not in here:
                sentence = f"{process.name} was owed {event} and never delivered it"
                rows = (since, publication.row)
                return Verdict("Validity", checked, Violation(sentence, (event,), rows))
    return Verdict("Validity", checked)


def _named(one: Delivered) -> str:
    return one.item if isinstance(one.item, str) else f"({', '.join(one.row.events)})"


def _violated(
    name: str, checked: int, sentence: str, events: Iterable[str], shown: Iterable[Delivered]
) -> Verdict:
    rows = tuple(one.row for one in shown)
    return Verdict(name, checked, Violation(sentence, tuple(events), rows))
