"""One connection to a NATS server: made, kept, made anew, and named subjects.

It knows servers, credentials and subjects, and nothing of what is sent. Core NATS delivers at most
once: what was under way when a server fell, or what a slow reader left lying, is gone. Whoever uses
this numbers what it sends (`nats_links`, `nats_carrier`). While no server is there, publishing
waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from concordant.errors import UsageError
from concordant.net.tasks import ended

try:
    from nats import errors as nats_errors
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
except ImportError:  # pragma: no cover - the tests have it
    raise UsageError(
        "NATS needs the package nats-py", hint="pip install 'concordant[nats]'"
    ) from None

TOKEN_BYTES_MAX = 1_024
"""Longer names are refused: a server reads at most 4,096 bytes of a subject and what is around."""

_REFUSED = ("authorization", "authentication")
_FORBIDDEN = re.compile(r"permissions violation for subscription to \"?([^\s\"']+)", re.IGNORECASE)
_FORBIDDEN_COUNT_MAX = 1_000


class DurableOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the server keeps."""

    kept_bytes_max: int = 1 << 30
    """Beyond that the oldest go, taken or not."""
    kept_s: float = 86_400.0
    """Older messages go, taken or not."""
    away_s_max: float = 86_400.0
    """Of a node that is away for longer, nothing is remembered."""
    replicas: int = 1
    in_memory: bool = False
    """Quicker; survives the nodes and not the server."""
    fetched_count_max: int = 256
    """Messages taken from the server at once."""
    taken_s_max: float = 30.0
    """What a node has not taken in this time, it is given again."""


class NatsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which servers, as whom, and with which bounds."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    """One is enough; another is taken when it falls."""
    prefix: str = "concordant"
    """All subjects begin with it, so that a server's permissions can name them."""
    user: str = ""
    password: str = ""
    token: str = ""
    credentials: str = ""
    """A file of credentials (`.creds`)."""
    nkey: str = ""
    """A file with the seed of an nkey."""
    authority: str = ""
    """A file with the certificate of the authority that signed the server's; with it, TLS is on."""
    certificate: str = ""
    key: str = ""
    """Files of the certificate that this side shows, and of its key."""
    durable: DurableOptions | None = None
    """Let the server keep what is disseminated, for nodes that are away; it needs JetStream."""
    connect_s: float = 5.0
    """If no server answers for so long, that is an error."""
    retry_s: float = 0.25
    """So long after a failed attempt, the next server is tried."""
    ping_s: float = 10.0
    """A server that leaves two of these unanswered is taken for gone."""
    unsent_bytes_max: int = 1 << 22
    """Held for the server; beyond that, publishing waits."""
    unread_count_max: int = 65_536
    unread_bytes_max: int = 1 << 26
    """Messages of a subscription that wait to be read; beyond that they are dropped, counted as
    'SlowConsumerError', and found missing by their numbers."""


def token_of(name: str) -> str:
    """A name as one token of a subject: percent-encoded, as in URLs, with dots as well.

    >>> token_of("stock quote.v2")
    'stock%20quote%2Ev2'
    """
    token = ""
    with contextlib.suppress(UnicodeEncodeError):  # half of a surrogate pair
        token = quote(name, safe="").replace(".", "%2E")
    if not token or len(token) > TOKEN_BYTES_MAX:
        raise UsageError(
            f"the name {name[:40]!r} cannot be part of a NATS subject",
            hint=f"use 1 to {TOKEN_BYTES_MAX:,} bytes, after percent-encoding",
        )
    return token


def name_of(token: str) -> str:
    """The name that a token stands for.

    >>> name_of("stock%20quote%2Ev2")
    'stock quote.v2'
    """
    return unquote(token, errors="strict")


class NatsServer:
    """A connection to the servers that `options` names; `connect` makes one."""

    def __init__(self, options: NatsOptions, *, name: str) -> None:
        self.options = options
        self.name = name
        self.errors: Counter[str] = Counter()
        """What went wrong, by kind; the connection goes on."""
        self.reconnected_count = 0
        self._client = Client()
        self._there = asyncio.Event()
        self._refused: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._last_error: Exception | None = None
        self._forbidden: set[str] = set()
        """Subjects that the server refused to let us listen to."""
        self._stopped = False

    # --- the connection -------------------------------------------------------------------------

    async def start(self, *, echo: bool = False) -> None:
        """Connect; with `echo`, what is published here also comes back here."""
        options = self.options
        connecting = asyncio.create_task(
            self._client.connect(
                list(options.servers),
                name=self.name,
                error_cb=self._on_error,
                disconnected_cb=self._on_disconnected,
                reconnected_cb=self._on_reconnected,
                closed_cb=self._on_disconnected,
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=options.retry_s,  # type: ignore[arg-type]  # fractions work
                connect_timeout=options.connect_s,  # type: ignore[arg-type]
                ping_interval=options.ping_s,  # type: ignore[arg-type]
                pending_size=options.unsent_bytes_max,
                no_echo=not echo,
                tls=self._tls(),
                user=options.user or None,
                password=options.password or None,
                token=options.token or None,
                user_credentials=self._file(options.credentials),
                nkeys_seed=self._file(options.nkey),
            )
        )
        either: list[asyncio.Future[Any]] = [connecting, self._refused]
        await asyncio.wait(
            either,
            timeout=options.connect_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if connecting.done() and connecting.exception() is None:
            self._there.set()
            return
        if connecting.done():
            raise self._refusal(connecting.exception())
        await ended(connecting)
        await self.stop()
        raise self._refusal(self._last_error)

    async def stop(self) -> None:
        """Let go of the server; what was published before has left."""
        self._there.clear()
        with contextlib.suppress(nats_errors.Error, OSError, TimeoutError):
            if self._client.is_connected:
                await self._client.flush(2)
        with contextlib.suppress(nats_errors.Error, OSError):
            await self._client.close()
        self._stopped = True

    def _tls(self) -> ssl.SSLContext | None:
        options = self.options
        if not options.authority and not options.certificate:
            return None
        try:
            context = ssl.create_default_context(cafile=options.authority or None)
            if options.certificate:
                context.load_cert_chain(options.certificate, options.key or None)
        except (OSError, ssl.SSLError) as error:
            place = ", ".join(filter(None, (options.authority, options.certificate)))
            raise UsageError(f"the certificates cannot be read: {error}", place=place) from None
        return context

    @staticmethod
    def _file(path: str) -> str | None:
        if path and not Path(path).is_file():
            raise UsageError("there is no such file of credentials", place=path)
        return path or None

    def _refusal(self, error: BaseException | None) -> UsageError:
        where = ", ".join(_without_secret(server) for server in self.options.servers)
        if isinstance(error, ssl.SSLError):
            return UsageError(
                f"no TLS connection with the NATS server at {where}: {error.reason or error}",
                hint="name the certificate of its authority, and show one if it asks for it",
            )
        # Who is refused may be cut off before the server's reason has come.
        hung_up = isinstance(error, ConnectionResetError | BrokenPipeError)
        if error is not None and (hung_up or _is_refusal(error)):
            return UsageError(
                f"the NATS server at {where} does not let us in: {error}",
                hint="look at user, password, token, credentials or nkey",
            )
        if isinstance(error, nats_errors.Error | ValueError) and not isinstance(
            error, nats_errors.NoServersError
        ):
            return UsageError(f"cannot connect to NATS at {where}: {error}")
        because = f" ({error})" if error is not None and str(error) else ""
        return UsageError(
            f"no NATS server answers at {where}{because}",
            hint="start one with `nats-server`, or name another",
        )

    async def _on_error(self, error: Exception) -> None:
        self.errors[type(error).__name__] += 1
        self._last_error = error
        found = _FORBIDDEN.search(str(error))
        if found is not None and len(self._forbidden) < _FORBIDDEN_COUNT_MAX:
            self._forbidden.add(found[1])
        if self._stopped:  # nats-py may miss that it was closed while it tries to reconnect
            raise asyncio.CancelledError
        if not self._refused.done() and (_is_refusal(error) or isinstance(error, ssl.SSLError)):
            self._refused.set_result(error)

    async def _on_disconnected(self) -> None:
        self._there.clear()

    async def _on_reconnected(self) -> None:
        if self._stopped:
            await self._client.close()
            return
        self.reconnected_count += 1
        self._there.set()

    @property
    def is_connected(self) -> bool:
        return self._there.is_set() and self._client.is_connected

    @property
    def payload_bytes_max(self) -> int:
        """The longest message that the server takes."""
        return self._client.max_payload

    # --- messages -------------------------------------------------------------------------------

    def subject(self, *names: str) -> str:
        """The subject of some names, below our prefix."""
        return ".".join([self.options.prefix, *map(token_of, names)])

    async def publish(self, subject: str, data: bytes) -> None:
        """Let a message go; waits while no server is there or too much waits for it.

        It may be lost all the same if the server falls.
        """
        while True:
            await self._there.wait()
            try:
                await self._client.publish(subject, data)
                return
            except nats_errors.OutboundBufferLimitError:
                self._there.clear()  # it fell this moment; `_on_reconnected` sets it again

    async def subscribe(self, subject: str, take: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Let messages come; on return the server knows, or a `UsageError` says that it refuses."""
        subscription = await self._client.subscribe(
            subject,
            cb=take,
            pending_msgs_limit=self.options.unread_count_max,
            pending_bytes_limit=self.options.unread_bytes_max,
        )
        await self.flush()
        if subject.lower() in self._forbidden:  # nats-py quotes the server in lower case
            self._forbidden.discard(subject.lower())
            raise UsageError(
                f"the NATS server does not let us listen to {subject!r}",
                hint="give our user the permission to subscribe to it",
            )
        return subscription

    async def flush(self) -> None:
        """Wait until the server has everything that was given to it before."""
        while True:
            await self._there.wait()
            try:
                # The ping of nats-py may overtake what waits in its buffer; a second one cannot.
                for _ in range(2):
                    await self._client.flush(self.options.connect_s)  # type: ignore[arg-type]
                return
            except (nats_errors.Error, TimeoutError):
                if self._client.is_closed:
                    raise UsageError("the connection to NATS was closed") from None
                await asyncio.sleep(self.options.retry_s)

    @property
    def client(self) -> Client:
        """The client of nats-py, for JetStream and for plain subjects."""
        return self._client


async def connect(options: NatsOptions, *, name: str, echo: bool = False) -> NatsServer:
    """A connection; a `UsageError` says why there is none."""
    server = NatsServer(options, name=name)
    await server.start(echo=echo)
    return server


def _is_refusal(error: BaseException) -> bool:
    return any(word in str(error).lower() for word in _REFUSED)


def _without_secret(url: str) -> str:
    """A server's address without user and password."""
    scheme, between, rest = url.rpartition("://")
    return f"{scheme}{between}{rest.rpartition('@')[2]}"
