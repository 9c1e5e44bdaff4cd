"""History chunks: written once, the same for everybody."""

import pytest

from anabranch.common.contracts.subjects import shard_of_subject, stream_history
from anabranch.common.errors import CorruptEvent, ObjectNotFound
from anabranch.common.eventsourcing.chunks import CHUNK_SIZE_BYTES_MAX, HistoryChunks
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import NewMessage
from anabranch.common.model.hashing import shard_of
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.ids import SeededIds

SUBJECT = stream_history(stream_ref("a.b/x"), 2, 17)


@pytest.fixture
def store() -> InMemoryEventStore:
    return InMemoryEventStore()


@pytest.fixture
def chunks(store: InMemoryEventStore) -> HistoryChunks:
    return HistoryChunks(store, SeededIds(1))


async def test_a_chunk_is_read_as_it_was_written(chunks: HistoryChunks) -> None:
    await chunks.put(SUBJECT, b"history")

    assert await chunks.read(SUBJECT) == b"history"
    assert f"ana.evt.{shard_of('a.b/x')}.history.a=b.x.2.17" == SUBJECT


async def test_writing_the_same_again_is_success_and_stores_nothing(
    chunks: HistoryChunks, store: InMemoryEventStore
) -> None:
    for _ in range(2):
        await chunks.put(SUBJECT, b"history")

    assert await store.last_sequence(shard_of_subject(SUBJECT)) == 1


async def test_other_bytes_under_the_same_name_are_refused(chunks: HistoryChunks) -> None:
    await chunks.put(SUBJECT, b"history")

    with pytest.raises(CorruptEvent):
        await chunks.put(SUBJECT, b"another history")

    assert await chunks.read(SUBJECT) == b"history"


async def test_damage_is_noticed_when_it_is_read_and_when_it_is_written_again(
    chunks: HistoryChunks, store: InMemoryEventStore
) -> None:
    await chunks.put(SUBJECT, b"history")
    store.damage(shard_of_subject(SUBJECT), 1, b"histerie")

    with pytest.raises(CorruptEvent):
        await chunks.read(SUBJECT)
    with pytest.raises(CorruptEvent):
        await chunks.put(SUBJECT, b"history")


async def test_a_chunk_that_is_missing_or_something_else_is_told_apart(
    chunks: HistoryChunks, store: InMemoryEventStore
) -> None:
    with pytest.raises(ObjectNotFound):
        await chunks.read(SUBJECT)
    await store.append(SUBJECT, 0, NewMessage(1, "a", "events", 1, 0, b"history"))

    with pytest.raises(CorruptEvent):
        await chunks.read(SUBJECT)


async def test_a_chunk_is_bounded(chunks: HistoryChunks) -> None:
    with pytest.raises(AssertionError):
        await chunks.put(SUBJECT, bytes(CHUNK_SIZE_BYTES_MAX + 1))
