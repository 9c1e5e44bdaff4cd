"""Reads the catalog of a container from tier 2, with the errors that callers act on.

A catalog is read from a manifest on: its snapshot's pages, then each manifest after the snapshot.
The owner deletes objects that newer manifests no longer need once `gc_grace` has passed, and only
this grace time protects a reader that is not the owner. Within it, take the highest manifest and
read the objects that it refers to; after it, take the highest manifest again.

The owner leaves a *receipt* of each manifest, an object that records only that the manifest was
created. From a receipt above all manifests, a reader that knows nothing but tier 2 can see that the
newest manifest was deleted by other means, and that only an older state is left.
"""

from anabranch.common.errors import CorruptChunk, CorruptManifest, ObjectNotFound, TierTwoRewound
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.catalog import apply_manifests, check_catalog
from anabranch.common.tier2.chunk import crc_of
from anabranch.common.tier2.manifest import Manifest, decode_manifest
from anabranch.common.tier2.names import (
    manifest_name,
    manifest_number,
    manifest_prefix,
    receipt_number,
)
from anabranch.common.tier2.page import Page, catalog_of_pages, decode_page
from anabranch.common.tier2.page_index import HeldPage, PageIndex, check_page, decode_index
from anabranch.common.tier2.state import Catalog, ChunkRef

HIGHEST_ATTEMPTS_MAX = 4
"""How often the highest manifest may be collected between its listing and its reading."""


async def manifest_numbers(storage: ChunkStorage, container: int) -> tuple[int, ...]:
    """The numbers of a container's manifests, ascending. Old ones are missing, because they are
    collected."""
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

    Raises TierTwoRewound, CorruptManifest (also if it is listed and cannot be found), FormatTooNew.
    """
    number = 0
    for _ in range(HIGHEST_ATTEMPTS_MAX):
        number = await _highest_with_receipt(storage, container)
        if number == 0:
            return None
        try:
            data = await storage.get(manifest_name(container, number))
        except ObjectNotFound:
            continue
        return decode_manifest(data, container, number)
    raise CorruptManifest(
        "tier 2 lists the newest manifest but does not return it",
        name=manifest_name(container, number),
    )


async def _highest_with_receipt(storage: ChunkStorage, container: int) -> int:
    """Like `highest_manifest`. Raises TierTwoRewound if a receipt proves that a higher one existed.

    A receipt is created after its manifest, and both are found by one list, which may pass the
    place of the manifest before the two are created. An apparent loss is therefore listed once
    more.
    """
    highest = receipt = 0
    for _ in range(2):
        names = await storage.list(manifest_prefix(container))
        highest = max((manifest_number(container, name) or 0 for name in names), default=0)
        receipt = max((receipt_number(container, name) or 0 for name in names), default=0)
        if highest >= receipt:
            return highest
    raise TierTwoRewound(
        "the newest manifest of the container was deleted",
        container=container,
        newest=highest,
        receipt=receipt,
        name=manifest_name(container, receipt),
    )


async def read_manifest(storage: ChunkStorage, container: int, number: int) -> Manifest:
    """Raises CorruptManifest (also if it is missing), FormatTooNew."""
    return (await read_sized_manifest(storage, container, number))[0]


async def read_sized_manifest(
    storage: ChunkStorage, container: int, number: int
) -> tuple[Manifest, int]:
    """The manifest and its size in bytes. Raises the errors of `read_manifest`."""
    name = manifest_name(container, number)
    try:
        data = await storage.get(name)
    except ObjectNotFound as error:
        raise CorruptManifest("a manifest is missing from its sequence", name=name) from error
    return decode_manifest(data, container, number), len(data)


async def read_referenced(storage: ChunkStorage, ref: ChunkRef) -> bytes:
    """The referenced bytes of a page or an index. Raises CorruptManifest."""
    try:
        data = await storage.get_range(ref.name, ref.offset, ref.length)
    except ObjectNotFound as error:
        raise CorruptManifest("a page of the snapshot is missing", name=ref.name) from error
    except CorruptChunk as error:
        raise CorruptManifest("a page of the snapshot is truncated", name=ref.name) from error
    if crc_of([data]) != ref.crc:
        raise CorruptManifest("a page of the snapshot differs from its reference", name=ref.name)
    return data


async def read_index(storage: ChunkStorage, manifest: Manifest) -> PageIndex | None:
    """The page index of the manifest's snapshot, if it has one.

    Raises CorruptManifest, FormatTooNew.
    """
    snapshot = manifest.snapshot
    if snapshot is None:
        return None
    data = await read_referenced(storage, snapshot.index)
    index = decode_index(data, snapshot.index.name)
    if (index.container, index.through) != (manifest.container, snapshot.through):
        raise CorruptManifest(
            "the page index belongs to another manifest", name=snapshot.index.name
        )
    return index


async def read_page(storage: ChunkStorage, ref: ChunkRef) -> Page:
    """A page that an index refers to. Raises CorruptManifest, FormatTooNew."""
    return decode_page(await read_referenced(storage, ref), ref.name)


async def read_held_page(storage: ChunkStorage, held: HeldPage) -> Page:
    """Like `read_page`, and checks that the page matches its head in the index."""
    page = await read_page(storage, held.ref)
    check_page(page, held)
    return page


async def load_catalog(storage: ChunkStorage, manifest: Manifest) -> Catalog:
    """The catalog after a manifest: its snapshot, then each manifest up to it.

    Raises CorruptManifest, FormatTooNew.
    """
    catalog, through = Catalog(), 0
    index = await read_index(storage, manifest)
    if index is not None:
        through = index.through
        catalog = await _load_pages(storage, index)
    manifests = [
        await read_manifest(storage, manifest.container, number)
        for number in range(through + 1, manifest.number)
    ]
    return apply_manifests(catalog, [*manifests, manifest])


async def _load_pages(storage: ChunkStorage, index: PageIndex) -> Catalog:
    pages: list[Page] = []
    for at, ref in enumerate(index.pages):
        if index.heads:
            pages.append(await read_held_page(storage, HeldPage(ref, index.heads[at])))
        else:
            pages.append(await read_page(storage, ref))
    catalog = catalog_of_pages(index.applied_sequence, pages)
    check_catalog(catalog)
    return catalog
