"""The `concordant` command line as one app: its commands, one file each."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from concordant.cli.correlate import correlate
from concordant.cli.doctor import doctor
from concordant.cli.explain import explain
from concordant.cli.guarantees import guarantees
from concordant.cli.node import node
from concordant.cli.publish import publish
from concordant.cli.run import run
from concordant.cli.simulate import simulate
from concordant.cli.subscribe import subscribe
from concordant.cli.verify import verify

app = typer.Typer(
    name="concordant",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: the help speaks of [contiguous], which is no markup
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command()(correlate)
app.command()(explain)
app.command()(guarantees)
app.command()(run)
app.command()(simulate)
app.command()(verify)
app.command()(node)
app.command()(publish)
app.command()(subscribe)
app.command()(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        try:
            found = version_of("concordant")
        except PackageNotFoundError:  # run from its source tree
            found = "(not installed)"
        typer.echo(f"concordant {found}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Event correlation: the same answers in the same order, for everybody who asks.

    \b
    Start here:
      concordant correlate 'Order then Payment partition by order_id within 10 min' orders.jsonl
      concordant doctor

    \b
    Exit codes:
      0 ok · 1 a check failed · 2 bad usage or input · 3 the run failed · 130 interrupted
    """
