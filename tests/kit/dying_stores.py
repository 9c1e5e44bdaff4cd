"""Segment stores as a controller reaches them that dies at one of its requests."""

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.common.wire.messages import Stamp
from anabranch.controller.ports import SegmentBounds
from kit.fake_stores import FakeSegmentStores


class Killed(Exception):
    """The process is gone."""


@dataclass
class DyingStores:
    """Requests of a controller that dies at its request number `at`, before or after it."""

    stores: FakeSegmentStores
    at: int
    performed: bool
    count: int = 0

    async def create_segment(self, segment: str, stamp: Stamp) -> None:
        self._before()
        await self.stores.create_segment(segment, stamp)
        self._after()

    async def seal_segment(self, segment: str, stamp: Stamp) -> int:
        self._before()
        length = await self.stores.seal_segment(segment, stamp)
        self._after()
        return length

    async def check_truncation(self, segment: str, offset: int, stamp: Stamp) -> None:
        self._before()
        await self.stores.check_truncation(segment, offset, stamp)
        self._after()

    async def truncate_segment(self, segment: str, offset: int, stamp: Stamp) -> None:
        self._before()
        await self.stores.truncate_segment(segment, offset, stamp)
        self._after()

    async def segment_lengths(self, segments: Sequence[str]) -> Sequence[int]:
        self._before()
        lengths = await self.stores.segment_lengths(segments)
        self._after()
        return lengths

    async def segment_bounds(self, segment: str) -> SegmentBounds:
        return await self.stores.segment_bounds(segment)

    async def boundary_at(self, segment: str, offset: int) -> int:
        return await self.stores.boundary_at(segment, offset)

    async def boundary_at_time(self, segment: str, time_ms: int) -> int:
        return await self.stores.boundary_at_time(segment, time_ms)

    async def read_appends(self, segment: str, offset: int, size_max: int) -> bytes:
        return await self.stores.read_appends(segment, offset, size_max)

    async def append_if(self, segment: str, block: bytes, expected_length: int) -> None:
        await self.stores.append_if(segment, block, expected_length)

    async def merge_segments(self, segment: str, sources: Sequence[str], stamp: Stamp) -> int:
        self._before()
        end = await self.stores.merge_segments(segment, sources, stamp)
        self._after()
        return end

    async def merge_batch(self, segment: str, parts: Sequence[str | bytes], stamp: Stamp) -> int:
        self._before()
        end = await self.stores.merge_batch(segment, parts, stamp)
        self._after()
        return end

    async def delete_segment(self, segment: str, stamp: Stamp) -> None:
        self._before()
        await self.stores.delete_segment(segment, stamp)
        self._after()

    def _before(self) -> None:
        if self.count == self.at and not self.performed:
            raise Killed
        self.count += 1

    def _after(self) -> None:
        if self.count > self.at:
            raise Killed


def facts(stores: FakeSegmentStores) -> dict[str, tuple[bool, int, int, bool]]:
    """What readers and writers would notice of each segment."""
    found = stores.segments
    return {name: (s.sealed, s.start, s.length, s.deleted) for name, s in found.items()}
