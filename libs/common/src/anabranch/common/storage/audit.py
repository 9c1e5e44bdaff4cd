"""Reads everything that a container has in tier 2, to verify that it exists and is undamaged.

The audit trusts and changes nothing. It checks every manifest that counts, every checksum of a
reference and of a block, and that the blocks hold as many events as the catalog records. It
collects faults, one line each, and continues with the next segment.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from anabranch.common.errors import AnabranchError, TierTwoNotHere
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.objects import load_catalog, read_highest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.manifest import Manifest
from anabranch.common.tier2.state import Catalog, SegmentState
from anabranch.common.wire.block import count_events


@dataclass(frozen=True, slots=True)
class ContainerCatalog:
    """A container as its newest manifest describes it."""

    manifest: Manifest
    catalog: Catalog


@dataclass(slots=True)
class SegmentAudit:
    """The findings for one segment. `faults` is empty if the segment is undamaged."""

    container: int
    segment: SegmentState
    chunks: int = 0
    size_bytes: int = 0
    blocks: int = 0
    events: int = 0
    faults: list[str] = field(default_factory=list)


async def containers_in(storage: ChunkStorage) -> list[int]:
    """The containers that have manifests, ascending."""
    names = await storage.list("c")
    heads = {name.split("/", 1)[0] for name in names if "/m/" in name}
    return sorted(int(head[1:]) for head in heads if head[1:].isdigit())


async def read_catalog(storage: ChunkStorage, container: int) -> ContainerCatalog:
    """The newest state in tier 2. Raises TierTwoNotHere, CorruptManifest, FormatTooNew."""
    manifest = await read_highest(storage, container)
    if manifest is None:
        raise TierTwoNotHere("tier 2 lists no manifest of the container", container=container)
    return ContainerCatalog(manifest, await load_catalog(storage, manifest))


OnRead = Callable[[int, int], None]
"""(events, bytes) of an extent that was read."""


def _nothing(_events: int, _size_bytes: int) -> None:
    return


async def audit_container(
    storage: ChunkStorage, container: int, found: ContainerCatalog, on_read: OnRead = _nothing
) -> AsyncIterator[SegmentAudit]:
    """Read every segment of the container completely, by name. `on_read` follows each extent."""
    reader = ChunkReader(storage)
    for name in sorted(found.catalog.segments):
        yield await _audit_segment(reader, container, found.catalog, name, on_read)
        await asyncio.sleep(0)


async def _audit_segment(
    reader: ChunkReader, container: int, catalog: Catalog, name: str, on_read: OnRead
) -> SegmentAudit:
    state = catalog.segments[name]
    audit = SegmentAudit(container, state)
    names = set()
    counted = -1
    """The events before the next extent; -1: not known."""
    for extent in catalog.extents.get(state.number, ()):
        names.add(extent.ref.name)
        try:
            data = await reader.read(extent.ref, 0, extent.ref.length)
            audit.size_bytes += len(data)
            blocks, events = count_events(data)
        except AnabranchError as error:
            audit.faults.append(f"{error.code}: {error}")
            counted = -1
            continue
        if -1 not in (counted, extent.events_before) and counted != extent.events_before:
            audit.faults.append(
                f"numbers: the blocks before offset {extent.start} end at event {counted}, "
                f"the catalog says {extent.events_before}"
            )
        counted = extent.events_before + events if extent.events_before >= 0 else -1
        audit.blocks += blocks
        audit.events += events
        on_read(events, len(data))
    audit.chunks = len(names)
    if state.start == 0 and not audit.faults and audit.events != state.event_count:
        audit.faults.append(
            f"events: the blocks hold {audit.events}, the catalog says {state.event_count}"
        )
    return audit
