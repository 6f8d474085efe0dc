"""What an application has seen at one node, on its way to another where it publishes.

Where causes come before effects, a publisher has to know what its application has seen. Within a
node subscriptions tell it. An application that reads at one node and publishes at another carries
it over: sealed with the secret of the nodes, so that a stranger cannot make events wait for others
that do not exist. It knows bytes and keys; what is learnt is the strategy's matter.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from concordant.errors import UsageError
from concordant.machine.inputs import Request

_SEAL_BYTES = 16


class Seal:
    """Closes and opens what is carried over."""

    def __init__(self, secret: str) -> None:
        """`secret` is known to the nodes only."""
        self._key = blake2b(secret.encode()).digest()

    def close(self, feed: str, known: Request) -> bytes:
        """What is known of a feed, sealed."""
        body = msgspec.msgpack.encode((feed, msgspec.msgpack.encode(known)))
        return self._sign(body) + body

    def open(self, sealed: bytes, kinds: Mapping[str, type[Request]]) -> tuple[str, Request]:
        """The feed, and what is known of it."""
        body = sealed[_SEAL_BYTES:]
        if not hmac.compare_digest(sealed[:_SEAL_BYTES], self._sign(body)):
            raise UsageError(
                "what the application says that it has seen was not sealed by a node",
                hint="all nodes have to show the same credentials: [credentials] nodes",
            )
        feed, known = msgspec.msgpack.decode(body, type=tuple[str, bytes])
        if feed not in kinds:
            raise UsageError(
                f"what was seen by {feed} says nothing to this node",
                hint="start all nodes with one file",
            )
        return feed, msgspec.msgpack.decode(known, type=kinds[feed])

    def _sign(self, body: bytes) -> bytes:
        return blake2b(body, key=self._key, digest_size=_SEAL_BYTES).digest()
