"""Tier 2 for a short-lived process without an id of its own, of which many may run at once.

    tmp/transient-<ms>-<id>/    unfinished objects of one session, which began at that time

A directory's temporaries belong to an owner id that only one process uses at a time. Every session
here draws a new id and removes its folder at its end. If a process is killed, the next session that
begins at least a day later removes its folder. A session must therefore end within a day; otherwise
its next write fails, and the process opens a new session. This module does not probe the storage,
so its users must not rely on create-only. An object store has no temporaries, and its sessions
leave nothing behind.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from anabranch.common.adapters.chunk_url import open_bucket, open_directory
from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.runtime.threads import run_in_daemon
from anabranch.common.storage.deadline import DeadlineChunkStorage
from anabranch.common.storage.location import (
    BucketLocation,
    DirectoryLocation,
    MemoryLocation,
    ObjectOptions,
    parse_location,
)
from anabranch.common.storage.ports import ChunkStorage

LEFT_OVER_AGE_MS = 24 * 3600 * 1000
_TEMPORARY = "tmp"
_OWNER = "transient"
_DEFAULTS = ObjectOptions()


def shared_location(url: str) -> DirectoryLocation | BucketLocation:
    """Parse the URL of a tier 2 that several processes share. Raises InvalidSetting."""
    location = parse_location(url)
    if isinstance(location, MemoryLocation):
        raise InvalidSetting(
            "other processes cannot share a tier 2 in memory",
            remedy="name the tier 2 of the segment stores, such as file:///absolute/directory",
            url=url,
        )
    return location


@asynccontextmanager
async def transient_chunk_storage(
    url: str, clock: Clock, ids: IdSource, *, limit_s: float, options: ObjectOptions = _DEFAULTS
) -> AsyncIterator[ChunkStorage]:
    """Open the storage of a URL for one session; its calls end within `limit_s` seconds.

    A directory that does not exist is created, a bucket is not. Raises InvalidSetting,
    DirectoryUnusable, FormatTooNew, and for a bucket TierTwoNotHere, Unauthorized, Unavailable.
    """
    location = shared_location(url)
    if isinstance(location, BucketLocation):
        storage, _ = await open_bucket(location, limit_s=limit_s, options=options)
        yield storage
        return
    now_ms = clock.now_ms()
    owner = f"{_OWNER}-{now_ms}-{ids.new_id()}"
    root = location.path
    try:
        local = await run_in_daemon("tier2", partial(open_directory, root, ids, owner))
        await run_in_daemon("tier2", partial(_remove_left_over, root / _TEMPORARY, now_ms))
        yield DeadlineChunkStorage(local, limit_s)
    finally:
        await run_in_daemon("tier2", partial(_remove, root / _TEMPORARY / owner))


def began_ms(owner: str) -> int | None:
    """The time at which the session with this owner id began; None for other owners."""
    kind, _, rest = owner.partition("-")
    digits = rest.partition("-")[0]
    return int(digits) if kind == _OWNER and digits.isascii() and digits.isdigit() else None


def _remove_left_over(temporary: Path, now_ms: int) -> None:
    for folder in temporary.iterdir():
        began = began_ms(folder.name)
        if began is not None and began < now_ms - LEFT_OVER_AGE_MS:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder as far as possible; a later session removes the rest."""
    shutil.rmtree(folder, ignore_errors=True)
