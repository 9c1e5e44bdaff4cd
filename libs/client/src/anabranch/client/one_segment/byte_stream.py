"""A byte stream: a stream of one segment that is written and read as a file, without events.

Writes go to the end, in the order of the calls, each byte exactly once (`byte_outbox`). Reads have
a place of their own between the head and the tail. At the tail they wait for more bytes; only the
end of a sealed stream is the end of the file. Truncation removes bytes at the front, so offsets
never change. Stored bytes are immutable, so bytes that were read ahead stay valid.

A byte stream holds no events. An event reader of a byte stream raises CorruptBlock; a byte stream
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
    Remedy,
    SegmentTruncated,
)
from anabranch.common.model.names import StreamRef

Writable: TypeAlias = "bytearray | memoryview | array[int]"
Readable: TypeAlias = "bytes | bytearray | memoryview | array[int]"
"""Any object that supports the buffer protocol works; a memoryview of it satisfies the types."""

WAIT_S_MAX = 3600.0
"""The longest single wait at the tail; an unbounded read waits again."""


class ByteStream:
    """A stream as a file: an async context manager, made by `Client.byte_stream`. See the module.

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
        """Find the segment; reads begin at the head. A sealed stream can be opened and read.

        Raises StreamNotFound, InvalidRequest (it has several segments), Unavailable.
        """
        await self._segment.open()
        info = await self._segment.info()
        self._offset, self._known_tail = info.start, info.length
        self._runtime.open_parts.add(self._appends)
        self._open = True

    async def close(self) -> None:
        """Flush, then stop; repeatable. Raises as `flush`, and is then closed all the same."""
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
        """Leaving the block by an exception drops the bytes that are not stored yet."""
        if kind is None:
            await self.close()
        else:
            await self._stop()

    def _require_open(self) -> None:
        if not self._open:
            raise Closed(
                "the byte stream is not open",
                remedy=Remedy(api="use it as `async with client.byte_stream(...)`"),
                stream=str(self.stream),
            )

    # --- writing --------------------------------------------------------------------------

    async def write(self, data: Readable) -> int:
        """Take all of `data`, to store it at the end. Returns its size.

        Waits while the buffer is full; a cancelled call has taken all or nothing. `flush` returns
        when the bytes are stored. Raises Closed, and the error that ended writing: StreamSealed,
        StreamNotFound, Unavailable, OutcomeUnknown (the last bytes written may be stored).

        ::

            await file.write(b"line")
        """
        self._require_open()
        taken = bytes(data)
        await self._outbox.write(taken)
        return len(taken)

    async def flush(self) -> None:
        """Return when everything written before is stored. Raises as `write`.

        ::

            await file.flush()
        """
        self._require_open()
        await self._outbox.flush()

    # --- reading --------------------------------------------------------------------------

    async def read(self, size: int = -1, *, wait_s: float | None = None) -> bytes:
        """The next bytes, at most `size` of them. A negative size reads to the present tail.

        At the tail it waits for at least one byte; if `wait_s` passes first, it returns b"". At the
        end of a sealed stream it returns b"". If the next bytes were truncated, it raises
        EventsTruncated once (fields: offset, start), and the next read continues after them. Raises
        Closed, InvalidRequest (another read is pending), StreamNotFound, Unavailable.

        ::

            data = await file.read(4096, wait_s=1.0)
        """
        self._require_open()
        if self._reading:
            raise InvalidRequest(
                "another read is pending", remedy="wait for each read before the next one"
            )
        if size == 0:
            return b""
        self._reading = True
        try:
            return await self._read(size, wait_s)
        finally:
            self._reading = False

    async def readinto(self, buffer: Writable, *, wait_s: float | None = None) -> int:
        """Read into the front of a writable buffer, as `read` of its size. Returns the number of
        bytes.

        ::

            count = await file.readinto(bytearray(4096))
        """
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
                    break  # return these bytes first; the next read raises
                raise self._truncated(at, error) from error
            if not piece:
                break
            if size >= 0:
                piece = piece[: size - (at - start)]
            parts.append(piece)
            at += len(piece)
        if self._offset == start:  # else another call has sought elsewhere meanwhile
            self._offset = at
        return b"".join(parts)

    def _fetched_before(self, offset: int) -> bytes:
        within = offset - self._ahead_start
        return self._ahead[within:] if 0 <= within < len(self._ahead) else b""

    async def _fetch(self, offset: int, wait_s: float | None) -> bytes:
        """The bytes at `offset`, kept for the next reads; b"" at the tail or end."""
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
        """The offset of the next byte to read.

        ::

            offset = file.tell()
        """
        return self._offset

    def seekable(self) -> bool:
        """True: reads may begin anywhere that is not truncated.

        ::

            assert file.seekable()
        """
        return True

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Continue reading at `offset`, relative to 0, to the present place or to the tail. Returns
        the new offset.

        Raises InvalidRequest for a place before 0 or beyond the tail, and as `tail`.

        ::

            await file.seek(0)
            await file.seek(-100, os.SEEK_END)
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
                remedy=Remedy(api="seek to an offset from 0 to `byte_stream.tail()`"),
                offset=target, tail=self._known_tail,
            )  # fmt: skip
        self._offset = target
        return target

    async def head(self) -> int:
        """The first offset that can be read. Raises StreamNotFound, Unavailable.

        ::

            await file.seek(await file.head())
        """
        self._require_open()
        return (await self._segment.info()).start

    async def tail(self) -> int:
        """The offset after the last stored byte of any writer. Raises StreamNotFound, Unavailable.

        ::

            unread = await file.tail() - file.tell()
        """
        self._require_open()
        self._known_tail = (await self._segment.info()).length
        return self._known_tail

    async def truncate(self, offset: int) -> int:
        """Remove the bytes before `offset`, for good. Returns the new head.

        The store removes whole appends: the head is the last place at or before `offset` where the
        store can cut. An offset before the head succeeds. Raises StreamNotFound, StreamSealed,
        InvalidRequest (beyond the tail), Busy, Unavailable, OutcomeUnknown (it is safe to truncate
        again).

        ::

            head = await file.truncate(4096)
        """
        self._require_open()
        try:
            await self._segment.truncate(offset)
        except NotAtBoundary as error:
            await self._segment.truncate(int(error.fields["lower"] or 0))
        return await self.head()
