"""Topics over NATS: one subject each, and the server copies to whoever listens.

Two ways. `CoreTopics` is core NATS: at most once, nothing kept. `DurableTopics` is a stream of
JetStream: kept by the server before anybody gets it, and given to each node again until it has been
taken, also what came while the node was away. Both know subjects and bytes, nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext, api
from nats.js import errors as js_errors

from concordant.errors import UsageError
from concordant.net.nats import DurableOptions, NatsServer, token_of
from concordant.net.tasks import ended

Take = Callable[[str, bytes], Awaitable[None]]
"""Called with a topic and what came on it; on return it was taken."""

_DUPLICATES_S = 120.0
"""So long the server knows what it was given: a repetition within this time is dropped."""


class Topics(Protocol):
    """How topics travel."""

    local: bool
    """True if a node does not hear itself."""

    async def start(self) -> None: ...

    async def publish(self, topic: str, data: bytes, name: str) -> None: ...

    async def listen(self, topic: str) -> None: ...

    async def ignore(self, topic: str) -> None: ...

    async def stop(self) -> None: ...


class CoreTopics:
    """Topics over core NATS."""

    local = True

    def __init__(self, server: NatsServer, cluster: str, take: Take) -> None:
        self._server = server
        self._cluster = cluster
        self._take = take
        self._subscriptions: dict[str, Subscription] = {}

    async def start(self) -> None:
        """Nothing has to be prepared."""

    async def publish(self, topic: str, data: bytes, name: str) -> None:
        """To whoever listens now."""
        del name
        await self._server.publish(self._server.subject(self._cluster, "topic", topic), data)

    async def listen(self, topic: str) -> None:
        """On return the server knows that we listen."""

        async def take(message: Msg) -> None:
            await self._take(topic, message.data)

        subject = self._server.subject(self._cluster, "topic", topic)
        self._subscriptions[topic] = await self._server.subscribe(subject, take)

    async def ignore(self, topic: str) -> None:
        """Listen no longer."""
        with contextlib.suppress(nats_errors.Error):
            await self._subscriptions.pop(topic).unsubscribe()

    async def stop(self) -> None:
        """Listen to nothing."""
        for topic in list(self._subscriptions):
            await self.ignore(topic)


class DurableTopics:
    """Topics in a stream of JetStream."""

    local = False

    def __init__(
        self,
        server: NatsServer,
        cluster: str,
        node: str,
        take: Take,
        *,
        options: DurableOptions,
    ) -> None:
        self._server = server
        self._cluster = cluster
        self._node = node
        self._take = take
        self._options = options
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._jetstream: JetStreamContext = server.client.jetstream(
            timeout=server.options.connect_s
        )
        self._stream = f"{token_of(server.options.prefix)}-{token_of(cluster)}"

    def _consumer(self, topic: str) -> str:
        return f"{token_of(self._node)}-{token_of(topic)}"

    async def start(self) -> None:
        """Make the stream, unless another node made it before."""
        options = self._options
        wanted = api.StreamConfig(
            name=self._stream,
            subjects=[f"{self._server.subject(self._cluster, 'topic')}.>"],
            max_bytes=options.kept_bytes_max,
            max_age=options.kept_s,
            storage=api.StorageType.MEMORY if options.in_memory else api.StorageType.FILE,
            num_replicas=options.replicas,
            duplicate_window=min(_DUPLICATES_S, options.kept_s),
        )
        try:
            await self._jetstream.add_stream(wanted)
        except js_errors.BadRequestError as error:
            raise UsageError(
                f"the NATS server has another stream {self._stream!r}, or cannot keep ours: "
                f"{error.description}",
                hint="use another prefix or cluster name, or the same options on all nodes",
            ) from None
        except (nats_errors.Error, TimeoutError) as error:
            raise UsageError(
                f"the NATS server keeps no streams: {error}",
                hint="start it with JetStream: nats-server -js",
            ) from None

    async def publish(self, topic: str, data: bytes, name: str) -> None:
        """Durable at the server on return; `name` lets it drop a repetition."""
        subject = self._server.subject(self._cluster, "topic", topic)
        while True:
            try:
                await self._jetstream.publish(
                    subject, data, headers={"Nats-Msg-Id": name}, stream=self._stream
                )
                return
            except (nats_errors.Error, TimeoutError) as error:
                await self._pause(error)

    async def listen(self, topic: str) -> None:
        """Go on where this node stopped, or begin with what comes from now on."""
        config = api.ConsumerConfig(
            durable_name=self._consumer(topic),
            filter_subject=self._server.subject(self._cluster, "topic", topic),
            deliver_policy=api.DeliverPolicy.NEW,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=self._options.taken_s_max,
            inactive_threshold=self._options.away_s_max,
            max_ack_pending=4 * self._options.fetched_count_max,
        )
        while True:
            try:
                await self._jetstream.add_consumer(self._stream, config)
                break
            except (nats_errors.Error, TimeoutError) as error:
                await self._pause(error)
        self._readers[topic] = asyncio.create_task(self._read(topic))

    async def _read(self, topic: str) -> None:
        pull = await self._jetstream.pull_subscribe_bind(self._consumer(topic), self._stream)
        while True:
            try:
                messages = await pull.fetch(self._options.fetched_count_max, timeout=5.0)
                for message in messages:
                    await self._take(topic, message.data)
                for message in messages:
                    await message.ack()
            except TimeoutError:
                pass  # nothing came
            except nats_errors.Error as error:
                await self._pause(error)

    async def _pause(self, error: Exception) -> None:
        """Before the next attempt, unless there will be no server any more."""
        self._server.errors[type(error).__name__] += 1
        if self._server.client.is_closed:
            raise error
        await asyncio.sleep(self._server.options.retry_s)

    async def ignore(self, topic: str) -> None:
        """Listen no longer, and let the server forget how far we were."""
        await self._end_reader(topic)
        with contextlib.suppress(nats_errors.Error, TimeoutError):
            await self._jetstream.delete_consumer(self._stream, self._consumer(topic))

    async def stop(self) -> None:
        """Listen to nothing; the server remembers how far we were."""
        for topic in list(self._readers):
            await self._end_reader(topic)

    async def _end_reader(self, topic: str) -> None:
        await ended(self._readers.pop(topic))
