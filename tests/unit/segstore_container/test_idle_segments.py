"""Idle segments leave the memory of a container and come back, whatever happens meanwhile."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import DiskFailed, Unavailable
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.tier2.state import Tombstone
from anabranch.common.wire.messages import (
    Appended,
    AppendSetup,
    AttributeUpdate,
    AttributeValues,
    CreateTransient,
    Done,
    Failed,
    Message,
    ReadSegment,
    SegmentInfo,
    SegmentRead,
    SegmentsMerged,
    SetupAppend,
    Stamp,
    Truncated,
    TruncateSegment,
)
from anabranch.segstore.handlers.append import AppendDesk
from anabranch.segstore.handlers.control import ControlDesk
from anabranch.segstore.handlers.read import ReadDesk
from anabranch.segstore.handlers.transient import TransientDesk
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.tiering.eviction import evict, users
from kit.container_driver import MERGE_STAMP, SEAL_STAMP, WRITER, ContainerDriver
from kit.tiered_driver import TieredDriver

ONE, TWO, THREE = (f"scope/stream/{number}.#epoch.0" for number in range(3))
Work = Coroutine[None, None, None]


@pytest.fixture
def driver() -> Iterator[TieredDriver]:
    """Keeps one segment, if it can."""
    driver = TieredDriver(residency=ResidencyLimits(1))
    yield driver
    driver.finish()


def write(driver: ContainerDriver, segment: str, first: int = 1) -> bytes:
    """Append without a session, which would pin the segment."""
    block = driver.append_once(first, [b"x" * 300], segment=segment)
    driver.commit()
    return block


def tiered(driver: TieredDriver, *segments: str) -> dict[str, bytes]:
    """Segments with a block each, in tier 2 and, but for the last one, nowhere else."""
    blocks = {}
    for segment in segments:
        driver.create(segment)
        blocks[segment] = write(driver, segment)
    driver.flush()
    driver.take_replies()
    assert list(driver.container.pending.segments) == [segments[-1]]
    return blocks


def resident(driver: ContainerDriver) -> set[str]:
    pending, applied = driver.container.pending, driver.container.applied
    assert pending.segments.keys() >= applied.state.segments.keys()
    return set(pending.segments)


# --- leaving and coming back ----------------------------------------------------------------------


def test_what_was_evicted_is_found_again_with_its_bytes_writers_and_attributes(
    driver: TieredDriver,
) -> None:
    driver.create(ONE)
    block = driver.append_if(1, [b"one"], AttributeUpdate(WRITER, "create", 7), segment=ONE)
    driver.commit()
    driver.flush()
    tiered(driver, TWO)
    assert resident(driver) == {TWO}
    driver.info(ONE)
    driver.attributes(segment=ONE)
    again = driver.append_once(1, [b"one"], segment=ONE)
    info, attributes, appended = driver.take_replies()
    assert isinstance(info, SegmentInfo)
    assert (info.length, info.tiered_length, info.event_count) == (len(block), len(block), 1)
    assert isinstance(attributes, AttributeValues)
    assert [value.value for value in attributes.values] == [7]
    assert appended == Appended(session=0, last_event_number=1, length=len(block))
    assert driver.read_all(ONE) == block == again


def test_nothing_is_held_of_what_left(driver: TieredDriver) -> None:
    driver.cache.size_max = 1 << 20
    tiered(driver, ONE, TWO)
    state, index = driver.container.applied.state, driver.container.applied.index
    assert (set(state.segments), set(state.writers)) == ({TWO}, set(state.names))
    assert set(index._segments) == set(state.names)
    assert driver.cache.used == sum(len(block) for block in [driver.read_all(TWO)])


def test_five_thousand_segments_are_never_all_in_memory() -> None:
    driver = TieredDriver(residency=ResidencyLimits(50))
    names = [f"scope/stream-{number}/0.#epoch.0" for number in range(5000)]
    for start in range(0, len(names), 500):
        for name in names[start : start + 500]:
            driver.create(name)
        driver.commit()
        driver.flush()
        assert len(resident(driver)) <= 50
    for name in names[::25]:
        driver.info(name)
        assert len(resident(driver)) <= 51
    evict(driver.container)
    replies = driver.take_replies()
    assert [type(reply) for reply in replies] == [Done] * 5000 + [SegmentInfo] * 200
    assert len(resident(driver)) <= 50
    assert driver.container.residency.count <= 50
    assert driver.metrics.residency_exceeded == 0
    driver.finish()


def test_names_that_are_asked_for_and_do_not_exist_do_not_pile_up(driver: TieredDriver) -> None:
    blocks = tiered(driver, ONE)
    for number in range(100):
        driver.info(f"scope/none/{number}.#epoch.0")
    assert driver.container.residency.count <= 1
    assert driver.read_all(ONE) == blocks[ONE]


def test_tombstones_leave_and_refuse_when_they_are_back(driver: TieredDriver) -> None:
    tiered(driver, ONE, TWO)
    driver.delete(ONE, Stamp(1, 5))
    driver.commit()
    driver.flush()
    driver.info(TWO)
    assert resident(driver) == {TWO}
    driver.take_replies()
    driver.create(ONE, Stamp(1, 4))
    (refused,) = driver.take_replies()
    assert isinstance(refused, Failed)
    assert refused.code == "stale-request"


def test_a_merge_loads_its_target_and_all_its_sources(driver: TieredDriver) -> None:
    blocks = tiered(driver, ONE, TWO, THREE)
    for source in (TWO, THREE):
        driver.seal(source, SEAL_STAMP)
    driver.commit()
    driver.flush()
    driver.info(ONE)
    driver.take_replies()
    driver.interrupted.found.clear()
    driver.merge(TWO, THREE, target=ONE, stamp=MERGE_STAMP)
    driver.commit()
    assert [set(names) for names in driver.interrupted.found] == [{TWO, THREE}]
    assert isinstance(driver.take_replies()[0], SegmentsMerged)
    driver.flush()
    driver.crash()
    assert driver.read_all(ONE) == blocks[ONE] + blocks[TWO] + blocks[THREE]
    assert isinstance(driver.known(THREE), Tombstone)


# --- staying --------------------------------------------------------------------------------------


def test_what_is_not_in_tier_two_stays(driver: TieredDriver) -> None:
    blocks = tiered(driver, ONE, TWO)
    more = write(driver, ONE, first=2)
    driver.info(TWO)
    driver.info(THREE)
    assert ONE in resident(driver)
    driver.crash()
    assert driver.read_all(ONE) == blocks[ONE] + more


def test_what_waits_for_the_journal_stays(driver: TieredDriver) -> None:
    blocks = tiered(driver, ONE, TWO)
    block = driver.append_once(2, [b"more"], segment=ONE)
    driver.info(TWO)
    assert ONE in resident(driver)
    driver.commit()
    assert driver.read_all(ONE) == blocks[ONE] + block


def test_a_live_session_keeps_its_segment_and_its_end_lets_it_go(driver: TieredDriver) -> None:
    tiered(driver, ONE, TWO)
    session = driver.setup(ONE)
    driver.info(TWO)
    assert ONE in resident(driver)
    block = driver.append(session, 2, [b"more"])
    driver.commit()
    driver.flush()
    assert driver.read_all(ONE).endswith(block)
    driver.container.sessions.end(session)
    driver.info(TWO)
    evict(driver.container)
    assert resident(driver) == {TWO}


@pytest.fixture
def roomy() -> Iterator[TieredDriver]:
    """Keeps two segments, which are there."""
    driver = TieredDriver(residency=ResidencyLimits(2))
    for segment in (ONE, TWO):
        driver.create(segment)
    driver.commit()
    driver.flush()
    yield driver
    driver.finish()


def push_one_out(driver: TieredDriver) -> None:
    driver.create(THREE)
    driver.commit()
    driver.flush()


def test_a_request_counts_as_use(roomy: TieredDriver) -> None:
    roomy.info(ONE)
    push_one_out(roomy)
    assert resident(roomy) == {ONE, THREE}


def test_a_flush_counts_as_use_of_what_it_moves(roomy: TieredDriver) -> None:
    session = roomy.setup(ONE)
    roomy.info(TWO)
    roomy.append(session, 1, [b"an event"])
    roomy.container.sessions.end(session)
    push_one_out(roomy)
    assert resident(roomy) == {ONE, THREE}


def test_the_bound_is_exceeded_and_that_is_counted_when_all_are_in_use(
    driver: TieredDriver,
) -> None:
    tiered(driver, ONE, TWO)
    for segment in (ONE, TWO):
        driver.setup(segment)
    assert resident(driver) == {ONE, TWO}
    assert driver.metrics.residency_exceeded == 1
    assert driver.metrics.segment_loads >= 1
    assert driver.metrics.segment_evictions >= 1


def test_a_read_that_waits_at_the_tail_keeps_its_segment(driver: TieredDriver) -> None:
    tiered(driver, ONE, TWO)
    number = getattr(driver.known(ONE), "number", 0)
    forget = driver.container.tails.wait(number, 60.0, lambda _: None)
    driver.info(TWO)
    evict(driver.container)
    assert ONE in resident(driver)
    forget()
    driver.info(TWO)
    evict(driver.container)
    assert ONE not in resident(driver)


def test_a_target_that_was_merged_into_while_it_was_flushed_stays(driver: TieredDriver) -> None:
    driver.create(ONE)
    driver.create(TWO)
    blocks = [write(driver, ONE), write(driver, TWO)]
    driver.seal(TWO, SEAL_STAMP)
    driver.commit()
    driver.merge(TWO, target=ONE, stamp=MERGE_STAMP)
    driver.flush_during(driver.commit)
    driver.info(THREE)
    evict(driver.container)
    assert resident(driver) >= {ONE, TWO}
    driver.flush()
    driver.info(THREE)
    driver.crash()
    assert driver.read_all(ONE) == b"".join(blocks)


class _Unlisted(MemoryChunkStorage):
    """Creates manifests and then does not answer."""

    broken = False

    async def list(self, prefix: str) -> Sequence[str]:
        if self.broken:
            raise DiskFailed("no answer")
        return await super().list(prefix)


def test_what_a_flush_moved_stays_while_nobody_knows_whether_it_ended() -> None:
    storage = _Unlisted()
    driver = TieredDriver(storage=storage, residency=ResidencyLimits(1))
    tiered(driver, ONE, TWO)
    write(driver, ONE, first=2)
    storage.broken = True
    with pytest.raises((DiskFailed, Unavailable)):
        driver.flush()
    driver.info(TWO)
    evict(driver.container)
    assert ONE in resident(driver)
    storage.broken = False
    content = driver.read_all(ONE)
    driver.flush()
    driver.info(TWO)
    assert resident(driver) == {TWO}
    driver.crash()
    assert driver.read_all(ONE) == content
    driver.finish()


# --- what happens while something waits -----------------------------------------------------------


class Doors:
    """The desks of one connection over a driver; what they spawn is run by `run`."""

    def __init__(self, driver: TieredDriver) -> None:
        self.replies: list[tuple[Message, bytes]] = []
        self._driver = driver
        self._spawned: list[Work] = []
        store = driver.new_store()
        self.reads = ReadDesk(
            store,
            lambda message, _, data: self._answered(message, bytes(data)),
            self._spawned.append,
        )
        self.appends = AppendDesk(store, lambda message, _: self._answered(message))
        self.transients = TransientDesk(store, SeededIds(1))
        self._control = ControlDesk(store, self._spawned.append)

    def _answered(self, message: Message, data: bytes = b"") -> None:
        self.replies.append((message, data))

    def control(self, request: Message) -> None:
        self._control.ask(request, self._answered)

    def run(self) -> None:
        """Load what is waited for, and do what was spawned."""
        self._driver.load()
        while self._spawned:
            self._driver.wait(self._spawned.pop(0))


def push_out(driver: TieredDriver) -> Callable[[], Coroutine[Any, Any, None]]:
    """A flush that makes everything clean, and leaves room for one segment in use."""

    async def flush() -> None:
        driver.container.residency.touch((TWO,))
        await driver.flusher.flush()

    driver.create(TWO)
    write(driver, TWO)
    return flush


def test_a_segment_stays_while_a_read_from_tier_two_waits() -> None:
    driver = TieredDriver(residency=ResidencyLimits(1), cache_size=0)
    blocks = tiered(driver, ONE)
    doors = Doors(driver)
    driver.interrupted.on_read = push_out(driver)
    doors.reads.submit(1, ReadSegment(segment=ONE, offset=0, size_max=1 << 20))
    doors.run()
    ((reply, data),) = doors.replies
    assert isinstance(reply, SegmentRead)
    assert data == blocks[ONE]
    driver.finish()


def test_a_segment_stays_while_a_truncation_looks_for_its_boundary() -> None:
    driver = TieredDriver(residency=ResidencyLimits(1), cache_size=0)
    driver.create(ONE)
    blocks = [write(driver, ONE, first) for first in (1, 2)]
    driver.flush()
    doors = Doors(driver)
    driver.interrupted.on_read = push_out(driver)
    doors.control(TruncateSegment(segment=ONE, stamp=Stamp(1, 9), offset=len(blocks[0])))
    doors.run()
    driver.commit()
    assert doors.replies == [(Truncated(start=len(blocks[0])), b"")]
    assert driver.read_all(ONE) == blocks[1]
    driver.finish()


def test_a_flush_may_commit_while_a_load_is_under_way(driver: TieredDriver) -> None:
    blocks = tiered(driver, ONE, TWO)
    write(driver, TWO, first=2)
    driver.interrupted.on_find = driver.flusher.flush
    assert driver.read_all(ONE) == blocks[ONE]
    assert driver.container.applied.clean(TWO)
    assert driver.read_all(TWO).startswith(blocks[TWO])


def test_a_setup_waits_for_its_segment_and_the_session_goes_on(driver: TieredDriver) -> None:
    tiered(driver, ONE, TWO)
    doors = Doors(driver)
    doors.appends.setup(1, SetupAppend(segment=ONE, writer_id=WRITER, session=4))
    assert doors.replies == []
    doors.run()
    assert doors.replies == [(AppendSetup(session=4, last_event_number=1), b"")]
    assert users(driver.container)(ONE)


def test_a_connection_that_ends_before_its_setup_leaves_no_session(driver: TieredDriver) -> None:
    tiered(driver, ONE, TWO)
    doors = Doors(driver)
    doors.appends.setup(1, SetupAppend(segment=ONE, writer_id=WRITER, session=4))
    doors.appends.close()
    doors.run()
    assert not users(driver.container)(ONE)


def test_a_connection_that_ends_while_its_parent_is_loaded_leaves_no_transient_segment(
    driver: TieredDriver,
) -> None:
    tiered(driver, ONE, TWO)
    doors = Doors(driver)
    request = CreateTransient(segment=ONE, writer_id=WRITER)
    doors.transients.create(request, lambda message: doors.replies.append((message, b"")))
    doors.transients.close()
    doors.run()
    driver.commit()
    assert driver.container.pending.transients == set()
    assert doors.replies == []


def test_of_two_setups_that_wait_under_one_number_the_later_counts(driver: TieredDriver) -> None:
    tiered(driver, ONE, TWO, THREE)
    doors = Doors(driver)
    for request_id, segment in enumerate((ONE, TWO)):
        doors.appends.setup(request_id, SetupAppend(segment=segment, writer_id=WRITER, session=4))
    doors.run()
    codes = [getattr(reply, "code", "") for reply, _ in doors.replies]
    assert codes == ["session-ended", ""]
    assert [users(driver.container)(segment) for segment in (ONE, TWO)] == [False, True]


def test_a_read_of_a_closed_connection_is_not_answered(driver: TieredDriver) -> None:
    tiered(driver, ONE, TWO)
    doors = Doors(driver)
    doors.reads.submit(1, ReadSegment(segment=ONE, offset=0, size_max=10))
    doors.reads.close()
    doors.run()
    assert doors.replies == []
