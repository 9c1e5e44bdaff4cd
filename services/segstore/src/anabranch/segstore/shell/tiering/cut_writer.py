"""Writes the chunks of a cut, before the manifest that refers to them.

Small extents of merged segments are gathered into the new chunks. If some are damaged, they stay as
they are, because they must not block the flush. Owns no state.
"""

from collections.abc import Iterable, Mapping

import structlog

from anabranch.common.errors import CorruptChunk, FormatTooNew
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.state import Catalog, TieredExtent
from anabranch.segstore.domain.container.state import ContainerCut
from anabranch.segstore.domain.storage.plan import ChunkLimits, plan_flush
from anabranch.segstore.ports import FetchRange
from anabranch.segstore.shell.tiering.chunk import write_chunk
from anabranch.segstore.shell.tiering.gather import gather
from anabranch.segstore.shell.tiering.put import NewObjects

_log = structlog.get_logger(__name__)

AddedExtents = Mapping[int, tuple[TieredExtent, ...]]
"""New extents by segment number, ascending."""


class CutWriter:
    """Writes the cuts of one container under one owner."""

    def __init__(
        self,
        storage: ChunkStorage,
        reader: ChunkReader,
        objects: NewObjects,
        *,
        container: int,
        limits: ChunkLimits,
    ) -> None:
        self._storage = storage
        self._reader = reader
        self._objects = objects
        self._container = container
        self._limits = limits

    async def write(
        self, before: Catalog, cut: ContainerCut, fetch: FetchRange
    ) -> tuple[ContainerCut, AddedExtents]:
        """Returns the cut as it was moved, and its extents. `before`: the catalog of its names.

        Raises DiskFailed, Unavailable, and the errors of `fetch`.
        """
        try:
            gathering = await gather(
                cut,
                fetch,
                storage=self._storage,
                reader=self._reader,
                size_max=self._limits.gathered_max,
            )
            moved = gathering.cut
            return moved, await self._write(before, moved, gathering.fetch)
        except (CorruptChunk, FormatTooNew) as error:
            _log.error(
                "small extents of merged segments are damaged, and stay unmerged",
                container=self._container,
                error=str(error),
            )
            return cut, await self._write(before, cut, fetch)

    async def _write(self, before: Catalog, cut: ContainerCut, fetch: FetchRange) -> AddedExtents:
        added: dict[int, list[TieredExtent]] = {}
        for planned in plan_flush(before, cut, self._limits):
            for number, extent in await write_chunk(self._objects, planned, fetch):
                added.setdefault(number, []).append(extent)
        return {number: _ascending(extents) for number, extents in added.items()}


def _ascending(extents: Iterable[TieredExtent]) -> tuple[TieredExtent, ...]:
    return tuple(sorted(extents, key=lambda extent: extent.start))
