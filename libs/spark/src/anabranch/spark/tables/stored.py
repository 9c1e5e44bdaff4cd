"""Streams as tier 2 describes them, for tables and audits: damage is a value, not an error.

    description of a stream ──► its segments ──► the catalog of each container ──► extents,
    segments of transactions beside the segments, and the places of merged segments

A description or a catalog that cannot be read becomes a `Lost`, and the rest is read all the same.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.common.errors import Corrupt, PlanOutdated
from anabranch.common.model.hashing import container_of
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import (
    SegmentId,
    SegmentKind,
    StreamRef,
    segment_name,
    transaction_segment,
)
from anabranch.common.model.stream import StreamState
from anabranch.common.model.topics import is_backing
from anabranch.common.storage.objects import load_catalog, read_highest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.streams import audit_streams, read_stream
from anabranch.common.tier2.state import Catalog, SegmentState, TieredExtent, Tombstone
from anabranch.common.tier2.streams import ExportedStream
from anabranch.spark.options.streams import Matching, Named, Which
from anabranch.spark.places.tier_two import TierTwoPlace


@dataclass(frozen=True, slots=True)
class Lost:
    """An object of tier 2 that cannot be read, and the place that depends on it.

    `stream` is empty if the object would have told it. `segment` is empty for a stream's
    description.
    """

    stream: str
    segment: str
    text: str


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment of a stream. `sealed_epoch` and `sealed_size`: None while it takes appends.

    `state` None: the catalog does not have it. `is_deleted`: the catalog records its deletion.
    `extents` begin at or before `state.start` and end at `state.length`.
    """

    name: str
    segment_id: SegmentId
    container: int
    keys: KeyRange
    sealed_epoch: int | None = None
    sealed_size: int | None = None
    state: SegmentState | None = None
    extents: tuple[TieredExtent, ...] = ()
    is_deleted: bool = False

    @property
    def bounds(self) -> tuple[int, int]:
        """The first retained byte and the end of the bytes in tier 2."""
        return (0, 0) if self.state is None else (self.state.start, self.state.length)


@dataclass(frozen=True, slots=True)
class StoredStream:
    """A stream; `lost` are segments whose container has no readable catalog.

    `unmerged`: segments of transactions, or of their parts, that are not merged. `merged`: the
    records of segments that were merged into one of `segments`.
    """

    told: ExportedStream
    segments: tuple[StoredSegment, ...]
    unmerged: tuple[SegmentState, ...] = ()
    merged: tuple[Tombstone, ...] = ()
    lost: tuple[Lost, ...] = ()

    @property
    def has_hashed_keys(self) -> bool:
        """Whether a key's hash determines its segment; partitions of topics take keys otherwise."""
        return not is_backing(self.told.ref.stream)


@dataclass(frozen=True, slots=True)
class Stored:
    """The streams that were asked for. `lost`: descriptions that cannot be read."""

    streams: tuple[StoredStream, ...]
    lost: tuple[Lost, ...] = ()


async def read_stored(storage: ChunkStorage, which: Which) -> Stored:
    """Read descriptions and catalogs.

    Raises StreamNotFound, TopicNotFound, InvalidRequest for a tag, PlanOutdated if tier 2 does not
    describe a stream's new incarnation yet, and FormatTooNew.
    """
    told, lost = await _descriptions(storage, which)
    needed = sorted({part.container for each in told for part in segments_of(each)})
    catalogs = {number: await _read_container(storage, number) for number in needed}
    return Stored(tuple(_stream(each, catalogs) for each in told), tuple(lost))


@dataclass(frozen=True, slots=True)
class _Container:
    """A container's catalog, with unmerged and merged segments by their target's name.

    `damage`: the catalog cannot be read.
    """

    catalog: Catalog = field(default_factory=Catalog)
    unmerged: Mapping[str, Sequence[SegmentState]] = field(default_factory=dict)
    merged: Mapping[str, Sequence[Tombstone]] = field(default_factory=dict)
    damage: str = ""


async def _descriptions(
    storage: ChunkStorage, which: Which
) -> tuple[list[ExportedStream], list[Lost]]:
    told: list[ExportedStream] = []
    lost: list[Lost] = []
    if isinstance(which, Matching):
        async for prefix, found in audit_streams(storage):
            if isinstance(found, Corrupt):
                lost.append(Lost("", "", f"{found} below {prefix}"))
            elif found.state is not StreamState.DELETED and which.matches(found.ref):
                told.append(found)
        return sorted(told, key=lambda each: str(each.ref)), lost
    for ref in await _named(storage, which):
        try:
            told.append(await read_stream(storage, ref))
        except Corrupt as error:
            lost.append(Lost(str(ref), "", str(error)))
    return told, lost


async def _named(storage: ChunkStorage, which: Which) -> Sequence[StreamRef]:
    return which.streams if isinstance(which, Named) else await TierTwoPlace(storage).find(which)


async def _read_container(storage: ChunkStorage, number: int) -> _Container:
    try:
        manifest = await read_highest(storage, number)
        catalog = Catalog() if manifest is None else await load_catalog(storage, manifest)
    except Corrupt as error:
        return _Container(damage=f"container {number}: {error}")
    unmerged: dict[str, list[SegmentState]] = defaultdict(list)
    merged: dict[str, list[Tombstone]] = defaultdict(list)
    for state in catalog.segments.values():
        if state.kind is SegmentKind.TRANSACTION and (known := transaction_segment(state.name)):
            unmerged[known.parent].append(state)
    for tombstone in catalog.tombstones.values():
        if tombstone.merged is not None:
            merged[tombstone.merged.target].append(tombstone)
    return _Container(catalog, unmerged, merged)


def segments_of(told: ExportedStream) -> Iterator[StoredSegment]:
    """The segments that the description names, predecessors first, without their states."""
    present = {part.segment_id: part.keys for epoch in told.epochs for part in epoch.segments}
    earlier = {part.segment_id: part for part in told.earlier}
    for each in told.segment_ids():
        name, before = segment_name(told.ref, each), earlier.get(each)
        yield StoredSegment(
            name=name,
            segment_id=each,
            container=container_of(name, told.container_count),
            keys=present[each] if before is None else before.keys,
            sealed_epoch=None if before is None else before.sealed_epoch,
            sealed_size=None if before is None else before.size,
        )


def _stream(told: ExportedStream, containers: Mapping[int, _Container]) -> StoredStream:
    segments: list[StoredSegment] = []
    unmerged: list[SegmentState] = []
    merged: list[Tombstone] = []
    lost: list[Lost] = []
    for each in segments_of(told):
        container = containers[each.container]
        if container.damage:
            lost.append(Lost(str(told.ref), each.name, container.damage))
        segments.append(_with_state(each, container.catalog, told))
        unmerged += [
            state
            for state in container.unmerged.get(each.name, ())
            if state.stamp.incarnation == told.incarnation
        ]
        merged += container.merged.get(each.name, ())
    return StoredStream(told, tuple(segments), tuple(unmerged), tuple(merged), tuple(lost))


def _with_state(segment: StoredSegment, catalog: Catalog, told: ExportedStream) -> StoredSegment:
    state = catalog.segments.get(segment.name)
    if state is not None and state.stamp.incarnation > told.incarnation:
        raise PlanOutdated(
            "tier 2 does not describe the stream's new incarnation yet", stream=str(told.ref)
        )
    is_present = state is not None and state.stamp.incarnation == told.incarnation
    return StoredSegment(
        name=segment.name,
        segment_id=segment.segment_id,
        container=segment.container,
        keys=segment.keys,
        sealed_epoch=segment.sealed_epoch,
        sealed_size=segment.sealed_size,
        state=state if is_present else None,
        extents=catalog.extents[state.number] if state is not None and is_present else (),
        is_deleted=segment.name in catalog.tombstones,
    )
