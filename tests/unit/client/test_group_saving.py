"""How much a reader of a group processes again that died while its application was at work."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from anabranch.client.groups import updates as u
from anabranch.client.reading.frontier import Position
from kit.group_desk import LEASE_S, SAVE_S, A, Desk, at_desk, block
from kit.virtual_time import VirtualTimeLoop, run_virtual

WORK_S = 0.25
"""What an event takes, in which the event loop does not turn."""
PER_SAVE = int(SAVE_S / WORK_S)


def work(seconds: float = WORK_S) -> None:
    """Take so long without letting the event loop turn."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(seconds)


def fill(desk: Desk, *, blocks: int, events: int) -> list[Position]:
    """Put so many blocks of A there → the places of their events."""
    places, offset = [], 0
    for _ in range(blocks):
        made = block(A, offset, *("x" for _ in range(events)))
        desk.source.put(made)
        places += [Position(offset, index) for index in range(events)]
        offset = made.next.offset
    return places


async def by_event(desk: Desk) -> int:
    event = desk.reading.next_event_nowait() or await desk.reading.next_event()
    assert event is not None
    return 1


async def by_batch(desk: Desk) -> int:
    batch = await desk.reading.next_batch()
    assert batch is not None
    return len(batch)


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize(
    ("ask", "blocks", "events"),
    [(by_event, 1, 100), (by_event, 50, 2), (by_batch, 100, 1), (by_batch, 50, 2)],
)
def test_an_application_that_never_lets_the_loop_turn_has_processed_an_interval_unsaved(
    ask: Callable[[Desk], Awaitable[int]], blocks: int, events: int, explicit: bool
) -> None:
    async def story() -> None:
        async with at_desk(explicit=explicit) as desk:
            places = fill(desk, blocks=blocks, events=events)
            asked = 0
            while asked < len(places):
                given = await ask(desk)
                unsaved = asked - places.index(desk.position(A))
                assert unsaved <= PER_SAVE + events, f"event {asked}"
                work(WORK_S * given)
                asked += given
                if explicit:
                    desk.reading.acknowledge()

    run_virtual(story())


def test_an_application_that_asks_seldom_has_everything_saved_before_its_last_ask() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            places = fill(desk, blocks=1, events=10)
            for place in places:
                await by_event(desk)
                assert desk.position(A) == place
                work(2 * SAVE_S)

    run_virtual(story())


def test_a_log_that_is_away_holds_the_application_up_once_until_it_is_back() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            fill(desk, blocks=1, events=100)
            loop = asyncio.get_running_loop()
            await by_event(desk)
            desk.log.is_away = True
            work(SAVE_S)
            waits: list[float] = []
            for _ in range(PER_SAVE):
                began_s = loop.time()
                await by_event(desk)
                waits.append(loop.time() - began_s)
                work()
            assert waits == [pytest.approx(SAVE_S)] + [0.0] * (PER_SAVE - 1)
            desk.log.is_away = False
            await desk.settle(2 * SAVE_S)
            assert desk.position(A).event_index == PER_SAVE
            work(SAVE_S)
            await by_event(desk)
            assert desk.position(A).event_index == PER_SAVE + 1

    run_virtual(story())


def test_a_reader_that_is_put_offline_waits_for_no_save() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            fill(desk, blocks=1, events=3)
            await by_event(desk)
            desk.log.is_away = True
            work(SAVE_S)
            desk.log.put(u.PutOffline(reader_id="me"))
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(Exception, match="put offline"):
                await by_event(desk)
            assert asyncio.get_running_loop().time() - began_s < SAVE_S / 2

    run_virtual(story())


def test_an_application_that_is_slower_than_the_lease_gets_nothing_while_it_is_over() -> None:
    async def story() -> None:
        async with at_desk() as desk:
            fill(desk, blocks=1, events=3)
            await by_event(desk)
            desk.log.is_away = True
            work(LEASE_S)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(LEASE_S):
                    await by_event(desk)

    run_virtual(story())
