"""The `ObjectStore` on a NATS key-value bucket, by plain JetStream messages.

A value is the last message on ``$KV.<bucket>.<key>``; its stream sequence is its revision. Every
write is conditional on the key's last sequence: a write replaces a delete marker by naming its
revision, and it never overwrites an unseen change. The store reads values from the leader. Other
key-value clients can read the bucket. No key ever has a time to live.
"""

from collections.abc import AsyncIterator, Mapping, Sequence

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import KeyValueConfig, StorageType

from anabranch.common.adapters.jetstream_conditions import (
    EXPECTED_SEQUENCE_HEADER,
    WRONG_LAST_SEQUENCE_CODES,
)
from anabranch.common.adapters.jetstream_reader import (
    StreamMessage,
    StreamReader,
)
from anabranch.common.adapters.nats_connection import as_unavailable, keeping_cancellation
from anabranch.common.errors import (
    ObjectExists,
    OutcomeUnknown,
    RevisionConflict,
    StreamRewound,
    Unavailable,
)
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.runtime.clock import Clock

WRITE_DEADLINE_S = 5.0
_OPERATION_HEADER = "KV-Operation"


async def create_bucket(client: Client, bucket: str) -> None:
    """Create the bucket if it is missing. Raises Unavailable."""
    js = client.jetstream()
    with as_unavailable("create the bucket", bucket=bucket):
        try:
            await js.stream_info(f"KV_{bucket}")
        except nats.js.errors.NotFoundError:
            config = KeyValueConfig(bucket=bucket, history=1, storage=StorageType.FILE)
            await js.create_key_value(config)


class JetStreamObjectStore:
    """An `ObjectStore` on one bucket; `create_bucket` must have run.

    Writes may also raise OutcomeUnknown: read the key before you decide again.
    """

    def __init__(self, client: Client, clock: Clock, bucket: str) -> None:
        self._js = client.jetstream()
        self._stream = f"KV_{bucket}"
        self._prefix = f"$KV.{bucket}."
        self._reader = StreamReader(client, clock, self._stream, f"{self._prefix}>")

    async def get(self, key: str) -> StoredObject | None:
        """See `ObjectStore.get`. Also raises Unavailable."""
        found = await self._newest(key)
        return found if found is not None and found.value else None

    async def create(self, key: str, value: bytes) -> int:
        """See `ObjectStore.create`."""
        assert value
        marker = await self._newest(key)
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
        await self._write(key, b"", revision, {_OPERATION_HEADER: "DEL"})

    async def list(self) -> Sequence[StoredObject]:
        """See `ObjectStore.list`. Also raises Unavailable."""
        stored = [self._object(m) for m in await self._reader.newest_per_subject()]
        return sorted((o for o in stored if o.value), key=lambda o: o.key)

    async def watch(self) -> AsyncIterator[StoredObject | None]:
        """See `ObjectStore.watch`. Raises Unavailable if the first listing fails."""
        while True:
            reached = await self._reader.last_sequence()
            listed = {present.key: present for present in await self.list()}
            for present in listed.values():
                yield present
            yield None
            try:
                async for message in self._reader.follow(reached):
                    changed = self._object(message)
                    known = listed.get(changed.key)
                    if known is None or known.revision < changed.revision:
                        yield changed
            except StreamRewound:
                continue  # The bucket was replaced: start again with the full list.

    async def _newest(self, key: str) -> StoredObject | None:
        with as_unavailable("read the object", key=key):
            try:
                raw = await self._js.get_last_msg(self._stream, self._prefix + key)
            except nats.js.errors.NotFoundError:
                return None
        assert raw.seq is not None
        stored_ms = int(raw.time.timestamp() * 1000) if raw.time is not None else 0
        return StoredObject(key, _value(raw.headers or {}, raw.data or b""), raw.seq, stored_ms)

    async def _write(
        self, key: str, value: bytes, revision: int, headers: Mapping[str, str] | None = None
    ) -> int:
        sent = {EXPECTED_SEQUENCE_HEADER: str(revision), **(headers or {})}
        try:
            with keeping_cancellation():
                ack = await self._js.publish(
                    self._prefix + key, value, timeout=WRITE_DEADLINE_S, headers=sent
                )
            return ack.seq
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
        newest = await self._newest(key)
        raise RevisionConflict(
            "the object has changed",
            key=key,
            expected=revision,
            actual=newest.revision if newest is not None else 0,
        )

    def _object(self, message: StreamMessage) -> StoredObject:
        key = message.subject.removeprefix(self._prefix)
        return StoredObject(key, _value(message.headers, message.data), message.sequence)


def _value(headers: Mapping[str, str], data: bytes) -> bytes:
    return b"" if headers.get(_OPERATION_HEADER) in ("DEL", "PURGE") else data
