"""`concordant publish`: events from standard input or files to a bus, one JSON object a line."""

from __future__ import annotations

import asyncio
import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from concordant.bus import Bus
from concordant.cli import addresses, terminal
from concordant.errors import UsageError
from concordant.net.given import given_of

T = TypeVar("T")

LINE_BYTES_MAX = 1 << 20
"""A longer line is no event."""
BATCH_COUNT_MAX = 500
"""So many lines are published together, if they are there."""


@terminal.guarded
def publish(
    bus: addresses.Url,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILES]", show_default=False, help="JSON Lines; or standard input."
        ),
    ] = None,
    topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="The topic of lines that name none.")
    ] = "",
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="The source of the events; drawn if it is not given."),
    ] = "",
    token: addresses.Token = "",
    authority: addresses.Authority = "",
    json: terminal.Json = False,
) -> None:
    """Publish events: one JSON object per line, with its topic and its attributes.

    Each line is published as it comes. When the command ends, all events are stored at the node. A
    line that is no event stops it; what stood before it was published, and the message says where
    to go on.

    \b
    Examples:
      echo '{"topic": "Order", "order_id": 17}' | concordant publish tcp://127.0.0.1:7400
      concordant publish tcp://127.0.0.1:7400 orders.jsonl --name shop
    """
    stored: list[int] = []
    opened = Bus.open(bus, name=name, token=token, authority=authority)
    try:
        asyncio.run(_publish(opened, files or [], topic, stored))
    except KeyboardInterrupt:
        raise typer.Exit(terminal.EXIT_INTERRUPTED) from None
    finally:  # whatever ended it: so many are stored
        count = sum(stored)
        if json:
            terminal.print_json({"published": count})
        else:
            terminal.err.print(f"published {count:,} event{'s' * (count != 1)}")


async def _publish(bus: Bus, files: list[Path], topic: str, stored: list[int]) -> None:
    async with bus:
        for place, stream in _streams(files):
            with stream:
                lines = _Lines(stream, place)
                while batch := await _in_thread(partial(lines.batch, topic)):
                    await bus.publish(batch)
                    stored.append(len(batch))
                if lines.error is not None:
                    raise lines.error


async def _in_thread(call: Callable[[], T]) -> T:
    """What a call gives that may block for ever; its thread does not keep the process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # without an error, it is there

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except Exception as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=run, daemon=True).start()
    return await done


def _streams(files: list[Path]) -> Iterator[tuple[str, Any]]:
    if not files:
        yield "standard input", io.FileIO(0, closefd=False)
    for path in files:
        try:
            yield str(path), path.open("rb", buffering=0)
        except OSError as error:
            raise UsageError(f"it cannot be read: {error.strerror}", place=str(path)) from None


class _Lines:
    """The lines of a stream as events; what is there is given at once, together."""

    def __init__(self, stream: Any, place: str) -> None:
        self.error: UsageError | None = None
        """What is wrong with the line after the last batch."""
        self._stream = stream
        self._place = place
        self._rest = b""
        self._lines: list[bytes] = []
        self._number = 0
        self._end = False

    def batch(self, topic: str) -> list[dict[str, Any]]:
        """The next events; none at the end, or before a line that is none."""
        found: list[dict[str, Any]] = []
        while not found and self.error is None:
            if not self._lines and not self._read():
                break
            lines, self._lines = self._lines[:BATCH_COUNT_MAX], self._lines[BATCH_COUNT_MAX:]
            for line in lines:
                self._number += 1
                if line.strip():
                    try:
                        found.append(_row(line, topic))
                    except UsageError as error:
                        self.error = error.located(f"{self._place}:{self._number}")
                        break
        return found

    def _read(self) -> bool:
        """Wait for more lines; False at the end."""
        while not self._lines and not self._end:
            data = self._stream.read(1 << 16)
            self._end = not data
            *self._lines, self._rest = (self._rest + (data or b"")).split(b"\n")
            if self._end and self._rest:
                self._lines.append(self._rest)
                self._rest = b""
            if len(self._rest) > LINE_BYTES_MAX:
                raise UsageError(
                    f"a line has more than {LINE_BYTES_MAX:,} bytes",
                    place=f"{self._place}:{self._number + len(self._lines) + 1}",
                )
        return bool(self._lines)


def _row(line: bytes, topic: str) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(
            f"the line is no JSON: {error}", hint='write {"topic": "Order", "order_id": 17}'
        ) from None
    if not isinstance(row, dict):
        raise UsageError("the line is no JSON object", hint='write {"topic": "Order", …}')
    if topic:
        row.setdefault("topic", topic)
    given_of(row)  # what is wrong with it is said here, where its line is known
    return row
