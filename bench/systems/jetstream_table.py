"""NATS KV: a bucket with a history of one and direct gets.

nats-py has calls for single entries: many puts go out as `publish_async` on the bucket's subjects.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast

from nats.js import JetStreamContext
from nats.js.errors import KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from bench.systems.table import Entry, Held, Version

BUCKET = "BENCH"
_BATCH_ENTRIES = 500


class JetStreamTable:
    """The bucket `BENCH`, fresh."""

    def __init__(self, bucket: KeyValue, context: JetStreamContext) -> None:
        self._bucket = bucket
        self._context = context

    async def create(self, key: bytes, value: bytes) -> Version:
        return await self._bucket.create(key.decode(), value)

    async def replace(self, key: bytes, value: bytes, version: Version) -> Version | None:
        try:
            return await self._bucket.update(key.decode(), value, last=cast(int, version))
        except KeyWrongLastSequenceError:
            return None

    async def get(self, key: bytes) -> Held:
        found = await self._bucket.get(key.decode())
        return Held(found.value or b"", found.revision)

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        publish = self._context.publish_async
        acks = [
            await publish(f"$KV.{BUCKET}.{key.decode()}", value) for key, value in entries.items()
        ]
        for ack in acks:
            await ack

    async def read_back(self) -> AsyncIterator[Sequence[Entry]]:
        watcher = await self._bucket.watchall()
        try:
            batch: list[Entry] = []
            async for entry in watcher:
                if entry is None:
                    break
                batch.append((entry.key.encode(), entry.value or b""))
                if len(batch) == _BATCH_ENTRIES:
                    yield batch
                    batch = []
            yield batch
        finally:
            await watcher.stop()  # type: ignore[no-untyped-call]
