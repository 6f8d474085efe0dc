"""What several of these tests begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.nats_process import NatsProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsProcess]:
    """A NATS server for one test; modules that share one have their own."""
    made = NatsProcess(tmp_path / "nats")
    yield made
    made.stop()
