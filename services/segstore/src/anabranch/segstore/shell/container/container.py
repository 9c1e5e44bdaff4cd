"""A segment container under one container epoch: a state machine over one durable log.

    request ──decide──► operation ──► pending state, queue ──take_frame──► journal
                                                                              │ synced
    wake tails ◄── other replies ◄── index ◄── evolve ◄── acknowledgements ◄── frame_durable

`decide` runs against the *pending* state, so pipelined requests see each other. `applied` holds
durable state only, and reads see nothing else. Between a request and its answer there are no tasks
or futures, only these calls on the event loop's thread. When the log fails or a newer owner
appears, the container ends: every waiting request fails, and nothing more is acknowledged.
"""

from collections.abc import Callable, Iterable, Sequence

from anabranch.common.errors import AnabranchError, SessionEnded, Unavailable
from anabranch.common.model.topics import TOPIC_CONTAINER_MIN
from anabranch.common.runtime.tracing import end_failed
from anabranch.common.wire.messages import (
    Append,
    AppendSetup,
    Message,
    Request,
    SetupAppend,
    failed,
)
from anabranch.common.workflow.containment import naming_defects
from anabranch.segstore.domain.container.answer import VERBS, Sees
from anabranch.segstore.domain.container.circumstances import (
    NOTHING_GIVEN,
    Answer,
    Elsewhere,
    Given,
    Group,
)
from anabranch.segstore.domain.container.decide import (
    Duplicate,
    NoChange,
    decide_setup,
    gone,
)
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.large import decide_in_session
from anabranch.segstore.domain.container.life import Phase, Step, next_phase, stopped
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    DecodedOperation,
    Operation,
)
from anabranch.segstore.domain.container.transient import end_transient
from anabranch.segstore.ports import (
    ContainerLog,
    FrameContents,
    LogAddress,
    ReplayedFrame,
    StoredCatalog,
)
from anabranch.segstore.shell.container.admission import Admission, admission_of
from anabranch.segstore.shell.container.circumstances import ContainerCircumstances
from anabranch.segstore.shell.container.lease import Lease
from anabranch.segstore.shell.container.loading import Loading, Refuse
from anabranch.segstore.shell.container.notices import FrameNotices
from anabranch.segstore.shell.container.operation_queue import OperationQueue, PendingOperation
from anabranch.segstore.shell.container.replies import Deliver, HeldAck, HeldReply, ReplyGate
from anabranch.segstore.shell.container.sessions import AppendSession, LiveSessions, Send
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.container.topic_storage import NO_LIMIT
from anabranch.segstore.shell.container.tracing import HeldSpans
from anabranch.segstore.shell.memory.resident_segments import ResidentSegments
from anabranch.segstore.shell.memory.tail import TailWaiters


class Container:
    """Implements `ports.FrameSource`. Serves from `serve` until `fail`."""

    def __init__(
        self,
        container: int,
        container_epoch: int,
        stored: StoredCatalog,
        around: Surroundings,
        lease: Lease,
    ) -> None:
        self.container = container
        self.container_epoch = container_epoch
        self.segments = ResidentSegments(stored, around.cache, around.clock, around.residency)
        self.applied, self.residency = self.segments.applied, self.segments.residency
        self.loading = Loading(
            stored, self.segments, around.throttle, around.call_later, around.metrics
        )
        self.failure: AnabranchError | None = None
        self.journal_failure: AnabranchError | None = None
        """The error that ended the journal, and with it the store; None while the journal runs."""
        self.on_ended: Callable[[], None] = lambda: None
        self.metrics = around.metrics
        leads_topics = container >= TOPIC_CONTAINER_MIN
        self.notices = FrameNotices(self.applied, leads_topics=leads_topics)
        self._storage = around.topic_storage if leads_topics else NO_LIMIT
        self._around = around
        self._lease = lease
        self._throttle = around.throttle
        self._admission: Admission = around.throttle
        self._pending = self.applied.state
        self._queue = OperationQueue()
        self._spans = HeldSpans(around.tracing, container)
        self._gate = ReplyGate(around.throttle)
        self.sessions = LiveSessions()
        self.tails = TailWaiters(around.call_later)
        self._log: ContainerLog | None = None
        self._phase = Phase.OPENING

    # --- opening and ending -------------------------------------------------------------------

    def replay(self, frame: ReplayedFrame, operations: Iterable[DecodedOperation]) -> None:
        """Apply operations of the frame that tier 2 does not have. Their segments are resident.

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
        """Accept requests: recovery is complete."""
        self._phase = next_phase(self._phase, Step.SERVE)
        self._log, self._admission = log, admission_of(log, self._throttle)
        self._pending = self.segments.serve()
        self.opened_sequence = self._pending.sequence
        """A segment with a higher number was created after the container began to serve."""
        self._gate.start(self._pending.sequence)
        self._spans.start(self._pending.sequence)
        # Transient segments that still exist belong to connections of an older container epoch.
        self.end_transients(sorted(self._pending.transients))

    @property
    def pending(self) -> SegmentMap:
        """The state that requests are decided against: it includes all accepted operations."""
        return self._pending

    @property
    def log(self) -> ContainerLog:
        assert self._log is not None
        return self._log

    @property
    def serving(self) -> bool:
        """Whether the container accepts requests."""
        return self._phase is Phase.SERVING

    def check_serving(self) -> None:
        """Raises Unavailable unless the container serves requests."""
        if not self.serving:
            raise Unavailable("the container is not serving", container=self.container)

    def check_request(self) -> None:
        """Raises Unavailable unless the container may answer a request that arrives now."""
        self.check_serving()
        self._lease.check()

    def stop_accepting(self) -> None:
        """Refuse new requests; accepted operations still go to the journal."""
        self._phase = next_phase(self._phase, Step.LEAVE)

    @property
    def idle(self) -> bool:
        """Whether no operation waits for the journal."""
        return self._queue.empty

    def fail(self, error: AnabranchError) -> None:
        """End the container: every waiting request fails, and nothing more is acknowledged.

        Pending operations may or may not be durable; all requests are safe to repeat.
        """
        if self._phase is Phase.ENDED:
            return
        self._phase = next_phase(self._phase, Step.FAIL)
        self.failure = error
        if self._log is not None:
            self._log.close()
        told = stopped(self.container, error)
        self.sessions.end_all()
        self._gate.fail(told)
        self._spans.fail(error)
        self._throttle.forget_pending(self._queue.clear())
        self.loading.fail(told)
        self._throttle.add_untiered(-self.applied.untiered)
        self._throttle.tier_two_failing(self.container, failing=False)
        self.tails.wake_all()
        self.applied.index.clear()
        self.on_ended()

    # --- resident segments --------------------------------------------------------------------

    def load_first(
        self, names: Iterable[str], go: Callable[[], None], refuse: Refuse, size: int = 0
    ) -> None:
        """Call `go` once all names are resident; see `Loading.first`. Also raises Unavailable.

        All requests enter here, except appends of a session, which the log alone confirms.
        """
        self.check_request()
        names = tuple(names)

        def use() -> None:
            self.check_serving()
            go()
            self.residency.touch(name for name in names if name in self._pending.segments)

        self.loading.first(names, use, refuse, size)

    def queued(self) -> frozenset[str]:
        """The names of the segments that waiting operations are about."""
        return self._queue.segments(self._pending.names)

    def forget_writers(self, name: str, now_ms: int) -> None:
        """Forget the expired writer marks in a segment, except those of writers with a session."""
        self.segments.forget_writers(name, now_ms, self.sessions.is_live)

    # --- requests -----------------------------------------------------------------------------

    def ask(
        self, request: Request, deliver: Deliver, given: Given = NOTHING_GIVEN
    ) -> Elsewhere | None:
        """Answer a request by its row of `VERBS`, once all that the answer depends on is durable.

        All segments that the row names are resident. If the answer depends on what only tier 2
        knows, the container answers nothing and returns the place; the caller looks it up and asks
        again. Raises Unavailable.
        """
        self.check_serving()
        verb = VERBS[type(request)]
        durable = verb.sees is Sees.DURABLE or (
            verb.sees is Sees.PENDING_WHILE_ROOM and self._admission.has_no_room
        )
        state = self.applied.state if durable else self._pending
        answer: Answer | AnabranchError | Elsewhere
        try:
            answer = verb.answer(state, request, self._circumstances(given))
            if isinstance(answer, Elsewhere):
                return answer
            assert state is self._pending or isinstance(answer.decision, NoChange)
            self._perform(answer.decision)
        except AnabranchError as error:
            answer = error
        self._hold(request, verb.title, deliver, answer, state)
        return None

    def _circumstances(self, given: Given) -> ContainerCircumstances:
        return ContainerCircumstances(
            self.container,
            self.container_epoch,
            self._around.clock.now_ms(),
            given,
            self.applied.index,
            self._queue.operations,
            self.applied.state.living,
        )

    def _perform(self, decision: Operation | NoChange | Duplicate | Group) -> None:
        """Log the decision. Raises Overloaded and OutOfStorage without logging anything."""
        if self._storage.full and isinstance(decision, AppendOperation | Group):
            raise self._storage.refusal(self.container)
        if isinstance(decision, AppendOperation):
            self._enqueue(decision, self._admission.admit)
            self.metrics.count_append(decision)
        elif isinstance(decision, Duplicate):
            self.metrics.duplicates += 1
        elif isinstance(decision, Group):
            self._enqueue_group(decision.operations)
            self.metrics.count_group(decision.appends)
        elif not isinstance(decision, NoChange):
            self._enqueue(decision, self._admission.admit)

    def _hold(
        self,
        request: Request,
        title: str,
        deliver: Deliver,
        answer: Answer | AnabranchError,
        state: SegmentMap,
    ) -> None:
        """Deliver the answer once `state`, which it was decided against, is durable."""
        if isinstance(answer, Answer):
            message, error = answer.message, None
        else:
            message, error = failed(answer), answer
            self.metrics.refuse(error.code)
        span = self._spans.begin_asked(title, request, error)
        self._gate.hold(HeldReply(state.sequence, deliver, message))
        if span is not None:
            self._spans.hold(state.sequence, span)

    def has_transient(self, name: str) -> bool:
        """Whether the transient segment exists in the pending state."""
        return self._phase is not Phase.ENDED and name in self._pending.transients

    def end_transients(self, names: Iterable[str]) -> None:
        """Delete transient segments, unless it serves no more: then its next opening does."""
        if not self.serving:
            return
        now_ms = self._around.clock.now_ms()
        for name in filter(self.has_transient, names):
            self._enqueue(end_transient(self._pending, name, now_ms), self._throttle.count)

    def setup(self, request: SetupAppend, request_id: int, send: Send) -> AppendSession | None:
        """Open an append session → AppendSetup, or None and a Failed reply.

        This ends an older session of the same writer and segment.
        """
        self.check_serving()
        known = self._pending.known(request.segment)
        try:
            state = decide_setup(known, request.segment, request.writer_id)
        except AnabranchError as error:
            self.metrics.refuse(error.code)
            self._answer(failed(error, request.session), request_id, send)
            return None
        session = self.sessions.begin(request, state.number, send)
        last = self._pending.last_event_number(state.number, request.writer_id)
        reply = AppendSetup(session=request.session, last_event_number=last, sealed=state.sealed)
        self._answer(reply, request_id, send)
        return session

    def _answer(self, message: Message, request_id: int, send: Send) -> None:
        reply = HeldReply(self._pending.sequence, lambda told: send(told, request_id), message)
        self._gate.hold(reply)

    def append(
        self, session: AppendSession, request_id: int, request: Append, payload: bytes
    ) -> None:
        """Append → Appended, cumulative; a refusal ends the session."""
        self.check_serving()
        span = None
        if request.trace_parent:
            span = self._spans.begin(
                "append", request.trace_parent, session.segment,
                events=request.count, bytes=len(payload),
            )  # fmt: skip
        try:
            length, event_count = self._append(session, request, payload)
        except AnabranchError as error:
            self.metrics.refuse(error.code)
            self.sessions.end(session)
            self._answer(failed(error, session.session), request_id, session.send)
            if span is not None:
                end_failed(span, error)
            return
        last = request.first_event_number + request.count - 1
        self._gate.hold(
            HeldAck(self._pending.sequence, session, request_id, last, length, event_count)
        )
        if span is not None:
            self._spans.hold(self._pending.sequence, span)

    def _append(self, session: AppendSession, request: Append, payload: bytes) -> tuple[int, int]:
        """Returns the segment's length and event count after the append; -1 if it is a repeat."""
        if not session.alive:
            raise SessionEnded("the append session has ended", segment=session.segment)
        state = self._pending.living(session.number)
        if state is None:
            raise gone(self._pending.known(session.segment), session.segment)
        now_ms = self._around.clock.now_ms()
        decided = decide_in_session(
            self._pending, state, session.writer_id, request, payload, now_ms=now_ms
        )
        self._perform(decided.decision)
        return decided.length, decided.event_count

    def _enqueue(self, operation: Operation, admit: Callable[[int], None]) -> None:
        """Give the operation its sequence number and queue it, unless `admit` raises."""
        pending = PendingOperation(self._pending.sequence + 1, operation)
        admit(pending.size)
        self._queue.add(pending, self._around.clock.monotonic)
        self._apply_queued((pending,))

    def _enqueue_group(self, operations: Sequence[Operation]) -> None:
        """Queue the operations for one frame, unless the admission of all of them raises."""
        first = self._pending.sequence + 1
        group = [PendingOperation(*each) for each in enumerate(operations, first)]
        self._admission.admit(sum(pending.size for pending in group))
        self._queue.add_group(group, self._around.clock.monotonic)
        self._apply_queued(group)

    def _apply_queued(self, queued: Sequence[PendingOperation]) -> None:
        """Apply them to the pending state. An error ends the container before they are logged."""
        try:
            with naming_defects("applying an operation of a container"):
                for pending in queued:
                    self._pending.apply(pending.sequence, pending.operation)
        except AnabranchError as error:
            self.fail(error)
            raise stopped(self.container, error) from error
        self.log.ready()

    # --- the log ------------------------------------------------------------------------------

    def take_frame(self, size_max: int) -> FrameContents | None:
        """See `ports.FrameSource`."""
        return self._queue.take_frame(size_max)

    def frame_durable(self, contents: FrameContents, address: LogAddress) -> None:
        """See `ports.FrameSource`. Acknowledges, evolves, indexes, answers and wakes readers, in
        this order and in one turn of the loop: no read of an acknowledged event comes between."""
        if self.failure is not None:
            return
        frame = self._queue.frame_durable()
        self._throttle.forget_pending(contents.size)
        items = frame.operations
        assert items[0].sequence == contents.first_sequence
        self._spans.note_answering()
        self._gate.acknowledge(items[-1].sequence)
        untiered = self.applied.untiered
        at = 0
        try:
            for item in items:
                merged = self.applied.apply(item.sequence, item.operation, address, at)
                if merged:
                    self.notices.merged(item.operation, merged)
                at += item.size
        finally:  # after a defect, `fail` takes back all that was added
            touched = self.applied.end_frame()
            self._throttle.add_untiered(self.applied.untiered - untiered)
        self._gate.release(items[-1].sequence)
        self._spans.release(items[-1].sequence)
        self.metrics.append_seconds.record(self._around.clock.monotonic() - frame.queued_at_s)
        for number in touched:
            self.tails.wake(number)
        self.notices.frame_applied([item.operation for item in items], touched)

    def log_failed(self, error: AnabranchError) -> None:
        """See `ports.FrameSource`."""
        self.fail(error)

    def journal_failed(self, error: AnabranchError) -> None:
        """See `ports.FrameSource`."""
        self.journal_failure = error
        self.fail(error)
