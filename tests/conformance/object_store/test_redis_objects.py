"""Objects on a Redis that dies, hangs, forgets, trims, or holds another program's data."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from redis.asyncio import Redis

from anabranch.common.adapters import redis_objects
from anabranch.common.adapters.redis_objects import RedisObjects, RedisObjectStore
from anabranch.common.errors import InvalidSetting, OutcomeUnknown, Unavailable
from anabranch.common.eventsourcing.ports import ObjectWrite, StoredObject
from anabranch.common.runtime.clock import SystemClock
from kit.infra import Infra, Server

DEADLINE_S = 10


@pytest.fixture
def own_server(infra: Infra) -> Iterator[Server]:
    """A server to be hurt."""
    with infra.redis() as server:
        yield server


@pytest.fixture
async def place(own_server: Server) -> AsyncIterator[RedisObjects]:
    made = RedisObjects(own_server.url, SystemClock(), call_s_max=0.3)
    yield made
    await made.close()


@pytest.fixture
async def raw(own_server: Server) -> AsyncIterator[Redis]:
    async with Redis.from_url(own_server.url) as client:
        yield client


class Watcher:
    """The objects as a watch reports them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.list_count = 0
        self.changed = asyncio.Event()

    async def serve(self, store: RedisObjectStore) -> None:
        async for found in store.watch():
            if found is None:
                self.list_count += 1
            elif found.value:
                self.objects[found.key] = found.value
            else:
                self.objects.pop(found.key, None)
            self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.changed.wait()
            self.changed.clear()


@asynccontextmanager
async def watching(place: RedisObjects) -> AsyncIterator[Watcher]:
    """A watcher of the bucket `b`, which has listed once."""
    made = Watcher()
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        task = group.create_task(made.serve(place.bucket("b")))
        await made.until(lambda: made.list_count == 1)
        yield made
        task.cancel()


async def test_a_killed_server_keeps_all_objects_and_the_watch_goes_on(
    place: RedisObjects, own_server: Server
) -> None:
    async with watching(place) as watcher:
        store = place.bucket("b")
        first = await store.create("a", b"1")
        own_server.kill()
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await store.create("b", b"2")
        with pytest.raises(Unavailable):
            await store.get("a")
        own_server.start()

        await store.update("a", b"3", first)

        await watcher.until(lambda: watcher.objects == {"a": b"3"})
        assert watcher.list_count == 2


async def test_a_server_that_hangs_leaves_a_write_unknown(
    place: RedisObjects, own_server: Server
) -> None:
    store = place.bucket("b")
    await store.create("a", b"1")
    own_server.pause()
    try:
        with pytest.raises(OutcomeUnknown):
            await store.create("b", b"2")
        with pytest.raises(Unavailable):
            await store.list()
    finally:
        own_server.resume()


async def test_a_server_that_forgot_everything_is_told_as_deletions(
    place: RedisObjects, raw: Redis
) -> None:
    async with watching(place) as watcher:
        store = place.bucket("b")
        await store.create("a", b"1")
        await watcher.until(lambda: "a" in watcher.objects)

        await raw.flushall()
        await watcher.until(lambda: not watcher.objects)
        await store.create("c", b"2")

        await watcher.until(lambda: watcher.objects == {"c": b"2"})


async def test_a_watch_lists_again_when_the_server_has_dropped_changes(
    place: RedisObjects, raw: Redis
) -> None:
    async with watching(place) as watcher:
        store = place.bucket("b")
        await store.create("a", b"1")
        await watcher.until(lambda: "a" in watcher.objects)
        [changes] = [key for key in await keys_of(raw) if key.endswith(b":changes")]

        async with raw.pipeline(transaction=True) as together:
            together.hdel(changes.replace(b":changes", b":objects"), "a")
            together.hset(changes.replace(b":changes", b":meta"), "revision", 9)
            together.xadd(changes, {"key": "z"}, id="9-0")
            await together.execute()

        await watcher.until(lambda: watcher.list_count == 2 and not watcher.objects)


async def test_a_watch_far_behind_reads_in_parts(
    place: RedisObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(place) as watcher:
        monkeypatch.setattr(redis_objects, "CHANGE_COUNT_MAX", 3)
        names = {f"k{number}": b"v" for number in range(20)}
        await place.bucket("b").write_all([ObjectWrite(k, v, 0) for k, v in names.items()])

        await watcher.until(lambda: watcher.objects == names)
        assert watcher.list_count == 1


async def test_more_writes_than_fit_into_a_call_are_all_performed(
    place: RedisObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_objects, "WRITE_COUNT_MAX", 2)

    revisions = await place.bucket("b").write_all([ObjectWrite(k, b"v", 0) for k in "abcde"])

    assert revisions == [1, 2, 3, 4, 5]


async def test_the_server_dates_objects(place: RedisObjects) -> None:
    store = place.bucket("b")
    before_ms = SystemClock().now_ms()
    await store.create("a", b"a value with spaces \x00\xff")
    found = await store.get("a")

    assert found == StoredObject("a", b"a value with spaces \x00\xff", 1)
    assert before_ms - 1 <= found.stored_ms <= SystemClock().now_ms()


async def test_buckets_and_prefixes_are_apart(own_server: Server, place: RedisObjects) -> None:
    other = RedisObjects(own_server.url, SystemClock(), "other")
    await place.bucket("b").create("a", b"1")

    assert await place.bucket("c").list() == []
    assert await other.bucket("b").list() == []
    await other.close()


async def keys_of(raw: Redis) -> list[bytes]:
    return cast("list[bytes]", await raw.keys())


async def test_data_of_another_program_is_never_taken_for_objects(
    place: RedisObjects, raw: Redis
) -> None:
    store = place.bucket("b")
    await store.create("a", b"1")
    [objects] = [key for key in await keys_of(raw) if key.endswith(b":objects")]
    await raw.hset(objects, "a", "nonsense")

    with pytest.raises(Unavailable):
        await store.get("a")
    with pytest.raises(Unavailable):
        await store.list()

    await raw.delete(objects)
    await raw.set(objects, "nonsense")
    with pytest.raises(Unavailable):
        await store.create("c", b"1")


async def test_the_servers_settings_are_read(place: RedisObjects, raw: Redis) -> None:
    found = await place.durability()
    assert (found.role, found.appendonly, found.maxmemory_policy) == ("master", "yes", "noeviction")
    assert (found.appendfsync, found.no_appendfsync_on_rewrite) == ("everysec", "no")
    assert int(found.version.split(".")[0]) >= 6

    await raw.config_set("appendfsync", "always")
    assert (await place.durability()).appendfsync == "always"


def test_a_wrong_url_is_refused_at_once() -> None:
    with pytest.raises(InvalidSetting):
        RedisObjects("http://127.0.0.1", SystemClock())
