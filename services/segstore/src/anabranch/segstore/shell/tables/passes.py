"""One pass of indexing: the changes to write, from the tail or from the log. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.common.wire.block import parse_header
from anabranch.common.wire.table import parse_table_block
from anabranch.segstore.domain.table.tail import Requests, TableChange, TailEntry, change_of
from anabranch.segstore.shell.memory.granule import Bytes


@dataclass(frozen=True, slots=True)
class IndexPass:
    """Merged changes up to the offset `end`. `anchor`: offset and checksum of the last block."""

    end: int
    anchor: tuple[int, int]
    entries: dict[bytes, TailEntry]
    requests: dict[bytes, Requests]


ENTRIES_MAX = 4096
SIZE_BYTES_MAX = 2 * 1024 * 1024
"""Of one pass, unless one change alone has more."""


def merged(changes: Iterable[TableChange]) -> IndexPass:
    """The merger of changes, which follow each other: at least the first one, and more until they
    have `ENTRIES_MAX` entries or `SIZE_BYTES_MAX`."""
    entries: dict[bytes, TailEntry] = {}
    requests: dict[bytes, Requests] = {}
    end, anchor, size = 0, (0, 0), 0
    for change in changes:
        entries.update(change.entries)
        if not change.copies:
            requests.setdefault(change.client_id, {})[change.request_number] = change.outcome
        end, anchor = change.end, (change.offset, change.crc)
        size += change.end - change.offset
        if len(entries) >= ENTRIES_MAX or size >= SIZE_BYTES_MAX:
            break
    assert end > 0, "a pass has at least one change"
    return IndexPass(end, anchor, entries, requests)


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
