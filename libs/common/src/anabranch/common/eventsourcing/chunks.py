"""History chunks: immutable messages that hold the parts of aggregates that grow with age.

A chunk has a subject of its own. It is written once, before the event that refers to it, and never
changed. Writing it again (after a crash, or by two controllers at once) succeeds if its bytes are
the same, so the same history must always produce the same bytes.
"""

from collections.abc import Callable, Set

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import CorruptEvent, ObjectNotFound, WrongExpectedSequence
from anabranch.common.eventsourcing.message import KIND_CHUNK, counted
from anabranch.common.eventsourcing.ports import EventStore, NewMessage
from anabranch.common.runtime.ids import IdSource

CHUNK_ENTRIES_MAX = 1000
CHUNK_SIZE_BYTES_MAX = 512 * 1024
"""Well below the size limit of a NATS message."""


class HistoryChunks:
    """Chunks in an event store. Subjects are those of `contracts.subjects`."""

    def __init__(self, store: EventStore, ids: IdSource) -> None:
        self._store = store
        self._ids = ids

    async def put(
        self, subject: str, body: bytes, is_same: Callable[[bytes], bool] | None = None
    ) -> None:
        """Store a chunk; idempotent. Raises CorruptEvent if the subject holds another chunk.

        `is_same(stored)` returns whether a stored chunk with other bytes, perhaps of an earlier
        release, has the same contents.
        """
        assert len(body) <= CHUNK_SIZE_BYTES_MAX, "a history chunk is bounded"
        message = NewMessage(
            revision=1,
            append_id=self._ids.new_id(),
            kind=KIND_CHUNK,
            schema_number=1,
            snapshot_sequence=0,
            body=body,
        )
        try:
            await self._store.append(subject, 0, message)
        except WrongExpectedSequence:
            stored = await self.read(subject)
            if stored != body and not (is_same is not None and is_same(stored)):
                raise CorruptEvent(
                    "a history chunk already holds different bytes", subject=subject
                ) from None

    async def read(self, subject: str) -> bytes:
        """The chunk, its checksum verified. Raises ObjectNotFound, CorruptEvent."""
        messages = list(counted(await self._store.load(subject)))
        if not messages:
            raise ObjectNotFound("no such history chunk", subject=subject)
        if len(messages) != 1 or messages[0].kind != KIND_CHUNK:
            raise CorruptEvent(
                "a history chunk's subject holds another kind of message", subject=subject
            )
        return messages[0].body

    async def held(self, pattern: str) -> Set[str]:
        """The subjects of the pattern, of whatever kind, that have messages. Raises
        Unavailable."""
        found = self._store.scan(shard_of_subject(pattern), pattern)
        return {message.subject async for message in found}

    async def delete_all(self, pattern: str, below_sequence: int) -> None:
        """Delete all chunks that match the pattern and were stored before. Like
        `EventStore.purge`."""
        await self._store.purge(pattern, below_sequence)

    async def delete(self, subject: str) -> None:
        """Delete the chunk for good; idempotent, also if it never existed. Raises Unavailable."""
        messages = await self._store.load(subject)
        if messages:
            await self._store.purge(subject, messages[-1].sequence + 1)
