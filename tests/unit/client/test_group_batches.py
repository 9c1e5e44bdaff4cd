"""Blocks of a group's reader that were read ahead, for applications that take several at once."""

import pytest

from anabranch.client.groups import updates as u
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.intake import SegmentEnd, SegmentFailed
from anabranch.common.errors import EventsTruncated, InvalidRequest
from kit.group_desk import LEASE_S, SAVE_S, A, B, at_desk, block
from kit.virtual_time import run_virtual


def test_blocks_that_were_read_ahead_come_without_a_wait_until_there_is_none() -> None:
    async def story() -> None:
        async with at_desk(explicit=True) as desk:
            one, two, three = block(A, 0, "1"), block(B, 0, "2", "3"), block(A, 100, "4")
            desk.source.put(one, two, three)
            taken = [await desk.reading.next_batch(), desk.reading.next_batch_nowait()]
            taken += [desk.reading.next_batch_nowait() for _ in range(2)]
            assert taken == [one, two, three, None]
            desk.reading.acknowledge()
            await desk.settle(2 * SAVE_S)
            assert (desk.position(A), desk.position(B)) == (three.next, two.next)

    run_virtual(story())


def test_a_block_without_a_wait_marks_the_earlier_ones_as_processed() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            one = block(A, 0, "1")
            desk.source.put(one)
            await desk.reading.next_batch()
            assert desk.reading.next_batch_nowait() is None
            await desk.settle(2 * SAVE_S)
            assert desk.position(A) == one.next

    run_virtual(story())


def test_no_block_comes_without_a_wait_while_a_save_is_due() -> None:
    async def story() -> None:
        async with at_desk(explicit=True) as desk:
            desk.source.put(block(A, 0, "1"), block(B, 0, "2"))
            await desk.reading.next_batch()
            desk.reading.acknowledge()
            desk.log.is_away = True
            await desk.settle(2 * SAVE_S)
            assert desk.reading.next_batch_nowait() is None
            desk.log.is_away = False
            assert await desk.reading.next_batch() is not None

    run_virtual(story())


def test_no_block_comes_without_a_wait_while_the_lease_is_over() -> None:
    async def story() -> None:
        async with at_desk(explicit=True) as desk:
            desk.log.fetch_s = 4 * LEASE_S
            await desk.settle(2 * LEASE_S)
            desk.source.put(block(A, 0, "1"))
            assert desk.reading.next_batch_nowait() is None
            await desk.settle(4 * LEASE_S)
            desk.log.fetch_s = 0.0
            assert await desk.reading.next_batch() is not None

    run_virtual(story())


def test_no_block_comes_without_a_wait_before_a_checkpoint_that_is_due() -> None:
    async def story() -> None:
        async with at_desk(explicit=True) as desk:
            desk.source.put(block(A, 0, "1"))
            desk.log.put(u.CheckpointBegun(name="c"))
            await desk.settle()
            assert desk.reading.next_batch_nowait() is None
            assert await desk.reading.next_batch() is not None

    run_virtual(story())


def test_the_end_of_a_segment_among_blocks_that_were_read_ahead_is_passed() -> None:
    async def story() -> None:
        async with at_desk(explicit=True) as desk:
            one, two = block(A, 0, "1"), block(B, 0, "2")
            desk.source.put(one, SegmentEnd(A), two)
            assert desk.reading.next_batch_nowait() is one
            assert desk.reading.next_batch_nowait() is two
            desk.reading.acknowledge()
            await desk.settle()
            assert desk.log.state.segments[A].is_finished

    run_virtual(story())


def test_a_failure_among_blocks_that_were_read_ahead_is_raised() -> None:
    async def story() -> None:
        async with at_desk(explicit=True) as desk:
            gone = EventsTruncated("gone", segment=A)
            desk.source.put(block(A, 0, "1"), SegmentFailed(A, gone, Position(200)))
            assert desk.reading.next_batch_nowait() is not None
            with pytest.raises(EventsTruncated):
                desk.reading.next_batch_nowait()
            desk.reading.acknowledge()
            await desk.settle(2 * SAVE_S)
            assert desk.position(A) == (200, 0)

    run_virtual(story())


def test_no_batch_is_taken_in_the_middle_of_a_block() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            desk.source.put(block(A, 0, "1", "2"))
            await desk.next()
            with pytest.raises(InvalidRequest, match="while the events of a block"):
                desk.reading.next_batch_nowait()

    run_virtual(story())
