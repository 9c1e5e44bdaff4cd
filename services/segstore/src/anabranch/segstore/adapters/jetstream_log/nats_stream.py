"""`RemoteStreams` on NATS JetStream: one file-backed stream per log.

The stream ``ANA_LOG_<log id>`` has two subjects, one for openings and one for frames, so that a
release can remove either kind below a place. It has no limits: a full server refuses messages and
never discards one. Messages carry no `Nats-Msg-Id`, so its window for duplicates does nothing.

Publications go through one queue and one task in the order of the calls, and their answers arrive
at one inbox. The client library may keep a publication while it reconnects and send it later; for
the sender that is an unknown outcome like any other. If the connection is lost, the answers to what
was sent before are lost with it, so the outcome of these publications is unknown at once.

All requests go to the stream's leader, except that `read` may reach another server, which may lag
behind.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from anabranch.common.adapters.jetstream_conditions import (
    EXPECTED_STREAM_HEADER,
    WRONG_LAST_SEQUENCE_CODES,
)
from anabranch.common.adapters.jetstream_reader import StreamReader
from anabranch.common.adapters.jetstream_streams import servers_of
from anabranch.common.adapters.nats_connection import as_unavailable, when_lost
from anabranch.common.contracts import subjects
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.domain.log.stream.messages import Kind
from anabranch.segstore.ports_stream import PublishRefused, PublishUnknown, StreamFacts

EXPECTED_LAST_HEADER = "Nats-Expected-Last-Sequence"
HEADERS_SIZE_BYTES_MAX = 512
"""The room that the headers of a message take of the server's limit."""
REQUEST_S_MAX = 5.0
QUEUE_LENGTH_MAX = 10_000
_NO_RESPONDERS_STATUS = "503"

CheckSynced = Callable[[tuple[str, ...]], Awaitable[None]]
"""Requires that all servers with these names sync each write. Raises LogNotSynced."""


@dataclass(frozen=True, slots=True)
class _Publication:
    subject: str
    data: bytes
    token: str
    headers: dict[str, str]


class NatsStreams:
    """`RemoteStreams` over one connection; call `listen`, then let `run` run beside."""

    def __init__(
        self, client: Client, clock: Clock, *, replicas: int, check_synced: CheckSynced
    ) -> None:
        self.client = client
        self.clock = clock
        self.js = client.jetstream(timeout=REQUEST_S_MAX)
        self._replicas = replicas
        self._check_synced = check_synced
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[int]] = {}
        self._queue: deque[_Publication] = deque()
        self._queued = asyncio.Event()
        self._token = 0

    async def listen(self) -> None:
        """Subscribe to the answers; call it once, before `run`. Raises Unavailable."""
        when_lost(self.client, self.lost)
        with as_unavailable("subscribe to the answers"):
            await self.client.subscribe(f"{self._inbox}.*", cb=self._hear)

    async def run(self) -> None:
        """Send publications, until cancelled."""
        while True:
            await self._queued.wait()
            self._queued.clear()
            while self._queue:
                await self._send(self._queue.popleft())

    async def _send(self, one: _Publication) -> None:
        if one.token not in self._waiting:  # the view that sent it has ended
            return
        try:
            await self.client.publish(
                one.subject, one.data, reply=f"{self._inbox}.{one.token}", headers=one.headers
            )
        except (nats.errors.Error, OSError) as error:
            self._fail(one.token, repr(error))

    async def _hear(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        if message.headers and message.headers.get("Status") == _NO_RESPONDERS_STATUS:
            self._fail(token, "no stream took the message")
            return
        try:
            answer = json.loads(message.data)
        except ValueError:
            self._fail(token, "the answer is not readable")
            return
        future = self._waiting.get(token)
        if future is None or future.done():
            return
        if (error := answer.get("error")) is None:
            future.set_result(int(answer["seq"]))
        elif error.get("err_code") in WRONG_LAST_SEQUENCE_CODES:
            future.set_exception(PublishRefused(error.get("description", "")))
        else:
            future.set_exception(PublishUnknown(error.get("description", "")))

    def lost(self) -> None:
        """The connection is lost: no publication before gets an answer."""
        for token in tuple(self._waiting):
            self._fail(token, "the connection to NATS was lost")

    def _fail(self, token: str, cause: str) -> None:
        future = self._waiting.get(token)
        if future is not None and not future.done():
            future.set_exception(PublishUnknown(cause))

    def publish(self, subject: str, data: bytes, headers: dict[str, str]) -> asyncio.Future[int]:
        """See `RemoteStream.publish`."""
        assert len(self._queue) < QUEUE_LENGTH_MAX, "the windows of the views bound the queue"
        self._token += 1
        token = str(self._token)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        future.add_done_callback(lambda _: self._waiting.pop(token, None))
        self._queue.append(_Publication(subject, data, token, headers))
        self._queued.set()
        return future

    # --- ports_stream.RemoteStreams -----------------------------------------------------------

    def stream(self, log_id: str) -> "NatsStream":
        """See `RemoteStreams`."""
        return NatsStream(self, log_id)

    async def create(self, log_id: str) -> None:
        """See `RemoteStreams`."""
        name = subjects.log_stream(log_id)
        with as_unavailable("create the log's stream", stream=name):
            await self.js.add_stream(
                StreamConfig(
                    name=name,
                    description=f"the durable log {log_id} of a container",
                    subjects=[subjects.log_openings(log_id), subjects.log_frames(log_id)],
                    storage=StorageType.FILE,
                    retention=RetentionPolicy.LIMITS,
                    discard=DiscardPolicy.NEW,
                    num_replicas=self._replicas,
                    allow_direct=False,
                )
            )

    async def delete(self, log_id: str) -> None:
        """See `RemoteStreams`."""
        name = subjects.log_stream(log_id)
        with (
            as_unavailable("delete the log's stream", stream=name),
            suppress(nats.js.errors.NotFoundError),
        ):
            await self.js.delete_stream(name)

    async def check_synced(self, peers: tuple[str, ...]) -> None:
        """See `RemoteStreams`."""
        await self._check_synced(peers)


class NatsStream:
    """`RemoteStream` of one log."""

    def __init__(self, streams: NatsStreams, log_id: str) -> None:
        self._streams = streams
        self._name = subjects.log_stream(log_id)
        self._all = subjects.log_messages(log_id)
        self._subjects = {
            Kind.OPENING: subjects.log_openings(log_id),
            Kind.FRAME: subjects.log_frames(log_id),
        }

    @property
    def message_size_max(self) -> int:
        """See `RemoteStream`."""
        return self._streams.client.max_payload - HEADERS_SIZE_BYTES_MAX

    async def describe(self) -> StreamFacts | None:
        """See `RemoteStream`."""
        subject = f"$JS.API.STREAM.INFO.{self._name}"
        with as_unavailable("describe the log's stream", stream=self._name):
            answer = await self._streams.client.request(subject, timeout=REQUEST_S_MAX)
        facts = json.loads(answer.data)
        if (error := facts.get("error")) is not None:
            if error.get("code") == 404:
                return None
            raise Unavailable(
                "NATS did not describe the log's stream",
                stream=self._name, cause=str(error.get("description")),
            )  # fmt: skip
        return StreamFacts(
            _nanoseconds(facts["created"]),
            int(facts["state"]["last_seq"]),
            servers_of(facts, self._streams.client),
        )

    def publish(self, kind: Kind, data: bytes, expected_last: int | None) -> asyncio.Future[int]:
        """See `RemoteStream`."""
        headers = {EXPECTED_STREAM_HEADER: self._name}
        if expected_last is not None:
            headers[EXPECTED_LAST_HEADER] = str(expected_last)
        return self._streams.publish(self._subjects[kind], data, headers)

    async def read(self, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
        """See `RemoteStream`."""
        reader = StreamReader(self._streams.client, self._streams.clock, self._name, self._all)
        async for message in reader.read(max(1, first), last):
            yield message.sequence, message.data

    async def get(self, place: int) -> bytes | None:
        """See `RemoteStream`."""
        with as_unavailable("read a message", stream=self._name, place=place):
            try:
                return (await self._streams.js.get_msg(self._name, seq=place)).data or b""
            except nats.js.errors.NotFoundError:
                return None

    async def newest_opening(self) -> bytes | None:
        """See `RemoteStream`."""
        if not self._streams.client.is_connected:
            raise Unavailable("NATS is not connected", stream=self._name)
        with as_unavailable("read the newest opening", stream=self._name):
            try:
                found = await self._streams.js.get_last_msg(
                    self._name, self._subjects[Kind.OPENING]
                )
            except nats.js.errors.NotFoundError:
                return None
        return found.data or b""

    async def purge_below(self, *, frames: int, openings: int) -> None:
        """See `RemoteStream`."""
        for kind, below in ((Kind.FRAME, frames), (Kind.OPENING, openings)):
            if below <= 1:
                continue
            with as_unavailable("purge the log's stream", stream=self._name, below=below):
                done = await self._streams.js.purge_stream(
                    self._name, seq=below, subject=self._subjects[kind]
                )
            if not done:
                raise Unavailable("NATS did not purge the log's stream", stream=self._name)


def _nanoseconds(told: str) -> int:
    """A time as the server writes it: with up to nine digits of a second's fraction."""
    moment, _, fraction = told.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{moment}+00:00").timestamp())
    return seconds * 10**9 + int((fraction or "0").ljust(9, "0")[:9])
