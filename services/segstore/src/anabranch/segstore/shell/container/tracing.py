"""Spans of requests in a sampled trace, from acceptance to answer, and of the syncs below them.

    request ──begin──► span held at its barrier ──frame durable──► sync span below it ──► ended

Appends without a trace never reach this module, and a store without a tracer creates no span. One
group commit serves appends of many traces, so its sync is recorded below each of their spans, with
the times of the actual write. It is recorded at most eight times, because a commit may hold
thousands of appends; the other spans link to the first record.
"""

from collections import deque
from collections.abc import Callable

from msgspec import Struct
from opentelemetry.trace import Span, SpanContext, SpanKind, Tracer, set_span_in_context

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.tracing import (
    end_failed,
    is_sampled,
    mark_failed,
    remote_context,
)
from anabranch.common.wire.messages import Request
from anabranch.segstore.shell.container.metrics import StoreMetrics

SYNC_SPANS_MAX = 8
HELD_SPANS_MAX = 1024
"""Per container; a request beyond it is served without a span."""
SYNC_SPAN = "segstore journal sync"


class Commit(Struct, frozen=True, gc=False):
    """A durable group commit; times in Unix nanoseconds."""

    began_ns: int
    ended_ns: int
    frame_count: int
    size: int


class Commits:
    """Implements `ports.CommitWatch`: measures each commit and remembers the last one."""

    def __init__(self, metrics: StoreMetrics, clock: Clock, now_ns: Callable[[], int]) -> None:
        self._metrics = metrics
        self._clock = clock
        self.now_ns = now_ns
        self._began_s = 0.0
        self._seconds = 0.0
        self._outstanding = False
        self._ended_s = 0.0
        self._size = (0, 0)
        self._last: Commit | None = None

    def begin(self) -> None:
        """See `ports.CommitWatch`."""
        self._began_s = self._clock.monotonic()
        self._outstanding = True

    def outstanding_s(self) -> float:
        """The age of the commit that is being written, in seconds; 0 if there is none."""
        return self._clock.monotonic() - self._began_s if self._outstanding else 0.0

    def synced(self, frame_count: int, size: int) -> None:
        """See `ports.CommitWatch`."""
        self._outstanding = False
        self._ended_s = self._clock.monotonic()
        self._seconds = self._ended_s - self._began_s
        self._size, self._last = (frame_count, size), None
        self._metrics.commits += 1
        self._metrics.commit_bytes += size

    def told(self) -> None:
        """See `ports.CommitWatch`."""
        self._metrics.sync_seconds.record(self._seconds)

    @property
    def last(self) -> Commit | None:
        """The last durable commit, the same object until the next one; None before the first."""
        if self._last is None and self._size != (0, 0):
            ended_ns = self.now_ns() - int((self._clock.monotonic() - self._ended_s) * 1e9)
            began_ns = ended_ns - int(self._seconds * 1e9)
            self._last = Commit(began_ns, ended_ns, *self._size)
        return self._last


class StoreTracing:
    """Creates the spans of one store."""

    def __init__(self, tracer: Tracer, commits: Commits) -> None:
        self._tracer = tracer
        self._commits = commits
        self._recorded: Commit | None = None
        self._record_count = 0
        self._first: SpanContext | None = None

    def begin(self, name: str, trace_parent: str, attributes: dict[str, str | int]) -> Span | None:
        """Start a span of a request without making it current; None if its trace is not sampled."""
        if not is_sampled(trace_parent):
            return None
        context = remote_context(trace_parent)
        return self._tracer.start_span(name, context, SpanKind.SERVER, attributes)

    def now_ns(self) -> int:
        """Unix time in nanoseconds, by the clock of the commits."""
        return self._commits.now_ns()

    def record_sync(self, span: Span) -> None:
        """Record the last commit below `span`, whose request it made durable."""
        commit = self._commits.last
        if commit is None:
            return
        if commit is not self._recorded:
            self._recorded, self._record_count, self._first = commit, 0, None
        if self._record_count >= SYNC_SPANS_MAX and self._first is not None:
            span.add_link(self._first)
            return
        sync = self._tracer.start_span(
            SYNC_SPAN,
            set_span_in_context(span),
            attributes={"anabranch.bytes": commit.size, "anabranch.frames": commit.frame_count},
            start_time=commit.began_ns,
        )
        sync.end(commit.ended_ns)
        self._record_count += 1
        self._first = self._first or sync.get_span_context()


class HeldSpans:
    """The spans of one container's requests whose answers wait for the log, in order."""

    def __init__(self, tracing: StoreTracing | None, container: int) -> None:
        self._tracing = tracing
        self._container = container
        self._held: deque[tuple[int, Span]] = deque()
        self._durable = 0
        self._answered_ns = 0

    def begin(self, title: str, trace_parent: str, segment: str, **sizes: int) -> Span | None:
        """Start the span of a request; `sizes` become attributes. `hold` or `end_failed` must
        follow."""
        if self._tracing is None or len(self._held) >= HELD_SPANS_MAX:
            return None
        attributes: dict[str, str | int] = {
            "anabranch.container": self._container,
            "anabranch.segment": segment,
        }
        attributes |= {f"anabranch.{name}": size for name, size in sizes.items()}
        return self._tracing.begin(f"segstore {title}", trace_parent, attributes)

    def begin_asked(
        self, title: str, request: Request, error: AnabranchError | None
    ) -> Span | None:
        """Start the span of a control request that was answered, with `error` if that is given;
        None if the request is not traced. `hold` must follow."""
        if not request.trace_parent:
            return None
        span = self.begin(title, request.trace_parent, request.segment)
        if span is not None and error is not None:
            mark_failed(span, error)
        return span

    def start(self, durable: int) -> None:
        """Everything up to `durable` was recovered."""
        self._durable = durable

    def hold(self, barrier: int, span: Span) -> None:
        """End the span when `barrier` is durable, which may be at once."""
        if barrier <= self._durable:
            span.end()
        else:
            self._held.append((barrier, span))

    def note_answering(self) -> None:
        """Note the time at which answers leave. `release` ends the spans afterwards, so that no
        answer waits for them."""
        if self._held and self._tracing is not None:
            self._answered_ns = self._tracing.now_ns()

    def release(self, durable: int) -> None:
        """End the spans up to `durable`, which the last commit synced, at the noted time."""
        self._durable = durable
        while self._held and self._held[0][0] <= durable:
            _, span = self._held.popleft()
            assert self._tracing is not None
            self._tracing.record_sync(span)
            span.end(self._answered_ns)

    def fail(self, error: AnabranchError) -> None:
        """Fail all held spans: their operations will not become durable here."""
        while self._held:
            end_failed(self._held.popleft()[1], error)
