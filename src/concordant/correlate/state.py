"""The clear engine's state: queues as values, and their bytes.

Saved bytes begin with a magic word and a version and carry a checksum and each subscription's
fingerprint, so that a foreign, older or damaged state is refused instead of giving wrong relations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from concordant.correlate.matching import Entry
from concordant.correlate.plan import Part, Plan
from concordant.errors import UsageError
from concordant.model.event import Event
from concordant.model.kind import Value

MAGIC = b"concordant-state"
VERSION = 5
_DIGEST_SIZE = 16

Key = tuple[Value, ...]


class Counters(msgspec.Struct):
    """What happened to one subscription."""

    events: int = 0
    admitted: int = 0
    relations: int = 0
    expired: int = 0
    capped: int = 0
    """Events that a cap removed: relations may be missing because of them."""
    searched: int = 0
    """Queued events looked at by searches."""
    over_budget: int = 0
    """Searches that looked at more than the budget."""


class PartState(msgspec.Struct):
    """The queues of one part (a whole conjunction unless staged) in one partition."""

    queues: dict[str, list[Entry]]
    finished: list[list[Entry]]
    """Part-relations that wait for the other parts, first in first out."""
    leftover: bool = False
    """The last search delivered under `slide`, so another match may lie in the queues."""

    @staticmethod
    def empty(part: Part) -> PartState:
        return PartState({topic: [] for topic in part.topics}, [])


class ConjunctionState(msgspec.Struct):
    """One conjunction's partitions."""

    partitions: dict[Key, list[PartState]] = {}
    ordinals: dict[Key, int] = {}


class SubscriptionState(msgspec.Struct):
    """One subscription's conjunctions, in canonical order."""

    conjunctions: list[ConjunctionState]
    numbers: dict[Key, dict[str, int]] = {}
    """Events seen per partition value and topic."""
    positions: dict[Key, int] = {}
    queued: int = 0
    counters: Counters = msgspec.field(default_factory=Counters)


class EngineState(msgspec.Struct):
    """Everything an engine remembers."""

    subscriptions: list[SubscriptionState]
    position: int = 0
    serial: int = 0

    @staticmethod
    def empty(plan: Plan) -> EngineState:
        return EngineState(
            [
                SubscriptionState([ConjunctionState() for _ in one.conjunctions])
                for one in plan.subscriptions
            ]
        )


def partition_value(event: Event, names: Sequence[str]) -> Key:
    """The partition an event belongs to. Null is a value of its own, and NaN counts as null."""
    values = [event.read(name) for name in names]
    return tuple(
        (None if v != v else v + 0.0) if isinstance(v, float) else v  # -0.0 and 0.0 are one value
        for v in values
    )


def pack(plan: Plan, state: EngineState) -> bytes:
    """State to bytes."""
    return seal(plan, "engine", msgspec.msgpack.encode(_paired(state)))


def unpack(plan: Plan, data: bytes) -> EngineState:
    """Bytes to state, refusing what was not saved under this plan."""
    return _unpaired(msgspec.msgpack.decode(unseal(plan, "engine", data), type=_SavedEngine))


def seal(plan: Plan, owner: str, body: bytes) -> bytes:
    """Bytes of a state with version, checksum, owner and fingerprints before them."""
    prints = [(one.name, one.fingerprint) for one in plan.subscriptions]
    sealed = msgspec.msgpack.encode((owner, prints, body))
    return MAGIC + bytes([VERSION]) + _digest(sealed) + sealed


def unseal(plan: Plan, owner: str, data: bytes) -> bytes:
    """The bytes that were sealed, refusing what was not saved by this owner under this plan."""
    head = len(MAGIC) + 1 + _DIGEST_SIZE
    if not data.startswith(MAGIC) or len(data) < head:
        raise UsageError("these bytes are not a saved state", hint="start from an empty state")
    version = data[len(MAGIC)]
    if version != VERSION:
        raise UsageError(
            f"the state was saved in version {version}, and this is version {VERSION}",
            hint="replay the events from the start",
        )
    body = data[head:]
    if _digest(body) != data[len(MAGIC) + 1 : head]:
        raise UsageError("the saved state is damaged", hint="use an earlier state, or replay")
    saver, prints, state = msgspec.msgpack.decode(
        body, type=tuple[str, list[tuple[str, str]], bytes]
    )
    if saver != owner:
        raise UsageError(
            f"the state was saved by the {saver}, and this is the {owner}",
            hint=f"load it with the {saver}",
        )
    wanted = [(one.name, one.fingerprint) for one in plan.subscriptions]
    if prints != wanted:
        saved = ", ".join(name for name, _ in prints)
        raise UsageError(
            f"the state was saved by other subscriptions or schemas ({saved})",
            hint="use the subscriptions it was saved under, or start from an empty state",
        )
    return state


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest()


# MessagePack maps take no tuple as key, so dictionaries by partition are saved as pairs.


class _SavedConjunction(msgspec.Struct):
    partitions: list[tuple[Key, list[PartState]]]
    ordinals: list[tuple[Key, int]]


class _SavedSubscription(msgspec.Struct):
    conjunctions: list[_SavedConjunction]
    numbers: list[tuple[Key, dict[str, int]]]
    positions: list[tuple[Key, int]]
    queued: int
    counters: Counters


class _SavedEngine(msgspec.Struct):
    subscriptions: list[_SavedSubscription]
    position: int
    serial: int


def _paired(state: EngineState) -> _SavedEngine:
    return _SavedEngine(
        [
            _SavedSubscription(
                [
                    _SavedConjunction([*c.partitions.items()], [*c.ordinals.items()])
                    for c in one.conjunctions
                ],
                [*one.numbers.items()],
                [*one.positions.items()],
                one.queued,
                one.counters,
            )
            for one in state.subscriptions
        ],
        state.position,
        state.serial,
    )


def _unpaired(saved: _SavedEngine) -> EngineState:
    return EngineState(
        [
            SubscriptionState(
                [ConjunctionState(dict(c.partitions), dict(c.ordinals)) for c in one.conjunctions],
                dict(one.numbers),
                dict(one.positions),
                one.queued,
                one.counters,
            )
            for one in saved.subscriptions
        ],
        saved.position,
        saved.serial,
    )
