"""The `EventStore` on NATS JetStream: one file-backed stream per shard.

An append is one message published with *expected last subject sequence*; the server checks and
stores it in one step. The adapter reads a subject's messages from the stream's leader, so a load
includes every acknowledged message: it requests a few one by one, and more through a consumer.

If the answer to an append is lost, the adapter never sends the append again. Because the append was
conditional, the first message of its revision after the expected one decides its outcome: either it
is the append's own (by append id), or it is another writer's and the append can never succeed.
While no message follows, the append may still be on its way; when the time is up, the adapter
raises OutcomeUnknown.

With a gate, the same is true of the gate's subject, but the appended message is on its own subject.
The adapter therefore reads the gate *first*. If the gate has moved and the message is then not on
its subject, it never will be.

A clustered server checks the condition when it proposes a message to the other servers, not when it
stores the message. On a cluster the adapter therefore decides the outcome by reading also after an
acknowledgement (ADR 13). While such a message is in process, the server refuses all others on the
same condition. Messages on one gate therefore go one at a time, and the adapter sends a message
again that was refused only because of another one: a refusal says that nothing was stored.

`jetstream_batch` stores several messages together or not at all.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from weakref import WeakValueDictionary

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import (
    DiscardPolicy,
    PubAck,
    RawStreamMsg,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from anabranch.common.adapters.jetstream_batch import AtomicBatches
from anabranch.common.adapters.jetstream_conditions import (
    EXPECTED_SEQUENCE_HEADER,
    IN_PROCESS_CODE,
    IN_PROCESS_PAUSE_S,
    RESOLVE_COUNT_MAX,
    WRONG_LAST_SEQUENCE_CODES,
    Waits,
    condition_headers,
    first_of_revision,
    has_id,
    stream_of,
)
from anabranch.common.adapters.jetstream_reader import StreamMessage, StreamReader
from anabranch.common.adapters.jetstream_streams import ensure_stream
from anabranch.common.adapters.nats_connection import (
    as_unavailable,
    is_clustered,
    keeping_cancellation,
)
from anabranch.common.contracts import subjects
from anabranch.common.errors import OutcomeUnknown, Unavailable, WrongExpectedSequence
from anabranch.common.eventsourcing.message import (
    KIND_SNAPSHOT,
    check_batch,
    check_chain,
    decode_message,
    decode_or_mark_damaged,
    encode_headers,
    start_sequence,
)
from anabranch.common.eventsourcing.ports import Append, EventMessage, Gate, NewMessage
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.clock import Clock

APPEND_DEADLINE_S = 5.0
RESOLVE_BUDGET_S = 10.0
ONE_BY_ONE_COUNT_MAX = 8
"""Up to this number, messages are requested one by one; beyond, a consumer is cheaper."""
COMMANDS_COUNT_MAX = 100_000


async def create_streams(client: Client, replicas: int = 1) -> set[str]:
    """Ensure the event streams and the command queue; return the names of their servers.

    Event streams of an older release are changed to allow batches. Raises Unavailable.
    """
    streams = [
        StreamConfig(
            name=subjects.event_stream(shard),
            subjects=[subjects.event_stream_subjects(shard)],
            storage=StorageType.FILE,
            num_replicas=replicas,
            allow_direct=False,
            allow_atomic=True,
        )
        for shard in range(SHARD_COUNT)
    ]
    commands = StreamConfig(
        name=subjects.COMMAND_STREAM,
        subjects=[subjects.COMMAND_SUBJECTS],
        storage=StorageType.FILE,
        retention=RetentionPolicy.WORK_QUEUE,
        num_replicas=replicas,
        max_msgs=COMMANDS_COUNT_MAX,
        discard=DiscardPolicy.NEW,
    )
    servers: set[str] = set()
    for stream in (*streams, commands):
        servers.update(await ensure_stream(client, stream))
    return servers


class JetStreamEventStore:
    """An `EventStore`; `create_streams` must have run."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        append_deadline_s: float = APPEND_DEADLINE_S,
        resolve_budget_s: float = RESOLVE_BUDGET_S,
    ) -> None:
        self._client = client
        self._js = client.jetstream(timeout=append_deadline_s)
        self._clock = clock
        self._append_deadline_s = append_deadline_s
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By the subject of a gate; only while somebody waits or appends."""
        self._resolve_budget_s = resolve_budget_s
        self._batches = AtomicBatches(
            client,
            clock,
            self._first_from,
            append_deadline_s=append_deadline_s,
            resolve_budget_s=resolve_budget_s,
        )

    async def append(
        self,
        subject: str,
        expected_sequence: int,
        message: NewMessage,
        *,
        gate: Gate | None = None,
    ) -> int:
        """See `EventStore.append`. Also raises Unavailable if certainly nothing was stored."""
        condition = condition_headers(subject, expected_sequence, gate)
        headers = encode_headers(subject, message) | condition
        refused = False
        try:
            if gate is None or not is_clustered(self._client):
                ack = await self._published(subject, message, headers)
            else:
                ack = await self._published_in_turn(subject, message, headers, gate)
            # Nothing lies between two consecutive sequences of the shard.
            follows = gate is None and ack.seq == expected_sequence + 1
            if follows or not is_clustered(self._client):
                return ack.seq
        except (
            nats.js.errors.NoStreamResponseError,
            nats.errors.OutboundBufferLimitError,
            nats.errors.MaxPayloadError,
        ) as error:
            raise Unavailable(
                "the event store rejected the message", subject=subject, cause=repr(error)
            ) from error
        except nats.js.errors.APIError as error:
            refused = error.err_code in WRONG_LAST_SEQUENCE_CODES
        except (nats.errors.Error, OSError, TimeoutError):
            refused = False
        if gate is None:
            return await self._resolve(subject, expected_sequence, message, refused=refused)
        return await self._resolve_gated(subject, gate, message.append_id, refused=refused)

    async def _published(
        self, subject: str, message: NewMessage, headers: dict[str, str]
    ) -> PubAck:
        with keeping_cancellation():
            return await self._js.publish(
                subject, message.body, timeout=self._append_deadline_s, headers=headers
            )

    async def _published_in_turn(
        self, subject: str, message: NewMessage, headers: dict[str, str], gate: Gate
    ) -> PubAck:
        """Publish when no other message on the condition of the gate is in process.

        Callers of this process wait for each other, and those of others are met by trying again: a
        refusal because of them says that nothing was stored. Raises Unavailable if no turn comes in
        time.
        """
        turn = self._turns.setdefault(gate.subject, asyncio.Lock())
        until_s = self._clock.monotonic() + self._append_deadline_s
        try:
            async with asyncio.timeout(self._append_deadline_s):
                await turn.acquire()
        except TimeoutError:
            raise Unavailable(
                "earlier messages on the same gate are still in process", gate=gate.subject
            ) from None
        try:
            while True:
                try:
                    return await self._published(subject, message, headers)
                except nats.js.errors.APIError as error:
                    if error.err_code != IN_PROCESS_CODE or self._clock.monotonic() >= until_s:
                        raise
                await self._clock.sleep(IN_PROCESS_PAUSE_S)
        finally:
            turn.release()

    async def append_all(self, appends: Sequence[Append]) -> Sequence[int]:
        """See `EventStore.append_all`. Also raises Unavailable if certainly nothing was stored."""
        check_batch(appends)
        if len(appends) > 1:
            return await self._batches.append(appends)
        return [await self.append(*one) for one in appends]

    async def _resolve(
        self, subject: str, expected_sequence: int, message: NewMessage, *, refused: bool
    ) -> int:
        """Find the outcome of an append: whether its message is the first of its revision.

        Raises WrongExpectedSequence, OutcomeUnknown.
        """
        waits = self._waits(refused=refused)
        while True:
            with suppress(Unavailable):  # The next round reads again, until the time is up.
                first = await first_of_revision(
                    self._first_from, subject, expected_sequence, message.revision
                )
                if first is not None and has_id(first, message.append_id):
                    assert first.seq is not None
                    return first.seq
                if first is not None or waits.is_refused():
                    raise _moved_on(Gate(subject, expected_sequence), first)
            await waits.pause(subject)

    async def _resolve_gated(
        self, subject: str, gate: Gate, append_id: str, *, refused: bool
    ) -> int:
        """Find the outcome of an append that depended on `gate`.

        Raises WrongExpectedSequence, OutcomeUnknown.
        """
        waits = self._waits(refused=refused)
        while True:
            with suppress(Unavailable):  # The next round reads again, until the time is up.
                following = await self._first_from(gate.subject, gate.sequence + 1)
                mine = await self._find(subject, gate.sequence + 1, append_id)
                if mine is not None and has_id(mine, append_id):
                    assert mine.seq is not None
                    return await self._passed(gate, mine.seq)
                if following is not None or waits.is_refused():
                    raise _moved_on(gate, following)
            await waits.pause(subject)

    async def _passed(self, gate: Gate, sequence: int) -> int:
        """Return the sequence of a message that lies before any change of its gate.

        Raises WrongExpectedSequence, Unavailable.
        """
        following = await self._first_from(gate.subject, gate.sequence + 1)
        if following is not None and (following.seq or 0) < sequence:
            raise _moved_on(gate, following)
        return sequence

    def _waits(self, *, refused: bool) -> Waits:
        clustered = is_clustered(self._client)
        return Waits(self._clock, self._resolve_budget_s, refused=refused, clustered=clustered)

    async def _find(self, subject: str, from_sequence: int, append_id: str) -> RawStreamMsg | None:
        """Find the own message among those of others. Raises Unavailable, OutcomeUnknown."""
        for _ in range(RESOLVE_COUNT_MAX):
            found = await self._first_from(subject, from_sequence)
            if found is None or has_id(found, append_id):
                return found
            assert found.seq is not None
            from_sequence = found.seq + 1
        raise OutcomeUnknown("too many messages follow on the subject", subject=subject)

    async def load(self, subject: str, after_sequence: int = 0) -> Sequence[EventMessage]:
        """See `EventStore.load`. Also raises Unavailable."""
        raw = await self._last_of(subject)
        if raw is None:
            return []
        last = _decoded(raw)
        if last.sequence <= after_sequence:
            return []
        first = after_sequence + 1 if after_sequence else await self._start(last, raw)
        found = [*await self._between(subject, first, last), last]
        check_chain(found, from_start=after_sequence == 0)
        return found

    async def _start(self, last: EventMessage, raw: RawStreamMsg) -> int:
        """Where a load begins. A snapshot may be void, unless it follows what its writer read."""
        if last.kind == KIND_SNAPSHOT:
            expected = (raw.headers or {}).get(EXPECTED_SEQUENCE_HEADER, "0")
            following = await self._first_from(last.subject, int(expected) + 1)
            if following is None or following.seq != last.sequence:
                return last.snapshot_sequence
        return start_sequence(last)

    async def _between(
        self, subject: str, first_sequence: int, last: EventMessage
    ) -> list[EventMessage]:
        """The subject's messages from a sequence on and before `last`."""
        found: list[EventMessage] = []
        at = first_sequence
        while at < last.sequence:
            following = await self._first_from(subject, at)
            if following is None or (following.seq or 0) >= last.sequence:
                break
            found.append(_decoded(following))
            at = found[-1].sequence + 1
            if last.revision - found[-1].revision > ONE_BY_ONE_COUNT_MAX:
                rest = self._subject_reader(subject).read(at, last.sequence - 1)
                return found + [_verified(message) async for message in rest]
        return found

    async def scan(
        self, shard: int, pattern: str, after_sequence: int = 0
    ) -> AsyncIterator[EventMessage]:
        """See `EventStore.scan`."""
        at = after_sequence + 1
        if not pattern.endswith(">"):
            # Most subjects are short, and a consumer costs as much as several messages.
            for _ in range(ONE_BY_ONE_COUNT_MAX):
                raw = await self._first_from(pattern, at)
                if raw is None:
                    return
                message = _as_read(raw)
                yield _marked(message)
                at = message.sequence + 1
        reader = StreamReader(self._client, self._clock, subjects.event_stream(shard), pattern)
        async for message in reader.read(at, await reader.last_sequence()):
            yield _marked(message)

    async def purge(self, pattern: str, below_sequence: int) -> None:
        """See `EventStore.purge`. Also raises Unavailable."""
        assert below_sequence > 0, "every purge names an upper sequence"
        with as_unavailable("purge the subject", subject=pattern, below=below_sequence):
            await self._js.purge_stream(stream_of(pattern), seq=below_sequence, subject=pattern)

    async def last_sequence(self, shard: int) -> int:
        """See `EventStore.last_sequence`. Also raises Unavailable."""
        return await self._reader(shard).last_sequence()

    async def follow(self, shard: int, after_sequence: int) -> AsyncIterator[EventMessage]:
        """See `EventStore.follow`. Raises StreamRewound if the shard lost messages."""
        async for message in self._reader(shard).follow(after_sequence):
            yield _marked(message)

    def _reader(self, shard: int) -> StreamReader:
        return StreamReader(
            self._client,
            self._clock,
            subjects.event_stream(shard),
            subjects.event_stream_subjects(shard),
            missing_is_empty=True,
        )

    def _subject_reader(self, subject: str) -> StreamReader:
        return StreamReader(self._client, self._clock, stream_of(subject), subject)

    async def _last_of(self, subject: str) -> RawStreamMsg | None:
        with as_unavailable("read the subject's last message", subject=subject):
            try:
                return await self._js.get_last_msg(stream_of(subject), subject)
            except nats.js.errors.NotFoundError:
                return None

    async def _first_from(self, subject: str, sequence: int) -> RawStreamMsg | None:
        with as_unavailable("read the subject", subject=subject, sequence=sequence):
            try:
                return await self._js.get_msg(
                    stream_of(subject), seq=max(1, sequence), subject=subject, next=True
                )
            except nats.js.errors.NotFoundError:
                return None


def _moved_on(gate: Gate, found: RawStreamMsg | None) -> WrongExpectedSequence:
    return WrongExpectedSequence(
        "the subject has moved on",
        subject=gate.subject,
        expected=gate.sequence,
        actual=found.seq if found is not None else None,
    )


def _decoded(raw: RawStreamMsg) -> EventMessage:
    return _verified(_as_read(raw))


def _as_read(raw: RawStreamMsg) -> StreamMessage:
    assert raw.subject is not None
    assert raw.seq is not None
    stored_ms = int(raw.time.timestamp() * 1000) if raw.time is not None else 0
    return StreamMessage(raw.subject, raw.seq, raw.headers or {}, raw.data or b"", 0, stored_ms)


def _verified(message: StreamMessage) -> EventMessage:
    return decode_message(
        message.subject, message.sequence, message.headers, message.data, message.stored_ms
    )


def _marked(message: StreamMessage) -> EventMessage:
    return decode_or_mark_damaged(
        message.subject, message.sequence, message.headers, message.data, message.stored_ms
    )
