"""Bugs planted in tier 2, to show that the tests which look for them can fail."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.objects import manifest_numbers
from anabranch.common.tier2 import chunk
from anabranch.common.tier2.manifest import Manifest
from anabranch.common.tier2.state import ChunkRef
from anabranch.segstore.shell.tier2 import ContainerTierTwo


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
