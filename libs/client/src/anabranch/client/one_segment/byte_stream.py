"""A byte stream: a stream of one segment that is written and read as a file, without events.

Writing goes to the end, in the order of the calls, each byte exactly once (`byte_outbox`). Reading
has a place of its own, from the head to the tail, where it waits for more; only the end of a sealed
stream is the end of the file. What was truncated is given up from the front, so offsets never
change. Bytes that are read are immutable: what was fetched ahead needs no asking again.

A byte stream holds no events. An event reader that meets one is told CorruptBlock; a byte stream
that is opened on a stream of events shows their blocks as they are stored.
"""

import os
from array import array
from types import TracebackType
from typing import Self, TypeAlias

from anabranch.client.one_segment.byte_outbox import ByteOutbox
from anabranch.client.one_segment.exact_appends import ExactAppends
from anabranch.client.one_segment.segment import OneSegment
from anabranch.client.runtime import Runtime
from anabranch.client.settings import ByteStreamSettings
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.common.errors import (
    Closed,
    EventsTruncated,
    InvalidRequest,
    NotAtBoundary,
    SegmentTruncated,
)
from anabranch.common.model.names import StreamRef

Writable: TypeAlias = "bytearray | memoryview | array[int]"
Readable: TypeAlias = "bytes | bytearray | memoryview | array[int]"
"""Anything that is a buffer will do; of other kinds than these make a memoryview for the types."""

WAIT_S_MAX = 3600.0
"""Of one wait at the tail; who waits for ever begins another one."""


class ByteStream:
    """See the module. An async context manager; made by `Client.byte_stream`.

    ::

        async with client.byte_stream("plant/log") as file:
            await file.write(b"line")
            await file.flush()
            print(await file.read(100), file.tell())
    """

    def __init__(
        self,
        stream: StreamRef,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: ByteStreamSettings,
    ) -> None:
        self.stream = stream
        self._runtime = runtime
        self._settings = settings
        self._segment = OneSegment(
            stream, control=control, directory=directory, runtime=runtime, settings=settings
        )
        self._appends = ExactAppends(self._segment)
        self._outbox = ByteOutbox(self._appends, runtime=runtime, settings=settings)
        self._offset = 0
        self._known_tail = 0
        self._ahead = b""
        self._ahead_start = 0
        self._reading = False
        self._open = False

    # --- life -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Find the segment; reading begins at the head. A sealed stream can be opened, and read.

        Raises StreamNotFound, InvalidRequest (it has several segments), Unavailable.
        """
        await self._segment.open()
        info = await self._segment.info()
        self._offset, self._known_tail = info.start, info.length
        self._runtime.open_parts.add(self._appends)
        self._open = True

    async def close(self) -> None:
        """Flush, then stop; repeatable. Raises what `flush` raises, and is closed all the same."""
        if not self._open:
            return
        self._open = False
        try:
            if not self._outbox.failed:
                await self._outbox.flush()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self._open = False
        self._outbox.fail(Closed("the byte stream is closed", stream=str(self.stream)))
        self._runtime.open_parts.discard(self._appends)
        await self._appends.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Left by an exception, it drops what is not stored yet."""
        if kind is None:
            await self.close()
        else:
            await self._stop()

    def _require_open(self) -> None:
        if not self._open:
            raise Closed(
                "the byte stream is not open",
                remedy="use it as `async with client.byte_stream(…)`",
                stream=str(self.stream),
            )

    # --- writing --------------------------------------------------------------------------

    async def write(self, data: Readable) -> int:
        """Take all of `data`, to be stored at the end → its size.

        Waits while the buffer is full; a call that is cancelled has taken all or nothing. `flush`
        returns when it is stored. Raises Closed, and what has ended writing: StreamSealed,
        StreamNotFound, Unavailable, OutcomeUnknown (the end of what was written may be stored).
        """
        self._require_open()
        taken = bytes(data)
        await self._outbox.write(taken)
        return len(taken)

    async def flush(self) -> None:
        """Return when all is stored that was written before. Raises as `write`."""
        self._require_open()
        await self._outbox.flush()

    # --- reading --------------------------------------------------------------------------

    async def read(self, size: int = -1, *, wait_s: float | None = None) -> bytes:
        """The next bytes, up to `size` of them; a negative size: all up to the present tail.

        At the tail it waits until there is at least one, or for `wait_s`, and then returns none.
        At the end of a sealed stream it returns b"". Raises EventsTruncated once (fields: offset,
        start) where bytes that were to be read next are gone: reading goes on behind them. Raises
        Closed, InvalidRequest (another read is under way), StreamNotFound, Unavailable.
        """
        self._require_open()
        if self._reading:
            raise InvalidRequest("another read is pending", remedy="await one read after the other")
        if size == 0:
            return b""
        self._reading = True
        try:
            return await self._read(size, wait_s)
        finally:
            self._reading = False

    async def readinto(self, buffer: Writable, *, wait_s: float | None = None) -> int:
        """Fill the front of a writable buffer → with how many bytes. As `read` of its size."""
        with memoryview(buffer) as view:
            if view.readonly or not view.c_contiguous:
                raise InvalidRequest("a buffer to read into must be writable and in one piece")
            data = await self.read(view.nbytes, wait_s=wait_s)
            with view.cast("B") as target:
                target[: len(data)] = data
        return len(data)

    async def _read(self, size: int, wait_s: float | None) -> bytes:
        start = at = self._offset
        parts: list[bytes] = []
        while size < 0 or at - start < size:
            try:
                piece = self._fetched_before(at) or await self._fetch(at, 0.0 if parts else wait_s)
            except SegmentTruncated as error:
                if parts:
                    break  # what there is first; the next read tells
                raise self._truncated(at, error) from error
            if not piece:
                break
            if size >= 0:
                piece = piece[: size - (at - start)]
            parts.append(piece)
            at += len(piece)
        if self._offset == start:  # else somebody has sought another place meanwhile
            self._offset = at
        return b"".join(parts)

    def _fetched_before(self, offset: int) -> bytes:
        within = offset - self._ahead_start
        return self._ahead[within:] if 0 <= within < len(self._ahead) else b""

    async def _fetch(self, offset: int, wait_s: float | None) -> bytes:
        """What lies at `offset`, kept for the next reads; nothing at the tail or end."""
        while True:
            reply, data = await self._segment.read(
                offset,
                self._settings.read_size_bytes,
                wait_s=WAIT_S_MAX if wait_s is None else wait_s,
                whole_appends=False,
            )
            if data or reply.end_of_segment or wait_s is not None:
                self._ahead, self._ahead_start = data, offset
                self._known_tail = max(self._known_tail, offset + len(data))
                return data

    def _truncated(self, offset: int, error: SegmentTruncated) -> EventsTruncated:
        start = int(error.fields["start"] or 0)
        self._offset = start
        return EventsTruncated(
            "the next bytes were truncated",
            remedy="read again; the next read continues after the truncated bytes",
            segment=self._segment.name, offset=offset, start=start,
        )  # fmt: skip

    # --- places ---------------------------------------------------------------------------

    def tell(self) -> int:
        """The offset of what is read next."""
        return self._offset

    def seekable(self) -> bool:
        """True, as far as the stream is not truncated."""
        return True

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Read on from `offset`, counted from 0, from the present place or from the tail → from 0.

        Raises InvalidRequest for a place before 0 or beyond the tail, and as `tail`.
        """
        self._require_open()
        match whence:
            case os.SEEK_SET:
                target = offset
            case os.SEEK_CUR:
                target = self._offset + offset
            case os.SEEK_END:
                target = await self.tail() + offset
            case _:
                raise InvalidRequest("unknown whence", whence=whence)
        if target < 0 or (target > self._known_tail and target > await self.tail()):
            raise InvalidRequest(
                "the position lies outside the stream",
                remedy="seek to 0 … tail()", offset=target, tail=self._known_tail,
            )  # fmt: skip
        self._offset = target
        return target

    async def head(self) -> int:
        """The first offset that can be read. Raises StreamNotFound, Unavailable."""
        self._require_open()
        return (await self._segment.info()).start

    async def tail(self) -> int:
        """The offset behind all that is stored, by whomever. Raises StreamNotFound, Unavailable."""
        self._require_open()
        self._known_tail = (await self._segment.info()).length
        return self._known_tail

    async def truncate(self, offset: int) -> int:
        """Give up what lies before `offset`, for good → the new head.

        What was stored at once is given up at once: the head is the last place at or before
        `offset` where the store can cut. One before the head is success. Raises StreamNotFound,
        StreamSealed, InvalidRequest (beyond the tail), Busy, Unavailable, OutcomeUnknown
        (truncating again is safe).
        """
        self._require_open()
        try:
            await self._segment.truncate(offset)
        except NotAtBoundary as error:
            await self._segment.truncate(int(error.fields["lower"] or 0))
        return await self.head()
