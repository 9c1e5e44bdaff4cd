"""How large blocks become, and how much of a writer is under way at once."""

import pytest

from anabranch.client.pacing import BLOCK_SIZE_BYTES_MIN, BlockSizing, InFlight
from anabranch.common.wire.messages import Append, Appended
from kit.client_bench import STREAM, bench, until, writer_settings
from kit.fake_segstore import Fault, no_faults

LARGEST = 1 << 20


def after(sizing: BlockSizing, outstanding: int, times: int) -> int:
    for _ in range(times):
        sizing.acknowledged(outstanding)
    return sizing.size


def test_blocks_shrink_while_little_waits_and_grow_with_what_piles_up() -> None:
    sizing = BlockSizing(LARGEST)
    assert sizing.size == LARGEST
    assert after(sizing, 1000, 100) == BLOCK_SIZE_BYTES_MIN
    steps = [after(sizing, 4 * LARGEST, 1) for _ in range(100)]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1] == LARGEST
    assert after(sizing, 6 * BLOCK_SIZE_BYTES_MIN, 100) == pytest.approx(
        3 * BLOCK_SIZE_BYTES_MIN, rel=0.01
    )


def test_blocks_that_are_to_be_small_stay_small() -> None:
    sizing = BlockSizing(100)
    assert after(sizing, 0, 100) == 100
    assert after(sizing, LARGEST, 100) == 100


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
