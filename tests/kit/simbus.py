"""A NATS server in virtual time, at the seam where the adapters call their client.

What runs on it are the real adapters: `JetStreamEventStore` with its conditional appends and its
search for what became of them, and `NatsSegmentStores`. The server keeps JetStream's rules:
expected sequences (of a gate too), sequences per stream, batches that are stored as a whole or not
at all, a work queue delivered at least once. What
goes wrong on the way is the `Link`'s; `SimServer.stop`, `start` and `lose_last` are the server's.

`StreamReader` is replaced as a whole (by `simulated_readers`): how it finds lost messages on a real
connection is tested on a real server. A `SimReader` lags, stands still and reconnects; like the
real one it hands on every message once and in order, or raises StreamRewound.
"""

import asyncio
import datetime
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple, TypeVar, cast
from unittest.mock import patch

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import PubAck, RawStreamMsg

from anabranch.common.adapters import jetstream_events
from anabranch.common.adapters.jetstream_batch import (
    BATCH_COMMIT_HEADER,
    BATCH_ID_HEADER,
    BATCH_SEQUENCE_HEADER,
)
from anabranch.common.adapters.jetstream_conditions import (
    EXPECTED_SEQUENCE_HEADER,
    EXPECTED_SUBJECT_HEADER,
)
from anabranch.common.adapters.jetstream_events import JetStreamEventStore
from anabranch.common.adapters.jetstream_reader import StreamMessage
from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts.subjects import event_stream, matches
from anabranch.common.errors import StreamRewound, Unavailable
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.clock import Clock
from kit.rng import Random
from kit.simlink import Link, NoAnswer
from kit.simqueue import SimQueue

WRONG_LAST_SEQUENCE = 10071
BATCH_INCOMPLETE = 10176
REQUEST_S = 5.0
RECONNECT_S = 0.25
RESTARTS = "restarts of the event store"
OVERLOOKED = "messages stored although their subject had moved on"
LOST_LAST = "last messages lost at a restart of the event store"

Responder = Callable[[str, bytes], bytes]
"""Subject and request → answer. Raises NoRespondersError, NoAnswer."""


class Stored(NamedTuple):
    """A message as the server keeps it."""

    subject: str
    headers: Mapping[str, str]
    body: bytes


T = TypeVar("T")
OnStored = Callable[[int, int, Stored], None]
"""Told of every stored event: shard, sequence, message."""


@dataclass(slots=True)
class _Received:
    data: bytes


class SimServer:
    """One NATS server: the event streams, the work queue, inboxes, and who answers requests."""

    def __init__(self, rng: Random, counts: Counter[str]) -> None:
        self.queue = SimQueue(rng, counts)
        self.logs: list[list[Stored | None]] = [[] for _ in range(SHARD_COUNT)]
        self.inboxes: dict[str, Callable[[bytes], None]] = {}
        self.respond: Responder | None = None
        self.on_stored: list[OnStored] = []
        self.is_clustered = False
        """Whether it says that it is part of a cluster."""
        self.careless = 0.0
        """The chance that it stores a message whose condition held before the last message of the
        subject, as servers of a cluster might that check when they propose."""
        self.careless_batches = False
        """Whether this is so for the messages of a batch, too."""
        self.generation = 0
        """Counts the starts: a connection made in an earlier one is broken."""
        self._counts = counts
        self._rng = rng
        self._sequences: dict[str, list[int]] = {}
        self._grown = [asyncio.Event() for _ in range(SHARD_COUNT)]

    # --- what happens to it --------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self.queue.is_up

    def stop(self) -> None:
        """From now on nobody gets an answer."""
        self.queue.is_up = False

    def start(self) -> None:
        """With everything that was stored; connections have to be made again."""
        self._counts[RESTARTS] += 1
        self.queue.is_up = True
        self.generation += 1
        self.queue.announce()
        for shard in range(SHARD_COUNT):
            self._announce(shard)

    def lose_last(self, shard: int, count: int) -> None:
        """What a server without synced writes may do while it is down."""
        assert not self.is_up
        for _ in range(min(count, len(self.logs[shard]))):
            gone = self.logs[shard].pop()
            self._counts[LOST_LAST] += 1
            if gone is not None:
                self._sequences[gone.subject].pop()

    # --- what it is asked ----------------------------------------------------------------------

    def publish(self, subject: str, body: bytes, headers: Mapping[str, str]) -> PubAck:
        """Store a message if its condition holds."""
        self._require_up()
        bucket = int(subject.split(".", 3)[2])
        if subject.startswith("ana.cmd."):
            self.queue.put(bucket, body)
            return PubAck(stream="ANA_COMMANDS", seq=1)
        message = Stored(subject, dict(headers), body)
        self._require_condition(message)
        self._store(bucket, message)
        return PubAck(stream=event_stream(bucket), seq=len(self.logs[bucket]))

    def publish_batch(self, messages: Sequence[Stored]) -> PubAck:
        """Store all messages of a batch, if it is complete and every condition holds."""
        self._require_up()
        numbers = [message.headers[BATCH_SEQUENCE_HEADER] for message in messages]
        if numbers != [str(number) for number in range(1, len(messages) + 1)]:
            raise nats.js.errors.BadRequestError(
                code=400, err_code=BATCH_INCOMPLETE, description="batch is incomplete"
            )
        for message in messages:
            self._require_condition(message)
        bucket = int(messages[0].subject.split(".", 3)[2])
        for message in messages:
            self._store(bucket, message)
        return PubAck(stream=event_stream(bucket), seq=len(self.logs[bucket]))

    def _require_condition(self, message: Stored) -> None:
        expected = message.headers.get(EXPECTED_SEQUENCE_HEADER)
        watched = message.headers.get(EXPECTED_SUBJECT_HEADER, message.subject)
        if expected is None or self._last(watched) == int(expected):
            return
        in_batch = BATCH_ID_HEADER in message.headers
        if (in_batch and not self.careless_batches) or not self._overlooks(watched, int(expected)):
            raise nats.js.errors.BadRequestError(
                code=400, err_code=WRONG_LAST_SEQUENCE, description="wrong last sequence"
            )

    def _overlooks(self, subject: str, expected: int) -> bool:
        before = [0, *self._sequences.get(subject, ())][:-1]
        if not self.careless or not before or before[-1] != expected:
            return False
        if self._rng.random() >= self.careless:
            return False
        self._counts[OVERLOOKED] += 1
        return True

    def _store(self, bucket: int, message: Stored) -> None:
        log = self.logs[bucket]
        log.append(message)
        self._sequences.setdefault(message.subject, []).append(len(log))
        for told in self.on_stored:
            told(bucket, len(log), message)
        self._announce(bucket)

    def newest_of(self, subject: str) -> RawStreamMsg:
        """The subject's last message. Raises NotFoundError."""
        self._require_up()
        return self._raw(subject, self._last(subject))

    def first_from(self, subject: str, sequence: int) -> RawStreamMsg:
        """The subject's first message at or after the sequence. Raises NotFoundError."""
        self._require_up()
        found = (one for one in self._sequences.get(subject, ()) if one >= sequence)
        return self._raw(subject, next(found, 0))

    def head(self, shard: int) -> int:
        """The shard's last sequence."""
        self._require_up()
        return len(self.logs[shard])

    def purge(self, pattern: str, below: int) -> None:
        """Forget messages before the sequence on the subjects of the pattern; their places stay
        empty."""
        self._require_up()
        for subject in [one for one in self._sequences if matches(pattern, one)]:
            gone = [one for one in self._sequences[subject] if one < below]
            for sequence in gone:
                self.logs[int(subject.split(".", 3)[2])][sequence - 1] = None
            self._sequences[subject] = self._sequences[subject][len(gone) :]

    def tell(self, subject: str, body: bytes) -> None:
        """A message that nobody keeps."""
        listener = self.inboxes.get(subject)
        if self.is_up and listener is not None:
            listener(body)

    def ask(self, subject: str, body: bytes) -> bytes:
        """A request to whoever answers on the subject."""
        self._require_up()
        if self.respond is None:
            raise nats.errors.NoRespondersError
        return self.respond(subject, body)

    async def grown(self, shard: int) -> None:
        """Wait until the shard may have more than it had, or connections are broken."""
        await self._grown[shard].wait()

    def _announce(self, shard: int) -> None:
        self._grown[shard].set()
        self._grown[shard] = asyncio.Event()

    def _require_up(self) -> None:
        if not self.is_up:
            raise NoAnswer

    def _last(self, subject: str) -> int:
        sequences = self._sequences.get(subject)
        return sequences[-1] if sequences else 0

    def _raw(self, subject: str, sequence: int) -> RawStreamMsg:
        if not sequence:
            raise nats.js.errors.NotFoundError(code=404, description="no message found")
        stored = self.logs[int(subject.split(".", 3)[2])][sequence - 1]
        assert stored is not None
        return RawStreamMsg(
            subject=subject,
            seq=sequence,
            data=stored.body,
            headers=dict(stored.headers),
            time=datetime.datetime.fromtimestamp(0, datetime.UTC),
        )


class SimClient:
    """One process's connection, as far as the adapters use it."""

    def __init__(self, server: SimServer, link: Link, rng: Random) -> None:
        self.server = server
        self.link = link
        self.lag_s = 0.0
        """How far its readers stay behind."""
        self.rng = rng
        self.batches: dict[str, list[Stored]] = {}
        """Messages of batches that were sent and not yet committed."""

    @property
    def _server_info(self) -> Mapping[str, object]:
        return {"cluster": "simulated"} if self.server.is_clustered else {}

    def jetstream(self, timeout: float = REQUEST_S) -> "SimJetStream":
        return SimJetStream(self, timeout)

    async def request(self, subject: str, payload: bytes, timeout: float) -> _Received:  # noqa: ASYNC109
        answer = await self.link.call(
            lambda: self.server.ask(subject, payload), timeout, changes=True
        )
        return _Received(answer)

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        if headers is not None and BATCH_ID_HEADER in headers:
            # A connection keeps its order, so it arrives right before the last one, or is lost
            # with a connection that breaks in between.
            if self.rng.random() >= self.link.weather.lost:
                batch = self.batches.setdefault(headers[BATCH_ID_HEADER], [])
                batch.append(Stored(subject, dict(headers), payload))
            return
        self.link.post(lambda: self.server.tell(subject, payload))


class SimJetStream:
    """What `JetStreamContext` does for the event store."""

    def __init__(self, client: SimClient, timeout_s: float) -> None:
        self._client = client
        self._server = client.server
        self._link = client.link
        self._timeout_s = timeout_s

    async def publish(
        self,
        subject: str,
        payload: bytes,
        timeout: float | None = None,  # noqa: ASYNC109
        headers: Mapping[str, str] | None = None,
    ) -> PubAck:
        sent = Stored(subject, dict(headers or {}), payload)
        arrive: Callable[[], PubAck] = partial(self._server.publish, subject, payload, sent.headers)
        if BATCH_COMMIT_HEADER in sent.headers:
            before = self._client.batches.pop(sent.headers[BATCH_ID_HEADER], [])
            arrive = partial(self._server.publish_batch, [*before, sent])
        return await self._link.call(arrive, timeout or self._timeout_s, changes=True)

    async def get_last_msg(self, _stream: str, subject: str) -> RawStreamMsg:
        return await self._read(lambda: self._server.newest_of(subject))

    async def get_msg(
        self,
        _stream: str,
        seq: int,
        subject: str,
        next: bool,  # noqa: A002
    ) -> RawStreamMsg:
        assert next
        return await self._read(lambda: self._server.first_from(subject, seq))

    async def purge_stream(self, _stream: str, seq: int, subject: str) -> None:
        await self._link.call(
            lambda: self._server.purge(subject, seq), self._timeout_s, changes=True
        )

    async def stream_info(self, name: str) -> SimpleNamespace:
        shard = int(name.rsplit("_", 1)[1])
        head = await self._read(lambda: self._server.head(shard))
        return SimpleNamespace(state=SimpleNamespace(last_seq=head))

    async def _read(self, look: Callable[[], T]) -> T:
        return await self._link.call(look, self._timeout_s, changes=False)


class SimReader:
    """A `StreamReader` on a simulated connection."""

    def __init__(
        self,
        client: SimClient,
        clock: Clock,
        stream: str,
        pattern: str,
        *,
        missing_is_empty: bool = False,
    ) -> None:
        self._client = client
        self._server = client.server
        self._clock = clock
        self._shard = int(stream.rsplit("_", 1)[1])
        self._stream = stream
        self._pattern = pattern

    async def last_sequence(self) -> int:
        """The stream's newest sequence. Raises Unavailable."""
        with as_unavailable("describe the stream", stream=self._stream):
            return await self._client.link.call(
                lambda: self._server.head(self._shard), REQUEST_S, changes=False
            )

    async def read(self, first: int, last: int) -> AsyncIterator[StreamMessage]:
        """Every message from one sequence to another. Raises Unavailable."""
        await self.last_sequence()
        for message in self._present(first - 1, last):
            yield message

    async def follow(self, after_sequence: int) -> AsyncIterator[StreamMessage]:
        """Every message after the sequence, for ever. Raises StreamRewound."""
        reached = after_sequence
        while True:
            try:
                newest = await self.last_sequence() if reached else 0
            except Unavailable:
                await self._clock.sleep(RECONNECT_S)
                continue
            if newest < reached:
                raise StreamRewound(
                    "the stream ends before the last message that was read",
                    stream=self._stream, read=reached, newest=newest,
                )  # fmt: skip
            connected, log = self._server.generation, self._server.logs[self._shard]
            while self._server.generation == connected:
                if reached >= len(log):
                    await self._server.grown(self._shard)
                    await self._lag()
                    continue
                reached += 1
                for message in self._present(reached - 1, reached):
                    yield message

    async def _lag(self) -> None:
        if self._client.lag_s:
            await self._clock.sleep(self._client.rng.random() * self._client.lag_s)
        while self._client.link.is_paused:
            await self._clock.sleep(RECONNECT_S)

    def _present(self, after: int, last: int) -> Iterator[StreamMessage]:
        for sequence in range(after + 1, last + 1):
            stored = self._server.logs[self._shard][sequence - 1]
            if stored is not None and _matches(self._pattern, stored.subject):
                yield StreamMessage(stored.subject, sequence, stored.headers, stored.body, 0)


def _matches(pattern: str, subject: str) -> bool:
    if pattern.endswith(".>"):
        return subject.startswith(pattern[:-1])
    return subject == pattern


def sim_event_store(client: SimClient, clock: Clock) -> JetStreamEventStore:
    """The real adapter on the simulated connection; call within `simulated_readers`."""
    return JetStreamEventStore(cast(Client, client), clock)


@contextmanager
def simulated_readers() -> Iterator[None]:
    """Event stores read through `SimReader` inside the block."""
    with patch.object(jetstream_events, "StreamReader", SimReader):
        yield
