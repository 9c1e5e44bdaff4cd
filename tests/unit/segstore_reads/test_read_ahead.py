"""What is kept of what was fetched: shares of the memory, room, age."""

import asyncio
from collections.abc import Coroutine

from anabranch.common.errors import Unavailable
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.memory.cache import Cache, Piece
from anabranch.segstore.shell.memory.granule import Granule
from anabranch.segstore.shell.memory.read_ahead import AGE_S_MAX, UNDER_WAY_MAX, ReadAhead
from kit.container_driver import ManualTime

SIZE = 100


def frame(number: int, size: int = SIZE) -> LogAddress:
    return LogAddress(1, number, size)


def content(granule: Granule) -> bytes:
    assert isinstance(granule, LogAddress)
    return bytes([granule.position % 256]) * granule.payload_size


class Bench:
    """A read-ahead whose loads wait for `gate`, and count."""

    def __init__(self, cache_size: int = 40 * SIZE) -> None:
        self.cache = Cache(cache_size)
        self.time = ManualTime()
        self.ahead = ReadAhead(self.cache, self.time, self.time.call_later)
        self.loads: list[Granule] = []
        self.gate: asyncio.Event | None = None
        self.fails = False
        self.tasks: list[asyncio.Task[None]] = []

    async def load(self, granule: Granule) -> bytes:
        self.loads.append(granule)
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise Unavailable("not now")
        return content(granule)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def begin(self, number: int, size: int = SIZE) -> bool:
        return self.ahead.begin(frame(number, size), self.load, self.spawn)

    async def fetched(self, *numbers: int) -> None:
        for number in numbers:
            assert self.begin(number)
            await self.rest()

    async def rest(self) -> None:
        for task in self.tasks:
            await task

    async def get(self, number: int, size: int = SIZE) -> bytes:
        return await self.ahead.get(frame(number, size), self.load)


def in_memory(cache: Cache, count: int) -> list[Piece]:
    """Pieces of the tail, each of `SIZE` bytes."""
    pieces = []
    for number in range(count):
        piece = Piece(number * SIZE, number, frame(number), lambda: None)
        piece.end += SIZE
        cache.admit(piece)
        pieces.append(piece)
    return pieces


async def test_what_was_fetched_ahead_is_not_loaded_again() -> None:
    bench = Bench()
    await bench.fetched(1, 2)
    assert await bench.get(1) == content(frame(1))
    assert await bench.get(2) == content(frame(2))
    assert len(bench.loads) == 2
    assert bench.ahead.outcomes == {("hit",): 2, ("miss",): 0, ("unused",): 0}


async def test_it_takes_a_quarter_of_the_memory_at_most_and_leaves_the_tail_its_share() -> None:
    bench = Bench()
    pieces = in_memory(bench.cache, 40)
    assert bench.cache.used == 40 * SIZE
    for number in range(30):
        await bench.get(number)
        bench.begin(100 + number)
        await bench.rest()
        assert bench.cache.lent <= 10 * SIZE
        assert bench.cache.used + bench.cache.lent <= 40 * SIZE
    assert [piece.payloads is None for piece in pieces] == [True] * 10 + [False] * 30


async def test_the_tail_takes_back_what_nobody_borrows() -> None:
    bench = Bench()
    await bench.get(1)
    bench.time.advance(AGE_S_MAX * 2)
    in_memory(bench.cache, 50)
    assert (bench.cache.used, bench.cache.lent) == (40 * SIZE, 0)


async def test_what_waits_for_its_reader_is_not_pushed_out_by_others() -> None:
    bench = Bench()
    await bench.fetched(*range(7))
    for number in range(50, 90):
        await bench.get(number)
    loads = len(bench.loads)
    for number in range(7):
        assert await bench.get(number) == content(frame(number))
    assert len(bench.loads) == loads


async def test_nothing_is_fetched_ahead_beyond_three_quarters_of_the_share() -> None:
    bench = Bench()
    await bench.fetched(*range(7))
    assert not bench.begin(7)
    await bench.get(0)
    assert bench.begin(7)
    await bench.rest()


async def test_few_are_fetched_ahead_at_once() -> None:
    bench = Bench(400 * SIZE)
    bench.gate = asyncio.Event()
    assert [bench.begin(number) for number in range(UNDER_WAY_MAX + 1)] == [
        *[True] * UNDER_WAY_MAX, False,
    ]  # fmt: skip
    assert bench.begin(0), "it is under way"
    bench.gate.set()
    await bench.rest()
    assert len(bench.loads) == UNDER_WAY_MAX


async def test_what_nobody_asks_for_is_given_up_when_it_is_old() -> None:
    bench = Bench()
    await bench.fetched(1, 2)
    await bench.get(2)
    bench.time.advance(AGE_S_MAX / 2)
    await bench.get(2)
    bench.time.advance(AGE_S_MAX / 2)
    assert bench.ahead.look(frame(1)) is None
    assert bench.cache.lent == SIZE
    assert bench.ahead.outcomes["unused",] == 1
    bench.time.advance(AGE_S_MAX)
    assert bench.cache.lent == 0
    assert await bench.get(2) == content(frame(2))
    assert bench.loads.count(frame(2)) == 2


async def test_what_is_used_longest_ago_goes_first() -> None:
    bench = Bench()
    for number in range(10):
        await bench.get(number)
    await bench.get(0)
    await bench.get(10)
    assert bench.ahead.look(frame(1)) is None
    assert bench.ahead.look(frame(0)) == content(frame(0))
    assert bench.cache.lent == 10 * SIZE


async def test_what_is_larger_than_the_share_is_read_and_not_kept() -> None:
    bench = Bench()
    assert await bench.get(1, 11 * SIZE) == content(frame(1, 11 * SIZE))
    assert not bench.begin(2, 11 * SIZE)
    assert bench.cache.lent == 0


async def test_who_asks_for_what_is_under_way_waits_for_it() -> None:
    bench = Bench()
    bench.gate = asyncio.Event()
    assert bench.begin(1)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(bench.get(1)) for _ in range(3)]
        await asyncio.sleep(0)
        bench.gate.set()
    assert [task.result() for task in waiting] == [content(frame(1))] * 3
    assert len(bench.loads) == 1


async def test_a_failed_fetch_costs_nobody_anything_who_asks_tries_himself() -> None:
    bench = Bench()
    bench.gate, bench.fails = asyncio.Event(), True
    assert bench.begin(1)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(bench.get(1))
        for _ in range(3):
            await asyncio.sleep(0)
        bench.gate.set()
        await bench.rest()
        bench.fails = False
    assert waiting.result() == content(frame(1))
    assert bench.cache.lent == SIZE
    assert len(bench.loads) == 2


async def test_a_cancelled_reader_does_not_take_the_others_with_him() -> None:
    bench = Bench()
    bench.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(bench.get(1))
        await asyncio.sleep(0)
        second = group.create_task(bench.get(1))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        bench.gate.set()
    assert second.result() == content(frame(1))


def test_there_are_no_windows_where_there_is_no_room_for_them() -> None:
    windows = [
        Bench(size).ahead.window for size in (0, 1 << 20, 1 << 22, 1 << 26, 1 << 28, 1 << 34)
    ]
    assert windows == [0, 0, 1 << 16, 1 << 20, 1 << 22, 1 << 22]
