"""The search for counterexamples: play scenes, look at verdicts, shrink what violates.

Everything follows from the subscribers and a seeded generator. A shrunk counterexample cannot do
without any of its events, its other subscribers or (if the formulas may change) its predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from random import Random

import msgspec

from concordant.check.properties import INFEASIBLE, PROPERTIES, Property
from concordant.check.verdict import Verdict
from concordant.errors import UsageError
from concordant.guarantees.alphabet import alphabet
from concordant.guarantees.arrival import arrivals
from concordant.guarantees.author import SOURCE, Author
from concordant.guarantees.scene import Played, Scene, Stage, Subscribers, play
from concordant.model.event import Event
from concordant.model.kind import RESERVED
from concordant.model.predicate import Comparison, Predicate, Wildcard, conjunction_of
from concordant.model.subscription import Conjunction, Subscription

TOTAL = "total"
"""The order level under which all processes get the events in one order; `total strict` too."""

WORD_COUNT_MAX = 4_000
"""Words that are tried exhaustively for a shorter counterexample, at most."""


class Counterexample(msgspec.Struct, frozen=True):
    """A scene in which a property does not hold, and the verdict on it."""

    scene: Scene
    verdict: Verdict

    @property
    def size(self) -> tuple[int, ...]:
        """Smaller is easier to read."""
        scene = self.scene
        formulas = sum(len(str(c)) for one in scene.subscribers for c in one.conjunctions)
        sources = len({event.source for event in scene.events})
        return (len(scene.events), len(scene.subscribers), formulas, sources)


def property_of(name: str) -> Property:
    """A property by its name."""
    found = PROPERTIES.get(name) or INFEASIBLE.get(name)
    if found is None:
        raise UsageError(f"there is no property {name!r}", hint=f"one of: {', '.join(PROPERTIES)}")
    return found


def violated(scene: Scene, name: str) -> Counterexample | None:
    """The scene as a counterexample, if it is one."""
    played = play(scene)
    verdict = None if played is None else property_of(name).check(played.run)
    if verdict is None or verdict.holds:
        return None
    return Counterexample(scene, verdict)


def search(
    subscribers: Subscribers,
    names: Iterable[str],
    rng: Random,
    *,
    scene_count: int,
    order: str = "total",
    event_count_max: int = 9,
    endless_every: int = 2,
    watch: Callable[[Played, Verdict], None] = lambda played, verdict: None,
) -> dict[str, Counterexample]:
    """Counterexamples, not yet shrunk, for those properties for which one is found.

    Below a total order, each process gets the events in an order of its own that the level
    allows. Endless scenes take several times as long as others, so that one is played with every
    `endless_every` of them. `watch` is told every run and verdict, for counting. A property is
    given up for the rest of the search once it is found violated.
    """
    left = dict.fromkeys(names)
    found: dict[str, Counterexample] = {}
    writers = {
        False: _Writer(subscribers, rng, order),
        # Liveness is a matter of one process, and queues of others may grow for ever.
        True: _Writer(subscribers[:1], rng, TOTAL),
    }
    for number in range(scene_count):
        for endless, writer in writers.items():
            wanted = [n for n in left if property_of(n).is_liveness is endless]
            if not wanted or (endless and number % endless_every):
                continue
            scene = writer.scene(endless, event_count_max)
            played = writer.play(scene)
            if played is None:
                continue
            for name in wanted:
                verdict = property_of(name).check(played.run)
                watch(played, verdict)
                if not verdict.holds:
                    del left[name]
                    found[name] = Counterexample(scene, verdict)
        if not left:
            break
    return found


def relatives(
    found: Mapping[str, Counterexample], names: Iterable[str]
) -> dict[str, Counterexample]:
    """Counterexamples of other properties in the same scenes, told with other publishers.

    Who published what decides about first-in-first-out and local order and hardly ever about
    anything else, so a scene that shows one is soon turned into one that shows the other.
    """
    more: dict[str, Counterexample] = {}
    finite = [e.scene for e in found.values() if not e.scene.cycle_count]
    for name in names:
        for scene in finite:
            for publishers in _publishers(scene):
                example = violated(_scene(scene, events=publishers), name)
                if example is not None:
                    more.setdefault(name, example)
                    break
            if name in more:
                break
    return more


def _publishers(scene: Scene) -> Iterator[tuple[Event, ...]]:
    """The events from one source, and with each one from each of the subscribers."""
    plain = [msgspec.structs.replace(event, source=SOURCE) for event in scene.events]
    yield renumbered(plain)
    for one in scene.subscribers[1:]:
        for i, event in enumerate(plain):
            own = msgspec.structs.replace(event, source=one.name)
            yield renumbered([*plain[:i], own, *plain[i + 1 :]])


class _Writer:
    """A stage and its author."""

    def __init__(self, subscribers: Subscribers, rng: Random, order: str) -> None:
        self._stage = Stage(subscribers)
        self._author = Author(subscribers, rng)
        self._rng = rng
        self._order = order

    def scene(self, endless: bool, event_count_max: int) -> Scene:
        subscribers = self._stage.subscribers
        if endless:
            events, cycle_count = self._author.endless(count_max=event_count_max)
            return Scene(subscribers, tuple(events), cycle_count)
        events = self._author.finite(count_max=event_count_max)
        if self._order.startswith(TOTAL):
            return Scene(subscribers, tuple(events))
        apart = arrivals(self._order, subscribers, events, self._rng)
        return Scene(subscribers, tuple(events), arrivals=apart)

    def play(self, scene: Scene) -> Played | None:
        return self._stage.play(
            scene.events, cycle_count=scene.cycle_count, arrivals=scene.arrivals
        )


# --- shrinking ------------------------------------------------------------------------------------


def shrink(example: Counterexample, *, formulas: bool = False, keep: str = "p1") -> Counterexample:
    """The example with whatever can be left out left out; `keep` stays as it asks."""
    name = example.verdict.name
    best = example
    while True:
        for scene in _smaller(best.scene, formulas, keep):
            found = violated(scene, name)
            if found is not None:
                best = found
                break
        else:
            return violated(renamed(best.scene), name) or best


def shortest(example: Counterexample) -> Counterexample:
    """The first counterexample among all shorter words over the same events, or the example.

    Exhaustive, so it applies to few different events; times, arrivals and endless inputs stay out.
    """
    scene = example.scene
    letters = list(
        {
            (e.topic, e.source, tuple(sorted(e.attributes.items(), key=str))): e
            for e in scene.events
        }.values()
    )
    length = len(scene.events)
    timed = any(one.within_us is not None for one in scene.subscribers)
    if (
        timed
        or scene.arrivals
        or scene.cycle_count
        or len(letters) ** (length - 1) > WORD_COUNT_MAX
    ):
        return example
    for shorter in range(1, length):
        for word in product(letters, repeat=shorter):
            events = renumbered(
                [msgspec.structs.replace(e, time=i) for i, e in enumerate(word, start=1)]
            )
            found = violated(_scene(scene, events=events), example.verdict.name)
            if found is not None:
                return found
    return example


def _smaller(scene: Scene, formulas: bool, keep: str) -> Iterator[Scene]:
    if len(scene.subscribers) > 1:
        for i, one in enumerate(scene.subscribers):
            if one.name != keep:
                rest = (*scene.subscribers[:i], *scene.subscribers[i + 1 :])
                yield _scene(scene, subscribers=rest)
    yield from _fewer_events(scene)
    if formulas:
        yield from _weaker(scene)
    yield from _plainer(scene)


def _scene(scene: Scene, **changes: object) -> Scene:
    return msgspec.structs.replace(scene, **changes)


def _fewer_events(scene: Scene) -> Iterator[Scene]:
    for i in reversed(range(len(scene.events))):
        in_cycle = i >= len(scene.events) - scene.cycle_count
        if in_cycle and scene.cycle_count == 1:
            continue
        arrivals = {
            name: tuple(j - (j > i) for j in order if j != i)
            for name, order in scene.arrivals.items()
        }
        yield _scene(
            scene,
            events=renumbered([*scene.events[:i], *scene.events[i + 1 :]]),
            cycle_count=scene.cycle_count - in_cycle,
            arrivals=arrivals,
        )


def _plainer(scene: Scene) -> Iterator[Scene]:
    """One source, times without gaps, small values."""
    events = scene.events
    if not scene.arrivals and len({event.source for event in events}) > 1:
        yield _scene(scene, events=next(_publishers(scene)))
    for i, event in enumerate(events if not scene.arrivals else ()):  # they know the sources
        if event.source != SOURCE:
            plain = msgspec.structs.replace(event, source=SOURCE)
            yield _scene(scene, events=renumbered([*events[:i], plain, *events[i + 1 :]]))
    times = [0, *(event.time for event in events)]
    for i in range(len(events)):
        gap = times[i + 1] - times[i]
        if gap > 1:
            moved = [
                msgspec.structs.replace(e, time=e.time - (gap - 1) * (j >= i))
                for j, e in enumerate(events)
            ]
            yield _scene(scene, events=tuple(moved))
    for i, event in enumerate(events):
        for attribute, value in event.attributes.items():
            if type(value) is int:
                for smaller in range(min(value, 3) if value >= 0 else 3):
                    attributes = {**event.attributes, attribute: smaller}
                    changed = msgspec.structs.replace(event, attributes=attributes)
                    yield _scene(scene, events=(*events[:i], changed, *events[i + 1 :]))


def renamed(scene: Scene) -> Scene:
    """The scene with its processes called p1, p2 and so on, without gaps."""
    names = {one.name: f"p{number}" for number, one in enumerate(scene.subscribers, start=1)}
    subscribers = tuple(
        msgspec.structs.replace(one, name=names[one.name]) for one in scene.subscribers
    )
    others = iter("stuvwxyz")
    for event in scene.events:
        if event.source not in names:
            names[event.source] = next(others)
    events = renumbered([msgspec.structs.replace(e, source=names[e.source]) for e in scene.events])
    arrivals = {
        names[one.name]: scene.arrivals[one.name]
        for one in scene.subscribers
        if one.name in scene.arrivals
    }
    return _scene(scene, subscribers=subscribers, events=events, arrivals=arrivals)


def renumbered(events: Sequence[Event]) -> tuple[Event, ...]:
    """Events with the numbers that their sources gave them, from 1."""
    seqs: dict[str, int] = {}
    found: list[Event] = []
    for event in events:
        seqs[event.source] = seqs.get(event.source, 0) + 1
        seq = seqs[event.source]
        found.append(msgspec.structs.replace(event, seq=seq, id=""))
    return tuple(found)


def _weaker(scene: Scene) -> Iterator[Scene]:
    """One branch less, or one predicate or instance less in every subscriber that has it."""
    for i, one in enumerate(scene.subscribers):
        for gone in one.conjunctions if len(one.conjunctions) > 1 else ():
            kept = tuple(c for c in one.conjunctions if c != gone)
            fewer = msgspec.structs.replace(one, conjunctions=kept)
            before, after = scene.subscribers[:i], scene.subscribers[i + 1 :]
            yield _scene(scene, subscribers=(*before, fewer, *after))
    predicates = dict.fromkeys(
        p for one in scene.subscribers for c in one.conjunctions for p in c.predicates
    )
    for weak in predicates:
        for replacement in _replacements(weak):
            changed = tuple(_without(one, weak, replacement) for one in scene.subscribers)
            if all(one is not None for one in changed):
                scene_without = _scene(scene, subscribers=changed)
                yield _scene(scene_without, events=_read_only(scene_without))


def _replacements(predicate: Predicate) -> Iterator[tuple[Predicate, ...]]:
    if isinstance(predicate, Comparison):
        yield tuple(Wildcard(slot) for slot in predicate.slots)
    else:
        yield ()
        if predicate.slot.instance > 1:
            yield (Wildcard(predicate.slot._replace(instance=predicate.slot.instance - 1)),)


def _without(
    one: Subscription, gone: Predicate, replacement: tuple[Predicate, ...]
) -> Subscription | None:
    found: dict[str, Conjunction] = {}
    for conjunction in one.conjunctions:
        kept = [p for p in conjunction.predicates if p != gone]
        if len(kept) < len(conjunction.predicates):
            kept += replacement
        if kept:
            kept.sort(key=lambda p: (p.slots, str(p)))
            made = Conjunction(conjunction_of(kept))
            found.setdefault(made.canonical, made)
    if not found:
        return None
    return msgspec.structs.replace(one, conjunctions=tuple(found.values()))


def _read_only(scene: Scene) -> tuple[Event, ...]:
    """The events with those attributes only that some subscriber reads."""
    known = alphabet(scene.subscribers)
    return tuple(
        msgspec.structs.replace(
            event,
            attributes={
                n: v
                for n, v in event.attributes.items()
                if n in known.get(event.topic, {}) or n in RESERVED
            },
        )
        for event in scene.events
    )
