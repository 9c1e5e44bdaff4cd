"""Applies the retention policies of streams, in the buckets that this process owns.

Once per period every stream with a policy is looked at. Most looks cost nothing: the recorded cuts
say that nothing is old or large enough, and the last one is recent. Else the stores are asked where
the stream ends, which no batch of transactions divides (`TailCuts`), and one decision records that
cut, or begins a truncation, or both (`retaining.decide`). The truncation itself is the stream's
workflow: it asks all stores first, and a refusal leaves everything as it was.

A decision is made again on the stream as it is when it is stored, and only if all its
grounds are still the same. So a controller that slept, a bucket with two owners, and a caller that
truncates at the same moment give up nothing that the policy keeps.

All times are those of the event store's clock, so controllers whose clocks differ agree on the age
of a cut. Until a controller knows how its clock differs, it does nothing. A round reads the time
once and counts on from there by the monotonic clock. If more or less time has passed than by that
clock since the last round, somebody has set a clock, and the round does nothing.

A stream that fails keeps no other one: all are tried, then the round fails with the first error. A
defect of one stream is contained. A stream whose tail does not move, or whose stores do not answer,
is asked about less and less often, at last every sixteenth round.

Owns: the last tails of streams, and counts. A new owner of a bucket asks all of them once.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from anabranch.common.errors import AnabranchError, StreamNotFound
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import SegmentOffset, StreamCut
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.stream import retaining
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.events import StreamEvent, StreamReleasing
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.metrics import RetentionCounts
from anabranch.controller.periodic.job import Job
from anabranch.controller.periodic.round_clock import Now, RoundClock
from anabranch.controller.ports import StreamHistories
from anabranch.controller.projections.tail_cut import Tail

STREAMS_AT_ONCE_MAX = 16
IDLE_DOUBLINGS_MAX = 4
JITTER = 0.1
RETENTION = "retention"

Streams = Callable[[], Iterable[Loaded[Stream]]]
"""The streams with a policy, as known by now."""
TailOf = Callable[[StreamRef], Awaitable[Tail]]
"""See `TailCuts.of`."""


@dataclass(slots=True)
class _Seen:
    """A tail, for how many looks it has not moved, and how many rounds are still to be skipped."""

    tail: int = 0
    idle: int = 0
    skip: int = 0

    def again(self) -> "_Seen":
        """It did not move, or nobody knows."""
        idle = min(self.idle + 1, IDLE_DOUBLINGS_MAX)
        return _Seen(self.tail, idle, 2**idle - 1)


class StreamRetainer:
    """See the module. `owns(subject)`: whether the stream is this controller's to look at."""

    def __init__(
        self,
        streams: Streams,
        tail_of: TailOf,
        histories: StreamHistories,
        repository: Repository[Stream, StreamEvent],
        owns: Callable[[str], bool],
        *,
        now_ms: Now,
        clock: Clock,
        period_s: float,
        containment: Containment,
    ) -> None:
        self._streams = streams
        self._tail_of = tail_of
        self._histories = histories
        self._repository = repository
        self._owns = owns
        self._time = RoundClock(now_ms, clock)
        self._period_s = period_s
        self._containment = containment
        self._seen: dict[str, _Seen] = {}
        self.counts = RetentionCounts()

    def job(self) -> Job:
        """Looks again and again."""
        return Job(
            name="retention of streams",
            period_s=self._period_s,
            jitter=JITTER,
            round=self.round,
            failing="the retention policy of a stream cannot be applied",
        )

    async def round(self) -> None:
        """Look at every stream that has a policy. Raises the first failure once all were tried."""
        if not self._time.begin():
            return
        mine = [one for one in self._streams() if self._owns(one.subject)]
        subjects = {one.subject for one in mine}
        self._seen = {s: seen for s, seen in self._seen.items() if s in subjects}
        self.counts.refused = sum(one.state.retention.refusal is not None for one in mine)
        failures: list[AnabranchError] = []

        async def look(known: Loaded[Stream]) -> None:
            try:
                action = partial(self._look, known)
                await self._containment.attempt(RETENTION, known.subject, action)
            except StreamNotFound:
                pass  # it was deleted meanwhile
            except AnabranchError as error:
                failures.append(error)

        await for_each(mine, STREAMS_AT_ONCE_MAX, look)
        self.counts.failures += len(failures)
        if failures:
            raise failures[0]

    async def _look(self, known: Loaded[Stream]) -> None:
        """One stream. Raises Unavailable, Corrupt, Busy, StreamNotFound, InvalidCut."""
        self.counts.looks += 1
        stream, tail = known.state, None
        now_ms = self._time.now_ms()
        if retaining.is_look_due(stream, now_ms) and self._is_worth_asking(known):
            stream, tail = await self._asked(known)
            now_ms = self._time.now_ms()  # everything before the tail was written by now
        if tail is None and not retaining.may_release(stream, now_ms):
            return
        history = await self._histories.of(stream)
        decided = retaining.decide(stream, history, tail, revision=0, now_ms=now_ms)
        if not decided:
            return
        grounds = retaining.grounds_of(stream)

        def decide(at: Loaded[Stream]) -> Sequence[StreamEvent]:
            nonlocal decided
            decided = ()  # unless the grounds are the same; the next round looks again
            if retaining.grounds_of(at.state) == grounds:
                decided = retaining.decide(
                    at.state, history, tail, revision=at.revision + 1, now_ms=now_ms
                )
            return decided

        await self._repository.transact(known.subject, decide)
        self._count(decided)

    async def _asked(self, known: Loaded[Stream]) -> tuple[Stream, StreamCut]:
        """The stream as of the head, and where it ends."""
        before = self._seen.get(known.subject, _Seen())
        self._seen[known.subject] = before.again()
        stream, lengths = await self._tail_of(ref_of(known.state))
        tail = tuple(sorted(SegmentOffset(segment, at) for segment, at in lengths.items()))
        if before.tail != hash(tail):
            self._seen[known.subject] = _Seen(hash(tail))
        return stream, tail

    def _is_worth_asking(self, known: Loaded[Stream]) -> bool:
        seen = self._seen.get(known.subject)
        if seen is None or not seen.skip:
            return True
        seen.skip -= 1
        return False

    def _count(self, decided: Sequence[StreamEvent]) -> None:
        for event in decided:
            if isinstance(event, StreamReleasing):
                self.counts.truncations[(event.rule,)] += 1
                self.counts.released_bytes[(event.rule,)] += event.freed_bytes
