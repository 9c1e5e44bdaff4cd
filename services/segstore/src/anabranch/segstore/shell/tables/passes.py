"""One pass of indexing: the changes to write, from the tail or from the log. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from anabranch.common.wire.block import parse_header
from anabranch.common.wire.table import TableBlock, parse_table_block
from anabranch.common.wire.table_columns import EntryColumns
from anabranch.segstore.domain.table.tail import Requests, TableChange, change_of
from anabranch.segstore.shell.memory.granule import Bytes


@dataclass(frozen=True, slots=True)
class IndexPass:
    """Merged changes up to the offset `end`. `anchor`: offset and checksum of the last block."""

    end: int
    anchor: tuple[int, int]
    entries: EntryColumns
    requests: dict[bytes, Requests]


ENTRIES_MAX = 4096
SIZE_BYTES_MAX = 2 * 1024 * 1024
"""Of one pass, unless one change alone has more."""


def merged(changes: Iterable[TableChange]) -> IndexPass:
    """The merger of changes, which follow each other: at least the first one, and more until they
    have `ENTRIES_MAX` entries or `SIZE_BYTES_MAX`. Of several updates of a key, the last counts."""
    blocks: list[TableBlock] = []
    requests: dict[bytes, Requests] = {}
    end, anchor, count, size = 0, (0, 0), 0, 0
    for change in changes:
        block = change.block
        blocks.append(block)
        if not block.copies:
            requests.setdefault(block.client_id, {})[block.request_number] = change.outcome
        end, anchor = change.end, (change.offset, change.crc)
        count += len(block.keys)
        size += change.end - change.offset
        if count >= ENTRIES_MAX or size >= SIZE_BYTES_MAX:
            break
    assert end > 0, "a pass has at least one change"
    return IndexPass(end, anchor, _latest(blocks), requests)


def _latest(blocks: Sequence[TableBlock]) -> EntryColumns:
    """The last update of each key in the blocks."""
    keys = list(chain.from_iterable([block.keys for block in blocks]))
    columns = EntryColumns(
        keys,
        list(chain.from_iterable([block.versions for block in blocks])),
        list(chain.from_iterable([block.expires_ms for block in blocks])),
        list(chain.from_iterable([block.values for block in blocks])),
    )
    last = dict(zip(keys, range(len(keys)), strict=True))
    return columns if len(last) == len(keys) else columns.at(list(last.values()))


def parsed(data: Bytes, offset: int) -> IndexPass:
    """The merger of the whole blocks in `data`, which begin at `offset` of their segment.

    Raises CorruptBlock, MalformedBlock, FormatTooNew.
    """
    return merged(_changes(memoryview(data), offset))


def _changes(data: memoryview, offset: int) -> Iterable[TableChange]:
    at = 0
    while at < len(data):
        size = parse_header(data, at).size
        yield change_of(parse_table_block(data, offset + at, at), offset + at, data[at : at + size])
        at += size
