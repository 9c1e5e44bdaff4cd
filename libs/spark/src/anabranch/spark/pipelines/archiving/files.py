"""The place of an archive: create-only objects in a directory, or in a bucket.

    /srv/archive, file:///srv/archive     a directory, local or on a file system that all machines
                                          share
    s3://bucket/prefix, gs://…, az://…    a bucket; keys come from the provider's environment
                                          variables

Objects appear whole or not at all, are durable when `create` returns, and are never changed. Calls
block. Tasks of Spark open the place by its URL.
"""

import asyncio
import os
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from anabranch.common.errors import InvalidSetting, ObjectExists, ObjectNotFound, OutcomeUnknown
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import IdSource, SystemIds
from anabranch.common.storage.location import (
    BucketLocation,
    DirectoryLocation,
    ObjectOptions,
    parse_location,
)
from anabranch.common.storage.ports import ChunkStorage

LIMIT_S = 120.0
_SCHEMES = ("file:", "s3:", "gs:", "az:")

T = TypeVar("T")


class Files(Protocol):
    """Objects by name; names contain `/`. A directory, a bucket, and a fake in memory."""

    def create(self, name: str, data: bytes) -> None:
        """Create an object. Raises ObjectExists if the name is taken by other bytes; the same bytes
        are no error, because an earlier attempt may have written them."""
        ...

    def get(self, name: str) -> bytes:
        """A whole object. Raises ObjectNotFound."""
        ...

    def list(self, directory: str) -> Sequence[str]:
        """The names below a directory at any depth, sorted, with those of unfinished objects."""
        ...

    def delete(self, name: str) -> None:
        """Delete an object; harmless if it does not exist."""
        ...


def url_of(place: str) -> str:
    """The URL of a place that a user wrote as a path or as a URL. Raises InvalidSetting."""
    if not place.startswith(_SCHEMES):
        return Path(place).absolute().as_uri()
    location = parse_location(place)
    return location.path.as_uri() if isinstance(location, DirectoryLocation) else place


def open_files(url: str) -> Files:
    """The place of a URL. A directory is created, a bucket is not. Raises InvalidSetting."""
    match parse_location(url):
        case DirectoryLocation(path):
            return DirectoryFiles(path, SystemIds())
        case BucketLocation() as bucket:
            from anabranch.common.adapters.chunk_bucket import bucket_storage

            storage = bucket_storage(bucket, ObjectOptions(), SystemClock(), limit_s=LIMIT_S)
            return BucketFiles(storage)
        case _:
            raise InvalidSetting(
                "an archive cannot lie in memory", remedy="name a directory or a bucket", url=url
            )


def local_path(url: str) -> Path | None:
    """The directory of a URL; None for a bucket."""
    location = parse_location(url)
    return location.path if isinstance(location, DirectoryLocation) else None


class DirectoryFiles:
    """A directory. An object is written to a hidden file, synced, and linked to its name."""

    def __init__(self, root: Path, ids: IdSource) -> None:
        self._root = root
        self._ids = ids

    def create(self, name: str, data: bytes) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{self._ids.new_id()[:12]}")
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                path.hardlink_to(temporary)
            except FileExistsError as error:
                if path.read_bytes() != data:
                    raise ObjectExists("the object exists", name=name) from error
        finally:
            temporary.unlink(missing_ok=True)
        for directory in (path.parent, *path.parent.parents):
            _sync_directory(directory)
            if directory == self._root.parent:
                break

    def get(self, name: str) -> bytes:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError as error:
            raise ObjectNotFound("the object does not exist", name=name) from error

    def list(self, directory: str) -> Sequence[str]:
        found = (path for path in (self._root / directory).rglob("*") if path.is_file())
        return sorted(path.relative_to(self._root).as_posix() for path in found)

    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class BucketFiles:
    """A bucket, through the adapter of tier 2."""

    def __init__(self, storage: ChunkStorage) -> None:
        self._storage = storage

    def create(self, name: str, data: bytes) -> None:
        try:
            self._run(self._storage.put_new(name, [data]))
        except (ObjectExists, OutcomeUnknown) as error:
            if self._known(name) != data:
                raise ObjectExists("the object exists", name=name) from error

    def _known(self, name: str) -> bytes | None:
        try:
            return self.get(name)
        except ObjectNotFound:
            return None

    def get(self, name: str) -> bytes:
        return self._run(self._storage.get(name))

    def list(self, directory: str) -> Sequence[str]:
        return self._run(self._storage.list(f"{directory}/" if directory else ""))

    def delete(self, name: str) -> None:
        self._run(self._storage.delete(name))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(_limited(work))


async def _limited(work: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(LIMIT_S):
        return await work
