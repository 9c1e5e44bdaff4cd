"""Where the appends of a time begin, wherever they are: memory, the journal, tier 2."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import SegmentNotFound, Unavailable
from anabranch.common.wire.messages import LocateTime, Message, OffsetLocated, TruncateSegment
from anabranch.segstore.domain.container.circumstances import NOTHING_GIVEN, TimesInTierTwo
from anabranch.segstore.shell.container.tiered_events import look_up
from kit.container_driver import SEGMENT, TRUNCATE_STAMP
from kit.tiered_driver import TieredDriver

SOURCE = "scope/stream/1.#epoch.0"


@pytest.fixture(params=["memory", "journal", "tier 2", "all three"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def driver(place: str) -> Iterator[TieredDriver]:
    driver = TieredDriver(cache_size=1 << 20 if place == "memory" else 0)
    yield driver
    driver.finish()


def fill(driver: TieredDriver, place: str) -> list[tuple[int, int]]:
    """Six appends a second apart, one to a frame; (time, end) of each."""
    driver.create()
    session = driver.setup()
    taken: list[tuple[int, int]] = []
    end = 0
    for number in range(1, 7):
        driver.time.advance(1)
        end += len(driver.append(session, number, [b"%d" % number * number * 50]))
        taken.append((driver.time.now_ms(), end))
        driver.commit()
        if place == "tier 2" or (place == "all three" and number <= 3):
            driver.flush()
        if place == "all three" and number == 4:
            driver.cache.size_max = 1 << 20
    return taken


def test_all_appends_before_the_place_are_older_and_the_next_one_is_not(
    driver: TieredDriver, place: str
) -> None:
    taken = fill(driver, place)
    ends = [0, *(end for _, end in taken)]
    for count, (at_ms, _) in enumerate(taken):
        for time_ms in (at_ms, at_ms - 1, at_ms - 999):
            assert driver.locate_time(time_ms) == OffsetLocated(offset=ends[count])
    assert driver.locate_time(taken[-1][0] + 1) == OffsetLocated(offset=ends[-1])
    assert driver.locate_time(0) == OffsetLocated(offset=0)


def test_the_place_is_never_before_the_start(driver: TieredDriver, place: str) -> None:
    taken = fill(driver, place)
    driver.truncate_anywhere(
        TruncateSegment(segment=SEGMENT, stamp=TRUNCATE_STAMP, offset=taken[2][1])
    )
    driver.commit()
    assert driver.locate_time(taken[0][0]) == OffsetLocated(offset=taken[2][1])
    assert driver.locate_time(taken[4][0]) == OffsetLocated(offset=taken[3][1])


def test_within_a_chunk_the_place_may_lie_at_the_last_listed_append_before_it() -> None:
    driver = TieredDriver(cache_size=0)
    taken = fill(driver, "journal")
    driver.flush()
    assert driver.locate_time(taken[3][0]) == OffsetLocated(offset=0)
    assert driver.locate_time(taken[5][0] + 1) == OffsetLocated(offset=taken[5][1])
    driver.finish()


def test_an_append_that_is_not_durable_is_not_seen() -> None:
    driver = TieredDriver()
    taken = fill(driver, "memory")
    session = driver.setup()
    driver.commit()
    driver.append(session, 7, [b"pending"])
    assert driver.locate_time(taken[5][0] + 1) == OffsetLocated(offset=taken[5][1])
    driver.finish()


def test_an_unknown_segment_is_named() -> None:
    driver = TieredDriver()
    found: list[Message] = []
    request = LocateTime(segment=SOURCE, time_ms=0)
    driver.now(SOURCE, lambda: driver.container.ask(request, found.append))
    assert getattr(found[0], "code", "") == SegmentNotFound.code
    driver.finish()


@pytest.mark.parametrize("flushed", [False, True], ids=["journal", "tier 2"])
def test_older_appends_of_a_merged_segment_hide_no_younger_ones(flushed: bool) -> None:
    driver = TieredDriver(cache_size=0)
    driver.create(SOURCE)
    merged = driver.setup(segment=SOURCE)
    driver.append(merged, 1, [b"old"])
    driver.commit()
    if flushed:
        driver.flush()
    driver.time.advance(10)
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"young"])
    driver.commit()
    if flushed:
        driver.flush()
    driver.seal(SOURCE)
    driver.merge(SOURCE)
    driver.commit()
    if flushed:
        driver.flush()
    assert driver.locate_time(driver.time.now_ms() - 5) == OffsetLocated(offset=0)
    driver.finish()


def test_bytes_that_move_to_tier_two_during_the_search_are_asked_for_again() -> None:
    driver = TieredDriver(cache_size=0)
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"one"])
    driver.commit()
    driver.flush()
    driver.time.advance(1)
    driver.append(session, 2, [b"two"])
    driver.commit()
    request = LocateTime(segment=SEGMENT, time_ms=driver.time.now_ms())
    found: list[Message] = []
    place = driver.container.ask(request, found.append)
    assert isinstance(place, TimesInTierTwo)
    given_ = driver.wait(look_up(driver.tier_two, place, NOTHING_GIVEN))
    driver.flush()
    assert driver.container.ask(request, found.append, given_) is None
    driver.commit()
    (answer,) = found
    assert getattr(answer, "code", "") == Unavailable.code
    driver.finish()


def test_a_younger_append_before_an_older_one_of_its_chunk_is_not_passed_over() -> None:
    """As after a clock was set back, or in a chunk that gathers a transaction's events."""
    driver = TieredDriver(cache_size=0)
    driver.create()
    session = driver.setup()
    driver.time.advance(10)
    driver.append(session, 1, [b"young"])
    driver.time.seconds -= 10
    driver.append(session, 2, [b"old"])
    driver.commit()
    wanted_ms = driver.time.now_ms() + 5000
    assert driver.locate_time(wanted_ms) == OffsetLocated(offset=0)
    driver.flush()
    assert driver.locate_time(wanted_ms) == OffsetLocated(offset=0)
    driver.finish()


def test_within_a_large_chunk_the_place_is_found_to_64_kib() -> None:
    driver = TieredDriver(cache_size=0)
    driver.create()
    session = driver.setup()
    ends, times = [0], []
    for number in range(1, 5):
        driver.time.advance(1)
        times.append(driver.time.now_ms())
        ends.append(ends[-1] + len(driver.append(session, number, [b"x" * 70_000])))
    driver.commit()
    driver.flush()
    for end, at_ms in zip(ends, times, strict=False):
        assert driver.locate_time(at_ms) == OffsetLocated(offset=end)
    driver.finish()


@pytest.mark.parametrize("flushed", [False, True], ids=["journal", "tier 2"])
def test_a_truncated_append_of_the_same_frame_does_not_count(flushed: bool) -> None:
    driver = TieredDriver(cache_size=0)
    driver.create()
    session = driver.setup()
    first = len(driver.append(session, 1, [b"one"]))
    driver.append(session, 2, [b"two"])
    driver.commit()
    if flushed:
        driver.flush()
    request = TruncateSegment(segment=SEGMENT, stamp=TRUNCATE_STAMP, offset=first)
    driver.truncate_anywhere(request)
    driver.commit()
    assert driver.locate_time(0) == OffsetLocated(offset=first)
    driver.finish()


steps = st.lists(
    st.one_of(st.integers(0, 3), st.sampled_from(["commit", "flush"])), min_size=1, max_size=25
)


@given(steps)
def test_the_place_is_exact_in_the_journal_and_never_too_late_in_tier_two(
    course: list[int | str],
) -> None:
    """A number is an append so many seconds after the last one."""
    driver = TieredDriver(cache_size=0)
    driver.create()
    session = driver.setup()
    taken: list[tuple[int, int]] = []
    end = number = 0
    flushed = False
    for step in course:
        if step == "flush":
            driver.commit()
            driver.flush()
            flushed = True
        elif step == "commit":
            driver.commit()
        else:
            assert isinstance(step, int)
            driver.time.advance(step)
            number += 1
            end += len(driver.append(session, number, [b"x" * 30]))
            taken.append((driver.time.now_ms(), end))
    driver.commit()
    begins = [0, *(end for _, end in taken)]
    for time_ms in {at_ms + more for at_ms, _ in taken for more in (0, 1)}:
        young = (at for at, (at_ms, _) in enumerate(taken) if at_ms >= time_ms)
        exact = begins[next(young, len(taken))]
        found = driver.locate_time(time_ms).offset
        assert found in begins
        assert found == exact if not flushed else found <= exact
    for before, after in itertools.pairwise(sorted({at_ms for at_ms, _ in taken})):
        assert driver.locate_time(before).offset <= driver.locate_time(after).offset
    driver.finish()
