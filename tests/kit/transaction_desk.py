"""The stream s/x and its transactions in memory, asked as controllers are; time is a number.

Nothing is worked on unless a test says so (`work`). What another one does at the worst moment is
planted: `store.before` is called before an append, `stores.before` before a request to segments.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

from anabranch.common.contracts import queries, transactions
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.commands import (
    CreateScope,
    CreateStream,
    NewRange,
    ScaleStream,
    SealStream,
)
from anabranch.common.contracts.control import QUESTIONS
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import (
    scope_events,
    stream_events,
    transaction_events,
    transaction_gate,
)
from anabranch.common.errors import AnabranchError, SegmentNotFound
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import Append, EventMessage, Gate, NewMessage
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import SegmentId, segment_id, stream_ref
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.wire.messages import Stamp
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.kinds import APPLICATIONS, SCOPES, STREAMS, TRANSACTIONS
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.stream import decide as stream_decide
from anabranch.controller.domain.stream.decide import Circumstances, StreamCommand
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream, next_step
from anabranch.controller.domain.transaction import state as transaction_state
from anabranch.controller.domain.transaction.decide import Opening, opened
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.handlers.desk.desk import QueryDesk
from anabranch.controller.handlers.desk.transactions import MadeSegments, TransactionDesk
from anabranch.controller.handlers.registry import answer_query
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.outcomes import OutcomeHistory
from anabranch.controller.workflows import (
    abort_transaction,
    archive_outcomes,
    commit_transactions,
    create_stream,
    scale_stream,
    seal_stream,
)
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.repositories import Repositories
from kit.desks import DAY_MS, query_desk
from kit.fake_stores import FakeSegment, FakeSegmentStores
from kit.fed_mirror import mirror_of
from kit.loud import loud

REF = stream_ref("s/x")
SUBJECT = stream_events(REF)
SCOPE_SUBJECT = scope_events(REF.scope)
STEPS = {
    **create_stream.STEPS,
    **scale_stream.STEPS,
    **seal_stream.STEPS,
    **commit_transactions.STEPS,
    **archive_outcomes.STEPS,
}
START_MS = 1_000_000
STEPS_MAX = 100

A = TypeVar("A", bound=Contract)
Interference = Callable[[str], Awaitable[None]]


class SetClock:
    """A clock that stands where it is set."""

    def __init__(self) -> None:
        self.at_ms = START_MS

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic(self) -> float:
        return self.at_ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.at_ms += int(seconds * 1000)


class PlantedStore(InMemoryEventStore):
    """`before(subject)` is awaited before the next append on a subject with `planted` in it; once.
    `appended` lists the subjects of all that was stored."""

    def __init__(self) -> None:
        super().__init__()
        self.appended: list[str] = []
        self.heads_read = 0
        self._planted: tuple[str, Interference] | None = None
        self._planted_load: tuple[str, Interference] | None = None

    def before(self, planted: str, interference: Interference) -> None:
        self._planted = (planted, interference)

    def before_load(self, planted: str, interference: Interference) -> None:
        """The same before the next load of such a subject."""
        self._planted_load = (planted, interference)

    async def load(self, subject: str, after_sequence: int = 0) -> Sequence[EventMessage]:
        planted = self._planted_load
        if planted is not None and planted[0] in subject:
            self._planted_load = None
            await planted[1](subject)
        return await super().load(subject, after_sequence)

    async def append(
        self,
        subject: str,
        expected_sequence: int,
        message: NewMessage,
        *,
        gate: Gate | None = None,
    ) -> int:
        await self._interfere([subject])
        sequence = await super().append(subject, expected_sequence, message, gate=gate)
        self.appended.append(subject)
        return sequence

    async def append_all(self, appends: Sequence[Append]) -> Sequence[int]:
        await self._interfere([one.subject for one in appends])
        sequences = await super().append_all(appends)
        self.appended += [one.subject for one in appends]
        return sequences

    async def last_sequence(self, shard: int) -> int:
        self.heads_read += 1
        return await super().last_sequence(shard)

    async def _interfere(self, subjects: Sequence[str]) -> None:
        planted = self._planted
        if planted is not None and any(planted[0] in subject for subject in subjects):
            self._planted = None
            await planted[1](subjects[0])


@dataclass
class PlantedStores(FakeSegmentStores):
    """Segment stores whose new segments are empty. `before` is awaited before each request."""

    before: Interference | None = None

    async def create_segment(self, segment: str, stamp: Stamp) -> None:
        await self._interfere(segment)
        known = segment in self.segments
        await super().create_segment(segment, stamp)
        if not known:
            self.segments[segment].length = 0

    async def segment_lengths(self, segments: Sequence[str]) -> Sequence[int]:
        for segment in segments:
            await self._interfere(segment)
        return await super().segment_lengths(segments)

    async def merge_batch(self, segment: str, parts: Sequence[str | bytes], stamp: Stamp) -> int:
        await self._interfere(segment)
        return await super().merge_batch(segment, parts, stamp)

    async def merge_segments(self, segment: str, sources: Sequence[str], stamp: Stamp) -> int:
        self._enter("merge", segment, stamp)
        target = self._found(segment)
        for name in sources:
            source = self.segments.get(name)
            if source is None:
                raise SegmentNotFound("a source that never was", segment=name)
            if not source.deleted:
                target.length += source.length
                source.deleted, source.stamp = True, stamp
        return target.length

    async def _interfere(self, segment: str) -> None:
        planted, self.before = self.before, None
        if planted is not None:
            await planted(segment)


class TransactionWorld:
    """`desk` answers; `another()` is the desk of another controller that has made no segments."""

    def __init__(self) -> None:
        self.store, self.stores = PlantedStore(), PlantedStores()
        self.clock = SetClock()
        ids = SeededIds(1)
        repositories = Repositories(self.store, ids, lambda subject: self.mirror.known(subject))  # noqa: PLW0108
        self.scopes, self.streams = repositories[SCOPES], repositories[STREAMS]
        self.transactions = repositories[TRANSACTIONS]
        self.applications = repositories[APPLICATIONS]
        self.mirror = mirror_of(self.store, repositories=repositories, containment=loud(self.clock))
        chunks = HistoryChunks(self.store, ids)
        self.gates = Gates(self.store, ids)
        self.context = WorkContext(
            stores=self.stores,
            repositories=repositories,
            streams=self.mirror,
            groups=self.mirror,
            listing=self.mirror,
            histories=Histories(chunks),
            outcomes=OutcomeHistory(chunks),
            gates=self.gates,
            commands=_NoQueue(),
            clock=self.clock,
            writer_times=None,
            outcomes_kept_ms=DAY_MS,
        )
        work = TransactionDesk(
            transactions=self.transactions,
            applications=self.applications,
            store=self.store,
            gates=self.gates,
            stores=self.stores,
            outcomes=self.context.outcomes,
            clock=self.clock,
            ids=ids,
        )
        self.desk = query_desk(
            self.mirror,
            segment_lengths=self.stores.segment_lengths,
            history=self.context.histories.of,
            transactions=work,
        )
        self._commands = 0

    def another(self) -> QueryDesk:
        """A controller that sees the same and has done nothing yet."""
        work = replace(self.desk.transactions, made=MadeSegments())
        return replace(self.desk, transactions=work)

    def replace_desk(self, **fields: Any) -> None:
        self.desk = replace(self.desk, **fields)

    # --- changing ------------------------------------------------------------------------------

    async def create(self, segments: int = 2) -> None:
        scope = CreateScope(command_id="scope", scope=REF.scope)
        await self.scopes.transact(
            SCOPE_SUBJECT,
            lambda found: scope_decide.decide(found.state, scope, now_ms=self.clock.now_ms()),
        )
        await self.perform(
            partial(CreateStream, scope=REF.scope, stream=REF.stream, segment_count=segments)
        )
        await self.work()

    async def split(self, segment: SegmentId, *bounds: float) -> None:
        """Replace a segment by those between neighbours in `bounds`; decided, not worked on."""
        ranges = tuple(NewRange(key_start=a, key_end=b) for a, b in pairwise(bounds))
        command = partial(
            ScaleStream, scope=REF.scope, stream=REF.stream, seal=(segment,), new_ranges=ranges
        )
        await self.perform(command)

    async def seal(self) -> None:
        """Decide that it is sealed; not worked on."""
        await self.perform(partial(SealStream, scope=REF.scope, stream=REF.stream))

    async def perform(self, command: Callable[..., StreamCommand]) -> None:
        self._commands += 1
        asked = command(command_id=f"command-{self._commands}")

        def decide(found: Loaded[Stream]) -> Any:
            at = Circumstances(
                revision=found.revision + 1,
                open_scope_incarnation=1,
                now_ms=self.clock.now_ms(),
                history=lambda: History(found.state.epochs),
            )
            return stream_decide.decide(found.state, asked, at)

        await self.streams.transact(SUBJECT, decide)

    async def work(self) -> None:
        """Perform all steps that there are."""
        for _ in range(STEPS_MAX):
            await self.mirror.reach_heads()
            worked = await self.end_aborted()
            if not await self.step() and not worked:
                return
        raise AssertionError("the work never ends")

    async def step(self) -> bool:
        """Perform the stream's next step; False if there is none."""
        await self.mirror.reach_heads()
        loaded = self.mirror.stream(REF)
        assert loaded is not None
        step = next_step(loaded.state, self.mirror.seen(loaded.state))
        if step is None:
            return False
        try:
            event = await STEPS[step](self.context, loaded)
        except StillWaiting:  # for what `end_aborted` does
            return True
        await self.streams.append(loaded, [event])
        return True

    async def end_aborted(self) -> bool:
        """Perform the steps of transactions that are being aborted; False if there are none."""
        waiting = [
            loaded
            for loaded in self.mirror.transactions.all()
            if transaction_state.next_step(loaded.state) is not None
        ]
        for loaded in waiting:
            step = transaction_state.next_step(loaded.state)
            assert step is not None
            event = await abort_transaction.STEPS[step](self.context, loaded)
            await self.transactions.append(loaded, [event])
        return bool(waiting)

    async def decide(
        self,
        transaction: str,
        decide: Callable[[Transaction], Sequence[TransactionEvent]],
    ) -> Loaded[Transaction]:
        """What another controller decides about a transaction."""
        subject = transaction_events(REF, 1, transaction)
        return await self.transactions.transact(subject, lambda seen: decide(seen.state))

    async def open_elsewhere(self, number: int = 0) -> str:
        """Another controller begins one and is lost before it makes the segments; the mirror has
        not seen it yet. `number`: of which the id is made."""
        transaction, gate = f"{number:032x}", transaction_gate(REF, 1)
        asked = transactions.BeginTransaction(scope=REF.scope, stream=REF.stream)
        event = opened(asked, Opening(transaction, 1, 0, self.clock.now_ms()))
        subject = transaction_events(REF, 1, transaction)
        sequence = (await self.gates.read(gate)).sequence
        await self.transactions.create(subject, [event], Gate(gate, sequence))
        return transaction

    async def purge(self, transaction: str) -> None:
        """Delete all of its messages."""
        subject = transaction_events(REF, 1, transaction)
        shard = await self.store.last_sequence(int(subject.split(".")[2]))
        await self.store.purge(subject, shard + 1)

    # --- asking --------------------------------------------------------------------------------

    async def raw(self, query: str, desk: QueryDesk | None = None, **fields: Any) -> bytes:
        """The encoded answer to a query about s/x."""
        contract = QUESTIONS[query].query
        body = contract.model_validate({"scope": "s", "stream": "x", **fields})
        request = Envelope(body.model_dump_json().encode())
        return await answer_query(desk or self.desk, query, request)

    async def ask(
        self, query: str, kind: type[A], desk: QueryDesk | None = None, **fields: Any
    ) -> A:
        assert QUESTIONS[query].answer is kind
        answer = await self.raw(query, desk, **fields)
        assert b'"ok":true' in answer, answer
        return kind.model_validate_json(answer)

    async def refusal(self, query: str, desk: QueryDesk | None = None, **fields: Any) -> str:
        """The code of the error that the query is answered with."""
        return (await self.failure(query, desk, **fields)).code

    async def failure(
        self, query: str, desk: QueryDesk | None = None, **fields: Any
    ) -> AnabranchError:
        """The error that the query is answered with."""
        answer = await self.raw(query, desk, **fields)
        return queries.QueryFailed.model_validate_json(answer).error.to_error()

    async def begin(
        self, desk: QueryDesk | None = None, **fields: Any
    ) -> transactions.TransactionBegun:
        return await self.ask("begin_transaction", transactions.TransactionBegun, desk, **fields)

    async def begin_id(self, **fields: Any) -> str:
        return (await self.begin(**fields)).transaction.transaction_id

    async def info(
        self, query: str, transaction: str, desk: QueryDesk | None = None, **fields: Any
    ) -> transactions.TransactionInfo:
        """What a query about one transaction answers."""
        kind = QUESTIONS[query].answer
        answer = await self.ask(query, kind, desk, transaction_id=transaction, **fields)
        assert isinstance(
            answer, transactions.TransactionDescription | transactions.TransactionBegun
        )
        return answer.transaction

    async def status(self, transaction: str) -> str:
        """Where it stands, by the store."""
        loaded = await self.transactions.load(transaction_events(REF, 1, transaction))
        return str(loaded.state.status)

    async def decided(self, transaction: str, state: str) -> None:
        """Wait until it stands there, by the store."""
        for _ in range(1000):
            if await self.status(transaction) == state:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"it is {await self.status(transaction)}")

    async def folded(self) -> None:
        """Let the mirror see everything."""
        await self.mirror.reach_heads()

    def segment(self, transaction: str, number: int, part: str = "") -> FakeSegment:
        """The transaction's segment beside segment `number` of epoch 0."""
        suffix = f".{part}" if part else ""
        return self.stores.segments[f"s/x/{number}.#epoch.0#transaction.{transaction}{suffix}"]

    def live_of(self, transaction: str) -> list[str]:
        """The names of the transaction's segments that there are."""
        return [name for name in self.stores.live() if transaction in name]


@dataclass
class _NoQueue:
    """Takes no command."""

    posted: list[object] = field(default_factory=list)

    async def post(self, command: object) -> None:
        raise AssertionError(f"nobody posts {command}")


@asynccontextmanager
async def transaction_world(segments: int = 2) -> AsyncIterator[TransactionWorld]:
    """A world whose mirror follows, with the stream s/x."""
    world = TransactionWorld()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(world.mirror.serve())
        try:
            await world.create(segments)
            yield world
        finally:
            serving.cancel()


FIRST, SECOND = segment_id(0, 0), segment_id(0, 1)
