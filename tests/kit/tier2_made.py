"""Tier 2 made by hand, with streams whose every byte a test decides, and planted damages.

    tier2 = MadeTierTwo()
    tier2.add_stream("demo/one", [Made(0, [[block(1, ["a", "b"])]])])
    tier2.storage() or tier2.write_to(directory)

One container holds everything. Where a test says nothing, the catalog agrees with the blocks.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.adapters.chunk_url import open_directory
from anabranch.common.errors import CorruptBlock
from anabranch.common.model.hashing import routing_position
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import StreamRef, segment_id, segment_kind, segment_name
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.runtime.ids import SystemIds
from anabranch.common.tier2 import chunk as chunks
from anabranch.common.tier2.manifest import (
    Changes,
    LogBinding,
    Manifest,
    SegmentChange,
    encode_manifest,
)
from anabranch.common.tier2.names import chunk_name, manifest_name
from anabranch.common.tier2.state import (
    ChunkRef,
    MergedInto,
    SegmentState,
    TieredExtent,
    Tombstone,
)
from anabranch.common.tier2.streams import (
    EarlierSegment,
    ExportedEpoch,
    ExportedStream,
    encode_stream,
    stream_object_name,
)
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import Stamp

BASE_MS = 1_700_000_000_000
WRITER = bytes(range(16))
ALL_KEYS = KeyRange(0.0, 1.0)
LOW, HIGH = KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)
Change = Callable[[bytes], bytes]


def keys_in(keys: KeyRange, wanted: int) -> list[str]:
    """So many different keys of the range."""
    texts = (f"key-{number}" for number in count())
    return list(islice((text for text in texts if routing_position(text) in keys), wanted))


def block(
    first: int,
    keys: Sequence[str | None],
    *,
    writer: bytes = WRITER,
    size: int = 20,
    time_ms: int = BASE_MS,
    zstd_level: int | None = None,
) -> bytes:
    """A block with an event of `size` bytes per key, numbered from `first` on."""
    return encode_block(
        [f"{first + place}".encode().ljust(size, b".") for place in range(len(keys))],
        writer_id=writer,
        first_event_number=first,
        base_timestamp_ms=time_ms,
        keys=[None if key is None else key.encode() for key in keys],
        zstd_level=zstd_level,
    )


def blocks(keys: KeyRange, number: int, *, each: int = 3, writer: bytes = WRITER) -> list[bytes]:
    """So many blocks of one writer, with keys of the range, whose numbers follow each other."""
    names = keys_in(keys, each)
    return [
        block(1 + each * at, names, writer=writer, time_ms=BASE_MS + 1000 * at)
        for at in range(number)
    ]


@dataclass(frozen=True)
class Made:
    """A segment: its extents, each as the blocks in it. `sealed_epoch` None: it takes appends.

    `is_flushed` False: no catalog has it. `sealed_size` None: its length.
    """

    number: int
    extents: Sequence[Sequence[bytes]] = ()
    epoch: int = 0
    keys: KeyRange = ALL_KEYS
    start: int = 0
    sealed_epoch: int | None = None
    sealed_size: int | None = None
    event_count: int | None = None
    is_sealed_in_catalog: bool | None = None
    is_flushed: bool = True

    @property
    def length(self) -> int:
        return sum(len(each) for extent in self.extents for each in extent)

    @property
    def events(self) -> int:
        return sum(_events(each) for extent in self.extents for each in extent)

    @property
    def events_before_start(self) -> int:
        at = events = 0
        for each in (each for extent in self.extents for each in extent):
            events += _events(each) if at < self.start else 0
            at += len(each)
        return events


def _events(data: bytes) -> int:
    try:
        return parse_header(data).event_count
    except CorruptBlock:
        return 0


class MadeTierTwo:
    """Collects streams; `change` and `drop` damage the objects that `storage` returns."""

    def __init__(self) -> None:
        self._storage = MemoryChunkStorage()
        self._changes: list[SegmentChange] = []
        self._tombstones: list[Tombstone] = []
        self._numbers = count(1)
        self.chunks: dict[tuple[str, int], str] = {}
        """The chunk of each extent, by the segment's full name and the place of the extent."""
        self.segment_numbers: dict[str, int] = {}

    def add_stream(
        self,
        name: str,
        segments: Sequence[Made],
        *,
        present: Sequence[Made] | None = None,
        state: StreamState = StreamState.ACTIVE,
    ) -> None:
        """`present`: the segments of the present epoch, by default those that are not sealed."""
        ref = _ref(name)
        for each in segments:
            if each.is_flushed:
                self._add(segment_name(ref, segment_id(each.epoch, each.number)), each)
        now = [each for each in segments if each.sealed_epoch is None]
        parts = sorted(now if present is None else present, key=lambda each: each.keys)
        told = ExportedStream(
            ref=ref,
            incarnation=1,
            revision=3,
            state=state,
            created_ms=BASE_MS,
            container_count=1,
            epochs=(
                ExportedEpoch(
                    max(each.epoch for each in segments),
                    tuple(SegmentRange(segment_id(p.epoch, p.number), p.keys) for p in parts),
                ),
            ),
            earlier=tuple(
                EarlierSegment(
                    segment_id(each.epoch, each.number), each.keys, each.sealed_epoch,
                    each.length if each.sealed_size is None else each.sealed_size,
                )
                for each in sorted(segments, key=lambda each: (each.epoch, each.number))
                if each.sealed_epoch is not None
            ),
        )  # fmt: skip
        self._storage.objects[stream_object_name(ref, 3)] = encode_stream(told)

    def add_segment(self, name: str, made: Made) -> None:
        """A segment that no stream names: a transaction's."""
        self._add(name, made)

    def add_merged(self, source: str, target: str, offset: int, length: int) -> None:
        """The record of a merged segment."""
        place = MergedInto(target, self.segment_numbers[target], offset, length)
        self._tombstones.append(Tombstone(source, Stamp(1, 1), 1, BASE_MS, place))

    def _add(self, name: str, made: Made) -> None:
        number, length, added = next(self._numbers), 0, []
        for place, held in enumerate(made.extents):
            data = b"".join(held)
            at, entries = 0, []
            for each in held:
                at += len(each)
                entries.append(chunks.SparseEntry(at, _events(each), BASE_MS))
            chunk = chunk_name(0, number, place + 1)
            crc = chunks.crc_of([data])
            piece = chunks.Piece(name, number, length, 0, len(data), crc, tuple(entries))
            footer = chunks.ChunkFooter(chunk, len(data), (piece,), chunks.block_crcs_of([data]))
            self._storage.objects[chunk] = data + chunks.encode_footer(footer)
            self.chunks[name, place] = chunk
            added.append(TieredExtent(length, ChunkRef(chunk, 0, len(data), crc)))
            length += len(data)
        is_sealed = made.is_sealed_in_catalog
        state = SegmentState(
            name, number, Stamp(1, 1), start=made.start, length=length,
            event_count=made.events if made.event_count is None else made.event_count,
            sealed=made.sealed_epoch is not None if is_sealed is None else is_sealed,
            modified_ms=BASE_MS, kind=segment_kind(name),
            start_event_count=made.events_before_start,
        )  # fmt: skip
        self.segment_numbers[name] = number
        self._changes.append(SegmentChange(state, added=tuple(added)))

    def change(self, object_name: str, how: Change) -> None:
        """Replace an object's bytes."""
        self._storage.objects[object_name] = how(self._storage.objects[object_name])

    def drop(self, object_name: str) -> None:
        """Delete an object."""
        del self._storage.objects[object_name]

    def storage(self) -> MemoryChunkStorage:
        """Everything, with a manifest for it."""
        found = MemoryChunkStorage()
        found.objects = {**self._storage.objects, manifest_name(0, 1): self.manifest()}
        return found

    def manifest(self, how: Callable[[SegmentChange], SegmentChange] | None = None) -> bytes:
        """The manifest; `how` changes its entries."""
        entries = self._changes if how is None else [how(each) for each in self._changes]
        return encode_manifest(
            Manifest(
                container=0, number=1, container_epoch=1, nonce=bytes(16), log=LogBinding("log"),
                applied_sequence=9,
                changes=Changes(segments=tuple(entries), tombstones=tuple(self._tombstones)),
            )
        )  # fmt: skip

    def write_to(self, directory: Path, manifest: bytes | None = None) -> str:
        """Write everything to a directory → its URL as tier 2."""
        directory.mkdir(parents=True, exist_ok=True)
        found = self.storage().objects
        if manifest is not None:
            found[manifest_name(0, 1)] = manifest
        target = open_directory(directory, SystemIds(), "made")

        async def write() -> None:
            for name, data in found.items():
                await target.put_new(name, [data])

        asyncio.run(write())
        return directory.as_uri()


def flipped(at: int) -> Change:
    """Flip a bit of the byte at `at`."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 4
        return bytes(changed)

    return change


def cut_at(size: int) -> Change:
    """Keep the first `size` bytes."""
    return lambda data: data[:size]


def _ref(name: str) -> StreamRef:
    scope, _, stream = name.partition("/")
    return StreamRef(scope, stream)  # type: ignore[arg-type]
