"""Events as plain messages, for programs in any language: JSON, MessagePack and CloudEvents.

This is the wire format of the gateway (docs/reference/nats.md): bytes and headers to events that
can be published, and deliveries to bytes. It knows formats and refuses what does not fit, each
refusal with a short reason to be counted; it knows no server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, unquote

import msgspec

from concordant.errors import UsageError
from concordant.machine.effects import Delivery
from concordant.model.kind import format_instant
from concordant.net.given import given_of
from concordant.net.nats import token_of
from concordant.net.session import Given

Format = Literal["json", "msgpack", "cloudevents"]

CONTENT_TYPES: Mapping[Format, str] = {
    "json": "application/json",
    "msgpack": "application/msgpack",
    "cloudevents": "application/cloudevents+json",
}

ORIGIN = "origin"
"""What the publisher said about itself stands in attributes below this name: the gateway is the
source of what it publishes, and its clock gives the times."""

_SAID = ("source", "seq", "id", "time")
_BATCH = "application/cloudevents-batch+json"
_MSGPACK = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
_CLOUD = "ce-"


class Refusal(Exception):  # noqa: N818 - an outcome: it is counted, and answered if somebody asked
    """A message that is no event: a reason of few words to count, and a sentence."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


# --- topics and subjects --------------------------------------------------------------------------


def subject_of(prefix: str, topic: str) -> str:
    """The subject of a topic: its dots are the subject's, all else is percent-encoded.

    >>> subject_of("ordered", "shop.new order"), subject_of("ordered", "a..b")
    ('ordered.shop.new%20order', 'ordered.a%2E%2Eb')
    """
    parts = topic.split(".")
    if not all(parts):
        return f"{prefix}.{token_of(topic)}"
    return ".".join([prefix, *map(token_of, parts)])


def topic_of(prefix: str, subject: str) -> str:
    """The topic that a subject below the prefix names.

    >>> topic_of("events", "events.shop.new%20order")
    'shop.new order'
    """
    try:
        tokens = subject[len(prefix) + 1 :].split(".")
        return ".".join(unquote(token, errors="strict") for token in tokens)
    except UnicodeDecodeError:
        raise Refusal("topic", f"the subject {subject[:80]!r} names no topic") from None


# --- in -------------------------------------------------------------------------------------------


def events_of(
    topic: str, data: bytes, headers: Mapping[str, str] | None, *, count_max: int
) -> list[Given]:
    """The events of a message to a topic; `Refusal` if it has none that can be published.

    >>> found = events_of("Order", b'{"to": {"city": "Bonn"}, "id": "x"}', None, count_max=9)
    >>> found[0].attributes
    {'to.city': 'Bonn', 'origin.id': 'x'}
    """
    said = {name.lower(): value for name, value in (headers or {}).items()}
    kind = said.get("content-type", "application/json").partition(";")[0].strip().lower()
    value = _decoded(data, kind)
    if f"{_CLOUD}type" in said:
        cloud = {
            name[len(_CLOUD) :]: unquote(one) for name, one in said.items() if name[:3] == _CLOUD
        }
        return [_of_cloud({**cloud, "data": value})]
    if kind in (CONTENT_TYPES["cloudevents"], _BATCH):
        return [_of_cloud(row) for row in _rows(value, count_max)]
    return [_of_plain(topic, row) for row in _rows(value, count_max)]


def _decoded(data: bytes, kind: str) -> Any:
    try:
        if kind in _MSGPACK:
            return msgspec.msgpack.decode(data)
        if kind.endswith("json") or not kind:
            return msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        name = "MessagePack" if kind in _MSGPACK else "JSON"
        raise Refusal("format", f"the message is no {name}: {error}") from None
    raise Refusal("format", f"the content type {kind[:80]!r} is not known here")


def _rows(value: Any, count_max: int) -> list[Mapping[str, Any]]:
    """One event, or a list of them."""
    rows = value if isinstance(value, list) else [value]
    if not rows:
        raise Refusal("empty", "the message has no event")
    if len(rows) > count_max:
        raise Refusal("count", f"a message has at most {count_max:,} events, not {len(rows):,}")
    for row in rows:
        if not isinstance(row, dict):
            raise Refusal("format", "an event is an object with its attributes, or a list of them")
    return rows


def _of_plain(topic: str, row: Mapping[str, Any]) -> Given:
    rest = dict(row)
    named = rest.pop("topic", topic)
    if named != topic:
        raise Refusal(
            "topic", f"the event names the topic {named!r:.80}, and its subject {topic!r:.80}"
        )
    said = {name: rest.pop(name) for name in _SAID if name in rest}
    return _given(topic, rest, said)


def _of_cloud(row: Mapping[str, Any]) -> Given:
    rest = dict(row)
    if rest.pop("specversion", None) != "1.0":
        raise Refusal("cloudevent", "a CloudEvent says specversion 1.0")
    topic = rest.pop("type", None)
    for name, value in (("type", topic), ("source", rest.get("source")), ("id", rest.get("id"))):
        if not isinstance(value, str) or not value:
            raise Refusal("cloudevent", f"a CloudEvent has a {name}, which is a text")
    data = rest.pop("data", None)
    if "data_base64" in rest:
        raise Refusal("cloudevent", "the data of the CloudEvent is binary: send JSON")
    rest.pop("datacontenttype", None)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise Refusal("cloudevent", "the data of the CloudEvent is no object with attributes")
    assert isinstance(topic, str)
    return _given(topic, data, rest)


def _given(topic: str, attributes: Mapping[str, Any], said: Mapping[str, Any]) -> Given:
    if ORIGIN in attributes or any(name.startswith(f"{ORIGIN}.") for name in map(str, attributes)):
        raise Refusal("attribute", f"{ORIGIN!r} is given by the gateway, and is no attribute")
    row = {**attributes, ORIGIN: dict(said)} if said else attributes
    try:
        found = given_of({**row, "topic": topic})
    except UsageError as error:
        raise Refusal("attribute", error.message) from None
    if found.time is not None or found.id:  # in the data of a CloudEvent
        raise Refusal("attribute", "'time' and 'id' are the event's, and no attributes")
    return found


def name_of(given: Given) -> str:
    """What tells a repetition: the publisher's own id, with its source; nothing if it gave none."""
    id = given.attributes.get(f"{ORIGIN}.id")
    if id is None:
        return ""
    return f"{quote(str(given.attributes.get(f'{ORIGIN}.source', '')))} {given.topic} {id}"


# --- out ------------------------------------------------------------------------------------------


def message_of(delivery: Delivery, previous: int | None, *, format: Format) -> bytes:
    """A delivery of one event; `previous` is the position before it on the same topic, if known."""
    (event,) = delivery.events
    if format == "cloudevents":
        said = {
            name[len(ORIGIN) + 1 :]: value
            for name, value in event.attributes.items()
            if name.startswith(f"{ORIGIN}.")
        }
        own = {
            name: value
            for name, value in event.attributes.items()
            if not name.startswith(f"{ORIGIN}.")
        }
        return msgspec.json.encode(
            {
                **{name: value for name, value in said.items() if name.isalnum()},
                "specversion": "1.0",
                "type": event.topic,
                "source": said.get("source", event.source),
                "id": said.get("id", event.id),
                "time": format_instant(event.time),
                "sequence": f"{delivery.position:020d}",
                **({} if previous is None else {"previous": previous}),
                "inorder": delivery.in_order,
                "datacontenttype": "application/json",
                "data": own,
            }
        )
    row = {
        "position": delivery.position,
        "previous": previous,
        "in_order": delivery.in_order,
        "topic": event.topic,
        "source": event.source,
        "seq": event.seq,
        "id": event.id,
        "time": event.time if format == "msgpack" else format_instant(event.time),
        "attributes": dict(event.attributes),
    }
    return msgspec.msgpack.encode(row) if format == "msgpack" else msgspec.json.encode(row)
