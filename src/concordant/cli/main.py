"""The `concordant` command: one app, one file per command."""

from __future__ import annotations

import typer

from concordant.cli.correlate import correlate
from concordant.cli.doctor import doctor
from concordant.cli.explain import explain

app = typer.Typer(
    name="concordant",
    help="Ordered publish/subscribe and event correlation: the same answers in the same order.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(correlate)
app.command()(explain)
app.command()(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"concordant {version('concordant')}")
        raise typer.Exit


@app.callback()
def common(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Ordered publish/subscribe and event correlation: the same answers in the same order."""


def main() -> None:
    """Entry point of the script."""
    app()


if __name__ == "__main__":
    main()
