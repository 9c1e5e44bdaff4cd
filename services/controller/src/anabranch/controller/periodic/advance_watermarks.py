"""Advances the watermarks of streams, in the buckets that this process owns.

    marks of a stream changed ────────────────┐
    an idle writer's time-out is over         ├─▶ look: read the marks, judge, append a watermark
    the bucket was taken: all its streams     ┘

Once per period the index of marks tells which streams have news (`WriterTimes.noted`), so a stream
whose writers are silent costs nothing until a time-out of one of them is over. A stream without any
marks leaves the index.

A watermark is appended only behind the last one that this controller has read. If two controllers
believe to own a bucket, or an answer was lost, the append is refused, and the next look reads the
last watermark back. Nothing here has to be remembered: a new owner waits for one time-out, because
marks may have been lost, and then goes on.

Idle times are counted by the monotonic clock of the owner. A failure of one stream keeps no other
one: all are tried, and the failed ones again in the next round.

Owns: the looks at streams with marks, and counts.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from anabranch.common.contracts.subjects import shard_of_subject, stream_events
from anabranch.common.errors import AnabranchError, OffsetMismatch
from anabranch.common.model.hashing import SHARD_COUNT, bucket_of
from anabranch.common.model.names import StreamRef, is_internal
from anabranch.common.model.stream import StreamState
from anabranch.common.model.watermark import Watermark
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.policies import watermark as policy
from anabranch.controller.domain.policies.watermark import (
    NEVER_MS,
    Held,
    Judgement,
    LastLook,
    Places,
    Watch,
)
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.writer_times import NotedStream
from anabranch.controller.metrics import WatermarkCounts
from anabranch.controller.periodic.job import Job
from anabranch.controller.ports import StreamHistories, StreamListing, WriterTimes
from anabranch.controller.projections.watermark_log import Tail, WatermarkLog

STREAMS_AT_ONCE_MAX = 16
NOTED_COUNT_MAX = 1000
"""Streams in one answer of the index."""
JITTER = 0.1
WATERMARKS = "watermarks"

_ADVANCING = (StreamState.ACTIVE, StreamState.SEALED)

_Life = tuple[StreamRef, int]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where marks, streams and their epochs are known, and which buckets are owned, of how many."""

    times: WriterTimes
    streams: StreamListing
    histories: StreamHistories
    owned: Callable[[], frozenset[int]]
    bucket_count: int


@dataclass(slots=True)
class _Watched:
    """A life of a stream with marks.

    `watch` and `tail`: what is known of its writers and of its watermarks (None: to be read).
    `again_s`: when it is due without a note. `held`, `holder`: of the last look.
    `advanced_s`: when it was first looked at, or last advanced.
    """

    noted: NotedStream
    subject: str
    bucket: int
    watch: Watch
    tail: Tail | None = None
    is_due: bool = True
    again_s: float | None = None
    held: Held | None = None
    holder: str = ""
    advanced_s: float = 0.0


@dataclass(slots=True)
class _Cursor:
    """What was read of a shard's index."""

    generation: int = 0
    last: int = 0


@dataclass(slots=True)
class _Owned:
    """Since when buckets are owned without a known loss, and what was read of their shards."""

    since_s: dict[int, float] = field(default_factory=dict)
    cursors: dict[int, _Cursor] = field(default_factory=dict)

    def update(self, owned: frozenset[int], now_s: float) -> None:
        """Read a shard from the beginning if one of its buckets is new."""
        fresh = {bucket % SHARD_COUNT for bucket in owned if bucket not in self.since_s}
        self.since_s = {bucket: self.since_s.get(bucket, now_s) for bucket in owned}
        shards = {bucket % SHARD_COUNT for bucket in owned}
        kept = {s: at for s, at in self.cursors.items() if s in shards and s not in fresh}
        self.cursors = {shard: kept.get(shard, _Cursor()) for shard in shards}

    def lost(self, shard: int, now_s: float) -> None:
        """The shard's marks may have been lost: as if its buckets were taken now."""
        for bucket in self.since_s:
            if bucket % SHARD_COUNT == shard:
                self.since_s[bucket] = now_s


class WatermarkAdvancer:
    """See the module."""

    def __init__(
        self,
        sources: Sources,
        log: WatermarkLog,
        *,
        clock: Clock,
        period_s: float,
        containment: Containment,
    ) -> None:
        self._sources = sources
        self._log = log
        self._clock = clock
        self._period_s = period_s
        self._containment = containment
        self._owned = _Owned()
        self._watched: dict[_Life, _Watched] = {}
        self.counts = WatermarkCounts()

    def job(self) -> Job:
        """Looks again and again."""
        return Job(
            name="watermarks of streams",
            period_s=self._period_s,
            jitter=JITTER,
            round=self.round,
            failing="the watermarks of streams do not advance",
        )

    async def round(self) -> None:
        """Look at every stream that is due. Raises the first failure once all were tried."""
        owned, now_s = self._sources.owned(), self._clock.monotonic()
        self._owned.update(owned, now_s)
        self._watched = {life: one for life, one in self._watched.items() if one.bucket in owned}
        for shard, cursor in self._owned.cursors.items():
            await self._hear(shard, cursor)
        failures: list[AnabranchError] = []

        async def look(one: _Watched) -> None:
            try:
                action = partial(self._look, one)
                await self._containment.attempt(WATERMARKS, one.subject, action)
            except AnabranchError as error:
                failures.append(error)

        await for_each(list(self._due(now_s)), STREAMS_AT_ONCE_MAX, look)
        self.counts.failures += len(failures)
        self._count_held(now_s)
        if failures:
            raise failures[0]

    def last_look(self, stream: StreamRef, incarnation: int) -> LastLook | None:
        """What was found of a stream; None if another controller looks after it."""
        subject = stream_events(stream)
        bucket = bucket_of(subject, shard_of_subject(subject), self._sources.bucket_count)
        if bucket not in self._owned.since_s or bucket not in self._sources.owned():
            return None
        one = self._watched.get((stream, incarnation))
        if one is None:
            return LastLook(Held.NO_WRITERS)
        now_s = self._clock.monotonic()
        idle_since_s = one.watch.idle_since_s.get(one.holder, now_s)
        settles_s = max(0.0, one.watch.hold_until_s - now_s)
        return LastLook(one.held, one.holder, now_s - idle_since_s, settles_s)

    # --- which streams are due ------------------------------------------------------------------

    async def _hear(self, shard: int, cursor: _Cursor) -> None:
        """Learn which streams of the shard have news. Raises Unavailable."""
        while True:
            found = await self._sources.times.noted(
                shard, cursor.generation, cursor.last, NOTED_COUNT_MAX
            )
            if found.generation != cursor.generation:
                self._owned.lost(shard, self._clock.monotonic())
            for noted in found.streams:
                self._learn(noted)
            cursor.generation, cursor.last = found.generation, found.last
            if not found.has_more:
                return

    def _learn(self, noted: NotedStream) -> None:
        if is_internal(noted.stream.stream):
            return
        life = noted.stream, noted.incarnation
        known = self._watched.get(life)
        if known is not None:
            known.noted, known.is_due = noted, True
            return
        subject = stream_events(noted.stream)
        bucket = bucket_of(subject, shard_of_subject(subject), self._sources.bucket_count)
        if bucket in self._owned.since_s:
            now_s = self._clock.monotonic()
            self._watched[life] = _Watched(noted, subject, bucket, Watch(), advanced_s=now_s)

    def _due(self, now_s: float) -> Iterator[_Watched]:
        for one in self._watched.values():
            if one.is_due or (one.again_s is not None and one.again_s <= now_s):
                yield one

    # --- one look -------------------------------------------------------------------------------

    async def _look(self, one: _Watched) -> None:
        """Raises the errors of the stores, of Redis and of the event store."""
        noted, one.is_due = one.noted, True  # until this look has succeeded
        loaded = self._sources.streams.stream(noted.stream)
        if loaded is None or loaded.state.incarnation < noted.incarnation:
            return  # this controller learns of the stream a moment later
        stream = loaded.state
        if stream.incarnation > noted.incarnation or not stream.is_live:
            await self._forget(one, noted)
        elif stream.status in _ADVANCING:
            await self._look_at(one, noted, stream)

    async def _look_at(self, one: _Watched, noted: NotedStream, stream: Stream) -> None:
        self.counts.looks += 1
        timeout_s = stream.config.timestamp_aggregation_timeout_ms / 1000
        known = await self._sources.times.marks(noted.stream, noted.incarnation)
        if known.generation != self._owned.cursors[one.bucket % SHARD_COUNT].generation:
            return  # the marks were lost a moment ago: the next round holds the watermark
        if one.tail is None:
            one.tail = await self._log.tail(noted.stream, noted.incarnation)
        now_s = self._clock.monotonic()
        judged = policy.judge(
            known.marks,
            one.watch.held_until(self._owned.since_s.get(one.bucket, now_s) + timeout_s),
            NEVER_MS if one.tail.last is None else one.tail.last.lower_ms,
            timeout_s=timeout_s,
            now_s=now_s,
        )
        one.watch, one.held, one.holder = judged.watch, judged.held, judged.holder
        if judged.bounds is not None:
            if not await self._advance(one, stream, judged):
                return  # another controller was faster: the next look reads its watermark
            judged = policy.advanced(judged, timeout_s=timeout_s, now_s=now_s)
            one.watch, one.advanced_s = judged.watch, now_s
        if judged.dropped:
            await self._sources.times.drop(noted.stream, noted.incarnation, judged.dropped)
        one.again_s, one.is_due = judged.again_s, one.noted is not noted
        if judged.held is Held.NO_WRITERS and one.again_s is None:
            await self._forget(one, noted)

    async def _advance(self, one: _Watched, stream: Stream, judged: Judgement) -> bool:
        """Append the next watermark; False if the segment has got another one meanwhile."""
        assert one.tail is not None, "it was read"
        assert judged.bounds is not None, "the watermark advances"
        life, tail, now_ms = one.noted.stream, one.tail, self._clock.now_ms()
        last = () if tail.last is None else tail.last.cut
        positions = [mark.positions for mark in judged.active]
        stream, history = await self._with_epochs(stream, (*positions, last))
        is_known = bool(last) and policy.are_known(history, last)
        cut = policy.upper_cut(history, last if is_known else stream.head, positions)
        watermark = Watermark(one.noted.incarnation, *judged.bounds, cut)
        one.tail = None  # unless the append succeeds, it has to be read again
        try:
            one.tail = await self._log.append(life, tail, watermark, now_ms)
        except OffsetMismatch:
            self.counts.overtaken += 1
            return False
        self.counts.advanced += 1
        one.tail = await self._log.trim(
            life, one.tail, lambda old: policy.is_before(history, old.cut, stream.head)
        )
        return True

    async def _with_epochs(
        self, stream: Stream, places: Sequence[Places]
    ) -> tuple[Stream, History]:
        """The stream and its epochs; as of the head, if a segment of these places is unknown.

        If it is unknown at the head too, a writer's position there is a mistake and means nothing.
        A last watermark there is from before the metadata were restored from a backup, and the next
        cut begins at the head of the stream.
        """
        history = await self._sources.histories.of(stream)
        if policy.are_known(history, *places):
            return stream, history
        loaded = await self._sources.streams.stream_at_head(ref_of(stream))
        if loaded is None or loaded.state.incarnation != stream.incarnation:
            return stream, history
        return loaded.state, await self._sources.histories.of(loaded.state)

    async def _forget(self, one: _Watched, noted: NotedStream) -> None:
        """The stream is gone, or has no marks. A note that came meanwhile keeps it in the index."""
        await self._sources.times.forget(noted)
        if one.noted is noted:
            self._watched.pop((noted.stream, noted.incarnation), None)

    def _count_held(self, now_s: float) -> None:
        held = Counter((one.held.value,) for one in self._watched.values() if one.held is not None)
        self.counts.held = {(reason.value,): float(held[reason.value,]) for reason in Held}
        advanced_s = (one.advanced_s for one in self._watched.values())
        self.counts.oldest_s = now_s - min(advanced_s, default=now_s)
