"""When a container moves its tail to tier 2, and what a failing tier 2 costs."""

import errno
from collections.abc import Callable, Iterator, Sequence

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import Deposed, DiskFailed, OutcomeUnknown, Overloaded, Unavailable
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import Buffer
from anabranch.common.wire.messages import Done, Failed, Message
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.container.throttle import ThrottleLimits
from anabranch.segstore.shell.tiering.flusher import REQUEST_DEADLINE_S
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from kit.container_driver import LOG_ID, SEGMENT
from kit.store_parts import a_throttle
from kit.tiered_driver import TieredDriver


class FailingStorage(MemoryChunkStorage):
    """Refuses chunks and lists while `broken`; `before_put` is called with each name."""

    broken = False

    def __init__(self) -> None:
        super().__init__()
        self.before_put: Callable[[str], None] = lambda _name: None

    async def list(self, prefix: str) -> Sequence[str]:
        if self.broken:
            raise PermissionError("not allowed")
        return await super().list(prefix)

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        self.before_put(name)
        if self.broken and "/m/" not in name:
            raise DiskFailed("the disk is full")
        await super().put_new(name, parts)


@pytest.fixture
def storage() -> FailingStorage:
    return FailingStorage()


@pytest.fixture
def driver(storage: FailingStorage) -> Iterator[TieredDriver]:
    driver = TieredDriver(storage=storage)
    yield driver
    driver.finish()


def write(driver: TieredDriver, first: int, size: int = 100) -> bytes:
    if first == 1:
        driver.create()
    block = driver.append(driver.setup(), first, [b"x" * size])
    driver.commit()
    driver.take_replies()
    return block


def test_a_flush_releases_the_log_and_the_bytes_are_still_there(driver: TieredDriver) -> None:
    block = write(driver, 1)
    driver.flush()
    assert driver.frames.payloads == {}
    assert driver.container.applied.untiered == driver.throttle.untiered == 0
    assert (driver.metrics.flushes, driver.metrics.flush_bytes) == (1, len(block))
    driver.crash()
    assert driver.read_all() == block


def test_a_failing_tier_two_keeps_the_log_and_the_next_flush_moves_everything(
    driver: TieredDriver, storage: FailingStorage
) -> None:
    first = write(driver, 1)
    storage.broken = True
    with pytest.raises(DiskFailed):
        driver.flush()
    second = write(driver, 2)
    assert len(driver.frames.payloads) == 2
    assert driver.read_all() == first + second
    storage.broken = False
    driver.flush()
    assert driver.frames.payloads == {}
    driver.crash()
    assert driver.read_all() == first + second
    assert driver.container.applied.state.writers != {}


def test_a_flush_reads_frames_that_left_the_memory_aside_and_each_once(
    storage: FailingStorage,
) -> None:
    # given a store without a cache: a flush finds its bytes in the journal alone
    driver = TieredDriver(storage=storage, cache_size=0)
    for first in (1, 2):
        write(driver, first, size=3_000_000)
    log = driver.container.log
    read = log.read_aside
    aside: list[LogAddress] = []

    async def read_aside(address: LogAddress) -> bytes:
        aside.append(address)
        return await read(address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "read_aside", read_aside)
        driver.flush()
    driver.finish()
    assert len(aside) == len(set(aside)) == 2


def test_a_journal_that_cannot_be_opened_for_a_moment_is_read_by_the_next_try(
    storage: FailingStorage,
) -> None:
    driver = TieredDriver(storage=storage, cache_size=0)
    block = write(driver, 1)

    async def out_of_handles(_address: LogAddress) -> bytes:
        raise OSError(errno.EMFILE, "too many open files")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.container.log, "read_aside", out_of_handles)
        with pytest.raises(Unavailable):
            driver.flush()
    driver.flush()
    assert driver.read_all() == block
    driver.finish()


def test_what_a_failed_flush_held_is_part_of_the_next_one(
    driver: TieredDriver, storage: FailingStorage
) -> None:
    # given a segment, its writer and a tombstone that a failed flush held
    block = write(driver, 1)
    gone, other = SEGMENT.replace("/0.", "/1."), SEGMENT.replace("/0.", "/2.")
    driver.delete(gone)
    driver.commit()
    storage.broken = True
    with pytest.raises(DiskFailed):
        driver.flush()
    storage.broken = False
    # when only another segment changes before the next flush
    driver.create(other)
    driver.commit()
    driver.flush()
    driver.crash()
    # then tier 2 has them all
    state = driver.container.applied.state
    assert driver.read_all() == block
    assert [[mark.last for mark in w.values()] for w in state.writers.values()] == [[1]]
    assert [type(driver.known(name)).__name__ for name in (gone, other)] == [
        "Tombstone",
        "SegmentState",
    ]


def test_a_newer_owner_of_tier_two_ends_the_flush_before_the_log_is_released(
    driver: TieredDriver,
) -> None:
    write(driver, 1)
    newer = OpenContainerTierTwo(driver.storage, SeededIds(2), driver.time)
    driver.wait(newer(0, 9, LOG_ID))
    with pytest.raises(Deposed):
        driver.flush()
    assert len(driver.frames.payloads) == 1


def test_a_request_is_answered_when_everything_before_it_is_in_tier_two(
    driver: TieredDriver,
) -> None:
    answers: list[Message] = []
    write(driver, 1)
    driver.flusher.request(answers.append)
    assert answers == []
    driver.flush()
    assert answers == [Done()]
    driver.flusher.request(answers.append)
    driver.flush()
    assert answers == [Done(), Done()]


def test_a_flush_under_way_does_not_answer_a_request_for_what_came_after_its_cut(
    driver: TieredDriver, storage: FailingStorage
) -> None:
    answers: list[Message] = []
    write(driver, 1)
    driver.flusher.request(answers.append)

    def acknowledge_more(_name: str) -> None:
        storage.before_put = lambda _name: None
        write(driver, 2)
        driver.flusher.request(answers.append)

    storage.before_put = acknowledge_more
    driver.flush()
    assert answers == [Done()]
    driver.flush()
    assert answers == [Done(), Done()]
    assert driver.frames.payloads == {}


def test_an_owner_that_was_replaced_does_not_say_that_all_is_in_tier_two(
    driver: TieredDriver,
) -> None:
    answers: list[Message] = []
    write(driver, 1)
    driver.flush()
    driver.wait(OpenContainerTierTwo(driver.storage, SeededIds(2), driver.time)(0, 9, LOG_ID))
    driver.flusher.request(answers.append)
    with pytest.raises(Deposed):
        driver.flush()
    assert answers == []


def test_a_request_waits_until_tier_two_says_who_its_owner_is(
    driver: TieredDriver, storage: FailingStorage
) -> None:
    answers: list[Message] = []
    storage.broken = True
    driver.flusher.request(answers.append)
    with pytest.raises(Unavailable):
        driver.flush()
    assert answers == []
    storage.broken = False
    driver.flush()
    assert answers == [Done()]


def test_a_request_that_takes_too_long_is_told_so(driver: TieredDriver) -> None:
    answers: list[Message] = []
    driver.flusher.request(answers.append)
    driver.time.advance(REQUEST_DEADLINE_S)
    assert [getattr(answer, "code", None) for answer in answers] == ["unavailable"]


def test_a_request_at_a_container_that_ends_is_told_so(driver: TieredDriver) -> None:
    answers: list[Message] = []
    driver.flusher.request(answers.append)
    driver.flusher.stop()
    assert isinstance(answers[0], Failed)


def test_age_and_size_each_ask_for_a_flush(driver: TieredDriver) -> None:
    write(driver, 1)
    assert not driver.flusher._wanted.is_set()
    driver.time.advance(30)
    assert driver.flusher._wanted.is_set()
    driver.flush()
    driver.flusher._wanted.clear()
    write(driver, 2, size=1 << 20)
    assert driver.flusher._wanted.is_set()


def test_untiered_bytes_are_bounded_by_back_pressure_then_by_refusal() -> None:
    throttle = a_throttle(ThrottleLimits(untiered=1000))
    resumed: list[bool] = []
    throttle.add_untiered(1001)
    assert throttle.paused
    throttle.when_open(lambda: resumed.append(True))
    throttle.admit(200)
    with pytest.raises(Overloaded, match="tier 2"):
        throttle.admit(300)
    # a failing tier 2 does not leave clients waiting: they are refused instead
    throttle.tier_two_failing(0, failing=True)
    assert not throttle.paused
    assert resumed == [True]
    with pytest.raises(Overloaded):
        throttle.admit(1)


def test_pending_bytes_are_bounded_by_back_pressure_then_by_refusal() -> None:
    throttle = a_throttle(ThrottleLimits(pending_soft=100, pending_hard=200))
    resumed: list[bool] = []
    throttle.admit(150)
    assert throttle.paused
    throttle.when_open(lambda: resumed.append(True))
    with pytest.raises(Overloaded, match="journal"):
        throttle.admit(51)
    throttle.forget_pending(60)
    assert resumed == []
    throttle.forget_pending(60)
    assert resumed == [True]


def test_an_append_over_the_limit_is_refused_and_changes_nothing(driver: TieredDriver) -> None:
    write(driver, 1)
    driver.throttle._limits = ThrottleLimits(pending_hard=10)
    session = driver.setup()
    driver.append(session, 2, [b"y"])
    driver.commit()
    assert [getattr(reply, "code", None) for reply in driver.take_replies()][-1] == "overloaded"
    driver.throttle._limits = ThrottleLimits()
    more = write(driver, 2)
    assert driver.read_all().endswith(more)
    assert driver.known(SEGMENT) is not None


class SilentStorage(MemoryChunkStorage):
    """Does not say what becomes of chunks while `silent`."""

    silent = True

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        if self.silent and "/m/" not in name:
            raise OutcomeUnknown("no answer in time")
        await super().put_new(name, parts)


def test_a_tier_two_that_does_not_answer_is_tried_again_and_ends_nothing() -> None:
    storage = SilentStorage()
    driver = TieredDriver(storage=storage)
    block = write(driver, 1)
    with pytest.raises(Unavailable):
        driver.flush()
    storage.silent = False
    driver.flush()
    driver.crash()
    assert driver.read_all() == block
    driver.finish()
