"""A file as it was when it was looked at: whoever reads it later finds the same, or says so.

Its bytes are copied, block after block, and never mapped: the process would end where somebody else
cuts a mapped file off. Knows files and lines, not what is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from concordant.correlate.columns import Array
from concordant.errors import UsageError

BLOCK = 1 << 22
"""Bytes that are read at once; a longer line makes the block longer."""

_FEED = b"\n"
_HINT = "make the DataFrame anew, from files that are whole and stay as they are"


@dataclass(frozen=True)
class Unchanged:
    """A file that is to stay as it was."""

    path: str
    size: int
    changed_ns: int

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Before and after this, the file is still the same."""
        self._check()
        yield
        self._check()

    def _check(self) -> None:
        if looked_at(self.path) != self:
            raise _changed(self.path)

    def blocks(self) -> Iterator[Array]:
        """All bytes, some whole lines at a time; what comes next is read into the same place."""
        with self.kept(), Path(self.path).open("rb", buffering=0) as file:
            buffer = bytearray(min(BLOCK, self.size))
            filled, left = 0, self.size
            while left or filled:
                got = file.readinto(memoryview(buffer)[filled:][:left])
                if not got and left:
                    raise _changed(self.path)
                filled, left = filled + got, left - got
                if left and filled < len(buffer):
                    continue
                end = buffer.rfind(_FEED, 0, filled) + 1 if left else filled
                if end:
                    yield np.frombuffer(buffer, np.uint8, end)
                    buffer[: filled - end] = buffer[end:filled]
                    filled -= end
                else:
                    buffer = buffer + bytes(len(buffer))


def looked_at(path: str) -> Unchanged:
    """A file as it is now."""
    status = Path(path).stat()
    return Unchanged(path, status.st_size, status.st_mtime_ns)


@contextmanager
def told(path: str) -> Iterator[None]:
    """What is wrong with a file that Spark has seen is told with its path."""
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"{path} is gone since the DataFrame was made", hint=_HINT) from None
    except (OSError, pa.ArrowInvalid) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=_HINT) from error


def _changed(path: str) -> UsageError:
    return UsageError(
        f"{path} has changed since it was looked at",
        hint=_HINT,
    )
