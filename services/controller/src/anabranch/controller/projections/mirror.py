"""The mirror: every aggregate, folded into memory to answer queries.

Owns: the state of every aggregate of every kind, as of the shard sequences that it has reached;
`transactions` holds the state that follows from transactions. One follower per shard feeds the
mirror; nothing else writes to it. A caller that needs more than a recent state waits for a point:
`at_least` for a token, `reach_heads` for everything stored before the call. A negative answer is
given only after `reach_head` of the subject's shard.

An aggregate is marked as unreadable if its messages are damaged or too new, or if a defect prevents
folding them. Queries for it raise that error; the others are unaffected, and `containment` lists
it. Its next snapshot heals it, because a snapshot is the whole state. A snapshot also heals an
aggregate whose messages were purged before a lagging mirror had read them.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from anabranch.common.contracts.base import ReadToken
from anabranch.common.contracts.place import PARTS, Part, place_in
from anabranch.common.contracts.subjects import (
    events_of,
    group_events,
    scope_events,
    shard_of_subject,
    stream_events,
    table_events,
    token,
)
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.eventsourcing.ports import EventMessage, EventStore
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.names import ScopeName, StreamRef
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.table import TableRef
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import JOB, Containment
from anabranch.controller.domain.kinds import (
    APPLICATIONS,
    GROUPS,
    SCOPES,
    STREAMS,
    TABLES,
    TRANSACTIONS,
    Kind,
    kind_of,
    named,
)
from anabranch.controller.domain.kv_table.state import KvTable
from anabranch.controller.domain.operations import finished_between
from anabranch.controller.domain.reader_group.others import groups_concerned
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.scope.state import Scope
from anabranch.controller.domain.stream.export import ShapedStream, has_same_shape, is_exported
from anabranch.controller.domain.stream.state import Stream, TransactionsSeen
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.projections.awaited import Awaited
from anabranch.controller.projections.family import Families
from anabranch.controller.projections.heads import SharedHeads
from anabranch.controller.projections.names import NameIndex
from anabranch.controller.projections.operation_index import OperationIndex
from anabranch.controller.projections.quarantine import Fold, Quarantine
from anabranch.controller.projections.transactions import TransactionMirror
from anabranch.controller.workflows.repositories import Repositories

CATCH_UP_DEADLINE_S = 5.0
NOTICES = "notices of folds"

S = TypeVar("S")

Known = Loaded[Any]
Reaction = Callable[[EventMessage, Any], "Consequences"]
"""Further consequences of a message, given (before, after), or None if it cannot be read."""


class Consequences(NamedTuple):
    """The fields of `Fold` that only some kinds have."""

    reshaped: bool = False
    concerned: Sequence[str] = ()
    outcome: str = ""


NO_CONSEQUENCES = Consequences()


class Mirror:
    """The read model of all aggregates. `on_fold` is called after each folded message."""

    def __init__(
        self,
        store: EventStore,
        repositories: Repositories,
        *,
        on_fold: Callable[[Fold], None],
        containment: Containment,
    ) -> None:
        self._store = store
        self._on_fold = on_fold
        self._containment = containment
        self.heads = SharedHeads(store.last_sequence)
        self._families = Families(repositories)
        self._scopes = self._families[SCOPES]
        self._streams = self._families[STREAMS]
        self._groups = self._families[GROUPS]
        self._tables = self._families[TABLES]
        self.transactions = TransactionMirror(
            self._families[TRANSACTIONS], self._families[APPLICATIONS]
        )
        self._quarantine = Quarantine(
            containment, self._fold, self._families.of, self.transactions.lose
        )
        self._reactions: dict[str, Reaction] = {
            STREAMS.name: self._stream_changed,
            TRANSACTIONS.name: self._transaction_changed,
        }
        self._shaped: dict[str, int] = {}
        """The revision at which a stream's shape last changed, by subject."""
        self.names = NameIndex()
        self.operations = OperationIndex()
        self.folds = 0
        """Messages folded since the start."""
        self._reached = [0] * SHARD_COUNT
        self._moved = [asyncio.Event() for _ in range(SHARD_COUNT)]
        self._awaited = [Awaited() for _ in range(SHARD_COUNT)]

    # --- feeding ------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Follow every shard until cancelled."""
        async with asyncio.TaskGroup() as group:
            for shard in range(SHARD_COUNT):
                group.create_task(self._follow(shard))

    async def _follow(self, shard: int) -> None:
        async for message in self._store.follow(shard, self._reached[shard]):
            fold = self._quarantine.fold(message, ReadToken(shard=shard, sequence=message.sequence))
            self.folds += 1
            self._reached[shard] = message.sequence
            self._awaited[shard].reached(message.sequence)
            self._moved[shard].set()
            self._moved[shard] = asyncio.Event()
            with self._containment.contained(JOB, NOTICES, park_at=0):
                self._on_fold(fold)

    async def reload(self, subject: str) -> bool:
        """Fold the stored messages of an unreadable aggregate again, up to the shard's position.

        Returns whether the aggregate is readable now. Idempotent. Raises Unavailable.
        """
        family = self._families.of(subject)
        if family is None or subject not in family.damaged:
            return True
        stored = await self._store.load(subject)
        if not stored or stored[-1].sequence < self._quarantine.passed_over.get(subject, 0):
            return False  # more messages came meanwhile; the caller retries
        shard, error = shard_of_subject(subject), family.damaged.pop(subject, None)
        loaded = family.loaded.get(subject)
        known = 0 if loaded is None else loaded.sequence
        missed = [one for one in stored if known < one.sequence <= self._reached[shard]]
        if error is not None and not missed:
            # The stored messages begin after the shard's position: the follower will reach them.
            family.damaged[subject] = error
        for message in missed:
            fold = self._quarantine.fold(message, ReadToken(shard=shard, sequence=message.sequence))
            self._on_fold(fold)
        return subject not in family.damaged

    def _fold(self, message: EventMessage, point: ReadToken) -> Fold:
        kind = kind_of(message.subject)
        if kind is None:
            self.transactions.fold_other(message)
            return Fold(message.subject, point)
        if kind is TRANSACTIONS and self.transactions.is_over(message):
            return Fold(message.subject, point)
        change = self._families[kind].fold(message)
        react = self._reactions.get(kind.name)
        consequences = NO_CONSEQUENCES if react is None else react(message, change)
        if change is None:
            return Fold(message.subject, point)
        return self._index(kind, change, Fold(message.subject, point, *consequences))

    def _index(self, kind: Kind[S, Any], change: tuple[S, S], fold: Fold) -> Fold:
        """Update the indexes of names, operations and work. Steps that may fail come first."""
        before, after = change
        has_work = kind.next_step(after, self.transactions.seen) is not None
        had, has = kind.operations(before), kind.operations(after)
        finished = finished_between(had, has)
        was_listed, is_listed = kind.listed(before), kind.listed(after)
        self.names.keep(kind, was_listed, is_listed)
        self.operations.keep(fold.subject, had, has)
        self._families[kind].keep_working(fold.subject, has_work=has_work)
        return replace(fold, finished=finished, has_work=has_work)

    def _stream_changed(
        self, message: EventMessage, change: tuple[Stream, Stream] | None
    ) -> Consequences:
        if change is None:
            return NO_CONSEQUENCES
        before, after = change
        assert after.ref is not None
        reshaped = not has_same_shape(before, after) and is_exported(after.ref)
        if reshaped:
            self._shaped[message.subject] = self._streams.loaded[message.subject].revision
        self.transactions.drop_ended(before, after)
        if before.is_live and not after.is_live:
            self.transactions.drop_applications(after)
        concerned = [group_events(group) for group in groups_concerned(before, after)]
        return Consequences(reshaped, concerned)

    def _transaction_changed(
        self, message: EventMessage, change: tuple[Transaction, Transaction] | None
    ) -> Consequences:
        """Wake the stream if it may wait for this transaction, or has to act on it."""
        self.transactions.learn(message, change)
        if change is None:
            return NO_CONSEQUENCES
        before, after = change
        assert after.ref is not None
        subject = stream_events(after.ref)
        loaded = self._streams.known(subject)
        outcome = after.outcome if before.is_open else ""
        if loaded is None or not after.status or not after.status.has_outcome:
            return Consequences(outcome=outcome)
        waited = STREAMS.next_step(loaded.state, self.transactions.seen) is not None
        self._streams.keep_working(subject, has_work=waited)
        return Consequences(concerned=(subject,) if waited else (), outcome=outcome)

    # --- reaching a point ---------------------------------------------------------------------

    async def at_least(self, point: ReadToken) -> None:
        """Wait until that point is folded. Raises Unavailable after a deadline."""
        if not 0 <= point.shard < SHARD_COUNT or self._reached[point.shard] >= point.sequence:
            return
        try:
            async with asyncio.timeout(CATCH_UP_DEADLINE_S):
                await self._awaited[point.shard].reach(point.sequence)
        except TimeoutError as error:
            raise Unavailable(
                "the controller has not caught up with the event store yet",
                shard=point.shard,
                reached=self._reached[point.shard],
                asked=point.sequence,
            ) from error

    async def reach_head(self, shard: int) -> None:
        """Fold everything that the shard's leader has stored by now. Raises Unavailable."""
        head = await self.heads.last_sequence(shard)
        await self.at_least(ReadToken(shard=shard, sequence=head))

    async def moved(self, shard: int) -> None:
        """Wait until one more message of the shard is folded; for ever if none comes."""
        await self._moved[shard].wait()

    async def reach_heads(self) -> None:
        """Run `reach_head` for all shards concurrently."""
        await for_each(range(SHARD_COUNT), SHARD_COUNT, self.reach_head)

    async def settle(self, loaded: Loaded[Stream]) -> None:
        """Fold every message about the stream's transactions that was stored before its last event.

        Raises Unavailable.
        """
        if self.transactions.has_any(loaded.state):
            shard = shard_of_subject(loaded.subject)
            await self.at_least(ReadToken(shard=shard, sequence=loaded.sequence))

    # --- looking ------------------------------------------------------------------------------

    def seen(self, stream: Stream) -> TransactionsSeen:
        """See `TransactionListing`."""
        return self.transactions.seen(stream)

    async def transactions_at(
        self, stream: StreamRef, incarnation: int, sequence: int
    ) -> Sequence[Loaded[Transaction]]:
        """See `TransactionListing`. Raises Unavailable, Corrupt."""
        await self._know_transactions(stream, incarnation, sequence)
        return self.transactions.listed(stream, incarnation)

    async def decided_at(
        self, stream: StreamRef, incarnation: int, sequence: int
    ) -> Sequence[Loaded[Transaction]]:
        """See `TransactionListing`. Raises Unavailable, Corrupt."""
        await self._know_transactions(stream, incarnation, sequence)
        return self.transactions.decided(stream, incarnation)

    async def _know_transactions(self, stream: StreamRef, incarnation: int, sequence: int) -> None:
        shard = shard_of_subject(stream_events(stream))
        await self.at_least(ReadToken(shard=shard, sequence=sequence))
        await self.transactions.make_sure(stream, incarnation)

    def scope(self, scope: ScopeName) -> Loaded[Scope] | None:
        """The scope as folded so far. Raises Corrupt if it cannot be read."""
        return self._scopes.get(scope_events(scope))

    def stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        """The stream as folded so far. Raises Corrupt if it cannot be read."""
        return self._streams.get(stream_events(ref))

    def group(self, ref: GroupRef) -> Loaded[ReaderGroup] | None:
        """The group as folded so far. Raises Corrupt if it cannot be read."""
        return self._groups.get(group_events(ref))

    def table(self, ref: TableRef) -> Loaded[KvTable] | None:
        """The key-value table as folded so far. Raises Corrupt if it cannot be read."""
        return self._tables.get(table_events(ref))

    def known(self, subject: str) -> Loaded[Any] | None:
        """The aggregate with this subject as folded so far.

        None if it is missing, damaged or dropped, or if the subject belongs to no aggregate.
        """
        family = self._families.of(subject)
        return None if family is None else family.known(subject)

    def readable_stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        """The stream as folded so far; None also if it cannot be read."""
        subject = stream_events(ref)
        return None if subject in self._streams.damaged else self._streams.loaded.get(subject)

    def is_present(self, stream: Loaded[Stream]) -> bool:
        """Whether this very state is the stream's current one."""
        subject = stream.subject
        return self._streams.loaded.get(subject) is stream and subject not in self._streams.damaged

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

    async def table_at_head(self, ref: TableRef) -> Loaded[KvTable] | None:
        """The key-value table with everything stored by now. Raises Corrupt, Unavailable."""
        await self.reach_head(shard_of_subject(table_events(ref)))
        return self.table(ref)

    async def live_parts(self, scope: ScopeName, incarnation: int) -> Mapping[Part, Sequence[str]]:
        """See `StreamListing`. Raises Corrupt if a part that may count cannot be read."""
        await self.reach_heads()
        return {part: self._live_of(part, scope, incarnation) for part in PARTS}

    def _live_of(self, part: Part, scope: ScopeName, incarnation: int) -> list[str]:
        kind = named(part.word)
        family = self._families[kind]
        for subject, error in family.damaged.items():
            if subject.split(".")[4] == token(scope):
                raise error
        found = []
        for name in self.names.of(kind, scope):
            loaded = family.get(events_of(place_in(scope, part, name)))
            if loaded is not None and loaded.state.scope_incarnation == incarnation:
                found.append(name)
        return found

    def shaped_streams(self, subjects: Collection[str] | None = None) -> Iterator[ShapedStream]:
        """The readable streams with these subjects (None: all), including deleted ones."""
        for subject in self._shaped if subjects is None else subjects:
            if subject in self._shaped and subject not in self._streams.damaged:
                stream = self._streams.loaded[subject].state
                yield ShapedStream(stream, self._shaped[subject])

    def retained_streams(self) -> list[Loaded[Stream]]:
        """The streams with a retention policy that can be read."""
        return [s for s in self._streams.readable() if s.state.config.retention is not None]

    def with_work(self) -> list[str]:
        """The subjects of all aggregates with a next step."""
        return [subject for family in self._families for subject in family.working]

    def reached(self) -> tuple[int, ...]:
        """By shard, the sequence of the last folded message."""
        return tuple(self._reached)

    def folded(self) -> Iterator[Loaded[Any]]:
        """All readable aggregates of every kind, including deleted ones; use it before the next
        await.
        """
        return (loaded for family in self._families for loaded in family.readable())

    def damaged(self) -> dict[str, AnabranchError]:
        """The unreadable aggregates' errors, by subject."""
        return {
            subject: error for family in self._families for subject, error in family.damaged.items()
        }
