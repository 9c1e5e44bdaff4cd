"""Old records, and those beyond the size, leave the partitions of topics; nothing else is asked."""

from dataclasses import dataclass, field

import pytest

from anabranch.common.contracts.commands import Command, TruncateStream
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import StreamRef
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.policies.topic_retention import (
    FIRST_LOOK,
    LOOK_MS_MIN,
    AgeLook,
    PartitionNumbers,
    RetainedTopic,
    after_look,
    ahead_of,
    bytes_to_free,
)
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.periodic.retain_topics import LOOKS_PER_ROUND_MAX, TopicRetainer
from anabranch.controller.ports import SegmentBounds
from kit.loud import loud
from kit.retained_world import SteadyClock
from kit.topic_stream import REF, Life

DAY_S = 86_400
TOPIC = RetainedTopic(REF, 7 * DAY_S, 1000, 100)


@dataclass
class Partition:
    """Appends of ten bytes, with the times at which they were taken."""

    times_ms: list[int] = field(default_factory=list)
    start: int = 0

    @property
    def length(self) -> int:
        return 10 * len(self.times_ms)


class Topics:
    """One topic with partitions in memory, and the job that looks at them."""

    def __init__(self, partitions: int, topic: RetainedTopic = TOPIC) -> None:
        self.life = Life()
        self.life.create(*[1024] * partitions)
        self.topic = topic
        self.clock = SteadyClock()
        self.partitions = {name: Partition() for name in self.names}
        self.reported = True
        self.owned = True
        self.down: set[str] = set()
        self.asked = 0
        self.posted: list[TruncateStream] = []
        self.retainer = TopicRetainer(
            self,
            self.stream,
            self,
            self,
            lambda _subject: self.owned,
            now_ms=lambda: self.clock.ms,
            clock=self.clock,
            ids=SeededIds(1),
            period_s=10.0,
            containment=loud(self.clock),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self.life.stream.segment_names()[:-1]

    def write(self, index: int, appends: int) -> None:
        times_ms = self.partitions.setdefault(self.names[index], Partition()).times_ms
        times_ms += [self.clock.ms] * appends

    async def later(self, seconds: float = 10.0) -> list[int]:
        """One round after so long → where the partitions begin once its truncations are done."""
        self.clock.ms += int(seconds * 1000)
        await self.retainer.round()
        self.truncate()
        return [self.partitions[name].start for name in self.names]

    def truncate(self) -> None:
        for command in self.posted:
            self.life.command(command)
            self.life.truncated()
            names = dict(
                zip([s.segment_id for s in self.life.stream.segments[:-1]], self.names, strict=True)
            )
            for place in command.cut:
                if place.segment_id in names:
                    self.partitions[names[place.segment_id]].start = place.offset
        self.posted = []

    def stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        if ref != REF:
            return None
        return Loaded(stream_events(REF), self.life.stream)

    # --- the view ---------------------------------------------------------------------------

    def retained(self) -> list[RetainedTopic]:
        return [self.topic]

    def numbers(self, segment: str) -> PartitionNumbers | None:
        if not self.reported:
            return None
        found = self.partitions[segment]
        size = found.length - found.start
        return PartitionNumbers(found.start // 10, found.length // 10, size)

    # --- the stores, and the queue ----------------------------------------------------------

    def _found(self, segment: str) -> Partition:
        self.asked += 1
        if segment in self.down:
            raise Unavailable("no segment store serves the container")
        return self.partitions[segment]

    async def segment_bounds(self, segment: str) -> SegmentBounds:
        found = self._found(segment)
        return SegmentBounds(found.start, found.length)

    async def boundary_at(self, segment: str, offset: int) -> int:
        return min(self._found(segment).length, -(-offset // 10) * 10)

    async def boundary_at_time(self, segment: str, time_ms: int) -> int:
        found = self._found(segment)
        old = sum(taken_ms < time_ms for taken_ms in found.times_ms)
        return max(found.start, 10 * old)

    async def post(self, command: Command) -> None:
        assert isinstance(command, TruncateStream)
        self.posted.append(command)


async def test_records_go_when_they_are_older_than_the_retention_and_not_before() -> None:
    topics = Topics(2)
    topics.write(0, 3)
    assert await topics.later() == [0, 0]
    topics.clock.ms += DAY_S * 1000
    topics.write(0, 2)
    assert await topics.later(6 * DAY_S - 60) == [0, 0]
    starts = [await topics.later() for _ in range(70)]
    assert starts[-1] == [30, 0]
    assert topics.retainer.counts.truncations == 1


async def test_the_records_of_an_idle_partition_go_soon_after_the_retention() -> None:
    topics = Topics(1)
    topics.write(0, 3)
    waited_s = 0
    while (await topics.later())[0] == 0:
        waited_s += 10
    assert 7 * DAY_S <= waited_s <= 7 * DAY_S + 600
    assert topics.asked < 100, "few questions in a week"


async def test_a_partition_beyond_its_size_loses_whole_steps_of_its_oldest_bytes() -> None:
    topics = Topics(3)
    topics.write(1, 125)
    assert await topics.later() == [0, 300, 0]
    asked = topics.asked
    assert await topics.later(1.0) == [0, 300, 0]
    assert topics.asked == asked, "it is not too large any more"


async def test_all_partitions_of_a_topic_are_truncated_by_one_command_per_round() -> None:
    topics = Topics(4)
    for index in range(4):
        topics.write(index, 130)
    topics.clock.ms += 10_000
    await topics.retainer.round()
    (command,) = topics.posted
    assert len(command.cut) == 5
    topics.truncate()
    assert [topics.partitions[name].start for name in topics.names] == [300] * 4


async def test_empty_and_unreported_partitions_and_those_of_other_owners_cost_no_question() -> None:
    topics = Topics(5)
    for _ in range(3):
        await topics.later(8 * DAY_S)
    assert topics.asked == 0
    topics.write(0, 200)
    topics.reported = False
    await topics.later(8 * DAY_S)
    topics.reported, topics.owned = True, False
    await topics.later(8 * DAY_S)
    assert topics.asked == 0


async def test_added_partitions_are_retained_too() -> None:
    topics = Topics(1)
    topics.write(0, 130)
    assert await topics.later() == [300]
    topics.life.grow(1025, 1026)
    topics.write(1, 120)
    assert await topics.later() == [300, 200]
    topics.write(0, 40)
    assert await topics.later() == [700, 200]


async def test_a_store_that_is_down_keeps_no_other_partition_and_is_asked_again_later() -> None:
    topics = Topics(2)
    topics.write(0, 130)
    topics.write(1, 130)
    topics.down.add(topics.names[0])
    with pytest.raises(Unavailable):
        await topics.later()
    topics.truncate()
    assert [topics.partitions[name].start for name in topics.names] == [0, 300]
    asked = topics.asked
    await topics.later()
    assert topics.asked == asked
    topics.down.clear()
    assert await topics.later(60) == [300, 300]


async def test_a_topic_waits_while_its_stream_is_changed_or_sealed() -> None:
    topics = Topics(1)
    topics.write(0, 130)
    await topics.retainer.round()
    (command,) = topics.posted
    topics.life.command(command)
    asked = topics.asked
    await topics.retainer.round()
    assert topics.asked == asked
    assert topics.posted == [command], "the truncation is under way"
    topics.life.truncated()
    topics.posted = []
    topics.partitions[topics.names[0]].start = 300
    topics.write(0, 100)
    topics.life.delete()
    await topics.retainer.round()
    assert topics.posted == []


async def test_a_clock_that_was_set_gives_nothing_up() -> None:
    topics = Topics(1)
    topics.write(0, 3)
    await topics.later()
    set_by_ms = 30 * DAY_S * 1000
    topics.clock.ms += 10_000
    topics.retainer._time._store_ms = lambda: topics.clock.ms + set_by_ms
    await topics.retainer.round()
    assert topics.posted == []


async def test_the_questions_of_one_round_are_bounded_and_everyone_has_a_turn() -> None:
    topics = Topics(1000)
    topics.retainer._owns = lambda _subject: True
    several = [topics.topic] * 3
    topics.retained = lambda: several  # type: ignore[method-assign]
    for index in range(1000):
        topics.write(index, 1)
    await topics.retainer.round()
    assert topics.retainer.counts.looks == LOOKS_PER_ROUND_MAX


def test_the_newest_append_stays_however_large_it_is() -> None:
    assert bytes_to_free(TOPIC, 1000) == 0
    assert bytes_to_free(TOPIC, 1001) == 100
    assert bytes_to_free(TOPIC, 1100) == 100
    assert bytes_to_free(RetainedTopic(REF, DAY_S, 1000, 1 << 30), 1001) == 500


def test_a_look_goes_twice_as_far_ahead_or_half_as_far_and_never_skips_an_expiry() -> None:
    look, now_ms = FIRST_LOOK, 0
    expires_ms = 7 * DAY_S * 1000
    while now_ms < expires_ms:
        soon = now_ms + ahead_of(TOPIC, look) > expires_ms
        look = after_look(TOPIC, look, now_ms, soon=soon)
        assert look.due_ms <= expires_ms + 600_000
        now_ms = max(look.due_ms, now_ms + LOOK_MS_MIN)
    assert isinstance(look, AgeLook)
