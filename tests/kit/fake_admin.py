"""A controller in memory that also scales, truncates and updates streams, and tells of it.

It answers every query of `contracts.stream_queries`, of operations and of the cluster, and does
what is commanded at once; `held` names the kinds of commands that it accepts and leaves undone
until `release`. Times are counted in seconds from `BEGAN_MS`: each epoch begins one later.
"""

import itertools
from dataclasses import dataclass, field

from anabranch.common.contracts import commands as c
from anabranch.common.contracts import membership as m
from anabranch.common.contracts import operation_queries as oq
from anabranch.common.contracts import parked as p
from anabranch.common.contracts import queries as q
from anabranch.common.contracts import stream_queries as sq
from anabranch.common.contracts import transactions as t
from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.command import about
from anabranch.common.contracts.control import QUESTIONS
from anabranch.common.contracts.scaling import ExplainScaling
from anabranch.common.contracts.watermarks import GetWatermarkStatus, WatermarkStatus
from anabranch.common.contracts.writer_times import NoteTime, RemoveWriter
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    CutRefused,
    InvalidCut,
    InvalidRanges,
    OperationNotFound,
    ScaleRefused,
    StreamSealed,
)
from anabranch.common.model.key_range import KeyRange, even_ranges
from anabranch.common.model.names import is_internal, segment_id
from anabranch.common.model.stream import (
    SegmentRange,
    StreamState,
    fixed,
)
from kit.fake_controller import TOKEN, FakeController
from kit.fake_course import (
    BEGAN_MS,
    EPOCH_MS,
    LENGTH,
    Course,
    about_cuts,
    at,
    cut,
    described,
    epochs,
    in_stream,
    is_after,
    joined,
    order,
    reason_against,
    require_epoch,
    successors,
)
from kit.fake_scaling import explained

NO_PLAN = sq.RetentionPlan(incarnation=1, at_ms=BEGAN_MS)
NO_WATERMARK = WatermarkStatus(incarnation=1, held="no_writers", now_ms=BEGAN_MS)


@dataclass
class AdminController(FakeController):
    """See the module."""

    courses: dict[tuple[str, str], Course] = field(default_factory=dict)
    commanded: dict[str, c.Command] = field(default_factory=dict)
    """By id, each first one."""
    held: set[str] = field(default_factory=set)
    failing: AnabranchError | None = None
    """What operations that are released fail with."""
    busy: bool = False
    parked: list[p.ParkedDescription] = field(default_factory=list)
    retention: sq.RetentionPlan = field(default=NO_PLAN)
    """What is told of the retention of every stream, but for its policy."""
    watermark: WatermarkStatus = field(default=NO_WATERMARK)
    """What is told of the watermark of every stream."""

    # --- commands -------------------------------------------------------------------------

    def decide(self, command: c.Command) -> c.Accepted | c.Rejected:
        if command.command_id not in self.commanded:
            self.commanded[command.command_id] = command
            if command.kind in self.held:
                self.operations[command.command_id] = c.OperationStatus(
                    operation=command.command_id, state=c.OperationState.RUNNING
                )
        answer = super().decide(command)
        if isinstance(answer, c.Rejected):
            del self.commanded[command.command_id]
        return answer

    def release(self) -> None:
        """What was held up is done now, or fails."""
        self.held.clear()
        for name, status in self.operations.items():
            if status.state is not c.OperationState.RUNNING:
                continue
            if self.failing is None:
                self._perform(self.commanded[name])
            self.operations[name] = c.OperationStatus(
                operation=name,
                state=c.OperationState.FAILED if self.failing else c.OperationState.SUCCEEDED,
                read_token=TOKEN,
                error=ErrorBody.of(self.failing) if self.failing else None,
            )

    def _perform(self, command: c.Command) -> None:
        if self.busy and not isinstance(command, c.CreateScope | c.DeleteScope):
            raise Busy("the stream is scaling; that must end first", stream=str(about(command)))
        match command:
            case c.UpdateStream():
                self._writable(command).config = command.config
            case c.ScaleStream():
                self._scale(self._writable(command), command)
            case c.TruncateStream():
                course = self._writable(command)
                reason = reason_against(course, command.cut)
                if reason:
                    raise InvalidCut(reason)
                if order(course, command.cut, course.head) == "before":
                    raise CutRefused("the cut lies before the head")
                course.head = command.cut
            case c.DeleteScope(recursive=True):
                del self.scopes[self._named(command.scope)]
                self.tables.forget(command.scope)
            case c.CreateStream():
                super()._perform(command)
                self.course(command.scope, command.stream).config = command.configured()
            case _:
                super()._perform(command)

    def _named(self, scope: str) -> str:
        self._scope(scope)
        return scope

    def _writable(self, command: c.UpdateStream | c.ScaleStream | c.TruncateStream) -> Course:
        course = self.course(command.scope, command.stream)
        is_truncation = isinstance(command, c.TruncateStream)
        if course.of.state is StreamState.SEALED and not is_truncation:
            raise StreamSealed("the stream is sealed", stream=command.stream)
        return course

    def _scale(self, course: Course, command: c.ScaleStream) -> None:
        epoch = len(course.epochs)
        if command.expected_epoch not in (None, epoch - 1):
            raise ScaleRefused("the stream is at another epoch", stream_epoch=epoch - 1)
        gone = [s for s in course.current if s.segment_id in command.seal]
        if len(gone) < len(command.seal):
            raise ScaleRefused("a segment is not current", segment=command.seal[0])
        new = [KeyRange(keys.key_start, keys.key_end) for keys in command.new_ranges]
        if joined(new) != joined(s.keys for s in gone):
            raise InvalidRanges("the ranges do not cover the segments' keys")
        number = len({s.segment_id for s in itertools.chain(*course.epochs)})
        made = [
            SegmentRange(segment_id(epoch, number + index), keys) for index, keys in enumerate(new)
        ]
        kept = [s for s in course.current if s not in gone]
        course.epochs.append(tuple(sorted([*kept, *made], key=lambda s: s.keys)))
        course.begun_ms.append(BEGAN_MS + epoch * EPOCH_MS)

    # --- queries --------------------------------------------------------------------------

    def answer(self, name: str, data: bytes) -> Contract:
        if name in t.QUERIES or name in t.ACTIONS:
            return super().answer(name, data)
        query = QUESTIONS[name].query.model_validate_json(data)
        try:
            return self._told(query)
        except AnabranchError as error:
            return q.QueryFailed(error=ErrorBody.of(error))

    def _told(self, query: q.Query) -> Contract:
        match query:
            case q.ListStreams():
                return self._list_streams(query)
            case q.DescribeStream():
                return self.describe(query.scope, query.stream)
            case oq.ListOperations():
                return self._list_operations(query)
            case oq.ListWork():
                return self._list_work(query)
            case p.ListParked():
                return p.ParkedList(commands=tuple(self.parked))
            case p.RedriveParked() | p.DropParked():
                kept = [one for one in self.parked if one.command_id != query.command_id]
                was_parked, self.parked = len(kept) < len(self.parked), kept
                return p.ParkedChanged(command_id=query.command_id, was_parked=was_parked)
            case m.ListControllers():
                return m.ControllerList(controllers=(_CONTROLLER,))
            case m.ShowCluster():
                counts = m.MemberCount(known=2, live=1)
                return m.ClusterOverview(
                    answered_by="c1", leader="c1", term=3, controllers=counts, stores=counts,
                    containers={"open": 1},
                )  # fmt: skip
            case sq.GetRetentionPlan() | ExplainScaling() | GetWatermarkStatus():
                return self._of_policies(query)
            case NoteTime() | RemoveWriter():
                return self._answer(query)
            case sq.StreamQuery() | sq.ListEpochs() | sq.ScalingEvents():
                return self._of_stream(query)
            case _:
                return self._answer(query)

    def _of_policies(
        self, query: sq.GetRetentionPlan | ExplainScaling | GetWatermarkStatus
    ) -> Contract:
        course = self.course(query.scope, query.stream)
        if isinstance(query, GetWatermarkStatus):
            return self.watermark
        if isinstance(query, sq.GetRetentionPlan):
            return self.retention.model_copy(update={"policy": course.config.retention})
        name = f"{query.scope}/{query.stream}"
        current = [in_stream(name, segment) for segment in course.current]
        return explained(len(course.epochs) - 1, current)

    def _of_stream(self, query: sq.StreamQuery | sq.ListEpochs | sq.ScalingEvents) -> Contract:
        course = self.course(query.scope, query.stream)
        name = f"{query.scope}/{query.stream}"
        match query:
            case sq.GetStreamConfig():
                return sq.StreamConfigFound(config=course.config)
            case sq.HeadCut():
                return cut(name, course, course.head)
            case sq.TailCut():
                return cut(name, course, at(course.current, LENGTH))
            case sq.EpochSegments():
                require_epoch(course, query.stream_epoch)
                return cut(name, course, at(course.epochs[query.stream_epoch], 0))
            case sq.SegmentsAtTime():
                begun = [n for n, ms in enumerate(course.begun_ms) if ms <= query.time_ms]
                return cut(name, course, at(course.epochs[max(begun, default=0)], 0))
            case sq.Successors():
                return successors(name, course, query.segment_id)
            case sq.DescribeSegment():
                return described(name, course, query.segment_id)
            case sq.ListEpochs():
                found = [e for e in epochs(course) if is_after(e, query.page_token)][::-1]
                page = found[: min(self.page_size, query.page_size)]
                token = str(page[-1].stream_epoch) if len(found) > len(page) else ""
                return sq.EpochList(epochs=tuple(page), next_page_token=token)
            case sq.ScalingEvents():
                return self._scaling_events(name, course, query)
            case sq.CheckScale():
                require_epoch(course, query.stream_epoch)
                now = len(course.epochs) - 1
                return sq.ScaleChecked(
                    status="in_progress" if query.stream_epoch == now else "done",
                    state=course.of.state,
                    stream_epoch=now,
                )
            case _:
                return about_cuts(name, course, query)

    def _scaling_events(self, name: str, course: Course, query: sq.ScalingEvents) -> Contract:
        told = [
            sq.ScalingEvent(
                **epoch.model_dump(),
                segments=tuple(in_stream(name, s) for s in course.epochs[epoch.stream_epoch]),
            )
            for epoch in epochs(course)
        ]
        before = [e for e in told if e.created_ms < query.from_ms][-1:]
        within = [e for e in told if query.from_ms <= e.created_ms <= query.to_ms]
        rest = [e for e in before + within if e.stream_epoch >= int(query.page_token or 0)]
        page = rest[: min(self.page_size, query.page_size)]
        token = str(rest[len(page)].stream_epoch) if len(rest) > len(page) else ""
        return sq.ScalingEventList(events=tuple(page), next_page_token=token)

    def _list_streams(self, query: q.ListStreams) -> q.StreamList:
        names = sorted(
            name
            for name in self._scope(query.scope)
            if not is_internal(name)
            and query.tag in ("", *self.course(query.scope, name).config.tags)
        )
        page, token = self._page(names, query)
        described = tuple(self.describe(query.scope, name) for name in page)
        return q.StreamList(
            streams=page,
            next_page_token=token,
            descriptions=described if query.details else None,
        )

    def describe(self, scope: str, name: str) -> q.StreamDescription:
        course = self.course(scope, name)
        return q.StreamDescription(
            scope=scope, stream=name, incarnation=1, revision=1, state=course.of.state,
            segment_count=len(course.current), stream_epoch=len(course.epochs) - 1,
            created_ms=BEGAN_MS, config=course.config,
        )  # fmt: skip

    def _list_operations(self, query: oq.ListOperations) -> oq.OperationList:
        wanted = [
            name
            for name, status in sorted(self.operations.items())
            if query.state in ("all", status.state.value)
            and query.scope in ("", self.commanded[name].scope)
        ]
        page, token = self._page(wanted, query)
        return oq.OperationList(
            operations=tuple(self._operation(q.GetOperation(operation=o)) for o in page),
            next_page_token=token,
        )

    def _list_work(self, query: oq.ListWork) -> oq.WorkList:
        """What is held up."""
        found = [
            oq.Work(
                scope=command.scope,
                stream=getattr(command, "stream", None),
                kind=command.kind.partition("_")[0],
                step="seal_segments",
                since_ms=BEGAN_MS,
                bucket=3,
                operations=(name,),
                attempts=2,
                last_error=ErrorBody.of(Busy("a store is away")),
                controller="c1",
            )
            for name, command in self.commanded.items()
            if self.operations[name].state is c.OperationState.RUNNING
            and query.scope in ("", command.scope)
        ]
        return oq.WorkList(work=tuple(found))

    def _operation(self, query: q.GetOperation) -> q.OperationFound:
        command = self.commanded.get(query.operation)
        if command is None:
            raise OperationNotFound("no such operation", operation=query.operation)
        found = super()._operation(query)
        running = found.state == "running"
        return found.model_copy(
            update={
                "kind": command.kind.partition("_")[0],
                "scope": command.scope,
                "stream": getattr(command, "stream", None),
                "step": "seal_segments" if running else "",
                "since_ms": BEGAN_MS if running else 0,
            }
        )

    # --- state ----------------------------------------------------------------------------

    def course(self, scope: str, name: str) -> Course:
        """The stream's; one that was put there by hand begins it here."""
        stream = self._stream(scope, name)
        known = self.courses.get((scope, name))
        if known is None or known.of is not stream:
            first = tuple(
                SegmentRange(segment_id(0, number), keys)
                for number, keys in enumerate(even_ranges(stream.segment_count))
            )
            known = Course(stream, fixed(stream.segment_count), [first], at(first, 0))
            self.courses[scope, name] = known
        return known

    def _segments(self, scope: str, name: str) -> q.SegmentList:
        course = self.course(scope, name)
        return q.SegmentList(
            incarnation=1,
            state=course.of.state,
            stream_epoch=len(course.epochs) - 1,
            segments=tuple(in_stream(f"{scope}/{name}", s) for s in course.current),
        )


_CONTROLLER = m.ControllerDescription(
    controller_id="c1", session="s", live=True, since_ms=BEGAN_MS, leader=True, term=3
)
