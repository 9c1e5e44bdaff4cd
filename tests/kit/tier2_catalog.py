"""Everything that a container's tier 2 tells, in one value, as tests want it."""

from anabranch.common.tier2.state import (
    Catalog,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterKey,
    WriterMark,
)
from anabranch.segstore.ports import TierTwo


async def catalog_of(tier_two: TierTwo) -> Catalog:
    """All entries, each name once."""
    segments: dict[str, SegmentState] = {}
    tombstones: dict[str, Tombstone] = {}
    writers: dict[WriterKey, WriterMark] = {}
    extents: dict[int, tuple[TieredExtent, ...]] = {}
    async for entry in tier_two.entries():
        name = entry.name if isinstance(entry, Tombstone) else entry.state.name
        assert name not in segments, f"{name} is told twice"
        assert name not in tombstones, f"{name} is told twice"
        if isinstance(entry, Tombstone):
            tombstones[name] = entry
            continue
        number = entry.state.number
        segments[name] = entry.state
        extents[number] = entry.extents
        writers |= {(number, writer_id): mark for writer_id, mark in entry.writers.items()}
    return Catalog(tier_two.applied_sequence, segments, tombstones, writers, extents)
