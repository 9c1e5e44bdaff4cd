"""The mirror: every aggregate folded into memory, to answer queries from.

Owns: the state of every scope, stream and reader group as of the shard sequences it has reached.
Fed by one follower per shard; never written to by anything else. A reader who needs more than
"some recent state" waits for a point: `at_least` for a token, `reach_heads` for everything stored
before the call. Answers that say "no" are given only after the latter for the subject's shard.

An aggregate whose messages are damaged or too new is marked as such and answers with that
error; the others go on. Its next snapshot heals it, because that is all the state there is; so
does the one behind messages that were purged under a mirror that lags.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch.common.contracts.base import ReadToken
from anabranch.common.contracts.subjects import (
    group_events,
    scope_events,
    shard_of_subject,
    stream_events,
    token,
)
from anabranch.common.errors import AnabranchError, Corrupt, Unavailable
from anabranch.common.eventsourcing.message import KIND_SNAPSHOT
from anabranch.common.eventsourcing.ports import EventMessage, EventStore
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.names import ScopeName, StreamName, StreamRef, is_internal
from anabranch.common.model.reader_group import GroupRef, GroupState
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.operations import Operation, finished_between
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.others import groups_concerned
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.reader_group.state import next_step as group_next_step
from anabranch.controller.domain.scope.state import Scope, ScopeEvent
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.export import ShapedStream, has_same_shape
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.stream.state import next_step as stream_next_step
from anabranch.controller.projections.heads import SharedHeads
from anabranch.controller.projections.names import NameIndex
from anabranch.controller.projections.operation_index import OperationIndex

CATCH_UP_DEADLINE_S = 5.0

Known = Loaded[Scope] | Loaded[Stream] | Loaded[ReaderGroup]
S = TypeVar("S", Scope, Stream, ReaderGroup)
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Fold:
    """One message that was folded: which aggregate, and where in its shard.

    `finished`: the operations that it ended; `has_work`: the aggregate has a next step now;
    `reshaped`: a stream's state or segments changed; `concerned`: other aggregates that may have
    waited for what happened to it.
    """

    subject: str
    point: ReadToken
    finished: Sequence[Operation] = ()
    has_work: bool = False
    reshaped: bool = False
    concerned: Sequence[str] = ()


class _Family(Generic[S]):
    """All aggregates of one kind, by subject. `working`: those that have a next step."""

    def __init__(self) -> None:
        self.loaded: dict[str, Loaded[S]] = {}
        self.damaged: dict[str, AnabranchError] = {}
        self.working: set[str] = set()

    def readable(self) -> Iterator[Loaded[S]]:
        return (one for subject, one in self.loaded.items() if subject not in self.damaged)

    def get(self, subject: str) -> Loaded[S] | None:
        if subject in self.damaged:
            raise self.damaged[subject]
        return self.loaded.get(subject)

    def keep_working(self, subject: str, *, has_work: bool) -> None:
        if has_work:
            self.working.add(subject)
        else:
            self.working.discard(subject)


class Mirror:
    """The read model of all aggregates. `on_fold` is called after each folded message."""

    def __init__(
        self,
        store: EventStore,
        scopes: Repository[Scope, ScopeEvent],
        streams: Repository[Stream, StreamEvent],
        groups: Repository[ReaderGroup, GroupEvent],
        on_fold: Callable[[Fold], None],
    ) -> None:
        self._store = store
        self._heads = SharedHeads(store.last_sequence)
        self._scope_repository = scopes
        self._stream_repository = streams
        self._group_repository = groups
        self._on_fold = on_fold
        self._scopes: _Family[Scope] = _Family()
        self._streams: _Family[Stream] = _Family()
        self._groups: _Family[ReaderGroup] = _Family()
        self._shaped: dict[str, int] = {}
        """The revision at which a stream's shape changed last, by subject."""
        self.names = NameIndex()
        self.operations = OperationIndex()
        self.folds = 0
        """Messages folded since the start."""
        self._reached = [0] * SHARD_COUNT
        self._moved = [asyncio.Event() for _ in range(SHARD_COUNT)]

    # --- feeding ------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Follow every shard until cancelled."""
        async with asyncio.TaskGroup() as group:
            for shard in range(SHARD_COUNT):
                group.create_task(self._follow(shard))

    async def _follow(self, shard: int) -> None:
        async for message in self._store.follow(shard, self._reached[shard]):
            fold = self._fold(message, ReadToken(shard=shard, sequence=message.sequence))
            self.folds += 1
            self._reached[shard] = message.sequence
            self._moved[shard].set()
            self._moved[shard] = asyncio.Event()
            self._on_fold(fold)

    def _fold(self, message: EventMessage, point: ReadToken) -> Fold:
        match message.subject.split(".")[3]:
            case "scope":
                return self._fold_scope(message, point)
            case "stream":
                return self._fold_stream(message, point)
            case "rg":
                return self._fold_group(message, point)
            case _:
                return Fold(message.subject, point)

    def _fold_scope(self, message: EventMessage, point: ReadToken) -> Fold:
        change = _fold_into(self._scopes, self._scope_repository, message)
        if change is None:
            return Fold(message.subject, point)
        before, after = change
        self.names.keep_scope(after.name, listed=after.is_live)
        self.operations.keep(message.subject, before.operations, after.operations)
        has_work = scope_next_step(after) is not None
        self._scopes.keep_working(message.subject, has_work=has_work)
        finished = finished_between(before.operations, after.operations)
        return Fold(message.subject, point, finished, has_work)

    def _fold_stream(self, message: EventMessage, point: ReadToken) -> Fold:
        change = _fold_into(self._streams, self._stream_repository, message)
        if change is None:
            return Fold(message.subject, point)
        before, after = change
        assert after.ref is not None
        self.names.keep_stream(after.ref, _listed_tags(before), _listed_tags(after))
        self.operations.keep(message.subject, before.operations, after.operations)
        reshaped = not has_same_shape(before, after) and not is_internal(after.ref.stream)
        if reshaped:
            self._shaped[message.subject] = self._streams.loaded[message.subject].revision
        finished = finished_between(before.operations, after.operations)
        has_work = stream_next_step(after) is not None
        self._streams.keep_working(message.subject, has_work=has_work)
        concerned = [group_events(group) for group in groups_concerned(before, after)]
        return Fold(message.subject, point, finished, has_work, reshaped, concerned)

    def _fold_group(self, message: EventMessage, point: ReadToken) -> Fold:
        change = _fold_into(self._groups, self._group_repository, message)
        if change is None:
            return Fold(message.subject, point)
        before, after = change
        assert after.ref is not None
        listed = after.is_live and after.status is not GroupState.CREATING
        self.names.keep_group(after.ref, listed=listed)
        self.operations.keep(message.subject, before.operations, after.operations)
        finished = finished_between(before.operations, after.operations)
        has_work = group_next_step(after) is not None
        self._groups.keep_working(message.subject, has_work=has_work)
        return Fold(message.subject, point, finished, has_work)

    # --- reaching a point ---------------------------------------------------------------------

    async def at_least(self, point: ReadToken) -> None:
        """Wait until that point is folded. Raises Unavailable when it takes too long."""
        if not 0 <= point.shard < SHARD_COUNT:
            return
        try:
            async with asyncio.timeout(CATCH_UP_DEADLINE_S):
                while self._reached[point.shard] < point.sequence:
                    await self._moved[point.shard].wait()
        except TimeoutError as error:
            raise Unavailable(
                "the controller has not caught up with the event store yet",
                shard=point.shard,
                reached=self._reached[point.shard],
                asked=point.sequence,
            ) from error

    async def reach_head(self, shard: int) -> None:
        """Fold everything that the shard's leader has stored by now. Raises Unavailable."""
        head = await self._heads.last_sequence(shard)
        await self.at_least(ReadToken(shard=shard, sequence=head))

    async def reach_heads(self) -> None:
        """`reach_head` of every shard, side by side."""
        await for_each(range(SHARD_COUNT), SHARD_COUNT, self.reach_head)

    # --- looking ------------------------------------------------------------------------------

    def scope(self, scope: ScopeName) -> Loaded[Scope] | None:
        """The scope as folded so far. Raises Corrupt for one that cannot be read."""
        return self._scopes.get(scope_events(scope))

    def stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        """The stream as folded so far. Raises Corrupt for one that cannot be read."""
        return self._streams.get(stream_events(ref))

    def group(self, ref: GroupRef) -> Loaded[ReaderGroup] | None:
        """The group as folded so far. Raises Corrupt for one that cannot be read."""
        return self._groups.get(group_events(ref))

    def known_scope(self, subject: str) -> Loaded[Scope] | None:
        """What was folded of the scope with this subject; None if nothing, or it is damaged."""
        return _known(self._scopes, subject)

    def known_stream(self, subject: str) -> Loaded[Stream] | None:
        """What was folded of the stream with this subject; None if nothing, or it is damaged."""
        return _known(self._streams, subject)

    def known_group(self, subject: str) -> Loaded[ReaderGroup] | None:
        """What was folded of the group with this subject; None if nothing, or it is damaged."""
        return _known(self._groups, subject)

    def readable_stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        """The stream as folded so far; None also for one that cannot be read."""
        subject = stream_events(ref)
        return None if subject in self._streams.damaged else self._streams.loaded.get(subject)

    def is_present(self, stream: Loaded[Stream]) -> bool:
        """Whether that very state is the stream's as folded so far."""
        subject = stream.subject
        return self._streams.loaded.get(subject) is stream and subject not in self._streams.damaged

    def aggregate(self, subject: str) -> Known | None:
        """The aggregate as folded so far; None also for one that cannot be read."""
        match subject.split(".", 4)[3]:
            case "scope":
                return _known(self._scopes, subject)
            case "stream":
                return _known(self._streams, subject)
            case _:
                return _known(self._groups, subject)

    async def scope_at_head(self, scope: ScopeName) -> Loaded[Scope] | None:
        """The scope with everything stored by now. Raises Corrupt, Unavailable."""
        await self.reach_head(shard_of_subject(scope_events(scope)))
        return self.scope(scope)

    async def stream_at_head(self, ref: StreamRef) -> Loaded[Stream] | None:
        """The stream with everything stored by now. Raises Corrupt, Unavailable."""
        await self.reach_head(shard_of_subject(stream_events(ref)))
        return self.stream(ref)

    async def group_at_head(self, ref: GroupRef) -> Loaded[ReaderGroup] | None:
        """The group with everything stored by now. Raises Corrupt, Unavailable."""
        await self.reach_head(shard_of_subject(group_events(ref)))
        return self.group(ref)

    async def live_streams(self, scope: ScopeName, incarnation: int) -> Sequence[StreamName]:
        """See `StreamListing`. Raises Corrupt if a stream that may count cannot be read."""
        await self.reach_heads()
        for subject, error in self._streams.damaged.items():
            if subject.split(".")[4] == token(scope):
                raise error
        found = []
        for name in map(StreamName, self.names.streams(scope)):
            loaded = self.stream(StreamRef(scope, name))
            if loaded is not None and loaded.state.scope_incarnation == incarnation:
                found.append(name)
        return found

    def shaped_streams(self, subjects: Collection[str] | None = None) -> Iterator[ShapedStream]:
        """The streams with these subjects (None: all) that can be read, deleted ones included."""
        for subject in self._shaped if subjects is None else subjects:
            if subject in self._shaped and subject not in self._streams.damaged:
                stream = self._streams.loaded[subject].state
                yield ShapedStream(stream, self._shaped[subject])

    def scopes_with_work(self) -> list[str]:
        """Subjects of the scopes that have a next step."""
        return list(self._scopes.working)

    def streams_with_work(self) -> list[str]:
        """Subjects of the streams that have a next step."""
        return list(self._streams.working)

    def with_work(self) -> list[str]:
        """Subjects of everything that has a next step."""
        return [*self._scopes.working, *self._streams.working, *self._groups.working]

    def reached(self) -> tuple[int, ...]:
        """By shard, the sequence of the last message that was folded."""
        return tuple(self._reached)

    def aggregates(self) -> list[Known]:
        """All that can be read, deleted ones included."""
        return [*self._scopes.readable(), *self._streams.readable(), *self._groups.readable()]

    def damaged(self) -> dict[str, AnabranchError]:
        """What cannot be read, by subject."""
        return self._scopes.damaged | self._streams.damaged | self._groups.damaged


def _known(family: _Family[S], subject: str) -> Loaded[S] | None:
    return None if subject in family.damaged else family.loaded.get(subject)


def _fold_into(
    family: _Family[S], repository: Repository[S, E], message: EventMessage
) -> tuple[S, S] | None:
    subject = message.subject
    if subject in family.damaged and message.kind != KIND_SNAPSHOT:
        return None
    before = family.loaded.get(subject, Loaded(subject, repository.aggregate.initial))
    try:
        after = repository.fold(before, message)
    except Corrupt as error:
        family.damaged[subject] = error
        return None
    family.damaged.pop(subject, None)
    family.loaded[subject] = after
    return before.state, after.state


def _listed_tags(stream: Stream) -> tuple[str, ...] | None:
    return stream.config.tags if stream.is_live else None
