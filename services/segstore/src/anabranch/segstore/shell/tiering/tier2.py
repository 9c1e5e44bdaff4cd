"""A container's tier 2: flushes cuts into it, collects its garbage, reads from it.

State owned: the last manifest, and the manifest that is being created. `catalog.py` owns the
catalog, of which a flush looks up only the segments that it changes, `collection.py` the garbage,
and `rewriter.py` the copies of live bytes of mostly dead objects. A flush proceeds in this order:

1. It writes the chunks one after another, including gathered small extents of merged segments, and
   the snapshot if one is due. The objects that a manifest refers to must be durable before it
   exists.
2. It creates the next manifest, create-only: from here on the state at the cut is the state of
   record. It also replaces extents by the copies that wait for it.
3. It lists the manifests. A higher one means that a successor fenced us, perhaps so long ago that
   it has already collected the manifest with our number; the flush then stops.
4. Only now the catalog changes, and the caller may release its log. Objects that the manifest
   dropped become garbage, to be deleted after `gc_grace_s`. The manifest's receipt follows
   separately.

If step 2 or 3 fails or is cancelled, the manifest may or may not exist. It is kept, and the next
flush, which must be of the same cut, first creates it again with the same bytes: it finds its own
manifest or a successor's. A full disk or an outage thus costs only time.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from anabranch.common.errors import (
    AnabranchError,
    Busy,
    Deposed,
    Unavailable,
)
from anabranch.common.model.cluster import Abandonment
from anabranch.common.runtime.clock import Clock
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.objects import manifest_numbers
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.catalog import apply_manifest
from anabranch.common.tier2.manifest import Manifest, encode_manifest
from anabranch.common.tier2.state import Catalog, ChunkRef, TieredExtent, Tombstone, WriterMark
from anabranch.segstore.domain.container.state import ContainerCut
from anabranch.segstore.domain.storage.changes import changes_of_cut
from anabranch.segstore.domain.storage.collection import Garbage
from anabranch.segstore.domain.storage.fence import closing_manifest, deposed_by
from anabranch.segstore.domain.storage.plan import ChunkLimits
from anabranch.segstore.domain.storage.rewrite import Move, with_moves
from anabranch.segstore.domain.storage.snapshot import SinceSnapshot, SnapshotLimits
from anabranch.segstore.domain.storage.space import RewriteLimits
from anabranch.segstore.ports import CatalogEntry, FetchRange, TieredExtents
from anabranch.segstore.shell.tiering.catalog import CatalogState, PagedCatalog
from anabranch.segstore.shell.tiering.collection import GarbageCollection
from anabranch.segstore.shell.tiering.cut_writer import AddedExtents, CutWriter
from anabranch.segstore.shell.tiering.manifest import create_manifest
from anabranch.segstore.shell.tiering.pages import Pages
from anabranch.segstore.shell.tiering.put import NewObjects
from anabranch.segstore.shell.tiering.receipts import Receipts
from anabranch.segstore.shell.tiering.references import ReferenceCount
from anabranch.segstore.shell.tiering.rewriter import NO_COPIES, Copies, Rewriter
from anabranch.segstore.shell.tiering.snapshot import Snapshot, Snapshots

GC_GRACE_S = 3600.0
_LATER = "wait and try again"
TOMBSTONE_S = 24 * 3600.0
CACHED_PAGES_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TierTwoLimits:
    """Sizes of chunks, snapshots and cached pages, retention times in seconds, and rewrites.

    Dropped objects stay for `gc_grace_s`, tombstones for `tombstone_s`. `cached_pages_max` bounds
    the encoded bytes of the pages in memory.
    """

    chunks: ChunkLimits = field(default_factory=ChunkLimits)
    snapshots: SnapshotLimits = field(default_factory=SnapshotLimits)
    gc_grace_s: float = GC_GRACE_S
    tombstone_s: float = TOMBSTONE_S
    cached_pages_max: int = CACHED_PAGES_BYTES_MAX
    rewrite: RewriteLimits = field(default_factory=RewriteLimits)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of an open: the catalog, and the size of the manifests after its snapshot."""

    catalog: CatalogState
    manifests_size_bytes: int


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A manifest to be created; everything that it refers to is durable. `before` is the state
    of the segments that it changes."""

    manifest: Manifest
    data: bytes
    before: Catalog
    snapshot: Snapshot | None
    tiered: tuple[TieredExtents, ...]
    copies: Copies = NO_COPIES
    moved: tuple[Move, ...] = ()
    """The moves into the copies that the manifest records."""


class ContainerTierTwo:
    """Implements `ports.TierTwo`; created by `OpenContainerTierTwo`. It runs one flush at a
    time."""

    def __init__(
        self,
        storage: ChunkStorage,
        clock: Clock,
        fence: Manifest,
        loaded: Loaded,
        limits: TierTwoLimits,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._limits = limits
        self._last = fence
        self._prepared: _Prepared | None = None
        self._flushing = False
        self._failing = False
        """Whether the last flush failed; nothing is rewritten then."""
        self._stopped: AnabranchError | None = None
        self._closed = False
        self._reader = ChunkReader(storage)
        self._objects = NewObjects(storage, fence.container, fence.container_epoch)
        self._writer = CutWriter(
            storage, self._reader, self._objects, container=fence.container, limits=limits.chunks
        )
        directory, overlay = loaded.catalog.directory, loaded.catalog.overlay
        self._pages = Pages(storage, limits.cached_pages_max, self._check_page_taker)
        self._catalog = PagedCatalog(loaded.catalog, self._pages, clock, limits.tombstone_s)
        self._receipts = Receipts(storage, fence.container)
        self._receipts.committed(fence.number)
        opened_s = clock.monotonic()
        self._garbage = Garbage(
            fence.container, fence.container_epoch, opened_s=opened_s, rewrite=limits.rewrite
        )
        self._collection = GarbageCollection(
            storage,
            clock,
            fence.container,
            garbage=self._garbage,
            count=ReferenceCount(directory, overlay.copy(), self._pages),
            grace_s=limits.gc_grace_s,
        )
        self._rewriter = Rewriter(
            storage,
            self._reader,
            self._objects,
            pages=self._pages,
            garbage=self._garbage,
            clock=clock,
            limits=limits.rewrite,
        )
        snapshot = Snapshot(fence.snapshot, directory) if fence.snapshot is not None else None
        through = fence.snapshot.through if fence.snapshot is not None else 0
        if snapshot is not None:
            self._garbage.snapshot_committed(snapshot.names, through, opened_s)
        since = SinceSnapshot(fence.number - through, loaded.manifests_size_bytes)
        self._snapshots = Snapshots(
            self._objects, self._pages, clock, limits.snapshots, last=snapshot, since=since
        )

    @property
    def applied_sequence(self) -> int:
        """See `ports.TierTwo.applied_sequence`."""
        return self._catalog.applied_sequence

    def knows_nothing_of(self, name: str) -> bool:
        """See `ports.TierTwo.knows_nothing_of`."""
        return self._catalog.knows_nothing_of(name)

    async def find(self, names: Collection[str]) -> Mapping[str, CatalogEntry | Tombstone]:
        """See `ports.TierTwo.find`. Also raises Deposed, if a successor collected a page."""
        return entries_of(await self._catalog.find(names))

    async def entries(self) -> AsyncIterator[CatalogEntry | Tombstone]:
        """See `ports.TierTwo.entries`: the state at the first entry. Raises the errors of `find`.

        If flushes run meanwhile, the caller must finish within `gc_grace_s`.
        """
        async for part in self._catalog.all():
            for entry in entries_of(part).values():
                yield entry

    @property
    def unfinished(self) -> bool:
        """See `ports.TierTwo.unfinished`."""
        return self._prepared is not None

    # --- flush --------------------------------------------------------------------------------

    async def flush(self, cut: ContainerCut, fetch: FetchRange) -> Sequence[TieredExtents]:
        """See `ports.TierTwo.flush`. An empty cut writes nothing, unless copies wait.

        The cut begins at the catalog's applied sequence. After a failure in the chunks the same or
        a later cut may be flushed again; while `unfinished`, the same cut only. Deposed is final.
        Raises Busy while another flush runs.
        """
        assert cut.after_sequence == self._catalog.applied_sequence
        assert cut.sequence >= cut.after_sequence
        assert not self._closed
        self._check_not_deposed()
        if self._flushing:
            raise Busy("another flush is running", remedy=_LATER, container=self._last.container)
        self._flushing = failing = True
        try:
            tiered = await self._flush(cut, fetch)
            failing = False
        finally:
            self._flushing, self._failing = False, failing
        return tiered

    async def close(self) -> None:
        """See `ports.TierTwo.close`. After a failure, call it again; no flush may follow."""
        self._check_not_deposed()
        if self._flushing:
            raise Busy("a flush is running", remedy=_LATER, container=self._last.container)
        if self._last.log.closed:
            return
        self._flushing = self._closed = True
        try:
            if self._prepared is None:
                manifest = closing_manifest(self._last)
                data = encode_manifest(manifest)
                nothing = await self._catalog.find(())
                self._prepared = _Prepared(manifest, data, nothing, None, ())
            assert self._prepared.manifest.log.closed, "a flush is not finished"
            await self._commit(self._prepared)
        finally:
            self._flushing = False

    async def leave_receipts(self) -> NoReturn:
        """See `ports.TierTwo.leave_receipts`."""
        await self._receipts.serve(self._clock)

    async def confirm(self) -> None:
        """Leave the receipt of the newest manifest now. Raises the storage's errors."""
        await self._receipts.leave()

    @property
    def abandoned(self) -> Abandonment | None:
        """See `ports.TierTwo.abandoned`."""
        return self._last.abandoned

    async def _flush(self, cut: ContainerCut, fetch: FetchRange) -> Sequence[TieredExtents]:
        if self._prepared is None:
            if cut.sequence == cut.after_sequence and not self.copied:
                return ()
            self._prepared = await self._prepare(cut, fetch)
        assert self._prepared.manifest.applied_sequence == cut.sequence
        return await self._commit(self._prepared)

    async def _prepare(self, cut: ContainerCut, fetch: FetchRange) -> _Prepared:
        """Write the chunks and the snapshot if it is due; returns the manifest that will name
        them."""
        copies = self._rewriter.copies or NO_COPIES
        before = await self._catalog.find(_names_of(cut) | copies.segments)
        cut, added = await self._writer.write(before, cut, fetch)
        changes, moved = with_moves(before, changes_of_cut(before, cut, added), copies.moves)
        last = self._last
        snapshot = await self._snapshots.write_if_due(self._catalog, last)
        manifest = Manifest(
            container=last.container,
            number=last.number + 1,
            container_epoch=last.container_epoch,
            nonce=last.nonce,
            log=last.log,
            applied_sequence=cut.sequence,
            snapshot=last.snapshot if snapshot is None else snapshot.ref,
            changes=changes,
            abandoned=last.abandoned,
        )
        apply_manifest(before, manifest)  # raises before a manifest that breaks an invariant exists
        return _Prepared(
            manifest=manifest,
            data=encode_manifest(manifest),
            before=before,
            snapshot=snapshot,
            tiered=_tiered(added, moved),
            copies=copies,
            moved=moved,
        )

    async def _commit(self, prepared: _Prepared) -> tuple[TieredExtents, ...]:
        """Create the manifest, look for a successor, then change the state in one step."""
        manifest = prepared.manifest
        try:
            taken = await create_manifest(self._storage, manifest, prepared.data)
            if taken is not None:
                raise deposed_by(taken, manifest.container_epoch)
            await self._look_for_successor(manifest)
        except Deposed as deposed:
            self._stopped = deposed
            raise
        except OSError as error:
            raise _unreadable(manifest, error) from error
        self._committed(prepared)
        return prepared.tiered

    async def _look_for_successor(self, newest: Manifest) -> tuple[int, ...]:
        """Raises Deposed if a manifest above our newest exists, which only a successor can write.

        Returns the numbers of all existing manifests.
        """
        numbers = await manifest_numbers(self._storage, newest.container)
        highest = max(numbers, default=0)
        if highest > newest.number:
            raise Deposed(
                "a newer owner has written to tier 2",
                container=newest.container,
                container_epoch=newest.container_epoch,
                manifest=highest,
            )
        return numbers

    async def check_owner(self) -> None:
        """See `ports.TierTwo.check_owner`. Must not be called while a flush runs."""
        newest = self._last if self._prepared is None else self._prepared.manifest
        try:
            await self._look_for_successor(newest)
        except OSError as error:
            raise _unreadable(newest, error) from error

    def _committed(self, prepared: _Prepared) -> None:
        now_s, snapshot = self._clock.monotonic(), prepared.snapshot
        self._garbage.manifest_committed(prepared.before, prepared.manifest.changes, now_s)
        if snapshot is not None:
            self._garbage.snapshot_committed(snapshot.names, snapshot.ref.through, now_s)
        self._snapshots.manifest_committed(len(prepared.data), snapshot)
        directory = snapshot.directory if snapshot is not None else None
        self._catalog.committed(prepared.manifest, directory)
        self._rewriter.recorded(prepared.copies, prepared.moved)
        self._last, self._prepared = prepared.manifest, None
        self._receipts.committed(self._last.number)

    async def _check_page_taker(self) -> None:
        """Look for a successor, which may have collected a page that is missing or damaged."""
        try:
            await self.check_owner()
        except Deposed as deposed:
            self._stopped = deposed
            raise

    # --- collection ---------------------------------------------------------------------------

    async def collect(self) -> bool:
        """See `ports.TierTwo.collect`: at most 64 objects, after a look for a successor."""
        self._check_not_deposed()
        return await self._collection.collect(self._look_beside_flush, self._check_not_deposed)

    async def rewrite(self) -> bool:
        """See `ports.TierTwo.rewrite`. A flush may run at the same time."""
        self._check_not_deposed()
        if not self._failing and not self._closed:
            await self._rewriter.copy_some(self._catalog)
        return self.copied

    @property
    def copied(self) -> bool:
        """See `ports.TierTwo.copied`."""
        return self._rewriter.copies is not None and not self._closed

    @property
    def dead_bytes(self) -> int:
        """See `ports.TierTwo.dead_bytes`."""
        return self._garbage.dead_bytes

    async def _look_beside_flush(self) -> tuple[int, ...]:
        """Look for a successor while a flush may run, whose manifest is then the newest."""
        newest = self._last if self._prepared is None else self._prepared.manifest
        try:
            return await self._look_for_successor(newest)
        except Deposed as deposed:
            self._stopped = deposed
            raise

    def _check_not_deposed(self) -> None:
        if self._stopped is not None:
            raise self._stopped

    # --- read ---------------------------------------------------------------------------------

    async def read(self, ref: ChunkRef, offset: int, length: int) -> bytes:
        """See `ports.TierTwo.read`."""
        return await self._reader.read(ref, offset, length)

    async def entry_counts(self, ref: ChunkRef) -> tuple[tuple[int, int], ...]:
        """See `ports.TierTwo.entry_counts`."""
        return tuple((found.offset, found.event_count) for found in await self._reader.entries(ref))

    async def entry_times(self, ref: ChunkRef) -> tuple[tuple[int, int], ...]:
        """See `ports.TierTwo.entry_times`."""
        return tuple((found.offset, found.time_ms) for found in await self._reader.entries(ref))


def entries_of(catalog: Catalog) -> dict[str, CatalogEntry | Tombstone]:
    """All entries of a catalog, by name."""
    writers: dict[int, dict[bytes, WriterMark]] = {number: {} for number in catalog.extents}
    for (number, writer_id), mark in catalog.writers.items():
        writers[number][writer_id] = mark
    living: dict[str, CatalogEntry | Tombstone] = {
        name: CatalogEntry(state, catalog.extents[state.number], writers[state.number])
        for name, state in catalog.segments.items()
    }
    return living | dict(catalog.tombstones)


def _names_of(cut: ContainerCut) -> frozenset[str]:
    names = {segment.state.name for segment in cut.segments}
    return frozenset(names | {tombstone.name for tombstone in cut.tombstones})


def _tiered(added: AddedExtents, moved: Iterable[Move]) -> tuple[TieredExtents, ...]:
    """The extents of a flush by segment: those that it added, and those that replace others."""
    replaced: dict[int, list[TieredExtent]] = {}
    for move in moved:
        replaced.setdefault(move.held.number, []).append(move.copy)
    return tuple(
        TieredExtents(number, added.get(number, ()), tuple(replaced.get(number, ())))
        for number in sorted({*added, *replaced})
    )


def _unreadable(manifest: Manifest, error: OSError) -> Unavailable:
    return Unavailable("tier 2 cannot be read", container=manifest.container, cause=str(error))
