"""One node of a cluster as a process of its own: `python -m tests.network.node CLUSTER NAME`.

CLUSTER is a JSON file: ports by node, the folder, and how many events each publisher publishes. The
application of a subscriber is a file with one id per line; what is in it was taken.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from concordant.machine.effects import Delivery
from concordant.machine.requests import Publish
from concordant.net.carrier import MeshCarrier
from concordant.net.host import Place
from concordant.net.link import Identity
from concordant.net.tcp import Mesh, TcpOptions
from concordant.order.broadcast.sequencer import (
    Acknowledged,
    Ordered,
    SequencedClient,
    Sequencer,
    Settled,
)
from concordant.order.client import Delivered, Joined, Left, Published
from concordant.order.streams import Ask, Gone, Mark, Numbered
from concordant.wire.messages import Codec

SEQUENCER = "s"
TOPICS = ("A", "B")
MESSAGES = (Numbered, Mark, Ask, Gone, Acknowledged)
RECORDS = (Published, Delivered, Joined, Left, Ordered, Settled)
OPTIONS = TcpOptions(silence_s=2.0, alive_s=0.3, retry_s=0.02, retry_s_max=0.2)


class Taken:
    """The application of a subscriber."""

    def __init__(self, path: Path) -> None:
        whole = path.read_bytes() if path.exists() else b""
        end = whole.rfind(b"\n") + 1
        self.count = whole.count(b"\n")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)

    def take(self, deliveries: Sequence[Delivery]) -> None:
        lines = [f"{event.id}\n" for one in deliveries for event in one.events]
        os.write(self._file, "".join(lines).encode())


async def main(cluster: Path, name: str) -> None:
    known = json.loads(cluster.read_text())
    folder = Path(known["folder"])
    ports: dict[str, int] = known["ports"]
    mesh = Mesh(
        Identity("test", name, secrets.token_hex(8), known["token"]),
        {node: ("127.0.0.1", port) for node, port in ports.items()},
        options=OPTIONS,
    )
    await mesh.start("127.0.0.1", ports[name])
    carrier = MeshCarrier(mesh, Codec(MESSAGES))
    publishers = tuple(node for node in ports if node.startswith("p"))
    taken = Taken(folder / f"{name}.taken") if name.startswith("x") else None
    machine: Sequencer | SequencedClient
    if name == SEQUENCER:
        machine = Sequencer(name)
    else:
        machine = SequencedClient(
            name,
            topics=TOPICS if taken else (),
            publishes=TOPICS if name in publishers else (),
            sources=dict.fromkeys(TOPICS, publishers),
            sequencer=SEQUENCER,
        )
    place = Place(
        name,
        machine,
        carrier,
        take=taken.take if taken else None,
        taken_count=taken.count if taken else 0,
        folder=folder / name,
        records=RECORDS,
    )
    carrier.add(place)
    if isinstance(machine, SequencedClient) and name in publishers:
        while machine._state.seq < known["count"]:
            number = machine._state.seq
            place.command(Publish(TOPICS[number % 2], {"n": number}))
            await place.settled()
            (folder / f"{name}.told").write_text(str(number + 1))
            await asyncio.sleep(known["pause_s"])
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
