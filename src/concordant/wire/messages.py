"""Messages of the protocols as bytes: runs of one kind in columns, the others one by one.

A `Codec` is made for the kinds of messages that a link may carry, and refuses all others. Bytes
from a stranger are decoded by type, so nothing nests deeper than the types do, and no list is
longer than the bytes that hold it; what does not fit is a `PeerError` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, get_type_hints

import msgspec

from concordant.errors import InvariantViolation, PeerError, UsageError
from concordant.machine.inputs import Message
from concordant.model.event import Event
from concordant.wire.events import EventColumns, columns_of

VERSION = 1
"""Of the whole format: it changes when a message of an old version would be misread."""

RUN_COUNT_MIN = 4
"""Shorter runs are sent one by one: columns have a head of their own."""


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages of one kind: fields as columns, or (without columns) rows."""

    kind: str
    count: int
    columns: list[msgspec.Raw]
    rows: msgspec.Raw = msgspec.Raw(b"\xc0")


class Codec:
    """Encodes and decodes messages of given kinds."""

    def __init__(self, kinds: Iterable[type[Message]]) -> None:
        self._kinds: dict[str, _Kind] = {}
        for kind in kinds:
            known = self._kinds.setdefault(kind.__name__, _Kind(kind))
            if known.kind is not kind:  # one would be read as the other
                raise InvariantViolation(
                    f"{kind.__module__} and {known.kind.__module__} both have a {kind.__name__}"
                )
        self._runs = msgspec.msgpack.Decoder(list[Run])
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, messages: Sequence[Message]) -> bytes:
        """Messages as bytes, in their order."""
        runs = []
        for kind, run in groupby(messages, type):
            known = self._kinds.get(kind.__name__)
            if known is None:
                raise UsageError(f"a {kind.__name__} is no message of this link")
            runs.append(known.run(list(run), self._encoder))
        return self._encoder.encode(runs)

    def decode(self, data: bytes) -> tuple[Message, ...]:
        """The messages in bytes from somewhere; what is wrong with them is the sender's fault."""
        try:
            return tuple(m for run in self._runs.decode(data) for m in self._messages(run))
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
            raise PeerError(f"the message cannot be read: {error}") from None

    def _messages(self, run: Run) -> Iterator[Message]:
        known = self._kinds.get(run.kind)
        if known is None:
            raise ValueError(f"unknown kind {run.kind[:40]!r}")
        return known.messages(run)


class _Kind:
    """How messages of one kind are written."""

    def __init__(self, kind: type[Message]) -> None:
        self.kind = kind
        hints = get_type_hints(kind)
        self.fields = [(name, hints[name]) for name in kind.__struct_fields__]
        self.rows = msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]
        self.columns = [
            msgspec.msgpack.Decoder(EventColumns if hint is Event else _column_type(hint))
            for _, hint in self.fields
        ]

    def run(self, messages: list[Message], encoder: msgspec.msgpack.Encoder) -> Run:
        count = len(messages)
        columns: list[msgspec.Raw] = []
        if count >= RUN_COUNT_MIN:
            for name, hint in self.fields:
                values = [getattr(message, name) for message in messages]
                column = columns_of(values) if hint is Event else _packed(values)
                if column is None:
                    columns = []
                    break
                columns.append(msgspec.Raw(encoder.encode(column)))
        if columns:
            return Run(self.kind.__name__, count, columns)
        return Run(self.kind.__name__, count, [], msgspec.Raw(encoder.encode(messages)))

    def messages(self, run: Run) -> Iterator[Message]:
        if not run.columns:
            rows: list[Message] = self.rows.decode(run.rows)
            if len(rows) != run.count:
                raise ValueError("rows of another number than said")
            return iter(rows)
        if len(run.columns) != len(self.fields):
            raise ValueError("columns of another number than fields")
        columns = [
            _values(decoder.decode(raw), run.count)
            for decoder, raw in zip(self.columns, run.columns, strict=True)
        ]
        return map(self.kind, *columns)


def _column_type(hint: Any) -> Any:
    """A column: distinct values and which of them each is, or the values themselves."""
    return tuple[list[hint], list[int] | None]


def _packed(values: list[Any]) -> tuple[list[Any], list[int] | None]:
    """Values, each distinct one once if that is shorter."""
    if isinstance(values[0], str | tuple):
        codes: dict[Any, int] = {}
        places = [codes.setdefault(value, len(codes)) for value in values]
        if 2 * len(codes) <= len(values):
            return list(codes), places
    return values, None


def _values(column: Any, count: int) -> list[Any]:
    if isinstance(column, EventColumns):
        column.check(count)
        return column.events()
    values, places = column
    if places is None:
        found = values
    else:
        if places and not 0 <= min(places) <= max(places) < len(values):
            raise ValueError("a code without a value")
        found = [values[place] for place in places]
    if len(found) != count:
        raise ValueError("columns of different lengths")
    return list(found)
