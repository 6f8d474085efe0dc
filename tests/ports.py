"""Free ports for tests that start nodes."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses at this moment, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
