"""What tier 2 tells of streams: the format, and finding the last word."""

from dataclasses import replace

import msgspec
import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import CorruptManifest, FormatTooNew, StreamNotFound
from anabranch.common.model.key_range import KeyRange, even_ranges
from anabranch.common.model.names import segment_id, stream_ref
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.storage.streams import read_stream
from anabranch.common.tier2.envelope import HEAD, seal_envelope
from anabranch.common.tier2.streams import (
    FORMAT,
    MAGIC,
    EarlierSegment,
    ExportedEpoch,
    ExportedStream,
    decode_stream,
    encode_stream,
    revision_in,
    stream_object_name,
)
from kit.golden import assert_golden, read_golden

REF = stream_ref("demo/flights")


def exported(revision: int, state: StreamState = StreamState.ACTIVE) -> ExportedStream:
    segments = tuple(
        SegmentRange(segment_id(0, number), keys) for number, keys in enumerate(even_ranges(4))
    )
    return ExportedStream(
        ref=REF, incarnation=1, revision=revision, state=state, created_ms=1_700_000_000_000,
        container_count=4,
        epochs=() if state is StreamState.DELETED else (ExportedEpoch(0, segments),),
    )  # fmt: skip


async def storage_with(*streams: ExportedStream) -> MemoryChunkStorage:
    storage = MemoryChunkStorage()
    for stream in streams:
        name = stream_object_name(stream.ref, stream.revision)
        await storage.put_new(name, [encode_stream(stream)])
    return storage


def test_a_stream_survives_the_way_there_and_back() -> None:
    name = stream_object_name(REF, 42)
    assert decode_stream(encode_stream(exported(42)), name) == exported(42)


def scaled(revision: int) -> ExportedStream:
    """A stream whose first segment was replaced by two."""
    split = EarlierSegment(segment_id(0, 0), KeyRange(0.0, 0.25), sealed_epoch=1, size=4711)
    stay = exported(revision).epochs[0].segments[1:]
    halves = (
        SegmentRange(segment_id(1, 4), KeyRange(0.0, 0.125)),
        SegmentRange(segment_id(1, 5), KeyRange(0.125, 0.25)),
    )
    return replace(
        exported(revision), epochs=(ExportedEpoch(1, (*halves, *stay)),), earlier=(split,)
    )


def test_a_scaled_stream_survives_the_way_there_and_back() -> None:
    found = decode_stream(encode_stream(scaled(42)), stream_object_name(REF, 42))
    assert found == scaled(42)
    assert [segment >> 32 for segment in found.segment_ids()] == [0, 0, 0, 0, 1, 1]


def test_the_formats_are_frozen_and_a_stream_of_one_epoch_is_told_in_the_first() -> None:
    assert_golden("stream_format_1", encode_stream(exported(42)))
    assert_golden("stream_format_2", encode_stream(scaled(42)))
    assert read_golden("stream_format_1")[4] == 1
    assert read_golden("stream_format_2")[4] == 2


def test_names_hold_no_words_of_users_and_tell_the_revision() -> None:
    name = stream_object_name(REF, 42)
    assert "demo" not in name
    assert "flights" not in name
    assert revision_in(name) == 42
    assert revision_in("s/07/abc/x") is None


def test_every_flipped_bit_is_noticed() -> None:
    name, data = stream_object_name(REF, 42), encode_stream(exported(42))
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptManifest):
            decode_stream(bytes(damaged), name)


def test_an_object_under_anothers_name_is_refused() -> None:
    with pytest.raises(CorruptManifest):
        decode_stream(encode_stream(exported(42)), stream_object_name(REF, 43))


@pytest.mark.parametrize("revision", [0, -1, 10**10, 2**63])
def test_a_revision_that_no_name_can_hold_is_refused(revision: int) -> None:
    name, body = stream_object_name(REF, 42), encode_stream(exported(42))[HEAD.size :]
    told = msgspec.msgpack.decode(body) | {"revision": revision}
    with pytest.raises(CorruptManifest):
        decode_stream(seal_envelope(MAGIC, FORMAT, msgspec.msgpack.encode(told)), name)


def test_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(FormatTooNew):
        decode_stream(seal_envelope(MAGIC, FORMAT + 1, b""), stream_object_name(REF, 42))


async def test_the_highest_revision_is_the_present_one() -> None:
    storage = await storage_with(exported(2), exported(10), exported(9))
    assert (await read_stream(storage, REF)).revision == 10


async def test_a_stream_that_was_deleted_or_never_told_of_is_not_found() -> None:
    with pytest.raises(StreamNotFound):
        await read_stream(await storage_with(), REF)
    with pytest.raises(StreamNotFound):
        await read_stream(await storage_with(exported(3), exported(5, StreamState.DELETED)), REF)
