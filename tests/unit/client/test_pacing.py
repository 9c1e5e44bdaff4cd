"""How large blocks become, and how much of a writer is under way at once."""

from itertools import pairwise

import pytest

from anabranch.client.writing.pacing import BLOCK_GROWTH_MAX, BlockSizing, InFlight
from anabranch.common.wire.block import Block
from anabranch.common.wire.messages import Append, Appended
from kit.client_bench import STREAM, bench, until, writer_settings
from kit.fake_segstore import Fault, no_faults

LEAST = 1 << 18


def after(sizing: BlockSizing, outstanding: int, times: int) -> int:
    for _ in range(times):
        sizing.acknowledged(outstanding)
    return sizing.size


def test_blocks_grow_with_what_piles_up_and_shrink_when_it_is_gone() -> None:
    sizing = BlockSizing(LEAST, 1 << 30)
    assert sizing.size == LEAST
    assert after(sizing, 4 * LEAST, 100) == LEAST, "several blocks are to be under way"
    steps = [after(sizing, 100 * LEAST, 1) for _ in range(40)]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1] == BLOCK_GROWTH_MAX * LEAST
    assert after(sizing, 16 * LEAST, 100) == pytest.approx(2 * LEAST, rel=0.01)
    assert after(sizing, 0, 100) == LEAST


def test_blocks_do_not_grow_beyond_what_a_store_takes() -> None:
    assert after(BlockSizing(LEAST, LEAST + 5), 100 * LEAST, 100) == LEAST + 5
    assert after(BlockSizing(LEAST, 5), 100 * LEAST, 100) == LEAST


def test_what_is_in_flight_is_bounded_but_one_larger_block_goes_by_itself() -> None:
    flight = InFlight(100)
    assert flight.take(60)
    assert not flight.take(41)
    assert flight.take(40)
    flight.give_back(100)
    assert flight.take(1000)
    assert not flight.take(1)


def test_those_refused_are_asked_again_in_their_order_once_there_is_room() -> None:
    flight = InFlight(100)
    asked: list[str] = []
    first, second = (lambda: asked.append("first")), (lambda: asked.append("second"))
    assert flight.take(100)
    for ask in (first, second, first):
        flight.when_room(ask)
    flight.wake()
    assert asked == []
    flight.give_back(50)
    flight.wake()
    flight.wake()
    assert asked == ["first", "second"]


def test_a_claim_goes_before_all_who_ask_later_and_is_given_back_once() -> None:
    flight = InFlight(100)
    asked: list[str] = []
    assert flight.take(60)
    claim = flight.claim(80, lambda: asked.append("granted"))
    later = flight.claim(10, lambda: asked.append("later"))
    flight.when_room(lambda: asked.append("refused"))
    assert not flight.take(1), "a small block does not overtake a claim"
    flight.give_back(30)
    flight.wake()
    assert asked == []
    flight.give_back(30)
    flight.wake()
    assert asked == ["granted", "later", "refused"]
    assert flight.used == 90
    flight.withdraw(claim)
    flight.withdraw(claim)
    flight.withdraw(later)
    assert flight.used == 0


def test_a_claim_that_is_withdrawn_holds_nobody_up() -> None:
    flight = InFlight(100)
    assert flight.take(60)
    flight.withdraw(flight.claim(80, lambda: None))
    assert flight.take(40)


async def test_segments_share_the_bytes_in_flight_and_take_turns() -> None:
    async with bench(segment_count=4) as b:
        sent = 0

        def hold(at: str, message: object) -> Fault | None:
            nonlocal sent
            sent += at == "in" and isinstance(message, Append)
            return Fault.HOLD if at == "out" and isinstance(message, Appended) else None

        b.store.fault = hold
        settings = writer_settings(block_size_bytes=1000, in_flight_bytes_max=3500)
        async with b.client.writer(STREAM, settings) as writer:
            for number in range(400):
                writer.write(b"x" * 84, key=str(number))
            await until(lambda: sent >= 3)
            assert writer._in_flight.used <= 3500
            assert sent == 3
            b.store.fault = no_faults
            b.store.release()
        assert writer._in_flight.used == 0
        assert len(await b.payloads()) == 400


async def test_a_batch_that_does_not_fit_into_the_gathering_block_begins_the_next_one() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, writer_settings(block_size_bytes=1000)) as writer:
            for _ in range(3):
                writer.write_batch([b"x" * 84] * 6)  # 600 bytes with the overhead of each event
            writer.write_batch([b"x" * 84] * 4)
        (segment,) = b.segments
        ends = [0, *segment.boundaries]
        blocks = [Block(bytes(segment.data[at:end])) for at, end in pairwise(ends)]
        assert [block.header.event_count for block in blocks] == [6, 6, 10]
