"""Writes snapshots of the catalog, so that an open reads few manifests and old ones can be deleted.

    pages, one after another → page index → (the caller) the next manifest, which names the index

in this order, because the objects that a manifest refers to must be durable before it exists. Pages
of the previous snapshot without changes are reused, most of them without being read. The others are
read one at a time, merged with the overlay and written.

A snapshot that cannot be written only costs the flush time: the next manifest names the old one,
and writing is retried some manifests later. Objects of the failed attempt stay unreferenced until a
later owner collects them. State owned: the last snapshot, and how much came since.
"""

from dataclasses import dataclass

import structlog

from anabranch.common.errors import DiskFailed, SyncFailed, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.chunk import crc_of
from anabranch.common.tier2.manifest import Manifest, SnapshotRef
from anabranch.common.tier2.page_index import HeldPage, PageIndex, encode_index
from anabranch.common.tier2.state import ChunkRef
from anabranch.segstore.domain.storage.directory import Directory, OpenPage
from anabranch.segstore.domain.storage.merge import Read, plan_snapshot
from anabranch.segstore.domain.storage.paging import NewPage
from anabranch.segstore.domain.storage.snapshot import (
    SinceSnapshot,
    SnapshotLimits,
    after_failure,
    after_manifest,
    snapshot_due,
)
from anabranch.segstore.shell.tiering.catalog import PagedCatalog
from anabranch.segstore.shell.tiering.pages import Pages
from anabranch.segstore.shell.tiering.put import NewObjects

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot in tier 2: its reference and its page directory."""

    ref: SnapshotRef
    directory: Directory

    @property
    def names(self) -> frozenset[str]:
        """The names of its objects: pages and index."""
        return frozenset(page.ref.name for page in self.directory.pages) | {self.ref.index.name}


class Snapshots:
    """The snapshots of one container under one owner."""

    def __init__(
        self,
        objects: NewObjects,
        pages: Pages,
        clock: Clock,
        limits: SnapshotLimits,
        *,
        last: Snapshot | None,
        since: SinceSnapshot,
    ) -> None:
        self._objects = objects
        self._pages = pages
        self._clock = clock
        self._limits = limits
        self._last = last
        self._since = since

    async def write_if_due(self, catalog: PagedCatalog, last: Manifest) -> Snapshot | None:
        """A snapshot of the state after the manifest `last`, for the next manifest to name.

        None if none is due, or if tier 2 rejects it or cannot be read. Raises SyncFailed, Deposed,
        CorruptManifest.
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
                "cannot write a snapshot, retrying later",
                container=last.container,
                failures=self._since.failures,
                error=str(error),
                remedy=error.remedy_for("command"),
            )
            return None

    async def _write(self, catalog: PagedCatalog, last: Manifest) -> Snapshot:
        pages: list[HeldPage] = []
        plan = plan_snapshot(catalog.directory, catalog.overlay, self._limits, catalog.forget_ms)
        opened: OpenPage | None = None
        while True:
            try:
                step = next(plan) if opened is None else plan.send(opened)
            except StopIteration:
                break
            opened = None
            if isinstance(step, Read):
                opened = await self._pages.read(step.page, keep=False)
            elif isinstance(step, NewPage):
                pages.append(HeldPage(await self._put(step.data), step.head))
            else:
                pages.append(step)
            await self._clock.sleep(0)  # planning a page takes milliseconds; let other tasks run
        directory = Directory(pages, catalog.applied_sequence)
        return Snapshot(await self._put_index(last, directory), directory)

    async def _put_index(self, last: Manifest, directory: Directory) -> SnapshotRef:
        index = PageIndex(
            container=last.container,
            through=last.number,
            applied_sequence=directory.applied_sequence,
            pages=tuple(page.ref for page in directory.pages),
            heads=tuple(page.head for page in directory.pages),
        )
        return SnapshotRef(last.number, await self._put(encode_index(index)))

    async def _put(self, data: bytes) -> ChunkRef:
        name = await self._objects.put(lambda _: [data])
        return ChunkRef(name, 0, len(data), crc_of([data]))

    def manifest_committed(self, size_bytes: int, snapshot: Snapshot | None) -> None:
        """Note a committed manifest of this size; `snapshot` is the new one that it names."""
        self._since = after_manifest(self._since, size_bytes, new_snapshot=snapshot is not None)
        self._last = snapshot or self._last
