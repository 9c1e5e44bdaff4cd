"""Brings the parts of a large event to its segment's store, into a transient segment.

    create a transient segment ──► append the parts ──► seal it ──append of the reference──► stored

The append of the reference names the transient segment, and the store puts the parts directly
before the reference, both or none. After any failure the event is uploaded again from the
beginning. The transient segment ends with the connection, or at once if the upload fails, is
cancelled, or is no longer needed.

The parts count as bytes in flight of the writer. They are sent one by one: each is large enough to
keep a store busy.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from crc32c import crc32c

from anabranch.client.writing.batches import Uploaded
from anabranch.client.writing.pacing import InFlight
from anabranch.common.adapters.store_connection import SegmentStoreConnection
from anabranch.common.errors import ConnectionLost, SegmentNotFound, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.block import PART_SIZE_BYTES_MAX, LargeReference
from anabranch.common.wire.block_encoding import encode_part
from anabranch.common.wire.messages import (
    NO_DECISION,
    Appended,
    AppendOnce,
    CreateTransient,
    DeleteSegment,
    Sealed,
    SealSegment,
    SegmentCreated,
)


def _discard(transient: str, connection: SegmentStoreConnection) -> None:
    with suppress(ConnectionLost):
        connection.send_and_forget(DeleteSegment(segment=transient, stamp=NO_DECISION))


@dataclass(frozen=True, slots=True)
class Uploads:
    """The uploads of one writer. `timeout_s` bounds each request; `zstd_level` is the same as for
    blocks.
    """

    writer_id: bytes
    in_flight: InFlight
    clock: Clock
    timeout_s: float
    zstd_level: int | None = None

    async def upload(
        self, event: bytes, segment: str, container_epoch: int, connection: SegmentStoreConnection
    ) -> Uploaded:
        """Store the parts for an append to `segment` on this connection.

        Raises the store's errors and ConnectionLost. Unavailable: the transient segment was lost on
        the way, or there was no room.
        """
        create = CreateTransient(
            segment=segment, container_epoch=container_epoch, writer_id=self.writer_id
        )
        made, _ = await connection.request(create, SegmentCreated, timeout_s=self.timeout_s)
        try:
            return await self._fill(event, made.segment, connection)
        except BaseException as error:
            _discard(made.segment, connection)
            if isinstance(error, SegmentNotFound):
                raise Unavailable(
                    "the transient segment of an upload is gone", segment=segment
                ) from error
            raise

    async def _fill(
        self, event: bytes, transient: str, connection: SegmentStoreConnection
    ) -> Uploaded:
        view, crc = memoryview(event), 0
        for number, start in enumerate(range(0, len(event), PART_SIZE_BYTES_MAX), 1):
            piece = view[start : start + PART_SIZE_BYTES_MAX]
            crc = crc32c(piece, crc)
            await self._append(piece, number, transient, connection)
        seal = SealSegment(segment=transient, stamp=NO_DECISION)
        reply, _ = await connection.request(seal, Sealed, timeout_s=self.timeout_s)
        reference = LargeReference(0, reply.length, len(event), crc)
        return Uploaded(transient, reference, lambda: _discard(transient, connection))

    async def _append(
        self, piece: memoryview, number: int, transient: str, connection: SegmentStoreConnection
    ) -> None:
        part = encode_part(
            piece,
            writer_id=self.writer_id,
            number=number,
            base_timestamp_ms=self.clock.now_ms(),
            zstd_level=self.zstd_level,
        )
        append = AppendOnce(
            segment=transient, writer_id=self.writer_id, first_event_number=number, count=1
        )
        granted = asyncio.Event()
        claim = self.in_flight.claim(len(part), granted.set)
        try:
            await self._until(granted)
            await connection.request(append, Appended, timeout_s=self.timeout_s, payload=part)
        finally:
            self.in_flight.withdraw(claim)
            self.in_flight.wake()

    async def _until(self, granted: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self.timeout_s):
                await granted.wait()
        except TimeoutError:
            raise Unavailable("a writer has received no acknowledgement for long") from None
