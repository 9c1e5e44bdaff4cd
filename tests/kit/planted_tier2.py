"""Bugs planted in tier 2, to show that the tests which look for them can fail."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.storage import objects
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.objects import manifest_numbers
from anabranch.common.tier2 import chunk
from anabranch.common.tier2.manifest import Changes, Manifest
from anabranch.common.tier2.page_index import HeldPage, PageKind
from anabranch.common.tier2.state import Catalog, ChunkRef
from anabranch.segstore.domain.storage.collection import Garbage, _dropped_extents
from anabranch.segstore.domain.storage.directory import Directory
from anabranch.segstore.domain.storage.merge import _Merge
from anabranch.segstore.shell.tiering import rewriter
from anabranch.segstore.shell.tiering.extent_fetch import ExtentFetch
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.references import ReferenceCount
from anabranch.segstore.shell.tiering.snapshot import Snapshots
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo, Loaded


def _accept_any_blocks(footer: chunk.ChunkFooter, first: int, data: bytes) -> None:
    """In place of `chunk.check_blocks`."""


async def _read_unverified(reader: ChunkReader, ref: ChunkRef) -> bytes:
    """In place of `ChunkReader._read_whole`."""
    return await reader._storage.get_range(ref.name, ref.offset, ref.length)


def _leave_names_unsynced(storage: LocalChunkStorage, directory: str) -> None:
    """In place of `LocalChunkStorage._sync_names`."""


def _sync_the_last_directory_only(storage: LocalChunkStorage, directory: str) -> None:
    """In place of `LocalChunkStorage._sync_names`: new parents are forgotten."""
    storage._disk.sync_directory(directory)


async def _look_away(tier_two: ContainerTierTwo, newest: Manifest) -> tuple[int, ...]:
    """In place of `ContainerTierTwo._look_for_successor`."""
    return await manifest_numbers(tier_two._storage, newest.container)


async def _name_only(snapshots: Snapshots, data: bytes) -> ChunkRef:
    """In place of `Snapshots._put`: the object comes with the next `_put_late`."""
    name = snapshots._objects._next_name()
    _put_late.append((name, data))
    return ChunkRef(name, 0, len(data), chunk.crc_of([data]))


_put_late: list[tuple[str, bytes]] = []


def _drop_with_the_first_piece(
    garbage: Garbage, before: Catalog, changes: Changes, now_s: float
) -> None:
    """In place of `Garbage.manifest_committed`."""
    for extent in _dropped_extents(before, changes):
        garbage._dropped.append((now_s, extent.ref.name))


@contextmanager
def pages_after_the_manifest() -> Iterator[None]:
    commit = ContainerTierTwo._commit

    async def commit_then_put(tier_two: ContainerTierTwo, prepared: Any) -> Any:
        tiered = await commit(tier_two, prepared)
        while _put_late:
            name, data = _put_late.pop()
            await tier_two._storage.put_new(name, [data])
        return tiered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Snapshots, "_put", _name_only)
        patch.setattr(ContainerTierTwo, "_commit", commit_then_put)
        _put_late.clear()
        yield


@contextmanager
def references_not_counted() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Garbage, "manifest_committed", _drop_with_the_first_piece)
        patch.setattr(Garbage, "in_use", lambda garbage, name: name in garbage._pages)
        yield


@contextmanager
def no_grace() -> Iterator[None]:
    """Whatever was dropped may go at once."""
    all_due = Garbage._all_due

    def at_once(
        garbage: Garbage, manifests: Sequence[int], now_s: float, grace_s: float
    ) -> Iterator[str]:
        return all_due(garbage, manifests, now_s, 0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Garbage, "_all_due", at_once)
        patch.setattr(Garbage, "anything_due", lambda *_: True)
        yield


@contextmanager
def no_list_after_the_fence() -> Iterator[None]:
    async def load(opening: OpenContainerTierTwo, fence: Manifest) -> Loaded:
        return await opening._read(fence)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenContainerTierTwo, "_load", load)
        yield


@contextmanager
def skipped_crc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk, "check_blocks", _accept_any_blocks)
        patch.setattr(ChunkReader, "_read_whole", _read_unverified)
        yield


@contextmanager
def no_directory_sync() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalChunkStorage, "_sync_names", _leave_names_unsynced)
        yield


@contextmanager
def no_parent_directory_sync() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalChunkStorage, "_sync_names", _sync_the_last_directory_only)
        yield


@contextmanager
def no_list_after_manifest() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ContainerTierTwo, "_look_for_successor", _look_away)
        yield


@contextmanager
def overlay_lost_at_the_merge() -> Iterator[None]:
    """What comes after the last entry of a page, and before the next page, is forgotten."""

    def entries(merge: Any, held: Iterator[Any], due: Sequence[bytes]) -> Any:
        ascending = list(held)
        kept = [key for key in due if not ascending or key <= ascending[-1].key]
        yield from merge_entries(merge, iter(ascending), kept)

    merge_entries = _Merge._entries
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Merge, "_entries", entries)
        yield


@contextmanager
def page_boundary_off_by_one() -> Iterator[None]:
    """The first name of a page is looked for in the page before."""

    def page_of(directory: Directory, kind: PageKind, key: bytes) -> HeldPage | None:
        at = bisect_left(directory._firsts[kind], key) - 1
        return directory._kinds[kind][at] if at >= 0 else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Directory, "page_of", page_of)
        yield


@contextmanager
def deletion_before_the_counts_are_complete() -> Iterator[None]:
    """What came since the open passes for all references."""

    async def at_once(count: ReferenceCount, pages_max: int) -> Counter[str]:
        return Counter()

    def counted(garbage: Garbage, references: Counter[str]) -> None:
        garbage._live = +garbage._live
        garbage._complete = True
        garbage._dropped.extend((since_s, name) for name, since_s in garbage._left.items())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReferenceCount, "go_on", at_once)
        patch.setattr(Garbage, "counted", counted)
        yield


@contextmanager
def blind_to_receipts() -> Iterator[None]:
    """Whoever looks for the newest manifest takes the highest that is left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "receipt_number", lambda _container, _name: None)
        yield


@contextmanager
def receipt_before_its_manifest() -> Iterator[None]:
    """A flush leaves the receipt of a manifest, and then creates the manifest."""
    commit = ContainerTierTwo._commit

    async def receipt_then_commit(tier_two: ContainerTierTwo, prepared: Any) -> Any:
        tier_two._receipts.committed(prepared.manifest.number)
        await tier_two.confirm()
        return await commit(tier_two, prepared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ContainerTierTwo, "_commit", receipt_then_commit)
        yield


@contextmanager
def copies_not_verified() -> Iterator[None]:
    """A rewrite copies whatever it reads."""

    async def unverified(fetch: ExtentFetch, ref: ChunkRef) -> bytes:
        return await fetch._storage.get_range(ref.name, ref.offset, ref.length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExtentFetch, "_bytes_of", unverified)
        patch.setattr(rewriter, "_check_copies", lambda _moves: None)
        yield


@contextmanager
def copies_after_the_manifest() -> Iterator[None]:
    """The chunk of a rewrite is written only when the manifest that names it exists."""
    copy, commit = rewriter.Rewriter._copy, ContainerTierTwo._commit
    late: list[tuple[str, Sequence[Any]]] = []

    async def copy_without_a_chunk(self: rewriter.Rewriter, found: Any) -> Any:
        async def put_late(name: str, parts: Sequence[Any]) -> None:
            late.append((name, parts))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._objects._storage, "put_new", put_late)
            return await copy(self, found)

    async def commit_then_put(tier_two: ContainerTierTwo, prepared: Any) -> Any:
        tiered = await commit(tier_two, prepared)
        while late:
            await tier_two._storage.put_new(*late.pop())
        return tiered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriter.Rewriter, "_copy", copy_without_a_chunk)
        patch.setattr(ContainerTierTwo, "_commit", commit_then_put)
        yield


@contextmanager
def originals_gone_with_their_copies() -> Iterator[None]:
    """An object is garbage as soon as its live bytes are copied, although no manifest says so."""
    copy = rewriter.Rewriter._copy

    async def copy_and_drop(self: rewriter.Rewriter, found: Any) -> Any:
        copies = await copy(self, found)
        for name in found if copies is not None else ():
            await self._storage.delete(name)
        return copies

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriter.Rewriter, "_copy", copy_and_drop)
        yield
