"""The `EventStore` on NATS JetStream: one file-backed stream per shard.

An append is one message published with *expected last subject sequence*; the server checks and
stores it in one step. A subject's messages are read one by one from the stream's leader, so a
load sees everything that was acknowledged.

An append whose answer is lost is never sent again. Because it was conditional, its fate is
written in the first message that follows the expected one: mine (by append id), or another's,
which makes mine impossible for ever. While nothing follows, it may still be on its way, and
when the time for looking is up the answer is OutcomeUnknown.
"""

from collections.abc import AsyncIterator, Sequence

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RawStreamMsg, RetentionPolicy, StorageType, StreamConfig
from nats.js.client import JetStreamContext

from anabranch.common.adapters.jetstream_reader import StreamReader
from anabranch.common.adapters.nats_connection import as_unavailable, keeping_cancellation
from anabranch.common.contracts import subjects
from anabranch.common.errors import OutcomeUnknown, Unavailable, WrongExpectedSequence
from anabranch.common.eventsourcing.message import (
    check_chain,
    decode_message,
    decode_or_mark_damaged,
    encode_headers,
    start_sequence,
)
from anabranch.common.eventsourcing.ports import EventMessage, NewMessage
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.clock import Clock

APPEND_DEADLINE_S = 5.0
RESOLVE_BUDGET_S = 10.0
RESOLVE_PAUSE_S = 0.25
COMMANDS_COUNT_MAX = 100_000
WRONG_LAST_SEQUENCE_CODES = frozenset({10071, 10164})
EXPECTED_SEQUENCE_HEADER = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_STREAM_HEADER = "Nats-Expected-Stream"


async def create_streams(client: Client) -> None:
    """Create the event streams and the command queue where absent; present ones stay as they are.

    Raises Unavailable.
    """
    js = client.jetstream()
    for shard in range(SHARD_COUNT):
        await _create_if_absent(
            js,
            StreamConfig(
                name=subjects.event_stream(shard),
                subjects=[subjects.event_stream_subjects(shard)],
                storage=StorageType.FILE,
                allow_direct=False,
            ),
        )
    await _create_if_absent(
        js,
        StreamConfig(
            name=subjects.COMMAND_STREAM,
            subjects=[subjects.COMMAND_SUBJECTS],
            storage=StorageType.FILE,
            retention=RetentionPolicy.WORK_QUEUE,
            max_msgs=COMMANDS_COUNT_MAX,
            discard=DiscardPolicy.NEW,
        ),
    )


async def _create_if_absent(js: JetStreamContext, config: StreamConfig) -> None:
    assert config.name is not None
    with as_unavailable("create the stream", stream=config.name):
        try:
            await js.stream_info(config.name)
        except nats.js.errors.NotFoundError:
            await js.add_stream(config)


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
        self._resolve_budget_s = resolve_budget_s

    async def append(self, subject: str, expected_sequence: int, message: NewMessage) -> int:
        """See `EventStore.append`. Also raises Unavailable, when surely nothing was stored."""
        headers = encode_headers(subject, message)
        headers[EXPECTED_SEQUENCE_HEADER] = str(expected_sequence)
        headers[EXPECTED_STREAM_HEADER] = _stream_of(subject)
        refused = False
        try:
            with keeping_cancellation():
                ack = await self._js.publish(
                    subject, message.body, timeout=self._append_deadline_s, headers=headers
                )
            return ack.seq
        except (
            nats.js.errors.NoStreamResponseError,
            nats.errors.OutboundBufferLimitError,
            nats.errors.MaxPayloadError,
        ) as error:
            raise Unavailable(
                "the event store did not take the message", subject=subject, cause=repr(error)
            ) from error
        except nats.js.errors.APIError as error:
            refused = error.err_code in WRONG_LAST_SEQUENCE_CODES
        except (nats.errors.Error, OSError, TimeoutError):
            refused = False
        return await self._resolve(subject, expected_sequence, message.append_id, refused=refused)

    async def _resolve(
        self, subject: str, expected_sequence: int, append_id: str, *, refused: bool
    ) -> int:
        """Find out what became of an append. Raises WrongExpectedSequence, OutcomeUnknown."""
        deadline = self._clock.monotonic() + self._resolve_budget_s
        while True:
            try:
                following = await self._first_from(subject, expected_sequence + 1)
            except Unavailable:
                following, looked = None, False
            else:
                looked = True
            if following is not None and _append_id(following) == append_id:
                assert following.seq is not None
                return following.seq
            if following is not None or (looked and refused):
                raise WrongExpectedSequence(
                    "the subject has moved on",
                    subject=subject,
                    expected=expected_sequence,
                    actual=following.seq if following is not None else None,
                )
            if self._clock.monotonic() >= deadline:
                raise OutcomeUnknown("the append was not answered in time", subject=subject)
            await self._clock.sleep(RESOLVE_PAUSE_S)

    async def load(self, subject: str, after_sequence: int = 0) -> Sequence[EventMessage]:
        """See `EventStore.load`. Also raises Unavailable."""
        raw = await self._last_of(subject)
        if raw is None:
            return []
        last = _decoded(raw)
        if last.sequence <= after_sequence:
            return []
        at = after_sequence + 1 if after_sequence else start_sequence(last)
        found: list[EventMessage] = []
        while at < last.sequence:
            following = await self._first_from(subject, at)
            if following is None or (following.seq or 0) >= last.sequence:
                break
            found.append(_decoded(following))
            at = found[-1].sequence + 1
        found.append(last)
        check_chain(found, from_start=after_sequence == 0)
        return found

    async def last_sequence(self, shard: int) -> int:
        """See `EventStore.last_sequence`. Also raises Unavailable."""
        return await self._reader(shard).last_sequence()

    async def follow(self, shard: int, after_sequence: int) -> AsyncIterator[EventMessage]:
        """See `EventStore.follow`. Raises StreamRewound when the shard lost messages."""
        async for message in self._reader(shard).follow(after_sequence):
            yield decode_or_mark_damaged(
                message.subject, message.sequence, message.headers, message.data
            )

    def _reader(self, shard: int) -> StreamReader:
        stream = subjects.event_stream(shard)
        return StreamReader(
            self._client, self._clock, stream, subjects.event_stream_subjects(shard)
        )

    async def _last_of(self, subject: str) -> RawStreamMsg | None:
        with as_unavailable("read the subject's last message", subject=subject):
            try:
                return await self._js.get_last_msg(_stream_of(subject), subject)
            except nats.js.errors.NotFoundError:
                return None

    async def _first_from(self, subject: str, sequence: int) -> RawStreamMsg | None:
        with as_unavailable("read the subject", subject=subject, sequence=sequence):
            try:
                return await self._js.get_msg(
                    _stream_of(subject), seq=max(1, sequence), subject=subject, next=True
                )
            except nats.js.errors.NotFoundError:
                return None


def _stream_of(subject: str) -> str:
    return subjects.event_stream(subjects.shard_of_subject(subject))


def _append_id(raw: RawStreamMsg) -> str:
    return _decoded(raw).append_id


def _decoded(raw: RawStreamMsg) -> EventMessage:
    assert raw.subject is not None
    assert raw.seq is not None
    return decode_message(raw.subject, raw.seq, raw.headers or {}, raw.data or b"")
