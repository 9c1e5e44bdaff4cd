"""A container whose objects are rewritten: its memory, its next cuts and its reads follow."""

from collections.abc import Callable, Iterator

import pytest

from anabranch.common.errors import CorruptChunk
from anabranch.common.wire.messages import Stamp, TruncateSegment
from anabranch.segstore.domain.storage.space import REWRITE_REST_S
from anabranch.segstore.shell.tiering.tier2 import GC_GRACE_S
from kit.container_driver import SEGMENT
from kit.planted_container import copies_unknown_to_memory
from kit.tiered_driver import InterruptedStorage, TieredDriver

SOURCE = "scope/stream/1.#epoch.0"
DEAD = [f"scope/stream/{number}.#epoch.0" for number in range(2, 6)]


class Story:
    """A target in an object of its own, and a source in two that are mostly dead."""

    def __init__(self) -> None:
        self.driver = driver = TieredDriver(cache_size=0)
        for name in (SEGMENT, SOURCE, *DEAD):
            driver.create(name)
        self.target = self.write(SEGMENT, 1)
        driver.flush()
        self.halves = []
        for first in (1, 2):
            self.halves.append(self.write(SOURCE, first))
            for name in DEAD:
                self.write(name, first)
            driver.flush()
        for name in DEAD:
            driver.delete(name)
        driver.commit()
        driver.flush()
        self.originals = self.chunks()

    def write(self, name: str, first: int) -> bytes:
        data = self.driver.append(self.driver.setup(name), first, [name.encode() * 9])
        self.driver.commit()
        return data

    def chunks(self) -> set[str]:
        assert isinstance(self.driver.storage, InterruptedStorage)
        return {name for name in self.driver.storage.objects if "/m/" not in name}

    def copy(self) -> None:
        """Make the copies, which then wait for a flush."""
        driver = self.driver
        while driver.wait(driver.tier_two.collect()):
            pass
        driver.wait(driver.tier_two.rewrite())  # it measures objects of earlier owners
        driver.time.advance(REWRITE_REST_S)
        assert driver.wait(driver.tier_two.rewrite())

    def collect(self) -> None:
        """Delete everything that nothing has needed for long."""
        self.driver.flush()
        self.driver.time.advance(2 * GC_GRACE_S)
        while self.driver.wait(self.driver.tier_two.collect()):
            pass
        assert len(self.chunks() & self.originals) <= 1, "the originals are gone"

    def check(self, expected: dict[str, bytes]) -> None:
        for name, content in expected.items():
            assert self.driver.read_all(name) == content
        assert self.driver.container.applied.untiered == 0


@pytest.fixture
def story() -> Iterator[Story]:
    story = Story()
    yield story
    story.driver.finish()


def grow(story: Story) -> dict[str, bytes]:
    more = story.driver.append_once(3, [b"more"], segment=SOURCE)
    return {SEGMENT: story.target, SOURCE: b"".join(story.halves) + more}


def truncate(story: Story) -> dict[str, bytes]:
    request = TruncateSegment(segment=SOURCE, stamp=Stamp(1, 9), offset=len(story.halves[0]))
    story.driver.truncate_anywhere(request)
    return {SEGMENT: story.target, SOURCE: story.halves[1]}


def delete(story: Story) -> dict[str, bytes]:
    story.driver.delete(SOURCE)
    return {SEGMENT: story.target}


def merge(story: Story) -> dict[str, bytes]:
    story.driver.seal(SOURCE)
    story.driver.merge(SOURCE)
    return {SEGMENT: story.target + b"".join(story.halves)}


def nothing(story: Story) -> dict[str, bytes]:
    return {SEGMENT: story.target, SOURCE: b"".join(story.halves)}


def before_the_flush(story: Story) -> None:
    story.driver.commit()
    story.driver.flush()


def during_the_flush(story: Story) -> None:
    story.driver.flush_during(story.driver.commit)


def after_the_flush(story: Story) -> None:
    story.driver.flush()
    story.driver.commit()


@pytest.mark.parametrize("happen", [nothing, grow, truncate, delete, merge])
@pytest.mark.parametrize("flush", [before_the_flush, during_the_flush, after_the_flush])
def test_whatever_happens_to_a_segment_whose_copies_wait_its_bytes_are_there(
    story: Story,
    happen: Callable[[Story], dict[str, bytes]],
    flush: Callable[[Story], None],
) -> None:
    story.copy()
    expected = happen(story)
    flush(story)
    assert not story.driver.tier_two.copied
    story.collect()
    story.check(expected)
    story.driver.crash()
    story.check(expected)
    story.collect()
    story.check(expected)


def test_a_segment_that_was_not_in_memory_is_loaded_with_its_copies(story: Story) -> None:
    story.driver.crash()
    story.copy()
    story.driver.flush()
    story.collect()
    story.check(nothing(story))


def test_a_container_that_closes_records_no_copies_any_more(story: Story) -> None:
    story.copy()
    story.driver.container.stop_accepting()
    objects = story.chunks()
    story.driver.flush()
    assert story.driver.tier_two.copied
    assert story.chunks() == objects
    story.driver.wait(story.driver.tier_two.close())
    assert not story.driver.tier_two.copied
    assert not story.driver.wait(story.driver.tier_two.rewrite())


def test_the_bytes_of_a_rewrite_are_counted_when_they_are_recorded(story: Story) -> None:
    story.copy()
    assert story.driver.metrics.rewritten_bytes == 0
    assert story.driver.tier_two.dead_bytes > 0
    story.driver.flush()
    assert story.driver.metrics.rewritten_bytes == len(b"".join(story.halves))
    assert story.driver.tier_two.dead_bytes == 0


def test_a_memory_that_still_refers_to_the_originals_is_found_out(story: Story) -> None:
    with copies_unknown_to_memory():
        story.copy()
        story.driver.flush()
        story.collect()
        with pytest.raises(CorruptChunk, match="missing"):
            story.check(nothing(story))
