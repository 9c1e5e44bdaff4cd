"""What a reader of a group hands out, and when it tells the group of it."""

import asyncio

import pytest

from anabranch.client.groups import updates as u
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.intake import SegmentEnd, SegmentFailed
from anabranch.client.serializers import JsonSerializer
from anabranch.common.contracts.stream_queries import Successor
from anabranch.common.errors import (
    CorruptBlock,
    EventsTruncated,
    InvalidRequest,
    ReaderRemoved,
    SerializationFailed,
)
from kit.group_desk import LEASE_S, SAVE_S, A, B, at_desk, block, two_segments
from kit.virtual_time import run_virtual

PEER = u.Joined(reader_id="you", nonce=8)
USER = u.CheckpointBegun(name="c")
C = "s/x/2.#epoch.1"
MERGED = Successor(segment_id=1 << 32 | 2, name=C, key_start=0.0, key_end=1.0, predecessors=(0, 1))


def test_asking_for_the_next_event_says_that_the_one_before_is_processed() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            desk.source.put(block(A, 0, "1", "2", "3"))
            assert await desk.next() == b"1"
            await desk.settle(2 * SAVE_S)
            assert desk.position(A) == (0, 0)
            assert await desk.next() == b"2"
            await desk.settle(2 * SAVE_S)
            assert desk.position(A) == (0, 1)

    run_virtual(story())


def test_the_last_event_of_a_block_is_processed_when_more_is_asked_for_and_none_is_there() -> None:
    async def story() -> None:
        async with at_desk() as desk, asyncio.TaskGroup() as tasks:
            one = block(A, 0, "1")
            desk.source.put(one)
            await desk.next()
            asking = tasks.create_task(desk.next())
            await desk.settle(2 * SAVE_S)
            assert desk.position(A) == one.next
            desk.source.put(block(A, one.next.offset, "2"))
            assert await asking == b"2"

    run_virtual(story())


def test_with_explicit_acknowledgements_only_they_say_what_is_processed() -> None:
    async def story() -> None:
        async with at_desk(explicit=True) as desk:
            desk.source.put(block(A, 0, "1", "2"), block(B, 0, "3"))
            assert [await desk.next() for _ in range(3)] == [b"1", b"2", b"3"]
            await desk.settle(2 * SAVE_S)
            assert (desk.position(A), desk.position(B)) == ((0, 0), (0, 0))
            desk.reading.acknowledge()
            await desk.settle(2 * SAVE_S)
            assert (desk.position(A), desk.position(B)) == (block(A, 0, "1", "2").next,
                                                            block(B, 0, "3").next)  # fmt: skip

    run_virtual(story())


def test_what_is_not_in_hand_goes_at_once_and_what_was_read_ahead_of_it_is_dropped() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            desk.source.put(block(A, 0, "1"), block(B, 0, "b"))
            await desk.next()
            desk.log.put(PEER)
            await desk.settle()
            assert (desk.owner(A), desk.owner(B)) == ("me", "")
            assert B not in desk.source.open_at
            assert desk.source.next_nowait() is None

    run_virtual(story())


def test_what_is_in_hand_goes_when_it_is_processed_and_nothing_of_its_block_comes_after_it() -> (
    None
):
    async def story() -> None:
        async with at_desk() as desk:
            desk.source.put(block(B, 0, "1", "2", "3"), block(A, 0, "a"))
            await desk.next()
            desk.log.put(PEER)
            await desk.settle()
            assert desk.owner(B) == "me", "its first event is in hand"
            assert await desk.next() == b"a", "not the second event of B"
            await desk.settle()
            assert desk.owner(B) == ""
            assert desk.position(B) == (0, 1)

    run_virtual(story())


def test_with_explicit_acknowledgements_a_segment_goes_when_all_of_it_is_acknowledged() -> None:
    async def story() -> None:
        async with at_desk(explicit=True) as desk:
            desk.source.put(block(B, 0, "1", "2", "3"), block(A, 0, "a"))
            await desk.next()
            await desk.next()
            desk.log.put(PEER)
            await desk.settle()
            assert await desk.next() == b"a"
            await desk.settle()
            assert desk.owner(B) == "me"
            desk.reading.acknowledge()
            await desk.settle()
            assert (desk.owner(B), desk.position(B)) == ("", (0, 2))

    run_virtual(story())


def test_a_segment_is_complete_only_when_its_last_event_is_processed() -> None:
    async def story() -> None:
        async with at_desk() as desk, asyncio.TaskGroup() as tasks:
            one = block(A, 0, "1")
            desk.source.put(one, SegmentEnd(A, (MERGED,)))
            await desk.next()
            await desk.settle(2 * SAVE_S)
            assert desk.log.said(u.Completed) == []
            asking = tasks.create_task(desk.next())
            await desk.settle()
            (completed,) = desk.log.said(u.Completed)
            assert isinstance(completed, u.Completed)
            assert completed.at.position == one.next
            assert [each.name for each in completed.successors] == [C]
            desk.source.put(SegmentEnd(B, (MERGED,)))
            await desk.settle()
            assert (desk.owner(C), desk.source.open_at[C]) == ("me", (Position(0), None))
            desk.source.put(block(C, 0, "c"))
            assert await asking == b"c"

    run_virtual(story())


def test_reading_ends_when_nothing_is_left_of_all_that_the_group_reads() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            desk.source.put(SegmentEnd(A), block(B, 0, "b"), SegmentEnd(B))
            assert await desk.next() == b"b"
            assert await desk.reading.next_event() is None
            assert desk.log.state.is_complete

    run_virtual(story())


def test_a_checkpoint_comes_between_events_and_says_where_all_segments_stand() -> None:
    async def story() -> None:
        called: list[str] = []

        async def on_checkpoint(name: str) -> None:
            called.append(name)

        async with at_desk(on_checkpoint=on_checkpoint) as desk:
            desk.source.put(block(A, 0, "1", "2", "3"))
            await desk.next()
            desk.log.put(USER)
            await desk.settle()
            assert called == [], "the first event is in hand"
            assert await desk.next() == b"2"
            await desk.settle()
            found = desk.log.state.checkpoint("c")
            assert found is not None
            assert (called, found.is_complete) == (["c"], True)
            assert found.positions == {A: (0, 1), B: (0, 0)}
            assert await desk.next() == b"3"
            assert called == ["c"]

    run_virtual(story())


@pytest.mark.parametrize(("kind", "is_called"), [("automatic", True), ("silent", False)])
def test_a_checkpoint_of_the_group_itself_is_told_to_the_application_and_a_cut_is_not(
    kind: u.CheckpointKind, is_called: bool
) -> None:
    async def story() -> None:
        called: list[str] = []

        async def on_checkpoint(name: str) -> None:
            called.append(name)

        async with at_desk(on_checkpoint=on_checkpoint) as desk:
            desk.source.put(block(A, 0, "1", "2"))
            desk.log.put(u.CheckpointBegun(name="auto", checkpoint=kind))
            await desk.settle()
            await desk.next()
            await desk.settle()
            found = desk.log.state.checkpoint("auto")
            assert found is not None
            assert found.is_complete
            assert called == (["auto"] if is_called else [])

    run_virtual(story())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_checkpoint_that_the_application_failed_to_take_is_asked_for_again(
    is_cancelled: bool,
) -> None:
    async def story() -> None:
        called: list[str] = []

        async def on_checkpoint(name: str) -> None:
            called.append(name)
            if len(called) == 1:
                if is_cancelled:
                    await asyncio.sleep(3600.0)
                raise ValueError("the disk is full")

        async with at_desk(on_checkpoint=on_checkpoint) as desk:
            desk.source.put(block(A, 0, "1", "2"))
            await desk.next()
            desk.log.put(USER)
            await desk.settle()
            with pytest.raises(TimeoutError if is_cancelled else ValueError):
                async with asyncio.timeout(1.0):
                    await desk.next()
            await desk.settle()
            assert desk.log.said(u.CheckpointReached) == []
            assert await desk.next() == b"2"
            await desk.settle()
            assert called == ["c", "c"]
            assert len(desk.log.said(u.CheckpointReached)) == 1

    run_virtual(story())


def test_a_checkpoint_that_was_cancelled_is_not_reached() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            desk.source.put(block(A, 0, "1", "2"))
            await desk.next()
            desk.log.put(USER)
            await desk.settle()
            desk.log.put(u.CheckpointsCancelled())
            await desk.settle()
            assert await desk.next() == b"2"
            await desk.settle()
            assert desk.log.said(u.CheckpointReached) == []

    run_virtual(story())


def test_segments_that_go_only_after_checkpoints_go_right_after_one() -> None:
    async def story() -> None:
        async with (
            at_desk(two_segments(release_after_checkpoint=True)) as desk,
            asyncio.TaskGroup() as tasks,
        ):
            desk.source.put(block(A, 0, "1", "2", "3"))
            await desk.next()
            desk.log.put(PEER)
            await desk.settle()
            assert await desk.next() == b"2"
            assert [desk.owner(A), desk.owner(B)] == ["me", "me"]
            desk.log.put(USER)
            await desk.settle()
            asking = tasks.create_task(desk.next())
            await desk.settle()
            assert [desk.owner(A), desk.owner(B)].count("me") == 1
            assert isinstance(desk.log.entries[-1], u.Released | u.Beat)
            asking.cancel()

    run_virtual(story())


def test_truncation_is_told_once_and_reading_goes_on() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            error = EventsTruncated("gone", segment=A, offset=0, start=100)
            desk.source.put(SegmentFailed(A, error, Position(100)), block(A, 100, "9"))
            with pytest.raises(EventsTruncated):
                await desk.next()
            await desk.settle(2 * SAVE_S)
            assert desk.position(A) == (100, 0)
            assert await desk.next() == b"9"

    run_virtual(story())


def test_a_failure_is_raised_by_every_later_call() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            desk.source.put(SegmentFailed(A, CorruptBlock("torn", segment=A)), block(B, 0, "b"))
            for _ in range(2):
                with pytest.raises(CorruptBlock, match="torn"):
                    await desk.next()
            with pytest.raises(CorruptBlock, match="torn"):
                await desk.reading.next_batch()

    run_virtual(story())


def test_a_reader_that_was_put_offline_says_so_in_the_middle_of_a_block() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            desk.source.put(block(A, 0, "1", "2"))
            await desk.next()
            desk.log.put(u.PutOffline(reader_id="me"))
            await desk.settle()
            assert desk.reading.next_event_nowait() is None
            for _ in range(2):
                with pytest.raises(ReaderRemoved):
                    await desk.next()

    run_virtual(story())


def test_events_are_held_back_while_the_lease_is_over_and_go_on_when_it_is_renewed() -> None:
    async def story() -> None:
        async with at_desk() as desk, asyncio.TaskGroup() as tasks:
            desk.source.put(block(A, 0, "1", "2"), block(B, 0, "3"))
            await desk.next()
            desk.log.is_away = True
            await desk.settle(2 * LEASE_S)
            assert desk.reading.next_event_nowait() is None
            asking = tasks.create_task(desk.next())
            await desk.settle(2 * LEASE_S)
            assert not asking.done()
            desk.log.is_away = False
            assert await asking == b"2"
            assert await desk.next() == b"3"

    run_virtual(story())


def test_blocks_are_held_back_while_the_lease_is_over() -> None:
    async def story() -> None:
        async with at_desk() as desk, asyncio.TaskGroup() as tasks:
            desk.log.is_away = True
            await desk.settle(2 * LEASE_S)
            desk.source.put(block(A, 0, "1"))
            asking = tasks.create_task(desk.reading.next_batch())
            await desk.settle(LEASE_S)
            assert not asking.done()
            desk.log.is_away = False
            assert await asking is not None

    run_virtual(story())


def test_a_batch_is_processed_when_more_is_asked_for() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            one = block(A, 0, "1", "2")
            desk.source.put(one, block(B, 0, "3"))
            assert await desk.reading.next_batch() is one
            await desk.settle(2 * SAVE_S)
            assert desk.position(A) == (0, 0)
            await desk.reading.next_batch()
            await desk.settle(2 * SAVE_S)
            assert desk.position(A) == one.next

    run_virtual(story())


def test_a_batch_in_the_middle_of_a_block_is_refused_by_name() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            desk.source.put(block(A, 0, "1", "2"))
            await desk.next()
            with pytest.raises(InvalidRequest, match="while the events of a block"):
                await desk.reading.next_batch()
            assert await desk.next() == b"2"

    run_virtual(story())


def test_whoever_leaves_gives_up_where_it_has_processed_to_and_not_what_is_in_hand() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            desk.source.put(block(A, 0, "1", "2", "3"))
            await desk.next()
            await desk.next()
            await desk.member.leave(desk.reading.all_saved())
            assert desk.position(A) == (0, 1)
            assert desk.log.state.readers == {}

    run_virtual(story())


def test_an_event_that_is_no_value_is_told_once_and_counts_as_given() -> None:
    async def story() -> None:
        async with at_desk(serializer=JsonSerializer()) as desk:
            torn = block(A, 0, "1", "{", "{", "2")
            desk.source.put(torn)
            assert (await desk.next_event()).payload == 1
            for index in (1, 2):
                with pytest.raises(SerializationFailed) as refused:
                    await desk.next_event()
                assert refused.value.fields["index"] == index
                await desk.settle(2 * SAVE_S)
                assert desk.position(A) == (0, index)
            assert (await desk.next_event()).payload == 2
            desk.reading.acknowledge()
            await desk.settle(2 * SAVE_S)
            assert desk.position(A) == torn.next

    run_virtual(story())


def test_a_segment_is_given_up_within_a_block_whose_next_event_is_no_value() -> None:
    async def story() -> None:
        async with at_desk(serializer=JsonSerializer()) as desk:
            desk.source.put(block(B, 0, "1", "{", "2"))
            assert (await desk.next_event()).payload == 1
            desk.log.put(PEER)
            await desk.settle()
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(desk.next_event())
                await desk.settle(2 * SAVE_S)
                assert "" in (desk.owner(A), desk.owner(B))
                asking.cancel()
            assert desk.position(B) == (0, 1)

    run_virtual(story())


def test_the_last_event_of_a_block_is_acknowledged_by_the_place_behind_it() -> None:
    async def story() -> None:
        async with at_desk(explicit=True) as desk:
            first = block(A, 0, "1", "2")
            second = block(A, first.next.offset, "3")
            desk.source.put(first, second)
            events = [await desk.next_event() for _ in range(3)]
            for event, wanted in zip(
                events, (Position(0, 1), first.next, second.next), strict=True
            ):
                behind = Position(event.offset, event.event_index + 1)
                desk.reading.acknowledge({event.segment: behind})
                await desk.settle(2 * SAVE_S)
                assert desk.position(A) == wanted

    run_virtual(story())


def test_a_late_answer_to_a_checkpoint_says_nothing_about_another_one_of_its_name() -> None:
    async def story() -> None:
        async with at_desk() as desk, asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(desk.next())
            desk.log.put(USER)
            await desk.settle()
            (reached,) = desk.log.said(u.CheckpointReached)
            desk.log.put(PEER, USER, reached)
            checkpoint = desk.log.state.checkpoint("c")
            assert checkpoint is not None
            assert sorted(checkpoint.waiting) == ["me", "you"]
            asking.cancel()

    run_virtual(story())


def test_a_reader_that_is_held_back_says_so_once_and_that_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "anabranch")

    async def story() -> None:
        async with at_desk() as desk, asyncio.TaskGroup() as tasks:
            desk.source.put(block(A, 0, "1", "2"))
            await desk.next()
            desk.log.is_away = True
            await desk.settle(2 * LEASE_S)
            asking = tasks.create_task(desk.next())
            await desk.settle(LEASE_S)
            for _ in range(3):
                desk.reading.wake()
                await desk.settle()
            assert desk.reading.is_held_back
            desk.log.is_away = False
            assert await asking == b"2"
            assert not desk.reading.is_held_back

    run_virtual(story())
    told = [(each.levelname, str(each.msg).partition(",")[0]) for each in caplog.records]
    assert told == [
        ("WARNING", "a reader pauses"),
        ("INFO", "a reader continues reader='me'"),
    ]
