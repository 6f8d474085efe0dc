"""The entry point of the `concordant` command: arguments in, exit code out.

It knows the ways a process ends (a result, an error, a wrong argument, a reader that went away,
Ctrl-C) and nothing of any command. The commands are imported inside, so that Ctrl-C is quiet from
the first moment on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; without arguments, show the help."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from concordant.cli import terminal
        from concordant.cli.app import app

        return terminal.run(app, given or ["--help"])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
