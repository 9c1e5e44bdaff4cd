"""Reading the catalog of a container from tier 2, with the errors that callers act on."""

from anabranch.common.errors import CorruptManifest, ObjectNotFound
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.catalog import apply_manifests, check_catalog
from anabranch.common.tier2.chunk import crc_of
from anabranch.common.tier2.manifest import Manifest, decode_manifest
from anabranch.common.tier2.names import manifest_name, manifest_number, manifest_prefix
from anabranch.common.tier2.page import catalog_of_pages, decode_index, decode_page
from anabranch.common.tier2.state import Catalog, ChunkRef


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


async def load_catalog(storage: ChunkStorage, manifest: Manifest) -> Catalog:
    """The catalog after a manifest: its snapshot, then each manifest up to it.

    Raises CorruptManifest, FormatTooNew.
    """
    catalog, through = Catalog(), 0
    if manifest.snapshot is not None:
        catalog, through = await _load_snapshot(storage, manifest)
    manifests = [
        await read_manifest(storage, manifest.container, number)
        for number in range(through + 1, manifest.number)
    ]
    return apply_manifests(catalog, [*manifests, manifest])


async def _load_snapshot(storage: ChunkStorage, manifest: Manifest) -> tuple[Catalog, int]:
    snapshot = manifest.snapshot
    assert snapshot is not None
    data = await read_referenced(storage, snapshot.index)
    index = decode_index(data, snapshot.index.name)
    if (index.container, index.through) != (manifest.container, snapshot.through):
        raise CorruptManifest("the page index is another's", name=snapshot.index.name)
    pages = [decode_page(await read_referenced(storage, ref), ref.name) for ref in index.pages]
    catalog = catalog_of_pages(index, pages)
    check_catalog(catalog)
    return catalog, snapshot.through
