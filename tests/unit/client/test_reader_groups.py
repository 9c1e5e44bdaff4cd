"""Administration of reader groups by the client, against a controller in memory."""

import pytest

from anabranch.client import (
    GroupRetention,
    GroupStream,
    ReaderGroupConfig,
    ReaderGroupExists,
    ReaderGroupNotFound,
    SegmentPosition,
)
from anabranch.common.errors import (
    CutRefused,
    GenerationMismatch,
    InvalidName,
    InvalidPosition,
    InvalidRequest,
    StreamNotFound,
    SubscriberNotFound,
)
from anabranch.common.model.names import segment_id
from anabranch.common.model.reader_group import group_ref
from anabranch.common.wire.block_encoding import encode_block
from kit.client_bench import STREAM, Bench, bench

FIRST, SECOND = segment_id(0, 0), segment_id(0, 1)
GROUP = "plant/readers"
THREE = encode_block(
    [b"1", b"2", b"3"], writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0
)


def write_block(b: Bench, segment: int = 0) -> int:
    """Three events more in the segment → the offset of their block."""
    model = b.store.segments[f"{STREAM}/{segment}.#epoch.0"]
    offset = len(model.data)
    model.data += THREE
    model.boundaries.append(offset + len(THREE))
    return offset


def config(*streams: str, retention: str = "none") -> ReaderGroupConfig:
    return ReaderGroupConfig(
        tuple(GroupStream(name) for name in streams), retention=GroupRetention(retention)
    )


async def test_a_group_of_streams_begins_at_their_heads() -> None:
    async with bench(2) as b:
        groups = b.client.reader_groups
        b.controller.scopes["plant"]["sensors"].head[FIRST] = 7

        await groups.create(GROUP, streams=[STREAM])
        found = await groups.describe(GROUP)

        start = (SegmentPosition(FIRST, 7), SegmentPosition(SECOND, 0))
        assert found.config.streams == (GroupStream(STREAM, start=start),)
        assert (found.incarnation, found.generation) == (1, 0)
        assert group_ref(GROUP).state_stream.stream in b.controller.scopes["plant"]


async def test_a_group_that_begins_at_the_tail_reads_nothing_that_was_written_before() -> None:
    async with bench(2) as b:
        b.store.segments[f"{STREAM}/1.#epoch.0"].data += bytes(30)

        await b.client.reader_groups.create(GROUP, streams=[STREAM], start="tail")

        found = await b.client.reader_groups.describe(GROUP)
        start = (SegmentPosition(FIRST, 0), SegmentPosition(SECOND, 30))
        assert found.config.streams[0].start == start


async def test_starts_that_a_configuration_gives_are_kept_at_the_tail_too() -> None:
    async with bench(1) as b:
        write_block(b)
        offset = write_block(b)
        given = GroupStream(STREAM, start=(SegmentPosition(FIRST, offset, 2),))

        await b.client.reader_groups.create(GROUP, ReaderGroupConfig((given,)), start="tail")

        assert (await b.client.reader_groups.describe(GROUP)).config.streams == (given,)


async def test_a_group_is_reset_to_the_positions_of_a_checkpoint() -> None:
    async with bench(2) as b:
        await b.client.reader_groups.create(GROUP, streams=[STREAM])
        first, second = (f"{STREAM}/{number}.#epoch.0" for number in range(2))
        write_block(b, 1)

        await b.client.reader_groups.reset(GROUP, start={second: (0, 2), first: (0, 0)})

        found = await b.client.reader_groups.describe(GROUP)
        start = (SegmentPosition(FIRST, 0), SegmentPosition(SECOND, 0, 2))
        assert (found.generation, found.config.streams[0].start) == (1, start)
        with pytest.raises(InvalidRequest, match="does not read"):
            await b.client.reader_groups.reset(GROUP, start={"plant/other/0.#epoch.0": (0, 0)})


async def test_groups_are_listed_page_by_page_and_their_state_streams_not_among_the_streams() -> (
    None
):
    async with bench(1) as b:
        groups = b.client.reader_groups
        for name in ("c", "a", "b"):
            await groups.create(f"plant/{name}", streams=[STREAM])

        assert [name async for name in groups.list("plant")] == ["a", "b", "c"]
        assert (await groups.page("plant", "a", 1)).groups == ("b",)
        assert [name async for name in b.client.streams.list("plant")] == ["sensors"]


async def test_a_reset_without_a_configuration_begins_again_where_the_group_began() -> None:
    async with bench(1) as b:
        groups = b.client.reader_groups
        await groups.create(GROUP, config(STREAM, retention="manual"))
        before = await groups.describe(GROUP)
        b.controller.scopes["plant"]["sensors"].head[FIRST] = 50

        await groups.reset(GROUP, expected_generation=0)

        after = await groups.describe(GROUP)
        assert (after.generation, after.config) == (1, before.config)
        with pytest.raises(GenerationMismatch):
            await groups.reset(GROUP, config(STREAM), expected_generation=0)


async def test_who_subscribes_releases_and_only_forwards() -> None:
    async with bench(2) as b:
        groups = b.client.reader_groups
        await groups.create(GROUP, config(STREAM, retention="manual"))
        await groups.reset(GROUP)

        first, second = write_block(b), write_block(b)
        third = write_block(b)
        write_block(b, 1)
        await groups.release(GROUP, STREAM, {0: second, 1: 0})

        (found,) = await groups.subscribers(STREAM)
        assert (found.subscriber, found.generation) == (GROUP, 1)
        assert found.cut == (SegmentPosition(FIRST, second), SegmentPosition(SECOND, 0))
        cut = (SegmentPosition(FIRST, second, 3), SegmentPosition(SECOND, 0, 1))
        await groups.release(GROUP, STREAM, cut)
        (found,) = await groups.subscribers(STREAM)
        assert found.cut == (SegmentPosition(FIRST, third), SegmentPosition(SECOND, 0, 1))
        with pytest.raises(CutRefused):
            await groups.release(GROUP, STREAM, {0: first, 1: 0})
        with pytest.raises(InvalidPosition, match="no block begins"):
            await groups.release(GROUP, STREAM, {0: second + 1, 1: 0})


async def test_who_does_not_subscribe_releases_nothing() -> None:
    async with bench(1) as b:
        groups = b.client.reader_groups
        await groups.create(GROUP, streams=[STREAM])

        assert await groups.subscribers(STREAM) == ()
        with pytest.raises(SubscriberNotFound):
            await groups.release(GROUP, STREAM, {0: 0})


async def test_a_deleted_group_is_gone_with_its_state_stream() -> None:
    async with bench(1) as b:
        groups = b.client.reader_groups
        await groups.create(GROUP, config(STREAM, retention="automatic"))
        with pytest.raises(ReaderGroupExists):
            await groups.create(GROUP, streams=[STREAM])

        done = await groups.delete(GROUP)

        assert (await b.client.operations.describe(done)).state == "succeeded"
        with pytest.raises(ReaderGroupNotFound):
            await groups.describe(GROUP)
        assert await groups.subscribers(STREAM) == ()
        assert list(b.controller.scopes["plant"]) == ["sensors"]


async def test_what_is_no_group_is_refused_before_anything_is_sent() -> None:
    async with bench(1) as b:
        groups = b.client.reader_groups
        sent = len(b.controller.operations)
        for name in ("readers", "plant/_RGreaders", "plant/a/b"):
            with pytest.raises(InvalidName):
                await groups.create(name, streams=[STREAM])
        with pytest.raises(InvalidRequest, match="either"):
            await groups.create(GROUP)
        with pytest.raises(InvalidRequest, match="either"):
            await groups.create(GROUP, config(STREAM), streams=[STREAM])
        with pytest.raises(InvalidRequest, match="cannot start"):
            await groups.create(GROUP, streams=[STREAM], start="middle")  # type: ignore[arg-type]
        with pytest.raises(StreamNotFound):
            await groups.create(GROUP, streams=["plant/none"])

        assert len(b.controller.operations) == sent


async def test_users_make_seal_and_delete_no_internal_stream_but_its_owner_truncates_it() -> None:
    async with bench(1) as b:
        await b.client.reader_groups.create(GROUP, streams=[STREAM])
        ref = group_ref(GROUP).state_stream
        for act in (
            b.client.streams.create,
            b.client.streams.seal,
            b.client.streams.delete,
        ):
            with pytest.raises(InvalidName):
                await act(str(ref))
        with pytest.raises(InvalidName):
            await b.client.streams.truncate(str(ref), {0: 5})

        async with b.client.revisioned_stream(ref) as log:
            behind = await log.append([b"an entry"])
        await b.client.streams.truncate(ref, {0: behind})

        assert b.controller.scopes["plant"][ref.stream].head == {0: behind}
