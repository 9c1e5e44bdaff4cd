"""What is recovered from log and tier 2 is what was there before, whatever happened before."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.errors import AnabranchError
from anabranch.common.tier2.state import Catalog, ChunkRef, SegmentState, TieredExtent, WriterKey
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.invariants import check_state, check_step
from kit.container_driver import ContainerDriver
from kit.tiered_driver import TieredDriver

SEGMENTS = [f"scope/stream/{number}.#epoch.0" for number in range(3)]
WRITERS = [bytes([number]) * 16 for number in range(2)]

segment = st.sampled_from(SEGMENTS)
revision = st.integers(1, 4)
ACTIONS = st.one_of(
    st.tuples(st.just("create"), segment, revision),
    st.tuples(st.just("seal"), segment, revision),
    st.tuples(st.just("delete"), segment, revision),
    st.tuples(st.just("append"), segment, st.sampled_from(WRITERS)),
    st.tuples(st.just("append"), segment, st.sampled_from(WRITERS)),
    st.tuples(st.just("commit"), segment, revision),
    st.tuples(st.just("flush"), segment, revision),
    st.tuples(st.just("crash"), segment, revision),
)


@contextmanager
def driven(cache_size: int = 4096) -> Iterator[TieredDriver]:
    driver = TieredDriver(cache_size=cache_size)
    try:
        yield driver
    finally:
        driver.finish()


def perform(driver: TieredDriver, action: tuple[str, str, int | bytes]) -> None:
    verb, name, detail = action
    match verb, detail:
        case "append", bytes():
            known = driver.container._pending.known(name)
            if isinstance(known, SegmentState) and not known.sealed:
                session = driver.setup(name, detail)
                last = driver.container._pending.last_event_number(known.number, detail)
                driver.append(session, last + 1, [b"%d" % last * 300, b"e"])
        case "commit", _:
            driver.commit()
        case "flush", _:
            driver.flush()
        case "crash", _:
            driver.crash()
        case _, int():
            getattr(driver, verb)(name, Stamp(1, detail))


def flat_writers(state: SegmentMap) -> dict[WriterKey, int]:
    return {
        (number, writer_id): last
        for number, writers in state.writers.items()
        for writer_id, last in writers.items()
    }


def snapshot(
    driver: TieredDriver,
) -> tuple[dict[str, object], dict[WriterKey, int], dict[str, bytes]]:
    state: SegmentMap = driver.container.applied.state
    living = [name for name, known in state.segments.items() if isinstance(known, SegmentState)]
    content = {name: driver.read_all(name, size=1000) for name in living}
    return dict(state.segments), flat_writers(state), content


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTIONS, max_size=40))
def test_recovery_yields_the_state_and_the_bytes_from_before(
    actions: list[tuple[str, str, int | bytes]],
) -> None:
    with driven() as driver:
        for action in actions:
            before = driver.container.applied.state.copy()
            perform(driver, action)
            check_state(driver.container.applied.state)
            check_step(before, driver.container.applied.state)
        driver.commit()
        expected = snapshot(driver)
        untiered = driver.container.applied.untiered
        assert driver.throttle.untiered == untiered
        driver.crash()
        assert snapshot(driver) == expected
        assert driver.container.applied.untiered == untiered
        driver.flush()
        driver.crash()
        assert snapshot(driver) == expected
        assert driver.throttle.untiered == 0


def test_a_crash_loses_what_was_not_synced_and_nothing_else() -> None:
    with driven() as driver:
        driver.create(SEGMENTS[0])
        session = driver.setup(SEGMENTS[0])
        kept = driver.append(session, 1, [b"kept"])
        driver.commit()
        driver.append(session, 2, [b"lost"])
        driver.crash()
        assert driver.read_all(SEGMENTS[0]) == kept
        again = driver.setup(SEGMENTS[0])
        more = driver.append(again, 2, [b"again"])
        driver.commit()
        assert driver.read_all(SEGMENTS[0]) == kept + more


def test_an_older_owner_acknowledges_nothing_after_it_was_deposed() -> None:
    with driven() as driver:
        driver.create(SEGMENTS[0])
        session = driver.setup(SEGMENTS[0])
        driver.commit()
        older, commit_older = driver.container, list(driver._commits)
        driver.append(session, 1, [b"late"])
        commit_older = list(driver._commits)
        driver.take_replies()
        driver.crash()
        for commit in commit_older:
            commit()
        codes = [getattr(reply, "code", None) for reply in driver.take_replies()]
        assert codes == ["unavailable"]
        assert older.failure is not None
        assert older.failure.code == "deposed"
        assert driver.read_all(SEGMENTS[0]) == b""


def test_a_frame_that_does_not_follow_is_corruption_and_nothing_is_served() -> None:
    with driven() as driver:
        driver.create(SEGMENTS[0])
        driver.commit()
        driver.create(SEGMENTS[1])
        driver.commit()
        position, payload = list(driver.frames.payloads.items())[1]
        driver.frames.payloads[position] = payload[:-1]
        with pytest.raises(AnabranchError) as refused:
            driver.crash()
        assert refused.value.code == "corrupt-journal"


def test_what_the_catalog_holds_of_a_frame_is_not_applied_twice() -> None:
    # given one frame with a segment's creation and two appends
    driver = ContainerDriver()
    driver.create(SEGMENTS[0])
    session = driver.setup(SEGMENTS[0])
    first = driver.append(session, 1, [b"in the catalog"])
    second = driver.append(session, 2, [b"in the log only"])
    driver.commit()
    # when the catalog ends in its middle
    state = SegmentState(SEGMENTS[0], 1, Stamp(1, 1), length=len(first), event_count=1)
    extent = TieredExtent(0, ChunkRef("c0/a-chunk", 0, len(first), 0))
    catalog = Catalog(2, {SEGMENTS[0]: state}, {}, {(1, session.writer_id): 1}, {1: (extent,)})
    driver.crash(catalog)
    # then only the rest is replayed
    assert driver.content(SEGMENTS[0]) == second
    found = driver.container.applied.state.known(SEGMENTS[0])
    assert isinstance(found, SegmentState)
    assert (found.length, found.event_count) == (len(first + second), 2)
