"""Gates: a parent that closes knows all its children, although they are created elsewhere.

A parent (a scope) has a *gate*, a subject of its shard, and each child (one incarnation of a
stream) a *membership record*, a subject of the same shard. A child joins by writing its record on
the condition that the gate has not moved since it was seen open. Closing writes the gate. So every
record is either stored before the closing, and is on the list that is read after it, or is not
stored at all.

    gate       (nothing) ─▶ closed ─▶ opened ─▶ closed …   each names the parent's revision
    member     (nothing) ─▶ joined ─▶ left                 left is for ever

These rules keep a controller with an outdated state from doing harm:

- A gate is written under the parent's revision at which its change was decided, and never under a
  lower one. A controller that acts on an older state of the parent is refused.
- A closing under a new revision is always written, even on a closed gate: it moves the gate, so no
  process that saw the older one can open or pass it.
- If a gate was closed in vain, because the parent stayed, the closing process does not reopen it.
  The next child does, after reading that the parent is open at a later revision.
- An open gate may be moved: it is written anew and stays open. Every append on the condition of
  the older one, however late it arrives, is refused.
- A record can be written twice, because joining checks the gate alone. An ended membership stays
  ended even if a join follows. After joining, a child therefore checks whether its record had ended
  before.
- A join counts only if the gate is open at its place in the shard. A cluster of servers may store
  a join behind a closing although its condition forbids it (ADR 13). The closing process may not
  have listed it, so the first process that meets such a record ends it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import (
    Busy,
    CorruptEvent,
    FormatTooNew,
    GateClosed,
    MembershipEnded,
    StaleRequest,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.message import KIND_DAMAGED, KIND_EVENTS, is_void
from anabranch.common.eventsourcing.ports import EventMessage, EventStore, Gate, NewMessage
from anabranch.common.runtime.ids import IdSource

ATTEMPTS_MAX = 8
JOINS_COUNT_MAX = 8
"""Joins of one record that are told apart; each attempt of a creation writes at most one."""
SCHEMA_NUMBER = 1


class ClosedByParent(Contract):
    kind: Literal["gate_closed"] = "gate_closed"
    schema_number: Literal[1] = 1
    parent_revision: int


class OpenedForChild(Contract):
    kind: Literal["gate_opened"] = "gate_opened"
    schema_number: Literal[1] = 1
    parent_revision: int


class MemberJoined(Contract):
    kind: Literal["member_joined"] = "member_joined"
    schema_number: Literal[1] = 1


class MemberLeft(Contract):
    kind: Literal["member_left"] = "member_left"
    schema_number: Literal[1] = 1


GateEvent = ClosedByParent | OpenedForChild | MemberJoined | MemberLeft
_EVENTS: TypeAdapter[list[GateEvent]] = TypeAdapter(
    list[Annotated[GateEvent, Field(discriminator="kind")]]
)


@dataclass(frozen=True, slots=True)
class GateState:
    """A gate as of `sequence` (0: never written). `revision` counts its own messages."""

    sequence: int = 0
    revision: int = 0
    is_open: bool = True
    parent_revision: int = 0


_UNWRITTEN = GateState()


@dataclass(frozen=True, slots=True)
class Membership:
    """A membership record as of `sequence` (0: never written)."""

    sequence: int = 0
    revision: int = 0
    has_joined: bool = False
    has_left: bool = False
    joins: tuple[int, ...] = ()
    """The sequences of its joins, of which one is usual."""

    @property
    def is_member(self) -> bool:
        return self.has_joined and not self.has_left


def decide_close(gate: GateState, parent_revision: int) -> ClosedByParent | None:
    """The event that closes the gate; None if this same decision has closed it. Raises
    StaleRequest."""
    if gate.parent_revision > parent_revision or (
        gate.is_open and gate.sequence and gate.parent_revision == parent_revision
    ):
        raise StaleRequest(
            "a later decision about the gate exists",
            decided=parent_revision,
            present=gate.parent_revision,
        )
    if not gate.is_open and gate.parent_revision == parent_revision:
        return None
    return ClosedByParent(parent_revision=parent_revision)


def decide_reopen(gate: GateState, parent_revision: int) -> OpenedForChild | None:
    """The event that opens a gate whose parent is open; None if it is open. Raises GateClosed."""
    if gate.is_open:
        return None
    if gate.parent_revision >= parent_revision:
        raise GateClosed(
            "the parent is closing", closed=gate.parent_revision, seen_open=parent_revision
        )
    return OpenedForChild(parent_revision=parent_revision)


def decide_join(gate: GateState, member: Membership) -> MemberJoined | None:
    """The event that joins; None if the child has joined. Raises GateClosed, MembershipEnded."""
    if member.has_left:
        raise MembershipEnded("the child has left, and a record is used once")
    if member.has_joined:
        return None
    if not gate.is_open:
        raise GateClosed("the parent is closing", closed=gate.parent_revision)
    return MemberJoined()


def gate_after(messages: Iterable[EventMessage], gate: GateState = _UNWRITTEN) -> GateState:
    """`gate` after further messages. Raises CorruptEvent, FormatTooNew."""
    for message in messages:
        if is_void(message, gate.revision):
            gate = replace(gate, sequence=message.sequence)
            continue
        for event in _events_of(message):
            if not isinstance(event, ClosedByParent | OpenedForChild):
                raise _misplaced(message)
            gate = GateState(
                message.sequence,
                message.revision,
                isinstance(event, OpenedForChild),
                event.parent_revision,
            )
    return gate


def membership_after(member: Membership, message: EventMessage) -> Membership:
    """The record after one more message. Raises CorruptEvent, FormatTooNew."""
    for event in _events_of(message):
        if not isinstance(event, MemberJoined | MemberLeft):
            raise _misplaced(message)
        has_left = isinstance(event, MemberLeft)
        joins = member.joins if has_left else (*member.joins, message.sequence)
        member = replace(
            member,
            sequence=message.sequence,
            revision=max(member.revision, message.revision),
            has_joined=member.has_joined or not has_left,
            has_left=member.has_left or has_left,
            joins=joins[:JOINS_COUNT_MAX],
        )
    return member


def joined_openly(member: Membership, gate: Sequence[EventMessage]) -> bool:
    """Whether the gate, with all its messages, was open at the place of one of the joins.

    Raises CorruptEvent, FormatTooNew.
    """
    return any(
        gate_after(one for one in gate if one.sequence < place).is_open for place in member.joins
    )


class Gates:
    """Gates and membership records in a store. Subjects are those of `contracts.subjects`."""

    def __init__(self, store: EventStore, ids: IdSource) -> None:
        self._store = store
        self._ids = ids

    async def read(self, gate: str) -> GateState:
        """The gate at its head; a gate without messages is open."""
        return gate_after(await self._store.load(gate))

    async def open_sequence(self, gate: str) -> int:
        """The sequence of the open gate, as a condition of an append. Raises GateClosed."""
        state = await self.read(gate)
        decide_join(state, Membership())
        return state.sequence

    async def close(self, gate: str, parent_revision: int) -> int:
        """Close the gate under the parent's revision; idempotent. Returns the closing's sequence.

        Raises StaleRequest, Busy.
        """
        for _ in range(ATTEMPTS_MAX):
            state = await self.read(gate)
            event = decide_close(state, parent_revision)
            if event is None:
                return state.sequence
            try:
                return await self._write(gate, state.sequence, state.revision + 1, event)
            except WrongExpectedSequence:
                continue
        raise _busy(gate)

    async def reopen(self, gate: str, parent_revision: int) -> int:
        """Open the gate: the parent was read open at that revision. Returns the gate's sequence.

        Raises GateClosed (the parent has closed it since), Busy.
        """
        for _ in range(ATTEMPTS_MAX):
            state = await self.read(gate)
            event = decide_reopen(state, parent_revision)
            if event is None:
                return state.sequence
            try:
                return await self._write(gate, state.sequence, state.revision + 1, event)
            except WrongExpectedSequence:
                continue
        raise _busy(gate)

    async def move(self, gate: str) -> None:
        """Write the open gate anew; a closed gate stays as it is.

        No append stays possible whose condition was read before. Raises Busy.
        """
        for _ in range(ATTEMPTS_MAX):
            state = await self.read(gate)
            if not state.is_open:
                return
            event = OpenedForChild(parent_revision=state.parent_revision)
            try:
                await self._write(gate, state.sequence, state.revision + 1, event)
                return
            except WrongExpectedSequence:
                continue
        raise _busy(gate)

    async def join(self, gate: str, member: str) -> None:
        """Record the member; idempotent. Raises GateClosed, MembershipEnded, Busy."""
        for _ in range(ATTEMPTS_MAX):
            record = await self._settled(gate, member)
            state = await self.read(gate)
            event = decide_join(state, record)
            if event is None:
                return
            try:
                await self._write(member, 0, 1, event, Gate(gate, state.sequence))
            except WrongExpectedSequence:
                continue
            # The append checked the gate alone; the record may have ended since it was read.
            decide_join(state, await self.membership(member))
            return
        raise _busy(gate)

    async def leave(self, member: str) -> None:
        """End the membership for ever, even if it never began; idempotent. Raises Busy."""
        for _ in range(ATTEMPTS_MAX):
            record = await self.membership(member)
            if record.has_left:
                return
            try:
                await self._write(member, record.sequence, record.revision + 1, MemberLeft())
                return
            except WrongExpectedSequence:
                continue
        raise _busy(member)

    async def forgo(self, gate: str, member: str) -> Membership:
        """End a membership that never began; one that has begun stays. Returns the record.

        Afterwards no process can join with this record, unless it has joined before. Raises Busy.
        """
        for _ in range(ATTEMPTS_MAX):
            record = await self._settled(gate, member)
            if record.sequence:
                return record
            try:
                await self._write(member, 0, 1, MemberLeft())
            except WrongExpectedSequence:
                continue
        raise _busy(member)

    async def _settled(self, gate: str, member: str) -> Membership:
        """The record at its head; a join behind a closed gate is ended first. Raises Busy."""
        record = await self.membership(member)
        if record.is_member and not joined_openly(record, await self._store.load(gate)):
            await self.leave(member)
            return await self.membership(member)
        return record

    async def membership(self, member: str) -> Membership:
        """The record at its head. Raises CorruptEvent."""
        record = Membership()
        async for message in self._store.scan(shard_of_subject(member), member):
            record = membership_after(record, message)
        return record

    async def members(self, pattern: str) -> Sequence[str]:
        """The subjects of present members, in order; complete if the gate was closed before.

        `pattern`: matches all membership records of the parent. Raises CorruptEvent.
        """
        records: dict[str, Membership] = {}
        async for message in self._store.scan(shard_of_subject(pattern), pattern):
            record = records.get(message.subject, Membership())
            records[message.subject] = membership_after(record, message)
        return sorted(subject for subject, record in records.items() if record.is_member)

    async def _write(
        self,
        subject: str,
        expected_sequence: int,
        revision: int,
        event: GateEvent,
        gate: Gate | None = None,
    ) -> int:
        message = NewMessage(
            revision=revision,
            append_id=self._ids.new_id(),
            kind=KIND_EVENTS,
            schema_number=SCHEMA_NUMBER,
            snapshot_sequence=0,
            body=_EVENTS.dump_json([event]),
        )
        return await self._store.append(subject, expected_sequence, message, gate=gate)


def _events_of(message: EventMessage) -> list[GateEvent]:
    if message.kind == KIND_DAMAGED:
        raise CorruptEvent(
            message.body.decode(), subject=message.subject, sequence=message.sequence
        )
    if message.schema_number > SCHEMA_NUMBER:
        raise FormatTooNew(
            "a newer release wrote a gate or membership record",
            subject=message.subject,
            found=message.schema_number,
            supported=SCHEMA_NUMBER,
        )
    try:
        return _EVENTS.validate_json(message.body)
    except ValidationError as error:
        raise _misplaced(message) from error


def _misplaced(message: EventMessage) -> CorruptEvent:
    return CorruptEvent(
        "a message of a gate or membership record cannot be understood",
        subject=message.subject,
        sequence=message.sequence,
    )


def _busy(subject: str) -> Busy:
    return Busy(
        "every attempt met a concurrent change of the gate",
        remedy="wait and try again",
        subject=subject,
        attempts=ATTEMPTS_MAX,
    )
