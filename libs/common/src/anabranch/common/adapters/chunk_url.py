"""Opens and checks the chunk storage of a tier-2 URL, for writing or read-only."""

import asyncio
from functools import partial
from pathlib import Path
from typing import assert_never

from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.errors import (
    DirectoryUnusable,
    InvalidSetting,
    NoRoom,
    TierTwoNotHere,
    Unavailable,
)
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import IdSource, SystemIds
from anabranch.common.runtime.logger import get_logger
from anabranch.common.runtime.threads import run_in_daemon
from anabranch.common.storage.deadline import DeadlineChunkStorage
from anabranch.common.storage.location import (
    BucketLocation,
    DirectoryLocation,
    MemoryLocation,
    ObjectOptions,
    parse_location,
)
from anabranch.common.storage.mounts import MOUNT_TABLE, OnNetwork, mount_at, refusal
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.probe import probe_create_only

_DEFAULTS = ObjectOptions()

_log = get_logger(__name__)


async def open_chunk_storage(
    url: str,
    ids: IdSource,
    owner: str,
    *,
    limit_s: float,
    options: ObjectOptions = _DEFAULTS,
    on_network: OnNetwork = "refused",
    mount_table: Path = MOUNT_TABLE,
) -> ChunkStorage:
    """Open and probe the storage of a URL; its calls end within `limit_s` seconds.

    `owner` is the store's own id, which only one process uses at a time. A directory that does
    not exist is created, a bucket is not. `on_network`: whether a directory may be on a network
    file system, according to `mount_table`. Raises InvalidSetting (which lists the supported URLs,
    or names the file system), DirectoryUnusable, FormatTooNew, and for a bucket TierTwoNotHere,
    Unauthorized, Unavailable.
    """
    storage: ChunkStorage
    match parse_location(url):
        case MemoryLocation():
            storage = DeadlineChunkStorage(MemoryChunkStorage(), limit_s)
        case DirectoryLocation(root):
            check = partial(check_file_system, root, on_network, mount_table)
            await run_in_daemon("tier2", check)
            local = await run_in_daemon("tier2", partial(open_directory, root, ids, owner))
            storage = DeadlineChunkStorage(local, limit_s)
        case BucketLocation() as bucket:
            storage, _ = await open_bucket(bucket, limit_s=limit_s, options=options)
        case other:
            assert_never(other)
    try:
        await probe_create_only(storage, ids)
    except NoRoom as error:  # A full directory must not keep a store from serving its objects.
        remedy = error.remedy_for("command")
        _log.warning("tier 2 is full and was not probed", error=str(error), remedy=remedy)
    return storage


async def open_chunk_storage_read_only(
    url: str, *, limit_s: float, options: ObjectOptions = _DEFAULTS
) -> ChunkStorage:
    """Open the storage of a URL for a reader: create, remove and probe nothing.

    The caller keeps to `get`, `get_range`, `size` and `list`. Raises InvalidSetting,
    DirectoryUnusable or TierTwoNotHere (the URL has no tier 2), FormatTooNew,
    and for a bucket Unauthorized, Unavailable.
    """
    match parse_location(url):
        case MemoryLocation():
            raise InvalidSetting(
                "another process cannot read a tier 2 in memory",
                remedy="name the tier 2 of the segment stores",
                url=url,
            )
        case DirectoryLocation(root):
            local = await run_in_daemon("tier2", partial(_open_directory_read_only, root))
            return DeadlineChunkStorage(local, limit_s)
        case BucketLocation() as bucket:
            storage, used = await open_bucket(bucket, limit_s=limit_s, options=options)
            if not used:
                raise TierTwoNotHere(
                    "the bucket holds no tier 2 under the prefix",
                    remedy="name the tier 2 of the segment stores",
                    url=url,
                )
            return storage
        case other:
            assert_never(other)


async def open_bucket(
    location: BucketLocation, *, limit_s: float, options: ObjectOptions = _DEFAULTS
) -> tuple[ChunkStorage, bool]:
    """Open a bucket's storage with one request; return whether the prefix holds an object.

    Its calls end within `limit_s` seconds. Raises InvalidSetting, TierTwoNotHere, Unauthorized,
    Unavailable.
    """
    try:
        # Only a tier 2 in an object store needs the library.
        from anabranch.common.adapters.chunk_bucket import bucket_storage
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            "the library for object stores is not installed",
            remedy="pip install 'anabranch-common[objects]'",
            module=error.name,
        ) from error
    storage = bucket_storage(location, options, SystemClock(), limit_s=limit_s)
    try:
        async with asyncio.timeout(limit_s):
            used = await storage.check()
    except TimeoutError as error:
        raise Unavailable(
            "tier 2 did not answer in time", bucket=location.bucket, limit_s=limit_s
        ) from error
    return DeadlineChunkStorage(storage, limit_s), used


def directory_of(url: str) -> Path:
    """The directory of a ``file:`` URL. Raises InvalidSetting."""
    location = parse_location(url)
    if not isinstance(location, DirectoryLocation):
        raise InvalidSetting(
            "the URL of tier 2 names no directory", remedy="use file:///absolute/directory", url=url
        )
    return location.path


def _open_directory_read_only(root: Path) -> LocalChunkStorage:
    storage = LocalChunkStorage(LocalDisk(root, read_only=True), SystemIds(), "", in_threads=True)
    storage.check_format()
    return storage


def check_file_system(root: Path, on_network: OnNetwork, mount_table: Path = MOUNT_TABLE) -> None:
    """Check the file system on which the directory is, or will be; blocks.

    A machine without a mount table is not checked. Raises InvalidSetting, which names the file
    system.
    """
    refused = refusal(mount_at(root, mount_table), str(root), on_network)
    if refused is not None:
        raise refused


def open_directory(root: Path, ids: IdSource, owner: str) -> LocalChunkStorage:
    """Open the storage in a directory; create it if needed; blocks.

    Raises DirectoryUnusable, FormatTooNew.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DirectoryUnusable(
            "the directory of tier 2 cannot be created", path=str(root), cause=str(error)
        ) from error
    storage = LocalChunkStorage(LocalDisk(root), ids, owner, in_threads=True)
    storage.open()
    return storage
