"""From a tier-2 URL to a chunk storage that is checked and ready, to write or to read alone."""

import asyncio
from pathlib import Path
from urllib.parse import unquote, urlsplit

from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.errors import DirectoryUnusable, InvalidSetting
from anabranch.common.runtime.ids import IdSource, SystemIds
from anabranch.common.storage.deadline import DeadlineChunkStorage
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.probe import probe_create_only

_SUPPORTED = "file:///absolute/directory and memory:"


async def open_chunk_storage(
    url: str, ids: IdSource, owner: str, *, limit_s: float
) -> ChunkStorage:
    """The storage that a URL names, opened and probed; its calls end within `limit_s` seconds.

    `owner` is the store's own id, which only one process uses at a time. A directory that does
    not exist is created. Raises InvalidSetting (which names what is supported),
    DirectoryUnusable, FormatTooNew.
    """
    if url == "memory:":
        storage = DeadlineChunkStorage(MemoryChunkStorage(), limit_s)
    else:
        root = directory_of(url)
        local = await asyncio.to_thread(open_directory, root, ids, owner)
        storage = DeadlineChunkStorage(local, limit_s)
    await probe_create_only(storage, ids)
    return storage


async def open_chunk_storage_read_only(url: str, *, limit_s: float) -> ChunkStorage:
    """The storage that a URL names, for a reader: nothing is created, removed or probed.

    The caller keeps to `get`, `get_range`, `size` and `list`. Raises InvalidSetting,
    DirectoryUnusable (there is no tier 2 at the URL), FormatTooNew.
    """
    local = await asyncio.to_thread(_open_directory_read_only, directory_of(url))
    return DeadlineChunkStorage(local, limit_s)


def directory_of(url: str) -> Path:
    """The directory of a ``file:`` URL. Raises InvalidSetting."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise InvalidSetting(
            "the URL of tier 2 is not supported", remedy=f"use {_SUPPORTED}", url=url
        )
    return Path(path)


def _open_directory_read_only(root: Path) -> LocalChunkStorage:
    storage = LocalChunkStorage(LocalDisk(root, read_only=True), SystemIds(), "", in_threads=True)
    storage.check_format()
    return storage


def open_directory(root: Path, ids: IdSource, owner: str) -> LocalChunkStorage:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DirectoryUnusable(
            "the directory of tier 2 cannot be created", path=str(root), cause=str(error)
        ) from error
    storage = LocalChunkStorage(LocalDisk(root), ids, owner, in_threads=True)
    storage.open()
    return storage
