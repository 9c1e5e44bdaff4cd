"""The pages of a scan of one partition, read one page ahead.

    next() ──► page, and at once ──ScanEntries from after its last key──► the next page

A page is a snapshot of the partition; two pages are two snapshots.
"""

import asyncio
from dataclasses import dataclass

from anabranch.client.tables.parts import TableParts
from anabranch.common.errors import AnabranchError, BadPacket, Closed
from anabranch.common.wire.messages import Request, ScanEntries, TableRead
from anabranch.common.wire.table_columns import RowColumns, parse_rows


@dataclass(frozen=True, slots=True)
class PageSize:
    """The bounds of one page: rows, and about so many bytes. `values`: rows have values."""

    count_max: int
    size_max: int
    values: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in the order of their keys. `segment_number` belongs to their versions."""

    segment_number: int
    rows: RowColumns


_Answer = tuple[TableRead, bytes] | AnabranchError


class PartitionPages:
    """The pages of the keys in [start, end) of a segment; `end` ``b""``: to the last key."""

    def __init__(
        self, segment: str, parts: TableParts, start: bytes, end: bytes, size: PageSize
    ) -> None:
        self.segment = segment
        self._parts = parts
        self._start = start
        self._end = end
        self._size = size
        self._under_way: asyncio.Task[_Answer] | None = None
        self._ended = False
        self._closed = False

    def begin(self) -> None:
        """Ask for the next page, if there may be one. Repeatable. Raises Closed."""
        if self._closed:
            raise Closed("the table was closed during a scan")
        if self._under_way is None and not self._ended:
            self._under_way = self._parts.runtime.tasks.create_task(self._ask(self._start))

    async def next(self) -> Page | None:
        """The next page, which has at least one row; None after the last one.

        A cancelled call can be repeated. Raises Closed, and as `TableParts.ask`.
        """
        while not self._ended:
            self.begin()
            asked = self._under_way
            assert asked is not None
            await asyncio.wait([asked])
            if self._closed or asked.cancelled():
                raise Closed("the table was closed during a scan")
            answer, self._under_way = asked.result(), None
            if isinstance(answer, AnabranchError):
                raise answer
            reply, data = answer
            rows = parse_rows(data)
            self._ended = not reply.more
            if rows:
                if rows.last_key < self._start:
                    raise BadPacket("a page of entries is out of order", segment=self.segment)
                self._start = rows.last_key + b"\0"
                self.begin()
                return Page(reply.segment_number, rows)
            if reply.more:
                raise BadPacket("a page of entries is empty", segment=self.segment)
        return None

    async def _ask(self, start: bytes) -> _Answer:
        size = self._size

        def request(container_epoch: int) -> Request:
            return ScanEntries(
                segment=self.segment, container_epoch=container_epoch, start=start, end=self._end,
                count_max=size.count_max, size_max=size.size_max, values=size.values,
            )  # fmt: skip

        try:
            return await self._parts.ask(self.segment, request, TableRead)
        except AnabranchError as error:
            return error

    def close(self) -> None:
        """Stop reading; `next` raises Closed. Repeatable."""
        self._closed = True
        if self._under_way is not None:
            self._under_way.cancel()
