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


def merged(changes: Iterable[TableChange], entries_max: int) -> IndexPass:
    """The merger of changes, which follow each other: at least the first one, and more until they
    have `entries_max` entries."""
    entries: dict[bytes, TailEntry] = {}
    requests: dict[bytes, Requests] = {}
    end, anchor = 0, (0, 0)
    for change in changes:
        entries.update(change.entries)
        if not change.copies:
            requests.setdefault(change.client_id, {})[change.request_number] = change.outcome
        end, anchor = change.end, (change.offset, change.crc)
        if len(entries) >= entries_max:
            break
    assert end > 0, "a pass has at least one change"
    return IndexPass(end, anchor, entries, requests)


def parsed(data: Bytes, offset: int, entries_max: int) -> IndexPass:
    """The merger of the whole blocks in `data`, which begin at `offset` of their segment.

    Raises CorruptBlock, MalformedBlock, FormatTooNew.
    """
    return merged(_changes(memoryview(data), offset), entries_max)


def _changes(data: memoryview, offset: int) -> Iterable[TableChange]:
    at = 0
    while at < len(data):
        size = parse_header(data, at).size
        yield change_of(parse_table_block(data, offset + at, at), offset + at, data[at : at + size])
        at += size
