"""Reads from memory, the journal and tier 2, on append boundaries."""

from collections.abc import Iterator

import pytest

from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    SegmentNotFound,
)
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import OffsetLocated, ReadSegment, Stamp
from anabranch.segstore.shell.container.reader import Needed, read_now
from anabranch.segstore.shell.tiering.flush_fetch import FlushFetch
from kit.container_driver import SEGMENT
from kit.tiered_driver import TieredDriver


@pytest.fixture(params=["memory", "journal", "tier 2", "all three"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def driver(place: str) -> Iterator[TieredDriver]:
    driver = TieredDriver(cache_size=1 << 20 if place == "memory" else 0)
    yield driver
    driver.finish()


def fill(driver: TieredDriver, place: str) -> list[bytes]:
    """Six appends of growing size, two to a frame; their bytes are where `place` says."""
    driver.create()
    session = driver.setup()
    blocks = []
    for number in range(1, 7):
        blocks.append(driver.append(session, number, [b"%d" % number * number * 50]))
        if number % 2 == 0:
            driver.commit()
        if place == "all three" and number == 2:
            driver.flush()
        if place == "all three" and number == 4:
            driver.cache.size_max = 1 << 20
    if place == "tier 2":
        driver.flush()
    return blocks


def test_a_segment_reads_back_as_written_whatever_the_size_asked_for(
    driver: TieredDriver, place: str
) -> None:
    blocks = fill(driver, place)
    for size in (1, 130, 300, 1 << 20):
        assert driver.read_all(size=size) == b"".join(blocks)


def test_what_a_read_returns_ends_on_an_append_boundary(driver: TieredDriver, place: str) -> None:
    blocks = fill(driver, place)
    assert driver.read(0, size=1).data == blocks[0]
    assert driver.read(0, size=len(blocks[0]) + 1).data == blocks[0]
    assert driver.read(len(blocks[0]), size=1).data == blocks[1]


def test_bytes_can_be_read_from_and_to_anywhere(driver: TieredDriver, place: str) -> None:
    whole = b"".join(fill(driver, place))
    for offset in range(0, len(whole), 37):
        request = ReadSegment(segment=SEGMENT, offset=offset, size_max=41, whole_appends=False)
        data = driver.read_as(request).data
        assert data
        assert data == whole[offset : offset + len(data)]


def test_an_offset_within_an_append_is_refused_when_whole_ones_are_asked_for() -> None:
    driver = TieredDriver()
    fill(driver, "memory")
    with pytest.raises(InvalidRequest, match="within an append"):
        driver.read(3)
    driver.finish()


def test_offsets_are_located_on_the_next_boundary(driver: TieredDriver, place: str) -> None:
    blocks = fill(driver, place)
    ends = [sum(map(len, blocks[:count])) for count in range(len(blocks) + 1)]
    for offset in range(0, ends[-1] + 1, 13):
        expected = next(end for end in ends if end >= offset)
        assert locate(driver, offset) == OffsetLocated(offset=expected)


def locate(driver: TieredDriver, offset: int) -> OffsetLocated:
    return driver.locate(offset)


def test_the_ends_of_a_segment_have_distinct_answers(driver: TieredDriver, place: str) -> None:
    length = len(b"".join(fill(driver, place)))
    at_tail = driver.read(length).reply
    assert (at_tail.at_tail, at_tail.end_of_segment) == (True, False)
    assert not driver.read(0, size=1).reply.at_tail
    driver.seal()
    driver.commit()
    sealed = driver.read(length).reply
    assert (sealed.at_tail, sealed.end_of_segment) == (False, True)
    with pytest.raises(InvalidRequest, match="beyond"):
        driver.read(length + 1)
    driver.delete()
    driver.commit()
    with pytest.raises(SegmentNotFound):
        driver.read(0)


def test_nothing_is_readable_before_it_is_durable() -> None:
    driver = TieredDriver()
    driver.create()
    session = driver.setup()
    driver.commit()
    driver.append(session, 1, [b"pending"])
    assert driver.read(0).data == b""
    driver.commit()
    assert driver.read(0).data != b""
    driver.finish()


def test_reading_old_data_does_not_push_the_tail_out_of_memory() -> None:
    driver = TieredDriver(cache_size=1000)
    blocks = fill(driver, "memory")
    in_memory = driver.cache.used
    assert 0 < in_memory <= 1000
    assert driver.read_all() == b"".join(blocks)
    assert driver.cache.used == in_memory
    driver.finish()


def test_the_cache_never_exceeds_its_budget_and_deleted_segments_give_back_theirs() -> None:
    driver = TieredDriver(cache_size=2000)
    driver.create()
    session = driver.setup()
    for number in range(1, 40):
        driver.append(session, number, [b"x" * 100])
        driver.commit()
        assert driver.cache.used <= 2000
    driver.delete()
    driver.commit()
    assert driver.cache.used == 0
    driver.finish()


def test_raw_appends_in_tier_two_are_read_whole_or_refused_by_name() -> None:
    driver = TieredDriver(cache_size=0)
    driver.create()
    session = driver.setup()
    driver.append_raw(session, 1, 1, b"raw" * 100)
    driver.append_raw(session, 2, 1, b"bytes" * 100)
    driver.commit()
    driver.flush()
    assert driver.read_all() == b"raw" * 100 + b"bytes" * 100
    assert driver.read(0, size=10).data == b"raw" * 100 + b"bytes" * 100
    driver.finish()


def test_a_flush_under_way_still_finds_the_bytes_of_a_segment_deleted_meanwhile() -> None:
    driver = TieredDriver()
    blocks = fill(driver, "memory")
    state = driver.known(SEGMENT)
    assert isinstance(state, SegmentState)
    cut = driver.container.applied.begin_flush()
    fetch = FlushFetch(driver.container, driver.time, driver.throttle.take_up)
    driver.delete()
    driver.commit()
    fetched = driver.wait(fetch(state.number, 0, state.length))
    assert fetched == b"".join(blocks)
    driver.container.applied.end_flush(cut, ())
    with pytest.raises(KeyError):
        driver.wait(fetch(state.number, 0, state.length))
    driver.finish()


def test_a_failing_read_is_an_error_with_a_name() -> None:
    driver = TieredDriver(cache_size=0)
    fill(driver, "journal")
    driver.frames.payloads.clear()
    with pytest.raises(AnabranchError):
        driver.read(0)
    driver.finish()


def test_a_read_does_not_answer_for_a_segment_that_took_the_name_meanwhile() -> None:
    # given a read on its way to tier 2
    driver = TieredDriver(cache_size=0)
    fill(driver, "tier 2")
    request = ReadSegment(segment=SEGMENT, offset=0, size_max=100)
    needed = read_now(driver.container, request, lambda _: None)
    assert isinstance(needed, Needed)
    # when the segment is deleted and made again
    driver.delete()
    driver.create(stamp=Stamp(2, 1))
    driver.append(driver.setup(), 1, [b"other" * 100])
    driver.commit()
    # then it can tell that what it fetched is not the new segment's
    found = read_now(driver.container, request, dict.fromkeys(needed.granules, b"old").get)
    assert found.number != needed.number
    driver.finish()
