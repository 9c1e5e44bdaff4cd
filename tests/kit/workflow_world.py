"""Scopes and streams in memory, with what their workflows work on; controllers come and go.

Everything durable (events, segments) belongs to the `World`; a controller is a `WorkContext` on it,
and as many as a test wants may work on the same at once.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from anabranch.common.contracts.commands import (
    CreateScope,
    CreateStream,
    DeleteScope,
    DeleteStream,
    NewRange,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)
from anabranch.common.contracts.reader_groups import DeleteReaderGroup
from anabranch.common.contracts.subjects import (
    group_events,
    scope_events,
    shard_of_subject,
    stream_events,
    table_events,
    transaction_events,
    transaction_gate,
)
from anabranch.common.contracts.transactions import BeginTransaction
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import Gate
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import (
    ScopeName,
    StreamName,
    StreamRef,
    is_internal,
    segment_id,
    stream_ref,
)
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.stream import SegmentOffset, fixed
from anabranch.common.model.table import TableRef
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.wire.messages import Stamp
from anabranch.common.workflow.runner import Workflow, run_to_rest
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.kinds import GROUPS, SCOPES, STREAMS, TABLES, TRANSACTIONS
from anabranch.controller.domain.kv_table import decide as table_decide
from anabranch.controller.domain.kv_table.decide import TableCommand
from anabranch.controller.domain.kv_table.state import KvTable
from anabranch.controller.domain.reader_group import decide as group_decide
from anabranch.controller.domain.reader_group.decide import GroupCommand
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.starts import READABLE, SeenStream
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.scope.state import Scope, ScopeEvent
from anabranch.controller.domain.stream import decide as stream_decide
from anabranch.controller.domain.stream.commits import OUTCOMES_KEPT, OUTCOMES_PER_CHUNK
from anabranch.controller.domain.stream.decide import Circumstances, StreamCommand
from anabranch.controller.domain.stream.events import (
    StreamAbortsNoted,
    StreamEvent,
    TransactionOutcome,
)
from anabranch.controller.domain.stream.state import Stream, StreamStep, next_step
from anabranch.controller.domain.transaction import decide as transaction_decide
from anabranch.controller.domain.transaction.decide import Opening
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.segments import segments_of
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.ports import SegmentStores
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.outcomes import OutcomeHistory
from anabranch.controller.workflows import steps
from anabranch.controller.workflows.context import OPEN_REVISION, WorkContext
from anabranch.controller.workflows.observed import Observer
from anabranch.controller.workflows.repositories import Repositories
from anabranch.controller.workflows.steps import workflow_of
from kit.deciding_queue import DecidingQueue
from kit.desks import DAY_MS
from kit.fake_stores import FakeSegmentStores
from kit.fake_writer_times import InMemoryWriterTimes
from kit.fed_mirror import fed_mirror
from kit.head_listing import Listing

ROUNDS_MAX = 20
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
UPDATE = UpdateStream(command_id="update", scope=REF.scope, stream=REF.stream, config=fixed(4))
TRUNCATE = TruncateStream(
    command_id="truncate",
    scope=REF.scope,
    stream=REF.stream,
    cut=tuple(SegmentOffset(segment_id(1, number), 10) for number in range(3, 6)),
)
STEPS = steps.STEPS[STREAMS.name]
GROUP_STEPS = steps.STEPS[GROUPS.name]
SCOPE_STEPS = steps.STEPS[SCOPES.name]


class SetClock(SystemClock):
    """It is as late as a test says."""

    def __init__(self) -> None:
        self.ms = 5000

    def now_ms(self) -> int:
        return self.ms


@dataclass
class World:
    """Aggregates in memory, segment stores in memory, and one controller."""

    store: InMemoryEventStore = field(default_factory=InMemoryEventStore)
    segments: FakeSegmentStores = field(default_factory=FakeSegmentStores)
    clock: SetClock = field(default_factory=SetClock)

    def __post_init__(self) -> None:
        self.repositories = Repositories(self.store, SeededIds(1))
        self.scopes = self.repositories[SCOPES]
        self.streams = self.repositories[STREAMS]
        self.groups = self.repositories[GROUPS]
        self.tables = self.repositories[TABLES]
        self.transactions = self.repositories[TRANSACTIONS]
        self.gates = Gates(self.store, SeededIds(4))
        self.chunks = HistoryChunks(self.store, SeededIds(3))
        self.mirror = fed_mirror(self.store)
        self.listing = Listing(self.streams, self.groups, self.mirror.stream, {REF.stream})
        self.writer_times = InMemoryWriterTimes(self.clock)
        self.queue = DecidingQueue(self)
        self.histories = Histories(self.chunks)
        self.context = self.controller(self.segments)

    def controller(self, stores: SegmentStores) -> WorkContext:
        """Another controller, which knows nothing but what is stored."""
        return WorkContext(
            stores=stores,
            repositories=self.repositories,
            streams=self.listing,
            histories=Histories(self.chunks),
            commands=self.queue,
            gates=self.gates,
            groups=self.listing,
            listing=self.mirror,
            outcomes=OutcomeHistory(self.chunks),
            clock=self.clock,
            writer_times=self.writer_times,
            outcomes_kept_ms=DAY_MS,
        )

    def workflow(self, context: WorkContext | None = None) -> Workflow[Stream, StreamEvent, str]:
        workflow = workflow_of(STREAMS, context or self.context, Observer())
        return replace(workflow, settle=self._settle)

    def next_step(self, stream: Stream) -> StreamStep | None:
        """What the stream has to do, as far as the mirror has come."""
        return next_step(stream, self.mirror.seen(stream))

    async def _settle(self, loaded: Loaded[Stream]) -> None:
        await self.mirror.reach_head(shard_of_subject(loaded.subject))
        await self.mirror.settle(loaded)

    def group_workflow(
        self, context: WorkContext | None = None
    ) -> Workflow[ReaderGroup, GroupEvent, str]:
        return workflow_of(GROUPS, context or self.context, Observer())

    def scope_workflow(self) -> Workflow[Scope, ScopeEvent, str]:
        return workflow_of(SCOPES, self.context, Observer())

    def transaction_workflow(
        self, context: WorkContext | None = None
    ) -> Workflow[Transaction, TransactionEvent, str]:
        return workflow_of(TRANSACTIONS, context or self.context, Observer())

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

    async def table_command(self, command: TableCommand) -> Loaded[KvTable]:
        """Decide as a handler does."""
        ref = TableRef(ScopeName(command.scope), command.table)
        scope = (await self.scopes.load(scope_events(ref.scope))).state
        incarnation = scope.incarnation if scope.is_open else None
        return await self.tables.transact(
            table_events(ref),
            lambda found: table_decide.decide(
                found.state, command, table_decide.Circumstances(found.revision + 1, incarnation, 1)
            ),
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
        for first in FIRST[step]:
            await run_to_rest(self.workflow(), SUBJECT)
            await (first(self) if callable(first) else self.command(first))
        loaded = await self.streams.load(SUBJECT)
        while (due := await self._due(loaded)) is not step:
            assert due is not None, f"nothing leads to {step}"
            loaded = await self.streams.append(loaded, [await STEPS[due](self.context, loaded)])
        return loaded

    async def _due(self, loaded: Loaded[Stream]) -> StreamStep | None:
        await self._settle(loaded)
        return self.next_step(loaded.state)

    async def rest(
        self, context: WorkContext | None = None, subject: str = SUBJECT
    ) -> Loaded[Stream]:
        """Work on a stream, and on all transactions, until nothing is left to do."""
        for _ in range(ROUNDS_MAX):
            await self.mirror.reach_head(shard_of_subject(subject))
            for each in list(self.mirror.transactions.family.working):
                await run_to_rest(self.transaction_workflow(context), each)
            with suppress(StillWaiting):
                loaded = await run_to_rest(self.workflow(context), subject)
                if not self.mirror.transactions.family.working:
                    return loaded
        raise AssertionError("the stream does not come to rest")

    # --- transactions ---------------------------------------------------------------------------

    async def begin(self, transaction: str, *, parts: str = "", has_parts: bool = False) -> None:
        """Begin it, with parts of these letters, as a handler does; `transaction` is a digit."""
        stream = await self.stream()
        asked = BeginTransaction(scope=REF.scope, stream=REF.stream, parts=bool(parts) or has_parts)
        opening = Opening(
            transaction * 32, stream.incarnation, stream.stream_epoch, self.clock.now_ms()
        )
        gate = transaction_gate(REF, stream.incarnation)
        seen = Gate(gate, await self.gates.open_sequence(gate))
        event = transaction_decide.opened(asked, opening)
        loaded = await self.transactions.create(self.subject_of(transaction), [event], seen)
        if not loaded.state.has_parts:
            await self._make(loaded.state, "")
        for letter in parts:
            await self.decide(transaction, partial(transaction_decide.add_part, part=letter * 32))
            await self._make(loaded.state, letter * 32)

    async def _make(self, transaction: Transaction, part: str) -> None:
        stamp = Stamp(transaction.incarnation, OPEN_REVISION)
        parents = (await self.histories.of(await self.stream())).segments_of(
            transaction.stream_epoch
        )
        for segment in segments_of(transaction, parents, part):
            await self.segments.create_segment(segment, stamp)

    async def commit(self, transaction: str, parts: str = "", **mark: Any) -> None:
        """Decide that it is committed, with the parts of these letters."""
        named = [letter * 32 for letter in parts]
        now_ms = self.clock.now_ms()
        await self.decide(
            transaction, lambda t: transaction_decide.commit(t, named, now_ms=now_ms, **mark)
        )

    async def abort(self, transaction: str) -> None:
        """Decide that it is aborted."""
        now_ms = self.clock.now_ms()
        await self.decide(transaction, lambda t: transaction_decide.abort(t, "asked", now_ms))

    async def decide(
        self, transaction: str, decision: Callable[[Transaction], Sequence[TransactionEvent]]
    ) -> None:
        await self.transactions.transact(
            self.subject_of(transaction), lambda found: decision(found.state)
        )

    def subject_of(self, transaction: str, incarnation: int = 1) -> str:
        """Of the transaction that is called by that digit."""
        return transaction_events(REF, incarnation, transaction * 32)

    async def transaction(self, transaction: str) -> Transaction:
        """As it is stored now."""
        return (await self.transactions.load(self.subject_of(transaction))).state


Deed = StreamCommand | Callable[[World], Awaitable[None]]


async def updated_while_scaling(world: World) -> None:
    """A scale is pending, and behind it an update that asks for another one."""
    await world.command(SCALE)
    await world.command(UPDATE)


async def batch(world: World) -> None:
    """Three transactions are to be committed, in another order than they were begun."""
    for name in "123":
        await world.begin(name)
    for name in "312":
        await world.commit(name)


async def opened(world: World) -> None:
    """Two transactions are open."""
    for name in "12":
        await world.begin(name)


async def decided(world: World) -> None:
    """Of the two open ones, the second is to be committed first."""
    for name in "21":
        await world.commit(name)


async def aborted(world: World) -> None:
    """Two transactions are aborted, and the stream does not know."""
    await opened(world)
    for name in "12":
        await world.abort(name)
        await run_to_rest(world.transaction_workflow(), world.subject_of(name))


async def many_outcomes(world: World) -> None:
    """The stream remembers so many outcomes that it should forget some."""
    loaded = await world.streams.load(SUBJECT)
    for first in range(0, OUTCOMES_KEPT + OUTCOMES_PER_CHUNK, 250):
        noted = tuple(
            TransactionOutcome(transaction_id=f"{n:032x}", stream_epoch=0, ended_ms=n)
            for n in range(first, first + 250)
        )
        loaded = await world.streams.append(loaded, [StreamAbortsNoted(aborted=noted)])


FIRST: dict[StreamStep, Sequence[Deed]] = {
    StreamStep.JOIN_SCOPE: (),
    StreamStep.CREATE_SEGMENTS: (),
    StreamStep.MAKE_SUCCESSORS: (SCALE,),
    StreamStep.SEAL_PREDECESSORS: (SCALE,),
    StreamStep.APPLY_UPDATE: (updated_while_scaling,),
    StreamStep.CHECK_CUT: (SCALE, TRUNCATE),
    StreamStep.TRUNCATE_SEGMENTS: (SCALE, TRUNCATE),
    StreamStep.SEAL_SEGMENTS: (SEAL,),
    StreamStep.DELETE_SEGMENTS: (SEAL, DELETE),
    StreamStep.START_COMMIT: (batch,),
    StreamStep.COMMIT_TRANSACTIONS: (batch,),
    StreamStep.MAKE_ROLLED_SEGMENTS: (opened, SCALE, decided),
    StreamStep.SEAL_BEFORE_ROLL: (opened, SCALE, decided),
    StreamStep.FINISH_ROLLED: (opened, SCALE, decided),
    StreamStep.NOTE_ABORTS: (aborted,),
    StreamStep.END_TRANSACTIONS: (opened, SEAL),
    StreamStep.ARCHIVE_OUTCOMES: (many_outcomes,),
}
"""What happens to the new stream, one after the other, so that the step is to be done."""
