"""What every `EventStore` does, on the in-memory one, and through the JetStream adapter on a
simulated NATS server and on a real one."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count

import pytest

from anabranch.common.adapters.jetstream_events import JetStreamEventStore, create_streams
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import CorruptEvent, WrongExpectedSequence
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import EventStore, NewMessage
from anabranch.common.runtime.clock import SystemClock
from kit.rng import seeded
from kit.simbus import SimClient, SimServer, sim_event_store, simulated_readers
from kit.simlink import Link

_NUMBERS = count()
DEADLINE_S = 10


@pytest.fixture(params=["memory", "simulated", "jetstream"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[EventStore]:
    if request.param == "memory":
        yield InMemoryEventStore()
        return
    if request.param == "simulated":
        simulated = SimServer(seeded(1), Counter())
        connection = SimClient(simulated, Link(seeded(2), Counter()), seeded(3))
        with simulated_readers():
            yield sim_event_store(connection, SystemClock())
        return
    server = request.getfixturevalue("nats_server")
    client = await connect_nats(server.url, "conformance")
    await create_streams(client)
    yield JetStreamEventStore(client, SystemClock())
    await client.close()


@pytest.fixture
def subject() -> str:
    return f"ana.evt.3.stream.scope.fresh{next(_NUMBERS)}"


def message(
    revision: int,
    append_id: str = "a",
    body: bytes = b"[]",
    kind: str = "events",
    snapshot: int = 0,
) -> NewMessage:
    return NewMessage(revision, append_id, kind, 1, snapshot, body)


async def test_an_unknown_subject_has_no_messages(store: EventStore, subject: str) -> None:
    assert await store.load(subject) == []


async def test_what_was_appended_is_loaded_in_order(store: EventStore, subject: str) -> None:
    first = await store.append(subject, 0, message(1, "a", b"one"))
    second = await store.append(subject, first, message(2, "b", b"two"))

    loaded = await store.load(subject)

    assert [(m.sequence, m.revision, m.append_id, m.body) for m in loaded] == [
        (first, 1, "a", b"one"),
        (second, 2, "b", b"two"),
    ]
    assert {m.subject for m in loaded} == {subject}


async def test_loading_after_a_sequence_leaves_out_what_is_known(
    store: EventStore, subject: str
) -> None:
    first = await store.append(subject, 0, message(1))
    second = await store.append(subject, first, message(2))

    assert [m.sequence for m in await store.load(subject, first)] == [second]
    assert await store.load(subject, second) == []


async def test_an_append_with_a_stale_expectation_is_refused_and_stores_nothing(
    store: EventStore, subject: str
) -> None:
    await store.append(subject, 0, message(1, "a"))

    with pytest.raises(WrongExpectedSequence):
        await store.append(subject, 0, message(1, "b"))

    assert [m.append_id for m in await store.load(subject)] == ["a"]


async def test_an_append_that_expects_more_than_there_is_is_refused(
    store: EventStore, subject: str
) -> None:
    with pytest.raises(WrongExpectedSequence):
        await store.append(subject, 4711, message(1))


async def test_of_racing_appends_exactly_one_wins(store: EventStore, subject: str) -> None:
    results: list[str] = []

    async def attempt(name: str) -> None:
        try:
            await store.append(subject, 0, message(1, name))
            results.append(name)
        except WrongExpectedSequence:
            results.append("refused")

    async with asyncio.TaskGroup() as group:
        for index in range(8):
            group.create_task(attempt(f"try-{index}"))

    winners = [r for r in results if r != "refused"]
    assert len(winners) == 1
    assert [m.append_id for m in await store.load(subject)] == winners


async def test_subjects_of_one_shard_do_not_mix(store: EventStore, subject: str) -> None:
    other = subject + "x"
    await store.append(subject, 0, message(1, "mine"))
    await store.append(other, 0, message(1, "theirs"))

    assert [m.append_id for m in await store.load(subject)] == ["mine"]
    assert [m.append_id for m in await store.load(other)] == ["theirs"]


async def test_loading_starts_at_the_snapshot_that_the_last_message_names(
    store: EventStore, subject: str
) -> None:
    first = await store.append(subject, 0, message(1, body=b"old"))
    snapshot = await store.append(subject, first, message(2, body=b"all", kind="snapshot"))
    await store.append(subject, snapshot, message(3, body=b"new", snapshot=snapshot))

    assert [m.body for m in await store.load(subject)] == [b"all", b"new"]


async def test_a_last_message_that_is_a_snapshot_is_enough(store: EventStore, subject: str) -> None:
    first = await store.append(subject, 0, message(1))
    await store.append(subject, first, message(2, body=b"all", kind="snapshot"))

    assert [m.body for m in await store.load(subject)] == [b"all"]


async def test_a_named_snapshot_that_is_not_there_stops_the_aggregate(
    store: EventStore, subject: str
) -> None:
    first = await store.append(subject, 0, message(1))
    await store.append(subject, first, message(2, snapshot=first))

    with pytest.raises(CorruptEvent):
        await store.load(subject)


@pytest.mark.parametrize("revisions", [(2,), (1, 3), (1, 1)])
async def test_a_break_in_the_revisions_stops_the_aggregate(
    store: EventStore, subject: str, revisions: tuple[int, ...]
) -> None:
    at = 0
    for revision in revisions:
        at = await store.append(subject, at, message(revision))

    with pytest.raises(CorruptEvent):
        await store.load(subject)


async def test_the_last_sequence_of_a_shard_is_that_of_its_newest_message(
    store: EventStore, subject: str
) -> None:
    shard = shard_of_subject(subject)
    before = await store.last_sequence(shard)
    sequence = await store.append(subject, 0, message(1))

    assert sequence > before
    assert await store.last_sequence(shard) == sequence


async def test_a_follower_sees_what_was_there_and_what_comes(
    store: EventStore, subject: str
) -> None:
    shard = shard_of_subject(subject)
    start = await store.last_sequence(shard)
    first = await store.append(subject, 0, message(1, "old"))
    seen: list[str] = []

    async with asyncio.timeout(DEADLINE_S):
        async for followed in store.follow(shard, start):
            seen.append(followed.append_id)
            if len(seen) == 1:
                await store.append(subject, first, message(2, "new"))
            else:
                break

    assert seen == ["old", "new"]


async def test_a_follower_reads_more_than_one_batch(store: EventStore, subject: str) -> None:
    shard = shard_of_subject(subject)
    start = at = await store.last_sequence(shard)
    at = 0
    for revision in range(1, 301):
        at = await store.append(subject, at, message(revision))
    revisions = []

    async with asyncio.timeout(DEADLINE_S):
        async for followed in store.follow(shard, start):
            revisions.append(followed.revision)
            if followed.sequence == at:
                break

    assert revisions == list(range(1, 301))
