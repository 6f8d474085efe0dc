"""What a worker process keeps between micro-batches: jobs it has unpacked, buckets it has open.

To build the kernels of a bucket from its bytes takes time that grows with the number of
subscriptions, and most buckets come back to a process that had them open. A bucket is taken again
only if it was saved as exactly the bytes that are to be opened, under the same job; in every other
case (another worker had it, a retry, an older micro-batch after a crash) the bytes count.
"""

from __future__ import annotations

import gc
import pickle
from collections import OrderedDict
from functools import cache, lru_cache

from concordant.memory import keep_freed
from concordant.spark.job import Job
from concordant.spark.state import digest_of
from concordant.spark.step import Bucket

BYTES_MAX = 64 << 20
"""Saved size of all buckets that a process keeps open, about a fifth of what they take in memory;
beyond it the longest unused are closed."""

JOBS_MAX = 4
"""Jobs that a process keeps unpacked."""


class WarmBuckets:
    """Open buckets by the bytes they were saved as."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._open: OrderedDict[bytes, tuple[Bucket, int]] = OrderedDict()
        self._bytes = 0

    def open(self, packed: bytes, saved: bytes | None) -> Bucket:
        """The bucket of a saved state under a packed job; whoever gets it has it alone."""
        job = unpacked_job(packed)
        bucket = None if saved is None else self._take(digest_of(saved))
        return bucket if bucket is not None and bucket.job is job else Bucket(job, saved)

    def keep(self, bucket: Bucket, saved: bytes) -> None:
        """Give a bucket back, open, as it was just saved."""
        self._take(digest_of(saved))
        self._open[digest_of(saved)] = bucket, len(saved)
        self._bytes += len(saved)
        while self._bytes > self._bytes_max:
            self._take(next(iter(self._open)))

    def _take(self, digest: bytes) -> Bucket | None:
        bucket, size = self._open.pop(digest, (None, 0))
        self._bytes -= size
        return bucket


WARM = WarmBuckets()
"""Of this process."""


@cache
def settle() -> None:
    """What is loaded by the end of a first task stays: nobody has to look for garbage there.

    Spark's workers collect all garbage after every task, and look at every module's objects then.
    The memory of a task stays as well, for the next one.
    """
    gc.freeze()
    keep_freed()


@lru_cache(maxsize=JOBS_MAX)
def unpacked_job(packed: bytes) -> Job:
    """A job that was sent as bytes; the same object for the same bytes."""
    job: Job = pickle.loads(packed)
    return job
