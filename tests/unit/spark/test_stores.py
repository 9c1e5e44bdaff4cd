"""Reading from the stores: what only a cluster can get wrong is in tests/integration/spark."""

import pytest

from anabranch.common.errors import PlanOutdated
from anabranch.common.model.names import stream_ref
from anabranch.spark.partitioning import Piece
from anabranch.spark.places.stores import StoreSource
from kit.client_bench import STREAM, bench, writer_settings
from kit.scaling import split


async def test_a_stream_that_was_created_again_is_not_taken_for_the_one_planned() -> None:
    async with bench() as b:
        source = StoreSource(b.client, stream_ref(STREAM))
        planned = (await source.bounds()).incarnation
        await source.confirm(planned)
        with pytest.raises(PlanOutdated, match="created again"):
            await source.confirm(planned + 1)


async def test_the_tail_is_fixed_when_the_bounds_are_asked_for() -> None:
    async with bench() as b:
        source = StoreSource(b.client, stream_ref(STREAM))
        before = await source.bounds()
        async with b.client.writer(STREAM, writer_settings()) as writer:
            writer.write(b"later")
        after = await source.bounds()
        assert [segment.length for segment in before.segments] == [0]
        assert after.segments[0].length > 0


async def test_a_stream_that_was_scaled_is_read_with_all_its_segments() -> None:
    async with bench() as b, b.client.writer(STREAM, writer_settings()) as writer:
        for batch in range(3):
            for number in range(20):
                writer.write(b"%d" % (100 * batch + number), key=f"k{number}")
            await writer.flush()
            for _ in split(b):
                pass
        source = StoreSource(b.client, stream_ref(STREAM))
        found: list[int] = []
        for segment in (await source.bounds()).segments:
            at = segment.start
            while at < segment.length:
                piece = Piece(segment.name, at, segment.length)
                data = await source.read(piece, at)
                found += [int(payload) for _, payload in b.events_in(data)]
                at += len(data)
    assert sorted(found) == [100 * batch + number for batch in range(3) for number in range(20)]
