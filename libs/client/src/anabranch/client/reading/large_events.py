"""Reads a large event: follows a reference to its parts, and verifies every one and the whole.

The parts lie before their reference, in the same segment. If the stream is truncated between an
event's parts and its reference, the event is lost and the reader raises EventsTruncated, as for any
truncated event.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

from crc32c import crc32c

from anabranch.common.errors import CorruptBlock, EventsTruncated, SegmentTruncated
from anabranch.common.wire.block import (
    BLOCK_SIZE_BYTES_MAX,
    HEADER_SIZE_BYTES,
    Block,
    LargeReference,
    parse_header,
)

READ_SIZE_BYTES = 8 * 1024 * 1024

ReadBytes = Callable[[int, int], Awaitable[bytes]]
"""(offset, size) → stored bytes of the segment from `offset` on: some, at most about `size`.
Raises SegmentTruncated."""


async def fetch_large(read: ReadBytes, reference: LargeReference) -> bytes:
    """The event that `reference` stands for. Briefly uses memory of twice its size.

    Raises EventsTruncated (fields {offset, start}), CorruptBlock, CodecMissing, and the errors of
    `read`.
    """
    pieces: list[bytes | memoryview] = []
    size = crc = 0
    try:
        async for part in _parts(read, reference):
            piece = part.part()
            size += len(piece)
            if size > reference.size:
                raise CorruptBlock("the parts of a large event are longer than the event")
            crc = crc32c(piece, crc)
            pieces.append(piece)
    except SegmentTruncated as error:
        raise EventsTruncated(
            "the parts of a large event were truncated, but their reference was not",
            offset=reference.offset, start=error.fields.get("start"),
        ) from error  # fmt: skip
    if (size, crc) != (reference.size, reference.crc):
        raise CorruptBlock(
            "the parts of a large event do not match its checksum",
            offset=reference.offset, size=size, wanted=reference.size,
        )  # fmt: skip
    return b"".join(pieces)


async def _parts(read: ReadBytes, reference: LargeReference) -> AsyncIterator[Block]:
    """The parts in order, each verified, numbered from 1, and of one writer."""
    at, end = reference.offset, reference.offset + reference.length
    data, number, writer_id = b"", 0, b""
    while at < end:
        size = _size_of_first(data)
        while size is None or len(data) < size:
            wanted = min(end - at - len(data), READ_SIZE_BYTES)
            more = await read(at + len(data), wanted) if wanted > 0 else b""
            if not more:
                raise CorruptBlock("the parts of a large event are incomplete", offset=at)
            data += more
            size = _size_of_first(data)
        block = Block(data)
        number += 1
        writer_id = writer_id or block.header.writer_id
        found = (block.header.is_part, block.header.first_event_number, block.header.writer_id)
        if found != (True, number, writer_id):
            raise CorruptBlock(
                "the reference of a large event does not lead to its next part", offset=at
            )
        yield block
        at += size
        data = data[size:]


def _size_of_first(data: bytes) -> int | None:
    """The size of the block that begins the data; None: its header is not complete."""
    if len(data) < HEADER_SIZE_BYTES:
        return None
    size = parse_header(data).size
    assert size <= BLOCK_SIZE_BYTES_MAX
    return size
