"""Applies the retention of topics, to the streams in the buckets that this process owns.

    numbers as reported ──► partitions that are due ──► the stores: where do old records end, where
    lies the first boundary behind the bytes that go? ──► one cut per topic ──► `TruncateStream`

A round asks the stores only about partitions whose size or age can have changed so much that
something goes (`domain/policies/topic_retention.py`), and about a bounded number of them; the
others have their turn in the next round, those that wait longest first. The truncation itself is
the stream's workflow. While it, or any other work on the stream, is pending, the topic waits.

A cut is computed from the head of the stream as last folded, and no place of it lies before the
head, so two controllers that look at the same topic do no harm: the later command changes nothing,
or is refused.

Ages are judged by the event store's clock (`round_clock.py`). A partition that fails keeps no other
one: all are tried, then the round fails with the first error, and the partitions whose stores did
not answer are asked again after a pause.

Owns: the next look at each partition's ages, the pauses after failures, and counts.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from anabranch.common.contracts.commands import TruncateStream
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import AnabranchError, NotFound
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import SegmentId, StreamRef, segment_name
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.policies import topic_retention as policy
from anabranch.controller.domain.policies.topic_retention import (
    FIRST_LOOK,
    AgeLook,
    PartitionNumbers,
    RetainedTopic,
)
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.periodic.job import Job
from anabranch.controller.periodic.round_clock import Now, RoundClock
from anabranch.controller.ports import CommandSender, SegmentBounds

LOOKS_PER_ROUND_MAX = 2000
LOOKS_AT_ONCE_MAX = 32
POSTS_AT_ONCE_MAX = 16
JITTER = 0.1
FAILED_PAUSE_MS = 60_000
"""How long a partition whose store did not answer is left alone."""
RETENTION = "retention of topics"


class TopicView(Protocol):
    """The topics and their partitions, as this controller knows them."""

    def retained(self) -> Iterable[RetainedTopic]:
        """The topics whose records may go. Those whose streams are not active do no harm."""
        ...

    def numbers(self, segment: str) -> PartitionNumbers | None:
        """The numbers of the partition in the segment; None while its leader has reported none."""
        ...


class Offsets(Protocol):
    """The questions to the stores: see `SegmentStores`."""

    async def segment_bounds(self, segment: str) -> SegmentBounds: ...

    async def boundary_at(self, segment: str, offset: int) -> int: ...

    async def boundary_at_time(self, segment: str, time_ms: int) -> int: ...


StreamOf = Callable[[StreamRef], Loaded[Stream] | None]
"""The stream as last folded; None if there is none or it cannot be read."""


@dataclass(slots=True)
class TopicRetentionCounts:
    """Totals. `looks`: partitions asked about; `failures`: those whose stores did not answer."""

    looks: int = 0
    truncations: int = 0
    failures: int = 0


class _Due(NamedTuple):
    """A partition to ask about, and why."""

    waits_since_ms: int
    name: str
    topic: RetainedTopic
    segment_id: SegmentId
    by_age: bool
    by_size: bool


@dataclass(slots=True)
class _Found:
    """The answers of a round, by topic: where its partitions would begin."""

    offsets: dict[StreamRef, dict[SegmentId, int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    failures: list[AnabranchError] = field(default_factory=list)


class TopicRetainer:
    """See the module. `owns(subject)`: whether the stream is this controller's to look at."""

    def __init__(
        self,
        view: TopicView,
        streams: StreamOf,
        stores: Offsets,
        commands: CommandSender,
        owns: Callable[[str], bool],
        *,
        now_ms: Now,
        clock: Clock,
        ids: IdSource,
        period_s: float,
        containment: Containment,
    ) -> None:
        self._view = view
        self._streams = streams
        self._stores = stores
        self._commands = commands
        self._owns = owns
        self._time = RoundClock(now_ms, clock)
        self._ids = ids
        self._period_s = period_s
        self._containment = containment
        self._looks: dict[str, AgeLook] = {}
        """By segment name, without those that are as at first."""
        self._paused: dict[str, int] = {}
        """Partitions whose stores did not answer, and until when they are left alone; Unix ms."""
        self.counts = TopicRetentionCounts()

    def job(self) -> Job:
        """Looks again and again."""
        return Job(
            name="retention of topics",
            period_s=self._period_s,
            jitter=JITTER,
            round=self.round,
            failing="the retention of a topic cannot be applied",
        )

    async def round(self) -> None:
        """Ask about the partitions that are due, and post the truncations that follow.

        Raises the first failure once everything was tried.
        """
        if not self._time.begin():
            return
        looks: dict[str, AgeLook] = {}
        due = heapq.nsmallest(LOOKS_PER_ROUND_MAX, self._due(looks))
        self._looks = looks
        found = _Found()
        await for_each(due, LOOKS_AT_ONCE_MAX, partial(self._look, found))
        await for_each(list(found.offsets), POSTS_AT_ONCE_MAX, partial(self._truncate, found))
        self.counts.failures += len(found.failures)
        if found.failures:
            raise found.failures[0]

    def _due(self, looks: dict[str, AgeLook]) -> Iterator[_Due]:
        """The partitions to ask about; fills `looks` with the looks at all present partitions."""
        now_ms = self._time.now_ms()
        self._paused = {name: ms for name, ms in self._paused.items() if ms > now_ms}
        for topic in self._view.retained():
            stream = self._active(topic.stream)
            if stream is None or not self._owns(stream_events(topic.stream)):
                continue
            for segment in stream.segments[:-1]:
                name = segment_name(topic.stream, segment.segment_id)
                look = self._looks.get(name, FIRST_LOOK)
                if look != FIRST_LOOK:
                    looks[name] = look
                numbers = self._view.numbers(name)
                if numbers is None or stream.intents or name in self._paused:
                    continue
                by_age = policy.is_age_due(numbers, look, now_ms)
                by_size = policy.is_size_due(topic, numbers)
                if by_age or by_size:
                    waits_ms = 0 if by_size else look.due_ms
                    yield _Due(waits_ms, name, topic, segment.segment_id, by_age, by_size)

    def _active(self, ref: StreamRef) -> Stream | None:
        loaded = self._streams(ref)
        if loaded is None or loaded.state.status is not StreamState.ACTIVE:
            return None
        return loaded.state

    async def _look(self, found: _Found, due: _Due) -> None:
        self.counts.looks += 1
        try:
            action = partial(self._ask, found, due)
            await self._containment.attempt(RETENTION, due.name, action)
        except NotFound:
            pass  # it was deleted meanwhile
        except AnabranchError as error:
            found.failures.append(error)
            self._paused[due.name] = self._time.now_ms() + FAILED_PAUSE_MS

    async def _ask(self, found: _Found, due: _Due) -> None:
        bounds = await self._stores.segment_bounds(due.name)
        offset = 0
        if due.by_age:
            offset = await self._by_age(due, bounds)
        if due.by_size:
            offset = max(offset, await self._by_size(due, bounds))
        if offset > bounds.start:
            found.offsets[due.topic.stream][due.segment_id] = offset

    async def _by_age(self, due: _Due, bounds: SegmentBounds) -> int:
        """Where the records that are young enough begin."""
        topic, now_ms = due.topic, self._time.now_ms()
        look = self._looks.get(due.name, FIRST_LOOK)
        expired_ms = policy.expired_before_ms(topic, now_ms)
        offset = await self._stores.boundary_at_time(due.name, expired_ms)
        if offset > bounds.start:
            self._looks[due.name] = policy.after_expiry(topic, now_ms)
            return offset
        ahead_ms = policy.ahead_of(topic, look)
        later = await self._stores.boundary_at_time(due.name, expired_ms + ahead_ms)
        soon = later > bounds.start
        self._looks[due.name] = policy.after_look(topic, look, now_ms, soon=soon)
        return offset

    async def _by_size(self, due: _Due, bounds: SegmentBounds) -> int:
        """Where the partition begins if it is not too large; 0 if it is not. The newest append
        stays, however large it is."""
        freed = policy.bytes_to_free(due.topic, bounds.length - bounds.start)
        if not freed:
            return 0
        offset = await self._stores.boundary_at(due.name, bounds.start + freed)
        return 0 if offset >= bounds.length else offset

    async def _truncate(self, found: _Found, ref: StreamRef) -> None:
        """Post the truncation, unless the stream is busy or gone by now."""
        stream = self._active(ref)
        if stream is None or stream.intents:
            return
        cut = policy.cut_at(stream.segments, stream.head, found.offsets[ref])
        if not cut:
            return
        command = TruncateStream(
            command_id=self._ids.new_id(),
            scope=ref.scope,
            stream=ref.stream,
            incarnation=stream.incarnation,
            cut=cut,
        )
        try:
            await self._commands.post(command)
        except AnabranchError as error:
            found.failures.append(error)
        else:
            self.counts.truncations += 1
