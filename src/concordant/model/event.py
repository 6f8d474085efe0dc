"""Events: immutable typed facts with a place in one order.

An event knows its topic, its source and sequence number, its time and its attributes. It does not
know its place in a stream: that is given by whoever orders events (`position`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from concordant.model.kind import Value


class OrderKey(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The place of an event in the total order of a table: by time, then source, then seq."""

    time: int
    source: str
    seq: int


# Values are plain, so no cycle leads through an event: the garbage collector may pass over the many
# that a node keeps.
class Event(msgspec.Struct, frozen=True, gc=False):
    """An immutable fact.

    >>> Event("StockQuote", "exchange", 7, 0, {"symbol": "ACME", "value": 10.5}).id
    'exchange:7'
    """

    topic: str
    source: str
    seq: int
    time: int
    attributes: Mapping[str, Value] = {}
    id: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            msgspec.structs.force_setattr(self, "id", f"{self.source}:{self.seq}")

    @property
    def order_key(self) -> OrderKey:
        return OrderKey(self.time, self.source, self.seq)

    def read(self, name: str) -> Value:
        """The value of an attribute or of a reserved name; null if it has none."""
        if name == "time":
            return self.time
        if name == "source":
            return self.source
        if name == "seq":
            return self.seq
        return self.attributes.get(name)
