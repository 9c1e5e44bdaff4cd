"""Appends to one segment without an append session, each of them performed exactly once.

    call ──► waits for its turn ──► sent under a number ──► answered
                                        ▲        │
                                        └─pause──┘ no answer: the same bytes, the same number

The appends have a writer id of their own, and numbers without gaps by which the store recognises a
repeat. A call gets its numbers when its turn comes; they are used again only if the store refused.
A task of the client sends one call at a time, in the order of the calls. A cancelled caller takes
back a call that has not begun; a call that has begun runs to its end.

A request without an answer may still arrive later. If a request's fate is unknown and it did not
end in an acknowledgement, later appends therefore use a new writer id, where it can do no harm. A
writer id that the store forgot (it was idle for very long) is replaced as well.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.client.backoff import Backoff
from anabranch.client.one_segment.segment import OneSegment
from anabranch.common.contracts.queries import SegmentLocation
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    EventGap,
    Fenced,
    OffsetMismatch,
    OutcomeUnknown,
    Overloaded,
    Retry,
    SegmentTruncated,
    Unavailable,
    WriterExpired,
    WrongHost,
)
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import Appended, AttributeUpdate, ConditionalAppend

_SCAN_SIZE_BYTES = 1024 * 1024


class Content(Protocol):
    """The content of one append, which uses up `count` numbers."""

    @property
    def count(self) -> int: ...

    @property
    def is_block(self) -> bool: ...

    def encode(self, writer_id: bytes, number: int, now_ms: int) -> bytes:
        """The bytes to store. Raises EventTooLarge, InvalidRequest."""
        ...


@dataclass(frozen=True, slots=True)
class EntryBlock:
    """Entries that are stored as one block."""

    entries: Sequence[bytes]

    @property
    def count(self) -> int:
        return len(self.entries)

    @property
    def is_block(self) -> bool:
        return True

    def encode(self, writer_id: bytes, number: int, now_ms: int) -> bytes:
        """See `Content`."""
        return encode_block(
            self.entries, writer_id=writer_id, first_event_number=number, base_timestamp_ms=now_ms
        )


@dataclass(frozen=True, slots=True)
class RawBytes:
    """Bytes that are stored as they are."""

    data: bytes

    @property
    def count(self) -> int:
        return 1

    @property
    def is_block(self) -> bool:
        return False

    def encode(self, writer_id: bytes, number: int, now_ms: int) -> bytes:  # noqa: ARG002
        """See `Content`."""
        return self.data


@dataclass(eq=False, slots=True)
class _Call:
    content: Content
    expected: int | None
    updates: tuple[AttributeUpdate, ...]
    deadline_s: float
    landed: asyncio.Future[int | None]


@dataclass(slots=True)
class _Attempts:
    """The attempts of one call. `unclear`: one of them may have happened, or may still happen."""

    backoff: Backoff
    tail_before: int
    unclear: bool = False
    renewed: bool = False


class ExactAppends:
    """Sends the appends. Owns the writer id and its next number."""

    def __init__(self, segment: OneSegment) -> None:
        self._segment = segment
        self._runtime = segment.runtime
        self._settings = segment.settings
        self._waiting: deque[_Call] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._closed = False
        self._tail = 0
        self.event_count = -1
        """The events of the segment after the last append; -1: its store did not say it."""
        self._renew()

    @property
    def writer_id(self) -> bytes:
        """The writer id of the next append."""
        return self._writer_id

    def _renew(self) -> None:
        self._writer_id = self._runtime.ids.new_bytes()
        self._next_number = 1

    def tail_seen(self, offset: int) -> None:
        """Note that everything below `offset` is stored.

        An append that expects a lower tail then returns None without a request.
        """
        self._tail = max(self._tail, offset)

    async def append(
        self,
        content: Content,
        *,
        expected: int | None = None,
        updates: tuple[AttributeUpdate, ...] = (),
    ) -> int | None:
        """Append, if `expected` is None or the segment's length; returns the offset after it.

        Returns None if the length differs; then nothing was done. `updates` are performed with the
        append. Raises Overloaded and Closed (nothing was done), Unavailable (nothing was done
        within `retry_timeout_s`), OutcomeUnknown, EventTooLarge, InvalidRequest, StreamSealed,
        StreamNotFound.
        """
        if self._closed:
            raise self._closed_error()
        if len(self._waiting) >= self._settings.appends_waiting_max:
            raise Overloaded(
                "too many appends are waiting",
                remedy="wait for some of the pending appends",
                limit=self._settings.appends_waiting_max,
            )
        deadline_s = self._runtime.clock.monotonic() + self._settings.retry_timeout_s
        landed: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        if self._pump is None:
            self._pump = self._runtime.start(self._run())
        self._waiting.append(_Call(content, expected, updates, deadline_s, landed))
        return await landed

    async def close(self) -> None:
        """Stop; the pending append raises OutcomeUnknown, waiting ones raise Closed. Repeatable."""
        self._closed = True
        pump = self._pump
        if pump is not None:
            pump.cancel()
            await asyncio.wait([pump])

    def _closed_error(self) -> Closed:
        return Closed(
            "the stream was closed before the append began", stream=str(self._segment.stream)
        )

    # --- one after the other --------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._waiting:
                call = self._waiting.popleft()
                if not call.landed.done():  # else its caller has gone
                    await self._settle(call)
        finally:
            self._pump = None
            for call in self._waiting:
                if not call.landed.done():
                    call.landed.set_exception(self._closed_error())
            self._waiting.clear()

    async def _settle(self, call: _Call) -> None:
        told: AnabranchError | int | None
        try:
            told = await self._perform(call)
        except AnabranchError as error:
            told = error
        except asyncio.CancelledError:
            self._renew()
            self._tell(call, self._unknown())
            raise
        self._tell(call, told)

    def _tell(self, call: _Call, told: AnabranchError | int | None) -> None:
        if call.landed.done():
            return
        if isinstance(told, AnabranchError):
            call.landed.set_exception(told)
        else:
            call.landed.set_result(told)

    async def _perform(self, call: _Call) -> int | None:
        """Attempt it until its outcome is known."""
        if call.expected is not None and call.expected < self._tail:
            return None
        left_s = call.deadline_s - self._runtime.clock.monotonic()
        if left_s <= 0:
            raise Unavailable("the append was not sent in time", segment=self._segment.name)
        attempts = _Attempts(self._segment.new_backoff(left_s), self._tail)
        while True:
            try:
                return await self._attempt(call, attempts)
            except OffsetMismatch as error:
                self._refused(attempts)
                self.tail_seen(int(error.fields.get("length") or 0))
                return None
            except (Retry, Fenced, OutcomeUnknown) as error:
                await self._pause(error, attempts)
            except (WriterExpired, EventGap) as error:
                self._renew()
                if attempts.unclear or attempts.renewed:
                    raise self._unknown() from error
                attempts.renewed = True
            except AnabranchError as error:
                self._refused(attempts)
                raise await self._segment.named(error) from error

    def _refused(self, attempts: _Attempts) -> None:
        if attempts.unclear:
            self._renew()

    async def _attempt(self, call: _Call, attempts: _Attempts) -> int:
        number, clock = self._next_number, self._runtime.clock
        data = call.content.encode(self._writer_id, number, clock.now_ms())
        location: SegmentLocation | None = None
        left_s = max(call.deadline_s - clock.monotonic(), 0.001)
        try:
            connection, location = await self._segment.directory.connect(self._segment.name)
            request = ConditionalAppend(
                segment=self._segment.name, container_epoch=location.container_epoch,
                writer_id=self._writer_id, first_event_number=number, count=call.content.count,
                is_block=call.content.is_block, expected_length=call.expected,
                updates=call.updates,
            )  # fmt: skip
            timeout_s = min(self._settings.ack_timeout_s, left_s)
            reply, _ = await connection.request(
                request, Appended, timeout_s=timeout_s, payload=data
            )
        except (Retry, Fenced, OutcomeUnknown) as error:
            if location is not None:
                self._segment.directory.forget(location)
                attempts.unclear |= not isinstance(error, WrongHost)
            raise
        self._next_number = number + call.content.count
        self.tail_seen(reply.length)
        self.event_count = reply.event_count
        if call.expected is not None:
            return call.expected + len(data)
        if attempts.unclear and call.content.is_block:
            return await self._find(number, attempts.tail_before, reply.length)
        return reply.length

    async def _pause(self, error: AnabranchError, attempts: _Attempts) -> None:
        """Pause before the next attempt. If there is none, raise the call's error."""
        if isinstance(error, OutcomeUnknown):
            await self._segment.require_known()
        pause_s = attempts.backoff.failed(self._runtime.clock.monotonic())
        if pause_s is not None:
            await self._runtime.clock.sleep(pause_s)
            return
        if attempts.unclear:
            self._renew()
            raise self._unknown() from error
        raise Unavailable(
            "no store accepted the append in time",
            segment=self._segment.name, cause=error.code, said=str(error),
        ) from error  # fmt: skip

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            "no reply to an append, which may or may not be stored",
            remedy="read the stream, then decide whether to append again",
            segment=self._segment.name,
        )

    async def _find(self, number: int, start: int, end: int) -> int:
        """The end of the block with this number, which lies between `start` and `end`.

        The acknowledgement answered a repeated request, and gave the segment's length at that time.
        """
        offset = start
        try:
            while offset < end:
                try:
                    _, data = await self._segment.read(offset, _SCAN_SIZE_BYTES)
                except SegmentTruncated as error:
                    offset = int(error.fields["start"] or 0)
                    continue
                at = 0
                while at < len(data):
                    header = parse_header(data, at)
                    at += header.size
                    if (header.writer_id, header.first_event_number) == (self._writer_id, number):
                        return offset + at
                offset += at
        except Retry as error:
            raise OutcomeUnknown(
                "the append is stored, but its end offset could not be read",
                remedy="do not repeat the append",
                segment=self._segment.name,
            ) from error
        return end
