"""The mirror: every aggregate folded into memory, to answer queries from.

Owns: the state of every scope, stream and reader group as of the shard sequences it has reached;
what it knows of transactions is `transactions`.
Fed by one follower per shard; never written to by anything else. A reader who needs more than
"some recent state" waits for a point: `at_least` for a token, `reach_heads` for everything stored
before the call. Answers that say "no" are given only after the latter for the subject's shard.

An aggregate whose messages are damaged or too new, or that a defect keeps from being folded, is
marked as such and answers with that error; the others go on, and `containment` tells of it. Its
next snapshot heals it, because that is all the state there is; so
does the one behind messages that were purged under a mirror that lags.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from anabranch.common.contracts.base import ReadToken
from anabranch.common.contracts.subjects import (
    group_events,
    scope_events,
    shard_of_subject,
    stream_events,
    token,
)
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.eventsourcing.ports import EventMessage, EventStore
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.names import ScopeName, StreamName, StreamRef, is_internal
from anabranch.common.model.reader_group import GroupRef, GroupState
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import JOB, Containment
from anabranch.controller.domain.application import Application
from anabranch.controller.domain.operations import finished_between
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.others import groups_concerned
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.reader_group.state import next_step as group_next_step
from anabranch.controller.domain.scope.state import Scope, ScopeEvent
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.export import ShapedStream, has_same_shape
from anabranch.controller.domain.stream.state import Stream, TransactionsSeen
from anabranch.controller.domain.stream.state import next_step as stream_next_step
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.projections.awaited import Awaited
from anabranch.controller.projections.family import Family
from anabranch.controller.projections.heads import SharedHeads
from anabranch.controller.projections.names import NameIndex
from anabranch.controller.projections.operation_index import OperationIndex
from anabranch.controller.projections.quarantine import Fold, Quarantine
from anabranch.controller.projections.transactions import TransactionMirror

CATCH_UP_DEADLINE_S = 5.0
NOTICES = "notices of folds"

Known = Loaded[Scope] | Loaded[Stream] | Loaded[ReaderGroup]
Folded = Known | Loaded[Transaction] | Loaded[Application]


class Mirror:
    """The read model of all aggregates. `on_fold` is called after each folded message."""

    def __init__(
        self,
        store: EventStore,
        scopes: Repository[Scope, ScopeEvent],
        streams: Repository[Stream, StreamEvent],
        groups: Repository[ReaderGroup, GroupEvent],
        *,
        transactions: TransactionMirror,
        on_fold: Callable[[Fold], None],
        containment: Containment,
    ) -> None:
        self._containment = containment
        self._quarantine = Quarantine(containment, self._fold, self._family_of, transactions)
        self._store = store
        self.heads = SharedHeads(store.last_sequence)
        self._scope_repository = scopes
        self._stream_repository = streams
        self._group_repository = groups
        self._on_fold = on_fold
        self._scopes: Family[Scope] = Family()
        self._streams: Family[Stream] = Family()
        self._groups: Family[ReaderGroup] = Family()
        self.transactions = transactions
        self._shaped: dict[str, int] = {}
        """The revision at which a stream's shape changed last, by subject."""
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

    def _family_of(self, subject: str) -> Family[Any] | None:
        match subject.split(".", 4)[3]:
            case "scope":
                return self._scopes
            case "stream":
                return self._streams
            case "rg":
                return self._groups
            case "txn":
                return self.transactions.family
            case "txnkey":
                return self.transactions.applications
            case _:
                return None

    async def reload(self, subject: str) -> bool:
        """Fold again what is stored of an aggregate that cannot be read, as far as its shard was
        read; whether it can be read now. Safe to repeat. Raises Unavailable."""
        family = self._family_of(subject)
        if family is None or subject not in family.damaged:
            return True
        stored = await self._store.load(subject)
        if not stored or stored[-1].sequence < self._quarantine.passed_over.get(subject, 0):
            return False  # more came while this was read; ask again
        shard, error = shard_of_subject(subject), family.damaged.pop(subject, None)
        loaded = family.loaded.get(subject)
        known = 0 if loaded is None else loaded.sequence
        missed = [one for one in stored if known < one.sequence <= self._reached[shard]]
        if error is not None and not missed:
            # What is stored begins behind what was read: the follower comes to it.
            family.damaged[subject] = error
        for message in missed:
            fold = self._quarantine.fold(message, ReadToken(shard=shard, sequence=message.sequence))
            self._on_fold(fold)
        return subject not in family.damaged

    def _fold(self, message: EventMessage, point: ReadToken) -> Fold:
        match message.subject.split(".")[3]:
            case "scope":
                return self._fold_scope(message, point)
            case "stream":
                return self._fold_stream(message, point)
            case "rg":
                return self._fold_group(message, point)
            case "txn":
                return self._fold_transaction(message, point)
            case "txnkey":
                self.transactions.fold_application(message)
                return Fold(message.subject, point)
            case "txngate":
                self.transactions.fold_gate(message)
                return Fold(message.subject, point)
            case _:
                return Fold(message.subject, point)

    def _fold_scope(self, message: EventMessage, point: ReadToken) -> Fold:
        change = self._scopes.fold(self._scope_repository, message)
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
        change = self._streams.fold(self._stream_repository, message)
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
        self.transactions.drop_ended(before, after)
        if before.is_live and not after.is_live:
            self.transactions.drop_applications(after)
        has_work = stream_next_step(after, self.transactions.seen(after)) is not None
        self._streams.keep_working(message.subject, has_work=has_work)
        concerned = [group_events(group) for group in groups_concerned(before, after)]
        return Fold(message.subject, point, finished, has_work, reshaped, concerned)

    def _fold_group(self, message: EventMessage, point: ReadToken) -> Fold:
        change = self._groups.fold(self._group_repository, message)
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

    def _fold_transaction(self, message: EventMessage, point: ReadToken) -> Fold:
        """Its stream may have waited for what happened to it, or have to do something about it."""
        change = self.transactions.fold(message)
        if change is None:
            return Fold(message.subject, point)
        before, after = change
        has_work = message.subject in self.transactions.family.working
        assert after.ref is not None
        subject = stream_events(after.ref)
        loaded = self._streams.known(subject)
        outcome = after.outcome if before.is_open else ""
        if loaded is None or not after.status or not after.status.has_outcome:
            return Fold(message.subject, point, has_work=has_work, outcome=outcome)
        seen = self.transactions.seen(loaded.state)
        waited = stream_next_step(loaded.state, seen) is not None
        self._streams.keep_working(subject, has_work=waited)
        concerned = (subject,) if waited else ()
        return Fold(message.subject, point, has_work=has_work, concerned=concerned, outcome=outcome)

    # --- reaching a point ---------------------------------------------------------------------

    async def at_least(self, point: ReadToken) -> None:
        """Wait until that point is folded. Raises Unavailable when it takes too long."""
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
        """Until one more message of the shard is folded; for ever if none comes."""
        await self._moved[shard].wait()

    async def reach_heads(self) -> None:
        """`reach_head` of every shard, side by side."""
        await for_each(range(SHARD_COUNT), SHARD_COUNT, self.reach_head)

    async def settle(self, loaded: Loaded[Stream]) -> None:
        """Know of the stream's transactions all that was stored before its last event.

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
        return self._scopes.known(subject)

    def known_stream(self, subject: str) -> Loaded[Stream] | None:
        """What was folded of the stream with this subject; None if nothing, or it is damaged."""
        return self._streams.known(subject)

    def known_group(self, subject: str) -> Loaded[ReaderGroup] | None:
        """What was folded of the group with this subject; None if nothing, or it is damaged."""
        return self._groups.known(subject)

    def known_transaction(self, subject: str) -> Loaded[Transaction] | None:
        """What was folded of the transaction; None if nothing, or it is damaged or dropped."""
        return self.transactions.family.known(subject)

    def known_application(self, subject: str) -> Loaded[Application] | None:
        """What was folded of the application; None if nothing, or it is damaged."""
        return self.transactions.applications.known(subject)

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
                return self._scopes.known(subject)
            case "stream":
                return self._streams.known(subject)
            case "rg":
                return self._groups.known(subject)
            case _:
                return None

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
        return [
            *self._scopes.working,
            *self._streams.working,
            *self._groups.working,
            *self.transactions.family.working,
        ]

    def reached(self) -> tuple[int, ...]:
        """By shard, the sequence of the last message that was folded."""
        return tuple(self._reached)

    def aggregates(self) -> list[Known]:
        """All that have operations and can be read, deleted ones included."""
        return [*self._scopes.readable(), *self._streams.readable(), *self._groups.readable()]

    def folded(self) -> list[Folded]:
        """All that can be read, transactions and applications included."""
        known = self.transactions
        return [*self.aggregates(), *known.family.readable(), *known.applications.readable()]

    def damaged(self) -> dict[str, AnabranchError]:
        """What cannot be read, by subject."""
        return (
            self._scopes.damaged
            | self._streams.damaged
            | self._groups.damaged
            | self.transactions.family.damaged
            | self.transactions.applications.damaged
        )


def _listed_tags(stream: Stream) -> tuple[str, ...] | None:
    return stream.config.tags if stream.is_live else None
