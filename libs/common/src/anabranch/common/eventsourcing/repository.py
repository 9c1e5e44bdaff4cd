"""Load → decide → check → append: the only way in which an aggregate changes.

The append is conditional on the loaded sequence, so of two decisions on one state only one is
stored; the other is made again on the new state, a bounded number of times.

A decision is tried first on a state in memory: a cached one, or the one that this repository
appended last, which the cache may not have yet. Only the append shows that this was the head. A
refusal, or a decision without events, therefore counts only for a loaded state.

Every `SNAPSHOT_EVERY` messages the state itself is appended, as an ordinary message whose only
condition is that it comes next. A load begins there, a reader that lags sees it in its place, and
everything before the last but one may be purged. A snapshot is optional: if it is not stored,
because another decision came first or the store did not answer, nothing else changes.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    CorruptEvent,
    Defect,
    Retry,
    Unknown,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.eventsourcing.message import (
    KIND_DAMAGED,
    KIND_EVENTS,
    KIND_SNAPSHOT,
    is_void,
)
from anabranch.common.eventsourcing.ports import Append, EventMessage, EventStore, Gate, NewMessage
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.ids import IdSource
from anabranch.common.runtime.logger import get_logger
from anabranch.common.workflow.containment import aggregate_name, naming_defects

DECISION_ATTEMPTS_MAX = 8
SNAPSHOT_EVERY = 64
"""Messages of an aggregate from one snapshot to the next."""
SNAPSHOT_SIZE_BYTES_MAX = 256 * 1024
APPENDED_MAX = 1024
"""Aggregates that are remembered as appended, until the cache has them."""

_log = get_logger(__name__)

S = TypeVar("S")
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """An aggregate's state as of `sequence` (0: nothing stored yet) and `revision`.

    The `snapshot_…` fields describe its last snapshot (0: none): its sequence and revision, and the
    time at which it was stored (0 also if unknown). `earlier_snapshot_sequence` is the one before.
    """

    subject: str
    state: S
    sequence: int = 0
    revision: int = 0
    snapshot_sequence: int = 0
    snapshot_revision: int = 0
    snapshot_ms: int = field(default=0, compare=False)
    earlier_snapshot_sequence: int = 0


@dataclass(frozen=True, slots=True)
class Prepared(Generic[S]):
    """One decision to be appended, and the aggregate after it, except for its sequence."""

    append: Append
    after: Loaded[S]

    def stored_at(self, sequence: int) -> Loaded[S]:
        """The aggregate after its message was stored with that sequence."""
        return replace(self.after, sequence=sequence)


class Repository(Generic[S, E]):
    """The aggregates of one kind.

    `cached(subject)` returns a state of the aggregate from a cache, of any age; None without one.
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
        self._appended: OrderedDict[str, Loaded[S]] = OrderedDict()
        self._oversized: set[str] = set()
        self._seen = [0] * SHARD_COUNT

    def seen(self, shard: int) -> int:
        """The highest sequence of the shard that was appended or loaded here; 0 if none was.
        Every decision made here follows from messages up to it."""
        return self._seen[shard]

    def known(self, subject: str) -> Loaded[S] | None:
        """The latest state in memory, perhaps from before the head; None without one."""
        cached, appended = self._cached(subject), self._appended.get(subject)
        if appended is None:
            return cached
        if cached is not None and cached.sequence >= appended.sequence:
            del self._appended[subject]
            return cached
        return appended

    def remember(self, loaded: Loaded[S]) -> None:
        """Remember the appended state, unless a later one is remembered."""
        self._note_seen(loaded)
        before = self._appended.get(loaded.subject)
        if before is not None and before.sequence >= loaded.sequence:
            return
        self._appended[loaded.subject] = loaded
        self._appended.move_to_end(loaded.subject)
        if len(self._appended) > APPENDED_MAX:
            self._appended.popitem(last=False)

    async def load(self, subject: str) -> Loaded[S]:
        """The aggregate at its head. Raises CorruptEvent, FormatTooNew, Unavailable."""
        loaded = Loaded(subject, self.aggregate.initial)
        for message in await self._store.load(subject):
            loaded = self.fold(loaded, message)
        self._note_seen(loaded)
        return loaded

    def _note_seen(self, loaded: Loaded[S]) -> None:
        shard = shard_of_subject(loaded.subject)
        self._seen[shard] = max(self._seen[shard], loaded.sequence)

    def fold(self, loaded: Loaded[S], message: EventMessage) -> Loaded[S]:
        """`loaded` after one more message. Raises CorruptEvent, FormatTooNew.

        A void message changes nothing, but the next message is appended behind it.
        """
        if is_void(message, loaded.revision):
            _log.warning(
                "stepped over a message that lost to an earlier one of its revision",
                subject=message.subject,
                sequence=message.sequence,
                revision=message.revision,
            )
            return replace(loaded, sequence=message.sequence)
        if message.kind == KIND_SNAPSHOT:
            follows = message.revision > loaded.revision
        else:
            follows = message.revision == loaded.revision + 1 or message.kind == KIND_DAMAGED
        if not follows:
            raise CorruptEvent(
                "domain events are missing or out of order",
                subject=loaded.subject,
                revision=message.revision,
                expected=loaded.revision + 1,
            )
        after = replace(
            loaded,
            state=self._state_after(loaded, message),
            sequence=message.sequence,
            revision=message.revision,
            snapshot_sequence=message.snapshot_sequence,
        )
        return _snapshotted(after, message.stored_ms) if message.kind == KIND_SNAPSHOT else after

    def _state_after(self, loaded: Loaded[S], message: EventMessage) -> S:
        """Turn a defect of the fold into damage. It stops only this aggregate, whether the
        mistake is in the fold or in an earlier decision."""
        try:
            with naming_defects("folding a domain event"):
                return self.aggregate.fold(loaded.state, message)
        except Defect as defect:
            raise unfolded(loaded.subject, message.revision, defect) from defect

    async def append(self, loaded: Loaded[S], events: Sequence[E]) -> Loaded[S]:
        """Check the invariants, then append one decision made on `loaded`.

        Without events nothing changes. Raises WrongExpectedSequence (another decision came first),
        OutcomeUnknown, Unavailable, AssertionError (the decision breaks an invariant).
        """
        if not events:
            return loaded
        prepared = self.prepare(loaded, events)
        stored = prepared.stored_at(await self._store.append(*prepared.append))
        self.remember(stored)
        return await self.with_snapshot(stored)

    async def append_all(self, decisions: Sequence[tuple[Loaded[S], Sequence[E]]]) -> None:
        """Append decisions on several aggregates of one shard, all or none.

        At most `BATCH_COUNT_MAX`, each with events. Raises WrongExpectedSequence (one of the
        aggregates has changed), OutcomeUnknown, Unavailable, AssertionError (as `append`).
        """
        prepared = [self.prepare(loaded, events) for loaded, events in decisions]
        sequences = await self._store.append_all([one.append for one in prepared])
        for one, sequence in zip(prepared, sequences, strict=True):
            self.remember(one.stored_at(sequence))

    async def create(self, subject: str, events: Sequence[E], gate: Gate) -> Loaded[S]:
        """Append the first message of a fresh subject if the gate is where it was read.

        No other process may ever create the subject, so its name must contain an id that was drawn
        for this attempt. The store checks the gate *instead* of the subject, so it would store two
        first messages, and the aggregate could no longer be loaded.

        Raises WrongExpectedSequence (the gate has moved), OutcomeUnknown, Unavailable,
        AssertionError (the decision breaks an invariant).
        """
        prepared = self.prepare(Loaded(subject, self.aggregate.initial), events)
        stored = prepared.stored_at(await self._store.append(*prepared.append, gate=gate))
        self.remember(stored)
        return stored

    def prepare(self, loaded: Loaded[S], events: Sequence[E]) -> Prepared[S]:
        """Check the invariants of one decision made on `loaded`, and encode it.

        Raises AssertionError (the decision breaks an invariant, or has no events).
        """
        assert events, "a decision that is appended has events"
        after = self.aggregate.apply(loaded.state, events)
        self.aggregate.check(loaded.state, after)
        return self._next(replace(loaded, state=after), KIND_EVENTS, self.aggregate.encode(events))

    async def snapshot(self, loaded: Loaded[S]) -> Loaded[S]:
        """Append a snapshot of the state. Raises the errors of `append`."""
        body = self.aggregate.encode_state(loaded.state)
        prepared = self._next(loaded, KIND_SNAPSHOT, body)
        stored = prepared.stored_at(await self._store.append(*prepared.append))
        self.remember(snapshotted := _snapshotted(stored, 0))
        return snapshotted

    def _next(self, loaded: Loaded[S], kind: str, body: bytes) -> Prepared[S]:
        message = NewMessage(
            revision=loaded.revision + 1,
            append_id=self._ids.new_id(),
            kind=kind,
            schema_number=self.aggregate.schema_number,
            snapshot_sequence=loaded.snapshot_sequence,
            body=body,
        )
        return Prepared(
            Append(loaded.subject, loaded.sequence, message),
            replace(loaded, revision=message.revision),
        )

    async def with_snapshot(self, loaded: Loaded[S]) -> Loaded[S]:
        """`loaded`, after a snapshot if one is due and could be stored."""
        since = loaded.revision - loaded.snapshot_revision
        is_refused = loaded.subject in self._oversized and since % SNAPSHOT_EVERY != 0
        if since < SNAPSHOT_EVERY or is_refused:
            return loaded
        size_bytes = len(self.aggregate.encode_state(loaded.state))
        if size_bytes > SNAPSHOT_SIZE_BYTES_MAX:
            self._note_oversized(loaded.subject, size_bytes)
            return loaded
        self._oversized.discard(loaded.subject)
        try:
            return await self.snapshot(loaded)
        except (WrongExpectedSequence, Retry, Unknown):
            # The decision is stored. If the snapshot is stored too, the next append finds it.
            return loaded

    def _note_oversized(self, subject: str, size_bytes: int) -> None:
        if subject not in self._oversized:
            self._oversized.add(subject)
            _log.warning(
                "an aggregate is too large for a snapshot; all its messages stay",
                subject=subject,
                size_bytes=size_bytes,
                size_bytes_max=SNAPSHOT_SIZE_BYTES_MAX,
            )

    async def transact(self, subject: str, decide: Callable[[Loaded[S]], Sequence[E]]) -> Loaded[S]:
        """Decide on the head and append, and repeat both if another decision came first.

        The events that `decide` returns are stored at revision `loaded.revision + 1`. `decide` may
        also be called on a state from before the head; its result then does not count. Raises the
        errors of `decide` and `append`; Busy if another decision came first every time.
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
            "every attempt met a concurrent change of the aggregate",
            remedy="wait and try again",
            subject=subject,
            attempts=DECISION_ATTEMPTS_MAX,
        )

    async def _transact_cached(
        self, subject: str, decide: Callable[[Loaded[S]], Sequence[E]]
    ) -> Loaded[S] | None:
        """Decide and append on the cached state; None if this settles nothing."""
        cached = self.known(subject)
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


def unfolded(subject: str, revision: int, defect: Defect) -> CorruptEvent:
    """The error of an aggregate that cannot be folded because of a defect."""
    name = aggregate_name(subject)
    error = CorruptEvent(
        "a domain event contradicts the state of its aggregate",
        remedy=f"update the controllers, then run `anabranch operation redrive {name}`",
        subject=subject,
        revision=revision,
        cause=defect.fields.get("cause"),
    )
    error.__cause__ = defect
    return error


def _snapshotted(loaded: Loaded[S], stored_ms: int) -> Loaded[S]:
    """`loaded`, whose last message is a snapshot; its `snapshot_sequence` is still the previous
    one."""
    return replace(
        loaded,
        snapshot_sequence=loaded.sequence,
        snapshot_revision=loaded.revision,
        snapshot_ms=stored_ms,
        earlier_snapshot_sequence=loaded.snapshot_sequence,
    )
