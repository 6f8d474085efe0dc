"""Memory settings of our own programs: what is freed stays, and cycles are looked for rarely.

A batch needs arrays of some megabytes for a moment. The C library hands such memory back to the
system at once, and each page of the next batch is asked for anew: on a virtual machine that took a
third to a half of the time in which a million events are matched. Programs of ours that work
through batches say at their start that a bounded amount is kept. Arrow has a library of its own for
its memory, which hands back as well and cannot be told: it is given the C library's.

A node makes many objects that die at once and hardly ever in a cycle. Python looks for cycles after
every 700 that are left over, which took a seventh of the time of a node with a hundred subscribers.
And each time it reads from a connection it is given a quarter of a megabyte for a moment, which is
memory that the system hands out anew as well: that took longer than all else about a short frame.

Both are said by whoever owns the process; a library in somebody else's program says neither.
"""

from __future__ import annotations

import ctypes
import gc
import sys

KEPT_BYTES = 256 << 20
"""At most so much free memory stays at the end of the heap; a larger array is never kept."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of `mallopt` in malloc.h of the GNU C library."""


NODE_KEPT_BYTES = 16 << 20
COLLECTED_COUNT = 100_000
"""Objects left over before cycles are looked for: some tens of megabytes at most."""


def as_node() -> None:
    """What a process that is a node says at its start."""
    keep_freed(NODE_KEPT_BYTES)
    collect_rarely()


def collect_rarely(count: int = COLLECTED_COUNT) -> None:
    """Look for cycles rarely, and never among what the program has loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(count, 20, 20)


def keep_freed(byte_count: int = KEPT_BYTES) -> bool:
    """Keep what is freed for the next batch, by Arrow too if it is loaded.

    False where the C library has no such setting.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    settings = (_MMAP_THRESHOLD, _TRIM_THRESHOLD)
    kept = all(library.mallopt(setting, byte_count) for setting in settings)
    arrow = sys.modules.get("pyarrow")
    if kept and arrow is not None:
        arrow.set_memory_pool(arrow.system_memory_pool())
    return kept
