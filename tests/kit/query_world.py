"""A mirror that follows a store in memory, commands that change it, and queries asked of it.

Commands are decided and worked on as by a controller, except that a test says how many steps are
performed and what time it is.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

from anabranch.common.contracts import (
    commands,
    queries,
)
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.control import QUESTIONS
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import scope_events, stream_events
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import (
    SegmentId,
    StreamRef,
    any_stream_name,
    scope_name,
    segment_id,
)
from anabranch.common.model.stream import SegmentOffset
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.kinds import GROUPS, SCOPES, STREAMS, TABLES
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.scope.state import Scope
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream import decide as stream_decide
from anabranch.controller.domain.stream.decide import Circumstances, StreamCommand
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream, next_step
from anabranch.controller.handlers.registry import answer_query
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.outcomes import OutcomeHistory
from anabranch.controller.projections.quarantine import Fold
from anabranch.controller.workflows import (
    create_stream,
    delete_scope,
    delete_stream,
    scale_stream,
    seal_stream,
    truncate_stream,
)
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.repositories import Repositories
from kit.desks import DAY_MS, query_desk
from kit.fake_stores import FakeSegmentStores
from kit.fed_mirror import fed_mirror, mirror_of

STEPS = {
    **create_stream.STEPS,
    **scale_stream.STEPS,
    **truncate_stream.STEPS,
    **seal_stream.STEPS,
    **delete_stream.STEPS,
}
ALL = 1000
"""More steps than any workflow has."""

A = TypeVar("A", bound=Contract)


class CountingStore(InMemoryEventStore):
    """Counts how often heads are read; `gate` holds these readings up."""

    def __init__(self) -> None:
        super().__init__()
        self.heads_read = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def last_sequence(self, shard: int) -> int:
        self.heads_read += 1
        await self.gate.wait()
        return await super().last_sequence(shard)


class NoQueue:
    """Takes no command."""

    async def post(self, command: commands.Command) -> None:
        raise AssertionError(f"nobody posts {command}")


class QueryWorld:
    """`now_ms` is the time of commands; `desk` answers, and may be replaced. While `is_behind`, a
    question does not wait for the mirror to see everything."""

    def __init__(self) -> None:
        self.store = CountingStore()
        repositories = Repositories(self.store, SeededIds(1))
        self.scopes, self.streams = repositories[SCOPES], repositories[STREAMS]
        self.groups, self.tables = repositories[GROUPS], repositories[TABLES]
        self.folds: list[Fold] = []
        self.mirror = mirror_of(self.store, self.folds.append)
        chunks = HistoryChunks(self.store, SeededIds(3))
        self.stores = FakeSegmentStores()
        self.context = WorkContext(
            stores=self.stores,
            repositories=repositories,
            streams=self.mirror,
            groups=self.mirror,
            listing=fed_mirror(self.store),
            histories=Histories(chunks),
            outcomes=OutcomeHistory(chunks),
            gates=Gates(self.store, SeededIds(4)),
            commands=NoQueue(),
            clock=SystemClock(),
            writer_times=None,
            outcomes_kept_ms=DAY_MS,
        )
        self.now_ms = 1000
        self.is_behind = False
        self._numbers = 0
        self.desk = query_desk(
            self.mirror, locate=self.locate, segment_lengths=self.stores.segment_lengths
        )

    def locate(self, segments: Any) -> tuple[queries.SegmentLocation, ...]:
        return tuple(
            queries.SegmentLocation(segment=s, container=3, container_epoch=1, node_id="node-1")
            for s in segments
        )

    # --- changing ------------------------------------------------------------------------------

    async def scope(self, name: str) -> None:
        await self.decide_scope(commands.CreateScope(command_id=self.new_id(), scope=name))

    async def delete_scope(self, name: str, command_id: str, steps: int = ALL) -> None:
        command = commands.DeleteScope(command_id=command_id, scope=name)
        loaded = await self.decide_scope(command)
        while steps and (step := scope_next_step(loaded.state)) is not None:
            event = await delete_scope.STEPS[step](self.context, loaded)
            loaded = await self.scopes.append(loaded, [event])
            steps -= 1

    async def decide_scope(
        self, command: commands.CreateScope | commands.DeleteScope
    ) -> Loaded[Scope]:
        subject = scope_events(scope_name(command.scope))
        return await self.scopes.transact(
            subject, lambda found: scope_decide.decide(found.state, command, now_ms=self.now_ms)
        )

    def new_id(self) -> str:
        self._numbers += 1
        return f"command-{self._numbers}"

    async def perform(self, command: StreamCommand, steps: int = ALL) -> Loaded[Stream]:
        """Decide the command, then perform that many steps."""
        ref = StreamRef(scope_name(command.scope), any_stream_name(command.stream))
        scope = (await self.scopes.load(scope_events(ref.scope))).state

        def decide(found: Loaded[Stream]) -> Any:
            at = Circumstances(
                revision=found.revision + 1,
                open_scope_incarnation=scope.incarnation if scope.is_open else None,
                now_ms=self.now_ms,
                history=lambda: History(found.state.epochs),
            )
            return stream_decide.decide(found.state, command, at)

        loaded = await self.streams.transact(stream_events(ref), decide)
        return await self.work(loaded, steps)

    async def work(self, loaded: Loaded[Stream], steps: int = ALL) -> Loaded[Stream]:
        """Perform that many steps."""
        while steps and (step := next_step(loaded.state)) is not None:
            event = await STEPS[step](self.context, loaded)
            loaded = await self.streams.append(loaded, [event])
            steps -= 1
        return loaded

    async def create(self, name: str = "s/x", segments: int = 1, **more: Any) -> Loaded[Stream]:
        scope, _, stream = name.partition("/")
        steps = more.pop("steps", ALL)
        return await self.perform(
            commands.CreateStream(
                command_id=more.pop("command_id", self.new_id()),
                scope=scope,
                stream=stream,
                segment_count=segments,
                **more,
            ),
            steps,
        )

    async def scale(
        self, seal: list[int], *bounds: float, steps: int = ALL, **more: Any
    ) -> Loaded[Stream]:
        """Replace segments of s/x by new ones between neighbours in `bounds`."""
        ranges = pairwise(bounds)
        return await self.perform(
            commands.ScaleStream(
                command_id=more.pop("command_id", self.new_id()),
                scope="s",
                stream="x",
                seal=tuple(map(SegmentId, seal)),
                new_ranges=tuple(commands.NewRange(key_start=a, key_end=b) for a, b in ranges),
            ),
            steps,
        )

    async def truncate(self, *cut: tuple[int, int]) -> Loaded[Stream]:
        return await self.perform(
            commands.TruncateStream(
                command_id=self.new_id(), scope="s", stream="x", cut=places(*cut)
            )
        )

    async def seal(self, name: str = "s/x", **more: Any) -> Loaded[Stream]:
        scope, _, stream = name.partition("/")
        steps = more.pop("steps", ALL)
        more.setdefault("command_id", self.new_id())
        return await self.perform(commands.SealStream(scope=scope, stream=stream, **more), steps)

    async def delete(self, name: str = "s/x") -> Loaded[Stream]:
        scope, _, stream = name.partition("/")
        return await self.perform(
            commands.DeleteStream(command_id=self.new_id(), scope=scope, stream=stream)
        )

    # --- asking --------------------------------------------------------------------------------

    async def raw(self, query: str, **fields: Any) -> bytes:
        """The encoded answer; the stream asked about is s/x unless `fields` say another."""
        contract = QUESTIONS[query].query
        needed = contract.model_fields
        about = {
            name: value
            for name, value in (("scope", "s"), ("stream", "x"))
            if name in needed and needed[name].is_required()
        }
        body = contract.model_validate({**about, **fields}).model_dump_json().encode()
        if not self.is_behind:
            await self.folded()
        return await answer_query(self.desk, query, Envelope(body))

    async def ask(self, query: str, kind: type[A], **fields: Any) -> A:
        assert QUESTIONS[query].answer is kind
        return kind.model_validate_json(await self.raw(query, **fields))

    async def refusal(self, query: str, **fields: Any) -> str:
        """The code of the error that the query is answered with."""
        answer = await self.raw(query, **fields)
        return queries.QueryFailed.model_validate_json(answer).error.code

    async def folded(self) -> None:
        """Let the mirror see everything."""
        await self.mirror.reach_heads()

    def replace_desk(self, **fields: Any) -> None:
        self.desk = replace(self.desk, **fields)


def places(*cut: tuple[int, int]) -> tuple[SegmentOffset, ...]:
    """A cut of (segment id, offset)."""
    return tuple(SegmentOffset(segment_id(s >> 32, s & 0xFFFFFFFF), at) for s, at in cut)


def sid(epoch: int, number: int) -> int:
    """A segment's id."""
    return segment_id(epoch, number)


@asynccontextmanager
async def query_world() -> AsyncIterator[QueryWorld]:
    """A world whose mirror follows, with the scope `s`."""
    world = QueryWorld()
    await world.scope("s")
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(world.mirror.serve())
        try:
            yield world
        finally:
            serving.cancel()
