"""What an application asks of a client inside and around transactions."""

from __future__ import annotations

import msgspec

from concordant.transact.actions import Action, Kind, Plan


class Begin(msgspec.Struct, frozen=True, tag=True):
    """Begin a dynamic transaction; the client's `last_transaction` is its name."""

    kind: Kind


class Run(msgspec.Struct, frozen=True, tag=True):
    """Run a static transaction."""

    plan: Plan


class Act(msgspec.Struct, frozen=True, tag=True):
    """A further action, done when the ones before it are done everywhere."""

    tx: str
    action: Action
    thread: str = ""
    """The trigger that the actor answers; empty for the coordinator."""


class Return(msgspec.Struct, frozen=True, tag=True):
    """The actor has no further action in answer to a trigger."""

    tx: str
    thread: str
    ran: bool = True
    """False: it does not answer to such triggers, and the transaction cannot go on."""


class Commit(msgspec.Struct, frozen=True, tag=True):
    """The coordinator has no further action."""

    tx: str


class Abort(msgspec.Struct, frozen=True, tag=True):
    tx: str
    reason: str = "its coordinator gave up"


class Status(msgspec.Struct, frozen=True, tag=True):
    """Deliver the outcome (again)."""

    tx: str
