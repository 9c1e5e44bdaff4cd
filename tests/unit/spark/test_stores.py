"""Reading from the stores: what only a cluster can get wrong is in tests/integration/spark."""

import pytest

from anabranch.common.errors import PlanOutdated
from anabranch.common.model.names import stream_ref
from anabranch.spark.partitioning import Piece
from anabranch.spark.places.stores import StorePlace, StoreSource
from kit.client_bench import STREAM, bench, new_client, writer_settings
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


async def test_many_small_pieces_cost_one_question_to_the_controller() -> None:
    async with bench(segment_count=40) as b:
        async with b.client.writer(STREAM, writer_settings()) as writer:
            for number in range(200):
                writer.write(b"%d" % number, key=str(number))
        stored = {name: bytes(each.data) for name, each in b.store.segments.items() if each.data}
        pieces = [Piece(name, 0, len(data)) for name, data in stored.items()]
        # when a task, which is a process of its own and knows no store, reads them
        asked: list[str] = []
        b.control.before_query = asked.append
        async with new_client(b.control) as client:
            found = await StorePlace(client).read_whole(pieces)
    # then it has asked once where they are
    assert dict(zip(stored, found, strict=True)) == stored
    assert len(stored) > 30
    assert asked == ["locate"]
