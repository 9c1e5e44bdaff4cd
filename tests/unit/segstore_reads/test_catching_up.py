"""Reads behind the memory: what is fetched, in which order, ahead of whom, and what it may cost."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from anabranch.common.errors import CorruptJournal
from anabranch.common.wire.messages import Failed, Stamp
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.container import reader
from anabranch.segstore.shell.memory.turns import READS_UNDER_WAY_MAX
from kit.desk_driver import KIB, Desk, DeskDriver

CACHE = 8192 * KIB
"""A quarter of it for the read-ahead, and windows of 128 KiB."""


@pytest.fixture
def driver() -> Iterator[DeskDriver]:
    driver = DeskDriver(cache_size=CACHE)
    yield driver
    driver.finish()


def tiered(driver: DeskDriver, count: int = 100, **more: int) -> bytes:
    """A segment of which only tier 2 has the bytes."""
    data = driver.fill(count, **more)
    driver.flush()
    driver.drop_tail()
    driver.counted.ranges.clear()
    return data


def journalled(driver: DeskDriver, count: int = 100, **more: int) -> bytes:
    """A segment of which only the journal has the bytes."""
    data = driver.fill(count, **more)
    driver.drop_tail()
    return data


PLACES: dict[str, Callable[[DeskDriver], bytes]] = {"tier 2": tiered, "journal": journalled}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", [1, 25 * KIB, 300 * KIB, 1 << 23])
def test_reads_in_order_return_what_was_written(driver: DeskDriver, place: str, size: int) -> None:
    data = PLACES[place](driver)
    assert Desk(driver).read_on(0, len(data), size) == data


@pytest.mark.parametrize("place", PLACES)
def test_reads_of_any_size_from_anywhere_return_what_was_written(
    driver: DeskDriver, place: str
) -> None:
    data = PLACES[place](driver)
    desk = Desk(driver)
    for offset in range(0, len(data), 77_777):
        for size in (1, 100, 70_000, 400_000):
            found = desk.read_on(offset, min(offset + size, len(data)), size, whole_appends=False)
            assert found[:size] == data[offset : offset + size]


def test_reads_in_order_fetch_each_range_of_a_chunk_about_once(driver: DeskDriver) -> None:
    data = tiered(driver)
    Desk(driver).read_on(0, len(data), 11 * KIB)
    assert driver.counted.size_read < len(data) * 1.2
    sizes = sorted(length for _, _, length in driver.counted.ranges)
    assert sizes[-1] == driver.catch_up.ahead.window == 128 * KIB


def test_reads_in_order_fetch_each_frame_of_the_journal_once(driver: DeskDriver) -> None:
    data = journalled(driver, 100, per_frame=20)
    Desk(driver).read_on(0, len(data), 11 * KIB)
    assert len(driver.frames_read) == len(set(driver.frames_read)) == 5


def test_what_follows_is_fetched_before_it_is_asked_for(driver: DeskDriver) -> None:
    data = tiered(driver)
    desk = Desk(driver)
    at = len(desk.read(0, 50 * KIB))
    at += len(desk.read(at, 50 * KIB))
    held, misses = driver.cache.lent, driver.catch_up.ahead.misses
    assert held > 128 * KIB
    # then the next reads are answered at once, without waiting for tier 2
    driver.counted.gate = asyncio.Event()
    assert desk.read(at, 50 * KIB) == data[at : at + len(desk.answers[3][1])]
    assert driver.catch_up.ahead.misses == misses


def test_a_read_ahead_crosses_from_one_chunk_to_the_next_and_into_the_journal(
    driver: DeskDriver,
) -> None:
    data = b""
    for first in (1, 4, 7):
        data += driver.fill(3, first=first)
        driver.flush()
    data += driver.fill(3, first=10)
    driver.drop_tail()
    desk = Desk(driver)
    at = len(desk.read(0, 15 * KIB))
    at += len(desk.read(at, 11 * KIB))
    assert len({name for name, _, _ in driver.counted.ranges}) == 3
    assert driver.frames_read
    # and one answer holds what lies in several chunks
    answer = desk.read(at, 1 << 20)
    assert len(answer) > 40 * KIB
    assert answer == data[at : at + len(answer)]


def test_reads_out_of_order_fetch_no_more_than_they_need(driver: DeskDriver) -> None:
    data = tiered(driver)
    block = len(data) // 100
    desk = Desk(driver)
    for number in (90, 10, 50, 30, 70):
        assert desk.read(number * block, 1) == data[number * block : (number + 1) * block]
    footer = sum(length for _, offset, length in driver.counted.ranges if offset > len(data) // 2)
    assert footer
    assert driver.cache.lent == 0
    assert all(length <= 128 * KIB for _, _, length in driver.counted.ranges)


def test_nothing_is_fetched_ahead_for_who_is_held_up_or_gone(driver: DeskDriver) -> None:
    data = tiered(driver)
    desk, other = Desk(driver), Desk(driver)
    desk.read_on(0, 30 * KIB, 11 * KIB)
    desk.reads.pause(1)
    fetched = len(driver.counted.ranges)
    driver.wait(_submit(desk, 30 * KIB))
    driver.settle()
    assert len(driver.counted.ranges) == fetched
    desk.reads.close()
    assert other.read(0, 1) == data[: len(data) // 100]


async def _submit(desk: Desk, *offsets: int, size: int = 1) -> None:
    for offset in offsets:
        desk.submit(offset, size)


def test_readers_of_the_same_range_share_what_was_fetched(driver: DeskDriver) -> None:
    data = tiered(driver)
    desks = [Desk(driver) for _ in range(5)]
    ats = [0] * len(desks)
    while any(at < len(data) for at in ats):
        for number, desk in enumerate(desks):
            if ats[number] < len(data):
                ats[number] += len(desk.read(ats[number], 60 * KIB))
    assert driver.counted.size_read < len(data) * 1.5


def test_who_comes_while_a_granule_is_fetched_waits_for_the_same(driver: DeskDriver) -> None:
    data = journalled(driver, 20, per_frame=20)
    desks = [Desk(driver) for _ in range(3)]
    for desk in desks:
        driver.wait(_submit(desk, 0))
    driver.settle()
    assert [desk.answers[1][1] for desk in desks] == [data[: len(data) // 20]] * 3
    assert len(driver.frames_read) == 1


# --- turns and limits ---------------------------------------------------------------------------


def test_connections_take_turns_however_much_one_of_them_asks(driver: DeskDriver) -> None:
    data = tiered(driver)
    block = len(data) // 100
    greedy, modest = Desk(driver), Desk(driver)
    driver.counted.gate = asyncio.Event()

    async def ask() -> None:
        for number in range(0, 100, 2):
            greedy.submit(number * block, 1)
        modest.submit(block, 1)

    driver.wait(ask())
    driver.settle()
    driver.counted.gate.set()
    driver.counted.gate = None
    driver.settle()
    assert len(greedy.answers) == 50
    assert driver.order.index(modest) <= READS_UNDER_WAY_MAX + 1


def test_few_reads_are_under_way_at_once_in_the_whole_store(driver: DeskDriver) -> None:
    data = tiered(driver)
    block = len(data) // 100
    desks = [Desk(driver) for _ in range(30)]
    driver.counted.gate = asyncio.Event()
    for number, desk in enumerate(desks):
        driver.wait(_submit(desk, number * block, number * block * 2))
    driver.settle()
    assert driver.catch_up.turns.under_way == READS_UNDER_WAY_MAX
    assert driver.counted.under_way_max == READS_UNDER_WAY_MAX
    gate, driver.counted.gate = driver.counted.gate, None
    gate.set()
    driver.settle()
    assert all(len(desk.answers) == 2 for desk in desks)
    assert driver.catch_up.turns.under_way == 0


def test_reads_of_a_connection_that_went_leave_their_turns_to_others(driver: DeskDriver) -> None:
    data = tiered(driver)
    gone, stays = Desk(driver), Desk(driver)
    driver.counted.gate = asyncio.Event()
    driver.wait(_submit(gone, *[0] * 20))
    driver.settle()
    gone.reads.close()
    driver.wait(_submit(stays, 0))
    gate, driver.counted.gate = driver.counted.gate, None
    gate.set()
    driver.settle()
    assert gone.answers == {}
    assert stays.answers[1][1] == data[: len(data) // 100]


def test_above_the_limit_of_unsent_bytes_nobody_is_answered_until_some_are_taken() -> None:
    driver = DeskDriver(cache_size=CACHE, unsent_max=1000)
    data = driver.fill(3)
    slow, slower, other = Desk(driver), Desk(driver), Desk(driver)
    slow.reads.pause(600)
    assert other.read(0, 1) == data[: len(data) // 3]
    slower.reads.pause(400)
    driver.wait(_submit(other, 0))
    assert len(other.answers) == 1
    driver.wait(_call(slower.reads.close))
    assert len(other.answers) == 2
    assert driver.catch_up.outgoing.used == 600
    driver.wait(_call(slow.reads.resume))
    assert driver.catch_up.outgoing.used == 0
    driver.finish()


async def _call(function: Callable[[], None]) -> None:
    function()


def test_after_a_large_answer_others_come_first(driver: DeskDriver) -> None:
    driver.fill(100)
    desk = Desk(driver)

    async def ask() -> int:
        for _ in range(3):
            desk.submit(0, 1 << 20)
        return len(desk.answers)

    assert driver.wait(ask()) == 1
    driver.settle()
    assert len(desk.answers) == 3


# --- moves and damage ---------------------------------------------------------------------------


def test_a_frame_that_was_released_while_it_was_read_is_read_from_tier_two(
    driver: DeskDriver,
) -> None:
    data = journalled(driver, 10)
    desk = Desk(driver)

    log, read_aside = driver.container.log, driver.container.log.read_aside
    flushed: list[LogAddress] = []

    async def released_meanwhile(address: LogAddress) -> bytes:
        if not flushed:
            flushed.append(address)
            await driver.flusher.flush()
        return await read_aside(address)

    log.read_aside = released_meanwhile  # type: ignore[method-assign]

    async def ask() -> None:
        desk.submit(0, 1 << 20)

    driver.wait(ask())
    driver.settle()
    assert driver.frames_read
    assert desk.answers[1][1] == data
    assert driver.counted.ranges


@pytest.mark.parametrize("in_order", [False, True], ids=["out of order", "in order"])
def test_a_damaged_chunk_is_told_by_name_and_the_container_goes_on(
    driver: DeskDriver, in_order: bool
) -> None:
    data = tiered(driver)
    block = len(data) // 100
    desk = Desk(driver)
    at = 20 * block
    if in_order:
        at = len(desk.read_on(0, 5 * block, block))
        driver.time.advance(60)  # what was fetched ahead is given up
    name = max(driver.counted.objects, key=lambda found: len(driver.counted.objects[found]))
    damaged = bytearray(driver.counted.objects[name])
    damaged[at + 100] ^= 1
    driver.counted.objects[name] = bytes(damaged)
    structlog.reset_defaults()
    with capture_logs() as lines:
        reply, _ = desk.ask(at, 1)
    (line,) = lines
    assert (line["object"], line["offset"]) == (name, at)
    assert "anabranch tier2 verify" in line["remedy"]
    assert isinstance(reply, Failed)
    assert reply.code == "corrupt-chunk"
    assert name in str(reply)
    assert driver.store.metrics.corrupt_chunks == 1
    # writers go on, and so do readers of what is sound
    assert driver.container.failure is None
    more = driver.fill(1, first=101)
    assert desk.read(len(data), 1) == more
    assert desk.read(90 * block, 1) == data[90 * block : 91 * block]


def test_a_damaged_frame_of_the_journal_takes_the_container_offline_by_name(
    driver: DeskDriver,
) -> None:
    journalled(driver, 10)

    async def damaged(address: LogAddress) -> bytes:
        raise CorruptJournal("a frame is damaged", position=address.position)

    driver.container.log.read_aside = damaged  # type: ignore[method-assign]
    desk = Desk(driver)
    reply, _ = desk.ask(0, 1)
    assert isinstance(reply, Failed)
    assert reply.code == "corrupt-journal"
    assert isinstance(driver.container.failure, CorruptJournal)
    reply, _ = desk.ask(0, 1)
    assert isinstance(reply, Failed)
    assert reply.code == "unavailable"


def test_old_bytes_are_not_given_out_as_those_of_a_segment_that_took_the_name(
    driver: DeskDriver,
) -> None:
    # given a read that waits for tier 2
    tiered(driver)
    desk = Desk(driver)
    driver.counted.gate = asyncio.Event()
    driver.wait(_submit(desk, 0))
    driver.settle()
    # when the segment is deleted and made again meanwhile
    driver.delete()
    driver.create(stamp=Stamp(2, 1))
    driver.append(driver.setup(), 1, [b"other" * 100])
    driver.commit()
    gate, driver.counted.gate = driver.counted.gate, None
    gate.set()
    driver.settle()
    # then whoever asked for the old one is told to ask again
    assert desk.code(1) == "unavailable"


def test_one_answer_reads_only_so_much_of_the_journal(
    driver: DeskDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = journalled(driver, 20)
    monkeypatch.setattr(reader, "FRAMES_SIZE_BYTES_MAX", 35 * KIB)
    found = Desk(driver).read(0, 1 << 20)
    assert len(driver.frames_read) == 3
    assert found == data[: len(data) * 3 // 20]
