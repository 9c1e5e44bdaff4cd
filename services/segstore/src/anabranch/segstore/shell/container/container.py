"""A segment container under one container epoch: a state machine over one durable log.

    request ──decide──► operation ──► pending state, queue ──take_frame──► journal
                                                                              │ synced
    replies ◄── reply gate ◄── wake tails ◄── index ◄── evolve ◄── frame_durable

`decide` runs against the *pending* state, so pipelined requests see each other; `applied` holds
only what is durable, and reads see nothing else. Between a request and its answer there are no
tasks or futures, only these calls on the event loop's thread. When the log fails or a newer
owner shows up, the container ends: everyone waiting is told, nothing more is acknowledged.
"""

from collections.abc import Callable, Iterable

from anabranch.common.errors import AnabranchError, SessionEnded, Unavailable
from anabranch.common.runtime.tracing import end_failed, mark_failed
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendOnce,
    AppendSetup,
    CreateSegment,
    CreateTransient,
    DeleteSegment,
    GetAttributes,
    GetSegmentInfo,
    MergeSegments,
    Message,
    Request,
    SealSegment,
    SetupAppend,
    TruncateSegment,
    UpdateAttributes,
    failed,
)
from anabranch.segstore.domain.container.answer import (
    Answer,
    Whereabouts,
    answer_attributes,
    answer_create,
    answer_delete,
    answer_info,
    answer_merge,
    answer_seal,
    answer_truncate,
    answer_update,
)
from anabranch.segstore.domain.container.decide import (
    Duplicate,
    decide_append,
    decide_setup,
    gone,
)
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    DecodedOperation,
    Operation,
    decode_operations,
)
from anabranch.segstore.domain.container.transient import answer_create_transient, end_transient
from anabranch.segstore.domain.load.traffic import Traffic
from anabranch.segstore.ports import (
    ContainerLog,
    FrameContents,
    LogAddress,
    ReplayedFrame,
    StoredCatalog,
)
from anabranch.segstore.shell.container.loading import Loading, Refuse
from anabranch.segstore.shell.container.operation_queue import OperationQueue, PendingOperation
from anabranch.segstore.shell.container.replies import Deliver, HeldAck, HeldReply, ReplyGate
from anabranch.segstore.shell.container.sessions import AppendSession, LiveSessions, Send
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.container.tracing import HeldSpans
from anabranch.segstore.shell.memory.boundaries import TieredBoundary, boundary_before
from anabranch.segstore.shell.memory.resident_segments import ResidentSegments
from anabranch.segstore.shell.memory.tail import TailWaiters


class Container:
    """Implements `ports.FrameSource`. Serves from `serve` until `fail`."""

    def __init__(
        self, container: int, container_epoch: int, stored: StoredCatalog, around: Surroundings
    ) -> None:
        self.container = container
        self.container_epoch = container_epoch
        self.segments = ResidentSegments(stored, around.cache, around.clock, around.residency)
        self.applied, self.residency = self.segments.applied, self.segments.residency
        self.loading = Loading(
            stored, self.segments, around.throttle, around.call_later, around.metrics
        )
        self.failure: AnabranchError | None = None
        self.log_failure = False
        """Whether it was the log that ended the container."""
        self.on_ended: Callable[[], None] = _nothing
        self.on_applied: Callable[[], None] = _nothing
        self.metrics = around.metrics
        self.traffic = Traffic()
        self._around = around
        self._throttle = around.throttle
        self._pending = self.applied.state
        self._queue = OperationQueue()
        self._spans = HeldSpans(around.tracing, container)
        self._gate = ReplyGate(around.throttle)
        self._sessions = LiveSessions()
        self.tails = TailWaiters(around.call_later)
        self._log: ContainerLog | None = None
        self._closing = False

    # --- opening and ending -------------------------------------------------------------------

    def decode(self, frame: ReplayedFrame) -> list[DecodedOperation]:
        """What a frame found in the log has that tier 2 does not tell.

        Raises CorruptJournal, FormatTooNew.
        """
        operations = decode_operations(frame.payload, frame.first_sequence)
        return [found for found in operations if found.sequence > self.applied.state.sequence]

    def replay(self, frame: ReplayedFrame, operations: Iterable[DecodedOperation]) -> None:
        """Apply what `decode` found in the frame; all that it is about is resident.

        Raises CorruptJournal.
        """
        untiered = self.applied.untiered
        try:
            for found in operations:
                self.applied.apply(found.sequence, found.operation, frame.address, found.at)
        finally:
            self.applied.end_frame()
            self._throttle.add_untiered(self.applied.untiered - untiered)

    def serve(self, log: ContainerLog) -> None:
        """Recovery is complete: requests may come."""
        self._log = log
        self._pending = self.segments.serve()
        self.opened_sequence = self._pending.sequence
        """Who has a higher number was created since this container serves."""
        self._gate.start(self._pending.sequence)
        self._spans.start(self._pending.sequence)
        # Those alive were made for connections of an older container epoch.
        self.end_transients(sorted(self._pending.transients))

    @property
    def pending(self) -> SegmentMap:
        """What requests are decided against: all that was accepted."""
        return self._pending

    @property
    def log(self) -> ContainerLog:
        assert self._log is not None
        return self._log

    def check_serving(self) -> None:
        """Raises Unavailable unless requests may come."""
        if self.failure is not None or self._closing or self._log is None:
            raise Unavailable("the container does not serve", container=self.container)

    def stop_accepting(self) -> None:
        """Refuse new requests; what was accepted goes on to the journal."""
        self._closing = True

    @property
    def idle(self) -> bool:
        """Whether nothing waits for the journal."""
        return self._queue.empty

    def fail(self, error: AnabranchError) -> None:
        """End the container: everyone waiting is told, nothing more is acknowledged.

        What was pending may or may not be durable; all requests are safe to repeat.
        """
        if self.failure is not None:
            return
        self.failure = error
        if self._log is not None:
            self._log.close()
        told = Unavailable(
            "the container stopped before the request was known to be durable",
            remedy="locate the segment again and repeat the request; repeating is safe",
            container=self.container,
            reason=error.code,
        )
        waiting = self._queue.clear()
        self._sessions.end_all()
        self._gate.fail(told)
        self._spans.fail(error)
        self._throttle.forget_pending(waiting)
        self.loading.fail(told)
        self._throttle.add_untiered(-self.applied.untiered)
        self._throttle.tier_two_failing(self.container, failing=False)
        self.tails.wake_all()
        self.applied.index.clear()
        self.on_ended()

    # --- what is resident ---------------------------------------------------------------------

    def load_first(
        self, names: Iterable[str], go: Callable[[], None], refuse: Refuse, size: int = 0
    ) -> None:
        """Call `go` once all names are resident; see `Loading.first`. Raises Unavailable too."""
        self.check_serving()
        names = tuple(names)

        def use() -> None:
            self.check_serving()
            go()
            self.residency.touch(name for name in names if name in self._pending.segments)

        self.loading.first(names, use, refuse, size)

    def users(self) -> Callable[[str], bool]:
        """Tells, for this moment, of which names somebody needs that they stay resident."""
        queued = self._queue.segments(self._pending.names)

        def uses(name: str) -> bool:
            known = self.applied.state.segments.get(name)
            return (
                name in queued
                or name in self._pending.transients
                or self._sessions.any_on(name)
                or (isinstance(known, SegmentState) and self.tails.watches(known.number))
                or self.residency.is_pinned(name)
                or self.loading.waits_for(name)
            )

        return uses

    def forget_writers(self, name: str, now_ms: int) -> None:
        """Forget the marks in a segment that expired, but not of writers that have a session."""
        self.segments.forget_writers(name, now_ms, self._sessions.is_live)

    # --- requests -----------------------------------------------------------------------------

    def create(self, request: CreateSegment, deliver: Deliver) -> None:
        """→ Done."""
        now_ms = self._around.clock.now_ms()
        self._decide(request, deliver, lambda: answer_create(self._pending, request, now_ms))

    def create_transient(self, request: CreateTransient, name: str, deliver: Deliver) -> None:
        """→ SegmentCreated."""
        now_ms = self._around.clock.now_ms()
        self._decide(
            request, deliver, lambda: answer_create_transient(self._pending, request, name, now_ms)
        )

    def has_transient(self, name: str) -> bool:
        """Whether the transient segment is alive, pending included."""
        return self.failure is None and name in self._pending.transients

    def end_transients(self, names: Iterable[str]) -> None:
        """Delete what is left of them; nobody is answered. A container that ends leaves that to
        its next opening."""
        if self.failure is not None or self._closing:
            return
        now_ms = self._around.clock.now_ms()
        for name in names:
            if name in self._pending.transients:
                operation = end_transient(self._pending, name, now_ms)
                self._enqueue_admitted(operation, self._throttle.count)

    def seal(self, request: SealSegment, deliver: Deliver) -> None:
        """→ Sealed."""
        now_ms = self._around.clock.now_ms()
        self._decide(request, deliver, lambda: answer_seal(self._pending, request, now_ms))

    def delete(self, request: DeleteSegment, deliver: Deliver) -> None:
        """→ Done."""
        now_ms = self._around.clock.now_ms()
        self._decide(request, deliver, lambda: answer_delete(self._pending, request, now_ms))

    def info(self, request: GetSegmentInfo, deliver: Deliver) -> None:
        """→ SegmentInfo; see `_look_up`."""
        self._look_up(
            request, deliver, lambda state: answer_info(state, request, self._whereabouts)
        )

    def _whereabouts(self, number: int) -> Whereabouts:
        index = self.applied.index.get(number)
        tiered = (index.tiered_length, index.sealed_in_tier_two) if index else (0, False)
        return Whereabouts(self.container, self.container_epoch, *tiered)

    def truncate(
        self, request: TruncateSegment, deliver: Deliver, tiered: TieredBoundary | None = None
    ) -> None:
        """→ Truncated. `tiered` is given where only tier 2 knows the boundaries."""
        now_ms = self._around.clock.now_ms()

        def answer() -> Answer:
            known = self._pending.known(request.segment)
            lower = boundary_before(
                known, request.offset, self.applied.index, self._queue.operations(), tiered
            )
            return answer_truncate(self._pending, request, lower, now_ms)

        self._decide(request, deliver, answer)

    def merge(self, request: MergeSegments, deliver: Deliver) -> None:
        """→ SegmentsMerged."""
        now_ms = self._around.clock.now_ms()
        self._decide(request, deliver, lambda: answer_merge(self._pending, request, now_ms))

    def update_attributes(self, request: UpdateAttributes, deliver: Deliver) -> None:
        """→ Done."""
        now_ms = self._around.clock.now_ms()
        self._decide(request, deliver, lambda: answer_update(self._pending, request, now_ms))

    def attributes(self, request: GetAttributes, deliver: Deliver) -> None:
        """→ AttributeValues; see `_look_up`."""
        self._look_up(request, deliver, lambda state: answer_attributes(state, request))

    def _look_up(
        self, request: Request, deliver: Deliver, answer: Callable[[SegmentMap], Answer]
    ) -> None:
        """Answer from the pending state, once that is durable; changes nothing.

        While the journal's disk is full, answer from the durable state at once: everything
        acknowledged is in it, and readers go on.
        """
        state = self.applied.state if self._throttle.has_no_room else self._pending
        self._control(request, deliver, lambda: answer(state).message, state)

    def _decide(self, request: Request, deliver: Deliver, decide: Callable[[], Answer]) -> None:
        def perform() -> Message:
            answer = decide()
            if answer.operation is not None:
                self._enqueue(answer.operation)
            return answer.message

        self._control(request, deliver, perform, self._pending)

    def _control(
        self, request: Request, deliver: Deliver, perform: Callable[[], Message], state: SegmentMap
    ) -> None:
        """Answer with what `perform` returns or raises, once `state` is durable."""
        self.check_serving()
        span = self._spans.begin(request, request.segment) if request.trace_parent else None
        try:
            message = perform()
        except AnabranchError as error:
            self.metrics.refuse(error.code)
            message = failed(error)
            if span is not None:
                mark_failed(span, error)
        self._gate.hold(HeldReply(state.sequence, deliver, message))
        if span is not None:
            self._spans.hold(state.sequence, span)

    def setup(self, request: SetupAppend, request_id: int, send: Send) -> AppendSession | None:
        """Open an append session → AppendSetup, or None and a Failed reply.

        An older session of the same writer and segment is over from now on.
        """
        self.check_serving()
        known = self._pending.known(request.segment)
        try:
            state = decide_setup(known, request.segment, request.writer_id)
        except AnabranchError as error:
            self.metrics.refuse(error.code)
            self._answer(failed(error, request.session), request_id, send)
            return None
        session = AppendSession(
            request.session, request.segment, state.number, request.writer_id, send
        )
        self._sessions.begin(session)
        last = self._pending.last_event_number(state.number, request.writer_id)
        reply = AppendSetup(session=request.session, last_event_number=last, sealed=state.sealed)
        self._answer(reply, request_id, send)
        return session

    def _answer(self, message: Message, request_id: int, send: Send) -> None:
        barrier = self._pending.sequence
        self._gate.hold(HeldReply(barrier, lambda told: send(told, request_id), message))

    def append(
        self, session: AppendSession, request_id: int, request: Append, payload: bytes
    ) -> None:
        """→ Appended, cumulative; a refusal ends the session."""
        self.check_serving()
        span = None
        if request.trace_parent:
            span = self._spans.begin(request, session.segment, len(payload))
        try:
            length = self._append(session, request, payload)
        except AnabranchError as error:
            self.metrics.refuse(error.code)
            self._sessions.end(session)
            self._answer(failed(error, session.session), request_id, session.send)
            if span is not None:
                end_failed(span, error)
            return
        last = request.first_event_number + request.count - 1
        self._gate.hold(HeldAck(self._pending.sequence, session, request_id, last, length))
        if span is not None:
            self._spans.hold(self._pending.sequence, span)

    def _append(self, session: AppendSession, request: Append, payload: bytes) -> int:
        """Returns the segment's length after the append."""
        if not session.alive:
            raise SessionEnded("the append session is over", segment=session.segment)
        state = self._pending.living(session.number)
        if state is None:
            raise gone(self._pending.known(session.segment), session.segment)
        last = self._pending.last_event_number(session.number, session.writer_id)
        now_ms = self._around.clock.now_ms()
        decision = decide_append(state, last, session.writer_id, request, payload, now_ms=now_ms)
        return self._perform_append(state, decision)

    def append_once(self, request: AppendOnce, payload: bytes, deliver: Deliver) -> None:
        """→ Appended. Needs no session and ends none, whatever the answer is."""
        self._control(request, deliver, lambda: self._append_once(request, payload), self._pending)

    def _append_once(self, request: AppendOnce, payload: bytes) -> Message:
        writer_id = request.writer_id
        state = decide_setup(self._pending.known(request.segment), request.segment, writer_id)
        last = self._pending.last_event_number(state.number, writer_id)
        now_ms = self._around.clock.now_ms()
        decision = decide_append(state, last, writer_id, request, payload, now_ms=now_ms)
        return Appended(
            session=0,
            last_event_number=request.first_event_number + request.count - 1,
            length=self._perform_append(state, decision),
        )

    def _perform_append(self, state: SegmentState, decision: AppendOperation | Duplicate) -> int:
        """Returns the segment's length after the append."""
        metrics = self.metrics
        if isinstance(decision, Duplicate):
            metrics.duplicates += 1
            return state.length
        self._enqueue(decision)
        size = len(decision.payload)
        metrics.appends += 1
        metrics.append_bytes += size
        metrics.append_events += decision.event_count
        return state.length + size

    def end_session(self, session: AppendSession) -> None:
        """The session's connection is gone."""
        self._sessions.end(session)

    def _enqueue(self, operation: Operation) -> None:
        """Give the operation its sequence number. Raises Overloaded; then nothing happened."""
        self._enqueue_admitted(operation, self._throttle.admit)

    def _enqueue_admitted(self, operation: Operation, admit: Callable[[int], None]) -> None:
        pending = PendingOperation(self._pending.sequence + 1, operation)
        admit(pending.size)
        self._pending.apply(pending.sequence, operation)
        self._queue.add(pending, self._around.clock.monotonic)
        self.log.ready()

    # --- the log ------------------------------------------------------------------------------

    def take_frame(self, size_max: int) -> FrameContents | None:
        """See `ports.FrameSource`."""
        return self._queue.take_frame(size_max)

    def frame_durable(self, contents: FrameContents, address: LogAddress) -> None:
        """See `ports.FrameSource`: evolve, index, wake, answer, in this order."""
        if self.failure is not None:
            return
        frame = self._queue.frame_durable()
        items = frame.operations
        assert items[0].sequence == contents.first_sequence
        untiered = self.applied.untiered
        at = 0
        for item in items:
            merged = self.applied.apply(item.sequence, item.operation, address, at)
            if merged:
                self.traffic.add_merged(item.operation, merged, self.applied.state.names)
            at += item.size
        touched = self.applied.end_frame()
        self._throttle.add_untiered(self.applied.untiered - untiered)
        self._throttle.forget_pending(contents.size)
        self._spans.note_answering()
        self._gate.release(items[-1].sequence)
        self._spans.release(items[-1].sequence)
        self.metrics.append_seconds.record(self._around.clock.monotonic() - frame.queued_at_s)
        for number in touched:
            self.tails.wake(number)
        self.traffic.add((item.operation for item in items), self.applied.state.names)
        self.on_applied()

    def log_failed(self, error: AnabranchError) -> None:
        """See `ports.FrameSource`."""
        self.log_failure = True
        self.fail(error)


def _nothing() -> None:
    return
