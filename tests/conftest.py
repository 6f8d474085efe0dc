"""What all tests share: how Hypothesis searches, Spark's Python, and that Ctrl-C is heard.

`check` (the default) draws the same examples in every run, so that a red build is red for everyone;
`campaign` draws new ones and many more: `pytest --hypothesis-profile=campaign`. Neither has a
deadline per example, because the first call of a compiled function takes as long as its compiler.
"""

from __future__ import annotations

import os
import signal
import sys

from hypothesis import HealthCheck, settings

# A busy machine draws slowly, which says nothing about the tests.
_SLOW = (HealthCheck.too_slow,)
settings.register_profile("check", derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("campaign", max_examples=5_000, deadline=None, print_blob=True)
settings.load_profile("check")

# Without it Spark starts the first `python3` of the PATH, which has none of our packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# A shell without job control starts what it puts in the background deaf to Ctrl-C, and so would be
# the commands that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
