"""The smallest counterexamples that are known, stored as text a person can read.

`stored.toml` has one entry per policy (or clause, or order level) and lost property: the formulas
of the subscribers p1, p2, … and the events in order of arrival, as words. `A2` is an event of topic
A with `a` = 2, `A2k1` has `k` = 1 as well, `@5` is a time, and `/p2` names a publisher other than
s. The words of `cycle` repeat for ever. Tests replay every entry and find each again by search.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from concordant.errors import InvariantViolation
from concordant.guarantees.author import SOURCE
from concordant.guarantees.scene import Scene
from concordant.guarantees.search import Counterexample, renumbered, violated
from concordant.guarantees.table import Loss
from concordant.language import parse
from concordant.model.event import Event
from concordant.model.subscription import POLICIES, Policy, Subscription

_WORD = re.compile(r"([A-Z])(-?\d*)(?:k(\d))?(?:@(\d+))?(?:/(\w+))?")
_BY_TEXT = {
    str(policy): policy
    for one in POLICIES
    for policy in (one, msgspec.structs.replace(one, staged=True))
}


def section_of(loss: Loss, policy: Policy) -> str:
    """Under which heading the counterexample of a loss is stored."""
    return str(policy) if loss.cause == "policy" else loss.cause


@cache
def _entries() -> dict[str, dict[str, Any]]:
    text = resources.files(__package__).joinpath("stored.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def sections() -> tuple[str, ...]:
    """All headings: policies, clauses, order levels, and what nobody keeps."""
    return tuple(_entries())


def names_in(section: str) -> tuple[str, ...]:
    """The properties that have a counterexample under a heading."""
    return tuple(_entries().get(section, {}))


def stored_scene(section: str, name: str, policy: Policy | None = None) -> Scene:
    """The scene stored for a property; `policy` in place of the section's own."""
    entry = _entries()[section][name]
    used = policy or _BY_TEXT[entry.get("policy", section)]
    events = [*_events(entry["events"]), *_events(entry.get("cycle", ""))]
    return Scene(
        _subscribers(entry["subscribers"], entry.get("clauses", ""), used),
        _timed(events),
        len(entry.get("cycle", "").split()),
        {
            f"p{number}": tuple(place - 1 for place in order)
            for number, order in enumerate(entry.get("arrivals", ()), start=1)
        },
    )


@cache
def stored(section: str, name: str) -> Counterexample:
    """The counterexample stored for a property."""
    found = violated(stored_scene(section, name), name)
    if found is None:
        raise InvariantViolation(f"the stored example of {name} for '{section}' violates nothing")
    return found


def _subscribers(formulas: Sequence[str], clauses: str, policy: Policy) -> tuple[Subscription, ...]:
    text = "".join(
        f"p{number}: {formula} {clauses}\n" for number, formula in enumerate(formulas, start=1)
    )
    return tuple(msgspec.structs.replace(one, policy=policy) for one in parse(text))


def _events(words: str) -> list[tuple[Event, bool]]:
    """Events, each with whether its time was given."""
    found: list[tuple[Event, bool]] = []
    for word in words.split():
        match = _WORD.fullmatch(word)
        if match is None:
            raise InvariantViolation(f"{word!r} in stored.toml is no event")
        topic, a, k, time, source = match.groups()
        attributes = {name: int(value) for name, value in (("a", a), ("k", k)) if value}
        found.append((Event(topic, source or SOURCE, 1, int(time or 0), attributes), bool(time)))
    return found


def _timed(drafts: Sequence[tuple[Event, bool]]) -> tuple[Event, ...]:
    return renumbered(
        [
            event if given else msgspec.structs.replace(event, time=place)
            for place, (event, given) in enumerate(drafts, start=1)
        ]
    )


# --- writing --------------------------------------------------------------------------------------


def entry_text(section: str, example: Counterexample) -> str:
    """A counterexample as an entry of `stored.toml`."""
    scene = example.scene
    clauses = " ".join(scene.subscribers[0].clauses[1:])
    names = [one.name for one in scene.subscribers]
    words = [event_word(event, place, names) for place, event in enumerate(scene.events, start=1)]
    count = len(words) - scene.cycle_count
    formulas = ", ".join(f'"{formula_text(one)}"' for one in scene.subscribers)
    lines = [f'["{section}"."{example.verdict.name}"]', f"subscribers = [{formulas}]"]
    own = str(scene.subscribers[0].policy)
    lines += [f'policy = "{own}"'] if own != section else []
    lines += [f'clauses = "{clauses}"'] if clauses else []
    lines.append(f'events = "{" ".join(words[:count])}"')
    lines += [f'cycle = "{" ".join(words[count:])}"'] if scene.cycle_count else []
    if scene.arrivals:
        orders = [[i + 1 for i in scene.arrivals[name]] for name in names]
        lines.append(f"arrivals = {orders}")
    return "\n".join(lines) + "\n"


def entry_words(scene: Scene) -> str:
    """The events of a scene in one line: ↻ before a cycle, arrivals in square brackets."""
    names = [one.name for one in scene.subscribers]
    words = [event_word(event, i, names) for i, event in enumerate(scene.events, start=1)]
    count = len(words) - scene.cycle_count
    shown = words if not scene.cycle_count else [*words[:count], "↻", *words[count:]]
    orders = [" ".join(words[i] for i in scene.arrivals.get(name, ())) for name in names]
    return " ".join(shown) + "".join(f" [{order}]" for order in orders if order)


def formula_text(subscription: Subscription) -> str:
    """A formula without the instance 1 that everybody reads anyway."""
    formula = " or ".join(str(conjunction) for conjunction in subscription.conjunctions)
    return formula.replace("[1]", "") if not re.search(r"\[[2-9]\]", formula) else formula


def event_word(event: Event, place: int, processes: Sequence[str]) -> str:
    """An event as a word."""
    a, k = event.attributes.get("a"), event.attributes.get("k")
    word = f"{event.topic}{'' if a is None else a}{'' if k is None else f'k{k}'}"
    word += "" if event.time == place else f"@{event.time}"
    if event.source == SOURCE:
        return word
    known = event.source in processes
    return f"{word}/{f'p{processes.index(event.source) + 1}' if known else event.source}"
