"""Objects of tier 2 as values: creating and reading them with the errors that callers act on.

A put may end without a known outcome (a time limit, a lost connection). A manifest is then put
again under the same name with the same bytes: whoever reads those bytes under the name knows
that the object is its own, because they hold the owner's nonce.
"""

import asyncio
from collections.abc import Sequence

from anabranch.common.errors import (
    CorruptManifest,
    ObjectExists,
    ObjectNotFound,
    OutcomeUnknown,
    Unavailable,
)
from anabranch.segstore.domain.container.state import ChunkRef
from anabranch.segstore.domain.storage.chunk import crc_of
from anabranch.segstore.domain.storage.manifest import (
    Manifest,
    decode_manifest,
    encode_manifest,
)
from anabranch.segstore.domain.storage.names import (
    manifest_name,
    manifest_number,
    manifest_prefix,
)
from anabranch.segstore.ports import Buffer, ChunkStorage

PUT_ATTEMPTS_MAX = 3


class DeadlineChunkStorage:
    """A chunk storage whose every call ends within a time limit, in seconds.

    A put beyond it raises OutcomeUnknown, all else Unavailable.
    """

    def __init__(self, storage: ChunkStorage, limit_s: float) -> None:
        self._storage = storage
        self._limit_s = limit_s

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                await self._storage.put_new(name, parts)
        except TimeoutError as error:
            raise OutcomeUnknown(
                "creating a tier-2 object took too long", name=name, limit_s=self._limit_s
            ) from error

    async def get(self, name: str) -> bytes:
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._storage.get(name)
        except TimeoutError as error:
            raise self._too_slow("read", name) from error

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._storage.get_range(name, offset, length)
        except TimeoutError as error:
            raise self._too_slow("read", name) from error

    async def size(self, name: str) -> int:
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._storage.size(name)
        except TimeoutError as error:
            raise self._too_slow("size", name) from error

    async def list(self, prefix: str) -> Sequence[str]:
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._storage.list(prefix)
        except TimeoutError as error:
            raise self._too_slow("list", prefix) from error

    async def delete(self, name: str) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                await self._storage.delete(name)
        except TimeoutError as error:
            raise self._too_slow("delete", name) from error

    def _too_slow(self, call: str, name: str) -> Unavailable:
        return Unavailable("tier 2 did not answer in time", call=call, name=name)


async def highest_manifest(storage: ChunkStorage, container: int) -> int:
    """The highest number of a container's manifests; 0 if there is none."""
    names = await storage.list(manifest_prefix(container))
    numbers = (manifest_number(container, name) for name in names)
    return max((number for number in numbers if number is not None), default=0)


async def read_manifest(storage: ChunkStorage, container: int, number: int) -> Manifest:
    """Raises CorruptManifest (also if it is missing), FormatTooNew."""
    name = manifest_name(container, number)
    try:
        data = await storage.get(name)
    except ObjectNotFound as error:
        raise CorruptManifest("a manifest is missing from its sequence", name=name) from error
    return decode_manifest(data, container, number)


async def read_referenced(storage: ChunkStorage, ref: ChunkRef) -> bytes:
    """The bytes that a manifest or an index refers to. Raises CorruptManifest."""
    try:
        data = await storage.get_range(ref.name, ref.offset, ref.length)
    except ObjectNotFound as error:
        raise CorruptManifest("a page of the snapshot is missing", name=ref.name) from error
    if crc_of([data]) != ref.crc:
        raise CorruptManifest("a page of the snapshot is not the one referred to", name=ref.name)
    return data


async def create_manifest(storage: ChunkStorage, manifest: Manifest) -> Manifest | None:
    """Create the manifest: None if it is there and ours, else the manifest that has its number.

    Raises DiskFailed, and OutcomeUnknown after `PUT_ATTEMPTS_MAX` attempts: the caller must
    then open again, it cannot know whether the manifest will appear.
    """
    name = manifest_name(manifest.container, manifest.number)
    data = encode_manifest(manifest)
    for attempt in range(1, PUT_ATTEMPTS_MAX + 1):
        try:
            await storage.put_new(name, [data])
        except ObjectExists:
            found = await read_manifest(storage, manifest.container, manifest.number)
            return None if found == manifest else found
        except OutcomeUnknown:
            if attempt == PUT_ATTEMPTS_MAX:
                raise
        else:
            return None
    raise AssertionError("the last attempt returns or raises")
