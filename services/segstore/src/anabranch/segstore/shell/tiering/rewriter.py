"""Copies the live bytes of mostly dead objects, so that the old objects can be deleted.

    choose objects ─► find their extents, page by page ─► copy them into one new chunk, verified
        ─► the next manifest replaces the extents ─► the old objects are garbage

in this order, because the chunk must be durable before a manifest refers to it. Flushes go on
meanwhile; only the manifest is theirs. A crash before the manifest leaves an unreferenced chunk,
which a later owner collects. Nothing is copied again while copies wait for their manifest.

A damaged object stays as it is: it is logged once, and never chosen again by this owner. If tier 2
fails or is full, the next attempt follows after 1, 2, 4 … 64 minutes. State owned: the copies that
wait, and the time of the next attempt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from anabranch.common.errors import (
    CorruptChunk,
    DiskFailed,
    FormatTooNew,
    ObjectNotFound,
    Unavailable,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.state import TieredExtent
from anabranch.segstore.domain.storage.collection import Garbage
from anabranch.segstore.domain.storage.directory import OpenPage
from anabranch.segstore.domain.storage.plan import PlannedPiece
from anabranch.segstore.domain.storage.rewrite import HeldExtent, Move, find_extents
from anabranch.segstore.domain.storage.space import NEARLY_WHOLE_SHARE, RewriteLimits
from anabranch.segstore.shell.tiering.catalog import PagedCatalog
from anabranch.segstore.shell.tiering.chunk import write_chunk
from anabranch.segstore.shell.tiering.extent_fetch import ExtentFetch, pieces_of, read_footer
from anabranch.segstore.shell.tiering.pages import Pages
from anabranch.segstore.shell.tiering.put import NewObjects

MEASURED_COUNT_MAX = 64
"""How many objects of earlier owners are measured at a time."""
RETRY_S_MIN = 60.0
RETRY_DOUBLINGS_MAX = 6
FETCHES_PER_TURN = 64
"""After so many small pieces, other tasks may run."""

_log = structlog.get_logger(__name__)

_Found = Mapping[str, Sequence[HeldExtent]]


@dataclass(frozen=True, slots=True)
class Copies:
    """The chunk `name`, which is durable, and the moves into it."""

    name: str
    moves: tuple[Move, ...]

    @property
    def segments(self) -> frozenset[str]:
        """The names of the segments whose extents they replace."""
        return frozenset(move.held.segment for move in self.moves)


NO_COPIES = Copies("", ())


class Rewriter:
    """Rewrites the objects of one container under one owner."""

    def __init__(
        self,
        storage: ChunkStorage,
        reader: ChunkReader,
        objects: NewObjects,
        *,
        pages: Pages,
        garbage: Garbage,
        clock: Clock,
        limits: RewriteLimits,
    ) -> None:
        self._storage = storage
        self._reader = reader
        self._objects = objects
        self._pages = pages
        self._garbage = garbage
        self._clock = clock
        self._limits = limits
        self._failures = 0
        self._retry_s = clock.monotonic()
        self.copies: Copies | None = None
        """The copies that wait for a manifest."""

    async def copy_some(self, catalog: PagedCatalog) -> None:
        """Copy the live bytes of the objects that are chosen now, if any.

        It is called by one task. Raises DiskFailed, Unavailable, OSError, and the errors of
        `Pages.read`.
        """
        if self.copies is not None or not self._garbage.complete:
            return
        if self._clock.monotonic() < self._retry_s:
            return
        try:
            await self._measure()
            self.copies = await self._copy(await self._find(catalog))
            self._failures = 0
        except (DiskFailed, Unavailable, OSError):
            pause_s = RETRY_S_MIN * 2 ** min(self._failures, RETRY_DOUBLINGS_MAX)
            self._failures += 1
            self._retry_s = self._clock.monotonic() + pause_s
            raise

    def recorded(self, copies: Copies, moved: Sequence[Move]) -> None:
        """Note the moves that a committed manifest recorded; the others are void."""
        if copies is NO_COPIES:
            return
        assert copies is self.copies
        self.copies = None
        if not moved:
            self._garbage.unreferenced(copies.name, self._clock.monotonic())

    # --- choosing -----------------------------------------------------------------------------

    async def _measure(self) -> None:
        """Measure some objects of earlier owners, which may be partly dead."""
        garbage = self._garbage
        for name in garbage.space.unmeasured(MEASURED_COUNT_MAX):
            size = await self._size_of(name, garbage.live.get(name, 0))
            live = garbage.live.get(name, 0)
            garbage.space.measured(name, size, live, self._clock.monotonic())

    async def _size_of(self, name: str, live: int) -> int:
        """The data bytes of a chunk. The footer is read only if it may hide dead bytes; 0 if the
        chunk was collected since, or is damaged."""
        try:
            size = await self._storage.size(name)
            if live < NEARLY_WHOLE_SHARE * size:
                size = (await read_footer(self._reader, name)).data_length
        except ObjectNotFound:
            return 0
        except (CorruptChunk, FormatTooNew) as error:
            self._give_up([name], error)
            return 0
        return size

    async def _find(self, catalog: PagedCatalog) -> _Found:
        """The extents of the chosen objects, as of now."""
        garbage = self._garbage
        names = garbage.space.chosen(garbage.live, self._clock.monotonic())
        if not names:
            return {}
        overlay = catalog.overlay.copy()
        plan = find_extents(catalog.directory, overlay, names, self._limits.extents_max)
        opened: OpenPage | None = None
        while True:
            try:
                held = next(plan) if opened is None else plan.send(opened)
            except StopIteration as end:
                found: _Found = end.value
                return found
            opened = await self._pages.read(held, keep=False)
            await self._clock.sleep(0)

    # --- copying ------------------------------------------------------------------------------

    async def _copy(self, found: _Found) -> Copies | None:
        """Write the extents into one chunk. None if there is nothing to write, or if an object
        turned out to be damaged."""
        held: list[HeldExtent] = []
        pieces: list[PlannedPiece] = []
        for name, extents in found.items():
            try:
                planned = await self._planned(name, extents)
            except (CorruptChunk, FormatTooNew) as error:
                self._give_up([name], error)
                continue
            held += extents
            pieces += planned
        if not pieces:
            return None
        try:
            written = await write_chunk(self._objects, tuple(pieces), self._fetch_of(held))
            moves = tuple(
                Move(before, after.ref) for before, (_, after) in zip(held, written, strict=True)
            )
            _check_copies(moves)
        except (CorruptChunk, FormatTooNew) as error:
            damaged = error.fields.get("name")
            self._give_up([str(damaged)] if damaged in found else list(found), error)
            return None
        return Copies(moves[0].to.name, moves)

    async def _planned(self, name: str, extents: Sequence[HeldExtent]) -> list[PlannedPiece]:
        """The pieces to write in place of these extents, all of one object."""
        footer = await read_footer(self._reader, name)
        pieces = pieces_of(footer, [held.extent.ref for held in extents])
        return [
            PlannedPiece(
                segment_name=held.segment,
                segment_number=held.number,
                start=held.extent.start,
                end=held.extent.start + held.extent.ref.length,
                entries=pieces[held.extent.ref].entries,
            )
            for held in extents
        ]

    def _fetch_of(self, held: Sequence[HeldExtent]) -> "_Fetch":
        extents: dict[int, list[TieredExtent]] = {}
        for each in held:
            extents.setdefault(each.number, []).append(each.extent)
        ascending = {
            number: sorted(found, key=lambda extent: extent.start)
            for number, found in extents.items()
        }
        return _Fetch(
            ExtentFetch(ascending, self._storage, self._reader, _nothing_else), self._clock
        )

    def _give_up(self, names: Sequence[str], error: CorruptChunk | FormatTooNew) -> None:
        for name in names:
            self._garbage.space.give_up(name)
        _log.error(
            "cannot rewrite damaged objects of tier 2, their dead bytes stay",
            objects=list(names),
            error=str(error),
            remedy=error.remedy_for("command"),
        )


class _Fetch:
    """Fetches pieces for `write_chunk`, and lets other tasks run between small ones."""

    def __init__(self, extents: ExtentFetch, clock: Clock) -> None:
        self._extents = extents
        self._clock = clock
        self._count = 0

    async def __call__(self, number: int, offset: int, length: int) -> bytes:
        """See `ports.FetchRange`."""
        self._count += 1
        if self._count % FETCHES_PER_TURN == 0:
            await self._clock.sleep(0)
        return await self._extents(number, offset, length)


async def _nothing_else(number: int, offset: int, length: int) -> bytes:
    raise AssertionError(f"no extent holds {length} bytes at {offset} of segment {number}")


def _check_copies(moves: Sequence[Move]) -> None:
    """Compare the checksums of the copies with the originals'. Raises CorruptChunk."""
    for move in moves:
        original, copy = move.held.extent.ref, move.to
        if (copy.length, copy.crc) != (original.length, original.crc):
            raise CorruptChunk(
                "the checksum of a chunk's piece does not match",
                name=original.name,
                offset=original.offset,
            )
