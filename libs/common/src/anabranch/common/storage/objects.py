"""Reading the catalog of a container from tier 2, with the errors that callers act on.

A catalog is read from a manifest on: its snapshot's pages, then each manifest after the snapshot.
The owner deletes what newer manifests no longer need once `gc_grace` has passed, and that grace
is all that protects a reader which is not the owner: within it, take the highest manifest and
read what it refers to; after it, take the highest manifest again.
"""

from dataclasses import dataclass

from anabranch.common.errors import CorruptChunk, CorruptManifest, ObjectNotFound
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.catalog import apply_manifests, check_catalog
from anabranch.common.tier2.chunk import crc_of
from anabranch.common.tier2.manifest import Manifest, decode_manifest
from anabranch.common.tier2.names import manifest_name, manifest_number, manifest_prefix
from anabranch.common.tier2.page import (
    HeldPage,
    Page,
    catalog_of_pages,
    decode_index,
    decode_page,
    page_digest,
)
from anabranch.common.tier2.state import Catalog, ChunkRef

HIGHEST_ATTEMPTS_MAX = 4
"""How often the highest manifest may be collected between its listing and its reading."""


@dataclass(frozen=True, slots=True)
class LoadedCatalog:
    """A catalog with what it was read from: the snapshot's pages, and the manifests after it."""

    catalog: Catalog
    pages: tuple[HeldPage, ...]
    manifests_size_bytes: int


async def manifest_numbers(storage: ChunkStorage, container: int) -> tuple[int, ...]:
    """The numbers of a container's manifests, ascending. Old ones are missing: collected."""
    names = await storage.list(manifest_prefix(container))
    numbers = (manifest_number(container, name) for name in names)
    return tuple(sorted(number for number in numbers if number is not None))


async def highest_manifest(storage: ChunkStorage, container: int) -> int:
    """The highest number of a container's manifests; 0 if there is none.

    The highest is never deleted before a higher one exists, so this is the newest owner's.
    """
    return max(await manifest_numbers(storage, container), default=0)


async def read_highest(storage: ChunkStorage, container: int) -> Manifest | None:
    """The manifest with the highest number; None if there is none.

    Raises CorruptManifest (also if it is listed and cannot be found), FormatTooNew.
    """
    number = 0
    for _ in range(HIGHEST_ATTEMPTS_MAX):
        number = await highest_manifest(storage, container)
        if number == 0:
            return None
        try:
            data = await storage.get(manifest_name(container, number))
        except ObjectNotFound:
            continue
        return decode_manifest(data, container, number)
    raise CorruptManifest(
        "the highest manifest is listed and not there", name=manifest_name(container, number)
    )


async def read_manifest(storage: ChunkStorage, container: int, number: int) -> Manifest:
    """Raises CorruptManifest (also if it is missing), FormatTooNew."""
    return (await _read_manifest(storage, container, number))[0]


async def _read_manifest(
    storage: ChunkStorage, container: int, number: int
) -> tuple[Manifest, int]:
    """The manifest and its size in bytes."""
    name = manifest_name(container, number)
    try:
        data = await storage.get(name)
    except ObjectNotFound as error:
        raise CorruptManifest("a manifest is missing from its sequence", name=name) from error
    return decode_manifest(data, container, number), len(data)


async def read_referenced(storage: ChunkStorage, ref: ChunkRef) -> bytes:
    """The bytes that a manifest or an index refers to. Raises CorruptManifest."""
    try:
        data = await storage.get_range(ref.name, ref.offset, ref.length)
    except ObjectNotFound as error:
        raise CorruptManifest("a page of the snapshot is missing", name=ref.name) from error
    except CorruptChunk as error:
        raise CorruptManifest("a page of the snapshot is cut short", name=ref.name) from error
    if crc_of([data]) != ref.crc:
        raise CorruptManifest("a page of the snapshot is not the one referred to", name=ref.name)
    return data


async def load_catalog(storage: ChunkStorage, manifest: Manifest) -> Catalog:
    """The catalog after a manifest: its snapshot, then each manifest up to it.

    Raises CorruptManifest, FormatTooNew.
    """
    return (await load_for_owner(storage, manifest)).catalog


async def load_for_owner(storage: ChunkStorage, manifest: Manifest) -> LoadedCatalog:
    """As `load_catalog`, with what the owner needs to write the next snapshot."""
    catalog, through = Catalog(), 0
    pages: tuple[HeldPage, ...] = ()
    if manifest.snapshot is not None:
        through = manifest.snapshot.through
        catalog, pages = await _load_snapshot(storage, manifest)
    read = [
        await _read_manifest(storage, manifest.container, number)
        for number in range(through + 1, manifest.number)
    ]
    catalog = apply_manifests(catalog, [*(found for found, _ in read), manifest])
    return LoadedCatalog(catalog, pages, sum(size for _, size in read))


async def _load_snapshot(
    storage: ChunkStorage, manifest: Manifest
) -> tuple[Catalog, tuple[HeldPage, ...]]:
    snapshot = manifest.snapshot
    assert snapshot is not None
    data = await read_referenced(storage, snapshot.index)
    index = decode_index(data, snapshot.index.name)
    if (index.container, index.through) != (manifest.container, snapshot.through):
        raise CorruptManifest("the page index is another's", name=snapshot.index.name)
    pages: list[Page] = []
    held: list[HeldPage] = []
    for ref in index.pages:
        data = await read_referenced(storage, ref)
        pages.append(decode_page(data, ref.name))
        held.append(HeldPage(ref, page_digest(data)))
    catalog = catalog_of_pages(index, pages)
    check_catalog(catalog)
    return catalog, tuple(held)
