"""The bytes of a byte stream that are written and not stored yet: taken in order, sent in order.

    write ──► waiting (the buffer is full) ──► buffer ──► one append at a time ──► stored

A write is taken whole, when the buffer has come below its limit. Concurrent writes therefore never
mix, and a write that is cancelled while it waits leaves nothing behind. The bytes of several calls
during an append are sent as one append. The first error that a retry cannot cure ends the outbox
for good, because later bytes must not be stored without the failed ones.
"""

import asyncio
from collections import deque

from anabranch.client.one_segment.exact_appends import ExactAppends, RawBytes
from anabranch.client.runtime import Runtime
from anabranch.client.settings import ByteStreamSettings
from anabranch.common.errors import AnabranchError


class ByteOutbox:
    """Owns the buffer, and the calls that wait for room in it or for its end. See the module."""

    def __init__(
        self, appends: ExactAppends, *, runtime: Runtime, settings: ByteStreamSettings
    ) -> None:
        self._appends = appends
        self._runtime = runtime
        self._settings = settings
        self._buffer: deque[memoryview] = deque()
        self._taken_size = 0
        self._stored_size = 0
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._flushing: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._failure: AnabranchError | None = None

    @property
    def failed(self) -> bool:
        """Whether nothing can be written any more."""
        return self._failure is not None

    async def write(self, data: bytes) -> None:
        """Take all of it, as soon as there is room. Raises the error that ended the outbox."""
        if self._failure is not None:
            raise self._failure.copy()
        if self._has_room():  # then no call is waiting: see `_stored`
            self._take(data)
            return
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((data, taken))
        await taken

    async def flush(self) -> None:
        """Return when everything taken before is stored. Raises the error that ended the outbox."""
        if self._failure is not None:
            raise self._failure.copy()
        if self._stored_size < self._taken_size:
            stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flushing.append((self._taken_size, stored))
            await stored

    def fail(self, error: AnabranchError) -> None:
        """End it: every waiting call raises the error. Repeatable: the first error stays."""
        if self._failure is None:
            self._failure = error
        for _, waiter in (*self._waiting, *self._flushing):
            if not waiter.done():
                waiter.set_exception(self._failure.copy())
        self._waiting.clear()
        self._flushing.clear()
        self._buffer.clear()

    def _has_room(self) -> bool:
        return self._taken_size - self._stored_size < self._settings.buffer_size_bytes

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._buffer.append(memoryview(data))
        self._taken_size += len(data)
        if self._sender is None:
            self._sender = self._runtime.start(self._send())

    async def _send(self) -> None:
        """Append the buffer, until nothing is left or an error ends it."""
        try:
            while self._buffer:
                data = self._next_append()
                await self._appends.append(RawBytes(data))
                self._stored(len(data))
        except AnabranchError as error:
            self.fail(error)
        finally:
            self._sender = None

    def _next_append(self) -> bytes:
        """The buffer's first bytes, as many as one append may have."""
        left = self._settings.append_size_bytes
        pieces: list[memoryview] = []
        while self._buffer and left:
            piece = self._buffer.popleft()
            if len(piece) > left:
                self._buffer.appendleft(piece[left:])
                piece = piece[:left]
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _stored(self, size: int) -> None:
        self._stored_size += size
        while self._flushing and self._flushing[0][0] <= self._stored_size:
            _settle(self._flushing.popleft()[1])
        while self._waiting and self._has_room():
            data, taken = self._waiting.popleft()
            if not taken.done():  # else its caller was cancelled
                self._take(data)
                _settle(taken)


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
