"""Which of the messages in a key-value bucket count, judged in the order of the stream. Pure.

Each write names the key's last revision before it. It counts if that is true at its place: if the
message before it on its key has this revision. A cluster of NATS servers checks the same when it
proposes a message, and not when it stores it. If it stores a message whose condition does not hold
there, the message is *void*: the object keeps its value, and the void message's place becomes its
revision, because the next write must name that.

A bucket keeps only the newest messages of a key, so a reader that was away may miss some. A message
that names a revision which the reader has not seen was decided after such a message, and counts.

A message without a condition, which other programs may write, counts.

A single server checks the condition where it stores the message, so each of its messages counts,
and a reader needs no earlier ones to judge it.
"""

from collections.abc import Mapping, Sequence

from anabranch.common.adapters.jetstream_conditions import EXPECTED_SEQUENCE_HEADER
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.runtime.shared_values import SharedValues

OPERATION_HEADER = "KV-Operation"
SHARED_COUNT_MAX = 64
"""Values that are compared with later ones: thousands of partitions have few different values, and
equal ones are written together."""


class CountedObjects:
    """The objects of a bucket after the messages that it was given, oldest first.

    The first message of a key counts: what it replaced may no longer be stored. Equal keys and
    values are one in memory.
    """

    def __init__(self) -> None:
        self._objects: dict[str, StoredObject] = {}
        self._values = SharedValues(SHARED_COUNT_MAX)

    def take(self, found: StoredObject, headers: Mapping[str, str]) -> StoredObject | None:
        """The object after one more message, which would make it `found`.

        None if the message was taken before.
        """
        known = self._objects.get(found.key)
        if known is not None and known.revision >= found.revision:
            return None
        expected = headers.get(EXPECTED_SEQUENCE_HEADER)
        if known is not None and expected is not None and int(expected) < known.revision:
            value, stored_ms = known.value, known.stored_ms
        else:
            value, stored_ms = self._values.one(found.value), found.stored_ms
        key = found.key if known is None else known.key
        self._objects[key] = counted = StoredObject(key, value, found.revision, stored_ms)
        return counted

    def present(self) -> Sequence[StoredObject]:
        """The objects that have a value, sorted by key."""
        return sorted((one for one in self._objects.values() if one.value), key=lambda o: o.key)

    def newest(self) -> int:
        """The highest revision that was taken; 0 without objects."""
        return max((one.revision for one in self._objects.values()), default=0)


class ObjectsOfOneServer:
    """Takes the messages of a single server that follow the revision `newest`; keeps no object."""

    def __init__(self, newest: int) -> None:
        self._newest = newest

    def take(self, found: StoredObject, _headers: Mapping[str, str]) -> StoredObject | None:
        """The object after one more message; None if the message was taken before."""
        if found.revision <= self._newest:
            return None
        self._newest = found.revision
        return found


def value_of(headers: Mapping[str, str], data: bytes) -> bytes:
    """The value that a message stores; none if it deletes the key."""
    return b"" if headers.get(OPERATION_HEADER) in ("DEL", "PURGE") else data
