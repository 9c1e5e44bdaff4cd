"""The `ObjectStore` on a NATS key-value bucket, by plain JetStream messages.

A value is the last message on ``$KV.<bucket>.<key>``; its stream sequence is its revision. Every
write is conditional on the key's last sequence: a write replaces a delete marker by naming its
revision, and it never overwrites an unseen change. The store reads values from the leader. Other
key-value clients can read the bucket. No key ever has a time to live.

A cluster of servers checks the condition when it proposes a message, not when it stores it. On a
cluster, a bucket therefore keeps some earlier messages of each key. A write counts if the first
message of the key after the expected one is its own, and a reader takes the value of the last
message that counts (`counted_objects`, ADR 13).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RawStreamMsg, StorageType, StreamConfig

from anabranch.common.adapters.counted_objects import (
    CountedObjects,
    ObjectsOfOneServer,
    value_of,
)
from anabranch.common.adapters.jetstream_conditions import (
    EXPECTED_SEQUENCE_HEADER,
    IN_PROCESS_PAUSE_S,
    IN_PROCESS_S_MAX,
    RESOLVE_PAUSE_S,
    WRONG_LAST_SEQUENCE_CODES,
)
from anabranch.common.adapters.jetstream_object_batches import (
    DELETION,
    ObjectBatches,
    Stored,
    parts,
    write_in_batches,
)
from anabranch.common.adapters.jetstream_reader import (
    StreamMessage,
    StreamReader,
)
from anabranch.common.adapters.jetstream_streams import ensure_stream
from anabranch.common.adapters.nats_connection import (
    as_unavailable,
    is_clustered,
    keeping_cancellation,
)
from anabranch.common.errors import (
    ObjectExists,
    OutcomeUnknown,
    RevisionConflict,
    StreamRewound,
    Unavailable,
)
from anabranch.common.eventsourcing.ports import ObjectWrite, StoredObject, check_writes
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import answers

WRITE_DEADLINE_S = 5.0
IN_FLIGHT_MAX = 64
"""How many requests of one `write_all` are sent before the first is answered."""
TO_THE_END = 2**63 - 1
HISTORY_COUNT = 16
"""The messages of each key that a bucket on a cluster keeps: more than follow a write while it is
read back."""


async def create_bucket(client: Client, bucket: str, replicas: int = 1) -> tuple[str, ...]:
    """Ensure the bucket; return the names of its servers. Raises Unavailable."""
    return await ensure_stream(
        client,
        StreamConfig(
            name=f"KV_{bucket}",
            subjects=[f"$KV.{bucket}.>"],
            storage=StorageType.FILE,
            num_replicas=replicas,
            max_msgs_per_subject=HISTORY_COUNT if is_clustered(client) else 1,
            discard=DiscardPolicy.NEW,
            allow_rollup_hdrs=True,
            deny_delete=True,
            allow_direct=False,
            allow_atomic=True,
        ),
    )


class JetStreamObjectStore:
    """An `ObjectStore` on one bucket; `create_bucket` must have run.

    Writes may also raise OutcomeUnknown: read the key before you decide again.
    """

    def __init__(self, client: Client, clock: Clock, bucket: str) -> None:
        self._client = client
        self._clock = clock
        self._js = client.jetstream()
        self._stream = f"KV_{bucket}"
        self._prefix = f"$KV.{bucket}."
        self._reader = StreamReader(client, clock, self._stream, f"{self._prefix}>")
        self._batches = ObjectBatches(client, clock, self._prefix, self._first_from)

    async def get(self, key: str) -> StoredObject | None:
        """See `ObjectStore.get`. Also raises Unavailable."""
        found = await self._present(key)
        return found if found is not None and found.value else None

    async def create(self, key: str, value: bytes) -> int:
        """See `ObjectStore.create`."""
        assert value
        marker = await self._present(key)
        if marker is not None and marker.value:
            raise ObjectExists("the key has a value", key=key, revision=marker.revision)
        revision = marker.revision if marker is not None else 0
        try:
            return await self._write(key, value, revision)
        except RevisionConflict as error:
            raise ObjectExists("another writer has just set the key", key=key) from error

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """See `ObjectStore.update`."""
        assert value
        return await self._write(key, value, revision)

    async def delete(self, key: str, revision: int) -> None:
        """See `ObjectStore.delete`."""
        await self._write(key, b"", revision, DELETION)

    async def write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[int | None]:
        """See `ObjectStore.write_all`. Also raises Unavailable, OutcomeUnknown."""
        check_writes(writes)
        found: dict[str, int | None] = {}
        for part in parts(writes):
            stored, left = await write_in_batches(self._batches, part, self._possible)
            revisions = await self._read_back(stored)
            found |= {one.write.key: at for one, at in zip(stored, revisions, strict=True)}
            alone = await answers(left, IN_FLIGHT_MAX, self._write_one)
            found |= {one.key: at for one, at in zip(left, alone, strict=True)}
        return [found.get(one.key) for one in writes]

    async def _write_one(self, one: ObjectWrite) -> int | None:
        """The new revision, or None if the object exists, or is at another revision."""
        with suppress(RevisionConflict):
            headers = None if one.value else DELETION
            return await self._write(one.key, one.value, one.revision, headers)
        if one.revision == 0:  # The refusal may come from a delete marker.
            with suppress(ObjectExists):
                return await self.create(one.key, one.value)
        return None

    async def _possible(self, writes: Sequence[ObjectWrite]) -> Sequence[ObjectWrite | None]:
        """Each write at the revision at which it can succeed now, or None. Raises Unavailable."""

        async def expected(one: ObjectWrite) -> ObjectWrite | None:
            present = await self._present(one.key)
            if present is None:
                return one if one.revision == 0 else None
            if one.revision == 0 and not present.value:
                return one._replace(revision=present.revision)
            return one if present.revision == one.revision else None

        return await answers(writes, IN_FLIGHT_MAX, expected)

    async def _read_back(self, stored: Sequence[Stored]) -> Sequence[int | None]:
        """The revisions of stored writes, or None for those that do not count on a cluster.

        Raises OutcomeUnknown.
        """

        async def counted(one: Stored) -> int | None:
            with suppress(RevisionConflict):
                return await self._first_after(one.write.key, one.write.revision, one.revision)
            return None

        return await answers(stored, IN_FLIGHT_MAX, counted)

    async def list(self) -> Sequence[StoredObject]:
        """See `ObjectStore.list`. Also raises Unavailable."""
        return (await self._counted()).present()

    async def watch(self) -> AsyncIterator[StoredObject | None]:
        """See `ObjectStore.watch`. Raises Unavailable if the first listing fails.

        On a single server it keeps no object after the list.
        """
        while True:
            reached = await self._reader.last_sequence()
            counted = await self._counted()
            for present in counted.present():
                yield present
            yield None
            is_cluster = is_clustered(self._client)
            following = counted if is_cluster else ObjectsOfOneServer(counted.newest())
            del counted
            try:
                async for message in self._reader.follow(reached):
                    if is_clustered(self._client) and not is_cluster:
                        break  # What was kept is not enough to judge this message.
                    changed = following.take(self._object(message), message.headers)
                    if changed is not None:
                        yield changed
            except StreamRewound:
                continue  # The bucket was replaced: start again with the full list.

    async def _counted(self) -> CountedObjects:
        """The objects after all present messages. Raises Unavailable.

        It reads to the end: what is replaced meanwhile is found again in its new place.
        """
        counted = CountedObjects()
        async for message in self._reader.read(1, TO_THE_END):
            counted.take(self._object(message), message.headers)
        return counted

    async def _present(self, key: str) -> StoredObject | None:
        """The key's object or delete marker. Raises Unavailable."""
        raw = await self._last(key)
        if raw is None or not is_clustered(self._client):
            return None if raw is None else _stored(key, raw)
        expected = (raw.headers or {}).get(EXPECTED_SEQUENCE_HEADER)
        if expected is None:
            return _stored(key, raw)
        following = await self._first_from(key, int(expected) + 1)
        if following is None or following.seq == raw.seq:
            return _stored(key, raw)
        return await self._judged(key)

    async def _judged(self, key: str) -> StoredObject | None:
        """The key's object after all its stored messages. Raises Unavailable."""
        counted, found, at = CountedObjects(), None, 1
        while (raw := await self._first_from(key, at)) is not None:
            found = counted.take(stored := _stored(key, raw), raw.headers or {})
            at = stored.revision + 1
        return found

    async def _last(self, key: str) -> RawStreamMsg | None:
        with as_unavailable("read the object", key=key):
            try:
                return await self._js.get_last_msg(self._stream, self._prefix + key)
            except nats.js.errors.NotFoundError:
                return None

    async def _first_from(self, key: str, sequence: int) -> RawStreamMsg | None:
        with as_unavailable("read the object", key=key):
            try:
                return await self._js.get_msg(
                    self._stream, seq=sequence, subject=self._prefix + key, next=True
                )
            except nats.js.errors.NotFoundError:
                return None

    async def _write(
        self, key: str, value: bytes, revision: int, headers: Mapping[str, str] | None = None
    ) -> int:
        sent = {EXPECTED_SEQUENCE_HEADER: str(revision), **(headers or {})}
        try:
            with keeping_cancellation():
                ack = await self._js.publish(
                    self._prefix + key, value, timeout=WRITE_DEADLINE_S, headers=sent
                )
            return await self._first_after(key, revision, ack.seq)
        except (
            nats.js.errors.NoStreamResponseError,
            nats.errors.OutboundBufferLimitError,
        ) as error:
            raise Unavailable("the object store rejected the value", key=key) from error
        except nats.js.errors.APIError as error:
            if error.err_code not in WRONG_LAST_SEQUENCE_CODES:
                raise Unavailable("the object store refused", key=key, cause=str(error)) from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise OutcomeUnknown("no reply to the write in time", key=key) from error
        raise _changed(key, revision, await self._conflicting(key, revision))

    async def _conflicting(self, key: str, revision: int) -> int:
        """The revision that a refused write met; 0 if the key has none. Raises Unavailable.

        A cluster refuses a write also while another one is in process and cannot be read yet.
        """
        deadline = self._clock.monotonic() + IN_PROCESS_S_MAX
        while True:
            newest = await self._last(key)
            found = (newest.seq or 0) if newest is not None else 0
            is_last = not is_clustered(self._client) or self._clock.monotonic() >= deadline
            if found != revision or is_last:
                return found
            await self._clock.sleep(IN_PROCESS_PAUSE_S)

    async def _first_after(self, key: str, revision: int, stored: int) -> int:
        """Return the sequence of an acknowledged write if no other message came before it.

        Raises RevisionConflict, OutcomeUnknown.
        """
        if not is_clustered(self._client) or stored == revision + 1:
            return stored
        deadline = self._clock.monotonic() + WRITE_DEADLINE_S
        while True:
            with suppress(Unavailable):  # The next round reads again, until the time is up.
                following = await self._first_from(key, revision + 1)
                if self._clock.monotonic() >= deadline:
                    break  # So many writes may have followed that the first is no longer stored.
                if following is not None and following.seq == stored:
                    return stored
                if following is not None and (following.seq or 0) < stored:
                    raise _changed(key, revision, stored)
            if self._clock.monotonic() >= deadline:
                break
            await self._clock.sleep(RESOLVE_PAUSE_S)
        raise OutcomeUnknown("the write cannot be read back in time", key=key)

    def _object(self, message: StreamMessage) -> StoredObject:
        key = message.subject.removeprefix(self._prefix)
        return StoredObject(key, value_of(message.headers, message.data), message.sequence)


def _stored(key: str, raw: RawStreamMsg) -> StoredObject:
    assert raw.seq is not None
    stored_ms = int(raw.time.timestamp() * 1000) if raw.time is not None else 0
    return StoredObject(key, value_of(raw.headers or {}, raw.data or b""), raw.seq, stored_ms)


def _changed(key: str, expected: int, actual: int) -> RevisionConflict:
    return RevisionConflict("the object has changed", key=key, expected=expected, actual=actual)
