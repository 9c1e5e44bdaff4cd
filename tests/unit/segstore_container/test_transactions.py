"""Transaction segments: merged unsealed, once, and without leaving the target in shreds."""

from collections.abc import Callable, Iterator

import pytest

from anabranch.common.model.names import transaction_segment_name
from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.common.wire.messages import Failed, MergedSegment, SegmentsMerged, Stamp
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.shell.tiering.tier2 import GC_GRACE_S, TOMBSTONE_S
from kit.container_driver import SEGMENT
from kit.tiered_driver import InterruptedStorage, TieredDriver

DECIDED, ABORTED = Stamp(1, 4), Stamp(1, 2)
HOUR_S = 3600.0


@pytest.fixture(params=["memory", "journal"])
def driver(request: pytest.FixtureRequest) -> Iterator[TieredDriver]:
    driver = TieredDriver(cache_size=1 << 20 if request.param == "memory" else 0)
    driver.create()
    yield driver
    driver.finish()


def names_of(count: int) -> list[str]:
    return [transaction_segment_name(SEGMENT, f"{number:032x}") for number in range(count)]


def begun(driver: TieredDriver, count: int, *, first: int = 0) -> dict[str, bytes]:
    """Transactions with an append each, by the names of their segments."""
    contents = {}
    for name in names_of(first + count)[first:]:
        driver.create(name)
        contents[name] = driver.append(driver.setup(name), 1, [name.encode()])
        driver.commit()
    return contents


def last_reply(driver: TieredDriver) -> object:
    driver.commit()
    return driver.take_replies()[-1]


def flushed(driver: TieredDriver) -> None:
    driver.flush()


def crashed(driver: TieredDriver) -> None:
    driver.crash()


def untouched(_: TieredDriver) -> None:
    return


def extents_of(driver: TieredDriver, name: str = SEGMENT) -> int:
    """How many the newest manifest tells of, and the index knows, of the segment."""
    state = driver.known(name)
    assert isinstance(state, SegmentState)
    index = driver.container.applied.index.get(state.number)
    assert index is not None
    assert index.tiered
    (entry,) = driver.wait(driver.tier_two.find([name])).values()
    assert sum(extent.ref.length for extent in entry.extents) == state.length
    return len(entry.extents)


Happening = Callable[[TieredDriver], None]
happenings = pytest.mark.parametrize("happening", [untouched, flushed, crashed])


@happenings
def test_what_is_in_flight_before_the_merge_is_in_and_what_comes_after_is_refused(
    driver: TieredDriver, happening: Happening
) -> None:
    name = names_of(1)[0]
    driver.create(name)
    session = driver.setup(name)
    content = driver.append(session, 1, [b"stored"])
    driver.commit()
    happening(driver)
    session = driver.setup(name)
    # in one frame: an append, the merge, a late append with the session and one without
    content += driver.append(session, 2, [b"in flight"])
    driver.merge(name, stamp=DECIDED)
    driver.append(session, 3, [b"late"])
    driver.append_once(3, [b"later still"], segment=name)
    driver.commit()
    merge, late, once = driver.take_replies()[-3:]
    assert merge == SegmentsMerged(merged=(MergedSegment(name, 0, len(content)),))
    assert isinstance(late, Failed)
    assert isinstance(once, Failed)
    assert (late.code, once.code) == ("segment-merged", "outcome-unknown")
    for later in (untouched, crashed, flushed, crashed):
        later(driver)
        assert driver.read_all() == content


def test_an_append_that_was_sent_again_after_the_merge_is_not_stored_twice(
    driver: TieredDriver,
) -> None:
    contents = begun(driver, 1)
    (name,) = contents
    session = driver.setup(name)
    driver.merge(name, stamp=DECIDED)
    driver.append(session, 1, [name.encode()])
    assert getattr(last_reply(driver), "code", "") == "segment-merged"
    assert driver.read_all() == contents[name]


def test_a_hundred_transactions_are_one_log_operation(driver: TieredDriver) -> None:
    contents = begun(driver, 100)
    before = driver.container.pending.sequence
    driver.merge(*contents, stamp=DECIDED)
    assert driver.container.pending.sequence == before + 1
    first = last_reply(driver)
    driver.merge(*contents, stamp=DECIDED)
    assert last_reply(driver) == first
    assert driver.container.pending.sequence == before + 1
    assert driver.read_all() == b"".join(contents.values())


def test_empty_transactions_are_merged_once(driver: TieredDriver) -> None:
    names = names_of(3)
    for name in names:
        driver.create(name)
    for _ in range(2):
        driver.merge(*names, stamp=DECIDED)
        places = tuple(MergedSegment(name, 0, 0) for name in names)
        assert last_reply(driver) == SegmentsMerged(merged=places)
    assert isinstance(driver.known(names[0]), Tombstone)
    assert driver.container.pending.sequence == 1 + 3 + 1


def test_a_merge_repeated_after_its_tombstones_expired_is_answered(driver: TieredDriver) -> None:
    contents = begun(driver, 2)
    driver.merge(*contents, stamp=DECIDED)
    driver.commit()
    driver.flush()
    length = sum(map(len, contents.values()))
    # given a day has passed, and something was flushed, so that what is old is forgotten
    driver.time.advance(TOMBSTONE_S + 1)
    content = b"".join(contents.values()) + driver.append(driver.setup(), 1, [b"next day"])
    driver.commit()
    driver.flush()
    driver.crash()
    for name in contents:
        assert driver.known(name) is None
    # when the controller, which never heard the answer, asks again
    driver.merge(*contents, stamp=DECIDED)
    end = len(content)
    assert last_reply(driver) == SegmentsMerged(
        merged=tuple(MergedSegment(name, end, 0) for name in contents)
    )
    assert end > length
    assert driver.read_all() == content


def test_what_an_abort_deleted_stays_away_for_a_day(driver: TieredDriver) -> None:
    contents = begun(driver, 1)
    never_made = names_of(2)[1]
    for name in (*contents, never_made):
        driver.delete(name, ABORTED)
    driver.commit()
    for happening in (untouched, flushed, crashed):
        happening(driver)
        driver.time.advance(7.9 * HOUR_S)
        for name in (*contents, never_made):
            driver.create(name)
            assert getattr(last_reply(driver), "code", "") == "stale-request"


def test_a_late_deletion_does_not_undo_the_merge(driver: TieredDriver) -> None:
    contents = begun(driver, 1)
    driver.merge(*contents, stamp=DECIDED)
    driver.delete(names_of(1)[0], ABORTED)
    assert getattr(last_reply(driver), "code", "") == "stale-request"
    assert driver.read_all() == b"".join(contents.values())


def test_tombstones_cannot_be_set_to_expire_within_a_day() -> None:
    field = SegstoreSettings.model_fields["tombstone_s"]
    assert field.default >= 24 * HOUR_S
    assert [limit.ge for limit in field.metadata if hasattr(limit, "ge")] == [24 * HOUR_S]
    assert TOMBSTONE_S == 24 * HOUR_S


@pytest.mark.parametrize("tiered_every", [0, 1, 7])
def test_merged_transactions_leave_few_extents(driver: TieredDriver, tiered_every: int) -> None:
    # given transactions of which all, some or none are in tier 2 when they are merged
    content = b""
    session = driver.setup()
    for merged in range(4):
        contents: dict[str, bytes] = {}
        for number in range(30):
            contents |= begun(driver, 1, first=merged * 30 + number)
            if tiered_every and number % tiered_every == 0:
                driver.flush()
        driver.merge(*contents, stamp=Stamp(1, 4 + merged))
        content += b"".join(contents.values())
        content += driver.append(session, merged + 1, [b"between"])
        driver.commit()
    # when what was merged is flushed
    driver.flush()
    # then there is one extent for each flush that followed a merge, and all bytes are there
    expected = 4 if tiered_every else 1
    assert extents_of(driver) == expected
    driver.crash()
    assert driver.read_all(size=300) == content
    assert extents_of(driver) == expected
    # also when what held them before is collected
    driver.time.advance(2 * GC_GRACE_S)
    while driver.wait(driver.tier_two.collect()):
        pass
    driver.crash()
    assert driver.read_all() == content


def test_a_transaction_alone_keeps_its_extent_and_is_not_written_again(
    driver: TieredDriver,
) -> None:
    contents = begun(driver, 1)
    driver.flush()
    before = chunk_names(driver)
    driver.merge(*contents, stamp=DECIDED)
    driver.commit()
    driver.flush()
    assert chunk_names(driver) == before
    assert extents_of(driver) == 1


def test_a_merge_into_another_segment_while_extents_are_gathered_keeps_every_byte(
    driver: TieredDriver,
) -> None:
    contents = begun(driver, 3)
    driver.flush()
    whole, final = b"".join(contents.values()), "scope/stream/1.#epoch.0"
    driver.create(final)
    driver.merge(*contents, stamp=DECIDED)
    driver.commit()

    def merged_on() -> None:
        driver.seal(stamp=DECIDED)
        driver.merge(SEGMENT, target=final, stamp=DECIDED)
        driver.commit()

    driver.flush_during(merged_on)
    for happening in (untouched, flushed, crashed):
        happening(driver)
        assert driver.read_all(final) == whole
    assert extents_of(driver, final) == 1


def test_a_failed_flush_gathers_again(driver: TieredDriver) -> None:
    contents = begun(driver, 3)
    driver.flush()
    driver.merge(*contents, stamp=DECIDED)
    driver.commit()

    def fail() -> None:
        raise OSError(5, "no")

    with pytest.raises(OSError, match="no"):
        driver.flush_during(fail)
    assert driver.read_all() == b"".join(contents.values())
    driver.flush()
    assert extents_of(driver) == 1
    assert driver.read_all() == b"".join(contents.values())


def test_damaged_extents_stay_apart_and_cost_nothing_else(driver: TieredDriver) -> None:
    contents = begun(driver, 3)
    driver.flush()
    driver.merge(*contents, stamp=DECIDED)
    driver.commit()
    assert isinstance(driver.storage, InterruptedStorage)
    (chunk,) = chunk_names(driver)
    data = bytearray(driver.storage.objects[chunk])
    data[10] ^= 1
    driver.storage.objects[chunk] = bytes(data)
    driver.flush()
    assert extents_of(driver) == 3
    # what is whole is still to be read
    begin = len(next(iter(contents.values())))
    assert driver.read(begin).data


def chunk_names(driver: TieredDriver) -> set[str]:
    assert isinstance(driver.storage, InterruptedStorage)
    return {name for name in driver.storage.objects if "/m/" not in name}
