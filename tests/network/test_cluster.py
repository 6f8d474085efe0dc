"""A cluster of real processes over TCP: killed at random, it loses nothing and keeps one order."""

from __future__ import annotations

import json
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

NODES = ("p1", "p2", "s", "x1", "x2")
COUNT = 150
DEADLINE_S = 60


class Cluster:
    """Five processes: a sequencer, two publishers, two subscribers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in NODES]
        ports = {n: one.getsockname()[1] for n, one in zip(NODES, sockets, strict=True)}
        for one in sockets:
            one.close()
        self.file = folder / "cluster.json"
        self.file.write_text(
            json.dumps(
                {
                    "folder": str(folder),
                    "ports": ports,
                    "count": COUNT,
                    "pause_s": 0.004,
                    "token": secrets.token_hex(8),
                }
            )
        )
        self.processes = {name: self.start(name) for name in NODES}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.network.node", str(self.file), name],
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()
        self.processes[name] = self.start(name)

    def taken(self, name: str) -> list[str]:
        path = self.folder / f"{name}.taken"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def wait_for(self, count: int) -> None:
        """Until both subscribers have so much; a process that ended by itself is a failure."""
        deadline = time.monotonic() + DEADLINE_S
        while min(len(self.taken(name)) for name in ("x1", "x2")) < count:
            for name, process in self.processes.items():
                assert process.poll() is None, (self.folder / f"{name}.log").read_text()[-2_000:]
            assert time.monotonic() < deadline, {n: len(self.taken(n)) for n in ("x1", "x2")}
            time.sleep(0.02)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_nodes_come_back_and_nothing_told_is_lost(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster(tmp_path)
    try:
        for step in range(1, 5):
            cluster.wait_for(step * COUNT // 3)
            cluster.kill(rng.choice(NODES))
        cluster.wait_for(2 * COUNT)
    finally:
        cluster.stop()
    one, other = cluster.taken("x1"), cluster.taken("x2")
    assert one == other
    assert sorted(one) == sorted(f"{p}:{n}" for p in ("p1", "p2") for n in range(1, COUNT + 1))
    for source in ("p1", "p2"):
        mine = [one_id for one_id in one if one_id.startswith(source)]
        assert mine == [f"{source}:{n}" for n in range(1, COUNT + 1)]
