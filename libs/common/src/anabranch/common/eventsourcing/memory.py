"""The metadata stores in memory, for tests, simulations and ephemeral clusters.

They pass the same conformance suites as the JetStream adapters. One event loop owns each; only
`follow` and `watch` wait.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import NamedTuple

from anabranch.common.contracts.subjects import matches, shard_of_subject
from anabranch.common.errors import ObjectExists, RevisionConflict, WrongExpectedSequence
from anabranch.common.eventsourcing.message import (
    check_batch,
    check_chain,
    check_gate,
    decode_message,
    decode_or_mark_damaged,
    encode_headers,
    start_sequence,
)
from anabranch.common.eventsourcing.ports import (
    Append,
    EventMessage,
    Gate,
    NewMessage,
    ObjectWrite,
    StoredObject,
    check_writes,
)


class _Growth:
    """Wakes all tasks that wait for a change."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        await self._changed.wait()


class _Stored(NamedTuple):
    subject: str
    headers: dict[str, str]
    body: bytes
    stored_ms: int


class InMemoryEventStore:
    """An `EventStore` of encoded messages, in which tests can plant damage.

    `now_ms` dates stored messages. A purged message leaves its place empty.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._now_ms = now_ms
        self._shards: dict[int, list[_Stored | None]] = {}
        self._last: dict[str, int] = {}
        self._growth = _Growth()

    async def append(
        self,
        subject: str,
        expected_sequence: int,
        message: NewMessage,
        *,
        gate: Gate | None = None,
    ) -> int:
        """See `EventStore.append`."""
        if gate is None:
            gate = Gate(subject, expected_sequence)
        else:
            check_gate(subject, expected_sequence, gate)
        self._require(gate)
        return self._store(subject, message)

    async def append_all(self, appends: Sequence[Append]) -> Sequence[int]:
        """See `EventStore.append_all`."""
        check_batch(appends)
        for one in appends:
            self._require(Gate(one.subject, one.expected_sequence))
        return [self._store(one.subject, one.message) for one in appends]

    async def load(self, subject: str, after_sequence: int = 0) -> Sequence[EventMessage]:
        """See `EventStore.load`."""
        stored = [
            (sequence, one)
            for sequence, one in _numbered(self._shards.get(shard_of_subject(subject), []))
            if one.subject == subject and sequence > after_sequence
        ]
        if not stored:
            return []
        first = after_sequence + 1
        if after_sequence == 0:
            first = start_sequence(_decoded(*stored[-1]))
        found = [_decoded(sequence, one) for sequence, one in stored if sequence >= first]
        check_chain(found, from_start=after_sequence == 0)
        return found

    async def scan(
        self, shard: int, pattern: str, after_sequence: int = 0
    ) -> AsyncIterator[EventMessage]:
        """See `EventStore.scan`."""
        for sequence, one in list(_numbered(self._shards.get(shard, []))):
            if sequence > after_sequence and matches(pattern, one.subject):
                yield _marked(sequence, one)

    async def purge(self, pattern: str, below_sequence: int) -> None:
        """See `EventStore.purge`."""
        assert below_sequence > 0, "every purge names an upper sequence"
        log = self._shards.get(shard_of_subject(pattern), [])
        for sequence, one in list(_numbered(log)):
            if sequence < below_sequence and matches(pattern, one.subject):
                log[sequence - 1] = None
                if self._last.get(one.subject, 0) < below_sequence:
                    self._last.pop(one.subject, None)

    async def last_sequence(self, shard: int) -> int:
        """See `EventStore.last_sequence`."""
        return len(self._shards.get(shard, ()))

    async def follow(self, shard: int, after_sequence: int) -> AsyncIterator[EventMessage]:
        """See `EventStore.follow`."""
        log = self._shards.setdefault(shard, [])
        at = after_sequence
        while True:
            while at < len(log):
                one = log[at]
                at += 1
                if one is not None:
                    yield _marked(at, one)
            await self._growth.wait()

    def _require(self, gate: Gate) -> None:
        actual = self._last.get(gate.subject, 0)
        if actual != gate.sequence:
            raise WrongExpectedSequence(
                "the subject has moved on",
                subject=gate.subject,
                expected=gate.sequence,
                actual=actual,
            )

    def _store(self, subject: str, message: NewMessage) -> int:
        log = self._shards.setdefault(shard_of_subject(subject), [])
        headers = encode_headers(subject, message)
        log.append(_Stored(subject, headers, message.body, self._now_ms()))
        self._last[subject] = len(log)
        self._growth.announce()
        return len(log)

    def damage(self, shard: int, sequence: int, body: bytes) -> None:
        """Replace a stored body without touching its checksum, as a failing disk would."""
        stored = self._shards[shard][sequence - 1]
        assert stored is not None
        self._shards[shard][sequence - 1] = stored._replace(body=body)


def _numbered(log: Sequence[_Stored | None]) -> Iterator[tuple[int, _Stored]]:
    return ((sequence, one) for sequence, one in enumerate(log, start=1) if one is not None)


def _decoded(sequence: int, one: _Stored) -> EventMessage:
    return decode_message(one.subject, sequence, one.headers, one.body, one.stored_ms)


def _marked(sequence: int, one: _Stored) -> EventMessage:
    return decode_or_mark_damaged(one.subject, sequence, one.headers, one.body, one.stored_ms)


class InMemoryObjectStore:
    """An `ObjectStore`: one KV bucket. `now_ms` dates stored objects."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._now_ms = now_ms
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

    async def write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[int | None]:
        """See `ObjectStore.write_all`."""
        check_writes(writes)
        return [self._write(one) for one in writes]

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

    def _write(self, one: ObjectWrite) -> int | None:
        found = self._objects.get(one.key)
        actual = 0 if found is None or (one.revision == 0 and not found.value) else found.revision
        return self._put(one.key, one.value) if actual == one.revision else None

    def _put(self, key: str, value: bytes) -> int:
        self._revision += 1
        self._objects[key] = StoredObject(key, value, self._revision, self._now_ms())
        self._growth.announce()
        return self._revision
