"""What a node tells its operators: health and metrics over HTTP, and a journal of JSON lines.

The metrics are in the text format of Prometheus, which is so small that a library would be larger
than what it replaces. It knows HTTP as far as GET of two paths; what is measured, its caller says.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from concordant.errors import UsageError

_REQUEST_S = 5.0
_LINES_MAX = 100
_LINE_BYTES_MAX = 8_192
_HEAD = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"


class Metric(msgspec.Struct, frozen=True):
    """A number that is counted (it only grows) or measured."""

    name: str
    help: str
    values: Mapping[str, float]
    """By label, written as in `reason="x"`; the empty one is the metric itself."""
    counted: bool = False


def label(name: str, value: str) -> str:
    """
    >>> label("reason", 'a "word"')
    'reason="a \\\\"word\\\\""'
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{escaped}"'


def exposition(metrics: Iterable[Metric]) -> str:
    """Metrics in the text format of Prometheus.

    >>> print(exposition([Metric("sessions", "Applications that are here.", {"": 2})]), end="")
    # HELP concordant_sessions Applications that are here.
    # TYPE concordant_sessions gauge
    concordant_sessions 2
    """
    lines = []
    for metric in metrics:
        name = f"concordant_{metric.name}"
        lines.append(f"# HELP {name} {metric.help}")
        lines.append(f"# TYPE {name} {'counter' if metric.counted else 'gauge'}")
        for labels, value in metric.values.items():
            lines.append(f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}")
    return "\n".join(lines) + "\n"


class Status:
    """Answers `GET /health` and `GET /metrics`."""

    def __init__(
        self, health: Callable[[], dict[str, Any]], metrics: Callable[[], list[Metric]]
    ) -> None:
        """`health` has a field `ok`; without it the answer is 503."""
        self._health = health
        self._metrics = metrics
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port that is listened on."""
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=_LINE_BYTES_MAX
            )
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                hint="stop what uses the port, or choose another one",
            ) from None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readuntil(b"\n")
                for _ in range(_LINES_MAX):
                    if not (await reader.readuntil(b"\n")).strip():
                        break
            writer.write(self._answer(request))
            await writer.drain()
        writer.close()

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _whole(b"405 Method Not Allowed", b"text/plain", b"GET only\n")
        if path == b"/health":
            health = self._health()
            code = b"200 OK" if health.get("ok") else b"503 Service Unavailable"
            return _whole(code, b"application/json", msgspec.json.encode(health) + b"\n")
        if path == b"/metrics":
            text = exposition(self._metrics()).encode()
            return _whole(b"200 OK", b"text/plain; version=0.0.4", text)
        return _whole(b"404 Not Found", b"text/plain", b"try /health or /metrics\n")


def _whole(code: bytes, kind: bytes, body: bytes) -> bytes:
    return _HEAD % (code, kind, len(body)) + body


def journal(node: str) -> Callable[..., None]:
    """Writes lines of JSON to standard error: when, which node, what happened, and fields."""

    def say(what: str, **fields: Any) -> None:
        line = {"time_us": time.time_ns() // 1_000, "node": node, "what": what, **fields}
        print(msgspec.json.encode(line).decode(), file=sys.stderr, flush=True)

    return say
