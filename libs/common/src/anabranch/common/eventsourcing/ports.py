"""Ports of the metadata stores. Each has a conformance suite that every adapter passes.

`EventStore` keeps domain events: one subject per aggregate, one message per decision.
`ObjectStore` keeps small objects with revisions: node records, placements, constants.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class EventMessage:
    """One message on an aggregate's subject: all events of one decision.

    `revision` counts the aggregate's messages from 1 and never repeats, not even after the
    deletion and re-creation of its name; `append_id` identifies the attempt; `snapshot_sequence`
    is the store sequence of the last snapshot before it (0 = none); `body` is the encoded events,
    or the state; `stored_ms` is when the store took it, by its own clock (0: not known).
    """

    subject: str
    sequence: int
    revision: int
    append_id: str
    kind: str
    schema_number: int
    snapshot_sequence: int
    body: bytes
    stored_ms: int = 0


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to append; the store adds the sequence."""

    revision: int
    append_id: str
    kind: str
    schema_number: int
    snapshot_sequence: int
    body: bytes


class Gate(NamedTuple):
    """A subject of the same shard, and its last sequence (0 = no message) as it was read."""

    subject: str
    sequence: int


class Append(NamedTuple):
    """One message of several that are appended together; `expected_sequence` as for `append`."""

    subject: str
    expected_sequence: int
    message: NewMessage


class EventStore(Protocol):
    async def append(
        self,
        subject: str,
        expected_sequence: int,
        message: NewMessage,
        *,
        gate: Gate | None = None,
    ) -> int:
        """Append if the subject's last sequence is `expected_sequence` (0 = no message).

        With a gate, the condition is the gate's *instead*: that its last sequence is still the
        one given. The message's own subject is not looked at, so it must be fresh (0 expected):
        of two who append to it at once, both succeed.

        Returns the new message's sequence once it is durable. An unknown outcome (a timeout,
        a conflict with one's own earlier try) is resolved by looking for `append_id`. Raises
        WrongExpectedSequence (its field `subject` is the one that has moved on),
        OutcomeUnknown (when it could not be resolved in time).
        """
        ...

    async def append_all(self, appends: Sequence[Append]) -> Sequence[int]:
        """Append all of them, or none if one subject's last sequence is not the expected one.

        The subjects are different ones of one shard; 1 to `BATCH_COUNT_MAX`. Whoever reads or
        writes sees all or none. Returns the new sequences, which follow one another, in the order
        of `appends`. Unknown outcomes and errors are as those of `append`.
        """
        ...

    async def load(self, subject: str, after_sequence: int = 0) -> Sequence[EventMessage]:
        """The subject's messages after `after_sequence`, oldest first, checksums verified.

        Reads from the leader, so it sees everything acknowledged. Raises CorruptEvent.
        """
        ...

    def scan(
        self, shard: int, pattern: str, after_sequence: int = 0
    ) -> AsyncIterator[EventMessage]:
        """What the shard holds by now on the subjects of `pattern`, oldest first.

        `pattern`: one subject, or all that begin alike (``ana.evt.3.member.s.1.>``). A damaged
        message comes as kind ``damaged``; whether a subject's messages are complete is not
        checked. Reads from the leader. Raises Unavailable.
        """
        ...

    async def purge(self, pattern: str, below_sequence: int) -> None:
        """Delete messages below a sequence, for ever. Idempotent.

        `pattern`: one subject, or all of a shard that begin alike (``ana.evt.3.txn.0.>``). Of
        several subjects a crash may leave some, and of one some newer messages.
        """
        ...

    async def last_sequence(self, shard: int) -> int:
        """The sequence of the shard's newest message, read from the leader; 0 if none."""
        ...

    def follow(self, shard: int, after_sequence: int) -> AsyncIterator[EventMessage]:
        """All messages of the shard in order, for ever; reconnects by itself.

        Damaged ones come as kind ``damaged``; purged ones are passed over in silence.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's value at a revision; revisions of a key only grow. `stored_ms`: when the store
    took it, by its own clock, where it was read by `get` (0: not known)."""

    key: str
    value: bytes
    revision: int
    stored_ms: int = field(default=0, compare=False)


class ObjectStore(Protocol):
    """One KV bucket. Keys: letters, digits, ``-``, ``_``, ``=``, ``.``."""

    async def get(self, key: str) -> StoredObject | None: ...

    async def create(self, key: str, value: bytes) -> int:
        """Store under a key that has no value. Returns the revision. Raises ObjectExists."""
        ...

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Replace the value if it is still at `revision`. Raises RevisionConflict."""
        ...

    async def delete(self, key: str, revision: int) -> None:
        """Delete if still at `revision`. Raises RevisionConflict."""
        ...

    async def list(self) -> Sequence[StoredObject]:
        """All objects that have a value, sorted by key."""
        ...

    def watch(self) -> AsyncIterator[StoredObject | None]:
        """Every present object, then None once, then each change; a deleted object has value b"".

        A consumer that loses its place starts again with the full list.
        """
        ...
