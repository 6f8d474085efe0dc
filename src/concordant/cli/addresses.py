"""How the commands that speak to a bus say where it is and who they are."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[
    str,
    typer.Argument(
        metavar="BUS",
        show_default=False,
        help="Where the bus is: tcp://host:port, the door of a node; or nats://host:port/CLUSTER/NODE.",
    ),
]
Token = Annotated[
    str,
    typer.Option(
        metavar="TOKEN",
        envvar="CONCORDANT_TOKEN",
        show_default=False,
        help="What the cluster wants to see of applications; better in the environment.",
    ),
]
Authority = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        show_default=False,
        help="The certificate of the authority that signed the nodes': with it, TLS is used.",
    ),
]
