"""What is recovered from log and tier 2 is what was there before, whatever happened before."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from anabranch.common.errors import AnabranchError
from anabranch.common.tier2.state import (
    Catalog,
    ChunkRef,
    SegmentState,
    TieredExtent,
    WriterMark,
)
from anabranch.common.wire.messages import (
    Appended,
    AttributeUpdate,
    Failed,
    Stamp,
    TruncateSegment,
    UpdateKind,
)
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.invariants import check_state, check_step
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from kit.container_driver import CLIENT, WRITER, ContainerDriver
from kit.planted_container import CONTAINER_BUGS
from kit.thorough import one_in
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
    st.tuples(st.just("truncate"), segment, revision),
    st.tuples(st.just("merge"), segment, revision),
    st.tuples(st.just("merge during flush"), segment, revision),
    st.tuples(st.just("append if"), segment, revision),
    st.tuples(st.just("update"), segment, revision),
    st.tuples(st.just("commit"), segment, revision),
    st.tuples(st.just("flush during"), segment, revision),
    st.tuples(st.just("flush"), segment, revision),
    st.tuples(st.just("crash"), segment, revision),
)
CACHE_SIZES = st.sampled_from([0, 800, 1 << 20])
RESIDENT = st.sampled_from([1, 2, 100])


@contextmanager
def driven(cache_size: int = 4096, segments_max: int = 100) -> Iterator[TieredDriver]:
    driver = TieredDriver(cache_size=cache_size, residency=ResidencyLimits(segments_max))
    try:
        yield driver
    finally:
        driver.finish()


def perform(driver: TieredDriver, action: tuple[str, str, int | bytes]) -> None:
    """What takes several requests finds its segment resident in all of them."""
    if action[0] in ("append", "append if", "truncate", "update"):
        with driver.container.residency.pinned(action[1]):
            act(driver, action)
    else:
        act(driver, action)


def act(driver: TieredDriver, action: tuple[str, str, int | bytes]) -> None:
    verb, name, detail = action
    if isinstance(detail, bytes):
        append(driver, name, detail)
    elif verb == "append if":
        append_if(driver, name)
    elif verb == "commit":
        driver.commit()
    elif verb == "flush":
        driver.flush()
    elif verb == "flush during":
        driver.flush_during(driver.commit)
    elif verb == "crash":
        driver.crash()
    else:
        control(driver, verb, name, detail)


def control(driver: TieredDriver, verb: str, name: str, detail: int) -> None:
    stamp = Stamp(1, 1 + detail // 4)
    if verb == "truncate":
        truncate(driver, name, detail, stamp)
    elif verb == "update":
        update(driver, name, detail, stamp)
    elif verb == "merge":
        driver.merge(*sealed(driver, name, detail, stamp), target=name, stamp=stamp)
    elif verb == "merge during flush":
        sources = sealed(driver, name, detail, stamp)
        driver.commit()
        driver.merge(*sources, target=name, stamp=stamp)
        driver.flush_during(driver.commit)
    else:
        getattr(driver, verb)(name, stamp)


def append(driver: TieredDriver, name: str, writer: bytes) -> None:
    known = driver.pending(name)
    if isinstance(known, SegmentState) and not known.sealed:
        session = driver.setup(name, writer)
        last = driver.container._pending.last_event_number(known.number, writer)
        driver.append(session, last + 1, [b"%d" % last * 300, b"e"])


def append_if(driver: TieredDriver, name: str) -> None:
    """Twice under the same condition, pipelined: only the first may succeed."""
    known = driver.pending(name)
    if not isinstance(known, SegmentState) or known.sealed:
        return
    last = driver.container._pending.last_event_number(known.number, WRITER)
    change = AttributeUpdate(WRITER, "accumulate", 1)
    driver.take_replies()
    for number in (last + 1, last + 2):
        driver.append_if(number, [b"?"], change, expected_length=known.length, segment=name)
    driver.commit()
    first, second = driver.take_replies()[-2:]
    assert isinstance(first, Appended)
    assert isinstance(second, Failed)
    assert (second.code, second.fields["length"]) == ("offset-mismatch", first.length)


def sealed(driver: TieredDriver, name: str, detail: int, stamp: Stamp) -> list[str]:
    """Sources for a merge, in most cases sealed."""
    sources = others(name, detail)
    for source in sources if detail != 2 else ():
        driver.seal(source, stamp)
    return sources


def others(name: str, detail: int) -> list[str]:
    """One or two of the other segments."""
    found = [other for other in SEGMENTS if other != name]
    return [found[detail % 2]] if detail < 3 else found


def truncate(driver: TieredDriver, name: str, detail: int, stamp: Stamp) -> None:
    """At a boundary in the middle, or wherever the middle is."""
    known = driver.known(name)
    if isinstance(known, SegmentState):
        offset = known.start + (known.length - known.start) * detail // 4
        if detail % 2 and offset < known.length:
            offset = locate(driver, name, offset)
        request = TruncateSegment(segment=name, stamp=stamp, offset=offset)
        driver.truncate_anywhere(request)


def update(driver: TieredDriver, name: str, detail: int, stamp: Stamp) -> None:
    """Alternate between attributes and kinds."""
    known = driver.pending(name)
    number = known.number if isinstance(known, SegmentState) else 0
    last = driver.container._pending.last_event_number(number, CLIENT)
    kinds: tuple[UpdateKind, ...] = ("accumulate", "replace", "replace-if-greater", "create")
    kind = kinds[detail - 1]
    change = AttributeUpdate(bytes([detail % 2]) * 16, kind, detail)
    driver.update(last + 1, change, segment=name, stamp=stamp)


def locate(driver: TieredDriver, name: str, offset: int) -> int:
    return driver.locate(offset, name).offset


Found = tuple[Known, dict[bytes, WriterMark], bytes]


def snapshot(driver: TieredDriver) -> dict[str, Found]:
    """Of every name what is known of it, its writers and its bytes."""
    return {name: found(driver, name) for name in SEGMENTS}


def found(driver: TieredDriver, name: str) -> Found:
    state = driver.container.applied.state
    with driver.container.residency.pinned(name):
        known = driver.known(name)
        if not isinstance(known, SegmentState):
            return known, {}, b""
        marks = dict(state.writers.get(known.number, {}))
    return known, marks, driver.read_all(name, size=1000)


def live_and_recover(
    cache_size: int, segments_max: int, actions: list[tuple[str, str, int | bytes]]
) -> None:
    """Whatever was done: a crash, a flush and another crash show what was there before."""
    with driven(cache_size, segments_max) as driver:
        for name in SEGMENTS:
            driver.create(name, Stamp(1, 1))
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
        assert driver.container.applied.untiered == 0
        driver.crash()
        assert snapshot(driver) == expected
        assert driver.throttle.untiered == 0


@settings(max_examples=150 // one_in(4))
@given(CACHE_SIZES, RESIDENT, st.lists(ACTIONS, max_size=40))
def test_recovery_yields_the_state_and_the_bytes_from_before(
    cache_size: int, segments_max: int, actions: list[tuple[str, str, int | bytes]]
) -> None:
    live_and_recover(cache_size, segments_max, actions)


@settings(max_examples=150 // one_in(4))
@given(CACHE_SIZES, st.integers(1, 2), st.lists(ACTIONS, max_size=40))
def test_evicting_changes_no_answer(
    cache_size: int, segments_max: int, actions: list[tuple[str, str, int | bytes]]
) -> None:
    """Two containers live the same life; one of them forgets whatever it may."""
    with driven(cache_size) as one, driven(cache_size, segments_max) as other:
        for action in [*(("create", name, 1) for name in SEGMENTS), *actions]:
            for driver in (one, other):
                perform(driver, action)
                check_state(driver.container.pending)
            assert one.take_replies() == other.take_replies()
        one.commit()
        other.commit()
        assert snapshot(one) == snapshot(other)


@pytest.mark.parametrize("bug", CONTAINER_BUGS)
def test_a_planted_bug_is_caught(bug: str) -> None:
    @settings(max_examples=2000, derandomize=True, phases=[Phase.generate])
    @given(CACHE_SIZES, RESIDENT, st.lists(ACTIONS, min_size=10, max_size=40))
    def look_for_it(
        cache_size: int, segments_max: int, actions: list[tuple[str, str, int | bytes]]
    ) -> None:
        live_and_recover(cache_size, segments_max, actions)

    with CONTAINER_BUGS[bug](), pytest.raises((AssertionError, AnabranchError, KeyError)):
        look_for_it()


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
    catalog = Catalog(
        2, {SEGMENTS[0]: state}, {}, {(1, session.writer_id): WriterMark(1)}, {1: (extent,)}
    )
    driver.crash(catalog)
    # then only the rest is replayed
    assert driver.content(SEGMENTS[0]) == second
    found = driver.known(SEGMENTS[0])
    assert isinstance(found, SegmentState)
    assert (found.length, found.event_count) == (len(first + second), 2)
