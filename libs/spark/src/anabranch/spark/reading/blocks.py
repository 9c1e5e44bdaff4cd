"""Stored bytes of segments → verified blocks, and runs of blocks that become one batch each.

Small blocks are joined, also across segments, into batches of about 1 MiB. A large event gets a
batch of its own, and only one of them is in memory at a time.
"""

from collections.abc import Callable, Iterable, Iterator

from anabranch.client.reading.arrow import PlacedBlock
from anabranch.common.errors import CorruptBlock, EventTooLarge
from anabranch.common.wire.block import Block, LargeReference, block_body, verify_block

BATCH_BYTES = 1024 * 1024
BATCH_ROWS_MAX = 64 * 1024

FetchLarge = Callable[[LargeReference], bytes | None]
"""The large event that a reference of the segment stands for; None: it is left out."""


def placed_blocks(
    segment: str,
    data: bytes | memoryview,
    offset: int,
    *,
    skip: int = 0,
    keep: int = 0,
    fetch_large: FetchLarge | None = None,
) -> Iterator[PlacedBlock]:
    """Yield the blocks in `data`, whole blocks that lie at `offset` of the segment.

    Marks the first `skip` events and, of the last block, the events after the first `keep` (0:
    none) as left out. Leaves out parts of large events. Raises CorruptBlock, FormatTooNew,
    CodecMissing, and the errors of `fetch_large`; without it, EventTooLarge for a large event.
    """
    view = memoryview(data)
    at = 0
    while at < len(view):
        try:
            header = verify_block(view, at)
            body = b"" if header.is_part or header.is_large else block_body(view, header, at)
        except CorruptBlock as error:
            raise CorruptBlock(error.message, segment=segment, offset=offset + at) from error
        end = at + header.size
        if not header.is_part:
            first = skip if at == 0 else 0
            stop = keep if keep and end == len(view) else None
            if header.is_large:
                large = _large(segment, view, at, offset, fetch_large)
                if large is not None:
                    yield large
            else:
                yield PlacedBlock(segment, offset + at, header, body, first, stop)
        at = end


def _large(
    segment: str, view: memoryview, at: int, offset: int, fetch: FetchLarge | None
) -> PlacedBlock | None:
    """The block at `at` with its event in place of the reference; None: `fetch` leaves it out."""
    if fetch is None:
        raise EventTooLarge("the event is larger than a block", segment=segment, offset=offset + at)
    try:
        block = Block(view, at)
        event = fetch(block.reference(offset + at))
        if event is None:
            return None
        block.put_event(event)
    except CorruptBlock as error:
        raise CorruptBlock(error.message, segment=segment, offset=offset + at) from error
    return PlacedBlock(segment, offset + at, block.header, block.body)


def groups(blocks: Iterable[PlacedBlock]) -> Iterator[list[PlacedBlock]]:
    """Yield runs of blocks, each of which becomes one batch.

    Only the first block of a run leaves out events at its start, and only the last one at its end.
    """
    group: list[PlacedBlock] = []
    rows = size = 0
    for block in blocks:
        body_size = block.header.body_size
        if group and (block.first or body_size > BATCH_BYTES):
            yield group
            group, rows, size = [], 0, 0
        group.append(block)
        rows += block.header.event_count
        size += body_size
        if size >= BATCH_BYTES or rows >= BATCH_ROWS_MAX or block.stop is not None:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group
