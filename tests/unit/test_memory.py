"""What a batch frees stays for the next one, where the C library can be told so."""

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
