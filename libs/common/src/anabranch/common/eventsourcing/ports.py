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

    `revision` counts the aggregate's messages from 1 and never repeats, not even after the deletion
    and re-creation of its name; `append_id` identifies the attempt; `snapshot_sequence` is the
    store sequence of the last snapshot before it (0 = none); `body` is the encoded events, or the
    state; `stored_ms` is the time at which the store received it, by its own clock (0: unknown).
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

        With a gate, the condition is the gate's *instead*: its last sequence must still be the
        given one. The message's own subject is not checked, so it must be fresh (0 expected): two
        concurrent appends to it both succeed.

        Returns the new message's sequence once it is durable. The store resolves an unknown outcome
        (a timeout, a conflict with its own earlier try) by searching for `append_id`. Raises
        WrongExpectedSequence (its field `subject` is the one that has moved on), OutcomeUnknown
        (when it could not be resolved in time).
        """
        ...

    async def append_all(self, appends: Sequence[Append]) -> Sequence[int]:
        """Append all of them, or none if one subject's last sequence is not the expected one.

        The subjects differ and are in one shard; 1 to `BATCH_COUNT_MAX`. Every reader and writer
        sees all or none. Returns the new sequences, which are consecutive, in the order of
        `appends`. Unknown outcomes and errors are those of `append`.
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
        """The messages that the shard holds now on the subjects of `pattern`, oldest first.

        `pattern`: one subject, or a common beginning of several (``ana.evt.3.member.s.1.>``). A
        damaged message has kind ``damaged``; the completeness of a subject's messages is not
        checked. Reads from the leader. Raises Unavailable.
        """
        ...

    async def purge(self, pattern: str, below_sequence: int) -> None:
        """Delete messages below a sequence, for ever. Idempotent.

        `pattern`: one subject, or a common beginning of several in a shard (``ana.evt.3.txn.0.>``).
        After a crash some of several subjects may remain, and of one subject some newer messages.
        """
        ...

    async def last_sequence(self, shard: int) -> int:
        """The sequence of the shard's newest message, read from the leader; 0 if none."""
        ...

    def follow(self, shard: int, after_sequence: int) -> AsyncIterator[EventMessage]:
        """All messages of the shard in order, for ever; reconnects by itself.

        Damaged messages have kind ``damaged``; purged ones are skipped silently.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's value at a revision; revisions of a key only grow.

    `stored_ms` is the time at which the store received it, by its own clock, if `get` read it (0:
    unknown).
    """

    key: str
    value: bytes
    revision: int
    stored_ms: int = field(default=0, compare=False)


class ObjectWrite(NamedTuple):
    """One write of several. `revision` 0: create; `value` b"": delete."""

    key: str
    value: bytes
    revision: int


def check_writes(writes: Sequence[ObjectWrite]) -> None:
    """Assert that the keys differ, and that a creation has a value."""
    assert len({one.key for one in writes}) == len(writes), "the keys of writes differ"
    assert all(one.value or one.revision for one in writes), "a creation has a value"


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

    async def write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[int | None]:
        """Perform every write as `create`, `update` or `delete` does; each succeeds or fails alone.

        The keys differ. Returns the new revision of each, in order; None: the object exists, or is
        at another revision. Far cheaper than one by one. Raises Unavailable, OutcomeUnknown: then
        any of them may have been performed.
        """
        ...

    async def list(self) -> Sequence[StoredObject]:
        """All objects that have a value, sorted by key."""
        ...

    def watch(self) -> AsyncIterator[StoredObject | None]:
        """Every present object, then None once, then each change; a deleted object has value b"".

        Changes of a key may be merged into the newest. If the watch loses its place, it starts
        again with the full list and another None; objects that were deleted meanwhile are missing
        in that list.
        """
        ...
