"""Merging: bytes of the source become the target's wherever they are, and stay readable."""

from collections.abc import Callable, Iterator

import pytest

from anabranch.common.errors import ObjectNotFound, SegmentMerged
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import (
    Failed,
    MergedSegment,
    SegmentInfo,
    SegmentsMerged,
    Stamp,
)
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.tiering.tier2 import GC_GRACE_S
from kit.container_driver import CREATE_STAMP, SEGMENT, WRITER
from kit.planted_container import merge_forgets_the_journal
from kit.tiered_driver import InterruptedStorage, TieredDriver

SOURCE, OTHER = "scope/stream/1.#epoch.0", "scope/stream/2.#epoch.0"
NAMES = (SEGMENT, SOURCE, OTHER)


@pytest.fixture(params=["memory", "journal"])
def driver(request: pytest.FixtureRequest) -> Iterator[TieredDriver]:
    driver = TieredDriver(cache_size=1 << 20 if request.param == "memory" else 0)
    for name in NAMES:
        driver.create(name)
    yield driver
    driver.finish()


def write(driver: TieredDriver, name: str, first: int = 1) -> bytes:
    """Two appends in a frame of their own."""
    session = driver.setup(name)
    data = driver.append(session, first, [name.encode() * 9])
    data += driver.append(session, first + 1, [b"more" * 9, b"still"])
    driver.commit()
    return data


def seal(driver: TieredDriver, *names: str) -> None:
    for name in names:
        driver.seal(name)
    driver.commit()


def last_reply(driver: TieredDriver) -> object:
    driver.commit()
    return driver.take_replies()[-1]


def flushed(driver: TieredDriver) -> None:
    driver.flush()


def crashed(driver: TieredDriver) -> None:
    driver.crash()


def object_count(driver: TieredDriver) -> int:
    """Chunks and manifests in tier 2."""
    assert isinstance(driver.storage, InterruptedStorage)
    return len(driver.storage.objects)


def untouched(_: TieredDriver) -> None:
    return


Happening = Callable[[TieredDriver], None]
happenings = pytest.mark.parametrize("before", [untouched, flushed, crashed])
later = pytest.mark.parametrize("after", [untouched, flushed, crashed])


@happenings
@later
def test_sources_follow_the_target_at_any_state_of_tiering(
    driver: TieredDriver, before: Happening, after: Happening
) -> None:
    # given a target and two sources of which the first half may be in tier 2
    halves = {name: write(driver, name) for name in NAMES}
    before(driver)
    whole = {name: half + write(driver, name, first=4) for name, half in halves.items()}
    seal(driver, SOURCE, OTHER)
    # when both are merged
    driver.merge(SOURCE, OTHER)
    lengths = {name: len(data) for name, data in whole.items()}
    merged = SegmentsMerged(
        merged=(
            MergedSegment(SOURCE, lengths[SEGMENT], lengths[SOURCE]),
            MergedSegment(OTHER, lengths[SEGMENT] + lengths[SOURCE], lengths[OTHER]),
        )
    )
    assert last_reply(driver) == merged
    after(driver)
    # then the target has all bytes and events, and goes on
    expected = b"".join(whole[name] for name in NAMES)
    assert driver.read_all(size=150) == expected
    expected += driver.append(driver.setup(), 7, [b"the end"])
    driver.commit()
    state = driver.known(SEGMENT)
    assert isinstance(state, SegmentState)
    assert (state.length, state.event_count) == (len(expected), 3 * 6 + 1)
    assert driver.container.applied.state.last_event_number(state.number, WRITER) == 7
    for happening in (flushed, crashed, untouched):
        assert driver.read_all(size=150) == expected
        happening(driver)
    assert driver.container.applied.untiered == 0
    driver.merge(SOURCE, OTHER)
    assert last_reply(driver) == merged


def test_a_flush_under_way_moves_bytes_of_a_segment_that_is_merged_meanwhile(
    driver: TieredDriver,
) -> None:
    target, source = write(driver, SEGMENT), write(driver, SOURCE)
    seal(driver, SOURCE)
    driver.merge(SOURCE)
    before = object_count(driver)
    driver.flush_during(driver.commit)
    # the journal has let the source's bytes go: only tier 2 holds them
    assert len(driver.frames.payloads) == 1
    assert driver.read_all() == target + source
    assert driver.container.applied.untiered == 0
    # and the next flush refers to them instead of writing them again: one manifest, no chunk
    driver.flush()
    assert object_count(driver) == before + 3
    driver.crash()
    assert driver.read_all() == target + source


def test_a_merge_while_a_flush_waits_for_the_journal_is_seen_after_the_wait() -> None:
    # given a store without a cache, so that the flush reads its bytes from the journal, aside
    driver = TieredDriver(cache_size=0)
    for name in NAMES:
        driver.create(name)
    target, source = write(driver, SEGMENT), write(driver, SOURCE)
    seal(driver, SOURCE)
    log = driver.container.log
    read_aside = log.read_aside
    merged: list[object] = []

    async def merged_meanwhile(address: LogAddress) -> bytes:
        if not merged:
            driver.merge(SOURCE)
            driver.commit()
            merged.append(driver.take_replies()[-1])
        return await read_aside(address)

    log.read_aside = merged_meanwhile  # type: ignore[method-assign]
    driver.flush()
    assert isinstance(merged[0], SegmentsMerged)
    assert driver.read_all() == target + source
    driver.flush()
    driver.crash()
    assert driver.read_all() == target + source
    driver.finish()


def test_a_merge_that_forgets_the_journal_is_caught() -> None:
    driver = TieredDriver(cache_size=0)
    for name in NAMES:
        driver.create(name)
    with merge_forgets_the_journal(), pytest.raises(ObjectNotFound, match="released"):
        test_a_flush_under_way_moves_bytes_of_a_segment_that_is_merged_meanwhile(driver)
    driver.finish()


def test_a_chain_of_merges_during_one_flush_keeps_every_byte(driver: TieredDriver) -> None:
    expected = [write(driver, name) for name in NAMES]
    seal(driver, OTHER)

    def chain() -> None:
        driver.merge(OTHER, target=SOURCE)
        driver.seal(SOURCE)
        driver.merge(SOURCE)
        driver.commit()

    driver.flush_during(chain)
    for happening in (untouched, flushed, crashed):
        happening(driver)
        assert driver.read_all() == b"".join(expected)


def test_append_merge_and_append_in_one_frame_keep_their_order(driver: TieredDriver) -> None:
    driver.commit()
    data = {}
    for name in (SEGMENT, SOURCE):
        data[name] = driver.append(driver.setup(name), 1, [name.encode()])
    driver.seal(SOURCE)
    driver.merge(SOURCE)
    last = driver.append(driver.setup(), 2, [b"last"])
    driver.commit()
    for happening in (untouched, crashed, flushed, crashed):
        happening(driver)
        assert driver.read_all() == data[SEGMENT] + data[SOURCE] + last


def test_readers_of_the_source_are_told_where_its_bytes_are(driver: TieredDriver) -> None:
    target, source = write(driver, SEGMENT), write(driver, SOURCE)
    seal(driver, SOURCE)
    driver.merge(SOURCE)
    driver.commit()
    for happening in (untouched, flushed, crashed):
        happening(driver)
        with pytest.raises(SegmentMerged) as refused:
            driver.read(0, segment=SOURCE)
        assert refused.value.fields == {
            "segment": SOURCE, "target": SEGMENT, "offset": len(target), "length": len(source),
        }  # fmt: skip


def test_a_reader_that_waits_at_the_targets_tail_is_woken(driver: TieredDriver) -> None:
    write(driver, SOURCE)
    seal(driver, SOURCE)
    state = driver.known(SEGMENT)
    assert isinstance(state, SegmentState)
    woken: list[bool] = []
    driver.container.tails.wait(state.number, 9.0, woken.append)
    driver.merge(SOURCE)
    driver.commit()
    assert woken == [False]


def test_a_refused_merge_changes_nothing(driver: TieredDriver) -> None:
    contents = {name: write(driver, name) for name in NAMES}
    seal(driver, SOURCE)
    driver.merge(SOURCE, OTHER)
    refused = last_reply(driver)
    assert isinstance(refused, Failed)
    assert (refused.code, refused.fields["segment"]) == ("segment-not-sealed", OTHER)
    assert {name: driver.read_all(name) for name in NAMES} == contents


def test_the_answer_to_a_merge_waits_for_its_sync(driver: TieredDriver) -> None:
    seal(driver, SOURCE)
    driver.take_replies()
    driver.merge(SOURCE)
    driver.merge(SOURCE)
    assert driver.take_replies() == []
    driver.commit()
    assert [type(reply) for reply in driver.take_replies()] == [SegmentsMerged] * 2


def info(driver: TieredDriver, name: str) -> SegmentInfo | Failed:
    driver.info(name, even_gone=True)
    reply = last_reply(driver)
    assert isinstance(reply, SegmentInfo | Failed)
    return reply


def test_information_tells_the_whole_life_of_a_segment(driver: TieredDriver) -> None:
    target, source = write(driver, SEGMENT), write(driver, SOURCE)
    fresh = info(driver, SOURCE)
    assert isinstance(fresh, SegmentInfo)
    assert (fresh.start, fresh.length, fresh.tiered_length) == (0, len(source), 0)
    assert (fresh.event_count, fresh.sealed, fresh.modified_ms) == (3, False, driver.time.now_ms())
    driver.time.advance(5)
    seal(driver, SOURCE)
    found = info(driver, SOURCE)
    assert isinstance(found, SegmentInfo)
    assert (found.sealed, found.sealed_in_tier_two) == (True, False)
    driver.flush()
    for _ in range(2):
        found = info(driver, SOURCE)
        assert isinstance(found, SegmentInfo)
        assert (found.tiered_length, found.sealed_in_tier_two) == (len(source), True)
        assert found.modified_ms == fresh.modified_ms
        driver.crash()
    driver.merge(SOURCE)
    merged = info(driver, SOURCE)
    assert isinstance(merged, SegmentInfo)
    assert (merged.deleted, merged.merged_into) == (True, SEGMENT)
    assert (merged.merged_offset, merged.length) == (len(target), len(source))
    after = info(driver, SEGMENT)
    assert isinstance(after, SegmentInfo)
    assert (after.length, after.event_count) == (len(target + source), 6)
    assert after.modified_ms == driver.time.now_ms()
    assert not after.deleted
    driver.delete(OTHER)
    gone = info(driver, OTHER)
    assert isinstance(gone, SegmentInfo)
    assert (gone.deleted, gone.merged_into) == (True, "")
    unknown = info(driver, "scope/stream/7.#epoch.0")
    assert getattr(unknown, "code", "") == "segment-not-found"


def test_a_merged_name_may_live_again_after_a_later_decision(driver: TieredDriver) -> None:
    seal(driver, SOURCE)
    driver.merge(SOURCE)
    driver.create(SOURCE, CREATE_STAMP)
    assert getattr(last_reply(driver), "code", "") == "stale-request"
    driver.create(SOURCE, Stamp(2, 1))
    again = write(driver, SOURCE)
    driver.flush()
    driver.crash()
    assert driver.read_all(SOURCE) == again


def collected(driver: TieredDriver) -> None:
    """Everything that nothing needs, and that nothing has needed for long, is gone."""
    driver.time.advance(2 * GC_GRACE_S)
    while driver.wait(driver.tier_two.collect()):
        pass


def chunk_names(driver: TieredDriver) -> set[str]:
    assert isinstance(driver.storage, InterruptedStorage)
    return {name for name in driver.storage.objects if "/m/" not in name}


@later
def test_chunks_of_a_merged_source_are_collected_only_when_the_target_drops_them(
    driver: TieredDriver, after: Happening
) -> None:
    data = write(driver, SEGMENT)
    driver.flush()
    data += write(driver, SOURCE)
    seal(driver, SOURCE)
    driver.flush()
    before = chunk_names(driver)
    driver.merge(SOURCE)
    driver.commit()
    driver.flush()
    after(driver)
    collected(driver)
    assert chunk_names(driver) >= before
    driver.crash()
    assert driver.read_all() == data
    driver.truncate(len(data))
    driver.commit()
    driver.flush()
    collected(driver)
    assert not chunk_names(driver) & before
