"""Load → decide → check → append: the only way in which an aggregate changes.

The append is conditional on the sequence that was loaded, so of two decisions on one state
only one is stored; the other is made again on the new state, a bounded number of times.

A decision is tried first on the state that somebody keeps in memory, if somebody does. Only its
append shows that this was the head: a refusal, or a decision that changes nothing, is believed
only of a state that was loaded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch.common.errors import (
    AnabranchError,
    Busy,
    CorruptEvent,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.eventsourcing.message import KIND_EVENTS, KIND_SNAPSHOT
from anabranch.common.eventsourcing.ports import EventMessage, EventStore, NewMessage
from anabranch.common.runtime.ids import IdSource

DECISION_ATTEMPTS_MAX = 8

S = TypeVar("S")
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """An aggregate's state as of `sequence` (0: nothing stored yet) and `revision`."""

    subject: str
    state: S
    sequence: int = 0
    revision: int = 0
    snapshot_sequence: int = 0


class Repository(Generic[S, E]):
    """The aggregates of one kind.

    `cached(subject)` is the aggregate as somebody saw it last, at any time; None if nobody did.
    """

    def __init__(
        self,
        store: EventStore,
        aggregate: Aggregate[S, E],
        ids: IdSource,
        cached: Callable[[str], Loaded[S] | None] = lambda _subject: None,
    ) -> None:
        self._store = store
        self.aggregate = aggregate
        self._ids = ids
        self._cached = cached

    async def load(self, subject: str) -> Loaded[S]:
        """The aggregate at its head. Raises CorruptEvent, FormatTooNew, Unavailable."""
        loaded = Loaded(subject, self.aggregate.initial)
        for message in await self._store.load(subject):
            loaded = self.fold(loaded, message)
        return loaded

    def fold(self, loaded: Loaded[S], message: EventMessage) -> Loaded[S]:
        """`loaded` after one more message. Raises CorruptEvent, FormatTooNew."""
        is_snapshot = message.kind == KIND_SNAPSHOT
        if message.kind == KIND_EVENTS and message.revision != loaded.revision + 1:
            raise CorruptEvent(
                "domain events are missing or out of order",
                subject=loaded.subject,
                revision=message.revision,
                expected=loaded.revision + 1,
            )
        return Loaded(
            subject=loaded.subject,
            state=self.aggregate.fold(loaded.state, message),
            sequence=message.sequence,
            revision=message.revision,
            snapshot_sequence=message.sequence if is_snapshot else message.snapshot_sequence,
        )

    async def append(self, loaded: Loaded[S], events: Sequence[E]) -> Loaded[S]:
        """Check the invariants, then append one decision made on `loaded`.

        No events change nothing. Raises WrongExpectedSequence (somebody else decided first),
        OutcomeUnknown, Unavailable, AssertionError (the decision breaks an invariant).
        """
        if not events:
            return loaded
        after = self.aggregate.apply(loaded.state, events)
        self.aggregate.check(loaded.state, after)
        message = NewMessage(
            revision=loaded.revision + 1,
            append_id=self._ids.new_id(),
            kind=KIND_EVENTS,
            schema_number=self.aggregate.schema_number,
            snapshot_sequence=loaded.snapshot_sequence,
            body=self.aggregate.encode(events),
        )
        sequence = await self._store.append(loaded.subject, loaded.sequence, message)
        return Loaded(
            subject=loaded.subject,
            state=after,
            sequence=sequence,
            revision=message.revision,
            snapshot_sequence=loaded.snapshot_sequence,
        )

    async def transact(self, subject: str, decide: Callable[[Loaded[S]], Sequence[E]]) -> Loaded[S]:
        """Decide on the head and append, again on a newer head if somebody was faster.

        What `decide` returns is stored at revision `loaded.revision + 1`. It may be called on a
        state from before the head, whose outcome then does not count.

        Raises what `decide` and `append` raise; Busy when others were faster every time.
        """
        if (decided := await self._transact_cached(subject, decide)) is not None:
            return decided
        for _ in range(DECISION_ATTEMPTS_MAX):
            loaded = await self.load(subject)
            try:
                return await self.append(loaded, decide(loaded))
            except WrongExpectedSequence:
                continue
        raise Busy(
            "others changed the aggregate at every attempt",
            subject=subject,
            attempts=DECISION_ATTEMPTS_MAX,
        )

    async def _transact_cached(
        self, subject: str, decide: Callable[[Loaded[S]], Sequence[E]]
    ) -> Loaded[S] | None:
        """What was decided and appended on the cached state; None if that settles nothing."""
        cached = self._cached(subject)
        if cached is None:
            return None
        try:
            events = decide(cached)
        except AnabranchError:
            return None
        if not events:
            return None
        try:
            return await self.append(cached, events)
        except WrongExpectedSequence:
            return None
