"""Ports of the metadata stores. Each has a conformance suite that every adapter passes.

`EventStore` keeps domain events: one subject per aggregate, one message per decision.
`ObjectStore` keeps small objects with revisions: node records, placements, constants.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class EventMessage:
    """One message on an aggregate's subject: all events of one decision.

    `revision` counts the aggregate's messages from 1 and never repeats, not even after the
    deletion and re-creation of its name; `append_id` identifies the attempt; `snapshot_sequence`
    is the store sequence of the last snapshot (0 = none); `body` is the encoded events.
    """

    subject: str
    sequence: int
    revision: int
    append_id: str
    kind: str
    schema_number: int
    snapshot_sequence: int
    body: bytes


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to append; the store adds the sequence."""

    revision: int
    append_id: str
    kind: str
    schema_number: int
    snapshot_sequence: int
    body: bytes


class EventStore(Protocol):
    async def append(self, subject: str, expected_sequence: int, message: NewMessage) -> int:
        """Append if the subject's last sequence is `expected_sequence` (0 = no message).

        Returns the new message's sequence once it is durable. An unknown outcome (a timeout,
        a conflict with one's own earlier try) is resolved by looking for `append_id`. Raises
        WrongExpectedSequence, OutcomeUnknown (when it could not be resolved in time).
        """
        ...

    async def load(self, subject: str, after_sequence: int = 0) -> Sequence[EventMessage]:
        """The subject's messages after `after_sequence`, oldest first, checksums verified.

        Reads from the leader, so it sees everything acknowledged. Raises CorruptEvent.
        """
        ...

    async def last_sequence(self, shard: int) -> int:
        """The sequence of the shard's newest message, read from the leader; 0 if none."""
        ...

    def follow(self, shard: int, after_sequence: int) -> AsyncIterator[EventMessage]:
        """All messages of the shard in order, for ever; reconnects by itself."""
        ...


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's value at a revision; revisions of a key only grow."""

    key: str
    value: bytes
    revision: int


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
