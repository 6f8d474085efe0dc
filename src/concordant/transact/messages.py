"""What brokers and clients tell each other inside transactions.

Links are first in, first out and lose nothing (`route.link`). A message that is late, doubled or
for a transaction that nobody knows is dropped without a word; that is normal after an abort.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from concordant.model.event import Event
from concordant.route.filter import Filter
from concordant.route.link import Wire
from concordant.route.messages import Published, Regular
from concordant.route.requests import Asked
from concordant.transact.actions import Step
from concordant.transact.requests import Abort, Act, Begin, Commit, Return, Run, Status

OperationKind = Literal[
    "advertise",
    "unadvertise",
    "subscribe",
    "unsubscribe",
    "publish",
    "trigger",
    "attract",
    "retract",
]


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is done: an action as brokers see it, with ids and events."""

    kind: OperationKind
    """`attract`, `retract`: a subscription follows an advertisement that comes or goes."""
    id: str = ""
    filter: Filter = Filter()
    """Of an end, too: it travels and clashes where the filter says."""
    event: Event | None = None
    target: str = ""
    steps: tuple[Step, ...] = ()
    """What the target of a planned trigger does."""
    added_by: str = ""
    deleted_by: tuple[str, ...] = ()
    """Of what is attracted: the transactions that have it pending."""


# --- a client and its broker ----------------------------------------------------------------------


class Open(msgspec.Struct, frozen=True, tag=True):
    """Begin an isolated transaction."""

    tx: str


class Opened(msgspec.Struct, frozen=True, tag=True):
    """Its operations may come."""

    tx: str


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The coordinator of a dynamic transaction has no further operation: commit."""

    tx: str


class Refuse(msgspec.Struct, frozen=True, tag=True):
    """Abort, if nothing is decided yet."""

    tx: str
    reason: str


class Ask(msgspec.Struct, frozen=True, tag=True):
    """What became of it?"""

    tx: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The outcome."""

    tx: str
    committed: bool
    reason: str = ""


class EndTaken(msgspec.Struct, frozen=True, tag=True):
    """The client knows the outcome."""

    tx: str


class Notified(msgspec.Struct, frozen=True, tag=True):
    """An event of a committed transaction."""

    tx: str
    op: str
    event: Event


class NotificationTaken(msgspec.Struct, frozen=True, tag=True):
    """The client has it: there is room in its mailbox again."""

    tx: str
    op: str


class Recalled(msgspec.Struct, frozen=True, tag=True):
    """To a client that lost its memory in the midst of it: what the transaction changed of its."""

    advertisements: tuple[tuple[str, Filter], ...] = ()
    subscriptions: tuple[tuple[str, Filter], ...] = ()
    gone: tuple[str, ...] = ()


# --- operations -----------------------------------------------------------------------------------


class Perform(msgspec.Struct, frozen=True, tag=True):
    """An operation of a dynamic transaction; answered when it is done everywhere."""

    tx: str
    op: str
    what: Operation


class Performed(msgspec.Struct, frozen=True, tag=True):
    """It is done. `ran`: of a trigger, its target ran."""

    tx: str
    op: str
    ran: bool = True


class Place(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An operation of a static transaction, to be done after another."""

    tx: str
    op: str
    after: str
    what: Operation
    last: bool = False
    """It is the last: whoever has done it can say whether it can commit."""


class Mark(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """In place of `Place` where there is nothing to do: the operation has passed."""

    tx: str
    op: str
    after: str
    last: bool = False


class Echo(msgspec.Struct, frozen=True, tag=True):
    """An advertisement has arrived everywhere behind here, and what it attracts is on its way."""

    tx: str
    op: str


class Planned(msgspec.Struct, frozen=True, tag=True):
    """To the target of a planned trigger: do these steps."""

    tx: str
    op: str
    steps: tuple[Step, ...]


class Tagged(msgspec.Struct, frozen=True, tag=True):
    """A subscription that some transactions have pending."""

    id: str
    filter: Filter
    added_by: str
    deleted_by: tuple[str, ...]


# --- ending ---------------------------------------------------------------------------------------


class Up(msgspec.Struct, frozen=True, tag=True):
    """To the root: open, prepare or abort a transaction."""

    tx: str
    what: Literal["open", "prepare", "abort"]
    reason: str = ""


class Init(msgspec.Struct, frozen=True, tag=True):
    """From the root: the transaction sees what is committed now."""

    tx: str


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Can this be committed? In a static transaction nobody has to ask."""

    tx: str


class Vote(msgspec.Struct, frozen=True, tag=True):
    """Everybody behind here can, or somebody cannot."""

    tx: str
    yes: bool
    reason: str = ""


class Decide(msgspec.Struct, frozen=True, tag=True):
    """The decision."""

    tx: str
    committed: bool
    reason: str = ""


class DecisionTaken(msgspec.Struct, frozen=True, tag=True):
    """Everybody behind here has done what was decided."""

    tx: str


class Forget(msgspec.Struct, frozen=True, tag=True):
    """Everybody has: nothing of it is under way any more."""

    tx: str


FROM_CLIENTS = (Open, Finished, Refuse, Ask, EndTaken, NotificationTaken, Perform, Performed, Place)
TO_CLIENTS = (Opened, Ended, Notified, Recalled, Perform, Performed, Planned)
_BETWEEN = (Perform, Performed, Prepare, Vote, Decide, DecisionTaken, Forget)
BETWEEN_SHARED = (*_BETWEEN, Place, Mark, Echo, Tagged, Refuse)
BETWEEN_ISOLATED = (*_BETWEEN, Up, Init)

Transactional = (
    Open
    | Opened
    | Finished
    | Refuse
    | Ask
    | Ended
    | EndTaken
    | Notified
    | NotificationTaken
    | Recalled
    | Perform
    | Performed
    | Place
    | Mark
    | Echo
    | Planned
    | Tagged
    | Up
    | Init
    | Prepare
    | Vote
    | Decide
    | DecisionTaken
    | Forget
)
AnyMessage = Regular | Transactional


class Packet(msgspec.Struct, frozen=True, tag="TransactPacket"):
    """See `route.packet`; this one carries transactions as well."""

    session: int
    first: int
    messages: tuple[AnyMessage, ...]
    taken: int
    asks: bool = False


WIRE = Wire(
    Packet, AnyMessage, Asked | Begin | Run | Act | Return | Commit | Abort | Status, (Published,)
)
