"""Nodes and applications over TLS, from a cluster file: certificates and tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import trustme

from concordant.bus import Bus
from concordant.errors import UsageError
from concordant.net.caller import CallerOptions
from concordant.net.cluster import read_cluster
from concordant.net.node import Node
from tests.ports import free_ports

QUICK = CallerOptions(connect_s=5.0, retry_s=0.02, retry_s_max=0.2)


async def test_over_tls_nodes_and_applications_talk_and_strangers_do_not(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    for name in ("n1", "n2"):
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    (tmp_path / "token").write_text("for nodes\n")
    ports = free_ports(4)
    file = tmp_path / "cluster.toml"
    file.write_text(
        '[cluster]\nname = "shop"\nstrategies = ["sequencer"]\n'
        f'[nodes.n1]\ndoor = "127.0.0.1:{ports[0]}"\naddress = "127.0.0.1:{ports[1]}"\n'
        f'[nodes.n2]\ndoor = "127.0.0.1:{ports[2]}"\naddress = "127.0.0.1:{ports[3]}"\n'
        '[credentials]\nnodes = "file:token"\napplications = "for applications"\n'
        '[tls]\nauthority = "ca.pem"\ncertificate = "{node}.pem"\nkey = "{node}.key"\n'
    )
    nodes = [Node(read_cluster(file), name, beside=tmp_path) for name in ("n1", "n2")]
    for node in nodes:
        await node.start()
    door = f"tcp://127.0.0.1:{ports[0]}"
    other = f"tcp://127.0.0.1:{ports[2]}"
    shown = {"token": "for applications", "authority": str(tmp_path / "ca.pem"), "options": QUICK}
    async with (
        asyncio.timeout(30),
        Bus.open(door, name="p", **shown) as bus,
        Bus.open(other, **shown) as reader,
        reader.subscribe("T", order="total strict") as found,
    ):
        await bus.publish("T", {"n": 1})
        assert (await anext(found)).events[0].id == "p:1"
    hasty = CallerOptions(connect_s=0.5)
    for wrong in (
        {"authority": str(tmp_path / "other.pem")},
        {"authority": ""},
        {"token": "guess"},
    ):
        with pytest.raises(UsageError, match=r"nobody answers|does not let us in"):
            async with Bus.open(door, **{**shown, "options": hasty, **wrong}):
                pass
    for node in nodes:
        await node.stop()
