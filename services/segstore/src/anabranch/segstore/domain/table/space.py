"""When a table segment is compacted, and what compaction copies. Pure.

window   a run of whole blocks at the beginning of the segment
present  an entry whose version the tail or the index names for its key
live     a present entry that has not expired: it is copied; all others are dropped with the window

    the log as a whole is sparse      the whole window is compacted
    the first blocks have no live     they are dropped, up to the first live entry
      entries
    the first block has both live     this block is compacted
      and expired entries
    otherwise                         nothing is due
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.common.wire.block import parse_header
from anabranch.common.wire.table import COPY_OVERHEAD_BYTES, Copied, parse_table_block
from anabranch.segstore.domain.table.tail import TailEntry

COPIES_SIZE_BYTES_MAX = 256 * 1024
"""Of the copies in one block, unless one alone is larger."""

Latest = Mapping[bytes, TailEntry | None]
"""The latest entry of each key of a window."""


class WindowBlock(NamedTuple):
    """A block of a window, which ends before `end`: the latest entry in it of each key."""

    end: int
    entries: Mapping[bytes, TailEntry]


@dataclass(frozen=True, slots=True)
class Window:
    """Blocks of a segment, adjacent, from `start` on."""

    start: int
    blocks: Sequence[WindowBlock]

    @property
    def end(self) -> int:
        return self.blocks[-1].end if self.blocks else self.start

    @property
    def entries(self) -> dict[bytes, TailEntry]:
        """The latest entry in the window of each key."""
        merged: dict[bytes, TailEntry] = {}
        for block in self.blocks:
            merged.update(block.entries)
        return merged


def window_of(data: bytes | memoryview, start: int) -> Window:
    """The window of these whole blocks. Raises CorruptBlock, MalformedBlock, FormatTooNew."""
    blocks: list[WindowBlock] = []
    at = 0
    while at < len(data):
        size = parse_header(data, at).size
        block = parse_table_block(data, start + at, at)
        found = map(TailEntry, block.versions, block.expires_ms, block.values)
        at += size
        blocks.append(WindowBlock(start + at, dict(zip(block.keys, found, strict=True))))
    return Window(start, blocks)


def live_share(log_size: int, entries: int, live_size: int) -> float:
    """The share of a log of `log_size` bytes that it would have if all its entries were copied."""
    needed = live_size + entries * COPY_OVERHEAD_BYTES
    return min(needed / log_size, 1.0) if log_size else 1.0


def part_to_compact(window: Window, latest: Latest, now_ms: int, *, sparse: bool) -> Window:
    """The first blocks of the window that are compacted now; perhaps none."""
    if sparse:
        return window
    count = 0
    for block in window.blocks:
        if any(entry.lives(now_ms) for _, entry in _present(block.entries, latest)):
            break
        count += 1
    if count == 0 and window.blocks and _has_expired(window.blocks[0], latest, now_ms):
        count = 1
    return Window(window.start, window.blocks[:count])


def _has_expired(block: WindowBlock, latest: Latest, now_ms: int) -> bool:
    return any(not entry.lives(now_ms) for _, entry in _present(block.entries, latest))


def expired_in(window: Window, latest: Latest, now_ms: int) -> dict[bytes, int]:
    """The keys of the window whose present entry is in it and has expired, with its version."""
    found = _present(window.entries, latest)
    return {key: entry.version for key, entry in found if not entry.lives(now_ms)}


def copies_of(window: Window, latest: Latest, now_ms: int) -> Iterator[list[Copied]]:
    """The entries to copy, in lists for one block each."""
    copies: list[Copied] = []
    size = 0
    for key, entry in _present(window.entries, latest):
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
    entries: Mapping[bytes, TailEntry], latest: Latest
) -> Iterator[tuple[bytes, TailEntry]]:
    for key, entry in entries.items():
        now = latest.get(key)
        if entry.value is not None and now is not None and now.version == entry.version:
            yield key, entry
