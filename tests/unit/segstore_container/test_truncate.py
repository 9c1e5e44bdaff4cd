"""Truncation: at append boundaries wherever they are known, monotone, and for good."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from anabranch.common.errors import SegmentTruncated
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import (
    CheckTruncation,
    Failed,
    Stamp,
    Truncated,
    TruncateSegment,
)
from kit.container_driver import SEGMENT
from kit.tier2_catalog import catalog_of
from kit.tiered_driver import TieredDriver


@pytest.fixture(params=["memory", "journal", "tier 2", "half"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def driver(place: str) -> Iterator[TieredDriver]:
    driver = TieredDriver(cache_size=1 << 20 if place == "memory" else 0)
    yield driver
    driver.finish()


def fill(driver: TieredDriver, place: str, *, raw: bool = False) -> list[bytes]:
    """Six appends, two to a frame."""
    driver.create()
    session = driver.setup()
    found = []
    for number in range(1, 7):
        if raw:
            found.append(b"%d" % number * (number * 50))
            driver.append_raw(session, number, 1, found[-1])
        else:
            found.append(driver.append(session, number, [b"%d" % number * number * 50]))
        if number % 2 == 0:
            driver.commit()
        if place == "half" and number == 4:
            driver.flush()
    if place == "tier 2":
        driver.flush()
    return found


def truncate(driver: TieredDriver, offset: int, revision: int = 2) -> object:
    """The answer."""
    driver.truncate_anywhere(
        TruncateSegment(segment=SEGMENT, stamp=Stamp(1, revision), offset=offset)
    )
    driver.commit()
    return driver.take_replies()[-1]


def check(driver: TieredDriver, offset: int, revision: int = 2) -> object:
    """What a truncation would be answered."""
    driver.truncate_anywhere(
        CheckTruncation(segment=SEGMENT, stamp=Stamp(1, revision), offset=offset)
    )
    driver.commit()
    return driver.take_replies()[-1]


def refusal(reply: object) -> tuple[str, object]:
    assert isinstance(reply, Failed)
    return reply.code, reply.fields.get("lower")


def test_every_boundary_is_known_and_nothing_else_passes_for_one(
    driver: TieredDriver, place: str
) -> None:
    blocks = fill(driver, place)
    ends = [sum(map(len, blocks[:count])) for count in range(7)]
    for lower, end in pairwise(ends):
        for offset in (lower + 1, end - 1):
            assert refusal(truncate(driver, offset)) == ("not-at-boundary", lower)
        assert truncate(driver, end) == Truncated(start=end)
        assert driver.read_all(size=200) == b"".join(blocks)[end:]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_check_answers_as_the_truncation_would_and_changes_nothing(
    driver: TieredDriver, place: str, sealed: bool
) -> None:
    blocks = fill(driver, place)
    if sealed:
        driver.seal(stamp=Stamp(1, 2))
        driver.commit()
    whole = b"".join(blocks)
    boundary = len(blocks[0] + blocks[1])
    before = driver.known(SEGMENT)

    checked = {
        (offset, revision): check(driver, offset, revision)
        for revision in (0, 2, 3)
        for offset in (0, boundary - 1, boundary, boundary + 1, len(whole), len(whole) + 1)
    }

    assert driver.known(SEGMENT) == before
    assert driver.read_all(size=200) == whole
    for (offset, revision), expected in checked.items():
        if isinstance(expected, Failed):
            assert truncate(driver, offset, revision) == expected
    assert checked[boundary, 3] == truncate(driver, boundary, 3) == Truncated(start=boundary)
    assert refusal(checked[boundary + 1, 3]) == ("not-at-boundary", boundary)
    assert refusal(checked[len(whole) + 1, 3])[0] == "invalid-request"
    assert refusal(checked[boundary, 0])[0] == "stale-request"
    assert check(driver, 0, 3) == Truncated(start=boundary)


def test_bytes_that_are_no_blocks_are_truncated_where_boundaries_are_listed(
    driver: TieredDriver, place: str
) -> None:
    whole = b"".join(fill(driver, place, raw=True))
    tiered = {"tier 2": len(whole), "half": 500}.get(place, 0)
    lower = 0 if tiered else 150
    assert refusal(truncate(driver, 151)) == ("not-at-boundary", lower)
    assert truncate(driver, len(whole)) == Truncated(start=len(whole))
    assert driver.read_all() == b""


def test_what_is_truncated_is_gone_for_good_and_the_rest_is_not(
    driver: TieredDriver, place: str
) -> None:
    blocks = fill(driver, place)
    start = len(blocks[0] + blocks[1] + blocks[2])
    assert truncate(driver, start) == Truncated(start=start)
    rest = b"".join(blocks[3:])
    for happening in (None, driver.crash, driver.flush, driver.crash, driver.flush):
        if happening is not None:
            happening()
        assert driver.read_all(size=200) == rest
        with pytest.raises(SegmentTruncated) as refused:
            driver.read(start - 1)
        assert refused.value.fields["start"] == start
        state = driver.known(SEGMENT)
        assert isinstance(state, SegmentState)
        assert (state.start, state.event_count) == (start, 6)
        assert truncate(driver, 0) == Truncated(start=start)
    assert driver.container.applied.untiered == 0


def test_a_segment_truncated_to_its_end_takes_no_room_and_grows_on(
    driver: TieredDriver, place: str
) -> None:
    length = len(b"".join(fill(driver, place)))
    truncate(driver, length)
    assert driver.container.applied.untiered == driver.throttle.untiered == 0
    assert driver.cache.used == 0
    driver.flush()
    assert driver.wait(catalog_of(driver.tier_two)).extents == {1: ()}
    driver.crash()
    more = driver.append(driver.setup(), 7, [b"more"])
    driver.commit()
    for happening in (driver.crash, driver.flush, driver.crash):
        happening()
        assert driver.read_all() == more


def test_a_sealed_segment_is_truncated_too(driver: TieredDriver, place: str) -> None:
    blocks = fill(driver, place)
    driver.seal()
    assert truncate(driver, len(blocks[0])) == Truncated(start=len(blocks[0]))
    driver.crash()
    assert driver.read_all() == b"".join(blocks[1:])


def test_a_flush_under_way_still_finds_what_is_truncated_meanwhile(
    driver: TieredDriver, place: str
) -> None:
    blocks = fill(driver, place)
    more = driver.append(driver.setup(), 7, [b"more"])
    driver.commit()
    start = len(b"".join(blocks))

    def happening() -> None:
        truncate(driver, start)

    driver.flush_during(happening)
    assert driver.read_all() == more
    assert driver.container.applied.untiered == 0
    driver.flush()
    extents = driver.wait(catalog_of(driver.tier_two)).extents[1]
    assert all(held.start + held.ref.length > start for held in extents)
    driver.crash()
    assert driver.read_all() == more


def test_a_truncation_sees_the_appends_that_are_still_pending() -> None:
    driver = TieredDriver()
    driver.create()
    session = driver.setup()
    first = driver.append(session, 1, [b"one"])
    second = driver.append(session, 2, [b"two"])
    driver.truncate(len(first) + 1)
    driver.truncate(len(first))
    driver.commit()
    replies = driver.take_replies()
    assert refusal(replies[-2]) == ("not-at-boundary", len(first))
    assert replies[-1] == Truncated(start=len(first))
    assert driver.read_all() == second
    driver.finish()


def test_a_reader_that_waits_at_the_tail_is_completed() -> None:
    driver = TieredDriver()
    length = len(b"".join(fill(driver, "memory")))
    woken: list[bool] = []
    driver.container.tails.wait(1, 9.0, woken.append)
    truncate(driver, length)
    assert woken == [False]
    driver.finish()
