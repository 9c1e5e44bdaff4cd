"""Reads the blocks of a table segment from memory, the journal or tier 2, for the store itself."""

import asyncio

from anabranch.common.errors import ObjectNotFound, Unavailable
from anabranch.common.wire.messages import ReadSegment
from anabranch.segstore.ports import LogAddress, TierTwo
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.reader import Found, read_now
from anabranch.segstore.shell.memory.catch_up import CatchUp
from anabranch.segstore.shell.memory.granule import Bytes, Granule

ROUNDS_MAX = 8
"""How often a read may find that its bytes have moved."""
READ_DEADLINE_S = 30.0


class LogReader:
    """The reads of one container."""

    def __init__(self, container: Container, tier_two: TierTwo, catch_up: CatchUp) -> None:
        self._container = container
        self._tier_two = tier_two
        self._ahead = catch_up.ahead

    async def blocks(self, segment: str, offset: int, size_max: int) -> Bytes:
        """Whole blocks from `offset`, a boundary, on: about `size_max` bytes, but at least one
        block; none at the segment's end. The segment is resident.

        Raises SegmentNotFound, SegmentTruncated, Unavailable, Corrupt errors, OSError.
        """
        request = ReadSegment(segment=segment, offset=offset, size_max=size_max)
        at_hand = dict[Granule, bytes]()
        try:
            async with asyncio.timeout(READ_DEADLINE_S):
                for _ in range(ROUNDS_MAX):
                    found = read_now(self._container, request, at_hand.get, self._ahead.window)
                    if isinstance(found, Found):
                        return found.data
                    try:
                        for granule in found.granules:
                            at_hand[granule] = await self._fetch(granule)
                    except ObjectNotFound:
                        continue  # the journal deleted the frame, because tier 2 has it now
        except TimeoutError as error:
            raise Unavailable("a table's bytes were not read in time", segment=segment) from error
        raise Unavailable("the bytes moved during the read", segment=segment)

    async def _fetch(self, granule: Granule) -> bytes:
        return await self._ahead.get(granule, self._load)

    async def _load(self, granule: Granule) -> bytes:
        if isinstance(granule, LogAddress):
            return await self._container.log.read_aside(granule)
        return await self._tier_two.read(granule.ref, granule.start, granule.size)
