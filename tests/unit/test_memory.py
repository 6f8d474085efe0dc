"""What a batch frees stays for the next one, where the C library can be told so; cycles are looked
for rarely, and are found."""

from __future__ import annotations

import subprocess
import sys

import pytest

TOUCH = """
import resource, numpy
from concordant.memory import keep_freed
if {kept}:
    assert keep_freed()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        [numpy.ones(2_000_000) for _ in range(6)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def faults_of(*, kept: bool) -> int:
    """Pages that four batches of six arrays of 16 MB cost when there was one before."""
    code = TOUCH.format(kept=kept)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of the GNU C library")
def test_what_is_freed_is_not_asked_for_again() -> None:
    assert faults_of(kept=True) < 100 < faults_of(kept=False)


OF_ARROW = """
import pyarrow
from concordant.memory import keep_freed
before = pyarrow.default_memory_pool().backend_name
assert keep_freed()
print(before, pyarrow.default_memory_pool().backend_name)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of the GNU C library")
def test_arrow_asks_the_library_that_was_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OF_ARROW], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["mimalloc", "system"]


RUBBISH = """
import gc
from concordant.memory import collect_rarely
collect_rarely(2_000)
before = gc.get_stats()[0]["collections"]
class Knot:
    left = 0
    def __init__(self):
        self.me = self
        Knot.left += 1
    def __del__(self):
        Knot.left -= 1
for _ in range(10_000):
    Knot()
print(gc.get_stats()[0]["collections"] - before, Knot.left)
"""


def test_cycles_are_looked_for_rarely_and_found() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUBBISH], capture_output=True, text=True, check=True
    )
    looked, left = map(int, done.stdout.split())
    assert 3 <= looked <= 12 and left < 4_000
