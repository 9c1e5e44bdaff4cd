"""What every `ObjectStore` does, on the in-memory one, a real NATS server and a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore, create_bucket
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.adapters.redis_objects import RedisObjects
from anabranch.common.errors import ObjectExists, RevisionConflict
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.eventsourcing.ports import ObjectStore, ObjectWrite, StoredObject
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target

_NUMBERS = count()
DEADLINE_S = 10


@pytest.fixture(params=["memory", "jetstream", "redis-2", "redis-3"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
    if request.param == "memory":
        yield InMemoryObjectStore()
        return
    if request.param.startswith("redis"):
        server = request.getfixturevalue("redis_server")
        protocol = int(request.param[-1])
        place = RedisObjects(server.url, SystemClock(), protocol=protocol)
        yield place.bucket(f"fresh{next(_NUMBERS)}")
        await place.close()
        return
    server = request.getfixturevalue("nats_server")
    client = await connect_nats(nats_target(server.url), "conformance")
    bucket = f"fresh{next(_NUMBERS)}"
    await create_bucket(client, bucket)
    await create_bucket(client, bucket)
    yield JetStreamObjectStore(client, SystemClock(), bucket)
    await client.close()


async def test_an_unknown_key_has_no_object(store: ObjectStore) -> None:
    assert await store.get("absent") is None
    assert await store.list() == []


async def test_a_created_object_is_found_at_its_revision(store: ObjectStore) -> None:
    revision = await store.create("a.b", b"one")

    assert await store.get("a.b") == StoredObject("a.b", b"one", revision)


async def test_creating_twice_is_refused(store: ObjectStore) -> None:
    await store.create("key", b"one")

    with pytest.raises(ObjectExists):
        await store.create("key", b"two")


async def test_an_update_needs_the_present_revision(store: ObjectStore) -> None:
    first = await store.create("key", b"one")
    second = await store.update("key", b"two", first)

    with pytest.raises(RevisionConflict) as refusal:
        await store.update("key", b"three", first)

    assert second > first
    assert refusal.value.fields["actual"] == second
    assert await store.get("key") == StoredObject("key", b"two", second)


async def test_updating_what_is_not_there_is_refused(store: ObjectStore) -> None:
    with pytest.raises(RevisionConflict):
        await store.update("absent", b"one", 5)


async def test_a_deleted_object_is_gone_and_can_be_created_again(store: ObjectStore) -> None:
    first = await store.create("key", b"one")
    with pytest.raises(RevisionConflict):
        await store.delete("key", first + 1)
    await store.delete("key", first)
    assert await store.get("key") is None
    assert await store.list() == []

    again = await store.create("key", b"two")

    assert again > first
    assert await store.get("key") == StoredObject("key", b"two", again)


async def test_objects_are_listed_sorted_by_key(store: ObjectStore) -> None:
    for key in ("b", "a", "c"):
        await store.create(key, key.encode())

    assert [o.key for o in await store.list()] == ["a", "b", "c"]


async def test_of_racing_creators_exactly_one_wins(store: ObjectStore) -> None:
    won: list[int] = []

    async def attempt(number: int) -> None:
        try:
            won.append(await store.create("key", str(number).encode()))
        except ObjectExists:
            return

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(attempt(number))

    assert len(won) == 1


async def test_a_watcher_sees_what_is_there_then_a_mark_then_changes(store: ObjectStore) -> None:
    revision = await store.create("old", b"1")
    seen: list[tuple[str, bytes] | None] = []

    async with asyncio.timeout(DEADLINE_S):
        async for found in store.watch():
            seen.append(None if found is None else (found.key, found.value))
            match len(seen):
                case 2:
                    await store.create("new", b"2")
                case 3:
                    await store.delete("old", revision)
                case 4:
                    break

    assert seen == [("old", b"1"), None, ("new", b"2"), ("old", b"")]


async def test_several_writes_succeed_or_fail_alone(store: ObjectStore) -> None:
    old = await store.create("old", b"1")
    gone = await store.create("gone", b"2")
    await store.create("kept", b"3")

    revisions = await store.write_all(
        [
            ObjectWrite("new", b"4", 0),
            ObjectWrite("old", b"5", old),
            ObjectWrite("kept", b"6", 0),
            ObjectWrite("gone", b"", gone),
            ObjectWrite("absent", b"7", 9),
            ObjectWrite("never", b"", 9),
        ]
    )

    new, updated, *refused = [revisions[at] for at in (0, 1, 2, 4, 5)]
    assert refused == [None, None, None]
    assert (revisions[3] or 0) > gone
    assert await store.get("new") == StoredObject("new", b"4", new or 0)
    assert await store.get("old") == StoredObject("old", b"5", updated or 0)
    assert [(o.key, o.value) for o in await store.list()] == [
        ("kept", b"3"),
        ("new", b"4"),
        ("old", b"5"),
    ]


async def test_a_deleted_object_is_created_again_among_several_writes(store: ObjectStore) -> None:
    first = await store.create("key", b"1")
    [deleted] = await store.write_all([ObjectWrite("key", b"", first)])
    [again] = await store.write_all([ObjectWrite("key", b"2", 0)])

    assert first < (deleted or 0) < (again or 0)
    assert await store.get("key") == StoredObject("key", b"2", again or 0)


async def test_a_write_of_several_at_an_older_revision_changes_nothing(store: ObjectStore) -> None:
    first = await store.create("key", b"1")
    second = await store.update("key", b"2", first)

    assert await store.write_all([ObjectWrite("key", b"3", first)]) == [None]
    assert await store.write_all([ObjectWrite("key", b"", first)]) == [None]
    assert await store.get("key") == StoredObject("key", b"2", second)


async def test_no_writes_are_performed_at_once(store: ObjectStore) -> None:
    assert await store.write_all([]) == []


async def test_a_thousand_objects_are_created_and_seen_by_a_watcher(store: ObjectStore) -> None:
    names = [f"object-{number:04d}" for number in range(1000)]
    seen: dict[str, int] = {}

    async with asyncio.timeout(DEADLINE_S):
        async for found in store.watch():
            if found is None:
                revisions = await store.write_all([ObjectWrite(n, n.encode(), 0) for n in names])
            else:
                assert found.value == found.key.encode()
                seen[found.key] = found.revision
                if len(seen) == len(names):
                    break

    assert seen == dict(zip(names, revisions, strict=True))
    assert [o.key for o in await store.list()] == names
