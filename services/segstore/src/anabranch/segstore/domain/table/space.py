"""When a table segment is compacted, and what compaction copies. Pure.

window   a run of whole blocks at the beginning of the segment
present  an entry whose version the tail or the index names for its key
copied   a present entry that has not expired; all others are dropped with the window
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anabranch.common.wire.block import parse_header
from anabranch.common.wire.table import Copied, parse_table_block
from anabranch.segstore.domain.table.tail import TailEntry

_ENTRY_OVERHEAD_BYTES = 7
"""Of an entry in a block: two lengths and the form."""
COPIES_SIZE_BYTES_MAX = 1024 * 1024
"""Of the copies in one block, unless one alone is larger."""


@dataclass(frozen=True, slots=True)
class Window:
    """The bytes [start, end) of a segment: the latest entry in them of each key."""

    start: int
    end: int
    entries: Mapping[bytes, TailEntry]


def window_of(data: bytes | memoryview, start: int) -> Window:
    """The window of these whole blocks. Raises CorruptBlock, MalformedBlock, FormatTooNew."""
    entries: dict[bytes, TailEntry] = {}
    at = 0
    while at < len(data):
        size = parse_header(data, at).size
        block = parse_table_block(data, start + at, at)
        found = map(TailEntry, block.versions, block.expires_ms, block.values)
        entries.update(zip(block.keys, found, strict=True))
        at += size
    return Window(start, start + at, entries)


def live_share(log_size: int, entries: int, live_size: int) -> float:
    """The share of a log of `log_size` bytes that its present entries need."""
    needed = live_size + entries * _ENTRY_OVERHEAD_BYTES
    return min(needed / log_size, 1.0) if log_size else 1.0


def expired_in(
    window: Window, latest: Mapping[bytes, TailEntry | None], now_ms: int
) -> dict[bytes, int]:
    """The keys of the window whose present entry is in it and has expired, with its version."""
    return {
        key: entry.version for key, entry in _present(window, latest) if not entry.lives(now_ms)
    }


def copies_of(
    window: Window, latest: Mapping[bytes, TailEntry | None], now_ms: int
) -> Iterator[list[Copied]]:
    """The entries to copy, in lists for one block each."""
    copies: list[Copied] = []
    size = 0
    for key, entry in _present(window, latest):
        if not entry.lives(now_ms):
            continue
        assert entry.value is not None
        added = len(key) + len(entry.value)
        if copies and size + added > COPIES_SIZE_BYTES_MAX:
            yield copies
            copies, size = [], 0
        copies.append(Copied(key, entry.version, entry.expires_ms, entry.value))
        size += added
    if copies:
        yield copies


def _present(
    window: Window, latest: Mapping[bytes, TailEntry | None]
) -> Iterator[tuple[bytes, TailEntry]]:
    for key, entry in window.entries.items():
        now = latest.get(key)
        if entry.value is not None and now is not None and now.version == entry.version:
            yield key, entry
