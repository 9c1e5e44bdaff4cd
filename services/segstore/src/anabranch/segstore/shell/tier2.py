"""A container's tier 2: flushing cuts into it and reading from it.

State owned: the catalog, the number of the last manifest and the counter of chunk names.
Flush, in this order and for these reasons:

1. the chunks, one after another: what a manifest refers to must be durable before it exists;
2. the next manifest, create-only: from here on the state at the cut is the state of record;
3. the list of manifests: a higher one means that a successor fenced us, perhaps long ago and
   with our number collected since; then nothing further may be done;
4. only then the catalog moves, and the caller may release its log.

If 2 or 3 fails or is cancelled, this object refuses to flush again: what is in tier 2 is then
learnt by opening again under a new container epoch. `fetch` is asked for at most
4 MiB at a time, and one chunk's bytes are held at a time.
"""

from bisect import bisect_right
from collections.abc import Sequence

from anabranch.common.errors import (
    AnabranchError,
    Busy,
    Deposed,
    ObjectExists,
    OutcomeUnknown,
    Unavailable,
)
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.objects import highest_manifest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2 import chunk as chunks
from anabranch.common.tier2.catalog import apply_manifest
from anabranch.common.tier2.manifest import Changes, Manifest
from anabranch.common.tier2.names import chunk_name
from anabranch.common.tier2.state import Catalog, ChunkRef, TieredExtent
from anabranch.segstore.domain.container.state import ContainerCut
from anabranch.segstore.domain.storage.changes import changes_of_cut
from anabranch.segstore.domain.storage.fence import deposed_by
from anabranch.segstore.domain.storage.plan import (
    ChunkLimits,
    PlannedChunk,
    PlannedPiece,
    plan_flush,
)
from anabranch.segstore.ports import FetchRange, TieredExtents
from anabranch.segstore.shell.tier2_manifest import create_manifest

FETCH_BYTES_MAX = 4 * 1024 * 1024
CHUNK_ATTEMPTS_MAX = 3


class ContainerTierTwo:
    """Implements `ports.TierTwo`; made by `OpenContainerTierTwo`, one flush at a time."""

    def __init__(
        self, storage: ChunkStorage, fence: Manifest, catalog: Catalog, limits: ChunkLimits
    ) -> None:
        self._storage = storage
        self._last = fence
        self._catalog = catalog
        self._limits = limits
        self._chunk_counter = 0
        self._flushing = False
        self._stopped: AnabranchError | None = None
        self._reader = ChunkReader(storage)

    @property
    def catalog(self) -> Catalog:
        """The state at open, moved on by each flush that returned."""
        return self._catalog

    # --- flush --------------------------------------------------------------------------------

    async def flush(self, cut: ContainerCut, fetch: FetchRange) -> Sequence[TieredExtents]:
        """See `ports.TierTwo.flush`. A cut in which nothing happened writes nothing.

        The cut begins at the catalog's applied sequence. After a failure in the chunks (also
        Unavailable) the same or a later cut may be flushed again. Deposed is final; so is a
        failure from the manifest on (OutcomeUnknown at the next call): open again. Raises Busy
        while another flush runs.
        """
        assert cut.after_sequence == self._catalog.applied_sequence
        assert cut.sequence >= cut.after_sequence
        if self._stopped is not None:
            raise self._stopped
        if self._flushing:
            raise Busy("another flush of the container is running", container=self._last.container)
        self._flushing = True
        try:
            return await self._flush(cut, fetch)
        finally:
            self._flushing = False

    async def _flush(self, cut: ContainerCut, fetch: FetchRange) -> Sequence[TieredExtents]:
        if cut.sequence == cut.after_sequence:
            return ()
        added: dict[int, tuple[TieredExtent, ...]] = {}
        for planned in plan_flush(self._catalog, cut, self._limits):
            for number, extent in await self._write_chunk(planned, fetch):
                added[number] = (*added.get(number, ()), extent)
        added = {number: _ascending(extents) for number, extents in added.items()}
        await self._commit(changes_of_cut(self._catalog, cut, added), cut.sequence)
        return tuple(TieredExtents(number, extents) for number, extents in added.items())

    async def _commit(self, changes: Changes, applied_sequence: int) -> None:
        """The next manifest, then the look for a successor, then the catalog."""
        last = self._last
        manifest = Manifest(
            container=last.container,
            number=last.number + 1,
            container_epoch=last.container_epoch,
            nonce=last.nonce,
            log=last.log,
            applied_sequence=applied_sequence,
            snapshot=last.snapshot,
            changes=changes,
        )
        catalog = apply_manifest(self._catalog, manifest)
        self._stopped = OutcomeUnknown(
            "an earlier flush may or may not have reached tier 2",
            remedy="open the container again under a new epoch",
            container=last.container,
        )
        try:
            await self._create_next(manifest)
            await self._look_for_successor(manifest)
        except Deposed as deposed:
            self._stopped = deposed
            raise
        self._last, self._catalog = manifest, catalog
        self._stopped = None

    async def _create_next(self, manifest: Manifest) -> None:
        taken = await create_manifest(self._storage, manifest)
        if taken is not None:
            raise deposed_by(taken, manifest.container_epoch)

    async def _look_for_successor(self, manifest: Manifest) -> None:
        """Whoever fenced us wrote a higher number. Raises Deposed."""
        highest = await highest_manifest(self._storage, manifest.container)
        if highest > manifest.number:
            raise Deposed(
                "a newer owner has written to tier 2",
                container=manifest.container,
                container_epoch=manifest.container_epoch,
                manifest=highest,
            )

    async def check_owner(self) -> None:
        """See `ports.TierTwo.check_owner`. Not to be called while a flush runs."""
        try:
            await self._look_for_successor(self._last)
        except OSError as error:
            raise Unavailable(
                "tier 2 cannot be listed", container=self._last.container, cause=str(error)
            ) from error

    async def _write_chunk(
        self, planned: PlannedChunk, fetch: FetchRange
    ) -> list[tuple[int, TieredExtent]]:
        """Create one chunk; the extents by segment number, in the plan's order."""
        parts: list[bytes] = []
        pieces: list[chunks.Piece] = []
        offset = 0
        for plan in planned:
            fetched = await _fetch_piece(plan, fetch)
            pieces.append(_piece(plan, offset, chunks.crc_of(fetched)))
            parts += fetched
            offset += plan.size
        name = await self._put_chunk(tuple(pieces), parts, offset)
        return [
            (
                piece.segment_number,
                TieredExtent(piece.start, ChunkRef(name, piece.offset, piece.length, piece.crc)),
            )
            for piece in pieces
        ]

    async def _put_chunk(
        self, pieces: tuple[chunks.Piece, ...], parts: list[bytes], data_length: int
    ) -> str:
        """Create the object; after a put of unknown outcome, again under a new name."""
        crcs = chunks.block_crcs_of(parts)
        for attempt in range(1, CHUNK_ATTEMPTS_MAX + 1):
            name = self._next_chunk_name()
            footer = chunks.ChunkFooter(name, data_length, pieces, crcs)
            try:
                await self._storage.put_new(name, [*parts, chunks.encode_footer(footer)])
            except (ObjectExists, OutcomeUnknown) as error:
                if attempt == CHUNK_ATTEMPTS_MAX:
                    raise Unavailable(
                        "tier 2 did not say that it took a chunk", name=name, attempts=attempt
                    ) from error
            else:
                return name
        raise AssertionError("the last attempt returns or raises")

    def _next_chunk_name(self) -> str:
        self._chunk_counter += 1
        return chunk_name(self._last.container, self._last.container_epoch, self._chunk_counter)

    # --- read ---------------------------------------------------------------------------------

    async def read(self, ref: ChunkRef, offset: int, length: int) -> bytes:
        """See `ports.TierTwo.read`."""
        return await self._reader.read(ref, offset, length)

    async def entries_around(self, ref: ChunkRef, offset: int) -> tuple[int, int]:
        """See `ports.TierTwo.entries_around`."""
        entries = await self._reader.entries(ref)
        offsets = [0, *(entry.offset for entry in entries), ref.length]
        at = bisect_right(offsets, offset) - 1
        return offsets[at], offset if offsets[at] == offset else offsets[at + 1]


async def _fetch_piece(plan: PlannedPiece, fetch: FetchRange) -> list[bytes]:
    parts: list[bytes] = []
    for start in range(plan.start, plan.end, FETCH_BYTES_MAX):
        length = min(FETCH_BYTES_MAX, plan.end - start)
        part = await fetch(plan.segment_number, start, length)
        assert len(part) == length
        parts.append(part)
    return parts


def _piece(plan: PlannedPiece, offset: int, crc: int) -> chunks.Piece:
    return chunks.Piece(
        segment_name=plan.segment_name,
        segment_number=plan.segment_number,
        start=plan.start,
        offset=offset,
        length=plan.size,
        crc=crc,
        entries=plan.entries,
    )


def _ascending(extents: tuple[TieredExtent, ...]) -> tuple[TieredExtent, ...]:
    return tuple(sorted(extents, key=lambda extent: extent.start))
