"""`concordant node`: one node of a cluster, until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from concordant.cli import terminal
from concordant.errors import ConcordantError, UsageError
from concordant.memory import as_node
from concordant.net.cluster import Cluster, read_cluster
from concordant.net.node import Node
from concordant.net.status import journal


@terminal.guarded
def node(
    cluster: Annotated[
        Path, typer.Argument(metavar="CLUSTER", show_default=False, help="A cluster file (.toml).")
    ],
    name: Annotated[
        str,
        typer.Option(metavar="N", help="Which of its nodes; not needed where there is only one."),
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Look at the file, say what it means, and stop.")
    ] = False,
    json: terminal.Json = False,
) -> None:
    """Run one node of a cluster: it hosts the machines that the file gives it.

    It runs until it gets SIGTERM or SIGINT (Ctrl-C); what it has told anybody is on the disk then.
    What happens is written to standard error, one line of JSON each. Health and metrics are at the
    address `http` of the node, under /health and /metrics.

    \b
    Examples:
      concordant node cluster.toml --name n1
      concordant node cluster.toml --check
    """
    found = read_cluster(cluster)
    if not name and len(found.nodes) == 1:
        name = found.names[0]
    if not name and not check:
        raise UsageError(
            "which node is this?",
            hint=f"--name, one of {', '.join(found.names)}",
            place=str(cluster),
        )
    if check:
        _show(found, json=json)
        return
    made = Node(found, name, beside=cluster.parent, place=str(cluster), say=journal(name))
    as_node()
    asyncio.run(_run(made))


def _show(found: Cluster, *, json: bool) -> None:
    placed = dict(found.setting(found.names[0]).placed)
    strategies = [
        {"order": one.level, "strategy": one.name, "feed": one.feed} for one in found.strategies
    ]
    if json:
        terminal.print_json(
            {
                "cluster": found.cluster.name,
                "nodes": {name: node.door for name, node in found.nodes.items()},
                "strategies": strategies,
                "placed": placed,
                "transactions": list(found.transaction_kinds),
            }
        )
        return
    nodes = ", ".join(f"{name} ({node.door})" for name, node in found.nodes.items())
    lines = [f"{found.cluster.name}: {nodes}, over {found.cluster.transport}"]
    lines += [f"  offers {one['order']} by {one['strategy']}" for one in strategies]
    if found.transaction_kinds:
        kinds = " and ".join(found.transaction_kinds)
        lines.append(f"  offers {kinds} transactions, with {found.hub} in the middle")
    lines += [f"  {key} lives at {address}" for key, address in placed.items()]
    terminal.print_text("\n".join(lines))


async def _run(made: Node) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await made.start()
    waits = [asyncio.create_task(one.wait()) for one in (stop, made.failed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in waits:
        task.cancel()
    await made.stop()
    if made.failure is not None:
        raise ConcordantError(f"the node cannot keep its word any longer: {made.failure}")
