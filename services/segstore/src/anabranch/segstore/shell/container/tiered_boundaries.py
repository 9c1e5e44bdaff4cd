"""Finds append boundaries in tier 2 by walking over the blocks' headers, which give their sizes.

Extents begin and end on boundaries. Boundaries never change, so a found one stays valid.
"""

from anabranch.common.errors import CorruptBlock, FormatTooNew
from anabranch.common.tier2.state import TieredExtent
from anabranch.common.wire.block import HEADER_SIZE_BYTES, parse_header
from anabranch.segstore.domain.container.circumstances import InTierTwo, TieredBoundaries
from anabranch.segstore.ports import TierTwo

_WINDOW_SIZE_BYTES = 1024 * 1024


async def find_boundaries(tier_two: TierTwo, place: InTierTwo) -> TieredBoundaries:
    """The boundaries next to the place's offset.

    If the extent's inner boundaries are unknown, these are its ends. Raises the errors of
    `TierTwo.read`.
    """
    extent = place.extent
    lower, higher = await _boundaries(tier_two, extent, place.offset - extent.start)
    return TieredBoundaries(place.number, extent.start + lower, extent.start + higher)


async def _boundaries(tier_two: TierTwo, extent: TieredExtent, wanted: int) -> tuple[int, int]:
    """The boundaries at or around `wanted`: (highest at or below, lowest at or above).

    All offsets are relative to the extent. Walks over the blocks from the chunk's last sparse entry
    before `wanted`. If the extent does not hold blocks, only the sparse entries are known.
    """
    at, beyond = await tier_two.entries_around(extent.ref, wanted)
    window, window_at = b"", 0
    while at < wanted:
        if at + HEADER_SIZE_BYTES > window_at + len(window):
            window_at = at
            window = await _window(tier_two, extent, at)
        try:
            size = parse_header(window, at - window_at).size
        except (CorruptBlock, FormatTooNew):
            return at, beyond
        if at + size > wanted:
            return at, min(at + size, extent.ref.length)
        at += size
    return at, at


async def _window(tier_two: TierTwo, extent: TieredExtent, at: int) -> bytes:
    size = min(_WINDOW_SIZE_BYTES, extent.ref.length - at)
    return await tier_two.read(extent.ref, at, size)
