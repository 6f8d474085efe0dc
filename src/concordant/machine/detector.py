"""The failure detector as a machine: heartbeats in, suspicion out.

It disseminates a heartbeat to its group and watches the members of a view. Whoever is silent for
longer than the time-out is suspected; whoever is heard again is trusted again. Suspicion is a
guess: protocols on top have to stay safe when it is wrong, which is why the simulator sends them
false ones. It tells the machines of its own node that were named (`listeners`) or that asked
(`Watch`), and nobody else.
"""

from __future__ import annotations

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Disseminate, Effect, Listen, Send, SetTimer
from concordant.machine.inputs import Command, Input, Received, Started, TimerFired
from concordant.machine.instant import MILLISECOND, Duration, Instant
from concordant.machine.requests import Install
from concordant.machine.view import View

_BEAT = "beat"
_LOOK = "look"


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """I am alive."""

    member: str


class Suspected(msgspec.Struct, frozen=True, tag=True):
    """These members were silent for too long; they may be alive all the same."""

    members: tuple[str, ...]


class Trusted(msgspec.Struct, frozen=True, tag=True):
    """These members were suspected, and were heard again."""

    members: tuple[str, ...]


class Watch(msgspec.Struct, frozen=True, tag=True):
    """Tell me of suspicions from now on; or no longer."""

    wanted: bool = True


class DetectorOptions(msgspec.Struct, frozen=True):
    """How often to speak, and how long a silence may be."""

    group: str = "heartbeats"
    beat_us: Duration = 50 * MILLISECOND
    suspect_us: Duration = 300 * MILLISECOND


class _State(msgspec.Struct):
    view: View
    listeners: dict[str, bool]
    heard: dict[str, Instant] = {}
    suspected: dict[str, bool] = {}


class Detector:
    """Watches the members of a view for the machines of one node."""

    def __init__(
        self,
        member: str,
        *,
        view: View,
        listeners: tuple[str, ...] = (),
        options: DetectorOptions | None = None,
    ) -> None:
        self._member = member
        self._options = options or DetectorOptions()
        self._state = _State(view, dict.fromkeys(listeners, True))

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out: list[Effect] = []
        if isinstance(given, Received):
            self._hear(now, given, out)
        elif isinstance(given, TimerFired):
            for name in given.names:
                self._wake(now, name, given.cause, out)
        elif isinstance(given, Started):
            self._state.heard = dict.fromkeys(self._state.view.members, now)
            out.append(Listen((self._options.group,), given.cause))
            self._wake(now, _BEAT, given.cause, out)
            self._wake(now, _LOOK, given.cause, out)
        elif isinstance(given, Command):
            self._install(now, given)
        return out

    def _hear(self, now: Instant, given: Received, out: list[Effect]) -> None:
        state = self._state
        for message in given.messages:
            if type(message) is not Heartbeat and type(message) is not Watch:
                raise PeerError(f"a failure detector was sent a {type(message).__name__}")
        for message in given.messages:
            if isinstance(message, Watch):
                self._watch(given.source, message, given.cause, out)
            elif isinstance(message, Heartbeat) and message.member in state.heard:
                state.heard[message.member] = now
                if state.suspected.pop(message.member, False):
                    self._tell(Trusted((message.member,)), given.cause, out)

    def _watch(self, listener: str, message: Watch, cause: int, out: list[Effect]) -> None:
        state = self._state
        if not message.wanted:
            state.listeners.pop(listener, None)
        elif listener not in state.listeners:
            state.listeners[listener] = True
            if state.suspected:
                out.append(Send(listener, (Suspected(tuple(state.suspected)),), cause))

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        options, state = self._options, self._state
        if name == _BEAT:
            out.append(Disseminate(options.group, (Heartbeat(self._member),), cause))
            out.append(SetTimer(_BEAT, now + options.beat_us, cause))
        elif name == _LOOK:
            silent = [
                member
                for member, last in state.heard.items()
                if now - last > options.suspect_us
                and member != self._member
                and member not in state.suspected
            ]
            if silent:
                state.suspected.update(dict.fromkeys(silent, True))
                self._tell(Suspected(tuple(silent)), cause, out)
            out.append(SetTimer(_LOOK, now + options.suspect_us // 2, cause))

    def _install(self, now: Instant, given: Command) -> None:
        for request in given.requests:
            if type(request) is not Install:
                raise UsageError(
                    f"a failure detector cannot {type(request).__name__}",
                    hint="send the request to the client of the node",
                )
        state = self._state
        for request in given.requests:
            assert isinstance(request, Install)
            if request.view.newer_than(state.view):
                state.view = request.view
                members = request.view.members
                state.heard = {one: state.heard.get(one, now) for one in members}
                state.suspected = {one: True for one in members if one in state.suspected}

    def _tell(self, message: Suspected | Trusted, cause: int, out: list[Effect]) -> None:
        out += [Send(listener, (message,), cause) for listener in self._state.listeners]

    @property
    def held_count(self) -> int:
        return 0

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=_State)
