"""The loops of a container: what a failing manifest leaves begun, pauses, and collection."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import NoReturn

import pytest
import structlog
from structlog.testing import capture_logs

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import CorruptManifest, Deposed, DiskFailed, SyncFailed, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.common.storage.ports import Buffer
from anabranch.common.tier2.state import ChunkRef, Tombstone
from anabranch.common.wire.messages import Done, Message
from anabranch.segstore.domain.container.state import ContainerCut
from anabranch.segstore.ports import CatalogEntry, FetchRange, TieredExtents, TierTwo
from anabranch.segstore.shell.container.pauses import drawn_from
from anabranch.segstore.shell.container.throttle import Throttle, ThrottleLimits
from anabranch.segstore.shell.tiering.collector import (
    REST_AFTER_COPIES_S,
    REST_AFTER_FAILURE_S,
    REST_S,
    Collector,
)
from anabranch.segstore.shell.tiering.flusher import Flusher, FlushLimits
from kit.container_driver import ContainerDriver
from kit.rng import seeded
from kit.tier2_catalog import catalog_of
from kit.tiered_driver import TieredDriver
from kit.virtual_time import VirtualClock, VirtualTimeLoop


class _NoManifests(MemoryChunkStorage):
    """Refuses manifests while `broken`; counts what it is asked to create."""

    broken = False

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        self.asked.append(name)
        if self.broken and "/m/" in name:
            raise DiskFailed("the disk is full")
        await super().put_new(name, parts)


@pytest.fixture
def storage() -> _NoManifests:
    return _NoManifests()


@pytest.fixture
def driver(storage: _NoManifests) -> Iterator[TieredDriver]:
    driver = TieredDriver(storage=storage)
    yield driver
    driver.finish()


def _write(driver: ContainerDriver, first: int) -> bytes:
    if first == 1:
        driver.create()
    block = driver.append(driver.setup(), first, [b"x" * 100])
    driver.commit()
    driver.take_replies()
    return block


def test_a_cut_whose_manifest_failed_is_finished_first_and_then_what_came_after_it(
    driver: TieredDriver, storage: _NoManifests
) -> None:
    first = _write(driver, 1)
    storage.broken = True
    for _ in range(3):
        with pytest.raises(DiskFailed):
            driver.flush()
    second = _write(driver, 2)
    assert driver.read_all() == first + second
    assert len(driver.frames.payloads) == 2
    assert driver.container.applied.untiered == len(first + second)
    storage.broken = False
    storage.asked.clear()
    driver.flush()
    assert [name[3:5] for name in storage.asked] == ["m/", "00", "m/"], "no chunk is written twice"
    assert driver.frames.payloads == {}
    assert driver.container.applied.untiered == driver.throttle.untiered == 0
    driver.crash()
    assert driver.read_all() == first + second


def test_a_segment_deleted_while_its_manifest_fails_stays_deleted(
    driver: TieredDriver, storage: _NoManifests
) -> None:
    _write(driver, 1)
    storage.broken = True
    with pytest.raises(DiskFailed):
        driver.flush()
    driver.delete()
    driver.commit()
    storage.broken = False
    driver.flush()
    assert driver.container.applied.untiered == driver.throttle.untiered == 0
    driver.crash()
    assert list(driver.wait(catalog_of(driver.tier_two)).tombstones) != []
    assert driver.wait(catalog_of(driver.tier_two)).segments == {}


class _Watched(_NoManifests):
    """Notes whether the store's fast writers are paused at each put."""

    def __init__(self) -> None:
        super().__init__()
        self.throttle: Throttle | None = None
        self.paused: list[bool] = []

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        if self.throttle is not None:
            self.paused.append(self.throttle.paused)
        await super().put_new(name, parts)


@pytest.mark.parametrize("broken", [False, True], ids=["it ends", "it fails"])
def test_a_fast_writer_goes_on_while_a_flush_goes_on(*, broken: bool) -> None:
    storage = _Watched()
    driver = TieredDriver(storage=storage)
    block = _write(driver, 1)
    others = ThrottleLimits().unflushed
    driver.throttle.add_untiered(others)
    assert driver.throttle.paused
    storage.throttle, storage.broken = driver.throttle, broken
    with pytest.raises(DiskFailed) if broken else nullcontext():
        driver.flush()
    assert storage.paused == [False, False], "of the chunk, and of the manifest"
    assert driver.throttle.unflushed == others + (len(block) if broken else 0)
    assert driver.throttle.taken_up == 0
    storage.broken = False
    driver.throttle.add_untiered(-others)
    driver.finish()


def test_a_defect_at_the_end_of_a_flush_leaves_nothing_taken_up(
    driver: TieredDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(driver, 1)

    def broken(*_: object) -> int:
        raise ValueError("a defect")

    with monkeypatch.context() as during:
        during.setattr(driver.container.applied, "end_flush", broken)
        with pytest.raises(ValueError, match="a defect"):
            driver.flush()
    assert driver.throttle.taken_up == 0
    driver.crash()


# --- loops in virtual time --------------------------------------------------------------------


class _TierTwo:
    """Implements `ports.TierTwo`: notes the time of each call, and does as it is told."""

    unfinished = False
    applied_sequence = 0
    abandoned = None
    copied = False
    dead_bytes = 0

    def __init__(
        self, clock: Clock, outcomes: Sequence[BaseException | bool] = (), seconds: float = 0.0
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._outcomes = list(outcomes)
        self.times: list[float] = []
        self.rewrites: list[BaseException | bool] = []

    async def flush(self, cut: ContainerCut, fetch: FetchRange) -> Sequence[TieredExtents]:
        self.times.append(self._clock.monotonic())
        if self._seconds:
            await self._clock.sleep(self._seconds)
        return ()

    def knows_nothing_of(self, name: str) -> bool:
        return True

    async def find(self, names: Collection[str]) -> Mapping[str, CatalogEntry | Tombstone]:
        return {}

    async def entries(self) -> AsyncIterator[CatalogEntry | Tombstone]:
        nothing: tuple[Tombstone, ...] = ()
        for entry in nothing:
            yield entry

    async def read(self, ref: ChunkRef, offset: int, length: int) -> bytes:
        raise AssertionError("nothing is in tier 2")

    async def check_owner(self) -> None:
        return

    async def entry_counts(self, ref: ChunkRef) -> tuple[tuple[int, int], ...]:
        raise AssertionError("nothing is in tier 2")

    async def entry_times(self, ref: ChunkRef) -> tuple[tuple[int, int], ...]:
        raise AssertionError("nothing is in tier 2")

    async def close(self) -> None:
        raise AssertionError("nobody moves it")

    async def leave_receipts(self) -> NoReturn:
        raise AssertionError("it has no receipts")

    async def confirm(self) -> None:
        raise AssertionError("it has no receipts")

    async def rewrite(self) -> bool:
        outcome = self.rewrites.pop(0) if self.rewrites else False
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def collect(self) -> bool:
        self.times.append(self._clock.monotonic())
        outcome = self._outcomes.pop(0) if self._outcomes else False
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def _in_virtual_time(work: Callable[[VirtualTimeLoop], object]) -> None:
    loop = VirtualTimeLoop()
    try:
        work(loop)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.close()


def test_a_flush_that_takes_longer_than_a_second_is_followed_by_the_next_one_at_once() -> None:
    def work(loop: VirtualTimeLoop) -> None:
        driver, clock = ContainerDriver(), VirtualClock(loop)
        tier_two = _TierTwo(clock, seconds=1.5)
        flusher = _flusher_of(driver, tier_two, clock, loop)

        async def write() -> None:
            for first in range(1, 12):
                _write(driver, first)
                await clock.sleep(0.3)
            assert tier_two.times == pytest.approx([0.0, 1.5, 3.0])

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                flushing = group.create_task(flusher.run())
                await write()
                flushing.cancel()

        loop.run_until_complete(both())

    _in_virtual_time(work)


def _flusher_of(
    driver: ContainerDriver, tier_two: TierTwo, clock: Clock, loop: VirtualTimeLoop
) -> Flusher:
    """Its flushes begin a second after each other, and are due after each byte."""
    return Flusher(
        driver.container,
        tier_two,
        clock=clock,
        throttle=driver.throttle,
        call_later=lambda after_s, do: loop.call_later(after_s, do).cancel,
        limits=FlushLimits(bytes_max=1, interval_s_min=1.0),
        back_off_s=drawn_from(seeded(0)),
    )


def test_flushes_are_a_second_apart_unless_they_are_requested() -> None:
    def work(loop: VirtualTimeLoop) -> None:
        driver, clock = ContainerDriver(), VirtualClock(loop)
        tier_two = _TierTwo(clock)
        flusher = _flusher_of(driver, tier_two, clock, loop)
        answers: list[Message] = []

        async def write_and_request() -> None:
            for first in range(1, 9):
                _write(driver, first)
                await clock.sleep(0.24)
            assert tier_two.times == [0.0, 1.0]
            flusher.request(answers.append)
            await clock.sleep(0.01)
            assert tier_two.times == [0.0, 1.0, pytest.approx(1.92)]
            assert answers == [Done()]

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                flushing = group.create_task(flusher.run())
                await write_and_request()
                flushing.cancel()

        loop.run_until_complete(both())

    _in_virtual_time(work)


def _collect(
    outcomes: Sequence[BaseException | bool],
    seconds: float,
    *,
    rewrites: Sequence[BaseException | bool] = (),
    hurry: Callable[[], None] = lambda: None,
) -> tuple[list[float], list[str]]:
    """Run the loop for so long: when it collected, and what it logged."""
    driver = ContainerDriver()
    times: list[float] = []

    def work(loop: VirtualTimeLoop) -> None:
        clock = VirtualClock(loop)
        tier_two = _TierTwo(clock, outcomes)
        tier_two.times, tier_two.rewrites = times, list(rewrites)
        collector = Collector(driver.container, tier_two, clock, hurry)

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                collecting = group.create_task(collector.run())
                await clock.sleep(seconds)
                collecting.cancel()

        loop.run_until_complete(run())

    structlog.reset_defaults()
    with capture_logs() as logs:
        _in_virtual_time(work)
    if driver.container.failure is not None:
        return times, [driver.container.failure.code]
    return times, [entry["event"] for entry in logs]


def test_collection_goes_on_while_there_is_something_to_do_and_rests_then() -> None:
    assert _collect([True, True, False], REST_S + 1) == ([0.0, 0.0, 0.0, REST_S], [])


def test_a_collection_that_fails_is_tried_again_later_and_logged_once() -> None:
    failures = [Unavailable("no answer"), OSError("not allowed"), DiskFailed("broken")]
    times, logged = _collect(
        [*failures, False, Unavailable("again")], 3 * REST_AFTER_FAILURE_S + 15
    )
    later = [at * REST_AFTER_FAILURE_S for at in range(4)]
    assert times == [*later, later[-1] + REST_S]
    assert len(logged) == 2, "once for the three in a row, once for the next"


def test_a_collector_that_finds_itself_deposed_ends_its_container() -> None:
    assert _collect([True, Deposed("a newer owner")], 99.0) == ([0.0, 0.0], ["deposed"])


def test_a_collector_that_finds_a_damaged_page_ends_its_container() -> None:
    damaged = CorruptManifest("a page is missing")
    assert _collect([True, damaged], 99.0) == ([0.0, 0.0], [damaged.code])


def test_objects_are_rewritten_when_nothing_is_to_be_collected_and_a_flush_is_asked_for() -> None:
    asked: list[bool] = []
    times, logged = _collect(
        [True, False], 3.0, rewrites=[True, True], hurry=lambda: asked.append(True)
    )
    assert times == [0.0, 0.0, REST_AFTER_COPIES_S, 2 * REST_AFTER_COPIES_S]
    assert asked == [True, True]
    assert logged == []


def test_a_rewrite_that_fails_keeps_no_garbage_from_being_collected() -> None:
    full = DiskFailed("the disk is full")
    times, logged = _collect([], REST_AFTER_FAILURE_S + 1, rewrites=[full, full])
    assert times == [0.0, REST_AFTER_FAILURE_S]
    assert len(logged) == 1


def test_a_sync_that_fails_in_a_rewrite_ends_the_container() -> None:
    failed = SyncFailed("a sync of tier 2 failed")
    assert _collect([], 99.0, rewrites=[failed]) == ([0.0], [failed.code])
