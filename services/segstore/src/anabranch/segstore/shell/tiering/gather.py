"""Adds the small extents of merged segments to a flush; `extent_fetch.py` reads them back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.state import TieredExtent
from anabranch.segstore.domain.container.state import ContainerCut
from anabranch.segstore.domain.storage.gather import Marks, gathered, marks_of, to_gather
from anabranch.segstore.ports import FetchRange
from anabranch.segstore.shell.tiering.extent_fetch import ExtentFetch, pieces_of, read_footer


@dataclass(frozen=True, slots=True)
class Gathering:
    """A cut that also moves its small adopted extents, and the function that fetches its bytes.

    `fetch` also raises CorruptChunk and Unavailable.
    """

    cut: ContainerCut
    fetch: FetchRange


async def gather(
    cut: ContainerCut,
    fetch: FetchRange,
    *,
    storage: ChunkStorage,
    reader: ChunkReader,
    size_max: int,
) -> Gathering:
    """Add the extents to gather to the cut. Raises CorruptChunk, FormatTooNew, Unavailable."""
    extents = {segment.state.number: to_gather(segment, size_max) for segment in cut.segments}
    extents = {number: found for number, found in extents.items() if found}
    if not extents:
        return Gathering(cut, fetch)
    marks = await _marks([extent for found in extents.values() for extent in found], reader)
    segments = tuple(
        gathered(segment, {extent: marks[extent] for extent in extents[segment.state.number]})
        if segment.state.number in extents
        else segment
        for segment in cut.segments
    )
    return Gathering(replace(cut, segments=segments), ExtentFetch(extents, storage, reader, fetch))


async def _marks(
    extents: Sequence[TieredExtent], reader: ChunkReader
) -> Mapping[TieredExtent, Marks]:
    by_chunk: dict[str, list[TieredExtent]] = {}
    for extent in extents:
        by_chunk.setdefault(extent.ref.name, []).append(extent)
    marks: dict[TieredExtent, Marks] = {}
    for name, found in by_chunk.items():
        footer = await read_footer(reader, name)
        pieces = pieces_of(footer, [extent.ref for extent in found])
        marks |= {extent: marks_of(extent, pieces[extent.ref].entries) for extent in found}
    return marks
