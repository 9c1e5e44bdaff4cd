"""Scopes and streams in memory, with what their workflows work on; controllers come and go.

Everything durable (events, segments) belongs to the `World`; a controller is a `WorkContext` on it,
and as many as a test wants may work on the same at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from anabranch.common.contracts.commands import (
    Command,
    CreateScope,
    CreateStream,
    DeleteScope,
    DeleteStream,
    NewRange,
    ScaleStream,
    SealStream,
    TruncateStream,
)
from anabranch.common.contracts.reader_groups import DeleteReaderGroup
from anabranch.common.contracts.subjects import group_events, scope_events, stream_events
from anabranch.common.errors import Conflict, InvalidRequest, NotFound, Retry
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.names import (
    ScopeName,
    StreamName,
    StreamRef,
    is_internal,
    segment_id,
    stream_ref,
)
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.runner import Workflow, run_to_rest
from anabranch.controller.domain.reader_group import decide as group_decide
from anabranch.controller.domain.reader_group.decide import GroupCommand
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.invariants import GROUP
from anabranch.controller.domain.reader_group.starts import READABLE, SeenStream
from anabranch.controller.domain.reader_group.state import GroupStep, ReaderGroup
from anabranch.controller.domain.reader_group.state import next_step as group_next_step
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.scope.state import SCOPE, Scope, ScopeEvent, ScopeStep
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream import decide as stream_decide
from anabranch.controller.domain.stream.decide import Circumstances, StreamCommand
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream, StreamStep, next_step
from anabranch.controller.ports import SegmentStores
from anabranch.controller.projections.histories import Histories
from anabranch.controller.workflows import (
    archive_history,
    create_reader_group,
    create_stream,
    delete_reader_group,
    delete_scope,
    delete_scope_recursively,
    delete_stream,
    reset_reader_group,
    scale_stream,
    seal_stream,
    truncate_stream,
)
from anabranch.controller.workflows.context import WorkContext
from kit.fake_stores import FakeSegmentStores

REF = stream_ref("s/x")
GROUP_REF = GroupRef(REF.scope, "g")
GROUP_SUBJECT = group_events(GROUP_REF)
STATE_SUBJECT = stream_events(GROUP_REF.state_stream)
SUBJECT = stream_events(REF)
SCOPE_SUBJECT = scope_events(REF.scope)
CREATE = CreateStream(command_id="create", scope=REF.scope, stream=REF.stream, segment_count=3)
SEAL = SealStream(command_id="seal", scope=REF.scope, stream=REF.stream)
DELETE = DeleteStream(command_id="delete", scope=REF.scope, stream=REF.stream)
SCALE = ScaleStream(
    command_id="scale",
    scope=REF.scope,
    stream=REF.stream,
    seal=tuple(segment_id(0, number) for number in range(3)),
    new_ranges=tuple(
        NewRange(key_start=start, key_end=end) for start, end in ((0, 0.1), (0.1, 0.2), (0.2, 1))
    ),
)
TRUNCATE = TruncateStream(
    command_id="truncate",
    scope=REF.scope,
    stream=REF.stream,
    cut=tuple(SegmentOffset(segment_id(1, number), 10) for number in range(3, 6)),
)
FIRST_COMMANDS: dict[StreamStep, Sequence[StreamCommand]] = {
    StreamStep.JOIN_SCOPE: (),
    StreamStep.CREATE_SEGMENTS: (),
    StreamStep.MAKE_SUCCESSORS: (SCALE,),
    StreamStep.SEAL_PREDECESSORS: (SCALE,),
    StreamStep.TRUNCATE_SEGMENTS: (SCALE, TRUNCATE),
    StreamStep.SEAL_SEGMENTS: (SEAL,),
    StreamStep.DELETE_SEGMENTS: (SEAL, DELETE),
}
"""What is asked of the new stream, one after the other, so that the step is to be done."""
STEPS = {
    **archive_history.STEPS,
    **create_stream.STEPS,
    **scale_stream.STEPS,
    **truncate_stream.STEPS,
    **seal_stream.STEPS,
    **delete_stream.STEPS,
}
GROUP_STEPS = {
    **create_reader_group.STEPS,
    **reset_reader_group.STEPS,
    **delete_reader_group.STEPS,
}
SCOPE_STEPS = {**delete_scope.STEPS, **delete_scope_recursively.STEPS}


@dataclass
class World:
    """Aggregates in memory, segment stores in memory, and one controller."""

    store: InMemoryEventStore = field(default_factory=InMemoryEventStore)
    segments: FakeSegmentStores = field(default_factory=FakeSegmentStores)

    def __post_init__(self) -> None:
        self.scopes = Repository(self.store, SCOPE, SeededIds(1))
        self.streams = Repository(self.store, STREAM, SeededIds(2))
        self.groups = Repository(self.store, GROUP, SeededIds(5))
        self.chunks = HistoryChunks(self.store, SeededIds(3))
        self.listing = Listing(self.streams, self.groups)
        self.queue = DecidingQueue(self)
        self.histories = Histories(self.chunks)
        self.context = self.controller(self.segments)

    def controller(self, stores: SegmentStores) -> WorkContext:
        """Another controller, which knows nothing but what is stored."""
        return WorkContext(
            stores,
            self.scopes,
            self.listing,
            histories=Histories(self.chunks),
            commands=self.queue,
            gates=Gates(self.store, SeededIds(4)),
            groups=self.listing,
        )

    def workflow(
        self, context: WorkContext | None = None
    ) -> Workflow[Stream, StreamEvent, StreamStep]:
        steps = {step: partial(run, context or self.context) for step, run in STEPS.items()}
        return Workflow(self.streams, next_step, steps)

    def group_workflow(
        self, context: WorkContext | None = None
    ) -> Workflow[ReaderGroup, GroupEvent, GroupStep]:
        steps = {step: partial(run, context or self.context) for step, run in GROUP_STEPS.items()}
        return Workflow(self.groups, group_next_step, steps)

    def scope_workflow(self) -> Workflow[Scope, ScopeEvent, ScopeStep]:
        steps = {step: partial(run, self.context) for step, run in SCOPE_STEPS.items()}
        return Workflow(self.scopes, scope_next_step, steps)

    async def open_scope(self) -> None:
        await self.scope_command(CreateScope(command_id="scope", scope=REF.scope))

    async def close_scope(self, command_id: str = "close", *, recursive: bool = False) -> None:
        await self.scope_command(
            DeleteScope(command_id=command_id, scope=REF.scope, recursive=recursive)
        )

    async def scope_command(self, command: CreateScope | DeleteScope) -> Loaded[Scope]:
        return await self.scopes.transact(
            SCOPE_SUBJECT, lambda found: scope_decide.decide(found.state, command, now_ms=1)
        )

    async def command(self, command: StreamCommand) -> Loaded[Stream]:
        """Decide as a handler does; streams of the scope's first life that are no group's, as if
        the scope was open."""
        scope = (await self.scopes.load(SCOPE_SUBJECT)).state
        incarnation = scope.incarnation if scope.is_open else None
        if not is_internal(command.stream):
            incarnation = 1
        subject = stream_events(StreamRef(ScopeName(command.scope), StreamName(command.stream)))
        if (await self.streams.load(subject)).state.is_live:
            await self.histories.of((await self.streams.load(subject)).state)
        return await self.streams.transact(
            subject,
            lambda found: stream_decide.decide(
                found.state,
                command,
                Circumstances(
                    revision=found.revision + 1,
                    open_scope_incarnation=incarnation,
                    now_ms=1,
                    history=lambda: self.histories.known(found.state),
                ),
            ),
        )

    async def group_command(self, command: GroupCommand) -> Loaded[ReaderGroup]:
        """Decide as a handler does."""
        ref = GroupRef(ScopeName(command.scope), command.group)
        scope = (await self.scopes.load(scope_events(ref.scope))).state
        seen = {}
        if not isinstance(command, DeleteReaderGroup):
            for each in command.config.streams:
                stream = (await self.streams.load(stream_events(each.ref))).state
                if stream.status in READABLE:
                    seen[each.stream] = SeenStream(stream, await self.histories.of(stream))
        at = group_decide.Circumstances(scope.incarnation if scope.is_open else None, seen, 1)
        return await self.groups.transact(
            group_events(ref), lambda found: group_decide.decide(found.state, command, at)
        )

    async def group(self) -> ReaderGroup:
        return (await self.groups.load(GROUP_SUBJECT)).state

    async def stream(self) -> Stream:
        return (await self.streams.load(SUBJECT)).state

    async def scope(self) -> Scope:
        return (await self.scopes.load(SCOPE_SUBJECT)).state

    async def reach(self, step: StreamStep) -> Loaded[Stream]:
        """The stream just before `step`."""
        await self.open_scope()
        await self.command(CREATE)
        for command in FIRST_COMMANDS[step]:
            await run_to_rest(self.workflow(), SUBJECT)
            await self.command(command)
        loaded = await self.streams.load(SUBJECT)
        while next_step(loaded.state) is not step:
            due = next_step(loaded.state)
            assert due is not None
            loaded = await self.streams.append(loaded, [await STEPS[due](self.context, loaded)])
        return loaded


class Listing:
    """`StreamListing` and `GroupListing` by reading aggregates at their heads.

    `names` are those of streams that may live.
    """

    def __init__(
        self,
        streams: Repository[Stream, StreamEvent],
        groups: Repository[ReaderGroup, GroupEvent],
    ) -> None:
        self._streams = streams
        self._groups = groups
        self._seen: dict[StreamRef, Loaded[Stream]] = {}
        self.names = {REF.stream}

    def stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        """See `StreamListing.stream`."""
        return self._seen.get(ref)

    async def stream_at_head(self, ref: StreamRef) -> Loaded[Stream] | None:
        """See `StreamListing.stream_at_head`."""
        loaded = await self._streams.load(stream_events(ref))
        return loaded if loaded.revision else None

    async def group_at_head(self, ref: GroupRef) -> Loaded[ReaderGroup] | None:
        """See `GroupListing.group_at_head`."""
        loaded = await self._groups.load(group_events(ref))
        return loaded if loaded.revision else None

    async def live_streams(self, scope: ScopeName, incarnation: int) -> Sequence[StreamName]:
        """See `StreamListing.live_streams`."""
        found = []
        for name in sorted(self.names):
            ref = StreamRef(scope, name)
            self._seen[ref] = loaded = await self._streams.load(stream_events(ref))
            if loaded.state.is_live and loaded.state.scope_incarnation == incarnation:
                found.append(name)
        return found


class DecidingQueue:
    """`CommandSender` that decides at once; a refusal is nobody's, as nobody waits for an answer.

    `posted` lists all; while `is_stuck`, nothing is decided.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.posted: list[Command] = []
        self.is_stuck = False

    async def post(self, command: Command) -> None:
        """See `CommandSender.post`."""
        self.posted.append(command)
        assert not isinstance(command, CreateScope | DeleteScope)
        if self.is_stuck:
            return
        try:
            if isinstance(command, GroupCommand):
                await self._world.group_command(command)
            else:
                await self._world.command(command)
        except (Conflict, NotFound, Retry, InvalidRequest):
            return
