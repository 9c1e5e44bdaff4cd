"""The numbers of events of a topic's segment, wherever its bytes are: memory, journal, tier 2."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.errors import RecordEvicted, SegmentNotFound
from anabranch.common.wire.messages import (
    NO_DECISION,
    AppendSetup,
    EventLocated,
    Failed,
    LocateEvent,
    SegmentInfo,
    Stamp,
    TruncateSegment,
)
from anabranch.segstore.domain.container.circumstances import EventsInTierTwo
from anabranch.segstore.domain.storage.plan import ChunkLimits
from anabranch.segstore.domain.storage.space import RewriteLimits
from anabranch.segstore.shell.tiering.tier2 import TierTwoLimits
from kit.container_driver import SEGMENT
from kit.thorough import one_in
from kit.tiered_driver import TieredDriver
from kit.topic_parts import partition

PARTITION, OTHER = partition(0), partition(1)
TINY = TierTwoLimits(
    chunks=ChunkLimits(chunk_max=1500, own_chunk_min=800, sparse_interval=400, gathered_max=300),
    rewrite=RewriteLimits(live_share=0.9, rest_s=0.0),
)


@dataclass
class Model:
    """What a segment must say: `ends` are its boundaries with the events before each."""

    ends: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    start: tuple[int, int] = (0, 0)
    durable: int = 1
    """How many of the boundaries are durable."""

    def append(self, size: int, event_count: int) -> None:
        end, count = self.ends[-1]
        self.ends.append((end + size, count + event_count))

    @property
    def kept(self) -> list[tuple[int, int]]:
        return [found for found in self.ends[: self.durable] if found >= self.start]


class Story:
    """A partition and its model. A neighbour's bytes die, so that objects are rewritten."""

    def __init__(self, *, cache_size: int = 0, limits: TierTwoLimits = TINY) -> None:
        self.driver = TieredDriver(cache_size=cache_size, limits=limits)
        self.model = Model()
        self.written = self.uploads = 0
        self.stamp = 1
        for name in (PARTITION, OTHER):
            self.driver.create(name)
        self.driver.commit()

    def append(self, event_count: int, size: int = 40) -> None:
        events = [b"x" * size] * event_count
        block = self.driver.append_once(self.written + 1, events, segment=PARTITION)
        self.written += event_count
        self.model.append(len(block), event_count)

    def uploaded(self, event_count: int) -> tuple[str, int]:
        """A sealed transient segment of the partition, and its length."""
        self.uploads += 1
        name = self.driver.create_transient(self.uploads, PARTITION)
        block = self.driver.append_once(1, [b"u" * 200] * event_count, segment=name)
        self.driver.seal(name, NO_DECISION)
        return name, len(block)

    def merge(self, uploads: list[tuple[str, int]], event_count: int) -> None:
        """As a large record is: its parts come by a merge."""
        names = [name for name, _ in uploads]
        self.driver.merge(*names, target=PARTITION, stamp=NO_DECISION)
        for _, size in uploads:
            self.model.append(size, event_count)

    def upload(self, event_count: int, flush: str) -> None:
        """Merge two uploads, before or after they are flushed, or while a flush is under way."""
        uploads = [self.uploaded(event_count) for _ in range(2)]
        if flush == "tiered":
            self.flush()
        if flush != "flushing":
            self.merge(uploads, event_count)
            return

        def happening() -> None:
            self.merge(uploads, event_count)
            self.commit()

        self.commit()
        self.driver.flush_during(happening)

    def commit(self) -> None:
        self.driver.commit()
        self.model.durable = len(self.model.ends)

    def flush(self) -> None:
        self.commit()
        self.driver.flush()

    def crash(self) -> None:
        del self.model.ends[self.model.durable :]
        self.driver.crash()
        self.driver.commit()
        self.driver.setup(PARTITION)
        self.driver.commit()
        setup = self.driver.take_replies()[-1]
        assert isinstance(setup, AppendSetup)
        self.written = setup.last_event_number

    def truncate(self, boundary: tuple[int, int]) -> None:
        self.stamp += 1
        request = TruncateSegment(segment=PARTITION, stamp=Stamp(1, self.stamp), offset=boundary[0])
        self.driver.truncate_anywhere(request)
        self.commit()
        self.model.start = max(self.model.start, boundary)

    def rewrite(self) -> None:
        """Make much of every object dead, and have the rest of it copied."""
        self.flush()
        while self.driver.wait(self.driver.tier_two.collect()):
            pass
        self.driver.time.advance(10_000)
        if self.driver.wait(self.driver.tier_two.rewrite()):
            self.driver.flush()

    def start_event_count(self) -> int:
        self.driver.info(PARTITION)
        self.driver.commit()
        info = self.driver.take_replies()[-1]
        assert isinstance(info, SegmentInfo)
        return info.start_event_count

    def check(self, *, exact_from: int = 2**62) -> None:
        """Every number is located at a true boundary, never too late, and not far too early.

        From the number `exact_from` on, at the greatest one.
        """
        boundaries = set(self.model.kept)
        first, last = self.model.start, self.model.ends[self.model.durable - 1]
        for number in range(last[1] + 2):
            found = self.driver.locate_event(number, PARTITION)
            if number < first[1]:
                assert isinstance(found, Failed)
                assert found.code == RecordEvicted.code
                assert found.fields["next_available"] == first[1]
                continue
            assert isinstance(found, EventLocated)
            assert (found.offset, found.event_index) in boundaries
            assert found.event_index <= number
            exact = max(held for held in boundaries if held[1] <= number)
            assert exact[0] - found.offset < 1500
            assert number < exact_from or found.offset == exact[0]
            if number >= last[1]:
                assert (found.offset, found.event_index) == last


@pytest.fixture
def story() -> Iterator[Story]:
    story = Story()
    yield story
    story.driver.finish()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.sampled_from([("commit", 0), ("flush", 0), ("crash", 0), ("rewrite", 0)]),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
        st.tuples(st.sampled_from(["fresh", "tiered", "flushing"]), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=30,
)


@given(steps, st.sampled_from([0, 300, 1 << 20]))
@settings(max_examples=120 // one_in(4))
def test_every_number_is_located_as_the_model_says(
    course: list[tuple[str, int]], cache_size: int
) -> None:
    story = Story(cache_size=cache_size)
    flushed = 0
    for what, number in course:
        if what in ("fresh", "tiered", "flushing"):
            story.upload(number, what)
        if what not in ("append", "fresh", "commit", "truncate"):
            flushed = story.model.ends[-1][1]
        if what in ("fresh", "tiered", "flushing"):
            continue
        if what == "append":
            story.append(number)
        elif what == "truncate":
            story.commit()
            story.truncate(story.model.kept[number * (len(story.model.kept) - 1) // 100])
        else:
            getattr(story, what)()
    story.commit()
    story.check(exact_from=flushed)
    assert story.start_event_count() == story.model.start[1]
    story.driver.finish()


def test_a_number_is_never_given_twice_after_everything_was_truncated(story: Story) -> None:
    for _ in range(3):
        story.append(5)
    story.flush()
    story.truncate(story.model.ends[-1])
    story.flush()
    story.crash()
    assert story.start_event_count() == 15
    story.append(2)
    story.commit()
    assert story.driver.locate_event(15, PARTITION) == EventLocated(
        offset=story.model.start[0], event_index=15
    )
    story.check()


def test_in_tier_two_one_footer_is_read_however_many_chunks_there_are(story: Story) -> None:
    for _ in range(40):
        story.append(2, size=300)
        story.flush()
    place = story.driver.now(
        PARTITION,
        lambda: story.driver.container.ask(
            LocateEvent(segment=PARTITION, event_index=33), lambda _: None
        ),
    )
    assert isinstance(place, EventsInTierTwo)
    assert len(place.extents) == 40
    assert [extent.events_before for extent in place.extents] == list(range(0, 80, 2))
    read: list[object] = []
    inner = story.driver.tier_two.entry_counts

    async def counted(ref: object) -> tuple[tuple[int, int], ...]:
        read.append(ref)
        return await inner(ref)  # type: ignore[arg-type]

    story.driver.interrupted.entry_counts = counted  # type: ignore[attr-defined]
    story.check()
    assert len(read) == 80


def test_copies_of_extents_keep_their_numbers(story: Story) -> None:
    for number in range(1, 4):
        story.append(number)
        story.driver.append_once(number, [b"dies" * 50], segment=OTHER)
        story.flush()
    index = story.driver.container.applied.index.get(1)
    assert index is not None
    before = list(index.layout.extents)
    story.driver.delete(OTHER)
    story.rewrite()
    after = list(index.layout.extents)
    assert {extent.ref.name for extent in before}.isdisjoint(extent.ref.name for extent in after), (
        "nothing was rewritten"
    )
    assert [extent.events_before for extent in after] == [0, 1, 3]
    story.crash()
    story.check()


def test_a_truncation_of_bytes_that_only_tier_two_has_knows_its_number(story: Story) -> None:
    for _ in range(10):
        story.append(3)
    story.flush()
    story.crash()
    story.truncate(story.model.ends[7])
    assert story.start_event_count() == 21
    story.check()


def test_a_truncation_before_the_sync_of_its_appends_knows_its_number(story: Story) -> None:
    story.append(3)
    story.commit()
    story.append(4)
    story.append(5)
    story.truncate(story.model.ends[2])
    assert story.start_event_count() == 7


def test_the_segments_of_streams_keep_their_formats_and_know_no_number_after_a_truncation() -> None:
    driver = TieredDriver(cache_size=0, limits=TINY)
    driver.create()
    first = len(driver.append_once(1, [b"a"] * 3))
    driver.append_once(4, [b"b"])
    driver.commit()
    driver.flush()
    index = driver.container.applied.index.get(1)
    assert index is not None
    assert {extent.events_before for extent in index.layout.extents} == {-1}
    driver.truncate_anywhere(TruncateSegment(segment=SEGMENT, stamp=Stamp(1, 2), offset=first))
    driver.commit()
    driver.info()
    driver.commit()
    info = driver.take_replies()[-1]
    assert isinstance(info, SegmentInfo)
    assert (info.start_event_count, info.event_count) == (-1, 4)
    driver.finish()


def merged_story(*, truncated: bool) -> tuple[TieredDriver, list[tuple[int, int]]]:
    """A segment of merged sources, whose extents know no numbers, between appends of its own."""
    driver = TieredDriver(cache_size=0, limits=TINY)
    driver.create()
    ends = [(0, 0)]

    def added(size: int, count: int) -> None:
        ends.append((ends[-1][0] + size, ends[-1][1] + count))

    written = 0
    for number in range(1, 4):
        added(len(driver.append_once(written + 1, [b"own"] * 2)), 2)
        written += 2
        driver.commit()
        if number != 2:
            driver.flush()
        source = f"scope/stream/{number}.#epoch.0"
        driver.create(source)
        added(len(driver.append_once(1, [b"merged" * 60] * number, segment=source)), number)
        driver.commit()
        driver.flush()
        driver.seal(source)
        driver.merge(source, stamp=Stamp(1, 10 + number))
        driver.commit()
    driver.flush()
    if truncated:
        driver.truncate_anywhere(
            TruncateSegment(segment=SEGMENT, stamp=Stamp(2, 1), offset=ends[2][0])
        )
        driver.commit()
    driver.append_once(written + 1, [b"last"])
    driver.commit()
    return driver, ends


def test_unknown_numbers_of_merged_bytes_are_counted_from_the_start() -> None:
    driver, ends = merged_story(truncated=False)
    for number in range(ends[-1][1]):
        found = driver.locate_event(number)
        assert isinstance(found, EventLocated)
        assert (found.offset, found.event_index) in ends
        assert found.event_index <= number
    driver.finish()


def test_without_a_known_start_unknown_numbers_are_counted_back_from_the_end() -> None:
    driver, ends = merged_story(truncated=True)
    for number in range(ends[-1][1]):
        found = driver.locate_event(number)
        if number < ends[2][1]:
            assert isinstance(found, Failed)
            assert (found.code, found.fields["next_available"]) == (RecordEvicted.code, ends[2][1])
        else:
            assert isinstance(found, EventLocated)
            assert (found.offset, found.event_index) in ends[2:]
            assert found.event_index <= number
    driver.finish()


def test_an_unknown_segment_and_a_negative_number_are_refused(story: Story) -> None:
    missing = story.driver.locate_event(0, SEGMENT)
    assert isinstance(missing, Failed)
    assert missing.code == SegmentNotFound.code
    negative = story.driver.locate_event(-1, PARTITION)
    assert isinstance(negative, Failed)
    assert negative.code == "invalid-request"
