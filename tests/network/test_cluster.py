"""Processes that are killed under load, over TCP and over NATS; the campaign does it at length."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.campaign.network import killed


@pytest.mark.parametrize("transport", ["tcp", "nats"])
def test_killed_nodes_come_back_and_nothing_told_is_lost(tmp_path: Path, transport: str) -> None:
    found = killed("sequencer", transport, Random(1), 2, tmp_path, server_kills=1)
    assert found.failures == []
    assert found.kill_count == 2
    assert found.server_kill_count == (transport == "nats")
    assert found.lost_count == 0
    assert found.told_count > 50
