"""Reads the changes of one partition, ahead of the watch.

    snapshot ──its entries──► following ──entries of table blocks──► the end of a sealed segment

The snapshot is read after the place from which the tail follows was taken, so it may contain
changes that lie behind that place. For these keys the tail skips all changes up to the version that
the snapshot had. It also skips copies, which compaction makes, and refusals.

A tail has at most one undelivered `Arrival`, and reads the next one meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.client.tables.pages import PageSize, PartitionPages
from anabranch.client.tables.parts import TableParts
from anabranch.client.tables.position import Place
from anabranch.client.tables.scan import stored_entries
from anabranch.common.contracts.tables import Partition
from anabranch.common.errors import (
    AnabranchError,
    BadPacket,
    CorruptBlock,
    InvalidPosition,
    InvalidRequest,
    SegmentTruncated,
    VersionCompacted,
)
from anabranch.common.errors.remedy import FieldValue
from anabranch.common.model.table import RESERVED_KEYS
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.messages import ReadSegment, Request, SegmentRead, TableDescribed
from anabranch.common.wire.table import TableBlock, parse_table_block


class StoredChange(NamedTuple):
    """A change as it is stored, and the place after it. `value` None removed the entry; `number` is
    that of the version."""

    key: bytes
    value: bytes | None
    number: int
    time_ms: int
    expires_ms: int
    after: Place


@dataclass(frozen=True, slots=True)
class Arrival:
    """Changes of a partition in their order, and the place after everything that was read.

    If `ended`, nothing follows; then `failure` is the reason, or None at the end of the segment.
    """

    tail: "PartitionTail"
    changes: Sequence[StoredChange]
    next: Place
    ended: bool = False
    failure: AnabranchError | None = None


class Arrivals:
    """The arrivals of all tails, in their order; `news` is set when there is one."""

    def __init__(self) -> None:
        self.ready: deque[Arrival] = deque()
        self.news = asyncio.Event()

    def put(self, arrival: Arrival) -> None:
        self.ready.append(arrival)
        self.news.set()


class PartitionTail:
    """The changes of a partition from `place` on, as `described` by its store.

    The consumer calls `taken` for each arrival. `is_given`: the caller gave the place, which may be
    wrong.
    """

    def __init__(
        self,
        partition: Partition,
        described: TableDescribed,
        place: Place,
        *,
        parts: TableParts,
        arrivals: Arrivals,
        size_max: int,
        is_given: bool,
    ) -> None:
        self.partition = partition
        self.segment_number = described.segment_number
        self._place = place
        self._parts = parts
        self._arrivals = arrivals
        self._size_max = size_max
        self._late: dict[bytes, int] = {}
        """The versions of the snapshot's entries that lie behind the place to follow from."""
        self._is_doubtful = is_given
        """Whether no block was found at the place yet, so that it may be wrong."""
        self._room = asyncio.Event()
        self._room.set()

    def taken(self) -> None:
        """Note that the consumer has taken the arrival."""
        self._room.set()

    async def run(self) -> None:
        """Read until the end of the segment, or until a failure."""
        failure: AnabranchError | None = None
        try:
            if self._place.scanned is not None:
                await self._scan(self._place.scanned)
            await self._follow()
        except AnabranchError as error:
            failure = error
        await self._deliver((), self._place, ended=True, failure=failure)

    async def _deliver(
        self,
        changes: Sequence[StoredChange],
        following: Place,
        *,
        ended: bool = False,
        failure: AnabranchError | None = None,
    ) -> None:
        await self._room.wait()
        self._room.clear()
        self._place = following
        self._arrivals.put(Arrival(self, changes, following, ended, failure))

    # --- the snapshot ---------------------------------------------------------------------

    async def _scan(self, scanned: bytes) -> None:
        start = scanned + b"\0" if scanned else b""
        size = PageSize(self._parts.settings.page_size, self._size_max)
        pages = PartitionPages(self.partition.segment, self._parts, start, RESERVED_KEYS, size)
        offset = self._place.offset
        try:
            while (page := await pages.next()) is not None:
                entries = stored_entries(self.partition.segment_id, page)
                self._late |= {
                    each.key: each.version.number
                    for each in entries
                    if each.version.number >= offset
                }
                changes = [
                    StoredChange(
                        key, value, version.number, 0, expires_ms,
                        self._place._replace(scanned=key),
                    )
                    for key, value, version, expires_ms in entries
                ]  # fmt: skip
                await self._deliver(changes, changes[-1].after)
        finally:
            pages.close()
        await self._deliver((), self._place._replace(scanned=None))

    # --- following ------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            offset = self._place.offset
            try:
                reply, data = await self._read(offset)
            except InvalidRequest as error:
                raise (self._misplaced() if self._is_doubtful else error) from error
            changes, following, damage = self._parsed(offset, data)
            if data:
                self._is_doubtful = False
                await self._deliver(changes, following)
            if damage is not None:
                raise damage
            if reply.end_of_segment:
                return

    async def _read(self, offset: int) -> tuple[SegmentRead, bytes]:
        settings = self._parts.settings

        def request(container_epoch: int) -> Request:
            return ReadSegment(
                segment=self.partition.segment, container_epoch=container_epoch, offset=offset,
                size_max=self._size_max, wait_ms=settings.wait_ms,
            )  # fmt: skip

        timeout_s = settings.wait_ms / 1000 + settings.ack_timeout_s
        try:
            reply, data = await self._parts.ask(
                self.partition.segment, request, SegmentRead, timeout_s=timeout_s
            )
        except SegmentTruncated as error:
            start = error.fields.get("start")
            raise compacted(self._parts, self.partition, offset, start) from error
        if reply.offset != offset:
            raise BadPacket("a reply to a read starts at another offset", offset=offset)
        return reply, data

    def _parsed(
        self, offset: int, data: bytes
    ) -> tuple[list[StoredChange], Place, CorruptBlock | None]:
        """The changes in whole blocks that begin at `offset`, and the place after them: up to the
        end of the data, or to a damaged block. Raises InvalidPosition."""
        changes: list[StoredChange] = []
        index = self._place.entry_index
        at = 0
        while at < len(data):
            begin = offset + at
            try:
                block = parse_table_block(data, begin, at)
            except CorruptBlock as error:
                if self._is_doubtful and not at:
                    raise self._misplaced() from error
                segment = self.partition.segment
                damage = CorruptBlock(error.message, segment=segment, offset=begin)
                return changes, Place(begin), damage
            if index > len(block.keys):
                raise self._misplaced()
            at += parse_header(data, at).size
            if not block.copies:
                changes += self._changes(block, begin, offset + at, index)
            index = 0
        return changes, Place(offset + at, index), None

    def _changes(
        self, block: TableBlock, begin: int, end: int, index: int
    ) -> Iterator[StoredChange]:
        """The entries of a block from `index` on, but not those that the snapshot included."""
        self._drop_late_before(begin)
        last = len(block.keys) - 1
        for entry in range(index, len(block.keys)):
            key, number = block.keys[entry], block.versions[entry]
            if key >= RESERVED_KEYS or (self._late and number <= self._late.get(key, -1)):
                continue
            after = Place(begin, entry + 1) if entry < last else Place(end)
            yield StoredChange(
                key, block.values[entry], number, block.time_ms, block.expires_ms[entry], after
            )

    def _drop_late_before(self, offset: int) -> None:
        if self._late and max(self._late.values()) < offset:
            self._late.clear()

    def _misplaced(self) -> InvalidPosition:
        return InvalidPosition(
            "no change of the table lies at the position",
            segment=self.partition.segment,
            offset=self._place.offset, index=self._place.entry_index,
        )  # fmt: skip


def compacted(
    parts: TableParts, partition: Partition, offset: int, start: FieldValue
) -> VersionCompacted:
    """The error for a watch at `offset` of a partition that begins at `start` by now."""
    return VersionCompacted(
        "compaction has dropped the changes that follow",
        table=str(parts.fate.table), partition=partition.segment_id, version=offset, start=start,
    )  # fmt: skip
