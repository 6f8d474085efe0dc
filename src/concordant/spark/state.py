"""The state of one bucket as bytes: kernels, held events, how far it has released.

One versioned blob, so that neither Spark nor a file system has to know what is in it. Foreign,
older and damaged bytes are refused. Knows no rows in motion (see `step`).
"""

from __future__ import annotations

import hashlib

import msgspec

from concordant.errors import UsageError
from concordant.model.kind import INT_MIN

MAGIC = b"concordant-bucket"
VERSION = 4
_DIGEST_SIZE = 16
_DIGEST = slice(len(MAGIC) + 1, len(MAGIC) + 1 + _DIGEST_SIZE)


class BucketState(msgspec.Struct):
    """Everything a bucket remembers."""

    fingerprints: list[str] = []
    """One per set of the job that it was saved under; later jobs may have more."""
    bucket_count: int = 0
    """Where Spark keeps the state: how many buckets there are."""
    kernels: list[bytes | None] = []
    """One per set of the job; None where no event came yet. Each carries its own fingerprint."""
    seen: list[bytes] = []
    """One per set: the ids that are remembered, where ids must not come again."""
    held: bytes = b""
    """Rows that wait for their release, as an Arrow stream."""
    topics: list[str] = []
    """The topics that held rows have as codes: the n-th has code n."""
    held_count: int = 0
    released_us: int = INT_MIN
    """Events before this time have been released: whoever comes now and is older is late."""
    source: str = ""
    last_seq: int = INT_MIN
    """Of a log: its one source, and the last number released, in whichever bucket."""
    marks: dict[str, int] = {}
    """How far each source is known to have come: its latest time or, of a log, its last number."""


def seal(state: BucketState) -> bytes:
    """State to bytes."""
    body = msgspec.msgpack.encode(state)
    digest = hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest()
    return MAGIC + bytes([VERSION]) + digest + body


def unseal(data: bytes) -> BucketState:
    """Bytes to state, refusing what is none."""
    if not data.startswith(MAGIC) or len(data) < _DIGEST.stop:
        raise UsageError(
            "the checkpoint holds bytes that are no saved state",
            hint="it belongs to something else: give a checkpoint folder of its own",
        )
    if data[len(MAGIC)] != VERSION:
        raise UsageError(
            f"the checkpoint was saved in version {data[len(MAGIC)]}, and this is {VERSION}",
            hint="start from an empty checkpoint, which replays the input",
        )
    body = data[_DIGEST.stop :]
    if hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest() != digest_of(data):
        raise UsageError(
            "a saved state in the checkpoint is damaged",
            hint="restore the checkpoint, or start from an empty one",
        )
    return msgspec.msgpack.decode(body, type=BucketState)


def digest_of(data: bytes) -> bytes:
    """What tells saved bytes from all others, without a look at the rest."""
    return data[_DIGEST]
