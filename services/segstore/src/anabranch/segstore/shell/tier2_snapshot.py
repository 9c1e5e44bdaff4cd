"""Writing snapshots of the catalog, so that an open reads few manifests and old ones may go.

    pages, one after another → page index → (the caller) the next manifest, which names the index

in this order, because what a manifest refers to must be durable before it exists. Pages that the
snapshot before holds are named again. A snapshot that cannot be written costs the flush nothing
but time: the next manifest goes on naming the old one, and writing is tried again some manifests
later. What was written of it stays unreferenced until a later owner collects it. State owned:
the pages of the last snapshot, and what came since.
"""

from dataclasses import dataclass

import structlog

from anabranch.common.errors import DiskFailed, SyncFailed, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.chunk import crc_of
from anabranch.common.tier2.manifest import Manifest, SnapshotRef
from anabranch.common.tier2.page import HeldPage, PageIndex, encode_index
from anabranch.common.tier2.state import Catalog, ChunkRef
from anabranch.segstore.domain.storage.snapshot import (
    SinceSnapshot,
    SnapshotLimits,
    after_failure,
    after_manifest,
    plan_snapshot,
    snapshot_due,
)
from anabranch.segstore.shell.tier2_put import NewObjects

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot in tier 2; `pages` in the order of its index."""

    ref: SnapshotRef
    pages: tuple[HeldPage, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of its objects: pages and index."""
        return frozenset(page.ref.name for page in self.pages) | {self.ref.index.name}


class Snapshots:
    """The snapshots of one container under one owner."""

    def __init__(
        self,
        objects: NewObjects,
        clock: Clock,
        limits: SnapshotLimits,
        last: Snapshot | None,
        since: SinceSnapshot,
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._limits = limits
        self._last = last
        self._since = since

    async def write_if_due(self, catalog: Catalog, last: Manifest) -> Snapshot | None:
        """A snapshot of the state after the manifest `last`, for the next one to name.

        None if none is due, or if tier 2 did not take it. Raises SyncFailed alone.
        """
        if not snapshot_due(self._since, self._limits):
            return None
        try:
            return await self._write(catalog, last)
        except SyncFailed:
            raise
        except (DiskFailed, Unavailable) as error:
            self._since = after_failure(self._since)
            _log.warning(
                "a snapshot could not be written, trying again later",
                container=last.container,
                failures=self._since.failures,
                error=str(error),
                remedy=error.remedy,
            )
            return None

    async def _write(self, catalog: Catalog, last: Manifest) -> Snapshot:
        held = self._last.pages if self._last is not None else ()
        pages: list[HeldPage] = []
        for planned in plan_snapshot(catalog, held, self._limits):
            if isinstance(planned, HeldPage):
                pages.append(planned)
            else:
                pages.append(HeldPage(await self._put(planned.data), planned.digest))
            await self._clock.sleep(0)  # planning a page takes milliseconds; let others go on
        refs = tuple(page.ref for page in pages)
        index = PageIndex(last.container, last.number, catalog.applied_sequence, refs)
        ref = await self._put(encode_index(index))
        return Snapshot(SnapshotRef(last.number, ref), tuple(pages))

    async def _put(self, data: bytes) -> ChunkRef:
        name = await self._objects.put(lambda _: [data])
        return ChunkRef(name, 0, len(data), crc_of([data]))

    def manifest_committed(self, size_bytes: int, snapshot: Snapshot | None) -> None:
        """A manifest of this size is there; `snapshot` is the new one that it names."""
        self._since = after_manifest(self._since, size_bytes, new_snapshot=snapshot is not None)
        self._last = snapshot or self._last
