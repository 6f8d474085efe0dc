"""Memory that one batch gives back and the next one takes again stays with the process.

A batch needs arrays of some megabytes for a moment. The C library hands such memory back to the
system at once, and each page of the next batch is asked for anew: on a virtual machine that took a
third to a half of the time in which a million events are matched. Programs of ours that work
through batches say at their start that a bounded amount is kept; a library in somebody else's
program does not.
"""

from __future__ import annotations

import ctypes
import sys

KEPT_BYTES = 256 << 20
"""At most so much free memory stays at the end of the heap; a larger array is never kept."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of `mallopt` in malloc.h of the GNU C library."""


def keep_freed(byte_count: int = KEPT_BYTES) -> bool:
    """Keep what is freed for the next batch; False where the C library has no such setting."""
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    settings = (_MMAP_THRESHOLD, _TRIM_THRESHOLD)
    return all(library.mallopt(setting, byte_count) for setting in settings)
