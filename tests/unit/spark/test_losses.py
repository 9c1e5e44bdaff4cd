"""A task whose planned bytes are truncated: a batch read fails, and a query fails or goes on."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from crc32c import crc32c

from anabranch.common.errors import (
    AnabranchError,
    EventsTruncated,
    PlanOutdated,
    SegmentNotFound,
    SegmentTruncated,
    StreamNotFound,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.block import FLAG_LARGE, LargeReference
from anabranch.common.wire.block_encoding import encode_block, encode_part
from anabranch.spark.partitioning import Piece
from anabranch.spark.places.opening import Loop
from anabranch.spark.places.ports import StreamPlace
from anabranch.spark.reading import batch
from anabranch.spark.reading.batch import blocks_of
from anabranch.spark.reading.columns import batches
from anabranch.spark.reading.losses import OnLoss

COLUMNS = ("segment", "event")
ONE, TWO = "demo/flights/0.#epoch.0", "demo/flights/1.#epoch.0"


def encoded(event: bytes) -> bytes:
    return encode_block([event], writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0)


SIZE = len(encoded(b"event-0"))
EVENTS = tuple(b"event-%d" % number for number in range(6))


class TruncatedPlace:
    """Two segments of six blocks of one event; `starts`: where each begins now, or its error."""

    def __init__(self, **starts: int | AnabranchError) -> None:
        self._starts = {ONE: starts.get("one", 0), TWO: starts.get("two", 0)}
        self.data = {name: b"".join(map(encoded, EVENTS)) for name in (ONE, TWO)}

    def source(self, _: StreamRef) -> "TruncatedPlace":
        return self

    async def read_whole(self, pieces: Sequence[Piece]) -> Sequence[bytes]:
        return [self._stored(each.segment, each.start, each.end) for each in pieces]

    async def read(self, piece: Piece, offset: int) -> bytes:
        return self._stored(piece.segment, offset, min(piece.end, offset + SIZE))

    async def read_at(self, segment: str, offset: int, size: int) -> bytes:
        return self._stored(segment, offset, offset + size)

    def _stored(self, segment: str, start: int, end: int) -> bytes:
        begin = self._starts[segment]
        if isinstance(begin, AnabranchError):
            raise begin
        if start < begin:
            raise SegmentTruncated("before the start", segment=segment, start=begin)
        return self.data[segment][start:end]


def read(place: TruncatedPlace, on_loss: OnLoss, *pieces: Piece) -> list[tuple[str, bytes]]:
    """The segments and events of the pieces, by default all of both segments."""
    pieces = pieces or (Piece(ONE, 0, 6 * SIZE), Piece(TWO, 0, 6 * SIZE))
    with asyncio.Runner() as runner:
        blocks = blocks_of(Loop(runner), cast("StreamPlace", place), pieces, on_loss)
        rows = [row for each in batches(blocks, COLUMNS, {}) for row in each.to_pylist()]
    return [(row["segment"], row["event"]) for row in rows]


@pytest.mark.parametrize("together_bytes_max", [batch.TOGETHER_BYTES_MAX, 0])
def test_a_query_goes_on_behind_what_is_gone(
    monkeypatch: pytest.MonkeyPatch, together_bytes_max: int
) -> None:
    monkeypatch.setattr(batch, "TOGETHER_BYTES_MAX", together_bytes_max)
    both = [*((ONE, event) for event in EVENTS), *((TWO, event) for event in EVENTS)]
    assert read(TruncatedPlace(), OnLoss.PASS) == both
    assert read(TruncatedPlace(one=2 * SIZE), OnLoss.PASS) == both[2:]
    for gone in (SegmentNotFound("gone"), StreamNotFound("gone")):
        assert read(TruncatedPlace(one=gone), OnLoss.PASS) == both[6:]
    middle = Piece(ONE, SIZE, 3 * SIZE)
    assert read(TruncatedPlace(one=5 * SIZE), OnLoss.PASS, middle) == []


@pytest.mark.parametrize("gone", [2 * SIZE, SegmentNotFound("gone")])
def test_other_reads_fail_with_the_place(gone: int | AnabranchError) -> None:
    with pytest.raises(EventsTruncated, match="has not read") as lost:
        read(TruncatedPlace(two=gone), OnLoss.FAIL)
    end = gone if isinstance(gone, int) else 6 * SIZE
    assert lost.value.fields == {"segment": TWO, "offset": 0, "end": end}
    assert "failOnDataLoss" in lost.value.remedy
    with pytest.raises(PlanOutdated, match="during the read") as outdated:
        read(TruncatedPlace(two=gone), OnLoss.PLAN_AGAIN)
    assert "run the read again" in outdated.value.remedy


def test_a_place_that_names_no_later_start_ends_the_read() -> None:
    place = TruncatedPlace(one=SegmentTruncated("odd", segment=ONE, start=0))
    with pytest.raises(SegmentTruncated, match="odd"):
        read(place, OnLoss.PASS)


def with_large_event() -> tuple[TruncatedPlace, int]:
    """A place that lacks the part of a large event, and the offset of its reference, which is
    behind the part, and the last.
    """
    payload = b"a large event"
    part = encode_part(payload, writer_id=bytes(16), number=1, base_timestamp_ms=0)
    told = LargeReference(
        size=len(payload), offset=0, length=len(part), crc=crc32c(payload)
    ).encode()
    reference = encode_block(
        [told], writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0, flags=FLAG_LARGE
    )
    place = TruncatedPlace(one=len(part))
    place.data[ONE] = part + reference
    return place, len(part)


@pytest.mark.parametrize("on_loss", [OnLoss.PASS, OnLoss.PLAN_AGAIN])
def test_a_large_event_that_begins_before_the_piece_is_left_out(on_loss: OnLoss) -> None:
    place, reference = with_large_event()
    assert read(place, on_loss, Piece(ONE, reference, len(place.data[ONE]))) == []


def test_a_query_fails_if_it_must_not_lose_a_large_event() -> None:
    place, reference = with_large_event()
    with pytest.raises(EventsTruncated, match="has not read"):
        read(place, OnLoss.FAIL, Piece(ONE, reference, len(place.data[ONE])))


def test_a_batch_read_is_planned_again_if_the_plan_had_the_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One block is read at a time; the parts get lost between the first read and the second."""
    monkeypatch.setattr(batch, "TOGETHER_BYTES_MAX", 0)
    place, reference = with_large_event()
    piece = Piece(ONE, 0, len(place.data[ONE]))

    class LosesParts(TruncatedPlace):
        async def read_whole(self, pieces: Sequence[Piece]) -> Sequence[bytes]:
            raise AssertionError("the piece is read in steps")

        async def read(self, piece: Piece, offset: int) -> bytes:
            at = reference if offset == reference else 0
            return self.data[piece.segment][at : reference if at == 0 else piece.end]

    loses = LosesParts(one=reference)
    loses.data = place.data
    with pytest.raises(PlanOutdated, match="during the read"):
        read(loses, OnLoss.PLAN_AGAIN, piece)
