"""The metadata stores in memory: for tests, simulations and ephemeral clusters.

They pass the same conformance suites as the JetStream adapters. One event loop owns each;
nothing here waits except `follow` and `watch`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import ObjectExists, RevisionConflict, WrongExpectedSequence
from anabranch.common.eventsourcing.message import (
    check_chain,
    decode_message,
    decode_or_mark_damaged,
    encode_headers,
    start_sequence,
)
from anabranch.common.eventsourcing.ports import EventMessage, NewMessage, StoredObject


class _Growth:
    """Wakes everyone who waits for something new."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        await self._changed.wait()


class InMemoryEventStore:
    """An `EventStore`; messages are kept encoded, so damage can be planted and is noticed."""

    def __init__(self) -> None:
        self._shards: dict[int, list[tuple[str, dict[str, str], bytes]]] = {}
        self._last: dict[str, int] = {}
        self._growth = _Growth()

    async def append(self, subject: str, expected_sequence: int, message: NewMessage) -> int:
        """See `EventStore.append`."""
        actual = self._last.get(subject, 0)
        if actual != expected_sequence:
            raise WrongExpectedSequence(
                "the subject has moved on",
                subject=subject,
                expected=expected_sequence,
                actual=actual,
            )
        log = self._shards.setdefault(shard_of_subject(subject), [])
        log.append((subject, encode_headers(subject, message), message.body))
        self._last[subject] = len(log)
        self._growth.announce()
        return len(log)

    async def load(self, subject: str, after_sequence: int = 0) -> Sequence[EventMessage]:
        """See `EventStore.load`."""
        log = self._shards.get(shard_of_subject(subject), [])
        stored = [
            decode_message(subject, sequence, headers, body)
            for sequence, (owner, headers, body) in enumerate(log, start=1)
            if owner == subject and sequence > after_sequence
        ]
        if stored and after_sequence == 0:
            start = start_sequence(stored[-1])
            stored = [message for message in stored if message.sequence >= start]
        check_chain(stored, from_start=after_sequence == 0)
        return stored

    async def last_sequence(self, shard: int) -> int:
        """See `EventStore.last_sequence`."""
        return len(self._shards.get(shard, ()))

    async def follow(self, shard: int, after_sequence: int) -> AsyncIterator[EventMessage]:
        """See `EventStore.follow`."""
        log = self._shards.setdefault(shard, [])
        at = after_sequence
        while True:
            while at < len(log):
                subject, headers, body = log[at]
                at += 1
                yield decode_or_mark_damaged(subject, at, headers, body)
            await self._growth.wait()

    def damage(self, shard: int, sequence: int, body: bytes) -> None:
        """Replace a stored body without touching its checksum, as a failing disk would."""
        subject, headers, _ = self._shards[shard][sequence - 1]
        self._shards[shard][sequence - 1] = (subject, headers, body)


class InMemoryObjectStore:
    """An `ObjectStore`: one KV bucket."""

    def __init__(self) -> None:
        self._objects: dict[str, StoredObject] = {}
        self._revision = 0
        self._growth = _Growth()

    async def get(self, key: str) -> StoredObject | None:
        """See `ObjectStore.get`."""
        found = self._objects.get(key)
        return found if found is not None and found.value else None

    async def create(self, key: str, value: bytes) -> int:
        """See `ObjectStore.create`."""
        if (present := await self.get(key)) is not None:
            raise ObjectExists("the key has a value", key=key, revision=present.revision)
        return self._put(key, value)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """See `ObjectStore.update`."""
        self._check(key, revision)
        return self._put(key, value)

    async def delete(self, key: str, revision: int) -> None:
        """See `ObjectStore.delete`."""
        self._check(key, revision)
        self._put(key, b"")

    async def list(self) -> Sequence[StoredObject]:
        """See `ObjectStore.list`."""
        return sorted((o for o in self._objects.values() if o.value), key=lambda o: o.key)

    async def watch(self) -> AsyncIterator[StoredObject | None]:
        """See `ObjectStore.watch`; changes that overtake the consumer are merged per key."""
        seen = self._revision
        for present in await self.list():
            yield present
        yield None
        while True:
            changed = [o for o in self._objects.values() if o.revision > seen]
            for present in sorted(changed, key=lambda o: o.revision):
                seen = present.revision
                yield present
            if self._revision == seen:
                await self._growth.wait()

    def _check(self, key: str, revision: int) -> None:
        actual = self._objects[key].revision if key in self._objects else 0
        if actual != revision:
            raise RevisionConflict(
                "the object has changed", key=key, expected=revision, actual=actual
            )

    def _put(self, key: str, value: bytes) -> int:
        self._revision += 1
        self._objects[key] = StoredObject(key, value, self._revision)
        self._growth.announce()
        return self._revision
